//! From the arguments of a call to the key of its specialisation and the words of its slots.
//!
//! This is the hot path: one pass over the arguments, nothing hashed, nothing allocated for ordinary kernels. What the words
//! mean is fixed by the key, so that a specialisation can copy them to its slots blindly.

use octants_engine::frontend::NdarrayDesc;
use octants_engine::ir::{AutodiffMode, Scalar, Type};
use octants_engine::runtime::HostArray;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString, PyTuple};
use smallvec::SmallVec;

use crate::annotation::{ArrayKind, ParamKind};
use crate::array::{self, ArrayView};
use crate::errors;
use crate::guard::Held;
use crate::names::{Known, marker, unwrap_tensor};
use crate::ndarray::{Ndarray, element_type};
use crate::scalar::{ScalarError, scalar_to_slot};

/// What a call's arguments come to.
pub struct Gathered<'py> {
    /// Equal keys mean the same code.
    pub key: SmallVec<[u64; 16]>,
    /// Values, and pointer, extents and strides of arrays, in the order of the parameters.
    pub words: SmallVec<[u64; 48]>,
    /// First word of each value or array.
    pub starts: SmallVec<[u32; 16]>,
    /// The arrays' memory.
    pub spans: SmallVec<[Span; 8]>,
    /// Objects made on the way that the launch needs alive.
    pub held: Held<'py>,
    /// Handles of other libraries' streams that arrays are ready on.
    pub ready_on: SmallVec<[u64; 2]>,
    /// Arrays in the host's memory that are reached from arguments (gradients of tensors).
    pub hosted: SmallVec<[HostArray; 2]>,
    /// Floats are refused as compile-time values.
    pub no_template_floats: bool,
    /// What numbers that objects hold are taken to be; `None` to read them.
    pub numbers: Option<SmallVec<[u64; 4]>>,
}

/// Bytes that an array argument covers.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// Which value or array.
    pub leaf: u32,
    /// First byte.
    pub low: u64,
    /// One past the last.
    pub high: u64,
    /// Must not be written.
    pub readonly: bool,
    /// In the host's memory.
    pub host: bool,
    /// There are bytes between the elements.
    pub gaps: bool,
    /// Words of the array: equal ones mean the same array.
    words: (u32, u32),
}

impl Span {
    /// The same, counted from these leaves and words on.
    pub fn moved_back(&self, leaves: usize, words: usize) -> Span {
        let (leaves, words) = (leaves as u32, words as u32);
        Span { leaf: self.leaf - leaves, words: (self.words.0 - words, self.words.1 - words), ..*self }
    }

    /// The same behind these leaves and words.
    pub fn moved_on(&self, leaves: u32, words: u32) -> Span {
        Span { leaf: self.leaf + leaves, words: (self.words.0 + words, self.words.1 + words), ..*self }
    }
}

/// Two array arguments that share bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overlap {
    /// One.
    pub first: u32,
    /// The other, which comes later.
    pub second: u32,
    /// They are the same array.
    pub same: bool,
}

/// Where an argument stands, for messages.
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

/// Of more arrays than this overlaps are found by sorting.
const MANY_SPANS: usize = 16;

const TAG_NONE: u64 = 1;
const TAG_BOOL: u64 = 2;
const TAG_INT: u64 = 3;
const TAG_FLOAT: u64 = 4;
const TAG_STR: u64 = 5;
const TAG_TUPLE: u64 = 6;
const TAG_OBJECT: u64 = 7;
const TAG_ARRAY: u64 = 1 << 63;
const TAG_OVERLAP: u64 = 8;
const TAG_NUMPY: u64 = 9;
const TAG_MODE: u64 = 10;

