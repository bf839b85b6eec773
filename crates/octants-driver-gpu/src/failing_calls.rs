//! What users are told when a call of a driver's library fails, seen with a library in which a chosen call does. Needs
//! no GPU.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::Arc;

use octants_artifact::{Artifact, Bound, CodeTarget, Condition, ParallelMeta, ScalarKind, TaskMeta, WideForm};
use octants_runtime::{
    CapturedGraph, Contents, Device, DeviceConfig, DevicePtr, Driver, Failures, KernelMeta, Launch, Patient, Pattern,
    Printer, Result, Section, StreamHandle,
};

use crate::context::{Context, Entered};
use crate::gpu_driver::GpuDriver;
use crate::library::Library;
use crate::memory::Memory;
use crate::module::Module;
use crate::open::GpuConfig;
use crate::pinned::Pinned;
use crate::symbols::{Names, RawDevice, RawFunction, RawStream, Symbols, code};
use crate::vendor::{
    Called, CopyNode, Facts, FillNode, GraphLoops, Graphs, GridShape, KernelNode, Place, RawGraph, RawNode, ReadyGraph,
    Vendor,
};

const INVALID_VALUE: c_int = 1;
const ILLEGAL_ADDRESS: c_int = 700;

thread_local! {
    /// The call that fails on this thread, and its code.
    static FAILS: Cell<(&'static str, c_int)> = const { Cell::new(("", 0)) };
    /// What was called that launches, or has to do with graphs.
    static LAUNCHING: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    /// What nodes of graphs were described.
    static DESCRIBED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// What the library here gives for a loop's switch.
const SWITCH: u64 = 0x5111;

fn note(what: String) {
    DESCRIBED.with_borrow_mut(|said| said.push(what));
}

fn outcome(name: &str) -> c_int {
    if name == "launch" || name.starts_with("graph_") {
        LAUNCHING.with_borrow_mut(|calls| calls.push(name.into()));
    }
    let (fails, code) = FAILS.get();
    if name == fails { code } else { code::SUCCESS }
}

#[derive(Debug)]
struct Acme;

static FACTS: Facts = Facts {
    api: "Acme",
    visible: "ACME_VISIBLE",
    gpu: "Acme GPU",
    dlpack: 0,
    array_protocol: None,
    null_stream: 1,
    unnamed_stream: 1,
    final_codes: &[ILLEGAL_ADDRESS],
    multiprocessors: 0,
    warp: 0,
    clock_rate: None,
    pools: 0,
    host_flags: 0,
    assembles: true,
};

fn called<T>(name: &'static str, value: T) -> Called<T> {
    match outcome(name) {
        code::SUCCESS => Ok(value),
        c => Err((name, c)),
    }
}

impl Vendor for Acme {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    fn describe(&self, _code: c_int) -> String {
        "a sentence".into()
    }

    fn explain_missing(&self, symbol: &str) -> String {
        format!("no {symbol}")
    }

    fn open(&self, _device: RawDevice) -> Called<Place> {
        called("own_open", Place(7))
    }

    fn current(&self) -> Called<Place> {
        called("own_current", Place(0))
    }

    unsafe fn switch(&self, _from: Place, _to: Place) -> Called<bool> {
        called("own_switch", false)
    }

    unsafe fn switch_back(&self, _from: Place) {}

    unsafe fn allow_block_memory(&self, _function: RawFunction, _bytes: u32) -> Called<()> {
        called("acmeAllowBlockMemory", ())
    }

    fn graphs(&self) -> Option<&dyn Graphs> {
        Some(self)
    }
}

impl Graphs for Acme {
    unsafe fn create(&self) -> Called<RawGraph> {
        called("graph_create", RawGraph(null_mut()))
    }

    unsafe fn add_kernel(&self, _to: RawGraph, behind: &[RawNode], kernel: &KernelNode) -> Called<RawNode> {
        note(format!("kernel behind {}", behind.len()));
        // SAFETY: a parameter of tasks is longer than that.
        let words = unsafe { std::slice::from_raw_parts(kernel.parameter.cast::<u64>(), 5) };
        match words {
            [SWITCH, _, bytes, _, 0] => note(format!("deciding by {bytes} bytes")),
            [SWITCH, _, bytes, _, rounds] => note(format!("deciding by {bytes} bytes, counting at {rounds}")),
            [0, 0, 0, 0, rounds] if *rounds > 0 => note(format!("no rounds at {rounds}")),
            _ => {}
        }
        called("graph_kernel", RawNode(null_mut()))
    }

    unsafe fn add_join(&self, _to: RawGraph, behind: &[RawNode]) -> Called<RawNode> {
        note(format!("join of {}", behind.len()));
        called("graph_join", RawNode(null_mut()))
    }

    unsafe fn add_fill(&self, _to: RawGraph, behind: &[RawNode], fill: &FillNode) -> Called<RawNode> {
        note(format!("fill of {} behind {}", fill.bytes, behind.len()));
        called("graph_fill", RawNode(null_mut()))
    }

    unsafe fn add_copy(&self, _to: RawGraph, behind: &[RawNode], copy: &CopyNode) -> Called<RawNode> {
        note(format!("copy of {} behind {}", copy.bytes, behind.len()));
        called("graph_copy", RawNode(null_mut()))
    }

    unsafe fn make_ready(&self, _graph: RawGraph) -> Called<ReadyGraph> {
        called("graph_ready", ReadyGraph(null_mut()))
    }

    unsafe fn exchange(&self, _graph: ReadyGraph, _node: RawNode, _kernel: &KernelNode) -> Called<()> {
        called("graph_exchange", ())
    }

    unsafe fn launch(&self, _graph: ReadyGraph, _stream: RawStream) -> Called<()> {
        called("graph_launch", ())
    }

    unsafe fn destroy_ready(&self, _graph: ReadyGraph) {
        outcome("graph_destroy_ready");
    }

    unsafe fn destroy(&self, _graph: RawGraph) {
        outcome("graph_destroy");
    }

    fn loops(&self) -> Option<&dyn GraphLoops> {
        Some(self)
    }
}

impl GraphLoops for Acme {
    fn code(&self) -> &'static [u8] {
        b"text"
    }

    unsafe fn create_switch(&self, _to: RawGraph) -> Called<u64> {
        called("graph_switch", SWITCH)
    }

    unsafe fn add_loop(&self, _to: RawGraph, _switch: u64, behind: &[RawNode]) -> Called<(RawNode, RawGraph)> {
        note(format!("loop behind {}", behind.len()));
        called("graph_loop", (RawNode(null_mut()), RawGraph(16 as *mut _)))
    }
}

/// A library in which the call fails that [`FAILS`] names.
fn library() -> Library {
    FAILS.set(("", 0));
    Library::new(Symbols::that_return(outcome), &Names::OF_FIELDS, Box::new(Acme))
}

fn context() -> Context {
    let mut context = Context::new(library(), 0).unwrap();
    context.name = "a GPU".into();
    context
}

type Case<'a> = (&'static str, &'static str, Box<dyn Fn() -> Result<()> + 'a>);

