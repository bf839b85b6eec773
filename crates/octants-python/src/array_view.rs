//! [`ArrayView`]: an array as a call sees it, without a copy.

use octants_engine::frontend::{NdarrayDesc, Reach};
use octants_engine::ir::Type;
use pyo3::prelude::*;
use smallvec::SmallVec;

use crate::element_types::scalar_of;
use crate::self_overlap::may_overlap_itself;

/// Why a kernel must not write an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unwritable {
    /// Its owner marks it read-only.
    ReadOnly,
    /// Several indices name the same memory, so that iterations would race.
    SelfOverlapping,
}

/// An array's memory, element type and layout.
#[derive(Debug)]
pub struct ArrayView {
    /// Address of the first element.
    pub address: u64,
    /// Type of an element: a scalar for outside arrays, until the annotation folds trailing axes into it.
    pub elem: Type,
    /// Extents.
    pub extents: SmallVec<[u64; 4]>,
    /// Byte strides; empty where row-major without gaps.
    pub strides: SmallVec<[i64; 4]>,
    /// Must not be written.
    pub readonly: bool,
    /// In the host's memory, not in this program's.
    pub host: bool,
    /// The owner of the memory, if it is not the array itself.
    pub owner: Option<Py<PyAny>>,
    /// Handle of another library's stream that the array's contents are ready on.
    pub ready_on: Option<u64>,
    /// Has a gradient.
    pub needs_grad: bool,
    /// Has a dual: it is a field's memory.
    pub needs_dual: bool,
    /// The program that owns the memory; zero for foreign memory.
    pub serial: u64,
    /// For an array that is split over ranks: the bytes on this rank, `[low, high)`.
    pub split: Option<(u64, u64)>,
    /// The axis that is split.
    pub split_axis: Option<u32>,
    /// The array that this is a row-major copy of.
    pub original: Option<Original>,
}

/// An array that kernels cannot use without a copy.
#[derive(Debug)]
pub struct Original {
    /// The user's object.
    pub array: Py<PyAny>,
    /// Its bytes, `[low, high)`.
    pub span: (u64, u64),
    /// In memory of another library on the GPU, with that library's addresses.
    pub is_foreign: bool,
}

impl ArrayView {
    /// Bytes from the first to the last that an access can touch: `[low, high)`.
    pub fn span(&self) -> (u64, u64) {
        if let Some(rows) = self.split {
            return rows;
        }
        let elem = u64::from(scalar_of(&self.elem).bytes()) * self.elem.leaf_count() as u64;
        if self.extents.contains(&0) {
            return (self.address, self.address);
        }
        if self.strides.is_empty() {
            return (self.address, self.address + elem * self.extents.iter().product::<u64>());
        }
        let (mut low, mut high) = (0i64, elem as i64);
        for (&n, &stride) in self.extents.iter().zip(&self.strides) {
            let reach = stride * (n as i64 - 1);
            if reach < 0 { low += reach } else { high += reach }
        }
        (self.address.wrapping_add(low as u64), self.address.wrapping_add(high as u64))
    }

    /// Has gaps between its elements.
    #[inline]
    pub fn has_gaps(&self) -> bool {
        if self.strides.is_empty() {
            return false;
        }
        let (low, high) = self.span();
        let elem = u64::from(scalar_of(&self.elem).bytes()) * self.elem.leaf_count() as u64;
        high - low > elem * self.extents.iter().product::<u64>()
    }

    /// The reason why a kernel must not write it, if any.
    pub fn unwritable(&self) -> Option<Unwritable> {
        if self.readonly {
            return Some(Unwritable::ReadOnly);
        }
        self.overlaps_itself().then_some(Unwritable::SelfOverlapping)
    }

    /// Several indices may name the same memory.
    pub fn overlaps_itself(&self) -> bool {
        let elem = u64::from(scalar_of(&self.elem).bytes()) * self.elem.leaf_count() as u64;
        !self.strides.is_empty() && may_overlap_itself(&self.extents, &self.strides, elem)
    }

    /// Clears the strides if the array is row-major without gaps.
    pub fn forget_dense_strides(&mut self) {
        let mut expected = i64::from(scalar_of(&self.elem).bytes()) * self.elem.leaf_count() as i64;
        for (&stride, &extent) in self.strides.iter().zip(&self.extents).rev() {
            if extent > 1 && stride != expected {
                return;
            }
            expected *= extent as i64;
        }
        self.strides.clear();
    }

    /// Fills in the strides of a row-major array without gaps.
    pub fn spell_out_strides(&mut self) {
        if !self.strides.is_empty() {
            return;
        }
        let mut stride = i64::from(scalar_of(&self.elem).bytes()) * self.elem.leaf_count() as i64;
        for &extent in self.extents.iter().rev() {
            self.strides.insert(0, stride);
            stride *= extent as i64;
        }
    }

    /// The trailing axes have these extents.
    pub fn ends_with(&self, shape: &[u32]) -> bool {
        self.extents.len().checked_sub(shape.len()).is_some_and(|at| {
            self.extents[at..].iter().zip(shape).all(|(&extent, &wanted)| extent == u64::from(wanted))
        })
    }

    /// Folds the trailing axes into the element type that an annotation requests. False when they do not match.
    pub fn fold_elements(&mut self, elem: &Type) -> bool {
        let shape = elem.shape();
        if shape.is_empty() {
            return true;
        }
        if !self.ends_with(&shape) {
            return false;
        }
        let at = self.extents.len() - shape.len();
        let scalar = scalar_of(&self.elem);
        if !self.strides.is_empty() {
            let mut expected = i64::from(scalar.bytes());
            for axis in (at..self.extents.len()).rev() {
                if self.strides[axis] != expected && self.extents[axis] > 1 {
                    return false;
                }
                expected *= self.extents[axis] as i64;
            }
            self.strides.truncate(at);
        }
        self.extents.truncate(at);
        self.elem = Type::tensor(scalar, &shape);
        true
    }

    /// Its description for the compiler.
    pub fn desc(&self) -> NdarrayDesc {
        let (low, high) = self.span();
        NdarrayDesc {
            elem: self.elem.clone(),
            ndim: self.extents.len() as u32,
            contiguous: self.strides.is_empty(),
            reach: Reach::of(&self.extents, high - low),
            clamped: false,
            needs_grad: self.needs_grad,
            needs_dual: self.needs_dual,
            is_view: false,
            split_axis: self.split_axis,
        }
    }
}
