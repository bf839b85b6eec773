//! Values that cross regions: which are kept in memory per thread or per subgroup, and the location of each local.
//! Values that are as cheap to recompute as to load are recomputed.

use std::collections::{BTreeMap, BTreeSet};

use octants_ir::{LocalId, Op, Type, ValueId};

use super::plan::{Node, Plan, Site};
use super::rates::{Rate, Rates, ThreadCode};
use super::recompute::is_recomputed;

/// Locals of more scalars are used in place; smaller ones are copied to a local of the region and back, so that
/// conditional stores become selections.
const COPIED: usize = 4;

/// The granularity at which a value or local is stored: one element for each of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Extent {
    /// Each thread of a subgroup: it serves one loop over subgroups.
    Lane,
    /// Each subgroup of the block.
    Subgroup,
    /// Each thread of the block.
    Thread,
}

/// How a value is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ValueStorage {
    pub extent: Extent,
    /// Operations of subgroups read it, up to a subgroup's width before and after.
    pub is_exchanged: bool,
}

/// The storage of a local.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LocalStorage {
    /// It stays one local of the block.
    Block,
    /// One local that the subgroups of a loop, or the threads of a region, use in turn; `at` is the number of the loop
    /// or region. It may need to be zeroed at the start.
    InTurn { rate: Rate, at: usize, is_zeroed: bool },
    /// Memory with an element for each; the loop over subgroups that it serves, if it is one.
    Memory { extent: Extent, in_loop: Option<usize>, is_zeroed: bool, is_copied: bool },
}

/// The storage of values that cross regions.
#[derive(Debug, Default)]
pub(super) struct Storage {
    pub values: BTreeMap<ValueId, ValueStorage>,
    pub locals: BTreeMap<LocalId, LocalStorage>,
}

/// A subgroup computes it as a whole, and each thread has a part of it.
pub(super) fn is_product(op: &Op) -> bool {
    matches!(op, Op::Subgroup(op, _) if op.product().is_some())
}

/// Finds the values that cross regions.
pub(super) fn find_storage(code: &ThreadCode<'_>, rates: &Rates, plan: &Plan) -> Storage {
    let mut search = Search { code, rates, plan, found: Storage::default() };
    search.nodes(&plan.nodes, None);
    search.found.locals = search.assign_locals();
    search.found
}

/// The uses of a local.
#[derive(Default)]
struct Uses {
    /// Loops over subgroups, and regions.
    loops: BTreeSet<Option<usize>>,
    regions: BTreeSet<Option<usize>>,
    /// See [`Site::is_repeated`].
    is_repeated: [bool; 2],
    /// A function gets its address.
    is_passed: bool,
}

struct Search<'a> {
    code: &'a ThreadCode<'a>,
    rates: &'a Rates,
    plan: &'a Plan,
    found: Storage,
}

