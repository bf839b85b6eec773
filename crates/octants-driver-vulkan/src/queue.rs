//! [`Queue`]: a queue of the device, and the work that its streams record for it.
//!
//! Work is recorded into a batch: one command buffer, one submission, one value of the queue's timeline. Streams that
//! share a queue record into the same batch, because a device may run submissions of a queue one after the other.
//! Within a batch, only barriers order work, and [`Sections`] places them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use ash::vk;
use octants_runtime::Result;

use crate::checked::failed;
use crate::follower::{Follower, HasBatch};
use crate::gpu::Gpu;
use crate::memory::Lease;
use crate::recorded::Recorded;
use crate::sharing::Point;
use crate::timeline::{Submits, Timeline};

/// Pieces of work per batch, and the maximum while other batches keep the device busy: between two batches, a device
/// may do nothing for some microseconds.
const ENOUGH_PIECES: u32 = 64;
const MOST_PIECES: u32 = 512;
/// Submitted batches that keep the device busy until another one is submitted.
const BUSY: usize = 2;

/// After a submission, work is batched for this long even if the queue is idle: a submission takes the host ten times
/// as long as recording a piece.
const SOON: Duration = Duration::from_micros(100);

/// A batch that is not submitted, or not known to be done.
pub(crate) struct Batch {
    commands: vk::CommandBuffer,
    /// The timeline's value when it is done.
    pub(crate) value: u64,
    /// Values of other timelines that it waits for.
    waits: Vec<Point>,
    /// The value that it signals for another interface to the device.
    pub(crate) tells: Option<Point>,
    pieces: u32,
    /// Memory that it reads.
    staged: Vec<Lease>,
    /// Graphs that it executes.
    graphs: Vec<Arc<Recorded>>,
}

/// A batch that work is recorded into.
pub struct Recording<'a> {
    gpu: &'a Gpu,
    batch: &'a mut Batch,
}

impl Recording<'_> {
    /// The commands.
    pub fn commands(&self) -> vk::CommandBuffer {
        self.batch.commands
    }

    /// The device.
    pub fn gpu(&self) -> &Gpu {
        self.gpu
    }

    /// Keeps memory until the batch is done.
    pub fn keep(&mut self, staged: Option<Lease>) {
        self.batch.staged.extend(staged);
    }

    /// Executes a graph, and keeps its commands until the batch is done.
    pub fn execute(&mut self, graph: Arc<Recorded>) {
        // SAFETY: both command buffers are of the same device and family; recording of the second has ended.
        unsafe { self.gpu.device.cmd_execute_commands(self.batch.commands, &[graph.commands]) };
        self.batch.graphs.push(graph);
    }
}

/// Divides the work of a queue by barriers. A barrier orders all work before it with all work after it, so there is
/// none between pieces that need no order: different streams' pieces of a section run concurrently.
#[derive(Debug, Default)]
pub(crate) struct Sections {
    /// The number of the current section.
    current: u64,
    /// The next piece begins another one.
    is_closed: bool,
}

impl Sections {
    /// Begins a batch.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
    }

    /// Adds a piece of a stream, whose last piece is in the section `last`. Returns whether a barrier precedes it.
    pub(crate) fn add(&mut self, last: &mut u64) -> bool {
        let is_new = std::mem::take(&mut self.is_closed) || *last == self.current;
        self.current += u64::from(is_new);
        *last = self.current;
        is_new
    }

    /// The next piece of a stream whose last piece is in the returned section follows a barrier.
    pub(crate) fn current(&self) -> u64 {
        self.current
    }
}

pub(crate) struct State {
    pool: vk::CommandPool,
    pub(crate) submitted: u64,
    /// When it was submitted.
    last: Option<Instant>,
    open: Option<Batch>,
    in_flight: VecDeque<Batch>,
    free: Vec<vk::CommandBuffer>,
    pub(crate) sections: Sections,
    /// The values that submitted batches, or the open one, wait for, each with the value of its batch.
    waited: Vec<(Point, u64)>,
}

/// See the file's text.
pub struct Queue {
    /// For the thread that submits its batches later.
    own: Weak<Queue>,
    follower: Arc<Follower>,
    gpu: Arc<Gpu>,
    /// Its values count batches.
    pub timeline: Arc<Timeline>,
    number: usize,
    /// How many streams use it.
    streams: AtomicUsize,
    state: Mutex<State>,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Queue({})", self.number)
    }
}

