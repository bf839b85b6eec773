//! [`narrow_barriers`]: a block of no more threads than a subgroup is one subgroup, whose barrier costs less than that
//! of a block. Both order what the threads read and write.
//!
//! Barriers in functions stay: tasks with blocks of other sizes may call them.

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
