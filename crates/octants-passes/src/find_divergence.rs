//! Finds block barriers and subgroup operations that only some threads reach, if this follows from the code only: the
//! operation is in a branch, or after an exit in a branch, whose condition consists of constants and the thread's
//! position, or in a loop with such bounds. Other cases are found at run time in debug mode (`check_convergence`).
//!
//! Conditions are evaluated for each thread of the first blocks of a loop, in functions with the arguments of the call.

use std::collections::HashSet;
use std::sync::Arc;

use octants_analysis::local_uses;
use octants_diag::{Code, Diagnostic, Span};
use octants_ir::schedule::LocalUses;
use octants_ir::{BlockId, Body, Const, ForLoop, GridValue, Kernel, Op, ValueId};

use crate::evaluate;
use crate::synchronization::Synchronizations;

/// The mistakes, in the order of the code. `subgroup_size` is the target's.
pub fn find_divergence(kernel: &Kernel, subgroup_size: u32) -> Vec<Diagnostic> {
    let synchronization = Synchronizations::of(&kernel.functions);
    if !synchronization.inside(&kernel.body, kernel.body.root).any() {
        return Vec::new();
    }
    let mut loops = Vec::new();
    kernel.body.visit(kernel.body.root, &mut |v, inst| {
        if let Op::For(l) = &inst.op
            && l.parallel.is_some()
            && synchronization.inside(&kernel.body, l.body).any()
        {
            loops.push(v);
        }
    });
    let mut found = Vec::new();
    for v in loops {
        let Op::For(l) = &kernel.body.inst(v).op else { continue };
        let threads = Threads::of(l, subgroup_size.max(1));
        let count = count_of(&kernel.body, l).unwrap_or(threads.block_dim).min(MOST_THREADS);
        let calls = MOST_CALLS;
        let parallel = (v, &**l);
        let mut search = Search { kernel, synchronization: &synchronization, threads, count, parallel, calls, found };
        let frame = Frame { body: &kernel.body, locals: local_uses(&kernel.body), name: &kernel.name, call: None };
        search.block(&frame, l.body, Ahead::default());
        found = search.found;
    }
    let mut seen = HashSet::new();
    found.retain(|mistake| seen.insert(mistake.span));
    found
}

/// Calls that are analyzed in a loop.
const MOST_CALLS: u32 = 1000;

/// Threads whose conditions are compared.
const MOST_THREADS: u32 = 1 << 14;

/// The number of iterations of a loop, if the code determines it.
fn count_of(body: &Body, l: &ForLoop) -> Option<u32> {
    let mut extents = (0..l.dims.len()).map(|axis| extent_of(body, l, axis));
    extents.try_fold(1u32, |n, extent| Some(n.saturating_mul(extent?)))
}

/// The extent of an axis of a loop.
fn extent_of(body: &Body, l: &ForLoop, axis: usize) -> Option<u32> {
    let range = l.dims[axis];
    let [begin, end] = [range.begin, range.end].map(|v| constant(body, v));
    u32::try_from((end? - begin?).max(0)).ok()
}

fn constant(body: &Body, v: ValueId) -> Option<i64> {
    match body.inst(v).op {
        Op::Const(Const::Int(n)) => Some(n),
        _ => None,
    }
}

/// The threads that run a loop.
#[derive(Debug, Clone, Copy)]
struct Threads {
    /// Each block has at least as many.
    block_dim: u32,
    /// Each block has exactly as many.
    is_exact: bool,
    subgroup_size: u32,
}

impl Threads {
    fn of(l: &ForLoop, subgroup_size: u32) -> Threads {
        let config = l.parallel.as_ref();
        let block_dim = config.and_then(|c| if c.serialize { Some(1) } else { c.block_dim });
        Threads { block_dim: block_dim.unwrap_or(subgroup_size), is_exact: block_dim.is_some(), subgroup_size }
    }
}

/// Threads that reach an operation together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    Block,
    Subgroup,
}

/// The positions of the first operations of a block and of a subgroup in some code.
#[derive(Debug, Clone, Copy, Default)]
struct Meetings {
    block: Option<Span>,
    subgroup: Option<Span>,
}

impl Meetings {
    fn or(self, other: Meetings) -> Meetings {
        Meetings { block: self.block.or(other.block), subgroup: self.subgroup.or(other.subgroup) }
    }
}

/// The operations ahead of a point of the code.
#[derive(Debug, Clone, Copy, Default)]
struct Ahead {
    /// In the enclosing loop.
    in_loop: Meetings,
    /// In the rest of the iteration.
    in_iteration: Meetings,
    /// In the rest of the body, with the enclosing loops.
    in_body: Meetings,
}

