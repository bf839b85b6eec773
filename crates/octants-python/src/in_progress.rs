//! [`InProgress`]: the specializations that threads are compiling. Each is compiled once; other threads that need it
//! wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use octants_engine::runtime::Renewable;
use pyo3::prelude::*;

use crate::detached;

/// Keys of specializations, each with the thread that compiles it.
#[derive(Default)]
pub struct InProgress {
    keys: Renewable<Vec<(Box<[u64]>, ThreadId)>>,
    ended: Condvar,
    /// The process of these threads.
    generation: AtomicU64,
}

/// The right to compile for a key, until dropped.
pub struct Turn<'a> {
    all: &'a InProgress,
    key: &'a [u64],
}

impl InProgress {
    /// Locks the table. The caller holds the interpreter. In a child process, forgets the parent's threads.
    fn enter_process(&self) {
        let generation = detached::generation();
        if self.generation.swap(generation, Ordering::Relaxed) != generation {
            // SAFETY: this thread holds the interpreter, and no other thread of this process has locked it since the
            // fork: a thread that waits for a compilation has run this code before.
            unsafe { self.keys.renew_if_held() };
            let forker = thread::current().id();
            self.lock().retain(|(_, who)| *who == forker);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Box<[u64]>, ThreadId)>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acquires the right to compile for a key. Returns `None` after another thread has compiled it. A thread never
    /// waits for itself: Python code that the compiler runs may call the kernel.
    pub fn enter<'a>(&'a self, py: Python<'_>, key: &'a [u64]) -> Option<Turn<'a>> {
        self.enter_process();
        let me = thread::current().id();
        let of_others = |keys: &Vec<(Box<[u64]>, ThreadId)>| keys.iter().any(|(k, who)| **k == *key && *who != me);
        {
            let mut keys = self.lock();
            if !of_others(&keys) {
                keys.push((key.into(), me));
                return Some(Turn { all: self, key });
            }
        }
        detached::waiting(py, || {
            let keys = self.lock();
            drop(self.ended.wait_while(keys, |keys| of_others(keys)).unwrap_or_else(PoisonError::into_inner));
        });
        None
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.all.enter_process();
        let me = thread::current().id();
        let mut keys = self.all.lock();
        if let Some(i) = keys.iter().position(|(k, who)| **k == *self.key && *who == me) {
            keys.swap_remove(i);
        }
        self.all.ended.notify_all();
    }
}
