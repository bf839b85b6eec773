//! [`Capture`]: records the launches, copies and fills of threads instead of executing them.
//!
//! A capturing thread launches as usual. What it would queue becomes a step of a graph ([`crate::captured_graph`]).
//! The step is ordered after the earlier steps of its stream and of events that the stream waits for. Streams are kept
//! apart, so the graph has the branches of the streams. Anything that the host would wait for or read has not
//! happened, so such calls are errors.
//!
//! Memory allocated during the capture belongs to the graph as well as to the program. Each launch of the graph finds
//! it zeroed.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::buffer::Buffer;
use crate::cores::{DeviceCore, StreamCore};
use crate::driver::{DevicePtr, EventHandle, GraphHandle, StreamHandle};
use crate::error::{ErrorKind, Result};
use crate::host_step::{HostStep, HostWork, UsedBuffers};
use crate::kernel::LoadedKernel;
use crate::nesting::{self, capture_refusal};
use crate::pattern::Pattern;
use crate::report::lock;
use crate::stage_arguments::HostArray;
use crate::stream::Results;

/// Size in bytes of the source pattern of a fill on devices without a fill call.
const KEPT_OF_FILL: u64 = 64 << 10;

thread_local! {
    static CURRENT: RefCell<Option<Arc<Capture>>> = const { RefCell::new(None) };
    /// Call site of this thread's next launch.
    static SITE: RefCell<Option<String>> = const { RefCell::new(None) };
    /// The step that records this thread's last launch.
    static LAST_STEP: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A step of a graph.
#[derive(Clone)]
pub(crate) struct Step {
    /// The stream it was queued on, counted from 0. Launches of a lane are after one another.
    pub(crate) lane: usize,
    /// Steps before it that it waits for.
    pub(crate) depends_on: Vec<usize>,
    pub(crate) work: Work,
    /// Its call site in the program, if races are checked.
    pub(crate) site: Option<String>,
}

impl Step {
    /// The steps that it depends on, from an index on.
    pub(crate) fn dependencies_from(&self, first: usize) -> impl Iterator<Item = usize> + '_ {
        self.depends_on.iter().copied().filter(move |b| *b >= first)
    }

    /// Notes that a stream uses the buffers of the step.
    pub(crate) fn note_uses(&self, on: &Arc<StreamCore>) {
        self.work.buffers().into_iter().for_each(|(buffer, writes)| buffer.note_use(on, writes));
    }
}

/// The operation of a step.
#[derive(Clone)]
pub(crate) enum Work {
    Launch(Arc<CapturedLaunch>),
    Fill { to: Buffer, at: DevicePtr, pattern: Pattern, bytes: u64 },
    Copy { to: Buffer, at: DevicePtr, from: Buffer, from_at: DevicePtr, bytes: u64 },
    Foreign(Arc<ForeignGraph>),
    Host(Arc<HostWork>),
}

impl Work {
    /// Whether it launches a kernel.
    pub(crate) fn launches(&self) -> bool {
        matches!(self, Work::Launch(_)) || matches!(self, Work::Host(work) if work.launch.is_some())
    }
}

/// A graph that another library has described.
pub(crate) struct ForeignGraph {
    device: Arc<DeviceCore>,
    ready: GraphHandle,
}

impl ForeignGraph {
    /// A graph that is ready to be launched.
    pub(crate) fn new(device: Arc<DeviceCore>, ready: GraphHandle) -> ForeignGraph {
        ForeignGraph { device, ready }
    }

    /// Queues the graph.
    ///
    /// # Safety
    /// The stream is alive, and so is the memory that the graph uses.
    pub(crate) unsafe fn launch(&self, on: StreamHandle) -> Result<()> {
        // SAFETY: the contract above; the graph was made ready for this value.
        unsafe { self.device.driver.launch_foreign_graph(on, self.ready) }
    }
}

