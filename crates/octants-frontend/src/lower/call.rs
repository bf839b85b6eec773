//! Calls: resolves the callee and its arguments, and evaluates the call at compile time or lowers it.

use std::rc::Rc;

use octants_diag::{Code, Diagnostic, Result};
use octants_ir::Type;

use super::values::holds;
use super::{Lowerer, ParsedFunction};
use crate::ast::{Arguments, Expr, ExprKind};
use crate::syntax_facts::last_write;
use crate::value::Value;
use crate::world::{Entity, FuncKind, Obj};

/// Which arguments a callee takes by reference, so that it reads them itself.
enum References {
    None,
    First,
    All,
    /// Those of its parameters that are annotated so; the number of parameters that are bound already.
    Params(Rc<ParsedFunction>, usize),
}

impl References {
    fn positional(&self, lowerer: &mut Lowerer, i: usize) -> bool {
        match self {
            References::None => false,
            References::First => i == 0,
            References::All => true,
            References::Params(parsed, bound) => {
                parsed.source.params.len() <= i + bound
                    || lowerer.is_reference(parsed, i + bound, false).unwrap_or(true)
            }
        }
    }

    fn keyword(&self, lowerer: &mut Lowerer, name: &str) -> bool {
        match self {
            References::Params(parsed, bound) => {
                let i = parsed.source.params.iter().position(|p| p.name == name);
                i.is_none_or(|i| i >= *bound && self.positional(lowerer, i - bound))
            }
            References::All => true,
            References::None | References::First => false,
        }
    }
}

