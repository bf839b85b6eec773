//! `builder[i, j] += value` on an object that accumulates elements.
//!
//! Its class has a method `_add_element`, written in the kernel language, that takes the index and the value. Only
//! `+=` and `-=` are defined for such an object, because it has no elements to read.

use octants_diag::{Code, Result};
use octants_ir::Type;

use super::Lowerer;
use crate::arith::UnaryOperator;
use crate::ast::{Expr, ExprKind, Operator};
use crate::value::Value;
use crate::world::{Entity, Obj};

const METHOD: &str = "_add_element";

impl Lowerer<'_> {
    /// Lowers `target op= value` if the target is an element of such an object. Returns false, without lowering
    /// anything, for other targets.
    pub(super) fn add_element(&mut self, target: &Expr, op: Operator, value: &Expr) -> Result<bool> {
        let ExprKind::Subscript(base, index) = &target.kind else { return Ok(false) };
        if !is_path(base) {
            return Ok(false);
        }
        let object = self.lower_expr(base)?;
        let Some(method) = self.adding_method(&object)? else { return Ok(false) };
        let span = self.b.span;
        let mut arguments = vec![object];
        arguments.extend(self.lower_index(index)?);
        if arguments.len() != 3 {
            let count = arguments.len() - 1;
            return self.err(Code::Index, format!("a sparse matrix has two indices, not {count}"));
        }
        for index in &arguments[1..] {
            let ty = self.runtime_type(index);
            if !ty.as_ref().is_some_and(|ty| matches!(ty, Type::Scalar(s) if !s.is_float())) {
                let what = self.describe(index);
                return self.err(Code::Type, format!("an index of a sparse matrix must be an integer, not {what}"));
            }
        }
        let value = self.lower_expr(value)?;
        self.b.span = span;
        arguments.push(match op {
            Operator::Add => value,
            Operator::Sub => self.unary_value(UnaryOperator::Neg, &value)?,
            _ => {
                let symbol = op.symbol();
                let text = format!("elements of a sparse matrix builder support only `+=` and `-=`, not `{symbol}=`");
                return self.err(Code::Syntax, text);
            }
        });
        self.call_object(method, arguments, Vec::new())?;
        Ok(true)
    }

    /// The method by which an object takes additions to its elements.
    pub(super) fn adding_method(&mut self, value: &Value) -> Result<Option<Obj>> {
        let object = match value {
            Value::Dataclass(argument) => argument.obj,
            Value::Obj(object) if matches!(self.world.entity(*object), Entity::Opaque) => *object,
            _ => return Ok(None),
        };
        let found = self.world.attribute(object, METHOD).map_err(|e| self.host_error(e))?;
        Ok(found.and_then(|found| match self.world.entity(found) {
            Entity::Func(_) => Some(found),
            Entity::Method(function, _) => Some(function),
            _ => None,
        }))
    }
}

/// Whether an expression is a name, or an attribute of one: lowering it twice is the same as once.
fn is_path(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Name(_) => true,
        ExprKind::Attribute(base, _) => is_path(base),
        _ => false,
    }
}
