//! Finds loop-carried variables of parallel loops: `s ^= s << 13`. Iterations run in any order and concurrently, so
//! the result is not what the source suggests.
//!
//! Only certain cases are reported. Each iteration stores to the variable, under no condition that differs between
//! iterations; the stored value is computed from the variable's value at the start of the iteration; and no single
//! atomic update is equivalent. Values that are the same after any iteration (`s = min(s, 3)`) are not reported.

use std::collections::HashSet;

use octants_analysis::{
    Place, known_int, local_uses, locals_of_all_iterations, may_leave, runs_once, same_address, shared_locals,
    trace_address,
};
use octants_diag::Span;
use octants_ir::schedule::LocalUses;
use octants_ir::{BinaryOp, BlockId, Body, ForLoop, Kernel, LocalId, Op, UnaryOp, ValueId, task_statements};

use crate::fold_constants::fold_constants;
use crate::inline_calls::inline_calls;
use crate::make_updates_atomic::make_updates_atomic;
use crate::simplify_locals::simplify_locals;

/// A loop-carried variable of a parallel loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CarriedLocal {
    /// The user's name of it.
    pub name: String,
    /// The store of a value that the next iteration reads.
    pub store: Span,
    /// Where that iteration reads it.
    pub load: Span,
    /// The loop.
    pub of_loop: Span,
}

/// The loop-carried variables of each loop, each with the first store whose value a later iteration reads.
pub fn find_carried_locals(kernel: &Kernel) -> Vec<CarriedLocal> {
    if !may_carry(&kernel.body) {
        return Vec::new();
    }
    let mut kernel = kernel.clone();
    inline_calls(&mut kernel);
    make_updates_atomic(&mut kernel);
    simplify_locals(&mut kernel);
    fold_constants(&mut kernel, false);
    make_updates_atomic(&mut kernel);
    let body = &kernel.body;
    let uses = local_uses(body);
    let mut found: Vec<CarriedLocal> = Vec::new();
    for (v, l) in parallel_loops(body) {
        let shared = locals_of_all_iterations(body, v);
        let stores = stores_of(body, l, &shared);
        let inside = code_of(body, l.body);
        let search = Search { body, uses: &uses, stores: &stores, inside: &inside };
        found.extend(stores.iter().filter_map(|s| {
            let load = body.inst(search.carries(s)?).span;
            let name = body.locals[s.local.index()].name.clone();
            Some(CarriedLocal { name, store: s.span, load, of_loop: body.inst(v).span })
        }));
    }
    found.sort_by(|a, b| (a.of_loop.start, &a.name, a.store.start).cmp(&(b.of_loop.start, &b.name, b.store.start)));
    found.dedup_by(|later, first| later.of_loop == first.of_loop && later.name == first.name);
    found
}

/// Some parallel loop writes a variable that lives outside of it.
fn may_carry(body: &Body) -> bool {
    parallel_loops(body).any(|(v, l)| {
        let mut touched = HashSet::new();
        body.visit(l.body, &mut |_, inst| match &inst.op {
            Op::Store(a, _) | Op::Atomic(_, a, _) => touched.extend(local_of(body, *a)),
            Op::Call(_, args) => touched.extend(args.iter().filter_map(|a| match body.inst(*a).op {
                Op::LocalAddr(_) | Op::ElementAddr(..) | Op::MemberAddr(..) => local_of(body, *a),
                _ => None,
            })),
            _ => {}
        });
        !touched.is_empty() && shared_locals(body, v).iter().any(|l| touched.contains(l))
    })
}

/// The loops whose iterations may run concurrently, except those that the user has restricted to one thread.
fn parallel_loops(body: &Body) -> impl Iterator<Item = (ValueId, &ForLoop)> {
    task_statements(body).into_iter().filter_map(|v| match &body.inst(v).op {
        Op::For(l) if l.is_parallel() && !is_on_one_thread(l) && !runs_once(body, l) => Some((v, &**l)),
        _ => None,
    })
}

fn is_on_one_thread(l: &ForLoop) -> bool {
    l.parallel.as_ref().is_some_and(|c| c.num_threads == Some(1))
}

fn local_of(body: &Body, addr: ValueId) -> Option<LocalId> {
    match trace_address(body, addr) {
        Place::Local(l) => Some(l),
        _ => None,
    }
}

/// The instructions of a block, in the order of the text.
fn code_of(body: &Body, block: BlockId) -> Vec<ValueId> {
    let mut code = Vec::new();
    body.visit(block, &mut |v, _| code.push(v));
    code
}

/// A store that each iteration makes.
struct SharedStore {
    local: LocalId,
    addr: ValueId,
    value: ValueId,
    span: Span,
    /// An atomic update: it is the operand that matters.
    is_atomic: bool,
}

