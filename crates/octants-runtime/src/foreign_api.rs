//! [`ForeignApi`]: another interface to the same physical device, which other libraries of the process use.
//!
//! A driver whose own interface no array library uses may share its memory with such an interface. The two have
//! different addresses for the same memory, and different streams.

use crate::error::Result;
use crate::handles::{DevicePtr, EventHandle, StreamHandle};

/// Another interface to a driver's device. While memory is shared, the driver's default stream is ordered with the
/// default stream there, in both directions.
#[allow(clippy::missing_safety_doc)] // The contract of `Driver`.
pub trait ForeignApi {
    /// The device there in DLPack's terms: its kind and its number.
    fn dlpack_device(&self) -> (i32, i32);

    /// The DLPack handle of the default stream there.
    fn unnamed_stream(&self) -> u64;

    /// Shares an allocation until it is freed, and returns its address there.
    unsafe fn share(&self, memory: DevicePtr) -> Result<u64>;

    /// The address here of shared memory; `None` for an address of memory that is not shared.
    fn own_address(&self, address: u64) -> Option<DevicePtr>;

    /// Makes a stream there wait for the work of the default stream, and for the work that the events represent.
    unsafe fn hand_over(&self, stream: u64, events: &[EventHandle]) -> Result<()>;

    /// Makes later work on `stream` wait for the work that is queued on a stream there.
    unsafe fn wait_for(&self, stream: StreamHandle, foreign: u64) -> Result<()>;
}
