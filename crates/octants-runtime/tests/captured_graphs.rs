//! Captured graphs, with a driver that checks the order of all uses.

#![allow(clippy::unwrap_used)]

use octants_artifact::{Artifact, ScalarKind, TaskMeta};
use octants_driver_recording::{Log, device, finish};
use octants_runtime::{
    Buffer, CapturedGraph, Device, ErrorKind, HostAccess, HostArray, HostStep, LoadedKernel, Pointer, Stream,
    Uninterruptible,
};

/// A kernel of two tasks whose slots hold addresses; the second is written.
fn load(device: &Device, results: usize) -> LoadedKernel {
    let task = TaskMeta { name: "t".into(), ..TaskMeta::default() };
    let artifact = Artifact {
        kernel: "k".into(),
        arg_slots: 2,
        frame_bytes: 64,
        result: vec![ScalarKind::U64; results],
        tasks: vec![task; 2],
        ..Artifact::default()
    };
    let pointers =
        vec![Pointer { slot: 0, written: false, buffer: None }, Pointer { slot: 1, written: true, buffer: None }];
    device.load(&artifact).unwrap().with_pointers(pointers)
}

fn launch(stream: &Stream, kernel: &LoadedKernel, read: &Buffer, written: &Buffer) -> octants_runtime::Result<()> {
    // SAFETY: the driver runs nothing.
    unsafe { stream.launch(kernel, &[read.ptr()?, written.ptr()?], &Uninterruptible) }.map(|_| ())
}

fn replay(stream: &Stream, graph: &CapturedGraph) -> octants_runtime::Result<()> {
    // SAFETY: as above.
    unsafe { stream.launch_graph(graph, &Uninterruptible) }
}

fn capture(device: &Device, work: impl FnOnce()) -> CapturedGraph {
    let capture = device.capture().unwrap();
    capture.begin_here().unwrap();
    work();
    assert!(capture.end_here() && !capture.end_here());
    CapturedGraph::of(&capture)
}

struct Bench {
    device: Device,
    kernel: LoadedKernel,
    a: Buffer,
    b: Buffer,
    streams: [Stream; 3],
}

impl Bench {
    fn new() -> (Bench, std::sync::Arc<Log>) {
        let (device, log) = device();
        let memory = || device.allocate(64).unwrap();
        let streams = [0; 3].map(|_| device.create_stream(0).unwrap());
        let (kernel, a, b) = (load(&device, 0), memory(), memory());
        (Bench { device, kernel, a, b, streams }, log)
    }

    /// A fork of two streams from a third, with a join, and an event from one branch to the other.
    fn fork(&self) -> CapturedGraph {
        let Bench { device, kernel, a, b, streams: [main, left, right] } = self;
        let event = device.create_event(false).unwrap();
        capture(device, || {
            main.fill(a, 0, &[1, 2, 3], 21, &Uninterruptible).unwrap();
            left.wait_for(main, &Uninterruptible).unwrap();
            right.wait_for(main, &Uninterruptible).unwrap();
            launch(left, kernel, a, a).unwrap();
            launch(right, kernel, b, b).unwrap();
            event.record(right).unwrap();
            event.wait(left, &Uninterruptible).unwrap();
            launch(left, kernel, b, a).unwrap();
            main.wait_for(left, &Uninterruptible).unwrap();
            main.copy(b, 0, a, 0, 64, &Uninterruptible).unwrap();
        })
    }

    fn end(self, graph: CapturedGraph, log: &Log) {
        let Bench { device, kernel, a, b, streams } = self;
        drop((graph, kernel, a, b, streams));
        finish(device, log);
    }
}

#[test]
fn branches_run_on_pool_streams_after_their_dependencies() {
    let (bench, log) = Bench::new();
    log.take();
    let graph = bench.fork();
    let calls = log.take();
    assert!(!calls.iter().any(|c| c.starts_with("launch") || c.starts_with("record_event")), "{calls:?}");
    let steps: Vec<_> =
        graph.describe().into_iter().map(|(what, lane, depends_on)| (what, (lane, depends_on))).collect();
    let expected = [
        ("copy 63 bytes", (0, vec![])),
        ("k", (1, vec![0])),
        ("k", (2, vec![0])),
        ("k", (1, vec![1, 2])),
        ("copy 64 bytes", (0, vec![0, 3])),
    ];
    assert_eq!(steps, expected.map(|(what, how)| (what.to_string(), how)));
    let main = &bench.streams[0];
    for round in 0..3 {
        replay(main, &graph).unwrap();
        assert_eq!(bench.device.stream_pool_stats().created, 2, "round {round}");
    }
    log.take();
    replay(main, &graph).unwrap();
    let calls = log.take();
    assert!(!calls.iter().any(|c| c.contains("synchronize") || c.starts_with("allocate")), "{calls:?}");
    assert_eq!(calls.iter().filter(|c| c.starts_with("launch")).count(), 6);
    bench.end(graph, &log);
}