/// The stores to `shared` that each iteration of a loop makes.
fn stores_of(body: &Body, l: &ForLoop, shared: &HashSet<LocalId>) -> Vec<SharedStore> {
    let inside: HashSet<ValueId> = code_of(body, l.body).into_iter().collect();
    let mut blocks = vec![l.body];
    let mut stores = Vec::new();
    while let Some(block) = blocks.pop() {
        for &v in body.block(block) {
            let inst = body.inst(v);
            match &inst.op {
                Op::Store(addr, value) | Op::Atomic(_, addr, value) => {
                    let Some(local) = local_of(body, *addr).filter(|l| shared.contains(l)) else { continue };
                    let is_atomic = matches!(inst.op, Op::Atomic(..));
                    stores.push(SharedStore { local, addr: *addr, value: *value, span: inst.span, is_atomic });
                }
                Op::For(inner) if runs_for_all(body, inner, &inside) && !may_leave(body, inner.body) => {
                    blocks.push(inner.body);
                }
                Op::If(_, yes, no) if may_leave(body, *yes) || may_leave(body, *no) => break,
                Op::If(c, yes, no) if !inside.contains(c) => blocks.extend([*yes, *no]),
                Op::Break | Op::Continue | Op::Return(_) => break,
                _ => {}
            }
        }
    }
    stores
}

/// Whether an inner loop runs in all iterations of the enclosing loop or in none, judging by its bounds.
fn runs_for_all(body: &Body, inner: &ForLoop, inside: &HashSet<ValueId>) -> bool {
    inner.dims.iter().all(|d| match (known_int(body, d.begin), known_int(body, d.end)) {
        (Some(begin), Some(end)) => begin < end,
        _ => [d.begin, d.end].iter().all(|v| known_int(body, *v).is_some() || !inside.contains(v)),
    })
}

/// Finds the values from which a stored value is computed.
struct Search<'a> {
    body: &'a Body,
    uses: &'a LocalUses,
    stores: &'a [SharedStore],
    inside: &'a [ValueId],
}

impl Search<'_> {
    /// The load of the variable's value at the start of the iteration from which the stored value is computed.
    fn carries(&self, store: &SharedStore) -> Option<ValueId> {
        self.reaches(store.value, store.is_atomic, store, &mut HashSet::new())
    }

    /// The load of the target's value at the start of an iteration from which a value is computed by at least one
    /// operation that is not idempotent; `changes` if there was one on the path so far.
    fn reaches(
        &self,
        v: ValueId,
        changes: bool,
        target: &SharedStore,
        seen: &mut HashSet<(ValueId, bool)>,
    ) -> Option<ValueId> {
        let v = self.uses.source(v);
        if !self.inside.contains(&v) || !seen.insert((v, changes)) {
            return None;
        }
        let op = &self.body.inst(v).op;
        if let Op::Load(addr) = op
            && let Some(local) = local_of(self.body, *addr)
        {
            if !self.is_at_start(v, local) {
                return None;
            }
            if local == target.local {
                return (changes && same_address(self.body, *addr, target.addr)).then_some(v);
            }
            let through = |s: &&SharedStore| s.local == local && same_address(self.body, *addr, s.addr);
            // Two variables that each take the other's value are loop-carried too.
            return self.stores.iter().filter(through).find_map(|s| self.reaches(s.value, true, target, seen));
        }
        let changes = changes
            || !matches!(
                op,
                Op::Cast(_)
                    | Op::Select(..)
                    | Op::Unary(UnaryOp::Abs, _)
                    | Op::Binary(BinaryOp::Min | BinaryOp::Max | BinaryOp::And | BinaryOp::Or, ..)
                    | Op::Binary(BinaryOp::Mod | BinaryOp::Rem, ..)
            );
        let mut found = None;
        match op {
            Op::Load(addr) => self.index_operands(*addr, &mut |u| {
                found = found.or_else(|| self.reaches(u, true, target, seen));
            }),
            Op::Atomic(..) | Op::AtomicCas(..) => {}
            _ => op.for_each_operand(|u| {
                if !matches!(self.body.ty(u), octants_ir::Type::Ref(_)) {
                    found = found.or_else(|| self.reaches(u, changes, target, seen));
                }
            }),
        }
        found
    }

    /// Calls `f` on the indices of an address.
    fn index_operands(&self, addr: ValueId, f: &mut dyn FnMut(ValueId)) {
        match &self.body.inst(addr).op {
            Op::BufferAddr(_, indices) => indices.iter().for_each(|u| f(*u)),
            Op::ElementAddr(base, indices) => {
                indices.iter().for_each(|u| f(*u));
                self.index_operands(*base, f);
            }
            Op::MemberAddr(base, _) => self.index_operands(*base, f),
            _ => {}
        }
    }

    /// Nothing in the text of the iteration writes the variable before this load.
    fn is_at_start(&self, load: ValueId, local: LocalId) -> bool {
        self.inside.iter().take_while(|v| **v != load).all(|v| match &self.body.inst(*v).op {
            Op::Store(a, _) | Op::Atomic(_, a, _) | Op::AtomicCas(a, ..) => local_of(self.body, *a) != Some(local),
            Op::Call(_, args) => args.iter().all(|a| {
                !matches!(self.body.ty(*a), octants_ir::Type::Ref(_)) || local_of(self.body, *a) != Some(local)
            }),
            _ => true,
        })
    }
}