impl<'py> Gathered<'py> {
    /// No arguments yet. Made in place: it is too large to be moved on the hot path.
    #[inline(always)]
    pub fn new(no_template_floats: bool) -> Gathered<'py> {
        Gathered {
            key: SmallVec::new(),
            words: SmallVec::new(),
            starts: SmallVec::new(),
            spans: SmallVec::new(),
            held: SmallVec::new(),
            ready_on: SmallVec::new(),
            hosted: SmallVec::new(),
            no_template_floats,
            numbers: None,
        }
    }

    /// Takes one argument.
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
                if !self.take_plain(wanted, value)? {
                    self.push_array(array_argument(wanted, value, place)?, value.py());
                }
                Ok(())
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
                if value.is_instance_of::<Ndarray>() {
                    self.push_array(array_argument(&ArrayKind::default(), &value, place)?, value.py());
                    self.held.push(value);
                    return Ok(());
                }
                self.template(&value, place)
            }
            ParamKind::Refused(message) => Err(errors::syntax_error(value.py(), message.clone())),
            ParamKind::Dataclass(class, members) => {
                let py = value.py();
                if !value.is_instance(class.bind(py).as_any())? {
                    return Err(errors::runtime_error(
                        py,
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
                    self.take(kind, &member, &place)?;
                    if matches!(kind, ParamKind::Array(_) | ParamKind::Either) {
                        self.held.push(member);
                    }
                }
                Ok(())
            }
        }
    }

    /// To be called after the last argument: adds to the key what is made of the kernel, and which arrays overlap.
    #[inline]
    pub fn finish(&mut self, mode: AutodiffMode) {
        if mode != AutodiffMode::None {
            self.key.push(TAG_MODE | (mode as u64) << 8);
        }
        if self.overlapping() {
            let overlaps = self
                .overlaps()
                .map(|o| TAG_OVERLAP | u64::from(o.same) << 8 | u64::from(o.first) << 16 | u64::from(o.second) << 40);
            let overlaps: SmallVec<[u64; 8]> = overlaps.collect();
            self.key.extend_from_slice(&overlaps);
        }
    }

    /// Some two array arguments share bytes.
    pub fn overlapping(&self) -> bool {
        if self.spans.len() > MANY_SPANS {
            // In the order of memory only neighbours need to be compared.
            let mut sorted: SmallVec<[(u64, u64); 128]> =
                self.spans.iter().filter(|s| s.low < s.high).map(|s| (s.low, s.high)).collect();
            sorted.sort_unstable();
            return sorted.windows(2).any(|pair| pair[1].0 < pair[0].1);
        }
        self.spans.iter().enumerate().any(|(i, a)| self.spans[..i].iter().any(|b| a.low < b.high && b.low < a.high))
    }

    /// The array arguments that share bytes.
    pub fn overlaps(&self) -> impl Iterator<Item = Overlap> + '_ {
        let words = |s: &Span| &self.words[s.words.0 as usize..s.words.1 as usize];
        self.spans.iter().enumerate().flat_map(move |(i, b)| {
            let overlap = |a: &&Span| a.low < b.high && b.low < a.high;
            let pair = move |a: &Span| Overlap { first: a.leaf, second: b.leaf, same: words(a) == words(b) };
            self.spans[..i].iter().filter(overlap).map(pair)
        })
    }

    #[inline]
    fn template(&mut self, value: &Bound<'_, PyAny>, place: &Place<'_>) -> PyResult<()> {
        if self.no_template_floats && value.is_exact_instance_of::<PyFloat>() {
            return Err(templated_float(&place.path(), place.kernel));
        }
        template_key(&mut self.key, value, place)
    }

    fn start(&mut self) {
        self.starts.push(self.words.len() as u32);
    }

    fn push_array(&mut self, view: ArrayView, py: Python<'py>) {
        let (low, high) = view.span();
        self.push_memory(&Memory {
            address: view.address,
            extents: &view.extents,
            strides: &view.strides,
            type_word: type_word(&view.elem),
            needs_grad: view.needs_grad,
            low,
            high,
            readonly: view.readonly,
            host: view.host,
            gaps: view.has_gaps(),
        });
        self.keep(view, py);
    }

    /// Notes what keeps an array's memory, and what the launch must wait for before it uses it.
    pub fn keep(&mut self, view: ArrayView, py: Python<'py>) {
        self.held.extend(view.owner.map(|owner| owner.into_bound(py)));
        if let Some(handle) = view.ready_on
            && !self.ready_on.contains(&handle)
        {
            self.ready_on.push(handle);
        }
    }

    /// Takes an array's memory: its words, its span, its part of the key.
    #[inline(always)]
    pub fn push_memory(&mut self, m: &Memory<'_>) {
        let leaf = self.starts.len() as u32;
        let start = self.words.len() as u32;
        self.start();
        self.words.push(m.address);
        m.extents.iter().for_each(|&n| self.words.push(n));
        m.strides.iter().for_each(|&n| self.words.push(n as u64));
        let words = (start, self.words.len() as u32);
        let Memory { low, high, readonly, host, gaps, .. } = *m;
        self.spans.push(Span { leaf, low, high, readonly, host, gaps, words });
        let contiguous = u64::from(m.strides.is_empty());
        let wide = u64::from(NdarrayDesc::is_wide(m.extents));
        let flags = contiguous | wide << 1 | u64::from(m.needs_grad) << 2;
        self.key.push(TAG_ARRAY | m.type_word | (m.extents.len() as u64) << 40 | flags << 48);
    }
}

