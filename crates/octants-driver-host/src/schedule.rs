//! [`Schedule`]: a seeded adversarial schedule of queued work, within the semantics of streams.
//!
//! Most work is deferred until something waits for it. Then pieces run in an order that is shuffled across queues.
//! Code that waits for too little, or relies on an order that no event enforces, fails under some seed, and fails
//! again under the same seed.

/// A seeded chooser.
pub struct Schedule {
    state: u64,
    /// How many of 16 pushes do some work afterwards.
    eagerness: u64,
}

impl Schedule {
    /// The schedule of a seed. Some seeds defer all work until something waits for it.
    pub fn new(seed: u64) -> Schedule {
        let mut schedule =
            Schedule { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1, eagerness: 0 };
        schedule.eagerness = schedule.next() % 8;
        schedule
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Pieces of work to do after one was queued.
    pub fn steps_after_push(&mut self) -> u64 {
        let r = self.next();
        if r % 16 < self.eagerness { 1 + (r >> 8) % 4 } else { 0 }
    }

    /// Cuts `count` iterations into a few pieces whose sizes are multiples of `unit`, in execution order.
    pub fn cut(&mut self, count: u64, unit: u64) -> Vec<(u64, u64)> {
        let length = count.div_ceil(1 + self.next() % 4).next_multiple_of(unit);
        let mut pieces: Vec<_> =
            (0..count.div_ceil(length)).map(|i| (i * length, ((i + 1) * length).min(count))).collect();
        for i in (1..pieces.len()).rev() {
            pieces.swap(i, self.pick(i + 1));
        }
        pieces
    }

    /// Which of `count` ready queues, at least one, is served next.
    pub fn pick(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_all_iterations_in_any_order() {
        let mut s = Schedule::new(5);
        let mut seen = std::collections::BTreeSet::new();
        for (count, unit) in [(2, 1), (100, 1), (100, 32), (64, 32), (1 << 40, 7)] {
            for _ in 0..20 {
                let pieces = s.cut(count, unit);
                let mut sorted = pieces.clone();
                sorted.sort_unstable();
                assert_eq!((sorted[0].0, sorted[sorted.len() - 1].1), (0, count));
                assert!(sorted.windows(2).all(|w| w[0].1 == w[1].0 && w[1].0 % unit == 0));
                seen.insert((pieces.len(), pieces == sorted));
            }
        }
        assert!(seen.len() > 4, "{seen:?}");
    }

    #[test]
    fn a_seed_determines_the_schedule() {
        let run = |seed| {
            let mut s = Schedule::new(seed);
            (0..50).map(|_| (s.steps_after_push(), s.pick(5))).collect::<Vec<_>>()
        };
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
        assert!((0..64).any(|seed| run(seed).iter().all(|(steps, _)| *steps == 0)), "some seeds leave all work");
    }
}
