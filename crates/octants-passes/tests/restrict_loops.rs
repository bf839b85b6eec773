//! Loops over split arrays: where they are split, and refusals.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

use std::collections::{BTreeMap, BTreeSet};

use octants_ir::{BufferId, Kernel};
use octants_passes::{Halo, LocalRows, RowBound, WrappedRows, offload, restrict_loops, split_tasks, unwrap_rows};

const HEAD: &str = "kernel k -> unit {
  buffer @0 x: f32[2] contiguous
  buffer @1 y: f32[2] contiguous
  buffer @2 s: f32[0] contiguous
  body {
";

fn kernel(body: &str) -> Kernel {
    format!("{HEAD}{body}  }}\n}}\n").parse().unwrap()
}

fn split() -> BTreeMap<BufferId, u32> {
    BTreeMap::from([(BufferId(0), 0), (BufferId(1), 0)])
}

/// `y[i - 1, j] = x[i + ROW, j] + x[i - 2, j]` for i from 2 to 20, j from 0 to 8.
fn stencil(row: i64) -> String {
    format!(
        "    %0: i32 = const 2
    %1: i32 = const 20
    %2: i32 = const 0
    %3: i32 = const 8
    %4 = for [%2..%3, %0..%1] parallel {{
      %5: i32 = loop_index %4, 1
      %6: i32 = loop_index %4, 0
      %7: i32 = const {row}
      %8: i32 = add %5, %7
      %9: ref f32 = buffer_addr @0[%8, %6]
      %10: f32 = load %9
      %11: i32 = const 2
      %12: i32 = sub %5, %11
      %13: ref f32 = buffer_addr @0[%12, %6]
      %14: f32 = load %13
      %15: f32 = add %10, %14
      %16: i32 = const 1
      %17: i32 = sub %5, %16
      %18: ref f32 = buffer_addr @1[%17, %6]
      store %18, %15
    }}
"
    )
}

#[test]
fn the_axis_that_indexes_rows_is_restricted() {
    let mut kernel = kernel(&stencil(3));
    restrict_loops(&mut kernel, &split()).unwrap();
    let names: Vec<_> = kernel.params.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["first row", "end of rows"]);
    let text = kernel.to_string();
    // Row `i - 1` is the iteration's own: the index is a row plus one.
    assert!(text.contains("= max"), "{text}");
    assert!(text.contains("= min"), "{text}");
    let tasks = split_tasks(&offload(kernel), &split());
    let found = tasks[0].as_ref().unwrap();
    assert_eq!((found.axis, found.shift), (1, -1));
    // From `i - 2` to `i + 3`, seen from `i - 1`.
    assert_eq!(found.reads[&BufferId(0)], Halo { before: 1, after: 4 });
    assert_eq!(found.writes, BTreeSet::from([BufferId(1)]));
    assert!(found.updates.is_empty());
}

#[test]
fn an_array_that_is_split_along_another_axis_follows_its_index_there() {
    let mut kernel = kernel(&stencil(3));
    let split = BTreeMap::from([(BufferId(0), 1), (BufferId(1), 1)]);
    restrict_loops(&mut kernel, &split).unwrap();
    let tasks = split_tasks(&offload(kernel), &split);
    let found = tasks[0].as_ref().unwrap();
    assert_eq!((found.axis, found.shift), (0, 0));
    assert_eq!(found.reads[&BufferId(0)], Halo { before: 0, after: 0 });
    // An array with rows along the first axis, and one along the second, are indexed by different variables.
    let mut kernel = self::kernel(&stencil(3));
    let error = restrict_loops(&mut kernel, &BTreeMap::from([(BufferId(0), 0), (BufferId(1), 1)])).unwrap_err();
    assert!(error.message.contains("are indexed by a different loop variable"), "{error:?}");
}

#[test]
fn draws_name_the_iteration_of_the_whole_loop() {
    let body = "    %0: i32 = const 2
    %1: i32 = const 20
    %2: i32 = const 0
    %3 = for [%0..%1, %2..%1] parallel {
      %4: i32 = loop_index %3, 0
      %5: i32 = loop_index %3, 1
      %6: f64 = random
      %7: f32 = cast %6
      %8: ref f32 = buffer_addr @0[%4, %5]
      store %8, %7
    }
";
    let mut kernel = kernel(body);
    restrict_loops(&mut kernel, &split()).unwrap();
    let text = kernel.to_string();
    assert!(text.contains("= random_at "), "{text}");
    assert!(!text.contains("= random\n"), "{text}");
    assert!(split_tasks(&offload(kernel), &split())[0].is_some());
}

/// `y[i + 2] += x[i]; y[i - 1] += x[i]` for i from 1 to 20, and `y[max(min(x[i], p1), p0)] += x[i]`.
fn scatter() -> Kernel {
    let body = "    %0: i32 = const 1
    %1: i32 = const 20
    %2 = for [%0..%1] parallel {
      %3: i32 = loop_index %2, 0
      %4: ref f32 = buffer_addr @0[%3, %0]
      %5: f32 = load %4
      %6: i32 = const 2
      %7: i32 = add %3, %6
      %8: ref f32 = buffer_addr @1[%7, %0]
      %9: f32 = atomic add %8, %5
      %10: i32 = sub %3, %0
      %11: ref f32 = buffer_addr @1[%10, %0]
      %12: f32 = atomic sub %11, %5
      %13: i32 = cast %5
      %14: i32 = param 1
      %15: i32 = min %13, %14
      %16: i32 = param 0
      %17: i32 = max %15, %16
      %18: ref f32 = buffer_addr @1[%17, %0]
      %19: f32 = atomic add %18, %5
    }
";
    let params = "  param first: i32\n  param last: i32\n  buffer @0";
    format!("{}{body}  }}\n}}\n", HEAD.replacen("  buffer @0", params, 1)).parse().unwrap()
}

