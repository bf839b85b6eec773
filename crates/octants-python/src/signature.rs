//! The declaration of a Python function: names, annotations, defaults, return annotation.
//!
//! It is read from the function's code object rather than by `inspect`, which costs tens of microseconds. Annotations
//! that are strings (`from __future__ import annotations`) are evaluated when the function is decorated, while the
//! enclosing local variables exist.

use octants_engine::Config;
use pyo3::exceptions::PyNameError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::annotation::{ParamKind, param_kind};
use crate::back_ends::backends;
use crate::errors;
use crate::evaluate_annotations::{closure, evaluate, invalid_text};
use crate::names::{function_name, marker, text_attribute};

/// A declared parameter with its uninterpreted annotation.
pub struct Declared<'py> {
    /// Its name.
    pub name: String,
    /// Evaluated.
    pub annotation: Option<Bound<'py, PyAny>>,
    /// Its default.
    pub default: Option<Bound<'py, PyAny>>,
}

/// Everything a function declares.
pub struct Declaration<'py> {
    /// In order, `self` included.
    pub params: Vec<Declared<'py>>,
    /// Evaluated; a tuple for several results.
    pub returns: Option<Bound<'py, PyAny>>,
}

const CO_VARARGS: u32 = 4;
const CO_VARKEYWORDS: u32 = 8;

/// The names of a function's parameters; an error if it takes `*args` or `**kwargs`.
pub fn parameter_names(function: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    let py = function.py();
    let code = function.getattr(pyo3::intern!(py, "__code__"))?;
    let flags: u32 = code.getattr(pyo3::intern!(py, "co_flags"))?.extract()?;
    let positional: usize = code.getattr(pyo3::intern!(py, "co_argcount"))?.extract()?;
    let keyword_only: usize = code.getattr(pyo3::intern!(py, "co_kwonlyargcount"))?.extract()?;
    // `functools.wraps` sets `__wrapped__`.
    if flags & (CO_VARARGS | CO_VARKEYWORDS) != 0 && function.hasattr(pyo3::intern!(py, "__wrapped__"))? {
        let name = function.getattr(pyo3::intern!(py, "__name__"))?;
        return Err(errors::syntax_error(
            py,
            format!(
                "another decorator is between `{name}` and @qd.kernel or @qd.func, which must decorate the function \
                 directly: put the other decorator above"
            ),
        ));
    }
    if flags & CO_VARARGS != 0 {
        return Err(errors::syntax_error(
            py,
            "Octants functions do not support variable positional parameters (i.e., *args): name each parameter",
        ));
    }
    if flags & CO_VARKEYWORDS != 0 {
        return Err(errors::syntax_error(
            py,
            "Octants functions do not support variable keyword parameters (i.e., **kwargs): name each parameter",
        ));
    }
    code.getattr(pyo3::intern!(py, "co_varnames"))?
        .cast::<PyTuple>()?
        .iter()
        .take(positional + keyword_only)
        .map(|n| n.extract())
        .collect()
}

/// Parameters of kernels and of functions that kernels call are given by position or by name.
pub fn check_parameter_kinds(function: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = function.py();
    let code = function.getattr(pyo3::intern!(py, "__code__"))?;
    let keyword_only: usize = code.getattr(pyo3::intern!(py, "co_kwonlyargcount"))?.extract()?;
    let positional_only: usize = code.getattr(pyo3::intern!(py, "co_posonlyargcount"))?.extract()?;
    let refuse = |mark: &str, what: &str| {
        let name = function_name(function);
        let text = format!("Octants kernels {what}: remove the `{mark}` of `{name}`");
        Err(errors::syntax_error(py, text))
    };
    match (keyword_only, positional_only) {
        (0, 0) => Ok(()),
        (0, _) => refuse("/", "only support \"positional or keyword\" parameters"),
        _ => refuse("*", "do not support keyword parameters"),
    }
}

