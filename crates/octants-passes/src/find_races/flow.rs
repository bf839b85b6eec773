//! [`Flow`]: what follows an instruction that is evaluated.

/// The control flow after an instruction.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Flow {
    Next,
    Break,
    Continue,
    Return(Option<u64>),
    /// The iteration ends, or its behavior is unknown.
    Ends,
}
