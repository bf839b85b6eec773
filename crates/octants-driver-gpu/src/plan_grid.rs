//! Launch geometry: the number and size of the blocks that run a task, and their parameter.
//!
//! The code of a parallel task is a grid-stride loop, so any grid computes the right result. A grid is as large as the
//! work, up to a number of blocks that fills the device several times over. Beyond that, each thread runs a few
//! iterations. If the number of iterations is unknown, the grid fills the device once.

use std::mem::MaybeUninit;

use octants_artifact::DeviceContext;
use octants_runtime::Launch;

/// Default block sizes, in order of preference. A multiprocessor has four schedulers with separate registers. Blocks
/// with other numbers of warps load them unequally.
const PREFERRED_BLOCKS: [u32; 2] = [256, 128];
/// Minimum number of blocks per multiprocessor, if smaller blocks allow it. If iterations differ in length, this
/// balances the load.
pub const LEAST_EACH: u64 = 2;
/// Up to this many waves of resident blocks, a thread runs one iteration.
pub const LEAST_WAVES: u64 = 8;
/// Maximum number of waves. More blocks cost more to start. Fewer leave multiprocessors idle at the end when iterations
/// differ in length.
pub const MOST_WAVES: u64 = 32;
/// Minimum work of a thread to amortize its start, in nanoseconds of the CPU estimate. Measured with memory-bound
/// loops, which are fastest with eight short iterations per thread, and a compute-bound one, which is fastest with two.
const WORTH_A_THREAD: f32 = 16.0;

/// Words of a [`DeviceContext`].
const CONTEXT_WORDS: usize = DeviceContext::BYTES as usize / 8;
/// Words of the largest parameter.
const WORDS: usize = CONTEXT_WORDS + DeviceContext::MOST_ARGUMENT_BYTES as usize / 8;

/// The grids of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GridPlan {
    /// Threads of a block.
    pub block: u32,
    /// The program sets the block size.
    pub fixed: bool,
    /// Resident blocks per multiprocessor.
    pub resident: u32,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Threads of a warp.
    pub warp: u32,
    /// At most as many blocks as are resident at the same time.
    pub once: bool,
    /// As many blocks as it takes for each thread to run one iteration.
    pub single: bool,
    /// Iterations that a thread runs at a time.
    pub lanes: u32,
    /// Target number of such groups per thread, if there are enough iterations.
    pub run: u64,
}

/// Chooses the block size, at most `most`, with the highest occupancy. Also returns the number of resident blocks per
/// multiprocessor, as `fits` reports it for a size.
pub fn best_block<E>(most: u32, warp: u32, fits: impl Fn(u32) -> Result<u32, E>) -> Result<(u32, u32), E> {
    let mut best: Option<(u32, u32)> = None;
    for block in PREFERRED_BLOCKS.into_iter().filter(|b| *b <= most) {
        let resident = fits(block)?;
        if best.is_none_or(|(known, fit)| block * resident > known * fit) {
            best = Some((block, resident));
        }
    }
    match best {
        Some(best) => Ok(best),
        None => {
            let block = (most / warp * warp).max(1);
            Ok((block, fits(block)?))
        }
    }
}

/// The number of iterations per thread, for this many iterations of this cost.
pub fn worthwhile_run(price: f32, lanes: u32) -> u64 {
    (WORTH_A_THREAD / (price * lanes as f32)).clamp(2.0, 8.0) as u64
}

impl GridPlan {
    /// Maximum number of resident threads on the device.
    pub fn max_resident_threads(&self) -> u64 {
        u64::from(self.multiprocessors) * u64::from(self.resident) * u64::from(self.block)
    }

