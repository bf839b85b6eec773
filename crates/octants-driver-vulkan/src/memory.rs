//! [`Memory`]: device memory in chunks. Each chunk is a buffer, and allocations are parts of chunks.
//!
//! Freed memory is reused once the work before the free is done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ash::vk;
use octants_driver_gpu::importer::{ExportedMemory, ImportedMemory, Importer};
use octants_runtime::{DeviceError, ErrorKind, Result};

use crate::exports::Exports;
use crate::gpu::Gpu;
use crate::timeline::Timeline;

/// Allocations begin at multiples of this.
const ALIGNMENT: u64 = 256;

/// The usage of all buffers.
pub(crate) const BUFFER_USAGE: vk::BufferUsageFlags = vk::BufferUsageFlags::from_raw(
    vk::BufferUsageFlags::STORAGE_BUFFER.as_raw()
        | vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS.as_raw()
        | vk::BufferUsageFlags::TRANSFER_SRC.as_raw()
        | vk::BufferUsageFlags::TRANSFER_DST.as_raw(),
);

/// The purpose of a chunk's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The device's own.
    Device,
    /// Host memory that the device can access.
    Pinned,
    /// The device's own, if the host can write it; otherwise host memory.
    Arguments,
}

impl Kind {
    fn chunk_bytes(self) -> u64 {
        match self {
            Kind::Device => 64 << 20,
            Kind::Pinned => 4 << 20,
            Kind::Arguments => 1 << 20,
        }
    }
}

/// A part of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The chunk's buffer.
    pub buffer: vk::Buffer,
    /// Bytes from its start.
    pub offset: u64,
    /// The device's address.
    pub address: u64,
}

/// An allocation, freed when dropped.
#[derive(Debug)]
pub struct Lease {
    /// Its address.
    pub at: u64,
    memory: Arc<Memory>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.memory.free(self.at);
    }
}

struct Chunk {
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    bytes: u64,
    /// Size of the memory.
    memory_bytes: u64,
    /// The device's address.
    address: u64,
    /// The import by another interface to the device.
    import: Option<Import>,
    /// Free ranges: offset and length.
    free: BTreeMap<u64, u64>,
    /// Allocations: offset and length.
    used: BTreeMap<u64, u64>,
}

/// Memory as another interface to the device has imported it. Released when dropped.
struct Import {
    memory: ImportedMemory,
    importer: Arc<dyn Importer>,
}

impl Drop for Import {
    fn drop(&mut self) {
        // SAFETY: the work of both interfaces is done: memory that was shared is freed after a wait for both.
        unsafe { self.importer.release_memory(self.memory) }
    }
}

/// Deferred frees.
struct Pending {
    timeline: Arc<Timeline>,
    value: u64,
    at: u64,
}

#[derive(Default)]
struct State {
    /// By the address that names allocations: the device's, or the host's for pinned memory.
    chunks: BTreeMap<u64, Chunk>,
    pending: Vec<Pending>,
    in_use: u64,
    /// Allocations that are shared, by address.
    shared: BTreeSet<u64>,
    /// How many the device has.
    shared_count: Arc<AtomicUsize>,
}

/// Memory of one kind.
pub struct Memory {
    gpu: Arc<Gpu>,
    kind: Kind,
    state: Mutex<State>,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memory({:?})", self.kind)
    }
}

