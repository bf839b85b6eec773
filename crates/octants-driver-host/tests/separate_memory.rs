//! The CPU as a device whose memory the host cannot address: copies and refusals.

#![allow(clippy::unwrap_used)]

mod hand_made;

use std::sync::Arc;

use hand_made::{artifact, parallel, serial};
use octants_driver_host::{HostConfig, HostDriver};
use octants_runtime::{Device, DeviceConfig, ErrorKind, Pointer, Uninterruptible};

fn device(schedule: Option<u64>) -> Device {
    let host = HostConfig { max_threads: Some(2), schedule, separate_memory: true, ..HostConfig::default() };
    Device::new(HostDriver::new(host), DeviceConfig { seed: 1, sink: Arc::new(|_: &str| ()) })
}

const SCHEDULES: [Option<u64>; 2] = [None, Some(3)];

#[test]
fn bytes_are_read_back_at_any_size_and_offset() {
    for schedule in SCHEDULES {
        let device = device(schedule);
        let buffer = device.allocate(5 << 20).unwrap();
        let sizes = [1, 7, 1 << 20, (1 << 20) + 1, (3 << 20) + 5];
        for (n, offset) in sizes.into_iter().zip([0, 13, 64, 1, 999]) {
            let from: Vec<u8> = (0..n).map(|i| (i % 251) as u8 + 1).collect();
            buffer.write(offset, &from, &Uninterruptible).unwrap();
            let mut to = vec![0; n + 1];
            buffer.read(offset, &mut to, &Uninterruptible).unwrap();
            assert_eq!(to[..n], from);
        }
        assert!(matches!(
            buffer.read(5 << 20, &mut [0], &Uninterruptible).unwrap_err().kind(),
            ErrorKind::OutOfRange { .. }
        ));
        device.close(&Uninterruptible).unwrap();
        assert!(matches!(buffer.write(0, &[1], &Uninterruptible).unwrap_err().kind(), ErrorKind::ProgramGone { .. }));
    }
}

#[test]
fn s19_copies_wait_for_conflicting_work_only() {
    for schedule in [None, Some(5)] {
        let device = device(schedule);
        let increment = device.load(&artifact(2, vec![parallel("increment", "count_arg1", 5.0)])).unwrap();
        let increment = increment.with_pointers(vec![Pointer { slot: 0, written: true, buffer: None }]);
        let spin = device.load(&artifact(1, vec![serial("spin")])).unwrap();
        let (busy, stream) = (device.create_stream(0).unwrap(), device.create_stream(0).unwrap());
        let buffer = device.allocate(4000).unwrap();
        let done = device.create_event(false).unwrap();
        // SAFETY: the task only reads its argument.
        unsafe { busy.launch(&spin, &[200_000_000], &Uninterruptible) }.unwrap();
        done.record(&busy).unwrap();
        for round in 1..20i32 {
            // SAFETY: the buffer lives and has this many elements.
            unsafe { stream.launch(&increment, &[buffer.ptr().unwrap(), 1000], &Uninterruptible) }.unwrap();
            let mut last = [0; 4];
            buffer.read(3996, &mut last, &Uninterruptible).unwrap();
            assert_eq!(i32::from_ne_bytes(last), round);
            buffer.write(3992, &(-round).to_ne_bytes(), &Uninterruptible).unwrap();
        }
        let mut last = [0; 4];
        buffer.read(3992, &mut last, &Uninterruptible).unwrap();
        assert_eq!(i32::from_ne_bytes(last), -19);
        if schedule.is_none() {
            assert!(!done.query().unwrap(), "a stream that does not use the buffer was waited for");
        }
        device.close(&Uninterruptible).unwrap();
    }
}

#[test]
fn a_host_address_is_refused() {
    for schedule in SCHEDULES {
        let device = device(schedule);
        let kernel = device.load(&artifact(2, vec![parallel("increment", "count_arg1", 5.0)])).unwrap();
        let kernel = kernel.with_pointers(vec![Pointer { slot: 0, written: true, buffer: None }]);
        let host = [0i32; 10];
        // SAFETY: refused before anything uses it.
        let end = unsafe { device.default_stream().launch(&kernel, &[host.as_ptr() as u64, 10], &Uninterruptible) };
        assert!(matches!(end.unwrap_err().kind(), ErrorKind::CompilerBug(what) if what.contains("argument slot 0")));
        device.default_stream().synchronize(&Uninterruptible).unwrap();
        assert_eq!(host, [0; 10]);
        device.close(&Uninterruptible).unwrap();
    }
}
