//! The result of lowering an expression: a compile-time value, a run-time value, an lvalue, or something that only a
//! call or a loop can use.

use std::rc::Rc;

use octants_ir::{BufferId, LocalId, TextPart, ValueId};

use crate::world::{ArgSpec, Obj};

/// The value of an expression.
#[derive(Debug, Clone)]
pub enum Value {
    /// `None`.
    None,
    /// Compile-time truth.
    Bool(bool),
    /// Compile-time integer.
    Int(i128),
    /// Compile-time float.
    Float(f64),
    /// Compile-time string.
    Str(Rc<str>),
    /// A tuple; items may be run-time values.
    Tuple(Rc<Vec<Value>>),
    /// A list; items may be run-time values.
    List(Rc<Vec<Value>>),
    /// A dict with compile-time keys.
    Dict(Rc<Vec<(Value, Value)>>),
    /// A slice; parts are `None` or integers.
    Slice(Rc<[Value; 3]>),
    /// Any other host object.
    Obj(Obj),
    /// Text with run-time pieces (f-string, `str.format`).
    Text(Rc<Vec<TextPart>>),

    /// A run-time value that is not in memory.
    Rt(ValueId),
    /// A local variable.
    Var(LocalId),
    /// An address.
    Place(Place),
    /// An array: a kernel argument, a captured ndarray, or a field.
    Array(BufferId),
    /// A range of an array argument with one axis.
    View(Rc<ArrayView>),
    /// A struct field, or a struct whose members are in several places: member names and values.
    Members(Rc<Members>),
    /// A `dataclasses.dataclass` argument.
    Dataclass(Rc<DataclassArg>),

    /// `range(begin, end)` at run time.
    Range(Rc<(Value, Value)>),
    /// `qd.ndrange(...)`.
    Ndrange(Rc<Ndrange>),
    /// `qd.grouped(...)`.
    Grouped(Rc<Value>),
    /// `qd.static(...)` around a loop's iterable: items are compile-time.
    Static(Rc<Vec<Value>>),
    /// `value.name`, to be called.
    Method(Rc<(Value, String)>),
    /// A value for assignments to and from tiles only.
    Tile(Rc<TileOperand>),
    /// An element of a mesh.
    Element(Rc<MeshElement>),
    /// The elements of one kind that are next to an element of a mesh: `v.cells`.
    Neighbors(Rc<Neighbors>),
}

/// An element of a mesh. Its mesh and its kind are known at compile time.
#[derive(Debug, Clone)]
pub struct MeshElement {
    /// The object of all elements of its kind.
    pub elements: Obj,
    /// Its position among them in the order of memory, an i32.
    pub position: Value,
}

/// Elements next to an element of a mesh.
#[derive(Debug, Clone)]
pub struct Neighbors {
    /// The table of the relation.
    pub relation: Obj,
    /// The position of the element that they are next to.
    pub position: ValueId,
}

/// The other side of an assignment to or from a tile.
#[derive(Debug, Clone)]
pub enum TileOperand {
    /// `a[r0:r1, c0:c1]`, `a[i, r0:r1, c0:c1]`: begin and end of rows and columns.
    Slice {
        /// The array.
        array: BufferId,
        /// The index before the rows.
        batch: Option<Value>,
        /// Begin and end.
        rows: [Value; 2],
        /// Begin and end.
        columns: [Value; 2],
    },
    /// `qd.outer(a, b)`: each thread's elements of two vectors.
    Outer(Value, Value),
    /// `a @ b`: two tiles.
    Product(Value, Value),
}

/// A range of an array with one axis; without offset and size, all of it.
#[derive(Debug, Clone)]
pub struct ArrayView {
    /// The array.
    pub array: BufferId,
    /// Its first element.
    pub offset: Option<ValueId>,
    /// Number of elements.
    pub size: Option<ValueId>,
}

/// An address, and its aliasing properties.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// A value of type `Ref`.
    pub addr: ValueId,
    /// Part of a buffer, so that augmented assignment is atomic.
    pub global: bool,
}

/// Members by name.
#[derive(Debug, Clone)]
pub struct Members {
    /// The struct type object, if there is one, for methods.
    pub ty: Option<Obj>,
    /// `true`: a struct field (members are arrays), to be indexed first. `false`: one struct.
    pub is_array: bool,
    /// In order.
    pub items: Vec<(String, Value)>,
}

/// A dataclass argument, or a dataclass member of one.
#[derive(Debug, Clone)]
pub struct DataclassArg {
    /// Position of the kernel parameter.
    pub index: u32,
    /// Members from there.
    pub path: Vec<String>,
    /// The object in which methods and class attributes are looked up.
    pub obj: Obj,
    /// Its members.
    pub members: Vec<(String, ArgSpec)>,
}

/// The box that `qd.ndrange` iterates over.
#[derive(Debug, Clone)]
pub struct Ndrange {
    /// Bounds of each axis, in the user's order.
    pub dims: Vec<(Value, Value)>,
    /// For each nesting level, outermost first, the axis it iterates.
    pub order: Vec<usize>,
    /// The outside's object with these bounds, such as a level of a tree.
    pub level: Option<Obj>,
}

/// Maximum number of items of a range that are passed to the outside one by one.
const LONGEST_RANGE: i128 = 1 << 16;

impl Value {
    /// A tuple.
    pub fn tuple(items: Vec<Value>) -> Value {
        Value::Tuple(Rc::new(items))
    }

    /// A list.
    pub fn list(items: Vec<Value>) -> Value {
        Value::List(Rc::new(items))
    }

    /// A string.
    pub fn str(s: &str) -> Value {
        Value::Str(Rc::from(s))
    }

    /// A place in a buffer.
    pub fn global(addr: ValueId) -> Value {
        Value::Place(Place { addr, global: true })
    }

    /// Items of a tuple or list.
    pub fn items(&self) -> Option<&[Value]> {
        match self {
            Value::Tuple(v) | Value::List(v) | Value::Static(v) => Some(v),
            _ => None,
        }
    }

    /// Entirely known at compile time (host objects count).
    pub fn is_compile_time(&self) -> bool {
        match self {
            Value::None | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Str(_) | Value::Obj(_) => true,
            Value::Tuple(v) | Value::List(v) | Value::Static(v) => v.iter().all(Value::is_compile_time),
            Value::Dict(d) => d.iter().all(|(k, v)| k.is_compile_time() && v.is_compile_time()),
            Value::Slice(s) => s.iter().all(Value::is_compile_time),
            Value::Range(bounds) => {
                matches!(**bounds, (Value::Int(a), Value::Int(b)) if b.saturating_sub(a) <= LONGEST_RANGE)
            }
            _ => false,
        }
    }
}
