//! [`TaskGraph`]: the execution order of a program's tasks: sequences, parallel groups, loops and conditionals.
//!
//! # Semantics
//!
//! - A `Sequence` runs its parts in order. Each sees all effects of those before it.
//! - A `Parallel` runs its groups in any order or concurrently. Its successors see the effects of all of them.
//! - A `While` is a do-while loop (`qd.graph.do_while`): it runs its body, reads its condition, and repeats while the
//!   condition holds. For `Random`, each iteration is a launch of its own: it draws other numbers. Its iterations may
//!   be guarded: see [`GuardedIterations`].
//! - An `If` reads its condition and runs one of two parts.
//! - A `Switch` reads its selector, an integer, and runs the case with that number, or `otherwise`.
//! - A `Launch` runs a task. One task may be launched in several places.
//! - A `Checkpoint` is a point where a launch may end and a later one resume. The launch ends there if `yields_on` is
//!   not zero after its body. A launch that resumes at a label skips everything before that checkpoint in program
//!   order; enclosing loops continue from there.
//! - A [`Condition`] is a memory location with an integer, true if not zero. It is read after all preceding work in
//!   the graph. A selector is such a location too.
//! - A task that fails an assertion ends the graph: no later task and no further iteration runs.

use std::collections::BTreeSet;

use crate::op::{BufferId, FrameSlot};

/// A task of a program, by its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(pub u32);

impl TaskId {
    /// Position among the program's tasks.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// An integer in memory that controls execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Condition {
    /// The element of a buffer without axes.
    Buffer(BufferId),
    /// A slot of the launch's frame.
    Frame(FrameSlot),
}

/// Iterations of a `While` that may be queued before it is known whether the loop runs them.
///
/// The last task of an iteration sets the guard, an `i32`, to whether the condition holds. An executor may queue
/// several iterations at a time. It tells all tasks of all of them but the first to do nothing while the guard is zero.
/// So the guard need not be set before the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GuardedIterations {
    /// How many should be queued for each decision whether the loop ends, at least 2.
    pub per_decision: u32,
    /// The guard.
    pub guard: FrameSlot,
}

/// How many iterations a launch of a task has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LaunchCount {
    /// A constant. 1 for a serial task.
    Known(u64),
    /// A number that follows from the launch's arguments only.
    Argument,
    /// A number that the task computes from memory, which tasks before it may write.
    Memory,
}

/// The order of a program's tasks: see the module's semantics.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TaskGraph {
    /// Parts in order.
    Sequence(Vec<TaskGraph>),
    /// Concurrent groups.
    Parallel(Vec<TaskGraph>),
    /// A body that is repeated.
    While {
        /// Another round follows when it holds.
        condition: Condition,
        /// A round.
        body: Box<TaskGraph>,
        /// Its iterations may be queued ahead of the decision.
        guarded: Option<GuardedIterations>,
    },
    /// A choice.
    If {
        /// What decides.
        condition: Condition,
        /// Runs when it holds.
        then: Box<TaskGraph>,
        /// Runs when it does not.
        otherwise: Box<TaskGraph>,
    },
    /// A choice among numbered cases.
    Switch {
        /// The integer that decides.
        selector: Condition,
        /// Runs for the value that is its position.
        cases: Vec<TaskGraph>,
        /// Runs for any other value.
        otherwise: Box<TaskGraph>,
    },
    /// A task.
    Launch {
        /// Which.
        task: TaskId,
        /// Its iterations.
        count: LaunchCount,
    },
    /// A place to stop and to resume.
    Checkpoint {
        /// The user's number of it.
        label: i64,
        /// The launch may end after the body when it holds.
        yields_on: Condition,
        /// The part that runs again when a launch resumes here.
        body: Box<TaskGraph>,
    },
}

impl Default for TaskGraph {
    fn default() -> TaskGraph {
        TaskGraph::Sequence(Vec::new())
    }
}

impl TaskGraph {
    /// The parts directly in this one, in order.
    pub fn parts(&self) -> Vec<&TaskGraph> {
        match self {
            TaskGraph::Sequence(parts) | TaskGraph::Parallel(parts) => parts.iter().collect(),
            TaskGraph::While { body, .. } | TaskGraph::Checkpoint { body, .. } => vec![body],
            TaskGraph::If { then, otherwise, .. } => vec![then, otherwise],
            TaskGraph::Switch { cases, otherwise, .. } => cases.iter().chain([&**otherwise]).collect(),
            TaskGraph::Launch { .. } => Vec::new(),
        }
    }

    /// Calls `f` on this part and on all within it, outer before inner, in order.
    pub fn visit<'a>(&'a self, f: &mut impl FnMut(&'a TaskGraph)) {
        f(self);
        self.parts().into_iter().for_each(|part| part.visit(f));
    }

    /// Sets the count of all launches of a task, in this part and its children.
    pub fn set_count(&mut self, of: TaskId, to: LaunchCount) {
        match self {
            TaskGraph::Sequence(parts) | TaskGraph::Parallel(parts) => {
                parts.iter_mut().for_each(|part| part.set_count(of, to));
            }
            TaskGraph::While { body, .. } | TaskGraph::Checkpoint { body, .. } => body.set_count(of, to),
            TaskGraph::If { then, otherwise, .. } => {
                then.set_count(of, to);
                otherwise.set_count(of, to);
            }
            TaskGraph::Switch { cases, otherwise, .. } => {
                cases.iter_mut().for_each(|part| part.set_count(of, to));
                otherwise.set_count(of, to);
            }
            TaskGraph::Launch { task, count } if *task == of => *count = to,
            TaskGraph::Launch { .. } => {}
        }
    }

    /// The tasks in guarded iterations.
    pub fn guarded_tasks(&self) -> BTreeSet<TaskId> {
        let mut tasks = BTreeSet::new();
        self.visit(&mut |part| {
            if let TaskGraph::While { guarded: Some(_), body, .. } = part {
                body.visit(&mut |part| {
                    if let TaskGraph::Launch { task, .. } = part {
                        tasks.insert(*task);
                    }
                });
            }
        });
        tasks
    }

    /// The condition that this part itself reads.
    pub fn condition(&self) -> Option<Condition> {
        match self {
            TaskGraph::While { condition, .. } | TaskGraph::If { condition, .. } => Some(*condition),
            TaskGraph::Switch { selector, .. } => Some(*selector),
            TaskGraph::Checkpoint { yields_on, .. } => Some(*yields_on),
            TaskGraph::Sequence(_) | TaskGraph::Parallel(_) | TaskGraph::Launch { .. } => None,
        }
    }

    /// The buffers that conditions read.
    pub fn condition_buffers(&self) -> BTreeSet<BufferId> {
        let mut buffers = BTreeSet::new();
        self.visit(&mut |part| {
            if let Some(Condition::Buffer(b)) = part.condition() {
                buffers.insert(b);
            }
        });
        buffers
    }
}
