//! Arguments and results of IR functions. Run-time values and addresses become parameters, and run-time values become
//! the result. The rest is part of the key that the function is compiled for. A tuple, a list or a scattered struct is
//! passed item by item.

use std::rc::Rc;
use std::sync::Arc;

use octants_diag::{Code, Diagnostic, Result};
use octants_ir::{Op, StructType, Type, ValueId};

use super::Lowerer;
use super::choose_form::is_fixed;
use crate::value::{Members, MeshElement, Place, Value};
use crate::world::{ArgSpec, FuncKind, FuncParam, Obj};

/// How one argument is passed. Two calls with the same keys call the same code.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum ParamKey {
    Value(Type),
    /// An address; the flag says whether it may be shared by threads.
    Reference(Type, bool),
    /// A compile-time value, by its debug text: host objects show as their handles.
    Fixed(String),
    Tuple(Vec<ParamKey>),
    List(Vec<ParamKey>),
    /// Keys are compile-time values.
    Dict(Vec<(String, ParamKey)>),
    Members(Option<Obj>, Vec<(String, ParamKey)>),
    /// An element of a mesh, by its position.
    Element(Obj, Type),
    /// A dataclass argument of a `@qd.real_func`: its by-value members follow as parameters. Other functions borrow
    /// those that they read.
    Dataclass(String, Vec<((u32, Vec<String>), Type)>),
}

/// How a call's value is assembled from the IR function's result.
#[derive(Debug, Clone)]
pub(super) enum ResultShape {
    /// The whole result.
    Whole,
    /// A member of the result.
    Part(u32),
    /// Known at compile time.
    Fixed(Value),
    Tuple(Vec<ResultShape>),
    List(Vec<ResultShape>),
    /// Keys are compile-time values.
    Dict(Vec<(Value, ResultShape)>),
    /// An element of a mesh, and the location of its position.
    Element(Obj, Box<ResultShape>),
}

impl ResultShape {
    /// A tuple's items if the result is an annotated tuple, or else one value.
    pub fn of_type(ty: &Type) -> ResultShape {
        match ty {
            Type::Struct(s) if s.name == "tuple" => {
                ResultShape::Tuple((0..s.members.len() as u32).map(ResultShape::Part).collect())
            }
            ty => ResultShape::of_value(ty),
        }
    }

    /// One value, or none.
    pub fn of_value(ty: &Type) -> ResultShape {
        if *ty == Type::Unit { ResultShape::Fixed(Value::None) } else { ResultShape::Whole }
    }
}

/// Operands of a call and their types.
#[derive(Default)]
pub(super) struct Passed {
    pub operands: Vec<ValueId>,
    pub types: Vec<Type>,
}

impl ResultShape {
    /// The one part is the whole result.
    fn set_whole(&mut self) {
        match self {
            ResultShape::Part(_) => *self = ResultShape::Whole,
            ResultShape::Tuple(items) | ResultShape::List(items) => items.iter_mut().for_each(Self::set_whole),
            ResultShape::Dict(items) => items.iter_mut().for_each(|(_, s)| s.set_whole()),
            ResultShape::Element(_, position) => position.set_whole(),
            ResultShape::Whole | ResultShape::Fixed(_) => {}
        }
    }
}