#[test]
fn launches_on_several_streams_are_ordered() {
    let (bench, log) = Bench::new();
    let graph = bench.fork();
    // The driver reports a mistake if two launches use the graph's frames concurrently.
    for stream in bench.streams.iter().chain([bench.device.default_stream()]).chain(&bench.streams) {
        replay(stream, &graph).unwrap();
    }
    bench.b.wait(HostAccess::Read, &Uninterruptible).unwrap();
    bench.end(graph, &log);
}

#[test]
fn a_replay_recovers_from_a_failure_of_each_call() {
    let mut names = Vec::new();
    for n in 0.. {
        let (bench, log) = Bench::new();
        let graph = bench.fork();
        log.fail_call(n);
        let end = replay(&bench.streams[1], &graph);
        match (log.failed(), end) {
            (Some(name), Err(e)) => {
                assert!(matches!(e.kind(), ErrorKind::Call { call, .. } if *call == name), "{e}");
                names.push(name);
            }
            (None, Ok(())) => {
                assert!(n > 15, "every call was tried");
                break;
            }
            (failed, end) => panic!("call {n}: {failed:?} and {end:?}"),
        }
        assert_eq!(bench.device.stream_pool_stats().in_use, 0);
        replay(&bench.streams[1], &graph).unwrap();
        bench.end(graph, &log);
    }
    assert!(["launch", "record_event", "wait_events", "copy_on_device", "allocate"].iter().all(|n| names.contains(n)));
}

#[test]
fn a_graph_keeps_code_and_memory_alive() {
    let (device, log) = device();
    let stream = device.create_stream(0).unwrap();
    let graph = {
        let (kernel, a) = (load(&device, 0), device.allocate(64).unwrap());
        capture(&device, || launch(&stream, &kernel, &a, &a).unwrap())
    };
    log.take();
    replay(&stream, &graph).unwrap();
    assert!(!log.take().iter().any(|c| c == "unload" || c.starts_with("free")));
    drop((graph, stream));
    finish(device, &log);
}

#[test]
fn graphs_nest_and_their_branches_stay_separate() {
    let (bench, log) = Bench::new();
    let inner = bench.fork();
    let [main, left, _] = &bench.streams;
    let outer = capture(&bench.device, || {
        replay(main, &inner).unwrap();
        replay(left, &inner).unwrap();
        launch(main, &bench.kernel, &bench.a, &bench.b).unwrap();
    });
    let lanes: Vec<_> = outer.describe().into_iter().map(|(_, lane, _)| lane).collect();
    assert_eq!(lanes, [0, 1, 2, 1, 0, 3, 4, 5, 4, 3, 0], "no lane is that of two graphs");
    assert_eq!(outer.describe()[10].2, [4], "behind the end of the first");
    drop(inner);
    bench.end(outer, &log);
}

#[test]
fn arrays_of_the_host_are_staged_at_each_launch() {
    let (bench, log) = Bench::new();
    let [main, left, _] = &bench.streams;
    let array = [7u8; 32];
    let low = array.as_ptr() as u64;
    let host = HostArray { slot: 0, low, high: low + 32, written: false, gaps: false };
    let graph = capture(&bench.device, || {
        left.wait_for(main, &Uninterruptible).unwrap();
        launch(left, &bench.kernel, &bench.a, &bench.a).unwrap();
        // SAFETY: the array is alive.
        unsafe { main.launch_with(&bench.kernel, &[low, bench.b.ptr().unwrap()], &[host], &Uninterruptible) }.unwrap();
    });
    for _ in 0..2 {
        log.take();
        replay(main, &graph).unwrap();
        assert!(log.take().iter().any(|c| c.starts_with("copy_to_device")), "a copy each time");
    }
    bench.end(graph, &log);
}