/// What a call must know of an array's memory.
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
    /// First byte.
    pub low: u64,
    /// One past the last.
    pub high: u64,
    /// Must not be written.
    pub readonly: bool,
    /// In the host's memory.
    pub host: bool,
    /// There are bytes between the elements that are not the array's.
    pub gaps: bool,
}

/// The error of a float where the options allow none.
pub fn templated_float(name: &str, kernel: &str) -> PyErr {
    PyValueError::new_err(format!(
        "Floats not allowed as templated types (raise_on_templated_floats=True): `{name}` of kernel `{kernel}`"
    ))
}

/// A scalar or tensor type in 32 bits.
pub fn type_word(ty: &Type) -> u64 {
    let scalar = array::scalar_of(ty) as u64;
    let shape = ty.shape();
    let extent = |i: usize| u64::from(shape.get(i).copied().unwrap_or(0)) & 0xfff;
    scalar | (shape.len() as u64) << 4 | extent(0) << 8 | extent(1) << 20
}

/// Appends what tells a compile-time value apart: numbers, strings and tuples by value, anything else by identity.
fn template_key(key: &mut SmallVec<[u64; 16]>, value: &Bound<'_, PyAny>, place: &Place<'_>) -> PyResult<()> {
    let py = value.py();
    let p = value.as_ptr();
    if value.is_none() {
        key.push(TAG_NONE);
        return Ok(());
    }
    // SAFETY: `p` is a live object.
    let ty = unsafe { ffi::Py_TYPE(p) };
    if ty == &raw mut ffi::PyBool_Type {
        key.extend_from_slice(&[TAG_BOOL, u64::from(value.is_truthy()?)]);
        return Ok(());
    }
    if value.is_exact_instance_of::<PyInt>() {
        if let Ok(i) = value.extract::<i64>() {
            key.extend_from_slice(&[TAG_INT, i as u64]);
            return Ok(());
        }
    } else if value.is_exact_instance_of::<PyFloat>() {
        key.extend_from_slice(&[TAG_FLOAT, value.extract::<f64>()?.to_bits()]);
        return Ok(());
    } else if value.is_exact_instance_of::<PyString>() {
        key.extend_from_slice(&[TAG_STR, value.hash()? as u64]);
        return Ok(());
    } else if let Ok(tuple) = value.cast::<PyTuple>() {
        key.extend_from_slice(&[TAG_TUPLE, tuple.len() as u64, ty as u64]);
        for item in tuple.iter() {
            template_key(key, &item, place)?;
        }
        return Ok(());
    } else if value.is_instance_of::<Ndarray>() {
        return Err(errors::exception(
            py,
            "OctantsRuntimeTypeError",
            format!(
                "Ndarray shouldn't be passed in via `qd.template()`: annotate parameter `{}` of kernel `{}` with \
                 `qd.types.ndarray(...)` instead",
                place.path(),
                place.kernel
            ),
        ));
    }
    if !by_identity(value)? {
        // A scalar of numpy: its type and its value.
        key.extend_from_slice(&[TAG_NUMPY, ty as u64]);
        return template_key(key, &value.call_method0(pyo3::intern!(py, "item"))?, place);
    }
    key.extend_from_slice(&[TAG_OBJECT, p as u64]);
    Ok(())
}

