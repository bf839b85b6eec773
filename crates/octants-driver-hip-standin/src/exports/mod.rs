//! The HIP functions that our driver uses, with the parameters of AMD's headers.

mod code;
mod devices;
mod errors;
mod graphs;
mod memory;
mod sparse;
mod streams;

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

pub use code::*;
pub use devices::*;
pub use errors::*;
pub use graphs::*;
pub use memory::*;
pub use sparse::*;
pub use streams::*;

use crate::capture::Queued;
use crate::lock::lock;
use crate::outcome::{Outcome, code as codes};
use crate::state::state;
use crate::work::{Stream, Work};

type Handle = *mut c_void;
/// An untyped pointer in HIP.
type Address = u64;

thread_local! {
    static LAST_ERROR: Cell<c_int> = const { Cell::new(codes::SUCCESS) };
}

/// A HIP function's result.
fn finish(outcome: Outcome<()>) -> c_int {
    outcome.map_or_else(
        |c| {
            LAST_ERROR.set(c);
            c
        },
        |()| codes::SUCCESS,
    )
}

/// Stores a result, if the destination is not null.
///
/// # Safety
/// The pointer is null or writable.
unsafe fn give<T>(place: *mut T, value: T) -> Outcome<()> {
    if place.is_null() {
        return Err(codes::INVALID_VALUE);
    }
    // SAFETY: the contract above.
    unsafe { place.write(value) };
    Ok(())
}

fn known_device(device: c_int) -> Outcome<()> {
    if (0..state().devices.len() as c_int).contains(&device) { Ok(()) } else { Err(codes::INVALID_DEVICE) }
}

/// Queues work, or records it if the stream is being captured.
fn enqueue(stream: &Arc<Stream>, work: Work) -> Outcome<()> {
    let queued = lock(&state().captures).queue(stream, work, &state().streams)?;
    if let Queued::Now(work) = queued {
        stream.push(work);
    }
    Ok(())
}

/// A call that is illegal during a capture.
fn unsafe_call(call: &str) -> Outcome<()> {
    lock(&state().captures).unsafe_call(call)
}

fn queue(call: &str, stream: Handle, work: impl FnOnce(&Arc<Stream>) -> Outcome<Work>) -> c_int {
    finish(state().stream(call, stream as u64).and_then(|stream| {
        let work = work(&stream)?;
        enqueue(&stream, work)
    }))
}
