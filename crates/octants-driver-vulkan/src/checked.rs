//! Results of Vulkan calls as errors that name the call, its result, and the operation.

use ash::vk;
use octants_runtime::{DeviceError, ErrorKind};

/// The error of a call.
pub fn failed(call: &'static str, code: vk::Result, doing: impl Into<String>) -> DeviceError {
    let doing = doing.into();
    if code == vk::Result::ERROR_DEVICE_LOST {
        let cause = format!("{call} failed with code {} ({code:?}) while {doing}", code.as_raw());
        return ErrorKind::Lost { cause }.into();
    }
    ErrorKind::Call { call, code: i64::from(code.as_raw()), name: format!("{code:?}"), doing }.into()
}
