//! [`Calls`]: the library's functions, each checked. An error says which call failed, with what code, and what was being done.
//!
//! Functions take handles as they are: who calls sees to it that they are alive and that the context they belong to is the thread's
//! current one, but where it says otherwise.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

use octants_runtime::{DeviceError, ErrorKind, Result};

use crate::last_launches::LastLaunches;
use crate::symbols::{
    CuContext, CuDevice, CuEvent, CuFunction, CuModule, CuPool, CuStream, PoolProperties, Symbols, code, names, number,
};

/// The checked functions of one device.
#[derive(Debug)]
pub struct Calls {
    symbols: Symbols,
    /// What happened when the device was lost.
    lost: OnceLock<String>,
    /// Which kernels to name when it is.
    pub last: LastLaunches,
}

/// Calls `$self.symbols.$name` and checks the result.
macro_rules! call {
    ($self:ident.$name:ident($($arg:expr),*), $doing:expr) => {
        // SAFETY: the contract of the function around this.
        $self.check(names::$name, unsafe { ($self.symbols.$name)($($arg),*) }, None, || $doing.into())
    };
    ($self:ident.$name:ident($($arg:expr),*), on $stream:expr, $doing:expr) => {
        // SAFETY: as above.
        $self.check(names::$name, unsafe { ($self.symbols.$name)($($arg),*) }, $stream, || $doing.into())
    };
    ($self:ident.$name:ident?($($arg:expr),*), $doing:expr) => {
        match $self.symbols.$name {
            // SAFETY: as above.
            Some(f) => $self.check(names::$name, unsafe { f($($arg),*) }, None, || $doing.into()),
            None => Err(missing(names::$name)),
        }
    };
}

fn missing(name: &str) -> DeviceError {
    let message = format!("the NVIDIA driver has no {name}: a driver for CUDA 11.2 or newer is needed");
    ErrorKind::Misuse { message }.into()
}

/// Codes after which the context works no more.
pub fn is_final(c: i32) -> bool {
    matches!(
        c,
        code::ECC_UNCORRECTABLE
            | code::NVLINK_UNCORRECTABLE
            | code::ILLEGAL_ADDRESS
            | code::LAUNCH_TIMEOUT
            | code::CONTEXT_IS_DESTROYED
            | code::ASSERT
            | code::HARDWARE_STACK_ERROR
            | code::ILLEGAL_INSTRUCTION
            | code::MISALIGNED_ADDRESS
            | code::INVALID_ADDRESS_SPACE
            | code::INVALID_PC
            | code::LAUNCH_FAILED
    )
}

/// Room for what the compiler of the driver says.
const LOG_BYTES: usize = 16 << 10;

/// Room for what it says, errors and notes.
struct Logs([Vec<u8>; 2]);

impl Logs {
    fn new() -> Logs {
        Logs([vec![0; LOG_BYTES], vec![0; LOG_BYTES]])
    }

    /// Options that have it written here, and their values.
    fn options(&mut self) -> ([i32; 4], [*mut c_void; 4]) {
        let options = [
            number::JIT_ERROR_LOG_BUFFER,
            number::JIT_ERROR_LOG_BUFFER_SIZE,
            number::JIT_INFO_LOG_BUFFER,
            number::JIT_INFO_LOG_BUFFER_SIZE,
        ];
        // Sizes are passed in the place of a pointer.
        let size = (LOG_BYTES - 1) as *mut c_void;
        let [errors, notes] = &mut self.0;
        (options, [errors.as_mut_ptr().cast(), size, notes.as_mut_ptr().cast(), size])
    }

    /// An error with what was said about it.
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
impl Calls {
    /// Takes the functions over.
    pub fn new(symbols: Symbols) -> Calls {
        Calls { symbols, lost: OnceLock::new(), last: LastLaunches::default() }
    }