/// Reads a function.
pub fn declaration<'py>(function: &Bound<'py, PyAny>) -> PyResult<Declaration<'py>> {
    let py = function.py();
    let names = parameter_names(function)?;
    let code = function.getattr(pyo3::intern!(py, "__code__"))?;
    let positional: usize = code.getattr(pyo3::intern!(py, "co_argcount"))?.extract()?;
    let annotations = function.getattr(pyo3::intern!(py, "__annotations__"))?;
    let annotations = annotations.cast::<PyDict>()?;
    let defaults = function.getattr(pyo3::intern!(py, "__defaults__"))?;
    let defaults: Vec<Bound<'py, PyAny>> = if defaults.is_none() { Vec::new() } else { defaults.extract()? };
    let keyword_defaults = function.getattr(pyo3::intern!(py, "__kwdefaults__"))?;
    let mut params = Vec::with_capacity(names.len());
    for (i, name) in names.into_iter().enumerate() {
        let annotation = match annotations.get_item(&name)? {
            Some(a) => Some(meaning(function, a)?),
            None => None,
        };
        let default = if i >= positional {
            if keyword_defaults.is_none() { None } else { keyword_defaults.cast::<PyDict>()?.get_item(&name)? }
        } else {
            (i + defaults.len()).checked_sub(positional).map(|d| defaults[d].clone())
        };
        params.push(Declared { name, annotation, default });
    }
    let returns = match annotations.get_item(pyo3::intern!(py, "return"))? {
        Some(r) => return_annotation(meaning(function, r)?)?,
        None => None,
    };
    Ok(Declaration { params, returns })
}

/// Raises for a parameter of a `@qd.func` whose annotation is not a type of the kernel language.
pub fn check_annotations(function: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = function.py();
    let annotations = function.getattr(pyo3::intern!(py, "__annotations__"))?.cast_into::<PyDict>()?;
    if annotations.is_empty() {
        return Ok(());
    }
    let config = Config::new(backends());
    for (i, p) in declaration(function)?.params.iter().enumerate() {
        if let Some(a) = &p.annotation
            && marker(a).as_deref() == Some("unpacked_vector")
            && let Some(ParamKind::Refused(message)) = param_kind(a, &config)?
        {
            let name = function_name(function);
            return Err(errors::syntax_error(py, format!("parameter `{}` of `{name}`: {message}", p.name)));
        }
        // `typing.Any` means the same as no annotation. References are for functions only.
        if let Some(a) = &p.annotation
            && param_kind(a, &config)?.is_none()
            && marker(a).as_deref() != Some("ref_type")
            && !a.is(&py.import("typing")?.getattr("Any")?)
        {
            return Err(invalid_annotation(i, &p.name, &function_name(function), a));
        }
    }
    Ok(())
}

/// `tuple[a, b]` and lists become tuples; `None` means no annotation.
fn return_annotation(annotation: Bound<'_, PyAny>) -> PyResult<Option<Bound<'_, PyAny>>> {
    let py = annotation.py();
    if annotation.is_none() {
        return Ok(None);
    }
    if annotation.is_instance_of::<pyo3::types::PyList>() {
        return Ok(Some(PyTuple::new(py, annotation.try_iter()?.collect::<PyResult<Vec<_>>>()?)?.into_any()));
    }
    let origin = annotation.getattr_opt(pyo3::intern!(py, "__origin__"))?;
    if let Some(origin) = origin
        && origin.is(py.get_type::<PyTuple>())
    {
        // `typing.Tuple` alone has no arguments: it means `tuple`.
        let Some(args) = annotation.getattr_opt(pyo3::intern!(py, "__args__"))? else { return Ok(Some(origin)) };
        if args.try_iter()?.any(|a| a.is_ok_and(|a| a.is(py.Ellipsis()))) {
            return Err(errors::syntax_error(
                py,
                "Ellipsis is not supported in return type annotations: a kernel returns a fixed number of results",
            ));
        }
        return Ok(Some(args));
    }
    Ok(Some(annotation))
}

/// An annotation, evaluated if it is a string.
fn meaning<'py>(function: &Bound<'py, PyAny>, annotation: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if !annotation.is_instance_of::<PyString>() {
        return Ok(annotation);
    }
    let py = function.py();
    let globals = function.getattr(pyo3::intern!(py, "__globals__"))?;
    evaluate(&annotation, &globals, &closure(function)?).map_err(|e| {
        let why = format!("{}", e.value(py));
        let hint = if e.is_instance_of::<PyNameError>(py) { " (define it before the function)" } else { "" };
        invalid_text(function, &annotation, &format!("{why}{hint}"))
    })
}

