//! Read-modify-write, and reductions of parallel loops.

use llvm_sys::LLVMAtomicRMWBinOp as Rmw;
use octants_ir::{AtomicOp, BinaryOp, Const, ForLoop, Scalar, ValueId, fold_identity};

use crate::emit::{IntCmp, V};
use crate::lowering::Lowering;
use crate::place::{LeafAt, Place};

/// The word of four bytes around a narrower element.
struct Word {
    at: V,
    /// The lowest bit of the element.
    shift: V,
    /// The bits of its neighbors.
    others: V,
}

impl Lowering<'_, '_> {
    /// The value that an update stores.
    pub fn updated(&self, op: AtomicOp, s: Scalar, old: V, operand: V) -> V {
        op.binary().map_or(operand, |op| self.binary(op, s, old, operand))
    }

    /// Updates every leaf; yields the old values.
    pub fn atomic(&self, op: AtomicOp, place: &Place, operands: &[V]) -> Vec<V> {
        let leaves = place.shape.leaves.iter().zip(operands);
        leaves.map(|(leaf, operand)| self.atomic_scalar(op, place, leaf, *operand)).collect()
    }

    fn atomic_scalar(&self, op: AtomicOp, place: &Place, leaf: &LeafAt, operand: V) -> V {
        let ptr = self.leaf_pointer(place, leaf);
        let s = leaf.scalar;
        // Memory without a tag is private to a thread.
        if leaf.tag.is_none() && self.e.is_alloca(ptr) {
            return self.update_plainly(op, ptr, leaf, operand);
        }
        // Machines add floats; few subtract them. The sum with the negated operand is the same number.
        let (op, operand) = match op {
            AtomicOp::Sub if s.is_float() => (AtomicOp::Add, self.e.fneg(operand)),
            _ => (op, operand),
        };
        if self.is_in_word(Some(op), s) {
            return self.cas_loop(op, ptr, leaf, operand);
        }
        let rmw = match (op, s) {
            (AtomicOp::Add, s) if s.is_float() => Rmw::LLVMAtomicRMWBinOpFAdd,
            (_, Scalar::U1 | Scalar::F16) | (AtomicOp::Mul, _) => return self.cas_loop(op, ptr, leaf, operand),
            (AtomicOp::Min | AtomicOp::Max, s) if s.is_float() => {
                let by_target = self.u.target.atomic_float_extremum(self.e, op, s, ptr, operand);
                return by_target.unwrap_or_else(|| self.cas_loop(op, ptr, leaf, operand));
            }
            (AtomicOp::Add, _) => Rmw::LLVMAtomicRMWBinOpAdd,
            (AtomicOp::Sub, _) => Rmw::LLVMAtomicRMWBinOpSub,
            (AtomicOp::And, _) => Rmw::LLVMAtomicRMWBinOpAnd,
            (AtomicOp::Or, _) => Rmw::LLVMAtomicRMWBinOpOr,
            (AtomicOp::Xor, _) => Rmw::LLVMAtomicRMWBinOpXor,
            (AtomicOp::Exchange, _) => Rmw::LLVMAtomicRMWBinOpXchg,
            (AtomicOp::Min, s) if s.is_signed() => Rmw::LLVMAtomicRMWBinOpMin,
            (AtomicOp::Max, s) if s.is_signed() => Rmw::LLVMAtomicRMWBinOpMax,
            (AtomicOp::Min, _) => Rmw::LLVMAtomicRMWBinOpUMin,
            (AtomicOp::Max, _) => Rmw::LLVMAtomicRMWBinOpUMax,
        };
        let v = self.e.atomic_rmw(rmw, ptr, operand);
        self.mark(v, leaf);
        v
    }

    fn update_plainly(&self, op: AtomicOp, ptr: V, leaf: &LeafAt, operand: V) -> V {
        let old = self.load_scalar(ptr, leaf, false);
        self.store_scalar(ptr, leaf, self.updated(op, leaf.scalar, old, operand), false);
        old
    }

