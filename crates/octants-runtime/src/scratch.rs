//! [`Scratch`]: stream memory that launches reuse one after the other.

use octants_artifact::DeviceContext;

use crate::channel::Channel;
use crate::driver::{Contents, DevicePtr, Driver, StreamHandle};
use crate::error::Result;
use crate::staging::Staging;

const BEFORE_FRAME: u64 = DeviceContext::BEFORE_FRAME;

/// The scratch memory that a kernel needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub(crate) frame_bytes: u64,
    pub(crate) result_bytes: u64,
}

/// Frame, result slots and staging memory of a stream, grown when a kernel needs more.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) frame: DevicePtr,
    frame_bytes: u64,
    /// Earlier frames that graphs may use.
    frames_of_graphs: Vec<(DevicePtr, u64)>,
    /// Pinned.
    pub(crate) result: DevicePtr,
    result_bytes: u64,
    /// A launch was abandoned that may still write its results.
    pub(crate) is_written: bool,
    pub(crate) staging: Staging,
    pub(crate) channel: Option<Channel>,
    /// Belongs to one nested launch, not to the stream.
    pub(crate) is_nested: bool,
    /// Messages of the current launch go to the channel there, under this number.
    pub(crate) log_channel: (DevicePtr, u64),
    /// The step of a captured graph that the current launch is.
    pub(crate) step: Option<u32>,
    /// The buffers that the current launch uses have recorded that.
    pub(crate) uses_are_noted: bool,
    /// Argument slots of a launch that changes them before it passes them on.
    pub(crate) slots: Vec<u64>,
    /// The checkpoint at which the current launch resumes, and the one at which it ended.
    pub(crate) checkpoints: Checkpoints,
}

/// Labels of checkpoints of a launch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Checkpoints {
    /// The launch skips everything before this checkpoint.
    pub(crate) resumes_at: Option<i64>,
    /// The launch ended after this one.
    pub(crate) ended_at: Option<i64>,
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch {
            frame: DevicePtr(0),
            frame_bytes: 0,
            frames_of_graphs: Vec::new(),
            result: DevicePtr(0),
            result_bytes: 0,
            is_written: false,
            staging: Staging::default(),
            channel: None,
            is_nested: false,
            log_channel: (DevicePtr(0), 0),
            step: None,
            uses_are_noted: false,
            slots: Vec::new(),
            checkpoints: Checkpoints::default(),
        }
    }
}

/// # Safety
/// As [`Driver::free`], for a frame of [`Scratch::grow`].
unsafe fn free_frame(driver: &dyn Driver, stream: StreamHandle, (frame, bytes): (DevicePtr, u64)) {
    // SAFETY: the contract above.
    unsafe { driver.free(stream, DevicePtr(frame.0 - BEFORE_FRAME), BEFORE_FRAME + bytes) }
}

impl Scratch {
    /// True when there is room for a kernel's frame and results.
    #[inline]
    pub(crate) fn fits(&self, room: Room) -> bool {
        room.frame_bytes <= self.frame_bytes && room.result_bytes <= self.result_bytes
    }

    /// Makes room for a kernel's frame and results.
    #[cold]
    pub(crate) fn grow(&mut self, driver: &dyn Driver, stream: StreamHandle, room: Room, graphs: bool) -> Result<()> {
        // SAFETY: the stream is alive, because its owner calls; the freed memory was allocated below. Work that uses an
        // old frame is queued before its free; results are read before the next launch.
        unsafe {
            if room.frame_bytes > self.frame_bytes {
                let whole = (BEFORE_FRAME + room.frame_bytes).next_power_of_two().max(256);
                // Memory that a graph uses must not be part of it, because its owner may launch the graph any number of
                // times.
                let place = (!graphs).then_some(stream);
                let frame = driver.allocate(place, whole, Contents::Zeroed)?;
                let frame = DevicePtr(frame.0 + BEFORE_FRAME);
                if self.frame_bytes > 0 && graphs {
                    self.frames_of_graphs.push((self.frame, self.frame_bytes));
                } else if self.frame_bytes > 0 {
                    free_frame(driver, stream, (self.frame, self.frame_bytes));
                }
                (self.frame, self.frame_bytes) = (frame, whole - BEFORE_FRAME);
            }
            if room.result_bytes > self.result_bytes {
                if std::mem::take(&mut self.is_written) {
                    driver.synchronize(stream)?;
                }
                let bytes = room.result_bytes.next_power_of_two().max(64);
                let result = driver.allocate_pinned(bytes)?;
                if self.result_bytes > 0 {
                    driver.free_pinned(self.result, self.result_bytes);
                }
                (self.result, self.result_bytes) = (result, bytes);
            }
        }
        Ok(())
    }

    /// For one nested launch.
    pub(crate) fn nested() -> Scratch {
        Scratch { is_nested: true, ..Scratch::default() }
    }

    /// Releases everything. The stream's work is done.
    pub(crate) fn free(&mut self, driver: &dyn Driver, stream: StreamHandle) {
        // SAFETY: allocated by `grow` from the same driver; the owner has waited for the stream's work.
        unsafe {
            if self.frame_bytes > 0 {
                free_frame(driver, stream, (self.frame, self.frame_bytes));
            }
            self.frames_of_graphs.drain(..).for_each(|frame| free_frame(driver, stream, frame));
            if self.result_bytes > 0 {
                driver.free_pinned(self.result, self.result_bytes);
            }
        }
        self.staging.free(driver);
        if let Some(channel) = self.channel.take() {
            channel.free(driver);
        }
        *self = Scratch::default();
    }
}
