//! [`Scheduling`]: what the passes of a schedule share.

use octants_ir::schedule::ScheduleOptions;
use octants_ir::{PassState, TargetInfo};

/// What the passes of [`PASSES`](crate::PASSES) share.
#[derive(Debug, Clone, Copy)]
pub struct Scheduling {
    /// The machine.
    pub target: TargetInfo,
    /// What is asked of the schedule.
    pub options: ScheduleOptions,
}

impl PassState for Scheduling {}
