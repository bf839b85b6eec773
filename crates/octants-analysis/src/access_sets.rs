//! Access sets: the elements of each buffer that a task reads, writes and updates, in terms of a launch's arguments.
//!
//! A set is a box: for each axis a range whose bounds are affine sums of parameters and extents, or the whole axis.
//! Sets are conservative: every element that a task touches is in a set of its kind, and a set may contain more (a
//! branch is not taken, or a loop ends early). If a bound of a range is outside its axis in a launch, or the begin is
//! after the end, the range means the whole axis, because the program's arithmetic may have wrapped.
//!
//! For functions that a task calls, the sets contain whole buffers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::{self, Write};

use octants_ir::{Affine, AtomicOp, BlockId, Body, BufferId, Effect, Op, Program, Task, Term, ValueId};

use crate::addresses::trace_element;
use crate::affine::Sums;
use crate::effects::{Effects, inst_effects};
use crate::function_effects::function_effects;

/// The kind of an access to an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AccessKind {
    /// It is read.
    Read,
    /// It is written, not atomically.
    Write,
    /// It is updated atomically. Updates of one kind commute, except exchanges.
    Atomic(AtomicOp),
}

/// The indices of an axis.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum AxisSet {
    /// Every `step`th index from `begin` to before `end`.
    Range {
        /// The first.
        begin: Affine,
        /// One past the last.
        end: Affine,
        /// From one to the next; at least 1.
        step: u64,
    },
    /// All that the axis has.
    All,
}

/// Elements of a buffer, and the kind of access.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Access {
    /// The buffer.
    pub buffer: BufferId,
    /// What is done.
    pub kind: AccessKind,
    /// For each axis of the buffer its indices.
    pub axes: Vec<AxisSet>,
}

/// The accesses of a task, ordered by buffer and kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskAccess {
    /// No two of them are the same.
    pub accesses: Vec<Access>,
}

/// Maximum number of sets per buffer and kind. More sets are merged into an access of all elements.
const MOST: usize = 16;

/// The access set of each task of a program.
pub fn access_sets(program: &Program) -> Vec<TaskAccess> {
    let functions = function_effects(&program.functions);
    program.tasks.iter().map(|task| of_task(program, task, &functions)).collect()
}

fn of_task(program: &Program, task: &Task, functions: &[Effects]) -> TaskAccess {
    let body = &task.body;
    let mut found = Found { program, body, sums: Sums::new(body), depths: depths(body), sets: BTreeMap::new() };
    body.visit(body.root, &mut |_, inst| match inst.op.effect() {
        Effect::Read(a) | Effect::ReadVolatile(a) => found.add(a, AccessKind::Read),
        Effect::Write(a) => found.add(a, AccessKind::Write),
        Effect::Update(a) => found.add(a, AccessKind::Atomic(update_of(&inst.op))),
        Effect::For(l) => l.reductions.iter().for_each(|r| found.add(r.target, AccessKind::Atomic(r.op))),
        Effect::Call(..) => {
            let mut effects = Effects::default();
            inst_effects(body, &inst.op, functions, &mut effects);
            effects.access.reads.iter().for_each(|&b| found.add_all(b, AccessKind::Read));
            effects.access.writes.iter().for_each(|&b| found.add_all(b, AccessKind::Write));
        }
        Effect::Pure
        | Effect::Index
        | Effect::Reduce
        | Effect::Draw
        | Effect::ReadClock
        | Effect::Exchange
        | Effect::Synchronize
        | Effect::Branch(..)
        | Effect::Loop(_)
        | Effect::Leave
        | Effect::Print
        | Effect::Assert => {}
    });
    let sets = found.sets.into_iter();
    let accesses =
        sets.flat_map(|((buffer, kind), sets)| sets.into_iter().map(move |axes| Access { buffer, kind, axes }));
    TaskAccess { accesses: accesses.collect() }
}

/// The update operation, which determines whether other updates commute with it; an operation other than [`Op::Atomic`]
/// commutes with nothing.
fn update_of(op: &Op) -> AtomicOp {
    if let Op::Atomic(op, ..) = op { *op } else { AtomicOp::Exchange }
}

/// The nesting depth of each loop: bounds of inner loops may depend on outer ones.
fn depths(body: &Body) -> HashMap<ValueId, u32> {
    fn walk(body: &Body, block: BlockId, depth: u32, depths: &mut HashMap<ValueId, u32>) {
        for &v in body.block(block) {
            let op = &body.inst(v).op;
            depths.insert(v, depth);
            op.blocks().into_iter().for_each(|b| walk(body, b, depth + 1, depths));
        }
    }
    let mut depths = HashMap::new();
    walk(body, body.root, 0, &mut depths);
    depths
}

