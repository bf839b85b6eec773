//! Streams, events and forks, with a driver that checks the order of all uses (S24). Tests are named by the numbers of
//! the requirements.

#![allow(clippy::unwrap_used)]

use std::cell::Cell;

use octants_artifact::{Artifact, ScalarKind, Site, SiteKind, TaskMeta, graph_of_groups};
use octants_driver_recording::{RecordingDriver, device, device_that, finish};
use octants_runtime::{
    Buffer, Caller, Device, ErrorKind, HostAccess, LoadedKernel, Pointer, Result, Results, Stream, Uninterruptible,
};

/// Tasks with these groups; slots 0 and 1 hold addresses, the second is written.
fn artifact(groups: &[Option<u32>], results: usize) -> Artifact {
    let task = TaskMeta { name: "t".into(), ..TaskMeta::default() };
    Artifact {
        kernel: "k".into(),
        arg_slots: 2,
        frame_bytes: 64,
        result: vec![ScalarKind::U64; results],
        tasks: vec![task; groups.len()],
        graph: graph_of_groups(groups),
        sites: vec![Site { kind: SiteKind::Assert, parts: vec![], location: "a.py:1".into() }],
        ..Artifact::default()
    }
}

fn load(device: &Device, groups: &[Option<u32>]) -> LoadedKernel {
    let pointers =
        vec![Pointer { slot: 0, written: false, buffer: None }, Pointer { slot: 1, written: true, buffer: None }];
    device.load(&artifact(groups, 0)).unwrap().with_pointers(pointers)
}

fn launch(
    stream: &Stream,
    kernel: &LoadedKernel,
    read: Option<&Buffer>,
    written: Option<&Buffer>,
) -> Result<Option<Results>> {
    let address = |b: Option<&Buffer>| b.map_or(0, |b| b.ptr().unwrap());
    // SAFETY: the driver runs nothing.
    unsafe { stream.launch(kernel, &[address(read), address(written)], &Uninterruptible) }
}

const FOUR: [Option<u32>; 6] = [None, Some(0), Some(0), Some(1), Some(2), Some(3)];

#[test]
fn s24_a_launch_without_groups_is_one_call_per_task() {
    let (device, log) = device();
    let kernel = load(&device, &[None, None, None]);
    let (a, stream) = (device.allocate(64).unwrap(), device.create_stream(0).unwrap());
    launch(&stream, &kernel, Some(&a), Some(&a)).unwrap();
    log.take();
    for _ in 0..10 {
        launch(&stream, &kernel, Some(&a), Some(&a)).unwrap();
    }
    assert_eq!((log.count("launch"), log.take().len()), (30, 30), "nothing but launches");
    // A kernel with one group has nothing to run concurrently.
    let one = load(&device, &[None, Some(0), Some(0)]);
    launch(&stream, &one, None, Some(&a)).unwrap();
    assert_eq!(log.take().len(), 1 + 3, "the load and the launches");
    drop((kernel, one, a, stream));
    finish(device, &log);
}

#[test]
fn s11_s15_fork_and_join_are_at_most_two_calls_per_group() {
    let (device, log) = device();
    let kernel = load(&device, &FOUR);
    let (a, stream) = (device.allocate(64).unwrap(), device.create_stream(0).unwrap());
    for round in 0..3 {
        launch(&stream, &kernel, None, Some(&a)).unwrap();
        let stats = device.stream_pool_stats();
        assert_eq!((stats.created, stats.in_use, stats.idle, stats.reused), (3, 0, 3, 3 * round));
    }
    log.take();
    launch(&stream, &kernel, None, Some(&a)).unwrap();
    let calls = log.take();
    let of = |name: &str| calls.iter().filter(|c| c.starts_with(name)).count();
    assert_eq!((of("launch"), of("record_event"), of("wait_events")), (6, 4, 4));
    assert_eq!(calls.len(), 6 + 2 * 4, "{calls:?}");
    assert!(!calls.iter().any(|c| c.contains("synchronize")), "the host waits for nothing");
    device.trim_stream_pool();
    assert_eq!(device.stream_pool_stats().idle, 0);
    drop((kernel, a, stream));
    finish(device, &log);
}

