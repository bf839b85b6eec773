//! Races between concurrent groups of a kernel: `stream_parallel` blocks, or the sections of a
//! `graph.parallel_context`. Watches the buffers that two groups may access in the same elements.
//!
//! Such a buffer has a second shadow buffer with one word per scalar. From the highest bit, a word holds: the epoch
//! (20), whether different values were written (1), bits of a hash of the value written first (9), and one bit for each
//! site that accessed the scalar (34). With more sites there are several words, each for two parts of the sites, so
//! that each two sites are compared in some word. Each site knows at compile time which bits conflict with it. The
//! later of two accesses finds the bit of the earlier one, so a race is found under each schedule. A store has two
//! bits: the second one is set for a store of the present value before any other, which counts as a read.

use std::collections::{BTreeMap, BTreeSet};

use octants_diag::Span;
use octants_ir::insert_code::push_if;
use octants_ir::{
    BinaryOp, Body, BufferId, Builder, Effect, FuncId, Function, Kernel, LoopGroup, MemorySpace, Op, Scalar, Type,
    UnaryOp, ValueId, task_blocks,
};

use super::site::{Access, Memory};
use super::watch_functions::{EPOCH_SHIFT, NOTED_SITE_MASK, Words, push_note};
use super::watched_accesses::Line;
use crate::find_overlaps::find_overlaps;
use crate::offload::statement_groups;
use octants_analysis::{Place, trace_address};

const VARIES: u64 = 1 << 43;
const VALUE_SHIFT: u32 = 34;
const VALUE_MASK: u64 = 0x1ff;
/// Bits of sites.
const MOST_BITS: u32 = 34;
/// Parts of the sites, beyond which sites of one group and kind share their bits.
const MOST_PARTS: usize = 4;

/// A site of an access in a group: the group, the kind of access, and the position.
type GroupSite = (LoopGroup, Access, Span);

/// An access of a group that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GroupAccess {
    pub buffer: BufferId,
    pub access: Access,
    /// The buffer's words that it is recorded in.
    pub set: u32,
    /// The region of the group, which numbers the epochs.
    pub region: u64,
    /// The bit of its site.
    bit: u32,
    /// Bits of writes and updates by other groups.
    changes: u64,
    /// Bits of reads by other groups.
    reads: u64,
    /// Bits of updates by other groups.
    updates: u64,
    /// Bits of writes by all groups.
    writes: u64,
    /// The line of the first bit, among the kernel's.
    base: u32,
}

/// The watched accesses of a kernel's groups.
#[derive(Debug, Default)]
pub struct WatchedGroups {
    pub accesses: BTreeMap<ValueId, Vec<GroupAccess>>,
    pub buffers: BTreeSet<BufferId>,
    /// The sets of words of each buffer.
    pub sets: BTreeSet<(BufferId, u32)>,
    /// How many regions have watched groups.
    pub regions: u64,
    /// Some are sections of a graph.
    pub of_sections: bool,
}

/// Finds the accesses to memory that two groups may share, and adds a line for each bit.
pub fn find_watched_groups(kernel: &Kernel, allowed: &BTreeSet<u32>, lines: &mut Vec<Line>) -> WatchedGroups {
    let mut watched = WatchedGroups::default();
    let shared: BTreeSet<BufferId> = find_overlaps(kernel, allowed, &[])
        .iter()
        .filter(|overlap| !overlap.certain)
        .map(|overlap| overlap.buffer)
        .filter(|b| kernel.buffers[b.index()].space == MemorySpace::Global)
        .collect();
    let mut by_region: BTreeMap<Option<u32>, Vec<(ValueId, BufferId, GroupSite)>> = BTreeMap::new();
    for (v, group) in grouped_statements(&kernel.body).into_iter().filter(|(_, g)| !allowed.contains(&g.number)) {
        let mut add = |inst, (buffer, access), span| {
            if shared.contains(&buffer) {
                by_region.entry(group.region).or_default().push((inst, buffer, (group, access, span)));
            }
        };
        visit_accesses(&kernel.body, v, &mut add);
    }
    for (region, found) in by_region {
        for &buffer in &shared {
            let of_buffer: Vec<_> = found.iter().filter(|f| f.1 == buffer).map(|f| (f.0, f.2)).collect();
            watched.add(buffer, &of_buffer, lines);
        }
        watched.regions += 1;
        watched.of_sections |= region.is_some();
    }
    watched
}

/// The statements of groups.
pub fn grouped_statements(body: &Body) -> Vec<(ValueId, LoopGroup)> {
    let of_block = |block| {
        let order = body.block(block);
        order.iter().copied().zip(statement_groups(body, order)).collect::<Vec<_>>()
    };
    let all = task_blocks(body).into_iter().flat_map(of_block);
    all.filter_map(|(v, group)| group.map(|g| (v, g))).collect()
}

