//! How the launcher walks a task graph, with a driver that records its calls: data-dependent loops and branches on
//! devices whose memory is host-addressable or not, and on a synchronous device.

#![allow(clippy::unwrap_used)]

use std::cell::Cell;

use octants_artifact::{Artifact, Condition, GraphPart, ScalarKind, Site, SiteKind, TaskMeta};
use octants_driver_recording::{Log, Message, RecordingDriver, device_that, finish};
use octants_runtime::{
    Buffer, Caller, Device, ErrorKind, HostArray, LoadedKernel, Pointer, Result, Stream, Uninterruptible,
};

type Setting = fn(RecordingDriver) -> RecordingDriver;

/// Memory apart, memory that is shared, and no streams.
const SETTINGS: [Setting; 3] = [|d| d, RecordingDriver::sharing_memory, |d| d.sharing_memory().immediate()];

/// The contents of the memory at slot 0.
const FLAG: Condition = Condition { slot: Some(0), offset: 0, kind: ScalarKind::I32 };
/// The start of the frame.
const IN_FRAME: Condition = Condition { slot: None, offset: 0, kind: ScalarKind::I32 };

fn artifact(tasks: usize, graph: Vec<GraphPart>) -> Artifact {
    Artifact {
        kernel: "k".into(),
        arg_slots: 1,
        frame_bytes: 64,
        tasks: (0..tasks).map(|n| TaskMeta { name: format!("t{n}"), writes: vec![0], ..TaskMeta::default() }).collect(),
        graph,
        sites: vec![Site { kind: SiteKind::Assert, parts: vec![], location: "a.py:1".into() }],
        ..Artifact::default()
    }
}

fn load(device: &Device, artifact: &Artifact) -> LoadedKernel {
    device.load(artifact).unwrap().with_pointers(vec![Pointer { slot: 0, written: true, buffer: None }])
}

fn repeat(condition: Condition, body: Vec<GraphPart>) -> GraphPart {
    GraphPart::While { condition, body, guarded: None }
}

fn launch(stream: &Stream, kernel: &LoadedKernel, flag: &Buffer) -> Result<()> {
    // SAFETY: the driver runs nothing.
    unsafe { stream.launch(kernel, &[flag.ptr().unwrap()], &Uninterruptible) }.map(|_| ())
}

/// The tasks that were launched, and the numbers of their launches.
fn tasks(log: &Log) -> Vec<(String, u64)> {
    log.take_launched().into_iter().map(|l| (l.task, l.number)).collect()
}

fn named(tasks: &[(&str, u64)]) -> Vec<(String, u64)> {
    tasks.iter().map(|(t, n)| (t.to_string(), *n)).collect()
}

#[test]
fn a_loop_runs_until_its_condition_is_zero_with_one_launch_per_iteration() {
    for setting in SETTINGS {
        let (device, log) = device_that(setting);
        let graph = vec![GraphPart::Tasks(0, 1), repeat(FLAG, vec![GraphPart::Tasks(1, 3)]), GraphPart::Tasks(3, 4)];
        let kernel = load(&device, &artifact(4, graph));
        let (flag, stream) = (device.allocate(4).unwrap(), device.default_stream().clone());
        log.task_writes(2, Some(0), &[2, -1, 0]);
        launch(&stream, &kernel, &flag).unwrap();
        let of_round = |round: u64| [("t1", round << 40), ("t2", round << 40)];
        let rounds = [of_round(0), of_round(1), of_round(2)].concat();
        assert_eq!(tasks(&log), named(&[&[("t0", 0)], &rounds[..], &[("t3", 0)]].concat()));
        // The body runs once in any case.
        launch(&stream, &kernel, &flag).unwrap();
        assert_eq!(tasks(&log), named(&[("t0", 1), ("t1", 1), ("t2", 1), ("t3", 1)]));
        drop((kernel, flag, stream));
        finish(device, &log);
    }
}

