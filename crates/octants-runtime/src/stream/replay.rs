//! Launches a captured graph on a stream.
//!
//! A piece that the driver holds as a graph is launched by one call. Otherwise its steps are queued one by one, with
//! lanes on worker streams between a fork and a join. On a device that executes immediately, steps run in the order of
//! the capture. Before a step that the caller performs, the stream's turn ends: the step queues its work as any launch
//! does.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Stream;
use super::walk::{Completion, Walk};
use crate::caller::Caller;
use crate::capture::{self, CapturedLaunch, Step, Work};
use crate::captured_graph::{CapturedGraph, Layout, Piece, PieceKind, Plan};
use crate::cores::{Awaited, DeviceCore, StreamCore, Update};
use crate::driver::{CheckpointWords, DevicePtr, GraphPart, Launch, PartWork, StreamHandle};
use crate::error::{ErrorKind, Result};
use crate::foreign::Once;
use crate::fork::Fork;
use crate::host_step::{HostStep, HostWork};
use crate::nesting::{self, Inside};
use crate::scratch::{Checkpoints, Room, Scratch};
use crate::update_order::Updating;

/// The shared state of the launches of a graph.
struct Replay<'a> {
    stream: &'a Arc<StreamCore>,
    steps: &'a [Step],
    /// Failures name the step.
    names_steps: bool,
    /// The channel of each launch that sends messages, by step.
    log_channels: Vec<(DevicePtr, u64)>,
    /// Number of the first launch of a piece.
    number: u64,
    result: DevicePtr,
    caller: &'a dyn Caller,
}

impl Stream {
    /// Launches a graph. It runs after all work of this stream, and before later work.
    ///
    /// # Safety
    /// The memory that its launches name by address, beyond buffers of this device, is alive as it was at the capture.
    pub unsafe fn launch_graph(&self, graph: &CapturedGraph, caller: &dyn Caller) -> Result<()> {
        let bug = |_: &HostStep| {
            let what = "a graph with steps of the host is launched by a thread that does not perform them";
            Err(ErrorKind::CompilerBug(what.into()).into())
        };
        // SAFETY: the caller's contract.
        unsafe { self.launch_graph_with(graph, caller, &bug) }
    }

    /// The same for a graph with steps of the host, which `host` performs on this stream, between the other steps.
    ///
    /// # Safety
    /// As [`Stream::launch_graph`].
    pub unsafe fn launch_graph_with(
        &self,
        graph: &CapturedGraph,
        caller: &dyn Caller,
        host: &dyn Fn(&HostStep) -> Result<()>,
    ) -> Result<()> {
        let core = &self.0;
        if nesting::inside() {
            let message = "a graph cannot be launched by a task's print".into();
            return Err(ErrorKind::Misuse { message }.into());
        }
        core.device.check_open("stream")?;
        if !Arc::ptr_eq(&core.device, graph.device()) {
            let what = "graph";
            let gone = !graph.alive();
            return Err(if gone { ErrorKind::ProgramGone { what } } else { ErrorKind::ForeignDevice { what } }.into());
        }
        let mut plan = graph.plan(caller);
        if core.device.has_retired.load(Ordering::Acquire) && plan.uses_retired() {
            let message = "this graph uses the memory of fields whose SNode tree was destroyed: capture it again";
            return Err(ErrorKind::Misuse { message: message.into() }.into());
        }
        if let Some(capture) = capture::current() {
            return capture.note_graph(core, (&plan.steps, &plan.awaited_handles, &plan.own));
        }
        let mut next = 0;
        let end = loop {
            // SAFETY: the caller's contract.
            match unsafe { core.take_turn_for(&mut plan, &mut next, caller) } {
                Ok(None) => break Ok(()),
                Ok(Some(work)) => {
                    if let Err(error) = host(&*work.step) {
                        break Err(error);
                    }
                }
                Err(error) => break Err(error),
            }
        };
        drop(plan);
        if core.device.immediate {
            core.device.printer.flush();
        }
        end
    }
}

