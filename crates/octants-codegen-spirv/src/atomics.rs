//! Read-modify-write, and reductions of parallel loops.
//!
//! An update without a device instruction is a compare-and-swap of the word that contains the value: 32 bits for
//! shorter values.

use octants_ir::{AtomicOp, Const, ForLoop, Scalar, ValueId, fold_identity};
use rspirv::dr::Operand;
use rspirv::spirv::{Capability, MemorySemantics, Scope};

use crate::emit::{Id, Op};
use crate::lowering::Lowering;
use crate::place::{LeafAt, Memory, Place};

/// A word that atomic instructions work on.
struct Word {
    pointer: Id,
    /// 32 or 64.
    bits: u32,
    is_shared: bool,
    /// The position of a narrow value in the word: the number of bits below it (u32), and a mask of its bits.
    part: Option<(Id, Id)>,
}

impl Lowering<'_, '_> {
    /// The value that an update stores.
    fn updated(&self, op: AtomicOp, s: Scalar, old: Id, operand: Id) -> Id {
        op.binary().map_or(operand, |op| self.binary(op, s, old, operand))
    }

    /// Updates every leaf; yields the old values.
    pub fn atomic(&self, op: AtomicOp, place: &Place, operands: &[Id]) -> Vec<Id> {
        let leaves = place.shape.leaves.iter().zip(operands);
        leaves.map(|(leaf, operand)| self.atomic_leaf(op, place, leaf, *operand)).collect()
    }

    /// The word of a leaf that several threads see; `None` if only one thread does.
    fn word(&self, place: &Place, leaf: &LeafAt) -> Option<Word> {
        let (e, s) = (self.e, leaf.scalar);
        let bits = s.bits().max(32);
        if let Some(address) = self.leaf_address(place, leaf) {
            if s.bits() >= 32 {
                let pointer = self.pointer_to(address, e.int_type(bits));
                return Some(Word { pointer, bits, is_shared: false, part: None });
            }
            let first = e.and(address, e.u64c(!3));
            let below = e.mul(e.trunc(e.and(address, e.u64c(3)), 32), e.u32c(8));
            let ones = e.u32c((1u32 << (8 * s.bytes())) - 1);
            let part = Some((below, e.shl(ones, below)));
            return Some(Word { pointer: self.pointer_to(first, e.u32()), bits, is_shared: false, part });
        }
        match place.shape.memory[leaf.ptr as usize] {
            Memory::Shared { .. } => {
                let pointer = self.element_pointer(place, leaf)?;
                Some(Word { pointer, bits, is_shared: true, part: None })
            }
            _ => None,
        }
    }

    fn scope_and_order(&self) -> [Operand; 2] {
        let e = self.e;
        let (scope, order) = (Scope::Device as u32, MemorySemantics::RELAXED.bits());
        [Operand::IdScope(e.u32c(scope)), Operand::IdMemorySemantics(e.u32c(order))]
    }

    fn atomic_instruction(&self, op: Op, ty: Id, word: &Word, operand: Id) -> Id {
        let [scope, order] = self.scope_and_order();
        self.e.op(op, ty, vec![Operand::IdRef(word.pointer), scope, order, Operand::IdRef(operand)])
    }

    fn atomic_leaf(&self, op: AtomicOp, place: &Place, leaf: &LeafAt, operand: Id) -> Id {
        let (e, s) = (self.e, leaf.scalar);
        let Some(word) = self.word(place, leaf) else {
            let old = self.load_leaf(place, leaf, false);
            self.store_leaf(place, leaf, self.updated(op, s, old, operand));
            return old;
        };
        // Machines add floats; few subtract them. The sum with the negated operand is the same number.
        let (op, operand) = match op {
            AtomicOp::Sub if s.is_float() => (AtomicOp::Add, e.fneg(operand)),
            _ => (op, operand),
        };
        if op == AtomicOp::Add && s.is_float() && self.adds_floats(s, word.is_shared) {
            let pointer = match self.leaf_address(place, leaf) {
                Some(address) => self.pointer_to(address, e.scalar(s)),
                None => word.pointer,
            };
            return self.atomic_instruction(Op::AtomicFAddEXT, e.scalar(s), &Word { pointer, ..word }, operand);
        }
        let is_integer = s.is_int() && s.bits() >= 32 && self.has_atomics(s, word.is_shared);
        let native = match op {
            AtomicOp::Add => Op::AtomicIAdd,
            AtomicOp::Sub => Op::AtomicISub,
            AtomicOp::And => Op::AtomicAnd,
            AtomicOp::Or => Op::AtomicOr,
            AtomicOp::Xor => Op::AtomicXor,
            AtomicOp::Exchange => Op::AtomicExchange,
            AtomicOp::Min if s.is_signed() => Op::AtomicSMin,
            AtomicOp::Max if s.is_signed() => Op::AtomicSMax,
            AtomicOp::Min => Op::AtomicUMin,
            AtomicOp::Max => Op::AtomicUMax,
            AtomicOp::Mul => return self.swap_loop(op, &word, s, operand),
        };
        if is_integer {
            return self.atomic_instruction(native, e.scalar(s), &word, operand);
        }
        self.swap_loop(op, &word, s, operand)
    }

