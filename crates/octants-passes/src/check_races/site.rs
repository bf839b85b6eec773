//! A source location that accesses memory, as encoded in words, functions and reports.

use octants_ir::{BufferId, Layout};

/// Sites of memory that is distinguished: a word has six bits for one.
pub const MOST_SITES: usize = 64;

/// The kind of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Access {
    /// It reads.
    Read,
    /// It writes.
    Write,
    /// It updates atomically.
    Update,
}

/// An access that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Site {
    pub buffer: BufferId,
    pub access: Access,
    /// Its number among the sites of memory that may be the same.
    pub number: u32,
    /// The number in the kernel of the first of these.
    pub base: u32,
}

/// What numbers of scalars in a buffer follow from.
#[derive(Debug, Clone, PartialEq)]
pub struct BufferShape {
    pub layout: Layout,
    pub axes: usize,
    /// Of an element.
    pub scalars: u64,
}
