//! Runs the threads of a block as fibers of one thread. They switch where the block's threads synchronize: at barriers,
//! and at shuffles and votes within a warp.

use std::cell::{Cell, RefCell};

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::processor::{Crash, Grid};

/// HIP's error codes for a failed launch and for an illegal address.
const LAUNCH_FAILURE: i32 = 719;
const ILLEGAL_ADDRESS: i32 = 700;
const STACK_BYTES: usize = 256 << 10;

/// An entry point. It takes the address of its parameter.
pub type EntryPoint = unsafe extern "C" fn(*const u64);

/// The state of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Start,
    /// Running; the result of the last synchronization.
    Going(i64),
    Barrier,
    /// At a shuffle: its value, and the offset of the thread that it reads from.
    Exchange(i32, i32),
    /// At a vote: its vote, and the number of the site.
    Votes(i32, bool),
    /// Crashed by an illegal operation.
    Fault,
    End,
}

type Fiber = Coroutine<i64, At, (), DefaultStack>;

/// The identity of a thread, as code can query it.
struct Running {
    /// Thread index, block size, block index, number of blocks.
    registers: [u32; 4],
    yielder: *const Yielder<i64, At>,
}

thread_local! {
    static RUNNING: Cell<*const Running> = const { Cell::new(std::ptr::null()) };
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// The functions that compiled code calls. `fault` is for handwritten code, because a real illegal access would end the
/// process.
#[repr(C)]
#[derive(Debug)]
pub struct Table {
    register: unsafe extern "C" fn(i32) -> i32,
    barrier: unsafe extern "C" fn(),
    exchange: unsafe extern "C" fn(i32, i32) -> i32,
    fault: unsafe extern "C" fn(),
    ballot: unsafe extern "C" fn(i32, i32) -> i64,
}

/// The only table.
pub static TABLE: Table = Table { register, barrier, exchange, fault, ballot };

unsafe extern "C" fn register(which: i32) -> i32 {
    // SAFETY: code only runs in a fiber, which sets this first.
    unsafe { (*RUNNING.get()).registers[which as usize] as i32 }
}

fn meet(at: At) -> i64 {
    // SAFETY: as above. The fiber's state is set again before it resumes.
    unsafe {
        let running = RUNNING.get();
        let answer = (*(*running).yielder).suspend(at);
        RUNNING.set(running);
        answer
    }
}

unsafe extern "C" fn barrier() {
    meet(At::Barrier);
}

unsafe extern "C" fn exchange(value: i32, distance: i32) -> i32 {
    meet(At::Exchange(value, distance)) as i32
}

unsafe extern "C" fn fault() {
    meet(At::Fault);
}

/// A bit for each thread of the warp that votes at this site with a nonzero vote.
unsafe extern "C" fn ballot(place: i32, vote: i32) -> i64 {
    meet(At::Votes(place, vote != 0))
}

fn start(entry: EntryPoint, parameter: *const u64, registers: [u32; 4]) -> Fiber {
    let stack = STACKS.with_borrow_mut(Vec::pop);
    let stack = stack.unwrap_or_else(|| DefaultStack::new(STACK_BYTES).expect("memory for a fiber's stack"));
    Coroutine::with_stack(stack, move |yielder, _| {
        let running = Running { registers, yielder };
        RUNNING.set(&running);
        // SAFETY: the contract of `run_block`.
        unsafe { entry(parameter) }
    })
}

struct Block {
    entry: EntryPoint,
    parameter: *const u64,
    number: u32,
    grid: Grid,
    fibers: Vec<Option<Fiber>>,
    places: Vec<At>,
}

impl Block {
    /// Resumes a thread until its next synchronization or its end.
    fn resume(&mut self, thread: usize) {
        let answer = match self.places[thread] {
            At::Start => {
                let registers = [thread as u32, self.grid.threads, self.number, self.grid.blocks];
                self.fibers[thread] = Some(start(self.entry, self.parameter, registers));
                0
            }
            At::Going(answer) => answer,
            _ => return,
        };
        let Some(fiber) = &mut self.fibers[thread] else { return };
        self.places[thread] = match fiber.resume(answer) {
            CoroutineResult::Yield(at) => at,
            CoroutineResult::Return(()) => {
                if let Some(done) = self.fibers[thread].take() {
                    STACKS.with_borrow_mut(|stacks| stacks.push(done.into_stack()));
                }
                At::End
            }
        };
    }

    /// Runs the threads of a warp until each has ended or is at a barrier.
    fn run_warp(&mut self, first: usize, end: usize) -> Result<(), Crash> {
        loop {
            (first..end).for_each(|thread| self.resume(thread));
            let warp = &self.places[first..end];
            if warp.contains(&At::Fault) {
                return Err(self.crash(ILLEGAL_ADDRESS, "a thread uses memory that is not there"));
            }
            if warp.iter().any(|at| matches!(at, At::Votes(..))) {
                // No more threads can vote here: the others have ended, or wait at a barrier or a shuffle.
                let before: Vec<At> = warp.to_vec();
                for at in &mut self.places[first..end] {
                    let At::Votes(place, _) = *at else { continue };
                    let bits = before
                        .iter()
                        .enumerate()
                        .map(|(lane, other)| i64::from(*other == At::Votes(place, true)) << lane);
                    *at = At::Going(bits.fold(0, |all, bit| all | bit));
                }
                continue;
            }
            if !warp.iter().any(|at| matches!(at, At::Exchange(..))) {
                return Ok(());
            }
            if warp.contains(&At::Barrier) {
                return Err(
                    self.crash(LAUNCH_FAILURE, "threads of a warp wait at a barrier while others exchange values")
                );
            }
            let before: Vec<At> = warp.to_vec();
            for (lane, at) in before.iter().enumerate() {
                let At::Exchange(own, distance) = *at else { continue };
                let partner = usize::try_from(lane as i64 + i64::from(distance)).ok().and_then(|n| before.get(n));
                let answer = if let Some(At::Exchange(theirs, _)) = partner { *theirs } else { own };
                self.places[first + lane] = At::Going(answer.into());
            }
        }
    }

    fn crash(&self, code: i32, what: &str) -> Crash {
        Crash { code, why: format!("block {} of {}: {what}", self.number, self.grid.blocks) }
    }

    fn run(&mut self) -> Result<(), Crash> {
        let (threads, warp) = (self.places.len(), self.grid.warp.max(1) as usize);
        loop {
            for first in (0..threads).step_by(warp) {
                self.run_warp(first, (first + warp).min(threads))?;
            }
            if self.places.iter().all(|at| *at == At::End) {
                return Ok(());
            }
            if self.places.contains(&At::End) {
                return Err(self.crash(LAUNCH_FAILURE, "threads wait at a barrier to which others never come"));
            }
            self.places.fill(At::Going(0));
        }
    }
}

/// Runs all threads of one block.
///
/// # Safety
/// The entry point is code compiled for [`TABLE`], and takes such a parameter.
pub unsafe fn run_block(entry: EntryPoint, parameter: &[u64], number: u32, grid: Grid) -> Result<(), Crash> {
    let threads = grid.threads as usize;
    let fibers = (0..threads).map(|_| None).collect();
    let mut block =
        Block { entry, parameter: parameter.as_ptr(), number, grid, fibers, places: vec![At::Start; threads] };
    let ran = block.run();
    // Fibers of a crashed block never finish. Their stacks are leaked without running destructors.
    for fiber in block.fibers.into_iter().flatten() {
        std::mem::forget(fiber);
    }
    ran
}
