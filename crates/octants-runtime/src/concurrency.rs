//! [`Lanes`]: launches of the default stream that run side by side where what they touch allows it.
//!
//! With concurrency on, a launch on the default stream goes to one of a few streams, its lane, behind the earlier
//! launches that it conflicts with: those that touch an element of a buffer that one of the two writes to. Results are
//! those of the default stream. Buffers tell launches apart, and within a buffer the access sets of both, evaluated for
//! their arguments.
//!
//! Rounds of launches that a program repeats become graphs with the same order: see `cycle`.
//!
//! All else that the default stream is asked for comes behind all lanes, and launches after that behind it: the stream
//! *settles* while it has its turn (`StreamCore::wait_turn`). What the host has a part in stays on the default stream:
//! launches that return values, print or assert, draw random numbers, take arrays of the host, or use memory that
//! another library may use.

mod cycle;

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, Weak};

use octants_artifact::Access;
use smallvec::SmallVec;

use crate::buffer::Buffer;
use crate::capture::CapturedLaunch;
use crate::captured_graph::CapturedGraph;
use crate::cores::{BufferCore, DeviceCore, StreamCore};
use crate::driver::{Caller, Driver, EventHandle, ModuleHandle};
use crate::error::Result;
use crate::kernel::{LoadedKernel, Pointer};
use crate::nesting;
use crate::report::lock;
use crate::sections::decides;
use crate::stream::{Results, Stream};
use cycle::{Expected, Held, History};

/// Lanes of a device.
const LANES: usize = 8;
/// Launches that are remembered before those are looked for whose work is done.
const LOOK_AT: usize = 64;
/// Launches that are remembered at most: whoever makes another one waits for the oldest.
const MOST_OPEN: usize = 512;
/// Uses of a buffer that are remembered one by one.
const MOST_USES: usize = 16;
/// Pairs of accesses that are compared for two launches; with more of them whole buffers are.
const MOST_PAIRS: usize = 64;
/// Decisions that are kept for a report.
const MOST_DECISIONS: usize = 4096;

/// Where a launch went, and why.
#[derive(Debug, Clone)]
pub struct Decision {
    /// Its number among the concurrent launches of the device.
    pub number: u64,
    /// The kernel.
    pub kernel: String,
    /// The lane; `None` for the default stream.
    pub lane: Option<usize>,
    /// The launches that it conflicts with, and the kernel's name of the buffer in which they meet first.
    pub behind: Vec<(u64, String)>,
}

/// A device's lanes.
#[derive(Default)]
pub(crate) struct Lanes {
    state: Mutex<State>,
    /// Launches have gone to lanes since the default stream was put behind all of them.
    open: AtomicBool,
    /// Launches may go to lanes at all.
    used: AtomicBool,
    /// The history is not empty.
    holding: AtomicBool,
    /// The default stream.
    home: OnceLock<Weak<StreamCore>>,
}

#[derive(Default)]
struct State {
    lanes: Vec<Lane>,
    /// Launches that later ones may have to wait for, in order; the first has the number `first`.
    launches: VecDeque<Placed>,
    first: u64,
    /// Uses of buffers, by number.
    uses: HashMap<u64, Vec<Use>>,
    /// Recorded on the default stream when lanes were opened last, and how often that was.
    opening: Option<EventHandle>,
    openings: u64,
    idle_events: Vec<EventHandle>,
    decisions: VecDeque<Decision>,
    history: History,
    /// Rounds that were launched as graphs.
    replays: u64,
}

/// For each lane one more than the number of the last launch there that something is behind.
type Clock = [u64; LANES];

struct Lane {
    stream: Stream,
    /// What its last launch is of.
    module: Option<ModuleHandle>,
    /// Its last launch and all those that is behind.
    seen: Clock,
    /// The opening that it is behind.
    opening: u64,
}

struct Placed {
    lane: usize,
    /// Recorded behind it.
    event: EventHandle,
    kernel: LoadedKernel,
    args: Box<[u64]>,
    seen: Clock,
}

/// A launch's use of a buffer.
#[derive(Clone, Copy)]
struct Use {
    launch: u64,
    pointer: Pointer,
    /// It stands for other uses too, so that elements tell nothing.
    whole: bool,
}

/// A buffer that a launch is given.
type Given = SmallVec<[(Arc<BufferCore>, Pointer); 8]>;

