//! Sums of an aligned loop (`align_loops`): what an iteration adds is collected in registers, and the warp adds it together at the
//! iteration's end.
//!
//! An inner loop of few iterations that adds to elements along its index, as in `for b: for t in range(8): g[8 * b + t] += f(b, t)`, is
//! written out, so that each of its iterations has a register. Its sums are then combined by halves: of two threads one goes on with the
//! first half of the elements and the other one with the second, until each thread has one element. That takes far fewer exchanges than to
//! combine one element after the other, and threads add to different elements at a time.
//!
//! At the end of an iteration a thread knows the addresses from the numbers of the iterations alone, so that one which had nothing to
//! add can add for others. A sum of zero is not added: an element that no thread meant may lie outside of its array.

use std::collections::HashSet;

use octants_ir::{AtomicOp, Op, Scalar, ValueId};

use crate::emit::{Emitter, FloatCmp, V};
use crate::lower_body::{Index, Lowering};
use crate::place::Place;
use crate::target::Portion;

/// Most registers for what loops that are written out add.
pub(crate) const MOST_REGISTERS: usize = 32;

/// Elements that the threads of a warp agree on, one for each iteration of an inner loop, or one alone.
#[derive(Debug)]
pub(crate) struct Site {
    /// The sums.
    pub sums: Vec<ValueId>,
    /// The address of each of them.
    pub address: ValueId,
    /// The loop that the elements follow.
    pub along: Along,
    /// The instructions inside the aligned loop that compute the address, in order.
    steps: Vec<ValueId>,
    /// The scalars of an element.
    scalars: Vec<Scalar>,
    /// Where each scalar of each element is collected.
    collected: Vec<Vec<V>>,
}

/// The loop whose index elements follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Along {
    /// An inner loop, or the aligned one.
    pub number: ValueId,
    /// Iterations of it whose sums are collected before they are combined. If there is one, no index of an inner loop is in the address.
    pub elements: usize,
}

/// The index of the aligned loop at the element with a number, an i64.
type IndexOf<'a> = dyn Fn(&Emitter, V) -> Index + 'a;

/// The sums of the aligned loop that is being lowered.
#[derive(Debug)]
pub(crate) struct Gathered {
    /// The loop.
    number: ValueId,
    pub sites: Vec<Site>,
}

impl Gathered {
    /// No sums of a loop yet.
    pub fn of(number: ValueId) -> Gathered {
        Gathered { number, sites: Vec::new() }
    }

    /// Adds a sum, to others at the same elements if there are any; `false` where it would take too many registers. `inside` is what is
    /// inside the loop.
    pub fn insert(
        &mut self,
        lowering: &Lowering<'_, '_>,
        inside: &HashSet<ValueId>,
        sum: ValueId,
        along: Along,
    ) -> bool {
        let body = lowering.body;
        let Op::Atomic(_, address, operand) = body.inst(sum).op else { return false };
        let is_same = |site: &&mut Site| site.along == along && is_same_address(lowering, site.address, address);
        if let Some(site) = self.sites.iter_mut().find(is_same) {
            site.sums.push(sum);
            return true;
        }
        let (elements, scalars) = (along.elements, body.ty(operand).leaves());
        let taken: usize = self.sites.iter().flat_map(|site| &site.collected).map(Vec::len).sum();
        if elements > 1 && taken + elements * scalars.len() > MOST_REGISTERS {
            return false;
        }
        let slot = |s: &Scalar| lowering.stack(lowering.e.scalar(*s), s.bytes());
        let collected = (0..elements).map(|_| scalars.iter().map(slot).collect()).collect();
        let mut steps = Vec::new();
        trace(lowering, inside, address, &mut steps);
        self.sites.push(Site { sums: vec![sum], address, along, steps, scalars, collected });
        true
    }
}

fn trace(lowering: &Lowering<'_, '_>, inside: &HashSet<ValueId>, v: ValueId, steps: &mut Vec<ValueId>) {
    if !inside.contains(&v) || steps.contains(&v) {
        return;
    }
    match (&lowering.body.inst(v).op, lowering.facts.forwarded(v)) {
        (_, Some(stored)) => trace(lowering, inside, stored, steps),
        (Op::LoopIndex(..), None) => {}
        (op, None) => op.for_each_operand(|u| trace(lowering, inside, u, steps)),
    }
    steps.push(v);
}

fn is_same_address(lowering: &Lowering<'_, '_>, a: ValueId, b: ValueId) -> bool {
    let body = lowering.body;
    let is_same = |a: &ValueId, b: &ValueId| {
        let (a, b) = (lowering.source(*a), lowering.source(*b));
        a == b || body.as_const(a).is_some() && body.as_const(a) == body.as_const(b)
    };
    let are_same = |a: &[ValueId], b: &[ValueId]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b));
    match (&body.inst(a).op, &body.inst(b).op) {
        _ if a == b => true,
        (Op::BufferAddr(x, i), Op::BufferAddr(y, j)) => x == y && are_same(i, j),
        (Op::ElementAddr(x, i), Op::ElementAddr(y, j)) => is_same_address(lowering, *x, *y) && are_same(i, j),
        (Op::MemberAddr(x, i), Op::MemberAddr(y, j)) => i == j && is_same_address(lowering, *x, *y),
        _ => false,
    }
}

