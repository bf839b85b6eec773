//! The execution order of an artifact's tasks: the part of a program's task graph that a launcher needs.

use serde::{Deserialize, Serialize};

use crate::{DeviceContext, ScalarKind};

/// A part of a graph. The parts of a list run in order. An artifact with an empty list runs all its tasks in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GraphPart {
    /// A half-open range of task numbers, in order.
    Tasks(u32, u32),
    /// Concurrent groups of parts.
    Parallel(Vec<Vec<GraphPart>>),
    /// A body that runs at least once, and repeats while its condition, read after each round, is not zero.
    While {
        /// What decides.
        condition: Condition,
        /// A round.
        body: Vec<GraphPart>,
        /// Rounds may be queued ahead of the decision.
        guarded: Option<GuardedIterations>,
    },
    /// A choice.
    If {
        /// What decides.
        condition: Condition,
        /// Runs when it is not zero.
        then: Vec<GraphPart>,
        /// Runs when it is.
        otherwise: Vec<GraphPart>,
    },
    /// A choice among numbered cases.
    Switch {
        /// The integer that decides.
        selector: Condition,
        /// Runs for the value that is its position.
        cases: Vec<Vec<GraphPart>>,
        /// Runs for any other value.
        otherwise: Vec<GraphPart>,
    },
    /// A place to stop and to resume. The launcher runs the body and no more.
    Checkpoint {
        /// The user's number of it.
        label: i64,
        /// The launch ends after the body if this is not zero.
        yields_on: Condition,
        /// The parts that run again when a launch resumes here.
        body: Vec<GraphPart>,
    },
}

/// Code that runs all iterations of a loop in one launch, for any number of blocks of at most
/// [`PersistentLoop::THREADS`] threads that are resident on the device at the same time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PersistentLoop {
    /// The loop's number in the graph.
    pub number: u32,
    /// Symbol of the code.
    pub symbol: String,
    /// Index of its module in the artifact.
    pub module: u32,
    /// The loop's tasks.
    pub tasks: Vec<u32>,
}

impl PersistentLoop {
    /// Maximum number of threads of a block.
    pub const THREADS: u32 = 512;

    /// Whether there are words for it before each frame.
    pub fn has_words(&self) -> bool {
        u64::from(self.number) < DeviceContext::BEFORE_FRAME / DeviceContext::LOOP_BYTES
    }
}

/// Iterations of a loop that may be queued before it is known whether they run. Each sets the guard, an `i32`, to
/// whether another follows. A task that gets the guard's address in [`DeviceContext::of_loop`] does nothing while the
/// guard is zero: any iteration of a launch but the first may be launched so.
///
/// [`DeviceContext::of_loop`]: crate::DeviceContext::of_loop
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardedIterations {
    /// How many should be queued for each decision.
    pub per_decision: u32,
    /// The guard's offset in the frame.
    pub guard: u64,
}

/// An integer in the device's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// The argument slot with the address; `None` for the launch's frame.
    pub slot: Option<u32>,
    /// Bytes from there.
    pub offset: u64,
    /// Its kind.
    pub kind: ScalarKind,
}

impl Condition {
    /// The address in a launch with these argument slots and a frame at this address; `None` if there is no such slot.
    pub fn address(&self, args: &[u64], frame: u64) -> Option<u64> {
        let base = match self.slot {
            Some(slot) => *args.get(slot as usize)?,
            None => frame,
        };
        base.checked_add(self.offset)
    }
}

/// The graph of tasks that run in order, except that adjacent tasks of different groups run concurrently. Empty without
/// groups.
pub fn graph_of_groups(groups: &[Option<u32>]) -> Vec<GraphPart> {
    let mut runs: Vec<(Option<u32>, (u32, u32))> = Vec::new();
    for (group, task) in groups.iter().zip(0..) {
        match runs.last_mut() {
            Some((of, run)) if of == group => run.1 = task + 1,
            _ => runs.push((*group, (task, task + 1))),
        }
    }
    let parts = runs.chunk_by(|a, b| a.0.is_some() && b.0.is_some()).map(|same| match same {
        [(_, (first, end))] => GraphPart::Tasks(*first, *end),
        groups => {
            let group = |(first, end): (u32, u32)| vec![GraphPart::Tasks(first, end)];
            GraphPart::Parallel(groups.iter().map(|(_, run)| group(*run)).collect())
        }
    });
    let parts: Vec<GraphPart> = parts.collect();
    if parts.iter().all(|p| matches!(p, GraphPart::Tasks(..))) { Vec::new() } else { parts }
}
