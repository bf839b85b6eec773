//! [`Watch`]: which launches are ordered by streams, events and host waits, and whether unordered launches touch the
//! same elements.
//!
//! All devices of a program are watched together, because work on two devices may be ordered through a third device or
//! the host. Work uses memory of its own device. If the host can address device memory, it may also use memory of other
//! devices through a host array.
//!
//! Each stream, each recorded event and the host have a vector clock. A launch is ordered after everything in its
//! stream's clock. If it is not ordered after another launch that uses one of its buffers, the access sets decide
//! whether the two may conflict, and witnesses of both whether they certainly do. Only a certain conflict is a race.
//!
//! With exact checks, if values in memory decide which elements a launch touches, all earlier work is waited for, and
//! the witness reads the memory.
//!
//! Repeated launches with the same arguments on the same stream are looked up. They are compared again only if other
//! launches have been made on other streams since.

mod clock;
mod compare;
mod host;
mod steps;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use clock::{Clock, StreamId};
use compare::{Search, may_meet, race_of};
use steps::races_of_steps;

use crate::caller::Caller;
use crate::capture::{self, Step, Work as StepWork};
use crate::cores::{DeviceCore, OrderWatch, StreamCore};
use crate::driver::{EventHandle, ModuleHandle};
use crate::error::Result;
use crate::kernel::{LoadedKernel, Pointer};
use crate::nesting;
use crate::race::Race;
use crate::report::lock;
use crate::witness::Touched;

/// Maximum number of recorded uses of a buffer.
const MOST_USES: usize = 256;
/// Number of recorded launches from which those that the host has waited for are forgotten.
const MANY_LAUNCHES: usize = 4096;
/// Maximum number of unsuccessful element-by-element comparisons of two kernels' launches with different arguments.
/// After that, they are no longer compared: with indices from memory, each comparison is slow and finds nothing.
const MOST_SEARCHES: u32 = 256;
/// How many of these comparisons look at all elements.
const MOST_DEEP_SEARCHES: u32 = 4;

/// The order of the work on all devices of a program.
#[derive(Default)]
pub(crate) struct Watch {
    state: Mutex<State>,
    /// The devices, by their numbers.
    devices: Mutex<Vec<Weak<DeviceCore>>>,
    /// Some device's launches are checked, so that the order of all devices' work is noted.
    is_used: AtomicBool,
}

/// The watch as one of the devices sees it.
pub(crate) struct DeviceWatch {
    all: Arc<Watch>,
    own: Weak<DeviceWatch>,
    device: Weak<DeviceCore>,
    number: u32,
    /// The device's launches are checked.
    checks: AtomicBool,
    /// So are accesses that depend on values in memory.
    is_exact: AtomicBool,
}

#[derive(Default)]
struct State {
    streams: HashMap<StreamId, StreamState>,
    events: HashMap<(u32, EventHandle), Clock>,
    /// The work that the host has waited for.
    host: Clock,
    launches: HashMap<(StreamId, u64), Arc<Work>>,
    uses: HashMap<BufferId, Vec<Use>>,
    /// Pairs of works that do not certainly conflict.
    refuted: HashSet<(u64, u64)>,
    /// For pairs of kernels, how many of their launches were found not to certainly conflict.
    searches: HashMap<[ModuleHandle; 2], u32>,
    /// The watches of the devices.
    watches: Vec<Weak<DeviceWatch>>,
    /// For each device the pieces of work on all streams that use its memory.
    totals: HashMap<u32, u64>,
}

/// A buffer: the number of its device, and its own there.
type BufferId = (u32, u64);

/// A range of addresses: its begin and its end, and whether it is written.
type AccessedRange = (u64, u64, bool);

/// A buffer that work uses, by which argument, and whether to write.
type Used = (BufferId, Option<Pointer>, bool);

#[derive(Default)]
struct StreamState {
    clock: Clock,
    /// Its pieces of work.
    number: u64,
}

/// A launch, or other queued work.
struct Work {
    stream: StreamId,
    /// The device as users name it; `None` if there is one.
    device: Option<String>,
    key: u64,
    last: Mutex<Last>,
    doing: Doing,
    /// The program location of the call.
    site: String,
    /// Its stream is a lane of a graph.
    in_graph: bool,
    /// It uses memory of another device.
    crosses: bool,
    /// All elements that it touches, if values in memory decide that.
    touches: Option<Arc<[Touched]>>,
}

