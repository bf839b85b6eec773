//! Converts Rust's errors to the package's exceptions, which are defined in Python (`octants/exceptions.py`).

use octants_engine::diag::{Code, Diagnostic, Sources};
use octants_engine::runtime::{Race, RaceAccess};
use octants_engine::{CompileError, Error};
use pyo3::exceptions::{
    PyAttributeError, PyIndexError, PyMemoryError, PyNameError, PyRuntimeError, PySyntaxError, PyTypeError,
    PyValueError,
};
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::package::Package;

/// An exception of the package by its class name.
pub fn exception(py: Python<'_>, class: &str, message: impl Into<String>) -> PyErr {
    let message: String = message.into();
    let class = Package::get(py)
        .and_then(|package| package.exceptions.bind(py).getattr(class))
        .and_then(|c| c.cast_into::<PyType>().map_err(PyErr::from));
    match class {
        Ok(class) => PyErr::from_type(class, message),
        Err(_) => PyRuntimeError::new_err(message),
    }
}

/// `OctantsRuntimeError`.
pub fn runtime_error(py: Python<'_>, message: impl Into<String>) -> PyErr {
    exception(py, "OctantsRuntimeError", message)
}

/// `OctantsSyntaxError`.
pub fn syntax_error(py: Python<'_>, message: impl Into<String>) -> PyErr {
    exception(py, "OctantsSyntaxError", message)
}

/// Use before `init`.
pub fn no_program(py: Python<'_>, forked: bool) -> PyErr {
    if forked {
        let text = "this process was forked from one with real CPU streams, whose threads a fork does not copy: call \
            `init()` in this process, or start processes with the `spawn` method";
        return runtime_error(py, text);
    }
    runtime_error(py, "Octants is not initialized. Maybe you forgot to call `qd.init()` first?")
}

/// Use of an object that an earlier `init` made.
pub fn dead_object(py: Python<'_>, what: &str) -> PyErr {
    runtime_error(
        py,
        format!(
            "this {what} belongs to a program that `init()` or `reset()` has ended; create it again after `init()`"
        ),
    )
}

/// Errors of a session.
pub fn from_engine(py: Python<'_>, error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::UnknownOption { .. } => exception(py, "OctantsOptionError", text),
        Error::BadOption { .. } => PyValueError::new_err(text),
        Error::FixedOption(_) => PyAttributeError::new_err(text),
        Error::OutOfMemory { .. } => PyMemoryError::new_err(text),
        Error::Assertion(_) => exception(py, "OctantsAssertionError", text),
        Error::Races(races, _) => race_error(py, &races, text),
        Error::Refused(diagnostic, sources) => from_compile(py, CompileError::User(vec![*diagnostic], sources), &[]),
        Error::Unavailable(_) | Error::Device(_) | Error::Codegen(_) => runtime_error(py, text),
    }
}

/// A race as Python takes it: see `octants._streams.races.race_of`.
pub fn race_parts(race: &Race) -> RaceParts<'_> {
    (
        race.kind.name(),
        &race.buffer,
        race.index.as_deref(),
        side_parts(&race.first),
        side_parts(&race.second),
        &race.fix,
    )
}

/// Kind, buffer, index, both sides, cure.
pub type RaceParts<'a> = (&'static str, &'a str, Option<&'a [i64]>, SideParts<'a>, SideParts<'a>, &'a str);

/// Kind of access, its location, who made it, and the location of the launch.
pub type SideParts<'a> = (&'static str, &'a str, &'a str, Option<&'a str>);

fn side_parts(side: &RaceAccess) -> SideParts<'_> {
    (side.touch.name(), &side.at, &side.by, side.launched_at.as_deref())
}

/// `OctantsRaceError` with its races.
fn race_error(py: Python<'_>, races: &[Race], text: String) -> PyErr {
    let parts: Vec<RaceParts<'_>> = races.iter().map(race_parts).collect();
    let made = Package::get(py).and_then(|package| package.race_error.bind(py).call1((&text, parts)));
    made.map_or_else(|e| e, PyErr::from_value)
}

/// A kernel that could not be compiled; `causes` are the Python exceptions that compile-time code raised.
pub fn from_compile(py: Python<'_>, error: CompileError, causes: &[Py<PyAny>]) -> PyErr {
    let (diagnostics, sources) = match error {
        CompileError::User(diagnostics, sources) => (diagnostics, sources),
        CompileError::Other(error) => return from_engine(py, error),
    };
    let cause = diagnostics.iter().find_map(|d| d.cause).and_then(|i| causes.get(i as usize));
    let class = match diagnostics.first().map(|d| d.code) {
        Some(Code::Host) => cause.map_or("OctantsCompilationError", |cause| class_of_cause(cause.bind(py))),
        Some(code) => class_of(code),
        None => "OctantsCompilationError",
    };
    let err = exception(py, class, render(&diagnostics, &sources));
    if let Some(cause) = cause {
        err.set_cause(py, Some(PyErr::from_value(cause.bind(py).clone())));
    }
    err
}

fn render(diagnostics: &[Diagnostic], sources: &Sources) -> String {
    let texts: Vec<String> = diagnostics.iter().map(|d| d.render(sources)).collect();
    texts.join("\n\n")
}

/// The class for an exception that compile-time code raised: a handler of that exception's class handles this one, too.
fn class_of_cause(cause: &Bound<'_, PyAny>) -> &'static str {
    if cause.is_instance_of::<PyTypeError>() {
        "OctantsTypeError"
    } else if cause.is_instance_of::<PyAttributeError>() {
        "OctantsAttributeError"
    } else if cause.is_instance_of::<PyIndexError>() {
        "OctantsIndexError"
    } else if cause.is_instance_of::<PyNameError>() {
        "OctantsNameError"
    } else if cause.is_instance_of::<PyValueError>() {
        "OctantsValueError"
    } else if cause.is_instance_of::<PySyntaxError>() {
        "OctantsSyntaxError"
    } else if cause.is_instance_of::<PyRuntimeError>() {
        "OctantsCompileTimeError"
    } else {
        "OctantsCompilationError"
    }
}

fn class_of(code: Code) -> &'static str {
    match code {
        Code::Syntax => "OctantsSyntaxError",
        Code::Type => "OctantsTypeError",
        Code::Name => "OctantsNameError",
        Code::Index => "OctantsIndexError",
        Code::Attribute => "OctantsAttributeError",
        Code::Value => "OctantsValueError",
        Code::Derivative => "OctantsDerivativeError",
        Code::Compilation | Code::Deprecated | Code::Precision | Code::Host => "OctantsCompilationError",
    }
}
