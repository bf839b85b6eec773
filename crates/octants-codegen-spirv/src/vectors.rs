//! Vector loads and stores of global memory: one instruction if the vector is aligned.
//!
//! A SPIR-V vector has two to four components. Components of less than 32 bits are moved as words.

use std::rc::Rc;

use octants_ir::{Scalar, Type, ValueId};
use rspirv::dr::Operand;

use crate::emit::{Id, Op};
use crate::lowering::Lowering;
use crate::place::{LeafAt, Place};

/// Maximum number of bytes of an access.
const MOST_BYTES: u32 = 16;

/// How a vector is accessed.
struct Shape {
    /// The type in which memory is read and written.
    word: Id,
    words: u32,
    /// Scalars of the vector in a word.
    scalars: u32,
}

impl Lowering<'_, '_> {
    /// The location of a vector whose scalars are contiguous from an address on.
    pub fn vector_place(&self, address: ValueId, ty: &Type) -> Place {
        let place = self.place(address);
        if place.shape.ty == *ty {
            return place;
        }
        let first = place.shape.leaves[0];
        let step = if self.leaf_address(&place, &first).is_some() { i64::from(first.scalar.bytes()) } else { 1 };
        let mut shape = (*place.shape).clone();
        let leaf = |i: usize| LeafAt { offset: first.offset + i as i64 * step, ..first };
        shape.leaves = (0..ty.leaf_count()).map(leaf).collect();
        shape.ty = ty.clone();
        Place { ptrs: place.ptrs, shape: Rc::new(shape) }
    }

    /// The words of a vector in global memory that is aligned.
    fn shape(&self, scalar: Scalar, count: usize) -> Option<Shape> {
        let (e, bytes) = (self.e, scalar.bytes());
        let all = bytes * count as u32;
        if self.vector_alignment.is_none_or(|a| a < MOST_BYTES) || all > MOST_BYTES || !all.is_power_of_two() {
            return None;
        }
        let shape = match bytes {
            _ if scalar == Scalar::U1 || count < 2 => return None,
            1 | 2 if all >= 4 => Shape { word: e.u32(), words: all / 4, scalars: 4 / bytes },
            1 | 2 => return None,
            _ => Shape { word: e.scalar(scalar), words: count as u32, scalars: 1 },
        };
        Some(shape)
    }

    fn word_type(&self, shape: &Shape) -> Id {
        if shape.words == 1 { shape.word } else { self.e.vector_type(shape.word, shape.words) }
    }

    /// Reads a vector.
    pub fn load_vector(&self, place: &Place) -> Vec<Id> {
        let (e, first) = (self.e, place.shape.leaves[0]);
        let (Some(shape), Some(address)) =
            (self.shape(first.scalar, place.shape.leaves.len()), self.leaf_address(place, &first))
        else {
            return self.load_place(place, false);
        };
        let ty = self.word_type(&shape);
        let mut operands = vec![Operand::IdRef(self.pointer_to(address, ty))];
        operands.extend(self.access(Some(first.scalar.bytes() * place.shape.leaves.len() as u32), false));
        let loaded = e.op(Op::Load, ty, operands);
        let word = |i: u32| if shape.words == 1 { loaded } else { e.extract_value(loaded, shape.word, i) };
        if shape.scalars == 1 {
            return (0..shape.words).map(word).collect();
        }
        let scalar = e.scalar(first.scalar);
        let parts = e.vector_type(scalar, shape.scalars);
        let split = |i| {
            let parts = e.bitcast(word(i), parts);
            (0..shape.scalars).map(move |k| e.extract_value(parts, scalar, k))
        };
        (0..shape.words).flat_map(split).collect()
    }

    /// Writes a vector.
    pub fn store_vector(&self, place: &Place, values: &[Id]) {
        let (e, first) = (self.e, place.shape.leaves[0]);
        let (Some(shape), Some(address)) =
            (self.shape(first.scalar, place.shape.leaves.len()), self.leaf_address(place, &first))
        else {
            return self.store_place(place, values);
        };
        let ty = self.word_type(&shape);
        let words: Vec<Id> = if shape.scalars == 1 {
            values.to_vec()
        } else {
            let parts = e.vector_type(e.scalar(first.scalar), shape.scalars);
            let join = |of: &[Id]| e.bitcast(e.of(Op::CompositeConstruct, parts, of), shape.word);
            values.chunks(shape.scalars as usize).map(join).collect()
        };
        let value = if shape.words == 1 { words[0] } else { e.of(Op::CompositeConstruct, ty, &words) };
        let mut operands = vec![Operand::IdRef(self.pointer_to(address, ty)), Operand::IdRef(value)];
        operands.extend(self.access(Some(first.scalar.bytes() * values.len() as u32), false));
        e.effect(Op::Store, operands);
    }
}
