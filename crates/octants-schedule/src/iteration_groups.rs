//! [`add_groups`]: bodies of a parallel loop that run several adjacent iterations of the last axis.
//!
//! The body of a group contains the code of all its iterations, up to each jammed inner loop and after it. A jammed
//! loop occurs once; its body contains the code of all iterations of the group. Values that are equal in all iterations
//! are computed once. Each iteration of the group has its own copy of the locals.

use std::collections::HashMap;

use octants_analysis::local_uses;
use octants_ir::schedule::{LocalUses, Variant};
use octants_ir::{
    BinaryOp, BlockId, Body, Builder, CodeSizeHint, Const, Effect, GroupPlacement, IterationGroup, LoopHints, Op, Type,
    ValueId,
};

use crate::clone_code::Cloner;

/// Gives a variant's parallel loop a group of iterations for each factor. `jammed` are the inner loops that all
/// iterations of a group run together; those that are `true` are vectorized across them.
pub(crate) fn add_groups(
    variant: &mut Variant,
    loop_id: ValueId,
    factors: impl Iterator<Item = u32>,
    placement: GroupPlacement,
    jammed: &HashMap<ValueId, bool>,
) {
    let source = variant.body.clone();
    let locals = local_uses(&source);
    let Op::For(l) = &source.inst(loop_id).op else { panic!("compiler bug: the parallel loop is not a loop") };
    let axis = l.dims.len() as u32 - 1;
    let mut b = Builder::new();
    b.body = source.clone();
    let mut groups = Vec::new();
    for factor in factors {
        let to = b.body.add_block();
        b.set_cursor(to);
        let indices = indices(&mut b, &source, (loop_id, axis), factor);
        let lane = |index| Lane { index, cloner: Cloner::with_own_locals(&source, &locals) };
        let lanes = indices.into_iter().map(lane).collect();
        let mut grouping = Grouping { source: &source, locals: &locals, loop_id, axis, jammed, lanes };
        grouping.iterations(&mut b, l.body);
        groups.push(IterationGroup { factor, body: to, placement });
    }
    if let Op::For(l) = &mut b.body.inst_mut(loop_id).op {
        l.groups = groups;
    }
    variant.body = b.body;
}

/// The index of each iteration of a group along the last axis.
fn indices(b: &mut Builder, source: &Body, (loop_id, axis): (ValueId, u32), factor: u32) -> Vec<ValueId> {
    let Op::For(l) = &source.inst(loop_id).op else { panic!("compiler bug: the parallel loop is not a loop") };
    let ty: &Type = source.ty(l.dims[axis as usize].begin);
    b.span = source.inst(loop_id).span;
    let first = b.push(Op::LoopIndex(loop_id, axis), ty.clone());
    let mut index_of = |lane: u32| match lane {
        0 => first,
        _ => {
            let distance = b.push(Op::Const(Const::Int(i64::from(lane))), ty.clone());
            b.push(Op::Binary(BinaryOp::Add, first, distance), ty.clone())
        }
    };
    (0..factor).map(&mut index_of).collect()
}

/// An iteration of a group.
struct Lane<'a> {
    /// Its index along the last axis of the parallel loop.
    index: ValueId,
    cloner: Cloner<'a>,
}

/// A group under construction.
struct Grouping<'a> {
    source: &'a Body,
    locals: &'a LocalUses,
    loop_id: ValueId,
    axis: u32,
    jammed: &'a HashMap<ValueId, bool>,
    lanes: Vec<Lane<'a>>,
}

impl Grouping<'_> {
    /// Appends the code of all iterations at the cursor.
    fn iterations(&mut self, b: &mut Builder, iteration: BlockId) {
        let (insts, jammed) = (self.source.block(iteration), self.jammed);
        for part in insts.split_inclusive(|v| jammed.contains_key(v)) {
            let shared = part.last().copied().filter(|v| jammed.contains_key(v));
            self.all_lanes(b, &part[..part.len() - usize::from(shared.is_some())]);
            if let Some(v) = shared {
                self.jammed_loop(b, v);
            }
        }
    }

    /// Code of the first iteration in the block at the cursor runs before that of the others, which share its results.
    fn all_lanes(&mut self, b: &mut Builder, insts: &[ValueId]) {
        let block = b.cursor();
        let Some((first, others)) = self.lanes.split_first_mut() else { return };
        let index = Op::LoopIndex(self.loop_id, self.axis);
        let (source, locals) = (self.source, self.locals);
        let own = |cloner: &mut Cloner<'_>, b: &mut Builder, v: ValueId, lane: ValueId| {
            let value = match &source.inst(v).op {
                op if *op == index => lane,
                Op::LocalAddr(l) if locals.of(*l).is_used_before_loop && !locals.of(*l).is_value => {
                    b.push(Op::LocalAddr(*l), source.ty(v).clone())
                }
                _ => return false,
            };
            cloner.copier.values.insert(v, value);
            true
        };
        let lane = first.index;
        first.cloner.insts(b, insts, &mut |cloner, b, v| own(cloner, b, v, lane));
        for Lane { index: lane, cloner } in others {
            let mut hook = |cloner: &mut Cloner<'_>, b: &mut Builder, v: ValueId| {
                own(cloner, b, v, *lane) || b.cursor() == block && share(&first.cloner, cloner, b, v)
            };
            cloner.insts(b, insts, &mut hook);
        }
    }

    /// A loop that all iterations run together. Its bounds are the same in all of them.
    fn jammed_loop(&mut self, b: &mut Builder, v: ValueId) {
        let inst = self.source.inst(v);
        let Op::For(mut l) = inst.op.clone() else { panic!("compiler bug: a jammed loop that is not a loop") };
        let inner = l.body;
        l.body = b.body.add_block();
        for d in &mut l.dims {
            [d.begin, d.end] = [d.begin, d.end].map(|v| self.lanes[0].cloner.value(v));
        }
        // There is enough to do in each of its iterations.
        l.hints = match self.jammed[&v] {
            true => LoopHints { no_vectors: true, ..LoopHints::default() },
            false => LoopHints { code_size: CodeSizeHint::NotInterleaved, ..LoopHints::default() },
        };
        let block = l.body;
        b.span = inst.span;
        let together = b.push(Op::For(l), inst.ty.clone());
        self.lanes.iter_mut().for_each(|lane| _ = lane.cloner.copier.values.insert(v, together));
        let back = b.set_cursor(block);
        self.all_lanes(b, self.source.block(inner));
        b.set_cursor(back);
    }
}

/// Replaces an instruction by the first iteration's result of the same computation.
fn share(first: &Cloner<'_>, cloner: &mut Cloner<'_>, b: &Builder, v: ValueId) -> bool {
    let mut op = cloner.source.inst(v).op.clone();
    if !matches!(op.effect(), Effect::Pure | Effect::Index) {
        return false;
    }
    op.map_operands(|u| cloner.value(u));
    let of_first = first.value(v);
    let is_same = of_first != v && b.body.inst(of_first).op == op;
    if is_same {
        cloner.copier.values.insert(v, of_first);
    }
    is_same
}
