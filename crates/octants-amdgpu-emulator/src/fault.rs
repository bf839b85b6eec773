//! [`Fault`]: an operation of a launch that a GPU forbids, or that is not modeled.

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Its kind.
    pub kind: FaultKind,
    /// For people: the block, the wave and the instruction among it.
    pub why: String,
}

/// Kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// Memory that is not there.
    Address,
    /// Anything else.
    Launch,
}

impl Fault {
    /// A launch that fails.
    pub fn launch(why: impl Into<String>) -> Fault {
        Fault { kind: FaultKind::Launch, why: why.into() }
    }

    /// An access to memory that is not there.
    pub fn address(why: impl Into<String>) -> Fault {
        Fault { kind: FaultKind::Address, why: why.into() }
    }
}
