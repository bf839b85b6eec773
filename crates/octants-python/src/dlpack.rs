//! DLPack, the protocol for exchanging device arrays between libraries: exports this program's memory as capsules, and
//! imports the capsules of other libraries. Supports the structures of DLPack 1.x and the unversioned ones before it.

use std::ffi::{CStr, c_void};

use octants_engine::ir::{Scalar, Type};
use octants_engine::runtime::PinnedBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use smallvec::SmallVec;

use crate::array_view::ArrayView;

const NAME: &CStr = c"dltensor";
const NAME_VERSIONED: &CStr = c"dltensor_versioned";
/// The read-only bit of `Versioned::flags`.
const READ_ONLY: u64 = 1;
/// Device kinds of host memory: plain, and pinned.
const HOST_KINDS: [i32; 2] = [1, 3];
/// The versions of the versioned structure that are accepted and produced.
pub const MAJOR: u32 = 1;

#[repr(C)]
#[derive(Clone, Copy)]
struct Element {
    code: u8,
    bits: u8,
    lanes: u16,
}

/// A version of DLPack.
#[repr(C)]
pub struct Version {
    /// A different major version means a different layout.
    pub major: u32,
    minor: u32,
}

/// A kind of device, and the number of one.
#[repr(C)]
pub struct Device {
    /// The kind.
    pub kind: i32,
    /// The number.
    pub number: i32,
}

/// A tensor.
#[repr(C)]
pub struct Tensor {
    data: *mut c_void,
    /// Its device.
    pub device: Device,
    ndim: i32,
    element: Element,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

impl Tensor {
    /// To be filled in.
    pub const EMPTY: Tensor = Tensor {
        data: std::ptr::null_mut(),
        device: Device { kind: 0, number: 0 },
        ndim: 0,
        element: Element { code: 0, bits: 0, lanes: 0 },
        shape: std::ptr::null_mut(),
        strides: std::ptr::null_mut(),
        byte_offset: 0,
    };

    /// Address of the first element.
    pub fn address(&self) -> u64 {
        self.data as u64 + self.byte_offset
    }

    /// Type of the elements, if kernels support it.
    pub fn scalar(&self) -> Option<Scalar> {
        scalar_of(self.element)
    }

    /// The extents.
    ///
    /// # Safety
    /// A library has described the tensor, and its description is still valid.
    pub unsafe fn extents(&self) -> &[i64] {
        match usize::try_from(self.ndim) {
            Ok(n) if n > 0 => unsafe { std::slice::from_raw_parts(self.shape, n) },
            _ => &[],
        }
    }