    /// True after an error from which the context does not recover.
    pub fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// A code as CUDA calls it, and its sentence.
    pub fn describe(&self, c: i32) -> String {
        let text = |f: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int| {
            let mut at: *const c_char = null_mut();
            // SAFETY: the function sets the pointer to a text that lives as long as the library, or leaves it.
            unsafe {
                let _ = f(c, &mut at);
                (!at.is_null()).then(|| CStr::from_ptr(at).to_string_lossy().into_owned())
            }
        };
        match (text(self.symbols.error_name), text(self.symbols.error_string)) {
            (Some(name), Some(sentence)) => format!("{name}: {sentence}"),
            (Some(name), None) => name,
            _ => "an error that this driver does not name".into(),
        }
    }

    #[inline]
    fn check(
        &self,
        call: &'static str,
        c: c_int,
        stream: Option<CuStream>,
        doing: impl FnOnce() -> String,
    ) -> Result<()> {
        if c == code::SUCCESS { Ok(()) } else { Err(self.error(call, c, stream, doing())) }
    }

    #[cold]
    fn error(&self, call: &'static str, c: c_int, stream: Option<CuStream>, doing: String) -> DeviceError {
        let name = self.describe(c);
        if !is_final(c) {
            return ErrorKind::Call { call, code: c.into(), name, doing }.into();
        }
        if let Some(cause) = self.lost.get() {
            return ErrorKind::Lost { cause: cause.clone() }.into();
        }
        let suspects = self.last.suspects(stream).iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ");
        let suspects = if suspects.is_empty() { String::new() } else { format!("; launched last: {suspects}") };
        let cause = format!("{call} failed with code {c} ({name}) while {doing}{suspects}");
        let _ = self.lost.set(cause);
        let doing = format!("{doing}{suspects}. The GPU is lost to this process: restart it to use the GPU again");
        ErrorKind::Call { call, code: c.into(), name, doing }.into()
    }

    /// Starts the library. Needs no context; the code alone, since the reason is put into other words.
    pub fn init(&self) -> i32 {
        // SAFETY: the flags must be zero.
        unsafe { (self.symbols.init)(0) }
    }

    /// The CUDA version the driver supports, 1000 times the major one plus 10 times the minor. Needs no context.
    pub fn driver_version(&self) -> Result<i32> {
        let mut version = 0;
        call!(self.driver_version(&mut version), "asking for the driver's version").map(|()| version)
    }

    /// How many devices there are, or the code. Needs no context.
    pub fn device_count(&self) -> std::result::Result<i32, i32> {
        let mut count = 0;
        // SAFETY: the pointer is to a variable.
        match unsafe { (self.symbols.device_count)(&mut count) } {
            code::SUCCESS => Ok(count),
            c => Err(c),
        }
    }

    /// A device. Needs no context.
    pub fn device(&self, ordinal: u32) -> Result<CuDevice> {
        let mut device = 0;
        let doing = || format!("looking for GPU {ordinal}");
        call!(self.device_get(&mut device, ordinal as c_int), doing()).map(|()| device)
    }

    /// Its name. Needs no context.
    pub fn device_name(&self, device: CuDevice) -> Result<String> {
        let mut name = [0u8; 128];
        call!(self.device_name(name.as_mut_ptr().cast(), 127, device), "asking for the GPU's name")?;
        let text = CStr::from_bytes_until_nul(&name).map(|t| t.to_string_lossy().into_owned());
        Ok(text.unwrap_or_default())
    }

    /// What it is able to do. Needs no context.
    pub fn device_attribute(&self, device: CuDevice, attribute: i32) -> Result<i32> {
        let mut value = 0;
        call!(self.device_attribute(&mut value, attribute, device), "asking what the GPU can do").map(|()| value)
    }

    /// Its memory. Needs no context.
    pub fn device_memory(&self, device: CuDevice) -> Result<u64> {
        let mut bytes = 0;
        call!(self.device_memory(&mut bytes, device), "asking for the GPU's memory").map(|()| bytes as u64)
    }

    /// Its primary context, made if no one has. Needs no context.
    pub fn retain_primary(&self, device: CuDevice) -> Result<CuContext> {
        let mut context = null_mut();
        call!(self.primary_retain(&mut context, device), "making the GPU's context").map(|()| context)
    }

    /// The thread's context; null for none.
    #[inline]
    pub fn current(&self) -> Result<CuContext> {
        let mut context = null_mut();
        call!(self.context_get(&mut context), "asking for the thread's context").map(|()| context)
    }

