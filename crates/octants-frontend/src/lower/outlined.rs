//! Functions of the IR: `@qd.func` and `@qd.real_func` compiled once for each combination of argument kinds, and their
//! calls.
//!
//! A function with a single `return` may return anything that `pass` can decompose: run-time values become the result
//! of the IR function, and compile-time values are known to the callers. A function with several returns has one
//! result type.

use std::rc::Rc;
use std::sync::Arc;

use octants_diag::{Code, Diagnostic, Result};
use octants_ir::{Body, Builder, FuncId, Function, Op, StructType, Type};

use super::function::annotation_of_result;
use super::pass::{ParamKey, Passed, ResultShape};
use super::{Borrowed, Frame, Lowerer, ParsedFunction, ReturnMode};
use crate::value::Value;
use crate::world::{ArgSpec, Entity, FuncKind, Obj};

/// The key of an outlined function: calls with equal keys share code.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct FunctionKey {
    func: Obj,
    params: Vec<ParamKey>,
    /// Called from a `@qd.real_func`, which passes no parameters of the kernel along.
    in_real_function: bool,
}

/// A function of the IR, the arguments that its calls pass, and how to read its result.
#[derive(Debug)]
pub(super) struct Outlined {
    id: FuncId,
    ret: Type,
    shape: ResultShape,
    borrowed: Vec<(u32, Vec<String>, ArgSpec)>,
}

/// A function to be compiled.
struct Specialized<'a> {
    func: Obj,
    parsed: &'a Rc<ParsedFunction>,
    kind: FuncKind,
    keys: &'a [ParamKey],
    args: &'a [Value],
    types: Vec<Type>,
    self_by_reference: bool,
}

