//! [`Lanes`]: launches on the default stream that run concurrently when their accesses do not conflict.
//!
//! With concurrency on, a launch on the default stream goes to one of a few streams, its lane, after the earlier
//! launches that it conflicts with. Two launches conflict if both touch an element of a buffer and at least one writes
//! to it. Results are those of the default stream. Conflicts are found per buffer, and within a buffer from the access
//! sets of both launches, evaluated for their arguments.
//!
//! Rounds of launches that a program repeats become graphs with the same order: see `cycle`.
//!
//! Reading order: `word_hash`, `elements`, `remembered`, `decisions`, `placement`, `cycle`, `temporaries`,
//! `fuse_launches`, `make_graph`.
//!
//! Any other operation on the default stream runs after all lanes, and later launches run after that operation: the
//! stream *settles* during its turn (`StreamCore::wait_turn`). Launches that involve the host stay on the default
//! stream: those that return values, print or assert (except for checks of a faulty device), draw random numbers, take
//! host arrays, or use memory that another library may use.

mod cycle;
mod decisions;
pub(crate) mod elements;
mod fuse_launches;
mod make_graph;
mod placement;
mod remembered;
mod temporaries;
mod word_hash;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use cycle::{Expected, Held, History};
pub use decisions::Decision;
use decisions::described;
use elements::given_buffers;
pub use fuse_launches::Fusion;
use fuse_launches::Making;
use make_graph::graph_of;
use placement::State;
use temporaries::Ready;

use crate::buffer::Buffer;
use crate::caller::Caller;
use crate::capture::CapturedLaunch;
use crate::cores::{BufferCore, LaunchesElsewhere, StreamCore};
use crate::driver::{Driver, EventHandle};
use crate::error::Result;
use crate::fusion::Fuser;
use crate::kernel::{LoadedKernel, Pointer};
use crate::nesting::{self, Submitting};
use crate::report::lock;
use crate::stream::{Results, Stream};

/// Lanes of a device.
const LANES: usize = 8;

/// Identifies a graph of a round: its first launch, and whether launches of it may be fused.
#[derive(Clone, Copy)]
struct GraphId {
    round: u64,
    at: (usize, bool),
}

/// A device's lanes.
pub(crate) struct Lanes {
    state: Mutex<State>,
    /// Whether launches were queued on lanes since the default stream was last ordered after all of them.
    open: AtomicBool,
    /// The history is not empty.
    holding: AtomicBool,
    /// The default stream.
    home: Weak<StreamCore>,
}

impl Lanes {
    /// For a default stream, which has its turn.
    pub(crate) fn of(home: &Arc<StreamCore>) -> Lanes {
        let (open, holding) = (AtomicBool::new(false), AtomicBool::new(false));
        Lanes { state: Mutex::default(), open, holding, home: Arc::downgrade(home) }
    }

    /// This thread's launches on the stream may go to lanes.
    #[inline]
    pub(crate) fn take(&self, stream: &Stream) -> bool {
        let device = &stream.core().device;
        let asked = || nesting::concurrency().unwrap_or_else(|| device.mode().is_concurrent());
        stream.number() == 0 && nesting::is_plain() && asked() && !device.is_closed()
    }

    /// Launches on a lane. `None` if the launch must stay on the default stream.
    ///
    /// # Safety
    /// As [`Stream::launch`]; `home` is the default stream.
    pub(crate) unsafe fn launch(
        &self,
        home: &Arc<StreamCore>,
        kernel: &LoadedKernel,
        args: &[u64],
        (caller, fuser): (&dyn Caller, Option<&dyn Fuser>),
    ) -> Result<Option<Option<Results>>> {
        let device = &home.device;
        let mut state = lock(&self.state);
        if kernel.stays_in_order || args.len() != kernel.meta.arg_slots as usize {
            state.note_at_home(kernel);
            return Ok(None);
        }
        if self.holding.load(Ordering::Acquire) {
            match self.hold(state, home, (kernel, args), caller, fuser)? {
                Some(unlocked) => state = unlocked,
                None => return Ok(Some(None)),
            }
        }
        let Some(given) = state.given(device, kernel, args) else {
            state.note_at_home(kernel);
            return Ok(None);
        };
        state = self.open(state, home, caller)?;
        state.retire(device, caller)?;
        let depends_on = state.conflicts(kernel, args, &given);
        let lane = state.choose_lane(device, kernel, &depends_on)?;
        state.order(&*device.driver, lane, &depends_on)?;
        let event = match state.idle_events.pop() {
            Some(event) => event,
            None => device.driver.create_event(false)?,
        };
        // SAFETY: the caller's contract.
        let results = unsafe { state.lanes[lane].stream.launch_given(kernel, args, &given, caller) };
        // Also after a partially failed launch.
        let marked = state.mark(&*device.driver, lane, event);
        if marked.is_ok() {
            state.note((lane, event, &depends_on), (kernel, args), &given);
            let fuses = fuser.is_some_and(|fuser| fuser.is_on());
            state.history.note((kernel, args), fuses, || captured(kernel, args, &given));
            self.holding.store(true, Ordering::Release);
        }
        state.give_back(given);
        results.and_then(|results| marked.map(|()| Some(results)))
    }

