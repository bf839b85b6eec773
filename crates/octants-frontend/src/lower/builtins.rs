//! Names the compiler knows: `static`, `range`, `ndrange`, casts, atomics, `print`, and Python's own functions.

use std::rc::Rc;

use octants_diag::{Code, Diagnostic, Result};
use octants_ir::{AtomicOp, LoopConfig, Op, Scalar, Type};

use super::Lowerer;
use crate::arith;
use crate::arith::type_name;
use crate::value::{Members, Ndrange, Value};
use crate::world::{Entity, FuncKind, Obj};

const NDRANGE_BOUNDS: &str = "Every argument of ndrange should be a scalar or a tuple/list like (begin, end)";

impl Lowerer<'_> {
    pub(super) fn call_builtin(
        &mut self,
        obj: Obj,
        name: &str,
        args: Vec<Value>,
        kwargs: Vec<(String, Value)>,
    ) -> Result<Value> {
        // `qd.Vector.normalized(v)`: a method, called of its class.
        if let (Some(method), Some((base, rest))) = (name.strip_prefix("tensor."), args.split_first()) {
            if args.iter().chain(kwargs.iter().map(|k| &k.1)).all(|v| self.to_host(v).is_some()) {
                return self.call_host(obj, &args, &kwargs);
            }
            let callee = Value::Method(Rc::new((base.clone(), method.to_string())));
            return self.call(&callee, rest.to_vec(), kwargs);
        }
        let keyword = |n: &str| kwargs.iter().find(|(k, _)| k == n).map(|(_, v)| v.clone());
        Ok(match name {
            "static" => return self.lower_static(args),
            "static_assert" => {
                let Some(cond) = args.first() else { return self.err(Code::Type, "static_assert takes a condition") };
                if !self.compile_time_truth(cond, "the condition of `static_assert`")? {
                    let message = match args.get(1) {
                        Some(Value::Str(s)) => format!("Static assertion failed: {s}"),
                        _ => "Static assertion failed".into(),
                    };
                    return self.err(Code::Compilation, message);
                }
                Value::None
            }
            "static_print" => {
                let mut line = Vec::new();
                for v in &args {
                    line.push(match self.to_host(v) {
                        Some(o) => self.world.format(o, "").map_err(|e| self.host_error(e))?,
                        None => format!("<{}>", self.describe(v)),
                    });
                }
                self.world.print(&line.join(" "));
                Value::None
            }
            "range" => self.lower_range(&args)?,
            "ndrange" => self.lower_ndrange(&args, keyword("axes"))?,
            "grouped" => match &args[..] {
                [Value::Static(items)] => Value::Static(items.clone()),
                [v] => {
                    if let Value::Obj(o) = v
                        && let Some(n) = self.host_ndrange(*o)?
                    {
                        return Ok(Value::Grouped(Rc::new(Value::Ndrange(Rc::new(n)))));
                    }
                    Value::Grouped(Rc::new(v.clone()))
                }
                _ => return self.err(Code::Syntax, "`qd.grouped` takes one argument"),
            },
            "loop_config" => return self.lower_loop_config(&args, &kwargs),
            "print" => {
                self.lower_print(&args, &kwargs)?;
                Value::None
            }
            "Vector" | "Matrix" => return self.lower_matrix(&args, &kwargs),
            "Struct" => {
                let items = match args.first() {
                    Some(v) => self.member_values(v)?,
                    None => kwargs,
                };
                let m = Members { ty: None, is_array: false, items };
                Value::Rt(self.struct_value(&m)?)
            }
            "cast" | "bit_cast" => {
                let [v, ty] = &args[..] else {
                    return self.err(Code::Type, format!("`{name}` takes a value and a type"));
                };
                let s = self.dtype_of(ty)?;
                if name == "cast" {
                    Value::Rt(self.cast_value(v, s)?)
                } else {
                    let v = self.rt(v)?;
                    Value::Rt(arith::bit_cast(&mut self.b, v, s)?)
                }
            }
            "int" | "float" | "bool" => {
                let s = match name {
                    "int" => self.options.default_ip,
                    "float" => self.options.default_fp,
                    _ => Scalar::U1,
                };
                let [v] = &args[..] else { return self.err(Code::Type, format!("`{name}()` takes one argument")) };
                if v.is_compile_time() && !matches!(v, Value::Obj(_)) {
                    return self.call_host(obj, &args, &kwargs);
                }
                Value::Rt(self.cast_value(v, s)?)
            }
            "random" => {
                let s = match args.first().cloned().or_else(|| keyword("dtype")) {
                    Some(v) => self.dtype_of(&v)?,
                    None => self.options.default_fp,
                };
                Value::Rt(self.b.push(Op::Random, Type::Scalar(s)))
            }
            "zero" | "one" => {
                let [v] = &args[..] else { return self.err(Code::Type, format!("`{name}` takes one argument")) };
                self.constant_like(v, i64::from(name == "one"))?
            }
            "atomic_cas" => {
                let [x, expected, desired] = &args[..] else {
                    return self.err(Code::Type, "`atomic_cas` takes a place, the expected and the desired value");
                };
                let Some(place) = self.place(x) else { return self.not_a_place(x) };
                let ty = self.b.pointee(place.addr).clone();
                let e = self.value_for(expected, &ty)?;
                let d = self.value_for(desired, &ty)?;
                Value::Rt(self.b.push(Op::AtomicCas(place.addr, e, d), ty))
            }
            "get_addr" => {
                let [array, index] = &args[..] else {
                    return self.err(Code::Type, "`get_addr` takes a field or an array, and the indices of an element");
                };
                let Some(buffer) = self.as_array(array)? else {
                    let what = self.describe(array);
                    return self.err(Code::Type, format!("`get_addr` takes a field or an array, not {what}"));
                };
                let element = self.element(buffer, std::slice::from_ref(index))?;
                let Some(place) = self.place(&element) else { return self.not_a_place(array) };
                Value::Rt(self.b.push(Op::AddressBits(place.addr), Scalar::U64.into()))
            }
            n if n.starts_with("atomic_") => return self.lower_atomic(n, &args),
            "volatile_load" => {
                let [x] = &args[..] else {
                    return self.err(Code::Type, "`volatile_load` takes an element of a field or an array");
                };
                let Some(place) = self.place(x).filter(|place| place.global) else {
                    let what = self.describe(x);
                    return self.err(
                        Code::Type,
                        format!("`volatile_load` takes an element of a field or an array, not {what}"),
                    );
                };
                let ty = self.b.pointee(place.addr).clone();
                Value::Rt(self.b.push(Op::VolatileLoad(place.addr), ty))
            }
            "len" => {
                let [v] = &args[..] else { return self.err(Code::Type, "`len` takes one argument") };
                match v {
                    Value::Tuple(i) | Value::List(i) | Value::Static(i) => Value::Int(i.len() as i128),
                    Value::Dict(i) => Value::Int(i.len() as i128),
                    _ => {
                        if let Some(b) = self.as_array(v)? {
                            let shape = self.attribute(&Value::Array(b), "shape")?;
                            return self.subscript(&shape, vec![Value::Int(0)]);
                        }
                        match self.runtime_type(v) {
                            Some(t) if t.is_tensor() => Value::Int(i128::from(t.shape()[0])),
                            _ => return self.call_host_or_refuse(obj, name, &args, &kwargs),
                        }
                    }
                }
            }
            "zip" => {
                let lists = args.iter().map(|v| self.compile_time_items(v)).collect::<Result<Vec<_>>>()?;
                let n = lists.iter().map(Vec::len).min().unwrap_or(0);
                Value::list((0..n).map(|i| Value::tuple(lists.iter().map(|l| l[i].clone()).collect())).collect())
            }
            "enumerate" => {
                let Some(first) = args.first() else { return self.err(Code::Type, "`enumerate` takes an iterable") };
                let start = match args.get(1).cloned().or_else(|| keyword("start")) {
                    Some(Value::Int(i)) => i,
                    _ => 0,
                };
                let items = self.compile_time_items(first)?;
                Value::list(
                    items
                        .into_iter()
                        .enumerate()
                        .map(|(i, v)| Value::tuple(vec![Value::Int(i as i128 + start), v]))
                        .collect(),
                )
            }
            "reversed" => match &args[..] {
                [v] => {
                    let mut items = self.compile_time_items(v)?;
                    items.reverse();
                    Value::list(items)
                }
                _ => return self.err(Code::Type, "`reversed` takes one argument"),
            },
            "tuple" | "list" => match &args[..] {
                [] if name == "list" => Value::list(Vec::new()),
                [] => Value::tuple(Vec::new()),
                [v] => {
                    let items = self.compile_time_items(v)?;
                    if name == "list" { Value::list(items) } else { Value::tuple(items) }
                }
                _ => return self.err(Code::Type, format!("`{name}` takes one argument")),
            },
            "getattr" | "hasattr" => {
                let (Some(v), Some(Value::Str(attr))) = (args.first(), args.get(1)) else {
                    return self.err(Code::Type, format!("`{name}` takes a value and a constant name"));
                };
                let attr = attr.to_string();
                let found = self.attribute(v, &attr);
                if name == "hasattr" {
                    Value::Bool(found.is_ok())
                } else {
                    match (found, args.get(2)) {
                        (Ok(v), _) => v,
                        (Err(_), Some(default)) => default.clone(),
                        (Err(e), None) => return Err(e),
                    }
                }
            }
            "isinstance" => return self.lower_isinstance(obj, &args),
            "sum" | "any" | "all" => match &args[..] {
                [v] => {
                    if v.is_compile_time() && !matches!(v, Value::Obj(_)) {
                        return self.call_host(obj, &args, &kwargs);
                    }
                    if self.runtime_type(v).is_some_and(|t| t.is_tensor())
                        && let Some(r) = self.tensor_method(v, name, &[], &[])?
                    {
                        return Ok(r);
                    }
                    let items = self.compile_time_items(v)?;
                    self.fold_items(name, &items)?
                }
                _ => return self.err(Code::Type, format!("`{name}` takes one argument")),
            },
            "min" | "max" if args.len() == 1 && args[0].items().is_some() => {
                let items = args[0].items().map(<[Value]>::to_vec).unwrap_or_default();
                return self.call_builtin(obj, name, items, kwargs);
            }
            "min" | "max" if args.len() == 1 => match self.tensor_method(&args[0], name, &[], &[])? {
                Some(v) => v,
                None => return self.call_host_or_refuse(obj, name, &args, &kwargs),
            },
            // Hints that change nothing on the back ends there are.
            "block_local" | "cache_read_only" | "no_activate" | "mesh_local" | "block_dim_adaptive" => Value::None,
            "stop_grad" => match args.first() {
                Some(v) => self.stop_gradient(v)?,
                None => return self.err(Code::Type, "`stop_grad` takes a value or a field"),
            },
            "assume_in_range" | "loop_unique" => match args.first() {
                Some(v) => {
                    let v = self.rt(v)?;
                    Value::Rt(v)
                }
                None => return self.err(Code::Type, format!("`{name}` takes a value")),
            },
            "stream_parallel" => {
                return self.err(Code::Syntax, "write `with qd.stream_parallel():` at the top level of the kernel");
            }
            _ => return self.math_builtin(obj, name, args, kwargs),
        })
    }

    fn math_builtin(&mut self, obj: Obj, name: &str, args: Vec<Value>, kwargs: Vec<(String, Value)>) -> Result<Value> {
        let plain = |v: &Value| {
            matches!(
                v,
                Value::Int(_)
                    | Value::Float(_)
                    | Value::Bool(_)
                    | Value::Str(_)
                    | Value::None
                    | Value::Tuple(_)
                    | Value::List(_)
            ) && v.is_compile_time()
        };
        let numbers = args.iter().chain(kwargs.iter().map(|k| &k.1)).all(plain);
        if numbers
            && !args.is_empty()
            && let Ok(v) = self.call_host(obj, &args, &kwargs)
        {
            return Ok(v);
        }
        // A type as the last argument (`qd.round(x, qd.i32)`) converts the result.
        let mut args = args;
        let mut convert = None;
        for (key, v) in &kwargs {
            if matches!(key.as_str(), "dtype" | "dt") {
                convert = Some(self.dtype_of(v)?);
            } else {
                args.push(v.clone());
            }
        }
        if let Some(Value::Obj(o)) = args.last()
            && (matches!(self.world.entity(*o), Entity::Dtype(_))
                || matches!(self.world.entity(*o), Entity::Builtin(ref n) if n == "int" || n == "float"))
        {
            let ty = args.pop().unwrap_or(Value::None);
            convert = Some(self.dtype_of(&ty)?);
        }
        let mut values = Vec::new();
        for v in &args {
            match v.items() {
                Some(items) if !items.is_empty() => values.push(self.make_tensor(items, None)?),
                _ => match self.try_rt(v)? {
                    Some(v) => values.push(v),
                    None => return self.call_host_or_refuse(obj, name, &args, &kwargs),
                },
            }
        }
        match arith::math(&mut self.b, &self.options, name, &values) {
            Some(v) => {
                let v = v?;
                let v = match convert {
                    Some(s) => arith::cast(&mut self.b, v, s)?,
                    None => v,
                };
                Ok(match self.b.ty(v).clone() {
                    Type::Struct(s) => {
                        Value::tuple((0..s.members.len() as u32).map(|i| Value::Rt(self.b.extract(v, i))).collect())
                    }
                    _ => Value::Rt(v),
                })
            }
            None => self.call_host_or_refuse(obj, name, &args, &kwargs),
        }
    }

    fn call_host_or_refuse(
        &mut self,
        obj: Obj,
        name: &str,
        args: &[Value],
        kwargs: &[(String, Value)],
    ) -> Result<Value> {
        if args.iter().chain(kwargs.iter().map(|k| &k.1)).all(|v| self.to_host(v).is_some()) {
            return self.call_host(obj, args, kwargs);
        }
        Err(Diagnostic::new(
            Code::Type,
            self.b.span,
            format!("`{name}` cannot be called with these values in a kernel"),
        )
        .with_hint("it works on values known at compile time only"))
    }

    fn lower_static(&mut self, args: Vec<Value>) -> Result<Value> {
        let mut out = Vec::new();
        for v in args {
            out.push(match v {
                Value::Range(_) | Value::Ndrange(_) | Value::Grouped(_) => {
                    Value::Static(Rc::new(self.compile_time_items(&v)?))
                }
                Value::Rt(_) | Value::Var(_) | Value::Place(_) | Value::Text(_) => {
                    let mut what = self.describe(&v);
                    if let Value::Rt(id) = v
                        && let Op::Param(_) = self.b.body.inst(id).op
                    {
                        what = format!("a runtime kernel argument ({what})");
                    }
                    if self.runtime_type(&v).is_some_and(|t| t.is_tensor()) || matches!(v, Value::Place(_)) {
                        // An alias of an element or a vector.
                        v
                    } else {
                        return Err(Diagnostic::new(
                            Code::Compilation,
                            self.b.span,
                            format!("Input to qd.static must be compile-time constants or global pointers, instead of {what}"),
                        )
                        .with_hint("the value is known only at run time: drop `qd.static`, or make it a `qd.Template` argument"));
                    }
                }
                v => v,
            });
        }
        match out.len() {
            0 => self.err(Code::Type, "`qd.static` takes at least one argument"),
            1 => Ok(out.remove(0)),
            _ => Ok(Value::tuple(out)),
        }
    }

    fn lower_range(&mut self, args: &[Value]) -> Result<Value> {
        if self.static_depth > 0
            && args.len() == 3
            && let [Value::Int(a), Value::Int(b), Value::Int(step)] = args
        {
            let (a, b, step) = (*a, *b, *step);
            if step == 0 {
                return self.err(Code::Value, "range() arg 3 must not be zero");
            }
            let mut items = Vec::new();
            let mut i = a;
            while (step > 0 && i < b) || (step < 0 && i > b) {
                items.push(Value::Int(i));
                i += step;
            }
            return Ok(Value::Static(Rc::new(items)));
        }
        match args {
            [end] => Ok(Value::Range(Rc::new((Value::Int(0), end.clone())))),
            [begin, end] => Ok(Value::Range(Rc::new((begin.clone(), end.clone())))),
            _ => Err(Diagnostic::new(
                Code::Syntax,
                self.b.span,
                format!("Range should have 1 or 2 arguments, found {}", args.len()),
            )
            .with_hint("a step is possible in `qd.static(range(...))`, or multiply the index in the loop")),
        }
    }

    fn lower_ndrange(&mut self, args: &[Value], axes: Option<Value>) -> Result<Value> {
        let mut dims = Vec::new();
        for a in args {
            let as_pair = match a {
                Value::Tuple(_) | Value::List(_) => Some(self.unpack(a)?),
                Value::Range(r) => Some(vec![r.0.clone(), r.1.clone()]),
                _ => None,
            };
            match as_pair {
                Some(pair) => match &pair[..] {
                    [b, e] => dims.push((b.clone(), e.clone())),
                    _ => return self.err(Code::Syntax, NDRANGE_BOUNDS),
                },
                None => {
                    if let Some(Type::Vector(_, n)) = self.runtime_type(a) {
                        if n != 2 {
                            return self.err(Code::Syntax, NDRANGE_BOUNDS);
                        }
                        let pair = self.unpack(a)?;
                        dims.push((pair[0].clone(), pair[1].clone()));
                        continue;
                    }
                    dims.push((Value::Int(0), a.clone()));
                }
            }
        }
        for (b, e) in &dims {
            for v in [b, e] {
                if let Value::Float(_) = v {
                    return self.err(
                        Code::Type,
                        "Every argument of ndrange should be an integer scalar or a tuple/list of (int, int)",
                    );
                }
            }
        }
        let n = dims.len();
        let order = match axes {
            None | Some(Value::None) => (0..n).collect(),
            Some(v) => {
                let mut order = Vec::new();
                for item in self.unpack(&v)? {
                    match item {
                        Value::Int(i) => order.push(i),
                        _ => return self.err(Code::Type, "`axes` of qd.ndrange must be integers"),
                    }
                }
                let mut sorted = order.clone();
                sorted.sort_unstable();
                if sorted != (0..n as i128).collect::<Vec<_>>() {
                    return self.err(Code::Syntax, format!("`axes` of qd.ndrange must be a permutation of range({n})"));
                }
                order.into_iter().map(|i| i as usize).collect()
            }
        };
        Ok(Value::Ndrange(Rc::new(Ndrange { dims, order })))
    }

    fn lower_loop_config(&mut self, args: &[Value], kwargs: &[(String, Value)]) -> Result<Value> {
        if !args.is_empty() {
            return self.err(Code::Syntax, "`qd.loop_config` takes keyword arguments only");
        }
        let mut config = self.pending_config.take().unwrap_or_default();
        for (name, v) in kwargs {
            let number = |l: &Self| match v {
                Value::Int(i) if *i >= 0 && *i <= i128::from(u32::MAX) => Ok(*i as u32),
                Value::None => Ok(0),
                _ => l.err(Code::Type, format!("`{name}` of loop_config must be a non-negative integer")),
            };
            match name.as_str() {
                "serialize" => config.serialize = self.compile_time_truth(v, "`serialize` of loop_config")?,
                "block_dim" => config.block_dim = Some(number(self)?).filter(|n| *n > 0),
                "parallelize" => config.num_threads = Some(number(self)?).filter(|n| *n > 0),
                "name" => {
                    config.name = match v {
                        Value::Str(s) => Some(s.to_string()),
                        Value::None => None,
                        _ => return self.err(Code::Type, "`name` of loop_config must be a string"),
                    }
                }
                "block_dim_adaptive" | "bit_vectorize" => {}
                other => return self.err(Code::Syntax, format!("`qd.loop_config` has no option `{other}`")),
            }
        }
        self.pending_config = Some(LoopConfig { group: None, ..config });
        Ok(Value::None)
    }

    fn not_a_place<T>(&mut self, v: &Value) -> Result<T> {
        let what = self.describe(v);
        Err(Diagnostic::new(Code::Type, self.b.span, format!("cannot use {what} as the target of an atomic operation"))
            .with_hint("the first argument must be an element of an array or field, or a variable"))
    }

    fn lower_atomic(&mut self, name: &str, args: &[Value]) -> Result<Value> {
        let op = match name {
            "atomic_add" => AtomicOp::Add,
            "atomic_sub" => AtomicOp::Sub,
            "atomic_mul" => AtomicOp::Mul,
            "atomic_min" => AtomicOp::Min,
            "atomic_max" => AtomicOp::Max,
            "atomic_and" => AtomicOp::And,
            "atomic_or" => AtomicOp::Or,
            "atomic_xor" => AtomicOp::Xor,
            "atomic_exchange" => AtomicOp::Exchange,
            _ => return self.err(Code::Type, format!("`{name}` is not an operation")),
        };
        let [x, y] = args else { return self.err(Code::Type, format!("`{name}` takes a place and a value")) };
        let Some(place) = self.place(x) else { return self.not_a_place(x) };
        let ty = self.b.pointee(place.addr).clone();
        let Some(scalar) = ty.scalar() else {
            return self.err(Code::Type, format!("`{name}` on a value of type {ty}", ty = type_name(&ty)));
        };
        if matches!(op, AtomicOp::And | AtomicOp::Or | AtomicOp::Xor) && scalar.is_float() {
            return self.err(Code::Type, format!("`{name}` takes integers, not {ty}", ty = type_name(&ty)));
        }
        let v = self.operand_for(y, &ty)?;
        let v = arith::assign_cast(&mut self.b, v, &ty)?;
        if place.global {
            return Ok(Value::Rt(self.b.push(Op::Atomic(op, place.addr, v), ty)));
        }
        let old = self.local_update(place, |l, old| {
            let math = match op {
                AtomicOp::Add => "add",
                AtomicOp::Sub => "sub",
                AtomicOp::Mul => "mul",
                AtomicOp::Min => "min",
                AtomicOp::Max => "max",
                AtomicOp::And => "bit_and",
                AtomicOp::Or => "bit_or",
                AtomicOp::Xor => "bit_xor",
                AtomicOp::Exchange => return Ok(v),
            };
            match arith::math(&mut l.b, &l.options, math, &[old, v]) {
                Some(v) => v,
                None => l.err(Code::Type, format!("`{name}` on a value of type {ty}", ty = type_name(&ty))),
            }
        })?;
        Ok(Value::Rt(old))
    }

    fn lower_isinstance(&mut self, obj: Obj, args: &[Value]) -> Result<Value> {
        let [v, ty] = args else { return self.err(Code::Type, "`isinstance` takes a value and a type") };
        if self.is_runtime(v) {
            let wanted = match ty {
                Value::Tuple(items) => items.to_vec(),
                other => vec![other.clone()],
            };
            let have = self.runtime_type(v);
            for w in wanted {
                if let Value::Obj(o) = w {
                    let hit = match self.world.entity(o) {
                        Entity::Builtin(n) => match n.as_str() {
                            "Vector" | "Matrix" => have.as_ref().is_some_and(Type::is_tensor),
                            "int" => have.as_ref().is_some_and(|t| matches!(t, Type::Scalar(s) if s.is_int())),
                            "float" => have.as_ref().is_some_and(|t| matches!(t, Type::Scalar(s) if s.is_float())),
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
        self.call_host_or_refuse(obj, "isinstance", args, &[])
    }

    /// A method of a struct value: `self` by reference, so that it can change its members.
    pub(super) fn call_method_by_reference(
        &mut self,
        method: Obj,
        kind: FuncKind,
        args: Vec<Value>,
        kwargs: Vec<(String, Value)>,
    ) -> Result<Value> {
        self.self_by_reference = true;
        let result = self.call_function(method, kind, args, kwargs);
        self.self_by_reference = false;
        result
    }
}
