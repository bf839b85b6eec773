//! Runs one task: decides whether to use several threads, calls the code, and handles its callbacks.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use octants_artifact::{Bound, HostContext, HostCount, ParallelMeta, iterations};
use octants_runtime::{
    Caller, CheckpointWords, DevicePtr, ErrorKind, Failure, Failures, KernelMeta, Launch, Printer, Result,
    Uninterruptible,
};

use crate::copies::Set;
use crate::cost_estimate::{CostEstimate, LONG};
use crate::enter::{Entry, go_on};
use crate::linker::{Linked, Linker};
use crate::plan_chunks::{Plan, Shape};
use crate::pool::{Pool, Ranges, Stopped};

/// Work below this many nanoseconds need not be interrupted.
const SHORT: f64 = 1e5;
/// Longer work on one thread is split into pieces of about this duration, at most four times as long.
const PIECE: Duration = Duration::from_millis(5);
/// The first piece is at most this fraction of the iterations: 1 / FIRST_PART.
const FIRST_PART: u64 = 64;

/// Linked code, unloaded when the last of its tasks goes.
pub struct Code {
    linker: Arc<Linker>,
    linked: Option<Linked>,
}

impl Code {
    /// Wraps linked code.
    pub fn new(linker: Arc<Linker>, linked: Linked) -> Code {
        Code { linker, linked: Some(linked) }
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        if let Some(linked) = self.linked.take() {
            self.linker.unload(linked);
        }
    }
}

/// The other work that may run concurrently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concurrency {
    /// Nothing of this program.
    None,
    /// Work of other streams, which may use the same data.
    Streams,
}

/// A task of linked code.
pub struct LoadedTask {
    _code: Arc<Code>,
    /// The variant for several threads.
    shared: Entry,
    /// The variant without atomics, for one thread with exclusive access to the data.
    alone: Entry,
    kind: Kind,
    estimate: CostEstimate,
}

enum Kind {
    Serial,
    Parallel {
        count: Count,
        shape: Shape,
        /// The variant that merges private copies of the regions that the task scatters to.
        merges: Vec<Entry>,
    },
}

/// The number of iterations.
pub enum Count {
    /// Known when the code was compiled.
    Known(u64),
    /// The size of the index space between these bounds.
    OfSlots(Vec<(Bound, Bound)>),
    /// Computed by the code.
    Computed(HostCount),
}

impl Count {
    /// The number of a launch's iterations.
    ///
    /// # Safety
    /// The code is loaded, and `context` holds what it expects.
    #[inline]
    unsafe fn of(&self, launch: &Launch<'_>, context: &HostContext) -> u64 {
        match self {
            Count::Known(n) => *n,
            // If the launch does not determine it, the code counts.
            Count::OfSlots(axes) => iterations(axes, launch.args).unwrap_or(0),
            // SAFETY: the contract above.
            Count::Computed(code) => u64::try_from(unsafe { code(context) }).unwrap_or(0),
        }
    }
}

impl LoadedTask {
    /// A task that runs once.
    pub fn serial(owner: Arc<Code>, code: Entry) -> LoadedTask {
        LoadedTask { _code: owner, shared: code, alone: code, kind: Kind::Serial, estimate: CostEstimate::new(LONG) }
    }

    /// A parallel task, for a pool of `threads` threads.
    pub fn parallel(
        owner: Arc<Code>,
        (shared, alone, merges): (Entry, Entry, Vec<Entry>),
        count: Count,
        meta: &ParallelMeta,
        threads: u32,
    ) -> LoadedTask {
        let kind = Kind::Parallel { count, shape: Shape::new(meta, threads), merges };
        LoadedTask {
            _code: owner,
            shared,
            alone,
            kind,
            estimate: CostEstimate::new(f64::from(meta.cost_per_iteration)),
        }
    }

