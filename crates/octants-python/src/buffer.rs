//! [`Buffer`]: memory of the device as a Python object, and on the CPU as a writable view for numpy.

use std::sync::Arc;

use octants_engine::Memory;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::{errors, program};

/// Memory of the current program, zeroed.
#[pyclass(module = "octants._octants", frozen, weakref)]
pub struct Buffer {
    memory: Arc<Memory>,
    generation: u64,
}

impl Buffer {
    /// Allocates on the current program's device.
    pub fn allocate(py: Python<'_>, bytes: u64) -> PyResult<Buffer> {
        let program = program::require(py)?;
        let memory = py.detach(|| program.session.allocate(bytes)).map_err(|e| errors::from_engine(py, e))?;
        Ok(Buffer { memory, generation: program.generation })
    }

    /// Address on the device.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.memory.len()
    }

    /// Whether the program that made it still runs.
    pub fn is_alive(&self) -> bool {
        self.generation == program::current_generation()
    }
}

#[pymethods]
impl Buffer {
    #[new]
    fn new(py: Python<'_>, nbytes: i64) -> PyResult<Buffer> {
        let bytes = u64::try_from(nbytes).map_err(|_| PyValueError::new_err("a buffer cannot have a negative size"))?;
        Buffer::allocate(py, bytes)
    }

    /// Size in bytes.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.len()
    }

    /// Address on the device.
    #[getter]
    fn ptr(&self, py: Python<'_>) -> PyResult<u64> {
        if !self.is_alive() {
            return Err(errors::dead_object(py, "buffer"));
        }
        Ok(self.address())
    }

    /// Whether the program that made it still runs.
    #[getter]
    fn alive(&self) -> bool {
        self.is_alive()
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: std::ffi::c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("view is null"));
        }
        let this = slf.get();
        if !this.is_alive() {
            return Err(errors::dead_object(slf.py(), "buffer"));
        }
        // SAFETY: `view` is not null; the memory lives as long as the buffer object, which the view holds a reference to.
        let status = unsafe {
            ffi::PyBuffer_FillInfo(
                view,
                slf.as_ptr(),
                this.address() as *mut std::ffi::c_void,
                this.len() as ffi::Py_ssize_t,
                0,
                flags,
            )
        };
        if status == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }

    fn __len__(&self) -> usize {
        self.len() as usize
    }

    fn __repr__(&self) -> String {
        format!("<octants.Buffer of {} bytes{}>", self.len(), if self.is_alive() { "" } else { ", dead" })
    }
}
