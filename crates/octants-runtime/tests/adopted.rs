//! Streams of another library (S7). A call on one does not wait for its work; dependent work waits for an event. No
//! call uses the stream after its last reference is dropped.

#![allow(clippy::unwrap_used)]

use octants_artifact::{Artifact, TaskMeta, graph_of_groups};
use octants_driver_recording::{Log, device};
use octants_runtime::{Buffer, Device, HostAccess, LoadedKernel, Pointer, Uninterruptible};

/// Someone else's stream.
const THEIRS: u64 = 4711;

/// A kernel that writes to the buffer of slot 0.
fn kernel(device: &Device, frame_bytes: u64) -> LoadedKernel {
    kernel_of(device, frame_bytes, &[None])
}

/// The same of tasks in these groups.
fn kernel_of(device: &Device, frame_bytes: u64, groups: &[Option<u32>]) -> LoadedKernel {
    let task = TaskMeta { name: "t".into(), writes: vec![0], ..TaskMeta::default() };
    let artifact = Artifact {
        kernel: "k".into(),
        arg_slots: 1,
        frame_bytes,
        tasks: vec![task; groups.len()],
        graph: graph_of_groups(groups),
        ..Artifact::default()
    };
    device.load(&artifact).unwrap().with_pointers(vec![Pointer { slot: 0, written: true, buffer: None }])
}

/// As a call with `qd_stream=theirs`: the stream is named for that call only.
fn call(device: &Device, kernel: &LoadedKernel, buffer: &Buffer) {
    let stream = device.stream_from_handle(THEIRS).unwrap();
    // SAFETY: the driver runs nothing.
    unsafe { stream.launch(kernel, &[buffer.ptr().unwrap()], &Uninterruptible) }.unwrap();
}

/// Calls that name their stream.
fn on_theirs(calls: &[String]) -> Vec<&String> {
    let place = format!(" {THEIRS}");
    calls.iter().filter(|c| c.ends_with(&place)).collect()
}

fn finish(device: Device, log: &Log) {
    device.close(&Uninterruptible).unwrap();
    drop(device);
    assert_eq!(log.mistakes(), Vec::<String>::new());
    // The stream itself is theirs.
    assert_eq!(log.leaks(), [format!("stream {THEIRS}")]);
}

#[test]
fn s7_a_call_on_a_foreign_stream_does_not_wait() {
    let (device, log) = device();
    let (kernel, buffer) = (kernel(&device, 64), device.allocate(64).unwrap());
    for _ in 0..3 {
        call(&device, &kernel, &buffer);
    }
    let calls = log.take();
    assert!(!calls.iter().any(|c| c.starts_with("synchronize")), "{calls:?}");
    assert_eq!(calls.iter().filter(|c| c.starts_with("allocate 256 ")).count(), 1, "one frame for all");
    drop((kernel, buffer));
    finish(device, &log);
}

#[test]
fn s7_s18_s19_later_uses_wait_for_the_work_on_a_foreign_stream() {
    let (device, log) = device();
    let (kernel, read, dropped) = (kernel(&device, 64), device.allocate(64).unwrap(), device.allocate(64).unwrap());
    call(&device, &kernel, &read);
    call(&device, &kernel, &dropped);
    // From here on, their stream may be destroyed.
    log.take();
    read.wait(HostAccess::Read, &Uninterruptible).unwrap();
    let calls = log.take();
    assert!(calls.iter().any(|c| c.starts_with("synchronize_event")), "{calls:?}");
    drop(dropped);
    device.synchronize(&Uninterruptible).unwrap();
    device.default_stream_after(&[&read]).unwrap();
    drop((kernel, read));
    device.close(&Uninterruptible).unwrap();
    let rest = log.take();
    assert_eq!(on_theirs(&[calls, rest].concat()), Vec::<&String>::new());
    drop(device);
    assert_eq!(log.mistakes(), Vec::<String>::new());
}

#[test]
fn s7_synchronizing_a_foreign_stream_waits_for_all_its_work() {
    let (device, log) = device();
    let stream = device.stream_from_handle(THEIRS).unwrap();
    log.take();
    stream.synchronize(&Uninterruptible).unwrap();
    assert_eq!(log.take()[0], format!("synchronize {THEIRS}"));
    drop(stream);
    finish(device, &log);
}

