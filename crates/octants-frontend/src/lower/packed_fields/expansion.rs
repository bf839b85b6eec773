//! Expands accesses to elements of quantized types, in order, to accesses to words.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use octants_ir::insert_code::{push_if, widen};
use octants_ir::{AtomicOp, BinaryOp, BlockId, Body, BufferId, Builder, Const, Op, Scalar, Type, ValueId};

use super::numbers::{WordBits, add_digits, cover, decode, encode};
use super::{Packed, PackedField, PackedPlace, Which, place_of};
use crate::packed_component::PackedComponent;

/// Stores to a word that have not been emitted yet.
pub(super) struct Pending {
    place: ValueId,
    words: BufferId,
    indices: Vec<ValueId>,
    is_sole: bool,
    values: Vec<(Packed, ValueId)>,
}

/// The state of a body's expansion.
pub(super) struct Expansion<'a> {
    pub fields: &'a BTreeMap<BufferId, PackedField>,
    /// For each function, which parameters are addresses.
    pub by_reference: &'a [Vec<bool>],
    /// The stores and atomic updates that need no protection from other iterations.
    pub soles: BTreeSet<ValueId>,
    pub pending: Vec<Pending>,
    /// The numbers of words: by the block, the index of an element, further words, and the elements in a word.
    pub words: HashMap<(BlockId, ValueId, i64, i64), ValueId>,
}

