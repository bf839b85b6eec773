//! HIP's functions, as far as our driver uses them, with the parameters of its headers.

#![allow(non_snake_case, clippy::missing_safety_doc)] // HIP's names; its contract is its documentation.
#![allow(missing_docs)]

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::code::{Function, load};
use crate::event::Event;
use crate::faults::note;
use crate::memory::Kind;
use crate::state::{Outcome, code, current, lock, set_current, state};
use crate::stream::{Stream, Work};

type Handle = *mut c_void;
/// An untyped pointer in HIP.
type Address = u64;

const ARCHITECTURE_IN_R0600: usize = 1160;
const BYTES_OF_R0600: usize = 1472;
const ARCHITECTURE_IN_R0000: usize = 396;
const BYTES_OF_R0000: usize = 792;

thread_local! {
    static LAST_ERROR: Cell<c_int> = const { Cell::new(code::SUCCESS) };
}

/// HIP's result of a function.
fn finish(outcome: Outcome<()>) -> c_int {
    outcome.map_or_else(
        |c| {
            LAST_ERROR.set(c);
            c
        },
        |()| code::SUCCESS,
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGetLastError() -> c_int {
    LAST_ERROR.replace(code::SUCCESS)
}

/// Stores a result, where there is a place for it.
///
/// # Safety
/// The place is null or can be written.
unsafe fn give<T>(place: *mut T, value: T) -> Outcome<()> {
    if place.is_null() {
        return Err(code::INVALID_VALUE);
    }
    // SAFETY: the contract above.
    unsafe { place.write(value) };
    Ok(())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipInit(flags: c_uint) -> c_int {
    match (flags, state().devices.len()) {
        (0, 0) => code::NO_DEVICE,
        (0, _) => code::SUCCESS,
        _ => code::INVALID_VALUE,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDriverGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: HIP's contract.
    finish(unsafe { give(version, state().settings.version) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGetDeviceCount(count: *mut c_int) -> c_int {
    let devices = state().devices.len() as c_int;
    // SAFETY: HIP's contract.
    finish(unsafe { give(count, devices) }.and(if devices == 0 { Err(code::NO_DEVICE) } else { Ok(()) }))
}

fn known_device(device: c_int) -> Outcome<()> {
    if (0..state().devices.len() as c_int).contains(&device) { Ok(()) } else { Err(code::INVALID_DEVICE) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int {
    // SAFETY: HIP's contract.
    finish(known_device(ordinal).and_then(|()| unsafe { give(device, ordinal) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDeviceGetName(name: *mut c_char, length: c_int, device: c_int) -> c_int {
    finish(known_device(device).and_then(|()| {
        let text = format!("a stand-in for an AMD GPU ({})\0", state().settings.visible[device as usize]);
        let bytes = text.as_bytes();
        if (length as usize) < bytes.len() {
            return Err(code::INVALID_VALUE);
        }
        // SAFETY: HIP's contract: there is room for `length` bytes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), name.cast(), bytes.len()) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> c_int {
    finish(known_device(device).and_then(|()| {
        let answer = match attribute {
            63 => 2,
            87 => state().settings.warp as c_int,
            88 => 1,
            _ => return Err(code::INVALID_VALUE),
        };
        // SAFETY: HIP's contract.
        unsafe { give(value, answer) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDeviceTotalMem(bytes: *mut usize, device: c_int) -> c_int {
    // SAFETY: HIP's contract.
    finish(known_device(device).and_then(|()| unsafe { give(bytes, state().memory.info().1 as usize) }))
}

unsafe fn describe(to: *mut c_void, device: c_int, bytes: usize, architecture: usize) -> c_int {
    finish(known_device(device).map(|()| {
        let text = state().settings.architecture.as_bytes();
        // SAFETY: HIP's contract: there is room for the struct, as it was in that version.
        unsafe {
            std::ptr::write_bytes(to.cast::<u8>(), 0, bytes);
            std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast::<u8>().add(architecture), text.len().min(255));
        }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGetDevicePropertiesR0600(to: *mut c_void, device: c_int) -> c_int {
    // SAFETY: HIP's contract.
    unsafe { describe(to, device, BYTES_OF_R0600, ARCHITECTURE_IN_R0600) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGetDeviceProperties(to: *mut c_void, device: c_int) -> c_int {
    // SAFETY: HIP's contract.
    unsafe { describe(to, device, BYTES_OF_R0000, ARCHITECTURE_IN_R0000) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGetDevice(device: *mut c_int) -> c_int {
    // SAFETY: HIP's contract.
    finish(known_device(current()).map_err(|_| code::NO_DEVICE).and_then(|()| unsafe { give(device, current()) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipSetDevice(device: c_int) -> c_int {
    finish(set_current(device))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDeviceSynchronize() -> c_int {
    finish(state().device().and_then(|_| {
        state().streams_of(current()).iter().for_each(|s| s.synchronize());
        state().device().map(|_| ())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> c_int {
    // SAFETY: HIP's contract.
    finish(unsafe { give(least, 1).and_then(|()| give(greatest, -1)) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemGetInfo(free: *mut usize, total: *mut usize) -> c_int {
    let (f, t) = state().memory.info();
    // SAFETY: HIP's contract.
    finish(unsafe { give(free, f as usize).and_then(|()| give(total, t as usize)) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMalloc(at: *mut Address, bytes: usize) -> c_int {
    let made = state().device().and_then(|_| state().memory.allocate(bytes, Kind::Plain(current())));
    // SAFETY: HIP's contract.
    finish(made.and_then(|a| unsafe { give(at, a) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFree(at: Address) -> c_int {
    finish(match state().memory.kind(at) {
        _ if at == 0 => Ok(()),
        // The real one waits for the device. This one does not: our driver must not need it to.
        Some(Kind::Plain(device)) => {
            state().check_device("hipFree", "block of memory", device).map(|()| state().memory.release(at))
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
        state().device().and_then(|_| state().memory.allocate(bytes, Kind::Host))
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
        Some(Kind::Host) => {
            state().memory.release(at as u64);
            Ok(())
        }
        other => {
            note(format!("hipHostFree of {at:?}, which is {other:?}"));
            Err(code::INVALID_VALUE)
        }
    })
}

fn queue(call: &str, stream: Handle, work: impl FnOnce(&Arc<Stream>) -> Outcome<Work>) -> c_int {
    finish(state().stream(call, stream as u64).and_then(|stream| {
        let work = work(&stream)?;
        stream.push(work);
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemsetD8Async(to: Address, value: u8, bytes: usize, stream: Handle) -> c_int {
    queue("hipMemsetD8Async", stream, |_| Ok(Work::Fill { to, value, bytes }))
}

// Memory that is not pinned is copied as late as pinned memory: when the real library does that it may wait, but need not.
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
pub unsafe extern "C" fn hipStreamCreateWithPriority(stream: *mut Handle, flags: c_uint, _priority: c_int) -> c_int {
    finish(state().device().and_then(|_| {
        if flags > 1 {
            return Err(code::INVALID_VALUE);
        }
        let handle = state().handle();
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
    finish(state().stream("hipStreamDestroy", stream as u64).map(|known| {
        lock(&state().streams).remove(&known.handle);
        // What is queued is still done.
        known.push(Work::End);
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipStreamSynchronize(stream: Handle) -> c_int {
    finish(state().stream("hipStreamSynchronize", stream as u64).and_then(|stream| {
        stream.synchronize();
        state().device().map(|_| ())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipStreamQuery(stream: Handle) -> c_int {
    finish(state().stream("hipStreamQuery", stream as u64).and_then(|stream| {
        let (queued, done) = stream.counts();
        if done < queued { Err(code::NOT_READY) } else { Ok(()) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipStreamWaitEvent(stream: Handle, event: Handle, flags: c_uint) -> c_int {
    const CALL: &str = "hipStreamWaitEvent";
    finish(state().stream(CALL, stream as u64).and_then(|stream| {
        let event = state().event(CALL, event as u64)?;
        if flags != 0 {
            return Err(code::INVALID_VALUE);
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
pub unsafe extern "C" fn hipStreamIsCapturing(stream: Handle, status: *mut c_int) -> c_int {
    // SAFETY: HIP's contract.
    finish(state().stream("hipStreamIsCapturing", stream as u64).and_then(|_| unsafe { give(status, 0) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipThreadExchangeStreamCaptureMode(mode: *mut c_int) -> c_int {
    thread_local! {
        static MODE: Cell<c_int> = const { Cell::new(0) };
    }
    if mode.is_null() {
        return code::INVALID_VALUE;
    }
    // SAFETY: HIP's contract.
    unsafe {
        if !(0..3).contains(&*mode) {
            return code::INVALID_VALUE;
        }
        *mode = MODE.replace(*mode);
    }
    code::SUCCESS
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
        state().event(CALL, event as u64)?.record(&stream);
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipEventSynchronize(event: Handle) -> c_int {
    finish(state().event("hipEventSynchronize", event as u64).and_then(|event| {
        if let Some((stream, count)) = event.point() {
            stream.wait(count);
        }
        state().device().map(|_| ())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipEventQuery(event: Handle) -> c_int {
    let done = state().event("hipEventQuery", event as u64).map(|event| event.is_done());
    finish(done.and_then(|done| if done { Ok(()) } else { Err(code::NOT_READY) }))
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

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipModuleLoadDataEx(
    module: *mut Handle,
    image: *const c_void,
    _options: c_uint,
    _names: *mut c_int,
    _values: *mut *mut c_void,
) -> c_int {
    finish(state().device().and_then(|_| {
        // SAFETY: HIP's contract: a whole image lies there.
        let loaded = unsafe { load(image.cast(), current())? };
        let handle = state().handle();
        lock(&state().modules).insert(handle, Arc::new(loaded));
        // SAFETY: HIP's contract.
        unsafe { give(module, handle as Handle) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipModuleUnload(module: Handle) -> c_int {
    const CALL: &str = "hipModuleUnload";
    finish(state().find(CALL, "module", &state().modules, module as u64).and_then(|known| {
        state().check_device(CALL, "module", known.device)?;
        if known.queued.load(Ordering::Acquire) > 0 {
            note("hipModuleUnload: code that is queued");
        }
        lock(&state().modules).remove(&(module as u64));
        lock(&state().functions).retain(|_, f| f.owner != module as u64);
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipModuleGetFunction(function: *mut Handle, module: Handle, name: *const c_char) -> c_int {
    const CALL: &str = "hipModuleGetFunction";
    finish(state().find(CALL, "module", &state().modules, module as u64).and_then(|known| {
        state().check_device(CALL, "module", known.device)?;
        // SAFETY: HIP's contract.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        let entry = known.code.entry(&name).ok_or(code::NOT_FOUND)?;
        let handle = state().handle();
        let found = Function { name, module: known, owner: module as u64, entry };
        lock(&state().functions).insert(handle, Arc::new(found));
        // SAFETY: HIP's contract.
        unsafe { give(function, handle as Handle) }
    }))
}

fn function(call: &str, handle: Handle) -> Outcome<Arc<Function>> {
    state().device()?;
    let known = state().find(call, "function", &state().functions, handle as u64)?;
    state().check_device(call, "function", known.module.device)?;
    Ok(known)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFuncGetAttribute(value: *mut c_int, attribute: c_int, f: Handle) -> c_int {
    finish(function("hipFuncGetAttribute", f).and_then(|f| {
        let answer = match attribute {
            0 => f.entry.most_threads as c_int,
            3 => 0,
            _ => return Err(code::INVALID_VALUE),
        };
        // SAFETY: HIP's contract.
        unsafe { give(value, answer) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut c_int,
    f: Handle,
    _threads: c_int,
    _memory: usize,
) -> c_int {
    // SAFETY: HIP's contract.
    finish(function("hipModuleOccupancyMaxActiveBlocksPerMultiprocessor", f).and_then(|_| unsafe { give(blocks, 1) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipModuleOccupancyMaxPotentialBlockSize(
    grid: *mut c_int,
    block: *mut c_int,
    f: Handle,
    _memory: usize,
    most: c_int,
) -> c_int {
    // Few threads, so that grids stay small.
    let best = if most > 0 { most.min(64) } else { 64 };
    // SAFETY: HIP's contract.
    finish(
        function("hipModuleOccupancyMaxPotentialBlockSize", f)
            .and_then(|_| unsafe { give(grid, 2).and_then(|()| give(block, best)) }),
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipModuleLaunchKernel(
    f: Handle,
    blocks: c_uint,
    blocks_y: c_uint,
    blocks_z: c_uint,
    threads: c_uint,
    threads_y: c_uint,
    threads_z: c_uint,
    _memory: c_uint,
    stream: Handle,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> c_int {
    const CALL: &str = "hipModuleLaunchKernel";
    let known = match function(CALL, f) {
        Ok(known) => known,
        Err(c) => return finish(Err(c)),
    };
    if blocks == 0 || threads == 0 || [blocks_y, blocks_z, threads_y, threads_z] != [1; 4] {
        return code::INVALID_CONFIGURATION;
    }
    if threads > known.entry.most_threads {
        note(format!("{CALL}: {threads} threads of a block for code made for {}", known.entry.most_threads));
        return code::INVALID_CONFIGURATION;
    }
    let warp = state().settings.warp;
    if threads > 1 && !threads.is_multiple_of(warp) {
        note(format!("{CALL}: {threads} threads of a block are no whole warps of {warp}"));
    }
    if parameters.is_null() == extra.is_null() {
        return code::INVALID_VALUE;
    }
    queue(CALL, stream, |_| {
        if parameters.is_null() {
            return Err(code::INVALID_VALUE);
        }
        let mut parameter = vec![0u64; known.entry.parameter_bytes.div_ceil(8)];
        // SAFETY: HIP's contract: the first pointer is the address of as many bytes as the function takes.
        unsafe {
            let from = (*parameters).cast::<u8>();
            std::ptr::copy_nonoverlapping(from, parameter.as_mut_ptr().cast(), known.entry.parameter_bytes);
        }
        known.module.queued.fetch_add(1, Ordering::AcqRel);
        LAUNCHES.fetch_add(1, Ordering::Relaxed);
        Ok(Work::Launch { function: known.clone(), blocks, threads, parameter })
    })
}

/// Launches so far.
pub static LAUNCHES: AtomicU64 = AtomicU64::new(0);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemPoolCreate(pool: *mut Handle, properties: *const [u32; 4]) -> c_int {
    finish(state().device().and_then(|_| {
        // SAFETY: HIP's contract: the struct begins with these four numbers.
        let [kind, handles, place, device] = unsafe { *properties };
        if [kind, handles, place] != [1, 0, 1] {
            return Err(code::INVALID_VALUE);
        }
        known_device(device as c_int)?;
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
        stream.push(Work::Allocate { at: made });
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

fn words(c: c_int) -> (&'static CStr, &'static CStr) {
    match c {
        code::SUCCESS => (c"hipSuccess", c"no error"),
        code::INVALID_VALUE => (c"hipErrorInvalidValue", c"invalid argument"),
        code::OUT_OF_MEMORY => (c"hipErrorOutOfMemory", c"out of memory"),
        code::INVALID_CONFIGURATION => (c"hipErrorInvalidConfiguration", c"invalid configuration argument"),
        code::NO_DEVICE => (c"hipErrorNoDevice", c"no ROCm-capable device is detected"),
        code::INVALID_DEVICE => (c"hipErrorInvalidDevice", c"invalid device ordinal"),
        code::INVALID_IMAGE => (c"hipErrorInvalidImage", c"device kernel image is invalid"),
        code::NO_BINARY_FOR_GPU => {
            (c"hipErrorNoBinaryForGpu", c"no kernel image is available for execution on the device")
        }
        code::INVALID_HANDLE => (c"hipErrorInvalidHandle", c"invalid resource handle"),
        code::NOT_FOUND => (c"hipErrorNotFound", c"named symbol not found"),
        code::NOT_READY => (c"hipErrorNotReady", c"device not ready"),
        700 => (c"hipErrorIllegalAddress", c"an illegal memory access was encountered"),
        719 => (c"hipErrorLaunchFailure", c"unspecified launch failure"),
        _ => (c"hipErrorUnknown", c"unknown error"),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGetErrorName(c: c_int) -> *const c_char {
    words(c).0.as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGetErrorString(c: c_int) -> *const c_char {
    words(c).1.as_ptr()
}
