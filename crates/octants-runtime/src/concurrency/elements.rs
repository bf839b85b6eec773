//! [`Elements`]: the elements of a buffer that a launch touches, and whether two launches conflict there.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use octants_artifact::Access;
use smallvec::SmallVec;

use crate::cores::{BufferCore, DeviceCore};
use crate::kernel::{LoadedKernel, Pointer};

/// Maximum number of pairs of accesses that are compared for two launches. With more, whole buffers are compared.
const MOST_PAIRS: usize = 64;
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
pub(crate) struct Elements<'a> {
    pub(crate) kernel: &'a LoadedKernel,
    pub(crate) args: &'a [u64],
    pub(crate) of: Pointer,
}

impl Elements<'_> {
    fn accesses(&self) -> impl Iterator<Item = &Access> + Clone {
        let tasks = self.kernel.meta.tasks.iter().flat_map(|task| &task.access);
        tasks.filter(|access| Some(access.buffer) == self.of.buffer)
    }

    /// Both may touch an element that one of them changes. True if unknown.
    pub(crate) fn meet(&self, other: &Elements<'_>) -> bool {
        if self.of.buffer.is_none() || other.of.buffer.is_none() || self.address() != other.address() {
            return true;
        }
        if self.accesses().count() * other.accesses().count() > MOST_PAIRS {
            return true;
        }
        let (a, b) = (self.args, other.args);
        self.accesses().any(|x| other.accesses().any(|y| x.meets((y, b), a)))
    }

    fn address(&self) -> u64 {
        self.args[self.of.slot as usize]
    }
}