#[test]
fn s7_a_reused_handle_may_be_another_stream() {
    let (device, log) = device();
    let (kernel, buffer) = (kernel(&device, 64), device.allocate(64).unwrap());
    call(&device, &kernel, &buffer);
    log.take();
    // The frame is used again: the work before is waited for, whichever stream this is now.
    call(&device, &kernel, &buffer);
    assert!(log.take()[0].starts_with("wait_events"));
    drop((kernel, buffer));
    finish(device, &log);
}

#[test]
fn s7_memory_used_by_a_graph_is_kept() {
    let (device, log) = device();
    let (small, large) = (kernel(&device, 64), kernel(&device, 4096));
    let buffer = device.allocate(64).unwrap();
    log.capture(Some(THEIRS));
    call(&device, &small, &buffer);
    call(&device, &large, &buffer);
    let captured = log.take();
    assert!(!captured.iter().any(|c| c.contains("event") && c.ends_with(&format!(" {THEIRS}"))), "{captured:?}");
    log.capture(None);
    call(&device, &large, &buffer);
    let calls = [captured, log.take()].concat();
    assert!(!calls.iter().any(|c| c.starts_with("free")), "{calls:?}");
    drop((small, large, buffer));
    finish(device, &log);
}

#[test]
fn s7_s15_a_captured_worker_stream_serves_only_that_capture() {
    const OTHERS: u64 = 4712;
    let (device, log) = device();
    let (groups, buffer) = (kernel_of(&device, 64, &[Some(0), Some(1)]), device.allocate(64).unwrap());
    let worker_for = |handle| {
        let stream = device.stream_from_handle(handle).unwrap();
        log.take();
        // SAFETY: the driver runs nothing.
        unsafe { stream.launch(&groups, &[buffer.ptr().unwrap()], &Uninterruptible) }.unwrap();
        let launched = |c: &String| c.starts_with("launch ").then(|| c.split(' ').next_back().map(str::to_string));
        log.take().iter().find_map(launched).flatten().unwrap()
    };
    let first = worker_for(0);
    log.capture(Some(THEIRS));
    log.capture(Some(OTHERS));
    assert_eq!(worker_for(THEIRS), first, "an idle one");
    let plain = worker_for(0);
    let others = worker_for(OTHERS);
    assert_ne!(plain, first);
    assert!(others == plain, "the one that is idle and in no capture");
    assert_eq!((worker_for(THEIRS), worker_for(OTHERS)), (first.clone(), others.clone()));
    let third = worker_for(0);
    assert!(third != first && third != others);
    device.trim_stream_pool();
    assert_eq!(device.stream_pool_stats().idle, 2, "what captures hold stays");
    log.capture(None);
    assert!([first, others].contains(&worker_for(0)), "captures have ended");
    assert_eq!(device.stream_pool_stats().created, 3);
    // The driver treats captured work as executed. Its end is known once the end of later work is known.
    worker_for(THEIRS);
    worker_for(OTHERS);
    drop((groups, buffer));
    device.close(&Uninterruptible).unwrap();
    drop(device);
    assert_eq!(log.mistakes(), Vec::<String>::new());
    assert_eq!(log.leaks(), [format!("stream {THEIRS}"), format!("stream {OTHERS}")]);
}

#[test]
fn s7_records_of_foreign_streams_do_not_accumulate() {
    let (device, log) = device();
    let (kernel, buffer) = (kernel(&device, 64), device.allocate(64).unwrap());
    for handle in 10_000..10_200 {
        let stream = device.stream_from_handle(handle).unwrap();
        // SAFETY: the driver runs nothing.
        unsafe { stream.launch(&kernel, &[buffer.ptr().unwrap()], &Uninterruptible) }.unwrap();
        drop(stream);
        log.all_done();
    }
    let frames = log.count("allocate") - log.count("free");
    assert!(frames < 40, "{frames}");
    drop((kernel, buffer));
    device.close(&Uninterruptible).unwrap();
    drop(device);
    assert_eq!(log.mistakes(), Vec::<String>::new());
}