/// True for a function defined in a class body: its first parameter is the instance.
pub fn is_method(function: &Bound<'_, PyAny>) -> bool {
    let name = pyo3::intern!(function.py(), "__qualname__");
    let qualified = text_attribute(function, name).unwrap_or_default();
    let mut parts = qualified.rsplit('.');
    parts.next();
    parts.next().is_some_and(|owner| owner != "<locals>")
}

/// A kernel's parameter.
pub struct Param {
    /// Its name.
    pub text: String,
    /// How it takes its argument.
    pub kind: ParamKind,
}

/// A kernel's signature under a session's options.
pub struct Signature {
    /// In order.
    pub params: Vec<Param>,
    /// As in [`Declaration`].
    pub returns: Option<Py<PyAny>>,
    /// The first parameter is an instance of the class the kernel is defined in.
    pub method: bool,
}

impl Signature {
    /// Visits its objects for the garbage collector.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.returns)?;
        self.params.iter().try_for_each(|p| p.kind.traverse(visit))
    }

    /// The name of a value or array argument, by its number in the order of gathering. If kinds depend on the
    /// arguments, a generic name.
    pub fn leaf_name(&self, leaf: usize) -> String {
        fn count(kind: &ParamKind) -> usize {
            match kind {
                ParamKind::Template => 0,
                ParamKind::Dataclass(_, members) => members.iter().map(|(_, k)| count(k)).sum(),
                _ => 1,
            }
        }
        let mut before = 0;
        for p in &self.params {
            before += count(&p.kind);
            if leaf < before {
                return p.text.clone();
            }
        }
        String::from("an argument")
    }

    /// Checks a kernel's declaration and determines the kind of each parameter.
    pub fn of(function: &Bound<'_, PyAny>, declaration: &Declaration<'_>, config: &Config) -> PyResult<Signature> {
        let py = function.py();
        check_parameter_kinds(function)?;
        let kernel = function_name(function);
        let mut method = false;
        let mut params = Vec::new();
        for (i, p) in declaration.params.iter().enumerate() {
            if p.name == "qd_stream" {
                return Err(errors::syntax_error(
                    py,
                    format!("kernel `{kernel}`: every kernel takes `qd_stream=`: rename the parameter"),
                ));
            }
            if p.default.is_some() {
                return Err(errors::syntax_error(
                    py,
                    format!(
                        "Octants kernels do not support default values for arguments: parameter `{}` of kernel \
                         `{kernel}`",
                        p.name
                    ),
                ));
            }
            let kind = match &p.annotation {
                Some(a) => param_kind(a, config)?.ok_or_else(|| invalid_annotation(i, &p.name, &kernel, a))?,
                None if i == 0 && is_method(function) => {
                    method = true;
                    ParamKind::Template
                }
                None => {
                    return Err(errors::syntax_error(
                        py,
                        format!(
                            "Octants kernels parameters must be type annotated: write for example `{}: qd.f32` in \
                             kernel `{kernel}`",
                            p.name
                        ),
                    ));
                }
            };
            params.push(Param { text: p.name.clone(), kind });
        }
        Ok(Signature { params, returns: declaration.returns.as_ref().map(|r| r.clone().unbind()), method })
    }
}

fn invalid_annotation(index: usize, name: &str, kernel: &str, annotation: &Bound<'_, PyAny>) -> PyErr {
    let text = annotation.repr().map_or_else(|_| "?".to_string(), |r| r.to_string());
    errors::syntax_error(
        annotation.py(),
        format!(
            "Invalid type annotation (argument {index}) of `{kernel}`: `{name}: {text}` is neither a \
             scalar, vector, matrix or struct type, nor an array, template, tensor or dataclass"
        ),
    )
}
