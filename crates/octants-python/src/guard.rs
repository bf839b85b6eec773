//! Guards: what compiled code assumes about the objects passed as compile-time values, namely the attributes and items
//! that were read during compilation. A launch checks them again and uses other code if one has changed.
//!
//! Numbers and strings are compared by value, containers item by item. Fields and types must be the same object.
//! Vectors, matrices and numpy arrays are assumed unchanged if they are the same object; otherwise their contents are
//! compared. An ndarray may be replaced by any other of its type. Other objects in containers must be the same, unless
//! their class compares by value. Guards do not keep such objects alive, because an object may refer back to the
//! argument.

use std::sync::Arc;

use octants_engine::frontend::{NdarrayDesc, shadow_attribute};
use octants_engine::ir::{Scalar, ShadowBuffer};
use octants_engine::runtime::HostArray;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyType, PyWeakrefMethods, PyWeakrefReference};

use crate::argument::Gathered;
use crate::array;
use crate::array_view::ArrayView;
use crate::names::{Known, marker, unwrap_tensor};
use crate::ndarray::Ndarray;
use crate::other_device::other_device;
use crate::package::Package;
use crate::scalar::{ScalarError, scalar_to_slot};

/// One step from an object to one that it holds.
#[derive(Debug, Clone)]
pub enum Step {
    /// `.name`
    Attribute(String),
    /// `[index]` of a list or tuple.
    Item(usize),
    /// `[key]` of anything.
    Key(Arc<Py<PyAny>>),
}

/// The path from a compile-time argument to a value that was read from it.
#[derive(Debug, Clone)]
pub struct Path {
    /// Position of the parameter.
    pub param: u32,
    /// From the argument on.
    pub steps: Vec<Step>,
    /// Numbers at the end of attributes are read at each launch instead of being compiled in.
    pub live: bool,
}

impl Path {
    /// One step further.
    pub fn then(&self, step: Step) -> Path {
        let mut steps = self.steps.clone();
        steps.push(step);
        Path { param: self.param, steps, live: self.live }
    }

    /// The attributes, if there are no other steps.
    pub fn attributes(&self) -> Option<Vec<&str>> {
        self.steps
            .iter()
            .map(|s| match s {
                Step::Attribute(name) => Some(name.as_str()),
                Step::Item(_) | Step::Key(_) => None,
            })
            .collect()
    }
}

/// The attribute of an array that holds its read marks. Tensors of other libraries lack it.
pub const MARKS: &str = shadow_attribute(ShadowBuffer::ReadMarks);

/// The read marks of an array with a gradient: an i32 array with the array's first `ndim` extents.
pub fn read_marks<'py>(array: &Bound<'py, PyAny>, ndim: u32) -> PyResult<Bound<'py, PyAny>> {
    Package::get(array.py())?.read_marks.bind(array.py()).call1((array, ndim))
}

enum Walk {
    Attribute(Py<PyString>),
    Item(usize),
    Key(Py<PyAny>),
}

impl Walk {
    fn clone_ref(&self, py: Python<'_>) -> Walk {
        match self {
            Walk::Attribute(name) => Walk::Attribute(name.clone_ref(py)),
            Walk::Item(i) => Walk::Item(*i),
            Walk::Key(key) => Walk::Key(key.clone_ref(py)),
        }
    }
}

/// A path from an argument that each launch can follow.
pub struct Route {
    param: u32,
    walk: Box<[Walk]>,
    /// For messages.
    text: String,
}

/// An assumption.
pub struct Guard {
    route: Route,
    expected: Expected,
}

/// A number that is read at each launch.
pub struct LiveNumber {
    route: Route,
    scalar: Scalar,
    to: u32,
}