impl DeviceCore {
    /// The buffers that a launch is given; `None` where it uses memory that is none of this device's, or that another
    /// library may use.
    pub(crate) fn given_buffers(&self, kernel: &LoadedKernel, args: &[u64]) -> Option<Given> {
        let mut given = Given::new();
        for pointer in kernel.pointers.iter() {
            let address = args[pointer.slot as usize];
            if address != 0 {
                let buffer = self.find_buffer(address)?;
                if buffer.shared.load(Ordering::Acquire) {
                    return None;
                }
                given.push((buffer, *pointer));
            }
        }
        Some(given)
    }
}

impl Lanes {
    /// Launches on a lane. `None` where the launch must stay on the default stream.
    ///
    /// # Safety
    /// As [`Stream::launch`]; `home` is the default stream.
    pub(crate) unsafe fn launch(
        &self,
        home: &Arc<StreamCore>,
        kernel: &LoadedKernel,
        args: &[u64],
        caller: &dyn Caller,
    ) -> Result<Option<Option<Results>>> {
        let device = &home.device;
        let stays = !kernel.meta.sites.is_empty()
            || kernel.meta.tasks.iter().any(|task| task.draws_random)
            || !kernel.meta.result.is_empty()
            || kernel.spilled_at.is_some()
            || decides(&kernel.sections)
            || args.len() != kernel.meta.arg_slots as usize;
        if !stays && self.hold(home, kernel, args, caller)? {
            return Ok(Some(None));
        }
        let given = if stays { None } else { device.given_buffers(kernel, args) };
        let Some(given) = given else {
            self.note_at_home(kernel);
            return Ok(None);
        };
        let mut state = self.open(home, caller)?;
        state.retire(device, caller)?;
        let behind = state.conflicts(kernel, args, &given);
        let lane = state.choose_lane(device, kernel, &behind)?;
        state.order(&*device.driver, lane, &behind)?;
        let event = match state.idle_events.pop() {
            Some(event) => event,
            None => device.driver.create_event(false)?,
        };
        let stream = state.lanes[lane].stream.clone();
        // SAFETY: the caller's contract.
        let results = unsafe { stream.launch(kernel, args, caller) };
        // Also where the launch has failed half way.
        let marked = state.mark(&*device.driver, lane, event);
        if marked.is_ok() {
            state.note((lane, event, behind), (kernel, args), &given);
            state.history.note(captured(kernel, args, given));
            self.holding.store(true, Ordering::Release);
        }
        results.and_then(|results| marked.map(|()| Some(results)))
    }

    /// Holds a launch that is expected, or launches the graph that it completes. False where it is to be launched by
    /// itself.
    fn hold(&self, home: &Arc<StreamCore>, kernel: &LoadedKernel, args: &[u64], caller: &dyn Caller) -> Result<bool> {
        if !self.holding.load(Ordering::Acquire) {
            return Ok(false);
        }
        let mut state = lock(&self.state);
        let make = |launches: &[Arc<CapturedLaunch>]| graph_of(&home.device, launches);
        match state.history.take(kernel, args, make) {
            Expected::Held => Ok(true),
            Expected::Complete(graph) => {
                state.replays += 1;
                drop(state);
                let _submitting = Submitting::begin();
                // SAFETY: the buffers are the device's, which the graph keeps.
                unsafe { Stream::of(home.clone()).launch_graph(&graph, caller)? };
                Ok(true)
            }
            Expected::Not(held) => {
                drop(state);
                submit(home, held, caller)?;
                Ok(false)
            }
        }
    }

    /// Submits what is held: something is asked for that comes behind it.
    #[inline]
    pub(crate) fn cut(&self, caller: &dyn Caller) {
        if self.holding.load(Ordering::Acquire) {
            self.submit_held(History::cut, caller);
        }
    }

    /// As [`Lanes::cut`]; nothing is expected any more, and no memory is kept for it.
    pub(crate) fn give_up(&self, caller: &dyn Caller) {
        if self.holding.load(Ordering::Acquire) {
            self.submit_held(History::give_up, caller);
        }
    }

    #[cold]
    fn submit_held(&self, take: impl FnOnce(&mut History) -> Held, caller: &dyn Caller) {
        let home = self.home.get().and_then(Weak::upgrade);
        let Some(home) = home.filter(|home| !home.device.is_closed() && !Submitting::is_on()) else { return };
        let held = take(&mut lock(&self.state).history);
        // A driver that refuses a launch here refuses what comes behind it as well.
        let _ = submit(&home, held, caller);
    }

    /// How often a round was launched as a graph.
    pub(crate) fn replays(&self) -> u64 {
        lock(&self.state).replays
    }

    /// To be called, with the default stream's turn, before launches may go to lanes.
    pub(crate) fn begin(&self, home: &Arc<StreamCore>) {
        let _ = self.home.set(Arc::downgrade(home));
        self.used.store(true, Ordering::Release);
    }

