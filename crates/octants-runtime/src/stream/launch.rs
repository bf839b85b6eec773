//! The launcher: queues a kernel's tasks on a stream.
//!
//! On a device that executes immediately, the tasks run one after the other. Elsewhere they are queued, groups of
//! tasks on worker streams between a fork and a join. The call returns without waiting unless there is a result or
//! host memory to wait for.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Stream;
use super::results::{Results, results};
use super::walk::{Completion, Walk};
use crate::caller::{Caller, Uninterruptible};
use crate::capture::{self, CountedStore};
use crate::cores::{Awaited, BufferCore, StreamCore, Update};
use crate::driver::{CheckpointWords, DevicePtr, Launch, StreamHandle, TaskHandle};
use crate::error::{DeviceError, ErrorKind, Result, is_interrupt};
use crate::host_step::HostStep;
use crate::kernel::{LoadedKernel, Pointer};
use crate::nesting::{self, Inside};
use crate::scratch::{Checkpoints, Scratch};
use crate::sections::{checkpoint_labels, decides};
use crate::stage_arguments::{HostArray, stage};
use crate::update_order::{Updating, takes_long, writes};

impl Stream {
    /// Runs a kernel's tasks in order on this stream. Returns its result, if it has one, after waiting for it.
    ///
    /// `caller` is notified before this thread waits or works for long. A failed assertion is an error of the launch
    /// itself if the driver is synchronous, and otherwise of the next call that waits for this stream.
    ///
    /// # Safety
    /// `args` holds what the kernel's code expects: addresses of live memory of this device (of buffers that stay alive
    /// for the call), extents that do not exceed it, values of the parameters.
    #[inline]
    pub unsafe fn launch(&self, kernel: &LoadedKernel, args: &[u64], caller: &dyn Caller) -> Result<Option<Results>> {
        // SAFETY: the caller's contract.
        unsafe { self.launch_with(kernel, args, &[], caller) }
    }

    /// As [`Stream::launch`], with some slots that hold addresses in host memory. If none of `arrays` is written, the
    /// call returns before the work is done, but behaves as if the work had been done: later changes of the arrays do
    /// not affect it. If one is written, the call waits for this stream.
    ///
    /// # Safety
    /// As [`Stream::launch`]; `arrays` are alive for the call, and their slots hold addresses within them.
    #[inline]
    pub unsafe fn launch_with(
        &self,
        kernel: &LoadedKernel,
        args: &[u64],
        arrays: &[HostArray],
        caller: &dyn Caller,
    ) -> Result<Option<Results>> {
        // SAFETY: the caller's contract.
        unsafe { self.launch_in_turn(kernel, (args, arrays), caller, &mut Checkpoints::default()) }
    }

    /// As [`Stream::launch`] by a thread that is in no launch and no capture, with all the memory that the launch uses.
    ///
    /// # Safety
    /// As [`Stream::launch`].
    pub(crate) unsafe fn launch_given(
        &self,
        kernel: &LoadedKernel,
        args: &[u64],
        given: &[(Arc<BufferCore>, Pointer)],
        caller: &dyn Caller,
    ) -> Result<Option<Results>> {
        let core = &self.0;
        let mut scratch = core.wait_turn(caller);
        let _inside = Inside::enter();
        let (mut updating, mut awaited) = (Updating::begin(core, writes(kernel), caller), Awaited::new());
        for (buffer, pointer) in given {
            buffer.note_launch(core, pointer.written, Update::of(kernel), &mut awaited);
            if kernel.exposes_addresses {
                buffer.expose();
            }
        }
        updating.order(&awaited, true, caller)?;
        scratch.checkpoints = Checkpoints::default();
        scratch.uses_are_noted = true;
        // SAFETY: the caller's contract.
        let end = unsafe { core.run(kernel, (args, &[]), &mut scratch, caller, false) };
        drop(updating);
        scratch.uses_are_noted = false;
        // Also after a partially failed launch.
        core.mark_work().and(end)
    }

