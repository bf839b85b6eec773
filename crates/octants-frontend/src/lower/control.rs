//! Branches, `while`, `break`, `continue`, `assert`, and conditions.

use octants_diag::{Code, Diagnostic, Result, Span};
use octants_ir::{Op, Scalar, Type, ValueId};

use super::{Flow, LoopKind, Lowerer};
use crate::arith;
use crate::ast::{Expr, ExprKind, Stmt};
use crate::syntax_facts::is_static_call;
use crate::value::Value;
use crate::world::{Entity, Obj};

impl Lowerer<'_> {
    pub(super) fn lower_if(&mut self, test: &Expr, then: &[Stmt], orelse: &[Stmt]) -> Result<Flow> {
        if let Some(condition) = self.graph_test(test, "cond")? {
            return self.lower_choice(condition, then, orelse);
        }
        let is_static = is_static_call(test);
        let cond = self.lower_expr(test)?;
        if is_static {
            let cond = self.compile_time_truth(&cond, "an `if qd.static(...)`")?;
            return self.scoped(|s| s.lower_stmts(if cond { then } else { orelse }));
        }
        self.b.span = test.span;
        let known = match cond {
            Value::Bool(holds) => Some(holds),
            Value::Int(n) => Some(n != 0),
            _ => None,
        };
        let cond = self.condition("if", &cond)?;
        let (a, flow_a) = self.in_block(|s| s.in_branch(known == Some(false), |s| s.lower_stmts(then)))?;
        let (b, flow_b) = self.in_block(|s| {
            if orelse.is_empty() {
                s.mark_skipped(test.span)?;
            }
            s.in_branch(known == Some(true), |s| s.lower_stmts(orelse))
        })?;
        for flow in [flow_a, flow_b] {
            match flow {
                Flow::Normal | Flow::Return => {}
                Flow::Break | Flow::Continue => {
                    let word = if flow == Flow::Break { "break" } else { "continue" };
                    let message = format!(
                        "You are trying to `{word}` a static `for` loop, but the `{word}` statement is inside a \
                         non-static `if`."
                    );
                    return Err(Diagnostic::new(Code::Syntax, self.b.span, message)
                        .with_hint("use `if qd.static(...)`, or a run-time loop"));
                }
            }
        }
        self.b.push(Op::If(cond, a, b), Type::Unit);
        Ok(Flow::Normal)
    }

    /// Lowers a branch, which may be one that never runs.
    fn in_branch<T>(&mut self, never_runs: bool, lower: impl FnOnce(&mut Self) -> T) -> T {
        let around = self.never_runs;
        self.never_runs |= never_runs;
        let lowered = lower(self);
        self.never_runs = around;
        lowered
    }

    pub(super) fn lower_while(&mut self, test: &Expr, body: &[Stmt]) -> Result<()> {
        if let Some(counter) = self.graph_test(test, "do_while")? {
            return self.lower_do_while(counter, body);
        }
        self.mark_headers()?;
        self.frame().loops.push(LoopKind::Serial);
        let result = self.in_block(|s| {
            let cond = s.lower_expr(test)?;
            s.b.span = test.span;
            if !matches!(cond, Value::Bool(true)) {
                let cond = s.condition("while", &cond)?;
                s.break_unless(cond);
            }
            s.lower_stmts(body)
        });
        self.frame().loops.pop();
        let (block, _) = result?;
        self.b.push(Op::Loop(block), Type::Unit);
        Ok(())
    }

    pub(super) fn lower_break(&mut self) -> Result<Flow> {
        match self.frame_ref().loops.last().copied() {
            None => self.err(Code::Syntax, "`break` outside of a loop"),
            Some(LoopKind::Static(_)) => Ok(Flow::Break),
            Some(LoopKind::Serial) => {
                self.b.push(Op::Break, Type::Unit);
                Ok(Flow::Normal)
            }
            Some(LoopKind::Parallel) => Err(Diagnostic::new(
                Code::Syntax,
                self.b.span,
                "Cannot break in the outermost loop: its iterations run in parallel",
            )
            .with_hint("write `qd.loop_config(serialize=True)` before the loop to run it in order, or skip iterations with `continue`")),
        }
    }

    pub(super) fn lower_continue(&mut self) -> Result<Flow> {
        match self.frame_ref().loops.last().copied() {
            None => self.err(Code::Syntax, "`continue` outside of a loop"),
            Some(LoopKind::Static(_)) => Ok(Flow::Continue),
            Some(LoopKind::Serial | LoopKind::Parallel) => {
                self.b.push(Op::Continue, Type::Unit);
                Ok(Flow::Normal)
            }
        }
    }

    pub(super) fn lower_assert(&mut self, test: &Expr, message: Option<&Expr>) -> Result<()> {
        let cond = self.lower_expr(test)?;
        self.note_dead_end(&cond);
        self.b.span = test.span;
        let parts = match message {
            Some(m) => {
                let outer = std::mem::replace(&mut self.in_assertion, true);
                let text = self.lower_expr(m);
                self.in_assertion = outer;
                let text = text?;
                let is_constant =
                    matches!(m.kind, ExprKind::Int(_) | ExprKind::Float(_) | ExprKind::Bool(_) | ExprKind::None);
                if !is_constant && !matches!(text, Value::Str(_) | Value::Text(_)) {
                    let what = self.describe(&text);
                    let message =
                        format!("the message of an assertion must be a constant or a formatted string, not {what}");
                    return Err(Diagnostic::new(Code::Syntax, m.span, message).with_hint("write an f-string"));
                }
                self.text_of(&text)?
            }
            None => vec![octants_ir::TextPart::Text(self.source_text(test.span))],
        };
        if !self.options.debug {
            return Ok(());
        }
        let cond = self.condition("assert", &cond)?;
        self.b.push(Op::Assert(cond, parts), Type::Unit);
        Ok(())
    }

    /// The user's text of a span.
    pub(super) fn source_text(&self, span: Span) -> String {
        self.sources
            .get(span.file)
            .and_then(|f| f.text.get(span.start as usize..span.end as usize))
            .unwrap_or_default()
            .to_owned()
    }

    /// A scalar truth value at run time.
    pub(super) fn condition(&mut self, what: &str, v: &Value) -> Result<ValueId> {
        match v {
            Value::Bool(b) => Ok(self.b.int(i64::from(*b), Scalar::U1)),
            Value::Int(i) => Ok(self.b.int(i64::from(*i != 0), Scalar::U1)),
            // A constant float is rejected like a run-time float.
            Value::Float(_) => {
                let v = self.rt(v)?;
                arith::to_condition(&mut self.b, what, v)
            }
            // Python treats every such object as true.
            Value::Array(_) => self.whole_as_condition(what, "an array"),
            Value::Obj(o) if self.is_whole_array(*o) => self.whole_as_condition(what, "a field"),
            _ if v.is_compile_time() => {
                let truth = self.compile_time_truth(v, "a condition")?;
                Ok(self.b.int(i64::from(truth), Scalar::U1))
            }
            _ => {
                let v = self.rt(v)?;
                arith::to_condition(&mut self.b, what, v)
            }
        }
    }

    fn whole_as_condition(&self, what: &str, found: &str) -> Result<ValueId> {
        let text = format!("the condition of `{what}` is {found}, which has no truth value");
        Err(Diagnostic::new(Code::Type, self.b.span, text)
            .with_hint("use an element: `x[None]` where there is only one, else `x[i]`"))
    }

    fn is_whole_array(&self, object: Obj) -> bool {
        let entity = self.world.entity(object);
        matches!(entity, Entity::Field(_) | Entity::ReorderedField { .. } | Entity::Ndarray(_))
    }
}
