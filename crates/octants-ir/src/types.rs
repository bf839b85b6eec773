//! The types of values: scalars, vectors, matrices, structs, and references to memory that holds them.

use std::fmt;
use std::sync::Arc;

/// A machine scalar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scalar {
    /// Truth value; one byte in memory, 0 or 1.
    U1,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F16,
    F32,
    F64,
}

impl Scalar {
    /// Every scalar, in declaration order.
    pub const ALL: [Scalar; 12] = [
        Scalar::U1,
        Scalar::I8,
        Scalar::I16,
        Scalar::I32,
        Scalar::I64,
        Scalar::U8,
        Scalar::U16,
        Scalar::U32,
        Scalar::U64,
        Scalar::F16,
        Scalar::F32,
        Scalar::F64,
    ];

    /// Size in memory.
    pub fn bytes(self) -> u32 {
        self.bits().div_ceil(8)
    }

    /// Width in bits (1 for `u1`).
    pub fn bits(self) -> u32 {
        match self {
            Scalar::U1 => 1,
            Scalar::I8 | Scalar::U8 => 8,
            Scalar::I16 | Scalar::U16 | Scalar::F16 => 16,
            Scalar::I32 | Scalar::U32 | Scalar::F32 => 32,
            Scalar::I64 | Scalar::U64 | Scalar::F64 => 64,
        }
    }

    /// f16, f32, f64.
    pub fn is_float(self) -> bool {
        matches!(self, Scalar::F16 | Scalar::F32 | Scalar::F64)
    }

    /// Any integer, `u1` included.
    pub fn is_int(self) -> bool {
        !self.is_float()
    }

    /// i8 to i64.
    pub fn is_signed(self) -> bool {
        matches!(self, Scalar::I8 | Scalar::I16 | Scalar::I32 | Scalar::I64)
    }

    /// The integer that has the bits of a float; `None` for integers.
    pub fn bits_type(self) -> Option<Scalar> {
        match self {
            Scalar::F16 => Some(Scalar::U16),
            Scalar::F32 => Some(Scalar::U32),
            Scalar::F64 => Some(Scalar::U64),
            _ => None,
        }
    }

    /// u1, u8 to u64.
    pub fn is_unsigned(self) -> bool {
        self.is_int() && !self.is_signed()
    }

    /// The name used in Python and in the IR's text.
    pub fn name(self) -> &'static str {
        match self {
            Scalar::U1 => "u1",
            Scalar::I8 => "i8",
            Scalar::I16 => "i16",
            Scalar::I32 => "i32",
            Scalar::I64 => "i64",
            Scalar::U8 => "u8",
            Scalar::U16 => "u16",
            Scalar::U32 => "u32",
            Scalar::U64 => "u64",
            Scalar::F16 => "f16",
            Scalar::F32 => "f32",
            Scalar::F64 => "f64",
        }
    }

    /// The scalar of a name.
    pub fn from_name(name: &str) -> Option<Scalar> {
        Scalar::ALL.into_iter().find(|s| s.name() == name)
    }

    /// The type of `a op b` for arithmetic on scalars: the wider of two of a kind; float over integer (the float keeps
    /// its width); unsigned over signed of the same width; `u1` with anything is the other type.
    pub fn promote(self, other: Scalar) -> Scalar {
        if self == other {
            return self;
        }
        match (self.is_float(), other.is_float()) {
            (true, false) => return self,
            (false, true) => return other,
            _ => {}
        }
        if self.bits() != other.bits() {
            return if self.bits() > other.bits() { self } else { other };
        }
        if self.is_unsigned() { self } else { other }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A named product type. Members are kept in declaration order.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct StructType {
    /// Name for messages and IR text.
    pub name: String,
    /// Member names and types, in order.
    pub members: Vec<(String, Type)>,
}

impl StructType {
    /// Position of a member.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.members.iter().position(|(n, _)| n == name)
    }
}