    /// Whether the tensor is row-major without gaps.
    ///
    /// # Safety
    /// As for [`Tensor::extents`].
    pub unsafe fn is_row_major(&self) -> bool {
        if self.strides.is_null() {
            return true;
        }
        let mut expected = 1;
        for (axis, &extent) in unsafe { self.extents() }.iter().enumerate().rev() {
            // SAFETY: DLPack's contract: one stride per axis.
            if extent > 1 && unsafe { *self.strides.add(axis) } != expected {
                return false;
            }
            expected *= extent;
        }
        true
    }
}

#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

#[repr(C)]
struct Versioned {
    version: Version,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: Tensor,
}

/// The state that an exported capsule keeps alive.
struct Kept {
    _memory: PinnedBuffer,
    shape: Box<[i64]>,
    strides: Box<[i64]>,
}

/// An array in this program's memory.
pub struct Exported {
    /// Keeps the memory.
    pub memory: PinnedBuffer,
    /// Address of the first element.
    pub address: u64,
    /// As the driver names it.
    pub device: (i32, i32),
    /// Type of the elements.
    pub scalar: Scalar,
    /// Extents.
    pub shape: Vec<i64>,
    /// Strides in elements.
    pub strides: Vec<i64>,
}

impl Exported {
    /// The capsule, versioned if the consumer supports that. The memory lives until the consumer releases it.
    pub fn into_capsule(self, py: Python<'_>, versioned: bool) -> PyResult<Py<PyAny>> {
        let (shape, strides) = (self.shape.into_boxed_slice(), self.strides.into_boxed_slice());
        let mut kept = Box::new(Kept { _memory: self.memory, shape, strides });
        let tensor = Tensor {
            data: self.address as *mut c_void,
            device: Device { kind: self.device.0, number: self.device.1 },
            ndim: kept.shape.len() as i32,
            element: element(self.scalar),
            shape: kept.shape.as_mut_ptr(),
            strides: kept.strides.as_mut_ptr(),
            byte_offset: 0,
        };
        let context = Box::into_raw(kept).cast::<c_void>();
        // SAFETY: the capsule takes the box over; its destructor, or the consumer's call of the deleter, gives it back.
        unsafe {
            let capsule = if versioned {
                let version = Version { major: MAJOR, minor: 0 };
                let made = Versioned { version, context, deleter: Some(delete_versioned), flags: 0, tensor };
                ffi::PyCapsule_New(Box::into_raw(Box::new(made)).cast(), NAME_VERSIONED.as_ptr(), Some(destroy))
            } else {
                let made = Managed { tensor, context, deleter: Some(delete) };
                ffi::PyCapsule_New(Box::into_raw(Box::new(made)).cast(), NAME.as_ptr(), Some(destroy))
            };
            Bound::from_owned_ptr_or_err(py, capsule).map(Bound::unbind)
        }
    }
}

/// # Safety
/// Called once, by the owner of the structure.
unsafe extern "C" fn delete(made: *mut Managed) {
    // SAFETY: both boxes were made above.
    unsafe {
        let made = Box::from_raw(made);
        drop(Box::from_raw(made.context.cast::<Kept>()));
    }
}

/// # Safety
/// As [`delete`].
unsafe extern "C" fn delete_versioned(made: *mut Versioned) {
    // SAFETY: as above.
    unsafe {
        let made = Box::from_raw(made);
        drop(Box::from_raw(made.context.cast::<Kept>()));
    }
}

/// A capsule that no one has consumed still owns its structure.
///
/// # Safety
/// Called by the interpreter with a capsule of ours.
unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    // SAFETY: the name says which structure the pointer is; a consumer renames a capsule that it takes over.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) == 1 {
            delete(ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()).cast());
        } else if ffi::PyCapsule_IsValid(capsule, NAME_VERSIONED.as_ptr()) == 1 {
            delete_versioned(ffi::PyCapsule_GetPointer(capsule, NAME_VERSIONED.as_ptr()).cast());
        }
    }
}

fn element(scalar: Scalar) -> Element {
    let code = match scalar {
        Scalar::U1 => 6,
        s if s.is_float() => 2,
        s if s.is_signed() => 0,
        _ => 1,
    };
    Element { code, bits: scalar.bytes() as u8 * 8, lanes: 1 }
}

fn scalar_of(element: Element) -> Option<Scalar> {
    Some(match (element.code, element.bits, element.lanes) {
        (0, 8, 1) => Scalar::I8,
        (0, 16, 1) => Scalar::I16,
        (0, 32, 1) => Scalar::I32,
        (0, 64, 1) => Scalar::I64,
        (1, 8, 1) => Scalar::U8,
        (1, 16, 1) => Scalar::U16,
        (1, 32, 1) => Scalar::U32,
        (1, 64, 1) => Scalar::U64,
        (2, 16, 1) => Scalar::F16,
        (2, 32, 1) => Scalar::F32,
        (2, 64, 1) => Scalar::F64,
        (6, 8, 1) => Scalar::U1,
        _ => return None,
    })
}

/// The kind and number of the device that an object with `__dlpack_device__` is on.
pub fn device_of(value: &Bound<'_, PyAny>) -> PyResult<Option<(i32, i32)>> {
    match value.getattr_opt(pyo3::intern!(value.py(), "__dlpack_device__"))? {
        // The first is an enumeration in some libraries.
        Some(method) => {
            let pair = method.call0()?;
            let kind = pair.get_item(0)?.call_method0(pyo3::intern!(value.py(), "__index__"))?.extract()?;
            Ok(Some((kind, pair.get_item(1)?.extract()?)))
        }
        None => Ok(None),
    }
}

