//! Sparse levels: loops over active cells, and stores that activate the cells around their element.
//!
//! The host lays out the activation state of each sparse level as a field of i32 (`FieldDesc::is_sparse`,
//! `_sparse_levels`): zero for an inactive cell; for a dynamic level, the length of each list. Lowering emits ordinary
//! loads, stores and loops.

use std::collections::{BTreeMap, BTreeSet};

use octants_diag::{Code, Result};
use octants_ir::insert_code::{bodies, push_if, rebuild_blocks, widen};
use octants_ir::{
    AtomicOp, AutodiffMode, BinaryOp, Body, BufferId, Builder, CellIndex, ForLoop, Function, IndexDigit, Kernel,
    Layout, LoopConfig, Op, Range, Scalar, Type, ValueId,
};

use super::Lowerer;
use super::builtins::Call;
use crate::ast::{Arguments, Expr, ExprKind};
use crate::value::Value;
use crate::world::{Entity, Obj};

/// The bit of a state that stores set. For other levels than dynamic ones, a cell with any bit set is active.
const ACTIVE: i64 = 1;
/// The bit that stores to gradients set instead. Loops of the same kernel skip cells that have only this bit, so that
/// reverse mode runs the same iterations as the kernel. At its end, the kernel converts the bit to `ACTIVE`.
const ACTIVATED_BY_GRADIENT: i64 = 2;

/// How the indices of a field name a cell of a sparse level above it.
#[derive(Debug, Clone)]
pub(super) struct SparseLevel {
    obj: Obj,
    /// An i32 for each cell, or for each list its length.
    state: BufferId,
    index: CellIndex,
}

impl SparseLevel {
    /// The loops over the elements in a cell.
    fn inner_loops(&self) -> impl Iterator<Item = &IndexDigit> {
        self.index.inner.iter().filter(|digit| digit.extent > 1)
    }
}

/// The iteration space of a loop over active cells: each active cell of a level, with all elements in it.
#[derive(Debug, Clone)]
pub(super) struct ActiveCells {
    level: SparseLevel,
    cells: BufferId,
    /// First index and extent of each axis.
    axes: Vec<(i64, i64)>,
}

impl ActiveCells {
    /// The loops over the elements in a cell.
    pub(super) fn inner_loops(&self) -> impl Iterator<Item = &IndexDigit> {
        self.level.inner_loops()
    }
}

