//! The order of launches: whether some may run while others do.
//!
//! Until a program infers concurrency, or uses another library's streams, or has streams that update the same memory,
//! code may update memory without atomics where only another launch could interfere.

use std::sync::atomic::Ordering;

use super::Device;
use crate::error::Result;
use crate::nesting;

impl Device {
    /// Whether launches may run while others do that update the same memory: code that assumes their order should not
    /// be launched any more. See [`assumes_order`](crate::LoadedKernel::assumes_order).
    #[inline]
    pub fn is_unordered(&self) -> bool {
        self.0.core.mode().is_unordered() || !nesting::is_plain()
    }

    /// From now on, launches may run while others do. Returns whether code that assumes their order was launched: wait
    /// for it with [`Device::wait_for_ordered`].
    pub fn end_order(&self) -> bool {
        let core = &self.0.core;
        if core.immediate || core.mode().is_unordered() {
            return false;
        }
        core.set_unordered();
        core.assumed_order.load(Ordering::Acquire)
    }

    /// Call this before the device gets another stream. Returns whether a launch is being queued that does not expect
    /// that: wait for it with [`Device::wait_for_ordered`].
    pub fn admit_streams(&self) -> bool {
        let core = &self.0.core;
        !core.immediate && core.admit_streams(self.0.default.core())
    }

    /// Waits until no launch is being queued, and for the work of all streams, without reporting its failures.
    pub fn wait_for_ordered(&self) -> Result<()> {
        self.0.core.wait_for_ordered()
    }

    /// Does both before the device gets another stream.
    pub(super) fn admit_another(&self) -> Result<()> {
        if self.admit_streams() { self.wait_for_ordered() } else { Ok(()) }
    }

    /// Ends the order of launches before another library's stream is used, whose work may be part of a graph.
    pub(super) fn leave_order(&self) -> Result<()> {
        self.admit_another()?;
        if self.end_order() { self.wait_for_ordered() } else { Ok(()) }
    }
}
