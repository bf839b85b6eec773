//! The path of a call: positional arguments, their types and contents, slots, launch. This is the hot path, without a
//! Python frame.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use octants_engine::ir::AutodiffMode;
use octants_engine::runtime::{self, Caller, DispatchingCaller};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use smallvec::SmallVec;

use super::bind_arguments::Arguments;

use super::captured_split;
use super::launch_request::LaunchRequest;
use super::recorded_launch::RecordedLaunch;
use super::refusals::no_gradients;
use super::split_launch;
use super::{Kernel, Prepared};
use crate::annotation::ParamKind;
use crate::argument::{Follows, Gathered, Place};
use crate::autodiff_scope::{in_scope, scope};
use crate::captured_graph;
use crate::concurrency;
use crate::detached;
use crate::device_group::{DeviceGroup, GroupLaunch};
use crate::errors;
use crate::flattened::Flat;
use crate::interpreter::Interpreter;
use crate::package::Package;
use crate::plain_python;
use crate::program;
use crate::specialization::{Slots, Specialization};
use crate::split_dispatch::SplitDispatcher;
use crate::stream::{scope_stream, stream_argument};

/// The tasks of the last launch of a user's kernel.
static LAST_TASKS: AtomicUsize = AtomicUsize::new(0);

/// The number of tasks of the last launch of a user's kernel.
#[pyfunction]
pub fn last_task_count() -> usize {
    LAST_TASKS.load(Ordering::Relaxed)
}

