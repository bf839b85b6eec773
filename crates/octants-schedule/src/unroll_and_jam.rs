//! Unroll-and-jam of parallel loops (Allen and Kennedy, Optimizing Compilers for Modern Architectures, section 8.3): a
//! thread runs groups of iterations that are neighbors along the last axis.
//!
//! The body of a group is the code of all its iterations, from one inner loop to the next. A jammed inner loop stands
//! in it once, and each of its iterations holds the code of all iterations of the group. What is computed alike in all
//! of them stands there once.

use std::collections::HashMap;

use octants_analysis::find_local_uses;
use octants_ir::schedule::{LocalUses, Role, Variant};
use octants_ir::{
    BinaryOp, BlockId, Body, CodeSizeHint, Const, Effect, IterationGroup, LocalId, LoopHints, Op, Scheduled, Type,
    ValueId,
};

use crate::facts::{BodyFacts, ProgramFacts, parallel_bodies};
use crate::find_unroll_and_jam::{JammedLoops, find_unroll_and_jam};
use crate::schedule_task::{ParallelLoop, is_huge};
use crate::scheduling::Scheduling;

/// Gives the parallel loops of variants bodies for groups of iterations, where that is legal and pays off.
pub(crate) fn unroll_and_jam(scheduled: &mut Scheduled, of: &Scheduling) {
    let Scheduled { program, schedule } = scheduled;
    let facts = ProgramFacts::of(program, &of.target, of.options);
    for (task, found) in program.tasks.iter().zip(&mut schedule.tasks) {
        let Some(p) = ParallelLoop::of(task).filter(|p| !p.config.serialize) else { continue };
        if is_huge(&of.target, found.behavior) {
            continue;
        }
        let of_body = BodyFacts::new(&facts, &task.body, Some(p.of.body));
        let [shared, alone] = find_unroll_and_jam(&of_body, p.loop_id, p.of);
        for variant in &mut found.variants {
            let is_alone = matches!(variant.role, Role::SingleThread | Role::Private);
            if let Some(jammed) = if is_alone { &alone } else { &shared } {
                add_groups(variant, p.loop_id, jammed);
            }
        }
    }
}

/// Adds the groups to a variant's parallel loop.
fn add_groups(variant: &mut Variant, loop_id: ValueId, jammed: &JammedLoops) {
    let Variant { body, schedule, .. } = variant;
    let Op::For(l) = &body.inst(loop_id).op else { panic!("compiler bug: the parallel loop is a loop") };
    let (iteration, axis) = (l.body, l.dims.len() as u32 - 1);
    let index_type = body.ty(l.dims[axis as usize].begin).clone();
    let mut groups = Vec::new();
    for factor in jammed.factors() {
        let to = body.add_block();
        let lanes = first_indices(body, (loop_id, axis), &index_type, to, factor);
        let mut jam = Jam { body, locals: &schedule.locals, loop_id, axis, jammed, lanes };
        jam.iterations(iteration, to);
        groups.push(IterationGroup { factor, body: to });
    }
    if let Op::For(l) = &mut body.inst_mut(loop_id).op {
        l.groups = groups;
    }
    schedule.locals = find_local_uses(body, &parallel_bodies(body));
}

/// The iterations of a group, with the index of each, which is computed in the block `to`.
fn first_indices(body: &mut Body, (loop_id, axis): (ValueId, u32), ty: &Type, to: BlockId, factor: u32) -> Vec<Lane> {
    let span = body.inst(loop_id).span;
    let mut push = |op| {
        let v = body.add_inst(op, ty.clone(), span);
        body.blocks[to.index()].push(v);
        v
    };
    let first = push(Op::LoopIndex(loop_id, axis));
    let mut index_of = |lane: u32| match lane {
        0 => first,
        _ => {
            let distance = push(Op::Const(Const::Int(i64::from(lane))));
            push(Op::Binary(BinaryOp::Add, first, distance))
        }
    };
    (0..factor).map(|lane| Lane { index: index_of(lane), values: HashMap::new(), locals: HashMap::new() }).collect()
}

/// An iteration of a group.
struct Lane {
    /// Its index along the last axis of the parallel loop.
    index: ValueId,
    /// The copies of values and locals of the loop's body.
    values: HashMap<ValueId, ValueId>,
    locals: HashMap<LocalId, LocalId>,
}

