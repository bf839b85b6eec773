//! [`SplitRows`]: the rows of an array that is split over ranks along one axis, and [`SplitPlan`]: how launches of a
//! kernel run on such arrays.
//!
//! The package makes a plan at the first launch on the same arrays. Later launches call the package only for what a
//! plan cannot do itself: messages and reductions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use smallvec::SmallVec;

/// Maximum number of plans that an array keeps.
const MOST_PLANS: usize = 64;

static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// The rows of a split array on this rank.
pub struct SplitRows {
    /// The first row that memory holds.
    pub first: i64,
    /// The axis of the array that its rows are along. Rows are contiguous in memory.
    pub axis: u32,
    /// No other array ever has it.
    pub number: u64,
    /// How many ghost rows before (upper half) and after (lower half) hold the owners' values.
    valid: AtomicU64,
    /// Plans for launches whose first split array it is, latest first. They refer to no array.
    plans: Mutex<Vec<Arc<SplitPlan>>>,
}

impl SplitRows {
    /// Memory that starts with this row, of an array that is split along an axis.
    pub fn new(first: i64, axis: u32) -> SplitRows {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        SplitRows { first, axis, number, valid: AtomicU64::new(0), plans: Mutex::default() }
    }

    /// Whether these ghost rows must be exchanged. Marks them valid, because the caller exchanges them.
    #[inline]
    pub fn lacks(&self, before: u32, after: u32) -> bool {
        let valid = self.valid.load(Ordering::Relaxed);
        let (had_before, had_after) = ((valid >> 32) as u32, valid as u32);
        if before <= had_before && after <= had_after {
            return false;
        }
        let now = u64::from(before.max(had_before)) << 32 | u64::from(after.max(had_after));
        self.valid.store(now, Ordering::Relaxed);
        true
    }

    /// Invalidates the ghost rows, because the owners' rows are about to change.
    #[inline]
    pub fn forget_ghosts(&self) {
        self.valid.store(0, Ordering::Relaxed);
    }

    /// The plan with this key.
    pub fn plan(&self, key: &[u64]) -> Option<Arc<SplitPlan>> {
        let mut plans = lock(&self.plans);
        let at = plans.iter().position(|plan| *plan.key == *key)?;
        plans.swap(0, at);
        Some(plans[0].clone())
    }

    /// Keeps a plan.
    pub fn keep(&self, plan: Arc<SplitPlan>) {
        let mut plans = lock(&self.plans);
        let old = if plans.len() >= MOST_PLANS { std::mem::take(&mut *plans) } else { Vec::new() };
        plans.insert(0, plan);
        // Outside the lock: dropping Python objects may run Python code.
        drop(plans);
        drop(old);
    }
}

/// How launches of a kernel run on the same split arrays and the same other memory.
pub struct SplitPlan {
    /// The kernel's code, the arrays, and the memory that it reduces into.
    pub key: Box<[u64]>,
    /// The tasks, `None` for those that use no split array; no tasks if this process owns all rows.
    pub tasks: Option<Vec<Option<TaskPlan>>>,
}

/// How a task runs on this rank.
pub struct TaskPlan {
    /// Split arrays of the kernel that it reads, and how many ghost rows before and after.
    pub reads: Vec<(usize, u32, u32)>,
    /// Split arrays of the kernel that it changes.
    pub changed: Vec<usize>,
    /// The package's function that prepares this rank's part of reductions.
    pub before: Option<Py<PyAny>>,
    /// The package's function that reduces over the ranks.
    pub after: Option<Py<PyAny>>,
    /// The package's function that makes an exchange of ghost rows, from which of the reads lack them.
    pub make_exchange: Py<PyAny>,
    exchanges: Mutex<Vec<(Missing, Arc<GhostExchange>)>>,
}

/// Which of the reads of a task lack valid ghost rows.
pub type Missing = SmallVec<[bool; 16]>;

/// The exchange before a task, and the ranges of rows that this rank computes.
pub struct GhostExchange {
    /// The package's function that sends and receives; it returns one that waits.
    pub start: Option<Py<PyAny>>,
    /// Rows that need none of the received ones.
    pub inner: Vec<(i32, i32)>,
    /// The other rows.
    pub left: Vec<(i32, i32)>,
}

/// A task as the package describes it: reads, changed arrays, and the functions of [`TaskPlan`].
type Described = (Vec<(u32, u32, u32)>, Vec<u32>, Option<Py<PyAny>>, Option<Py<PyAny>>, Py<PyAny>);

impl SplitPlan {
    /// A plan that the package has made for the arrays with these buffer numbers.
    pub fn new(key: &[u64], buffers: &[u32], made: &Bound<'_, PyAny>) -> PyResult<SplitPlan> {
        let described: Option<Vec<Option<Described>>> = made.extract()?;
        let place = |buffer: u32| buffers.iter().position(|&b| b == buffer).unwrap_or(0);
        let task = |(reads, changed, before, after, make_exchange): Described| TaskPlan {
            reads: reads.into_iter().map(|(buffer, before, after)| (place(buffer), before, after)).collect(),
            changed: changed.into_iter().map(place).collect(),
            before,
            after,
            make_exchange,
            exchanges: Mutex::default(),
        };
        let tasks = described.map(|tasks| tasks.into_iter().map(|t| t.map(task)).collect());
        Ok(SplitPlan { key: key.into(), tasks })
    }
}

impl TaskPlan {
    /// The exchange for reads that lack these ghost rows, if it was made before.
    pub fn exchange(&self, missing: &[bool]) -> Option<Arc<GhostExchange>> {
        lock(&self.exchanges).iter().find(|(of, _)| **of == *missing).map(|(_, exchange)| exchange.clone())
    }

    /// Keeps an exchange.
    pub fn keep(&self, missing: Missing, exchange: Arc<GhostExchange>) {
        lock(&self.exchanges).push((missing, exchange));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::SplitRows;

    #[test]
    fn ghost_rows_are_exchanged_once() {
        let rows = SplitRows::new(3, 0);
        assert!(!rows.lacks(0, 0));
        assert!(rows.lacks(1, 0));
        assert!(!rows.lacks(1, 0));
        assert!(rows.lacks(0, 2));
        assert!(!rows.lacks(1, 2));
        rows.forget_ghosts();
        assert!(rows.lacks(0, 1));
        assert_ne!(rows.number, SplitRows::new(3, 0).number);
    }
}