    /// Whether the device has atomic float addition of a type; declares the required capabilities.
    fn adds_floats(&self, s: Scalar, is_shared: bool) -> bool {
        let (e, features) = (self.e, &self.e.features);
        let (has, capability) = match (s, is_shared) {
            (Scalar::F32, false) => (features.atomic_float32, Capability::AtomicFloat32AddEXT),
            (Scalar::F32, true) if !self.u.shares_as_words(s) => {
                (features.shared_atomic_float32, Capability::AtomicFloat32AddEXT)
            }
            (Scalar::F64, false) => (features.atomic_float64, Capability::AtomicFloat64AddEXT),
            _ => return false,
        };
        if has {
            e.need(capability);
            e.extend("SPV_EXT_shader_atomic_float_add");
        }
        has
    }

    /// Whether the device has atomic operations of a type's size; declares the required capabilities.
    fn has_atomics(&self, s: Scalar, is_shared: bool) -> bool {
        if s.bits() < 64 {
            return true;
        }
        let (e, features) = (self.e, &self.e.features);
        let has = if is_shared { features.shared_atomic_int64 } else { features.atomic_int64 };
        if has {
            e.need(Capability::Int64Atomics);
        } else {
            e.refuse(format!("this device has no atomic operations on {s}, or on any type of 64 bits"));
        }
        has
    }

    /// The value in a word.
    fn value_in(&self, word: &Word, all: Id, s: Scalar) -> Id {
        let e = self.e;
        match word.part {
            Some((below, _)) => e.scalar_of_bits(e.trunc(e.lshr(all, below), 8 * s.bytes()), s),
            None if s.bits() < 32 => e.scalar_of_bits(all, s),
            None => e.bitcast(all, e.scalar(s)),
        }
    }

    /// A word with another value in it.
    fn with_value(&self, word: &Word, all: Id, s: Scalar, value: Id) -> Id {
        let e = self.e;
        match word.part {
            Some((below, mask)) => {
                let bits = e.shl(e.bits_in(value, s, 32), below);
                e.or(e.and(all, e.not_bits(mask)), bits)
            }
            None => e.bits_in(value, s, word.bits),
        }
    }

    /// Compare-and-swap: the old word. The word is `desired` now if it was `expected`.
    fn swap(&self, word: &Word, expected: Id, desired: Id) -> Id {
        let e = self.e;
        let [scope, order] = self.scope_and_order();
        let operands = vec![
            Operand::IdRef(word.pointer),
            scope,
            order.clone(),
            order,
            Operand::IdRef(desired),
            Operand::IdRef(expected),
        ];
        e.op(Op::AtomicCompareExchange, e.int_type(word.bits), operands)
    }

    fn load_word(&self, word: &Word) -> Id {
        let [scope, order] = self.scope_and_order();
        self.e.op(Op::AtomicLoad, self.e.int_type(word.bits), vec![Operand::IdRef(word.pointer), scope, order])
    }

    /// Repeats a compare-and-swap until no other thread came between. An update that changes nothing is not stored.
    fn swap_loop(&self, op: AtomicOp, word: &Word, s: Scalar, operand: Id) -> Id {
        let e = self.e;
        if !self.has_atomics(s, word.is_shared) {
            return operand;
        }
        let first = self.load_word(word);
        let (l, counters) = e.begin_loop(&[first]);
        let all = counters[0];
        let old = self.value_in(word, all, s);
        let new = self.with_value(word, all, s, self.updated(op, s, old, operand));
        e.loop_while(&l, e.ine(all, new));
        let found = self.swap(word, all, new);
        e.leave_or_repeat(&l, e.ieq(found, all));
        e.position(l.next);
        e.end_loop(&l, &[found]);
        old
    }

    /// Stores `desired` if the value is `expected`; yields the old values.
    pub fn compare_and_swap(&self, place: &Place, expected: &[Id], desired: &[Id]) -> Vec<Id> {
        let leaves = place.shape.leaves.iter().zip(expected).zip(desired);
        leaves.map(|((leaf, expected), desired)| self.swap_leaf(place, leaf, *expected, *desired)).collect()
    }

