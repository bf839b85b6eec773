//! Facts about a function that follow from its syntax: the names that it may change, whether it returns inside
//! run-time control flow, whether it has loops, its size and its callees.

use std::collections::HashSet;

use crate::ast::*;

/// Facts about one body.
#[derive(Debug, Default)]
pub struct Facts {
    /// Names assigned, or handed to a call that might change them.
    pub mutated: HashSet<String>,
    /// Names assigned.
    pub assigned: HashSet<String>,
    /// Names with an attribute or element that is assigned.
    pub assigned_in: HashSet<String>,
    /// A `return` inside a `while`, a `for` or an `if` that is not `qd.static`.
    pub nested_return: bool,
    /// Has a loop whose iterations or rounds are tasks if the function is inlined at the top level of a kernel: outside
    /// run-time control flow, and without `loop_config(serialize=True)`.
    pub task_loop: bool,
    /// Has a `for` that is not marked as unrolled by `qd.static`: it would be parallel at the top level of a kernel.
    pub runtime_for: bool,
    /// Expressions and statements; those in unrolled loops count several times.
    pub size: usize,
    /// The callees, by name and attributes: `["qd", "sqrt"]`. Empty for a callee that is not a chain of names.
    pub callees: Vec<Vec<String>>,
    /// Names in indices, conditional expressions and comprehensions, where compile-time and run-time numbers behave
    /// differently.
    pub decisive: HashSet<String>,
    /// How many times code at this point is unrolled.
    repeats: usize,
}

/// Trip count assumed for an unrolled loop.
const UNROLLED: usize = 4;

/// The facts of a body.
pub fn of(body: &[Stmt]) -> Facts {
    let mut facts = Facts { repeats: 1, ..Facts::default() };
    stmts(body, false, &mut facts);
    facts
}

fn stmts(body: &[Stmt], nested: bool, f: &mut Facts) {
    for (i, s) in body.iter().enumerate() {
        f.size += f.repeats;
        let is_serial = i > 0 && serializes(&body[i - 1]);
        match &s.kind {
            StmtKind::Expr(e) => expr(e, f),
            StmtKind::Assign(targets, value) => {
                targets.iter().for_each(|t| assigned(t, f));
                expr(value, f);
            }
            StmtKind::AnnAssign(t, _, value) => {
                assigned(t, f);
                value.iter().for_each(|v| expr(v, f));
            }
            StmtKind::AugAssign(t, _, value) => {
                assigned(t, f);
                expr(value, f);
            }
            StmtKind::Return(value) => {
                f.nested_return |= nested;
                value.iter().for_each(|v| expr(v, f));
            }
            StmtKind::If(test, a, b) => {
                expr(test, f);
                let nested = nested || !is_static_call(test);
                stmts(a, nested, f);
                stmts(b, nested, f);
            }
            StmtKind::For(t, iter, body, _) => {
                target(t, f);
                expr(iter, f);
                let is_static = is_static_call(iter);
                f.runtime_for |= !is_static;
                f.task_loop |= !is_static && !nested && !is_serial;
                let repeats = f.repeats;
                if is_static {
                    f.repeats = (repeats * UNROLLED).min(1 << 16);
                }
                stmts(body, nested || !is_static, f);
                f.repeats = repeats;
            }
            StmtKind::While(test, body, _) => {
                f.task_loop |= !nested && is_call_of(test, "do_while");
                expr(test, f);
                stmts(body, true, f);
            }
            StmtKind::With(items, body) => {
                items.iter().for_each(|(e, _)| expr(e, f));
                stmts(body, nested, f);
            }
            StmtKind::Assert(test, message) => {
                expr(test, f);
                message.iter().for_each(|m| expr(m, f));
            }
            StmtKind::Pass | StmtKind::Break | StmtKind::Continue | StmtKind::Unsupported(_) => {}
        }
    }
}

/// A call of `loop_config` that makes the loop after it serial.
fn serializes(s: &Stmt) -> bool {
    let StmtKind::Expr(Expr { kind: ExprKind::Call(func, arguments), .. }) = &s.kind else { return false };
    let is_config = path(func).last().is_some_and(|name| name == "loop_config");
    let is_set = |(name, value): &(Option<String>, Expr)| {
        name.as_deref() == Some("serialize") && value.kind == ExprKind::Bool(true)
    };
    is_config && arguments.keywords.iter().any(is_set)
}

