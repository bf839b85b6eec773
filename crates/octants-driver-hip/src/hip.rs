//! [`Hip`]: HIP's constants and words, and its functions that differ from those of other vendors.
//!
//! A thread works on the device that it has set, device 0 at first. The only contexts are the devices' primary ones.

use std::ffi::{CStr, c_char, c_int, c_void};

use octants_driver_gpu::symbols::number::{HOST_DEVICE_MAPPED, HOST_PORTABLE};
use octants_driver_gpu::symbols::{RawDevice, RawFunction, RawStream};
use octants_driver_gpu::{Called, Facts, Located, Place, Vendor};

use crate::symbols::{Own, code, number, since};

/// The parts specific to HIP.
#[derive(Debug)]
pub struct Hip(pub Own);

static FACTS: Facts = Facts {
    api: "HIP",
    visible: "HIP_VISIBLE_DEVICES",
    gpu: "AMD GPU",
    dlpack: 10,
    // PyTorch and CuPy for ROCm export their arrays under CUDA's name.
    array_protocol: Some("__cuda_array_interface__"),
    null_stream: 0,
    // DLPack forbids CUDA's 1 here. Work that waits on our default stream, which is our 0, also waits on the null
    // stream.
    unnamed_stream: 0,
    final_codes: &[
        code::ECC_NOT_CORRECTABLE,
        code::ILLEGAL_ADDRESS,
        code::LAUNCH_TIME_OUT,
        code::CONTEXT_IS_DESTROYED,
        code::ASSERT,
        code::LAUNCH_FAILURE,
    ],
    multiprocessors: number::DEVICE_MULTIPROCESSOR_COUNT,
    cooperates: number::DEVICE_COOPERATIVE_LAUNCH,
    warp: number::DEVICE_WARP_SIZE,
    clock_rate: None,
    pools: number::DEVICE_MEMORY_POOLS_SUPPORTED,
    host_flags: HOST_PORTABLE | HOST_DEVICE_MAPPED | number::HOST_COHERENT,
    assembles: false,
};

fn called<T>(name: &'static str, code: c_int, value: T) -> Called<T> {
    if code == code::SUCCESS { Ok(value) } else { Err((name, code)) }
}

/// The message for a function that the library lacks.
pub fn explain_missing(symbol: &str) -> String {
    format!("HIP's library has no {symbol}: ROCm {} or newer is needed", since(symbol))
}

impl Vendor for Hip {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    fn describe(&self, c: c_int) -> String {
        let text = |f: unsafe extern "C" fn(c_int) -> *const c_char| {
            // SAFETY: the function returns a text that lives as long as the library, or nothing.
            unsafe {
                let at = f(c);
                (!at.is_null()).then(|| CStr::from_ptr(at).to_string_lossy().into_owned())
            }
        };
        match (text(self.0.error_name), text(self.0.error_string)) {
            (Some(name), Some(sentence)) if name != sentence => format!("{name}: {sentence}"),
            (Some(name), _) => name,
            _ => "an unknown error".into(),
        }
    }

    fn explain_missing(&self, symbol: &str) -> String {
        explain_missing(symbol)
    }

    fn open(&self, device: RawDevice) -> Called<Place> {
        // The library makes the primary context when the device is first used.
        Ok(Place(device as u64))
    }

    #[inline]
    fn current(&self) -> Called<Place> {
        let mut device = 0;
        // SAFETY: the pointer is to a variable.
        let c = unsafe { (self.0.device_current)(&mut device) };
        called("hipGetDevice", c, Place(device as u64))
    }

    unsafe fn switch(&self, _from: Place, to: Place) -> Called<bool> {
        // SAFETY: devices are numbers.
        called("hipSetDevice", unsafe { (self.0.device_set)(to.0 as c_int) }, true)
    }

    unsafe fn switch_back(&self, from: Place) {
        // SAFETY: as above. An error cannot be reported.
        let _ = unsafe { (self.0.device_set)(from.0 as c_int) };
    }

    unsafe fn allow_block_memory(&self, _function: RawFunction, _bytes: u32) -> Called<()> {
        // Code declares all shared memory statically.
        Ok(())
    }

    unsafe fn copy_between(
        &self,
        (to, own): (u64, Located),
        (from, peer): (u64, Located),
        bytes: usize,
        stream: RawStream,
    ) -> Called<()> {
        let (to, from) = (to as *mut c_void, from as *const c_void);
        // SAFETY: the trait's contract.
        let c = unsafe { (self.0.copy_between)(to, own.device, from, peer.device, bytes, stream) };
        called("hipMemcpyPeerAsync", c, ())
    }

    fn forget_error(&self) {
        // SAFETY: the function has no parameters.
        let _ = unsafe { (self.0.last_error)() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbols::NAMES;

    #[test]
    fn s23_a_missing_function_is_named_with_the_version_that_has_it() {
        let text = explain_missing(NAMES.pool_allocate);
        assert_eq!(text, "HIP's library has no hipMallocFromPoolAsync: ROCm 5.4 or newer is needed");
        assert!(explain_missing(NAMES.launch).contains("ROCm 4.2"));
    }
}
