//! The functions of the driver library, by their exact exported names.
//!
//! CUDA's headers map some functions to newer versions under their old name (`cuStreamDestroy` is a macro for
//! `cuStreamDestroy_v2`). The library exports both, and only the versioned one has today's behavior. The table lists
//! the versioned names.

use std::ffi::{c_char, c_int, c_void};

use octants_driver_gpu::Names;
use octants_driver_gpu::own_functions;
use octants_driver_gpu::symbols::{Address, RawDevice, RawFunction, RawStream};

/// A context.
pub type CuContext = *mut c_void;
/// Codes that something here depends on.
pub mod code {
    #![allow(missing_docs)]
    pub const SUCCESS: i32 = 0;
    pub const STUB_LIBRARY: i32 = 34;
    pub const NO_DEVICE: i32 = 100;
    pub const ECC_UNCORRECTABLE: i32 = 214;
    pub const NVLINK_UNCORRECTABLE: i32 = 220;
    pub const ILLEGAL_ADDRESS: i32 = 700;
    pub const LAUNCH_TIMEOUT: i32 = 702;
    pub const CONTEXT_IS_DESTROYED: i32 = 709;
    pub const ASSERT: i32 = 710;
    pub const HARDWARE_STACK_ERROR: i32 = 714;
    pub const ILLEGAL_INSTRUCTION: i32 = 715;
    pub const MISALIGNED_ADDRESS: i32 = 716;
    pub const INVALID_ADDRESS_SPACE: i32 = 717;
    pub const INVALID_PC: i32 = 718;
    pub const LAUNCH_FAILED: i32 = 719;
    pub const SYSTEM_DRIVER_MISMATCH: i32 = 803;
}

/// Attributes of devices and functions, by CUDA's numbers.
pub mod number {
    #![allow(missing_docs)]
    pub const FUNCTION_MAX_DYNAMIC_SHARED_SIZE_BYTES: i32 = 8;
    pub const DEVICE_WARP_SIZE: i32 = 10;
    pub const DEVICE_CLOCK_RATE: i32 = 13;
    pub const DEVICE_MULTIPROCESSOR_COUNT: i32 = 16;
    pub const DEVICE_COOPERATIVE_LAUNCH: i32 = 95;
    pub const DEVICE_CAPABILITY_MAJOR: i32 = 75;
    pub const DEVICE_CAPABILITY_MINOR: i32 = 76;
    pub const DEVICE_MEMORY_POOLS_SUPPORTED: i32 = 115;
}

/// The library's names of the functions that all vendors have. Memory pools need CUDA 11.2.
pub const NAMES: Names = Names {
    init: "cuInit",
    driver_version: "cuDriverGetVersion",
    device_count: "cuDeviceGetCount",
    device_get: "cuDeviceGet",
    device_name: "cuDeviceGetName",
    device_attribute: "cuDeviceGetAttribute",
    // The unversioned one counts in 32 bits.
    device_memory: "cuDeviceTotalMem_v2",
    synchronize_all: "cuCtxSynchronize",
    priority_range: "cuCtxGetStreamPriorityRange",
    memory_info: "cuMemGetInfo_v2",
    allocate: "cuMemAlloc_v2",
    free: "cuMemFree_v2",
    host_allocate: "cuMemHostAlloc",
    host_free: "cuMemFreeHost",
    memset: "cuMemsetD8Async",
    memset16: "cuMemsetD16Async",
    memset32: "cuMemsetD32Async",
    copy_to_device: "cuMemcpyHtoDAsync_v2",
    copy_to_host: "cuMemcpyDtoHAsync_v2",
    copy_on_device: "cuMemcpyDtoDAsync_v2",
    stream_create: "cuStreamCreateWithPriority",
    // The unversioned one waits for the stream's work.
    stream_destroy: "cuStreamDestroy_v2",
    stream_synchronize: "cuStreamSynchronize",
    stream_query: "cuStreamQuery",
    stream_wait: "cuStreamWaitEvent",
    stream_capturing: "cuStreamIsCapturing",
    capture_mode: "cuThreadExchangeStreamCaptureMode",
    event_create: "cuEventCreate",
    // The unversioned one is for another kind of context.
    event_destroy: "cuEventDestroy_v2",
    event_record: "cuEventRecord",
    event_synchronize: "cuEventSynchronize",
    event_query: "cuEventQuery",
    // The second version differs only in rounding, and was added late.
    event_elapsed: "cuEventElapsedTime",
    // We load text: the driver assembles it and caches the result on disk. Binaries that its linker makes of the same
    // text (`cuLinkComplete`) were 6 to 15 % slower on an H200.
    module_load: "cuModuleLoadDataEx",
    module_unload: "cuModuleUnload",
    module_function: "cuModuleGetFunction",
    function_attribute: "cuFuncGetAttribute",
    occupancy: "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    launch: "cuLaunchKernel",
    launch_resident: "cuLaunchCooperativeKernel",
    pool_create: "cuMemPoolCreate",
    pool_destroy: "cuMemPoolDestroy",
    pool_set: "cuMemPoolSetAttribute",
    pool_trim: "cuMemPoolTrimTo",
    pool_access: "cuMemPoolSetAccess",
    pool_allocate: "cuMemAllocFromPoolAsync",
    pool_free: "cuMemFreeAsync",
    graph_instantiate: "cuGraphInstantiateWithFlags",
    graph_launch: "cuGraphLaunch",
    graph_exec_destroy: "cuGraphExecDestroy",
    capture_begin: "cuStreamBeginCapture_v2",
    capture_end: "cuStreamEndCapture",
    graph_destroy: "cuGraphDestroy",
};

own_functions! {
    /// The functions that are specific to CUDA.
    Own {
        /// Name of a code.
        error_name = "cuGetErrorName"(c_int, *mut *const c_char);
        /// Description of a code.
        error_string = "cuGetErrorString"(c_int, *mut *const c_char);
        /// The primary context.
        primary_retain = "cuDevicePrimaryCtxRetain"(*mut CuContext, RawDevice);
        /// The thread's context.
        context_get = "cuCtxGetCurrent"(*mut CuContext);
        /// Sets it.
        context_set = "cuCtxSetCurrent"(CuContext);
        /// Pushes a context; the unversioned one works on another kind of context.
        context_push = "cuCtxPushCurrent_v2"(CuContext);
        /// Pops it.
        context_pop = "cuCtxPopCurrent_v2"(*mut CuContext);
        /// Copies from the memory of one context to that of another.
        copy_between = "cuMemcpyPeerAsync"(Address, CuContext, Address, CuContext, usize, RawStream);
        /// Sets a function's property.
        function_set = "cuFuncSetAttribute"(RawFunction, c_int, c_int);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_with_a_second_version_are_looked_up_by_it() {
        let names: Vec<&str> = NAMES.signatures().iter().chain(Own::SIGNATURES).map(|s| s.symbol).collect();
        // The functions used here that the driver exports in two versions.
        let versioned = [
            "cuDeviceTotalMem",
            "cuCtxPushCurrent",
            "cuCtxPopCurrent",
            "cuMemGetInfo",
            "cuMemAlloc",
            "cuMemFree",
            "cuMemcpyHtoDAsync",
            "cuMemcpyDtoHAsync",
            "cuMemcpyDtoDAsync",
            "cuStreamDestroy",
            "cuEventDestroy",
        ];
        for name in versioned {
            assert!(!names.contains(&name), "{name} is the old one");
            assert!(names.contains(&format!("{name}_v2").as_str()), "{name}_v2 is missing");
        }
    }
}
