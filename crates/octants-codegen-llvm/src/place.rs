//! Locations of values in memory: the natural layout of locals and frame slots, and locations with scattered
//! components.
//!
//! A [`Place`] gives the address of every scalar leaf as one of a few pointers plus a constant, so the same code
//! accesses a local, an array element, and a field element with scattered components.

use std::rc::Rc;

use octants_codegen::MemoryLayout;
use octants_ir::{Scalar, Type};

use crate::emit::V;
use crate::metadata::Tag;

/// The location of a scalar leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct LeafAt {
    /// Which of the place's pointers.
    pub ptr: u32,
    /// Bytes from it.
    pub offset: i64,
    /// Its type.
    pub scalar: Scalar,
    /// The alias class of the access; `None` for memory of one thread.
    pub tag: Option<Tag>,
}

/// The part of a place that is known at compile time: functions are compiled once for each.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PlaceShape {
    /// Type of the value there.
    pub ty: Type,
    /// Its leaves, in the order of [`Type::leaves`].
    pub leaves: Vec<LeafAt>,
}

/// The address of a value.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// Pointers that the leaves are relative to.
    pub ptrs: Vec<V>,
    /// The locations of the leaves.
    pub shape: Rc<PlaceShape>,
}

impl PlaceShape {
    /// One pointer to contiguous memory.
    pub fn contiguous(ty: &Type, tag: Option<Tag>) -> PlaceShape {
        let layout = MemoryLayout::of(ty);
        let leaves = layout.leaves.iter().map(|(s, o)| LeafAt { ptr: 0, offset: *o as i64, scalar: *s, tag }).collect();
        PlaceShape { ty: ty.clone(), leaves }
    }
}

impl Place {
    /// One pointer to contiguous memory.
    pub fn contiguous(ptr: V, ty: &Type, tag: Option<Tag>) -> Place {
        Place { ptrs: vec![ptr], shape: Rc::new(PlaceShape::contiguous(ty, tag)) }
    }

    /// A range of leaves as a separate place, such as a member of a struct.
    pub fn part(&self, ty: &Type, first: usize) -> Place {
        let leaves = self.shape.leaves[first..first + ty.leaf_count()].to_vec();
        Place { ptrs: self.ptrs.clone(), shape: Rc::new(PlaceShape { ty: ty.clone(), leaves }) }
    }

    /// All leaves hang on one pointer at even distances: the pointer's number, the first offset and the distance.
    pub fn progression(&self) -> Option<(u32, i64, i64)> {
        let leaves = &self.shape.leaves;
        let first = leaves.first()?;
        let step = leaves.get(1).map_or(i64::from(first.scalar.bytes()), |l| l.offset - first.offset);
        let even =
            leaves.iter().enumerate().all(|(i, l)| l.ptr == first.ptr && l.offset == first.offset + i as i64 * step);
        even.then_some((first.ptr, first.offset, step))
    }

    /// The components that an access to any of the leaves may touch.
    pub fn tag(&self) -> Option<Tag> {
        self.shape.leaves.iter().map(|l| l.tag).reduce(|a, b| Some(a?.union(b?))).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equidistant_soa_components_are_a_progression() {
        let leaf = |offset| LeafAt { ptr: 0, offset, scalar: Scalar::F32, tag: None };
        let shape = |offsets: &[i64]| {
            Rc::new(PlaceShape {
                ty: Type::Vector(Scalar::F32, 3),
                leaves: offsets.iter().copied().map(leaf).collect(),
            })
        };
        let ptr = std::ptr::null_mut();
        assert_eq!(Place { ptrs: vec![ptr], shape: shape(&[0, 400, 800]) }.progression(), Some((0, 0, 400)));
        assert_eq!(Place { ptrs: vec![ptr], shape: shape(&[0, 400, 804]) }.progression(), None);
    }
}
