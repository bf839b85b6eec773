//! Statements: dispatch by kind, and `with qd.stream_parallel()` blocks.

use octants_diag::{Code, Diagnostic, Result};
use octants_ir::{ForLoop, LoopConfig, LoopGroup, Op, Type, ValueId};

use super::graph_sections::is_graph_block;
use super::{Flow, Lowerer, ReturnMode};
use crate::ast::{Arguments, Expr, ExprKind, Stmt, StmtKind};
use crate::syntax_facts::is_static_call;
use crate::value::Value;
use crate::world::{Entity, GraphUse};

impl Lowerer<'_> {
    /// Lowers the statements of the current frame's function.
    pub(super) fn lower_body(&mut self, body: &[Stmt]) -> Result<Flow> {
        self.check_stream_blocks(body)?;
        self.lower_stmts(body)
    }

    pub(super) fn lower_stmts(&mut self, stmts: &[Stmt]) -> Result<Flow> {
        for s in stmts {
            self.b.span = s.head();
            self.check_graph_section(s)?;
            self.mark_statement(s)?;
            let flow = self.lower_stmt(s)?;
            if flow != Flow::Normal {
                return Ok(flow);
            }
        }
        Ok(Flow::Normal)
    }

    fn lower_stmt(&mut self, s: &Stmt) -> Result<Flow> {
        self.ensure_stack(|lowerer| lowerer.lower_stmt_here(s))
    }

    fn lower_stmt_here(&mut self, s: &Stmt) -> Result<Flow> {
        match &s.kind {
            StmtKind::Expr(e) => {
                if !matches!(e.kind, ExprKind::Str(_) | ExprKind::Unsupported("Ellipsis")) {
                    let unused = self.lower_expr(e)?;
                    self.check_method_is_called(&unused)?;
                }
            }
            StmtKind::Assign(targets, value) => {
                let is_static = is_static_call(value);
                let v = if is_static { self.lower_whole(value)? } else { self.lower_expr(value)? };
                let v = if is_static || targets.len() == 1 { v } else { self.settle(v)? };
                for t in targets {
                    self.b.span = s.span;
                    self.assign(t, v.clone(), is_static)?;
                }
            }
            StmtKind::AnnAssign(target, annotation, value) => {
                self.annotated_assign(target, annotation, value.as_ref())?
            }
            StmtKind::AugAssign(target, op, value) => self.aug_assign(target, *op, value)?,
            StmtKind::Return(value) => return self.lower_return(value.as_ref(), s.span),
            StmtKind::If(test, then, orelse) => return self.lower_if(test, then, orelse),
            StmtKind::For(target, iter, body, orelse) => {
                if *orelse {
                    return self.err(Code::Syntax, "'else' clause for 'for' not supported in kernels");
                }
                let flow = self.lower_for(target, iter, body)?;
                self.note_returning_loop(body);
                return Ok(flow);
            }
            StmtKind::While(test, body, orelse) => {
                if *orelse {
                    return self.err(Code::Syntax, "'else' clause for 'while' not supported in kernels");
                }
                self.lower_while(test, body)?;
                self.note_returning_loop(body);
            }
            StmtKind::With(items, body) => return self.lower_with(items, body),
            StmtKind::Assert(test, message) => self.lower_assert(test, message.as_ref())?,
            StmtKind::Pass => {}
            StmtKind::Break => return self.lower_break(),
            StmtKind::Continue => return self.lower_continue(),
            StmtKind::Unsupported("FunctionDef") => {
                return Err(Diagnostic::new(Code::Syntax, s.span, "Function definition is not allowed in 'qd.kernel'")
                    .with_hint("define it at module level and decorate it with `@qd.func`"));
            }
            StmtKind::Unsupported(what) => {
                return Err(Diagnostic::new(Code::Syntax, s.span, format!("Unsupported node \"{what}\""))
                    .with_hint("kernels do not support this Python statement"));
            }
        }
        Ok(Flow::Normal)
    }

    /// S9: either all top-level statements of a kernel are `stream_parallel` blocks, or none is. Compile-time
    /// statements may occur between them, and choose or repeat them.
    fn check_stream_blocks(&mut self, body: &[Stmt]) -> Result<()> {
        if !matches!(self.frame_ref().ret, ReturnMode::Kernel(_)) || !body.iter().any(has_stream_block) {
            return Ok(());
        }
        match body.iter().find_map(beside_no_stream_block) {
            None => Ok(()),
            Some(s) => Err(Diagnostic::new(
                Code::Syntax,
                s.head(),
                "When using qd.stream_parallel(), all top-level statements must be 'with qd.stream_parallel():' blocks",
            )
            .with_hint(
                "move non-parallel code to a separate kernel; `qd.static_assert`, `if qd.static(...)` and \
                 `for ... in qd.static(...)` are allowed here",
            )),
        }
    }

    fn lower_with(&mut self, items: &[(Expr, Option<Expr>)], body: &[Stmt]) -> Result<Flow> {
        let [(item, target)] = items else {
            return self.err(Code::Syntax, "a `with` statement in a kernel only supports a single context manager");
        };
        let ExprKind::Call(func, arguments) = &item.kind else {
            return self.err(Code::Syntax, "a `with` statement in a kernel requires a call expression");
        };
        let callee = self.lower_expr(func)?;
        let builtin = match &callee {
            Value::Obj(o) => match self.world.entity(*o) {
                Entity::Builtin(name) => Some(name),
                _ => None,
            },
            _ => None,
        };
        let Some(name) = builtin.filter(|n| n == "stream_parallel" || is_graph_block(n)) else {
            return self.err(
                Code::Syntax,
                "a `with` statement in a kernel only supports qd.stream_parallel(), qd.graph.parallel_context(), \
                 qd.graph.parallel() and qd.checkpoint()",
            );
        };
        if target.is_some() {
            return self.err(Code::Syntax, "'with ... as ...' is not supported in kernels");
        }
        if is_graph_block(&name) {
            self.warn_of_flat_name(func, &name);
            return self.lower_graph_block(&name, arguments, body);
        }
        if self.group.is_some() {
            return self.err(Code::Syntax, "Nested 'with qd.stream_parallel()' blocks are not supported");
        }
        if !matches!(self.frame_ref().ret, ReturnMode::Kernel(_)) {
            return self.err(Code::Syntax, "qd.stream_parallel() can only be used inside @qd.kernel, not @qd.func");
        }
        if self.graph != GraphUse::None {
            let message = "qd.stream_parallel() is not compatible with graph=True kernels";
            return Err(Diagnostic::new(Code::Syntax, self.b.span, message).with_hint(
                "use `with qd.graph.parallel():` in a `with qd.graph.parallel_context():`, or remove `graph=True`",
            ));
        }
        // Not in a loop or a branch of run time.
        let stands_in_body = self.parsed.get(&self.kernel_obj).is_some_and(|p| {
            let is_here = &|i: &[WithItem]| std::ptr::eq(i, items);
            p.body.iter().any(|s| any_static_with(s, is_here))
        });
        if !stands_in_body {
            let message = "qd.stream_parallel() must be at the top level of the kernel";
            return Err(Diagnostic::new(Code::Syntax, self.b.span, message).with_hint(
                "it cannot be in a run-time `if`, `for` or `while`, only in `if qd.static(...)` and \
                 `for ... in qd.static(...)`",
            ));
        }
        if self.flag_argument(arguments, "stream_parallel", "allow_overlap", "no arguments except `allow_overlap`")? {
            self.overlap_allowed.insert(self.next_group);
        }
        match self.lower_group(None, body)? {
            Flow::Return => self.err(Code::Syntax, "`return` is not supported in a kernel with qd.stream_parallel()"),
            flow => Ok(flow),
        }
    }

    /// The compile-time value of a block's only keyword, which `takes` describes.
    pub(super) fn flag_argument(
        &mut self,
        arguments: &Arguments,
        block: &str,
        keyword: &str,
        takes: &str,
    ) -> Result<bool> {
        let is_known = |n: &Option<String>| n.as_deref() == Some(keyword);
        if !arguments.positional.is_empty() || !arguments.keywords.iter().all(|(n, _)| is_known(n)) {
            return self.err(Code::Syntax, format!("qd.{block}() takes {takes}"));
        }
        let mut set = false;
        for (_, value) in &arguments.keywords {
            let value = self.lower_expr(value)?;
            set = self.compile_time_truth(&value, &format!("`{keyword}` of qd.{block}"))?;
        }
        Ok(set)
    }

    /// Statements that are a group of a region.
    pub(super) fn lower_group(&mut self, region: Option<u32>, body: &[Stmt]) -> Result<Flow> {
        let group = LoopGroup { region, number: self.next_group };
        self.next_group += 1;
        self.group = Some(group);
        let start = self.b.body.block(self.b.cursor()).len();
        let flow = self.scoped(|s| s.lower_stmts(body));
        self.group = None;
        if flow.as_ref().is_ok_and(|flow| !matches!(flow, Flow::Return)) {
            self.enclose_serial_end(start, group);
        }
        flow
    }

    /// Statements after the last parallel loop of a group become one loop of one iteration, since only loops name their
    /// group.
    fn enclose_serial_end(&mut self, start: usize, group: LoopGroup) {
        let cursor = self.b.cursor();
        let of_group = |v: &ValueId| match &self.b.body.inst(*v).op {
            Op::For(l) => l.parallel.as_ref().is_some_and(|c| c.group == Some(group)),
            _ => false,
        };
        let insts = self.b.body.block(cursor);
        let from = insts[start..].iter().rposition(of_group).map_or(start, |i| start + i + 1);
        if insts[from..].iter().all(|v| self.b.body.inst(*v).op.is_pure()) {
            return;
        }
        let tail = self.b.body.blocks[cursor.index()].split_off(from);
        let block = self.b.body.add_block();
        self.b.body.blocks[block.index()] = tail;
        let config = LoopConfig { serialize: true, group: Some(group), ..LoopConfig::default() };
        let l = ForLoop::parallel(Vec::new(), block, config);
        self.b.push(Op::For(Box::new(l)), Type::Unit);
    }
}

