//! Selects the accesses to instrument: those of a parallel loop for which the dependence test cannot exclude conflicts
//! between iterations.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use octants_analysis::{Conflict, Dependence, MemoryClasses, Place, Subscript, local_uses, runs_once, trace_address};
use octants_diag::Span;
use octants_ir::{
    BlockId, Body, BufferId, Effect, ForLoop, FuncId, Kernel, Layout, LocalId, MemorySpace, Op, ThreadScope, ValueId,
    task_statements,
};

use super::barrier_phases::last_barriers;
use super::site::{Access, BufferShape, MOST_SITES, Memory, Shapes, Site};
use super::{FIRST_WORD_OF_LOCALS, NOTE_WORDS};
use crate::find_races::locals_shared_by;

/// Different ways to access memory that are compared with each other; with more of them all are watched.
const MOST_COMPARED: usize = 128;

/// A line that accesses memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    pub memory: Memory,
    pub access: Access,
    pub span: Span,
}

/// The watched accesses of a kernel.
#[derive(Debug, Default)]
pub struct Watched {
    /// The parallel loops, in order.
    pub loops: Vec<ValueId>,
    /// Accesses in them.
    pub accesses: HashMap<ValueId, Site>,
    /// Functions that they call, with the accesses there.
    pub functions: BTreeMap<FuncId, HashMap<ValueId, Site>>,
    /// The buffers.
    pub buffers: BTreeSet<BufferId>,
    /// Arrays of a block among them.
    pub shared: BTreeSet<BufferId>,
    /// The loops among them whose threads share arrays of a block, or synchronize.
    pub blocks: BTreeMap<ValueId, BlockLoop>,
    /// Buffers that need a second word for each scalar: other memory that threads of a block access between barriers,
    /// and arrays of a block whose subgroups synchronize.
    pub in_phases: BTreeSet<BufferId>,
    /// Buffers that need a third word: other memory that threads of synchronizing subgroups access.
    pub in_subgroups: BTreeSet<BufferId>,
    /// By their number in the kernel.
    pub lines: Vec<Line>,
    /// The numbering of scalars.
    pub shapes: Shapes,
}

/// An access of a loop.
struct Found {
    /// The function that it is in, if it is not in the loop itself.
    function: Option<FuncId>,
    inst: ValueId,
    memory: Memory,
    access: Access,
    axes: Vec<Subscript>,
    span: Span,
}

/// A loop whose threads share arrays of a block, or synchronize.
#[derive(Debug, Clone)]
pub struct BlockLoop {
    /// The watched arrays of its blocks.
    pub arrays: BTreeSet<BufferId>,
    pub meet: Synchronization,
}

/// How the threads of a loop's blocks synchronize.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Synchronization {
    /// They do not.
    Never,
    /// All of a block do, between accesses.
    InBlocks,
    /// All of a subgroup do, or exchange values. Those of a block may also do so.
    InSubgroups,
    /// In ways that are not analyzed here.
    Otherwise,
}

