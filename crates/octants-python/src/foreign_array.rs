//! Arrays of other libraries: torch tensors, the buffer protocol, the array protocol of the device, DLPack.
//!
//! An array is either in the host's memory or in that of the program's device; both are used without a copy here (the
//! runtime stages host arrays for a launch). For device memory the usual convention holds: the caller keeps it alive
//! until the device's work is done, and orders the streams.

use std::cell::RefCell;

use octants_engine::ir::{Scalar, Type};
use octants_engine::runtime::nesting;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use smallvec::SmallVec;

use crate::array_view::{ArrayView, Original};
use crate::element_types::{scalar_of, scalar_of_kind};
use crate::element_view::ElementView;
use crate::host_memory::is_host;
use crate::names::is_field;
use crate::ndarray::Ndarray;
use crate::package::Package;
use crate::{dlpack, exchange_table, own_array, program};

thread_local! {
    /// Torch's and DLPack's names of device kinds.
    static KINDS: RefCell<Vec<(String, i32)>> = const { RefCell::new(Vec::new()) };
    /// Torch's types of elements, by the addresses of their objects, which live as long as torch.
    static TYPES: RefCell<Vec<(usize, Scalar)>> = const { RefCell::new(Vec::new()) };
}

/// The view of another library's array, or `None` for an unknown object.
pub fn view(value: &Bound<'_, PyAny>) -> PyResult<Option<ArrayView>> {
    if let Ok(elements) = value.cast_exact::<ElementView>() {
        return elements.get().view(value.py()).map(Some);
    }
    match located(value)? {
        Located::Here(view) => Ok(view),
        Located::Elsewhere(_) => Err(refused()),
    }
}

/// As [`view`], but memory that the device cannot use is copied.
pub fn view_or_copy(value: &Bound<'_, PyAny>) -> PyResult<Option<ArrayView>> {
    if let Ok(elements) = value.cast_exact::<ElementView>() {
        return elements.get().view(value.py()).map(Some);
    }
    match located(value)? {
        Located::Here(view) => Ok(view),
        Located::Elsewhere(view) => copied(value, &view)?.ok_or_else(refused).map(Some),
    }
}

/// Where an array is.
enum Located {
    /// The device can use it, if it is an array.
    Here(Option<ArrayView>),
    /// In memory of another library on the GPU, which the device cannot use.
    Elsewhere(Box<ArrayView>),
}

fn located(value: &Bound<'_, PyAny>) -> PyResult<Located> {
    let Some(view) = described(value)? else { return Ok(Located::Here(None)) };
    if view.host || view.extents.contains(&0) {
        return Ok(Located::Here(Some(view)));
    }
    Ok(match program::own_address(view.address) {
        Some(address) => Located::Here(Some(ArrayView { address, ..view })),
        None => Located::Elsewhere(Box::new(view)),
    })
}

#[cold]
fn refused() -> PyErr {
    let why = if nesting::capturing() { ", and its launch, which a graph captures, cannot copy it" } else { "" };
    PyValueError::new_err(format!(
        "an array that another library has allocated on the GPU cannot be used in place by a kernel on {}, which \
         shares only its own memory with other libraries{why}: copy it into a qd.ndarray by `from_torch`, or create \
         it with `torch.from_dlpack(ndarray)`",
        program::device_name()
    ))
}

/// A copy of another library's array, which a launch copies back. `None` if the library is unknown.
#[cold]
fn copied(value: &Bound<'_, PyAny>, view: &ArrayView) -> PyResult<Option<ArrayView>> {
    let py = value.py();
    if nesting::capturing() {
        return Ok(None);
    }
    let copies = Package::get(py)?.foreign_copies.bind(py);
    let shape = PyTuple::new(py, &view.extents)?;
    let scalar = scalar_of(&view.elem).to_string();
    let made = copies.call_method1(pyo3::intern!(py, "copy_in"), (value, scalar, shape))?;
    let Some((array, target, ready)) = made.extract::<Option<(Bound<'_, Ndarray>, Py<PyAny>, u64)>>()? else {
        return Ok(None);
    };
    let original = Original { array: value.clone().unbind(), span: view.span(), is_foreign: true };
    Ok(Some(ArrayView {
        readonly: view.readonly || view.overlaps_itself(),
        owner: Some(target),
        ready_on: Some(ready),
        original: Some(original),
        ..own_array::view(&array)?
    }))
}

