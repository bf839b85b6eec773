//! Arrays that a caller passes: this package's ndarrays, numpy arrays, torch tensors on the CPU, and anything with the
//! buffer protocol. Each becomes an [`ArrayView`]: pointer, extents and strides, with no copy.

use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use octants_engine::frontend::NdarrayDesc;
use octants_engine::ir::{Scalar, Type};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use smallvec::SmallVec;

use crate::names::Known;
use crate::ndarray::Ndarray;

/// Where an array lies.
#[derive(Debug, Clone)]
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
    foreign(value)
}

fn own(array: &Bound<'_, Ndarray>) -> PyResult<ArrayView> {
    let this = array.get();
    Ok(ArrayView {
        address: this.memory().address(array.py())?,
        elem: this.elem().clone(),
        extents: SmallVec::from_slice(this.extents()),
        strides: SmallVec::from_slice(this.strides()),
        readonly: false,
        host: false,
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
    };
    if flags & numpy::npyffi::flags::NPY_ARRAY_C_CONTIGUOUS == 0 {
        view.strides = array.strides().iter().map(|&s| s as i64).collect();
    }
    Ok(view)
}

/// The scalar of a numpy array's dtype, where there is one in this machine's byte order.
fn numpy_scalar(array: &Bound<'_, PyUntypedArray>) -> Option<Scalar> {
    let dtype = array.dtype();
    if !dtype.is_native_byteorder().unwrap_or(true) {
        return None;
    }
    scalar_of_kind(dtype.kind(), dtype.itemsize())
}

fn scalar_of_kind(kind: u8, size: usize) -> Option<Scalar> {
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

/// Torch tensors (torch is never imported here: a tensor can only exist when the user did) and the buffer protocol.
fn foreign(value: &Bound<'_, PyAny>) -> PyResult<Option<ArrayView>> {
    let py = value.py();
    if value.hasattr(pyo3::intern!(py, "data_ptr"))? && value.hasattr(pyo3::intern!(py, "element_size"))? {
        return from_torch(value).map(Some);
    }
    // SAFETY: `value` is a live object.
    if unsafe { pyo3::ffi::PyObject_CheckBuffer(value.as_ptr()) } == 0 {
        return Ok(None);
    }
    if value.is_instance_of::<pyo3::types::PyBytes>() || value.is_instance_of::<pyo3::types::PyByteArray>() {
        return Ok(None);
    }
    let buffer = PyUntypedBuffer::get(value)?;
    let Some(scalar) = scalar_of_format(&buffer) else { return Ok(None) };
    Ok(Some(ArrayView {
        address: buffer.buf_ptr() as u64,
        elem: Type::Scalar(scalar),
        extents: buffer.shape().iter().map(|&n| n as u64).collect(),
        strides: if buffer.is_c_contiguous() {
            SmallVec::new()
        } else {
            buffer.strides().iter().map(|&s| s as i64).collect()
        },
        readonly: buffer.readonly(),
        host: true,
    }))
}

fn scalar_of_format(buffer: &PyUntypedBuffer) -> Option<Scalar> {
    let kind = match *buffer.format().to_bytes() {
        [b'?'] => b'b',
        [b'b' | b'h' | b'i' | b'l' | b'q'] => b'i',
        [b'B' | b'H' | b'I' | b'L' | b'Q'] => b'u',
        [b'e' | b'f' | b'd'] => b'f',
        _ => return None,
    };
    scalar_of_kind(kind, buffer.item_size())
}

fn from_torch(tensor: &Bound<'_, PyAny>) -> PyResult<ArrayView> {
    let py = tensor.py();
    let device: String = tensor.getattr("device")?.getattr("type")?.extract()?;
    if device != "cpu" {
        return Err(PyValueError::new_err(format!(
            "a tensor on device `{device}` cannot be passed to a kernel on the CPU: call `.cpu()` first"
        )));
    }
    let dtype = tensor.getattr(pyo3::intern!(py, "dtype"))?.str()?;
    let scalar = match dtype.to_str()? {
        "torch.bool" => Scalar::U1,
        "torch.int8" => Scalar::I8,
        "torch.int16" => Scalar::I16,
        "torch.int32" => Scalar::I32,
        "torch.int64" => Scalar::I64,
        "torch.uint8" => Scalar::U8,
        "torch.uint16" => Scalar::U16,
        "torch.uint32" => Scalar::U32,
        "torch.uint64" => Scalar::U64,
        "torch.float16" => Scalar::F16,
        "torch.float32" => Scalar::F32,
        "torch.float64" => Scalar::F64,
        other => return Err(PyValueError::new_err(format!("tensors of dtype {other} cannot be used in a kernel"))),
    };
    let extents: Vec<u64> = tensor.getattr(pyo3::intern!(py, "shape"))?.extract()?;
    let contiguous: bool = tensor.call_method0(pyo3::intern!(py, "is_contiguous"))?.extract()?;
    let strides: Vec<i64> =
        if contiguous { Vec::new() } else { tensor.call_method0(pyo3::intern!(py, "stride"))?.extract()? };
    Ok(ArrayView {
        address: tensor.call_method0(pyo3::intern!(py, "data_ptr"))?.extract()?,
        elem: Type::Scalar(scalar),
        extents: SmallVec::from_vec(extents),
        strides: strides.iter().map(|s| s * i64::from(scalar.bytes())).collect(),
        readonly: false,
        host: true,
    })
}
