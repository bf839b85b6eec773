//! [`CapturedGraph`]: launches that threads record instead of executing, and that run as one graph.
//!
//! The runtime keeps code, device memory and argument slots. This file keeps the calls that they came from, so that a
//! call can be repeated with other arguments, and the objects whose memory the launches use.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use octants_engine::artifact::SavedMemory;
use octants_engine::ir::AutodiffMode;
use octants_engine::runtime::{self, CounterSnapshot, ErrorKind, ExchangedCounters, MovedPart, nesting};
use pyo3::exceptions::PyValueError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::argument::Gathered;
use crate::buffer::Buffer;
use crate::gradient_order::GradientOrder;
use crate::host_step::HostStep;
use crate::interpreter::Interpreter;
use crate::kernel::Kernel;
use crate::ndarray::Ndarray;
use crate::program::{self, Program};
use crate::stream::{Kind, OnDevice, Stream, lock, stream_or_current};
use crate::waiting::raised;
use crate::{detached, errors};

/// A call of a kernel.
struct Call {
    kernel: Py<Kernel>,
    args: Vec<Py<PyAny>>,
    stream: Option<runtime::Stream>,
    mode: AutodiffMode,
    /// Its index among the steps.
    step: usize,
    /// Objects that its launch keeps alive, besides the arguments.
    held: Vec<Py<PyAny>>,
    /// The counters of its loops before the launch, for its gradient.
    counters: Arc<CounterSnapshot>,
}

/// The calls that a thread has recorded since its capture began.
#[derive(Default)]
struct Notes {
    calls: Vec<Call>,
    held: Vec<Py<PyAny>>,
    /// The counters that the next launch changes.
    counters: Option<Arc<CounterSnapshot>>,
}

thread_local! {
    static NOTES: RefCell<Option<Notes>> = const { RefCell::new(None) };
    static REPEATED: RefCell<Option<Arc<CounterSnapshot>>> = const { RefCell::new(None) };
}

/// Makes a call, and records it if this thread is capturing.
pub fn noting<'py>(
    kernel: &Bound<'py, Kernel>,
    args: &[Bound<'py, PyAny>],
    (stream, mode): (Option<&runtime::Stream>, AutodiffMode),
    call: impl FnOnce() -> PyResult<Py<PyAny>>,
) -> PyResult<Py<PyAny>> {
    let _ = runtime::Capture::take_last_step();
    let result = call()?;
    let Some(step) = runtime::Capture::take_last_step() else { return Ok(result) };
    let mut members = Vec::new();
    args.iter().try_for_each(|arg| hold_members(arg, &mut members))?;
    NOTES.with_borrow_mut(|notes| {
        if let Some(notes) = notes {
            let mut held = std::mem::take(&mut notes.held);
            held.append(&mut members);
            let args = args.iter().map(|a| a.clone().unbind()).collect();
            let counters = notes.counters.take().unwrap_or_default();
            let (kernel, stream) = (kernel.clone().unbind(), stream.cloned());
            notes.calls.push(Call { kernel, args, stream, mode, step, held, counters });
        }
    });
    Ok(result)
}

/// The counters of the call that this thread repeats with other arguments, if it does.
pub fn repeated_counters() -> Option<Arc<CounterSnapshot>> {
    REPEATED.with_borrow(Clone::clone)
}

/// Keeps the counters of the launch that this thread is about to record.
pub fn note_counters(counters: Arc<CounterSnapshot>) {
    NOTES.with_borrow_mut(|notes| {
        if let Some(notes) = notes {
            notes.counters = Some(counters);
        }
    });
}

/// Keeps a launch's objects alive if this thread is capturing.
#[cold]
pub fn hold(gathered: &Gathered<'_>) {
    hold_objects(&gathered.held);
}

/// Keeps the arguments of a launch that is never repeated with others alive.
#[cold]
pub fn hold_arguments(args: &[Bound<'_, PyAny>]) {
    hold_objects(args);
}

fn hold_objects<'a, 'py: 'a>(objects: impl IntoIterator<Item = &'a Bound<'py, PyAny>>) {
    NOTES.with_borrow_mut(|notes| {
        if let Some(notes) = notes {
            notes.held.extend(objects.into_iter().map(|o| o.clone().unbind()));
        }
    });
}