#[test]
fn sums_may_update_rows_near_the_owned_row() {
    let mut kernel = scatter();
    restrict_loops(&mut kernel, &split()).unwrap();
    let tasks = split_tasks(&offload(kernel), &split());
    let found = tasks[0].as_ref().unwrap();
    // Nothing is written, so the rows that are read determine the split.
    assert_eq!((found.axis, found.shift), (0, 0));
    assert_eq!(found.adds[&BufferId(1)], Halo { before: 1, after: 2 });
    assert!(found.writes.is_empty());
    let (first, last) = (RowBound::Param(0), RowBound::Param(1));
    assert_eq!(found.local, BTreeSet::from([LocalRows { buffer: BufferId(1), adds: true, first, last }]));
}

/// `y[i, 0] = x[(i - 1 + n) % n, 0]` for i from 0 to END, where n is the number of rows of x.
fn wrapped(end: &str) -> Kernel {
    let body = format!(
        "    %0: i32 = const 0
    %1: i32 = const 1
    %2: i32 = shape @0, 0
    %3: i32 = {end}
    %4 = for [%0..%3] parallel {{
      %5: i32 = loop_index %4, 0
      %6: i32 = sub %5, %1
      %7: i32 = add %6, %2
      %8: i32 = mod %7, %2
      %9: ref f32 = buffer_addr @0[%8, %0]
      %10: f32 = load %9
      %11: ref f32 = buffer_addr @1[%5, %0]
      store %11, %10
    }}
"
    );
    let head = HEAD.replacen("  buffer @0", "  param n: i32\n  buffer @0", 1);
    format!("{head}{body}  }}\n}}\n").parse().unwrap()
}

#[test]
fn wrapped_row_indices_are_unwrapped() {
    let mut kernel = wrapped("shape @1, 0");
    restrict_loops(&mut kernel, &split()).unwrap();
    let mut program = offload(kernel);
    let tasks = split_tasks(&program, &split());
    let found = tasks[0].as_ref().unwrap();
    assert_eq!(found.reads[&BufferId(0)], Halo { before: 1, after: 0 });
    assert_eq!(found.wraps, BTreeSet::from([WrappedRows { buffer: BufferId(0), modulus: None, end: None }]));
    assert!(program.to_string().contains("= mod"));
    unwrap_rows(&mut program, &split());
    // No address computes the modulo any more.
    let after = split_tasks(&program, &split());
    assert!(after[0].as_ref().unwrap().wraps.is_empty(), "{program}");
    assert_eq!(after[0].as_ref().unwrap().reads, found.reads);

    let mut kernel = wrapped("const 20");
    restrict_loops(&mut kernel, &split()).unwrap();
    let tasks = split_tasks(&offload(kernel), &split());
    let ends: Vec<_> = tasks[0].as_ref().unwrap().wraps.iter().map(|rows| rows.end).collect();
    assert_eq!(ends, [Some(20)]);

    let error = restrict_loops(&mut wrapped("param 0"), &split()).unwrap_err();
    assert_eq!(error.message, "row indices of `x` wrap around, but the loop does not run over its rows");
}

#[test]
fn loops_without_split_arrays_are_not_restricted() {
    let body = "    %0: i32 = const 0
    %1: i32 = const 20
    %2: ref f32 = buffer_addr @2[]
    %3 = for [%0..%1] parallel {
      %4: i32 = loop_index %3, 0
      %5: f32 = cast %4
      store %2, %5
    }
";
    let mut kernel = kernel(body);
    let before = kernel.body.to_string();
    restrict_loops(&mut kernel, &split()).unwrap();
    assert_eq!(kernel.body.to_string(), before);
    assert_eq!(split_tasks(&offload(kernel), &split()), [None]);
}

#[test]
fn writes_to_other_memory_are_refused() {
    let body = stencil(0)
        .replace("store %18, %15", "store %18, %15\n      %20: ref f32 = buffer_addr @2[]\n      store %20, %15");
    let error = restrict_loops(&mut kernel(&body), &split()).unwrap_err();
    assert_eq!(error.message, "`s` is written in a loop over a split array, but is not split itself");
}

#[test]
fn serial_code_may_write_other_memory() {
    let body = "    %0: f32 = const 0.0
    %1: ref f32 = buffer_addr @2[]
    store %1, %0
";
    restrict_loops(&mut kernel(body), &split()).unwrap();
}

#[test]
fn serial_code_is_refused() {
    let body = "    %0: i32 = const 0
    %1: ref f32 = buffer_addr @0[%0, %0]
    %2: f32 = load %1
    %3: ref f32 = buffer_addr @2[]
    store %3, %2
";
    let error = restrict_loops(&mut kernel(body), &split()).unwrap_err();
    assert_eq!(error.message, "`x` is split over ranks but used outside of a parallel loop");
}
