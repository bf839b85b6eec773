//! Makes a function return at its end alone: what follows a branch that returns moves into the other branch, and the
//! result passes through a local.
//!
//! A function that returns from within a loop, or from within a branch that may also go on on both sides, stays as it
//! is.

use octants_ir::{BlockId, Body, Function, LocalId, Op, Type, ValueId};

/// Makes the function return at its end, where branches alone are in the way.
pub fn return_at_end(function: &mut Function) {
    let body = &mut function.body;
    if ends(body, body.block(body.root)).is_none() {
        return;
    }
    let result = (function.ret != Type::Unit).then(|| body.add_local("result", function.ret.clone()));
    move_returns(body, body.root, result);
    let value = result.map(|local| {
        let addr = push(body, Op::LocalAddr(local), Type::Ref(Box::new(function.ret.clone())));
        push(body, Op::Load(addr), function.ret.clone())
    });
    push(body, Op::Return(value), Type::Unit);
}

fn push(body: &mut Body, op: Op, ty: Type) -> ValueId {
    let v = body.add_inst(op, ty, Default::default());
    let root = body.root.index();
    body.blocks[root].push(v);
    v
}

/// Whether code with nothing behind it always returns; `None` where its returns cannot be moved.
fn ends(body: &Body, code: &[ValueId]) -> Option<bool> {
    for (at, v) in code.iter().enumerate() {
        match &body.inst(*v).op {
            Op::Return(_) => return Some(true),
            Op::If(_, then, otherwise) if returns(body, *then) || returns(body, *otherwise) => {
                let (arms, rest) = ([then, otherwise].map(|b| body.block(*b)), &code[at + 1..]);
                return match [ends(body, arms[0])?, ends(body, arms[1])?] {
                    [true, true] => Some(true),
                    [false, false] if rest.is_empty() => Some(false),
                    // What follows would stand in both branches.
                    [false, false] => None,
                    [returned, _] => ends(body, &[arms[usize::from(returned)], rest].concat()),
                };
            }
            op if op.blocks().into_iter().any(|b| returns(body, b)) => return None,
            _ => {}
        }
    }
    Some(false)
}

/// Some return is in the block, or in a block within it.
fn returns(body: &Body, block: BlockId) -> bool {
    let mut found = false;
    body.visit(block, &mut |_, inst| found |= matches!(inst.op, Op::Return(_)));
    found
}

/// Turns the returns of a block with nothing behind it into stores to the result.
fn move_returns(body: &mut Body, block: BlockId, result: Option<LocalId>) {
    let code = std::mem::take(&mut body.blocks[block.index()]);
    for (at, v) in code.iter().copied().enumerate() {
        match body.inst(v).op.clone() {
            Op::Return(value) => {
                if let (Some(value), Some(local)) = (value, result) {
                    let (span, ty) = (body.inst(v).span, body.ty(value).clone());
                    let addr = body.add_inst(Op::LocalAddr(local), Type::Ref(Box::new(ty)), span);
                    let store = body.add_inst(Op::Store(addr, value), Type::Unit, span);
                    body.blocks[block.index()].extend([addr, store]);
                }
                return;
            }
            Op::If(_, then, otherwise) if returns(body, then) || returns(body, otherwise) => {
                body.blocks[block.index()].push(v);
                let goes_on = [then, otherwise].into_iter().find(|b| ends(body, body.block(*b)) == Some(false));
                if let Some(goes_on) = goes_on {
                    body.blocks[goes_on.index()].extend_from_slice(&code[at + 1..]);
                }
                move_returns(body, then, result);
                move_returns(body, otherwise, result);
                return;
            }
            _ => body.blocks[block.index()].push(v),
        }
    }
}
