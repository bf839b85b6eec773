//! [`narrow_barriers`]: if a block has at most as many threads as a subgroup, it is one subgroup. A subgroup barrier is
//! then sufficient, and costs less than a block barrier.
//!
//! Barriers in functions are unchanged, because tasks with other block sizes may call them.

use octants_ir::schedule::LaunchShape;
use octants_ir::{Op, Scheduled, ThreadScope};

use crate::scheduling::Scheduling;

/// Replaces block barriers by subgroup barriers if the block is one full subgroup.
pub(crate) fn narrow_barriers(scheduled: &mut Scheduled, s: &Scheduling) {
    let one_subgroup = LaunchShape::Grid { block_size: Some(s.target.subgroup_size) };
    for variant in scheduled.schedule.tasks.iter_mut().flat_map(|t| &mut t.variants) {
        if variant.shape != one_subgroup {
            continue;
        }
        for inst in &mut variant.body.insts {
            if matches!(inst.op, Op::Barrier(ThreadScope::Block)) {
                inst.op = Op::Barrier(ThreadScope::Subgroup);
            }
        }
    }
}
