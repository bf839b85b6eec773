//! [`poll`]: a wait by polling.

use std::time::{Duration, Instant};

use crate::error::Result;

/// Polls `done` until it returns true or `time` has elapsed, with increasing pauses; returns whether it is done.
pub(crate) fn poll(time: Duration, mut done: impl FnMut() -> Result<bool>) -> Result<bool> {
    let start = Instant::now();
    loop {
        if done()? {
            return Ok(true);
        }
        let waited = start.elapsed();
        if waited >= time {
            return Ok(false);
        }
        if waited < Duration::from_micros(100) {
            std::thread::yield_now();
        } else {
            std::thread::sleep((waited / 16).min(Duration::from_millis(1)));
        }
    }
}