    /// Gives the thread a context.
    pub unsafe fn set_current(&self, context: CuContext) -> Result<()> {
        call!(self.context_set(context), "giving the thread its context")
    }

    /// Puts a context over the thread's.
    pub unsafe fn push_current(&self, context: CuContext) -> Result<()> {
        call!(self.context_push(context), "putting another context in the thread's place")
    }

    /// Takes it off.
    pub unsafe fn pop_current(&self) -> Result<()> {
        let mut context = null_mut();
        call!(self.context_pop(&mut context), "putting the thread's context back")
    }

    /// Waits for all work of the context, that of other libraries included.
    pub unsafe fn synchronize_all(&self) -> Result<()> {
        call!(self.context_synchronize(), "waiting for all work")
    }

    /// The lowest and the highest priority; higher ones are smaller numbers.
    pub unsafe fn priorities(&self) -> Result<(i32, i32)> {
        let (mut least, mut greatest) = (0, 0);
        let doing = "asking for the range of priorities";
        call!(self.priority_range(&mut least, &mut greatest), doing).map(|()| (least, greatest))
    }

    /// Free and total bytes.
    pub unsafe fn memory_info(&self) -> Result<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        let doing = "asking how much memory is free";
        call!(self.memory_info(&mut free, &mut total), doing).map(|()| (free as u64, total as u64))
    }

    /// Memory at once.
    pub unsafe fn allocate(&self, bytes: u64) -> Result<u64> {
        let mut at = 0;
        call!(self.allocate(&mut at, bytes as usize), format!("allocating {bytes} bytes")).map(|()| at)
    }

    /// Gives it back.
    pub unsafe fn free(&self, at: u64) -> Result<()> {
        call!(self.free(at), "giving memory back")
    }

    /// Pinned memory, at the same address for host and devices.
    pub unsafe fn allocate_pinned(&self, bytes: u64) -> Result<*mut c_void> {
        let mut at = null_mut();
        let flags = number::HOST_PORTABLE | number::HOST_DEVICE_MAPPED;
        let doing = || format!("allocating {bytes} bytes of pinned memory");
        call!(self.host_allocate(&mut at, bytes as usize, flags), doing()).map(|()| at)
    }

    /// Gives it back.
    pub unsafe fn free_pinned(&self, at: *mut c_void) -> Result<()> {
        call!(self.host_free(at), "giving pinned memory back")
    }

    /// True when the driver has memory in the order of streams.
    pub fn has_pools(&self) -> bool {
        let s = &self.symbols;
        s.pool_create.is_some() && s.pool_allocate.is_some() && s.pool_free.is_some() && s.pool_set.is_some()
    }

    /// A new pool of a device's memory. It keeps up to `keep` bytes for later.
    pub unsafe fn create_pool(&self, device: CuDevice, keep: u64) -> Result<CuPool> {
        let properties =
            PoolProperties { allocation: 1, handles: 0, location: 1, device, security: null_mut(), rest: [0; 8] };
        let mut pool = null_mut();
        call!(self.pool_create?(&mut pool, &properties), "making a pool of memory")?;
        let mut keep = keep;
        let at = (&raw mut keep).cast();
        call!(self.pool_set?(pool, number::POOL_RELEASE_THRESHOLD, at), "setting what a pool keeps")?;
        let mut no: c_int = 0;
        let at = (&raw mut no).cast();
        let doing = "setting what a pool may reuse";
        call!(self.pool_set?(pool, number::POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES, at), doing)?;
        Ok(pool)
    }

    /// Gives a pool back, with its memory when that is.
    pub unsafe fn destroy_pool(&self, pool: CuPool) -> Result<()> {
        call!(self.pool_destroy?(pool), "giving a pool of memory back")
    }

    /// Gives back what a pool keeps for later.
    pub unsafe fn trim_pool(&self, pool: CuPool) -> Result<()> {
        call!(self.pool_trim?(pool, 0), "giving back what a pool keeps")
    }

    /// Memory for work behind this on the stream.
    pub unsafe fn allocate_on(&self, pool: CuPool, bytes: u64, stream: CuStream) -> Result<u64> {
        let mut at = 0;
        let doing = || format!("allocating {bytes} bytes");
        call!(self.pool_allocate?(&mut at, bytes as usize, pool, stream), doing()).map(|()| at)
    }

