//! [`Repeats`]: the fast path for launches with the same dataclasses as before.
//!
//! A simulator passes the same structs of hundreds of arrays to each of its kernels, step after step. If the dataclass
//! arguments of a launch are unchanged ([`Flat`]), it reuses the slots of the earlier launch, except for its other
//! arguments and the contents of compile-time arguments. The cost does not depend on the number of members.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use octants_engine::runtime::{self, nesting};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt};
use smallvec::SmallVec;

use super::call::save_counters;
use super::{Kernel, Prepared};
use crate::annotation::ParamKind;
use crate::argument::{Gathered, Place, Span};
use crate::flattened::Flat;
use crate::names::{is_field, is_tensor};
use crate::ndarray::Ndarray;
use crate::program::Program;
use crate::specialization::{Copy, Slots, Specialization};

/// Cached launches of a kernel, latest first. A launch in progress is taken out.
// Boxed: a launch is taken out and put back, and is too large to move twice on the hot path.
#[allow(clippy::vec_box)]
#[derive(Default)]
pub(super) struct Repeats(Mutex<Vec<Box<Repeat>>>);

/// Enough for a kernel that is called for a few objects in turn.
const MOST_REPEATS: usize = 8;

type Flats = SmallVec<[Arc<Flat>; 8]>;

/// A cached launch.
struct Repeat {
    /// Not kept alive: the kernel drops specializations that it does not need.
    spec: Weak<Specialization>,
    /// Its dataclass arguments.
    flats: Flats,
    /// The key and the arrays of the other arguments.
    key: Box<[u64]>,
    spans: Box<[Span]>,
    /// The words of these arrays, if one shares memory with another array of the call.
    shared: Option<Box<[u64]>>,
    /// Copies from words of the other arguments to slots.
    copies: Box<[Copy]>,
    slots: Slots,
    /// Memory of the non-argument arrays.
    captured: Box<[u64]>,
}

/// The dataclass arguments of a call, and the converted other arguments.
struct Parts<'py> {
    flats: Flats,
    others: Gathered<'py>,
}

impl Parts<'_> {
    /// No arguments yet. Constructed in place: it is too large to move on the hot path.
    #[inline(always)]
    fn new(program: &Program) -> Self {
        Parts { flats: Flats::new(), others: Gathered::new(program) }
    }
}

impl Repeats {
    #[inline]
    fn take(&self, wanted: &Parts<'_>) -> Option<Box<Repeat>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = all.iter().position(|r| {
            *r.key == *wanted.others.key
                && r.flats.len() == wanted.flats.len()
                && r.flats.iter().zip(&wanted.flats).all(|(a, b)| Arc::ptr_eq(a, b))
        })?;
        Some(all.remove(at))
    }

    #[inline]
    fn keep(&self, repeat: Box<Repeat>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let excess = if all.len() >= MOST_REPEATS { all.pop() } else { None };
        all.insert(0, repeat);
        // Outside the lock: dropping Python objects may run Python code.
        drop(all);
        drop(excess);
    }
}

impl Repeat {
    /// Fills the slots that may differ. False if anything else differs.
    #[inline]
    fn refill<'py>(
        &mut self,
        spec: &Specialization,
        others: &mut Gathered<'py>,
        args: &[Bound<'py, PyAny>],
    ) -> PyResult<bool> {
        self.copies.iter().for_each(|copy| copy.make(&others.words, &mut self.slots));
        if !spec.read_objects(others, args, &mut self.slots, false)? {
            return Ok(false);
        }
        let moved = self.spans.iter().zip(&others.spans).any(|(a, b)| (a.low, a.high) != (b.low, b.high));
        let fits = match &self.shared {
            None => !moved || !meets_another(&others.spans, &self.flats),
            // The key of the whole call contains which arrays share memory, and which are the same.
            Some(words) => !moved && others.array_words().eq(words.iter().copied()),
        };
        if !fits {
            return Ok(false);
        }
        if self.captured.is_empty() {
            return Ok(true);
        }
        if !spec.captured_words(&self.slots).eq(self.captured.iter().copied()) {
            return Ok(false);
        }
        Ok(!moved || spec.may_alias || !spec.shares_memory(&self.slots, &others.spans))
    }
}

