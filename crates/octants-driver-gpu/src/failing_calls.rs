//! Tests of the errors that users see when a driver call fails, with a library in which a chosen call fails. Needs no
//! GPU.

mod graphs;

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::Arc;

use octants_artifact::{Artifact, Bound, CodeTarget, Condition, ParallelMeta, ScalarKind, TaskMeta, WideForm};
use octants_runtime::{
    CapturedGraph, Contents, Device, DeviceConfig, DevicePtr, Driver, Failures, KernelMeta, Launch, Pattern, Printer,
    Result, Section, StreamHandle, Uninterruptible,
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
    Called, CopyNode, Facts, FillNode, GraphLoops, Graphs, GridShape, KernelNode, Located, Place, RawGraph, RawNode,
    ReadyGraph, Vendor,
};

const INVALID_VALUE: c_int = 1;
const ILLEGAL_ADDRESS: c_int = 700;

thread_local! {
    /// The call that fails on this thread, and its code.
    static FAILS: Cell<(&'static str, c_int)> = const { Cell::new(("", 0)) };
    /// The calls so far that launch or concern graphs.
    static LAUNCHING: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    /// The graph nodes added so far.
    static DESCRIBED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    /// The mock library has nodes with several graphs.
    static HAS_CASES: Cell<bool> = const { Cell::new(false) };
}

/// The mock library's handle of a loop's switch.
const SWITCH: u64 = 0x5111;

fn note(what: String) {
    DESCRIBED.with_borrow_mut(|said| said.push(what));
}

/// Records a decision kernel's parameter.
fn note_decision(words: &[u64]) {
    let [switch, bytes, failed, rounds, ended, for_host, checkpoint, _, rest @ ..] = words else { return };
    let [most, equals, off] = rest.try_into().unwrap_or([1, 0, 0]);
    if *switch != SWITCH && (*switch, *failed) != (0, 0) {
        return;
    }
    let by = match (most, equals) {
        (1, 1) => format!("the absence of {bytes}"),
        (1, 0) if off == 0 => bytes.to_string(),
        (1, 0) => format!("either of {bytes}"),
        (_, 0) => format!("a number up to {most} of {bytes}"),
        _ => format!("the number {} of {most} of {bytes}", equals - 1),
    };
    match (switch, rounds, ended, for_host, checkpoint) {
        (0, 0, 1.., 1.., 1..) => note(format!("noting by {bytes} bytes, at checkpoint {checkpoint}")),
        (0, 8.., 0, 0, 0) if *bytes == 0 => note(format!("no rounds at {rounds}")),
        (0, 8.., 0, 8.., 0) if *bytes == 0 => note(format!("no end at {rounds} and {for_host}")),
        (0, ..) => {}
        (_, 0, 0, ..) => note(format!("deciding by {by} bytes")),
        (_, 1.., 0, ..) => note(format!("deciding by {by} bytes, counting at {rounds}")),
        (_, _, _, _, 0) => note(format!("deciding by {by} bytes, unless at an end")),
        _ => note(format!("deciding by {by} bytes, at checkpoint {checkpoint}")),
    }
}

fn outcome(name: &str) -> c_int {
    if name.starts_with("launch") || name.starts_with("graph_") {
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
    cooperates: 0,
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

    unsafe fn launch_early(
        &self,
        _function: RawFunction,
        _shape: GridShape,
        _stream: RawStream,
        _parameters: *mut *mut std::ffi::c_void,
    ) -> Option<Called<()>> {
        Some(called("launch_early", ()))
    }

    unsafe fn copy_between(
        &self,
        _to: (u64, Located),
        _from: (u64, Located),
        _bytes: usize,
        _stream: RawStream,
    ) -> Called<()> {
        Ok(())
    }

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

    unsafe fn add_kernel(&self, _to: RawGraph, dependencies: &[RawNode], kernel: &KernelNode) -> Called<RawNode> {
        // SAFETY: a parameter of tasks is no shorter than 8 words, and that of a decision has 11.
        let words = unsafe {
            let first = kernel.parameter.cast::<u64>();
            std::slice::from_raw_parts(first, if *first == SWITCH { 11 } else { 8 })
        };
        // A task of these tests has no result, no channel and no seed.
        let of_loop = Some(words[7]).filter(|at| *at != 0 && words[1..6] == [0; 5]);
        let of_loop = of_loop.map_or_else(String::new, |at| format!(", guarded at {at}"));
        note(format!("kernel after {}{of_loop}", dependencies.len()));
        note_decision(words);
        called("graph_kernel", RawNode(null_mut()))
    }

    unsafe fn add_resident(&self, _to: RawGraph, dependencies: &[RawNode], kernel: &KernelNode) -> Called<RawNode> {
        note(format!("{} resident blocks after {}", kernel.shape.blocks, dependencies.len()));
        called("graph_resident", RawNode(null_mut()))
    }

    unsafe fn add_join(&self, _to: RawGraph, dependencies: &[RawNode]) -> Called<RawNode> {
        note(format!("join of {}", dependencies.len()));
        called("graph_join", RawNode(null_mut()))
    }

    unsafe fn add_fill(&self, _to: RawGraph, dependencies: &[RawNode], fill: &FillNode) -> Called<RawNode> {
        note(format!("fill of {} after {}", fill.bytes, dependencies.len()));
        called("graph_fill", RawNode(null_mut()))
    }

    unsafe fn add_copy(&self, _to: RawGraph, dependencies: &[RawNode], copy: &CopyNode) -> Called<RawNode> {
        note(format!("copy of {} after {}", copy.bytes, dependencies.len()));
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

    unsafe fn add_loop(&self, _to: RawGraph, _switch: u64, dependencies: &[RawNode]) -> Called<(RawNode, RawGraph)> {
        note(format!("loop after {}", dependencies.len()));
        called("graph_loop", (RawNode(null_mut()), RawGraph(16 as *mut _)))
    }

    unsafe fn add_choice(&self, _to: RawGraph, _switch: u64, dependencies: &[RawNode]) -> Called<(RawNode, RawGraph)> {
        note(format!("choice after {}", dependencies.len()));
        called("graph_choice", (RawNode(null_mut()), RawGraph(24 as *mut _)))
    }

    fn has_cases(&self) -> bool {
        HAS_CASES.get()
    }

    unsafe fn add_cases(
        &self,
        _to: RawGraph,
        _switch: u64,
        cases: usize,
        dependencies: &[RawNode],
    ) -> Called<(RawNode, Vec<RawGraph>)> {
        note(format!("{cases} cases after {}", dependencies.len()));
        called("graph_cases", (RawNode(null_mut()), vec![RawGraph(32 as *mut _); cases]))
    }
}

/// A mock library in which the call named by [`FAILS`] fails.
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

/// Calls, and the operations that their errors name.
fn cases<'a>(context: &'a Context, e: &'a Entered<'a>) -> Vec<Case<'a>> {
    fn case<'a, T>(call: &'static str, doing: &'static str, f: impl Fn() -> Result<T> + 'a) -> Case<'a> {
        (call, doing, Box::new(move || f().map(drop)))
    }
    let (none, host, l) = (null_mut(), [0u8; 8], context.library());
    let to = host.as_ptr().cast_mut();
    // SAFETY: the functions do nothing.
    unsafe {
        vec![
            case("own_open", "creating the GPU's context", || l.open(0)),
            case("own_current", "querying the current device", || context.enter().map(drop)),
            case("own_switch", "setting the current device", || context.enter().map(drop)),
            case("driver_version", "querying the driver version", || l.driver_version()),
            case("device_get", "looking for GPU 3", || l.device(3)),
            case("device_name", "querying the GPU's name", || l.device_name(0)),
            case("device_attribute", "querying GPU attributes", || l.device_attribute(0, 1)),
            case("device_memory", "querying the GPU's memory size", || l.device_memory(0)),
            case("capture_mode", "setting the capture mode", || context.enter_aside().map(drop)),
            case("synchronize_all", "waiting for all work", || e.synchronize_all()),
            case("priority_range", "querying stream priorities", || e.priorities()),
            case("memory_info", "querying free memory", || e.memory_info()),
            case("allocate", "allocating 77 bytes", || e.allocate(77)),
            case("free", "freeing memory", || e.free(0)),
            case("host_allocate", "allocating 77 bytes of pinned memory", || e.allocate_pinned(77)),
            case("host_free", "freeing pinned memory", move || e.free_pinned(none)),
            case("memset", "filling 8 bytes", move || e.fill(0, Pattern::Byte(1), 8, none)),
            case("memset16", "filling 8 bytes", move || e.fill(0, Pattern::Half(1), 8, none)),
            case("memset32", "filling 8 bytes", move || e.fill(0, Pattern::Word(1), 8, none)),
            case("copy_to_device", "copying 8 bytes to the GPU", move || e.copy_to_device(0, to, 8, none)),
            case("copy_to_host", "copying 8 bytes from the GPU", move || e.copy_to_host(to, 0, 8, none)),
            case("copy_on_device", "copying 8 bytes on the GPU", move || e.copy_on_device(0, 0, 8, none)),
            case("stream_create", "creating a stream", || e.create_stream(0, 0)),
            case("stream_destroy", "destroying a stream", move || e.destroy_stream(none)),
            case("stream_synchronize", "waiting for a stream", move || e.synchronize_stream(none)),
            case("stream_query", "querying whether a stream is done", move || e.query_stream(none)),
            case("stream_wait", "making a stream wait for an event", move || e.wait_event(none, none)),
            case("stream_capturing", "querying the capture status of a stream", move || e.is_capturing(none)),
            case("event_create", "creating an event", || e.create_event(true)),
            case("event_destroy", "destroying an event", move || e.destroy_event(none)),
            case("event_record", "recording an event", move || e.record_event(none, none)),
            case("event_synchronize", "waiting for an event", move || e.synchronize_event(none)),
            case("event_query", "querying whether an event is done", move || e.query_event(none)),
            case("event_elapsed", "reading the time between two events", move || e.elapsed(none, none)),
            case("module_unload", "unloading code", move || e.unload_module(none)),
            case("module_function", "looking for `f` in loaded code", move || e.function(none, "f")),
            case("function_attribute", "querying function attributes", move || e.function_attribute(none, 0)),
            case("occupancy", "querying occupancy", move || e.blocks_per_multiprocessor(none, 32, 0)),
            case("launch", "launching kernel `scale`", move || {
                e.launch(none, GridShape::ONE, none, none, e.library().last.number_of("scale", None))
            }),
            case("launch_resident", "launching kernel `scale`", move || {
                e.launch_resident(none, GridShape::ONE, none, none, e.library().last.number_of("scale", None))
            }),
            case("pool_create", "creating a memory pool", || e.create_pool(0, 0)),
            case("pool_set", "setting the release threshold of a memory pool", || e.create_pool(0, 0)),
            case("pool_destroy", "destroying a memory pool", move || e.destroy_pool(none)),
            case("pool_trim", "trimming a memory pool", move || e.trim_pool(none)),
            case("pool_access", "sharing a memory pool with another GPU", move || e.share_pool(none, 1)),
            case("pool_allocate", "allocating 77 bytes", move || e.allocate_on(none, 77, none)),
            case("pool_free", "freeing memory", move || e.free_on(0, none)),
            case("graph_instantiate", "instantiating another library's graph", || e.instantiate_graph(1)),
            case("graph_launch", "launching another library's graph", move || e.launch_graph(none, none)),
            case("graph_exec_destroy", "destroying another library's graph", move || e.destroy_graph(none)),
            case("capture_begin", "recording iterations of a loop", move || e.begin_capture(none)),
            case("capture_end", "recording iterations of a loop", move || e.end_capture(none)),
            case("graph_destroy", "recording iterations of a loop", move || e.end_capture(none)),
        ]
    }
}

