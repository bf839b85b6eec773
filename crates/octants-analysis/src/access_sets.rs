//! Access sets: the elements of each buffer that a task reads, writes and updates, in terms of a launch's arguments.
//!
//! A set is a box: for each axis a range whose bounds are affine sums of parameters and extents, or the whole axis.
//! Sets are conservative: every element that a task touches is in a set of its kind, and a set may contain more (a
//! branch is not taken, or a loop ends early). If a bound of a range is outside its axis in a launch, or the begin is
//! after the end, the range means the whole axis, because the program's arithmetic may have wrapped.
//!
//! Colors distinguish elements of a box ([`crate::colors`]); parts of an element are distinguished, too.
//!
//! For functions that a task calls, the sets contain whole buffers.

use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Write};

use octants_ir::{
    Affine, AtomicOp, BlockId, Body, BufferId, Const, Effect, Op, Program, Span, Task, Term, Type, ValueId,
};

use crate::addresses::trace_element;
use crate::affine::Sums;
use crate::colors::{Color, Congruence, Conjunctions, colors_of, conjunctions, implied, leaves};
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
    /// Congruences of the indices.
    pub colors: Vec<Color>,
    /// The scalars of an element, by bits; [`ALL_PARTS`] for all of them.
    pub parts: u64,
}

/// All scalars of an element.
pub const ALL_PARTS: u64 = u64::MAX;

/// The accesses of a task, ordered by buffer and kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskAccess {
    /// No two of them are the same.
    pub accesses: Vec<Access>,
    /// For each of them the source of the first instruction that makes it.
    pub spans: Vec<Span>,
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
    let (sums, depths, both) = (Sums::new(body), depths(body), conjunctions(body));
    let mut found =
        Found { program, body, sums, depths, both, functions, conditions: Vec::new(), sets: BTreeMap::new() };
    found.walk(body.root);
    let sets = found.sets.into_iter().flat_map(|((buffer, kind), sets)| {
        let access =
            move |((axes, colors), Accessed { parts, span })| (Access { buffer, kind, axes, colors, parts }, span);
        sets.into_iter().map(access)
    });
    let (accesses, spans) = sets.unzip();
    TaskAccess { accesses, spans }
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
    both: Conjunctions,
    functions: &'a [Effects],
    /// Those around the code that is walked.
    conditions: Vec<Congruence>,
    sets: BTreeMap<(BufferId, AccessKind), Sets>,
}

/// Boxes with colors, and what is accessed there.
type Sets = BTreeMap<(Vec<AxisSet>, Vec<Color>), Accessed>;

/// The parts of elements that are accessed, and by what first.
#[derive(Clone, Copy, Default)]
struct Accessed {
    parts: u64,
    span: Span,
}

impl Accessed {
    fn add(&mut self, other: Accessed) {
        if self.parts == 0 {
            self.span = other.span;
        }
        self.parts |= other.parts;
    }
}