/// Members of a dataclass. User code may assign to them while the graph uses their memory.
fn hold_members<'py>(of: &Bound<'py, PyAny>, held: &mut Vec<Py<PyAny>>) -> PyResult<()> {
    // A failed attribute lookup takes longer than recording the launch.
    if of.is_instance_of::<PyFloat>() || of.is_instance_of::<PyInt>() || of.is_instance_of::<Ndarray>() {
        return Ok(());
    }
    let Some(fields) = of.get_type().getattr_opt(pyo3::intern!(of.py(), "__dataclass_fields__"))? else {
        return Ok(());
    };
    for name in fields.try_iter()? {
        let member = of.getattr(name?.cast_into::<PyString>()?)?;
        hold_members(&member, held)?;
        held.push(member.unbind());
    }
    Ok(())
}

/// Whether this thread is capturing.
#[pyfunction]
pub fn capturing() -> bool {
    nesting::capturing()
}

/// Calls a function as if this thread captured nothing.
#[pyfunction]
pub fn uncaptured<'py>(function: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    nesting::outside_of_captures(|| function.call0())
}

/// Named memory: its name, its description, and the memory.
type Named<'py> = (String, String, Bound<'py, Buffer>);
/// Buffer and first byte of the memory to replace, the same of its replacement, the size in bytes, and the owner of the
/// replacement.
type Moved<'py> = ((Bound<'py, Buffer>, u64), (Bound<'py, Buffer>, u64), u64, Bound<'py, PyAny>);
/// Memory, its replacement, and the replacement's owner.
type Exchanged<'py> = (Bound<'py, Buffer>, Bound<'py, Buffer>, Bound<'py, PyAny>);
/// The name of memory, the memory, and its owner.
type Given<'py> = (String, Bound<'py, Buffer>, Bound<'py, PyAny>);

/// A capture in progress, or a finished one.
#[pyclass(module = "octants._octants", frozen, weakref)]
pub struct CapturedGraph {
    program: Arc<Program>,
    capture: Arc<runtime::Capture>,
    graph: OnceLock<runtime::CapturedGraph>,
    calls: Mutex<Vec<Call>>,
    /// Objects to keep alive that no call holds.
    held: Mutex<Vec<Py<PyAny>>>,
}

impl CapturedGraph {
    /// A step that calls a Python function with the stream of the graph's launch.
    fn calling(&self, function: Py<PyAny>) -> Arc<runtime::HostStep> {
        let serial = self.program.serial;
        HostStep::make(move |py, stream| {
            let stream = Stream::of_program(serial, stream.clone(), Kind::Wrapped);
            function.bind(py).call1((stream,)).map(drop)
        })
    }

    fn graph(&self, py: Python<'_>) -> PyResult<&runtime::CapturedGraph> {
        let ended = "the capture has not ended: launch a graph after the `with` block that captures it";
        self.graph.get().ok_or_else(|| errors::runtime_error(py, ended))
    }

    /// Repeats calls with other arguments in a separate capture. Returns the record of each.
    fn capture_again(
        &self,
        py: Python<'_>,
        calls: &[(usize, Bound<'_, PyTuple>)],
    ) -> PyResult<(Vec<Call>, Arc<runtime::Capture>)> {
        let _here = OnDevice::of(self.program.serial);
        let again = self.program.session.device().capture().map_err(|e| raised(py, e))?;
        again.begin_here().map_err(|e| raised(py, e))?;
        NOTES.set(Some(Notes::default()));
        let run = |(call, args): &(usize, Bound<'_, PyTuple>)| {
            let clone = |c: &Call| (c.kernel.clone_ref(py), c.stream.clone(), c.mode, c.counters.clone());
            let Some((kernel, stream, mode, counters)) = lock(&self.calls).get(*call).map(clone) else {
                return Err(PyValueError::new_err("no such call was captured"));
            };
            REPEATED.set(Some(counters));
            let result = Kernel::run(kernel.bind(py), args.as_slice(), stream, mode);
            REPEATED.set(None);
            result.map(drop)
        };
        let end = calls.iter().try_for_each(run);
        again.end_here();
        let noted = NOTES.take().map(|notes| notes.calls).unwrap_or_default();
        end?;
        if noted.len() != calls.len() {
            return Err(PyValueError::new_err("a call launches nothing with these arguments"));
        }
        Ok((noted, again))
    }
}

#[pymethods]
impl CapturedGraph {
    #[new]
    fn new(py: Python<'_>) -> PyResult<CapturedGraph> {
        let program = program::require(py)?;
        let capture = program.session.device().capture().map_err(|e| raised(py, e))?;
        Ok(CapturedGraph { program, capture, graph: OnceLock::new(), calls: Mutex::default(), held: Mutex::default() })
    }

    /// The number of its program.
    #[getter]
    fn serial(&self) -> u64 {
        self.program.serial
    }

    /// Starts a capture on this thread.
    fn begin(&self, py: Python<'_>) -> PyResult<()> {
        if self.graph.get().is_some() {
            return Err(errors::runtime_error(
                py,
                "this capture has ended, and a graph cannot be extended: capture another",
            ));
        }
        self.capture.begin_here().map_err(|e| raised(py, e))?;
        NOTES.set(Some(Notes::default()));
        Ok(())
    }

    /// Ends what `begin` began, on the same thread.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        if !self.capture.end_here() {
            return Err(errors::runtime_error(py, "a capture must end on the thread on which it began"));
        }
        if let Some(notes) = NOTES.take() {
            lock(&self.calls).extend(notes.calls);
            lock(&self.held).extend(notes.held);
        }
        Ok(())
    }