impl Memory {
    /// Without chunks.
    pub fn new(gpu: &Arc<Gpu>, kind: Kind) -> Memory {
        let state = State { shared_count: gpu.shared.clone(), ..State::default() };
        Memory { gpu: gpu.clone(), kind, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An allocation's address.
    pub fn allocate(&self, bytes: u64) -> Result<u64> {
        let bytes = bytes.max(1).checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX);
        let mut state = self.state();
        state.reap()?;
        if let Some(at) = state.take(bytes) {
            return Ok(at);
        }
        let grown = bytes.max(self.kind.chunk_bytes());
        let made = self.make_chunk(grown).or_else(|_| self.make_chunk(bytes));
        let (name, chunk) = made.map_err(|_| self.out_of_memory(bytes, state.in_use))?;
        state.chunks.insert(name, chunk);
        state.take(bytes).ok_or_else(|| ErrorKind::CompilerBug("a new chunk has no room".into()).into())
    }

    fn out_of_memory(&self, requested: u64, in_use: u64) -> DeviceError {
        ErrorKind::OutOfMemory {
            device: self.gpu.name.clone(),
            requested,
            in_use,
            free: None,
            capacity: Some(self.gpu.memory_bytes).filter(|b| *b > 0),
        }
        .into()
    }

    /// A chunk and the address that it is named by.
    fn make_chunk(&self, bytes: u64) -> std::result::Result<(u64, Chunk), vk::Result> {
        use vk::MemoryPropertyFlags as Flags;
        let device = &self.gpu.device;
        let exports = self.gpu.exports.as_ref().filter(|_| self.kind == Kind::Device);
        let (mut exported_buffer, mut exported_memory) = (Exports::buffer_info(), Exports::memory_info());
        let mut info = vk::BufferCreateInfo::default().size(bytes).usage(BUFFER_USAGE);
        if exports.is_some() {
            info = info.push_next(&mut exported_buffer);
        }
        let mapped = Flags::HOST_VISIBLE | Flags::HOST_COHERENT;
        let wanted = match self.kind {
            Kind::Device => [Flags::DEVICE_LOCAL, Flags::empty()],
            Kind::Pinned => [mapped | Flags::HOST_CACHED, mapped],
            Kind::Arguments => [mapped | Flags::DEVICE_LOCAL, mapped],
        };
        // SAFETY: the structures are whole; created objects are destroyed if a later step fails.
        unsafe {
            let buffer = device.create_buffer(&info, None)?;
            let needs = device.get_buffer_memory_requirements(buffer);
            let of_type = wanted.into_iter().find_map(|w| self.gpu.memory_type(needs.memory_type_bits, w));
            let mut flags = vk::MemoryAllocateFlagsInfo::default().flags(vk::MemoryAllocateFlags::DEVICE_ADDRESS);
            let mut info = vk::MemoryAllocateInfo::default()
                .allocation_size(needs.size)
                .memory_type_index(of_type.unwrap_or(0))
                .push_next(&mut flags);
            let mut dedicated = vk::MemoryDedicatedAllocateInfo::default().buffer(buffer);
            if let Some(exports) = exports {
                info = info.push_next(&mut exported_memory);
                if exports.dedicated {
                    info = info.push_next(&mut dedicated);
                }
            }
            let memory = match device.allocate_memory(&info, None) {
                Ok(memory) => memory,
                Err(code) => {
                    device.destroy_buffer(buffer, None);
                    return Err(code);
                }
            };
            let chunk = |address| Chunk {
                buffer,
                memory,
                bytes,
                memory_bytes: needs.size,
                address,
                import: None,
                free: BTreeMap::from([(0, bytes)]),
                used: BTreeMap::new(),
            };
            let bound = device.bind_buffer_memory(buffer, memory, 0).and_then(|()| {
                let info = vk::BufferDeviceAddressInfo::default().buffer(buffer);
                let address = device.get_buffer_device_address(&info);
                match self.kind {
                    Kind::Device => Ok((address, address)),
                    Kind::Pinned | Kind::Arguments => {
                        let host = device.map_memory(memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty())?;
                        Ok((host as u64, address))
                    }
                }
            });
            match bound {
                Ok((name, address)) => Ok((name, chunk(address))),
                Err(code) => {
                    device.destroy_buffer(buffer, None);
                    device.free_memory(memory, None);
                    Err(code)
                }
            }
        }
    }

    /// An allocation that is freed when it is dropped.
    pub fn lease(self: &Arc<Self>, bytes: u64) -> Result<Lease> {
        Ok(Lease { at: self.allocate(bytes)?, memory: self.clone() })
    }

    /// Frees an allocation immediately.
    pub fn free(&self, at: u64) {
        let empty = self.state().give(at, self.kind.chunk_bytes());
        if let Some(chunk) = empty {
            self.destroy(chunk);
        }
    }

    /// Gives an allocation back when the value is reached.
    pub fn free_after(&self, at: u64, timeline: &Arc<Timeline>, value: u64) {
        self.state().pending.push(Pending { timeline: timeline.clone(), value, at });
    }

    /// Completes deferred frees whose work is done, and releases empty chunks.
    pub fn trim(&self) {
        let mut state = self.state();
        let _ = state.reap();
        let empty: Vec<u64> = state.chunks.iter().filter(|(_, c)| c.used.is_empty()).map(|(at, _)| *at).collect();
        for at in empty {
            if let Some(chunk) = state.chunks.remove(&at) {
                self.destroy(chunk);
            }
        }
    }

    /// Shares an allocation until it is freed. Returns its address in the other interface to the device.
    pub(crate) fn share(&self, at: u64, importer: &Arc<dyn Importer>) -> Result<u64> {
        let mut state = self.state();
        let State { chunks, shared, shared_count, .. } = &mut *state;
        let Some((first, chunk)) = chunks.range_mut(..=at).next_back().filter(|(f, c)| at - **f < c.bytes) else {
            return Err(no_memory("shared memory"));
        };
        if chunk.import.is_none() {
            let exports = self.gpu.exports.as_ref().ok_or_else(|| no_memory("exported memory"))?;
            // SAFETY: the memory is alive, and was allocated for export.
            let file = unsafe { exports.memory_file(chunk.memory)? };
            let exported = ExportedMemory { file, bytes: chunk.memory_bytes, dedicated: exports.dedicated };
            let (memory, importer) = (importer.import_memory(exported)?, importer.clone());
            chunk.import = Some(Import { memory, importer });
        }
        if shared.insert(at) {
            shared_count.fetch_add(1, Ordering::AcqRel);
        }
        let base = chunk.import.as_ref().map_or(0, |import| import.memory.address);
        Ok(base + (at - *first))
    }

    /// The address here of memory that another interface to the device has imported.
    pub(crate) fn own_address(&self, address: u64) -> Option<u64> {
        let state = self.state();
        state.chunks.iter().find_map(|(first, chunk)| {
            let offset = address.checked_sub(chunk.import.as_ref()?.memory.address)?;
            (offset < chunk.bytes).then_some(first + offset)
        })
    }

    fn destroy(&self, mut chunk: Chunk) {
        drop(chunk.import.take());
        // SAFETY: no work uses it: its allocations were given back after their work.
        unsafe {
            self.gpu.device.destroy_buffer(chunk.buffer, None);
            self.gpu.device.free_memory(chunk.memory, None);
        }
    }

    /// The buffer and offset of an address.
    pub fn find(&self, at: u64) -> Option<Part> {
        let state = self.state();
        let (first, chunk) = state.chunks.range(..=at).next_back()?;
        let offset = at - first;
        (offset < chunk.bytes).then_some(Part { buffer: chunk.buffer, offset, address: chunk.address + offset })
    }

    /// Allocated bytes.
    pub fn in_use(&self) -> u64 {
        self.state().in_use
    }
}

impl State {
    fn take(&mut self, bytes: u64) -> Option<u64> {
        for (first, chunk) in &mut self.chunks {
            let Some((offset, length)) = chunk.free.iter().find(|(_, n)| **n >= bytes).map(|(o, n)| (*o, *n)) else {
                continue;
            };
            chunk.free.remove(&offset);
            if length > bytes {
                chunk.free.insert(offset + bytes, length - bytes);
            }
            chunk.used.insert(offset, bytes);
            self.in_use += bytes;
            return Some(first + offset);
        }
        None
    }

