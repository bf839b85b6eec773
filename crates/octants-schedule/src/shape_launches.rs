//! [`shape_launches`]: on a machine with a grid, the threads of a grid execute a parallel task and share the iterations
//! of its loops. On other machines, a call runs a range of iterations.
//!
//! The launcher chooses the number of blocks, and the driver their size unless the program does. A serialized loop runs
//! on a block of one thread.

use octants_ir::schedule::LaunchShape;
use octants_ir::{Scheduled, TaskKind};

/// Gives all variants of parallel tasks the shape of a grid.
pub(crate) fn shape_launches(scheduled: &mut Scheduled) {
    for (task, found) in scheduled.program.tasks.iter().zip(&mut scheduled.schedule.tasks) {
        let (TaskKind::Parallel(config) | TaskKind::Grid(config)) = &task.kind else { continue };
        let block_size = if config.serialize { Some(1) } else { config.block_dim };
        found.variants.iter_mut().for_each(|variant| variant.shape = LaunchShape::Grid { block_size });
    }
}
