//! Compares random kernels with cooperating threads, compiled for the CPU, with an interpreter of their threads.
//!
//! `OCTANTS_TEST_SEEDS` says how many kernels (default 60).

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod jit;
mod scheduled;

use jit::*;
use octants_interpreter::random_kernels::Dice;
use octants_interpreter::random_threads::{ThreadKernel, elements, random_thread_kernel};
use octants_interpreter::{Grid, Interpreter, Leaf, Memory};
use octants_ir::{BufferId, Program, run_pipeline};
use octants_passes::{PIPELINE, PassOptions, offload};

const RESULT: BufferId = BufferId(1);

/// The initial contents of the buffers.
fn contents(of: &ThreadKernel) -> [Vec<i32>; 2] {
    let mut dice = Dice(17);
    [0, 1].map(|b| (0..elements(of, BufferId(b))).map(|_| dice.below(9) as i32).collect())
}

fn interpreted(program: &Program, of: &ThreadKernel) -> Vec<i32> {
    let mut memory = Memory::new(&program.buffers);
    for (b, values) in contents(of).iter().enumerate() {
        let leaves: Vec<Leaf> = values.iter().map(|v| Leaf::Int(i64::from(*v))).collect();
        memory.set(BufferId(b as u32), &[values.len() as u64], &leaves);
    }
    let blocks = of.threads.div_ceil(u64::from(of.block_dim)) as u32;
    let grid = Grid { block_size: of.block_dim, blocks, subgroup_size: 32 };
    Interpreter { grid, ..Interpreter::default() }.run_program(program, &mut memory, &[]).unwrap();
    let int = |leaf| if let Leaf::Int(n) = leaf { n as i32 } else { panic!("an integer") };
    memory.get(RESULT).into_iter().map(int).collect()
}

#[test]
fn compiled_loops_over_threads_compute_what_threads_compute() {
    let seeds = std::env::var("OCTANTS_TEST_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(60);
    for seed in 0..seeds {
        let of = random_thread_kernel(seed);
        let mut kernel = of.kernel.clone();
        run_pipeline(PIPELINE, &mut kernel, &mut PassOptions::default());
        let program = offload(kernel);
        let expected = interpreted(&program, &of);
        let mut arrays = contents(&of);
        let args: Vec<u64> = arrays.iter_mut().flat_map(|a| [a.as_mut_ptr() as u64, a.len() as u64]).collect();
        build(&program).run(&args, Run::default());
        assert_eq!(expected, arrays[1], "seed {seed}\n{program}");
    }
}
