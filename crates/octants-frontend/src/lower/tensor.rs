//! Vectors and matrices: construction, components by name, methods the compiler knows.

use octants_diag::{Code, Result};
use octants_ir::{BinaryOp, Op, ReduceOp, Scalar, Type, ValueId};

use super::Lowerer;
use crate::arith::type_name;
use crate::arith::{self, Operator};
use crate::value::Value;
use crate::world::{Entity, Obj};

impl Lowerer<'_> {
    pub(super) fn tensor_constant(&mut self, ty: &Type, values: &[Entity]) -> ValueId {
        let s = ty.scalar().expect("compiler bug: a tensor constant without a scalar");
        let parts = values
            .iter()
            .map(|e| match e {
                Entity::Int(i) => self.b.int(super::assignment::wrap(*i as i64, s), s),
                Entity::Bool(x) => self.b.int(i64::from(*x), s),
                Entity::Float(f) if s.is_float() => self.b.float(*f, s),
                Entity::Float(f) => self.b.int(*f as i64, s),
                _ => panic!("compiler bug: a component that is not a number"),
            })
            .collect();
        self.b.push(Op::MakeTensor(parts), ty.clone())
    }

    /// A vector or matrix of the items: scalars make a vector; vectors or lists make the rows of a matrix.
    pub(super) fn make_tensor(&mut self, items: &[Value], scalar: Option<Scalar>) -> Result<ValueId> {
        if items.is_empty() || items[0].items().is_some_and(<[Value]>::is_empty) {
            return self.err(Code::Value, "a vector needs at least one component");
        }
        let mut rows: Vec<Vec<ValueId>> = Vec::new();
        let mut is_matrix = false;
        for item in items {
            let row = match item.items() {
                // Its numbers are converted below, with those of all rows, once: on the way to the type of the
                // matrix, the type of the row could change them.
                Some(inner) => {
                    is_matrix = true;
                    inner.iter().map(|component| self.rt(component)).collect::<Result<Vec<_>>>()?
                }
                None => {
                    let v = self.rt(item)?;
                    match *self.b.ty(v) {
                        Type::Vector(_, n) => {
                            is_matrix = true;
                            (0..n).map(|i| self.b.extract(v, i)).collect()
                        }
                        _ => vec![v],
                    }
                }
            };
            for v in &row {
                let ty = self.b.ty(*v);
                if !matches!(ty, Type::Scalar(_)) {
                    let what = type_name(ty);
                    return self.err(Code::Type, format!("a vector or matrix cannot have a component of type {what}"));
                }
            }
            rows.push(row);
        }
        let columns = rows[0].len();
        if rows.iter().any(|r| r.len() != columns) {
            return self.err(Code::Value, "the rows of a matrix must have one length");
        }
        let flat: Vec<ValueId> = rows.into_iter().flatten().collect();
        let s = scalar.unwrap_or_else(|| {
            flat.iter().filter_map(|v| self.b.ty(*v).scalar()).reduce(Scalar::promote).unwrap_or(Scalar::F32)
        });
        let flat = flat.into_iter().map(|v| arith::cast(&mut self.b, v, s)).collect::<Result<Vec<_>>>()?;
        let ty = if is_matrix {
            Type::Matrix(s, items.len() as u32, columns as u32)
        } else {
            Type::Vector(s, items.len() as u32)
        };
        Ok(self.b.push(Op::MakeTensor(flat), ty))
    }

    /// `qd.Vector(items, dt)`, `qd.Matrix(items, dt)`.
    pub(super) fn lower_matrix(&mut self, args: &[Value], kwargs: &[(String, Value)]) -> Result<Value> {
        let keyword = |n: &str| kwargs.iter().find(|(k, _)| k == n).map(|(_, v)| v.clone());
        let Some(items) = args.first().cloned().or_else(|| keyword("arr")) else {
            return self.err(Code::Type, "a vector or matrix is made from a list of components");
        };
        let s = match args.get(1).cloned().or_else(|| keyword("dt")) {
            Some(Value::None) | None => None,
            Some(v) => Some(self.dtype_of(&v)?),
        };
        let v = match items.items() {
            Some(list) => self.make_tensor(list, s)?,
            None => {
                let v = match &items {
                    Value::Obj(_) => match self.try_rt(&items)? {
                        Some(v) => v,
                        None => {
                            let list = self.compile_time_items(&items)?;
                            self.make_tensor(&list, s)?
                        }
                    },
                    _ => self.rt(&items)?,
                };
                if !self.b.ty(v).is_tensor() {
                    return self.err(Code::Type, "a vector or matrix is made from a list of components");
                }
                match s {
                    Some(s) => arith::cast(&mut self.b, v, s)?,
                    None => v,
                }
            }
        };
        Ok(Value::Rt(v))
    }

    /// `vec3(...)`, `mat2(...)`: scalars, vectors and lists in order; one scalar fills all.
    pub(super) fn construct_tensor(&mut self, ty: &Type, args: &[Value]) -> Result<Value> {
        let Some(s) = ty.scalar() else { return self.err(Code::Type, "not a vector or matrix type") };
        let mut flat = Vec::new();
        for a in args {
            self.flatten_components(a, &mut flat)?;
        }
        let wanted = ty.leaf_count();
        if flat.len() == 1 && wanted != 1 {
            let v = self.cast_value(&flat[0], s)?;
            return Ok(Value::Rt(self.b.splat(v, ty)));
        }
        if flat.len() != wanted {
            return self.err(
                Code::Value,
                format!(
                    "Incompatible arguments for {ty}: it has {wanted} components, {} given",
                    flat.len(),
                    ty = type_name(ty)
                ),
            );
        }
        let parts = flat.iter().map(|v| self.cast_value(v, s)).collect::<Result<Vec<_>>>()?;
        Ok(Value::Rt(self.b.push(Op::MakeTensor(parts), ty.clone())))
    }

    fn flatten_components(&mut self, v: &Value, out: &mut Vec<Value>) -> Result<()> {
        if let Some(items) = v.items() {
            for i in items {
                self.flatten_components(i, out)?;
            }
            return Ok(());
        }
        if matches!(v, Value::Int(_) | Value::Float(_) | Value::Bool(_)) {
            out.push(v.clone());
            return Ok(());
        }
        let rt = self.rt(v)?;
        match self.b.ty(rt).clone() {
            Type::Scalar(_) => out.push(Value::Rt(rt)),
            ty @ (Type::Vector(..) | Type::Matrix(..)) => {
                for i in 0..ty.leaf_count() as u32 {
                    let x = self.b.extract(rt, i);
                    out.push(Value::Rt(x));
                }
            }
            ty => return self.err(Code::Type, format!("a component cannot be of type {ty}", ty = type_name(&ty))),
        }
        Ok(())
    }

    fn tensor_type(&mut self, base: &Value) -> Option<Type> {
        match base {
            Value::List(items) if !items.is_empty() && !base.is_compile_time() => {
                let v = self.make_tensor(items, None).ok()?;
                Some(self.b.ty(v).clone())
            }
            _ => self.runtime_type(base).filter(Type::is_tensor),
        }
    }

    /// Swizzles, shape, and methods waiting for their call.
    pub(super) fn tensor_attribute(&mut self, base: &Value, name: &str) -> Result<Option<Value>> {
        if matches!(base, Value::List(_)) && matches!(name, "append" | "extend" | "index" | "count" | "copy") {
            return Ok(None);
        }
        let Some(ty) = self.tensor_type(base) else {
            return Ok(match self.runtime_type(base) {
                // A scalar has the methods of a tensor with one component, as far as they make sense.
                Some(Type::Scalar(_)) if self.is_runtime(base) => {
                    Some(Value::Method(std::rc::Rc::new((base.clone(), name.to_owned()))))
                }
                _ => None,
            });
        };
        if let Value::Obj(obj) = base
            && let Some(v) = self.numpy_attribute(*obj, name)?
        {
            return Ok(Some(v));
        }
        let shape = ty.shape();
        if let Type::Vector(s, n) = ty
            && let Some(components) = swizzle(name)
        {
            if components.iter().any(|c| *c >= n) {
                return self.no_such_component(name, n);
            }
            let parts = components
                .iter()
                .map(|c| self.subscript(base, vec![Value::Int(i128::from(*c))]))
                .collect::<Result<Vec<_>>>()?;
            if let [one] = &parts[..] {
                return Ok(Some(one.clone()));
            }
            let parts = parts.iter().map(|p| self.rt(p)).collect::<Result<Vec<_>>>()?;
            let ty = Type::Vector(s, parts.len() as u32);
            return Ok(Some(Value::Rt(self.b.push(Op::MakeTensor(parts), ty))));
        }
        let int = |n: u32| Value::Int(i128::from(n));
        Ok(Some(match name {
            "n" => int(shape[0]),
            "m" => int(shape.get(1).copied().unwrap_or(1)),
            "ndim" => int(shape.len() as u32),
            "shape" => Value::tuple(shape.iter().map(|n| int(*n)).collect()),
            "dtype" => self.dtype_value(ty.scalar().unwrap_or(Scalar::F32))?,
            _ => Value::Method(std::rc::Rc::new((base.clone(), name.to_owned()))),
        }))
    }

    /// A captured array of numpy, which Python may be asked about.
    pub(super) fn is_numpy_array(&self, obj: Obj) -> bool {
        matches!(self.world.entity(obj), Entity::TensorConst { is_numpy: true, .. })
    }

    /// What numpy knows of a captured array, other than methods, which wait for their arguments, and what vectors have too.
    fn numpy_attribute(&mut self, obj: Obj, name: &str) -> Result<Option<Value>> {
        if matches!(name, "ndim" | "shape" | "dtype") || !self.is_numpy_array(obj) {
            return Ok(None);
        }
        let Some(found) = self.world.attribute(obj, name).map_err(|e| self.host_error(e))? else { return Ok(None) };
        match self.world.attribute(found, "__call__") {
            Ok(Some(_)) => Ok(None),
            _ => self.host_attribute(obj, name).map(Some),
        }
    }

    fn no_such_component<T>(&mut self, name: &str, n: u32) -> Result<T> {
        let letters = SWIZZLES.into_iter().find(|group| name.starts_with(|c| group.contains(c))).unwrap_or("xyzw");
        let listed = |letters: &mut dyn Iterator<Item = char>| letters.map(|c| format!("'{c}'")).collect::<Vec<_>>();
        let has = listed(&mut letters.chars().take(n as usize)).join(", ");
        let got = listed(&mut name.chars());
        let got = if got.len() == 1 { format!("{},", got[0]) } else { got.join(", ") };
        self.err(Code::Syntax, format!("vec{n} only has attributes=({has}), got=({got})"))
    }

    /// Places of `base.name` where `name` picks several components, for assignment.
    pub(super) fn swizzle_places(&mut self, base: &Value, name: &str) -> Result<Option<Vec<Value>>> {
        let Some(Type::Vector(_, n)) = self.runtime_type(base) else { return Ok(None) };
        let Some(components) = swizzle(name) else { return Ok(None) };
        if components.len() < 2 || components.iter().any(|c| *c >= n) {
            return Ok(None);
        }
        components
            .iter()
            .map(|c| self.subscript(base, vec![Value::Int(i128::from(*c))]))
            .collect::<Result<Vec<_>>>()
            .map(Some)
    }

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

    fn dot(&mut self, a: ValueId, b: ValueId) -> Result<ValueId> {
        let p = self.op(Operator::Mul, a, b)?;
        self.fold(ReduceOp::Add, p)
    }

    fn sqrt(&mut self, v: ValueId) -> Result<ValueId> {
        match arith::math(&mut self.b, &self.options, "sqrt", &[v]) {
            Some(v) => v,
            None => self.err(Code::Type, "sqrt of this value"),
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
        let shape = ty.shape();
        let s = ty.scalar().unwrap_or(Scalar::F32);
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
            "any" | "all" => {
                let zero = self.b.int(0, s);
                let zero = self.b.splat(zero, &ty);
                let truth = self.b.binary(BinaryOp::Ne, base_value, zero);
                self.fold(if name == "any" { ReduceOp::Or } else { ReduceOp::And }, truth)?
            }
            "dot" => {
                let o = other(self)?;
                if !matches!((&ty, self.b.ty(o)), (Type::Vector(_, a), Type::Vector(_, b)) if a == b) {
                    let found = type_name(self.b.ty(o));
                    return self.err(
                        Code::Type,
                        format!("dot takes two vectors of one length, got {ty} and {found}", ty = type_name(&ty)),
                    );
                }
                self.dot(base_value, o)?
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
            "normalized" => {
                // The norm plus eps, so that a zero vector stays finite.
                let mut n = self.norm(base_value, None)?;
                if let Some(eps) = eps {
                    n = self.op(Operator::Add, n, eps)?;
                }
                let one = self.b.float(1.0, self.options.default_fp);
                let inverse = self.op(Operator::Div, one, n)?;
                self.op(Operator::Mul, inverse, base_value)?
            }
            "transpose" => match ty {
                Type::Matrix(s, n, m) => self.b.push(Op::Transpose(base_value), Type::Matrix(s, m, n)),
                Type::Vector(s, n) => {
                    let parts = (0..n).map(|i| self.b.extract(base_value, i)).collect();
                    self.b.push(Op::MakeTensor(parts), Type::Matrix(s, 1, n))
                }
                _ => base_value,
            },
            "trace" => {
                let [n, m] = shape[..] else {
                    return self.err(Code::Type, format!("trace takes a matrix, not {ty}", ty = type_name(&ty)));
                };
                if n != m {
                    return self.err(Code::Type, "trace takes a square matrix");
                }
                let mut sum = self.b.extract(base_value, 0);
                for i in 1..n {
                    let d = self.b.extract(base_value, i * m + i);
                    sum = self.op(Operator::Add, sum, d)?;
                }
                sum
            }
            "cast" => {
                let Some(t) = arg(0, "dtype") else { return self.err(Code::Type, "`cast` takes a type") };
                let s = self.dtype_of(&t)?;
                arith::cast(&mut self.b, base_value, s)?
            }
            "get_shape" => return Ok(Some(Value::tuple(shape.iter().map(|n| Value::Int(i128::from(*n))).collect()))),
            "to_list" => return Ok(Some(Value::list(self.unpack(&Value::Rt(base_value))?))),
            "fill" => {
                let (Some(place), Some(x)) = (self.place(base), arg(0, "val")) else {
                    return self.err(Code::Type, "`fill` takes a value and changes a variable or element");
                };
                let x = self.cast_value(&x, s)?;
                let x = self.b.splat(x, &ty);
                self.b.store(place.addr, x);
                return Ok(Some(Value::None));
            }
            "_augassign" | "_assign" => return self.err(Code::Syntax, "write the assignment as a statement"),
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
            (ta, tb) => self.err(
                Code::Type,
                format!(
                    "cross takes two vectors of 2 or of 3 components, got {ta} and {tb}",
                    ta = type_name(&ta),
                    tb = type_name(&tb)
                ),
            ),
        }
    }

    fn outer_product(&mut self, a: ValueId, b: ValueId) -> Result<ValueId> {
        let (Type::Vector(_, n), Type::Vector(_, m)) = (self.b.ty(a).clone(), self.b.ty(b).clone()) else {
            return self.err(Code::Type, "outer_product takes two vectors");
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

/// The sets of names that components have.
const SWIZZLES: [&str; 3] = ["xyzw", "rgba", "stpq"];

/// Component positions of `xyzw`, `rgba` or `stpq` names.
fn swizzle(name: &str) -> Option<Vec<u32>> {
    if name.is_empty() || name.len() > 4 {
        return None;
    }
    SWIZZLES
        .into_iter()
        .find_map(|set| name.chars().map(|c| set.find(c).map(|i| i as u32)).collect::<Option<Vec<u32>>>())
}