impl Lowerer<'_> {
    pub(super) fn lower_call(&mut self, func: &Expr, arguments: &Arguments) -> Result<Value> {
        if matches!(&func.kind, ExprKind::Name(name) if name == "super") && arguments.positional.is_empty() {
            return Err(Diagnostic::new(
                Code::Syntax,
                self.b.span,
                "super() without arguments is not supported in a kernel",
            )
            .with_hint("write `super(Class, self).method()`, or `Base.method(self)`"));
        }
        if let Some(done) = self.lower_list_operation(func, arguments)? {
            return Ok(done);
        }
        let callee = self.lower_expr(func)?;
        let is_static = matches!(&callee, Value::Obj(o) if matches!(self.world.entity(*o),
            Entity::Builtin(n) if n == "static" || n == "static_assert"));
        self.static_depth += u32::from(is_static);
        let arguments = self.lower_arguments(&callee, arguments);
        self.static_depth -= u32::from(is_static);
        let (args, kwargs) = arguments?;
        if self.static_depth == 0 {
            self.warn_of_plain_call(func, &callee);
        }
        // A list that is a variable grows in place.
        if let (Value::Method(m), ExprKind::Attribute(base, _)) = (&callee, &func.kind)
            && let (Value::List(_), ExprKind::Name(name)) = (&m.0, &base.kind)
            && kwargs.is_empty()
            && self.lookup(name).is_some()
            && let Some(change) = ListChange::of(&m.1, &args)
        {
            // Without the method, which holds the list too, the items need not be copied.
            drop(callee);
            let span = self.b.span;
            let Some(Value::List(items)) = self.lookup_mut(name) else { return Ok(Value::None) };
            return change.apply(Rc::make_mut(items)).ok_or_else(|| {
                Diagnostic::new(Code::Index, span, format!("pop from an empty list or index out of range: `{name}`"))
            });
        }
        self.call(&callee, args, kwargs)
    }

    /// Warns about calls of plain Python functions, which are easily mistaken for functions that run with the kernel.
    fn warn_of_plain_call(&mut self, func: &Expr, callee: &Value) {
        let Value::Obj(obj) = *callee else { return };
        let function = match self.world.entity(obj) {
            Entity::Method(function, _) => function,
            _ => obj,
        };
        let is_plain = match self.world.entity(function) {
            Entity::Func(FuncKind::Plain) => !self.is_part_of_the_language(function),
            Entity::Partial { func, .. } => !self.is_part_of_the_language(func),
            // A class of the user's, whose `__init__` runs while the kernel is compiled.
            Entity::Opaque => self.class_module(obj).is_some_and(|m| {
                m != "builtins" && m != "octants" && !m.starts_with("octants.") && !m.starts_with("numpy")
            }),
            _ => false,
        };
        if !is_plain {
            return;
        }
        let name = dotted_name(func).unwrap_or_else(|| self.describe(callee));
        let text = format!(
            "Calling non-quadrants function \"{name}\": if all its arguments are known at compile time, it runs in \
             Python during compilation; otherwise it is compiled like a @qd.func"
        );
        let hint = "make it a @qd.func, or call it in qd.static(...)";
        self.world.warn(*Diagnostic::new(Code::Syntax, func.span, text).with_hint(hint));
    }

    /// A `@qd.pyfunc`, or a function of this package.
    fn is_part_of_the_language(&self, function: Obj) -> bool {
        let attribute = |name| self.world.attribute(function, name).ok().flatten();
        let module = attribute("__module__").map(|m| self.world.entity(m));
        matches!(module, Some(Entity::Str(m)) if m == "octants" || m.starts_with("octants."))
            || attribute("_octants_pyfunc").is_some()
    }

    fn lookup_mut(&mut self, name: &str) -> Option<&mut Value> {
        self.frame().scopes.iter_mut().rev().find_map(|s| s.get_mut(name)).map(|b| &mut b.value)
    }

    /// Arguments in order. A value that a later argument may change is read before it, unless it is passed by
    /// reference.
    #[allow(clippy::type_complexity)] // Positional and keyword arguments, as Python has them.
    pub(super) fn lower_arguments(
        &mut self,
        callee: &Value,
        arguments: &Arguments,
    ) -> Result<(Vec<Value>, Vec<(String, Value)>)> {
        let all = arguments.positional.iter().chain(arguments.keywords.iter().map(|k| &k.1));
        let writes = last_write(all);
        let takes = if writes > 0 { self.references_of(callee) } else { References::All };
        let mut args = Vec::new();
        for (i, e) in arguments.positional.iter().enumerate() {
            match &e.kind {
                ExprKind::Starred(inner) => {
                    let v = self.lower_expr(inner)?;
                    args.extend(self.unpack(&v)?);
                }
                _ => {
                    let v = self.lower_whole(e)?;
                    let is_reference = i >= writes || takes.positional(self, args.len());
                    args.push(if is_reference { v } else { self.detach_deep(v)? });
                }
            }
        }
        let mut kwargs = Vec::new();
        for (i, (name, e)) in arguments.keywords.iter().enumerate() {
            let v = self.lower_whole(e)?;
            let is_reference =
                arguments.positional.len() + i >= writes || name.as_ref().is_some_and(|n| takes.keyword(self, n));
            let v = if is_reference { v } else { self.detach_deep(v)? };
            match name {
                Some(name) => kwargs.push((name.clone(), v)),
                None => kwargs.extend(self.member_values(&v)?),
            }
        }
        Ok((args, kwargs))
    }

    fn references_of(&mut self, callee: &Value) -> References {
        let Value::Obj(obj) = callee else { return References::All };
        let (func, bound) = match self.world.entity(*obj) {
            Entity::Method(func, _) => (func, 1),
            Entity::Opaque => self.call_operator(*obj).map_or((*obj, 0), |func| (func, 1)),
            _ => (*obj, 0),
        };
        match self.world.entity(func) {
            Entity::Func(_) => match self.parse(func) {
                Ok(parsed) => References::Params(parsed, bound),
                Err(_) => References::All,
            },
            Entity::Partial { func: inner, args, .. } => match self.references_of(&Value::Obj(inner)) {
                References::Params(parsed, bound) => References::Params(parsed, bound + args.len()),
                other => other,
            },
            Entity::Builtin(name) if name.starts_with("atomic_") || name == "volatile_load" => References::First,
            _ => References::None,
        }
    }

    pub(super) fn call(&mut self, callee: &Value, args: Vec<Value>, kwargs: Vec<(String, Value)>) -> Result<Value> {
        match callee {
            Value::Obj(obj) => self.call_object(*obj, args, kwargs),
            Value::Method(m) => {
                let (base, name) = (&m.0, m.1.as_str());
                let is_container = matches!(
                    base,
                    Value::Str(_) | Value::Tuple(_) | Value::List(_) | Value::Static(_) | Value::Dict(_)
                );
                let args = match is_container {
                    true => args.into_iter().map(|v| self.plain_operand(v)).collect(),
                    false => args,
                };
                self.call_method(base, name, args, kwargs)
            }
            // An old way to write a component: `v(0)`, `m(0, 1)`.
            tensor if kwargs.is_empty() && self.runtime_type(tensor).is_some_and(|t| t.is_tensor()) => {
                self.subscript(tensor, args)
            }
            other => {
                let what = self.describe(other);
                self.err(Code::Type, format!("{what} cannot be called"))
            }
        }
    }

    pub(super) fn call_object(
        &mut self,
        obj: Obj,
        mut args: Vec<Value>,
        mut kwargs: Vec<(String, Value)>,
    ) -> Result<Value> {
        let entity = self.world.entity(obj);
        let is_of_language = match &entity {
            Entity::Builtin(name) => name != "static",
            Entity::Dtype(_) | Entity::TensorType(_) | Entity::AnyTensorType(_) | Entity::StructType { .. } => true,
            _ => false,
        };
        if is_of_language && !self.enum_members.is_empty() {
            args = args.into_iter().map(|v| self.plain_operand(v)).collect();
            kwargs = kwargs.into_iter().map(|(name, v)| (name, self.plain_operand(v))).collect();
        }
        match entity {
            Entity::Func(FuncKind::Kernel) => Err(Diagnostic::new(
                Code::Syntax,
                self.b.span,
                "Kernels cannot call other kernels. I.e., nested kernels are not allowed.",
            )
            .with_hint("make the inner one a `@qd.func`, or call both from Python")),
            Entity::Func(FuncKind::Plain) => {
                self.refuse_wrapper(obj)?;
                if self.are_compile_time(&args, &kwargs) {
                    return self.call_host(obj, &args, &kwargs);
                }
                self.call_function(obj, FuncKind::Plain, args, kwargs)
            }
            Entity::Func(kind) => self.call_function(obj, kind, args, kwargs),
            Entity::Method(func, receiver) => {
                if let Entity::Func(FuncKind::Plain) = self.world.entity(func)
                    && self.are_compile_time(&args, &kwargs)
                {
                    return self.call_host(obj, &args, &kwargs);
                }
                if let Some((index, path)) = self.reached.get(&obj).cloned() {
                    let mut path = path;
                    path.pop();
                    self.reached.entry(receiver).or_insert((index, path));
                }
                let receiver = self.lift(receiver);
                args.insert(0, receiver);
                self.call_object(func, args, kwargs)
            }
            Entity::Builtin(name) if matches!(name.as_str(), "do_while" | "cond") && args.len() == 1 => {
                let (word, statement) = if name == "cond" { ("if", "an `if`") } else { ("while", "a `while`") };
                let text = format!("qd.graph.{name}(...) must be the whole condition of {statement}");
                let hint = format!("put the whole expression in the call: `{word} qd.graph.{name}(not n[()]):`");
                Err(Diagnostic::new(Code::Syntax, self.b.span, text).with_hint(hint))
            }
            Entity::Builtin(name) => self.call_builtin(obj, &name, args, kwargs),
            Entity::Dtype(s) => {
                // `np.float32(x)` of a compile-time value is evaluated by numpy.
                let own = matches!(self.world.attribute(obj, "_octants_entity"), Ok(Some(_)));
                if !own && args.iter().all(|v| self.to_host(v).is_some()) {
                    return self.call_host(obj, &args, &kwargs);
                }
                let ([v], true) = (&args[..], kwargs.is_empty()) else {
                    return self.err(Code::Syntax, "A primitive type can only decorate a single expression.");
                };
                self.typed_literal(v, s)
            }
            Entity::TensorType(ty) | Entity::AnyTensorType(ty) => self.construct_tensor(&ty, &args),
            Entity::StructType { .. } => self.construct_struct(obj, &args, &kwargs),
            Entity::Partial { func, args: first, keywords } => {
                let mut all: Vec<_> = first.into_iter().map(|o| self.lift(o)).collect();
                all.extend(args);
                let mut named: Vec<_> = keywords.into_iter().map(|(name, o)| (name, self.lift(o))).collect();
                named.retain(|(name, _)| kwargs.iter().all(|(given, _)| given != name));
                named.extend(kwargs);
                self.call_object(func, all, named)
            }
            _ => {
                if let Some(func) = self.call_operator(obj)
                    && (self.world.entity(func) != Entity::Func(FuncKind::Plain)
                        || !self.are_compile_time(&args, &kwargs))
                {
                    args.insert(0, Value::Obj(obj));
                    return self.call_object(func, args, kwargs);
                }
                self.refuse_changing_method(obj)?;
                if self.are_compile_time(&args, &kwargs) {
                    return self.call_host(obj, &args, &kwargs);
                }
                Err(self.called_at_run_time(obj))
            }
        }
    }

    /// The `@qd.func` of a property, which Python cannot ask for its value.
    pub(super) fn property_function(&self, obj: Obj, name: &str) -> Option<Obj> {
        let attribute = |of, name| self.world.attribute(of, name).ok().flatten();
        let getter = attribute(attribute(attribute(obj, "__class__")?, name)?, "fget")?;
        matches!(self.world.entity(getter), Entity::Func(kind) if kind != FuncKind::Plain).then_some(getter)
    }

    /// The error about a call that only Python could make, and whose arguments are known only at run time.
    fn called_at_run_time(&mut self, obj: Obj) -> Box<Diagnostic> {
        let name = self.world.attribute(obj, "__name__").ok().flatten().map(|n| self.world.entity(n));
        let (what, hint) = match (self.class_module(obj), name) {
            (Some(_), Some(Entity::Str(name))) => (
                format!("the class `{name}`"),
                "make it a @qd.dataclass, or create the object before the kernel is called",
            ),
            (_, Some(Entity::Str(name))) => (
                format!("`{name}`, an object of type {},", self.world.type_name(obj)),
                "write it as a @qd.func, or use a function of this package, such as `qd.sqrt`",
            ),
            _ => (self.describe_object(obj), "write it as a @qd.func"),
        };
        let text = format!("{what} cannot be called with run-time values in a kernel");
        Diagnostic::new(Code::Type, self.b.span, text).with_hint(hint)
    }

    /// The module of a class of Python; none for other objects.
    pub(super) fn class_module(&self, obj: Obj) -> Option<String> {
        if !matches!(self.world.type_name(obj).as_str(), "type" | "ABCMeta") {
            return None;
        }
        match self.world.entity(self.world.attribute(obj, "__module__").ok()??) {
            Entity::Str(module) => Some(module.to_string()),
            _ => None,
        }
    }

    /// The `__call__` of an object, if its class defines it in Python. It takes the object as its first argument.
    pub(super) fn call_operator(&self, obj: Obj) -> Option<Obj> {
        if self.world.entity(obj) != Entity::Opaque {
            return None;
        }
        let class = self.world.attribute(obj, "__class__").ok()??;
        let func = self.world.attribute(class, "__call__").ok()??;
        matches!(self.world.entity(func), Entity::Func(_)).then_some(func)
    }

    fn are_compile_time(&self, args: &[Value], kwargs: &[(String, Value)]) -> bool {
        args.iter().chain(kwargs.iter().map(|k| &k.1)).all(|v| self.to_host(v).is_some())
    }

    /// Calls Python at compile time.
    /// A decorator's own function around a `@qd.func` is Python, which a kernel does not run.
    fn refuse_wrapper(&mut self, obj: Obj) -> Result<()> {
        let wrapped = self.world.attribute(obj, "__wrapped__").map_err(|e| self.host_error(e))?;
        match wrapped.map(|w| self.world.entity(w)) {
            Some(Entity::Func(FuncKind::Func | FuncKind::Real)) => Err(Diagnostic::new(
                Code::Syntax,
                self.b.span,
                "a decorator (functools.wraps) replaced this @qd.func by a Python function, which a kernel cannot call",
            )
            .with_hint("call the undecorated @qd.func, or move the decorator's code into a @qd.func")),
            _ => Ok(()),
        }
    }

    pub(super) fn call_host(&mut self, obj: Obj, args: &[Value], kwargs: &[(String, Value)]) -> Result<Value> {
        let handle = |s: &Self, v: &Value| s.to_host(v).expect("compiler bug: a compile-time value has no host object");
        let args: Vec<Obj> = args.iter().map(|v| handle(self, v)).collect();
        let kwargs: Vec<(String, Obj)> = kwargs.iter().map(|(n, v)| (n.clone(), handle(self, v))).collect();
        self.lifted.clear();
        let result = self.world.call(obj, &args, &kwargs).map_err(|e| self.host_error(e))?;
        Ok(self.lift(result))
    }

    fn call_method(
        &mut self,
        base: &Value,
        name: &str,
        args: Vec<Value>,
        kwargs: Vec<(String, Value)>,
    ) -> Result<Value> {
        if name == "subview"
            && let Some(view) = self.as_view(base)
        {
            return self.lower_subview(&view, &args, &kwargs);
        }
        if name == "get_ndarray"
            && args.is_empty()
            && kwargs.is_empty()
            && matches!(base, Value::View(_) | Value::Array(_))
        {
            return self.attribute(base, "arr");
        }
        self.refuse_change(base, name)?;
        match base {
            Value::Str(s) if name == "format" => {
                let s = s.clone();
                return self.format_string(&s, &args, &kwargs);
            }
            Value::Dict(items) if matches!(name, "keys" | "values" | "items") => {
                return Ok(Value::list(
                    items
                        .iter()
                        .map(|(k, v)| match name {
                            "keys" => k.clone(),
                            "values" => v.clone(),
                            _ => Value::tuple(vec![k.clone(), v.clone()]),
                        })
                        .collect(),
                ));
            }
            Value::Array(_) | Value::Obj(_) if name == "fill" => {
                let [value] = &args[..] else { return self.err(Code::Type, "`fill` takes one value") };
                return self.fill_array(base, value);
            }
            Value::Obj(obj) if self.is_numpy_array(*obj) && self.are_compile_time(&args, &kwargs) => {
                if let Some(method) = self.world.attribute(*obj, name).map_err(|e| self.host_error(e))? {
                    return self.call_host(method, &args, &kwargs);
                }
            }
            Value::Dataclass(d) => {
                if let Value::Obj(f) = self.host_attribute(d.obj, name)? {
                    let mut all = vec![base.clone()];
                    all.extend(args);
                    return match self.world.entity(f) {
                        Entity::Method(f, _) => self.call_object(f, all, kwargs),
                        _ => self.call_object(f, all, kwargs),
                    };
                }
            }
            Value::Str(_) | Value::List(_) | Value::Tuple(_) | Value::Dict(_) if base.is_compile_time() => {
                if let Some(obj) = self.to_host(base) {
                    let found = self.world.attribute(obj, name).map_err(|e| self.host_error(e))?;
                    if let Some(method) = found {
                        return self.call_host(method, &args, &kwargs);
                    }
                }
            }
            _ => {}
        }
        let struct_type = match base {
            Value::Members(m) => m.ty,
            _ => match self.runtime_type(base) {
                Some(Type::Struct(s)) => self.struct_objects.get(&s).copied(),
                _ => None,
            },
        };
        if let Some(ty) = struct_type
            && let Some(method) = self.find_struct_method(ty, name)?
        {
            let mut all = vec![base.clone()];
            all.extend(args);
            return self.call_struct_method(method, all, kwargs);
        }
        if let Some(v) = self.tensor_method(base, name, &args, &kwargs)? {
            return Ok(v);
        }
        let what = self.describe(base);
        self.err(Code::Compilation, format!("{what} has no method `{name}`"))
    }

    /// A method of a struct type: `self` is passed by reference, decorated or not.
    fn call_struct_method(&mut self, method: Obj, args: Vec<Value>, kwargs: Vec<(String, Value)>) -> Result<Value> {
        match self.world.entity(method) {
            Entity::Func(kind) => self.call_method_by_reference(method, kind, args, kwargs),
            _ => self.call_object(method, args, kwargs),
        }
    }

    /// `qd.f32(x)`: a literal of that type, or a conversion.
    fn typed_literal(&mut self, v: &Value, s: octants_ir::Scalar) -> Result<Value> {
        match v {
            Value::Int(_) if s.is_float() => {
                return self.err(
                    Code::Type,
                    "Integer literals must be annotated with a integer type. For type casting, use `qd.cast`.",
                );
            }
            Value::Float(_) if !s.is_float() => {
                return self.err(
                    Code::Type,
                    "Floating-point literals must be annotated with a floating-point type. For type casting, use \
                     `qd.cast`.",
                );
            }
            Value::Int(i) if !holds(s, *i) => {
                return self.err(Code::Type, format!("Integer literal {i} exceeded the range of specified dtype: {s}"));
            }
            _ => {}
        }
        let value = self.cast_value(v, s)?;
        if self.b.ty(value).is_tensor() {
            return self.err(Code::Syntax, "A primitive type cannot decorate an expression with a compound type.");
        }
        Ok(Value::Rt(value))
    }

    /// A method of a struct value: `self` by reference, so that it can change its members.
    pub(super) fn call_method_by_reference(
        &mut self,
        method: Obj,
        kind: FuncKind,
        args: Vec<Value>,
        kwargs: Vec<(String, Value)>,
    ) -> Result<Value> {
        self.self_by_reference = true;
        let result = self.call_function(method, kind, args, kwargs);
        self.self_by_reference = false;
        result
    }
}