enum Expected {
    /// This very object.
    Same(Py<PyAny>),
    /// This object, while it is alive.
    Alive(Py<PyWeakrefReference>),
    /// A value of the same type, equal to this one.
    Equal(Py<PyAny>),
    /// A list, tuple or dict of this class with such items. Those of a dict are each key and its value.
    Items {
        class: Py<PyType>,
        expected: Box<[Expected]>,
        /// The addresses of the items, if all are kept alive. Makes the check of long lists at each launch cheap.
        kept: Box<[usize]>,
    },
    /// A vector, matrix or numpy array with the same contents.
    Like(Py<PyAny>),
    /// An ndarray of this type, or the validation marks of an array. Its memory is passed in the slots from `to` on.
    Array { desc: NdarrayDesc, to: u32, marks: bool },
}

impl Guard {
    /// Expects an ndarray of this type at the end of a path. Its memory is passed in the slots from `to` on.
    pub fn array(py: Python<'_>, path: &Path, desc: NdarrayDesc, to: u32) -> Guard {
        let marks = matches!(path.steps.last(), Some(Step::Attribute(name)) if name == MARKS);
        let steps = path.steps[..path.steps.len() - usize::from(marks)].to_vec();
        let route = Route::new(py, &Path { steps, ..path.clone() });
        Guard { route, expected: Expected::Array { desc, to, marks } }
    }

    /// Guards a value that was read. `None` for objects with guards only on their own attributes and items.
    pub fn value(path: &Path, value: &Bound<'_, PyAny>) -> PyResult<Option<Guard>> {
        let expected = Expected::of(value, DEEPEST)?;
        Ok(expected.map(|expected| Guard { route: Route::new(value.py(), path), expected }))
    }

    /// Visits the expected values for the garbage collector.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.route.traverse(visit)?;
        self.expected.traverse(visit)
    }

    /// Slots of the launch are filled only if it holds.
    pub fn fills_slots(&self) -> bool {
        matches!(self.expected, Expected::Array { .. })
    }

    /// The object whose attribute it looks at, and the attribute's name; `None` if it reads an item.
    pub fn attribute_of(&self, py: Python<'_>) -> Option<(Route, Py<PyString>)> {
        let (Walk::Attribute(name), owner) = self.route.walk.split_last()? else { return None };
        let route = Route {
            param: self.route.param,
            walk: owner.iter().map(|step| step.clone_ref(py)).collect(),
            text: String::new(),
        };
        Some((route, name.clone_ref(py)))
    }

    /// Whether the expectation holds as long as the object is the same.
    pub fn is_of_immutable(&self) -> bool {
        self.expected.is_immutable()
    }

    /// Position of the parameter, and the way from there as the user writes it.
    pub fn path(&self) -> (u32, String) {
        (self.route.param, self.route.text.clone())
    }

    /// Checks the guard. Writes an array's memory to its slots, and adds the array to the objects that the launch
    /// holds.
    pub fn holds<'py>(
        &self,
        args: &[Bound<'py, PyAny>],
        slots: &mut [u64],
        gathered: &mut Gathered<'py>,
    ) -> PyResult<bool> {
        let Some(object) = self.route.follow(args)? else { return Ok(false) };
        let Expected::Array { desc, to, marks } = &self.expected else { return self.expected.is(&object) };
        let mut object = unwrap_tensor(object)?;
        if *marks {
            object = read_marks(&object, desc.ndim)?;
        }
        let view = match object.cast::<Ndarray>() {
            Ok(array) if desc.takes(&array.get().desc()) => array::view(&object)?,
            Ok(_) => None,
            Err(_) => foreign_view(&object, desc)?,
        };
        let Some(view) = view else { return Ok(false) };
        if view.serial != gathered.serial && view.serial != 0 {
            let what = format!("the array `{}`", self.route.text.trim_start_matches('.'));
            return Err(other_device(object.py(), None, gathered.serial, &what, view.serial));
        }
        fill_array(slots, *to, &view);
        if view.host {
            let (low, high) = view.span();
            gathered.hosted.push(HostArray { slot: *to, low, high, written: true, gaps: view.has_gaps() });
        }
        gathered.keep(view, object.py());
        gathered.held.push(object);
        Ok(true)
    }
}