/// Whether one of these arrays shares memory with another one, or with one of a dataclass.
fn meets_another(spans: &[Span], flats: &[Arc<Flat>]) -> bool {
    let meets = |a: &Span, b: &Span| a.low < b.high && b.low < a.high;
    let of_flats = || flats.iter().flat_map(|flat| flat.spans());
    spans.iter().enumerate().any(|(i, a)| spans[..i].iter().chain(of_flats()).any(|b| meets(a, b)))
}

/// Whether converting such an argument may run user code, which may assign to members of a dataclass.
fn may_run_python(kind: &ParamKind, value: &Bound<'_, PyAny>) -> bool {
    match kind {
        // Already converted, or identified by address.
        ParamKind::Dataclass(..) | ParamKind::Template => false,
        // Another library's array runs code to export its memory.
        ParamKind::Either => is_foreign(value),
        ParamKind::Scalar(_) => {
            !(value.is_exact_instance_of::<PyInt>()
                || value.is_exact_instance_of::<PyFloat>()
                || value.is_exact_instance_of::<PyBool>())
        }
        ParamKind::Array(_) => !value.is_instance_of::<Ndarray>(),
        ParamKind::Tensor(_) | ParamKind::Struct(..) | ParamKind::Refused(_) => true,
    }
}

/// Whether a `qd.Tensor` parameter gets neither a tensor of ours nor a number.
fn is_foreign(value: &Bound<'_, PyAny>) -> bool {
    !(value.is_none()
        || value.is_instance_of::<Ndarray>()
        || is_tensor(value).unwrap_or(false)
        || is_field(value).unwrap_or(false))
}

/// Keeps the members of mutable dataclasses alive during a call.
fn hold_members<'py>(py: Python<'py>, gathered: &mut Gathered<'py>, flats: &[Arc<Flat>]) {
    gathered.held.extend(flats.iter().flat_map(|flat| flat.watched.members(py)));
}

impl Prepared {
    /// Inspects the arguments of a call. False if a dataclass is new or has changed.
    #[inline]
    fn split<'py>(
        &self,
        Parts { flats, others }: &mut Parts<'py>,
        py: Python<'py>,
        kernel: &Kernel,
        args: &[Bound<'py, PyAny>],
    ) -> PyResult<bool> {
        for ((param, arg), flattened) in self.signature.params.iter().zip(args).zip(&self.flattened) {
            if let ParamKind::Dataclass(..) = param.kind {
                let Some(flat) = flattened.unchanged(arg)? else { return Ok(false) };
                flats.push(flat);
            }
        }
        let given = || self.signature.params.iter().zip(args);
        if given().any(|(param, arg)| may_run_python(&param.kind, arg)) {
            hold_members(py, others, flats);
        }
        let mut passed = flats.iter();
        for (i, (param, arg)) in self.signature.params.iter().zip(args).enumerate() {
            match &param.kind {
                ParamKind::Dataclass(..) => others.pass_over(passed.next().map_or(0, |flat| flat.leaves())),
                kind => {
                    let place = Place { index: i, name: &param.text, parent: None, kernel: &kernel.name };
                    others.take(kind, arg, &place)?;
                }
            }
        }
        Ok(true)
    }