impl Found<'_> {
    fn walk(&mut self, block: BlockId) {
        let around = self.conditions.len();
        for &v in self.body.block(block) {
            let op = &self.body.inst(v).op;
            self.visit(op, self.body.inst(v).span);
            let Op::If(condition, yes, no) = op else {
                op.blocks().into_iter().for_each(|inner| self.walk(inner));
                continue;
            };
            for (inner, truth) in [(*yes, true), (*no, false)] {
                let outer = self.conditions.len();
                implied((self.body, &mut self.sums), &self.both, *condition, truth, &mut self.conditions);
                self.walk(inner);
                self.conditions.truncate(outer);
            }
            if leaves(self.body, *yes) {
                implied((self.body, &mut self.sums), &self.both, *condition, false, &mut self.conditions);
            }
        }
        self.conditions.truncate(around);
    }

    fn visit(&mut self, op: &Op, span: Span) {
        match op.effect() {
            Effect::Read(a) | Effect::ReadVolatile(a) => self.add(a, AccessKind::Read, span),
            Effect::Write(a) => self.add(a, AccessKind::Write, span),
            Effect::Update(a) => self.add(a, AccessKind::Atomic(update_of(op)), span),
            Effect::For(l) => l.reductions.iter().for_each(|r| self.add(r.target, AccessKind::Atomic(r.op), span)),
            Effect::Call(..) => {
                let mut effects = Effects::default();
                inst_effects(self.body, op, self.functions, &mut effects);
                effects.access.reads.iter().for_each(|&b| self.add_all(b, AccessKind::Read, span));
                effects.access.writes.iter().for_each(|&b| self.add_all(b, AccessKind::Write, span));
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
        }
    }

    /// The element that an address is a part of, if it is a buffer's.
    fn add(&mut self, address: ValueId, kind: AccessKind, span: Span) {
        let Some((buffer, element)) = trace_element(self.body, address) else { return };
        let Op::BufferAddr(_, indices) = &self.body.inst(element).op else { return };
        let axes = indices.iter().map(|&i| self.range_of(i).unwrap_or(AxisSet::All)).collect();
        let colors = colors_of((self.body, &mut self.sums), indices, &self.conditions);
        let parts = parts_of(self.body, address);
        self.insert((buffer, kind), (axes, colors), Accessed { parts, span });
    }

    fn add_all(&mut self, buffer: BufferId, kind: AccessKind, span: Span) {
        self.insert((buffer, kind), (self.all_of(buffer), Vec::new()), Accessed { parts: ALL_PARTS, span });
    }

    fn all_of(&self, buffer: BufferId) -> Vec<AxisSet> {
        vec![AxisSet::All; self.program.buffers[buffer.index()].ndim as usize]
    }

    fn insert(&mut self, of: (BufferId, AccessKind), set: (Vec<AxisSet>, Vec<Color>), accessed: Accessed) {
        let all = (self.all_of(of.0), Vec::new());
        let sets = self.sets.entry(of).or_default();
        let everywhere = sets.get(&all).map_or(0, |known| known.parts);
        if everywhere | accessed.parts == everywhere {
            return;
        }
        sets.entry(set).or_default().add(accessed);
        if sets.len() > MOST {
            let mut plain = Sets::new();
            std::mem::take(sets)
                .into_iter()
                .for_each(|((axes, _), of_set)| plain.entry((axes, Vec::new())).or_default().add(of_set));
            *sets = plain;
        }
        if sets.len() > MOST {
            let mut merged = Accessed::default();
            sets.values().for_each(|of_set| merged.add(*of_set));
            *sets = Sets::from([(all.clone(), merged)]);
        }
        if let Some(everywhere) = sets.get(&all).map(|known| known.parts) {
            sets.retain(|set, of_set| *set == all || everywhere | of_set.parts != everywhere);
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

/// The scalars of an element that an address is of.
fn parts_of(body: &Body, address: ValueId) -> u64 {
    let Some((first, count, of)) = part_at(body, address) else { return ALL_PARTS };
    match first + count {
        _ if count == of => ALL_PARTS,
        0..64 => ((1 << count) - 1) << first,
        _ => ALL_PARTS,
    }
}

/// The first scalar of the part of an element at an address, their number, and that of the element.
fn part_at(body: &Body, address: ValueId) -> Option<(usize, usize, usize)> {
    let pointee = |address: ValueId| match body.ty(address) {
        Type::Ref(of) => Some(&**of),
        _ => None,
    };
    let count = pointee(address)?.leaf_count();
    match &body.inst(address).op {
        Op::BufferAddr(..) => Some((0, count, count)),
        Op::MemberAddr(base, member) => {
            let (first, _, of) = part_at(body, *base)?;
            let Type::Struct(of_base) = pointee(*base)? else { return None };
            let before = of_base.members.iter().take(*member as usize).map(|(_, ty)| ty.leaf_count()).sum::<usize>();
            Some((first + before, count, of))
        }
        Op::ElementAddr(base, at) => {
            let (first, whole, of) = part_at(body, *base)?;
            let shape = pointee(*base)?.shape();
            let position = shape.iter().zip(at).try_fold(0, |position, (extent, i)| match body.as_const(*i) {
                Some(Const::Int(i)) if (0..i64::from(*extent)).contains(&i) => {
                    Some(position * *extent as usize + i as usize)
                }
                _ => None,
            });
            Some(position.map_or((first, whole, of), |position| (first + position, count, of)))
        }
        _ => None,
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
        write!(f, "]")?;
        if self.access.parts != ALL_PARTS {
            let parts = (0..64).filter(|n| self.access.parts >> n & 1 == 1).map(|n: u32| n.to_string());
            write!(f, " part {}", parts.collect::<Vec<_>>().join(", "))?;
        }
        for (n, color) in self.access.colors.iter().enumerate() {
            let axes = color.coefficients.iter().enumerate().filter(|(_, c)| **c != 0);
            let axis = |(axis, c): (usize, &i64)| match c {
                1 => format!("index {axis}"),
                c => format!("{c} * index {axis}"),
            };
            let sum: Vec<String> = axes.map(axis).collect();
            let (before, phase) = (if n == 0 { "where" } else { "and" }, color.phase.display(&name));
            write!(f, " {before} {} = {phase} (mod {})", sum.join(" + "), color.modulus)?;
        }
        Ok(())
    }
}
