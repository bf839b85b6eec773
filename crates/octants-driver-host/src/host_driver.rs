//! [`HostDriver`]: the CPU behind the runtime's `Driver` trait.

use std::sync::OnceLock;

use octants_artifact::{Artifact, HostCount, HostTask};
use octants_runtime::{
    DeviceError, DevicePtr, Driver, ErrorKind, Launch, ModuleHandle, Result, StreamHandle, TaskHandle,
};

use crate::linker::{Linked, Linker};
use crate::memory;
use crate::pool::Pool;
use crate::run_task::{Count, LoadedTask};

/// Settings of the CPU as a device.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostConfig {
    /// Most threads that run tasks, the caller among them; `None` for as many as the process may use.
    pub max_threads: Option<u32>,
}

/// The CPU.
pub struct HostDriver {
    pool: Pool,
    memory_bytes: OnceLock<Option<u64>>,
    /// Started by the first load.
    linker: OnceLock<std::result::Result<Linker, String>>,
}

/// Blocks from this size on are checked against the machine's memory.
const LARGE: u64 = 64 << 20;

/// Linked code and its tasks, which launches name by address.
struct Module {
    tasks: Box<[LoadedTask]>,
    linked: Linked,
}

impl HostDriver {
    /// The CPU with the given settings. Neither threads nor the linker are started yet.
    pub fn new(config: HostConfig) -> HostDriver {
        let usable = std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX));
        HostDriver {
            pool: Pool::new(config.max_threads.unwrap_or(usable)),
            memory_bytes: OnceLock::new(),
            linker: OnceLock::new(),
        }
    }

    /// Most threads that run tasks.
    pub fn threads(&self) -> u32 {
        self.pool.threads()
    }

    /// Starts what the first load would start, so that it can happen beside the first compilation.
    pub fn prepare(&self) {
        self.linker.get_or_init(Linker::new);
    }

    fn linker(&self) -> std::result::Result<&Linker, &String> {
        self.linker.get_or_init(Linker::new).as_ref()
    }

    fn link(&self, artifact: &Artifact) -> std::result::Result<Module, String> {
        let linker = self.linker().map_err(String::clone)?;
        let mut symbols = Vec::new();
        for task in &artifact.tasks {
            symbols.push(task.symbol.as_str());
            symbols.push(task.single_thread_symbol.as_deref().unwrap_or(&task.symbol));
            // A count that is known need not be computed.
            let count = task.parallel.as_ref().filter(|p| p.count.is_none());
            symbols.push(count.map_or(task.symbol.as_str(), |p| p.count_symbol.as_str()));
        }
        let linked = linker.link(&artifact.code, &symbols)?;
        if linked.addresses.contains(&0) {
            linker.unload(linked);
            return Err("a task's symbol has no address".into());
        }
        let threads = self.pool.threads();
        let load = |(task, at): (&octants_artifact::TaskMeta, &[u64])| {
            // SAFETY: the artifact's symbols are functions of these types; the addresses are not zero.
            let (shared, alone, count) = unsafe {
                (
                    std::mem::transmute::<usize, HostTask>(at[0] as usize),
                    std::mem::transmute::<usize, HostTask>(at[1] as usize),
                    std::mem::transmute::<usize, HostCount>(at[2] as usize),
                )
            };
            match &task.parallel {
                None => LoadedTask::serial(alone),
                Some(meta) => {
                    let count = meta.count.map_or(Count::Computed(count), Count::Known);
                    LoadedTask::parallel(shared, alone, count, meta, threads)
                }
            }
        };
        let tasks = artifact.tasks.iter().zip(linked.addresses.chunks_exact(3)).map(load).collect();
        Ok(Module { tasks, linked })
    }

    fn out_of_memory(&self, requested: u64) -> DeviceError {
        let device = self.name().to_string();
        ErrorKind::OutOfMemory { device, requested, in_use: 0, capacity: self.memory_bytes() }.into()
    }
}

impl Driver for HostDriver {
    fn name(&self) -> &str {
        "the CPU"
    }

    fn is_immediate(&self) -> bool {
        true
    }

    fn memory_bytes(&self) -> Option<u64> {
        *self.memory_bytes.get_or_init(memory::usable_bytes)
    }

    unsafe fn allocate(&self, _stream: StreamHandle, bytes: u64) -> Result<DevicePtr> {
        // The system would hand out more than there is, and end the process when it is used.
        let fits = bytes < LARGE || self.memory_bytes().is_none_or(|most| bytes <= most);
        fits.then(|| memory::allocate(bytes.max(1))).flatten().map(DevicePtr).ok_or_else(|| self.out_of_memory(bytes))
    }

    unsafe fn free(&self, _stream: StreamHandle, memory: DevicePtr, bytes: u64) {
        // SAFETY: the trait's contract.
        unsafe { memory::free(memory.0, bytes.max(1)) }
    }

    unsafe fn allocate_pinned(&self, bytes: u64) -> Result<DevicePtr> {
        // SAFETY: the default stream always exists.
        unsafe { self.allocate(StreamHandle(0), bytes) }
    }

    unsafe fn free_pinned(&self, memory: DevicePtr, bytes: u64) {
        // SAFETY: the trait's contract.
        unsafe { self.free(StreamHandle(0), memory, bytes) }
    }

    unsafe fn copy_to_device(&self, _stream: StreamHandle, to: DevicePtr, from: *const u8, bytes: u64) -> Result<()> {
        // SAFETY: the trait's contract; `copy` also takes host memory that overlaps ours.
        unsafe { std::ptr::copy(from, to.0 as *mut u8, bytes as usize) }
        Ok(())
    }

    unsafe fn copy_to_host(&self, _stream: StreamHandle, to: *mut u8, from: DevicePtr, bytes: u64) -> Result<()> {
        // SAFETY: as above.
        unsafe { std::ptr::copy(from.0 as *const u8, to, bytes as usize) }
        Ok(())
    }

    unsafe fn copy_on_device(&self, _stream: StreamHandle, to: DevicePtr, from: DevicePtr, bytes: u64) -> Result<()> {
        // SAFETY: as above.
        unsafe { std::ptr::copy(from.0 as *const u8, to.0 as *mut u8, bytes as usize) }
        Ok(())
    }

    fn load(&self, artifact: &Artifact) -> Result<(ModuleHandle, Vec<TaskHandle>)> {
        let module =
            self.link(artifact).map_err(|message| ErrorKind::Load { kernel: artifact.kernel.clone(), message })?;
        let tasks = module.tasks.iter().map(|t| TaskHandle(std::ptr::from_ref(t) as u64)).collect();
        Ok((ModuleHandle(Box::into_raw(Box::new(module)) as u64), tasks))
    }

    unsafe fn unload(&self, module: ModuleHandle) {
        // SAFETY: the handle is `load`'s box, given back once.
        let module = unsafe { Box::from_raw(module.0 as *mut Module) };
        if let Ok(linker) = self.linker() {
            linker.unload(module.linked);
        }
    }

    #[inline]
    unsafe fn launch(&self, _stream: StreamHandle, task: TaskHandle, launch: &Launch<'_>) -> Result<()> {
        // SAFETY: the handle is the address of a task of a module that the trait's contract keeps loaded.
        unsafe { (*(task.0 as *const LoadedTask)).run(&self.pool, launch) }
    }

    unsafe fn synchronize(&self, _stream: StreamHandle) -> Result<()> {
        Ok(())
    }

    fn close(&self) {
        self.pool.end();
    }
}