impl Work {
    fn stream_name(&self) -> String {
        let stream = match (self.in_graph, self.stream.stream) {
            (true, lane) => format!("branch {lane} of a graph"),
            (false, 0) => "the default stream".into(),
            (false, stream) => format!("stream {stream}"),
        };
        match &self.device {
            Some(device) => format!("{stream} of {device}"),
            None => stream,
        }
    }
}

/// When a piece of work last ran.
#[derive(Clone, Copy)]
struct Last {
    number: u64,
    /// Pieces of work on other streams, then.
    elsewhere: u64,
}

enum Doing {
    Launch(LoadedKernel, Box<[u64]>),
    /// It reads or writes ranges of addresses.
    Ranges(&'static str, Box<[(u64, u64, bool)]>),
}

/// A use of a buffer.
struct Use {
    work: Arc<Work>,
    pointer: Option<Pointer>,
    written: bool,
}

impl Watch {
    /// The buffer that holds an address: of the device with this number, or of another one whose memory the host
    /// addresses.
    fn find(&self, (number, device): (u32, &DeviceCore), address: u64) -> Option<BufferId> {
        if address == 0 {
            return None;
        }
        if let Some(buffer) = device.find_buffer(address) {
            return Some((number, buffer.id));
        }
        if !device.host_addressable {
            return None;
        }
        let devices = lock(&self.devices).clone();
        (0..).zip(devices).filter(|(n, _)| *n != number).find_map(|(n, other)| {
            let other = other.upgrade().filter(|other| other.host_addressable && !other.is_closed())?;
            Some((n, other.find_buffer(address)?.id))
        })
    }
}

impl DeviceWatch {
    /// The watch of a device that is watched with others.
    pub(crate) fn new(all: &Arc<Watch>, device: &Arc<DeviceCore>) -> Arc<DeviceWatch> {
        let mut devices = lock(&all.devices);
        let (number, device) = (devices.len() as u32, Arc::downgrade(device));
        devices.push(device.clone());
        let made = Arc::new_cyclic(|own: &Weak<DeviceWatch>| DeviceWatch {
            all: all.clone(),
            own: own.clone(),
            device,
            number,
            checks: AtomicBool::new(false),
            is_exact: AtomicBool::new(false),
        });
        lock(&all.state).watches.push(Arc::downgrade(&made));
        if all.is_used.load(Ordering::Acquire) {
            made.note_order();
        }
        made
    }

    /// The watch of all devices.
    pub(crate) fn all(&self) -> &Arc<Watch> {
        &self.all
    }

    /// Starts to check this device's launches, and to record the order of all devices' work. With `is_exact`, accesses
    /// that depend on values in memory are checked too.
    pub(crate) fn begin(&self, is_exact: bool) {
        self.is_exact.store(is_exact, Ordering::Release);
        self.checks.store(true, Ordering::Release);
        self.all.is_used.store(true, Ordering::Release);
        let watches = lock(&self.all.state).watches.clone();
        watches.iter().filter_map(Weak::upgrade).for_each(|watch| watch.note_order());
    }

    /// Whether this device's launches are checked. On a synchronous device this is not needed.
    #[inline]
    pub(crate) fn checks(&self) -> bool {
        self.checks.load(Ordering::Relaxed) && self.device.upgrade().is_some_and(|device| !device.immediate)
    }

    fn note_order(&self) {
        if let (Some(own), Some(device)) = (self.own.upgrade(), self.device.upgrade())
            && !device.immediate
        {
            let _ = device.watch.set(own);
        }
    }

    fn id(&self, stream: &StreamCore) -> StreamId {
        StreamId { device: self.number, stream: stream.number }
    }

    /// To be called before a launch.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Races`], unless they are collected.
    pub(crate) fn launch(
        &self,
        stream: &StreamCore,
        kernel: &LoadedKernel,
        args: &[u64],
        caller: &dyn Caller,
    ) -> Result<()> {
        if nesting::capturing() {
            capture::set_site(caller.call_site());
        }
        if !is_watched(stream) || args.len() != kernel.meta.arg_slots as usize {
            return Ok(());
        }
        let touches = self.exact_touches(stream, kernel, args, caller);
        self.check(stream, (kernel, args, touches), caller)
    }

