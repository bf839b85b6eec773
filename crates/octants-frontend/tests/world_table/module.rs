//! Reads the text of a Python module into a [`Table`], and determines the arguments of each kernel.
//!
//! Supported: assignments, `@qd.kernel`, `@qd.func`, `@qd.real_func`, plain functions of one `return` (called at
//! compile time), `@qd.dataclass`, `@dataclasses.dataclass`, and other classes, whose name then stands for an instance.
//! A kernel's template parameter gets its default as the argument. `#~ OPTIONS` lines set the compilation's options.

use std::rc::Rc;
use std::sync::Arc;

use octants_diag::SourceFile;
use octants_frontend::{
    ArgSpec, Entity, FuncKind, FuncParam, FuncSource, GraphUse, HostValue, Obj, Options, World, WorldResult,
};
use octants_ir::{AutodiffMode, Scalar};
use ruff_python_ast as r;
use ruff_text_size::Ranged;

use super::namespace::struct_type;
use super::{Annotation, Record, Table, raise};

/// A module that was read.
pub struct Module {
    pub table: Table,
    /// Names and objects, in order; methods as `Class.name`.
    pub kernels: Vec<(String, Obj)>,
    pub options: Options,
}

/// The options a module starts from.
pub fn default_options() -> Options {
    Options {
        subgroup_size: 32,
        shared_bytes: 48 << 10,
        default_fp: Scalar::F32,
        default_ip: Scalar::I32,
        debug: false,
        short_circuit: true,
        unrolling_limit: 0,
        graph_max_iterations: 0,
        mode: AutodiffMode::None,
        keeps_packed: false,
    }
}

impl Module {
    /// Reads a module. Panics on unsupported syntax.
    pub fn read(path: &str, text: &str) -> Module {
        let mut module = Module { table: Table::new(), kernels: Vec::new(), options: default_options() };
        text.lines().filter_map(|l| l.strip_prefix("#~ OPTIONS ")).for_each(|l| module.read_options(l));
        let parsed = ruff_python_parser::parse_module(text).unwrap_or_else(|e| panic!("{path}: {e}")).into_syntax();
        let reader = Reader { path, text };
        for stmt in &parsed.body {
            reader.statement(&mut module, stmt);
        }
        module
    }

    /// Lowers a kernel.
    pub fn lower(
        &self,
        kernel: Obj,
    ) -> Result<octants_frontend::Lowered, (Vec<octants_diag::Diagnostic>, octants_diag::Sources)> {
        octants_frontend::lower(&self.table, kernel, &self.args(kernel), &self.options)
    }

    /// A kernel's arguments, from its annotations and defaults.
    pub fn args(&self, kernel: Obj) -> Vec<ArgSpec> {
        let source = self.table.record(kernel).source.expect("a kernel has a source");
        source.params.iter().map(|p| self.arg(&p.name, p.annotation, p.default)).collect()
    }

    fn arg(&self, name: &str, annotation: Option<Obj>, default: Option<Obj>) -> ArgSpec {
        let t = &self.table;
        let Some(annotation) = annotation else {
            return ArgSpec::Template(default.unwrap_or_else(|| panic!("`{name}` has no annotation")));
        };
        let record = t.record(annotation);
        if let Some(ty) = t.is_type(annotation) {
            let is_struct = matches!(record.entity, Entity::StructType { .. });
            return ArgSpec::Value(ty, is_struct.then_some(annotation));
        }
        match (record.annotation, record.entity) {
            (Some(Annotation::Ndarray(desc)), _) => ArgSpec::Array(desc),
            (Some(Annotation::Template), _) => {
                ArgSpec::Template(default.unwrap_or_else(|| panic!("give the template parameter `{name}` a default")))
            }
            (None, Entity::DataclassType(members)) => {
                let members = members
                    .iter()
                    .map(|(n, a)| {
                        let default = t.attribute(annotation, n).ok().flatten();
                        (n.clone(), self.arg(n, Some(*a), default))
                    })
                    .collect();
                ArgSpec::Dataclass(annotation, members)
            }
            _ => panic!("the annotation of `{name}` is not one"),
        }
    }

    fn read_options(&mut self, line: &str) {
        for item in line.split_whitespace() {
            let (name, value) = item.split_once('=').unwrap_or((item, "True"));
            match name {
                "debug" => self.options.debug = value == "True",
                "short_circuit" => self.options.short_circuit = value == "True",
                "unrolling_limit" => self.options.unrolling_limit = value.parse().expect("a number"),
                "default_ip" => self.options.default_ip = Scalar::from_name(value).expect("a type"),
                "default_fp" => self.options.default_fp = Scalar::from_name(value).expect("a type"),
                other => panic!("no option `{other}`"),
            }
        }
    }
}

struct Reader<'a> {
    path: &'a str,
    text: &'a str,
}

/// Names bound by a call of a plain function.
type Scope = [(String, Obj)];