    /// Frees an allocation, and its chunk if it is dedicated.
    fn give(&mut self, at: u64, chunk_bytes: u64) -> Option<Chunk> {
        let (&first, chunk) = self.chunks.range_mut(..=at).next_back()?;
        let mut offset = at - first;
        let mut length = chunk.used.remove(&offset)?;
        self.in_use -= length;
        if self.shared.remove(&at) {
            self.shared_count.fetch_sub(1, Ordering::AcqRel);
        }
        if let Some(next) = chunk.free.remove(&(offset + length)) {
            length += next;
        }
        if let Some((before, n)) = chunk.free.range(..offset).next_back().map(|(o, n)| (*o, *n))
            && before + n == offset
        {
            chunk.free.remove(&before);
            (offset, length) = (before, length + n);
        }
        chunk.free.insert(offset, length);
        let is_alone = chunk.used.is_empty() && chunk.bytes > chunk_bytes;
        if is_alone { self.chunks.remove(&first) } else { None }
    }

    /// Completes deferred frees whose work is done. Large chunks stay until they are trimmed.
    fn reap(&mut self) -> Result<()> {
        let mut i = 0;
        while i < self.pending.len() {
            let p = &self.pending[i];
            if p.timeline.has_reached(p.value)? {
                let at = self.pending.swap_remove(i).at;
                let kept = self.give(at, u64::MAX);
                debug_assert!(kept.is_none());
            } else {
                i += 1;
            }
        }
        Ok(())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let state = std::mem::take(&mut *self.state());
        state.chunks.into_values().for_each(|chunk| self.destroy(chunk));
    }
}

/// The error for an unallocated address.
pub(crate) fn no_memory(what: &'static str) -> DeviceError {
    ErrorKind::Misuse { message: format!("{what} is not an address of memory allocated on this device") }.into()
}