impl Lowerer<'_> {
    pub(super) fn pass_argument(
        &mut self,
        param: &FuncParam,
        v: &Value,
        by_reference: bool,
        kind: FuncKind,
        out: &mut Passed,
    ) -> Result<ParamKey> {
        if let Some(v) = self.annotated_argument(param, v, kind)? {
            return Ok(self.pass_operand(v, out));
        }
        if let (Value::Dataclass(_), FuncKind::Func | FuncKind::Plain) = (v, kind) {
            return Ok(ParamKey::Fixed(format!("{v:?}")));
        }
        self.pass(&param.name, v, !by_reference, out)
    }

    /// Ends a function with a single `return`; `None` if it returns something that cannot be decomposed.
    pub(super) fn return_parts(&mut self, v: &Value) -> Result<Option<(Type, ResultShape)>> {
        let mut parts = Vec::new();
        let Some(mut shape) = self.take_apart(v, &mut parts)? else { return Ok(None) };
        let result = match parts[..] {
            [] => None,
            [one] => {
                shape.set_whole();
                Some(one)
            }
            _ => {
                let member = |(i, v): (usize, &ValueId)| (i.to_string(), self.b.ty(*v).clone());
                let members = parts.iter().enumerate().map(member).collect();
                let ty = Type::Struct(Arc::new(StructType { name: "results".into(), members }));
                Some(self.b.push(Op::MakeStruct(parts), ty))
            }
        };
        let ty = result.map_or(Type::Unit, |v| self.b.ty(v).clone());
        if result.is_some() {
            self.b.push(Op::Return(result), Type::Unit);
        }
        Ok(Some((ty, shape)))
    }

    fn take_apart(&mut self, v: &Value, parts: &mut Vec<ValueId>) -> Result<Option<ResultShape>> {
        if is_fixed(v) {
            return Ok(Some(ResultShape::Fixed(v.clone())));
        }
        Ok(Some(match v {
            Value::Tuple(items) | Value::List(items) => {
                let mut shapes = Vec::new();
                for item in items.iter() {
                    let Some(shape) = self.take_apart(item, parts)? else { return Ok(None) };
                    shapes.push(shape);
                }
                if matches!(v, Value::Tuple(_)) { ResultShape::Tuple(shapes) } else { ResultShape::List(shapes) }
            }
            Value::Dict(items) => {
                let mut shapes = Vec::new();
                for (k, item) in items.iter() {
                    let Some(shape) = self.take_apart(item, parts)? else { return Ok(None) };
                    shapes.push((k.clone(), shape));
                }
                ResultShape::Dict(shapes)
            }
            Value::Element(e) => match self.take_apart(&e.position, parts)? {
                Some(position) => ResultShape::Element(e.elements, Box::new(position)),
                None => return Ok(None),
            },
            Value::Rt(_) | Value::Var(_) | Value::Place(_) | Value::Members(_) => match self.try_rt(v)? {
                Some(part) if *self.b.ty(part) != Type::Unit => {
                    parts.push(part);
                    ResultShape::Part(parts.len() as u32 - 1)
                }
                _ => return Ok(None),
            },
            _ => return Ok(None),
        }))
    }

    /// The result of a call.
    pub(super) fn read_result(&mut self, shape: &ResultShape, result: ValueId) -> Value {
        match shape {
            ResultShape::Whole => Value::Rt(result),
            ResultShape::Part(i) => Value::Rt(self.b.extract(result, *i)),
            ResultShape::Fixed(v) => v.clone(),
            ResultShape::Tuple(items) => Value::tuple(items.iter().map(|s| self.read_result(s, result)).collect()),
            ResultShape::List(items) => Value::list(items.iter().map(|s| self.read_result(s, result)).collect()),
            ResultShape::Dict(items) => {
                Value::Dict(Rc::new(items.iter().map(|(k, s)| (k.clone(), self.read_result(s, result))).collect()))
            }
            ResultShape::Element(elements, position) => {
                let position = self.read_result(position, result);
                Value::Element(Rc::new(MeshElement { elements: *elements, position }))
            }
        }
    }

    fn pass_operand(&mut self, v: ValueId, out: &mut Passed) -> ParamKey {
        let ty = self.b.ty(v).clone();
        out.operands.push(v);
        out.types.push(ty.clone());
        ParamKey::Value(ty)
    }

    fn pass(&mut self, name: &str, v: &Value, by_value: bool, out: &mut Passed) -> Result<ParamKey> {
        match v {
            Value::Rt(v) => Ok(self.pass_operand(*v, out)),
            Value::Var(_) | Value::Place(_) if by_value => {
                let v = self.rt(v)?;
                Ok(self.pass_operand(v, out))
            }
            Value::Var(_) | Value::Place(_) => {
                let mut place = self.place(v).expect("compiler bug: a variable without a place");
                place.global |= self.is_shared(place.addr);
                let ParamKey::Value(ty) = self.pass_operand(place.addr, out) else {
                    panic!("compiler bug: an operand is passed as something else");
                };
                Ok(ParamKey::Reference(ty, place.global))
            }
            Value::Members(m) if !m.is_array && by_value => {
                let v = self.struct_value(m)?;
                Ok(self.pass_operand(v, out))
            }
            Value::Members(m) if !m.is_array => {
                let items = m
                    .items
                    .iter()
                    .map(|(n, v)| Ok((n.clone(), self.pass(name, v, false, out)?)))
                    .collect::<Result<Vec<_>>>()?;
                Ok(ParamKey::Members(m.ty, items))
            }
            Value::Tuple(items) | Value::List(items) if !v.is_compile_time() => {
                let keys = items.iter().map(|i| self.pass(name, i, by_value, out)).collect::<Result<Vec<_>>>()?;
                Ok(if matches!(v, Value::Tuple(_)) { ParamKey::Tuple(keys) } else { ParamKey::List(keys) })
            }
            Value::Dict(items) if !v.is_compile_time() => {
                let keys = items
                    .iter()
                    .map(|(k, v)| Ok((format!("{k:?}"), self.pass(name, v, by_value, out)?)))
                    .collect::<Result<Vec<_>>>()?;
                Ok(ParamKey::Dict(keys))
            }
            Value::Element(e) => {
                let position = self.rt(&e.position)?;
                self.pass_operand(position, out);
                Ok(ParamKey::Element(e.elements, self.b.ty(position).clone()))
            }
            Value::Dataclass(d) => {
                let mut leaves = Vec::new();
                value_members(&d.path, &d.members, &mut leaves);
                let mut members = Vec::new();
                for (path, spec) in leaves {
                    let v = self.argument(d.index, path.clone(), &spec)?;
                    let v = self.rt(&v)?;
                    let ty = self.b.ty(v).clone();
                    members.push(((d.index, path), ty));
                    self.pass_operand(v, out);
                }
                Ok(ParamKey::Dataclass(format!("{:?}", (d.index, &d.path)), members))
            }
            Value::Text(_)
            | Value::Slice(_)
            | Value::Range(_)
            | Value::Ndrange(_)
            | Value::Grouped(_)
            | Value::Method(_)
            | Value::Tile(_)
            | Value::Neighbors(_)
                if !v.is_compile_time() =>
            {
                let what = self.describe(v);
                Err(Diagnostic::new(
                    Code::Type,
                    self.b.span,
                    format!("argument `{name}` cannot be {what} in a function that is compiled separately"),
                )
                .with_hint("a `@qd.real_func`, or a function that returns inside a branch or loop, is compiled apart"))
            }
            _ => Ok(ParamKey::Fixed(format!("{v:?}"))),
        }
    }

    /// The address is of a variable that all iterations of the loop around share.
    fn is_shared(&self, mut addr: ValueId) -> bool {
        loop {
            match self.b.body.inst(addr).op {
                Op::ElementAddr(base, _) | Op::MemberAddr(base, _) => addr = base,
                Op::LocalAddr(l) => return self.in_kernel_body && l.index() < self.shared_locals,
                _ => return false,
            }
        }
    }

    /// The parameter inside of the function; `next` counts the function's operands.
    pub(super) fn receive(&mut self, key: &ParamKey, v: &Value, next: &mut u32) -> Result<Value> {
        let mut operand = |s: &mut Self, ty: &Type| {
            let rt = s.b.push(Op::Param(*next), ty.clone());
            *next += 1;
            rt
        };
        Ok(match (key, v) {
            (ParamKey::Value(ty), _) => Value::Rt(operand(self, ty)),
            (ParamKey::Reference(ty, global), _) => Value::Place(Place { addr: operand(self, ty), global: *global }),
            (ParamKey::Tuple(keys), Value::Tuple(items)) => Value::tuple(self.receive_all(keys, items, next)?),
            (ParamKey::List(keys), Value::List(items)) => Value::list(self.receive_all(keys, items, next)?),
            (ParamKey::Dict(keys), Value::Dict(items)) => {
                let mut out = Vec::new();
                for ((_, key), (k, v)) in keys.iter().zip(items.iter()) {
                    out.push((k.clone(), self.receive(key, v, next)?));
                }
                Value::Dict(Rc::new(out))
            }
            (ParamKey::Members(ty, keys), Value::Members(m)) => {
                let mut items = Vec::new();
                for ((name, key), (_, v)) in keys.iter().zip(&m.items) {
                    items.push((name.clone(), self.receive(key, v, next)?));
                }
                Value::Members(Rc::new(Members { ty: *ty, is_array: false, items }))
            }
            (ParamKey::Dataclass(_, members), _) => {
                for (path, ty) in members {
                    let rt = operand(self, ty);
                    self.frame().bound_params.insert(path.clone(), rt);
                }
                v.clone()
            }
            (ParamKey::Element(elements, ty), _) => {
                let position = Value::Rt(operand(self, ty));
                Value::Element(Rc::new(MeshElement { elements: *elements, position }))
            }
            (ParamKey::Fixed(_), _) => v.clone(),
            (ParamKey::Tuple(_) | ParamKey::List(_) | ParamKey::Dict(_) | ParamKey::Members(..), _) => {
                panic!("compiler bug: the argument does not match its key")
            }
        })
    }

    fn receive_all(&mut self, keys: &[ParamKey], items: &[Value], next: &mut u32) -> Result<Vec<Value>> {
        keys.iter().zip(items).map(|(k, v)| self.receive(k, v, next)).collect()
    }
}

/// The by-value members of a dataclass argument, nested ones included.
fn value_members(path: &[String], members: &[(String, ArgSpec)], out: &mut Vec<(Vec<String>, ArgSpec)>) {
    for (name, spec) in members {
        let path = [path, std::slice::from_ref(name)].concat();
        match spec {
            ArgSpec::Value(..) => out.push((path, spec.clone())),
            ArgSpec::Dataclass(_, inner) => value_members(&path, inner, out),
            ArgSpec::Array(_) | ArgSpec::Template(_) => {}
        }
    }
}
