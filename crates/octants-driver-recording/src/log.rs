//! [`Log`]: the calls that a recording driver received, and the mistakes among them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::clock::{Clock, Moment};

/// Shared by a driver and its test.
#[derive(Debug, Default)]
pub struct Log(Mutex<State>);

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) calls: Vec<String>,
    pub(crate) launched: Vec<Launched>,
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
    /// The work that the host has waited for.
    pub(crate) host: Clock,
    pub(crate) reads: Vec<HostRead>,
    pub(crate) captured: BTreeSet<u64>,
    pub(crate) captured_events: BTreeSet<u64>,
    pub(crate) args_at: Option<u64>,
    pub(crate) arguments: Vec<Vec<u8>>,
    pub(crate) messages_to_send: Vec<Message>,
    /// The values that tasks will write, by task number; and the destination: an argument slot, or `None` for the
    /// frame.
    pub(crate) to_write: BTreeMap<u64, (Option<usize>, VecDeque<i32>)>,
    /// The checkpoint where a launch as one graph ends, counted from 1; zero for none.
    pub(crate) ends_at: u64,
}

/// The messages of the code.
#[derive(Debug, Clone)]
pub struct Message {
    /// The site.
    pub site: u32,
    /// Its values.
    pub values: Vec<u64>,
    /// An assertion that fails, rather than text.
    pub fails: bool,
    /// The record is complete; otherwise its words are only reserved.
    pub written: bool,
}

/// A task that was queued.
#[derive(Debug, Clone)]
pub struct Launched {
    /// Its name.
    pub task: String,
    /// Number of the launch.
    pub number: u64,
    /// The stream.
    pub stream: u64,
    /// The address or other value in each argument slot.
    pub args: Vec<u64>,
    pub(crate) at: Moment,
    pub(crate) known: Clock,
}

impl Launched {
    /// The other one is done before this one starts.
    pub fn happens_after(&self, other: &Launched) -> bool {
        self.known.knows(other.at)
    }
}

/// A queued copy from the host's memory.
#[derive(Debug)]
pub(crate) struct HostRead {
    pub(crate) from: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) at: Moment,
}

/// The unit of memory: blocks are aligned to it.
#[derive(Debug, Clone)]
#[repr(align(64))]
pub(crate) struct Line(pub(crate) [u64; 8]);

/// Memory.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) memory: Box<[Line]>,
    pub(crate) bytes: u64,
    /// When it was allocated, if for one stream.
    pub(crate) born: Option<Moment>,
    /// Launch number (none for copies) and time of each use.
    pub(crate) uses: Vec<(Option<u64>, Moment)>,
}

impl State {
    /// The block that an address is in, and its start.
    pub(crate) fn block(&self, address: u64) -> Option<(u64, &Block)> {
        let (&start, block) = self.blocks.range(..=address).next_back()?;
        (address - start < block.bytes).then_some((start, block))
    }

    /// The bytes of the block that an address is in, from there on.
    pub(crate) fn memory(&self, address: u64, most: usize) -> Option<Vec<u8>> {
        let (start, block) = self.block(address)?;
        let bytes = block.memory.iter().flat_map(|line| line.0).flat_map(u64::to_ne_bytes).take(block.bytes as usize);
        Some(bytes.skip((address - start) as usize).take(most).collect())
    }

    /// Checks that completed copies read the memory as it was when they were queued.
    pub(crate) fn settle(&mut self) {
        let host = self.host.clone();
        for read in self.reads.extract_if(.., |r| host.knows(r.at)).collect::<Vec<_>>() {
            self.check_source(&read);
        }
    }

    /// Checks the same for copies of a stream from a range that it overwrites next.
    pub(crate) fn settle_before(&mut self, stream: u64, to: u64, bytes: u64) {
        let meets = |r: &HostRead| to < r.from + r.bytes.len() as u64 && r.from < to + bytes;
        let reads = self.reads.extract_if(.., |r| r.at.stream == stream && meets(r));
        for read in reads.collect::<Vec<_>>() {
            self.check_source(&read);
        }
    }

    pub(crate) fn check_source(&mut self, read: &HostRead) {
        // SAFETY: the caller that queued the copy keeps its source until the copy is done.
        let now = unsafe { std::slice::from_raw_parts(read.from as *const u8, read.bytes.len()) };
        if now != &*read.bytes {
            let (bytes, stream) = (read.bytes.len(), read.at.stream);
            self.mistakes
                .push(format!("the source of a copy of {bytes} bytes on stream {stream} changed before it was done"));
        }
    }
}

impl Log {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The calls since the last query.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.state().calls)
    }

    /// The calls so far, kept.
    pub fn calls(&self) -> Vec<String> {
        self.state().calls.clone()
    }

    /// The tasks since the last query.
    pub fn take_launched(&self) -> Vec<Launched> {
        std::mem::take(&mut self.state().launched)
    }

    /// The contents of device memory at the address in this argument slot of the last launch: some bytes.
    pub fn argument(&self, slot: usize) -> Vec<u8> {
        self.state().arguments.get(slot).cloned().unwrap_or_default()
    }

    /// The address of the last launch's arguments, if they were not passed by value.
    pub fn last_args_at(&self) -> Option<u64> {
        self.state().args_at
    }

    /// How many of the calls so far begin with `name`; they are kept.
    pub fn count(&self, name: &str) -> usize {
        self.state().calls.iter().filter(|c| c.split(' ').next() == Some(name)).count()
    }

    /// The violations of the rules of the `Driver` trait.
    pub fn mistakes(&self) -> Vec<String> {
        self.state().mistakes.clone()
    }

    /// Makes the `n`-th of the following calls that can fail do so. Zero is the next one.
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

    /// Makes the task with this number write the next of these values at each launch, to the address in an argument
    /// slot, or to the start of the frame.
    pub fn task_writes(&self, task: u64, slot: Option<usize>, values: &[i32]) {
        self.state().to_write.insert(task, (slot, values.iter().copied().collect()));
    }

    /// Lets launches of all tasks as one end at a checkpoint, by its number among them from 1; zero for none.
    pub fn end_at_checkpoint(&self, number: u64) {
        self.state().ends_at = number;
    }

    /// Makes the next task with a channel send this message.
    pub fn say(&self, said: Message) {
        self.state().messages_to_send.push(said);
    }

    /// Everything queued so far is done, although nothing has waited for it.
    pub fn all_done(&self) {
        let mut s = self.state();
        let clocks: Vec<_> = s.streams.values().cloned().collect();
        clocks.iter().for_each(|c| s.host.join(c));
        s.settle();
    }

    /// Starts a capture of this stream, and of streams that wait for it; `None` ends all captures.
    pub fn capture(&self, stream: Option<u64>) {
        let mut s = self.state();
        match stream {
            Some(stream) => _ = s.captured.insert(stream),
            None => {
                s.captured.clear();
                s.captured_events.clear();
            }
        }
    }

    /// The bytes of the block that an address is in, from there on.
    pub fn memory(&self, address: u64) -> Option<Vec<u8>> {
        self.state().memory(address, usize::MAX)
    }

    /// Leaked blocks, streams, events and modules.
    pub fn leaks(&self) -> Vec<String> {
        let s = self.state();
        let blocks = s.blocks.values().map(|b| format!("{} bytes", b.bytes));
        let streams = s.streams.keys().filter(|k| **k & u64::from(u32::MAX) != 0).map(|k| format!("stream {k}"));
        let events = s.events.keys().map(|k| format!("event {k}"));
        let modules = (s.modules > 0).then(|| format!("{} modules", s.modules));
        blocks.chain(streams).chain(events).chain(modules).collect()
    }
}
