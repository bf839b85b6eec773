//! Checks the iterations of a kernel for races with the arguments of a launch, and reports which elements a launch
//! touches.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use octants_diag::{Sources, Span};
use octants_ir::{ArgLayout, BufferId, Const, Layout, Scalar};
use octants_passes::find_races::{Doing, IterationRace, LaunchValues, RaceBetween, RaceSearch, RacingIteration};
use octants_runtime::{Race, RaceAccess, RaceKind, Touch, Touched, Witness};

/// Maximum number of different arguments of a kernel that are checked for races.
const MOST_SEARCHES: usize = 16;

/// Checks for races before launches of a kernel.
pub(super) struct RaceCheck {
    search: Arc<RaceSearch>,
    sources: Sources,
    layout: ArgLayout,
    /// Hashes of the arguments that were looked at.
    seen: Mutex<HashSet<u64>>,
    /// Nothing remains to be checked.
    done: AtomicBool,
}

impl RaceCheck {
    pub fn new(search: Arc<RaceSearch>, sources: Sources, layout: ArgLayout) -> RaceCheck {
        RaceCheck { search, sources, layout, seen: Mutex::default(), done: AtomicBool::new(false) }
    }

    /// Whether a launch must be looked at.
    #[inline]
    pub fn is_open(&self) -> bool {
        !self.done.load(Ordering::Relaxed)
    }

