//! [`Walk`]: queues a kernel's sections on a stream.
//!
//! Groups go to worker streams between a fork and a join, if the device has streams. The host evaluates the conditions
//! of loops and choices: it waits for their stream only, and reads the condition. Groups with such conditions proceed
//! concurrently: while one waits, the others are queued. Each round draws its own random numbers ([`round_number`]),
//! and counts as a launch for the profiler. After a checkpoint, the host decides whether the launch ends. A launch
//! that resumes at a checkpoint skips everything before it; enclosing loops continue from there.

mod guarded_rounds;

use std::cell::{Cell, RefCell};
use std::ops::Range;

use octants_artifact::Condition;

use super::branches::{self, Branch};
use super::copied_condition::CopiedCondition;
use crate::cores::StreamCore;
use crate::dispatcher::{Dispatcher, Draw, OpenLaunch};
use crate::driver::{Launch, StreamHandle};
use crate::error::{ErrorKind, Result};
use crate::fork::Fork;
use crate::interruptible_wait::{LOOK, abandon_if_interrupted};
use crate::kernel::LoadedKernel;
use crate::measure::Measured;
use crate::nesting::Inside;
use crate::scratch::Scratch;
use crate::sections::{DataDependentLoop, Section, conditions_at_once, round_number};

/// When the work of a driver call completes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Completion {
    /// Before the call returns.
    Immediate,
    /// Later: the call queues it. Another library may be capturing the stream.
    Queued { captured: bool },
}

/// The state of a branch of a walk.
#[derive(Clone, Copy)]
struct Place {
    /// Its stream.
    on: StreamHandle,
    /// The first of the words that copies of its conditions have.
    word: u64,
    /// No other branch runs while this one waits.
    alone: bool,
}

/// A launch on its way through the sections of a kernel.
pub(super) struct Walk<'a> {
    stream: &'a StreamCore,
    /// The stream of the tasks: the stream itself, or a worker's if there are no conditions.
    on: StreamHandle,
    kernel: &'a LoadedKernel,
    scratch: RefCell<&'a mut Scratch>,
    completion: Completion,
    measures: bool,
    measured: RefCell<Option<Measured<'a>>>,
    /// Rounds that each loop has ended.
    rounds: RefCell<Vec<u64>>,
    /// Whether some branch has made progress.
    moved: Cell<bool>,
}