    /// Holds a launch that is expected, or launches the graph that it completes. Returns the state if it must be
    /// launched individually.
    fn hold<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        home: &Arc<StreamCore>,
        (kernel, args): (&LoadedKernel, &[u64]),
        caller: &dyn Caller,
        fuser: Option<&dyn Fuser>,
    ) -> Result<Option<MutexGuard<'a, State>>> {
        if state.history.is_free() {
            return Ok(Some(state));
        }
        let fuser = fuser.filter(|fuser| fuser.is_on());
        if let Some(ready) = state.history.ready.take() {
            drop(state);
            self.launch_ready(home, ready, caller)?;
            state = lock(&self.state);
        }
        let capture = || Some(captured(kernel, args, &given_buffers(&home.device, kernel, args)?));
        match state.history.take((kernel, args), fuser.is_some(), capture) {
            Expected::Held => Ok(None),
            Expected::Alone => {
                state.replays += 1;
                drop(state);
                let _submitting = Submitting::begin();
                // SAFETY: the caller's contract.
                unsafe { Stream::of(home.clone()).launch(kernel, args, caller)? };
                Ok(None)
            }
            Expected::Complete(graph) => {
                state.replays += 1;
                drop(state);
                let _submitting = Submitting::begin();
                // SAFETY: the buffers are the device's, which the graph keeps.
                unsafe { Stream::of(home.clone()).launch_graph(&graph, caller)? };
                Ok(None)
            }
            Expected::Make(id, launches) => {
                drop(state);
                self.make_graph(home, (id, launches), caller, fuser).map(|()| None)
            }
            Expected::Prepare(id, launches, temporaries) => {
                drop(state);
                self.prepare_graph(home, (id, launches, temporaries), caller, fuser).map(|()| None)
            }
            Expected::Not(held) if held.is_empty() => Ok(Some(state)),
            Expected::Not(held) => {
                drop(state);
                submit(home, held, caller)?;
                Ok(Some(lock(&self.state)))
            }
        }
    }

    /// Makes a graph of launches, and launches it. Nothing is locked meanwhile, because a kernel may be compiled.
    #[cold]
    fn make_graph(
        &self,
        home: &Arc<StreamCore>,
        (id, launches): (GraphId, Held),
        caller: &dyn Caller,
        fuser: Option<&dyn Fuser>,
    ) -> Result<()> {
        if fuser.is_some() {
            caller.will_block();
        }
        let making = Making { device: &home.device, fuser, temporaries: &[] };
        let Some(made) = graph_of(&making, &launches) else {
            self.submit_held(History::give_up, caller);
            return submit(home, launches, caller);
        };
        let graph = made.graph.clone();
        lock(&self.state).history.keep_graph(id, graph.clone());
        let _submitting = Submitting::begin();
        // SAFETY: the buffers are the device's, which the graph keeps.
        unsafe { Stream::of(home.clone()).launch_graph(&graph, caller)? };
        let mut state = lock(&self.state);
        state.replays += 1;
        state.decide_graph(made);
        Ok(())
    }

    /// Makes a graph without the temporaries of its launches. It is launched when no one can read them any more.
    #[cold]
    fn prepare_graph(
        &self,
        home: &Arc<StreamCore>,
        (id, launches, temporaries): (GraphId, Held, Vec<u64>),
        caller: &dyn Caller,
        fuser: Option<&dyn Fuser>,
    ) -> Result<()> {
        caller.will_block();
        let making = Making { device: &home.device, fuser, temporaries: &temporaries };
        let Some(made) = graph_of(&making, &launches) else {
            lock(&self.state).note_fusion(Fusion::of_needed_temporaries(&launches));
            self.submit_held(History::give_up, caller);
            return submit(home, launches, caller);
        };
        let mut state = lock(&self.state);
        let graph = made.graph.clone();
        state.history.keep_graph(id, graph.clone());
        state.history.ready = Some(Ready { id, graph, made: Some(made), launches, temporaries });
        Ok(())
    }

    /// Launches a graph if no one can read the temporaries that it does not store; otherwise its launches.
    fn launch_ready(&self, home: &Arc<StreamCore>, ready: Ready, caller: &dyn Caller) -> Result<()> {
        if !ready.is_unobserved() {
            let mut state = lock(&self.state);
            let held = if state.history.expects(ready.id) { state.history.give_up() } else { Held::new() };
            drop(state);
            submit(home, ready.launches, caller)?;
            return submit(home, held, caller);
        }
        let submitting = Submitting::begin();
        // SAFETY: the buffers are the device's, which the graph keeps.
        unsafe { Stream::of(home.clone()).launch_graph(&ready.graph, caller)? };
        drop(submitting);
        let mut state = lock(&self.state);
        state.replays += 1;
        ready.made.into_iter().for_each(|made| state.decide_graph(made));
        Ok(())
    }

    #[cold]
    fn submit_held(&self, take: impl FnOnce(&mut History) -> Held, caller: &dyn Caller) {
        let Some(home) = self.home.upgrade().filter(|home| !home.device.is_closed()) else { return };
        let ready = lock(&self.state).history.ready.take();
        if let Some(ready) = ready {
            let _ = self.launch_ready(&home, ready, caller);
        }
        let held = take(&mut lock(&self.state).history);
        // A driver that refuses a launch here also refuses later ones.
        let _ = submit(&home, held, caller);
    }

    /// How many times a round was launched as a graph.
    pub(crate) fn replays(&self) -> u64 {
        lock(&self.state).replays
    }

    /// Opens the lanes, after the work that the default stream has queued.
    fn open<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        home: &Arc<StreamCore>,
        caller: &dyn Caller,
    ) -> Result<MutexGuard<'a, State>> {
        if self.open.load(Ordering::Acquire) {
            return Ok(state);
        }
        drop(state);
        // The turn keeps another thread's work on the default stream from slipping in after the event.
        let turn = home.wait_turn(caller);
        let mut state = lock(&self.state);
        if !self.open.load(Ordering::Acquire) {
            let driver = &*home.device.driver;
            let event = match state.opening {
                Some(event) => event,
                None => driver.create_event(false)?,
            };
            state.opening = Some(event);
            // SAFETY: the default stream lives as long as the device, and the event belongs to the lanes.
            unsafe { driver.record_event(home.handle, event)? };
            state.openings += 1;
            self.open.store(true, Ordering::Release);
        }
        drop(turn);
        Ok(state)
    }

    /// The decisions and fusions since the last query.
    pub(crate) fn take_decisions(&self) -> (Vec<Decision>, Vec<Fusion>) {
        let mut state = lock(&self.state);
        let (decided, fusions) = (state.report(), std::mem::take(&mut state.fusions));
        drop(state);
        (described(&decided), fusions)
    }
}

