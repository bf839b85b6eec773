//! Whether the current thread is inside a launch or a capture, which changes the meaning of its launches.
//!
//! Compiled code can call back into the host (a print sink, say), and the host's thread pool runs tasks on its own
//! threads. A launch from such a thread would wait for a lock that its own launch holds. The launcher therefore asks
//! here first, and runs a nested launch inline without waiting. A launch between the tasks of a launch on split arrays
//! is queued like those tasks. A thread that captures records its launches: see [`crate::capture`].

use std::cell::Cell;

use crate::error::{DeviceError, ErrorKind, Result};

const INSIDE: u8 = 1;
const CAPTURING: u8 = 2;
const CONCURRENT: u8 = 4;
const ORDERED: u8 = 8;
const SUBMITTING: u8 = 16;
const CONDUCTING: u8 = 32;
const UNNOTICED: u8 = 64;
const FUSING: u8 = 128;

thread_local! {
    static MARKS: Cell<u8> = const { Cell::new(0) };
}

/// True when this thread runs a task or launches one.
#[inline]
pub fn inside() -> bool {
    MARKS.with(Cell::get) & INSIDE != 0
}

/// True when this thread notes its launches for a graph.
#[inline]
pub fn capturing() -> bool {
    MARKS.with(Cell::get) & CAPTURING != 0
}

/// True when this thread launches as most do: neither inside a launch, nor in a capture.
#[inline]
pub(crate) fn is_plain() -> bool {
    MARKS.with(Cell::get) & (INSIDE | CAPTURING) == 0
}

/// Refuses operations that require the work to have run.
pub(crate) fn refuse_while_capturing(what: &str) -> Result<()> {
    if capturing() { Err(capture_refusal(what)) } else { Ok(()) }
}

/// Why a thread that captures cannot have something.
#[cold]
pub(crate) fn capture_refusal(what: &str) -> DeviceError {
    let message = format!(
        "{what} while this thread captures a graph, which records launches without running them. Do this before the \
         capture, or after the graph was launched"
    );
    ErrorKind::Misuse { message }.into()
}

/// Marks this thread permanently, as a thread that runs nothing but tasks.
pub fn mark_worker_thread() {
    MARKS.with(|c| c.set(INSIDE));
}

/// Sets whether this thread captures.
pub(crate) fn mark_capturing(captures: bool) {
    MARKS.with(|c| c.set(if captures { c.get() | CAPTURING } else { c.get() & !CAPTURING }));
}

/// Whether this thread has enabled or disabled concurrent launches.
#[inline]
pub(crate) fn concurrency() -> Option<bool> {
    match MARKS.with(Cell::get) & (CONCURRENT | ORDERED) {
        0 => None,
        marks => Some(marks == CONCURRENT),
    }
}

/// Sets whether this thread's launches on the default stream may run concurrently; `None` leaves it to the program.
/// Returns the previous setting.
pub fn set_concurrency(concurrent: Option<bool>) -> Option<bool> {
    let before = concurrency();
    let mark = match concurrent {
        None => 0,
        Some(true) => CONCURRENT,
        Some(false) => ORDERED,
    };
    MARKS.with(|c| c.set(c.get() & !(CONCURRENT | ORDERED) | mark));
    before
}

/// Whether this thread has enabled fusion.
#[inline]
pub fn fuses() -> bool {
    MARKS.with(Cell::get) & FUSING != 0
}

/// Sets whether repeated launches of this thread may be fused; otherwise the program's option decides. Returns the
/// previous setting.
pub fn set_fusion(fuses: bool) -> bool {
    let before = self::fuses();
    MARKS.with(|c| c.set(if fuses { c.get() | FUSING } else { c.get() & !FUSING }));
    before
}

/// True when this thread's nested launches are queued, because it runs no task.
pub(crate) fn is_dispatching() -> bool {
    MARKS.with(Cell::get) & CONDUCTING != 0
}

/// True when this thread submits launches that were held.
pub(crate) fn submitting() -> bool {
    MARKS.with(Cell::get) & SUBMITTING != 0
}

