//! Real streams on the CPU, with code made by the C compiler.

#![allow(clippy::unwrap_used)]

mod hand_made;

use std::sync::Arc;
use std::time::{Duration, Instant};

use hand_made::{artifact, parallel, serial};
use octants_artifact::TaskMeta;
use octants_driver_host::{HostConfig, HostDriver};
use octants_runtime::{
    Buffer, Caller, Device, DeviceConfig, ErrorKind, HostAccess, LoadedKernel, Pointer, Stream, Uninterruptible,
};

fn device(schedule: Option<u64>) -> Device {
    let host = HostConfig { max_threads: Some(2), streams: true, schedule, ..HostConfig::default() };
    Device::new(HostDriver::new(host), DeviceConfig { seed: 1, sink: Arc::new(|_: &str| ()) })
}

fn increment(device: &Device) -> LoadedKernel {
    let kernel = device.load(&artifact(2, vec![parallel("increment", "count_arg1", 5.0)])).unwrap();
    kernel.with_pointers(vec![Pointer { slot: 0, written: true, buffer: None }])
}

fn run(stream: &Stream, kernel: &LoadedKernel, buffer: &Buffer) {
    let args = [buffer.ptr().unwrap(), buffer.bytes() / 4];
    // SAFETY: the buffer lives and has this many elements.
    unsafe { stream.launch(kernel, &args, &Uninterruptible) }.unwrap();
}

fn values(buffer: &Buffer) -> Vec<i32> {
    buffer.wait(HostAccess::Read, &Uninterruptible).unwrap();
    let pin = buffer.pin().unwrap();
    // SAFETY: pinned, and the work that writes is done.
    unsafe { std::slice::from_raw_parts(pin.ptr() as *const i32, buffer.bytes() as usize / 4) }.to_vec()
}

#[test]
fn s8_a_stream_runs_in_order_and_finishes_before_the_host_reads() {
    for schedule in [None, Some(1), Some(2), Some(3)] {
        let device = device(schedule);
        let kernel = increment(&device);
        let streams: Vec<_> = (0..5).map(|_| device.create_stream(0).unwrap()).collect();
        let buffers: Vec<_> = (0..5).map(|_| device.allocate(4000).unwrap()).collect();
        for _ in 0..50 {
            streams.iter().zip(&buffers).for_each(|(s, b)| run(s, &kernel, b));
        }
        for b in &buffers {
            assert!(values(b).iter().all(|&v| v == 50));
        }
        device.close(&Uninterruptible).unwrap();
    }
}

#[test]
fn s4_events_order_streams_and_a_waiting_queue_blocks_no_thread() {
    for schedule in [None, Some(4), Some(5), Some(6)] {
        let device = device(schedule);
        let kernel = increment(&device);
        let spin = device.load(&artifact(1, vec![serial("spin")])).unwrap();
        let (first, a) = (device.create_stream(0).unwrap(), device.allocate(400).unwrap());
        // SAFETY: the task only reads its argument.
        unsafe { first.launch(&spin, &[2_000_000], &Uninterruptible) }.unwrap();
        let event = device.create_event(false).unwrap();
        event.record(&first).unwrap();
        let waiting: Vec<_> = (0..20).map(|_| device.create_stream(0).unwrap()).collect();
        let mut before = first.clone();
        for s in &waiting {
            event.wait(s, &Uninterruptible).unwrap();
            s.wait_for(&before, &Uninterruptible).unwrap();
            run(s, &kernel, &a);
            before = s.clone();
        }
        let other = device.create_stream(0).unwrap();
        let b = device.allocate(400).unwrap();
        run(&other, &kernel, &b);
        other.synchronize(&Uninterruptible).unwrap();
        assert_eq!(values(&b)[7], 1);
        assert_eq!(values(&a)[7], 20);
        assert!(event.query().unwrap() && before.query().unwrap());
    }
}

#[test]
fn s18_memory_and_code_stay_until_queued_work_is_done() {
    for schedule in [None, Some(7), Some(8)] {
        let device = device(schedule);
        let kept = device.allocate(4000).unwrap();
        let stream = device.create_stream(0).unwrap();
        for _ in 0..20 {
            let kernel = increment(&device);
            let gone = device.allocate(1 << 20).unwrap();
            run(&stream, &kernel, &gone);
            run(&stream, &kernel, &kept);
        }
        assert!(values(&kept).iter().all(|&v| v == 20));
        assert_eq!(device.bytes_in_use(), 4000);
        drop(stream);
        device.close(&Uninterruptible).unwrap();
        drop(kept);
    }
}

#[test]
fn s21_a_failure_stops_its_own_stream_until_it_is_reported() {
    for schedule in [None, Some(9), Some(10)] {
        let device = device(schedule);
        let kernel = increment(&device);
        let bad = device.load(&artifact(2, vec![parallel("fail_some", "count_arg1", 5.0)])).unwrap();
        let (one, two) = (device.create_stream(0).unwrap(), device.create_stream(0).unwrap());
        let (a, b) = (device.allocate(40).unwrap(), device.allocate(40).unwrap());
        // SAFETY: as its tests in `launch.rs`.
        unsafe { one.launch(&bad, &[a.ptr().unwrap(), 10], &Uninterruptible) }.unwrap();
        run(&one, &kernel, &a);
        run(&two, &kernel, &b);
        two.synchronize(&Uninterruptible).unwrap();
        assert!(one.synchronize(&Uninterruptible).unwrap_err().to_string().contains("on stream"));
        assert_eq!((values(&a)[3], values(&b)[3]), (1, 1), "the increment was skipped");
        run(&one, &kernel, &a);
        assert_eq!(values(&a)[3], 2);
    }
}

