//! [`lock`]: a mutex whose other holders may have panicked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, and ignores poisoning.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
