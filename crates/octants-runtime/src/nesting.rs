//! Whether the current thread is inside a launch: a launch from there must run inline and wait for nothing.
//!
//! Compiled code can call back into the host (a print sink, say), and the host's thread pool runs tasks on threads of
//! its own. A launch that such a thread makes would wait for a lock its own launch holds, so the launcher asks here
//! first.

use std::cell::Cell;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// True when this thread runs a task or launches one.
#[inline]
pub fn inside() -> bool {
    INSIDE.with(Cell::get)
}

/// Marks this thread for good, as a thread that runs nothing but tasks.
pub fn mark_worker_thread() {
    INSIDE.with(|c| c.set(true));
}

/// Marks this thread until the guard is dropped.
#[derive(Debug)]
pub struct Inside(bool);

impl Inside {
    /// Marks this thread.
    #[inline]
    pub fn enter() -> Inside {
        Inside(INSIDE.with(|c| c.replace(true)))
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        let before = self.0;
        INSIDE.with(|c| c.set(before));
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
                assert!(inside());
            }
            assert!(inside());
        }
        assert!(!inside());
    }
}
