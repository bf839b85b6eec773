//! Streams and events.

#![allow(non_snake_case, missing_docs, clippy::missing_safety_doc)] // HIP's names; its contract is its documentation.

use std::ffi::{c_int, c_uint};
use std::sync::Arc;

use super::{Handle, finish, give, unsafe_call};
use crate::lock::lock;
use crate::outcome::code;
use crate::state::{current, state};
use crate::work::{Event, Stream, Work};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipStreamCreateWithPriority(stream: *mut Handle, flags: c_uint, _priority: c_int) -> c_int {
    finish(state().device().and_then(|_| {
        if flags > 1 {
            return Err(code::INVALID_VALUE);
        }
        let handle = state().handle();
        unsafe_call("hipStreamCreateWithPriority")?;
        lock(&state().streams).insert(handle, Stream::new(handle, current(), flags == 0));
        // SAFETY: HIP's contract.
        unsafe { give(stream, handle as Handle) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipStreamDestroy(stream: Handle) -> c_int {
    if stream.is_null() {
        return code::INVALID_HANDLE;
    }
    const CALL: &str = "hipStreamDestroy";
    finish(state().stream(CALL, stream as u64).and_then(|known| {
        lock(&state().captures).look_at_stream(CALL, known.handle)?;
        lock(&state().streams).remove(&known.handle);
        // Queued work still runs.
        known.push(Work::End);
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipStreamSynchronize(stream: Handle) -> c_int {
    const CALL: &str = "hipStreamSynchronize";
    finish(state().stream(CALL, stream as u64).and_then(|stream| {
        lock(&state().captures).look_at_stream(CALL, stream.handle)?;
        stream.synchronize();
        state().device().map(|_| ())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipStreamQuery(stream: Handle) -> c_int {
    const CALL: &str = "hipStreamQuery";
    finish(state().stream(CALL, stream as u64).and_then(|stream| {
        lock(&state().captures).look_at_stream(CALL, stream.handle)?;
        let (queued, done) = stream.counts();
        if done < queued { Err(code::NOT_READY) } else { Ok(()) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipStreamWaitEvent(stream: Handle, event: Handle, flags: c_uint) -> c_int {
    const CALL: &str = "hipStreamWaitEvent";
    finish(state().stream(CALL, stream as u64).and_then(|stream| {
        let handle = event as u64;
        // A stream can wait for events of any device.
        let event = state().find(CALL, "event", &state().events, handle)?;
        if flags != 0 {
            return Err(code::INVALID_VALUE);
        }
        if lock(&state().captures).wait(stream.handle, handle, event.point().is_some())? {
            return Ok(());
        }
        if let Some((other, count)) = event.point()
            && !Arc::ptr_eq(&other, &stream)
        {
            stream.push(Work::Wait { stream: other, count });
        }
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipEventCreateWithFlags(event: *mut Handle, flags: c_uint) -> c_int {
    finish(state().device().and_then(|_| {
        if flags & !3 != 0 {
            return Err(code::INVALID_VALUE);
        }
        let handle = state().handle();
        lock(&state().events).insert(handle, Arc::new(Event::new(current(), flags & 2 == 0)));
        // SAFETY: HIP's contract.
        unsafe { give(event, handle as Handle) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipEventDestroy(event: Handle) -> c_int {
    finish(state().event("hipEventDestroy", event as u64).map(|_| {
        lock(&state().events).remove(&(event as u64));
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipEventRecord(event: Handle, stream: Handle) -> c_int {
    const CALL: &str = "hipEventRecord";
    finish(state().stream(CALL, stream as u64).and_then(|stream| {
        let known = state().event(CALL, event as u64)?;
        if !lock(&state().captures).record(event as u64, stream.handle) {
            known.record(&stream);
        }
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipEventSynchronize(event: Handle) -> c_int {
    const CALL: &str = "hipEventSynchronize";
    let handle = event as u64;
    finish(state().event(CALL, handle).and_then(|event| {
        lock(&state().captures).look_at_event(CALL, handle)?;
        if let Some((stream, count)) = event.point() {
            stream.wait(count);
        }
        state().device().map(|_| ())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipEventQuery(event: Handle) -> c_int {
    const CALL: &str = "hipEventQuery";
    finish(state().event(CALL, event as u64).and_then(|known| {
        lock(&state().captures).look_at_event(CALL, event as u64)?;
        if known.is_done() { Ok(()) } else { Err(code::NOT_READY) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipEventElapsedTime(ms: *mut f32, start: Handle, stop: Handle) -> c_int {
    const CALL: &str = "hipEventElapsedTime";
    finish(state().event(CALL, start as u64).and_then(|from| {
        let to = state().event(CALL, stop as u64)?;
        // SAFETY: HIP's contract.
        unsafe { give(ms, from.elapsed(&to)?) }
    }))
}
