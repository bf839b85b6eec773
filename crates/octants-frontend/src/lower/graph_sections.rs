//! `with qd.graph.parallel_context():` and the `with qd.graph.parallel():` sections in it: which statements may stand where.
//!
//! Sections do not depend on one another, so that they may run in any order or at once: each is a group of loops, and
//! a context a region of groups. Kernels that only check what a gradient relies on run them in order.

use octants_diag::{Code, Result};
use octants_ir::AutodiffMode;

use super::{Flow, Lowerer};
use crate::ast::{Arguments, ExprKind, Stmt, StmtKind};
use crate::syntax_facts::is_static_call;
use crate::world::GraphUse;

/// Where the statements that are being lowered stand.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum GraphSection {
    /// In neither.
    Outside,
    /// Directly in a `parallel_context`.
    Context,
    /// In a section of one.
    Section,
    /// In a checkpoint.
    Checkpoint,
}

/// Whether a `with` of this builtin is one of those here, to go by its name.
pub(super) fn is_graph_block(name: &str) -> bool {
    matches!(name, "graph_parallel_context" | "graph_parallel" | "checkpoint")
}

impl Lowerer<'_> {
    /// Only kernels that are declared with `graph=True` have what `qd.graph` offers.
    pub(super) fn check_graph_kernel(&mut self, what: &str) -> Result<()> {
        if self.graph != GraphUse::None {
            return Ok(());
        }
        self.err(Code::Syntax, format!("{what} requires @qd.kernel(graph=True)"))
    }

    pub(super) fn lower_graph_block(&mut self, name: &str, arguments: &Arguments, body: &[Stmt]) -> Result<Flow> {
        if name == "checkpoint" {
            return self.lower_checkpoint(arguments, body);
        }
        self.check_graph_kernel(&format!("qd.{}()", name.replacen('_', ".", 1)))?;
        let inner = match (name, self.graph_section) {
            ("graph_parallel_context", GraphSection::Outside | GraphSection::Checkpoint) => GraphSection::Context,
            ("graph_parallel_context", _) => {
                return self.err(Code::Syntax, "qd.graph.parallel_context() and its sections cannot be nested");
            }
            (_, GraphSection::Context) => GraphSection::Section,
            (_, GraphSection::Section) => {
                return self.err(Code::Syntax, "qd.graph.parallel() sections cannot be nested");
            }
            (_, GraphSection::Outside | GraphSection::Checkpoint) => {
                return self.err(
                    Code::Syntax,
                    "qd.graph.parallel() can only be used directly inside a qd.graph.parallel_context() block",
                );
            }
        };
        let takes = match inner {
            GraphSection::Section => "no arguments but `allow_overlap=`",
            _ => "no arguments",
        };
        let overlap = self.overlap_argument(arguments, &name.replacen('_', ".", 1), takes)?;
        if overlap {
            self.overlap_allowed.insert(self.next_group);
        }
        let outer = std::mem::replace(&mut self.graph_section, inner);
        let mode = self.options.mode;
        let forks = matches!(mode, AutodiffMode::None | AutodiffMode::Forward | AutodiffMode::Reverse);
        let is_group = inner == GraphSection::Section && forks && self.at_top_level();
        self.next_region += u32::from(inner == GraphSection::Context);
        let region = Some(self.next_region - 1);
        let flow = if is_group { self.lower_group(region, body) } else { self.scoped(|s| s.lower_stmts(body)) };
        self.graph_section = outer;
        match flow? {
            Flow::Normal => Ok(Flow::Normal),
            _ => self.err(Code::Syntax, "a 'with qd.graph.parallel():' block cannot be left by a jump or a `return`"),
        }
    }

    /// Directly in a context there are sections alone, and what chooses or repeats them at compile time.
    pub(super) fn check_graph_section(&mut self, s: &Stmt) -> Result<()> {
        if self.graph_section != GraphSection::Context {
            return Ok(());
        }
        let allowed = match &s.kind {
            StmtKind::With(..) | StmtKind::Pass => true,
            StmtKind::Expr(e) => matches!(e.kind, ExprKind::Str(_)),
            StmtKind::If(test, ..) => is_static_call(test),
            StmtKind::For(_, iter, ..) => is_static_call(iter),
            _ => false,
        };
        if allowed {
            return Ok(());
        }
        self.err(
            Code::Syntax,
            "qd.graph.parallel_context() may contain only 'with qd.graph.parallel():' blocks, in `if qd.static(...)` and \
             `for ... in qd.static(...)` where wanted",
        )
    }
}
