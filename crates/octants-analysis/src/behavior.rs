//! What code does beyond computing, through its calls too, and how long it is.

use std::collections::BTreeSet;
use std::sync::Arc;

use octants_ir::schedule::Behavior;
use octants_ir::{Body, Effect, FuncId, Op};

/// A body by itself.
#[derive(Debug)]
pub struct OwnBehavior {
    /// What it does without the functions it calls.
    pub behavior: Behavior,
    /// The functions it calls, once for each call.
    pub calls: Vec<FuncId>,
}

impl OwnBehavior {
    /// Looks at a body. [`own_behavior`](crate::own_behavior) keeps the answer.
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
                // Blocks have the threads that the program asked for where it tells them apart.
                Effect::Index if matches!(inst.op, Op::Grid(_)) => behavior.cooperates = true,
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

    /// Its behavior, and those of functions with these.
    pub fn with(&self, functions: impl IntoIterator<Item = Behavior>) -> Behavior {
        functions.into_iter().fold(self.behavior, |mut all, callee| {
            all.fails |= callee.fails;
            all.draws |= callee.draws;
            all.balances |= callee.balances;
            all.cooperates |= callee.cooperates;
            all.atomics += callee.atomics;
            all.size += callee.size;
            all
        })
    }
}

/// The instructions of each function as if all its calls were inlined; very many for those that call themselves.
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
