//! Decides how a parallel task is divided: the number of threads, and the number of iterations in a chunk.

use octants_artifact::{ParallelMeta, ScatterCopies};

/// Work below this many nanoseconds is not worth a second thread.
const INLINE_BELOW: f64 = 8_000.0;
/// Each thread should get at least this many nanoseconds of work.
const PER_THREAD: f64 = 4_000.0;
/// A chunk should take at least this many nanoseconds.
const PER_CHUNK: f64 = 1_000.0;
/// Minimum and maximum number of chunks per thread. Threads that finish early steal from others.
const CHUNKS_PER_THREAD: (u64, u64) = (8, 64);
/// Chunks that take more nanoseconds are split further, up to the maximum number.
const LONG_CHUNK: f64 = 20_000.0;
/// Nanoseconds of a contended atomic sum. Work that was measured to take longer is dominated by other costs.
const ATOMIC_SUM: f64 = 40.0;
/// Speed of a thread that adds to a copy, relative to one whose sums are atomic.
const LEAST_SHARE: u64 = 4;
/// Chunks begin at multiples of this many iterations, so that two threads rarely write the same cache line.
const GRAIN: u64 = 64;

/// How to run a number of iterations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// All on the caller.
    Inline,
    /// On `width` threads, the caller among them.
    Split {
        /// Threads.
        width: u32,
        /// Iterations per chunk; the last may be shorter.
        chunk: u64,
        /// Each thread has private copies of the memory that it scatters to.
        copies: bool,
    },
}

/// The inputs that do not depend on the number of iterations.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    threads: u32,
    /// One thread runs all, in order.
    serialize: bool,
    block_dim: Option<u32>,
    grain: u64,
    inner: Option<u64>,
    interleave_factor: u64,
    scatter: Option<ScatterCopies>,
}

impl Shape {
    /// The shape of a task on a pool of `threads` threads.
    pub fn new(meta: &ParallelMeta, threads: u32) -> Shape {
        let threads = if meta.serialize { 1 } else { threads.min(meta.num_threads.unwrap_or(u32::MAX)).max(1) };
        let grain = meta.block_dim.map_or(GRAIN, |b| u64::from(b).max(1));
        let (serialize, block_dim) = (meta.serialize || meta.num_threads == Some(1), meta.block_dim);
        let inner = meta.inner_extent.filter(|&n| n > 1);
        let interleave_factor = u64::from(meta.interleave_factor).max(1);
        Shape { threads, serialize, block_dim, grain, inner, interleave_factor, scatter: meta.scatter.clone() }
    }

    /// Cuts of the loop fall on multiples of this; `None` if the loop must not be cut.
    pub fn unit(&self) -> Option<u64> {
        (!self.serialize).then(|| u64::from(self.block_dim.unwrap_or(1)).max(1))
    }

    /// The grain, in iterations of `cost` nanoseconds, of pieces that one thread runs in turn. Smaller if iterations
    /// are expensive.
    pub fn together(&self, cost: f64) -> u64 {
        let grain = self.grain.max(1).saturating_mul(self.interleave_factor);
        if grain as f64 * cost < LONG_CHUNK * 100.0 { grain } else { self.interleave_factor }
    }

    /// How to run `count` iterations that take `cost` nanoseconds each on one thread, in a launch with these argument
    /// slots.
    #[inline]
    pub fn plan(&self, count: u64, cost: f64, args: &[u64]) -> Plan {
        if self.threads == 1 || count as f64 * cost < INLINE_BELOW {
            Plan::Inline
        } else {
            self.split(count, cost, args)
        }
    }

    fn split(&self, count: u64, cost: f64, args: &[u64]) -> Plan {
        let worth = (count as f64 * cost / PER_THREAD) as u64;
        // A quarter of the interleave factor costs as much as one iteration.
        let few = (self.interleave_factor / 4).max(1);
        let width = u64::from(self.threads).min(worth).min(count.div_ceil(few));
        if width < 2 {
            return Plan::Inline;
        }
        let copies = self.split_takes_copies(count, cost, width, args);
        let least = (PER_CHUNK / cost).ceil() as u64;
        let (fewest, most) = CHUNKS_PER_THREAD;
        let time = count as f64 * cost / width as f64;
        let chunks = width * ((time / LONG_CHUNK) as u64).clamp(fewest, most);
        let mut chunk = count.div_ceil(chunks).max(least).max(1);
        // If iterations are so expensive that whole grains would leave threads idle, ignore the grain.
        let share = count.div_ceil(width).max(few);
        let rows = self.inner.map(|n| n * self.grain.div_ceil(n));
        let even = [rows, Some(self.grain)].into_iter().flatten().filter(|unit| *unit <= chunk * 4);
        // Keep interleaved groups whole, or else the groups of their remainder.
        let together = [self.interleave_factor, few];
        if let Some(unit) = even.chain(together).find(|unit| *unit <= share) {
            chunk = chunk.next_multiple_of(unit);
        }
        // Numbers of chunks fit in 32 bits.
        let chunk = chunk.min(share).max(count.div_ceil(u64::from(u32::MAX)));
        Plan::Split { width: width as u32, chunk, copies }
    }

