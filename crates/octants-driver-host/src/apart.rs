//! [`Apart`]: padding against false sharing.

/// Aligns a value to two cache lines, because the adjacent-line prefetcher fetches lines in pairs.
#[repr(align(128))]
pub(crate) struct Apart<T>(pub T);