/// The sets of a task during the analysis.
struct Found<'a> {
    program: &'a Program,
    body: &'a Body,
    sums: Sums<'a>,
    depths: HashMap<ValueId, u32>,
    sets: BTreeMap<(BufferId, AccessKind), BTreeSet<Vec<AxisSet>>>,
}

impl Found<'_> {
    /// The element that an address is a part of, if it is a buffer's.
    fn add(&mut self, address: ValueId, kind: AccessKind) {
        let Some((buffer, element)) = trace_element(self.body, address) else { return };
        let Op::BufferAddr(_, indices) = &self.body.inst(element).op else { return };
        let axes = indices.iter().map(|&i| self.range_of(i).unwrap_or(AxisSet::All)).collect();
        self.insert(buffer, kind, axes);
    }

    fn add_all(&mut self, buffer: BufferId, kind: AccessKind) {
        self.insert(buffer, kind, self.all_of(buffer));
    }

    fn all_of(&self, buffer: BufferId) -> Vec<AxisSet> {
        vec![AxisSet::All; self.program.buffers[buffer.index()].ndim as usize]
    }

    fn insert(&mut self, buffer: BufferId, kind: AccessKind, axes: Vec<AxisSet>) {
        let all = self.all_of(buffer);
        let sets = self.sets.entry((buffer, kind)).or_default();
        if sets.contains(&all) {
            return;
        }
        if axes == all || sets.len() == MOST {
            sets.clear();
            sets.insert(all);
        } else {
            sets.insert(axes);
        }
    }

    /// The range of an index over all iterations of its enclosing loops.
    fn range_of(&mut self, index: ValueId) -> Option<AxisSet> {
        let sum = self.sums.of(index)?;
        let mut of_loops =
            sum.terms.iter().filter(|(t, _)| matches!(t, Term::Index(..))).map(|(_, c)| c.unsigned_abs());
        let step = match (of_loops.next(), of_loops.next()) {
            (Some(step), None) => step,
            _ => 1,
        };
        let begin = self.bound(sum.clone(), false)?;
        let end = self.bound(sum, true)?.plus(&Affine::from(1))?;
        Some(AxisSet::Range { begin, end, step })
    }

    /// The minimum or maximum of a sum.
    fn bound(&mut self, mut sum: Affine, greatest: bool) -> Option<Affine> {
        loop {
            let indices = sum.terms.iter().filter_map(|(term, coefficient)| match term {
                Term::Index(l, axis) => Some((self.depths.get(l), *l, *axis, *coefficient)),
                _ => None,
            });
            // Inner loops come first, because their bounds may depend on the index of an outer loop.
            let Some((_, l, axis, coefficient)) = indices.max() else { return Some(sum) };
            let Op::For(f) = &self.body.inst(l).op else { return None };
            let range = f.dims.get(axis as usize)?;
            let extreme = if (coefficient > 0) == greatest {
                self.sums.of(range.end)?.plus(&Affine::from(-1))?
            } else {
                self.sums.of(range.begin)?
            };
            sum = sum.replace(Term::Index(l, axis), &extreme)?;
        }
    }
}

/// The sets of a program as text, with the user's names.
pub fn describe_access(program: &Program) -> String {
    let mut text = String::new();
    for (task, of) in program.tasks.iter().zip(access_sets(program)) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}:", task.name);
        for access in &of.accesses {
            let _ = writeln!(text, "    {}", Named { program, access });
        }
    }
    text
}

struct Named<'a> {
    program: &'a Program,
    access: &'a Access,
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let buffer = |b: BufferId| self.program.buffers[b.index()].name.as_str();
        let name = |term: Term| match term {
            Term::Param(p) => self.program.params[p as usize].name.clone(),
            Term::Extent(b, axis) => format!("{}.shape[{axis}]", buffer(b)),
            Term::Index(l, axis) => format!("{l}.{axis}"),
        };
        match self.access.kind {
            AccessKind::Read => write!(f, "read ")?,
            AccessKind::Write => write!(f, "write ")?,
            AccessKind::Atomic(op) => write!(f, "atomic {} ", op.name())?,
        }
        write!(f, "{}[", buffer(self.access.buffer))?;
        for (i, axis) in self.access.axes.iter().enumerate() {
            if i > 0 {
                write!(f, ", ")?;
            }
            match axis {
                AxisSet::All => write!(f, ":")?,
                AxisSet::Range { begin, end, .. } if begin.plus(&Affine::from(1)).as_ref() == Some(end) => {
                    write!(f, "{}", begin.display(&name))?;
                }
                AxisSet::Range { begin, end, step } => {
                    write!(f, "{}:{}", begin.display(&name), end.display(&name))?;
                    if *step != 1 {
                        write!(f, ":{step}")?;
                    }
                }
            }
        }
        write!(f, "]")
    }
}
