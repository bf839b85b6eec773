//! [`Ranges`]: the chunk numbers that a participant of a job takes.

use std::sync::atomic::Ordering;

use crate::apart::Apart;
use crate::lane::{Lane, pack, take_first, take_last};
use crate::watch::Watch;

/// The ranges of numbers that a participant of a job takes: the chunks of its own lane from the front, then those of
/// other lanes from the back.
pub struct Ranges<'a> {
    /// All chunks, if there is one thread.
    pub(crate) whole: Option<(u64, u64)>,
    pub(crate) lanes: &'a [Apart<Lane>],
    pub(crate) own: usize,
    /// Number of lanes found empty, from its own one on. They stay empty.
    pub(crate) empty: usize,
    pub(crate) chunk: u64,
    pub(crate) count: u64,
    pub(crate) watch: &'a Watch<'a>,
}

impl<'a> Ranges<'a> {
    /// Takes all remaining chunks, so that the job ends.
    #[cold]
    fn drain(&mut self) {
        self.lanes.iter().for_each(|lane| lane.0.chunks.store(pack(0, 0), Ordering::Relaxed));
    }

    /// Whether code that runs a range should exit.
    pub fn watch(&self) -> &'a Watch<'a> {
        self.watch
    }

    /// The number of the participant, less than the job's width.
    pub fn lane(&self) -> usize {
        self.own
    }
}

impl Iterator for Ranges<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        if self.whole.is_some() {
            return self.whole.take();
        }
        if self.watch.look() {
            self.drain();
        }
        while self.empty < self.lanes.len() {
            let lane = &self.lanes[(self.own + self.empty) % self.lanes.len()].0.chunks;
            if let Some(chunk) = if self.empty == 0 { take_first(lane) } else { take_last(lane) } {
                let begin = u64::from(chunk) * self.chunk;
                return Some((begin, begin.saturating_add(self.chunk).min(self.count)));
            }
            self.empty += 1;
        }
        None
    }
}
