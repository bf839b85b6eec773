//! Reductions of parallel loops on a grid: each thread folds into a local, the threads of a subgroup combine their
//! values by shuffles, the subgroups of a block by shared memory, and one thread of the block updates the target.
//!
//! The variant becomes code that each thread of the grid runs, because all threads of a block, including those without
//! iterations, reach the barrier after the loop. A serialized loop keeps its reductions.
//!
//! The last subgroup of a block may have fewer threads than the others, if `block_dim` is not a multiple of the
//! subgroup size. A block may have more subgroups than a subgroup has threads.

use std::collections::HashMap;

use octants_ir::insert_code::{push_if, rebuild_blocks};
use octants_ir::schedule::LaunchShape;
use octants_ir::{
    AtomicOp, BinaryOp, BlockId, Body, BufferId, Builder, Const, GridValue, LocalId, Op, Reduction, Scalar, Scheduled,
    ThreadScope, Type, ValueId, fold_identity,
};

use crate::reduce_in_subgroups::{shuffle_fold, shuffle_fold_of_some};
use crate::scheduling::Scheduling;
use crate::shared_buffers::{add_shared_buffer, flat_buffer};

/// Maximum number of threads of a block whose size the driver chooses, if subgroups have fewer than 32 threads.
const MOST_THREADS: u32 = 256;

/// Buffers for the values of a block's subgroups, by the number of a reduction, the type in which it folds, and the
/// number of elements.
type Partials = HashMap<(usize, Scalar, u32), BufferId>;

/// The threads of a block.
#[derive(Clone, Copy)]
struct Threads {
    subgroup_size: u32,
    /// The driver chooses a multiple of `subgroup_size` if there is none.
    block_size: Option<u32>,
}

impl Threads {
    /// All subgroups have as many threads.
    fn are_whole_subgroups(self) -> bool {
        self.block_size.is_none_or(|n| n.is_multiple_of(self.subgroup_size))
    }

    /// How many values each thread of the first subgroup takes, for all subgroups of the block.
    fn values_of_each(self) -> u32 {
        self.block_size.unwrap_or(MOST_THREADS).div_ceil(self.subgroup_size).div_ceil(self.subgroup_size).max(1)
    }
}

/// Reduces in the variants of tasks.
pub(crate) fn reduce_in_blocks(scheduled: &mut Scheduled, of: &Scheduling) {
    let mut partials = Partials::new();
    for task in 0..scheduled.schedule.tasks.len() {
        for number in 0..scheduled.schedule.tasks[task].variants.len() {
            let variant = &mut scheduled.schedule.tasks[task].variants[number];
            if !has_reductions(&variant.body) {
                continue;
            }
            let block_size = match variant.shape {
                LaunchShape::Grid { block_size } => block_size,
                _ => None,
            };
            let threads = Threads { subgroup_size: of.target.subgroup_size, block_size };
            let mut body = std::mem::take(&mut variant.body);
            rebuild_blocks(&mut body, |b, v| {
                let reductions = reductions_of(&b.body, v);
                if reductions.is_empty() {
                    return b.place(v);
                }
                let folds: Vec<Fold> = reductions.into_iter().map(|of| Fold::start(b, of)).collect();
                fold_in_locals(b, v, &folds);
                b.place(v);
                for (slot, fold) in folds.iter().enumerate() {
                    let elements = threads.subgroup_size * threads.values_of_each();
                    let partials = *partials.entry((slot, fold.scalar, elements)).or_insert_with(|| {
                        let buffer = flat_buffer("partial results", fold.scalar.into(), elements.into());
                        add_shared_buffer(scheduled, of, buffer)
                    });
                    fold.combine(b, partials, threads);
                }
            });
            scheduled.schedule.tasks[task].variants[number].body = body;
        }
    }
}

fn has_reductions(body: &Body) -> bool {
    let mut found = false;
    body.visit(body.root, &mut |v, _| found |= !reductions_of(body, v).is_empty());
    found
}

/// The reductions of a loop that threads share.
fn reductions_of(body: &Body, v: ValueId) -> Vec<Reduction> {
    match &body.inst(v).op {
        Op::For(l) if l.is_parallel() => l.reductions.clone(),
        _ => Vec::new(),
    }
}

/// Lets the iterations of a loop fold into the locals.
fn fold_in_locals(b: &mut Builder, v: ValueId, folds: &[Fold]) {
    let Op::For(l) = &mut b.body.inst_mut(v).op else { panic!("compiler bug: {v} is not a loop") };
    l.reductions.clear();
    let block = l.body;
    let mut blocks = vec![block];
    while let Some(block) = blocks.pop() {
        fold_in_block(b, block, folds, &mut blocks);
    }
}

