//! Rewrites a function to return only at its end, so that it can be inlined.
//!
//! If only branches intervene, the code after a returning branch moves into the other branch. Otherwise a flag records
//! that the function has returned: a return within a loop leaves the loop, code after it runs only if the flag is
//! unset, and enclosing loops are left too. The result passes through a local.

use octants_diag::Span;
use octants_ir::{BlockId, Body, Const, Function, LocalId, Op, Scalar, Type, UnaryOp, ValueId};

/// Makes the function return at its end.
pub fn return_at_end(function: &mut Function) {
    let body = &mut function.body;
    let result = (function.ret != Type::Unit).then(|| body.add_local("result", function.ret.clone()));
    if ends(body, body.block(body.root)).is_some() {
        move_returns(body, body.root, result);
    } else {
        let returned = body.add_local("returned", Type::U1);
        let root = body.root;
        let code = std::mem::take(&mut body.blocks[root.index()]);
        let mut exits = Exits { body, returned, result };
        exits.set_returned(root, 0, Span::default());
        exits.block(root, &code, Enclosing::Function);
    }
    let value = result.map(|local| {
        let addr = push(body, Op::LocalAddr(local), Type::Ref(Box::new(function.ret.clone())));
        push(body, Op::Load(addr), function.ret.clone())
    });
    push(body, Op::Return(value), Type::Unit);
}

fn push(body: &mut Body, op: Op, ty: Type) -> ValueId {
    let root = body.root;
    place(body, root, op, ty, Span::default())
}

fn place(body: &mut Body, to: BlockId, op: Op, ty: Type, span: Span) -> ValueId {
    let v = body.add_inst(op, ty, span);
    body.blocks[to.index()].push(v);
    v
}

/// Whether code always returns; `None` if its returns cannot be moved to the end.
fn ends(body: &Body, code: &[ValueId]) -> Option<bool> {
    for (at, v) in code.iter().enumerate() {
        match &body.inst(*v).op {
            Op::Return(_) => return Some(true),
            Op::If(_, then, otherwise) if returns(body, *then) || returns(body, *otherwise) => {
                let (arms, rest) = ([then, otherwise].map(|b| body.block(*b)), &code[at + 1..]);
                return match [ends(body, arms[0])?, ends(body, arms[1])?] {
                    [true, true] => Some(true),
                    [false, false] if rest.is_empty() => Some(false),
                    // The following code would be needed in both branches.
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

/// Stores the value of a return.
fn store_result(body: &mut Body, to: BlockId, result: Option<LocalId>, value: Option<ValueId>, span: Span) {
    if let (Some(value), Some(local)) = (value, result) {
        let ty = body.ty(value).clone();
        let addr = place(body, to, Op::LocalAddr(local), Type::Ref(Box::new(ty)), span);
        place(body, to, Op::Store(addr, value), Type::Unit, span);
    }
}

/// Turns the returns of a block with nothing after it into stores to the result.
fn move_returns(body: &mut Body, block: BlockId, result: Option<LocalId>) {
    let code = std::mem::take(&mut body.blocks[block.index()]);
    for (at, v) in code.iter().copied().enumerate() {
        match body.inst(v).op.clone() {
            Op::Return(value) => {
                let span = body.inst(v).span;
                store_result(body, block, result, value, span);
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

/// The innermost construct that a return leaves.
#[derive(Clone, Copy, PartialEq)]
enum Enclosing {
    Function,
    Loop,
}

/// Returns that set a local, and leave the loops around them.
struct Exits<'a> {
    body: &'a mut Body,
    returned: LocalId,
    result: Option<LocalId>,
}

impl Exits<'_> {
    /// Places code in a block.
    fn block(&mut self, block: BlockId, code: &[ValueId], around: Enclosing) {
        for (at, &v) in code.iter().enumerate() {
            let (op, span) = (self.body.inst(v).op.clone(), self.body.inst(v).span);
            if let Op::Return(value) = op {
                store_result(self.body, block, self.result, value, span);
                self.set_returned(block, 1, span);
                if around == Enclosing::Loop {
                    place(self.body, block, Op::Break, Type::Unit, span);
                }
                return;
            }
            self.body.blocks[block.index()].push(v);
            let inner: Vec<BlockId> = op.blocks().into_iter().collect();
            if !inner.iter().any(|b| returns(self.body, *b)) {
                continue;
            }
            let is_loop = !matches!(op, Op::If(..));
            for b in inner {
                let code = std::mem::take(&mut self.body.blocks[b.index()]);
                self.block(b, &code, if is_loop { Enclosing::Loop } else { around });
            }
            match around {
                // A branch has left the loop by itself.
                Enclosing::Loop if !is_loop => {}
                Enclosing::Loop => {
                    let returned = self.has_returned(block, span);
                    let leave = self.branch(block, returned, span);
                    place(self.body, leave, Op::Break, Type::Unit, span);
                }
                Enclosing::Function if at + 1 == code.len() => {}
                Enclosing::Function => {
                    let returned = self.has_returned(block, span);
                    let goes_on = place(self.body, block, Op::Unary(UnaryOp::LogicNot, returned), Type::U1, span);
                    let rest = self.branch(block, goes_on, span);
                    return self.block(rest, &code[at + 1..], around);
                }
            }
        }
    }

    fn set_returned(&mut self, block: BlockId, value: i64, span: Span) {
        let address = Type::Ref(Box::new(Type::U1));
        let addr = place(self.body, block, Op::LocalAddr(self.returned), address, span);
        let value = place(self.body, block, Op::Const(Const::Int(value)), Scalar::U1.into(), span);
        place(self.body, block, Op::Store(addr, value), Type::Unit, span);
    }

    fn has_returned(&mut self, block: BlockId, span: Span) -> ValueId {
        let address = Type::Ref(Box::new(Type::U1));
        let addr = place(self.body, block, Op::LocalAddr(self.returned), address, span);
        place(self.body, block, Op::Load(addr), Type::U1, span)
    }

    /// A branch without an `else` block; yields the block that it runs.
    fn branch(&mut self, block: BlockId, condition: ValueId, span: Span) -> BlockId {
        let [yes, no] = [self.body.add_block(), self.body.add_block()];
        place(self.body, block, Op::If(condition, yes, no), Type::Unit, span);
        yes
    }
}