    /// Runs the task.
    ///
    /// # Safety
    /// The task's code is loaded, and `launch` holds what it expects.
    #[inline]
    pub unsafe fn run(&self, pool: &Pool, launch: &Launch<'_>, concurrency: Concurrency) -> Result<()> {
        let context = context(launch);
        let Kind::Parallel { count, shape, .. } = &self.kind else {
            let known = self.estimate.cost();
            // SAFETY: the caller's contract; the context outlives the call.
            let run = || unless_left(unsafe { self.shared.run_for(launch.caller, &context, 0, 0) });
            return self.end(known, self.estimate.time(1, 1, launch, run));
        };
        // SAFETY: as above.
        let count = unsafe { count.of(launch, &context) };
        if count == 0 {
            return Ok(());
        }
        // A nested task runs concurrently with others that may use the same data.
        if launch.nested {
            // SAFETY: as above.
            let ended = unsafe { self.shared.run_for(launch.caller, &context, 0, count) };
            return self.end(self.estimate.cost(), unless_left(ended));
        }
        let plan = if self.estimate.probes(count) {
            Plan::Inline
        } else {
            shape.plan(count, self.estimate.cost(), launch.args)
        };
        match plan {
            Plan::Inline => {
                // Without streams all launches are in order, so nothing else of the program runs now.
                let is_alone = concurrency == Concurrency::None;
                // SAFETY: as above.
                let piece = |begin, end| unsafe {
                    match is_alone {
                        true => self.alone.run_for(launch.caller, &context, begin, end),
                        false => self.run_with_others(pool, launch, &context, begin, end),
                    }
                };
                let known = self.estimate.cost();
                if known * (count as f64) < SHORT || !launch.caller.can_be_interrupted() {
                    return self.end(known, self.estimate.time(count, 1, launch, || unless_left(piece(0, count))));
                }
                let unit = shape.together(known);
                // The cost of iterations may depend on arguments, so the first piece is small. With copies each piece
                // costs more.
                let copies = !is_alone && shape.takes_copies(count, launch.args);
                let most = if copies { count } else { count.div_ceil(FIRST_PART) };
                let first = ((PIECE.as_nanos() as f64 / known / 4.0) as u64).clamp(1, most);
                let run = || run_in_pieces(count, (first, unit), launch, piece);
                self.end(known, self.estimate.time(count, 1, launch, run))
            }
            Plan::Split { width, chunk, copies } => {
                let known = self.estimate.cost();
                // SAFETY: as above.
                let run = || unsafe { self.split(pool, launch, &context, count, (width, chunk, copies)) };
                self.end(known, self.estimate.time(count, width, launch, run))
            }
        }
    }

    /// Runs all iterations on several threads.
    ///
    /// # Safety
    /// As [`LoadedTask::run`].
    unsafe fn split(
        &self,
        pool: &Pool,
        launch: &Launch<'_>,
        context: &HostContext,
        count: u64,
        (width, chunk, copies): (u32, u64, bool),
    ) -> std::result::Result<(), Stopped> {
        let (shared, code) = (Shared(context), self.shared);
        let set = if copies { self.take_copies(pool, launch, width as usize) } else { None };
        let Some(mut set) = set else {
            return pool.share(count, chunk, width, launch.caller, &|ranges| {
                let watch = ranges.watch();
                // SAFETY: the contract; the ranges are within the count and do not overlap.
                ranges.for_each(|(begin, end)| unsafe { code.run(shared.get(), begin, end, watch) });
            });
        };
        // A thread's copy serves for all that it runs.
        let many = |ranges: &mut Ranges<'_>| {
            let own = set.of_lane(ranges.lane()) as *const c_void;
            let own = HostContext { copies: own, ..shared.get().clone() };
            let watch = ranges.watch();
            // SAFETY: as above.
            ranges.for_each(|(begin, end)| unsafe { code.run(&own, begin, end, watch) });
        };
        // After a panic or an interrupt copies may not be zero: drop them.
        pool.share(count, chunk, width, launch.caller, &many)?;
        let used = set.used();
        let parts = copied_bytes(&self.kind, launch).saturating_mul(used.len() as u64) / BYTES_OF_PART;
        let parts = parts.clamp(1, u64::from(width));
        let listed =
            HostContext { copies: used.as_ptr().cast(), copy_count: used.len() as u64, ..shared.get().clone() };
        let listed = Shared(&listed);
        // SAFETY: the contract; no thread writes to the copies any more.
        pool.run(parts, 1, width, &Uninterruptible, &|begin, end| unsafe {
            (begin..end).for_each(|part| self.merge((part, parts), launch.args, listed.get()));
        })?;
        pool.copies().release(set);
        Ok(())
    }

    /// Runs some iterations on this thread, concurrently with other work of the program, with a private copy if that
    /// pays. False if the caller was interrupted.
    ///
    /// # Safety
    /// As [`LoadedTask::run`]; the range is within the count.
    unsafe fn run_with_others(
        &self,
        pool: &Pool,
        launch: &Launch<'_>,
        context: &HostContext,
        begin: u64,
        end: u64,
    ) -> bool {
        let pays = matches!(&self.kind, Kind::Parallel { shape, .. } if shape.takes_copies(end - begin, launch.args));
        let set = if pays { self.take_copies(pool, launch, 1) } else { None };
        let Some(mut set) = set else {
            // SAFETY: the contract.
            return unsafe { self.shared.run_for(launch.caller, context, begin, end) };
        };
        let own = HostContext { copies: set.of_lane(0) as *const c_void, ..context.clone() };
        // SAFETY: the contract.
        if !unsafe { self.shared.run_for(launch.caller, &own, begin, end) } {
            // Drop the copy: it may be incomplete and is not zero.
            return false;
        }
        let listed = HostContext { copies: set.used().as_ptr().cast(), copy_count: 1, ..context.clone() };
        // SAFETY: as above.
        unsafe { self.merge((0, 1), launch.args, &listed) };
        pool.copies().release(set);
        true
    }

    /// Private copies of the memory that the task scatters to, for a number of lanes.
    fn take_copies(&self, pool: &Pool, launch: &Launch<'_>, lanes: usize) -> Option<Set> {
        let Kind::Parallel { shape, .. } = &self.kind else { return None };
        pool.copies().take(lanes, shape.copied_room(launch.args)?)
    }

    /// Adds a part of the copies that the context lists to the shared memory.
    ///
    /// # Safety
    /// As [`LoadedTask::run`]; no thread writes to the copies, and no other thread adds this part.
    unsafe fn merge(&self, part: (u64, u64), args: &[u64], listed: &HostContext) {
        let Kind::Parallel { shape, merges, .. } = &self.kind else { return };
        shape.part_of_copies(part, args, |region, copy_offset, [begin, end]| {
            let listed = HostContext { copy_offset, ..listed.clone() };
            // SAFETY: the contract; groups are within the copies.
            unsafe { merges[region].run_to_its_end(&listed, begin, end) }
        });
    }
}

