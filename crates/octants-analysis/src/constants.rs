//! Values that are known at compile time.

use octants_ir::{Body, Const, ValueId};

/// The integer that a value is known to be.
pub fn known_int(body: &Body, v: ValueId) -> Option<i64> {
    match body.as_const(v) {
        Some(Const::Int(i)) => Some(i),
        _ => None,
    }
}
