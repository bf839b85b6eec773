//! [`Apart`]: what threads write side by side without slowing one another down.

/// Keeps neighbours off a cache line, and off the one that is fetched with it.
#[repr(align(128))]
pub(crate) struct Apart<T>(pub T);
