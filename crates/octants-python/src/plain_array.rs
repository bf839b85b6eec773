//! The fast path for common array arguments, whose type is exactly the annotated one: our ndarrays, and contiguous
//! row-major arrays of numpy and torch.
//!
//! They are converted directly to the words of the call. All other arrays go through an
//! [`crate::array_view::ArrayView`], which also reports the errors.

use numpy::npyffi::flags::{NPY_ARRAY_C_CONTIGUOUS, NPY_ARRAY_WRITEABLE};
use numpy::{PyUntypedArray, PyUntypedArrayMethods};
use octants_engine::ir::{Scalar, Type};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::annotation::ArrayKind;
use crate::argument::{Gathered, Memory, is_view};
use crate::array::numpy_scalar;
use crate::array_view::Unwritable;
use crate::dlpack::Tensor;
use crate::element_types::type_word;
use crate::foreign_array::requires_gradient;
use crate::names::Known;
use crate::ndarray::Ndarray;
use crate::{exchange_table, program};

/// Arrays of more axes take the general path.
const MOST_AXES: usize = 4;

impl ArrayKind {
    #[inline]
    fn is_just(&self, elem: &Type, ndim: usize) -> bool {
        self.rank.is_none()
            && self.elem.as_ref().is_none_or(|e| match (e, elem) {
                // The usual case, without the call that the comparison of types is.
                (Type::Scalar(wanted), Type::Scalar(scalar)) => wanted == scalar,
                (wanted, elem) => wanted == elem,
            })
            && self.ndim.is_none_or(|n| n as usize == ndim)
    }
}

impl<'py> Gathered<'py> {
    /// Converts the argument if it is such an array. Otherwise returns false and changes nothing.
    #[inline]
    pub fn take_plain(&mut self, wanted: &ArrayKind, value: &Bound<'py, PyAny>) -> PyResult<bool> {
        if wanted.view && !is_view(value) {
            return Ok(false);
        }
        if let Ok(array) = value.cast::<Ndarray>() {
            return self.take_own(wanted, array);
        }
        // SAFETY: the value is a live object.
        let class = unsafe { ffi::Py_TYPE(value.as_ptr()) };
        if class.cast() == Known::get(value.py())?.np_ndarray.as_ptr() {
            // SAFETY: numpy's own class.
            let array = unsafe { value.cast_unchecked::<PyUntypedArray>() };
            return Ok(self.take_numpy(wanted, array));
        }
        // The first object of a type takes the general path, which looks up the type's table.
        if exchange_table::has_described(value)
            && let Some(tensor) = exchange_table::describe(value)?
        {
            return self.take_described(wanted, value, &tensor);
        }
        Ok(false)
    }

    /// Converts a tensor that was just described.
    fn take_described(&mut self, wanted: &ArrayKind, value: &Bound<'py, PyAny>, tensor: &Tensor) -> PyResult<bool> {
        // SAFETY: the library was not called since.
        let (shape, row_major) = unsafe { (tensor.extents(), tensor.is_row_major()) };
        let Some(scalar) = tensor.scalar().filter(|_| row_major) else { return Ok(false) };
        // The library may reuse the shape's memory when the gradient is queried.
        let Some(array) = RowMajor::of(tensor.address(), scalar, shape.iter().map(|&n| n as u64)) else {
            return Ok(false);
        };
        if requires_gradient(value)? {
            return Ok(false);
        }
        let host = exchange_table::lies_on_host(value, tensor)?;
        if !host && program::has_foreign_addresses() {
            return Ok(false);
        }
        Ok(self.take_row_major(wanted, &RowMajor { host, ..array }))
    }

    #[inline]
    fn take_own(&mut self, wanted: &ArrayKind, array: &Bound<'py, Ndarray>) -> PyResult<bool> {
        let this = array.get();
        let needs_grad = this.has_grad() && wanted.needs_grad != Some(false);
        if !wanted.is_just(this.elem(), this.extents().len()) || (wanted.needs_grad == Some(true) && !needs_grad) {
            return Ok(false);
        }
        let low = this.memory_address(array.py())?;
        if this.memory().serial() != self.serial {
            // The general path reports the error.
            return Ok(false);
        }
        self.push_memory(&Memory {
            address: this.address_of_zero(low),
            extents: this.extents(),
            strides: this.strides(),
            type_word: this.type_word(),
            needs_grad,
            needs_dual: false,
            low,
            // It covers all of its memory in any order of axes.
            high: low + this.bytes(),
            unwritable: None,
            host: false,
            gaps: false,
            split_axis: this.split_axis(),
        });
        Ok(true)
    }

    #[inline]
    fn take_numpy(&mut self, wanted: &ArrayKind, array: &Bound<'py, PyUntypedArray>) -> bool {
        let raw = array.as_array_ptr();
        // SAFETY: the pointer is to a live array object, whose layout numpy's ABI fixes.
        let (address, flags) = unsafe { ((*raw).data as u64, (*raw).flags) };
        let (shape, scalar) = (array.shape(), numpy_scalar(array));
        let Some(scalar) = scalar.filter(|_| flags & NPY_ARRAY_C_CONTIGUOUS != 0) else { return false };
        let Some(array) = RowMajor::of(address, scalar, shape.iter().map(|&n| n as u64)) else { return false };
        self.take_row_major(wanted, &RowMajor { readonly: flags & NPY_ARRAY_WRITEABLE == 0, host: true, ..array })
    }

    #[inline]
    fn take_row_major(&mut self, wanted: &ArrayKind, array: &RowMajor) -> bool {
        let elem = Type::Scalar(array.scalar);
        let extents = &array.extents[..array.axes];
        if !wanted.is_just(&elem, extents.len()) {
            return false;
        }
        self.push_memory(&Memory {
            address: array.address,
            extents,
            strides: &[],
            type_word: type_word(&elem),
            needs_grad: false,
            needs_dual: false,
            low: array.address,
            high: array.address + u64::from(array.scalar.bytes()) * extents.iter().product::<u64>(),
            unwritable: array.readonly.then_some(Unwritable::ReadOnly),
            host: array.host,
            gaps: false,
            split_axis: None,
        });
        true
    }
}

/// A row-major array of another library, without gaps and without a gradient.
struct RowMajor {
    address: u64,
    scalar: Scalar,
    extents: [u64; MOST_AXES],
    axes: usize,
    readonly: bool,
    host: bool,
}

impl RowMajor {
    /// A writable array on the device. `None` for more axes than the plain path takes.
    #[inline]
    fn of(address: u64, scalar: Scalar, shape: impl ExactSizeIterator<Item = u64>) -> Option<RowMajor> {
        let axes = shape.len();
        if axes > MOST_AXES {
            return None;
        }
        let mut extents = [0; MOST_AXES];
        extents.iter_mut().zip(shape).for_each(|(to, n)| *to = n);
        Some(RowMajor { address, scalar, extents, axes, readonly: false, host: false })
    }
}
