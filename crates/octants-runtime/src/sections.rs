//! [`Section`]: the task graph of a kernel in the form that the launcher walks.
//!
//! A kernel whose tasks all run in order has no sections, so its launch walks nothing. Adjacent parts that run in
//! order form one section. On a device that executes immediately, groups count as such parts too.

use std::cell::Cell;
use std::ops::Range;

use octants_artifact::{Artifact, Condition, DeviceContext, GraphPart, GuardedIterations};

use crate::error::{ErrorKind, Result};

/// A loop whose condition is in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataDependentLoop {
    /// Its number in the kernel.
    pub number: u32,
    /// It runs again if this is not zero.
    pub condition: Condition,
    /// Its iterations may be queued ahead of the decision.
    pub guarded: Option<GuardedIterations>,
}

/// A stretch of a kernel's launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Section {
    /// Tasks in sequence.
    InOrder(Range<usize>),
    /// At least two groups of sections, independent of one another.
    Groups(Box<[Box<[Section]>]>),
    /// Sections that run at least once, and repeat while a condition holds.
    While(DataDependentLoop, Box<[Section]>),
    /// Sections for a condition that holds, and for one that does not.
    If(Condition, [Box<[Section]>; 2]),
    /// Cases, and last the sections for an integer that is not the position of a case.
    Switch(Condition, Box<[Box<[Section]>]>),
    /// Sections after which a launch ends if a condition holds, and at which another launch may resume, by label.
    Checkpoint(i64, Condition, Box<[Section]>),
}

impl Section {
    /// The lists of sections directly in this one.
    pub fn parts(&self) -> &[Box<[Section]>] {
        match self {
            Section::InOrder(_) => &[],
            Section::Groups(parts) | Section::Switch(_, parts) => parts,
            Section::While(_, body) | Section::Checkpoint(_, _, body) => std::slice::from_ref(body),
            Section::If(_, both) => both,
        }
    }

    /// The memory that this section itself reads.
    fn reads_condition(&self) -> bool {
        !matches!(self, Section::InOrder(_) | Section::Groups(_))
    }

    /// It, or a section within it, is the checkpoint of this label.
    pub(crate) fn holds_checkpoint(&self, of: i64) -> bool {
        let within = |s: &Section| s.holds_checkpoint(of);
        matches!(self, Section::Checkpoint(label, ..) if *label == of) || self.parts().iter().flatten().any(within)
    }
}

/// The sections of a kernel; empty if its tasks all run once and in order. `forks`: groups may run concurrently.
pub(crate) fn sections(artifact: &Artifact, forks: bool) -> Result<Box<[Section]>> {
    let tasks = artifact.tasks.len();
    if artifact.graph.is_empty() {
        return Ok(Box::default());
    }
    let making = Making { artifact, forks, loops: Cell::new(0) };
    let sections = making.sections(&artifact.graph)?;
    Ok(if *sections == [Section::InOrder(0..tasks)] { Box::default() } else { sections })
}

/// Some section reads a condition.
pub(crate) fn decides(sections: &[Section]) -> bool {
    sections.iter().any(|s| s.reads_condition() || s.parts().iter().any(|part| decides(part)))
}

/// How many conditions may be waited for at a time.
pub(crate) fn conditions_at_once(sections: &[Section]) -> u64 {
    let of = |s: &Section| {
        let within = s.parts().iter().map(|part| conditions_at_once(part));
        match s {
            Section::Groups(_) => within.sum(),
            // One iteration is queued ahead.
            Section::While(DataDependentLoop { guarded: Some(_), .. }, _) => 2,
            _ => within.max().unwrap_or(0).max(u64::from(s.reads_condition())),
        }
    };
    sections.iter().map(of).max().unwrap_or(0)
}

/// Number of loops in sections.
pub fn loops_of(sections: &[Section]) -> u64 {
    let of = |s: &Section| {
        u64::from(matches!(s, Section::While(..))) + s.parts().iter().map(|part| loops_of(part)).sum::<u64>()
    };
    sections.iter().map(of).sum()
}

