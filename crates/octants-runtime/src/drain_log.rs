//! Drains the log channel of a stream: after a wait for the stream, never during a launch, which writes to the channel.

use std::sync::atomic::Ordering;

use crate::caller::{Caller, Uninterruptible};
use crate::channel::Channel;
use crate::cores::StreamCore;
use crate::driver::DevicePtr;
use crate::error::Result;
use crate::kernel::LoadedKernel;
use crate::nesting;
use crate::scratch::Scratch;

impl StreamCore {
    /// The log channel for a launch of a kernel that logs, in a step of a captured graph if it is one, and the kernel's
    /// id in this channel.
    pub(crate) fn log_channel_for(
        &self,
        (kernel, step): (&LoadedKernel, Option<u32>),
        scratch: &mut Scratch,
        caller: &dyn Caller,
    ) -> Result<(DevicePtr, u64)> {
        let channel = match &mut scratch.channel {
            Some(channel) => channel,
            none => {
                let channel = Channel::new(&*self.device.driver).map_err(|e| self.device.explain(e))?;
                if !scratch.is_nested {
                    self.channel_at.store(channel.memory().0, Ordering::Release);
                }
                none.insert(channel)
            }
        };
        let log_channel = (channel.memory(), channel.kernel_id(&kernel.meta, step));
        if channel.is_filling() && !self.is_captured()? {
            // SAFETY: the stream is alive.
            unsafe { self.wait(caller)? };
            self.drain_log(scratch);
        }
        Ok(log_channel)
    }

    /// Drains the channel: prints messages and records failures. The stream's work has finished.
    pub(crate) fn drain_log(&self, scratch: &mut Scratch) {
        if let Some(channel) = &mut scratch.channel
            // SAFETY: the channel exists.
            && !unsafe { Channel::is_empty(channel.memory()) }
        {
            channel.take(true, &self.device.printer, &self.failures);
            self.device.printer.flush();
        }
    }

    /// Waits for a nested launch that may have sent messages, and drains its channel, which ends with the launch.
    pub(crate) fn drain_nested_log(&self, scratch: &mut Scratch) -> Result<()> {
        if scratch.channel.is_none() {
            return Ok(());
        }
        // SAFETY: the caller launches on the stream.
        let waited = unsafe { self.wait(&Uninterruptible) };
        match waited {
            Ok(()) => self.drain_log(scratch),
            // Work may still write to it: its memory remains until the process ends.
            Err(_) => scratch.channel = None,
        }
        waited
    }

    /// As [`StreamCore::drain_log`], outside a launch, after a wait during which other threads could launch.
    pub(crate) fn drain_log_after_wait(&self, caller: &dyn Caller) {
        self.drain_log_in_turn(caller, |scratch| {
            if self.wait_for_own_work(caller).is_ok() {
                self.drain_log(scratch);
            }
        });
    }

    /// Drains the messages of finished work while other work may be running.
    pub(crate) fn drain_log_so_far(&self, caller: &dyn Caller) {
        self.drain_log_in_turn(caller, |scratch| {
            // SAFETY: the stream that `self` owns and its event live as long as `self`.
            let idle = unsafe {
                match self.last {
                    Some(last) => self.device.driver.query_event(last),
                    None => self.device.driver.query_stream(self.handle),
                }
            };
            let idle = idle.unwrap_or(false);
            if let Some(channel) = &mut scratch.channel {
                channel.take(idle, &self.device.printer, &self.failures);
            }
        });
    }

    fn drain_log_in_turn(&self, caller: &dyn Caller, take: impl FnOnce(&mut Scratch)) {
        let at = DevicePtr(self.channel_at.load(Ordering::Acquire));
        // A thread inside a launch holds the turn, or works for a thread that does.
        // SAFETY: once created, the channel lives as long as the stream.
        if at.0 != 0 && !nesting::inside() && !unsafe { Channel::is_empty(at) } {
            take(&mut self.wait_turn(caller));
        }
    }
}
