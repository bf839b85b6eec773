//! [`CapturedGraph`]: the steps that a [`Capture`] recorded, launched as one graph.
//!
//! Steps run after those they depend on, and otherwise concurrently if the device can. Steps in which the host takes
//! part (it copies its own arrays, or evaluates a condition) separate pieces that run without it. The driver may turn
//! each piece into one graph of its own ([`crate::Driver::make_graph`]). The memory that launches use besides their
//! arguments belongs to the graph. A graph can therefore run concurrently with anything but itself: a launch on
//! another stream waits for the previous one.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use octants_artifact::DeviceContext;

use crate::buffer::Buffer;
use crate::caller::Caller;
use crate::capture::{Capture, CapturedLaunch, RecordedWork, Step, Work};
use crate::cores::{DeviceCore, StreamCore};
use crate::counter_snapshot::{CounterSnapshot, ExchangedCounters};
use crate::driver::{Contents, DevicePtr, EventHandle, GraphHandle};
use crate::error::{ErrorKind, Result};
use crate::host_step::{HostStep, HostWork};
use crate::sections::{Section, decides};

/// Launches, copies and fills that are launched as one.
pub struct CapturedGraph {
    device: Arc<DeviceCore>,
    plan: Mutex<Plan>,
}

/// A graph's steps, and how they are launched.
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    /// Failures name the step.
    pub(crate) names_steps: bool,
    pub(crate) lanes: usize,
    pub(crate) awaited_handles: Vec<u64>,
    /// Memory that is the graph's own, and whether it always holds the same.
    pub(crate) own: Vec<(Buffer, bool)>,
    /// The layout derived from the steps. `None` before the first launch, and after a step was replaced by one with
    /// other code.
    pub(crate) layout: Option<Layout>,
    /// Steps that were updated since the last launch.
    pub(crate) exchanged: Vec<usize>,
    /// The stream of the last launch.
    pub(crate) last: Weak<StreamCore>,
    /// Layouts in use by launches that another library has captured, and may run at any time.
    captured: Vec<Layout>,
    /// Number of times that the steps were divided into pieces.
    makes: u64,
}

/// How the steps of a graph are launched.
pub(crate) struct Layout {
    device: Arc<DeviceCore>,
    pub(crate) pieces: Vec<Piece>,
    /// Frames of the lanes.
    pub(crate) frames: Vec<Option<Buffer>>,
    /// Memory that is used, by its address.
    uses: BTreeMap<u64, Used>,
    /// Events of steps that others on other lanes wait for; made when a piece is first queued step by step.
    pub(crate) events: Vec<Option<EventHandle>>,
    /// Steps of a piece that others of it, on other lanes, wait for.
    pub(crate) crosses: Vec<bool>,
    /// For each launch among the steps, its number in its piece.
    pub(crate) ordinals: Vec<u64>,
    /// Bytes that the host reads conditions from.
    pub(crate) result_bytes: u64,
}

/// Memory that the steps use.
struct Used {
    buffer: Buffer,
    /// How many times steps name it, and how many times to write to it.
    uses: usize,
    writes: usize,
}

/// Steps without the host, or a single step in which the host takes part.
pub(crate) struct Piece {
    pub(crate) steps: Range<usize>,
    /// The lanes of its steps.
    pub(crate) lanes: Vec<usize>,
    /// Launches among its steps.
    pub(crate) launches: u64,
    pub(crate) kind: PieceKind,
}

/// How a piece is launched.
#[derive(Clone, Copy)]
pub(crate) enum PieceKind {
    /// A launch with work of the host's.
    Alone,
    /// A step that the caller of the graph's launch performs.
    Host,
    /// No native graph has been requested from the driver.
    New,
    /// It does.
    Made { graph: GraphHandle, channel: DevicePtr },
    /// Step by step.
    Apart,
}

impl CapturedLaunch {
    /// The host has a part in it.
    fn is_alone(&self) -> bool {
        let kernel = &self.kernel;
        fn needs_host(sections: &[Section]) -> bool {
            let asks =
                |s: &Section| matches!(s, Section::Checkpoint(..)) || s.parts().iter().any(|part| needs_host(part));
            sections.iter().any(asks)
        }
        !self.arrays.is_empty()
            || self.foreign
            || self.store.is_some()
            || kernel.spilled_at.is_some()
            || needs_host(&kernel.sections)
    }

    /// Whether the host may have to evaluate a condition.
    pub(crate) fn decides(&self) -> bool {
        decides(&self.kernel.sections)
    }
}

