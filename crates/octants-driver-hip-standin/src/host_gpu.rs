//! [`HostGpu`]: runs GPU-style code that is compiled to a shared object for the host's CPU. The code generator's file
//! `host_gpu.rs` describes its format.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};

use crate::fibers::{EntryPoint, TABLE, Table, run_block};
use crate::lock::lock;
use crate::processor::{Code, Crash, Entry, GPU, Grid, LaunchEnvironment, Processor, machine_of};

/// The host's CPU as a GPU.
#[derive(Debug)]
pub struct HostGpu;

impl Processor for HostGpu {
    fn takes(&self, image: &[u8]) -> bool {
        machine_of(image).is_some_and(|machine| machine != GPU)
    }

    fn load(&self, image: &[u8]) -> Result<Box<dyn Code>, String> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // The counter's address distinguishes copies of this library in one process.
        let name = format!("hip-standin-{}-{:p}-{number}.so", std::process::id(), &NUMBER);
        let file: PathBuf = std::env::temp_dir().join(name);
        std::fs::write(&file, image).map_err(|e| e.to_string())?;
        // SAFETY: the code was compiled for this process.
        let library = unsafe {
            // Code uses the process's math functions.
            let _kept = Library::open(Some("libm.so.6"), RTLD_NOW | RTLD_GLOBAL).map(Library::into_raw);
            Library::open(Some(&file), RTLD_NOW | RTLD_LOCAL)
        };
        let _ = std::fs::remove_file(&file);
        let library = library.map_err(|e| format!("{e:?}"))?;
        // SAFETY: the variable has this type. Code without requirements has none.
        unsafe {
            if let Ok(table) = library.get::<*mut *const Table>(c"octants_host_gpu".to_bytes_with_nul()) {
                **table = &TABLE;
            }
        }
        // SAFETY: the symbol is not accessed.
        let has_memory = unsafe { library.get::<*const u8>(c"octants_host_gpu_block".to_bytes_with_nul()).is_ok() };
        Ok(Box::new(SharedObject { library, block: has_memory.then(Mutex::default) }))
    }
}

struct SharedObject {
    library: Library,
    /// Shared memory is a static variable of the shared object. Only one block runs at a time.
    block: Option<Mutex<()>>,
}

impl Code for SharedObject {
    fn entry(&self, name: &str) -> Option<Entry> {
        // SAFETY: the code has symbols of these types.
        unsafe {
            let number =
                |what: &str| self.library.get::<*const u64>(format!("{name}.{what}\0").as_bytes()).ok().map(|at| **at);
            let at = self.library.get::<EntryPoint>(format!("{name}\0").as_bytes()).ok()?;
            Some(Entry {
                at: *at as usize,
                parameter_bytes: number("bytes")? as usize,
                most_threads: number("threads")? as u32,
            })
        }
    }

    fn most_resident(&self) -> u32 {
        if self.block.is_some() { 1 } else { u32::MAX }
    }

    unsafe fn run(&self, entry: Entry, grid: Grid, parameter: &[u64], _: &LaunchEnvironment<'_>) -> Result<(), Crash> {
        // SAFETY: the entry is one of this code.
        let function = unsafe { std::mem::transmute::<usize, EntryPoint>(entry.at) };
        let run = |number| {
            let _alone = self.block.as_ref().map(lock);
            // SAFETY: the contract above.
            unsafe { run_block(function, parameter, number, grid) }
        };
        if !grid.resident {
            return (0..grid.blocks).try_for_each(run);
        }
        std::thread::scope(|scope| {
            let blocks: Vec<_> = (0..grid.blocks).map(|number| scope.spawn(move || run(number))).collect();
            blocks.into_iter().try_for_each(|block| block.join().expect("a block does not panic"))
        })
    }
}
