//! [`State`]: the lane of each launch, and the launches that it must follow.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use smallvec::SmallVec;

use super::LANES;
use super::cycle::History;
use super::decisions::{Conflicts, Decided, Decisions};
use super::elements::{Elements, Meeting};
use super::fuse_launches::Fusion;
use super::make_graph::MadeGraph;
use super::remembered::{Buffers, Meetings};
use super::word_hash::WordHash;
use crate::caller::Caller;
use crate::cores::{BufferCore, DeviceCore};
use crate::driver::{Driver, EventHandle, ModuleHandle};
use crate::error::Result;
use crate::kernel::{LoadedKernel, Pointer};
use crate::stream::Stream;

/// Number of recorded launches from which completed ones are searched for, and how many more until the next search.
const LOOK_AT: usize = 64;
const LOOK_AGAIN: usize = 16;
/// The maximum number of recorded launches: a further launch waits for the oldest.
const MOST_OPEN: usize = 512;
/// Maximum number of uses of a buffer that are recorded individually.
const MOST_USES: usize = 16;
/// Number of finished launches after which buffers without recorded uses are forgotten.
const SWEEP: u64 = 1024;
/// Fusions that are kept for a report.
const MOST_FUSIONS: usize = 4096;

#[derive(Default)]
pub(super) struct State {
    pub(super) lanes: Vec<Lane>,
    /// Launches that later ones may have to wait for, in order; the first has the number `first`.
    launches: VecDeque<Placed>,
    first: u64,
    /// How many there may be before completed ones are searched for.
    look_at: usize,
    /// Uses of buffers, by number. Those of launches before `first` no longer count.
    uses: HashMap<u64, Vec<Use>, WordHash>,
    /// The first launch when buffers without uses were last forgotten.
    swept: u64,
    buffers: Buffers,
    meetings: Meetings,
    /// The buffers that the current launch is given.
    given: GivenBuffers,
    /// Recorded on the default stream when lanes were opened last, and the number of openings.
    pub(super) opening: Option<EventHandle>,
    pub(super) openings: u64,
    pub(super) idle_events: Vec<EventHandle>,
    pub(super) decisions: Decisions,
    pub(super) history: History,
    /// Rounds that were launched as graphs.
    pub(super) replays: u64,
    /// Fusions since the last report.
    pub(super) fusions: Vec<Fusion>,
}

/// For each lane, one more than the number of the last launch that other work depends on.
type Clock = [u64; LANES];

pub(super) struct Lane {
    pub(super) stream: Stream,
    /// The module of its last launch.
    module: Option<ModuleHandle>,
    /// Its last launch, and all launches that this one depends on.
    seen: Clock,
    /// The opening that it waits for.
    opening: u64,
}

struct Placed {
    lane: usize,
    /// Recorded after it.
    event: EventHandle,
    /// The place of its decision.
    decision: u64,
    seen: Clock,
}

/// A launch's use of a buffer.
#[derive(Clone, Copy)]
struct Use {
    launch: u64,
    pointer: Pointer,
    /// It represents other uses too, so its elements are not compared.
    whole: bool,
}

/// The buffers that a launch is given.
pub(super) type GivenBuffers = Vec<(Arc<BufferCore>, Pointer)>;

impl State {
    pub(super) fn next_number(&self) -> u64 {
        self.first + self.launches.len() as u64
    }

    fn placed(&self, number: u64) -> Option<&Placed> {
        self.launches.get(number.checked_sub(self.first)? as usize)
    }

