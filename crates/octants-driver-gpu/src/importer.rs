//! [`Importer`]: a vendor's interface to a device that another driver uses through another interface, for sharing that
//! driver's memory with libraries that use the vendor's.

use std::fmt;
use std::os::fd::OwnedFd;

use octants_runtime::Result;

/// Imported memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportedMemory {
    /// The vendor's handle.
    pub handle: u64,
    /// The vendor's address of its first byte.
    pub address: u64,
}

/// An imported timeline semaphore, as the vendor's handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportedTimeline(pub u64);

/// Exported memory.
#[derive(Debug)]
pub struct ExportedMemory {
    /// Refers to it. The import takes it over.
    pub file: OwnedFd,
    /// Size of the allocation.
    pub bytes: u64,
    /// The allocation is for one buffer only.
    pub dedicated: bool,
}

/// A device as a vendor's interface knows it. Streams are handles as in DLPack.
#[allow(clippy::missing_safety_doc)] // Handles are alive, and are this importer's.
pub trait Importer: fmt::Debug + Send + Sync {
    /// The device in DLPack's terms: its kind and its number.
    fn dlpack_device(&self) -> (i32, i32);

    /// The DLPack handle of the default stream.
    fn unnamed_stream(&self) -> u64;

    /// Imports memory and maps all of it.
    fn import_memory(&self, memory: ExportedMemory) -> Result<ImportedMemory>;

    /// Ends an import. The work that uses it is done.
    unsafe fn release_memory(&self, memory: ImportedMemory);

    /// Imports a timeline semaphore.
    fn import_timeline(&self, file: OwnedFd) -> Result<ImportedTimeline>;

    /// Ends an import. The work that uses it is done.
    unsafe fn release_timeline(&self, timeline: ImportedTimeline);

    /// Sets a semaphore to a value after the work that is queued on a stream. Work that is queued on the default stream
    /// later runs after it.
    unsafe fn signal(&self, stream: u64, timeline: ImportedTimeline, value: u64) -> Result<()>;

    /// Makes later work of a stream wait until a semaphore has reached a value.
    unsafe fn wait(&self, stream: u64, timeline: ImportedTimeline, value: u64) -> Result<()>;

    /// Blocks this thread until a stream's work is done.
    unsafe fn synchronize_stream(&self, stream: u64) -> Result<()>;

    /// Blocks this thread until all work of the device is done, of all libraries that use the interface.
    fn synchronize(&self) -> Result<()>;
}

/// Finds the importer of the device with this UUID. `None` if the vendor's library is missing or has no such device.
pub type FindImporter = fn(&[u8; 16]) -> Option<Box<dyn Importer>>;
