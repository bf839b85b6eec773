//! [`Flattened`]: what the members of a dataclass argument came to, kept from one call to the next.
//!
//! A frozen dataclass whose members are our arrays, plain numbers and such dataclasses is the same in every call, so that for one that
//! comes again its words are copied instead of its members being looked at. (Who changes one by `object.__setattr__` after a
//! launch has to make another.) Of one that is not frozen it is seen first whether it still holds what it did. An object is kept by a weak
//! reference: it dies as it would without.

use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};

use crate::annotation::ParamKind;
use crate::argument::{Gathered, Place, Span};
use crate::watched::Watched;

/// The latest argument of a parameter.
#[derive(Default)]
pub struct Flattened(Mutex<Latest>);

#[derive(Default)]
struct Latest {
    /// Its address.
    address: usize,
    seen: Seen,
    flat: Option<Flat>,
}

/// How often an object came: it is flattened when it comes a second time, and more seldom the more often it had changed when it came.
#[derive(Clone, Copy, Default)]
struct Seen {
    before: bool,
    /// Calls to let by before it is flattened again.
    wait: u32,
    /// As many as the last time.
    pause: u32,
}

/// Most calls to let by.
const LONGEST_PAUSE: u32 = 64;

/// What an object adds to the arguments of a call, counted from where its own begin.
struct Flat {
    object: Py<PyWeakrefReference>,
    watched: Watched,
    key: Box<[u64]>,
    words: Box<[u64]>,
    starts: Box<[u32]>,
    spans: Box<[Span]>,
}

/// How much of a call was gathered before.
#[derive(Clone, Copy)]
struct Mark {
    key: usize,
    words: usize,
    starts: usize,
    spans: usize,
    ready_on: usize,
}

impl Mark {
    fn of(gathered: &Gathered<'_>) -> Mark {
        Mark {
            key: gathered.key.len(),
            words: gathered.words.len(),
            starts: gathered.starts.len(),
            spans: gathered.spans.len(),
            ready_on: gathered.ready_on.len(),
        }
    }
}

impl Flattened {
    /// Takes a dataclass argument.
    pub fn take<'py>(
        &self,
        gathered: &mut Gathered<'py>,
        kind: &ParamKind,
        value: &Bound<'py, PyAny>,
        place: &Place<'_>,
    ) -> PyResult<()> {
        // Another thread that has it is about to launch the same kernel: this one looks at the members.
        let Ok(latest) = self.0.try_lock() else { return gathered.take(kind, value, place) };
        let address = value.as_ptr() as usize;
        let mut seen = if latest.address == address { latest.seen } else { Seen::default() };
        if let Some(flat) = latest.flat.as_ref().filter(|_| seen.before)
            && flat.object.bind(value.py()).upgrade().is_some()
        {
            if flat.watched.is_unchanged(value.py(), gathered)? {
                flat.add_to(gathered);
                return Ok(());
            }
            seen.changes();
        }
        let mark = Mark::of(gathered);
        // What the members run must be able to call the kernel.
        drop(latest);
        gathered.take(kind, value, place)?;
        let flat = match seen.pays() && gathered.ready_on.len() == mark.ready_on {
            true => Watched::of(kind, value)?.zip(PyWeakrefReference::new(value).ok()),
            false => None,
        };
        let flat = flat.map(|(watched, object)| Flat::since(mark, gathered, object.unbind(), watched));
        if let Ok(mut latest) = self.0.try_lock() {
            *latest = Latest { address, seen, flat };
        }
        Ok(())
    }
}

impl Seen {
    /// It was flattened and has changed since.
    fn changes(&mut self) {
        self.pause = (self.pause * 2).clamp(1, LONGEST_PAUSE);
        self.wait = self.pause;
    }

    /// Whether to flatten it now that it comes; notes that it did.
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

    fn add_to(&self, gathered: &mut Gathered<'_>) {
        let (leaves, words) = (gathered.starts.len() as u32, gathered.words.len() as u32);
        gathered.key.extend_from_slice(&self.key);
        gathered.words.extend_from_slice(&self.words);
        gathered.starts.extend(self.starts.iter().map(|s| s + words));
        gathered.spans.extend(self.spans.iter().map(|s| s.moved_on(leaves, words)));
    }
}
