//! The launcher's driver calls, recorded by a driver. It works asynchronously: queued work completes, and failures are
//! reported, only during a wait.

#![allow(clippy::unwrap_used)]

use std::cell::Cell;

use octants_artifact::{Artifact, ScalarKind, Site, SiteKind, SitePart, TaskMeta};
use octants_driver_recording::device;
use octants_runtime::{Caller, ErrorKind, Failure, Uninterruptible};

fn artifact(tasks: usize, frame_bytes: u64, results: usize) -> Artifact {
    let task = |n| TaskMeta { name: format!("task{n}"), ..TaskMeta::default() };
    Artifact {
        kernel: "k".into(),
        arg_slots: 2,
        frame_bytes,
        result: vec![ScalarKind::U64; results],
        tasks: (0..tasks).map(task).collect(),
        sites: vec![Site {
            kind: SiteKind::Assert,
            parts: vec![SitePart::Value { kind: ScalarKind::I32, shape: vec![], format: None }],
            location: "a.py:1".into(),
        }],
        ..Artifact::default()
    }
}

#[test]
fn a_launch_makes_one_call_per_task_and_nothing_else() {
    let (device, log) = device();
    let kernel = device.load(&artifact(3, 100, 0)).unwrap();
    log.take();
    for n in 0..3 {
        // SAFETY: the driver does not use arguments.
        assert_eq!(unsafe { device.default_stream().launch(&kernel, &[4, n], &Uninterruptible) }.unwrap(), None);
    }
    let mut expected = vec!["allocate 256 on 0".to_string()];
    for n in 0..3 {
        expected.extend((0..3).map(|t| format!("launch {t} [4, {n}] number {n} on 0")));
    }
    assert_eq!(log.take(), expected);
    // A smaller frame reuses the memory, a larger one replaces it. There are 64 bytes before each.
    let small = device.load(&artifact(1, 8, 0)).unwrap();
    let large = device.load(&artifact(1, 900, 0)).unwrap();
    log.take();
    // SAFETY: as above.
    unsafe {
        device.default_stream().launch(&small, &[0, 0], &Uninterruptible).unwrap();
        device.default_stream().launch(&large, &[0, 0], &Uninterruptible).unwrap();
    }
    let calls = log.take();
    assert_eq!(
        calls,
        ["launch 0 [0, 0] number 3 on 0", "allocate 1024 on 0", "free 256 on 0", "launch 0 [0, 0] number 4 on 0"]
    );
}

#[test]
fn only_a_launch_with_a_result_waits_after_announcing_it() {
    struct Told(Cell<bool>);
    impl Caller for Told {
        fn will_block(&self) {
            self.0.set(true);
        }
    }
    let (device, log) = device();
    let none = device.load(&artifact(1, 0, 0)).unwrap();
    let told = Told(Cell::new(false));
    // SAFETY: the driver does not use arguments.
    unsafe { device.default_stream().launch(&none, &[0, 0], &told).unwrap() };
    assert!(!told.0.get() && !log.take().contains(&"synchronize 0".to_string()));
    for results in [1, 4, 5, 16] {
        let kernel = device.load(&artifact(1, 0, results)).unwrap();
        let number = device.launches();
        // SAFETY: as above.
        let got = unsafe { device.default_stream().launch(&kernel, &[0, 0], &told) }.unwrap().unwrap();
        assert_eq!((got.slots().len(), got.slots()[0]), (results, number + 100));
        assert!(told.0.get() && log.take().contains(&"synchronize 0".to_string()));
    }
}

#[test]
fn a_failure_is_reported_once_by_the_next_wait() {
    let (device, log) = device();
    let kernel = device.load(&artifact(1, 0, 0)).unwrap();
    log.fail_task();
    // SAFETY: the driver does not use arguments.
    unsafe { device.default_stream().launch(&kernel, &[0, 0], &Uninterruptible) }.unwrap();
    let error = device.synchronize(&Uninterruptible).unwrap_err();
    let failure = Failure {
        kernel: "k".into(),
        message: "5".into(),
        location: "a.py:1".into(),
        step: None,
        stream: 0,
        race: None,
    };
    assert_eq!(*error.kind(), ErrorKind::Assertion(failure));
    assert_eq!(error.to_string(), "5\n  in kernel `k` at a.py:1");
    device.synchronize(&Uninterruptible).unwrap();
}

#[test]
fn errors_of_calls_are_returned_and_leave_the_stream_usable() {
    let (device, log) = device();
    let kernel = device.load(&artifact(2, 0, 1)).unwrap();
    // After the allocation of the result's memory.
    log.fail_call(1);
    // SAFETY: the driver does not use arguments.
    let error = unsafe { device.default_stream().launch(&kernel, &[0, 0], &Uninterruptible) }.unwrap_err();
    assert_eq!(error.to_string(), "launch failed with code 7 (INJECTED) while launch 0 [0, 0] number 0 on 0");
    // SAFETY: as above.
    assert!(unsafe { device.default_stream().launch(&kernel, &[0, 0], &Uninterruptible) }.is_ok());
    let held = device.allocate(1000).unwrap();
    let error = device.allocate(1 << 40).unwrap_err();
    assert_eq!(
        error.to_string(),
        "out of memory: 1.0 TiB requested on the recorder, this program already uses 1000 bytes"
    );
    drop(held);
}

#[test]
fn copies_are_checked_against_buffers_and_devices() {
    let (device, log) = device();
    let (other, _) = self::device();
    let stream = device.default_stream();
    let (a, b, foreign) = (device.allocate(16).unwrap(), device.allocate(16).unwrap(), other.allocate(16).unwrap());
    log.take();
    stream.write(&a, 8, &[0; 8], &Uninterruptible).unwrap();
    stream.copy(&b, 0, &a, 8, 8, &Uninterruptible).unwrap();
    stream.read(&b, 0, &mut [0; 16], &Uninterruptible).unwrap();
    let expected =
        ["copy_to_device 8 on 0", "synchronize 0", "copy_on_device 8 on 0", "copy_to_host 16 on 0", "synchronize 0"];
    assert_eq!(log.take(), expected);
    assert!(matches!(stream.write(&a, 9, &[0; 8], &Uninterruptible).unwrap_err().kind(), ErrorKind::OutOfRange { .. }));
    assert!(matches!(
        stream.copy(&a, 0, &b, 16, 1, &Uninterruptible).unwrap_err().kind(),
        ErrorKind::OutOfRange { .. }
    ));
    let error = stream.copy(&a, 0, &foreign, 0, 1, &Uninterruptible).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ForeignDevice { .. }));
    assert!(log.take().is_empty());
}

#[test]
fn everything_is_released() {
    let (device, log) = device();
    let kernel = device.load(&artifact(2, 64, 20)).unwrap();
    let buffers: Vec<_> = (1..10).map(|n| device.allocate(n * 8).unwrap()).collect();
    // SAFETY: the driver does not use arguments.
    unsafe { device.default_stream().launch(&kernel, &[0, 0], &Uninterruptible) }.unwrap();
    let (stream, pinned) = (device.default_stream().clone(), buffers[3].pin().unwrap());
    drop(buffers);
    log.take();
    device.close(&Uninterruptible).unwrap();
    assert_eq!(log.take(), ["synchronize 0", "synchronize 0", "close"]);
    drop(device);
    drop(kernel);
    assert_eq!(log.take(), ["unload"]);
    drop(pinned);
    drop(stream);
    assert_eq!(log.take(), ["free 32 on 0", "synchronize 0", "free 256 on 0", "free_pinned 256"]);
    assert!(log.leaks().is_empty() && log.mistakes().is_empty());
}