/// Whether a key tells this compile-time value apart by its address, so that it must not die while the key is used.
pub fn by_identity(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let by_value = value.is_none()
        || value.is_exact_instance_of::<PyBool>()
        || value.is_exact_instance_of::<PyFloat>()
        || value.is_exact_instance_of::<PyString>()
        || (value.is_exact_instance_of::<PyInt>() && value.extract::<i64>().is_ok());
    if by_value {
        return Ok(false);
    }
    let py = value.py();
    Ok(!value.is_instance(Known::get(py)?.np_generic.bind(py).as_any())?)
}

/// The view of an array argument, checked against its annotation.
pub fn array_argument(wanted: &ArrayKind, value: &Bound<'_, PyAny>, place: &Place<'_>) -> PyResult<ArrayView> {
    let mut view = array::view(value)?;
    let mut own = value.is_instance_of::<Ndarray>();
    if view.is_none() {
        let unwrapped = unwrap_tensor(value.clone())?;
        if !unwrapped.is(value) {
            view = array::view(&unwrapped)?;
            own = unwrapped.is_instance_of::<Ndarray>();
        }
    }
    let Some(mut view) = view else { return Err(not_an_array(value, place)) };
    let mut elem = wanted.elem.clone();
    if let Some(rank) = wanted.rank {
        let scalar = elem.as_ref().map_or_else(|| array::scalar_of(&view.elem), array::scalar_of);
        elem = Some(element_of_rank(&view, scalar, rank as usize, own, place)?);
    }
    if let Some(elem) = &elem {
        let folded = own || view.fold_elements(elem);
        if !folded || view.elem != *elem {
            return Err(wrong_elements(&view, elem, wanted.ndim, own, place));
        }
    }
    match wanted.ndim {
        Some(ndim) if ndim as usize != view.extents.len() => Err(wrong_ndim(&view, ndim, own, place)),
        _ => Ok(view),
    }
}

/// The element type where the annotation gives its number of axes alone: its extents are the array's last ones.
fn element_of_rank(view: &ArrayView, scalar: Scalar, rank: usize, own: bool, place: &Place<'_>) -> PyResult<Type> {
    let (name, kernel) = (place.path(), place.kernel);
    if own {
        let shape = view.elem.shape();
        return if shape.len() == rank {
            Ok(Type::tensor(scalar, &shape))
        } else {
            Err(PyValueError::new_err(format!(
                "Invalid value for argument {name} - required element type: a {} of any size, but {} is provided (kernel \
                 `{kernel}`)",
                if rank == 1 { "vector" } else { "matrix" },
                type_text(&view.elem)
            )))
        };
    }
    let Some(at) = view.extents.len().checked_sub(rank) else {
        return Err(PyValueError::new_err(format!(
            "Invalid value for argument {name} - required array has element_dim={rank}, array with {} dimensions is provided \
             (kernel `{kernel}`)",
            view.extents.len()
        )));
    };
    let shape = view.extents[at..].iter().map(|&n| u32::try_from(n)).collect::<Result<Vec<_>, _>>();
    let shape =
        shape.map_err(|_| PyValueError::new_err(format!("argument {name}: an element has too many components")))?;
    element_type(scalar, &shape)
}

fn not_an_array(value: &Bound<'_, PyAny>, place: &Place<'_>) -> PyErr {
    let shown = value.repr().map_or_else(|_| "?".to_string(), |r| r.to_string());
    errors::exception(
        value.py(),
        "OctantsRuntimeTypeError",
        format!(
            "Invalid type for argument {}, got {shown}: kernel `{}` takes an array there",
            place.path(),
            place.kernel
        ),
    )
}

