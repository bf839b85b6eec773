//! Decides which calls of a `@qd.func` become calls of an IR function, compiled once for all calls with the same kinds
//! of arguments, and which are inlined.
//!
//! Inlined are: small leaf functions, whose code is hardly larger than a call; functions whose loops are parallel
//! because they are called at the top level of a kernel; and functions that take or return something that an IR
//! function cannot, such as a loop range or a method.

use super::{Lowerer, ParsedFunction};
use crate::value::Value;
use crate::world::{Entity, FuncKind, Obj};

/// Maximum size of functions that are always inlined.
const SMALL: usize = 40;

/// The size of a call, without its arguments.
const CALL: usize = 16;

/// In functions above this size numbers are not compiled in, so that calls with other numbers share the code.
const LARGE: usize = 120;

impl Lowerer<'_> {
    pub(super) fn becomes_function(&mut self, func: Obj, parsed: &ParsedFunction, args: &[Value]) -> bool {
        if parsed.facts.nested_return {
            return !(self.at_top_level() && parsed.facts.task_loop);
        }
        // Another call may be in code that differentiates the same arrays.
        if !self.stopped.is_empty() || !args.iter().all(|v| self.can_be_passed(v)) {
            return false;
        }
        if self.at_top_level() && self.may_loop(func) {
            return false;
        }
        // Messages of debug mode name the calls that led to an access.
        if args.iter().any(|v| self.as_checked_view(v).is_some()) {
            return false;
        }
        // The patch belongs to the enclosing loop.
        if self.mesh_loop.is_some() && parsed.facts.callees.iter().any(|path| self.is_patch_index(func, path)) {
            return false;
        }
        let facts = &parsed.facts;
        facts.size > SMALL || facts.size + CALL * self.calls_of_functions(func, &facts.callees) > SMALL
    }

    /// Whether a number argument is a run-time value in the function. `qd.static`, `range` and other calls see a
    /// variable in any case; it matters for indices and conditions that are known at compile time.
    pub(super) fn number_at_run_time(&self, parsed: &ParsedFunction, name: &str, v: &Value) -> bool {
        let facts = &parsed.facts;
        let number = match v {
            Value::Int(i) => i32::try_from(*i).is_ok(),
            Value::Float(_) => true,
            _ => false,
        };
        number && (facts.mutated.contains(name) || (facts.size > LARGE && !facts.decisive.contains(name)))
    }

    fn can_be_passed(&self, v: &Value) -> bool {
        match v {
            Value::Rt(_) | Value::Var(_) | Value::Place(_) | Value::Element(_) => true,
            Value::Tuple(items) | Value::List(items) => items.iter().all(|v| self.can_be_passed(v)),
            Value::Dict(items) => items.iter().all(|(k, v)| k.is_compile_time() && self.can_be_passed(v)),
            Value::Members(m) if !m.is_array => m.items.iter().all(|(_, v)| self.can_be_passed(v)),
            v => is_fixed(v),
        }
    }

    /// Lowering the function at the top level of a kernel may yield a parallel loop.
    fn may_loop(&mut self, func: Obj) -> bool {
        if let Some(known) = self.may_loop.get(&func) {
            return *known;
        }
        // Asked again from inside of itself, the function adds nothing.
        self.may_loop.insert(func, false);
        let found = match self.parse(func) {
            Err(_) => true,
            Ok(parsed) => {
                parsed.source.requires_top_level
                    || parsed.facts.runtime_for
                    || parsed.facts.callees.iter().any(|path| match self.callee(func, path) {
                        Some(callee) => self.is_lowered(callee).is_some_and(|f| self.may_loop(f)),
                        None => true,
                    })
            }
        };
        self.may_loop.insert(func, found);
        found
    }

    /// How many calls are not of the compiler's own functions.
    fn calls_of_functions(&mut self, func: Obj, callees: &[Vec<String>]) -> usize {
        let is_other =
            |s: &mut Self, path: &Vec<String>| s.callee(func, path).is_none_or(|f| s.is_lowered(f).is_some());
        callees.iter().filter(|path| is_other(self, path)).count()
    }

    /// The object that a chain of names denotes in a function, if it can be determined without lowering the function.
    fn callee(&mut self, func: Obj, path: &[String]) -> Option<Obj> {
        let (first, rest) = path.split_first()?;
        let parsed = self.parse(func).ok()?;
        let is_local = parsed.facts.mutated.contains(first) || parsed.source.params.iter().any(|p| p.name == *first);
        if is_local {
            return None;
        }
        let mut obj = self.world.global(func, first).ok()??;
        for name in rest {
            obj = self.world.attribute(obj, name).ok()??;
        }
        Some(obj)
    }

    fn is_patch_index(&mut self, func: Obj, path: &[String]) -> bool {
        let callee = self.callee(func, path);
        callee.is_some_and(|f| matches!(self.world.entity(f), Entity::Builtin(name) if name == "mesh_patch_idx"))
    }

    /// The function whose text a call of the object would lower.
    fn is_lowered(&self, obj: Obj) -> Option<Obj> {
        match self.world.entity(obj) {
            Entity::Func(FuncKind::Kernel) => None,
            Entity::Func(_) => Some(obj),
            Entity::Method(f, _) => Some(f),
            Entity::Partial { func, .. } => self.is_lowered(func),
            _ => self.call_operator(obj).and_then(|func| self.is_lowered(func)),
        }
    }
}

/// Nothing in the value is computed by the kernel: it means the same in every body.
pub(super) fn is_fixed(v: &Value) -> bool {
    match v {
        Value::Array(_) | Value::Dataclass(_) => true,
        Value::Members(m) => m.is_array && m.items.iter().all(|(_, v)| is_fixed(v)),
        Value::Tuple(items) | Value::List(items) => items.iter().all(is_fixed),
        Value::Dict(items) => items.iter().all(|(k, v)| is_fixed(k) && is_fixed(v)),
        v => v.is_compile_time(),
    }
}
