//! [`Plan`]: the code of a block as a tree of regions. Each region is a loop over the threads of a subgroup. Around
//! regions are loops over subgroups, uniform control flow, and code that runs once for all threads.
//!
//! Instructions keep their order, with one exception: code that runs once runs before the threads' code of its region.
//! It depends only on other code that runs once, so the difference is not observable. If it stores to a local that the
//! threads' code reads, the region ends first. A region also ends at barriers, and before a subgroup operation that
//! takes a value from it. Broadcasts of a value from an earlier region therefore do not split a region.

use std::collections::HashSet;

use octants_analysis::{may_leave, trace_element};
use octants_ir::{BinaryOp, LocalId, Op, ValueId};

use super::rates::{Rate, Rates, ThreadCode, meeting};
use super::recompute::is_recomputed;

/// A part of a block's code.
#[derive(Debug)]
pub(super) enum Node {
    /// An instruction that runs once.
    Once(ValueId),
    /// A loop over the threads of a subgroup.
    Lanes(Region),
    /// A loop over the subgroups of the block.
    Subgroups(Vec<Node>, usize),
    /// A branch that the threads take together.
    If(ValueId, Vec<Node>, Vec<Node>),
    /// A loop that the threads run together.
    Repeat(ValueId, Vec<Node>),
}

/// The instructions of a loop over threads.
#[derive(Debug)]
pub(super) struct Region {
    /// Numbers the regions.
    pub number: usize,
    pub insts: Vec<ValueId>,
    /// Only one thread runs it, for which these two values are equal; the first one steps from thread to thread.
    pub only: Option<[ValueId; 2]>,
}

/// The position of an instruction in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Site {
    /// The loop over subgroups, and the region.
    pub subgroups: Option<usize>,
    pub region: Option<usize>,
    /// It is in a loop that the threads run together: around the loop over subgroups, or around the region.
    pub is_repeated: [bool; 2],
}

/// The code of a block.
pub(super) struct Plan {
    pub nodes: Vec<Node>,
    /// Per instruction of the loop; `None` for those that become no code.
    pub sites: Vec<Option<Site>>,
}

impl Plan {
    /// Cuts a thread's code into regions.
    pub fn of(code: &ThreadCode<'_>, rates: &Rates) -> Plan {
        let sites = vec![None; code.body.insts.len()];
        let mut cut = Cut { code, rates, sites, regions: 0, loops: 0 };
        let nodes = cut.nodes(code.body.block(code.of.body), Rate::Block, Site::default());
        Plan { nodes, sites: cut.sites }
    }
}

/// Components of a small exchanged value.
const MOST_COMPONENTS: usize = 4;

struct Cut<'a> {
    code: &'a ThreadCode<'a>,
    rates: &'a Rates,
    sites: Vec<Option<Site>>,
    /// The numbers of regions and of loops over subgroups so far.
    regions: usize,
    loops: usize,
}

/// Instructions that wait to become a region or a loop over subgroups.
#[derive(Default)]
struct Pending {
    insts: Vec<ValueId>,
    /// They and those in their blocks.
    all: HashSet<ValueId>,
    locals: HashSet<LocalId>,
    /// An assertion among them may end the code.
    may_end: bool,
    /// Memory that they write, by the first buffer that may overlap it; all of it, if that is not known.
    written: HashSet<usize>,
    writes_anything: bool,
}

