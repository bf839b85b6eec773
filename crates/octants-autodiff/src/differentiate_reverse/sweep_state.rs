//! The state of an emitter: iterations, loops, adjoints, and kept states.

use std::collections::{HashMap, HashSet};

use octants_ir::{BlockId, BufferId, LocalId, ValueId};

use super::store_arguments::StoreArguments;

/// A position at which code can be inserted later.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    pub block: BlockId,
    /// The code is inserted after this instruction.
    pub inst: ValueId,
}

/// An iteration of a parallel loop.
pub(super) struct Iteration {
    /// Locals of the source that are its own.
    pub private: HashSet<LocalId>,
    /// Buffers in which no other iteration touches the same elements.
    pub own: HashSet<BufferId>,
    /// The adjoints of its locals, set to zero at its start.
    pub adjoints: HashMap<LocalId, LocalId>,
    pub start: Mark,
}

/// How to obtain the indices of a loop of the source.
#[derive(Debug, Clone)]
pub(super) enum Indices {
    /// From a loop with the same bounds.
    Of(ValueId),
    /// As these values.
    Are(Vec<ValueId>),
}

/// The accumulator of a value's adjoint.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Adjoint {
    pub value: Option<ValueId>,
    pub local: Option<LocalId>,
}

/// Whether a forward sweep stores the states that the reverse sweep of its region needs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Mode {
    /// It does.
    Keep,
    /// It does not.
    Pass,
    /// It counts the words that would be stored, in these locals.
    Count([LocalId; 2]),
}

/// The updates that a reversed loop defers.
pub(super) struct Deferred {
    /// Where its sums are set to zero.
    pub start: Mark,
    pub sums: Vec<Sum>,
}

pub(super) struct Sum {
    /// The address in the source.
    pub addr: ValueId,
    pub local: LocalId,
    /// The address is always valid.
    pub certain: bool,
}

/// The kept states of one loop.
#[derive(Debug, Clone)]
pub(super) struct Stack {
    pub locals: Vec<LocalId>,
    /// Arrays of the leaves and the position in them; `None` for the store.
    pub arrays: Option<(LocalId, Vec<LocalId>)>,
}

/// The way to the store.
#[derive(Debug, Default, Clone)]
pub(super) struct Store {
    pub args: Option<StoreArguments>,
    /// Positions in the store, if a lane runs the code; and whether it is the root.
    pub tops: Option<[LocalId; 2]>,
    pub at_root: bool,
}