/// A `break`, `continue` or `return` in the body of a loop may leave it, or end an iteration of it.
pub fn jumps(body: &[Stmt]) -> bool {
    body.iter().any(|s| match &s.kind {
        StmtKind::Break | StmtKind::Continue | StmtKind::Return(_) => true,
        StmtKind::If(_, a, b) => jumps(a) || jumps(b),
        StmtKind::With(_, body) => jumps(body),
        // Those of inner loops are these loops' own.
        _ => false,
    })
}

/// `static(...)` or `x.static(...)`.
pub fn is_static_call(e: &Expr) -> bool {
    is_call_of(e, "static")
}

/// `name(...)` or `x.name(...)`.
pub fn is_call_of(e: &Expr, name: &str) -> bool {
    called_name(e) == Some(name)
}

/// The name in `name(...)` and `x.name(...)`.
pub fn called_name(e: &Expr) -> Option<&str> {
    let ExprKind::Call(func, _) = &e.kind else { return None };
    match &func.kind {
        ExprKind::Name(n) | ExprKind::Attribute(_, n) => Some(n),
        _ => None,
    }
}

/// Functions without side effects, which the headers of most loops call.
const PURE: [&str; 9] = ["range", "ndrange", "static", "len", "zip", "enumerate", "int", "float", "bool"];

/// A call or `:=` is somewhere in the expression, so that evaluating it may change memory.
pub fn may_write(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Call(func, arguments) => {
            let all = || arguments.positional.iter().chain(arguments.keywords.iter().map(|k| &k.1));
            !path(func).last().is_some_and(|name| PURE.contains(&name.as_str())) || all().any(may_write)
        }
        ExprKind::Named(..) => true,
        ExprKind::Unary(_, a) | ExprKind::Attribute(a, _) | ExprKind::Starred(a) => may_write(a),
        ExprKind::Binary(_, a, b) | ExprKind::Subscript(a, b) => may_write(a) || may_write(b),
        ExprKind::Tuple(es) | ExprKind::List(es) | ExprKind::And(es) | ExprKind::Or(es) => es.iter().any(may_write),
        ExprKind::Compare(a, rest) => may_write(a) || rest.iter().any(|(_, e)| may_write(e)),
        ExprKind::IfExp(a, b, c) => may_write(a) || may_write(b) || may_write(c),
        _ => false,
    }
}

/// The position of the last expression that may change memory: those before it are read before. 0 for none.
pub fn last_write<'e>(es: impl Iterator<Item = &'e Expr>) -> usize {
    es.enumerate().filter(|(_, e)| may_write(e)).map(|(i, _)| i).last().unwrap_or(0)
}

fn assigned(e: &Expr, f: &mut Facts) {
    fn names(e: &Expr, f: &mut Facts) {
        match &e.kind {
            ExprKind::Name(n) => _ = f.assigned.insert(n.clone()),
            ExprKind::Tuple(items) | ExprKind::List(items) | ExprKind::Set(items) => {
                items.iter().for_each(|i| names(i, f))
            }
            ExprKind::Attribute(base, _) | ExprKind::Subscript(base, _) => {
                if let Some(n) = root(base) {
                    f.assigned_in.insert(n.to_owned());
                }
            }
            _ => {}
        }
    }
    names(e, f);
    target(e, f);
}

fn target(e: &Expr, f: &mut Facts) {
    match &e.kind {
        ExprKind::Name(n) => {
            f.mutated.insert(n.clone());
        }
        ExprKind::Tuple(items) | ExprKind::List(items) | ExprKind::Set(items) => {
            items.iter().for_each(|i| target(i, f))
        }
        ExprKind::Subscript(base, index) => {
            target(base, f);
            decides(index, f);
            expr(index, f);
        }
        ExprKind::Attribute(base, _) | ExprKind::Starred(base) => target(base, f),
        _ => expr(e, f),
    }
}

/// The name that a chain of attributes and subscripts begins with.
fn root(e: &Expr) -> Option<&str> {
    match &e.kind {
        ExprKind::Name(n) => Some(n),
        ExprKind::Attribute(base, _) | ExprKind::Subscript(base, _) => root(base),
        _ => None,
    }
}

