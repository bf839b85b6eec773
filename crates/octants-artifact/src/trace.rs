//! [`Trace`]: the questions that a compilation asked its environment, a fingerprint of each answer, and the outcome. A
//! process that asks the same questions and gets the same answers would compile the same code, and may take the stored
//! code.
//!
//! Objects of the environment are numbered in the order in which they were first met. A trace refers to them by these
//! numbers only. The same questions in the same order number the objects in the same way, or else an answer differs.

use serde::{Deserialize, Serialize};

use crate::{Corrupted, Key, Pointer, ScalarKind};

/// A question to the environment. Objects are represented by numbers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Lookup {
    /// The kind of an object.
    Entity(u32),
    /// The meaning of a name in a function.
    Global(u32, String),
    /// An attribute of an object.
    Attribute(u32, String),
    /// `object[key]`.
    Subscript(u32, u32),
    /// A call at compile time.
    Call {
        /// The callee.
        function: u32,
        /// Arguments by position.
        args: Vec<u32>,
        /// Arguments by name.
        named: Vec<(String, u32)>,
    },
    /// A binary operator by its symbol.
    Binary(String, u32, u32),
    /// A unary operator by its symbol.
    Unary(String, u32),
    /// Whether an object counts as true.
    Truth(u32),
    /// The items of an object.
    Iterate(u32),
    /// An object as text, in a format.
    Format(u32, String),
    /// The object of a scalar type, by name.
    Dtype(String),
    /// A new object.
    Make(Made),
    /// Text and signature of a function.
    Source(u32),
    /// A number that may change, as it is now.
    Freeze(u32),
    /// The function of a method of tensors.
    TensorMethod(String),
    /// The name of an object's type.
    TypeName(u32),
}

/// A value to create an object from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Made {
    /// `None`.
    None,
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i128),
    /// The bits of a float.
    Float(u64),
    /// A string.
    Str(String),
    /// A tuple of objects.
    Tuple(Vec<u32>),
    /// A list of objects.
    List(Vec<u32>),
    /// A vector of integers.
    IntVector(Vec<i128>),
    /// Keys and values.
    Dict(Vec<(u32, u32)>),
    /// A slice.
    Slice(Option<u32>, Option<u32>, Option<u32>),
}

/// The fingerprint of a question and its answer.
pub type Fingerprint = [u8; 16];

/// The questions of one compilation, and its outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// In the order in which they were asked.
    pub lookups: Vec<(Lookup, Fingerprint)>,
    /// The result.
    pub outcome: Outcome,
}

impl Trace {
    /// Serializes it.
    pub fn to_bytes(&self) -> Vec<u8> {
        // The types here hold nothing that the format cannot express.
        postcard::to_stdvec(self).expect("compiler bug: a trace cannot be serialized")
    }

    /// Reads back what [`Trace::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Trace, Corrupted> {
        postcard::from_bytes(bytes).map_err(|_| Corrupted)
    }
}

/// The outcome of a compilation except for the code, which is a separate artifact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The artifact's key.
    pub artifact: Key,
    /// The code was made for arrays that share memory.
    pub may_alias: bool,
    /// Whether arrays that share memory must be checked against its `stream_parallel` groups.
    pub has_groups: bool,
    /// The length of some loop may come from memory.
    pub may_record_trip_counts: bool,
    /// How a launch fills its slots.
    pub arguments: ArgumentPlan,
    /// The values that a gradient keeps in the store of a launch.
    pub store: Option<StoreOfGradient>,
    /// The inputs of code that only computes results, if these inputs are only numbers and memory.
    pub depends: Option<Dependence>,
    /// The file and line of each access of each task.
    pub access_lines: Vec<Vec<String>>,
    /// Type of the result.
    pub result: ValueType,
    /// The annotations of the results.
    pub returns: Vec<u32>,
    /// The labels of checkpoints, with the objects that the user gave for them.
    pub checkpoints: Vec<(i64, u32)>,
    /// Warnings that the user got.
    pub warnings: Vec<StoredWarning>,
    /// Lines that were printed while compiling.
    pub printed: Vec<String>,
}

/// How a launch of a gradient makes its store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoreOfGradient {
    /// Key of the artifact that computes the size of the store.
    pub count: Key,
    /// Its slots of addresses, and whether it writes there.
    pub pointers: Vec<Pointer>,
    /// First slots of the buffers.
    pub buffers: Vec<u32>,
    /// Slots of the parameters.
    pub params: Vec<u32>,
    /// The name of the stored state, for messages.
    pub kept: String,
    /// The inputs of the count, if these are only numbers and memory.
    pub depends: Option<Dependence>,
}

/// The inputs of code that writes no memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependence {
    /// Slots: numbers, addresses, extents and strides.
    pub slots: Vec<u32>,
    /// Those that are addresses of memory that is read.
    pub addresses: Vec<u32>,
}

/// Where each argument of a launch comes from, and the slots it goes to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArgumentPlan {
    /// Objects whose memory the roots are; the first slots.
    pub roots: Vec<u32>,
    /// Arrays; nothing for fields.
    pub buffers: Vec<Option<(ArraySource, u32)>>,
    /// Numbers, vectors, matrices and structs.
    pub params: Vec<ParamSource>,
    /// All slots.
    pub slots: u32,
    /// The code makes numbers of addresses.
    pub exposes_addresses: bool,
    /// Slots of addresses, and whether the code writes there.
    pub pointers: Vec<Pointer>,
}

/// The source of an array at launch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ArraySource {
    /// An argument: position of the parameter, members from there.
    Argument(u32, Vec<String>),
    /// A shadow buffer of an argument, at the end of its path.
    ShadowBuffer(u32, Vec<String>, ArrayType),
    /// An object, and how it was reached from a parameter.
    Object(u32, Option<(u32, Vec<String>)>),
}

/// Which integers of an array fit 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Reach {
    Short,
    Long,
    Wide,
}

/// The type of an array.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct ArrayType {
    pub element: ValueType,
    pub axes: u32,
    pub contiguous: bool,
    pub reach: Reach,
    pub clamped: bool,
    pub needs_grad: bool,
}

/// A value that a launch passes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ParamSource {
    /// Position of the parameter.
    pub index: u32,
    /// Members from there.
    pub path: Vec<String>,
    /// First slot.
    pub slot: u32,
    /// Its scalars.
    pub leaves: Vec<ScalarKind>,
}

/// The type of a value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ValueType {
    /// No value.
    Nothing,
    /// One scalar.
    Scalar(ScalarKind),
    /// Scalars.
    Vector(ScalarKind, u32),
    /// Rows and columns of scalars.
    Matrix(ScalarKind, u32, u32),
    /// Members by name.
    Struct(String, Vec<(String, ValueType)>),
}

/// A warning as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredWarning {
    /// The problem, and the remedy.
    pub text: String,
    /// File and line.
    pub place: Option<(String, u32)>,
    /// Its subject.
    pub about: WarningKind,
}

/// The subject of a warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WarningKind {
    /// A possible effect of the program.
    Effect,
    /// How it is written.
    Syntax,
    /// It uses a deprecated feature.
    Deprecation,
}