impl Drop for ForeignGraph {
    fn drop(&mut self) {
        if !self.device.is_abandoned() {
            // SAFETY: as above, and no one else has it.
            unsafe { self.device.driver.destroy_foreign_graph(self.ready) }
        }
    }
}

/// A recorded launch.
pub(crate) struct CapturedLaunch {
    pub(crate) kernel: LoadedKernel,
    pub(crate) args: Box<[u64]>,
    pub(crate) arrays: Box<[HostArray]>,
    /// Buffers that its arguments name, and whether it writes to them.
    pub(crate) buffers: UsedBuffers,
    /// It uses memory of the host that is not among `arrays`.
    pub(crate) foreign: bool,
    /// Memory that is allocated for each run of the launch.
    pub(crate) store: Option<Arc<dyn CountedStore>>,
}

/// Memory of one run of a launch, of a size that depends on the contents of memory.
pub trait CountedStore: Send + Sync {
    /// The kernel that computes the size. It has the arguments of the launch.
    fn count(&self) -> &LoadedKernel;

    /// Allocates memory of the size that `count` returned, and sets the arguments that refer to it.
    ///
    /// # Errors
    /// That there is too little memory.
    fn allocate(&self, counted: &Results, args: &mut [u64]) -> Result<Vec<Buffer>>;
}

/// A recording of launches, by all participating threads.
pub struct Capture {
    device: Arc<DeviceCore>,
    open: Mutex<RecordedWork>,
}

/// The recorded work.
#[derive(Default)]
pub(crate) struct RecordedWork {
    pub(crate) steps: Vec<Step>,
    lanes: Vec<Lane>,
    /// Numbers of lanes that were given.
    numbers: usize,
    /// The steps after which new streams of the capture begin.
    base: Vec<usize>,
    events: HashMap<EventHandle, Vec<usize>>,
    /// Streams of other libraries, by handle, whose work comes first.
    pub(crate) awaited_handles: Vec<u64>,
    /// Memory that fills copy from.
    fills: HashMap<Vec<u8>, Buffer>,
    /// Memory that the graph owns, and whether its contents are constant.
    pub(crate) own: Vec<(Buffer, bool)>,
    /// Whether the recording has ended.
    ended: bool,
}

/// A stream of the capture.
struct Lane {
    stream: Arc<StreamCore>,
    number: usize,
    /// The steps that the next one depends on.
    ends: Vec<usize>,
}

/// Sets the call site of this thread's next launch.
pub(crate) fn set_site(site: Option<String>) {
    SITE.set(site);
}

impl RecordedWork {
    fn lane(&mut self, stream: &Arc<StreamCore>) -> usize {
        let known = self.lanes.iter().position(|l| Arc::ptr_eq(&l.stream, stream));
        known.unwrap_or_else(|| {
            self.lanes.push(Lane { stream: stream.clone(), number: self.numbers, ends: self.base.clone() });
            self.numbers += 1;
            self.lanes.len() - 1
        })
    }

    fn add(&mut self, stream: &Arc<StreamCore>, work: Work, site: Option<String>) -> usize {
        let (lane, step) = (self.lane(stream), self.steps.len());
        let lane = &mut self.lanes[lane];
        let depends_on = std::mem::replace(&mut lane.ends, vec![step]);
        self.steps.push(Step { lane: lane.number, depends_on, work, site });
        step
    }

    /// Makes everything that comes from now on wait for a step.
    fn precede(&mut self, step: usize) {
        self.lanes.iter_mut().map(|l| &mut l.ends).chain([&mut self.base]).for_each(|ends| add_ends(ends, &[step]));
    }
}

fn add_ends(ends: &mut Vec<usize>, more: &[usize]) {
    ends.extend(more);
    ends.sort_unstable();
    ends.dedup();
}

/// The capture that this thread takes part in.
#[inline]
pub(crate) fn current() -> Option<Arc<Capture>> {
    if nesting::capturing() { CURRENT.with(|c| c.borrow().clone()) } else { None }
}

