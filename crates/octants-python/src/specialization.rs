//! A compiled kernel for one key: its guards, and how a launch fills its slots.
//!
//! [`described`] is the compiler's description of the arguments; [`build`] constructs a specialization.

mod build;
mod described;
mod split_arrays;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use octants_engine::frontend::NdarrayDesc;
use octants_engine::runtime::HostArray;
use octants_engine::{Executable, Session};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};
use smallvec::SmallVec;

pub use self::described::Described;
pub use self::split_arrays::SplitArray;
use crate::argument::{Gathered, Span};
use crate::array_view::Unwritable;
use crate::buffer::Buffer;
use crate::constant::Constant;
use crate::element_types::scalar_of;
use crate::guard::{Guard, LiveNumber};
use crate::guard_group::GuardGroup;
use crate::launch_history::LaunchHistory;
use crate::result::ResultKind;

/// The slots of one launch.
pub type Slots = SmallVec<[u64; 64]>;

/// More words than these are copied at once.
const MOST_WORD_BY_WORD: usize = 16;

/// Words of the arguments that go to slots of the code.
#[derive(Clone)]
pub struct Copy {
    leaf: u32,
    /// First word.
    pub from: u32,
    to: u32,
    count: u32,
}

impl Copy {
    /// The same from another word on.
    pub fn moved_to(&self, from: u32) -> Copy {
        Copy { from, ..self.clone() }
    }

    /// The same copies, with adjacent ones joined.
    fn join(copies: &[Copy]) -> Vec<Copy> {
        let mut joined: Vec<Copy> = Vec::with_capacity(copies.len());
        for copy in copies {
            match joined.last_mut() {
                Some(last) if last.from + last.count == copy.from && last.to + last.count == copy.to => {
                    last.count += copy.count;
                }
                _ => joined.push(copy.clone()),
            }
        }
        joined
    }

    /// Copies the words.
    #[inline]
    pub fn make(&self, words: &[u64], slots: &mut [u64]) {
        let (from, to, count) = (self.from as usize, self.to as usize, self.count as usize);
        let (words, slots) = (&words[from..from + count], &mut slots[to..to + count]);
        if count > MOST_WORD_BY_WORD {
            return slots.copy_from_slice(words);
        }
        for (slot, word) in slots.iter_mut().zip(words) {
            // A wide load of words that were just stored one by one would wait for these stores to complete.
            // SAFETY: a reference is valid for reads.
            *slot = unsafe { std::ptr::from_ref(word).read_volatile() };
        }
    }
}

/// An object that a key names by its address.
enum Alive {
    Weak(Py<PyWeakrefReference>),
    Strong(Py<PyAny>),
}

impl Alive {
    #[inline]
    fn is_alive(&self, py: Python<'_>) -> bool {
        match self {
            Alive::Weak(weak) => weak.bind(py).upgrade().is_some(),
            Alive::Strong(_) => true,
        }
    }
}

/// Memory that the code reaches without an argument: a field's root or a captured ndarray.
struct Fixed {
    buffer: Py<Buffer>,
    /// The ndarray itself, whose death would free the memory.
    owner: Option<Py<PyAny>>,
}

/// Compiled code, with its key and guards.
pub struct Specialization {
    /// The key of the arguments that it was compiled for.
    pub key: Box<[u64]>,
    /// The serial of the program that owns the code.
    serial: u64,
    /// The code.
    pub code: Executable,
    /// How the result is rebuilt.
    pub result: ResultKind,
    slots: Box<[u64]>,
    copies: Box<[Copy]>,
    /// The same; one copy for adjacent words that go to adjacent slots. Their leaf is that of the first word.
    joined_copies: Box<[Copy]>,
    groups_of_guards: Box<[GuardGroup]>,
    guards: Box<[Guard]>,
    numbers: Box<[LiveNumber]>,
    alive: Box<[(u32, Alive)]>,
    fixed: Box<[Fixed]>,
    arrays: Box<[ArraySlot]>,
    captured: Box<[CapturedArray]>,
    /// The code was made for arrays that share memory.
    pub may_alias: bool,
    /// Arrays that are the same are one buffer in the code, as derivatives need.
    pub unites_arrays: bool,
    /// The non-argument arrays that shared memory in the call that it was compiled for.
    united: OnceLock<Sharing>,
    /// Captured numbers that are compiled in.
    pub constants: Vec<Constant>,
    /// The checkpoint labels, with the user's objects for them.
    pub checkpoints: Vec<(i64, Py<PyAny>)>,
    /// Some loop's trip count may come from memory.
    pub may_record_trip_counts: bool,
    /// Some of its arrays may have a gradient.
    pub may_have_gradient: bool,
    /// For derivatives: some of its arrays has the gradient or dual. Recalled code is taken to have.
    pub has_shadow_buffers: bool,
    /// The gradient may depend on such a loop.
    pub records_trip_counts: AtomicBool,
    /// Launches are recorded for manual gradients.
    pub sees_launches: AtomicBool,
    /// Launches that a manual `kernel.grad()` may refer to.
    pub seen: LaunchHistory,
    /// The arrays that are split over ranks.
    pub split: Vec<SplitArray>,
    /// The code for the other devices that they are split over.
    pub peers: Vec<Executable>,
    /// No other specialization ever has it.
    pub number: u64,
}

