//! [`memory_use`]: memory operations as differentiation sees them. The match over effects is exhaustive, so an
//! operation with a new effect does not compile until its derivative is decided.

use octants_ir::{AtomicOp, Effect, Op, ValueId};

/// How an instruction uses memory. All of them hold the address.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum MemoryUse {
    Load(ValueId),
    VolatileLoad(ValueId),
    Store {
        address: ValueId,
        value: ValueId,
    },
    Update {
        op: AtomicOp,
        address: ValueId,
        operand: ValueId,
    },
    CompareAndSwap {
        address: ValueId,
        desired: ValueId,
    },
    /// It uses none.
    Nothing,
}

/// How an operation uses memory, without its blocks and callees.
pub(crate) fn memory_use(op: &Op) -> MemoryUse {
    match op.effect() {
        Effect::Read(address) => MemoryUse::Load(address),
        Effect::ReadVolatile(address) => MemoryUse::VolatileLoad(address),
        Effect::Write(address) => match *op {
            Op::Store(_, value) => MemoryUse::Store { address, value },
            ref op => panic!("compiler bug: the store {op:?} has no value operand"),
        },
        Effect::Update(address) => match *op {
            Op::Atomic(op, _, operand) => MemoryUse::Update { op, address, operand },
            Op::AtomicCas(_, _, desired) => MemoryUse::CompareAndSwap { address, desired },
            ref op => panic!("compiler bug: the update {op:?} has no operand"),
        },
        Effect::Pure | Effect::Index | Effect::Reduce | Effect::Draw | Effect::ReadClock => MemoryUse::Nothing,
        // Threads appear when a program is scheduled, after differentiation.
        Effect::Exchange | Effect::Synchronize => MemoryUse::Nothing,
        Effect::Branch(..) | Effect::For(_) | Effect::Loop(_) | Effect::Leave | Effect::Call(..) => MemoryUse::Nothing,
        Effect::Print | Effect::Assert => MemoryUse::Nothing,
    }
}

/// The address of the memory that an operation changes, without its blocks and callees.
pub(crate) fn changed_by(op: &Op) -> Option<ValueId> {
    match memory_use(op) {
        MemoryUse::Store { address, .. }
        | MemoryUse::Update { address, .. }
        | MemoryUse::CompareAndSwap { address, .. } => Some(address),
        MemoryUse::Load(_) | MemoryUse::VolatileLoad(_) | MemoryUse::Nothing => None,
    }
}

impl MemoryUse {
    /// The address.
    pub fn address(self) -> Option<ValueId> {
        match self {
            MemoryUse::Load(address) | MemoryUse::VolatileLoad(address) => Some(address),
            MemoryUse::Store { address, .. }
            | MemoryUse::Update { address, .. }
            | MemoryUse::CompareAndSwap { address, .. } => Some(address),
            MemoryUse::Nothing => None,
        }
    }
}
