//! [`Kernel`]: what `@kernel` makes of a function. A call finds the specialisation of its arguments, compiles it if there is
//! none, fills the slots and launches, all without a Python frame.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use octants_engine::frontend::World;
use octants_engine::ir::AutodiffMode;
use octants_engine::runtime::{self, Caller};
use octants_engine::trace::{Binding, Recalled, Request, Search};
use octants_engine::{CompileError, Executable, Lowering};
use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyTuple};
use smallvec::SmallVec;

use crate::annotation::ParamKind;
use crate::argument::{Gathered, Place, templated_float};
use crate::classify::Handles;
use crate::errors;
use crate::flattened::Flattened;
use crate::func::{Wrapped, function_name};
use crate::gradient::{BoundKernel, KernelGradient, in_scope, scope};
use crate::in_progress::InProgress;
use crate::inspection::{self, Inspection};
use crate::names::text_attribute;
use crate::program::{self, Program};
use crate::result::ResultKind;
use crate::signature::{Signature, caller_scopes, declaration, has_text_annotations};
use crate::specialization::{Described, Slots, Specialization};
use crate::stream::{in_stream_scope, scope_stream, stream_argument};
use crate::vectorcall;
use crate::world::PyWorld;

/// Specialisations kept; of more, the ones not used for longest are dropped.
const MOST_SPECIALIZATIONS: usize = 1024;

/// Why a kernel cannot be differentiated.
const GROUPS: &str = "it has qd.stream_parallel() blocks";

/// Compilations for different values of the same objects after which the user is told.
const MANY_CHANGES: usize = 16;

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
}

/// A kernel's signature under a program's options.
struct Prepared {
    program: Arc<Program>,
    signature: Signature,
    /// For each parameter what it was last, if it is a dataclass.
    flattened: Box<[Flattened]>,
}

/// Lets go of the interpreter when a launch is about to take long.
struct Interpreter {
    saved: std::cell::Cell<*mut ffi::PyThreadState>,
}

impl Interpreter {
    fn held() -> Interpreter {
        Interpreter { saved: std::cell::Cell::new(std::ptr::null_mut()) }
    }
}

impl Caller for Interpreter {
    fn will_block(&self) {
        if self.saved.get().is_null() {
            // SAFETY: the thread that launches holds the interpreter until here.
            self.saved.set(unsafe { ffi::PyEval_SaveThread() });
        }
    }
}

impl Drop for Interpreter {
    fn drop(&mut self) {
        if !self.saved.get().is_null() {
            // SAFETY: saved by this thread above.
            unsafe { ffi::PyEval_RestoreThread(self.saved.get()) }
        }
    }
}

impl Kernel {
    /// It is declared to depend on its arguments alone.
    pub fn is_pure(&self) -> bool {
        self.pure.load(Ordering::Relaxed)
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
        let signature = Signature::of(function, &declaration(function, &[])?, program.session.config())?;
        let flattened = signature.params.iter().map(|_| Flattened::default()).collect();
        let prepared = Arc::new(Prepared { program, signature, flattened });
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

    fn run<'py>(
        slf: &Bound<'py, Self>,
        args: &[Bound<'py, PyAny>],
        stream: Option<runtime::Stream>,
        mode: AutodiffMode,
    ) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let this = slf.get();
        let (prepared, last) = this.prepared(py)?;
        let mut gathered = this.gather(&prepared, args, mode)?;
        let mut slots = Slots::new();
        if let Some(spec) = last
            && *spec.key == *gathered.key
            && spec.is_alive(py)
            && spec.fill(&mut gathered, args, &mut slots, false)?
        {
            return this.launch(py, &prepared, &spec, &gathered, &slots, stream.as_ref());
        }
        let spec = this.find_or_compile(slf, &prepared, &mut gathered, args, &mut slots, mode)?;
        this.launch(py, &prepared, &spec, &gathered, &slots, stream.as_ref())
    }

