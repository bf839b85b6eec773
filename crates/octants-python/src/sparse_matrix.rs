//! Python objects for sparse matrices on the host and direct solvers: see octants-linalg.
//!
//! `octants/linalg` checks shapes and types. An error here is a bug of the package.

use numpy::{IntoPyArray, PyArray1, PyArrayMethods, PyReadonlyArray1};
use octants_linalg::{Failure, Method, Ordering, Real, Shape, Solver, SparseMatrix};
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::detached;

/// A matrix of either type of element.
#[derive(Clone)]
enum Elements {
    F32(SparseMatrix<f32>),
    F64(SparseMatrix<f64>),
}

/// `$body` with `$m` bound to the matrix of either type.
macro_rules! with {
    ($elements:expr, $m:ident => $body:expr) => {
        match $elements {
            Elements::F32($m) => $body,
            Elements::F64($m) => $body,
        }
    };
}

/// A matrix of the same type as the one that `$body` computes it from.
macro_rules! map {
    ($elements:expr, $m:ident => $body:expr) => {
        HostMatrix {
            elements: match $elements {
                Elements::F32($m) => Elements::F32($body),
                Elements::F64($m) => Elements::F64($body),
            },
        }
    };
}

/// As `map`, of two matrices of one type.
macro_rules! map_two {
    ($left:expr, $right:expr, $a:ident, $b:ident => $body:expr) => {
        match ($left, $right) {
            (Elements::F32($a), Elements::F32($b)) => Ok(HostMatrix { elements: Elements::F32($body) }),
            (Elements::F64($a), Elements::F64($b)) => Ok(HostMatrix { elements: Elements::F64($body) }),
            _ => Err(PyTypeError::new_err("the matrices have different element types")),
        }
    };
}

fn unknown_type(name: &str) -> PyErr {
    PyTypeError::new_err(format!("the elements of a sparse matrix must be f32 or f64, not {name}"))
}

/// Indices as numpy has them.
fn indices<'py>(py: Python<'py>, items: impl Iterator<Item = usize>) -> Bound<'py, PyArray1<i64>> {
    items.map(|i| i as i64).collect::<Vec<_>>().into_pyarray(py)
}

/// A sparse matrix in the host's memory.
#[pyclass(module = "octants._octants")]
pub struct HostMatrix {
    elements: Elements,
}

impl HostMatrix {
    fn extents(&self) -> Shape {
        with!(&self.elements, m => m.shape())
    }

    fn check(&self, i: usize, j: usize) -> PyResult<()> {
        let shape = self.extents();
        if i < shape.rows && j < shape.columns {
            return Ok(());
        }
        let (rows, columns) = (shape.rows, shape.columns);
        Err(PyIndexError::new_err(format!(
            "element ({i}, {j}) is out of bounds for a sparse matrix of shape ({rows}, {columns})"
        )))
    }
}

fn gather<T: Real + numpy::Element>(
    py: Python<'_>,
    shape: Shape,
    rows: &[i64],
    columns: &[i64],
    values: &[T],
) -> PyResult<SparseMatrix<T>> {
    // A negative index becomes one that is too large.
    let place = |i: &i64| usize::try_from(*i).unwrap_or(usize::MAX);
    let made = detached::working(py, || {
        let places = rows.iter().map(place).zip(columns.iter().map(place));
        let triplets: Vec<_> = places.zip(values).map(|((i, j), &v)| (i, j, v)).collect();
        SparseMatrix::from_triplets(shape, &triplets).map_err(|_| {
            let wrong = (0..rows.len()).find(|&t| triplets[t].0 >= shape.rows || triplets[t].1 >= shape.columns);
            wrong.map_or((0, 0), |t| (rows[t], columns[t]))
        })
    });
    made.map_err(|(i, j)| {
        let (rows, columns) = (shape.rows, shape.columns);
        PyIndexError::new_err(format!(
            "element ({i}, {j}) is out of bounds for a sparse matrix of shape ({rows}, {columns})"
        ))
    })
}