/// Finds the accesses to instrument. The words of shared arrays take at most this many bytes.
pub fn find_watched(kernel: &Kernel, arrays_may_alias: bool, shared_bytes: u64) -> Watched {
    let memory = MemoryClasses::of(&kernel.buffers, arrays_may_alias);
    let classes = memory.sharing();
    let mut search = Search { kernel, memory, classes, found: Vec::new() };
    let mut watched = Watched::default();
    let shape = |b: &octants_ir::Buffer| BufferShape {
        layout: b.layout.clone(),
        axes: b.ndim as usize,
        scalars: b.elem.leaf_count() as u64,
    };
    watched.shapes.buffers = kernel.buffers.iter().map(shape).collect();
    let of_blocks = kernel.buffers.iter().filter(|b| b.space == MemorySpace::Shared);
    let (bytes, words) = of_blocks.map(shared_sizes).fold((0, 0), |(b, w), (bytes, words)| (b + bytes, w + words));
    // Most arrays have one word for each scalar.
    let room = shared_bytes.saturating_sub(bytes) / 8;
    let watches_blocks =
        |meet: Synchronization| words * if meet == Synchronization::InSubgroups { 2 } else { 1 } <= room;
    for v in task_statements(&kernel.body) {
        let Op::For(l) = &kernel.body.inst(v).op else { continue };
        if l.is_parallel() && !runs_once(&kernel.body, l) {
            let (unproved, meet) = search.unproved(v, l, &watches_blocks);
            if unproved.is_empty() {
                continue;
            }
            watched.loops.push(v);
            let shared_buffer = |f: &Found| match f.memory {
                Memory::Buffer(b) if kernel.buffers[b.index()].space == MemorySpace::Shared => Some(b),
                _ => None,
            };
            let shared: BTreeSet<BufferId> = unproved.iter().filter_map(shared_buffer).collect();
            if meet != Synchronization::Never {
                let memory = unproved.iter().filter_map(|f| match f.memory {
                    Memory::Buffer(b) => Some(b),
                    _ => None,
                });
                let needs = |b: &BufferId| !shared.contains(b) || meet == Synchronization::InSubgroups;
                let in_phases: Vec<BufferId> = memory.filter(needs).collect();
                if meet == Synchronization::InSubgroups {
                    watched.in_subgroups.extend(in_phases.iter().filter(|b| !shared.contains(b)));
                }
                watched.in_phases.extend(in_phases);
            }
            if !shared.is_empty() || meet != Synchronization::Never {
                watched.shared.extend(&shared);
                watched.blocks.insert(v, BlockLoop { arrays: shared, meet });
            }
            search.found.extend(unproved);
        }
    }
    number_sites(kernel, search, &mut watched);
    watched
}

/// Gives each place that accesses memory a number among those of memory that may be the same.
fn number_sites(kernel: &Kernel, mut search: Search<'_>, watched: &mut Watched) {
    let mut found = std::mem::take(&mut search.found);
    // In source order, so that the lower number is the earlier line.
    found.sort_by_key(|f| (search.class(f.memory), f.span.file, f.span.start, f.access));
    let mut base = 0;
    let mut class = None;
    let mut next_word = FIRST_WORD_OF_LOCALS;
    for f in found {
        if let Memory::Local(local) = f.memory
            && !watched.shapes.locals.contains_key(&local)
        {
            let scalars = kernel.body.locals[local.index()].ty.leaf_count() as u64;
            if next_word + scalars > NOTE_WORDS {
                continue;
            }
            watched.shapes.locals.insert(local, next_word);
            next_word += scalars;
        }
        if class != Some(search.class(f.memory)) {
            class = Some(search.class(f.memory));
            base = watched.lines.len();
        }
        let line = Line { memory: f.memory, access: f.access, span: f.span };
        let last = watched.lines.len();
        if last == base || watched.lines[last - 1] != line && last - base < MOST_SITES {
            watched.lines.push(line);
        }
        let number = (watched.lines.len() - 1 - base) as u32;
        let site = Site { memory: f.memory, access: f.access, number, base: base as u32 };
        if let Memory::Buffer(b) = f.memory {
            watched.buffers.insert(b);
        }
        match f.function {
            None => _ = watched.accesses.insert(f.inst, site),
            Some(function) => _ = watched.functions.entry(function).or_default().insert(f.inst, site),
        }
    }
    // Functions between a loop and a watched one pass on the iteration.
    loop {
        let calls = |body: &Body| {
            let mut any = false;
            body.visit(body.root, &mut |_, inst| {
                any |= matches!(inst.op, Op::Call(f, _) if watched.functions.contains_key(&f));
            });
            any
        };
        let between = |f: &FuncId| !watched.functions.contains_key(f) && calls(&kernel.functions[f.index()].body);
        let more: Vec<FuncId> = (0..kernel.functions.len() as u32).map(FuncId).filter(between).collect();
        if more.is_empty() {
            break;
        }
        watched.functions.extend(more.into_iter().map(|f| (f, HashMap::new())));
    }
}

struct Search<'a> {
    kernel: &'a Kernel,
    memory: MemoryClasses<'a>,
    /// For each buffer, the first one that it may share an element with.
    classes: Vec<usize>,
    found: Vec<Found>,
}

