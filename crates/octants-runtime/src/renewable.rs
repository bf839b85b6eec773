//! [`Renewable`]: a lock that a child process can recreate if a thread of the parent held it during the fork.

use std::cell::UnsafeCell;
use std::ops::Deref;
use std::sync::{Mutex, TryLockError};

/// A [`Mutex`] that a process made by `fork` can renew.
#[derive(Default)]
pub struct Renewable<T>(UnsafeCell<Mutex<T>>);

// SAFETY: shared references reach only the mutex, except in `renew_if_held`, whose callers ensure that there are no
// others.
unsafe impl<T: Send> Sync for Renewable<T> {}

impl<T> Renewable<T> {
    /// Around a value.
    pub const fn new(value: T) -> Renewable<T> {
        Renewable(UnsafeCell::new(Mutex::new(value)))
    }

    /// The mutex, given exclusive access.
    pub fn get_mut(&mut self) -> &mut Mutex<T> {
        self.0.get_mut()
    }
}

impl<T: Default> Renewable<T> {
    /// Makes a lock that is held free again, with a new value; true if it was held. The old value may be half changed,
    /// and is left as it is.
    ///
    /// # Safety
    /// The process has just been made by a fork, and this, its only thread, holds no guard of the lock.
    pub unsafe fn renew_if_held(&self) -> bool {
        let held = matches!(self.try_lock(), Err(TryLockError::WouldBlock));
        if held {
            // SAFETY: no other thread exists, and this one holds no reference into the mutex.
            unsafe { self.0.get().write(Mutex::new(T::default())) }
        }
        held
    }
}

impl<T> Deref for Renewable<T> {
    type Target = Mutex<T>;

    #[inline]
    fn deref(&self) -> &Mutex<T> {
        // SAFETY: see `Sync` above.
        unsafe { &*self.0.get() }
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Renewable<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_held_lock_is_renewed() {
        let lock = Renewable::new(5);
        // SAFETY: no other thread has the lock, here and below.
        assert!(!unsafe { lock.renew_if_held() });
        assert_eq!(*lock.lock().unwrap(), 5);
        // The state after a thread that does not exist any more.
        std::mem::forget(lock.lock().unwrap());
        // SAFETY: as above; the guard is forgotten.
        assert!(unsafe { lock.renew_if_held() });
        assert_eq!(*lock.lock().unwrap(), 0);
    }
}
