//! The run-time race check: instruments the accesses that are not proved free of conflicts between iterations of a
//! parallel loop. Two iterations conflict if they touch the same element, one of them writes, and they do not both
//! update it atomically.
//!
//! Each array and field with such accesses gets a shadow buffer with one word per scalar. The word records the accesses
//! to the scalar in the running task (`watch_functions`). A call before each access updates the word. A conflict is
//! recorded in the buffer `races`, and the last task of the launch asserts that there was none (`report_races`). All of
//! this is ordinary IR, so every code generator supports it. Words are never cleared: each carries the number of its
//! task, its epoch.
//!
//! Memory that concurrent groups share has words of its own (`watch_groups`).
//!
//! Shadow words of the kernel's locals that iterations share follow those of the buffers.
//!
//! Block-local arrays have their words in block memory; their epochs are counted by the block's barriers
//! (`watch_blocks`). Accesses that are always separated by a barrier are not instrumented (`barrier_phases`). Where
//! threads of blocks synchronize, blocks are compared in one word of a scalar, and the threads of a block in another.
//! The pass runs last, when updates proved private are plain and reductions have left the loop.

mod barrier_phases;
mod inline_group_calls;
mod report_races;
mod site;
mod watch_blocks;
mod watch_functions;
mod watch_groups;
mod watched_accesses;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use octants_ir::insert_code::rebuild_blocks;
use octants_ir::{
    BinaryOp, BlockId, Body, Buffer, BufferId, Builder, FuncId, GridValue, Kernel, Layout, MemorySpace, Op, Param,
    Scalar, Type, ValueId, section_of, task_blocks, task_statements,
};

use crate::inline_calls::inline_functions;
use crate::pass_options::PassOptions;
use crate::race_watch::RaceWatch;
pub use inline_group_calls::inline_group_calls;
use report_races::report_races;
use site::{Access, Memory, Site};
use watch_blocks::{Accessor, BlockThread, add_shared_words, begin_block, word_count};
use watch_functions::{OWNER_BITS, Watching, push_watch};
use watch_groups::{GroupAccess, WatchedGroups, find_watched_groups};
use watched_accesses::{BlockLoop, Synchronization, Watched, find_watched};

/// The number of bits of an epoch.
pub const EPOCH_BITS: u32 = watch_functions::EPOCH_BITS;

/// Words of the buffer of notes. The first ones are notes of groups and races, the others words of locals.
pub const NOTE_WORDS: u64 = 1024;
const FIRST_WORD_OF_LOCALS: u64 = 256;

/// Inserts calls before accesses that are not proved to be free of conflicts.
pub fn check_races(kernel: &mut Kernel, options: &mut PassOptions) {
    let mut watched = find_watched(kernel, options.arrays_may_alias, options.shared_bytes);
    let of_groups = find_watched_groups(kernel, &options.overlap_allowed, &mut watched.lines);
    if watched.loops.is_empty() && of_groups.accesses.is_empty() {
        return;
    }
    let [epoch, counted] = add_numbers(kernel);
    let notes = add_words(kernel, "races".into());
    let beside = words_beside(kernel, &watched, &watched.buffers);
    let in_phases = words_beside(kernel, &watched, &watched.in_phases);
    let in_subgroups = words_beside(kernel, &watched, &watched.in_subgroups);
    let groups = groups_of(&kernel.body, &watched);
    let words = of_groups.sets.iter().map(|(b, set)| {
        let name = kernel.buffers[b.index()].name.clone();
        ((*b, *set), add_words(kernel, name))
    });
    let between = BetweenGroups {
        words: words.collect(),
        pair: groups.values().max().map_or(1, |most| most + 1),
        epochs: watched.loops.len() as u64 + of_groups.regions,
        watched: of_groups,
    };
    let threads = BTreeMap::new();
    let functions = HashMap::new();
    let group_functions = HashMap::new();
    let mut pass = Pass {
        kernel,
        watched: &watched,
        between: &between,
        beside: &beside,
        in_phases: &in_phases,
        in_subgroups: &in_subgroups,
        numbers: [epoch, counted],
        notes,
        functions,
        group_functions,
        threads,
    };
    pass.watch_kernel(&groups);
    pass.watch_called();
    let of_blocks: Vec<FuncId> =
        pass.functions.iter().filter(|((words, ..), _)| is_shared(pass.kernel, *words)).map(|(_, f)| *f).collect();
    inline_functions(pass.kernel, &of_blocks);
    let repeats = count_rounds(pass.kernel, notes, &between);
    report_races(pass.kernel, &watched, notes, &groups, &between, options.sources.as_ref());
    let in_memory = beside.iter().filter(|(of, _)| !watched.shared.contains(of));
    let scalars = |of: &BufferId| kernel.buffers[of.index()].elem.leaf_count() as u64;
    let words = in_memory.map(|(of, words)| (*of, *words, scalars(of))).collect();
    let in_memory = in_phases.iter().filter(|(of, _)| !watched.shared.contains(of));
    let phase_words = in_memory.map(|(of, words)| (*of, *words, scalars(of))).collect();
    let subgroup_words = in_subgroups.iter().map(|(of, words)| (*of, *words, scalars(of))).collect();
    let group_words = between.words.iter().map(|((of, _), words)| (*of, *words, scalars(of))).collect();
    let epochs = between.epochs;
    options.watch =
        Some(RaceWatch { notes, words, phase_words, subgroup_words, group_words, epoch, counted, epochs, repeats });
}

