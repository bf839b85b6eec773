//! Sums scattered over little memory on devices whose threads run in blocks: each block adds into a copy in memory of its own,
//! and adds the copy to the device's memory at its end. Histograms are what this is for, and gradients of what all iterations read.
//!
//! It applies to what a task scatters sums to and does nothing else with (`privatize_scatter`), where the copies are small; the
//! task's other sums go where they went. An array's size is known at run time only: such a task holds the direct form too.

use llvm_sys::LLVMAtomicRMWBinOp as Rmw;
use octants_ir::schedule::{Coarsening, Region, ScatterPrivatization};
use octants_ir::{ForLoop, LoopConfig, Scalar, ValueId};

use crate::emit::{IntCmp, V};
use crate::lowering::Lowering;

/// A copy of a region.
struct Copy {
    /// The region's memory.
    original: V,
    /// The block's memory.
    copy: V,
    /// Words of it.
    words: V,
    scalar: Scalar,
}

impl<'p> Lowering<'_, 'p> {
    /// A parallel loop whose blocks add into copies, where these are small enough.
    pub fn blockwise_for(
        &mut self,
        v: ValueId,
        l: &'p ForLoop,
        config: &LoopConfig,
        coarsening: Option<Coarsening>,
        scatter: &ScatterPrivatization,
    ) {
        let e = self.e;
        let words: Vec<V> = scatter.regions.iter().map(|r| self.region_words(r)).collect();
        // Copies begin at multiples of eight bytes.
        let bytes: Vec<V> = scatter.regions.iter().zip(&words).map(|(r, w)| self.copy_bytes(r, *w)).collect();
        let total = bytes.iter().fold(e.i64c(0), |n, b| e.add(n, *b));
        let most = self.u.target.info().shared_bytes as i64;
        let known = e.as_int(total);
        let direct = self.new_block(c"direct");
        let copied = self.new_block(c"copied");
        let end = self.new_block(c"scattered");
        match known {
            Some(_) => e.br(copied),
            None => e.cond_br(e.icmp(IntCmp::LLVMIntULE, total, e.i64c(most)), copied, direct),
        };
        e.position(copied);
        let memory = self.u.target.block_memory(e, known.unwrap_or(most) as u64 / 4);
        let mut at = e.i64c(0);
        let mut copies = Vec::new();
        for ((region, words), bytes) in scatter.regions.iter().zip(words).zip(bytes) {
            let (original, copy) = (self.region_pointer(region), e.gep(e.i8, memory, at));
            copies.push(Copy { original, copy, words, scalar: region.scalar });
            at = e.add(at, bytes);
        }
        for c in &copies {
            let (ty, align) = (e.scalar(c.scalar), c.scalar.bytes());
            self.each_word(c.words, &|i| _ = e.store(e.gep(ty, c.copy, i), e.zero(ty), align));
        }
        self.u.target.block_barrier(e);
        for (region, c) in scatter.regions.iter().zip(&copies) {
            let start = region.start();
            self.parallel.moved.extend(region.buffers.iter().map(|b| (*b, (c.copy, start))));
        }
        self.strided_for(v, l, config, coarsening);
        self.parallel.moved.clear();
        self.u.target.block_barrier(e);
        for c in &copies {
            let (s, ty, bits) = (c.scalar, e.scalar(c.scalar), e.bits(c.scalar));
            let add = if s.is_float() { Rmw::LLVMAtomicRMWBinOpFAdd } else { Rmw::LLVMAtomicRMWBinOpAdd };
            self.each_word(c.words, &|i| {
                let value = e.load(ty, e.gep(ty, c.copy, i), s.bytes());
                let raw = if s.is_float() { e.bitcast(value, bits) } else { value };
                let (some, next) = (self.new_block(c"add"), self.new_block(c"added"));
                e.cond_br(e.icmp(IntCmp::LLVMIntNE, raw, e.zero(bits)), some, next);
                e.position(some);
                e.atomic_rmw(add, e.gep(ty, c.original, i), value);
                e.br(next);
                e.position(next);
            });
        }
        e.br(end);
        e.position(direct);
        if known.is_none() {
            self.strided_for(v, l, config, coarsening);
        }
        e.br(end);
        e.position(end);
    }

    /// Bytes of a region's copy, whole words of eight.
    fn copy_bytes(&self, region: &Region, words: V) -> V {
        let e = self.e;
        let bytes = e.mul(words, e.i64c(region.scalar.bytes().into()));
        e.and(e.add(bytes, e.i64c(7)), e.i64c(-8))
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
