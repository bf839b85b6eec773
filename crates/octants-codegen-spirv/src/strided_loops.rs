//! Grid-stride loops: all threads of the grid enter a parallel task and share its iterations.
//!
//! Adjacent threads run adjacent iterations, so that their accesses coalesce. Every thread reaches the end of the loop,
//! even if it ran no iteration or an assertion failed. A barrier may follow. A loop with a group hands out groups of
//! iterations (`iteration_groups`). A thread runs several steps of an unrolled loop together if it has that many left,
//! so that their loads are in flight together.

use octants_ir::{BlockId, ForLoop, ValueId};

use crate::emit::Id;
use crate::iteration_groups::{Groups, Tile};
use crate::lowering::{Axis, Index, LoopTargets, Lowering};
use crate::odometer::Odometer;

/// How threads walk through the iterations of a loop.
struct Walk<'p> {
    of: (ValueId, &'p ForLoop),
    axes: Vec<Axis>,
    groups: Option<Groups>,
    tile: Option<Tile>,
    odometer: Odometer,
}

impl<'p> Lowering<'_, 'p> {
    fn axis(&self, begin: ValueId, end: ValueId) -> Axis {
        let e = self.e;
        let (first, last) = (self.bound(begin), self.bound(end));
        let trips = e.sub(last, first);
        let is_empty = e.slt(trips, e.u64c(0));
        let trips =
            if e.as_bits(trips).is_some_and(|n| n as i64 >= 0) { trips } else { e.select(is_empty, e.u64c(0), trips) };
        Axis { begin: first, trips, scalar: self.scalar_of(begin) }
    }

    /// A parallel loop whose iterations all threads share.
    pub fn strided_for(&mut self, v: ValueId, l: &'p ForLoop) {
        let e = self.e;
        let axes: Vec<Axis> = l.dims.iter().map(|d| self.axis(d.begin, d.end)).collect();
        // The loop may be lowered twice.
        self.accumulators.clear();
        self.begin_reductions(l);
        let groups = l.groups.first().and_then(|group| Groups::of(e, &axes, *group));
        let is_short = |axis: &Axis| axis.scalar.bits() <= 32 || groups.is_some();
        let size = |axis: &Axis| if is_short(axis) { e.trunc(axis.trips, 32) } else { axis.trips };
        let mut sizes: Vec<Id> = axes.iter().map(size).collect();
        match (&groups, sizes.last_mut()) {
            (Some(groups), Some(last)) => *last = groups.count,
            // A loop over a field without axes: one iteration.
            (_, None) => sizes.push(e.u32c(1)),
            _ => {}
        }
        let tile = groups.as_ref().and_then(|g| Some(Tile::cut(self, &mut sizes, g.tile_columns?)));
        let (number, all) = match (l.is_parallel(), &tile) {
            (false, _) => (e.u32c(0), e.u32c(1)),
            (_, Some(_)) => self.block_of_grid(),
            (_, None) => self.thread_of_grid(),
        };
        let odometer = Odometer::new(e, sizes, number, all);
        let unroll = l.hints.unroll.filter(|_| tile.is_none());
        let walk = Walk { of: (v, l), axes, groups, tile, odometer };
        let mut begin = walk.odometer.starts.clone();
        begin.push(walk.odometer.starts(e));
        let (open, mut counters) = e.begin_loop(&begin);
        let more = counters.pop().expect("compiler bug: a loop without a condition");
        e.loop_while(&open, more);
        self.open(&open);
        let targets = LoopTargets { on_break: open.done, on_continue: open.next, is_left: None };
        let steps = unroll.map(|unroll| self.steps(&walk, &counters, unroll.factor, targets));
        if steps.is_none() {
            self.step(&walk, &counters, targets);
        }
        self.loops.pop();
        e.end_body(&open);
        let has_breaks = self.breaks(l.body);
        if has_breaks {
            self.note_left(false);
        }
        let (mut next, is_last) = steps.unwrap_or_else(|| walk.odometer.step(e, &counters));
        next.push(e.not(is_last));
        e.end_loop(&open, &next);
        if e.features.limits_loops {
            self.check_rounds(v, walk.odometer.is_before_end(e, &counters), has_breaks);
        }
        self.end_reductions(l);
    }

    /// The iteration or group at these digits.
    fn step(&mut self, walk: &Walk<'p>, digits: &[Id], targets: LoopTargets) {
        let (e, (v, l), axes) = (self.e, walk.of, &walk.axes);
        let mut digits = digits[..axes.len()].to_vec();
        let Some(groups) = &walk.groups else {
            let linear = self.linear(axes, &digits);
            let indices = axes.iter().zip(digits).map(|(axis, digit)| self.index(axis, digit)).collect();
            return self.iteration(v, l.body, indices, linear, targets);
        };
        let selection = walk.tile.as_ref().map(|tile| e.begin_if(tile.place(self, &mut digits), false));
        self.group(walk.of, axes, &digits, groups, targets);
        if let Some(selection) = selection {
            e.end_if(selection);
        }
    }

    /// Several steps together if the thread has that many left and all their groups are whole, and otherwise one step.
    /// Returns the digits that follow, and whether there are none.
    fn steps(&mut self, walk: &Walk<'p>, digits: &[Id], factor: u32, targets: LoopTargets) -> (Vec<Id>, Id) {
        let (e, axes) = (self.e, walk.axes.len());
        let mut places = vec![digits[..walk.odometer.starts.len()].to_vec()];
        let mut ends = Vec::new();
        for at in 0..factor as usize {
            // Digits after the end mean nothing.
            let (next, is_last) = walk.odometer.step(e, &places[at]);
            places.push(next);
            ends.push(is_last);
        }
        let (after, is_last) = (places.pop(), ends.pop());
        let (after, is_last) = after.zip(is_last).expect("compiler bug: a loop unrolled without a factor");
        let mut together = ends.iter().fold(e.truth(true), |all, end| e.both(all, e.not(*end)));
        for place in &places {
            if let Some(is_whole) = walk.groups.as_ref().and_then(|groups| groups.is_whole(e, place[axes - 1])) {
                together = e.both(together, is_whole);
            }
        }
        let mut selection = e.begin_if(together, true);
        for place in &places {
            match &walk.groups {
                None => self.step(walk, place, targets),
                Some(groups) => self.whole_group(walk.of.0, &walk.axes, &place[..axes], groups, targets),
            }
        }
        e.begin_else(&mut selection);
        self.step(walk, &places[0], targets);
        e.end_if(selection);
        let next = after.iter().zip(&places[1]).map(|(after, next)| e.select(together, *after, *next)).collect();
        (next, e.select(together, is_last, ends[0]))
    }

    /// One iteration, or the code of a group: fresh locals, its own sequence of random numbers, the body.
    pub fn iteration(&mut self, v: ValueId, b: BlockId, indices: Vec<Index>, linear: Id, targets: LoopTargets) {
        self.prepare_locals(|l, local| !l.schedule.locals.of(local).is_used_before_loop);
        self.start_random_sequence(linear);
        if let Some(variable) = self.has_failed {
            self.e.store(variable, self.e.truth(false));
        }
        self.indices.insert(v, indices);
        self.targets.push(targets);
        self.iteration_end = Some((targets.on_continue, self.loops.len()));
        self.block(b);
        self.iteration_end = None;
        self.targets.pop();
        self.indices.remove(&v);
    }

    /// The index that a digit represents.
    pub fn index(&self, axis: &Axis, digit: Id) -> Index {
        let e = self.e;
        let wide = e.add(e.zext(digit, 64), axis.begin);
        let bits = axis.scalar.bits();
        let narrow = if bits == 64 { wide } else { e.add(e.trunc(axis.begin, bits), e.trunc(digit, bits)) };
        Index { narrow, wide }
    }

    /// The number of an iteration in the order of a serial loop; only random numbers need it.
    fn linear(&self, axes: &[Axis], digits: &[Id]) -> Id {
        let e = self.e;
        if self.rng.is_none() {
            return e.u64c(0);
        }
        let step = |n: Id, (axis, digit): (&Axis, &Id)| e.add(e.mul(n, axis.trips), e.zext(*digit, 64));
        axes.iter().zip(digits).fold(e.u64c(0), step)
    }
}
