//! [`Flattened`]: what the members of a dataclass argument came to, kept from one call to the next.
//!
//! A frozen dataclass whose members are our arrays, plain numbers and such dataclasses is the same in every call, so that for one that
//! comes again its words are copied instead of its members being looked at. (Who changes one by `object.__setattr__` after a
//! launch has to make another.) An object is kept by a weak reference: it dies as it would without.

use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString, PyWeakrefMethods, PyWeakrefReference};

use crate::annotation::ParamKind;
use crate::argument::{Gathered, Place, Span};
use crate::ndarray::Ndarray;

/// The latest argument of a parameter.
#[derive(Default)]
pub struct Flattened(Mutex<Latest>);

#[derive(Default)]
struct Latest {
    /// Its address; it is flattened when it comes a second time.
    address: usize,
    flat: Option<Flat>,
}

/// What an object adds to the arguments of a call, counted from where its own begin.
struct Flat {
    object: Py<PyWeakrefReference>,
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
        let comes_again = latest.address == address;
        if comes_again
            && let Some(flat) = &latest.flat
            && flat.object.bind(value.py()).upgrade().is_some()
        {
            flat.add_to(gathered);
            return Ok(());
        }
        let mark = Mark::of(gathered);
        // What the members run must be able to call the kernel.
        drop(latest);
        gathered.take(kind, value, place)?;
        let flat = match PyWeakrefReference::new(value) {
            Ok(object) if comes_again && gathered.ready_on.len() == mark.ready_on && is_constant(kind, value)? => {
                Some(Flat::since(mark, gathered, object.unbind()))
            }
            _ => None,
        };
        if let Ok(mut latest) = self.0.try_lock() {
            *latest = Latest { address, flat };
        }
        Ok(())
    }
}

impl Flat {
    fn since(mark: Mark, gathered: &Gathered<'_>, object: Py<PyWeakrefReference>) -> Flat {
        Flat {
            object,
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

/// A member, and all of its members, are the same as long as the object lives.
fn is_constant(kind: &ParamKind, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(match kind {
        ParamKind::Array(_) => value.is_instance_of::<Ndarray>(),
        ParamKind::Scalar(_) => {
            value.is_exact_instance_of::<PyInt>()
                || value.is_exact_instance_of::<PyFloat>()
                || value.is_exact_instance_of::<PyBool>()
        }
        ParamKind::Dataclass(class, members) => {
            let py = value.py();
            let frozen = || -> PyResult<bool> {
                value
                    .getattr(pyo3::intern!(py, "__dataclass_params__"))?
                    .getattr(pyo3::intern!(py, "frozen"))?
                    .is_truthy()
            };
            if !value.get_type().is(class.bind(py)) || !frozen()? {
                return Ok(false);
            }
            let Some(own) = value.getattr_opt(pyo3::intern!(py, "__dict__"))? else { return Ok(false) };
            let Ok(own) = own.cast_into::<PyDict>() else { return Ok(false) };
            let is_own = |(name, kind): &(Py<PyString>, ParamKind)| match own.get_item(name.bind(py))? {
                Some(member) => is_constant(kind, &member),
                None => Ok(false),
            };
            for member in members {
                if !is_own(member)? {
                    return Ok(false);
                }
            }
            true
        }
        _ => false,
    })
}
