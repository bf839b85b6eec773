//! Branches of a launch that the host controls. Each continues as soon as its condition is known; all run on one
//! thread.
//!
//! A branch is a future that is polled repeatedly. It has no waker: its condition is in memory, or is queried from the
//! driver.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::caller::Caller;
use crate::error::{ErrorKind, Result};
use crate::interruptible_wait::LOOK;

/// Time for which a waiting thread polls without sleeping. Afterwards it sleeps between polls.
const AWAKE: Duration = Duration::from_micros(100);

/// A branch.
pub(super) type Branch<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// Polls a branch to completion. Any progress sets `moved`.
pub(super) fn run(branch: impl Future<Output = Result<()>>, moved: &Cell<bool>, caller: &dyn Caller) -> Result<()> {
    let mut branch = pin!(branch);
    let mut context = Context::from_waker(Waker::noop());
    let (mut since, mut looked) = (Instant::now(), Instant::now());
    loop {
        if let Poll::Ready(end) = branch.as_mut().poll(&mut context) {
            return end;
        }
        if moved.take() {
            since = Instant::now();
        }
        let waited = since.elapsed();
        if waited < AWAKE {
            std::thread::yield_now();
            continue;
        }
        if looked.elapsed() >= LOOK {
            if caller.is_interrupted() {
                return Err(ErrorKind::Interrupted.into());
            }
            looked = Instant::now();
        }
        std::thread::sleep((waited / 16).min(Duration::from_millis(1)));
    }
}

/// Runs branches concurrently, up to the end of all or the first error.
pub(super) async fn all(mut branches: Vec<Branch<'_>>) -> Result<()> {
    let mut left: Vec<Branch<'_>> = Vec::with_capacity(branches.len());
    poll_fn(move |context| {
        for mut branch in branches.drain(..) {
            match branch.as_mut().poll(context) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(error) => return Poll::Ready(error),
                Poll::Pending => left.push(branch),
            }
        }
        std::mem::swap(&mut branches, &mut left);
        if branches.is_empty() { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await
}

/// Yields to the other branches once.
pub(super) async fn pause() {
    let mut paused = false;
    poll_fn(|_| if std::mem::replace(&mut paused, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::caller::Uninterruptible;

    #[test]
    fn branches_alternate_and_the_first_error_stops_all() {
        let said = RefCell::new(Vec::new());
        let branch = |name: &'static str, turns: usize, fails: bool| -> Branch<'_> {
            let said = &said;
            Box::pin(async move {
                for turn in 0..turns {
                    said.borrow_mut().push(format!("{name}{turn}"));
                    pause().await;
                }
                if fails { Err(ErrorKind::Interrupted.into()) } else { Ok(()) }
            })
        };
        let moved = Cell::new(false);
        run(all(vec![branch("a", 2, false), branch("b", 3, false)]), &moved, &Uninterruptible).unwrap();
        assert_eq!(said.take().join(" "), "a0 b0 a1 b1 b2");
        run(all(vec![branch("a", 9, false), branch("b", 1, true)]), &moved, &Uninterruptible).unwrap_err();
        assert_eq!(said.take().join(" "), "a0 b0 a1");
    }
}
