//! [`Peers`]: which other devices a device has waited for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Other devices that the queues of one have waited for.
pub struct Peers<S> {
    all: Mutex<Vec<Weak<S>>>,
    /// Whether there are any.
    any: AtomicBool,
}

impl<S> Default for Peers<S> {
    fn default() -> Peers<S> {
        Peers { all: Mutex::default(), any: AtomicBool::new(false) }
    }
}

impl<S> Peers<S> {
    fn lock(&self) -> MutexGuard<'_, Vec<Weak<S>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a queue waits for another device.
    pub fn note(&self, other: &Weak<S>) {
        let mut all = self.lock();
        all.retain(|known| known.strong_count() > 0);
        if !all.iter().any(|known| known.ptr_eq(other)) {
            all.push(other.clone());
            self.any.store(true, Ordering::Release);
        }
    }

    /// The devices that may be waited for, directly or indirectly. `peers` are those of one of them.
    pub fn reachable(&self, peers: impl Fn(&S) -> &Peers<S>) -> Vec<Arc<S>> {
        let mut found: Vec<Arc<S>> = Vec::new();
        if !self.any.load(Ordering::Acquire) {
            return found;
        }
        let mut left = self.lock().clone();
        while let Some(next) = left.pop() {
            let Some(next) = next.upgrade() else { continue };
            if !found.iter().any(|known| Arc::ptr_eq(known, &next)) {
                left.extend_from_slice(&peers(&next).lock());
                found.push(next);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Named(Peers<Named>);

    #[test]
    fn transitive_dependencies_are_found_once() {
        let all: [Arc<Named>; 4] = Default::default();
        let waits = |a: usize, b: usize| all[a].0.note(&Arc::downgrade(&all[b]));
        assert!(all[0].0.reachable(|n| &n.0).is_empty());
        [(0, 1), (0, 1), (1, 2), (2, 0), (3, 1)].iter().for_each(|(a, b)| waits(*a, *b));
        let found = all[0].0.reachable(|n| &n.0);
        let is_found = |n: usize| found.iter().filter(|f| Arc::ptr_eq(f, &all[n])).count();
        assert_eq!([0, 1, 2, 3].map(is_found), [1, 1, 1, 0]);
    }
}
