//! Grid-stride loops: all threads of the grid enter a parallel task and share its iterations.
//!
//! Adjacent threads run adjacent iterations, so that their accesses coalesce. Every thread reaches the end of the loop,
//! even if it ran no iteration or an assertion failed. A barrier may follow.
//!
//! A loop with a group hands out groups of adjacent iterations of the last axis, which begin at multiples of the
//! factor. The iterations of an incomplete group run one by one. Tiled groups are handed out to blocks in tiles.

use octants_ir::{ForLoop, GroupPlacement, IterationGroup, ValueId};

use crate::emit::{IntCmp, V};
use crate::lower_task::Axis;
use crate::lowering::{Index, LoopTargets, Lowering};
use crate::odometer::Odometer;

impl<'p> Lowering<'_, 'p> {
    /// A parallel loop whose iterations all threads share.
    pub fn strided_for(&mut self, v: ValueId, l: &'p ForLoop) {
        let e = self.e;
        let serializes = !l.is_parallel();
        let axes: Vec<Axis> = l.dims.iter().map(|d| self.axis(d.begin, d.end)).collect();
        // The loop may be lowered twice.
        self.parallel.accumulators.clear();
        self.parallel.reductions.clear();
        self.begin_reductions(l);
        let groups = l.groups.first().and_then(|group| Groups::of(self, &axes, *group));
        let mut sizes: Vec<V> = axes.iter().map(|axis| self.size(axis, groups.is_some())).collect();
        match (&groups, sizes.last_mut()) {
            (Some(groups), Some(last)) => *last = groups.count,
            // A loop over a field without axes: one iteration.
            (_, None) => sizes.push(e.i32c(1)),
            _ => {}
        }
        let tile = groups.as_ref().and_then(|g| Some(Tile::cut(self, &mut sizes, g.tile_columns?)));
        let (number, all) = match (serializes, &tile) {
            (true, _) => (e.i32c(0), e.i32c(1)),
            (_, Some(_)) => self.u.target.block_of_grid(e),
            (_, None) => self.u.target.thread(e),
        };
        let odometer = Odometer::new(e, sizes, number, all);

        let inside = self.new_block(c"iterations");
        let next = self.new_block(c"iterations.next");
        let done = self.new_block(c"done");
        let from = e.block();
        e.cond_br(odometer.starts(e), inside, done);
        e.position(inside);
        let mut digits = odometer.open(e, from);
        e.position(next);
        let (following, is_last) = odometer.step(e, &digits);
        for (digit, following) in digits.iter().zip(following) {
            e.add_incoming(*digit, following, next);
        }
        let back = e.cond_br(is_last, done, inside);
        self.u.metadata.mark_parallel_loop(e, back, l.hints);
        e.position(inside);
        if let Some(tile) = tile {
            let enter = self.new_block(c"in.tile");
            e.cond_br(tile.place(self, &mut digits), enter, next);
            e.position(enter);
        }
        let digits = &digits[..axes.len()];
        match groups {
            None => {
                let linear = self.linear(&axes, digits);
                let indices = axes.iter().zip(digits).map(|(axis, digit)| self.index(axis, *digit)).collect();
                self.iteration(v, l, indices, linear, LoopTargets { on_break: done, on_continue: next });
                if !e.is_terminated() {
                    e.br(next);
                }
            }
            Some(groups) => self.group(v, l, &axes, digits, groups, LoopTargets { on_break: done, on_continue: next }),
        }
        e.position(done);
        self.end_reductions(l);
    }

    /// The number of indices of an axis as an unsigned number of as few bits as it may need.
    fn size(&self, axis: &Axis, has_groups: bool) -> V {
        let e = self.e;
        if axis.scalar.bits() <= 32 || has_groups { e.trunc(axis.trips, e.i32) } else { axis.trips }
    }

    /// The index that a digit represents.
    fn index(&self, axis: &Axis, digit: V) -> Index {
        let e = self.e;
        let far = if e.type_of(digit) == e.i64 { digit } else { e.zext(digit, e.i64) };
        let wide = e.add_nsw(far, axis.begin);
        // Not as the truncated sum: the optimizer would compute with that in 64 bits.
        let narrow = if axis.scalar.bits() == 64 { wide } else { e.add(e.trunc(axis.begin, e.i32), digit) };
        Index { narrow, wide }
    }

    /// The number of an iteration in the order of a serial loop; only random numbers need it.
    fn linear(&self, axes: &[Axis], digits: &[V]) -> V {
        let e = self.e;
        if self.parallel.rng.is_none() {
            return e.i64c(0);
        }
        axes.iter().zip(digits).fold(e.i64c(0), |n, (axis, digit)| {
            let digit = if e.type_of(*digit) == e.i64 { *digit } else { e.zext(*digit, e.i64) };
            e.add_nsw(e.mul_nsw(n, axis.trips), digit)
        })
    }

    /// The neighbors of a group: together if the loop contains all of them, and one by one otherwise.
    fn group(&mut self, v: ValueId, l: &'p ForLoop, axes: &[Axis], digits: &[V], groups: Groups, targets: LoopTargets) {
        let e = self.e;
        let (last, outer) = axes.split_last().expect("compiler bug: adjacent iterations without an axis");
        let (group, outer_digits) = digits.split_last().expect("compiler bug: an axis without a digit");
        let lanes = groups.of.factor;
        let first = e.mul_nsw(*group, e.i32c(i64::from(lanes)));
        let outer: Vec<Index> = outer.iter().zip(outer_digits).map(|(axis, digit)| self.index(axis, *digit)).collect();
        let start = Axis { begin: groups.start, ..*last };
        // Position among the loop's indices; beyond all of them if the group begins before the loop.
        let position = e.sub(first, groups.lead);
        let indices_at = |this: &Self, lane: V| {
            let mut indices = outer.clone();
            indices.push(this.index(&start, e.add_nsw(first, lane)));
            indices
        };

        let together = self.new_block(c"together");
        let apart = (!groups.all_whole).then(|| self.new_block(c"apart"));
        match apart {
            None => e.br(together),
            Some(apart) => {
                let most = e.sub(groups.trips, e.i32c(i64::from(lanes)));
                e.cond_br(e.icmp(IntCmp::LLVMIntULE, position, most), together, apart)
            }
        };
        e.position(together);
        let indices = indices_at(self, e.i32c(0));
        self.iterations((v, l), groups.of.body, indices, e.i64c(0), targets);
        if !e.is_terminated() {
            e.br(targets.on_continue);
        }
        let Some(apart) = apart else { return };
        let (head, one, next) = (self.new_block(c"lane"), self.new_block(c"one"), self.new_block(c"lane.next"));
        e.position(apart);
        e.br(head);
        e.position(head);
        let lane = e.phi(e.i32);
        e.add_incoming(lane, e.i32c(0), apart);
        let is_inside = e.icmp(IntCmp::LLVMIntULT, e.add(position, lane), groups.trips);
        e.cond_br(is_inside, one, next);
        e.position(one);
        let indices = indices_at(self, lane);
        self.iteration(v, l, indices, e.i64c(0), LoopTargets { on_continue: next, ..targets });
        if !e.is_terminated() {
            e.br(next);
        }
        e.position(next);
        let following = e.add_nsw(lane, e.i32c(1));
        e.add_incoming(lane, following, next);
        let is_last = e.icmp(IntCmp::LLVMIntEQ, following, e.i32c(i64::from(lanes)));
        self.u.metadata.mark_rolled_loop(e.cond_br(is_last, targets.on_continue, head));
    }
}

