//! Devices, and the thread's current device.

#![allow(non_snake_case, missing_docs, clippy::missing_safety_doc)] // HIP's names; its contract is its documentation.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::{finish, give, known_device, unsafe_call};
use crate::outcome::code;
use crate::state::{current, set_current, state};

const ARCHITECTURE_IN_R0600: usize = 1160;
const BYTES_OF_R0600: usize = 1472;
const ARCHITECTURE_IN_R0000: usize = 396;
const BYTES_OF_R0000: usize = 792;

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

/// Multiprocessors of a device. Each has room for one block.
pub const MULTIPROCESSORS: u32 = 2;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> c_int {
    finish(known_device(device).and_then(|()| {
        let answer = match attribute {
            10 => 1,
            63 => MULTIPROCESSORS as c_int,
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
        // SAFETY: HIP's contract: there is room for the struct of that version.
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
        unsafe_call("hipDeviceSynchronize")?;
        state().streams_of(current()).iter().for_each(|s| s.synchronize());
        state().device().map(|_| ())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> c_int {
    // SAFETY: HIP's contract.
    finish(unsafe { give(least, 1).and_then(|()| give(greatest, -1)) })
}
