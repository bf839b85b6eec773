//! [`LoadedLoop`]: a data-dependent loop that runs in one launch. Its blocks meet at barriers, so that all of them must
//! be resident at the same time (a cooperative launch).
//!
//! On an H200, an iteration of three small tasks takes 1.2 us with 2,048 elements, in one block, and 5.0 to 5.8 us with
//! 4,096 to 65,536, in several blocks; as a conditional node of a graph it takes 6.1, and 7.1 to 7.8.

use std::sync::atomic::{AtomicBool, Ordering};

use octants_artifact::PersistentLoop;
use octants_runtime::{Launch, Result};

use crate::context::{Context, Entered};
use crate::loaded_task::LoadedTask;
use crate::plan_grid::Parameter;
use crate::symbols::{RawFunction, RawModule, RawStream, number};
use crate::vendor::GridShape;

/// Up to this many iterations of each task, a loop runs in one block: its barrier is much faster than that of a grid.
const ONE_BLOCK: u64 = 8_192;
/// Beyond that, a graph decides about the end of a loop whose tasks have more iterations than half of the threads that
/// are resident at a time. On an H200, 65,536 elements take 0.74 to 0.85 of the time in one launch, 262,144 between
/// 0.9 and 1.06, and a million up to 1.15.
const RESIDENT_PER_ITERATION: u64 = 2;
/// Without a graph, the host decides, from time to time, if a thread would run more iterations than this.
const MOST_EACH: u64 = 16;

/// A loop with the data of its launches.
#[derive(Debug)]
pub struct LoadedLoop {
    /// Its number in the kernel.
    pub number: u32,
    tasks: Box<[u32]>,
    function: RawFunction,
    warp: u32,
    /// Maximum number of threads of a block.
    most_threads: u32,
    /// Number of blocks of as many threads that are resident at the same time.
    resident: u32,
    /// A launch found no room.
    is_refused: AtomicBool,
}

/// Loads a loop; `None` if the device has no cooperative launches.
///
/// # Safety
/// The module is loaded.
pub(crate) unsafe fn load_loop(
    context: &Context,
    calls: &Entered<'_>,
    module: RawModule,
    of: &PersistentLoop,
) -> Result<Option<LoadedLoop>> {
    if !context.cooperates {
        return Ok(None);
    }
    // SAFETY: the contract above.
    unsafe {
        let function = calls.function(module, &of.symbol)?;
        let most_threads = calls.function_attribute(function, number::FUNCTION_MAX_THREADS_PER_BLOCK)?.max(1) as u32;
        let most_threads = most_threads.min(PersistentLoop::THREADS);
        let each = calls.blocks_per_multiprocessor(function, most_threads, 0)?;
        let (warp, resident) = (context.warp, each * context.multiprocessors);
        let tasks = of.tasks.as_slice().into();
        let is_refused = AtomicBool::default();
        Ok(Some(LoadedLoop { number: of.number, tasks, function, warp, most_threads, resident, is_refused }))
    }
}

impl LoadedLoop {
    /// The largest number of iterations of a task; `None` if one is unknown.
    fn iterations(&self, tasks: &[LoadedTask], args: &[u64]) -> Option<u64> {
        self.tasks.iter().try_fold(1, |most, task| Some(most.max(tasks.get(*task as usize)?.iterations(args)?)))
    }

    /// Whether one launch is faster than a launch for each task, and decisions between them: of the device, in a graph,
    /// or of the host.
    pub fn suits(&self, tasks: &[LoadedTask], args: &[u64], in_a_graph: bool) -> bool {
        let threads = u64::from(self.resident) * u64::from(self.most_threads);
        let most = if in_a_graph { threads / RESIDENT_PER_ITERATION } else { threads * MOST_EACH };
        let fits = |n| n <= ONE_BLOCK.max(most);
        !self.is_refused.load(Ordering::Relaxed) && self.iterations(tasks, args).is_some_and(fits)
    }

    /// The function and a grid for a launch with these argument slots. The grid is right for any number of iterations.
    pub fn plan(&self, tasks: &[LoadedTask], args: &[u64]) -> (RawFunction, GridShape) {
        let n = self.iterations(tasks, args).unwrap_or(u64::MAX);
        let threads = n.min(self.most_threads.into()).next_multiple_of(self.warp.into()) as u32;
        let blocks = if n <= ONE_BLOCK { 1 } else { n.div_ceil(threads.into()).min(self.resident.into()) as u32 };
        (self.function, GridShape { blocks, threads, block_bytes: 0 })
    }

    /// The parameter of its code.
    pub fn parameter(&self, launch: &Launch<'_>) -> Parameter {
        Parameter::new(launch, self.tasks[0], 0, launch.words_of_loop(self.number))
    }

    /// Queues all iterations. Returns false, with nothing queued, if the device has less room than it had at first.
    ///
    /// # Safety
    /// As [`LoadedTask::launch`].
    pub unsafe fn launch(
        &self,
        calls: &Entered<'_>,
        stream: RawStream,
        tasks: &[LoadedTask],
        launch: &Launch<'_>,
    ) -> Result<bool> {
        let (function, shape) = self.plan(tasks, launch.args);
        let mut parameter = self.parameter(launch);
        let kernel = tasks[self.tasks[0] as usize].kernel;
        // SAFETY: the contract above; the driver copies the parameter before it returns.
        let launched = unsafe { calls.launch_resident(function, shape, stream, parameter.address(), kernel)? };
        if !launched {
            self.is_refused.store(true, Ordering::Relaxed);
        }
        Ok(launched)
    }
}
