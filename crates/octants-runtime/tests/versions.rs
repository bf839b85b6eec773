//! Versions of buffers' contents. Each write to a buffer changes its version. A buffer has no version if writes may be
//! unnoticed.

#![allow(clippy::unwrap_used)]

use octants_artifact::{Artifact, TaskMeta, graph_of_groups};
use octants_driver_recording::{Log, RecordingDriver, device, device_that, finish};
use octants_runtime::{Buffer, Device, LoadedKernel, Pointer, Stream, Uninterruptible, Version};

/// Someone else's stream.
const THEIRS: u64 = 4711;

/// A kernel that reads from slot 0 and writes to slot 1, with tasks in these groups.
fn kernel(device: &Device, groups: &[Option<u32>]) -> LoadedKernel {
    let task = TaskMeta { name: "t".into(), writes: vec![1], ..TaskMeta::default() };
    let (tasks, graph) = (vec![task; groups.len()], graph_of_groups(groups));
    let artifact = Artifact { kernel: "k".into(), arg_slots: 2, frame_bytes: 64, tasks, graph, ..Artifact::default() };
    let pointers =
        vec![Pointer { slot: 0, written: false, buffer: None }, Pointer { slot: 1, written: true, buffer: None }];
    device.load(&artifact).unwrap().with_pointers(pointers)
}

fn launch(stream: &Stream, kernel: &LoadedKernel, read: &Buffer, written: u64) {
    // SAFETY: the driver runs nothing.
    unsafe { stream.launch(kernel, &[read.ptr().unwrap(), written], &Uninterruptible) }.unwrap();
}

/// For work on the default stream.
fn version(device: &Device, buffer: &Buffer) -> Option<Version> {
    device.default_stream().version_at(buffer.ptr().unwrap())
}

/// A device with two buffers.
fn bench() -> (Device, std::sync::Arc<Log>, Buffer, Buffer) {
    let (device, log) = device();
    let (a, b) = (device.allocate(1 << 20).unwrap(), device.allocate(1 << 20).unwrap());
    (device, log, a, b)
}

#[test]
fn each_write_makes_a_new_version_and_reads_do_not() {
    let (device, log, a, b) = bench();
    let stream = device.default_stream().clone();
    let (plain, grouped) = (kernel(&device, &[None, None]), kernel(&device, &[Some(0), Some(1)]));
    let mut seen = vec![version(&device, &a).unwrap()];
    let mut another = |what: &str| {
        let now = version(&device, &a).unwrap();
        assert!(!seen.contains(&now), "{what}");
        seen.push(now);
    };
    let inside = a.ptr().unwrap() + 8;
    launch(&stream, &plain, &b, a.ptr().unwrap());
    another("a launch");
    launch(&stream, &plain, &b, inside);
    another("a launch on a part of it");
    launch(&stream, &grouped, &b, inside);
    another("groups on worker streams");
    stream.fill(&a, 0, &[1, 2, 3, 4], 10, &Uninterruptible).unwrap();
    another("a fill by the driver");
    stream.fill(&a, 0, &[1, 2, 3], 10, &Uninterruptible).unwrap();
    another("a fill by copies");
    stream.copy(&a, 0, &b, 0, 8, &Uninterruptible).unwrap();
    another("a copy");
    stream.copy(&a, 0, &a, 64, 8, &Uninterruptible).unwrap();
    another("a copy within it");
    stream.upload(&a, 0, &[1], &Uninterruptible).unwrap();
    another("an upload");
    stream.upload(&a, 0, &vec![1; 1 << 20], &Uninterruptible).unwrap();
    another("a large upload");
    stream.write(&a, 0, &[1], &Uninterruptible).unwrap();
    another("a write on a stream");
    a.write(0, &[1], &Uninterruptible).unwrap();
    another("a write of the host");
    {
        let _inside = octants_runtime::nesting::Inside::enter();
        launch(&stream, &plain, &b, inside);
    }
    another("a launch inside another");
    let before = version(&device, &a);
    launch(&stream, &plain, &a, b.ptr().unwrap());
    stream.copy(&b, 0, &a, 0, 8, &Uninterruptible).unwrap();
    a.read(0, &mut [0; 8], &Uninterruptible).unwrap();
    stream.read(&a, 0, &mut [0; 8], &Uninterruptible).unwrap();
    assert_eq!(version(&device, &a), before, "reads");
    assert_eq!(device.default_stream().version_at(inside), before, "it is the buffer's");
    drop((plain, grouped, a, b, stream));
    finish(device, &log);
}