impl Search<'_> {
    /// Memory of different classes shares no element.
    fn class(&self, memory: Memory) -> usize {
        match memory {
            Memory::Buffer(b) | Memory::OfGroups(b) => self.classes[b.index()],
            Memory::Local(local) => self.classes.len() + local.index(),
        }
    }

    fn space(&self, memory: Memory) -> MemorySpace {
        match memory {
            Memory::Buffer(b) | Memory::OfGroups(b) => self.kernel.buffers[b.index()].space,
            // The frame, which all threads of the launch share.
            Memory::Local(_) => MemorySpace::Global,
        }
    }

    /// The accesses of a parallel loop that may conflict with others, and how its threads meet.
    fn unproved(
        &self,
        v: ValueId,
        l: &ForLoop,
        watches_blocks: &dyn Fn(Synchronization) -> bool,
    ) -> (Vec<Found>, Synchronization) {
        let body = &self.kernel.body;
        let mut called = BTreeSet::new();
        calls_of(body, l.body, &mut |f| self.reach(f, &mut called));
        let of_function = |f: &FuncId| {
            let body = &self.kernel.functions[f.index()].body;
            // Its location is not visible to callers.
            if meeting(body, body.root) == Synchronization::Never {
                Synchronization::Never
            } else {
                Synchronization::Otherwise
            }
        };
        let in_functions = called.iter().map(of_function);
        let meet = in_functions.fold(meeting(body, l.body), |a, b| if b == Synchronization::Otherwise { b } else { a });
        if meet == Synchronization::Otherwise {
            return (Vec::new(), meet);
        }
        let has_blocks = l.parallel.as_ref().is_some_and(|c| c.block_dim.is_some());
        let spaces = |space: MemorySpace| match space {
            MemorySpace::Global => true,
            MemorySpace::Shared => watches_blocks(meet) && has_blocks,
            _ => false,
        };
        let locals = local_uses(body);
        let mut dependence = Dependence::of(body, &locals);
        let shared_locals: BTreeSet<LocalId> = locals_shared_by(body, v, l).into_iter().map(|(l, _)| l).collect();
        let mut all = Vec::new();
        self.collect(body, l.body, None, &mut |address| dependence.subscripts(address), &mut all);
        for f in called {
            let body = &self.kernel.functions[f.index()].body;
            self.collect(body, body.root, Some(f), &mut |_| vec![Subscript::UNKNOWN], &mut all);
        }
        all.retain(|f| {
            let is_compared = match f.memory {
                Memory::Buffer(b) => !self.kernel.buffers[b.index()].is_metadata,
                Memory::Local(local) => f.function.is_none() && shared_locals.contains(&local),
                Memory::OfGroups(_) => false,
            };
            let space = self.space(f.memory);
            is_compared && spaces(space) && (space == MemorySpace::Global || f.function.is_none())
        });
        // If all accesses are reads, or all are updates, there is nothing to check.
        let mut kinds: BTreeMap<usize, BTreeSet<Access>> = BTreeMap::new();
        all.iter().for_each(|f| _ = kinds.entry(self.class(f.memory)).or_default().insert(f.access));
        let is_harmless = |kinds: &BTreeSet<Access>| kinds.len() == 1 && !kinds.contains(&Access::Write);
        all.retain(|f| !is_harmless(&kinds[&self.class(f.memory)]));
        let barriers = last_barriers(body, l.body);
        // Barriers do not order the threads of different blocks.
        let is_of_block = |f: &Found| self.space(f.memory) == MemorySpace::Shared;
        let have_order = |a: &Found, b: &Found| {
            let of = |f: &Found| barriers.get(&f.inst).filter(|_| f.function.is_none());
            of(a).zip(of(b)).is_some_and(|(a, b)| a.is_disjoint(b))
        };
        let mut watched = vec![all.len() > MOST_COMPARED * MOST_COMPARED; all.len()];
        for i in 0..all.len() {
            for k in i..all.len() {
                let meets = meet != Synchronization::Never && is_of_block(&all[i]) && is_of_block(&all[k]);
                let ordered = meets && have_order(&all[i], &all[k]);
                let settled = ordered || (watched[i] && watched[k]);
                if !settled && self.may_conflict(&mut dependence, v, &all[i], &all[k]) {
                    (watched[i], watched[k]) = (true, true);
                }
            }
        }
        (all.into_iter().zip(watched).filter(|(_, watched)| *watched).map(|(f, _)| f).collect(), meet)
    }

    fn reach(&self, f: FuncId, called: &mut BTreeSet<FuncId>) {
        if called.insert(f) {
            let body = &self.kernel.functions[f.index()].body;
            calls_of(body, body.root, &mut |f| self.reach(f, called));
        }
    }

    fn collect(
        &self,
        body: &Body,
        block: BlockId,
        function: Option<FuncId>,
        subscripts: &mut dyn FnMut(ValueId) -> Vec<Subscript>,
        all: &mut Vec<Found>,
    ) {
        body.visit(block, &mut |inst, of| {
            let (address, access) = match of.op.effect() {
                Effect::Read(address) => (address, Access::Read),
                Effect::Write(address) => (address, Access::Write),
                Effect::Update(address) => (address, Access::Update),
                // Code that reads while others write must declare it.
                _ => return,
            };
            let (memory, axes) = match trace_address(body, address) {
                Place::Buffer(buffer) => (Memory::Buffer(buffer), subscripts(address)),
                Place::Local(local) => (Memory::Local(local), Vec::new()),
                _ => return,
            };
            all.push(Found { function, inst, memory, access, axes, span: of.span });
        });
    }

    /// Accesses of two iterations may conflict.
    fn may_conflict(&self, dependence: &mut Dependence<'_>, around: ValueId, a: &Found, b: &Found) -> bool {
        let kinds = (a.access, b.access);
        let harmless = matches!(kinds, (Access::Read, Access::Read) | (Access::Update, Access::Update));
        if harmless {
            return false;
        }
        match (a.memory, b.memory) {
            (Memory::Buffer(of_a), Memory::Buffer(of_b)) => {
                if !self.memory.may_alias(of_a.index(), of_b.index()) {
                    return false;
                }
                if of_a != of_b || a.function.is_some() || b.function.is_some() {
                    return true;
                }
            }
            (of_a, of_b) => return of_a == of_b,
        }
        // Elements of an array with strides may be the same memory, but then its creator intends that.
        let axes = dependence.between_iterations(around, &a.axes, &b.axes).axes;
        !(axes.contains(&Conflict::Apart) || axes.iter().all(|conflict| *conflict == Conflict::SameIteration))
    }
}

