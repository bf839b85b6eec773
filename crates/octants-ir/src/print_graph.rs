//! The text of a program's task graph: one part per line, with nested parts in braces.

use crate::kernel::Task;
use crate::print::{Printer, name};
use crate::task_graph::{Condition, LaunchCount, TaskGraph};

impl Printer {
    /// The graph of a program with these tasks. An empty one has no text.
    pub(crate) fn graph(&mut self, graph: &TaskGraph, tasks: &[Task]) {
        if *graph == TaskGraph::default() {
            return;
        }
        self.open("graph");
        self.within(graph, tasks);
        self.close();
    }

    /// The parts of a sequence, or the one part that replaces it.
    fn within(&mut self, graph: &TaskGraph, tasks: &[Task]) {
        match graph {
            TaskGraph::Sequence(parts) => parts.iter().for_each(|p| self.part(p, tasks)),
            part => self.part(part, tasks),
        }
    }

    fn enclosed(&mut self, head: &str, graph: &TaskGraph, tasks: &[Task]) {
        self.open(head);
        self.within(graph, tasks);
        self.close();
    }

    fn part(&mut self, part: &TaskGraph, tasks: &[Task]) {
        match part {
            TaskGraph::Sequence(_) => self.enclosed("sequence", part, tasks),
            TaskGraph::Parallel(groups) => {
                self.open("parallel");
                groups.iter().for_each(|group| self.enclosed("group", group, tasks));
                self.close();
            }
            TaskGraph::While { condition, body, guarded } => {
                let guarded = guarded.map(|g| format!(" guarded {} {}", g.per_decision, g.guard)).unwrap_or_default();
                self.enclosed(&format!("while {}{guarded}", place(*condition)), body, tasks);
            }
            TaskGraph::If { condition, then, otherwise } => {
                self.open(&format!("if {}", place(*condition)));
                self.within(then, tasks);
                if **otherwise != TaskGraph::default() {
                    self.depth -= 1;
                    self.open("} else");
                    self.within(otherwise, tasks);
                }
                self.close();
            }
            TaskGraph::Switch { selector, cases, otherwise } => {
                self.open(&format!("switch {}", place(*selector)));
                cases.iter().for_each(|case| self.enclosed("case", case, tasks));
                if **otherwise != TaskGraph::default() {
                    self.enclosed("else", otherwise, tasks);
                }
                self.close();
            }
            TaskGraph::Launch { task, count } => {
                let task = tasks.get(task.index()).map_or_else(|| format!("task{}", task.0), |t| name(&t.name));
                self.line(&match count {
                    LaunchCount::Known(n) => format!("launch {task} count {n}"),
                    LaunchCount::Argument => format!("launch {task} count argument"),
                    LaunchCount::Memory => format!("launch {task} count memory"),
                });
            }
            TaskGraph::Checkpoint { label, yields_on, body } => {
                self.enclosed(&format!("checkpoint {label} yields {}", place(*yields_on)), body, tasks);
            }
        }
    }
}

fn place(condition: Condition) -> String {
    match condition {
        Condition::Buffer(b) => b.to_string(),
        Condition::Frame(slot) => slot.to_string(),
    }
}
