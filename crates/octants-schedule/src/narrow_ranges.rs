//! [`narrow_ranges`]: the range of a serial loop is narrowed to the iterations that do something.
//!
//! Arrays often have room for more elements than are in use, and programs loop over all of the room:
//! `for e, i in ndrange(n, room): if i < count[e]: ...`. The condition becomes a bound, `min(room, count[e])`. If it
//! depends on outer axes of the same loop, the last axis becomes a loop of its own, inside the others. Without a branch
//! the loop may also be vectorized.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use octants_analysis::{Effects, Place, function_effects, inst_effects, local_uses, may_leave, trace_address};
use octants_ir::insert_code::{and, push_if, rebuild_blocks};
use octants_ir::schedule::LocalUses;
use octants_ir::{
    BinaryOp, Body, Builder, CodeSizeHint, Const, Effect, ForLoop, Inst, LoopHints, Op, Range, Scalar, Scheduled, Type,
    ValueId,
};

use crate::facts::{BodyFacts, ProgramFacts};
use crate::scheduling::Scheduling;

/// Loops with at most this many iterations are unrolled instead.
const FEW: i64 = 8;
/// Most instructions that are copied to compute a bound.
const LONGEST: usize = 16;

/// Narrows the loops in the variants of tasks, and in functions.
pub(crate) fn narrow_ranges(scheduled: &mut Scheduled, of: &Scheduling) {
    let Scheduled { program, schedule } = scheduled;
    let effects = function_effects(&program.functions);
    let facts = ProgramFacts::of(program, &of.target, of.options);
    let find = |body: &Body| Search { facts: BodyFacts::new(&facts, body), functions: &effects }.loops();
    for variant in schedule.tasks.iter_mut().flat_map(|task| &mut task.variants) {
        let found = find(&variant.body);
        narrow(&mut variant.body, found);
    }
    let found: Vec<_> = program.functions.iter().map(|f| find(&f.body)).collect();
    program.functions.iter_mut().zip(found).for_each(|(function, found)| narrow(&mut function.body, found));
}

/// A number that the index of an axis is compared with.
struct Bound {
    axis: usize,
    /// `index <comparison> limit` holds in the iterations that do something.
    comparison: BinaryOp,
    limit: ValueId,
    /// Values in the loop that the limit is computed from, to be copied.
    computed: Vec<ValueId>,
    /// The limit depends on outer axes of the loop.
    follows_axes: bool,
}

/// A loop that can be narrowed.
struct Found {
    /// Before the loop.
    outside: Vec<Bound>,
    /// Between the other axes and the last one.
    inside: Vec<Bound>,
    /// The conditional code, if the bounds imply its condition.
    always: Option<ValueId>,
}

struct Search<'a> {
    facts: BodyFacts<'a>,
    functions: &'a [Effects],
}

