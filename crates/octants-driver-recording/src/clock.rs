//! [`Clock`]: a vector clock: the progress of all streams that a stream is ordered after.

use std::collections::BTreeMap;

/// For each stream the number of its pieces of work that are known to be done before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Clock(BTreeMap<u64, u64>);

/// A piece of work: its stream and number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The stream.
    pub stream: u64,
    /// Counts from one.
    pub tick: u64,
}

impl Clock {
    /// One more piece of work on a stream that has this clock.
    pub fn tick(&mut self, stream: u64) -> Moment {
        let tick = self.0.entry(stream).or_default();
        *tick += 1;
        Moment { stream, tick: *tick }
    }

    /// Orders later work after everything in `other`.
    pub fn join(&mut self, other: &Clock) {
        for (&stream, &tick) in &other.0 {
            let mine = self.0.entry(stream).or_default();
            *mine = tick.max(*mine);
        }
    }

    /// Whether that piece of work precedes the clock.
    pub fn knows(&self, moment: Moment) -> bool {
        self.0.get(&moment.stream).is_some_and(|&tick| tick >= moment.tick)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_joins_order_streams() {
        let (mut a, mut b) = (Clock::default(), Clock::default());
        let first = a.tick(1);
        let second = a.tick(1);
        assert!(a.knows(first) && a.knows(second) && !b.knows(first));
        let event = a.clone();
        let third = a.tick(1);
        b.join(&event);
        assert!(b.knows(second) && !b.knows(third));
    }
}