#[test]
fn a_driver_with_graphs_receives_loops_and_counts_iterations_for_random_numbers() {
    let (device, log) = device_that(RecordingDriver::making_one);
    let graph = vec![GraphPart::Tasks(0, 1), repeat(FLAG, vec![GraphPart::Tasks(1, 2)])];
    let flag = device.allocate(4).unwrap();
    let calls = |drawing: Option<usize>| {
        let mut artifact = artifact(2, graph.clone());
        if let Some(task) = drawing {
            artifact.tasks[task].draws_random = true;
        }
        let kernel = load(&device, &artifact);
        log.take();
        launch(device.default_stream(), &kernel, &flag).unwrap();
        let launching = |c: &String| c.starts_with("launch");
        log.take().into_iter().filter(launching).map(|c| c.split(' ').next().unwrap().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(calls(None), ["launch_as_one"]);
    assert_eq!(calls(Some(0)), ["launch_as_one"], "that task runs once");
    assert_eq!(calls(Some(1)), ["launch_as_one"], "the device counts the rounds, in the frame");
    drop(flag);
    finish(device, &log);
}

#[test]
fn the_host_waits_for_the_launching_stream_and_reads_only_the_condition() {
    let calls = |setting: Setting| {
        let (device, log) = device_that(setting);
        let kernel = load(&device, &artifact(1, vec![repeat(FLAG, vec![GraphPart::Tasks(0, 1)])]));
        let (flag, stream, other) =
            (device.allocate(4).unwrap(), device.create_stream(0).unwrap(), device.create_stream(0).unwrap());
        let plain = load(&device, &artifact(1, vec![]));
        let apart = device.allocate(4).unwrap();
        launch(&other, &plain, &apart).unwrap();
        log.task_writes(0, Some(0), &[1, 0]);
        log.take();
        launch(&stream, &kernel, &flag).unwrap();
        let calls = log.take();
        let handle = stream.handle();
        drop((kernel, plain, flag, apart, stream, other));
        finish(device, &log);
        let own = |c: &String| c.ends_with(&format!(" {handle}")) || c.starts_with("allocate_pinned");
        assert!(calls.iter().all(own), "{calls:?}");
        calls.iter().map(|c| c.split(' ').next().unwrap().to_string()).collect::<Vec<_>>()
    };
    let shared = ["allocate", "launch", "synchronize", "launch", "synchronize"];
    assert_eq!(calls(RecordingDriver::sharing_memory), shared);
    // It reads the copy in its own memory, without a wait.
    let round = ["launch", "copy_to_host"];
    assert_eq!(calls(|d| d), [&["allocate", "allocate_pinned"], &round[..], &round].concat());
}

#[test]
fn loops_nest_and_conditions_may_be_in_the_frame() {
    for setting in SETTINGS {
        let (device, log) = device_that(setting);
        let inner = repeat(FLAG, vec![GraphPart::Tasks(0, 1)]);
        let kernel = load(&device, &artifact(2, vec![repeat(IN_FRAME, vec![inner, GraphPart::Tasks(1, 2)])]));
        let flag = device.allocate(4).unwrap();
        log.task_writes(0, Some(0), &[1, 0, 0, 1, 0]);
        log.task_writes(1, None, &[7, 7, 0]);
        launch(device.default_stream(), &kernel, &flag).unwrap();
        let order: Vec<String> = tasks(&log).into_iter().map(|t| t.0).collect();
        assert_eq!(order.join(" "), "t0 t0 t1 t0 t1 t0 t0 t1");
        drop((kernel, flag));
        finish(device, &log);
    }
}

#[test]
fn a_branch_runs_one_side_and_a_launch_resumes_at_its_checkpoint() {
    for setting in SETTINGS {
        let (device, log) = device_that(setting);
        let choice = GraphPart::If {
            condition: FLAG,
            then: vec![GraphPart::Tasks(1, 2)],
            otherwise: vec![GraphPart::Tasks(2, 3)],
        };
        let body = vec![GraphPart::Tasks(3, 4)];
        let stop = GraphPart::Checkpoint { label: 5, yields_on: FLAG, body };
        let kernel = load(&device, &artifact(5, vec![GraphPart::Tasks(0, 1), choice, stop, GraphPart::Tasks(4, 5)]));
        let flag = device.allocate(4).unwrap();
        log.task_writes(0, Some(0), &[0, 256]);
        let whole = |taken| ["t0", taken, "t3", "t4"];
        let args = [flag.ptr().unwrap()];
        let from = |label| {
            // SAFETY: the driver runs nothing.
            let end =
                unsafe { device.default_stream().launch_from(&kernel, &args, &[], label, &Uninterruptible) }.unwrap();
            (end, tasks(&log).into_iter().map(|t| t.0).collect::<Vec<_>>())
        };
        assert_eq!(from(None), (None, whole("t2").map(String::from).to_vec()));
        assert_eq!(from(None), (Some(5), whole("t1")[..3].iter().map(|t| t.to_string()).collect()));
        // The integer is unchanged; resuming resets it.
        assert_eq!(from(Some(5)), (Some(5), vec!["t3".to_string()]));
        drop((kernel, flag));
        finish(device, &log);
    }
}

#[test]
fn a_switch_runs_the_case_of_its_number() {
    for setting in SETTINGS {
        let (device, log) = device_that(setting);
        let task = |n| vec![GraphPart::Tasks(n, n + 1)];
        let stop = GraphPart::Checkpoint { label: 5, yields_on: IN_FRAME, body: task(2) };
        let cases = vec![task(1), vec![stop], Vec::new()];
        let switch = GraphPart::Switch { selector: FLAG, cases, otherwise: task(3) };
        let kernel = load(&device, &artifact(5, vec![GraphPart::Tasks(0, 1), switch, GraphPart::Tasks(4, 5)]));
        let flag = device.allocate(4).unwrap();
        log.task_writes(0, Some(0), &[0, 1, 2, 3, u32::MAX as i32 as _]);
        let args = [flag.ptr().unwrap()];
        let from = |label| {
            // SAFETY: the driver runs nothing.
            unsafe { device.default_stream().launch_from(&kernel, &args, &[], label, &Uninterruptible) }.unwrap();
            tasks(&log).into_iter().map(|t| t.0).collect::<Vec<_>>().join(" ")
        };
        let taken = ["t0 t1 t4", "t0 t2 t4", "t0 t4", "t0 t3 t4", "t0 t3 t4"];
        assert_eq!(taken.map(|_| from(None)), taken);
        assert_eq!(from(Some(5)), "t2 t4");
        drop((kernel, flag));
        finish(device, &log);
    }
}

#[test]
fn a_device_that_evaluates_checkpoints_reports_where_a_launch_ended() {
    let (device, log) = device_that(RecordingDriver::making_one);
    let checkpoint =
        |label, n| GraphPart::Checkpoint { label, yields_on: FLAG, body: vec![GraphPart::Tasks(n, n + 1)] };
    let body = vec![checkpoint(-4, 0), GraphPart::Tasks(1, 2)];
    let kernel = load(&device, &artifact(3, vec![repeat(FLAG, body), checkpoint(9, 2)]));
    let flag = device.allocate(4).unwrap();
    let args = [flag.ptr().unwrap()];
    let from = |label| {
        log.take();
        // SAFETY: the driver runs nothing.
        let end = unsafe { device.default_stream().launch_from(&kernel, &args, &[], label, &Uninterruptible) }.unwrap();
        (end, log.take().iter().filter(|c| c.starts_with("launch_as_one")).count())
    };
    assert_eq!(from(None), (None, 1));
    log.end_at_checkpoint(1);
    assert_eq!(from(None), (Some(-4), 1));
    log.end_at_checkpoint(2);
    assert_eq!(from(None), (Some(9), 1));
    assert_eq!(from(Some(9)), (None, 0));
    assert_eq!(tasks(&log).len(), 1);
    drop((kernel, flag));
    finish(device, &log);
}

#[test]
fn groups_in_a_loop_fork_and_join_in_each_iteration() {
    let (device, log) = device_that(|d| d);
    let body = vec![
        GraphPart::Parallel(vec![vec![GraphPart::Tasks(0, 1)], vec![GraphPart::Tasks(1, 3)]]),
        GraphPart::Tasks(3, 4),
    ];
    let kernel = load(&device, &artifact(4, vec![repeat(FLAG, body)]));
    let flag = device.allocate(4).unwrap();
    log.task_writes(3, Some(0), &[1, 0]);
    launch(device.default_stream(), &kernel, &flag).unwrap();
    let launched = log.take_launched();
    let order: Vec<&str> = launched.iter().map(|l| l.task.as_str()).collect();
    assert_eq!(order.join(" "), "t0 t1 t2 t3 t0 t1 t2 t3");
    assert!(launched[0].stream != launched[1].stream && !launched[1].happens_after(&launched[0]));
    assert!(launched[3].happens_after(&launched[0]) && launched[3].happens_after(&launched[2]));
    assert!(launched[4].happens_after(&launched[3]));
    drop((kernel, flag));
    finish(device, &log);
}

#[test]
fn looping_groups_run_concurrently_with_one_condition_word_each() {
    let other = Condition { slot: Some(0), offset: 4, kind: ScalarKind::I32 };
    let groups = vec![
        vec![repeat(FLAG, vec![GraphPart::Tasks(0, 1)])],
        vec![GraphPart::Tasks(1, 2), repeat(other, vec![GraphPart::Tasks(2, 3)])],
        vec![GraphPart::Tasks(3, 4)],
    ];
    let graph = vec![GraphPart::Parallel(groups), GraphPart::Tasks(4, 5)];
    let (device, log) = device_that(|d| d);
    let kernel = load(&device, &artifact(5, graph));
    let flags = device.allocate(8).unwrap();
    // The first integer is set by the first task, twice to one; the second one is zero.
    log.task_writes(0, Some(0), &[1, 1, 0]);
    launch(device.default_stream(), &kernel, &flags).unwrap();
    let launched = log.take_launched();
    let order: Vec<&str> = launched.iter().map(|l| l.task.as_str()).collect();
    assert_eq!((order[0], order.last()), ("t3", Some(&"t4")), "what waits for nothing is queued first");
    assert_eq!(order.iter().filter(|t| **t == "t0").count(), 3);
    let place = |task| launched.iter().position(|l| l.task == task).unwrap();
    let last_of_first = launched.iter().rposition(|l| l.task == "t0").unwrap();
    assert!(!launched[place("t2")].happens_after(&launched[place("t0")]));
    assert!(
        [last_of_first, place("t2"), place("t3")].iter().all(|t| launched[place("t4")].happens_after(&launched[*t]))
    );
    drop((kernel, flags));
    finish(device, &log);
}

#[test]
fn a_failed_assertion_ends_the_loop_and_the_launch() {
    for setting in SETTINGS {
        let (device, log) = device_that(setting);
        let graph = vec![repeat(FLAG, vec![GraphPart::Tasks(0, 1)]), GraphPart::Tasks(1, 2)];
        let kernel = load(&device, &artifact(2, graph));
        let flag = device.allocate(4).unwrap();
        log.task_writes(0, Some(0), &[1; 9]);
        log.fail_task();
        let error = launch(device.default_stream(), &kernel, &flag).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Assertion(_)), "{error}");
        assert_eq!(tasks(&log), named(&[("t0", 0)]));
        // It was reported.
        device.synchronize(&Uninterruptible).unwrap();
        drop((kernel, flag));
        finish(device, &log);
    }
}