/// True for memory that the host addresses.
pub fn is_host(device: (i32, i32)) -> bool {
    HOST_KINDS.contains(&device.0)
}

/// A view of an object with `__dlpack__`, and the capsule that keeps it. Nothing is synchronized: the caller orders the
/// uses of device memory.
pub fn import(value: &Bound<'_, PyAny>) -> PyResult<ArrayView> {
    let py = value.py();
    let keywords = PyDict::new(py);
    if device_of(value)?.is_some_and(|d| !is_host(d)) {
        keywords.set_item("stream", -1)?;
    }
    let versioned = keywords.copy()?;
    versioned.set_item("max_version", (MAJOR, 0))?;
    let method = value.getattr(pyo3::intern!(py, "__dlpack__"))?;
    let capsule = match method.call((), Some(&versioned)) {
        // Older producers do not know the keyword.
        Err(e) if e.is_instance_of::<pyo3::exceptions::PyTypeError>(py) => method.call((), Some(&keywords))?,
        other => other?,
    };
    let pointer = capsule.as_ptr();
    // SAFETY: the name says which structure the capsule owns, and it is alive while `capsule` is.
    unsafe {
        let valid = |name: &CStr| ffi::PyCapsule_IsValid(pointer, name.as_ptr()) == 1;
        let (tensor, readonly) = if valid(NAME_VERSIONED) {
            let made = ffi::PyCapsule_GetPointer(pointer, NAME_VERSIONED.as_ptr()).cast::<Versioned>();
            if (*made).version.major != MAJOR {
                let message = format!("DLPack version {} is not supported", (*made).version.major);
                return Err(PyBufferError::new_err(message));
            }
            (&(*made).tensor, (*made).flags & READ_ONLY != 0)
        } else if valid(NAME) {
            (&(*ffi::PyCapsule_GetPointer(pointer, NAME.as_ptr()).cast::<Managed>()).tensor, false)
        } else {
            return Err(PyBufferError::new_err("__dlpack__() did not return a DLPack capsule"));
        };
        view_of(tensor, readonly, Some(capsule.unbind()))?.ok_or_else(|| {
            let Element { code, bits, lanes } = tensor.element;
            PyValueError::new_err(format!(
                "arrays of DLPack's element type (code {code}, {bits} bits, {lanes} lanes) cannot be used in a kernel"
            ))
        })
    }
}

/// The view of a tensor, treated as host memory. `None` if kernels do not support its element type.
///
/// # Safety
/// The tensor is one that a library has described. Its memory is alive while `owner` is.
pub unsafe fn view_of(tensor: &Tensor, readonly: bool, owner: Option<Py<PyAny>>) -> PyResult<Option<ArrayView>> {
    let Some(scalar) = scalar_of(tensor.element) else { return Ok(None) };
    let n = usize::try_from(tensor.ndim)
        .map_err(|_| PyBufferError::new_err("a DLPack tensor must not have a negative rank"))?;
    let list = |at: *const i64| match n {
        0 => &[],
        // SAFETY: DLPack's contract: as many entries as axes.
        n => unsafe { std::slice::from_raw_parts(at, n) },
    };
    let extents: SmallVec<[u64; 4]> = list(tensor.shape).iter().map(|&e| e as u64).collect();
    let size = i64::from(scalar.bytes());
    let strides = if tensor.strides.is_null() { &[] } else { list(tensor.strides) };
    let mut view = ArrayView {
        address: tensor.address(),
        elem: Type::Scalar(scalar),
        extents,
        strides: strides.iter().map(|s| s * size).collect(),
        readonly,
        host: true,
        owner,
        ready_on: None,
        needs_grad: false,
        needs_dual: false,
        serial: 0,
        split: None,
        split_axis: None,
        original: None,
    };
    view.forget_dense_strides();
    Ok(Some(view))
}
