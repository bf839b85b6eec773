//! DLPack's table of functions. If a tensor type has one (torch's has since 2.10), its tensors are described without a
//! Python call. This is the fast path for arguments; other paths handle what it cannot. The table also returns the
//! library's current stream.

use std::cell::RefCell;
use std::ffi::{CStr, c_int, c_void};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::array_view::ArrayView;
use crate::dlpack::{MAJOR, Tensor, Version, view_of};
use crate::errors;
use crate::host_memory::is_host;

const NAME: &CStr = c"dlpack_exchange_api";

/// The table, as DLPack lays it out.
#[repr(C)]
struct Table {
    version: Version,
    _earlier: *const Table,
    _allocate: *const c_void,
    _managed_from_object: *const c_void,
    _managed_to_object: *const c_void,
    /// Fills in a description of an object of the type, valid until the next call.
    describe: Option<unsafe extern "C" fn(*mut ffi::PyObject, *mut Tensor) -> c_int>,
    /// The library's current stream of a device, by the driver's handle; null for the default one.
    current_stream: Option<unsafe extern "C" fn(c_int, i32, *mut *mut c_void) -> c_int>,
}

thread_local! {
    /// Tables by type address. The types are kept alive.
    static TABLES: RefCell<Vec<(usize, Py<PyType>, *const Table)>> = const { RefCell::new(Vec::new()) };
}

/// The table of a type.
fn table_of(ty: Bound<'_, PyType>) -> PyResult<Option<*const Table>> {
    let address = ty.as_ptr() as usize;
    let known = TABLES.with_borrow(|tables| tables.iter().find(|(at, _, _)| *at == address).map(|(_, _, t)| *t));
    if known.is_some() {
        return Ok(known);
    }
    let Some(capsule) = ty.getattr_opt(pyo3::intern!(ty.py(), "__dlpack_c_exchange_api__"))? else {
        return Ok(None);
    };
    // SAFETY: a capsule of this name holds such a table, which lives as long as the type.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule.as_ptr(), NAME.as_ptr()) == 0 {
            return Ok(None);
        }
        let table = ffi::PyCapsule_GetPointer(capsule.as_ptr(), NAME.as_ptr()) as *const Table;
        if (*table).version.major != MAJOR || (*table).describe.is_none() {
            return Ok(None);
        }
        TABLES.with_borrow_mut(|tables| tables.push((address, ty.unbind(), table)));
        Ok(Some(table))
    }
}

/// Whether a table has described an object of this type before.
#[inline]
pub fn has_described(value: &Bound<'_, PyAny>) -> bool {
    let address = value.get_type_ptr() as usize;
    TABLES.with_borrow(|tables| tables.iter().any(|(at, _, _)| *at == address))
}

/// Describes an object whose type has a table. `None` if there is no table or the library refuses the object. The
/// extents and strides are valid until the next description.
pub fn describe(value: &Bound<'_, PyAny>) -> PyResult<Option<Tensor>> {
    let Some(table) = table_of(value.get_type())? else { return Ok(None) };
    let mut tensor = Tensor::EMPTY;
    // SAFETY: the table is its type's, which is alive.
    unsafe {
        let Some(describe) = (*table).describe else { return Ok(None) };
        if describe(value.as_ptr(), &mut tensor) != 0 {
            // The caller's next attempt reports the error.
            drop(PyErr::take(value.py()));
            return Ok(None);
        }
    }
    Ok(Some(tensor))
}

/// Whether a described tensor is in the host's memory. An error if it is on another device than the program's.
pub fn lies_on_host(value: &Bound<'_, PyAny>, tensor: &Tensor) -> PyResult<bool> {
    is_host((tensor.device.kind, tensor.device.number), || {
        let device = value.getattr("device").and_then(|d| d.str());
        device.map_or_else(|_| format!("device {}", tensor.device.kind), |name| format!("device `{name}`"))
    })
}

/// The view of an object that a table describes.
pub fn view(value: &Bound<'_, PyAny>) -> PyResult<Option<ArrayView>> {
    let Some(tensor) = describe(value)? else { return Ok(None) };
    // SAFETY: the library was not called since.
    let Some(mut view) = (unsafe { view_of(&tensor, false, None) })? else { return Ok(None) };
    view.host = lies_on_host(value, &tensor)?;
    Ok(Some(view))
}

/// The handle of torch's current stream on a device; zero for its default stream. `None` while torch is not imported.
pub fn torch_stream(py: Python<'_>, device: (i32, i32)) -> PyResult<Option<u64>> {
    // SAFETY: the interpreter's table of modules, borrowed.
    let modules = unsafe { Bound::from_borrowed_ptr(py, ffi::PyImport_GetModuleDict()) };
    let Ok(torch) = modules.get_item(pyo3::intern!(py, "torch")) else { return Ok(None) };
    let tensor = torch.getattr(pyo3::intern!(py, "Tensor"))?.cast_into::<PyType>()?;
    // SAFETY: the table is its type's, which is alive.
    let ask = match table_of(tensor)? {
        Some(table) => unsafe { (*table).current_stream },
        None => None,
    };
    let Some(ask) = ask else {
        return Err(errors::runtime_error(
            py,
            "follow_torch_stream=True needs torch 2.10 or newer (DLPack's C exchange API); pass torch's stream as \
             qd_stream= instead",
        ));
    };
    let mut stream = std::ptr::null_mut();
    // SAFETY: as above.
    match unsafe { ask(device.0, device.1, &mut stream) } {
        0 => Ok(Some(stream as u64)),
        _ => {
            Err(PyErr::take(py).unwrap_or_else(|| errors::runtime_error(py, "torch did not return its current stream")))
        }
    }
}