impl<'a> Walk<'a> {
    /// A walk of `kernel`'s tasks, with times taken where `measures` is set.
    pub(super) fn new(
        stream: &'a StreamCore,
        kernel: &'a LoadedKernel,
        scratch: &'a mut Scratch,
        completion: Completion,
        measures: bool,
    ) -> Walk<'a> {
        Walk {
            stream,
            on: stream.handle,
            kernel,
            scratch: RefCell::new(scratch),
            completion,
            measures,
            measured: RefCell::default(),
            rounds: RefCell::default(),
            moved: Cell::default(),
        }
    }

    /// The same on a worker stream of a launch, for a kernel that decides nothing.
    pub(super) fn on(self, on: StreamHandle) -> Walk<'a> {
        Walk { on, ..self }
    }

    /// Runs or queues the kernel.
    ///
    /// # Safety
    /// As [`crate::Stream::launch`], for the arguments of `launch`.
    pub(super) unsafe fn run(self, launch: &Launch<'_>) -> Result<()> {
        if let Some(dispatcher) = launch.caller.dispatcher()
            && let Some(end) = dispatcher.lend(&Open { walk: &self, launch })
        {
            return end;
        }
        let (kernel, at) = (self.kernel, Place { on: self.on, word: 0, alone: true });
        // SAFETY: the contract above.
        let end = unsafe {
            if kernel.sections.is_empty() {
                self.tasks(self.on, 0..kernel.tasks.len(), launch)
            } else {
                branches::run(self.sections(at, &kernel.sections, launch), &self.moved, launch.caller)
            }
        };
        end.and_then(|()| self.end_measure(self.on, launch))
    }

    /// # Safety
    /// As [`Walk::run`].
    unsafe fn sections<'w>(&'w self, at: Place, sections: &'w [Section], launch: &'w Launch<'_>) -> Branch<'w> {
        Box::pin(async move {
            for section in sections {
                let resumes = self.scratch.borrow().checkpoints.resumes_at;
                if resumes.is_some_and(|label| !section.holds_checkpoint(label)) {
                    continue;
                }
                // SAFETY: the contract above.
                unsafe {
                    match section {
                        Section::InOrder(tasks) => self.tasks(at.on, tasks.clone(), launch)?,
                        Section::Groups(groups) => self.groups(at, groups, launch).await?,
                        Section::While(of, body) => match of.guarded {
                            Some(_) if self.in_one_launch(at, of.number, launch)? => {}
                            Some(guarded) if self.queues_ahead(launch) => {
                                // A copy may be under way still.
                                let ended = self.guarded_rounds(at, (of, guarded, body), launch).await;
                                ended.inspect_err(|_| self.scratch.borrow_mut().is_written = true)?;
                            }
                            _ => self.rounds(at, (of, body), launch).await?,
                        },
                        Section::If(condition, [then, otherwise]) => {
                            let holds = match resumes {
                                Some(label) => then.iter().any(|s| s.holds_checkpoint(label)),
                                None => self.holds(at, condition, launch).await?,
                            };
                            let taken = if holds { then } else { otherwise };
                            self.sections(at, taken, launch).await?;
                        }
                        Section::Switch(selector, parts) => {
                            let otherwise = parts.len() - 1;
                            let number = match resumes {
                                Some(label) => parts.iter().position(|p| p.iter().any(|s| s.holds_checkpoint(label))),
                                None => usize::try_from(self.integer_at(at, selector, launch).await?).ok(),
                            };
                            let taken = &parts[number.map_or(otherwise, |n| n.min(otherwise))];
                            self.sections(at, taken, launch).await?;
                        }
                        Section::Checkpoint(label, condition, body) => {
                            self.scratch.borrow_mut().checkpoints.resumes_at = None;
                            self.sections(at, body, launch).await?;
                            if self.holds(at, condition, launch).await? {
                                self.scratch.borrow_mut().checkpoints.ended_at = Some(*label);
                            }
                        }
                    }
                }
                if self.has_ended() {
                    break;
                }
            }
            Ok(())
        })
    }

    /// The launch has ended after a checkpoint.
    fn has_ended(&self) -> bool {
        self.scratch.borrow().checkpoints.ended_at.is_some()
    }

    /// # Safety
    /// As [`Walk::run`].
    async unsafe fn groups(&self, at: Place, groups: &[Box<[Section]>], launch: &Launch<'_>) -> Result<()> {
        if launch.caller.dispatcher().is_some() {
            // Work between the tasks is queued on one stream.
            for sections in groups {
                // SAFETY: the contract above.
                unsafe { self.sections(at, sections, launch).await? };
            }
            return Ok(());
        }
        let Completion::Queued { captured } = self.completion else {
            let what = "concurrent groups of a kernel on a synchronous device";
            return Err(ErrorKind::CompilerBug(what.into()).into());
        };
        let fork = Fork::new(&self.stream.device, at.on, captured, groups.len() - 1)?;
        // Nodes that wait for nothing are queued before those that wait, which may block this thread.
        let (mut branches, mut deciding) = (Vec::with_capacity(groups.len()), Vec::new());
        for (i, sections) in groups.iter().enumerate() {
            let place = Place { on: fork.stream(i), ..at };
            match conditions_at_once(sections) {
                // SAFETY: the contract above; the fork holds its streams.
                0 => branches.push(unsafe { self.sections(place, sections, launch) }),
                conditions => deciding.push((place, conditions, sections)),
            }
        }
        let (alone, mut word) = (at.alone && deciding.len() <= 1, at.word);
        for (place, conditions, sections) in deciding {
            // SAFETY: as above.
            branches.push(unsafe { self.sections(Place { word, alone, ..place }, sections, launch) });
            word += conditions;
        }
        branches::all(branches).await?;
        fork.join()
    }

    /// # Safety
    /// As [`Walk::run`].
    async unsafe fn rounds(
        &self,
        at: Place,
        (of, body): (&DataDependentLoop, &[Section]),
        launch: &Launch<'_>,
    ) -> Result<()> {
        loop {
            let round = Launch { number: round_number(launch.number, self.rounds_of(of.number)), ..*launch };
            // SAFETY: the contract above.
            unsafe { self.sections(at, body, &round).await? };
            self.end_round(of.number);
            // SAFETY: the contract above.
            if self.has_ended() || !unsafe { self.holds(at, &of.condition, launch).await? } {
                return Ok(());
            }
        }
    }

    fn rounds_of(&self, loop_number: u32) -> u64 {
        self.rounds.borrow().get(loop_number as usize).copied().unwrap_or(0)
    }

    fn end_round(&self, loop_number: u32) {
        let (mut rounds, place) = (self.rounds.borrow_mut(), loop_number as usize);
        if rounds.len() <= place {
            rounds.resize(place + 1, 0);
        }
        rounds[place] += 1;
    }

    /// Runs or queues tasks in order on a stream.
    ///
    /// # Safety
    /// As [`Walk::run`]; the stream is alive.
    unsafe fn tasks(&self, on: StreamHandle, tasks: Range<usize>, launch: &Launch<'_>) -> Result<()> {
        let (device, kernel) = (&*self.stream.device, self.kernel);
        if let Some(dispatcher) = launch.caller.dispatcher() {
            // SAFETY: the contract above.
            return unsafe { self.conducted(on, tasks, launch, dispatcher) };
        }
        if self.completion == Completion::Immediate && !self.measures {
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
            let mut measured = self.measured.borrow_mut();
            let measured = measured.get_or_insert_with(start);
            if self.completion == Completion::Immediate {
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

    /// Runs or queues tasks in order, those on split arrays by ranges of rows.
    ///
    /// # Safety
    /// As [`Walk::run`]; the stream is alive.
    unsafe fn conducted(
        &self,
        on: StreamHandle,
        tasks: Range<usize>,
        launch: &Launch<'_>,
        dispatcher: &dyn Dispatcher,
    ) -> Result<()> {
        let (device, kernel) = (&*self.stream.device, self.kernel);
        let draw = Draw { seed: launch.seed, number: launch.number };
        for task in tasks {
            let handle = kernel.tasks[task];
            if kernel.meta.tasks[task].split.is_none() {
                // SAFETY: the contract above; the kernel is loaded while it is borrowed.
                unsafe { device.driver.launch(on, handle, launch)? };
                self.report_done()?;
                dispatcher.repeat_elsewhere(task, draw)?;
                continue;
            }
            // SAFETY: as above.
            unsafe { self.finish_on_host(on)? };
            let mut args = launch.args.to_vec();
            let _conducts = Inside::dispatch();
            dispatcher.dispatch(task, draw, &mut |first, end| {
                // SAFETY: as above. The range is of rows that the rank has.
                unsafe { self.on_rows(on, task, (first, end), (&mut args, launch)) }
            })?;
        }
        Ok(())
    }

    /// Runs or queues a task on a range of rows. `args` are those of `launch`, to be changed.
    ///
    /// # Safety
    /// As [`Walk::run`]; the stream is alive, and the rank has the rows.
    unsafe fn on_rows(
        &self,
        on: StreamHandle,
        task: usize,
        (first, end): (i32, i32),
        (args, launch): (&mut [u64], &Launch<'_>),
    ) -> Result<()> {
        let rows = args.len() - 2;
        args[rows..].copy_from_slice(&[first as u64, end as u64]);
        // SAFETY: the contract above; the kernel is loaded while it is borrowed.
        unsafe {
            self.stream.device.driver.launch(on, self.kernel.tasks[task], &Launch { args, ..*launch })?;
            self.finish_on_host(on)?;
        }
        self.report_done()
    }

    /// Waits for a stream, if its memory is host memory that the dispatcher accesses directly.
    ///
    /// # Safety
    /// The stream is alive.
    unsafe fn finish_on_host(&self, on: StreamHandle) -> Result<()> {
        let device = &self.stream.device;
        if self.completion == Completion::Immediate || !device.host_addressable {
            return Ok(());
        }
        // SAFETY: the contract above.
        unsafe { device.driver.synchronize(on) }
    }

    /// The failure of a task that has run.
    fn report_done(&self) -> Result<()> {
        if self.completion == Completion::Immediate && self.stream.failures.any() {
            self.stream.report()
        } else {
            Ok(())
        }
    }

    /// Stores the measurements since the last call.
    fn end_measure(&self, on: StreamHandle, launch: &Launch<'_>) -> Result<()> {
        match (self.measured.take(), self.completion) {
            (Some(measured), Completion::Queued { .. }) => {
                drop(measured);
                // SAFETY: the stream is alive.
                unsafe { self.stream.device.bound_pending(on, launch.caller) }
            }
            _ => Ok(()),
        }
    }

    /// Whether [`Walk::integer_at`] is nonzero.
    ///
    /// # Safety
    /// As [`Walk::run`].
    async unsafe fn holds(&self, at: Place, condition: &Condition, launch: &Launch<'_>) -> Result<bool> {
        // SAFETY: the contract above.
        Ok(unsafe { self.integer_at(at, condition, launch).await? } != 0)
    }

    /// Waits for the work that a branch has queued, and reads an integer, extended with zeros. Returns an error if an
    /// assertion has failed.
    ///
    /// # Safety
    /// As [`Walk::run`].
    async unsafe fn integer_at(&self, at: Place, condition: &Condition, launch: &Launch<'_>) -> Result<u64> {
        self.end_measure(at.on, launch)?;
        if let (Completion::Queued { .. }, false) = (self.completion, self.stream.device.host_addressable) {
            // SAFETY: the contract above.
            return unsafe {
                let copy = self.queue_copy(at, condition, launch)?;
                self.arrived(at, copy, launch).await
            };
        }
        let (address, bytes) = place_of(condition, launch)?;
        launch.caller.will_block();
        if let Completion::Queued { .. } = self.completion {
            self.stream.check_not_capturing(DECIDES)?;
            // SAFETY: the stream is alive.
            let waited = unsafe { self.wait(at, None, launch).await };
            self.after_wait(waited)?;
        } else if !self.stream.device.host_addressable {
            let message = "a kernel that has data-dependent loops or branches cannot be launched by a task's print";
            return Err(ErrorKind::Misuse { message: message.into() }.into());
        }
        if launch.caller.is_interrupted() {
            return Err(ErrorKind::Interrupted.into());
        }
        let mut value = [0u8; 8];
        // SAFETY: the host reaches the integer there, and the work that writes it is done.
        unsafe { std::ptr::copy_nonoverlapping(address as *const u8, value.as_mut_ptr(), bytes) };
        Ok(u64::from_le_bytes(value))
    }

    /// Queues a copy of an integer to the word of a branch, which is the copy's own until it has
    /// [arrived](Self::arrived).
    ///
    /// # Safety
    /// As [`Walk::run`], on a device apart.
    unsafe fn queue_copy(&self, at: Place, condition: &Condition, launch: &Launch<'_>) -> Result<CopiedCondition> {
        let place = place_of(condition, launch)?;
        launch.caller.will_block();
        self.stream.check_not_capturing(DECIDES)?;
        let word = self.kernel.condition_at(launch.result, at.word);
        // SAFETY: both are in memory of their kind, and the word is the branch's own until it has waited.
        unsafe { CopiedCondition::queue(&*self.stream.device.driver, at.on, word, place) }
    }

    /// Waits for a copy. Returns the integer, extended with zeros; an error if an assertion has failed.
    ///
    /// # Safety
    /// As [`Walk::run`].
    async unsafe fn arrived(&self, at: Place, copy: CopiedCondition, launch: &Launch<'_>) -> Result<u64> {
        // SAFETY: the stream is alive. If the wait is abandoned, the word still belongs to the stream.
        let waited = unsafe { self.wait(at, Some(&copy), launch).await };
        self.after_wait(waited)?;
        if launch.caller.is_interrupted() {
            return Err(ErrorKind::Interrupted.into());
        }
        Ok(copy.value())
    }

    /// Takes what the device has reported until the end of a wait.
    fn after_wait(&self, waited: Result<()>) -> Result<()> {
        waited.inspect_err(|_| self.scratch.borrow_mut().is_written = true)?;
        self.moved.set(true);
        self.stream.drain_log(&mut self.scratch.borrow_mut());
        self.stream.report_pending()
    }

    /// Waits for the work that a branch has queued, or for a copy that was queued last.
    ///
    /// # Safety
    /// The stream is alive.
    async unsafe fn wait(&self, at: Place, copy: Option<&CopiedCondition>, launch: &Launch<'_>) -> Result<()> {
        let driver = &*self.stream.device.driver;
        if at.alone {
            if copy.is_some_and(CopiedCondition::watch) {
                return Ok(());
            }
            // SAFETY: the contract above.
            return unsafe {
                if launch.caller.can_be_interrupted() {
                    let left = &self.stream.device.wait_was_abandoned;
                    abandon_if_interrupted(launch.caller, left, || driver.synchronize_for(at.on, LOOK))
                } else {
                    driver.synchronize(at.on)
                }
            };
        }
        // SAFETY: as above.
        while !(copy.is_some_and(CopiedCondition::is_there) || unsafe { driver.query_stream(at.on)? }) {
            branches::pause().await;
        }
        Ok(())
    }
}

/// What cannot be captured.
const DECIDES: &str = "launch a kernel that has data-dependent loops or branches";

/// Address and size of a condition.
fn place_of(condition: &Condition, launch: &Launch<'_>) -> Result<(u64, usize)> {
    let bug = || ErrorKind::CompilerBug(format!("{condition:?} of {} arguments", launch.args.len()));
    let address = condition.address(launch.args, launch.frame.0).ok_or_else(bug)?;
    Ok((address, condition.kind.bytes() as usize))
}

/// A launch that is lent to that of another device.
struct Open<'a, 'w> {
    walk: &'a Walk<'w>,
    launch: &'a Launch<'a>,
}

impl OpenLaunch for Open<'_, '_> {
    fn run_rows(&self, task: usize, draw: Draw, rows: (i32, i32)) -> Result<()> {
        let mut args = self.launch.args.to_vec();
        let launch = Launch { seed: draw.seed, number: draw.number, ..*self.launch };
        // SAFETY: the contract of `Walk::run` holds while the launch is lent. The dispatcher knows the rank's rows.
        unsafe { self.walk.on_rows(self.walk.on, task, rows, (&mut args, &launch)) }
    }

    fn run_whole(&self, task: usize, draw: Draw) -> Result<()> {
        let (walk, launch) = (self.walk, Launch { seed: draw.seed, number: draw.number, ..*self.launch });
        // SAFETY: as above; the kernel is loaded while it is borrowed.
        unsafe { walk.stream.device.driver.launch(walk.on, walk.kernel.tasks[task], &launch)? };
        walk.report_done()
    }

    fn finish_on_host(&self) -> Result<()> {
        // SAFETY: as above.
        unsafe { self.walk.finish_on_host(self.walk.on) }
    }
}
