//! Tests of the graphs that launches become: their nodes, and their later updates.

use octants_artifact::{GuardedIterations, PersistentLoop};
use octants_runtime::{CheckpointWords, DataDependentLoop};

use super::*;
use crate::backlog::Backlogs;

/// The frame of launches.
const FRAME: u64 = 1 << 12;

/// The calls of a launch that launch kernels, or create or update a graph.
fn calls_of(device: &Device, kernel: &octants_runtime::LoadedKernel, args: &[u64]) -> String {
    LAUNCHING.take();
    // SAFETY: the functions do nothing.
    unsafe { device.default_stream().launch(kernel, args, &Uninterruptible) }.unwrap();
    LAUNCHING.take().join(" ")
}

#[test]
fn repeated_launches_become_a_graph_with_updated_parameters() {
    let device = open_device();
    let launch = |kernel| calls_of(&device, kernel, &[]);
    let load = |tasks| device.load(&serial(tasks)).unwrap();
    let numbered = |tasks: usize| {
        let task = TaskMeta { name: "t".into(), symbol: "t".into(), draws_random: true, ..TaskMeta::default() };
        device.load(&artifact(vec![task; tasks])).unwrap()
    };
    let two = load(2);
    FAILS.set(("stream_query", code::NOT_READY));
    let calls: Vec<_> = (0..8).map(|_| launch(&two)).collect();
    let made = "graph_create graph_kernel graph_kernel graph_ready graph_launch";
    assert_eq!(calls[..7], ["launch launch"; 7], "not at once while the stream works");
    assert_eq!(calls[7], made);
    FAILS.set(("", 0));
    let two = load(2);
    let calls: Vec<_> = (0..4).map(|_| launch(&two)).collect();
    assert_eq!(calls, ["launch launch", "launch launch", made, "graph_launch"], "nothing differs");
    let two = numbered(2);
    let calls: Vec<_> = (0..4).map(|_| launch(&two)).collect();
    let again = "graph_exchange graph_exchange graph_launch";
    assert_eq!(calls, ["launch launch", "launch launch", made, again], "each has a number");
    FAILS.set(("graph_exchange", INVALID_VALUE));
    assert_eq!(launch(&two), "graph_exchange graph_destroy_ready graph_destroy launch launch");
    FAILS.set(("graph_create", INVALID_VALUE));
    assert_eq!(launch(&two), "launch launch", "not tried again");
    let one = load(1);
    let calls: Vec<_> = (0..4).map(|_| launch(&one)).collect();
    assert_eq!(calls, ["launch", "launch", "graph_create launch", "launch"]);
    FAILS.set(("graph_kernel", INVALID_VALUE));
    let one = load(1);
    let calls: Vec<_> = (0..4).map(|_| launch(&one)).collect();
    assert_eq!(calls, ["launch", "launch", "graph_create graph_kernel graph_destroy launch", "launch"]);
    FAILS.set(("", 0));
    let none = load(0);
    assert_eq!((0..4).map(|_| launch(&none)).collect::<String>(), "");
    FAILS.set(("graph_launch", INVALID_VALUE));
    let other = load(1);
    (0..2).for_each(|_| _ = launch(&other));
    // SAFETY: as above.
    let text = unsafe { device.default_stream().launch(&other, &[], &Uninterruptible) }.unwrap_err().to_string();
    assert_eq!(text, "graph_launch failed with code 1 (a sentence) while launching a graph");
}