    /// Records a launch in this thread's capture. Each run of it first allocates its store.
    ///
    /// # Errors
    /// That this thread does not capture; that an argument belongs to another device.
    pub fn capture_counted(
        &self,
        kernel: &LoadedKernel,
        args: &[u64],
        arrays: &[HostArray],
        store: Arc<dyn CountedStore>,
    ) -> Result<()> {
        capture::required()?.note_launch(&self.0, kernel, (args, arrays), Some(store))
    }

    /// Records a launch in this thread's capture. The host makes it at each launch of the graph, by performing `step`.
    ///
    /// # Errors
    /// As [`Stream::capture_counted`]; that the kernel returns a value.
    pub fn capture_host_launch(
        &self,
        kernel: &LoadedKernel,
        args: &[u64],
        arrays: &[HostArray],
        step: Arc<HostStep>,
    ) -> Result<()> {
        capture::required()?.note_host_launch(&self.0, kernel, (args, arrays), step)
    }

    /// Records a step in this thread's capture that the host performs at each launch of the graph. `collective` is what
    /// all ranks do together there.
    ///
    /// # Errors
    /// As [`Stream::capture_counted`].
    pub fn capture_host_step(&self, name: &str, collective: Option<&str>, step: Arc<HostStep>) -> Result<()> {
        capture::required()?.note_host(&self.0, (name, collective), step)
    }

    /// As [`Stream::launch_with`] for a kernel with checkpoints, from the one with this label on if there is a label.
    /// Returns the label of the checkpoint at which the launch ended, if it ended early.
    ///
    /// # Safety
    /// As [`Stream::launch_with`].
    pub unsafe fn launch_from(
        &self,
        kernel: &LoadedKernel,
        args: &[u64],
        arrays: &[HostArray],
        resumes_at: Option<i64>,
        caller: &dyn Caller,
    ) -> Result<Option<i64>> {
        if nesting::capturing() {
            let what = format!(
                "kernel `{}` has checkpoints, whose flags the host reads: it cannot be launched",
                kernel.meta.name
            );
            nesting::refuse_while_capturing(&what)?;
        }
        let mut checkpoints = Checkpoints { resumes_at, ended_at: None };
        // SAFETY: the caller's contract.
        unsafe { self.launch_in_turn(kernel, (args, arrays), caller, &mut checkpoints)? };
        Ok(checkpoints.ended_at)
    }

    /// # Safety
    /// As [`Stream::launch_with`].
    #[inline]
    unsafe fn launch_in_turn(
        &self,
        kernel: &LoadedKernel,
        (args, arrays): (&[u64], &[HostArray]),
        caller: &dyn Caller,
        checkpoints: &mut Checkpoints,
    ) -> Result<Option<Results>> {
        let core = &self.0;
        if !nesting::is_plain() {
            if let Some(capture) = capture::current().filter(|_| !nesting::inside()) {
                return capture.note_launch(core, kernel, (args, arrays), None).map(|()| None);
            }
            // SAFETY: the caller's contract.
            return unsafe { core.launch_nested(kernel, args) };
        }
        let mut scratch = core.wait_turn(caller);
        let inside = Inside::enter();
        scratch.checkpoints = *checkpoints;
        // SAFETY: the caller's contract.
        let end = unsafe { core.run(kernel, (args, arrays), &mut scratch, caller, false) };
        *checkpoints = scratch.checkpoints;
        // Also after a partially failed launch.
        let end = core.mark_work().and(end);
        drop(inside);
        drop(scratch);
        if core.device.immediate {
            core.device.printer.flush();
        }
        end
    }
}

