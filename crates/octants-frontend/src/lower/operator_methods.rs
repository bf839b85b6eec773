//! Operators on objects of Python whose class defines them as `@qd.func`s: `a + b` calls `a.__add__(b)`.
//!
//! Operators that a class defines in plain Python are evaluated at compile time, like those of Python's own types.

use octants_diag::Result;

use super::Lowerer;
use crate::ast::{Comparison, Operator, UnaryOperator};
use crate::value::Value;
use crate::world::{Entity, FuncKind, Obj};

impl Lowerer<'_> {
    /// `l op r` by a method of `l`, or else by the reflected method of `r`. `None` if there is neither.
    pub(super) fn binary_by_method(&mut self, op: Operator, l: &Value, r: &Value) -> Result<Option<Value>> {
        let (method, reflected) = match op {
            Operator::Add => ("__add__", "__radd__"),
            Operator::Sub => ("__sub__", "__rsub__"),
            Operator::Mul => ("__mul__", "__rmul__"),
            Operator::Div => ("__truediv__", "__rtruediv__"),
            Operator::FloorDiv => ("__floordiv__", "__rfloordiv__"),
            Operator::Mod => ("__mod__", "__rmod__"),
            Operator::Pow => ("__pow__", "__rpow__"),
            Operator::Shl => ("__lshift__", "__rlshift__"),
            Operator::Shr => ("__rshift__", "__rrshift__"),
            Operator::BitAnd => ("__and__", "__rand__"),
            Operator::BitOr => ("__or__", "__ror__"),
            Operator::BitXor => ("__xor__", "__rxor__"),
            Operator::MatMul => ("__matmul__", "__rmatmul__"),
        };
        match self.by_method(l, method, &[r])? {
            None => self.by_method(r, reflected, &[l]),
            found => Ok(found),
        }
    }

    /// As [`Lowerer::binary_by_method`], for a comparison. The reflection of `<` is `>`.
    pub(super) fn compare_by_method(&mut self, op: Comparison, l: &Value, r: &Value) -> Result<Option<Value>> {
        let (method, reflected) = match op {
            Comparison::Eq => ("__eq__", "__eq__"),
            Comparison::Ne => ("__ne__", "__ne__"),
            Comparison::Lt => ("__lt__", "__gt__"),
            Comparison::Le => ("__le__", "__ge__"),
            Comparison::Gt => ("__gt__", "__lt__"),
            Comparison::Ge => ("__ge__", "__le__"),
            Comparison::Is | Comparison::IsNot | Comparison::In | Comparison::NotIn => return Ok(None),
        };
        match self.by_method(l, method, &[r])? {
            None => self.by_method(r, reflected, &[l]),
            found => Ok(found),
        }
    }

    /// As [`Lowerer::binary_by_method`], for an operator of one operand.
    pub(super) fn unary_by_method(&mut self, op: UnaryOperator, a: &Value) -> Result<Option<Value>> {
        let method = match op {
            UnaryOperator::Neg => "__neg__",
            UnaryOperator::Pos => "__pos__",
            UnaryOperator::Invert => "__invert__",
            UnaryOperator::Not => return Ok(None),
        };
        self.by_method(a, method, &[])
    }

    /// `base[index]` by the `__getitem__` of an object. Several indices are one tuple, as in Python.
    pub(super) fn item_by_method(&mut self, base: &Value, index: &[Value]) -> Result<Option<Value>> {
        match index {
            [one] => self.by_method(base, "__getitem__", &[one]),
            several => self.by_method(base, "__getitem__", &[&Value::tuple(several.to_vec())]),
        }
    }

    /// `len(a)` and `abs(a)` by a method of `a`. `None` if it has none, and for other functions.
    pub(super) fn function_by_method(&mut self, name: &str, args: &[Value]) -> Result<Option<Value>> {
        match (name, args) {
            ("len", [a]) => self.by_method(a, "__len__", &[]),
            ("abs", [a]) => self.by_method(a, "__abs__", &[]),
            _ => Ok(None),
        }
    }

    fn by_method(&mut self, owner: &Value, name: &str, operands: &[&Value]) -> Result<Option<Value>> {
        let Some((object, method)) = self.operator_method(owner, name) else { return Ok(None) };
        let mut arguments = vec![Value::Obj(object)];
        arguments.extend(operands.iter().map(|&operand| operand.clone()));
        self.call_object(method, arguments, Vec::new()).map(Some)
    }

    fn operator_method(&self, owner: &Value, name: &str) -> Option<(Obj, Obj)> {
        let Value::Obj(object) = owner else { return None };
        if self.world.entity(*object) != Entity::Opaque {
            return None;
        }
        let class = self.world.attribute(*object, "__class__").ok()??;
        let method = self.world.attribute(class, name).ok()??;
        matches!(self.world.entity(method), Entity::Func(FuncKind::Func | FuncKind::Real)).then_some((*object, method))
    }
}