impl Stream {
    /// Adds a graph that another library has described to the graph that this thread captures, on this stream.
    ///
    /// # Safety
    /// The handle is one of the device's graphs. The memory that it uses is alive when the captured graph is launched.
    pub unsafe fn add_foreign_graph(&self, graph: u64) -> Result<()> {
        // SAFETY: the contract above.
        unsafe { capture::required()?.note_foreign_graph(&self.0, graph) }
    }
}

impl StreamCore {
    /// Launches the pieces from a number on, in one turn, until a step that the caller of the launch performs, which it
    /// returns. `next` becomes the number of the piece after it.
    ///
    /// # Safety
    /// As [`Stream::launch_graph`].
    unsafe fn take_turn_for(
        self: &Arc<Self>,
        plan: &mut Plan,
        next: &mut usize,
        caller: &dyn Caller,
    ) -> Result<Option<Arc<HostWork>>> {
        let mut scratch = self.wait_turn(caller);
        let _inside = Inside::enter();
        scratch.checkpoints = Checkpoints::default();
        let captured = self.is_captured()?;
        if captured && *next == 0 {
            // The owner of the other graph decides when and how often the queued work runs.
            plan.leave_layout();
        }
        // SAFETY: the caller's contract.
        let end = unsafe { self.replay(plan, next, &mut scratch, captured, caller) };
        let end = self.mark_work().and(end);
        if captured {
            plan.leave_layout();
        } else {
            plan.last = Arc::downgrade(self);
        }
        end
    }

    /// # Safety
    /// As [`StreamCore::take_turn_for`].
    unsafe fn replay(
        self: &Arc<Self>,
        plan: &mut Plan,
        next: &mut usize,
        scratch: &mut Scratch,
        captured: bool,
        caller: &dyn Caller,
    ) -> Result<Option<Arc<HostWork>>> {
        let device = &self.device;
        plan.lay_out(device)?;
        let Some(layout) = &mut plan.layout else { return Ok(None) };
        let mut updating = Updating::begin(self, true, caller);
        if !device.immediate && *next > 0 {
            updating.order(&Awaited::new(), true, caller)?;
            // Since the launch began, the host's steps have used memory that earlier steps have written.
            let later = layout.pieces[*next..].iter().take_while(|piece| !matches!(piece.kind, PieceKind::Host));
            later.flat_map(|piece| &plan.steps[piece.steps.clone()]).for_each(|step| step.note_uses(self));
        } else if !device.immediate {
            let other = plan.last.upgrade().filter(|last| !captured && !Arc::ptr_eq(last, self));
            if let Some(last) = other {
                // SAFETY: this stream is alive.
                unsafe { last.order_before(self.handle, Once::new(device)?.event())? };
            }
            let mut awaited = Awaited::new();
            for (buffer, writes) in layout.uses() {
                buffer.note_launch(self, writes, Update::Atomic, &mut awaited);
            }
            updating.order(&awaited, true, caller)?;
            for handle in &plan.awaited_handles {
                Stream::of(self.clone()).wait_for_handle(*handle)?;
            }
        }
        let room = Room { frame_bytes: 0, result_bytes: layout.result_bytes };
        if !scratch.fits(room) {
            scratch.grow(&*device.driver, self.handle, room, captured).map_err(|e| device.explain(e))?;
        }
        let log_channels = self.log_channels_for(&plan.steps, plan.names_steps, scratch, caller)?;
        let mut replay = Replay {
            stream: self,
            steps: &plan.steps,
            names_steps: plan.names_steps,
            log_channels,
            number: 0,
            result: scratch.result,
            caller,
        };
        for at in *next..layout.pieces.len() {
            let piece = &layout.pieces[at];
            if let (PieceKind::Host, Work::Host(work)) = (piece.kind, &plan.steps[piece.steps.start].work) {
                self.check_not_capturing(&format!("have the host perform the step {}", work.name))?;
                *next = at + 1;
                return Ok(Some(work.clone()));
            }
            // SAFETY: the contract above.
            unsafe {
                if let PieceKind::Alone = piece.kind {
                    replay.run_alone(piece, scratch)?;
                    continue;
                }
                replay.number = device.launches.fetch_add(piece.launches, Ordering::Relaxed);
                if device.immediate {
                    replay.run_in_order(layout, piece, scratch)?;
                    continue;
                }
                if !captured && !device.is_measured() {
                    let (kind, queued) = replay.queue_as_one(layout, piece, &plan.exchanged);
                    layout.pieces[at].kind = kind;
                    if queued? {
                        continue;
                    }
                }
                replay.queue(layout, at, scratch, captured)?;
            }
        }
        plan.exchanged.clear();
        Ok(None)
    }