impl Expansion<'_> {
    /// Emits an instruction, or its replacement.
    pub fn instruction(&mut self, b: &mut Builder, v: ValueId) {
        let op = b.body.inst(v).op.clone();
        let place = |address: &ValueId| place_of(self.fields, &b.body, *address);
        match &op {
            Op::Load(address) | Op::VolatileLoad(address) => match place(address) {
                Some(place) => {
                    self.flush_before_load(b, &place);
                    self.load(b, v, &place);
                }
                None => b.place(v),
            },
            Op::Store(address, value) => match place(address) {
                Some(place) => {
                    let is_sole = self.soles.contains(&v);
                    self.store(b, &place, *value, is_sole);
                }
                None => b.place(v),
            },
            Op::Atomic(op, address, value) => match place(address) {
                Some(place) => {
                    self.flush_field(b, place.buffer);
                    self.atomic(b, v, *op, &place, *value);
                }
                None => b.place(v),
            },
            Op::Call(function, args) => {
                self.write_all(b);
                self.call(b, v, &args.clone(), function.index());
            }
            // Instructions that may run other code, or skip the following code.
            Op::If(..)
            | Op::For(_)
            | Op::Loop(_)
            | Op::Break
            | Op::Continue
            | Op::Return(_)
            | Op::Assert(..)
            | Op::Checkpoint(..)
            | Op::Section(_)
            | Op::Barrier(_)
            | Op::Fence(_) => {
                self.write_all(b);
                b.place(v);
            }
            _ => b.place(v),
        }
    }

    /// Emits the deferred stores.
    pub fn write_all(&mut self, b: &mut Builder) {
        for pending in std::mem::take(&mut self.pending) {
            write(b, pending);
        }
    }

    /// Emits the stores to words in which a field has components.
    fn flush_field(&mut self, b: &mut Builder, field: BufferId) {
        let words: Vec<BufferId> = self.fields[&field].parts.iter().map(|packed| packed.words).collect();
        let (now, later) = std::mem::take(&mut self.pending).into_iter().partition(|p| words.contains(&p.words));
        self.pending = later;
        let now: Vec<Pending> = now;
        now.into_iter().for_each(|pending| write(b, pending));
    }

    /// Emits the stores to words that a load reads, but for stores to other elements of its word.
    fn flush_before_load(&mut self, b: &mut Builder, place: &PackedPlace) {
        if let [packed] = &self.fields[&place.buffer].parts[..]
            && let Some((own, at)) = self.in_word(b, packed, place)
        {
            let is_other = |(other, _): &(Packed, ValueId)| {
                let (one, two) = (own.component.digits.range, other.component.digits.range);
                one.first + one.bits <= two.first || two.first + two.bits <= one.first
            };
            let may_stay =
                |p: &Pending| same_indices(&b.body, &p.indices, &at.indices) && p.values.iter().all(is_other);
            if self.pending.iter().filter(|p| p.words == own.words).all(may_stay) {
                return;
            }
        }
        self.flush_field(b, place.buffer);
    }

    /// The word that has a component of an element, as an address, and the bits there.
    fn word(&self, b: &mut Builder, packed: &Packed, place: &PackedPlace) -> (ValueId, WordBits) {
        let component = &packed.component;
        let first = &self.fields[&place.buffer].first;
        let from_zero = |b: &mut Builder, axis: usize| {
            let index = widen(b, place.indices[axis]);
            let s = b.ty(index).scalar().unwrap_or(Scalar::I32);
            match first.get(axis) {
                None | Some(0) => (index, s),
                Some(first) => {
                    let first = b.int(*first, s);
                    (b.binary(BinaryOp::Sub, index, first), s)
                }
            }
        };
        let mut indices = Vec::new();
        for &axis in &component.axes {
            let (mut index, s) = from_zero(b, axis);
            let n = component.elements_along(axis);
            if n == 1 {
                indices.push(index);
                continue;
            }
            if n.is_power_of_two() {
                // Indices are not negative.
                let bits = b.int(n.trailing_zeros().into(), s);
                index = b.binary(BinaryOp::Shr, index, bits);
            } else {
                let n = b.int(n as i64, s);
                index = b.binary(BinaryOp::Div, index, n);
            }
            indices.push(index);
        }
        let mut number = None;
        for &(axis, n) in &component.within {
            let (index, s) = from_zero(b, axis);
            let (op, amount) = if n.is_power_of_two() { (BinaryOp::And, n - 1) } else { (BinaryOp::Rem, n) };
            let amount = b.int(amount as i64, s);
            let digit = b.binary(op, index, amount);
            let digit = b.cast(digit, Scalar::I32);
            number = Some(match number {
                None => digit,
                Some(before) => {
                    let extent = b.int(n as i64, Scalar::I32);
                    let before = b.binary(BinaryOp::Mul, before, extent);
                    b.binary(BinaryOp::Add, before, digit)
                }
            });
        }
        let address = b.push(Op::BufferAddr(packed.words, indices), Type::Ref(Box::new(component.word.into())));
        let shift = number.map(|number| {
            let bits = b.int(component.digits.range.bits.into(), Scalar::I32);
            b.binary(BinaryOp::Mul, number, bits)
        });
        (address, WordBits::of(b, component.word, shift))
    }

    fn read(&mut self, b: &mut Builder, packed: &Packed, place: &PackedPlace, compute: Scalar) -> ValueId {
        let own = self.in_word(b, packed, place);
        let (packed, place) = own.as_ref().map_or((packed, place), |(packed, place)| (packed, place));
        let (address, bits) = self.word(b, packed, place);
        let word = b.load(address);
        let word = bits.widened(b, word);
        decode(b, &packed.component, bits, word, compute)
    }

    /// The whole element, or one component of it.
    fn load(&mut self, b: &mut Builder, v: ValueId, place: &PackedPlace) {
        let fields = self.fields;
        let field = &fields[&place.buffer];
        let all = &field.parts;
        let ty = b.body.ty(v).clone();
        let compute = ty.scalar().expect("compiler bug: an element of a quantized type has scalars");
        let found = match &place.which {
            Which::One(number) => self.read(b, &all[*number], place, compute),
            Which::All if !ty.is_tensor() => self.read(b, &all[0], place, compute),
            Which::All => {
                let parts = all.iter().map(|packed| self.read(b, packed, place, compute)).collect();
                b.push(Op::MakeTensor(parts), ty)
            }
            Which::Dynamic(index) => {
                let parts = all.iter().map(|packed| self.read(b, packed, place, compute)).collect();
                let whole = b.push(Op::MakeTensor(parts), field.element.clone());
                b.push(Op::ExtractDyn(whole, index.clone()), ty)
            }
        };
        become_value(b, v, found);
    }

    fn store(&mut self, b: &mut Builder, place: &PackedPlace, value: ValueId, is_sole: bool) {
        let fields = self.fields;
        let field = &fields[&place.buffer];
        let all = &field.parts;
        match &place.which {
            Which::One(number) => self.defer_store(b, &all[*number], place, value, is_sole),
            Which::All if !b.ty(value).is_tensor() => self.defer_store(b, &all[0], place, value, is_sole),
            Which::All => {
                for (number, packed) in all.iter().enumerate() {
                    let part = b.extract(value, number as u32);
                    self.defer_store(b, packed, place, part, is_sole);
                }
            }
            Which::Dynamic(index) => {
                self.flush_field(b, place.buffer);
                let number = flat_number(b, index, &field.element.shape());
                for (at, packed) in all.iter().enumerate() {
                    let at = b.int(at as i64, Scalar::I32);
                    let is_it = b.binary(BinaryOp::Eq, number, at);
                    push_if(b, is_it, |b| {
                        let (address, bits) = self.word(b, packed, place);
                        let values = [(packed.component.clone(), value)];
                        update(b, address, bits, is_sole, |b, word| encode(b, bits, word, &values));
                    });
                }
            }
        }
    }

    /// Defers a store until the other stores to its word are known.
    fn defer_store(&mut self, b: &mut Builder, packed: &Packed, place: &PackedPlace, value: ValueId, is_sole: bool) {
        let own = self.in_word(b, packed, place);
        let (packed, place) = own.as_ref().map_or((packed, place), |(packed, place)| (packed, place));
        let same = |p: &Pending| {
            p.words == packed.words
                && same_indices(&b.body, &p.indices, &place.indices)
                && packed.component.within.is_empty()
        };
        if let Some(known) = self.pending.iter_mut().find(|p| same(p)) {
            known.is_sole &= is_sole;
            known.values.retain(|(other, _)| other.component.digits != packed.component.digits);
            known.values.push((packed.clone(), value));
            return;
        }
        let (now, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.pending).into_iter().partition(|p| p.words == packed.words);
        self.pending = later;
        now.into_iter().for_each(|pending| write(b, pending));
        let (address, bits) = self.word(b, packed, place);
        let values = vec![(packed.clone(), value)];
        if packed.component.within.is_empty() {
            let indices = place.indices.clone();
            self.pending.push(Pending { place: address, words: packed.words, indices, is_sole, values });
        } else {
            let values = [(packed.component.clone(), value)];
            update(b, address, bits, is_sole, |b, word| encode(b, bits, word, &values));
        }
    }

    fn atomic(&self, b: &mut Builder, v: ValueId, op: AtomicOp, place: &PackedPlace, operand: ValueId) {
        let field = &self.fields[&place.buffer];
        let all = &field.parts;
        let ty = b.body.ty(v).clone();
        let is_sole = self.soles.contains(&v);
        let found = match &place.which {
            Which::One(number) => self.update_part(b, &all[*number], place, op, operand, is_sole),
            Which::All if !ty.is_tensor() => self.update_part(b, &all[0], place, op, operand, is_sole),
            Which::All => {
                let mut parts = Vec::new();
                for (number, packed) in all.iter().enumerate() {
                    let part = b.extract(operand, number as u32);
                    parts.push(self.update_part(b, packed, place, op, part, is_sole));
                }
                b.push(Op::MakeTensor(parts), ty)
            }
            Which::Dynamic(index) => {
                let number = flat_number(b, index, &field.element.shape());
                let old = b.body.add_local("old", ty);
                for (at, packed) in all.iter().enumerate() {
                    let at = b.int(at as i64, Scalar::I32);
                    let is_it = b.binary(BinaryOp::Eq, number, at);
                    push_if(b, is_it, |b| {
                        let part = self.update_part(b, packed, place, op, operand, is_sole);
                        b.store_local(old, part);
                    });
                }
                b.load_local(old)
            }
        };
        become_value(b, v, found);
    }

    /// An atomic update of a component; the old value.
    fn update_part(
        &self,
        b: &mut Builder,
        packed: &Packed,
        place: &PackedPlace,
        op: AtomicOp,
        operand: ValueId,
        is_sole: bool,
    ) -> ValueId {
        let component = &packed.component;
        let compute = b.ty(operand).scalar().expect("compiler bug: a component is a scalar");
        let (address, bits) = self.word(b, packed, place);
        let old = update(b, address, bits, is_sole, |b, word| {
            if let Some(new) = add_digits(b, component, bits, word, op, operand) {
                return new;
            }
            let old = decode(b, component, bits, word, compute);
            let new = match op.binary() {
                Some(binary) => b.binary(binary, old, operand),
                None => operand,
            };
            encode(b, bits, word, &[(component.clone(), new)])
        });
        decode(b, component, bits, old, compute)
    }

    /// A function that takes an element by reference gets a copy, which is stored back afterwards.
    fn call(&mut self, b: &mut Builder, v: ValueId, args: &[ValueId], function: usize) {
        let mut copies = Vec::new();
        let mut passed = args.to_vec();
        for (arg, is_reference) in passed.iter_mut().zip(&self.by_reference[function]) {
            let place = if *is_reference { place_of(self.fields, &b.body, *arg) } else { None };
            let Some(place) = place else { continue };
            let ty = b.pointee(*arg).clone();
            let load = b.body.add_inst(Op::Load(*arg), ty.clone(), b.span);
            self.load(b, load, &place);
            let local = b.body.add_local("element", ty);
            b.store_local(local, load);
            *arg = b.local_addr(local);
            copies.push((place, local, load));
        }
        if let Op::Call(_, args) = &mut b.body.inst_mut(v).op {
            *args = passed;
        }
        b.place(v);
        for (place, local, before) in copies {
            let after = b.load_local(local);
            // An unchanged copy is not stored, because the element may be read-only to the function.
            let changed = differs(b, before, after);
            push_if(b, changed, |b| {
                self.store(b, &place, after, false);
                self.write_all(b);
            });
        }
    }
}