/// Maximum nesting depth of containers; a container may contain itself.
const DEEPEST: usize = 16;

impl Expected {
    /// The expected value. `None` for objects with guards only on their own attributes and items.
    fn of(value: &Bound<'_, PyAny>, depth: usize) -> PyResult<Option<Expected>> {
        let py = value.py();
        let keep = || value.clone().unbind();
        if value.is_none()
            || value.is_instance_of::<PyInt>()
            || value.is_instance_of::<PyFloat>()
            || value.is_instance_of::<PyString>()
        {
            return Ok(Some(Expected::Equal(keep())));
        }
        if let Some(items) = items_of(value).filter(|_| depth > 0) {
            let expected =
                items.iter().map(|item| Expected::of_item(item, depth - 1)).collect::<PyResult<Box<[Expected]>>>()?;
            let address = |expected: &Expected| match expected {
                Expected::Equal(item) => Some(item.as_ptr() as usize),
                _ => None,
            };
            let kept = expected.iter().map(address).collect::<Option<_>>().unwrap_or_default();
            return Ok(Some(Expected::Items { class: value.get_type().unbind(), expected, kept }));
        }
        if value.is_instance_of::<Ndarray>() {
            // Not used as an array, or reached by a path that a launch cannot follow: the code contains its address.
            return Ok(Some(Expected::Same(keep())));
        }
        let known = Known::get(py)?;
        Ok(match marker(value).as_deref() {
            Some("tensor") => Some(Expected::Like(keep())),
            Some(_) => Some(Expected::Same(keep())),
            None if value.is_instance(known.np_ndarray.bind(py).as_any())? => Some(Expected::Like(keep())),
            None if value.is_instance(known.np_generic.bind(py).as_any())? => Some(Expected::Equal(keep())),
            // Their behavior when called is not visible in their attributes.
            None if value.is_instance_of::<PyType>() || value.is_instance(known.partial.bind(py).as_any())? => {
                Some(Expected::Same(keep()))
            }
            None => None,
        })
    }

    /// The expected contents of a container.
    fn of_item(item: &Bound<'_, PyAny>, depth: usize) -> PyResult<Expected> {
        if let Some(expected) = Expected::of(item, depth)? {
            return Ok(expected);
        }
        let keep = || item.clone().unbind();
        Ok(match PyWeakrefReference::new(item) {
            _ if is_value(item)? => Expected::Equal(keep()),
            Ok(weak) => Expected::Alive(weak.unbind()),
            Err(_) => Expected::Same(keep()),
        })
    }

    /// An object that meets the expectation once always meets it.
    fn is_immutable(&self) -> bool {
        match self {
            Expected::Same(_) | Expected::Alive(_) | Expected::Equal(_) | Expected::Like(_) => true,
            Expected::Items { .. } | Expected::Array { .. } => false,
        }
    }

