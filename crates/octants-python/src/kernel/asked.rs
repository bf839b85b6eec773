//! [`Asked`]: what the caller of a launch requests when it must know what was launched.

use std::cell::OnceCell;

use octants_engine::ir::AutodiffMode;
use octants_engine::runtime::{self, KeptCounters};

use crate::argument::Follows;

/// What is asked of a launch beside its arguments.
#[derive(Default)]
pub(super) struct Asked<'a> {
    pub(super) mode: AutodiffMode,
    /// What numbers that objects hold are taken to be; `None` to read them.
    pub(super) numbers: Option<&'a [u64]>,
    /// The default stream for `None`.
    pub(super) stream: Option<&'a runtime::Stream>,
    /// What it follows, if it is of a gradient.
    pub(super) follows: Option<Follows>,
    /// Takes what the counters of the kernel's loops are before the launch.
    pub(super) counters: Option<&'a OnceCell<KeptCounters>>,
}