/// Calls, and what they say is being done.
fn cases<'a>(context: &'a Context, e: &'a Entered<'a>) -> Vec<Case<'a>> {
    fn case<'a, T>(call: &'static str, doing: &'static str, f: impl Fn() -> Result<T> + 'a) -> Case<'a> {
        (call, doing, Box::new(move || f().map(drop)))
    }
    let (none, host, l) = (null_mut(), [0u8; 8], context.library());
    let to = host.as_ptr().cast_mut();
    // SAFETY: the functions do nothing.
    unsafe {
        vec![
            case("own_open", "making the GPU's context", || l.open(0)),
            case("own_current", "asking for the thread's device", || context.enter().map(drop)),
            case("own_switch", "giving the thread its device", || context.enter().map(drop)),
            case("driver_version", "asking for the driver's version", || l.driver_version()),
            case("device_get", "looking for GPU 3", || l.device(3)),
            case("device_name", "asking for the GPU's name", || l.device_name(0)),
            case("device_attribute", "asking what the GPU can do", || l.device_attribute(0, 1)),
            case("device_memory", "asking for the GPU's memory", || l.device_memory(0)),
            case("capture_mode", "setting what captures forbid", || context.enter_aside().map(drop)),
            case("synchronize_all", "waiting for all work", || e.synchronize_all()),
            case("priority_range", "asking for the range of priorities", || e.priorities()),
            case("memory_info", "asking how much memory is free", || e.memory_info()),
            case("allocate", "allocating 77 bytes", || e.allocate(77)),
            case("free", "giving memory back", || e.free(0)),
            case("host_allocate", "allocating 77 bytes of pinned memory", || e.allocate_pinned(77)),
            case("host_free", "giving pinned memory back", move || e.free_pinned(none)),
            case("memset", "filling 8 bytes", move || e.fill(0, Pattern::Byte(1), 8, none)),
            case("memset16", "filling 8 bytes", move || e.fill(0, Pattern::Half(1), 8, none)),
            case("memset32", "filling 8 bytes", move || e.fill(0, Pattern::Word(1), 8, none)),
            case("copy_to_device", "copying 8 bytes to the GPU", move || e.copy_to_device(0, to, 8, none)),
            case("copy_to_host", "copying 8 bytes from the GPU", move || e.copy_to_host(to, 0, 8, none)),
            case("copy_on_device", "copying 8 bytes on the GPU", move || e.copy_on_device(0, 0, 8, none)),
            case("stream_create", "making a stream", || e.create_stream(0, 0)),
            case("stream_destroy", "giving a stream back", move || e.destroy_stream(none)),
            case("stream_synchronize", "waiting for a stream", move || e.synchronize_stream(none)),
            case("stream_query", "asking whether a stream is done", move || e.query_stream(none)),
            case("stream_wait", "making a stream wait for an event", move || e.wait_event(none, none)),
            case("stream_capturing", "asking whether a stream is captured", move || e.is_capturing(none)),
            case("event_create", "making an event", || e.create_event(true)),
            case("event_destroy", "giving an event back", move || e.destroy_event(none)),
            case("event_record", "recording an event", move || e.record_event(none, none)),
            case("event_synchronize", "waiting for an event", move || e.synchronize_event(none)),
            case("event_query", "asking whether an event is done", move || e.query_event(none)),
            case("event_elapsed", "asking for the time between two events", move || e.elapsed(none, none)),
            case("module_unload", "unloading code", move || e.unload_module(none)),
            case("module_function", "looking for `f` in loaded code", move || e.function(none, "f")),
            case("function_attribute", "asking what a function needs", move || e.function_attribute(none, 0)),
            case("occupancy", "asking how many blocks fit the GPU", move || e.blocks_per_multiprocessor(none, 32, 0)),
            case("launch", "launching kernel `scale`", move || {
                e.launch(none, GridShape::ONE, none, none, e.library().last.number_of("scale", None))
            }),
            case("pool_create", "making a pool of memory", || e.create_pool(0, 0)),
            case("pool_set", "setting what a pool keeps", || e.create_pool(0, 0)),
            case("pool_destroy", "giving a pool of memory back", move || e.destroy_pool(none)),
            case("pool_trim", "giving back what a pool keeps", move || e.trim_pool(none)),
            case("pool_allocate", "allocating 77 bytes", move || e.allocate_on(none, 77, none)),
            case("pool_free", "giving memory back", move || e.free_on(0, none)),
            case("graph_instantiate", "making another library's graph ready", || e.instantiate_graph(1)),
            case("graph_launch", "launching another library's graph", move || e.launch_graph(none, none)),
            case("graph_exec_destroy", "giving another library's graph back", move || e.destroy_graph(none)),
        ]
    }
}

