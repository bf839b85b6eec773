//! Arrays that a caller passes: this package's ndarrays, numpy arrays, and, in [`crate::foreign_array`], those of others.
//! Each becomes an [`ArrayView`]: pointer, extents and strides, with no copy.

use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use octants_engine::frontend::NdarrayDesc;
use octants_engine::ir::{Scalar, Type};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use smallvec::SmallVec;

use crate::foreign_array;
use crate::names::{Known, is_tensor};
use crate::ndarray::Ndarray;

/// Where an array lies.
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
    /// What keeps the memory, where that is not the array itself.
    pub owner: Option<Py<PyAny>>,
    /// Handle of another library's stream that the array's contents are ready on.
    pub ready_on: Option<u64>,
    /// Has a gradient.
    pub needs_grad: bool,
}

impl ArrayView {
    /// Bytes from the first to the last that an access can touch: `[low, high)`.
    pub fn span(&self) -> (u64, u64) {
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

    /// There are bytes between the elements that are not the array's.
    #[inline]
    pub fn has_gaps(&self) -> bool {
        if self.strides.is_empty() {
            return false;
        }
        let (low, high) = self.span();
        let elem = u64::from(scalar_of(&self.elem).bytes()) * self.elem.leaf_count() as u64;
        high - low > elem * self.extents.iter().product::<u64>()
    }

    /// Drops strides that are those of a row-major array without gaps.
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

    /// Gives a row-major array without gaps its strides.
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

    /// Folds the trailing axes into the element type that an annotation asks for. False when they do not match.
    pub fn fold_elements(&mut self, elem: &Type) -> bool {
        let shape = elem.shape();
        if shape.is_empty() {
            return true;
        }
        let Some(at) = self.extents.len().checked_sub(shape.len()) else { return false };
        if !self.extents[at..].iter().zip(&shape).all(|(&e, &s)| e == u64::from(s)) {
            return false;
        }
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

    /// What the compiler needs to know of it.
    pub fn desc(&self) -> NdarrayDesc {
        NdarrayDesc {
            elem: self.elem.clone(),
            ndim: self.extents.len() as u32,
            contiguous: self.strides.is_empty(),
            wide: NdarrayDesc::is_wide(&self.extents),
            clamped: false,
            needs_grad: self.needs_grad,
        }
    }
}

/// The scalar of a scalar or tensor type.
pub fn scalar_of(ty: &Type) -> Scalar {
    match ty {
        Type::Scalar(s) | Type::Vector(s, _) | Type::Matrix(s, _, _) => *s,
        _ => unreachable!("compiler bug: an array's element is a scalar or a tensor"),
    }
}

/// The view of `value`, or `None` when it is not an array.
#[inline]
pub fn view(value: &Bound<'_, PyAny>) -> PyResult<Option<ArrayView>> {
    if let Ok(array) = value.cast::<Ndarray>() {
        return own(array).map(Some);
    }
    let py = value.py();
    if value.is_instance(Known::get(py)?.np_ndarray.bind(py))? {
        return from_numpy(value).map(Some);
    }
    // It exports itself to other libraries too, which would lose its element type and its gradient: what it wraps is the array.
    if is_tensor(value)? {
        return Ok(None);
    }
    foreign_array::view(value)
}

fn own(array: &Bound<'_, Ndarray>) -> PyResult<ArrayView> {
    let this = array.get();
    Ok(ArrayView {
        address: this.address(array.py())?,
        elem: this.elem().clone(),
        extents: SmallVec::from_slice(this.extents()),
        strides: SmallVec::from_slice(this.strides()),
        readonly: false,
        host: false,
        owner: None,
        ready_on: None,
        needs_grad: this.has_grad(),
    })
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
    };
    if flags & numpy::npyffi::flags::NPY_ARRAY_C_CONTIGUOUS == 0 {
        view.strides = array.strides().iter().map(|&s| s as i64).collect();
    }
    Ok(view)
}

/// The scalar of a numpy array's dtype, where there is one in this machine's byte order.
pub fn numpy_scalar(array: &Bound<'_, PyUntypedArray>) -> Option<Scalar> {
    let dtype = array.dtype();
    if !dtype.is_native_byteorder().unwrap_or(true) {
        return None;
    }
    scalar_of_kind(dtype.kind(), dtype.itemsize())
}

/// The scalar of numpy's kind of a type and its size.
pub fn scalar_of_kind(kind: u8, size: usize) -> Option<Scalar> {
    Some(match (kind, size) {
        (b'b', 1) => Scalar::U1,
        (b'i', 1) => Scalar::I8,
        (b'i', 2) => Scalar::I16,
        (b'i', 4) => Scalar::I32,
        (b'i', 8) => Scalar::I64,
        (b'u', 1) => Scalar::U8,
        (b'u', 2) => Scalar::U16,
        (b'u', 4) => Scalar::U32,
        (b'u', 8) => Scalar::U64,
        (b'f', 2) => Scalar::F16,
        (b'f', 4) => Scalar::F32,
        (b'f', 8) => Scalar::F64,
        _ => return None,
    })
}