impl Work {
    /// Buffers that it uses, and whether it writes to them.
    pub(crate) fn buffers(&self) -> Vec<(&Buffer, bool)> {
        match self {
            Work::Launch(launch) => launch.buffers.iter().map(|(b, writes)| (b, *writes)).collect(),
            Work::Fill { to, .. } => vec![(to, true)],
            Work::Copy { to, from, .. } => vec![(to, true), (from, false)],
            Work::Foreign(_) => Vec::new(),
            Work::Host(work) => work.buffers.iter().map(|(b, writes)| (b, *writes)).collect(),
        }
    }

    fn copies_to(&self, buffer: &Buffer) -> bool {
        matches!(self, Work::Copy { to, .. } if to.number() == buffer.number())
    }

    /// Whether it separates native graphs.
    fn is_alone(&self) -> bool {
        match self {
            Work::Launch(launch) => launch.is_alone(),
            Work::Foreign(_) | Work::Host(_) => true,
            Work::Fill { .. } | Work::Copy { .. } => false,
        }
    }
}

impl CapturedGraph {
    /// The recorded steps.
    pub fn of(capture: &Capture) -> CapturedGraph {
        let RecordedWork { steps, awaited_handles, own, .. } = capture.end();
        CapturedGraph::of_steps(capture.device(), steps, awaited_handles, own)
    }

    /// Steps that are launched as one native graph, with their own memory.
    pub(crate) fn of_steps(
        device: &Arc<DeviceCore>,
        steps: Vec<Step>,
        awaited_handles: Vec<u64>,
        own: Vec<(Buffer, bool)>,
    ) -> CapturedGraph {
        let lanes = steps.iter().map(|s| s.lane + 1).max().unwrap_or(1);
        let plan = Plan {
            steps,
            names_steps: true,
            lanes,
            awaited_handles,
            own,
            layout: None,
            exchanged: Vec::new(),
            last: Weak::new(),
            captured: Vec::new(),
            makes: 0,
        };
        CapturedGraph { device: device.clone(), plan: Mutex::new(plan) }
    }

    /// For launches that the program did not capture: failures do not name their steps.
    pub(crate) fn without_step_names(self) -> CapturedGraph {
        self.lock().names_steps = false;
        self
    }

    /// Exchanges launches for those that another capture has noted, in order, for launches of the graph from now on.
    /// True for each step with the same code, so that only its arguments differ. `counters` has the loop counters of
    /// each launch.
    pub fn exchange(&self, steps: &[usize], by: &Capture, counters: &mut [ExchangedCounters]) -> Result<Vec<bool>> {
        let mut noted = by.end();
        let is_launch = |step: &Step| step.work.launches();
        // The others save counters.
        noted.steps.retain(is_launch);
        let mut guard = self.lock();
        let plan = &mut *guard;
        let bug = |what: &str| Err(ErrorKind::CompilerBug(format!("a step cannot be updated {what}")).into());
        if noted.steps.len() != steps.len() {
            return bug("with something that is not a launch");
        }
        if !steps.iter().all(|s| plan.steps.get(*s).is_some_and(is_launch)) {
            return bug("that is not a launch");
        }
        for ((place, new), counters) in steps.iter().zip(&noted.steps).zip(&*counters) {
            if let ExchangedCounters::Restored(restored) = counters {
                restored.check_same(&plan.steps[*place].work, &new.work)?;
            }
        }
        plan.own.append(&mut noted.own);
        for handle in noted.awaited_handles {
            if !plan.awaited_handles.contains(&handle) {
                plan.awaited_handles.push(handle);
            }
        }
        for counters in counters {
            if let ExchangedCounters::Saved { before, now } = counters {
                plan.save_others(before, now)?;
            }
        }
        let same = |(place, new): (&usize, Step)| plan.exchange(*place, new.work);
        Ok(steps.iter().zip(noted.steps).map(same).collect())
    }

    /// Whether memory belongs to the graph.
    pub fn owns(&self, buffer: &Buffer) -> bool {
        let plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        plan.own.iter().any(|(own, _)| own.number() == buffer.number())
    }