/// The labels of the checkpoints in sections, in the order of the text.
pub fn checkpoint_labels(sections: &[Section]) -> Vec<i64> {
    let mut labels = Vec::new();
    for section in sections {
        if let Section::Checkpoint(label, ..) = section {
            labels.push(*label);
        }
        section.parts().iter().for_each(|part| labels.extend(checkpoint_labels(part)));
    }
    labels
}

/// The number of a launch for a task that draws random numbers, from the number of the launch and those of the rounds
/// that the loop around the task has ended in this launch.
pub fn round_number(launch: u64, rounds: u64) -> u64 {
    launch.wrapping_add(rounds << DeviceContext::LAUNCH_BITS)
}

/// Some task that may run again in a launch draws random numbers, other ones in each round.
pub(crate) fn draws_again(artifact: &Artifact, sections: &[Section]) -> bool {
    fn any(artifact: &Artifact, sections: &[Section], again: bool) -> bool {
        let draws = |tasks: &Range<usize>| again && artifact.tasks[tasks.clone()].iter().any(|t| t.draws_random);
        sections.iter().any(|section| match section {
            Section::InOrder(tasks) => draws(tasks),
            Section::While(_, body) => any(artifact, body, true),
            _ => section.parts().iter().any(|part| any(artifact, part, again)),
        })
    }
    any(artifact, sections, false)
}

struct Making<'a> {
    artifact: &'a Artifact,
    forks: bool,
    /// Loops so far.
    loops: Cell<u32>,
}

impl Making<'_> {
    fn sections(&self, parts: &[GraphPart]) -> Result<Box<[Section]>> {
        let mut out = Vec::new();
        self.add(parts, &mut out)?;
        Ok(out.into_boxed_slice())
    }

    fn add(&self, parts: &[GraphPart], out: &mut Vec<Section>) -> Result<()> {
        for part in parts {
            match part {
                GraphPart::Tasks(first, end) => in_order(self.tasks((*first, *end))?, out),
                GraphPart::Parallel(groups) => {
                    if self.forks && groups.len() > 1 {
                        let groups = groups.iter().map(|g| self.sections(g)).collect::<Result<_>>()?;
                        out.push(Section::Groups(groups));
                    } else {
                        groups.iter().try_for_each(|g| self.add(g, out))?;
                    }
                }
                GraphPart::While { condition, body, guarded } => {
                    let number = self.loops.replace(self.loops.get() + 1);
                    let what = DataDependentLoop { number, condition: self.condition(condition)?, guarded: *guarded };
                    out.push(Section::While(what, self.sections(body)?));
                }
                GraphPart::If { condition, then, otherwise } => {
                    let both = [self.sections(then)?, self.sections(otherwise)?];
                    out.push(Section::If(self.condition(condition)?, both));
                }
                GraphPart::Switch { selector, cases, otherwise } => {
                    let parts =
                        cases.iter().chain([otherwise]).map(|part| self.sections(part)).collect::<Result<_>>()?;
                    out.push(Section::Switch(self.condition(selector)?, parts));
                }
                GraphPart::Checkpoint { label, yields_on, body } => {
                    out.push(Section::Checkpoint(*label, self.condition(yields_on)?, self.sections(body)?));
                }
            }
        }
        Ok(())
    }

    fn tasks(&self, (first, end): (u32, u32)) -> Result<Range<usize>> {
        let range = first as usize..end as usize;
        if range.start > range.end || range.end > self.artifact.tasks.len() {
            return Err(ErrorKind::CompilerBug(format!("a graph launches tasks {first} to {end}")).into());
        }
        Ok(range)
    }

    fn condition(&self, of: &Condition) -> Result<Condition> {
        let exists = match of.slot {
            Some(slot) => slot < self.artifact.arg_slots,
            None => of.offset + u64::from(of.kind.bytes()) <= self.artifact.frame_bytes,
        };
        if exists { Ok(*of) } else { Err(ErrorKind::CompilerBug(format!("a graph reads {of:?}")).into()) }
    }
}