/// Minimum size, over all copies, of the part that one thread merges.
const BYTES_OF_PART: u64 = 32 << 10;

/// Bytes of a copy.
fn copied_bytes(kind: &Kind, launch: &Launch<'_>) -> u64 {
    let Kind::Parallel { shape, .. } = kind else { return 0 };
    shape.copied_room(launch.args).unwrap_or(0)
}

impl LoadedTask {
    /// The outcome of a run, with the estimate from before it.
    #[inline]
    fn end(&self, known: f64, end: std::result::Result<(), Stopped>) -> Result<()> {
        end.map_err(|stopped| match stopped {
            Stopped::Panicked(message) => ErrorKind::CompilerBug(format!("a task panicked: {message}")).into(),
            Stopped::Interrupted => {
                self.estimate.reset_cost(known);
                ErrorKind::Interrupted.into()
            }
        })
    }
}

/// Runs iterations on this thread, in pieces of whole `unit`s, until the caller is interrupted. The first piece is of
/// `first` iterations.
#[cold]
fn run_in_pieces(
    count: u64,
    (first, unit): (u64, u64),
    launch: &Launch<'_>,
    piece: impl Fn(u64, u64) -> bool,
) -> std::result::Result<(), Stopped> {
    let mut length = first.next_multiple_of(unit);
    let mut begin = 0;
    while begin < count {
        let end = begin.saturating_add(length).min(count);
        let start = Instant::now();
        let ended = piece(begin, end);
        begin = end;
        let time = start.elapsed();
        if time * 2 < PIECE {
            length = length.saturating_mul(2);
        } else if time > PIECE * 4 {
            length = (length / 4).max(1).next_multiple_of(unit);
        }
        if !ended || begin < count && launch.caller.is_interrupted() {
            return Err(Stopped::Interrupted);
        }
    }
    Ok(())
}

fn unless_left(ended: bool) -> std::result::Result<(), Stopped> {
    if ended { Ok(()) } else { Err(Stopped::Interrupted) }
}

/// A task of a launch that has returned: all that it needs, by value. Used again for other tasks, so that queueing one
/// allocates nothing.
#[derive(Default)]
pub struct QueuedTask {
    held: Option<Held>,
    args: Vec<u64>,
}

struct Held {
    task: Arc<LoadedTask>,
    kernel: Arc<KernelMeta>,
    frame: DevicePtr,
    result: DevicePtr,
    seed: u64,
    number: u64,
    step: Option<u32>,
    failures: Arc<Failures>,
    printer: Arc<Printer>,
}

impl QueuedTask {
    /// Copies the state of the launch.
    pub fn fill(&mut self, task: Arc<LoadedTask>, launch: &Launch<'_>) {
        self.args.clear();
        self.args.extend_from_slice(launch.args);
        self.held = Some(Held {
            task,
            kernel: launch.kernel.clone(),
            frame: launch.frame,
            result: launch.result,
            seed: launch.seed,
            number: launch.number,
            step: launch.step,
            failures: launch.failures.clone(),
            printer: launch.printer.clone(),
        });
    }

    /// Releases the launch. Code that was unloaded meanwhile is freed with the last task that holds it.
    pub fn clear(&mut self) {
        self.held = None;
    }

