//! Random all-pairs loops and products, before and after tiling: the results are bitwise equal for all sizes of the
//! arrays and of the grid.
//!
//! `OCTANTS_TEST_SEEDS` is the number of programs (default 30).

#![allow(clippy::unwrap_used)]

mod targets;

use octants_interpreter::random_kernels::Dice;
use octants_interpreter::{Grid, Interpreter, Leaf, Memory, Order};
use octants_ir::schedule::Role;
use octants_ir::{BufferId, GridValue, Op, Program, ScheduleOptions, assert_scheduled};
use octants_schedule::schedule_program;
use targets::GPU;

const RESULT: BufferId = BufferId(2);

/// A program, and the shapes of its arrays.
struct Case {
    text: String,
    shapes: [Vec<u64>; 3],
}

/// How the elements `%x` and `%y` of an iteration become a term.
fn term(dice: &mut Dice, names: [&str; 2]) -> String {
    let [x, y] = names;
    let op = ["mul", "add", "min", "max", "sub"][dice.below(5) as usize];
    let twice = dice.below(2) == 0;
    let square = if twice { "mul %30, %30" } else { "add %30, %30" };
    format!("        %30: f64 = {op} {x}, {y}\n        %31: f64 = {square}\n")
}

/// Sums terms in `$0`, in an order that affects the rounding.
fn accumulate(dice: &mut Dice) -> String {
    let join = ["add", "sub", "max"][dice.below(3) as usize];
    format!(
        "        %32: ref f64 = local_addr $0\n        %33: f64 = load %32\n        \
         %34: f64 = {join} %33, %31\n        \
         store %32, %34\n"
    )
}

fn all_pairs(dice: &mut Dice) -> Case {
    let (n, m) = (dice.below(400), dice.below(600));
    let skips_itself = dice.below(2) == 0;
    let (open, close) =
        if skips_itself { ("%54: u1 = ne %6, %3\n        if %54 {\n", "        }\n") } else { ("", "") };
    let body = format!("{}{}", term(dice, ["%8", "%10"]), accumulate(dice));
    let text = format!(
        "program pairs -> unit {{
  buffer @0 x: f64[1] contiguous
  buffer @1 y: f64[1] contiguous
  buffer @2 out: f64[1] contiguous
  task pairs_0_range parallel reads [@0, @1] writes [@2] {{
    local $0 s: f64
    %0: i32 = shape @2, 0
    %1: i32 = const 0
    %2 = for [%1..%0] parallel {{
      %3: i32 = loop_index %2, 0
      %4: i32 = shape @1, 0
      %5 = for [%1..%4] {{
        %6: i32 = loop_index %5, 0
        {open}        %7: ref f64 = buffer_addr @0[%3]
        %8: f64 = load %7
        %9: ref f64 = buffer_addr @1[%6]
        %10: f64 = load %9
{body}{close}      }}
      %11: ref f64 = local_addr $0
      %12: f64 = load %11
      %13: ref f64 = buffer_addr @2[%3]
      store %13, %12
    }}
  }}
}}"
    );
    Case { text, shapes: [vec![n], vec![m], vec![n]] }
}

fn product(dice: &mut Dice) -> Case {
    let (rows, columns, steps) = (dice.below(80), dice.below(80), dice.below(60));
    // Either operand may be transposed.
    let turned = [dice.below(2) == 0, dice.below(2) == 0];
    let (a, a_shape) = if turned[0] { ("%6, %3", vec![steps, rows]) } else { ("%3, %6", vec![rows, steps]) };
    let (b, b_shape) = if turned[1] { ("%4, %6", vec![columns, steps]) } else { ("%6, %4", vec![steps, columns]) };
    let step_axis = i32::from(!turned[0]);
    let body = format!("{}{}", term(dice, ["%8", "%10"]), accumulate(dice));
    let text = format!(
        "program product -> unit {{
  buffer @0 a: f64[2] contiguous
  buffer @1 b: f64[2] contiguous
  buffer @2 out: f64[2] contiguous
  task product_0_range parallel reads [@0, @1] writes [@2] {{
    local $0 s: f64
    %0: i32 = shape @2, 0
    %1: i32 = const 0
    %50: i32 = shape @2, 1
    %2 = for [%1..%0, %1..%50] parallel {{
      %3: i32 = loop_index %2, 0
      %4: i32 = loop_index %2, 1
      %52: i32 = shape @0, {step_axis}
      %5 = for [%1..%52] {{
        %6: i32 = loop_index %5, 0
        %7: ref f64 = buffer_addr @0[{a}]
        %8: f64 = load %7
        %9: ref f64 = buffer_addr @1[{b}]
        %10: f64 = load %9
{body}      }}
      %11: ref f64 = local_addr $0
      %12: f64 = load %11
      %13: ref f64 = buffer_addr @2[%3, %4]
      store %13, %12
    }}
  }}
}}"
    );
    Case { text, shapes: [a_shape, b_shape, vec![rows, columns]] }
}

fn run(program: &Program, case: &Case, seed: u64, order: Order) -> Vec<Leaf> {
    let mut memory = Memory::new(&program.buffers);
    let mut dice = Dice(seed ^ 0x5eed);
    for (b, shape) in case.shapes.iter().enumerate() {
        let leaves: Vec<Leaf> = (0..shape.iter().product()).map(|_| Leaf::Float(dice.unit())).collect();
        memory.set(BufferId(b as u32), shape, &leaves);
    }
    let block_size = [32, 64, 256][dice.below(3) as usize];
    let grid = Grid { block_size, blocks: 1 + dice.below(4) as u32, subgroup_size: GPU.subgroup_size };
    let interpreter = Interpreter { grid, order, ..Interpreter::default() };
    let outcome = interpreter.run_program(program, &mut memory, &[]).unwrap_or_else(|e| panic!("{e}\n{program}"));
    assert_eq!(outcome.failure, None);
    memory.get(RESULT)
}

#[test]
fn tiles_compute_what_loops_compute() {
    let seeds = std::env::var("OCTANTS_TEST_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(30);
    let mut in_tiles = [0; 2];
    for seed in 0..seeds {
        let mut dice = Dice(seed * 7 + 1);
        let is_product = seed % 2 == 0;
        let case = if is_product { product(&mut dice) } else { all_pairs(&mut dice) };
        let program: Program = case.text.parse().unwrap_or_else(|e| panic!("{e}\n{}", case.text));
        let scheduled = schedule_program(program.clone(), &GPU, ScheduleOptions::default());
        assert_scheduled(&scheduled, "scheduling it");
        let after = scheduled.program_of(Role::Main);
        let uses_blocks = after.tasks[0].body.insts.iter().any(|i| i.op == Op::Grid(GridValue::Block));
        in_tiles[usize::from(is_product)] += i32::from(uses_blocks);
        let before = run(&program, &case, seed, Order::Numbered);
        let bits = |leaves: Vec<Leaf>| -> Vec<u64> {
            let bits = |leaf| if let Leaf::Float(f) = leaf { f64::to_bits(f) } else { panic!("{leaf:?}") };
            leaves.into_iter().map(bits).collect()
        };
        let found = run(&after, &case, seed, Order::Shuffled(seed));
        assert_eq!(bits(before), bits(found), "seed {seed}\n{program}\n----\n{after}");
    }
    assert!(in_tiles.iter().all(|n| *n > seeds as i32 / 4), "in tiles: {in_tiles:?} of {seeds}");
}
