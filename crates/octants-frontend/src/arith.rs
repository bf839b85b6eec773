//! The language's typing rules for operations on run-time values: promotion, broadcasting, conversion, and which
//! operand types an operation takes. Works on an [`octants_ir::Builder`] alone and reports at `builder.span`.
//!
//! Rules, all checked by the table test in `arith/tests.rs`:
//! - Operands are promoted by [`octants_ir::Scalar::promote`], then a scalar is copied to every component of a tensor.
//!   Two tensors must have the same shape.
//! - `/` converts integers to `default_fp` first. Shifts have the type of their left operand, and so has `**` unless
//!   the exponent alone is a float.
//! - Bitwise operators, shifts, `not` and conditions take integers only. An operation's domain, in the IR's table of
//!   operations, says which of these rules it follows.
//! - A value stored in a variable takes the variable's scalar type silently.
//!
//! Compile-time numbers are materialized by the caller, integers as `default_ip` and floats as `default_fp`.

mod convert;
mod functions;
mod operators;
#[cfg(test)]
mod tests;

pub use convert::{assign_cast, bit_cast, broadcast, cast, shape_text, to_condition, type_name, unsupported};
pub use functions::{math, select};
pub use operators::{Comparison, Operator, UnaryOperator, binary, combine, compare, overflow, unary};
