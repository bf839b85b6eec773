//! Values of instructions, and addresses.

use std::rc::Rc;

use octants_ir::{FrameSlot, LocalId, ValueId};

/// The value of an instruction.
#[derive(Debug, Clone, Default)]
pub(crate) enum Value {
    #[default]
    Unit,
    One(u64),
    Many(Rc<[u64]>),
    Address(Address),
    /// The result of reading uninitialized memory of a block or thread. It may be selected or frozen.
    Undefined(ValueId),
}

impl Value {
    /// A value with these leaves.
    pub fn of(leaves: Vec<u64>) -> Value {
        match leaves[..] {
            [] => Value::Unit,
            [one] => Value::One(one),
            _ => Value::Many(leaves.into()),
        }
    }

    /// The leaves, row-major, members in order.
    pub fn leaves(&self) -> &[u64] {
        match self {
            Value::Unit | Value::Address(_) | Value::Undefined(_) => &[],
            Value::One(bits) => std::slice::from_ref(bits),
            Value::Many(leaves) => leaves,
        }
    }
}

/// Memory that is addressed by bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Region {
    /// A root of fields.
    Root(u32),
    /// An array argument.
    Array(u32),
    /// A root of the block's memory.
    Shared(u32),
    /// A root of the thread's memory.
    Private(u32),
}

/// The memory that an address points into.
#[derive(Debug, Clone)]
pub(crate) enum Base {
    /// A local of an activation, counted from the outermost one.
    Local(usize, LocalId),
    Frame(FrameSlot),
    /// An element with contiguous components.
    Element(Region, u64),
    /// An element, each component where its layout has it.
    Components(Rc<[(Region, u64)]>),
    /// No element: such an address may be computed, and not be used.
    Outside(Rc<str>),
}

/// The address of a leaf, and of those after it.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    pub base: Base,
    pub leaf: usize,
}