/// The same, or the error for work that only a capture takes.
pub(crate) fn required() -> Result<Arc<Capture>> {
    let message = || "this thread is not capturing a graph".into();
    current().ok_or_else(|| ErrorKind::Misuse { message: message() }.into())
}

impl Capture {
    pub(crate) fn new(device: &Arc<DeviceCore>) -> Arc<Capture> {
        Arc::new(Capture { device: device.clone(), open: Mutex::default() })
    }

    /// Lets this thread participate.
    pub fn begin_here(self: &Arc<Self>) -> Result<()> {
        self.device.check_open("capture")?;
        if nesting::inside() || nesting::capturing() {
            let message = "this thread is already capturing a graph: captures cannot be nested, but a capture can \
                           launch graphs captured earlier"
                .into();
            return Err(ErrorKind::Misuse { message }.into());
        }
        CURRENT.with(|c| *c.borrow_mut() = Some(self.clone()));
        nesting::mark_capturing(true);
        Ok(())
    }

    /// Number of steps recorded so far.
    pub fn noted_steps(&self) -> usize {
        lock(&self.open).steps.len()
    }

    /// Ends the part of this thread; whether it took part in this capture.
    pub fn end_here(self: &Arc<Self>) -> bool {
        let ended = CURRENT.with(|c| c.borrow_mut().take_if(|current| Arc::ptr_eq(current, self)).is_some());
        if ended {
            nesting::mark_capturing(false);
        }
        ended
    }

    /// Takes the step that records this thread's last launch.
    pub fn take_last_step() -> Option<usize> {
        LAST_STEP.take()
    }

    /// Records newly allocated, zeroed memory if this thread captures: each launch of the graph is to find it so.
    pub fn note_new_here(buffer: &Buffer) -> Result<()> {
        current().map_or(Ok(()), |capture| capture.note_new(buffer))
    }

    /// Makes memory whose contents do not outlive a launch the graph's own if this thread captures.
    pub(crate) fn note_own_here(buffer: &Buffer) -> Result<()> {
        if let Some(capture) = current() {
            capture.noted()?.own.push((buffer.clone(), false));
        }
        Ok(())
    }

    /// Takes the recorded work. Threads that still take part are refused from now on.
    pub(crate) fn end(&self) -> RecordedWork {
        std::mem::replace(&mut *lock(&self.open), RecordedWork { ended: true, ..RecordedWork::default() })
    }

