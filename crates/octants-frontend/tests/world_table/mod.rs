//! A [`World`] without Python.
//!
//! [`Table`] holds objects by number. [`module`] fills it from the text of a Python module: constants, fields, types,
//! classes and functions, like user code. [`namespace`] is the `qd` of such a module.

// Each test binary uses another part.
#![allow(dead_code)]

pub mod module;
mod namespace;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use octants_diag::Diagnostic;
use octants_frontend::{Entity, FuncSource, HostValue, NdarrayDesc, Obj, World, WorldError, WorldResult};
use octants_ir::{Scalar, Type};

/// A function of the outside: positional and keyword arguments.
pub type HostFunction = Rc<dyn Fn(&Table, &[Obj], &[(String, Obj)]) -> WorldResult<Obj>>;

/// The kind of a parameter's annotation that is not a type.
#[derive(Debug, Clone, PartialEq)]
pub enum Annotation {
    /// `qd.template()`.
    Template,
    /// `qd.types.ndarray(...)`.
    Ndarray(NdarrayDesc),
}

/// One object.
#[derive(Clone)]
pub struct Record {
    pub entity: Entity,
    /// The value of `type(obj).__name__`.
    pub type_name: String,
    pub attributes: Vec<(String, Obj)>,
    pub source: Option<FuncSource>,
    pub host: Option<HostFunction>,
    pub items: Option<Vec<(Obj, Obj)>>,
    pub annotation: Option<Annotation>,
}

impl Record {
    pub fn new(entity: Entity, type_name: &str) -> Record {
        Record {
            entity,
            type_name: type_name.into(),
            attributes: Vec::new(),
            source: None,
            host: None,
            items: None,
            annotation: None,
        }
    }
}

/// All objects, and the compiler's output.
#[derive(Default)]
pub struct Table {
    records: RefCell<Vec<Record>>,
    plain: RefCell<HashMap<String, Obj>>,
    globals: RefCell<HashMap<String, Obj>>,
    roots: Cell<u32>,
    /// Number of queries, for tests of how lowering scales.
    pub asked: Cell<u64>,
    /// Lines of `static_print`.
    pub printed: RefCell<Vec<String>>,
    /// Warnings about the program.
    pub warnings: RefCell<Vec<Diagnostic>>,
}

/// An exception of the outside.
pub fn raise<T>(message: impl Into<String>) -> WorldResult<T> {
    Err(WorldError { message: message.into(), cause: Some(0) })
}

impl Table {
    /// A table with `qd`, `math` and Python's built-in functions.
    pub fn new() -> Table {
        let table = Table::default();
        namespace::fill(&table);
        table
    }

    pub fn add(&self, record: Record) -> Obj {
        let mut records = self.records.borrow_mut();
        records.push(record);
        Obj(records.len() as u32 - 1)
    }

    /// The object of a plain value: equal numbers and strings are one object.
    pub fn value(&self, entity: Entity) -> Obj {
        let type_name = match &entity {
            Entity::None => "NoneType",
            Entity::Bool(_) => "bool",
            Entity::Int(_) => "int",
            Entity::Float(_) => "float",
            Entity::Str(_) => "str",
            Entity::Tuple(_) => "tuple",
            Entity::List(_) => return self.add(Record::new(entity, "list")),
            Entity::Dtype(_) => "DataType",
            Entity::TensorConst { .. } => "Vector",
            _ => "object",
        };
        let key = format!("{entity:?}");
        if let Some(&obj) = self.plain.borrow().get(&key) {
            return obj;
        }
        let obj = self.add(Record::new(entity, type_name));
        self.plain.borrow_mut().insert(key, obj);
        obj
    }

    pub fn int(&self, i: i128) -> Obj {
        self.value(Entity::Int(i))
    }

    pub fn str(&self, s: &str) -> Obj {
        self.value(Entity::Str(s.into()))
    }

