//! Vectors and matrices: construction, and components by name.

use octants_diag::{Code, Result};
use octants_ir::{Op, Scalar, Type, ValueId};

use super::Lowerer;
use crate::arith;
use crate::arith::type_name;
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
            return self.err(Code::Value, "all rows of a matrix must have the same length");
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
            return self.err(Code::Type, "`qd.Vector` and `qd.Matrix` take a list of components");
        };
        let s = match args.get(1).cloned().or_else(|| keyword("dt")) {
            Some(Value::None) | None => None,
            Some(v) => Some(self.dtype_of(&v)?),
        };
        let v = match items.items() {
            // A vector of no components has no value at run time.
            Some([]) => return Ok(Value::list(Vec::new())),
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
                    return self.err(Code::Type, "`qd.Vector` and `qd.Matrix` take a list of components");
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
        let Some(s) = ty.scalar() else { return self.err(Code::Type, "expected a vector or matrix type") };
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
                    "Incompatible arguments for {ty}: it has {wanted} components, but {} are given",
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

    /// Whether an object is a captured numpy array, which Python can evaluate.
    pub(super) fn is_numpy_array(&self, obj: Obj) -> bool {
        matches!(self.world.entity(obj), Entity::TensorConst { is_numpy: true, .. })
    }

    /// An attribute of a captured numpy array, except methods, which need their arguments, and attributes that vectors
    /// have too.
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
