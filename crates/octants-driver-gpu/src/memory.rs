//! [`Memory`]: device memory, allocated and freed in stream order.
//!
//! If the device supports it, memory comes from a private pool, whose allocations and frees are stream operations. No
//! call waits, and memory freed on one stream is reused on another only once it is free. The pool belongs to this
//! program, and is released when it ends. Otherwise memory comes from plain calls, and a free is deferred until an
//! event after the stream's work has completed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use octants_runtime::{Contents, DeviceError, DevicePtr, ErrorKind, Pattern, Result};

use crate::context::{Context, Entered};
use crate::symbols::{RawDevice, RawEvent, RawPool, RawStream, code, number};

/// Maximum cached share (1/n) of the device's memory.
const KEPT_PART: u64 = 8;

/// Allocation granularity. Code may read past the last element: a narrow atomic operation accesses the word around its
/// element, and a load of three words may fetch four.
const GRANULE: u64 = 16;

/// A device's memory.
#[derive(Debug)]
pub struct Memory {
    pool: Option<RawPool>,
    /// The stream that allocates and zeroes memory for all streams. It has no other work, so waiting for it is short.
    setup: RawStream,
    kept_frees: Mutex<Vec<KeptFree>>,
    /// Devices that the pool has been offered to; those that can reach it have access.
    shared_with: Mutex<Vec<RawDevice>>,
}