#[pymethods]
impl HostMatrix {
    #[new]
    fn new(rows: usize, columns: usize, dtype_name: &str) -> PyResult<Self> {
        let shape = Shape { rows, columns };
        let elements = match dtype_name {
            "f32" => Elements::F32(SparseMatrix::new(shape)),
            "f64" => Elements::F64(SparseMatrix::new(shape)),
            other => return Err(unknown_type(other)),
        };
        Ok(HostMatrix { elements })
    }

    /// The sum of entries, given by their rows, columns and values.
    #[staticmethod]
    fn from_triplets(
        py: Python<'_>,
        shape: (usize, usize),
        rows: PyReadonlyArray1<'_, i64>,
        columns: PyReadonlyArray1<'_, i64>,
        values: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let shape = Shape { rows: shape.0, columns: shape.1 };
        let (rows, columns) = (rows.as_slice()?, columns.as_slice()?);
        let elements = if let Ok(values) = values.extract::<PyReadonlyArray1<'_, f32>>() {
            Elements::F32(gather(py, shape, rows, columns, values.as_slice()?)?)
        } else {
            let values = values.extract::<PyReadonlyArray1<'_, f64>>()?;
            Elements::F64(gather(py, shape, rows, columns, values.as_slice()?)?)
        };
        Ok(HostMatrix { elements })
    }

    /// Rows and columns.
    #[getter]
    fn shape(&self) -> (usize, usize) {
        let shape = self.extents();
        (shape.rows, shape.columns)
    }

    /// Name of the elements' type.
    #[getter]
    fn dtype_name(&self) -> &'static str {
        match self.elements {
            Elements::F32(_) => "f32",
            Elements::F64(_) => "f64",
        }
    }

    fn get(&self, i: usize, j: usize) -> PyResult<f64> {
        self.check(i, j)?;
        Ok(match &self.elements {
            Elements::F32(m) => m.get(i, j).into(),
            Elements::F64(m) => m.get(i, j),
        })
    }

    fn set(&mut self, i: usize, j: usize, value: f64) -> PyResult<()> {
        self.check(i, j)?;
        match &mut self.elements {
            Elements::F32(m) => m.set(i, j, value as f32),
            Elements::F64(m) => m.set(i, j, value),
        }
        Ok(())
    }

    fn add(&self, other: &HostMatrix) -> PyResult<HostMatrix> {
        map_two!(&self.elements, &other.elements, a, b => a.merge(b, |x, y| x + y))
    }

    fn subtract(&self, other: &HostMatrix) -> PyResult<HostMatrix> {
        map_two!(&self.elements, &other.elements, a, b => a.merge(b, |x, y| x - y))
    }

    fn multiply_elements(&self, other: &HostMatrix) -> PyResult<HostMatrix> {
        map_two!(&self.elements, &other.elements, a, b => a.multiply_elements(b))
    }

    fn multiply(&self, py: Python<'_>, other: &HostMatrix) -> PyResult<HostMatrix> {
        detached::working(py, || map_two!(&self.elements, &other.elements, a, b => a.multiply(b)))
    }

    fn scale(&self, factor: f64) -> HostMatrix {
        match &self.elements {
            Elements::F32(m) => HostMatrix { elements: Elements::F32(m.scale(factor as f32)) },
            Elements::F64(m) => HostMatrix { elements: Elements::F64(m.scale(factor)) },
        }
    }

    fn transpose(&self) -> HostMatrix {
        map!(&self.elements, m => m.transpose())
    }

    /// Column offsets (the start of each column, and the end of the last one), the row of each entry, and its value.
    fn by_columns<'py>(&self, py: Python<'py>) -> (Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>) {
        with!(&self.elements, m => (
            indices(py, m.starts().iter().copied()).into_any(),
            indices(py, m.rows().iter().copied()).into_any(),
            m.values().to_vec().into_pyarray(py).into_any(),
        ))
    }
}

