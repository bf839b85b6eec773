//! Sums scattered over shared memory on the CPU, without atomics: each thread adds into a private copy of the memory it
//! scatters to, and when all are done, code of its own adds the copies to the shared memory, each thread a part of all
//! of them, and clears them.
//!
//! The launcher decides at each launch whether it pays ([`ScatterCopies`](octants_artifact::ScatterCopies)), for all
//! calls alike, and hands out the copies, which are zero before and after. Without copies the task's sums are atomic.

use crate::emit::{Bb, IntCmp, V};
use crate::lowering::Lowering;
use crate::metadata::Tag;
use crate::place::LeafAt;
use octants_ir::schedule::{CopyMerge, Region, RegionMemory, ScatterPrivatization};

/// A region, and where its part of a copy lies.
struct Copied {
    original: V,
    /// Bytes from the start of a copy.
    offset: V,
    /// Groups that hold its scalars: the copy has room for whole groups.
    groups: V,
    leaf: LeafAt,
}

impl Lowering<'_, '_> {
    /// Address of a region in shared memory.
    pub fn region_pointer(&self, region: &Region) -> V {
        match region.memory {
            RegionMemory::Root { root, start, .. } => {
                let base = self.argument(self.u.facts.args.roots[root as usize], self.e.ptr);
                self.e.byte_offset(base, start as i64)
            }
            RegionMemory::Array { buffer } => {
                self.argument(self.u.facts.args.buffers[buffer].expect("compiler bug: an array has slots"), self.e.ptr)
            }
        }
    }

    pub fn region_words(&self, region: &Region) -> V {
        let e = self.e;
        match region.memory {
            RegionMemory::Root { bytes, .. } => e.i64c((bytes / u64::from(region.scalar.bytes())) as i64),
            RegionMemory::Array { buffer } => {
                let b = &self.u.program.buffers[buffer];
                let leaves = e.i64c(b.elem.leaf_count() as i64);
                (0..b.ndim as usize).fold(leaves, |n, axis| e.mul(n, self.extent(buffer, axis)))
            }
        }
    }

    /// The regions, as they follow one another in a copy.
    fn copied(&self, scatter: &ScatterPrivatization, merge: CopyMerge) -> Vec<Copied> {
        let (e, lanes) = (self.e, u64::from(merge.lanes));
        let mut offset = e.i64c(0);
        let mut copied = Vec::new();
        for region in &scatter.regions {
            let words = self.region_words(region);
            // Whole groups, so that the last is read without care.
            let groups = e.udiv(e.add(words, e.i64c(lanes as i64 - 1)), e.i64c(lanes as i64));
            let bytes = e.mul(groups, e.i64c((lanes * u64::from(region.scalar.bytes())) as i64));
            let tag = region.buffers.iter().map(|b| self.buffer_tag(*b)).reduce(Tag::union);
            let leaf = LeafAt { ptr: 0, offset: 0, scalar: region.scalar, tag };
            copied.push(Copied { original: self.region_pointer(region), offset, groups, leaf });
            offset = e.add(offset, bytes);
        }
        copied
    }

    /// Takes the task's code without atomics, `plain`, on the copy that the call was given, and returns; goes on at the
    /// insertion point where it was given none.
    pub fn scatter_privately(
        &self,
        (scatter, merge): (&ScatterPrivatization, CopyMerge),
        plain: V,
        (begin, end): (V, V),
    ) {
        let e = self.e;
        let (private, atomic) = (self.new_block(c"private"), self.new_block(c"atomic"));
        let own = self.u.target.copies(e, self.code.context);
        e.cond_br(e.icmp(IntCmp::LLVMIntEQ, own, e.zero(e.ptr)), atomic, private);
        e.position(private);
        let mut args = vec![self.code.context, begin, end];
        args.extend(self.copied(scatter, merge).iter().map(|c| e.gep(e.i8, own, c.offset)));
        e.ret(e.call(plain, &args));
        e.position(atomic);
    }

    /// Adds the parts `begin..end` of the copies that the context lists to the shared memory, and clears them.
    pub fn add_copies(&self, (scatter, merge): (&ScatterPrivatization, CopyMerge), (begin, end): (V, V)) {
        let e = self.e;
        let listed = self.u.target.copies(e, self.code.context);
        let (count, parts) = self.u.target.count_copies(e, self.code.context);
        let done = self.new_block(c"all.added");
        let (part, next_part) = self.open_count(begin, end, done);
        for c in self.copied(scatter, merge) {
            let bound = |part| e.udiv(e.mul(c.groups, part), parts);
            let (first, last) = (bound(part), bound(e.add_nsw(part, e.i64c(1))));
            let exit = self.new_block(c"added");
            let (group, next_group) = self.open_count(first, last, exit);
            self.add_group(&c, merge, group, (listed, count), next_group);
            e.position(exit);
        }
        e.br(next_part);
        e.position(done);
    }

    fn buffer_tag(&self, buffer: usize) -> Tag {
        let n = self.u.program.buffers[buffer].elem.leaf_count().max(1);
        let metadata = &self.u.metadata;
        metadata.component(buffer, 0).union(metadata.component(buffer, n - 1))
    }

