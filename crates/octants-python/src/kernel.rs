//! [`Kernel`]: what `@kernel` makes of a function. A call finds the specialisation of its arguments, compiles it if there is
//! none, fills the slots and launches, all without a Python frame.
//!
//! [`call`] is that way, with [`bind_arguments`], and [`repeat`] the short one for dataclasses that come again;
//! [`compile`] finds or compiles specializations; [`recorded_launch`] is for tapes, [`seen_launches`] for gradients
//! that are asked for by hand; [`unmade_call`] does without the launch; [`refusals`] says what kernels do not take.

mod bind_arguments;
mod call;
mod compile;
mod recorded_launch;
mod refusals;
mod repeat;
mod seen_launches;
mod tally;
mod unmade_call;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use octants_engine::ir::AutodiffMode;
use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

pub use self::recorded_launch::RecordedLaunch;
use self::repeat::Repeats;
pub use self::seen_launches::SeenLaunches;
pub use self::unmade_call::UnmadeCall;
use crate::annotation::ParamKind;
use crate::autodiff_scope::in_scope;
use crate::bound_kernel::{BoundKernel, KernelGradient};
use crate::flattened::Flattened;
use crate::func::{Wrapped, function_name};
use crate::in_progress::InProgress;
use crate::program::{self, Program};
use crate::signature::{Signature, declaration, evaluate_annotations};
use crate::specialization::Specialization;
use crate::stream::in_stream_scope;
use crate::vectorcall;

/// A function that is compiled and launched.
#[pyclass(module = "octants._octants", frozen, weakref, dict)]
pub struct Kernel {
    wrapped: Wrapped,
    name: String,
    /// All its tasks are to be launched as one.
    graph: bool,
    /// It works for the package: nobody differentiates or records it.
    library: bool,
    /// Declared to depend on its arguments alone.
    pure: AtomicBool,
    /// Its gradient has been asked for by hand.
    differentiated: AtomicBool,
    /// Some specialisation keeps launches that were seen.
    sees_launches: AtomicBool,
    state: Mutex<State>,
    in_progress: InProgress,
    /// What the interpreter looks for in a kernel to call it quickly.
    pub vectorcall: ffi::vectorcallfunc,
}

/// What a kernel has learned under the current program.
#[derive(Default)]
struct State {
    prepared: Option<Arc<Prepared>>,
    /// Most recently used first.
    specializations: Vec<Arc<Specialization>>,
    /// How the folder of compiled kernels took part in the latest compilation; a `FastcacheObservations`.
    observations: Option<Py<PyAny>>,
    /// The latest compilation, of a kernel without `fastcache=True`, found its machine code in that folder.
    was_kept: bool,
}

impl State {
    /// Shows the collector what the kernel alone holds: what a launch uses meanwhile is no garbage.
    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.observations)?;
        if let Some(prepared) = self.prepared.as_ref().filter(|p| Arc::strong_count(p) == 1) {
            prepared.signature.traverse(visit)?;
        }
        let mut own = self.specializations.iter().filter(|s| Arc::strong_count(s) == 1);
        own.try_for_each(|s| s.traverse(visit))
    }
}

/// A kernel's signature under a program's options.
struct Prepared {
    program: Arc<Program>,
    signature: Signature,
    /// For each parameter what it was last, if it is a dataclass.
    flattened: Box<[Flattened]>,
    /// Some parameter is a dataclass.
    has_dataclasses: bool,
    repeats: Repeats,
}

impl Kernel {
    /// It is declared to depend on its arguments alone.
    pub fn is_pure(&self) -> bool {
        self.pure.load(Ordering::Relaxed)
    }

    /// Its tasks are declared to be one graph.
    pub fn is_graph(&self) -> bool {
        self.graph
    }

    /// The Python function.
    pub fn function<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.wrapped.get(py)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The signature under the current program and the specialisation used last.
    #[inline]
    fn prepared(&self, py: Python<'_>) -> PyResult<(Arc<Prepared>, Option<Arc<Specialization>>)> {
        {
            let state = self.lock();
            if let Some(p) = &state.prepared
                && p.program.generation == program::current_generation()
            {
                return Ok((p.clone(), state.specializations.first().cloned()));
            }
        }
        self.prepare(py).map(|p| (p, None))
    }

