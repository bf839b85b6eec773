//! Modules, functions and launches.

#![allow(non_snake_case, missing_docs, clippy::missing_safety_doc)] // HIP's names; its contract is its documentation.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Handle, finish, give, queue, unsafe_call};
use crate::code::{Function, load};
use crate::exports::devices::MULTIPROCESSORS;
use crate::faults::note;
use crate::lock::lock;
use crate::outcome::{Outcome, code};
use crate::state::{current, state};
use crate::work::Work;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipModuleLoadDataEx(
    module: *mut Handle,
    image: *const c_void,
    _options: c_uint,
    _names: *mut c_int,
    _values: *mut *mut c_void,
) -> c_int {
    finish(state().device().and_then(|_| {
        unsafe_call("hipModuleLoadDataEx")?;
        // SAFETY: HIP's contract: the image is complete.
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
        unsafe_call(CALL)?;
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
    // Small numbers, so that grids stay small.
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
    if parameters.is_null() == extra.is_null() {
        return code::INVALID_VALUE;
    }
    let grid = [blocks, blocks_y, blocks_z, threads, threads_y, threads_z];
    // SAFETY: HIP's contract.
    unsafe { launch("hipModuleLaunchKernel", f, grid, stream, parameters, false) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipModuleLaunchCooperativeKernel(
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
) -> c_int {
    let grid = [blocks, blocks_y, blocks_z, threads, threads_y, threads_z];
    // SAFETY: HIP's contract.
    unsafe { launch("hipModuleLaunchCooperativeKernel", f, grid, stream, parameters, true) }
}

/// Queues a kernel; `grid` is the number of blocks along each axis, and then that of threads.
///
/// # Safety
/// As HIP says of a launch.
unsafe fn launch(
    call: &'static str,
    f: Handle,
    grid: [c_uint; 6],
    stream: Handle,
    parameters: *mut *mut c_void,
    resident: bool,
) -> c_int {
    let known = match function(call, f) {
        Ok(known) => known,
        Err(c) => return finish(Err(c)),
    };
    let [blocks, blocks_y, blocks_z, threads, threads_y, threads_z] = grid;
    if blocks == 0 || threads == 0 || [blocks_y, blocks_z, threads_y, threads_z] != [1; 4] {
        return code::INVALID_CONFIGURATION;
    }
    if threads > known.entry.most_threads {
        note(format!("{call}: {threads} threads of a block for code made for {}", known.entry.most_threads));
        return code::INVALID_CONFIGURATION;
    }
    if resident && blocks > MULTIPROCESSORS.min(known.module.code.most_resident()) {
        return code::COOPERATIVE_LAUNCH_TOO_LARGE;
    }
    queue(call, stream, |_| {
        if parameters.is_null() {
            return Err(code::INVALID_VALUE);
        }
        let mut parameter = vec![0u64; known.entry.parameter_bytes.div_ceil(8)];
        // SAFETY: HIP's contract: the first pointer points to the function's whole parameter.
        unsafe {
            let from = (*parameters).cast::<u8>();
            std::ptr::copy_nonoverlapping(from, parameter.as_mut_ptr().cast(), known.entry.parameter_bytes);
        }
        LAUNCHES.fetch_add(1, Ordering::Relaxed);
        if resident {
            RESIDENT_LAUNCHES.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Work::Launch { function: known.clone(), blocks, threads, resident, parameter })
    })
}

/// Number of launches so far whose blocks are resident at the same time.
pub static RESIDENT_LAUNCHES: AtomicU64 = AtomicU64::new(0);

/// Number of launches so far.
pub static LAUNCHES: AtomicU64 = AtomicU64::new(0);