/// Calls `f` on each access to a buffer in a statement and the blocks inside it.
fn visit_accesses(body: &Body, v: ValueId, f: &mut impl FnMut(ValueId, (BufferId, Access), Span)) {
    let mut on = |inst: ValueId, of: &octants_ir::Inst| {
        let (address, access) = match of.op.effect() {
            Effect::Read(address) => (address, Access::Read),
            Effect::Write(address) => (address, Access::Write),
            Effect::Update(address) => (address, Access::Update),
            _ => return,
        };
        if let Place::Buffer(buffer) = trace_address(body, address) {
            f(inst, (buffer, access), of.span);
        }
    };
    on(v, body.inst(v));
    for block in body.inst(v).op.blocks() {
        body.visit(block, &mut on);
    }
}

impl WatchedGroups {
    /// Gives each site of a buffer in one region its bits, in each set of words that compares it with others.
    fn add(&mut self, buffer: BufferId, found: &[(ValueId, GroupSite)], lines: &mut Vec<Line>) {
        let groups: BTreeSet<LoopGroup> = found.iter().map(|(_, (group, ..))| *group).collect();
        if groups.len() < 2 {
            return;
        }
        let mut sites: Vec<GroupSite> = found.iter().map(|(_, site)| *site).collect();
        sites.sort_by_key(|(group, access, span)| (*group, span.file, span.start, *access));
        sites.dedup();
        if parts_of(&sites).len() > MOST_PARTS {
            let mut known = BTreeSet::new();
            sites.retain(|(group, access, _)| known.insert((*group, *access)));
        }
        if bits_of(&sites) <= MOST_BITS {
            return self.add_set((buffer, 0), sites, found, lines);
        }
        let parts = parts_of(&sites);
        let mut set = 0;
        for (n, part) in parts.iter().enumerate() {
            for other in &parts[n + 1..] {
                let both = [*part, *other].concat();
                if both.iter().any(|(group, ..)| *group != both[0].0) {
                    self.add_set((buffer, set), both, found, lines);
                    set += 1;
                }
            }
        }
    }

    /// Gives sites their bits in a set of words.
    fn add_set(
        &mut self,
        (buffer, set): (BufferId, u32),
        mut sites: Vec<GroupSite>,
        found: &[(ValueId, GroupSite)],
        lines: &mut Vec<Line>,
    ) {
        if lines.len() as u64 + u64::from(bits_of(&sites)) > NOTED_SITE_MASK {
            return;
        }
        // In source order, so that the lower number is the earlier line.
        sites.sort_by_key(|(group, access, span)| (span.file, span.start, *access, *group));
        let base = lines.len() as u32;
        let mut first_bits = Vec::new();
        for &(_, access, span) in &sites {
            first_bits.push(lines.len() as u32 - base);
            let line = Line { memory: Memory::OfGroups(buffer), access, span };
            lines.extend(std::iter::repeat_n(line, bits(access) as usize));
        }
        let mask = |group: Option<LoopGroup>, second: bool, kind: Access| {
            let of = sites.iter().zip(&first_bits).filter(|((g, access, _), _)| Some(*g) != group && *access == kind);
            of.map(|(_, bit)| 1_u64 << (bit + u32::from(second))).sum::<u64>()
        };
        for &(inst, (group, access, span)) in found {
            let exact = sites.iter().position(|s| *s == (group, access, span));
            let site = exact.or_else(|| sites.iter().position(|s| (s.0, s.1) == (group, access)));
            let Some(site) = site else { continue };
            let others = |kind| mask(Some(group), false, kind);
            let access = GroupAccess {
                buffer,
                access,
                set,
                region: self.regions,
                bit: first_bits[site],
                changes: others(Access::Write) | others(Access::Update),
                reads: others(Access::Read) | mask(Some(group), true, Access::Write),
                updates: others(Access::Update),
                writes: mask(None, false, Access::Write),
                base,
            };
            self.accesses.entry(inst).or_default().push(access);
        }
        self.buffers.insert(buffer);
        self.sets.insert((buffer, set));
    }
}

/// Parts of sites, of which any two fit into a word.
fn parts_of(sites: &[GroupSite]) -> Vec<&[GroupSite]> {
    let (mut parts, mut begin) = (Vec::new(), 0);
    for end in 1..=sites.len() {
        if end == sites.len() || bits_of(&sites[begin..=end]) > MOST_BITS / 2 {
            parts.push(&sites[begin..end]);
            begin = end;
        }
    }
    parts
}

fn bits_of(sites: &[GroupSite]) -> u32 {
    sites.iter().map(|(_, access, _)| bits(*access)).sum()
}

/// How many bits a site has.
fn bits(access: Access) -> u32 {
    if access == Access::Write { 2 } else { 1 }
}

impl GroupAccess {
    /// Adds a function to the kernel that records the access in a word. It takes the scalar's number (i64), the shifted
    /// epoch, and for a store, bits of the value and whether memory already has it; all u64.
    pub fn add_function(&self, kernel: &mut Kernel, words: BufferId, notes: (BufferId, u64)) -> FuncId {
        let mut params: Vec<Type> = vec![Scalar::I64.into(), Scalar::U64.into()];
        if self.access == Access::Write {
            params.extend([Scalar::U64, Scalar::U64].map(Type::from));
        }
        let mut b = Builder::new();
        let args: Vec<ValueId> =
            params.iter().enumerate().map(|(i, ty)| b.push(Op::Param(i as u32), ty.clone())).collect();
        let extent = b.push(Op::Shape(words, 0), Scalar::I64.into());
        let [scalar, extent] = [args[0], extent].map(|v| b.cast(v, Scalar::U64));
        let inside = b.binary(BinaryOp::Lt, scalar, extent);
        push_if(&mut b, inside, |b| self.push_change(b, &args, (words, scalar), notes));
        b.push(Op::Return(None), Type::Unit);
        let name = format!("watch_groups_{}_{}", words.0, self.base + self.bit);
        kernel.functions.push(Function { name, params, ret: Type::Unit, body: b.body });
        FuncId(kernel.functions.len() as u32 - 1)
    }

