//! The profiler, with a driver that checks the order of all uses: its cost, its records, and the release of its events.

#![allow(clippy::unwrap_used)]

use octants_artifact::{Artifact, TaskMeta, graph_of_groups};
use octants_driver_recording::{Log, device, finish};
use octants_runtime::{Device, Lane, LoadedKernel, Result, Stream, Uninterruptible};

const END: u64 = u64::MAX;

fn load(device: &Device, name: &str, groups: &[Option<u32>]) -> LoadedKernel {
    let task = |i: usize| TaskMeta { name: format!("{name}_{i}_range"), ..TaskMeta::default() };
    let tasks = (0..groups.len()).map(task).collect();
    let artifact = Artifact { kernel: name.into(), tasks, graph: graph_of_groups(groups), ..Artifact::default() };
    device.load(&artifact).unwrap()
}

fn launch(stream: &Stream, kernel: &LoadedKernel) -> Result<()> {
    // SAFETY: the driver runs nothing.
    unsafe { stream.launch(kernel, &[], &Uninterruptible) }.map(|_| ())
}

/// Calls of a launch, by name, after all its resources were created.
fn calls(log: &Log, mut work: impl FnMut()) -> Vec<String> {
    work();
    log.take();
    work();
    log.take().iter().map(|c| c.split(' ').next().unwrap().to_string()).collect()
}

#[test]
fn profiling_adds_two_events_per_task() {
    let (device, log) = device();
    let kernel = load(&device, "k", &[None, None]);
    let stream = device.create_stream(0).unwrap();
    let once = || launch(&stream, &kernel).unwrap();
    assert_eq!(calls(&log, once), ["launch", "launch"]);
    let profiler = device.profiler();
    profiler.start().unwrap();
    let measured = ["record_event", "launch", "record_event", "record_event", "launch", "record_event"];
    // Events are created until one is released.
    let pooled = calls(&log, || {
        once();
        profiler.resolve(&Uninterruptible).unwrap();
        log.take();
        once();
    });
    assert_eq!(pooled, measured);
    profiler.stop();
    assert_eq!(calls(&log, once), ["launch", "launch"]);
    drop((kernel, stream));
    finish(device, &log);
}

#[test]
fn the_profiler_counts_its_users() {
    let (device, log) = device();
    let kernel = load(&device, "k", &[None]);
    let stream = device.create_stream(0).unwrap();
    let profiler = device.profiler();
    profiler.start().unwrap();
    profiler.start().unwrap();
    profiler.stop();
    launch(&stream, &kernel).unwrap();
    profiler.stop();
    launch(&stream, &kernel).unwrap();
    profiler.resolve(&Uninterruptible).unwrap();
    assert_eq!(profiler.spans(0, END).0.len(), 1);
    drop((kernel, stream));
    finish(device, &log);
}

#[test]
fn task_records_have_lanes_and_dependencies() {
    let (device, log) = device();
    let (one, forked) = (load(&device, "one", &[None]), load(&device, "forked", &[Some(0), Some(1)]));
    let (a, b, c) =
        (device.create_stream(0).unwrap(), device.create_stream(0).unwrap(), device.create_stream(0).unwrap());
    let profiler = device.profiler();
    profiler.start().unwrap();
    launch(&a, &one).unwrap(); // 0
    // `b` passes on its own dependencies.
    b.wait_for(&a, &Uninterruptible).unwrap();
    c.wait_for(&b, &Uninterruptible).unwrap();
    launch(&c, &one).unwrap(); // 1
    launch(&c, &one).unwrap(); // 2
    launch(&a, &forked).unwrap(); // 3 on a worker, 4
    launch(&a, &one).unwrap(); // 5
    let end = profiler.stop();
    profiler.resolve(&Uninterruptible).unwrap();
    let (mut spans, dropped) = profiler.spans(0, end);
    spans.sort_by_key(|s| s.id);
    let lanes = profiler.lanes();
    let found: Vec<_> =
        spans.iter().map(|s| (s.kernel.name.as_str(), s.task, lanes[s.lane as usize], s.depends_on.clone())).collect();
    let (on_a, on_c) = (Lane::Stream(a.number()), Lane::Stream(c.number()));
    assert_eq!(
        found,
        [
            ("one", 0, on_a, vec![]),
            ("one", 0, on_c, vec![0]),
            ("one", 0, on_c, vec![]),
            ("forked", 0, Lane::Worker(1), vec![0]),
            ("forked", 1, on_a, vec![]),
            ("one", 0, on_a, vec![3]),
        ]
    );
    assert_eq!((dropped, profiler.spans(1, 3).0.len()), (0, 2));
    let totals = profiler.totals();
    let counts: Vec<_> = totals.iter().map(|(n, t)| (n.as_str(), t.launches.count, t.tasks.len())).collect();
    assert_eq!(counts, [("forked", 1, 2), ("one", 4, 1)]);
    assert_eq!(totals[0].1.tasks[1].0, "forked_1_range");
    assert_eq!(profiler.clear(&Uninterruptible).unwrap(), 6);
    assert!(profiler.totals().is_empty());
    drop((one, forked, a, b, c));
    finish(device, &log);
}

