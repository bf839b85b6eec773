//! [`Lowerer`]: the state of one kernel's lowering, its scopes, and the path from a kernel's source to its IR.

mod added_elements;
mod arguments;
mod array_views;
mod assignment;
mod atomics;
mod builtins;
mod call;
mod checkpoints;
mod choose_form;
mod compile_time;
mod control;
mod conversions;
mod dicts;
mod do_while;
mod enum_members;
mod expr;
mod fragments;
mod function;
mod graph_choices;
mod graph_sections;
mod line_probes;
mod loop_box;
mod loops;
mod lost_precision;
mod lowered;
mod mesh_elements;
mod missing_returns;
mod operator_methods;
mod outlined;
mod packed_fields;
mod pass;
mod purity;
mod python_objects;
mod ranges;
mod read_only;
mod returns;
mod sequences;
mod shadow_buffers;
mod sparse_levels;
mod split_rows;
mod static_functions;
mod stmt;
mod stop_gradient;
mod structs;
mod subscript;
mod tensor;
mod tensor_methods;
mod text;
mod threads;
mod tiles;
mod values;
mod word_loops;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use octants_diag::{Code, Diagnostic, Result, Sources, Span};
use octants_ir::{
    AutodiffMode, BlockId, Buffer, BufferId, Builder, Function, Kernel, LoopConfig, LoopGroup, Param, Range,
    StructType, Type, ValueId,
};

use self::graph_sections::GraphSection;
pub use self::lowered::Lowered;
pub use self::packed_fields::PackedFields;
pub use self::sparse_levels::Activations;
use crate::ast::Stmt;
use crate::syntax_facts::Facts;
use crate::value::Value;
use crate::world::{ArgSpec, Capture, Entity, FuncSource, GraphUse, Obj, Options, World, WorldError};

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
    let lowered = lowerer.lower_kernel(kernel, args).and_then(|returns| lowerer.check_read_only().map(|()| returns));
    match lowered {
        Ok(returns) => {
            lowerer.find_shadow_buffers();
            Ok(lowerer.finish(returns))
        }
        Err(mut d) => {
            d.root = lowerer.parsed.get(&kernel).map_or_else(String::new, |p| p.source.name.clone());
            Err((vec![*d], lowerer.sources))
        }
    }
}

/// Stack reserved for code that does not recurse, including Python code of the host.
const LEAST_STACK: usize = 1 << 20;
/// The size of a stack segment (only used pages take memory), and the maximum number of segments.
const STACK: usize = 32 << 20;
const MOST_STACKS: usize = 32;
/// Maximum bytes of stack that parsing takes per byte of text: operators can be one byte long.
const BYTES_OF_LEVEL: usize = 512;

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

/// The innermost loop around a statement.
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
    /// The call of it.
    called_at: Span,
    scopes: Vec<HashMap<String, Binding>>,
    /// Names bound in scopes that were left, for the error about them.
    left: HashMap<String, Span>,
    loops: Vec<LoopKind>,
    /// Nesting of run-time control flow in this frame.
    control_depth: u32,
    /// The lines of loops and blocks around that the next statement is to mark.
    headers: Vec<Span>,
    ret: ReturnMode,
    returned: Option<Value>,
    /// Blocks of the IR whose end is not reached.
    dead_ends: Vec<BlockId>,
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
    /// Position, path and meaning of each.
    params: Vec<(u32, Vec<String>, ArgSpec)>,
}