    #[cold]
    fn prepare(&self, py: Python<'_>) -> PyResult<Arc<Prepared>> {
        let program = program::require(py)?;
        let function = self.function(py);
        let signature = Signature::of(function, &declaration(function)?, program.session.config())?;
        let flattened = signature.params.iter().map(|_| Flattened::default()).collect();
        let has_dataclasses = signature.params.iter().any(|p| matches!(p.kind, ParamKind::Dataclass(..)));
        let repeats = Repeats::default();
        let prepared = Arc::new(Prepared { program, signature, flattened, has_dataclasses, repeats });
        let old = {
            let mut state = self.lock();
            let old = std::mem::take(&mut state.specializations);
            state.prepared = Some(prepared.clone());
            old
        };
        // Outside the lock: dropping Python objects may run Python code.
        drop(old);
        Ok(prepared)
    }

    /// Keeps what its users may ask for.
    fn observe(&self, observations: Py<PyAny>) {
        let old = self.lock().observations.replace(observations);
        // Outside the lock: dropping Python objects may run Python code.
        drop(old);
    }

    /// Name and kind, for messages.
    pub fn description(&self) -> String {
        format!("octants kernel {}", self.name)
    }
}

/// Lets `object.kernel(...)` call the kernel with the object as first argument, as it does functions, without a bound method in between.
/// The interpreter remembers where it found a method only of types that cannot change.
pub fn call_as_methods(py: Python<'_>) {
    let class = py.get_type::<Kernel>();
    // SAFETY: the type is alive, and nothing else knows it yet. What the flag promises holds: `__get__` of an instance returns an object
    // that calls the kernel with the instance ahead of its arguments.
    unsafe {
        (*class.as_type_ptr()).tp_flags |= ffi::Py_TPFLAGS_METHOD_DESCRIPTOR | ffi::Py_TPFLAGS_IMMUTABLETYPE;
        ffi::PyType_Modified(class.as_type_ptr());
    }
}

#[pymethods]
impl Kernel {
    #[new]
    #[pyo3(signature = (fn_, graph = false, library = false))]
    fn new(fn_: Bound<'_, PyAny>, graph: bool, library: bool) -> PyResult<Kernel> {
        // What is wrong with a declaration is said where it stands. Names that are not defined yet are left for the first call.
        if evaluate_annotations(&fn_)? {
            let program = program::current();
            let default = octants_engine::Config::new(octants_backends::backends());
            let config = program.as_ref().map_or(&default, |p| p.session.config());
            Signature::of(&fn_, &declaration(&fn_)?, config)?;
        }
        let name = function_name(&fn_);
        Ok(Kernel {
            wrapped: Wrapped::new(fn_),
            name,
            graph,
            library,
            pure: AtomicBool::new(false),
            differentiated: AtomicBool::new(false),
            sees_launches: AtomicBool::new(false),
            state: Mutex::default(),
            in_progress: InProgress::default(),
            vectorcall: vectorcall::ENTRY,
        })
    }

    /// The kernel's gradient: called with the kernel's arguments, it adds to the gradients of what the kernel reads.
    #[getter]
    fn grad(slf: &Bound<'_, Self>) -> KernelGradient {
        KernelGradient::new(slf)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.wrapped.traverse(&visit)?;
        // Before a kernel is initialised there is no state to look at.
        if self.wrapped.is_none() {
            return Ok(());
        }
        match self.state.try_lock() {
            Ok(state) => state.traverse(&visit),
            // Whoever has it is using the kernel, which is no garbage then.
            Err(_) => Ok(()),
        }
    }

    fn __clear__(&self) {
        let old = std::mem::take(&mut *self.lock());
        // Outside the lock: dropping Python objects may run Python code.
        drop(old);
    }

    /// Declares that it depends on its arguments alone; called by decorators.
    fn _declare_pure(&self) {
        self.pure.store(true, Ordering::Relaxed);
    }

    /// Launches, and keeps what the gradient needs when it gets the arguments that `with_gradients` returns; for functions of torch.
    /// `None` in scopes, of which the launch is then a part.
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
        vectorcall::tell_type(slf);
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

    /// Whether the folder of compiled kernels spared the latest compilation, of a kernel with `fastcache=True`.
    #[getter]
    fn src_ll_cache_observations(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if let Some(seen) = self.lock().observations.as_ref().map(|o| o.clone_ref(py)) {
            return Ok(seen);
        }
        let none = py.import("octants.cache")?.getattr("FastcacheObservations")?.call0()?.unbind();
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
        py.import("octants.cache")?.getattr("CacheObservations")?.call1((was_kept,))
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        Kernel::call(slf, None, args, kwargs, AutodiffMode::None)
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

    /// How many specialisations are kept.
    fn _specialization_count(&self) -> usize {
        self.lock().specializations.len()
    }
}