/// A non-argument array that the code uses. Its address is in a slot.
struct CapturedArray {
    slot: u32,
    /// If extents follow the address: their number, and the bytes of an element.
    extents: u32,
    bytes: u64,
}

impl CapturedArray {
    fn of(slot: u32, desc: &NdarrayDesc) -> CapturedArray {
        // The address of a split array is that of row zero, which may be another rank's.
        let rows = u64::from(desc.split_axis.is_none());
        let bytes = rows * u64::from(scalar_of(&desc.elem).bytes()) * desc.elem.leaf_count() as u64;
        CapturedArray { slot, extents: desc.ndim, bytes }
    }

    /// Its address and extents.
    fn words<'a>(&self, slots: &'a [u64]) -> &'a [u64] {
        &slots[self.slot as usize..][..1 + self.extents as usize]
    }

    #[inline]
    fn span(&self, slots: &[u64]) -> (u64, u64) {
        let (at, count) = (self.slot as usize, self.extents as usize);
        (slots[at], slots[at] + self.bytes * slots[at + 1..at + 1 + count].iter().product::<u64>())
    }
}

/// Pairs of arrays that share memory, and whether they are the same. The first is a non-argument array. The second is
/// an index into the arguments followed by the other arrays.
type Sharing = SmallVec<[(usize, usize, bool); 4]>;

/// An array argument that the code uses.
struct ArraySlot {
    leaf: u32,
    /// Its parameter, and members from there.
    place: (u32, Vec<String>),
    /// Slot of its address.
    slot: u32,
    /// Some task writes to it.
    written: bool,
}

impl ArraySlot {
    fn new(leaf: usize, place: &(u32, Vec<String>), slot: u32, written: bool) -> ArraySlot {
        ArraySlot { leaf: leaf as u32, place: place.clone(), slot, written }
    }
}