/// The view in the other library's terms.
fn described(value: &Bound<'_, PyAny>) -> PyResult<Option<ArrayView>> {
    let py = value.py();
    if let Some(view) = exchange_table::view(value)? {
        return Ok(Some(ArrayView { needs_grad: has_gradient(value)?, ..view }));
    }
    // Torch is never imported here: a tensor can only exist when the user did.
    if value.hasattr(pyo3::intern!(py, "data_ptr"))? && value.hasattr(pyo3::intern!(py, "element_size"))? {
        return Ok(Some(ArrayView { needs_grad: has_gradient(value)?, ..from_torch(value)? }));
    }
    if value.is_instance_of::<pyo3::types::PyBytes>() || value.is_instance_of::<pyo3::types::PyByteArray>() {
        return Ok(None);
    }
    if let Some(name) = program::array_protocol()
        && let Some(shown) = value.getattr_opt(name)?
    {
        // The protocol does not specify the owner of the memory.
        if program::are_several()
            && let Some(device) = dlpack::device_of(value)?
        {
            is_host(device, || format!("device {device:?} (as DLPack names it)"))?;
        }
        return from_protocol(&shown, name).map(Some);
    }
    // SAFETY: `value` is a live object.
    if unsafe { pyo3::ffi::PyObject_CheckBuffer(value.as_ptr()) } != 0 {
        match from_buffer(value) {
            // Some device arrays refuse host access only when it is attempted; another protocol exports them.
            Err(_) if dlpack::device_of(value)?.is_some_and(|d| !dlpack::is_host(d)) => {}
            // A numpy scalar exports its bytes without a shape.
            Err(_) if !value.hasattr(pyo3::intern!(py, "__len__"))? => return Ok(None),
            other => return other,
        }
    }
    match dlpack::device_of(value)? {
        Some(device) => {
            let host = is_host(device, || format!("device {device:?} (as DLPack names it)"))?;
            let is_field = is_field(value)?;
            let has = |name| Ok::<bool, PyErr>(is_field && value.call_method0(name)?.is_truthy()?);
            let needs_grad = has(pyo3::intern!(py, "has_grad"))?;
            let needs_dual = has(pyo3::intern!(py, "has_dual"))?;
            Ok(Some(ArrayView { host, needs_grad, needs_dual, ..dlpack::import(value)? }))
        }
        None => Ok(None),
    }
}

/// Whether a tensor requires a gradient.
pub fn requires_gradient(tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
    let wants = tensor.getattr_opt(pyo3::intern!(tensor.py(), "requires_grad"))?;
    Ok(wants.is_some_and(|w| w.is_truthy().unwrap_or(false)))
}

/// Whether a tensor requires a gradient. If so it has one from here on, row-major without gaps, that kernels can add
/// to.
fn has_gradient(tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = tensor.py();
    if !requires_gradient(tensor)? {
        return Ok(false);
    }
    // The public attribute warns for tensors whose gradient torch would not fill.
    let found = tensor.getattr(pyo3::intern!(py, "_grad"))?;
    if found.is_none() {
        let like = tensor.call_method0(pyo3::intern!(py, "detach"))?.call_method0(pyo3::intern!(py, "contiguous"))?;
        let zeros = py.import("torch")?.call_method1(pyo3::intern!(py, "zeros_like"), (like,))?;
        tensor.setattr(pyo3::intern!(py, "grad"), zeros)?;
    } else if !found.call_method0(pyo3::intern!(py, "is_contiguous"))?.is_truthy()? {
        tensor.setattr(pyo3::intern!(py, "grad"), found.call_method0(pyo3::intern!(py, "contiguous"))?)?;
    }
    Ok(true)
}

