//! Members of `IntEnum`, `IntFlag` and other enumerations whose members are numbers or strings.
//!
//! Operations treat such a member as its number or string. Attributes (`member.name`, `member.value`) belong to the
//! member itself. Variables, template arguments and lists hold the member. [`Lowerer::lower_expr`] yields the number or
//! string, [`Lowerer::lower_whole`] the member.

use octants_diag::Result;

use super::Lowerer;
use crate::ast::{Expr, Operator};
use crate::value::Value;
use crate::world::{Entity, Obj};

impl Lowerer<'_> {
    /// A member, and its value in operations.
    pub(super) fn lift_member(&mut self, obj: Obj, plain: &Entity) -> Value {
        let plain = match plain {
            Entity::Int(i) => Value::Int(*i),
            Entity::Float(f) => Value::Float(*f),
            Entity::Str(s) => Value::str(s),
            _ => return Value::Obj(obj),
        };
        self.enum_members.insert(obj, plain);
        Value::Obj(obj)
    }

    /// The value of an enumeration member in operations.
    pub(super) fn plain_member(&self, v: &Value) -> Option<Value> {
        match v {
            Value::Obj(obj) => self.enum_members.get(obj).cloned(),
            _ => None,
        }
    }

    /// An operator on two values. Of members, as in `Flag.A | Flag.B`, Python says whether the result is a member.
    pub(super) fn combine(&mut self, op: Operator, l: Value, r: Value) -> Result<Value> {
        if let (Value::Obj(a), Value::Obj(b)) = (&l, &r)
            && self.plain_member(&l).is_some()
            && self.plain_member(&r).is_some()
            && let Ok(result) = self.world.binary(op.symbol(), *a, *b)
        {
            return Ok(self.lift(result));
        }
        self.binary_value(op, &self.plain(l), &self.plain(r))
    }

    /// The value as operations take it.
    pub(super) fn plain(&self, v: Value) -> Value {
        self.plain_member(&v).unwrap_or(v)
    }

    /// Operands of the language's own functions: the items of sequences are operands too.
    pub(super) fn plain_operand(&self, v: Value) -> Value {
        let has_members = |items: &[Value]| items.iter().any(|item| self.plain_member(item).is_some());
        let items = |items: &[Value]| items.iter().map(|item| self.plain(item.clone())).collect();
        match &v {
            Value::Tuple(all) if has_members(all) => Value::tuple(items(all)),
            Value::List(all) if has_members(all) => Value::list(items(all)),
            _ => self.plain(v),
        }
    }

    /// An item of a list or tuple. While compiling, lists are iterated for the members that they hold.
    pub(super) fn lower_item(&mut self, e: &Expr) -> Result<Value> {
        if self.static_depth > 0 { self.lower_whole(e) } else { self.lower_expr(e) }
    }
}