#[test]
fn s11_a_fork_is_ordered_with_earlier_and_later_work_of_its_stream() {
    let (device, log) = device();
    let (plain, forked) = (load(&device, &[None]), load(&device, &FOUR));
    let (a, stream) = (device.allocate(64).unwrap(), device.create_stream(0).unwrap());
    // They share the stream's frame. The driver reports a mistake if a group or the next launch starts too early.
    for _ in 0..3 {
        launch(&stream, &plain, None, Some(&a)).unwrap();
        launch(&stream, &forked, Some(&a), Some(&a)).unwrap();
    }
    launch(&stream, &plain, Some(&a), None).unwrap();
    drop((plain, forked, a, stream));
    finish(device, &log);
}

#[test]
fn s15_s24_a_fork_recovers_from_a_failure_of_each_call() {
    let mut names = Vec::new();
    for n in 0.. {
        let (device, log) = device();
        let kernel = load(&device, &FOUR);
        let (a, stream) = (device.allocate(64).unwrap(), device.create_stream(0).unwrap());
        log.fail_call(n);
        let end = launch(&stream, &kernel, None, Some(&a));
        let failed = log.failed();
        match (failed, end) {
            (Some(name), Err(e)) => {
                assert!(matches!(e.kind(), ErrorKind::Call { call, .. } if *call == name), "{e}");
                names.push(name);
            }
            (None, Ok(_)) => {
                assert!(n > 20, "every call was tried");
                break;
            }
            (failed, end) => panic!("call {n}: {failed:?} and {end:?}"),
        }
        assert_eq!(device.stream_pool_stats().in_use, 0, "{failed:?}");
        // All is as before: the next launch works.
        launch(&stream, &kernel, None, Some(&a)).unwrap();
        drop((kernel, a, stream));
        finish(device, &log);
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names, ["allocate", "create_event", "create_stream", "launch", "record_event", "wait_events"]);
}

#[test]
fn s17_every_stream_has_its_own_frame() {
    let (device, log) = device();
    let kernel = load(&device, &[None, None]);
    let streams: Vec<_> = (0..3).map(|_| device.create_stream(0).unwrap()).collect();
    for _ in 0..4 {
        streams.iter().for_each(|s| _ = launch(s, &kernel, None, None).unwrap());
    }
    assert_eq!(log.count("allocate"), 3);
    drop((kernel, streams));
    finish(device, &log);
}

#[test]
fn s18_memory_is_freed_after_its_last_use_on_every_stream() {
    let (device, log) = device();
    let kernel = load(&device, &[None]);
    let streams: Vec<_> = (0..3).map(|_| device.create_stream(0).unwrap()).collect();
    for used in [0, 1, 3] {
        let a = device.allocate(4096).unwrap();
        streams[..used].iter().for_each(|s| _ = launch(s, &kernel, Some(&a), None).unwrap());
        drop(a);
    }
    assert_eq!(log.count("free"), 3, "the frees are queued at once");
    assert_eq!(log.count("synchronize"), 0, "and the host waits for nothing");
    assert_eq!(device.bytes_in_use(), 0);
    drop((kernel, streams));
    finish(device, &log);
}

#[test]
fn s18_objects_dropped_during_shutdown_are_freed_after_their_last_use() {
    /// Another thread, which releases a buffer when the program has begun to end and its streams are still at work.
    struct Meanwhile(Device, Cell<Option<Buffer>>);
    impl Caller for Meanwhile {
        fn will_block(&self) {
            if !self.0.alive() {
                drop(self.1.take());
            }
        }
    }
    let (device, log) = device();
    let (kernel, stream) = (load(&device, &[None]), device.create_stream(0).unwrap());
    let a = device.allocate(4096).unwrap();
    launch(&stream, &kernel, Some(&a), None).unwrap();
    let meanwhile = Meanwhile(device.clone(), Cell::new(Some(a)));
    device.close(&meanwhile).unwrap();
    assert!(meanwhile.1.take().is_none(), "it was dropped before the stream was waited for");
    drop((kernel, stream, meanwhile));
    finish(device, &log);
}