impl StreamCore {
    /// # Safety
    /// As [`Stream::launch_with`]; `scratch` is used by no other work.
    #[inline]
    pub(super) unsafe fn run(
        self: &Arc<Self>,
        kernel: &LoadedKernel,
        (args, arrays): (&[u64], &[HostArray]),
        scratch: &mut Scratch,
        caller: &dyn Caller,
        nested: bool,
    ) -> Result<Option<Results>> {
        let device = &*self.device;
        let mode = device.mode();
        if mode.is_closed() || !Arc::ptr_eq(&self.device, &kernel.core) || args.len() != kernel.meta.arg_slots as usize
        {
            return Err(self.refuse(kernel, args));
        }
        if kernel.assumes_order && !device.immediate {
            device.assumed_order.store(true, Ordering::Release);
        }
        if !scratch.fits(kernel.room()) {
            let graphs = self.was_captured.load(Ordering::Relaxed) || self.is_captured()?;
            let grown = scratch.grow(&*device.driver, self.handle, kernel.room(), graphs);
            grown.map_err(|e| device.explain(e))?;
        }
        if !(device.immediate || nested) {
            scratch.log_channel = if kernel.logs {
                self.log_channel_for((kernel, scratch.step), scratch, caller)?
            } else {
                (DevicePtr(0), 0)
            };
            // SAFETY: the contract above.
            return unsafe { self.queue(kernel, (args, arrays), scratch, caller) };
        }
        let launch = self.describe(kernel, args, None, scratch, caller, nested);
        if !device.host_addressable {
            device.check_addresses(kernel, args)?;
        }
        let measures = mode.is_measured() && !nested;
        // SAFETY: the contract above.
        unsafe {
            if measures || !kernel.sections.is_empty() || caller.dispatcher().is_some() {
                Walk::new(self, kernel, scratch, Completion::Immediate, measures).run(&launch)?;
            } else {
                self.run_tasks(&kernel.tasks, &launch)?;
            }
        }
        // SAFETY: there is room for the result, and the work that writes it is done.
        Ok(unsafe { results(kernel, launch.result) })
    }

    /// Runs tasks in order on a synchronous device.
    ///
    /// # Safety
    /// As [`StreamCore::run`]; the tasks are those of the launched kernel, which stays loaded.
    #[inline]
    pub(super) unsafe fn run_tasks(&self, tasks: &[TaskHandle], launch: &Launch<'_>) -> Result<()> {
        for (i, &task) in tasks.iter().enumerate() {
            if i > 0 && launch.caller.is_interrupted() {
                return Err(ErrorKind::Interrupted.into());
            }
            // SAFETY: the contract above.
            unsafe { self.device.driver.launch(self.handle, task, launch)? };
            if self.failures.any() {
                self.report()?;
            }
        }
        Ok(())
    }

