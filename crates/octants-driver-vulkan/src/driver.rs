//! [`VulkanDriver`]: a Vulkan device behind the runtime's `Driver` trait.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ash::vk;
use octants_artifact::{Artifact, CodeTarget};
use octants_driver_gpu::Unavailable;
use octants_driver_gpu::importer::FindImporter;
use octants_runtime::{
    Contents, DevicePtr, Driver, ErrorKind, EventHandle, ForeignApi, GraphHandle, GraphPart, Launch, ModuleHandle,
    Pattern, Result, StreamHandle, TaskHandle,
};

use crate::dispatch::Dispatch;
use crate::event::Event;
use crate::foreign::Foreign;
use crate::gpu::Gpu;
use crate::graph::{Graph, fills_words, word_of};
use crate::memory::{Kind, Lease, Memory, Part, no_memory};
use crate::module::{LoadedTask, Module};
use crate::queue::Queues;
use crate::stream::Stream;

/// Number of retired modules that are unloaded together.
const MOST_RETIRED: usize = 256;
/// Maximum bytes of arguments of a launch. Arguments that exceed the push constants are staged.
const MOST_ARGUMENT_BYTES: u64 = 4000;

/// A Vulkan device.
#[derive(Debug)]
pub struct VulkanDriver {
    default: Arc<Stream>,
    queues: Arc<Queues>,
    /// Streams that were made and not destroyed, by handle.
    live: Mutex<HashSet<u64>>,
    retired: Mutex<(Vec<Module>, bool)>,
    finders: Vec<FindImporter>,
    foreign: OnceLock<Option<Foreign>>,
    /// See [`VulkanDriver::clearing`].
    clearing: OnceLock<Arc<Stream>>,
    memory: Arc<Memory>,
    pinned: Arc<Memory>,
    arguments: Arc<Memory>,
    gpu: Arc<Gpu>,
}

impl VulkanDriver {
    /// The driver of a device that was opened.
    pub(crate) fn new(gpu: Gpu, finders: &[FindImporter]) -> std::result::Result<VulkanDriver, Unavailable> {
        let gpu = Arc::new(gpu);
        let pinned = Arc::new(Memory::new(&gpu, Kind::Pinned));
        let queues = Arc::new(Queues::new(&gpu));
        let arguments = Arc::new(Memory::new(&gpu, Kind::Arguments));
        let default = Stream::new(&queues, 0).map_err(|e| Unavailable(format!("{} cannot be used: {e}", gpu.name)))?;
        let memory = Arc::new(Memory::new(&gpu, Kind::Device));
        let (live, retired) = (Mutex::default(), Mutex::default());
        Ok(VulkanDriver {
            default,
            queues,
            live,
            retired,
            finders: finders.to_vec(),
            foreign: OnceLock::new(),
            clearing: OnceLock::new(),
            memory,
            pinned,
            arguments,
            gpu,
        })
    }

    #[cfg(test)]
    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    fn live(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Safety
    /// The handle is zero or a live stream's.
    unsafe fn stream(&self, handle: StreamHandle) -> &Stream {
        // SAFETY: the contract above.
        unsafe { Stream::of(&self.default, handle) }
    }

    /// # Safety
    /// The handle is a live event's.
    unsafe fn event(&self, handle: EventHandle) -> &Event {
        // SAFETY: the contract above.
        unsafe { Event::of(handle) }
    }

    /// The stream that clears new memory, so that this waits for no other work.
    fn clearing(&self) -> Result<&Stream> {
        if let Some(known) = self.clearing.get() {
            return Ok(known);
        }
        let made = Stream::waited(&self.queues)?;
        Ok(self.clearing.get_or_init(|| made))
    }

    /// The other interface to the device. Nothing is loaded before the first call.
    fn foreign(&self) -> Option<&Foreign> {
        let find = || Foreign::find(&self.finders, &self.gpu, &self.memory, &self.default);
        self.foreign.get_or_init(find).as_ref()
    }

    /// The buffer and offset of an address in device or pinned memory.
    fn find(&self, at: u64, what: &'static str) -> Result<Part> {
        self.memory.find(at).or_else(|| self.pinned.find(at)).ok_or_else(|| no_memory(what))
    }

    fn copy(&self, stream: &Stream, to: Part, from: Part, bytes: u64, staged: Option<Lease>) -> Result<()> {
        stream.record(|r| {
            let region = [vk::BufferCopy { src_offset: from.offset, dst_offset: to.offset, size: bytes }];
            // SAFETY: the ranges are within their buffers, as the trait's contract says.
            unsafe { r.gpu().device.cmd_copy_buffer(r.commands(), from.buffer, to.buffer, &region) };
            r.keep(staged);
            Ok(())
        })
    }

    fn fill_words(&self, stream: &Stream, part: Part, bytes: u64, word: u32) -> Result<()> {
        stream.record(|r| {
            // SAFETY: the range is within its buffer, at multiples of four.
            unsafe { r.gpu().device.cmd_fill_buffer(r.commands(), part.buffer, part.offset, bytes, word) };
            Ok(())
        })
    }

    fn retired(&self) -> MutexGuard<'_, (Vec<Module>, bool)> {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits the recorded work of all streams and waits for it.
    fn finish(&self) -> Result<()> {
        self.default.flush()?;
        for handle in self.live().iter() {
            // SAFETY: it is live, and cannot end while the set is locked.
            unsafe { self.stream(StreamHandle(*handle)) }.flush()?;
        }
        self.gpu.wait_idle()
    }
}

impl Driver for VulkanDriver {
    fn name(&self) -> &str {
        &self.gpu.name
    }

