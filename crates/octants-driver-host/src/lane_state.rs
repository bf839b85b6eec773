//! States of a lane.

/// No one may take it.
pub(crate) const CLOSED: u32 = 0;
/// A participant may take it.
pub(crate) const OPEN: u32 = 1;
/// A participant works.
pub(crate) const TAKEN: u32 = 2;
/// A participant works, and the caller sleeps until it is done.
pub(crate) const AWAITED: u32 = 3;