impl Lowerer<'_> {
    pub(super) fn call_outlined(
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
            let by_reference = self.is_reference(parsed, i, self_by_reference)?;
            let key = if !by_reference && self.number_at_run_time(parsed, &p.name, v) {
                let v = Value::Rt(self.rt(v)?);
                self.pass_argument(p, &v, by_reference, kind, &mut passed)?
            } else {
                self.pass_argument(p, v, by_reference, kind, &mut passed)?
            };
            keys.push(key);
        }
        let Passed { mut operands, types } = passed;
        let in_real_function = kind == FuncKind::Real || !self.sees_parameters();
        let key = FunctionKey { func, params: keys, in_real_function };
        let outlined = match self.function_keys.get(&key) {
            Some(known) => known.clone(),
            None => {
                let keys = &key.params;
                let f = Specialized { func, parsed, kind, keys, args: &args, types, self_by_reference };
                let compiled = self.compile_function(f, &key)?.map(Rc::new);
                self.function_keys.insert(key, compiled.clone());
                compiled
            }
        };
        let Some(outlined) = outlined else { return self.call_inlined(func, parsed, args, kind, self_by_reference) };
        for (index, path, spec) in &outlined.borrowed {
            let v = self.argument(*index, path.clone(), spec)?;
            operands.push(self.rt(&v)?);
        }
        let v = self.b.push(Op::Call(outlined.id, operands), outlined.ret.clone());
        Ok(self.read_result(&outlined.shape, v))
    }

    /// The result type that a function is annotated with.
    fn annotated_return(&mut self, parsed: &ParsedFunction, kind: FuncKind) -> Result<Option<Type>> {
        Ok(match parsed.source.returns {
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
        })
    }

    /// Lowers a function to a separate body; `None` if it returns something that an IR function cannot return.
    fn compile_function(&mut self, mut f: Specialized, key: &FunctionKey) -> Result<Option<Outlined>> {
        let in_one_place = f.kind != FuncKind::Real && !f.parsed.facts.nested_return;
        let annotated = if in_one_place { None } else { self.annotated_return(f.parsed, f.kind)? };
        let mode = match in_one_place {
            true => ReturnMode::Inline(annotation_of_result(f.parsed, f.kind)),
            false => ReturnMode::Function(annotated.clone()),
        };
        let outer_builder = std::mem::replace(&mut self.b, Builder::new());
        self.b.span = outer_builder.span;
        let outer_in_kernel = std::mem::replace(&mut self.in_kernel_body, false);
        let outer_in_real = std::mem::replace(&mut self.in_real_function, key.in_real_function);
        let static_depth = std::mem::take(&mut self.static_depth);
        let iteration = self.iteration.take();
        let mesh_loop = self.mesh_loop.take();
        // The place is taken first, so that a function with an annotated result can call itself.
        let id = FuncId(self.functions.len() as u32);
        self.functions.push(Function {
            name: f.parsed.source.name.clone(),
            params: std::mem::take(&mut f.types),
            ret: annotated.clone().unwrap_or(Type::Unit),
            body: Body::default(),
        });
        if let Some(ret) = &annotated {
            let shape = ResultShape::of_type(ret);
            let known = Outlined { id, ret: ret.clone(), shape, borrowed: Vec::new() };
            self.function_keys.insert(key.clone(), Some(Rc::new(known)));
        }
        let mut frame = Frame::new(f.func, &f.parsed.source.name, mode);
        let first = self.functions[id.index()].params.len() as u32;
        frame.called_at = self.b.span;
        frame.borrowed = (f.kind != FuncKind::Real).then(|| Borrowed { first, params: Vec::new() });
        self.frames.push(frame);
        let stopped = std::mem::take(&mut self.stopped);
        let result = self.function_body(&f, in_one_place);
        self.stopped = stopped;
        let frame = self.frames.pop().expect("compiler bug: the function's frame is gone");
        self.static_depth = static_depth;
        self.iteration = iteration;
        self.mesh_loop = mesh_loop;
        self.in_real_function = outer_in_real;
        self.in_kernel_body = outer_in_kernel;
        let body = std::mem::replace(&mut self.b, outer_builder).body;
        let Some((ret, shape)) = result? else { return Ok(None) };
        let borrowed = frame.borrowed.map_or_else(Vec::new, |b| b.params);
        let function = &mut self.functions[id.index()];
        function.params.extend(borrowed.iter().map(|(_, _, spec)| match spec {
            ArgSpec::Value(ty, _) => ty.clone(),
            _ => panic!("compiler bug: only values are passed along"),
        }));
        function.ret = ret.clone();
        function.body = body;
        Ok(Some(Outlined { id, ret, shape, borrowed }))
    }

    /// Parameters, statements and result of a function, in its own frame.
    fn function_body(&mut self, f: &Specialized, in_one_place: bool) -> Result<Option<(Type, ResultShape)>> {
        let mut next = 0;
        for (i, ((p, key), v)) in f.parsed.source.params.iter().zip(f.keys).zip(f.args).enumerate() {
            let by_reference = self.is_reference(f.parsed, i, f.self_by_reference)?;
            let v = self.receive(key, v, &mut next)?;
            let value = self.bind_parameter(&p.name, v, f.parsed.facts.mutated.contains(&p.name), by_reference)?;
            self.bind_value(&p.name, value);
        }
        self.lower_stmts(&f.parsed.body)?;
        if in_one_place {
            let returned = self.frame().returned.take();
            self.check_returned(f.parsed, f.kind, returned.is_some())?;
            return self.return_parts(&returned.unwrap_or(Value::None));
        }
        self.check_last_return(&f.parsed.body)?;
        let ret = match &self.frame_ref().ret {
            ReturnMode::Function(ty) => ty.clone().unwrap_or(Type::Unit),
            ReturnMode::Inferred(ty, _) => ty.clone(),
            _ => Type::Unit,
        };
        if ret != Type::Unit && !self.b.is_terminated() {
            let zero = self.zero(&ret);
            self.b.push(Op::Return(Some(zero)), Type::Unit);
        }
        let shape = match self.frame_ref().returned {
            Some(Value::Tuple(_)) => ResultShape::of_type(&ret),
            _ => ResultShape::of_value(&ret),
        };
        Ok(Some((ret, shape)))
    }

    /// `return` in a function of the IR. Without a value only if the result has none.
    pub(super) fn function_return(&mut self, ty: Option<Type>, v: Value) -> Result<()> {
        if matches!(v, Value::None) {
            self.b.push(Op::Return(None), Type::Unit);
            if ty.is_none() {
                self.frame().ret = ReturnMode::Inferred(Type::Unit, self.b.span);
            }
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
                    let (wanted, found) = (s.members.len(), items.len());
                    return self
                        .err(Code::Type, format!("this `return` has {found} values, but {wanted} are expected"));
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
            self.frame().ret = ReturnMode::Inferred(found, self.b.span);
        }
        self.frame().returned = Some(if is_tuple { Value::tuple(Vec::new()) } else { Value::None });
        self.b.push(Op::Return(Some(value)), Type::Unit);
        Ok(())
    }
}
