//! Launches on several streams that update the same memory, with and without atomics.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use octants_artifact::{Artifact, TaskMeta};
use octants_driver_recording::{Launched, Log, device, finish};
use octants_runtime::{Buffer, CapturedGraph, Device, LoadedKernel, Pointer, Stream, Uninterruptible};

/// A kernel that writes to the memory in slot 0.
fn load(device: &Device, name: &str, assumes_order: bool) -> LoadedKernel {
    let task = TaskMeta { name: name.into(), ..TaskMeta::default() };
    let artifact =
        Artifact { kernel: "k".into(), arg_slots: 1, assumes_order, tasks: vec![task], ..Artifact::default() };
    device.load(&artifact).unwrap().with_pointers(vec![Pointer { slot: 0, written: true, buffer: None }])
}

/// A device with a plain kernel, one that updates atomically, and streams.
struct Program {
    device: Device,
    log: Arc<Log>,
    plain: LoadedKernel,
    atomic: LoadedKernel,
    streams: Vec<Stream>,
    buffers: Vec<Buffer>,
}

impl Program {
    fn new(streams: usize, buffers: usize) -> Program {
        let (device, log) = device();
        Program {
            plain: load(&device, "plain", true),
            atomic: load(&device, "atomic", false),
            streams: (0..streams).map(|_| device.create_stream(0).unwrap()).collect(),
            buffers: (0..buffers).map(|_| device.allocate(64).unwrap()).collect(),
            log,
            device,
        }
    }

    fn launch(&self, stream: usize, is_plain: bool, buffer: usize) {
        let kernel = if is_plain { &self.plain } else { &self.atomic };
        let address = self.buffers[buffer].ptr().unwrap();
        // SAFETY: the driver runs nothing.
        unsafe { self.streams[stream].launch(kernel, &[address], &Uninterruptible) }.unwrap();
    }

    /// Launches a buffer's update, and returns the number of waits of streams.
    fn waits(&self, stream: usize, is_plain: bool, buffer: usize) -> usize {
        self.log.take();
        self.launch(stream, is_plain, buffer);
        self.log.count("wait_events")
    }

    fn end(self) {
        let Program { device, log, plain, atomic, streams, buffers } = self;
        drop((plain, atomic, streams, buffers));
        finish(device, &log);
    }
}

const PLAIN: bool = true;
const ATOMIC: bool = false;

#[test]
fn a_launch_waits_if_one_of_two_updates_is_plain() {
    for (first, second, waits) in [(PLAIN, PLAIN, 1), (PLAIN, ATOMIC, 1), (ATOMIC, PLAIN, 1), (ATOMIC, ATOMIC, 0)] {
        let p = Program::new(2, 2);
        // Turns are taken from the first plain launch on.
        p.launch(0, PLAIN, 1);
        p.launch(0, first, 0);
        assert_eq!(p.waits(1, second, 0), waits, "{first} {second}");
        assert_eq!(p.waits(1, second, 0), 0, "it has waited");
        p.end();
    }
}

#[test]
fn other_memory_the_same_stream_and_work_that_is_done_need_no_wait() {
    let p = Program::new(2, 2);
    p.launch(0, PLAIN, 0);
    assert_eq!(p.waits(1, PLAIN, 1), 0, "other memory");
    assert_eq!(p.waits(0, PLAIN, 0), 0, "the same stream");
    p.log.all_done();
    assert_eq!(p.waits(1, PLAIN, 0), 0, "it is done");
    assert!(!p.device.is_unordered());
    p.end();
}

#[test]
fn order_ends_after_several_waits_for_the_same_memory() {
    let p = Program::new(2, 5);
    for buffer in 0..5 {
        p.launch(0, PLAIN, buffer);
        assert_eq!(p.waits(1, PLAIN, buffer), 1);
    }
    assert!(!p.device.is_unordered(), "once for each");
    for turn in 0..3 {
        assert!(!p.device.is_unordered());
        assert_eq!(p.waits(turn % 2, PLAIN, 0), 1);
    }
    assert!(p.device.is_unordered());
    // Code from before still waits.
    assert_eq!(p.waits(1, ATOMIC, 0), 1);
    p.end();
}

#[test]
fn a_graph_waits_for_plain_updates_and_they_for_it() {
    let p = Program::new(2, 1);
    let capture = p.device.capture().unwrap();
    capture.begin_here().unwrap();
    p.launch(0, ATOMIC, 0);
    capture.end_here();
    let graph = CapturedGraph::of(&capture);
    p.launch(1, PLAIN, 0);
    p.log.take();
    // SAFETY: the driver runs nothing.
    unsafe { p.streams[0].launch_graph(&graph, &Uninterruptible) }.unwrap();
    assert_eq!(p.log.count("wait_events"), 1);
    assert_eq!(p.waits(1, PLAIN, 0), 1);
    drop((graph, capture));
    p.end();
}

/// A small generator of numbers.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % n) as usize
    }
}

#[test]
fn random_launches_never_update_memory_beside_a_plain_update() {
    for seed in 0..200 {
        let mut draw = Draw(seed);
        let p = Program::new(4, 3);
        // The order in which plain updates begin does not matter.
        p.launch(0, PLAIN, 0);
        for _ in 0..40 {
            let (stream, kind, buffer) = (draw.below(4), draw.below(2) == 0, draw.below(3));
            p.launch(stream, kind, buffer);
            if draw.below(25) == 0 {
                p.log.all_done();
            }
        }
        let launched = p.log.take_launched();
        for (place, later) in launched.iter().enumerate() {
            for earlier in launched[..place].iter().filter(|e| e.args == later.args) {
                let disturbs = |l: &Launched| l.task == "plain";
                if disturbs(earlier) || disturbs(later) {
                    assert!(later.happens_after(earlier), "seed {seed}: {earlier:?} and {later:?}");
                }
            }
        }
        p.end();
    }
}
