//! Numbers exchanged among the threads of a block, so that threads of a warp get work of like length: a warp takes as long as its
//! longest thread.
//!
//! The threads sort what they have by weight: they count how many there are of each class of weights, which begin at the powers of two and
//! at three places between, add the counts up to where each class begins, and take places in their classes. It takes five barriers.
//! Half of the warps then take the lighter parts in ascending order and the others the heavier ones in descending order, so that warps that
//! share a scheduler, which are every fourth, have as much to do as others.
//!
//! What is assumed: see [`octants_ir::Op::Balance`]. A block of unusual size, or one that does not have all of its threads at work, exchanges
//! nothing, and neither does a task that may fail: a thread that failed would not come by.

use llvm_sys::LLVMAtomicRMWBinOp as Rmw;
use octants_ir::Scalar;

use crate::emit::{IntCmp, V};
use crate::lowering::Lowering;

/// Bits of a float's fraction that tell classes apart.
const FRACTION_BITS: i64 = 2;
/// Classes of weights. Each has a thread, so that a block must have as many at least.
const CLASSES: i64 = 32 << FRACTION_BITS;
/// Threads of a block at most.
const MOST_THREADS: i64 = 256;

impl Lowering<'_, '_> {
    /// The number that this thread gets in place of its own.
    pub fn balance(&self, number: V, weight: V, end: V, heaviest_first: bool) -> V {
        let (e, target) = (self.e, self.u.target);
        if !target.info().has_grid || !self.form.balances {
            return number;
        }
        let (own, threads) = target.thread_of_block(e);
        let first = e.sub(number, own);
        let all = e.icmp(IntCmp::LLVMIntSLE, e.add(first, threads), end);
        let beyond_least = e.sub(threads, e.i64c(CLASSES));
        let usual = e.icmp(IntCmp::LLVMIntULE, beyond_least, e.i64c(MOST_THREADS - CLASSES));
        let (sort, sorted) = (self.new_block(c"balance"), self.new_block(c"balanced"));
        let from = e.block();
        e.cond_br(e.and(all, usual), sort, sorted);
        e.position(sort);
        let [thread, of] = [own, threads].map(|v| e.trunc(v, e.i32));
        let other = e.zext(self.partner(thread, of, weight, heaviest_first), e.i64);
        let exchanged = e.add(first, other);
        let to = e.block();
        e.br(sorted);
        e.position(sorted);
        let phi = e.phi(e.i64);
        e.add_incoming(phi, number, from);
        e.add_incoming(phi, exchanged, to);
        phi
    }

    /// The thread whose number this one takes.
    fn partner(&self, own: V, threads: V, weight: V, heaviest_first: bool) -> V {
        let (e, target) = (self.e, self.u.target);
        let words = target.block_memory(e, 2 * MOST_THREADS as u64 + 32);
        let at = |base: i64, i: V| e.gep(e.i32, words, e.zext(e.add(i, e.i32c(base)), e.i64));
        let read = |base: i64, i: V| e.load(e.i32, at(base, i), 4);
        let write = |base: i64, i: V, v: V| e.store(at(base, i), v, 4);
        let (counts, order, totals) = (0, MOST_THREADS, 2 * MOST_THREADS);

        write(counts, own, e.i32c(0));
        target.block_barrier(e);
        let class = self.weight_class(weight);
        let place = e.atomic_rmw(Rmw::LLVMAtomicRMWBinOpAdd, at(counts, class), e.i32c(1));
        target.block_barrier(e);

        // Thread by thread the class of its number: how many are before it in the warp, and then in warps before.
        let count = read(counts, own);
        let lane = target.lane(e);
        let (before, total) = target.sums_in_warp(e, lane, count);
        let bits = e.i32c(i64::from(target.warp_bits()));
        let (warp, warps) = (e.lshr(own, bits), e.lshr(threads, bits));
        write(totals, warp, total);
        target.block_barrier(e);
        let earlier = (0..CLASSES >> target.warp_bits()).fold(before, |sum, w| {
            let of = read(totals, e.i32c(w));
            let is_before = e.icmp(IntCmp::LLVMIntULT, e.i32c(w), warp);
            e.add(sum, e.select(is_before, of, e.i32c(0)))
        });
        write(counts, own, earlier);
        target.block_barrier(e);

        let position = e.add(read(counts, class), place);
        write(order, position, own);
        target.block_barrier(e);
        let half = e.lshr(warps, e.i32c(1));
        let mirrored = e.sub(e.sub(e.add(warps, half), e.i32c(1)), warp);
        let upper = e.or(e.shl(mirrored, bits), lane);
        let part = e.select(e.icmp(IntCmp::LLVMIntULT, warp, half), own, upper);
        let part = if heaviest_first { e.sub(e.sub(threads, e.i32c(1)), part) } else { part };
        read(order, part)
    }

    /// The class of a weight, below [`CLASSES`]: heavier ones are not in a lower class.
    fn weight_class(&self, weight: V) -> V {
        let e = self.e;
        let most = e.i64c(i64::from(u32::MAX >> 1));
        let least = e.select(e.icmp(IntCmp::LLVMIntSGT, weight, e.i64c(0)), weight, e.i64c(0));
        let bounded = e.select(e.icmp(IntCmp::LLVMIntSLT, least, most), least, most);
        let float = self.cast(e.trunc(bounded, e.i32), Scalar::I32, Scalar::F32);
        let bits = e.lshr(e.bitcast(float, e.i32), e.i32c(23 - FRACTION_BITS));
        // The exponent of one is 127; classes of weights from one on come after that of zero.
        let from_one = e.sub(bits, e.i32c((127 << FRACTION_BITS) - 1));
        e.select(e.icmp(IntCmp::LLVMIntSGT, from_one, e.i32c(0)), from_one, e.i32c(0))
    }
}
