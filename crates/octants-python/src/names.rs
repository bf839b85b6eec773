//! Python objects that the binding uses repeatedly: types for dispatch, the exception module, and the builtins that
//! the compiler recognizes by identity. They are looked up once per process.

use std::collections::HashMap;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyType};

use crate::package::Package;

/// External types and functions.
pub struct Known {
    /// `numpy.ndarray`.
    pub np_ndarray: Py<PyType>,
    /// `numpy.generic`, the base of numpy's scalars.
    pub np_generic: Py<PyType>,
    /// `numpy.integer`.
    pub np_integer: Py<PyType>,
    /// `numpy.floating`.
    pub np_floating: Py<PyType>,
    /// `functools.partial`.
    pub partial: Py<PyType>,
    /// Objects that the compiler recognizes by identity, by address.
    builtins: HashMap<usize, (&'static str, Py<PyAny>)>,
    /// Scalar types of numpy and their names here, by address.
    np_scalars: HashMap<usize, (&'static str, Py<PyAny>)>,
}

/// Names of Python's builtins that have a special meaning in kernels.
const BUILTINS: &[&str] = &[
    "range",
    "len",
    "min",
    "max",
    "abs",
    "int",
    "float",
    "bool",
    "print",
    "isinstance",
    "tuple",
    "list",
    "zip",
    "enumerate",
    "getattr",
    "hasattr",
    "type",
    "round",
    "pow",
    "sum",
    "any",
    "all",
    "divmod",
    "reversed",
    "str",
];

const NP_SCALARS: &[(&str, &str)] = &[
    ("bool_", "u1"),
    ("int8", "i8"),
    ("int16", "i16"),
    ("int32", "i32"),
    ("int64", "i64"),
    ("uint8", "u8"),
    ("uint16", "u16"),
    ("uint32", "u32"),
    ("uint64", "u64"),
    ("float16", "f16"),
    ("float32", "f32"),
    ("float64", "f64"),
];

/// Functions of Python's module `operator`, by the names that the compiler has for them.
const OPERATORS: &[&str] = &[
    "operator.neg",
    "operator.pos",
    "operator.invert",
    "operator.not_",
    "operator.add",
    "operator.sub",
    "operator.mul",
    "operator.truediv",
    "operator.floordiv",
    "operator.mod",
    "operator.pow",
    "operator.matmul",
    "operator.and_",
    "operator.or_",
    "operator.xor",
    "operator.lshift",
    "operator.rshift",
    "operator.lt",
    "operator.le",
    "operator.eq",
    "operator.ne",
    "operator.gt",
    "operator.ge",
    "operator.getitem",
];

static KNOWN: PyOnceLock<Known> = PyOnceLock::new();

impl Known {
    /// The one instance.
    pub fn get(py: Python<'_>) -> PyResult<&'static Known> {
        KNOWN.get_or_try_init(py, || Known::new(py))
    }

    fn new(py: Python<'_>) -> PyResult<Known> {
        let np = py.import("numpy")?;
        let ty = |name: &str| -> PyResult<Py<PyType>> { Ok(np.getattr(name)?.cast_into::<PyType>()?.unbind()) };
        let builtins_module = py.import("builtins")?;
        let mut builtins = HashMap::new();
        for &name in BUILTINS {
            let object = builtins_module.getattr(name)?;
            builtins.insert(object.as_ptr() as usize, (name, object.unbind()));
        }
        let operators = py.import("operator")?;
        for &name in OPERATORS {
            let object = operators.getattr(&name["operator.".len()..])?;
            builtins.insert(object.as_ptr() as usize, (name, object.unbind()));
        }
        let mut np_scalars = HashMap::new();
        for &(np_name, name) in NP_SCALARS {
            let object = np.getattr(np_name)?;
            np_scalars.insert(object.as_ptr() as usize, (name, object.unbind()));
        }
        Ok(Known {
            np_ndarray: ty("ndarray")?,
            np_generic: ty("generic")?,
            np_integer: ty("integer")?,
            np_floating: ty("floating")?,
            partial: py.import("functools")?.getattr("partial")?.cast_into()?.unbind(),
            builtins,
            np_scalars,
        })
    }

    /// The compiler's name of an object that it recognizes by identity.
    pub fn builtin(&self, object: &Bound<'_, PyAny>) -> Option<&'static str> {
        self.builtins.get(&(object.as_ptr() as usize)).map(|(name, _)| *name)
    }

    /// The scalar's name of a numpy scalar type.
    pub fn np_scalar(&self, object: &Bound<'_, PyAny>) -> Option<&'static str> {
        self.np_scalars.get(&(object.as_ptr() as usize)).map(|(name, _)| *name)
    }
}

/// The marker of an object's kind: `_octants_entity` of its class.
pub fn marker(object: &Bound<'_, PyAny>) -> Option<String> {
    text_attribute(object.get_type().as_any(), pyo3::intern!(object.py(), "_octants_entity"))
}

/// The marker of a class used itself as an annotation (`qd.Tensor`, `qd.template`).
pub fn own_marker(class: &Bound<'_, PyAny>) -> Option<String> {
    text_attribute(class, pyo3::intern!(class.py(), "_octants_entity"))
}

/// `getattr(object, name)` if it is a string.
pub fn text_attribute(object: &Bound<'_, PyAny>, name: &Bound<'_, PyString>) -> Option<String> {
    let value = object.getattr_opt(name).ok().flatten()?;
    value.cast::<PyString>().ok()?.to_str().ok().map(str::to_string)
}

/// The function's `__name__`.
pub fn function_name(function: &Bound<'_, PyAny>) -> String {
    text_attribute(function, pyo3::intern!(function.py(), "__name__")).unwrap_or_else(|| "?".to_string())
}

/// Whether an object is a `qd.Tensor`. Checks only the type: this is on the hot path.
#[inline]
pub fn is_tensor(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let class = Package::get(object.py())?.tensor.as_ptr();
    // SAFETY: both are live types.
    Ok(unsafe { ffi::PyType_IsSubtype(ffi::Py_TYPE(object.as_ptr()), class.cast()) } != 0)
}

/// Whether an object is a field. Checks only the type: this is on the hot path.
#[inline]
pub fn is_field(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let class = Package::get(object.py())?.field.as_ptr();
    // SAFETY: both are live types.
    Ok(unsafe { ffi::PyType_IsSubtype(ffi::Py_TYPE(object.as_ptr()), class.cast()) } != 0)
}

/// Unwraps `qd.Tensor` objects; anything else is returned as it is.
#[inline]
pub fn unwrap_tensor<'py>(object: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if is_tensor(&object)? {
        return object.getattr(pyo3::intern!(object.py(), "_impl"));
    }
    Ok(object)
}