/// The last axis in groups of neighbors that begin at multiples of their number. All numbers but `start` are i32.
struct Groups {
    of: IterationGroup,
    /// Groups in a row of a tile.
    tile_columns: Option<u32>,
    /// Index of the first group's first neighbor, i64.
    start: V,
    /// How many neighbors the first group has before the loop begins.
    lead: V,
    /// Indices of the axis.
    trips: V,
    /// Groups.
    count: V,
    /// No group is cut by the loop's ends.
    all_whole: bool,
}

impl Groups {
    /// The launcher ensured that no number here overflows (`octants_artifact::WideForm`).
    fn of(lowering: &Lowering<'_, '_>, axes: &[Axis], of: IterationGroup) -> Option<Groups> {
        let e = lowering.e;
        let (axis, lanes) = (axes.last()?, of.factor);
        let tile_columns = match of.placement {
            GroupPlacement::Tiled(columns) => Some(columns),
            GroupPlacement::Aligned | GroupPlacement::Consecutive => None,
        };
        let start = e.and(axis.begin, e.i64c(-i64::from(lanes)));
        let lead = e.trunc(e.sub(axis.begin, start), e.i32);
        let trips = e.trunc(axis.trips, e.i32);
        let reach = e.add(e.add(lead, trips), e.i32c(i64::from(lanes) - 1));
        let count = e.lshr(reach, e.i32c(i64::from(lanes.trailing_zeros())));
        let is_whole = |v: V| e.as_int(v).is_some_and(|n| n % i64::from(lanes) == 0);
        let all_whole = is_whole(lead) && is_whole(trips) && tile_columns.is_none();
        Some(Groups { of, tile_columns, start, lead, trips, count, all_whole })
    }
}

/// The last two axes in tiles, one for a block of threads at a time.
struct Tile {
    /// Rows of a tile, i32.
    height: V,
    /// Rows of the axis.
    rows: V,
    /// Threads in a row, i32.
    columns: V,
}

impl Tile {
    /// Converts the numbers of rows and columns to numbers of tiles.
    fn cut(lowering: &Lowering<'_, '_>, sizes: &mut [V], tile_columns: u32) -> Tile {
        let e = lowering.e;
        let [.., rows, columns] = sizes else { panic!("compiler bug: a tile that does not have two axes") };
        let (_, threads) = lowering.u.target.thread_of_block(e);
        let tile_columns = e.i32c(i64::from(tile_columns));
        let height = e.udiv(e.trunc(threads, e.i32), tile_columns);
        let tile = Tile { height, rows: *rows, columns: tile_columns };
        let begun = |n: V, of: V| e.udiv(e.add(n, e.sub(of, e.i32c(1))), of);
        *rows = begun(*rows, height);
        *columns = begun(*columns, tile_columns);
        tile
    }

    /// Converts the digits of a tile to those of this thread in it. Returns whether the loop has this row. An index
    /// beyond the last column is not in the loop either.
    fn place(&self, lowering: &Lowering<'_, '_>, digits: &mut [V]) -> V {
        let e = lowering.e;
        let [.., row, column] = digits else { panic!("compiler bug: a tile that does not have two axes") };
        let own = e.trunc(lowering.u.target.thread_of_block(e).0, e.i32);
        let columns = self.columns;
        *row = e.add_nsw(e.mul_nsw(*row, self.height), e.udiv(own, columns));
        *column = e.add_nsw(e.mul_nsw(*column, columns), e.urem(own, columns));
        e.icmp(IntCmp::LLVMIntULT, *row, self.rows)
    }
}
