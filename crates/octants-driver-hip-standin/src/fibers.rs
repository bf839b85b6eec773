//! Runs the threads of a block as fibers of one thread, which change places where the block's threads meet: at a
//! barrier, or within a warp, to exchange values or to know whether all are there.

use std::cell::{Cell, RefCell};

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::processor::{Crash, Grid};

/// HIP's codes of a launch that failed, and of an access to memory that is not there.
const LAUNCH_FAILURE: i32 = 719;
const ILLEGAL_ADDRESS: i32 = 700;
const STACK_BYTES: usize = 256 << 10;

/// An entry point: it gets the address of its parameter.
pub type EntryPoint = unsafe extern "C" fn(*const u64);

/// Where a thread stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Start,
    /// Between two meetings; what it was given at the last.
    Going(i32),
    Barrier,
    /// With a value for others, wanting that of the thread so much further.
    Exchange(i32, i32),
    /// Asking whether the whole warp is at the place with this number.
    Asks(i32),
    /// It did what a device cannot do.
    Fault,
    End,
}

type Fiber = Coroutine<i32, At, (), DefaultStack>;

/// What code may ask for about the thread that runs it.
struct Running {
    /// Number in the block, threads of a block, number of the block, blocks.
    registers: [u32; 4],
    yielder: *const Yielder<i32, At>,
}

thread_local! {
    static RUNNING: Cell<*const Running> = const { Cell::new(std::ptr::null()) };
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// The table of functions that twins' code uses. `fault` is for code written by hand: a real access to memory that is
/// not there would end the process.
#[repr(C)]
#[derive(Debug)]
pub struct Table {
    register: unsafe extern "C" fn(i32) -> i32,
    barrier: unsafe extern "C" fn(),
    exchange: unsafe extern "C" fn(i32, i32) -> i32,
    fault: unsafe extern "C" fn(),
    is_whole_warp: unsafe extern "C" fn(i32) -> i32,
}

/// The only table.
pub static TABLE: Table = Table { register, barrier, exchange, fault, is_whole_warp };

unsafe extern "C" fn register(which: i32) -> i32 {
    // SAFETY: code runs in a fiber alone, which sets this before.
    unsafe { (*RUNNING.get()).registers[which as usize] as i32 }
}

fn meet(at: At) -> i32 {
    // SAFETY: as above. The fiber's own state is set again before it goes on.
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
    meet(At::Exchange(value, distance))
}

unsafe extern "C" fn fault() {
    meet(At::Fault);
}

unsafe extern "C" fn is_whole_warp(place: i32) -> i32 {
    meet(At::Asks(place))
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
    /// Lets a thread go on to its next meeting, or its end.
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

    /// Runs the threads of a warp until each has ended or waits for the block.
    fn run_warp(&mut self, first: usize, end: usize) -> Result<(), Crash> {
        loop {
            (first..end).for_each(|thread| self.resume(thread));
            let warp = &self.places[first..end];
            if warp.contains(&At::Fault) {
                return Err(self.crash(ILLEGAL_ADDRESS, "a thread uses memory that is not there"));
            }
            if warp.iter().any(|at| matches!(at, At::Asks(_))) {
                // Nobody else comes any more: the others have ended, wait for the block, or for these to exchange
                // values.
                let is_whole = warp.len() == self.grid.warp as usize && warp.iter().all(|at| *at == warp[0]);
                for at in &mut self.places[first..end] {
                    if matches!(at, At::Asks(_)) {
                        *at = At::Going(is_whole.into());
                    }
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
                self.places[first + lane] = At::Going(answer);
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
/// The entry point is code of a twin whose table is [`TABLE`], and takes such a parameter.
pub unsafe fn run_block(entry: EntryPoint, parameter: &[u64], number: u32, grid: Grid) -> Result<(), Crash> {
    let threads = grid.threads as usize;
    let fibers = (0..threads).map(|_| None).collect();
    let mut block =
        Block { entry, parameter: parameter.as_ptr(), number, grid, fibers, places: vec![At::Start; threads] };
    let ran = block.run();
    // Fibers of a block that crashed never come to their end: their stacks are given up with what is on them.
    for fiber in block.fibers.into_iter().flatten() {
        std::mem::forget(fiber);
    }
    ran
}
