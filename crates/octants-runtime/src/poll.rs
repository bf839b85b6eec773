//! [`poll`]: a wait by polling.

use std::time::{Duration, Instant};

use crate::error::Result;

/// Asks `done` until it says so, or `time` is over; whether it is done. The longer it takes, the longer the pauses.
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
