//! Cooperative thread operations: barriers, fences and votes of a block, exchanges within a subgroup.
//!
//! All threads of the scope reach a barrier; the verifier and the front end ensure that.

use octants_ir::{GridValue, Op as IrOp, Scalar, SubgroupOp, ThreadScope, ValueId};
use rspirv::dr::Operand;
use rspirv::spirv::{BuiltIn, Capability, GroupOperation, MemorySemantics, Op, Scope};

use crate::emit::{Emitter, Id};
use crate::lowering::Lowering;

impl Emitter {
    fn order(&self) -> Operand {
        let order = MemorySemantics::ACQUIRE_RELEASE
            | MemorySemantics::UNIFORM_MEMORY
            | MemorySemantics::WORKGROUP_MEMORY
            | MemorySemantics::MAKE_AVAILABLE
            | MemorySemantics::MAKE_VISIBLE;
        Operand::IdMemorySemantics(self.u32c(order.bits()))
    }

    fn scope(&self, scope: Scope) -> Operand {
        Operand::IdScope(self.u32c(scope as u32))
    }

    /// Waits for all threads of the block; their earlier writes are visible to all.
    pub fn block_barrier(&self) {
        let scope = self.scope(Scope::Workgroup);
        self.effect(Op::ControlBarrier, vec![scope.clone(), scope, self.order()]);
    }

    fn subgroup_barrier(&self) {
        self.need(Capability::GroupNonUniform);
        let scope = self.scope(Scope::Subgroup);
        self.effect(Op::ControlBarrier, vec![scope.clone(), scope, self.order()]);
    }

    pub fn extract_value(&self, v: Id, ty: Id, i: u32) -> Id {
        self.op(Op::CompositeExtract, ty, vec![Operand::IdRef(v), Operand::LiteralBit32(i)])
    }

    /// The first extent of a position or size.
    fn first_extent(&self, what: BuiltIn) -> Id {
        let three = self.vector_type(self.u32(), 3);
        let variable = self.builtin(what, three);
        self.at_entry(|| self.extract_value(self.load(three, variable), self.u32(), 0))
    }
}

impl Lowering<'_, '_> {
    /// The thread's number in its block.
    pub fn thread(&self) -> Id {
        self.e.first_extent(BuiltIn::LocalInvocationId)
    }

    /// The number of the block and how many there are.
    pub fn block_of_grid(&self) -> (Id, Id) {
        (self.e.first_extent(BuiltIn::WorkgroupId), self.e.first_extent(BuiltIn::NumWorkgroups))
    }

    /// The number of the thread among all of the grid, and how many there are.
    pub fn thread_of_grid(&self) -> (Id, Id) {
        let e = self.e;
        let (block, blocks) = self.block_of_grid();
        let size = self.u.block_size;
        (e.add(e.mul(block, size), self.thread()), e.mul(blocks, size))
    }

    fn lane(&self) -> Id {
        self.subgroups(Capability::GroupNonUniform);
        let variable = self.e.builtin(BuiltIn::SubgroupLocalInvocationId, self.e.u32());
        self.e.at_entry(|| self.e.load(self.e.u32(), variable))
    }

    /// Declares operations of subgroups.
    fn subgroups(&self, capability: Capability) {
        if !self.e.features.subgroups {
            self.e.refuse("this device has no votes and shuffles of subgroups in compute shaders");
        }
        self.e.need(Capability::GroupNonUniform);
        self.e.need(capability);
    }

    /// The value of an operation of threads; `None` for one that yields nothing.
    pub fn thread_op(&self, op: &IrOp) -> Option<Vec<Id>> {
        let e = self.e;
        match op {
            IrOp::Grid(value) => Some(vec![match value {
                GridValue::Thread => self.thread(),
                GridValue::BlockSize => self.u.block_size,
                GridValue::Block => self.block_of_grid().0,
                GridValue::Blocks => self.block_of_grid().1,
                GridValue::Lane => self.lane(),
                GridValue::SubgroupSize => e.u32c(e.features.subgroup_size),
            }]),
            // If fences wait, a subgroup barrier would wait for the whole block. The subgroup's threads run in lockstep
            // there, so none is needed.
            IrOp::Barrier(scope @ ThreadScope::Subgroup) if e.features.fences_wait => {
                self.fence(*scope);
                None
            }
            IrOp::Barrier(ThreadScope::Subgroup) => {
                e.subgroup_barrier();
                None
            }
            IrOp::Barrier(_) => {
                e.block_barrier();
                None
            }
            IrOp::Fence(scope) => {
                self.fence(*scope);
                None
            }
            IrOp::BlockCount(condition) => Some(vec![self.block_count(self.value(*condition))]),
            IrOp::Subgroup(op, operands) => Some(self.subgroup(*op, operands)),
            _ => panic!("compiler bug: not a thread operation"),
        }
    }

