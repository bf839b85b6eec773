//! Offloading: splits a kernel into tasks, and builds the graph of their execution order.
//!
//! Each parallel loop at the root becomes a task; the serial statements between two of them form one task. A `loop`
//! that contains parallel loops becomes a `while` of the graph, and its contents become tasks as well. Its condition
//! is the buffer element that the end of the round reads, or otherwise a slot of the frame. An `if` that contains
//! parallel loops becomes an `if` of the graph, with such a condition. Consecutive ones become a `switch` (`choices`).
//!
//! A value of one task that another uses is recomputed there if that is cheap (constants, parameters, shapes,
//! arithmetic on these; addresses always), and otherwise passed in a frame slot. A local used by one task stays a
//! local: in a parallel task it is private to the iteration. A local used by several tasks becomes a frame slot,
//! unless each of them sets it before reading it. The same holds for a local that a serial task in a `while` reads
//! before it sets it: each round finds the value that the previous round left.
//!
//! Assumes a verified kernel. With `stream_parallel` groups, a serial statement before the first grouped loop is in no
//! group. A later one belongs to the group of the next grouped loop (after the last loop: to that loop's group),
//! because the whole root of such a kernel consists of grouped blocks. A serial block without a parallel loop is a
//! loop with `serialize` and a group.
//!
//! `compute_access` then fills in the access sets.

mod choices;
mod outline;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use octants_ir::{
    AccessSet, BlockId, Body, Builder, Const, Copier, CostClass, FrameSlot, Kernel, LocalId, LoopGroup, Op, Program,
    Task, TaskGraph, TaskId, TaskKind, Type, ValueId,
};

use choices::number_choices;
use outline::{Outline, Statement, build_graph, kept_conditions, move_segments, normalize_rounds, outline};

use octants_analysis::compute_access;
use octants_analysis::{first_use_sets, for_each_local, for_each_use, points_into, reads_before_set};
pub(crate) use outline::statement_groups;

/// Splits a kernel into tasks.
pub fn offload(mut kernel: Kernel) -> Program {
    normalize_rounds(&mut kernel.body);
    number_choices(&mut kernel.body);
    let mut cut = Cut::new(&kernel.body);
    cut.trace_uses();
    let frame_locals = cut.place_locals();
    cut.zero_locals(&frame_locals);
    let (mut tasks, mut groups, mut of_segment) = (Vec::new(), Vec::new(), Vec::new());
    for segment in &cut.segments {
        if segment.is_empty() {
            of_segment.push(None);
            continue;
        }
        let (kind, word) = match &segment.parallel {
            None => (TaskKind::Serial, "serial".to_string()),
            Some(config) => {
                (TaskKind::Parallel(config.clone()), config.name.clone().unwrap_or_else(|| "range".to_string()))
            }
        };
        let name = symbol(&format!("{}_{}_{word}", kernel.name, tasks.len()));
        let body = cut.task_body(segment, &frame_locals);
        of_segment.push(Some(TaskId(tasks.len() as u32)));
        tasks.push(Task { name, kind, body, access: AccessSet::default() });
        groups.push(segment.group);
    }
    let Cut { frame, slots, outline, .. } = cut;
    let Kernel { name, params, buffers, shadow_buffers: _, roots, functions, ret, body: _ } = kernel;
    let graph = TaskGraph::default();
    let mut program = Program { name, params, buffers, roots, functions, ret, frame, tasks, graph };
    compute_access(&mut program);
    program.graph = build_graph(&outline, (&program.tasks, &groups), &of_segment, &|v| slots[&v]);
    if cfg!(debug_assertions) {
        octants_ir::assert_program(&program, "offload");
    }
    program
}

