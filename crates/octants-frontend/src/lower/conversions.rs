//! Built-in functions that make values: casts, `random`, `zero` and `one`, `Struct`.

use octants_diag::{Code, Result};
use octants_ir::{Op, Scalar, Type};

use super::Lowerer;
use super::builtins::Call;
use super::values::holds;
use crate::arith;
use crate::arith::type_name;
use crate::value::{Members, Value};

impl Lowerer<'_> {
    pub(super) fn lower_cast(&mut self, call: Call) -> Result<Value> {
        let s = self.dtype_of(&call.args[1])?;
        if let Value::Int(i) = call.args[0]
            && s.is_int()
            && !holds(s, i)
        {
            // It must at least be a value of the default type, whose bits are then kept as far as they fit.
            self.int_literal(i)?;
        }
        Ok(Value::Rt(self.cast_value(&call.args[0], s)?))
    }

    pub(super) fn lower_bit_cast(&mut self, call: Call) -> Result<Value> {
        let s = self.dtype_of(&call.args[1])?;
        let v = self.rt(&call.args[0])?;
        Ok(Value::Rt(arith::bit_cast(&mut self.b, v, s)?))
    }

    /// `int`, `float`, `bool`: of a value known at compile time they are Python's own.
    pub(super) fn lower_conversion(&mut self, to: Scalar, call: Call) -> Result<Value> {
        let v = &call.args[0];
        if v.is_compile_time() && !matches!(v, Value::Obj(_)) {
            return self.call_host(call.obj, &call.args, &call.kwargs);
        }
        Ok(Value::Rt(self.cast_value(v, to)?))
    }

    pub(super) fn lower_random(&mut self, call: Call) -> Result<Value> {
        let s = match call.args.first().cloned().or_else(|| call.keyword("dtype")) {
            Some(v) => self.dtype_of(&v)?,
            None => self.options.default_fp,
        };
        Ok(Value::Rt(self.b.push(Op::Random, Type::Scalar(s))))
    }

    /// `qd.zero(x)`, `qd.one(x)`: a constant of the value's type.
    pub(super) fn constant_like(&mut self, v: &Value, n: i64) -> Result<Value> {
        let v = self.rt(v)?;
        let ty = self.b.ty(v).clone();
        let Some(s) = ty.scalar() else {
            let name = if n == 0 { "zero" } else { "one" };
            let ty = type_name(&ty);
            return self.err(Code::Type, format!("`qd.{name}` does not support type {ty}"));
        };
        let c = self.b.int(n, s);
        Ok(Value::Rt(self.b.splat(c, &ty)))
    }

    pub(super) fn lower_struct(&mut self, call: Call) -> Result<Value> {
        let items = match call.args.first() {
            Some(v) => self.member_values(v)?,
            None => call.kwargs,
        };
        let m = Members { ty: None, is_array: false, items };
        Ok(Value::Rt(self.struct_value(&m)?))
    }
}