impl Kernel {
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
        let mut whole = Arguments::new();
        let mut given = args.as_slice();
        if let Some(instance) = instance {
            whole.push(instance.clone());
            whole.extend(given.iter().cloned());
            given = &whole;
        }
        Self::call_on(slf, given, stream.as_ref(), named, mode)
    }

    /// A call with positional arguments, the value of `qd_stream`, and the keyword arguments, if there are others than
    /// the stream.
    #[inline]
    pub fn call_on<'py>(
        slf: &Bound<'py, Self>,
        args: &[Bound<'py, PyAny>],
        stream: Option<&Bound<'py, PyAny>>,
        named: Option<&Bound<'py, PyDict>>,
        mode: AutodiffMode,
    ) -> PyResult<Py<PyAny>> {
        let (this, py) = (slf.get(), slf.py());
        if plain_python::is_active() && !this.library {
            return this.run_as_python(py, args, named, mode);
        }
        let given = stream.filter(|s| !s.is_none());
        let stream = match given {
            None => scope_stream(py)?,
            Some(stream) => Some(stream_argument(stream, "qd_stream")?),
        };
        let expected = this.lock().known.first().map(|k| k.prepared.signature.params.len());
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
        Self::run_differentiated(slf, args, stream, mode)
    }

    /// A call under `arch=qd.python`, which ignores the stream.
    #[cold]
    fn run_as_python(
        &self,
        py: Python<'_>,
        args: &[Bound<'_, PyAny>],
        named: Option<&Bound<'_, PyDict>>,
        mode: AutodiffMode,
    ) -> PyResult<Py<PyAny>> {
        if mode != AutodiffMode::None {
            let text = format!("kernel `{}`: arch=qd.python does not support derivatives", self.name);
            return Err(errors::runtime_error(py, text));
        }
        let named = named.map(|named| named.copy()).transpose()?;
        if let Some(named) = &named
            && named.contains("qd_stream")?
        {
            named.del_item("qd_stream")?;
        }
        plain_python::run(self.function(py), &PyTuple::new(py, args)?, named.as_ref(), plain_python::Caller::Kernel)
    }

    /// A call with all its arguments, in order.
    pub fn run<'py>(
        slf: &Bound<'py, Self>,
        args: &[Bound<'py, PyAny>],
        stream: Option<runtime::Stream>,
        mode: AutodiffMode,
    ) -> PyResult<Py<PyAny>> {
        if runtime::nesting::capturing() {
            let on = stream.clone();
            return captured_graph::noting(slf, args, (on.as_ref(), mode), || Self::run_now(slf, args, stream, mode));
        }
        Self::run_now(slf, args, stream, mode)
    }

    /// The gradient of a call with all its arguments, within a gradient order.
    #[cold]
    pub fn run_gradient<'py>(
        slf: &Bound<'py, Self>,
        args: &[Bound<'py, PyAny>],
        stream: Option<runtime::Stream>,
        (order, counters): (Arc<runtime::LaunchOrder>, Arc<runtime::CounterSnapshot>),
    ) -> PyResult<()> {
        let mode = AutodiffMode::Reverse;
        let run = || {
            let follows = Some(Follows { order: Some(order), counters });
            let request = LaunchRequest { mode, stream: stream.as_ref(), follows, ..LaunchRequest::default() };
            Ok(slf.get().run_with(slf, args, request, &mut Slots::new())?.0)
        };
        captured_graph::noting(slf, args, (stream.as_ref(), mode), run).map(drop)
    }

    #[inline]
    fn run_now<'py>(
        slf: &Bound<'py, Self>,
        args: &[Bound<'py, PyAny>],
        stream: Option<runtime::Stream>,
        mode: AutodiffMode,
    ) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let this = slf.get();
        let (prepared, last) = this.prepared(py)?;
        let _call = prepared.program.begin_call();
        let repeats = prepared.has_dataclasses && mode == AutodiffMode::None;
        if repeats && let Some(result) = Self::repeat(slf, &prepared, args, stream.as_ref())? {
            return Ok(result);
        }
        let mut gathered = Gathered::new(&prepared.program);
        this.gather_into(&mut gathered, &prepared, args, mode)?;
        let mut slots = Slots::new();
        let spec = match last {
            Some(spec)
                if *spec.key == *gathered.key
                    && spec.is_alive(py, &prepared.program.session)
                    && spec.fill(&mut gathered, args, &mut slots, false)? =>
            {
                spec
            }
            _ => Self::find_or_compile(slf, &prepared, &mut gathered, args, &mut slots, mode)?,
        };
        if mode == AutodiffMode::Reverse && !spec.has_shadow_buffers {
            return Err(no_gradients(py, &this.name));
        }
        if repeats && spec.split.is_empty() && !spec.code.has_loop_trips() {
            this.remember(py, &prepared, args, &spec, &slots)?;
        }
        if !spec.split.is_empty() {
            let on = (stream.as_ref(), mode);
            this.begin_split(py, &prepared, &spec, (&mut gathered, args, &slots), on)?;
        }
        let trips = if spec.code.has_loop_trips() {
            this.add_loop_trips(py, &prepared, (&mut gathered, args), (&spec, &mut slots), mode)?
        } else {
            None
        };
        if runtime::nesting::capturing() && mode == AutodiffMode::None {
            save_counters(py, &prepared, (&spec, &slots), trips, stream.as_ref())?;
        }
        let result = this.launch(py, &prepared, &spec, (&gathered, &[]), &slots, stream.as_ref())?;
        Self::note_launch(slf, args, (&spec, &slots), stream.as_ref())?;
        Ok(result)
    }

    /// Records a launch that a gradient may refer to.
    #[inline]
    pub(super) fn note_launch<'py>(
        slf: &Bound<'py, Self>,
        args: &[Bound<'py, PyAny>],
        (spec, slots): (&Specialization, &Slots),
        stream: Option<&runtime::Stream>,
    ) -> PyResult<()> {
        if !spec.sees_launches.load(Ordering::Relaxed) {
            return Ok(());
        }
        match stream {
            None => Self::see_launch(slf, args, (spec, slots)),
            Some(_) => {
                slf.get().forget_seen();
                Ok(())
            }
        }
    }

    /// A gradient, or a launch in a scope that differentiates or records.
    #[cold]
    fn run_differentiated<'py>(
        slf: &Bound<'py, Self>,
        args: &[Bound<'py, PyAny>],
        stream: Option<runtime::Stream>,
        mode: AutodiffMode,
    ) -> PyResult<Py<PyAny>> {
        let (this, py) = (slf.get(), slf.py());
        let (mode, record) = if mode == AutodiffMode::None { scope(py) } else { (mode, None) };
        let Some(record) = record else {
            match mode {
                AutodiffMode::Reverse => Self::check_seen(slf, args, stream.as_ref())?,
                _ => this.forget_seen(),
            }
            return Self::run(slf, args, stream, mode);
        };
        this.forget_seen();
        let (result, launch) = RecordedLaunch::for_tape(slf, args, (stream, mode))?;
        record.call1(py, (launch, PyTuple::new(py, args)?))?;
        Ok(result)
    }

    /// A call whose caller requests information about the launch.
    #[cold]
    pub(super) fn run_with<'py>(
        &self,
        slf: &Bound<'py, Self>,
        args: &[Bound<'py, PyAny>],
        request: LaunchRequest<'_>,
        slots: &mut Slots,
    ) -> PyResult<(Py<PyAny>, Arc<Specialization>)> {
        let py = slf.py();
        if runtime::nesting::capturing() {
            captured_graph::hold_arguments(args);
        }
        let (prepared, _) = self.prepared(py)?;
        let _call = prepared.program.begin_call();
        let mut gathered = self.gather(&prepared, args, request.mode)?;
        gathered.numbers = request.numbers.map(SmallVec::from_slice);
        gathered.follows = request.follows;
        let spec = Self::find_or_compile(slf, &prepared, &mut gathered, args, slots, request.mode)?;
        let mut filled = slots.clone();
        if let Some(counters) = request.counters {
            let interpreter = Interpreter::held(py);
            let trips = self.record_loop_trips(py, &prepared, &spec, &mut filled)?;
            let kept = prepared.program.session.save_counters(&spec.code, slots, request.stream, &interpreter);
            let kept = kept.and_then(|kept| Ok(kept.with_trips(trips)?));
            let _ = counters.set(kept.map_err(|e| errors::from_engine(py, e))?);
        }
        if !spec.split.is_empty() {
            let on = (request.stream, request.mode);
            self.begin_split(py, &prepared, &spec, (&mut gathered, args, slots), on)?;
        }
        let result = self.launch(py, &prepared, &spec, (&gathered, &[]), &filled, request.stream)?;
        Ok((result, spec))
    }

    /// Converts the arguments of a call.
    pub(super) fn gather<'py>(
        &self,
        prepared: &Prepared,
        args: &[Bound<'py, PyAny>],
        mode: AutodiffMode,
    ) -> PyResult<Gathered<'py>> {
        let mut gathered = Gathered::new(&prepared.program);
        self.gather_into(&mut gathered, prepared, args, mode)?;
        Ok(gathered)
    }

    /// As [`Kernel::gather`], in place, because moving the result takes as long as converting an argument.
    #[inline]
    fn gather_into<'py>(
        &self,
        gathered: &mut Gathered<'py>,
        prepared: &Prepared,
        args: &[Bound<'py, PyAny>],
        mode: AutodiffMode,
    ) -> PyResult<()> {
        for (i, (param, arg)) in prepared.signature.params.iter().zip(args).enumerate() {
            let place = Place { index: i, name: &param.text, parent: None, kernel: &self.name };
            match &param.kind {
                ParamKind::Dataclass(..) => prepared.flattened[i].take(gathered, &param.kind, arg, &place)?,
                kind => gathered.take(kind, arg, &place)?,
            }
        }
        gathered.finish(mode);
        Ok(())
    }

    /// Launches a specialization whose slots are filled. `gathered` is the result of converting the arguments, without
    /// the cached dataclasses.
    #[inline]
    pub(super) fn launch(
        &self,
        py: Python<'_>,
        prepared: &Prepared,
        spec: &Specialization,
        (gathered, flats): (&Gathered<'_>, &[Arc<Flat>]),
        slots: &Slots,
        stream: Option<&runtime::Stream>,
    ) -> PyResult<Py<PyAny>> {
        let parameter = |i: usize| prepared.signature.params.get(i).map_or("", |p| p.text.as_str());
        spec.check(py, gathered, parameter)?;
        if !gathered.copied.is_empty() {
            gathered.check_copies(|leaf| spec.writes(leaf), |leaf| spec.name_of(leaf, parameter))?;
        }
        let session = &prepared.program.session;
        // On a synchronous device, host arrays are used in place.
        let hosts = gathered.spans.iter().any(|s| s.host) || !gathered.hosted.is_empty();
        let tells = !session.device().is_immediate() && hosts;
        let arrays = if tells { spec.host_arrays(gathered) } else { SmallVec::new() };
        for &handle in &gathered.ready_on {
            let stream = stream.unwrap_or_else(|| session.device().default_stream());
            stream.wait_for_handle(handle).map_err(|e| errors::from_engine(py, e.into()))?;
        }
        if runtime::nesting::capturing() {
            captured_graph::hold(gathered);
        }
        detached::before_launch(py);
        if !self.library {
            LAST_TASKS.store(spec.code.task_count(), Ordering::Relaxed);
        }
        let interpreter = Interpreter::of_launch(py, flats);
        if !spec.split.is_empty() {
            self.check_split(py, spec, gathered)?;
        }
        let split = gathered.split_launch.as_deref().filter(|launch| !launch.is_whole());
        let split = split.map(|launch| SplitDispatcher::new(&interpreter, launch));
        let dispatching = split.as_ref().map(|split| DispatchingCaller { caller: &interpreter, dispatcher: split });
        let caller: &dyn Caller = dispatching.as_ref().map_or(&interpreter, |dispatching| dispatching);
        let _in_order = (!self.concurrent).then(concurrency::keep_order);
        let mut ended_at = None;
        // SAFETY: the slots were filled by the layout of this code, from arrays that the caller's arguments, `gathered`
        // and the specialization keep alive, and whose extents they report.
        let end = unsafe {
            if let Some(step) = &gathered.host_step {
                let follows =
                    gathered.follows.as_ref().map(|Follows { order, counters }| (order.as_deref(), &**counters));
                let given = (&slots[..], &arrays[..]);
                let noted = session.capture_host_launch(follows, &spec.code, given, (stream, caller), step.clone());
                noted.map(|()| None)
            } else if let Some(group) = &gathered.group_launch {
                group.launch(spec, (slots, &arrays), &interpreter)
            } else if let Some(Follows { order, counters }) = &gathered.follows {
                let follows = (order.as_deref(), &**counters);
                session.launch_following(follows, &spec.code, slots, &arrays, stream, caller)
            } else if spec.checkpoints.is_empty() {
                session.launch(&spec.code, slots, &arrays, stream, caller)
            } else {
                let end = session.launch_from(&spec.code, slots, &arrays, stream, gathered.resumes_at, caller);
                end.map(|at| {
                    ended_at = at;
                    None
                })
            }
        };
        drop(split);
        let interrupted = interpreter.take();
        program::write_printed(py)?;
        if let Some(raised) = interrupted {
            return Err(raised);
        }
        if !gathered.copied.is_empty() {
            gathered.copy_back(py, stream, &prepared.program, |leaf| spec.writes(leaf))?;
        }
        match end {
            Ok(None) if !spec.checkpoints.is_empty() => spec.graph_status(py, ended_at),
            Ok(None) => Ok(py.None()),
            Ok(Some(results)) => spec.result.build(py, results.slots()),
            Err(error) => Err(errors::from_engine(py, error)),
        }
    }

    /// Begins a launch on split arrays: on several devices, or on the one of this rank.
    #[cold]
    fn begin_split<'py>(
        &self,
        py: Python<'py>,
        prepared: &Prepared,
        spec: &Arc<Specialization>,
        (gathered, args, slots): (&mut Gathered<'py>, &[Bound<'py, PyAny>], &Slots),
        (stream, mode): (Option<&runtime::Stream>, AutodiffMode),
    ) -> PyResult<()> {
        let program = &prepared.program;
        let runs = matches!(mode, AutodiffMode::None | AutodiffMode::Reverse);
        if runs && runtime::nesting::capturing() {
            gathered.host_step = captured_split::capture(program, spec, (gathered, args, slots), stream, py)?;
            if gathered.host_step.is_some() {
                return Ok(());
            }
        }
        let Some(group) = DeviceGroup::led_by(program.serial) else {
            gathered.split_launch = split_launch::begin(spec, args, slots, program, (stream, mode), py)?;
            return Ok(());
        };
        if !runs {
            return Err(self.not_recorded(py));
        }
        let launch = GroupLaunch::begin(group, spec, (gathered, args, slots), stream, py)?;
        gathered.group_launch = Some(Box::new(launch));
        Ok(())
    }

    /// Rejects launches on split arrays in which other ranks cannot take part.
    #[cold]
    fn check_split(&self, py: Python<'_>, spec: &Specialization, gathered: &Gathered<'_>) -> PyResult<()> {
        let runs = gathered.split_launch.is_some() || gathered.group_launch.is_some() || gathered.host_step.is_some();
        if runs || split_launch::is_alone(spec, py)? {
            return Ok(());
        }
        Err(self.not_recorded(py))
    }

    fn not_recorded(&self, py: Python<'_>) -> PyErr {
        let (over, what) = match DeviceGroup::led_by(program::current_serial()) {
            Some(_) => ("several devices", "recorded for a gradient"),
            None => ("ranks", "validated, or differentiated in forward mode"),
        };
        let name = &self.name;
        let text = format!("kernel `{name}` uses an array that is split over {over}: its launches cannot be {what}");
        errors::runtime_error(py, text)
    }
}

/// Records copies of the counters that a captured launch changes, if it may be differentiated: its gradient starts from
/// them. Keeps the memory of its trip counts too.
#[cold]
pub(super) fn save_counters(
    py: Python<'_>,
    prepared: &Prepared,
    (spec, slots): (&Specialization, &Slots),
    trips: Option<runtime::Buffer>,
    stream: Option<&runtime::Stream>,
) -> PyResult<()> {
    let may_have_gradient = spec.may_have_gradient || spec.may_alias;
    let is_saved = spec.code.has_counters()
        && (may_have_gradient || Package::get(py)?.any_gradients.bind(py).call0()?.is_truthy()?);
    if !is_saved && trips.is_none() {
        return Ok(());
    }
    let session = &prepared.program.session;
    let saved = match is_saved {
        true => session.save_counters(&spec.code, slots, stream, &Interpreter::held(py)),
        false => Ok(runtime::CounterSnapshot::default()),
    };
    let saved = saved.and_then(|saved| Ok(saved.with_trips(trips)?));
    captured_graph::note_counters(Arc::new(saved.map_err(|e| errors::from_engine(py, e))?));
    Ok(())
}
