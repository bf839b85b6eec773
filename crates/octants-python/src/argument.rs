//! Converts the arguments of a call to the key of its specialization and the words of its slots.
//!
//! This is the hot path: one pass over the arguments, without hashing, and without allocation for ordinary kernels.
//! The key determines the meaning of the words, so a specialization copies them to its slots without looking at them.

mod array_argument;
mod compile_time_key;
mod copied_arrays;
mod overlaps;
mod value_words;

use std::sync::Arc;

use octants_engine::frontend::Reach;
use octants_engine::ir::{AutodiffMode, Type};
use octants_engine::runtime::{CounterSnapshot, HostArray, HostStep, LaunchOrder};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat};
use smallvec::SmallVec;

pub use self::array_argument::{array_argument, is_array, is_view};
pub use self::compile_time_key::by_identity;
use self::compile_time_key::template_key;
pub use self::copied_arrays::CopiedArray;
pub use self::overlaps::{Overlap, Span};
use self::value_words::{bad_scalar, bad_struct, bad_tensor, struct_words, tensor_words};
use crate::annotation::{ArrayKind, ParamKind};
use crate::array_view::{ArrayView, Unwritable};
use crate::device_group::GroupLaunch;
use crate::element_types::type_word;
use crate::errors;
use crate::held::Held;
use crate::names::{marker, unwrap_tensor};
use crate::other_device::other_device;
use crate::program::Program;
use crate::scalar::scalar_to_slot;
use crate::split_dispatch::SplitLaunch;

/// The result of converting a call's arguments.
pub struct Gathered<'py> {
    /// The specialization key: equal keys select the same code.
    pub key: SmallVec<[u64; 16]>,
    /// Values, and pointer, extents and strides of arrays, in the order of the parameters.
    pub words: SmallVec<[u64; 48]>,
    /// First word of each value or array.
    pub starts: SmallVec<[u32; 16]>,
    /// The arrays' memory.
    pub spans: SmallVec<[Span; 8]>,
    /// Temporary objects that the launch keeps alive.
    pub held: Held<'py>,
    /// Handles of other libraries' streams on which the arrays' contents are ready.
    pub ready_on: SmallVec<[u64; 2]>,
    /// Host arrays that are reached from arguments (gradients of tensors).
    pub hosted: SmallVec<[HostArray; 2]>,
    /// Arrays that are copies of others, to be copied back.
    pub copied: Vec<CopiedArray<'py>>,
    /// Members of dataclasses whose values do not have their annotated types. An error only if the kernel reads them.
    pub unfit: Vec<Unfit>,
    /// Floats are refused as compile-time values.
    pub no_template_floats: bool,
    /// The program that launches.
    pub serial: u64,
    /// Recorded values of the numbers that objects hold; `None` to read them.
    pub numbers: Option<SmallVec<[u64; 4]>>,
    /// The label of the checkpoint at which the launch resumes.
    pub resumes_at: Option<i64>,
    /// The launches that this one differentiates, if it is a gradient's launch.
    pub follows: Option<Follows>,
    /// The launch on several devices, if its arrays are split over them.
    pub group_launch: Option<Box<GroupLaunch<'py>>>,
    /// The launch, if its arrays are split over ranks.
    pub split_launch: Option<Box<SplitLaunch>>,
    /// The step of a graph that makes the launch, if this thread captures and the arrays are split.
    pub host_step: Option<Arc<HostStep>>,
    /// Number of values and arrays of the arguments skipped so far: see [`Gathered::pass_over`].
    passed_over: u32,
}

/// A value that is not of its annotated type.
pub struct Unfit {
    /// Which value or array.
    pub leaf: u32,
    /// The exception to raise when it is read.
    pub error: PyErr,
}

/// The forward launches that a gradient launch differentiates.
#[derive(Clone)]
pub struct Follows {
    /// The set of launches that it belongs to.
    pub order: Option<Arc<LaunchOrder>>,
    /// The kernel's counters when its forward launch began.
    pub counters: Arc<CounterSnapshot>,
}

/// The position of an argument, for messages.
pub struct Place<'a> {
    /// Position in the parameter list.
    pub index: usize,
    /// The parameter, or a member of it.
    pub name: &'a str,
    /// The struct it is a member of.
    pub parent: Option<&'a Place<'a>>,
    /// The kernel's name.
    pub kernel: &'a str,
}

impl Place<'_> {
    /// `a.b.c`.
    pub fn path(&self) -> String {
        match self.parent {
            Some(parent) => format!("{}.{}", parent.path(), self.name),
            None => self.name.to_string(),
        }
    }
}

// Tags at the start of each part of a key, so that no two kinds of part compare equal.
const TAG_NONE: u64 = 1;
const TAG_BOOL: u64 = 2;
const TAG_INT: u64 = 3;
const TAG_FLOAT: u64 = 4;
const TAG_STR: u64 = 5;
const TAG_TUPLE: u64 = 6;
const TAG_OBJECT: u64 = 7;
const TAG_OVERLAP: u64 = 8;
const TAG_NUMPY: u64 = 9;
const TAG_MODE: u64 = 10;
const TAG_ARRAY: u64 = 1 << 63;