    /// Builds a graph from the recorded launches.
    fn finish(&self) {
        let _ = self.graph.set(runtime::CapturedGraph::of(&self.capture));
    }

    /// Launches the graph on a stream, by default the current one.
    #[pyo3(signature = (stream = None))]
    fn launch(slf: &Bound<'_, Self>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let graph = this.graph(py)?;
        let _here = OnDevice::of(this.program.serial);
        let _call = this.program.begin_call();
        let stream = stream_or_current(py, stream)?;
        detached::before_launch(py);
        let interpreter = Interpreter::held(py);
        let perform = |step: &runtime::HostStep| {
            let performed = interpreter.attached(|py| HostStep::perform(step, py, &stream));
            Ok(performed.ok_or(ErrorKind::Interrupted)?)
        };
        // SAFETY: the launches use buffers of the device, and objects that the recorded calls hold.
        let launch = || unsafe { stream.launch_graph_with(graph, &interpreter, &perform) };
        let checked = this.program.session.device().check_graph(&stream, graph, &interpreter);
        let end = checked.and_then(|()| launch());
        let waits = this.program.session.waits_after(&stream);
        let wait = || if waits { nesting::unnoticed(|| stream.synchronize(&interpreter)) } else { Ok(()) };
        let end = end.and_then(|()| wait());
        let interrupted = interpreter.take();
        program::write_printed(py)?;
        if let Some(raised) = interrupted {
            return Err(raised);
        }
        end.map_err(|e| raised(py, e))?;
        if nesting::capturing() {
            // Its steps are now those of another graph too.
            hold_objects([slf.as_any()]);
        }
        Ok(())
    }

    /// Records a launch of another library's graph, given by its handle, on a stream, and keeps the graph's owner
    /// alive.
    #[pyo3(signature = (handle, holder, stream = None))]
    fn add_foreign(
        &self,
        py: Python<'_>,
        handle: u64,
        holder: &Bound<'_, PyAny>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let stream = stream_or_current(py, stream)?;
        // SAFETY: the user guarantees that the handle is a graph of the device. Its owner and its memory are kept
        // alive.
        unsafe { stream.add_foreign_graph(handle) }.map_err(|e| raised(py, e))?;
        hold_objects([holder]);
        Ok(())
    }

    /// Records a step that calls a function with the stream of the graph's launch. `collective` is what all ranks do
    /// together there.
    #[pyo3(signature = (name, collective, function, stream = None))]
    fn add_host_step(
        &self,
        py: Python<'_>,
        name: &str,
        collective: Option<&str>,
        function: Py<PyAny>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let stream = stream_or_current(py, stream)?;
        let step = self.calling(function);
        stream.capture_host_step(name, collective, step).map_err(|e| raised(py, e))
    }

    /// Exchanges a step that `add_host_step` recorded.
    fn exchange_host_step(
        &self,
        py: Python<'_>,
        step: usize,
        name: &str,
        collective: Option<&str>,
        function: Py<PyAny>,
    ) -> PyResult<()> {
        let (graph, by) = (self.graph(py)?, self.calling(function));
        py.detach(|| graph.exchange_host(step, (name, collective), by));
        Ok(())
    }

    /// What all ranks do together at the steps of the host, in order.
    fn collectives(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let graph = self.graph(py)?;
        Ok(py.detach(|| graph.collectives()))
    }

    /// Number of steps recorded so far, by all threads.
    fn noted_steps(&self) -> usize {
        self.capture.noted_steps()
    }