impl Search<'_> {
    fn loops(&self) -> HashMap<ValueId, Found> {
        let mut found = HashMap::new();
        self.facts.body.visit(self.facts.body.root, &mut |v, inst| {
            if let Op::For(l) = &inst.op
                && l.parallel.is_none()
                && l.groups.is_empty()
                && l.reductions.is_empty()
                && l.hints.unroll.is_none()
                && l.hints.code_size != CodeSizeHint::VectorsFirst
            {
                found.extend(self.find(v, l).map(|f| (v, f)));
            }
        });
        found
    }

    fn find(&self, v: ValueId, l: &ForLoop) -> Option<Found> {
        let body = self.facts.body;
        let (&last, before) = body.block(l.body).split_last()?;
        let Op::If(condition, _, otherwise) = body.inst(last).op else { return None };
        let skips = |v: &ValueId| matches!(body.inst(*v).op.effect(), Effect::Pure | Effect::Index | Effect::Read(_));
        if !body.block(otherwise).is_empty() || !before.iter().all(skips) {
            return None;
        }
        let (mut inside, mut effects) = (HashSet::new(), Effects::default());
        body.visit(l.body, &mut |u, inst| {
            inside.insert(u);
            inst_effects(body, &inst.op, self.functions, &mut effects);
        });
        let conditions = self.conjuncts(condition);
        // `break` leaves all axes.
        let splits = !may_leave(body, l.body);
        let fits = |b: &Bound| !b.follows_axes || splits && b.axis + 1 == l.dims.len();
        let bound = |c: &ValueId| self.bound(v, *c, (&inside, &effects)).filter(|b| fits(b) && self.is_worth_it(l, b));
        let mut bounds: Vec<Bound> = conditions.iter().filter_map(bound).collect();
        // These require that the range is not empty, and another bound may empty it.
        bounds.sort_by_key(|b| b.comparison != BinaryOp::Le);
        let is_exact = bounds.first().is_some_and(Bound::is_exact);
        let always = (conditions.len() == 1 && is_exact).then_some(last);
        let (inside, outside): (Vec<Bound>, Vec<Bound>) = bounds.into_iter().partition(|b| b.follows_axes);
        (!inside.is_empty() || !outside.is_empty()).then_some(Found { outside, inside, always })
    }

    /// The conditions that must all hold.
    fn conjuncts(&self, condition: ValueId) -> Vec<ValueId> {
        match self.facts.body.inst(self.facts.source(condition)).op {
            Op::Binary(BinaryOp::And, a, b) => [self.conjuncts(a), self.conjuncts(b)].concat(),
            _ => vec![condition],
        }
    }

    /// A comparison of the index of an axis with a value that the iterations over this axis do not change.
    fn bound(&self, v: ValueId, condition: ValueId, of: (&HashSet<ValueId>, &Effects)) -> Option<Bound> {
        let body = self.facts.body;
        let Op::Binary(op, a, b) = body.inst(self.facts.source(condition)).op else { return None };
        let axis_of = |u: ValueId| match body.inst(self.facts.source(u)).op {
            Op::LoopIndex(of, axis) if of == v => Some(axis as usize),
            _ => None,
        };
        let (axis, comparison, limit) = match (axis_of(a), axis_of(b)) {
            (Some(axis), _) => (axis, op, b),
            (None, Some(axis)) => (axis, mirrored(op)?, a),
            _ => return None,
        };
        mirrored(comparison)?;
        let mut bound = Bound { axis, comparison, limit, computed: Vec::new(), follows_axes: false };
        self.may_compute_before(v, limit, &mut bound, of).then_some(bound)
    }

    /// Whether a value can be computed before the iterations over the bound's axis, the first of which computes it;
    /// lists what has to be copied.
    fn may_compute_before(
        &self,
        v: ValueId,
        value: ValueId,
        bound: &mut Bound,
        of: (&HashSet<ValueId>, &Effects),
    ) -> bool {
        let (inside, effects) = of;
        let value = self.facts.source(value);
        if !inside.contains(&value) || bound.computed.contains(&value) {
            return true;
        }
        let op = &self.facts.body.inst(value).op;
        let mut all = match *op {
            Op::LoopIndex(of, axis) if of == v => {
                bound.follows_axes = true;
                (axis as usize) < bound.axis
            }
            Op::Load(address) => self.is_unchanged(address, effects),
            _ => matches!(op.effect(), Effect::Pure | Effect::Index),
        };
        op.for_each_operand(|u| all = all && self.may_compute_before(v, u, bound, of));
        bound.computed.push(value);
        all && bound.computed.len() <= LONGEST
    }

    /// No iteration writes to the memory of an address.
    fn is_unchanged(&self, address: ValueId, effects: &Effects) -> bool {
        let Place::Buffer(buffer) = trace_address(self.facts.body, address) else { return false };
        let is_same = |written: usize| self.facts.of.memory.may_alias(buffer.index(), written);
        !effects.other && effects.param_writes.is_empty() && !effects.access.writes.iter().any(|w| is_same(w.index()))
    }

    /// The axis has more than a few iterations. A limit that is read from memory outside of all axes must not be read
    /// if there is no iteration at all: then the other axes are known to have some.
    fn is_worth_it(&self, l: &ForLoop, bound: &Bound) -> bool {
        let trips = |r: &Range| Some(self.facts.known(r.end)?.saturating_sub(self.facts.known(r.begin)?));
        let others = l.dims.iter().enumerate().filter(|(axis, _)| *axis != bound.axis);
        let runs = bound.follows_axes || others.into_iter().all(|(_, r)| trips(r).is_some_and(|n| n > 0));
        runs && trips(&l.dims[bound.axis]).is_none_or(|n| n > FEW)
    }
}

/// The comparison with its operands exchanged, if it orders them.
fn mirrored(op: BinaryOp) -> Option<BinaryOp> {
    match op {
        BinaryOp::Lt => Some(BinaryOp::Gt),
        BinaryOp::Le => Some(BinaryOp::Ge),
        BinaryOp::Gt => Some(BinaryOp::Lt),
        BinaryOp::Ge => Some(BinaryOp::Le),
        _ => None,
    }
}

impl Bound {
    /// The narrowed range implies the comparison. The number after the largest one does not exist.
    fn is_exact(&self) -> bool {
        self.comparison != BinaryOp::Gt
    }

    /// The range without the iterations for which the comparison does not hold. It must not be empty.
    fn narrow(&self, b: &mut Builder, range: Range, limit: ValueId) -> Range {
        let ty = b.ty(range.begin).clone();
        let scalar = ty.scalar().expect("compiler bug: a bound is not a scalar");
        let mut push = |op, x: ValueId, y: Option<ValueId>| {
            let y = y.unwrap_or_else(|| b.int(1, scalar));
            b.push(Op::Binary(op, x, y), ty.clone())
        };
        match self.comparison {
            BinaryOp::Lt => Range { end: push(BinaryOp::Min, range.end, Some(limit)), ..range },
            BinaryOp::Le => {
                let last = push(BinaryOp::Sub, range.end, None);
                let last = push(BinaryOp::Min, last, Some(limit));
                Range { end: push(BinaryOp::Add, last, None), ..range }
            }
            BinaryOp::Ge => Range { begin: push(BinaryOp::Max, range.begin, Some(limit)), ..range },
            _ => {
                let next = push(BinaryOp::Add, limit, None);
                Range { begin: push(BinaryOp::Max, range.begin, Some(next)), ..range }
            }
        }
    }
}

