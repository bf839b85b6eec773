//! [`Cuda`]: CUDA's constants and words, and its functions that differ from those of other vendors.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;

use octants_driver_gpu::symbols::number::{HOST_DEVICE_MAPPED, HOST_PORTABLE};
use octants_driver_gpu::symbols::{RawDevice, RawFunction, RawStream};
use octants_driver_gpu::{Called, Facts, Graphs, GridShape, Located, Place, Vendor};

use crate::early_launches::EarlyLaunches;
use crate::graphs::CudaGraphs;
use crate::symbols::{CuContext, Own, code, number};

/// The parts specific to CUDA.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Cuda {
    pub own: Own,
    /// If the driver has graphs.
    pub graphs: Option<CudaGraphs>,
    /// If the driver has launches with attributes.
    pub early: Option<EarlyLaunches>,
}

static FACTS: Facts = Facts {
    api: "CUDA",
    visible: "CUDA_VISIBLE_DEVICES",
    gpu: "NVIDIA GPU",
    dlpack: 2,
    array_protocol: Some("__cuda_array_interface__"),
    // `CU_STREAM_LEGACY`: zero may mean the per-thread stream.
    null_stream: 1,
    unnamed_stream: 1,
    final_codes: &[
        code::ECC_UNCORRECTABLE,
        code::NVLINK_UNCORRECTABLE,
        code::ILLEGAL_ADDRESS,
        code::LAUNCH_TIMEOUT,
        code::CONTEXT_IS_DESTROYED,
        code::ASSERT,
        code::HARDWARE_STACK_ERROR,
        code::ILLEGAL_INSTRUCTION,
        code::MISALIGNED_ADDRESS,
        code::INVALID_ADDRESS_SPACE,
        code::INVALID_PC,
        code::LAUNCH_FAILED,
    ],
    multiprocessors: number::DEVICE_MULTIPROCESSOR_COUNT,
    cooperates: number::DEVICE_COOPERATIVE_LAUNCH,
    warp: number::DEVICE_WARP_SIZE,
    clock_rate: Some(number::DEVICE_CLOCK_RATE),
    pools: number::DEVICE_MEMORY_POOLS_SUPPORTED,
    host_flags: HOST_PORTABLE | HOST_DEVICE_MAPPED,
    assembles: true,
};

fn called<T>(name: &'static str, code: c_int, value: T) -> Called<T> {
    if code == code::SUCCESS { Ok(value) } else { Err((name, code)) }
}

fn explain_missing(symbol: &str) -> String {
    format!("the NVIDIA driver is too old: it has no {symbol}; install a driver for CUDA 11.2 or newer")
}

impl Vendor for Cuda {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    fn describe(&self, c: c_int) -> String {
        let text = |f: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int| {
            let mut at: *const c_char = null_mut();
            // SAFETY: the function sets the pointer to a text that lives as long as the library, or leaves it.
            unsafe {
                let _ = f(c, &mut at);
                (!at.is_null()).then(|| CStr::from_ptr(at).to_string_lossy().into_owned())
            }
        };
        match (text(self.own.error_name), text(self.own.error_string)) {
            (Some(name), Some(sentence)) => format!("{name}: {sentence}"),
            (Some(name), None) => name,
            _ => "an unknown error".into(),
        }
    }

    fn explain_missing(&self, symbol: &str) -> String {
        explain_missing(symbol)
    }

    fn open(&self, device: RawDevice) -> Called<Place> {
        let mut context = null_mut();
        // SAFETY: the pointer is to a variable.
        let c = unsafe { (self.own.primary_retain)(&mut context, device) };
        called("cuDevicePrimaryCtxRetain", c, Place(context as u64))
    }

    #[inline]
    fn current(&self) -> Called<Place> {
        let mut context = null_mut();
        // SAFETY: as above.
        let c = unsafe { (self.own.context_get)(&mut context) };
        called("cuCtxGetCurrent", c, Place(context as u64))
    }

    unsafe fn switch(&self, from: Place, to: Place) -> Called<bool> {
        let to = to.0 as CuContext;
        // SAFETY: the context is retained.
        unsafe {
            if from.0 == 0 {
                return called("cuCtxSetCurrent", (self.own.context_set)(to), false);
            }
            // Another device was current: restore it, or its user would find this one current.
            called("cuCtxPushCurrent_v2", (self.own.context_push)(to), true)
        }
    }

    unsafe fn switch_back(&self, _from: Place) {
        let mut context = null_mut();
        // SAFETY: pushed by `switch`. An error cannot be reported.
        let _ = unsafe { (self.own.context_pop)(&mut context) };
    }

    unsafe fn allow_block_memory(&self, function: RawFunction, bytes: u32) -> Called<()> {
        // SAFETY: the trait's contract.
        let c = unsafe {
            (self.own.function_set)(function, number::FUNCTION_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes as c_int)
        };
        called("cuFuncSetAttribute", c, ())
    }

    unsafe fn copy_between(
        &self,
        (to, own): (u64, Located),
        (from, peer): (u64, Located),
        bytes: usize,
        stream: RawStream,
    ) -> Called<()> {
        let (own, peer) = (own.place.0 as CuContext, peer.place.0 as CuContext);
        // SAFETY: the trait's contract.
        let c = unsafe { (self.own.copy_between)(to, own, from, peer, bytes, stream) };
        called("cuMemcpyPeerAsync", c, ())
    }

    unsafe fn launch_early(
        &self,
        function: RawFunction,
        shape: GridShape,
        stream: RawStream,
        parameters: *mut *mut c_void,
    ) -> Option<Called<()>> {
        let early = self.early.as_ref()?;
        // SAFETY: the trait's contract.
        let code = unsafe { early.launch_early(function, shape, stream, parameters) };
        Some(called("cuLaunchKernelEx", code, ()))
    }

    fn graphs(&self) -> Option<&dyn Graphs> {
        self.graphs.as_ref().map(|graphs| graphs as &dyn Graphs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbols::NAMES;

    #[test]
    fn s23_a_function_missing_from_an_old_driver_is_named_with_the_version_that_has_it() {
        let text = explain_missing(NAMES.pool_allocate);
        let expected =
            "the NVIDIA driver is too old: it has no cuMemAllocFromPoolAsync; install a driver for CUDA 11.2 or newer";
        assert_eq!(text, expected);
    }
}
