//! [`CounterSnapshot`]: the loop counters of a kernel at the start of a launch, and the trip counts that it records.
//!
//! A data-dependent loop leaves its counters at their final values. The gradient of the launch runs the same rounds,
//! so it must start from the initial values. After the gradient, the counters have their present values again.

use std::sync::Arc;

use crate::buffer::Buffer;
use crate::caller::Caller;
use crate::capture::{Capture, Work};
use crate::driver::Contents;
use crate::error::{ErrorKind, Result};
use crate::kernel::LoadedKernel;
use crate::stream::Stream;

/// Copies of counters, and recorded trip counts.
#[derive(Default)]
pub struct CounterSnapshot {
    saved: Vec<SavedCounter>,
    trips: Option<Buffer>,
}

/// The loop counters of a launch that an update exchanges.
pub enum ExchangedCounters {
    /// Those that the graph saves: of the launch before, and of the new one, which become those that are saved now.
    Saved {
        /// Of the launch before.
        before: Arc<CounterSnapshot>,
        /// Of the new launch.
        now: Arc<CounterSnapshot>,
    },
    /// Those that the graph restores for a gradient.
    Restored(Arc<CounterSnapshot>),
}

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
            Capture::note_own_here(&copy)?;
            stream.copy(&copy, 0, &buffer, offset, bytes, caller)?;
            kept.push(SavedCounter { buffer, offset, bytes, copy });
        }
        Ok(CounterSnapshot { saved: kept, trips: None })
    }

    /// Adds the memory in which the launch records trip counts.
    ///
    /// # Errors
    /// The capture of this thread has ended.
    pub fn with_trips(self, trips: Option<Buffer>) -> Result<CounterSnapshot> {
        trips.iter().try_for_each(Capture::note_own_here)?;
        Ok(CounterSnapshot { trips, ..self })
    }

    /// Trip counts alone.
    pub fn of_trips(trips: Buffer) -> CounterSnapshot {
        CounterSnapshot { saved: Vec::new(), trips: Some(trips) }
    }

    /// The memory with the launch's trip counts, if it records them.
    pub fn trips(&self) -> Option<&Buffer> {
        self.trips.as_ref()
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
        let mut now = Vec::with_capacity(self.saved.len());
        for SavedCounter { buffer, offset, bytes, copy } in &self.saved {
            let aside = Buffer::allocate(&stream.core().device, *bytes, Contents::Any)?;
            Capture::note_own_here(&aside)?;
            stream.copy(&aside, 0, buffer, *offset, *bytes, caller)?;
            stream.copy(buffer, *offset, copy, 0, *bytes, caller)?;
            now.push(aside);
        }
        let result = work();
        for (SavedCounter { buffer, offset, bytes, .. }, aside) in self.saved.iter().zip(&now) {
            stream.copy(buffer, *offset, aside, 0, *bytes, caller)?;
        }
        result
    }

    /// Whether there is nothing to restore.
    pub fn is_empty(&self) -> bool {
        self.saved.is_empty() && self.trips.is_none()
    }

    /// These counters, saved where `before` saved its own. `None` unless there are as many, of the same sizes.
    pub(crate) fn saved_in_place_of(&self, before: &CounterSnapshot) -> Option<CounterSnapshot> {
        let sizes = |of: &CounterSnapshot| of.saved.iter().map(|kept| kept.bytes).collect::<Vec<_>>();
        let kept = |(now, old): (&SavedCounter, &SavedCounter)| SavedCounter {
            buffer: now.buffer.clone(),
            offset: now.offset,
            bytes: now.bytes,
            copy: old.copy.clone(),
        };
        (sizes(self) == sizes(before)).then(|| CounterSnapshot {
            saved: self.saved.iter().zip(&before.saved).map(kept).collect(),
            trips: self.trips.clone(),
        })
    }

    /// The copy of each counter, and the memory and offset of the counter itself.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&Buffer, &Buffer, u64)> {
        self.saved.iter().map(|kept| (&kept.copy, &kept.buffer, kept.offset))
    }

    /// Refuses to exchange a gradient, which restores these counters, for one of other counters.
    pub(crate) fn check_same(&self, old: &Work, new: &Work) -> Result<()> {
        let (old, (kernel, new)) = match (old, new) {
            (Work::Launch(old), Work::Launch(new)) => (&old.args, (&new.kernel, &new.args)),
            (Work::Host(old), Work::Host(new)) => match (&old.launch, &new.launch) {
                (Some((_, old)), Some((kernel, new))) => (old, (kernel, new)),
                _ => return Ok(()),
            },
            _ => return Ok(()),
        };
        for SavedCounter { buffer, offset, .. } in &self.saved {
            let address = buffer.at(*offset, 0)?.0;
            let is_same = old.len() == new.len() && old.iter().zip(new.iter()).all(|(a, b)| *a != address || a == b);
            if !is_same {
                let message = format!(
                    "the update replaces a loop counter of kernel `{}`, but the gradient graph restores the one \
                     before: update the graph, then call its `grad()` again",
                    kernel.meta.name
                );
                return Err(ErrorKind::Misuse { message }.into());
            }
        }
        Ok(())
    }

    /// The counters' memory.
    pub(crate) fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        self.saved.iter().map(|kept| &kept.buffer)
    }
}
