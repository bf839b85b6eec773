//! Sparse matrices by the library of the device's vendor, as objects of Python. `octants/linalg` checks shapes and
//! types.

use octants_engine::runtime::{self, Factors, RealType, RowBuffers, SparseWork};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::buffer::Buffer;
use crate::program;
use crate::stream::stream_or_current;
use crate::waiting::{raised, waiting};

/// Why the program's device has no sparse library for "products" or "solvers": a sentence that names what to install.
/// `None` if it has one.
#[pyfunction]
pub fn missing_sparse_library(py: Python<'_>, work: &str) -> PyResult<Option<String>> {
    let work = match work {
        "products" => SparseWork::Products,
        "solvers" => SparseWork::Solvers,
        other => return Err(PyValueError::new_err(format!("{other} is not an operation on sparse matrices"))),
    };
    let program = program::require(py)?;
    Ok(program.session.device().missing_sparse_library(work))
}

type Arrays = (Py<Buffer>, Py<Buffer>, Py<Buffer>);

/// A matrix by rows (CSR): the start of each row's entries, their columns, and their values.
fn rows(shape: (u64, u64), entries: u64, (starts, columns, values): Arrays, dtype_name: &str) -> PyResult<RowBuffers> {
    let real = match dtype_name {
        "f32" => RealType::F32,
        "f64" => RealType::F64,
        other => {
            return Err(PyTypeError::new_err(format!(
                "the elements of a sparse matrix must be f32 or f64, not {other}"
            )));
        }
    };
    Ok(RowBuffers {
        rows: shape.0,
        columns: shape.1,
        entries,
        starts: starts.get().memory().clone(),
        column_numbers: columns.get().memory().clone(),
        values: values.get().memory().clone(),
        real,
    })
}

/// A matrix that vectors can be multiplied by.
#[pyclass(module = "octants._octants", frozen)]
pub struct DeviceProduct {
    product: runtime::SparseProduct,
}

#[pymethods]
impl DeviceProduct {
    #[new]
    fn new(py: Python<'_>, shape: (u64, u64), entries: u64, arrays: Arrays, dtype_name: &str) -> PyResult<Self> {
        let matrix = rows(shape, entries, arrays, dtype_name)?;
        let program = program::require(py)?;
        let product = program.session.device().sparse_product(matrix).map_err(|e| raised(py, e))?;
        Ok(DeviceProduct { product })
    }

    /// Queues `y = A x`. False, with nothing queued, while launches are captured.
    fn multiply(&self, py: Python<'_>, x: &Buffer, y: &Buffer) -> PyResult<bool> {
        let stream = stream_or_current(py, None)?;
        waiting(py, |caller| stream.multiply_sparse(&self.product, x.memory(), y.memory(), caller))
    }
}

/// A direct solver for matrices of one pattern.
#[pyclass(module = "octants._octants", frozen)]
pub struct DeviceSolver {
    solver: runtime::SparseSolver,
}

#[pymethods]
impl DeviceSolver {
    #[new]
    fn new(
        py: Python<'_>,
        extent: u64,
        entries: u64,
        arrays: Arrays,
        dtype_name: &str,
        method: &str,
    ) -> PyResult<Self> {
        let factors = match method {
            "LLT" => Factors::Llt,
            "LDLT" => Factors::Ldlt,
            "LU" => Factors::Lu,
            other => return Err(PyValueError::new_err(format!("{other} is not a factorization method"))),
        };
        let matrix = rows((extent, extent), entries, arrays, dtype_name)?;
        let program = program::require(py)?;
        let solver = program.session.device().sparse_solver(matrix, factors).map_err(|e| raised(py, e))?;
        Ok(DeviceSolver { solver })
    }

    /// Symbolic factorization: orders the unknowns and finds the pattern of the factors.
    fn analyze(&self, py: Python<'_>) -> PyResult<()> {
        let stream = stream_or_current(py, None)?;
        waiting(py, |caller| stream.analyze_sparse(&self.solver, caller))
    }

    /// Numeric factorization of a matrix of the same pattern with these values. Returns the reason as a string if it
    /// fails.
    fn factorize(&self, py: Python<'_>, values: &Buffer) -> PyResult<Option<String>> {
        let stream = stream_or_current(py, None)?;
        waiting(py, |caller| stream.factorize_sparse(&self.solver, values.memory(), caller))
    }

    /// Queues the solution for a right side.
    fn solve(&self, py: Python<'_>, right: &Buffer, solution: &Buffer) -> PyResult<()> {
        let stream = stream_or_current(py, None)?;
        waiting(py, |caller| stream.solve_sparse(&self.solver, right.memory(), solution.memory(), caller))
    }
}
