//! [`Stream`]: an in-order queue. Work is recorded into a batch. The batch is submitted when the stream is idle and has
//! submitted nothing for a while, when the batch is long, or when something waits for it. A thread submits the rest
//! then, when the work before it is done.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use ash::vk;
use octants_runtime::{Result, StreamHandle};

use crate::checked::failed;
use crate::follower::{Follower, HasBatch};
use crate::gpu::Gpu;
use crate::memory::Lease;
use crate::recorded::Recorded;
use crate::sharing::{Point, Sharing};
use crate::timeline::Timeline;

/// Maximum pieces of work per batch.
const MOST_PIECES: u32 = 64;

/// After a submission, work is batched for this long even if the stream is idle: a submission takes the host ten times
/// as long as recording a piece.
const SOON: Duration = Duration::from_micros(100);

/// A batch that is not submitted, or not known to be done.
struct Batch {
    commands: vk::CommandBuffer,
    /// The semaphore's value when it is done.
    value: u64,
    /// Values of other streams that it waits for.
    waits: Vec<(Arc<Timeline>, u64)>,
    /// The value that it signals for another interface to the device.
    tells: Option<Point>,
    pieces: u32,
    /// Memory that it reads.
    staged: Vec<Lease>,
    /// Graphs that it executes.
    graphs: Vec<Arc<Recorded>>,
}

struct State {
    pool: vk::CommandPool,
    submitted: u64,
    /// When it was submitted.
    last: Option<Instant>,
    open: Option<Batch>,
    in_flight: VecDeque<Batch>,
    free: Vec<vk::CommandBuffer>,
}

/// A stream.
pub struct Stream {
    /// For the thread that submits its batches later.
    own: Weak<Stream>,
    follower: Arc<Follower>,
    gpu: Arc<Gpu>,
    /// Its values count batches.
    pub timeline: Arc<Timeline>,
    queue: usize,
    /// For the default stream: orders it with another interface to the device, once memory was shared with that.
    sharing: OnceLock<Arc<Sharing>>,
    state: Mutex<State>,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream({})", self.queue)
    }
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

