//! Finds gradients that are wrong because memory no longer holds what the kernel read. The sweeps read memory after
//! the kernel has run.
//!
//! A gradient that is also an input of the kernel is an error if a sweep needs it, because the sweeps add to it while
//! they read.
//!
//! For other memory, only certain cases are found. If a sweep needs a loaded value, and the same code later overwrites
//! the element at the same index (in the next iteration of a sequential loop, or in a later loop, see `later_loops`),
//! it is a warning: the affected part of the gradient may be unused. If an iteration of a parallel loop reads what
//! another one stores, it is an error: no order of the iterations can be reversed. Value-dependent cases are found at
//! run time (`validation=True` of a tape).

use std::collections::BTreeSet;

use octants_diag::{Code, Diagnostic};
use octants_ir::{AtomicOp, BinaryOp, Body, Buffer, BufferId, Const, Op, UnaryOp, ValueId};

use super::find_active_values::is_extreme;
use super::later_loops::overwrites_later;
use super::plan_sweeps::Plan;
use crate::memory_use::{MemoryUse, memory_use};
use octants_analysis::{Conflict, Dependence, KnownMemory, Place, Subscript, trace_address, trace_element};

/// A read or a write of an array element.
#[derive(Debug, Clone)]
struct Access {
    inst: ValueId,
    buffer: BufferId,
    addr: ValueId,
    /// The subscripts of the element.
    element: Vec<Subscript>,
    /// Those in the element, of a component.
    component: Vec<Subscript>,
}

impl Access {
    /// The same component of a vector or matrix, or all of it, if both accesses specify it.
    fn is_same_component(&self, other: &Access, dependence: &Dependence<'_>) -> bool {
        dependence.within_iteration(&self.component, &other.component) == Conflict::Certain
    }
}

