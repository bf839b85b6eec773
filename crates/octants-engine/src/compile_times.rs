//! Compile times: one record per compilation, divided into steps that belong to a few phases.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of records; the oldest are dropped first.
const MOST_RECORDS: usize = 10_000;

/// A stop on the way from source to code that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Source text to syntax trees.
    Parse,
    /// Syntax trees to IR, with all that is computed at compile time.
    Lower,
    /// Passes over the IR.
    Passes,
    /// IR to machine code.
    Codegen,
    /// Making machine code callable: the linker's work, or that of a device's driver.
    Link,
    /// Looking for the code on disk and storing it there.
    Load,
}

impl Phase {
    /// All of them, in order.
    pub const ALL: [Phase; 6] = [Phase::Parse, Phase::Lower, Phase::Passes, Phase::Codegen, Phase::Link, Phase::Load];

    /// Name for display.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Parse => "parse",
            Phase::Lower => "lower",
            Phase::Passes => "passes",
            Phase::Codegen => "codegen",
            Phase::Link => "link",
            Phase::Load => "load",
        }
    }
}

/// A part of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The phase.
    pub phase: Phase,
    /// The step's name; empty if the phase has one step.
    pub name: &'static str,
    /// Time from the begin of the compilation.
    pub begin: Duration,
    /// How long it took.
    pub elapsed: Duration,
}

/// One specialization of a kernel that was compiled, or found on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compilation {
    /// The kernel's name.
    pub kernel: String,
    /// Time from the begin of the session.
    pub begin: Duration,
    /// Its code was found on disk.
    pub kept: bool,
    /// In order.
    pub steps: Vec<Step>,
}

/// Measures the steps of one compilation.
#[derive(Debug, Clone)]
pub struct Stopwatch {
    start: Instant,
    last: Duration,
    steps: Vec<Step>,
}

impl Default for Stopwatch {
    fn default() -> Self {
        Stopwatch { start: Instant::now(), last: Duration::ZERO, steps: Vec::new() }
    }
}

impl Stopwatch {
    /// A step has ended that began when the one before did.
    pub fn lap(&mut self, phase: Phase, name: &'static str) {
        let (begin, now) = (self.last, self.start.elapsed());
        self.last = now;
        self.steps.push(Step { phase, name, begin, elapsed: now - begin });
    }

    /// As [`Stopwatch::lap`], for two steps. `first` is the total time of the first.
    pub fn lap_two(&mut self, first: (Phase, Duration), second: Phase) {
        let (begin, now) = (self.last, self.start.elapsed());
        self.last = now;
        let middle = now.min(begin + first.1);
        self.steps.push(Step { phase: first.0, name: "", begin, elapsed: middle - begin });
        self.steps.push(Step { phase: second, name: "", begin: middle, elapsed: now - middle });
    }

    /// Ends an interval that belongs to no step.
    pub fn resume(&mut self) {
        self.last = self.start.elapsed();
    }
}

/// The compilations of a session.
#[derive(Debug)]
pub(crate) struct CompileLog {
    start: Instant,
    records: Mutex<VecDeque<Compilation>>,
}

impl Default for CompileLog {
    fn default() -> Self {
        CompileLog { start: Instant::now(), records: Mutex::default() }
    }
}

impl CompileLog {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Compilation>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, kernel: &str, kept: bool, watch: Stopwatch) {
        let begin = watch.start.saturating_duration_since(self.start);
        let mut records = self.lock();
        if records.len() == MOST_RECORDS {
            records.pop_front();
        }
        records.push_back(Compilation { kernel: kernel.to_string(), begin, kept, steps: watch.steps });
    }

    pub fn all(&self) -> Vec<Compilation> {
        self.lock().iter().cloned().collect()
    }

    pub fn clear(&self) {
        self.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_consecutive() {
        let mut watch = Stopwatch::default();
        std::thread::sleep(Duration::from_millis(5));
        watch.lap_two((Phase::Parse, Duration::from_millis(2)), Phase::Lower);
        watch.lap(Phase::Passes, "one");
        watch.resume();
        watch.lap(Phase::Passes, "two");
        let steps = watch.steps;
        assert_eq!(steps.iter().map(|s| s.phase.name()).collect::<Vec<_>>(), ["parse", "lower", "passes", "passes"]);
        assert_eq!(steps[0].elapsed, Duration::from_millis(2));
        assert!(steps[1].elapsed >= Duration::from_millis(3));
        assert!(steps.windows(2).all(|s| s[0].begin + s[0].elapsed <= s[1].begin), "{steps:?}");
    }

    #[test]
    fn the_oldest_records_are_dropped() {
        let log = CompileLog::default();
        for n in 0..MOST_RECORDS + 2 {
            log.add(&format!("k{n}"), false, Stopwatch::default());
        }
        let all = log.all();
        assert_eq!((all.len(), all[0].kernel.as_str()), (MOST_RECORDS, "k2"));
        log.clear();
        assert!(log.all().is_empty());
    }
}