    /// Weak references refer to nothing.
    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Expected::Same(object) | Expected::Equal(object) | Expected::Like(object) => visit.call(object),
            Expected::Items { class, expected, .. } => {
                visit.call(class)?;
                expected.iter().try_for_each(|item| item.traverse(visit))
            }
            Expected::Alive(_) | Expected::Array { .. } => Ok(()),
        }
    }

    /// Whether an object is as expected. Arrays are checked elsewhere.
    fn is(&self, object: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = object.py();
        match self {
            Expected::Same(expected) => Ok(object.is(expected) || unwrap_tensor(object.clone())?.is(expected)),
            Expected::Alive(weak) => Ok(weak.bind(py).upgrade().is_some_and(|expected| object.is(&expected))),
            Expected::Equal(expected) => {
                let expected = expected.bind(py);
                if object.is(expected) {
                    return Ok(true);
                }
                // Objects whose comparison gives no truth value count as different.
                Ok(object.get_type().is(expected.get_type()) && object.eq(expected).unwrap_or(false))
            }
            Expected::Like(expected) => Ok(object.is(expected) || same_contents(object, expected.bind(py))),
            Expected::Items { class, expected, kept } => {
                if !object.get_type().is(class) {
                    return Ok(false);
                }
                if let Ok(list) = object.cast::<PyList>() {
                    // SAFETY: the list is alive, and nothing of Python runs while it is compared.
                    let same = unsafe {
                        let items = (*list.as_ptr().cast::<ffi::PyListObject>()).ob_item.cast::<usize>();
                        list.len() == kept.len()
                            && !kept.is_empty()
                            && std::slice::from_raw_parts(items, kept.len()) == &**kept
                    };
                    if same {
                        return Ok(true);
                    }
                }
                let Some(items) = items_of(object).filter(|items| items.len() == expected.len()) else {
                    return Ok(false);
                };
                for (item, expected) in items.iter().zip(expected) {
                    if !expected.is(item)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Expected::Array { .. } => Ok(false),
        }
    }
}

/// Whether objects of this class are compared by value, like those of enums and of frozen dataclasses.
fn is_value(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    let (class, plain) = (object.get_type(), py.get_type::<PyAny>());
    let has_own = |name: &Bound<'_, PyString>| -> PyResult<bool> {
        let method = class.getattr(name)?;
        Ok(!method.is_none() && !method.is(plain.getattr(name)?))
    };
    Ok(has_own(pyo3::intern!(py, "__eq__"))? && has_own(pyo3::intern!(py, "__hash__"))?)
}

/// The contents of a list, a tuple or a dict; `None` for other objects.
fn items_of<'py>(object: &Bound<'py, PyAny>) -> Option<Vec<Bound<'py, PyAny>>> {
    if let Ok(list) = object.cast::<PyList>() {
        return Some(list.iter().collect());
    }
    if let Ok(tuple) = object.cast::<PyTuple>() {
        return Some(tuple.iter().collect());
    }
    let dict = object.cast::<PyDict>().ok()?;
    Some(dict.iter().flat_map(|(key, value)| [key, value]).collect())
}

impl Route {
    fn new(py: Python<'_>, path: &Path) -> Route {
        let step = |s: &Step| match s {
            Step::Attribute(name) => Walk::Attribute(PyString::intern(py, name).unbind()),
            Step::Item(i) => Walk::Item(*i),
            Step::Key(key) => Walk::Key(key.clone_ref(py)),
        };
        let text = |s: &Step| match s {
            Step::Attribute(name) => format!(".{name}"),
            Step::Item(i) => format!("[{i}]"),
            Step::Key(key) => format!("[{}]", key.bind(py).repr().map_or_else(|_| "?".to_string(), |r| r.to_string())),
        };
        Route {
            param: path.param,
            walk: path.steps.iter().map(step).collect(),
            text: path.steps.iter().map(text).collect(),
        }
    }

    /// Visits the path's keys for the garbage collector.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.walk.iter().try_for_each(|step| match step {
            Walk::Key(key) => visit.call(key),
            Walk::Attribute(_) | Walk::Item(_) => Ok(()),
        })
    }

    /// Whether the paths are equal.
    pub fn is_same(&self, py: Python<'_>, other: &Route) -> bool {
        let same = |(a, b): (&Walk, &Walk)| match (a, b) {
            (Walk::Attribute(a), Walk::Attribute(b)) => a.is(b),
            (Walk::Item(a), Walk::Item(b)) => a == b,
            (Walk::Key(a), Walk::Key(b)) => a.bind(py).is(b),
            _ => false,
        };
        self.param == other.param && self.walk.len() == other.walk.len() && self.walk.iter().zip(&other.walk).all(same)
    }

    /// The object at the end of the path now.
    #[inline]
    pub fn follow<'py>(&self, args: &[Bound<'py, PyAny>]) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(first) = args.get(self.param as usize) else { return Ok(None) };
        let py = first.py();
        let mut object = first.clone();
        for step in &self.walk {
            let next = match step {
                Walk::Attribute(name) => object.getattr_opt(name.bind(py))?,
                Walk::Item(i) => object.get_item(*i).ok(),
                Walk::Key(key) => object.get_item(key.bind(py)).ok(),
            };
            match next {
                Some(next) => object = next,
                None => return Ok(None),
            }
        }
        Ok(Some(object))
    }
}

