//! [`Func`]: the result of `@func` and `@real_func`. It can be called from kernels only.

use octants_engine::frontend::FuncKind;
use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::errors;
use crate::evaluate_annotations::evaluate_annotations;
use crate::names::function_name;
use crate::plain_python::{self, Caller};
use crate::signature::{check_annotations, check_parameter_kinds, is_method, parameter_names};

/// The Python function in a [`Func`] or a kernel, with the behavior of functions that both share.
pub struct Wrapped {
    /// Always present, except for the garbage collector: CPython 3.11 and 3.12 may run it between an object's
    /// allocation, which leaves zeros (`None`), and its initialization, because they create the `__dict__` in between.
    function: Option<Py<PyAny>>,
}

impl Wrapped {
    /// Around a function.
    pub fn new(function: Bound<'_, PyAny>) -> Wrapped {
        Wrapped { function: Some(function.unbind()) }
    }

    /// The error for an object that is not initialized.
    pub fn is_none(&self) -> bool {
        self.function.is_none()
    }

    /// The Python function.
    pub fn get<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.function.as_ref().expect("compiler bug: a function without a body").bind(py)
    }

    /// The function may refer to the class that holds it: the collector must see that.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.function)
    }

    /// `functools.update_wrapper`.
    pub fn name(&self, wrapper: &Bound<'_, PyAny>) -> PyResult<()> {
        let function = self.get(wrapper.py());
        for name in ["__module__", "__name__", "__qualname__", "__doc__"] {
            if let Some(value) = function.getattr_opt(name)? {
                wrapper.setattr(name, value)?;
            }
        }
        wrapper.setattr("__wrapped__", function)
    }

    /// Copied as itself and pickled by name, as plain functions are.
    pub fn reduce(wrapper: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        Ok(wrapper.getattr(pyo3::intern!(wrapper.py(), "__qualname__"))?.unbind())
    }
}

/// A function in the kernel language.
#[pyclass(module = "octants._octants", frozen, weakref, dict)]
pub struct Func {
    wrapped: Wrapped,
    requires_top_level: bool,
    real: bool,
}

impl Func {
    /// The Python function.
    pub fn function<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.wrapped.get(py)
    }

    /// Inlined or compiled on its own.
    pub fn kind(&self) -> FuncKind {
        if self.real { FuncKind::Real } else { FuncKind::Func }
    }

    /// May only be called from a kernel's top level.
    pub fn requires_top_level(&self) -> bool {
        self.requires_top_level
    }
}

#[pymethods]
impl Func {
    #[new]
    #[pyo3(signature = (fn_, *, requires_top_level = false, real = false))]
    fn new(fn_: Bound<'_, PyAny>, requires_top_level: bool, real: bool) -> PyResult<Func> {
        check_declaration(&fn_, real)?;
        evaluate_annotations(&fn_)?;
        check_annotations(&fn_)?;
        Ok(Func { wrapped: Wrapped::new(fn_), requires_top_level, real })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.wrapped.traverse(&visit)
    }

    /// Copies the wrapped function's name, documentation and module; called by the decorator.
    fn _update(slf: &Bound<'_, Self>) -> PyResult<()> {
        slf.get().wrapped.name(slf)
    }

    /// The Python function.
    #[getter]
    #[pyo3(name = "fn")]
    fn get_fn(&self, py: Python<'_>) -> Py<PyAny> {
        self.function(py).clone().unbind()
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__(
        slf: &Bound<'_, Self>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        if plain_python::is_active() {
            return plain_python::run(slf.get().function(py), args, kwargs, Caller::Function);
        }
        let name = function_name(slf);
        Err(errors::exception(
            py,
            "OctantsScopeError",
            format!("`{name}` is a @qd.func: it can only be called from a kernel or another @qd.func, not from Python"),
        ))
    }

    fn __get__(slf: Bound<'_, Self>, instance: Bound<'_, PyAny>, _owner: Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        bind_method(slf.into_any(), &instance)
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        Wrapped::reduce(slf)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<octants func {}>", function_name(self.function(py)))
    }
}

// Part of CPython's C API since 2.0, but not among the declarations of `pyo3::ffi`.
unsafe extern "C" {
    fn PyMethod_New(function: *mut ffi::PyObject, instance: *mut ffi::PyObject) -> *mut ffi::PyObject;
}

/// Reports errors of the declaration at decoration time. Annotations are interpreted later: their names may not be
/// defined yet.
fn check_declaration(function: &Bound<'_, PyAny>, real: bool) -> PyResult<()> {
    let py = function.py();
    let names = parameter_names(function)?;
    check_parameter_kinds(function)?;
    let annotations = function.getattr(pyo3::intern!(py, "__annotations__"))?;
    let first = usize::from(is_method(function));
    for name in names.iter().skip(first).filter(|_| real) {
        if !annotations.contains(name)? {
            return Err(errors::syntax_error(
                py,
                format!(
                    "Octants real functions parameters must be type annotated: write for example `{name}: qd.f32` in \
                     `{}`",
                    function_name(function)
                ),
            ));
        }
    }
    Ok(())
}

/// A bound method of `callable`, as a plain function's `__get__` makes.
pub fn bind_method(callable: Bound<'_, PyAny>, instance: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    if instance.is_none() {
        return Ok(callable.unbind());
    }
    // SAFETY: both arguments are live objects; the result is a new reference or null with an exception set.
    unsafe {
        let method = PyMethod_New(callable.as_ptr(), instance.as_ptr());
        Ok(Bound::from_owned_ptr_or_err(callable.py(), method)?.unbind())
    }
}
