//! Device memory, pools, pinned host memory, fills and copies.

#![allow(non_snake_case, missing_docs, clippy::missing_safety_doc)] // HIP's names; its contract is its documentation.

use std::ffi::{c_int, c_uint, c_void};

use super::{Address, Handle, enqueue, finish, give, known_device, queue, unsafe_call};
use crate::faults::note;
use crate::lock::lock;
use crate::memory::Kind;
use crate::outcome::{Outcome, code};
use crate::state::{current, state};
use crate::work::Work;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemGetInfo(free: *mut usize, total: *mut usize) -> c_int {
    let (f, t) = state().memory.info();
    // SAFETY: HIP's contract.
    finish(unsafe { give(free, f as usize).and_then(|()| give(total, t as usize)) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMalloc(at: *mut Address, bytes: usize) -> c_int {
    let allowed = state().device().and_then(|_| unsafe_call("hipMalloc"));
    let made = allowed.and_then(|()| state().memory.allocate(bytes, Kind::Plain(current())));
    // SAFETY: HIP's contract.
    finish(made.and_then(|a| unsafe { give(at, a) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFree(at: Address) -> c_int {
    finish(match state().memory.kind(at) {
        _ if at == 0 => Ok(()),
        // The real library waits for the device. This one does not, because our driver must not rely on it.
        Some(Kind::Plain(device)) => {
            let allowed =
                unsafe_call("hipFree").and_then(|()| state().check_device("hipFree", "block of memory", device));
            allowed.map(|()| state().memory.release(at))
        }
        other => {
            note(format!("hipFree of {at:#x}, which is {other:?}"));
            Err(code::INVALID_VALUE)
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipHostMalloc(at: *mut Handle, bytes: usize, flags: c_uint) -> c_int {
    const KNOWN: c_uint = 0x1 | 0x2 | 0x4 | 0x4000_0000;
    let made = if flags & !KNOWN == 0 {
        let allowed = state().device().and_then(|_| unsafe_call("hipHostMalloc"));
        allowed.and_then(|()| state().memory.allocate(bytes, Kind::Host))
    } else {
        Err(code::INVALID_VALUE)
    };
    // SAFETY: HIP's contract.
    finish(made.and_then(|a| unsafe { give(at, a as Handle) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipHostFree(at: Handle) -> c_int {
    finish(match state().memory.kind(at as u64) {
        _ if at.is_null() => Ok(()),
        Some(Kind::Host) => unsafe_call("hipHostFree").map(|()| state().memory.release(at as u64)),
        other => {
            note(format!("hipHostFree of {at:?}, which is {other:?}"));
            Err(code::INVALID_VALUE)
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemsetD8Async(to: Address, value: u8, bytes: usize, stream: Handle) -> c_int {
    queue("hipMemsetD8Async", stream, |_| Ok(Work::Fill { to, pattern: vec![value], bytes }))
}

fn fill(call: &str, to: Address, pattern: Vec<u8>, count: usize, stream: Handle) -> c_int {
    queue(call, stream, |_| {
        if !to.is_multiple_of(pattern.len() as u64) {
            note(format!("{call} at {to:#x}, which is no multiple of {}", pattern.len()));
            return Err(code::INVALID_VALUE);
        }
        let bytes = pattern.len() * count;
        Ok(Work::Fill { to, pattern, bytes })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemsetD16Async(to: Address, value: u16, count: usize, stream: Handle) -> c_int {
    fill("hipMemsetD16Async", to, value.to_ne_bytes().into(), count, stream)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemsetD32Async(to: Address, value: c_int, count: usize, stream: Handle) -> c_int {
    fill("hipMemsetD32Async", to, value.to_ne_bytes().into(), count, stream)
}

// Pageable memory is copied as late as pinned memory, because the real library is allowed not to wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemcpyHtoDAsync(to: Address, from: *const c_void, bytes: usize, stream: Handle) -> c_int {
    queue("hipMemcpyHtoDAsync", stream, |_| Ok(Work::Copy { to: (to, true), from: (from as u64, false), bytes }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemcpyDtoHAsync(to: *mut c_void, from: Address, bytes: usize, stream: Handle) -> c_int {
    queue("hipMemcpyDtoHAsync", stream, |_| Ok(Work::Copy { to: (to as u64, false), from: (from, true), bytes }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemcpyDtoDAsync(to: Address, from: Address, bytes: usize, stream: Handle) -> c_int {
    queue("hipMemcpyDtoDAsync", stream, |_| Ok(Work::Copy { to: (to, true), from: (from, true), bytes }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemcpyPeerAsync(
    to: *mut c_void,
    to_device: c_int,
    from: *const c_void,
    from_device: c_int,
    bytes: usize,
    stream: Handle,
) -> c_int {
    queue("hipMemcpyPeerAsync", stream, |_| {
        known_device(to_device)?;
        known_device(from_device)?;
        Ok(Work::CopyBetween { to: (to as u64, to_device), from: (from as u64, from_device), bytes })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemPoolCreate(pool: *mut Handle, properties: *const [u32; 4]) -> c_int {
    finish(state().device().and_then(|_| {
        // SAFETY: HIP's contract: the struct begins with these four numbers.
        let [kind, handles, place, device] = unsafe { *properties };
        if [kind, handles, place] != [1, 0, 1] {
            return Err(code::INVALID_VALUE);
        }
        known_device(device as c_int)?;
        unsafe_call("hipMemPoolCreate")?;
        let handle = state().handle();
        lock(&state().pools).insert(handle, device as c_int);
        // SAFETY: HIP's contract.
        unsafe { give(pool, handle as Handle) }
    }))
}

fn pool(call: &str, handle: Handle) -> Outcome<i32> {
    let device = lock(&state().pools).get(&(handle as u64)).copied();
    device.ok_or_else(|| {
        note(format!("{call}: a pool that is not there"));
        code::INVALID_VALUE
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemPoolDestroy(handle: Handle) -> c_int {
    finish(pool("hipMemPoolDestroy", handle).map(|_| {
        state().memory.trim(handle as u64);
        lock(&state().pools).remove(&(handle as u64));
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemPoolSetAttribute(handle: Handle, attribute: c_int, value: *mut c_void) -> c_int {
    let known = (1..=4).contains(&attribute) && !value.is_null();
    finish(pool("hipMemPoolSetAttribute", handle).and(if known { Ok(()) } else { Err(code::INVALID_VALUE) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemPoolTrimTo(handle: Handle, _keep: usize) -> c_int {
    finish(pool("hipMemPoolTrimTo", handle).map(|_| state().memory.trim(handle as u64)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemPoolSetAccess(handle: Handle, access: *const [u32; 3], count: usize) -> c_int {
    finish(pool("hipMemPoolSetAccess", handle).and_then(|_| {
        if count != 1 {
            return Err(code::INVALID_VALUE);
        }
        // SAFETY: HIP's contract: `access` points to `count` structs of three integers.
        let [place, device, flags] = unsafe { *access };
        if [place, flags] != [1, 3] {
            return Err(code::INVALID_VALUE);
        }
        known_device(device as c_int)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMallocFromPoolAsync(
    at: *mut Address,
    bytes: usize,
    handle: Handle,
    stream: Handle,
) -> c_int {
    const CALL: &str = "hipMallocFromPoolAsync";
    finish(pool(CALL, handle).and_then(|device| {
        let stream = state().stream(CALL, stream as u64)?;
        state().check_device(CALL, "pool", device)?;
        let made = state().memory.allocate(bytes, Kind::Pool(device, handle as u64))?;
        enqueue(&stream, Work::Allocate { at: made }).inspect_err(|_| state().memory.release(made))?;
        // SAFETY: HIP's contract.
        unsafe { give(at, made) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFreeAsync(at: Address, stream: Handle) -> c_int {
    const CALL: &str = "hipFreeAsync";
    queue(CALL, stream, |_| {
        if state().memory.announce_release(at) {
            return Ok(Work::Free { at });
        }
        note(format!("{CALL} of {at:#x}, which is no memory of a pool, or goes already"));
        Err(code::INVALID_VALUE)
    })
}
