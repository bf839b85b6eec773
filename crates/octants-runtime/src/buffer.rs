//! [`Buffer`]: memory on a device.
//!
//! A buffer's memory lives until the buffer's last clone is dropped or its program ends. Host code that keeps the
//! address beyond a call (an exported view) holds a [`PinnedBuffer`], which keeps the memory alive in either case.
//!
//! On an asynchronous device, a buffer records the streams whose queued work may use it. Memory is freed after that
//! work, and a host read waits for the streams that write. A buffer also counts its writes, so results computed from
//! its contents can be checked for validity: see [`Version`].

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::caller::{Caller, Uninterruptible};
use crate::cores::{Awaited, BufferCore, CLOSED, DeviceCore, StreamCore, Update, Use, Uses, Writes};
use crate::driver::{Contents, DevicePtr};
use crate::error::{ErrorKind, Result};
use crate::nesting::refuse_while_capturing;
use crate::report::lock;

/// The version of a buffer's contents. Equal versions imply equal contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// Numbers of buffers are given once.
    buffer: u64,
    writes: u64,
    /// Streams that had ended: one that is just ending may write until it has.
    ended: u64,
}

/// The kind of host access to a buffer's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostAccess {
    /// Read: work that writes must be done.
    Read,
    /// Write: all work must be done.
    Write,
}

impl Uses {
    /// Notes that work of a stream uses the memory.
    pub(crate) fn note(&mut self, stream: &Arc<StreamCore>, writes: bool) {
        if writes && stream.may_be_captured() {
            self.writes = Writes::Unseen;
        } else if writes {
            self.writes.add();
        }
        let streams = &mut self.streams;
        if let Some(known) = streams.iter_mut().find(|u| u.is_of(stream)) {
            known.writes |= writes;
            return;
        }
        // A dropped stream has finished its work.
        streams.retain(|u| u.stream.strong_count() > 0);
        streams.push(Use::of(stream, writes));
    }
}

impl BufferCore {
    /// The program has ended: gives the memory back unless it is pinned.
    pub(crate) fn close(&self) {
        if self.state.fetch_or(CLOSED, Ordering::AcqRel) == 0 {
            self.release();
        }
    }

    fn release(&self) {
        if self.freed.swap(true, Ordering::AcqRel) || self.bytes == 0 || self.device.is_abandoned() {
            return;
        }
        let users: Vec<_> = lock(&self.uses).streams.drain(..).filter_map(|u| u.stream.upgrade()).collect();
        if self.shared.load(Ordering::Acquire) {
            // An error leaves nothing that could use the memory.
            let _ = self.device.driver.synchronize_device();
        }
        // SAFETY: `ptr` came from this driver's `allocate` with these bytes, and the swap above happens once.
        unsafe { self.device.free_after(&users, self.ptr, self.bytes) }
        self.device.in_use.fetch_sub(self.bytes, Ordering::Relaxed);
    }

    /// Notes that work of this stream uses the memory.
    pub(crate) fn note_use(&self, stream: &Arc<StreamCore>, writes: bool) {
        lock(&self.uses).note(stream, writes);
    }

    /// The contents that work finds which is queued on this stream from now on. `None` if writes to the memory may go
    /// unnoticed, or if another stream has queued work that writes to it.
    pub(crate) fn version(&self, stream: &Arc<StreamCore>) -> Option<Version> {
        self.device.submit_held(&Uninterruptible);
        let uses = lock(&self.uses);
        let Writes::Seen(writes) = uses.writes else { return None };
        let is_other = |u: &Use| u.stream.strong_count() > 0 && !u.is_of(stream);
        let is_settled = !uses.streams.iter().any(|u| u.writes && is_other(u));
        is_settled.then(|| Version {
            buffer: self.id,
            writes,
            ended: self.device.ended_streams.load(Ordering::Acquire),
        })
    }

    /// As [`Buffer::expose`].
    pub(crate) fn expose(&self) {
        lock(&self.uses).writes = Writes::Unseen;
    }

    fn note_write(&self) {
        lock(&self.uses).writes.add();
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.bytes
    }

    /// Address.
    pub(crate) fn address(&self) -> u64 {
        self.ptr.0
    }
}

impl Drop for BufferCore {
    fn drop(&mut self) {
        if self.device.is_abandoned() {
            return;
        }
        self.device.forget(self);
        self.release();
    }
}

/// Memory on a device. Clones are the same memory.
#[derive(Clone)]
pub struct Buffer(Arc<BufferCore>);