impl Stream {
    /// A new stream on one of the device's queues, with a priority: less is higher.
    pub fn new(gpu: &Arc<Gpu>, follower: &Arc<Follower>, priority: i32) -> Result<Arc<Stream>> {
        let info = vk::CommandPoolCreateInfo::default()
            .queue_family_index(gpu.family)
            .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER);
        let timeline = Arc::new(Timeline::new(gpu)?);
        // SAFETY: the structures are whole.
        let pool = unsafe { gpu.device.create_command_pool(&info, None) }
            .map_err(|code| failed("vkCreateCommandPool", code, "creating a stream"))?;
        let state = State { pool, submitted: 0, last: None, open: None, in_flight: VecDeque::new(), free: Vec::new() };
        let queue = gpu.take_queue(priority);
        let (follower, state) = (follower.clone(), Mutex::new(state));
        let gpu = gpu.clone();
        let sharing = OnceLock::new();
        Ok(Arc::new_cyclic(|own| Stream { own: own.clone(), follower, gpu, timeline, queue, sharing, state }))
    }

    /// The stream of a handle: zero stands for the default stream.
    ///
    /// # Safety
    /// The handle is zero or a live stream's.
    pub unsafe fn of(default: &Stream, handle: StreamHandle) -> &Stream {
        match handle.0 {
            0 => default,
            // SAFETY: the contract above.
            at => unsafe { &*(at as *const Stream) },
        }
    }

    /// Orders its work with that of another interface to the device from now on, while memory is shared.
    pub(crate) fn share(&self, sharing: Arc<Sharing>) {
        let _ = self.sharing.set(sharing);
    }

    fn sharing(&self) -> Option<&Sharing> {
        self.sharing.get().map(|sharing| &**sharing).filter(|sharing| sharing.is_active())
    }

    /// Whether its work is ordered with that of another interface at present.
    pub(crate) fn is_sharing(&self) -> bool {
        self.sharing().is_some()
    }

    /// Opens a batch that runs after the work of the other interface.
    fn begin_shared(&self, state: &mut State, sharing: &Sharing) -> Result<()> {
        self.submit(state)?;
        let after = sharing.after(sharing.unnamed_stream())?;
        self.open(state)?.waits.extend(after);
        Ok(())
    }

    /// Submits a batch that a stream of the other interface waits for.
    fn end_shared(&self, state: &mut State, sharing: &Sharing, stream: u64) -> Result<()> {
        let tells = sharing.next();
        self.open(state)?.tells.clone_from(&tells);
        self.submit(state)?;
        match tells {
            Some(point) => sharing.wait_there(stream, &point),
            None => self.timeline.wait(state.submitted, None).map(|_| ()),
        }
    }

    /// Makes a stream of the other interface wait for its work and for values of other streams.
    pub(crate) fn hand_over(&self, sharing: &Sharing, others: Vec<Point>, stream: u64) -> Result<()> {
        let mut state = self.state();
        self.submit(&mut state)?;
        let others = others.into_iter().filter(|(t, _)| !Arc::ptr_eq(t, &self.timeline));
        self.open(&mut state)?.waits.extend(others);
        self.end_shared(&mut state, sharing, stream)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The open batch; opens one if there is none.
    fn open<'s>(&self, state: &'s mut State) -> Result<&'s mut Batch> {
        if state.open.is_none() {
            self.reap(state)?;
            let commands = match state.free.pop() {
                Some(commands) => commands,
                None => {
                    let info = vk::CommandBufferAllocateInfo::default()
                        .command_pool(state.pool)
                        .level(vk::CommandBufferLevel::PRIMARY)
                        .command_buffer_count(1);
                    // SAFETY: the pool is this stream's, which is locked.
                    let made = unsafe { self.gpu.device.allocate_command_buffers(&info) };
                    made.map_err(|code| failed("vkAllocateCommandBuffers", code, "queueing work"))?[0]
                }
            };
            let info = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
            // SAFETY: the commands are not in use.
            unsafe { self.gpu.device.begin_command_buffer(commands, &info) }
                .map_err(|code| failed("vkBeginCommandBuffer", code, "queueing work"))?;
            let value = state.submitted + 1;
            let (waits, staged, graphs) = (Vec::new(), Vec::new(), Vec::new());
            state.open = Some(Batch { commands, value, waits, tells: None, pieces: 0, staged, graphs });
        }
        Ok(state.open.as_mut().expect("compiler bug: no batch"))
    }

    /// Releases the resources of completed batches.
    fn reap(&self, state: &mut State) -> Result<()> {
        while let Some(first) = state.in_flight.front() {
            if !self.timeline.has_reached(first.value)? {
                break;
            }
            let done = state.in_flight.pop_front().expect("compiler bug: no batch");
            state.free.push(done.commands);
        }
        Ok(())
    }

    /// Records a piece of work after all others of the stream.
    pub fn record<R>(&self, work: impl FnOnce(&mut Recording<'_>) -> Result<R>) -> Result<R> {
        let mut state = self.state();
        let sharing = self.sharing();
        if let Some(sharing) = sharing {
            self.begin_shared(&mut state, sharing)?;
        }
        let batch = self.open(&mut state)?;
        // SAFETY: the commands are being recorded.
        unsafe { self.gpu.order(batch.commands) };
        batch.pieces += 1;
        let result = work(&mut Recording { gpu: &self.gpu, batch: &mut *batch })?;
        if let Some(sharing) = sharing {
            self.end_shared(&mut state, sharing, sharing.unnamed_stream())?;
            return Ok(result);
        }
        // An idle stream starts immediately. A busy one gets the rest in long batches, at the latest when it becomes
        // idle.
        let (is_first, is_long) = (batch.pieces == 1, batch.pieces >= MOST_PIECES);
        let is_soon = state.last.is_some_and(|last| last.elapsed() < SOON);
        if is_long || (!is_soon && self.timeline.has_reached(state.submitted)?) {
            self.submit(&mut state)?;
        } else if is_first {
            let until = state.last.map_or_else(Instant::now, |last| last + SOON);
            self.follower.follow(self.own.clone(), self.timeline.clone(), state.submitted, until);
        }
        Ok(result)
    }

    /// Submits the open batch. Returns the value that signals all of the stream's work.
    pub fn flush(&self) -> Result<u64> {
        let mut state = self.state();
        self.submit(&mut state)?;
        Ok(state.submitted)
    }

    fn submit(&self, state: &mut State) -> Result<()> {
        let Some(batch) = state.open.take() else { return Ok(()) };
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
            let queue = self.gpu.queue(self.queue);
            device
                .queue_submit(*queue, &[info], vk::Fence::null())
                .map_err(|code| failed("vkQueueSubmit", code, "queueing work"))?;
        }
        (state.submitted, state.last) = (batch.value, Some(Instant::now()));
        state.in_flight.push_back(batch);
        Ok(())
    }

    /// Makes later work wait for values of other streams, which have been submitted.
    pub fn wait_for(&self, others: Vec<(Arc<Timeline>, u64)>) -> Result<()> {
        let others: Vec<_> = others
            .into_iter()
            .filter(|(t, value)| !Arc::ptr_eq(t, &self.timeline) && !t.has_reached(*value).unwrap_or(false))
            .collect();
        if others.is_empty() {
            return Ok(());
        }
        let mut state = self.state();
        // Work before this does not wait.
        self.submit(&mut state)?;
        self.open(&mut state)?.waits.extend(others);
        if let Some(sharing) = self.sharing() {
            // The other interface's work waits too.
            self.end_shared(&mut state, sharing, sharing.unnamed_stream())?;
        }
        Ok(())
    }

    /// The value that signals all work recorded so far.
    pub fn value_after(&self) -> u64 {
        let state = self.state();
        state.open.as_ref().map_or(state.submitted, |batch| batch.value)
    }

    /// Whether all work is done.
    pub fn is_done(&self) -> Result<bool> {
        let value = self.flush()?;
        self.timeline.has_reached(value)
    }

    /// Waits for all work, with a timeout. Returns whether it is done.
    pub fn wait(&self, time: Option<Duration>) -> Result<bool> {
        let value = self.flush()?;
        let is_done = self.timeline.wait(value, time)?;
        if is_done {
            self.reap(&mut self.state())?;
        }
        Ok(is_done)
    }
}

impl HasBatch for Stream {
    fn submit_open(&self) {
        // A failure here occurs again in a wait for the stream, which reports it.
        let _ = self.flush();
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.wait(None);
        self.gpu.give_queue(self.queue);
        let state = self.state();
        // SAFETY: its work is done, or the device lost.
        unsafe { self.gpu.device.destroy_command_pool(state.pool, None) }
    }
}