/// The type of a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Type {
    /// No value.
    #[default]
    Unit,
    /// One scalar.
    Scalar(Scalar),
    /// `n` scalars.
    Vector(Scalar, u32),
    /// `rows x columns` scalars, row-major.
    Matrix(Scalar, u32, u32),
    /// A struct by value.
    Struct(Arc<StructType>),
    /// The address of a value in memory (a local variable, a buffer element, or a part of one).
    Ref(Box<Type>),
}

impl Type {
    /// `i32`, the type of loop indices and shapes.
    pub const I32: Type = Type::Scalar(Scalar::I32);
    /// `u1`, the type of conditions.
    pub const U1: Type = Type::Scalar(Scalar::U1);

    /// The scalar of a scalar, vector or matrix.
    pub fn scalar(&self) -> Option<Scalar> {
        match self {
            Type::Scalar(s) | Type::Vector(s, _) | Type::Matrix(s, _, _) => Some(*s),
            _ => None,
        }
    }

    /// The same shape with another scalar; `self` must be a scalar, vector or matrix.
    pub fn with_scalar(&self, s: Scalar) -> Type {
        match self {
            Type::Scalar(_) => Type::Scalar(s),
            Type::Vector(_, n) => Type::Vector(s, *n),
            Type::Matrix(_, n, m) => Type::Matrix(s, *n, *m),
            other => panic!("compiler bug: {other} has no scalar"),
        }
    }

    /// Vector or matrix.
    pub fn is_tensor(&self) -> bool {
        matches!(self, Type::Vector(..) | Type::Matrix(..))
    }

    /// `[]`, `[n]` or `[n, m]`.
    pub fn shape(&self) -> Vec<u32> {
        match self {
            Type::Vector(_, n) => vec![*n],
            Type::Matrix(_, n, m) => vec![*n, *m],
            _ => Vec::new(),
        }
    }

    /// The tensor type of a shape (0, 1 or 2 extents).
    pub fn tensor(s: Scalar, shape: &[u32]) -> Type {
        match shape {
            [] => Type::Scalar(s),
            [n] => Type::Vector(s, *n),
            [n, m] => Type::Matrix(s, *n, *m),
            _ => panic!("compiler bug: a tensor value has at most two axes"),
        }
    }

    /// Number of scalar leaves, in the order a value is flattened: row-major for tensors, member by member for structs.
    pub fn leaf_count(&self) -> usize {
        match self {
            Type::Unit => 0,
            Type::Scalar(_) | Type::Ref(_) => 1,
            Type::Vector(_, n) => *n as usize,
            Type::Matrix(_, n, m) => (*n * *m) as usize,
            Type::Struct(s) => s.members.iter().map(|(_, t)| t.leaf_count()).sum(),
        }
    }

    /// The scalars of the leaves, in order. `self` holds no references.
    pub fn leaves(&self) -> Vec<Scalar> {
        match self {
            Type::Unit => Vec::new(),
            Type::Scalar(s) => vec![*s],
            Type::Vector(s, n) => vec![*s; *n as usize],
            Type::Matrix(s, n, m) => vec![*s; (*n * *m) as usize],
            Type::Struct(s) => s.members.iter().flat_map(|(_, t)| t.leaves()).collect(),
            Type::Ref(_) => panic!("compiler bug: a reference has no leaves"),
        }
    }
}

impl From<Scalar> for Type {
    fn from(s: Scalar) -> Type {
        Type::Scalar(s)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Unit => f.write_str("unit"),
            Type::Scalar(s) => write!(f, "{s}"),
            Type::Vector(s, n) => write!(f, "vec{n}<{s}>"),
            Type::Matrix(s, n, m) => write!(f, "mat{n}x{m}<{s}>"),
            Type::Struct(s) => {
                write!(f, "struct {}{{", s.name)?;
                for (i, (name, ty)) in s.members.iter().enumerate() {
                    write!(f, "{}{name}: {ty}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str("}")
            }
            Type::Ref(t) => write!(f, "ref {t}"),
        }
    }
}
