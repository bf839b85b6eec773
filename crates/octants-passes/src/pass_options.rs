//! The options of the kernel pipeline.

use std::collections::BTreeSet;

use octants_diag::Sources;
use octants_ir::PassState;

use crate::race_watch::RaceWatch;

/// The options of the pipeline.
#[derive(Debug, Clone, Default)]
pub struct PassOptions {
    /// Check indices at run time.
    pub check_bounds: bool,
    /// Report integer overflow at run time.
    pub debug: bool,
    /// Floats may be reassociated, contracted, and assumed finite.
    pub fast_math: bool,
    /// Two array arguments may be the same memory.
    pub arrays_may_alias: bool,
    /// No launch runs while another one does.
    pub launches_in_order: bool,
    /// The code is wrong if another launch runs while it does: set by the pass.
    pub assumes_order: bool,
    /// Merges aliased buffers, for callers that need access sets.
    pub merges_aliased_buffers: bool,
    /// Functions in which threads cooperate are inlined.
    pub inlines_cooperation: bool,
    /// Minimum number of elements for which scattered gradient sums are gathered instead.
    pub gather: Option<u32>,
    /// Watch accesses at run time that two iterations may conflict in.
    pub check_races: bool,
    /// Bytes of memory that the threads of a block may share in a kernel that is watched.
    pub shared_bytes: u64,
    /// Groups whose accesses may overlap those of others: by their numbers.
    pub overlap_allowed: BTreeSet<u32>,
    /// The additional arguments of a launch: made by the pass.
    pub watch: Option<RaceWatch>,
    /// The user's files, for lines quoted in run-time messages.
    pub sources: Option<Sources>,
}

impl PassState for PassOptions {}