enum AnySolver {
    F32(Solver<f32>),
    F64(Solver<f64>),
}

/// A direct solver and its factors, in the host's memory.
#[pyclass(module = "octants._octants")]
pub struct DirectSolver {
    solver: AnySolver,
}

#[pymethods]
impl DirectSolver {
    #[new]
    fn new(dtype_name: &str, method: &str, ordering: &str) -> PyResult<Self> {
        let method = match method {
            "LLT" => Method::Llt,
            "LDLT" => Method::Ldlt,
            "LU" => Method::Lu,
            other => return Err(PyValueError::new_err(format!("{other} is not a factorization method"))),
        };
        let ordering = match ordering {
            "minimum_degree" => Ordering::MinimumDegree,
            "column_minimum_degree" => Ordering::ColumnMinimumDegree,
            other => return Err(PyValueError::new_err(format!("{other} is not an ordering"))),
        };
        let solver = match dtype_name {
            "f32" => AnySolver::F32(Solver::new(method, ordering)),
            "f64" => AnySolver::F64(Solver::new(method, ordering)),
            other => return Err(unknown_type(other)),
        };
        Ok(DirectSolver { solver })
    }

    /// Analyzes the pattern of a square matrix. Returns the reason as a string if it fails.
    fn analyze(&mut self, py: Python<'_>, matrix: &HostMatrix) -> PyResult<Option<String>> {
        self.work(py, matrix, Step::Analyze)
    }

    /// Factorizes a matrix with the analyzed pattern. Returns the reason as a string if it fails.
    fn factorize(&mut self, py: Python<'_>, matrix: &HostMatrix) -> PyResult<Option<String>> {
        self.work(py, matrix, Step::Factorize)
    }

    /// Whether a pattern was analyzed.
    #[getter]
    fn is_analyzed(&self) -> bool {
        match &self.solver {
            AnySolver::F32(s) => s.is_analyzed(),
            AnySolver::F64(s) => s.is_analyzed(),
        }
    }

    /// Whether there are factors.
    #[getter]
    fn is_factorized(&self) -> bool {
        match &self.solver {
            AnySolver::F32(s) => s.is_factorized(),
            AnySolver::F64(s) => s.is_factorized(),
        }
    }

    /// Replaces the right side of a system, an array of the solver's own type, by the solution.
    fn solve(&self, py: Python<'_>, right: &Bound<'_, PyAny>) -> PyResult<()> {
        fn run<T: Real + numpy::Element>(py: Python<'_>, s: &Solver<T>, right: &Bound<'_, PyAny>) -> PyResult<()> {
            let mut right = right.cast::<PyArray1<T>>()?.try_readwrite()?;
            let right = right.as_slice_mut()?;
            detached::working(py, || s.solve(right));
            Ok(())
        }
        match &self.solver {
            AnySolver::F32(s) => run(py, s, right),
            AnySolver::F64(s) => run(py, s, right),
        }
    }
}

enum Step {
    Analyze,
    Factorize,
}

impl DirectSolver {
    fn work(&mut self, py: Python<'_>, matrix: &HostMatrix, step: Step) -> PyResult<Option<String>> {
        fn run<T: Real>(s: &mut Solver<T>, m: &SparseMatrix<T>, step: &Step) -> Result<(), Failure> {
            match step {
                Step::Analyze => s.analyze(m),
                Step::Factorize => s.factorize(m),
            }
        }
        let made = detached::working(py, || match (&mut self.solver, &matrix.elements) {
            (AnySolver::F32(s), Elements::F32(m)) => Some(run(s, m, &step)),
            (AnySolver::F64(s), Elements::F64(m)) => Some(run(s, m, &step)),
            _ => None,
        });
        match made {
            Some(made) => Ok(made.err().map(|failure| failure.to_string())),
            None => Err(PyTypeError::new_err("the solver and the matrix have different element types")),
        }
    }
}
