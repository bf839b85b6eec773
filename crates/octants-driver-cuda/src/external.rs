//! The functions that import memory and semaphores of other interfaces, such as Vulkan's, with their structures.

use std::ffi::{c_int, c_uint, c_void};

use octants_driver_gpu::own_functions;
use octants_driver_gpu::symbols::{Address, RawDevice, RawStream};

/// Imported memory.
pub type CuMemory = *mut c_void;
/// An imported semaphore.
pub type CuSemaphore = *mut c_void;

/// `CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD`.
pub const MEMORY_FILE: c_int = 1;
/// `CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD`.
pub const TIMELINE_FILE: c_int = 9;
/// `CUDA_EXTERNAL_MEMORY_DEDICATED`.
pub const DEDICATED: c_uint = 1;

/// `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`. The handle is a union of a file and two pointers.
#[repr(C)]
#[derive(Debug)]
pub struct MemoryHandle {
    pub(crate) kind: c_int,
    pub(crate) padding: u32,
    pub(crate) file: c_int,
    pub(crate) rest: [u32; 3],
    pub(crate) bytes: u64,
    pub(crate) flags: c_uint,
    pub(crate) reserved: [c_uint; 16],
}

const _: () = assert!(size_of::<MemoryHandle>() == 104 && std::mem::offset_of!(MemoryHandle, bytes) == 24);

/// `CUDA_EXTERNAL_MEMORY_BUFFER_DESC`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct BufferRange {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) flags: c_uint,
    pub(crate) reserved: [c_uint; 16],
}

const _: () = assert!(size_of::<BufferRange>() == 88);

/// `CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC`. The handle is a union as above; eight-byte alignment pads the first member.
#[repr(C, align(8))]
#[derive(Debug)]
pub struct SemaphoreHandle {
    pub(crate) kind: c_int,
    pub(crate) padding: u32,
    pub(crate) file: c_int,
    pub(crate) rest: [u32; 3],
    pub(crate) flags: c_uint,
    pub(crate) reserved: [c_uint; 16],
}

const _: () = assert!(size_of::<SemaphoreHandle>() == 96 && std::mem::offset_of!(SemaphoreHandle, flags) == 24);

/// `CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS` and `CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS`: of a timeline semaphore, only the
/// first member is used.
#[repr(C)]
#[derive(Debug)]
pub struct SemaphoreValue {
    pub(crate) value: u64,
    pub(crate) rest: [u64; 8],
    pub(crate) flags: c_uint,
    pub(crate) reserved: [c_uint; 16],
}

const _: () = assert!(size_of::<SemaphoreValue>() == 144 && std::mem::offset_of!(SemaphoreValue, flags) == 72);

impl SemaphoreValue {
    /// A value of a timeline.
    pub fn of(value: u64) -> SemaphoreValue {
        SemaphoreValue { value, rest: [0; 8], flags: 0, reserved: [0; 16] }
    }
}

own_functions! {
    /// The functions, all in CUDA 11.2. Absent if the driver lacks one.
    External {
        /// The UUID of a GPU.
        device_uuid = "cuDeviceGetUuid"(*mut [u8; 16], RawDevice);
        /// Imports memory. The library takes the file over.
        import_memory = "cuImportExternalMemory"(*mut CuMemory, *const MemoryHandle);
        /// Maps a range of it.
        map_memory = "cuExternalMemoryGetMappedBuffer"(*mut Address, CuMemory, *const BufferRange);
        /// Ends the import.
        destroy_memory = "cuDestroyExternalMemory"(CuMemory);
        /// Imports a semaphore. The library takes the file over.
        import_semaphore = "cuImportExternalSemaphore"(*mut CuSemaphore, *const SemaphoreHandle);
        /// Signals semaphores in stream order.
        signal = "cuSignalExternalSemaphoresAsync"(*const CuSemaphore, *const SemaphoreValue, c_uint, RawStream);
        /// Waits for semaphores in stream order.
        wait = "cuWaitExternalSemaphoresAsync"(*const CuSemaphore, *const SemaphoreValue, c_uint, RawStream);
        /// Ends the import.
        destroy_semaphore = "cuDestroyExternalSemaphore"(CuSemaphore);
    }
}
