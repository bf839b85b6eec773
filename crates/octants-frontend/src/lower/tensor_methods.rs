//! Methods of vectors and matrices: `v.dot(w)`, `m.transpose()`, `v.norm()`. The [`crate::world::World`] supplies
//! those that are written in the kernel language.

use octants_diag::{Code, Result};
use octants_ir::{BinaryOp, Op, ReduceOp, Scalar, Type, ValueId};

use super::Lowerer;
use crate::arith;
use crate::arith::type_name;
use crate::ast::Operator;
use crate::value::Value;

/// The methods that [`Lowerer::tensor_method`] lowers.
const METHODS: [&str; 18] = [
    "sum",
    "max",
    "min",
    "any",
    "all",
    "dot",
    "cross",
    "outer_product",
    "norm",
    "norm_sqr",
    "norm_inv",
    "normalized",
    "transpose",
    "trace",
    "cast",
    "get_shape",
    "to_list",
    "fill",
];

impl Lowerer<'_> {
    fn op(&mut self, op: Operator, a: ValueId, b: ValueId) -> Result<ValueId> {
        arith::binary(&mut self.b, &self.options, op, a, b)
    }

    fn fold(&mut self, op: ReduceOp, v: ValueId) -> Result<ValueId> {
        match self.b.ty(v).clone() {
            Type::Scalar(_) => Ok(v),
            ty => {
                let s = ty.scalar().unwrap_or(Scalar::F32);
                Ok(self.b.push(Op::Fold(op, v), Type::Scalar(s)))
            }
        }
    }

    /// The fold over "component is not zero".
    fn fold_truth(&mut self, op: ReduceOp, v: ValueId) -> Result<ValueId> {
        let ty = self.b.ty(v).clone();
        let zero = self.b.int(0, ty.scalar().unwrap_or(Scalar::F32));
        let zero = self.b.splat(zero, &ty);
        let truth = self.b.binary(BinaryOp::Ne, v, zero);
        self.fold(op, truth)
    }

    fn dot_of_vectors(&mut self, a: ValueId, b: ValueId) -> Result<ValueId> {
        let (ta, tb) = (self.b.ty(a), self.b.ty(b));
        match (ta, tb) {
            (Type::Vector(_, n), Type::Vector(_, m)) if n == m => {}
            (Type::Vector(..), Type::Vector(..)) => return self.unequal_shapes(a, b),
            (Type::Vector(..), _) => return self.err(Code::Type, "rhs for dot is not a vector"),
            _ => return self.err(Code::Type, "lhs for dot is not a vector"),
        }
        self.dot(a, b)
    }

    fn unequal_shapes<T>(&self, a: ValueId, b: ValueId) -> Result<T> {
        let (a, b) = (arith::shape_text(self.b.ty(a)), arith::shape_text(self.b.ty(b)));
        self.err(Code::Type, format!("required shapes to be the same, got shapes [{a}, {b}]"))
    }

    fn dot(&mut self, a: ValueId, b: ValueId) -> Result<ValueId> {
        let p = self.op(Operator::Mul, a, b)?;
        self.fold(ReduceOp::Add, p)
    }

    fn sqrt(&mut self, v: ValueId) -> Result<ValueId> {
        match arith::math(&mut self.b, &self.options, "sqrt", &[v]) {
            Some(v) => v,
            None => self.err(Code::Type, "`sqrt` does not support this value"),
        }
    }

    /// `norm(eps)`: sqrt(sum of squares + eps).
    fn norm(&mut self, v: ValueId, eps: Option<ValueId>) -> Result<ValueId> {
        let mut square = self.dot(v, v)?;
        if let Some(eps) = eps {
            square = self.op(Operator::Add, square, eps)?;
        }
        self.sqrt(square)
    }

    /// The vector over its norm plus eps, so that a zero vector stays finite.
    fn normalized(&mut self, v: ValueId, eps: Option<ValueId>) -> Result<ValueId> {
        if !matches!(self.b.ty(v), Type::Vector(..)) {
            let ty = type_name(self.b.ty(v));
            return self.err(Code::Type, format!("expected a vector, got {ty}"));
        }
        let mut n = self.norm(v, None)?;
        if let Some(eps) = eps {
            n = self.op(Operator::Add, n, eps)?;
        }
        let one = self.b.float(1.0, self.options.default_fp);
        let inverse = self.op(Operator::Div, one, n)?;
        self.op(Operator::Mul, inverse, v)
    }

    fn transpose(&mut self, v: ValueId) -> Result<ValueId> {
        match *self.b.ty(v) {
            Type::Matrix(s, n, m) => Ok(self.b.push(Op::Transpose(v), Type::Matrix(s, m, n))),
            _ => self.err(
                Code::Type,
                "`transpose()` cannot apply to a vector. If you want something like `a @ b.transpose()`, write \
                 `a.outer_product(b)` instead.",
            ),
        }
    }

    fn trace(&mut self, v: ValueId) -> Result<ValueId> {
        let ty = self.b.ty(v);
        let (n, m) = match ty.shape()[..] {
            [n, m] if n == m => (n, m),
            _ => return self.err(Code::Type, format!("expected a square matrix, got shape {}", arith::shape_text(ty))),
        };
        let mut sum = self.b.extract(v, 0);
        for i in 1..n {
            let d = self.b.extract(v, i * m + i);
            sum = self.op(Operator::Add, sum, d)?;
        }
        Ok(sum)
    }

    /// Whether a value of the kernel has a method, to go by the name.
    pub(super) fn has_method(&mut self, base: &Value, name: &str) -> bool {
        self.runtime_type(base).is_none_or(|ty| matches!(ty, Type::Struct(_)))
            || METHODS.contains(&name)
            || self.world.tensor_method(name).is_some()
    }

    pub(super) fn tensor_method(
        &mut self,
        base: &Value,
        name: &str,
        args: &[Value],
        kwargs: &[(String, Value)],
    ) -> Result<Option<Value>> {
        let base_value = match base.items() {
            Some(items) => self.make_tensor(items, None)?,
            None => match self.runtime_type(base) {
                Some(Type::Struct(_)) | None => return Ok(None),
                Some(_) => self.rt(base)?,
            },
        };
        let ty = self.b.ty(base_value).clone();
        let arg = |i: usize, n: &str| {
            args.get(i).cloned().or_else(|| kwargs.iter().find(|(k, _)| k == n).map(|(_, v)| v.clone()))
        };
        let eps = match arg(0, "eps") {
            Some(Value::Int(0)) | None => None,
            Some(v) if matches!(name, "norm" | "normalized" | "norm_inv") => Some(self.rt(&v)?),
            Some(_) => None,
        };
        let other = |l: &mut Self| match arg(0, "other").or_else(|| arg(0, "vec")) {
            Some(v) => l.operand_for(&v, &Type::Unit),
            None => l.err(Code::Type, format!("`{name}` takes one argument")),
        };
        let v = match name {
            "sum" => self.fold(ReduceOp::Add, base_value)?,
            "max" => self.fold(ReduceOp::Max, base_value)?,
            "min" => self.fold(ReduceOp::Min, base_value)?,
            "any" => self.fold_truth(ReduceOp::Or, base_value)?,
            "all" => self.fold_truth(ReduceOp::And, base_value)?,
            "dot" => {
                let o = other(self)?;
                self.dot_of_vectors(base_value, o)?
            }
            "cross" => {
                let o = other(self)?;
                self.cross(base_value, o)?
            }
            "outer_product" => {
                let o = other(self)?;
                self.outer_product(base_value, o)?
            }
            "norm" => self.norm(base_value, eps)?,
            "norm_sqr" => self.dot(base_value, base_value)?,
            "norm_inv" => {
                let n = self.norm(base_value, eps)?;
                let one = self.b.float(1.0, self.options.default_fp);
                self.op(Operator::Div, one, n)?
            }
            "normalized" => self.normalized(base_value, eps)?,
            "transpose" => self.transpose(base_value)?,
            "trace" => self.trace(base_value)?,
            "cast" => {
                let Some(t) = arg(0, "dtype") else { return self.err(Code::Type, "`cast` takes a type") };
                let s = self.dtype_of(&t)?;
                arith::cast(&mut self.b, base_value, s)?
            }
            "get_shape" => {
                return Ok(Some(Value::tuple(ty.shape().into_iter().map(|n| Value::Int(i128::from(n))).collect())));
            }
            "to_list" => return Ok(Some(Value::list(self.unpack(&Value::Rt(base_value))?))),
            "fill" => {
                let (Some(place), Some(x)) = (self.place(base), arg(0, "val")) else {
                    return self.err(Code::Type, "`fill` takes one value, and works only on a variable or an element");
                };
                let x = self.cast_value(&x, ty.scalar().unwrap_or(Scalar::F32))?;
                let x = self.b.splat(x, &ty);
                self.b.store(place.addr, x);
                return Ok(Some(Value::None));
            }
            "_augassign" | "_assign" => {
                return self.err(Code::Syntax, "kernels do not support this method: write an assignment statement");
            }
            _ => {
                if let Some(f) = self.world.tensor_method(name) {
                    let mut all = vec![Value::Rt(base_value)];
                    all.extend(args.iter().cloned());
                    let callee = Value::Obj(f);
                    return Ok(Some(self.call(&callee, all, kwargs.to_vec())?));
                }
                return Ok(None);
            }
        };
        Ok(Some(Value::Rt(v)))
    }

    fn pair(&mut self, a: ValueId, b: ValueId) -> (ValueId, ValueId, Scalar) {
        let sa = self.b.ty(a).scalar().unwrap_or(Scalar::F32);
        let sb = self.b.ty(b).scalar().unwrap_or(Scalar::F32);
        let s = sa.promote(sb);
        (self.b.cast(a, s), self.b.cast(b, s), s)
    }

    fn cross(&mut self, a: ValueId, b: ValueId) -> Result<ValueId> {
        let (ta, tb) = (self.b.ty(a).clone(), self.b.ty(b).clone());
        let (a, b, s) = self.pair(a, b);
        let minor = |l: &mut Self, i: u32, j: u32| {
            let (ai, aj) = (l.b.extract(a, i), l.b.extract(a, j));
            let (bi, bj) = (l.b.extract(b, i), l.b.extract(b, j));
            let p = l.b.binary(BinaryOp::Mul, ai, bj);
            let q = l.b.binary(BinaryOp::Mul, aj, bi);
            l.b.binary(BinaryOp::Sub, p, q)
        };
        match (ta, tb) {
            (Type::Vector(_, 3), Type::Vector(_, 3)) => {
                let parts = vec![minor(self, 1, 2), minor(self, 2, 0), minor(self, 0, 1)];
                Ok(self.b.push(Op::MakeTensor(parts), Type::Vector(s, 3)))
            }
            (Type::Vector(_, 2), Type::Vector(_, 2)) => Ok(minor(self, 0, 1)),
            (Type::Vector(_, n), Type::Vector(_, m)) if n != m => self.unequal_shapes(a, b),
            (ta, tb) => self.err(
                Code::Type,
                format!(
                    "`cross` takes two vectors of 2 or 3 components, got {ta} and {tb}",
                    ta = type_name(&ta),
                    tb = type_name(&tb)
                ),
            ),
        }
    }

    fn outer_product(&mut self, a: ValueId, b: ValueId) -> Result<ValueId> {
        let (Type::Vector(_, n), Type::Vector(_, m)) = (self.b.ty(a).clone(), self.b.ty(b).clone()) else {
            return self.err(Code::Type, "`outer_product` takes two vectors");
        };
        let (a, b, s) = self.pair(a, b);
        let mut parts = Vec::new();
        for i in 0..n {
            for j in 0..m {
                let (x, y) = (self.b.extract(a, i), self.b.extract(b, j));
                parts.push(self.b.binary(BinaryOp::Mul, x, y));
            }
        }
        Ok(self.b.push(Op::MakeTensor(parts), Type::Matrix(s, n, m)))
    }
}