/// A buffer of words for each of these buffers.
fn words_beside(kernel: &mut Kernel, watched: &Watched, of: &BTreeSet<BufferId>) -> BTreeMap<BufferId, BufferId> {
    let mut words = |b: &BufferId| match watched.shared.contains(b) {
        true => add_shared_words(kernel, *b),
        false => add_words(kernel, kernel.buffers[b.index()].name.clone()),
    };
    of.iter().map(|b| (*b, words(b))).collect()
}

/// Gives a kernel the arguments of another one that watches this many buffers. It does not use them.
pub fn add_unused_arguments(kernel: &mut Kernel, watched_buffers: usize) {
    add_numbers(kernel);
    (0..=watched_buffers).for_each(|_| _ = add_words(kernel, String::new()));
}

/// The parameters that pass epochs.
fn add_numbers(kernel: &mut Kernel) -> [u32; 2] {
    ["races.epoch", "races.counted"].map(|name| {
        kernel.params.push(Param { name: name.into(), ty: Scalar::U64.into() });
        kernel.params.len() as u32 - 1
    })
}

fn is_shared(kernel: &Kernel, buffer: BufferId) -> bool {
    kernel.buffers[buffer.index()].space == MemorySpace::Shared
}

/// A buffer of 64-bit words.
fn add_words(kernel: &mut Kernel, name: String) -> BufferId {
    kernel.buffers.push(Buffer {
        name,
        elem: Scalar::U64.into(),
        ndim: 1,
        layout: Layout::Contiguous,
        space: MemorySpace::Global,
        short_offsets: false,
        is_metadata: false,
    });
    BufferId(kernel.buffers.len() as u32 - 1)
}