impl Reader<'_> {
    fn statement(&self, m: &mut Module, stmt: &r::Stmt) {
        match stmt {
            r::Stmt::Assign(a) => {
                let value = self.value(&m.table, &a.value);
                for target in &a.targets {
                    match target {
                        r::Expr::Name(n) => {
                            m.table.set_global(&n.id, value);
                            name_field(&m.table, value, &n.id);
                        }
                        _ => panic!("{}: only names are assigned in a module", self.path),
                    }
                }
            }
            r::Stmt::FunctionDef(def) => {
                let obj = self.function(m, def, None);
                m.table.set_global(&def.name, obj);
            }
            r::Stmt::ClassDef(class) => self.class(m, class),
            r::Stmt::Import(_) | r::Stmt::ImportFrom(_) => {}
            r::Stmt::Expr(e) if e.value.is_string_literal_expr() => {}
            other => panic!("{}: a module cannot have this statement: {other:?}", self.path),
        }
    }

    fn function(&self, m: &mut Module, def: &r::StmtFunctionDef, class: Option<(&str, Obj)>) -> Obj {
        let t = &m.table;
        let mut kind = FuncKind::Plain;
        let mut requires_top_level = false;
        let mut pure = false;
        let mut graph = false;
        for d in &def.decorator_list {
            let (name, call) = decorator(&d.expression);
            kind = match name.as_str() {
                "kernel" => FuncKind::Kernel,
                "func" => FuncKind::Func,
                "real_func" => FuncKind::Real,
                other => panic!("{}: no decorator {other}", self.path),
            };
            requires_top_level |= call.is_some_and(|c| c.arguments.find_keyword("requires_top_level").is_some());
            pure |= call.is_some_and(|c| c.arguments.find_keyword("fastcache").is_some());
            graph |= call.is_some_and(|c| c.arguments.find_keyword("graph").is_some());
        }
        let params = def
            .parameters
            .iter_non_variadic_params()
            .enumerate()
            .map(|(i, p)| {
                let instance = class.filter(|_| i == 0).map(|c| c.1);
                FuncParam {
                    name: p.parameter.name.to_string(),
                    annotation: p.parameter.annotation.as_ref().map(|a| self.value(t, a)),
                    default: p.default.as_ref().map(|d| self.value(t, d)).or(instance),
                }
            })
            .collect::<Vec<_>>();
        let returns = def.returns.as_ref().map(|a| self.value(t, a));
        let returns = returns.filter(|o| t.record(*o).entity != Entity::None);
        // Whole lines, so that the columns of an indented method are correct.
        let start = self.text[..usize::from(def.range().start())].rfind('\n').map_or(0, |i| i + 1);
        let end = self.text[usize::from(def.range().end())..]
            .find('\n')
            .map_or(self.text.len(), |i| usize::from(def.range().end()) + i + 1);
        let file = Arc::new(SourceFile {
            path: self.path.into(),
            text: self.text[start..end].into(),
            first_line: self.text[..start].matches('\n').count() as u32 + 1,
            is_library: false,
        });
        let graph = if graph { GraphUse::WithCheckpoints } else { GraphUse::None };
        let source = FuncSource { file, name: def.name.to_string(), params, returns, requires_top_level, pure, graph };
        let names: Vec<String> = source.params.iter().map(|p| p.name.clone()).collect();
        let mut record = Record { source: Some(source), ..Record::new(Entity::Func(kind), "function") };
        if let (FuncKind::Plain, Some(r::Stmt::Return(ret))) = (kind, def.body.last()) {
            let body = ret.value.clone().map(|b| *b);
            let path = self.path.to_string();
            record.host = Some(Rc::new(move |t, args, kw| {
                let mut scope: Vec<(String, Obj)> = names.iter().cloned().zip(args.iter().copied()).collect();
                scope.extend(kw.iter().cloned());
                match &body {
                    Some(e) => Reader { path: &path, text: "" }.eval(t, &scope, e),
                    None => Ok(t.make(HostValue::None)),
                }
            }));
        }
        let obj = t.add(record);
        if kind == FuncKind::Kernel {
            let name = class.map_or_else(|| def.name.to_string(), |(c, _)| format!("{c}.{}", def.name));
            m.kernels.push((name, obj));
        }
        obj
    }

    fn class(&self, m: &mut Module, class: &r::StmtClassDef) {
        let name = class.name.as_str();
        let text = class.decorator_list.first().map_or(String::new(), |d| {
            self.text[usize::from(d.range().start())..usize::from(d.range().end())].to_string()
        });
        let is_struct = text == "@qd.dataclass";
        let is_dataclass = text.starts_with("@dataclasses.dataclass");
        let instance = m.table.opaque(&format!("instance {name}"), Vec::new());
        m.table.set_global(name, instance);
        let mut members = Vec::new();
        let mut methods = Vec::new();
        for stmt in &class.body {
            match stmt {
                r::Stmt::AnnAssign(a) => {
                    let r::Expr::Name(n) = &*a.target else { panic!("{}: a member is a name", self.path) };
                    members.push((n.id.to_string(), self.value(&m.table, &a.annotation)));
                    if let Some(v) = &a.value {
                        let v = self.value(&m.table, v);
                        m.table.set_attribute(instance, &n.id, v);
                    }
                }
                r::Stmt::Assign(a) => {
                    let v = self.value(&m.table, &a.value);
                    for target in &a.targets {
                        let r::Expr::Name(n) = target else { panic!("{}: an attribute is a name", self.path) };
                        m.table.set_attribute(instance, &n.id, v);
                        name_field(&m.table, v, &n.id);
                    }
                }
                r::Stmt::FunctionDef(def) => {
                    let owner = (!is_struct && !is_dataclass).then_some((name, instance));
                    let f = self.function(m, def, owner);
                    m.table.set_attribute(instance, &def.name, f);
                    methods.push((def.name.to_string(), f));
                }
                r::Stmt::Pass(_) => {}
                other => panic!("{}: a class cannot have {other:?}", self.path),
            }
        }
        if is_struct {
            let ty = struct_type(&m.table, name, members, methods);
            m.table.set_global(name, ty);
        } else if is_dataclass {
            m.table.edit(instance, |r| {
                r.entity = Entity::DataclassType(members);
                r.type_name = name.to_string();
            });
        }
    }

    fn value(&self, t: &Table, e: &r::Expr) -> Obj {
        self.eval(t, &[], e).unwrap_or_else(|e| panic!("{}: {}", self.path, e.message))
    }

    fn eval(&self, t: &Table, scope: &Scope, e: &r::Expr) -> WorldResult<Obj> {
        let all = |items: &[r::Expr]| items.iter().map(|i| self.eval(t, scope, i)).collect::<WorldResult<Vec<_>>>();
        Ok(match e {
            r::Expr::NoneLiteral(_) => t.make(HostValue::None),
            r::Expr::BooleanLiteral(b) => t.value(Entity::Bool(b.value)),
            r::Expr::StringLiteral(s) => t.str(s.value.to_str()),
            r::Expr::NumberLiteral(n) => match &n.value {
                r::Number::Int(i) => t.int(i.as_i64().map_or_else(|| panic!("a big int"), i128::from)),
                r::Number::Float(f) => t.value(Entity::Float(*f)),
                r::Number::Complex { .. } => panic!("{}: a complex number", self.path),
            },
            r::Expr::Tuple(x) => t.value(Entity::Tuple(all(&x.elts)?)),
            r::Expr::List(x) => t.value(Entity::List(all(&x.elts)?)),
            r::Expr::Dict(d) => {
                let items = d
                    .items
                    .iter()
                    .map(|i| {
                        let key = i.key.as_ref().expect("a key");
                        Ok((self.eval(t, scope, key)?, self.eval(t, scope, &i.value)?))
                    })
                    .collect::<WorldResult<Vec<_>>>()?;
                t.make(HostValue::Dict(items))
            }
            r::Expr::Name(n) => {
                let local = scope.iter().find(|(name, _)| name == n.id.as_str()).map(|(_, o)| *o);
                match local.or_else(|| t.find_global(&n.id)) {
                    Some(obj) => obj,
                    None => return raise(format!("NameError: name '{}' is not defined", n.id)),
                }
            }
            r::Expr::Attribute(a) => {
                let base = self.eval(t, scope, &a.value)?;
                match t.attribute(base, &a.attr)? {
                    Some(obj) => obj,
                    None => return raise(format!("AttributeError: no attribute '{}'", a.attr)),
                }
            }
            r::Expr::Call(c) => {
                let func = self.eval(t, scope, &c.func)?;
                let args = all(&c.arguments.args)?;
                let kw = c
                    .arguments
                    .keywords
                    .iter()
                    .map(|k| Ok((k.arg.as_ref().expect("a keyword").to_string(), self.eval(t, scope, &k.value)?)))
                    .collect::<WorldResult<Vec<_>>>()?;
                t.call(func, &args, &kw)?
            }
            r::Expr::UnaryOp(u) if u.op == r::UnaryOp::USub => {
                let v = self.eval(t, scope, &u.operand)?;
                t.unary("-", v)?
            }
            r::Expr::BinOp(b) => {
                let (left, right) = (self.eval(t, scope, &b.left)?, self.eval(t, scope, &b.right)?);
                match (b.op, t.record(left).entity, t.record(right).entity) {
                    (r::Operator::Add, Entity::Int(x), Entity::Int(y)) => t.int(x + y),
                    (r::Operator::Mult, Entity::Int(x), Entity::Int(y)) => t.int(x * y),
                    (op, ..) => t.binary(op.as_str(), left, right)?,
                }
            }
            other => panic!("{}: a module cannot evaluate {other:?}", self.path),
        })
    }
}

fn decorator(e: &r::Expr) -> (String, Option<&r::ExprCall>) {
    match e {
        r::Expr::Call(c) => (decorator(&c.func).0, Some(c)),
        r::Expr::Attribute(a) => (a.attr.to_string(), None),
        r::Expr::Name(n) => (n.id.to_string(), None),
        _ => panic!("not a decorator"),
    }
}

/// A field is named after the first variable that it is assigned to.
fn name_field(t: &Table, obj: Obj, name: &str) {
    t.edit(obj, |r| {
        if let Entity::Field(desc) = &mut r.entity
            && desc.name.is_empty()
        {
            desc.name = name.into();
        }
    });
}
