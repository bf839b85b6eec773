//! [`GpuDriver`]: a GPU behind the runtime's `Driver` trait.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use octants_artifact::{Artifact, CodeTarget, DeviceContext};
use octants_runtime::{
    Contents, DevicePtr, Driver, ErrorKind, EventHandle, Factors, GraphHandle, GraphPart, Launch, MatrixRows,
    ModuleHandle, Pattern, Peer, ProductCalls, Result, Section, SolverCalls, SparseWork, StreamHandle, TaskHandle,
};

use crate::add_to_capture::add_to_capture;
use crate::backlog::Backlogs;
use crate::context::{Context, Entered};
use crate::graph_of_parts::GraphOfParts;
use crate::loaded_task::LoadedTask;
use crate::memory::Memory;
use crate::module::Module;
use crate::open::{GpuConfig, Unavailable};
use crate::pinned::Pinned;
use crate::sparse::{OnDevice, SparseLibraries};
use crate::streams::Streams;
use crate::symbols::{RawEvent, RawGraphExec};
use crate::vendor::{Assembler, Located, Place};

/// Number of retired modules that are unloaded together.
const MOST_RETIRED: usize = 256;

/// A GPU.
#[derive(Debug)]
pub struct GpuDriver {
    context: Arc<Context>,
    target: CodeTarget,
    streams: Arc<Streams>,
    memory: Memory,
    pinned: Pinned,
    retired: Mutex<Retired>,
    assembler: Option<Box<dyn Assembler>>,
    sparse: Option<Box<dyn SparseLibraries>>,
    backlogs: Backlogs,
}

/// Modules that the host no longer uses, but the device may.
#[derive(Debug, Default)]
struct Retired {
    modules: Vec<Module>,
    /// The program has ended, and all its work is done.
    closed: bool,
}

impl GpuDriver {
    /// The driver of a device that was opened, for code made for `target`.
    pub fn new(
        context: Context,
        target: CodeTarget,
        config: &GpuConfig,
    ) -> std::result::Result<GpuDriver, Unavailable> {
        let failed = |e: octants_runtime::DeviceError| Unavailable(format!("{} cannot be used: {e}", context.name));
        let memory =
            if config.plain_memory { Memory::without_pool(&context) } else { Memory::new(&context, config.keep_bytes) };
        let memory = memory.map_err(failed)?;
        let streams = Streams::new(&context).inspect_err(|_| memory.end(&context)).map_err(failed)?;
        let (pinned, retired) = (Pinned::default(), Mutex::default());
        let (context, streams) = (Arc::new(context), Arc::new(streams));
        let (assembler, sparse, backlogs) = (None, None, Backlogs::default());
        Ok(GpuDriver { context, target, streams, memory, pinned, retired, assembler, sparse, backlogs })
    }

    /// The same, with an assembler that compiles text before loading.
    pub fn with_assembler(self, assembler: Box<dyn Assembler>) -> GpuDriver {
        let mut driver = self;
        driver.assembler = Some(assembler);
        driver
    }

    /// The same, with the vendor's libraries for sparse matrices.
    pub fn with_sparse_libraries(self, sparse: Box<dyn SparseLibraries>) -> GpuDriver {
        let mut driver = self;
        driver.sparse = Some(sparse);
        driver
    }

    fn sparse(&self) -> Result<&dyn SparseLibraries> {
        self.sparse.as_deref().ok_or_else(|| {
            let message = format!("there is no sparse matrix library for {}", self.context.name);
            ErrorKind::Misuse { message }.into()
        })
    }

    /// Free and total bytes of the device's memory, as the driver counts them: all processes' together.
    pub fn memory_info(&self) -> Result<(u64, u64)> {
        // SAFETY: the context is entered.
        unsafe { self.context.enter_aside()?.memory_info() }
    }

    fn retired(&self) -> MutexGuard<'_, Retired> {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Safety
    /// All work of the modules is done.
    unsafe fn unload_all(&self, calls: &Entered<'_>, modules: Vec<Module>) {
        for module in modules {
            // SAFETY: the contract above.
            unsafe { module.unload(calls) }
        }
    }
}

impl Driver for GpuDriver {
    fn name(&self) -> &str {
        &self.context.name
    }

