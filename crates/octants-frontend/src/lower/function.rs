//! Calls of `@qd.func` and `@qd.real_func`: binds arguments to parameters, and inlines calls. Calls of IR functions
//! are in `outlined`; `choose_form` decides between the two.

use std::collections::HashMap;
use std::rc::Rc;

use octants_diag::{Code, Diagnostic, Result};
use octants_ir::{Scalar, Type, ValueId};

use super::{Binding, Flow, Frame, Lowerer, ParsedFunction, ReturnMode};
use crate::arith;
use crate::arith::type_name;
use crate::value::Value;
use crate::world::{Entity, FuncKind, FuncParam, Obj};

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
        self.ensure_stack(|lowerer| lowerer.call_function_here(func, kind, args, kwargs))
    }

    fn call_function_here(
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
        for (p, v) in parsed.source.params.iter().zip(&bound) {
            if let (Value::Array(_) | Value::Obj(_), Some(annotation)) = (v, p.annotation) {
                self.check_array_argument(&p.name, annotation, v, kind)?;
            }
        }
        if kind != FuncKind::Real {
            self.check_recursion(func, &parsed, &bound)?;
        }
        let result = if kind == FuncKind::Real || self.becomes_function(func, &parsed, &bound) {
            self.call_outlined(func, &parsed, bound, kind, self_by_reference)
        } else {
            self.call_inlined(func, &parsed, bound, kind, self_by_reference)
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

    /// An inlined function may recurse only over a template parameter.
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
                format!(
                    "recursive call of `{name}`: more than {MAX_TEMPLATE_RECURSION} nested calls, the \
                     limit for recursion over template arguments"
                ),
            );
        }
        let message = format!("recursive call of `{name}`: a function cannot call itself in a kernel");
        Err(Diagnostic::new(Code::Compilation, self.b.span, message)
            .with_hint("write a loop, end the recursion with `if qd.static(...)`, or make it a `@qd.real_func`"))
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

    /// The type of a by-value annotation; `None` for templates, arrays and parameters without annotation.
    pub(super) fn value_annotation(&mut self, annotation: Option<Obj>) -> Result<Option<Type>> {
        let Some(obj) = annotation else { return Ok(None) };
        match self.world.entity(obj) {
            Entity::Dtype(_) | Entity::TensorType(_) | Entity::AnyTensorType(_) | Entity::StructType { .. } => {}
            Entity::Builtin(n) if matches!(n.as_str(), "int" | "float" | "bool") => {}
            _ => return Ok(None),
        }
        Ok(Some(self.type_of_object(obj, self.b.span)?))
    }

    /// The argument of a parameter whose annotation changes or checks it, by value; `None` for other parameters.
    ///
    /// A scalar type converts the argument, including each component of a vector or matrix. A vector or matrix type
    /// requires a shape: the components keep their type. A struct type requires nothing; a missing member is reported
    /// at its use. Annotations of an undecorated function have no effect, as in Python. A `@qd.real_func` is compiled
    /// for its annotated types.
    pub(super) fn annotated_argument(&mut self, p: &FuncParam, v: &Value, kind: FuncKind) -> Result<Option<ValueId>> {
        if kind == FuncKind::Plain {
            return Ok(None);
        }
        let Some(ty) = self.value_annotation(p.annotation)? else { return Ok(None) };
        let v = &self.plain(v.clone());
        if kind == FuncKind::Real {
            return self.converted_argument(p, v, ty).map(Some);
        }
        match ty {
            Type::Scalar(scalar) => self.scalar_argument(&p.name, v, scalar).map(Some),
            Type::Struct(_) => match (v, p.annotation) {
                (Value::Dict(_), Some(obj)) => {
                    let v = self.construct_struct(obj, std::slice::from_ref(v), &[])?;
                    self.rt(&v).map(Some)
                }
                _ => Ok(None),
            },
            ty => {
                // Items become components of the annotated type.
                let v = self.argument_value(&p.name, v, &ty, self.is_any_scalar(p))?;
                self.check_argument_shape(&p.name, v, &ty)?;
                Ok(Some(v))
            }
        }
    }

    /// An argument, converted to exactly the annotated type. A type without a scalar type takes that of the argument.
    fn converted_argument(&mut self, p: &FuncParam, v: &Value, mut ty: Type) -> Result<ValueId> {
        let mut v = v.clone();
        if self.is_any_scalar(p) {
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
        self.argument_for(&p.name, &v, &ty)
    }

    fn is_any_scalar(&self, p: &FuncParam) -> bool {
        p.annotation.is_some_and(|o| matches!(self.world.entity(o), Entity::AnyTensorType(_)))
    }

    /// An argument whose components are converted to the annotated scalar.
    fn scalar_argument(&mut self, name: &str, v: &Value, scalar: Scalar) -> Result<ValueId> {
        let found = match v.items() {
            Some(items) => self.make_tensor(items, None)?,
            None => self.argument_value(name, v, &Type::Scalar(scalar), false)?,
        };
        let from = self.b.ty(found).clone();
        if from.scalar().is_none() {
            return self.argument_mismatch(name, &Type::Scalar(scalar), &from);
        }
        arith::assign_cast(&mut self.b, found, &Type::tensor(scalar, &from.shape()))
    }

    /// An array given for a parameter that is annotated as one has the element type and the axes that the annotation
    /// names.
    fn check_array_argument(&mut self, name: &str, annotation: Obj, v: &Value, kind: FuncKind) -> Result<()> {
        let Ok(Some(_)) = self.world.attribute(annotation, "boundary") else { return Ok(()) };
        if let (Value::Obj(o), FuncKind::Real) = (v, kind)
            && matches!(self.world.entity(*o), Entity::Ndarray(_))
        {
            return Err(Diagnostic::new(
                Code::Type,
                self.b.span,
                format!("Expected ndarray in the kernel argument for argument {name}"),
            )
            .with_hint("pass the array to the kernel, and from there to the function"));
        }
        // A captured array becomes a buffer of the kernel at its first use, and the check of an annotation is not one:
        // the array may belong to a program that has ended.
        let captured = match v {
            Value::Obj(o) => match self.world.entity(*o) {
                Entity::Ndarray(desc) => Some((desc.elem, desc.ndim)),
                _ => None,
            },
            _ => None,
        };
        let (elem, ndim) = match captured {
            Some(known) => known,
            None => {
                let Some(buffer) = self.as_array(v)? else { return Ok(()) };
                (self.buffers[buffer.index()].elem.clone(), self.buffers[buffer.index()].ndim)
            }
        };
        let wanted = self.host_attribute(annotation, "dtype")?;
        if let Value::Obj(dtype) = wanted {
            let is_any = matches!(self.world.entity(dtype), Entity::AnyTensorType(_));
            let mut wanted = self.type_of_object(dtype, self.b.span)?;
            if let (true, Some(scalar)) = (is_any, elem.scalar()) {
                wanted = Type::tensor(scalar, &wanted.shape());
            }
            if wanted != elem {
                let (wanted, elem) = (type_name(&wanted), type_name(&elem));
                return self.err(
                    Code::Type,
                    format!(
                        "Invalid value for argument {name} - required element type: {wanted}, but {elem} is provided"
                    ),
                );
            }
        }
        if let Value::Int(wanted) = self.host_attribute(annotation, "ndim")?
            && wanted != i128::from(ndim)
        {
            return self.err(
                Code::Type,
                format!("Invalid value for argument {name} - required ndim={wanted}, but an array of {ndim} axes is provided"),
            );
        }
        Ok(())
    }

    fn argument_for(&mut self, name: &str, v: &Value, ty: &Type) -> Result<ValueId> {
        if let (Value::Members(_) | Value::Dict(_), Type::Struct(s)) = (v, ty)
            && let Some(obj) = self.struct_objects.get(s).copied()
        {
            let v = self.construct_struct(obj, std::slice::from_ref(v), &[])?;
            return self.rt(&v);
        }
        let found = self.argument_value(name, v, ty, false)?;
        self.check_argument_shape(name, found, ty)?;
        arith::assign_cast(&mut self.b, found, ty)
    }

    /// An argument as one value; items as a vector or matrix, of the annotated scalar, unless the annotation accepts
    /// any scalar.
    fn argument_value(&mut self, name: &str, v: &Value, ty: &Type, any_scalar: bool) -> Result<ValueId> {
        if let (Some(items), true) = (v.items(), ty.is_tensor()) {
            return self.make_tensor(items, ty.scalar().filter(|_| !any_scalar));
        }
        match self.try_rt(v)? {
            Some(v) => Ok(v),
            None => {
                let what = self.describe(v);
                let (code, must_be) = if ty.is_tensor() {
                    (Code::Syntax, "is expected to be a Matrix:")
                } else {
                    (Code::Type, "must be")
                };
                self.err(code, format!("Argument {name} {must_be} {ty}, got {what}", ty = type_name(ty)))
            }
        }
    }

    fn check_argument_shape(&mut self, name: &str, found: ValueId, ty: &Type) -> Result<()> {
        let from = self.b.ty(found).clone();
        if let ([want], [got]) = (&ty.shape()[..], &from.shape()[..])
            && want != got
        {
            return self.err(
                Code::Syntax,
                format!(
                    "Argument {name} of type {} is expected to be a Matrix with n {want}, but got {got}",
                    type_name(ty)
                ),
            );
        }
        if from.shape() != ty.shape() || matches!(ty, Type::Struct(_)) != matches!(from, Type::Struct(_)) {
            return self.argument_mismatch(name, ty, &from);
        }
        Ok(())
    }

    fn argument_mismatch<T>(&mut self, name: &str, ty: &Type, from: &Type) -> Result<T> {
        let (wanted, found) = (type_name(ty), type_name(from));
        if ty.is_tensor() && !from.is_tensor() {
            let message = format!("Argument {name} of type {wanted} is expected to be a Matrix, but got {found}.");
            return self.err(Code::Syntax, message);
        }
        self.err(Code::Type, format!("argument `{name}` must be {wanted}, got {found}"))
    }

    /// Binds the callee's parameter name to `v`, which already has the annotated type. The callee gets a copy, unless
    /// the parameter is a reference.
    pub(super) fn bind_parameter(&mut self, name: &str, v: Value, mutated: bool, by_reference: bool) -> Result<Value> {
        if by_reference {
            return Ok(v);
        }
        let v = if mutated { self.plain(v) } else { v };
        let is_struct = matches!(&v, Value::Members(m) if !m.is_array);
        if mutated && (is_struct || self.is_plain_value(&v)) {
            return self.variable(name, v);
        }
        self.detach(v)
    }

    /// The parameter is passed by reference: `qd.template()`, an array, `self` of a struct's method.
    pub(super) fn is_reference(&mut self, parsed: &ParsedFunction, i: usize, self_by_reference: bool) -> Result<bool> {
        let annotation = parsed.source.params[i].annotation;
        let by_type = annotation.is_some() && self.value_annotation(annotation)?.is_none();
        Ok(by_type || (i == 0 && self_by_reference))
    }

    pub(super) fn call_inlined(
        &mut self,
        func: Obj,
        parsed: &Rc<ParsedFunction>,
        args: Vec<Value>,
        kind: FuncKind,
        self_by_reference: bool,
    ) -> Result<Value> {
        let mut scope = HashMap::new();
        for (i, (p, v)) in parsed.source.params.iter().zip(args).enumerate() {
            let v = self.annotated_argument(p, &v, kind)?.map_or(v, Value::Rt);
            let by_reference = self.is_reference(parsed, i, self_by_reference)?;
            let value = self.bind_parameter(&p.name, v, parsed.facts.mutated.contains(&p.name), by_reference)?;
            scope.insert(p.name.clone(), Binding { value, immutable: None });
        }
        let outer = self.frame_ref().control_depth;
        let returns = annotation_of_result(parsed, kind);
        let mut frame = Frame::new(func, &parsed.source.name, ReturnMode::Inline(returns));
        frame.scopes = vec![scope];
        frame.called_at = self.b.span;
        let is_call_of_kernel = self.frames.len() == 1;
        if is_call_of_kernel {
            self.b.call = Some(frame.called_at);
        }
        self.frames.push(frame);
        self.outer_control_depth += outer;
        let static_depth = std::mem::take(&mut self.static_depth);
        let stopped = self.stopped.len();
        let flow = self.lower_stmts(&parsed.body);
        self.stopped.truncate(stopped);
        self.static_depth = static_depth;
        self.outer_control_depth -= outer;
        if is_call_of_kernel {
            self.b.call = None;
        }
        let frame = self.frames.pop();
        match flow? {
            Flow::Break | Flow::Continue => self.err(Code::Syntax, "`break` or `continue` outside of a loop"),
            Flow::Normal | Flow::Return => {
                let returned = frame.and_then(|f| f.returned);
                self.check_returned(parsed, kind, returned.is_some())?;
                Ok(returned.unwrap_or(Value::None))
            }
        }
    }

    /// A function whose result is annotated with a type has one.
    pub(super) fn check_returned(&mut self, parsed: &ParsedFunction, kind: FuncKind, returned: bool) -> Result<()> {
        let Some(annotation) = annotation_of_result(parsed, kind).filter(|_| !returned) else { return Ok(()) };
        if !self.is_result_type(annotation)? {
            return Ok(());
        }
        let name = &parsed.source.name;
        let message = format!("Function has a return type but does not have a return statement: `{name}`");
        Err(Diagnostic::new(Code::Syntax, self.b.span, message)
            .with_hint("add a `return` as the last statement, or remove the return annotation"))
    }

    pub(super) fn is_result_type(&mut self, annotation: Obj) -> Result<bool> {
        Ok(matches!(self.world.entity(annotation), Entity::Tuple(_) | Entity::List(_))
            || self.value_annotation(Some(annotation))?.is_some())
    }

    /// Copied when the callee changes its parameter.
    fn is_plain_value(&mut self, v: &Value) -> bool {
        match v {
            Value::Rt(_) | Value::Var(_) | Value::Place(_) | Value::Int(_) | Value::Float(_) | Value::Bool(_) => true,
            Value::Obj(o) => matches!(self.world.entity(*o), Entity::TensorConst { .. } | Entity::StructConst { .. }),
            _ => false,
        }
    }

    /// The result of an inlined function with an annotated result: a scalar type converts the returned value, including
    /// each component of a vector or matrix; other types have no effect. A tuple of types applies to each item.
    pub(super) fn annotated_result(&mut self, annotation: Obj, v: Value) -> Result<Value> {
        let parts = match self.world.entity(annotation) {
            Entity::Tuple(items) | Entity::List(items) => items,
            _ => return self.annotated_item(annotation, v),
        };
        if let [one] = parts[..] {
            return self.annotated_item(one, v);
        }
        if !v.is_compile_time() && matches!(self.runtime_type(&v), Some(Type::Scalar(_)))
            || matches!(v, Value::Int(_) | Value::Float(_) | Value::Bool(_))
        {
            let text = format!("the function returns one value, but its annotation has {}", parts.len());
            return self.err(Code::Type, text);
        }
        let items = self.unpack(&v)?;
        if items.len() != parts.len() {
            return self.err(
                Code::Type,
                format!("the function returns {} values, but its annotation has {}", items.len(), parts.len()),
            );
        }
        let items = parts.into_iter().zip(items).map(|(part, v)| self.annotated_item(part, v));
        Ok(Value::tuple(items.collect::<Result<Vec<_>>>()?))
    }

    fn annotated_item(&mut self, annotation: Obj, v: Value) -> Result<Value> {
        let Some(Type::Scalar(scalar)) = self.value_annotation(Some(annotation))? else {
            return self.detach_deep(v);
        };
        let found = match v.items() {
            Some(items) => Some(self.make_tensor(items, None)?),
            None => self.try_rt(&v)?,
        };
        if let Some(found) = found
            && self.b.ty(found).scalar().is_some()
        {
            let ty = Type::tensor(scalar, &self.b.ty(found).shape());
            return arith::assign_cast(&mut self.b, found, &ty).map(Value::Rt);
        }
        let what = self.describe(&v);
        let wanted = type_name(&Type::Scalar(scalar));
        self.err(Code::Compilation, format!("Return (type={what}) cannot be converted into required type {wanted}"))
    }
}

/// The annotation that a result is converted by.
pub(super) fn annotation_of_result(parsed: &ParsedFunction, kind: FuncKind) -> Option<Obj> {
    parsed.source.returns.filter(|_| kind != FuncKind::Plain)
}
