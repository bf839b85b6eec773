//! Finds memory that several groups of a kernel touch and at least one writes. Groups are `stream_parallel` blocks, or
//! the sections of one `graph.parallel_context`.
//!
//! The dependence test between tasks decides. A conflict is certain if the test says so, both accesses happen in every
//! iteration, and no two axes of one access depend on the same loop. Atomic updates by the same operation do not race.
//! For different operations, such as `+=` and `*=`, the order may matter, so the conflict is possible but not certain.
//! Distinct buffers are distinct memory, except those named by the caller: the same array passed for two parameters,
//! or arrays that overlap. Fields that are components of others do not occur after `merge_aliased_buffers`. Buffers of
//! the compiler itself are ignored.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use octants_diag::Span;
use octants_ir::schedule::LocalUses;
use octants_ir::{
    AtomicOp, BlockId, Body, BufferId, Effect, ForLoop, Kernel, LoopGroup, Op, ValueId, section_of, task_blocks,
};

use crate::offload::statement_groups;
use octants_analysis::{
    Conflict, Dependence, Effects, KnownMemory, Place, Subscript, Term, body_effects, function_effects, inst_effects,
    local_uses, trace_address,
};

/// Two groups that touch the same memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlap {
    /// The memory.
    pub buffer: BufferId,
    /// The name under which the later group accesses it, if different.
    pub alias: Option<BufferId>,
    /// The access of the earlier group.
    pub first: Span,
    /// The access of the later group.
    pub second: Span,
    /// Both write; otherwise one of them reads.
    pub both_write: bool,
    /// The earlier group writes.
    pub first_writes: bool,
    /// They certainly conflict; otherwise they may.
    pub certain: bool,
    /// They are sections of a context, not blocks of `stream_parallel`.
    pub of_sections: bool,
}

/// Two buffers that share memory in a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alias {
    /// One.
    pub first: BufferId,
    /// The other.
    pub second: BufferId,
    /// They are the same array, so that equal indices mean the same element.
    pub same: bool,
}

/// The effect of an atomic update on memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Update {
    /// A subtraction counts as an addition.
    By(AtomicOp),
    CompareAndSwap,
}

impl Update {
    fn of(op: AtomicOp) -> Update {
        Update::By(if op == AtomicOp::Sub { AtomicOp::Add } else { op })
    }
}

struct Access {
    group: u32,
    buffer: BufferId,
    axes: Vec<Subscript>,
    writes: bool,
    /// The operation of an atomic update.
    atomic: Option<Update>,
    /// In every iteration of its loops.
    always: bool,
    span: Span,
}

/// The overlaps of a kernel's groups, except those in `allowed`: the most severe one for each pair of groups and each
/// pair of buffers that are the same memory, usually a buffer and itself.
pub fn find_overlaps(kernel: &Kernel, allowed: &BTreeSet<u32>, aliases: &[Alias]) -> Vec<Overlap> {
    let body = &kernel.body;
    let locals = local_uses(body);
    let mut search = Search::of(kernel, &locals, aliases);
    let mut regions: BTreeMap<u32, Option<u32>> = BTreeMap::new();
    for block in task_blocks(body) {
        let order = body.block(block);
        for (&v, group) in order.iter().zip(statement_groups(body, order)) {
            if let Some(LoopGroup { region, number }) = group {
                regions.insert(number, region);
                search.group = number;
                search.visit(v);
            }
        }
    }
    let mut worst: BTreeMap<(u32, u32, BufferId, BufferId), (Conflict, Overlap)> = BTreeMap::new();
    for (i, a) in search.accesses.iter().enumerate() {
        for b in &search.accesses[i + 1..] {
            let is_metadata = |access: &Access| kernel.buffers[access.buffer.index()].is_metadata;
            let harmless = !(a.writes || b.writes)
                || (a.atomic.is_some() && a.atomic == b.atomic)
                || is_metadata(a)
                || is_metadata(b);
            let shared = shared(aliases, a.buffer, b.buffer);
            let is_apart = a.group == b.group || regions[&a.group] != regions[&b.group];
            if is_apart || shared == Conflict::Apart || harmless {
                continue;
            }
            if allowed.contains(&a.group) || allowed.contains(&b.group) {
                continue;
            }
            // Indices of partially overlapping arrays cannot be compared.
            let meeting = if shared == Conflict::Certain { meeting(&mut search.dependence, a, b) } else { shared };
            if meeting == Conflict::Apart {
                continue;
            }
            let overlap = Overlap {
                buffer: a.buffer,
                alias: (a.buffer != b.buffer).then_some(b.buffer),
                first: a.span,
                second: b.span,
                both_write: a.writes && b.writes,
                first_writes: a.writes,
                certain: meeting == Conflict::Certain,
                of_sections: regions[&a.group].is_some(),
            };
            let known =
                worst.entry((a.group, b.group, a.buffer, b.buffer)).or_insert_with(|| (meeting, overlap.clone()));
            if known.0 < meeting {
                *known = (meeting, overlap);
            }
        }
    }
    worst.into_values().map(|(_, overlap)| overlap).collect()
}