/// Letters, digits and underscores.
fn symbol(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// A task to be.
#[derive(Default)]
struct Segment {
    statements: Vec<ValueId>,
    parallel: Option<octants_ir::LoopConfig>,
    group: Option<LoopGroup>,
    /// It may run more than once.
    repeats: bool,
    /// The branches around it that hold tasks, outer before inner: without them it runs.
    branches: Vec<BlockId>,
    /// Those of `statements` that are needed.
    live: HashSet<ValueId>,
    /// Values of other segments that are computed again.
    copied: BTreeSet<usize>,
    /// Values of other segments that are read from the frame.
    imported: BTreeSet<usize>,
    /// Frame locals that start as zero here.
    zeroed: Vec<LocalId>,
}

impl Segment {
    fn is_empty(&self) -> bool {
        self.live.is_empty() && self.zeroed.is_empty()
    }
}

struct Cut<'a> {
    source: &'a Body,
    segments: Vec<Segment>,
    /// Segment and position of each instruction of the root block.
    home: HashMap<ValueId, (usize, usize)>,
    /// Statements in the order of the text.
    order: Vec<ValueId>,
    outline: Vec<Outline>,
    frame: Vec<Type>,
    slots: BTreeMap<ValueId, FrameSlot>,
    cost: HashMap<ValueId, u32>,
}

/// Above this many instructions a value is passed in the frame, not computed again.
const REMATERIALIZE_LIMIT: u32 = 24;

impl<'a> Cut<'a> {
    fn new(source: &'a Body) -> Self {
        let mut cut = Cut {
            source,
            segments: Vec::new(),
            home: HashMap::new(),
            order: Vec::new(),
            outline: Vec::new(),
            frame: Vec::new(),
            slots: BTreeMap::new(),
            cost: HashMap::new(),
        };
        cut.outline = outline(source, &mut |statement| cut.add_statement(statement));
        cut
    }

    /// Adds a statement to the segment of the previous one, or to a new one; returns which.
    fn add_statement(&mut self, statement: Statement) -> usize {
        let Statement { value, group, repeats, branches, begins } = statement;
        let parallel = match &self.source.inst(value).op {
            Op::For(l) => l.parallel.clone().filter(|c| !c.serialize),
            _ => None,
        };
        let last = self.segments.last();
        let joins = !begins && parallel.is_none() && last.is_some_and(|s| s.parallel.is_none() && s.group == group);
        if !joins {
            self.segments.push(Segment { parallel, group, repeats, branches, ..Segment::default() });
        }
        let segment = self.segments.len() - 1;
        self.segments[segment].statements.push(value);
        self.home.insert(value, (segment, self.order.len()));
        self.order.push(value);
        let cost = self.cost_of(value);
        self.cost.insert(value, cost);
        segment
    }

    /// The number of instructions to recompute `v`; above the limit if that is impossible.
    fn cost_of(&self, v: ValueId) -> u32 {
        let inst = self.source.inst(v);
        if !inst.op.is_pure() || !is_cheap(inst.op.cost()) {
            return REMATERIALIZE_LIMIT + 1;
        }
        let mut cost = 1u32;
        inst.op.for_each_operand(|u| cost += self.cost.get(&u).copied().unwrap_or(REMATERIALIZE_LIMIT));
        cost.min(REMATERIALIZE_LIMIT + 1)
    }

    /// Marks the values that each segment needs, backwards from the statements with effects.
    fn trace_uses(&mut self) {
        let mut work: Vec<(usize, ValueId)> = Vec::new();
        for (i, segment) in self.segments.iter().enumerate() {
            for &v in &segment.statements {
                let inst = self.source.inst(v);
                if !inst.op.is_pure() && !matches!(inst.op, Op::Load(_) | Op::Random | Op::Clock) {
                    work.push((i, v));
                }
            }
        }
        for c in kept_conditions(&self.outline) {
            self.keep_in_frame(c);
            work.push((self.home[&c].0, c));
        }
        while let Some((segment, v)) = work.pop() {
            let Some(&(home, position)) = self.home.get(&v) else {
                continue; // Defined inside a statement that is copied whole.
            };
            if home == segment {
                if self.segments[segment].live.insert(v) {
                    for_each_use(self.source, v, &mut |u| work.push((segment, u)));
                }
            } else if matches!(self.source.ty(v), Type::Ref(_)) || self.cost[&v] <= REMATERIALIZE_LIMIT {
                if self.segments[segment].copied.insert(position) {
                    for_each_use(self.source, v, &mut |u| work.push((segment, u)));
                }
            } else if self.segments[segment].imported.insert(position) {
                self.keep_in_frame(v);
                work.push((home, v));
            }
        }
    }

    /// Gives a value a slot of the frame.
    fn keep_in_frame(&mut self, v: ValueId) {
        if !self.slots.contains_key(&v) {
            self.slots.insert(v, FrameSlot(self.frame.len() as u32));
            self.frame.push(self.source.ty(v).clone());
        }
    }