/// For each instrumented loop, its report: the one of its `stream_parallel` group, because each group ends separately.
fn groups_of(body: &Body, watched: &Watched) -> BTreeMap<ValueId, u64> {
    let number = |v: &ValueId| match &body.inst(*v).op {
        Op::For(l) => l.parallel.as_ref().and_then(|c| c.group).filter(|g| g.region.is_none()).map(|g| g.number),
        _ => None,
    };
    let mut numbers: Vec<Option<u32>> = watched.loops.iter().map(number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let position = |v: &ValueId| numbers.iter().position(|n| *n == number(v)).unwrap_or(0) as u64;
    watched.loops.iter().map(|v| (*v, position(v))).collect()
}

/// Gives each round of a loop that contains tasks its own epochs. Whether there are such.
fn count_rounds(kernel: &mut Kernel, notes: BufferId, between: &BetweenGroups) -> bool {
    let body = &mut kernel.body;
    let blocks = task_blocks(body);
    let is_round = |v: &ValueId| match body.inst(*v).op {
        Op::Loop(inner) if blocks.contains(&inner) && section_of(body, inner).is_none() => Some(inner),
        _ => None,
    };
    let rounds: Vec<BlockId> = task_statements(body).iter().filter_map(is_round).collect();
    for round in &rounds {
        insert_at_top(body, *round, |b| {
            push_count(b, notes, 0, between.epochs);
            if !between.watched.accesses.is_empty() {
                push_count(b, notes, between.pair, between.epochs);
            }
        });
    }
    !rounds.is_empty()
}

/// Adds to the first of a pair of notes; yields the address of the second.
fn push_count(b: &mut Builder, notes: BufferId, pair: u64, by: u64) -> ValueId {
    let [count, race] = [2 * pair, 2 * pair + 1].map(|i| push_note(b, notes, i));
    let by = b.int(by as i64, Scalar::U64);
    let old = b.load(count);
    let new = b.binary(BinaryOp::Add, old, by);
    b.store(count, new);
    race
}

/// The address of a note.
fn push_note(b: &mut Builder, notes: BufferId, index: u64) -> ValueId {
    let index = b.int(index as i64, Scalar::I32);
    b.push(Op::BufferAddr(notes, vec![index]), Type::Ref(Box::new(Scalar::U64.into())))
}

/// Inserts the code that `f` builds at the start of a block.
fn insert_at_top<T>(body: &mut Body, block: BlockId, f: impl FnOnce(&mut Builder) -> T) -> T {
    let mut b = Builder::new();
    b.body = std::mem::take(body);
    let apart = b.body.add_block();
    b.set_cursor(apart);
    let made = f(&mut b);
    *body = b.body;
    let insts = std::mem::take(&mut body.blocks[apart.index()]);
    body.blocks[block.index()].splice(0..0, insts);
    made
}

/// The watch of memory that concurrent groups share.
struct BetweenGroups {
    watched: WatchedGroups,
    /// The shadow words of each buffer and set.
    words: BTreeMap<(BufferId, u32), BufferId>,
    /// The pair of notes of these races.
    pair: u64,
    /// Epochs of a launch: of the watched loops, then of the regions of groups.
    epochs: u64,
}

struct Pass<'a> {
    kernel: &'a mut Kernel,
    watched: &'a Watched,
    between: &'a BetweenGroups,
    /// The parameters of epochs.
    numbers: [u32; 2],
    beside: &'a BTreeMap<BufferId, BufferId>,
    /// The second words, of the buffers that have them.
    in_phases: &'a BTreeMap<BufferId, BufferId>,
    /// The third words.
    in_subgroups: &'a BTreeMap<BufferId, BufferId>,
    notes: BufferId,
    /// By the buffer of words, the kind of access, the group, the first site of the memory, and the accessor's bits.
    functions: HashMap<(BufferId, Access, u64, u32, u32), FuncId>,
    /// The functions for groups, by access.
    group_functions: HashMap<(BufferId, GroupAccess), FuncId>,
    /// For loops with watched block arrays, the values that identify their threads.
    threads: BTreeMap<ValueId, BlockThread>,
}