    /// Number of steps.
    pub fn steps(&self) -> usize {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner).steps.len()
    }

    /// What each step does, its lane, and the steps that it waits for.
    pub fn describe(&self) -> Vec<(String, usize, Vec<usize>)> {
        let plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        let what = |work: &Work| match work {
            Work::Launch(launch) => launch.kernel.meta.name.to_string(),
            Work::Fill { bytes, .. } => format!("fill {bytes} bytes"),
            Work::Copy { bytes, .. } => format!("copy {bytes} bytes"),
            Work::Foreign(_) => "graph of another library".into(),
            Work::Host(work) => work.name.to_string(),
        };
        plan.steps.iter().map(|s| (what(&s.work), s.lane, s.depends_on.clone())).collect()
    }

    /// Times that the driver was given the steps again.
    pub fn makes(&self) -> u64 {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner).makes
    }

    /// False once the program it belongs to has ended.
    pub fn alive(&self) -> bool {
        !self.device.is_closed()
    }

    /// What all ranks do together at the steps of the host, in order.
    pub fn collectives(&self) -> Vec<String> {
        let collective = |step: &Step| match &step.work {
            Work::Host(work) => work.collective.as_deref().map(str::to_owned),
            _ => None,
        };
        self.lock().steps.iter().filter_map(collective).collect()
    }

    /// Exchanges a step of the host that launches no kernel for another one.
    pub fn exchange_host(&self, step: usize, (name, collective): (&str, Option<&str>), by: Arc<HostStep>) {
        let mut plan = self.lock();
        if let Some(Work::Host(work)) = plan.steps.get_mut(step).map(|step| &mut step.work) {
            let (name, collective) = (name.into(), collective.map(Into::into));
            *work = Arc::new(HostWork { name, collective, step: by, launch: None, buffers: Box::default() });
        }
    }

    /// The current steps, independent of the launching stream.
    pub(crate) fn steps_now(&self) -> Vec<Step> {
        self.lock().steps.clone()
    }

    /// The stream of the last launch, if it is alive.
    pub(crate) fn last_stream(&self) -> Option<Arc<StreamCore>> {
        self.lock().last.upgrade()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn device(&self) -> &Arc<DeviceCore> {
        &self.device
    }

    /// The plan, when no other thread launches the graph.
    pub(crate) fn plan(&self, caller: &dyn Caller) -> MutexGuard<'_, Plan> {
        match self.plan.try_lock() {
            Ok(plan) => plan,
            Err(TryLockError::Poisoned(p)) => p.into_inner(),
            Err(TryLockError::WouldBlock) => {
                caller.will_block();
                self.plan.lock().unwrap_or_else(PoisonError::into_inner)
            }
        }
    }
}

impl Plan {
    /// Exchanges a launch for another one; whether both have the same code.
    fn exchange(&mut self, step: usize, new: Work) -> bool {
        let old = std::mem::replace(&mut self.steps[step].work, new);
        let new = &self.steps[step].work;
        let same_code = match (&old, new) {
            (Work::Launch(old), Work::Launch(new)) => {
                old.kernel.module == new.kernel.module && old.is_alone() == new.is_alone()
            }
            (Work::Host(old), Work::Host(new)) => old.has_code_of(new),
            _ => false,
        };
        match &mut self.layout {
            Some(layout) if same_code => {
                new.buffers().into_iter().for_each(|(buffer, writes)| layout.note_use(buffer, writes));
                old.buffers().into_iter().for_each(|(buffer, writes)| layout.forget_use(buffer, writes));
                if !self.exchanged.contains(&step) {
                    self.exchanged.push(step);
                }
            }
            layout => *layout = None,
        }
        same_code
    }

    /// Lets the steps that save counters save others, in the same memory: a gradient reads them there.
    fn save_others(&mut self, before: &Arc<CounterSnapshot>, now: &mut Arc<CounterSnapshot>) -> Result<()> {
        let Some(saved) = now.saved_in_place_of(before) else {
            return Err(ErrorKind::CompilerBug("a launch was updated with one of other loops".into()).into());
        };
        for (copy, counter, offset) in saved.parts() {
            let place = self.steps.iter().position(|step| step.work.copies_to(copy));
            if let Some(place) = place
                && let Work::Copy { from, from_at, .. } = &mut self.steps[place].work
                && *from_at != counter.at(offset, 0)?
            {
                (*from, *from_at) = (counter.clone(), counter.at(offset, 0)?);
                self.layout = None;
            }
        }
        *now = Arc::new(saved);
        Ok(())
    }

    /// A step uses memory that may no longer be used.
    pub(crate) fn uses_retired(&self) -> bool {
        self.steps.iter().any(|step| step.work.buffers().iter().any(|(buffer, _)| buffer.is_retired()))
    }

    /// Keeps the memory of the layout for another library, whose graph a launch has become a part of: later launches
    /// have their own memory.
    pub(crate) fn leave_layout(&mut self) {
        self.captured.extend(self.layout.take());
    }