impl Lowerer<'_> {
    /// The sparse levels above a field or level of the outside, the outermost first.
    fn sparse_levels(&mut self, obj: Obj) -> Result<Vec<SparseLevel>> {
        let found = self.world.attribute(obj, "_sparse_levels").map_err(|e| self.host_error(e))?;
        let Some(found) = found else { return Ok(Vec::new()) };
        let found = self.lift(found);
        let Some(items) = found.items().map(<[Value]>::to_vec) else { return Ok(Vec::new()) };
        items.iter().map(|level| self.sparse_level(level)).collect()
    }

    fn sparse_level(&mut self, level: &Value) -> Result<SparseLevel> {
        if let Value::Obj(obj) = *level
            && let Entity::SparseCells { state, index } = self.world.entity(obj)
        {
            let state = self.lift(state);
            if let Some(state) = self.as_array(&state)? {
                return Ok(SparseLevel { obj, state, index });
            }
        }
        self.err(Code::Type, "this is not a sparse level")
    }

    /// Remembers that stores to a field activate cells.
    pub(super) fn add_activation(&mut self, buffer: BufferId, obj: Obj) -> Result<()> {
        let levels = self.sparse_levels(obj)?;
        if !levels.is_empty() {
            self.activations.fields.insert(buffer, levels);
        }
        Ok(())
    }

    /// The active cells that a loop over a field or level visits; `None` if no level is sparse.
    pub(super) fn active_cells(&mut self, iterable: &Value) -> Result<Option<ActiveCells>> {
        let obj = match iterable {
            Value::Obj(obj) => *obj,
            Value::Array(buffer) => match self.buffer_objects[buffer.index()] {
                Some(obj) => obj,
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        let axes = match self.world.entity(obj) {
            Entity::Field(desc) if desc.is_sparse => {
                desc.offset.iter().zip(&desc.shape).map(|(first, extent)| (*first, *extent as i64)).collect()
            }
            Entity::Opaque => {
                let Some(ndrange) = self.host_ndrange(obj)? else { return Ok(None) };
                let extent = |(begin, end): &(Value, Value)| match (begin, end) {
                    (Value::Int(begin), Value::Int(end)) => (*begin as i64, (*end - *begin) as i64),
                    _ => (0, 0),
                };
                ndrange.dims.iter().map(extent).collect()
            }
            _ => return Ok(None),
        };
        let Some(level) = self.sparse_levels(obj)?.pop() else { return Ok(None) };
        let parts = self.attribute(&Value::Obj(level.obj), "level")?;
        let cells = self.attribute(&parts, "cells")?;
        let Some(cells) = self.as_array(&cells)? else { return Ok(None) };
        Ok(Some(ActiveCells { level, cells, axes }))
    }

    /// Lists the cells that are active now. Returns the extents of the loop: the number of cells, and the extents of
    /// the elements in a cell.
    pub(super) fn list_active_cells(&mut self, cells: &ActiveCells) -> Result<Vec<ValueId>> {
        if !self.at_top_level() {
            return self.err(
                Code::Syntax,
                "a loop over sparse cells (struct_for) must be at the top level of a kernel, not in a loop or branch",
            );
        }
        let of = Value::Obj(cells.level.obj);
        let level = self.attribute(&of, "level")?;
        let lister = self.attribute(&level, "list_active_cells")?;
        self.call(&lister, vec![of], Vec::new())?;
        let count = self.attribute(&level, "count")?;
        let count = self.subscript(&count, vec![Value::None])?;
        let count = self.rt(&count)?;
        let inner: Vec<ValueId> = cells.level.inner_loops().map(|d| self.b.int(d.extent as i64, Scalar::I32)).collect();
        Ok([count].into_iter().chain(inner).collect())
    }

    /// The field indices of an iteration: `iteration` is a position in the list, then indices within the cell. Entries
    /// of the list are i64 if the elements of a dynamic level have numbers of more than 31 bits.
    pub(super) fn indices_of_listed(&mut self, cells: &ActiveCells, iteration: &[ValueId]) -> Vec<ValueId> {
        let s = Scalar::I32;
        let (slot, within) = iteration.split_first().expect("compiler bug: a loop over a list has places");
        let entry = self.buffers[cells.cells.index()].elem.clone();
        let mut held = entry.scalar().expect("compiler bug: the list of active cells has scalars");
        let listed = self.b.push(Op::BufferAddr(cells.cells, vec![*slot]), Type::Ref(Box::new(entry)));
        let mut rest = self.b.load(listed);
        let mut digits: Vec<(IndexDigit, ValueId)> = Vec::new();
        let number: Vec<&IndexDigit> = cells.level.index.digits.iter().chain(&cells.level.index.list).collect();
        for (place, digit) in number.into_iter().enumerate().rev() {
            if digit.extent == 1 {
                continue;
            }
            let part = if place == 0 {
                rest
            } else {
                let extent = self.b.int(digit.extent as i64, held);
                let part = self.b.binary(BinaryOp::Rem, rest, extent);
                rest = self.b.binary(BinaryOp::Div, rest, extent);
                let part = self.b.cast(part, s);
                // Without its last digit, the element in a list, the number fits an i32.
                rest = self.b.cast(rest, s);
                held = s;
                part
            };
            digits.push((*digit, part));
        }
        digits.extend(cells.level.inner_loops().copied().zip(within.iter().copied()));
        let mut indices: Vec<Option<ValueId>> = vec![None; cells.axes.len()];
        for (digit, mut part) in digits {
            if digit.weight != 1 {
                let weight = self.b.int(digit.weight as i64, s);
                part = self.b.binary(BinaryOp::Mul, part, weight);
            }
            let index = &mut indices[digit.axis];
            *index = Some(index.map_or(part, |before| self.b.binary(BinaryOp::Add, before, part)));
        }
        let mut all = Vec::new();
        for ((begin, _), index) in cells.axes.iter().zip(indices) {
            let begin = self.b.int(*begin, s);
            all.push(index.map_or(begin, |index| self.b.binary(BinaryOp::Add, begin, index)));
        }
        self.activations.loops.push((cells.level.state, all.clone()));
        all
    }

    /// `x[i].append(value)`, `x[i].length()` and `x[i].deactivate()`, for a field placed directly below a dynamic
    /// level. The indices name the list. `None` for every other expression.
    pub(super) fn lower_list_operation(&mut self, func: &Expr, arguments: &Arguments) -> Result<Option<Value>> {
        let ExprKind::Attribute(base, name) = &func.kind else { return Ok(None) };
        if !matches!(name.as_str(), "append" | "length" | "deactivate") {
            return Ok(None);
        }
        let (array, index) = match &base.kind {
            ExprKind::Subscript(array, index) => (array.as_ref(), Some(index)),
            _ => (base.as_ref(), None),
        };
        if !matches!(array.kind, ExprKind::Name(_) | ExprKind::Attribute(..)) {
            return Ok(None);
        }
        let Value::Obj(mut field) = self.lower_expr(array)? else { return Ok(None) };
        while let Entity::StructField(members) = self.world.entity(field) {
            let Some((_, first)) = members.first() else { return Ok(None) };
            field = *first;
        }
        if !matches!(self.world.entity(field), Entity::Field(desc) if desc.is_sparse) {
            return Ok(None);
        }
        let Some(level) = self.sparse_levels(field)?.pop() else { return Ok(None) };
        if level.index.list.is_none() || level.index.inner.iter().any(|d| d.extent > 1) {
            return Ok(None);
        }
        let index = index.map_or(Ok(Vec::new()), |index| self.lower_index(index))?;
        let of = Value::Obj(level.obj);
        let parts = self.attribute(&of, "level")?;
        let operation = self.attribute(&parts, name)?;
        let (values, keywords) = self.lower_arguments(&operation, arguments)?;
        let args = [of, Value::tuple(index)].into_iter().chain(values).collect();
        self.call(&operation, args, keywords).map(Some)
    }

    /// The scalars of a value, as a list.
    pub(super) fn lower_flat_values(&mut self, call: Call) -> Result<Value> {
        let mut found = Vec::new();
        self.flatten(&call.args[0], &mut found)?;
        Ok(Value::list(found))
    }

    fn flatten(&mut self, value: &Value, found: &mut Vec<Value>) -> Result<()> {
        match self.runtime_type(value) {
            Some(Type::Scalar(_)) => found.push(value.clone()),
            Some(ty) if ty.is_tensor() => {
                let v = self.rt(value)?;
                found.extend((0..ty.leaf_count() as u32).map(|i| Value::Rt(self.b.extract(v, i))));
            }
            _ if matches!(value, Value::None) => {}
            _ => self.unpack(value)?.iter().try_for_each(|part| self.flatten(part, found))?,
        }
        Ok(())
    }

    /// Whether the cell at these indices is active other than by a store of this kernel to a gradient.
    pub(super) fn was_active(&mut self, cells: &ActiveCells, indices: &[ValueId]) -> ValueId {
        let first: Vec<i64> = cells.axes.iter().map(|(begin, _)| *begin).collect();
        let extents: Vec<i64> = cells.axes.iter().map(|(_, extent)| *extent).collect();
        self.is_cell_active(&cells.level, &Position { indices, first: &first, extents: &extents })
    }

    fn is_cell_active(&mut self, level: &SparseLevel, at: &Position<'_>) -> ValueId {
        let mut state = load_state(&mut self.b, level, at);
        if level.index.list.is_none() {
            let bit = self.b.int(ACTIVE, Scalar::I32);
            state = self.b.binary(BinaryOp::And, state, bit);
        }
        is_active(&mut self.b, level, at, state)
    }

    /// `cell_number(cells, index)`: the number of the word of state.
    pub(super) fn lower_cell_number(&mut self, call: Call) -> Result<Value> {
        let level = self.sparse_level(&call.args[0])?;
        let indices = self.unpack(&call.args[1])?;
        let indices = indices.iter().map(|i| self.rt(i)).collect::<Result<Vec<_>>>()?;
        let ends =
            |axis| level.index.digits.iter().filter(move |d| d.axis == axis).map(|d| (d.weight * d.extent) as i64);
        let extents: Vec<i64> = (0..indices.len()).map(|axis| ends(axis).max().unwrap_or(1)).collect();
        let at = Position { indices: &indices, first: &vec![0; indices.len()], extents: &extents };
        Ok(Value::Rt(state_number(&mut self.b, &level, &at)))
    }

    /// `cell_is_active(cells, index)`: the cells are an item of `_sparse_levels`, the indices count from zero.
    pub(super) fn lower_cell_is_active(&mut self, call: Call) -> Result<Value> {
        let level = self.sparse_level(&call.args[0])?;
        let indices = self.unpack(&call.args[1])?;
        let indices = indices.iter().map(|i| self.rt(i)).collect::<Result<Vec<_>>>()?;
        let at =
            Position { indices: &indices, first: &vec![0; indices.len()], extents: &vec![i64::MAX; indices.len()] };
        Ok(Value::Rt(self.is_cell_active(&level, &at)))
    }
}

/// An element of a field: its indices, and the field's first indices and extents.
struct Position<'a> {
    indices: &'a [ValueId],
    first: &'a [i64],
    extents: &'a [i64],
}

