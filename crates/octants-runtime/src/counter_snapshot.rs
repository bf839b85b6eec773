//! [`CounterSnapshot`]: the loop counters of a kernel at the start of a launch.
//!
//! A data-dependent loop leaves its counters at their final values. The gradient of the launch runs the same rounds,
//! so it must start from the initial values. After the gradient, the counters have their present values again.

use crate::buffer::Buffer;
use crate::caller::Caller;
use crate::driver::Contents;
use crate::error::{ErrorKind, Result};
use crate::kernel::LoadedKernel;
use crate::stream::Stream;

/// Copies of counters.
#[derive(Default)]
pub struct CounterSnapshot(Vec<SavedCounter>);

struct SavedCounter {
    buffer: Buffer,
    offset: u64,
    bytes: u64,
    copy: Buffer,
}

impl CounterSnapshot {
    /// The counters of a launch that is about to be made on a stream.
    ///
    /// # Errors
    /// The driver's; that a counter is not in memory of the device.
    pub fn of(stream: &Stream, kernel: &LoadedKernel, args: &[u64], caller: &dyn Caller) -> Result<CounterSnapshot> {
        let device = &stream.core().device;
        let mut kept = Vec::with_capacity(kernel.meta.counters.len());
        for counter in &kernel.meta.counters {
            let address = counter.address(args, 0).unwrap_or(0);
            let Some(core) = device.find_buffer(address) else {
                let message = format!(
                    "the gradient of kernel `{}` needs the initial counters of its loops, which are saved only for \
                     fields and ndarrays: pass one of these instead of another library's array",
                    kernel.meta.name
                );
                return Err(ErrorKind::Misuse { message }.into());
            };
            let (offset, bytes) = (address - core.address(), u64::from(counter.kind.bytes()));
            let (buffer, copy) = (Buffer::of(core), Buffer::allocate(device, bytes, Contents::Any)?);
            stream.copy(&copy, 0, &buffer, offset, bytes, caller)?;
            kept.push(SavedCounter { buffer, offset, bytes, copy });
        }
        Ok(CounterSnapshot(kept))
    }

    /// Queues work on a stream that finds the counters as they were.
    ///
    /// # Errors
    /// The driver's, and those of the work.
    pub fn restored<T, E: From<crate::DeviceError>>(
        &self,
        stream: &Stream,
        caller: &dyn Caller,
        work: impl FnOnce() -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let mut now = Vec::with_capacity(self.0.len());
        for SavedCounter { buffer, offset, bytes, copy } in &self.0 {
            let aside = Buffer::allocate(&stream.core().device, *bytes, Contents::Any)?;
            stream.copy(&aside, 0, buffer, *offset, *bytes, caller)?;
            stream.copy(buffer, *offset, copy, 0, *bytes, caller)?;
            now.push(aside);
        }
        let result = work();
        for (SavedCounter { buffer, offset, bytes, .. }, aside) in self.0.iter().zip(&now) {
            stream.copy(buffer, *offset, aside, 0, *bytes, caller)?;
        }
        result
    }

    /// The counters' memory.
    pub(crate) fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        self.0.iter().map(|kept| &kept.buffer)
    }
}
