//! [`CurrentConfig`]: the options of a session. Every launch reads them; they rarely change.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::config::Config;

/// Options that can be read without a lock while another thread changes them.
pub(crate) struct CurrentConfig {
    /// All that were ever in force: readers may keep the reference for the lifetime of the session.
    kept: Mutex<Vec<Arc<Config>>>,
    newest: AtomicPtr<Config>,
}

impl CurrentConfig {
    pub(crate) fn new(config: Config) -> CurrentConfig {
        let first = Arc::new(config);
        let newest = AtomicPtr::new(Arc::as_ptr(&first).cast_mut());
        CurrentConfig { kept: Mutex::new(vec![first]), newest }
    }

    /// The options in force.
    #[inline]
    pub(crate) fn get(&self) -> &Config {
        // SAFETY: the pointer is that of an `Arc` in `kept`, from which nothing is taken away. No one writes through
        // it.
        unsafe { &*self.newest.load(Ordering::Acquire) }
    }

    /// Replaces the options with ones derived from the current options.
    pub(crate) fn change<E>(&self, make: impl FnOnce(&Config) -> Result<Config, E>) -> Result<(), E> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let made = Arc::new(make(self.get())?);
        self.newest.store(Arc::as_ptr(&made).cast_mut(), Ordering::Release);
        kept.push(made);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Backends;

    #[test]
    fn a_change_keeps_earlier_references_valid() {
        let current = CurrentConfig::new(Config::new(Backends::default()));
        let before = current.get();
        current.change(|c| Ok::<_, ()>(Config { debug: true, ..c.clone() })).expect("made");
        assert!(current.get().debug && !before.debug);
        assert_eq!(current.change(|_| Err::<Config, _>("no")), Err("no"));
        assert!(current.get().debug);
    }
}
