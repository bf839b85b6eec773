//! Finds writes to words without concurrent writers, which need no atomics.

use std::collections::{BTreeMap, BTreeSet};

use octants_ir::{BlockId, Body, BufferId, ForLoop, Kernel, Op, ValueId};

use super::{PackedField, place_of};

/// A store or an atomic update, the words that it writes, and the indices of the element.
struct Write {
    inst: ValueId,
    words: Vec<BufferId>,
    indices: Vec<ValueId>,
    /// No two elements share a word.
    has_own_words: bool,
}

/// The stores and atomic updates in a kernel's own body that are the only writers of their word: those in code that one
/// thread executes, and those in parallel loops in which each iteration addresses words by its own indices. Loops in a
/// group do not qualify, because another group may write to the word.
pub(super) fn sole_writers(fields: &BTreeMap<BufferId, PackedField>, kernel: &Kernel) -> BTreeSet<ValueId> {
    let function_writes = kernel.functions.iter().any(|f| {
        let mut all = f.body.blocks.iter().flatten();
        all.any(|v| write_of(fields, &f.body, *v).is_some())
    });
    let body = &kernel.body;
    let [mut all, mut concurrent, mut own] = [BTreeSet::new(), BTreeSet::new(), BTreeSet::new()];
    body.visit(body.root, &mut |v, inst| {
        if write_of(fields, body, v).is_some() {
            all.insert(v);
        }
        let Op::For(each) = &inst.op else { return };
        let Some(config) = &each.parallel else { return };
        if config.serialize && config.group.is_none() {
            return;
        }
        let (writes, calls) = writes_in(fields, body, each.body);
        concurrent.extend(writes.iter().map(|write| write.inst));
        if config.group.is_none() && !(calls && function_writes) {
            own.extend(own_words(body, v, each, &writes));
        }
    });
    all.difference(&concurrent).chain(&own).copied().collect()
}

/// The writes in a block, and whether it calls functions.
fn writes_in(fields: &BTreeMap<BufferId, PackedField>, body: &Body, block: BlockId) -> (Vec<Write>, bool) {
    let (mut found, mut calls) = (Vec::new(), false);
    body.visit(block, &mut |v, inst| {
        found.extend(write_of(fields, body, v));
        calls |= matches!(inst.op, Op::Call(..));
    });
    (found, calls)
}

fn write_of(fields: &BTreeMap<BufferId, PackedField>, body: &Body, v: ValueId) -> Option<Write> {
    let (Op::Store(address, _) | Op::Atomic(_, address, _)) = &body.inst(v).op else { return None };
    let place = place_of(fields, body, *address)?;
    let parts = &fields[&place.buffer].parts;
    Some(Write {
        inst: v,
        words: parts.iter().map(|part| part.words).collect(),
        indices: place.indices,
        has_own_words: parts.iter().all(|part| part.component.within.is_empty()),
    })
}

/// The writes of a loop to words that its other iterations do not write to.
fn own_words(body: &Body, each: ValueId, of: &ForLoop, writes: &[Write]) -> Vec<ValueId> {
    let by_own_indices = |write: &Write| {
        let indices: Vec<ValueId> = write.indices.iter().map(|i| component(body, *i)).collect();
        let is_index =
            |axis: u32, i: &ValueId| matches!(body.inst(*i).op, Op::LoopIndex(l, a) if l == each && a == axis);
        (0..of.dims.len() as u32).all(|axis| indices.iter().any(|i| is_index(axis, i)))
    };
    // Two writes by own indices in another order could meet.
    let first_of = |words: BufferId| {
        let mut all = writes.iter().filter(|w| w.words.contains(&words));
        let first = all.next()?;
        let same = all.all(|w| axes_of(body, &w.indices) == axes_of(body, &first.indices));
        (same && writes.iter().all(|w| !w.words.contains(&words) || (w.has_own_words && by_own_indices(w))))
            .then_some(())
    };
    writes.iter().filter(|w| w.words.iter().all(|words| first_of(*words).is_some())).map(|w| w.inst).collect()
}

/// For each index, the axis of the loop that it counts.
fn axes_of(body: &Body, indices: &[ValueId]) -> Vec<Option<u32>> {
    let axis = |i: &ValueId| match body.inst(component(body, *i)).op {
        Op::LoopIndex(_, axis) => Some(axis),
        _ => None,
    };
    indices.iter().map(axis).collect()
}

/// The value of a component of a newly constructed vector.
fn component(body: &Body, v: ValueId) -> ValueId {
    match &body.inst(v).op {
        Op::Extract(whole, n) => match &body.inst(*whole).op {
            Op::MakeTensor(parts) => parts[*n as usize],
            _ => v,
        },
        _ => v,
    }
}
