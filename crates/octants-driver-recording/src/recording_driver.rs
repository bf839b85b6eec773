//! [`RecordingDriver`]: the driver.

use std::sync::Arc;

use octants_artifact::{Artifact, CodeTarget, DeviceChannel, DeviceContext};
use octants_runtime::{
    CheckpointWords, Contents, DevicePtr, Driver, ErrorKind, EventHandle, Launch, ModuleHandle, Pattern, Peer, Result,
    Section, StreamHandle, TaskHandle,
};

use crate::clock::{Clock, Moment};
use crate::log::{Block, HostRead, Launched, Line, Log, Message, State};

/// The largest number of a launch.
const MOST_NUMBER: u64 = (1 << DeviceContext::LAUNCH_BITS) - 1;
/// Larger blocks are refused.
const MOST: u64 = 1 << 30;

/// An asynchronous driver that runs no code but performs copies.
#[derive(Debug)]
pub struct RecordingDriver {
    log: Arc<Log>,
    max_argument_bytes: u64,
    host_addressable: bool,
    sends_messages: bool,
    immediate: bool,
    makes_one: bool,
    ordered_memory: bool,
    /// The default stream in the log.
    default: u64,
}

impl RecordingDriver {
    /// A driver that writes to this log.
    pub fn new(log: Arc<Log>) -> RecordingDriver {
        log.state().streams.insert(0, Clock::default());
        RecordingDriver {
            log,
            max_argument_bytes: u64::MAX,
            host_addressable: false,
            sends_messages: false,
            immediate: false,
            makes_one: false,
            ordered_memory: true,
            default: 0,
        }
    }

    /// A numbered device among several with the same log, which their default streams distinguish.
    pub fn numbered(self, number: u32) -> RecordingDriver {
        let default = u64::from(number) << 32;
        self.log.state().streams.insert(default, Clock::default());
        RecordingDriver { default, ..self }
    }

    /// The log's handle of a stream.
    fn own(&self, stream: StreamHandle) -> StreamHandle {
        if stream.0 == 0 { StreamHandle(self.default) } else { stream }
    }

    /// With a limit on arguments passed by value.
    pub fn with_max_argument_bytes(self, bytes: u64) -> RecordingDriver {
        RecordingDriver { max_argument_bytes: bytes, ..self }
    }

    /// With memory that host and device can both address.
    pub fn sharing_memory(self) -> RecordingDriver {
        RecordingDriver { host_addressable: true, ..self }
    }

    /// With code that cannot call the host: its messages go to the stream's channel.
    pub fn with_channels(self) -> RecordingDriver {
        RecordingDriver { sends_messages: true, ..self }
    }

    /// With one driver call per launch, which launches all tasks as one graph.
    pub fn making_one(self) -> RecordingDriver {
        RecordingDriver { makes_one: true, ..self }
    }

    /// With synchronous calls: a device without native streams.
    pub fn immediate(self) -> RecordingDriver {
        RecordingDriver { immediate: true, ..self }
    }

    /// With allocation and free calls that are not ordered on streams: a free blocks until its stream is idle.
    pub fn without_ordered_memory(self) -> RecordingDriver {
        RecordingDriver { ordered_memory: false, ..self }
    }

    /// Records a call that may fail, and fails it if requested.
    fn call(&self, name: &'static str, text: String) -> Result<()> {
        let mut s = self.log.state();
        let fails = s.fail_at == Some(s.fallible);
        s.fallible += 1;
        if !fails {
            s.calls.push(text);
            return Ok(());
        }
        s.failed = Some(name);
        s.calls.push(format!("{text} FAILED"));
        Err(ErrorKind::Call { call: name, code: 7, name: "INJECTED".into(), doing: text }.into())
    }

    /// Called when a call that queued work on a stream returns: on a synchronous device, the work is then done.
    fn end_call(&self, s: &mut State, stream: StreamHandle) {
        if self.immediate {
            s.wait_for(stream);
        }
    }

    fn note(&self, text: String) {
        self.log.state().calls.push(text);
    }
}

impl State {
    fn stream(&mut self, stream: StreamHandle) -> &mut Clock {
        if !self.streams.contains_key(&stream.0) {
            self.mistakes.push(format!("stream {} is used and does not exist", stream.0));
        }
        self.streams.entry(stream.0).or_default()
    }

    fn add_block(&mut self, bytes: u64, born: Option<Moment>) -> DevicePtr {
        let memory = vec![Line([0; 8]); bytes.div_ceil(64).max(1) as usize].into_boxed_slice();
        let address = memory.as_ptr() as u64;
        self.blocks.insert(address, Block { memory, bytes, born, uses: Vec::new() });
        DevicePtr(address)
    }

