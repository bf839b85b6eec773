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
    /// On the value of SCC.
    Scc(bool),
    /// On whether VCC is zero.
    VccZero(bool),
    /// On whether EXEC is zero.
    ExecZero(bool),
}

/// Lane additions with carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carry {
    /// A sum.
    Add,
    /// A difference.
    Sub,
    /// A difference with swapped operands.
    SubReverse,
}

/// What an instruction does.
#[allow(missing_docs)] // The variants tell of their fields.
#[derive(Debug, Clone)]
pub enum Op {
    /// No modeled effect.
    Nothing,
    /// Ends the wave.
    End,
    /// Barrier.
    Barrier,
    /// Signals arrival at the barrier, without a wait.
    BarrierSignal,
    /// Waits until all waves have signaled.
    BarrierWait,
    /// Stops the launch.
    Trap,
    /// Branches by an offset in words.
    Branch(When, i64),
    /// The address of the next instruction.
    GetPc,
    /// Jumps to an address.
    SetPc,
    /// Jumps to an address and stores the return address.
    SwapPc,
    /// Calls by an offset in words.
    Call(i64),
    /// A scalar operation.
    Scalar(ScalarOp),
    /// A scalar operation whose destination is the first source.
    ScalarInPlace(ScalarOp),
    /// Updates EXEC by a mask, and stores the old or the new value.
    Mask { run: MaskFn, keeps_old: bool },
    /// A lane operation on scalars; the destination is also the last source.
    ScalarFloat(Lanewise, bool),
    /// A comparison of scalars.
    ScalarCompare(Comparison),
    /// Reads a hardware register: register, first bit, number of bits.
    GetRegister(String, u32, u32),
    /// Writes a hardware register.
    SetRegister(String, u32, u32),
    /// Sets both denormal modes.
    DenormalMode,
    /// Reads the clock.
    Clock,
    /// Scalar load: the width in bits, and whether it sign-extends.
    ScalarLoad { bits: u32, signed: bool },
    /// A lane operation; the destination is also the last source.
    Lanes(Lanewise, bool),
    /// A packed lane operation on both halves, each of the given width in bits.
    Packed(Lanewise, bool),
    /// Mixed-precision operation with 16-bit or 32-bit sources: the part of the destination.
    Mixed(Mixed),
    /// A lane comparison, which may write EXEC.
    Compare { comparison: Comparison, sets_exec: bool },
    /// Lane addition with carry out: whether there is a carry in.
    Carries(Carry, bool),
    /// 32-bit multiplication with 64-bit addition.
    WideProduct { signed: bool },
    /// Scales the numerator or denominator of a division.
    DivScale(Ty),
    /// The last step of a division.
    DivFmas(Ty),
    /// The first active lane.
    ReadFirstLane,
    /// Reads a lane.
    ReadLane,
    /// Writes a lane.
    WriteLane,
    /// The number of mask bits below this lane.
    CountBelow { high: bool },
    /// Exchanges two registers.
    Swap,
    /// Moves a register, with M0 added to the source or destination register number.
    MoveRelative { source: bool, destination: bool },
    /// Enables indexed vector registers: a bit for each of three sources and the destination.
    IndexRegisters(u8),
    /// Swizzles two pairs of registers.
    PackedMove,
    /// Permutes lanes within rows of 16 or with the opposite row, by scalar selectors.
    PermuteRow { opposite: bool },
    /// Permutes lanes within rows of 16 or with the opposite row, by a selector per lane.
    PermuteRowByLane { opposite: bool },
    /// Exchanges the halves of a wave of 64.
    PermuteHalves,
    /// A matrix product of the whole wave.
    Product(Product),
    /// Memory access.
    Memory(MemoryOp),
    /// Shared-memory access, or a lane exchange through its hardware.
    Lds(LdsOp),
    /// Dual-issued instructions.
    Dual(Box<[Instruction; 2]>),
}

/// The destination of a mixed-precision operation.
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
    /// The operation.
    pub op: Op,
    /// The operands.
    pub operands: Vec<Operand>,
    /// The modifiers.
    pub modifiers: Modifiers,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its disassembly.
    pub text: String,
}
