//! [`Outcome`]: what HIP's functions return.

/// HIP's error codes.
pub mod code {
    #![allow(missing_docs)]
    pub const SUCCESS: i32 = 0;
    pub const INVALID_VALUE: i32 = 1;
    pub const OUT_OF_MEMORY: i32 = 2;
    pub const INVALID_CONFIGURATION: i32 = 9;
    pub const NO_DEVICE: i32 = 100;
    pub const INVALID_DEVICE: i32 = 101;
    pub const INVALID_IMAGE: i32 = 200;
    pub const NO_BINARY_FOR_GPU: i32 = 209;
    pub const INVALID_HANDLE: i32 = 400;
    pub const ILLEGAL_STATE: i32 = 401;
    pub const NOT_FOUND: i32 = 500;
    pub const NOT_READY: i32 = 600;
    pub const COOPERATIVE_LAUNCH_TOO_LARGE: i32 = 720;
    pub const CAPTURE_UNSUPPORTED: i32 = 900;
    pub const CAPTURE_INVALIDATED: i32 = 901;
    pub const CAPTURE_MERGE: i32 = 902;
    pub const CAPTURE_UNMATCHED: i32 = 903;
    pub const CAPTURE_UNJOINED: i32 = 904;
    pub const CAPTURE_ISOLATION: i32 = 905;
    pub const CAPTURE_IMPLICIT: i32 = 906;
    pub const CAPTURED_EVENT: i32 = 907;
    pub const CAPTURE_WRONG_THREAD: i32 = 908;
}

/// HIP's result.
pub type Outcome<T> = Result<T, i32>;
