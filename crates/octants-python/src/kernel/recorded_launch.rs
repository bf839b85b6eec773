//! [`RecordedLaunch`]: the record of a launch that a tape or a torch function keeps, so that the gradient matches what
//! ran.
//!
//! A gradient reads arguments and memory again when it runs. Numbers that a kernel reads from objects at launch are
//! recorded and passed to the gradient unchanged. A change of anything else that determined the launch is an error:
//! arrays in objects, compile-time values, and trip counts that come from memory.

use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use octants_engine::ir::AutodiffMode;
use octants_engine::runtime;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::Kernel;
use super::launch_request::LaunchRequest;
use crate::argument::Follows;
use crate::errors;
use crate::gradient_order::GradientOrder;
use crate::program;
use crate::specialization::{Slots, Specialization};
use crate::stream::{OnDevice, scope_stream};
use crate::trip_count_record::TripCountRecord;
use crate::waiting::raised;

/// A launch that has run.
#[pyclass(module = "octants._octants", frozen)]
pub struct RecordedLaunch {
    kernel: Py<Kernel>,
    mode: AutodiffMode,
    spec: Arc<Specialization>,
    slots: Slots,
    trip_counts: TripCountRecord,
    /// Its stream; `None` for the default one.
    stream: Option<runtime::Stream>,
    /// The program that made it.
    serial: u64,
    /// Its loop counters when it began.
    counters: Arc<runtime::CounterSnapshot>,
}

impl RecordedLaunch {
    /// Launches a kernel for a tape, and records the data that its gradient needs. Returns the kernel's result.
    pub(super) fn for_tape<'py>(
        kernel: &Bound<'py, Kernel>,
        args: &[Bound<'py, PyAny>],
        (stream, mode): (Option<runtime::Stream>, AutodiffMode),
    ) -> PyResult<(Py<PyAny>, RecordedLaunch)> {
        let (result, mut launch) = Self::launch(kernel, args, (stream, mode))?;
        if mode == AutodiffMode::Validation {
            launch.trip_counts = launch.trip_counts_now(kernel, args, None)?;
        } else if launch.spec.records_trip_counts.load(Ordering::Relaxed) {
            launch.trip_counts = launch.trip_counts_now(kernel, args, None)?;
            if launch.trip_counts.is_empty() {
                launch.spec.has_no_trip_counts();
            }
        }
        Ok((result, launch))
    }

    /// Launches a kernel without gradients, and records the data that its gradient needs. `with_gradients` returns the
    /// arguments for the gradient: the same memory, with gradients.
    pub(super) fn for_function<'py>(
        kernel: &Bound<'py, Kernel>,
        args: &[Bound<'py, PyAny>],
        with_gradients: &Bound<'py, PyAny>,
    ) -> PyResult<RecordedLaunch> {
        let (_, mut launch) = Self::launch(kernel, args, (scope_stream(kernel.py())?, AutodiffMode::None))?;
        if launch.spec.may_record_trip_counts {
            let args = with_gradients.call0()?.cast_into::<PyTuple>()?;
            launch.trip_counts = launch.trip_counts_now(kernel, args.as_slice(), None)?;
        }
        Ok(launch)
    }

    fn launch<'py>(
        kernel: &Bound<'py, Kernel>,
        args: &[Bound<'py, PyAny>],
        (stream, mode): (Option<runtime::Stream>, AutodiffMode),
    ) -> PyResult<(Py<PyAny>, RecordedLaunch)> {
        let mut slots = Slots::new();
        let counters = OnceCell::new();
        let request =
            LaunchRequest { mode, stream: stream.as_ref(), counters: Some(&counters), ..LaunchRequest::default() };
        let (result, spec) = kernel.get().run_with(kernel, args, request, &mut slots)?;
        let launch = RecordedLaunch {
            kernel: kernel.clone().unbind(),
            mode,
            spec,
            slots,
            trip_counts: TripCountRecord::default(),
            stream,
            serial: program::current_serial(),
            counters: Arc::new(counters.into_inner().unwrap_or_default()),
        };
        Ok((result, launch))
    }

    /// The launch's trip-count record for the current memory; under validation, also the values that its gradient
    /// reads. It takes part in a gradient order, because it reads memory that these gradients change temporarily.
    fn trip_counts_now<'py>(
        &self,
        kernel: &Bound<'py, Kernel>,
        args: &[Bound<'py, PyAny>],
        order: Option<Arc<runtime::LaunchOrder>>,
    ) -> PyResult<TripCountRecord> {
        let mode = if self.mode == AutodiffMode::Validation { AutodiffMode::Reads } else { AutodiffMode::Trips };
        let numbers = self.spec.numbers(&self.slots);
        let request =
            LaunchRequest { numbers: Some(&numbers), stream: self.stream.as_ref(), ..self.following(mode, order) };
        Kernel::take_trip_counts(kernel, args, request)
    }

