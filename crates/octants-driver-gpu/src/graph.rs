//! [`Graph`]: the tasks of a kernel as one graph, described to the driver once and launched many times.
//!
//! Ten launches of one task cost the host many times as much as the launch of a graph of ten tasks, even if all
//! parameters have changed and must be updated first. Even a graph of one task launches faster than the task. The
//! device evaluates the conditions of data-dependent loops, so the host does not wait for each round. A graph cannot
//! run concurrently with itself, so each belongs to one stream. A few streams have graphs; launches on others are made
//! task by task.

use std::sync::atomic::Ordering;

use octants_runtime::{Launch, Result, Section};

use crate::backlog::Backlogs;
use crate::context::Entered;
use crate::describe_graph::{Description, Node, NotAGraph, decides};
use crate::loaded_code::LoadedCode;
use crate::loaded_task::LoadedTask;
use crate::symbols::RawStream;
use crate::vendor::{Graphs, RawGraph, ReadyGraph};

/// From this launch on, a graph is made if the stream is idle. Many kernels are launched less often. A graph with
/// conditions is made at once.
const MADE_AT: u32 = 3;
/// From this launch on, the stream need not be idle. In a program that never waits, only the first kernel of a step
/// finds it idle. On an H100, creating a graph of 20 kernels took 0.1 ms while another kernel ran for 200 ms.
const MADE_BUSY_AT: u32 = 8;
/// Maximum number of graphs per device. Each takes some 100 KiB of its memory.
const MOST: usize = 512;

/// Kernels of at most this many tasks are launched task by task when the host is far ahead of the stream.
const MOST_APART: usize = 4;

/// Maximum number of graphs per module: one per stream.
const MOST_STREAMS: usize = 8;

/// A module's graphs.
#[derive(Debug)]
pub enum Graph {
    /// No graph yet; the number of launches so far.
    None(u32),
    /// The instantiated graphs, at least one.
    Made(Vec<Made>),
    /// The driver rejected it.
    Refused,
}

impl Default for Graph {
    fn default() -> Graph {
        Graph::None(0)
    }
}

/// An instantiated graph.
#[derive(Debug)]
pub struct Made {
    described: RawGraph,
    ready: ReadyGraph,
    stream: RawStream,
    nodes: Vec<Node>,
    /// The launch of the nodes' current parameters: see [`key_of`].
    current: Vec<u64>,
}

/// All data of a launch that the nodes' parameters depend on.
fn key_of<'a>(tasks: &[LoadedTask], launch: &'a Launch<'_>) -> impl Iterator<Item = u64> + 'a {
    let number = if tasks.iter().any(|t| t.is_numbered) { launch.number } else { 0 };
    let at = launch.args_at.map_or(0, |at| at.0);
    let head =
        [launch.frame.0, launch.result.0, launch.channel.0, launch.seed, number, launch.kernel_id, at, launch.rounds.0];
    head.into_iter().chain(launch.args.iter().copied())
}

/// Whether tasks may be launched separately, so that each may start early.
fn may_go_apart(tasks: &[LoadedTask], sections: &[Section]) -> bool {
    let is_plain = |section: &Section| matches!(section, Section::InOrder(_));
    tasks.len() <= MOST_APART && tasks.iter().all(|t| t.waits_itself) && sections.iter().all(is_plain)
}