    /// Launches may go to lanes.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Ordering::Acquire)
    }

    fn note_at_home(&self, kernel: &LoadedKernel) {
        let mut state = lock(&self.state);
        let number = state.next_number();
        let kernel = kernel.name().to_string();
        state.decide(Decision { number, kernel, lane: None, behind: Vec::new() });
    }

    /// The lanes, behind what the default stream was given.
    fn open(&self, home: &Arc<StreamCore>, caller: &dyn Caller) -> Result<MutexGuard<'_, State>> {
        let state = lock(&self.state);
        if self.open.load(Ordering::Acquire) {
            return Ok(state);
        }
        drop(state);
        // The turn keeps another thread's work on the default stream from slipping in behind the event.
        let turn = home.wait_turn(caller);
        let mut state = lock(&self.state);
        if !self.open.load(Ordering::Acquire) {
            let driver = &*home.device.driver;
            let event = match state.opening {
                Some(event) => event,
                None => driver.create_event(false)?,
            };
            state.opening = Some(event);
            // SAFETY: the default stream lives as long as the device, and the event is the lanes' own.
            unsafe { driver.record_event(home.handle, event)? };
            state.openings += 1;
            self.open.store(true, Ordering::Release);
        }
        drop(turn);
        Ok(state)
    }

    /// Puts the default stream, which has its turn, behind all lanes. Later launches are behind what it is given now.
    pub(crate) fn settle(&self, home: &StreamCore) {
        if !self.open.load(Ordering::Acquire) || home.device.is_closed() {
            return;
        }
        let mut state = lock(&self.state);
        let driver = &*home.device.driver;
        let last: Vec<EventHandle> = state.last_events();
        // SAFETY: the events are the lanes' own. Where the default stream cannot be put behind them the host waits; an
        // error of that is of work whose own stream reports it.
        unsafe {
            if !last.is_empty() && driver.wait_events(home.handle, &last).is_err() {
                last.iter().for_each(|event| drop(driver.synchronize_event(*event)));
            }
        }
        state.forget();
        self.open.store(false, Ordering::Release);
    }

    /// The decisions since the last time that someone asked.
    pub(crate) fn take_decisions(&self) -> Vec<Decision> {
        lock(&self.state).decisions.drain(..).collect()
    }

    /// Gives everything back; all work is done.
    pub(crate) fn end(&self, driver: &dyn Driver) {
        let mut state = std::mem::take(&mut *lock(&self.state));
        self.open.store(false, Ordering::Release);
        self.holding.store(false, Ordering::Release);
        state.forget();
        for event in state.idle_events.drain(..).chain(state.opening) {
            // SAFETY: made by this driver, and nobody else has them.
            unsafe { driver.destroy_event(event) }
        }
    }
}

impl State {
    fn next_number(&self) -> u64 {
        self.first + self.launches.len() as u64
    }

    fn placed(&self, number: u64) -> Option<&Placed> {
        self.launches.get(number.checked_sub(self.first)? as usize)
    }

    /// Forgets the oldest launches whose work is done.
    fn retire(&mut self, device: &DeviceCore, caller: &dyn Caller) -> Result<()> {
        if self.launches.len() < LOOK_AT {
            return Ok(());
        }
        while let Some(oldest) = self.launches.front() {
            // SAFETY: the event is the lanes' own.
            unsafe {
                if !device.driver.query_event(oldest.event)? {
                    if self.launches.len() < MOST_OPEN {
                        break;
                    }
                    device.wait_for_event(oldest.event, caller)?;
                }
            }
            if let Some(done) = self.launches.pop_front() {
                self.idle_events.push(done.event);
                self.first += 1;
            }
        }
        let first = self.first;
        self.uses.retain(|_, uses| {
            uses.retain(|u| u.launch >= first);
            !uses.is_empty()
        });
        Ok(())
    }

    /// The launches that one conflicts with, each with the pointer of its own that shows it, by falling number.
    fn conflicts(&self, kernel: &LoadedKernel, args: &[u64], given: &Given) -> SmallVec<[(u64, Pointer); 8]> {
        let mut found: SmallVec<[(u64, Pointer); 8]> = SmallVec::new();
        for (buffer, pointer) in given {
            for used in self.uses.get(&buffer.id).map_or(&[][..], Vec::as_slice) {
                let Some(placed) = self.placed(used.launch) else { continue };
                if !(used.pointer.written || pointer.written) || found.iter().any(|(known, _)| *known == used.launch) {
                    continue;
                }
                let elements = Elements { kernel: &placed.kernel, args: &placed.args, of: used.pointer };
                if used.whole || elements.meet(&Elements { kernel, args, of: *pointer }) {
                    found.push((used.launch, *pointer));
                }
            }
        }
        found.sort_unstable_by_key(|(number, _)| std::cmp::Reverse(*number));
        found
    }