impl Pass<'_> {
    /// Watches accesses in the kernel's own loops.
    fn watch_kernel(&mut self, groups: &BTreeMap<ValueId, u64>) {
        let mut body = std::mem::take(&mut self.kernel.body);
        let mut of_access: HashMap<ValueId, (ValueId, u64, ValueId)> = HashMap::new();
        for (i, v) in self.watched.loops.iter().enumerate() {
            let Op::For(l) = body.inst(*v).op.clone() else { continue };
            let group = groups[v];
            let (notes, numbers) = (self.notes, self.numbers);
            let meets = self.watched.blocks.get(v).is_some_and(|of| of.meet != Synchronization::Never);
            let accessor = insert_at_top(&mut body, l.body, |b| {
                push_accessor(b, (*v, &l.dims, meets), (notes, group), numbers, i as u64 + 1)
            });
            if let Some(BlockLoop { arrays, meet }) = self.watched.blocks.get(v) {
                let second = arrays.iter().filter_map(|b| self.in_phases.get(b));
                let words: Vec<(BufferId, u64)> = arrays
                    .iter()
                    .map(|b| &self.beside[b])
                    .chain(second)
                    .map(|words| (*words, word_count(self.kernel, *words)))
                    .collect();
                self.threads.insert(*v, begin_block(&mut body, l.body, &words, *meet));
            }
            body.visit(l.body, &mut |inner, _| _ = of_access.insert(inner, (accessor, group, *v)));
        }
        rebuild_blocks(&mut body, |b, v| {
            self.watch_groups(b, v);
            let Some(&(accessor, group, of_loop)) = of_access.get(&v) else {
                return self.place_with_zero(b, v);
            };
            let site = self.watched.accesses.get(&v).copied();
            let thread = self.threads.get(&of_loop).copied();
            self.place_watched(b, v, (accessor, thread), group, site);
            if let Some(thread) = thread {
                thread.count_barrier(b, v);
            }
        });
        self.kernel.body = body;
    }

    /// Watches an access to memory that concurrent groups share.
    fn watch_groups(&mut self, b: &mut Builder, v: ValueId) {
        let Some(accesses) = self.between.watched.accesses.get(&v) else { return };
        for access in accesses {
            let (words, notes) = (self.between.words[&(access.buffer, access.set)], (self.notes, self.between.pair));
            let kernel = &mut *self.kernel;
            let function = self.group_functions.entry((words, *access));
            let function = *function.or_insert_with(|| access.add_function(kernel, words, notes));
            let task = self.watched.loops.len() as u64 + 1 + access.region;
            let epoch = push_epoch(b, notes, self.numbers, task);
            let shift = b.int(i64::from(watch_functions::EPOCH_SHIFT), Scalar::U64);
            let epoch = b.binary(BinaryOp::Shl, epoch, shift);
            push_watch(b, v, function, &[epoch], &self.watched.shapes);
        }
    }

    /// Watches accesses in functions that loops call.
    fn watch_called(&mut self) {
        for (&f, sites) in &self.watched.functions {
            let function = &mut self.kernel.functions[f.index()];
            let number = function.params.len() as u32;
            function.params.push(Scalar::U64.into());
            let mut body = std::mem::take(&mut function.body);
            let root = body.root;
            let accessor = insert_at_top(&mut body, root, |b| b.push(Op::Param(number), Scalar::U64.into()));
            rebuild_blocks(&mut body, |b, v| self.place_watched(b, v, (accessor, None), 0, sites.get(&v).copied()));
            self.kernel.functions[f.index()].body = body;
        }
    }

    /// Places code of a serial task: there is no other thread.
    fn place_with_zero(&self, b: &mut Builder, v: ValueId) {
        if let Op::Call(f, _) = b.body.inst(v).op
            && self.watched.functions.contains_key(&f)
        {
            let nobody = b.int(0, Scalar::U64);
            pass_accessor(b, v, nobody);
        }
        b.place(v);
    }

    /// Places code of a loop. `accessor` is the iteration, or its block if threads of blocks synchronize.
    fn place_watched(
        &mut self,
        b: &mut Builder,
        v: ValueId,
        (accessor, thread): (ValueId, Option<BlockThread>),
        group: u64,
        site: Option<Site>,
    ) {
        if let Op::Call(f, _) = b.body.inst(v).op
            && self.watched.functions.contains_key(&f)
        {
            pass_accessor(b, v, accessor);
        }
        if let Some(site) = site {
            self.push_watches(b, v, (accessor, thread), group, site);
        }
        b.place(v);
    }

    /// Calls the functions that record an access: one for each word of the scalar.
    fn push_watches(
        &mut self,
        b: &mut Builder,
        v: ValueId,
        (accessor, thread): (ValueId, Option<BlockThread>),
        group: u64,
        site: Site,
    ) {
        let whole = (accessor, OWNER_BITS);
        let Memory::Buffer(buffer) = site.memory else {
            return self.push_watch(b, v, (self.notes, whole), group, site);
        };
        let (first, second) = (self.beside[&buffer], self.in_phases.get(&buffer).copied());
        let Some(thread) = thread else { return self.push_watch(b, v, (first, whole), group, site) };
        let (of_first, of_second) = match self.watched.shared.contains(&buffer) {
            true => (thread.push_accessor(b), thread.push_accessor_in_subgroup(b)),
            false => (whole, thread.push_accessor_in_block(b, accessor)),
        };
        self.push_watch(b, v, (first, of_first), group, site);
        if let Some(second) = second.zip(of_second) {
            self.push_watch(b, v, second, group, site);
        }
        if let Some(third) = self.in_subgroups.get(&buffer).copied()
            && let Some(of_third) = thread.push_accessor_in_subgroup_of(b, accessor)
        {
            self.push_watch(b, v, (third, of_third), group, site);
        }
    }

    fn push_watch(
        &mut self,
        b: &mut Builder,
        v: ValueId,
        (words, (accessor, own_bits)): (BufferId, Accessor),
        group: u64,
        site: Site,
    ) {
        let Pass { kernel, notes, functions, .. } = self;
        let count = match words == *notes {
            true => Some(NOTE_WORDS),
            false => is_shared(kernel, words).then(|| word_count(kernel, words)),
        };
        let watching = Watching { words, count, notes: *notes, group, base: site.base, own_bits };
        let function = functions.entry((words, site.access, group, site.base, own_bits));
        let function = *function.or_insert_with(|| watching.add_function(kernel, site.access));
        let number = b.int(i64::from(site.number), Scalar::U64);
        push_watch(b, v, function, &[accessor, number], &self.watched.shapes);
    }
}

