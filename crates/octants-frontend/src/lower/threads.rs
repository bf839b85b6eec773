//! Built-in functions for threads, `qd.simt`: positions in the grid, barriers, fences, subgroup operations, and shared
//! arrays.
//!
//! The Python part of `qd.simt` is a library in the kernel language on top of these.

use octants_diag::{Code, Diagnostic, Result};
use octants_ir::{
    BinaryOp, Buffer, BufferId, ComponentLayout, GridValue, Layout, MemorySpace, Op, Placement, Scalar, SubgroupOp,
    TextPart, ThreadScope, Type, ValueId,
};

use super::builtins::Call;
use super::{LoopKind, Lowerer};
use crate::arith;
use crate::arith::type_name;
use crate::value::Value;

impl Lowerer<'_> {
    /// A position of the thread, or an extent of the grid, by the name after `simt.`.
    pub(super) fn lower_grid_value(&mut self, call: Call) -> Result<Value> {
        let value = match call.name.as_str() {
            "simt.block_index" => GridValue::Block,
            "simt.block_size" => GridValue::BlockSize,
            "simt.blocks" => GridValue::Blocks,
            "simt.lane" => GridValue::Lane,
            "simt.thread_index" => GridValue::Thread,
            other => panic!("compiler bug: {other} is not a position in the grid"),
        };
        self.check_in_parallel_loop(&call)?;
        Ok(Value::Rt(self.b.push(Op::Grid(value), Type::I32)))
    }

    pub(super) fn lower_barrier(&mut self, call: Call, scope: ThreadScope) -> Result<Value> {
        self.check_in_parallel_loop(&call)?;
        self.b.push(Op::Barrier(scope), Type::Unit);
        Ok(Value::None)
    }

    pub(super) fn lower_fence(&mut self, scope: ThreadScope) -> Result<Value> {
        self.b.push(Op::Fence(scope), Type::Unit);
        Ok(Value::None)
    }

    /// A barrier that counts the threads of the block whose predicate is not zero.
    pub(super) fn lower_block_count(&mut self, call: Call) -> Result<Value> {
        self.check_in_parallel_loop(&call)?;
        let condition = self.condition("if", &call.args[0])?;
        Ok(Value::Rt(self.b.push(Op::BlockCount(condition), Type::I32)))
    }

    /// `require_block_size(n)`: the code runs in blocks of that size. `resolve_block_dims` reads and removes the
    /// assertion.
    pub(super) fn lower_required_block_size(&mut self, call: Call) -> Result<Value> {
        self.check_in_parallel_loop(&call)?;
        let size = match call.args[0] {
            Value::Int(size) => i64::try_from(size).ok(),
            _ => None,
        };
        let Some(size) = size else {
            return self.err(Code::Type, "block_dim must be an integer known at compile time");
        };
        let given = self.b.push(Op::Grid(GridValue::BlockSize), Type::I32);
        let required = self.b.int(size, Scalar::I32);
        let is_same = self.b.binary(BinaryOp::Eq, given, required);
        self.b.push(Op::Assert(is_same, vec![TextPart::Text("block_dim".into())]), Type::Unit);
        Ok(Value::None)
    }

    /// A value of another thread of the subgroup.
    pub(super) fn lower_shuffle(&mut self, call: Call, op: SubgroupOp) -> Result<Value> {
        self.check_in_parallel_loop(&call)?;
        let value = self.rt(&call.args[0])?;
        let ty = self.b.ty(value).clone();
        if ty.scalar().is_none() {
            let what = type_name(&ty);
            return self.err(Code::Type, format!("a shuffle takes a scalar, vector or matrix, not {what}"));
        }
        let other = self.lane_operand(&call.args[1])?;
        Ok(Value::Rt(self.b.push(Op::Subgroup(op, vec![value, other]), ty)))
    }

    /// A bit for each thread of the subgroup whose predicate is not zero: u64.
    pub(super) fn lower_ballot(&mut self, call: Call) -> Result<Value> {
        self.check_in_parallel_loop(&call)?;
        let condition = self.condition("if", &call.args[0])?;
        Ok(Value::Rt(self.b.push(Op::Subgroup(SubgroupOp::Ballot, vec![condition]), Scalar::U64.into())))
    }

    /// `SharedArray(shape, dtype)`: an array of the block.
    pub(super) fn lower_shared_array(&mut self, call: Call) -> Result<Value> {
        self.check_in_parallel_loop(&call)?;
        let argument = |i: usize, name: &str| call.args.get(i).cloned().or_else(|| call.keyword(name));
        let (Some(shape), Some(dtype)) = (argument(0, "shape"), argument(1, "dtype")) else {
            return self.err(Code::Type, "`SharedArray` takes a shape and a type");
        };
        let shape = self.shared_shape(&shape)?;
        let elem = self.type_of_value(&dtype)?;
        let Some(scalar) = elem.scalar() else {
            let what = type_name(&elem);
            return self.err(
                Code::Type,
                format!("the elements of a `SharedArray` must be scalars, vectors or matrices, not {what}"),
            );
        };
        let element = elem.leaf_count() as u64 * u64::from(scalar.bytes());
        let bytes = shape.iter().fold(element, |n, extent| n.saturating_mul(*extent));
        self.check_shared_bytes(bytes)?;
        let root = self.shared_roots;
        self.shared_roots += 1;
        let component = |i: u64| ComponentLayout {
            root,
            place: Placement::row_major(i * u64::from(scalar.bytes()), &shape, element),
        };
        let components = (0..elem.leaf_count() as u64).map(component).collect();
        let (ndim, offset) = (shape.len() as u32, vec![0; shape.len()]);
        let layout = Layout::Dense { shape, offset, components };
        let name = self.source_text(self.b.span);
        self.buffers.push(Buffer {
            name,
            elem,
            ndim,
            layout,
            space: MemorySpace::Shared,
            short_offsets: true,
            is_metadata: false,
        });
        self.buffer_captures.push(None);
        self.buffer_objects.push(None);
        Ok(Value::Array(BufferId((self.buffers.len() - 1) as u32)))
    }

    /// The arrays of a loop fit into a block's memory, each at a multiple of 16 bytes.
    fn check_shared_bytes(&mut self, bytes: u64) -> Result<()> {
        let (before, most) = (self.shared_bytes, self.options.shared_bytes);
        self.shared_bytes = before.saturating_add(bytes.saturating_add(15) / 16 * 16);
        if self.shared_bytes <= most {
            return Ok(());
        }
        let others = if before > 0 { format!(" (plus {before} bytes of other shared arrays)") } else { String::new() };
        Err(Diagnostic::new(
            Code::Value,
            self.b.span,
            format!(
                "a `SharedArray` of {bytes} bytes{others} exceeds the {most} bytes of shared memory that a block has"
            ),
        )
        .with_hint("`qd.lang.impl.get_max_shared_memory_bytes()` returns the limit"))
    }

    /// Extents, known at compile time and above zero.
    fn shared_shape(&mut self, shape: &Value) -> Result<Vec<u64>> {
        let items = match shape.items() {
            Some(items) => items.to_vec(),
            None => vec![shape.clone()],
        };
        let extent = |v: &Value| self.known_integer(v).filter(|n| *n > 0).and_then(|n| u64::try_from(n).ok());
        match items.iter().map(extent).collect::<Option<Vec<u64>>>() {
            Some(extents) if !extents.is_empty() => Ok(extents),
            _ => self.err(
                Code::Value,
                "the shape of a `SharedArray` must be one or more positive integers known at compile time",
            ),
        }
    }

    /// The index of a thread in its subgroup, or a distance between two: i32.
    fn lane_operand(&mut self, v: &Value) -> Result<ValueId> {
        let v = self.rt(v)?;
        match self.b.ty(v) {
            Type::Scalar(s) if s.is_int() => arith::cast(&mut self.b, v, Scalar::I32),
            other => {
                let what = type_name(other);
                self.err(Code::Type, format!("a thread index or offset must be an integer, not {what}"))
            }
        }
    }

    /// `group_size()`: the threads of a subgroup, at compile time.
    pub(super) fn lower_group_size(&mut self) -> Result<Value> {
        self.check_has_blocks("group_size")?;
        Ok(Value::Int(self.options.subgroup_size.into()))
    }

    /// `log2_group_size()`: the binary logarithm of the threads of a subgroup, at compile time.
    pub(super) fn lower_log2_group_size(&mut self) -> Result<Value> {
        self.check_has_blocks("log2_group_size")?;
        Ok(Value::Int(self.options.subgroup_size.ilog2().into()))
    }

    fn check_has_blocks(&mut self, name: &str) -> Result<()> {
        if self.options.subgroup_size > 0 {
            return Ok(());
        }
        Err(Diagnostic::new(Code::Compilation, self.b.span, format!("`{name}` of `qd.simt` needs a GPU"))
            .with_hint("CPU threads do not form blocks: use qd.init(arch=qd.gpu), or a loop without `qd.simt`"))
    }

    /// The code is in a parallel loop, or in a function, which one may call.
    pub(super) fn may_be_in_parallel_loop(&self) -> bool {
        let in_loop = self.frames.iter().any(|f| f.loops.iter().any(|l| matches!(l, LoopKind::Parallel)));
        in_loop || !self.in_kernel_body
    }

    /// Only the threads of a parallel loop form blocks. In a function this is left to its callers.
    pub(super) fn check_in_parallel_loop(&mut self, call: &Call) -> Result<()> {
        let name = call.name.trim_start_matches("simt.");
        self.check_has_blocks(name)?;
        if self.may_be_in_parallel_loop() {
            return Ok(());
        }
        Err(Diagnostic::new(
            Code::Syntax,
            self.b.span,
            format!("`{name}` of `qd.simt` can only be used inside a parallel loop"),
        )
        .with_hint("blocks and subgroups consist of the threads that run a parallel loop"))
    }
}
