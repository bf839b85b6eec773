//! `with qd.graph.parallel_context():` and its `with qd.graph.parallel():` sections: which statements are allowed
//! where.
//!
//! Sections are independent and may run in any order or concurrently. Each section is a group of loops, and a context
//! is a region of groups. Kernels that only validate a gradient run them in order.
//!
//! With `allow_nesting=True`, contexts go beyond Quadrants: their sections may contain data-dependent loops and
//! further contexts. Such a section is a `loop` that is left at its end. Gradients run it in order.

use octants_diag::{Code, Diagnostic, Result};
use octants_ir::{AutodiffMode, LoopGroup, Op, Type};

use super::{Flow, Lowerer};
use crate::ast::{Arguments, ExprKind, Stmt, StmtKind};
use crate::syntax_facts::is_static_call;
use crate::world::GraphUse;

/// The graph section that contains the statements being lowered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum GraphSection {
    /// In neither.
    Outside,
    /// Directly in a `parallel_context`, the one of this number.
    Context { nests: bool, region: u32 },
    /// In a section of one. Those that nest may hold data-dependent loops, and contexts.
    Section { nests: bool },
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
        match name {
            "checkpoint" => return self.lower_checkpoint(arguments, body),
            _ => self.check_graph_kernel(&format!("qd.{}()", name.replacen('_', ".", 1)))?,
        }
        let flow = match name {
            "graph_parallel_context" => self.lower_context(arguments, body),
            _ => self.lower_section(arguments, body),
        };
        match flow? {
            Flow::Normal => Ok(Flow::Normal),
            _ => self
                .err(Code::Syntax, "`return`, `break` and `continue` cannot leave a 'with qd.graph.parallel():' block"),
        }
    }

    fn lower_context(&mut self, arguments: &Arguments, body: &[Stmt]) -> Result<Flow> {
        let outer = self.graph_section;
        let within = matches!(outer, GraphSection::Section { nests: true });
        let takes = "no arguments except `allow_nesting`";
        let nests = self.flag_argument(arguments, "graph.parallel_context", "allow_nesting", takes)? || within;
        let is_nested = matches!(outer, GraphSection::Context { .. } | GraphSection::Section { .. });
        if is_nested && !within {
            let message = "qd.graph.parallel_context() and its sections cannot be nested";
            return self.refuse_nesting(message, "the outer context");
        }
        if self.graph == GraphUse::WithCheckpoints && !nests {
            let message = "qd.graph.parallel_context() is not supported in a kernel with checkpoints=True";
            return self.refuse_nesting(message, "the context");
        }
        let region = self.next_region;
        self.next_region += 1;
        self.graph_section = GraphSection::Context { nests, region };
        let flow = self.scoped(|s| s.lower_stmts(body));
        self.graph_section = outer;
        flow
    }

    fn lower_section(&mut self, arguments: &Arguments, body: &[Stmt]) -> Result<Flow> {
        let outer = self.graph_section;
        let (nests, region) = match outer {
            GraphSection::Context { nests, region } => (nests, region),
            GraphSection::Section { .. } => {
                return self.err(Code::Syntax, "qd.graph.parallel() sections cannot be nested");
            }
            GraphSection::Outside | GraphSection::Checkpoint => {
                return self.err(
                    Code::Syntax,
                    "qd.graph.parallel() can only be used directly inside a qd.graph.parallel_context() block",
                );
            }
        };
        let takes = "no arguments except `allow_overlap`";
        if self.flag_argument(arguments, "graph.parallel", "allow_overlap", takes)? {
            self.overlap_allowed.insert(self.next_group);
        }
        self.graph_section = GraphSection::Section { nests };
        let mode = self.options.mode;
        let forks = matches!(mode, AutodiffMode::None | AutodiffMode::Forward | AutodiffMode::Reverse);
        let flow = match (nests, forks && self.at_top_level()) {
            (true, true) if mode == AutodiffMode::None => self.lower_nesting_section(region, body),
            (false, true) => self.lower_group(Some(region), body),
            _ => self.scoped(|s| s.lower_stmts(body)),
        };
        self.graph_section = outer;
        flow
    }

    /// A section that may hold data-dependent loops, and contexts: a `loop` that is left at its end.
    fn lower_nesting_section(&mut self, region: u32, body: &[Stmt]) -> Result<Flow> {
        let group = LoopGroup { region: Some(region), number: self.next_group };
        self.next_group += 1;
        self.lower_part(body, |s| {
            s.b.push(Op::Section(group), Type::Unit);
            Ok(())
        })
    }

    /// Statements that are a part of the graph: a `loop` that is left at its end, after what `end` adds.
    pub(super) fn lower_part(&mut self, body: &[Stmt], end: impl FnOnce(&mut Self) -> Result<()>) -> Result<Flow> {
        self.rounds += 1;
        let lowered = self.in_block(|s| {
            let flow = s.scoped(|s| s.lower_stmts(body))?;
            end(s)?;
            s.b.push(Op::Break, Type::Unit);
            Ok(flow)
        });
        self.rounds -= 1;
        let (block, flow) = lowered?;
        self.b.push(Op::Loop(block), Type::Unit);
        Ok(flow)
    }

    /// The error for nesting that Quadrants refuses, but that contexts with `allow_nesting=True` support.
    pub(super) fn refuse_nesting<T>(&self, message: &str, context: &str) -> Result<T> {
        let hint = format!("write `qd.graph.parallel_context(allow_nesting=True)` for {context}");
        Err(Diagnostic::new(Code::Syntax, self.b.span, message).with_hint(hint))
    }

    /// A context directly contains only sections, and compile-time statements that choose or repeat them.
    pub(super) fn check_graph_section(&mut self, s: &Stmt) -> Result<()> {
        if !matches!(self.graph_section, GraphSection::Context { .. }) {
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
            "qd.graph.parallel_context() may contain only 'with qd.graph.parallel():' blocks, also inside `if \
             qd.static(...)` and `for ... in qd.static(...)`",
        )
    }
}
