//! [`Flattened`]: the argument words of a dataclass, cached from one call to the next.
//!
//! A frozen dataclass whose members are our arrays, fields, compile-time values, plain numbers and such dataclasses is
//! the same in every call. When it is passed again, its words are copied and its members are not inspected. (Code that
//! changes one by `object.__setattr__` after a launch must create a new object.) For a dataclass that is not frozen,
//! the cache first checks that its members are unchanged. Objects are held by weak references, so their lifetime does
//! not change.

use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};

use crate::annotation::ParamKind;
use crate::argument::{Gathered, Place, Span};
use crate::held::{Held, HoldLater};
use crate::watched::Watched;

/// The latest arguments of a parameter, the last one first.
#[derive(Default)]
pub struct Flattened(Mutex<Vec<Latest>>);

/// Objects cached per parameter, so that a kernel called for a few objects in turn inspects none of them.
const MOST_OBJECTS: usize = 4;

struct Latest {
    /// Its address.
    address: usize,
    seen: Seen,
    flat: Option<Arc<Flat>>,
}

/// Decides when to flatten an object: at its second call, then with exponential backoff each time it has changed.
#[derive(Clone, Copy, Default)]
struct Seen {
    before: bool,
    /// Calls to skip before it is flattened again.
    wait: u32,
    /// The initial value of `wait` in the last call.
    pause: u32,
}

/// Maximum number of calls to skip.
const LONGEST_PAUSE: u32 = 64;

/// An object's contribution to a call's arguments, with indices relative to its first one.
pub struct Flat {
    object: Py<PyWeakrefReference>,
    /// Its members that may be assigned.
    pub watched: Watched,
    key: Box<[u64]>,
    words: Box<[u64]>,
    starts: Box<[u32]>,
    spans: Box<[Span]>,
}

/// The state of a call's arguments before a dataclass argument is added.
#[derive(Clone, Copy)]
struct Mark {
    key: usize,
    words: usize,
    starts: usize,
    spans: usize,
    ready_on: usize,
    copied: usize,
    unfit: usize,
}

impl Mark {
    fn of(gathered: &Gathered<'_>) -> Mark {
        Mark {
            key: gathered.key.len(),
            words: gathered.words.len(),
            starts: gathered.starts.len(),
            spans: gathered.spans.len(),
            ready_on: gathered.ready_on.len(),
            copied: gathered.copied.len(),
            unfit: gathered.unfit.len(),
        }
    }

    /// Whether everything added since can be cached: nothing that each call must inspect again.
    fn is_of_repeatable(&self, gathered: &Gathered<'_>) -> bool {
        (gathered.ready_on.len(), gathered.copied.len(), gathered.unfit.len())
            == (self.ready_on, self.copied, self.unfit)
    }
}

impl Flattened {
    /// An argument's cached words, if it is unchanged since an earlier call.
    #[inline]
    pub fn unchanged(&self, value: &Bound<'_, PyAny>) -> PyResult<Option<Arc<Flat>>> {
        // Another thread that has them is about to launch the same kernel.
        let Ok(latest) = self.0.try_lock() else { return Ok(None) };
        let address = value.as_ptr() as usize;
        let Some(flat) = latest.iter().find(|l| l.address == address).and_then(|l| l.flat.as_ref()) else {
            return Ok(None);
        };
        Ok(flat.holds_for(value)?.then(|| flat.clone()))
    }

    /// Converts a dataclass argument.
    pub fn take<'py>(
        &self,
        gathered: &mut Gathered<'py>,
        kind: &ParamKind,
        value: &Bound<'py, PyAny>,
        place: &Place<'_>,
    ) -> PyResult<()> {
        let Ok(latest) = self.0.try_lock() else { return gathered.take(kind, value, place) };
        let address = value.as_ptr() as usize;
        let mut seen = Seen::default();
        if let Some(known) = latest.iter().find(|l| l.address == address) {
            seen = known.seen;
            if let Some(flat) = &known.flat {
                if flat.holds_for(value)? {
                    flat.add_to(value.py(), gathered);
                    return Ok(());
                }
                seen.changes();
            }
        }
        let mark = Mark::of(gathered);
        // Unlocked: code that the members run may call the kernel.
        drop(latest);
        gathered.take(kind, value, place)?;
        let flat = match seen.pays() && mark.is_of_repeatable(gathered) {
            true => Watched::of(kind, value)?.zip(PyWeakrefReference::new(value).ok()),
            false => None,
        };
        let flat = flat.map(|(watched, object)| Arc::new(Flat::since(mark, gathered, object.unbind(), watched)));
        let Ok(mut latest) = self.0.try_lock() else { return Ok(()) };
        let old = latest.iter().position(|l| l.address == address).map(|i| latest.remove(i));
        latest.insert(0, Latest { address, seen, flat });
        let excess = latest.len().min(MOST_OBJECTS);
        let excess: Vec<Latest> = latest.drain(excess..).collect();
        // Outside the lock: dropping Python objects may run Python code.
        drop(latest);
        drop((old, excess));
        Ok(())
    }
}

/// Cached dataclass arguments of a launch. Once the launch releases the interpreter, other threads may assign to their
/// members.
impl HoldLater for [Arc<Flat>] {
    fn hold<'py>(&self, py: Python<'py>, held: &mut Held<'py>) {
        held.extend(self.iter().flat_map(|flat| flat.watched.members(py)));
    }
}

impl Seen {
    /// It was flattened and has changed since.
    fn changes(&mut self) {
        self.pause = (self.pause * 2).clamp(1, LONGEST_PAUSE);
        self.wait = self.pause;
    }

    /// Whether to flatten it in this call. Counts the call.
    fn pays(&mut self) -> bool {
        let pays = self.before && self.wait == 0;
        self.before = true;
        self.wait = self.wait.saturating_sub(1);
        pays
    }
}

impl Flat {
    fn since(mark: Mark, gathered: &Gathered<'_>, object: Py<PyWeakrefReference>, watched: Watched) -> Flat {
        Flat {
            object,
            watched,
            key: gathered.key[mark.key..].into(),
            words: gathered.words[mark.words..].into(),
            starts: gathered.starts[mark.starts..].iter().map(|s| s - mark.words as u32).collect(),
            spans: gathered.spans[mark.spans..].iter().map(|s| s.moved_back(mark.starts, mark.words)).collect(),
        }
    }

    /// Whether it describes this object, unchanged. A new object at the same address does not match, because the weak
    /// reference is dead.
    #[inline]
    fn holds_for(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = value.py();
        Ok(self.object.bind(py).upgrade().is_some_and(|o| o.is(value)) && self.watched.is_unchanged(py)?)
    }

    /// Values and arrays among the members.
    pub fn leaves(&self) -> u32 {
        self.starts.len() as u32
    }

    /// Words of these.
    pub fn word_count(&self) -> u32 {
        self.words.len() as u32
    }

    /// The arrays' memory.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    fn add_to<'py>(&self, py: Python<'py>, gathered: &mut Gathered<'py>) {
        let (leaves, words) = (gathered.starts.len() as u32, gathered.words.len() as u32);
        gathered.key.extend_from_slice(&self.key);
        gathered.words.extend_from_slice(&self.words);
        gathered.starts.extend(self.starts.iter().map(|s| s + words));
        gathered.spans.extend(self.spans.iter().map(|s| s.moved_on(leaves, words)));
        gathered.held.extend(self.watched.members(py));
    }
}
