//! [`Scheduling`]: the shared state of the scheduling passes.

use octants_ir::schedule::ScheduleOptions;
use octants_ir::{PassState, TargetInfo};

/// The shared state of the passes in [`PASSES`](crate::PASSES).
#[derive(Debug, Clone, Copy)]
pub struct Scheduling {
    /// The machine.
    pub target: TargetInfo,
    /// The options of the schedule.
    pub options: ScheduleOptions,
}

impl PassState for Scheduling {}
