//! [`SavedGraph`]: the launches, fills and copies of a captured graph, as stored for other processes.
//!
//! The code is stored with the graph. Memory is either named, and supplied when the graph is loaded, or owned by the
//! graph, with its contents if they are constant. No address is stored.

use serde::{Deserialize, Serialize};

use crate::entry::{Refused, check_entry, compiler_of, write_entry};
use crate::{Artifact, Key, Pointer, key_of_bytes};

/// The operations of a graph.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SavedGraph {
    /// The code of its launches.
    pub kernels: Vec<SavedKernel>,
    /// The memory that it uses.
    pub memory: Vec<SavedMemory>,
    /// The steps.
    pub steps: Vec<SavedStep>,
}

/// Code, and the known facts about its arguments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SavedKernel {
    /// The code.
    pub artifact: Artifact,
    /// Argument slots that hold addresses.
    pub pointers: Vec<Pointer>,
    /// The code converts addresses to integers.
    pub exposes_addresses: bool,
}

/// A buffer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SavedMemory {
    /// One that is given when the graph is loaded.
    Named {
        /// The name.
        name: String,
        /// A description of the object that the user passed. A replacement must match it.
        what: String,
        /// Its length.
        bytes: u64,
    },
    /// One of the graph's own.
    Own {
        /// Its length.
        bytes: u64,
        /// Its constant contents; `None` if steps write it.
        holds: Option<Vec<u8>>,
    },
}

/// A place in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedPlace {
    /// Which of the graph's memory.
    pub memory: u32,
    /// Bytes from its start.
    pub offset: u64,
}

/// An argument slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SavedSlot {
    /// A value.
    Value(u64),
    /// An address.
    At(SavedPlace),
}

/// A step of a graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedStep {
    /// The stream it was queued on, counted from 0.
    pub lane: u32,
    /// Steps before it that it waits for.
    pub depends_on: Vec<u32>,
    /// Its operation.
    pub work: SavedWork,
}

/// The operation of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SavedWork {
    /// A launch.
    Launch {
        /// Which of the graph's kernels.
        kernel: u32,
        /// Its argument slots.
        args: Vec<SavedSlot>,
    },
    /// A fill.
    Fill {
        /// Its first byte.
        to: SavedPlace,
        /// The bytes that are repeated: one, two or four.
        pattern: Vec<u8>,
        /// Its length.
        bytes: u64,
    },
    /// A copy.
    Copy {
        /// The first byte that is written.
        to: SavedPlace,
        /// The first byte that is read.
        from: SavedPlace,
        /// Its length.
        bytes: u64,
    },
}

/// Why bytes are not a loadable graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnreadableGraph {
    /// Another version of the compiler wrote it, or one for another device.
    Foreign,
    /// The contents are damaged.
    Damaged,
}

impl SavedGraph {
    /// The graph as bytes, for programs with the compiler and device that `made_for` identifies.
    pub fn to_bytes(&self, made_for: &Key) -> Result<Vec<u8>, String> {
        let body = postcard::to_stdvec(self).map_err(|e| e.to_string())?;
        Ok(write_entry(made_for, &kind(), &body))
    }

    /// The graph of bytes that `to_bytes` made.
    pub fn from_bytes(bytes: &[u8], made_for: &Key) -> Result<SavedGraph, UnreadableGraph> {
        let (head, body) = check_entry(bytes).map_err(|refused| match refused {
            Refused::OtherFormat => UnreadableGraph::Foreign,
            Refused::Damaged => UnreadableGraph::Damaged,
        })?;
        if !head.ends_with(&kind_and_length(body)) {
            return Err(UnreadableGraph::Damaged);
        }
        if compiler_of(bytes) != Some(made_for.bytes()) {
            return Err(UnreadableGraph::Foreign);
        }
        postcard::from_bytes(body).map_err(|_| UnreadableGraph::Damaged)
    }
}

/// Marks graphs among the entries.
fn kind() -> Key {
    key_of_bytes(b"captured graph")
}

fn kind_and_length(body: &[u8]) -> Vec<u8> {
    [&kind().bytes()[..], &(body.len() as u64).to_le_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_bytes_are_readable_only_by_their_maker_and_damage_is_detected() {
        let place = SavedPlace { memory: 0, offset: 8 };
        let work = SavedWork::Fill { to: place, pattern: vec![0], bytes: 16 };
        let graph = SavedGraph {
            kernels: Vec::new(),
            memory: vec![SavedMemory::Own { bytes: 64, holds: None }],
            steps: vec![SavedStep { lane: 0, depends_on: vec![], work }],
        };
        let (ours, theirs) = (key_of_bytes(b"ours"), key_of_bytes(b"theirs"));
        let bytes = graph.to_bytes(&ours).unwrap();
        assert_eq!(SavedGraph::from_bytes(&bytes, &ours), Ok(graph));
        assert_eq!(SavedGraph::from_bytes(&bytes, &theirs), Err(UnreadableGraph::Foreign));
        for at in [0, 20, 50, bytes.len() - 1] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(SavedGraph::from_bytes(&damaged, &ours), Err(UnreadableGraph::Damaged), "{at}");
        }
        assert_eq!(SavedGraph::from_bytes(b"no graph", &ours), Err(UnreadableGraph::Damaged));
        let other = write_entry(&ours, &theirs, &bytes);
        assert_eq!(SavedGraph::from_bytes(&other, &ours), Err(UnreadableGraph::Damaged), "an entry of another kind");
    }
}
