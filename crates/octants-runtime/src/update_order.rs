//! The order of updates: launches on different streams that update the same memory.
//!
//! Code may update memory without atomics where only another launch could interfere
//! ([`LoadedKernel::assumes_order`]). Each buffer knows the streams whose work updates it, and how. A launch waits on
//! the device for streams that update one of its buffers, if it or they do so without atomics. Where that happens again
//! and again, the program's order ends ([`Device::is_unordered`](crate::Device::is_unordered)): kernels are compiled
//! again, with atomics.
//!
//! What a launch notes and what it queues must not be separated by another launch. Launches that update memory
//! therefore take turns, once there are streams. A launch that takes long to be queued, because the host decides about
//! its tasks, gives its turn back before, and its stream is marked instead.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Duration;

use crate::caller::Caller;
use crate::cores::{Awaited, BufferCore, DeviceCore, StreamCore, Update, Updates, Use, Uses};
use crate::error::Result;
use crate::foreign::Once;
use crate::kernel::LoadedKernel;
use crate::nesting;
use crate::report::lock;
use crate::sections::decides;

/// The program's order ends after this many launches that had to wait, because of the same memory, for another stream.
const MOST_WAITS: u32 = 4;
/// How often a launch looks whether another one has been queued.
const LOOK: Duration = Duration::from_micros(20);

impl Update {
    /// By launches of a kernel, of memory that it writes to.
    pub(crate) fn of(kernel: &LoadedKernel) -> Update {
        if kernel.assumes_order { Update::Plain } else { Update::Atomic }
    }

    /// One of two that run at the same time may be lost.
    fn disturbs(self, other: Update) -> bool {
        self.min(other) > Update::None && self.max(other) == Update::Plain
    }
}

/// Notes that a stream updates memory with these users, and which of them it must wait for; `waits` counts launches
/// that must.
fn note((users, waits): (&mut Vec<Use>, &mut u32), stream: &Arc<StreamCore>, update: Update, awaited: &mut Awaited) {
    let (mut own, mut waited) = (update, false);
    for user in users.iter_mut().filter(|user| !user.is_of(stream) && update.disturbs(user.update)) {
        let before = std::mem::take(&mut user.update);
        let Some(other) = user.stream.upgrade() else { continue };
        // SAFETY: the stream is alive. A stream that cannot be asked is waited for.
        let is_done = || unsafe { stream.device.driver.query_stream(other.handle) }.unwrap_or(false);
        if !other.is_queueing() && is_done() {
            continue;
        }
        // Who waits for this stream from now on also waits for the other one.
        (own, waited) = (own.max(before), true);
        if !awaited.iter().any(|known| Arc::ptr_eq(known, &other)) {
            awaited.push(other);
        }
    }
    if let Some(user) = users.iter_mut().find(|user| user.is_of(stream)) {
        user.update = user.update.max(own);
    }
    *waits += u32::from(waited);
    if *waits >= MOST_WAITS {
        stream.device.set_unordered();
    }
}

impl BufferCore {
    /// Notes that a launch on a stream uses the memory, and updates it if it `writes`. Adds the streams for which the
    /// launch must wait.
    pub(crate) fn note_launch(&self, stream: &Arc<StreamCore>, writes: bool, update: Update, awaited: &mut Awaited) {
        let mut uses = lock(&self.uses);
        uses.note(stream, writes);
        if writes {
            let Uses { streams, waits, .. } = &mut *uses;
            note((streams, waits), stream, update, awaited);
        }
    }
}

impl StreamCore {
    /// A launch is being queued, of which others may not assume that it is.
    fn is_queueing(&self) -> bool {
        self.queueing.load(Ordering::Acquire) > 0
    }
}

/// A launch that updates memory, until it is queued.
pub(crate) struct Updating<'a> {
    stream: &'a Arc<StreamCore>,
    turn: Option<MutexGuard<'a, Updates>>,
    is_marked: bool,
}

impl<'a> Updating<'a> {
    /// A launch that may update memory if it `writes` to it.
    pub(crate) fn begin(stream: &'a Arc<StreamCore>, writes: bool, caller: &dyn Caller) -> Updating<'a> {
        let device = &stream.device;
        let matters = writes
            && !device.immediate
            && device.has_streams.load(Ordering::Acquire)
            && device.assumed_order.load(Ordering::Acquire);
        let wait = || {
            caller.will_block();
            lock(&device.updates)
        };
        let turn = matters.then(|| match device.updates.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => wait(),
        });
        Updating { stream, turn, is_marked: false }
    }

    /// Notes an update of memory that is not this program's.
    pub(crate) fn note_foreign(&mut self, update: Update, awaited: &mut Awaited) {
        let Some(turn) = &mut self.turn else { return };
        turn.foreign.retain(|user| user.stream.strong_count() > 0);
        if !turn.foreign.iter().any(|user| user.is_of(self.stream)) {
            turn.foreign.push(Use::of(self.stream, true));
        }
        let Updates { foreign, waits } = &mut **turn;
        note((foreign, waits), self.stream, update, awaited);
    }

    /// Makes the launch wait for other streams. If it `takes_long` to be queued, others may queue work meanwhile.
    pub(crate) fn order(&mut self, awaited: &Awaited, takes_long: bool, caller: &dyn Caller) -> Result<()> {
        if self.turn.is_none() {
            return Ok(());
        }
        let device = &self.stream.device;
        for other in awaited {
            while other.is_queueing() && !nesting::is_dispatching() {
                caller.will_block();
                std::thread::sleep(LOOK);
            }
            // SAFETY: the stream is held, and this one launches.
            unsafe { other.order_before(self.stream.handle, Once::new(device)?.event())? };
        }
        if takes_long {
            self.is_marked = true;
            self.stream.queueing.fetch_add(1, Ordering::AcqRel);
            self.turn = None;
        }
        Ok(())
    }
}

impl Drop for Updating<'_> {
    fn drop(&mut self) {
        if self.is_marked {
            self.stream.queueing.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Whether launches of a kernel write to memory that others may write to.
pub(crate) fn writes(kernel: &LoadedKernel) -> bool {
    kernel.pointers.iter().any(|p| p.written)
}

/// Whether launches of a kernel take long to be queued.
pub(crate) fn takes_long(kernel: &LoadedKernel, caller: &dyn Caller) -> bool {
    decides(&kernel.sections) || caller.dispatcher().is_some()
}

impl DeviceCore {
    /// Launches that update memory take turns from now on. Returns whether the default stream is in the middle of one.
    pub(crate) fn admit_streams(&self, default: &StreamCore) -> bool {
        let is_first = !self.has_streams.swap(true, Ordering::AcqRel);
        is_first && matches!(default.scratch.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// Waits until no launch is being queued, and for the work of all streams, without reporting its failures. No
    /// launch waits for the updates of these later.
    pub(crate) fn wait_for_ordered(&self) -> Result<()> {
        for stream in self.live_streams() {
            drop(stream.scratch.lock().unwrap_or_else(PoisonError::into_inner));
            // SAFETY: the stream is alive.
            unsafe { self.driver.synchronize(stream.handle)? };
        }
        let settle = |users: &mut Vec<Use>| users.iter_mut().for_each(|user| user.update = Update::None);
        settle(&mut lock(&self.updates).foreign);
        let buffers: Vec<_> = lock(&self.buffers).values().filter_map(Weak::upgrade).collect();
        buffers.iter().for_each(|buffer| settle(&mut lock(&buffer.uses).streams));
        Ok(())
    }
}
