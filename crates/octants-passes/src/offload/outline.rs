//! The outline of a kernel: its statements in program order, the segments that they form, and the repeated ones.
//! Builds the program's graph from the segments that became tasks.

use std::collections::BTreeSet;

use super::choices::{Chain, chain_of};
use octants_ir::{
    BinaryOp, BlockId, Body, Condition, Const, Effect, FrameSlot, LoopGroup, Op, RoundEnd, Task, TaskGraph, TaskId,
    Type, UnaryOp, ValueId, round_end, section_of, task_blocks,
};

/// The code that runs, in order.
#[derive(Debug)]
pub(super) enum Outline {
    /// The segment of this number.
    Segment(usize),
    /// A loop with parallel loops in it.
    Rounds {
        /// The body of an iteration.
        body: Vec<Outline>,
        /// The condition for another iteration.
        condition: RoundCondition,
    },
    /// A checkpoint.
    Checkpoint {
        label: i64,
        /// What is in it.
        body: Vec<Outline>,
        /// The condition for ending the launch after it.
        condition: RoundCondition,
    },
    /// A section that holds more than tasks in order.
    Section {
        group: LoopGroup,
        /// What is in it.
        body: Vec<Outline>,
    },
    /// A branch with two parts, at least one of which needs more than one task.
    Choice {
        /// The contents of its branches.
        branches: [Vec<Outline>; 2],
        /// The condition.
        condition: RoundCondition,
    },
    /// A choice among numbered cases.
    Switch {
        /// The number and contents of each case, in the order of the text.
        cases: Vec<(usize, Vec<Outline>)>,
        /// The contents of the case for all other values.
        otherwise: Vec<Outline>,
        /// The integer.
        selector: RoundCondition,
    },
}

/// The condition of a loop, of the end of a launch, or of a branch; the selector of a switch.
#[derive(Debug, Clone, Copy)]
pub(super) enum RoundCondition {
    /// Memory that exists anyway.
    Memory(Condition),
    /// A value of the iteration, which must be kept in the frame.
    Value(ValueId),
}

impl RoundCondition {
    fn place(self, slots: &dyn Fn(ValueId) -> FrameSlot) -> Condition {
        match self {
            RoundCondition::Memory(memory) => memory,
            RoundCondition::Value(v) => Condition::Frame(slots(v)),
        }
    }
}

/// A statement of the outline, with the information that its segment needs.
pub(super) struct Statement {
    pub(super) value: ValueId,
    /// The group that it belongs to.
    pub(super) group: Option<LoopGroup>,
    /// It is in a loop whose rounds are tasks.
    pub(super) repeats: bool,
    /// The branches around it that hold tasks, outer before inner.
    pub(super) branches: Vec<BlockId>,
    /// It cannot be in the segment of the statement before it.
    pub(super) begins: bool,
}

/// Normalizes all loops that contain parallel loops to continue when their condition holds, so that the value itself is
/// the condition.
pub(super) fn normalize_rounds(body: &mut Body) {
    for block in task_blocks(body).into_iter().skip(1) {
        let Some(RoundEnd::Repeats(c, false)) = round_end(body, block) else { continue };
        let Some(&last) = body.block(block).last() else { continue };
        let span = body.inst(last).span;
        let not = body.add_inst(Op::Unary(UnaryOp::LogicNot, c), body.ty(c).clone(), span);
        if let Op::If(c, yes, no) = &mut body.inst_mut(last).op {
            *c = not;
            std::mem::swap(yes, no);
        }
        let end = body.block(block).len() - 1;
        body.blocks[block.index()].insert(end, not);
    }
}

/// The statements of a kernel, in the order of the text, and its outline in terms of their segments, which
/// `add_statement` makes: it receives each statement and returns its segment.
pub(super) fn outline(body: &Body, add_statement: &mut impl FnMut(Statement) -> usize) -> Vec<Outline> {
    let blocks = task_blocks(body);
    let mut walk = Walk { body, blocks, begins: true, branches: Vec::new(), add_statement };
    let mut out = Vec::new();
    walk.block(body.root, false, &mut out);
    out
}

struct Walk<'a, F> {
    body: &'a Body,
    /// Blocks whose statements are tasks.
    blocks: Vec<BlockId>,
    begins: bool,
    /// Branches around the current position of the walk.
    branches: Vec<BlockId>,
    add_statement: &'a mut F,
}