fn wrong_elements(view: &ArrayView, elem: &Type, ndim: Option<u32>, own: bool, place: &Place<'_>) -> PyErr {
    let (name, kernel) = (place.path(), place.kernel);
    if own && !elem.shape().is_empty() {
        return PyValueError::new_err(format!(
            "Invalid value for argument {name} - required element type: {}, but {} is provided (kernel `{kernel}`)",
            type_text(elem),
            type_text(&view.elem)
        ));
    }
    if own {
        return PyTypeError::new_err(format!(
            "Expect element type {} for argument {name}, but get {} (kernel `{kernel}`)",
            element_text(elem),
            element_text(&view.elem)
        ));
    }
    let (want, got) = (array::scalar_of(elem), array::scalar_of(&view.elem));
    if want != got {
        return PyValueError::new_err(format!(
            "Invalid value for argument {name} - required array has dtype={want}, array with dtype={got} is provided \
             (kernel `{kernel}`)"
        ));
    }
    let (rank, given) = (elem.shape().len(), view.extents.len());
    if given < rank || ndim.is_some_and(|n| n as usize + rank != given) {
        let wanted = ndim.map_or_else(String::new, |n| format!("ndim={n} "));
        return PyValueError::new_err(format!(
            "Invalid value for argument {name} - required array has {wanted}element_dim={rank}, array with {given} dimensions \
             is provided (kernel `{kernel}`)"
        ));
    }
    let last = &view.extents[given - rank..];
    if last.iter().zip(&elem.shape()).any(|(&a, &b)| a != u64::from(b)) {
        return PyValueError::new_err(format!(
            "Invalid value for argument {name} - required element_shape={}, array with element shape of {} is provided: the \
             last axes of an array of shape {} are its elements (kernel `{kernel}`)",
            tuple_text(&elem.shape()),
            tuple_text(last),
            tuple_text(&view.extents)
        ));
    }
    PyValueError::new_err(format!(
        "Invalid value for argument {name} - the components of each element must lie one after the other in memory: pass \
         numpy.ascontiguousarray(...) of it (kernel `{kernel}`)"
    ))
}

/// A shape as Python writes it.
fn tuple_text<T: std::fmt::Display>(items: &[T]) -> String {
    let texts: Vec<String> = items.iter().map(T::to_string).collect();
    format!("({}{})", texts.join(", "), if items.len() == 1 { "," } else { "" })
}

/// An element's type in words.
fn element_text(ty: &Type) -> String {
    let shape: Vec<String> = ty.shape().iter().map(u32::to_string).collect();
    let scalar = array::scalar_of(ty);
    if shape.is_empty() { scalar.to_string() } else { format!("[Tensor ({}) {scalar}]", shape.join(", ")) }
}

/// A type object as Python shows it.
fn type_text(ty: &Type) -> String {
    let scalar = array::scalar_of(ty);
    match ty.shape()[..] {
        [n] => format!("VectorType[{n}, {scalar}]"),
        [n, m] => format!("MatrixType[{n},{m}, {scalar}]"),
        _ => scalar.to_string(),
    }
}

fn wrong_ndim(view: &ArrayView, ndim: u32, own: bool, place: &Place<'_>) -> PyErr {
    let (name, kernel, got) = (place.path(), place.kernel, view.extents.len());
    let rank = view.elem.shape().len();
    let elements = if rank == 0 { String::new() } else { format!(" element_dim={rank}") };
    PyValueError::new_err(if own {
        format!(
            "Invalid value for argument {name} - required ndim={ndim}, but {got}d ndarray with shape {} is provided \
             (kernel `{kernel}`)",
            tuple_text(&view.extents)
        )
    } else {
        format!(
            "Invalid value for argument {name} - required array has ndim={ndim}{elements}, array with {} dimensions is provided \
             (kernel `{kernel}`)",
            got + rank
        )
    })
}

fn bad_scalar(error: ScalarError, value: &Bound<'_, PyAny>, scalar: Scalar, place: &Place<'_>) -> PyErr {
    let (name, kernel) = (place.path(), place.kernel);
    match error {
        ScalarError::Raised(e) => e,
        ScalarError::OutOfRange => PyTypeError::new_err(format!(
            "argument `{name}` of kernel `{kernel}`: {} does not fit {scalar}",
            value.repr().map_or_else(|_| "the value".to_string(), |r| r.to_string())
        )),
        ScalarError::WrongType => errors::exception(
            value.py(),
            "OctantsRuntimeTypeError",
            format!(
                "Argument ({},) (type={}) cannot be converted into required type {scalar} (parameter `{name}` of kernel \
                 `{kernel}`)",
                place.index,
                value.get_type().repr().map_or_else(|_| "?".to_string(), |r| r.to_string())
            ),
        ),
    }
}