#[test]
fn s21_a_failure_does_not_propagate_through_events() {
    for schedule in [None, Some(11), Some(12), Some(13)] {
        let device = device(schedule);
        let kernel = increment(&device);
        let bad = device.load(&artifact(2, vec![parallel("fail_some", "count_arg1", 5.0)])).unwrap();
        let (one, two) = (device.create_stream(0).unwrap(), device.create_stream(0).unwrap());
        let (a, b) = (device.allocate(40).unwrap(), device.allocate(40).unwrap());
        // SAFETY: as its tests in `launch.rs`.
        unsafe { one.launch(&bad, &[a.ptr().unwrap(), 10], &Uninterruptible) }.unwrap();
        let event = device.create_event(false).unwrap();
        event.record(&one).unwrap();
        event.wait(&two, &Uninterruptible).unwrap();
        run(&two, &kernel, &b);
        two.synchronize(&Uninterruptible).unwrap();
        assert_eq!(values(&b)[3], 1, "what waits for a stream that has failed runs all the same");
        // Reported once, by the event that covers it; later work of the stream runs.
        assert!(event.synchronize(&Uninterruptible).is_err());
        run(&one, &kernel, &a);
        one.synchronize(&Uninterruptible).unwrap();
        // The failing task had added one itself.
        assert_eq!(values(&a)[3], 2);
    }
}

/// A thread that is interrupted once it has waited for some time.
struct Impatient(Instant);

impl Caller for Impatient {
    fn will_block(&self) {}

    fn can_be_interrupted(&self) -> bool {
        true
    }

    fn is_interrupted(&self) -> bool {
        self.0.elapsed() > Duration::from_millis(50)
    }
}

/// A task that never ends.
fn endless(device: &Device) -> LoadedKernel {
    let task = TaskMeta { polls: true, ..serial("endless") };
    device.load(&artifact(2, vec![task])).unwrap().with_pointers(vec![Pointer { slot: 0, written: true, buffer: None }])
}

#[test]
fn canceling_a_stream_also_ends_its_dependencies_but_no_other_stream() {
    let device = device(None);
    let (endless, increment) = (endless(&device), increment(&device));
    let streams: Vec<_> = (0..3).map(|_| device.create_stream(0).unwrap()).collect();
    let buffers: Vec<_> = (0..3).map(|_| device.allocate(400).unwrap()).collect();
    run(&streams[0], &endless, &buffers[0]);
    streams[1].wait_for(&streams[0], &Uninterruptible).unwrap();
    run(&streams[1], &increment, &buffers[1]);
    run(&streams[2], &increment, &buffers[2]);
    let left = streams[1].synchronize(&Impatient(Instant::now())).unwrap_err();
    assert_eq!(*left.kind(), ErrorKind::Interrupted);
    assert!(!streams[0].query().unwrap());
    streams[1].cancel();
    streams[1].synchronize(&Uninterruptible).unwrap();
    streams[0].synchronize(&Uninterruptible).unwrap();
    assert_eq!((values(&buffers[1])[3], values(&buffers[2])[3]), (0, 1), "what had not begun is dropped");
    // Work that is queued later runs.
    run(&streams[1], &increment, &buffers[1]);
    assert_eq!(values(&buffers[1])[3], 1);
}

#[test]
fn a_device_closes_while_work_never_ends() {
    for (interrupted_before, release) in [(false, false), (false, true), (true, false)] {
        let device = device(None);
        let (endless, buffer) = (endless(&device), device.allocate(400).unwrap());
        let (first, second) = (device.create_stream(0).unwrap(), device.create_stream(0).unwrap());
        run(&first, &endless, &buffer);
        second.wait_for(&first, &Uninterruptible).unwrap();
        if release {
            first.release();
            second.release();
            assert_eq!(device.create_stream(0).unwrap().query().ok(), Some(true));
        }
        if interrupted_before {
            device.synchronize(&Impatient(Instant::now())).unwrap_err();
            device.close(&Uninterruptible).unwrap();
        } else {
            device.close(&Impatient(Instant::now())).unwrap();
        }
    }
}

#[test]
fn queues_wait_for_points_of_another_device() {
    let schedules = [None, Some(1), Some(2), Some(3)];
    for (a, b) in schedules.iter().flat_map(|a| schedules.map(|b| (*a, b))) {
        let devices = [device(a), device(b)];
        let kernels = [increment(&devices[0]), increment(&devices[1])];
        let buffers = [devices[0].allocate(400).unwrap(), devices[1].allocate(400).unwrap()];
        let streams = devices.each_ref().map(|d| [d.create_stream(0).unwrap(), d.create_stream(0).unwrap()]);
        let mut last = streams[0][0].clone();
        let mut events = Vec::new();
        for n in 0..40 {
            let (side, number) = (n * 7 % 5 % 2, n * 3 % 4 % 2);
            let stream = &streams[side][number];
            // All launches of a device add to the same elements, so concurrent launches would lose updates.
            stream.wait_for(&last, &Uninterruptible).unwrap();
            run(stream, &kernels[side], &buffers[side]);
            let event = devices[side].create_event(false).unwrap();
            event.record(stream).unwrap();
            events.push(event);
            last = stream.clone();
        }
        last.synchronize(&Uninterruptible).unwrap();
        assert!(events.iter().all(|event| event.query().unwrap()));
        let sums = [values(&buffers[0])[3], values(&buffers[1])[3]];
        assert_eq!(sums[0] + sums[1], 40, "{sums:?}");
        // The first device may end ahead of one that has waited for it.
        devices[0].close(&Uninterruptible).unwrap();
        run(&streams[1][0], &kernels[1], &buffers[1]);
        assert_eq!(values(&buffers[1])[3], sums[1] + 1);
        devices[1].close(&Uninterruptible).unwrap();
    }
}