    fn remove_block(&mut self, memory: DevicePtr, known: &Clock, who: &str) {
        let Some(block) = self.blocks.remove(&memory.0) else {
            return self.mistakes.push(format!("{who}: memory that is not there"));
        };
        for (launch, moment) in &block.uses {
            if !known.knows(*moment) {
                let (bytes, stream) = (block.bytes, moment.stream);
                let use_ = launch.map_or("a copy".into(), |n| format!("launch {n}"));
                self.mistakes.push(format!("{who}: {bytes} bytes before {use_} on stream {stream} is done"));
            }
        }
        let inside = |r: &mut HostRead| memory.0 <= r.from && r.from < memory.0 + block.bytes;
        for read in self.reads.extract_if(.., inside).collect::<Vec<_>>() {
            self.check_source(&read);
        }
    }

    /// The next piece of work of a stream, and its clock.
    fn queue(&mut self, stream: StreamHandle) -> (Moment, Clock) {
        let host = self.host.clone();
        let clock = self.stream(stream);
        clock.join(&host);
        let known = clock.clone();
        (clock.tick(stream.0), known)
    }

    /// Notes the use of the block that an address is in. Returns the uses before.
    fn note_use(
        &mut self,
        address: u64,
        launch: Option<u64>,
        now: Moment,
        known: &Clock,
    ) -> Vec<(Option<u64>, Moment)> {
        let Some((start, block)) = self.block(address) else { return Vec::new() };
        let (before, bytes) = (block.uses.clone(), block.bytes);
        if block.born.is_some_and(|born| !known.knows(born)) {
            let stream = now.stream;
            self.mistakes.push(format!("{bytes} bytes are used on stream {stream}, where they are not allocated yet"));
        }
        self.blocks.get_mut(&start).expect("found above").uses.push((launch, now));
        before
    }

    /// The host waits for all work of a stream.
    fn wait_for(&mut self, stream: StreamHandle) {
        let clock = self.stream(stream).clone();
        self.host.join(&clock);
        self.settle();
    }

    /// Copies between existing blocks, and records the uses, as those of a launch if the copy is part of one.
    fn copy(&mut self, stream: StreamHandle, (to, from): (u64, u64), bytes: u64, launch: Option<u64>) -> Moment {
        let (now, known) = self.queue(stream);
        for address in [to, from] {
            self.note_use(address, launch, now, &known);
            if self.block(address).is_some_and(|(start, b)| address + bytes > start + b.bytes) {
                self.mistakes.push(format!("a copy of {bytes} bytes leaves its block"));
                return now;
            }
        }
        // SAFETY: addresses of our memory were checked; the caller guarantees the rest.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes as usize) }
        now
    }

    /// True when the host has waited for all this.
    fn is_done(&self, clock: &Clock) -> bool {
        let mut host = self.host.clone();
        host.join(clock);
        host == self.host
    }

    fn event(&mut self, event: EventHandle) -> Option<Clock> {
        if !self.events.contains_key(&event.0) {
            self.mistakes.push(format!("event {} is used and does not exist", event.0));
        }
        self.events.get(&event.0).cloned().flatten()
    }
}

/// Sends a message, like device code.
///
/// # Safety
/// The channel exists.
unsafe fn say(channel: DevicePtr, kernel_id: u64, said: &Message) {
    let header = ((kernel_id + 1) << 32) | u64::from(said.site);
    // SAFETY: the contract above; records end within the capacity.
    unsafe {
        let c = channel.0 as *mut DeviceChannel;
        if said.fails {
            if std::mem::replace(&mut (*c).failed, 1) == 0 {
                let words = (&raw mut (*c).failure).cast::<u64>();
                let kept = said.values.len().min(DeviceChannel::FAILURE_WORDS - 1);
                said.values[..kept].iter().enumerate().for_each(|(i, v)| words.add(1 + i).write(*v));
                words.write(header);
            }
            return;
        }
        let (at, count) = ((*c).next, 1 + said.values.len() as u32);
        (*c).next = at + count;
        if at + count > (*c).capacity {
            (*c).lost += 1;
            return;
        }
        let words = (channel.0 + DeviceChannel::BYTES) as *mut u64;
        said.values.iter().enumerate().for_each(|(i, v)| words.add(at as usize + 1 + i).write(*v));
        if said.written {
            words.add(at as usize).write(header);
        }
    }
}

impl Driver for RecordingDriver {
    fn name(&self) -> &str {
        "the recorder"
    }

    fn is_immediate(&self) -> bool {
        self.immediate
    }