    fn with<T>(&self, caller: &dyn Caller, work: impl FnOnce(&LoadedTask, &Launch<'_>) -> T) -> T {
        let held = self.held.as_ref().expect("compiler bug: a queued task without a launch");
        let launch = Launch {
            kernel: &held.kernel,
            args: &self.args,
            args_at: None,
            frame: held.frame,
            result: held.result,
            channel: DevicePtr(0),
            kernel_id: 0,
            rounds: DevicePtr(0),
            guard: DevicePtr(0),
            end: CheckpointWords::NONE,
            seed: held.seed,
            number: held.number,
            step: held.step,
            nested: false,
            failures: &held.failures,
            printer: &held.printer,
            caller,
        };
        work(&held.task, &launch)
    }

    /// Runs it, unless its stream has an unreported failure. It ends early when `caller` is interrupted.
    pub fn run(&self, pool: &Pool, caller: &dyn Caller) {
        self.with(caller, |task, launch| {
            if launch.failures.any() {
                return;
            }
            // SAFETY: the task holds its code; the launcher keeps the memory until the stream has done this work.
            if let Err(error) = unsafe { task.run(pool, launch, Concurrency::Streams) }
                && *error.kind() != ErrorKind::Interrupted
            {
                let (kernel, message) = (launch.kernel.name.clone(), error.to_string());
                launch.failures.record(|| Failure {
                    kernel,
                    message,
                    location: String::new(),
                    step: launch.step,
                    stream: 0,
                    race: None,
                });
            }
        });
    }

    /// Whether it was measured to be short.
    pub fn is_short(&self) -> bool {
        self.with(&Uninterruptible, |task, launch| {
            let count = match &task.kind {
                Kind::Serial => 1,
                // SAFETY: as in `run`.
                Kind::Parallel { count, .. } => unsafe { count.of(launch, &context(launch)) },
            };
            task.estimate.is_known() && task.estimate.cost() * (count as f64) < SHORT
        })
    }

    /// For a schedule that runs the task in pieces: the number of its iterations, and the number that the size of a
    /// piece is a multiple of. `None` if it runs as a whole.
    pub fn pieces(&self) -> Option<(u64, u64)> {
        self.with(&Uninterruptible, |task, launch| {
            let Kind::Parallel { count, shape, .. } = &task.kind else { return None };
            let unit = shape.unit().filter(|_| !launch.failures.any())?;
            // SAFETY: as in `run`.
            let count = unsafe { count.of(launch, &context(launch)) };
            (count > unit).then_some((count, unit))
        })
    }

    /// Runs some iterations.
    pub fn run_piece(&self, pool: &Pool, caller: &dyn Caller, begin: u64, end: u64) {
        // SAFETY: as in `run`; the range is within the count.
        self.with(caller, |task, launch| unsafe { task.run_with_others(pool, launch, &context(launch), begin, end) });
    }
}

/// The launch context that compiled code receives.
fn context(launch: &Launch<'_>) -> HostContext {
    HostContext {
        args: launch.args.as_ptr(),
        frame: launch.frame.0 as *mut u8,
        result: launch.result.0 as *mut u64,
        print,
        fail,
        seed: launch.seed,
        launch: launch.number,
        owner: std::ptr::from_ref(launch).cast::<c_void>(),
        copies: std::ptr::null(),
        copy_count: 0,
        copy_offset: 0,
        poll: go_on,
    }
}

/// A context that several threads read.
struct Shared<'a>(&'a HostContext);

// SAFETY: tasks only read the context. What it leads to is the launch's memory, which tasks may share, and the launch,
// and `print` and `fail` use only its parts that are `Sync`.
unsafe impl Sync for Shared<'_> {}

impl Shared<'_> {
    fn get(&self) -> &HostContext {
        self.0
    }
}

/// # Safety
/// Called by compiled code with the context it was given and a site's values.
unsafe extern "C" fn print(context: *const HostContext, site: u32, values: *const u64) {
    // SAFETY: the contract above.
    unsafe { report(context, site, values, |launch, values| launch.print(site, values)) }
}

/// # Safety
/// As `print`.
unsafe extern "C" fn fail(context: *const HostContext, site: u32, values: *const u64) {
    // SAFETY: the contract above.
    unsafe { report(context, site, values, |launch, values| launch.fail(site, values)) }
}

/// # Safety
/// As `print`.
unsafe fn report(context: *const HostContext, site: u32, values: *const u64, then: impl FnOnce(&Launch<'_>, &[u64])) {
    // SAFETY: `run` stored the launch, which outlives it; the code passes as many values as the site has.
    let (launch, values) = unsafe {
        let launch = &*(*context).owner.cast::<Launch<'_>>();
        let count = launch.kernel.site_values(site);
        let values = if count == 0 { &[] } else { std::slice::from_raw_parts(values, count) };
        (launch, values)
    };
    // A sink that panics loses the text; compiled code cannot be unwound.
    let _ = catch_unwind(AssertUnwindSafe(|| then(launch, values)));
}