    /// Forgets the oldest launches whose work is done.
    pub(super) fn retire(&mut self, device: &DeviceCore, caller: &dyn Caller) -> Result<()> {
        if self.launches.len() < self.look_at.max(LOOK_AT) {
            return Ok(());
        }
        let mut idle: [Option<bool>; LANES] = [None; LANES];
        while let Some(oldest) = self.launches.front() {
            let last = self.lanes[oldest.lane].seen[oldest.lane].checked_sub(1).and_then(|number| self.placed(number));
            // SAFETY: the events are the lanes' own.
            unsafe {
                let is_idle = match (idle[oldest.lane], last) {
                    (Some(known), _) => known,
                    (None, Some(last)) => device.driver.query_event(last.event)?,
                    (None, None) => false,
                };
                idle[oldest.lane] = Some(is_idle);
                if !is_idle && !device.driver.query_event(oldest.event)? {
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
        self.look_at = (self.launches.len() + LOOK_AGAIN).min(MOST_OPEN);
        self.sweep();
        Ok(())
    }

    /// Forgets buffers without uses from time to time.
    fn sweep(&mut self) {
        if self.first < self.swept + SWEEP {
            return;
        }
        let first = self.first;
        self.swept = first;
        self.uses.retain(|_, uses| {
            uses.retain(|u| u.launch >= first);
            !uses.is_empty()
        });
    }

    /// The buffers that a launch is given; `None` if it uses memory that does not belong to this device, or that
    /// another library may use. Must be given back.
    pub(super) fn given(&mut self, device: &DeviceCore, kernel: &LoadedKernel, args: &[u64]) -> Option<GivenBuffers> {
        let mut given = std::mem::take(&mut self.given);
        if self.buffers.find(device, (kernel, args), &mut given) {
            return Some(given);
        }
        self.give_back(given);
        None
    }

    /// Keeps the memory of a list of buffers for the next launch.
    pub(super) fn give_back(&mut self, mut given: GivenBuffers) {
        given.clear();
        self.given = given;
    }

    /// The launches that a launch conflicts with, each with the buffer that causes the conflict, in descending order of
    /// their numbers. Of a buffer's users, those that a found one is after are not looked at.
    pub(super) fn conflicts(
        &mut self,
        kernel: &LoadedKernel,
        args: &[u64],
        given: &[(Arc<BufferCore>, Pointer)],
    ) -> Conflicts {
        let mut found = Conflicts::new();
        let mut covered: Clock = [0; LANES];
        for (buffer, pointer) in given {
            for used in self.uses.get(&buffer.id).map_or(&[][..], Vec::as_slice).iter().rev() {
                let Some(at) = used.launch.checked_sub(self.first) else { break };
                let Some(placed) = self.launches.get(at as usize) else { continue };
                if !(used.pointer.written || pointer.written) || covered[placed.lane] > used.launch {
                    continue;
                }
                let meeting = match self.decisions.at(placed.decision).filter(|_| !used.whole) {
                    None => Some(pointer.buffer),
                    Some(decided) => {
                        let earlier = Elements { kernel: &decided.kernel.meta, args: &decided.args, of: used.pointer };
                        self.meetings.meeting(&earlier, &Elements { kernel: &kernel.meta, args, of: *pointer })
                    }
                };
                if let Some(buffer) = meeting {
                    found.push((used.launch, buffer));
                    covered.iter_mut().zip(&placed.seen).for_each(|(a, b)| *a = (*a).max(*b));
                }
            }
        }
        if found.len() > 1 {
            found.sort_unstable_by_key(|(number, _)| std::cmp::Reverse(*number));
        }
        found
    }

    /// The lane whose last launch is the latest conflict; else one that this kernel was on before, or that was not used
    /// for the longest time.
    pub(super) fn choose_lane(
        &mut self,
        device: &Arc<DeviceCore>,
        kernel: &LoadedKernel,
        depends_on: &[(u64, Meeting)],
    ) -> Result<usize> {
        let last = |lane: usize| self.lanes[lane].seen[lane];
        let free = |lane: &usize| last(*lane) <= self.first;
        let waits_anyway = depends_on.iter().filter_map(|(number, _)| Some((self.placed(*number)?.lane, *number + 1)));
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

    /// Makes a lane wait for the last opening, and for launches.
    pub(super) fn order(&mut self, driver: &dyn Driver, lane: usize, depends_on: &[(u64, Meeting)]) -> Result<()> {
        let mut events: SmallVec<[EventHandle; 8]> = SmallVec::new();
        let mut seen = self.lanes[lane].seen;
        if self.lanes[lane].opening < self.openings {
            events.extend(self.opening);
        }
        for (number, _) in depends_on {
            let Some(placed) = self.placed(*number) else { continue };
            if seen[placed.lane] <= *number {
                events.push(placed.event);
                seen.iter_mut().zip(&placed.seen).for_each(|(a, b)| *a = (*a).max(*b));
            }
        }
        let Lane { stream, opening, .. } = &self.lanes[lane];
        if !events.is_empty() {
            // SAFETY: lanes and events live as long as `self`.
            unsafe { driver.wait_events(stream.core().handle, &events)? };
        }
        debug_assert!(*opening <= self.openings);
        (self.lanes[lane].seen, self.lanes[lane].opening) = (seen, self.openings);
        Ok(())
    }

    /// Records an event after a lane's last launch. If that fails, waits for the launch, because later launches could
    /// not be ordered after it.
    pub(super) fn mark(&mut self, driver: &dyn Driver, lane: usize, event: EventHandle) -> Result<()> {
        let stream = self.lanes[lane].stream.core().handle;
        // SAFETY: as in `order`.
        let marked = unsafe { driver.record_event(stream, event) };
        marked.inspect_err(|_| {
            self.idle_events.push(event);
            // SAFETY: as above. An error is of work that its stream reports.
            drop(unsafe { driver.synchronize(stream) });
        })
    }

    /// Records a launch that an event represents.
    pub(super) fn note(
        &mut self,
        (lane, event, depends_on): (usize, EventHandle, &Conflicts),
        (kernel, args): (&LoadedKernel, &[u64]),
        given: &[(Arc<BufferCore>, Pointer)],
    ) {
        let (number, first) = (self.next_number(), self.first);
        let of_lane = &mut self.lanes[lane];
        of_lane.seen[lane] = number + 1;
        of_lane.module = Some(kernel.module);
        let seen = of_lane.seen;
        let decision = self.decide(number, (kernel, args), Some(lane), depends_on);
        self.launches.push_back(Placed { lane, event, decision, seen });
        for (buffer, pointer) in given {
            let mut used = Use { launch: number, pointer: *pointer, whole: false };
            let uses = self.uses.entry(buffer.id).or_default();
            if let Some(same) = uses.iter().rposition(|u| {
                let placed = u.launch.checked_sub(first).and_then(|at| self.launches.get(at as usize));
                let earlier = placed.filter(|placed| seen[placed.lane] > u.launch && !u.whole && u.launch != number);
                earlier.and_then(|placed| self.decisions.at(placed.decision)).is_some_and(|earlier| {
                    let earlier = Elements { kernel: &earlier.kernel.meta, args: &earlier.args, of: u.pointer };
                    earlier.are_those_of(&Elements { kernel: &kernel.meta, args, of: *pointer })
                })
            }) {
                // What conflicts with the earlier one also conflicts with this one, which is after it.
                uses.remove(same);
            }
            if uses.len() >= MOST_USES {
                uses.retain(|u| u.launch >= first);
            }
            if uses.len() >= MOST_USES {
                // It replaces the uses of launches that it is after; other uses are kept.
                let launches = &self.launches;
                let lane_of = |u: &Use| launches.get((u.launch - first) as usize).map(|placed| placed.lane);
                uses.retain(|u| u.launch == number || lane_of(u).is_none_or(|lane| seen[lane] <= u.launch));
                used.whole = true;
                used.pointer.written = true;
            }
            uses.push(used);
        }
    }

    /// Keeps the decision that a launch stays on the default stream.
    pub(super) fn note_at_home(&mut self, kernel: &LoadedKernel) {
        self.decide(self.next_number(), (kernel, &[]), None, &Conflicts::new());
    }

    /// Keeps a decision for a report, and returns its place.
    pub(super) fn decide(
        &mut self,
        number: u64,
        (kernel, args): (&LoadedKernel, &[u64]),
        lane: Option<usize>,
        depends_on: &Conflicts,
    ) -> u64 {
        let (kernel, args) = (kernel.reported.clone(), SmallVec::from_slice(args));
        let depends_on = SmallVec::from_slice(depends_on);
        self.decisions.push(Decided { number, kernel, args, lane, depends_on, replay: None })
    }

    /// The decisions since the last report.
    pub(super) fn report(&mut self) -> Vec<Decided> {
        self.decisions.report(self.launches.front().map(|placed| placed.decision))
    }

    /// Keeps a fusion for a report.
    pub(super) fn note_fusion(&mut self, fusion: Fusion) {
        if self.fusions.len() < MOST_FUSIONS && self.fusions.last() != Some(&fusion) {
            self.fusions.push(fusion);
        }
    }

    /// Keeps the decisions about the launches of a graph, which is launched for the first time, for a report.
    pub(super) fn decide_graph(&mut self, made: MadeGraph) {
        made.fusions.into_iter().for_each(|fusion| self.note_fusion(fusion));
        // Numbers of launches that later ones wait for stay as they are.
        if !self.launches.is_empty() {
            return;
        }
        let (first, replay) = (self.first, Some(self.replays));
        self.first += made.decided.len() as u64;
        for mut decided in made.decided {
            decided.number += first;
            decided.depends_on.iter_mut().for_each(|(number, _)| *number += first);
            decided.replay = replay;
            self.decisions.push(decided);
        }
    }

    /// The events of the last launch of each lane.
    pub(super) fn last_events(&self) -> Vec<EventHandle> {
        let last = self.lanes.iter().enumerate().filter_map(|(lane, l)| l.seen[lane].checked_sub(1));
        last.filter_map(|number| self.placed(number)).map(|p| p.event).collect()
    }

    pub(super) fn forget(&mut self) {
        self.first = self.next_number();
        self.idle_events.extend(self.launches.drain(..).map(|l| l.event));
        self.look_at = LOOK_AT;
        self.sweep();
    }
}
