//! Direct solvers by faer: symbolic and numeric factorization as `L L^T`, `L D L^T` or `L U`.

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::solvers::{LltError, SolveCore};
use faer::perm::PermRef;
use faer::sparse::linalg::cholesky::{
    CholeskySymbolicParams, LdltRef, LltRef, SymbolicCholesky, SymmetricOrdering, factorize_symbolic_cholesky,
};
use faer::sparse::linalg::solvers::{Lu, SymbolicLu};
use faer::sparse::linalg::{LuError, colamd};
use faer::sparse::{FaerError, SparseColMatRef, SymbolicSparseColMatRef};
use faer::{Conj, MatMut, Par, Side, Spec};

use crate::{Real, SparseMatrix};

/// The kind of a factorization.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// `L L^T`: symmetric and positive definite. Only the lower triangle is read.
    Llt,
    /// `L D L^T`: symmetric. Only the lower triangle is read.
    Ldlt,
    /// `L U` with row exchanges: any square matrix that is not singular.
    Lu,
}

/// In which order unknowns are eliminated. It decides how many entries the factors have, not the solution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ordering {
    /// Approximate minimum degree of the symmetric pattern.
    MinimumDegree,
    /// Approximate minimum degree of the columns: of the pattern of `A^T A`. `L U` takes this one always, because row
    /// exchanges are not known before the values are.
    ColumnMinimumDegree,
}

/// Why a matrix has no factors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The pivot of this row, in the order of elimination, is not positive.
    NotPositiveDefinite(usize),
    /// No pivot is left in this step of the elimination.
    Singular(usize),
    /// Some pivot is zero or not finite.
    NotInvertible,
    /// The matrix has entries in other places than the one whose pattern was analyzed.
    OtherPattern,
    /// The factors are too large for an index, or for memory.
    OutOfMemory,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::NotPositiveDefinite(step) => {
                write!(f, "the matrix is not positive definite (step {step} of the elimination)")
            }
            Failure::Singular(step) => write!(f, "the matrix is singular (step {step} of the elimination)"),
            Failure::NotInvertible => write!(f, "the matrix is singular, or holds values that are not finite"),
            Failure::OtherPattern => write!(f, "the sparsity pattern of the matrix differs from the analyzed one"),
            Failure::OutOfMemory => write!(f, "there is not enough memory for the factors"),
        }
    }
}

impl From<FaerError> for Failure {
    fn from(_: FaerError) -> Self {
        Failure::OutOfMemory
    }
}

/// The symbolic factorization.
enum Symbolic {
    Cholesky(Box<SymbolicCholesky<usize>>),
    Lu(SymbolicLu<usize>),
}

/// The factors.
enum Numeric<T> {
    Cholesky(Vec<T>),
    Lu(Box<Lu<usize, T>>),
}

/// A direct solver, and the factors that it holds.
pub struct Solver<T> {
    method: Method,
    ordering: Ordering,
    symbolic: Option<Symbolic>,
    /// The pattern of the analyzed matrix: its starts and rows.
    pattern: (Vec<usize>, Vec<usize>),
    numeric: Option<Numeric<T>>,
}

impl<T: Real> Solver<T> {
    /// A solver without factors.
    pub fn new(method: Method, ordering: Ordering) -> Self {
        Solver { method, ordering, symbolic: None, pattern: Default::default(), numeric: None }
    }

    /// Whether a pattern was analyzed.
    pub fn is_analyzed(&self) -> bool {
        self.symbolic.is_some()
    }

    /// Whether there are factors.
    pub fn is_factorized(&self) -> bool {
        self.numeric.is_some()
    }

    /// Orders the unknowns and finds the pattern of the factors, for this and other matrices of the same pattern.
    pub fn analyze(&mut self, matrix: &SparseMatrix<T>) -> Result<(), Failure> {
        (self.symbolic, self.numeric) = (None, None);
        self.pattern = (matrix.starts().to_vec(), matrix.rows().to_vec());
        let pattern = view(matrix).symbolic();
        self.symbolic = Some(match (self.method, self.ordering) {
            (Method::Lu, _) => Symbolic::Lu(SymbolicLu::try_new(pattern)?),
            (_, Ordering::MinimumDegree) => {
                Symbolic::Cholesky(Box::new(symmetric(pattern, SymmetricOrdering::default())?))
            }
            (_, Ordering::ColumnMinimumDegree) => {
                let (order, inverse) = column_order(pattern)?;
                let order = PermRef::new_checked(&order, &inverse, order.len());
                Symbolic::Cholesky(Box::new(symmetric(pattern, SymmetricOrdering::Custom(order))?))
            }
        });
        Ok(())
    }