/// How threads meet in code.
fn meeting(body: &Body, block: BlockId) -> Synchronization {
    let mut found = Synchronization::Never;
    let (mut has_fence, mut has_flags) = (false, false);
    body.visit(block, &mut |_, inst| match inst.op {
        Op::Barrier(ThreadScope::Block) | Op::BlockCount(_) => found = found.max(Synchronization::InBlocks),
        Op::Barrier(ThreadScope::Subgroup) | Op::Subgroup(..) => found = found.max(Synchronization::InSubgroups),
        Op::Barrier(ThreadScope::Device) | Op::CopyAsync(..) => found = Synchronization::Otherwise,
        Op::Fence(_) => has_fence = true,
        Op::Atomic(..) | Op::AtomicCas(..) => has_flags = true,
        _ => has_flags |= matches!(inst.op.effect(), Effect::ReadVolatile(_)),
    });
    // A fence by itself does not order threads. With flags, one thread may signal its writes to another.
    if has_fence && has_flags { Synchronization::Otherwise } else { found }
}

/// Bytes and scalars of an array of a block.
fn shared_sizes(buffer: &octants_ir::Buffer) -> (u64, u64) {
    let scalars = match &buffer.layout {
        Layout::Dense { shape, .. } => shape.iter().product::<u64>() * buffer.elem.leaf_count() as u64,
        _ => 0,
    };
    let widest = buffer.elem.leaves().iter().map(|s| u64::from(s.bits().div_ceil(8))).max().unwrap_or(0);
    (scalars * widest, scalars)
}

fn calls_of(body: &Body, block: BlockId, f: &mut impl FnMut(FuncId)) {
    body.visit(block, &mut |_, inst| {
        if let Op::Call(callee, _) = inst.op {
            f(callee);
        }
    });
}
