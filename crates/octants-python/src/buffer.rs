//! [`Buffer`]: device memory as a Python object, and on the CPU as a writable view for numpy.

use std::sync::OnceLock;

use octants_engine::runtime::{self, CopiedRange, PinnedBuffer};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};

use crate::element_types::scalar_by_name;
use crate::waiting::waiting;
use crate::{detached, dlpack, errors, host_work, program, program_functions, stream};

/// Memory of a program's device, zeroed.
#[pyclass(module = "octants._octants", frozen, weakref)]
pub struct Buffer {
    memory: runtime::Buffer,
    serial: u64,
    /// Why it may no longer be used.
    retired: OnceLock<String>,
}

impl Buffer {
    /// Allocates on the current program's device.
    pub fn allocate(py: Python<'_>, bytes: u64) -> PyResult<Buffer> {
        let program = program::require(py)?;
        let memory =
            detached::working(py, || program.session.allocate(bytes)).map_err(|e| errors::from_engine(py, e))?;
        Ok(Buffer { memory, serial: program.serial, retired: OnceLock::new() })
    }

    /// Memory of a program.
    pub fn of(memory: runtime::Buffer, serial: u64) -> Buffer {
        Buffer { memory, serial, retired: OnceLock::new() }
    }

    /// Address on the device.
    #[inline]
    pub fn address(&self, py: Python<'_>) -> PyResult<u64> {
        if let Some(reason) = self.retired.get() {
            return Err(errors::runtime_error(py, reason));
        }
        self.memory.ptr().map_err(|_| errors::dead_object(py, "array"))
    }

    /// The memory itself.
    pub fn memory(&self) -> &runtime::Buffer {
        &self.memory
    }

    /// Its program.
    #[inline]
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.memory.bytes()
    }

    /// When every call completes its work before it returns, waits for calls on other threads.
    fn settle(&self, py: Python<'_>) -> PyResult<()> {
        self.address(py)?;
        if self.memory.is_immediate() { self.sync(py) } else { Ok(()) }
    }

    /// Waits for the work of its program.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        program_functions::sync_one(py, &*program::require_of(py, self.serial, "array")?)
    }

    /// Whether it may be used: the program that made it still runs, and it is not retired.
    #[inline]
    pub fn is_alive(&self) -> bool {
        self.memory.alive() && self.retired.get().is_none()
    }
}

/// The bytes of an object.
fn contiguous(data: &PyUntypedBuffer) -> PyResult<&[u8]> {
    if !data.is_c_contiguous() {
        return Err(PyBufferError::new_err("the bytes to write must be contiguous"));
    }
    Ok(match data.len_bytes() {
        0 => &[],
        // SAFETY: the buffer is contiguous and held. A concurrent change to it may change the copied bytes, as with any
        // copy.
        n => unsafe { std::slice::from_raw_parts(data.buf_ptr().cast::<u8>(), n) },
    })
}

#[pymethods]
impl Buffer {
    #[new]
    #[pyo3(signature = (nbytes, sparse = false))]
    fn new(py: Python<'_>, nbytes: i64, sparse: bool) -> PyResult<Buffer> {
        let bytes = u64::try_from(nbytes).map_err(|_| PyValueError::new_err("a buffer cannot have a negative size"))?;
        if !sparse {
            return Buffer::allocate(py, bytes);
        }
        let program = program::require(py)?;
        let allocate = || program.session.device().allocate_sparse(bytes).map_err(octants_engine::Error::from);
        let memory = detached::working(py, allocate).map_err(|e| errors::from_engine(py, e))?;
        Ok(Buffer { memory, serial: program.serial, retired: OnceLock::new() })
    }

    /// The number of the program whose memory it is.
    #[getter]
    #[pyo3(name = "serial")]
    fn get_serial(&self) -> u64 {
        self.serial
    }

