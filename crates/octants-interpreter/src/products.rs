//! Matrix products of fragments held by the threads of a subgroup, in the plain layout.

use octants_ir::matrix_product::{ELEMENTS, SIDE};
use octants_ir::{FragmentAxis, FragmentElement, ProductKind, Scalar};

use crate::scalar::{float, float_bits};
use crate::value::Value;

/// The row or column of a component of a thread.
pub(crate) fn plain_index(element: FragmentElement, lane: u32, subgroup_size: u32) -> u32 {
    let number = element.component * subgroup_size + lane;
    match element.axis {
        FragmentAxis::Row => number / SIDE,
        FragmentAxis::Column => number % SIDE,
    }
}

/// `a @ b + c`: each thread's part, of the parts of all threads.
pub(crate) fn matrix_product(kind: ProductKind, operands: [Vec<&[u64]>; 3]) -> Vec<Value> {
    let [a, b, c] = &operands;
    let lanes = a.len();
    let at = |parts: &[&[u64]], s: Scalar, row: usize, column: usize| {
        let number = row * SIDE as usize + column;
        float(parts[number % lanes][number / lanes], s)
    };
    let (operand, sums) = (kind.operand(), kind.accumulator());
    let element = |number: usize| {
        let (row, column) = (number / SIDE as usize, number % SIDE as usize);
        let terms = (0..SIDE as usize).map(|k| at(a, operand, row, k) * at(b, operand, k, column));
        float_bits(terms.sum::<f64>() + at(c, sums, row, column), sums)
    };
    (0..lanes).map(|lane| Value::of((lane..ELEMENTS as usize).step_by(lanes).map(element).collect())).collect()
}