#[test]
fn waiting_for_a_graph_that_has_not_run_is_refused() {
    let (bench, log) = Bench::new();
    let (stream, event) = (&bench.streams[0], bench.device.create_event(false).unwrap());
    let told = load(&bench.device, 1);
    let before = bench.device.create_event(false).unwrap();
    before.record(stream).unwrap();
    let graph = capture(&bench.device, || {
        event.record(stream).unwrap();
        let mut byte = [0];
        let refused = [
            stream.synchronize(&Uninterruptible),
            stream.query().map(drop),
            event.synchronize(&Uninterruptible),
            event.query().map(drop),
            bench.device.synchronize(&Uninterruptible),
            bench.a.read(0, &mut byte, &Uninterruptible),
            bench.a.write(0, &byte, &Uninterruptible),
            stream.read(&bench.a, 0, &mut byte, &Uninterruptible),
            launch(stream, &told, &bench.a, &bench.b),
            before.wait(stream, &Uninterruptible),
            bench.device.create_event(true).unwrap().record(stream),
            bench.device.capture().unwrap().begin_here(),
        ];
        for (n, end) in refused.into_iter().enumerate() {
            let error = end.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Misuse { .. }), "{n}: {error}");
        }
    });
    assert_eq!(graph.steps(), 0);
    replay(stream, &graph).unwrap();
    drop((event, before, told));
    bench.end(graph, &log);
}

#[test]
fn a_graph_belongs_to_one_program_and_device() {
    let (bench, log) = Bench::new();
    let graph = bench.fork();
    let (other, other_log) = device();
    let error = replay(other.default_stream(), &graph).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ForeignDevice { what: "graph" }), "{error}");
    finish(other, &other_log);
    let stream = bench.streams[0].clone();
    bench.device.close(&Uninterruptible).unwrap();
    let error = replay(&stream, &graph).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ProgramGone { .. }), "{error}");
    drop(stream);
    bench.end(graph, &log);
}

#[test]
fn the_host_performs_its_steps_between_the_others() {
    let (bench, log) = Bench::new();
    let [main, left, _] = &bench.streams;
    let graph = capture(&bench.device, || {
        launch(main, &bench.kernel, &bench.a, &bench.b).unwrap();
        main.capture_host_step("first", Some("all"), std::sync::Arc::new(1u32)).unwrap();
        left.wait_for(main, &Uninterruptible).unwrap();
        left.capture_host_step("second", None, std::sync::Arc::new(2u32)).unwrap();
        launch(left, &bench.kernel, &bench.b, &bench.a).unwrap();
        main.wait_for(left, &Uninterruptible).unwrap();
        let args = [bench.a.ptr().unwrap(), bench.b.ptr().unwrap()];
        main.capture_host_launch(&bench.kernel, &args, &[], std::sync::Arc::new(3u32)).unwrap();
    });
    let steps: Vec<_> = graph.describe().into_iter().map(|(what, _, depends_on)| (what, depends_on)).collect();
    let expected = [("k", vec![]), ("first", vec![0]), ("second", vec![1]), ("k", vec![2]), ("k", vec![1, 3])];
    assert_eq!(steps, expected.map(|(what, how)| (what.to_string(), how)));
    assert_eq!(graph.collectives(), ["all", "kernel `k`"]);
    let performed = std::cell::RefCell::new(Vec::new());
    let launches = |log: &Log| log.take().iter().filter(|c| c.starts_with("launch")).count();
    let perform = |step: &HostStep| {
        let number = *step.downcast_ref::<u32>().unwrap();
        performed.borrow_mut().push((number, launches(&log)));
        // As between two launches: the stream is free.
        launch(main, &bench.kernel, &bench.a, &bench.b)
    };
    for _ in 0..2 {
        log.take();
        // SAFETY: the driver runs nothing.
        unsafe { main.launch_graph_with(&graph, &Uninterruptible, &perform) }.unwrap();
        assert_eq!(performed.take(), [(1, 2), (2, 2), (3, 4)]);
        assert_eq!(launches(&log), 2);
    }
    let refuse = |_: &HostStep| Err(ErrorKind::Misuse { message: "no".into() }.into());
    // SAFETY: as above.
    let error = unsafe { main.launch_graph_with(&graph, &Uninterruptible, &refuse) }.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Misuse { message } if message == "no"), "{error}");
    assert!(matches!(replay(main, &graph).unwrap_err().kind(), ErrorKind::CompilerBug(_)));
    graph.exchange_host(1, ("other", None), std::sync::Arc::new(7u32));
    // SAFETY: as above.
    unsafe { left.launch_graph_with(&graph, &Uninterruptible, &perform) }.unwrap();
    assert_eq!(performed.take().iter().map(|p| p.0).collect::<Vec<_>>(), [7, 2, 3]);
    assert_eq!(graph.collectives(), ["kernel `k`"]);
    bench.end(graph, &log);
}