    /// The races of a launch with these arguments, unless a similar launch was checked before.
    #[cold]
    pub fn find(&self, slots: &[u64]) -> Vec<Race> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let arguments = self.shape_of(slots);
        if seen.contains(&arguments) {
            return Vec::new();
        }
        let found = self.search.find(&Given { layout: &self.layout, slots });
        // A race is reported each time that it would happen.
        if found.is_empty() {
            seen.insert(arguments);
            self.done.store(seen.len() >= MOST_SEARCHES, Ordering::Relaxed);
        }
        found.into_iter().map(|race| self.race(race)).collect()
    }

    /// A hash of everything that determines the touched elements: numbers, extents, and which arrays are identical or
    /// overlap, and by how much.
    fn shape_of(&self, slots: &[u64]) -> u64 {
        let mut hasher = DefaultHasher::new();
        let addresses: Vec<usize> = self.layout.buffers.iter().flatten().map(|s| *s as usize).collect();
        for (i, slot) in slots.iter().enumerate().skip(self.layout.roots.len()) {
            match addresses.contains(&i) {
                true => addresses.iter().position(|a| slots[*a] == *slot).hash(&mut hasher),
                false => slot.hash(&mut hasher),
            }
        }
        let ranges: Vec<(u64, u64)> = self
            .search
            .buffers()
            .iter()
            .zip(&self.layout.buffers)
            .filter_map(|(buffer, slot)| {
                let slot = (*slot)? as usize;
                let extents = slots.get(slot + 1..slot + 1 + buffer.ndim as usize)?;
                let bytes: u64 = buffer.elem.leaves().iter().map(|s| u64::from(s.bytes())).sum();
                Some((slots[slot], extents.iter().fold(bytes, |all, n| all.saturating_mul(*n))))
            })
            .collect();
        for (n, (a, a_bytes)) in ranges.iter().enumerate() {
            for (b, b_bytes) in &ranges[n + 1..] {
                let apart = a.abs_diff(*b);
                (apart < if a < b { *a_bytes } else { *b_bytes }).then(|| b.wrapping_sub(*a)).hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    fn race(&self, found: IterationRace) -> Race {
        let number = |n: &str, side: &RacingIteration| match (found.between, side.iteration.is_empty()) {
            (RaceBetween::Iterations, _) => format!("iteration {}", indices(&side.iteration)),
            (RaceBetween::Blocks, true) => format!("{n} block"),
            (RaceBetween::Blocks, false) => format!("iteration {} of {n} block", indices(&side.iteration)),
            (RaceBetween::Sections, true) => format!("{n} section"),
            (RaceBetween::Sections, false) => format!("iteration {} of {n} section", indices(&side.iteration)),
        };
        let (of_first, of_second) = (number("one", &found.first), number("another", &found.second));
        let side = |side: RacingIteration, by: String| RaceAccess {
            touch: touch(side.doing),
            at: self.sources.location(side.span),
            by,
            launched_at: None,
        };
        let fix = fix_for_race(&found, &self.sources.location(found.of_loop));
        let kind = match found.between {
            RaceBetween::Iterations => RaceKind::Iterations,
            RaceBetween::Blocks | RaceBetween::Sections => RaceKind::Sections,
        };
        Race {
            kind,
            buffer: found.buffer,
            index: Some(found.index),
            first: side(found.first, of_first),
            second: side(found.second, of_second),
            fix,
        }
    }
}

/// A suggested fix, if the racing memory is known.
fn fix_for_race(race: &IterationRace, of_loop: &str) -> String {
    let name = &race.buffer;
    match race.between {
        RaceBetween::Iterations => {}
        RaceBetween::Blocks => return fix_for_overlap("qd.stream_parallel", "block"),
        RaceBetween::Sections => return fix_for_overlap("qd.graph.parallel", "section"),
    }
    let serial = format!("write `qd.loop_config(serialize=True)` above the loop at {of_loop} to run it in order");
    match (race.first.doing, race.second.doing) {
        (Doing::Writes, Doing::Writes) => format!(
            "let each iteration use a different element, update `{name}` by one atomic operation such as \
             `qd.atomic_add`, or {serial}"
        ),
        (Doing::Updates, _) | (_, Doing::Updates) => format!(
            "use the value that the atomic update returns, move the other access of `{name}` to a separate loop, or \
             {serial}"
        ),
        _ => format!("write to a different array than `{name}`, split the loop where it reads, or {serial}"),
    }
}

/// The suggested fix for groups that access the same elements.
pub(super) fn fix_for_overlap(with: &str, block: &str) -> String {
    format!("put both into one {block}, or write `{with}(allow_overlap=True)` if this is intended")
}

fn indices(of: &[i64]) -> String {
    match of {
        [one] => one.to_string(),
        all => format!("({})", all.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")),
    }
}

fn touch(doing: Doing) -> Touch {
    match doing {
        Doing::Reads => Touch::Read,
        Doing::Writes => Touch::Write,
        Doing::Updates => Touch::Update,
    }
}

/// The contents of the slots of a launch.
struct Given<'a> {
    layout: &'a ArgLayout,
    slots: &'a [u64],
}

impl LaunchValues for Given<'_> {
    fn param(&self, param: u32, leaf: u32) -> Option<Const> {
        let scalar = *self.layout.param_leaves.get(param as usize)?.get(leaf as usize)?;
        let slot = *self.slots.get((self.layout.params.get(param as usize)? + leaf) as usize)?;
        Some(match scalar {
            Scalar::U1 => Const::Int((slot & 1) as i64),
            Scalar::I8 => Const::Int((slot as i8).into()),
            Scalar::I16 => Const::Int((slot as i16).into()),
            Scalar::I32 => Const::Int((slot as i32).into()),
            Scalar::U8 => Const::Int((slot as u8).into()),
            Scalar::U16 => Const::Int((slot as u16).into()),
            Scalar::U32 => Const::Int((slot as u32).into()),
            Scalar::I64 | Scalar::U64 => Const::Int(slot as i64),
            Scalar::F32 => Const::Float(f32::from_bits(slot as u32).into()),
            Scalar::F64 => Const::Float(f64::from_bits(slot)),
            Scalar::F16 => return None,
        })
    }

    fn extent(&self, buffer: BufferId, axis: u32) -> Option<i64> {
        let slot = self.array(buffer)? + 1 + axis as usize;
        self.slots.get(slot).map(|n| *n as i64)
    }

    fn address(&self, buffer: BufferId) -> Option<u64> {
        self.slots.get(self.array(buffer)?).copied()
    }
}

/// A launch is unknown.
pub(super) struct Unknown;

impl LaunchValues for Unknown {
    fn param(&self, _: u32, _: u32) -> Option<Const> {
        None
    }

    fn extent(&self, _: BufferId, _: u32) -> Option<i64> {
        None
    }

    fn address(&self, _: BufferId) -> Option<u64> {
        None
    }
}

impl Given<'_> {
    fn array(&self, buffer: BufferId) -> Option<usize> {
        self.layout.buffers.get(buffer.index())?.map(|slot| slot as usize)
    }
}

