//! Array slices for the tiles of `qd.simt`: each thread of a subgroup holds a row of a tile, which it loads from and
//! stores to a rectangle of an array. `v = a[r0:r1, c]` gives each thread one element of a column.
//!
//! The loads, stores and updates are written in Python, as methods of the tile's type.

use std::rc::Rc;

use octants_diag::{Code, Diagnostic, Result};
use octants_ir::{BinaryOp, BufferId, GridValue, Op, Type};

use super::Lowerer;
use super::builtins::Call;
use crate::arith::{self, Comparison, Operator};
use crate::value::{TileOperand, Value};

/// Methods of a tile's type; loads and stores of matrices, and of one matrix of several.
const LOADS: [&str; 2] = ["_load", "_load3d"];
const STORES: [&str; 2] = ["_store", "_store3d"];
const SUBTRACT_OUTER: &str = "_ger_sub";
const ADD_PRODUCT: &str = "_add_product";
const SUBTRACT_PRODUCT: &str = "_subtract_product";

impl Lowerer<'_> {
    /// `a[r0:r1, c0:c1]`, `a[i, r0:r1, c0:c1]`: a rectangle; `a[r0:r1, c]`, `a[i, r0:r1, c]`: each thread's element of
    /// a column.
    pub(super) fn array_slice(&mut self, array: BufferId, index: &[Value]) -> Result<Value> {
        let is_slice = |v: &Value| matches!(v, Value::Slice(_));
        let forms = index.iter().map(is_slice).collect::<Vec<_>>();
        let [.., rows, columns] = index else { return self.refuse_slice(array) };
        let has_lanes = self.options.subgroup_size > 0 && self.may_be_in_parallel_loop();
        if !has_lanes || !matches!(forms[..], [true, _] | [false, true, _]) {
            return self.refuse_slice(array);
        }
        let batch = match index {
            [batch, _, _] => Some(self.detach(batch.clone())?),
            _ => None,
        };
        let rows = self.slice_bounds(rows)?;
        if !is_slice(columns) {
            return self.column_element(array, batch, rows, columns);
        }
        let columns = self.slice_bounds(columns)?;
        Ok(Value::Tile(Rc::new(TileOperand::Slice { array, batch, rows, columns })))
    }

    fn refuse_slice(&mut self, array: BufferId) -> Result<Value> {
        let name = self.buffers[array.index()].name.clone();
        let shown = if name.is_empty() { String::from("a field") } else { format!("`{name}`") };
        Err(Diagnostic::new(
            Code::Syntax,
            self.b.span,
            format!("arrays and fields cannot be sliced in a kernel: {shown}"),
        )
        .with_hint(
            "on a GPU, a tile of `qd.simt` can load `a[r0:r1, c0:c1]`, and `a[r0:r1, c]` is a column for a tile",
        ))
    }

    /// Begin and end of a slice, both given.
    fn slice_bounds(&mut self, slice: &Value) -> Result<[Value; 2]> {
        match slice {
            Value::Slice(parts) => match &**parts {
                [Value::None, ..] | [_, Value::None, _] => {
                    self.err(Code::Syntax, "a slice for a tile needs both bounds: `a[r0:r1, c0:c1]`")
                }
                [begin, end, Value::None] => Ok([self.detach(begin.clone())?, self.detach(end.clone())?]),
                _ => self.err(Code::Syntax, "a slice for a tile cannot have a step"),
            },
            _ => panic!("compiler bug: not a slice"),
        }
    }

    /// The element in a column that is the thread's: in row `begin + lane`, zero below the slice or the array.
    fn column_element(
        &mut self,
        array: BufferId,
        batch: Option<Value>,
        rows: [Value; 2],
        column: &Value,
    ) -> Result<Value> {
        let elem = self.buffers[array.index()].elem.clone();
        let ndim = self.buffers[array.index()].ndim;
        if ndim != 2 + u32::from(batch.is_some()) {
            let given = [Value::Int(0), Value::Int(0), Value::Int(0)];
            return self.element(array, &given[..2 + usize::from(batch.is_some())]);
        }
        let lane = self.b.push(Op::Grid(GridValue::Lane), Type::I32);
        let extent = self.extent(array, ndim - 2);
        let [begin, end, extent] = [&rows[0], &rows[1], &extent].map(|v| self.rt(v));
        let row = arith::binary(&mut self.b, &self.options, Operator::Add, begin?, lane)?;
        let below_end = arith::compare(&mut self.b, &self.options, Comparison::Lt, row, end?)?;
        let in_array = arith::compare(&mut self.b, &self.options, Comparison::Lt, row, extent?)?;
        let inside = self.b.binary(BinaryOp::And, below_end, in_array);
        let zero = self.zero(&elem);
        let local = self.new_local("column", zero);
        let index = batch.into_iter().chain([Value::Rt(row), column.clone()]).collect::<Vec<_>>();
        let (block, ()) = self.in_block(|s| {
            let element = s.element(array, &index)?;
            let value = s.rt(&element)?;
            let addr = s.b.local_addr(local);
            s.b.store(addr, value);
            Ok(())
        })?;
        let (otherwise, ()) = self.in_block(|_| Ok(()))?;
        self.b.push(Op::If(inside, block, otherwise), Type::Unit);
        Ok(Value::Var(local))
    }

    /// `qd.outer(a, b)`: an update of a tile.
    pub(super) fn lower_outer(&mut self, call: Call) -> Result<Value> {
        let [a, b] = [&call.args[0], &call.args[1]].map(|v| self.rt(v));
        Ok(Value::Tile(Rc::new(TileOperand::Outer(Value::Rt(a?), Value::Rt(b?)))))
    }

    /// The value is a tile: a struct whose type has the methods of one.
    pub(super) fn is_tile(&mut self, value: &Value) -> Result<bool> {
        let Some(Type::Struct(ty)) = self.runtime_type(value) else { return Ok(false) };
        let Some(object) = self.struct_objects.get(&ty).copied() else { return Ok(false) };
        Ok(self.find_struct_method(object, LOADS[0])?.is_some())
    }

    /// `t[:] = a[r0:r1, c0:c1]`, `a[r0:r1, c0:c1] = t`. `None` when neither side is a slice.
    pub(super) fn assign_tile(&mut self, target: &Value, value: &Value) -> Result<Option<()>> {
        let (tile, methods, operand) = match (target, value) {
            (Value::Tile(operand), tile) => (tile, STORES, operand),
            (tile, Value::Tile(operand)) => (tile, LOADS, operand),
            _ => return Ok(None),
        };
        let TileOperand::Slice { array, batch, rows: [r0, r1], columns: [c0, c1] } = &**operand else {
            return self.refuse_operand(operand);
        };
        if !self.is_tile(tile)? {
            let what = self.describe(tile);
            return self.err(
                Code::Type,
                format!("a slice of an array can only be loaded into or stored from a tile, not {what}"),
            );
        }
        let bounds = [r0, r1, c0, c1].map(Value::clone);
        let args = [Value::Array(*array)].into_iter().chain(batch.clone()).chain(bounds).collect();
        let method = methods[usize::from(batch.is_some())];
        self.call_tile_method(tile, method, args).map(Some)
    }

    /// `t -= qd.outer(a, b)`. `None` if the value is not an operand of tiles.
    pub(super) fn update_tile(&mut self, target: &Value, op: Operator, value: &Value) -> Result<Option<()>> {
        let Value::Tile(operand) = value else { return Ok(None) };
        let method = match (&**operand, op) {
            (TileOperand::Outer(..), Operator::Sub) => SUBTRACT_OUTER,
            (TileOperand::Product(..), Operator::Add) => ADD_PRODUCT,
            (TileOperand::Product(..), Operator::Sub) => SUBTRACT_PRODUCT,
            _ => return self.refuse_operand(operand),
        };
        match &**operand {
            TileOperand::Outer(a, b) | TileOperand::Product(a, b) if self.is_tile(target)? => {
                self.call_tile_method(target, method, vec![a.clone(), b.clone()]).map(Some)
            }
            operand => self.refuse_operand(operand),
        }
    }

    /// An operator on values known at compile time, or `a @ b` of two tiles, an update of a third one. `None` for
    /// others.
    pub(super) fn fold_or_multiply_tiles(&mut self, op: Operator, a: &Value, b: &Value) -> Result<Option<Value>> {
        if let Some(known) = self.fold_binary(op, a, b)? {
            return Ok(Some(known));
        }
        if op != Operator::MatMul || !(self.is_tile(a)? && self.is_tile(b)?) {
            return Ok(None);
        }
        Ok(Some(Value::Tile(Rc::new(TileOperand::Product(a.clone(), b.clone())))))
    }

    fn refuse_operand<T>(&mut self, operand: &TileOperand) -> Result<T> {
        let text = match operand {
            TileOperand::Outer(..) => "`qd.outer(a, b)` can only be subtracted from a tile: `t -= qd.outer(a, b)`",
            TileOperand::Product(..) => {
                "a product of tiles can only be added to or subtracted from a tile: `t += a @ b` or `t -= a @ b`"
            }
            TileOperand::Slice { .. } => {
                "a slice of an array can only be loaded into a tile (`t[:] = a[r0:r1, c0:c1]`) or stored from one"
            }
        };
        self.err(Code::Type, text)
    }

    fn call_tile_method(&mut self, tile: &Value, method: &str, args: Vec<Value>) -> Result<()> {
        let callee = Value::Method(Rc::new((tile.clone(), method.to_owned())));
        self.call(&callee, args, Vec::new()).map(|_| ())
    }
}
