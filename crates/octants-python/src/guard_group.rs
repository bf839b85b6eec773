//! [`GuardGroup`]: the guards on the attributes of one object, checked together.
//!
//! A simulator's configuration object has dozens of numeric attributes, and compiling a kernel reads each of them. The
//! interpreter counts the changes of an object's dict and of its class. One comparison of these counts shows that no
//! attribute has changed. This includes a property whose code reads only such attributes. If the counts differ, or the
//! interpreter has none ([`dict_version`]), each guard is checked.

use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString, PyTuple, PyType};

use crate::argument::Gathered;
use crate::guard::{Guard, Route};
use crate::watched::{dict_of, dict_version, version_of};

/// Assumptions about attributes of the object at the end of a route.
pub struct GuardGroup {
    owner: Route,
    guards: Vec<Guard>,
    /// Versions of the object's class and dict under which they held; 0 for none.
    class: AtomicU64,
    dict: AtomicU64,
}

/// Properties that read properties.
const DEEPEST: usize = 4;

/// Functions that properties may call: their results depend on their arguments only.
const PURE: &[&str] = &["abs", "bool", "float", "int", "len", "max", "min", "round", "str"];

impl GuardGroup {
    /// Sorts guards into groups and those that are checked one by one.
    pub fn sort<'py>(
        py: Python<'py>,
        guards: Vec<Guard>,
        args: &[Bound<'py, PyAny>],
    ) -> PyResult<(Vec<GuardGroup>, Vec<Guard>)> {
        let (mut groups, mut alone): (Vec<GuardGroup>, Vec<Guard>) = (Vec::new(), Vec::new());
        for guard in guards {
            let Some((owner, name)) = guard.attribute_of(py) else {
                alone.push(guard);
                continue;
            };
            let object = owner.follow(args)?;
            let steady = match &object {
                Some(object) => guard.is_of_immutable() && is_steady(object, name.bind(py))?,
                None => false,
            };
            if !steady {
                alone.push(guard);
                continue;
            }
            match groups.iter_mut().find(|g| g.owner.is_same(py, &owner)) {
                Some(group) => group.guards.push(guard),
                None => groups.push(GuardGroup {
                    owner,
                    guards: vec![guard],
                    class: AtomicU64::new(0),
                    dict: AtomicU64::new(0),
                }),
            }
        }
        Ok((groups, alone))
    }

    /// Visits the expected values for the garbage collector.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.owner.traverse(visit)?;
        self.guards.iter().try_for_each(|guard| guard.traverse(visit))
    }

    /// The assumptions.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// Whether all of them hold.
    #[inline]
    pub fn holds<'py>(
        &self,
        args: &[Bound<'py, PyAny>],
        slots: &mut [u64],
        gathered: &mut Gathered<'py>,
    ) -> PyResult<bool> {
        let Some(object) = self.owner.follow(args)? else { return Ok(false) };
        let versions = match (version_of(&object), dict_of(&object)?) {
            (Some(class), Some(dict)) => (u64::from(class), dict_version(&dict)),
            _ => (0, 0),
        };
        if versions.1 != 0 && (self.class.load(Ordering::Relaxed), self.dict.load(Ordering::Relaxed)) == versions {
            return Ok(true);
        }
        for guard in &self.guards {
            if !guard.holds(args, slots, gathered)? {
                return Ok(false);
            }
        }
        // Code that ran in between may have changed the object again, so the earlier versions are stored. Versions of
        // another class, or of an object with other attributes, do not cover the attributes that its properties read.
        for guard in &self.guards {
            let name = guard.attribute_of(object.py());
            if !name.is_some_and(|(_, name)| is_steady(&object, name.bind(object.py())).unwrap_or(false)) {
                return Ok(true);
            }
        }
        // The update is not atomic: clearing the first prevents a mixed pair from matching.
        self.dict.store(0, Ordering::Relaxed);
        self.class.store(versions.0, Ordering::Relaxed);
        self.dict.store(versions.1, Ordering::Relaxed);
        Ok(true)
    }
}

/// Whether an attribute is the same while the versions of the object's dict and class are.
fn is_steady(object: &Bound<'_, PyAny>, name: &Bound<'_, PyString>) -> PyResult<bool> {
    let Some(dict) = dict_of(object)? else { return Ok(false) };
    depends_on_versions(&object.get_type(), &dict, name, DEEPEST)
}

fn depends_on_versions(
    class: &Bound<'_, PyType>,
    dict: &Bound<'_, PyDict>,
    name: &Bound<'_, PyString>,
    depth: usize,
) -> PyResult<bool> {
    let py = class.py();
    let Some(of_class) = attribute_of_class(class, name)? else { return dict.contains(name) };
    // SAFETY: the class of a live object is compared with one of the interpreter's own.
    if unsafe { ffi::Py_TYPE(of_class.as_ptr()) == &raw mut ffi::PyProperty_Type } {
        return is_pure(class, dict, &of_class, depth);
    }
    let kind = of_class.get_type();
    if kind.hasattr(pyo3::intern!(py, "__set__"))? {
        return Ok(false);
    }
    // An instance attribute takes precedence over a class attribute.
    Ok(dict.contains(name)? || (!kind.hasattr(pyo3::intern!(py, "__get__"))? && is_immutable(&of_class)))
}

/// The attribute of this name in the classes of an object.
fn attribute_of_class<'py>(
    class: &Bound<'py, PyType>,
    name: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    for class in class.mro() {
        let found = class.getattr(pyo3::intern!(class.py(), "__dict__"))?.call_method1("get", (name,))?;
        if !found.is_none() {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Whether a property reads nothing but attributes of the object that are immutable values: all names in its code are
/// theirs, or those of functions without effects.
fn is_pure(
    class: &Bound<'_, PyType>,
    dict: &Bound<'_, PyDict>,
    property: &Bound<'_, PyAny>,
    depth: usize,
) -> PyResult<bool> {
    let py = class.py();
    let getter = property.getattr(pyo3::intern!(py, "fget"))?;
    let Some(code) = getter.getattr_opt(pyo3::intern!(py, "__code__"))? else { return Ok(false) };
    let globals = getter.getattr(pyo3::intern!(py, "__globals__"))?.cast_into::<PyDict>()?;
    let constants = code.getattr(pyo3::intern!(py, "co_consts"))?.cast_into::<PyTuple>()?;
    if code.getattr(pyo3::intern!(py, "co_freevars"))?.len()? != 0
        || depth == 0
        || !constants.iter().all(|c| is_immutable(&c))
    {
        return Ok(false);
    }
    for name in code.getattr(pyo3::intern!(py, "co_names"))?.cast_into::<PyTuple>()? {
        let name = name.cast_into::<PyString>()?;
        if globals.contains(&name)? {
            return Ok(false);
        }
        if PURE.contains(&name.to_str()?) {
            continue;
        }
        let own = match dict.get_item(&name)? {
            Some(own) => is_immutable(&own),
            None => true,
        };
        if !own || !depends_on_versions(class, dict, &name, depth - 1)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A number, a string, `None`, or a tuple of these.
fn is_immutable(value: &Bound<'_, PyAny>) -> bool {
    if let Ok(tuple) = value.cast_exact::<PyTuple>() {
        return tuple.iter().all(|item| is_immutable(&item));
    }
    value.is_none()
        || value.is_exact_instance_of::<PyBool>()
        || value.is_exact_instance_of::<PyInt>()
        || value.is_exact_instance_of::<PyFloat>()
        || value.is_exact_instance_of::<PyString>()
}