    /// Number of blocks and block size for a number of iterations; `None` for no iterations.
    #[inline]
    pub fn plan(&self, iterations: Option<u64>) -> Option<(u32, u32)> {
        let fill = u64::from(self.multiprocessors) * u64::from(self.resident);
        let Some(n) = iterations else { return Some((fill as u32, self.block)) };
        if n == 0 {
            return None;
        }
        let n = n.div_ceil(u64::from(self.lanes));
        let mut block = self.block;
        if !self.fixed {
            // Spread few iterations over all multiprocessors. Fewer than a block need only that many threads.
            while block > self.warp && n.div_ceil(u64::from(block)) < LEAST_EACH * u64::from(self.multiprocessors) {
                block = (block / 2).next_multiple_of(self.warp);
            }
            if n < u64::from(block) {
                block = (n as u32).next_multiple_of(self.warp);
            }
        }
        let each = n.div_ceil(u64::from(block));
        let blocks = match (self.single, self.once) {
            (true, _) => each,
            (false, true) => each.min(fill),
            (false, false) => {
                let most = n.div_ceil(u64::from(block) * self.run).clamp(fill * LEAST_WAVES, fill * MOST_WAVES);
                each.min(most)
            }
        };
        // The code counts threads in 31 bits.
        Some((blocks.min(i32::MAX as u64 / u64::from(block)) as u32, block))
    }
}

/// A launch's only parameter, as the device reads it: the words, and how many of them are used.
#[derive(Debug)]
pub struct Parameter([MaybeUninit<u64>; WORDS], usize);

impl Parameter {
    /// The context of a launch's task, followed by its argument slots, or by their address if they are too many.
    /// `of_loop` as in [`DeviceContext::of_loop`].
    #[inline]
    pub fn new(launch: &Launch<'_>, task: u32, number: u64, of_loop: u64) -> Parameter {
        let context = DeviceContext {
            frame: launch.frame.0,
            result: launch.result.0,
            channel: launch.channel.0,
            seed: launch.seed,
            launch: number,
            kernel: launch.kernel_id,
            task: u64::from(task),
            of_loop,
        };
        match launch.args_at {
            None => Parameter::of(&context, launch.args),
            Some(at) => Parameter::of(&context, &[at.0]),
        }
    }

    #[inline]
    fn of(context: &DeviceContext, args: &[u64]) -> Parameter {
        let DeviceContext { frame, result, channel, seed, launch, kernel, task, of_loop } = *context;
        let head = [frame, result, channel, seed, launch, kernel, task, of_loop];
        let mut words = [const { MaybeUninit::uninit() }; WORDS];
        debug_assert!(args.len() <= WORDS - CONTEXT_WORDS, "compiler bug: too many argument slots for a launch");
        for (to, from) in words.iter_mut().zip(head.iter().chain(args)) {
            to.write(*from);
        }
        Parameter(words, head.len() + args.len())
    }

    /// The arguments that the device reads.
    pub fn words(&self) -> &[u64] {
        // SAFETY: that many words were written.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.1) }
    }

