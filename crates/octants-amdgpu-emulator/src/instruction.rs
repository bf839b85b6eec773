//! [`Instruction`]: a decoded machine instruction.

use crate::comparisons::Comparison;
use crate::lanewise::Lanewise;
use crate::matrix_products::Product;
use crate::memory_names::{LdsOp, MemoryOp};
use crate::modifiers::Modifiers;
use crate::number::Ty;
use crate::operand::Operand;
use crate::scalar_table::{MaskFn, ScalarOp};

/// When a branch is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Always.
    Always,
    /// As the carry says.
    Scc(bool),
    /// Whether VCC is zero.
    VccZero(bool),
    /// Whether no lane executes.
    ExecZero(bool),
}

/// Additions with a carry in lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carry {
    /// A sum.
    Add,
    /// A difference.
    Sub,
    /// A difference the other way around.
    SubReverse,
}

/// What an instruction does.
#[allow(missing_docs)] // The variants tell of their fields.
#[derive(Debug, Clone)]
pub enum Op {
    /// Nothing that is modeled.
    Nothing,
    /// Ends the wave.
    End,
    /// Waits for the block.
    Barrier,
    /// Tells the block that the wave is here, and goes on.
    BarrierSignal,
    /// Waits until all waves have told so.
    BarrierWait,
    /// Stops the launch.
    Trap,
    /// Branches by a number of words.
    Branch(When, i64),
    /// The address of the next instruction.
    GetPc,
    /// Goes to an address.
    SetPc,
    /// Goes to an address, and keeps the next instruction's.
    SwapPc,
    /// Calls at a distance in words.
    Call(i64),
    /// On scalars.
    Scalar(ScalarOp),
    /// On scalars; the destination is the first source.
    ScalarInPlace(ScalarOp),
    /// Changes the lanes that execute by a mask, and keeps what they were, or what they become.
    Mask { run: MaskFn, keeps_old: bool },
    /// On a scalar by the table of lanes; the destination is the last source too.
    ScalarFloat(Lanewise, bool),
    /// A comparison of scalars.
    ScalarCompare(Comparison),
    /// Bits of the mode, or of a clock: register, first bit, bits.
    GetRegister(String, u32, u32),
    /// The same, to be set.
    SetRegister(String, u32, u32),
    /// Both modes of denormals, at once.
    DenormalMode,
    /// The time.
    Clock,
    /// Loads words to scalar registers: bits, and whether they are extended by their sign.
    ScalarLoad { bits: u32, signed: bool },
    /// On lanes; the destination is the last source too.
    Lanes(Lanewise, bool),
    /// The same on both halves, each of the given width in bits.
    Packed(Lanewise, bool),
    /// Sources of 16 or 32 bits each: where the result goes.
    Mixed(Mixed),
    /// A comparison of lanes, which may change the lanes that execute.
    Compare { comparison: Comparison, sets_exec: bool },
    /// Additions with carries: whether one comes in.
    Carries(Carry, bool),
    /// Products of 32 bits, added to 64.
    WideProduct { signed: bool },
    /// Scales a side of a division.
    DivScale(Ty),
    /// The last step of a division.
    DivFmas(Ty),
    /// The first lane that executes.
    ReadFirstLane,
    /// A lane.
    ReadLane,
    /// Sets a lane.
    WriteLane,
    /// How many lanes before this one are in a mask.
    CountBelow { high: bool },
    /// Exchanges two registers.
    Swap,
    /// Moves a register; M0 is added to the number of the source, or of the destination.
    MoveRelative { source: bool, destination: bool },
    /// From here on an index is added to the numbers of vector registers: a bit each for three sources and the
    /// destination.
    IndexRegisters(u8),
    /// Two registers from two pairs.
    PackedMove,
    /// Lanes of each row of 16, or of the opposite row, chosen by scalars.
    PermuteRow { opposite: bool },
    /// The same, chosen by lanes.
    PermuteRowByLane { opposite: bool },
    /// Exchanges the halves of a wave of 64.
    PermuteHalves,
    /// A product of matrices by the whole wave.
    Product(Product),
    /// Memory.
    Memory(MemoryOp),
    /// Shared memory and exchanges by way of it.
    Lds(LdsOp),
    /// Two at once.
    Dual(Box<[Instruction; 2]>),
}

/// Where the result of an operation with sources of either width goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mixed {
    /// A float of 32 bits.
    Whole,
    /// The lower half.
    Low,
    /// The upper half.
    High,
}

/// An instruction.
#[derive(Debug, Clone)]
pub struct Instruction {
    /// What it does.
    pub op: Op,
    /// With what.
    pub operands: Vec<Operand>,
    /// How.
    pub modifiers: Modifiers,
    /// Its bytes.
    pub bytes: u64,
    /// As the disassembler writes it.
    pub text: String,
}