impl Specialization {
    /// Visits its objects for the garbage collector. Numbers and weak references refer to nothing.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.result.traverse(visit)?;
        self.groups_of_guards.iter().try_for_each(|g| g.traverse(visit))?;
        self.guards.iter().try_for_each(|g| g.traverse(visit))?;
        self.fixed.iter().try_for_each(|f| visit.call(&f.owner))?;
        self.alive.iter().try_for_each(|(_, a)| match a {
            Alive::Weak(_) => Ok(()),
            Alive::Strong(object) => visit.call(object),
        })
    }

    /// Notes that the gradient depends on no loop whose trip count comes from memory.
    pub fn has_no_trip_counts(&self) {
        self.records_trip_counts.store(false, Ordering::Relaxed);
        self.sees_launches.store(false, Ordering::Relaxed);
    }

    /// Describes changes since compilation, for messages.
    pub fn changed(&self, args: &[Bound<'_, PyAny>]) -> Option<(u32, String)> {
        let (mut slots, mut gathered) = (Slots::from_slice(&self.slots), Gathered::of(self.serial, false));
        let differs = |g: &&Guard| matches!(g.holds(args, &mut slots, &mut gathered), Ok(false));
        let grouped = self.groups_of_guards.iter().flat_map(GuardGroup::guards);
        grouped.chain(&*self.guards).find(differs).map(Guard::path)
    }

    /// No object of the key has died: a new one at its address would be mistaken for it. Its code suits the order of
    /// launches.
    #[inline]
    pub fn is_alive(&self, py: Python<'_>, session: &Session) -> bool {
        self.code.suits_order(session) && self.alive.iter().all(|(_, object)| object.is_alive(py))
    }

    /// As [`Specialization::is_alive`], for the objects of one parameter.
    #[inline]
    pub fn is_alive_for(&self, param: u32, py: Python<'_>) -> bool {
        // In the order of the parameters.
        let first = self.alive.partition_point(|(p, _)| *p < param);
        self.alive[first..].iter().take_while(|(p, _)| *p == param).all(|(_, object)| object.is_alive(py))
    }

    /// Fills the slots of a launch with these arguments. False if a guard fails. `fresh` code was compiled from them a
    /// moment ago: a value that differs now differs each time it is read.
    #[inline]
    pub fn fill<'py>(
        &self,
        gathered: &mut Gathered<'py>,
        args: &[Bound<'py, PyAny>],
        slots: &mut Slots,
        fresh: bool,
    ) -> PyResult<bool> {
        slots.clear();
        slots.extend_from_slice(&self.slots);
        let words: &[u64] = &gathered.words;
        let filled: &mut [u64] = slots;
        self.joined_copies.iter().for_each(|copy| copy.make(words, filled));
        gathered.hosted.clear();
        if self.reads_objects() && !self.read_objects(gathered, args, slots, fresh)? {
            return Ok(false);
        }
        if self.captured.is_empty() {
            return Ok(true);
        }
        if self.unites_arrays {
            let sharing = self.sharing(slots, gathered);
            return Ok(match fresh {
                true => self.united.set(sharing).is_ok(),
                false => self.united.get() == Some(&sharing),
            });
        }
        Ok(self.may_alias || fresh || !self.shares_memory(slots, &gathered.spans))
    }

    /// Checks the guards on compile-time arguments, and fills the slots of the values that they hold. False if a guard
    /// fails.
    #[inline]
    pub fn read_objects<'py>(
        &self,
        gathered: &mut Gathered<'py>,
        args: &[Bound<'py, PyAny>],
        slots: &mut Slots,
        fresh: bool,
    ) -> PyResult<bool> {
        gathered.hosted.clear();
        for group in &*self.groups_of_guards {
            if !group.holds(args, slots, gathered)? && !fresh {
                return Ok(false);
            }
        }
        for guard in &*self.guards {
            if guard.holds(args, slots, gathered)? {
                continue;
            }
            if !fresh {
                return Ok(false);
            }
            if guard.fills_slots() {
                let (_, path) = guard.path();
                return Err(PyTypeError::new_err(format!(
                    "`{}` is not an array of the type that the kernel was compiled for",
                    path.trim_start_matches('.')
                )));
            }
        }
        match &gathered.numbers {
            None => self.numbers.iter().try_for_each(|number| number.read(args, slots))?,
            Some(given) => self.numbers.iter().zip(given).for_each(|(n, value)| slots[n.slot()] = *value),
        }
        Ok(true)
    }

    /// Whether a launch reads attributes and items of compile-time arguments.
    #[inline]
    pub fn reads_objects(&self) -> bool {
        !(self.guards.is_empty() && self.groups_of_guards.is_empty() && self.numbers.is_empty())
    }

    /// Fills the slots of the numbers that arguments hold.
    pub fn read_numbers(&self, args: &[Bound<'_, PyAny>], slots: &mut Slots) -> PyResult<()> {
        self.numbers.iter().try_for_each(|number| number.read(args, slots))
    }

    /// Argument words, and their slots.
    pub fn copies(&self) -> &[Copy] {
        &self.copies
    }

    /// Addresses and extents of the non-argument arrays.
    #[inline]
    pub fn captured_words<'a>(&'a self, slots: &'a [u64]) -> impl Iterator<Item = u64> + 'a {
        self.captured.iter().flat_map(|memory| memory.words(slots).iter().copied())
    }

    /// The non-argument arrays that share memory with others in this call: both, and whether they are the same.
    fn sharing(&self, slots: &[u64], gathered: &Gathered<'_>) -> Sharing {
        let meets = |(low, high): (u64, u64), (l, h): (u64, u64)| low < h && l < high;
        let mut out = Sharing::new();
        for (i, memory) in self.captured.iter().enumerate() {
            let (own, span) = (memory.words(slots), memory.span(slots));
            let arguments = gathered.spans.iter().map(|s| ((s.low, s.high), gathered.words_of(s)));
            let others = self.captured[..i].iter().map(|m| (m.span(slots), m.words(slots)));
            let both = arguments.chain(others).enumerate();
            out.extend(both.filter(|(_, (s, _))| meets(*s, span)).map(|(k, (_, words))| (i, k, words == own)));
        }
        out
    }

    /// Whether an array that the code reaches by two paths is the same in this call. The key does not contain it.
    pub fn shares_memory(&self, slots: &[u64], spans: &[Span]) -> bool {
        self.captured.iter().enumerate().any(|(i, memory)| {
            let (low, high) = memory.span(slots);
            let meets = |(l, h): (u64, u64)| low < h && l < high;
            spans.iter().any(|s| meets((s.low, s.high))) || self.captured[..i].iter().any(|m| meets(m.span(slots)))
        })
    }

    /// The slot values that are read from objects at launch. Other modes of the same kernel read the same ones.
    pub fn numbers(&self, slots: &[u64]) -> SmallVec<[u64; 4]> {
        self.numbers.iter().map(|n| slots[n.slot()]).collect()
    }

    /// A slot that differs between two launches and is not such a number. Returns the argument's index among all
    /// leaves, if the slot is an argument's.
    pub fn changed_slot(&self, one: &[u64], other: &[u64]) -> Option<Option<u32>> {
        let is_number = |i: usize| self.numbers.iter().any(|n| n.slot() == i);
        let i = (0..one.len()).find(|&i| other.get(i) != Some(&one[i]) && !is_number(i))? as u32;
        Some(self.copies.iter().find(|c| (c.to..c.to + c.count).contains(&i)).map(|c| c.leaf))
    }

    /// Some task writes to an array argument.
    pub fn writes(&self, leaf: u32) -> bool {
        self.arrays.iter().any(|a| a.leaf == leaf && a.written)
    }

    /// The name of an array argument. `parameter` names the parameters.
    pub fn name_of<'a>(&self, leaf: u32, parameter: impl Fn(usize) -> &'a str) -> String {
        let Some(array) = self.arrays.iter().find(|a| a.leaf == leaf) else { return String::from("an argument") };
        let (param, members) = &array.place;
        std::iter::once(parameter(*param as usize))
            .chain(members.iter().map(String::as_str))
            .collect::<Vec<_>>()
            .join(".")
    }

    /// Checks that do not change which code runs: freed memory, values of another type, read-only arrays that are
    /// written. `parameter` names the parameters.
    #[inline]
    pub fn check<'a>(
        &self,
        py: Python<'_>,
        gathered: &Gathered<'_>,
        parameter: impl Fn(usize) -> &'a str,
    ) -> PyResult<()> {
        if let Some(dead) = self.fixed.iter().find(|f| !f.buffer.get().is_alive()) {
            dead.buffer.get().address(py)?;
        }
        if let Some(unfit) = gathered.unfit.iter().find(|u| self.copies.iter().any(|c| c.leaf == u.leaf)) {
            return Err(unfit.error.clone_ref(py));
        }
        for span in &gathered.spans {
            if let Some(why) = span.unwritable
                && self.writes(span.leaf)
            {
                return Err(cannot_write(why, &self.name_of(span.leaf, parameter)));
            }
        }
        Ok(())
    }

    /// The arrays in the host's memory that the code uses.
    pub fn host_arrays(&self, gathered: &Gathered<'_>) -> SmallVec<[HostArray; 4]> {
        let used = |s: &Span| self.arrays.iter().find(|a| a.leaf == s.leaf);
        let host = gathered.spans.iter().filter(|s| s.host).filter_map(|s| used(s).map(|a| (s, a)));
        host.map(|(s, a)| HostArray { slot: a.slot, low: s.low, high: s.high, written: a.written, gaps: s.gaps })
            .chain(gathered.hosted.iter().copied())
            .collect()
    }
}

#[cold]
fn cannot_write(why: Unwritable, name: &str) -> PyErr {
    PyValueError::new_err(match why {
        Unwritable::ReadOnly => {
            format!("the array given for `{name}` is read-only, but the kernel writes to it: pass a writable copy")
        }
        Unwritable::SelfOverlapping => format!(
            "elements of the array given for `{name}` share memory, but the kernel writes to it: pass a copy, \
             `tensor.contiguous()` or `array.copy()`"
        ),
    })
}