/// The groups of a block that may touch the same element, one of them writing: in an order that matters, if updates
/// are rounded. Arrays that are the same memory are one buffer.
pub fn conflicting_groups(kernel: &Kernel, block: BlockId) -> Vec<(LoopGroup, LoopGroup)> {
    let body = &kernel.body;
    let locals = local_uses(body);
    let mut search = Search::of(kernel, &locals, &[]);
    let mut groups = BTreeMap::new();
    for &v in body.block(block) {
        if let Op::For(l) = &body.inst(v).op
            && let Some(group) = l.parallel.as_ref().and_then(|c| c.group)
        {
            groups.insert(group.number, group);
            search.group = group.number;
            search.visit(v);
        }
    }
    let mut found = BTreeSet::new();
    for (i, a) in search.accesses.iter().enumerate() {
        for b in &search.accesses[i + 1..] {
            let (first, second) = (groups[&a.group], groups[&b.group]);
            if a.group != b.group
                && a.buffer == b.buffer
                && (a.writes || b.writes)
                && first.region == second.region
                && !found.contains(&(first, second))
                && search.dependence.between_tasks(&a.axes, &b.axes) != Conflict::Apart
            {
                found.insert((first, second));
            }
        }
    }
    found.into_iter().collect()
}

/// The first of the arrays that each array is the same as.
fn same_arrays(aliases: &[Alias]) -> HashMap<BufferId, BufferId> {
    let mut same = HashMap::new();
    for alias in aliases.iter().filter(|alias| alias.same) {
        let (first, other) = (alias.first.min(alias.second), alias.first.max(alias.second));
        same.entry(other).and_modify(|known: &mut BufferId| *known = first.min(*known)).or_insert(first);
    }
    same
}

/// Whether two buffers are the same memory.
fn shared(aliases: &[Alias], a: BufferId, b: BufferId) -> Conflict {
    if a == b {
        return Conflict::Certain;
    }
    match aliases.iter().find(|x| (x.first, x.second) == (a, b) || (x.first, x.second) == (b, a)) {
        Some(alias) if alias.same => Conflict::Certain,
        Some(_) => Conflict::Possible,
        None => Conflict::Apart,
    }
}

/// The buffers whose memory the kernel does not write.
fn unwritten(kernel: &Kernel, effects: &Effects, aliases: &[Alias]) -> HashSet<BufferId> {
    let written = &effects.access.writes;
    let of_alias = |b| aliases.iter().filter(move |a| a.first == b || a.second == b);
    let is_written = |b: BufferId| {
        written.contains(&b) || of_alias(b).any(|a| written.contains(&a.first) || written.contains(&a.second))
    };
    (0..kernel.buffers.len() as u32).map(BufferId).filter(|b| !is_written(*b)).collect()
}

struct Search<'a> {
    body: &'a Body,
    dependence: Dependence<'a>,
    functions: Vec<Effects>,
    group: u32,
    /// Branches and loops of unknown length around the visited code.
    conditional: u32,
    accesses: Vec<Access>,
}

