//! Whether code of a loop goes on to its end.

use octants_ir::{BlockId, Body, Op};

/// A block of a loop leaves it, or its iteration, before the end.
pub fn may_leave(body: &Body, block: BlockId) -> bool {
    body.block(block).iter().any(|v| match &body.inst(*v).op {
        Op::Break | Op::Continue => true,
        Op::If(_, a, b) => may_leave(body, *a) || may_leave(body, *b),
        _ => false,
    })
}
