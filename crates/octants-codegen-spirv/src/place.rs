//! Locations of values, possibly with scattered components, in global memory or in variables.
//!
//! A [`Place`] gives every scalar leaf as one of a few pointers plus a constant. Global memory is reached by 64-bit
//! addresses. A variable is an array of scalars of one type, because variables have no addresses in SPIR-V.

use std::rc::Rc;

use octants_codegen::MemoryLayout;
use octants_ir::{Scalar, Type};

use crate::emit::Id;

/// The pointee of a place's pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Memory {
    /// Memory of the device, in bytes.
    Global,
    /// A private variable: an array of a type.
    Local { scalar: Scalar, count: u32 },
    /// A shared variable: an array of a type, in words of at least 32 bits.
    Shared { variable: Id, scalar: Scalar },
}

/// A pointer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pointer {
    /// An address.
    Address(Id),
    /// A variable, and an element of it, if that is not the first one: u32.
    Element(Id, Option<Id>),
}

/// The location of a scalar leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct LeafAt {
    /// Which of the place's pointers.
    pub ptr: u32,
    /// Bytes from it; elements from it in a variable.
    pub offset: i64,
    /// Its type.
    pub scalar: Scalar,
}

/// The part of a place that is known at compile time: functions are compiled once for each.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PlaceShape {
    /// Type of the value there.
    pub ty: Type,
    /// Its leaves, in the order of [`Type::leaves`].
    pub leaves: Vec<LeafAt>,
    /// The pointee of the pointers.
    pub memory: Vec<Memory>,
}

/// The address of a value.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// Pointers that the leaves are relative to.
    pub ptrs: Vec<Pointer>,
    /// The locations of the leaves.
    pub shape: Rc<PlaceShape>,
}

impl Place {
    /// An address of contiguous global memory.
    pub fn contiguous(address: Id, ty: &Type) -> Place {
        let layout = MemoryLayout::of(ty);
        let leaves = layout.leaves.iter().map(|(s, o)| LeafAt { ptr: 0, offset: *o as i64, scalar: *s }).collect();
        let shape = PlaceShape { ty: ty.clone(), leaves, memory: vec![Memory::Global] };
        Place { ptrs: vec![Pointer::Address(address)], shape: Rc::new(shape) }
    }

    /// A range of leaves as a separate place, such as a member of a struct.
    pub fn part(&self, ty: &Type, first: usize) -> Place {
        let leaves = self.shape.leaves[first..first + ty.leaf_count()].to_vec();
        let shape = PlaceShape { ty: ty.clone(), leaves, memory: self.shape.memory.clone() };
        Place { ptrs: self.ptrs.clone(), shape: Rc::new(shape) }
    }

    /// All leaves hang on one pointer at even distances: the pointer's number, the first offset and the distance.
    pub fn progression(&self) -> Option<(u32, i64, i64)> {
        let leaves = &self.shape.leaves;
        let first = leaves.first()?;
        let unit = match self.shape.memory[first.ptr as usize] {
            Memory::Global => i64::from(first.scalar.bytes()),
            _ => 1,
        };
        let step = leaves.get(1).map_or(unit, |l| l.offset - first.offset);
        let even =
            leaves.iter().enumerate().all(|(i, l)| l.ptr == first.ptr && l.offset == first.offset + i as i64 * step);
        even.then_some((first.ptr, first.offset, step))
    }
}

/// The variables of a value: one for each scalar, vector or matrix in it.
pub(crate) fn local_variables(ty: &Type) -> Vec<(Scalar, u32)> {
    match ty {
        Type::Struct(s) => s.members.iter().flat_map(|(_, t)| local_variables(t)).collect(),
        Type::Unit => Vec::new(),
        _ => vec![(ty.scalar().expect("compiler bug: a local without a value"), ty.leaf_count() as u32)],
    }
}