    /// Whether this number of threads uses scatter privatization.
    fn split_takes_copies(&self, count: u64, cost: f64, width: u64, args: &[u64]) -> bool {
        let copied = self.scatter.as_ref().and_then(|s| Some((s, s.bytes(args)?)));
        let Some((copies, bytes)) = copied else { return false };
        // The most threads for which private copies pay.
        let with_copies = count / copies.least_iterations(bytes).max(1);
        let mostly_adds = copies.updates as f64 * ATOMIC_SUM > cost;
        with_copies >= width || mostly_adds && with_copies * LEAST_SHARE >= width
    }

    /// Bytes of a private copy of the memory that the task scatters to.
    pub fn copied_room(&self, args: &[u64]) -> Option<u64> {
        self.scatter.as_ref().and_then(|s| Some(s.room(s.bytes(args)?)))
    }

    /// Calls `add` for each region of the copies: with its number, its offset in a copy, and the range of its groups in
    /// part `part` of `parts`.
    pub fn part_of_copies(&self, (part, parts): (u64, u64), args: &[u64], mut add: impl FnMut(usize, u64, [u64; 2])) {
        let Some(copies) = &self.scatter else { return };
        copies.for_each_region(args, |number, groups, offset| {
            let range = [part, part + 1].map(|p| groups * p / parts);
            if range[0] < range[1] {
                add(number, offset, range);
            }
        });
    }

    /// Whether a single-threaded call of this many iterations uses a private copy.
    pub fn takes_copies(&self, iterations: u64, args: &[u64]) -> bool {
        let pays = |s: &ScatterCopies| s.bytes(args).is_some_and(|bytes| iterations >= s.least_iterations(bytes));
        self.scatter.as_ref().is_some_and(pays)
    }
}

#[cfg(test)]
mod tests {
    use octants_artifact::CopiedRegion;

    use super::*;

    fn meta() -> ParallelMeta {
        ParallelMeta { cost_per_iteration: 1.0, ..ParallelMeta::default() }
    }

    #[test]
    fn small_loops_stay_on_the_caller() {
        let shape = Shape::new(&meta(), 8);
        assert_eq!(shape.plan(0, 1.0, &[]), Plan::Inline);
        assert_eq!(shape.plan(1000, 1.0, &[]), Plan::Inline);
        assert!(matches!(shape.plan(1_000_000, 1.0, &[]), Plan::Split { width: 8, .. }));
        assert!(matches!(shape.plan(9_000, 1.0, &[]), Plan::Split { width: 2, .. }));
        assert!(matches!(Shape::new(&meta(), 8).plan(3, 1e6, &[]), Plan::Split { width: 3, chunk: 1, .. }));
        assert_eq!(Shape::new(&meta(), 1).plan(1 << 40, 1e6, &[]), Plan::Inline);
        assert_eq!(Shape::new(&ParallelMeta { serialize: true, ..meta() }, 8).plan(1 << 40, 1e6, &[]), Plan::Inline);
        let few = Shape::new(&ParallelMeta { num_threads: Some(3), ..meta() }, 8);
        assert!(matches!(few.plan(1 << 30, 1.0, &[]), Plan::Split { width: 3, .. }));
    }

    #[test]
    fn chunks_are_multiples_of_rows_or_grains() {
        let Plan::Split { chunk, .. } = Shape::new(&meta(), 2).plan(1_000_003, 1.0, &[]) else { panic!("inline") };
        assert_eq!(chunk % GRAIN, 0);
        let rows = ParallelMeta { inner_extent: Some(1000), ..meta() };
        let Plan::Split { chunk, .. } = Shape::new(&rows, 2).plan(1_000_000, 1.0, &[]) else { panic!("inline") };
        assert_eq!(chunk % 1000, 0);
        // One row is the whole loop: do not give it to one thread.
        let row = ParallelMeta { inner_extent: Some(1_000_000), ..meta() };
        let Plan::Split { chunk, .. } = Shape::new(&row, 2).plan(1_000_000, 1.0, &[]) else { panic!("inline") };
        assert!(chunk <= 500_000);
        let blocks = ParallelMeta { block_dim: Some(96), ..meta() };
        let Plan::Split { chunk, .. } = Shape::new(&blocks, 2).plan(1_000_000, 1.0, &[]) else { panic!("inline") };
        assert_eq!(chunk % 96, 0);
    }

