//! The code of a kernel that becomes tasks: the blocks in which parallel loops are allowed, and the ends of repeated
//! blocks.

use std::collections::BTreeSet;

use crate::body::Body;
use crate::op::{BlockId, LoopGroup, Op, ValueId};

/// The blocks of a kernel's body in which a parallel loop may be: the root, and there the body of each `loop` and
/// both blocks of each `if` that holds one, a checkpoint or a section. In order, outer before inner.
pub fn task_blocks(body: &Body) -> Vec<BlockId> {
    let mut blocks = vec![body.root];
    add_task_blocks(body, body.root, &mut blocks);
    blocks
}

/// The blocks of `if`s among the [`task_blocks`].
pub fn task_branches(body: &Body) -> BTreeSet<BlockId> {
    let blocks: BTreeSet<BlockId> = task_blocks(body).into_iter().collect();
    let of = |v: &ValueId| match body.inst(*v).op {
        Op::If(_, yes, no) if blocks.contains(&yes) => vec![yes, no],
        _ => Vec::new(),
    };
    blocks.iter().flat_map(|b| body.block(*b)).flat_map(of).collect()
}

/// Whether a block holds a parallel loop, a checkpoint or a section, directly or in a nested `loop` or `if`.
pub fn holds_tasks(body: &Body, block: BlockId) -> bool {
    add_task_blocks(body, block, &mut Vec::new())
}

/// True if the block holds a parallel loop, directly or in a nested `loop` or `if`. Adds the blocks of those.
fn add_task_blocks(body: &Body, block: BlockId, blocks: &mut Vec<BlockId>) -> bool {
    let mut holds = false;
    for &v in body.block(block) {
        match &body.inst(v).op {
            Op::For(l) => holds |= l.parallel.is_some(),
            Op::Checkpoint(..) | Op::Section(_) => holds = true,
            Op::Loop(inner) => {
                let at = blocks.len();
                blocks.push(*inner);
                if add_task_blocks(body, *inner, blocks) {
                    holds = true;
                } else {
                    blocks.truncate(at);
                }
            }
            Op::If(_, yes, no) => {
                let at = blocks.len();
                let mut any = false;
                for inner in [*yes, *no] {
                    blocks.push(inner);
                    any |= add_task_blocks(body, inner, blocks);
                }
                if any {
                    holds = true;
                } else {
                    blocks.truncate(at);
                }
            }
            _ => {}
        }
    }
    holds
}

/// The instructions of all [`task_blocks`], in the order of the text.
pub fn task_statements(body: &Body) -> Vec<ValueId> {
    task_blocks(body).into_iter().flat_map(|b| body.block(b).iter().copied()).collect()
}

/// How an iteration of a `loop` that contains parallel loops ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoundEnd {
    /// The loop repeats if the value equals the given one.
    Repeats(ValueId, bool),
    /// The loop ends.
    Leaves,
}

/// The group that a `loop` with this block is a section of.
pub fn section_of(body: &Body, block: BlockId) -> Option<LoopGroup> {
    match body.block(block) {
        [.., end, _] => match body.inst(*end).op {
            Op::Section(group) => Some(group),
            _ => None,
        },
        _ => None,
    }
}

/// How a round ends, in a block that only its last instruction leaves; `None` for any other block.
pub fn round_end(body: &Body, block: BlockId) -> Option<RoundEnd> {
    let (last, before) = body.block(block).split_last()?;
    if before.iter().any(|v| may_jump(body, *v)) {
        return None;
    }
    let is_break = |b: BlockId| matches!(body.block(b), [v] if body.inst(*v).op == Op::Break);
    match body.inst(*last).op {
        Op::Break => Some(RoundEnd::Leaves),
        Op::If(c, yes, no) if body.block(yes).is_empty() && is_break(no) => Some(RoundEnd::Repeats(c, true)),
        Op::If(c, yes, no) if body.block(no).is_empty() && is_break(yes) => Some(RoundEnd::Repeats(c, false)),
        _ => None,
    }
}

/// An instruction may leave the loop that it is in directly, or end its round.
fn may_jump(body: &Body, v: ValueId) -> bool {
    match &body.inst(v).op {
        Op::Break | Op::Continue | Op::Return(_) => true,
        Op::If(_, yes, no) => jumps(body, *yes) || jumps(body, *no),
        _ => false,
    }
}

/// Some instruction of a block may leave the loop around it, or end its round.
pub(crate) fn jumps(body: &Body, block: BlockId) -> bool {
    body.block(block).iter().any(|v| may_jump(body, *v))
}