#[test]
fn kernels_start_early_when_the_host_runs_ahead() {
    let device = open_device();
    let launches = |waits_itself: bool, tasks: usize| {
        let task = TaskMeta { waits_itself, ..serial(1).tasks.remove(0) };
        let kernel = device.load(&artifact(vec![task; tasks])).unwrap();
        let last_of = |launches| (0..launches).fold(String::new(), |_, _| calls_of(&device, &kernel, &[]));
        last_of(4);
        // The first mark is at the 16th launch or before. The next one reveals that the first was not reached.
        FAILS.set(("event_query", code::NOT_READY));
        let first = last_of(32);
        FAILS.set(("", 0));
        [first, last_of(16)]
    };
    assert_eq!(launches(true, 1), ["launch_early", "graph_launch"]);
    assert_eq!(launches(true, 2), ["launch_early launch_early", "graph_launch"]);
    assert_eq!(launches(true, 5), ["graph_launch", "graph_launch"]);
    assert_eq!(launches(false, 1), ["graph_launch", "graph_launch"]);
}

/// Launches of a module with sections, each on the stream and with the place of the rounds that it is given.
struct Sectioned<'a> {
    module: Module,
    meta: Arc<KernelMeta>,
    entered: &'a Entered<'a>,
    sections: &'a [Section],
    end: CheckpointWords,
    failures: Arc<Failures>,
    printer: Arc<Printer>,
}