    #[test]
    fn chunks_are_multiples_of_the_interleave_factor() {
        let shape = Shape::new(&ParallelMeta { interleave_factor: 32, ..meta() }, 16);
        let split = |count| match shape.plan(count, 1e6, &[]) {
            Plan::Split { width, chunk, .. } => (width, chunk),
            Plan::Inline => (1, count),
        };
        assert_eq!((split(1024), split(1000), split(300)), ((16, 32), (16, 32), (16, 8)));
        assert_eq!((split(40), split(9), split(8)), ((5, 8), (2, 8), (1, 8)));
    }

    #[test]
    fn long_loops_are_cut_into_more_chunks() {
        let chunks = |count: u64| {
            let Plan::Split { chunk, .. } = Shape::new(&meta(), 8).plan(count, 1.0, &[]) else { panic!("inline") };
            count.div_ceil(chunk)
        };
        assert_eq!((chunks(1 << 16), chunks(1 << 22), chunks(1 << 30)), (64, 8 * 26, 8 * 64));
    }

    #[test]
    fn every_thread_gets_work_and_chunk_counts_fit_in_32_bits() {
        for (cost, count) in [(0.01, 1u64 << 62), (1.0, 1 << 50), (1e9, 65), (100.0, 100_000), (1e30, 1 << 20)] {
            if let Plan::Split { width, chunk, .. } = Shape::new(&meta(), 64).plan(count, cost, &[]) {
                let chunks = count.div_ceil(chunk);
                assert!(chunks >= u64::from(width) / 2 && chunks <= u64::from(u32::MAX), "{cost} {count}: {chunks}");
            }
        }
    }

    #[test]
    fn threads_get_private_copies_when_they_add_enough() {
        let of = |bytes, updates| {
            let regions = vec![CopiedRegion { bytes, group: 64, ..CopiedRegion::default() }];
            let scatter = Some(ScatterCopies { regions, updates });
            Shape::new(&ParallelMeta { scatter, ..meta() }, 4)
        };
        let plan = |shape: &Shape, count: u64, cost| match shape.plan(count, cost, &[]) {
            Plan::Split { width, chunk, copies } => (width, count.div_ceil(chunk), copies),
            Plan::Inline => (1, 1, shape.takes_copies(count, &[])),
        };
        // How the work is cut does not depend on the copies.
        assert_eq!(plan(&of(64, 1), 1 << 19, 1.0), (4, 32, true));
        assert_eq!(plan(&of(1 << 20, 1), 1 << 20, 1.0), (4, 52, true));
        // More copies than needed still pay if the threads mostly add.
        assert_eq!(plan(&of(4 << 20, 1), 1 << 18, 1.0), (4, 32, true));
        assert_eq!(plan(&of(4 << 20, 1), 1 << 18, 50.0), (4, 256, false));
        // If even those do not pay off, there are no copies.
        assert_eq!(plan(&of(4 << 20, 1), 1 << 16, 1.0), (4, 32, false));
        assert_eq!(plan(&of(2 * ScatterCopies::MOST_BYTES, 100), 1 << 20, 1.0), (4, 52, false));
        assert_eq!(plan(&of(64, 1), 1, 1.0), (1, 1, false));
    }

    #[test]
    fn the_parts_of_private_copies_cover_each_group() {
        let region = |bytes| CopiedRegion { bytes, group: 64, ..CopiedRegion::default() };
        let scatter = Some(ScatterCopies { regions: vec![region(1000), region(64)], updates: 1 });
        let shape = Shape::new(&ParallelMeta { scatter, ..meta() }, 4);
        let mut added = Vec::new();
        (0..3).for_each(|part| shape.part_of_copies((part, 3), &[], |n, offset, range| added.push((n, offset, range))));
        assert_eq!(added, [(0, 0, [0, 5]), (0, 0, [5, 10]), (0, 0, [10, 16]), (1, 1024, [0, 1])]);
    }
}
