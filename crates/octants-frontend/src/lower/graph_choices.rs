//! `if qd.graph.cond(flag):`, a conditional in a kernel's graph.
//!
//! The loops of both branches are parallel if the conditional is at the top level of a kernel, or directly in a
//! data-dependent loop, section, checkpoint or other conditional of the graph. Any other `if` runs on one thread, with
//! its loops.

use octants_diag::{Code, Diagnostic, Result};
use octants_ir::{Op, Type};

use super::graph_sections::GraphSection;
use super::{Flow, Lowerer};
use crate::ast::{Expr, ExprKind, Stmt};
use crate::syntax_facts;
use crate::value::Value;
use crate::world::Entity;

impl Lowerer<'_> {
    /// The argument of a call of the builtin `name`, if an expression is one. Evaluates the callee only if its name may
    /// match, because a loop's test must not be evaluated outside of the loop.
    pub(super) fn graph_test<'e>(&mut self, test: &'e Expr, name: &str) -> Result<Option<&'e Expr>> {
        let ExprKind::Call(func, arguments) = &test.kind else { return Ok(None) };
        let (ExprKind::Attribute(_, last) | ExprKind::Name(last)) = &func.kind else { return Ok(None) };
        let is_like = last.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('_'));
        let ([condition], true) = (&arguments.positional[..], is_like) else { return Ok(None) };
        let callee = self.lower_expr(func)?;
        let is_known =
            matches!(&callee, Value::Obj(o) if matches!(self.world.entity(*o), Entity::Builtin(n) if n == name));
        if is_known {
            self.warn_of_flat_name(func, &format!("graph_{name}"));
        }
        Ok(is_known.then_some(condition))
    }

    /// Warns about deprecated flat names of `qd.graph`, such as `qd.graph_do_while`.
    pub(super) fn warn_of_flat_name(&mut self, func: &Expr, flat: &str) {
        let (ExprKind::Attribute(_, name) | ExprKind::Name(name)) = &func.kind else { return };
        // `qd.checkpoint` has no other name.
        if name == flat && flat.starts_with("graph_") {
            let message = format!("qd.{flat}() is deprecated and will be removed in a future release");
            let hint = format!("use qd.{}() instead", flat.replacen('_', ".", 1));
            self.world.warn(*Diagnostic::new(Code::Deprecated, func.span, message).with_hint(hint));
        }
    }

    pub(super) fn lower_choice(&mut self, condition: &Expr, then: &[Stmt], orelse: &[Stmt]) -> Result<Flow> {
        self.check_graph_kernel("qd.graph.cond()")?;
        if let GraphSection::Context { .. } | GraphSection::Section { nests: false } = self.graph_section {
            let message = "qd.graph.cond() cannot appear inside a qd.graph.parallel() section";
            return self.refuse_nesting(message, "the context");
        }
        if !self.at_top_level() {
            let message = "qd.graph.cond() must be at the kernel top level, or directly in a qd.graph.do_while() loop, \
                           a section, a checkpoint or another `if qd.graph.cond(...)`";
            let refused = Diagnostic::new(Code::Syntax, self.b.span, message);
            return Err(refused.with_hint("use a plain `if` here: its loops run on one thread"));
        }
        if syntax_facts::jumps(then) || syntax_facts::jumps(orelse) {
            return self
                .err(Code::Syntax, "`return`, `break` and `continue` cannot leave an `if qd.graph.cond(...)` block");
        }
        let span = self.b.span;
        if let Ok(known) = self.lower_expr(condition)
            && let Value::Bool(_) | Value::Int(_) = known
        {
            let holds = self.compile_time_truth(&known, "the condition of qd.graph.cond()")?;
            return self.scoped(|s| s.lower_stmts(if holds { then } else { orelse }));
        }
        let condition = self.graph_condition(condition, "qd.graph.cond()", "if")?;
        let holds = self.lower_condition(&condition, "if")?.1;
        let mut blocks = Vec::with_capacity(2);
        for branch in [then, orelse] {
            self.rounds += 1;
            let lowered = self.in_block(|s| {
                if branch.is_empty() {
                    s.mark_skipped(span)?;
                }
                s.lower_stmts(branch)
            });
            self.rounds -= 1;
            blocks.push(lowered?.0);
        }
        self.b.span = span;
        self.b.push(Op::If(holds, blocks[0], blocks[1]), Type::Unit);
        Ok(Flow::Normal)
    }
}