    /// Whether memory was allocated in the capture.
    fn owns(&self, py: Python<'_>, buffer: &Buffer) -> PyResult<bool> {
        let (graph, memory) = (self.graph(py)?, buffer.memory());
        Ok(py.detach(|| graph.owns(memory)))
    }

    /// Whether it saves counters of loops for its gradient.
    fn saves_counters(&self) -> bool {
        lock(&self.calls).iter().any(|call| !call.counters.is_empty())
    }

    /// Records the gradient of a call if this thread is capturing, in its place within a gradient order.
    fn launch_gradient(&self, py: Python<'_>, call: usize, order: &Bound<'_, GradientOrder>) -> PyResult<()> {
        let known = {
            let calls = lock(&self.calls);
            let clone = |c: &Call| {
                let args: Vec<_> = c.args.iter().map(|a| a.clone_ref(py)).collect();
                (c.kernel.clone_ref(py), args, c.stream.clone(), c.mode, c.counters.clone())
            };
            calls.get(call).map(clone)
        };
        let Some((kernel, args, stream, mode, counters)) = known else {
            return Err(PyValueError::new_err("no such call was captured"));
        };
        if mode != AutodiffMode::None {
            let text = "a captured graph has no gradient if a derivative is among its launches";
            return Err(errors::runtime_error(py, text));
        }
        let args: Vec<_> = args.into_iter().map(|a| a.into_bound(py)).collect();
        let _here = OnDevice::of(self.program.serial);
        Kernel::run_gradient(kernel.bind(py), &args, stream, (order.get().0.clone(), counters.clone()))?;
        NOTES.with_borrow_mut(|notes| {
            if let Some(call) = notes.as_mut().and_then(|notes| notes.calls.last_mut()) {
                call.counters = counters;
            }
        });
        Ok(())
    }