/// Adds tasks in order, to the previous section if they follow it directly.
fn in_order(tasks: Range<usize>, out: &mut Vec<Section>) {
    match out.last_mut() {
        Some(Section::InOrder(before)) if before.end == tasks.start => before.end = tasks.end,
        _ => out.push(Section::InOrder(tasks)),
    }
}

#[cfg(test)]
mod tests {
    use octants_artifact::{ScalarKind, TaskMeta, graph_of_groups};

    use super::*;

    fn artifact(tasks: usize, graph: Vec<GraphPart>) -> Artifact {
        Artifact { tasks: vec![TaskMeta::default(); tasks], arg_slots: 1, frame_bytes: 8, graph, ..Artifact::default() }
    }

    const FLAG: Condition = Condition { slot: Some(0), offset: 4, kind: ScalarKind::I32 };

    #[test]
    fn tasks_in_order_have_no_sections() {
        let parts = vec![GraphPart::Tasks(0, 1), GraphPart::Tasks(1, 3)];
        assert_eq!(*sections(&artifact(3, parts), true).unwrap(), []);
        assert_eq!(*sections(&artifact(3, Vec::new()), true).unwrap(), []);
        let groups = graph_of_groups(&[None, Some(0), Some(1)]);
        assert_eq!(*sections(&artifact(3, groups.clone()), false).unwrap(), []);
        let group = |tasks| [Section::InOrder(tasks)].into();
        let forked = [Section::InOrder(0..1), Section::Groups([group(1..2), group(2..3)].into())];
        assert_eq!(*sections(&artifact(3, groups), true).unwrap(), forked);
    }

    #[test]
    fn a_checkpoint_is_found_by_its_label_at_any_depth() {
        let checkpoint =
            |label, n| GraphPart::Checkpoint { label, yields_on: FLAG, body: vec![GraphPart::Tasks(n, n + 1)] };
        let body = vec![checkpoint(5, 2)];
        let parts =
            vec![GraphPart::Tasks(0, 1), checkpoint(3, 1), GraphPart::While { condition: FLAG, body, guarded: None }];
        let found = sections(&artifact(3, parts), true).unwrap();
        let of = |label, n| Section::Checkpoint(label, FLAG, [Section::InOrder(n..n + 1)].into());
        assert_eq!(
            *found,
            [
                Section::InOrder(0..1),
                of(3, 1),
                Section::While(DataDependentLoop { number: 0, condition: FLAG, guarded: None }, [of(5, 2)].into())
            ]
        );
        assert!(decides(&found));
        let holding = |label| found.iter().position(|s| s.holds_checkpoint(label));
        assert_eq!([3, 5, 0].map(holding), [Some(1), Some(2), None]);
    }

    #[test]
    fn each_group_contains_sections_with_their_own_conditions() {
        let rounds = |n| GraphPart::While { condition: FLAG, body: vec![GraphPart::Tasks(n, n + 1)], guarded: None };
        let inner = GraphPart::Parallel(vec![vec![rounds(1)], vec![rounds(2)], vec![GraphPart::Tasks(3, 4)]]);
        let outer = GraphPart::While {
            condition: FLAG,
            body: vec![GraphPart::Parallel(vec![vec![inner], vec![rounds(4)]])],
            guarded: None,
        };
        let artifact = artifact(5, vec![rounds(0), outer]);
        let found = sections(&artifact, true).unwrap();
        assert!(decides(&found));
        assert_eq!(conditions_at_once(&found), 3);
        assert_eq!(conditions_at_once(&sections(&artifact, false).unwrap()), 1);
    }

    #[test]
    fn invalid_tasks_and_conditions_are_refused() {
        assert!(sections(&artifact(1, vec![GraphPart::Tasks(0, 2)]), true).is_err());
        for condition in [Condition { slot: Some(1), ..FLAG }, Condition { slot: None, offset: 8, ..FLAG }] {
            let graph = vec![GraphPart::While { condition, body: vec![GraphPart::Tasks(0, 1)], guarded: None }];
            assert!(sections(&artifact(1, graph), true).is_err());
        }
    }
}