#[test]
fn s18_without_events_the_host_waits_before_it_frees() {
    let (device, log) = device();
    let kernel = load(&device, &[None]);
    let stream = device.create_stream(0).unwrap();
    for n in 0..4 {
        let a = device.allocate(4096).unwrap();
        launch(&stream, &kernel, Some(&a), None).unwrap();
        log.fail_call(n);
        drop(a);
        log.fail_call(1 << 40);
    }
    drop((kernel, stream));
    finish(device, &log);
}

#[test]
fn s19_a_host_read_waits_only_for_the_stream_of_the_writer() {
    let (device, log) = device();
    let kernel = load(&device, &[None]);
    let (writer, reader, other) =
        (device.create_stream(0).unwrap(), device.create_stream(0).unwrap(), device.create_stream(0).unwrap());
    let (a, b) = (device.allocate(64).unwrap(), device.allocate(64).unwrap());
    launch(&writer, &kernel, None, Some(&a)).unwrap();
    launch(&reader, &kernel, Some(&a), None).unwrap();
    launch(&other, &kernel, None, Some(&b)).unwrap();
    let waits = |access| {
        log.take();
        a.wait(access, &Uninterruptible).unwrap();
        let mut calls = log.take();
        calls.sort();
        calls
    };
    let on = |s: &Stream| format!("synchronize {}", s.handle());
    assert_eq!(waits(HostAccess::Read), [on(&writer)]);
    assert_eq!(waits(HostAccess::Write), [on(&writer), on(&reader)]);
    drop((kernel, writer, reader, other, a, b));
    finish(device, &log);
}

#[test]
fn s21_a_failure_is_reported_once_with_its_stream() {
    let (device, log) = device();
    let kernel = load(&device, &[None]);
    let (one, two) = (device.create_stream(0).unwrap(), device.create_stream(0).unwrap());
    log.fail_task();
    launch(&two, &kernel, None, None).unwrap();
    one.synchronize(&Uninterruptible).unwrap();
    device.default_stream().synchronize(&Uninterruptible).unwrap();
    let error = two.synchronize(&Uninterruptible).unwrap_err();
    assert_eq!(error.to_string(), "assertion failed\n  in kernel `k` at a.py:1, on stream 2");
    two.synchronize(&Uninterruptible).unwrap();
    // An event covers its stream. The program covers all streams, including destroyed ones.
    let event = device.create_event(false).unwrap();
    log.fail_task();
    launch(&one, &kernel, None, None).unwrap();
    event.record(&one).unwrap();
    assert!(matches!(event.synchronize(&Uninterruptible).unwrap_err().kind(), ErrorKind::Assertion(_)));
    log.fail_task();
    launch(&one, &kernel, None, None).unwrap();
    drop(one);
    assert!(matches!(device.synchronize(&Uninterruptible).unwrap_err().kind(), ErrorKind::Assertion(_)));
    device.synchronize(&Uninterruptible).unwrap();
    drop((kernel, two, event));
    finish(device, &log);
}

#[test]
fn s5_s6_streams_outlive_their_program_harmlessly() {
    let (device, log) = device();
    let kernel = load(&device, &FOUR);
    let (stream, event) = (device.create_stream(0).unwrap(), device.create_event(true).unwrap());
    let a = device.allocate(64).unwrap();
    launch(&stream, &kernel, None, Some(&a)).unwrap();
    event.record(&stream).unwrap();
    device.close(&Uninterruptible).unwrap();
    let gone = |e: octants_runtime::DeviceError| assert!(matches!(e.kind(), ErrorKind::ProgramGone { .. }), "{e}");
    gone(event.record(&stream).unwrap_err());
    gone(event.synchronize(&Uninterruptible).unwrap_err());
    gone(stream.synchronize(&Uninterruptible).unwrap_err());
    gone(stream.query().unwrap_err());
    gone(device.create_stream(0).unwrap_err());
    let (other, other_log) = self::device();
    gone(launch(&stream, &load(&other, &[None]), None, None).unwrap_err());
    drop((kernel, a, stream, event));
    finish(device, &log);
    finish(other, &other_log);
}

