//! Sums scattered over shared memory on the CPU, without atomics: each call of a task adds into a private copy of the memory it
//! scatters to, and adds the copy to the shared memory at its end. A thread's call runs all that the thread comes to.
//!
//! The launcher decides at each launch whether it pays ([`ScatterCopies`](octants_artifact::ScatterCopies)), for all calls alike: atomic
//! sums beside a call that adds its copy would get lost. Without copies the task's sums are atomic.

use llvm_sys::LLVMAtomicRMWBinOp as Rmw;

use crate::emit::{Bb, Emitter, IntCmp, T, V, llvm};
use crate::find_scatter::{Region, RegionMemory, Scatter};
use crate::lower_body::Lowering;
use crate::metadata::Tag;
use crate::place::LeafAt;

/// Words that are looked at together when the copy is added.
const GROUP: u64 = 16;
/// Parts of a region that calls can add to at the same time: a power of two.
const LOCKS: u64 = 16;
/// Words from one lock to the next, so that each has a cache line of its own.
const LOCK_WORDS: u64 = 16;
/// Parts are not smaller than so many groups.
const LEAST_GROUPS: i64 = 16;

/// Bytes of a cache line, at whose start a copy begins.
const LINE: i64 = 64;

/// A region's copy during a call.
struct Copy {
    original: V,
    copy: V,
    /// Groups that hold its scalars: the copy has room for whole groups.
    groups: V,
    leaf: LeafAt,
}

fn lock_at(e: &Emitter, locks: V, i: V) -> V {
    e.gep(e.i32, locks, e.mul_nsw(i, e.i64c(LOCK_WORDS as i64)))
}

