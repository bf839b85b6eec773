//! The verifier's rules, the violations, and the verifier's context of an instruction.

use std::fmt;

use crate::kernel::{Buffer, Function};
use crate::types::Type;

macro_rules! rules {
    ($($name:ident = $number:literal: $text:literal),+ $(,)?) => {
        /// An invariant of the IR. Violations print its number.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Rule {
            $(#[doc = $text] $name = $number),+
        }

        impl Rule {
            /// Every rule, by number.
            pub const ALL: &[Rule] = &[$(Rule::$name),+];

            /// The text of the rule.
            pub fn text(self) -> &'static str {
                match self {
                    $(Rule::$name => $text),+
                }
            }
        }
    };
}

rules! {
    NumbersExist = 1: "every referenced value, block, local, buffer, axis, function, parameter and frame \
        slot exists",
    PlacedOnce = 2: "an instruction is placed once, in one block; a block is placed once, in one instruction",
    DefinedBefore = 3: "an operand is defined earlier, in the same block or an enclosing one",
    OperandHasValue = 4: "an operand is an instruction with a result",
    TerminatorLast = 5: "`break`, `continue` and `return` end their block",
    JumpInLoop = 6: "`break` and `continue` are inside a loop; `break` does not leave a parallel loop",
    ReturnPlace = 7: "`return` yields the declared type; in a kernel it ends the root block",
    ParallelAtRoot = 8: "a parallel loop is at the root of a kernel or task, or in a `loop` there that only \
        its last instruction leaves, or in an `if` there that no instruction leaves",
    LoopIndexInside = 9: "`loop_index` refers to an axis of an enclosing `for`",
    ReduceInParallel = 10: "`reduce` refers to a reduction of the enclosing parallel loop",
    FunctionReturns = 11: "each path through a function with a result ends in `return`",
    TaskForm = 12: "a serial task has no parallel loop; the root of a parallel task has instructions \
        without side effects and without locals, then one parallel loop; frame slots are used in programs \
        only; task names are unique",
    ShadowFits = 13: "a shadow buffer is a different buffer with the same number of axes, of floats of the \
        same type or of i32 marks",
    MemorySpaceFits = 14: "shared buffers are dense; private ones are dense, or contiguous with one axis; \
        copies are contiguous with two; a flat buffer has one axis, over the scalars of a contiguous array",
    DialectFits = 15: "`freeze`, `prefetch`, `vector_load` and `vector_store` are in programs only",
    Converges = 16: "operations that threads execute together are reached by all of these threads or by none",
    GroupsFit = 17: "iteration groups belong to parallel loops with an axis, in programs; their factors \
        exceed one and descend; a grid loop has one group, aligned or tiled, with a power-of-two factor; \
        tiles need two axes",
    GridForm = 18: "in a grid task, a parallel loop is not inside another loop",
    CheckpointEnds = 19: "`checkpoint` or `section` directly precedes the `break` that ends a block whose \
        loops are tasks",
    ConstType = 20: "an integer constant has an integer type, a float constant a float type",
    UnaryType = 21: "a unary operation supports its operand's type, and has the type that follows from it",
    BinaryType = 22: "the operands of a binary operation have one type, which it supports; its own type \
        follows from it",
    SelectType = 23: "`select` takes a u1 mask, scalar or in the result's shape, and two values of the \
        result's type",
    CastType = 24: "`cast` keeps the shape; `bitcast` keeps shape and width",
    AggregateType = 25: "an aggregate is built from as many parts as its type has, of their types; an \
        extracted part exists and has its type",
    MatrixType = 26: "`matmul`, `transpose` and `fold` take vectors or matrices of matching shapes, and \
        have the resulting type",
    AddressType = 27: "an address is a `ref` to the type stored there; indices are integers, one per axis",
    MemoryType = 28: "the value of a load, a store, an atomic or a reduction has the type that the address \
        refers to",
    ConditionType = 29: "a condition is u1; loop bounds are both i32 or both i64, and a loop index has \
        their type",
    CallType = 30: "the arguments and the result of a call have the types that the function declares",
    ResultType = 31: "`shape` is i32 or i64, a parameter has its declared type, \
        an operation without a result is unit, a random value is a scalar",
    ThreadType = 32: "grid positions are i32; the scope of a barrier is a subgroup or block, that of a \
        fence a block or device; a subgroup operation has its number of operands, values of one type, i32 \
        lanes and u1 conditions",
    VectorType = 33: "a vector access has the address of a scalar in a buffer, or of a local of the vector \
        type",
    AccessNamed = 34: "the access set of a task lists each buffer and frame slot that its code reads, and \
        each that it writes",
    TasksLaunched = 40: "a launch refers to a task of the program, and each task is launched",
    GraphCondition = 41: "a condition is an integer: the element of a 0-dimensional buffer, or a frame slot",
    GroupsOfLaunches = 42: "a `parallel` has at least one group, and each group launches a task",
    RoundsLaunch = 43: "each iteration of a `while` launches a task",
    CheckpointsApart = 44: "checkpoint labels are unique; a checkpoint is not inside another checkpoint or \
        a group",
    CountOfTask = 45: "the iteration count of a launch follows from the bounds of its task",
    GuardedIterations = 46: "guarded iterations are at least two, decide nothing, and end with a task that sets their \
        guard, an i32 in the frame",
}

/// A violated rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// The body: `body`, or the name of a function or task.
    pub place: String,
    /// The printed instruction, or a description.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {} in {}: {} ({})", self.rule as u32, self.place, self.detail, self.rule.text())
    }
}

/// The context of a body: the definitions that it may refer to, and its kind.
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