    /// The channel of steps that send messages, and their kernel numbers.
    fn log_channels_for(
        &self,
        steps: &[Step],
        names_steps: bool,
        scratch: &mut Scratch,
        caller: &dyn Caller,
    ) -> Result<Vec<(DevicePtr, u64)>> {
        let logs = |s: &Step| matches!(&s.work, Work::Launch(l) if l.kernel.logs);
        if self.device.immediate || !steps.iter().any(logs) {
            return Ok(Vec::new());
        }
        let log_channel = |(step, number): (&Step, u32)| match &step.work {
            Work::Launch(launch) if launch.kernel.logs => {
                self.log_channel_for((&launch.kernel, names_steps.then_some(number)), scratch, caller)
            }
            _ => Ok((DevicePtr(0), 0)),
        };
        steps.iter().zip(0..).map(log_channel).collect()
    }
}

impl<'a> Replay<'a> {
    fn device(&self) -> &'a DeviceCore {
        &self.stream.device
    }

    fn describe(&self, layout: &Layout, step: usize, launch: &'a CapturedLaunch) -> Launch<'a> {
        let (channel, kernel_id) = self.log_channels.get(step).copied().unwrap_or((DevicePtr(0), 0));
        let device = self.device();
        Launch {
            kernel: &launch.kernel.meta,
            args: &launch.args,
            args_at: None,
            frame: layout.frame(self.steps[step].lane),
            result: self.result,
            channel,
            kernel_id,
            rounds: launch.kernel.rounds_in(layout.frame(self.steps[step].lane)),
            guard: DevicePtr(0),
            end: CheckpointWords::NONE,
            seed: device.seed.load(Ordering::Relaxed),
            number: self.number + layout.ordinals[step],
            step: self.names_steps.then_some(step as u32),
            nested: false,
            failures: &self.stream.failures,
            printer: &device.printer,
            caller: self.caller,
        }
    }

    /// The launches of a step that the host has a part in.
    ///
    /// # Safety
    /// As [`Stream::launch_graph`].
    unsafe fn run_alone(&self, piece: &Piece, scratch: &mut Scratch) -> Result<()> {
        for place in piece.steps.clone() {
            // SAFETY: the contract above.
            unsafe {
                match &self.steps[place].work {
                    Work::Launch(launch) => {
                        scratch.step = self.names_steps.then_some(place as u32);
                        let end = self.run_launch(launch, scratch);
                        scratch.step = None;
                        end?;
                    }
                    Work::Foreign(graph) => {
                        self.stream.check_not_capturing("take a graph of another library")?;
                        graph.launch(self.stream.handle)?;
                    }
                    work => self.set(self.stream.handle, work)?,
                }
            }
        }
        Ok(())
    }

    /// Runs a launch, with its store if it has one.
    ///
    /// # Safety
    /// As [`Stream::launch_graph`].
    unsafe fn run_launch(&self, launch: &CapturedLaunch, scratch: &mut Scratch) -> Result<()> {
        let mut args = Cow::Borrowed(&*launch.args);
        let mut memory = Vec::new();
        if let Some(store) = &launch.store {
            let count = store.count();
            self.stream.check_not_capturing(&format!("wait for the result of kernel `{}`", count.meta.name))?;
            // SAFETY: the contract above; the counting kernel has the arguments of the launch.
            let counted = unsafe { self.stream.run(count, (&args, &launch.arrays), scratch, self.caller, false)? };
            let Some(counted) = counted else {
                return Err(ErrorKind::CompilerBug("a store is counted without a result".into()).into());
            };
            memory = store.allocate(&counted, args.to_mut())?;
        }
        // SAFETY: the contract above. The store is freed in stream order, after the work that uses it.
        let end = unsafe { self.stream.run(&launch.kernel, (&args, &launch.arrays), scratch, self.caller, false) };
        drop(memory);
        end.map(drop)
    }

    /// Runs steps in sequence.
    ///
    /// # Safety
    /// As [`Stream::launch_graph`].
    unsafe fn run_in_order(&self, layout: &Layout, piece: &Piece, scratch: &mut Scratch) -> Result<()> {
        let (stream, measures) = (self.stream, self.device().is_measured());
        for place in piece.steps.clone() {
            let step = &self.steps[place];
            let Work::Launch(launch) = &step.work else {
                // SAFETY: the contract above.
                unsafe { self.set(stream.handle, &step.work)? };
                continue;
            };
            let described = self.describe(layout, place, launch);
            let kernel = &launch.kernel;
            // SAFETY: the contract above.
            unsafe {
                if measures || !kernel.sections.is_empty() {
                    Walk::new(stream, kernel, scratch, Completion::Immediate, measures).run(&described)?;
                } else {
                    stream.run_tasks(&kernel.tasks, &described)?;
                }
            }
            if self.caller.is_interrupted() {
                return Err(ErrorKind::Interrupted.into());
            }
        }
        Ok(())
    }

    /// Queues a piece by one call, if possible. Returns how to launch the piece from now on, and whether it is queued.
    ///
    /// # Safety
    /// As [`Stream::launch_graph`].
    unsafe fn queue_as_one(&self, layout: &Layout, piece: &Piece, exchanged: &[usize]) -> (PieceKind, Result<bool>) {
        let (driver, on) = (&*self.device().driver, self.stream.handle);
        let (steps, first) = (piece.steps.clone(), piece.steps.start);
        let launch_of = |place: usize| match &self.steps[first + place].work {
            Work::Launch(launch) => Some(self.describe(layout, first + place, launch)),
            _ => None,
        };
        let channel = self.log_channels.iter().map(|v| v.0).find(|c| c.0 != 0).unwrap_or(DevicePtr(0));
        // SAFETY: the contract above. A graph that is given back was made for this piece, and is not being launched.
        unsafe {
            match piece.kind {
                PieceKind::Made { graph, channel: told } => {
                    let changed: Vec<usize> = if told == channel {
                        exchanged.iter().filter(|s| steps.contains(s)).map(|s| s - first).collect()
                    } else {
                        (0..steps.len()).collect()
                    };
                    match driver.launch_graph(on, graph, &changed, &launch_of) {
                        Ok(false) => driver.destroy_graph(graph),
                        end => {
                            let channel = if end.is_ok() { channel } else { told };
                            return (PieceKind::Made { graph, channel }, end);
                        }
                    }
                }
                PieceKind::New => {}
                kind => return (kind, Ok(false)),
            }
            let depends_on: Vec<Vec<usize>> =
                steps.clone().map(|s| self.steps[s].dependencies_from(first).map(|b| b - first).collect()).collect();
            let part = |(place, depends_on)| GraphPart { depends_on, work: self.part(place, launch_of(place - first)) };
            let parts: Vec<GraphPart<'_>> = steps.zip(depends_on.iter().map(Vec::as_slice)).map(part).collect();
            let graph = match driver.make_graph(&parts) {
                Ok(Some(graph)) => graph,
                Ok(None) => return (PieceKind::Apart, Ok(false)),
                Err(error) => return (PieceKind::New, Err(error)),
            };
            match driver.launch_graph(on, graph, &[], &launch_of) {
                Ok(false) => driver.destroy_graph(graph),
                end => return (PieceKind::Made { graph, channel }, end),
            }
        }
        (PieceKind::Apart, Ok(false))
    }

    /// A step as a part of a graph, from its launch if it is one.
    fn part(&self, place: usize, launch: Option<Launch<'a>>) -> PartWork<'a> {
        match (&self.steps[place].work, launch) {
            (Work::Launch(captured), Some(launch)) => {
                PartWork::Launch { module: captured.kernel.module, sections: &captured.kernel.sections, launch }
            }
            (Work::Fill { at, pattern, bytes, .. }, _) => PartWork::Fill { at: *at, pattern: *pattern, bytes: *bytes },
            (Work::Copy { at, from_at, bytes, .. }, _) => PartWork::Copy { to: *at, from: *from_at, bytes: *bytes },
            (Work::Launch(_) | Work::Foreign(_) | Work::Host(_), _) => {
                unreachable!("compiler bug: an invalid graph node")
            }
        }
    }

    /// Queues the steps of a piece one by one.
    ///
    /// # Safety
    /// As [`Stream::launch_graph`].
    unsafe fn queue(&self, layout: &mut Layout, at: usize, scratch: &mut Scratch, captured: bool) -> Result<()> {
        let (device, piece) = (self.device(), &layout.pieces[at]);
        let (steps, first) = (piece.steps.clone(), piece.steps.start);
        // If the host evaluates conditions, it waits for the launching stream.
        let decides = |s: &Step| matches!(&s.work, Work::Launch(l) if l.decides());
        let alone = self.steps[steps.clone()].iter().any(decides) || piece.lanes.len() == 1;
        // The first lane is the launching stream's, as the last group is of a fork.
        let worker_of =
            |step: &Step| piece.lanes.len() - 1 - piece.lanes.iter().position(|l| *l == step.lane).unwrap_or(0);
        let fork = match alone {
            true => None,
            false => Some(Fork::new(device, self.stream.handle, captured, piece.lanes.len() - 1)?),
        };
        for place in steps {
            let step = &self.steps[place];
            let on = fork.as_ref().map_or(self.stream.handle, |f| f.stream(worker_of(step)));
            // SAFETY: the contract above; the fork holds its streams.
            unsafe {
                if fork.is_some() {
                    let others = step.dependencies_from(first).filter(|b| self.steps[*b].lane != step.lane);
                    let events: Vec<_> = others.filter_map(|b| layout.events[b]).collect();
                    if !events.is_empty() {
                        device.wait_events(on, &events)?;
                    }
                }
                match &step.work {
                    Work::Launch(launch) => {
                        if captured {
                            launch.kernel.in_graph.store(true, Ordering::Relaxed);
                        }
                        let described = self.describe(layout, place, launch);
                        let adds = captured && launch.decides();
                        if adds && self.stream.add_to_capture(on, &launch.kernel, &described)? {
                            continue;
                        }
                        let measures = !captured && device.is_measured();
                        let completion = Completion::Queued { captured };
                        Walk::new(self.stream, &launch.kernel, scratch, completion, measures).on(on).run(&described)?;
                    }
                    work => self.set(on, work)?,
                }
            }
            if fork.is_some() && layout.crosses[place] {
                let event = match layout.events[place] {
                    Some(event) => event,
                    None => device.driver.create_event(false)?,
                };
                layout.events[place] = Some(event);
                // SAFETY: as above; the event is the layout's.
                unsafe { device.record_event(on, event)? };
            }
        }
        fork.map_or(Ok(()), Fork::join)
    }

    /// Queues a fill or a copy.
    ///
    /// # Safety
    /// As [`Stream::launch_graph`]; the stream is alive.
    unsafe fn set(&self, on: StreamHandle, work: &Work) -> Result<()> {
        let driver = &*self.device().driver;
        // SAFETY: the ranges were checked at the capture, and the graph keeps their buffers.
        unsafe {
            match work {
                Work::Launch(_) | Work::Foreign(_) | Work::Host(_) => Ok(()),
                Work::Fill { at, pattern, bytes, .. } => driver.fill(on, *at, *pattern, *bytes).map(|_| ()),
                Work::Copy { at, from_at, bytes, .. } => driver.copy_on_device(on, *at, *from_at, *bytes),
            }
        }
    }
}