/// The names of `a.b.c`; empty for other expressions.
fn path(e: &Expr) -> Vec<String> {
    match &e.kind {
        ExprKind::Name(n) => vec![n.clone()],
        ExprKind::Attribute(base, name) => {
            let mut names = path(base);
            if !names.is_empty() {
                names.push(name.clone());
            }
            names
        }
        _ => Vec::new(),
    }
}

/// Notes the names in an expression as decisive.
fn decides(e: &Expr, f: &mut Facts) {
    match &e.kind {
        ExprKind::Name(n) => _ = f.decisive.insert(n.clone()),
        ExprKind::Tuple(items)
        | ExprKind::List(items)
        | ExprKind::Set(items)
        | ExprKind::And(items)
        | ExprKind::Or(items) => {
            items.iter().for_each(|i| decides(i, f));
        }
        ExprKind::Unary(_, a) | ExprKind::Attribute(a, _) | ExprKind::Starred(a) => decides(a, f),
        ExprKind::Binary(_, a, b) | ExprKind::Subscript(a, b) => {
            decides(a, f);
            decides(b, f);
        }
        ExprKind::Compare(a, rest) => {
            decides(a, f);
            rest.iter().for_each(|(_, b)| decides(b, f));
        }
        ExprKind::IfExp(a, b, c) => [a, b, c].into_iter().for_each(|e| decides(e, f)),
        ExprKind::Slice(a, b, c) => [a, b, c].into_iter().flatten().for_each(|e| decides(e, f)),
        ExprKind::ListComp(value, gens) => {
            decides(value, f);
            gens.iter().for_each(|g| decides(&g.iter, f));
        }
        ExprKind::DictComp(key, value, gens) => {
            decides(key, f);
            decides(value, f);
            gens.iter().for_each(|g| decides(&g.iter, f));
        }
        // Handed to a call, a number is held by a variable.
        _ => {}
    }
}

fn expr(e: &Expr, f: &mut Facts) {
    f.size += f.repeats;
    match &e.kind {
        ExprKind::Call(func, arguments) => {
            f.callees.push(path(func));
            if let ExprKind::Attribute(receiver, _) = &func.kind {
                target(receiver, f);
            } else {
                expr(func, f);
            }
            for a in arguments.positional.iter().chain(arguments.keywords.iter().map(|k| &k.1)) {
                target(a, f);
            }
        }
        ExprKind::Named(t, value) => {
            target(t, f);
            expr(value, f);
        }
        ExprKind::FString(parts) => {
            for p in parts {
                if let FPart::Value(v, _) = p {
                    expr(v, f);
                }
            }
        }
        ExprKind::Tuple(items)
        | ExprKind::List(items)
        | ExprKind::Set(items)
        | ExprKind::And(items)
        | ExprKind::Or(items) => {
            items.iter().for_each(|i| expr(i, f));
        }
        ExprKind::Dict(items) => {
            for (k, v) in items {
                k.iter().for_each(|k| expr(k, f));
                expr(v, f);
            }
        }
        ExprKind::ListComp(value, gens) => {
            decides(e, f);
            expr(value, f);
            gens.iter().for_each(|g| expr(&g.iter, f));
        }
        ExprKind::DictComp(key, value, gens) => {
            decides(e, f);
            expr(key, f);
            expr(value, f);
            gens.iter().for_each(|g| expr(&g.iter, f));
        }
        ExprKind::Unary(_, a) | ExprKind::Attribute(a, _) | ExprKind::Starred(a) => expr(a, f),
        ExprKind::Binary(_, a, b) => {
            expr(a, f);
            expr(b, f);
        }
        ExprKind::Subscript(a, b) => {
            decides(b, f);
            expr(a, f);
            expr(b, f);
        }
        ExprKind::Compare(a, rest) => {
            expr(a, f);
            rest.iter().for_each(|(_, b)| expr(b, f));
        }
        ExprKind::IfExp(a, b, c) => {
            decides(a, f);
            expr(a, f);
            expr(b, f);
            expr(c, f);
        }
        ExprKind::Slice(a, b, c) => [a, b, c].into_iter().flatten().for_each(|e| expr(e, f)),
        ExprKind::Name(_)
        | ExprKind::None
        | ExprKind::Bool(_)
        | ExprKind::Int(_)
        | ExprKind::Float(_)
        | ExprKind::Str(_)
        | ExprKind::Unsupported(_) => {}
    }
}