    fn swap_leaf(&self, place: &Place, leaf: &LeafAt, expected: Id, desired: Id) -> Id {
        let (e, s) = (self.e, leaf.scalar);
        let Some(word) = self.word(place, leaf) else {
            let old = self.load_leaf(place, leaf, false);
            let is_equal = e.ieq(e.bits_of(old, s), e.bits_of(expected, s));
            self.store_leaf(place, leaf, e.select(is_equal, desired, old));
            return old;
        };
        if !self.has_atomics(s, word.is_shared) {
            return expected;
        }
        if word.part.is_none() {
            let [expected, desired] = [expected, desired].map(|v| e.bits_in(v, s, word.bits));
            return self.value_in(&word, self.swap(&word, expected, desired), s);
        }
        // Other threads may change the bytes next to the value: then it is tried again.
        let first = self.load_word(&word);
        let (l, counters) = e.begin_loop(&[first]);
        let all = counters[0];
        let old = self.value_in(&word, all, s);
        e.loop_while(&l, e.ieq(e.bits_of(old, s), e.bits_of(expected, s)));
        let found = self.swap(&word, all, self.with_value(&word, all, s, desired));
        e.leave_or_repeat(&l, e.ieq(found, all));
        e.position(l.next);
        e.end_loop(&l, &[found]);
        old
    }

    /// Reads a scalar that others may write: as one word, each time again.
    pub fn load_volatile(&self, place: &Place, leaf: &LeafAt) -> Id {
        let s = leaf.scalar;
        match self.word(place, leaf) {
            Some(word) if word.is_shared && s.is_float() && !self.u.shares_as_words(s) => {
                self.load_leaf(place, leaf, true)
            }
            Some(word) if s.bits() < 64 || self.e.features.atomic_int64 => {
                if s.bits() == 64 {
                    self.e.need(Capability::Int64Atomics);
                }
                self.value_in(&word, self.load_word(&word), s)
            }
            _ => self.load_leaf(place, leaf, true),
        }
    }

    /// Folds a value into a reduction of the enclosing parallel loop.
    pub fn reduce(&mut self, slot: usize, value: ValueId) {
        let (accumulator, op) = self.accumulators[slot];
        let (s, value) = self.for_folding(self.scalar_of(value), self.value(value));
        let old = self.e.load(self.e.scalar(s), accumulator);
        self.e.store(accumulator, self.updated(op, s, old, value));
    }

    /// A value as it is folded: half precision would lose a large sum's small parts.
    fn for_folding(&self, s: Scalar, value: Id) -> (Scalar, Id) {
        if s == Scalar::F16 { (Scalar::F32, self.e.float_convert(value, 32)) } else { (s, value) }
    }

    /// The type in which a reduction folds, and its value of nothing.
    fn fold_start(&self, op: AtomicOp, s: Scalar) -> (Scalar, Id) {
        let identity = match fold_identity(op, s) {
            Some(Const::Float(f)) => self.e.real(s.bits(), f),
            Some(Const::Int(i)) if s == Scalar::U1 => self.e.truth(i & 1 != 0),
            Some(Const::Int(i)) => self.e.int(s.bits(), i),
            None => panic!("compiler bug: {op:?} is not a reduction"),
        };
        self.for_folding(s, identity)
    }

    /// Makes the accumulators of a parallel loop's reductions.
    pub fn begin_reductions(&mut self, l: &ForLoop) {
        for r in &l.reductions {
            let target = self.place(r.target);
            let (s, identity) = self.fold_start(r.op, target.shape.leaves[0].scalar);
            let accumulator = self.e.variable(self.e.scalar(s));
            self.e.store(accumulator, identity);
            self.accumulators.push((accumulator, r.op));
        }
    }

    /// Combines the accumulators into their targets.
    pub fn end_reductions(&mut self, l: &ForLoop) {
        for (slot, r) in l.reductions.iter().enumerate() {
            let target = self.place(r.target);
            let leaf = target.shape.leaves[0];
            let (s, _) = self.fold_start(r.op, leaf.scalar);
            let total = self.e.load(self.e.scalar(s), self.accumulators[slot].0);
            // Subtracted values were negated before the sum.
            let op = if r.op == AtomicOp::Sub { AtomicOp::Add } else { r.op };
            let total = if leaf.scalar == Scalar::F16 { self.e.float_convert(total, 16) } else { total };
            if r.plain {
                let old = self.load_leaf(&target, &leaf, false);
                self.store_leaf(&target, &leaf, self.updated(op, leaf.scalar, old, total));
            } else {
                self.atomic(op, &target, &[total]);
            }
        }
    }
}
