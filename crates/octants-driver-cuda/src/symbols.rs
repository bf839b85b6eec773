//! The functions of the driver library, by the exact names it exports.
//!
//! CUDA's headers give several functions a newer version under their old name (`cuStreamDestroy` is a macro for `cuStreamDestroy_v2`); the
//! library exports both, and only the versioned one has today's behaviour. The table names what is meant. Results are plain
//! integers here: a newer driver may return codes that no enumeration of ours lists.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libloading::Library;

/// A device by its number.
pub type CuDevice = c_int;
/// A context.
pub type CuContext = *mut c_void;
/// A stream.
pub type CuStream = *mut c_void;
/// An event.
pub type CuEvent = *mut c_void;
/// A module.
pub type CuModule = *mut c_void;
/// A function of a module.
pub type CuFunction = *mut c_void;
/// A memory pool.
pub type CuPool = *mut c_void;
/// Called by the occupancy calculator; not used here.
pub type SharedForBlock = Option<unsafe extern "C" fn(c_int) -> usize>;

/// Codes that something here depends on.
pub mod code {
    #![allow(missing_docs)]
    pub const SUCCESS: i32 = 0;
    pub const OUT_OF_MEMORY: i32 = 2;
    pub const NOT_INITIALIZED: i32 = 3;
    pub const DEINITIALIZED: i32 = 4;
    pub const STUB_LIBRARY: i32 = 34;
    pub const NO_DEVICE: i32 = 100;
    pub const INVALID_DEVICE: i32 = 101;
    pub const ECC_UNCORRECTABLE: i32 = 214;
    pub const NVLINK_UNCORRECTABLE: i32 = 220;
    pub const NOT_READY: i32 = 600;
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

/// Attributes of devices and functions, and flags, by CUDA's numbers.
pub mod number {
    #![allow(missing_docs)]
    pub const DEVICE_MULTIPROCESSOR_COUNT: i32 = 16;
    pub const DEVICE_UNIFIED_ADDRESSING: i32 = 41;
    pub const DEVICE_CAPABILITY_MAJOR: i32 = 75;
    pub const DEVICE_CAPABILITY_MINOR: i32 = 76;
    pub const DEVICE_MEMORY_POOLS_SUPPORTED: i32 = 115;
    pub const FUNCTION_MAX_THREADS_PER_BLOCK: i32 = 0;
    pub const FUNCTION_LOCAL_SIZE_BYTES: i32 = 3;
    pub const STREAM_DEFAULT: u32 = 0;
    pub const STREAM_NON_BLOCKING: u32 = 1;
    pub const EVENT_DEFAULT: u32 = 0;
    pub const EVENT_DISABLE_TIMING: u32 = 2;
    pub const HOST_PORTABLE: u32 = 1;
    pub const HOST_DEVICE_MAPPED: u32 = 2;
    pub const CAPTURE_MODE_RELAXED: i32 = 2;
    pub const POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES: i32 = 3;
    pub const POOL_RELEASE_THRESHOLD: i32 = 4;
    pub const JIT_INFO_LOG_BUFFER: i32 = 3;
    pub const JIT_INFO_LOG_BUFFER_SIZE: i32 = 4;
    pub const JIT_ERROR_LOG_BUFFER: i32 = 5;
    pub const JIT_ERROR_LOG_BUFFER_SIZE: i32 = 6;
}

/// What a new memory pool is made from: `CUmemPoolProps`.
#[repr(C)]
#[derive(Debug)]
pub struct PoolProperties {
    /// 1: memory that stays where it is.
    pub allocation: c_uint,
    /// 0: not to be shared with other processes.
    pub handles: c_uint,
    /// 1: on a device.
    pub location: c_uint,
    /// Its number.
    pub device: c_int,
    /// For another system.
    pub security: *mut c_void,
    /// 0 for the driver's limit, and what comes in later versions.
    pub rest: [u64; 8],
}

const _: () = assert!(size_of::<PoolProperties>() == 88);

macro_rules! symbols {
    (
        required { $($(#[$doc:meta])* $name:ident = $symbol:literal ($($arg:ty),*);)* }
        optional { $($(#[$odoc:meta])* $oname:ident = $osymbol:literal ($($oarg:ty),*);)* }
    ) => {
        /// The library's functions.
        #[derive(Debug)]
        pub struct Symbols {
            $($(#[$doc])* pub $name: unsafe extern "C" fn($($arg),*) -> c_int,)*
            $($(#[$odoc])* pub $oname: Option<unsafe extern "C" fn($($oarg),*) -> c_int>,)*
        }

        /// The exported name of each function, for messages.
        #[allow(non_upper_case_globals, missing_docs)]
        pub mod names {
            $(pub const $name: &str = $symbol;)*
            $(pub const $oname: &str = $osymbol;)*
        }

        impl Symbols {
            /// The exported names, those first that every driver new enough has.
            pub const NAMES: &'static [&'static str] = &[$($symbol,)* $($osymbol,)*];

            /// Looks all functions up. The error is the name of one that is missing.
            ///
            /// # Safety
            /// The library is CUDA's, and stays loaded as long as the functions are used.
            pub unsafe fn find(library: &Library) -> Result<Symbols, &'static str> {
                // SAFETY: the names and types are those of CUDA's headers.
                unsafe {
                    Ok(Symbols {
                        $($name: *library.get($symbol.as_bytes()).map_err(|_| $symbol)?,)*
                        $($oname: library.get($osymbol.as_bytes()).ok().map(|f| *f),)*
                    })
                }
            }
        }
    };
}

symbols! {
    required {
        /// Starts the library.
        init = "cuInit"(c_uint);
        /// The CUDA version the driver supports.
        driver_version = "cuDriverGetVersion"(*mut c_int);
        /// Name of a code.
        error_name = "cuGetErrorName"(c_int, *mut *const c_char);
        /// Sentence of a code.
        error_string = "cuGetErrorString"(c_int, *mut *const c_char);
        /// Number of devices.
        device_count = "cuDeviceGetCount"(*mut c_int);
        /// A device by its ordinal.
        device_get = "cuDeviceGet"(*mut CuDevice, c_int);
        /// A device's name.
        device_name = "cuDeviceGetName"(*mut c_char, c_int, CuDevice);
        /// A device's ability.
        device_attribute = "cuDeviceGetAttribute"(*mut c_int, c_int, CuDevice);
        /// A device's memory; the unversioned one counts in 32 bits.
        device_memory = "cuDeviceTotalMem_v2"(*mut usize, CuDevice);
        /// The context that the process shares.
        primary_retain = "cuDevicePrimaryCtxRetain"(*mut CuContext, CuDevice);
        /// The thread's context.
        context_get = "cuCtxGetCurrent"(*mut CuContext);
        /// Sets it.
        context_set = "cuCtxSetCurrent"(CuContext);
        /// Sets it over another; the unversioned one works on another kind of context.
        context_push = "cuCtxPushCurrent_v2"(CuContext);
        /// Takes it off.
        context_pop = "cuCtxPopCurrent_v2"(*mut CuContext);
        /// Waits for everything.
        context_synchronize = "cuCtxSynchronize"();
        /// Range of priorities.
        priority_range = "cuCtxGetStreamPriorityRange"(*mut c_int, *mut c_int);
        /// Free and total memory.
        memory_info = "cuMemGetInfo_v2"(*mut usize, *mut usize);
        /// Memory, at once.
        allocate = "cuMemAlloc_v2"(*mut u64, usize);
        /// Gives it back.
        free = "cuMemFree_v2"(u64);
        /// Pinned memory.
        host_allocate = "cuMemHostAlloc"(*mut *mut c_void, usize, c_uint);
        /// Gives it back.
        host_free = "cuMemFreeHost"(*mut c_void);
        /// Sets bytes.
        memset = "cuMemsetD8Async"(u64, u8, usize, CuStream);
        /// Host to device.
        copy_to_device = "cuMemcpyHtoDAsync_v2"(u64, *const c_void, usize, CuStream);
        /// Device to host.
        copy_to_host = "cuMemcpyDtoHAsync_v2"(*mut c_void, u64, usize, CuStream);
        /// Device to device.
        copy_on_device = "cuMemcpyDtoDAsync_v2"(u64, u64, usize, CuStream);
        /// A new stream.
        stream_create = "cuStreamCreateWithPriority"(*mut CuStream, c_uint, c_int);
        /// Gives it back; the unversioned one waits for its work.
        stream_destroy = "cuStreamDestroy_v2"(CuStream);
        /// Waits for a stream.
        stream_synchronize = "cuStreamSynchronize"(CuStream);
        /// Whether its work is done.
        stream_query = "cuStreamQuery"(CuStream);
        /// Makes it wait for an event.
        stream_wait = "cuStreamWaitEvent"(CuStream, CuEvent, c_uint);
        /// Whether it is being captured.
        stream_capturing = "cuStreamIsCapturing"(CuStream, *mut c_int);
        /// What other threads' captures keep this thread from; sets and returns it.
        capture_mode = "cuThreadExchangeStreamCaptureMode"(*mut c_int);
        /// A new event.
        event_create = "cuEventCreate"(*mut CuEvent, c_uint);
        /// Gives it back; the unversioned one is of another kind of context.
        event_destroy = "cuEventDestroy_v2"(CuEvent);
        /// Records it.
        event_record = "cuEventRecord"(CuEvent, CuStream);
        /// Waits for it.
        event_synchronize = "cuEventSynchronize"(CuEvent);
        /// Whether it is done.
        event_query = "cuEventQuery"(CuEvent);
        /// Time between two. The second version differs in rounding alone and came late.
        event_elapsed = "cuEventElapsedTime"(*mut f32, CuEvent, CuEvent);
        /// Loads code.
        module_load = "cuModuleLoadDataEx"(*mut CuModule, *const c_void, c_uint, *mut c_int, *mut *mut c_void);
        /// Unloads it.
        module_unload = "cuModuleUnload"(CuModule);
        /// A function by its name.
        module_function = "cuModuleGetFunction"(*mut CuFunction, CuModule, *const c_char);
        /// A function's property.
        function_attribute = "cuFuncGetAttribute"(*mut c_int, c_int, CuFunction);
        /// Blocks that one multiprocessor holds at once.
        occupancy = "cuOccupancyMaxActiveBlocksPerMultiprocessor"(*mut c_int, CuFunction, c_int, usize);
        /// The block size that fills the device best.
        best_block = "cuOccupancyMaxPotentialBlockSize"(
            *mut c_int, *mut c_int, CuFunction, SharedForBlock, usize, c_int);
        /// Launches.
        launch = "cuLaunchKernel"(
            CuFunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint,
            CuStream, *mut *mut c_void, *mut *mut c_void);
    }
    optional {
        /// Memory in the order of a stream: CUDA 11.2.
        pool_create = "cuMemPoolCreate"(*mut CuPool, *const PoolProperties);
        /// CUDA 11.2.
        pool_destroy = "cuMemPoolDestroy"(CuPool);
        /// CUDA 11.2.
        pool_set = "cuMemPoolSetAttribute"(CuPool, c_int, *mut c_void);
        /// CUDA 11.2.
        pool_trim = "cuMemPoolTrimTo"(CuPool, usize);
        /// CUDA 11.2.
        pool_allocate = "cuMemAllocFromPoolAsync"(*mut u64, usize, CuPool, CuStream);
        /// CUDA 11.2.
        pool_free = "cuMemFreeAsync"(u64, CuStream);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_with_a_second_version_are_asked_for_by_it() {
        // What the driver exports in two versions, of what is used here.
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
            assert!(!Symbols::NAMES.contains(&name), "{name} is the old one");
            assert!(Symbols::NAMES.contains(&format!("{name}_v2").as_str()), "{name}_v2 is missing");
        }
    }
}
