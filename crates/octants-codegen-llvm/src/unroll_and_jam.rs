//! Unroll-and-jam of a parallel loop, as the schedule says (Allen and Kennedy, Optimizing Compilers for Modern
//! Architectures, section 8.3).
//!
//! The parallel loop's body is emitted once for each interleaved iteration, from one inner loop to the next. A jammed
//! inner loop is emitted once, and each of its iterations holds the code of all interleaved iterations.

use octants_ir::schedule::UnrollAndJam;
use octants_ir::{BlockId, ForLoop, LocalId, ValueId};

use crate::lowering::{Index, Lane, Lanes, Lowering};

impl<'p> Lowering<'_, 'p> {
    /// Emits the iterations of a parallel loop that have these indices, interleaved.
    pub fn interleaved_iterations(
        &mut self,
        v: ValueId,
        l: &'p ForLoop,
        plan: &UnrollAndJam,
        mut indices: Vec<Vec<Index>>,
    ) {
        let (values, locals) = (self.values.clone(), self.locals.clone());
        for (i, place) in self.locals.iter_mut().enumerate() {
            // Each has memory of its own for what does not stand before the loop.
            place.take_if(|_| !self.schedule.locals.of(LocalId(i as u32)).is_used_before_loop);
        }
        let lane = |indices| Lane { values: self.values.clone(), locals: self.locals.clone(), indices };
        let others = indices.split_off(1).into_iter().map(lane).collect();
        self.open.indices.extend(indices.into_iter().map(|i| (v, i)));
        let is_shared = |v: &ValueId| plan.loops.contains_key(v);
        let parts: Vec<_> = self.body.block(l.body).split_inclusive(is_shared).collect();
        let last_of = |part: &&'p [ValueId]| part.last().copied().filter(is_shared);
        let shared: Vec<_> = parts.iter().map(last_of).collect();
        self.copies.lanes = Some(Lanes { loop_id: v, unroll_and_jam: plan.clone(), others });
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

    /// The body of a serial loop, once for each interleaved iteration if it is jammed.
    pub fn body_of_loop(&mut self, v: ValueId, body: BlockId) {
        match &self.copies.lanes {
            Some(lanes) if lanes.unroll_and_jam.loops.contains_key(&v) => self.each_lane(|l| l.block(body)),
            _ => self.block(body),
        }
    }

    /// Of a jammed loop: whether it is vectorized across the iterations of the parallel loop, not its own.
    pub fn is_across_lanes(&self, v: ValueId) -> Option<bool> {
        self.copies.lanes.as_ref()?.unroll_and_jam.loops.get(&v).copied()
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
        let lanes = self.copies.lanes.as_mut().expect("compiler bug: iterations are interleaved");
        let lane = &mut lanes.others[i];
        let indices = self.open.indices.get_mut(&lanes.loop_id).expect("compiler bug: the parallel loop is open");
        std::mem::swap(&mut self.values, &mut lane.values);
        std::mem::swap(&mut self.locals, &mut lane.locals);
        std::mem::swap(indices, &mut lane.indices);
    }
}
