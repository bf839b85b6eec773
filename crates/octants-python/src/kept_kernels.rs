//! The folder of compiled kernels, as `octants.cache` lists and clears it.

use std::path::PathBuf;

use octants_engine::artifact::Store;
use octants_engine::artifact_cache::open_store;
use octants_engine::environment::apply_environment;
use octants_engine::{Config, OptionValue};
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::back_ends::backends;
use crate::program::current;
use crate::{detached, errors};

/// The store in a folder, by default in the default one.
fn store(py: Python<'_>, folder: Option<PathBuf>) -> PyResult<Store> {
    let mut config = Config::new(backends());
    let set = apply_environment(&mut config).and_then(|()| match folder {
        Some(path) => config.set("offline_cache_file_path", &OptionValue::Str(path.to_string_lossy().into_owned())),
        None => Ok(()),
    });
    set.map_err(|e| errors::from_engine(py, e))?;
    config.offline_cache = true;
    match open_store(&config) {
        Ok(Some(store)) => Ok(store),
        Ok(None) => Err(PyRuntimeError::new_err("the option `offline_cache` is off")),
        Err(reason) => Err(PyRuntimeError::new_err(reason)),
    }
}

/// The current program's folder of compiled kernels, with its numbers of hits and stores; None without one.
#[pyfunction]
pub fn cache_counts(py: Python<'_>) -> PyResult<Option<Bound<'_, PyDict>>> {
    let Some(program) = current() else { return Ok(None) };
    let Some((folder, counts)) = program.session.kept_kernels() else { return Ok(None) };
    let dict = PyDict::new(py);
    dict.set_item("folder", folder)?;
    dict.set_item("hits", counts.hits)?;
    dict.set_item("misses", counts.misses)?;
    dict.set_item("stored", counts.stored)?;
    dict.set_item("damaged", counts.damaged)?;
    dict.set_item("written_bytes", counts.written_bytes)?;
    let front_end = program.session.front_end_counts();
    dict.set_item("recalled", front_end.recalled)?;
    dict.set_item("lowered", front_end.lowered)?;
    Ok(Some(dict))
}

/// Reads and checks every entry of a folder of compiled kernels.
#[pyfunction]
#[pyo3(signature = (folder = None))]
pub fn cache_examine(py: Python<'_>, folder: Option<PathBuf>) -> PyResult<Bound<'_, PyDict>> {
    let store = store(py, folder)?;
    let contents = detached::working(py, || store.examine());
    let dict = PyDict::new(py);
    dict.set_item("folder", store.folder())?;
    dict.set_item("entries", contents.entries)?;
    dict.set_item("bytes", contents.bytes)?;
    dict.set_item("traces", contents.traces)?;
    dict.set_item("trace_bytes", contents.trace_bytes)?;
    dict.set_item("other_entries", contents.other_entries)?;
    dict.set_item("other_bytes", contents.other_bytes)?;
    dict.set_item("damaged", contents.damaged)?;
    Ok(dict)
}

/// Removes every compiled kernel of a folder. Returns their number and total bytes.
#[pyfunction]
#[pyo3(signature = (folder = None))]
pub fn cache_clear(py: Python<'_>, folder: Option<PathBuf>) -> PyResult<(u64, u64)> {
    let store = store(py, folder)?;
    detached::working(py, || store.clear())
        .map_err(|e| PyOSError::new_err(format!("{}: {e}", store.folder().display())))
}