    /// The lane whose last launch is the latest conflict; else one that this kernel was on before, or that was not used
    /// for the longest time.
    fn choose_lane(
        &mut self,
        device: &Arc<DeviceCore>,
        kernel: &LoadedKernel,
        behind: &[(u64, Pointer)],
    ) -> Result<usize> {
        let last = |lane: usize| self.lanes[lane].seen[lane];
        let free = |lane: &usize| last(*lane) <= self.first;
        let waits_anyway = behind.iter().filter_map(|(number, _)| Some((self.placed(*number)?.lane, *number + 1)));
        let at_end = waits_anyway.clone().find(|(lane, end)| last(*lane) == *end).map(|(lane, _)| lane);
        let lanes = 0..self.lanes.len();
        let known = |lane: &usize| self.lanes[*lane].module == Some(kernel.module);
        let chosen = at_end
            .or_else(|| lanes.clone().filter(known).find(free))
            .or_else(|| lanes.clone().find(free))
            .or_else(|| (self.lanes.len() == LANES).then(|| lanes.min_by_key(|lane| last(*lane)).unwrap_or(0)));
        if let Some(chosen) = chosen {
            return Ok(chosen);
        }
        let stream = Stream::over(device.clone(), device.driver.create_stream(0)?, true);
        self.lanes.push(Lane { stream, module: None, seen: [0; LANES], opening: 0 });
        Ok(self.lanes.len() - 1)
    }

    /// Puts a lane behind the last opening, and behind launches.
    fn order(&mut self, driver: &dyn Driver, lane: usize, behind: &[(u64, Pointer)]) -> Result<()> {
        let mut events: SmallVec<[EventHandle; 8]> = SmallVec::new();
        let mut seen = self.lanes[lane].seen;
        if self.lanes[lane].opening < self.openings {
            events.extend(self.opening);
        }
        for (number, _) in behind {
            let Some(placed) = self.placed(*number) else { continue };
            if seen[placed.lane] <= *number {
                events.push(placed.event);
                seen.iter_mut().zip(&placed.seen).for_each(|(a, b)| *a = (*a).max(*b));
            }
        }
        let Lane { stream, opening, .. } = &self.lanes[lane];
        if !events.is_empty() {
            // SAFETY: lanes and events live as long as this.
            unsafe { driver.wait_events(stream.core().handle, &events)? };
        }
        debug_assert!(*opening <= self.openings);
        (self.lanes[lane].seen, self.lanes[lane].opening) = (seen, self.openings);
        Ok(())
    }

    /// Lets an event stand for a lane's last launch. Where that fails the launch is waited for: no one could be put
    /// behind it.
    fn mark(&mut self, driver: &dyn Driver, lane: usize, event: EventHandle) -> Result<()> {
        let stream = self.lanes[lane].stream.core().handle;
        // SAFETY: as in `order`.
        let marked = unsafe { driver.record_event(stream, event) };
        marked.inspect_err(|_| {
            self.idle_events.push(event);
            // SAFETY: as above. An error is of work that its stream reports.
            drop(unsafe { driver.synchronize(stream) });
        })
    }

    /// Notes a launch that an event stands for.
    fn note(
        &mut self,
        (lane, event, behind): (usize, EventHandle, SmallVec<[(u64, Pointer); 8]>),
        (kernel, args): (&LoadedKernel, &[u64]),
        given: &Given,
    ) {
        let number = self.next_number();
        let of_lane = &mut self.lanes[lane];
        of_lane.seen[lane] = number + 1;
        of_lane.module = Some(kernel.module);
        let seen = of_lane.seen;
        self.launches.push_back(Placed { lane, event, kernel: kernel.clone(), args: args.into(), seen });
        for (buffer, pointer) in given {
            let mut used = Use { launch: number, pointer: *pointer, whole: false };
            let first = self.first;
            let uses = self.uses.entry(buffer.id).or_default();
            uses.retain(|u| u.launch >= first);
            if uses.len() >= MOST_USES {
                // Of what it is behind, it stands for all; where it is not, the earlier one stays.
                uses.retain(|u| !behind.iter().any(|(b, _)| *b == u.launch) || u.launch == number);
                used.whole = true;
                used.pointer.written = true;
            }
            uses.push(used);
        }
        let name =
            |p: &Pointer| p.buffer.and_then(|e| kernel.meta.buffers.get(e as usize)).cloned().unwrap_or_default();
        let behind = behind.iter().map(|(number, p)| (*number, name(p))).collect();
        self.decide(Decision { number, kernel: kernel.name().to_string(), lane: Some(lane), behind });
    }