#[test]
fn output_is_drained_after_each_iteration() {
    let (device, log) = device_that(RecordingDriver::with_channels);
    let kernel = load(&device, &artifact(1, vec![repeat(FLAG, vec![GraphPart::Tasks(0, 1)])]));
    let flag = device.allocate(4).unwrap();
    log.task_writes(0, Some(0), &[1; 9]);
    log.say(Message { site: 0, values: vec![], fails: true, written: true });
    let error = launch(device.default_stream(), &kernel, &flag).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Assertion(_)), "{error}");
    assert_eq!(tasks(&log), named(&[("t0", 0)]));
    drop((kernel, flag));
    finish(device, &log);
}

#[test]
fn the_user_interrupts_a_loop_between_iterations() {
    /// Interrupted after a number of polls.
    struct Impatient(Cell<u32>, Cell<bool>);
    impl Caller for Impatient {
        fn will_block(&self) {
            self.1.set(true);
        }
        fn is_interrupted(&self) -> bool {
            assert!(self.1.get(), "asked before the caller was told");
            self.0.set(self.0.get() - 1);
            self.0.get() == 0
        }
    }
    for setting in SETTINGS {
        let (device, log) = device_that(setting);
        let kernel = load(&device, &artifact(1, vec![repeat(FLAG, vec![GraphPart::Tasks(0, 1)])]));
        let flag = device.allocate(4).unwrap();
        log.task_writes(0, Some(0), &[1; 9]);
        let caller = Impatient(Cell::new(3), Cell::new(false));
        // SAFETY: the driver runs nothing.
        let end = unsafe { device.default_stream().launch(&kernel, &[flag.ptr().unwrap()], &caller) };
        assert_eq!(*end.unwrap_err().kind(), ErrorKind::Interrupted);
        assert_eq!(tasks(&log).len(), 3);
        drop((kernel, flag));
        finish(device, &log);
    }
}