impl Buffer {
    pub(crate) fn allocate(device: &Arc<DeviceCore>, bytes: u64, contents: Contents) -> Result<Buffer> {
        device.check_open("device")?;
        let ptr = match bytes {
            0 => DevicePtr(0),
            // SAFETY: no stream is named.
            _ => unsafe { device.driver.allocate(None, bytes, contents) }.map_err(|e| device.explain(e))?,
        };
        device.in_use.fetch_add(bytes, Ordering::Relaxed);
        let core = Arc::new(BufferCore {
            device: device.clone(),
            id: device.new_buffer_id(),
            ptr,
            bytes,
            state: AtomicU64::new(0),
            freed: AtomicBool::new(false),
            shared: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            uses: Mutex::default(),
        });
        device.register(&core);
        if device.is_closed() {
            // Closed between the check above and the registration: `close` may not have seen this buffer.
            core.close();
        }
        Ok(Buffer(core))
    }

    /// New memory with these contents.
    pub(crate) fn holding(device: &Arc<DeviceCore>, contents: &[u8]) -> Result<Buffer> {
        let buffer = Buffer::allocate(device, contents.len() as u64, Contents::Any)?;
        let _pinned = buffer.pin()?;
        // SAFETY: the range is the whole of a new buffer, which nothing else refers to.
        unsafe { buffer.set(buffer.0.ptr, contents)? };
        Ok(buffer)
    }

    pub(crate) fn of(core: Arc<BufferCore>) -> Buffer {
        Buffer(core)
    }

    pub(crate) fn core(&self) -> &Arc<BufferCore> {
        &self.0
    }

    /// Its number on the device.
    pub(crate) fn number(&self) -> u64 {
        self.0.id
    }

    pub(crate) fn address(&self) -> DevicePtr {
        self.0.ptr
    }

    /// The address, for a launch's arguments: valid while the program lives, which the launcher checks again.
    #[inline]
    pub fn ptr(&self) -> Result<u64> {
        if self.alive() { Ok(self.0.ptr.0) } else { Err(ErrorKind::ProgramGone { what: "array" }.into()) }
    }

    /// Size in bytes.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// False once the program it belongs to has ended.
    #[inline]
    pub fn alive(&self) -> bool {
        self.0.state.load(Ordering::Acquire) & CLOSED == 0
    }

    pub(crate) fn is_of(&self, device: &Arc<DeviceCore>) -> bool {
        Arc::ptr_eq(&self.0.device, device)
    }

    pub(crate) fn note_use(&self, stream: &Arc<StreamCore>, writes: bool) {
        self.0.note_use(stream, writes);
    }

    pub(crate) fn note_launch(&self, stream: &Arc<StreamCore>, writes: bool, update: Update, awaited: &mut Awaited) {
        self.0.note_launch(stream, writes, update, awaited);
    }

    /// Waits until the host may access the memory: only for the streams whose work conflicts with the access. Reports
    /// their unreported failures.
    #[inline]
    pub fn wait(&self, access: HostAccess, caller: &dyn Caller) -> Result<()> {
        refuse_while_capturing("the host cannot access an array's memory")?;
        if self.0.device.immediate { Ok(()) } else { self.wait_for_streams(access, caller) }
    }

    #[cold]
    fn wait_for_streams(&self, access: HostAccess, caller: &dyn Caller) -> Result<()> {
        self.0.device.submit_held(caller);
        let in_the_way = |u: &&Use| u.writes || access == HostAccess::Write;
        let streams: Vec<_> =
            lock(&self.0.uses).streams.iter().filter(in_the_way).filter_map(|u| u.stream.upgrade()).collect();
        let mut end = Ok(());
        for stream in streams {
            let waited = stream.wait_for_host(caller);
            end = end.and(waited);
        }
        if self.0.shared.load(Ordering::Acquire) {
            // Another library may have queued work that writes to the memory, on a stream that is unknown here.
            caller.will_block();
            end = end.and(self.0.device.driver.synchronize_device());
        }
        end
    }

    /// Copies bytes to the host, once the work that writes to the memory is done.
    pub fn read(&self, offset: u64, to: &mut [u8], caller: &dyn Caller) -> Result<()> {
        let _pinned = self.pin()?;
        let from = self.at(offset, to.len() as u64)?;
        self.wait(HostAccess::Read, caller)?;
        let device = &self.0.device;
        if device.host_addressable {
            // SAFETY: the range is checked and pinned, and the host may address it.
            unsafe { std::ptr::copy_nonoverlapping(from.0 as *const u8, to.as_mut_ptr(), to.len()) };
            return Ok(());
        }
        // SAFETY: the range is checked and pinned, and its writers are waited for.
        unsafe { device.transfers.read(&*device.driver, from, to) }
    }

