//! Concurrent launches, with a driver that checks the order of all uses.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use octants_artifact::{Access, AccessAxis, AccessKind, AccessPart, Artifact, ScalarKind, SlotSum, TaskMeta};
use octants_driver_recording::{Log, device, device_that, finish};
use octants_runtime::{Buffer, Device, HostAccess, LoadedKernel, Pointer, Uninterruptible};

const BUFFERS: usize = 3;

/// Reads the buffers in slots 0 and 1, and writes the elements from slot 3 to before slot 4 of the one in slot 2, whose
/// extent is 100.
fn kernel(device: &Device) -> LoadedKernel {
    let slot = |slot| SlotSum { constant: 0, terms: vec![(slot, ScalarKind::I64, 1)] };
    let of = |buffer, kind, range| Access {
        buffer,
        kind,
        axes: vec![AccessAxis { extent: SlotSum::constant(100), range, step: 1 }],
        colors: Vec::new(),
        parts: vec![AccessPart { slot: buffer, begin: 0, end: 4 }],
        element: 4,
    };
    let access = vec![
        of(0, AccessKind::Read, None),
        of(1, AccessKind::Read, None),
        of(2, AccessKind::Write, Some((slot(3), slot(4)))),
    ];
    let artifact = Artifact {
        kernel: "k".into(),
        arg_slots: 5,
        frame_bytes: 64,
        buffers: ["a", "b", "c"].map(String::from).to_vec(),
        tasks: vec![TaskMeta { name: "t".into(), access, ..TaskMeta::default() }],
        ..Artifact::default()
    };
    let pointer = |slot| Pointer { slot, written: slot == 2, buffer: Some(slot) };
    device.load(&artifact).unwrap().with_pointers((0..BUFFERS as u32).map(pointer).collect())
}

fn launch(device: &Device, kernel: &LoadedKernel, buffers: [&Buffer; BUFFERS], elements: (u64, u64)) {
    let [a, b, c] = buffers.map(|b| b.ptr().unwrap());
    // SAFETY: the driver runs nothing.
    unsafe {
        device
            .launch(device.default_stream(), kernel, &[a, b, c, elements.0, elements.1], &[], (&Uninterruptible, None))
            .unwrap();
    }
}

fn concurrent_device() -> (Device, Arc<Log>) {
    let (device, log) = device();
    device.infer_concurrency(&Uninterruptible);
    (device, log)
}

/// For each launch whether it is after each of those before it.
fn order(log: &Log) -> Vec<Vec<bool>> {
    let launched = log.take_launched();
    launched
        .iter()
        .enumerate()
        .map(|(n, l)| launched[..n].iter().map(|earlier| l.happens_after(earlier)).collect())
        .collect()
}

#[test]
fn launches_wait_for_conflicting_launches_only() {
    let (device, log) = concurrent_device();
    let kernel = kernel(&device);
    let [x, y, z, w] = [(); 4].map(|()| device.allocate(400).unwrap());
    launch(&device, &kernel, [&x, &x, &y], (0, 100));
    launch(&device, &kernel, [&x, &x, &z], (0, 100));
    launch(&device, &kernel, [&y, &z, &w], (0, 100));
    launch(&device, &kernel, [&y, &y, &x], (0, 100));
    assert_eq!(order(&log), [vec![], vec![false], vec![true, true], vec![true, true, false]]);
    let decisions = device.take_decisions().0;
    let depends_on: Vec<_> = decisions.iter().map(|d| d.depends_on.clone()).collect();
    let name = |n: u64, name: &str| (n, name.to_string());
    assert_eq!(depends_on[2], [name(1, "b"), name(0, "a")]);
    assert_eq!(depends_on[3], [name(1, "c"), name(0, "a")]);
    assert!(decisions.iter().all(|d| d.lane.is_some()));
    drop((kernel, x, y, z, w));
    finish(device, &log);
}

#[test]
fn arguments_distinguish_the_elements_of_a_buffer() {
    let (device, log) = concurrent_device();
    let kernel = kernel(&device);
    let [x, y] = [(); 2].map(|()| device.allocate(400).unwrap());
    launch(&device, &kernel, [&x, &x, &y], (0, 50));
    launch(&device, &kernel, [&x, &x, &y], (50, 100));
    launch(&device, &kernel, [&x, &x, &y], (40, 60));
    assert_eq!(order(&log), [vec![], vec![false], vec![true, true]]);
    drop((kernel, x, y));
    finish(device, &log);
}

