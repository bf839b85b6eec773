//! [`Package`]: the Python objects that the package registers with this module at import. Nothing here imports the
//! package.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

static PACKAGE: PyOnceLock<Package> = PyOnceLock::new();

/// Classes and functions of the package, by the names that `octants/_program/registration.py` gives them.
#[derive(FromPyObject)]
pub struct Package {
    /// Path of the folder that holds the package.
    pub folder: String,
    /// The module with the exceptions.
    pub exceptions: Py<PyAny>,
    /// Creates an `OctantsRaceError` from a text and races: see `errors::race_parts`.
    pub race_error: Py<PyAny>,
    /// The scalar types by name.
    pub scalar_types: Py<PyDict>,
    /// `qd.Vector`.
    pub vector: Py<PyAny>,
    /// `qd.Tensor`, the base of the wrappers around fields and ndarrays.
    pub tensor: Py<PyType>,
    /// The base of fields of scalars, vectors and matrices.
    pub field: Py<PyType>,
    /// Methods of vectors and matrices in the kernel language, by name.
    pub tensor_methods: Py<PyDict>,
    /// Takes a lambda's code object and the lines of its file. Returns the lambda's text and first line.
    pub lambda_text: Py<PyAny>,
    /// Raises when a field of the program was never placed.
    pub refuse_unplaced_fields: Py<PyAny>,
    /// Whether a field of the program has a gradient.
    pub any_gradients: Py<PyAny>,
    /// Takes an array and its rank. Returns the i32 array in which validation marks the elements that a kernel has
    /// read.
    pub read_marks: Py<PyAny>,
    /// `qd.GraphStatus`.
    pub graph_status: Py<PyAny>,
    /// How the folder of compiled kernels took part in a compilation, for kernels with `fastcache=True`.
    pub fastcache_observations: Py<PyAny>,
    /// The same for other kernels.
    pub cache_observations: Py<PyAny>,
    /// Writes the code files that options request, from an `Inspection`.
    pub write_code: Py<PyAny>,
    /// Launches on arrays that are split over ranks. `plan` takes a kernel's name, the descriptions of its tasks, and
    /// the arrays. It returns what `split_rows.rs` keeps as a plan. `is_alone` returns whether there are no other
    /// ranks.
    pub split_launch: Py<PyAny>,
    /// The same for launches on several devices of this process. `begin` takes the descriptions of the tasks and a
    /// stream for each device.
    pub device_launch: Py<PyAny>,
    /// Takes a position among the devices of this process. Returns the scope in which this thread is the rank of that
    /// device.
    pub block_scope: Py<PyAny>,
    /// The module that copies arrays of other libraries.
    pub foreign_copies: Py<PyAny>,
    /// The module that logs messages.
    pub logging: Py<PyAny>,
}

impl Package {
    /// The one instance. An error before the package has registered.
    #[inline]
    pub fn get(py: Python<'_>) -> PyResult<&'static Package> {
        PACKAGE.get(py).ok_or_else(|| PyRuntimeError::new_err("the package `octants` has not been imported"))
    }
}

/// Registers the package's objects: the attributes of an object that are named like `Package`'s members. Calls after
/// the first have no effect.
#[pyfunction]
pub fn register(py: Python<'_>, package: Package) {
    let _ = PACKAGE.set(py, package);
}
