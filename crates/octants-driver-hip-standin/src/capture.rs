//! [`Captures`]: streams whose work is recorded instead of executed. [`Graph`]: the recorded work.
//!
//! Work queued on a captured stream becomes a node after the stream's last one. An event recorded there represents the
//! stream's last nodes, and a stream that waits for it is captured too. The capture ends on the stream that it began
//! on, which must have waited for all others. A call that is illegal during a capture invalidates it, and is reported
//! as a fault.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use crate::faults::note;
use crate::lock::lock;
use crate::outcome::{Outcome, code};
use crate::work::{Graph, Node, Stream, Work};

/// Capture modes with HIP's values, from the strictest on.
pub mod mode {
    #![allow(missing_docs)]
    pub const GLOBAL: i32 = 0;
    pub const RELAXED: i32 = 2;
}

thread_local! {
    static MODE: Cell<i32> = const { Cell::new(mode::GLOBAL) };
}

/// Sets the thread's capture mode. Returns the old one.
pub fn exchange_mode(mode: i32) -> i32 {
    MODE.replace(mode)
}

#[derive(Debug)]
struct Capture {
    origin: u64,
    mode: i32,
    thread: ThreadId,
    nodes: Graph,
    /// The last nodes of each captured stream, by handle.
    last: HashMap<u64, Vec<usize>>,
    /// The nodes that recorded events refer to.
    events: HashMap<u64, Vec<usize>>,
    /// Whether the capture is invalidated.
    broken: bool,
}

/// The active captures.
#[derive(Debug, Default)]
pub struct Captures(Vec<Capture>);

/// Streams, by handle.
pub type Streams = Mutex<HashMap<u64, Arc<Stream>>>;

/// The treatment of queued work.
pub enum Queued {
    /// It was recorded.
    Captured,
    /// Pending work.
    Now(Work),
}

impl Captures {
    fn of(&mut self, stream: u64) -> Option<&mut Capture> {
        self.0.iter_mut().find(|c| c.last.contains_key(&stream))
    }

    /// Begins a capture on a stream.
    pub fn begin(&mut self, stream: &Stream, mode: i32) -> Outcome<()> {
        if stream.handle == 0 {
            return Err(code::CAPTURE_UNSUPPORTED);
        }
        if self.of(stream.handle).is_some() {
            return Err(code::ILLEGAL_STATE);
        }
        self.0.push(Capture {
            origin: stream.handle,
            mode,
            thread: std::thread::current().id(),
            nodes: Vec::new(),
            last: [(stream.handle, Vec::new())].into(),
            events: HashMap::new(),
            broken: false,
        });
        Ok(())
    }

    /// Ends a capture, on the stream where it began.
    pub fn end(&mut self, stream: &Stream) -> Outcome<Graph> {
        let at = self.0.iter().position(|c| c.last.contains_key(&stream.handle)).ok_or(code::ILLEGAL_STATE)?;
        let capture = &self.0[at];
        if capture.origin != stream.handle {
            return Err(code::CAPTURE_UNMATCHED);
        }
        if capture.mode != mode::RELAXED && capture.thread != std::thread::current().id() {
            return Err(code::CAPTURE_WRONG_THREAD);
        }
        let capture = self.0.swap_remove(at);
        if capture.broken {
            return Err(code::CAPTURE_INVALIDATED);
        }
        let mut joined = vec![false; capture.nodes.len()];
        capture.last[&capture.origin].iter().for_each(|&last| mark_until(last, &capture.nodes, &mut joined));
        if joined.contains(&false) {
            note("hipStreamEndCapture: a stream that was captured, and not waited for by the first");
            return Err(code::CAPTURE_UNJOINED);
        }
        Ok(capture.nodes)
    }

    /// Capture status: 0 for none, 1 for active, 2 for invalidated.
    pub fn status(&mut self, stream: u64) -> i32 {
        self.of(stream).map_or(0, |c| 1 + i32::from(c.broken))
    }

    /// Records work that is queued on a captured stream. The stream is one of `streams` or a null stream.
    pub fn queue(&mut self, stream: &Stream, work: Work, streams: &Streams) -> Outcome<Queued> {
        if stream.handle == 0 {
            return self.implicit(stream.device, streams).map(|()| Queued::Now(work));
        }
        let Some(capture) = self.of(stream.handle) else { return Ok(Queued::Now(work)) };
        if matches!(work, Work::Allocate { .. } | Work::Free { .. } | Work::Graph { .. }) {
            capture.broken = true;
            return Err(code::CAPTURE_UNSUPPORTED);
        }
        let number = capture.nodes.len();
        let after = capture.last.insert(stream.handle, vec![number]).unwrap_or_default();
        capture.nodes.push(Node { work, after });
        Ok(Queued::Captured)
    }

