//! Time to tell whether two launches conflict, by their access sets. Prints nanoseconds, the fastest of several rounds.
//!
//! `cargo bench -p octants-artifact`

use std::hint::black_box;
use std::time::Instant;

use octants_artifact::{
    Access, AccessAxis, AccessColor, AccessKind, AccessPart, Overlap, ScalarKind, SlotSum, TaskLaunch,
};

/// Buffers of a task, each with two axes; the last is written, the others are read with neighbors.
fn task(buffers: u32) -> Vec<Access> {
    let at = |slot, constant| SlotSum { constant, terms: vec![(slot, ScalarKind::I32, 1)] };
    let axis = |constant| AccessAxis {
        extent: SlotSum { constant: 0, terms: vec![(2, ScalarKind::I64, 1)] },
        range: Some((at(0, constant), at(1, constant))),
        step: 1,
    };
    let access = |buffer, kind, shift| Access {
        buffer,
        kind,
        axes: vec![axis(shift), axis(0)],
        colors: Vec::new(),
        parts: vec![AccessPart { slot: 3, begin: u64::from(buffer) * 4, end: u64::from(buffer) * 4 + 4 }],
        element: 0,
    };
    let reads = (0..buffers - 1).flat_map(|b| [-1, 0, 1].map(|shift| access(b, AccessKind::Read, shift)));
    reads.chain([access(buffers - 1, AccessKind::Write, 0)]).collect()
}

fn measure(name: &str, access: &[Access], slots: [[u64; 4]; 2]) {
    let times = 100_000;
    let [first, second] = slots.each_ref().map(|slots| TaskLaunch { access, slots });
    let same = |a, b| if a == b { Overlap::Same } else { Overlap::None };
    repeat(name, times, || black_box(&first).conflicts_with(black_box(&second), same));
    // As launches are compared: all accesses to the memory of one tree, of which the parts differ.
    let [a, b] = black_box(slots);
    let meet = || access.iter().any(|x| access.iter().any(|y| x.meets((y, &b), &a)));
    repeat(&format!("{name}, in one tree"), times, meet);
}

fn repeat(name: &str, times: u32, compare: impl Fn() -> bool) {
    let round = || {
        let start = Instant::now();
        (0..times).for_each(|_| _ = black_box(compare()));
        start.elapsed().as_nanos() as f64 / f64::from(times)
    };
    let mut rounds: Vec<f64> = std::iter::repeat_with(round).take(9).collect();
    rounds.sort_by(f64::total_cmp);
    println!("{name:<58} {:>12.1} ns   median {:>12.1}", rounds[0], rounds[4]);
}

/// Writes elements whose sum of indices is congruent to the argument in slot 0, modulo 2.
fn checkerboard() -> Vec<Access> {
    let phase = SlotSum { constant: 0, terms: vec![(0, ScalarKind::I32, 1)] };
    let axis = || AccessAxis { extent: SlotSum::constant(1000), range: None, step: 1 };
    vec![Access {
        buffer: 0,
        kind: AccessKind::Write,
        axes: vec![axis(), axis()],
        colors: vec![AccessColor { coefficients: vec![1, 1], modulus: 2, phase }],
        parts: vec![AccessPart { slot: 3, begin: 0, end: 4 }],
        element: 4,
    }]
}

fn main() {
    for buffers in [2, 4, 8] {
        let access = task(buffers);
        measure(&format!("{buffers} buffers, halves of the rows"), &access, [[1, 500, 1000, 64], [500, 999, 1000, 64]]);
        measure(&format!("{buffers} buffers, the same rows"), &access, [[1, 999, 1000, 64], [1, 999, 1000, 64]]);
    }
    let access = checkerboard();
    let meet = || access[0].meets((&access[0], black_box(&[1, 0, 0, 64])), black_box(&[0, 0, 0, 64]));
    repeat("two colors of a checkerboard", 100_000, meet);
}
