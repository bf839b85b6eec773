//! The kernel's local variables that the iterations of a parallel loop share.

use std::collections::{BTreeSet, HashMap, HashSet};

use octants_analysis::{Place, locals_of_all_iterations, trace_address};
use octants_ir::{BlockId, Body, Buffer, BufferId, ForLoop, Kernel, Layout, LocalId, MemorySpace, Op, Type, ValueId};

/// A local that iterations share.
#[derive(Debug, Clone, Copy)]
pub(super) struct SharedLocal {
    /// Its name in reports.
    pub name: BufferId,
    /// Whether iterations read values that others stored. Otherwise only code after the loop reads them.
    pub is_read: bool,
}

/// The locals that iterations of a loop store to and that others see: in the loop (true), or only code after it.
pub(crate) fn locals_shared_by(body: &Body, v: ValueId, l: &ForLoop) -> Vec<(LocalId, bool)> {
    let seen_inside: HashSet<LocalId> = locals_of_all_iterations(body, v);
    let mut stored = BTreeSet::new();
    body.visit(l.body, &mut |_, inst| {
        if let Op::Store(a, _) | Op::Atomic(_, a, _) | Op::AtomicCas(a, ..) = inst.op
            && let Place::Local(local) = trace_address(body, a)
        {
            stored.insert(local);
        }
    });
    let behind = statements_after(body, body.root, v).unwrap_or_default();
    let use_behind = |local: LocalId| behind.iter().find_map(|statements| first_use(body, statements, local));
    let is_seen = |local: &LocalId| seen_inside.contains(local) || use_behind(*local) == Some(Use::Read);
    stored.into_iter().filter(is_seen).map(|local| (local, seen_inside.contains(&local))).collect()
}

/// The statements after one in its block, then those after that block, and so on outward.
fn statements_after(body: &Body, block: BlockId, v: ValueId) -> Option<Vec<&[ValueId]>> {
    let statements = body.block(block);
    statements.iter().enumerate().find_map(|(n, &statement)| {
        let mut inside = match statement == v {
            true => Vec::new(),
            false => body.inst(statement).op.blocks().into_iter().find_map(|inner| statements_after(body, inner, v))?,
        };
        inside.push(&statements[n + 1..]);
        Some(inside)
    })
}

/// The first access of code to a local.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// It may read it.
    Read,
    /// Whether it sets the local unconditionally.
    Set,
}

/// `None` if the statements do not certainly use the local.
fn first_use(body: &Body, statements: &[ValueId], local: LocalId) -> Option<Use> {
    let is_of = |a: ValueId| trace_address(body, a) == Place::Local(local);
    for &v in statements {
        let op = &body.inst(v).op;
        match op {
            Op::Load(a) | Op::Atomic(_, a, _) | Op::AtomicCas(a, ..) if is_of(*a) => return Some(Use::Read),
            Op::Store(a, _) if body.inst(*a).op == Op::LocalAddr(local) => return Some(Use::Set),
            _ => {}
        }
        let inside: Vec<Option<Use>> = op.blocks().into_iter().map(|b| first_use(body, body.block(b), local)).collect();
        if inside.contains(&Some(Use::Read)) {
            return Some(Use::Read);
        }
        // A loop may have no iterations.
        if matches!(op, Op::If(..)) && inside.iter().all(|first| *first == Some(Use::Set)) {
            return Some(Use::Set);
        }
    }
    None
}

/// Adds a pseudo-buffer for each local, with its name.
pub(super) fn name_locals(
    kernel: &mut Kernel,
    shared: HashMap<ValueId, Vec<(LocalId, bool)>>,
) -> HashMap<ValueId, HashMap<LocalId, SharedLocal>> {
    let mut named: HashMap<LocalId, BufferId> = HashMap::new();
    let mut name = |local: LocalId| {
        *named.entry(local).or_insert_with(|| {
            let of = &kernel.body.locals[local.index()];
            let buffer = buffer_named(of.name.clone(), of.ty.clone());
            kernel.buffers.push(buffer);
            BufferId(kernel.buffers.len() as u32 - 1)
        })
    };
    let mut with_names = |locals: Vec<(LocalId, bool)>| -> HashMap<LocalId, SharedLocal> {
        locals.into_iter().map(|(local, is_read)| (local, SharedLocal { name: name(local), is_read })).collect()
    };
    shared.into_iter().map(|(v, locals)| (v, with_names(locals))).collect()
}

fn buffer_named(name: String, elem: Type) -> Buffer {
    Buffer {
        name,
        elem,
        ndim: 0,
        layout: Layout::Contiguous,
        space: MemorySpace::Global,
        short_offsets: false,
        is_metadata: false,
    }
}
