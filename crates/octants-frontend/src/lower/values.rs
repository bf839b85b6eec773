//! Conversions between host objects, language values and IR values: the meaning of a captured object in a kernel, and
//! the materialization of a value at run time.

use std::rc::Rc;

use octants_diag::{Code, Diagnostic, Result, Span};
use octants_ir::{BufferId, Const, LocalId, Op, Scalar, Type, ValueId};

use super::Lowerer;
use crate::arith::type_name;
use crate::value::{Members, Value};
use crate::world::{ArgSpec, Capture, Entity, HostValue, Obj};

/// Whether an integer type has a value for `i`.
pub(super) fn holds(s: Scalar, i: i128) -> bool {
    let (low, high) = match (s.is_signed(), s.bits()) {
        (true, bits) => (-(1i128 << (bits - 1)), 1i128 << (bits - 1)),
        (false, bits) => (0, 1i128 << bits),
    };
    (low..high).contains(&i)
}

impl Lowerer<'_> {
    /// The value of a host object: numbers, strings, tuples and lists are decomposed, arrays become buffers when used.
    pub(super) fn lift(&mut self, obj: Obj) -> Value {
        if let Some(v) = self.lifted.get(&obj) {
            return v.clone();
        }
        let v = match self.world.entity(obj) {
            Entity::None => Value::None,
            Entity::Bool(b) => Value::Bool(b),
            Entity::Int(i) => Value::Int(i),
            Entity::Float(f) => Value::Float(f),
            Entity::Str(s) => Value::str(&s),
            Entity::Member(plain) => self.lift_member(obj, &plain),
            Entity::Tuple(items) => Value::tuple(items.into_iter().map(|o| self.lift(o)).collect()),
            Entity::List(items) => Value::list(items.into_iter().map(|o| self.lift(o)).collect()),
            Entity::Live(scalar) => self.live_number(obj, scalar),
            _ => Value::Obj(obj),
        };
        if let Value::Tuple(items) = &v
            && let Ok(Some(_)) = self.world.attribute(obj, "_fields")
        {
            self.named_tuples.push((items.clone(), obj));
        }
        if matches!(v, Value::Tuple(_) | Value::List(_)) && v.is_compile_time() {
            self.lifted.insert(obj, v.clone());
        }
        v
    }

    /// A number of a template argument that is read at launch, as a separate parameter. A `@qd.real_func` has no access
    /// to parameters and uses the current number.
    pub(super) fn live_number(&mut self, obj: Obj, scalar: Scalar) -> Value {
        let spec = ArgSpec::Value(scalar.into(), None);
        let found = match self.reached.get(&obj).cloned() {
            Some((index, path)) if self.sees_parameters() => self.argument(index, path, &spec).ok(),
            _ => None,
        };
        match found {
            Some(value) => {
                if let Value::Rt(id) = value {
                    self.live_numbers.push(id);
                }
                value
            }
            None => {
                let now = self.world.freeze(obj);
                self.lift(now)
            }
        }
    }

    /// The name of a number that is read at launch.
    pub(super) fn live_name(&self, v: &Value) -> Option<String> {
        let Value::Rt(id) = v else { return None };
        match self.b.body.inst(*id).op {
            Op::Param(i) if self.live_numbers.contains(id) => Some(self.params.get(i as usize)?.name.clone()),
            _ => None,
        }
    }

    /// The array that a value denotes. Creates the buffer of a field or captured ndarray at its first use.
    pub(super) fn as_array(&mut self, value: &Value) -> Result<Option<BufferId>> {
        Ok(match value {
            Value::Array(b) => Some(*b),
            Value::Obj(obj) => {
                if let Some(b) = self.buffer_of_object.get(obj) {
                    return Ok(Some(*b));
                }
                let id = match self.world.entity(*obj) {
                    Entity::Field(desc) => {
                        let is_sparse = desc.is_sparse;
                        let id = self.add_field(desc, *obj);
                        self.buffer_of_object.insert(*obj, id);
                        if is_sparse {
                            self.add_activation(id, *obj)?;
                        }
                        id
                    }
                    Entity::Ndarray(desc) => {
                        let from = self.reached.get(obj).cloned();
                        self.add_array("ndarray".into(), &desc, Capture::Object { obj: *obj, from }, Some(*obj))
                    }
                    // Whole, it is the field in memory.
                    Entity::ReorderedField { field, .. } => return self.as_array(&Value::Obj(field)),
                    Entity::Broken(why) => return Err(self.host_error(why)),
                    _ => return Ok(None),
                };
                self.buffer_of_object.insert(*obj, id);
                Some(id)
            }
            _ => None,
        })
    }

    /// A struct field as its members.
    pub(super) fn as_members(&mut self, value: &Value) -> Option<Rc<Members>> {
        match value {
            Value::Members(m) => Some(m.clone()),
            Value::Obj(obj) => match self.world.entity(*obj) {
                Entity::StructField(items) => {
                    let ty = self.world.attribute(*obj, "struct_type").ok().flatten();
                    let ty = ty.filter(|t| matches!(self.world.entity(*t), Entity::StructType { .. }));
                    let items = items.into_iter().map(|(n, o)| (n, self.lift(o))).collect();
                    Some(Rc::new(Members { ty, is_array: true, items }))
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// The object of a compile-time value, for calls into the outside.
    pub(super) fn to_host(&self, value: &Value) -> Option<Obj> {
        let all = |items: &[Value]| items.iter().map(|v| self.to_host(v)).collect::<Option<Vec<_>>>();
        Some(self.world.make(match value {
            Value::Obj(o) => return Some(*o),
            Value::None => HostValue::None,
            Value::Bool(b) => HostValue::Bool(*b),
            Value::Int(i) => HostValue::Int(*i),
            Value::Float(f) => HostValue::Float(*f),
            Value::Str(s) => HostValue::Str(s.to_string()),
            Value::Tuple(v) => HostValue::Tuple(all(v)?),
            Value::List(v) | Value::Static(v) => HostValue::List(all(v)?),
            Value::Range(bounds) => match **bounds {
                (Value::Int(a), Value::Int(b)) if value.is_compile_time() => {
                    HostValue::Tuple((a..b).map(|i| self.world.make(HostValue::Int(i))).collect())
                }
                _ => return None,
            },
            Value::Dict(d) => HostValue::Dict(
                d.iter().map(|(k, v)| Some((self.to_host(k)?, self.to_host(v)?))).collect::<Option<Vec<_>>>()?,
            ),
            Value::Slice(s) => {
                let part = |v: &Value| match v {
                    Value::None => None,
                    v => self.to_host(v),
                };
                HostValue::Slice(part(&s[0]), part(&s[1]), part(&s[2]))
            }
            Value::Array(b) => return self.buffer_objects[b.index()],
            _ => return None,
        }))
    }

    /// The value as one run-time value: constants become instructions, places are read.
    pub(super) fn rt(&mut self, value: &Value) -> Result<ValueId> {
        match self.try_rt(value)? {
            Some(v) => Ok(v),
            None => Err(self.not_a_value(value, "cannot be used as a value in a kernel")),
        }
    }

    /// An integer that is known at compile time: a constant, or a variable whose last assignment, in the same block of
    /// statements, is a constant.
    pub(super) fn known_integer(&self, value: &Value) -> Option<i128> {
        let local = match value {
            Value::Int(n) => return Some(*n),
            Value::Var(local) => *local,
            _ => return None,
        };
        let body = &self.b.body;
        let is_local = |v: ValueId| matches!(body.inst(v).op, Op::LocalAddr(l) if l == local);
        for &v in body.block(self.b.cursor()).iter().rev() {
            let op = &body.inst(v).op;
            match op {
                Op::Load(_) | Op::LocalAddr(_) => {}
                Op::Store(address, stored) if is_local(*address) => {
                    return match body.inst(*stored).op {
                        Op::Const(Const::Int(n)) => Some(n.into()),
                        _ => None,
                    };
                }
                _ => {
                    let mut may_change = op.blocks().into_iter().any(|b| body.locals_in(b).contains(&local));
                    op.for_each_operand(|u| may_change |= is_local(u));
                    if may_change {
                        return None;
                    }
                }
            }
        }
        None
    }

    /// A statement that names an attribute of a run-time value has no effect: the name is wrong, or a call is missing.
    pub(super) fn check_method_is_called(&mut self, unused: &Value) -> Result<()> {
        match unused {
            Value::Method(m) if self.runtime_type(&m.0).is_some() => {
                Err(self.not_a_value(unused, "cannot be used as a value in a kernel"))
            }
            _ => Ok(()),
        }
    }

    /// The error about something that is not a value of the kernel language. `why` ends the sentence.
    pub(super) fn not_a_value(&mut self, value: &Value, why: &str) -> Box<Diagnostic> {
        if let Value::Method(method) = value {
            let (base, name) = &**method;
            let text = format!("{} has no attribute `{name}`", self.describe(base));
            let error = Diagnostic::new(Code::Attribute, self.b.span, text);
            return if self.has_method(base, name) {
                error.with_hint(format!("call the method: `{name}()`"))
            } else {
                error
            };
        }
        Diagnostic::new(Code::Type, self.b.span, format!("{} {why}", self.describe(value)))
    }

    /// The error about an attribute that an object of Python does not have.
    pub(super) fn no_attribute(&self, obj: Obj, name: &str) -> Box<Diagnostic> {
        let what = self.world.type_name(obj);
        let own_name = match self.world.attribute(obj, "__name__").ok().flatten().map(|n| self.world.entity(n)) {
            Some(Entity::Str(own)) => own.to_string(),
            _ => String::new(),
        };
        let message = match (what.as_str(), self.world.entity(obj)) {
            ("module", _) if !own_name.is_empty() => format!("module '{own_name}' has no attribute '{name}'"),
            ("type", _) if !own_name.is_empty() => format!("class '{own_name}' has no attribute '{name}'"),
            (_, Entity::Broken(_) | Entity::Opaque) => format!("'{what}' object has no attribute '{name}'"),
            _ => format!("{what} has no attribute `{name}`"),
        };
        Diagnostic::new(Code::Attribute, self.b.span, message)
    }

    /// The error about an expression that is not part of the language.
    pub(super) fn unsupported(&self, what: &str, span: Span) -> Box<Diagnostic> {
        if matches!(what, "Complex" | "Bytes") {
            let text = format!("Invalid constant scalar data type: <class '{}'>", what.to_lowercase());
            return Diagnostic::new(Code::Type, span, text).with_hint("literals must be ints, floats or bools");
        }
        Diagnostic::new(Code::Syntax, span, format!("Unsupported node \"{what}\"")).with_hint(
            "kernels do not support this Python expression: compute it outside the kernel, or at compile time with \
             `qd.static(...)`",
        )
    }

    pub(super) fn try_rt(&mut self, value: &Value) -> Result<Option<ValueId>> {
        if let Some(plain) = self.plain_member(value) {
            return self.try_rt(&plain);
        }
        Ok(Some(match value {
            Value::Rt(v) => *v,
            Value::Var(local) => {
                let addr = self.b.local_addr(*local);
                self.b.load(addr)
            }
            Value::Place(p) => self.load_place(p.addr),
            Value::Bool(x) => self.b.int(i64::from(*x), Scalar::U1),
            Value::Int(i) => self.int_literal(*i)?,
            Value::Float(f) => {
                let s = self.options.default_fp;
                self.b.float(*f, s)
            }
            Value::List(items) if !items.is_empty() => self.make_tensor(items, None)?,
            Value::Tuple(items) if !items.is_empty() => self.make_tensor(items, None)?,
            Value::Members(m) if !m.is_array => self.struct_value(m)?,
            Value::Obj(obj) => match self.world.entity(*obj) {
                Entity::TensorConst { ty, values, .. } => self.tensor_constant(&ty, &values),
                Entity::StructConst { ty, members } => {
                    let items = members.into_iter().map(|(n, o)| (n, self.lift(o))).collect();
                    let members = Members { ty, is_array: false, items };
                    self.struct_value(&members)?
                }
                Entity::Int(i) => self.int_literal(i)?,
                Entity::Float(f) => self.b.float(f, self.options.default_fp),
                Entity::Bool(x) => self.b.int(i64::from(x), Scalar::U1),
                _ => return Ok(None),
            },
            _ => return Ok(None),
        }))
    }

    pub(super) fn int_literal(&mut self, i: i128) -> Result<ValueId> {
        let s = self.options.default_ip;
        // A negative literal of an unsigned default type is the bits that its operator makes of it.
        let is_small = s.is_unsigned() && i < 0 && i >= -(1i128 << (s.bits() - 1));
        if !holds(s, i) && !is_small {
            return self.err(
                Code::Type,
                format!(
                    "Integer literal {i} exceeded the range of default_ip: {s}, please specify the dtype via e.g. \
                     `qd.u64({i})` or set a different `default_ip` in `qd.init()`"
                ),
            );
        }
        Ok(self.b.push(Op::Const(Const::Int(i as i64)), Type::Scalar(s)))
    }

    /// The type a value has at run time, without reading it.
    pub(super) fn runtime_type(&mut self, value: &Value) -> Option<Type> {
        if let Some(plain) = self.plain_member(value) {
            return self.runtime_type(&plain);
        }
        Some(match value {
            Value::Rt(v) => self.b.ty(*v).clone(),
            Value::Var(l) => self.b.body.locals[l.index()].ty.clone(),
            Value::Place(p) => self.b.pointee(p.addr).clone(),
            Value::Bool(_) => Type::U1,
            Value::Int(_) => Type::Scalar(self.options.default_ip),
            Value::Float(_) => Type::Scalar(self.options.default_fp),
            Value::Obj(o) => match self.world.entity(*o) {
                Entity::TensorConst { ty, .. } => ty,
                _ => return None,
            },
            _ => return None,
        })
    }

    pub(super) fn is_runtime(&self, value: &Value) -> bool {
        matches!(value, Value::Rt(_) | Value::Var(_) | Value::Place(_))
    }

    /// A new local that holds `v`.
    pub(super) fn new_local(&mut self, name: &str, v: ValueId) -> LocalId {
        let ty = self.b.ty(v).clone();
        let local = self.b.body.add_local(name, ty);
        let addr = self.b.local_addr(local);
        self.b.store(addr, v);
        local
    }

    /// What an object of Python is, for messages.
    pub(super) fn describe_object(&self, obj: Obj) -> String {
        let name = self.world.type_name(obj);
        if name.starts_with("a ") { name } else { format!("an object of type {name}") }
    }

    /// A short name of a value's type, for messages.
    pub(super) fn describe(&mut self, value: &Value) -> String {
        match value {
            Value::None => "None".into(),
            Value::Bool(_) => "a bool".into(),
            Value::Int(_) => "an int".into(),
            Value::Float(_) => "a float".into(),
            Value::Str(_) | Value::Text(_) => "a string".into(),
            Value::Tuple(_) => "a tuple".into(),
            Value::List(_) | Value::Static(_) => "a list".into(),
            Value::Dict(_) => "a dict".into(),
            Value::Slice(_) => "a slice".into(),
            Value::Obj(o) => self.describe_object(*o),
            Value::View(v) => format!("a view of the array `{}`", self.buffers[v.array.index()].name),
            Value::Array(b) => format!("the array `{}`", self.buffers[b.index()].name),
            Value::Members(m) if m.is_array => "a struct field".into(),
            Value::Members(_) => "a struct".into(),
            Value::Dataclass(_) => "a dataclass".into(),
            Value::Range(_) | Value::Ndrange(_) | Value::Grouped(_) => "a loop range".into(),
            Value::Method(m) => format!("the method `{}`", m.1),
            Value::Tile(_) => "a tile operand (a slice of an array, an outer product or a product of tiles)".into(),
            Value::Element(e) => format!("an element of `{}`", self.kind_of(e.elements)),
            Value::Neighbors(_) => "a mesh relation".into(),
            v => self.runtime_type(v).map_or_else(|| "a value".into(), |t| type_name(&t)),
        }
    }
}