impl Graph {
    /// Launches all tasks as a graph. False if nothing was launched; the caller must launch them one by one.
    ///
    /// # Safety
    /// As [`LoadedTask::launch`], for each; tasks and sections are always the same.
    pub unsafe fn launch(
        &mut self,
        calls: &Entered<'_>,
        stream: RawStream,
        (code, sections): (&LoadedCode, &[Section]),
        launch: &Launch<'_>,
        backlogs: &Backlogs,
    ) -> Result<bool> {
        let (library, tasks) = (calls.library(), &code.tasks);
        let Some(graphs) = library.vendor.graphs() else { return Ok(false) };
        // SAFETY: the contract above; the driver copies parameters before it returns.
        unsafe {
            if let Graph::None(launches) = self {
                *launches += 1;
            }
            if self.lacks(stream) {
                // Making a graph may wait for running work, if a kernel needs more local memory than the device has
                // reserved. Few launches should do so. A graph with conditions is worth it, because otherwise the host
                // would wait for each decision.
                let is_due = !matches!(self, Graph::None(launches) if *launches < MADE_AT);
                let is_overdue = !matches!(self, Graph::None(launches) if *launches < MADE_BUSY_AT);
                let is_time = decides(sections) || is_overdue || is_due && calls.query_stream(stream)?;
                if !is_time || library.graphs.load(Ordering::Relaxed) >= MOST {
                    return Ok(false);
                }
                match Made::new(graphs, calls, stream, (code, sections), launch) {
                    Ok(made) => {
                        library.graphs.fetch_add(1, Ordering::Relaxed);
                        match self {
                            Graph::Made(others) => others.push(made),
                            _ => *self = Graph::Made(vec![made]),
                        }
                    }
                    Err(NotAGraph::Now) => return Ok(false),
                    Err(NotAGraph::Ever) => {
                        self.destroy(calls);
                        *self = Graph::Refused;
                    }
                }
            }
            let Graph::Made(all) = self else { return Ok(false) };
            if may_go_apart(tasks, sections) && backlogs.count(calls, stream) {
                tasks.iter().try_for_each(|task| task.launch_early(calls, stream, launch))?;
                return Ok(true);
            }
            let Some(made) = all.iter_mut().find(|made| made.stream == stream) else { return Ok(false) };
            match made.update_parameters(graphs, calls, code, launch) {
                Ok(()) => {}
                Err(NotAGraph::Now) => return Ok(false),
                Err(NotAGraph::Ever) => {
                    self.destroy(calls);
                    *self = Graph::Refused;
                    return Ok(false);
                }
            }
            if let Some(first) = tasks.first() {
                library.last.note(stream, first.kernel);
            }
            library.check_own(graphs.launch(made.ready, stream), "launching a graph")?;
        }
        Ok(true)
    }

    /// Whether a stream has a graph.
    pub fn is_made_for(&self, stream: RawStream) -> bool {
        matches!(self, Graph::Made(all) if all.iter().any(|made| made.stream == stream))
    }

    /// Whether a stream may get a graph, and has none.
    fn lacks(&self, stream: RawStream) -> bool {
        match self {
            Graph::None(_) => true,
            Graph::Made(all) => all.len() < MOST_STREAMS && !self.is_made_for(stream),
            Graph::Refused => false,
        }
    }

    /// Gives them back.
    ///
    /// # Safety
    /// No launch of one is being made.
    pub unsafe fn destroy(&mut self, calls: &Entered<'_>) {
        let (Graph::Made(all), Some(graphs)) = (std::mem::take(self), calls.library().vendor.graphs()) else { return };
        for made in all {
            calls.library().graphs.fetch_sub(1, Ordering::Relaxed);
            // SAFETY: the contract above.
            unsafe {
                graphs.destroy_ready(made.ready);
                graphs.destroy(made.described);
            }
        }
    }
}

impl Made {
    /// # Safety
    /// As [`Graph::launch`].
    unsafe fn new(
        graphs: &dyn Graphs,
        calls: &Entered<'_>,
        stream: RawStream,
        what: (&LoadedCode, &[Section]),
        launch: &Launch<'_>,
    ) -> std::result::Result<Made, NotAGraph> {
        // SAFETY: the contract above; what is given back was made here, and not launched.
        unsafe {
            let described = graphs.create().map_err(|_| NotAGraph::Ever)?;
            let mut description = Description::of(graphs, described, calls);
            let ready = description
                .add(Vec::new(), what, launch)
                .and_then(|_| graphs.make_ready(described).map_err(|_| NotAGraph::Ever));
            let ready = ready.inspect_err(|_| graphs.destroy(described))?;
            let nodes = description.nodes;
            Ok(Made { described, ready, stream, nodes, current: key_of(&what.0.tasks, launch).collect() })
        }
    }

    /// Passes the differences from the previous launch to the driver.
    ///
    /// # Safety
    /// As [`Graph::launch`].
    #[inline]
    unsafe fn update_parameters(
        &mut self,
        graphs: &dyn Graphs,
        calls: &Entered<'_>,
        code: &LoadedCode,
        launch: &Launch<'_>,
    ) -> std::result::Result<(), NotAGraph> {
        if self.current.iter().copied().eq(key_of(&code.tasks, launch)) {
            return Ok(());
        }
        // Until all nodes are updated, their parameters belong to no launch.
        self.current.clear();
        for node in &mut self.nodes {
            if let Some(kernel) = node.update_parameters(calls, code, launch)? {
                // SAFETY: the contract above.
                unsafe { graphs.exchange(self.ready, node.raw, &kernel) }.map_err(|_| NotAGraph::Ever)?;
            }
        }
        self.current.extend(key_of(&code.tasks, launch));
        Ok(())
    }
}
