//! Sums scattered over little memory on devices whose threads run in blocks: each block adds into a copy in memory of its own,
//! and adds the copy to the device's memory at its end. Histograms are what this is for.
//!
//! It applies where `privatise_scatter` finds what a task scatters to, the sums are of 32-bit integers (which blocks add in one
//! instruction), and the copies are small. An array's size is known at run time only: such a task holds the direct form too.

use llvm_sys::LLVMAtomicRMWBinOp as Rmw;
use octants_ir::{ForLoop, LoopConfig, Scalar, ValueId};

use crate::emit::{IntCmp, V};
use crate::lower_body::Lowering;
use crate::privatise_scatter::{Region, RegionMemory, Scatter};
use crate::widen_tasks::Grouping;

/// Memory of a block for copies: several blocks find room on a multiprocessor.
const MOST_BYTES: u64 = 32 << 10;
/// Longest body that is worth having twice.
const MOST_INSTRUCTIONS: usize = 200;

/// Whether blocks should keep copies of what a task of `size` instructions scatters to.
pub(crate) fn fits_blocks(scatter: &Scatter, size: usize) -> bool {
    let mut known = 0;
    let small = scatter.regions.iter().all(|r| {
        if let RegionMemory::Root { bytes, .. } = r.memory {
            known += bytes.next_multiple_of(8);
        }
        let is_array = matches!(r.memory, RegionMemory::Array { .. });
        matches!(r.scalar, Scalar::I32 | Scalar::U32) && (!is_array || size <= MOST_INSTRUCTIONS)
    });
    small && known <= MOST_BYTES
}

/// A copy of a region.
struct Copy {
    /// The region's memory.
    original: V,
    /// The block's memory.
    copy: V,
    /// Words of it.
    words: V,
}

impl<'p> Lowering<'_, 'p> {
    /// A parallel loop whose blocks add into copies, where these are small enough.
    pub fn blockwise_for(
        &mut self,
        v: ValueId,
        l: &'p ForLoop,
        config: &LoopConfig,
        grouping: Grouping,
        scatter: &Scatter,
    ) {
        let e = self.e;
        let words: Vec<V> = scatter.regions.iter().map(|r| self.region_words(r)).collect();
        let total = words.iter().fold(e.i64c(0), |n, w| e.add(n, *w));
        let most = (MOST_BYTES / 4) as i64;
        let known = e.as_int(total);
        let direct = self.new_block(c"direct");
        let copied = self.new_block(c"copied");
        let end = self.new_block(c"scattered");
        match known {
            Some(_) => e.br(copied),
            None => e.cond_br(e.icmp(IntCmp::LLVMIntULE, total, e.i64c(most)), copied, direct),
        };
        e.position(copied);
        let memory = self.u.target.block_memory(e, known.unwrap_or(most) as u64);
        let mut at = e.i64c(0);
        let mut copies = Vec::new();
        for (region, words) in scatter.regions.iter().zip(words) {
            copies.push(Copy { original: self.region_pointer(region), copy: e.gep(e.i32, memory, at), words });
            at = e.add(at, words);
        }
        for c in &copies {
            self.each_word(c.words, &|i| _ = e.store(e.gep(e.i32, c.copy, i), e.i32c(0), 4));
        }
        self.u.target.block_barrier(e);
        for (region, c) in scatter.regions.iter().zip(&copies) {
            let start = region_start(region);
            self.moved.extend(region.buffers.iter().map(|b| (*b, (c.copy, start))));
        }
        self.strided_for(v, l, config, grouping);
        self.moved.clear();
        self.u.target.block_barrier(e);
        for c in &copies {
            self.each_word(c.words, &|i| {
                let value = e.load(e.i32, e.gep(e.i32, c.copy, i), 4);
                let (add, next) = (self.new_block(c"add"), self.new_block(c"added"));
                e.cond_br(e.icmp(IntCmp::LLVMIntNE, value, e.i32c(0)), add, next);
                e.position(add);
                e.atomic_rmw(Rmw::LLVMAtomicRMWBinOpAdd, e.gep(e.i32, c.original, i), value);
                e.br(next);
                e.position(next);
            });
        }
        e.br(end);
        e.position(direct);
        if known.is_none() {
            self.strided_for(v, l, config, grouping);
        }
        e.br(end);
        e.position(end);
    }

    /// Runs `f` for every word of a block's copy, shared among the block's threads. `f` may leave the insertion point elsewhere.
    fn each_word(&self, words: V, f: &dyn Fn(V)) {
        let e = self.e;
        let (own, step) = self.u.target.thread_of_block(e);
        let (head, inside, done) = (self.new_block(c"words"), self.new_block(c"word"), self.new_block(c"words.done"));
        let from = e.block();
        e.br(head);
        e.position(head);
        let i = e.phi(e.i64);
        e.add_incoming(i, own, from);
        e.cond_br(e.icmp(IntCmp::LLVMIntSLT, i, words), inside, done);
        e.position(inside);
        f(i);
        let next = e.add_nsw(i, step);
        e.add_incoming(i, next, e.block());
        e.br(head);
        e.position(done);
    }
}

/// Bytes of its root that lie before a region.
pub(crate) fn region_start(region: &Region) -> u64 {
    if let RegionMemory::Root { start, .. } = region.memory { start } else { 0 }
}