fn vector(element: T) -> T {
    llvm!(llvm_sys::core::LLVMVectorType(element, GROUP as u32))
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

    /// Takes the task's code without atomics, `plain`, on private copies in launches that have them, and returns; goes on at the
    /// insertion point in others.
    pub fn scatter_privately(&self, scatter: &Scatter, plain: V, begin: V, end: V) {
        let e = self.e;
        let (attempt, atomic) = (self.new_block(c"private"), self.new_block(c"atomic"));
        e.cond_br(self.u.target.takes_copies(e, self.context), attempt, atomic);
        e.position(attempt);
        let mut total = e.i64c(0);
        let mut copies = Vec::new();
        for region in &scatter.regions {
            let words = self.region_words(region);
            // Whole groups, so that the last is read without care.
            let groups = e.udiv(e.add(words, e.i64c(GROUP as i64 - 1)), e.i64c(GROUP as i64));
            let bytes = e.mul(groups, e.i64c((GROUP * u64::from(region.scalar.bytes())) as i64));
            let tag = region.buffers.iter().map(|b| self.buffer_tag(*b)).reduce(Tag::union);
            let leaf = LeafAt { ptr: 0, offset: 0, scalar: region.scalar, tag };
            copies.push(Copy { original: self.region_pointer(region), copy: total, groups, leaf });
            total = e.add(total, bytes);
        }
        // Calls of one launch take turns; where other launches may run too, each sum is atomic instead.
        let locks = (!self.u.options.concurrent_launches).then(|| e.add_words("scatter.locks", LOCKS * LOCK_WORDS));
        let memory = self.u.target.allocate_zeroed(e, e.add(total, e.i64c(LINE - 1)));
        let run = self.new_block(c"private.run");
        let starved = if locks.is_some() { self.new_block(c"starved") } else { atomic };
        e.cond_br(e.icmp(IntCmp::LLVMIntEQ, memory, e.zero(e.ptr)), starved, run);
        if let Some(locks) = locks {
            e.position(starved);
            self.run_alone(&copies, plain, (begin, end), locks);
        }
        e.position(run);
        let to_line = e.and(e.sub(e.i64c(0), e.ptrtoint(memory, e.i64)), e.i64c(LINE - 1));
        let first = e.gep(e.i8, memory, to_line);
        for c in &mut copies {
            c.copy = e.gep(e.i8, first, c.copy);
        }
        let status = self.run_on_copies(&copies, plain, (begin, end));
        for c in &copies {
            match locks {
                Some(locks) => self.add_in_turns(c, (begin, end), locks),
                None => self.add_groups(c, e.i64c(0), c.groups, false),
            }
        }
        self.u.target.free(e, memory);
        e.ret(status);
        e.position(atomic);
    }

    /// Runs these iterations on the copies, and more as long as the launcher has any; yields the status.
    fn run_on_copies(&self, copies: &[Copy], plain: V, (begin, end): (V, V)) -> V {
        let e = self.e;
        let none = e.i32c(0);
        let range = self.stack(e.array_type(e.i64, 2), 8);
        let more = self.u.target.more(e, self.context);
        let (head, ask, again, done) =
            (self.new_block(c"part"), self.new_block(c"more"), self.new_block(c"again"), self.new_block(c"done"));
        let from = e.block();
        e.br(head);
        e.position(head);
        let (first, last, before) = (e.phi(e.i64), e.phi(e.i64), e.phi(e.i32));
        [(first, begin), (last, end), (before, none)].into_iter().for_each(|(phi, v)| e.add_incoming(phi, v, from));
        let mut args = vec![self.context, first, last];
        args.extend(copies.iter().map(|c| c.copy));
        let status = e.or(before, e.call(plain, &args));
        e.cond_br(e.icmp(IntCmp::LLVMIntEQ, more, e.zero(e.ptr)), done, ask);
        e.position(ask);
        e.cond_br(self.u.target.call_more(e, more, self.context, range), again, done);
        e.position(again);
        let (begin, end) = (e.load(e.i64, range, 8), e.load(e.i64, e.byte_offset(range, 8), 8));
        [(first, begin), (last, end), (before, status)].into_iter().for_each(|(phi, v)| e.add_incoming(phi, v, again));
        e.br(head);
        e.position(done);
        status
    }

    /// Runs a call on the shared memory and returns. Others add what they have copied without atomics, so it keeps them all out.
    fn run_alone(&self, copies: &[Copy], plain: V, (begin, end): (V, V), locks: V) {
        let e = self.e;
        let for_all = |act: &dyn Fn(V)| {
            let exit = self.new_block(c"all");
            let (i, next) = self.open_count(e.i64c(0), e.i64c(LOCKS as i64), exit);
            act(lock_at(e, locks, i));
            e.br(next);
            e.position(exit);
        };
        for_all(&|lock| self.acquire(lock));
        let mut args = vec![self.context, begin, end];
        args.extend(copies.iter().map(|c| c.original));
        let status = e.call(plain, &args);
        for_all(&|lock| self.release(lock));
        e.ret(status);
    }

    /// Adds a copy to the original part by part, each under a lock of its own. Calls begin at parts far from one another, so that they
    /// seldom wait.
    fn add_in_turns(&self, c: &Copy, (begin, end): (V, V), locks: V) {
        let e = self.e;
        let most = |a, b| e.select(e.icmp(IntCmp::LLVMIntSGT, a, b), a, b);
        let call = e.udiv(begin, most(e.sub_nsw(end, begin), e.i64c(1)));
        // Fibonacci hashing (Knuth, The Art of Computer Programming, section 6.4).
        let golden = e.i64c(0x9e37_79b9_7f4a_7c15_u64 as i64);
        let own = e.lshr(e.mul(call, golden), e.i64c(i64::from(64 - LOCKS.ilog2())));
        let even = e.udiv(e.add(c.groups, e.i64c(LOCKS as i64 - 1)), e.i64c(LOCKS as i64));
        let groups = most(even, e.i64c(LEAST_GROUPS));
        let exit = self.new_block(c"added");
        let (turn, next) = self.open_count(e.i64c(0), e.i64c(LOCKS as i64), exit);
        let part = e.and(e.add(turn, own), e.i64c(LOCKS as i64 - 1));
        let first = e.mul_nsw(part, groups);
        let end = e.add_nsw(first, groups);
        let end = e.select(e.icmp(IntCmp::LLVMIntSLT, end, c.groups), end, c.groups);
        let there = self.new_block(c"part");
        e.cond_br(e.icmp(IntCmp::LLVMIntSLT, first, end), there, next);
        e.position(there);
        let lock = lock_at(e, locks, part);
        self.acquire(lock);
        self.add_groups(c, first, end, true);
        self.release(lock);
        e.br(next);
        e.position(exit);
    }

    fn buffer_tag(&self, buffer: usize) -> Tag {
        let n = self.u.program.buffers[buffer].elem.leaf_count().max(1);
        let metadata = &self.u.metadata;
        metadata.component(buffer, 0).union(metadata.component(buffer, n - 1))
    }

    /// Waits until the word is zero and makes it one.
    fn acquire(&self, lock: V) {
        let e = self.e;
        let (again, held) = (self.new_block(c"lock"), self.new_block(c"locked"));
        e.br(again);
        e.position(again);
        let before = e.atomic_rmw(Rmw::LLVMAtomicRMWBinOpXchg, lock, e.i32c(1));
        e.cond_br(e.icmp(IntCmp::LLVMIntEQ, before, e.zero(e.i32)), held, again);
        e.position(held);
        e.fence();
    }

    fn release(&self, lock: V) {
        let e = self.e;
        e.fence();
        e.atomic_rmw(Rmw::LLVMAtomicRMWBinOpXchg, lock, e.zero(e.i32));
    }

    /// Adds what is not zero in these groups of a copy to the original; `exclusive`: nobody else adds to them meanwhile.
    fn add_groups(&self, c: &Copy, first: V, end: V, exclusive: bool) {
        let e = self.e;
        let s = c.leaf.scalar;
        let ty = e.scalar(s);
        let bits = vector(e.bits(s));
        let exit = self.new_block(c"added");
        let (group, next_group) = self.open_count(first, end, exit);
        let first = e.mul_nsw(group, e.i64c(GROUP as i64));
        let words = e.load(bits, e.gep(ty, c.copy, first), s.bytes());
        let any = e.intrinsic("llvm.vector.reduce.or", bits, &[words]);
        let look = self.new_block(c"look");
        e.cond_br(e.icmp(IntCmp::LLVMIntNE, any, e.zero(e.bits(s))), look, next_group);
        e.position(look);
        if exclusive {
            // Zeros may stand for what lies between the fields of a region or behind it, which others write.
            let is_added = e.icmp(IntCmp::LLVMIntNE, words, e.zero(bits));
            let all = e.intrinsic("llvm.vector.reduce.and", vector(e.i1), &[is_added]);
            let (whole, rest) = (self.new_block(c"whole"), self.new_block(c"rest"));
            e.cond_br(all, whole, rest);
            e.position(whole);
            self.add_group(c, first, words);
            e.br(next_group);
            e.position(rest);
        }
        let (word, next_word) = self.open_count(e.i64c(0), e.i64c(GROUP as i64), next_group);
        let at = e.add_nsw(first, word);
        let value = e.load(ty, e.gep(ty, c.copy, at), s.bytes());
        let raw = if s.is_float() { e.bitcast(value, e.bits(s)) } else { value };
        let add = self.new_block(c"add");
        e.cond_br(e.icmp(IntCmp::LLVMIntNE, raw, e.zero(e.bits(s))), add, next_word);
        e.position(add);
        let sum = e.gep(ty, c.original, at);
        if exclusive {
            let old = self.load_scalar(sum, &c.leaf, false);
            let new = if s.is_float() { e.fadd(old, value) } else { e.add(old, value) };
            self.store_scalar(sum, &c.leaf, new, false);
        } else {
            self.atomic_sum(sum, &c.leaf, value);
        }
        e.br(next_word);
        e.position(exit);
    }

    /// Adds the group of a copy that begins at the word `first` and has these bits to the original.
    fn add_group(&self, c: &Copy, first: V, bits: V) {
        let e = self.e;
        let s = c.leaf.scalar;
        let ty = vector(e.scalar(s));
        let at = e.gep(e.scalar(s), c.original, first);
        let old = e.load(ty, at, s.bytes());
        let new = if s.is_float() { e.fadd(old, e.bitcast(bits, ty)) } else { e.add(old, bits) };
        let store = e.store(at, new, s.bytes());
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