impl LaunchesElsewhere for Lanes {
    #[inline]
    fn cut(&self, caller: &dyn Caller) {
        if self.holding.load(Ordering::Acquire) && !nesting::submitting() {
            self.submit_held(History::cut, caller);
        }
    }

    fn give_up(&self, caller: &dyn Caller) {
        if self.holding.load(Ordering::Acquire) && !nesting::submitting() {
            self.submit_held(History::give_up, caller);
        }
    }

    fn settle(&self, home: &StreamCore) {
        if !self.open.load(Ordering::Acquire) || home.device.is_closed() {
            return;
        }
        let mut state = lock(&self.state);
        let driver = &*home.device.driver;
        let last: Vec<EventHandle> = state.last_events();
        // SAFETY: the events belong to the lanes. If the default stream cannot be ordered after them, the host waits;
        // the failed work's own stream reports the error.
        unsafe {
            if !last.is_empty() && driver.wait_events(home.handle, &last).is_err() {
                last.iter().for_each(|event| drop(driver.synchronize_event(*event)));
            }
        }
        state.forget();
        self.open.store(false, Ordering::Release);
    }

    fn end(&self, driver: &dyn Driver) {
        let mut state = std::mem::take(&mut *lock(&self.state));
        self.open.store(false, Ordering::Release);
        self.holding.store(false, Ordering::Release);
        state.forget();
        for event in state.idle_events.drain(..).chain(state.opening) {
            // SAFETY: created by this driver, and nothing else refers to them.
            unsafe { driver.destroy_event(event) }
        }
    }
}

/// A launch, with the memory that it is given.
fn captured(kernel: &LoadedKernel, args: &[u64], given: &[(Arc<BufferCore>, Pointer)]) -> CapturedLaunch {
    let buffers = given.iter().map(|(buffer, pointer)| (Buffer::of(buffer.clone()), pointer.written));
    CapturedLaunch {
        kernel: kernel.clone(),
        args: args.into(),
        arrays: Box::default(),
        buffers: buffers.collect(),
        foreign: false,
        store: None,
    }
}

/// Launches held launches, in order.
fn submit(home: &Arc<StreamCore>, held: Held, caller: &dyn Caller) -> Result<()> {
    if held.is_empty() {
        return Ok(());
    }
    let _submitting = Submitting::begin();
    let stream = Stream::of(home.clone());
    held.iter().try_for_each(|launch| {
        // SAFETY: the arguments are those that the caller gave, and the launch keeps its buffers.
        unsafe { stream.launch(&launch.kernel, &launch.args, caller) }.map(|_| ())
    })
}
