//! [`Ndarray`]: an array of scalars, vectors or matrices in the device's memory. The Python package derives its public
//! classes from it; the launcher reads pointer and shape without a Python call.

use std::sync::OnceLock;

use octants_engine::frontend::{NdarrayDesc, Reach};
use octants_engine::ir::Type;
use octants_engine::runtime::Capture;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use smallvec::SmallVec;

use crate::buffer::Buffer;
use crate::element_types::{element_type, scalar_by_name, type_word};
use crate::errors;
use crate::split_rows::SplitRows;
use crate::waiting::raised;

/// An array in the device's memory.
#[pyclass(module = "octants._octants", frozen, subclass, weakref, dict)]
pub struct Ndarray {
    buffer: Py<Buffer>,
    /// Offset in the buffer, and size, in bytes.
    offset: u64,
    bytes: u64,
    elem: Type,
    type_word: u64,
    shape: SmallVec<[u64; 4]>,
    needs_grad: bool,
    strides: OnceLock<SmallVec<[i64; 4]>>,
    /// For an array that is split over ranks. `shape` includes all rows.
    split: Option<SplitRows>,
}

impl Ndarray {
    /// Its description for the compiler.
    pub fn desc(&self) -> NdarrayDesc {
        NdarrayDesc {
            elem: self.elem.clone(),
            ndim: self.shape.len() as u32,
            contiguous: self.strides().is_empty(),
            reach: Reach::of(&self.shape, self.bytes()),
            clamped: false,
            needs_grad: self.needs_grad,
            needs_dual: false,
            is_view: false,
            split_axis: self.split_axis(),
        }
    }

    /// A gradient was requested: the attribute `grad` holds it.
    pub fn has_grad(&self) -> bool {
        self.needs_grad
    }

    /// Scalar, vector or matrix.
    pub fn elem(&self) -> &Type {
        &self.elem
    }

    /// [`type_word`] of an element.
    pub fn type_word(&self) -> u64 {
        self.type_word
    }

    /// Extents of the axes, elements not counted.
    pub fn extents(&self) -> &[u64] {
        &self.shape
    }

    /// Address of the first element in memory.
    #[inline]
    pub fn memory_address(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.memory().address(py)? + self.offset)
    }

    /// Address of the element at index zero: outside of its memory for an array that is split, unless this rank has row
    /// zero.
    #[inline]
    pub fn address(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.address_of_zero(self.memory_address(py)?))
    }

    /// As [`Ndarray::address`], given the address in memory.
    #[inline]
    pub fn address_of_zero(&self, first: u64) -> u64 {
        match &self.split {
            None => first,
            Some(rows) => first.wrapping_sub((rows.first as u64).wrapping_mul(self.row_bytes())),
        }
    }

    /// The axis that is distributed over ranks.
    #[inline]
    pub fn split_axis(&self) -> Option<u32> {
        self.split.as_ref().map(|rows| rows.axis)
    }

    /// The rows of this rank, if an axis is distributed over ranks.
    #[inline]
    pub fn split_rows(&self) -> Option<&SplitRows> {
        self.split.as_ref()
    }

    fn row_bytes(&self) -> u64 {
        let elem = self.elem.leaves().first().map_or(1, |s| u64::from(s.bytes())) * self.elem.leaf_count() as u64;
        let axis = self.split_axis().map_or(0, |axis| axis as usize);
        let others = self.shape.iter().enumerate().filter(|(other, _)| *other != axis);
        others.map(|(_, extent)| extent).product::<u64>() * elem
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The memory it is in.
    pub fn memory(&self) -> &Buffer {
        self.buffer.get()
    }

    /// The memory as a Python object.
    pub fn buffer(&self, py: Python<'_>) -> Py<Buffer> {
        self.buffer.clone_ref(py)
    }

    /// Byte strides of the axes; empty where row-major.
    pub fn strides(&self) -> &[i64] {
        self.strides.get().map_or(&[], |s| s)
    }
}

