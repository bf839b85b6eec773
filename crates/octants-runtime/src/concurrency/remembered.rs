//! What the last launches have found out, by their arguments: [`Buffers`] and [`Meetings`].

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use smallvec::SmallVec;

use super::elements::{Elements, Meeting};
use super::word_hash::hash_of;
use crate::cores::{BufferCore, DeviceCore};
use crate::kernel::{LoadedKernel, Pointer};
use crate::kernel_meta::KernelMeta;

/// Number of addresses whose buffers are remembered.
const MOST_BUFFERS: usize = 256;
/// Number of pairs of launches whose comparisons are remembered.
const MOST_MEETINGS: usize = 256;
/// Maximum number of arguments that decide a comparison which is remembered.
const MOST_WORDS: usize = 16;

/// The buffers at some addresses.
#[derive(Default)]
pub(super) struct Buffers {
    known: Vec<(u64, Weak<BufferCore>)>,
}

impl Buffers {
    /// Collects the buffers that a launch is given. False if it uses memory that does not belong to this device, or
    /// that another library may use.
    pub(super) fn find(
        &mut self,
        device: &DeviceCore,
        (kernel, args): (&LoadedKernel, &[u64]),
        given: &mut Vec<(Arc<BufferCore>, Pointer)>,
    ) -> bool {
        for pointer in kernel.pointers.iter() {
            let address = args[pointer.slot as usize];
            if address == 0 {
                continue;
            }
            let Some(buffer) = self.at(device, address) else { return false };
            if buffer.shared.load(Ordering::Acquire) {
                return false;
            }
            given.push((buffer, *pointer));
        }
        true
    }

    #[inline]
    fn at(&mut self, device: &DeviceCore, address: u64) -> Option<Arc<BufferCore>> {
        if self.known.is_empty() {
            self.known.resize_with(MOST_BUFFERS, Default::default);
        }
        let (known, buffer) = &mut self.known[hash_of([address]) as usize % MOST_BUFFERS];
        if *known == address
            && let Some(buffer) = buffer.upgrade()
            // Others may be there after retired memory was freed.
            && !buffer.retired.load(Ordering::Acquire)
        {
            return Some(buffer);
        }
        let found = device.find_buffer(address)?;
        (*known, *buffer) = (address, Arc::downgrade(&found));
        Some(found)
    }
}

/// The results of comparisons of launches.
#[derive(Default)]
pub(super) struct Meetings {
    known: Vec<Option<Box<Compared>>>,
}

/// A comparison of two launches.
struct Compared {
    /// Of the earlier and the later one. Kept, so that no other kernel has the address.
    kernels: [Arc<KernelMeta>; 2],
    slots: [u32; 2],
    /// The arguments that decide.
    words: SmallVec<[u64; MOST_WORDS]>,
    meeting: Option<Meeting>,
}

impl Meetings {
    /// As [`Elements::meeting`].
    pub(super) fn meeting<'a>(&mut self, earlier: &Elements<'a>, later: &Elements<'a>) -> Option<Meeting> {
        if earlier.address() != later.address() {
            return Some(later.of.buffer);
        }
        if self.known.is_empty() {
            self.known.resize_with(MOST_MEETINGS, || None);
        }
        let kernels = [earlier, later].map(|e| Arc::as_ptr(e.kernel) as u64);
        let slots = u64::from(earlier.of.slot) << 32 | u64::from(later.of.slot);
        let place = hash_of([kernels[0], kernels[1], slots, earlier.address()]) as usize % MOST_MEETINGS;
        let known = &mut self.known[place];
        if let Some(compared) = known
            && compared.is_of(earlier, later)
        {
            return compared.meeting;
        }
        let meeting = earlier.meeting(later);
        if deciding(earlier, later).count() <= MOST_WORDS {
            let (kernels, slots) = ([earlier, later].map(|e| e.kernel.clone()), [earlier.of.slot, later.of.slot]);
            let words = deciding(earlier, later).collect();
            *known = Some(Box::new(Compared { kernels, slots, words, meeting }));
        }
        meeting
    }
}

impl Compared {
    #[inline]
    fn is_of<'a>(&self, earlier: &Elements<'a>, later: &Elements<'a>) -> bool {
        Arc::ptr_eq(&self.kernels[0], earlier.kernel)
            && Arc::ptr_eq(&self.kernels[1], later.kernel)
            && self.slots == [earlier.of.slot, later.of.slot]
            && self.words.iter().copied().eq(deciding(earlier, later))
    }
}

/// The arguments of both launches that decide whether they meet.
#[inline]
fn deciding<'a>(earlier: &Elements<'a>, later: &Elements<'a>) -> impl Iterator<Item = u64> + use<'a> {
    let words = |of: Elements<'a>| of.footprint().slots.iter().map(move |slot| of.args[*slot as usize]);
    words(*earlier).chain(words(*later))
}
