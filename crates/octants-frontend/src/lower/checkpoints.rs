//! `with qd.checkpoint(label, yield_on=flag):`, a point at which a launch may end and a later one resume.
//!
//! The body is a `loop` that is left at its end, after a `checkpoint` instruction with the label and the flag. In a
//! differentiated kernel the statements are lowered without the loop: a derivative neither ends early nor resumes.

use octants_diag::{Code, Diagnostic, Result};
use octants_ir::{AutodiffMode, Op, Type};

use super::graph_sections::GraphSection;
use super::{Flow, Lowerer};
use crate::ast::{Arguments, Expr, ExprKind, Stmt, StmtKind};
use crate::value::Value;
use crate::world::{Entity, GraphUse, Obj};

impl Lowerer<'_> {
    pub(super) fn lower_checkpoint(&mut self, arguments: &Arguments, body: &[Stmt]) -> Result<Flow> {
        match self.graph_section {
            GraphSection::Outside => {}
            GraphSection::Checkpoint => return self.err(Code::Syntax, "qd.checkpoint() blocks cannot be nested"),
            _ => {
                return self
                    .err(Code::Syntax, "qd.checkpoint() cannot appear inside a qd.graph.parallel_context() block");
            }
        }
        match self.graph {
            GraphUse::WithCheckpoints => {}
            GraphUse::Graph => {
                let message = "qd.checkpoint() requires @qd.kernel(graph=True, checkpoints=True)";
                let refused = Diagnostic::new(Code::Syntax, self.b.span, message);
                return Err(refused.with_hint("add `checkpoints=True` to the decorator"));
            }
            GraphUse::None => return self.err(Code::Syntax, "qd.checkpoint() requires @qd.kernel(graph=True)"),
        }
        if self.options.mode == AutodiffMode::None && !self.at_top_level() {
            return self.err(
                Code::Syntax,
                "qd.checkpoint() must be at the kernel top level or directly in a qd.graph.do_while() loop",
            );
        }
        let (label, yield_on) = self.checkpoint_arguments(arguments)?;
        let (number, object) = self.checkpoint_label(label)?;
        let flag = self.lower_expr(yield_on)?;
        let buffer = self.counter(&flag, "qd.checkpoint(yield_on=...)")?;
        if self.checkpoints.iter().any(|(known, _)| *known == number) {
            return self.err(
                Code::Syntax,
                format!("qd.checkpoint(): the label {number} is already used by another checkpoint of this kernel"),
            );
        }
        self.checkpoints.push((number, object));
        for statement in body {
            self.check_checkpoint_statement(statement)?;
        }
        self.graph_section = GraphSection::Checkpoint;
        let flow = match self.options.mode {
            AutodiffMode::None => self.lower_part(body, |s| {
                let value = s.element(buffer, &[])?;
                let value = s.value_for(&value, &Type::I32)?;
                s.b.push(Op::Checkpoint(number, value), Type::Unit);
                Ok(())
            }),
            _ => self.scoped(|s| s.lower_stmts(body)),
        };
        self.graph_section = GraphSection::Outside;
        match flow? {
            Flow::Normal => Ok(Flow::Normal),
            _ => {
                self.err(Code::Syntax, "`return`, `break` and `continue` cannot leave a 'with qd.checkpoint():' block")
            }
        }
    }

    /// Label and flag, by place or by name.
    fn checkpoint_arguments<'e>(&self, arguments: &'e Arguments) -> Result<(&'e Expr, &'e Expr)> {
        let mut given = [arguments.positional.first(), arguments.positional.get(1)];
        if arguments.positional.len() > 2 {
            return self.err(Code::Syntax, "qd.checkpoint() takes two arguments: a label and `yield_on=`");
        }
        for (name, value) in &arguments.keywords {
            let slot = match name.as_deref() {
                Some("cp_id") => &mut given[0],
                Some("yield_on") => &mut given[1],
                name => {
                    let name = name.unwrap_or("**");
                    return self.err(Code::Syntax, format!("qd.checkpoint() got an unexpected argument `{name}`"));
                }
            };
            if slot.replace(value).is_some() {
                let name = name.as_deref().unwrap_or_default();
                return self.err(Code::Syntax, format!("qd.checkpoint() got multiple values for argument `{name}`"));
            }
        }
        let [label, flag] = given;
        let missing =
            |what| self.err(Code::Syntax, format!("qd.checkpoint() is missing the required argument `{what}`"));
        match (label, flag) {
            (Some(label), Some(flag)) => Ok((label, flag)),
            (None, _) => missing("cp_id"),
            _ => missing("yield_on"),
        }
    }

    /// A compile-time integer, and its Python object: members of enumerations are preserved.
    fn checkpoint_label(&mut self, label: &Expr) -> Result<(i64, Obj)> {
        let member = match &label.kind {
            ExprKind::Attribute(of, name) => match self.lower_expr(of)? {
                Value::Obj(of) => self.world.attribute(of, name).map_err(|e| self.host_error(e))?,
                _ => None,
            },
            _ => None,
        };
        let number = match member.map(|o| self.world.entity(o)) {
            Some(Entity::Int(n)) => Some(n),
            _ => match self.lower_expr(label)? {
                Value::Int(n) => Some(n),
                _ => None,
            },
        };
        match number.and_then(|n| i64::try_from(n).ok()) {
            Some(number) => {
                let object = member.unwrap_or_else(|| self.world.make(crate::world::HostValue::Int(number.into())));
                Ok((number, object))
            }
            None => self.err(
                Code::Syntax,
                "qd.checkpoint() first argument must be an int literal or an IntEnum value, known at compile time",
            ),
        }
    }

    /// Each statement directly in a checkpoint becomes one or more tasks. Statements that would become tasks
    /// unintentionally are refused.
    fn check_checkpoint_statement(&mut self, s: &Stmt) -> Result<()> {
        let what = match &s.kind {
            StmtKind::Expr(e) if matches!(e.kind, ExprKind::Str(_)) => return Ok(()),
            StmtKind::Expr(_) => "expression",
            StmtKind::Assign(..) | StmtKind::AnnAssign(..) => "assignment",
            StmtKind::AugAssign(..) => "augmented assignment",
            _ => return Ok(()),
        };
        self.b.span = s.span;
        self.err(
            Code::Syntax,
            format!(
                "qd.checkpoint() body cannot contain a bare top-level {what} statement, which would be a separate \
                 task: wrap it in `for _ in range(1):`"
            ),
        )
    }
}