    fn mark(&self, access: V, leaf: &LeafAt) {
        if let Some(tag) = leaf.tag {
            self.u.metadata.mark_access(self.e, access, tag, true);
        }
    }

    fn to_bits(&self, v: V, s: Scalar) -> V {
        match s {
            Scalar::U1 => self.e.zext(v, self.e.i8),
            s if s.is_float() => self.e.bitcast(v, self.e.bits(s)),
            _ => v,
        }
    }

    fn of_bits(&self, v: V, s: Scalar) -> V {
        match s {
            Scalar::U1 => self.e.trunc(v, self.e.i1),
            s if s.is_float() => self.e.bitcast(v, self.e.scalar(s)),
            _ => v,
        }
    }

    /// Repeats a compare-and-swap until no other thread interferes. An update that changes nothing is not stored.
    fn cas_loop(&self, op: AtomicOp, ptr: V, leaf: &LeafAt, operand: V) -> V {
        let s = leaf.scalar;
        self.swap_repeatedly(Some(op), ptr, leaf, |old| {
            let new = self.updated(op, s, self.of_bits(old, s), operand);
            self.to_bits(new, s)
        })
    }

    /// Replaces the bits of an element by `new` of them; yields the old value.
    fn swap_repeatedly(&self, op: Option<AtomicOp>, ptr: V, leaf: &LeafAt, new: impl Fn(V) -> V) -> V {
        let e = self.e;
        let s = leaf.scalar;
        let word = self.is_in_word(op, s).then(|| self.word_around(ptr, s));
        let (ty, at, align) = word.as_ref().map_or((e.bits(s), ptr, s.bytes()), |word| (e.i32, word.at, 4));
        let head = self.new_block(c"cas");
        let attempt = self.new_block(c"cas.try");
        let done = self.new_block(c"cas.done");
        let first = e.load(ty, at, align);
        e.set_monotonic(first);
        self.mark(first, leaf);
        let from = e.block();
        e.br(head);
        e.position(head);
        let before = e.phi(ty);
        e.add_incoming(before, first, from);
        let old = word.as_ref().map_or(before, |word| e.trunc(e.lshr(before, word.shift), e.bits(s)));
        let new = new(old);
        let after = word.as_ref().map_or(new, |word| {
            let element = e.shl(e.zext(new, e.i32), word.shift);
            e.or(e.and(before, word.others), element)
        });
        e.cond_br(e.icmp(IntCmp::LLVMIntEQ, before, after), done, attempt);
        e.position(attempt);
        let pair = e.cmpxchg(at, before, after);
        self.mark(pair, leaf);
        e.add_incoming(before, e.extract_value(pair, 0), attempt);
        e.cond_br(e.extract_value(pair, 1), done, head);
        e.position(done);
        self.of_bits(old, s)
    }

    /// Whether an operation (`None`: a compare-and-swap) accesses the word around an element, because the machine has
    /// no atomic of this width. LLVM's own expansion masks the pointer, and its GVN takes the masked pointer for the
    /// pointer: it then finds other elements in the word than there are.
    fn is_in_word(&self, op: Option<AtomicOp>, s: Scalar) -> bool {
        s.bytes() < 4 && !self.u.target.has_narrow_atomic(op, s)
    }

    fn word_around(&self, ptr: V, s: Scalar) -> Word {
        let e = self.e;
        let offset = e.and(e.ptrtoint(ptr, e.i64), e.i64c(3));
        let at = e.gep(e.i8, ptr, e.neg(offset));
        let shift = e.shl(e.trunc(offset, e.i32), e.i32c(3));
        let others = e.not(e.shl(e.i32c((1 << (8 * s.bytes())) - 1), shift));
        Word { at, shift, others }
    }