    /// The locals that several tasks use, with their frame slots.
    fn place_locals(&mut self) -> HashMap<LocalId, FrameSlot> {
        let mut users: BTreeMap<LocalId, BTreeSet<usize>> = BTreeMap::new();
        for (i, segment) in self.segments.iter().enumerate() {
            let copied = segment.copied.iter().map(|p| self.order[*p]);
            for v in segment.live.iter().copied().chain(copied) {
                for_each_local(self.source, v, &mut |l| _ = users.entry(l).or_default().insert(i));
            }
        }
        let mut slots = HashMap::new();
        for (l, tasks) in users {
            // A serial task's locals keep their values when it runs again.
            let stays = |t: &usize| self.segments[*t].repeats && self.segments[*t].parallel.is_none();
            let is_alone = tasks.len() == 1 && !tasks.iter().any(stays);
            // If every task sets it before it reads it, no value passes from one to another.
            if is_alone || !tasks.iter().any(|t| self.needs_value_from_before(*t, l)) {
                continue;
            }
            slots.insert(l, FrameSlot(self.frame.len() as u32));
            self.frame.push(self.source.locals[l.index()].ty.clone());
        }
        slots
    }

    /// Frame memory is not cleared, so a local in it is set to zero unless its first use sets it whole.
    fn zero_locals(&mut self, frame: &HashMap<LocalId, FrameSlot>) {
        let mut locals: Vec<LocalId> = frame.keys().copied().collect();
        locals.sort();
        for l in locals {
            let Some((segment, whole)) = self.first_use(l) else { continue };
            if whole {
                continue;
            }
            let runs_once = |s: &Segment| s.parallel.is_none() && !s.repeats && s.branches.is_empty();
            if runs_once(&self.segments[segment]) {
                self.segments[segment].zeroed.push(l);
                continue;
            }
            let before = (0..segment).rev().find(|i| {
                let s = &self.segments[*i];
                runs_once(s) && s.group.is_none() && !s.is_empty()
            });
            match before {
                Some(i) => self.segments[i].zeroed.push(l),
                None => {
                    self.segments.insert(0, Segment { zeroed: vec![l], ..Segment::default() });
                    self.home.values_mut().for_each(|h| h.0 += 1);
                    move_segments(&mut self.outline);
                    self.outline.insert(0, Outline::Segment(0));
                }
            }
        }
    }

    /// The segment of a local's first use in program order, and whether that is a store of the whole of it.
    fn first_use(&self, local: LocalId) -> Option<(usize, bool)> {
        (0..self.segments.len()).find_map(|i| {
            // A store in a parallel loop runs once per iteration, if there is any; a store in a branch may not have run
            // when another branch reads the value.
            let serial = self.segments[i].parallel.is_none();
            self.first_use_in(i, local).map(|whole| (i, whole && serial && self.runs_before_others(i, local)))
        })
    }

    /// All segments that use a local are in the branches that one of them is in.
    fn runs_before_others(&self, segment: usize, local: LocalId) -> bool {
        let branches = &self.segments[segment].branches;
        let stands_there = |i: usize| self.segments[i].branches.starts_with(branches);
        branches.is_empty()
            || (0..self.segments.len()).all(|i| stands_there(i) || self.first_use_in(i, local).is_none())
    }

    /// Whether a segment (an iteration of a parallel one) may read a local before it has set it.
    fn needs_value_from_before(&self, segment: usize, local: LocalId) -> bool {
        match self.statements_of(segment, local) {
            Some(statements) => reads_before_set(self.source, &statements, local),
            None => true,
        }
    }

    /// Whether the first use of a local in a segment (in an iteration of a parallel one) is a store of the whole of it.
    fn first_use_in(&self, segment: usize, local: LocalId) -> Option<bool> {
        match self.statements_of(segment, local) {
            Some(statements) => first_use_sets(self.source, &statements, local),
            None => Some(false),
        }
    }

    /// The statements of a segment, of an iteration of a parallel one; `None` if the parallel loop itself uses the
    /// local.
    fn statements_of(&self, segment: usize, local: LocalId) -> Option<Vec<ValueId>> {
        let segment = &self.segments[segment];
        let mut statements: Vec<ValueId> = segment.statements.clone();
        statements.retain(|v| segment.live.contains(v));
        if segment.parallel.is_some()
            && let [v] = statements[..]
            && let Op::For(l) = &self.source.inst(v).op
        {
            let mut used = false;
            self.source.inst(v).op.for_each_operand(|u| used |= points_into(self.source, u, local));
            return (!used).then(|| self.source.block(l.body).to_vec());
        }
        Some(statements)
    }