#[test]
fn other_work_on_the_default_stream_is_ordered_with_the_lanes() {
    let (device, log) = concurrent_device();
    let kernel = kernel(&device);
    let [x, y, z] = [(); 3].map(|()| device.allocate(400).unwrap());
    let stream = device.create_stream(0).unwrap();
    let on_stream = |to: &Buffer| {
        let [x, to] = [&x, to].map(|b| b.ptr().unwrap());
        // SAFETY: the driver runs nothing.
        unsafe { stream.launch(&kernel, &[x, x, to, 0, 100], &Uninterruptible).unwrap() };
    };
    launch(&device, &kernel, [&x, &x, &y], (0, 100));
    launch(&device, &kernel, [&x, &x, &z], (0, 100));
    // A stream that waits for the default stream also waits for the launches on its lanes.
    stream.wait_for(device.default_stream(), &Uninterruptible).unwrap();
    on_stream(&y);
    // Launches also wait for the events that the default stream waits for.
    device.default_stream().wait_for(&stream, &Uninterruptible).unwrap();
    launch(&device, &kernel, [&x, &x, &z], (0, 100));
    assert_eq!(order(&log), [vec![], vec![false], vec![true, true], vec![true, true, true]]);
    device.default_stream().fill(&y, 0, &[0; 4], 100, &Uninterruptible).unwrap();
    launch(&device, &kernel, [&x, &x, &z], (0, 100));
    y.wait(HostAccess::Read, &Uninterruptible).unwrap();
    drop((kernel, x, y, z, stream));
    finish(device, &log);
}

#[test]
fn a_host_read_waits_for_the_lane_of_the_writer() {
    let (device, log) = concurrent_device();
    let kernel = kernel(&device);
    let [x, y, z] = [(); 3].map(|()| device.allocate(400).unwrap());
    launch(&device, &kernel, [&x, &x, &y], (0, 100));
    launch(&device, &kernel, [&x, &x, &z], (0, 100));
    log.take();
    y.wait(HostAccess::Read, &Uninterruptible).unwrap();
    assert_eq!(log.count("synchronize"), 1, "{:?}", log.calls());
    drop((kernel, x, y, z));
    finish(device, &log);
}

#[test]
fn random_launches_keep_every_required_order() {
    let (device, log) = concurrent_device();
    let kernel = kernel(&device);
    let buffers: Vec<Buffer> = (0..6).map(|_| device.allocate(400).unwrap()).collect();
    let mut state = 1u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    let mut made = Vec::new();
    for _ in 0..600 {
        let used = [(); BUFFERS].map(|()| random(6) as usize);
        let begin = 25 * random(4);
        let elements = (begin, begin + 25 * (1 + random(2)).min((100 - begin) / 25));
        launch(&device, &kernel, used.map(|b| &buffers[b]), elements);
        made.push((used, elements));
        if random(40) == 0 {
            device.default_stream().synchronize(&Uninterruptible).unwrap();
        }
    }
    let launched = log.take_launched();
    let conflict = |(a, x): &([usize; 3], (u64, u64)), (b, y): &([usize; 3], (u64, u64))| {
        let meet = x.0 < y.1 && y.0 < x.1;
        a[2] == b[2] && meet || a[..2].contains(&b[2]) || b[..2].contains(&a[2])
    };
    let mut apart = 0;
    for later in 0..made.len() {
        for earlier in 0..later {
            let happens_after = launched[later].happens_after(&launched[earlier]);
            assert!(happens_after || !conflict(&made[earlier], &made[later]), "{earlier} and {later}");
            apart += usize::from(!happens_after);
        }
    }
    assert!(apart > 0, "some launches run side by side");
    drop((kernel, buffers));
    finish(device, &log);
}

#[test]
fn lanes_recover_from_a_failure_of_each_call() {
    for n in 0.. {
        let (device, log) = concurrent_device();
        let kernel = kernel(&device);
        let [x, y, z] = [(); 3].map(|()| device.allocate(400).unwrap());
        log.fail_call(n);
        let slots = |to: &Buffer| [x.ptr().unwrap(), x.ptr().unwrap(), to.ptr().unwrap(), 0, 100];
        // SAFETY: the driver runs nothing.
        let ends = [&y, &z, &y].map(|to| unsafe {
            device.launch(device.default_stream(), &kernel, &slots(to), &[], (&Uninterruptible, None))
        });
        let (failed, any) = (log.failed(), ends.iter().any(|e| e.is_err()));
        // The next launch works after any failure.
        log.fail_call(1 << 40);
        launch(&device, &kernel, [&y, &z, &x], (0, 100));
        drop((kernel, x, y, z));
        finish(device, &log);
        if failed.is_none() {
            assert!(n > 5 && !any, "every call was tried");
            break;
        }
    }
}

#[test]
fn a_synchronous_device_infers_no_concurrency() {
    let (device, log) = device_that(octants_driver_recording::RecordingDriver::immediate);
    device.infer_concurrency(&Uninterruptible);
    let kernel = kernel(&device);
    let x = device.allocate(400).unwrap();
    launch(&device, &kernel, [&x, &x, &x], (0, 100));
    assert!(device.take_decisions().0.is_empty());
    drop((kernel, x));
    finish(device, &log);
}