impl Cut<'_> {
    /// The nodes of instructions that run at some rate.
    fn nodes(&mut self, insts: &[ValueId], rate: Rate, site: Site) -> Vec<Node> {
        let mut out = Vec::new();
        let mut pending = Pending::default();
        for &v in insts {
            let op = &self.code.body.inst(v).op;
            if self.code.becomes_no_code(v) {
                continue;
            }
            if self.rates.runs[v.index()] > rate {
                if matches!(op, Op::Subgroup(..)) && rate == Rate::Subgroup && self.reads(v, &pending) {
                    self.flush(&mut pending, rate, site, &mut out);
                }
                let only = if rate == Rate::Subgroup { self.only_thread(v) } else { None };
                if let Some((only, inside)) = only {
                    self.flush(&mut pending, rate, site, &mut out);
                    self.sites[v.index()] = Some(site);
                    let region = self.region(inside, Some(only), site);
                    out.push(Node::Lanes(region));
                } else {
                    self.add(v, &mut pending);
                }
                continue;
            }
            let is_control = !op.blocks().is_empty() || op.is_terminator();
            let is_behind = is_control
                || meeting(op).is_some() && !self.is_small_exchange(v)
                || pending.may_end && self.code.may_be_undefined(v)
                || self.loads_what_is_written(v, &pending)
                || self.stores_what_is_read(v, &pending)
                || self.reads(v, &pending);
            if is_behind {
                self.flush(&mut pending, rate, site, &mut out);
            }
            self.sites[v.index()] = Some(site);
            match op {
                Op::Barrier(_) => {}
                Op::If(_, yes, no) => {
                    let [yes, no] = [*yes, *no].map(|b| self.nodes(self.code.body.block(b), rate, site));
                    out.push(Node::If(v, yes, no));
                }
                Op::For(_) | Op::Loop(_) => {
                    let mut inside = site;
                    inside.is_repeated[usize::from(rate == Rate::Subgroup)] = true;
                    let body = op.blocks()[0];
                    let nodes = self.nodes(self.code.body.block(body), rate, inside);
                    out.push(Node::Repeat(v, nodes));
                }
                _ => out.push(Node::Once(v)),
            }
        }
        self.flush(&mut pending, rate, site, &mut out);
        out
    }

    /// An operation of a subgroup, which need not end a region. Its result is live in the region: large ones would
    /// fill it.
    fn is_small_exchange(&self, v: ValueId) -> bool {
        let inst = self.code.body.inst(v);
        matches!(inst.op, Op::Subgroup(..)) && inst.ty.leaf_count() <= MOST_COMPONENTS
    }

    fn add(&self, v: ValueId, pending: &mut Pending) {
        pending.insts.push(v);
        let body = self.code.body;
        let mut note = |v: ValueId, op: &Op| {
            pending.all.insert(v);
            pending.may_end |= matches!(op, Op::Assert(..) | Op::Call(..));
            match op {
                Op::Store(a, _) | Op::Atomic(_, a, _) | Op::AtomicCas(a, ..) => {
                    let class = self.class(*a);
                    pending.writes_anything |= class.is_none() && self.code.local_of(*a).is_none();
                    pending.written.extend(class);
                }
                Op::Call(..) => pending.writes_anything = true,
                _ => {}
            }
            if let Op::LocalAddr(l) = op {
                pending.locals.insert(*l);
            }
            op.for_each_operand(|u| pending.locals.extend(self.code.local_of(u)));
        };
        note(v, &body.inst(v).op);
        for b in body.inst(v).op.blocks() {
            body.visit(b, &mut |v, inst| note(v, &inst.op));
        }
    }

    /// An instruction that runs once stores to a local that pending ones read.
    fn stores_what_is_read(&self, v: ValueId, pending: &Pending) -> bool {
        match &self.code.body.inst(v).op {
            Op::Store(a, _) => self.code.local_of(*a).is_some_and(|l| pending.locals.contains(&l)),
            _ => false,
        }
    }

    /// An instruction that runs once loads from memory that pending ones write.
    fn loads_what_is_written(&self, v: ValueId, pending: &Pending) -> bool {
        match &self.code.body.inst(v).op {
            Op::Load(a) if self.code.local_of(*a).is_none() => {
                pending.writes_anything || self.class(*a).is_none_or(|class| pending.written.contains(&class))
            }
            _ => false,
        }
    }

    /// The memory of an address: see [`Pending::written`].
    fn class(&self, address: ValueId) -> Option<usize> {
        trace_element(self.code.body, address).map(|(b, _)| self.code.overlapping[b.index()])
    }

    /// An instruction takes a value that pending ones compute, and that is not computed again for it.
    fn reads(&self, v: ValueId, pending: &Pending) -> bool {
        let op = &self.code.body.inst(v).op;
        let mut found = false;
        op.for_each_operand(|u| found |= self.waits_for(u, pending, !matches!(op, Op::Subgroup(..))));
        found
    }

    fn waits_for(&self, u: ValueId, pending: &Pending, may_recompute: bool) -> bool {
        let u = self.code.locals.source(u);
        if !pending.all.contains(&u) {
            return false;
        }
        if !(may_recompute && is_recomputed(self.code, self.rates, u)) {
            return true;
        }
        let mut found = false;
        self.code.body.inst(u).op.for_each_operand(|w| found |= self.waits_for(w, pending, true));
        found
    }

    fn flush(&mut self, pending: &mut Pending, rate: Rate, site: Site, out: &mut Vec<Node>) {
        let Pending { insts, .. } = std::mem::take(pending);
        if insts.is_empty() {
            return;
        }
        if rate == Rate::Block {
            let number = self.loops;
            self.loops += 1;
            let nodes = self.nodes(&insts, Rate::Subgroup, Site { subgroups: Some(number), ..site });
            out.push(Node::Subgroups(nodes, number));
            return;
        }
        let region = self.region(insts, None, site);
        out.push(Node::Lanes(region));
    }

    /// A branch that only one thread takes, and that does not benefit from vector code: the values that are equal for
    /// that thread, and the code.
    fn only_thread(&self, v: ValueId) -> Option<([ValueId; 2], Vec<ValueId>)> {
        let body = self.code.body;
        let Op::If(c, yes, no) = body.inst(v).op else { return None };
        let Op::Binary(BinaryOp::Eq, a, b) = body.inst(self.code.locals.source(c)).op else { return None };
        let [a, b] = [a, b].map(|u| self.code.locals.source(u));
        let steps = |u: ValueId| self.rates.steps[u.index()].is_some();
        let pair =
            [[a, b], [b, a]].into_iter().find(|[x, y]| steps(*x) && self.rates.runs[y.index()] < Rate::Thread)?;
        let mut is_scalar = false;
        body.visit(yes, &mut |_, inst| {
            is_scalar |= match &inst.op {
                Op::Store(a, _) => self.code.local_of(*a).is_none(),
                Op::Atomic(..) | Op::AtomicCas(..) | Op::Call(..) | Op::For(_) | Op::Loop(_) | Op::Print(_) => true,
                _ => false,
            }
        });
        (is_scalar && body.block(no).is_empty() && !may_leave(body, yes)).then(|| (pair, body.block(yes).to_vec()))
    }

    fn region(&mut self, insts: Vec<ValueId>, only: Option<[ValueId; 2]>, site: Site) -> Region {
        let number = self.regions;
        self.regions += 1;
        let site = Some(Site { region: Some(number), ..site });
        for &v in &insts {
            self.sites[v.index()] = site;
            for b in self.code.body.inst(v).op.blocks() {
                self.code.body.visit(b, &mut |v, _| self.sites[v.index()] = site);
            }
        }
        Region { number, insts, only }
    }
}
