//! [`Watched`]: the contents of a non-frozen dataclass argument when it was flattened, and the check that they are
//! unchanged.
//!
//! Members are read directly from the object's dict, without the lookup through its classes. The interpreter's version
//! number identifies the class and its state. If the interpreter also counts the changes of a dict ([`dict_version`]),
//! an unchanged count means that no member need be read. No Python code runs during the check. Arrays are held by weak
//! references, so their lifetime does not change.

use std::ffi::c_uint;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString, PyWeakrefMethods, PyWeakrefReference};

use crate::annotation::ParamKind;
use crate::argument::{by_identity, is_array};
use crate::names::unwrap_tensor;
use crate::ndarray::Ndarray;

/// A dataclass object and its members.
struct Members {
    object: Py<PyWeakrefReference>,
    /// The interpreter's version number of its class.
    class: c_uint,
    /// Version of its dict when the members were last compared; 0 if there is none.
    dict: AtomicU64,
    members: Vec<(Py<PyString>, Member)>,
}

/// The recorded value of a member.
enum Member {
    /// An array, or an object with members.
    Kept(Py<PyWeakrefReference>),
    /// A value without members: a number, a string, `None`.
    Value(Py<PyAny>),
}

/// All objects of an argument whose members may be assigned; none for a frozen one.
#[derive(Default)]
pub struct Watched(Vec<Members>);

impl Watched {
    /// Records an argument. `None` if changes of it cannot be detected.
    pub fn of(kind: &ParamKind, value: &Bound<'_, PyAny>) -> PyResult<Option<Watched>> {
        let mut watched = Watched::default();
        Ok(watched.add(kind, value)?.then_some(watched))
    }

    /// Whether all members are unchanged.
    #[inline]
    pub fn is_unchanged(&self, py: Python<'_>) -> PyResult<bool> {
        for object in &self.0 {
            if !object.is_unchanged(py)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The arrays and objects among the members. A call holds them, because another thread may assign to a member while
    /// the kernel runs.
    pub fn members<'py>(&self, py: Python<'py>) -> impl Iterator<Item = Bound<'py, PyAny>> {
        let kept = self.0.iter().flat_map(|object| &object.members).filter_map(|(_, member)| match member {
            Member::Kept(weak) => Some(weak),
            Member::Value(_) => None,
        });
        kept.filter_map(move |weak| weak.bind(py).upgrade())
    }

    /// Adds an object with its members; false if these may change undetected.
    fn add(&mut self, kind: &ParamKind, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        let ParamKind::Dataclass(class, kinds) = kind else { return is_constant(kind, value) };
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
            // A property or another data descriptor takes precedence over the dict.
            let hidden = match class.as_any().getattr_opt(name)? {
                Some(default) => default.get_type().hasattr(pyo3::intern!(py, "__set__"))?,
                None => false,
            };
            if hidden || !self.add(kind, &member)? {
                return Ok(false);
            }
            if frozen {
                continue;
            }
            let was = match PyWeakrefReference::new(&member) {
                Ok(weak) => Member::Kept(weak.unbind()),
                // Its members might refer to the object.
                Err(_) if by_identity(&member)? => return Ok(false),
                Err(_) => Member::Value(member.clone().unbind()),
            };
            members.push((name.clone().unbind(), was));
        }
        if !frozen {
            let Ok(object) = PyWeakrefReference::new(value) else { return Ok(false) };
            let dict = AtomicU64::new(dict_version(&dict));
            self.0.push(Members { object: object.unbind(), class: version, dict, members });
        }
        Ok(true)
    }
}

impl Members {
    #[inline]
    fn is_unchanged(&self, py: Python<'_>) -> PyResult<bool> {
        let Some(object) = self.object.bind(py).upgrade() else { return Ok(false) };
        if version_of(&object) != Some(self.class) {
            return Ok(false);
        }
        let Some(dict) = dict_of(&object)? else { return Ok(false) };
        let version = dict_version(&dict);
        if version != 0 && version == self.dict.load(Ordering::Relaxed) {
            return Ok(true);
        }
        for (name, was) in &self.members {
            let Some(is) = dict.get_item(name.bind(py))? else { return Ok(false) };
            let same = match was {
                Member::Value(value) => is.is(value),
                Member::Kept(weak) => weak.bind(py).upgrade().is_some_and(|was| was.is(&is)),
            };
            if !same {
                return Ok(false);
            }
        }
        self.dict.store(version, Ordering::Relaxed);
        Ok(true)
    }
}

/// Whether a value contributes the same to every call during its lifetime.
fn is_constant(kind: &ParamKind, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(match kind {
        ParamKind::Array(wanted) if wanted.optional && value.is_none() => true,
        ParamKind::Array(_) => unwrap_tensor(value.clone())?.is_instance_of::<Ndarray>(),
        // An ndarray, or a compile-time value: the key contains an immutable one by value, and any other by identity.
        // Another library's array may be resized.
        ParamKind::Either => {
            let value = unwrap_tensor(value.clone())?;
            value.is_instance_of::<Ndarray>() || !is_array(&value)?
        }
        ParamKind::Template => true,
        ParamKind::Scalar(_) => {
            value.is_exact_instance_of::<PyInt>()
                || value.is_exact_instance_of::<PyFloat>()
                || value.is_exact_instance_of::<PyBool>()
        }
        _ => false,
    })
}

/// The object's `__dict__`, if its attributes are looked up in the standard way.
pub fn dict_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyDict>>> {
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

/// `Py_TPFLAGS_MANAGED_DICT`.
const MANAGED_DICT: std::ffi::c_ulong = 1 << 4;
/// The type flag for a valid version tag.
const VALID_VERSION: std::ffi::c_ulong = 1 << 19;

/// The version tag of an object's class, if it has a valid one.
pub fn version_of(object: &Bound<'_, PyAny>) -> Option<c_uint> {
    // SAFETY: the object is alive, and so is its class.
    let (flags, version) = unsafe {
        let class = ffi::Py_TYPE(object.as_ptr());
        ((*class).tp_flags, (*class).tp_version_tag)
    };
    (flags & VALID_VERSION != 0 && version != 0).then_some(version)
}

/// The beginning of CPython's dict objects, up to 3.13.
#[repr(C)]
struct DictHead {
    object: ffi::PyObject,
    used: ffi::Py_ssize_t,
    version: u64,
}

/// The dict's version tag (PEP 509): unique among all dicts, and replaced by each change. 0 from Python 3.13 on, where
/// assignments to attributes need not change the tag, and which phases it out.
pub fn dict_version(dict: &Bound<'_, PyDict>) -> u64 {
    static COUNTED: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    let py = dict.py();
    if !*COUNTED.get_or_init(|| py.version_info() < (3, 13)) {
        return 0;
    }
    // SAFETY: a live dict of an interpreter whose dicts begin so.
    unsafe { (*dict.as_ptr().cast::<DictHead>()).version }
}
