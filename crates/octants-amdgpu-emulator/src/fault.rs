//! [`Fault`]: an operation of a launch that a GPU forbids, or that is not modeled.

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Its kind.
    pub kind: FaultKind,
    /// The message: the block, the wave and the instruction.
    pub why: String,
}

/// Kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// Access to inaccessible memory.
    Address,
    /// Any other fault.
    Launch,
}

impl Fault {
    /// A launch failure.
    pub fn launch(why: impl Into<String>) -> Fault {
        Fault { kind: FaultKind::Launch, why: why.into() }
    }

    /// An access to inaccessible memory.
    pub fn address(why: impl Into<String>) -> Fault {
        Fault { kind: FaultKind::Address, why: why.into() }
    }
}