    /// Its address.
    #[inline]
    pub fn address(&mut self) -> *mut std::ffi::c_void {
        self.0.as_mut_ptr().cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: GridPlan = GridPlan {
        block: 256,
        fixed: false,
        resident: 8,
        multiprocessors: 132,
        warp: 32,
        once: false,
        single: false,
        lanes: 1,
        run: 8,
    };
    const FILL: u32 = 132 * 8;

    #[test]
    fn blocks_load_all_warp_schedulers_equally() {
        // Registers per thread, of a multiprocessor with 65,536 registers and room for 2,048 threads.
        let of = |registers: u32| {
            best_block::<()>(1024, 32, |block| Ok((65_536 / (registers * block)).min(2_048 / block))).ok()
        };
        assert_eq!(of(32), Some((256, 8)));
        assert_eq!(of(96), Some((128, 5)), "not 160, of which four would fit");
        assert_eq!(of(128), Some((256, 2)));
        assert_eq!(of(255), Some((256, 1)));
        assert_eq!(best_block::<()>(100, 32, |_| Ok(1)), Ok((96, 1)));
        assert_eq!(best_block(1024, 32, |_| Err("lost")), Err("lost"));
    }

    #[test]
    fn the_grid_grows_with_the_work_up_to_a_limit() {
        assert_eq!(PLAN.max_resident_threads(), u64::from(FILL) * 256);
        assert_eq!(PLAN.plan(Some(1 << 17)), Some((512, 256)));
        assert_eq!(PLAN.plan(Some((1 << 17) + 1)), Some((513, 256)));
        assert_eq!(PLAN.plan(Some(1 << 40)), Some((FILL * MOST_WAVES as u32, 256)));
        assert_eq!(PLAN.plan(None), Some((FILL, 256)));
        assert_eq!(PLAN.plan(Some(u64::MAX)), Some((FILL * MOST_WAVES as u32, 256)));
    }

    #[test]
    fn iterations_per_thread_grow_before_the_grid_does() {
        let least = FILL * LEAST_WAVES as u32;
        assert_eq!(PLAN.plan(Some(1 << 23)), Some((least, 256)));
        assert_eq!(PLAN.plan(Some(1 << 26)), Some((1 << 15, 256)));
        assert_eq!(GridPlan { run: 2, ..PLAN }.plan(Some(1 << 23)), Some((1 << 14, 256)));
        assert_eq!(worthwhile_run(1.2, 1), 8);
        assert_eq!(worthwhile_run(1.2, 4), 3);
        assert_eq!(worthwhile_run(20.0, 1), 2);
        assert_eq!(worthwhile_run(0.0, 1), 8);
    }

    #[test]
    fn several_iterations_per_thread_shrink_the_grid() {
        let plan = GridPlan { lanes: 4, ..PLAN };
        assert_eq!(plan.plan(Some(1 << 20)), Some((1024, 256)));
        assert_eq!(plan.plan(Some((1 << 20) + 1)), Some((1025, 256)));
        let plan = GridPlan { once: true, ..PLAN };
        assert_eq!(plan.plan(Some(1 << 30)), Some((FILL, 256)));
    }

    #[test]
    fn cooperating_threads_run_one_iteration_each() {
        let plan = GridPlan { block: 16, fixed: true, single: true, ..PLAN };
        assert_eq!(plan.plan(Some(48)), Some((3, 16)));
        assert_eq!(plan.plan(Some(1 << 30)), Some((1 << 26, 16)));
    }

    #[test]
    fn no_iterations_need_no_grid() {
        assert_eq!(PLAN.plan(Some(0)), None);
    }

    #[test]
    fn small_grids_use_many_blocks_of_whole_warps() {
        assert_eq!(PLAN.plan(Some(1 << 16)), Some((512, 128)));
        assert_eq!(PLAN.plan(Some(16384)), Some((512, 32)));
        assert_eq!(PLAN.plan(Some(1000)), Some((32, 32)));
        assert_eq!(PLAN.plan(Some(33)), Some((2, 32)));
        assert_eq!(PLAN.plan(Some(1)), Some((1, 32)));
        let of_64 = GridPlan { warp: 64, ..PLAN };
        assert_eq!(of_64.plan(Some(1000)), Some((16, 64)));
        assert_eq!(of_64.plan(Some(1)), Some((1, 64)));
        for n in 1..5000 {
            let (grid, block) = PLAN.plan(Some(n)).expect("work");
            assert!(block % PLAN.warp == 0 && u64::from(grid) * u64::from(block) >= n, "{n}: {grid} x {block}");
        }
    }

    #[test]
    fn a_requested_block_size_is_kept() {
        let plan = GridPlan { block: 512, fixed: true, ..PLAN };
        assert_eq!(plan.plan(Some(1)), Some((1, 512)));
        assert_eq!(plan.plan(Some(1025)), Some((3, 512)));
    }

    #[test]
    fn the_parameter_is_the_context_followed_by_the_slots() {
        let context =
            DeviceContext { frame: 1, result: 2, channel: 3, seed: 4, launch: 5, kernel: 6, task: 7, of_loop: 8 };
        for count in [0usize, 3, WORDS - CONTEXT_WORDS] {
            let args: Vec<u64> = (0..count as u64).map(|n| n + 100).collect();
            let mut parameter = Parameter::of(&context, &args);
            let at = parameter.address();
            // SAFETY: the parameter has a context and as many slots.
            unsafe {
                assert_eq!(*at.cast::<DeviceContext>(), context);
                let slots = at.cast::<u8>().add(DeviceContext::BYTES as usize).cast::<u64>();
                assert_eq!(std::slice::from_raw_parts(slots, count), args);
            }
        }
    }
}