/// A round of three launches. The last one depends on the others.
fn round(device: &Device, kernel: &LoadedKernel, [x, y, z, w]: [&Buffer; 4]) {
    launch(device, kernel, [x, x, y], (0, 100));
    launch(device, kernel, [x, x, z], (0, 100));
    launch(device, kernel, [y, z, w], (0, 100));
}

#[test]
fn repeated_launch_sequences_are_held_and_launched_as_a_graph() {
    for waits in [false, true] {
        let (device, log) = concurrent_device();
        let kernel = kernel(&device);
        let buffers = [(); 4].map(|()| device.allocate(400).unwrap());
        let of = buffers.each_ref();
        for n in 0..8 {
            round(&device, &kernel, of);
            if waits {
                of[3].wait(HostAccess::Read, &Uninterruptible).unwrap();
            }
            assert_eq!(log.take_launched().len(), 3, "round {n} is submitted where it ends");
        }
        assert_eq!(device.replays(), 5);
        // A round that ends early is submitted, in order, when the host waits.
        launch(&device, &kernel, [of[0], of[0], of[1]], (0, 100));
        assert_eq!(log.take_launched().len(), 0);
        of[1].wait(HostAccess::Read, &Uninterruptible).unwrap();
        assert_eq!(log.take_launched().len(), 1);
        launch(&device, &kernel, [of[1], of[2], of[3]], (0, 100));
        assert_eq!(log.take_launched().len(), 1);
        assert_eq!(device.replays(), 5);
        drop((kernel, buffers));
        finish(device, &log);
    }
}

#[test]
fn a_graph_of_a_launch_sequence_keeps_every_required_order() {
    let (device, log) = concurrent_device();
    let kernel = kernel(&device);
    let buffers = [(); 4].map(|()| device.allocate(400).unwrap());
    (0..3).for_each(|_| round(&device, &kernel, buffers.each_ref()));
    log.take_launched();
    (0..2).for_each(|_| round(&device, &kernel, buffers.each_ref()));
    assert_eq!(device.replays(), 2);
    let depends_on = order(&log);
    assert_eq!(depends_on[..3], [vec![], vec![false], vec![true, true]]);
    assert!(depends_on[3..].iter().all(|b| b[..3] == [true; 3]), "rounds follow one another: {depends_on:?}");
    drop((kernel, buffers));
    finish(device, &log);
}

#[test]
fn held_launches_precede_any_other_request() {
    type Act = fn(&Device, &[Buffer; 4]);
    let acts: [Act; 7] = [
        |device, _| device.synchronize(&Uninterruptible).unwrap(),
        |device, _| device.default_stream().synchronize(&Uninterruptible).unwrap(),
        |_, buffers| buffers[1].wait(HostAccess::Write, &Uninterruptible).unwrap(),
        |device, buffers| device.default_stream().fill(&buffers[1], 0, &[0; 4], 100, &Uninterruptible).unwrap(),
        |device, _| device.create_event(false).unwrap().record(device.default_stream()).unwrap(),
        |device, _| device.create_stream(0).unwrap().wait_for(device.default_stream(), &Uninterruptible).unwrap(),
        |_, buffers| buffers[1].note_foreign_use(),
    ];
    for (n, act) in acts.into_iter().enumerate() {
        let (device, log) = concurrent_device();
        let kernel = kernel(&device);
        let buffers = [(); 4].map(|()| device.allocate(400).unwrap());
        let of = buffers.each_ref();
        (0..3).for_each(|_| round(&device, &kernel, of));
        log.take_launched();
        launch(&device, &kernel, [of[0], of[0], of[1]], (0, 100));
        launch(&device, &kernel, [of[0], of[0], of[2]], (0, 100));
        assert_eq!(log.take_launched().len(), 0);
        act(&device, &buffers);
        assert_eq!(log.take_launched().len(), 2, "act {n}");
        launch(&device, &kernel, [of[1], of[2], of[3]], (0, 100));
        assert_eq!(log.take_launched().len(), 1);
        drop((kernel, buffers));
        finish(device, &log);
    }
}

#[test]
fn objects_of_a_launch_sequence_are_released_with_the_program() {
    let (device, log) = concurrent_device();
    let kernel = kernel(&device);
    let buffers = [(); 4].map(|()| device.allocate(400).unwrap());
    (0..6).for_each(|_| round(&device, &kernel, buffers.each_ref()));
    launch(&device, &kernel, [&buffers[0], &buffers[0], &buffers[1]], (0, 100));
    drop((kernel, buffers));
    finish(device, &log);
}