    /// Lays the steps out, unless that was done.
    pub(crate) fn lay_out(&mut self, device: &Arc<DeviceCore>) -> Result<()> {
        if self.layout.is_none() {
            self.layout = Some(Layout::new(device, &self.steps, self.lanes)?);
            self.exchanged.clear();
            self.makes += 1;
        }
        Ok(())
    }
}

impl Layout {
    fn new(device: &Arc<DeviceCore>, steps: &[Step], lanes: usize) -> Result<Layout> {
        let mut layout = Layout {
            device: device.clone(),
            pieces: Vec::new(),
            frames: Vec::new(),
            uses: BTreeMap::new(),
            events: vec![None; steps.len()],
            crosses: vec![false; steps.len()],
            ordinals: Vec::with_capacity(steps.len()),
            result_bytes: 0,
        };
        let mut frames = vec![0; lanes];
        for (place, step) in steps.iter().enumerate() {
            let launch = match &step.work {
                Work::Launch(launch) => Some(&**launch),
                _ => None,
            };
            let kind = match &step.work {
                Work::Host(_) => PieceKind::Host,
                work if work.is_alone() && (!device.immediate || launch.is_some_and(|l| l.store.is_some())) => {
                    PieceKind::Alone
                }
                _ => PieceKind::New,
            };
            match (layout.pieces.last_mut(), kind) {
                (Some(piece), PieceKind::New) if matches!(piece.kind, PieceKind::New) => piece.steps.end = place + 1,
                _ => {
                    layout.pieces.push(Piece { steps: place..place + 1, lanes: Vec::new(), launches: 0, kind });
                }
            }
            if let Some(piece) = layout.pieces.last_mut() {
                if !piece.lanes.contains(&step.lane) {
                    piece.lanes.push(step.lane);
                }
                for before in step.dependencies_from(piece.steps.start).filter(|b| steps[*b].lane != step.lane) {
                    layout.crosses[before] = true;
                }
                layout.ordinals.push(piece.launches);
                piece.launches += u64::from(launch.is_some());
            }
            if let Some(launch) = launch {
                let count = launch.store.as_ref().map_or(0, |store| store.count().result_bytes);
                layout.result_bytes = layout.result_bytes.max(launch.kernel.result_bytes).max(count);
                let frame: &mut u64 = &mut frames[step.lane];
                *frame = (*frame).max(launch.kernel.frame_bytes);
            }
            step.work.buffers().into_iter().for_each(|(buffer, writes)| layout.note_use(buffer, writes));
        }
        for bytes in frames {
            let bytes = if bytes == 0 { 0 } else { DeviceContext::BEFORE_FRAME + bytes };
            let frame = if bytes == 0 { None } else { Some(Buffer::allocate(device, bytes, Contents::Zeroed)?) };
            frame.iter().for_each(|f| layout.note_use(f, true));
            layout.frames.push(frame);
        }
        Ok(layout)
    }

    fn note_use(&mut self, buffer: &Buffer, writes: bool) {
        if buffer.bytes() > 0 {
            let new = || Used { buffer: buffer.clone(), uses: 0, writes: 0 };
            let used = self.uses.entry(buffer.address().0).or_insert_with(new);
            used.uses += 1;
            used.writes += usize::from(writes);
        }
    }

    /// A step that was exchanged no longer uses a buffer, which the graph would keep otherwise.
    fn forget_use(&mut self, buffer: &Buffer, writes: bool) {
        let Some(used) = self.uses.get_mut(&buffer.address().0) else { return };
        used.uses -= 1;
        used.writes -= usize::from(writes);
        if used.uses == 0 {
            self.uses.remove(&buffer.address().0);
        }
    }

    /// Memory that is used, and whether it is written to.
    pub(crate) fn uses(&self) -> impl Iterator<Item = (&Buffer, bool)> {
        self.uses.values().map(|used| (&used.buffer, used.writes > 0))
    }

    /// The frame of a lane.
    pub(crate) fn frame(&self, lane: usize) -> DevicePtr {
        let at = |frame: &Buffer| DevicePtr(frame.address().0 + DeviceContext::BEFORE_FRAME);
        self.frames.get(lane).and_then(Option::as_ref).map_or(DevicePtr(0), at)
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        if self.device.is_abandoned() {
            return;
        }
        // SAFETY: made by this driver for this layout, and no one else has them.
        unsafe {
            for piece in &self.pieces {
                if let PieceKind::Made { graph, .. } = piece.kind {
                    self.device.driver.destroy_graph(graph);
                }
            }
            self.events.iter().flatten().for_each(|event| self.device.driver.destroy_event(*event));
        }
    }
}
