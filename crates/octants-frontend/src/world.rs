//! [`World`]: the one trait between the front end and the host language. It provides names, attributes, calls and
//! iteration at compile time.
//!
//! Host objects are opaque handles. The Python binding implements [`World`] over Python objects; Rust tests implement
//! it over a table.

use std::sync::Arc;

use octants_diag::{Diagnostic, SourceFile};
use octants_ir::{AutodiffMode, CellIndex, ComponentLayout, Scalar, ShadowBuffer, Type};

use crate::packed_component::PackedComponent;

/// A host object, which outlives the compilation. Handles of the same object are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Obj(pub u32);

/// The meaning of a host object to the compiler.
#[derive(Debug, Clone, PartialEq)]
pub enum Entity {
    /// `None`.
    None,
    /// `True`, `False`, numpy booleans.
    Bool(bool),
    /// Python and numpy integers.
    Int(i128),
    /// Python and numpy floats. (A numpy scalar's width is not kept.)
    Float(f64),
    /// A string.
    Str(String),
    /// A member of an enumeration that is a number or a string as well (`IntEnum`): that `Int`, `Float` or `Str`.
    Member(Box<Entity>),
    /// A tuple (named ones too): its items.
    Tuple(Vec<Obj>),
    /// A list: its items.
    List(Vec<Obj>),
    /// A number that each launch reads, of its current type: an attribute of a template argument whose class requests
    /// it.
    Live(Scalar),
    /// A scalar type (`qd.f32`); the Python types `int`, `float`, `bool` are `Builtin`.
    Dtype(Scalar),
    /// `qd.types.vector(3, qd.f32)`, `qd.types.matrix(2, 2, qd.f32)`.
    TensorType(Type),
    /// `qd.types.vector(3)`: the type with the default scalar. A parameter that it annotates keeps the scalar of its
    /// argument.
    AnyTensorType(Type),
    /// `qd.types.struct(...)`, `@qd.dataclass`: members and their types, which are objects themselves.
    StructType {
        /// For messages.
        name: String,
        /// In order: name and type object (`Dtype`, `TensorType` or `StructType`).
        members: Vec<(String, Obj)>,
    },
    /// A Python-scope `qd.Vector`/`qd.Matrix` object or a numpy array of at most two axes, used as a constant.
    TensorConst {
        /// Vector or matrix type.
        ty: Type,
        /// Components, row-major: `Int`, `Float` or `Bool` entities.
        values: Vec<Entity>,
        /// An array of numpy, whose methods and operators Python evaluates.
        is_numpy: bool,
    },
    /// A Python-scope `qd.Struct` object used as a constant.
    StructConst {
        /// Its type, if it was made by one.
        ty: Option<Obj>,
        /// Members in order.
        members: Vec<(String, Obj)>,
    },
    /// A scalar, vector or matrix field.
    Field(FieldDesc),
    /// How the indices of a field name a cell of a sparse level above it: an item of the field's `_sparse_levels`.
    SparseCells {
        /// A field of i32 with a word of state for each cell, by the cell's number.
        state: Obj,
        /// The digits of the indices.
        index: CellIndex,
    },
    /// A struct field: member name and member field.
    StructField(Vec<(String, Obj)>),
    /// A field with one axis whose elements are in another order in memory: an attribute of a mesh.
    ReorderedField {
        /// The field in the order of memory.
        field: Obj,
        /// A field of i32: for each index, the element of `field`.
        positions: Obj,
    },
    /// The elements of one kind of a mesh. `lower/mesh_elements.rs` has the attributes that the front end reads.
    MeshElements {
        /// `verts`, `edges`, `faces` or `cells`.
        kind: String,
        /// How many there are.
        count: u32,
    },
    /// A Python-scope ndarray reached through a template argument, `self`, or a captured name.
    Ndarray(NdarrayDesc),
    /// `@qd.func`, or a plain Python function that a kernel calls with run-time values.
    Func(FuncKind),
    /// A function bound to an object: (function, self).
    Method(Obj, Obj),
    /// `functools.partial`: the callee, and the bound arguments.
    Partial {
        /// The callable.
        func: Obj,
        /// Its first arguments.
        args: Vec<Obj>,
        /// Keyword arguments, which a call may replace.
        keywords: Vec<(String, Obj)>,
    },
    /// A name the compiler knows: `"sin"`, `"static"`, `"range"`, ... One Python object may represent it in Python
    /// scope.
    Builtin(String),
    /// A type that a `dataclasses.dataclass` parameter is annotated with.
    DataclassType(Vec<(String, Obj)>),
    /// An array that cannot be used now, and why: a field without memory, or of a program that has ended.
    Broken(WorldError),
    /// Anything else: a module, an instance, a class, a dict. Only the outside can look into it.
    Opaque,
}