    /// What the arguments of a call are and hold.
    #[inline]
    fn gather<'py>(
        &self,
        prepared: &Prepared,
        args: &[Bound<'py, PyAny>],
        mode: AutodiffMode,
    ) -> PyResult<Gathered<'py>> {
        let mut gathered = Gathered::new(prepared.program.session.config().raise_on_templated_floats);
        for (i, (param, arg)) in prepared.signature.params.iter().zip(args).enumerate() {
            let place = Place { index: i, name: &param.text, parent: None, kernel: &self.name };
            match &param.kind {
                ParamKind::Dataclass(..) => prepared.flattened[i].take(&mut gathered, &param.kind, arg, &place)?,
                kind => gathered.take(kind, arg, &place)?,
            }
        }
        gathered.finish(mode);
        Ok(gathered)
    }

    #[inline]
    fn launch(
        &self,
        py: Python<'_>,
        prepared: &Prepared,
        spec: &Specialization,
        gathered: &Gathered<'_>,
        slots: &Slots,
        stream: Option<&runtime::Stream>,
    ) -> PyResult<Py<PyAny>> {
        if spec.groups && in_scope() {
            return Err(self.refuse_streams(py, GROUPS));
        }
        spec.check(py, &gathered.spans, |leaf| prepared.signature.leaf_name(leaf as usize))?;
        let session = &prepared.program.session;
        // Where all work is done at once the host's arrays are used as they are.
        let hosts = gathered.spans.iter().any(|s| s.host) || !gathered.hosted.is_empty();
        let tells = !session.device().is_immediate() && hosts;
        let arrays = if tells { spec.host_arrays(gathered) } else { SmallVec::new() };
        for &handle in &gathered.ready_on {
            let stream = stream.unwrap_or_else(|| session.device().default_stream());
            stream.wait_for_handle(handle).map_err(|e| errors::from_engine(py, e.into()))?;
        }
        let interpreter = Interpreter::held();
        // SAFETY: the slots were filled by the layout of this code, from arrays that the caller's arguments, `gathered` and
        // the specialisation keep alive, and whose extents they report.
        let end = unsafe { session.launch(&spec.code, slots, &arrays, stream, &interpreter) };
        drop(interpreter);
        program::write_printed(py)?;
        match end {
            Ok(None) => Ok(py.None()),
            Ok(Some(results)) => spec.result.build(py, results.slots()),
            Err(error) => Err(errors::from_engine(py, error)),
        }
    }

    #[cold]
    fn find_or_compile<'py>(
        &self,
        slf: &Bound<'py, Self>,
        prepared: &Prepared,
        gathered: &mut Gathered<'py>,
        args: &[Bound<'py, PyAny>],
        slots: &mut Slots,
        mode: AutodiffMode,
    ) -> PyResult<Arc<Specialization>> {
        let py = slf.py();
        let key = gathered.key.clone();
        let _turn = loop {
            let known: Vec<_> = self.lock().specializations.clone();
            for spec in known {
                if *spec.key == *key && spec.is_alive(py) && spec.fill(gathered, args, slots, false)? {
                    self.move_to_front(&spec);
                    return Ok(spec);
                }
            }
            if let Some(turn) = self.in_progress.enter(py, &key) {
                break turn;
            }
        };
        self.warn_of_changes(py, prepared, gathered, args)?;
        let spec = Arc::new(self.compile(slf, prepared, gathered, args, mode)?);
        if !spec.fill(gathered, args, slots, true)? {
            return Err(errors::runtime_error(py, "compiler bug: code that was just made does not take its arguments"));
        }
        let dead: Vec<_> = {
            let mut state = self.lock();
            let (alive, dead) = state.specializations.drain(..).partition(|s: &Arc<Specialization>| s.is_alive(py));
            state.specializations = alive;
            state.specializations.insert(0, spec.clone());
            let excess = state.specializations.len().min(MOST_SPECIALIZATIONS);
            let mut dead: Vec<_> = dead;
            dead.extend(state.specializations.drain(excess..));
            dead
        };
        // Outside the lock: dropping Python objects may run Python code.
        drop(dead);
        Ok(spec)
    }

    /// Says once that a kernel is compiled again and again because something changes that it was compiled for.
    fn warn_of_changes(
        &self,
        py: Python<'_>,
        prepared: &Prepared,
        gathered: &Gathered<'_>,
        args: &[Bound<'_, PyAny>],
    ) -> PyResult<()> {
        let same: Vec<_> = self.lock().specializations.iter().filter(|s| *s.key == *gathered.key).cloned().collect();
        if same.len() != MANY_CHANGES {
            return Ok(());
        }
        let Some((param, path)) = same[0].changed(args) else { return Ok(()) };
        let owner = prepared.signature.params.get(param as usize).map_or("", |p| p.text.as_str());
        let text = format!(
            "kernel `{}` was compiled {MANY_CHANGES} times for different values of `{owner}{path}`: what changes often is better \
             passed as an argument, or kept in a field",
            self.name
        );
        let text = std::ffi::CString::new(text).unwrap_or_default();
        PyErr::warn(py, &py.get_type::<pyo3::exceptions::PyRuntimeWarning>(), &text, 1)
    }

    #[cold]
    fn refuse_stream(&self, py: Python<'_>) -> PyErr {
        let text = "qd_stream is not compatible with graph=True kernels: leave out one of the two";
        errors::runtime_error(py, format!("kernel `{}`: {text}", self.name))
    }

    fn move_to_front(&self, spec: &Arc<Specialization>) {
        let mut state = self.lock();
        if let Some(i) = state.specializations.iter().position(|s| Arc::ptr_eq(s, spec)) {
            state.specializations[..=i].rotate_right(1);
        }
    }

    /// What the compiler is told of a call's arguments.
    fn describe<'py>(
        &self,
        prepared: &Prepared,
        args: &[Bound<'py, PyAny>],
        world: &PyWorld<'py>,
    ) -> PyResult<Described> {
        if prepared.signature.method {
            check_class(&args[0])?;
        }
        let kinds: Vec<(&str, &ParamKind)> =
            prepared.signature.params.iter().map(|p| (p.text.as_str(), &p.kind)).collect();
        let described = Described::new(&kinds, args, &self.name, world)?;
        if prepared.program.session.config().raise_on_templated_floats {
            refuse_floats(&kinds, args, &self.name)?;
        }
        Ok(described)
    }

    /// What the front end makes of a call, with whether its arrays may overlap. It asks `asked`, which stands before `world`.
    fn lower<'py>(
        &self,
        slf: &Bound<'py, Self>,
        prepared: &Prepared,
        (gathered, args, mode): (&Gathered<'py>, &[Bound<'py, PyAny>], AutodiffMode),
        described: &Described,
        (asked, world): (&dyn World, &PyWorld<'py>),
    ) -> PyResult<(Arc<Lowering>, bool)> {
        let py = slf.py();
        let session = &prepared.program.session;
        let handle = world.handle(slf.clone().into_any());
        let refused = |e: CompileError| {
            if let CompileError::User(_, sources) = &e
                && let Err(raised) = world.show_warnings(sources)
            {
                return raised;
            }
            errors::from_compile(py, e, &world.take_causes())
        };
        let mut lowering =
            guarded(py, &self.name, || session.lower(asked, handle, &described.specs, mode))?.map_err(&refused)?;
        let (aliases, alias) = described.aliases(gathered, args, &Binding::of(&lowering.lowered), world)?;
        if !aliases.is_empty() {
            session.check_groups(world, &lowering.lowered, &aliases).map_err(&refused)?;
        }
        world.show_warnings(&lowering.lowered.sources)?;
        if mode != AutodiffMode::None && lowering.has_groups() {
            return Err(self.refuse_streams(py, GROUPS));
        }
        guarded(py, &self.name, || lowering.differentiate(mode, &mut |w| world.warn(w)))?.map_err(&refused)?;
        world.show_warnings(&lowering.lowered.sources)?;
        if self.graph {
            lowering.refuse_groups().map_err(|e| errors::from_compile(py, e, &[]))?;
        }
        Ok((Arc::new(lowering), alias))
    }

    /// What of an earlier compilation fits this call, its code, and whether that is for arrays that may overlap.
    fn recall<'py>(
        &self,
        prepared: &Prepared,
        (gathered, args): (&Gathered<'py>, &[Bound<'py, PyAny>]),
        described: &Described,
        world: &PyWorld<'py>,
        search: &mut Search<'_>,
    ) -> PyResult<Option<(Recalled, Executable, bool)>> {
        // Who looks at compilations must be shown them.
        if inspection::is_observed() {
            return Ok(None);
        }
        let session = &prepared.program.session;
        for found in std::mem::take(&mut search.recalled) {
            let (aliases, alias) = described.aliases(gathered, args, &found.binding, world)?;
            if !found.fits(alias || !aliases.is_empty()) {
                search.reason = String::from("arrays share memory in another way than before");
                continue;
            }
            let watch = search.watch.clone();
            let Some(code) = world.py().detach(|| session.load_recalled(&found, watch)) else {
                search.reason = String::from("its code is no longer kept");
                continue;
            };
            world.repeat(&found.printed, &found.warnings)?;
            return Ok(Some((found, code, alias)));
        }
        Ok(None)
    }

    fn compile<'py>(
        &self,
        slf: &Bound<'py, Self>,
        prepared: &Prepared,
        gathered: &Gathered<'py>,
        args: &[Bound<'py, PyAny>],
        mode: AutodiffMode,
    ) -> PyResult<Specialization> {
        let py = slf.py();
        prepared.program.compiled.fetch_add(1, Ordering::Relaxed);
        let session = &prepared.program.session;
        let world = PyWorld::new(py, session.config());
        let described = self.describe(prepared, args, &world)?;
        let request = Request {
            kernel: world.handle(slf.clone().into_any()),
            args: &described.specs,
            mode,
            identity: self.identity(py)?,
            captured: captured_names(self.function(py))?,
        };
        let mut search = guarded(py, &self.name, || session.search(&world, &request))?;
        let (binding, code, alias, groups) =
            match self.recall(prepared, (gathered, args), &described, &world, &mut search)? {
                Some((found, code, alias)) => (found.binding, code, alias, found.has_groups),
                None => {
                    log_debug(py, || format!("kernel `{}` is compiled: {}", self.name, search.reason))?;
                    let asked = (&search.tracing as &dyn World, &world);
                    let (lowering, alias) = self.lower(slf, prepared, (gathered, args, mode), &described, asked)?;
                    inspection::show(py, || Inspection::new(&self.name, &prepared.program, &lowering, alias))?;
                    let code = guarded(py, &self.name, || py.detach(|| session.build(&lowering, alias)))?
                        .map_err(|e| errors::from_engine(py, e))?;
                    session.keep_trace(search, &lowering, &code, alias);
                    for notice in session.take_notices() {
                        py.import("octants._logging")?.call_method1("warn", (notice,))?;
                    }
                    (Binding::of(&lowering.lowered), code, alias, lowering.has_groups())
                }
            };
        let annotations = binding.returns.iter().map(|&o| world.object(o).unbind()).collect();
        let tuple = prepared.signature.returns.as_ref().is_some_and(|r| r.bind(py).is_instance_of::<PyTuple>());
        let result = ResultKind::new(&code.ret, annotations, tuple);
        let mut spec = Specialization::new(gathered, described, &binding, (code, alias), result, &world, py)?;
        spec.groups = groups;
        Ok(spec)
    }

    /// What tells this kernel from others, for finding what was compiled of it before.
    fn identity(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let function = self.function(py);
        let text = |name| text_attribute(function, name).unwrap_or_default();
        let code = function.getattr(pyo3::intern!(py, "__code__"))?;
        Ok(vec![
            text(pyo3::intern!(py, "__module__")),
            text(pyo3::intern!(py, "__qualname__")),
            code.getattr(pyo3::intern!(py, "co_filename"))?.extract()?,
            format!("graph={}", self.graph),
        ])
    }

    /// Compiles for a call with these arguments, unless that was done.
    pub fn compile_ahead<'py>(
        slf: &Bound<'py, Self>,
        args: &[Bound<'py, PyAny>],
        kwargs: Option<&Bound<'py, PyDict>>,
        mode: AutodiffMode,
    ) -> PyResult<()> {
        let this = slf.get();
        let args = this.bind(slf.py(), args, kwargs)?;
        let (prepared, _) = this.prepared(slf.py())?;
        let mut gathered = this.gather(&prepared, &args, mode)?;
        this.find_or_compile(slf, &prepared, &mut gathered, &args, &mut Slots::new(), mode).map(drop)
    }

    /// What a call with these arguments would be compiled from.
    pub fn inspect<'py>(
        slf: &Bound<'py, Self>,
        args: &[Bound<'py, PyAny>],
        kwargs: Option<&Bound<'py, PyDict>>,
        mode: AutodiffMode,
    ) -> PyResult<Inspection> {
        let (this, py) = (slf.get(), slf.py());
        let args = this.bind(py, args, kwargs)?;
        let (prepared, _) = this.prepared(py)?;
        let gathered = this.gather(&prepared, &args, mode)?;
        let world = PyWorld::new(py, prepared.program.session.config());
        let described = this.describe(&prepared, &args, &world)?;
        let call = (&gathered, &*args, mode);
        let (lowering, alias) = this.lower(slf, &prepared, call, &described, (&world, &world))?;
        Ok(Inspection::new(&this.name, &prepared.program, &lowering, alias))
    }

    /// Name and kind, for messages.
    pub fn description(&self) -> String {
        format!("octants kernel {}", self.name)
    }

    /// A call from Python, of a function or of a method of `instance`.
    #[inline]
    pub fn call<'py>(
        slf: &Bound<'py, Self>,
        instance: Option<&Bound<'py, PyAny>>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
        mode: AutodiffMode,
    ) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let stream = match kwargs {
            Some(k) => k.get_item(pyo3::intern!(py, "qd_stream"))?,
            None => None,
        };
        let named = kwargs.filter(|k| k.len() > usize::from(stream.is_some()));
        let mut whole: SmallVec<[Bound<'py, PyAny>; 8]> = SmallVec::new();
        let mut given = args.as_slice();
        if let Some(instance) = instance {
            whole.push(instance.clone());
            whole.extend(given.iter().cloned());
            given = &whole;
        }
        Self::call_on(slf, given, stream.as_ref(), named, mode)
    }

    /// A call with arguments by place, the value of `qd_stream`, and all that was named, where that is more than the stream.
    #[inline]
    pub fn call_on<'py>(
        slf: &Bound<'py, Self>,
        args: &[Bound<'py, PyAny>],
        stream: Option<&Bound<'py, PyAny>>,
        named: Option<&Bound<'py, PyDict>>,
        mode: AutodiffMode,
    ) -> PyResult<Py<PyAny>> {
        let (this, py) = (slf.get(), slf.py());
        let given = stream.filter(|s| !s.is_none());
        let stream = match given {
            None => scope_stream(py)?,
            Some(_) if this.graph => return Err(this.refuse_stream(py)),
            Some(stream) => Some(stream_argument(stream, "qd_stream")?),
        };
        let expected = this.lock().prepared.as_ref().map(|p| p.signature.params.len());
        let bound;
        let args = if named.is_some() || expected != Some(args.len()) {
            bound = this.bind(py, args, named)?;
            &bound[..]
        } else {
            args
        };
        if mode == AutodiffMode::None && (this.library || !in_scope()) {
            return Self::run(slf, args, stream, mode);
        }
        Self::run_differentiated(slf, args, (stream, given.is_some()), mode)
    }

    /// A gradient, or a launch in a scope that differentiates or records.
    #[cold]
    fn run_differentiated<'py>(
        slf: &Bound<'py, Self>,
        args: &[Bound<'py, PyAny>],
        (stream, is_named): (Option<runtime::Stream>, bool),
        mode: AutodiffMode,
    ) -> PyResult<Py<PyAny>> {
        let (this, py) = (slf.get(), slf.py());
        let (mode, record) = if mode == AutodiffMode::None { scope(py) } else { (mode, None) };
        if is_named {
            return Err(this.refuse_streams(py, "it is launched with `qd_stream=`"));
        }
        if in_stream_scope() {
            return Err(this.refuse_streams(py, "it is launched in a qd.stream_scope()"));
        }
        let result = Self::run(slf, args, stream, mode)?;
        if let Some(record) = record {
            record.call1(py, (slf, PyTuple::new(py, args)?))?;
        }
        Ok(result)
    }

    fn refuse_streams(&self, py: Python<'_>, why: &str) -> PyErr {
        let text = format!(
            "kernel `{}` cannot be differentiated: {why}, and streams are not supported with `.grad`, in a qd.ad.Tape or in a \
             qd.ad.FwdMode",
            self.name
        );
        errors::runtime_error(py, text)
    }

    /// Arguments in the order of the parameters.
    #[cold]
    fn bind<'py>(
        &self,
        py: Python<'py>,
        args: &[Bound<'py, PyAny>],
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<SmallVec<[Bound<'py, PyAny>; 8]>> {
        let (prepared, _) = self.prepared(py)?;
        let params = &prepared.signature.params;
        if args.len() > params.len() {
            let shown = |items: &[Bound<'py, PyAny>]| -> String {
                let texts: Vec<String> =
                    items.iter().map(|a| a.repr().map_or_else(|_| "?".into(), |r| r.to_string())).collect();
                texts.join(", ")
            };
            let names: Vec<&str> = params.iter().map(|p| p.text.as_str()).collect();
            return Err(errors::syntax_error(
                py,
                format!(
                    "Too many arguments. Kernel `{}` takes {} ({}), got {} ({})",
                    self.name,
                    params.len(),
                    names.join(", "),
                    args.len(),
                    shown(args)
                ),
            ));
        }
        let mut bound: SmallVec<[Option<Bound<'py, PyAny>>; 8]> = args.iter().cloned().map(Some).collect();
        bound.resize_with(params.len(), || None);
        for (name, value) in kwargs.into_iter().flat_map(|d| d.iter()) {
            let name: String = name.extract()?;
            match params.iter().position(|p| p.text == name) {
                Some(i) if bound[i].is_some() => {
                    return Err(errors::syntax_error(
                        py,
                        format!("Multiple values for argument '{name}'. (kernel `{}`)", self.name),
                    ));
                }
                Some(i) => bound[i] = Some(value),
                None if name == "qd_stream" => {}
                None => {
                    let names = params.iter().map(|p| p.text.as_str());
                    let hint = octants_engine::nearest(&name, names)
                        .map_or_else(String::new, |s| format!(" Did you mean '{s}'?"));
                    return Err(errors::syntax_error(
                        py,
                        format!("Unexpected argument '{name}'.{hint} (kernel `{}`)", self.name),
                    ));
                }
            }
        }
        bound
            .into_iter()
            .zip(params)
            .map(|(value, p)| {
                value.ok_or_else(|| {
                    errors::syntax_error(py, format!("Missing argument '{}'. (kernel `{}`)", p.text, self.name))
                })
            })
            .collect()
    }
}

/// The names that a function takes from the functions around it.
fn captured_names(function: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    let py = function.py();
    function.getattr(pyo3::intern!(py, "__code__"))?.getattr(pyo3::intern!(py, "co_freevars"))?.extract()
}

/// Says something to who asked for it.
fn log_debug(py: Python<'_>, text: impl FnOnce() -> String) -> PyResult<()> {
    let logging = py.import("octants._logging")?;
    if logging.call_method1("is_logging_effective", ("debug",))?.is_truthy()? {
        logging.call_method1("debug", (text(),))?;
    }
    Ok(())
}

/// Lets `object.kernel(...)` call the kernel with the object as first argument, as it does functions, without a bound method in between.
pub fn call_as_methods(py: Python<'_>) {
    let class = py.get_type::<Kernel>();
    // SAFETY: the type is alive, and nothing else knows it yet. What the flag promises holds: `__get__` of an instance returns an object
    // that calls the kernel with the instance ahead of its arguments.
    unsafe {
        (*class.as_type_ptr()).tp_flags |= ffi::Py_TPFLAGS_METHOD_DESCRIPTOR;
        ffi::PyType_Modified(class.as_type_ptr());
    }
}

/// A broken invariant of the compiler as an exception that programs survive.
fn guarded<T>(py: Python<'_>, kernel: &str, run: impl FnOnce() -> T) -> PyResult<T> {
    // What a panic leaves half done is dropped with the compilation.
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| {
        let text = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied())
            .unwrap_or("a panic without a message");
        errors::runtime_error(py, format!("the compiler failed on kernel `{kernel}`: {text}"))
    })
}