    fn software(&self) -> Option<(&'static str, i32)> {
        Some(("Vulkan", self.gpu.version as i32))
    }

    fn is_immediate(&self) -> bool {
        false
    }

    fn code_target(&self) -> CodeTarget {
        self.gpu.target.clone()
    }

    fn is_host_addressable(&self) -> bool {
        false
    }

    fn dlpack_device(&self) -> (i32, i32) {
        (7, self.gpu.ordinal as i32)
    }

    fn foreign_api(&self) -> Option<&dyn ForeignApi> {
        self.foreign().map(|foreign| foreign as &dyn ForeignApi)
    }

    fn synchronize_device(&self) -> Result<()> {
        self.finish()?;
        self.foreign.get().and_then(Option::as_ref).map_or(Ok(()), Foreign::synchronize)
    }

    fn memory_bytes(&self) -> Option<u64> {
        Some(self.gpu.memory_bytes)
    }

    fn max_argument_bytes(&self) -> u64 {
        MOST_ARGUMENT_BYTES
    }

    unsafe fn allocate(&self, stream: Option<StreamHandle>, bytes: u64, contents: Contents) -> Result<DevicePtr> {
        let at = self.memory.allocate(bytes)?;
        if contents != Contents::Any {
            let part = self.find(at, "new memory")?;
            let whole = bytes.max(1).next_multiple_of(4);
            match stream {
                // SAFETY: the trait's contract.
                Some(stream) => self.fill_words(unsafe { self.stream(stream) }, part, whole, 0)?,
                None => {
                    let own = self.clearing()?;
                    self.fill_words(own, part, whole, 0)?;
                    own.wait(None)?;
                }
            }
        }
        Ok(DevicePtr(at))
    }

    fn create_stream(&self, priority: i32) -> Result<StreamHandle> {
        let stream = Stream::new(&self.queues, priority)?;
        let handle = Arc::into_raw(stream) as u64;
        self.live().insert(handle);
        Ok(StreamHandle(handle))
    }

    unsafe fn destroy_stream(&self, stream: StreamHandle) {
        if self.live().remove(&stream.0) {
            // SAFETY: it is `create_stream`'s, given back once.
            let stream = unsafe { Arc::from_raw(stream.0 as *const Stream) };
            // Wait here, even if something else holds a reference for a moment.
            let _ = stream.wait(None);
        }
    }

    fn adopt_stream(&self, handle: u64) -> Result<StreamHandle> {
        if handle == 0 || self.live().contains(&handle) {
            return Ok(StreamHandle(handle));
        }
        let message =
            format!("{handle} is not the handle of a stream of this program: Vulkan does not support other streams");
        Err(ErrorKind::Misuse { message }.into())
    }

    fn create_event(&self, timing: bool) -> Result<EventHandle> {
        Ok(EventHandle(Box::into_raw(Box::new(Event::new(&self.gpu, timing)?)) as u64))
    }

    unsafe fn destroy_event(&self, event: EventHandle) {
        // SAFETY: it is `create_event`'s box, given back once.
        drop(unsafe { Box::from_raw(event.0 as *mut Event) });
    }