    /// Computes the factors of a matrix whose pattern was analyzed.
    pub fn factorize(&mut self, matrix: &SparseMatrix<T>) -> Result<(), Failure> {
        self.numeric = None;
        if self.pattern.0 != matrix.starts() || self.pattern.1 != matrix.rows() {
            return Err(Failure::OtherPattern);
        }
        let made = match self.symbolic.as_ref().expect("compiler bug: the pattern was not analyzed") {
            Symbolic::Cholesky(symbolic) => Numeric::Cholesky(cholesky(self.method, symbolic, view(matrix))?),
            Symbolic::Lu(symbolic) => {
                let made = Lu::try_new_with_symbolic(symbolic.clone(), view(matrix)).map_err(|e| match e {
                    LuError::SymbolicSingular { index } => Failure::Singular(index),
                    LuError::Generic(error) => error.into(),
                })?;
                Numeric::Lu(Box::new(made))
            }
        };
        self.numeric = Some(made);
        // Pivots are not tested one by one: one that is zero shows in a solution.
        let mut probe = vec![T::one_impl(); matrix.shape().rows];
        self.solve(&mut probe);
        if probe.iter().any(|x| !T::is_finite_impl(x)) {
            self.numeric = None;
            return Err(Failure::NotInvertible);
        }
        Ok(())
    }

    /// Replaces the right side of a system by its solution.
    pub fn solve(&self, right: &mut [T]) {
        let (count, par) = (right.len(), Par::Seq);
        let right = MatMut::from_column_major_slice_mut(right, count, 1);
        let values = match self.numeric.as_ref().expect("compiler bug: not factorized") {
            Numeric::Lu(lu) => return lu.solve_in_place_with_conj(Conj::No, right),
            Numeric::Cholesky(values) => values,
        };
        let Some(Symbolic::Cholesky(symbolic)) = &self.symbolic else {
            panic!("compiler bug: the factorization differs from the analyzed one")
        };
        let mut memory = MemBuffer::new(symbolic.solve_in_place_scratch::<T>(1, par));
        let stack = MemStack::new(&mut memory);
        match self.method {
            Method::Ldlt => LdltRef::new(symbolic, values).solve_in_place_with_conj(Conj::No, right, par, stack),
            _ => LltRef::new(symbolic, values).solve_in_place_with_conj(Conj::No, right, par, stack),
        }
    }
}

fn view<T: Real>(matrix: &SparseMatrix<T>) -> SparseColMatRef<'_, usize, T> {
    let shape = matrix.shape();
    let pattern = SymbolicSparseColMatRef::new_checked(shape.rows, shape.columns, matrix.starts(), None, matrix.rows());
    SparseColMatRef::new(pattern, matrix.values())
}

fn symmetric(
    pattern: SymbolicSparseColMatRef<'_, usize>,
    ordering: SymmetricOrdering<'_, usize>,
) -> Result<SymbolicCholesky<usize>, FaerError> {
    factorize_symbolic_cholesky(pattern, Side::Lower, ordering, CholeskySymbolicParams::default())
}

/// A permutation of the columns, and its inverse.
fn column_order(pattern: SymbolicSparseColMatRef<'_, usize>) -> Result<(Vec<usize>, Vec<usize>), FaerError> {
    let (rows, columns) = (pattern.nrows(), pattern.ncols());
    let (mut order, mut inverse) = (vec![0; columns], vec![0; columns]);
    let mut memory = MemBuffer::new(colamd::order_scratch::<usize>(rows, columns, pattern.compute_nnz()));
    colamd::order(&mut order, &mut inverse, pattern, colamd::Control::default(), MemStack::new(&mut memory))?;
    Ok((order, inverse))
}

