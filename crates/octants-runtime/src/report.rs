//! Messages from compiled code to the user: printed text and failed assertions.
//!
//! Both may come from any thread that runs a task. Text keeps its order and reaches the sink in large pieces. Of a
//! stream's failures, the first one is kept until it is reported.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::race::Race;
use crate::renewable::Renewable;

/// The destination of printed text. Called from any thread that launches or runs tasks, so it must not wait for
/// anything that a launching thread may hold (such as an interpreter lock).
pub type TextSink = Arc<dyn Fn(&str) + Send + Sync>;

/// Maximum amount of text that is held back.
const FLUSH_BYTES: usize = 8 << 10;
/// Maximum time that text is held back while more is being printed.
const FLUSH_AFTER: Duration = Duration::from_millis(20);

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data behind these locks stays valid if a thread panics while it holds one.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The program's printed text.
pub struct Printer {
    pending: AtomicBool,
    text: Renewable<Text>,
    flush_after: Duration,
    sink: TextSink,
}

#[derive(Default)]
struct Text {
    buffer: String,
    /// The sites that have reported something since the last flush.
    reported: HashSet<(usize, u32)>,
    since: Option<Instant>,
}

impl Printer {
    /// A printer that writes to `sink`.
    pub fn new(sink: TextSink) -> Printer {
        let text = Renewable::default();
        Printer { pending: AtomicBool::new(false), text, flush_after: FLUSH_AFTER, sink }
    }

    /// Adds text as a whole: texts of other threads come before or after it.
    pub fn print(&self, text: &str) {
        let mut t = lock(&self.text);
        t.buffer.push_str(text);
        self.pending.store(true, Ordering::Release);
        let since = *t.since.get_or_insert_with(Instant::now);
        if t.buffer.len() >= FLUSH_BYTES || since.elapsed() >= self.flush_after {
            self.write_out(&mut t);
        }
    }

    /// Whether a site reports for the first time since the last flush, which ends each launch that is waited for.
    pub(crate) fn is_first(&self, site: (usize, u32)) -> bool {
        lock(&self.text).reported.insert(site)
    }

    /// Hands all text to the sink.
    #[inline]
    pub fn flush(&self) {
        if self.pending.load(Ordering::Acquire) {
            let mut text = lock(&self.text);
            self.pending.store(false, Ordering::Release);
            text.reported.clear();
            self.write_out(&mut text);
        }
    }

    /// # Safety
    /// As [`Renewable::renew_if_held`].
    pub(crate) unsafe fn renew_after_fork(&self) {
        // SAFETY: the contract above.
        if unsafe { self.text.renew_if_held() } {
            self.pending.store(false, Ordering::Release);
        }
    }

    #[cold]
    fn write_out(&self, t: &mut Text) {
        t.since = None;
        if !t.buffer.is_empty() {
            (self.sink)(&t.buffer);
            t.buffer.clear();
        }
    }
}

impl fmt::Debug for Printer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Printer").field("pending", &self.pending).finish_non_exhaustive()
    }
}

/// A failed assertion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Name of the kernel.
    pub kernel: String,
    /// The rendered message; empty for an assertion without one.
    pub message: String,
    /// `path:line`.
    pub location: String,
    /// The step of a captured graph, counted from 0.
    pub step: Option<u32>,
    /// Number of the stream; zero for the default stream.
    pub stream: u32,
    /// The race, if the failure is a race and not an assertion.
    pub race: Option<Box<Race>>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = if self.message.is_empty() { "assertion failed" } else { &self.message };
        write!(f, "{message}\n  in kernel `{}`", self.kernel)?;
        if let Some(step) = self.step {
            write!(f, " (step {step} of a captured graph)")?;
        }
        if !self.location.is_empty() {
            write!(f, " at {}", self.location)?;
        }
        if self.stream == 0 { Ok(()) } else { write!(f, ", on stream {}", self.stream) }
    }
}

/// The failures of a stream: the first one stays until it is taken.
#[derive(Debug, Default)]
pub struct Failures {
    any: AtomicBool,
    first: Renewable<Option<Failure>>,
}

impl Failures {
    /// True when a failure waits to be reported.
    #[inline]
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Keeps a failure unless there is one already; `make` is called only if the failure is kept.
    pub fn record(&self, make: impl FnOnce() -> Failure) {
        if self.any() {
            return;
        }
        let mut first = lock(&self.first);
        if first.is_none() {
            *first = Some(make());
            self.any.store(true, Ordering::Release);
        }
    }

    /// Drops records of the parent process, including incomplete ones.
    ///
    /// # Safety
    /// As [`Renewable::renew_if_held`].
    pub(crate) unsafe fn renew_after_fork(&self) {
        // SAFETY: the contract above.
        unsafe { self.first.renew_if_held() };
        drop(self.take());
    }

    /// Takes the failure, so that it is reported once.
    pub fn take(&self) -> Option<Failure> {
        let mut first = lock(&self.first);
        self.any.store(false, Ordering::Release);
        first.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_text_reaches_the_sink_in_order_and_once() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = seen.clone();
        let printer = Printer::new(Arc::new(move |t: &str| lock(&sink).push(t.to_string())));
        let mut printer = Printer { flush_after: Duration::MAX, ..printer };
        printer.print("a\n");
        printer.print("b\n");
        assert!(lock(&seen).is_empty());
        printer.flush();
        printer.flush();
        assert_eq!(*lock(&seen), ["a\nb\n"]);
        assert!(printer.is_first((1, 0)) && !printer.is_first((1, 0)) && printer.is_first((2, 0)));
        printer.print(&"x".repeat(FLUSH_BYTES));
        assert!(!printer.is_first((1, 0)), "handing on what is long ends no launch");
        assert_eq!(lock(&seen).len(), 2);
        printer.flush_after = Duration::ZERO;
        printer.print("late\n");
        assert_eq!(lock(&seen).last().unwrap(), "late\n");
    }

    #[test]
    fn the_first_failure_is_kept_and_taken_once() {
        let failures = Failures::default();
        let make = |n: &str| Failure {
            kernel: n.into(),
            message: String::new(),
            location: "f.py:3".into(),
            step: None,
            stream: 0,
            race: None,
        };
        failures.record(|| make("first"));
        failures.record(|| make("second"));
        assert!(failures.any());
        let taken = failures.take().unwrap();
        assert_eq!(taken.to_string(), "assertion failed\n  in kernel `first` at f.py:3");
        assert!(!failures.any());
        assert_eq!(failures.take(), None);
    }
}
