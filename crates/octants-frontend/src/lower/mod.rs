//! [`Lowerer`]: the state of one kernel's lowering, its scopes, and how arguments and host objects become values.

mod assignment;
mod builtins;
mod call;
mod choose_form;
mod compile_time;
mod control;
mod expr;
mod function;
mod loops;
mod outlined;
mod pass;
mod returns;
mod stmt;
mod structs;
mod subscript;
mod tensor;
mod text;

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use octants_diag::{Code, Diagnostic, Result, Sources, Span};
use octants_ir::{
    Buffer, BufferId, Builder, Const, Function, Kernel, Layout, LocalId, LoopConfig, Op, Param, Scalar, StructType,
    Type, ValueId,
};

use crate::arith::type_name;
use crate::ast::Stmt;
use crate::syntax_facts::Facts;
use crate::value::{DataclassArg, Members, Value};
use crate::world::{
    ArgSpec, Capture, Entity, FieldDesc, FuncSource, HostValue, Lowered, NdarrayDesc, Obj, Options, World, WorldError,
};

/// Lowers `kernel` for the given arguments.
///
/// # Errors
/// The user's mistakes, with the sources their spans point into.
pub fn lower(
    world: &dyn World,
    kernel: Obj,
    args: &[ArgSpec],
    options: &Options,
) -> std::result::Result<Lowered, (Vec<Diagnostic>, Sources)> {
    let mut lowerer = Lowerer::new(world, options.clone(), kernel);
    match lowerer.lower_kernel(kernel, args) {
        Ok(returns) => Ok(lowerer.finish(returns)),
        Err(mut d) => {
            d.root = lowerer.parsed.get(&kernel).map_or_else(String::new, |p| p.source.name.clone());
            Err((vec![*d], lowerer.sources))
        }
    }
}

/// Why the statements of a block stopped, as far as that is known at compile time.
#[derive(Debug, Clone, PartialEq)]
enum Flow {
    Normal,
    /// `break` of a static loop.
    Break,
    /// `continue` of a static loop.
    Continue,
    /// The inlined function returned.
    Return,
}

/// What the innermost loop around a statement is.
#[derive(Debug, Clone, Copy, PartialEq)]
enum LoopKind {
    Parallel,
    Serial,
    /// Unrolled; holds the control depth at its entry.
    Static(u32),
}

/// A name's meaning in a scope.
#[derive(Debug, Clone)]
struct Binding {
    value: Value,
    /// A kernel argument or loop index: assignment is an error.
    immutable: Option<&'static str>,
}

/// A function being lowered: the kernel itself, an inlined function, or one that becomes a function of the IR.
struct Frame {
    func: Obj,
    name: String,
    scopes: Vec<HashMap<String, Binding>>,
    /// Names bound in scopes that were left, for the error about them.
    left: HashMap<String, Span>,
    loops: Vec<LoopKind>,
    /// Nesting of run-time control flow in this frame.
    control_depth: u32,
    ret: ReturnMode,
    returned: Option<Value>,
    /// In a `@qd.real_func`: by-value members of dataclass arguments, by parameter position and path.
    bound_params: HashMap<(u32, Vec<String>), ValueId>,
    /// In another function of the IR: the kernel's parameters that it reads, which follow its own.
    borrowed: Option<Borrowed>,
}

/// Parameters of the kernel that a function of the IR reads: its callers pass them along.
#[derive(Debug, Clone, Default)]
struct Borrowed {
    /// How many parameters come before.
    first: u32,
    /// Position and path of each, and what it is.
    params: Vec<(u32, Vec<String>, ArgSpec)>,
}

/// What `return` does.
#[derive(Debug, Clone)]
enum ReturnMode {
    /// The kernel's result, with its annotated types.
    Kernel(Vec<(Obj, Type)>),
    /// The value of an inlined call, or of a function of the IR that returns in one place; the annotated type objects, if any.
    Inline(Option<Obj>),
    /// A function of the IR that returns in several places: result type as annotated or as first returned.
    Function(Option<Type>),
}

struct ParsedFunction {
    source: FuncSource,
    body: Vec<Stmt>,
    file: u32,
    facts: Facts,
}

