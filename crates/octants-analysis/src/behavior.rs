//! Side effects and size of code, including the functions that it calls.

use std::collections::BTreeSet;
use std::sync::Arc;

use octants_ir::schedule::Behavior;
use octants_ir::{BlockId, Body, Effect, FuncId, Op};

use crate::constants::known_int;

/// Code with more iterations of serial loops (multiplied if nested) counts as long-running. As many again in a callee
/// still take well below a second.
const LONG: u64 = 1 << 14;

/// A body without its callees.
#[derive(Debug)]
pub struct OwnBehavior {
    /// The behavior without that of its callees.
    pub behavior: Behavior,
    /// The functions it calls, once for each call.
    pub calls: Vec<FuncId>,
}

impl OwnBehavior {
    /// Analyzes a body. [`own_behavior`](crate::own_behavior) keeps the answer.
    pub(crate) fn of(body: &Body) -> OwnBehavior {
        let mut own = OwnBehavior { behavior: Behavior::default(), calls: Vec::new() };
        let behavior = &mut own.behavior;
        body.visit(body.root, &mut |_, inst| {
            behavior.size += 1 + inst.ty.leaf_count().max(1) / 4;
            match inst.op.effect() {
                Effect::Assert => behavior.fails = true,
                Effect::Draw => behavior.draws = true,
                Effect::Exchange if matches!(inst.op, Op::Balance { .. }) => behavior.balances = true,
                Effect::Exchange | Effect::Synchronize => behavior.cooperates = true,
                Effect::Update(_) => behavior.atomics += 1,
                Effect::For(l) => behavior.atomics += usize::from(!l.reductions.is_empty()),
                Effect::Call(f, _) => own.calls.push(f),
                // Blocks have exactly the requested threads if the code depends on the thread index.
                Effect::Index if matches!(inst.op, Op::Grid(_) | Op::FragmentIndex(_)) => behavior.cooperates = true,
                Effect::Pure
                | Effect::Index
                | Effect::Read(_)
                | Effect::ReadVolatile(_)
                | Effect::Write(_)
                | Effect::Reduce
                | Effect::Branch(..)
                | Effect::Loop(_)
                | Effect::ReadClock
                | Effect::Leave
                | Effect::Print => {}
            }
        });
        behavior.runs_long = serial_iterations(body, body.root) > LONG;
        own
    }

    /// All functions that it reaches, which may call themselves; `functions` are the program's.
    pub fn reached(&self, functions: &[Arc<OwnBehavior>]) -> Vec<FuncId> {
        let mut seen = vec![false; functions.len()];
        let (mut found, mut calls) = (Vec::new(), self.calls.clone());
        while let Some(f) = calls.pop() {
            if !std::mem::replace(&mut seen[f.index()], true) {
                found.push(f);
                calls.extend(&functions[f.index()].calls);
            }
        }
        found
    }

    /// The functions that it calls itself, each once.
    pub fn called(&self) -> impl Iterator<Item = FuncId> {
        self.calls.iter().copied().collect::<BTreeSet<_>>().into_iter()
    }

    /// Its behavior combined with those of these functions.
    pub fn with(&self, functions: impl IntoIterator<Item = Behavior>) -> Behavior {
        functions.into_iter().fold(self.behavior, |mut all, callee| {
            all.fails |= callee.fails;
            all.draws |= callee.draws;
            all.balances |= callee.balances;
            all.cooperates |= callee.cooperates;
            all.atomics += callee.atomics;
            all.size += callee.size;
            all.runs_long |= callee.runs_long;
            all
        })
    }
}

/// Iterations of the serial loops of a block, without callees; very many where unknown. Iterations of parallel loops
/// count once, because a launch can end between them.
fn serial_iterations(body: &Body, block: BlockId) -> u64 {
    let of_inst = |op: &Op| match op {
        Op::Loop(_) => u64::MAX,
        Op::If(_, then, otherwise) => serial_iterations(body, *then).max(serial_iterations(body, *otherwise)),
        Op::For(l) => {
            let inside = serial_iterations(body, l.body).max(1);
            let trips = |(begin, end): (Option<i64>, Option<i64>)| Some(end?.saturating_sub(begin?).max(0) as u64);
            let dims = l.dims.iter().map(|d| trips((known_int(body, d.begin), known_int(body, d.end))));
            let all = || dims.fold(inside, |n, d| d.map_or(u64::MAX, |d| n.saturating_mul(d)));
            if l.parallel.is_some() { serial_iterations(body, l.body) } else { all() }
        }
        _ => 0,
    };
    body.block(block).iter().map(|v| of_inst(&body.inst(*v).op)).fold(0, u64::saturating_add)
}

/// The instruction count of each function if all its calls were inlined; very large for recursive functions.
pub fn inlined_sizes(functions: &[Arc<OwnBehavior>]) -> Vec<usize> {
    fn size(f: FuncId, functions: &[Arc<OwnBehavior>], known: &mut Vec<Option<usize>>) -> usize {
        if let Some(size) = known[f.index()] {
            return size;
        }
        known[f.index()] = Some(usize::MAX / 2);
        let OwnBehavior { behavior, calls } = &*functions[f.index()];
        let size = calls.iter().fold(behavior.size, |sum, callee| sum.saturating_add(size(*callee, functions, known)));
        known[f.index()] = Some(size);
        size
    }
    let mut known = vec![None; functions.len()];
    (0..functions.len() as u32).map(|i| size(FuncId(i), functions, &mut known)).collect()
}

#[cfg(test)]
mod tests {
    use octants_ir::{Builder, ForLoop, Range, Scalar, Type};

    use super::*;

    /// Nested loops with these numbers of iterations, `None` for one that a parameter gives.
    fn runs_long(trips: &[Option<i64>]) -> bool {
        let mut b = Builder::new();
        for trips in trips {
            let begin = b.int(0, Scalar::I32);
            let end = match trips {
                Some(n) => b.int(*n, Scalar::I32),
                None => b.push(Op::Param(0), Type::I32),
            };
            let body = b.body.add_block();
            b.push(Op::For(Box::new(ForLoop::serial(vec![Range { begin, end }], body))), Type::Unit);
            b.set_cursor(body);
        }
        OwnBehavior::of(&b.body).behavior.runs_long
    }

    #[test]
    fn loops_of_many_or_unknown_iterations_are_long() {
        assert!(!runs_long(&[]) && !runs_long(&[Some(100), Some(100)]) && !runs_long(&[Some(0), None]));
        assert!(runs_long(&[Some(100), Some(1000)]) && runs_long(&[None]) && runs_long(&[Some(3), None]));
        let mut b = Builder::new();
        let body = b.body.add_block();
        b.push(Op::Loop(body), Type::Unit);
        assert!(OwnBehavior::of(&b.body).behavior.runs_long);
    }
}