#[test]
fn times_are_read_and_events_reused_without_a_query() {
    let (device, log) = device();
    let kernel = load(&device, "k", &[None]);
    let stream = device.create_stream(0).unwrap();
    let profiler = device.profiler();
    profiler.start().unwrap();
    for _ in 0..10 {
        for _ in 0..2_000 {
            launch(&stream, &kernel).unwrap();
        }
        log.all_done();
    }
    // At most about 2,500 of the 20,000 launches are unread at a time.
    let created = log.count("create_event");
    assert!(created < 2 * 3_000, "{created} events");
    profiler.resolve(&Uninterruptible).unwrap();
    assert_eq!(profiler.totals()[0].1.launches.count, 20_000);
    drop((kernel, stream));
    finish(device, &log);
}

#[test]
fn a_host_far_ahead_waits_for_its_own_stream() {
    let (device, log) = device();
    let kernel = load(&device, "k", &[None]);
    let stream = device.create_stream(0).unwrap();
    device.profiler().start().unwrap();
    (0..20_000).for_each(|_| launch(&stream, &kernel).unwrap());
    assert!(log.count("synchronize") >= 2, "{}", log.count("synchronize"));
    assert!(log.count("create_event") < 2 * 9_000, "{}", log.count("create_event"));
    drop((kernel, stream));
    finish(device, &log);
}

#[test]
fn a_failure_of_any_call_releases_everything() {
    for n in 0.. {
        let (device, log) = device();
        let kernel = load(&device, "k", &[None, Some(0), Some(1)]);
        let stream = device.create_stream(0).unwrap();
        log.fail_call(n);
        let profiler = device.profiler();
        let end = profiler
            .start()
            .and_then(|_| launch(&stream, &kernel))
            .and_then(|()| launch(&stream, &kernel))
            .and_then(|()| profiler.resolve(&Uninterruptible));
        let failed = log.failed();
        assert_eq!(end.is_err(), failed.is_some(), "{n}: {failed:?}, {end:?}");
        drop((kernel, stream));
        let _ = device.close(&Uninterruptible);
        drop(device);
        assert_eq!(log.leaks(), Vec::<String>::new(), "call {n}, {failed:?}");
        assert_eq!(log.mistakes(), Vec::<String>::new(), "call {n}, {failed:?}");
        if end.is_ok() {
            assert!(n > 20, "{n}");
            break;
        }
    }
}

#[test]
fn a_captured_stream_is_not_measured() {
    let (device, log) = device();
    let kernel = load(&device, "k", &[None]);
    let stream = device.stream_from_handle(99).unwrap();
    device.profiler().start().unwrap();
    launch(&stream, &kernel).unwrap();
    log.capture(Some(99));
    log.take();
    launch(&stream, &kernel).unwrap();
    let calls = log.take();
    log.capture(None);
    assert!(!calls.iter().any(|c| c.starts_with("record_event")), "{calls:?}");
    device.profiler().resolve(&Uninterruptible).unwrap();
    assert_eq!(device.profiler().spans(0, END).0.len(), 1);
    drop((kernel, stream));
    device.close(&Uninterruptible).unwrap();
    drop(device);
    assert_eq!((log.mistakes(), log.leaks()), (vec![], vec!["stream 99".into()]), "the stream is someone else's");
}
