//! The order of launches: whether some may run while others do.
//!
//! Until a program has streams besides the default one, or infers concurrency, launches run one after another. Code may
//! then update memory without atomics where only another launch could interfere.

use std::sync::atomic::Ordering;

use super::Device;
use crate::error::Result;
use crate::nesting;

impl Device {
    /// Whether launches may run while others do: code that assumes their order cannot be launched now. See
    /// [`assumes_order`](crate::LoadedKernel::assumes_order).
    #[inline]
    pub fn is_unordered(&self) -> bool {
        self.0.core.mode().is_unordered() || !nesting::is_plain()
    }

    /// From now on, launches may run while others do. Returns whether code that assumes their order was launched: wait
    /// for it with [`Device::wait_for_ordered`] before other streams get work.
    pub fn end_order(&self) -> bool {
        let core = &self.0.core;
        if core.immediate || core.mode().is_unordered() {
            return false;
        }
        core.set_unordered();
        core.assumed_order.load(Ordering::Acquire)
    }

    /// Does both before the device gets another stream.
    pub(super) fn leave_order(&self) -> Result<()> {
        if self.end_order() { self.wait_for_ordered() } else { Ok(()) }
    }

    /// Waits for the work of the default stream, without reporting its failures.
    pub fn wait_for_ordered(&self) -> Result<()> {
        let (core, default) = (&self.0.core, self.0.default.core());
        // SAFETY: the default stream is alive.
        unsafe { core.driver.synchronize(default.handle) }
    }
}
