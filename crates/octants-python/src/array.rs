//! Array arguments: this package's ndarrays, numpy arrays, and, in [`crate::foreign_array`], arrays of other
//! libraries. Each becomes an [`ArrayView`] (pointer, extents, strides) without a copy.

use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use octants_engine::ir::{Scalar, Type};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use smallvec::SmallVec;

use crate::array_view::ArrayView;
use crate::element_types::scalar_of_kind;
use crate::names::{Known, is_tensor};
use crate::ndarray::Ndarray;
use crate::{foreign_array, own_array};

/// How arrays of other libraries are viewed.
type ForeignView = fn(&Bound<'_, PyAny>) -> PyResult<Option<ArrayView>>;

/// The view of `value`, or `None` when it is not an array.
#[inline]
pub fn view(value: &Bound<'_, PyAny>) -> PyResult<Option<ArrayView>> {
    view_with(value, foreign_array::view)
}

/// As [`view`], for the argument of a launch: memory that the device cannot use may be copied for it.
#[inline]
pub fn view_or_copy(value: &Bound<'_, PyAny>) -> PyResult<Option<ArrayView>> {
    view_with(value, foreign_array::view_or_copy)
}

#[inline]
fn view_with(value: &Bound<'_, PyAny>, foreign: ForeignView) -> PyResult<Option<ArrayView>> {
    if let Ok(array) = value.cast::<Ndarray>() {
        return own_array::view(array).map(Some);
    }
    let py = value.py();
    let numpy = Known::get(py)?.np_ndarray.bind(py);
    if value.is_instance(numpy)? {
        // Only a subclass can have a mask.
        if !value.get_type().is(numpy) && value.is_instance(&py.import("numpy.ma")?.getattr("MaskedArray")?)? {
            return Err(PyValueError::new_err(
                "a masked array cannot be used in a kernel, which ignores its mask: pass `array.filled(...)`",
            ));
        }
        return from_numpy(value).map(Some);
    }
    // Unwrap it first: its DLPack export would lose the element type and the gradient.
    if is_tensor(value)? {
        return Ok(None);
    }
    foreign(value)
}

fn from_numpy(value: &Bound<'_, PyAny>) -> PyResult<ArrayView> {
    // SAFETY: the caller checked that `value` is a numpy array.
    let array = unsafe { value.cast_unchecked::<PyUntypedArray>() };
    let Some(scalar) = numpy_scalar(array) else {
        return Err(PyValueError::new_err(format!(
            "numpy arrays of dtype {} cannot be used in a kernel",
            array.dtype().str()?
        )));
    };
    let raw = array.as_array_ptr();
    // SAFETY: the pointer is to a live array object, whose layout numpy's ABI fixes.
    let (data, flags) = unsafe { ((*raw).data as u64, (*raw).flags) };
    let mut view = ArrayView {
        address: data,
        elem: Type::Scalar(scalar),
        extents: array.shape().iter().map(|&n| n as u64).collect(),
        strides: SmallVec::new(),
        readonly: flags & numpy::npyffi::flags::NPY_ARRAY_WRITEABLE == 0,
        host: true,
        owner: None,
        ready_on: None,
        needs_grad: false,
        needs_dual: false,
        serial: 0,
        split: None,
        split_axis: None,
        original: None,
    };
    if flags & numpy::npyffi::flags::NPY_ARRAY_C_CONTIGUOUS == 0 {
        view.strides = array.strides().iter().map(|&s| s as i64).collect();
    }
    Ok(view)
}

/// The scalar type of a numpy array's dtype, if there is one in this machine's byte order.
pub fn numpy_scalar(array: &Bound<'_, PyUntypedArray>) -> Option<Scalar> {
    let dtype = array.dtype();
    if !dtype.is_native_byteorder().unwrap_or(true) {
        return None;
    }
    scalar_of_kind(dtype.kind(), dtype.itemsize())
}