/// Any component of two values differs.
fn differs(b: &mut Builder, one: ValueId, other: ValueId) -> ValueId {
    let ty = b.ty(one).clone();
    let mut any = None;
    for i in 0..ty.leaf_count() as u32 {
        let [one, other] = [one, other].map(|v| if ty.is_tensor() { b.extract(v, i) } else { v });
        let part = b.binary(BinaryOp::Ne, one, other);
        any = Some(any.map_or(part, |any| b.binary(BinaryOp::Or, any, part)));
    }
    any.expect("compiler bug: a value without components")
}

/// Two lists of indices are the same numbers.
fn same_indices(body: &Body, one: &[ValueId], other: &[ValueId]) -> bool {
    let same = |a: ValueId, b: ValueId| {
        a == b || matches!((body.as_const(a), body.as_const(b)), (Some(Const::Int(x)), Some(Const::Int(y))) if x == y)
    };
    one.len() == other.len() && one.iter().zip(other).all(|(a, b)| same(*a, *b))
}

/// Emits the stores to one word.
fn write(b: &mut Builder, pending: Pending) {
    let Some((first, _)) = pending.values.first() else { return };
    let bits = WordBits::of(b, first.component.word, None);
    let values: Vec<(PackedComponent, ValueId)> = pending.values.into_iter().map(|(p, v)| (p.component, v)).collect();
    let is_whole = cover(bits, &values);
    update(b, pending.place, bits, pending.is_sole || is_whole, |b, word| encode(b, bits, word, &values));
}

