//! Paths of a function that end without the value that other paths return.

use octants_diag::{Code, Diagnostic, Result, Span};
use octants_ir::{BlockId, Body, Const, Op, Type, ValueId};

use super::{Lowerer, ReturnMode};
use crate::ast::{ExprKind, Stmt, StmtKind};
use crate::syntax_facts::is_static_call;
use crate::value::Value;

impl Lowerer<'_> {
    /// Refuses an IR function with a result if a path reaches the end of its body.
    pub(super) fn check_last_return(&mut self, body: &[Stmt]) -> Result<()> {
        let frame = self.frame_ref();
        let is_unit = match &frame.ret {
            ReturnMode::Function(ty) => ty.as_ref().is_none_or(|ty| *ty == Type::Unit),
            ReturnMode::Inferred(ty, _) => *ty == Type::Unit,
            _ => true,
        };
        if is_unit || !completes(&self.b.body, self.b.cursor(), &frame.dead_ends) {
            return Ok(());
        }
        let name = frame.name.clone();
        let (span, path) = open_path(body).unwrap_or((self.b.span, "after this statement"));
        let message = match frame.returned {
            Some(_) => format!("`{name}` returns a value on other paths, but none {path}"),
            None => format!("`{name}` has a return type, but returns no value {path}"),
        };
        Err(Diagnostic::new(Code::Syntax, span, message)
            .with_hint("add a `return` with a value at the end of the function"))
    }

    /// Refuses a `return` without a value in a function that has one.
    pub(super) fn refuse_bare_return(&self, first: Option<Span>) -> Result<()> {
        let text = match first {
            Some(first) => {
                let earlier = self.source_text(first);
                format!("this `return` has no value, but an earlier one of the function returns `{earlier}`")
            }
            None => "this `return` has no value, but the function has a return type".to_owned(),
        };
        Err(Diagnostic::new(Code::Syntax, self.b.span, text).with_hint("return a value on each path, or on none"))
    }

    /// Notes a loop that returns in its first iteration: it is assumed to have one.
    pub(super) fn note_returning_loop(&mut self, body: &[Stmt]) {
        if always_returns(body) {
            let block = self.b.cursor();
            self.frame().dead_ends.push(block);
        }
    }

    /// Notes an assertion that always fails: nothing is returned after it.
    pub(super) fn note_dead_end(&mut self, condition: &Value) {
        if matches!(condition, Value::Bool(false) | Value::Int(0)) {
            let block = self.b.cursor();
            self.frame().dead_ends.push(block);
        }
    }
}

/// Whether statements return on every path.
fn always_returns(body: &[Stmt]) -> bool {
    let end = body.iter().position(|s| match &s.kind {
        StmtKind::Return(_) => true,
        StmtKind::If(_, then, orelse) => always_returns(then) && always_returns(orelse),
        _ => false,
    });
    end.is_some_and(|end| !body[..end].iter().any(leaves_iteration))
}

/// Whether a `break` or `continue` of the loop around is in a statement.
fn leaves_iteration(s: &Stmt) -> bool {
    match &s.kind {
        StmtKind::Break | StmtKind::Continue => true,
        StmtKind::If(_, then, orelse) => then.iter().chain(orelse).any(leaves_iteration),
        _ => false,
    }
}

/// Whether control can reach the end of a block. Blocks in `dead_ends` are known not to end.
fn completes(body: &Body, block: BlockId, dead_ends: &[BlockId]) -> bool {
    !dead_ends.contains(&block)
        && body.block(block).iter().all(|v| match &body.inst(*v).op {
            Op::If(condition, then, orelse) => {
                let known = constant(body, *condition);
                known != Some(false) && completes(body, *then, dead_ends)
                    || known != Some(true) && completes(body, *orelse, dead_ends)
            }
            Op::Loop(inner) => breaks(body, *inner),
            op => !op.is_terminator(),
        })
}

/// Whether a `break` of the loop around a block can run.
fn breaks(body: &Body, block: BlockId) -> bool {
    for v in body.block(block) {
        match &body.inst(*v).op {
            Op::Break => return true,
            Op::If(condition, then, orelse) => {
                let known = constant(body, *condition);
                if known != Some(false) && breaks(body, *then) || known != Some(true) && breaks(body, *orelse) {
                    return true;
                }
            }
            _ => {}
        }
    }
    false
}

fn constant(body: &Body, condition: ValueId) -> Option<bool> {
    match body.inst(condition).op {
        Op::Const(Const::Int(value)) => Some(value != 0),
        _ => None,
    }
}

/// The position where a path reaches the end of a body, and its description for a message. `None` if the syntax shows
/// no such path.
fn open_path(body: &[Stmt]) -> Option<(Span, &'static str)> {
    let last = body.last()?;
    match &last.kind {
        StmtKind::Return(_) => None,
        StmtKind::While(test, ..) if matches!(test.kind, ExprKind::Bool(true) | ExprKind::Int(1)) => None,
        StmtKind::If(test, ..) if is_static_call(test) => Some((last.head(), "on a path through this statement")),
        StmtKind::If(test, _, orelse) if orelse.is_empty() => Some((test.span, "when this condition is false")),
        StmtKind::If(_, then, orelse) => open_path(then).or_else(|| open_path(orelse)),
        StmtKind::With(_, body) => open_path(body),
        _ => Some((last.head(), "after this statement")),
    }
}
