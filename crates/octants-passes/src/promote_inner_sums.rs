//! Promotes sums of inner loops to locals: in a parallel loop, an element to which an inner loop adds repeatedly is
//! accumulated in a local, and added once after the loop.
//!
//! The delay is not observable, because the inner loop only adds to that buffer and ignores the results. Float sums
//! are rounded differently, so they need `fast_math`. A loop that adds nothing, or zero, does not touch the memory,
//! because the address may be invalid.

use std::collections::{HashMap, HashSet};

use octants_ir::{
    AtomicOp, BinaryOp, BlockId, Body, Buffer, Builder, Effect, Inst, Kernel, LocalId, Op, Scalar, Type, ValueId,
    task_statements,
};

use crate::pass_options::PassOptions;
use octants_analysis::{Effects, MemoryClasses, Place, function_effects, inst_effects, same_address, trace_address};
use octants_ir::insert_code::{any_bits, constant, push_if, rebuild_blocks};

/// More sums of one loop than this would spill out of registers.
const MOST_SCALARS: usize = 16;

/// Accumulates in locals the sums that inner loops add to elements that are the same in all their iterations.
pub fn promote_inner_sums(kernel: &mut Kernel, options: &PassOptions) {
    let Kernel { body, buffers, functions, .. } = kernel;
    let mut used = vec![false; body.insts.len()];
    body.visit(body.root, &mut |_, inst| inst.op.for_each_operand(|u| used[u.index()] = true));
    let functions = function_effects(functions);
    let mut search = Search { buffers, functions, used, options, loops: HashMap::new(), updates: HashMap::new() };
    for v in task_statements(body) {
        if let Op::For(l) = &body.inst(v).op
            && l.is_parallel()
        {
            let inner = l.body;
            search.visit(body, inner);
        }
    }
    let Search { loops, updates, .. } = search;
    if updates.is_empty() {
        return;
    }
    rebuild_blocks(body, |b, v| {
        if let (Some(&sum), Op::Atomic(op, _, value)) = (updates.get(&v), b.body.inst(v).op.clone()) {
            let at = b.local_addr(sum);
            let old = b.load(at);
            let new = b.binary(if op == AtomicOp::Sub { BinaryOp::Sub } else { BinaryOp::Add }, old, value);
            b.store(at, new);
        } else if let Some(found) = loops.get(&v) {
            for sum in &found.sums {
                let (at, zero) = (b.local_addr(sum.local), constant(b, 0, &sum.ty));
                b.store(at, zero);
            }
            b.place(v);
            found.sums.iter().for_each(|sum| add_behind(b, sum, &found.inside));
        } else {
            b.place(v);
        }
    });
}

struct Sum {
    local: LocalId,
    ty: Type,
    /// The address, as the loop computes it.
    addr: ValueId,
}

/// A loop with sums.
struct Found {
    inside: HashSet<ValueId>,
    sums: Vec<Sum>,
}

struct Search<'a> {
    buffers: &'a [Buffer],
    functions: Vec<Effects>,
    /// Values that something uses.
    used: Vec<bool>,
    options: &'a PassOptions,
    loops: HashMap<ValueId, Found>,
    /// Updates, with the locals that they add to instead.
    updates: HashMap<ValueId, LocalId>,
}

impl Search<'_> {
    /// Processes a block, outer loops first.
    fn visit(&mut self, body: &mut Body, block: BlockId) {
        for v in body.block(block).to_vec() {
            if matches!(body.inst(v).op, Op::For(_) | Op::Loop(_)) {
                self.look_at(body, v);
            }
            for inner in body.inst(v).op.blocks() {
                self.visit(body, inner);
            }
        }
    }

    fn look_at(&mut self, body: &mut Body, v: ValueId) {
        let (mut inside, mut updates, mut others, mut stays) = (HashSet::new(), Vec::new(), Effects::default(), false);
        for block in body.inst(v).op.blocks() {
            body.visit(block, &mut |u, inst| {
                inside.insert(u);
                // Other threads see sums at a barrier.
                stays |= matches!(inst.op, Op::Return(_)) || inst.op.effect() == Effect::Synchronize;
                if self.updates.contains_key(&u) {
                } else if self.is_addition(u, inst) {
                    updates.push(u);
                } else {
                    inst_effects(body, &inst.op, &self.functions, &mut others);
                }
            });
        }
        if stays || updates.is_empty() {
            return;
        }
        let touched: Vec<_> = others.access.reads.union(&others.access.writes).collect();
        let mut sums: Vec<Sum> = Vec::new();
        let mut scalars = 0;
        for u in updates {
            let Inst { op: Op::Atomic(_, addr, _), ty, .. } = body.inst(u).clone() else { continue };
            let Place::Buffer(b) = trace_address(body, addr) else { continue };
            // Elements of quantized types are rounded by each update.
            if self.buffers[b.index()].is_packed() {
                continue;
            }
            if touched.iter().any(|t| self.may_be_same(b.index(), t.index())) || !is_invariant(body, addr, &inside) {
                continue;
            }
            let known = sums.iter().find(|s| same_address(body, s.addr, addr)).map(|s| s.local);
            if known.is_none() && scalars + ty.leaf_count() > MOST_SCALARS {
                continue;
            }
            let local = known.unwrap_or_else(|| {
                scalars += ty.leaf_count();
                let local = body.add_local("sum", ty.clone());
                sums.push(Sum { local, ty, addr });
                local
            });
            self.updates.insert(u, local);
        }
        if !sums.is_empty() {
            self.loops.insert(v, Found { inside, sums });
        }
    }

    /// An atomic addition whose old value is unused.
    fn is_addition(&self, v: ValueId, inst: &Inst) -> bool {
        matches!(inst.op, Op::Atomic(AtomicOp::Add | AtomicOp::Sub, ..))
            && !self.used[v.index()]
            && match inst.ty.scalar() {
                // Sums of narrow types are more accurate in a wider type.
                Some(Scalar::F16 | Scalar::U1) | None => false,
                Some(s) => self.options.fast_math || !s.is_float(),
            }
    }

    fn may_be_same(&self, a: usize, b: usize) -> bool {
        MemoryClasses::of(self.buffers, self.options.arrays_may_alias).may_alias(a, b)
    }
}

/// Whether a value is invariant in the loop with this code, and can be computed after it.
fn is_invariant(body: &Body, v: ValueId, inside: &HashSet<ValueId>) -> bool {
    let op = &body.inst(v).op;
    let mut invariant = true;
    if inside.contains(&v) {
        invariant = op.is_pure();
        op.for_each_operand(|u| invariant = invariant && is_invariant(body, u, inside));
    }
    invariant
}

/// Adds a loop's sum to memory.
fn add_behind(b: &mut Builder, sum: &Sum, inside: &HashSet<ValueId>) {
    let at = b.local_addr(sum.local);
    let value = b.load(at);
    let any = any_bits(b, value);
    push_if(b, any, |b| {
        let addr = copy(b, sum.addr, inside);
        b.push(Op::Atomic(AtomicOp::Add, addr, value), sum.ty.clone());
    });
}

/// The value, recomputed if it is computed in the loop.
fn copy(b: &mut Builder, v: ValueId, inside: &HashSet<ValueId>) -> ValueId {
    if !inside.contains(&v) {
        return v;
    }
    let Inst { mut op, ty, .. } = b.body.inst(v).clone();
    op.map_operands(|u| copy(b, u, inside));
    b.push(op, ty)
}