impl Queue {
    fn new(gpu: &Arc<Gpu>, follower: &Arc<Follower>, number: usize) -> Result<Arc<Queue>> {
        let info = vk::CommandPoolCreateInfo::default()
            .queue_family_index(gpu.family)
            .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER);
        let timeline = Timeline::new(gpu)?;
        // SAFETY: the structures are whole.
        let pool = unsafe { gpu.device.create_command_pool(&info, None) }
            .map_err(|code| failed("vkCreateCommandPool", code, "creating a stream"))?;
        let state = State {
            pool,
            submitted: 0,
            last: None,
            open: None,
            in_flight: VecDeque::new(),
            free: Vec::new(),
            sections: Sections::default(),
            waited: Vec::new(),
        };
        let (follower, gpu) = (follower.clone(), gpu.clone());
        Ok(Arc::new_cyclic(|own: &Weak<Queue>| {
            let timeline = Arc::new(timeline.of(own.clone()));
            let (own, streams, state) = (own.clone(), AtomicUsize::new(0), Mutex::new(state));
            Queue { own, follower, gpu, timeline, number, streams, state }
        }))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether several streams use it.
    pub(crate) fn is_shared(&self) -> bool {
        self.streams.load(Ordering::Relaxed) > 1
    }

    /// The open batch; opens one if there is none.
    pub(crate) fn open<'s>(&self, state: &'s mut State) -> Result<&'s mut Batch> {
        if state.open.is_none() {
            self.reap(state)?;
            let commands = match state.free.pop() {
                Some(commands) => commands,
                None => {
                    let info = vk::CommandBufferAllocateInfo::default()
                        .command_pool(state.pool)
                        .level(vk::CommandBufferLevel::PRIMARY)
                        .command_buffer_count(1);
                    // SAFETY: the pool is this queue's, which is locked.
                    let made = unsafe { self.gpu.device.allocate_command_buffers(&info) };
                    made.map_err(|code| failed("vkAllocateCommandBuffers", code, "queueing work"))?[0]
                }
            };
            let info = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
            // SAFETY: the commands are not in use.
            unsafe { self.gpu.device.begin_command_buffer(commands, &info) }
                .map_err(|code| failed("vkBeginCommandBuffer", code, "queueing work"))?;
            state.sections.close();
            let value = state.submitted + 1;
            let (waits, staged, graphs) = (Vec::new(), Vec::new(), Vec::new());
            state.open = Some(Batch { commands, value, waits, tells: None, pieces: 0, staged, graphs });
        }
        Ok(state.open.as_mut().expect("compiler bug: no batch"))
    }

    /// Releases the resources of completed batches.
    pub(crate) fn reap(&self, state: &mut State) -> Result<()> {
        while let Some(first) = state.in_flight.front() {
            if !self.timeline.has_reached(first.value)? {
                break;
            }
            let done = state.in_flight.pop_front().expect("compiler bug: no batch");
            state.free.push(done.commands);
        }
        Ok(())
    }

    /// Records a piece of work of a stream, whose last piece is in the section `last`. Without `last`, the commands of
    /// the piece need no barrier. Returns its batch's value too.
    pub(crate) fn record<R>(
        &self,
        state: &mut State,
        last: Option<&mut u64>,
        work: impl FnOnce(&mut Recording<'_>) -> Result<R>,
    ) -> Result<(R, u64)> {
        self.open(state)?;
        let is_new = last.is_some_and(|last| state.sections.add(last));
        let batch = state.open.as_mut().expect("compiler bug: no batch");
        if is_new {
            // SAFETY: the commands are being recorded.
            unsafe { self.gpu.order(batch.commands) };
        }
        batch.pieces += 1;
        let result = work(&mut Recording { gpu: &self.gpu, batch: &mut *batch })?;
        Ok((result, batch.value))
    }

    /// Submits the open batch if it should not grow: an idle queue starts immediately, and a busy one gets the rest in
    /// long batches, at the latest when it becomes idle. A shared queue first waits for work of its other streams,
    /// which runs at the same time only within the batch.
    pub(crate) fn submit_if_due(&self, state: &mut State) -> Result<()> {
        let Some(pieces) = state.open.as_ref().map(|batch| batch.pieces) else { return Ok(()) };
        let is_shared = self.is_shared();
        let is_soon = state.last.is_some_and(|last| last.elapsed() < SOON);
        if self.is_long(state, pieces)? || (!is_shared && !is_soon && self.timeline.has_reached(state.submitted)?) {
            return self.submit(state);
        }
        if pieces == 1 {
            let now = Instant::now();
            let until = if is_shared { now + SOON } else { state.last.map_or(now, |last| last + SOON) };
            self.follower.follow(self.own.clone(), self.timeline.clone(), state.submitted, until);
        }
        Ok(())
    }

    /// Whether a batch of this many pieces should not grow.
    fn is_long(&self, state: &mut State, pieces: u32) -> Result<bool> {
        if !(ENOUGH_PIECES..MOST_PIECES).contains(&pieces) {
            return Ok(pieces >= MOST_PIECES);
        }
        if state.in_flight.len() >= BUSY {
            self.reap(state)?;
        }
        Ok(state.in_flight.len() < BUSY)
    }

    /// Makes later work wait for values of other timelines, which have been submitted. Returns the open batch's value.
    pub(crate) fn wait_for(&self, state: &mut State, others: Vec<Point>) -> Result<u64> {
        // Work before this does not wait.
        if state.open.as_ref().is_some_and(|batch| batch.pieces > 0) {
            self.submit(state)?;
        }
        let value = self.open(state)?.value;
        let is_replaced = |t: &Arc<Timeline>| others.iter().any(|(other, _)| Arc::ptr_eq(t, other));
        state.waited.retain(|((t, _), _)| Arc::strong_count(t) > 1 && !is_replaced(t));
        state.waited.extend(others.iter().map(|point| (point.clone(), value)));
        self.open(state)?.waits.extend(others);
        Ok(value)
    }

    /// The value of the batch, if any, that waits for a value of another timeline. All later work does so too.
    pub(crate) fn waits_for(&self, state: &State, (timeline, value): &Point) -> Option<u64> {
        let waits = |((t, waited), _): &&(Point, u64)| Arc::ptr_eq(t, timeline) && waited >= value;
        state.waited.iter().find(waits).map(|(_, batch)| *batch)
    }

    /// Submits the open batch.
    pub(crate) fn submit(&self, state: &mut State) -> Result<()> {
        let Some(batch) = state.open.take() else { return Ok(()) };
        let is_submitted = |(t, value): &Point| t.is_submitted(*value);
        debug_assert!(batch.waits.iter().all(is_submitted), "a wait for work that is not submitted");
        let device = &self.gpu.device;
        // Makes writes visible to the host.
        let barrier = [vk::MemoryBarrier::default()
            .src_access_mask(vk::AccessFlags::MEMORY_WRITE)
            .dst_access_mask(vk::AccessFlags::HOST_READ | vk::AccessFlags::HOST_WRITE)];
        let commands = [batch.commands];
        let semaphores: Vec<vk::Semaphore> = batch.waits.iter().map(|(t, _)| t.semaphore).collect();
        let values: Vec<u64> = batch.waits.iter().map(|(_, value)| *value).collect();
        let stages = vec![vk::PipelineStageFlags::ALL_COMMANDS; semaphores.len()];
        let own = (&self.timeline, batch.value);
        let signaled = || [own].into_iter().chain(batch.tells.as_ref().map(|(t, value)| (t, *value)));
        let signals: Vec<vk::Semaphore> = signaled().map(|(t, _)| t.semaphore).collect();
        let reached: Vec<u64> = signaled().map(|(_, value)| value).collect();
        let mut timeline =
            vk::TimelineSemaphoreSubmitInfo::default().wait_semaphore_values(&values).signal_semaphore_values(&reached);
        let info = vk::SubmitInfo::default()
            .command_buffers(&commands)
            .wait_semaphores(&semaphores)
            .wait_dst_stage_mask(&stages)
            .signal_semaphores(&signals)
            .push_next(&mut timeline);
        // SAFETY: recording of the commands has ended; the queue is locked.
        unsafe {
            let (from, to) = (vk::PipelineStageFlags::ALL_COMMANDS, vk::PipelineStageFlags::HOST);
            let none = vk::DependencyFlags::empty();
            device.cmd_pipeline_barrier(batch.commands, from, to, none, &barrier, &[], &[]);
            device
                .end_command_buffer(batch.commands)
                .map_err(|code| failed("vkEndCommandBuffer", code, "queueing work"))?;
            // Tests have more queues than the device.
            let queue = self.gpu.queue(self.number % self.gpu.queues.len());
            device
                .queue_submit(*queue, &[info], vk::Fence::null())
                .map_err(|code| failed("vkQueueSubmit", code, "queueing work"))?;
        }
        (state.submitted, state.last) = (batch.value, Some(Instant::now()));
        self.timeline.note_submitted(batch.value);
        state.in_flight.push_back(batch);
        Ok(())
    }
}