    /// Launch options that restore the counters.
    fn following<'a>(&self, mode: AutodiffMode, order: Option<Arc<runtime::LaunchOrder>>) -> LaunchRequest<'a> {
        LaunchRequest {
            mode,
            follows: Some(Follows { order, counters: self.counters.clone() }),
            ..LaunchRequest::default()
        }
    }

    /// Raises if the arguments have changed.
    fn check_arguments(&self, kernel: &Bound<'_, Kernel>, args: &[Bound<'_, PyAny>]) -> PyResult<()> {
        let (this, py) = (kernel.get(), kernel.py());
        let (prepared, _) = this.prepared(py)?;
        let mut gathered = this.gather(&prepared, args, self.mode)?;
        let mut slots = Slots::new();
        let fits = *self.spec.key == *gathered.key && self.spec.fill(&mut gathered, args, &mut slots, false)?;
        let name = match (fits, self.spec.changed_slot(&self.slots, &slots)) {
            (true, None) => return Ok(()),
            (true, Some(leaf)) => leaf.map(|leaf| prepared.signature.leaf_name(leaf as usize)),
            (false, _) => self.spec.changed(args).map(|(param, path)| {
                let owner = prepared.signature.params.get(param as usize).map_or("", |p| p.text.as_str());
                format!("{owner}{path}")
            }),
        };
        let what = name.map_or_else(|| String::from("an argument, or a member of one"), |name| format!("`{name}`"));
        let text = format!(
            "the gradient of kernel `{}` cannot be computed: {what} was changed after the launch was recorded. Do not \
             change it before the tape's block ends, or pass a copy",
            this.name
        );
        Err(errors::runtime_error(py, text))
    }
}

#[pymethods]
impl RecordedLaunch {
    /// The kernel.
    #[getter]
    fn kernel(&self, py: Python<'_>) -> Py<Kernel> {
        self.kernel.clone_ref(py)
    }

    /// Orders the gradients of an order after the work of the launch's stream.
    fn precede(&self, py: Python<'_>, order: &Bound<'_, GradientOrder>) -> PyResult<()> {
        let stream = self.stream.as_ref();
        stream.map_or(Ok(()), |stream| order.get().0.order_after(stream)).map_err(|e| raised(py, e))
    }

    /// The number of the program that made it.
    #[getter]
    fn serial(&self) -> u64 {
        self.serial
    }

    /// Whether it ran on a stream other than the default one.
    #[getter]
    fn is_on_stream(&self) -> bool {
        self.stream.is_some()
    }

    /// Launches again with the recorded numbers.
    #[pyo3(signature = (*args))]
    fn __call__<'py>(&self, py: Python<'py>, args: &Bound<'py, PyTuple>) -> PyResult<()> {
        let (kernel, numbers) = (self.kernel.bind(py), self.spec.numbers(&self.slots));
        let _here = OnDevice::of(self.serial);
        let stream = scope_stream(py)?;
        let request = LaunchRequest {
            mode: self.mode,
            numbers: Some(&numbers),
            stream: stream.as_ref(),
            ..LaunchRequest::default()
        };
        kernel.get().run_with(kernel, args.as_slice(), request, &mut Slots::new()).map(drop)
    }

    /// Runs the gradient of the launch on its stream, within a gradient order. `others` replaces the launch's arguments
    /// by the same memory with gradients.
    #[pyo3(signature = (*args, others = false, order = None))]
    fn grad<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        others: bool,
        order: Option<&Bound<'py, GradientOrder>>,
    ) -> PyResult<()> {
        let (kernel, args) = (self.kernel.bind(py), args.as_slice());
        let _here = OnDevice::of(self.serial);
        if !others {
            self.check_arguments(kernel, args)?;
        }
        let order = order.map(|order| order.get().0.clone());
        if !self.trip_counts.is_empty() {
            let now = self.trip_counts_now(kernel, args, order.clone())?;
            self.trip_counts.check(&now, &kernel.get().name, kernel.py())?;
        }
        let numbers = self.spec.numbers(&self.slots);
        let request = LaunchRequest {
            numbers: Some(&numbers),
            stream: self.stream.as_ref(),
            ..self.following(AutodiffMode::Reverse, order)
        };
        kernel.get().run_with(kernel, args, request, &mut Slots::new()).map(drop)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.kernel)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<launch of {}>", self.kernel.bind(py).get().description())
    }
}