impl<'a> Sectioned<'a> {
    fn new(entered: &'a Entered<'a>, tasks: usize, slots: u32, sections: &'a [Section]) -> Sectioned<'a> {
        let task = TaskMeta { name: "t".into(), symbol: "t".into(), ..TaskMeta::default() };
        let artifact = Artifact { arg_slots: slots, ..artifact(vec![task; tasks]) };
        Sectioned {
            module: Module::load(entered.context(), &artifact).unwrap(),
            meta: Arc::new(KernelMeta::of(&artifact)),
            entered,
            sections,
            end: CheckpointWords::NONE,
            failures: Arc::new(Failures::default()),
            printer: Arc::new(Printer::new(Arc::new(|_: &str| ()))),
        }
    }

    /// The calls of a launch.
    fn calls(&self, stream: RawStream, rounds: u64, args: &[u64]) -> String {
        LAUNCHING.take();
        let mut graph = self.module.graph.lock().unwrap();
        let launched = self.with_launch(rounds, args, |launch| {
            let what = (&self.module.code, self.sections);
            // SAFETY: the functions do nothing.
            unsafe { graph.launch(self.entered, stream, what, launch, &Backlogs::default()) }
        });
        assert!(launched.unwrap());
        LAUNCHING.take().join(" ")
    }

    /// Passes a launch on.
    fn with_launch<R>(&self, rounds: u64, args: &[u64], f: impl FnOnce(&Launch<'_>) -> R) -> R {
        f(&Launch {
            kernel: &self.meta,
            args,
            args_at: None,
            frame: DevicePtr(FRAME),
            result: DevicePtr(0),
            channel: DevicePtr(0),
            kernel_id: 0,
            rounds: DevicePtr(rounds),
            guard: DevicePtr(0),
            end: self.end,
            seed: 0,
            number: 0,
            step: None,
            nested: false,
            failures: &self.failures,
            printer: &self.printer,
            caller: &Uninterruptible,
        })
    }
}

#[test]
fn a_graph_node_depends_on_the_tasks_that_its_task_depends_on() {
    let device = open_device();
    let task =
        |depends_on: Option<&[u32]>| TaskMeta { depends_on: depends_on.map(Into::into), ..serial(1).tasks.remove(0) };
    let tasks = [Some(&[][..]), Some(&[]), Some(&[0, 1]), Some(&[0]), None].map(task);
    let kernel = device.load(&artifact(tasks.to_vec())).unwrap();
    DESCRIBED.take();
    (0..3).for_each(|_| _ = calls_of(&device, &kernel, &[]));
    assert_eq!(DESCRIBED.take(), [0, 0, 2, 1, 2].map(|n| format!("kernel after {n}")));
}

#[test]
fn a_graph_of_short_tasks_is_a_chain() {
    let device = open_device();
    let task = |is_short| TaskMeta { depends_on: Some(Vec::new()), is_short, ..serial(1).tasks.remove(0) };
    let nodes_of = |short: [bool; 3]| {
        let kernel = device.load(&artifact(short.map(task).to_vec())).unwrap();
        DESCRIBED.take();
        (0..3).for_each(|_| _ = calls_of(&device, &kernel, &[]));
        DESCRIBED.take()
    };
    assert_eq!(nodes_of([true; 3]), [0, 1, 1].map(|n| format!("kernel after {n}")));
    assert_eq!(nodes_of([true, false, true]), ["kernel after 0"; 3].map(String::from));
}

fn of(number: u32, condition: Condition) -> DataDependentLoop {
    DataDependentLoop { number, condition, guarded: None }
}

#[test]
fn loops_and_groups_become_nodes_of_one_graph_at_the_first_launch() {
    let context = context();
    let entered = context.enter().unwrap();
    let condition = |slot| Condition { slot: Some(slot), offset: 0, kind: ScalarKind::I32 };
    let inner = Section::While(of(1, condition(1)), [Section::InOrder(2..3)].into());
    let group = |tasks| [Section::InOrder(tasks)].into();
    let outer = Section::While(of(0, condition(0)), [Section::Groups([group(0..1), group(1..2)].into()), inner].into());
    let sections = [outer, Section::InOrder(3..4)];
    let kernel = Sectioned::new(&entered, 4, 2, &sections);
    let calls_on = |stream: RawStream, args: &[u64]| kernel.calls(stream, 0, args);
    let calls = |args: &[u64]| calls_on(null_mut(), args);
    DESCRIBED.take();
    let first = calls(&[64, 128]);
    assert!(first.ends_with("graph_ready graph_launch") && !first.contains(" launch"), "{first}");
    let described = [
        "kernel after 0",
        "kernel after 0",
        "join of 2",
        // In the next round of the outer loop, the inner loop is off.
        "kernel after 1",
        "deciding by 0 bytes",
        "loop after 1",
        "kernel after 0",
        "kernel after 1",
        "deciding by 4 bytes",
        "kernel after 1",
        "deciding by 4 bytes",
        "kernel after 1",
    ];
    let told = DESCRIBED.take();
    assert_eq!((told[0].as_str(), &told[1..]), ("loop after 0", &described.map(String::from)[..]));
    assert_eq!(calls(&[64, 128]), "graph_launch");
    // The parameters of four tasks are updated, and those of the decision that reads another integer.
    assert_eq!(calls(&[64, 256]), "graph_exchange ".repeat(5) + "graph_launch");
    // Another stream has its own graph, which runs concurrently with the first.
    let other = std::ptr::without_provenance_mut(8);
    assert_eq!(calls_on(other, &[64, 256]), first);
    assert_eq!(calls_on(other, &[64, 256]), "graph_launch");
    assert_eq!(calls(&[64, 256]), "graph_launch");
    // If tasks in a loop draw random numbers, a word per loop counts its iterations from zero.
    DESCRIBED.take();
    kernel.calls(std::ptr::without_provenance_mut(16), 512, &[64, 128]);
    let told = DESCRIBED.take();
    let of_rounds: Vec<&String> = told.iter().filter(|t| t.contains("rounds") || t.contains("deciding")).collect();
    let counting = |at| format!("deciding by 4 bytes, counting at {at}");
    let expected = ["no rounds at 512", "no rounds at 520", "deciding by 0 bytes", &counting(520), &counting(512)];
    assert_eq!(of_rounds, expected);
}

#[test]
fn guarded_iterations_follow_one_another_before_a_decision() {
    let context = context();
    let entered = context.enter().unwrap();
    let condition = Condition { slot: Some(0), offset: 0, kind: ScalarKind::I32 };
    let guarded = Some(GuardedIterations { per_decision: 3, guard: 40 });
    let sections = [Section::While(DataDependentLoop { guarded, ..of(0, condition) }, [Section::InOrder(0..2)].into())];
    let kernel = Sectioned::new(&entered, 2, 2, &sections);
    // Tasks of another loop may count rounds: the first iteration gets neither their word nor the guard.
    for rounds in [0, 512] {
        DESCRIBED.take();
        assert!(
            kernel
                .calls(std::ptr::without_provenance_mut(rounds as usize), rounds, &[64, 128])
                .ends_with("graph_launch")
        );
        let after = if rounds == 0 { "loop after 0" } else { "loop after 1" };
        let expected = [
            after,
            "kernel after 0",
            "kernel after 1",
            "kernel after 1, guarded at 4136",
            "kernel after 1, guarded at 4136",
            "kernel after 1, guarded at 4136",
            "kernel after 1, guarded at 4136",
            "kernel after 1",
        ];
        let told = DESCRIBED.take();
        let told: Vec<_> = told.iter().filter(|t| t.contains("after")).skip((rounds / 512) as usize).collect();
        assert_eq!(told, expected);
    }
}

/// A module with a persistent loop of a parallel task and a serial one; the first slot is the number of iterations.
fn with_loop() -> Artifact {
    let meta = ParallelMeta {
        axes: vec![(Bound::Known(0), Bound::Slot(0, ScalarKind::I64, 0))],
        cost_per_iteration: 1.0,
        ..ParallelMeta::default()
    };
    let mut artifact = Artifact { arg_slots: 2, ..serial(2) };
    artifact.tasks[0].parallel = Some(meta);
    let symbol = "t_loop".into();
    artifact.loops = vec![PersistentLoop { number: 0, symbol, module: 0, tasks: vec![0, 1] }];
    artifact
}

#[test]
fn a_loop_of_few_iterations_is_one_node() {
    let condition = Condition { slot: Some(1), offset: 0, kind: ScalarKind::I32 };
    let guarded = Some(GuardedIterations { per_decision: 2, guard: 40 });
    let sections = [Section::While(DataDependentLoop { guarded, ..of(0, condition) }, [Section::InOrder(0..2)].into())];
    let nodes_for = |cooperates, iterations| {
        let mut context = context();
        context.cooperates = cooperates;
        let entered = context.enter().unwrap();
        let mut kernel = Sectioned::new(&entered, 2, 2, &sections);
        kernel.module = Module::load(&context, &with_loop()).unwrap();
        DESCRIBED.take();
        assert!(kernel.calls(null_mut(), 0, &[iterations, 128]).ends_with("graph_launch"));
        DESCRIBED.take()
    };
    assert_eq!(nodes_for(true, 8192), ["1 resident blocks after 0"]);
    assert_eq!(nodes_for(true, 8193)[0], "loop after 0", "the device has room for one thread");
    assert_eq!(nodes_for(false, 8192)[0], "loop after 0");
}

#[test]
fn a_loop_without_room_is_launched_task_by_task() {
    let mut context = context();
    context.cooperates = true;
    let entered = context.enter().unwrap();
    let module = Module::load(&context, &with_loop()).unwrap();
    let kernel = Sectioned::new(&entered, 2, 2, &[]);
    let found = module.code.suitable_loop(0, &[8], false).unwrap();
    let launch = || {
        // SAFETY: the functions do nothing.
        kernel.with_launch(0, &[8, 128], |of| unsafe { found.launch(&entered, null_mut(), &module.code.tasks, of) })
    };
    assert!(launch().unwrap());
    FAILS.set(("launch_resident", code::TOO_MANY_RESIDENT_BLOCKS));
    assert!(!launch().unwrap());
    FAILS.set(("", 0));
    assert!(module.code.suitable_loop(0, &[8], false).is_none(), "not tried again");
}

#[test]
fn a_captured_graph_is_one_launch_with_updated_arguments() {
    let device = open_device();
    let task = TaskMeta { name: "t".into(), symbol: "t".into(), ..TaskMeta::default() };
    let kernel = device.load(&Artifact { arg_slots: 1, ..artifact(vec![task; 2]) }).unwrap();
    let (a, b) = (device.allocate(64).unwrap(), device.allocate(64).unwrap());
    let stream = device.default_stream();
    // SAFETY: the functions do nothing.
    let launch = |value: u64| unsafe { stream.launch(&kernel, &[value], &Uninterruptible) }.unwrap();
    let capture = device.capture().unwrap();
    DESCRIBED.take();
    LAUNCHING.take();
    capture.begin_here().unwrap();
    stream.fill(&a, 0, &[0], 64, &Uninterruptible).unwrap();
    launch(1);
    stream.copy(&b, 0, &a, 0, 32, &Uninterruptible).unwrap();
    launch(2);
    assert!(capture.end_here());
    let graph = CapturedGraph::of(&capture);
    assert_eq!((graph.steps(), LAUNCHING.take()), (4, vec![]), "nothing is launched");
    let calls = || {
        // SAFETY: as above.
        unsafe { stream.launch_graph(&graph, &Uninterruptible) }.unwrap();
        LAUNCHING.take().join(" ")
    };
    let made = "graph_create graph_fill graph_kernel graph_kernel graph_copy graph_kernel graph_kernel graph_ready graph_launch";
    assert_eq!(calls(), made);
    let described = ["fill of 64 after 0", "kernel after 1", "kernel after 1", "copy of 32 after 1"];
    assert_eq!(DESCRIBED.take()[..4], described);
    assert_eq!(calls(), "graph_launch", "nothing differs");
    let again = device.capture().unwrap();
    again.begin_here().unwrap();
    launch(3);
    again.end_here();
    assert_eq!(graph.exchange(&[3], &again, &mut []).unwrap(), [true], "it is the same code");
    assert_eq!((calls(), calls()), ("graph_exchange graph_exchange graph_launch".into(), "graph_launch".into()));
    // One that the driver refuses is queued step by step.
    let capture = device.capture().unwrap();
    capture.begin_here().unwrap();
    launch(1);
    capture.end_here();
    let graph = CapturedGraph::of(&capture);
    FAILS.set(("graph_ready", INVALID_VALUE));
    // SAFETY: as above.
    unsafe { stream.launch_graph(&graph, &Uninterruptible) }.unwrap();
    let refused = "graph_create graph_kernel graph_kernel graph_ready graph_destroy launch launch";
    assert_eq!(LAUNCHING.take().join(" "), refused);
    FAILS.set(("", 0));
}

#[test]
fn branches_become_conditional_nodes() {
    let context = context();
    let entered = context.enter().unwrap();
    let flag = Condition { slot: Some(0), offset: 0, kind: ScalarKind::I32 };
    let tasks = |range| [Section::InOrder(range)].into();
    let inner = Section::If(flag, [tasks(1..2), Box::default()]);
    let sections = [Section::InOrder(0..1), Section::If(flag, [[inner].into(), tasks(2..3)]), Section::InOrder(3..4)];
    let kernel = Sectioned::new(&entered, 4, 1, &sections);
    DESCRIBED.take();
    assert!(kernel.calls(null_mut(), 0, &[64]).ends_with("graph_ready graph_launch"));
    let described = [
        "kernel after 0",
        "kernel after 1",
        "deciding by 4 bytes",
        "kernel after 1",
        "deciding by the absence of 4 bytes",
        "choice after 1",
        "kernel after 0",
        "deciding by 4 bytes",
        "choice after 1",
        "kernel after 0",
        "choice after 1",
        "kernel after 0",
        "kernel after 1",
    ];
    assert_eq!(DESCRIBED.take(), described);
    // Four tasks, and three decisions, one of the inner choice.
    assert_eq!(kernel.calls(null_mut(), 0, &[128]), "graph_exchange ".repeat(7) + "graph_launch");
    // With nodes of several graphs, one decision chooses between two branches.
    HAS_CASES.set(true);
    kernel.calls(std::ptr::without_provenance_mut(8), 0, &[64]);
    HAS_CASES.set(false);
    let described = [
        "kernel after 0",
        "kernel after 1",
        "deciding by either of 4 bytes",
        "2 cases after 1",
        "kernel after 0",
        "kernel after 0",
        "deciding by 4 bytes",
        "choice after 1",
        "kernel after 0",
        "kernel after 1",
    ];
    assert_eq!(DESCRIBED.take(), described);
}

#[test]
fn cases_become_one_node_or_a_node_each() {
    let context = context();
    let entered = context.enter().unwrap();
    let selector = Condition { slot: Some(0), offset: 0, kind: ScalarKind::I32 };
    let tasks = |range| [Section::InOrder(range)].into();
    let described = |parts: Vec<Box<[Section]>>, has_cases| {
        let sections = [Section::Switch(selector, parts.into()), Section::InOrder(3..4)];
        let kernel = Sectioned::new(&entered, 4, 1, &sections);
        HAS_CASES.set(has_cases);
        DESCRIBED.take();
        assert!(kernel.calls(null_mut(), 0, &[64]).ends_with("graph_ready graph_launch"));
        HAS_CASES.set(false);
        DESCRIBED.take()
    };
    let full = || vec![tasks(0..1), tasks(1..2), tasks(2..3)];
    let one_node = [
        "kernel after 0",
        "deciding by a number up to 2 of 4 bytes",
        "3 cases after 1",
        "kernel after 0",
        "kernel after 0",
        "kernel after 0",
        "kernel after 1",
    ];
    assert_eq!(described(full(), true), one_node);
    // Without a last part, the number of cases is a state for which nothing runs.
    let partial = vec![tasks(0..1), Box::default(), Box::default()];
    let one_node = ["kernel after 0", "deciding by a number up to 2 of 4 bytes", "2 cases after 1", "kernel after 0"];
    assert_eq!(described(partial, true)[..4], one_node);
    let node_each = [
        "kernel after 0",
        "deciding by the number 0 of 2 of 4 bytes",
        "kernel after 1",
        "deciding by the number 1 of 2 of 4 bytes",
        "kernel after 1",
        "deciding by the number 2 of 2 of 4 bytes",
        "choice after 1",
        "kernel after 0",
        "choice after 1",
        "kernel after 0",
        "choice after 1",
        "kernel after 0",
        "kernel after 1",
    ];
    assert_eq!(described(full(), false), node_each);
}

#[test]
fn tasks_after_a_checkpoint_run_unless_the_launch_ends_there() {
    let context = context();
    let entered = context.enter().unwrap();
    let condition = |slot| Condition { slot: Some(slot), offset: 0, kind: ScalarKind::I32 };
    let tasks = |range| Section::InOrder(range);
    let checkpoint = Section::Checkpoint(7, condition(0), [tasks(1..2)].into());
    let repeated = Section::While(of(0, condition(1)), [tasks(0..1), checkpoint, tasks(2..3)].into());
    let last = Section::Checkpoint(-3, condition(0), [tasks(4..5)].into());
    let sections = [repeated, tasks(3..4), last];
    let kernel = Sectioned::new(&entered, 5, 2, &sections);
    let kernel = Sectioned { end: CheckpointWords { in_frame: DevicePtr(512), for_host: DevicePtr(640) }, ..kernel };
    DESCRIBED.take();
    assert!(kernel.calls(null_mut(), 0, &[64, 128]).ends_with("graph_ready graph_launch"));
    let described = [
        "kernel after 0",
        "no end at 512 and 640",
        "loop after 1",
        "kernel after 0",
        "kernel after 1",
        "kernel after 1",
        "deciding by the absence of 4 bytes, at checkpoint 1",
        "choice after 1",
        "kernel after 0",
        "kernel after 1",
        "deciding by 4 bytes, unless at an end",
        "kernel after 1",
        "deciding by 0 bytes, unless at an end",
        "choice after 1",
        "kernel after 0",
        "kernel after 1",
        "kernel after 1",
        "noting by 4 bytes, at checkpoint 2",
    ];
    assert_eq!(DESCRIBED.take(), described);
}
