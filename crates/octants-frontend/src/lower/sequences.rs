//! Python's built-in functions on sequences and objects: `len`, `zip`, `enumerate`, `sum`, `min`, `getattr`,
//! `isinstance`.

use octants_diag::{Code, Result};
use octants_ir::Type;

use super::Lowerer;
use super::builtins::Call;
use crate::arith;
use crate::ast::Operator;
use crate::value::Value;
use crate::world::Entity;

impl Lowerer<'_> {
    pub(super) fn lower_len(&mut self, call: Call) -> Result<Value> {
        let v = &call.args[0];
        match v {
            Value::Tuple(i) | Value::List(i) | Value::Static(i) => Ok(Value::Int(i.len() as i128)),
            Value::Dict(i) => Ok(Value::Int(i.len() as i128)),
            Value::Neighbors(neighbors) => self.neighbors_attribute(neighbors, "size"),
            _ => {
                if let Some(b) = self.as_array(v)? {
                    let shape = self.attribute(&Value::Array(b), "shape")?;
                    return self.subscript(&shape, vec![Value::Int(0)]);
                }
                match self.runtime_type(v) {
                    Some(t) if t.is_tensor() => Ok(Value::Int(i128::from(t.shape()[0]))),
                    _ => self.call_host_or_refuse(call.obj, &call.name, &call.args, &call.kwargs),
                }
            }
        }
    }

    pub(super) fn lower_zip(&mut self, call: Call) -> Result<Value> {
        let lists = call.args.iter().map(|v| self.compile_time_items(v)).collect::<Result<Vec<_>>>()?;
        let n = lists.iter().map(Vec::len).min().unwrap_or(0);
        let row = |i: usize| Value::tuple(lists.iter().map(|l| l[i].clone()).collect());
        Ok(Value::list((0..n).map(row).collect()))
    }

    pub(super) fn lower_enumerate(&mut self, call: Call) -> Result<Value> {
        let start = match call.args.get(1).cloned().or_else(|| call.keyword("start")) {
            Some(Value::Int(i)) => i,
            _ => 0,
        };
        let items = self.compile_time_items(&call.args[0])?.into_iter().enumerate();
        Ok(Value::list(items.map(|(i, v)| Value::tuple(vec![Value::Int(i as i128 + start), v])).collect()))
    }

    pub(super) fn lower_reversed(&mut self, call: Call) -> Result<Value> {
        let mut items = self.compile_time_items(&call.args[0])?;
        items.reverse();
        Ok(Value::list(items))
    }

    /// `tuple` and `list`.
    pub(super) fn lower_sequence(&mut self, call: Call, of: fn(Vec<Value>) -> Value) -> Result<Value> {
        match call.args.first() {
            Some(v) => self.compile_time_items(v).map(of),
            None => Ok(of(Vec::new())),
        }
    }

    /// `sum`, `any` and `all`.
    pub(super) fn lower_fold(&mut self, call: Call) -> Result<Value> {
        let v = &call.args[0];
        if v.is_compile_time() && !matches!(v, Value::Obj(_)) {
            return self.call_host(call.obj, &call.args, &call.kwargs);
        }
        if self.runtime_type(v).is_some_and(|t| t.is_tensor())
            && let Some(r) = self.tensor_method(v, &call.name, &[], &[])?
        {
            return Ok(r);
        }
        let items = self.compile_time_items(v)?;
        self.fold_items(&call.name, &items)
    }

    /// Python's `sum`, `any` and `all` over items.
    fn fold_items(&mut self, name: &str, items: &[Value]) -> Result<Value> {
        let mut it = items.iter();
        let Some(first) = it.next() else {
            return Ok(if name == "sum" { Value::Int(0) } else { Value::Bool(name == "all") });
        };
        let mut acc = first.clone();
        for v in it {
            acc = match name {
                "sum" => self.binary_value(Operator::Add, &acc, v)?,
                _ => {
                    let a = self.rt(&acc)?;
                    let b = self.rt(v)?;
                    let op = match name {
                        "any" => "logical_or",
                        "all" => "logical_and",
                        other => other,
                    };
                    match arith::math(&mut self.b, &self.options, op, &[a, b]) {
                        Some(v) => Value::Rt(v?),
                        None => return self.err(Code::Type, format!("`{name}` does not support these values")),
                    }
                }
            };
        }
        Ok(acc)
    }

    /// `min` and `max`. With one argument, the result is that of its items or components.
    pub(super) fn lower_extremum(&mut self, mut call: Call) -> Result<Value> {
        let [v] = &call.args[..] else { return self.lower_function_of_numbers(call) };
        if let Some(items) = v.items().map(<[Value]>::to_vec) {
            call.args = items;
            return self.lower_extremum(call);
        }
        match self.tensor_method(v, &call.name, &[], &[])? {
            Some(v) => Ok(v),
            None => self.call_host_or_refuse(call.obj, &call.name, &call.args, &call.kwargs),
        }
    }

    pub(super) fn lower_getattr(&mut self, call: Call) -> Result<Value> {
        let found = self.named_attribute(&call)?;
        match (found, call.args.get(2)) {
            (Ok(v), _) => Ok(v),
            (Err(_), Some(default)) => Ok(default.clone()),
            (Err(e), None) => Err(e),
        }
    }

    pub(super) fn lower_hasattr(&mut self, call: Call) -> Result<Value> {
        Ok(Value::Bool(self.named_attribute(&call)?.is_ok()))
    }

    /// The attribute that a call names, or the error that there is none.
    fn named_attribute(&mut self, call: &Call) -> Result<Result<Value>> {
        let (Some(v), Some(Value::Str(attribute))) = (call.args.first(), call.args.get(1)) else {
            return self
                .err(Code::Type, format!("`{}` takes a value and an attribute name known at compile time", call.name));
        };
        Ok(self.attribute(v, attribute))
    }

    /// A value of the kernel is a vector, a struct or of a data type, and none of Python's numbers.
    pub(super) fn lower_isinstance(&mut self, call: Call) -> Result<Value> {
        let (v, ty) = (&call.args[0], &call.args[1]);
        if self.is_runtime(v) || matches!(v, Value::Members(m) if !m.is_array) {
            let wanted = match ty {
                Value::Tuple(items) => items.to_vec(),
                other => vec![other.clone()],
            };
            let have = match self.runtime_type(v) {
                None => self.try_rt(v)?.map(|value| self.b.ty(value).clone()),
                known => known,
            };
            for w in wanted {
                if let Value::Obj(o) = w {
                    let hit = match self.world.entity(o) {
                        Entity::Builtin(n) => match n.as_str() {
                            "Vector" | "Matrix" => have.as_ref().is_some_and(Type::is_tensor),
                            "Struct" => matches!(have, Some(Type::Struct(_))),
                            _ => false,
                        },
                        Entity::StructType { .. }
                        | Entity::TensorType(_)
                        | Entity::AnyTensorType(_)
                        | Entity::Dtype(_) => self.type_of_object(o, self.b.span).ok() == have,
                        _ => false,
                    };
                    if hit {
                        return Ok(Value::Bool(true));
                    }
                }
            }
            return Ok(Value::Bool(false));
        }
        self.call_host_or_refuse(call.obj, "isinstance", &call.args, &[])
    }
}