    /// Stores `desired` if the value is `expected`; yields the old values.
    pub fn compare_and_swap(&self, place: &Place, expected: &[V], desired: &[V]) -> Vec<V> {
        let e = self.e;
        let mut out = Vec::new();
        for ((leaf, expected), desired) in place.shape.leaves.iter().zip(expected).zip(desired) {
            let ptr = self.leaf_pointer(place, leaf);
            let s = leaf.scalar;
            let (expected, desired) = (self.to_bits(*expected, s), self.to_bits(*desired, s));
            if self.is_in_word(None, s) {
                let new = |old| e.select(e.icmp(IntCmp::LLVMIntEQ, old, expected), desired, old);
                out.push(self.swap_repeatedly(None, ptr, leaf, new));
                continue;
            }
            let pair = e.cmpxchg(ptr, expected, desired);
            self.mark(pair, leaf);
            out.push(self.of_bits(e.extract_value(pair, 0), s));
        }
        out
    }

    /// Folds a value into a reduction of the enclosing parallel loop.
    pub fn reduce(&mut self, slot: usize, value: ValueId) {
        let op = self.parallel.reductions[slot];
        let (s, value) = self.for_folding(self.scalar_of(value), self.value(value));
        let accumulator = self.parallel.accumulators[slot];
        let ty = self.e.scalar(s);
        let old = self.e.load(ty, accumulator, s.bytes());
        // The vectorizer recognizes these two as reductions; a comparison and a select it does not.
        let new = match op {
            AtomicOp::Min if s.is_float() => self.float_extremum(BinaryOp::Min, ty, old, value),
            AtomicOp::Max if s.is_float() => self.float_extremum(BinaryOp::Max, ty, old, value),
            _ => self.updated(op, s, old, value),
        };
        self.e.store(accumulator, new, s.bytes());
    }

    /// A value as it is folded: half precision would lose a large sum's small parts.
    fn for_folding(&self, s: Scalar, value: V) -> (Scalar, V) {
        if s == Scalar::F16 { (Scalar::F32, self.e.fpext(value, self.e.f32)) } else { (s, value) }
    }

    /// The type in which a reduction folds, and its value of nothing.
    fn fold_start(&self, op: AtomicOp, s: Scalar) -> (Scalar, V) {
        let identity = match fold_identity(op, s) {
            Some(Const::Float(f)) => self.e.real(self.e.scalar(s), f),
            Some(Const::Int(i)) => self.e.int(self.e.scalar(s), i),
            None => panic!("compiler bug: {op:?} is not a reduction"),
        };
        self.for_folding(s, identity)
    }

    /// The folded value of a reduction, converted for its target.
    fn folded(&self, s: Scalar, value: V) -> V {
        if s == Scalar::F16 { self.e.fptrunc(value, self.e.f16) } else { value }
    }

    /// Makes the accumulators of a parallel loop's reductions.
    pub fn begin_reductions(&mut self, l: &ForLoop) {
        for r in &l.reductions {
            let target = self.place(r.target);
            let (s, identity) = self.fold_start(r.op, target.shape.leaves[0].scalar);
            let accumulator = self.stack(self.e.scalar(s), s.bytes());
            self.e.store(accumulator, identity, s.bytes());
            self.parallel.accumulators.push(accumulator);
            self.parallel.reductions.push(r.op);
        }
    }

    /// Combines the accumulators into their targets.
    pub fn end_reductions(&mut self, l: &ForLoop) {
        for (slot, r) in l.reductions.iter().enumerate() {
            let target = self.place(r.target);
            let of_target = target.shape.leaves[0].scalar;
            let (s, _) = self.fold_start(r.op, of_target);
            let total = self.e.load(self.e.scalar(s), self.parallel.accumulators[slot], s.bytes());
            // Subtracted values were negated before the sum.
            let op = if r.op == AtomicOp::Sub { AtomicOp::Add } else { r.op };
            let total = self.folded(of_target, total);
            if r.plain {
                let leaf = &target.shape.leaves[0];
                self.update_plainly(op, self.leaf_pointer(&target, leaf), leaf, total);
            } else {
                self.atomic(op, &target, &[total]);
            }
        }
    }
}