impl<F: FnMut(Statement) -> usize> Walk<'_, F> {
    fn block(&mut self, b: BlockId, repeats: bool, out: &mut Vec<Outline>) {
        let mut statements = self.body.block(b);
        let end = (b != self.body.root).then(|| round_end(self.body, b)).flatten();
        if let (Some(_), Some((_, before))) = (end, statements.split_last()) {
            statements = before;
        }
        if checkpoint_of(self.body, b).is_some() || section_of(self.body, b).is_some() {
            statements = statements.split_last().map_or(&[][..], |(_, before)| before);
        }
        for (&v, group) in statements.iter().zip(statement_groups(self.body, statements)) {
            match self.body.inst(v).op {
                Op::Loop(inner) if self.blocks.contains(&inner) => self.rounds(inner, repeats, out),
                Op::If(c, yes, no) if self.blocks.contains(&yes) => {
                    let before = statements.iter().take_while(|u| **u != v).count();
                    if let Some(chain) = chain_of(self.body, &statements[..before], v) {
                        out.push(self.switch(chain, &statements[..before], repeats));
                        continue;
                    }
                    let condition = self.condition(&statements[..before], c);
                    let branches = [yes, no].map(|branch| self.branch(branch, repeats));
                    out.push(Outline::Choice { branches, condition });
                }
                _ => self.statement(v, group, repeats, out),
            }
        }
    }

    fn statement(&mut self, value: ValueId, group: Option<LoopGroup>, repeats: bool, out: &mut Vec<Outline>) {
        let begins = std::mem::replace(&mut self.begins, false);
        let branches = self.branches.clone();
        let segment = (self.add_statement)(Statement { value, group, repeats, branches, begins });
        if !matches!(out.last(), Some(Outline::Segment(last)) if *last == segment) {
            out.push(Outline::Segment(segment));
        }
    }

    fn switch(&mut self, chain: Chain, before: &[ValueId], repeats: bool) -> Outline {
        let selector = match self.body.inst(chain.selector).op {
            Op::Load(_) => self.condition(before, chain.selector),
            _ => RoundCondition::Value(chain.selector),
        };
        let depth = self.branches.len();
        let mut cases = Vec::with_capacity(chain.cases.len());
        for ((number, case), other) in chain.cases.into_iter().zip(&chain.others) {
            cases.push((number, self.branch(case, repeats)));
            self.branches.push(*other);
        }
        let last = self.branches.pop();
        let otherwise = last.map_or_else(Vec::new, |other| self.branch(other, repeats));
        self.branches.truncate(depth);
        Outline::Switch { cases, otherwise, selector }
    }

    fn branch(&mut self, branch: BlockId, repeats: bool) -> Vec<Outline> {
        let mut out = Vec::new();
        self.begins = true;
        self.branches.push(branch);
        self.block(branch, repeats, &mut out);
        self.branches.pop();
        self.begins = true;
        out
    }

    fn rounds(&mut self, inner: BlockId, repeats: bool, out: &mut Vec<Outline>) {
        match round_end(self.body, inner) {
            Some(RoundEnd::Repeats(c, _)) => {
                self.begins = true;
                let mut body = Vec::new();
                self.block(inner, true, &mut body);
                self.begins = true;
                out.push(Outline::Rounds { body, condition: self.condition(self.before_end(inner), c) });
            }
            Some(RoundEnd::Leaves) => match (checkpoint_of(self.body, inner), section_of(self.body, inner)) {
                (None, None) => self.block(inner, repeats, out),
                (checkpoint, section) => {
                    self.begins = true;
                    let mut body = Vec::new();
                    self.block(inner, repeats, &mut body);
                    self.begins = true;
                    out.push(match (checkpoint, section) {
                        (_, Some(group)) => Outline::Section { group, body },
                        (Some((label, c)), _) => {
                            Outline::Checkpoint { label, body, condition: self.condition(self.before_end(inner), c) }
                        }
                        (None, None) => panic!("compiler bug: {inner} is neither a checkpoint nor a section"),
                    });
                }
            },
            None => panic!("compiler bug: {inner} has an exit before its end\n{}", self.body),
        }
    }

    /// The statements of a loop's block before those that are its end: one, and of a checkpoint two.
    fn before_end(&self, block: BlockId) -> &[ValueId] {
        let end = 1 + usize::from(checkpoint_of(self.body, block).is_some());
        let all = self.body.block(block);
        &all[..all.len().saturating_sub(end)]
    }

    /// The kind of a condition: memory, if the preceding statements end with a read of it.
    fn condition(&self, statements: &[ValueId], c: ValueId) -> RoundCondition {
        let body = self.body;
        let is_zero = |v: ValueId| matches!(body.as_const(v), Some(Const::Int(0)));
        let read = match body.inst(c).op {
            Op::Binary(BinaryOp::Ne, x, zero) if is_zero(zero) => x,
            Op::Cast(x) => x,
            _ => c,
        };
        let Op::Load(address) = body.inst(read).op else { return RoundCondition::Value(c) };
        let is_integer = matches!(body.ty(read), Type::Scalar(s) if !s.is_float());
        let (Op::BufferAddr(b, indices), true) = (&body.inst(address).op, is_integer) else {
            return RoundCondition::Value(c);
        };
        let changes = |v: &ValueId| !matches!(body.inst(*v).op.effect(), Effect::Pure | Effect::Read(_));
        let is_last = |at: usize| !statements[at..].iter().any(changes);
        if indices.is_empty() && statements.iter().position(|v| *v == read).is_some_and(is_last) {
            return RoundCondition::Memory(Condition::Buffer(*b));
        }
        RoundCondition::Value(c)
    }
}

