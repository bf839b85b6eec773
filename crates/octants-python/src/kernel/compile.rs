//! Finds the specialization of a kernel for the arguments of a call in the cache, recalls it from an earlier process,
//! or compiles it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use octants_engine::frontend::{Capture, World};
use octants_engine::ir::AutodiffMode;
use octants_engine::trace::{Binding, Recalled, Request, Search};
use octants_engine::{CompileError, Executable, Lowering};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::check_devices::find_elsewhere;
use super::refusals::{check_class, refuse_floats};
use super::{Kernel, Prepared};
use crate::annotation::ParamKind;
use crate::argument::Gathered;
use crate::array;
use crate::classify::Handles;
use crate::constant::Constant;
use crate::inspection::{self, Inspection};
use crate::names::text_attribute;
use crate::other_device::other_device;
use crate::package::Package;
use crate::result::ResultKind;
use crate::specialization::{Described, Slots, Specialization};
use crate::world::PyWorld;
use crate::{detached, errors};

/// Maximum number of specializations; the least recently used ones are dropped.
const MOST_SPECIALIZATIONS: usize = 1024;

/// Number of compilations for different values of the same objects before the user is warned.
const MANY_CHANGES: usize = 16;

impl Kernel {
    /// Finds or compiles the specialization for a call's arguments, and fills the slots. One thread compiles, others
    /// wait.
    #[cold]
    pub(super) fn find_or_compile<'py>(
        slf: &Bound<'py, Self>,
        prepared: &Prepared,
        gathered: &mut Gathered<'py>,
        args: &[Bound<'py, PyAny>],
        slots: &mut Slots,
        mode: AutodiffMode,
    ) -> PyResult<Arc<Specialization>> {
        let (this, py) = (slf.get(), slf.py());
        let key = gathered.key.clone();
        let serial = prepared.program.serial;
        let _turn = loop {
            let known = this.lock().of(serial).to_vec();
            for spec in known {
                if *spec.key == *key
                    && spec.is_alive(py, &prepared.program.session)
                    && spec.fill(gathered, args, slots, false)?
                {
                    this.move_to_front(serial, &spec);
                    return Ok(spec);
                }
            }
            if let Some(turn) = this.in_progress.enter(py, &key) {
                break turn;
            }
        };
        this.warn_of_changes(py, prepared, gathered, args)?;
        let spec = Arc::new(Self::compile(slf, prepared, gathered, args, mode)?);
        if !spec.fill(gathered, args, slots, true)? {
            return Err(errors::runtime_error(py, "compiler bug: newly compiled code does not accept its arguments"));
        }
        let dead: Vec<_> = {
            let mut state = this.lock();
            // `None` if the program has ended meanwhile.
            let none = &mut Vec::new();
            let kept = state.under(serial).map_or(none, |known| &mut known.specializations);
            let (alive, dead) =
                kept.drain(..).partition(|s: &Arc<Specialization>| s.is_alive(py, &prepared.program.session));
            *kept = alive;
            kept.insert(0, spec.clone());
            let excess = kept.len().min(MOST_SPECIALIZATIONS);
            let mut dead: Vec<_> = dead;
            dead.extend(kept.drain(excess..));
            dead
        };
        // Outside the lock: dropping Python objects may run Python code.
        drop(dead);
        Ok(spec)
    }

