//! [`expand_matrix_products`]: expands products of fragments, and the positions of their elements, to plain code.
//!
//! Each thread computes the elements of the sums that it holds. It gets rows of `a` and columns of `b` from the
//! threads that hold them, in a loop over the columns of `a`.

use crate::body::{Body, Builder};
use crate::insert_code::rebuild_blocks;
use crate::matrix_product::{ELEMENTS, FragmentAxis, FragmentElement, FragmentLayout, ProductKind, SIDE};
use crate::op::{CodeSizeHint, ForLoop, LoopHints, Op, Range, ValueId};
use crate::operation_table::{BinaryOp, GridValue, SubgroupOp};
use crate::types::{Scalar, Type};

/// The layout of the elements of a kind of product, and its implementation.
#[derive(Debug, Clone, Copy)]
pub enum Form {
    /// In the plain layout, by plain code.
    Plain,
    /// In the plain layout; the operation stays.
    PlainLayout,
    /// As the target's instruction has it; the operation stays.
    Target(&'static crate::matrix_product::ProductShape),
}

/// Expands the fragment operations of a body.
pub fn expand_matrix_products(body: &mut Body, form: impl Fn(ProductKind) -> Form) {
    let has_any = body.insts.iter().any(|inst| match &inst.op {
        Op::FragmentIndex(_) => true,
        Op::Subgroup(op, _) => op.product().is_some(),
        _ => false,
    });
    if !has_any {
        return;
    }
    rebuild_blocks(body, |b, v| {
        let made = match b.body.inst(v).op.clone() {
            Op::FragmentIndex(element) => Some(match form(element.kind) {
                Form::Target(shape) => index_in(b, shape.layout(element.role), element),
                Form::Plain | Form::PlainLayout => plain_index(b, element),
            }),
            Op::Subgroup(op, operands) => match op.product().map(|kind| (kind, form(kind))) {
                Some((kind, Form::Plain)) => Some(plain_product(b, kind, [operands[0], operands[1], operands[2]])),
                _ => None,
            },
            _ => None,
        };
        match made {
            // The instruction keeps its number, which others name.
            Some(made) => {
                let inst = b.body.inst(made).clone();
                forget(b, made);
                *b.body.inst_mut(v) = inst;
                b.place(v);
            }
            None => b.place(v),
        }
    });
}

/// Takes the instruction just placed out of its block.
fn forget(b: &mut Builder, v: ValueId) {
    let cursor = b.cursor().index();
    let last = b.body.blocks[cursor].pop();
    assert_eq!(last, Some(v), "compiler bug: an expansion ends in its value");
}

/// An index as a sum over bits of the thread's index.
fn index_in(b: &mut Builder, layout: FragmentLayout, element: FragmentElement) -> ValueId {
    let (bits, fixed) = layout.along(element.axis, element.component);
    let lane = b.push(Op::Grid(GridValue::Lane), Type::I32);
    let mut sum: Option<ValueId> = None;
    let mut bit = 0;
    while bit < bits.len() {
        let first = bits[bit];
        if first == 0 {
            bit += 1;
            continue;
        }
        // Adjacent bits whose contributions double move as one.
        let run = bits[bit..].iter().enumerate().take_while(|(i, part)| **part == first << i).count();
        let moved = shift(b, lane, bit as i64, i64::from(first.trailing_zeros()));
        let mask = b.int(((1i64 << run) - 1) * i64::from(first), Scalar::I32);
        let part = b.binary(BinaryOp::And, moved, mask);
        sum = Some(sum.map_or(part, |sum| b.binary(BinaryOp::Or, sum, part)));
        bit += run;
    }
    let fixed = b.int(fixed.into(), Scalar::I32);
    // The bits of the component differ from those of the thread.
    match sum {
        Some(sum) => b.binary(BinaryOp::Add, sum, fixed),
        None => fixed,
    }
}

/// Moves bit `from` to bit `to`.
fn shift(b: &mut Builder, v: ValueId, from: i64, to: i64) -> ValueId {
    let (op, by) = if from > to { (BinaryOp::UShr, from - to) } else { (BinaryOp::Shl, to - from) };
    let by = b.int(by, Scalar::I32);
    b.binary(op, v, by)
}

/// An index in the plain layout.
fn plain_index(b: &mut Builder, element: FragmentElement) -> ValueId {
    let lane = b.push(Op::Grid(GridValue::Lane), Type::I32);
    let size = b.push(Op::Grid(GridValue::SubgroupSize), Type::I32);
    let component = b.int(element.component.into(), Scalar::I32);
    let before = b.binary(BinaryOp::Mul, size, component);
    let number = b.binary(BinaryOp::Add, before, lane);
    let side = i64::from(SIDE);
    let (op, by) = match element.axis {
        FragmentAxis::Row => (BinaryOp::UShr, side.trailing_zeros().into()),
        FragmentAxis::Column => (BinaryOp::And, side - 1),
    };
    let by = b.int(by, Scalar::I32);
    b.binary(op, number, by)
}

/// How the plain layout spreads a fragment over a subgroup, by the components of a thread.
#[derive(Debug, Clone, Copy)]
struct PlainLayout {
    /// Rows that one component of all threads makes. At least one.
    rows: u32,
    /// Components of a thread in one row. More than one when the subgroup is smaller than a row.
    columns: u32,
    /// Threads of the subgroup.
    threads: u32,
}

impl PlainLayout {
    fn new(components: u32) -> PlainLayout {
        PlainLayout {
            rows: (SIDE / components).max(1),
            columns: (components / SIDE).max(1),
            threads: ELEMENTS / components,
        }
    }

