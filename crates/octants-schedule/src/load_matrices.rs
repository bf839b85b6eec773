//! Finds fragments that one subgroup instruction can load from shared memory: `load_matrices` loads four 8 x 8 matrices
//! of 16-bit scalars and distributes them as f16 products require. Each thread passes the address of a 16-byte row.
//!
//! A vector is a fragment if its elements are loaded from `[row + fragment_index, column + fragment_index]` of a shared
//! array whose rows are at multiples of 16 bytes. The subgroup is converged there if the same basic block contains a
//! product, which requires convergence.

use std::collections::HashMap;

use octants_analysis::local_uses;
use octants_ir::insert_code::rebuild_blocks;
use octants_ir::matrix_product::SIDE;
use octants_ir::{
    BinaryOp, BlockId, Body, Buffer, BufferId, Builder, Effect, FragmentAxis, FragmentElement, FragmentRole, GridValue,
    Layout, MemorySpace, Op, ProductKind, ProductShape, Scalar, Type, ValueId,
};

use crate::index_offsets::Offsets;

/// Rows and columns of a matrix that is loaded.
const PART: u32 = 8;

/// A fragment in shared memory.
struct Found {
    buffer: BufferId,
    /// The indices before row and column.
    leading: Vec<ValueId>,
    row: Option<ValueId>,
    column: Option<ValueId>,
    /// Each 8 x 8 part is loaded with its rows as columns.
    is_transposed: bool,
    /// The contributions of bits 3 and 4 of the thread's index to row and column.
    steps: [(u32, u32); 2],
}

/// The source address of a part of a fragment.
#[derive(Clone)]
struct Place {
    buffer: BufferId,
    leading: Vec<ValueId>,
    /// Row and column of the fragment.
    base: [Option<ValueId>; 2],
    role: FragmentRole,
    /// The array is transposed relative to the fragment.
    is_swapped: bool,
}

impl Place {
    fn is_same(&self, offsets: &Offsets<'_>, other: &Place) -> bool {
        let pairs = |a: &[ValueId], b: &[ValueId]| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| offsets.have_same_base(Some(*a), Some(*b)))
        };
        (self.buffer, self.role, self.is_swapped) == (other.buffer, other.role, other.is_swapped)
            && pairs(&self.leading, &other.leading)
            && self.base.iter().zip(other.base).all(|(a, b)| offsets.have_same_base(*a, b))
    }
}

/// Lets fragments of products of f16 be loaded so.
pub(crate) fn load_matrices(body: &mut Body, buffers: &[Buffer], shape: &ProductShape) {
    let found = find(body, buffers, shape);
    if found.is_empty() {
        return;
    }
    rebuild_blocks(body, |b, v| {
        if let Some(found) = found.get(&v) {
            let address = row_address(b, found);
            b.body.inst_mut(v).op = Op::LoadMatrices(address, found.is_transposed);
        }
        b.place(v);
    });
}

fn find(body: &Body, buffers: &[Buffer], shape: &ProductShape) -> HashMap<ValueId, Found> {
    let mut found = HashMap::new();
    let is_product = |v: &ValueId| matches!(&body.inst(*v).op, Op::Subgroup(op, _) if op.product().is_some());
    let locals = local_uses(body);
    let offsets = Offsets { body, locals: &locals };
    for block in 0..body.blocks.len() {
        let insts = body.block(BlockId(block as u32));
        if !insts.iter().any(is_product) {
            continue;
        }
        for (at, &v) in insts.iter().enumerate() {
            if let Op::MakeTensor(parts) = &body.inst(v).op
                && let Some(fragment) = fragment(&offsets, buffers, shape, parts)
                && are_just_before(body, &insts[..at], parts)
            {
                found.insert(v, fragment);
            }
        }
    }
    found
}

/// Nothing happens between the loads of the parts and the end of the code.
fn are_just_before(body: &Body, before: &[ValueId], parts: &[ValueId]) -> bool {
    let Some(first) = before.iter().position(|v| parts.contains(v)) else { return false };
    let is_quiet = |v: &ValueId| {
        matches!(body.inst(*v).op.effect(), Effect::Pure | Effect::Index | Effect::Read(_))
            && !matches!(body.inst(*v).op, Op::LoadMatrices(..))
    };
    parts.iter().all(|part| before[first..].contains(part)) && before[first..].iter().all(is_quiet)
}

