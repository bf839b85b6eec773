//! [`Stream`]: a thread that executes a queue.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::capture::some_order;
use crate::faults::note;
use crate::lock::lock;
use crate::processor::{Grid, LaunchEnvironment};
use crate::state::{SEED, state};
use crate::work::{Stream, Work};

impl Stream {
    /// A new stream without work.
    pub fn new(handle: u64, device: i32, blocking: bool) -> Arc<Stream> {
        Arc::new(Stream { handle, device, blocking, queue: Mutex::default(), changed: Condvar::new() })
    }

    /// Queues work. Returns the number of items queued so far.
    pub fn push(self: &Arc<Stream>, work: Work) -> u64 {
        let ends = matches!(work, Work::End);
        if !ends {
            self.order_with_null();
        }
        for function in work.functions() {
            function.module.queued.fetch_add(1, Ordering::AcqRel);
        }
        self.push_alone(work)
    }

    fn push_alone(self: &Arc<Stream>, work: Work) -> u64 {
        let mut queue = lock(&self.queue);
        if !queue.started {
            queue.started = true;
            let stream = self.clone();
            std::thread::spawn(move || stream.work());
        }
        queue.waiting.push_back(work);
        queue.queued += 1;
        let queued = queue.queued;
        drop(queue);
        self.changed.notify_all();
        queued
    }

    /// Orders the null stream after all blocking streams, and them after it.
    fn order_with_null(self: &Arc<Stream>) {
        if !self.blocking {
            return;
        }
        let others = if self.handle == 0 {
            state().streams_of(self.device).into_iter().filter(|s| s.blocking && s.handle != 0).collect()
        } else {
            vec![state().devices[self.device as usize].null.clone()]
        };
        for other in others {
            let (queued, done) = other.counts();
            if done < queued {
                self.push_alone(Work::Wait { stream: other, count: queued });
            }
        }
    }

    /// The numbers of queued and completed items.
    pub fn counts(&self) -> (u64, u64) {
        let queue = lock(&self.queue);
        (queue.queued, queue.done)
    }

    /// Waits until this many operations are done.
    pub fn wait(&self, count: u64) {
        let mut queue = lock(&self.queue);
        while queue.done < count {
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for all work queued so far.
    pub fn synchronize(&self) {
        let (queued, _) = self.counts();
        self.wait(queued);
    }

    fn work(&self) {
        let mut sleeps = Sleeps { state: self.handle.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 };
        loop {
            let mut queue = lock(&self.queue);
            let work = loop {
                match queue.waiting.pop_front() {
                    Some(work) => break work,
                    None => queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(queue);
            if !matches!(work, Work::Wait { .. } | Work::End) {
                sleeps.sleep();
            }
            let ends = matches!(work, Work::End);
            self.run(&work, &mut sleeps);
            // Dropped before completion is visible, because it may hold the last reference to an object.
            drop(work);
            lock(&self.queue).done += 1;
            self.changed.notify_all();
            if ends {
                return;
            }
        }
    }

    fn run(&self, work: &Work, sleeps: &mut Sleeps) {
        let state = state();
        let device = &state.devices[self.device as usize];
        let lost = device.lost.load(Ordering::Acquire) != 0;
        match work {
            Work::Wait { stream, count } => stream.wait(*count),
            Work::Record { event } => event.reached(),
            Work::End => {}
            Work::Graph { graph } => {
                for number in some_order(graph, |choices| sleeps.pick(choices)) {
                    sleeps.sleep();
                    self.run(&graph[number].work, sleeps);
                }
            }
            _ if lost => {}
            Work::Copy { to, from, bytes } => {
                let valid = |(at, on_device): &(u64, bool)| {
                    !on_device || state.memory.check("a copy", *at, *bytes, self.device)
                };
                if valid(to) && valid(from) {
                    // SAFETY: device memory was checked; the caller keeps host memory alive.
                    unsafe { std::ptr::copy(from.0 as *const u8, to.0 as *mut u8, *bytes) }
                }
            }
            Work::CopyBetween { to, from, bytes } => {
                let valid = |(at, device): &(u64, i32)| state.memory.check("a copy", *at, *bytes, *device);
                if valid(to) && valid(from) {
                    // SAFETY: checked.
                    unsafe { std::ptr::copy(from.0 as *const u8, to.0 as *mut u8, *bytes) }
                }
            }
            Work::Fill { to, pattern, bytes } => {
                if state.memory.check("a fill", *to, *bytes, self.device) {
                    // SAFETY: checked.
                    let memory = unsafe { std::slice::from_raw_parts_mut(*to as *mut u8, *bytes) };
                    memory.chunks_exact_mut(pattern.len()).for_each(|chunk| chunk.copy_from_slice(pattern));
                }
            }
            Work::Multiply { product } => {
                product.run(|at, bytes| state.memory.check("a sparse product", at, bytes, self.device));
            }
            Work::Allocate { at } => state.memory.make_valid(*at),
            Work::Free { at } => state.memory.release(*at),
            Work::Launch { function, blocks, threads, resident, parameter } => {
                let (warp, resident) = (state.settings.warp, *resident);
                let grid = Grid { blocks: *blocks, threads: *threads, warp, resident };
                let environment = LaunchEnvironment {
                    block: &|address| state.memory.usable(address, self.device),
                    seed: SEED.load(Ordering::Relaxed),
                    no_barriers: state.settings.no_barriers,
                };
                // SAFETY: the parameter has the function's size; the caller is responsible for its pointers.
                let ran = unsafe { function.module.code.run(function.entry, grid, parameter, &environment) };
                if let Err(crash) = ran {
                    note(format!("`{}` crashed: {}", function.name, crash.why));
                    device.lost.store(crash.code, Ordering::Release);
                }
                function.module.queued.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }
}

/// The time that a stream sleeps between items.
struct Sleeps {
    state: u64,
}

impl Sleeps {
    /// A seeded random number; `None` without a seed.
    fn next(&mut self) -> Option<u64> {
        let seed = SEED.load(Ordering::Relaxed);
        if seed == 0 {
            return None;
        }
        self.state = (self.state ^ seed).wrapping_mul(0x2545_f491_4f6c_dd1d).rotate_left(23).wrapping_add(seed);
        Some(self.state >> 60)
    }

    /// A seeded random number below a bound; zero without a seed.
    fn pick(&mut self, choices: usize) -> usize {
        self.next().map_or(0, |number| number as usize % choices)
    }

    fn sleep(&mut self) {
        let Some(number) = self.next() else { return };
        match number {
            0..8 => {}
            8..13 => std::thread::yield_now(),
            13..15 => std::thread::sleep(Duration::from_micros(50)),
            _ => std::thread::sleep(Duration::from_micros(600)),
        }
    }
}