pub(crate) struct Lowerer<'w> {
    world: &'w dyn World,
    options: Options,
    sources: Sources,
    b: Builder,
    kernel_obj: Obj,
    frames: Vec<Frame>,
    /// Control depth summed over the frames below the current one; 0 at the top level of the kernel.
    outer_control_depth: u32,
    /// The builder builds the kernel's own body, not a function's.
    in_kernel_body: bool,
    /// A `@qd.real_func` is being built, or a function that it calls.
    in_real_function: bool,
    static_depth: u32,
    /// The next call passes its first argument by reference: it is a method of a struct.
    self_by_reference: bool,
    pending_config: Option<LoopConfig>,
    group: Option<u32>,
    next_group: u32,
    overlap_allowed: BTreeSet<u32>,
    parsed: HashMap<Obj, Rc<ParsedFunction>>,
    args: Vec<ArgSpec>,

    params: Vec<Param>,
    param_paths: Vec<(u32, Vec<String>)>,
    buffers: Vec<Buffer>,
    buffer_captures: Vec<Option<Capture>>,
    buffer_objects: Vec<Option<Obj>>,
    /// Arrays of which some axis is longer than i32 counts.
    wide_arrays: BTreeSet<BufferId>,
    /// Arrays of which an index outside means the nearest element.
    clamped_arrays: BTreeSet<BufferId>,
    buffer_of_object: HashMap<Obj, BufferId>,
    buffer_of_path: HashMap<(u32, Vec<String>), BufferId>,
    gradients: HashMap<BufferId, Option<BufferId>>,
    roots: Vec<u32>,
    functions: Vec<Function>,
    /// `None`: a function of the IR cannot return what this one does.
    function_keys: HashMap<outlined::FunctionKey, Option<Rc<outlined::Outlined>>>,
    may_loop: HashMap<Obj, bool>,
    /// In a loop with parallel iterations: how many locals there were before it, which the iterations share.
    shared_locals: usize,
    struct_types: HashMap<Obj, Arc<StructType>>,
    struct_objects: HashMap<Arc<StructType>, Obj>,
    /// How an object was reached from a template parameter, for arrays that must be found again at launch.
    reached: HashMap<Obj, (u32, Vec<String>)>,
    /// Tuples and lists of the outside that were taken apart; forgotten when Python code runs, which may change them.
    lifted: HashMap<Obj, Value>,
    /// Named tuples of the outside that were taken apart, for their names.
    named_tuples: Vec<(Rc<Vec<Value>>, Obj)>,
    /// Variables that hold such a tuple.
    named_variables: Vec<(Rc<Vec<Value>>, Obj)>,
    ret: Type,
}

impl<'w> Lowerer<'w> {
    fn new(world: &'w dyn World, options: Options, kernel_obj: Obj) -> Self {
        Lowerer {
            world,
            options,
            sources: Sources::default(),
            b: Builder::new(),
            kernel_obj,
            frames: Vec::new(),
            outer_control_depth: 0,
            in_kernel_body: true,
            in_real_function: false,
            static_depth: 0,
            self_by_reference: false,
            pending_config: None,
            group: None,
            next_group: 0,
            overlap_allowed: BTreeSet::new(),
            parsed: HashMap::new(),
            args: Vec::new(),
            params: Vec::new(),
            param_paths: Vec::new(),
            buffers: Vec::new(),
            buffer_captures: Vec::new(),
            buffer_objects: Vec::new(),
            wide_arrays: BTreeSet::new(),
            clamped_arrays: BTreeSet::new(),
            buffer_of_object: HashMap::new(),
            buffer_of_path: HashMap::new(),
            gradients: HashMap::new(),
            roots: Vec::new(),
            functions: Vec::new(),
            function_keys: HashMap::new(),
            may_loop: HashMap::new(),
            shared_locals: 0,
            struct_types: HashMap::new(),
            struct_objects: HashMap::new(),
            reached: HashMap::new(),
            lifted: HashMap::new(),
            named_tuples: Vec::new(),
            named_variables: Vec::new(),
            ret: Type::Unit,
        }
    }