    unsafe fn record_event(&self, stream: StreamHandle, event: EventHandle) -> Result<()> {
        // SAFETY: the trait's contract.
        unsafe { self.event(event).record(self.stream(stream)) }
    }

    unsafe fn wait_events(&self, stream: StreamHandle, events: &[EventHandle]) -> Result<()> {
        // SAFETY: the trait's contract.
        let others = events.iter().filter_map(|e| unsafe { self.event(*e) }.stands_for()).collect();
        // SAFETY: as above.
        unsafe { self.stream(stream) }.wait_for(others)
    }

    unsafe fn synchronize_event(&self, event: EventHandle) -> Result<()> {
        // SAFETY: the trait's contract.
        unsafe { self.event(event) }.wait()
    }

    unsafe fn query_stream(&self, stream: StreamHandle) -> Result<bool> {
        // SAFETY: the trait's contract.
        unsafe { self.stream(stream) }.is_done()
    }

    unsafe fn query_event(&self, event: EventHandle) -> Result<bool> {
        // SAFETY: the trait's contract.
        unsafe { self.event(event) }.is_done()
    }

    unsafe fn elapsed_ms(&self, earlier: EventHandle, later: EventHandle) -> Result<f64> {
        // SAFETY: the trait's contract.
        unsafe { self.event(earlier).elapsed_ms(self.event(later)) }
    }

    unsafe fn free(&self, stream: StreamHandle, memory: DevicePtr, _bytes: u64) {
        // SAFETY: the trait's contract.
        let stream = unsafe { self.stream(stream) };
        self.memory.free_after(memory.0, stream.timeline(), stream.value_after());
    }

    unsafe fn allocate_pinned(&self, bytes: u64) -> Result<DevicePtr> {
        let at = self.pinned.allocate(bytes)?;
        // SAFETY: the memory is mapped, and has this length.
        unsafe { std::ptr::write_bytes(at as *mut u8, 0, bytes as usize) };
        Ok(DevicePtr(at))
    }

    unsafe fn free_pinned(&self, memory: DevicePtr, _bytes: u64) {
        self.pinned.free(memory.0);
    }

    unsafe fn copy_to_device(&self, stream: StreamHandle, to: DevicePtr, from: *const u8, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the trait's contract.
        let stream = unsafe { self.stream(stream) };
        let to = self.find(to.0, "the target of a copy")?;
        if let Some(part) = self.pinned.find(from as u64) {
            return self.copy(stream, to, part, bytes, None);
        }
        let staged = self.pinned.lease(bytes)?;
        // SAFETY: both have this length, by the trait's contract and as just made.
        unsafe { std::ptr::copy_nonoverlapping(from, staged.at as *mut u8, bytes as usize) };
        let part = self.find(staged.at, "staged memory")?;
        self.copy(stream, to, part, bytes, Some(staged))
    }

    unsafe fn copy_to_host(&self, stream: StreamHandle, to: *mut u8, from: DevicePtr, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the trait's contract.
        let stream = unsafe { self.stream(stream) };
        let from = self.find(from.0, "the source of a copy")?;
        if let Some(part) = self.pinned.find(to as u64) {
            return self.copy(stream, part, from, bytes, None);
        }
        let staged = self.pinned.lease(bytes)?;
        let part = self.find(staged.at, "staged memory")?;
        let done = self.copy(stream, part, from, bytes, None).and_then(|()| stream.wait(None));
        if done.is_ok() {
            // SAFETY: both have this length, by the trait's contract and as just made.
            unsafe { std::ptr::copy_nonoverlapping(staged.at as *const u8, to, bytes as usize) };
        }
        done.map(|_| ())
    }

    unsafe fn copy_on_device(&self, stream: StreamHandle, to: DevicePtr, from: DevicePtr, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let (to, from) = (self.find(to.0, "the target of a copy")?, self.find(from.0, "the source of a copy")?);
        // SAFETY: the trait's contract.
        self.copy(unsafe { self.stream(stream) }, to, from, bytes, None)
    }

    unsafe fn fill(&self, stream: StreamHandle, at: DevicePtr, pattern: Pattern, bytes: u64) -> Result<bool> {
        let part = self.find(at.0, "the target of a fill")?;
        if !fills_words(&part, bytes) {
            return Ok(false);
        }
        if bytes > 0 {
            // SAFETY: the trait's contract.
            self.fill_words(unsafe { self.stream(stream) }, part, bytes, word_of(pattern))?;
        }
        Ok(true)
    }

