//! [`Event`] as a Python object.

use std::sync::{Arc, Mutex};

use octants_engine::runtime::{self, Uninterruptible};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::device::on_device;
use crate::stream::{lock, stream_of_any_device, stream_or_current};
use crate::waiting::{raised, waiting};
use crate::{errors, program};

/// A point in a stream's work, for other streams or the host to wait for.
#[pyclass(module = "octants._octants", frozen, weakref)]
pub struct Event {
    inner: Mutex<Option<Arc<runtime::Event>>>,
}

impl Event {
    /// The device's event, unless it was destroyed or its program has ended.
    pub fn open(&self, py: Python<'_>) -> PyResult<Arc<runtime::Event>> {
        let event = lock(&self.inner).clone();
        match event {
            Some(event) if event.alive() => Ok(event),
            Some(_) => Err(errors::dead_object(py, "event")),
            None => Err(errors::runtime_error(py, "this event was destroyed: create another with create_event()")),
        }
    }

    /// Makes later work of a stream, possibly on another device, wait for the event.
    pub fn order_before(&self, py: Python<'_>, stream: &runtime::Stream) -> PyResult<()> {
        let event = self.open(py)?;
        if event.is_of_device_of(stream) {
            return event.wait(stream, &Uninterruptible).map_err(|e| raised(py, e));
        }
        waiting(py, |caller| event.wait(stream, caller))
    }

    /// The stream of an optional argument, of any device; the current one for `None`.
    fn stream(py: Python<'_>, value: Option<&Bound<'_, PyAny>>) -> PyResult<runtime::Stream> {
        match value {
            Some(value) => stream_of_any_device(value, "qd_stream"),
            None => stream_or_current(py, None),
        }
    }
}

#[pymethods]
impl Event {
    /// The driver's handle; 0 without streams of the device's own, and after `destroy()`.
    #[getter]
    fn handle(&self) -> u64 {
        lock(&self.inner).as_ref().map_or(0, |e| e.handle())
    }

    /// Records the event: it completes when all work queued on the stream so far is done.
    #[pyo3(signature = (qd_stream = None))]
    fn record(&self, py: Python<'_>, qd_stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let event = self.open(py)?;
        event.record(&Event::stream(py, qd_stream)?).map_err(|e| raised(py, e))
    }

    /// Makes later work of the stream, possibly on another device, wait for the event. Does not block the host, except
    /// between devices that different libraries drive.
    #[pyo3(signature = (qd_stream = None))]
    fn wait(&self, py: Python<'_>, qd_stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        self.open(py)?;
        self.order_before(py, &Event::stream(py, qd_stream)?)
    }

    /// Makes the host wait for the event, and raises failures on its stream.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        let event = self.open(py)?;
        waiting(py, |caller| event.synchronize(caller))
    }

    /// Whether the event is complete; True if it was never recorded.
    fn query(&self, py: Python<'_>) -> PyResult<bool> {
        let event = self.open(py)?;
        waiting(py, |_| event.query())
    }

    /// Milliseconds from this event to a later one. Both were made with `timing=True` and recorded; waits for both.
    fn elapsed_ms(&self, py: Python<'_>, later: &Bound<'_, PyAny>) -> PyResult<f64> {
        let Ok(later) = later.cast_exact::<Event>() else {
            return Err(PyTypeError::new_err(format!("later must be an Event, got {}", later.get_type().name()?)));
        };
        let (event, later) = (self.open(py)?, later.get().open(py)?);
        waiting(py, |caller| event.elapsed_ms(&later, caller))
    }

    /// Destroys the event. Work that waits for it still does. Calling this twice is allowed.
    fn destroy(&self) {
        let event = lock(&self.inner).take();
        // Outside the lock: the drop calls the driver.
        drop(event);
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().open(slf.py())?;
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, pyo3::types::PyTuple>) {
        self.destroy();
    }

    fn __repr__(&self) -> String {
        match &*lock(&self.inner) {
            None => "<octants event, destroyed>".into(),
            Some(e) if !e.alive() => "<octants event of a program that has ended>".into(),
            Some(e) => format!("<octants event {:#x}>", e.handle()),
        }
    }
}

/// Creates an event, by default on the current device. Only events with `timing` support elapsed times.
#[pyfunction]
#[pyo3(signature = (timing = false, device = None))]
pub fn create_event(py: Python<'_>, timing: bool, device: Option<&Bound<'_, PyAny>>) -> PyResult<Event> {
    on_device(device, || {
        let program = program::require(py)?;
        let event = program.session.device().create_event(timing).map_err(|e| raised(py, e))?;
        Ok(Event { inner: Mutex::new(Some(Arc::new(event))) })
    })
}