/// The effect of `return`.
#[derive(Debug, Clone)]
enum ReturnMode {
    /// The kernel's result, with its annotated types.
    Kernel(Vec<(Obj, Type)>),
    /// The value of an inlined call, or of a function of the IR that returns in one place; the annotated type objects,
    /// if any.
    Inline(Option<Obj>),
    /// A function of the IR that returns in several places, with its annotated result type.
    Function(Option<Type>),
    /// The same without an annotation, after its first `return`: the type and the place of that.
    Inferred(Type, Span),
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
    /// The part of that depth that consists of loops whose rounds are tasks of the kernel.
    rounds: u32,
    /// Enclosing data-dependent loops that run on one thread.
    serial_rounds: u32,
    /// This place is in a branch that a compile-time constant excludes. Components of vectors may be out of bounds
    /// there: a method for two and three dimensions has such branches.
    never_runs: bool,
    /// The builder builds the kernel's own body, not a function's.
    in_kernel_body: bool,
    /// A `@qd.real_func` is being built, or a function that it calls.
    in_real_function: bool,
    static_depth: u32,
    /// Pieces of stack that were added.
    stacks: usize,
    /// The kernel is declared to depend on its arguments only.
    pure: bool,
    /// Objects that were reached through captured names, if purity is checked.
    outer: HashSet<Obj>,
    /// The next call passes its first argument by reference: it is a method of a struct.
    self_by_reference: bool,
    pending_config: Option<LoopConfig>,
    read_only: read_only::ReadOnly,
    /// The next loop may handle whole words of a `quant_array`.
    handles_words: bool,
    /// The kernel is declared with `graph=True`.
    graph: GraphUse,
    graph_section: GraphSection,
    checkpoints: Vec<(i64, Obj)>,
    /// The group that parallel loops are part of here.
    group: Option<LoopGroup>,
    next_group: u32,
    next_region: u32,
    overlap_allowed: BTreeSet<u32>,
    parsed: HashMap<Obj, Rc<ParsedFunction>>,
    /// Time spent reading and parsing source text.
    parsing: std::time::Duration,
    args: Vec<ArgSpec>,

