//! Drains a stream's channel: after a wait for the stream, and never during a launch, which writes to the channel.

use std::sync::atomic::Ordering;

use crate::channel::Channel;
use crate::cores::StreamCore;
use crate::driver::{Caller, DevicePtr};
use crate::error::Result;
use crate::kernel::LoadedKernel;
use crate::nesting;
use crate::scratch::Scratch;

impl StreamCore {
    /// The channel for a launch that may say something, and the kernel's number there.
    pub(crate) fn find_voice(
        &self,
        kernel: &LoadedKernel,
        scratch: &mut Scratch,
        caller: &dyn Caller,
    ) -> Result<(DevicePtr, u64)> {
        let channel = match &mut scratch.channel {
            Some(channel) => channel,
            none => {
                let channel = Channel::new(&*self.device.driver).map_err(|e| self.device.explain(e))?;
                self.channel_at.store(channel.memory().0, Ordering::Release);
                none.insert(channel)
            }
        };
        let voice = (channel.memory(), channel.kernel_id(&kernel.meta));
        if channel.is_filling() && !self.is_captured()? {
            // SAFETY: the stream is alive.
            unsafe { self.wait(caller)? };
            self.hear(scratch);
        }
        Ok(voice)
    }

    /// Takes out of the channel what the stream's work has said; the work is done.
    pub(crate) fn hear(&self, scratch: &mut Scratch) {
        if let Some(channel) = &mut scratch.channel
            // SAFETY: the channel is there.
            && !unsafe { Channel::is_silent(channel.memory()) }
        {
            channel.take(true, &self.device.printer, &self.failures);
            self.device.printer.flush();
        }
    }

    /// As [`StreamCore::hear`], outside a launch: after a wait that did not keep other threads from launching.
    pub(crate) fn listen(&self, caller: &dyn Caller) {
        self.listen_in_turn(caller, |scratch| {
            if self.wait_for_own_work(caller).is_ok() {
                self.hear(scratch);
            }
        });
    }

    /// Takes out of the channel what work that is done has said, while other work may be running.
    pub(crate) fn listen_to_part(&self, caller: &dyn Caller) {
        self.listen_in_turn(caller, |scratch| {
            // SAFETY: a stream of our own lives as long as this, as does its event.
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

    fn listen_in_turn(&self, caller: &dyn Caller, take: impl FnOnce(&mut Scratch)) {
        let at = DevicePtr(self.channel_at.load(Ordering::Acquire));
        // A thread inside a launch has its turn, or works for one that has.
        // SAFETY: once it is there, the channel lives as long as the stream.
        if at.0 != 0 && !nesting::inside() && !unsafe { Channel::is_silent(at) } {
            take(&mut self.wait_turn(caller));
        }
    }
}