#[test]
fn a_captured_stream_cannot_evaluate_conditions() {
    let (device, log) = device_that(RecordingDriver::sharing_memory);
    let kernel = load(&device, &artifact(1, vec![repeat(FLAG, vec![GraphPart::Tasks(0, 1)])]));
    let flag = device.allocate(4).unwrap();
    let theirs = device.stream_from_handle(4711).unwrap();
    log.capture(Some(4711));
    let error = launch(&theirs, &kernel, &flag).unwrap_err();
    assert!(error.to_string().contains("has data-dependent loops or branches"), "{error}");
    log.capture(None);
    launch(&theirs, &kernel, &flag).unwrap();
}

#[test]
fn the_condition_is_read_from_the_staged_array() {
    let (device, log) = device_that(|d| d);
    let kernel = load(&device, &artifact(1, vec![repeat(FLAG, vec![GraphPart::Tasks(0, 1)])]));
    let mut flag = [5i32];
    let low = flag.as_mut_ptr() as u64;
    let array = HostArray { slot: 0, low, high: low + 4, written: true, gaps: false };
    log.task_writes(0, Some(0), &[4, 3, 0]);
    // SAFETY: the driver runs nothing; the array is alive.
    unsafe { device.default_stream().launch_with(&kernel, &[low], &[array], &Uninterruptible) }.unwrap();
    assert_eq!((tasks(&log).len(), flag), (3, [0]));
    drop(kernel);
    finish(device, &log);
}

#[test]
fn iterations_are_measured_as_launches() {
    for setting in SETTINGS {
        let (device, log) = device_that(setting);
        let kernel = load(&device, &artifact(1, vec![repeat(FLAG, vec![GraphPart::Tasks(0, 1)])]));
        let flag = device.allocate(4).unwrap();
        log.task_writes(0, Some(0), &[1, 1, 0]);
        let profiler = device.profiler();
        profiler.start().unwrap();
        launch(device.default_stream(), &kernel, &flag).unwrap();
        profiler.resolve(&Uninterruptible).unwrap();
        let totals = profiler.totals();
        assert_eq!((totals[0].1.launches.count, totals[0].1.tasks[0].1.count), (3, 3));
        profiler.stop();
        drop((kernel, flag));
        device.close(&Uninterruptible).unwrap();
        assert_eq!(log.mistakes(), Vec::<String>::new());
    }
}