    #[inline]
    fn describe<'a>(
        &'a self,
        kernel: &'a LoadedKernel,
        args: &'a [u64],
        args_at: Option<DevicePtr>,
        scratch: &Scratch,
        caller: &'a dyn Caller,
        nested: bool,
    ) -> Launch<'a> {
        let device = &*self.device;
        Launch {
            kernel: &kernel.meta,
            args,
            args_at,
            frame: scratch.frame,
            result: scratch.result,
            channel: scratch.log_channel.0,
            kernel_id: scratch.log_channel.1,
            rounds: kernel.rounds_in(scratch.frame),
            guard: DevicePtr(0),
            end: kernel.checkpoint_words(scratch.frame, scratch.result),
            seed: device.seed.load(Ordering::Relaxed),
            number: device.next_launch_number(nested),
            step: scratch.step,
            nested,
            failures: &self.failures,
            printer: &device.printer,
            caller,
        }
    }

    /// Queues a kernel's tasks. Waits for them if there is a result, or if they write to host memory.
    ///
    /// # Safety
    /// As [`StreamCore::run`].
    #[inline(never)]
    unsafe fn queue(
        self: &Arc<Self>,
        kernel: &LoadedKernel,
        (args, arrays): (&[u64], &[HostArray]),
        scratch: &mut Scratch,
        caller: &dyn Caller,
    ) -> Result<Option<Results>> {
        let device = &*self.device;
        let notes = !scratch.uses_are_noted;
        let mut updating = Updating::begin(self, notes && writes(kernel), caller);
        let mut awaited = Awaited::new();
        let foreign = notes && device.note_uses(self, kernel, (args, arrays), &mut updating, &mut awaited);
        updating.order(&awaited, takes_long(kernel, caller), caller)?;
        if arrays.is_empty() && kernel.spilled_at.is_none() {
            let launch = self.describe(kernel, args, None, scratch, caller, false);
            // SAFETY: as in `run`.
            return unsafe {
                let queued = self.queue_tasks(kernel, &launch, scratch);
                drop(updating);
                if foreign && queued.is_err() {
                    // Queued work may use host memory.
                    let _ = self.wait_or_cancel(caller);
                }
                queued?;
                self.finish(kernel, &launch, foreign, scratch)
            };
        }
        // SAFETY: the contract above. `finish` below queues the release of the staged memory in every case.
        unsafe {
            self.check_not_capturing("copy host arrays, or more arguments than are passed by value")?;
            let staged = stage(device, self.handle, kernel, (args, arrays), scratch, caller);
            if is_interrupt(&staged) {
                // Nothing has been queued.
                return Err(ErrorKind::Interrupted.into());
            }
            // As below: copies may have been queued.
            let mut staged = staged.inspect_err(|_| drop(self.wait(caller)))?;
            let slots = std::mem::take(&mut scratch.slots);
            let launch = self.describe(kernel, &slots, staged.args_at, scratch, caller, false);
            let mut queued = self.queue_tasks(kernel, &launch, scratch);
            drop(updating);
            if staged.can_be_left && !staged.pinned && queued.is_ok() {
                // A driver that copies to pageable memory waits in its call, which nothing interrupts.
                queued = self.wait_or_abandon(caller);
            }
            let was_left = staged.can_be_left && is_interrupt(&queued);
            let finished = staged.finish(device, self.handle, if was_left { &[] } else { arrays }, scratch);
            let end = queued.and(finished);
            // The work may use the host's arrays, so even after an error, queued work is waited for.
            let end = if staged.waits {
                let waited = match staged.can_be_left {
                    _ if was_left => Err(ErrorKind::Interrupted.into()),
                    true if staged.pinned => self.wait_or_abandon(caller),
                    _ => self.wait_or_cancel(caller),
                };
                scratch.is_written |= staged.can_be_left && is_interrupt(&waited);
                self.drain_log(scratch);
                staged.bring_back(device, self.handle, waited.is_ok(), arrays, scratch);
                end.and(waited).and_then(|()| self.report_pending())
            } else {
                end
            };
            let end = end.and_then(|()| self.finish(kernel, &launch, foreign, scratch));
            scratch.slots = slots;
            end
        }
    }

    /// # Safety
    /// As [`StreamCore::run`].
    unsafe fn queue_tasks(&self, kernel: &LoadedKernel, launch: &Launch<'_>, scratch: &mut Scratch) -> Result<()> {
        let device = &*self.device;
        if !device.host_addressable {
            device.check_addresses(kernel, launch.args)?;
        }
        let captured = self.is_captured()?;
        if captured {
            kernel.in_graph.store(true, Ordering::Relaxed);
        }
        let measures = !captured && device.is_measured();
        if captured && decides(&kernel.sections) {
            // SAFETY: the contract above.
            if unsafe { self.add_to_capture(self.handle, kernel, launch)? } {
                return Ok(());
            }
        }
        // The host walks to the checkpoint that a launch resumes at.
        let whole = scratch.checkpoints.resumes_at.is_none() && launch.caller.dispatcher().is_none();
        if !captured && !measures && whole {
            // SAFETY: the contract above.
            unsafe {
                if device.driver.launch_as_one(self.handle, kernel.module, &kernel.sections, launch)? {
                    let ends = launch.end != CheckpointWords::NONE;
                    return if ends { self.read_end(kernel, launch, scratch) } else { Ok(()) };
                }
            }
        }
        // SAFETY: the contract above.
        unsafe { Walk::new(self, kernel, scratch, Completion::Queued { captured }, measures).run(launch) }
    }

    /// Adds a kernel with conditions to the graph that another library captures from a stream. Returns false if that is
    /// impossible: the host must read at which checkpoint a launch ends.
    ///
    /// # Safety
    /// As [`StreamCore::run`]; the stream is alive.
    pub(super) unsafe fn add_to_capture(
        &self,
        on: StreamHandle,
        kernel: &LoadedKernel,
        launch: &Launch<'_>,
    ) -> Result<bool> {
        if launch.end != CheckpointWords::NONE {
            return Ok(false);
        }
        // SAFETY: the contract above. The kernel is kept by `in_graph`.
        unsafe { self.device.driver.launch_into_capture(on, kernel.module, &kernel.sections, launch) }
    }

    /// Waits for a launch that the device may end at a checkpoint.
    ///
    /// # Safety
    /// As [`StreamCore::run`].
    unsafe fn read_end(&self, kernel: &LoadedKernel, launch: &Launch<'_>, scratch: &mut Scratch) -> Result<()> {
        // SAFETY: the contract above.
        unsafe { self.wait_or_abandon(launch.caller) }.inspect_err(|_| scratch.is_written = true)?;
        self.drain_log(scratch);
        self.report_pending()?;
        // SAFETY: the word is pinned, and the work that writes it is done.
        let number = unsafe { (launch.end.for_host.0 as *const u64).read_volatile() };
        scratch.checkpoints.ended_at = match number {
            0 => None,
            n => checkpoint_labels(&kernel.sections).get(n as usize - 1).copied(),
        };
        Ok(())
    }

    /// The result of a launch whose tasks are queued.
    ///
    /// # Safety
    /// As [`StreamCore::run`].
    unsafe fn finish(
        &self,
        kernel: &LoadedKernel,
        launch: &Launch<'_>,
        foreign: bool,
        scratch: &mut Scratch,
    ) -> Result<Option<Results>> {
        if foreign {
            // The host's memory is in use until then.
            // SAFETY: the stream is alive.
            unsafe { self.wait_in_turn(scratch, launch.caller)? };
        } else if !kernel.meta.result.is_empty() {
            // SAFETY: as above. If the wait is abandoned, the results still belong to the stream.
            unsafe { self.wait_or_abandon(launch.caller) }.inspect_err(|_| scratch.is_written = true)?;
            self.drain_log(scratch);
            self.report_pending()?;
        }
        // SAFETY: as in `run`.
        Ok(unsafe { results(kernel, launch.result) })
    }

    /// # Safety
    /// As [`Stream::launch`].
    #[cold]
    unsafe fn launch_nested(self: &Arc<Self>, kernel: &LoadedKernel, args: &[u64]) -> Result<Option<Results>> {
        let mut scratch = Scratch::nested();
        let inline = self.device.immediate || !nesting::is_dispatching();
        // SAFETY: the caller's contract; the scratch is new.
        let end = unsafe { self.run(kernel, (args, &[]), &mut scratch, &Uninterruptible, inline) };
        if inline && !self.device.immediate && args.len() == kernel.meta.arg_slots as usize {
            let mut updating = Updating::begin(self, false, &Uninterruptible);
            self.device.note_uses(self, kernel, (args, &[]), &mut updating, &mut Awaited::new());
        }
        let drained = self.drain_nested_log(&mut scratch);
        scratch.free(&*self.device.driver, self.handle);
        end.and_then(|results| drained.map(|()| results))
    }

    #[cold]
    fn refuse(&self, kernel: &LoadedKernel, args: &[u64]) -> DeviceError {
        if !Arc::ptr_eq(&self.device, &kernel.core) {
            return if !kernel.alive() {
                ErrorKind::ProgramGone { what: "kernel" }
            } else if self.device.is_closed() {
                ErrorKind::ProgramGone { what: "stream" }
            } else {
                ErrorKind::ForeignDevice { what: "kernel" }
            }
            .into();
        }
        if self.device.is_closed() {
            return ErrorKind::ProgramGone { what: "stream" }.into();
        }
        let (name, want, got) = (&kernel.meta.name, kernel.meta.arg_slots, args.len());
        ErrorKind::CompilerBug(format!("kernel `{name}` takes {want} argument slots, but {got} were given")).into()
    }
}