/// Marks this thread as one that submits launches that were held, in order, until the guard is dropped.
#[derive(Debug)]
pub(crate) struct Submitting(u8);

impl Submitting {
    pub(crate) fn begin() -> Submitting {
        Submitting(MARKS.with(|c| c.replace(c.get() & !CONCURRENT | ORDERED | SUBMITTING)))
    }
}

impl Drop for Submitting {
    fn drop(&mut self) {
        let before = self.0;
        MARKS.with(|c| c.set(before));
    }
}

/// True when the waits of this thread are not the program's.
pub(crate) fn is_unnoticed() -> bool {
    MARKS.with(Cell::get) & UNNOTICED != 0
}

/// Waits for a reason that is not the program's: race checks do not take it for an order.
pub fn unnoticed<T>(wait: impl FnOnce() -> T) -> T {
    struct Back(u8);
    impl Drop for Back {
        fn drop(&mut self) {
            MARKS.with(|c| c.set(c.get() & !UNNOTICED | self.0));
        }
    }
    let _back = Back(MARKS.with(|c| c.replace(c.get() | UNNOTICED)) & UNNOTICED);
    wait()
}

/// Does work on this thread as if it captured nothing.
pub fn outside_of_captures<T>(work: impl FnOnce() -> T) -> T {
    struct Back(u8);
    impl Drop for Back {
        fn drop(&mut self) {
            MARKS.with(|c| c.set(self.0));
        }
    }
    let _back = Back(MARKS.with(|c| c.replace(c.get() & !CAPTURING)));
    work()
}

/// Launches on this thread as if it were inside no launch: a launch of another device, while this thread's launch is
/// lent to that one.
pub fn beside_launch<T>(launch: impl FnOnce() -> T) -> T {
    let _back = Inside::mark(|marks| marks & !(INSIDE | CONDUCTING));
    launch()
}

/// Marks this thread until the guard is dropped. Holds the thread's marks, whose lookup takes some nanoseconds, and
/// their earlier value. Never leaves its thread: it is not [`Send`].
#[derive(Debug)]
pub struct Inside(*const Cell<u8>, u8);

impl Inside {
    #[inline]
    fn mark(change: impl FnOnce(u8) -> u8) -> Inside {
        MARKS.with(|marks| Inside(marks, marks.replace(change(marks.get()))))
    }

    /// Marks this thread.
    #[inline]
    pub fn enter() -> Inside {
        Inside::mark(|marks| marks & !CONDUCTING | INSIDE)
    }

    /// Marks this thread as one that launches between the tasks of its own launch. On a device with queues, such
    /// launches are queued there.
    pub(crate) fn dispatch() -> Inside {
        Inside::mark(|marks| marks | INSIDE | CONDUCTING)
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard is on the thread whose marks these are. They need no destructor, so they are alive as long
        // as the thread.
        unsafe { &*self.0 }.set(self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_nest() {
        assert!(!inside());
        {
            let _outer = Inside::enter();
            {
                let _inner = Inside::enter();
                assert!(inside() && !is_plain());
            }
            assert!(inside() && !is_dispatching());
            {
                let _conducts = Inside::dispatch();
                assert!(inside() && is_dispatching());
                let _runs_a_task = Inside::enter();
                assert!(inside() && !is_dispatching());
            }
        }
        assert!(!inside() && is_plain());
        mark_capturing(true);
        assert!(capturing() && !inside() && !is_plain());
        mark_capturing(false);
        assert!(is_plain());
    }

    #[test]
    fn the_concurrency_of_a_thread_is_restored() {
        assert_eq!(set_concurrency(Some(true)), None);
        assert!(is_plain() && concurrency() == Some(true));
        {
            let _inside = Inside::enter();
            assert_eq!(concurrency(), Some(true));
        }
        assert_eq!(set_concurrency(Some(false)), Some(true));
        assert_eq!(set_concurrency(None), Some(false));
        assert_eq!(concurrency(), None);
    }
}