    /// Adds what copies have in a group to the original, and goes on at `next`.
    fn add_group(&self, c: &Copied, merge: CopyMerge, group: V, (listed, count): (V, V), next: Bb) {
        let (e, lanes) = (self.e, merge.lanes);
        let s = c.leaf.scalar;
        let (ty, zero) = (e.scalar(s), e.zero(e.bits(s)));
        let (values, bits) = (e.vector_type(ty, lanes), e.vector_type(e.bits(s), lanes));
        let any = |words| e.intrinsic("llvm.vector.reduce.or", bits, &[words]);
        let first = e.mul_nsw(group, e.i64c(lanes.into()));
        let sum = self.stack(values, 64);
        e.store(sum, e.zero(values), 64);
        let folded = self.new_block(c"folded");
        let (copy, next_copy) = self.open_count(e.i64c(0), count, folded);
        let start = e.load(e.ptr, e.gep(e.ptr, listed, copy), 8);
        let at = e.gep(ty, e.gep(e.i8, start, c.offset), first);
        let words = e.load(bits, at, s.bytes());
        // Other threads have written it: the next group is fetched meanwhile, of all copies at once.
        let ahead = e.gep(ty, at, e.i64c(lanes.into()));
        let [reads, kept, data] = [0, 3, 1].map(|n| e.i32c(n));
        e.intrinsic("llvm.prefetch", e.ptr, &[ahead, reads, kept, data]);
        let fold = self.new_block(c"fold");
        e.cond_br(e.icmp(IntCmp::LLVMIntNE, any(words), zero), fold, next_copy);
        e.position(fold);
        let (old, more) = (e.load(values, sum, 64), if s.is_float() { e.bitcast(words, values) } else { words });
        e.store(sum, if s.is_float() { e.fadd(old, more) } else { e.add(old, more) }, 64);
        e.store(at, e.zero(bits), s.bytes());
        e.br(next_copy);

        e.position(folded);
        let sum = e.load(values, sum, 64);
        let words = if s.is_float() { e.bitcast(sum, bits) } else { sum };
        let look = self.new_block(c"look");
        e.cond_br(e.icmp(IntCmp::LLVMIntNE, any(words), zero), look, next);
        e.position(look);
        if !merge.is_atomic {
            // Zeros may stand for what lies between the fields of a region, or behind it.
            let is_added = e.icmp(IntCmp::LLVMIntNE, words, e.zero(bits));
            let all = e.intrinsic("llvm.vector.reduce.and", e.vector_type(e.i1, lanes), &[is_added]);
            let (whole, rest) = (self.new_block(c"whole"), self.new_block(c"rest"));
            e.cond_br(all, whole, rest);
            e.position(whole);
            self.add_whole(c, lanes, first, sum);
            e.br(next);
            e.position(rest);
        }
        let spilled = self.stack(values, 64);
        e.store(spilled, sum, 64);
        let (word, next_word) = self.open_count(e.i64c(0), e.i64c(lanes.into()), next);
        let value = e.load(ty, e.gep(ty, spilled, word), s.bytes());
        let raw = if s.is_float() { e.bitcast(value, e.bits(s)) } else { value };
        let add = self.new_block(c"add");
        e.cond_br(e.icmp(IntCmp::LLVMIntNE, raw, zero), add, next_word);
        e.position(add);
        let at = e.gep(ty, c.original, e.add_nsw(first, word));
        if merge.is_atomic {
            self.atomic_sum(at, &c.leaf, value);
        } else {
            let old = self.load_scalar(at, &c.leaf, false);
            let new = if s.is_float() { e.fadd(old, value) } else { e.add(old, value) };
            self.store_scalar(at, &c.leaf, new, false);
        }
        e.br(next_word);
    }

    /// Adds a group's sums to the original from the word `first` on.
    fn add_whole(&self, c: &Copied, lanes: u32, first: V, sum: V) {
        let e = self.e;
        let s = c.leaf.scalar;
        let at = e.gep(e.scalar(s), c.original, first);
        let old = e.load(e.vector_type(e.scalar(s), lanes), at, s.bytes());
        let store = e.store(at, if s.is_float() { e.fadd(old, sum) } else { e.add(old, sum) }, s.bytes());
        if let Some(tag) = c.leaf.tag {
            self.u.metadata.mark_access(e, old, tag, false);
            self.u.metadata.mark_access(e, store, tag, false);
        }
    }

    /// Opens a loop that counts from `first` to `end`: the insertion point is in its body, which must end at the returned block.
    fn open_count(&self, first: V, end: V, exit: Bb) -> (V, Bb) {
        let e = self.e;
        let (head, inside, next) =
            (self.new_block(c"count"), self.new_block(c"count.body"), self.new_block(c"count.next"));
        let from = e.block();
        e.br(head);
        e.position(head);
        let i = e.phi(e.i64);
        e.add_incoming(i, first, from);
        e.cond_br(e.icmp(IntCmp::LLVMIntSLT, i, end), inside, exit);
        e.position(next);
        e.add_incoming(i, e.add_nsw(i, e.i64c(1)), next);
        e.br(head);
        e.position(inside);
        (i, next)
    }
}
