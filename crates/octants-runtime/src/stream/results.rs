//! [`Results`]: what a launch returns.

use crate::driver::DevicePtr;
use crate::kernel::LoadedKernel;

/// Result slots kept without an allocation.
const INLINE_RESULTS: usize = 4;

/// Scalars that a launch returned, one 8-byte slot each, in the order of [`crate::KernelMeta::result`]; the value is in
/// the low bytes, the rest is unspecified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Results {
    len: usize,
    inline: [u64; INLINE_RESULTS],
    spilled: Vec<u64>,
}

impl Results {
    /// # Safety
    /// `from` points to `len` slots.
    unsafe fn read(from: DevicePtr, len: usize) -> Results {
        // SAFETY: by the contract above.
        let slots = unsafe { std::slice::from_raw_parts(from.0 as *const u64, len) };
        let mut results = Results { len, inline: [0; INLINE_RESULTS], spilled: Vec::new() };
        match results.inline.get_mut(..len) {
            Some(inline) => inline.copy_from_slice(slots),
            None => results.spilled = slots.to_vec(),
        }
        results
    }

    /// The slots.
    pub fn slots(&self) -> &[u64] {
        self.inline.get(..self.len).unwrap_or(&self.spilled)
    }
}

/// # Safety
/// `slots` has room for the kernel's results, and the work that writes them is done.
#[inline]
pub(super) unsafe fn results(kernel: &LoadedKernel, slots: DevicePtr) -> Option<Results> {
    let count = kernel.meta.result.len();
    // SAFETY: the contract above.
    (count > 0).then(|| unsafe { Results::read(slots, count) })
}
