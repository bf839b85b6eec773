//! [`coarsen_threads`]: in the coarsened variant of a task, each thread runs groups of adjacent iterations of the last
//! axis, so that their loads and stores merge into vector accesses.
//!
//! `find_coarsening` decides. Groups begin at multiples of the factor, where arrays are aligned. In tiles, the threads
//! of a block cover several rows of a range of columns, so that elements shared by these rows come from the cache.

use std::collections::HashMap;

use octants_ir::schedule::Role;
use octants_ir::{Body, GroupPlacement, Op, Scheduled, ValueId};

use crate::find_coarsening::TILE_COLUMNS;
use crate::iteration_groups::add_groups;

/// Gives the parallel loops of coarsened variants groups of iterations.
pub(crate) fn coarsen_threads(scheduled: &mut Scheduled) {
    for found in &mut scheduled.schedule.tasks {
        let Some(coarsening) = found.forms.coarsening else { continue };
        let placement = if coarsening.tiles { GroupPlacement::Tiled(TILE_COLUMNS) } else { GroupPlacement::Aligned };
        for variant in found.variants.iter_mut().filter(|v| v.role == Role::Coarse) {
            for loop_id in parallel_loops(&variant.body) {
                add_groups(variant, loop_id, std::iter::once(coarsening.factor), placement, &HashMap::new());
            }
        }
    }
}

/// The parallel loops of a body: one for each way in which the task may run.
fn parallel_loops(body: &Body) -> Vec<ValueId> {
    let mut found = Vec::new();
    body.visit(body.root, &mut |v, inst| {
        found.extend(matches!(&inst.op, Op::For(l) if l.parallel.is_some()).then_some(v));
    });
    found
}
