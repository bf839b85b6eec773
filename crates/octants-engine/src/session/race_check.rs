//! Checks the iterations of a kernel for races with the arguments of a launch, and reports which elements a launch
//! touches.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use octants_diag::{Sources, Span};
use octants_ir::{ArgLayout, Buffer, BufferId, Const, Layout, Scalar};
use octants_passes::find_races::{
    Doing, IterationRace, LaunchValues, RaceBetween, RaceSearch, RacingIteration, TouchedElement,
};
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
        let found = self.search.find(&Given {
            layout: &self.layout,
            buffers: self.search.buffers(),
            slots,
            reads_memory: false,
        });
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
        let launch = Given { layout: &self.layout, buffers: self.search.buffers(), slots, reads_memory: false };
        let ranges: Vec<Range<u64>> =
            (0..self.layout.buffers.len() as u32).filter_map(|buffer| launch.range(BufferId(buffer))).collect();
        for (n, a) in ranges.iter().enumerate() {
            for b in &ranges[n + 1..] {
                let overlaps = a.start < b.end && b.start < a.end;
                overlaps.then(|| b.start.wrapping_sub(a.start)).hash(&mut hasher);
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
            at: self.sources.users_location(side.span),
            by,
            launched_at: None,
        };
        let fix = fix_for_race(&found, &self.sources.users_location(found.of_loop));
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
    buffers: &'a [Buffer],
    slots: &'a [u64],
    /// The host may read what is in memory.
    reads_memory: bool,
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

    fn stride(&self, buffer: BufferId, axis: u32) -> Option<i64> {
        let of = self.buffers.get(buffer.index()).filter(|of| of.layout == Layout::Strided)?;
        self.slots.get(self.array(buffer)? + 1 + (of.ndim + axis) as usize).map(|bytes| *bytes as i64)
    }

    fn load(&self, buffer: BufferId, index: &[i64], leaf: usize) -> Option<Const> {
        if !self.reads_memory {
            return None;
        }
        let of = self.buffers.get(buffer.index())?;
        let scalar = *of.elem.leaves().get(leaf)?;
        let address = self.address_of(buffer, index, leaf)?;
        // SAFETY: the index is inside the array, whose memory a launch with these slots may read. The host may too,
        // and has waited for the work that writes it.
        unsafe { read_scalar(scalar, address as *const u8) }
    }

    fn locate(&self, buffer: BufferId, index: &[i64], leaf: usize) -> Option<u64> {
        self.address_of(buffer, index, leaf)
    }

    fn overlap(&self, a: BufferId, b: BufferId) -> bool {
        let ranges = self.range(a).zip(self.range(b));
        a != b && ranges.is_some_and(|(a, b)| a.start < b.end && b.start < a.end)
    }
}