    params: Vec<Param>,
    param_paths: Vec<(u32, Vec<String>)>,
    buffers: Vec<Buffer>,
    buffer_captures: Vec<Option<Capture>>,
    buffer_objects: Vec<Option<Obj>>,
    /// Arrays with an axis too long for i32.
    wide_arrays: BTreeSet<BufferId>,
    /// Roots of shared memory: each `SharedArray` has its own.
    shared_roots: u32,
    /// Bytes of those that the loop with parallel iterations has so far.
    shared_bytes: u64,
    /// Arrays with `boundary="clamp"`: an index outside means the nearest element.
    clamped_arrays: BTreeSet<BufferId>,
    /// Arrays that are distributed over ranks.
    split_arrays: BTreeMap<BufferId, u32>,
    /// The parallel loop around, with its bounds.
    iteration: Option<(ValueId, Vec<Range>)>,
    /// The innermost loop around over elements of a mesh: the elements, and the position of this one.
    mesh_loop: Option<(Obj, ValueId)>,
    /// Arguments that are ranges of an array.
    view_arrays: BTreeSet<BufferId>,
    /// The base arrays of views, if the kernel uses them.
    wholes: BTreeMap<BufferId, BufferId>,
    buffer_of_object: HashMap<Obj, BufferId>,
    buffer_of_path: HashMap<(u32, Vec<String>), BufferId>,
    gradients: HashMap<BufferId, Option<BufferId>>,
    shadow_buffers: BTreeMap<BufferId, BufferId>,
    activations: Activations,
    packed_fields: PackedFields,
    /// Arrays that `qd.stop_grad` makes constants here.
    stopped: Vec<BufferId>,
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
    /// Tuples and lists of the outside that were decomposed; forgotten when Python code runs, which may change them.
    lifted: HashMap<Obj, Value>,
    /// Vector members declared with `unpacked=True` that were used, and their names.
    unpacked_vectors: Vec<(Rc<Vec<Value>>, String)>,
    /// Numbers of template arguments that are read at launch.
    live_numbers: Vec<ValueId>,
    /// Named tuples of the outside that were decomposed, for their names.
    named_tuples: Vec<(Rc<Vec<Value>>, Obj)>,
    /// In the message of an assertion.
    in_assertion: bool,
    /// Members of enumerations that were used, and the numbers and strings that they are in operations.
    enum_members: HashMap<Obj, Value>,
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
            rounds: 0,
            serial_rounds: 0,
            never_runs: false,
            in_kernel_body: true,
            in_real_function: false,
            static_depth: 0,
            stacks: 0,
            pure: false,
            outer: HashSet::new(),
            self_by_reference: false,
            pending_config: None,
            read_only: Default::default(),
            handles_words: false,
            graph: GraphUse::None,
            checkpoints: Vec::new(),
            graph_section: GraphSection::Outside,
            group: None,
            next_group: 0,
            next_region: 0,
            overlap_allowed: BTreeSet::new(),
            parsed: HashMap::new(),
            parsing: std::time::Duration::ZERO,
            args: Vec::new(),
            params: Vec::new(),
            param_paths: Vec::new(),
            buffers: Vec::new(),
            buffer_captures: Vec::new(),
            buffer_objects: Vec::new(),
            wide_arrays: BTreeSet::new(),
            shared_roots: 0,
            shared_bytes: 0,
            clamped_arrays: BTreeSet::new(),
            split_arrays: BTreeMap::new(),
            iteration: None,
            mesh_loop: None,
            view_arrays: BTreeSet::new(),
            wholes: BTreeMap::new(),
            buffer_of_object: HashMap::new(),
            buffer_of_path: HashMap::new(),
            gradients: HashMap::new(),
            shadow_buffers: BTreeMap::new(),
            activations: Default::default(),
            packed_fields: Default::default(),
            stopped: Vec::new(),
            roots: Vec::new(),
            functions: Vec::new(),
            function_keys: HashMap::new(),
            may_loop: HashMap::new(),
            shared_locals: 0,
            struct_types: HashMap::new(),
            struct_objects: HashMap::new(),
            reached: HashMap::new(),
            lifted: HashMap::new(),
            unpacked_vectors: Vec::new(),
            live_numbers: Vec::new(),
            named_tuples: Vec::new(),
            in_assertion: false,
            enum_members: HashMap::new(),
            named_variables: Vec::new(),
            ret: Type::Unit,
        }
    }

    fn lower_kernel(&mut self, kernel: Obj, args: &[ArgSpec]) -> Result<Vec<Obj>> {
        let parsed = self.parse(kernel)?;
        self.pure = parsed.source.pure;
        self.graph = parsed.source.graph;
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
            let mut value = self.argument(i as u32, Vec::new(), spec)?;
            if let ArgSpec::Template(obj) = spec {
                self.warn_of_dataclass(*obj, &parsed.source.name, &param.name, &parsed.body);
            }
            // The kernel has a struct of its own, whose members it may set.
            if matches!(spec, ArgSpec::Value(Type::Struct(_), _)) && parsed.facts.assigned_in.contains(&param.name) {
                value = self.variable(&param.name, value)?;
            }
            self.bind(&param.name, Binding { value, immutable: Some("kernel argument") });
        }
        self.lower_body(&parsed.body)?;
        if self.ret != Type::Unit && self.frame().returned.is_none() {
            let span = parsed.body.last().map_or(Span::default(), |s| s.span);
            return Err(Diagnostic::new(
                Code::Syntax,
                span,
                format!("Kernel has a return type but does not have a return statement: `{}`", parsed.source.name),
            )
            .with_hint("add a `return` as the last statement, or remove the return annotation"));
        }
        Ok(returns.into_iter().map(|(o, _)| o).collect())
    }

    fn finish(self, returns: Vec<Obj>) -> Lowered {
        let name = self.frames.first().map_or_else(String::new, |f| f.name.clone());
        let mut kernel = Kernel {
            name,
            params: self.params,
            buffers: self.buffers,
            shadow_buffers: self.shadow_buffers,
            roots: self.roots.len() as u32,
            functions: self.functions,
            body: self.b.body,
            ret: self.ret,
        };
        let activations = match self.options.mode {
            // Differentiation adds stores to gradients and duals.
            mode @ (AutodiffMode::Reverse | AutodiffMode::Forward) => self.activations.of_derivative(mode),
            // These kernels change no field.
            AutodiffMode::Trips | AutodiffMode::Reads => Activations::default(),
            AutodiffMode::None | AutodiffMode::Validation => {
                self.activations.insert_into(&mut kernel);
                Activations::default()
            }
        };
        if self.options.mode == AutodiffMode::None && !self.options.keeps_packed {
            self.packed_fields.expand(&mut kernel);
        }
        Lowered {
            kernel,
            buffers: self.buffer_captures,
            roots: self.roots,
            params: self.param_paths,
            returns,
            checkpoints: self.checkpoints,
            split_arrays: self.split_arrays,
            overlap_allowed: self.overlap_allowed,
            activations,
            packed_fields: self.packed_fields,
            keeps_packed: self.options.keeps_packed,
            sources: self.sources,
            parsing: self.parsing,
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

    /// Runs work whose recursion depth follows the user's code, on a larger stack if little is left.
    fn ensure_stack<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if stacker::remaining_stack().is_none_or(|left| left > LEAST_STACK) {
            return work(self);
        }
        if self.stacks == MOST_STACKS || !self.world.runs_on_any_stack() {
            let depth = self.frames.len();
            let message = format!("too deeply nested for the compiler: {depth} nested calls");
            return self.err(Code::Compilation, message);
        }
        self.stacks += 1;
        let end = stacker::grow(STACK, || work(self));
        self.stacks -= 1;
        end
    }

    // Frames and scopes.

    fn frame(&mut self) -> &mut Frame {
        self.frames.last_mut().expect("compiler bug: no function is being lowered")
    }

    fn frame_ref(&self) -> &Frame {
        self.frames.last().expect("compiler bug: no function is being lowered")
    }

    /// Not inside any run-time control flow of the kernel but rounds of tasks: a loop here is parallel.
    fn at_top_level(&self) -> bool {
        self.in_kernel_body && self.outer_control_depth + self.frame_ref().control_depth == self.rounds
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

    /// The innermost scope itself binds the name.
    fn is_bound_here(&self, name: &str) -> bool {
        self.frame_ref().scopes.last().is_some_and(|s| s.contains_key(name))
    }

    /// Runs `f` in a new scope.
    fn scoped<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.frame().scopes.push(HashMap::new());
        let stopped = self.stopped.len();
        let result = f(self);
        self.stopped.truncate(stopped);
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
        let start = std::time::Instant::now();
        let source = self.world.source(func).map_err(|e| self.host_error(e))?;
        let file = self.sources.add(source.file.clone());
        // Nesting depth is at most the length of the text.
        let depth = source.file.text.len().saturating_mul(BYTES_OF_LEVEL).clamp(LEAST_STACK, STACK * MOST_STACKS);
        let (body, facts) = stacker::maybe_grow(depth, depth, || {
            let body = crate::parse::parse_function(&source.file, file)?;
            let facts = crate::syntax_facts::of(&body);
            Ok::<_, Box<Diagnostic>>((body, facts))
        })?;
        self.parsing += start.elapsed();
        let parsed = Rc::new(ParsedFunction { source, body, file, facts });
        self.parsed.insert(func, parsed.clone());
        Ok(parsed)
    }
}

impl Frame {
    fn new(func: Obj, name: &str, ret: ReturnMode) -> Frame {
        Frame {
            func,
            name: name.to_owned(),
            called_at: Span::default(),
            scopes: vec![HashMap::new()],
            left: HashMap::new(),
            loops: Vec::new(),
            control_depth: 0,
            headers: Vec::new(),
            ret,
            returned: None,
            dead_ends: Vec::new(),
            bound_params: HashMap::new(),
            borrowed: None,
        }
    }
}
