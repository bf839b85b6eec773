//! Collects races for `python -m octants.racecheck`, where the program continues after a race.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use octants_engine::Session;
use octants_engine::runtime::{Caller, Race};
use pyo3::prelude::*;

use crate::errors::race_parts;
use crate::program;
use crate::waiting::waiting;

/// The races found since the last query; `None` if races are errors.
static COLLECTED: Mutex<Option<Vec<Race>>> = Mutex::new(None);

fn collected() -> MutexGuard<'static, Option<Vec<Race>>> {
    COLLECTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From the next `init` on, races are collected instead of raised.
#[pyfunction]
pub fn collect_races() {
    collected().get_or_insert_default();
}

/// The races that were collected since the last call, each as `octants._streams.races.race_of` takes it.
#[pyfunction]
pub fn take_races(py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
    let found = collected().as_mut().map(std::mem::take).unwrap_or_default();
    found.iter().map(|race| Ok(race_parts(race).into_pyobject(py)?.into_any().unbind())).collect()
}

/// Whether race checks need to know the host's accesses to memory of some program.
#[pyfunction]
pub fn checks_host_accesses() -> bool {
    program::all().iter().any(|p| p.session.config().checks_races())
}

/// Checks an access of the host to ranges of addresses for races with queued work.
#[pyfunction]
pub fn report_host_access(py: Python<'_>, ranges: Vec<(u64, u64)>, write: bool) -> PyResult<()> {
    let ranges: Vec<_> = ranges.into_iter().map(|(begin, end)| (begin, end, write)).collect();
    let programs = program::all();
    let check = |caller: &dyn Caller| programs.iter().try_for_each(|p| p.session.check_host_access(&ranges, caller));
    waiting(py, check)
}

/// Adds the functions to the extension module.
pub fn add_functions(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(collect_races, m)?)?;
    m.add_function(wrap_pyfunction!(take_races, m)?)?;
    m.add_function(wrap_pyfunction!(checks_host_accesses, m)?)?;
    m.add_function(wrap_pyfunction!(report_host_access, m)?)
}

/// Makes a session collect its races, if collection is on.
pub fn collect_of(session: &Session) {
    if collected().is_some() {
        let keep = |race: &Race| collected().iter_mut().for_each(|all| all.push(race.clone()));
        session.device().races().collect(Arc::new(keep));
    }
}