    /// Warns once that a kernel is recompiled because a guarded value keeps changing.
    fn warn_of_changes(
        &self,
        py: Python<'_>,
        prepared: &Prepared,
        gathered: &Gathered<'_>,
        args: &[Bound<'_, PyAny>],
    ) -> PyResult<()> {
        let serial = prepared.program.serial;
        let same: Vec<_> = self.lock().of(serial).iter().filter(|s| *s.key == *gathered.key).cloned().collect();
        if same.len() != MANY_CHANGES {
            return Ok(());
        }
        let Some((param, path)) = same[0].changed(args) else { return Ok(()) };
        let owner = prepared.signature.params.get(param as usize).map_or("", |p| p.text.as_str());
        let text = format!(
            "kernel `{}` was compiled {MANY_CHANGES} times for different values of `{owner}{path}`: pass values that \
             change often as arguments, or store them in a field",
            self.name
        );
        let text = std::ffi::CString::new(text).unwrap_or_default();
        PyErr::warn(py, &py.get_type::<pyo3::exceptions::PyRuntimeWarning>(), &text, 1)
    }

    fn move_to_front(&self, serial: u64, spec: &Arc<Specialization>) {
        let mut state = self.lock();
        let Some(known) = state.under(serial) else { return };
        if let Some(i) = known.specializations.iter().position(|s| Arc::ptr_eq(s, spec)) {
            known.specializations[..=i].rotate_right(1);
        }
    }

    /// Creates a specialization, from an earlier process's stored compilation if that fits.
    fn compile<'py>(
        slf: &Bound<'py, Self>,
        prepared: &Prepared,
        gathered: &Gathered<'py>,
        args: &[Bound<'py, PyAny>],
        mode: AutodiffMode,
    ) -> PyResult<Specialization> {
        let (this, py) = (slf.get(), slf.py());
        prepared.program.compiled.fetch_add(1, Ordering::Relaxed);
        let session = &prepared.program.session;
        if !this.library {
            Package::get(py)?.refuse_unplaced_fields.call0(py)?;
        }
        if session.config().print_non_pure && !this.is_pure() && !this.library {
            let text = format!("[NOT_PURE] Debug information: not pure: {}", this.name);
            py.import("builtins")?.call_method1("print", (text,))?;
        }
        let world = match mode {
            AutodiffMode::None => PyWorld::new(py, session.config()),
            _ => PyWorld::with_constants(py, session.config(), this.constants(py, prepared, args)?),
        };
        let world = match mode {
            AutodiffMode::Trips | AutodiffMode::Reads => world.silent(),
            _ => world,
        };
        let described = this.describe(prepared, args, &world)?;
        let records_trips = this.records_trips(py, mode, &described)?;
        let request = Request {
            kernel: world.handle(slf.clone().into_any()),
            args: &described.specs,
            mode,
            identity: this.identity(py, records_trips)?,
            captured: captured_names(this.function(py))?,
        };
        let mut search = guarded(py, &this.name, || session.search(&world, &request))?;
        let is_kept = search.is_kept();
        let (mut is_recalled, mut is_stored) = (false, false);
        let (mut has_shadow_buffers, mut peers) = (true, Vec::new());
        let (binding, code, alias, may_record_trip_counts) =
            match this.recall(prepared, (gathered, args, mode), &described, &world, &mut search)? {
                Some((found, code, alias)) => {
                    is_recalled = true;
                    (found.binding, code, alias, found.may_record_trip_counts)
                }
                None => {
                    log_debug(py, || format!("kernel `{}` is compiled: {}", this.name, search.reason))?;
                    let asked = (&search.tracing as &dyn World, &world);
                    let (lowering, alias) = Self::lower(slf, prepared, (gathered, args, mode), &described, asked)?;
                    let binding = Binding::of(&lowering.lowered);
                    let serial = prepared.program.serial;
                    if let Some(memory) = find_elsewhere(&binding, &world, serial)? {
                        let what = memory.describe(&lowering.lowered.kernel);
                        return Err(other_device(py, Some(&this.name), serial, &what, memory.serial));
                    }
                    let shown = || Inspection::new(&this.name, &prepared.program, &lowering, alias);
                    inspection::show(py, &prepared.program, shown)?;
                    let code = guarded(py, &this.name, || detached::working(py, || session.build(&lowering, alias)))?
                        .map_err(|e| errors::from_engine(py, e))?;
                    if matches!(mode, AutodiffMode::None | AutodiffMode::Reverse) {
                        let call = (gathered, args, mode);
                        peers = Self::build_for_group(slf, prepared, call, (&lowering, alias), &world)?;
                    }
                    is_stored = session.keep_trace(search, &lowering, &code, alias);
                    for notice in session.take_warnings() {
                        Package::get(py)?.logging.call_method1(py, "warn", (notice,))?;
                    }
                    has_shadow_buffers = lowering.has_shadow_buffers();
                    (binding, code, alias, lowering.may_record_trip_counts())
                }
            };
        this.lock().was_kept = code.was_kept && !this.is_pure();
        if this.is_pure() {
            let seen = &Package::get(py)?.fastcache_observations;
            this.observe(seen.call1(py, (is_kept, is_recalled, is_recalled, is_stored))?);
        }
        let annotations = binding.returns.iter().map(|&o| world.object(o).unbind()).collect();
        let tuple = prepared.signature.returns.as_ref().is_some_and(|r| r.bind(py).is_instance_of::<PyTuple>());
        let result = match mode {
            AutodiffMode::Trips | AutodiffMode::Reads => ResultKind::Words,
            _ => ResultKind::new(&code.ret, annotations, tuple),
        };
        let mut spec = Specialization::new((gathered, args), described, &binding, (code, alias), result, &world, py)?;
        let labels = binding.checkpoints.iter().map(|&(label, o)| (label, world.object(o).unbind()));
        spec.checkpoints = if mode == AutodiffMode::None { labels.collect() } else { Vec::new() };
        spec.peers = peers;
        spec.unites_arrays = alias && mode != AutodiffMode::None;
        spec.may_record_trip_counts = may_record_trip_counts;
        spec.has_shadow_buffers = has_shadow_buffers;
        let records_trip_counts = may_record_trip_counts && mode == AutodiffMode::None && !this.library;
        spec.records_trip_counts = AtomicBool::new(records_trip_counts);
        // Recording a launch waits for it, and the final values of counters do not show the trip counts.
        let sees_launches = records_trip_counts && session.config().debug && !spec.code.has_counters();
        spec.sees_launches = AtomicBool::new(sees_launches);
        if may_record_trip_counts && !spec.may_have_gradient {
            spec.may_have_gradient = Package::get(py)?.any_gradients.bind(py).call0()?.is_truthy()?;
        }
        spec.may_have_gradient &= !alias;
        Ok(spec)
    }

    /// The captured numbers that are compiled into the forward code for these arguments. The derivative uses the same
    /// values even if the numbers have changed.
    fn constants(&self, py: Python<'_>, prepared: &Prepared, args: &[Bound<'_, PyAny>]) -> PyResult<Vec<Constant>> {
        let launched = self.gather(prepared, args, AutodiffMode::None)?;
        let state = self.lock();
        let spec = state.of(prepared.program.serial).iter().find(|s| *s.key == *launched.key);
        Ok(spec.map_or_else(Vec::new, |s| s.constants.iter().map(|c| c.clone_ref(py)).collect()))
    }

