//! Finds memory that several `stream_parallel` groups of a kernel touch, one of them writing.
//!
//! Each access becomes, axis by axis, a point, a range, or unknown. Two accesses are apart where the ranges of some
//! axis are; they meet for certain where those of every axis do, both accesses happen in every iteration, and no two
//! axes of one access depend on the same loop; otherwise they may meet. A range whose end is an extent or a parameter
//! counts as not empty. Atomic updates from both sides are no race and are left out. Distinct buffers are distinct
//! memory, but for those that the caller names: the same array passed for two parameters, or arrays that share a part.
//! Of fields that are components of others nothing is left behind `merge_aliased_buffers`.

use std::collections::{BTreeMap, BTreeSet};

use octants_diag::Span;
use octants_ir::{BlockId, Body, BufferId, Const, Effect, ForLoop, Kernel, Op, Type, ValueId};

use crate::offload::statement_groups;
use octants_analysis::{Effects, function_effects, inst_effects};
use octants_analysis::{Place, trace_address};

/// Two groups that touch the same memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlap {
    /// The memory.
    pub buffer: BufferId,
    /// The name under which the later group touches it, where that is another one.
    pub alias: Option<BufferId>,
    /// Where the earlier group touches it.
    pub first: Span,
    /// Where the later group does.
    pub second: Span,
    /// Both write; otherwise one of them reads.
    pub both_write: bool,
    /// They meet for certain; otherwise they may.
    pub certain: bool,
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

/// A number that is fixed during a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Number {
    Known(i64),
    Extent(BufferId, u32),
    Parameter(u32),
    Unknown,
}

/// The values that an index takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Axis {
    Point(i64),
    /// From `from` to before `to`, both moved by `shift`.
    Range {
        from: i64,
        to: Number,
        shift: i64,
        loop_axis: (ValueId, u32),
    },
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Meeting {
    Apart,
    Perhaps,
    Certain,
}

struct Access {
    group: u32,
    buffer: BufferId,
    axes: Vec<Axis>,
    writes: bool,
    atomic: bool,
    /// In every iteration of its loops.
    always: bool,
    span: Span,
}

/// The overlaps of a kernel's groups, those in `allowed` aside: for each pair of buffers that are the same memory, most
/// often one and itself, and each pair of groups the gravest.
pub fn find_overlaps(kernel: &Kernel, allowed: &BTreeSet<u32>, aliases: &[Alias]) -> Vec<Overlap> {
    let body = &kernel.body;
    let order = body.block(body.root);
    let mut search = Search {
        body,
        functions: function_effects(&kernel.functions),
        aliases,
        group: 0,
        conditional: 0,
        accesses: Vec::new(),
    };
    for (&v, group) in order.iter().zip(statement_groups(body, order)) {
        if let Some(group) = group {
            search.group = group;
            search.visit(v);
        }
    }
    let mut worst: BTreeMap<(u32, u32, BufferId, BufferId), (Meeting, Overlap)> = BTreeMap::new();
    for (i, a) in search.accesses.iter().enumerate() {
        for b in &search.accesses[i + 1..] {
            let harmless = !(a.writes || b.writes) || (a.atomic && b.atomic);
            let shared = shared(aliases, a.buffer, b.buffer);
            if a.group == b.group || shared == Meeting::Apart || harmless {
                continue;
            }
            if allowed.contains(&a.group) || allowed.contains(&b.group) {
                continue;
            }
            // Indices of arrays that share a part say nothing about one another.
            let meeting = if shared == Meeting::Certain { meeting(a, b) } else { shared };
            if meeting == Meeting::Apart {
                continue;
            }
            let overlap = Overlap {
                buffer: a.buffer,
                alias: (a.buffer != b.buffer).then_some(b.buffer),
                first: a.span,
                second: b.span,
                both_write: a.writes && b.writes,
                certain: meeting == Meeting::Certain,
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

/// Whether two buffers are the same memory.
fn shared(aliases: &[Alias], a: BufferId, b: BufferId) -> Meeting {
    if a == b {
        return Meeting::Certain;
    }
    match aliases.iter().find(|x| (x.first, x.second) == (a, b) || (x.first, x.second) == (b, a)) {
        Some(alias) if alias.same => Meeting::Certain,
        Some(_) => Meeting::Perhaps,
        None => Meeting::Apart,
    }
}

struct Search<'a> {
    body: &'a Body,
    aliases: &'a [Alias],
    functions: Vec<Effects>,
    group: u32,
    /// Branches and loops of unknown length around what is visited.
    conditional: u32,
    accesses: Vec<Access>,
}

impl Search<'_> {
    fn visit(&mut self, v: ValueId) {
        let inst = self.body.inst(v);
        let span = inst.span;
        match inst.op.effect() {
            Effect::Read(a) | Effect::ReadVolatile(a) => self.add(a, false, false, span),
            Effect::Write(a) => self.add(a, true, false, span),
            Effect::Update(a) => self.add(a, true, true, span),
            Effect::For(l) => {
                l.reductions.iter().for_each(|r| self.add(r.target, true, true, span));
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
                        axes: vec![Axis::Unknown],
                        writes,
                        atomic: false,
                        always,
                        span,
                    }));
                }
            }
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

    fn add(&mut self, address: ValueId, writes: bool, atomic: bool, span: Span) {
        let Place::Buffer(buffer) = trace_address(self.body, address) else { return };
        let mut axes = Vec::new();
        let whole = self.axes(address, &mut axes);
        let mut loops = BTreeSet::new();
        let independent = axes.iter().all(|a| match a {
            Axis::Range { loop_axis, .. } => loops.insert(*loop_axis),
            _ => true,
        });
        let always = whole && independent && self.conditional == 0;
        self.accesses.push(Access { group: self.group, buffer, axes, writes, atomic, always, span });
    }

    /// The indices on the way to an address, outermost first. False where a part was not understood.
    fn axes(&self, address: ValueId, axes: &mut Vec<Axis>) -> bool {
        match &self.body.inst(address).op {
            Op::BufferAddr(_, indices) => axes.extend(indices.iter().map(|&i| self.axis(i))),
            Op::ElementAddr(base, indices) => {
                self.axes(*base, axes);
                axes.extend(indices.iter().map(|&i| self.axis(i)));
            }
            Op::MemberAddr(base, member) => {
                self.axes(*base, axes);
                axes.push(Axis::Point(i64::from(*member)));
            }
            _ => axes.push(Axis::Unknown),
        }
        !axes.contains(&Axis::Unknown)
    }

    fn axis(&self, v: ValueId) -> Axis {
        let inst = self.body.inst(v);
        match &inst.op {
            Op::Const(Const::Int(c)) => Axis::Point(*c),
            Op::Cast(u) if is_index(&inst.ty) && is_index(self.body.ty(*u)) => self.axis(*u),
            Op::LoopIndex(l, axis) => {
                let Op::For(f) = &self.body.inst(*l).op else { return Axis::Unknown };
                let Some(range) = f.dims.get(*axis as usize) else { return Axis::Unknown };
                match self.number(range.begin) {
                    Number::Known(from) => {
                        Axis::Range { from, to: self.number(range.end), shift: 0, loop_axis: (*l, *axis) }
                    }
                    _ => Axis::Unknown,
                }
            }
            Op::Binary(op @ (octants_ir::BinaryOp::Add | octants_ir::BinaryOp::Sub), a, b) => {
                let subtracts = *op == octants_ir::BinaryOp::Sub;
                match (self.axis(*a), self.axis(*b)) {
                    (Axis::Point(a), Axis::Point(b)) => Axis::Point(if subtracts { a - b } else { a + b }),
                    (Axis::Range { from, to, shift, loop_axis }, Axis::Point(c)) => {
                        Axis::Range { from, to, shift: if subtracts { shift - c } else { shift + c }, loop_axis }
                    }
                    (Axis::Point(c), Axis::Range { from, to, shift, loop_axis }) if !subtracts => {
                        Axis::Range { from, to, shift: shift + c, loop_axis }
                    }
                    _ => Axis::Unknown,
                }
            }
            _ => Axis::Unknown,
        }
    }

    fn number(&self, v: ValueId) -> Number {
        let inst = self.body.inst(v);
        match &inst.op {
            Op::Const(Const::Int(c)) => Number::Known(*c),
            // Of arrays that are the same the extents are too: all are known by the least of them.
            Op::Shape(b, axis) => {
                let others = self.aliases.iter().filter(|x| x.same).map(|x| (x.first, x.second));
                let others = others.filter(|(x, y)| x == b || y == b).map(|(x, y)| x.min(y));
                Number::Extent(others.min().unwrap_or(*b), *axis)
            }
            Op::Param(p) => Number::Parameter(*p),
            Op::Cast(u) if is_index(&inst.ty) && is_index(self.body.ty(*u)) => self.number(*u),
            _ => Number::Unknown,
        }
    }
}