/// Two return their code to whoever puts it into other words; what a loader says is told as a whole.
const NOT_CASES: [&str; 3] = ["init", "device_count", "module_load"];

#[test]
fn every_error_names_the_call_its_code_and_what_was_being_done() {
    let context = context();
    let entered = context.enter().unwrap();
    let cases = cases(&context, &entered);
    for (name, doing, call) in &cases {
        FAILS.set(("", 0));
        assert_eq!(call(), Ok(()), "{name}");
        FAILS.set((name, INVALID_VALUE));
        let text = call().unwrap_err().to_string();
        assert_eq!(text, format!("{name} failed with code 1 (a sentence) while {doing}"));
    }
    let mut names: Vec<_> = Names::OF_FIELDS.signatures().iter().map(|s| s.symbol).collect();
    names.retain(|n| !NOT_CASES.contains(n) && !cases.iter().any(|c| c.0 == *n));
    assert_eq!(names, Vec::<&str>::new(), "calls without a case");
}

fn artifact(tasks: Vec<TaskMeta>) -> Artifact {
    Artifact { kernel: "scale".into(), modules: vec![b"text".to_vec()], tasks, ..Artifact::default() }
}

/// As many tasks of one thread.
fn serial(tasks: usize) -> Artifact {
    let task = TaskMeta { name: "t".into(), symbol: "t".into(), ..TaskMeta::default() };
    artifact(vec![task; tasks])
}

