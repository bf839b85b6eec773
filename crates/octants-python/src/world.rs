//! The compiler's interface to Python: names, attributes, calls and iteration at compile time.
//!
//! Objects are indices into a table that lives as long as the compilation. Every read of an object that was passed as
//! a compile-time value is recorded as a [`Read`]. A launch with the same objects checks that these reads still have
//! the same results.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;

use octants_engine::Config;
use octants_engine::artifact::{StoredWarning, WarningKind};
use octants_engine::diag::{Code, Diagnostic};
use octants_engine::frontend::{
    Entity, FuncParam, FuncSource, GraphUse, HostValue, LineEvent, Obj, World, WorldError, WorldResult,
};
use octants_engine::ir::Scalar;
use octants_engine::trace::stored_warning;
use pyo3::exceptions::{PyAttributeError, PyDeprecationWarning, PySyntaxWarning, PyUserWarning};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PySlice, PyString, PyTuple, PyWeakrefReference};

use crate::argument::templated_float;
use crate::classify::{Handles, classify};
use crate::constant::Constant;
use crate::errors;
use crate::func::Func;
use crate::guard::{Path, Step};
use crate::kernel::Kernel;
use crate::line_probes;
use crate::names::{function_name, marker, text_attribute, unwrap_tensor};
use crate::package::Package;
use crate::signature::declaration;
use crate::source::source_file;

/// An attribute of a compile-time argument that the compiler looked at.
pub struct Read<'py> {
    /// How it was reached.
    pub path: Path,
    /// Its value.
    pub value: Bound<'py, PyAny>,
}

/// Python, for one compilation.
pub struct PyWorld<'py> {
    py: Python<'py>,
    /// Values to use for captured numbers, and the numbers that were read.
    given: Vec<Constant>,
    constants: RefCell<Vec<Constant>>,
    /// Suppresses output and warnings, which an earlier compilation has shown.
    is_silent: bool,
    config: Config,
    objects: RefCell<Vec<Bound<'py, PyAny>>>,
    index: RefCell<HashMap<usize, Obj>>,
    entities: RefCell<HashMap<Obj, Entity>>,
    causes: RefCell<Vec<Py<PyAny>>>,
    reached: RefCell<HashMap<Obj, Path>>,
    reads: RefCell<Vec<Read<'py>>>,
    warnings: RefCell<Vec<Diagnostic>>,
}

impl<'py> Handles<'py> for PyWorld<'py> {
    fn handle(&self, object: Bound<'py, PyAny>) -> Obj {
        // Unwraps a wrapper, if possible.
        let object = unwrap_tensor(object.clone()).unwrap_or(object);
        let key = object.as_ptr() as usize;
        if let Some(&obj) = self.index.borrow().get(&key) {
            return obj;
        }
        let mut objects = self.objects.borrow_mut();
        let obj = Obj(objects.len() as u32);
        objects.push(object);
        self.index.borrow_mut().insert(key, obj);
        obj
    }
}

impl<'py> PyWorld<'py> {
    /// A world with no objects in it yet.
    pub fn new(py: Python<'py>, config: &Config) -> PyWorld<'py> {
        PyWorld {
            py,
            given: Vec::new(),
            constants: RefCell::default(),
            is_silent: false,
            config: config.clone(),
            objects: RefCell::default(),
            index: RefCell::default(),
            entities: RefCell::default(),
            causes: RefCell::default(),
            reached: RefCell::default(),
            reads: RefCell::default(),
            warnings: RefCell::default(),
        }
    }

    /// A world that uses these values for captured numbers.
    pub fn with_constants(py: Python<'py>, config: &Config, given: Vec<Constant>) -> PyWorld<'py> {
        PyWorld { given, ..PyWorld::new(py, config) }
    }

    /// The same, without output: for an internal kernel derived from one that has been compiled.
    pub fn silent(self) -> PyWorld<'py> {
        PyWorld { is_silent: true, ..self }
    }

    /// The captured numbers that were read.
    pub fn take_constants(&self) -> Vec<Constant> {
        self.constants.take()
    }

    /// A number found under a name, or the value to use for it.
    fn constant(&self, owner: &Bound<'py, PyAny>, name: &str, found: Bound<'py, PyAny>) -> Bound<'py, PyAny> {
        if !is_number(&found) {
            return found;
        }
        let given = self.given.iter().find(|c| c.is_of(owner, name));
        let value = given.map_or(found, |c| c.value.bind(self.py).clone());
        let mut constants = self.constants.borrow_mut();
        // Objects without weak references are mostly temporary.
        if !constants.iter().any(|c| c.is_of(owner, name))
            && let Ok(owner) = PyWeakrefReference::new(owner)
        {
            constants.push(Constant { owner: owner.unbind(), name: name.to_string(), value: value.clone().unbind() });
        }
        value
    }

