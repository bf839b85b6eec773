//! Sums of a converged loop (`converge_loops`): what an iteration adds is collected in registers, and the warp adds it together at the
//! iteration's end.
//!
//! An inner loop of few iterations that adds to elements along its index, as in `for b: for t in range(8): g[8 * b + t] += f(b, t)`, is
//! written out, so that each of its iterations has a register. Its sums are then combined by halves: of two threads one goes on with the
//! first half of the elements and the other one with the second, until each thread has one element. That takes far fewer exchanges than to
//! combine one element after the other, and threads add to different elements at a time.
//!
//! At the end of an iteration a thread knows the addresses from the numbers of the iterations alone, so that one which had nothing to
//! add can add for others. A sum of zero is not added: an element that no thread meant may lie outside of its array.

use octants_ir::schedule::WarpReduction;
use octants_ir::{AtomicOp, Scalar, ValueId};

use crate::emit::{Emitter, FloatCmp, V};
use crate::lowering::{Gathered, Index, Lowering};
use crate::place::Place;
use crate::target::Portion;

/// The index of the aligned loop at the element with a number, an i64.
type IndexOf<'a> = dyn Fn(&Emitter, V) -> Index + 'a;

impl<'p> Lowering<'_, 'p> {
    /// Makes room for what the sums of a loop collect.
    pub fn gather(&self, loop_id: ValueId, reductions: &'p [WarpReduction]) -> Gathered<'p> {
        let slot = |s: &Scalar| self.stack(self.e.scalar(*s), s.bytes());
        let of_reduction = |reduction: &WarpReduction| {
            (0..reduction.along.elements).map(|_| reduction.scalars.iter().map(slot).collect()).collect()
        };
        Gathered { loop_id, reductions, collected: reductions.iter().map(of_reduction).collect() }
    }

    /// Collects a sum of the aligned loop that is being lowered; `false` where it is none.
    pub fn gather_sum(&self, v: ValueId, op: AtomicOp, operand: ValueId) -> bool {
        let Some(gathered) = &self.copies.gathered else { return false };
        let mut all = gathered.each();
        let Some((reduction, collected)) = all.find(|(reduction, _)| reduction.sums.contains(&v)) else { return false };
        let e = self.e;
        let element =
            if reduction.along.elements == 1 { 0 } else { self.copies.unrolled.iteration(reduction.along.loop_id) };
        let slots = collected[element].iter().zip(&reduction.scalars);
        for ((slot, s), value) in slots.zip(self.leaves(operand)) {
            let before = e.load(e.scalar(*s), *slot, s.bytes());
            let after = if op == AtomicOp::Sub { e.fsub(before, value) } else { e.fadd(before, value) };
            e.store(*slot, after, s.bytes());
        }
        true
    }

    /// Empties what is collected.
    pub fn clear_collected(&self, gathered: &Gathered<'_>) {
        let e = self.e;
        for (reduction, collected) in gathered.each() {
            for (slot, s) in collected.iter().flat_map(|slots| slots.iter().zip(&reduction.scalars)) {
                e.store(*slot, e.zero(e.scalar(*s)), s.bytes());
            }
        }
    }

    /// Adds what the warp's threads have collected, as one.
    pub fn add_as_one(&mut self, gathered: &Gathered<'_>, index_of: &IndexOf<'_>) {
        let e = self.e;
        let combine = |(reduction, collected): (&WarpReduction, &Vec<Vec<V>>)| -> Vec<Portion> {
            let of_scalar = |(leaf, s): (usize, &Scalar)| {
                let load = |slots: &Vec<V>| e.load(e.scalar(*s), slots[leaf], s.bytes());
                let mut values: Vec<V> = collected.iter().map(load).collect();
                values.resize(values.len().next_power_of_two(), e.zero(e.scalar(*s)));
                self.u.target.combine_warp_apart(e, *s, &values, &|a, b| e.fadd(a, b))
            };
            reduction.scalars.iter().enumerate().map(of_scalar).collect()
        };
        let combined: Vec<Vec<Portion>> = gathered.each().map(combine).collect();
        for (reduction, portions) in gathered.reductions.iter().zip(combined) {
            let values: Vec<V> = portions.iter().map(|p| p.value).collect();
            let adds = e.and(portions[0].is_first, self.is_some(&values));
            self.add_to_element(gathered, reduction, index_of, &Element { number: portions[0].number, adds, values });
        }
    }

    /// Adds what this thread has collected.
    pub fn add_apart(&mut self, gathered: &Gathered<'_>, index_of: &IndexOf<'_>) {
        let e = self.e;
        for (reduction, collected) in gathered.each() {
            for (element, slots) in collected.iter().enumerate() {
                let load = |(slot, s): (&V, &Scalar)| e.load(e.scalar(*s), *slot, s.bytes());
                let values: Vec<V> = slots.iter().zip(&reduction.scalars).map(load).collect();
                let element = Element { number: e.i32c(element as i64), adds: self.is_some(&values), values };
                self.add_to_element(gathered, reduction, index_of, &element);
            }
        }
    }

    /// A sum is not zero.
    fn is_some(&self, values: &[V]) -> V {
        let e = self.e;
        let is_some = |v: &V| e.fcmp(FloatCmp::LLVMRealUNE, *v, e.zero(e.type_of(*v)));
        values.iter().map(is_some).reduce(|a, b| e.or(a, b)).expect("compiler bug: an element has scalars")
    }

    /// Adds to an element of a reduction.
    fn add_to_element(
        &mut self,
        gathered: &Gathered<'_>,
        reduction: &WarpReduction,
        index_of: &IndexOf<'_>,
        element: &Element,
    ) {
        let e = self.e;
        let (add, after) = (self.new_block(c"sum.add"), self.new_block(c"sum.added"));
        e.cond_br(element.adds, add, after);
        e.position(add);
        let place = self.place_of(gathered, reduction, index_of, e.zext(element.number, e.i64));
        for (leaf, value) in place.shape.leaves.iter().zip(&element.values) {
            self.atomic_sum(self.leaf_pointer(&place, leaf), leaf, *value);
        }
        e.br(after);
        e.position(after);
    }

    /// The place of a reduction's element.
    fn place_of(
        &mut self,
        gathered: &Gathered<'_>,
        reduction: &WarpReduction,
        index_of: &IndexOf<'_>,
        element: V,
    ) -> Place {
        let e = self.e;
        let number = reduction.along.loop_id;
        match self.copies.unrolled.indices_of(number) {
            Some(indices) => {
                let index = self.index_in(number, e.add_nsw(e.i64c(indices.start), element));
                self.open.indices.insert(number, vec![index]);
                self.open.indices.insert(gathered.loop_id, vec![index_of(e, e.i64c(0))]);
            }
            None => _ = self.open.indices.insert(gathered.loop_id, vec![index_of(e, element)]),
        }
        reduction.steps.iter().for_each(|v| self.inst(*v));
        self.place(reduction.address)
    }
}

/// What is added to an element of a reduction.
struct Element {
    /// The element's number, an i32.
    number: V,
    /// This thread adds it: an i1.
    adds: V,
    /// Its scalars.
    values: Vec<V>,
}
