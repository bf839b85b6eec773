//! [`backends`]: the process's table of back ends, and the devices that they find.

use std::path::PathBuf;
use std::sync::OnceLock;

use octants_engine::environment::apply_environment;
use octants_engine::{Backends, Config, list_devices};
use pyo3::prelude::*;

use crate::{detached, errors};

/// Its entries own objects that outlive programs.
static TABLE: OnceLock<Backends> = OnceLock::new();

/// The back ends that all programs of this process share.
pub fn backends() -> Backends {
    *TABLE.get_or_init(octants_backends::backends)
}

/// A device: its name, bytes of memory, and a note.
type Row = (String, Option<u64>, Option<String>);
/// The devices of a kind by its name, or why there are none.
type Kind = (&'static str, Vec<Row>, Option<String>);

/// The devices of all kinds, in the order in which `device` counts them.
#[pyfunction]
pub fn devices(py: Python<'_>) -> PyResult<Vec<Kind>> {
    let mut config = Config::new(backends());
    apply_environment(&mut config).map_err(|e| errors::from_engine(py, e))?;
    let packages: Vec<PathBuf> = py.import("sys")?.getattr("path")?.extract().unwrap_or_default();
    let found = detached::working(py, || list_devices(&config, &packages));
    let row = |d: octants_engine::DeviceInfo| (d.name, d.memory_bytes, d.note);
    let kind = |(name, devices): octants_engine::DevicesOfKind| match devices {
        Ok(devices) => (name, devices.into_iter().map(row).collect(), None),
        Err(reason) => (name, Vec::new(), Some(reason)),
    };
    Ok(found.into_iter().map(kind).collect())
}
