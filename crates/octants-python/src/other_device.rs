//! The error for a kernel that would use memory of another device. Its code would treat an address of that device as
//! one of its own.

use pyo3::prelude::*;

use crate::errors::exception;
use crate::program::name_of;

/// The error for a kernel that would use another device's memory. `what` describes the memory.
#[cold]
pub fn other_device(py: Python<'_>, kernel: Option<&str>, runs: u64, what: &str, lies: u64) -> PyErr {
    let (runs, lies) = (name_of(runs), name_of(lies));
    let kernel = kernel.map_or_else(|| String::from("a kernel"), |name| format!("kernel `{name}`"));
    let text = format!(
        "{kernel} runs on {runs}, the current device, and {what} is on {lies}: call it in `with \
         qd.device(\"{lies}\"):`, or copy the data to one device with copy_from()"
    );
    exception(py, "OctantsRuntimeTypeError", text)
}