/// The kernel's code, or that of a function that it calls.
struct Frame<'a> {
    body: &'a Body,
    locals: Arc<LocalUses>,
    name: &'a str,
    /// The caller, the arguments, and the place of the call.
    call: Option<(&'a Frame<'a>, &'a [ValueId], Span)>,
}

impl Frame<'_> {
    /// The calls that lead to this code.
    fn depth(&self) -> u32 {
        self.call.map_or(0, |(caller, ..)| caller.depth() + 1)
    }
}

struct Search<'a> {
    kernel: &'a Kernel,
    synchronization: &'a Synchronizations,
    threads: Threads,
    /// The threads whose values are compared.
    count: u32,
    /// The loop whose body is analyzed.
    parallel: (ValueId, &'a ForLoop),
    /// Calls that may still be analyzed.
    calls: u32,
    found: Vec<Diagnostic>,
}

impl Search<'_> {
    fn block(&mut self, frame: &Frame<'_>, block: BlockId, around: Ahead) {
        let code = frame.body.block(block);
        let mut after = vec![Meetings::default(); code.len() + 1];
        for (i, v) in code.iter().enumerate().rev() {
            after[i] = self.at(frame, *v).or(after[i + 1]);
        }
        for (i, &v) in code.iter().enumerate() {
            let ahead = Ahead {
                in_iteration: after[i + 1].or(around.in_iteration),
                in_body: after[i + 1].or(around.in_body),
                ..around
            };
            self.inst(frame, v, ahead);
        }
    }

    fn inst(&mut self, frame: &Frame<'_>, v: ValueId, ahead: Ahead) {
        let op = &frame.body.inst(v).op;
        let mut inside = ahead;
        match op {
            Op::If(c, yes, no) => {
                let within = self.inside(frame, *yes).or(self.inside(frame, *no));
                let exits = [*yes, *no].into_iter().fold(Exits::default(), |e, b| e.or(self.exits(frame, b, true)));
                let beyond = [
                    (exits.breaks, ahead.in_loop, "leave the loop"),
                    (exits.continues, ahead.in_iteration, "end the iteration"),
                    (exits.returns, ahead.in_body, "return"),
                ];
                if self.report_if_differs(frame, &[*c], within, |group, operation| {
                    format!("only some threads of the {group} take the branch around this {operation}")
                }) {
                    return;
                }
                for (_, meetings, what) in beyond.into_iter().filter(|(leaves, ..)| *leaves) {
                    if self.report_if_differs(frame, &[*c], meetings, |group, operation| {
                        format!("only some threads of the {group} reach this {operation}, because the others {what}")
                    }) {
                        return;
                    }
                }
            }
            Op::For(l) => {
                let within = self.inside(frame, l.body);
                let bounds: Vec<ValueId> = l.dims.iter().flat_map(|d| [d.begin, d.end]).collect();
                if self.report_if_differs(frame, &bounds, within, |group, operation| {
                    format!(
                        "threads of the {group} run different numbers of iterations of the loop around this {operation}"
                    )
                }) {
                    return;
                }
                inside =
                    Ahead { in_loop: within, in_iteration: Meetings::default(), in_body: within.or(ahead.in_body) };
            }
            Op::Loop(body) => {
                let within = self.inside(frame, *body);
                inside =
                    Ahead { in_loop: within, in_iteration: Meetings::default(), in_body: within.or(ahead.in_body) };
            }
            Op::Call(f, arguments) => {
                let callee = &self.kernel.functions[f.index()];
                let body = &callee.body;
                if frame.depth() < MOST_DEPTH && self.calls > 0 && self.synchronization.at(op).any() {
                    self.calls -= 1;
                    let call = Some((frame, &arguments[..], frame.body.inst(v).span));
                    let callee = Frame { body, locals: local_uses(body), name: &callee.name, call };
                    self.block(&callee, body.root, Ahead::default());
                }
            }
            _ => {}
        }
        op.blocks().into_iter().for_each(|b| self.block(frame, b, inside));
    }

    /// Notes operations that some threads reach without others, because they have different values. The lines of the
    /// value and of the operation, which may be in a library's function, are shown.
    fn report_if_differs(
        &mut self,
        frame: &Frame<'_>,
        values: &[ValueId],
        meetings: Meetings,
        message: impl Fn(&str, &str) -> String,
    ) -> bool {
        let differs = |group| values.iter().any(|v| self.differs(frame, *v, group));
        let condition = values.first().map(|v| frame.body.inst(*v).span);
        let (span, text, hint) = match meetings {
            Meetings { block: Some(span), .. } if differs(Group::Block) => (
                span,
                message("block", "barrier") + ", but a barrier waits for all threads",
                "call it where all threads of the block reach it, and move conditional work before or after the \
                 barrier",
            ),
            Meetings { subgroup: Some(span), .. } if differs(Group::Subgroup) => (
                span,
                message("subgroup", "operation") + ", but all threads of the subgroup execute it together",
                "call it where all threads of the subgroup reach it, and use its result under the condition",
            ),
            _ => return false,
        };
        let mut found = *Diagnostic::new(Code::Compilation, span, text).with_hint(hint);
        let name = || frame.name.to_owned();
        found.trace.extend(span.outermost_call().map(|call| (name(), call)));
        found.trace.extend(condition.map(|span| (name(), span)));
        let mut frame = frame;
        while let Some((caller, _, span)) = frame.call {
            found.trace.push((frame.name.to_owned(), span));
            frame = caller;
        }
        found.root.clone_from(&self.kernel.name);
        self.found.push(found);
        true
    }

    /// The operations at an instruction, or in its blocks.
    fn at(&self, frame: &Frame<'_>, v: ValueId) -> Meetings {
        let inst = frame.body.inst(v);
        let here = self.synchronization.at(&inst.op);
        let span = Some(inst.span);
        let here = Meetings { block: span.filter(|_| here.block), subgroup: span.filter(|_| here.subgroup) };
        inst.op.blocks().into_iter().fold(here, |found, b| found.or(self.inside(frame, b)))
    }

    fn inside(&self, frame: &Frame<'_>, block: BlockId) -> Meetings {
        frame.body.block(block).iter().fold(Meetings::default(), |found, v| found.or(self.at(frame, *v)))
    }

    /// How control leaves a block early. Loops inside of it have their own `break` and `continue`.
    fn exits(&self, frame: &Frame<'_>, block: BlockId, of_this_loop: bool) -> Exits {
        let mut found = Exits::default();
        for &v in frame.body.block(block) {
            let op = &frame.body.inst(v).op;
            found.breaks |= of_this_loop && matches!(op, Op::Break);
            found.continues |= of_this_loop && matches!(op, Op::Continue);
            found.returns |= matches!(op, Op::Return(_));
            let of_this_loop = of_this_loop && !matches!(op, Op::For(_) | Op::Loop(_));
            found = op.blocks().into_iter().fold(found, |found, b| found.or(self.exits(frame, b, of_this_loop)));
        }
        found
    }

    /// Two threads of a block, or of a subgroup, have different values.
    fn differs(&self, frame: &Frame<'_>, v: ValueId, group: Group) -> bool {
        let Threads { block_dim, subgroup_size, .. } = self.threads;
        let group_of = |t: u32| match group {
            Group::Block => (t / block_dim, 0),
            Group::Subgroup => (t / block_dim, t % block_dim / subgroup_size),
        };
        let mut first = None;
        for t in 0..self.count {
            let value = self.value(frame, v, t, DEPTH);
            if t == 0 && value.is_none() {
                return false;
            }
            match (first, value) {
                (Some((group, other)), Some(value)) if group == group_of(t) => {
                    if value != other {
                        return true;
                    }
                }
                (_, Some(value)) => first = Some((group_of(t), value)),
                (_, None) => {}
            }
        }
        false
    }

    /// The value on a thread, if it depends only on the thread's position. `thread` is its number in the grid.
    fn value(&self, frame: &Frame<'_>, v: ValueId, thread: u32, depth: u32) -> Option<Const> {
        let v = frame.locals.source(v);
        let inst = frame.body.inst(v);
        let depth = depth.checked_sub(1)?;
        let of = |u: ValueId| Some((self.value(frame, u, thread, depth)?, frame.body.ty(u).scalar()?));
        let int = |n: u32| Some(Const::Int(n.into()));
        let Threads { block_dim, is_exact, subgroup_size } = self.threads;
        inst.ty.scalar()?;
        match &inst.op {
            Op::Const(c) => Some(*c),
            Op::Grid(GridValue::Thread) => int(thread % block_dim),
            Op::Grid(GridValue::Lane) => int(thread % block_dim % subgroup_size),
            Op::Grid(GridValue::BlockSize) if is_exact => int(block_dim),
            Op::Grid(GridValue::Block) if is_exact => int(thread / block_dim),
            Op::Param(number) => {
                let (caller, arguments, _) = frame.call?;
                self.value(caller, *arguments.get(*number as usize)?, thread, depth)
            }
            Op::Grid(GridValue::SubgroupSize) => int(subgroup_size),
            Op::LoopIndex(l, axis) if frame.call.is_none() => self.loop_index(*l, *axis as usize, thread),
            Op::Unary(op, a) => of(*a).and_then(|(a, s)| evaluate::unary(*op, a, s)),
            Op::Binary(op, a, b) => {
                let ((a, s), (b, _)) = (of(*a)?, of(*b)?);
                evaluate::binary(*op, a, b, s)
            }
            Op::Cast(a) => of(*a).and_then(|(a, s)| evaluate::cast(a, s, inst.ty.scalar()?)),
            _ => None,
        }
    }

    /// The index of the parallel loop on a thread: threads run the iterations in order.
    fn loop_index(&self, of: ValueId, axis: usize, thread: u32) -> Option<Const> {
        let (v, l) = self.parallel;
        if v != of {
            return None;
        }
        let body = &self.kernel.body;
        let mut number = thread;
        for inner in (axis + 1..l.dims.len()).rev() {
            number = number.checked_div(extent_of(body, l, inner)?)?;
        }
        if axis > 0 {
            number = number.checked_rem(extent_of(body, l, axis)?)?;
        }
        Some(Const::Int(constant(body, l.dims[axis].begin)? + i64::from(number)))
    }
}