/// How a function is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FuncKind {
    /// `@qd.func`.
    Func,
    /// `@qd.real_func`: arguments and result by value, never inlined by the front end.
    Real,
    /// `@qd.kernel` called from a kernel: an error with its own message.
    Kernel,
    /// Not decorated.
    Plain,
}

/// A field's type and place.
#[derive(Debug, Clone, PartialEq, Hash)]
pub struct FieldDesc {
    /// The user's name of it, or empty.
    pub name: String,
    /// Scalar, vector or matrix.
    pub elem: Type,
    /// Extents of the axes, in the user's order.
    pub shape: Vec<u64>,
    /// First valid index of each axis (zeros, mostly).
    pub offset: Vec<i64>,
    /// One per component. `root` is the outside's own id of the memory; the front end renumbers it.
    pub components: Vec<ComponentLayout>,
    /// The attribute `_sparse_levels` of the field lists sparse levels above its place.
    pub is_sparse: bool,
    /// The field holds activation states or lists of active cells.
    pub is_metadata: bool,
    /// For a quantized type, the position of each component in a word. Empty for other types.
    pub packed: Vec<PackedComponent>,
}

impl FieldDesc {
    /// An i32 holds how many bytes any component is from the beginning of its memory.
    pub fn has_short_offsets(&self) -> bool {
        self.components.iter().all(|c| c.place.last() <= i32::MAX as u64)
    }
}

/// An ndarray's type.
#[derive(Debug, Clone, PartialEq, Hash)]
pub struct NdarrayDesc {
    /// Scalar, vector or matrix.
    pub elem: Type,
    /// Number of axes.
    pub ndim: u32,
    /// Row-major without gaps.
    pub contiguous: bool,
    /// How large it is.
    pub reach: Reach,
    /// The parameter's annotation requests clamping: an index out of bounds refers to the nearest element.
    pub clamped: bool,
    /// It has a gradient: an array of the same shape in its attribute `grad`.
    pub needs_grad: bool,
    /// It has a dual, an array like that in its attribute `dual`: it is a field.
    pub needs_dual: bool,
    /// The parameter's annotation requests a view: a range of the array in its attribute `arr`, starting at the element
    /// in its attribute `offset`.
    pub is_view: bool,
    /// The axis that is distributed over ranks: this process has some of its rows.
    pub split_axis: Option<u32>,
}

impl NdarrayDesc {
    /// Whether code for arrays of this type also works for arrays of the other: code for long offsets accepts short
    /// ones.
    pub fn takes(&self, found: &NdarrayDesc) -> bool {
        let is_longer = self.reach == Reach::Long && found.reach == Reach::Short;
        self == found || (is_longer && *self == NdarrayDesc { reach: Reach::Long, ..found.clone() })
    }
}

/// Which integers of an array fit 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reach {
    /// The extents, and how many bytes any element is from the first.
    Short,
    /// The extents.
    Long,
    /// Some axis is longer than an i32 counts: extents, and indices of loops over it, are i64.
    Wide,
}

impl Reach {
    /// The reach of an array from its extents and the size in bytes of the range that holds its elements.
    #[inline]
    pub fn of(extents: &[u64], bytes: u64) -> Reach {
        const MOST: u64 = i32::MAX as u64;
        // One test for all axes, because this runs at every launch.
        if extents.iter().fold(0, |all, n| all | n) > MOST {
            Reach::Wide
        } else if bytes > MOST {
            Reach::Long
        } else {
            Reach::Short
        }
    }
}

