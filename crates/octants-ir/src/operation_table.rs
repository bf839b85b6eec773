//! The table of operations, with one row each. The IR's text, the verifier, analyses, cost models, passes and the
//! front end read the properties of operations from it.
//!
//! A new operation is a new row. Its enum is generated from the rows, and each column is an exhaustive `match`, so an
//! operation with a missing property does not compile. `operation_facts` documents the columns. Operand types of
//! [`crate::Op`] are checked in `verify_types`; derivatives and machine code are implemented elsewhere.

use crate::operation_facts::{CostClass, Definedness, Derivative, Domain, SubgroupResult, Yields};
use crate::types::{Scalar, Type};

unary_operations! {
    // variant  text         takes      yields   costs         derivative  symbol       functions
    Neg         "neg"        Number     Operand  Simple        Rule        "-"          [];
    /// Bitwise complement.
    BitNot      "bit_not"    Integer    Operand  Simple        Zero        "~"          [];
    LogicNot    "logic_not"  Bit        Operand  Simple        Zero        "not"        [];
    Abs         "abs"        Number     Operand  Simple        Rule        "abs"        [];
    /// -1, 0 or 1 in the operand's type.
    Sgn         "sgn"        Number     Operand  Simple        Zero        "sgn"        ["sgn"];
    Sqrt        "sqrt"       Float      Operand  Root          Rule        "sqrt"       ["sqrt"];
    Rsqrt       "rsqrt"      Float      Operand  Root          Rule        "rsqrt"      ["rsqrt"];
    Sin         "sin"        Float      Operand  Function      Rule        "sin"        ["sin"];
    Cos         "cos"        Float      Operand  Function      Rule        "cos"        ["cos"];
    Tan         "tan"        Float      Operand  LongFunction  Rule        "tan"        ["tan"];
    Asin        "asin"       Float      Operand  LongFunction  Rule        "asin"       ["asin"];
    Acos        "acos"       Float      Operand  LongFunction  Rule        "acos"       ["acos"];
    Atan        "atan"       Float      Operand  LongFunction  Rule        "atan"       ["atan"];
    Sinh        "sinh"       Float      Operand  LongFunction  Rule        "sinh"       ["sinh"];
    Cosh        "cosh"       Float      Operand  LongFunction  Rule        "cosh"       ["cosh"];
    Tanh        "tanh"       Float      Operand  LongFunction  Rule        "tanh"       ["tanh"];
    Exp         "exp"        Float      Operand  Function      Rule        "exp"        ["exp"];
    Exp2        "exp2"       Float      Operand  Function      Rule        "exp2"       ["exp2"];
    Log         "log"        Float      Operand  Function      Rule        "log"        ["log"];
    Log2        "log2"       Float      Operand  Function      Rule        "log2"       ["log2"];
    Floor       "floor"      OnlyFloat  Operand  Simple        Zero        "floor"      ["floor"];
    Ceil        "ceil"       OnlyFloat  Operand  Simple        Zero        "ceil"       ["ceil"];
    /// To nearest, ties away from zero.
    Round       "round"      OnlyFloat  Operand  Simple        Zero        "round"      ["round"];
    Trunc       "trunc"      OnlyFloat  Operand  Simple        Zero        "trunc"      ["trunc"];
    /// Number of set bits.
    Popcnt      "popcnt"     Integer    I32      Simple        Zero        "popcnt"     ["popcnt"];
    /// Leading zeros.
    Clz         "clz"        Integer    I32      Simple        Zero        "clz"        ["clz"];
    /// 1-based position of the lowest set bit, 0 for 0.
    Ffs         "ffs"        Integer    I32      Simple        Zero        "ffs"        ["ffs"];
    IsNan       "is_nan"     Float      U1       Simple        Zero        "isnan"      ["isnan"];
    IsInf       "is_inf"     Float      U1       Simple        Zero        "isinf"      ["isinf"];
    /// The operand, whose derivative is taken to be zero.
    StopGrad    "stop_grad"  Number     Operand  Simple        Zero        "stop_grad"  [];
}

binary_operations! {
    // variant  text         takes    yields   defined  costs         derivative  symbol     functions
    Add         "add"        Number   Operand  Total    Simple        Rule        "+"        ["add"];
    Sub         "sub"        Number   Operand  Total    Simple        Rule        "-"        ["sub"];
    Mul         "mul"        Number   Operand  Total    Simple        Rule        "*"        ["mul"];
    /// Float division, or integer division rounded toward zero.
    Div         "div"        Number   Operand  Partial  Division      Rule        "/"        [];
    /// Rounded toward minus infinity.
    FloorDiv    "floor_div"  Number   Operand  Partial  Division      Zero        "//"       ["floordiv"];
    /// Python's remainder: the sign of the divisor.
    Mod         "mod"        Number   Operand  Partial  Division      Rule        "%"        ["mod"];
    /// C's remainder: the sign of the dividend.
    Rem         "rem"        Number   Operand  Partial  Division      Rule        "raw_mod"  ["raw_mod"];
    Pow         "pow"        Number   Operand  Total    LongFunction  Rule        "**"       [];
    Atan2       "atan2"      Float    Operand  Total    LongFunction  Rule        "atan2"    ["atan2"];
    Min         "min"        Number   Operand  Total    Simple        Rule        "min"      [];
    Max         "max"        Number   Operand  Total    Simple        Rule        "max"      [];
    And         "and"        Integer  Operand  Total    Simple        Zero        "&"        ["bit_and"];
    Or          "or"         Integer  Operand  Total    Simple        Zero        "|"        ["bit_or"];
    Xor         "xor"        Integer  Operand  Total    Simple        Zero        "^"        ["bit_xor"];
    Shl         "shl"        Shift    Operand  Total    Simple        Zero        "<<"       ["bit_shl"];
    /// Arithmetic for signed, logical for unsigned operands.
    Shr         "shr"        Shift    Operand  Total    Simple        Zero        ">>"       ["bit_sar"];
    /// Logical, also for signed types.
    UShr        "ushr"       Shift    Operand  Total    Simple        Zero        "shr"      ["bit_shr"];
    Eq          "eq"         Number   U1       Total    Simple        Zero        "=="       ["cmp_eq"];
    Ne          "ne"         Number   U1       Total    Simple        Zero        "!="       ["cmp_ne"];
    Lt          "lt"         Number   U1       Total    Simple        Zero        "<"        ["cmp_lt"];
    Le          "le"         Number   U1       Total    Simple        Zero        "<="       ["cmp_le"];
    Gt          "gt"         Number   U1       Total    Simple        Zero        ">"        ["cmp_gt"];
    Ge          "ge"         Number   U1       Total    Simple        Zero        ">="       ["cmp_ge"];
}

