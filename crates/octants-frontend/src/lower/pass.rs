//! How arguments get into a function of the IR: run-time values and addresses as its parameters, the rest as part of what the
//! function is compiled for. A tuple, a list or a struct in several places is passed item by item.

use std::rc::Rc;

use octants_diag::{Code, Diagnostic, Result};
use octants_ir::{Op, Type, ValueId};

use super::Lowerer;
use crate::value::{Members, Place, Value};
use crate::world::{ArgSpec, FuncParam, Obj};

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
    /// A dataclass argument: its by-value members follow as parameters.
    Dataclass(String, Vec<((u32, Vec<String>), Type)>),
}

/// Operands of a call and their types.
#[derive(Default)]
pub(super) struct Passed {
    pub operands: Vec<ValueId>,
    pub types: Vec<Type>,
}

impl Lowerer<'_> {
    pub(super) fn pass_argument(
        &mut self,
        param: &FuncParam,
        v: &Value,
        by_reference: bool,
        out: &mut Passed,
    ) -> Result<ParamKey> {
        if let Some(v) = self.annotated_argument(param, v)? {
            return Ok(self.pass_operand(v, out));
        }
        self.pass(&param.name, v, !by_reference && param.annotation.is_none(), out)
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
                let place = self.place(v).expect("compiler bug: a variable without a place");
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
                if !v.is_compile_time() =>
            {
                let what = self.describe(v);
                Err(Diagnostic::new(
                    Code::Type,
                    self.b.span,
                    format!("argument `{name}` cannot be {what} in a function that is compiled on its own"),
                )
                .with_hint("a function is compiled on its own when it is a `@qd.real_func` or returns from inside a branch or loop"))
            }
            _ => Ok(ParamKey::Fixed(format!("{v:?}"))),
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
            (ParamKey::Fixed(_), _) => v.clone(),
            (ParamKey::Tuple(_) | ParamKey::List(_) | ParamKey::Dict(_) | ParamKey::Members(..), _) => {
                panic!("compiler bug: the argument is not what its key says")
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
