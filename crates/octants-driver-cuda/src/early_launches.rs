//! Launches of kernels that may start before the previous kernel ends: programmatic dependent launch.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

use octants_driver_gpu::symbols::{RawFunction, RawStream};
use octants_driver_gpu::{GridShape, own_functions};

/// `CUlaunchAttribute`: a number, and 64 bytes of a union.
#[repr(C)]
#[derive(Debug)]
pub struct LaunchAttribute {
    id: c_uint,
    padding: [u8; 4],
    value: [u64; 8],
}

const _: () = assert!(size_of::<LaunchAttribute>() == 72);

impl LaunchAttribute {
    /// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`, allowed.
    const EARLY: LaunchAttribute = LaunchAttribute { id: 6, padding: [0; 4], value: [1, 0, 0, 0, 0, 0, 0, 0] };
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Debug)]
pub struct LaunchConfig {
    blocks: [c_uint; 3],
    threads: [c_uint; 3],
    shared_bytes: c_uint,
    stream: RawStream,
    attributes: *const LaunchAttribute,
    attribute_count: c_uint,
}

const _: () = assert!(size_of::<LaunchConfig>() == 56);

own_functions! {
    /// The launch with attributes. Absent if the driver lacks it.
    EarlyLaunches {
        /// Launches a kernel.
        launch = "cuLaunchKernelEx"(*const LaunchConfig, RawFunction, *mut *mut c_void, *mut *mut c_void);
    }
}

impl EarlyLaunches {
    /// Launches a kernel whose code waits for the stream's previous work.
    ///
    /// # Safety
    /// The function's module is loaded, the stream alive, and `parameters` are the function's.
    pub unsafe fn launch_early(
        &self,
        function: RawFunction,
        shape: GridShape,
        stream: RawStream,
        parameters: *mut *mut c_void,
    ) -> c_int {
        let config = LaunchConfig {
            blocks: [shape.blocks, 1, 1],
            threads: [shape.threads, 1, 1],
            shared_bytes: shape.block_bytes,
            stream,
            attributes: &LaunchAttribute::EARLY,
            attribute_count: 1,
        };
        // SAFETY: the contract above; the driver copies the configuration.
        unsafe { (self.launch)(&config, function, parameters, null_mut()) }
    }
}