#[test]
fn code_that_is_refused_is_told_with_its_kernel() {
    let (context, artifact) = (context(), artifact(vec![]));
    FAILS.set(("module_load", INVALID_VALUE));
    let text = Module::load(&context, &artifact).unwrap_err().to_string();
    let call = "module_load failed with code 1 (a sentence) while loading code";
    assert_eq!(text, format!("cannot load the code of kernel `scale`: {call}"));
}

#[test]
fn a_wide_form_that_is_text_is_loaded_when_it_is_first_of_use_and_done_without_where_it_cannot_be() {
    let context = context();
    let wide = WideForm {
        symbol: "k_wide".into(),
        code: b"text".to_vec(),
        lanes: 4,
        alignment: 16,
        addresses: vec![],
        extents: vec![],
        least_iterations: 8,
        least_row: 4,
    };
    let meta = ParallelMeta {
        axes: vec![(Bound::Known(0), Bound::Slot(0, ScalarKind::I64, 0))],
        wide: Some(wide),
        block_dim: Some(32),
        cost_per_iteration: 1.0,
        ..ParallelMeta::default()
    };
    let task = TaskMeta { name: "k".into(), symbol: "k".into(), parallel: Some(meta), ..TaskMeta::default() };
    let mut artifact = artifact(vec![task]);
    for (works, blocks) in [(true, 2), (false, 8)] {
        let module = Module::load(&context, &artifact).unwrap();
        let entered = context.enter().unwrap();
        FAILS.set(("module_load", if works { code::SUCCESS } else { INVALID_VALUE }));
        let blocks_for = |n: u64| module.tasks[0].plan(&entered, &[n]).map(|(_, shape)| shape.blocks);
        assert_eq!(blocks_for(6), Some(6), "few iterations");
        assert_eq!(blocks_for(8), Some(blocks));
        FAILS.set(("", 0));
    }
    // What needs no assembler is loaded with the rest.
    let wide = artifact.tasks[0].parallel.as_mut().and_then(|meta| meta.wide.as_mut()).unwrap();
    wide.code = b"\x7fELF of the wide form".to_vec();
    let module = Module::load(&context, &artifact).unwrap();
    FAILS.set(("module_load", INVALID_VALUE));
    let entered = context.enter().unwrap();
    assert_eq!(module.tasks[0].plan(&entered, &[8]).map(|(_, shape)| shape.blocks), Some(2));
    FAILS.set(("", 0));
}

#[test]
fn out_of_memory_says_so_wherever_it_happens() {
    let context = context();
    let memory = Memory::without_pool(&context).unwrap();
    FAILS.set(("allocate", code::OUT_OF_MEMORY));
    // SAFETY: the functions do nothing.
    let text = unsafe { memory.allocate(&context, None, 3 << 30, Contents::Zeroed) }.unwrap_err().to_string();
    assert!(text.starts_with("out of memory: 3.0 GiB asked for on a GPU, "), "{text}");
    assert!(text.ends_with("0 bytes of the device's 0 bytes are free"), "{text}");
    FAILS.set(("host_allocate", code::OUT_OF_MEMORY));
    let text = Pinned::default().allocate(&context, 1 << 20).unwrap_err().to_string();
    assert!(text.starts_with("out of memory: 1.0 MiB asked for on a GPU, "), "{text}");
}

#[test]
fn a_device_that_is_lost_says_why_once_and_then_that_it_is_lost() {
    let context = context();
    let entered = context.enter().unwrap();
    let (library, stream) = (context.library(), 0x7000 as *mut _);
    library.last.note(stream, library.last.number_of("scale", None));
    FAILS.set(("stream_synchronize", ILLEGAL_ADDRESS));
    // SAFETY: the functions do nothing.
    let told = unsafe { entered.synchronize_stream(stream) }.unwrap_err().to_string();
    let cause =
        "stream_synchronize failed with code 700 (a sentence) while waiting for a stream; launched last: `scale`";
    assert_eq!(told, format!("{cause}. The GPU is lost to this process: restart it to use the GPU again"));
    assert!(library.is_lost());
    FAILS.set(("allocate", ILLEGAL_ADDRESS));
    // SAFETY: as above.
    let again = unsafe { entered.allocate(8) }.unwrap_err().to_string();
    assert!(again.starts_with("the device is lost to this process since an earlier error: restart"), "{again}");
    assert!(again.ends_with(cause), "{again}");
}

