//! [`Walk`]: how a kernel's sections get on a stream.
//!
//! Groups go to worker streams between a fork and a join, where the device has streams. The host decides about loops
//! and choices: it waits for the launching stream alone, and reads the condition. Each round after the first has a
//! launch number of its own, so that it draws other random numbers, and while launches are measured each counts as a
//! launch. So it does behind a checkpoint, where a launch may end. A launch that resumes at one walks to it past all
//! that stands before; loops around it go on from there.

use std::ops::Range;
use std::sync::atomic::Ordering;

use octants_artifact::Condition;

use crate::cores::StreamCore;
use crate::driver::{DevicePtr, Launch, StreamHandle};
use crate::error::{ErrorKind, Result};
use crate::fork::Fork;
use crate::kernel::LoadedKernel;
use crate::measure::Measured;
use crate::scratch::Scratch;
use crate::sections::Section;

/// What a driver call means for the work.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// The work is done when the call returns.
    Done,
    /// The work is queued, on a stream that someone else captures or not.
    Queued { captured: bool },
}

/// A launch on its way through the sections of a kernel.
pub(super) struct Walk<'a> {
    stream: &'a StreamCore,
    /// Where the tasks go: the stream itself, or a worker's where nothing is decided.
    on: StreamHandle,
    kernel: &'a LoadedKernel,
    scratch: &'a mut Scratch,
    pace: Pace,
    measures: bool,
    measured: Option<Measured<'a>>,
}

