//! Sparse matrices on the host, and direct solvers of linear systems.
//!
//! [`SparseMatrix`] stores a matrix by columns and implements its algebra. [`Solver`] factorizes a matrix in two steps,
//! first its pattern and then its values, and solves systems with the factors. Both support `f32` and `f64`, the two
//! types that implement [`Real`].
//!
//! Iterative solvers and products with vectors are not in this crate: they are kernels, which run on the device of
//! their vectors.

mod compressed_columns;
mod solver;

pub use compressed_columns::{Shape, SparseMatrix};
pub use solver::{Failure, Method, Ordering, Solver};

/// A floating-point type of matrix elements.
pub trait Real:
    faer::traits::RealField
    + Copy
    + Default
    + std::ops::AddAssign
    + std::ops::Mul<Output = Self>
    + std::ops::Sub<Output = Self>
{
}

impl Real for f32 {}
impl Real for f64 {}