impl Position<'_> {
    fn digit(&self, b: &mut Builder, digit: IndexDigit) -> ValueId {
        let mut index = widen(b, self.indices[digit.axis]);
        let s = b.ty(index).scalar().unwrap_or(Scalar::I32);
        for (op, amount, neutral) in [
            (BinaryOp::Sub, self.first[digit.axis], 0),
            (BinaryOp::Div, digit.weight as i64, 1),
            (BinaryOp::Rem, digit.extent as i64, self.extents[digit.axis] / digit.weight.max(1) as i64),
        ] {
            if amount != neutral {
                let amount = b.int(amount, s);
                index = b.binary(op, index, amount);
            }
        }
        index
    }
}

/// The number of a cell's activation state.
fn state_number(b: &mut Builder, level: &SparseLevel, at: &Position<'_>) -> ValueId {
    let mut number = b.int(0, Scalar::I32);
    for digit in &level.index.digits {
        let part = at.digit(b, *digit);
        let s = b.ty(part).scalar().unwrap_or(Scalar::I32);
        number = b.cast(number, s);
        let extent = b.int(digit.extent as i64, s);
        number = b.binary(BinaryOp::Mul, number, extent);
        number = b.binary(BinaryOp::Add, number, part);
    }
    number
}

/// The address of a cell's activation state.
fn state_address(b: &mut Builder, level: &SparseLevel, at: &Position<'_>) -> ValueId {
    let number = state_number(b, level, at);
    b.push(Op::BufferAddr(level.state, vec![number]), Type::Ref(Box::new(Scalar::I32.into())))
}