    /// Component and thread of column `k` of the row that this thread's components `row * columns` and so on are in.
    fn of_row(self, b: &mut Builder, row: u32, k: ValueId, first_of_row: ValueId) -> [ValueId; 2] {
        let before = b.int((row * self.columns).into(), Scalar::I32);
        if self.columns == 1 {
            return [before, b.binary(BinaryOp::Add, first_of_row, k)];
        }
        let threads = b.int(self.threads.into(), Scalar::I32);
        let [part, thread] = [BinaryOp::Div, BinaryOp::Rem].map(|op| b.binary(op, k, threads));
        [b.binary(BinaryOp::Add, before, part), thread]
    }

    /// Component and thread of row `k` of the column that this thread's component `column` of each row is in.
    fn of_column(self, b: &mut Builder, column: u32, k: ValueId, lane: ValueId) -> [ValueId; 2] {
        if self.columns > 1 {
            let columns = b.int(self.columns.into(), Scalar::I32);
            let before = b.binary(BinaryOp::Mul, k, columns);
            let column = b.int(column.into(), Scalar::I32);
            return [b.binary(BinaryOp::Add, before, column), lane];
        }
        let rows = b.int(self.rows.into(), Scalar::I32);
        let [component, row] = [BinaryOp::Div, BinaryOp::Rem].map(|op| b.binary(op, k, rows));
        let [side, bits] = [i64::from(SIDE), i64::from(SIDE) - 1].map(|n| b.int(n, Scalar::I32));
        let column = b.binary(BinaryOp::And, lane, bits);
        let before = b.binary(BinaryOp::Mul, row, side);
        [component, b.binary(BinaryOp::Add, before, column)]
    }
}

/// `a @ b + c` of fragments in the plain layout.
fn plain_product(b: &mut Builder, kind: ProductKind, [left, right, sums]: [ValueId; 3]) -> ValueId {
    let ty = b.ty(sums).clone();
    let components = ty.leaf_count() as u32;
    let layout = PlainLayout::new(components);
    let local = b.body.add_local("sums", ty);
    b.store_local(local, sums);
    let lane = b.push(Op::Grid(GridValue::Lane), Type::I32);
    let [side, column_bits] = [i64::from(SIDE), i64::from(SIDE) - 1].map(|n| b.int(n, Scalar::I32));
    let column = b.binary(BinaryOp::And, lane, column_bits);
    let first_of_row = b.binary(BinaryOp::Sub, lane, column);
    let (begin, body) = (b.int(0, Scalar::I32), b.body.add_block());
    let hints = LoopHints { code_size: CodeSizeHint::UnrollFully, ..LoopHints::default() };
    let l = ForLoop { hints, ..ForLoop::serial(vec![Range { begin, end: side }], body) };
    let l = b.push(Op::For(Box::new(l)), Type::Unit);
    let back = b.set_cursor(body);
    let k = b.push(Op::LoopIndex(l, 0), Type::I32);
    let [operand, accumulator] = [kind.operand(), kind.accumulator()];
    let take = |b: &mut Builder, fragment: ValueId, [component, thread]: [ValueId; 2]| {
        let value = b.push(Op::ExtractDyn(fragment, vec![component]), operand.into());
        let is_own = thread == lane;
        let value =
            if is_own { value } else { b.push(Op::Subgroup(SubgroupOp::Shuffle, vec![value, thread]), operand.into()) };
        b.cast(value, accumulator)
    };
    let of_right: Vec<ValueId> = (0..layout.columns)
        .map(|column| {
            let place = layout.of_column(b, column, k, lane);
            take(b, right, place)
        })
        .collect();
    for row in 0..components / layout.columns {
        let place = layout.of_row(b, row, k, first_of_row);
        let of_left = take(b, left, place);
        for (column, of_right) in of_right.iter().enumerate() {
            let product = b.binary(BinaryOp::Mul, of_left, *of_right);
            let at = b.int(i64::from(row * layout.columns) + column as i64, Scalar::I32);
            let base = b.local_addr(local);
            let address = b.element_addr(base, vec![at]);
            let old = b.load(address);
            let new = b.binary(BinaryOp::Add, old, product);
            b.store(address, new);
        }
    }
    b.set_cursor(back);
    b.load_local(local)
}
