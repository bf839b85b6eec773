//! `qd.distributed.assume_local(array, row)`: the user asserts that a row is one of this rank's rows or ghost rows.
//!
//! It becomes `max(min(row, last), first)` with the first and last of these rows, which each launch reads from the
//! array, so no row is outside of the rank's memory. Debug mode checks that clamping did not change the row.

use octants_diag::{Code, Result};
use octants_ir::{BinaryOp, BufferId, Op, Scalar, TextPart, Type, ValueId};

use super::Lowerer;
use super::builtins::Call;
use crate::arith::type_name;
use crate::value::Value;
use crate::world::{ArgSpec, Capture};

/// Attributes of a split array: its first and last local row.
const BOUNDS: [&str; 2] = ["_first_local_row", "_last_local_row"];

impl Lowerer<'_> {
    pub(super) fn lower_assume_local(&mut self, call: Call) -> Result<Value> {
        let Some(array) = self.as_array(&call.args[0])? else {
            return self.err(Code::Type, "`assume_local` takes an array and a row index");
        };
        let row = self.rt(&call.args[1])?;
        if !matches!(self.b.ty(row), Type::Scalar(s) if s.is_int()) {
            let ty = type_name(self.b.ty(row));
            return self.err(Code::Type, format!("the row index of `assume_local` must be an integer, not {ty}"));
        }
        if !self.split_arrays.contains_key(&array) {
            return Ok(Value::Rt(row));
        }
        let ty = self.b.ty(row).scalar().unwrap_or(Scalar::I32);
        let [first, last] = [self.local_row(array, BOUNDS[0])?, self.local_row(array, BOUNDS[1])?];
        let [low, high] = [first, last].map(|v| if ty == Scalar::I32 { v } else { self.b.cast(v, ty) });
        if self.options.debug {
            let (above, below) = (self.b.binary(BinaryOp::Ge, row, low), self.b.binary(BinaryOp::Le, row, high));
            let inside = self.b.binary(BinaryOp::And, above, below);
            let name = &self.buffers[array.index()].name;
            let text = format!(" of `{name}` is neither owned by this rank nor one of its ghost rows: it has rows ");
            let parts = vec![
                TextPart::Text("Row ".into()),
                TextPart::Value(row, None),
                TextPart::Text(text),
                TextPart::Value(first, None),
                TextPart::Text(" to ".into()),
                TextPart::Value(last, None),
            ];
            self.b.push(Op::Assert(inside, parts), Type::Unit);
        }
        let most = self.b.binary(BinaryOp::Min, row, high);
        Ok(Value::Rt(self.b.binary(BinaryOp::Max, most, low)))
    }

    /// The row in an attribute of a split array: a parameter if the array is reached through an argument.
    fn local_row(&mut self, array: BufferId, attribute: &str) -> Result<ValueId> {
        let capture = self.buffer_captures[array.index()].clone();
        let from = match capture {
            Some(Capture::Arg { index, path } | Capture::Object { from: Some((index, path)), .. }) => {
                Some((index, path))
            }
            _ => None,
        };
        let value = match (from, self.buffer_objects[array.index()]) {
            (Some((index, mut path)), _) if self.sees_parameters() => {
                path.push(attribute.to_owned());
                self.argument(index, path, &ArgSpec::Value(Scalar::I32.into(), None))?
            }
            (None, Some(object)) => self.host_attribute(object, attribute)?,
            _ => {
                return self.err(
                    Code::Type,
                    "`assume_local` is not supported in a `qd.real_func`: use a kernel or a `qd.func`",
                );
            }
        };
        let value = self.rt(&value)?;
        Ok(if self.b.ty(value) == &Type::I32 { value } else { self.b.cast(value, Scalar::I32) })
    }
}