    /// Describes a call's arguments to the compiler.
    pub(super) fn describe<'py>(
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

    /// Runs the front end on a call. Also returns whether its arrays may overlap. The front end queries `asked`, which
    /// wraps `world`.
    pub(super) fn lower<'py>(
        slf: &Bound<'py, Self>,
        prepared: &Prepared,
        (gathered, args, mode): (&Gathered<'py>, &[Bound<'py, PyAny>], AutodiffMode),
        described: &Described,
        (asked, world): (&dyn World, &PyWorld<'py>),
    ) -> PyResult<(Arc<Lowering>, bool)> {
        let (this, py) = (slf.get(), slf.py());
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
            guarded(py, &this.name, || session.lower(asked, handle, &described.specs, mode))?.map_err(&refused)?;
        let (aliases, alias) = described.aliases(gathered, args, &Binding::of(&lowering.lowered), world)?;
        if !aliases.is_empty() {
            session.check_groups(world, &lowering.lowered, &aliases).map_err(&refused)?;
        }
        world.show_warnings(&lowering.lowered.sources)?;
        if this.records_trips(py, mode, described)? || this.may_record(mode) && captures_gradient(&lowering, world)? {
            lowering.record_loop_trips();
        }
        let keeping = session.keeping();
        guarded(py, &this.name, || lowering.differentiate(mode, &aliases, keeping, &mut |w| world.warn(w)))?
            .map_err(&refused)?;
        world.show_warnings(&lowering.lowered.sources)?;
        Ok((Arc::new(lowering), alias))
    }

    /// Whether launches record trip counts for gradients, as far as is known from the arguments and fields.
    fn records_trips(&self, py: Python<'_>, mode: AutodiffMode, described: &Described) -> PyResult<bool> {
        let has_gradients =
            || Ok::<_, PyErr>(described.has_gradient || Package::get(py)?.any_gradients.bind(py).call0()?.is_truthy()?);
        Ok(self.may_record(mode) && has_gradients()?)
    }

    /// Whether a tape or a manual gradient may refer to its launches.
    fn may_record(&self, mode: AutodiffMode) -> bool {
        matches!(mode, AutodiffMode::None | AutodiffMode::Validation) && !self.library
    }

    /// The stored compilation that fits this call, its code, and whether the code is for arrays that may overlap.
    fn recall<'py>(
        &self,
        prepared: &Prepared,
        (gathered, args, mode): (&Gathered<'py>, &[Bound<'py, PyAny>], AutodiffMode),
        described: &Described,
        world: &PyWorld<'py>,
        search: &mut Search<'_>,
    ) -> PyResult<Option<(Recalled, Executable, bool)>> {
        // Do not recall from the cache while a compilation observer is installed.
        if inspection::is_observed(&prepared.program) {
            return Ok(None);
        }
        let session = &prepared.program.session;
        for found in std::mem::take(&mut search.recalled) {
            // Compiling again reports the error.
            if find_elsewhere(&found.binding, world, prepared.program.serial)?.is_some() {
                return Ok(None);
            }
            let (aliases, alias) = described.aliases(gathered, args, &found.binding, world)?;
            let any = alias || !aliases.is_empty();
            // A derivative depends on which arrays are the same, which is not stored.
            if !found.fits(any) || any && mode != AutodiffMode::None {
                search.reason = String::from("arrays share memory differently than before");
                continue;
            }
            let watch = search.watch.clone();
            let Some(code) = detached::working(world.py(), || session.load_recalled(&found, watch)) else {
                search.reason = String::from("its code is no longer cached");
                continue;
            };
            world.repeat(&found.printed, &found.warnings)?;
            return Ok(Some((found, code, alias)));
        }
        Ok(None)
    }

    /// The kernel's identity in the disk cache.
    fn identity(&self, py: Python<'_>, records_trips: bool) -> PyResult<Vec<String>> {
        let function = self.function(py);
        let text = |name| text_attribute(function, name).unwrap_or_default();
        let code = function.getattr(pyo3::intern!(py, "__code__"))?;
        Ok(vec![
            text(pyo3::intern!(py, "__module__")),
            text(pyo3::intern!(py, "__qualname__")),
            code.getattr(pyo3::intern!(py, "co_filename"))?.extract()?,
            format!("graph={:?}", self.graph),
            format!("records_trips={records_trips}"),
        ])
    }
}