atomic_operations! {
    // variant  text        new value              takes    function
    Add         "add"       Some(BinaryOp::Add),   Number   "atomic_add";
    Sub         "sub"       Some(BinaryOp::Sub),   Number   "atomic_sub";
    Mul         "mul"       Some(BinaryOp::Mul),   Number   "atomic_mul";
    Min         "min"       Some(BinaryOp::Min),   Number   "atomic_min";
    Max         "max"       Some(BinaryOp::Max),   Number   "atomic_max";
    And         "and"       Some(BinaryOp::And),   Integer  "atomic_and";
    Or          "or"        Some(BinaryOp::Or),    Integer  "atomic_or";
    Xor         "xor"       Some(BinaryOp::Xor),   Integer  "atomic_xor";
    /// Stores the operand.
    Exchange    "exchange"  None,                  Number   "atomic_exchange";
}

fold_operations! {
    // variant  text   joins by
    Add         "add"  Add;
    Mul         "mul"  Mul;
    Min         "min"  Min;
    Max         "max"  Max;
    And         "and"  And;
    Or          "or"   Or;
}

named_operations! {
    /// A position of a thread in the grid, or an extent of the grid.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    GridValue {
        /// The thread's index in its block.
        Thread = "thread"
        /// Threads of a block.
        BlockSize = "block_size"
        /// The block's index in the grid.
        Block = "block"
        /// Blocks of the grid.
        Blocks = "blocks"
        /// The thread's index in its subgroup.
        Lane = "lane"
        /// Threads of a subgroup.
        SubgroupSize = "subgroup_size"
    }
}

impl GridValue {
    /// Differs between the threads of a block.
    pub fn is_divergent(self) -> bool {
        match self {
            GridValue::Thread | GridValue::Lane => true,
            GridValue::BlockSize | GridValue::Block | GridValue::Blocks | GridValue::SubgroupSize => false,
        }
    }
}

subgroup_operations! {
    // variant      text            operands  yields
    /// value, lane: the value of the thread with this index.
    Shuffle         "shuffle"       2         Value;
    /// value, bits: the value of the thread whose index differs in these bits.
    ShuffleXor      "shuffle_xor"   2         Value;
    /// value, distance: the value of the thread `distance` below; the thread's own value if there is none.
    ShuffleUp       "shuffle_up"    2         Value;
    /// value, distance: the value of the thread `distance` above; the thread's own value if there is none.
    ShuffleDown     "shuffle_down"  2         Value;
    /// condition: bit `i` is the condition of thread `i`, zero for threads that have ended.
    Ballot          "ballot"        1         Mask;
    /// condition: it holds for a thread.
    Any             "any"           1         Vote;
    /// condition: it holds for all threads that have not ended.
    All             "all"           1         Vote;
    /// condition: vote of the active threads. May degrade to this thread's own condition. Allowed in divergent code.
    AllHere         "all_here"      1         Vote;
    /// All threads of the subgroup are active. Allowed in divergent code.
    IsWhole         "is_whole"      0         Vote;
    /// a, b, c, fragments of f16, f16 and f32: `a @ b + c`.
    ProductF16      "product_f16"   3         Product;
    /// The same for f32 rounded to tf32, or not rounded if the target does not support it.
    ProductTf32     "product_tf32"  3         Product;
    /// The same of f32.
    ProductF32      "product_f32"   3         Product;
    /// The same of f64.
    ProductF64      "product_f64"   3         Product;
}

impl BinaryOp {
    /// Yields `u1`.
    pub fn is_comparison(self) -> bool {
        self.yields() == Yields::U1
    }
}

impl AtomicOp {
    /// The atomic update that applies a binary operation to the old value and the operand.
    pub fn from_binary(op: BinaryOp) -> Option<AtomicOp> {
        AtomicOp::ALL.iter().copied().find(|atomic| atomic.binary() == Some(op))
    }
}

/// The type of a unary operation's result.
pub fn unary_type(op: UnaryOp, operand: &Type) -> Type {
    result_type(op.yields(), operand)
}

/// The type of a binary operation's result, of the type of both operands.
pub fn binary_type(op: BinaryOp, operand: &Type) -> Type {
    result_type(op.yields(), operand)
}

fn result_type(yields: Yields, operand: &Type) -> Type {
    match yields {
        Yields::Operand => operand.clone(),
        Yields::I32 => operand.with_scalar(Scalar::I32),
        Yields::U1 => operand.with_scalar(Scalar::U1),
    }
}