impl Lane {
    /// The copy of a value; what is computed before the loop is itself.
    fn value(&self, v: ValueId) -> ValueId {
        self.values.get(&v).copied().unwrap_or(v)
    }
}

/// A group under construction.
struct Jam<'a> {
    body: &'a mut Body,
    /// Facts about the locals of the loop's body.
    locals: &'a LocalUses,
    loop_id: ValueId,
    axis: u32,
    jammed: &'a JammedLoops,
    lanes: Vec<Lane>,
}

impl Jam<'_> {
    /// Appends the code of all iterations to `to`.
    fn iterations(&mut self, iteration: BlockId, to: BlockId) {
        let insts = self.body.block(iteration).to_vec();
        let jammed = self.jammed;
        for part in insts.split_inclusive(|v| jammed.loops.contains_key(v)) {
            let shared = part.last().copied().filter(|v| jammed.loops.contains_key(v));
            self.all_lanes(&part[..part.len() - usize::from(shared.is_some())], to);
            if let Some(v) = shared {
                self.jammed_loop(v, to);
            }
        }
    }

    fn all_lanes(&mut self, insts: &[ValueId], to: BlockId) {
        for lane in 0..self.lanes.len() {
            insts.iter().for_each(|v| self.inst(lane, *v, to, true));
        }
    }

    /// A loop that all iterations run together. Its bounds are the same in all of them.
    fn jammed_loop(&mut self, v: ValueId, to: BlockId) {
        let inst = self.body.inst(v).clone();
        let Op::For(mut l) = inst.op else { panic!("compiler bug: a jammed loop is a loop") };
        let inner = l.body;
        l.body = self.body.add_block();
        for d in &mut l.dims {
            [d.begin, d.end] = [d.begin, d.end].map(|v| self.lanes[0].value(v));
        }
        // There is enough to do in each of its iterations.
        l.hints = match self.jammed.loops[&v] {
            true => LoopHints { no_vectors: true, ..LoopHints::default() },
            false => LoopHints { code_size: CodeSizeHint::NotInterleaved, ..LoopHints::default() },
        };
        let block = l.body;
        let together = self.body.add_inst(Op::For(l), inst.ty, inst.span);
        self.body.blocks[to.index()].push(together);
        for lane in &mut self.lanes {
            lane.values.insert(v, together);
        }
        let insts = self.body.block(inner).to_vec();
        self.all_lanes(&insts, block);
    }

    /// Appends an iteration's copy of an instruction to `to`. `shares`: code of the first iteration in the block runs
    /// before that of the others.
    fn inst(&mut self, lane: usize, v: ValueId, to: BlockId, shares: bool) {
        let inst = self.body.inst(v).clone();
        let mut op = inst.op;
        if op == Op::LoopIndex(self.loop_id, self.axis) {
            let lane = &mut self.lanes[lane];
            lane.values.insert(v, lane.index);
            return;
        }
        op.map_operands(|u| self.lanes[lane].value(u));
        if let Op::LocalAddr(local) = &mut op {
            *local = self.local(lane, *local);
        }
        if shares && lane > 0 && matches!(op.effect(), Effect::Pure | Effect::Index) {
            let first = self.lanes[0].value(v);
            if self.body.inst(first).op == op {
                self.lanes[lane].values.insert(v, first);
                return;
            }
        }
        let inner = op.blocks();
        let blocks: Vec<BlockId> = inner.iter().map(|_| self.body.add_block()).collect();
        op.set_blocks(&blocks);
        let copy = self.body.add_inst(op, inst.ty, inst.span);
        self.body.blocks[to.index()].push(copy);
        self.lanes[lane].values.insert(v, copy);
        for (from, to) in inner.into_iter().zip(blocks) {
            let insts = self.body.block(from).to_vec();
            insts.into_iter().for_each(|v| self.inst(lane, v, to, false));
        }
    }

    /// An iteration's copy of a local. What stands before the loop is shared.
    fn local(&mut self, lane: usize, local: LocalId) -> LocalId {
        if self.locals.of(local).is_used_before_loop {
            return local;
        }
        let Jam { body, lanes, .. } = self;
        *lanes[lane].locals.entry(local).or_insert_with(|| {
            let of = &body.locals[local.index()];
            let (name, ty) = (of.name.clone(), of.ty.clone());
            body.add_local(name, ty)
        })
    }
}