    fn decide(&mut self, decision: Decision) {
        if self.decisions.len() == MOST_DECISIONS {
            self.decisions.pop_front();
        }
        self.decisions.push_back(decision);
    }

    /// The events of the last launch of each lane.
    fn last_events(&self) -> Vec<EventHandle> {
        let last = self.lanes.iter().enumerate().filter_map(|(lane, l)| l.seen[lane].checked_sub(1));
        last.filter_map(|number| self.placed(number)).map(|p| p.event).collect()
    }

    fn forget(&mut self) {
        self.first = self.next_number();
        self.idle_events.extend(self.launches.drain(..).map(|l| l.event));
        self.uses.clear();
    }
}

/// A launch, with the memory that it is given.
fn captured(kernel: &LoadedKernel, args: &[u64], given: Given) -> CapturedLaunch {
    CapturedLaunch {
        kernel: kernel.clone(),
        args: args.into(),
        arrays: Box::default(),
        buffers: given.into_iter().map(|(buffer, pointer)| (Buffer::of(buffer), pointer.written)).collect(),
        foreign: false,
    }
}

/// This thread submits what was held, for as long as the value lives.
struct Submitting(bool);

thread_local! {
    static SUBMITTING: Cell<bool> = const { Cell::new(false) };
}

impl Submitting {
    fn begin() -> Submitting {
        Submitting(SUBMITTING.replace(true))
    }

    fn is_on() -> bool {
        SUBMITTING.get()
    }
}

impl Drop for Submitting {
    fn drop(&mut self) {
        SUBMITTING.set(self.0);
    }
}

/// Launches held launches, in order.
fn submit(home: &Arc<StreamCore>, held: Held, caller: &dyn Caller) -> Result<()> {
    if held.is_empty() {
        return Ok(());
    }
    let _submitting = Submitting::begin();
    let before = nesting::set_concurrency(Some(false));
    let stream = Stream::of(home.clone());
    let end = held.iter().try_for_each(|launch| {
        // SAFETY: the arguments are those that the caller gave, and the launch keeps its buffers.
        unsafe { stream.launch(&launch.kernel, &launch.args, caller) }.map(|_| ())
    });
    nesting::set_concurrency(before);
    end
}

/// A graph of launches, each behind those that it conflicts with. `None` where their memory is not what it was.
fn graph_of(device: &Arc<DeviceCore>, launches: &[Arc<CapturedLaunch>]) -> Option<CapturedGraph> {
    let given: Vec<Given> = launches.iter().map(|l| device.given_buffers(&l.kernel, &l.args)).collect::<Option<_>>()?;
    let conflict = |earlier: usize, later: usize| {
        let (a, b) = (&launches[earlier], &launches[later]);
        given[later].iter().any(|(buffer, of_b)| {
            given[earlier].iter().any(|(other, of_a)| {
                Arc::ptr_eq(buffer, other)
                    && (of_a.written || of_b.written)
                    && Elements { kernel: &a.kernel, args: &a.args, of: *of_a }.meet(&Elements {
                        kernel: &b.kernel,
                        args: &b.args,
                        of: *of_b,
                    })
            })
        })
    };
    let behind: Vec<Vec<usize>> =
        (0..launches.len()).map(|later| (0..later).filter(|earlier| conflict(*earlier, later)).collect()).collect();
    Some(CapturedGraph::of_steps(device, cycle::steps_of(launches, &behind, LANES)))
}

/// The elements behind a pointer of a launch.
struct Elements<'a> {
    kernel: &'a LoadedKernel,
    args: &'a [u64],
    of: Pointer,
}

impl Elements<'_> {
    fn accesses(&self) -> impl Iterator<Item = &Access> + Clone {
        let tasks = self.kernel.meta.tasks.iter().flat_map(|task| &task.access);
        tasks.filter(|access| Some(access.buffer) == self.of.buffer)
    }

    /// Both may touch an element that one of them changes. True where that is not known.
    fn meet(&self, other: &Elements<'_>) -> bool {
        if self.of.buffer.is_none() || other.of.buffer.is_none() || self.address() != other.address() {
            return true;
        }
        if self.accesses().count() * other.accesses().count() > MOST_PAIRS {
            return true;
        }
        let (a, b) = (self.args, other.args);
        self.accesses().any(|x| other.accesses().any(|y| x.meets((y, b), a)))
    }

    fn address(&self) -> u64 {
        self.args[self.of.slot as usize]
    }
}
