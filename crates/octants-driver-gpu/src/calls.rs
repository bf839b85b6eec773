//! Checked calls of a driver's library on the thread's current device: methods of [`Entered`], which exists only while
//! the right device is current.
//!
//! Functions do not check handles: the caller ensures that they are alive.
//!
//! ```compile_fail
//! // A call that forgets to make the device the thread's own does not compile.
//! fn forgets(library: &octants_driver_gpu::Library) {
//!     let _ = unsafe { library.allocate(64) };
//! }
//! ```
//!
//! ```
//! fn remembers(context: &octants_driver_gpu::Context) -> octants_runtime::Result<u64> {
//!     unsafe { context.enter()?.allocate(64) }
//! }
//! ```

use std::ffi::{CStr, CString, c_int, c_uint, c_void};
use std::ptr::null_mut;

use octants_runtime::{DeviceError, Pattern, Result};

use crate::context::Entered;
use crate::library::call;
use crate::symbols::{
    Address, PoolAccess, PoolProperties, RawDevice, RawEvent, RawFunction, RawGraphExec, RawGraphHandle, RawModule,
    RawPool, RawStream, code, number,
};
use crate::vendor::{GridShape, Located};

const RECORDING: &str = "recording iterations of a loop";

/// Log buffers of the driver's compiler.
const LOG_BYTES: usize = 16 << 10;

/// The error log and the info log.
struct Logs([Vec<u8>; 2]);

impl Logs {
    fn new() -> Logs {
        Logs([vec![0; LOG_BYTES], vec![0; LOG_BYTES]])
    }

    /// The options that direct the logs here, and their values.
    fn options(&mut self) -> ([i32; 4], [*mut c_void; 4]) {
        let options = [
            number::JIT_ERROR_LOG_BUFFER,
            number::JIT_ERROR_LOG_BUFFER_SIZE,
            number::JIT_INFO_LOG_BUFFER,
            number::JIT_INFO_LOG_BUFFER_SIZE,
        ];
        // Sizes are passed instead of a pointer.
        let size = (LOG_BYTES - 1) as *mut c_void;
        let [errors, notes] = &mut self.0;
        (options, [errors.as_mut_ptr().cast(), size, notes.as_mut_ptr().cast(), size])
    }

    /// Adds the log to an error.
    fn explain(&self, error: &DeviceError) -> String {
        let mut message = error.to_string();
        for log in &self.0 {
            let text = CStr::from_bytes_until_nul(log).map(|t| t.to_string_lossy().trim().to_string());
            if let Some(text) = text.ok().filter(|t| !t.is_empty()) {
                message = format!("{message}\n{text}");
            }
        }
        message
    }
}