    /// Gives it back behind the stream's work.
    pub unsafe fn free_on(&self, at: u64, stream: CuStream) -> Result<()> {
        call!(self.pool_free?(at, stream), "giving memory back")
    }

    /// Zeroes memory.
    pub unsafe fn zero(&self, at: u64, bytes: u64, stream: CuStream) -> Result<()> {
        let doing = || format!("zeroing {bytes} bytes");
        call!(self.memset(at, 0, bytes as usize, stream), on Some(stream), doing())
    }

    /// Copies.
    pub unsafe fn copy_to_device(&self, to: u64, from: *const u8, bytes: u64, stream: CuStream) -> Result<()> {
        let doing = || format!("copying {bytes} bytes to the GPU");
        call!(self.copy_to_device(to, from.cast(), bytes as usize, stream), on Some(stream), doing())
    }

    /// Copies.
    pub unsafe fn copy_to_host(&self, to: *mut u8, from: u64, bytes: u64, stream: CuStream) -> Result<()> {
        let doing = || format!("copying {bytes} bytes from the GPU");
        call!(self.copy_to_host(to.cast(), from, bytes as usize, stream), on Some(stream), doing())
    }

    /// Copies.
    pub unsafe fn copy_on_device(&self, to: u64, from: u64, bytes: u64, stream: CuStream) -> Result<()> {
        let doing = || format!("copying {bytes} bytes on the GPU");
        call!(self.copy_on_device(to, from, bytes as usize, stream), on Some(stream), doing())
    }

    /// A new stream.
    pub unsafe fn create_stream(&self, flags: u32, priority: i32) -> Result<CuStream> {
        let mut stream = null_mut();
        call!(self.stream_create(&mut stream, flags, priority), "making a stream").map(|()| stream)
    }

    /// Gives it back once its work is done.
    pub unsafe fn destroy_stream(&self, stream: CuStream) -> Result<()> {
        call!(self.stream_destroy(stream), "giving a stream back")
    }

    /// Waits for a stream.
    pub unsafe fn synchronize_stream(&self, stream: CuStream) -> Result<()> {
        call!(self.stream_synchronize(stream), on Some(stream), "waiting for a stream")
    }

    /// Whether its work is done.
    pub unsafe fn query_stream(&self, stream: CuStream) -> Result<bool> {
        // SAFETY: the contract at the top.
        match unsafe { (self.symbols.stream_query)(stream) } {
            code::NOT_READY => Ok(false),
            c => {
                self.check(names::stream_query, c, Some(stream), || "asking whether a stream is done".into())?;
                Ok(true)
            }
        }
    }

    /// Makes a stream wait for an event.
    pub unsafe fn wait_event(&self, stream: CuStream, event: CuEvent) -> Result<()> {
        call!(self.stream_wait(stream, event, 0), on Some(stream), "making a stream wait for an event")
    }

    /// Whether a stream is captured into a graph.
    pub unsafe fn is_capturing(&self, stream: CuStream) -> Result<bool> {
        let mut status = 0;
        call!(self.stream_capturing(stream, &mut status), "asking whether a stream is captured").map(|()| status != 0)
    }

    /// Sets what captures of other threads keep this thread from, and returns what it was. Needs no context.
    #[inline]
    pub fn exchange_capture_mode(&self, mode: i32) -> Result<i32> {
        let mut mode = mode;
        call!(self.capture_mode(&mut mode), "setting what captures forbid").map(|()| mode)
    }

    /// A new event.
    pub unsafe fn create_event(&self, timing: bool) -> Result<CuEvent> {
        let flags = if timing { number::EVENT_DEFAULT } else { number::EVENT_DISABLE_TIMING };
        let mut event = null_mut();
        call!(self.event_create(&mut event, flags), "making an event").map(|()| event)
    }

    /// Gives it back.
    pub unsafe fn destroy_event(&self, event: CuEvent) -> Result<()> {
        call!(self.event_destroy(event), "giving an event back")
    }

