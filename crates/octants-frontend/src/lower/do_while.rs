//! `while qd.graph.do_while(counter):`, a loop whose iterations consist of tasks of the kernel.
//!
//! At the top level of a kernel, and directly in another such loop, the loops inside are parallel, unless another
//! statement (`break`, `continue`, `return`) leaves an iteration.

use std::collections::BTreeSet;

use octants_diag::{Code, Diagnostic, Result, Span};
use octants_ir::{
    AutodiffMode, BinaryOp, BlockId, BufferId, ForLoop, LocalId, LoopConfig, Op, Range, Scalar, TextPart, Type,
    UnaryOp, ValueId, holds_tasks,
};

use super::graph_sections::GraphSection;
use super::{LoopKind, Lowerer};
use crate::arith::type_name;
use crate::ast::{Expr, Stmt};
use crate::syntax_facts;
use crate::value::Value;

/// The condition of a loop or branch of a graph.
pub(super) enum Condition<'e> {
    /// The element of an array without axes.
    Counter(BufferId),
    /// A number that is computed at the end of a round.
    Expression(&'e Expr),
}

impl Lowerer<'_> {
    pub(super) fn lower_do_while(&mut self, condition: &Expr, body: &[Stmt]) -> Result<()> {
        self.check_graph_kernel("qd.graph.do_while()")?;
        if let GraphSection::Context { .. } | GraphSection::Section { nests: false } = self.graph_section {
            let message = "qd.graph.do_while() cannot appear inside a qd.graph.parallel() section";
            return self.refuse_nesting(message, "the context");
        }
        if !self.at_top_level() {
            let message = "qd.graph.do_while() must be at the kernel top level or directly in another \
                           qd.graph.do_while() loop, or in an `if qd.graph.cond(...)` there";
            let mut refused = Diagnostic::new(Code::Syntax, self.b.span, message);
            if self.serial_rounds > 0 {
                refused = refused.with_hint(
                    "a `break`, `continue` or `return` may leave an iteration of the loop around it, which therefore \
                     runs on one thread: end that loop by its condition",
                );
            }
            return Err(refused);
        }
        let span = condition.span;
        let condition = self.graph_condition(condition, "qd.graph.do_while()", "while")?;
        let locals = self.locals_of_condition(&condition, span)?;
        let is_run = matches!(self.options.mode, AutodiffMode::None | AutodiffMode::Validation);
        let is_differentiated = self.options.mode != AutodiffMode::None;
        let limit = if is_run { self.options.graph_max_iterations } else { 0 };
        let rounds = (limit > 0).then(|| {
            let zero = self.b.int(0, Scalar::I64);
            self.new_local("rounds", zero)
        });
        let is_of_tasks = !syntax_facts::jumps(body);
        self.frame().loops.push(LoopKind::Serial);
        self.rounds += u32::from(is_of_tasks);
        self.serial_rounds += u32::from(!is_of_tasks);
        let result = self.in_block(|s| {
            s.lower_stmts(body)?;
            if is_of_tasks && is_differentiated && !holds_tasks(&s.b.body, s.b.cursor()) {
                s.add_empty_task();
            }
            if let Some(rounds) = rounds {
                s.check_rounds(&condition, rounds, limit)?;
            }
            let again = s.lower_condition(&condition, "while")?.1;
            s.break_unless(again);
            Ok(())
        });
        self.rounds -= u32::from(is_of_tasks);
        self.serial_rounds -= u32::from(!is_of_tasks);
        self.frame().loops.pop();
        let (block, ()) = result?;
        if locals.is_some_and(|locals| !self.writes_to(block, &locals)) {
            return Err(never_changes(span));
        }
        self.b.push(Op::Loop(block), Type::Unit);
        Ok(())
    }

    /// Adds a parallel loop that does nothing. A round of a graph's loop is one of tasks even if it has no other: this
    /// is how derivatives find its counters.
    fn add_empty_task(&mut self) {
        let [zero, one] = [0, 1].map(|n| self.b.int(n, Scalar::I32));
        let block = self.b.body.add_block();
        let l = ForLoop::parallel(vec![Range { begin: zero, end: one }], block, LoopConfig::default());
        self.b.push(Op::For(Box::new(l)), Type::Unit);
    }

    /// The condition of a part of the graph: the argument of `call` in a statement that begins with `word`.
    pub(super) fn graph_condition<'e>(&mut self, e: &'e Expr, call: &str, word: &str) -> Result<Condition<'e>> {
        let value = match self.lower_expr(e) {
            Err(d) if matches!(d.code, Code::Name | Code::Attribute | Code::Compilation) => {
                let what = "does not resolve to an ndarray kernel parameter";
                return self.err(Code::Syntax, format!("{call} {what}: {}", d.message));
            }
            value => value?,
        };
        if self.as_array(&value)?.is_none() && !value.is_compile_time() {
            // An error of its type is found here, where the user's text is.
            self.condition(word, &value)?;
            return Ok(Condition::Expression(e));
        }
        self.counter(&value, call).map(Condition::Counter)
    }

    /// The local variables that a condition depends on, if it depends on nothing else that a round can change. Refuses
    /// one that no round can change: the loop would not end.
    fn locals_of_condition(&mut self, condition: &Condition<'_>, span: Span) -> Result<Option<BTreeSet<LocalId>>> {
        let Condition::Expression(e) = condition else { return Ok(None) };
        let value = self.lower_expr(e)?;
        let value = self.rt(&value)?;
        let body = &self.b.body;
        let (mut work, mut locals) = (vec![value], BTreeSet::new());
        while let Some(v) = work.pop() {
            let op = &body.inst(v).op;
            match op {
                Op::LocalAddr(local) => _ = locals.insert(*local),
                Op::BufferAddr(..) => return Ok(None),
                Op::Load(_) => {}
                op if !op.is_pure() => return Ok(None),
                _ => {}
            }
            op.for_each_operand(|u| work.push(u));
        }
        if locals.is_empty() { Err(never_changes(span)) } else { Ok(Some(locals)) }
    }

    /// Whether a block does more with local variables than read them.
    fn writes_to(&self, block: BlockId, locals: &BTreeSet<LocalId>) -> bool {
        let body = &self.b.body;
        let is_one = |v| matches!(&body.inst(v).op, Op::LocalAddr(local) if locals.contains(local));
        let mut writes = false;
        body.visit(block, &mut |_, inst| {
            if !matches!(inst.op, Op::Load(_)) {
                inst.op.for_each_operand(|v| writes |= is_one(v));
            }
        });
        writes
    }

    /// The tested value, and whether it is not zero.
    pub(super) fn lower_condition(&mut self, condition: &Condition<'_>, word: &str) -> Result<(Value, ValueId)> {
        let value = match condition {
            Condition::Counter(buffer) => self.element(*buffer, &[])?,
            Condition::Expression(e) => self.lower_expr(e)?,
        };
        let holds = self.condition(word, &value)?;
        Ok((value, holds))
    }

    /// Counts an iteration, and fails if another one would exceed the limit.
    fn check_rounds(&mut self, condition: &Condition<'_>, rounds: LocalId, limit: u32) -> Result<()> {
        let (value, again) = self.lower_condition(condition, "while")?;
        let one = self.b.int(1, Scalar::I64);
        let [_, count] = self.b.update_local(rounds, |b, n| b.binary(BinaryOp::Add, n, one));
        let most = self.b.int(limit.into(), Scalar::I64);
        let is_last = self.b.binary(BinaryOp::Ge, count, most);
        let exceeds = self.b.binary(BinaryOp::And, again, is_last);
        let fits = self.b.unary(UnaryOp::LogicNot, exceeds);
        let end = format!(" after {limit} iterations, the limit set by `graph_max_iterations`");
        let parts = match condition {
            Condition::Counter(buffer) => {
                let name = self.buffers[buffer.index()].name.clone();
                let value = self.value_for(&value, &Type::I32)?;
                vec![
                    TextPart::Text(format!("qd.graph.do_while(): `{name}` is still ")),
                    TextPart::Value(value, None),
                    TextPart::Text(end),
                ]
            }
            Condition::Expression(_) => {
                vec![TextPart::Text(format!("qd.graph.do_while(): the condition still holds{end}"))]
            }
        };
        self.b.push(Op::Assert(fits, parts), Type::Unit);
        Ok(())
    }

    /// The 0-dimensional i32 array that a value is, for a part of a graph that is decided by it.
    pub(super) fn counter(&mut self, value: &Value, what: &str) -> Result<BufferId> {
        let Some(buffer) = self.as_array(value)? else {
            let given = self.describe(value);
            let expected = "does not resolve to an ndarray kernel parameter: it takes a 0-dimensional i32 ndarray";
            return self.err(Code::Syntax, format!("{what} {expected}, not {given}"));
        };
        let decl = &self.buffers[buffer.index()];
        if decl.ndim != 0 || decl.elem != Type::I32 {
            let shown = if decl.name.is_empty() { "the array".into() } else { format!("`{}`", decl.name) };
            let has = format!("it has {} dimensions and elements of type {}", decl.ndim, type_name(&decl.elem));
            let message = format!("{what}: {shown} must be a 0-dimensional i32 ndarray or field, but {has}");
            return self.err(Code::Type, message);
        }
        Ok(buffer)
    }

    /// Leaves the loop unless a condition holds.
    pub(super) fn break_unless(&mut self, cond: ValueId) {
        let go_on = self.b.body.add_block();
        let stop = self.b.body.add_block();
        let back = self.b.set_cursor(stop);
        self.b.push(Op::Break, Type::Unit);
        self.b.set_cursor(back);
        self.b.push(Op::If(cond, go_on, stop), Type::Unit);
    }
}

fn never_changes(at: Span) -> Box<Diagnostic> {
    let message = "qd.graph.do_while() does not resolve to an ndarray kernel parameter: this condition never changes";
    Diagnostic::new(Code::Syntax, at, message)
        .with_hint("pass a 0-dimensional i32 ndarray, or an expression that depends on data that the loop body changes")
}
