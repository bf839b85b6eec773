//! The methods of kernels that Python calls.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use octants_engine::frontend::GraphUse;
use octants_engine::ir::AutodiffMode;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::{Kernel, RecordedLaunch};
use crate::autodiff_scope::in_scope;
use crate::back_ends::backends;
use crate::bound_kernel::{BoundKernel, KernelGradient};
use crate::evaluate_annotations::evaluate_annotations;
use crate::func::Wrapped;
use crate::in_progress::InProgress;
use crate::names::function_name;
use crate::package::Package;
use crate::program;
use crate::signature::{Signature, declaration};
use crate::stream::in_stream_scope;
use crate::vectorcall;

#[pymethods]
impl Kernel {
    #[new]
    #[pyo3(signature = (fn_, graph = false, library = false, checkpoints = false, concurrent = true))]
    fn new(fn_: Bound<'_, PyAny>, graph: bool, library: bool, checkpoints: bool, concurrent: bool) -> PyResult<Kernel> {
        let graph = match (graph, checkpoints) {
            (false, _) => GraphUse::None,
            (true, false) => GraphUse::Graph,
            (true, true) => GraphUse::WithCheckpoints,
        };
        // Reports errors of the declaration at decoration time.
        evaluate_annotations(&fn_)?;
        let program = program::current();
        let default = octants_engine::Config::new(backends());
        let config = program.as_ref().map_or(&default, |p| p.session.config());
        Signature::of(&fn_, &declaration(&fn_)?, config)?;
        let name = function_name(&fn_);
        Ok(Kernel {
            wrapped: Wrapped::new(fn_),
            name,
            graph,
            library,
            concurrent,
            pure: AtomicBool::new(false),
            differentiated: AtomicBool::new(false),
            sees_launches: AtomicBool::new(false),
            state: Mutex::default(),
            in_progress: InProgress::default(),
            vectorcall: vectorcall::ENTRY,
        })
    }

    /// The kernel's gradient: called with the kernel's arguments, it adds to the gradients of memory that the kernel
    /// reads.
    #[getter]
    fn grad(slf: &Bound<'_, Self>) -> KernelGradient {
        KernelGradient::new(slf)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.wrapped.traverse(&visit)?;
        // Before a kernel is initialized there is no state to look at.
        if self.wrapped.is_none() {
            return Ok(());
        }
        match self.state.try_lock() {
            Ok(state) => state.traverse(&visit),
            // Another holder is using the kernel, so it is not garbage.
            Err(_) => Ok(()),
        }
    }

    fn __clear__(&self) {
        let old = std::mem::take(&mut *self.lock());
        // Outside the lock: dropping Python objects may run Python code.
        drop(old);
    }

    /// Declares that it depends on its arguments only; called by decorators.
    fn _declare_pure(&self) {
        self.pure.store(true, Ordering::Relaxed);
    }

    /// Whether the kernel depends on its arguments only, as its decorator declares.
    #[getter(is_pure)]
    fn is_declared_pure(&self) -> bool {
        self.is_pure()
    }

    /// Launches, and records what the gradient needs. The gradient gets the arguments that `with_gradients` returns.
    /// For torch autograd functions. `None` inside a scope, which then records the launch.
    fn _launch(
        slf: &Bound<'_, Self>,
        args: &Bound<'_, PyTuple>,
        with_gradients: &Bound<'_, PyAny>,
    ) -> PyResult<Option<RecordedLaunch>> {
        let args = slf.get().bind(slf.py(), args.as_slice(), None)?;
        if in_scope() || in_stream_scope() {
            return Kernel::call_on(slf, &args, None, None, AutodiffMode::None).map(|_| None);
        }
        slf.get().forget_seen();
        RecordedLaunch::for_function(slf, &args, with_gradients).map(Some)
    }

    /// Copies the wrapped function's name, documentation and module; called by the decorator.
    fn _update(slf: &Bound<'_, Self>) -> PyResult<()> {
        vectorcall::set_vectorcall_offset(slf);
        slf.get().wrapped.name(slf)
    }

    /// The Python function.
    #[getter]
    #[pyo3(name = "fn")]
    fn get_fn(&self, py: Python<'_>) -> Py<PyAny> {
        self.function(py).clone().unbind()
    }

    /// The kernel itself, for programs that reach `src_ll_cache_observations` by it.
    #[getter]
    fn _primal(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Whether the latest compilation of a kernel with `fastcache=True` was a hit in the folder of compiled kernels.
    #[getter]
    fn src_ll_cache_observations(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if let Some(seen) = self.lock().observations.as_ref().map(|o| o.clone_ref(py)) {
            return Ok(seen);
        }
        let none = Package::get(py)?.fastcache_observations.call0(py)?;
        self.observe(none.clone_ref(py));
        Ok(none)
    }

    #[setter]
    fn set_src_ll_cache_observations(&self, value: Py<PyAny>) {
        self.observe(value);
    }

    /// Whether the folder held the machine code of the latest compilation, of a kernel without `fastcache=True`.
    #[getter]
    fn fe_ll_cache_observations<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let was_kept = self.lock().was_kept;
        Package::get(py)?.cache_observations.bind(py).call1((was_kept,))
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        Kernel::call(slf, None, args, kwargs, AutodiffMode::None)
    }

    #[pyo3(signature = (*args, from_checkpoint, **kwargs))]
    fn resume<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        from_checkpoint: &Bound<'py, PyAny>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        Kernel::resume_from(slf, None, args, from_checkpoint, kwargs)
    }

    fn __get__<'py>(
        slf: &Bound<'py, Self>,
        instance: &Bound<'py, PyAny>,
        _owner: Bound<'py, PyAny>,
    ) -> PyResult<Py<PyAny>> {
        if instance.is_none() {
            return Ok(slf.clone().into_any().unbind());
        }
        Ok(Py::new(slf.py(), BoundKernel::new(slf, instance))?.into_any())
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        Wrapped::reduce(slf)
    }

    fn __repr__(&self) -> String {
        format!("<{}>", self.description())
    }

    /// The number of specializations.
    fn _specialization_count(&self) -> usize {
        self.lock().known.iter().map(|known| known.specializations.len()).sum()
    }
}