fn narrow(body: &mut Body, found: HashMap<ValueId, Found>) {
    if found.is_empty() {
        return;
    }
    let source = &body.clone();
    let writer = Writer { source, locals: local_uses(source) };
    let always: HashSet<ValueId> = found.values().filter_map(|f| f.always).collect();
    rebuild_blocks(body, |b, v| {
        if always.contains(&v) {
            let yes = b.int(1, Scalar::U1);
            if let Op::If(condition, ..) = &mut b.body.inst_mut(v).op {
                *condition = yes;
            }
        }
        match (&source.inst(v).op, found.get(&v)) {
            (Op::For(l), Some(found)) => writer.place(b, (v, l), found),
            _ => b.place(v),
        }
    });
}

/// Writes narrowed loops.
struct Writer<'a> {
    source: &'a Body,
    locals: Arc<LocalUses>,
}

impl Writer<'_> {
    fn place(&self, b: &mut Builder, (v, l): (ValueId, &ForLoop), found: &Found) {
        if_any(b, &found.outside, &l.dims, |b| {
            let dims = self.narrowed(b, &found.outside, &l.dims);
            match dims.split_last() {
                Some((_, others)) if !found.inside.is_empty() => {
                    let around = b.body.add_block();
                    let hints = LoopHints { code_size: l.hints.code_size, ..LoopHints::default() };
                    let of_others = ForLoop { hints, ..ForLoop::serial(others.to_vec(), around) };
                    b.body.inst_mut(v).op = Op::For(Box::new(of_others));
                    b.place(v);
                    let back = b.set_cursor(around);
                    if_any(b, &found.inside, &dims, |b| self.place_last_axis(b, (v, l), &found.inside, &dims));
                    b.set_cursor(back);
                }
                _ => {
                    b.body.inst_mut(v).op = Op::For(Box::new(ForLoop { dims, ..l.clone() }));
                    b.place(v);
                }
            }
        });
    }

    /// Places a loop over the last axis, in the loop over the others.
    fn place_last_axis(&self, b: &mut Builder, (v, l): (ValueId, &ForLoop), bounds: &[Bound], dims: &[Range]) {
        let dims = self.narrowed(b, bounds, dims);
        let axis = dims.len() as u32 - 1;
        let own = ForLoop { dims: dims[axis as usize..].to_vec(), ..l.clone() };
        let inner = b.push(Op::For(Box::new(own)), Type::Unit);
        self.source.visit(l.body, &mut |u, inst| {
            if inst.op == Op::LoopIndex(v, axis) {
                b.body.inst_mut(u).op = Op::LoopIndex(inner, 0);
            }
        });
    }

    /// The ranges within these bounds, whose limits are computed here.
    fn narrowed(&self, b: &mut Builder, bounds: &[Bound], dims: &[Range]) -> Vec<Range> {
        let mut dims = dims.to_vec();
        for bound in bounds {
            let mut copies = HashMap::new();
            let copy_of = |copies: &HashMap<ValueId, ValueId>, u: ValueId| {
                let u = self.locals.source(u);
                copies.get(&u).copied().unwrap_or(u)
            };
            for &v in &bound.computed {
                let Inst { mut op, ty, .. } = self.source.inst(v).clone();
                op.map_operands(|u| copy_of(&copies, u));
                copies.insert(v, b.push(op, ty));
            }
            let limit = copy_of(&copies, bound.limit);
            dims[bound.axis] = bound.narrow(b, dims[bound.axis], limit);
        }
        dims
    }
}

/// Places code where all axes with bounds have iterations, as their limits may be computed only then.
fn if_any(b: &mut Builder, bounds: &[Bound], dims: &[Range], f: impl FnOnce(&mut Builder)) {
    let mut any = None;
    for r in dims.iter().enumerate().filter(|(axis, _)| bounds.iter().any(|of| of.axis == *axis)).map(|(_, r)| r) {
        match [r.begin, r.end].map(|v| b.body.as_const(v)) {
            [Some(Const::Int(begin)), Some(Const::Int(end))] if begin < end => {}
            _ => {
                let runs = b.push(Op::Binary(BinaryOp::Lt, r.begin, r.end), Scalar::U1.into());
                any = Some(and(b, any, runs));
            }
        }
    }
    match any {
        Some(any) => push_if(b, any, f),
        None => f(b),
    }
}
