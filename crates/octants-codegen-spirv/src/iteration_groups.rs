//! Iteration groups of a grid-stride loop: adjacent iterations of the last axis, which begin at multiples of the
//! factor and run in one thread. The iterations of an incomplete group run one by one. Tiled groups are distributed to
//! blocks in tiles.
//!
//! The launcher has checked that no number here overflows (`octants_artifact::WideForm`). Groups contain no control
//! flow.

use octants_ir::{ForLoop, GroupPlacement, IterationGroup, ValueId};

use crate::emit::{Emitter, Id};
use crate::lowering::{Axis, Index, LoopTargets, Lowering};

/// The last axis in groups of neighbors that begin at multiples of their number. All numbers but `start` are u32.
pub(crate) struct Groups {
    of: IterationGroup,
    /// Groups in a row of a tile.
    pub tile_columns: Option<u32>,
    /// Index of the first group's first neighbor, 64 bits.
    start: Id,
    /// How many neighbors the first group has before the loop begins.
    lead: Id,
    /// Indices of the axis.
    trips: Id,
    /// Groups.
    pub count: Id,
    /// No group is cut by the loop's ends.
    all_whole: bool,
}

impl Groups {
    /// The groups of a loop with these axes, if it has any.
    pub fn of(e: &Emitter, axes: &[Axis], of: IterationGroup) -> Option<Groups> {
        let (axis, lanes) = (axes.last()?, of.factor);
        let tile_columns = match of.placement {
            GroupPlacement::Tiled(columns) => Some(columns),
            GroupPlacement::Aligned | GroupPlacement::Consecutive => None,
        };
        let start = e.and(axis.begin, e.int(64, -i64::from(lanes)));
        let lead = e.trunc(e.sub(axis.begin, start), 32);
        let trips = e.trunc(axis.trips, 32);
        let reach = e.add(e.add(lead, trips), e.u32c(lanes - 1));
        let count = e.udiv(reach, e.u32c(lanes));
        let is_whole = |v: Id| e.as_bits(v).is_some_and(|n| n.is_multiple_of(u64::from(lanes)));
        let all_whole = is_whole(lead) && is_whole(trips) && tile_columns.is_none();
        Some(Groups { of, tile_columns, start, lead, trips, count, all_whole })
    }

    /// Position of a group's first neighbor among the loop's indices; beyond all of them if it is before the loop.
    fn position(&self, e: &Emitter, group: Id) -> Id {
        e.sub(e.mul(group, e.u32c(self.of.factor)), self.lead)
    }

    /// Whether the loop contains all neighbors of a group; `None` if it always does.
    pub fn is_whole(&self, e: &Emitter, group: Id) -> Option<Id> {
        // The launcher ensures that a row has at least a group.
        let most = e.sub(self.trips, e.u32c(self.of.factor));
        (!self.all_whole).then(|| e.ule(self.position(e, group), most))
    }
}

/// The last two axes in tiles, one for a block of threads at a time. All numbers are u32.
pub(crate) struct Tile {
    /// Rows of a tile.
    height: Id,
    /// Rows of the axis.
    rows: Id,
    /// Threads in a row.
    columns: Id,
}

impl Tile {
    /// Converts the numbers of rows and columns to numbers of tiles.
    pub fn cut(lowering: &Lowering<'_, '_>, sizes: &mut [Id], tile_columns: u32) -> Tile {
        let e = lowering.e;
        let [.., rows, columns] = sizes else { panic!("compiler bug: a tile that does not have two axes") };
        let tile_columns = e.u32c(tile_columns);
        let height = e.udiv(lowering.u.block_size, tile_columns);
        let tile = Tile { height, rows: *rows, columns: tile_columns };
        let begun = |n: Id, of: Id| e.udiv(e.add(n, e.sub(of, e.u32c(1))), of);
        *rows = begun(*rows, height);
        *columns = begun(*columns, tile_columns);
        tile
    }

    /// Converts the digits of a tile to those of this thread in it. Returns whether the loop has this row. An index
    /// beyond the last column is not in the loop either.
    pub fn place(&self, lowering: &Lowering<'_, '_>, digits: &mut [Id]) -> Id {
        let e = lowering.e;
        let [.., row, column] = digits else { panic!("compiler bug: a tile that does not have two axes") };
        let own = lowering.thread();
        *row = e.add(e.mul(*row, self.height), e.udiv(own, self.columns));
        *column = e.add(e.mul(*column, self.columns), e.umod(own, self.columns));
        e.ult(*row, self.rows)
    }
}

impl<'p> Lowering<'_, 'p> {
    /// The neighbors of a group: together if the loop contains all of them, and one by one otherwise.
    pub fn group(
        &mut self,
        (v, l): (ValueId, &'p ForLoop),
        axes: &[Axis],
        digits: &[Id],
        groups: &Groups,
        targets: LoopTargets,
    ) {
        let (e, lanes) = (self.e, groups.of.factor);
        let group = *digits.last().expect("compiler bug: an axis without a digit");
        let selection = groups.is_whole(e, group).map(|is_whole| e.begin_if(is_whole, true));
        self.whole_group(v, axes, digits, groups, targets);
        let Some(mut selection) = selection else { return };
        e.begin_else(&mut selection);
        let position = groups.position(e, group);
        let (lane_loop, counters) = e.begin_loop(&[e.u32c(0)]);
        let lane = counters[0];
        e.loop_while(&lane_loop, e.ult(lane, e.u32c(lanes)));
        self.open(&lane_loop);
        let is_inside = e.begin_if(e.ult(e.add(position, lane), groups.trips), false);
        let indices = self.neighbor(axes, digits, groups, lane);
        let one = LoopTargets { on_break: lane_loop.done, on_continue: lane_loop.next, is_left: None };
        self.iteration(v, l.body, indices, e.u64c(0), one);
        e.end_if(is_inside);
        self.loops.pop();
        e.end_body(&lane_loop);
        e.end_loop(&lane_loop, &[e.add(lane, e.u32c(1))]);
        e.end_if(selection);
    }

    /// The neighbors of a group that the loop contains, together.
    pub fn whole_group(&mut self, v: ValueId, axes: &[Axis], digits: &[Id], groups: &Groups, targets: LoopTargets) {
        let indices = self.neighbor(axes, digits, groups, self.e.u32c(0));
        self.iteration(v, groups.of.body, indices, self.e.u64c(0), targets);
    }

    /// The indices of a neighbor in a group.
    fn neighbor(&self, axes: &[Axis], digits: &[Id], groups: &Groups, lane: Id) -> Vec<Index> {
        let e = self.e;
        let (last, outer) = axes.split_last().expect("compiler bug: adjacent iterations without an axis");
        let (group, outer_digits) = digits.split_last().expect("compiler bug: an axis without a digit");
        let mut indices: Vec<Index> =
            outer.iter().zip(outer_digits).map(|(axis, digit)| self.index(axis, *digit)).collect();
        let start = Axis { begin: groups.start, ..*last };
        let first = e.mul(*group, e.u32c(groups.of.factor));
        indices.push(self.index(&start, e.add(first, lane)));
        indices
    }
}