    fn task_body(&self, segment: &Segment, frame: &HashMap<LocalId, FrameSlot>) -> Body {
        let mut copier = Copier::into_other(self.source, frame);
        let mut b = Builder::new();
        let root = b.cursor();
        for &l in &segment.zeroed {
            let zero = push_zero(&mut b.body, root, &self.source.locals[l.index()].ty);
            push_frame_store(&mut b.body, root, frame[&l], zero);
        }
        // An address in a private local cannot be computed before the loop: it differs by iteration.
        let mut inner = Vec::new();
        for position in segment.copied.union(&segment.imported) {
            let v = self.order[*position];
            if segment.imported.contains(position) {
                let copy = push_frame_load(&mut b.body, root, self.slots[&v], self.source.ty(v));
                copier.values.insert(v, copy);
            } else if segment.parallel.is_some() && self.is_private(v, frame) {
                inner.push(v);
            } else {
                copier.inst(&mut b, v);
            }
        }
        for &v in segment.statements.iter().filter(|v| segment.live.contains(v)) {
            let copy = copier.inst_with(&mut b, v, |copier, b| {
                for &u in &inner {
                    copier.inst(b, u);
                }
            });
            if segment.parallel.is_none()
                && let Op::For(l) = &mut b.body.inst_mut(copy).op
            {
                l.parallel = None;
            }
            if let Some(slot) = self.slots.get(&v) {
                push_frame_store(&mut b.body, root, *slot, copy);
            }
        }
        b.body
    }

    fn is_private(&self, v: ValueId, frame: &HashMap<LocalId, FrameSlot>) -> bool {
        match &self.source.inst(v).op {
            Op::LocalAddr(l) => !frame.contains_key(l),
            Op::ElementAddr(base, _) | Op::MemberAddr(base, _) => self.is_private(*base, frame),
            _ => false,
        }
    }
}

fn is_cheap(cost: CostClass) -> bool {
    match cost {
        CostClass::Free | CostClass::Argument | CostClass::Index | CostClass::Simple | CostClass::Division => true,
        CostClass::Root | CostClass::Function | CostClass::LongFunction | CostClass::Product | CostClass::Draw => false,
        CostClass::Memory | CostClass::Atomic | CostClass::Text | CostClass::Nested => false,
    }
}

fn push(body: &mut Body, block: BlockId, op: Op, ty: Type) -> ValueId {
    let v = body.add_inst(op, ty, Default::default());
    body.blocks[block.index()].push(v);
    v
}

fn push_frame_addr(body: &mut Body, block: BlockId, slot: FrameSlot, ty: &Type) -> ValueId {
    push(body, block, Op::FrameAddr(slot), Type::Ref(Box::new(ty.clone())))
}

fn push_frame_store(body: &mut Body, block: BlockId, slot: FrameSlot, value: ValueId) {
    let ty = body.ty(value).clone();
    let addr = push_frame_addr(body, block, slot, &ty);
    push(body, block, Op::Store(addr, value), Type::Unit);
}

fn push_frame_load(body: &mut Body, block: BlockId, slot: FrameSlot, ty: &Type) -> ValueId {
    let addr = push_frame_addr(body, block, slot, ty);
    push(body, block, Op::Load(addr), ty.clone())
}

pub(crate) fn push_zero(body: &mut Body, block: BlockId, ty: &Type) -> ValueId {
    match ty {
        Type::Struct(s) => {
            let members = s.members.iter().map(|(_, t)| push_zero(body, block, t)).collect();
            push(body, block, Op::MakeStruct(members), ty.clone())
        }
        _ => {
            let s = ty.scalar().expect("compiler bug: a local of a type without a size");
            let zero = if s.is_float() { Const::Float(0.0) } else { Const::Int(0) };
            let zero = push(body, block, Op::Const(zero), Type::Scalar(s));
            if ty.is_tensor() { push(body, block, Op::Splat(zero), ty.clone()) } else { zero }
        }
    }
}