fn from_buffer(value: &Bound<'_, PyAny>) -> PyResult<Option<ArrayView>> {
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
        owner: None,
        ready_on: None,
        needs_grad: false,
        needs_dual: false,
        serial: 0,
        split: None,
        split_axis: None,
        original: None,
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
    // An object that only looks like a tensor need not have one.
    let layout = match tensor.getattr_opt(pyo3::intern!(py, "layout"))? {
        Some(layout) => layout.str()?.to_string(),
        None => String::from("torch.strided"),
    };
    if layout != "torch.strided" {
        return Err(PyValueError::new_err(format!(
            "a tensor of layout {layout} cannot be used in a kernel: pass `tensor.to_dense()`, or the tensors of its \
             indices and values"
        )));
    }
    let host = torch_host(tensor)?;
    let scalar = torch_scalar(&tensor.getattr(pyo3::intern!(py, "dtype"))?)?;
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
        host,
        owner: None,
        ready_on: None,
        needs_grad: false,
        needs_dual: false,
        serial: 0,
        split: None,
        split_axis: None,
        original: None,
    })
}

/// Whether a tensor is in the host's memory.
fn torch_host(tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = tensor.py();
    let device = tensor.getattr(pyo3::intern!(py, "device"))?;
    let kind = device.getattr(pyo3::intern!(py, "type"))?.cast_into::<PyString>()?;
    let kind = kind.to_str()?;
    if kind == "cpu" {
        return Ok(true);
    }
    let known = KINDS.with_borrow(|kinds| kinds.iter().find(|(name, _)| name == kind).map(|(_, number)| *number));
    let number = match known {
        Some(number) => number,
        None => {
            let unknown = || PyValueError::new_err(format!("a tensor on device `{kind}` cannot be used in a kernel"));
            let number = dlpack::device_of(tensor).ok().flatten().ok_or_else(unknown)?.0;
            KINDS.with_borrow_mut(|kinds| kinds.push((kind.to_string(), number)));
            number
        }
    };
    let index: Option<i32> = device.getattr(pyo3::intern!(py, "index"))?.extract()?;
    is_host((number, index.unwrap_or(0)), || {
        device.str().map_or_else(|_| "?".to_string(), |name| format!("device `{name}`"))
    })
}

fn torch_scalar(dtype: &Bound<'_, PyAny>) -> PyResult<Scalar> {
    let address = dtype.as_ptr() as usize;
    let known = TYPES.with_borrow(|types| types.iter().find(|(at, _)| *at == address).map(|(_, scalar)| *scalar));
    if let Some(scalar) = known {
        return Ok(scalar);
    }
    let name = dtype.str()?;
    let scalar = match name.to_str()? {
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
    TYPES.with_borrow_mut(|types| types.push((address, scalar)));
    Ok(scalar)
}

/// The array interface of device arrays: numpy's dictionary, plus the stream on which the contents are ready.
fn from_protocol(shown: &Bound<'_, PyAny>, name: &str) -> PyResult<ArrayView> {
    let wrong = |what: &str| PyTypeError::new_err(format!("{name}: {what}"));
    let shown = shown.cast::<PyDict>().map_err(|_| wrong("expected a dictionary"))?;
    let entry = |key: &str| -> PyResult<Option<Bound<'_, PyAny>>> { Ok(shown.get_item(key)?.filter(|v| !v.is_none())) };
    let needed = |key: &str| entry(key)?.ok_or_else(|| wrong(&format!("`{key}` is missing")));
    if entry("mask")?.is_some() {
        return Err(wrong("masked arrays cannot be used in a kernel"));
    }
    let typestr: String = needed("typestr")?.extract()?;
    let scalar = match typestr.as_bytes() {
        [b'<' | b'|' | b'=', kind, size @ ..] => {
            std::str::from_utf8(size).ok().and_then(|s| s.parse().ok()).and_then(|size| scalar_of_kind(*kind, size))
        }
        _ => None,
    };
    let Some(scalar) = scalar else {
        return Err(PyValueError::new_err(format!("arrays of type {typestr} cannot be used in a kernel")));
    };
    let (address, readonly): (u64, bool) = needed("data")?.extract()?;
    let extents: Vec<u64> = needed("shape")?.extract()?;
    let strides: Vec<i64> = entry("strides")?.map_or(Ok(Vec::new()), |s| s.extract())?;
    let mut view = ArrayView {
        address,
        elem: Type::Scalar(scalar),
        extents: SmallVec::from_vec(extents),
        strides: SmallVec::from_vec(strides),
        readonly,
        host: false,
        owner: None,
        ready_on: entry("stream")?.map(|s| s.extract()).transpose()?,
        needs_grad: false,
        needs_dual: false,
        serial: 0,
        split: None,
        split_axis: None,
        original: None,
    };
    view.forget_dense_strides();
    Ok(view)
}