    fn lower_kernel(&mut self, kernel: Obj, args: &[ArgSpec]) -> Result<Vec<Obj>> {
        let parsed = self.parse(kernel)?;
        self.args = args.to_vec();
        let mut returns = Vec::new();
        if let Some(annotation) = parsed.source.returns {
            let parts = match self.world.entity(annotation) {
                Entity::Tuple(items) | Entity::List(items) => items,
                _ => vec![annotation],
            };
            for part in parts {
                let span = Span { file: parsed.file, ..Span::default() };
                let ty = self.type_of_object(part, span)?;
                returns.push((part, ty));
            }
        }
        self.ret = match &returns[..] {
            [] => Type::Unit,
            [(_, ty)] => ty.clone(),
            many => Type::Struct(Arc::new(StructType {
                name: "result".into(),
                members: many.iter().enumerate().map(|(i, (_, t))| (i.to_string(), t.clone())).collect(),
            })),
        };
        self.frames.push(Frame::new(kernel, &parsed.source.name, ReturnMode::Kernel(returns.clone())));
        for (i, (param, spec)) in parsed.source.params.iter().zip(args).enumerate() {
            let value = self.argument(i as u32, Vec::new(), spec)?;
            let scalar = matches!(spec, ArgSpec::Value(..));
            self.bind(&param.name, Binding { value, immutable: scalar.then_some("kernel argument") });
        }
        self.lower_body(&parsed.body)?;
        if self.ret != Type::Unit && self.frame().returned.is_none() {
            let span = parsed.body.last().map_or(Span::default(), |s| s.span);
            return Err(Diagnostic::new(
                Code::Syntax,
                span,
                format!("kernel `{}` is annotated with a return type but does not return a value", parsed.source.name),
            )
            .with_hint("add a `return` as the last statement, or drop the annotation"));
        }
        Ok(returns.into_iter().map(|(o, _)| o).collect())
    }

    fn finish(self, returns: Vec<Obj>) -> Lowered {
        let name = self.frames.first().map_or_else(String::new, |f| f.name.clone());
        Lowered {
            kernel: Kernel {
                name,
                params: self.params,
                buffers: self.buffers,
                roots: self.roots.len() as u32,
                functions: self.functions,
                body: self.b.body,
                ret: self.ret,
            },
            buffers: self.buffer_captures,
            roots: self.roots,
            params: self.param_paths,
            returns,
            overlap_allowed: self.overlap_allowed,
            sources: self.sources,
        }
    }

    // Errors.

    fn err<T>(&self, code: Code, message: impl Into<String>) -> Result<T> {
        Err(Diagnostic::new(code, self.b.span, message))
    }

    fn host_error(&self, e: WorldError) -> Box<Diagnostic> {
        let mut d = Diagnostic::new(Code::Host, self.b.span, e.message);
        d.cause = e.cause;
        d
    }

    // Frames and scopes.

    fn frame(&mut self) -> &mut Frame {
        self.frames.last_mut().expect("compiler bug: no function is being lowered")
    }

    fn frame_ref(&self) -> &Frame {
        self.frames.last().expect("compiler bug: no function is being lowered")
    }

    /// Not inside any run-time control flow of the kernel: a loop here is parallel.
    fn at_top_level(&self) -> bool {
        self.in_kernel_body && self.outer_control_depth + self.frame_ref().control_depth == 0
    }

    fn bind(&mut self, name: &str, binding: Binding) {
        self.frame().scopes.last_mut().expect("compiler bug: no scope").insert(name.to_owned(), binding);
    }

    fn bind_value(&mut self, name: &str, value: Value) {
        self.bind(name, Binding { value, immutable: None });
    }

    fn lookup(&self, name: &str) -> Option<&Binding> {
        self.frame_ref().scopes.iter().rev().find_map(|s| s.get(name))
    }