/// Label and value of the checkpoint that a block is.
fn checkpoint_of(body: &Body, block: BlockId) -> Option<(i64, ValueId)> {
    match body.block(block) {
        [.., end, _] => match body.inst(*end).op {
            Op::Checkpoint(label, value) => Some((label, value)),
            _ => None,
        },
        _ => None,
    }
}

/// The conditions of loops that must be kept in the frame.
pub(super) fn kept_conditions(outline: &[Outline]) -> Vec<ValueId> {
    let mut kept = Vec::new();
    for part in outline {
        match part {
            Outline::Segment(_) => {}
            Outline::Rounds { body, condition } | Outline::Checkpoint { body, condition, .. } => {
                kept.extend(kept_conditions(body));
                if let RoundCondition::Value(v) = condition {
                    kept.push(*v);
                }
            }
            Outline::Section { body, .. } => kept.extend(kept_conditions(body)),
            Outline::Choice { branches, condition } => {
                branches.iter().for_each(|branch| kept.extend(kept_conditions(branch)));
                if let RoundCondition::Value(v) = condition {
                    kept.push(*v);
                }
            }
            Outline::Switch { cases, otherwise, selector } => {
                cases.iter().for_each(|(_, case)| kept.extend(kept_conditions(case)));
                kept.extend(kept_conditions(otherwise));
                if let RoundCondition::Value(v) = selector {
                    kept.push(*v);
                }
            }
        }
    }
    kept
}

/// Makes room for a segment in front of all others.
pub(super) fn move_segments(outline: &mut [Outline]) {
    for part in outline {
        match part {
            Outline::Segment(number) => *number += 1,
            Outline::Rounds { body, .. } | Outline::Checkpoint { body, .. } | Outline::Section { body, .. } => {
                move_segments(body);
            }
            Outline::Choice { branches, .. } => branches.iter_mut().for_each(|branch| move_segments(branch)),
            Outline::Switch { cases, otherwise, .. } => {
                cases.iter_mut().for_each(|(_, case)| move_segments(case));
                move_segments(otherwise);
            }
        }
    }
}

/// The task graph of a program. `tasks` pairs each task with its group; `of_segment` maps segments to tasks.
pub(super) fn build_graph(
    outline: &[Outline],
    (tasks, groups): (&[Task], &[Option<LoopGroup>]),
    of_segment: &[Option<TaskId>],
    slots: &dyn Fn(ValueId) -> FrameSlot,
) -> TaskGraph {
    let mut parts: Vec<(Option<LoopGroup>, TaskGraph)> = Vec::new();
    for part in outline {
        match part {
            Outline::Segment(segment) => {
                let Some(task) = of_segment[*segment] else { continue };
                parts.push((groups[task.index()], TaskGraph::launch(tasks, task)));
            }
            Outline::Rounds { body, condition } => {
                let condition = condition.place(slots);
                let body = Box::new(build_graph(body, (tasks, groups), of_segment, slots));
                parts.push((None, TaskGraph::While { condition, body, guarded: None }));
            }
            Outline::Checkpoint { label, body, condition } => {
                let (label, yields_on) = (*label, condition.place(slots));
                let body = Box::new(build_graph(body, (tasks, groups), of_segment, slots));
                parts.push((None, TaskGraph::Checkpoint { label, yields_on, body }));
            }
            Outline::Choice { branches, condition } => {
                let condition = condition.place(slots);
                let [then, otherwise] = branches.each_ref().map(|b| build_graph(b, (tasks, groups), of_segment, slots));
                let (then, otherwise) = (Box::new(then), Box::new(otherwise));
                parts.push((None, TaskGraph::If { condition, then, otherwise }));
            }
            Outline::Switch { cases, otherwise, selector } => {
                let build = |part: &[Outline]| build_graph(part, (tasks, groups), of_segment, slots);
                let mut cases: Vec<_> = cases.iter().map(|(number, case)| (*number, build(case))).collect();
                cases.sort_by_key(|(number, _)| *number);
                let cases = cases.into_iter().map(|(_, case)| case).collect();
                let (selector, otherwise) = (selector.place(slots), Box::new(build(otherwise)));
                parts.push((None, TaskGraph::Switch { selector, cases, otherwise }));
            }
            Outline::Section { group, body } => {
                let body = build_graph(body, (tasks, groups), of_segment, slots);
                if body != TaskGraph::default() {
                    parts.push((Some(*group), body));
                }
            }
        }
    }
    join_dependent_groups(tasks, &mut parts);
    let mut out = Vec::new();
    for run in parts.chunk_by(|a, b| LoopGroup::are_neighbors(a.0, b.0)) {
        if run[0].0.is_none() {
            out.extend(run.iter().map(|(_, part)| part.clone()));
            continue;
        }
        let group = |same: &[(Option<LoopGroup>, TaskGraph)]| same.iter().map(|(_, part)| part.clone()).collect();
        let groups = run.chunk_by(|a, b| a.0 == b.0).map(|same| TaskGraph::Sequence(group(same)));
        out.push(TaskGraph::Parallel(groups.collect()));
    }
    TaskGraph::Sequence(out)
}