fn load_state(b: &mut Builder, level: &SparseLevel, at: &Position<'_>) -> ValueId {
    let address = state_address(b, level, at);
    b.load(address)
}

fn is_active(b: &mut Builder, level: &SparseLevel, at: &Position<'_>, state: ValueId) -> ValueId {
    match level.index.list {
        None => {
            let zero = b.int(0, Scalar::I32);
            b.binary(BinaryOp::Ne, state, zero)
        }
        Some(digit) => {
            let element = at.digit(b, digit);
            let element = b.cast(element, Scalar::I32);
            b.binary(BinaryOp::Gt, state, element)
        }
    }
}

/// Which stores activate cells, and which cells.
#[derive(Debug, Clone, Default)]
pub struct Activations {
    /// The fields below sparse levels, with these, the outermost first.
    fields: BTreeMap<BufferId, Vec<SparseLevel>>,
    /// For the loops over active cells: the state of their level, and the indices of an iteration.
    loops: Vec<(BufferId, Vec<ValueId>)>,
    /// The stores are a gradient kernel's.
    by_gradient: bool,
}

impl Activations {
    /// Those of the kernel's derivative, in which stores in loops over active cells are not recognized.
    pub(super) fn of_derivative(self, mode: AutodiffMode) -> Activations {
        Activations { loops: Vec::new(), by_gradient: mode == AutodiffMode::Reverse, ..self }
    }