/// Floats among the attributes of compile-time objects, where the options allow none.
fn refuse_floats(kinds: &[(&str, &ParamKind)], args: &[Bound<'_, PyAny>], kernel: &str) -> PyResult<()> {
    for ((name, kind), arg) in kinds.iter().zip(args) {
        let attributes = match kind {
            ParamKind::Template => arg.getattr_opt(pyo3::intern!(arg.py(), "__dict__"))?,
            _ => None,
        };
        let Some(Ok(attributes)) = attributes.map(|a| a.cast_into::<PyDict>()) else { continue };
        for (key, value) in attributes.iter() {
            if value.is_exact_instance_of::<PyFloat>() {
                return Err(templated_float(&format!("{name}.{key}"), kernel));
            }
        }
    }
    Ok(())
}

/// Methods are kernels of data-oriented classes only.
fn check_class(instance: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = instance.py();
    let class = instance.get_type();
    if class.hasattr(pyo3::intern!(py, "_octants_data_oriented"))?
        || class.hasattr(pyo3::intern!(py, "__dataclass_fields__"))?
    {
        return Ok(());
    }
    Err(errors::syntax_error(
        py,
        format!("Please decorate class {} with @qd.data_oriented: one of its methods is a kernel", class.name()?),
    ))
}

#[pymethods]
impl Kernel {
    #[new]
    #[pyo3(signature = (fn_, graph = false, library = false))]
    fn new(py: Python<'_>, fn_: Bound<'_, PyAny>, graph: bool, library: bool) -> PyResult<Kernel> {
        // What is wrong with a declaration is said where it stands. Names that are not defined yet are left for the first call.
        let text = has_text_annotations(&fn_)?;
        let scopes = if text { caller_scopes(py)? } else { Vec::new() };
        match declaration(&fn_, &scopes) {
            Ok(declared) => {
                let program = program::current();
                let default = octants_engine::Config::default();
                Signature::of(&fn_, &declared, program.as_ref().map_or(&default, |p| p.session.config()))?;
                if text {
                    let annotations = PyDict::new(py);
                    for p in &declared.params {
                        if let Some(a) = &p.annotation {
                            annotations.set_item(&p.name, a)?;
                        }
                    }
                    if let Some(r) = &declared.returns {
                        annotations.set_item("return", r)?;
                    }
                    fn_.setattr("__annotations__", annotations)?;
                }
            }
            Err(e) if e.is_instance_of::<pyo3::exceptions::PyNameError>(py) && text => {}
            Err(e) => return Err(e),
        }
        let name = function_name(&fn_);
        Ok(Kernel {
            wrapped: Wrapped::new(fn_),
            name,
            graph,
            library,
            pure: AtomicBool::new(false),
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
        self.wrapped.traverse(&visit)
    }

    /// Declares that it depends on its arguments alone; called by decorators.
    fn _declare_pure(&self) {
        self.pure.store(true, Ordering::Relaxed);
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

    /// What a call with these arguments would be compiled from, for a look at its code.
    #[pyo3(signature = (*args, **kwargs))]
    fn _inspect<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Inspection> {
        Kernel::inspect(slf, args.as_slice(), kwargs, AutodiffMode::None)
    }

    /// Compiles for a call with these arguments.
    #[pyo3(signature = (*args, **kwargs))]
    fn _compile<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<()> {
        Kernel::compile_ahead(slf, args.as_slice(), kwargs, AutodiffMode::None)
    }

    /// How many specialisations are kept.
    fn _specialization_count(&self) -> usize {
        self.lock().specializations.len()
    }
}
