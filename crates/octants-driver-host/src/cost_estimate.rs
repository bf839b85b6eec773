//! [`CostEstimate`]: how long the iterations of a task take.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use octants_runtime::Launch;

/// Work above this many nanoseconds is long for a caller that others wait for.
pub(crate) const LONG: f64 = 10_000.0;

/// The cost estimate of a task's iterations: first the compiler's, then the measured one. The compiler's may be off by
/// orders of magnitude, which would prevent multithreading or keep others waiting.
pub(crate) struct CostEstimate {
    runs: AtomicU32,
    /// Bits of an `f32`: nanoseconds per iteration on one thread.
    cost: AtomicU32,
}

/// The first runs are all measured.
const TRIALS: u32 = 4;
/// After that, one in this many.
const EVERY: u32 = 64;
/// Work below this many nanoseconds is measured on one thread: on several, distribution would dominate.
const PROBE_BELOW: f64 = 40_000.0;
/// Fixed overhead of a call.
const CALL: Duration = Duration::from_nanos(60);

impl CostEstimate {
    pub fn new(guess: f64) -> CostEstimate {
        let guess = if guess.is_finite() { guess.clamp(0.01, 1e12) } else { 1.0 };
        CostEstimate { runs: AtomicU32::new(0), cost: AtomicU32::new((guess as f32).to_bits()) }
    }

    #[inline]
    pub fn cost(&self) -> f64 {
        f64::from(f32::from_bits(self.cost.load(Ordering::Relaxed)))
    }

    /// Whether it has been measured.
    pub fn is_known(&self) -> bool {
        self.runs.load(Ordering::Relaxed) > 0
    }

    /// Discards the measurement of an incomplete run.
    pub fn reset_cost(&self, cost: f64) {
        self.cost.store((cost as f32).to_bits(), Ordering::Relaxed);
    }

    fn measures(runs: u32) -> bool {
        runs < TRIALS || runs.is_multiple_of(EVERY)
    }

    /// Whether the next run should measure iterations on one thread.
    #[inline]
    pub fn probes(&self, count: u64) -> bool {
        let runs = self.runs.load(Ordering::Relaxed);
        runs > 0 && CostEstimate::measures(runs) && self.cost() * (count as f64) < PROBE_BELOW
    }

    /// Runs and measures `work` of `count` iterations on `width` threads. First notifies the launch's caller if that
    /// may take long.
    #[inline]
    pub fn time<T>(&self, count: u64, width: u32, launch: &Launch<'_>, work: impl FnOnce() -> T) -> T {
        // Concurrent launches may miss one count, which is harmless.
        let runs = self.runs.load(Ordering::Relaxed);
        self.runs.store(runs.wrapping_add(1), Ordering::Relaxed);
        if runs < TRIALS || self.cost() * count as f64 >= LONG * f64::from(width) {
            launch.caller.will_block();
        }
        if !CostEstimate::measures(runs) {
            return work();
        }
        let start = Instant::now();
        let end = work();
        self.record_run(runs, count, width, start.elapsed());
        end
    }

    #[cold]
    fn record_run(&self, runs: u32, count: u64, width: u32, time: Duration) {
        let time = time.saturating_sub(CALL).as_nanos() as f64;
        let measured = (time * f64::from(width) / count as f64).clamp(0.01, 1e12);
        let known = self.cost();
        // Cold caches and untouched pages slow early runs down: use the fastest of them.
        let cost = match runs {
            0 => measured,
            _ if runs < TRIALS => known.min(measured),
            _ => (known + measured) / 2.0,
        };
        self.cost.store((cost as f32).to_bits(), Ordering::Relaxed);
    }
}
