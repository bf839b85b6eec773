//! The meaning of error codes, and the thread's last error.

#![allow(non_snake_case, missing_docs, clippy::missing_safety_doc)] // HIP's names; its contract is its documentation.

use std::ffi::{CStr, c_char, c_int};

use super::LAST_ERROR;
use crate::outcome::code;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGetLastError() -> c_int {
    LAST_ERROR.replace(code::SUCCESS)
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