    fn is_host_addressable(&self) -> bool {
        self.host_addressable
    }

    fn code_target(&self) -> CodeTarget {
        if self.sends_messages {
            CodeTarget::Device { triple: "none".into(), cpu: String::new(), features: String::new() }
        } else {
            CodeTarget::Host
        }
    }

    fn max_argument_bytes(&self) -> u64 {
        self.max_argument_bytes
    }

    fn memory_bytes(&self) -> Option<u64> {
        None
    }

    unsafe fn allocate(&self, stream: Option<StreamHandle>, bytes: u64, _contents: Contents) -> Result<DevicePtr> {
        let stream = stream.map(|stream| self.own(stream));
        let place = stream.map_or("for all".into(), |s| format!("on {}", s.0));
        self.call("allocate", format!("allocate {bytes} {place}"))?;
        if bytes > MOST {
            let device = self.name().into();
            return Err(
                ErrorKind::OutOfMemory { device, requested: bytes, in_use: 0, free: None, capacity: None }.into()
            );
        }
        let mut s = self.log.state();
        let born = stream.filter(|_| self.ordered_memory).map(|stream| s.queue(stream).0);
        self.end_call(&mut s, stream.unwrap_or(StreamHandle(self.default)));
        Ok(s.add_block(bytes, born))
    }

    fn create_stream(&self, _priority: i32) -> Result<StreamHandle> {
        self.call("create_stream", "create_stream".into())?;
        let mut s = self.log.state();
        s.next += 1;
        let handle = s.next;
        let born = s.host.clone();
        s.streams.insert(handle, born);
        Ok(StreamHandle(handle))
    }

    unsafe fn destroy_stream(&self, stream: StreamHandle) {
        let stream = self.own(stream);
        self.note(format!("destroy_stream {}", stream.0));
        let mut s = self.log.state();
        if let Some(clock) = s.streams.remove(&stream.0) {
            let mut later = clock.clone();
            let next = later.tick(stream.0);
            let last = crate::clock::Moment { tick: next.tick - 1, ..next };
            if last.tick > 0 && !s.host.knows(last) {
                s.mistakes.push(format!("stream {} is destroyed with work queued", stream.0));
            }
        } else {
            s.mistakes.push(format!("stream {} is destroyed twice", stream.0));
        }
    }

    fn adopt_stream(&self, handle: u64) -> Result<StreamHandle> {
        self.call("adopt_stream", format!("adopt_stream {handle}"))?;
        self.log.state().streams.entry(handle).or_default();
        Ok(StreamHandle(handle))
    }

    fn create_event(&self, _timing: bool) -> Result<EventHandle> {
        self.call("create_event", "create_event".into())?;
        let mut s = self.log.state();
        s.next += 1;
        let handle = s.next;
        s.events.insert(handle, None);
        Ok(EventHandle(handle))
    }

    unsafe fn destroy_event(&self, event: EventHandle) {
        self.note(format!("destroy_event {}", event.0));
        let mut s = self.log.state();
        if s.events.remove(&event.0).is_none() {
            s.mistakes.push(format!("event {} is destroyed twice", event.0));
        }
    }

    unsafe fn record_event(&self, stream: StreamHandle, event: EventHandle) -> Result<()> {
        let stream = self.own(stream);
        self.call("record_event", format!("record_event {} on {}", event.0, stream.0))?;
        let mut s = self.log.state();
        s.event(event);
        let clock = s.stream(stream).clone();
        s.events.insert(event.0, Some(clock));
        if s.captured.contains(&stream.0) {
            s.captured_events.insert(event.0);
        } else {
            s.captured_events.remove(&event.0);
        }
        Ok(())
    }

    unsafe fn wait_events(&self, stream: StreamHandle, events: &[EventHandle]) -> Result<()> {
        let stream = self.own(stream);
        let names: Vec<_> = events.iter().map(|e| e.0.to_string()).collect();
        self.call("wait_events", format!("wait_events {} on {}", names.join(","), stream.0))?;
        let mut s = self.log.state();
        for &event in events {
            if let Some(clock) = s.event(event) {
                s.stream(stream).join(&clock);
            }
            if s.captured_events.contains(&event.0) {
                s.captured.insert(stream.0);
            }
        }
        Ok(())
    }

    unsafe fn synchronize_event(&self, event: EventHandle) -> Result<()> {
        self.call("synchronize_event", format!("synchronize_event {}", event.0))?;
        let mut s = self.log.state();
        if let Some(clock) = s.event(event) {
            s.host.join(&clock);
            s.settle();
        }
        Ok(())
    }

