//! The verifier's rules, the violations, and the verifier's context of an instruction.

use std::fmt;

use crate::kernel::{Buffer, Function};
use crate::types::Type;

macro_rules! rules {
    ($($name:ident = $number:literal: $text:literal),+ $(,)?) => {
        /// What must hold. The number is part of a violation's text.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Rule {
            $(#[doc = $text] $name = $number),+
        }

        impl Rule {
            /// Every rule, by number.
            pub const ALL: &[Rule] = &[$(Rule::$name),+];

            /// The rule in words.
            pub fn text(self) -> &'static str {
                match self {
                    $(Rule::$name => $text),+
                }
            }
        }
    };
}

rules! {
    NumbersExist = 1: "every value, block, local, buffer, axis, function, parameter and frame slot \
        that is named exists",
    PlacedOnce = 2: "an instruction is in one place of one block, a block in one place of one instruction",
    DefinedBefore = 3: "an operand is defined before, in the same block or in one around it",
    OperandHasValue = 4: "an operand is the result of an instruction that has one",
    TerminatorLast = 5: "`break`, `continue` and `return` end their block",
    JumpInLoop = 6: "`break` and `continue` are in a loop; `break` does not leave a parallel loop",
    ReturnPlace = 7: "`return` gives what is declared; in a kernel it is at the end of the root",
    ParallelAtRoot = 8: "a parallel loop stands at the root of a kernel or a task, \
        or in a `loop` there that only its last instruction leaves, or in an `if` there that nothing leaves",
    LoopIndexInside = 9: "`loop_index` names a `for` around it",
    ReduceInParallel = 10: "`reduce` names a reduction of the parallel loop around it",
    FunctionReturns = 11: "every way through a function that has a result ends in `return`",
    TaskForm = 12: "a serial task holds no parallel loop; \
        the root of a parallel task is instructions without effects and no local, then one parallel loop; \
        a frame is used in programs only; names of tasks differ",
    ShadowFits = 13: "a shadow buffer is another buffer with as many axes, of floats of the same type or of i32 marks",
    MemorySpaceFits = 14: "shared buffers are dense, private ones that or contiguous with one axis, \
        copies contiguous with two; a flat buffer has one axis of the scalars of a contiguous array",
    DialectFits = 15: "`freeze`, `prefetch`, `vector_load` and `vector_store` are in programs only",
    Converges = 16: "operations that threads execute together stand where all of them come, or none",
    GroupsFit = 17: "groups of iterations are of parallel loops of programs, which have an axis; \
        their factors are more than one and descend; a loop of a grid has one group, aligned or tiled, \
        of a power of two; tiles are of two axes",
    GridForm = 18: "in a task of a grid, parallel loops are in no other loop",
    CheckpointEnds = 19: "`checkpoint` or `section` is before the `break` that ends a block whose loops are tasks",
    ConstType = 20: "a constant is an integer of an integer type or a float of a float type",
    UnaryType = 21: "a unary operation's type follows from its operand's, which suits the operation",
    BinaryType = 22: "the operands of a binary operation are of one type, which suits the operation; \
        its type follows from it",
    SelectType = 23: "`select` takes u1, alone or in the result's shape, and two values of the result's type",
    CastType = 24: "`cast` keeps the shape; `bitcast` keeps shape and width",
    AggregateType = 25: "an aggregate is made of as many parts as its type has, of their types; \
        a part taken out exists and has its type",
    MatrixType = 26: "`matmul`, `transpose` and `fold` take matrices or vectors that fit and yield what follows",
    AddressType = 27: "an address is a `ref` to what is there; indices are integers, one per axis",
    MemoryType = 28: "what is read, written or folded has the type of what the address points to",
    ConditionType = 29: "a condition is u1; loop bounds are both i32 or both i64, and an index has their type",
    CallType = 30: "a call's arguments and result have the function's types",
    ResultType = 31: "`shape` is i32 or i64, a parameter has its declared type, \
        an operation without a result is unit, a random value is a scalar",
    ThreadType = 32: "positions in the grid are i32; a barrier is of a subgroup or block, \
        a fence of a block or device; \
        an operation of a subgroup has its operands, values of one type, i32 lanes and u1 conditions",
    VectorType = 33: "a vector is read and written at the address of a scalar in a buffer, \
        or of a local of its type",
    AccessNamed = 34: "the access set of a task names each buffer and frame slot that its code reads, \
        and each that it writes",
    TasksLaunched = 40: "a launch names a task of the program, and each task is launched",
    GraphCondition = 41: "a condition is an integer: the element of a buffer without axes, or a slot of the frame",
    GroupsOfLaunches = 42: "a `parallel` has groups, and each launches a task",
    RoundsLaunch = 43: "a round of a `while` launches a task",
    CheckpointsApart = 44: "no two checkpoints have one label, and none is in another one or in a group",
    CountOfTask = 45: "the count of a launch is what the bounds of its task tell",
}

/// A rule that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// The body: `body`, a function or a task by name.
    pub place: String,
    /// The instruction, printed, or what else is wrong.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {} in {}: {} ({})", self.rule as u32, self.place, self.detail, self.rule.text())
    }
}

/// What a body may name, and what kind of body it is.
pub(crate) struct Scope<'a> {
    pub buffers: &'a [Buffer],
    pub functions: &'a [Function],
    pub params: Vec<&'a Type>,
    pub frame: Option<&'a [Type]>,
    pub ret: &'a Type,
    pub(crate) is_function: bool,
    /// It belongs to a program, not to a kernel.
    pub(crate) is_scheduled: bool,
    /// Each thread of a grid runs the whole body.
    pub(crate) is_grid: bool,
}
