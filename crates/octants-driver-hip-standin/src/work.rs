//! [`Work`] and its users: [`Stream`], [`Event`], [`Graph`]. Work refers to streams and events, which contain work, so
//! their types are together. Their operations are in `stream`, `event` and `capture`.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use crate::code::Function;
use crate::product::Product;

/// A piece of work.
#[allow(missing_docs)] // The variants tell of their fields.
#[derive(Debug)]
pub enum Work {
    /// Copies memory: destination, source, bytes, and whether each side is device memory.
    Copy { to: (u64, bool), from: (u64, bool), bytes: usize },
    /// Copies between devices: destination, source, their devices, bytes.
    CopyBetween { to: (u64, i32), from: (u64, i32), bytes: usize },
    /// Fills memory with a pattern.
    Fill { to: u64, pattern: Vec<u8>, bytes: usize },
    /// Makes allocated memory valid.
    Allocate { at: u64 },
    /// Frees memory.
    Free { at: u64 },
    /// Launches a kernel.
    Launch { function: Arc<Function>, blocks: u32, threads: u32, resident: bool, parameter: Vec<u64> },
    /// Multiplies a sparse matrix by a vector.
    Multiply { product: Product },
    /// Launches a graph.
    Graph { graph: Arc<Graph> },
    /// Waits until another stream has completed `count` work items.
    Wait { stream: Arc<Stream>, count: u64 },
    /// Records a timestamp.
    Record { event: Arc<Event> },
    /// Ends the stream's thread.
    End,
}

/// The queue of a stream.
#[derive(Debug, Default)]
pub struct Queue {
    /// Pending work.
    pub waiting: VecDeque<Work>,
    /// Number of queued items so far.
    pub queued: u64,
    /// Number of completed items.
    pub done: u64,
    /// Whether the stream's thread was started.
    pub started: bool,
}

/// A stream.
#[derive(Debug)]
pub struct Stream {
    /// Its handle; zero for a device's null stream.
    pub handle: u64,
    /// Its device.
    pub device: i32,
    /// Whether it is ordered with the null stream.
    pub blocking: bool,
    /// Its queue.
    pub queue: Mutex<Queue>,
    /// Notified when an item is queued or completed.
    pub changed: Condvar,
}

/// A graph node: an item of work and its dependencies.
#[derive(Debug)]
pub struct Node {
    /// The work.
    pub work: Work,
    /// Indices of the nodes that it depends on, all smaller than its own.
    pub after: Vec<usize>,
}

/// A captured graph.
pub type Graph = Vec<Node>;

/// An event.
#[derive(Debug)]
pub struct Event {
    /// Its device.
    pub device: i32,
    /// Whether it records a time.
    pub timing: bool,
    /// The recorded point: a stream and a number of its items.
    pub recorded: Mutex<Option<(Arc<Stream>, u64)>>,
    /// When the stream reached the point.
    pub time: Mutex<Option<Instant>>,
}

impl Work {
    /// The functions that it launches.
    pub fn functions(&self) -> Vec<&Arc<Function>> {
        match self {
            Work::Launch { function, .. } => vec![function],
            Work::Graph { graph } => graph.iter().flat_map(|node| node.work.functions()).collect(),
            _ => Vec::new(),
        }
    }
}