    fn check(
        &self,
        stream: &StreamCore,
        (kernel, args, touches): (&LoadedKernel, &[u64], Option<Arc<[Touched]>>),
        caller: &dyn Caller,
    ) -> Result<()> {
        let (id, key) = (self.id(stream), key_of(kernel, args, touches.as_deref()));
        if lock(&self.all.state).is_known((id, key)) {
            return Ok(());
        }
        let device = &*stream.device;
        let used = kernel.pointers.iter().filter_map(|p| {
            let buffer = self.all.find((self.number, device), args[p.slot as usize])?;
            Some((buffer, Some(*p), p.written))
        });
        let doing = Doing::Launch(kernel.clone(), args.into());
        let used: Vec<_> = used.collect();
        lock(&self.all.state).work(device, (id, key), &used, (doing, touches), caller)
    }

    /// All elements that a launch touches, if values in memory decide that, and other streams may touch the same ones.
    fn exact_touches(
        &self,
        stream: &StreamCore,
        kernel: &LoadedKernel,
        args: &[u64],
        caller: &dyn Caller,
    ) -> Option<Arc<[Touched]>> {
        let witness = kernel.witness.as_ref().filter(|witness| witness.depends_on_memory())?;
        let device = &*stream.device;
        if !self.is_exact.load(Ordering::Relaxed) || !device.host_addressable {
            return None;
        }
        let streams = device.live_streams();
        if streams.len() < 2 {
            return None;
        }
        device.submit_held(caller);
        // A failure is reported when the program waits.
        let waited = nesting::unnoticed(|| streams.iter().try_for_each(|s| s.wait_quietly(caller)));
        waited.is_ok().then(|| witness.all_touches(args, true).into())
    }

    /// To be called before a graph is launched: its steps are watched as work of the stream, and those that no wait
    /// orders are compared with each other. The launch waits for the graph's last one, which was on another stream.
    ///
    /// # Errors
    /// As [`Self::launch`].
    pub(crate) fn graph(
        &self,
        stream: &StreamCore,
        (steps, last): (&[Step], Option<&StreamCore>),
        caller: &dyn Caller,
    ) -> Result<()> {
        if !is_watched(stream) {
            return Ok(());
        }
        if let Some(last) = last {
            let mut state = lock(&self.all.state);
            let clock = state.clock_of(self.id(last));
            state.stream(self.id(stream)).clock.join(&clock);
        }
        stream.device.races.report(races_of_steps(steps))?;
        for step in steps {
            match &step.work {
                // Earlier steps may write what decides its accesses.
                StepWork::Launch(l) if l.args.len() == l.kernel.meta.arg_slots as usize => {
                    self.check(stream, (&l.kernel, &l.args, None), caller)?;
                }
                StepWork::Launch(_) => {}
                StepWork::Fill { at, bytes, .. } => {
                    self.check_ranges(stream, "a fill", &[(at.0, at.0 + bytes, true)], caller)?;
                }
                StepWork::Copy { at, from_at, bytes, .. } => {
                    let ranges = [(from_at.0, from_at.0 + bytes, false), (at.0, at.0 + bytes, true)];
                    self.check_ranges(stream, "a copy", &ranges, caller)?;
                }
                StepWork::Foreign(_) | StepWork::Host(_) => {}
            }
        }
        Ok(())
    }
}

impl OrderWatch for DeviceWatch {
    fn check_ranges(
        &self,
        stream: &StreamCore,
        what: &'static str,
        ranges: &[(u64, u64, bool)],
        caller: &dyn Caller,
    ) -> Result<()> {
        if !is_watched(stream) || !self.checks() {
            return Ok(());
        }
        let mut hasher = DefaultHasher::new();
        (what, ranges).hash(&mut hasher);
        let (id, key) = (self.id(stream), hasher.finish());
        if lock(&self.all.state).is_known((id, key)) {
            return Ok(());
        }
        let device = &*stream.device;
        let used = ranges
            .iter()
            .filter_map(|(begin, _, written)| Some((self.all.find((self.number, device), *begin)?, None, *written)));
        let used: Vec<_> = used.collect();
        lock(&self.all.state).work(device, (id, key), &used, (Doing::Ranges(what, ranges.into()), None), caller)
    }

