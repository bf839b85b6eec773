//! The names of operations in the IR's text: one table for the printer and the parser, so that they cannot differ.

use crate::op::{AtomicOp, BinaryOp, ReduceOp, UnaryOp};

macro_rules! names {
    ($ty:ident { $($variant:ident = $name:literal),+ $(,)? }) => {
        impl $ty {
            /// Every operation of this kind, in declaration order.
            pub const ALL: &[$ty] = &[$($ty::$variant),+];

            /// The name in the IR's text.
            pub fn name(self) -> &'static str {
                match self {
                    $($ty::$variant => $name),+
                }
            }

            /// The operation of a name.
            pub fn from_name(name: &str) -> Option<$ty> {
                match name {
                    $($name => Some($ty::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

names!(UnaryOp {
    Neg = "neg",
    BitNot = "bit_not",
    LogicNot = "logic_not",
    Abs = "abs",
    Sgn = "sgn",
    Sqrt = "sqrt",
    Rsqrt = "rsqrt",
    Sin = "sin",
    Cos = "cos",
    Tan = "tan",
    Asin = "asin",
    Acos = "acos",
    Atan = "atan",
    Sinh = "sinh",
    Cosh = "cosh",
    Tanh = "tanh",
    Exp = "exp",
    Exp2 = "exp2",
    Log = "log",
    Log2 = "log2",
    Floor = "floor",
    Ceil = "ceil",
    Round = "round",
    Trunc = "trunc",
    Popcnt = "popcnt",
    Clz = "clz",
    Ffs = "ffs",
    IsNan = "is_nan",
    IsInf = "is_inf",
    StopGrad = "stop_grad",
});

names!(BinaryOp {
    Add = "add",
    Sub = "sub",
    Mul = "mul",
    Div = "div",
    FloorDiv = "floor_div",
    Mod = "mod",
    Rem = "rem",
    Pow = "pow",
    Atan2 = "atan2",
    Min = "min",
    Max = "max",
    And = "and",
    Or = "or",
    Xor = "xor",
    Shl = "shl",
    Shr = "shr",
    UShr = "ushr",
    Eq = "eq",
    Ne = "ne",
    Lt = "lt",
    Le = "le",
    Gt = "gt",
    Ge = "ge",
});

names!(AtomicOp {
    Add = "add",
    Sub = "sub",
    Mul = "mul",
    Min = "min",
    Max = "max",
    And = "and",
    Or = "or",
    Xor = "xor",
    Exchange = "exchange",
});

names!(ReduceOp { Add = "add", Mul = "mul", Min = "min", Max = "max", And = "and", Or = "or" });
