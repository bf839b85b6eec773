//! [`SeenLaunches`]: what is known of the launches that a gradient may be of which is asked for by hand, so that a loop whose length has
//! changed since is found.
//!
//! `kernel.grad(...)` names no launch. It may be of any with the same arguments, not only of the last one: programs that compute states
//! again from checkpoints launch a kernel several times and then ask for its gradients. So it is an error where no launch ran as
//! the gradient would, and one is left that has had none. A gradient of no launch that was seen takes memory as it is.
//!
//! Before a kernel's gradient is first asked for nobody knows that it will be. Then a launch is seen only where gradients have memory, and
//! only the first thousand are. Seeing a launch means waiting for it: where launches return before their work is done, it takes debug mode.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use octants_engine::ir::AutodiffMode;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

use super::Kernel;
use super::tally::Tally;
use crate::specialization::{Slots, Specialization};

/// Launches seen of a specialisation whose gradient nobody has asked for.
const MOST_WITHOUT_GRADIENT: usize = 1000;

/// Launches kept that ran differently. Of a specialisation that has more none are seen any longer.
const MOST_KEPT: usize = 1 << 16;

/// Of one specialisation.
#[derive(Default)]
pub struct SeenLaunches(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    /// By the slots of their arguments.
    launches: HashMap<Box<[u64]>, Launches>,
    /// The launches that were seen.
    count: usize,
    /// The tallies that are kept.
    kept: usize,
    /// No more are seen.
    ended: bool,
}

/// Those with the same arguments.
#[derive(Default)]
struct Launches {
    /// The different ones; the latest launch's is the last.
    tallies: Vec<Tally>,
    /// How many have had no gradient yet.
    owed: usize,
}

impl SeenLaunches {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the next launch is to be seen.
    fn wants_more(&self, differentiated: bool) -> bool {
        let mut seen = self.lock();
        if !differentiated && seen.count >= MOST_WITHOUT_GRADIENT {
            seen.forget();
        }
        !seen.ended && (differentiated || seen.count < MOST_WITHOUT_GRADIENT)
    }

    /// Sees no more launches, and forgets those that were seen: what a gradient is of may be one that is not known.
    fn end(&self) {
        let mut seen = self.lock();
        seen.ended = true;
        seen.forget();
    }

    fn add(&self, slots: &[u64], tally: Tally) {
        let mut seen = self.lock();
        let seen = &mut *seen;
        let same = seen.launches.entry(slots.into()).or_default();
        seen.count += 1;
        same.owed += 1;
        match same.tallies.iter().position(|t| *t == tally) {
            Some(i) => same.tallies[i..].rotate_left(1),
            None => {
                same.tallies.push(tally);
                seen.kept += 1;
            }
        }
        if seen.kept > MOST_KEPT {
            seen.ended = true;
            seen.forget();
        }
    }

    /// Some launch with these arguments has had no gradient yet.
    fn owes(&self, slots: &[u64]) -> bool {
        self.lock().launches.get(slots).is_some_and(|same| same.owed > 0)
    }

    /// A gradient is about to run. What the latest launch with its arguments was, where none was as it will be.
    fn unlike(&self, slots: &[u64], now: &Tally) -> Option<Tally> {
        let mut seen = self.lock();
        let same = seen.launches.get_mut(slots)?;
        if !same.tallies.contains(now) {
            return same.tallies.last().cloned();
        }
        same.owed = same.owed.saturating_sub(1);
        None
    }
}

impl Seen {
    fn forget(&mut self) {
        self.launches = HashMap::new();
        self.kept = 0;
    }
}

impl Kernel {
    /// Takes note of a launch that has run, for gradients that may be asked for by hand.
    #[cold]
    pub(super) fn see_launch<'py>(
        slf: &Bound<'py, Self>,
        args: &[Bound<'py, PyAny>],
        (spec, slots): (&Specialization, &[u64]),
    ) -> PyResult<()> {
        let (this, py) = (slf.get(), slf.py());
        let differentiated = this.differentiated.load(Ordering::Relaxed);
        if !(differentiated || spec.may_have_gradient) || !spec.seen.wants_more(differentiated) {
            return Ok(());
        }
        let (prepared, _) = this.prepared(py)?;
        let mut gathered = this.gather(&prepared, args, AutodiffMode::Trips)?;
        let mut tally_slots = Slots::new();
        let found = Self::find_or_compile(slf, &prepared, &mut gathered, args, &mut tally_slots, AutodiffMode::Trips);
        let tallying = match found {
            // Not every kernel can be differentiated, and nobody has asked for this one's gradient.
            Err(error) if error.is_instance_of::<PyException>(py) => {
                spec.sees_launches.store(false, Ordering::Relaxed);
                spec.seen.end();
                return Ok(());
            }
            found => found?,
        };
        let tally = Tally::of(this.launch(py, &prepared, &tallying, (&gathered, &[]), &tally_slots, None)?, py)?;
        if tally.is_empty() {
            spec.has_no_loops_to_tally();
        } else {
            spec.seen.add(slots, tally);
            this.sees_launches.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Forgets the launches that were seen: there is one of another kind, on a stream or for a tape, that the next gradient may be of.
    pub(super) fn forget_seen(&self) {
        if self.sees_launches.swap(false, Ordering::Relaxed) {
            self.lock().specializations.iter().for_each(|spec| spec.seen.lock().forget());
        }
    }

    /// Raises where loops of the gradient with these arguments, which is asked for by hand, would run as in no launch that was seen.
    pub(super) fn check_seen<'py>(slf: &Bound<'py, Self>, args: &[Bound<'py, PyAny>]) -> PyResult<()> {
        let (this, py) = (slf.get(), slf.py());
        this.differentiated.store(true, Ordering::Relaxed);
        let (prepared, _) = this.prepared(py)?;
        let mut gathered = this.gather(&prepared, args, AutodiffMode::None)?;
        let mut slots = Slots::new();
        let known: Vec<_> = this.lock().specializations.clone();
        for spec in known {
            let is_it = *spec.key == *gathered.key && spec.is_alive(py);
            if !is_it
                || !spec.sees_launches.load(Ordering::Relaxed)
                || !spec.fill(&mut gathered, args, &mut slots, false)?
            {
                continue;
            }
            if spec.seen.owes(&slots) {
                let now = Tally::take(slf, args, AutodiffMode::Trips, None)?;
                if let Some(was) = spec.seen.unlike(&slots, &now) {
                    return was.check(&now, slf);
                }
            }
            break;
        }
        Ok(())
    }
}