/// Replaces a word by the result of `f`; yields the old word. The word is loaded and stored if nothing writes to it
/// concurrently; otherwise a compare-and-swap is repeated until it succeeds.
fn update(
    b: &mut Builder,
    address: ValueId,
    bits: WordBits,
    is_sole: bool,
    mut f: impl FnMut(&mut Builder, ValueId) -> ValueId,
) -> ValueId {
    if is_sole {
        let word = b.load(address);
        let old = bits.widened(b, word);
        let new = f(b, old);
        let new = bits.narrowed(b, new);
        b.store(address, new);
        return old;
    }
    let ty: Type = bits.memory.into();
    let local = b.body.add_local("word", ty.clone());
    let first = b.push(Op::VolatileLoad(address), ty.clone());
    b.store_local(local, first);
    let block = b.body.add_block();
    b.push(Op::Loop(block), Type::Unit);
    let back = b.set_cursor(block);
    let expected = b.load_local(local);
    let old = bits.widened(b, expected);
    let new = f(b, old);
    let new = bits.narrowed(b, new);
    let seen = b.push(Op::AtomicCas(address, expected, new), ty);
    b.store_local(local, seen);
    let done = b.binary(BinaryOp::Eq, seen, expected);
    push_if(b, done, |b| {
        b.push(Op::Break, Type::Unit);
    });
    b.set_cursor(back);
    let word = b.load_local(local);
    bits.widened(b, word)
}

/// Replaces an instruction, whose value is used elsewhere, by the last one, in its position.
fn become_value(b: &mut Builder, v: ValueId, found: ValueId) {
    let op = b.body.inst(found).op.clone();
    let block = b.cursor().index();
    if b.body.blocks[block].last() == Some(&found) {
        b.body.blocks[block].pop();
    }
    b.body.inst_mut(v).op = op;
    b.place(v);
}

/// The position of a component, row by row, as an i32.
fn flat_number(b: &mut Builder, index: &[ValueId], shape: &[u32]) -> ValueId {
    let mut number = b.int(0, Scalar::I32);
    for (i, extent) in index.iter().zip(shape) {
        let extent = b.int((*extent).into(), Scalar::I32);
        number = b.binary(BinaryOp::Mul, number, extent);
        let i = b.cast(*i, Scalar::I32);
        number = b.binary(BinaryOp::Add, number, i);
    }
    number
}
