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
    /// Copies memory: addresses of where to and from, bytes, and whether each side is the device's.
    Copy { to: (u64, bool), from: (u64, bool), bytes: usize },
    /// Copies memory of one device to another: addresses and devices of where to and from, bytes.
    CopyBetween { to: (u64, i32), from: (u64, i32), bytes: usize },
    /// Sets bytes to copies of some.
    Fill { to: u64, pattern: Vec<u8>, bytes: usize },
    /// Makes allocated memory valid.
    Allocate { at: u64 },
    /// Gives memory back.
    Free { at: u64 },
    /// Runs code.
    Launch { function: Arc<Function>, blocks: u32, threads: u32, parameter: Vec<u64> },
    /// Multiplies a sparse matrix by a vector.
    Multiply { product: Product },
    /// Does what was captured.
    Graph { graph: Arc<Graph> },
    /// Waits until another stream has completed `count` work items.
    Wait { stream: Arc<Stream>, count: u64 },
    /// Notes when it came here.
    Record { event: Arc<Event> },
    /// Nothing more comes.
    End,
}

/// The queue of a stream.
#[derive(Debug, Default)]
pub struct Queue {
    /// To be done.
    pub waiting: VecDeque<Work>,
    /// How many pieces were queued so far.
    pub queued: u64,
    /// How many of them are done.
    pub done: u64,
    /// The stream has its thread.
    pub started: bool,
}

/// A stream.
#[derive(Debug)]
pub struct Stream {
    /// Its handle; zero for a device's null stream.
    pub handle: u64,
    /// Its device.
    pub device: i32,
    /// Ordered with the null stream.
    pub blocking: bool,
    /// Its work.
    pub queue: Mutex<Queue>,
    /// Something was queued or done.
    pub changed: Condvar,
}

/// A piece of work, and the nodes that come before it.
#[derive(Debug)]
pub struct Node {
    /// The work.
    pub work: Work,
    /// Numbers of the nodes that it waits for, all smaller than its own.
    pub after: Vec<usize>,
}

/// What was captured, by node.
pub type Graph = Vec<Node>;

/// An event.
#[derive(Debug)]
pub struct Event {
    /// Its device.
    pub device: i32,
    /// It can be asked for the time.
    pub timing: bool,
    /// What it stands for: a stream, and how many pieces of its work.
    pub recorded: Mutex<Option<(Arc<Stream>, u64)>>,
    /// When the stream came there.
    pub time: Mutex<Option<Instant>>,
}

impl Work {
    /// The functions that it runs.
    pub fn functions(&self) -> Vec<&Arc<Function>> {
        match self {
            Work::Launch { function, .. } => vec![function],
            Work::Graph { graph } => graph.iter().flat_map(|node| node.work.functions()).collect(),
            _ => Vec::new(),
        }
    }
}
