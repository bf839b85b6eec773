//! Several iterations of a parallel loop at once, where each runs the same iterations of an inner loop (unroll and jam: Allen and Kennedy,
//! Optimizing Compilers for Modern Architectures, section 8.3). The schedule tells where.
//!
//! The code of the parallel loop's body stands there once for each of them, from one inner loop to the next. An inner loop that they run
//! together is there once, and each of its iterations does what all of them do in it.

use octants_ir::schedule::Jam;
use octants_ir::{BlockId, ForLoop, LocalId, ValueId};

use crate::lowering::{Index, Lane, Lanes, Lowering};

impl<'p> Lowering<'_, 'p> {
    /// The iterations of a parallel loop that have these indices, at once.
    pub fn iterations(&mut self, v: ValueId, l: &'p ForLoop, jam: &Jam, mut indices: Vec<Vec<Index>>) {
        let (values, locals) = (self.values.clone(), self.locals.clone());
        for (i, place) in self.locals.iter_mut().enumerate() {
            // Each has memory of its own for what does not stand before the loop.
            place.take_if(|_| !self.schedule.locals.of(LocalId(i as u32)).is_used_before_loop);
        }
        let lane = |indices| Lane { values: self.values.clone(), locals: self.locals.clone(), indices };
        let others = indices.split_off(1).into_iter().map(lane).collect();
        self.open.indices.extend(indices.into_iter().map(|i| (v, i)));
        let is_shared = |v: &ValueId| jam.loops.contains_key(v);
        let parts: Vec<_> = self.body.block(l.body).split_inclusive(is_shared).collect();
        let last_of = |part: &&'p [ValueId]| part.last().copied().filter(is_shared);
        let shared: Vec<_> = parts.iter().map(last_of).collect();
        self.copies.lanes = Some(Lanes { number: v, jam: jam.clone(), others });
        self.each_lane(|l| l.prepare_locals(|l, local| !l.schedule.locals.of(local).is_used_before_loop));
        for (part, shared) in parts.into_iter().zip(shared) {
            let own = &part[..part.len() - usize::from(shared.is_some())];
            self.each_lane(|l| own.iter().for_each(|v| l.inst(*v)));
            if let Some(v) = shared {
                self.inst(v);
            }
        }
        self.copies.lanes = None;
        self.open.indices.remove(&v);
        (self.values, self.locals) = (values, locals);
    }

    /// The body of a loop in order, once for each of the iterations of the parallel loop that run it together.
    pub fn body_of_loop(&mut self, v: ValueId, body: BlockId) {
        match &self.copies.lanes {
            Some(lanes) if lanes.jam.loops.contains_key(&v) => self.each_lane(|l| l.block(body)),
            _ => self.block(body),
        }
    }

    /// Of a loop that iterations of the parallel loop run together: whether they become vectors there, not its own iterations.
    pub fn is_across_lanes(&self, v: ValueId) -> Option<bool> {
        self.copies.lanes.as_ref()?.jam.loops.get(&v).copied()
    }

    fn each_lane(&mut self, mut f: impl FnMut(&mut Self)) {
        f(self);
        for i in 0..self.copies.lanes.as_ref().map_or(0, |lanes| lanes.others.len()) {
            self.exchange_lane(i);
            f(self);
            self.exchange_lane(i);
        }
    }

    /// Code is made for one of the others from now on.
    fn exchange_lane(&mut self, i: usize) {
        let lanes = self.copies.lanes.as_mut().expect("compiler bug: iterations run at once");
        let lane = &mut lanes.others[i];
        let indices = self.open.indices.get_mut(&lanes.number).expect("compiler bug: the parallel loop is open");
        std::mem::swap(&mut self.values, &mut lane.values);
        std::mem::swap(&mut self.locals, &mut lane.locals);
        std::mem::swap(indices, &mut lane.indices);
    }
}