impl<'py> Gathered<'py> {
    /// No arguments yet. Constructed in place: it is too large to move on the hot path.
    #[inline(always)]
    pub fn new(program: &Program) -> Gathered<'py> {
        Gathered::of(program.serial, program.session.config().raise_on_templated_floats)
    }

    /// The same, for a program given by its serial.
    #[inline(always)]
    pub fn of(serial: u64, no_template_floats: bool) -> Gathered<'py> {
        Gathered {
            key: SmallVec::new(),
            words: SmallVec::new(),
            starts: SmallVec::new(),
            spans: SmallVec::new(),
            held: SmallVec::new(),
            ready_on: SmallVec::new(),
            hosted: SmallVec::new(),
            copied: Vec::new(),
            unfit: Vec::new(),
            no_template_floats,
            serial,
            numbers: None,
            resumes_at: None,
            follows: None,
            group_launch: None,
            split_launch: None,
            host_step: None,
            passed_over: 0,
        }
    }

    /// Skips an argument with this many values and arrays. Later ones are numbered as if it were present.
    #[inline]
    pub fn pass_over(&mut self, leaves: u32) {
        self.passed_over += leaves;
    }

    /// Converts one argument.
    #[inline]
    pub fn take(&mut self, kind: &ParamKind, value: &Bound<'py, PyAny>, place: &Place<'_>) -> PyResult<()> {
        match kind {
            ParamKind::Scalar(scalar) => {
                self.start();
                let slot = scalar_to_slot(value, *scalar).map_err(|e| bad_scalar(e, value, *scalar, place))?;
                self.words.push(slot);
                Ok(())
            }
            ParamKind::Array(wanted) => {
                if self.take_plain(wanted, value)? {
                    return Ok(());
                }
                if wanted.optional && value.is_none() {
                    return self.template(value, place);
                }
                self.push_array(array_argument(wanted, value, place)?, value.py(), place)
            }
            ParamKind::Template => self.template(value, place),
            ParamKind::Tensor(ty) => {
                self.start();
                tensor_words(&mut self.words, ty, value).map_err(|e| bad_tensor(e, value, ty, place))
            }
            ParamKind::Struct(ty, object) => {
                self.start();
                let py = value.py();
                let fits = value.is_instance_of::<PyDict>() || marker(value).as_deref() == Some("struct");
                if !fits {
                    return Err(bad_struct(value, object.bind(py), place));
                }
                struct_words(&mut self.words, &Type::Struct(ty.clone()), value)
                    .map_err(|e| e.unwrap_or_else(|| bad_struct(value, object.bind(py), place)))
            }
            ParamKind::Either => {
                let value = unwrap_tensor(value.clone())?;
                if is_array(&value)? {
                    let any = const { &ArrayKind::ANY };
                    if !self.take_plain(any, &value)? {
                        self.push_array(array_argument(any, &value, place)?, value.py(), place)?;
                    }
                    self.held.push(value);
                    return Ok(());
                }
                self.template(&value, place)
            }
            ParamKind::Refused(message) => Err(errors::syntax_error(value.py(), message.clone())),
            ParamKind::Dataclass(class, members) => {
                let py = value.py();
                if !value.is_instance(class.bind(py).as_any())? {
                    return Err(errors::exception(
                        py,
                        "OctantsRuntimeTypeError",
                        format!(
                            "Argument {:?} needed {} != provided {} (parameter `{}` of kernel `{}`)",
                            (place.index,),
                            class.bind(py).repr()?,
                            value.get_type().repr()?,
                            place.path(),
                            place.kernel
                        ),
                    ));
                }
                for (name, kind) in members {
                    let member = value.getattr(name.bind(py))?;
                    let text = name.bind(py).to_str()?;
                    let place = Place { index: place.index, name: text, parent: Some(place), kernel: place.kernel };
                    self.take_member(kind, &member, &place)?;
                    if matches!(kind, ParamKind::Array(_) | ParamKind::Either) {
                        self.held.push(member);
                    }
                }
                Ok(())
            }
        }
    }

    /// Converts a member of a dataclass. A kernel that does not read the member accepts any type.
    #[inline]
    fn take_member(&mut self, kind: &ParamKind, value: &Bound<'py, PyAny>, place: &Place<'_>) -> PyResult<()> {
        let (leaf, start) = (self.starts.len() as u32 + self.passed_over, self.words.len());
        match (self.take(kind, value, place), kind) {
            (Err(error), ParamKind::Scalar(_)) => self.take_unfit(leaf, start + 1, error),
            (Err(error), ParamKind::Tensor(ty)) => self.take_unfit(leaf, start + ty.leaf_count(), error),
            (Err(error), ParamKind::Struct(ty, _)) => {
                let words = Type::Struct(ty.clone()).leaf_count();
                self.take_unfit(leaf, start + words, error);
            }
            (result, _) => return result,
        }
        Ok(())
    }

    #[cold]
    fn take_unfit(&mut self, leaf: u32, words: usize, error: PyErr) {
        self.words.resize(words, 0);
        self.unfit.push(Unfit { leaf, error });
    }

    /// Call this after the last argument. Adds the kernel's mode, and which arrays overlap, to the key.
    #[inline]
    pub fn finish(&mut self, mode: AutodiffMode) {
        if mode != AutodiffMode::None {
            self.key.push(TAG_MODE | (mode as u64) << 8);
        }
        if self.overlapping() {
            let part = |o: Overlap| {
                TAG_OVERLAP | u64::from(o.same) << 8 | u64::from(o.first) << 16 | u64::from(o.second) << 40
            };
            let overlaps: Vec<u64> = self.overlaps().into_iter().map(part).collect();
            self.key.extend_from_slice(&overlaps);
        }
    }

    #[inline]
    fn template(&mut self, value: &Bound<'_, PyAny>, place: &Place<'_>) -> PyResult<()> {
        if self.no_template_floats && value.is_exact_instance_of::<PyFloat>() {
            return Err(templated_float(&place.path(), place.kernel));
        }
        template_key(&mut self.key, value, place)
    }

    #[inline]
    fn start(&mut self) {
        self.starts.push(self.words.len() as u32);
    }

    fn push_array(&mut self, view: ArrayView, py: Python<'py>, place: &Place<'_>) -> PyResult<()> {
        if view.serial != self.serial && view.serial != 0 {
            let what = format!("the array given for `{}`", place.path());
            return Err(other_device(py, Some(place.kernel), self.serial, &what, view.serial));
        }
        let (low, high) = view.span();
        self.push_memory(&Memory {
            address: view.address,
            extents: &view.extents,
            strides: &view.strides,
            type_word: type_word(&view.elem),
            needs_grad: view.needs_grad,
            needs_dual: view.needs_dual,
            low,
            high,
            unwritable: view.unwritable(),
            host: view.host,
            gaps: view.has_gaps(),
            split_axis: view.split_axis,
        });
        if view.original.is_some() {
            self.note_copy(&view, py);
        }
        self.keep(view, py);
        Ok(())
    }

    /// Records the owner of an array's memory, and the stream that the launch must wait for before it uses the memory.
    pub fn keep(&mut self, view: ArrayView, py: Python<'py>) {
        self.held.extend(view.owner.map(|owner| owner.into_bound(py)));
        if let Some(handle) = view.ready_on
            && !self.ready_on.contains(&handle)
        {
            self.ready_on.push(handle);
        }
    }

    /// Appends an array's words, its span, and its part of the key.
    #[inline(always)]
    pub fn push_memory(&mut self, m: &Memory<'_>) {
        let leaf = self.starts.len() as u32 + self.passed_over;
        let start = self.words.len() as u32;
        self.start();
        self.words.push(m.address);
        m.extents.iter().for_each(|&n| self.words.push(n));
        m.strides.iter().for_each(|&n| self.words.push(n as u64));
        let words = (start, self.words.len() as u32);
        let Memory { low, high, unwritable, host, gaps, .. } = *m;
        self.spans.push(Span { leaf, low, high, unwritable, host, gaps, words });
        let contiguous = u64::from(m.strides.is_empty());
        let reach = Reach::of(m.extents, high - low) as u64;
        let shadows = u64::from(m.needs_grad) | u64::from(m.needs_dual) << 2;
        let flags = contiguous | reach << 1 | shadows << 3 | u64::from(m.split_axis.map_or(0, |axis| axis + 1)) << 4;
        self.key.push(TAG_ARRAY | m.type_word | (m.extents.len() as u64) << 40 | flags << 48);
    }
}

/// The properties of an array's memory that a call uses.
pub struct Memory<'a> {
    /// Address of the first element.
    pub address: u64,
    /// Extents.
    pub extents: &'a [u64],
    /// Byte strides; empty where row-major without gaps.
    pub strides: &'a [i64],
    /// [`type_word`] of an element.
    pub type_word: u64,
    /// Has a gradient.
    pub needs_grad: bool,
    /// Has a dual.
    pub needs_dual: bool,
    /// First byte.
    pub low: u64,
    /// One past the last.
    pub high: u64,
    /// Why it must not be written, if so.
    pub unwritable: Option<Unwritable>,
    /// In the host's memory.
    pub host: bool,
    /// Has gaps between its elements.
    pub gaps: bool,
    /// The axis that is split over ranks.
    pub split_axis: Option<u32>,
}

/// The error for a float when the options forbid floats as compile-time values.
pub fn templated_float(name: &str, kernel: &str) -> PyErr {
    PyValueError::new_err(format!(
        "Floats not allowed as templated types (raise_on_templated_floats=True): `{name}` of kernel `{kernel}`"
    ))
}