    /// The interpreter, which is held.
    pub fn py(&self) -> Python<'py> {
        self.py
    }

    /// The object of a handle.
    pub fn object(&self, obj: Obj) -> Bound<'py, PyAny> {
        self.objects.borrow()[obj.0 as usize].clone()
    }

    /// Declares an object to be the compile-time argument of a parameter, so that reads from it are remembered.
    pub fn is_argument(&self, obj: Obj, param: u32, steps: Vec<Step>) {
        let baked = self.object(obj).get_type().getattr_opt(pyo3::intern!(self.py, "_octants_template_primitives"));
        let live = matches!(baked, Ok(Some(b)) if b.is_truthy().is_ok_and(|b| !b));
        let path = Path { param, steps, live };
        let value = self.object(obj);
        if value.is_instance_of::<PyList>() || value.is_instance_of::<PyDict>() {
            // The key identifies them by identity, but their contents may change.
            self.reads.borrow_mut().push(Read { path: path.clone(), value });
        }
        self.reached.borrow_mut().entry(obj).or_insert(path);
    }

    /// Numbers of this object are read at each launch.
    fn is_live(&self, obj: Obj) -> bool {
        self.reached.borrow().get(&obj).is_some_and(|path| path.live && path.attributes().is_some())
    }

    /// A number that launches read again: its own handle, because equal numbers may be one object.
    fn live_number(&self, from: Obj, name: &str, found: &Bound<'py, PyAny>) -> Option<Obj> {
        let path = self.reached.borrow().get(&from)?.then(Step::Attribute(name.to_string()));
        let float = found.is_instance_of::<PyFloat>();
        let scalar = if float { self.config.default_fp } else { self.config.default_ip };
        let mut objects = self.objects.borrow_mut();
        let obj = Obj(objects.len() as u32);
        objects.push(found.clone());
        self.entities.borrow_mut().insert(obj, Entity::Live(scalar));
        self.reached.borrow_mut().insert(obj, path);
        Some(obj)
    }

    /// The reads from compile-time arguments.
    pub fn take_reads(&self) -> Vec<Read<'py>> {
        self.reads.take()
    }

    /// A captured number of this name is compiled in.
    pub fn has_constant(&self, name: &str) -> bool {
        self.constants.borrow().iter().any(|constant| constant.name == name)
    }

    /// Exceptions that compile-time code raised.
    pub fn take_causes(&self) -> Vec<Py<PyAny>> {
        self.causes.take()
    }

    /// Shows the collected warnings. They raise if the user has turned warnings into errors.
    pub fn show_warnings(&self, sources: &octants_engine::diag::Sources) -> PyResult<()> {
        for warning in self.warnings.take() {
            let stored = stored_warning(&warning, sources);
            if warning.code == Code::Precision { self.log(&stored)? } else { self.show(&stored)? }
        }
        Ok(())
    }

    /// Repeats the output and warnings of an earlier compilation.
    pub fn repeat(&self, printed: &[String], warnings: &[StoredWarning]) -> PyResult<()> {
        printed.iter().for_each(|line| self.print(line));
        warnings.iter().try_for_each(|warning| self.show(warning))
    }

    fn log(&self, warning: &StoredWarning) -> PyResult<()> {
        let (path, line) = warning.place.clone().unwrap_or_default();
        if !self.is_silent {
            Package::get(self.py)?.logging.bind(self.py).call_method1("warn_of_code", (path, line, &warning.text))?;
        }
        Ok(())
    }

    fn show(&self, warning: &StoredWarning) -> PyResult<()> {
        if self.is_silent {
            return Ok(());
        }
        let category = match warning.about {
            WarningKind::Syntax => self.py.get_type::<PySyntaxWarning>(),
            WarningKind::Deprecation => self.py.get_type::<PyDeprecationWarning>(),
            WarningKind::Effect => self.py.get_type::<PyUserWarning>(),
        };
        let c_text = |text: &str| CString::new(text.replace('\0', "")).unwrap_or_default();
        let text = c_text(&warning.text);
        match &warning.place {
            Some((path, line)) => {
                PyErr::warn_explicit(self.py, &category, &text, &c_text(path), *line as i32, None, None)
            }
            None => PyErr::warn(self.py, &category, &text, 1),
        }
    }

    /// Keeps an exception, and returns its description for the compiler.
    fn failure(&self, error: PyErr) -> WorldError {
        let value = error.value(self.py);
        let name = value.get_type().name().map_or_else(|_| "Exception".to_string(), |n| n.to_string());
        let text = value.str().map_or_else(|_| String::new(), |s| s.to_string());
        let message = if text.is_empty() { name } else { format!("{name}: {text}") };
        let mut causes = self.causes.borrow_mut();
        causes.push(error.into_value(self.py).into_any());
        WorldError { message, cause: Some(causes.len() as u32 - 1) }
    }

    fn done<T>(&self, result: PyResult<T>) -> WorldResult<T> {
        result.map_err(|e| self.failure(e))
    }

    fn wrap(&self, result: PyResult<Bound<'py, PyAny>>) -> WorldResult<Obj> {
        self.done(result).map(|o| self.handle(o))
    }

    fn args(&self, args: &[Obj]) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(self.py, args.iter().map(|&o| self.object(o)))
    }

    fn lookup(&self, func: &Bound<'py, PyAny>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = self.py;
        let cells = func.getattr(pyo3::intern!(py, "__closure__"))?;
        if !cells.is_none() {
            let names = func.getattr(pyo3::intern!(py, "__code__"))?.getattr(pyo3::intern!(py, "co_freevars"))?;
            for (free, cell) in names.try_iter()?.zip(cells.try_iter()?) {
                if free?.cast::<PyString>()?.to_str()? == name {
                    return Ok(cell?.getattr(pyo3::intern!(py, "cell_contents")).ok());
                }
            }
        }
        let globals = func.getattr(pyo3::intern!(py, "__globals__"))?;
        if let Some(found) = globals.cast::<PyDict>()?.get_item(name)? {
            return Ok(Some(found));
        }
        py.import("builtins")?.getattr_opt(name)
    }

    /// Records a read from an object, if the object belongs to a compile-time argument.
    fn remember(&self, from: Obj, step: impl FnOnce() -> Step, found: &Bound<'py, PyAny>) -> Obj {
        let obj = self.handle(found.clone());
        let path = self.reached.borrow().get(&from).map(|path| path.then(step()));
        if let Some(path) = path {
            self.reached.borrow_mut().entry(obj).or_insert_with(|| path.clone());
            self.reads.borrow_mut().push(Read { path, value: self.object(obj) });
        }
        obj
    }

    fn read_source(&self, object: &Bound<'py, PyAny>) -> PyResult<FuncSource> {
        let py = self.py;
        let (function, requires_top_level) = python_function(object);
        let declared = declaration(&function)?;
        let params = declared
            .params
            .into_iter()
            .map(|p| FuncParam {
                name: p.name,
                annotation: p.annotation.map(|a| self.handle(a)),
                default: p.default.map(|d| self.handle(d)),
            })
            .collect();
        let name = function_name(&function);
        let kernel = object.cast::<Kernel>().ok().map(|k| k.get());
        Ok(FuncSource {
            file: source_file(py, &function, &name)?,
            name: if kernel.is_some() { name } else { function_name(object) },
            params,
            returns: declared.returns.map(|r| self.handle(r)),
            requires_top_level,
            pure: kernel.is_some_and(Kernel::is_pure),
            graph: kernel.map_or(GraphUse::None, Kernel::graph_use),
        })
    }
}