    /// A launch's copies of the words of non-dataclass arguments, with source indices that leave out the dataclasses.
    fn copies_of_others<'py>(
        &self,
        kernel: &Kernel,
        args: &[Bound<'py, PyAny>],
        flats: &[Arc<Flat>],
        copies: &[Copy],
    ) -> PyResult<Box<[Copy]>> {
        let mut out = Vec::new();
        let mut flats = flats.iter();
        let (mut among_all, mut among_others) = (0, 0);
        for (i, (param, arg)) in self.signature.params.iter().zip(args).enumerate() {
            if let ParamKind::Dataclass(..) = param.kind {
                among_all += flats.next().map_or(0, |flat| flat.word_count());
                continue;
            }
            let mut one = Gathered::of(self.program.serial, false);
            one.take(&param.kind, arg, &Place { index: i, name: &param.text, parent: None, kernel: &kernel.name })?;
            let count = one.words.len() as u32;
            let own = copies.iter().filter(|c| (among_all..among_all + count).contains(&c.from));
            out.extend(own.map(|c| c.moved_to(c.from - among_all + among_others)));
            among_all += count;
            among_others += count;
        }
        Ok(out.into())
    }
}

impl Kernel {
    /// Repeats a launch with the same dataclasses. `None` without one, or if something else has changed.
    #[inline]
    pub(super) fn repeat<'py>(
        slf: &Bound<'py, Self>,
        prepared: &Prepared,
        args: &[Bound<'py, PyAny>],
        stream: Option<&runtime::Stream>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let (this, py) = (slf.get(), slf.py());
        let mut parts = Parts::new(&prepared.program);
        if !prepared.split(&mut parts, py, this, args)? {
            return Ok(None);
        }
        let Some(mut repeat) = prepared.repeats.take(&parts) else { return Ok(None) };
        // An outdated launch is dropped.
        let Some(spec) = repeat.spec.upgrade() else { return Ok(None) };
        // Dataclasses that have not changed hold their objects.
        let mut others =
            (0..).zip(&prepared.signature.params).filter(|(_, p)| !matches!(p.kind, ParamKind::Dataclass(..)));
        if !spec.code.suits_order(&prepared.program.session) || !others.all(|(i, _)| spec.is_alive_for(i, py)) {
            return Ok(None);
        }
        if spec.reads_objects() {
            hold_members(py, &mut parts.others, &parts.flats);
        }
        if !repeat.refill(&spec, &mut parts.others, args)? {
            return Ok(None);
        }
        let gathered = (&parts.others, &parts.flats[..]);
        if nesting::capturing() {
            save_counters(py, prepared, (&spec, &repeat.slots), None, stream)?;
        }
        let result = this.launch(py, prepared, &spec, gathered, &repeat.slots, stream);
        let result = result.and_then(|result| {
            Self::note_launch(slf, args, (&spec, &repeat.slots), stream)?;
            Ok(result)
        });
        prepared.repeats.keep(repeat);
        result.map(Some)
    }

    /// Caches a launch before it runs, if its dataclasses have been passed before.
    pub(super) fn remember<'py>(
        &self,
        py: Python<'py>,
        prepared: &Prepared,
        args: &[Bound<'py, PyAny>],
        spec: &Arc<Specialization>,
        slots: &Slots,
    ) -> PyResult<()> {
        if spec.unites_arrays {
            return Ok(());
        }
        let mut parts = Parts::new(&prepared.program);
        if !prepared.split(&mut parts, py, self, args)? {
            return Ok(());
        }
        let Parts { flats, others } = parts;
        // Not cached: each launch must convert host arrays again.
        let foreign = flats.iter().flat_map(|flat| flat.spans()).any(|s| s.host || s.unwritable.is_some());
        if foreign {
            return Ok(());
        }
        let shared = meets_another(&others.spans, &flats).then(|| others.array_words().collect());
        let copies = prepared.copies_of_others(self, args, &flats, spec.copies())?;
        prepared.repeats.keep(Box::new(Repeat {
            spec: Arc::downgrade(spec),
            flats,
            key: others.key.as_slice().into(),
            spans: others.spans.as_slice().into(),
            shared,
            copies,
            slots: slots.clone(),
            captured: spec.captured_words(slots).collect(),
        }));
        Ok(())
    }
}