fn cholesky<T: Real>(
    method: Method,
    symbolic: &SymbolicCholesky<usize>,
    matrix: SparseColMatRef<'_, usize, T>,
) -> Result<Vec<T>, Failure> {
    let par = Par::Seq;
    let mut values = vec![T::default(); symbolic.len_val()];
    if method == Method::Ldlt {
        let params = Spec::default();
        let mut memory = MemBuffer::new(symbolic.factorize_numeric_ldlt_scratch::<T>(par, params));
        let (none, stack) = (Default::default(), MemStack::new(&mut memory));
        symbolic
            .factorize_numeric_ldlt(&mut values, matrix, Side::Lower, none, par, stack, params)
            .map_err(|_| Failure::NotInvertible)?;
    } else {
        let params = Spec::default();
        let mut memory = MemBuffer::new(symbolic.factorize_numeric_llt_scratch::<T>(par, params));
        let (none, stack) = (Default::default(), MemStack::new(&mut memory));
        let made = symbolic.factorize_numeric_llt(&mut values, matrix, Side::Lower, none, par, stack, params);
        made.map_err(|LltError::NonPositivePivot { index }| Failure::NotPositiveDefinite(index))?;
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shape;

    const METHODS: [Method; 3] = [Method::Llt, Method::Ldlt, Method::Lu];

    /// The five-point Laplacian of a square grid.
    fn laplacian(side: usize) -> SparseMatrix<f64> {
        let mut triplets = Vec::new();
        for i in 0..side {
            for j in 0..side {
                let at = i * side + j;
                triplets.push((at, at, 4.0));
                for (near, is_inside) in [(at + 1, j + 1 < side), (at + side, i + 1 < side)] {
                    if is_inside {
                        triplets.extend([(at, near, -1.0), (near, at, -1.0)]);
                    }
                }
            }
        }
        SparseMatrix::from_triplets(Shape { rows: side * side, columns: side * side }, &triplets).unwrap()
    }

    fn solve(method: Method, ordering: Ordering, matrix: &SparseMatrix<f64>, x: &[f64]) -> Result<f64, Failure> {
        let mut right = vec![0.0; matrix.shape().rows];
        for (i, j, value) in matrix.entries() {
            right[i] += value * x[j];
        }
        let mut solver = Solver::new(method, ordering);
        solver.analyze(matrix)?;
        solver.factorize(matrix)?;
        solver.solve(&mut right);
        Ok(right.iter().zip(x).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max))
    }

    #[test]
    fn every_method_solves_a_laplacian() {
        // Small matrices are factorized entry by entry, large ones in dense blocks.
        for side in [1, 4, 40] {
            let matrix = laplacian(side);
            let x: Vec<f64> = (0..side * side).map(|i| (i as f64).sin()).collect();
            for method in METHODS {
                for ordering in [Ordering::MinimumDegree, Ordering::ColumnMinimumDegree] {
                    let error = solve(method, ordering, &matrix, &x).unwrap();
                    assert!(error < 1e-10, "{method:?} {ordering:?} {side}: {error}");
                }
            }
        }
    }

    #[test]
    fn each_method_names_the_matrices_that_it_cannot_factorize() {
        let shape = Shape { rows: 2, columns: 2 };
        let indefinite = SparseMatrix::from_triplets(shape, &[(0, 0, 2.0), (1, 1, -3.0)]).unwrap();
        let failure = solve(Method::Llt, Ordering::MinimumDegree, &indefinite, &[1.0, 2.0]);
        assert!(matches!(failure, Err(Failure::NotPositiveDefinite(_))), "{failure:?}");
        assert!(solve(Method::Ldlt, Ordering::MinimumDegree, &indefinite, &[1.0, 2.0]).unwrap() < 1e-12);
        let singular =
            SparseMatrix::from_triplets(shape, &[(0, 0, 1.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 1.0)]).unwrap();
        let empty = SparseMatrix::<f64>::new(shape);
        for method in METHODS {
            assert!(solve(method, Ordering::MinimumDegree, &singular, &[1.0, 2.0]).is_err(), "{method:?}");
            assert!(solve(method, Ordering::MinimumDegree, &empty, &[1.0, 2.0]).is_err(), "{method:?} of nothing");
        }
    }

    #[test]
    fn a_different_sparsity_pattern_is_refused() {
        for method in METHODS {
            let mut solver = Solver::new(method, Ordering::MinimumDegree);
            let matrix = laplacian(3);
            solver.analyze(&matrix).unwrap();
            let mut other = matrix.clone();
            other.set(0, 8, 0.5);
            assert_eq!(solver.factorize(&other), Err(Failure::OtherPattern));
            assert!(!solver.is_factorized());
            solver.factorize(&matrix).unwrap();
        }
    }

    #[test]
    fn other_values_are_refactorized() {
        let mut solver = Solver::new(Method::Lu, Ordering::ColumnMinimumDegree);
        let matrix = laplacian(3);
        solver.analyze(&matrix).unwrap();
        for factor in [1.0, 4.0] {
            solver.factorize(&matrix.scale(factor)).unwrap();
            let mut x = vec![0.0; 9];
            x[4] = factor;
            solver.solve(&mut x);
            let back: f64 = matrix.entries().filter(|e| e.0 == 4).map(|(_, j, v)| v * x[j]).sum();
            assert!((back - 1.0).abs() < 1e-12);
        }
    }
}