    fn record(&self, stream: &StreamCore, event: EventHandle) {
        let mut state = lock(&self.all.state);
        let clock = state.clock_of(self.id(stream));
        state.events.insert((self.number, event), clock);
    }

    fn wait(&self, stream: &StreamCore, event: EventHandle) {
        lock(&self.all.state).wait(self.id(stream), (self.number, event));
    }

    fn wait_elsewhere(&self, stream: &StreamCore, event: EventHandle) {
        // A synchronous device has no queued work that could follow.
        let Some(watch) = stream.device.watch.get() else { return };
        let id = StreamId { device: watch.number(), stream: stream.number };
        lock(&self.all.state).wait(id, (self.number, event));
    }

    fn number(&self) -> u32 {
        self.number
    }

    fn host_waited_for_event(&self, event: EventHandle) {
        let mut state = lock(&self.all.state);
        if let Some(clock) = state.events.get(&(self.number, event)).cloned() {
            state.host.join(&clock);
        }
    }

    fn host_waited(&self, stream: u32) {
        let mut state = lock(&self.all.state);
        let clock = state.clock_of(StreamId { device: self.number, stream });
        state.host.join(&clock);
    }
}

/// The order of other libraries' streams is not visible here, nor is that of work within launches and captures.
fn is_watched(stream: &StreamCore) -> bool {
    stream.last.is_none() && nesting::is_plain() && !nesting::submitting()
}

impl State {
    fn stream(&mut self, id: StreamId) -> &mut StreamState {
        self.streams.entry(id).or_default()
    }

    /// Orders a stream after the work that an event of a device represents.
    fn wait(&mut self, id: StreamId, event: (u32, EventHandle)) {
        if let Some(clock) = self.events.get(&event).cloned() {
            self.stream(id).clock.join(&clock);
        }
    }

    /// The clock at the end of a stream's work.
    fn clock_of(&mut self, id: StreamId) -> Clock {
        let stream = self.stream(id);
        let mut clock = stream.clock.clone();
        clock.set(id, stream.number);
        clock.join(&self.host);
        clock
    }

    /// Numbers a piece of work. Yields the pieces on other streams.
    fn next(&mut self, stream: StreamId) -> Last {
        let total = self.totals.entry(stream.device).or_default();
        *total += 1;
        let total = *total;
        let stream = self.stream(stream);
        stream.number += 1;
        Last { number: stream.number, elsewhere: total - stream.number }
    }

    /// Whether the same work was checked before, and other streams have had no work since.
    fn is_known(&mut self, key: (StreamId, u64)) -> bool {
        let Some(work) = self.launches.get(&key).filter(|work| !work.crosses).cloned() else { return false };
        let number = self.stream(key.0).number;
        let elsewhere = self.totals.get(&key.0.device).map_or(0, |total| total - number);
        if lock(&work.last).elsewhere != elsewhere {
            return false;
        }
        let last = self.next(key.0);
        *lock(&work.last) = last;
        true
    }

    /// Checks a piece of work for races with others, and records it.
    fn work(
        &mut self,
        device: &DeviceCore,
        key: (StreamId, u64),
        used: &[Used],
        (doing, touches): (Doing, Option<Arc<[Touched]>>),
        caller: &dyn Caller,
    ) -> Result<()> {
        let site = caller.call_site().unwrap_or_else(|| "<unknown>".into());
        let own = key.0.device;
        let others: HashSet<u32> = used.iter().map(|((device, _), ..)| *device).filter(|n| *n != own).collect();
        let work = Work {
            stream: key.0,
            device: (self.watches.len() > 1).then(|| device.label().to_string()),
            key: key.1,
            crosses: !others.is_empty(),
            last: Mutex::new(Last { number: 0, elsewhere: 0 }),
            doing,
            site,
            in_graph: false,
            touches,
        };
        let races = self.races_of(&work, used);
        device.races.report(races)?;
        *lock(&work.last) = self.next(key.0);
        others.into_iter().for_each(|device| *self.totals.entry(device).or_default() += 1);
        self.note(key, work, used);
        Ok(())
    }

