//! Kernel coverage: emits code that marks the executed lines, if the host requests it.
//!
//! A mark is an atomic update of a field element, so concurrent tasks may set it. Each statement is preceded by the
//! mark of its line. A top-level loop is a task of its own, and no code may be inserted between tasks that belong
//! together. The lines of such loops, and of enclosing blocks and rounds, are therefore marked by their iterations.
//! Derivatives are not instrumented, because the marks would be differentiated too.

use octants_diag::{Result, Span};
use octants_ir::AutodiffMode;

use super::Lowerer;
use crate::ast::{Expr, ExprKind, Operator, Stmt, StmtKind};
use crate::value::Value;
use crate::world::LineEvent;

impl Lowerer<'_> {
    /// Marks the line of a statement that is about to be lowered.
    pub(super) fn mark_statement(&mut self, s: &Stmt) -> Result<()> {
        if self.options.mode != AutodiffMode::None {
            return Ok(());
        }
        match &s.kind {
            StmtKind::Expr(Expr { kind: ExprKind::Str(_), .. }) => return Ok(()),
            StmtKind::For(..) | StmtKind::While(..) | StmtKind::With(..) if self.at_top_level() => {
                self.frame().headers.push(s.head());
                return Ok(());
            }
            _ => {}
        }
        self.mark_headers()?;
        self.mark(s.head(), LineEvent::Reached)
    }

    /// Marks the lines of the loops and blocks that are about to be entered, unless they are tasks.
    pub(super) fn mark_headers(&mut self) -> Result<()> {
        for header in std::mem::take(&mut self.frame().headers) {
            self.mark(header, LineEvent::Reached)?;
        }
        Ok(())
    }

    /// Marks that the condition on a line was false, if no statement implies it.
    pub(super) fn mark_skipped(&mut self, test: Span) -> Result<()> {
        if self.options.mode != AutodiffMode::None {
            return Ok(());
        }
        self.mark(test, LineEvent::Skipped)
    }

    fn mark(&mut self, at: Span, event: LineEvent) -> Result<()> {
        // The line of a span takes time in proportion to the file's length.
        if !self.world.probes_lines() {
            return Ok(());
        }
        let (Some(file), Some(position)) = (self.sources.get(at.file).cloned(), self.sources.position(at)) else {
            return Ok(());
        };
        let Some((field, index)) = self.world.line_probe(&file.path, position.line, event) else { return Ok(()) };
        let before = self.b.span;
        self.b.span = at;
        let place = self.subscript(&Value::Obj(field), vec![Value::Int(index)])?;
        self.aug_store(&place, Operator::BitOr, &Value::Int(1))?;
        self.b.span = before;
        Ok(())
    }
}
