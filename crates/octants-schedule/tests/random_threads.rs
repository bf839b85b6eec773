//! Runs random kernels with cooperating threads, before and after thread loops are formed: both must compute the same
//! memory.
//!
//! `OCTANTS_TEST_SEEDS` says how many kernels (default 300).

#![allow(clippy::unwrap_used)]

mod targets;

use octants_interpreter::random_kernels::Dice;
use octants_interpreter::random_threads::{ThreadKernel, elements, random_thread_kernel};
use octants_interpreter::{Grid, Interpreter, Leaf, Memory, Order};
use octants_ir::schedule::Role;
use octants_ir::{BufferId, MemorySpace, Op, Program, ScheduleOptions, run_pipeline};
use octants_ir::{assert_scheduled, verify::assert_kernel};
use octants_passes::{PIPELINE, PassOptions, offload};
use octants_schedule::schedule_program;
use targets::CPU;

const RESULT: BufferId = BufferId(1);

fn run(program: &Program, of: &ThreadKernel, order: Order) -> Vec<Leaf> {
    let mut memory = Memory::new(&program.buffers);
    let mut dice = Dice(17);
    for b in (0..2).map(BufferId) {
        let count = elements(of, b);
        let leaves: Vec<Leaf> = (0..count).map(|_| Leaf::Int(dice.below(9) as i64)).collect();
        memory.set(b, &[count], &leaves);
    }
    let blocks = of.threads.div_ceil(u64::from(of.block_dim)) as u32;
    let grid = Grid { block_size: of.block_dim, blocks, subgroup_size: CPU.subgroup_size };
    let interpreter = Interpreter { grid, order, ..Interpreter::default() };
    let outcome = interpreter.run_program(program, &mut memory, &[]).unwrap_or_else(|e| panic!("{e}\n{program}"));
    assert_eq!(outcome.failure, None);
    memory.get(RESULT)
}

#[test]
fn loops_over_threads_compute_what_threads_compute() {
    let seeds = std::env::var("OCTANTS_TEST_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(300);
    for seed in 0..seeds {
        let of = random_thread_kernel(seed);
        let mut kernel = of.kernel.clone();
        assert_kernel(&kernel, "making it up");
        if seed % 2 == 0 {
            run_pipeline(PIPELINE, &mut kernel, &mut PassOptions::default());
        }
        let program = offload(kernel);
        let before = run(&program, &of, Order::Shuffled(seed));
        let scheduled = schedule_program(program.clone(), &CPU, ScheduleOptions::default());
        assert_scheduled(&scheduled, "scheduling it");
        let after = scheduled.program_of(Role::Main);
        let is_left = |op: &Op| match op {
            Op::BufferAddr(b, _) => after.buffers[b.index()].space == MemorySpace::Shared,
            op => matches!(op, Op::Grid(_) | Op::Barrier(_) | Op::BlockCount(_) | Op::Subgroup(..)),
        };
        assert!(!after.tasks[0].body.insts.iter().any(|i| is_left(&i.op)), "operations of threads are left\n{after}");
        let result = run(&after, &of, Order::Numbered);
        assert_eq!(before, result, "seed {seed}\n{program}\n----\n{after}");
    }
}