impl<'a> Walk<'a> {
    /// A walk of `kernel`'s tasks, with times taken where `measures` is set.
    pub(super) fn new(
        stream: &'a StreamCore,
        kernel: &'a LoadedKernel,
        scratch: &'a mut Scratch,
        pace: Pace,
        measures: bool,
    ) -> Walk<'a> {
        Walk { stream, on: stream.handle, kernel, scratch, pace, measures, measured: None }
    }

    /// The same on a worker stream of a launch, for a kernel that decides nothing.
    pub(super) fn on(self, on: StreamHandle) -> Walk<'a> {
        Walk { on, ..self }
    }

    /// Runs or queues the kernel.
    ///
    /// # Safety
    /// As [`crate::Stream::launch`], for the arguments of `launch`.
    pub(super) unsafe fn run(mut self, launch: &Launch<'_>) -> Result<()> {
        let kernel = self.kernel;
        // SAFETY: the contract above.
        let end = unsafe {
            if kernel.sections.is_empty() {
                self.tasks(self.on, 0..kernel.tasks.len(), launch)
            } else {
                self.sections(&kernel.sections, launch)
            }
        };
        end.and_then(|()| self.end_measure(launch))
    }

    /// # Safety
    /// As [`Walk::run`].
    unsafe fn sections(&mut self, sections: &[Section], launch: &Launch<'_>) -> Result<()> {
        for section in sections {
            if let Some(label) = self.scratch.checkpoints.resumes_at
                && !section.holds_checkpoint(label)
            {
                continue;
            }
            // SAFETY: the contract above.
            unsafe {
                match section {
                    Section::InOrder(tasks) => self.tasks(self.on, tasks.clone(), launch)?,
                    Section::Groups(groups) => self.groups(groups, launch)?,
                    Section::While(condition, body) => self.rounds(condition, body, launch)?,
                    Section::If(condition, [then, otherwise]) => {
                        let resumes = self.scratch.checkpoints.resumes_at;
                        let holds = match resumes {
                            Some(label) => then.iter().any(|s| s.holds_checkpoint(label)),
                            None => self.holds(condition, launch)?,
                        };
                        let taken = if holds { then } else { otherwise };
                        self.sections(taken, launch)?;
                    }
                    Section::Checkpoint(label, condition, body) => {
                        self.scratch.checkpoints.resumes_at = None;
                        self.sections(body, launch)?;
                        if self.holds(condition, launch)? {
                            self.scratch.checkpoints.ended_at = Some(*label);
                        }
                    }
                }
            }
            if self.scratch.checkpoints.ended_at.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// # Safety
    /// As [`Walk::run`].
    unsafe fn groups(&mut self, groups: &[Range<usize>], launch: &Launch<'_>) -> Result<()> {
        let Pace::Queued { captured } = self.pace else {
            // SAFETY: the contract above.
            return groups.iter().try_for_each(|g| unsafe { self.tasks(self.on, g.clone(), launch) });
        };
        let fork = Fork::new(&self.stream.device, self.on, captured, groups.len() - 1)?;
        for (i, tasks) in groups.iter().enumerate() {
            // SAFETY: the contract above; the fork holds its streams.
            unsafe { self.tasks(fork.stream(i), tasks.clone(), launch)? };
        }
        fork.join()
    }

    /// # Safety
    /// As [`Walk::run`].
    unsafe fn rounds(&mut self, condition: &Condition, body: &[Section], launch: &Launch<'_>) -> Result<()> {
        // SAFETY: the contract above.
        unsafe {
            self.sections(body, launch)?;
            while self.scratch.checkpoints.ended_at.is_none() && self.holds(condition, launch)? {
                let number = self.stream.device.launches.fetch_add(1, Ordering::Relaxed);
                self.sections(body, &Launch { number, ..*launch })?;
            }
        }
        Ok(())
    }

    /// Runs or queues tasks in order on a stream.
    ///
    /// # Safety
    /// As [`Walk::run`]; the stream is alive.
    unsafe fn tasks(&mut self, on: StreamHandle, tasks: Range<usize>, launch: &Launch<'_>) -> Result<()> {
        let (device, kernel) = (&*self.stream.device, self.kernel);
        if self.pace == Pace::Done && !self.measures {
            // SAFETY: the contract above.
            return unsafe { self.stream.run_tasks(&kernel.tasks[tasks], launch) };
        }
        for task in tasks {
            // SAFETY: the contract above; the kernel is loaded while it is borrowed.
            let run = || unsafe { device.driver.launch(on, kernel.tasks[task], launch) };
            if !self.measures {
                run()?;
                continue;
            }
            let start = || Measured::new(device, &kernel.meta, launch.number);
            let measured = self.measured.get_or_insert_with(start);
            if self.pace == Pace::Done {
                measured.run(task, run)?;
                self.stream.report_pending()?;
            } else {
                let number = (on == self.stream.handle).then_some(self.stream.number);
                // SAFETY: the contract above.
                unsafe { measured.queue(on, number, task, run)? };
            }
        }
        Ok(())
    }

    /// Keeps what was measured since the last time.
    fn end_measure(&mut self, launch: &Launch<'_>) -> Result<()> {
        match (self.measured.take(), self.pace) {
            (Some(measured), Pace::Queued { .. }) => {
                drop(measured);
                // SAFETY: the stream is alive.
                unsafe { self.stream.device.bound_pending(self.on, launch.caller) }
            }
            _ => Ok(()),
        }
    }

    /// Waits for what is queued on the launching stream, and reads an integer: whether it is not zero. An assertion
    /// that has failed until then is the error.
    ///
    /// # Safety
    /// As [`Walk::run`].
    unsafe fn holds(&mut self, condition: &Condition, launch: &Launch<'_>) -> Result<bool> {
        self.end_measure(launch)?;
        let (stream, device) = (self.stream, &*self.stream.device);
        let bytes = condition.kind.bytes() as usize;
        let Some(at) = condition.address(launch.args, launch.frame.0) else {
            return Err(ErrorKind::CompilerBug(format!("{condition:?} of {} arguments", launch.args.len())).into());
        };
        let mut read_at = at;
        launch.caller.will_block();
        if let Pace::Queued { .. } = self.pace {
            stream.check_not_capturing("launch a kernel that loops or chooses by what is in memory")?;
            if !device.host_addressable {
                read_at = self.kernel.condition_at(launch.result).0;
                // SAFETY: both lie in memory of their kind, and the word is the launch's own until it has waited.
                unsafe { device.driver.copy_to_host(stream.handle, read_at as *mut u8, DevicePtr(at), bytes as u64)? };
            }
            // SAFETY: the stream is alive. Where the wait is left, the word is still the stream's.
            unsafe { stream.wait_or_leave(launch.caller) }.inspect_err(|_| self.scratch.is_written = true)?;
            stream.hear(self.scratch);
            stream.report_pending()?;
        } else if !device.host_addressable {
            let message = "a kernel that loops or chooses by what is in memory cannot be launched by a task's print";
            return Err(ErrorKind::Misuse { message: message.into() }.into());
        }
        if launch.caller.is_interrupted() {
            return Err(ErrorKind::Interrupted.into());
        }
        let mut value = [0u8; 8];
        // SAFETY: the host reaches the integer there, and the work that writes it is done.
        unsafe { std::ptr::copy_nonoverlapping(read_at as *const u8, value.as_mut_ptr(), bytes) };
        Ok(value != [0; 8])
    }
}
