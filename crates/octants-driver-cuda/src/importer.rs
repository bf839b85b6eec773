//! [`find_importer`]: the GPU with a given UUID, for importing memory that another interface has allocated on it.
//!
//! Looking for the GPU creates no context; the first import does. It uses the primary context, as torch and CuPy do.

use std::ffi::{c_int, c_uint};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::OnceLock;

use octants_driver_gpu::importer::{ExportedMemory, ImportedMemory, ImportedTimeline, Importer};
use octants_driver_gpu::open::load;
use octants_driver_gpu::symbols::RawStream;
use octants_driver_gpu::{Context, Entered, GpuConfig};
use octants_runtime::{ErrorKind, Result};

use crate::external::{
    BufferRange, CuMemory, CuSemaphore, DEDICATED, External, MEMORY_FILE, MemoryHandle, SemaphoreHandle,
    SemaphoreValue, TIMELINE_FILE,
};
use crate::open::{LIBRARIES, start};
use crate::symbols::code;

/// `CU_STREAM_LEGACY`.
const LEGACY_STREAM: u64 = 1;
/// DLPack's number for CUDA's memory.
const DLPACK_KIND: i32 = 2;

/// A GPU whose memory is allocated elsewhere.
#[derive(Debug)]
struct CudaImporter {
    functions: External,
    ordinal: u32,
    context: OnceLock<std::result::Result<Context, String>>,
}

/// See [`octants_driver_gpu::importer::FindImporter`].
pub fn find_importer(uuid: &[u8; 16]) -> Option<Box<dyn Importer>> {
    let config = GpuConfig::default();
    let (library, _) = start(&config).ok()?;
    let loaded = load(&config, LIBRARIES, "").ok()?;
    // SAFETY: the library is CUDA's by its name, and stays loaded.
    let functions = unsafe { External::find(loaded) }.ok()?;
    let has_uuid = |ordinal: &u32| {
        let mut found = [0; 16];
        // SAFETY: the device is the library's; the pointer is to a variable.
        let c = library.device(*ordinal).map(|device| unsafe { (functions.device_uuid)(&mut found, device) });
        matches!(c, Ok(code::SUCCESS)) && found == *uuid
    };
    let count = library.device_count().unwrap_or(0).max(0) as u32;
    let ordinal = (0..count).find(has_uuid)?;
    Some(Box::new(CudaImporter { functions, ordinal, context: OnceLock::new() }))
}

impl CudaImporter {
    fn context(&self) -> Result<&Context> {
        let made = self.context.get_or_init(|| {
            let (library, _) = start(&GpuConfig::default()).map_err(|e| e.to_string())?;
            Context::new(library, self.ordinal).map_err(|e| e.to_string())
        });
        made.as_ref().map_err(|message| ErrorKind::Misuse { message: message.clone() }.into())
    }

    /// Enters the context for calls that are unrelated to captures.
    fn enter(&self) -> Result<Entered<'_>> {
        self.context()?.enter_aside()
    }

    fn check(&self, entered: &Entered<'_>, call: &'static str, c: c_int, doing: &str) -> Result<()> {
        if c == code::SUCCESS {
            return Ok(());
        }
        let name = entered.library().describe(c);
        Err(ErrorKind::Call { call, code: c.into(), name, doing: doing.into() }.into())
    }
}

/// The stream of a DLPack handle. Zero is not one; it is taken for the default stream.
fn raw(stream: u64) -> RawStream {
    (if stream == 0 { LEGACY_STREAM } else { stream }) as RawStream
}

impl Importer for CudaImporter {
    fn dlpack_device(&self) -> (i32, i32) {
        (DLPACK_KIND, self.ordinal as i32)
    }

    fn unnamed_stream(&self) -> u64 {
        LEGACY_STREAM
    }

