//! Matrix products on GPUs without matrix instructions, for each subgroup size: the scheduled program must compute the
//! same results as the program.

#![allow(clippy::unwrap_used)]

mod targets;
#[path = "../../octants-codegen-llvm/tests/thread_programs/mod.rs"]
#[allow(dead_code)] // Others use its other programs.
mod thread_programs;

use octants_interpreter::random_kernels::Dice;
use octants_interpreter::{Grid, Interpreter, Leaf, Memory};
use octants_ir::matrix_product::SIDE;
use octants_ir::schedule::Role;
use octants_ir::{BufferId, Op, ProductKind, Program, ScheduleOptions, TargetInfo, assert_scheduled};
use octants_schedule::schedule_program;
use targets::GPU;
use thread_programs::matrix_product;

const SUMS: BufferId = BufferId(2);

fn run(program: &Program, subgroup_size: u32) -> Vec<Leaf> {
    let mut memory = Memory::new(&program.buffers);
    let mut dice = Dice(17);
    let side = u64::from(SIDE);
    for b in (0..3).map(BufferId) {
        let leaves: Vec<Leaf> = (0..side * side).map(|_| Leaf::Float(dice.below(9) as f64 - 4.0)).collect();
        memory.set(b, &[side, side], &leaves);
    }
    // One subgroup: another one would add to the same sums.
    let grid = Grid { block_size: subgroup_size, blocks: 1, subgroup_size };
    let interpreter = Interpreter { grid, ..Interpreter::default() };
    interpreter.run_program(program, &mut memory, &[]).unwrap_or_else(|e| panic!("{e}\n{program}"));
    memory.get(SUMS)
}

#[test]
fn products_are_correct_for_each_subgroup_size() {
    for subgroup_size in [1, 2, 4, 8, 16, 32, 64] {
        for kind in ProductKind::ALL.iter().copied() {
            let program = matrix_product(kind, subgroup_size);
            let target = TargetInfo { subgroup_size, ..GPU };
            let scheduled = schedule_program(program.clone(), &target, ScheduleOptions::default());
            assert_scheduled(&scheduled, "scheduling it");
            let after = scheduled.program_of(Role::Main);
            let is_left = |op: &Op| matches!(op, Op::Subgroup(op, _) if op.product().is_some());
            assert!(!after.tasks[0].body.insts.iter().any(|i| is_left(&i.op)), "{after}");
            assert_eq!(run(&program, subgroup_size), run(&after, subgroup_size), "{kind:?}, {subgroup_size} threads");
        }
    }
}