/// Appends the words of a vector or matrix given as a tensor value, a (nested) sequence, or a numpy array.
fn tensor_words(words: &mut SmallVec<[u64; 48]>, ty: &Type, value: &Bound<'_, PyAny>) -> Result<(), ScalarError> {
    let scalar = array::scalar_of(ty);
    let raised = ScalarError::Raised;
    let value = match marker(value).as_deref() {
        Some("tensor") => value.call_method0(pyo3::intern!(value.py(), "to_list")).unwrap_or_else(|_| value.clone()),
        _ => value.clone(),
    };
    let one = |words: &mut SmallVec<[u64; 48]>, item: &Bound<'_, PyAny>| -> Result<(), ScalarError> {
        let slot = match scalar_to_slot(item, scalar) {
            // Booleans of numpy arrays.
            Err(ScalarError::WrongType) if item.hasattr("item").map_err(raised)? => {
                scalar_to_slot(&item.call_method0("item").map_err(raised)?, scalar)?
            }
            other => other?,
        };
        words.push(slot);
        Ok(())
    };
    let items = |object: &Bound<'_, PyAny>, n: u32| -> Result<Vec<Py<PyAny>>, ScalarError> {
        let out: Vec<Py<PyAny>> = object
            .try_iter()
            .map_err(raised)?
            .map(|i| i.map(Bound::unbind))
            .collect::<PyResult<_>>()
            .map_err(raised)?;
        if out.len() != n as usize {
            return Err(raised(PyValueError::new_err(format!("{} components given where {n} are wanted", out.len()))));
        }
        Ok(out)
    };
    let py = value.py();
    match ty {
        Type::Vector(_, n) => items(&value, *n)?.iter().try_for_each(|i| one(words, i.bind(py))),
        Type::Matrix(_, n, m) => {
            for row in items(&value, *n)? {
                items(row.bind(py), *m)?.iter().try_for_each(|i| one(words, i.bind(py)))?;
            }
            Ok(())
        }
        _ => unreachable!("compiler bug: not a tensor type"),
    }
}

fn bad_tensor(error: ScalarError, value: &Bound<'_, PyAny>, ty: &Type, place: &Place<'_>) -> PyErr {
    let reason = match &error {
        ScalarError::Raised(e) => format!(": {}", e.value(value.py())),
        ScalarError::OutOfRange => ": a component is out of range".to_string(),
        ScalarError::WrongType => String::new(),
    };
    errors::exception(
        value.py(),
        "OctantsRuntimeTypeError",
        format!(
            "Argument cannot be converted into required type {} (parameter `{}` of kernel `{}` is a {ty}){reason}",
            array::scalar_of(ty),
            place.path(),
            place.kernel
        ),
    )
}

/// Appends the words of a struct value's members. `Err(None)` when it does not have the members that the type asks for.
fn struct_words(words: &mut SmallVec<[u64; 48]>, ty: &Type, value: &Bound<'_, PyAny>) -> Result<(), Option<PyErr>> {
    match ty {
        Type::Struct(s) => {
            let entries = match marker(value).as_deref() {
                Some("struct") => value.getattr(pyo3::intern!(value.py(), "entries")).map_err(Some)?,
                _ => value.clone(),
            };
            let Ok(entries) = entries.cast_into::<PyDict>() else { return Err(None) };
            if entries.len() != s.members.len() {
                return Err(None);
            }
            for (name, member) in &s.members {
                let Some(item) = entries.get_item(name).map_err(Some)? else { return Err(None) };
                struct_words(words, member, &item)?;
            }
            Ok(())
        }
        Type::Scalar(scalar) => match scalar_to_slot(value, *scalar) {
            Ok(slot) => {
                words.push(slot);
                Ok(())
            }
            Err(ScalarError::Raised(e)) => Err(Some(e)),
            Err(_) => Err(None),
        },
        _ => tensor_words(words, ty, value).map_err(|e| match e {
            ScalarError::Raised(e) => Some(e),
            _ => None,
        }),
    }
}

fn bad_struct(value: &Bound<'_, PyAny>, object: &Bound<'_, PyAny>, place: &Place<'_>) -> PyErr {
    let text = |o: &Bound<'_, PyAny>| o.repr().map_or_else(|_| "?".to_string(), |r| r.to_string());
    errors::exception(
        value.py(),
        "OctantsRuntimeTypeError",
        format!(
            "Argument {} cannot be converted into required type {} (parameter `{}` of kernel `{}`)",
            text(value.get_type().as_any()),
            text(object),
            place.path(),
            place.kernel
        ),
    )
}
