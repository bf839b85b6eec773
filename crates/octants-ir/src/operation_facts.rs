//! The columns of the operation table, [`mod@crate::operation_table`].
//!
//! These are properties of an operation itself. Analyses compute what depends on the operands' values, and code
//! generators state what depends on the target.

use crate::types::Scalar;

/// The scalars that an operation takes, as such or as components of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Domain {
    /// Every scalar.
    Number,
    /// Integers, `u1` among them.
    Integer,
    /// The same. The language converts the right operand to the left one's type.
    Shift,
    /// `u1`.
    Bit,
    /// Floats. The language converts integers to `default_fp`.
    Float,
    /// Floats. The language rejects integers, for which the operation would be the identity.
    OnlyFloat,
}

impl Domain {
    /// The scalar belongs to it.
    pub fn contains(self, s: Scalar) -> bool {
        match self {
            Domain::Number => true,
            Domain::Integer | Domain::Shift => s.is_int(),
            Domain::Bit => s == Scalar::U1,
            Domain::Float | Domain::OnlyFloat => s.is_float(),
        }
    }
}

/// The scalar type of a result; its shape is the operand's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Yields {
    /// The operand's.
    Operand,
    I32,
    U1,
}

/// The result type of a subgroup operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubgroupResult {
    /// A value of the first operand's type, which is a scalar or a tensor.
    Value,
    /// A bit for each thread, u64. The operand is `u1`.
    Mask,
    /// `u1`. So is the operand.
    Vote,
    /// A fragment of the sums: see [`mod@crate::matrix_product`].
    Product,
}

/// Whether a result is defined for all values of the operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Definedness {
    /// It is.
    Total,
    /// Some values are undefined behavior: a zero divisor, an index outside. Such an operation must not be executed
    /// where the program does not.
    Partial,
}

/// How an operation takes part in differentiation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Derivative {
    /// The rules of differentiation have one for it.
    Rule,
    /// The derivative of its result is zero: constants, integers, steps.
    Zero,
    /// Addresses, memory, control flow, calls and effects: their derivative depends on the mode of differentiation.
    Structure,
}

/// The order of magnitude of an operation's cost. A target's `CostTable` has the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CostClass {
    /// No instruction on any target: constants, and renamings of registers.
    Free,
    /// Reads an argument of the launch.
    Argument,
    /// Index arithmetic of an address, mostly part of the access.
    Index,
    /// An instruction.
    Simple,
    Division,
    Root,
    /// A function of the mathematics library: a polynomial.
    Function,
    /// The same with a division or several functions in it.
    LongFunction,
    /// A product of matrices.
    Product,
    /// A draw of the random number generator.
    Draw,
    /// Access to memory.
    Memory,
    /// Read-modify-write of memory that threads share.
    Atomic,
    /// Text for the host.
    Text,
    /// The cost of blocks or of a function.
    Nested,
}