#[test]
fn a_device_that_cannot_be_opened_says_at_which_call() {
    let open = |context| GpuDriver::new(context, CodeTarget::Host, &GpuConfig::default());
    for (name, doing) in [
        ("priority_range", "asking for the range of priorities"),
        ("stream_create", "making a stream"),
        ("own_current", "asking for the thread's device"),
    ] {
        let context = context();
        FAILS.set((name, INVALID_VALUE));
        let text = open(context).unwrap_err().to_string();
        assert_eq!(text, format!("a GPU cannot be used: {name} failed with code 1 (a sentence) while {doing}"));
    }
    let driver = open(context()).unwrap();
    FAILS.set(("stream_query", INVALID_VALUE));
    // SAFETY: the functions do nothing.
    let text = unsafe { driver.query_stream(StreamHandle(0)) }.unwrap_err().to_string();
    assert!(text.starts_with("stream_query failed"), "{text}");
}

fn open_device() -> Device {
    let driver = GpuDriver::new(context(), CodeTarget::Host, &GpuConfig::default()).unwrap();
    Device::new(driver, DeviceConfig { seed: 1, sink: Arc::new(|_: &str| ()) })
}

/// The calls of a launch that launch, or make or tell a graph.
fn calls_of(device: &Device, kernel: &octants_runtime::LoadedKernel, args: &[u64]) -> String {
    LAUNCHING.take();
    // SAFETY: the functions do nothing.
    unsafe { device.default_stream().launch(kernel, args, &Patient) }.unwrap();
    LAUNCHING.take().join(" ")
}

#[test]
fn tasks_become_a_graph_that_is_told_what_differs_unless_the_driver_refuses() {
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
    let text = unsafe { device.default_stream().launch(&other, &[], &Patient) }.unwrap_err().to_string();
    assert_eq!(text, "graph_launch failed with code 1 (a sentence) while launching a graph");
}

#[test]
fn a_task_of_a_graph_is_behind_those_that_it_has_to_wait_for() {
    let device = open_device();
    let task = |behind: Option<&[u32]>| TaskMeta { behind: behind.map(Into::into), ..serial(1).tasks.remove(0) };
    let tasks = [Some(&[][..]), Some(&[]), Some(&[0, 1]), Some(&[0]), None].map(task);
    let kernel = device.load(&artifact(tasks.to_vec())).unwrap();
    DESCRIBED.take();
    (0..3).for_each(|_| _ = calls_of(&device, &kernel, &[]));
    assert_eq!(DESCRIBED.take(), [0, 0, 2, 1, 2].map(|n| format!("kernel behind {n}")));
}

#[test]
fn loops_and_groups_become_nodes_of_one_graph_at_the_first_launch() {
    let context = context();
    let task = TaskMeta { name: "t".into(), symbol: "t".into(), ..TaskMeta::default() };
    let artifact = Artifact { arg_slots: 2, ..artifact(vec![task; 4]) };
    let module = Module::load(&context, &artifact).unwrap();
    let entered = context.enter().unwrap();
    let condition = |slot| Condition { slot: Some(slot), offset: 0, kind: ScalarKind::I32 };
    let inner = Section::While(1, condition(1), [Section::InOrder(2..3)].into());
    let group = |tasks| [Section::InOrder(tasks)].into();
    let outer = Section::While(0, condition(0), [Section::Groups([group(0..1), group(1..2)].into()), inner].into());
    let sections = [outer, Section::InOrder(3..4)];
    let (meta, failures) = (Arc::new(KernelMeta::of(&artifact)), Arc::new(Failures::default()));
    let printer = Arc::new(Printer::new(Arc::new(|_: &str| ())));
    let rounds = Cell::new(0);
    let calls_on = |stream: RawStream, args: &[u64]| {
        LAUNCHING.take();
        let launch = Launch {
            kernel: &meta,
            args,
            args_at: None,
            frame: DevicePtr(0),
            result: DevicePtr(0),
            channel: DevicePtr(0),
            speaker: 0,
            rounds: DevicePtr(rounds.get()),
            seed: 0,
            number: 0,
            nested: false,
            failures: &failures,
            printer: &printer,
            caller: &Patient,
        };
        let mut graph = module.graph.lock().unwrap();
        // SAFETY: the functions do nothing.
        assert!(unsafe { graph.launch(&entered, stream, (&module.tasks[..], &sections), &launch) }.unwrap());
        LAUNCHING.take().join(" ")
    };
    let calls = |args: &[u64]| calls_on(null_mut(), args);
    DESCRIBED.take();
    let first = calls(&[64, 128]);
    assert!(first.ends_with("graph_ready graph_launch") && !first.contains(" launch"), "{first}");
    let described = [
        "kernel behind 0",
        "kernel behind 0",
        "join of 2",
        // The next round of the outer loop finds the inner one off.
        "kernel behind 1",
        "deciding by 0 bytes",
        "loop behind 1",
        "kernel behind 0",
        "kernel behind 1",
        "deciding by 4 bytes",
        "kernel behind 1",
        "deciding by 4 bytes",
        "kernel behind 1",
    ];
    let told = DESCRIBED.take();
    assert_eq!((told[0].as_str(), &told[1..]), ("loop behind 0", &described.map(String::from)[..]));
    assert_eq!(calls(&[64, 128]), "graph_launch");
    // Four tasks are told of the arguments, and the decision that reads another integer.
    assert_eq!(calls(&[64, 256]), "graph_exchange ".repeat(5) + "graph_launch");
    // Another stream has a graph of its own, which runs beside the first.
    let other = std::ptr::without_provenance_mut(8);
    assert_eq!(calls_on(other, &[64, 256]), first);
    assert_eq!(calls_on(other, &[64, 256]), "graph_launch");
    assert_eq!(calls(&[64, 256]), "graph_launch");
    // Where tasks of rounds draw random numbers a word for each loop counts the rounds, from zero.
    rounds.set(512);
    DESCRIBED.take();
    calls_on(std::ptr::without_provenance_mut(16), &[64, 128]);
    let told = DESCRIBED.take();
    let of_rounds: Vec<&String> = told.iter().filter(|t| t.contains("rounds") || t.contains("deciding")).collect();
    let counting = |at| format!("deciding by 4 bytes, counting at {at}");
    let expected = ["no rounds at 512", "no rounds at 520", "deciding by 0 bytes", &counting(520), &counting(512)];
    assert_eq!(of_rounds, expected);
}