/// Whether a kernel uses an array with a gradient that is no argument.
fn captures_gradient(lowering: &Lowering, world: &PyWorld<'_>) -> PyResult<bool> {
    for capture in Binding::of(&lowering.lowered).buffers.iter().flatten() {
        if let Capture::Object { obj, .. } = capture
            && array::view(&world.object(*obj))?.is_some_and(|view| view.needs_grad)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The free variables of a function.
fn captured_names(function: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    let py = function.py();
    function.getattr(pyo3::intern!(py, "__code__"))?.getattr(pyo3::intern!(py, "co_freevars"))?.extract()
}

/// Logs a message if debug logging is enabled.
fn log_debug(py: Python<'_>, text: impl FnOnce() -> String) -> PyResult<()> {
    let logging = Package::get(py)?.logging.bind(py);
    if logging.call_method1("is_logging_effective", ("debug",))?.is_truthy()? {
        logging.call_method1("debug", (text(),))?;
    }
    Ok(())
}

/// Converts a compiler panic to an exception.
fn guarded<T>(py: Python<'_>, kernel: &str, run: impl FnOnce() -> T) -> PyResult<T> {
    // State that a panic leaves incomplete is dropped with the compilation.
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| {
        let text = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied())
            .unwrap_or("a panic without a message");
        errors::runtime_error(py, format!("the compiler failed on kernel `{kernel}`: {text}"))
    })
}
