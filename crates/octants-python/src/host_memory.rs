//! Decides whether an array is in host memory or in the memory of the program's device.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::{dlpack, program};

/// Whether a DLPack device is the host. An error if it is neither the host nor the program's device.
pub fn is_host(device: (i32, i32), name: impl Fn() -> String) -> PyResult<bool> {
    if dlpack::is_host(device) {
        return Ok(true);
    }
    let own = program::dlpack_device();
    if device == own {
        return Ok(false);
    }
    let (name, runs) = (name(), program::device_name());
    let hint =
        if dlpack::is_host(own) { "to the host (`.cpu()`) first" } else { "to that device, or to the host, first" };
    Err(PyValueError::new_err(format!("an array on {name} cannot be used by a kernel on {runs}: move it {hint}")))
}
