//! [`Clock`]: which work of each stream comes before a point, as a vector clock.

use std::collections::HashMap;

/// A stream of one of the devices that are watched together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct StreamId {
    /// The device's number.
    pub device: u32,
    /// The stream's number on its device.
    pub stream: u32,
}

/// For each stream the number of its last piece of work that comes before a point.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Clock(HashMap<StreamId, u64>);

impl Clock {
    /// A stream's work with this number comes before the point.
    pub fn holds(&self, stream: StreamId, number: u64) -> bool {
        self.0.get(&stream).is_some_and(|last| number <= *last)
    }

    /// Work with this number, and all before it on the stream, comes before the point.
    pub fn set(&mut self, stream: StreamId, number: u64) {
        self.0.insert(stream, number);
    }

    /// All that comes before another point comes before this one.
    pub fn join(&mut self, other: &Clock) {
        for (stream, number) in &other.0 {
            let known = self.0.entry(*stream).or_default();
            *known = (*known).max(*number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_predecessor_of_either_point_precedes_their_join() {
        let id = |stream| StreamId { device: 0, stream };
        let other = StreamId { device: 1, stream: 0 };
        let (mut a, mut b) = (Clock::default(), Clock::default());
        a.set(id(0), 3);
        b.set(id(0), 2);
        b.set(id(1), 5);
        assert!(a.holds(id(0), 3) && !a.holds(id(0), 4) && !a.holds(id(1), 1));
        a.join(&b);
        assert!(a.holds(id(0), 3) && a.holds(id(1), 5) && !a.holds(id(1), 6) && !a.holds(other, 1));
    }
}