    unsafe fn query_stream(&self, stream: StreamHandle) -> Result<bool> {
        let stream = self.own(stream);
        self.call("query_stream", format!("query_stream {}", stream.0))?;
        let mut s = self.log.state();
        let clock = s.stream(stream).clone();
        Ok(s.is_done(&clock))
    }

    unsafe fn query_event(&self, event: EventHandle) -> Result<bool> {
        self.call("query_event", format!("query_event {}", event.0))?;
        let mut s = self.log.state();
        Ok(s.event(event).is_none_or(|clock| s.is_done(&clock)))
    }

    unsafe fn elapsed_ms(&self, _earlier: EventHandle, _later: EventHandle) -> Result<f64> {
        self.call("elapsed_ms", "elapsed_ms".into())?;
        Ok(1.0)
    }

    unsafe fn free(&self, stream: StreamHandle, memory: DevicePtr, bytes: u64) {
        let stream = self.own(stream);
        self.note(format!("free {bytes} on {}", stream.0));
        let mut s = self.log.state();
        if !self.ordered_memory {
            s.wait_for(stream);
            let host = s.host.clone();
            return s.remove_block(memory, &host, "free");
        }
        let mut known = s.stream(stream).clone();
        known.join(&s.host);
        s.remove_block(memory, &known, "free");
    }

    unsafe fn allocate_pinned(&self, bytes: u64) -> Result<DevicePtr> {
        self.call("allocate_pinned", format!("allocate_pinned {bytes}"))?;
        Ok(self.log.state().add_block(bytes, None))
    }

    unsafe fn free_pinned(&self, memory: DevicePtr, bytes: u64) {
        self.note(format!("free_pinned {bytes}"));
        let mut s = self.log.state();
        let known = s.host.clone();
        s.remove_block(memory, &known, "free_pinned");
    }

    unsafe fn copy_to_device(&self, stream: StreamHandle, to: DevicePtr, from: *const u8, bytes: u64) -> Result<()> {
        let stream = self.own(stream);
        self.call("copy_to_device", format!("copy_to_device {bytes} on {}", stream.0))?;
        let mut s = self.log.state();
        let at = s.copy(stream, (to.0, from as u64), bytes, None);
        // SAFETY: the trait's contract.
        let bytes = unsafe { std::slice::from_raw_parts(from, bytes as usize) }.to_vec();
        s.reads.push(HostRead { from: from as u64, bytes, at });
        self.end_call(&mut s, stream);
        Ok(())
    }

    unsafe fn copy_to_host(&self, stream: StreamHandle, to: *mut u8, from: DevicePtr, bytes: u64) -> Result<()> {
        let stream = self.own(stream);
        self.call("copy_to_host", format!("copy_to_host {bytes} on {}", stream.0))?;
        let mut s = self.log.state();
        // Earlier copies of the stream have already read the memory that this one overwrites.
        s.settle_before(stream.0, to as u64, bytes);
        // Conditions of a launch are copied after its tasks.
        let launch = s.launched.iter().rev().find(|l| l.stream == stream.0).map(|l| l.number & MOST_NUMBER);
        s.copy(stream, (to as u64, from.0), bytes, launch);
        self.end_call(&mut s, stream);
        Ok(())
    }

    unsafe fn copy_on_device(&self, stream: StreamHandle, to: DevicePtr, from: DevicePtr, bytes: u64) -> Result<()> {
        let stream = self.own(stream);
        self.call("copy_on_device", format!("copy_on_device {bytes} on {}", stream.0))?;
        let mut s = self.log.state();
        s.copy(stream, (to.0, from.0), bytes, None);
        self.end_call(&mut s, stream);
        Ok(())
    }

    fn peer(&self) -> Option<Peer> {
        Some(Peer { library: "the recorder", device: 0, context: self.default })
    }

    unsafe fn copy_from_peer(
        &self,
        stream: StreamHandle,
        to: DevicePtr,
        peer: Peer,
        from: DevicePtr,
        bytes: u64,
    ) -> Result<()> {
        let stream = self.own(stream);
        self.call("copy_from_peer", format!("copy_from_peer {bytes} from {} on {}", peer.context, stream.0))?;
        self.log.state().copy(stream, (to.0, from.0), bytes, None);
        Ok(())
    }

    unsafe fn fill(&self, stream: StreamHandle, at: DevicePtr, pattern: Pattern, bytes: u64) -> Result<bool> {
        let stream = self.own(stream);
        self.call("fill", format!("fill {bytes} on {}", stream.0))?;
        let copies = pattern.repeat(bytes / pattern.bytes());
        let mut s = self.log.state();
        s.copy(stream, (at.0, copies.as_ptr() as u64), bytes, None);
        self.end_call(&mut s, stream);
        Ok(true)
    }

