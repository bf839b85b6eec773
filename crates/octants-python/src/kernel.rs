//! [`Kernel`]: the result of `@kernel`. A call finds the specialization for its arguments, compiles one if there is
//! none, fills the slots and launches, without a Python frame.
//!
//! [`call`] is that path, with [`launch_request`] and [`bind_arguments`]; [`repeat`] is the short path for dataclasses
//! that are passed again. [`captured_split`] repeats launches on split arrays in graphs. [`compile`] finds or compiles
//! specializations; [`check_devices`] rejects those that mix devices. [`recorded_launch`] serves tapes and
//! [`see_launches`] manual gradients, both with [`take_trip_counts`]. [`methods`] are the methods that Python calls,
//! [`prepared_call`] compiles without launching, and [`refusals`] holds the errors for unsupported arguments.

mod bind_arguments;
mod call;
mod captured_split;
mod check_devices;
mod compile;
mod group_launch;
mod launch_request;
mod loop_trips;
mod methods;
mod prepared_call;
mod recorded_launch;
mod refusals;
mod repeat;
mod resume;
mod see_launches;
mod split_launch;
mod take_trip_counts;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use octants_engine::frontend::GraphUse;
use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

pub use self::call::last_task_count;
use self::loop_trips::RecordedTrips;
pub use self::prepared_call::PreparedCall;
pub use self::recorded_launch::RecordedLaunch;
use self::repeat::Repeats;
use crate::annotation::ParamKind;
use crate::flattened::Flattened;
use crate::func::Wrapped;
use crate::in_progress::InProgress;
use crate::program::{self, Program};
use crate::signature::{Signature, declaration};
use crate::specialization::Specialization;

/// A function that is compiled and launched.
#[pyclass(module = "octants._octants", frozen, weakref, dict)]
pub struct Kernel {
    wrapped: Wrapped,
    name: String,
    /// How its tasks are declared to be a graph.
    graph: GraphUse,
    /// Internal to the package: never differentiated or recorded.
    library: bool,
    /// Its launches may run concurrently with others of the default stream, if concurrency is enabled.
    concurrent: bool,
    /// Declared to depend on its arguments only.
    pure: AtomicBool,
    /// `kernel.grad()` was called manually.
    differentiated: AtomicBool,
    /// Some specialization has recorded launches.
    sees_launches: AtomicBool,
    state: Mutex<State>,
    in_progress: InProgress,
    /// The vectorcall slot.
    pub vectorcall: ffi::vectorcallfunc,
}

/// A kernel's mutable state.
#[derive(Default)]
struct State {
    /// State by program, most recently used first.
    known: Vec<Known>,
    /// How the folder of compiled kernels took part in the latest compilation; a `FastcacheObservations`.
    observations: Option<Py<PyAny>>,
    /// The latest compilation, of a kernel without `fastcache=True`, found its machine code in that folder.
    was_kept: bool,
}

/// A kernel's state under one program.
struct Known {
    /// The program.
    serial: u64,
    prepared: Arc<Prepared>,
    /// Most recently used first.
    specializations: Vec<Arc<Specialization>>,
    /// Trip counts of its latest launches.
    trips: RecordedTrips,
}

impl Known {
    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        if Arc::strong_count(&self.prepared) == 1 {
            self.prepared.signature.traverse(visit)?;
        }
        let mut own = self.specializations.iter().filter(|s| Arc::strong_count(s) == 1);
        own.try_for_each(|s| s.traverse(visit))
    }
}

impl State {
    /// The state under a program, moved to the front.
    #[inline]
    fn under(&mut self, serial: u64) -> Option<&mut Known> {
        if self.known.first().is_none_or(|known| known.serial != serial) {
            let at = self.known.iter().position(|known| known.serial == serial)?;
            self.known[..=at].rotate_right(1);
        }
        self.known.first_mut()
    }

    /// The specializations under a program.
    fn of(&self, serial: u64) -> &[Arc<Specialization>] {
        self.known.iter().find(|known| known.serial == serial).map_or(&[], |known| &known.specializations)
    }

    /// Visits the objects that only the kernel holds for the garbage collector. Objects that a launch is using are not
    /// garbage.
    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.observations)?;
        self.known.iter().try_for_each(|known| known.traverse(visit))
    }
}

/// A kernel's signature under a program's options.
struct Prepared {
    program: Arc<Program>,
    signature: Signature,
    /// For each dataclass parameter, its cached arguments.
    flattened: Box<[Flattened]>,
    /// Some parameter is a dataclass.
    has_dataclasses: bool,
    repeats: Repeats,
}

impl Kernel {
    /// It is declared to depend on its arguments only.
    pub fn is_pure(&self) -> bool {
        self.pure.load(Ordering::Relaxed)
    }

    /// How its tasks are declared to be one graph.
    pub fn graph_use(&self) -> GraphUse {
        self.graph
    }

    /// The Python function.
    pub fn function<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.wrapped.get(py)
    }

    /// Names of its parameters, in order.
    pub fn parameters(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(self.prepared(py)?.0.signature.params.iter().map(|p| p.text.clone()).collect())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The signature under the current program and the specialization used last.
    #[inline]
    fn prepared(&self, py: Python<'_>) -> PyResult<(Arc<Prepared>, Option<Arc<Specialization>>)> {
        if let Some(known) = self.lock().under(program::current_serial()) {
            return Ok((known.prepared.clone(), known.specializations.first().cloned()));
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
        let (serial, epoch) = (program.serial, program.epoch);
        let prepared = Arc::new(Prepared { program, signature, flattened, has_dataclasses, repeats });
        let known =
            Known { serial, prepared: prepared.clone(), specializations: Vec::new(), trips: RecordedTrips::default() };
        let old: Vec<_> = {
            let mut state = self.lock();
            let is_gone = |known: &mut Known| known.prepared.program.epoch != epoch || known.serial == serial;
            let old = state.known.extract_if(.., is_gone).collect();
            state.known.insert(0, known);
            old
        };
        // Outside the lock: dropping Python objects may run Python code.
        drop(old);
        Ok(prepared)
    }

    /// Stores the information that users may query.
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

/// Lets `object.kernel(...)` call the kernel with the object as first argument, as it does functions, without a bound
/// method in between. The interpreter caches method lookups only for immutable types.
pub fn call_as_methods(py: Python<'_>) {
    let class = py.get_type::<Kernel>();
    // SAFETY: the type is alive, and nothing else knows it yet. The guarantee of the flag holds: `__get__` of an
    // instance returns an object that calls the kernel with the instance ahead of its arguments.
    unsafe {
        (*class.as_type_ptr()).tp_flags |= ffi::Py_TPFLAGS_METHOD_DESCRIPTOR | ffi::Py_TPFLAGS_IMMUTABLETYPE;
        ffi::PyType_Modified(class.as_type_ptr());
    }
}