    /// An object that only has attributes.
    pub fn opaque(&self, type_name: &str, attributes: Vec<(String, Obj)>) -> Obj {
        self.add(Record { attributes, ..Record::new(Entity::Opaque, type_name) })
    }

    /// A function of the outside.
    pub fn host(&self, name: &str, f: impl Fn(&Table, &[Obj], &[(String, Obj)]) -> WorldResult<Obj> + 'static) -> Obj {
        self.add(Record { host: Some(Rc::new(f)), ..Record::new(Entity::Opaque, name) })
    }

    /// A name that the compiler resolves.
    pub fn builtin(&self, name: &str) -> Obj {
        let known = name.to_string();
        let host: HostFunction = Rc::new(move |t, args, _| namespace::call_builtin(t, &known, args));
        self.add(Record { host: Some(host), ..Record::new(Entity::Builtin(name.into()), "function") })
    }

    pub fn set_global(&self, name: &str, obj: Obj) {
        self.globals.borrow_mut().insert(name.into(), obj);
    }

    pub fn find_global(&self, name: &str) -> Option<Obj> {
        self.globals.borrow().get(name).copied()
    }

    pub fn set_attribute(&self, obj: Obj, name: &str, value: Obj) {
        self.records.borrow_mut()[obj.0 as usize].attributes.push((name.into(), value));
    }

    pub fn record(&self, obj: Obj) -> Record {
        self.records.borrow()[obj.0 as usize].clone()
    }

    pub fn edit(&self, obj: Obj, f: impl FnOnce(&mut Record)) {
        f(&mut self.records.borrow_mut()[obj.0 as usize]);
    }

    /// A number for the memory of one more field.
    pub fn new_root(&self) -> u32 {
        // Not zero, so that a root that was not renumbered shows.
        self.roots.set(self.roots.get() + 1);
        100 + self.roots.get()
    }

    pub fn is_type(&self, obj: Obj) -> Option<Type> {
        match self.record(obj).entity {
            Entity::Dtype(s) => Some(Type::Scalar(s)),
            Entity::TensorType(t) | Entity::AnyTensorType(t) => Some(t),
            Entity::Builtin(n) => match n.as_str() {
                "int" => Some(Type::I32),
                "float" => Some(Type::Scalar(Scalar::F32)),
                "bool" => Some(Type::U1),
                _ => None,
            },
            Entity::StructType { name, members } => {
                let members =
                    members.into_iter().map(|(n, t)| Some((n, self.is_type(t)?))).collect::<Option<Vec<_>>>()?;
                Some(Type::Struct(std::sync::Arc::new(octants_ir::StructType { name, members })))
            }
            _ => None,
        }
    }

    fn ask(&self, obj: Obj) -> Record {
        self.asked.set(self.asked.get() + 1);
        self.record(obj)
    }
}

fn number(e: &Entity) -> Option<f64> {
    match e {
        Entity::Int(i) => Some(*i as f64),
        Entity::Float(f) => Some(*f),
        Entity::Bool(b) => Some(f64::from(u8::from(*b))),
        _ => None,
    }
}

impl World for Table {
    fn entity(&self, obj: Obj) -> Entity {
        self.ask(obj).entity
    }

    fn global(&self, _func: Obj, name: &str) -> WorldResult<Option<Obj>> {
        self.asked.set(self.asked.get() + 1);
        Ok(self.find_global(name))
    }

    fn attribute(&self, obj: Obj, name: &str) -> WorldResult<Option<Obj>> {
        let record = self.ask(obj);
        let Some(found) = record.attributes.iter().rev().find(|(n, _)| n == name).map(|(_, o)| *o) else {
            return Ok(None);
        };
        if name == "broken" {
            return raise("RuntimeError: this property raises");
        }
        // A function found in an instance is bound to it.
        let is_instance = record.type_name.starts_with("instance ");
        if is_instance && matches!(self.record(found).entity, Entity::Func(_)) {
            return Ok(Some(self.add(Record::new(Entity::Method(found, obj), "method"))));
        }
        Ok(Some(found))
    }