impl<'a> Search<'a> {
    fn of(kernel: &'a Kernel, locals: &'a LocalUses, aliases: &[Alias]) -> Search<'a> {
        let body = &kernel.body;
        let functions = function_effects(&kernel.functions);
        let memory = KnownMemory {
            same_arrays: same_arrays(aliases),
            constants: unwritten(kernel, &body_effects(body, &functions), aliases),
        };
        Search {
            body,
            functions,
            dependence: Dependence::as_meant_through(body, locals, memory),
            group: 0,
            conditional: 0,
            accesses: Vec::new(),
        }
    }

    fn visit(&mut self, v: ValueId) {
        let inst = self.body.inst(v);
        let span = inst.span;
        match inst.op.effect() {
            Effect::Read(a) | Effect::ReadVolatile(a) => self.add(a, false, None, span),
            Effect::Write(a) => self.add(a, true, None, span),
            Effect::Update(a) => {
                let update = match inst.op {
                    Op::Atomic(op, ..) => Update::of(op),
                    _ => Update::CompareAndSwap,
                };
                self.add(a, true, Some(update), span);
            }
            Effect::For(l) => {
                l.reductions.iter().for_each(|r| self.add(r.target, true, Some(Update::of(r.op)), span));
                let leaves_early = self.leaves_early(l);
                self.conditional += u32::from(leaves_early);
                self.block(l.body);
                self.conditional -= u32::from(leaves_early);
            }
            Effect::Call(..) => {
                let mut effects = Effects::default();
                inst_effects(self.body, &inst.op, &self.functions, &mut effects);
                for (buffers, writes) in [(&effects.access.reads, false), (&effects.access.writes, true)] {
                    let (group, always) = (self.group, false);
                    self.accesses.extend(buffers.iter().map(|&buffer| Access {
                        group,
                        buffer,
                        axes: vec![Subscript::UNKNOWN],
                        writes,
                        atomic: None,
                        always,
                        span,
                    }));
                }
            }
            // A section always runs.
            Effect::Loop(b) if section_of(self.body, b).is_some() => self.block(b),
            Effect::Branch(..) | Effect::Loop(_) => {
                self.conditional += 1;
                for b in inst.op.blocks() {
                    self.block(b);
                }
                self.conditional -= 1;
            }
            Effect::Pure
            | Effect::Index
            | Effect::Reduce
            | Effect::Draw
            | Effect::ReadClock
            | Effect::Exchange
            | Effect::Synchronize
            | Effect::Leave
            | Effect::Print
            | Effect::Assert => {}
        }
    }

    fn block(&mut self, block: BlockId) {
        self.body.block(block).iter().for_each(|&v| self.visit(v));
    }

    /// Some iterations may be left before their end.
    fn leaves_early(&self, l: &ForLoop) -> bool {
        let mut found = false;
        self.body.visit(l.body, &mut |_, inst| found |= inst.op.is_terminator());
        found
    }

    fn add(&mut self, address: ValueId, writes: bool, atomic: Option<Update>, span: Span) {
        let Place::Buffer(buffer) = trace_address(self.body, address) else { return };
        let axes = self.dependence.subscripts(address);
        // Two axes that follow one loop reach a diagonal of the box.
        let mut indices = BTreeSet::new();
        let terms = axes.iter().filter_map(Subscript::sum).flat_map(|sum| sum.terms.keys());
        let independent = terms.filter(|t| matches!(t, Term::Index(..))).all(|t| indices.insert(*t));
        let always = independent && self.conditional == 0;
        self.accesses.push(Access { group: self.group, buffer, axes, writes, atomic, always, span });
    }
}

fn meeting(dependence: &mut Dependence<'_>, a: &Access, b: &Access) -> Conflict {
    let least = dependence.between_tasks(&a.axes, &b.axes);
    let is_certain = a.always && b.always && !(a.atomic.is_some() && b.atomic.is_some());
    if least == Conflict::Certain && !is_certain { Conflict::Possible } else { least }
}