    /// Kernel, parameters, arguments and step index of each recorded call.
    fn calls<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let calls: Vec<_> = lock(&self.calls)
            .iter()
            .map(|c| (c.kernel.clone_ref(py), c.args.iter().map(|a| a.clone_ref(py)).collect::<Vec<_>>(), c.step))
            .collect();
        let list = PyList::empty(py);
        for (kernel, args, step) in calls {
            let kernel = kernel.bind(py);
            list.append((kernel, kernel.get().parameters(py)?, PyTuple::new(py, args)?, step))?;
        }
        Ok(list)
    }

    /// Repeats recorded calls with other arguments, for later launches of the graph. If one fails, none is replaced.
    /// True for each call that launches the same code.
    fn exchange(&self, py: Python<'_>, calls: Vec<(usize, Bound<'_, PyTuple>)>) -> PyResult<Vec<bool>> {
        let graph = self.graph(py)?;
        let (mut made, again) = self.capture_again(py, &calls)?;
        // A thread that launches the graph may need the interpreter.
        let known = lock(&self.calls);
        let places: Option<Vec<usize>> = calls.iter().map(|(call, _)| Some(known.get(*call)?.step)).collect();
        let places = places.ok_or_else(|| PyValueError::new_err("no such call was captured"))?;
        let exchanged = |((call, _), new): (&(usize, _), &Call)| match &known[*call] {
            Call { mode: AutodiffMode::None, counters, .. } => {
                ExchangedCounters::Saved { before: counters.clone(), now: new.counters.clone() }
            }
            gradient => ExchangedCounters::Restored(gradient.counters.clone()),
        };
        let mut counters: Vec<_> = calls.iter().zip(&made).map(exchanged).collect();
        drop(known);
        let same = py.detach(|| graph.exchange(&places, &again, &mut counters)).map_err(|e| raised(py, e))?;
        let mut known = lock(&self.calls);
        for ((((call, _), step), new), counters) in calls.iter().zip(places).zip(&mut made).zip(counters) {
            new.step = step;
            new.counters = match counters {
                ExchangedCounters::Saved { now, .. } => now,
                ExchangedCounters::Restored(counters) => counters,
            };
            std::mem::swap(&mut known[*call], new);
        }
        drop(known);
        let old = made;
        // Outside the lock: dropping Python objects may run Python code. Queued work may still use them; waits for it
        // if the memory is not the device's own.
        drop(old);
        Ok(same)
    }

    /// Serializes the graph for other processes. Its steps may use only named memory and the graph's own.
    fn save<'py>(&self, py: Python<'py>, named: Vec<Named<'py>>) -> PyResult<Bound<'py, PyBytes>> {
        let graph = self.graph(py)?;
        let named: Vec<_> = named.into_iter().map(|(name, what, b)| (name, what, b.get().memory().clone())).collect();
        let interpreter = Interpreter::held(py);
        let saved = self.program.session.save_graph(graph, &named, &interpreter);
        if let Some(raised) = interpreter.take() {
            return Err(raised);
        }
        saved.map(|bytes| PyBytes::new(py, &bytes)).map_err(|e| errors::from_engine(py, e))
    }

    /// Loads a graph from the bytes that `save` returned. `find` maps names and descriptions of memory to the memory
    /// and its owner.
    #[staticmethod]
    fn load(py: Python<'_>, bytes: &[u8], find: &Bound<'_, PyAny>) -> PyResult<CapturedGraph> {
        let this = CapturedGraph::new(py)?;
        let session = &this.program.session;
        let saved = session.read_graph(bytes).map_err(|e| errors::from_engine(py, e))?;
        let names = saved.memory.iter().filter_map(|m| match m {
            SavedMemory::Named { name, what, .. } => Some((name.as_str(), what.as_str())),
            SavedMemory::Own { .. } => None,
        });
        let (mut named, mut held) = (HashMap::new(), Vec::new());
        for (name, buffer, holder) in find.call1((names.collect::<Vec<_>>(),))?.extract::<Vec<Given<'_>>>()? {
            named.insert(name, buffer.get().memory().clone());
            held.push(holder.unbind());
        }
        let graph = session.load_graph(&saved, &named).map_err(|e| errors::from_engine(py, e))?;
        let _ = this.graph.set(graph);
        *lock(&this.held) = held;
        Ok(this)
    }

    /// Replaces memory that steps use, and keeps the owners of the replacement alive.
    fn rebind(&self, py: Python<'_>, pairs: Vec<Exchanged<'_>>) -> PyResult<()> {
        let memory = |b: &Bound<'_, Buffer>| b.get().memory().clone();
        let buffers: Vec<_> = pairs.iter().map(|(from, to, _)| (memory(from), memory(to))).collect();
        let graph = self.graph(py)?;
        py.detach(|| graph.rebind(&buffers)).map_err(|e| raised(py, e))?;
        lock(&self.held).extend(pairs.into_iter().map(|(_, _, holder)| holder.unbind()));
        Ok(())
    }

    /// How many fills and copies begin in `bytes` of a buffer, from byte `first` on.
    fn transfers(&self, py: Python<'_>, buffer: &Buffer, first: u64, bytes: u64) -> PyResult<usize> {
        let (graph, memory) = (self.graph(py)?, buffer.memory());
        Ok(py.detach(|| graph.transfers(memory, first, bytes)))
    }

    /// Lets fills and copies use other memory, and keeps its owners alive.
    fn move_transfers(&self, py: Python<'_>, parts: Vec<Moved<'_>>) -> PyResult<()> {
        let part = |((from, from_first), (to, to_first), bytes, _): &Moved<'_>| MovedPart {
            from: from.get().memory().clone(),
            to: to.get().memory().clone(),
            first: (*from_first, *to_first),
            bytes: *bytes,
        };
        let moved: Vec<MovedPart> = parts.iter().map(part).collect();
        let graph = self.graph(py)?;
        py.detach(|| graph.move_transfers(&moved)).map_err(|e| raised(py, e))?;
        lock(&self.held).extend(parts.into_iter().map(|(.., holder)| holder.unbind()));
        Ok(())
    }

    /// The description of each step, its lane, and the steps that it depends on.
    fn steps(&self, py: Python<'_>) -> PyResult<Vec<(String, usize, Vec<usize>)>> {
        let graph = self.graph(py)?;
        Ok(py.detach(|| graph.describe()))
    }

    /// Number of times that the device's graph was rebuilt.
    #[getter]
    fn makes(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.graph.get().map_or(0, runtime::CapturedGraph::makes))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Ok(calls) = self.calls.try_lock() else { return Ok(()) };
        for call in calls.iter() {
            visit.call(&call.kernel)?;
            call.args.iter().chain(&call.held).try_for_each(|a| visit.call(a))?;
        }
        match self.held.try_lock() {
            Ok(held) => held.iter().try_for_each(|h| visit.call(h)),
            Err(_) => Ok(()),
        }
    }

    fn __clear__(&self) {
        let old = (std::mem::take(&mut *lock(&self.calls)), std::mem::take(&mut *lock(&self.held)));
        // Outside the locks: dropping Python objects may run Python code.
        drop(old);
    }
}
