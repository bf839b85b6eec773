//! [`RecordingDriver`].

use std::sync::Arc;

use octants_artifact::Artifact;
use octants_runtime::{
    Contents, DevicePtr, Driver, ErrorKind, EventHandle, Launch, ModuleHandle, Result, StreamHandle, TaskHandle,
};

use crate::clock::Clock;
use crate::log::{Block, Log, State};

/// Larger blocks are refused.
const MOST: u64 = 1 << 30;

/// A driver that works asynchronously and runs nothing.
#[derive(Debug)]
pub struct RecordingDriver(Arc<Log>);

impl RecordingDriver {
    /// A driver that writes to this log.
    pub fn new(log: Arc<Log>) -> RecordingDriver {
        log.state().streams.insert(0, Clock::default());
        RecordingDriver(log)
    }

    /// Writes down a call that may fail, and lets it fail if it is its turn.
    fn call(&self, name: &'static str, text: String) -> Result<()> {
        let mut s = self.0.state();
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

    fn note(&self, text: String) {
        self.0.state().calls.push(text);
    }
}

impl State {
    fn stream(&mut self, stream: StreamHandle) -> &mut Clock {
        if !self.streams.contains_key(&stream.0) {
            self.mistakes.push(format!("stream {} is used and does not exist", stream.0));
        }
        self.streams.entry(stream.0).or_default()
    }

    fn add_block(&mut self, bytes: u64) -> DevicePtr {
        let memory = vec![0u64; bytes.div_ceil(8).max(1) as usize].into_boxed_slice();
        let address = memory.as_ptr() as u64;
        self.blocks.insert(address, Block { memory, bytes, uses: Vec::new() });
        DevicePtr(address)
    }

    fn remove_block(&mut self, memory: DevicePtr, known: &Clock, who: &str) {
        let Some(block) = self.blocks.remove(&memory.0) else {
            return self.mistakes.push(format!("{who}: memory that is not there"));
        };
        for (launch, moment) in &block.uses {
            if !known.knows(*moment) {
                let bytes = block.bytes;
                self.mistakes
                    .push(format!("{who}: {bytes} bytes before launch {launch} on stream {} is done", moment.stream));
            }
        }
    }

    fn event(&mut self, event: EventHandle) -> Option<Clock> {
        if !self.events.contains_key(&event.0) {
            self.mistakes.push(format!("event {} is used and does not exist", event.0));
        }
        self.events.get(&event.0).cloned().flatten()
    }
}

impl Driver for RecordingDriver {
    fn name(&self) -> &str {
        "the recorder"
    }

    fn is_immediate(&self) -> bool {
        false
    }

    fn memory_bytes(&self) -> Option<u64> {
        None
    }

    unsafe fn allocate(&self, stream: Option<StreamHandle>, bytes: u64, _contents: Contents) -> Result<DevicePtr> {
        let place = stream.map_or("for all".into(), |s| format!("on {}", s.0));
        self.call("allocate", format!("allocate {bytes} {place}"))?;
        if bytes > MOST {
            let device = self.name().into();
            return Err(ErrorKind::OutOfMemory { device, requested: bytes, in_use: 0, capacity: None }.into());
        }
        Ok(self.0.state().add_block(bytes))
    }

    fn create_stream(&self, _priority: i32) -> Result<StreamHandle> {
        self.call("create_stream", "create_stream".into())?;
        let mut s = self.0.state();
        s.next += 1;
        let handle = s.next;
        let born = s.host.clone();
        s.streams.insert(handle, born);
        Ok(StreamHandle(handle))
    }

    unsafe fn destroy_stream(&self, stream: StreamHandle) {
        self.note(format!("destroy_stream {}", stream.0));
        let mut s = self.0.state();
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
        self.0.state().streams.entry(handle).or_default();
        Ok(StreamHandle(handle))
    }

    fn create_event(&self, _timing: bool) -> Result<EventHandle> {
        self.call("create_event", "create_event".into())?;
        let mut s = self.0.state();
        s.next += 1;
        let handle = s.next;
        s.events.insert(handle, None);
        Ok(EventHandle(handle))
    }

    unsafe fn destroy_event(&self, event: EventHandle) {
        self.note(format!("destroy_event {}", event.0));
        let mut s = self.0.state();
        if s.events.remove(&event.0).is_none() {
            s.mistakes.push(format!("event {} is destroyed twice", event.0));
        }
    }

    unsafe fn record_event(&self, stream: StreamHandle, event: EventHandle) -> Result<()> {
        self.call("record_event", format!("record_event {} on {}", event.0, stream.0))?;
        let mut s = self.0.state();
        s.event(event);
        let clock = s.stream(stream).clone();
        s.events.insert(event.0, Some(clock));
        Ok(())
    }

