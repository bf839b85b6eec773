//! A source location that accesses memory, as encoded in words, functions and reports.

use std::collections::BTreeMap;

use octants_ir::{BufferId, Layout, LocalId};

/// Memory that accesses of a loop are compared in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Memory {
    /// An array or a field.
    Buffer(BufferId),
    /// A local variable of the kernel that iterations share.
    Local(LocalId),
    /// An array or a field that concurrent groups share, with separate words.
    OfGroups(BufferId),
}

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
    pub memory: Memory,
    pub access: Access,
    /// Its number among the sites of memory that may be the same.
    pub number: u32,
    /// The number in the kernel of the first of these.
    pub base: u32,
}

/// The numbering of scalars: the index of the word that each has.
#[derive(Debug, Default)]
pub struct Shapes {
    /// The shapes of all buffers of the kernel. The words of each start at 0.
    pub buffers: Vec<BufferShape>,
    /// The first word of each watched local in the buffer of notes.
    pub locals: BTreeMap<LocalId, u64>,
}

/// The data from which numbers of scalars in a buffer are computed.
#[derive(Debug, Clone, PartialEq)]
pub struct BufferShape {
    pub layout: Layout,
    pub axes: usize,
    /// The number of scalars of an element.
    pub scalars: u64,
}