fn fragment(offsets: &Offsets<'_>, buffers: &[Buffer], shape: &ProductShape, parts: &[ValueId]) -> Option<Found> {
    let body = offsets.body;
    let mut common: Option<Place> = None;
    for (i, part) in parts.iter().enumerate() {
        let Op::Load(address) = &body.inst(*part).op else { return None };
        let Op::BufferAddr(buffer, index) = &body.inst(*address).op else { return None };
        let (&[row, column], leading) = index.split_last_chunk::<2>().map(|(leading, last)| (last, leading))?;
        let [(row, first), (column, second)] = [index_of_element(offsets, row)?, index_of_element(offsets, column)?];
        let is_of_part = |e: FragmentElement| e.kind == ProductKind::F16 && e.component as usize == i;
        if !(is_of_part(first) && is_of_part(second)) || first.role != second.role || first.axis == second.axis {
            return None;
        }
        let leading = leading.iter().map(|v| offsets.source(*v)).collect();
        let is_swapped = first.axis == FragmentAxis::Column;
        let here = Place { buffer: *buffer, leading, base: [row, column], role: first.role, is_swapped };
        if !common.get_or_insert_with(|| here.clone()).is_same(offsets, &here) {
            return None;
        }
    }
    let Place { buffer, leading, base: [row, column], role, is_swapped } = common?;
    let is_aligned = column.is_none_or(|v| offsets.is_multiple(v, PART.into()));
    if !is_aligned || !has_aligned_rows(&buffers[buffer.index()]) {
        return None;
    }
    let (steps, is_transposed) = steps(shape, role, is_swapped)?;
    Some(Found { buffer, leading, row, column, is_transposed, steps })
}

/// An index as a value plus that of a fragment's element.
fn index_of_element(offsets: &Offsets<'_>, v: ValueId) -> Option<(Option<ValueId>, FragmentElement)> {
    let v = offsets.source(v);
    let element = |v: ValueId| match offsets.body.inst(offsets.source(v)).op {
        Op::FragmentIndex(element) => Some(element),
        _ => None,
    };
    if let Some(element) = element(v) {
        return Some((None, element));
    }
    let Op::Binary(BinaryOp::Add, a, b) = &offsets.body.inst(v).op else { return None };
    let (base, element) = element(*b).map(|e| (*a, e)).or_else(|| element(*a).map(|e| (*b, e)))?;
    Some((Some(offsets.source(base)), element))
}

/// A shared array of f16 whose rows begin at multiples of 16 bytes.
fn has_aligned_rows(buffer: &Buffer) -> bool {
    let Layout::Dense { components, .. } = &buffer.layout else { return false };
    let [component] = &components[..] else { return false };
    let Some((last, before)) = component.place.axes.split_last() else { return false };
    let is_aligned = |axis: &Vec<octants_ir::Digit>| matches!(&axis[..], [digit] if digit.stride % 16 == 0);
    buffer.space == MemorySpace::Shared
        && buffer.elem == Type::Scalar(Scalar::F16)
        && component.place.base % 16 == 0
        && matches!(&last[..], [digit] if digit.stride == 2)
        && before.iter().all(is_aligned)
}

/// The contributions of bits of the thread's index to the row and column whose address it passes, and whether parts are
/// loaded transposed; `None` if the instruction's layout differs from the fragment's.
fn steps(shape: &ProductShape, role: FragmentRole, is_swapped: bool) -> Option<([(u32, u32); 2], bool)> {
    let layout = shape.layout(role);
    if (layout.components.len(), layout.lanes.len()) != (3, 5) {
        return None;
    }
    let in_array = |component, lane| {
        let (row, column) = layout.position(component, lane);
        if is_swapped { (column, row) } else { (row, column) }
    };
    let fits = |is_transposed: bool| {
        (0..8).flat_map(|c| (0..32).map(move |l| (c, l))).all(|(component, lane)| {
            let first = in_array(component & !1, 0);
            let at = (lane / 4, 2 * (lane % 4) + component % 2);
            let (row, column) = if is_transposed { (at.1, at.0) } else { at };
            in_array(component, lane) == (first.0 + row, first.1 + column)
        })
    };
    let is_transposed = [false, true].into_iter().find(|t| fits(*t))?;
    Some(([in_array(2, 0), in_array(4, 0)], is_transposed))
}

/// The address of the row that this thread gives.
fn row_address(b: &mut Builder, found: &Found) -> ValueId {
    let lane = b.push(Op::Grid(GridValue::Lane), Type::I32);
    let low = b.int((PART - 1).into(), Scalar::I32);
    let mut row = b.binary(BinaryOp::And, lane, low);
    let mut column = b.int(0, Scalar::I32);
    for (bit, (rows, columns)) in found.steps.into_iter().enumerate() {
        let by = b.int(3 + bit as i64, Scalar::I32);
        let moved = b.binary(BinaryOp::UShr, lane, by);
        let one = b.int(1, Scalar::I32);
        let is_set = b.binary(BinaryOp::And, moved, one);
        for (to, step) in [(&mut row, rows), (&mut column, columns)] {
            debug_assert!(step < SIDE);
            if step > 0 {
                let step = b.int(step.into(), Scalar::I32);
                let part = b.binary(BinaryOp::Mul, is_set, step);
                *to = b.binary(BinaryOp::Add, *to, part);
            }
        }
    }
    let at = |b: &mut Builder, base: Option<ValueId>, offset: ValueId| match base {
        Some(base) => {
            let scalar = b.ty(base).scalar().expect("compiler bug: an index is not a scalar");
            let offset = b.cast(offset, scalar);
            b.binary(BinaryOp::Add, base, offset)
        }
        None => offset,
    };
    let (row, column) = (at(b, found.row, row), at(b, found.column, column));
    let index = found.leading.iter().copied().chain([row, column]).collect();
    b.push(Op::BufferAddr(found.buffer, index), Type::Ref(Box::new(Scalar::F16.into())))
}