impl<'p> Lowering<'_, 'p> {
    /// The scalars that a sum adds.
    pub fn scalars_of_sum(&self, sum: ValueId) -> Vec<Scalar> {
        let Op::Atomic(_, _, operand) = self.body.inst(sum).op else { panic!("compiler bug: this is no sum") };
        self.body.ty(operand).leaves()
    }

    /// Collects a sum of the aligned loop that is being lowered; `false` where it is none.
    pub fn gather_sum(&self, v: ValueId, op: AtomicOp, operand: ValueId) -> bool {
        let Some(gathered) = &self.gathered else { return false };
        let Some(site) = gathered.sites.iter().find(|site| site.sums.contains(&v)) else { return false };
        let e = self.e;
        let element = if site.along.elements == 1 { 0 } else { self.written_out.iteration(site.along.number) };
        let slots = site.collected[element].iter().zip(&site.scalars);
        for ((slot, s), value) in slots.zip(self.leaves(operand)) {
            let before = e.load(e.scalar(*s), *slot, s.bytes());
            let after = if op == AtomicOp::Sub { e.fsub(before, value) } else { e.fadd(before, value) };
            e.store(*slot, after, s.bytes());
        }
        true
    }

    /// Empties what is collected.
    pub fn clear_collected(&self, gathered: &Gathered) {
        let e = self.e;
        for site in &gathered.sites {
            for (slot, s) in site.collected.iter().flat_map(|slots| slots.iter().zip(&site.scalars)) {
                e.store(*slot, e.zero(e.scalar(*s)), s.bytes());
            }
        }
    }

    /// Adds what the warp's threads have collected, as one.
    pub fn add_as_one(&mut self, gathered: &Gathered, index_of: &IndexOf<'_>) {
        let e = self.e;
        let combine = |site: &Site| -> Vec<Portion> {
            let of_scalar = |(leaf, s): (usize, &Scalar)| {
                let load = |slots: &Vec<V>| e.load(e.scalar(*s), slots[leaf], s.bytes());
                let mut values: Vec<V> = site.collected.iter().map(load).collect();
                values.resize(values.len().next_power_of_two(), e.zero(e.scalar(*s)));
                self.u.target.combine_warp_apart(e, *s, &values, &|a, b| e.fadd(a, b))
            };
            site.scalars.iter().enumerate().map(of_scalar).collect()
        };
        let combined: Vec<Vec<Portion>> = gathered.sites.iter().map(combine).collect();
        for (site, portions) in gathered.sites.iter().zip(combined) {
            let values: Vec<V> = portions.iter().map(|p| p.value).collect();
            let adds = e.and(portions[0].is_first, self.is_some(&values));
            self.add_to_site(gathered, site, index_of, &Element { number: portions[0].number, adds, values });
        }
    }

    /// Adds what this thread has collected.
    pub fn add_apart(&mut self, gathered: &Gathered, index_of: &IndexOf<'_>) {
        let e = self.e;
        for site in &gathered.sites {
            for (element, slots) in site.collected.iter().enumerate() {
                let load = |(slot, s): (&V, &Scalar)| e.load(e.scalar(*s), *slot, s.bytes());
                let values: Vec<V> = slots.iter().zip(&site.scalars).map(load).collect();
                let element = Element { number: e.i32c(element as i64), adds: self.is_some(&values), values };
                self.add_to_site(gathered, site, index_of, &element);
            }
        }
    }

    /// A sum is not zero.
    fn is_some(&self, values: &[V]) -> V {
        let e = self.e;
        let is_some = |v: &V| e.fcmp(FloatCmp::LLVMRealUNE, *v, e.zero(e.type_of(*v)));
        values.iter().map(is_some).reduce(|a, b| e.or(a, b)).expect("compiler bug: an element has scalars")
    }

    /// Adds to an element of a site.
    fn add_to_site(&mut self, gathered: &Gathered, site: &Site, index_of: &IndexOf<'_>, element: &Element) {
        let e = self.e;
        let (add, after) = (self.new_block(c"sum.add"), self.new_block(c"sum.added"));
        e.cond_br(element.adds, add, after);
        e.position(add);
        let place = self.place_of(gathered, site, index_of, e.zext(element.number, e.i64));
        for (leaf, value) in place.shape.leaves.iter().zip(&element.values) {
            self.atomic_sum(self.leaf_pointer(&place, leaf), leaf, *value);
        }
        e.br(after);
        e.position(after);
    }

    /// The place of a site's element.
    fn place_of(&mut self, gathered: &Gathered, site: &Site, index_of: &IndexOf<'_>, element: V) -> Place {
        let e = self.e;
        let number = site.along.number;
        match self.written_out.indices_of(number) {
            Some(indices) => {
                let index = self.index_in(number, e.add_nsw(e.i64c(indices.start), element));
                self.indices.insert(number, vec![index]);
                self.indices.insert(gathered.number, vec![index_of(e, e.i64c(0))]);
            }
            None => _ = self.indices.insert(gathered.number, vec![index_of(e, element)]),
        }
        site.steps.iter().for_each(|v| self.inst(*v));
        self.place(site.address)
    }
}

/// What is added to an element of a site.
struct Element {
    /// The element's number, an i32.
    number: V,
    /// This thread adds it: an i1.
    adds: V,
    /// Its scalars.
    values: Vec<V>,
}