#[test]
fn s7_handles_of_streams_of_the_program_are_recognized() {
    let (device, log) = device();
    let stream = device.create_stream(0).unwrap();
    log.take();
    assert_eq!(device.stream_from_handle(stream.handle()).unwrap().handle(), stream.handle());
    assert_eq!(device.stream_from_handle(0).unwrap().handle(), 0);
    assert!(log.take().is_empty());
    let foreign = device.stream_from_handle(4711).unwrap();
    drop(foreign);
    assert_eq!(log.count("destroy_stream"), 0, "someone else's stream is not ours to destroy");
    drop(stream);
    assert_eq!(log.count("destroy_stream"), 1);
    device.close(&Uninterruptible).unwrap();
    assert_eq!(log.mistakes(), Vec::<String>::new());
}

#[test]
fn s1_s4_handles_queries_and_waits() {
    let (device, log) = device();
    let kernel = load(&device, &[None]);
    let (one, two) = (device.create_stream(3).unwrap(), device.create_stream(0).unwrap());
    let (event, timed) = (device.create_event(false).unwrap(), device.create_event(true).unwrap());
    assert!(one.handle() != 0 && two.handle() != one.handle() && event.handle() != timed.handle());
    assert!(one.query().unwrap() && event.query().unwrap(), "nothing is queued, nothing recorded");
    event.wait(&two, &Uninterruptible).unwrap();
    launch(&one, &kernel, None, None).unwrap();
    event.record(&one).unwrap();
    assert!(!one.query().unwrap() && !event.query().unwrap() && two.query().unwrap());
    two.wait_for(&one, &Uninterruptible).unwrap();
    two.wait_for(&two, &Uninterruptible).unwrap();
    launch(&two, &kernel, None, None).unwrap();
    // A wait for the second includes the first.
    two.synchronize(&Uninterruptible).unwrap();
    assert!(one.query().unwrap() && event.query().unwrap());
    let asked = |a: &octants_runtime::Event, b| a.elapsed_ms(b, &Uninterruptible).map_err(|e| e.to_string());
    let timing = "elapsed_ms() needs events with timing: create them with create_event(timing=True)";
    assert_eq!(asked(&event, &timed), Err(timing.into()));
    assert_eq!(asked(&timed, &timed), Err("elapsed_ms() needs two recorded events: call record() on both".into()));
    timed.record(&one).unwrap();
    assert_eq!(asked(&timed, &timed), Ok(1.0));
    drop((kernel, one, two, event, timed));
    finish(device, &log);
}

#[test]
fn s8_without_streams_every_call_works_in_order() {
    let (device, log) = device_that(RecordingDriver::immediate);
    let kernel = load(&device, &FOUR);
    let (one, two) = (device.create_stream(5).unwrap(), device.create_stream(0).unwrap());
    let (from, to) = (device.create_event(true).unwrap(), device.create_event(true).unwrap());
    assert_eq!([one.handle(), two.handle(), from.handle(), to.handle()], [0; 4]);
    let a = device.allocate(64).unwrap();
    log.take();
    from.record(&one).unwrap();
    launch(&one, &kernel, None, Some(&a)).unwrap();
    assert!(one.query().unwrap(), "a launch returns with its work done");
    to.record(&one).unwrap();
    to.wait(&two, &Uninterruptible).unwrap();
    two.wait_for(&one, &Uninterruptible).unwrap();
    launch(&two, &kernel, Some(&a), None).unwrap();
    assert!(to.query().unwrap() && from.elapsed_ms(&to, &Uninterruptible).is_ok());
    to.synchronize(&Uninterruptible).unwrap();
    two.synchronize(&Uninterruptible).unwrap();
    a.wait(HostAccess::Write, &Uninterruptible).unwrap();
    let calls = log.take();
    let launches: Vec<_> = calls.iter().filter(|c| c.starts_with("launch")).collect();
    let tasks: Vec<_> = launches.iter().map(|c| c.split(' ').nth(1).unwrap()).collect();
    assert_eq!(tasks, ["0", "1", "2", "3", "4", "5"].repeat(2), "groups too, one after the other");
    assert!(launches.iter().all(|c| c.ends_with(" on 0")), "{launches:?}");
    assert!(!calls.iter().any(|c| c.starts_with("create_stream")), "the driver hears of no other stream: {calls:?}");
    let stats = device.stream_pool_stats();
    assert_eq!((stats.created, stats.in_use, stats.reused), (0, 0, 0));
    drop((kernel, one, two, from, to, a));
    finish(device, &log);
}

