//! Finds block barriers that only some threads reach, if this follows from the code only: the barrier is in one arm
//! of a branch whose condition consists of constants and the thread's index, or in a loop with such bounds. Other
//! cases are found at run time in debug mode (`check_convergence`).

use octants_analysis::local_uses;
use octants_diag::{Code, Diagnostic, Span};
use octants_ir::schedule::LocalUses;
use octants_ir::{BlockId, Body, Const, GridValue, Kernel, Op, ValueId};

use crate::evaluate;
use crate::first_calls::first_calls;
use crate::synchronization::Synchronizations;

/// The mistakes, in the order of the code. `subgroup_size` is the target's.
pub fn find_divergent_barriers(kernel: &Kernel, subgroup_size: u32) -> Vec<Diagnostic> {
    let synchronization = Synchronizations::of(&kernel.functions);
    if !synchronization.inside(&kernel.body, kernel.body.root).block {
        return Vec::new();
    }
    let mut dims = Vec::new();
    kernel.body.visit(kernel.body.root, &mut |_, inst| {
        if let Op::For(l) = &inst.op
            && let Some(config) = &l.parallel
            && synchronization.inside(&kernel.body, l.body).block
        {
            dims.push((l.body, config.block_dim));
        }
    });
    let mut found = Vec::new();
    let mut look = |body: &Body, block: BlockId, block_dim: Option<u32>, call: Option<Span>| {
        let Some(block_dim) = block_dim else { return };
        let locals = local_uses(body);
        let mut search =
            Search { synchronization: &synchronization, body, locals, block_dim, subgroup_size, found: Vec::new() };
        search.block(block);
        for mut mistake in search.found {
            let spans = mistake.trace.iter_mut().map(|(_, span)| span).chain(&mut mistake.span);
            spans.for_each(|span| *span = call.map_or(*span, |call| span.inlined_at(call)));
            found.push(mistake);
        }
    };
    // Functions run in blocks of the one size that there is.
    let only = dims.first().and_then(|(_, dim)| dims.iter().all(|(_, other)| other == dim).then_some(*dim)).flatten();
    for (function, call) in kernel.functions.iter().zip(first_calls(kernel)) {
        look(&function.body, function.body.root, only, call);
    }
    dims.into_iter().for_each(|(block, dim)| look(&kernel.body, block, dim, None));
    found
}

struct Search<'a> {
    synchronization: &'a Synchronizations,
    body: &'a Body,
    locals: std::sync::Arc<LocalUses>,
    block_dim: u32,
    subgroup_size: u32,
    found: Vec<Diagnostic>,
}

impl Search<'_> {
    fn block(&mut self, block: BlockId) {
        for &v in self.body.block(block) {
            let op = &self.body.inst(v).op;
            match op {
                Op::If(c, yes, no) => {
                    let [yes, no] = [*yes, *no].map(|b| self.barrier(b));
                    if let (Some(span), None) | (None, Some(span)) = (yes, no)
                        && self.differs(*c)
                    {
                        self.report(v, span, "only some threads of the block take the branch around this barrier");
                        continue;
                    }
                }
                Op::For(l) if l.dims.iter().any(|d| self.differs(d.begin) || self.differs(d.end)) => {
                    if let Some(span) = self.barrier(l.body) {
                        self.report(
                            v,
                            span,
                            "threads of the block run different numbers of iterations of the loop around this barrier",
                        );
                        continue;
                    }
                }
                _ => {}
            }
            op.blocks().into_iter().for_each(|b| self.block(b));
        }
    }

    /// Notes a barrier in a branch or a loop. The lines of both are shown: the barrier may be in a library's function.
    fn report(&mut self, around: ValueId, span: Span, what: &str) {
        let message = format!("{what}, but a barrier waits for all threads");
        let hint =
            "call it where all threads of the block reach it, and move conditional work before or after the barrier";
        let mut found = *Diagnostic::new(Code::Compilation, span, message).with_hint(hint);
        found.trace.push((String::new(), self.body.inst(around).span));
        self.found.push(found);
    }

    /// The position of the first block barrier in the code.
    fn barrier(&self, block: BlockId) -> Option<Span> {
        let mut found = None;
        self.body.visit(block, &mut |_, inst| {
            if self.synchronization.at(&inst.op).block {
                found.get_or_insert(inst.span);
            }
        });
        found
    }

    /// Two threads of each block have different values.
    fn differs(&self, v: ValueId) -> bool {
        let Some(first) = self.value(v, 0, DEPTH) else { return false };
        (1..self.block_dim).any(|t| self.value(v, t, DEPTH).is_some_and(|value| value != first))
    }

    /// The value on a thread, if it depends only on the thread's index.
    fn value(&self, v: ValueId, thread: u32, depth: u32) -> Option<Const> {
        let v = self.locals.source(v);
        let inst = self.body.inst(v);
        let depth = depth.checked_sub(1)?;
        let of = |u: ValueId| Some((self.value(u, thread, depth)?, self.body.ty(u).scalar()?));
        let int = |n: u32| Some(Const::Int(n.into()));
        inst.ty.scalar()?;
        match &inst.op {
            Op::Const(c) => Some(*c),
            Op::Grid(GridValue::Thread) => int(thread),
            Op::Grid(GridValue::Lane) => int(thread % self.subgroup_size.max(1)),
            Op::Grid(GridValue::BlockSize) => int(self.block_dim),
            Op::Grid(GridValue::SubgroupSize) => int(self.subgroup_size),
            Op::Unary(op, a) => of(*a).and_then(|(a, s)| evaluate::unary(*op, a, s)),
            Op::Binary(op, a, b) => {
                let ((a, s), (b, _)) = (of(*a)?, of(*b)?);
                evaluate::binary(*op, a, b, s)
            }
            Op::Cast(a) => of(*a).and_then(|(a, s)| evaluate::cast(a, s, inst.ty.scalar()?)),
            _ => None,
        }
    }
}

/// Operations that a condition is followed through.
const DEPTH: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn found(branch: &str, behind: &str) -> Vec<String> {
        let text = format!(
            "kernel k -> unit {{
  buffer @0 x: i32[1] contiguous
  body {{
    %0: i32 = const 0
    %1: i32 = const 64
    %2 = for [%0..%1] parallel(block_dim 64) {{
      %3: i32 = grid thread
      %4: i32 = const 32
      %5: ref i32 = buffer_addr @0[%3]
      %6: i32 = load %5
      {branch} {{
        barrier block
      }}{behind}
    }}
  }}
}}
"
        );
        let kernel: Kernel = text.parse().expect("the kernel is one");
        find_divergent_barriers(&kernel, 32).into_iter().map(|d| d.message).collect()
    }

    #[test]
    fn conditions_on_the_thread_index_are_analyzed() {
        assert_eq!(found("%7: u1 = lt %3, %4\n if %7", "").len(), 1);
        assert_eq!(found("%7: i32 = mod %3, %4\n %8: u1 = eq %7, %0\n if %8", "").len(), 1);
        assert!(found("%9 = for [%0..%3]", "")[0].contains("different numbers of iterations"));
    }

    #[test]
    fn conditions_that_may_be_uniform_are_not_reported() {
        assert!(found("%7: u1 = lt %3, %1\n if %7", "").is_empty());
        assert!(found("%7: u1 = lt %6, %4\n if %7", "").is_empty());
        assert!(found("%7: u1 = lt %3, %4\n if %7", " else {\n barrier block\n }").is_empty());
        assert!(found("%9 = for [%0..%4]", "").is_empty());
    }
}
