//! Copies and fills of memory that is given by its address, in stream order: parts of arrays that ranks combine.

use super::Stream;
use crate::caller::Caller;
use crate::driver::DevicePtr;
use crate::error::Result;
use crate::nesting::refuse_while_capturing;
use crate::pattern::Pattern;

impl Stream {
    /// Sets memory to copies of an element, after the work queued so far. Returns when that is queued; a device without
    /// a call for this element waits.
    ///
    /// # Safety
    /// The range is the device's memory, and stays alive until the work is done.
    pub unsafe fn fill_at(&self, address: u64, element: &[u8], count: u64, caller: &dyn Caller) -> Result<()> {
        let core = self.core();
        core.device.check_open("stream")?;
        refuse_while_capturing("memory given by its address cannot be filled")?;
        let (at, bytes) = (DevicePtr(address), element.len() as u64 * count);
        if let Some(pattern) = Pattern::of(element).filter(|p| address.is_multiple_of(p.bytes())) {
            // SAFETY: the contract above.
            let filled = core.in_order(caller, || unsafe { core.device.driver.fill(core.handle, at, pattern, bytes) });
            if filled? {
                return core.mark_work();
            }
        }
        // SAFETY: the contract above.
        unsafe { self.write_at(address, &element.repeat(count as usize), caller) }
    }

    /// Copies memory to the host, after the work queued so far, and waits until that is done.
    ///
    /// # Safety
    /// As [`Stream::fill_at`].
    pub unsafe fn read_at(&self, address: u64, to: &mut [u8], caller: &dyn Caller) -> Result<()> {
        let core = self.core();
        core.device.check_open("stream")?;
        refuse_while_capturing("the host cannot read memory")?;
        core.in_order(caller, || {
            let (from, bytes) = (DevicePtr(address), to.len() as u64);
            // SAFETY: the contract above, and `to` outlives the wait.
            unsafe {
                core.device.driver.copy_to_host(core.handle, to.as_mut_ptr(), from, bytes)?;
                core.wait(caller)
            }
        })
    }

    /// Copies memory from the host, after the work queued so far, and waits until that is done.
    ///
    /// # Safety
    /// As [`Stream::fill_at`].
    pub unsafe fn write_at(&self, address: u64, from: &[u8], caller: &dyn Caller) -> Result<()> {
        let core = self.core();
        core.device.check_open("stream")?;
        refuse_while_capturing("memory given by its address cannot be written")?;
        core.in_order(caller, || {
            // SAFETY: the contract above, and `from` outlives the wait.
            unsafe {
                core.device.driver.copy_to_device(core.handle, DevicePtr(address), from.as_ptr(), from.len() as u64)?;
                core.wait(caller)
            }
        })
    }
}