/// A context manager and its target.
type WithItem = (Expr, Option<Expr>);

/// Whether some `with` statement is this one, or is nested in it within compile-time `if` and `for` statements only.
fn any_static_with(s: &Stmt, found: &dyn Fn(&[WithItem]) -> bool) -> bool {
    match &s.kind {
        StmtKind::With(items, _) => found(items),
        StmtKind::If(test, then, orelse) if is_static_call(test) => {
            then.iter().chain(orelse).any(|s| any_static_with(s, found))
        }
        StmtKind::For(_, iter, body, _) if is_static_call(iter) => body.iter().any(|s| any_static_with(s, found)),
        _ => false,
    }
}

fn has_stream_block(s: &Stmt) -> bool {
    any_static_with(s, &|items| !items.iter().any(|(item, _)| names_graph_block(item)))
}

/// The first statement that is not allowed next to `stream_parallel` blocks.
fn beside_no_stream_block(s: &Stmt) -> Option<&Stmt> {
    match &s.kind {
        StmtKind::With(items, _) if !items.iter().any(|(item, _)| names_graph_block(item)) => None,
        StmtKind::If(test, then, orelse) if is_static_call(test) => {
            then.iter().chain(orelse).find_map(beside_no_stream_block)
        }
        StmtKind::For(_, iter, body, _) if is_static_call(iter) => body.iter().find_map(beside_no_stream_block),
        StmtKind::Expr(e) if matches!(e.kind, ExprKind::Str(_)) || acts_at_compile_time(e) => None,
        StmtKind::Assign(_, v) if is_static_call(v) => None,
        StmtKind::Pass => None,
        _ => Some(s),
    }
}

/// A call of `static_assert` or `static_print`, to go by the name.
fn acts_at_compile_time(e: &Expr) -> bool {
    let ExprKind::Call(func, _) = &e.kind else { return false };
    let (ExprKind::Attribute(_, name) | ExprKind::Name(name)) = &func.kind else { return false };
    matches!(name.as_str(), "static_assert" | "static_print")
}

/// Whether a `with` item is one of `qd.graph` or a checkpoint, to go by the name.
fn names_graph_block(item: &Expr) -> bool {
    let ExprKind::Call(func, _) = &item.kind else { return false };
    let (ExprKind::Attribute(_, name) | ExprKind::Name(name)) = &func.kind else { return false };
    is_graph_block(name) || matches!(name.as_str(), "parallel_context" | "parallel")
}
