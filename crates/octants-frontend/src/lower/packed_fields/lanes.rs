//! Elements of a `quant_array` whose position in their word is known: their index is a multiple of the number of
//! elements in a word, and a constant. Such an element is a number at fixed bits, so that accesses to a word merge.

use octants_ir::{BinaryOp, Body, Builder, Const, Op, Scalar, ValueId};

use super::expansion::Expansion;
use super::{Packed, PackedPlace, Which};
use crate::packed_component::PackedNumber;

/// Operations that an index is followed through.
const DEPTH: u32 = 8;

impl Expansion<'_> {
    /// The element as a number at fixed bits of the word with given indices, if these are known.
    pub(super) fn in_word(
        &mut self,
        b: &mut Builder,
        packed: &Packed,
        place: &PackedPlace,
    ) -> Option<(Packed, PackedPlace)> {
        let component = &packed.component;
        let [(axis, count)] = component.within[..] else { return None };
        if !matches!(component.number, PackedNumber::Integer | PackedNumber::Fixed(_)) {
            return None;
        }
        if self.fields[&place.buffer].first.get(axis).is_some_and(|first| *first != 0) {
            return None;
        }
        let count = count as i64;
        let (base, constant) = constant_apart(&b.body, place.indices[axis], DEPTH);
        if !is_multiple(&b.body, base, count, DEPTH) {
            return None;
        }
        let key = (b.cursor(), base, constant.div_euclid(count), count);
        let word = match self.words.get(&key) {
            Some(known) => *known,
            None => {
                let word = word_number(b, base, constant.div_euclid(count), count);
                self.words.insert(key, word);
                word
            }
        };
        let mut component = component.clone();
        component.within.clear();
        component.digits.range.first += constant.rem_euclid(count) as u32 * component.digits.range.bits;
        let mut indices = place.indices.clone();
        indices[axis] = word;
        let place = PackedPlace { buffer: place.buffer, indices, which: Which::All };
        Some((Packed { component, words: packed.words }, place))
    }
}

/// The number of the word that has the element `base`, plus some words.
fn word_number(b: &mut Builder, base: ValueId, more: i64, count: i64) -> ValueId {
    let s = b.ty(base).scalar().unwrap_or(Scalar::I32);
    let count = b.int(count, s);
    let word = b.binary(BinaryOp::Div, base, count);
    if more == 0 {
        return word;
    }
    let more = b.int(more, s);
    b.binary(BinaryOp::Add, word, more)
}

fn known(body: &Body, v: ValueId) -> Option<i64> {
    match body.as_const(v)? {
        Const::Int(i) => Some(i),
        Const::Float(_) => None,
    }
}

/// A component of a vector that was just made is that value.
fn component(body: &Body, v: ValueId) -> ValueId {
    match &body.inst(v).op {
        Op::Extract(whole, n) => match &body.inst(*whole).op {
            Op::MakeTensor(parts) => parts[*n as usize],
            _ => v,
        },
        _ => v,
    }
}

/// An index as a value and a constant that is added to it.
fn constant_apart(body: &Body, v: ValueId, depth: u32) -> (ValueId, i64) {
    let v = component(body, v);
    if let Some(depth) = depth.checked_sub(1)
        && let Op::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), x, y) = body.inst(v).op
    {
        if let Some(c) = known(body, y) {
            let (base, before) = constant_apart(body, x, depth);
            return (base, if op == BinaryOp::Add { before + c } else { before - c });
        }
        if let (Some(c), BinaryOp::Add) = (known(body, x), op) {
            let (base, before) = constant_apart(body, y, depth);
            return (base, before + c);
        }
    }
    (v, 0)
}

/// Whether a value follows to be a multiple of `of`.
fn is_multiple(body: &Body, v: ValueId, of: i64, depth: u32) -> bool {
    let v = component(body, v);
    if known(body, v).is_some_and(|c| c % of == 0) {
        return true;
    }
    let Some(depth) = depth.checked_sub(1) else { return false };
    match body.inst(v).op {
        Op::Binary(BinaryOp::Mul, x, y) => is_multiple(body, x, of, depth) || is_multiple(body, y, of, depth),
        Op::Binary(BinaryOp::Add | BinaryOp::Sub, x, y) => {
            is_multiple(body, x, of, depth) && is_multiple(body, y, of, depth)
        }
        _ => false,
    }
}
