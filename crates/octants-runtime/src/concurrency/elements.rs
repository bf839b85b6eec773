//! [`Elements`]: the elements of a buffer that a launch touches, and whether two launches conflict there.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use octants_artifact::{Access, AccessKind};
use smallvec::SmallVec;

use crate::capture::CapturedLaunch;
use crate::cores::{BufferCore, DeviceCore};
use crate::footprint::Footprint;
use crate::kernel::{LoadedKernel, Pointer};
use crate::kernel_meta::KernelMeta;

/// Maximum number of pairs of accesses, other than two reads, that are compared for two launches. With more, whole
/// buffers are compared.
const MOST_PAIRS: usize = 128;
/// A buffer that a launch is given.
pub(crate) type Given = SmallVec<[(Arc<BufferCore>, Pointer); 8]>;

/// The buffers that a launch is given; `None` if it uses memory that does not belong to this device, or that another
/// library may use.
pub(crate) fn given_buffers(device: &DeviceCore, kernel: &LoadedKernel, args: &[u64]) -> Option<Given> {
    let mut given = Given::new();
    for pointer in kernel.pointers.iter() {
        let address = args[pointer.slot as usize];
        if address != 0 {
            let buffer = device.find_buffer(address)?;
            if buffer.shared.load(Ordering::Acquire) {
                return None;
            }
            given.push((buffer, *pointer));
        }
    }
    Some(given)
}

/// The elements at a pointer of a launch.
#[derive(Clone, Copy)]
pub(crate) struct Elements<'a> {
    pub(crate) kernel: &'a Arc<KernelMeta>,
    pub(crate) args: &'a [u64],
    pub(crate) of: Pointer,
}

/// Two launches touch the same element of a buffer, and one of them changes it: the later one's buffer, if known.
pub(crate) type Meeting = Option<u32>;

impl<'a> Elements<'a> {
    #[inline]
    pub(super) fn footprint(&self) -> &'a Footprint {
        self.kernel.footprint(self.of.slot)
    }

    /// Both may touch an element that one of them changes. True if unknown.
    pub(crate) fn meet(&self, other: &Elements<'_>) -> bool {
        self.meeting(other).is_some()
    }

    /// How both may touch an element that one of them changes.
    pub(crate) fn meeting(&self, later: &Elements<'_>) -> Option<Meeting> {
        let unknown = Some(later.of.buffer);
        if self.address() != later.address() {
            return unknown;
        }
        let (own, others) = (self.footprint(), later.footprint());
        let pairs = own.len() * others.len() - own.reads * others.reads;
        // Without access sets, nothing is known.
        if own.len() == 0 || others.len() == 0 || pairs > MOST_PAIRS {
            return unknown;
        }
        let is_read = |of: &Access| of.kind == AccessKind::Read;
        let meets = |y: &&Access| {
            let changes = !is_read(y);
            let mut own = own.accesses(&self.kernel.tasks);
            own.any(|x| (changes || !is_read(x)) && x.meets((y, later.args), self.args))
        };
        others.accesses(&later.kernel.tasks).find(meets).map(|y| Some(y.buffer))
    }

    /// Both launches are of one kernel, and touch the same elements in the same way.
    #[inline]
    pub(super) fn are_those_of(&self, other: &Elements<'_>) -> bool {
        let is_same = |slot: &u32| self.args[*slot as usize] == other.args[*slot as usize];
        let footprint = self.footprint();
        Arc::ptr_eq(self.kernel, other.kernel)
            && self.of == other.of
            && footprint.len() > 0
            && footprint.slots.iter().all(is_same)
    }

    #[inline]
    pub(super) fn address(&self) -> u64 {
        self.args[self.of.slot as usize]
    }
}

/// Whether two launches touch an element that one of them changes: the first buffer of the later one.
pub(super) fn meeting(
    (a, given_a): (&CapturedLaunch, &Given),
    (b, given_b): (&CapturedLaunch, &Given),
) -> Option<Meeting> {
    given_b.iter().find_map(|(buffer, of_b)| {
        let of_buffer =
            given_a.iter().filter(|(other, of_a)| Arc::ptr_eq(buffer, other) && (of_a.written || of_b.written));
        of_buffer.into_iter().find_map(|(_, of_a)| {
            let earlier = Elements { kernel: &a.kernel.meta, args: &a.args, of: *of_a };
            earlier.meeting(&Elements { kernel: &b.kernel.meta, args: &b.args, of: *of_b })
        })
    })
}

/// Whether two launches must keep their order.
pub(super) fn conflict(earlier: &(Arc<CapturedLaunch>, Given), later: &(Arc<CapturedLaunch>, Given)) -> bool {
    meeting((&earlier.0, &earlier.1), (&later.0, &later.1)).is_some()
}