#[test]
fn a_captured_graph_is_one_launch_that_is_told_what_was_exchanged() {
    let device = open_device();
    let task = TaskMeta { name: "t".into(), symbol: "t".into(), ..TaskMeta::default() };
    let kernel = device.load(&Artifact { arg_slots: 1, ..artifact(vec![task; 2]) }).unwrap();
    let (a, b) = (device.allocate(64).unwrap(), device.allocate(64).unwrap());
    let stream = device.default_stream();
    // SAFETY: the functions do nothing.
    let launch = |value: u64| unsafe { stream.launch(&kernel, &[value], &Patient) }.unwrap();
    let capture = device.capture().unwrap();
    DESCRIBED.take();
    LAUNCHING.take();
    capture.begin_here().unwrap();
    stream.fill(&a, 0, &[0], 64, &Patient).unwrap();
    launch(1);
    stream.copy(&b, 0, &a, 0, 32, &Patient).unwrap();
    launch(2);
    assert!(capture.end_here());
    let graph = CapturedGraph::of(&capture);
    assert_eq!((graph.steps(), LAUNCHING.take()), (4, vec![]), "nothing is launched");
    let calls = || {
        // SAFETY: as above.
        unsafe { stream.launch_graph(&graph, &Patient) }.unwrap();
        LAUNCHING.take().join(" ")
    };
    let made = "graph_create graph_fill graph_kernel graph_kernel graph_copy graph_kernel graph_kernel graph_ready graph_launch";
    assert_eq!(calls(), made);
    let described = ["fill of 64 behind 0", "kernel behind 1", "kernel behind 1", "copy of 32 behind 1"];
    assert_eq!(DESCRIBED.take()[..4], described);
    assert_eq!(calls(), "graph_launch", "nothing differs");
    let again = device.capture().unwrap();
    again.begin_here().unwrap();
    launch(3);
    again.end_here();
    assert!(graph.exchange(3, &again).unwrap(), "it is the same code");
    assert_eq!((calls(), calls()), ("graph_exchange graph_exchange graph_launch".into(), "graph_launch".into()));
    // One that the driver refuses is queued step by step.
    let capture = device.capture().unwrap();
    capture.begin_here().unwrap();
    launch(1);
    capture.end_here();
    let graph = CapturedGraph::of(&capture);
    FAILS.set(("graph_ready", INVALID_VALUE));
    // SAFETY: as above.
    unsafe { stream.launch_graph(&graph, &Patient) }.unwrap();
    let refused = "graph_create graph_kernel graph_kernel graph_ready graph_destroy launch launch";
    assert_eq!(LAUNCHING.take().join(" "), refused);
    FAILS.set(("", 0));
}
