//! [`LaunchRequest`]: the information about a launch that its caller requests.

use std::cell::OnceCell;

use octants_engine::ir::AutodiffMode;
use octants_engine::runtime::{self, CounterSnapshot};

use crate::argument::Follows;

/// The options of a launch.
#[derive(Default)]
pub(super) struct LaunchRequest<'a> {
    pub(super) mode: AutodiffMode,
    /// Recorded values of the numbers that objects hold; `None` to read them.
    pub(super) numbers: Option<&'a [u64]>,
    /// The default stream for `None`.
    pub(super) stream: Option<&'a runtime::Stream>,
    /// The forward launches, if it is a gradient's launch.
    pub(super) follows: Option<Follows>,
    /// Receives the kernel's loop counters before the launch.
    pub(super) counters: Option<&'a OnceCell<CounterSnapshot>>,
}