/// A function's text and signature.
#[derive(Debug, Clone)]
pub struct FuncSource {
    /// The text, with the `def` (and decorators) in it; nothing but this function.
    pub file: Arc<SourceFile>,
    /// `__name__`.
    pub name: String,
    /// In order; `self` included.
    pub params: Vec<FuncParam>,
    /// The return annotation; `None` if absent or `-> None`.
    pub returns: Option<Obj>,
    /// `@qd.func(requires_top_level=True)`.
    pub requires_top_level: bool,
    /// `@qd.kernel(fastcache=True)`: declared to depend on its arguments only.
    pub pure: bool,
    /// The graph options of `@qd.kernel`.
    pub graph: GraphUse,
}

/// How a kernel is declared to be a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum GraphUse {
    /// It is not.
    #[default]
    None,
    /// `graph=True`.
    Graph,
    /// `graph=True, checkpoints=True`.
    WithCheckpoints,
}

/// A declared parameter.
#[derive(Debug, Clone, Hash)]
pub struct FuncParam {
    /// Its name.
    pub name: String,
    /// Its annotation, evaluated.
    pub annotation: Option<Obj>,
    /// Its default.
    pub default: Option<Obj>,
}

/// A value to hand to the outside.
#[derive(Debug, Clone, PartialEq)]
pub enum HostValue {
    /// `None`.
    None,
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i128),
    /// A float.
    Float(f64),
    /// A string.
    Str(String),
    /// A tuple of objects.
    Tuple(Vec<Obj>),
    /// A list of objects.
    List(Vec<Obj>),
    /// A Python-scope `qd.Vector` of integers.
    IntVector(Vec<i128>),
    /// A dict: keys and values.
    Dict(Vec<(Obj, Obj)>),
    /// A slice.
    Slice(Option<Obj>, Option<Obj>, Option<Obj>),
}

/// Compile-time evaluation failed; `cause` is the outside's handle of its exception.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorldError {
    /// One line: exception type and text.
    pub message: String,
    /// Handle of the exception, kept by the outside.
    pub cause: Option<u32>,
}

/// The event that a line of the user's file is marked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LineEvent {
    /// A statement on it is about to run.
    Reached,
    /// The condition on it is false, and there is no `else`.
    Skipped,
}

/// The result of asking the outside.
pub type WorldResult<T> = Result<T, WorldError>;

/// The interface of the front end to the host language.
pub trait World {
    /// Whether it may be called on a stack other than the thread's original one.
    fn runs_on_any_stack(&self) -> bool {
        true
    }

    /// The meaning of an object. Pure: the answer never changes.
    fn entity(&self, obj: Obj) -> Entity;

    /// A name used in `func`'s body that it does not define: closure, then globals, then builtins.
    fn global(&self, func: Obj, name: &str) -> WorldResult<Option<Obj>>;

    /// `getattr(obj, name)`; `None` when there is no such attribute.
    fn attribute(&self, obj: Obj, name: &str) -> WorldResult<Option<Obj>>;

    /// `obj[key]`.
    fn subscript(&self, obj: Obj, key: Obj) -> WorldResult<Obj>;

    /// `func(*args, **kwargs)` in Python.
    fn call(&self, func: Obj, args: &[Obj], kwargs: &[(String, Obj)]) -> WorldResult<Obj>;

    /// A Python binary or comparison operator by its symbol (`"+"`, `"=="`, `"in"`, `"is"`, `"not in"`, `"is not"`,
    /// ...).
    fn binary(&self, op: &str, left: Obj, right: Obj) -> WorldResult<Obj>;

    /// `"-"`, `"+"`, `"~"`, `"not"`.
    fn unary(&self, op: &str, operand: Obj) -> WorldResult<Obj>;

    /// An instance of a dataclass of Python that is not data-oriented. No later launch depends on the answer.
    fn is_dataclass(&self, _obj: Obj) -> bool {
        false
    }

    /// `bool(obj)`.
    fn truth(&self, obj: Obj) -> WorldResult<bool>;

    /// `list(obj)`.
    fn iterate(&self, obj: Obj) -> WorldResult<Vec<Obj>>;

    /// `format(obj, spec)`, or `str(obj)` for an empty spec.
    fn format(&self, obj: Obj, spec: &str) -> WorldResult<String>;

    /// The host's object of a scalar type.
    fn dtype(&self, scalar: Scalar) -> Obj;

    /// Makes a host object.
    fn make(&self, value: HostValue) -> Obj;

