//! Sparse matrices on the host, and direct solvers of linear systems.
//!
//! [`SparseMatrix`] holds a matrix by columns and knows its algebra. [`Solver`] factorizes one in two steps, first its
//! pattern and then its values, and solves systems with the result. Both are for `f32` and `f64`, the two types that
//! implement [`Real`].
//!
//! Iterative solvers and products with vectors are not here: they are kernels, which run where their vectors are.

mod compressed_columns;
mod solver;

pub use compressed_columns::{Shape, SparseMatrix};
pub use solver::{Failure, Method, Ordering, Solver};

/// A floating-point type that matrices are made of.
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
