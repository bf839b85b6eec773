//! Evaluates annotations that are strings (`from __future__ import annotations`) in the scope of their function or
//! class.

use pyo3::exceptions::PyNameError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::errors;
use crate::names::text_attribute;

/// The value of an expression. If that is a string, evaluates it again: quoted annotations under `from __future__
/// import annotations`.
pub fn evaluate<'py>(
    text: &Bound<'py, PyAny>,
    globals: &Bound<'py, PyAny>,
    locals: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let eval = text.py().import("builtins")?.getattr("eval")?;
    let value = eval.call1((text, globals, locals))?;
    if value.is_instance_of::<PyString>() { eval.call1((value, globals, locals)) } else { Ok(value) }
}

/// Evaluates string annotations in the function's scope, as Python does for others. Annotations with undefined names
/// stay strings, which `declaration` rejects.
pub fn evaluate_annotations(function: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = function.py();
    let annotations = function.getattr(pyo3::intern!(py, "__annotations__"))?.cast_into::<PyDict>()?;
    let texts: Vec<_> = annotations.iter().filter(|(_, a)| a.is_instance_of::<PyString>()).collect();
    if texts.is_empty() {
        return Ok(());
    }
    let globals = function.getattr(pyo3::intern!(py, "__globals__"))?;
    let locals = enclosing_locals(function, &globals)?;
    locals.update(closure(function)?.as_mapping())?;
    for (name, text) in texts {
        match evaluate(&text, &globals, &locals) {
            Ok(value) => annotations.set_item(name, value)?,
            Err(e) if e.is_instance_of::<PyNameError>(py) => {}
            Err(e) => return Err(invalid_text(function, &text, &e.value(py).to_string())),
        }
    }
    Ok(())
}

/// The error about an annotation that is a string and cannot be evaluated. Names the line of the function.
pub fn invalid_text(function: &Bound<'_, PyAny>, annotation: &Bound<'_, PyAny>, why: &str) -> PyErr {
    let py = function.py();
    let name = text_attribute(function, pyo3::intern!(py, "__qualname__")).unwrap_or_default();
    let text = annotation.str().map_or_else(|_| String::from("?"), |text| text.to_string());
    let place = function.getattr(pyo3::intern!(py, "__code__")).and_then(|code| {
        let file: String = code.getattr(pyo3::intern!(py, "co_filename"))?.extract()?;
        let line: u32 = code.getattr(pyo3::intern!(py, "co_firstlineno"))?.extract()?;
        Ok(format!(" ({file}:{line})"))
    });
    let place = place.unwrap_or_default();
    errors::syntax_error(py, format!("Invalid type annotation in `{name}`{place}: {why}, in `{text}`"))
}

/// The local variables of the enclosing functions and class bodies that are running.
pub fn enclosing_locals<'py>(
    definition: &Bound<'py, PyAny>,
    globals: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyDict>> {
    let py = definition.py();
    let qualified = text_attribute(definition, pyo3::intern!(py, "__qualname__")).unwrap_or_default();
    let mut around: Vec<&str> = qualified.split('.').filter(|name| *name != "<locals>").collect();
    around.pop();
    let out = PyDict::new(py);
    if around.is_empty() {
        return Ok(out);
    }
    let mut frame = py.import("sys")?.call_method1("_getframe", (0,))?;
    while !around.is_empty() && !frame.is_none() {
        let name: String = frame.getattr("f_code")?.getattr("co_name")?.extract()?;
        if let Some(i) = around.iter().rposition(|n| *n == name)
            && frame.getattr("f_globals")?.is(globals)
        {
            around.truncate(i);
            for item in frame.getattr("f_locals")?.call_method0("items")?.try_iter()? {
                let (name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item?.extract()?;
                if !out.contains(&name)? {
                    out.set_item(name, value)?;
                }
            }
        }
        frame = frame.getattr("f_back")?;
    }
    Ok(out)
}

/// The names and values of a function's closure.
pub fn closure<'py>(function: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let py = function.py();
    let out = PyDict::new(py);
    let cells = function.getattr(pyo3::intern!(py, "__closure__"))?;
    if !cells.is_none() {
        let names = function.getattr(pyo3::intern!(py, "__code__"))?.getattr(pyo3::intern!(py, "co_freevars"))?;
        for (name, cell) in names.try_iter()?.zip(cells.try_iter()?) {
            // An empty cell: the name is assigned later.
            if let Ok(value) = cell?.getattr(pyo3::intern!(py, "cell_contents")) {
                out.set_item(name?, value)?;
            }
        }
    }
    Ok(out)
}
