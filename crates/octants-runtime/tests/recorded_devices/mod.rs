//! Two devices with drivers that record the calls of both, and kernels for them.

use std::sync::Arc;

use octants_artifact::{Artifact, TaskMeta};
use octants_driver_recording::{Log, RecordingDriver};
use octants_runtime::{Buffer, Device, DeviceConfig, LoadedKernel, Pointer, Stream, Uninterruptible};

/// Two devices whose drivers record their calls in one log.
pub fn devices() -> ([Device; 2], Arc<Log>) {
    let log = Arc::new(Log::default());
    let device = |number| {
        let driver = RecordingDriver::new(log.clone()).numbered(number);
        Device::new(driver, DeviceConfig { seed: 0, sink: Arc::new(|_: &str| {}) })
    };
    ([device(0), device(1)], log)
}

/// A kernel of one task that writes to its only argument.
pub fn kernel(device: &Device, name: &str) -> LoadedKernel {
    let artifact = Artifact {
        kernel: name.into(),
        arg_slots: 1,
        tasks: vec![TaskMeta { name: name.into(), ..TaskMeta::default() }],
        ..Artifact::default()
    };
    device.load(&artifact).unwrap().with_pointers(vec![Pointer { slot: 0, written: true, buffer: None }])
}

/// Launches such a kernel on a buffer.
pub fn launch(on: &Stream, kernel: &LoadedKernel, buffer: &Buffer) {
    // SAFETY: the argument is the buffer's address, and the driver runs nothing.
    unsafe { on.launch(kernel, &[buffer.ptr().unwrap()], &Uninterruptible) }.unwrap();
}