    /// Lets it stand for a stream's work.
    pub unsafe fn record_event(&self, event: CuEvent, stream: CuStream) -> Result<()> {
        call!(self.event_record(event, stream), on Some(stream), "recording an event")
    }

    /// Waits for it.
    pub unsafe fn synchronize_event(&self, event: CuEvent) -> Result<()> {
        call!(self.event_synchronize(event), "waiting for an event")
    }

    /// Whether it is done.
    pub unsafe fn query_event(&self, event: CuEvent) -> Result<bool> {
        // SAFETY: the contract at the top.
        match unsafe { (self.symbols.event_query)(event) } {
            code::NOT_READY => Ok(false),
            c => {
                self.check(names::event_query, c, None, || "asking whether an event is done".into())?;
                Ok(true)
            }
        }
    }

    /// Milliseconds between two.
    pub unsafe fn elapsed(&self, from: CuEvent, to: CuEvent) -> Result<f32> {
        let mut ms = 0.0;
        call!(self.event_elapsed(&mut ms, from, to), "asking for the time between two events").map(|()| ms)
    }

    /// Loads text, which ends with a zero, or a binary. The error has what the driver's compiler said.
    pub unsafe fn load_module(&self, image: &[u8]) -> std::result::Result<CuModule, String> {
        let mut logs = Logs::new();
        let (mut options, mut values) = logs.options();
        let mut module = null_mut();
        let (n, o, v) = (options.len() as c_uint, options.as_mut_ptr(), values.as_mut_ptr());
        let loaded = call!(self.module_load(&mut module, image.as_ptr().cast(), n, o, v), "loading code");
        loaded.map(|()| module).map_err(|e| logs.explain(&e))
    }

    /// Unloads it.
    pub unsafe fn unload_module(&self, module: CuModule) -> Result<()> {
        call!(self.module_unload(module), "unloading code")
    }

    /// A function of a module.
    pub unsafe fn function(&self, module: CuModule, name: &str) -> Result<CuFunction> {
        let mut function = null_mut();
        let text = CString::new(name).unwrap_or_default();
        let doing = || format!("looking for `{name}` in loaded code");
        call!(self.module_function(&mut function, module, text.as_ptr()), doing()).map(|()| function)
    }

    /// A property of a function.
    pub unsafe fn function_attribute(&self, function: CuFunction, attribute: i32) -> Result<i32> {
        let mut value = 0;
        call!(self.function_attribute(&mut value, attribute, function), "asking what a function needs").map(|()| value)
    }

    /// Blocks of this many threads that one multiprocessor holds at once.
    pub unsafe fn blocks_per_multiprocessor(&self, function: CuFunction, threads: u32) -> Result<u32> {
        let mut blocks = 0;
        let doing = "asking how many blocks fit the GPU";
        call!(self.occupancy(&mut blocks, function, threads as c_int, 0), doing)?;
        Ok(blocks.max(1) as u32)
    }

    /// Threads of a block that fill the GPU best, at most `most`.
    pub unsafe fn best_block(&self, function: CuFunction, most: u32) -> Result<u32> {
        let (mut grid, mut block) = (0, 0);
        let doing = "asking for the best size of a block";
        call!(self.best_block(&mut grid, &mut block, function, None, 0, most as c_int), doing)?;
        Ok(block.max(1) as u32)
    }

    /// Launches a grid of blocks in one dimension. `parameter` is the function's only one.
    #[inline]
    pub unsafe fn launch(
        &self,
        function: CuFunction,
        (grid, block): (u32, u32),
        stream: CuStream,
        parameter: *mut c_void,
        kernel: u32,
    ) -> Result<()> {
        self.last.note(stream, kernel);
        let mut parameters = [parameter];
        let (at, none) = (parameters.as_mut_ptr(), null_mut());
        call!(
            self.launch(function, grid, 1, 1, block, 1, 1, 0, stream, at, none),
            on Some(stream),
            format!("launching kernel `{}`", self.last.name(kernel))
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s23_what_an_old_driver_lacks_is_named_with_what_has_it() {
        let text = missing(names::pool_allocate).to_string();
        assert_eq!(text, "the NVIDIA driver has no cuMemAllocFromPoolAsync: a driver for CUDA 11.2 or newer is needed");
    }
}
