//! [`Clock`]: which work of each stream comes before a point, as a vector clock.

use std::collections::HashMap;

/// For each stream the number of its last piece of work that comes before a point.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Clock(HashMap<u32, u64>);

impl Clock {
    /// A stream's work with this number comes before the point.
    pub fn holds(&self, stream: u32, number: u64) -> bool {
        self.0.get(&stream).is_some_and(|last| number <= *last)
    }

    /// Work with this number, and all before it on the stream, comes before the point.
    pub fn set(&mut self, stream: u32, number: u64) {
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
    fn what_comes_before_one_of_two_points_comes_before_their_join() {
        let (mut a, mut b) = (Clock::default(), Clock::default());
        a.set(0, 3);
        b.set(0, 2);
        b.set(1, 5);
        assert!(a.holds(0, 3) && !a.holds(0, 4) && !a.holds(1, 1));
        a.join(&b);
        assert!(a.holds(0, 3) && a.holds(1, 5) && !a.holds(1, 6));
    }
}