    /// Sets the site's bit by compare and swap until that succeeds, then notes a race with a conflicting bit.
    fn push_change(
        &self,
        b: &mut Builder,
        args: &[ValueId],
        (words, scalar): (BufferId, ValueId),
        notes: (BufferId, u64),
    ) {
        let word_type = Type::Ref(Box::new(Scalar::U64.into()));
        let address = b.push(Op::BufferAddr(words, vec![args[0]]), word_type);
        let conflicts = b.body.add_local("conflicts", Scalar::U64.into());
        let own_bit = b.body.add_local("bit", Scalar::U64.into());
        let inner = b.body.add_block();
        b.push(Op::Loop(inner), Type::Unit);
        let back = b.set_cursor(inner);
        let word = b.push(Op::VolatileLoad(address), Scalar::U64.into());
        let mut w = Words { b };
        let differs = w.op(BinaryOp::Xor, word, args[1]);
        let fresh = w.has(differs, u64::MAX << EPOCH_SHIFT);
        let base = w.select(fresh, args[1], word);
        let (new, hits, bit) = match self.access {
            Access::Read => {
                let bit = w.c(u64::from(self.bit));
                (w.or_bits(base, 1 << self.bit), w.and(base, self.changes), bit)
            }
            Access::Update => {
                let bit = w.c(u64::from(self.bit));
                (w.or_bits(base, 1 << self.bit), w.and(base, self.reads | (self.changes & !self.updates)), bit)
            }
            Access::Write => self.next_of_write(&mut w, base, args),
        };
        w.b.store_local(conflicts, hits);
        w.b.store_local(own_bit, bit);
        let unchanged = w.op(BinaryOp::Eq, new, word);
        push_if(w.b, unchanged, |b| _ = b.push(Op::Break, Type::Unit));
        let found = w.b.push(Op::AtomicCas(address, word, new), Scalar::U64.into());
        let swapped = w.op(BinaryOp::Eq, found, word);
        push_if(w.b, swapped, |b| _ = b.push(Op::Break, Type::Unit));
        w.b.set_cursor(back);
        let hits = w.b.load_local(conflicts);
        let races = w.has(hits, u64::MAX);
        push_if(w.b, races, |b| {
            let mut w = Words { b };
            let zero = w.c(0);
            let below = w.op(BinaryOp::Sub, zero, hits);
            let lowest = w.op(BinaryOp::And, hits, below);
            let zeros = w.b.unary(UnaryOp::Clz, lowest);
            let zeros = w.b.cast(zeros, Scalar::U64);
            let top = w.c(63);
            let other = w.op(BinaryOp::Sub, top, zeros);
            let own = w.b.load_local(own_bit);
            push_note(&mut w, notes, self.base, [own, other], scalar);
        });
    }

    /// The next word, the conflicting bits and the own bit of a store.
    fn next_of_write(&self, w: &mut Words<'_>, base: ValueId, args: &[ValueId]) -> (ValueId, ValueId, ValueId) {
        let value = w.and(args[2], VALUE_MASK);
        let is_there = w.has(args[3], 1);
        let written = w.has(base, self.writes);
        let never_written = w.not(written);
        let changes_nothing = w.op(BinaryOp::And, is_there, never_written);
        let first_value = w.field(base, VALUE_SHIFT, VALUE_MASK);
        let other_value = w.op(BinaryOp::Ne, first_value, value);
        let differs = w.op(BinaryOp::And, other_value, written);
        let (varies, zero) = (w.c(VARIES), w.c(0));
        let varies = w.select(differs, varies, zero);
        let hash = w.shl(value, VALUE_SHIFT);
        let hash = w.select(written, zero, hash);
        let marked = w.or_bits(base, 1 << self.bit);
        let marked = w.or(marked, varies);
        let marked = w.or(marked, hash);
        let as_read = w.or_bits(base, 2 << self.bit);
        let new = w.select(changes_nothing, as_read, marked);
        let any_varies = w.has(marked, VARIES);
        let (with_writes, without) = (w.c(self.reads | self.changes), w.c(self.reads | self.updates));
        let of_write = w.select(any_varies, with_writes, without);
        let of_read = w.c(self.changes);
        let mask = w.select(changes_nothing, of_read, of_write);
        let hits = w.op(BinaryOp::And, base, mask);
        let (bit, next) = (w.c(u64::from(self.bit)), w.c(u64::from(self.bit + 1)));
        (new, hits, w.select(changes_nothing, next, bit))
    }
}