/// Gives the caller's iteration to a call.
fn pass_accessor(b: &mut Builder, call: ValueId, accessor: ValueId) {
    if let Op::Call(_, args) = &mut b.body.inst_mut(call).op {
        args.push(accessor);
    }
}

/// The iteration as it is stored in the words: its task's epoch, and its number. If threads of blocks synchronize, the
/// number of its block.
fn push_accessor(
    b: &mut Builder,
    (of, dims, meets): (ValueId, &[octants_ir::Range], bool),
    (notes, group): (BufferId, u64),
    numbers: [u32; 2],
    task: u64,
) -> ValueId {
    let mut number = b.int(0, Scalar::I64);
    for (axis, range) in dims.iter().enumerate() {
        let ty = b.ty(range.begin).clone();
        let index = b.push(Op::LoopIndex(of, axis as u32), ty);
        let [index, begin, end] = [index, range.begin, range.end].map(|v| b.cast(v, Scalar::I64));
        let extent = b.binary(BinaryOp::Sub, end, begin);
        let row = b.binary(BinaryOp::Mul, number, extent);
        number = b.binary(BinaryOp::Add, row, index);
    }
    if meets {
        let size = b.push(Op::Grid(GridValue::BlockSize), Type::I32);
        let size = b.cast(size, Scalar::I64);
        number = b.binary(BinaryOp::Div, number, size);
    }
    let number = b.cast(number, Scalar::U64);
    let epoch = push_epoch(b, (notes, group), numbers, task);
    watch_functions::push_accessor_bits(b, epoch, number)
}

/// The epoch of a task of the launch, in the current round.
fn push_epoch(b: &mut Builder, (notes, pair): (BufferId, u64), [epoch, counted]: [u32; 2], task: u64) -> ValueId {
    let [epoch, counted] = [epoch, counted].map(|p| b.push(Op::Param(p), Scalar::U64.into()));
    let count = push_note(b, notes, 2 * pair);
    let count = b.load(count);
    let count = b.binary(BinaryOp::And, count, counted);
    let task = b.int(task as i64, Scalar::U64);
    let epoch = b.binary(BinaryOp::Add, epoch, task);
    b.binary(BinaryOp::Add, epoch, count)
}
