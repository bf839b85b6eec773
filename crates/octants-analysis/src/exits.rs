//! Whether code in a loop always reaches its end.

use octants_ir::{BlockId, Body, Op, ValueId};

/// A block of a loop leaves it, or its iteration, before the end.
pub fn may_leave(body: &Body, block: BlockId) -> bool {
    body.block(block).iter().any(|v| exits_of(body, *v) != [false; 2])
}

/// Whether an instruction may leave the loop around it by `break`, or its iteration by `continue`.
pub fn exits_of(body: &Body, v: ValueId) -> [bool; 2] {
    match &body.inst(v).op {
        Op::Break => [true, false],
        Op::Continue => [false, true],
        Op::If(_, yes, no) => {
            let both = body.block(*yes).iter().chain(body.block(*no));
            both.fold([false; 2], |[b, c], v| {
                let [more_b, more_c] = exits_of(body, *v);
                [b | more_b, c | more_c]
            })
        }
        _ => [false; 2],
    }
}