#[allow(clippy::missing_safety_doc)] // One contract for all, at the top.
impl Entered<'_> {
    /// Waits for all work of the context, including that of other libraries.
    pub unsafe fn synchronize_all(&self) -> Result<()> {
        call!(self.library(), synchronize_all(), "waiting for all work")
    }

    /// The lowest and the highest priority; higher ones are smaller numbers.
    pub unsafe fn priorities(&self) -> Result<(i32, i32)> {
        let (mut least, mut greatest) = (0, 0);
        let doing = "querying stream priorities";
        call!(self.library(), priority_range(&mut least, &mut greatest), doing).map(|()| (least, greatest))
    }

    /// Free and total bytes.
    pub unsafe fn memory_info(&self) -> Result<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        let doing = "querying free memory";
        call!(self.library(), memory_info(&mut free, &mut total), doing).map(|()| (free as u64, total as u64))
    }

    /// Allocates memory synchronously.
    pub unsafe fn allocate(&self, bytes: u64) -> Result<Address> {
        let mut at = 0;
        call!(self.library(), allocate(&mut at, bytes as usize), format!("allocating {bytes} bytes")).map(|()| at)
    }

    /// Gives it back.
    pub unsafe fn free(&self, at: u64) -> Result<()> {
        call!(self.library(), free(at), "freeing memory")
    }

    /// Allocates pinned memory, at the same address for host and devices.
    pub unsafe fn allocate_pinned(&self, bytes: u64) -> Result<*mut c_void> {
        let mut at = null_mut();
        let flags = self.library().facts().host_flags;
        let doing = || format!("allocating {bytes} bytes of pinned memory");
        call!(self.library(), host_allocate(&mut at, bytes as usize, flags), doing()).map(|()| at)
    }

    /// Gives it back.
    pub unsafe fn free_pinned(&self, at: *mut c_void) -> Result<()> {
        call!(self.library(), host_free(at), "freeing pinned memory")
    }

    /// A new pool of a device's memory. It keeps up to `keep` bytes for later.
    pub unsafe fn create_pool(&self, device: RawDevice, keep: u64) -> Result<RawPool> {
        let properties =
            PoolProperties { allocation: 1, handles: 0, location: 1, device, security: null_mut(), rest: [0; 8] };
        let mut pool = null_mut();
        call!(self.library(), pool_create?(&mut pool, &properties), "creating a memory pool")?;
        let mut keep = keep;
        let at = (&raw mut keep).cast();
        call!(
            self.library(),
            pool_set?(pool, number::POOL_RELEASE_THRESHOLD, at),
            "setting the release threshold of a memory pool"
        )?;
        let mut no: c_int = 0;
        let at = (&raw mut no).cast();
        let doing = "setting the reuse rules of a memory pool";
        call!(self.library(), pool_set?(pool, number::POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES, at), doing)?;
        Ok(pool)
    }

    /// Destroys a pool; its memory goes when it is freed.
    pub unsafe fn destroy_pool(&self, pool: RawPool) -> Result<()> {
        call!(self.library(), pool_destroy?(pool), "destroying a memory pool")
    }

    /// Releases a pool's cached memory.
    pub unsafe fn trim_pool(&self, pool: RawPool) -> Result<()> {
        call!(self.library(), pool_trim?(pool, 0), "trimming a memory pool")
    }

    /// Lets another device access the memory of a pool. An error if the devices cannot reach each other's memory.
    pub unsafe fn share_pool(&self, pool: RawPool, device: RawDevice) -> Result<()> {
        let access = PoolAccess { location: 1, device, flags: 3 };
        call!(self.library(), pool_access?(pool, &access, 1), "sharing a memory pool with another GPU")
    }

    /// Allocates memory in stream order.
    pub unsafe fn allocate_on(&self, pool: RawPool, bytes: u64, stream: RawStream) -> Result<u64> {
        let mut at = 0;
        let doing = || format!("allocating {bytes} bytes");
        call!(self.library(), pool_allocate?(&mut at, bytes as usize, pool, stream), doing()).map(|()| at)
    }

    /// Frees it in stream order.
    pub unsafe fn free_on(&self, at: u64, stream: RawStream) -> Result<()> {
        call!(self.library(), pool_free?(at, stream), "freeing memory")
    }

    /// Fills memory.
    pub unsafe fn fill(&self, at: u64, pattern: Pattern, bytes: u64, stream: RawStream) -> Result<()> {
        let (library, count) = (self.library(), (bytes / pattern.bytes()) as usize);
        let doing = || format!("filling {bytes} bytes");
        match pattern {
            Pattern::Byte(b) => call!(library, memset(at, b, count, stream), on Some(stream), doing()),
            Pattern::Half(h) => call!(library, memset16(at, h, count, stream), on Some(stream), doing()),
            Pattern::Word(w) => call!(library, memset32(at, w as c_int, count, stream), on Some(stream), doing()),
        }
    }

    /// Copies.
    pub unsafe fn copy_to_device(&self, to: u64, from: *const u8, bytes: u64, stream: RawStream) -> Result<()> {
        let doing = || format!("copying {bytes} bytes to the GPU");
        call!(self.library(), copy_to_device(to, from.cast(), bytes as usize, stream), on Some(stream), doing())
    }

    /// Copies.
    pub unsafe fn copy_to_host(&self, to: *mut u8, from: u64, bytes: u64, stream: RawStream) -> Result<()> {
        let doing = || format!("copying {bytes} bytes from the GPU");
        call!(self.library(), copy_to_host(to.cast(), from, bytes as usize, stream), on Some(stream), doing())
    }

    /// Copies.
    pub unsafe fn copy_on_device(&self, to: u64, from: u64, bytes: u64, stream: RawStream) -> Result<()> {
        let doing = || format!("copying {bytes} bytes on the GPU");
        call!(self.library(), copy_on_device(to, from, bytes as usize, stream), on Some(stream), doing())
    }

    /// Copies from another device.
    pub unsafe fn copy_from_peer(
        &self,
        to: u64,
        (peer, from): (Located, u64),
        bytes: u64,
        stream: RawStream,
    ) -> Result<()> {
        let (library, own) = (self.library(), self.context().located());
        // SAFETY: the caller's contract; this device is the thread's own.
        let called = unsafe { library.vendor.copy_between((to, own), (from, peer), bytes as usize, stream) };
        library.check_own(called, &format!("copying {bytes} bytes from another GPU"))
    }

    /// A new stream.
    pub unsafe fn create_stream(&self, flags: u32, priority: i32) -> Result<RawStream> {
        let mut stream = null_mut();
        call!(self.library(), stream_create(&mut stream, flags, priority), "creating a stream").map(|()| stream)
    }

    /// Destroys it once its work is done.
    pub unsafe fn destroy_stream(&self, stream: RawStream) -> Result<()> {
        call!(self.library(), stream_destroy(stream), "destroying a stream")
    }

    /// Waits for a stream.
    pub unsafe fn synchronize_stream(&self, stream: RawStream) -> Result<()> {
        call!(self.library(), stream_synchronize(stream), on Some(stream), "waiting for a stream")
    }

    /// Whether its work is done.
    pub unsafe fn query_stream(&self, stream: RawStream) -> Result<bool> {
        let library = self.library();
        // SAFETY: the contract at the top.
        let c = unsafe { (library.symbols.stream_query)(stream) };
        library.is_done(library.names.stream_query, c, Some(stream), "a stream")
    }

    /// Makes a stream wait for an event.
    pub unsafe fn wait_event(&self, stream: RawStream, event: RawEvent) -> Result<()> {
        call!(self.library(), stream_wait(stream, event, 0), on Some(stream), "making a stream wait for an event")
    }

    /// Whether a stream is captured into a graph.
    pub unsafe fn is_capturing(&self, stream: RawStream) -> Result<bool> {
        let mut status = 0;
        call!(self.library(), stream_capturing(stream, &mut status), "querying the capture status of a stream")
            .map(|()| status != 0)
    }

    /// Instantiates another library's graph.
    pub unsafe fn instantiate_graph(&self, graph: u64) -> Result<RawGraphExec> {
        let (mut ready, graph) = (null_mut(), graph as RawGraphHandle);
        let doing = "instantiating another library's graph";
        call!(self.library(), graph_instantiate?(&mut ready, graph, 0), doing).map(|()| ready)
    }

    /// Launches it.
    pub unsafe fn launch_graph(&self, ready: RawGraphExec, stream: RawStream) -> Result<()> {
        call!(self.library(), graph_launch?(ready, stream), "launching another library's graph")
    }

    /// Gives it back.
    pub unsafe fn destroy_graph(&self, ready: RawGraphExec) -> Result<()> {
        call!(self.library(), graph_exec_destroy?(ready), "destroying another library's graph")
    }

    /// Whether this library can record work of a stream as a graph.
    pub fn can_capture(&self) -> bool {
        let s = &self.library().symbols;
        s.capture_begin.is_some()
            && s.capture_end.is_some()
            && s.graph_destroy.is_some()
            && s.graph_instantiate.is_some()
    }

    /// Records later work of a stream instead of queueing it.
    pub unsafe fn begin_capture(&self, stream: RawStream) -> Result<()> {
        call!(self.library(), capture_begin?(stream, number::CAPTURE_MODE_RELAXED), RECORDING)
    }

    /// Ends that. Returns a graph that can be launched.
    pub unsafe fn end_capture(&self, stream: RawStream) -> Result<RawGraphExec> {
        let mut graph = null_mut();
        call!(self.library(), capture_end?(stream, &mut graph), RECORDING)?;
        // SAFETY: the graph was recorded above, and is not launched.
        let ready = unsafe { self.instantiate_graph(graph as u64) };
        call!(self.library(), graph_destroy?(graph), RECORDING)?;
        ready
    }

    /// A new event.
    pub unsafe fn create_event(&self, timing: bool) -> Result<RawEvent> {
        let flags = if timing { number::EVENT_DEFAULT } else { number::EVENT_DISABLE_TIMING };
        let mut event = null_mut();
        call!(self.library(), event_create(&mut event, flags), "creating an event").map(|()| event)
    }

    /// Gives it back.
    pub unsafe fn destroy_event(&self, event: RawEvent) -> Result<()> {
        call!(self.library(), event_destroy(event), "destroying an event")
    }

    /// Records it on a stream.
    pub unsafe fn record_event(&self, event: RawEvent, stream: RawStream) -> Result<()> {
        call!(self.library(), event_record(event, stream), on Some(stream), "recording an event")
    }

    /// Waits for it.
    pub unsafe fn synchronize_event(&self, event: RawEvent) -> Result<()> {
        call!(self.library(), event_synchronize(event), "waiting for an event")
    }

    /// Whether it is done.
    pub unsafe fn query_event(&self, event: RawEvent) -> Result<bool> {
        let library = self.library();
        // SAFETY: the contract at the top.
        let c = unsafe { (library.symbols.event_query)(event) };
        library.is_done(library.names.event_query, c, None, "an event")
    }

    /// Milliseconds between two.
    pub unsafe fn elapsed(&self, from: RawEvent, to: RawEvent) -> Result<f32> {
        let mut ms = 0.0;
        call!(self.library(), event_elapsed(&mut ms, from, to), "reading the time between two events").map(|()| ms)
    }

    /// Loads zero-terminated text or a binary. The error contains the compiler's log.
    pub unsafe fn load_module(&self, image: &[u8]) -> std::result::Result<RawModule, String> {
        let mut logs = Logs::new();
        let (mut options, mut values) = logs.options();
        let mut module = null_mut();
        let n = if self.library().facts().assembles { options.len() as c_uint } else { 0 };
        let (o, v) = (options.as_mut_ptr(), values.as_mut_ptr());
        let loaded = call!(self.library(), module_load(&mut module, image.as_ptr().cast(), n, o, v), "loading code");
        loaded.map(|()| module).map_err(|e| logs.explain(&e))
    }

    /// Unloads it.
    pub unsafe fn unload_module(&self, module: RawModule) -> Result<()> {
        call!(self.library(), module_unload(module), "unloading code")
    }

    /// A function of a module.
    pub unsafe fn function(&self, module: RawModule, name: &str) -> Result<RawFunction> {
        let mut function = null_mut();
        let text = CString::new(name).unwrap_or_default();
        let doing = || format!("looking for `{name}` in loaded code");
        call!(self.library(), module_function(&mut function, module, text.as_ptr()), doing()).map(|()| function)
    }

    /// A property of a function.
    pub unsafe fn function_attribute(&self, function: RawFunction, attribute: i32) -> Result<i32> {
        let mut value = 0;
        call!(self.library(), function_attribute(&mut value, attribute, function), "querying function attributes")
            .map(|()| value)
    }

    /// Occupancy: the number of blocks of this many threads, with this many bytes of dynamic shared memory, that one
    /// multiprocessor holds at once.
    pub unsafe fn blocks_per_multiprocessor(&self, function: RawFunction, threads: u32, bytes: u32) -> Result<u32> {
        let mut blocks = 0;
        let doing = "querying occupancy";
        call!(self.library(), occupancy(&mut blocks, function, threads as c_int, bytes as usize), doing)?;
        Ok(blocks.max(1) as u32)
    }

    /// Raises the limit of dynamic shared memory per block for launches of a function.
    pub unsafe fn allow_block_memory(&self, function: RawFunction, bytes: u32) -> Result<()> {
        // SAFETY: the contract at the top.
        let allowed = unsafe { self.library().vendor.allow_block_memory(function, bytes) };
        self.library().check_own(allowed, "setting the shared memory of a launch")
    }

    /// As [`Entered::launch`], for a kernel whose blocks are resident all at the same time. Returns false, with nothing
    /// launched, if the device has no room for that.
    pub unsafe fn launch_resident(
        &self,
        function: RawFunction,
        shape: GridShape,
        stream: RawStream,
        parameter: *mut c_void,
        kernel: u32,
    ) -> Result<bool> {
        let library = self.library();
        let Some(launch) = library.symbols.launch_resident else { return Ok(false) };
        let GridShape { blocks, threads, block_bytes } = shape;
        let mut parameters = [parameter];
        // SAFETY: the contract at the top.
        let c = unsafe { launch(function, blocks, 1, 1, threads, 1, 1, block_bytes, stream, parameters.as_mut_ptr()) };
        if c == code::TOO_MANY_RESIDENT_BLOCKS {
            library.vendor.forget_error();
            return Ok(false);
        }
        library.last.note(stream, kernel);
        let doing = || format!("launching kernel {}", library.last.name(kernel));
        library.check(library.names.launch_resident, c, Some(stream), doing).map(|()| true)
    }

    /// As [`Entered::launch`], for a kernel whose code waits for the stream's previous work: it may start earlier.
    pub unsafe fn launch_early(
        &self,
        function: RawFunction,
        shape: GridShape,
        stream: RawStream,
        parameter: *mut c_void,
        kernel: u32,
    ) -> Result<()> {
        let mut parameters = [parameter];
        // SAFETY: the contract at the top.
        match unsafe { self.library().vendor.launch_early(function, shape, stream, parameters.as_mut_ptr()) } {
            // SAFETY: as above.
            None => unsafe { self.launch(function, shape, stream, parameter, kernel) },
            Some(called) => {
                self.library().last.note(stream, kernel);
                self.library().check_own(called, "launching a kernel")
            }
        }
    }

    /// Launches a grid of blocks in one dimension. `parameter` is the function's only one.
    #[inline]
    pub unsafe fn launch(
        &self,
        function: RawFunction,
        shape: GridShape,
        stream: RawStream,
        parameter: *mut c_void,
        kernel: u32,
    ) -> Result<()> {
        self.library().last.note(stream, kernel);
        let GridShape { blocks, threads, block_bytes } = shape;
        let mut parameters = [parameter];
        let (at, none) = (parameters.as_mut_ptr(), null_mut());
        call!(
            self.library(),
            launch(function, blocks, 1, 1, threads, 1, 1, block_bytes, stream, at, none),
            on Some(stream),
            format!("launching kernel {}", self.library().last.name(kernel))
        )
    }
}