#[pymethods]
impl Ndarray {
    #[new]
    #[allow(clippy::too_many_arguments)] // Python names them.
    #[pyo3(signature = (
        dtype_name, element_shape, shape, needs_grad = false, of = None, first = 0, first_row = None, axis = 0
    ))]
    fn new(
        py: Python<'_>,
        dtype_name: &str,
        element_shape: Vec<u32>,
        shape: Vec<i64>,
        needs_grad: bool,
        of: Option<&Bound<'_, Ndarray>>,
        first: u64,
        first_row: Option<i64>,
        axis: u32,
    ) -> PyResult<Ndarray> {
        let scalar = scalar_by_name(dtype_name)?;
        let elem = element_type(scalar, &element_shape)?;
        if shape.len() > 12 {
            return Err(PyValueError::new_err(format!("an ndarray can have at most 12 axes, not {}", shape.len())));
        }
        let mut extents = SmallVec::new();
        let mut bytes = u64::from(scalar.bytes()) * elem.leaf_count() as u64;
        for &extent in &shape {
            let extent = u64::try_from(extent)
                .map_err(|_| PyValueError::new_err(format!("an ndarray's shape cannot be negative: {shape:?}")))?;
            extents.push(extent);
            bytes = bytes
                .checked_mul(extent)
                .filter(|b| *b <= i64::MAX as u64)
                .ok_or_else(|| PyValueError::new_err(format!("an ndarray of shape {shape:?} is too large")))?;
        }
        let (buffer, offset) = match of {
            // All of another array's memory, whose first row this is.
            Some(local) if first_row.is_some() => {
                let local = local.get();
                let mut row = extents.clone();
                let is_row = (axis as usize) < row.len() && {
                    row.remove(axis as usize);
                    local.shape.get(1..) == Some(&row[..])
                };
                if local.elem != elem || !is_row {
                    return Err(PyValueError::new_err(
                        "the rows of a split array must have the shape of those of the array",
                    ));
                }
                bytes = local.bytes;
                (local.buffer.clone_ref(py), local.offset)
            }
            None => {
                let buffer = Buffer::allocate(py, bytes)?;
                Capture::note_new_here(buffer.memory()).map_err(|e| raised(py, e))?;
                (Py::new(py, buffer)?, 0)
            }
            // A part of another array's memory, from an element of this type on.
            Some(whole) => {
                let whole = whole.get();
                let offset = (u64::from(scalar.bytes()) * elem.leaf_count() as u64).saturating_mul(first);
                if offset.checked_add(bytes).is_none_or(|end| end > whole.bytes) {
                    return Err(PyValueError::new_err("a part of an ndarray must be inside the ndarray"));
                }
                (whole.buffer.clone_ref(py), whole.offset + offset)
            }
        };
        let type_word = type_word(&elem);
        Ok(Ndarray {
            buffer,
            offset,
            bytes,
            elem,
            type_word,
            shape: extents,
            needs_grad,
            strides: OnceLock::new(),
            split: first_row.map(|first| SplitRows::new(first, axis)),
        })
    }

    /// Its memory.
    #[getter]
    #[pyo3(name = "buffer")]
    fn get_buffer(&self, py: Python<'_>) -> Py<Buffer> {
        self.buffer.clone_ref(py)
    }

    /// Its offset in its memory, in bytes.
    #[getter]
    #[pyo3(name = "_offset_in_memory")]
    fn offset_in_memory(&self) -> u64 {
        self.offset
    }

    /// Invalidates the ghost rows of an array that is split over ranks, because the owners' rows are about to change.
    fn _forget_ghosts(&self) {
        if let Some(rows) = &self.split {
            rows.forget_ghosts();
        }
    }

    /// Declares in which order memory holds the axes, outermost first. To be called once, before the first use.
    fn _set_layout(&self, order: Vec<usize>) -> PyResult<()> {
        let n = self.shape.len();
        let mut sorted = order.clone();
        sorted.sort_unstable();
        if sorted != (0..n).collect::<Vec<_>>() {
            return Err(PyValueError::new_err(format!(
                "a layout of {n} axes must be a permutation of range({n}), got {order:?}"
            )));
        }
        if order == sorted {
            return Ok(());
        }
        let mut strides: SmallVec<[i64; 4]> = SmallVec::from_elem(0, n);
        let mut stride = i64::from(self.elem.leaves().first().map_or(1, |s| s.bytes())) * self.elem.leaf_count() as i64;
        for &axis in order.iter().rev() {
            strides[axis] = stride;
            stride *= self.shape[axis] as i64;
        }
        self.strides.set(strides).map_err(|_| PyValueError::new_err("the layout is already set"))
    }

    /// Extents of the axes, elements not counted; None when the program that made the ndarray has ended.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        if self.alive() { PyTuple::new(py, self.shape.iter()).map(Some) } else { Ok(None) }
    }

    /// `()`, `(n,)` or `(n, m)`.
    #[getter]
    fn element_shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.elem.shape())
    }

    /// Name of the scalar type.
    #[getter]
    fn dtype_name(&self) -> &'static str {
        self.elem.leaves().first().map_or("f32", |s| s.name())
    }

    /// Whether a gradient was requested.
    #[getter]
    fn needs_grad(&self) -> bool {
        self.needs_grad
    }

    /// Whether the program that made it still runs.
    #[getter]
    fn alive(&self) -> bool {
        self.memory().is_alive()
    }

    /// Raises if its program has ended.
    fn check_alive(&self, py: Python<'_>) -> PyResult<()> {
        if self.memory().is_alive() { Ok(()) } else { Err(errors::dead_object(py, "ndarray")) }
    }
}