    /// Runs `f` in a scope of its own.
    fn scoped<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.frame().scopes.push(HashMap::new());
        let result = f(self);
        let span = self.b.span;
        let frame = self.frame();
        if let Some(scope) = frame.scopes.pop() {
            for name in scope.into_keys() {
                frame.left.insert(name, span);
            }
        }
        result
    }

    /// Runs `f` inside run-time control flow, with the cursor in a new block.
    fn in_block<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<(octants_ir::BlockId, T)> {
        let block = self.b.body.add_block();
        let back = self.b.set_cursor(block);
        self.frame().control_depth += 1;
        let result = self.scoped(f);
        self.frame().control_depth -= 1;
        self.b.set_cursor(back);
        Ok((block, result?))
    }

    fn parse(&mut self, func: Obj) -> Result<Rc<ParsedFunction>> {
        if let Some(p) = self.parsed.get(&func) {
            return Ok(p.clone());
        }
        let source = self.world.source(func).map_err(|e| self.host_error(e))?;
        let file = self.sources.add(source.file.clone());
        let body = crate::parse::parse_function(&source.file, file)?;
        let facts = crate::syntax_facts::of(&body);
        let parsed = Rc::new(ParsedFunction { source, body, file, facts });
        self.parsed.insert(func, parsed.clone());
        Ok(parsed)
    }

    // Arguments.

    fn argument(&mut self, index: u32, path: Vec<String>, spec: &ArgSpec) -> Result<Value> {
        Ok(match spec {
            ArgSpec::Value(ty, obj) => {
                if let (Type::Struct(s), Some(obj)) = (ty, obj) {
                    self.struct_types.insert(*obj, s.clone());
                    self.struct_objects.insert(s.clone(), *obj);
                }
                if !self.in_kernel_body {
                    return Ok(Value::Rt(self.borrowed_param(index, path, spec, ty)));
                }
                let i = match self.param_paths.iter().position(|p| p.0 == index && p.1 == path) {
                    Some(i) => i,
                    None => {
                        self.params.push(Param { name: self.argument_name(index, &path), ty: ty.clone() });
                        self.param_paths.push((index, path));
                        self.params.len() - 1
                    }
                };
                Value::Rt(self.b.push(Op::Param(i as u32), ty.clone()))
            }
            ArgSpec::Array(desc) => {
                let key = (index, path);
                let id = match self.buffer_of_path.get(&key) {
                    Some(id) => *id,
                    None => {
                        let name = self.argument_name(index, &key.1);
                        let capture = Capture::Arg { index, path: key.1.clone() };
                        let id = self.add_array(name, desc, capture, None);
                        self.buffer_of_path.insert(key, id);
                        id
                    }
                };
                Value::Array(id)
            }
            ArgSpec::Template(obj) => {
                self.reached.entry(*obj).or_insert((index, path));
                self.lift(*obj)
            }
            ArgSpec::Dataclass(obj, members) => {
                Value::Dataclass(Rc::new(DataclassArg { index, path, obj: *obj, members: members.clone() }))
            }
        })
    }

    /// A parameter of the kernel as a function of the IR sees it.
    fn borrowed_param(&mut self, index: u32, path: Vec<String>, spec: &ArgSpec, ty: &Type) -> ValueId {
        let is_function = |f: &&mut Frame| f.borrowed.is_some() || !f.bound_params.is_empty();
        let frame = self.frames.iter_mut().rev().find(is_function);
        let frame = frame.expect("compiler bug: a dataclass member was not passed to the function");
        let Some(borrowed) = &mut frame.borrowed else {
            let bound = frame.bound_params.get(&(index, path));
            return *bound.expect("compiler bug: a dataclass member was not passed to the function");
        };
        let known = borrowed.params.iter().position(|p| p.0 == index && p.1 == path);
        let i = known.unwrap_or_else(|| {
            borrowed.params.push((index, path, spec.clone()));
            borrowed.params.len() - 1
        });
        let number = borrowed.first + i as u32;
        self.b.push(Op::Param(number), ty.clone())
    }

    /// Code here may read the kernel's parameters: no `@qd.real_func` is around it.
    fn sees_parameters(&self) -> bool {
        self.in_kernel_body || !self.in_real_function
    }

    fn argument_name(&self, index: u32, path: &[String]) -> String {
        let base = self
            .parsed
            .get(&self.kernel_obj)
            .and_then(|p| p.source.params.get(index as usize))
            .map_or_else(|| format!("argument {index}"), |p| p.name.clone());
        std::iter::once(base).chain(path.iter().cloned()).collect::<Vec<_>>().join(".")
    }

    fn add_array(&mut self, name: String, desc: &NdarrayDesc, capture: Capture, obj: Option<Obj>) -> BufferId {
        self.buffers.push(Buffer {
            name,
            elem: desc.elem.clone(),
            ndim: desc.ndim,
            layout: if desc.contiguous { Layout::Contiguous } else { Layout::Strided },
        });
        self.buffer_captures.push(Some(capture));
        self.buffer_objects.push(obj);
        let id = BufferId((self.buffers.len() - 1) as u32);
        if desc.wide {
            self.wide_arrays.insert(id);
        }
        if desc.clamped {
            self.clamped_arrays.insert(id);
        }
        id
    }

    /// The gradient of an array argument, as an array of its own.
    fn gradient(&mut self, array: BufferId) -> Option<BufferId> {
        if let Some(known) = self.gradients.get(&array) {
            return *known;
        }
        let Some(Capture::Arg { index, path }) = self.buffer_captures[array.index()].clone() else { return None };
        let mut spec = &self.args[index as usize];
        for name in &path {
            let ArgSpec::Dataclass(_, members) = spec else { return None };
            spec = members.iter().find(|(n, _)| n == name).map(|(_, s)| s)?;
        }
        let ArgSpec::Array(desc) = spec else { return None };
        let (has_one, desc) = (desc.needs_grad, NdarrayDesc { needs_grad: false, ..desc.clone() });
        let found = has_one.then(|| {
            let name = format!("{}.grad", self.buffers[array.index()].name);
            let capture = Capture::Grad { index, path, desc: NdarrayDesc { clamped: false, ..desc.clone() } };
            self.add_array(name, &desc, capture, None)
        });
        self.gradients.insert(array, found);
        found
    }

    fn add_field(&mut self, desc: FieldDesc, obj: Obj) -> BufferId {
        let mut components = desc.components;
        for c in &mut components {
            let i = match self.roots.iter().position(|r| *r == c.root) {
                Some(i) => i,
                None => {
                    self.roots.push(c.root);
                    self.roots.len() - 1
                }
            };
            c.root = i as u32;
        }
        self.buffers.push(Buffer {
            name: desc.name,
            elem: desc.elem,
            ndim: desc.shape.len() as u32,
            layout: Layout::Dense { shape: desc.shape, offset: desc.offset, components },
        });
        self.buffer_captures.push(None);
        self.buffer_objects.push(Some(obj));
        BufferId((self.buffers.len() - 1) as u32)
    }

    // Host objects.

    /// The value of a host object: numbers, strings, tuples and lists are taken apart, arrays become buffers when used.
    fn lift(&mut self, obj: Obj) -> Value {
        if let Some(v) = self.lifted.get(&obj) {
            return v.clone();
        }
        let v = match self.world.entity(obj) {
            Entity::None => Value::None,
            Entity::Bool(b) => Value::Bool(b),
            Entity::Int(i) => Value::Int(i),
            Entity::Float(f) => Value::Float(f),
            Entity::Str(s) => Value::str(&s),
            Entity::Tuple(items) => Value::tuple(items.into_iter().map(|o| self.lift(o)).collect()),
            Entity::List(items) => Value::list(items.into_iter().map(|o| self.lift(o)).collect()),
            Entity::Live(scalar) => self.live_number(obj, scalar),
            _ => Value::Obj(obj),
        };
        if let Value::Tuple(items) = &v
            && let Ok(Some(_)) = self.world.attribute(obj, "_fields")
        {
            self.named_tuples.push((items.clone(), obj));
        }
        if matches!(v, Value::Tuple(_) | Value::List(_)) && v.is_compile_time() {
            self.lifted.insert(obj, v.clone());
        }
        v
    }

    /// A number of a template argument that is read at launch: a parameter of its own. A `@qd.real_func` sees no parameters and
    /// takes the number that it is now.
    fn live_number(&mut self, obj: Obj, scalar: Scalar) -> Value {
        let spec = ArgSpec::Value(scalar.into(), None);
        let found = match self.reached.get(&obj).cloned() {
            Some((index, path)) if self.sees_parameters() => self.argument(index, path, &spec).ok(),
            _ => None,
        };
        match found {
            Some(value) => value,
            None => {
                let now = self.world.freeze(obj);
                self.lift(now)
            }
        }
    }

    /// The array that a value stands for, creating the buffer of a field or captured ndarray at its first use.
    fn as_array(&mut self, value: &Value) -> Option<BufferId> {
        match value {
            Value::Array(b) => Some(*b),
            Value::Obj(obj) => {
                if let Some(b) = self.buffer_of_object.get(obj) {
                    return Some(*b);
                }
                let id = match self.world.entity(*obj) {
                    Entity::Field(desc) => self.add_field(desc, *obj),
                    Entity::Ndarray(desc) => {
                        let from = self.reached.get(obj).cloned();
                        self.add_array("ndarray".into(), &desc, Capture::Object { obj: *obj, from }, Some(*obj))
                    }
                    _ => return None,
                };
                self.buffer_of_object.insert(*obj, id);
                Some(id)
            }
            _ => None,
        }
    }

    /// A struct field as its members.
    fn as_members(&mut self, value: &Value) -> Option<Rc<Members>> {
        match value {
            Value::Members(m) => Some(m.clone()),
            Value::Obj(obj) => match self.world.entity(*obj) {
                Entity::StructField(items) => {
                    let ty = self.world.attribute(*obj, "struct_type").ok().flatten();
                    let ty = ty.filter(|t| matches!(self.world.entity(*t), Entity::StructType { .. }));
                    let items = items.into_iter().map(|(n, o)| (n, self.lift(o))).collect();
                    Some(Rc::new(Members { ty, is_array: true, items }))
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// The object of a compile-time value, for calls into the outside.
    fn to_host(&self, value: &Value) -> Option<Obj> {
        let all = |items: &[Value]| items.iter().map(|v| self.to_host(v)).collect::<Option<Vec<_>>>();
        Some(self.world.make(match value {
            Value::Obj(o) => return Some(*o),
            Value::None => HostValue::None,
            Value::Bool(b) => HostValue::Bool(*b),
            Value::Int(i) => HostValue::Int(*i),
            Value::Float(f) => HostValue::Float(*f),
            Value::Str(s) => HostValue::Str(s.to_string()),
            Value::Tuple(v) => HostValue::Tuple(all(v)?),
            Value::List(v) | Value::Static(v) => HostValue::List(all(v)?),
            Value::Dict(d) => HostValue::Dict(
                d.iter().map(|(k, v)| Some((self.to_host(k)?, self.to_host(v)?))).collect::<Option<Vec<_>>>()?,
            ),
            Value::Slice(s) => {
                let part = |v: &Value| match v {
                    Value::None => None,
                    v => self.to_host(v),
                };
                HostValue::Slice(part(&s[0]), part(&s[1]), part(&s[2]))
            }
            Value::Array(b) => return self.buffer_objects[b.index()],
            _ => return None,
        }))
    }

    // Run-time values.

    /// The value as one run-time value: constants become instructions, places are read.
    fn rt(&mut self, value: &Value) -> Result<ValueId> {
        match self.try_rt(value)? {
            Some(v) => Ok(v),
            None => {
                let what = self.describe(value);
                self.err(Code::Type, format!("{what} cannot be used as a value in a kernel"))
            }
        }
    }

    fn try_rt(&mut self, value: &Value) -> Result<Option<ValueId>> {
        Ok(Some(match value {
            Value::Rt(v) => *v,
            Value::Var(local) => {
                let addr = self.b.local_addr(*local);
                self.b.load(addr)
            }
            Value::Place(p) => self.b.load(p.addr),
            Value::Bool(x) => self.b.int(i64::from(*x), Scalar::U1),
            Value::Int(i) => self.int_literal(*i)?,
            Value::Float(f) => {
                let s = self.options.default_fp;
                self.b.float(*f, s)
            }
            Value::List(items) if !items.is_empty() => self.make_tensor(items, None)?,
            Value::Tuple(items) if !items.is_empty() => self.make_tensor(items, None)?,
            Value::Members(m) if !m.is_array => self.struct_value(m)?,
            Value::Obj(obj) => match self.world.entity(*obj) {
                Entity::TensorConst { ty, values } => self.tensor_constant(&ty, &values),
                Entity::StructConst { ty, members } => {
                    let items = members.into_iter().map(|(n, o)| (n, self.lift(o))).collect();
                    let members = Members { ty, is_array: false, items };
                    self.struct_value(&members)?
                }
                Entity::Int(i) => self.int_literal(i)?,
                Entity::Float(f) => self.b.float(f, self.options.default_fp),
                Entity::Bool(x) => self.b.int(i64::from(x), Scalar::U1),
                _ => return Ok(None),
            },
            _ => return Ok(None),
        }))
    }

    fn int_literal(&mut self, i: i128) -> Result<ValueId> {
        let s = self.options.default_ip;
        let bits = s.bits();
        let unsigned = u32::from(s.is_unsigned());
        if i < -(1i128 << (bits - 1)) || i >= 1i128 << (bits - 1 + unsigned) {
            return self.err(
                Code::Type,
                format!(
                    "Integer literal {i} exceeded the range of default_ip: {s}, please specify the dtype via e.g. \
                     `qd.u64({i})` or set a different `default_ip` in `qd.init()`"
                ),
            );
        }
        Ok(self.b.push(Op::Const(Const::Int(i as i64)), Type::Scalar(s)))
    }

    /// The type a value has at run time, without reading it.
    fn runtime_type(&mut self, value: &Value) -> Option<Type> {
        Some(match value {
            Value::Rt(v) => self.b.ty(*v).clone(),
            Value::Var(l) => self.b.body.locals[l.index()].ty.clone(),
            Value::Place(p) => self.b.pointee(p.addr).clone(),
            Value::Bool(_) => Type::U1,
            Value::Int(_) => Type::Scalar(self.options.default_ip),
            Value::Float(_) => Type::Scalar(self.options.default_fp),
            Value::Obj(o) => match self.world.entity(*o) {
                Entity::TensorConst { ty, .. } => ty,
                _ => return None,
            },
            _ => return None,
        })
    }

    fn is_runtime(&self, value: &Value) -> bool {
        matches!(value, Value::Rt(_) | Value::Var(_) | Value::Place(_))
    }

    /// A new local that holds `v`.
    fn new_local(&mut self, name: &str, v: ValueId) -> LocalId {
        let ty = self.b.ty(v).clone();
        let local = self.b.body.add_local(name, ty);
        let addr = self.b.local_addr(local);
        self.b.store(addr, v);
        local
    }

    /// A short name of a value's type, for messages.
    fn describe(&mut self, value: &Value) -> String {
        match value {
            Value::None => "None".into(),
            Value::Bool(_) => "a bool".into(),
            Value::Int(_) => "an int".into(),
            Value::Float(_) => "a float".into(),
            Value::Str(_) | Value::Text(_) => "a string".into(),
            Value::Tuple(_) => "a tuple".into(),
            Value::List(_) | Value::Static(_) => "a list".into(),
            Value::Dict(_) => "a dict".into(),
            Value::Slice(_) => "a slice".into(),
            Value::Obj(o) => format!("an object of type {}", self.world.type_name(*o)),
            Value::Array(b) => format!("the array `{}`", self.buffers[b.index()].name),
            Value::Members(m) if m.is_array => "a struct field".into(),
            Value::Members(_) => "a struct".into(),
            Value::Dataclass(_) => "a dataclass".into(),
            Value::Range(_) | Value::Ndrange(_) | Value::Grouped(_) => "a loop range".into(),
            Value::Method(m) => format!("the method `{}`", m.1),
            v => self.runtime_type(v).map_or_else(|| "a value".into(), |t| type_name(&t)),
        }
    }
}

impl Frame {
    fn new(func: Obj, name: &str, ret: ReturnMode) -> Frame {
        Frame {
            func,
            name: name.to_owned(),
            scopes: vec![HashMap::new()],
            left: HashMap::new(),
            loops: Vec::new(),
            control_depth: 0,
            ret,
            returned: None,
            bound_params: HashMap::new(),
            borrowed: None,
        }
    }
}