/// Groups cannot run concurrently if one needs a frame slot of the other: they become one.
fn join_dependent_groups(tasks: &[Task], parts: &mut [(Option<LoopGroup>, TaskGraph)]) {
    let uses: Vec<FrameUses> = parts.iter().map(|(_, part)| FrameUses::of(tasks, part)).collect();
    for later in 0..parts.len() {
        let Some(group) = parts[later].0 else { continue };
        let needs = |before: usize| {
            let (of, a, b) = (parts[before].0, &uses[before], &uses[later]);
            of.is_some_and(|g| g != group && g.region == group.region) && a.conflict_with(b)
        };
        let Some(earlier) = (0..later).find(|before| needs(*before)) else { continue };
        // Those between the two as well, so that a group stays in one piece.
        let into = parts[earlier].0;
        let last = parts.iter().rposition(|(g, _)| *g == Some(group)).unwrap_or(later);
        parts[earlier..=last].iter_mut().filter(|(g, _)| g.is_some()).for_each(|(g, _)| *g = into);
    }
}

/// The slots of the frame that a part of a graph uses.
#[derive(Default)]
struct FrameUses {
    reads: BTreeSet<FrameSlot>,
    writes: BTreeSet<FrameSlot>,
}

impl FrameUses {
    fn of(tasks: &[Task], part: &TaskGraph) -> FrameUses {
        let mut uses = FrameUses::default();
        part.visit(&mut |part| {
            if let TaskGraph::Launch { task, .. } = part {
                let access = &tasks[task.index()].access;
                uses.reads.extend(&access.frame_reads);
                uses.writes.extend(&access.frame_writes);
            }
            if let Some(Condition::Frame(slot)) = part.condition() {
                uses.reads.insert(slot);
            }
        });
        uses
    }

    fn conflict_with(&self, other: &FrameUses) -> bool {
        !self.writes.is_disjoint(&other.reads)
            || !self.writes.is_disjoint(&other.writes)
            || !self.reads.is_disjoint(&other.writes)
    }
}

/// The group of each statement of a block. A statement that is not a loop of a group belongs to the next group, which
/// may need its results, if the previous group is in the same region. A root with `stream_parallel` consists only of
/// groups, so statements after the last group belong to it.
pub(crate) fn statement_groups(body: &Body, order: &[ValueId]) -> Vec<Option<LoopGroup>> {
    let own = |v: &ValueId| match &body.inst(*v).op {
        Op::For(l) => l.parallel.as_ref().and_then(|c| c.group),
        Op::Loop(inner) => section_of(body, *inner),
        _ => None,
    };
    let mut groups: Vec<Option<LoopGroup>> = order.iter().map(own).collect();
    let (mut before, mut from) = (None, 0);
    for i in 0..groups.len() {
        let Some(group) = groups[i] else { continue };
        if LoopGroup::are_neighbors(before, Some(group)) {
            groups[from..i].fill(Some(group));
        }
        (before, from) = (Some(group), i + 1);
    }
    if before.is_some_and(|group| group.region.is_none()) {
        groups[from..].fill(before);
    }
    groups
}