impl Search<'_> {
    fn nodes(&mut self, nodes: &[Node], subgroups: Option<usize>) {
        for node in nodes {
            let here = (subgroups, None);
            match node {
                Node::Once(v) => self.operands(*v, here),
                Node::Lanes(region) => {
                    region.only.into_iter().flatten().for_each(|v| self.require(v, here));
                    let here = (subgroups, Some(region.number));
                    for &v in &region.insts {
                        self.operands(v, here);
                        for b in self.code.body.inst(v).op.blocks() {
                            self.code.body.visit(b, &mut |v, _| self.operands(v, here));
                        }
                    }
                }
                Node::Subgroups(inner, number) => self.nodes(inner, Some(*number)),
                Node::If(v, yes, no) => {
                    self.operands(*v, here);
                    self.nodes(yes, subgroups);
                    self.nodes(no, subgroups);
                }
                Node::Repeat(v, inner) => {
                    self.operands(*v, here);
                    self.nodes(inner, subgroups);
                }
            }
        }
    }

    fn operands(&mut self, v: ValueId, here: (Option<usize>, Option<usize>)) {
        if self.plan.sites[v.index()].is_none() {
            return;
        }
        let op = &self.code.body.inst(v).op;
        op.for_each_operand(|u| self.require(u, here));
        if is_product(op) {
            // The product reads the fragments of all threads in memory, and writes its result there.
            let mut kept = vec![v];
            op.for_each_operand(|u| kept.push(u));
            kept.retain(|u| self.rates.varies[self.code.locals.source(*u).index()] == Rate::Thread);
            kept.into_iter().for_each(|u| self.keep(u, here.0, false));
        } else if let Op::Subgroup(_, operands) = op
            && operands.len() == 2
            && self.rates.varies[self.code.locals.source(operands[0]).index()] == Rate::Thread
        {
            self.keep(operands[0], here.0, true);
        }
    }

    /// Notes that a value is used by a region, or outside of regions, in a loop over subgroups or outside of them.
    fn require(&mut self, u: ValueId, (subgroups, region): (Option<usize>, Option<usize>)) {
        let u = self.code.locals.source(u);
        let Some(site) = self.plan.sites[u.index()] else { return };
        let is_there = match self.rates.runs[u.index()] {
            Rate::Subgroup if is_product(&self.code.body.inst(u).op) => false,
            Rate::Block => true,
            Rate::Subgroup => site.subgroups == subgroups || site.subgroups.is_none(),
            Rate::Thread => site.region == region && region.is_some(),
        };
        if is_there {
            return;
        }
        if is_recomputed(self.code, self.rates, u) {
            self.code.body.inst(u).op.for_each_operand(|w| self.require(w, (subgroups, region)));
        } else {
            self.keep(u, subgroups, false);
        }
    }

    fn keep(&mut self, u: ValueId, subgroups: Option<usize>, is_exchanged: bool) {
        let u = self.code.locals.source(u);
        let site = self.plan.sites[u.index()];
        let runs = if is_product(&self.code.body.inst(u).op) { Rate::Thread } else { self.rates.runs[u.index()] };
        let extent = match runs {
            Rate::Block => return,
            Rate::Subgroup => Extent::Subgroup,
            Rate::Thread if subgroups.is_some() && site.is_some_and(|s| s.subgroups == subgroups) => Extent::Lane,
            Rate::Thread => Extent::Thread,
        };
        let kept = self.found.values.entry(u).or_insert(ValueStorage { extent, is_exchanged });
        kept.extent = kept.extent.max(extent);
        kept.is_exchanged |= is_exchanged;
    }

    /// The storage of each local.
    fn assign_locals(&self) -> BTreeMap<LocalId, LocalStorage> {
        let body = self.code.body;
        let mut uses: BTreeMap<LocalId, Uses> = BTreeMap::new();
        body.visit(self.code.of.body, &mut |v, inst| {
            let Some(Site { subgroups, region, is_repeated }) = self.plan.sites[v.index()] else { return };
            inst.op.for_each_operand(|u| {
                let Some(l) = self.code.local_of(u) else { return };
                let found = uses.entry(l).or_default();
                found.is_passed |= matches!(inst.op, Op::Call(..));
                // Addresses are computed where they are used.
                if !matches!(inst.op, Op::ElementAddr(..) | Op::MemberAddr(..)) {
                    found.loops.insert(subgroups);
                    found.regions.insert(region);
                    (0..2).for_each(|i| found.is_repeated[i] |= is_repeated[i]);
                }
            });
        });
        uses.into_iter().map(|(l, uses)| (l, self.local_storage(l, &uses))).collect()
    }

    fn local_storage(&self, l: LocalId, uses: &Uses) -> LocalStorage {
        let [outer, inner] = uses.is_repeated;
        let is_zeroed = self.code.locals.of(l).needs_zero;
        let leaves = self.code.body.locals[l.index()].ty.leaf_count();
        let is_struct = matches!(self.code.body.locals[l.index()].ty, Type::Struct(_));
        let is_copied = uses.is_passed || is_struct || leaves <= COPIED;
        let memory = |extent, in_loop| {
            let is_copied = is_copied && extent != Extent::Subgroup;
            LocalStorage::Memory { extent, in_loop, is_zeroed, is_copied }
        };
        // A value from the iteration before is still needed.
        let lasts = |is_repeated: bool| is_repeated && is_zeroed;
        let only = |all: &BTreeSet<Option<usize>>| all.first().copied().flatten().filter(|_| all.len() == 1);
        let the_loop = only(&uses.loops).filter(|_| !lasts(outer));
        let region = only(&uses.regions).filter(|_| the_loop.is_some() && !lasts(inner));
        match (self.rates.locals[l.index()], the_loop, region) {
            (Rate::Block, ..) => LocalStorage::Block,
            (rate @ Rate::Subgroup, Some(at), _) | (rate @ Rate::Thread, _, Some(at)) => {
                LocalStorage::InTurn { rate, at, is_zeroed }
            }
            (Rate::Subgroup, ..) => memory(Extent::Subgroup, None),
            (Rate::Thread, Some(at), _) => memory(Extent::Lane, Some(at)),
            (Rate::Thread, ..) => memory(Extent::Thread, None),
        }
    }
}
