//! [`Graph`]: launches, fills and copies of a captured graph, recorded once and executed by many launches.
//!
//! The commands are a secondary command buffer, which the batch of a launch executes. If arguments change, the commands
//! are recorded anew. Only parts that run in sequence are recorded: independent parts are better placed on streams of
//! their own, which have queues of their own.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use ash::vk;
use octants_runtime::{GraphPart, Launch, PartWork, Pattern, Result, Section};

use crate::dispatch::Dispatch;
use crate::gpu::Gpu;
use crate::memory::{Memory, Part};
use crate::module::{LoadedTask, Module};
use crate::recorded::Recorded;

/// A step of a graph.
#[derive(Debug)]
enum Step {
    /// The tasks of a launch, of a module that stays loaded.
    Tasks(*const [LoadedTask], Vec<Range<usize>>),
    /// A fill with words.
    Fill { part: Part, bytes: u64, word: u32 },
    /// A copy.
    Copy { to: Part, from: Part, bytes: u64 },
}

// SAFETY: the tasks can be used by all threads, and the graph's owner keeps them loaded.
unsafe impl Send for Step {}
// SAFETY: as above.
unsafe impl Sync for Step {}

/// A recorded graph.
#[derive(Debug)]
pub struct Graph {
    gpu: Arc<Gpu>,
    pinned: Arc<Memory>,
    arguments: Arc<Memory>,
    steps: Vec<Step>,
    recorded: Mutex<Option<Arc<Recorded>>>,
}

/// The word that a fill repeats.
pub fn word_of(pattern: Pattern) -> u32 {
    match pattern {
        Pattern::Byte(b) => u32::from_ne_bytes([b; 4]),
        Pattern::Half(h) => u32::from(h) << 16 | u32::from(h),
        Pattern::Word(w) => w,
    }
}

/// Whether a device's command can fill this range: it writes whole words.
pub fn fills_words(part: &Part, bytes: u64) -> bool {
    part.offset.is_multiple_of(4) && bytes.is_multiple_of(4)
}

impl Graph {
    /// A graph of these parts; `None` if they have conditions, do not run in sequence, or depend on the number of the
    /// launch. `find` is the buffer of an address.
    ///
    /// # Safety
    /// The modules stay loaded, and the memory alive, until the graph and its launches have ended.
    pub unsafe fn new(
        gpu: &Arc<Gpu>,
        (pinned, arguments): (&Arc<Memory>, &Arc<Memory>),
        parts: &[GraphPart<'_>],
        find: &dyn Fn(u64, &'static str) -> Result<Part>,
    ) -> Result<Option<Graph>> {
        let mut steps = Vec::with_capacity(parts.len());
        for (place, part) in parts.iter().enumerate() {
            if place > 0 && !part.depends_on.contains(&(place - 1)) {
                return Ok(None);
            }
            let step = match &part.work {
                PartWork::Launch { module, sections, .. } => {
                    // SAFETY: the contract above.
                    let tasks = unsafe { &(*(module.0 as *const Module)).tasks };
                    let Some(ranges) = ranges_of(sections, tasks.len()) else { return Ok(None) };
                    if tasks.iter().any(|t| t.is_numbered) {
                        return Ok(None);
                    }
                    Step::Tasks(&raw const tasks[..], ranges)
                }
                PartWork::Fill { at, pattern, bytes } => {
                    let part = find(at.0, "the target of a fill")?;
                    if !fills_words(&part, *bytes) {
                        return Ok(None);
                    }
                    Step::Fill { part, bytes: *bytes, word: word_of(*pattern) }
                }
                PartWork::Copy { to, from, bytes } => {
                    let (to, from) = (find(to.0, "the target of a copy")?, find(from.0, "the source of a copy")?);
                    Step::Copy { to, from, bytes: *bytes }
                }
            };
            steps.push(step);
        }
        let (gpu, pinned, arguments) = (gpu.clone(), pinned.clone(), arguments.clone());
        Ok(Some(Graph { gpu, pinned, arguments, steps, recorded: Mutex::default() }))
    }

    /// The commands for these launches, which are recorded anew if some have changed.
    ///
    /// # Safety
    /// As [`octants_runtime::Driver::launch_graph`].
    pub unsafe fn commands<'a>(
        &self,
        changed: &[usize],
        launch_of: &dyn Fn(usize) -> Option<Launch<'a>>,
    ) -> Result<Arc<Recorded>> {
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        match &*recorded {
            Some(kept) if changed.is_empty() => Ok(kept.clone()),
            _ => {
                // SAFETY: the contract above.
                let made = Arc::new(unsafe { self.record(launch_of)? });
                *recorded = Some(made.clone());
                Ok(made)
            }
        }
    }

    /// # Safety
    /// As [`Graph::commands`].
    unsafe fn record<'a>(&self, launch_of: &dyn Fn(usize) -> Option<Launch<'a>>) -> Result<Recorded> {
        let mut recorded = Recorded::begin(&self.gpu)?;
        let (gpu, commands) = (&*self.gpu, recorded.commands);
        let mut is_first = true;
        // Between two commands, so that each sees the writes of all before it.
        let mut order = || {
            if !std::mem::take(&mut is_first) {
                // SAFETY: the commands are being recorded.
                unsafe { gpu.order(commands) };
            }
        };
        for (place, step) in self.steps.iter().enumerate() {
            match step {
                Step::Tasks(tasks, ranges) => {
                    let Some(launch) = launch_of(place) else { continue };
                    // SAFETY: the contract of `Graph::new`.
                    let tasks = unsafe { &**tasks };
                    for task in ranges.iter().flat_map(|range| &tasks[range.clone()]) {
                        let memory = (&*self.pinned, &self.arguments);
                        let Some(dispatch) = Dispatch::new(task, &launch, memory)? else { continue };
                        order();
                        // SAFETY: the contract above; `Recorded` keeps the arguments.
                        unsafe { dispatch.record(gpu, commands) };
                        recorded.keep(dispatch.staged);
                    }
                }
                Step::Fill { bytes: 0, .. } | Step::Copy { bytes: 0, .. } => {}
                Step::Fill { part, bytes, word } => {
                    order();
                    // SAFETY: the range is within its buffer, at multiples of four.
                    unsafe { gpu.device.cmd_fill_buffer(commands, part.buffer, part.offset, *bytes, *word) };
                }
                Step::Copy { to, from, bytes } => {
                    order();
                    let region = [vk::BufferCopy { src_offset: from.offset, dst_offset: to.offset, size: *bytes }];
                    // SAFETY: the ranges are within their buffers.
                    unsafe { gpu.device.cmd_copy_buffer(commands, from.buffer, to.buffer, &region) };
                }
            }
        }
        recorded.end()?;
        Ok(recorded)
    }
}

/// The tasks in order, if sections only order them. Without sections, all tasks are in sequence.
fn ranges_of(sections: &[Section], tasks: usize) -> Option<Vec<Range<usize>>> {
    if sections.is_empty() {
        return Some(std::iter::once(0..tasks).collect());
    }
    let range = |section: &Section| match section {
        Section::InOrder(range) => Some(range.clone()),
        _ => None,
    };
    sections.iter().map(range).collect()
}