    fn subscript(&self, obj: Obj, key: Obj) -> WorldResult<Obj> {
        let record = self.ask(obj);
        if let Some(items) = &record.items {
            return match items.iter().find(|(k, _)| *k == key) {
                Some((_, v)) => Ok(*v),
                None => raise(format!("KeyError: {}", self.format(key, "")?)),
            };
        }
        raise(format!("TypeError: '{}' object is not subscriptable", record.type_name))
    }

    fn call(&self, func: Obj, args: &[Obj], kwargs: &[(String, Obj)]) -> WorldResult<Obj> {
        let record = self.ask(func);
        if let Entity::Method(f, receiver) = record.entity {
            let args: Vec<Obj> = std::iter::once(receiver).chain(args.iter().copied()).collect();
            return self.call(f, &args, kwargs);
        }
        match record.host {
            Some(f) => f(self, args, kwargs),
            None => raise(format!("TypeError: '{}' object is not callable", record.type_name)),
        }
    }

    fn binary(&self, op: &str, left: Obj, right: Obj) -> WorldResult<Obj> {
        let (a, b) = (self.ask(left).entity, self.ask(right).entity);
        let bool = |b| Ok(self.value(Entity::Bool(b)));
        match (op, &a, &b) {
            ("is", ..) => return bool(left == right),
            ("is not", ..) => return bool(left != right),
            ("in", _, Entity::List(items) | Entity::Tuple(items)) => {
                return bool(items.iter().any(|i| self.record(*i).entity == a));
            }
            ("not in", _, Entity::List(items) | Entity::Tuple(items)) => {
                return bool(!items.iter().any(|i| self.record(*i).entity == a));
            }
            ("==", Entity::Str(x), Entity::Str(y)) => return bool(x == y),
            ("!=", Entity::Str(x), Entity::Str(y)) => return bool(x != y),
            ("+", Entity::Str(x), Entity::Str(y)) => return Ok(self.str(&format!("{x}{y}"))),
            ("+", Entity::List(x), Entity::List(y)) => {
                return Ok(self.value(Entity::List(x.iter().chain(y).copied().collect())));
            }
            ("*", Entity::List(x), Entity::Int(n)) => return Ok(self.value(Entity::List(x.repeat(*n as usize)))),
            ("**", Entity::Int(x), Entity::Int(n)) if *n >= 0 => return Ok(self.int(x.pow(*n as u32))),
            ("<<", Entity::Int(x), Entity::Int(n)) => return Ok(self.int(x << n)),
            ("//" | "%" | "/", _, Entity::Int(0)) => return raise("ZeroDivisionError: division by zero"),
            _ => {}
        }
        let (Some(x), Some(y)) = (number(&a), number(&b)) else {
            let (a, b) = (self.type_name(left), self.type_name(right));
            return raise(format!("TypeError: unsupported operand type(s) for {op}: '{a}' and '{b}'"));
        };
        let float = |f| Ok(self.value(Entity::Float(f)));
        match op {
            "+" => float(x + y),
            "-" => float(x - y),
            "*" => float(x * y),
            "/" => float(x / y),
            "//" => float((x / y).floor()),
            "%" => float(x - y * (x / y).floor()),
            "**" => float(x.powf(y)),
            "==" => bool(x == y),
            "!=" => bool(x != y),
            "<" => bool(x < y),
            "<=" => bool(x <= y),
            ">" => bool(x > y),
            ">=" => bool(x >= y),
            _ => raise(format!("TypeError: bad operand types for {op}")),
        }
    }