fn is_number(object: &Bound<'_, PyAny>) -> bool {
    object.is_exact_instance_of::<PyFloat>()
        || object.is_exact_instance_of::<PyInt>()
        || object.is_exact_instance_of::<PyBool>()
}

/// The Python function of a kernel, a func or itself.
fn python_function<'py>(object: &Bound<'py, PyAny>) -> (Bound<'py, PyAny>, bool) {
    if let Ok(func) = object.cast::<Func>() {
        return (func.get().function(object.py()).clone(), func.get().requires_top_level());
    }
    if let Ok(kernel) = object.cast::<Kernel>() {
        return (kernel.get().function(object.py()).clone(), false);
    }
    (object.clone(), false)
}

impl World for PyWorld<'_> {
    fn entity(&self, obj: Obj) -> Entity {
        if let Some(entity) = self.entities.borrow().get(&obj) {
            return entity.clone();
        }
        let object = self.object(obj);
        let entity = match classify(&object, self, &self.config) {
            Ok(entity) => entity,
            // A dead or unplaced field: its first use as an array raises what Python raised.
            Err(error) => Entity::Broken(self.failure(error)),
        };
        if let Entity::Tuple(items) | Entity::List(items) = &entity {
            for (i, &item) in items.iter().enumerate() {
                let path = self.reached.borrow().get(&obj).map(|path| path.then(Step::Item(i)));
                if let Some(path) = path {
                    self.reached.borrow_mut().entry(item).or_insert(path);
                }
            }
        }
        // A list may change while the compiler runs Python code.
        if !matches!(entity, Entity::List(_)) {
            self.entities.borrow_mut().insert(obj, entity.clone());
        }
        entity
    }

    fn global(&self, func: Obj, name: &str) -> WorldResult<Option<Obj>> {
        let (function, _) = python_function(&self.object(func));
        let found = self.done(self.lookup(&function, name))?;
        if self.config.raise_on_templated_floats && found.as_ref().is_some_and(|o| o.is_exact_instance_of::<PyFloat>())
        {
            return Err(self.failure(templated_float(name, &function_name(&function))));
        }
        Ok(found.map(|o| self.handle(self.constant(&function, name, o))))
    }

    fn attribute(&self, obj: Obj, name: &str) -> WorldResult<Option<Obj>> {
        match self.object(obj).getattr(name) {
            Ok(found) if self.is_live(obj) && is_number(&found) => Ok(self.live_number(obj, name, &found)),
            // Launches compare the contents of arguments.
            Ok(found) if !self.reached.borrow().contains_key(&obj) => {
                Ok(Some(self.handle(self.constant(&self.object(obj), name, found))))
            }
            Ok(found) => Ok(Some(self.remember(obj, || Step::Attribute(name.to_string()), &found))),
            Err(e) if e.is_instance_of::<PyAttributeError>(self.py) => Ok(None),
            Err(e) => Err(self.failure(e)),
        }
    }

    fn subscript(&self, obj: Obj, key: Obj) -> WorldResult<Obj> {
        let key = self.object(key);
        let found = self.done(self.object(obj).get_item(&key))?;
        Ok(self.remember(obj, || Step::Key(Arc::new(key.unbind())), &found))
    }

    fn call(&self, func: Obj, args: &[Obj], kwargs: &[(String, Obj)]) -> WorldResult<Obj> {
        let run = || {
            let args = self.args(args)?;
            let named = PyDict::new(self.py);
            for (name, value) in kwargs {
                named.set_item(name, self.object(*value))?;
            }
            let function = self.object(func);
            let mark = function.getattr_opt(pyo3::intern!(self.py, "_octants_only_in_python"));
            if let Ok(Some(mark)) = mark
                && mark.is(PyBool::new(self.py, true))
            {
                let name = text_attribute(&function, pyo3::intern!(self.py, "__name__")).unwrap_or_default();
                let text = format!(
                    "{name}() cannot be called in Quadrants-scope, because it would run only once, at compile time. \
                     Call it before or after the kernel"
                );
                return Err(errors::exception(self.py, "OctantsScopeError", text));
            }
            function.call(args, Some(&named))
        };
        self.wrap(run())
    }

    fn binary(&self, op: &str, left: Obj, right: Obj) -> WorldResult<Obj> {
        let (a, b) = (self.object(left), self.object(right));
        let boolean = |r: PyResult<bool>| r.map(|b| PyBool::new(self.py, b).to_owned().into_any());
        self.wrap(match op {
            "+" => a.add(b),
            "-" => a.sub(b),
            "*" => a.mul(b),
            "/" => a.div(b),
            "//" => a.floor_div(b),
            "%" => a.rem(b),
            "**" => a.pow(b, self.py.None()),
            "@" => a.matmul(b),
            "<<" => a.lshift(b),
            ">>" => a.rshift(b),
            "&" => a.bitand(b),
            "|" => a.bitor(b),
            "^" => a.bitxor(b),
            "in" => boolean(b.contains(a)),
            "not in" => boolean(b.contains(a).map(|x| !x)),
            "is" => boolean(Ok(a.is(&b))),
            "is not" => boolean(Ok(!a.is(&b))),
            "==" => a.rich_compare(b, pyo3::basic::CompareOp::Eq),
            "!=" => a.rich_compare(b, pyo3::basic::CompareOp::Ne),
            "<" => a.rich_compare(b, pyo3::basic::CompareOp::Lt),
            "<=" => a.rich_compare(b, pyo3::basic::CompareOp::Le),
            ">" => a.rich_compare(b, pyo3::basic::CompareOp::Gt),
            ">=" => a.rich_compare(b, pyo3::basic::CompareOp::Ge),
            other => panic!("compiler bug: no Python operator `{other}`"),
        })
    }

    fn unary(&self, op: &str, operand: Obj) -> WorldResult<Obj> {
        let a = self.object(operand);
        self.wrap(match op {
            "-" => a.neg(),
            "+" => a.pos(),
            "~" => a.bitnot(),
            "not" => a.is_truthy().map(|x| PyBool::new(self.py, !x).to_owned().into_any()),
            other => panic!("compiler bug: no Python operator `{other}`"),
        })
    }

    fn truth(&self, obj: Obj) -> WorldResult<bool> {
        self.done(self.object(obj).is_truthy())
    }

    fn iterate(&self, obj: Obj) -> WorldResult<Vec<Obj>> {
        let items = self.object(obj).try_iter().and_then(|i| i.collect::<PyResult<Vec<_>>>());
        let items = self.done(items)?.into_iter().enumerate();
        Ok(items.map(|(i, o)| self.remember(obj, || Step::Item(i), &o)).collect())
    }

    fn format(&self, obj: Obj, spec: &str) -> WorldResult<String> {
        let object = self.object(obj);
        let run = || -> PyResult<String> {
            if spec.is_empty() {
                return Ok(object.str()?.to_string());
            }
            self.py.import("builtins")?.call_method1("format", (&object, spec))?.extract()
        };
        self.done(run())
    }

    fn make(&self, value: HostValue) -> Obj {
        let py = self.py;
        let objects = |items: &[Obj]| -> Vec<Bound<'_, PyAny>> { items.iter().map(|&o| self.object(o)).collect() };
        let option = |o: Option<Obj>| o.map_or_else(|| py.None().into_bound(py), |o| self.object(o));
        let run = || -> PyResult<Bound<'_, PyAny>> {
            Ok(match value {
                HostValue::None => py.None().into_bound(py),
                HostValue::Bool(b) => PyBool::new(py, b).to_owned().into_any(),
                HostValue::Int(i) => i.into_pyobject(py)?.into_any(),
                HostValue::Float(x) => x.into_pyobject(py)?.into_any(),
                HostValue::Str(s) => PyString::new(py, &s).into_any(),
                HostValue::Tuple(items) => PyTuple::new(py, objects(&items))?.into_any(),
                HostValue::List(items) => PyList::new(py, objects(&items))?.into_any(),
                HostValue::Dict(items) => {
                    let dict = PyDict::new(py);
                    for (k, v) in items {
                        dict.set_item(self.object(k), self.object(v))?;
                    }
                    dict.into_any()
                }
                HostValue::Slice(a, b, c) => py.get_type::<PySlice>().call1((option(a), option(b), option(c)))?,
                HostValue::IntVector(items) => Package::get(py)?.vector.bind(py).call1((items,))?,
            })
        };
        let object = run().unwrap_or_else(|e| panic!("compiler bug: cannot create a plain Python object: {e}"));
        self.handle(object)
    }

    fn dtype(&self, scalar: Scalar) -> Obj {
        let types = Package::get(self.py).map(|package| package.scalar_types.bind(self.py));
        let found = types.and_then(|types| types.as_any().get_item(scalar.name()));
        self.handle(found.unwrap_or_else(|e| panic!("compiler bug: the package has no type {scalar}: {e}")))
    }

    fn source(&self, func: Obj) -> WorldResult<FuncSource> {
        self.done(self.read_source(&self.object(func)))
    }

    fn freeze(&self, obj: Obj) -> Obj {
        let value = self.object(obj);
        let path = self.reached.borrow().get(&obj).cloned();
        if let Some(path) = path {
            self.reads.borrow_mut().push(Read { path, value: value.clone() });
        }
        self.handle(value)
    }

    fn tensor_method(&self, name: &str) -> Option<Obj> {
        let methods = Package::get(self.py).ok()?.tensor_methods.bind(self.py);
        Some(self.handle(methods.get_item(name).ok()??))
    }

    fn line_probe(&self, path: &str, line: u32, event: LineEvent) -> Option<(Obj, i128)> {
        let (field, index) = line_probes::ask(self.py, path, line, event)?;
        Some((self.handle(field), index))
    }

    fn probes_lines(&self) -> bool {
        line_probes::is_asked()
    }

    fn print(&self, line: &str) {
        if self.is_silent {
            return;
        }
        let shown = self.py.import("builtins").and_then(|m| m.call_method1("print", (line,)));
        if let Err(error) = shown {
            error.write_unraisable(self.py, None);
        }
    }

    fn runs_on_any_stack(&self) -> bool {
        // From 3.14 on, the interpreter checks the bounds of a thread's stack, and treats another stack as an overflow.
        self.py.version_info() < (3, 14)
    }

    fn is_dataclass(&self, obj: Obj) -> bool {
        let class = self.object(obj).get_type();
        let has = |name| class.hasattr(name).unwrap_or(false);
        has(pyo3::intern!(self.py, "__dataclass_fields__")) && !has(pyo3::intern!(self.py, "_octants_data_oriented"))
    }

    fn warn(&self, warning: Diagnostic) {
        let mut warnings = self.warnings.borrow_mut();
        // An unrolled loop reaches the same line again.
        if !warnings.iter().any(|w| w.span == warning.span && w.message == warning.message) {
            warnings.push(warning);
        }
    }

    fn type_name(&self, obj: Obj) -> String {
        let object = self.object(obj);
        match marker(&object) {
            Some(kind) if kind == "field" || kind == "reordered_field" => "a field".to_string(),
            _ => object.get_type().name().map_or_else(|_| "object".to_string(), |n| n.to_string()),
        }
    }
}