/// A scalar in memory.
///
/// # Safety
/// The address is that of a scalar of this type, which may be read.
unsafe fn read_scalar(scalar: Scalar, at: *const u8) -> Option<Const> {
    // SAFETY: the contract above; elements of packed structs may be unaligned.
    unsafe {
        Some(match scalar {
            Scalar::U1 => Const::Int(i64::from(at.read_unaligned() & 1)),
            Scalar::I8 => Const::Int(at.cast::<i8>().read_unaligned().into()),
            Scalar::I16 => Const::Int(at.cast::<i16>().read_unaligned().into()),
            Scalar::I32 => Const::Int(at.cast::<i32>().read_unaligned().into()),
            Scalar::U8 => Const::Int(at.read_unaligned().into()),
            Scalar::U16 => Const::Int(at.cast::<u16>().read_unaligned().into()),
            Scalar::U32 => Const::Int(at.cast::<u32>().read_unaligned().into()),
            Scalar::I64 | Scalar::U64 => Const::Int(at.cast::<i64>().read_unaligned()),
            Scalar::F32 => Const::Float(at.cast::<f32>().read_unaligned().into()),
            Scalar::F64 => Const::Float(at.cast::<f64>().read_unaligned()),
            Scalar::F16 => return None,
        })
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

    fn stride(&self, _: BufferId, _: u32) -> Option<i64> {
        None
    }
}

impl Given<'_> {
    /// The addresses from the lowest to the highest element of an array.
    fn range(&self, buffer: BufferId) -> Option<Range<u64>> {
        let (of, first) = (self.buffers.get(buffer.index())?, self.address(buffer)?);
        let bytes: i64 = of.elem.leaves().iter().map(|s| i64::from(s.bytes())).sum();
        let mut ends = (0_i64, 0_i64);
        let mut row = bytes;
        for axis in (0..of.ndim).rev() {
            let extent = self.extent(buffer, axis)?;
            let stride = self.stride(buffer, axis).unwrap_or(row);
            let last = stride.saturating_mul((extent - 1).max(0));
            (ends.0, ends.1) = (ends.0.saturating_add(last.min(0)), ends.1.saturating_add(last.max(0)));
            row = row.saturating_mul(extent);
        }
        Some(first.saturating_add_signed(ends.0)..first.saturating_add_signed(ends.1).saturating_add_signed(bytes))
    }

    /// The address of a scalar of an element, by its number among the element's scalars.
    fn address_of(&self, buffer: BufferId, index: &[i64], leaf: usize) -> Option<u64> {
        let of = self.buffers.get(buffer.index())?;
        if let Layout::Dense { offset, components, .. } = &of.layout {
            let component = components.get(leaf).filter(|_| !of.is_packed())?;
            let root = *self.slots.get(*self.layout.roots.get(component.root as usize)? as usize)?;
            let from_zero = index.iter().zip(offset).map(|(i, first)| u64::try_from(i - first).ok());
            return Some(root + component.place.offset_of(&from_zero.collect::<Option<Vec<_>>>()?));
        }
        if matches!(of.layout, Layout::Flat(_)) {
            return None;
        }
        let leaves = of.elem.leaves();
        let bytes = |leaves: &[Scalar]| leaves.iter().map(|s| i64::from(s.bytes())).sum::<i64>();
        let (mut row, mut offset) = (bytes(&leaves), bytes(leaves.get(..leaf)?));
        for (axis, i) in index.iter().enumerate().rev() {
            let stride = self.stride(buffer, axis as u32).unwrap_or(row);
            offset = offset.checked_add(i.checked_mul(stride)?)?;
            row = row.checked_mul(self.extent(buffer, axis as u32)?)?;
        }
        self.address(buffer)?.checked_add_signed(offset)
    }

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
    depends_on_memory: bool,
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
        let depends_on_memory = search.depends_on_memory();
        KernelWitness { search, sources, layout, stored_only, depends_on_memory }
    }

    fn launch<'a>(&'a self, args: &'a [u64], reads_memory: bool) -> Given<'a> {
        Given { layout: &self.layout, buffers: self.search.buffers(), slots: args, reads_memory }
    }

    fn touched(&self, launch: &Given<'_>, found: Vec<TouchedElement>) -> Vec<Touched> {
        let mut places: HashMap<Span, Arc<str>> = HashMap::new();
        let mut memories: HashMap<BufferId, (Option<u64>, Arc<str>)> = HashMap::new();
        let found = found.into_iter().filter_map(|t| {
            let of = |b| (self.memory(b, launch.slots), self.search.name_of(b).into());
            let (memory, buffer) = memories.entry(t.buffer).or_insert_with(|| of(t.buffer)).clone();
            let address = launch.address_of(t.buffer, &t.index, 0);
            let at = places.entry(t.span).or_insert_with(|| self.sources.users_location(t.span).into()).clone();
            let touch = touch(t.doing);
            Some(Touched { memory: memory?, buffer, index: t.index, path: t.path, address, touch, at })
        });
        found.collect()
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
}

impl Witness for KernelWitness {
    fn is_decided_by(&self, slot: usize) -> bool {
        !self.stored_only.contains(&slot)
    }

    fn touches(&self, args: &[u64], near: &[i64]) -> Vec<Touched> {
        let launch = self.launch(args, false);
        self.touched(&launch, self.search.touches(&launch, near))
    }

    fn all_touches(&self, args: &[u64], reads_memory: bool) -> Vec<Touched> {
        let launch = self.launch(args, reads_memory);
        self.touched(&launch, self.search.all_touches(&launch))
    }

    fn depends_on_memory(&self) -> bool {
        self.depends_on_memory
    }
}
