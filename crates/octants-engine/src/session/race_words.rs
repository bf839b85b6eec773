//! [`RaceWords`]: the shadow memory in which instrumented kernels record accesses to each element, and the launch
//! parameters that locate it.
//!
//! Words are allocated and zeroed when a launch first needs them, and are reused by later launches. Each launch has
//! its own epochs, which distinguish its words from older ones. When the epochs are used up, all words are freed. A
//! launch whose tasks run several times, or that is captured for replay, counts its epochs on the device.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use octants_ir::{ArgLayout, Buffer as IrBuffer, Layout};
use octants_passes::RaceWatch;
use octants_passes::check_races::{EPOCH_BITS, NOTE_WORDS};
use octants_runtime::{Buffer, Device, Stream, nesting};

use crate::error::Error;

/// Epochs that the host gives; those above are counted by launches.
const GIVEN: u64 = 1 << (EPOCH_BITS - 1);
/// The bits by which launches count.
const COUNTED: u64 = (1 << (EPOCH_BITS - 2)) - 1;
/// Maximum bytes of words. Beyond it, the least recently used ones are freed.
const MANY_BYTES: u64 = 2 << 30;

/// How a launch computes the number and the owner of the shadow words of a buffer.
#[derive(Debug, Clone, PartialEq)]
struct Beside {
    /// First slot of the buffer of words.
    slot: u32,
    /// Slot with the address of the memory that they shadow, and an offset in bytes.
    address: (u32, u64),
    /// First slot of extents and their number.
    extents: (u32, u32),
    /// Factor of the extents: the scalars per element.
    scalars: u64,
    /// The accesses that they compare.
    between: Between,
}

/// The accesses that shadow words compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Between {
    /// Those of iterations, or of blocks of threads.
    Iterations,
    /// Those of a block's threads, or its subgroups.
    Threads,
    /// Those of a subgroup's threads.
    Lanes,
    /// Those of concurrent groups, in one of the sets of words for them.
    Groups(u32),
}

/// The argument slots of a watched kernel that describe its shadow words.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RaceSlots {
    notes: u32,
    epoch: u32,
    counted: u32,
    epochs: u64,
    repeats: bool,
    words: Vec<Beside>,
}

impl RaceSlots {
    /// The slots of a kernel with these buffers.
    pub fn of(watch: &RaceWatch, layout: &ArgLayout, buffers: &[IrBuffer]) -> RaceSlots {
        let slot = |b: usize| layout.buffers[b].expect("compiler bug: race words that are not an ndarray");
        let beside =
            |(&(of, words, scalars), between): (&(octants_ir::BufferId, octants_ir::BufferId, u64), Between)| {
                let (of, words) = (of.index(), words.index());
                match &buffers[of].layout {
                    Layout::Dense { shape, components, .. } => {
                        let first = components.first();
                        let address = first.map_or((0, 0), |c| (layout.roots[c.root as usize], c.place.base));
                        let scalars = shape.iter().product::<u64>() * scalars;
                        Beside { slot: slot(words), address, extents: (0, 0), scalars, between }
                    }
                    _ => {
                        let extents = (slot(of) + 1, buffers[of].ndim);
                        Beside { slot: slot(words), address: (slot(of), 0), extents, scalars, between }
                    }
                }
            };
        let words = watch.words.iter().map(|w| (w, Between::Iterations));
        let in_phases = watch.phase_words.iter().map(|w| (w, Between::Threads));
        let in_subgroups = watch.subgroup_words.iter().map(|w| (w, Between::Lanes));
        let mut sets = HashMap::new();
        let of_groups = watch.group_words.iter().map(|w| {
            let set = sets.entry(w.0).and_modify(|set| *set += 1).or_insert(0);
            (w, Between::Groups(*set))
        });
        RaceSlots {
            notes: slot(watch.notes.index()),
            epoch: layout.params[watch.epoch as usize],
            counted: layout.params[watch.counted as usize],
            epochs: watch.epochs,
            repeats: watch.repeats,
            words: words.chain(in_phases).chain(in_subgroups).chain(of_groups).map(beside).collect(),
        }
    }
}

impl RaceSlots {
    /// How many buffers have words.
    pub fn watched_buffers(&self) -> usize {
        self.words.len()
    }
}

/// Words of some memory.
#[derive(Debug)]
struct Known {
    words: Buffer,
    used: u64,
}

/// The owner of shadow words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    /// The address of the memory.
    address: u64,
    /// The number of its scalars.
    number: u64,
    /// The accesses that they compare.
    between: Between,
}

#[derive(Debug, Default)]
struct State {
    words: HashMap<Key, Known>,
    /// Notes of each stream.
    notes: HashMap<u32, Buffer>,
    bytes: u64,
    /// Epochs given so far.
    given: u64,
    launches: u64,
}

/// The words of a session.
#[derive(Debug, Default)]
pub(super) struct RaceWords(Mutex<State>);

impl RaceWords {
    /// Fills the slots of a launch on a stream.
    pub fn fill(&self, device: &Device, at: &RaceSlots, stream: &Stream, slots: &mut [u64]) -> Result<(), Error> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.given + at.epochs >= GIVEN {
            state.clear();
            state.given = 0;
        }
        state.launches += 1;
        for beside in &at.words {
            let (first, count) = (beside.extents.0 as usize, beside.extents.1 as usize);
            let extents = slots[first..first + count].iter().product::<u64>();
            let count = extents * beside.scalars;
            let address = slots[beside.address.0 as usize] + beside.address.1;
            let (slot, number) = (beside.slot as usize, count.max(1));
            slots[slot] = state.words_of(device, Key { address, number, between: beside.between })?;
            slots[slot + 1] = count;
        }
        let notes = match state.notes.get(&stream.number()) {
            Some(notes) => notes.ptr()?,
            None => {
                let notes = device.allocate(8 * NOTE_WORDS)?;
                let address = notes.ptr()?;
                state.notes.insert(stream.number(), notes);
                address
            }
        };
        slots[at.notes as usize] = notes;
        slots[at.notes as usize + 1] = NOTE_WORDS;
        let counts = at.repeats || nesting::capturing();
        (slots[at.epoch as usize], slots[at.counted as usize]) =
            if counts { (GIVEN, COUNTED) } else { (state.given, 0) };
        state.given += at.epochs;
        Ok(())
    }
}

impl State {
    /// The address of this many shadow words.
    fn words_of(&mut self, device: &Device, key: Key) -> Result<u64, Error> {
        let now = self.launches;
        if let Some(known) = self.words.get_mut(&key) {
            known.used = now;
            return Ok(known.words.ptr()?);
        }
        let bytes = key.number.saturating_mul(8);
        while self.bytes.saturating_add(bytes) > MANY_BYTES {
            let old = self.words.iter().filter(|(_, known)| known.used < now).min_by_key(|(_, known)| known.used);
            let Some(old) = old.map(|(key, _)| *key) else { break };
            self.words.remove(&old);
            self.bytes -= 8 * old.number;
        }
        let words = device.allocate(bytes)?;
        let address = words.ptr()?;
        self.bytes += bytes;
        self.words.insert(key, Known { words, used: now });
        Ok(address)
    }

    fn clear(&mut self) {
        self.words.clear();
        self.bytes = 0;
    }
}