    /// Copies bytes of the host here, once the work that uses the memory is done.
    pub fn write(&self, offset: u64, from: &[u8], caller: &dyn Caller) -> Result<()> {
        let _pinned = self.pin()?;
        let to = self.at(offset, from.len() as u64)?;
        self.wait(HostAccess::Write, caller)?;
        // SAFETY: the range is checked and pinned, and its users are waited for.
        unsafe { self.set(to, from) }
    }

    /// # Safety
    /// The range is in the buffer, which is pinned, and no work uses it.
    unsafe fn set(&self, to: DevicePtr, from: &[u8]) -> Result<()> {
        let device = &self.0.device;
        if device.host_addressable {
            // SAFETY: the contract above, and the host may address it.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.0 as *mut u8, from.len()) };
            return Ok(());
        }
        // Counted before and after, so that neither earlier results nor those computed during the write count as
        // results of the new contents.
        self.0.note_write();
        // SAFETY: the contract above.
        let end = unsafe { device.transfers.write(&*device.driver, to, from) };
        self.0.note_write();
        end
    }

    pub(crate) fn device(&self) -> &Arc<DeviceCore> {
        &self.0.device
    }

    pub(crate) fn share(&self) {
        if let Some(launches) = self.0.device.launches_elsewhere.get() {
            launches.give_up(&Uninterruptible);
        }
        self.expose();
        self.0.shared.store(true, Ordering::Release);
    }

    /// Streams whose queued work may use the memory.
    pub(crate) fn users(&self) -> Vec<Arc<StreamCore>> {
        self.0.device.submit_held(&Uninterruptible);
        lock(&self.0.uses).streams.iter().filter_map(|u| u.stream.upgrade()).collect()
    }

    /// The device as DLPack names it: its kind and its number.
    pub fn dlpack_device(&self) -> (i32, i32) {
        self.0.device.dlpack_device()
    }

    /// Whether other libraries use other addresses for memory of this device.
    pub fn has_foreign_addresses(&self) -> bool {
        self.0.device.driver.foreign_api().is_some()
    }

    /// Name of the attribute by which Python objects show arrays in this memory, if there is such a protocol.
    pub fn array_protocol(&self) -> Option<&'static str> {
        self.0.device.driver.array_protocol()
    }

    /// Whether every call returns only when its work is done.
    pub fn is_immediate(&self) -> bool {
        self.0.device.immediate
    }

    /// Ends the use of the memory: graphs that use it are refused from now on. The caller refuses all other uses, and
    /// calls [`Buffer::free_retired`] when none is in progress.
    pub fn retire(&self) {
        self.0.retired.store(true, Ordering::Release);
        self.0.device.has_retired.store(true, Ordering::Release);
    }

    /// Gives retired memory back, after the work that uses it and not before the last pin is gone.
    pub fn free_retired(&self) {
        self.0.device.submit_held(&Uninterruptible);
        self.0.device.forget(&self.0);
        self.0.close();
    }

    /// Whether its use has ended.
    pub(crate) fn is_retired(&self) -> bool {
        self.0.retired.load(Ordering::Acquire)
    }

    /// Must be called when the address is passed to other code: from now on the memory may be written to unseen.
    pub fn expose(&self) {
        self.0.expose();
    }

    /// True when the host may use the memory by its address.
    pub fn is_host_addressable(&self) -> bool {
        self.0.device.host_addressable
    }

    /// Keeps the memory, also past the end of the program.
    pub fn pin(&self) -> Result<PinnedBuffer> {
        if self.0.state.fetch_add(1, Ordering::AcqRel) & CLOSED != 0 {
            // The pin count of a closed buffer matters only to pins made before, which free the memory at zero.
            unpin(&self.0);
            return Err(ErrorKind::ProgramGone { what: "array" }.into());
        }
        Ok(PinnedBuffer(self.clone()))
    }

    /// The address of a range, checked.
    pub(crate) fn at(&self, offset: u64, length: u64) -> Result<DevicePtr> {
        let bytes = self.0.bytes;
        match offset.checked_add(length) {
            Some(end) if end <= bytes => Ok(DevicePtr(self.0.ptr.0 + offset)),
            _ => Err(ErrorKind::OutOfRange { offset, length, bytes }.into()),
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("bytes", &self.0.bytes).field("alive", &self.alive()).finish()
    }
}

fn unpin(core: &BufferCore) {
    if core.state.fetch_sub(1, Ordering::AcqRel) == CLOSED | 1 {
        core.release();
    }
}

/// A buffer whose memory stays while this value lives.
#[derive(Debug)]
pub struct PinnedBuffer(Buffer);

impl PinnedBuffer {
    /// The address.
    pub fn ptr(&self) -> u64 {
        self.0.0.ptr.0
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.0.bytes
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        unpin(&self.0.0);
    }
}