/// `f`, `self.f`, `module.f`.
fn dotted_name(e: &Expr) -> Option<String> {
    match &e.kind {
        ExprKind::Name(name) => Some(name.clone()),
        ExprKind::Attribute(base, name) => Some(format!("{}.{name}", dotted_name(base)?)),
        _ => None,
    }
}

/// The change that a list method makes.
enum ListChange {
    Extend(Vec<Value>),
    Insert(i128, Value),
    Pop(i128),
}

impl ListChange {
    fn of(method: &str, args: &[Value]) -> Option<ListChange> {
        Some(match (method, args) {
            ("append", [item]) => ListChange::Extend(vec![item.clone()]),
            ("extend", [more]) => ListChange::Extend(more.items()?.to_vec()),
            ("insert", [Value::Int(at), item]) => ListChange::Insert(*at, item.clone()),
            ("pop", []) => ListChange::Pop(-1),
            ("pop", [Value::Int(at)]) => ListChange::Pop(*at),
            _ => return None,
        })
    }

    /// The method's result; `None` if there is no such item.
    fn apply(self, items: &mut Vec<Value>) -> Option<Value> {
        let count = items.len() as i128;
        let from_start = |at: i128| if at < 0 { at + count } else { at };
        match self {
            ListChange::Extend(more) => items.extend(more),
            ListChange::Insert(at, item) => items.insert(from_start(at).clamp(0, count) as usize, item),
            ListChange::Pop(at) => {
                let at = usize::try_from(from_start(at)).ok().filter(|at| *at < items.len())?;
                return Some(items.remove(at));
            }
        }
        Some(Value::None)
    }
}