impl Submits for Queue {
    fn submit_up_to(&self, value: u64) -> Result<()> {
        let mut state = self.state();
        if value > state.submitted { self.submit(&mut state) } else { Ok(()) }
    }
}

impl HasBatch for Queue {
    fn submit_open(&self) {
        // A failure here occurs again in a wait for the work, which reports it.
        let _ = self.submit(&mut self.state());
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let state = self.state();
        let queue = self.gpu.queue(self.number % self.gpu.queues.len());
        // SAFETY: all streams have waited for their work, or the device is lost.
        unsafe {
            // Mesa's threads use a semaphore for a moment after it has signaled. The timeline is destroyed next.
            let _ = self.gpu.device.queue_wait_idle(*queue);
            self.gpu.device.destroy_command_pool(state.pool, None);
        }
    }
}

/// The queues of a device that have streams.
#[derive(Debug)]
pub struct Queues {
    pub(crate) gpu: Arc<Gpu>,
    pub(crate) follower: Arc<Follower>,
    /// By number: how many streams each has.
    all: Mutex<Vec<(usize, Weak<Queue>)>>,
}

impl Queues {
    /// All queues of a device, without streams.
    pub fn new(gpu: &Arc<Gpu>) -> Queues {
        Queues::with_count(gpu, gpu.queues.len())
    }