fn is_index(ty: &Type) -> bool {
    matches!(ty, Type::Scalar(s) if !s.is_float() && s.bits() >= 32)
}

fn meeting(a: &Access, b: &Access) -> Meeting {
    let each = a.axes.iter().zip(&b.axes).map(|(a, b)| axes_meet(a, b));
    let least = each.min().unwrap_or(Meeting::Certain);
    if least == Meeting::Certain && !(a.always && b.always) { Meeting::Perhaps } else { least }
}

fn axes_meet(a: &Axis, b: &Axis) -> Meeting {
    let known = |meet| if meet { Meeting::Certain } else { Meeting::Apart };
    match (a, b) {
        (Axis::Point(a), Axis::Point(b)) => known(a == b),
        (Axis::Point(p), Axis::Range { from, to, shift, .. })
        | (Axis::Range { from, to, shift, .. }, Axis::Point(p)) => match to {
            Number::Known(to) => known((from + shift..to + shift).contains(p)),
            _ if *p < from + shift => Meeting::Apart,
            Number::Unknown => Meeting::Perhaps,
            _ if *p == from + shift => Meeting::Certain,
            _ => Meeting::Perhaps,
        },
        (Axis::Range { from, to, shift, .. }, Axis::Range { from: f, to: t, shift: s, .. }) => {
            let (low_a, low_b) = (from + shift, f + s);
            match (to, t) {
                (Number::Known(to), Number::Known(t)) => {
                    let (high_a, high_b) = (to + shift, t + s);
                    known(low_a < high_b && low_b < high_a && low_a < high_a && low_b < high_b)
                }
                (Number::Known(to), _) if low_b >= to + shift => Meeting::Apart,
                (_, Number::Known(t)) if low_a >= t + s => Meeting::Apart,
                (Number::Unknown, _) | (_, Number::Unknown) => Meeting::Perhaps,
                (Number::Known(to), _) if low_a <= low_b && low_b < to + shift => Meeting::Certain,
                (_, Number::Known(t)) if low_b <= low_a && low_a < t + s => Meeting::Certain,
                _ if to == t && shift == s => Meeting::Certain,
                _ => Meeting::Perhaps,
            }
        }
        _ => Meeting::Perhaps,
    }
}
