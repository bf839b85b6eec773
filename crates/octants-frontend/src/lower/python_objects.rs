//! Lists, dicts and sets of Python: kernels read them at compile time and do not change them.

use octants_diag::{Code, Diagnostic, Result};

use super::Lowerer;
use crate::ast::{Expr, ExprKind};
use crate::value::Value;
use crate::world::{Entity, Obj};

/// Python's containers that can change.
const CONTAINERS: [&str; 8] = ["list", "dict", "set", "deque", "defaultdict", "OrderedDict", "Counter", "bytearray"];

/// The methods that change them.
const CHANGES: [&str; 22] = [
    "append",
    "extend",
    "insert",
    "pop",
    "remove",
    "clear",
    "sort",
    "reverse",
    "update",
    "setdefault",
    "popitem",
    "add",
    "discard",
    "appendleft",
    "extendleft",
    "popleft",
    "rotate",
    "subtract",
    "difference_update",
    "intersection_update",
    "symmetric_difference_update",
    "move_to_end",
];

impl Lowerer<'_> {
    /// Refuses a method that would change a container that is known at compile time.
    pub(super) fn refuse_change(&mut self, container: &Value, method: &str) -> Result<()> {
        let is_container = matches!(container, Value::List(_) | Value::Static(_) | Value::Dict(_));
        if !is_container || !CHANGES.contains(&method) {
            return Ok(());
        }
        let what = self.describe(container);
        Err(self.changing(&what, method))
    }

    /// As [`Lowerer::refuse_change`], for a method of an object of Python.
    pub(super) fn refuse_changing_method(&mut self, method: Obj) -> Result<()> {
        // Each launch checks again every question that is asked about an object, so only methods of Python's own types
        // are inspected.
        if self.world.type_name(method) != "builtin_function_or_method" {
            return Ok(());
        }
        let attribute = |of, name| self.world.attribute(of, name).ok().flatten();
        let Some(Entity::Str(name)) = attribute(method, "__name__").map(|o| self.world.entity(o)) else {
            return Ok(());
        };
        if !CHANGES.contains(&&*name) {
            return Ok(());
        }
        match attribute(method, "__self__").map(|owner| self.world.type_name(owner)) {
            Some(class) if CONTAINERS.contains(&class.as_str()) => Err(self.changing(&format!("a {class}"), &name)),
            _ => Ok(()),
        }
    }

    fn changing(&self, what: &str, method: &str) -> Box<Diagnostic> {
        let message = format!("`{method}` would change {what} of Python, which a kernel cannot do");
        Diagnostic::new(Code::Syntax, self.b.span, message).with_hint(
            "change it before the kernel is called; a list that is a variable of the kernel has `append`, `extend`, \
             `insert` and `pop`",
        )
    }

    /// Refuses an assignment to an item of a container of Python, before the item is looked up.
    pub(super) fn refuse_item_assignment(&mut self, base: &Value, target: &Expr) -> Result<()> {
        let is_python = match base {
            Value::Dict(_) => true,
            Value::Obj(obj) => {
                self.world.entity(*obj) == Entity::Opaque && CONTAINERS.contains(&self.world.type_name(*obj).as_str())
            }
            _ => false,
        };
        if !is_python {
            return Ok(());
        }
        let what = self.describe(base);
        let text = self.source_text(target.span);
        let message =
            format!("`{text}` cannot be assigned in a kernel: it is an item of {what}, known at compile time");
        Err(Diagnostic::new(Code::Syntax, target.span, message)
            .with_hint("change it before the kernel is called, or use a field or an ndarray"))
    }

    /// Refuses an assignment target that is neither a variable nor memory.
    pub(super) fn check_target(&mut self, target: &Expr, place: &Value, name: &str) -> Result<()> {
        let changes = match place {
            Value::Var(_) | Value::Place(_) | Value::Members(_) | Value::Element(_) | Value::Tile(_) => true,
            Value::Rt(_) => self.is_tile(place)?,
            v => v.items().is_some_and(|items| !items.is_empty()),
        };
        if changes {
            return Ok(());
        }
        let what = self.describe(place);
        let text = self.source_text(target.span);
        let root = root(target);
        let argument = root.filter(|n| self.lookup(n).is_some_and(|b| b.immutable == Some("kernel argument")));
        let is_object = matches!(place, Value::Obj(o) if !matches!(self.world.entity(*o),
            Entity::Opaque | Entity::TensorConst { .. } | Entity::StructConst { .. }));
        let (why, hint) = match (argument, &target.kind) {
            _ if matches!(place, Value::Array(_)) || is_object => {
                (format!("it is {what}"), String::from("assign or update its elements, in a loop"))
            }
            (Some(argument), _) if matches!(place, Value::Rt(_)) => (
                format!("the kernel argument `{argument}` is immutable"),
                format!("copy it: `{argument}_copy = {argument}`"),
            ),
            (_, ExprKind::Name(name)) => {
                let from =
                    if self.lookup(name).is_some() { "known at compile time" } else { "from outside the kernel" };
                (format!("it is {what} {from}"), format!("copy it: `{name}_copy = {name}`"))
            }
            _ => (
                format!("it is {what}, known at compile time"),
                String::from("use a field or an ndarray for data that a kernel changes"),
            ),
        };
        Err(Diagnostic::new(Code::Syntax, target.span, format!("`{text}` cannot be {name} in a kernel: {why}"))
            .with_hint(hint))
    }
}

/// The name that a chain of attributes and subscripts begins with.
fn root(e: &Expr) -> Option<&str> {
    match &e.kind {
        ExprKind::Name(n) => Some(n),
        ExprKind::Attribute(base, _) | ExprKind::Subscript(base, _) => root(base),
        _ => None,
    }
}