/// Determines the elements that launches of a kernel certainly access.
pub(super) struct KernelWitness {
    search: Arc<RaceSearch>,
    sources: Sources,
    layout: ArgLayout,
    /// Slots of parameters that do not decide which elements a launch touches.
    stored_only: HashSet<usize>,
}

impl fmt::Debug for KernelWitness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelWitness").finish_non_exhaustive()
    }
}

impl KernelWitness {
    pub fn new(search: Arc<RaceSearch>, sources: Sources, layout: ArgLayout) -> KernelWitness {
        let slots_of = |p: u32| {
            let first = layout.params.get(p as usize).copied().unwrap_or(0) as usize;
            let count = layout.param_leaves.get(p as usize).map_or(0, |leaves| leaves.len());
            first..first + count
        };
        let stored_only = search.params_only_stored().into_iter().flat_map(slots_of).collect();
        KernelWitness { search, sources, layout, stored_only }
    }

    /// The identity of a buffer.
    fn memory(&self, buffer: BufferId, slots: &[u64]) -> Option<u64> {
        let mut hasher = DefaultHasher::new();
        let of = self.search.buffers().get(buffer.index())?;
        let slot = match &of.layout {
            Layout::Dense { shape, components, .. } => {
                let first = components.first()?;
                (first.place.base, shape).hash(&mut hasher);
                *self.layout.roots.get(first.root as usize)?
            }
            _ => {
                let slot = (*self.layout.buffers.get(buffer.index())?)?;
                slots.get(slot as usize + 1..(slot + 1 + of.ndim) as usize)?.hash(&mut hasher);
                slot
            }
        };
        slots.get(slot as usize)?.hash(&mut hasher);
        Some(hasher.finish())
    }

    /// The address of an element.
    fn address(&self, buffer: BufferId, index: &[i64], slots: &[u64]) -> Option<u64> {
        let of = self.search.buffers().get(buffer.index())?;
        match &of.layout {
            Layout::Dense { offset, components, .. } => {
                let first = components.first()?;
                let root = *slots.get(*self.layout.roots.get(first.root as usize)? as usize)?;
                let from_zero = index.iter().zip(offset).map(|(i, first)| u64::try_from(i - first).ok());
                Some(root + first.place.offset_of(&from_zero.collect::<Option<Vec<_>>>()?))
            }
            Layout::Contiguous => {
                let slot = (*self.layout.buffers.get(buffer.index())?)? as usize;
                let element: u64 = of.elem.leaves().iter().map(|s| u64::from(s.bytes())).sum();
                let extents = slots.get(slot + 1..slot + 1 + index.len())?;
                let position = index.iter().zip(extents).try_fold(0, |sum: u64, (i, extent)| {
                    sum.checked_mul(*extent)?.checked_add(u64::try_from(*i).ok()?)
                })?;
                Some(slots.get(slot)? + position * element)
            }
            Layout::Strided => {
                let slot = (*self.layout.buffers.get(buffer.index())?)? as usize;
                let first = slot + 1 + of.ndim as usize;
                let strides = slots.get(first..first + index.len())?;
                let offset = index
                    .iter()
                    .zip(strides)
                    .try_fold(0, |sum: i64, (i, stride)| sum.checked_add(i.checked_mul(*stride as i64)?))?;
                slots.get(slot)?.checked_add_signed(offset)
            }
            Layout::Flat(_) => None,
        }
    }
}

impl Witness for KernelWitness {
    fn is_decided_by(&self, slot: usize) -> bool {
        !self.stored_only.contains(&slot)
    }

    fn touches(&self, args: &[u64], near: &[i64]) -> Vec<Touched> {
        let launch = Given { layout: &self.layout, slots: args };
        let mut places: HashMap<Span, Arc<str>> = HashMap::new();
        let found = self.search.touches(&launch, near).into_iter().filter_map(|t| {
            let memory = self.memory(t.buffer, args)?;
            let address = self.address(t.buffer, &t.index, args);
            let at = places.entry(t.span).or_insert_with(|| self.sources.location(t.span).into()).clone();
            let (buffer, touch) = (self.search.name_of(t.buffer).into(), touch(t.doing));
            Some(Touched { memory, buffer, index: t.index, path: t.path, address, touch, at })
        });
        found.collect()
    }
}