    fn unary(&self, op: &str, operand: Obj) -> WorldResult<Obj> {
        let e = self.ask(operand).entity;
        match (op, &e) {
            ("-", Entity::Int(i)) => Ok(self.int(-i)),
            ("-", Entity::Float(f)) => Ok(self.value(Entity::Float(-f))),
            ("-", Entity::Bool(b)) => Ok(self.int(-i128::from(*b))),
            ("not", _) => Ok(self.value(Entity::Bool(!self.truth(operand)?))),
            _ => raise(format!("TypeError: bad operand type for unary {op}: '{}'", self.type_name(operand))),
        }
    }

    fn truth(&self, obj: Obj) -> WorldResult<bool> {
        Ok(match self.ask(obj).entity {
            Entity::None => false,
            Entity::Bool(b) => b,
            Entity::Int(i) => i != 0,
            Entity::Float(f) => f != 0.0,
            Entity::Str(s) => !s.is_empty(),
            Entity::Tuple(i) | Entity::List(i) => !i.is_empty(),
            _ => true,
        })
    }

    fn iterate(&self, obj: Obj) -> WorldResult<Vec<Obj>> {
        let record = self.ask(obj);
        match record.entity {
            Entity::Tuple(i) | Entity::List(i) => Ok(i),
            Entity::Opaque if record.items.is_some() => Ok(record.items.iter().flatten().map(|(k, _)| *k).collect()),
            _ => raise(format!("TypeError: '{}' object is not iterable", record.type_name)),
        }
    }

    fn format(&self, obj: Obj, spec: &str) -> WorldResult<String> {
        let record = self.ask(obj);
        Ok(match (&record.entity, spec) {
            (Entity::None, "") => "None".into(),
            (Entity::Bool(b), "") => if *b { "True" } else { "False" }.into(),
            (Entity::Int(i), "") => i.to_string(),
            (Entity::Float(f), "") => format!("{f:?}"),
            (Entity::Str(s), "") => s.clone(),
            (Entity::Tuple(items) | Entity::List(items), "") => {
                let all = items.iter().map(|i| self.format(*i, "")).collect::<WorldResult<Vec<_>>>()?;
                format!("[{}]", all.join(", "))
            }
            (_, "") => format!("<{}>", record.type_name),
            _ => return raise(format!("ValueError: Invalid format specifier '{spec}'")),
        })
    }

    fn dtype(&self, scalar: Scalar) -> Obj {
        self.value(Entity::Dtype(scalar))
    }

    fn make(&self, value: HostValue) -> Obj {
        self.value(match value {
            HostValue::None => Entity::None,
            HostValue::Bool(b) => Entity::Bool(b),
            HostValue::Int(i) => Entity::Int(i),
            HostValue::Float(f) => Entity::Float(f),
            HostValue::Str(s) => Entity::Str(s),
            HostValue::Tuple(i) => Entity::Tuple(i),
            HostValue::List(i) => Entity::List(i),
            HostValue::IntVector(i) => Entity::TensorConst {
                ty: Type::Vector(Scalar::I32, i.len() as u32),
                values: i.into_iter().map(Entity::Int).collect(),
                is_numpy: false,
            },
            HostValue::Dict(items) => {
                return self.add(Record { items: Some(items), ..Record::new(Entity::Opaque, "dict") });
            }
            HostValue::Slice(..) => return self.opaque("slice", Vec::new()),
        })
    }

    fn source(&self, func: Obj) -> WorldResult<FuncSource> {
        match self.ask(func).source {
            Some(source) => Ok(source),
            None => raise("OSError: the source is not available"),
        }
    }

    fn tensor_method(&self, name: &str) -> Option<Obj> {
        self.find_global(&format!("tensor_method_{name}"))
    }

    fn print(&self, line: &str) {
        self.printed.borrow_mut().push(line.into());
    }

    fn warn(&self, warning: Diagnostic) {
        self.warnings.borrow_mut().push(warning);
    }

    fn type_name(&self, obj: Obj) -> String {
        self.ask(obj).type_name.trim_start_matches("instance ").into()
    }
}