    /// Activates the cells of each element below sparse levels ahead of a store, an atomic update, or a call of a
    /// function that writes to it by reference. A loop over active cells needs no activation to store to its own cells,
    /// unless the kernel deactivates cells.
    pub fn insert_into(&self, kernel: &mut Kernel) {
        if self.fields.is_empty() {
            return;
        }
        let written: Vec<Vec<bool>> = kernel.functions.iter().map(written_parameters).collect();
        let buffers = kernel.buffers.clone();
        let loops = if self.deactivates(kernel) { &[][..] } else { &self.loops[..] };
        let bit = if self.by_gradient { ACTIVATED_BY_GRADIENT } else { ACTIVE };
        let mut changed: BTreeSet<BufferId> = BTreeSet::new();
        for (number, body) in bodies(kernel).enumerate() {
            rebuild_blocks(body, |b, v| {
                let addresses = match &b.body.inst(v).op {
                    Op::Store(address, _) | Op::Atomic(_, address, _) | Op::AtomicCas(address, ..) => vec![*address],
                    Op::Call(function, args) => {
                        let written = &written[function.index()];
                        args.iter().zip(written).filter(|(_, w)| **w).map(|(a, _)| *a).collect()
                    }
                    _ => Vec::new(),
                };
                for address in addresses {
                    let Some((buffer, indices)) = element_of(&b.body, address) else { continue };
                    let Some(levels) = self.fields.get(&buffer) else { continue };
                    let Layout::Dense { shape, offset, .. } = &buffers[buffer.index()].layout else { continue };
                    let Some(innermost) = levels.last() else { continue };
                    // The kernel's own body comes last.
                    let is_listed = number == written.len() && loops.contains(&(innermost.state, indices.clone()));
                    if !is_listed {
                        let extents: Vec<i64> = shape.iter().map(|n| *n as i64).collect();
                        activate(b, levels, &Position { indices: &indices, first: offset, extents: &extents }, bit);
                        changed.extend(levels.iter().filter(|l| l.index.list.is_none()).map(|l| l.state));
                    }
                }
                b.place(v);
            });
        }
        if self.by_gradient {
            changed.into_iter().for_each(|state| end_activation_by_gradient(kernel, state));
        }
    }

    /// Whether the kernel stores to the state of one of the levels. Code that lists or activates cells does not count.
    fn deactivates(&self, kernel: &mut Kernel) -> bool {
        let mut stored: BTreeSet<BufferId> = BTreeSet::new();
        for body in bodies(kernel) {
            for &v in body.blocks.iter().flatten() {
                if let Op::Store(address, _) = &body.inst(v).op
                    && let Some((buffer, _)) = element_of(body, *address)
                {
                    stored.insert(buffer);
                }
            }
        }
        let of = |b: &BufferId| &kernel.buffers[b.index()];
        let states = self.fields.values().flatten().map(|level| of(&level.state));
        let stored: Vec<_> = stored.iter().map(of).filter(|b| b.is_metadata).collect();
        states.into_iter().any(|state| stored.iter().any(|b| b.shares_memory(state)))
    }
}