    /// Orders this thread's accesses as the others of a scope see them.
    ///
    /// Divergent threads may execute a fence. Mesa's lavapipe (22.3) executes a memory barrier as a block barrier, and
    /// ends a block when its first subgroup has ended: subgroups that reached more barriers are never resumed. Its
    /// atomic operations are always sequentially consistent, so an atomic operation that changes nothing acts as a
    /// fence.
    pub fn fence(&self, scope: ThreadScope) {
        let e = self.e;
        if e.features.fences_wait {
            let order = Operand::IdMemorySemantics(e.u32c(MemorySemantics::RELAXED.bits()));
            let word = Operand::IdRef(self.u.block_word(2));
            e.op(Op::AtomicOr, e.u32(), vec![word, e.scope(Scope::Workgroup), order, Operand::IdRef(e.u32c(0))]);
            return;
        }
        let scope = match scope {
            ThreadScope::Subgroup => Scope::Subgroup,
            ThreadScope::Block => Scope::Workgroup,
            ThreadScope::Device => Scope::Device,
        };
        e.effect(Op::MemoryBarrier, vec![e.scope(scope), e.order()]);
    }

    /// A barrier of the block; yields for how many of its threads a condition holds.
    fn block_count(&self, condition: Id) -> Id {
        let e = self.e;
        let word = self.u.block_word(1);
        let first = e.begin_if(e.ieq(self.thread(), e.u32c(0)), false);
        e.store_shared(word, e.u32c(0));
        e.end_if(first);
        e.block_barrier();
        let own = e.begin_if(condition, false);
        let order = Operand::IdMemorySemantics(e.u32c(MemorySemantics::RELAXED.bits()));
        let operands = vec![Operand::IdRef(word), e.scope(Scope::Workgroup), order, Operand::IdRef(e.u32c(1))];
        e.op(Op::AtomicIAdd, e.u32(), operands);
        e.end_if(own);
        e.block_barrier();
        let count = e.load_shared(e.u32(), word);
        // The word may be written again when all threads have read it.
        e.block_barrier();
        count
    }

    /// An operation of the subgroup's threads.
    fn subgroup(&self, op: SubgroupOp, operands: &[ValueId]) -> Vec<Id> {
        let e = self.e;
        let condition = || self.value(operands[0]);
        let size = e.u32c(e.features.subgroup_size);
        let exchange = |other: Id| {
            self.subgroups(Capability::GroupNonUniformShuffle);
            // As an unsigned number, an index below zero is also beyond the last one.
            let source = e.select(e.ult(other, size), other, self.lane());
            let s = self.scalar_of(operands[0]);
            self.leaves(operands[0]).into_iter().map(|leaf| self.shuffle(s, leaf, source)).collect()
        };
        match op {
            SubgroupOp::Shuffle => exchange(self.value(operands[1])),
            SubgroupOp::ShuffleXor => exchange(e.xor(self.lane(), self.value(operands[1]))),
            SubgroupOp::ShuffleUp => exchange(e.sub(self.lane(), self.value(operands[1]))),
            SubgroupOp::ShuffleDown => exchange(e.add(self.lane(), self.value(operands[1]))),
            SubgroupOp::Ballot => vec![self.ballot(condition())],
            SubgroupOp::Any => vec![self.vote(Op::GroupNonUniformAny, condition())],
            SubgroupOp::All | SubgroupOp::AllHere => vec![self.vote(Op::GroupNonUniformAll, condition())],
            SubgroupOp::ProductF16 | SubgroupOp::ProductTf32 | SubgroupOp::ProductF32 | SubgroupOp::ProductF64 => {
                panic!("compiler bug: a matrix product that the target does not have")
            }
            SubgroupOp::IsWhole => {
                self.subgroups(Capability::GroupNonUniformBallot);
                let ballot = self.ballot_of_four(e.truth(true));
                let operands = vec![
                    e.scope(Scope::Subgroup),
                    Operand::GroupOperation(GroupOperation::Reduce),
                    Operand::IdRef(ballot),
                ];
                let count = e.op(Op::GroupNonUniformBallotBitCount, e.u32(), operands);
                vec![e.ieq(count, size)]
            }
        }
    }

    fn vote(&self, op: Op, condition: Id) -> Id {
        self.subgroups(Capability::GroupNonUniformVote);
        let e = self.e;
        e.op(op, e.bool(), vec![e.scope(Scope::Subgroup), Operand::IdRef(condition)])
    }

    fn ballot_of_four(&self, condition: Id) -> Id {
        self.subgroups(Capability::GroupNonUniformBallot);
        let e = self.e;
        let four = e.vector_type(e.u32(), 4);
        e.op(Op::GroupNonUniformBallot, four, vec![e.scope(Scope::Subgroup), Operand::IdRef(condition)])
    }

    fn ballot(&self, condition: Id) -> Id {
        let e = self.e;
        let ballot = self.ballot_of_four(condition);
        let word = |i: u32| e.zext(e.extract_value(ballot, e.u32(), i), 64);
        e.or(word(0), e.shl(word(1), e.u64c(32)))
    }

    /// Moves a value between threads, 32 bits at a time.
    fn shuffle(&self, s: Scalar, value: Id, source: Id) -> Id {
        let e = self.e;
        let move_word = |word: Id| {
            let operands = vec![e.scope(Scope::Subgroup), Operand::IdRef(word), Operand::IdRef(source)];
            e.op(Op::GroupNonUniformShuffle, e.u32(), operands)
        };
        if s.bits() == 64 {
            let (low, high) = self.halves(e.bits_of(value, s));
            let (low, high) = (e.zext(move_word(low), 64), e.zext(move_word(high), 64));
            return e.scalar_of_bits(e.or(low, e.shl(high, e.u64c(32))), s);
        }
        e.scalar_of_bits(move_word(e.bits_in(value, s, 32)), s)
    }
}