// SAFETY: handles are values; the library may be called from any thread.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// A deferred free, to be made once the event is done.
#[derive(Debug)]
struct KeptFree {
    event: RawEvent,
    at: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memory {
    /// The memory of a context's device. Caches up to `keep` bytes of freed memory.
    pub fn new(context: &Context, keep: Option<u64>) -> Result<Memory> {
        let calls = context.enter_aside()?;
        let supported = context.library().device_attribute(context.device, context.facts().pools);
        let keep = keep.unwrap_or(context.memory / KEPT_PART);
        // SAFETY: the context is entered.
        unsafe {
            let pools = context.library().has_pools() && supported.is_ok_and(|yes| yes != 0);
            let pool = if pools { Some(calls.create_pool(context.device, keep)?) } else { None };
            let setup = calls.create_stream(number::STREAM_NON_BLOCKING, 0)?;
            // A pool's first allocation takes the driver some milliseconds, which belong to the program's start.
            // Failures here recur at the next allocation.
            if let Some(first) = pool.and_then(|pool| calls.allocate_on(pool, 1, setup).ok()) {
                let _ = calls.free_on(first, setup);
            }
            Ok(Memory { pool, setup, kept_frees: Mutex::default(), shared_with: Mutex::default() })
        }
    }

    /// The same without a pool, as on devices that have none.
    pub fn without_pool(context: &Context) -> Result<Memory> {
        // SAFETY: the context is entered.
        let setup = unsafe { context.enter_aside()?.create_stream(number::STREAM_NON_BLOCKING, 0)? };
        Ok(Memory { pool: None, setup, kept_frees: Mutex::default(), shared_with: Mutex::default() })
    }

    /// Lets another device access this memory directly, if possible. Otherwise the driver copies through the host.
    pub fn share_with(&self, context: &Context, device: RawDevice) -> Result<()> {
        let Some(pool) = self.pool.filter(|_| context.library().shares_pools()) else { return Ok(()) };
        let mut shared_with = lock(&self.shared_with);
        if !shared_with.contains(&device) {
            // SAFETY: the pool is this memory's. An error means that the device cannot reach it.
            let _ = unsafe { context.enter_aside()?.share_pool(pool, device) };
            shared_with.push(device);
        }
        Ok(())
    }

    /// As [`octants_runtime::Driver::allocate`].
    ///
    /// # Safety
    /// The stream is alive.
    pub unsafe fn allocate(
        &self,
        context: &Context,
        stream: Option<RawStream>,
        bytes: u64,
        contents: Contents,
    ) -> Result<DevicePtr> {
        let bytes = bytes.checked_next_multiple_of(GRANULE).unwrap_or(bytes);
        let calls = context.enter_aside()?;
        let on = stream.unwrap_or(self.setup);
        // SAFETY: the contract above; the context is entered.
        unsafe {
            let at = match self.try_allocate(&calls, on, bytes) {
                Err(e) if is_out_of_memory(&e) => {
                    self.make_room(&calls);
                    self.try_allocate(&calls, on, bytes).map_err(|e| explain(&calls, context, bytes, e))?
                }
                other => other?,
            };
            let mut ready = Ok(());
            if contents != Contents::Any {
                ready = calls.fill(at, Pattern::Byte(0), bytes, on);
            }
            if stream.is_none() {
                ready = ready.and_then(|()| calls.synchronize_stream(on));
            }
            if let Err(e) = ready {
                self.free_entered(&calls, on, at);
                return Err(e);
            }
            Ok(DevicePtr(at))
        }
    }

    /// As [`octants_runtime::Driver::free`].
    ///
    /// # Safety
    /// The memory came from [`Memory::allocate`], and the stream is alive.
    pub unsafe fn free(&self, context: &Context, stream: RawStream, memory: DevicePtr) {
        if let Some(calls) = context.enter_to_free() {
            // SAFETY: the contract above.
            unsafe { self.free_entered(&calls, stream, memory.0) }
        }
    }

    unsafe fn try_allocate(&self, calls: &Entered<'_>, stream: RawStream, bytes: u64) -> Result<u64> {
        // SAFETY: the callers' contract.
        unsafe {
            match self.pool {
                Some(pool) => calls.allocate_on(pool, bytes, stream),
                None => {
                    self.make_frees(calls, false);
                    calls.allocate(bytes)
                }
            }
        }
    }

    unsafe fn free_entered(&self, calls: &Entered<'_>, stream: RawStream, at: u64) {
        // SAFETY: the callers' contract. Errors leave the memory to the end of the process: nothing more can be done
        // about it.
        unsafe {
            if self.pool.is_some() {
                let _ = calls.free_on(at, stream);
                return;
            }
            let recorded = calls.create_event(false).and_then(|event| {
                let recorded = calls.record_event(event, stream).map(|()| event);
                recorded.inspect_err(|_| drop(calls.destroy_event(event)))
            });
            match recorded {
                Ok(event) => lock(&self.kept_frees).push(KeptFree { event, at }),
                Err(_) => {
                    let _ = calls.synchronize_stream(stream);
                    let _ = calls.free(at);
                }
            }
        }
    }

    /// Executes the deferred frees whose events have completed, or, with `wait`, all of them.
    unsafe fn make_frees(&self, calls: &Entered<'_>, wait: bool) {
        let mut kept = lock(&self.kept_frees);
        // SAFETY: the events and the memory are the entries' own.
        kept.retain(|free| unsafe {
            let done = if wait {
                calls.synchronize_event(free.event).is_ok()
            } else {
                calls.query_event(free.event).unwrap_or(true)
            };
            if done || wait {
                let _ = calls.destroy_event(free.event);
                let _ = calls.free(free.at);
            }
            !(done || wait)
        });
    }

    /// Waits for all queued frees, so that their memory is available.
    unsafe fn make_room(&self, calls: &Entered<'_>) {
        // SAFETY: the context is entered. A failure appears when the memory is requested.
        unsafe {
            match self.pool {
                Some(pool) => drop(calls.synchronize_all().and_then(|()| calls.trim_pool(pool))),
                None => self.make_frees(calls, true),
            }
        }
    }

    /// Releases cached memory. All work is done.
    pub fn trim(&self, context: &Context) {
        let Some(calls) = context.enter_to_free() else { return };
        // SAFETY: the context is entered.
        unsafe {
            self.make_frees(&calls, true);
            if let Some(pool) = self.pool {
                let _ = calls.synchronize_stream(self.setup);
                let _ = calls.trim_pool(pool);
            }
        }
    }

    /// Gives everything back. Nothing uses the memory any more.
    pub fn end(&self, context: &Context) {
        self.trim(context);
        let Some(calls) = context.enter_to_free() else { return };
        // SAFETY: the owner calls this once, at its own end.
        unsafe {
            let _ = calls.destroy_stream(self.setup);
            if let Some(pool) = self.pool {
                let _ = calls.destroy_pool(pool);
            }
        }
    }
}

fn is_out_of_memory(error: &DeviceError) -> bool {
    matches!(error.kind(), ErrorKind::Call { code, .. } if *code == i64::from(code::OUT_OF_MEMORY))
}

/// An out-of-memory error with the free and total memory.
pub fn explain(calls: &Entered<'_>, context: &Context, requested: u64, error: DeviceError) -> DeviceError {
    if !is_out_of_memory(&error) {
        return error;
    }
    // SAFETY: the context is entered.
    let (free, total) = unsafe { calls.memory_info() }.unwrap_or((0, context.memory));
    let device = context.name.clone();
    ErrorKind::OutOfMemory { device, requested, in_use: 0, free: Some(free), capacity: Some(total) }.into()
}