    unsafe fn wait_events(&self, stream: StreamHandle, events: &[EventHandle]) -> Result<()> {
        let names: Vec<_> = events.iter().map(|e| e.0.to_string()).collect();
        self.call("wait_events", format!("wait_events {} on {}", names.join(","), stream.0))?;
        let mut s = self.0.state();
        for &event in events {
            if let Some(clock) = s.event(event) {
                s.stream(stream).join(&clock);
            }
        }
        Ok(())
    }

    unsafe fn synchronize_event(&self, event: EventHandle) -> Result<()> {
        self.call("synchronize_event", format!("synchronize_event {}", event.0))?;
        let mut s = self.0.state();
        if let Some(clock) = s.event(event) {
            s.host.join(&clock);
        }
        Ok(())
    }

    unsafe fn query_stream(&self, stream: StreamHandle) -> Result<bool> {
        self.call("query_stream", format!("query_stream {}", stream.0))?;
        Ok(true)
    }

    unsafe fn query_event(&self, event: EventHandle) -> Result<bool> {
        self.call("query_event", format!("query_event {}", event.0))?;
        Ok(true)
    }

    unsafe fn elapsed_ms(&self, _earlier: EventHandle, _later: EventHandle) -> Result<f64> {
        self.call("elapsed_ms", "elapsed_ms".into())?;
        Ok(1.0)
    }

    unsafe fn free(&self, stream: StreamHandle, memory: DevicePtr, bytes: u64) {
        self.note(format!("free {bytes} on {}", stream.0));
        let mut s = self.0.state();
        let mut known = s.stream(stream).clone();
        known.join(&s.host);
        s.remove_block(memory, &known, "free");
    }

    unsafe fn allocate_pinned(&self, bytes: u64) -> Result<DevicePtr> {
        self.call("allocate_pinned", format!("allocate_pinned {bytes}"))?;
        Ok(self.0.state().add_block(bytes))
    }

    unsafe fn free_pinned(&self, memory: DevicePtr, bytes: u64) {
        self.note(format!("free_pinned {bytes}"));
        let mut s = self.0.state();
        let known = s.host.clone();
        s.remove_block(memory, &known, "free_pinned");
    }

    unsafe fn copy_to_device(&self, stream: StreamHandle, _to: DevicePtr, _from: *const u8, bytes: u64) -> Result<()> {
        self.call("copy_to_device", format!("copy_to_device {bytes} on {}", stream.0))
    }

    unsafe fn copy_to_host(&self, stream: StreamHandle, _to: *mut u8, _from: DevicePtr, bytes: u64) -> Result<()> {
        self.call("copy_to_host", format!("copy_to_host {bytes} on {}", stream.0))
    }

    unsafe fn copy_on_device(&self, stream: StreamHandle, _to: DevicePtr, _from: DevicePtr, bytes: u64) -> Result<()> {
        self.call("copy_on_device", format!("copy_on_device {bytes} on {}", stream.0))
    }

    fn load(&self, artifact: &Artifact) -> Result<(ModuleHandle, Vec<TaskHandle>)> {
        self.call("load", "load".into())?;
        self.0.state().modules += 1;
        Ok((ModuleHandle(1), (0..artifact.tasks.len() as u64).map(TaskHandle).collect()))
    }

    unsafe fn unload(&self, _module: ModuleHandle) {
        self.note("unload".into());
        self.0.state().modules -= 1;
    }

    unsafe fn launch(&self, stream: StreamHandle, task: TaskHandle, launch: &Launch<'_>) -> Result<()> {
        self.call("launch", format!("launch {} {:?} number {} on {}", task.0, launch.args, launch.number, stream.0))?;
        let mut s = self.0.state();
        let clock = {
            let host = s.host.clone();
            let clock = s.stream(stream);
            clock.join(&host);
            clock.clone()
        };
        let now = s.stream(stream).tick(stream.0);
        let number = launch.number;
        // Frame and results belong to one launch at a time; the arrays are the user's affair.
        for (address, own) in
            [(launch.frame.0, true), (launch.result.0, true)].into_iter().chain(launch.args.iter().map(|&a| (a, false)))
        {
            let Some(block) = s.blocks.get_mut(&address) else { continue };
            let early = block.uses.iter().find(|(other, at)| own && *other != number && !clock.knows(*at)).copied();
            block.uses.push((number, now));
            if let Some((other, _)) = early {
                s.mistakes.push(format!("launches {other} and {number} share a frame and are not ordered"));
            }
        }
        if std::mem::take(&mut s.fail_task) {
            launch.fail(0, &[5]);
        }
        if let (false, Some(block)) = (launch.kernel.result.is_empty(), s.blocks.get_mut(&launch.result.0)) {
            block.memory[0] = number + 100;
        }
        Ok(())
    }

    unsafe fn synchronize(&self, stream: StreamHandle) -> Result<()> {
        self.call("synchronize", format!("synchronize {}", stream.0))?;
        let mut s = self.0.state();
        let clock = s.stream(stream).clone();
        s.host.join(&clock);
        Ok(())
    }

    fn close(&self) {
        self.note("close".into());
    }
}