impl LiveNumber {
    /// A number at the end of attributes, read as `scalar` into slot `to`.
    pub fn new(py: Python<'_>, param: u32, path: &[String], scalar: Scalar, to: u32) -> LiveNumber {
        let steps = path.iter().cloned().map(Step::Attribute).collect();
        let route = Route::new(py, &Path { param, steps, live: true });
        LiveNumber { route, scalar, to }
    }

    fn name(&self) -> &str {
        self.route.text.trim_start_matches('.')
    }

    /// Its slot.
    #[inline]
    pub fn slot(&self) -> usize {
        self.to as usize
    }

    /// Reads it.
    pub fn read(&self, args: &[Bound<'_, PyAny>], slots: &mut [u64]) -> PyResult<()> {
        let Some(object) = self.route.follow(args)? else {
            return Err(PyTypeError::new_err(format!(
                "attribute `{}`, which a kernel reads at launch, no longer exists",
                self.name()
            )));
        };
        slots[self.to as usize] = scalar_to_slot(&object, self.scalar).map_err(|e| match e {
            ScalarError::Raised(e) => e,
            ScalarError::OutOfRange => {
                PyTypeError::new_err(format!("attribute `{}` does not fit {}", self.name(), self.scalar))
            }
            ScalarError::WrongType => PyTypeError::new_err(format!(
                "Primitive member '{}' of a @qd.data_oriented(template_primitives=False) object was lifted as a kernel \
                 argument of type {} (its type at first compile), but is now a {}; coercing it would truncate: keep \
                 the type of values that kernels read at launch",
                self.name(),
                self.scalar,
                object.get_type()
            )),
        })?;
        Ok(())
    }
}

/// Another library's array, reached from an argument (a tensor's gradient), as one of this type.
fn foreign_view(object: &Bound<'_, PyAny>, desc: &NdarrayDesc) -> PyResult<Option<ArrayView>> {
    let Some(mut view) = array::view(object)? else { return Ok(None) };
    if !view.fold_elements(&desc.elem) || (desc.contiguous && !view.strides.is_empty()) {
        return Ok(None);
    }
    (view.needs_grad, view.needs_dual) = (desc.needs_grad, desc.needs_dual);
    let found = NdarrayDesc { contiguous: desc.contiguous, clamped: desc.clamped, ..view.desc() };
    if !desc.takes(&found) {
        return Ok(None);
    }
    if !desc.contiguous {
        view.spell_out_strides();
    }
    Ok(Some(view))
}

fn same_contents(a: &Bound<'_, PyAny>, b: &Bound<'_, PyAny>) -> bool {
    let bytes = |o: &Bound<'_, PyAny>| -> PyResult<(String, Vec<u8>)> {
        let array = if marker(o).as_deref() == Some("tensor") { o.call_method0("to_numpy")? } else { o.clone() };
        let kind = format!("{} {}", array.getattr("dtype")?, array.getattr("shape")?);
        Ok((kind, array.call_method0("tobytes")?.extract()?))
    };
    match (bytes(a), bytes(b)) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}

/// Puts an array's pointer, extents and strides into its slots.
pub fn fill_array(slots: &mut [u64], to: u32, view: &ArrayView) {
    let words =
        std::iter::once(view.address).chain(view.extents.iter().copied()).chain(view.strides.iter().map(|&s| s as u64));
    for (slot, word) in slots[to as usize..].iter_mut().zip(words) {
        *slot = word;
    }
}