/// Activates the cells that hold an element if the innermost one is inactive: the cells around an active cell are
/// active.
fn activate(b: &mut Builder, levels: &[SparseLevel], at: &Position<'_>, bit: i64) {
    let Some(innermost) = levels.last() else { return };
    let state = load_state(b, innermost, at);
    let active = is_active(b, innermost, at, state);
    let no = b.int(0, Scalar::U1);
    let inactive = b.binary(BinaryOp::Eq, active, no);
    push_if(b, inactive, |b| {
        let one = b.int(1, Scalar::I32);
        for level in levels {
            let (op, value) = match level.index.list {
                None => (AtomicOp::Or, b.int(bit, Scalar::I32)),
                Some(digit) => {
                    let element = at.digit(b, digit);
                    let element = b.cast(element, Scalar::I32);
                    (AtomicOp::Max, b.binary(BinaryOp::Add, element, one))
                }
            };
            let address = state_address(b, level, at);
            b.push(Op::Atomic(op, address, value), Scalar::I32.into());
        }
    });
}

/// Appends a loop that converts `ACTIVATED_BY_GRADIENT` to `ACTIVE` in all states of a level.
fn end_activation_by_gradient(kernel: &mut Kernel, state: BufferId) {
    let Layout::Dense { shape, .. } = &kernel.buffers[state.index()].layout else { return };
    let states = shape.iter().product::<u64>() as i64;
    let mut b = Builder::new();
    b.body = std::mem::take(&mut kernel.body);
    b.set_cursor(b.body.root);
    let range = Range { begin: b.int(0, Scalar::I32), end: b.int(states, Scalar::I32) };
    let block = b.body.add_block();
    let config = LoopConfig { name: Some("activate_cells".into()), ..LoopConfig::default() };
    let each = b.push(Op::For(Box::new(ForLoop::parallel(vec![range], block, config))), Type::Unit);
    b.set_cursor(block);
    let number = b.push(Op::LoopIndex(each, 0), Scalar::I32.into());
    let address = b.push(Op::BufferAddr(state, vec![number]), Type::Ref(Box::new(Scalar::I32.into())));
    let (old, bit) = (b.load(address), b.int(ACTIVATED_BY_GRADIENT, Scalar::I32));
    let found = b.binary(BinaryOp::Eq, old, bit);
    push_if(&mut b, found, |b| {
        let active = b.int(ACTIVE, Scalar::I32);
        b.store(address, active);
    });
    kernel.body = b.body;
}

/// The buffer element that contains an address.
fn element_of(body: &Body, address: ValueId) -> Option<(BufferId, Vec<ValueId>)> {
    match &body.inst(address).op {
        Op::BufferAddr(buffer, indices) => Some((*buffer, indices.clone())),
        Op::ElementAddr(base, _) | Op::MemberAddr(base, _) => element_of(body, *base),
        _ => None,
    }
}

/// The reference parameters that a function may write through.
fn written_parameters(function: &Function) -> Vec<bool> {
    let body = &function.body;
    let parameter = |mut address: ValueId| loop {
        match &body.inst(address).op {
            Op::Param(n) => return Some(*n as usize),
            Op::ElementAddr(base, _) | Op::MemberAddr(base, _) => address = *base,
            _ => return None,
        }
    };
    let mut written = vec![false; function.params.len()];
    for inst in body.blocks.iter().flatten() {
        let addresses = match &body.inst(*inst).op {
            Op::Store(address, _) | Op::Atomic(_, address, _) | Op::AtomicCas(address, ..) => vec![*address],
            Op::Call(_, args) => args.clone(),
            _ => Vec::new(),
        };
        for n in addresses.into_iter().filter_map(parameter) {
            written[n] |= matches!(function.params[n], Type::Ref(_));
        }
    }
    written
}