    fn import_memory(&self, memory: ExportedMemory) -> Result<ImportedMemory> {
        let entered = self.enter()?;
        let ExportedMemory { file, bytes, dedicated } = memory;
        let flags: c_uint = if dedicated { DEDICATED } else { 0 };
        let (kind, fd) = (MEMORY_FILE, file.as_raw_fd());
        let handle = MemoryHandle { kind, padding: 0, file: fd, rest: [0; 3], bytes, flags, reserved: [0; 16] };
        let range = BufferRange { bytes, ..BufferRange::default() };
        let (mut imported, mut address): (CuMemory, u64) = (null_mut(), 0);
        let doing = "sharing memory with other libraries";
        // SAFETY: the context is entered, the structures are whole, and the pointers are to variables.
        unsafe {
            let c = (self.functions.import_memory)(&mut imported, &handle);
            self.check(&entered, "cuImportExternalMemory", c, doing)?;
            // The library owns it from here on.
            let _ = file.into_raw_fd();
            let c = (self.functions.map_memory)(&mut address, imported, &range);
            if let Err(error) = self.check(&entered, "cuExternalMemoryGetMappedBuffer", c, doing) {
                let _ = (self.functions.destroy_memory)(imported);
                return Err(error);
            }
        }
        Ok(ImportedMemory { handle: imported as u64, address })
    }

    unsafe fn release_memory(&self, memory: ImportedMemory) {
        // At the end of the process, the library may have shut down already.
        let Ok(entered) = self.enter() else { return };
        // SAFETY: the trait's contract. A mapping is freed like an allocation.
        unsafe {
            let _ = entered.free(memory.address);
            let _ = (self.functions.destroy_memory)(memory.handle as CuMemory);
        }
    }

    fn import_timeline(&self, file: OwnedFd) -> Result<ImportedTimeline> {
        let entered = self.enter()?;
        let (kind, fd) = (TIMELINE_FILE, file.as_raw_fd());
        let handle = SemaphoreHandle { kind, padding: 0, file: fd, rest: [0; 3], flags: 0, reserved: [0; 16] };
        let mut imported: CuSemaphore = null_mut();
        // SAFETY: the context is entered, the structure is whole, and the pointer is to a variable.
        let c = unsafe { (self.functions.import_semaphore)(&mut imported, &handle) };
        self.check(&entered, "cuImportExternalSemaphore", c, "sharing a semaphore with other libraries")?;
        // The library owns it from here on.
        let _ = file.into_raw_fd();
        Ok(ImportedTimeline(imported as u64))
    }

    unsafe fn release_timeline(&self, timeline: ImportedTimeline) {
        if self.enter().is_ok() {
            // SAFETY: the trait's contract.
            let _ = unsafe { (self.functions.destroy_semaphore)(timeline.0 as CuSemaphore) };
        }
    }

    unsafe fn signal(&self, stream: u64, timeline: ImportedTimeline, value: u64) -> Result<()> {
        let entered = self.enter()?;
        let (semaphore, value) = (timeline.0 as CuSemaphore, SemaphoreValue::of(value));
        if raw(stream) as u64 != LEGACY_STREAM {
            // Values must be reached in order, so all are signaled on one stream.
            // SAFETY: the trait's contract; queued work keeps the event.
            unsafe {
                let event = entered.create_event(false)?;
                let ordered = entered
                    .record_event(event, raw(stream))
                    .and_then(|()| entered.wait_event(raw(LEGACY_STREAM), event));
                let _ = entered.destroy_event(event);
                ordered?;
            }
        }
        // SAFETY: the trait's contract; the library copies the parameters.
        let c = unsafe { (self.functions.signal)(&semaphore, &value, 1, raw(LEGACY_STREAM)) };
        self.check(&entered, "cuSignalExternalSemaphoresAsync", c, "ordering work of other libraries")
    }

    unsafe fn wait(&self, stream: u64, timeline: ImportedTimeline, value: u64) -> Result<()> {
        let entered = self.enter()?;
        let (semaphore, value) = (timeline.0 as CuSemaphore, SemaphoreValue::of(value));
        // SAFETY: as above.
        let c = unsafe { (self.functions.wait)(&semaphore, &value, 1, raw(stream)) };
        self.check(&entered, "cuWaitExternalSemaphoresAsync", c, "ordering work of other libraries")
    }

    unsafe fn synchronize_stream(&self, stream: u64) -> Result<()> {
        // SAFETY: the trait's contract.
        unsafe { self.enter()?.synchronize_stream(raw(stream)) }
    }

    fn synchronize(&self) -> Result<()> {
        // SAFETY: the context is entered.
        unsafe { self.enter()?.synchronize_all() }
    }
}
