//! The functions of HIP's library, by their exact exported names.
//!
//! A test (`tests/header.rs`) compares the declarations with AMD's headers, so a missing parameter or a wrong type is
//! found. If a header maps a function to a newer version under its old name (`hipGetDeviceProperties` is a macro for
//! `hipGetDevicePropertiesR0600` since ROCm 6.0, because the struct that it fills has changed), the table lists the
//! versioned name.

use std::ffi::{c_char, c_int, c_void};

use octants_driver_gpu::symbols::{RawDevice, RawStream};
use octants_driver_gpu::{Names, own_functions};

/// The result type of functions.
pub type Code = c_int;

/// Codes that something here depends on.
pub mod code {
    #![allow(missing_docs)]
    pub const SUCCESS: i32 = 0;
    pub const NO_DEVICE: i32 = 100;
    pub const INVALID_DEVICE: i32 = 101;
    pub const ECC_NOT_CORRECTABLE: i32 = 214;
    pub const ILLEGAL_ADDRESS: i32 = 700;
    pub const LAUNCH_TIME_OUT: i32 = 702;
    pub const CONTEXT_IS_DESTROYED: i32 = 709;
    pub const ASSERT: i32 = 710;
    pub const LAUNCH_FAILURE: i32 = 719;
}

/// Device attributes, by HIP's numbers since ROCm 5.0, and HIP's own flags.
pub mod number {
    #![allow(missing_docs)]
    pub const DEVICE_MULTIPROCESSOR_COUNT: i32 = 63;
    pub const DEVICE_COOPERATIVE_LAUNCH: i32 = 10;
    pub const DEVICE_WARP_SIZE: i32 = 87;
    pub const DEVICE_MEMORY_POOLS_SUPPORTED: i32 = 88;
    pub const HOST_COHERENT: u32 = 0x4000_0000;
}

/// The offset of the architecture name in the device property structs, and their sizes.
pub mod layout {
    #![allow(missing_docs)]
    /// Those of `hipGetDeviceProperties` as the library exports it, which still uses the struct from before ROCm 6.0.
    pub const OLD_BYTES: usize = 792;
    pub const OLD_ARCHITECTURE: usize = 396;
    /// Those of `hipGetDevicePropertiesR0600`.
    pub const NEW_BYTES: usize = 1472;
    pub const NEW_ARCHITECTURE: usize = 1160;
    pub const ARCHITECTURE_BYTES: usize = 256;
}

/// The library's names of the functions that all vendors have.
pub const NAMES: Names = Names {
    init: "hipInit",
    driver_version: "hipDriverGetVersion",
    device_count: "hipGetDeviceCount",
    device_get: "hipDeviceGet",
    device_name: "hipDeviceGetName",
    device_attribute: "hipDeviceGetAttribute",
    device_memory: "hipDeviceTotalMem",
    synchronize_all: "hipDeviceSynchronize",
    priority_range: "hipDeviceGetStreamPriorityRange",
    memory_info: "hipMemGetInfo",
    allocate: "hipMalloc",
    free: "hipFree",
    host_allocate: "hipHostMalloc",
    host_free: "hipHostFree",
    memset: "hipMemsetD8Async",
    memset16: "hipMemsetD16Async",
    memset32: "hipMemsetD32Async",
    copy_to_device: "hipMemcpyHtoDAsync",
    copy_to_host: "hipMemcpyDtoHAsync",
    copy_on_device: "hipMemcpyDtoDAsync",
    stream_create: "hipStreamCreateWithPriority",
    stream_destroy: "hipStreamDestroy",
    stream_synchronize: "hipStreamSynchronize",
    stream_query: "hipStreamQuery",
    stream_wait: "hipStreamWaitEvent",
    stream_capturing: "hipStreamIsCapturing",
    capture_mode: "hipThreadExchangeStreamCaptureMode",
    // `hipEventCreate` takes no flags.
    event_create: "hipEventCreateWithFlags",
    event_destroy: "hipEventDestroy",
    event_record: "hipEventRecord",
    event_synchronize: "hipEventSynchronize",
    event_query: "hipEventQuery",
    event_elapsed: "hipEventElapsedTime",
    module_load: "hipModuleLoadDataEx",
    module_unload: "hipModuleUnload",
    module_function: "hipModuleGetFunction",
    function_attribute: "hipFuncGetAttribute",
    occupancy: "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor",
    launch: "hipModuleLaunchKernel",
    launch_resident: "hipModuleLaunchCooperativeKernel",
    pool_create: "hipMemPoolCreate",
    pool_destroy: "hipMemPoolDestroy",
    pool_set: "hipMemPoolSetAttribute",
    pool_trim: "hipMemPoolTrimTo",
    pool_access: "hipMemPoolSetAccess",
    pool_allocate: "hipMallocFromPoolAsync",
    pool_free: "hipFreeAsync",
    graph_instantiate: "hipGraphInstantiateWithFlags",
    graph_launch: "hipGraphLaunch",
    graph_exec_destroy: "hipGraphExecDestroy",
    capture_begin: "hipStreamBeginCapture",
    capture_end: "hipStreamEndCapture",
    graph_destroy: "hipGraphDestroy",
};

/// The ROCm versions that introduced functions after 4.2.
const SINCE: &[(&str, &str)] = &[
    ("hipStreamIsCapturing", "4.3"),
    ("hipThreadExchangeStreamCaptureMode", "5.0"),
    ("hipGraphInstantiateWithFlags", "5.0"),
    ("hipGraphLaunch", "4.3"),
    ("hipStreamBeginCapture", "4.3"),
    ("hipStreamEndCapture", "4.3"),
    ("hipGraphDestroy", "4.3"),
    ("hipGraphExecDestroy", "4.3"),
    ("hipMemPoolCreate", "5.4"),
    ("hipMemPoolDestroy", "5.4"),
    ("hipMemPoolSetAttribute", "5.4"),
    ("hipMemPoolTrimTo", "5.4"),
    ("hipMemPoolSetAccess", "5.4"),
    ("hipMallocFromPoolAsync", "5.4"),
    ("hipFreeAsync", "5.4"),
    ("hipGetDevicePropertiesR0600", "6.0"),
];

/// The ROCm version that introduced a function.
pub fn since(symbol: &str) -> &'static str {
    SINCE.iter().find(|(name, _)| *name == symbol).map_or("4.2", |(_, version)| version)
}

own_functions! {
    /// The functions that are specific to HIP.
    Own {
        /// Name of a code.
        error_name = "hipGetErrorName"(Code) -> *const c_char;
        /// Description of a code.
        error_string = "hipGetErrorString"(Code) -> *const c_char;
        /// Returns and clears the code of the thread's last failed call.
        last_error = "hipGetLastError"() -> Code;
        /// The thread's device.
        device_current = "hipGetDevice"(*mut c_int);
        /// Sets it.
        device_set = "hipSetDevice"(c_int);
        /// Copies from the memory of one device to that of another.
        copy_between = "hipMemcpyPeerAsync"(*mut c_void, c_int, *const c_void, c_int, usize, RawStream);
    }
}

/// Fills a struct that describes a device.
pub type Describe = unsafe extern "C" fn(*mut c_void, RawDevice) -> c_int;
/// The newer and the older function that do so.
pub const DESCRIBE: [&str; 2] = ["hipGetDevicePropertiesR0600", "hipGetDeviceProperties"];