    /// Text and signature of a function (`Entity::Func`, or the kernel itself).
    fn source(&self, func: Obj) -> WorldResult<FuncSource>;

    /// The current value of an [`Entity::Live`] number as a constant, guarded: another value selects other code.
    /// Every world that has live numbers provides it.
    fn freeze(&self, obj: Obj) -> Obj {
        obj
    }

    /// A method of a tensor value (`v.norm()`): the kernel-language function that takes the tensor first, for the
    /// methods that the compiler does not know itself.
    fn tensor_method(&self, name: &str) -> Option<Obj>;

    /// The field and the element to set to one when a line of the user's file runs, if the host measures coverage. Such
    /// code is not cached, because the answer belongs to the running program.
    fn line_probe(&self, _path: &str, _line: u32, _event: LineEvent) -> Option<(Obj, i128)> {
        None
    }

    /// Whether [`World::line_probe`] may have an answer.
    fn probes_lines(&self) -> bool {
        false
    }

    /// Prints at compile time (`qd.static_print`).
    fn print(&self, line: &str);

    /// A warning about the user's program at a place in it.
    fn warn(&self, warning: Diagnostic);

    /// For messages: the name of its type, or a description that begins with "a ".
    fn type_name(&self, obj: Obj) -> String;
}

/// One argument of a kernel, as this specialization sees it.
#[derive(Debug, Clone, PartialEq, Hash)]
pub enum ArgSpec {
    /// A run-time scalar, vector, matrix or struct by value. For a struct, the struct type object (for methods).
    Value(Type, Option<Obj>),
    /// An array whose pointer and shape are launch arguments.
    Array(NdarrayDesc),
    /// A compile-time value: `qd.Template`, `self`, a field.
    Template(Obj),
    /// A `dataclasses.dataclass` instance: members by name (and the object, for methods and class attributes).
    Dataclass(Obj, Vec<(String, ArgSpec)>),
}

/// Options that affect lowering.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Type of float literals and of `float`.
    pub default_fp: Scalar,
    /// Type of integer literals and of `int`.
    pub default_ip: Scalar,
    /// Assertions, overflow and shape checks.
    pub debug: bool,
    /// `and`/`or` skip their right side.
    pub short_circuit: bool,
    /// Warn when `qd.static` unrolls more than this; 0 never warns.
    pub unrolling_limit: u32,
    /// Maximum number of rounds of a `qd.graph.do_while` loop; 0 for any number.
    pub graph_max_iterations: u32,
    /// Threads of a subgroup; zero on a device without blocks of threads.
    pub subgroup_size: u32,
    /// Maximum number of bytes of a block's shared memory.
    pub shared_bytes: u64,
    /// The mode of differentiation, which determines the shadow buffers.
    pub mode: AutodiffMode,
    /// Accesses to fields of quantized types stay as they are: the caller replaces them.
    pub keeps_packed: bool,
}

/// The attribute of an array or field in which a shadow buffer of it is.
pub const fn shadow_attribute(shadow_buffer: ShadowBuffer) -> &'static str {
    match shadow_buffer {
        ShadowBuffer::Gradient => "grad",
        ShadowBuffer::Dual => "dual",
        ShadowBuffer::ReadMarks => "_read_marks",
    }
}

/// How a launch finds an array that the user did not pass directly as an argument.
#[derive(Debug, Clone, PartialEq)]
pub enum Capture {
    /// The array argument of parameter `index`, following the members of dataclass parameters.
    Arg {
        /// Position in the kernel's parameter list.
        index: u32,
        /// Members from there.
        path: Vec<String>,
    },
    /// A shadow buffer of such an array argument: its gradient, or marks of its elements.
    ShadowBuffer {
        /// Position in the kernel's parameter list.
        index: u32,
        /// Members on the path to the array, and the attribute of the array that contains it.
        path: Vec<String>,
        /// The shadow buffer's type.
        desc: NdarrayDesc,
    },
    /// An ndarray object reached at compile time; the binding knows the object and how it was reached.
    Object {
        /// The ndarray itself, as seen at compile time.
        obj: Obj,
        /// How it was reached, when it was by attributes from a template parameter: (parameter position, attributes).
        from: Option<(u32, Vec<String>)>,
    },
}