    /// Work on the null stream is illegal while blocking streams are captured.
    fn implicit(&mut self, device: i32, streams: &Streams) -> Outcome<()> {
        let streams = lock(streams);
        let in_step = |h: &u64| streams.get(h).is_some_and(|s| s.blocking && s.device == device);
        match self.0.iter_mut().find(|c| c.last.keys().any(in_step)) {
            Some(capture) => {
                capture.broken = true;
                note("the null stream is used while a stream that is in step with it is captured");
                Err(code::CAPTURE_IMPLICIT)
            }
            None => Ok(()),
        }
    }

    /// Records an event. True if it belongs to a capture.
    pub fn record(&mut self, event: u64, stream: u64) -> bool {
        self.0.iter_mut().for_each(|c| {
            c.events.remove(&event);
        });
        let Some(capture) = self.of(stream) else { return false };
        capture.events.insert(event, capture.last[&stream].clone());
        true
    }

    /// Makes a stream wait for an event, which was `recorded` outside. True if the wait belongs to a capture.
    pub fn wait(&mut self, stream: u64, event: u64, recorded: bool) -> Outcome<bool> {
        let Some(at) = self.0.iter().position(|c| c.events.contains_key(&event)) else {
            if let Some(capture) = self.of(stream).filter(|_| recorded) {
                capture.broken = true;
                note("hipStreamWaitEvent: a captured stream waits for what is not captured");
                return Err(code::CAPTURE_ISOLATION);
            }
            return Ok(false);
        };
        if self.0.iter().enumerate().any(|(n, c)| n != at && c.last.contains_key(&stream)) {
            return Err(code::CAPTURE_MERGE);
        }
        let capture = &mut self.0[at];
        let points = capture.events[&event].clone();
        capture.last.entry(stream).or_default().extend(points);
        Ok(true)
    }

    /// Reports a fault if the host waits for, or queries, a captured stream.
    pub fn look_at_stream(&mut self, call: &str, stream: u64) -> Outcome<()> {
        self.unsafe_call(call)?;
        match self.of(stream) {
            Some(capture) => {
                capture.broken = true;
                note(format!("{call}: a stream that is captured"));
                Err(code::CAPTURE_UNSUPPORTED)
            }
            None => Ok(()),
        }
    }

    /// Reports a fault if the host waits for, or queries, a captured event.
    pub fn look_at_event(&mut self, call: &str, event: u64) -> Outcome<()> {
        self.unsafe_call(call)?;
        match self.0.iter_mut().find(|c| c.events.contains_key(&event)) {
            Some(capture) => {
                capture.broken = true;
                note(format!("{call}: an event that was recorded in a capture"));
                Err(code::CAPTURED_EVENT)
            }
            None => Ok(()),
        }
    }

    /// Reports a fault for a call that is illegal during a capture, unless the thread's mode is relaxed.
    pub fn unsafe_call(&mut self, call: &str) -> Outcome<()> {
        let (own, here) = (MODE.get(), std::thread::current().id());
        let forbids = |c: &Capture| match own {
            mode::RELAXED => false,
            mode::GLOBAL => c.mode == mode::GLOBAL || c.mode != mode::RELAXED && c.thread == here,
            _ => c.mode != mode::RELAXED && c.thread == here,
        };
        match self.0.iter_mut().find(|c| forbids(c)) {
            Some(capture) => {
                capture.broken = true;
                note(format!("{call}: not while a stream is captured"));
                Err(code::CAPTURE_UNSUPPORTED)
            }
            None => Ok(()),
        }
    }
}

/// Marks a node and its predecessors.
fn mark_until(node: usize, nodes: &Graph, marked: &mut [bool]) {
    if !std::mem::replace(&mut marked[node], true) {
        nodes[node].after.iter().for_each(|&before| mark_until(before, nodes, marked));
    }
}

/// A topological order of a graph's nodes. `pick` selects among the nodes that could come next.
pub fn some_order(graph: &Graph, mut pick: impl FnMut(usize) -> usize) -> Vec<usize> {
    let mut done = vec![false; graph.len()];
    let mut order = Vec::with_capacity(graph.len());
    while order.len() < graph.len() {
        let ready: Vec<usize> =
            (0..graph.len()).filter(|&n| !done[n] && graph[n].after.iter().all(|&before| done[before])).collect();
        let next = ready[pick(ready.len())];
        done[next] = true;
        order.push(next);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_respect_dependencies() {
        let node = |after: &[usize]| Node { work: Work::End, after: after.to_vec() };
        let graph = vec![node(&[]), node(&[0]), node(&[0]), node(&[1, 2])];
        assert_eq!(some_order(&graph, |_| 0), [0, 1, 2, 3]);
        assert_eq!(some_order(&graph, |n| n - 1), [0, 2, 1, 3]);
    }
}
