//! [`Constant`]: a captured number, compiled into the kernel.

use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};

/// A captured number: the name of a function's global or of an object's attribute, and its value.
pub struct Constant {
    /// The function or object, by a weak reference, because it may hold the kernel.
    pub owner: Py<PyWeakrefReference>,
    /// The name.
    pub name: String,
    /// The number.
    pub value: Py<PyAny>,
}

impl Constant {
    /// The same.
    pub fn clone_ref(&self, py: Python<'_>) -> Constant {
        Constant { owner: self.owner.clone_ref(py), name: self.name.clone(), value: self.value.clone_ref(py) }
    }

    /// Whether it is the number of this name.
    pub fn is_of(&self, owner: &Bound<'_, PyAny>, name: &str) -> bool {
        self.name == name && self.owner.bind(owner.py()).upgrade().is_some_and(|o| o.is(owner))
    }
}
