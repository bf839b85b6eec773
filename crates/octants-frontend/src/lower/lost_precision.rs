//! Warnings about stores that convert a value to a type that cannot represent all values of the original type.

use octants_diag::{Code, Diagnostic};
use octants_ir::{Scalar, Type};

use super::Lowerer;
use crate::value::Value;

impl Lowerer<'_> {
    /// Warns if the promotion of both types is not the target's type: for `i32 <- f32`, but not for `f32 <- i32`.
    pub(super) fn warn_of_lost_precision(&mut self, what: &str, to: &Type, value: &Value) {
        let Some(to) = to.scalar() else { return };
        let Some(from) = self.scalar_type(value, to) else { return };
        if from != Scalar::U1 && to.promote(from) != to {
            let text = format!("{what} may lose precision: {to} <- {from}");
            self.world.warn(*Diagnostic::new(Code::Precision, self.b.span, text));
        }
    }

    /// The type of the components of a value. A literal has the target's type if that can represent it.
    fn scalar_type(&mut self, value: &Value, to: Scalar) -> Option<Scalar> {
        match value {
            Value::Int(_) | Value::Bool(_) => None,
            Value::Float(_) => (!to.is_float()).then_some(self.options.default_fp),
            value => match value.items() {
                Some(items) => items.iter().filter_map(|item| self.scalar_type(item, to)).reduce(Scalar::promote),
                None => self.runtime_type(value)?.scalar(),
            },
        }
    }
}