/// Two return their code to a caller that rewords it. The loader's message is reported as a whole.
const NOT_CASES: [&str; 3] = ["init", "device_count", "module_load"];

#[test]
fn every_error_names_the_call_the_code_and_the_operation() {
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

/// This many single-thread tasks.
fn serial(tasks: usize) -> Artifact {
    let task = TaskMeta { name: "t".into(), symbol: "t".into(), ..TaskMeta::default() };
    artifact(vec![task; tasks])
}

#[test]
fn an_error_of_loading_code_names_the_kernel() {
    let (context, artifact) = (context(), artifact(vec![]));
    FAILS.set(("module_load", INVALID_VALUE));
    let text = Module::load(&context, &artifact).unwrap_err().to_string();
    let call = "module_load failed with code 1 (a sentence) while loading code";
    assert_eq!(text, format!("cannot load the code of kernel `scale`: {call}"));
}

#[test]
fn a_coarsened_variant_as_text_is_loaded_on_first_use_and_optional() {
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
        let blocks_for = |n: u64| module.code.tasks[0].plan(&entered, &[n]).map(|(_, shape)| shape.blocks);
        assert_eq!(blocks_for(6), Some(6), "few iterations");
        assert_eq!(blocks_for(8), Some(blocks));
        FAILS.set(("", 0));
    }
    // Binaries are loaded with the rest.
    let wide = artifact.tasks[0].parallel.as_mut().and_then(|meta| meta.wide.as_mut()).unwrap();
    wide.code = b"\x7fELF of the wide form".to_vec();
    let module = Module::load(&context, &artifact).unwrap();
    FAILS.set(("module_load", INVALID_VALUE));
    let entered = context.enter().unwrap();
    assert_eq!(module.code.tasks[0].plan(&entered, &[8]).map(|(_, shape)| shape.blocks), Some(2));
    FAILS.set(("", 0));
}

#[test]
fn every_allocation_reports_out_of_memory() {
    let context = context();
    let memory = Memory::without_pool(&context).unwrap();
    FAILS.set(("allocate", code::OUT_OF_MEMORY));
    // SAFETY: the functions do nothing.
    let text = unsafe { memory.allocate(&context, None, 3 << 30, Contents::Zeroed) }.unwrap_err().to_string();
    assert!(text.starts_with("out of memory: 3.0 GiB requested on a GPU, "), "{text}");
    assert!(text.ends_with("0 bytes of the device's 0 bytes are free"), "{text}");
    FAILS.set(("host_allocate", code::OUT_OF_MEMORY));
    let text = Pinned::default().allocate(&context, 1 << 20).unwrap_err().to_string();
    assert!(text.starts_with("out of memory: 1.0 MiB requested on a GPU, "), "{text}");
}

#[test]
fn a_lost_device_reports_the_cause_once() {
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
fn an_error_of_opening_a_device_names_the_call() {
    let open = |context| GpuDriver::new(context, CodeTarget::Host, &GpuConfig::default());
    for (name, doing) in [
        ("priority_range", "querying stream priorities"),
        ("stream_create", "creating a stream"),
        ("own_current", "querying the current device"),
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
