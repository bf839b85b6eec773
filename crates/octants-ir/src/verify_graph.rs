//! The verifier's rules about task graphs (40 to 45), and about loops of a kernel that become parts of a graph.

use std::collections::BTreeSet;

use crate::body::Body;
use crate::kernel::Program;
use crate::launch_count::launch_count;
use crate::op::BlockId;
use crate::rules::{Rule, Violation};
use crate::task_blocks::{jumps, round_end, task_blocks, task_branches};
use crate::task_graph::{Condition, GuardedIterations, TaskGraph};
use crate::types::{Scalar, Type};

/// Checks the graph of a program whose tasks are valid.
pub(crate) fn verify_graph(program: &Program, out: &mut Vec<Violation>) {
    let mut v = GraphVerifier { program, launched: BTreeSet::new(), labels: BTreeSet::new(), out };
    v.part(&program.graph, true);
    for (i, task) in program.tasks.iter().enumerate() {
        if !v.launched.contains(&i) {
            v.report(Rule::TasksLaunched, format!("task {} is not launched", task.name));
        }
    }
}

/// Checks that parallel loops of a valid kernel are at the root, in a loop that only its last instruction leaves, or in
/// a branch that nothing leaves.
pub(crate) fn verify_rounds(body: &Body, place: &str, out: &mut Vec<Violation>) {
    let branches = task_branches(body);
    let is_sound = |b: &BlockId| if branches.contains(b) { !jumps(body, *b) } else { round_end(body, *b).is_some() };
    for b in task_blocks(body).into_iter().skip(1).filter(|b| !is_sound(b)) {
        let detail = format!("{b} holds a parallel loop");
        out.push(Violation { rule: Rule::ParallelAtRoot, place: place.to_string(), detail });
    }
}

struct GraphVerifier<'a> {
    program: &'a Program,
    launched: BTreeSet<usize>,
    labels: BTreeSet<i64>,
    out: &'a mut Vec<Violation>,
}

impl GraphVerifier<'_> {
    fn report(&mut self, rule: Rule, detail: String) {
        self.out.push(Violation { rule, place: "graph".into(), detail });
    }

    /// Checks a part; `may_stop` if checkpoints are allowed.
    fn part(&mut self, part: &TaskGraph, may_stop: bool) {
        if let Some(condition) = part.condition() {
            self.condition(condition);
        }
        match part {
            TaskGraph::Sequence(_) | TaskGraph::If { .. } => {}
            TaskGraph::Switch { cases, .. } => {
                if cases.len() < 2 {
                    self.report(Rule::GraphCondition, "a `switch` with fewer than two cases".into());
                }
            }
            TaskGraph::Parallel(groups) => {
                if groups.is_empty() {
                    self.report(Rule::GroupsOfLaunches, "a `parallel` without a group".into());
                }
                for group in groups {
                    self.launches_some(Rule::GroupsOfLaunches, "a group", group);
                }
            }
            TaskGraph::While { body, guarded, .. } => {
                self.launches_some(Rule::RoundsLaunch, "a `while`", body);
                if let Some(guarded) = guarded {
                    self.guarded(*guarded, body);
                }
            }
            TaskGraph::Checkpoint { label, .. } => {
                if !self.labels.insert(*label) || !may_stop {
                    self.report(Rule::CheckpointsApart, format!("checkpoint {label}"));
                }
            }
            TaskGraph::Launch { task, count } => match self.program.tasks.get(task.index()) {
                None => self.report(Rule::TasksLaunched, format!("task {} does not exist", task.0)),
                Some(of) => {
                    self.launched.insert(task.index());
                    let told = launch_count(of);
                    if *count != told {
                        self.report(Rule::CountOfTask, format!("{count:?} for {}, which has {told:?}", of.name));
                    }
                }
            },
        }
        let may_stop = may_stop && !matches!(part, TaskGraph::Checkpoint { .. } | TaskGraph::Parallel(_));
        part.parts().into_iter().for_each(|p| self.part(p, may_stop));
    }

    fn condition(&mut self, condition: Condition) {
        let is_integer = match self.program.condition_type(condition) {
            Some(Type::Scalar(s)) => !s.is_float(),
            _ => false,
        };
        if !is_integer {
            self.report(Rule::GraphCondition, format!("{condition:?}"));
        }
    }

    /// Iterations that may be queued ahead decide nothing, and set their guard.
    fn guarded(&mut self, guarded: GuardedIterations, body: &TaskGraph) {
        let GuardedIterations { per_decision, guard } = guarded;
        let is_word = self.program.frame.get(guard.index()) == Some(&Type::Scalar(Scalar::I32));
        let (mut decides, mut last) = (false, None);
        body.visit(&mut |part| {
            decides |= part.condition().is_some();
            if let TaskGraph::Launch { task, .. } = part {
                last = self.program.tasks.get(task.index());
            }
        });
        let sets_guard = last.is_some_and(|task| task.access.frame_writes.contains(&guard));
        if per_decision < 2 || !is_word || decides || !sets_guard {
            self.report(Rule::GuardedIterations, format!("`guarded {per_decision} {guard}`"));
        }
    }

    fn launches_some(&mut self, rule: Rule, what: &str, body: &TaskGraph) {
        let mut any = false;
        body.visit(&mut |p| any |= matches!(p, TaskGraph::Launch { .. }));
        if !any {
            self.report(rule, format!("{what} without a launch"));
        }
    }
}