/// Whether control leaves a block early.
#[derive(Debug, Clone, Copy, Default)]
struct Exits {
    breaks: bool,
    continues: bool,
    returns: bool,
}

impl Exits {
    fn or(self, other: Exits) -> Exits {
        Exits {
            breaks: self.breaks || other.breaks,
            continues: self.continues || other.continues,
            returns: self.returns || other.returns,
        }
    }
}

/// Operations that a condition is followed through.
const DEPTH: u32 = 10;

/// Nested calls that are analyzed.
const MOST_DEPTH: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn found(branch: &str, behind: &str) -> Vec<String> {
        found_around("barrier block", branch, behind)
    }

    fn found_around(operation: &str, branch: &str, behind: &str) -> Vec<String> {
        let text = format!(
            "kernel k -> unit {{
  buffer @0 x: i32[1] contiguous
  body {{
    %0: i32 = const 0
    %1: i32 = const 64
    %30: i32 = const 256
    %2 = for [%0..%30] parallel(block_dim 64) {{
      %3: i32 = grid thread
      %4: i32 = const 32
      %5: ref i32 = buffer_addr @0[%3]
      %6: i32 = load %5
      %20: i32 = loop_index %2, 0
      %21: i32 = const 2
      {branch} {{
        {operation}
      }}{behind}
    }}
  }}
}}
"
        );
        let kernel: Kernel = text.parse().expect("the kernel is one");
        find_divergence(&kernel, 32).into_iter().map(|d| d.message).collect()
    }

    #[test]
    fn conditions_on_the_thread_index_are_analyzed() {
        assert_eq!(found("%7: u1 = lt %3, %4\n if %7", "").len(), 1);
        assert_eq!(found("%7: i32 = mod %3, %4\n %8: u1 = eq %7, %0\n if %8", "").len(), 1);
        assert_eq!(found("%7: u1 = lt %3, %4\n if %7", " else {\n barrier block\n }").len(), 1);
        assert!(found("%9 = for [%0..%3]", "")[0].contains("different numbers of iterations"));
    }

    #[test]
    fn conditions_on_the_index_of_the_parallel_loop_are_analyzed() {
        let below = |n: u32| format!("%7: i32 = const {n}\n %8: u1 = lt %20, %7\n if %8");
        // The cut is inside of the second block, or between two blocks.
        assert_eq!(found(&below(100), "").len(), 1);
        assert!(found(&below(128), "").is_empty());
        assert!(found(&below(256), "").is_empty());
    }

    #[test]
    fn subgroups_are_whole() {
        let shuffle = "%40: i32 = subgroup shuffle(%3, %0)";
        let odd = "%7: i32 = mod %3, %21\n %8: u1 = eq %7, %0\n if %8";
        assert!(found_around(shuffle, odd, "")[0].contains("of the subgroup take the branch"));
        // The first subgroup of each block.
        assert!(found_around(shuffle, "%7: u1 = lt %3, %4\n if %7", "").is_empty());
    }

    #[test]
    fn exits_of_some_threads_are_found() {
        let leave = |what: &str| format!("%7: u1 = lt %3, %4\n if %7 {{\n {what}\n }}\n %40 = for [%0..%4]");
        assert!(found(&leave("continue"), "")[0].contains("because the others end the iteration"));
        let text = "%40 = loop {\n %7: u1 = lt %3, %4\n if %7 {\n break\n }\n barrier block\n }\n %41 = for [%0..%0]";
        assert!(found(text, "")[0].contains("because the others leave the loop"));
    }

    #[test]
    fn conditions_that_may_be_uniform_are_not_reported() {
        assert!(found("%7: u1 = lt %3, %1\n if %7", "").is_empty());
        assert!(found("%7: u1 = lt %6, %4\n if %7", "").is_empty());
        assert!(found("%9 = for [%0..%4]", "").is_empty());
    }
}