    /// Size in bytes.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.len()
    }

    /// Address on the device. Writes through it are not tracked.
    #[getter]
    fn ptr(&self, py: Python<'_>) -> PyResult<u64> {
        self.memory.expose();
        self.address(py)
    }

    /// Ends its use by kernels, graphs and the host; the reason is the message of errors. The memory is freed after the
    /// calls and the work that use it, and after the last view of it is gone.
    fn retire(&self, reason: String) {
        // Only the first reason counts.
        if self.retired.set(reason).is_ok() {
            self.memory.retire();
            if let Some(program) = program::by_serial(self.serial) {
                program.free_retired(self.memory.clone());
            }
        }
    }

    /// Whether the program that made it still runs, and it is not retired.
    #[getter]
    fn alive(&self) -> bool {
        self.is_alive()
    }

    /// Waits until the host may read the memory: only for streams whose work writes to it. With `write`, for all
    /// streams whose work uses it.
    #[pyo3(signature = (write = false))]
    fn wait(&self, py: Python<'_>, write: bool) -> PyResult<()> {
        self.address(py)?;
        if self.memory.is_immediate() { self.sync(py) } else { host_work::wait_for_buffer(py, &self.memory, write) }
    }

    /// Whether every call completes its work before it returns.
    #[getter]
    fn immediate(&self) -> bool {
        self.memory.is_immediate()
    }

    /// Whether the host may use the memory by its address; otherwise it goes through `read` and `write`.
    #[getter]
    fn host_addressable(&self) -> bool {
        self.memory.is_host_addressable()
    }

    /// Waits for the work that writes to the memory, then returns a copy of some bytes.
    fn read<'py>(&self, py: Python<'py>, offset: u64, nbytes: usize) -> PyResult<Bound<'py, PyByteArray>> {
        self.settle(py)?;
        // The array is new: no one else sees it while the interpreter is free.
        PyByteArray::new_with(py, nbytes, |to| host_work::read_buffer(py, &self.memory, offset, to))
    }

    /// Waits for the work that writes to the memory, then copies bytes into a host array.
    fn read_into(&self, py: Python<'_>, offset: u64, to: &Bound<'_, PyAny>) -> PyResult<()> {
        self.settle(py)?;
        let to = PyUntypedBuffer::get(to)?;
        if !to.is_c_contiguous() || to.readonly() {
            return Err(PyBufferError::new_err("the array to read into must be contiguous and writable"));
        }
        let to = match to.len_bytes() {
            0 => &mut [],
            // SAFETY: the buffer is contiguous, writable and held. A concurrent reader may see some of the bytes.
            n => unsafe { std::slice::from_raw_parts_mut(to.buf_ptr().cast::<u8>(), n) },
        };
        host_work::read_buffer(py, &self.memory, offset, to)
    }

    /// Waits for the work that uses the memory, then sets some bytes.
    fn write(&self, py: Python<'_>, offset: u64, data: &Bound<'_, PyAny>) -> PyResult<()> {
        self.settle(py)?;
        let data = PyUntypedBuffer::get(data)?;
        host_work::write_buffer(py, &self.memory, offset, contiguous(&data)?)
    }

    /// Queues a fill on a stream: sets `count` elements, from an offset on, to `element`.
    fn fill(
        &self,
        stream: &Bound<'_, stream::Stream>,
        offset: u64,
        element: &Bound<'_, PyBytes>,
        count: u64,
    ) -> PyResult<()> {
        let element = element.as_bytes();
        host_work::queue_on(stream, |s, caller| s.fill(&self.memory, offset, element, count, caller))
    }

    /// Queues on a stream a copy from another buffer.
    fn copy_from(
        &self,
        stream: &Bound<'_, stream::Stream>,
        offset: u64,
        source: &Bound<'_, Buffer>,
        source_offset: u64,
        nbytes: u64,
    ) -> PyResult<()> {
        let source = &source.get().memory;
        host_work::queue_on(stream, |s, caller| s.copy(&self.memory, offset, source, source_offset, nbytes, caller))
    }

    /// Queues copies of ranges (first byte here, first byte there, bytes) from another device's memory: on a stream of
    /// this device or, without one, in the host's place. False if the devices cannot copy; the host must copy then.
    fn copy_from_device(
        &self,
        py: Python<'_>,
        source: &Bound<'_, Buffer>,
        ranges: Vec<(u64, u64, u64)>,
        stream: Option<&Bound<'_, stream::Stream>>,
    ) -> PyResult<bool> {
        let source = source.get();
        let here = program::require_of(py, self.serial, "array")?;
        let there = program::require_of(py, source.serial, "array")?;
        let stream = stream.map(|stream| stream.get().open(py)).transpose()?;
        let ranges: Vec<_> = ranges.into_iter().map(|(to, from, bytes)| CopiedRange { to, from, bytes }).collect();
        waiting(py, |caller| {
            let (to, from) = ((&self.memory, stream.as_ref()), (there.session.device(), &source.memory));
            here.session.device().copy_between(to, from, &ranges, caller)
        })
    }

    /// Queues a copy of `data` to some bytes on a stream. `data` is read before the call returns.
    fn upload(&self, stream: &Bound<'_, stream::Stream>, offset: u64, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let data = PyUntypedBuffer::get(data)?;
        let from = contiguous(&data)?;
        host_work::queue_on(stream, |s, caller| s.upload(&self.memory, offset, from, caller))
    }

    /// The device as DLPack names it: its kind and its number.
    #[getter]
    fn dlpack_device(&self) -> (i32, i32) {
        self.memory.dlpack_device()
    }

    /// Whether other libraries use other addresses for the memory of this device.
    #[getter]
    fn has_foreign_addresses(&self) -> bool {
        self.memory.has_foreign_addresses()
    }

    /// Name of the array-interface attribute for this device's memory, if there is such a protocol.
    #[getter]
    fn array_protocol(&self) -> Option<&'static str> {
        self.memory.array_protocol()
    }

    /// A DLPack capsule of an array in this buffer. The capsule keeps the memory alive. `strides` are in bytes. The
    /// consumer's stream, given as the driver's handle, waits for the work that uses the memory; -1 means no wait.
    fn dlpack(
        &self,
        py: Python<'_>,
        place: (u64, Vec<i64>, Vec<i64>),
        dtype_name: &str,
        versioned: bool,
        stream: Option<i64>,
    ) -> PyResult<Py<PyAny>> {
        let (offset, shape, strides) = place;
        let scalar = scalar_by_name(dtype_name)?;
        let size = i64::from(scalar.bytes());
        if strides.iter().any(|s| s % size != 0) || offset % size as u64 != 0 {
            return Err(PyBufferError::new_err("DLPack needs strides that are multiples of the element size"));
        }
        let memory = self.memory.pin().map_err(|_| errors::dead_object(py, "array"))?;
        let shared = self.memory.shared_address().map_err(|e| errors::from_engine(py, e.into()))?;
        if stream != Some(-1) {
            self.hand_over(py, stream.map(|s| s as u64))?;
        }
        self.memory.note_foreign_use();
        let address = shared + offset;
        let strides = strides.iter().map(|s| s / size).collect();
        let device = self.memory.dlpack_device();
        dlpack::Exported { memory, address, device, scalar, shape, strides }.into_capsule(py, versioned)
    }

    /// Makes another library's stream, given by the driver's handle, wait for the work that uses the memory. Without a
    /// handle, uses the libraries' default stream. Returns the stream's handle, or None if the host has waited instead.
    #[pyo3(signature = (stream = None))]
    fn hand_over(&self, py: Python<'_>, stream: Option<u64>) -> PyResult<Option<u64>> {
        self.address(py)?;
        host_work::hand_over(py, &self.memory, stream)
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: std::ffi::c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("view is null"));
        }
        let this = slf.get();
        if !this.memory.is_host_addressable() {
            return Err(PyBufferError::new_err(
                "the host cannot address the memory of this device: copy with Buffer.read() and Buffer.write()",
            ));
        }
        // A view may outlive the program; its memory then lives as long as the view.
        let pin = this.memory.pin().map_err(|_| errors::dead_object(slf.py(), "array"))?;
        // SAFETY: `view` is not null; the memory lives as long as `pin`, which the view keeps until it is released.
        unsafe {
            let address = pin.ptr() as *mut std::ffi::c_void;
            let status = ffi::PyBuffer_FillInfo(view, slf.as_ptr(), address, this.len() as ffi::Py_ssize_t, 0, flags);
            if status != 0 {
                return Err(PyErr::fetch(slf.py()));
            }
            (*view).internal = Box::into_raw(Box::new(pin)).cast();
        }
        Ok(())
    }

    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: set by `__getbuffer__`, and each view is released once.
        drop(unsafe { Box::from_raw((*view).internal.cast::<PinnedBuffer>()) });
    }

    fn __len__(&self) -> usize {
        self.len() as usize
    }

    fn __repr__(&self) -> String {
        format!("<octants.Buffer of {} bytes{}>", self.len(), if self.is_alive() { "" } else { ", dead" })
    }
}
