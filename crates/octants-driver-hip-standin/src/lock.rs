//! [`lock`]: a mutex whose other holders may have panicked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, whatever happened to another holder.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