    fn noted(&self) -> Result<MutexGuard<'_, RecordedWork>> {
        let noted = lock(&self.open);
        if noted.ended {
            let message = "the capture that this thread takes part in has ended: leave `on_this_thread()` before the \
                           `with` block that captures"
                .into();
            return Err(ErrorKind::Misuse { message }.into());
        }
        Ok(noted)
    }

    pub(crate) fn device(&self) -> &Arc<DeviceCore> {
        &self.device
    }

    fn check(&self, device: &Arc<DeviceCore>, what: &'static str) -> Result<()> {
        self.device.check_open("capture")?;
        if Arc::ptr_eq(&self.device, device) { Ok(()) } else { Err(ErrorKind::ForeignDevice { what }.into()) }
    }

    pub(crate) fn note_launch(
        &self,
        stream: &Arc<StreamCore>,
        kernel: &LoadedKernel,
        (args, arrays): (&[u64], &[HostArray]),
        store: Option<Arc<dyn CountedStore>>,
    ) -> Result<()> {
        if kernel.assumes_order && !self.device.immediate {
            let what = format!("code of kernel `{}` that assumes the order of launches is captured", kernel.meta.name);
            return Err(ErrorKind::CompilerBug(what).into());
        }
        let (buffers, foreign) = self.launchable(stream, kernel, (args, arrays))?;
        let foreign = foreign && self.device.host_addressable && !self.device.immediate;
        let launch = CapturedLaunch {
            kernel: kernel.clone(),
            args: args.into(),
            arrays: arrays.into(),
            buffers,
            foreign,
            store,
        };
        self.note_last(stream, Work::Launch(Arc::new(launch)))
    }

    /// Records a launch that the host makes at each launch of the graph, with these arguments.
    pub(crate) fn note_host_launch(
        &self,
        stream: &Arc<StreamCore>,
        kernel: &LoadedKernel,
        (args, arrays): (&[u64], &[HostArray]),
        step: Arc<HostStep>,
    ) -> Result<()> {
        let (buffers, _) = self.launchable(stream, kernel, (args, arrays))?;
        let name: Box<str> = (&*kernel.meta.name).into();
        let collective = Some(format!("kernel `{name}`").into());
        let launch = Some((kernel.clone(), args.into()));
        self.note_last(stream, Work::Host(Arc::new(HostWork { name, collective, step, launch, buffers })))
    }

    /// Records another step of the host.
    pub(crate) fn note_host(
        &self,
        stream: &Arc<StreamCore>,
        (name, collective): (&str, Option<&str>),
        step: Arc<HostStep>,
    ) -> Result<()> {
        self.check(&stream.device, "stream")?;
        let (name, collective) = (name.into(), collective.map(Into::into));
        let work = HostWork { name, collective, step, launch: None, buffers: Box::default() };
        let _ = self.noted()?.add(stream, Work::Host(Arc::new(work)), None);
        Ok(())
    }

    /// Records the launch that a call has made.
    fn note_last(&self, stream: &Arc<StreamCore>, work: Work) -> Result<()> {
        let step = self.noted()?.add(stream, work, SITE.take());
        LAST_STEP.set(Some(step));
        Ok(())
    }

    /// The buffers that a launch uses, whether it writes to them, and whether it uses other memory. Refuses launches
    /// that cannot be recorded.
    fn launchable(
        &self,
        stream: &Arc<StreamCore>,
        kernel: &LoadedKernel,
        (args, arrays): (&[u64], &[HostArray]),
    ) -> Result<(UsedBuffers, bool)> {
        self.check(&stream.device, "stream")?;
        self.check(&kernel.core, "kernel")?;
        if !kernel.meta.result.is_empty() {
            return Err(capture_refusal(&format!("kernel `{}` cannot return a value", kernel.meta.name)));
        }
        if args.len() != kernel.meta.arg_slots as usize {
            let what = format!("kernel `{}` was given {} argument slots", kernel.meta.name, args.len());
            return Err(ErrorKind::CompilerBug(what).into());
        }
        let mut buffers: Vec<(Buffer, bool)> = Vec::new();
        let mut foreign = false;
        for p in kernel.pointers.iter() {
            let address = args[p.slot as usize];
            if address == 0 || arrays.iter().any(|a| a.slot == p.slot) {
                continue;
            }
            match self.device.find_buffer(address) {
                Some(core) => {
                    let buffer = Buffer::of(core);
                    if kernel.exposes_addresses {
                        buffer.expose();
                    }
                    buffers.push((buffer, p.written));
                }
                None => foreign = true,
            }
        }
        Ok((buffers.into(), foreign))
    }

    pub(crate) fn note_copy(
        &self,
        stream: &Arc<StreamCore>,
        (to, at): (&Buffer, DevicePtr),
        (from, from_at): (&Buffer, DevicePtr),
        bytes: u64,
    ) -> Result<()> {
        self.check(&stream.device, "stream")?;
        if bytes > 0 {
            let copy = Work::Copy { to: to.clone(), at, from: from.clone(), from_at, bytes };
            let _ = self.noted()?.add(stream, copy, SITE.take());
        }
        Ok(())
    }

    /// Notes a graph that another library has described.
    ///
    /// # Safety
    /// The handle is one of the device's graphs. The memory that it uses is alive when the noted graph is launched.
    pub(crate) unsafe fn note_foreign_graph(&self, stream: &Arc<StreamCore>, graph: u64) -> Result<()> {
        self.check(&stream.device, "stream")?;
        // SAFETY: the contract above.
        let ready = unsafe { self.device.driver.ready_foreign_graph(graph)? };
        let foreign = ForeignGraph { device: self.device.clone(), ready };
        let _ = self.noted()?.add(stream, Work::Foreign(Arc::new(foreign)), None);
        Ok(())
    }

    /// Notes that memory becomes what `from` is now.
    pub(crate) fn note_upload(&self, stream: &Arc<StreamCore>, to: (&Buffer, DevicePtr), from: &[u8]) -> Result<()> {
        if from.is_empty() {
            return Ok(());
        }
        let kept = Buffer::holding(&self.device, from)?;
        self.noted()?.own.push((kept.clone(), true));
        self.note_copy(stream, to, (&kept, kept.at(0, 0)?), from.len() as u64)
    }

    /// Notes that memory becomes `count` times an element.
    pub(crate) fn note_fill(
        &self,
        stream: &Arc<StreamCore>,
        (to, at): (&Buffer, DevicePtr),
        element: &[u8],
        count: u64,
    ) -> Result<()> {
        self.check(&stream.device, "stream")?;
        let (mut noted, site) = (self.noted()?, SITE.take());
        for work in self.fill(&mut noted, (to, at), element, count)? {
            let _ = noted.add(stream, work, site.clone());
        }
        Ok(())
    }

    fn note_new(&self, buffer: &Buffer) -> Result<()> {
        if buffer.bytes() == 0 {
            return Ok(());
        }
        let mut noted = self.noted()?;
        let works = self.fill(&mut noted, (buffer, buffer.at(0, 0)?), &[0], buffer.bytes())?;
        noted.own.push((buffer.clone(), false));
        let mut depends_on = Vec::new();
        for work in works {
            let step = noted.steps.len();
            noted.steps.push(Step {
                lane: 0,
                depends_on: std::mem::replace(&mut depends_on, vec![step]),
                work,
                site: None,
            });
        }
        depends_on.into_iter().for_each(|last| noted.precede(last));
        Ok(())
    }

    fn fill(
        &self,
        noted: &mut RecordedWork,
        (to, at): (&Buffer, DevicePtr),
        element: &[u8],
        count: u64,
    ) -> Result<Vec<Work>> {
        let size = element.len() as u64;
        let bytes = size.saturating_mul(count);
        if bytes == 0 {
            return Ok(Vec::new());
        }
        let pattern = Pattern::of(element).filter(|p| at.0.is_multiple_of(p.bytes()) && self.device.driver.fills());
        if let Some(pattern) = pattern {
            return Ok(vec![Work::Fill { to: to.clone(), at, pattern, bytes }]);
        }
        // The first copies come from the source pattern; the rest double what was already filled.
        let kept = element.repeat((KEPT_OF_FILL / size).clamp(1, count) as usize);
        let mut done = kept.len() as u64;
        let from = match noted.fills.get(&kept) {
            Some(known) => known.clone(),
            None => {
                let made = Buffer::holding(&self.device, &kept)?;
                noted.own.push((made.clone(), true));
                noted.fills.insert(kept, made.clone());
                made
            }
        };
        let from_at = from.at(0, 0)?;
        let mut works = vec![Work::Copy { to: to.clone(), at, from, from_at, bytes: done }];
        while done < bytes {
            let next = done.min(bytes - done);
            let later = DevicePtr(at.0 + done);
            works.push(Work::Copy { to: to.clone(), at: later, from: to.clone(), from_at: at, bytes: next });
            done += next;
        }
        Ok(works)
    }

    /// Records an event on a stream of the capture.
    pub(crate) fn note_event(&self, stream: &Arc<StreamCore>, event: EventHandle) -> Result<()> {
        self.check(&stream.device, "stream")?;
        let mut noted = self.noted()?;
        let lane = noted.lane(stream);
        let ends = noted.lanes[lane].ends.clone();
        noted.events.insert(event, ends);
        Ok(())
    }

    /// Makes a stream of the capture wait for an event.
    pub(crate) fn wait_event(&self, stream: &Arc<StreamCore>, event: EventHandle) -> Result<()> {
        self.check(&stream.device, "stream")?;
        let mut noted = self.noted()?;
        let Some(ends) = noted.events.get(&event).cloned() else {
            let message = "a capture can only wait for events that it recorded itself: before the launch, let the \
                           stream that the graph is launched on wait for the event"
                .into();
            return Err(ErrorKind::Misuse { message }.into());
        };
        let lane = noted.lane(stream);
        add_ends(&mut noted.lanes[lane].ends, &ends);
        Ok(())
    }

    /// Makes a stream of the capture wait for another one.
    pub(crate) fn wait_stream(&self, stream: &Arc<StreamCore>, other: &Arc<StreamCore>) -> Result<()> {
        self.check(&stream.device, "stream")?;
        self.check(&other.device, "stream")?;
        let mut noted = self.noted()?;
        let (lane, earlier) = (noted.lane(stream), noted.lane(other));
        let ends = noted.lanes[earlier].ends.clone();
        add_ends(&mut noted.lanes[lane].ends, &ends);
        Ok(())
    }

    /// Records a stream of another library whose work precedes that of the graph.
    pub(crate) fn note_handle(&self, handle: u64) {
        let mut noted = lock(&self.open);
        if !noted.awaited_handles.contains(&handle) {
            noted.awaited_handles.push(handle);
        }
    }

    /// Makes each stream wait for all recorded steps.
    pub(crate) fn fence(&self) {
        let mut noted = lock(&self.open);
        let mut last = vec![true; noted.steps.len()];
        noted.steps.iter().flat_map(|s| &s.depends_on).for_each(|b| last[*b] = false);
        let all: Vec<usize> = (0..last.len()).filter(|step| last[*step]).collect();
        noted.lanes.iter_mut().for_each(|l| l.ends.clone_from(&all));
        noted.base = all;
    }

    /// Notes the steps of another graph, launched on a stream.
    pub(crate) fn note_graph(
        &self,
        stream: &Arc<StreamCore>,
        (steps, awaited_handles, memory): (&[Step], &[u64], &[(Buffer, bool)]),
    ) -> Result<()> {
        self.check(&stream.device, "stream")?;
        awaited_handles.iter().for_each(|h| self.note_handle(*h));
        let mut noted = self.noted()?;
        noted.own.extend(memory.iter().cloned());
        let (lane, first) = (noted.lane(stream), noted.steps.len());
        let before = noted.lanes[lane].ends.clone();
        // The first lane of the nested graph is that of the stream. The others are new, because lanes of two graphs, or
        // of two launches of one, may run concurrently.
        let (own_number, others) = (noted.lanes[lane].number, noted.numbers);
        let number_of = |inner: usize| if inner == 0 { own_number } else { others + inner - 1 };
        noted.numbers += steps.iter().map(|s| s.lane).max().unwrap_or(0);
        let mut ends: Vec<usize> = Vec::new();
        for step in steps {
            let own: Vec<usize> = step.depends_on.iter().map(|s| s + first).collect();
            let place = noted.steps.len();
            ends.retain(|end| !own.contains(end));
            ends.push(place);
            let depends_on = if own.is_empty() { before.clone() } else { own };
            noted.steps.push(Step {
                lane: number_of(step.lane),
                depends_on,
                work: step.work.clone(),
                site: step.site.clone(),
            });
        }
        if !ends.is_empty() {
            noted.lanes[lane].ends = ends;
        }
        Ok(())
    }
}
