//! Cooperative thread operations: barriers, fences and votes of a block, exchanges within a subgroup.
//!
//! All threads of the scope reach a barrier; the verifier and the front end ensure that.

use octants_ir::{GridValue, Op, SubgroupOp, TargetInfo, ThreadScope, ValueId};

use crate::emit::{IntCmp, V};
use crate::lowering::Lowering;

impl Lowering<'_, '_> {
    /// The value of an operation of threads; `None` for one that yields nothing.
    pub fn thread_op(&self, op: &Op) -> Option<Vec<V>> {
        let (e, target) = (self.e, self.u.target);
        match op {
            Op::Grid(value) => Some(vec![target.grid_value(e, *value)]),
            Op::Barrier(scope) => {
                target.barrier(e, *scope);
                None
            }
            Op::Fence(scope) => {
                target.fence(e, *scope);
                None
            }
            Op::BlockCount(condition) => Some(vec![self.block_count(self.value(*condition))]),
            Op::Subgroup(op, operands) => Some(self.subgroup(*op, operands)),
            Op::LoadMatrices(a, transposed) => Some(target.load_matrices(e, self.first_pointer(*a), *transposed)),
            Op::CopyAsync(to, from) => {
                target.copy_async(e, self.first_pointer(*to), self.first_pointer(*from));
                None
            }
            Op::AwaitCopies => {
                target.await_copies(e);
                None
            }
            _ => panic!("compiler bug: not a thread operation"),
        }
    }

    /// The pointer to the first scalar at an address.
    fn first_pointer(&self, address: ValueId) -> V {
        let place = self.place(address);
        self.leaf_pointer(&place, &place.shape.leaves[0])
    }

    /// A barrier of the block; yields for how many of its threads a condition holds.
    fn block_count(&self, condition: V) -> V {
        let (e, target) = (self.e, self.u.target);
        // A block has at most 1,024 threads, a subgroup at least 32.
        let words = target.block_memory(e, TargetInfo::BLOCK_COUNT_BYTES / 4);
        let lane = target.grid_value(e, GridValue::Lane);
        let thread = target.grid_value(e, GridValue::Thread);
        let bits = e.i32c(i64::from(target.warp_bits()));
        let own = e.lshr(thread, bits);
        // The last subgroup may be partial.
        let last = e.sub(target.grid_value(e, GridValue::BlockSize), e.i32c(1));
        let subgroups = e.add(e.lshr(last, bits), e.i32c(1));
        let votes = e.intrinsic("llvm.ctpop", e.i64, &[target.ballot(e, condition)]);
        let (give, given) = (self.new_block(c"give"), self.new_block(c"given"));
        e.cond_br(e.icmp(IntCmp::LLVMIntEQ, lane, e.i32c(0)), give, given);
        e.position(give);
        e.store(e.gep(e.i32, words, e.zext(own, e.i64)), e.trunc(votes, e.i32), 4);
        e.br(given);
        e.position(given);
        target.barrier(e, ThreadScope::Block);
        let (head, add, counted) = (self.new_block(c"count"), self.new_block(c"count.add"), self.new_block(c"counted"));
        e.br(head);
        e.position(head);
        let (number, sum) = (e.phi(e.i32), e.phi(e.i32));
        e.add_incoming(number, e.i32c(0), given);
        e.add_incoming(sum, e.i32c(0), given);
        e.cond_br(e.icmp(IntCmp::LLVMIntULT, number, subgroups), add, counted);
        e.position(add);
        let votes = e.load(e.i32, e.gep(e.i32, words, e.zext(number, e.i64)), 4);
        e.add_incoming(number, e.add(number, e.i32c(1)), add);
        e.add_incoming(sum, e.add(sum, votes), add);
        e.br(head);
        e.position(counted);
        // The memory may be written again when all threads have read it.
        target.barrier(e, ThreadScope::Block);
        sum
    }

    /// An operation of the subgroup's threads.
    fn subgroup(&self, op: SubgroupOp, operands: &[ValueId]) -> Vec<V> {
        let (e, target) = (self.e, self.u.target);
        let condition = || self.value(operands[0]);
        let is_zero = |mask: V| e.icmp(IntCmp::LLVMIntEQ, mask, e.i64c(0));
        match op {
            SubgroupOp::Shuffle => {
                let lane = self.value(operands[1]);
                self.of_other(operands[0], &|s, v| target.shuffle(e, s, v, lane))
            }
            SubgroupOp::ShuffleXor => {
                let bits = self.value(operands[1]);
                self.of_other(operands[0], &|s, v| target.shuffle_xor(e, s, v, bits))
            }
            SubgroupOp::ShuffleUp | SubgroupOp::ShuffleDown => {
                let lane = target.grid_value(e, GridValue::Lane);
                let size = target.grid_value(e, GridValue::SubgroupSize);
                let distance = self.value(operands[1]);
                let other = if op == SubgroupOp::ShuffleUp { e.sub(lane, distance) } else { e.add(lane, distance) };
                // As an unsigned number, an index below zero is also beyond the last one.
                let source = e.select(e.icmp(IntCmp::LLVMIntULT, other, size), other, lane);
                let by = if op == SubgroupOp::ShuffleUp { e.sub(e.i32c(0), distance) } else { distance };
                self.of_other(operands[0], &|s, v| target.shuffle_by(e, s, v, by, source))
            }
            SubgroupOp::Ballot => vec![target.ballot(e, condition())],
            SubgroupOp::Any => vec![e.not(is_zero(target.ballot(e, condition())))],
            SubgroupOp::All => vec![is_zero(target.ballot(e, e.not(condition())))],
            SubgroupOp::AllHere => vec![target.holds_for_all(e, condition())],
            SubgroupOp::IsWhole => vec![target.is_whole_warp(e)],
            SubgroupOp::ProductF16 | SubgroupOp::ProductTf32 | SubgroupOp::ProductF32 | SubgroupOp::ProductF64 => {
                let kind = op.product().expect("compiler bug: not a matrix product");
                let [a, b, c] = [0, 1, 2].map(|i| self.leaves(operands[i]));
                target.product(e, kind, [&a, &b, &c])
            }
        }
    }

    /// Moves each scalar of a value between threads.
    fn of_other(&self, value: ValueId, move_scalar: &dyn Fn(octants_ir::Scalar, V) -> V) -> Vec<V> {
        let s = self.scalar_of(value);
        self.leaves(value).into_iter().map(|leaf| move_scalar(s, leaf)).collect()
    }
}
