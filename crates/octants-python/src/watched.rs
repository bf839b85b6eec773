//! [`Watched`]: what a dataclass argument that is not frozen held when it was flattened, and whether it still does.
//!
//! Its members are looked at where attributes of ordinary objects are, in the dict of the object, without the search through its classes that
//! comes first: a class that has changed since is known by the interpreter's number of its version, which is another one for each class
//! and each change. Nothing of Python runs meanwhile. Arrays are known by weak references, so that they die as they would without.

use std::ffi::c_uint;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString, PyWeakrefMethods, PyWeakrefReference};

use crate::annotation::ParamKind;
use crate::argument::Gathered;
use crate::ndarray::Ndarray;

/// A dataclass object and its members.
struct Members {
    object: Py<PyWeakrefReference>,
    /// The interpreter's number of its class as it is.
    class: c_uint,
    members: Vec<(Py<PyString>, Member)>,
}

/// What a member was.
enum Member {
    /// An array, or an object with members.
    Kept(Py<PyWeakrefReference>),
    Number(Py<PyAny>),
}

/// All objects of an argument whose members may be assigned; none for a frozen one.
#[derive(Default)]
pub struct Watched(Vec<Members>);

impl Watched {
    /// Looks at an argument. `None` for one that cannot be told to be unchanged.
    pub fn of(kind: &ParamKind, value: &Bound<'_, PyAny>) -> PyResult<Option<Watched>> {
        let mut watched = Watched::default();
        Ok(watched.add(kind, value)?.then_some(watched))
    }

    /// Whether all members are what they were. Then the arrays and objects among them are held for the call: who assigns to a member while
    /// the kernel runs must not free them.
    pub fn is_unchanged<'py>(&self, py: Python<'py>, gathered: &mut Gathered<'py>) -> PyResult<bool> {
        let held = gathered.held.len();
        for object in &self.0 {
            if !object.is_unchanged(py, gathered)? {
                gathered.held.truncate(held);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Adds an object with what it holds; false where that may change unseen.
    fn add(&mut self, kind: &ParamKind, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        let ParamKind::Dataclass(class, kinds) = kind else { return Ok(is_constant(kind, value)) };
        let py = value.py();
        let class = class.bind(py);
        let (Some(dict), Some(version)) = (dict_of(value)?, version_of(value)) else { return Ok(false) };
        if !value.get_type().is(class) {
            return Ok(false);
        }
        let frozen = class
            .getattr(pyo3::intern!(py, "__dataclass_params__"))?
            .getattr(pyo3::intern!(py, "frozen"))?
            .is_truthy()?;
        let mut members = Vec::new();
        for (name, kind) in kinds {
            let name = name.bind(py);
            let Some(member) = dict.get_item(name)? else { return Ok(false) };
            // A property and its like would come before what the dict holds.
            let hidden = match class.as_any().getattr_opt(name)? {
                Some(default) => default.get_type().hasattr(pyo3::intern!(py, "__set__"))?,
                None => false,
            };
            if hidden || !self.add(kind, &member)? {
                return Ok(false);
            }
            let was = match kind {
                ParamKind::Array(_) | ParamKind::Dataclass(..) => {
                    PyWeakrefReference::new(&member).map(|weak| Member::Kept(weak.unbind()))
                }
                _ => Ok(Member::Number(member.clone().unbind())),
            };
            let Ok(was) = was else { return Ok(false) };
            members.push((name.clone().unbind(), was));
        }
        if !frozen {
            let Ok(object) = PyWeakrefReference::new(value) else { return Ok(false) };
            self.0.push(Members { object: object.unbind(), class: version, members });
        }
        Ok(true)
    }
}

impl Members {
    #[inline]
    fn is_unchanged<'py>(&self, py: Python<'py>, gathered: &mut Gathered<'py>) -> PyResult<bool> {
        let Some(object) = self.object.bind(py).upgrade() else { return Ok(false) };
        if version_of(&object) != Some(self.class) {
            return Ok(false);
        }
        let Some(dict) = dict_of(&object)? else { return Ok(false) };
        for (name, was) in &self.members {
            let Some(is) = dict.get_item(name.bind(py))? else { return Ok(false) };
            match was {
                Member::Number(number) if is.is(number) => {}
                Member::Kept(weak) if weak.bind(py).upgrade().is_some_and(|was| was.is(&is)) => gathered.held.push(is),
                _ => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// It is the same as long as it lives.
fn is_constant(kind: &ParamKind, value: &Bound<'_, PyAny>) -> bool {
    match kind {
        ParamKind::Array(_) => value.is_instance_of::<Ndarray>(),
        ParamKind::Scalar(_) => {
            value.is_exact_instance_of::<PyInt>()
                || value.is_exact_instance_of::<PyFloat>()
                || value.is_exact_instance_of::<PyBool>()
        }
        _ => false,
    }
}

/// The attributes that an object has itself, where they are looked up as those of ordinary objects.
fn dict_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyDict>>> {
    // SAFETY: the object is alive, and so is its class.
    let ordinary = unsafe {
        let class = ffi::Py_TYPE(object.as_ptr());
        (*class).tp_getattro.is_some_and(|f| f as usize == ffi::PyObject_GenericGetAttr as *const () as usize)
            && ((*class).tp_dictoffset != 0 || (*class).tp_flags & MANAGED_DICT != 0)
    };
    if !ordinary {
        return Ok(None);
    }
    // SAFETY: the object has a dict; the result is a new reference, or null with an exception.
    let dict = unsafe {
        Bound::from_owned_ptr_or_err(object.py(), ffi::PyObject_GenericGetDict(object.as_ptr(), std::ptr::null_mut()))?
    };
    Ok(dict.cast_into_exact::<PyDict>().ok())
}

/// The flag of classes whose objects have a dict in a place of the interpreter's choice.
const MANAGED_DICT: std::ffi::c_ulong = 1 << 4;
/// The flag of classes that have a number for their version.
const VALID_VERSION: std::ffi::c_ulong = 1 << 19;

/// The interpreter's number of the version of an object's class, if it has one now.
fn version_of(object: &Bound<'_, PyAny>) -> Option<c_uint> {
    // SAFETY: the object is alive, and so is its class.
    let (flags, version) = unsafe {
        let class = ffi::Py_TYPE(object.as_ptr());
        ((*class).tp_flags, (*class).tp_version_tag)
    };
    (flags & VALID_VERSION != 0 && version != 0).then_some(version)
}
