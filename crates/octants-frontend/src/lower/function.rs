//! Calls of `@qd.func` and `@qd.real_func`: inlined, or compiled once per specialisation as a function of the IR.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use octants_diag::{Code, Diagnostic, Result};
use octants_ir::{Builder, FuncId, Function, Op, StructType, Type, ValueId};

use super::pass::{ParamKey, Passed};
use super::{Binding, Flow, Frame, Lowerer, ParsedFunction, ReturnMode};
use crate::arith;
use crate::value::Value;
use crate::world::{Entity, FuncKind, FuncParam, Obj};

/// What makes two calls of a function the same code.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct FunctionKey {
    func: Obj,
    params: Vec<ParamKey>,
}

/// A function of the IR and how to read its result.
#[derive(Debug, Clone)]
pub(super) struct Outlined {
    id: FuncId,
    ret: Type,
    is_tuple: bool,
}

/// Calls of one function inside each other that template arguments may drive: bounds the compiler's own stack.
const MAX_TEMPLATE_RECURSION: usize = 32;

impl Lowerer<'_> {
    pub(super) fn call_function(
        &mut self,
        func: Obj,
        kind: FuncKind,
        args: Vec<Value>,
        kwargs: Vec<(String, Value)>,
    ) -> Result<Value> {
        let site = self.b.span;
        let self_by_reference = std::mem::take(&mut self.self_by_reference);
        let parsed = self.parse(func)?;
        let name = parsed.source.name.clone();
        if parsed.source.requires_top_level && !self.at_top_level() {
            return self.err(
                Code::Syntax,
                format!("`{name}` is declared with requires_top_level=True: it must be called at the top level of a kernel, not inside a run-time `for`, `if` or `while`"),
            );
        }
        let bound = self.match_arguments(&parsed, args, kwargs)?;
        if kind != FuncKind::Real {
            self.check_recursion(func, &parsed, &bound)?;
        }
        let outline = kind == FuncKind::Real || (parsed.nested_return && !(self.at_top_level() && parsed.has_loops));
        let result = if outline {
            self.call_outlined(func, &parsed, bound, kind, self_by_reference)
        } else {
            self.call_inlined(func, &parsed, bound, self_by_reference)
        };
        self.b.span = site;
        result.map_err(|mut d| {
            // An argument that does not fit is a mistake of the caller.
            if !d.trace.is_empty() || d.span != Some(site) {
                d.trace.push((name, site));
            }
            d
        })
    }

    /// A function that is compiled where it is called may call itself only as far as a template parameter drives it.
    fn check_recursion(&mut self, func: Obj, parsed: &ParsedFunction, args: &[Value]) -> Result<()> {
        let depth = self.frames.iter().filter(|f| f.func == func).count();
        if depth == 0 {
            return Ok(());
        }
        let name = &parsed.source.name;
        for (p, v) in parsed.source.params.iter().zip(args) {
            if p.annotation.is_none() || !v.is_compile_time() || self.value_annotation(p.annotation)?.is_some() {
                continue;
            }
            if depth < MAX_TEMPLATE_RECURSION {
                return Ok(());
            }
            return self.err(
                Code::Compilation,
                format!("recursive call of `{name}`: {MAX_TEMPLATE_RECURSION} calls inside each other, which is as far as templates go"),
            );
        }
        self.err(Code::Compilation, format!("recursive call of `{name}`: a function cannot call itself in a kernel"))
    }

    fn match_arguments(
        &mut self,
        parsed: &ParsedFunction,
        args: Vec<Value>,
        kwargs: Vec<(String, Value)>,
    ) -> Result<Vec<Value>> {
        let params = &parsed.source.params;
        let name = &parsed.source.name;
        if args.len() > params.len() {
            return self.err(
                Code::Syntax,
                format!("Too many arguments. `{name}` takes {} arguments, {} given", params.len(), args.len()),
            );
        }
        let mut slots: Vec<Option<Value>> = args.into_iter().map(Some).collect();
        slots.resize(params.len(), None);
        for (key, v) in kwargs {
            match params.iter().position(|p| p.name == key) {
                None => {
                    return self
                        .err(Code::Syntax, format!("Unexpected argument '{key}': `{name}` has no such parameter"));
                }
                Some(i) if slots[i].is_some() => {
                    return self.err(Code::Syntax, format!("Multiple values for argument '{key}' of `{name}`"));
                }
                Some(i) => slots[i] = Some(v),
            }
        }
        let mut out = Vec::new();
        for (slot, p) in slots.into_iter().zip(params) {
            out.push(match (slot, p.default) {
                (Some(v), _) => v,
                (None, Some(default)) => self.lift(default),
                (None, None) => return self.err(Code::Syntax, format!("Missing argument '{}' of `{name}`", p.name)),
            });
        }
        Ok(out)
    }

    /// The type an annotation asks for by value; `None` for templates, arrays and parameters without annotation.
    pub(super) fn value_annotation(&mut self, annotation: Option<Obj>) -> Result<Option<Type>> {
        let Some(obj) = annotation else { return Ok(None) };
        match self.world.entity(obj) {
            Entity::Dtype(_) | Entity::TensorType(_) | Entity::AnyTensorType(_) | Entity::StructType { .. } => {}
            Entity::Builtin(n) if matches!(n.as_str(), "int" | "float" | "bool") => {}
            _ => return Ok(None),
        }
        Ok(Some(self.type_of_object(obj, self.b.span)?))
    }

    /// The argument of a parameter that is annotated with a type, by value; `None` for other parameters.
    pub(super) fn annotated_argument(&mut self, p: &FuncParam, v: &Value) -> Result<Option<ValueId>> {
        let Some(mut ty) = self.value_annotation(p.annotation)? else { return Ok(None) };
        let any_scalar = p.annotation.is_some_and(|o| matches!(self.world.entity(o), Entity::AnyTensorType(_)));
        let mut v = v.clone();
        if any_scalar {
            let found = match v.items() {
                Some(items) => Some(self.make_tensor(items, None)?),
                None => self.try_rt(&v)?,
            };
            if let Some(found) = found {
                if let Some(scalar) = self.b.ty(found).scalar() {
                    ty = Type::tensor(scalar, &ty.shape());
                }
                v = Value::Rt(found);
            }
        }
        self.argument_for(&p.name, &v, &ty).map(Some)
    }

    fn argument_for(&mut self, name: &str, v: &Value, ty: &Type) -> Result<ValueId> {
        if let (Value::Members(_) | Value::Dict(_), Type::Struct(s)) = (v, ty)
            && let Some(obj) = self.struct_objects.get(s).copied()
        {
            let v = self.construct_struct(obj, std::slice::from_ref(v), &[])?;
            return self.rt(&v);
        }
        let found = match v.items() {
            Some(items) if ty.is_tensor() => self.make_tensor(items, ty.scalar())?,
            _ => match self.try_rt(v)? {
                Some(v) => v,
                None => {
                    let what = self.describe(v);
                    return self.err(Code::Type, format!("argument `{name}` must be {ty}, got {what}"));
                }
            },
        };
        let from = self.b.ty(found).clone();
        if from.shape() != ty.shape() || matches!(ty, Type::Struct(_)) != matches!(from, Type::Struct(_)) {
            return self.err(Code::Type, format!("argument `{name}` must be {ty}, got {from}"));
        }
        arith::assign_cast(&mut self.b, found, ty)
    }

    fn call_inlined(
        &mut self,
        func: Obj,
        parsed: &Rc<ParsedFunction>,
        args: Vec<Value>,
        self_by_reference: bool,
    ) -> Result<Value> {
        let mut scope = HashMap::new();
        for (i, (p, v)) in parsed.source.params.iter().zip(args).enumerate() {
            let mutated = parsed.mutated.contains(&p.name);
            let value = match self.annotated_argument(p, &v)? {
                Some(rt) if mutated => Value::Var(self.new_local(&p.name, rt)),
                Some(rt) => Value::Rt(rt),
                None if p.annotation.is_some() || (i == 0 && self_by_reference) => v,
                None if mutated && self.is_plain_value(&v) => self.variable(&p.name, v)?,
                None => match v {
                    Value::Var(_) | Value::Place(_) => Value::Rt(self.rt(&v)?),
                    v => v,
                },
            };
            scope.insert(p.name.clone(), Binding { value, immutable: None });
        }
        let outer = self.frame_ref().control_depth;
        let mut frame = Frame::new(func, &parsed.source.name, ReturnMode::Inline(parsed.source.returns));
        frame.scopes = vec![scope];
        self.frames.push(frame);
        self.outer_control_depth += outer;
        let static_depth = std::mem::take(&mut self.static_depth);
        let flow = self.lower_stmts(&parsed.body);
        self.static_depth = static_depth;
        self.outer_control_depth -= outer;
        let frame = self.frames.pop();
        match flow? {
            Flow::Break | Flow::Continue => self.err(Code::Syntax, "`break` or `continue` outside of a loop"),
            Flow::Normal | Flow::Return => Ok(frame.and_then(|f| f.returned).unwrap_or(Value::None)),
        }
    }

    /// Copied when the callee changes its parameter.
    fn is_plain_value(&mut self, v: &Value) -> bool {
        match v {
            Value::Rt(_) | Value::Var(_) | Value::Place(_) | Value::Int(_) | Value::Float(_) | Value::Bool(_) => true,
            Value::Obj(o) => matches!(self.world.entity(*o), Entity::TensorConst { .. } | Entity::StructConst { .. }),
            _ => false,
        }
    }

    /// The result of an inlined function whose result is annotated.
    pub(super) fn annotated_result(&mut self, annotation: Obj, v: Value) -> Result<Value> {
        let parts = match self.world.entity(annotation) {
            Entity::Tuple(items) | Entity::List(items) => items,
            _ => {
                let mut ty = match self.value_annotation(Some(annotation))? {
                    Some(ty) => ty,
                    None => return self.detached(v),
                };
                // A scalar type holds for each component of a vector or matrix.
                if let Type::Scalar(scalar) = ty
                    && let Some(found) = self.try_rt(&v)?
                {
                    if self.b.ty(found).is_tensor() {
                        ty = Type::tensor(scalar, &self.b.ty(found).shape());
                    }
                    return Ok(Value::Rt(self.checked_result(found, &ty)?));
                }
                return Ok(Value::Rt(self.result_value(&v, &ty)?));
            }
        };
        let items = self.unpack(&v)?;
        if items.len() != parts.len() {
            return self
                .err(Code::Type, format!("{} values returned, the annotation has {}", items.len(), parts.len()));
        }
        let mut out = Vec::new();
        for (part, v) in parts.into_iter().zip(items) {
            out.push(match self.value_annotation(Some(part))? {
                Some(ty) => Value::Rt(self.result_value(&v, &ty)?),
                None => self.detached(v)?,
            });
        }
        Ok(Value::tuple(out))
    }

    fn detached(&mut self, v: Value) -> Result<Value> {
        Ok(match v {
            Value::Var(_) | Value::Place(_) => Value::Rt(self.rt(&v)?),
            v => v,
        })
    }

    fn call_outlined(
        &mut self,
        func: Obj,
        parsed: &Rc<ParsedFunction>,
        args: Vec<Value>,
        kind: FuncKind,
        self_by_reference: bool,
    ) -> Result<Value> {
        let mut keys = Vec::new();
        let mut passed = Passed::default();
        for (i, (p, v)) in parsed.source.params.iter().zip(&args).enumerate() {
            keys.push(self.pass_argument(p, v, i == 0 && self_by_reference, &mut passed)?);
        }
        let Passed { operands, types } = passed;
        let key = FunctionKey { func, params: keys.clone() };
        let outlined = match self.function_keys.get(&key) {
            Some(o) => o.clone(),
            None => {
                let o = self.compile_function(func, parsed, &keys, &args, types, kind)?;
                self.function_keys.insert(key, o.clone());
                o
            }
        };
        let v = self.b.push(Op::Call(outlined.id, operands), outlined.ret.clone());
        Ok(match (&outlined.ret, outlined.is_tuple) {
            (Type::Unit, _) => Value::None,
            (Type::Struct(s), true) => {
                Value::tuple((0..s.members.len() as u32).map(|i| Value::Rt(self.b.extract(v, i))).collect())
            }
            _ => Value::Rt(v),
        })
    }

    fn compile_function(
        &mut self,
        func: Obj,
        parsed: &Rc<ParsedFunction>,
        keys: &[ParamKey],
        args: &[Value],
        types: Vec<Type>,
        kind: FuncKind,
    ) -> Result<Outlined> {
        let annotated = match parsed.source.returns {
            None if kind == FuncKind::Real => Some(Type::Unit),
            None => None,
            Some(obj) => match self.world.entity(obj) {
                Entity::Tuple(items) | Entity::List(items) => {
                    let mut members = Vec::new();
                    for (i, o) in items.into_iter().enumerate() {
                        members.push((i.to_string(), self.type_of_object(o, self.b.span)?));
                    }
                    Some(Type::Struct(Arc::new(StructType { name: "tuple".into(), members })))
                }
                _ => Some(self.type_of_object(obj, self.b.span)?),
            },
        };
        let is_annotated_tuple = matches!(&annotated, Some(Type::Struct(s)) if s.name == "tuple");
        let outer_builder = std::mem::replace(&mut self.b, Builder::new());
        self.b.span = outer_builder.span;
        let outer_in_kernel = std::mem::replace(&mut self.in_kernel_body, false);
        let static_depth = std::mem::take(&mut self.static_depth);
        // The place is taken first, so that a function with an annotated result can call itself.
        let id = FuncId(self.functions.len() as u32);
        self.functions.push(Function {
            name: parsed.source.name.clone(),
            params: types,
            ret: annotated.clone().unwrap_or(Type::Unit),
            body: octants_ir::Body::default(),
        });
        if let Some(ret) = &annotated {
            let key = FunctionKey { func, params: keys.to_vec() };
            self.function_keys.insert(key, Outlined { id, ret: ret.clone(), is_tuple: is_annotated_tuple });
        }
        self.frames.push(Frame::new(func, &parsed.source.name, ReturnMode::Function(annotated)));
        let result: Result<Type> = (|| {
            let mut next = 0;
            for ((p, key), v) in parsed.source.params.iter().zip(keys).zip(args) {
                let mut value = self.receive(key, v, &mut next)?;
                let copied = match key {
                    ParamKey::Value(_) => true,
                    ParamKey::Tuple(_) | ParamKey::List(_) => p.annotation.is_none(),
                    _ => false,
                };
                if copied && parsed.mutated.contains(&p.name) {
                    value = self.variable(&p.name, value)?;
                }
                self.bind_value(&p.name, value);
            }
            self.lower_stmts(&parsed.body)?;
            let ret = match &self.frame_ref().ret {
                ReturnMode::Function(ty) => ty.clone().unwrap_or(Type::Unit),
                _ => Type::Unit,
            };
            if ret != Type::Unit && !self.b.is_terminated() {
                let zero = self.zero(&ret);
                self.b.push(Op::Return(Some(zero)), Type::Unit);
            }
            Ok(ret)
        })();
        let frame = self.frames.pop();
        self.static_depth = static_depth;
        self.in_kernel_body = outer_in_kernel;
        let body = std::mem::replace(&mut self.b, outer_builder).body;
        let ret = result?;
        let is_tuple = is_annotated_tuple || matches!(frame.and_then(|f| f.returned), Some(Value::Tuple(_)));
        let function = &mut self.functions[id.index()];
        function.ret = ret.clone();
        function.body = body;
        Ok(Outlined { id, ret, is_tuple })
    }

    /// `return` in a function of the IR.
    pub(super) fn function_return(&mut self, ty: Option<Type>, v: Value) -> Result<()> {
        if matches!(v, Value::None) {
            let value = match &ty {
                Some(t) if *t != Type::Unit => Some(self.zero(t)),
                _ => None,
            };
            self.b.push(Op::Return(value), Type::Unit);
            return Ok(());
        }
        let is_tuple = matches!(v, Value::Tuple(_));
        let value = match (&ty, &v) {
            (Some(Type::Unit), _) => {
                return Err(Diagnostic::new(
                    Code::Syntax,
                    self.b.span,
                    "A function with a return value must be annotated with a return type, e.g. def func() -> qd.f32",
                ));
            }
            (Some(Type::Struct(s)), Value::Tuple(items)) if s.name == "tuple" => {
                let (s, items) = (s.clone(), items.clone());
                if s.members.len() != items.len() {
                    return self.err(Code::Type, "this `return` has another number of values than the one before");
                }
                let parts = s
                    .members
                    .iter()
                    .zip(items.iter())
                    .map(|((_, t), v)| self.result_value(v, t))
                    .collect::<Result<Vec<_>>>()?;
                self.b.push(Op::MakeStruct(parts), Type::Struct(s))
            }
            (Some(t), _) => self.result_value(&v, &t.clone())?,
            (None, Value::Tuple(items)) => {
                let mut parts = Vec::new();
                let mut members = Vec::new();
                for (i, item) in items.iter().enumerate() {
                    let p = self.rt(item)?;
                    members.push((i.to_string(), self.b.ty(p).clone()));
                    parts.push(p);
                }
                let s = Arc::new(StructType { name: "tuple".into(), members });
                self.b.push(Op::MakeStruct(parts), Type::Struct(s))
            }
            (None, _) => self.rt(&v)?,
        };
        if ty.is_none() {
            let found = self.b.ty(value).clone();
            self.frame().ret = ReturnMode::Function(Some(found));
        }
        self.frame().returned = Some(if is_tuple { Value::tuple(Vec::new()) } else { Value::None });
        self.b.push(Op::Return(Some(value)), Type::Unit);
        Ok(())
    }
}