    /// As many queues as requested. Those beyond the device's queues submit to the same ones.
    pub(crate) fn with_count(gpu: &Arc<Gpu>, count: usize) -> Queues {
        let all = Mutex::new(vec![(0, Weak::new()); count]);
        Queues { gpu: gpu.clone(), follower: Arc::default(), all }
    }

    fn all(&self) -> MutexGuard<'_, Vec<(usize, Weak<Queue>)>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The queue of a new stream, one of those with the fewest streams, at the user's priority: less is higher. Streams
    /// of normal priority use the high-priority queues too, after the others, so that as many as possible overlap.
    pub(crate) fn take(&self, priority: i32) -> Result<Arc<Queue>> {
        let mut all = self.all();
        let (count, high) = (all.len(), all.len() / 4);
        let first = if priority < 0 && high > 0 { count - high } else { 0 };
        let number = (first..count).min_by_key(|number| all[*number].0).unwrap_or(0);
        let queue = self.queue(&mut all, number)?;
        all[number].0 += 1;
        queue.streams.store(all[number].0, Ordering::Relaxed);
        Ok(queue)
    }

    /// The queue of a stream that does not count: the last of normal priority, which other streams use late. A wait for
    /// it would otherwise include their work.
    pub(crate) fn last(&self) -> Result<Arc<Queue>> {
        let mut all = self.all();
        let number = all.len() - 1 - all.len() / 4;
        self.queue(&mut all, number)
    }

    fn queue(&self, all: &mut [(usize, Weak<Queue>)], number: usize) -> Result<Arc<Queue>> {
        if let Some(known) = all[number].1.upgrade() {
            return Ok(known);
        }
        let queue = Queue::new(&self.gpu, &self.follower, number)?;
        all[number].1 = Arc::downgrade(&queue);
        queue.streams.store(all[number].0, Ordering::Relaxed);
        Ok(queue)
    }

    /// A stream of the queue has ended.
    pub(crate) fn give(&self, queue: &Queue) {
        let mut all = self.all();
        all[queue.number].0 -= 1;
        queue.streams.store(all[queue.number].0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_barrier_precedes_the_second_piece_of_a_stream_and_the_first_of_a_batch() {
        let mut sections = Sections::default();
        let (mut a, mut b, mut c) = (0, 0, 0);
        sections.close();
        assert!(sections.add(&mut a), "a batch begins");
        assert!(!sections.add(&mut b) && !sections.add(&mut c), "the streams are independent");
        assert!(sections.add(&mut b), "a stream is in order");
        assert!(!sections.add(&mut a) && sections.add(&mut a) && !sections.add(&mut b));
        sections.close();
        assert!(sections.add(&mut c), "another batch begins");
        // A stream that waits for another one of the queue.
        a = sections.current();
        assert!(sections.add(&mut a));
        assert!(!sections.add(&mut b), "which did not wait");
    }
}
