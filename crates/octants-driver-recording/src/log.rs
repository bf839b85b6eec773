//! [`Log`]: what a recording driver was asked to do, and what was wrong with it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::clock::{Clock, Moment};

/// Shared by a driver and its test.
#[derive(Debug, Default)]
pub struct Log(Mutex<State>);

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) calls: Vec<String>,
    pub(crate) mistakes: Vec<String>,
    /// Calls that may fail so far, and the one that does.
    pub(crate) fallible: u64,
    pub(crate) fail_at: Option<u64>,
    pub(crate) failed: Option<&'static str>,
    pub(crate) fail_task: bool,
    pub(crate) streams: BTreeMap<u64, Clock>,
    pub(crate) events: BTreeMap<u64, Option<Clock>>,
    pub(crate) blocks: BTreeMap<u64, Block>,
    pub(crate) modules: u64,
    pub(crate) next: u64,
    /// What the host has waited for.
    pub(crate) host: Clock,
}

/// Memory.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) memory: Box<[u64]>,
    pub(crate) bytes: u64,
    /// Launch number and time of each use.
    pub(crate) uses: Vec<(u64, Moment)>,
}

impl Log {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The calls since the last time.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.state().calls)
    }

    /// How many of the calls so far begin with `name`; they are kept.
    pub fn count(&self, name: &str) -> usize {
        self.state().calls.iter().filter(|c| c.split(' ').next() == Some(name)).count()
    }

    /// What broke the rules of the `Driver` trait.
    pub fn mistakes(&self) -> Vec<String> {
        self.state().mistakes.clone()
    }

    /// Lets the call fail that comes `n`-th from now on, of those that can. Zero is the next.
    pub fn fail_call(&self, n: u64) {
        let mut s = self.state();
        s.failed = None;
        s.fail_at = Some(s.fallible + n);
    }

    /// The call that failed because of [`Log::fail_call`].
    pub fn failed(&self) -> Option<&'static str> {
        self.state().failed
    }

    /// Lets an assertion of the next task fail.
    pub fn fail_task(&self) {
        self.state().fail_task = true;
    }

    /// What was not given back: blocks, streams, events, modules.
    pub fn leaks(&self) -> Vec<String> {
        let s = self.state();
        let blocks = s.blocks.values().map(|b| format!("{} bytes", b.bytes));
        let streams = s.streams.keys().filter(|k| **k != 0).map(|k| format!("stream {k}"));
        let events = s.events.keys().map(|k| format!("event {k}"));
        let modules = (s.modules > 0).then(|| format!("{} modules", s.modules));
        blocks.chain(streams).chain(events).chain(modules).collect()
    }
}