#[test]
fn reused_memory_has_new_versions() {
    let (device, log, a, b) = bench();
    let first = version(&device, &a);
    let address = a.ptr().unwrap();
    drop(a);
    assert_eq!(device.default_stream().version_at(address), None, "nobody's");
    let (c, d) = (device.allocate(64).unwrap(), device.allocate(1 << 20).unwrap());
    assert!([&b, &c, &d].iter().all(|b| version(&device, b) != first));
    assert_eq!(device.default_stream().version_at(0xdead_0000), None, "not the device's");
    drop((b, c, d));
    finish(device, &log);
}

#[test]
fn a_write_may_run_later_than_a_read_on_another_stream() {
    let (device, log, a, b) = bench();
    let (kernel, other) = (kernel(&device, &[None]), device.create_stream(0).unwrap());
    launch(&other, &kernel, &a, b.ptr().unwrap());
    let before = version(&device, &a);
    assert!(before.is_some(), "it only reads");
    launch(&other, &kernel, &b, a.ptr().unwrap());
    assert_eq!(version(&device, &a), None);
    let own = other.version_at(a.ptr().unwrap());
    assert!(own.is_some() && own != before, "work there comes later");
    drop(other);
    let after = version(&device, &a);
    assert!(after.is_some() && after != before && after != own, "it has done its work");
    // A stream that is being destroyed has no owner, but may still write.
    drop(device.create_stream(0).unwrap());
    assert!(![None, after].contains(&version(&device, &a)));
    drop((kernel, a, b));
    finish(device, &log);
}

#[test]
fn memory_with_untracked_writes_has_no_version() {
    let (device, log, a, b) = bench();
    let kernel = kernel(&device, &[None]);
    let stream = device.stream_from_handle(THEIRS).unwrap();
    // Captured: the graph may run repeatedly.
    log.capture(Some(THEIRS));
    launch(&stream, &kernel, &a, b.ptr().unwrap());
    log.capture(None);
    assert!(version(&device, &a).is_some(), "it only reads");
    assert_eq!(version(&device, &b), None);
    assert_eq!(stream.version_at(b.ptr().unwrap()), None);
    a.expose();
    assert_eq!(version(&device, &a), None, "others have the address");
    let c = device.allocate(64).unwrap();
    c.note_foreign_use();
    launch(device.default_stream(), &kernel, &a, c.ptr().unwrap());
    c.write(0, &[1], &Uninterruptible).unwrap();
    assert_eq!(version(&device, &c), None, "others use it, for good");
    let (d, telling) = (device.allocate(64).unwrap(), self::kernel(&device, &[None]).telling_addresses(true));
    launch(device.default_stream(), &telling, &d, c.ptr().unwrap());
    assert_eq!(version(&device, &d), None, "the launch may have told where it is");
    // The driver treats captured work as executed. Its end is known once that of later work is.
    launch(&stream, &kernel, &a, b.ptr().unwrap());
    drop((kernel, telling, stream, a, b, c, d));
    device.close(&Uninterruptible).unwrap();
    drop(device);
    assert_eq!((log.mistakes(), log.leaks()), (Vec::new(), vec![format!("stream {THEIRS}")]));
}

#[test]
fn without_write_tracking_there_are_no_versions() {
    for setting in [RecordingDriver::sharing_memory, RecordingDriver::immediate] {
        let (device, log) = device_that(setting);
        let a = device.allocate(64).unwrap();
        assert_eq!(version(&device, &a), None);
        drop(a);
        finish(device, &log);
    }
}
