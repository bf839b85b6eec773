//! [`RecordedLaunch`]: what a tape keeps of a launch, so that its gradient is that of what ran.
//!
//! A gradient reads arguments and memory again when it runs. Numbers that a kernel reads from objects at launch are kept here and given
//! to the gradient as they were. Of everything else that decides what ran, a change is an error: arrays that objects hold, compile-time
//! values, and how often loops run whose length comes from memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use octants_engine::ir::AutodiffMode;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::Kernel;
use super::refusals::IN_SCOPE;
use crate::errors;
use crate::specialization::{Slots, Specialization};
use crate::stream::in_stream_scope;

/// Numbers for each loop or read that is tallied: whether it is a read, its line, its iterations, and what tells its executions apart.
type Tally = Vec<[i64; 4]>;

/// A launch that has run.
#[pyclass(module = "octants._octants", frozen)]
pub struct RecordedLaunch {
    kernel: Py<Kernel>,
    mode: AutodiffMode,
    spec: Arc<Specialization>,
    slots: Slots,
    tally: Tally,
}

impl RecordedLaunch {
    /// Launches a kernel and keeps what its gradient will need. The result is the kernel's.
    pub(super) fn launch<'py>(
        kernel: &Bound<'py, Kernel>,
        args: &[Bound<'py, PyAny>],
        mode: AutodiffMode,
    ) -> PyResult<(Py<PyAny>, RecordedLaunch)> {
        let mut slots = Slots::new();
        let (result, spec) = kernel.get().run_with(kernel, args, mode, None, &mut slots)?;
        let numbers = spec.numbers(&slots);
        let mut launch = RecordedLaunch { kernel: kernel.clone().unbind(), mode, spec, slots, tally: Tally::new() };
        if mode == AutodiffMode::Validation {
            launch.tally = launch.tally_now(kernel, args, &numbers)?;
        } else if launch.spec.may_tally_loops.load(Ordering::Relaxed) {
            launch.tally = launch.tally_now(kernel, args, &numbers)?;
            launch.spec.may_tally_loops.store(!launch.tally.is_empty(), Ordering::Relaxed);
        }
        Ok((result, launch))
    }

    /// How often the loops of the launch run as memory is now; under validation also what its gradient reads.
    fn tally_now<'py>(
        &self,
        kernel: &Bound<'py, Kernel>,
        args: &[Bound<'py, PyAny>],
        numbers: &[u64],
    ) -> PyResult<Tally> {
        let mode = if self.mode == AutodiffMode::Validation { AutodiffMode::Reads } else { AutodiffMode::Trips };
        let (result, _) = kernel.get().run_with(kernel, args, mode, Some(numbers), &mut Slots::new())?;
        let words: Vec<u64> = result.extract::<Option<_>>(kernel.py())?.unwrap_or_default();
        Ok(words.chunks_exact(4).map(|place| std::array::from_fn(|i| place[i] as i64)).collect())
    }

    /// Raises where the arguments are no longer what they were.
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
        let what = name.map_or_else(|| String::from("an argument, or what one holds"), |name| format!("`{name}`"));
        let text = format!(
            "the gradient of kernel `{}` cannot be computed: {what} was changed after the launch was recorded. Leave it as it is \
             until the tape's block has ended, or pass a copy",
            this.name
        );
        Err(errors::runtime_error(py, text))
    }

    /// Raises where a loop would run another number of times than it did, or something would be read that was not.
    fn check_tally(&self, kernel: &Bound<'_, Kernel>, now: &Tally) -> PyResult<()> {
        let changed = || self.tally.iter().zip(now).filter(|(was, is)| was != is);
        // What a loop reads differs also because it runs more often.
        let Some((was, is)) = changed().find(|(was, _)| was[0] == 0).or_else(|| changed().next()) else {
            return Ok(());
        };
        let ([is_read, line, old, _], [_, _, new, _]) = (was, is);
        if *is_read != 0 {
            let text = format!(
                "the gradient of kernel `{}` would be wrong: what line {line} read from memory was overwritten after the launch, and \
                 the gradient reads it again. Write to memory of its own, or keep what was read and use `@qd.ad.grad_replaced`",
                kernel.get().name
            );
            return Err(errors::exception(kernel.py(), "OctantsAssertionError", text));
        }
        let times = |n: i64| if n == 1 { String::from("1 time") } else { format!("{n} times") };
        let change = if old == new {
            format!("ran {} in all, and would again, but in other places", times(*old))
        } else {
            format!("ran {} in all, and would run {} now", times(*old), times(*new))
        };
        let text = format!(
            "the gradient of kernel `{}` cannot be computed: the loop at line {line} {change}. What its length is read from was \
             written after the kernel read it: give each launch memory of its own for that, or compute the gradient before it changes",
            kernel.get().name
        );
        Err(errors::runtime_error(kernel.py(), text))
    }
}

#[pymethods]
impl RecordedLaunch {
    /// The kernel.
    #[getter]
    fn kernel(&self, py: Python<'_>) -> Py<Kernel> {
        self.kernel.clone_ref(py)
    }

    /// Launches again, with the numbers of the launch.
    #[pyo3(signature = (*args))]
    fn __call__<'py>(&self, py: Python<'py>, args: &Bound<'py, PyTuple>) -> PyResult<()> {
        let (kernel, numbers) = (self.kernel.bind(py), self.spec.numbers(&self.slots));
        kernel.get().run_with(kernel, args.as_slice(), self.mode, Some(&numbers), &mut Slots::new()).map(drop)
    }

    /// Runs the gradient of the launch.
    #[pyo3(signature = (*args))]
    fn grad<'py>(&self, py: Python<'py>, args: &Bound<'py, PyTuple>) -> PyResult<()> {
        let (kernel, args) = (self.kernel.bind(py), args.as_slice());
        if in_stream_scope() {
            return Err(kernel.get().refuse_differentiation(py, IN_SCOPE));
        }
        self.check_arguments(kernel, args)?;
        let numbers = self.spec.numbers(&self.slots);
        if !self.tally.is_empty() {
            self.check_tally(kernel, &self.tally_now(kernel, args, &numbers)?)?;
        }
        let mode = AutodiffMode::Reverse;
        kernel.get().run_with(kernel, args, mode, Some(&numbers), &mut Slots::new()).map(drop)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.kernel)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<launch of {}>", self.kernel.bind(py).get().description())
    }
}
