//! The language's typing rules for operations on run-time values: promotion, broadcasting, conversion, and the operand
//! types of each operation. It needs only an [`octants_ir::Builder`], and reports errors at `builder.span`.
//!
//! Rules, all checked by the table test in `arith/tests.rs`:
//! - Operands are promoted by [`octants_ir::Scalar::promote`]; then a scalar is broadcast to every component of a
//!   tensor. Two tensors must have the same shape.
//! - `/` converts integers to `default_fp` first. Shifts have the type of their left operand, and so has `**` unless
//!   only the exponent is a float.
//! - Bitwise operators, shifts, `not` and conditions take integers only. The domain column of the IR's operation table
//!   says which of these rules an operation follows.
//! - A value stored in a variable is silently converted to the variable's scalar type.
//!
//! The caller materializes compile-time numbers, integers as `default_ip` and floats as `default_fp`.

mod convert;
mod functions;
mod operators;
#[cfg(test)]
mod tests;

pub use convert::{assign_cast, bit_cast, broadcast, cast, shape_text, to_condition, type_name, unsupported};
pub use functions::{math, select};
pub use operators::{Comparison, Operator, UnaryOperator, binary, combine, compare, overflow, unary};