fn fold_in_block(b: &mut Builder, block: BlockId, folds: &[Fold], inner: &mut Vec<BlockId>) {
    let cursor = b.set_cursor(block);
    for v in std::mem::take(&mut b.body.blocks[block.index()]) {
        match b.body.inst(v).op {
            Op::Reduce(slot, value) => {
                b.span = b.body.inst(v).span;
                folds[slot as usize].fold(b, value);
            }
            ref op => {
                inner.extend(op.blocks());
                b.place(v);
            }
        }
    }
    b.set_cursor(cursor);
}

/// A reduction, and the local that this thread folds into.
struct Fold {
    of: Reduction,
    local: LocalId,
    /// The type in which it folds: half precision would lose the small parts of a large sum.
    scalar: Scalar,
    identity: Const,
}

impl Fold {
    /// Adds the local, with the identity in it.
    fn start(b: &mut Builder, of: Reduction) -> Fold {
        let of_target = b.pointee(of.target).scalar().expect("compiler bug: a reduction of a type without scalars");
        let scalar = if of_target == Scalar::F16 { Scalar::F32 } else { of_target };
        let identity = fold_identity(of.op, scalar).expect("compiler bug: a reduction without an identity");
        let local = b.body.add_local("reduced", scalar.into());
        let fold = Fold { of, local, scalar, identity };
        let identity = fold.identity(b);
        b.store_local(local, identity);
        fold
    }

    fn identity(&self, b: &mut Builder) -> ValueId {
        b.push(Op::Const(self.identity), self.scalar.into())
    }

    /// Folds a value of an iteration.
    fn fold(&self, b: &mut Builder, value: ValueId) {
        let op = self.of.op.binary().expect("compiler bug: a reduction without a binary operation");
        let value = b.cast(value, self.scalar);
        b.update_local(self.local, |b, before| b.binary(op, before, value));
    }

    /// Combines the values of all threads into the target. All threads of a block run this.
    fn combine(&self, b: &mut Builder, partials: BufferId, of: Threads) {
        // Subtracted values were negated before the sum.
        let op = if self.of.op == AtomicOp::Sub { AtomicOp::Add } else { self.of.op };
        let joins = op.binary().expect("compiler bug: a reduction without a binary operation");
        let bits = of.subgroup_size.trailing_zeros();
        let value = b.load_local(self.local);
        let [thread, threads, lane] =
            [GridValue::Thread, GridValue::BlockSize, GridValue::Lane].map(|g| b.push(Op::Grid(g), Type::I32));
        let shift = b.int(bits.into(), Scalar::I32);
        let subgroup = b.binary(BinaryOp::UShr, thread, shift);
        let some = (!of.are_whole_subgroups()).then(|| {
            let first = b.binary(BinaryOp::Shl, subgroup, shift);
            (lane, b.binary(BinaryOp::Sub, threads, first))
        });
        let fold = |b: &mut Builder, value| match some {
            Some((lane, threads)) => shuffle_fold_of_some(b, value, joins, bits, lane, threads),
            None => shuffle_fold(b, value, joins, bits),
        };
        let of_subgroup = fold(b, value);
        let rounded_up = if of.are_whole_subgroups() {
            threads
        } else {
            let last = b.int(i64::from(of.subgroup_size) - 1, Scalar::I32);
            b.binary(BinaryOp::Add, threads, last)
        };
        let subgroups = b.binary(BinaryOp::UShr, rounded_up, shift);
        let none = b.int(0, Scalar::I32);
        let [is_first, is_in_first] = [lane, subgroup].map(|v| b.binary(BinaryOp::Eq, v, none));
        let at = |b: &mut Builder, i: ValueId| {
            b.push(Op::BufferAddr(partials, vec![i]), Type::Ref(Box::new(self.scalar.into())))
        };
        push_if(b, is_first, |b| {
            let address = at(b, subgroup);
            b.store(address, of_subgroup);
        });
        b.push(Op::Barrier(ThreadScope::Block), Type::Unit);
        push_if(b, is_in_first, |b| {
            let mut partial = None;
            for n in 0..of.values_of_each() {
                let first = b.int((n * of.subgroup_size).into(), Scalar::I32);
                let number = if n == 0 { lane } else { b.binary(BinaryOp::Add, lane, first) };
                let address = at(b, number);
                let loaded = b.load(address);
                let identity = self.identity(b);
                let is_written = b.binary(BinaryOp::Lt, number, subgroups);
                let value = b.push(Op::Select(is_written, loaded, identity), self.scalar.into());
                partial = Some(partial.map_or(value, |before| b.binary(joins, before, value)));
            }
            let all = fold(b, partial.expect("each thread takes at least one value"));
            push_if(b, is_first, |b| {
                let of_target = b.pointee(self.of.target).clone();
                let all = b.cast(all, of_target.scalar().expect("compiler bug: a reduction of a type without scalars"));
                b.push(Op::Atomic(op, self.of.target, all), of_target);
            });
        });
    }
}
