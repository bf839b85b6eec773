//! `return`: from the kernel, from an inlined function, from a function of the IR.

use octants_diag::{Code, Diagnostic, Result, Span};
use octants_ir::{Op, Scalar, StructType, Type, ValueId};

use super::{Flow, Lowerer, ReturnMode};
use crate::arith::{self, type_name};
use crate::ast::Expr;
use crate::value::Value;

impl Lowerer<'_> {
    pub(super) fn lower_return(&mut self, value: Option<&Expr>, span: Span) -> Result<Flow> {
        let v = match value {
            Some(e) => self.lower_expr(e)?,
            None => Value::None,
        };
        self.b.span = value.map_or(span, |e| e.span);
        let mode = self.frame_ref().ret.clone();
        match mode {
            ReturnMode::Kernel(types) => {
                if self.frame_ref().control_depth > 0 {
                    return self.err(Code::Syntax, "Return inside non-static if/for is not supported");
                }
                if !matches!(v, Value::None) {
                    self.kernel_return(&types, v)?;
                }
                Ok(Flow::Return)
            }
            ReturnMode::Inline(annotation) => {
                if self.frame_ref().control_depth > 0 {
                    return Err(Diagnostic::new(
                        Code::Syntax,
                        self.b.span,
                        "Return inside non-static if/for is not supported in a function with parallel loops",
                    )
                    .with_hint(
                        "return once at the end, call the function from inside a loop, or write \
                         `qd.loop_config(serialize=True)` before its loops",
                    ));
                }
                if let (Value::None, Some(obj)) = (&v, annotation)
                    && self.is_result_type(obj)?
                {
                    self.refuse_bare_return(None)?;
                }
                let v = match annotation {
                    Some(obj) if !matches!(v, Value::None) => self.annotated_result(obj, v)?,
                    _ => self.detach_deep(v)?,
                };
                self.frame().returned = Some(v);
                Ok(Flow::Return)
            }
            ReturnMode::Function(ty) => {
                if matches!(v, Value::None) && ty.as_ref().is_some_and(|ty| *ty != Type::Unit) {
                    self.refuse_bare_return(None)?;
                }
                self.function_return(ty, v)?;
                Ok(Flow::Return)
            }
            ReturnMode::Inferred(ty, first) => {
                if ty == Type::Unit && !matches!(v, Value::None) {
                    let text = "this `return` has a value, but an earlier one of the function has none";
                    return self.err(Code::Syntax, text);
                }
                if ty != Type::Unit && matches!(v, Value::None) {
                    self.refuse_bare_return(Some(first))?;
                }
                self.check_keeps_fraction(&ty, &v, first)?;
                self.function_return(Some(ty), v)?;
                Ok(Flow::Return)
            }
        }
    }

    /// Without an annotation the first `return` gives the type of the result. One that would truncate is refused.
    fn check_keeps_fraction(&mut self, ty: &Type, v: &Value, first: Span) -> Result<()> {
        let Some(found) = self.runtime_type(v) else { return Ok(()) };
        let truncates = found.scalar().is_some_and(Scalar::is_float) && ty.scalar().is_some_and(|s| !s.is_float());
        if !truncates {
            return Ok(());
        }
        let (found, ty) = (type_name(&found), type_name(ty));
        let earlier = self.source_text(first);
        let text = format!("this `return` gives {found}, but an earlier one, of `{earlier}`, gives {ty}");
        Err(Diagnostic::new(Code::Type, self.b.span, text)
            .with_hint(format!("annotate the type of the result, as in `-> qd.{found}`")))
    }

    /// The result of a call must not refer to the callee's variables.
    pub(super) fn detach_deep(&mut self, v: Value) -> Result<Value> {
        Ok(match v {
            Value::Var(_) => Value::Rt(self.rt(&v)?),
            Value::Place(_) => Value::Rt(self.rt(&v)?),
            Value::Tuple(items) => {
                Value::tuple(items.iter().map(|i| self.detach_deep(i.clone())).collect::<Result<Vec<_>>>()?)
            }
            Value::List(items) => {
                Value::list(items.iter().map(|i| self.detach_deep(i.clone())).collect::<Result<Vec<_>>>()?)
            }
            Value::Members(ref m) if !m.is_array => Value::Rt(self.struct_value(m)?),
            Value::Element(ref e) => self.detached_element(e)?,
            other => other,
        })
    }

    pub(super) fn kernel_return(&mut self, types: &[(crate::world::Obj, Type)], v: Value) -> Result<()> {
        if types.is_empty() {
            return Err(Diagnostic::new(
                Code::Syntax,
                self.b.span,
                "A kernel with a return value must be annotated with a return type, e.g. def func() -> qd.f32",
            ));
        }
        let is_one = v.items().is_none() && !matches!(v, Value::Obj(_) | Value::Members(_));
        let is_scalar = matches!(self.runtime_type(&v), Some(Type::Scalar(_)));
        if types.len() > 1 && is_one && is_scalar {
            let text = format!("the kernel returns one value, but its annotation has {}", types.len());
            return self.err(Code::Type, text);
        }
        let values = if types.len() == 1 { vec![v] } else { self.unpack(&v)? };
        if values.len() != types.len() {
            return self.err(
                Code::Type,
                format!("the kernel returns {} values, but its annotation has {}", values.len(), types.len()),
            );
        }
        let mut parts = Vec::new();
        for ((_, ty), v) in types.iter().zip(&values) {
            parts.push(self.result_value(v, ty)?);
        }
        let result = match parts[..] {
            [one] => one,
            _ => self.b.push(Op::MakeStruct(parts), self.ret.clone()),
        };
        self.b.push(Op::Return(Some(result)), Type::Unit);
        self.frame().returned = Some(Value::None);
        Ok(())
    }

    /// A value returned as the annotated type: shapes must agree, scalars convert.
    pub(super) fn result_value(&mut self, v: &Value, ty: &Type) -> Result<ValueId> {
        let found = match v.items() {
            Some(items) if ty.is_tensor() => {
                let t = self.make_tensor(items, None)?;
                return self.checked_result(t, ty);
            }
            _ => self.try_rt(v)?,
        };
        match found {
            Some(value) => self.checked_result(value, ty),
            None => {
                let what = self.describe(v);
                let ty = type_name(ty);
                self.err(Code::Compilation, format!("Return (type={what}) cannot be converted into required type {ty}"))
            }
        }
    }

    pub(super) fn checked_result(&mut self, value: ValueId, ty: &Type) -> Result<ValueId> {
        let found = self.b.ty(value).clone();
        if found == *ty {
            return Ok(value);
        }
        let float_to_int = found.scalar().is_some_and(Scalar::is_float) && ty.scalar().is_some_and(|s| !s.is_float());
        if found.shape() != ty.shape()
            || found.scalar().is_none()
            || ty.scalar().is_none()
            || (ty.is_tensor() && float_to_int)
        {
            return self.err(Code::Type, mismatch(ty, &found));
        }
        Ok(self.b.cast(value, ty.scalar().unwrap_or(Scalar::F32)))
    }
}

/// A struct type with its members.
fn members_text(ty: &StructType) -> String {
    let members: Vec<String> = ty.members.iter().map(|(name, ty)| format!("{name}: {}", type_name(ty))).collect();
    let name = if ty.name == "struct" { String::from("struct") } else { format!("struct {}", ty.name) };
    format!("{name} of {}", members.join(", "))
}

/// The error for a result of type `found` with the annotation `ty`.
fn mismatch(ty: &Type, found: &Type) -> String {
    let (wanted, given) = (ty.shape(), found.shape());
    if !ty.is_tensor() || found.scalar().is_none() || wanted == given {
        let (ty, found) = match (ty, found) {
            (Type::Struct(ty), Type::Struct(found)) => (members_text(ty), members_text(found)),
            _ => (type_name(ty), type_name(found)),
        };
        return format!("Return (type={found}) cannot be converted into required type {ty}");
    }
    if wanted.len() != given.len() {
        return format!("Return matrix ndim mismatch, expecting={}, got={}.", wanted.len(), given.len());
    }
    let (wanted, given) = (arith::shape_text(ty), arith::shape_text(found));
    format!("Return matrix shape mismatch, expecting={wanted}, got={given}.")
}