    fn load(&self, artifact: &Artifact) -> Result<(ModuleHandle, Vec<TaskHandle>)> {
        self.call("load", "load".into())?;
        self.log.state().modules += 1;
        Ok((ModuleHandle(1), (0..artifact.tasks.len() as u64).map(TaskHandle).collect()))
    }

    unsafe fn unload(&self, _module: ModuleHandle) {
        self.note("unload".into());
        self.log.state().modules -= 1;
    }

    unsafe fn launch_as_one(
        &self,
        stream: StreamHandle,
        _module: ModuleHandle,
        sections: &[Section],
        launch: &Launch<'_>,
    ) -> Result<bool> {
        let stream = self.own(stream);
        if self.makes_one {
            let call = format!("launch_as_one {} sections {:?} on {}", sections.len(), launch.args, stream.0);
            self.call("launch_as_one", call)?;
            if launch.end != CheckpointWords::NONE {
                // SAFETY: the word is in memory that the host reaches.
                unsafe { (launch.end.for_host.0 as *mut u64).write(self.log.state().ends_at) };
            }
        }
        Ok(self.makes_one)
    }

    unsafe fn launch(&self, stream: StreamHandle, task: TaskHandle, launch: &Launch<'_>) -> Result<()> {
        let stream = self.own(stream);
        self.call("launch", format!("launch {} {:?} number {} on {}", task.0, launch.args, launch.number, stream.0))?;
        let mut s = self.log.state();
        let (now, known) = s.queue(stream);
        let number = launch.number;
        s.launched.push(Launched {
            task: launch.kernel.tasks[task.0 as usize].name.clone(),
            number,
            stream: stream.0,
            args: launch.args.to_vec(),
            at: now,
            known: known.clone(),
        });
        // Frame and results belong to one launch at a time. The bits above the launch number hold the round and do not
        // count. The program orders the uses of arrays.
        let whole = number & MOST_NUMBER;
        for own in [launch.frame.0, launch.result.0] {
            let uses = s.note_use(own, Some(whole), now, &known);
            for (other, at) in uses.into_iter().filter(|(other, at)| *other != Some(whole) && !known.knows(*at)) {
                let other = other.map_or("a copy".into(), |n| format!("launch {n}"));
                let stream = at.stream;
                s.mistakes
                    .push(format!("{other} on stream {stream} and launch {number} share a frame and are not ordered"));
            }
        }
        s.arguments = launch.args.iter().map(|&a| s.memory(a, 64).unwrap_or_default()).collect();
        s.args_at = launch.args_at.map(|at| at.0);
        if let Some(at) = launch.args_at {
            s.note_use(at.0, Some(number), now, &known);
        }
        for &address in launch.args {
            s.note_use(address, Some(number), now, &known);
        }
        if launch.channel.0 != 0 {
            s.note_use(launch.channel.0, Some(number), now, &known);
            for said in std::mem::take(&mut s.messages_to_send) {
                // SAFETY: the runtime gives a channel that lives until the work is done.
                unsafe { say(launch.channel, launch.kernel_id, &said) }
            }
        }
        if let Some((slot, values)) = s.to_write.get_mut(&task.0)
            && let Some(value) = values.pop_front()
        {
            let at = slot.map_or(launch.frame.0, |slot| launch.args[slot]);
            // SAFETY: the test that requested it has an integer there.
            unsafe { (at as *mut i32).write_unaligned(value) }
        }
        if std::mem::take(&mut s.fail_task) {
            launch.fail(0, &[5]);
        }
        if let (false, Some(block)) = (launch.kernel.result.is_empty(), s.blocks.get_mut(&launch.result.0)) {
            block.memory[0].0[0] = number + 100;
        }
        self.end_call(&mut s, stream);
        Ok(())
    }

    unsafe fn is_capturing(&self, stream: StreamHandle) -> Result<bool> {
        let stream = self.own(stream);
        Ok(self.log.state().captured.contains(&stream.0))
    }

    unsafe fn synchronize(&self, stream: StreamHandle) -> Result<()> {
        let stream = self.own(stream);
        self.call("synchronize", format!("synchronize {}", stream.0))?;
        self.log.state().wait_for(stream);
        Ok(())
    }

    /// Nothing is done before it is waited for.
    unsafe fn synchronize_for(&self, stream: StreamHandle, _: std::time::Duration) -> Result<bool> {
        // SAFETY: the caller's contract.
        unsafe { self.synchronize(stream) }.map(|()| true)
    }

    fn close(&self) {
        self.note("close".into());
    }
}