/// Finds reads of memory that is overwritten later.
pub(super) fn check_overwritten(
    plan: &Plan,
    buffers: &[Buffer],
    gradients: &[Option<BufferId>],
    warn: &mut dyn FnMut(Diagnostic),
) -> Result<(), Box<Diagnostic>> {
    let mut dependence = Dependence::as_meant(plan.body, KnownMemory::default());
    let (mut loads, mut stores, mut updates, mut extremes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    plan.body.visit(plan.body.root, &mut |inst, i| {
        let (addr, list) = match memory_use(&i.op) {
            MemoryUse::Load(a) => (a, &mut loads),
            MemoryUse::Store { address, .. } => (address, &mut stores),
            MemoryUse::Update { op, address, .. } if is_extreme(op) => (address, &mut extremes),
            MemoryUse::Update { address, .. } => (address, &mut updates),
            // Memory that other threads change meanwhile cannot be checked.
            MemoryUse::VolatileLoad(_) | MemoryUse::CompareAndSwap { .. } | MemoryUse::Nothing => return,
        };
        if let Some((buffer, element)) = trace_element(plan.body, addr) {
            let mut subscripts = dependence.subscripts(addr);
            let component = subscripts.split_off(indices(plan.body, element).len().min(subscripts.len()));
            list.push(Access { inst, buffer, addr: element, element: subscripts, component });
        }
    });
    let needed: BTreeSet<ValueId> =
        plan.root.values.iter().chain(plan.loops.values().flat_map(|p| &p.need.values)).copied().collect();
    let name = |b: BufferId| &buffers[b.index()].name;
    for load in &loads {
        let of_same = |w: &&Access| w.buffer == load.buffer;
        for store in stores.iter().filter(of_same) {
            if gradients[load.buffer.index()].is_some() && crosses_iterations(plan, &mut dependence, load, store) {
                let message = format!(
                    "Cross-iteration read-after-write of `{}`: an iteration of a parallel loop reads what another \
                     one stores",
                    name(load.buffer)
                );
                return Err(Diagnostic::new(Code::Derivative, plan.body.inst(load.inst).span, message).with_hint(
                    "put `qd.loop_config(serialize=True)` before the loop, or compute each step in a separate kernel \
                     call",
                ));
            }
        }
        if !needed.contains(&load.inst) {
            continue;
        }
        if adds_to(plan, buffers, gradients, load.buffer) {
            let message = format!(
                "the gradient needs the value of `{}` read here, but also adds to `{}` itself",
                name(load.buffer),
                name(load.buffer)
            );
            return Err(Diagnostic::new(Code::Derivative, plan.body.inst(load.inst).span, message).with_hint(
                "copy the gradient to another field in a separate kernel before this one, and read the copy",
            ));
        }
        if stores
            .iter()
            .chain(&updates)
            .chain(&extremes)
            .filter(of_same)
            .any(|write| overwrites(plan, &dependence, load, write))
        {
            warn(*warning(plan, load, &format!("the value of `{}` read here", name(load.buffer))));
        }
    }
    // The minimum or maximum is determined from the final value.
    for update in extremes.iter().filter(|u| plan.activity.works(u.inst)) {
        let is_other =
            |w: &&Access| w.buffer == update.buffer && kind_of_update(plan, w) != kind_of_update(plan, update);
        let writes = stores.iter().chain(&updates).chain(&extremes);
        if writes.filter(is_other).any(|write| overwrites(plan, &dependence, update, write)) {
            warn(*warning(plan, update, &format!("the value that `{}` gets here", name(update.buffer))));
        }
    }
    Ok(())
}

/// A buffer is a gradient that the sweeps change.
fn adds_to(plan: &Plan, buffers: &[Buffer], gradients: &[Option<BufferId>], buffer: BufferId) -> bool {
    let is_it = |b: BufferId| {
        let gradient = gradients[b.index()];
        gradient.is_some_and(|g| g == buffer || buffers[g.index()].shares_memory(&buffers[buffer.index()]))
    };
    let mut found = false;
    plan.body.visit(plan.body.root, &mut |v, inst| {
        if let Some(a) = memory_use(&inst.op).address() {
            found |= plan.activity.works(v) && matches!(trace_address(plan.body, a), Place::Buffer(b) if is_it(b));
        }
    });
    found
}

fn kind_of_update(plan: &Plan, access: &Access) -> Option<AtomicOp> {
    match memory_use(&plan.body.inst(access.inst).op) {
        MemoryUse::Update { op, .. } => Some(op),
        MemoryUse::Load(_) | MemoryUse::VolatileLoad(_) | MemoryUse::Store { .. } => None,
        MemoryUse::CompareAndSwap { .. } | MemoryUse::Nothing => None,
    }
}

fn warning(plan: &Plan, access: &Access, what: &str) -> Box<Diagnostic> {
    let message = format!("the gradient will be wrong: it needs {what}, but the same kernel overwrites it later");
    Diagnostic::new(Code::Derivative, plan.body.inst(access.inst).span, message)
        .with_hint("overwrite it in a separate kernel after this one, or write the new values to another array")
}

fn indices(body: &Body, addr: ValueId) -> &[ValueId] {
    match &body.inst(addr).op {
        Op::BufferAddr(_, indices) => indices,
        _ => &[],
    }
}

/// The write certainly changes the value after the read.
fn overwrites(plan: &Plan, dependence: &Dependence<'_>, load: &Access, write: &Access) -> bool {
    let (body, layout) = (plan.body, &plan.layout);
    if !load.is_same_component(write, dependence) {
        return false;
    }
    if overwrites_later(plan, dependence, (load.inst, &load.element), (write.inst, &write.element)) {
        return true;
    }
    if dependence.within_iteration(&load.element, &write.element) != Conflict::Certain {
        return false;
    }
    // The write is in the read's block, or in one around it, so that it runs whenever the read has run.
    let mut at = layout.home[load.inst.index()];
    let mut position = layout.position[load.inst.index()];
    loop {
        let here = layout.home[write.inst.index()] == at;
        if here && layout.position[write.inst.index()] > position {
            return true;
        }
        let Some(owner) = layout.owner[at.index()] else { return false };
        match &body.inst(owner).op {
            // The next iteration writes before it reads, or after: in both cases the value that this one read is lost.
            Op::For(_) | Op::Loop(_) if here && !plan.is_parallel(owner) => {
                return !indices(body, load.addr).iter().any(|i| depends_on_loop(plan, *i, owner));
            }
            _ => {}
        }
        position = layout.position[owner.index()];
        at = layout.home[owner.index()];
    }
}

/// Whether one iteration of a parallel loop reads an element that another one stores, for indices that are a multiple
/// of the loop index plus a constant. Indices along other axes must be equal values. Branches that exclude only the
/// edges of the loop are assumed to be taken. For other branches, the excluded iterations are unknown.
fn crosses_iterations(plan: &Plan, dependence: &mut Dependence<'_>, load: &Access, store: &Access) -> bool {
    let body = plan.body;
    let root_loop = |v: ValueId| {
        let is_around = |l: &&ValueId| match &body.inst(**l).op {
            Op::For(f) => plan.is_parallel(**l) && plan.layout.is_inside(v, f.body),
            _ => false,
        };
        plan.statements().find(|l| is_around(&l))
    };
    let Some(around) = root_loop(load.inst).filter(|l| root_loop(store.inst) == Some(*l)) else { return false };
    if !(leaves_out_edges(plan, load.inst) && leaves_out_edges(plan, store.inst)) {
        return false;
    }
    let found = dependence.between_iterations(around, &load.element, &store.element);
    found.is_exact
        && !found.axes.contains(&Conflict::Apart)
        && found.axes.contains(&Conflict::Certain)
        && load.is_same_component(store, dependence)
}

/// The branches around an instruction leave out edges of loops at most.
fn leaves_out_edges(plan: &Plan, v: ValueId) -> bool {
    conditions_around(plan, v).all(|(c, holds)| is_edge(plan, c, holds))
}

/// The conditions of the branches around an instruction, and whether they hold there.
fn conditions_around(plan: &Plan, v: ValueId) -> impl Iterator<Item = (ValueId, bool)> {
    let (body, layout) = (plan.body, &plan.layout);
    std::iter::successors(Some(v), |u| layout.around(*u)).filter_map(|u| match body.inst(layout.around(u)?).op {
        Op::If(c, then, _) => Some((c, layout.home[u.index()] == then)),
        _ => None,
    })
}

/// Whether the condition being equal to `holds` excludes only iterations at an edge: it is an order comparison of sums
/// and multiples of indices, excludes one number, or consists of such conditions.
fn is_edge(plan: &Plan, c: ValueId, holds: bool) -> bool {
    let (body, layout) = (plan.body, &plan.layout);
    match &body.inst(c).op {
        Op::Const(_) => true,
        Op::Unary(UnaryOp::LogicNot, x) => is_edge(plan, *x, !holds),
        Op::Binary(BinaryOp::And | BinaryOp::Or, x, y) => is_edge(plan, *x, holds) && is_edge(plan, *y, holds),
        Op::Binary(op, x, y) => {
            let leaves_out = match op {
                BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge => true,
                BinaryOp::Ne => holds,
                BinaryOp::Eq => !holds,
                _ => false,
            };
            leaves_out && is_linear(body, *x) && is_linear(body, *y)
        }
        // `and`, `or`, and the flag of a structured `continue`: a constant may be stored in either branch of the
        // condition.
        Op::Load(a) => match trace_address(body, *a) {
            Place::Local(l) => layout.stores[l.index()].iter().all(|s| match body.inst(*s).op {
                Op::Store(_, x) => {
                    layout.position[s.index()] < layout.position[c.index()]
                        && is_edge(plan, x, holds)
                        && conditions_around(plan, *s).all(|(c, _)| is_edge(plan, c, true) || is_edge(plan, c, false))
                }
                _ => false,
            }),
            _ => false,
        },
        _ => false,
    }
}

fn is_linear(body: &Body, v: ValueId) -> bool {
    match &body.inst(v).op {
        Op::Const(Const::Int(_)) | Op::Param(_) | Op::Shape(..) | Op::LoopIndex(..) => true,
        Op::Cast(x) | Op::Unary(UnaryOp::Neg, x) => is_linear(body, *x),
        Op::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul, x, y) => is_linear(body, *x) && is_linear(body, *y),
        _ => false,
    }
}

/// Whether the operands of a value may differ between iterations of a loop.
fn depends_on_loop(plan: &Plan, v: ValueId, around: ValueId) -> bool {
    let inner = plan.body.inst(around).op.blocks()[0];
    if !plan.layout.is_inside(v, inner) {
        return false;
    }
    let op = &plan.body.inst(v).op;
    match op {
        Op::LoopIndex(l, _) => *l == around || plan.layout.is_inside(*l, inner),
        op if op.is_pure() => {
            let mut any = false;
            op.for_each_operand(|u| any |= depends_on_loop(plan, u, around));
            any
        }
        _ => true,
    }
}