    fn note(&mut self, key: (StreamId, u64), work: Work, used: &[Used]) {
        if self.launches.len() > MANY_LAUNCHES {
            let host = &self.host;
            self.launches.retain(|_, w| !host.holds(w.stream, lock(&w.last).number));
            self.uses.retain(|_, uses| {
                uses.retain(|u| !host.holds(u.work.stream, lock(&u.work.last).number));
                !uses.is_empty()
            });
            self.refuted.clear();
        }
        let work = Arc::new(work);
        for (buffer, pointer, written) in used {
            let uses = self.uses.entry(*buffer).or_default();
            uses.retain(|u| (u.work.stream, u.work.key) != key);
            if uses.len() >= MOST_USES {
                uses.remove(least_use(&self.host, uses));
            }
            uses.push(Use { work: work.clone(), pointer: *pointer, written: *written });
        }
        self.launches.insert(key, work);
    }

    /// The races of a new piece of work with those that it is not after: for each stream with the latest one there,
    /// since a wait for that orders all.
    fn races_of(&mut self, work: &Work, used: &[Used]) -> Vec<Race> {
        let clock = self.clock_of(work.stream);
        let mut candidates: BTreeMap<(StreamId, Reverse<u64>), Arc<Work>> = BTreeMap::new();
        for (buffer, pointer, written) in used {
            for other in self.uses.get(buffer).map_or(&[][..], Vec::as_slice) {
                let earlier = &other.work;
                let number = lock(&earlier.last).number;
                let ordered = earlier.stream == work.stream || clock.holds(earlier.stream, number);
                let pair = (earlier.key, work.key);
                if !ordered
                    && (*written || other.written)
                    && !self.refuted.contains(&pair)
                    && may_meet((&earlier.doing, other.pointer), (&work.doing, *pointer))
                {
                    candidates.insert((earlier.stream, Reverse(number)), earlier.clone());
                }
            }
        }
        let mut races: Vec<(StreamId, Race)> = Vec::new();
        for ((stream, _), earlier) in candidates {
            if races.iter().any(|(known, _)| *known == stream) {
                continue;
            }
            let kernels = kernels_of(&earlier, work);
            let searches = kernels.map_or(0, |k| self.searches.get(&k).copied().unwrap_or(0));
            let search = match searches {
                0..MOST_DEEP_SEARCHES => Search::All,
                _ => Search::Some,
            };
            let race = if searches < MOST_SEARCHES { race_of(&earlier, work, search) } else { None };
            match race {
                Some(race) => races.push((stream, race)),
                None => {
                    self.refuted.insert((earlier.key, work.key));
                    kernels.into_iter().for_each(|k| *self.searches.entry(k).or_default() += 1);
                }
            }
        }
        races.into_iter().map(|(_, race)| race).collect()
    }
}

fn kernels_of(a: &Work, b: &Work) -> Option<[ModuleHandle; 2]> {
    match (&a.doing, &b.doing) {
        (Doing::Launch(a, _), Doing::Launch(b, _)) => Some([a.module, b.module]),
        _ => None,
    }
}

/// The use that matters least: one that the host has waited for, or else one with a later use on its stream, for a wait
/// for that orders both.
fn least_use(host: &Clock, uses: &[Use]) -> usize {
    let is_done = |u: &Use| host.holds(u.work.stream, lock(&u.work.last).number);
    let has_later = |(n, u): (usize, &Use)| {
        uses[n + 1..].iter().any(|later| later.work.stream == u.work.stream && (later.written || !u.written))
    };
    let superseded = || (0..uses.len()).find(|n| has_later((*n, &uses[*n])));
    uses.iter().position(is_done).or_else(superseded).unwrap_or(0)
}

/// A hash of a launch's accesses: ignores numbers that are neither addresses nor in access sets.
fn key_of(kernel: &LoadedKernel, args: &[u64], touches: Option<&[Touched]>) -> u64 {
    let mut hasher = DefaultHasher::new();
    kernel.module.hash(&mut hasher);
    touches.hash(&mut hasher);
    match &kernel.witness {
        Some(witness) => {
            let decides = args.iter().enumerate().filter(|(slot, _)| witness.is_decided_by(*slot));
            decides.for_each(|(_, value)| value.hash(&mut hasher));
        }
        None => args.hash(&mut hasher),
    }
    hasher.finish()
}