    fn software(&self) -> Option<(&'static str, i32)> {
        let library = self.context.library();
        Some((library.facts().api, library.driver_version().ok()?))
    }

    fn clock_hz(&self) -> Option<f64> {
        let (library, attribute) = (self.context.library(), self.context.facts().clock_rate?);
        let kilohertz = library.device_attribute(self.context.device, attribute).ok()?;
        (kilohertz > 0).then(|| f64::from(kilohertz) * 1e3)
    }

    fn is_immediate(&self) -> bool {
        false
    }

    fn code_target(&self) -> CodeTarget {
        self.target.clone()
    }

    fn is_host_addressable(&self) -> bool {
        false
    }

    fn array_protocol(&self) -> Option<&'static str> {
        self.context.facts().array_protocol
    }

    fn unnamed_stream(&self) -> Option<StreamHandle> {
        Some(StreamHandle(self.context.facts().unnamed_stream))
    }

    fn synchronize_device(&self) -> Result<()> {
        // SAFETY: the context is entered.
        unsafe { self.context.enter_aside()?.synchronize_all() }
    }

    fn memory_bytes(&self) -> Option<u64> {
        Some(self.context.memory)
    }

    fn max_argument_bytes(&self) -> u64 {
        DeviceContext::MOST_ARGUMENT_BYTES
    }

    fn dlpack_device(&self) -> (i32, i32) {
        (self.context.facts().dlpack, self.context.ordinal as i32)
    }

    unsafe fn allocate(&self, stream: Option<StreamHandle>, bytes: u64, contents: Contents) -> Result<DevicePtr> {
        let stream = stream.map(|s| self.streams.resolve(s));
        // SAFETY: the trait's contract.
        unsafe { self.memory.allocate(&self.context, stream, bytes.max(1), contents) }
    }

    fn create_stream(&self, priority: i32) -> Result<StreamHandle> {
        self.streams.create(&self.context, priority)
    }

    unsafe fn destroy_stream(&self, stream: StreamHandle) {
        // SAFETY: the trait's contract.
        unsafe { self.streams.destroy(&self.context, stream) }
    }

    fn native_stream(&self, stream: StreamHandle) -> u64 {
        self.streams.resolve(stream) as u64
    }

    fn adopt_stream(&self, handle: u64) -> Result<StreamHandle> {
        self.streams.adopt(&self.context, handle)
    }

    fn create_event(&self, timing: bool) -> Result<EventHandle> {
        self.streams.create_event(&self.context, timing)
    }

    unsafe fn destroy_event(&self, event: EventHandle) {
        // SAFETY: the trait's contract.
        unsafe { self.streams.destroy_event(&self.context, event) }
    }

    unsafe fn record_event(&self, stream: StreamHandle, event: EventHandle) -> Result<()> {
        // SAFETY: the trait's contract.
        unsafe { self.context.enter()?.record_event(event.0 as RawEvent, self.streams.resolve(stream)) }
    }

    unsafe fn wait_events(&self, stream: StreamHandle, events: &[EventHandle]) -> Result<()> {
        let (calls, stream) = (self.context.enter()?, self.streams.resolve(stream));
        // SAFETY: the trait's contract.
        events.iter().try_for_each(|e| unsafe { calls.wait_event(stream, e.0 as RawEvent) })
    }

    unsafe fn synchronize_event(&self, event: EventHandle) -> Result<()> {
        // SAFETY: the trait's contract.
        unsafe { self.context.enter_aside()?.synchronize_event(event.0 as RawEvent) }
    }

    unsafe fn query_stream(&self, stream: StreamHandle) -> Result<bool> {
        // SAFETY: the trait's contract.
        let done = unsafe { self.context.enter_aside()?.query_stream(self.streams.resolve(stream))? };
        if done {
            self.backlogs.clear(self.streams.resolve(stream));
        }
        Ok(done)
    }

    unsafe fn query_event(&self, event: EventHandle) -> Result<bool> {
        // SAFETY: the trait's contract.
        unsafe { self.context.enter_aside()?.query_event(event.0 as RawEvent) }
    }

    unsafe fn elapsed_ms(&self, earlier: EventHandle, later: EventHandle) -> Result<f64> {
        let (from, to) = (earlier.0 as RawEvent, later.0 as RawEvent);
        let calls = self.context.enter_aside()?;
        // SAFETY: the trait's contract.
        unsafe {
            calls.synchronize_event(from)?;
            calls.synchronize_event(to)?;
            calls.elapsed(from, to).map(f64::from)
        }
    }

    unsafe fn free(&self, stream: StreamHandle, memory: DevicePtr, _bytes: u64) {
        // SAFETY: the trait's contract.
        unsafe { self.memory.free(&self.context, self.streams.resolve(stream), memory) }
    }

    unsafe fn allocate_pinned(&self, bytes: u64) -> Result<DevicePtr> {
        self.pinned.allocate(&self.context, bytes)
    }

    unsafe fn free_pinned(&self, memory: DevicePtr, bytes: u64) {
        // SAFETY: the trait's contract.
        unsafe { self.pinned.free(&self.context, memory, bytes) }
    }

    unsafe fn copy_to_device(&self, stream: StreamHandle, to: DevicePtr, from: *const u8, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the trait's contract.
        unsafe { self.context.enter()?.copy_to_device(to.0, from, bytes, self.streams.resolve(stream)) }
    }

    unsafe fn copy_to_host(&self, stream: StreamHandle, to: *mut u8, from: DevicePtr, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the trait's contract.
        unsafe { self.context.enter()?.copy_to_host(to, from.0, bytes, self.streams.resolve(stream)) }
    }

    unsafe fn copy_on_device(&self, stream: StreamHandle, to: DevicePtr, from: DevicePtr, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the trait's contract.
        unsafe { self.context.enter()?.copy_on_device(to.0, from.0, bytes, self.streams.resolve(stream)) }
    }

    fn peer(&self) -> Option<Peer> {
        let Located { device, place: Place(context) } = self.context.located();
        Some(Peer { library: self.context.facts().api, device, context })
    }

    fn share_with(&self, peer: Peer) -> Result<()> {
        self.memory.share_with(&self.context, peer.device)
    }

    unsafe fn copy_from_peer(
        &self,
        stream: StreamHandle,
        to: DevicePtr,
        peer: Peer,
        from: DevicePtr,
        bytes: u64,
    ) -> Result<()> {
        let peer = Located { device: peer.device, place: Place(peer.context) };
        // SAFETY: the trait's contract.
        unsafe { self.context.enter()?.copy_from_peer(to.0, (peer, from.0), bytes, self.streams.resolve(stream)) }
    }

    unsafe fn fill(&self, stream: StreamHandle, at: DevicePtr, pattern: Pattern, bytes: u64) -> Result<bool> {
        // SAFETY: the trait's contract.
        unsafe { self.context.enter()?.fill(at.0, pattern, bytes, self.streams.resolve(stream))? };
        Ok(true)
    }

    fn assemble(&self, code: &[u8]) -> Option<Vec<u8>> {
        self.assembler.as_ref()?.assemble(code)
    }

    fn load(&self, artifact: &Artifact) -> Result<(ModuleHandle, Vec<TaskHandle>)> {
        let module = Module::load(&self.context, artifact)?;
        let tasks = module.code.tasks.iter().map(|t| TaskHandle(std::ptr::from_ref(t) as u64)).collect();
        Ok((ModuleHandle(Box::into_raw(Box::new(module)) as u64), tasks))
    }

    unsafe fn unload(&self, module: ModuleHandle) {
        // SAFETY: the handle is `load`'s box, given back once.
        let module = unsafe { *Box::from_raw(module.0 as *mut Module) };
        // Vendors do not document that unloading waits for launches, so it is deferred until they are done.
        let (modules, ended) = {
            let mut retired = self.retired();
            retired.modules.push(module);
            if !retired.closed && retired.modules.len() < MOST_RETIRED {
                return;
            }
            (std::mem::take(&mut retired.modules), retired.closed)
        };
        let Some(calls) = self.context.enter_to_free() else { return };
        // SAFETY: all work is waited for.
        unsafe {
            if !ended && calls.synchronize_all().is_err() {
                // Another library is capturing, or the device is lost: later, or never.
                return self.retired().modules.extend(modules);
            }
            self.unload_all(&calls, modules);
        }
    }

    unsafe fn max_resident_threads(&self, task: TaskHandle) -> Option<u64> {
        // SAFETY: the handle is the address of a task of a module that the trait's contract keeps loaded.
        unsafe { (*(task.0 as *const LoadedTask)).max_resident_threads() }
    }

    #[inline]
    unsafe fn launch(&self, stream: StreamHandle, task: TaskHandle, launch: &Launch<'_>) -> Result<()> {
        let calls = self.context.enter()?;
        // SAFETY: the handle is the address of a task of a module that the trait's contract keeps loaded.
        unsafe { (*(task.0 as *const LoadedTask)).launch(&calls, self.streams.resolve(stream), launch) }
    }

    unsafe fn launch_loop(
        &self,
        stream: StreamHandle,
        module: ModuleHandle,
        number: u32,
        launch: &Launch<'_>,
    ) -> Result<bool> {
        // SAFETY: the handle is the address of a module that the trait's contract keeps loaded.
        let code = unsafe { &(*(module.0 as *const Module)).code };
        let Some(found) = code.suitable_loop(number, launch.args, false) else { return Ok(false) };
        // SAFETY: as in `launch`.
        unsafe { found.launch(&self.context.enter()?, self.streams.resolve(stream), &code.tasks, launch) }
    }

    unsafe fn launch_as_one(
        &self,
        stream: StreamHandle,
        module: ModuleHandle,
        sections: &[Section],
        launch: &Launch<'_>,
    ) -> Result<bool> {
        // SAFETY: the handle is the address of a module that the trait's contract keeps loaded.
        let module = unsafe { &*(module.0 as *const Module) };
        // Another thread launches the same tasks, on another stream.
        let Ok(mut graph) = module.graph.try_lock() else { return Ok(false) };
        if module.code.tasks.is_empty() {
            return Ok(true);
        }
        let stream = self.streams.resolve(stream);
        let calls = if graph.is_made_for(stream) { self.context.enter()? } else { self.context.enter_aside()? };
        let what = (&module.code, sections);
        // SAFETY: as in `launch`.
        unsafe { graph.launch(&calls, stream, what, launch, &self.backlogs) }
    }

    unsafe fn launch_into_capture(
        &self,
        stream: StreamHandle,
        module: ModuleHandle,
        sections: &[Section],
        launch: &Launch<'_>,
    ) -> Result<bool> {
        // SAFETY: the handle is the address of a module that the trait's contract keeps loaded.
        let module = unsafe { &*(module.0 as *const Module) };
        // SAFETY: as in `launch`.
        unsafe { add_to_capture(&self.context, self.streams.resolve(stream), (&module.code, sections), launch) }
    }

    fn fills(&self) -> bool {
        true
    }

    unsafe fn make_graph(&self, parts: &[GraphPart<'_>]) -> Result<Option<GraphHandle>> {
        let Some(graphs) = self.context.library().vendor.graphs() else { return Ok(None) };
        let calls = self.context.enter_aside()?;
        // SAFETY: the trait's contract.
        let made = unsafe { GraphOfParts::new(graphs, &calls, parts) };
        Ok(made.map(|graph| GraphHandle(Box::into_raw(Box::new(Mutex::new(graph))) as u64)))
    }

    unsafe fn launch_graph<'a>(
        &self,
        stream: StreamHandle,
        graph: GraphHandle,
        changed: &[usize],
        launch_of: &dyn Fn(usize) -> Option<Launch<'a>>,
    ) -> Result<bool> {
        let Some(graphs) = self.context.library().vendor.graphs() else { return Ok(false) };
        let calls = self.context.enter()?;
        // SAFETY: the handle is `make_graph`'s box, which was not given back.
        let graph = unsafe { &*(graph.0 as *const Mutex<GraphOfParts>) };
        let mut graph = graph.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the trait's contract.
        unsafe { graph.launch((graphs, &calls), self.streams.resolve(stream), changed, launch_of) }
    }

    unsafe fn destroy_graph(&self, graph: GraphHandle) {
        // SAFETY: the handle is `make_graph`'s box, given back once.
        let graph = unsafe { *Box::from_raw(graph.0 as *mut Mutex<GraphOfParts>) };
        let graph = graph.into_inner().unwrap_or_else(PoisonError::into_inner);
        let Some(calls) = self.context.enter_to_free() else { return };
        if let Some(graphs) = calls.library().vendor.graphs() {
            // SAFETY: the trait's contract.
            unsafe { graph.destroy(graphs) }
        }
    }

    unsafe fn begin_recording(&self, stream: StreamHandle) -> Result<bool> {
        let calls = self.context.enter()?;
        if !calls.can_capture() {
            return Ok(false);
        }
        // SAFETY: the trait's contract.
        unsafe { calls.begin_capture(self.streams.resolve(stream)) }.map(|()| true)
    }

    unsafe fn end_recording(&self, stream: StreamHandle) -> Result<GraphHandle> {
        // SAFETY: the trait's contract.
        let ready = unsafe { self.context.enter()?.end_capture(self.streams.resolve(stream)) };
        ready.map(|ready| GraphHandle(ready as u64))
    }

    unsafe fn ready_foreign_graph(&self, graph: u64) -> Result<GraphHandle> {
        // SAFETY: the trait's contract.
        unsafe { self.context.enter_aside()?.instantiate_graph(graph) }.map(|ready| GraphHandle(ready as u64))
    }

    unsafe fn launch_foreign_graph(&self, stream: StreamHandle, graph: GraphHandle) -> Result<()> {
        // SAFETY: as above; the handle is `ready_foreign_graph`'s.
        unsafe { self.context.enter()?.launch_graph(graph.0 as RawGraphExec, self.streams.resolve(stream)) }
    }

    unsafe fn destroy_foreign_graph(&self, graph: GraphHandle) {
        let Some(calls) = self.context.enter_to_free() else { return };
        // SAFETY: as above. An error cannot be reported.
        let _ = unsafe { calls.destroy_graph(graph.0 as RawGraphExec) };
    }

    fn missing_sparse_library(&self, work: SparseWork) -> Option<String> {
        let sparse = match self.sparse() {
            Ok(sparse) => sparse,
            Err(e) => return Some(e.to_string()),
        };
        match self.context.enter_aside() {
            Ok(calls) => sparse.missing(&calls, work),
            Err(e) => Some(e.to_string()),
        }
    }

    unsafe fn sparse_product(&self, matrix: &MatrixRows) -> Result<Box<dyn ProductCalls>> {
        let (context, streams) = (self.context.clone(), self.streams.clone());
        // SAFETY: the trait's contract.
        let calls = unsafe { self.sparse()?.product(&self.context.enter_aside()?, matrix)? };
        Ok(Box::new(OnDevice { context, streams, calls: Some(calls) }))
    }

    unsafe fn sparse_solver(&self, matrix: &MatrixRows, factors: Factors) -> Result<Box<dyn SolverCalls>> {
        let (context, streams) = (self.context.clone(), self.streams.clone());
        // SAFETY: the trait's contract.
        let calls = unsafe { self.sparse()?.solver(&self.context.enter_aside()?, matrix, factors)? };
        Ok(Box::new(OnDevice { context, streams, calls: Some(calls) }))
    }

    unsafe fn is_capturing(&self, stream: StreamHandle) -> Result<bool> {
        // SAFETY: the trait's contract.
        unsafe { self.context.enter()?.is_capturing(self.streams.resolve(stream)) }
    }

    unsafe fn synchronize(&self, stream: StreamHandle) -> Result<()> {
        // SAFETY: the trait's contract.
        unsafe { self.streams.synchronize(&self.context, stream) }?;
        self.backlogs.clear(self.streams.resolve(stream));
        Ok(())
    }

    fn close(&self) {
        let modules = {
            let mut retired = self.retired();
            retired.closed = true;
            std::mem::take(&mut retired.modules)
        };
        if let Some(calls) = self.context.enter_to_free() {
            // SAFETY: the program has waited for its work.
            unsafe {
                self.unload_all(&calls, modules);
                self.backlogs.end(&calls);
            }
        }
        self.pinned.close(&self.context);
        self.memory.trim(&self.context);
    }
}

impl Drop for GpuDriver {
    fn drop(&mut self) {
        self.close();
        match self.context.enter_to_free() {
            Some(_entered) => self.sparse = None,
            // The libraries have shut down, which has freed everything.
            None => std::mem::forget(self.sparse.take()),
        }
        self.pinned.end(&self.context);
        self.memory.end(&self.context);
        self.streams.end(&self.context);
    }
}
