//! Dicts and sets, which exist at compile time only: construction, entries, lookup.

use std::rc::Rc;

use octants_diag::{Code, Diagnostic, Result};

use super::Lowerer;
use crate::ast::{Comparison, Expr, ExprKind, Generator};
use crate::syntax_facts::last_write;
use crate::value::Value;
use crate::world::Entity;

/// Key and value.
type Entry = (Value, Value);

impl Lowerer<'_> {
    pub(super) fn lower_dict(&mut self, items: &[(Option<Expr>, Expr)]) -> Result<Value> {
        let mut out = Vec::new();
        let writes = last_write(items.iter().map(|(_, value)| value));
        for (i, (key, value)) in items.iter().enumerate() {
            let v = self.lower_expr(value)?;
            let v = if i < writes { self.detach_deep(v)? } else { v };
            match key {
                Some(key) => {
                    let k = self.lower_expr(key)?;
                    self.set_entry(&mut out, k, v)?;
                }
                None => match self.dict_entries(&v)? {
                    Some(entries) => {
                        entries.iter().try_for_each(|(k, v)| self.set_entry(&mut out, k.clone(), v.clone()))?
                    }
                    None => return self.err(Code::Syntax, "the operand of `**` in a dict must be a dict"),
                },
            }
        }
        Ok(Value::Dict(Rc::new(out)))
    }

    pub(super) fn lower_dict_comprehension(
        &mut self,
        key: &Expr,
        value: &Expr,
        generators: &[Generator],
    ) -> Result<Value> {
        let mut out = Vec::new();
        self.comprehend(generators, &mut |s| {
            let (k, v) = (s.lower_expr(key)?, s.lower_expr(value)?);
            s.set_entry(&mut out, k, v)
        })?;
        Ok(Value::Dict(Rc::new(out)))
    }

    /// The entries of a dict, created in the kernel or outside; `None` if the value is not a dict.
    pub(super) fn dict_entries(&mut self, value: &Value) -> Result<Option<Vec<Entry>>> {
        let obj = match value {
            Value::Dict(entries) => return Ok(Some(entries.to_vec())),
            Value::Obj(obj) if self.world.entity(*obj) == Entity::Opaque => *obj,
            _ => return Ok(None),
        };
        let Some(items) = self.world.attribute(obj, "items").map_err(|e| self.host_error(e))? else { return Ok(None) };
        let items = self.call_host(items, &[], &[])?;
        let mut entries = Vec::new();
        for item in self.compile_time_items(&items)? {
            if let [key, value] = &self.unpack(&item)?[..] {
                entries.push((key.clone(), value.clone()));
            }
        }
        Ok(Some(entries))
    }

    /// The position of a key's entry.
    pub(super) fn position_of_key(&mut self, entries: &[Entry], key: &Value) -> Result<Option<usize>> {
        for (i, (k, _)) in entries.iter().enumerate() {
            if self.same_key(k, key)? {
                return Ok(Some(i));
            }
        }
        Ok(None)
    }

    /// `entries[key] = value`.
    fn set_entry(&mut self, entries: &mut Vec<Entry>, key: Value, value: Value) -> Result<()> {
        match self.position_of_key(entries, &key)? {
            Some(i) => entries[i].1 = value,
            None => entries.push((key, value)),
        }
        Ok(())
    }

    fn same_key(&mut self, a: &Value, b: &Value) -> Result<bool> {
        Ok(match (a, b) {
            // Does not call Python, because most keys are strings.
            (Value::Str(a), Value::Str(b)) => a == b,
            _ => matches!(self.fold_compare(Comparison::Eq, a, b)?, Some(Value::Bool(true))),
        })
    }

    /// A set exists at compile time only, as an object of the outside.
    pub(super) fn lower_set(&mut self, items: &[Expr]) -> Result<Value> {
        if self.static_depth == 0 {
            let is_made = matches!(items, [Expr { kind: ExprKind::Starred(_), .. }]);
            let node = if is_made { "SetComp" } else { "Set" };
            return Err(Diagnostic::new(Code::Syntax, self.b.span, format!("Unsupported node \"{node}\""))
                .with_hint("sets are supported only inside `qd.static(...)`"));
        }
        let items = Value::list(self.lower_exprs(items)?);
        let func = self.frame_ref().func;
        match (self.to_host(&items), self.world.global(func, "set")) {
            (Some(_), Ok(Some(set))) => self.call_host(set, &[items], &[]),
            _ => self.err(Code::Type, "the items of a set must be known at compile time"),
        }
    }
}