    unsafe fn max_resident_threads(&self, task: TaskHandle) -> Option<u64> {
        // SAFETY: the handle is the address of a task of a module that the trait's contract keeps loaded.
        unsafe { (*(task.0 as *const LoadedTask)).max_resident_threads() }
    }

    fn load(&self, artifact: &Artifact) -> Result<(ModuleHandle, Vec<TaskHandle>)> {
        let module = Module::load(&self.gpu, artifact)?;
        let tasks = module.tasks.iter().map(|t| TaskHandle(std::ptr::from_ref(t) as u64)).collect();
        Ok((ModuleHandle(Box::into_raw(Box::new(module)) as u64), tasks))
    }

    unsafe fn unload(&self, module: ModuleHandle) {
        // SAFETY: the handle is `load`'s box, given back once.
        let module = unsafe { *Box::from_raw(module.0 as *mut Module) };
        let modules = {
            let mut retired = self.retired();
            retired.0.push(module);
            if !retired.1 && retired.0.len() < MOST_RETIRED {
                return;
            }
            std::mem::take(&mut retired.0)
        };
        let _ = self.finish();
        drop(modules);
    }

    unsafe fn launch(&self, stream: StreamHandle, task: TaskHandle, launch: &Launch<'_>) -> Result<()> {
        // SAFETY: the handle is the address of a task of a module that the trait's contract keeps loaded.
        let (task, stream) = unsafe { (&*(task.0 as *const LoadedTask), self.stream(stream)) };
        let Some(dispatch) = Dispatch::new(task, launch, (&*self.pinned, &self.arguments))? else { return Ok(()) };
        stream.record(|r| {
            // SAFETY: the pipeline is alive until the module is unloaded, after this work; the batch keeps the memory.
            unsafe { dispatch.record(r.gpu(), r.commands()) };
            r.keep(dispatch.staged);
            Ok(())
        })
    }

    unsafe fn make_graph(&self, parts: &[GraphPart<'_>]) -> Result<Option<GraphHandle>> {
        let memory = (&self.pinned, &self.arguments);
        // SAFETY: the trait's contract.
        let made = unsafe { Graph::new(&self.gpu, memory, parts, &|at, what| self.find(at, what))? };
        Ok(made.map(|graph| GraphHandle(Box::into_raw(Box::new(graph)) as u64)))
    }

    unsafe fn launch_graph<'a>(
        &self,
        stream: StreamHandle,
        graph: GraphHandle,
        changed: &[usize],
        launch_of: &dyn Fn(usize) -> Option<Launch<'a>>,
    ) -> Result<bool> {
        // SAFETY: the trait's contract; the handle is `make_graph`'s.
        let (stream, graph) = unsafe { (self.stream(stream), &*(graph.0 as *const Graph)) };
        // SAFETY: as above.
        let recorded = unsafe { graph.commands(changed, launch_of)? };
        stream.record(|r| {
            r.execute(recorded);
            Ok(())
        })?;
        Ok(true)
    }

    unsafe fn destroy_graph(&self, graph: GraphHandle) {
        // SAFETY: it is `make_graph`'s box, given back once. Batches keep the commands that they execute.
        drop(unsafe { Box::from_raw(graph.0 as *mut Graph) });
    }

    unsafe fn synchronize(&self, stream: StreamHandle) -> Result<()> {
        // SAFETY: the trait's contract.
        unsafe { self.stream(stream) }.wait(None).map(|_| ())
    }

    unsafe fn synchronize_for(&self, stream: StreamHandle, time: Duration) -> Result<bool> {
        // SAFETY: the trait's contract.
        unsafe { self.stream(stream) }.wait(Some(time))
    }

    fn cache_name(&self) -> Option<String> {
        Some(self.gpu.cache_name.clone())
    }

    fn load_cache(&self, contents: &[u8]) {
        self.gpu.load_cache(contents);
    }

    fn cache_contents(&self) -> Option<Vec<u8>> {
        self.gpu.cache_contents()
    }

    fn close(&self) {
        let _ = self.synchronize_device();
        self.queues.follower.end();
        let modules = {
            let mut retired = self.retired();
            retired.1 = true;
            std::mem::take(&mut retired.0)
        };
        drop(modules);
        self.memory.trim();
        self.pinned.trim();
        self.arguments.trim();
    }
}

impl Drop for VulkanDriver {
    fn drop(&mut self) {
        self.close();
    }
}
