//! [`Graph`]: the tasks of a kernel as one piece of work, described to the driver once and launched often.
//!
//! Ten launches of one task take the host many times as long as the launch of a graph of ten, even where all parameters
//! have changed and the driver is told first; a graph of one task is quicker to launch than the task, too. A graph
//! cannot run beside itself, so it is for one stream; launches on others are made task by task.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use octants_runtime::{Launch, Result};

use crate::context::Entered;
use crate::loaded_task::LoadedTask;
use crate::plan_grid::Parameter;
use crate::symbols::{RawFunction, RawStream};
use crate::vendor::{GridShape, KernelNode, RawGraph};

/// A graph is made when its tasks are launched for this time, or at the first launch after it that finds the stream
/// idle: many kernels are not launched as often.
const MADE_AT: u32 = 3;
/// Graphs of a device at most. Each takes some 100 KiB of its memory.
const MOST: usize = 512;

/// A module's graph.
#[derive(Debug)]
pub enum Graph {
    /// Not made yet, after so many launches.
    None(u32),
    /// Ready.
    Made(Made),
    /// The driver would not have it.
    Refused,
}

impl Default for Graph {
    fn default() -> Graph {
        Graph::None(0)
    }
}

/// A graph that is ready.
#[derive(Debug)]
pub struct Made {
    raw: RawGraph,
    stream: RawStream,
    /// What each node was told.
    told: Vec<Told>,
}

#[derive(Debug, PartialEq)]
struct Told {
    function: RawFunction,
    shape: GridShape,
    parameter: Vec<u64>,
}

impl Told {
    /// What a launch of a task is; `None` where it does nothing.
    fn of(task: &LoadedTask, calls: &Entered<'_>, launch: &Launch<'_>) -> Option<Told> {
        let (function, shape) = task.plan(calls, launch.args)?;
        Some(Told { function, shape, parameter: Parameter::new(launch, task.number).words().to_vec() })
    }

    fn node(&self) -> KernelNode {
        let parameter = self.parameter.as_ptr().cast_mut().cast::<c_void>();
        KernelNode { function: self.function, shape: self.shape, parameter }
    }
}

impl Graph {
    /// Launches all tasks. False where nothing was launched: they have to be one by one.
    ///
    /// # Safety
    /// As [`LoadedTask::launch`], for each; they are always the same.
    pub unsafe fn launch(
        &mut self,
        calls: &Entered<'_>,
        stream: RawStream,
        tasks: &[LoadedTask],
        launch: &Launch<'_>,
    ) -> Result<bool> {
        let library = calls.library();
        let Some(graphs) = library.vendor.graphs() else { return Ok(false) };
        // SAFETY: the contract above; the driver copies parameters before it returns.
        unsafe {
            if let Graph::None(launches) = self {
                *launches += 1;
                // Making a graph waits for work that runs, which no launch should.
                let room = library.graphs.load(Ordering::Relaxed) < MOST;
                if *launches < MADE_AT || !room || !calls.query_stream(stream)? {
                    return Ok(false);
                }
                let told: Option<Vec<_>> = tasks.iter().map(|t| Told::of(t, calls, launch)).collect();
                let Some(told) = told else { return Ok(false) };
                let nodes: Vec<_> = told.iter().map(Told::node).collect();
                *self = match graphs.make(&nodes) {
                    Ok(raw) => {
                        library.graphs.fetch_add(1, Ordering::Relaxed);
                        Graph::Made(Made { raw, stream, told })
                    }
                    Err(_) => Graph::Refused,
                };
            }
            let Graph::Made(made) = self else { return Ok(false) };
            if made.stream != stream {
                return Ok(false);
            }
            for (i, task) in tasks.iter().enumerate() {
                let Some((function, shape)) = task.plan(calls, launch.args) else { return Ok(false) };
                let parameter = Parameter::new(launch, task.number);
                let told = &mut made.told[i];
                if (told.function, told.shape, &told.parameter[..]) != (function, shape, parameter.words()) {
                    (told.function, told.shape) = (function, shape);
                    told.parameter.clear();
                    told.parameter.extend_from_slice(parameter.words());
                    if graphs.exchange(&made.raw, i, &told.node()).is_err() {
                        self.destroy(calls);
                        *self = Graph::Refused;
                        return Ok(false);
                    }
                }
            }
            if let Some(first) = tasks.first() {
                library.last.note(stream, first.kernel);
            }
            library.check_own(graphs.launch(&made.raw, stream), "launching a graph")?;
        }
        Ok(true)
    }

    /// Gives it back.
    ///
    /// # Safety
    /// No launch of it is being made.
    pub unsafe fn destroy(&mut self, calls: &Entered<'_>) {
        if let (Graph::Made(made), Some(graphs)) = (std::mem::take(self), calls.library().vendor.graphs()) {
            calls.library().graphs.fetch_sub(1, Ordering::Relaxed);
            // SAFETY: the contract above.
            unsafe { graphs.destroy(made.raw) }
        }
    }
}
