//! Devices on the recording driver: how a test begins, and how it ends.

use std::sync::Arc;

use octants_runtime::{Device, DeviceConfig, Uninterruptible};

use crate::{Log, RecordingDriver};

/// A device and its log. Discards printed text.
pub fn device() -> (Device, Arc<Log>) {
    device_that(|driver| driver)
}

/// One whose driver has a setting.
pub fn device_that(is: impl FnOnce(RecordingDriver) -> RecordingDriver) -> (Device, Arc<Log>) {
    let log = Arc::new(Log::default());
    let config = DeviceConfig { seed: 1, sink: Arc::new(|_: &str| ()) };
    (Device::new(is(RecordingDriver::new(log.clone())), config), log)
}

/// Releases everything, and checks that there were no violations and that nothing is left.
#[track_caller]
pub fn finish(device: Device, log: &Log) {
    device.close(&Uninterruptible).expect("a device that is well ends without an error");
    drop(device);
    assert_eq!(log.mistakes(), Vec::<String>::new());
    assert_eq!(log.leaks(), Vec::<String>::new());
}