#[test]
fn s23_without_stream_ordered_memory_frees_still_follow_every_use() {
    let (device, log) = device_that(RecordingDriver::without_ordered_memory);
    let (plain, forked) = (load(&device, &[None]), load(&device, &FOUR));
    let streams: Vec<_> = (0..3).map(|_| device.create_stream(0).unwrap()).collect();
    let event = device.create_event(false).unwrap();
    for used in [0, 1, 3] {
        let a = device.allocate(4096).unwrap();
        for stream in &streams[..used] {
            launch(stream, &forked, Some(&a), None).unwrap();
        }
        // A free is ordered with one stream only, so the other uses must be ordered before it.
        drop(a);
        let b = device.allocate(4096).unwrap();
        launch(&streams[0], &plain, None, Some(&b)).unwrap();
        event.record(&streams[0]).unwrap();
        event.wait(&streams[1], &Uninterruptible).unwrap();
        launch(&streams[1], &plain, Some(&b), None).unwrap();
    }
    // Frames grow, which exchanges memory that queued work uses.
    let large = device.load(&Artifact { frame_bytes: 1 << 16, ..artifact(&FOUR, 0) }).unwrap();
    streams.iter().for_each(|s| _ = launch(s, &large, None, None).unwrap());
    drop((plain, forked, large, streams, event));
    finish(device, &log);
}

#[test]
fn s12_tasks_before_groups_run_on_the_launching_stream_before_the_fork() {
    let (device, log) = device();
    let kernel = load(&device, &[None, Some(0), Some(1), None]);
    let stream = device.create_stream(0).unwrap();
    launch(&stream, &kernel, None, None).unwrap();
    log.take();
    launch(&stream, &kernel, None, None).unwrap();
    let calls = log.take();
    let at = |start: &str| calls.iter().position(|c| c.starts_with(start)).unwrap();
    let on = |start: &str| calls[at(start)].rsplit(' ').next().unwrap().to_string();
    let own = stream.handle().to_string();
    assert!(at("launch 0") < at("record_event") && at("record_event") < at("launch 1"), "{calls:?}");
    assert_eq!([on("launch 0"), on("launch 2"), on("launch 3")], [own.clone(), own.clone(), own.clone()]);
    assert_ne!(on("launch 1"), own);
    drop((kernel, stream));
    finish(device, &log);
}

#[test]
fn s22_threads_launch_on_their_own_streams_and_on_a_shared_one() {
    let (device, log) = device();
    let (plain, forked) = (load(&device, &[None, None]), load(&device, &FOUR));
    let (shared, buffer) = (device.create_stream(0).unwrap(), device.allocate(64).unwrap());
    std::thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| {
                let own = device.create_stream(0).unwrap();
                for _ in 0..30 {
                    launch(&own, &plain, Some(&buffer), None).unwrap();
                    launch(&shared, &forked, None, Some(&buffer)).unwrap();
                    launch(&own, &forked, None, None).unwrap();
                    drop(device.allocate(100).unwrap());
                }
            });
        }
    });
    assert_eq!(device.launches(), 8 * 30 * 3);
    let stats = device.stream_pool_stats();
    assert!(stats.in_use == 0 && stats.created <= 8 * 3 + 3 && stats.idle == stats.created, "{stats:?}");
    drop((plain, forked, shared, buffer));
    finish(device, &log);
}
