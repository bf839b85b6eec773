//! Macros that turn the operation table into code: enums of the rows, and an exhaustive `match` for each column.

/// An enum of operations, and their names in the IR's text.
macro_rules! named_operations {
    ($(#[$doc:meta])* $ty:ident { $($(#[$row:meta])* $variant:ident = $name:literal)+ }) => {
        $(#[$doc])*
        pub enum $ty {
            $($(#[$row])* $variant,)+
        }

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

/// The names of operations in programs.
macro_rules! written_operations {
    ($ty:ident { $($variant:ident $symbol:literal [$($function:literal),*])+ }) => {
        impl $ty {
            /// As programs write it, and as their errors name it.
            pub fn symbol(self) -> &'static str {
                match self {
                    $($ty::$variant => $symbol),+
                }
            }

            /// The operation that a built-in function maps to directly, if any.
            pub fn from_function(name: &str) -> Option<$ty> {
                match name {
                    $($($function => Some($ty::$variant),)*)+
                    _ => None,
                }
            }
        }
    };
}

macro_rules! unary_operations {
    ($($(#[$row:meta])* $variant:ident $name:literal $domain:ident $yields:ident $cost:ident $derivative:ident
       $symbol:literal [$($function:literal),*];)+) => {
        named_operations! {
            /// One operand in, one value out; element by element on tensors.
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
            UnaryOp { $($(#[$row])* $variant = $name)+ }
        }
        written_operations! { UnaryOp { $($variant $symbol [$($function),*])+ } }

        impl UnaryOp {
            /// The scalars that it takes.
            pub fn domain(self) -> Domain {
                match self {
                    $(UnaryOp::$variant => Domain::$domain),+
                }
            }

            /// The scalar type of its result.
            pub fn yields(self) -> Yields {
                match self {
                    $(UnaryOp::$variant => Yields::$yields),+
                }
            }

            /// Its cost on a scalar.
            pub fn cost(self) -> CostClass {
                match self {
                    $(UnaryOp::$variant => CostClass::$cost),+
                }
            }

            /// How it takes part in differentiation.
            pub fn derivative(self) -> Derivative {
                match self {
                    $(UnaryOp::$variant => Derivative::$derivative),+
                }
            }
        }
    };
}

macro_rules! binary_operations {
    ($($(#[$row:meta])* $variant:ident $name:literal $domain:ident $yields:ident $definedness:ident $cost:ident
       $derivative:ident $symbol:literal [$($function:literal),*];)+) => {
        named_operations! {
            /// Two operands of one type in; element by element on tensors. Comparisons yield `u1` of the same shape.
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
            BinaryOp { $($(#[$row])* $variant = $name)+ }
        }
        written_operations! { BinaryOp { $($variant $symbol [$($function),*])+ } }

        impl BinaryOp {
            /// The scalars that it takes.
            pub fn domain(self) -> Domain {
                match self {
                    $(BinaryOp::$variant => Domain::$domain),+
                }
            }

            /// The scalar type of its result.
            pub fn yields(self) -> Yields {
                match self {
                    $(BinaryOp::$variant => Yields::$yields),+
                }
            }

            /// Whether it is defined for all values.
            pub fn definedness(self) -> Definedness {
                match self {
                    $(BinaryOp::$variant => Definedness::$definedness),+
                }
            }

            /// Its cost on scalars.
            pub fn cost(self) -> CostClass {
                match self {
                    $(BinaryOp::$variant => CostClass::$cost),+
                }
            }

            /// How it takes part in differentiation.
            pub fn derivative(self) -> Derivative {
                match self {
                    $(BinaryOp::$variant => Derivative::$derivative),+
                }
            }
        }
    };
}

macro_rules! atomic_operations {
    ($($(#[$row:meta])* $variant:ident $name:literal $binary:expr, $domain:ident $function:literal;)+) => {
        named_operations! {
            /// Read-modify-write of memory shared by threads.
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
            AtomicOp { $($(#[$row])* $variant = $name)+ }
        }

        impl AtomicOp {
            /// The operation that computes the new value from the old one and the operand; `None` if the operand is the
            /// new value.
            pub fn binary(self) -> Option<BinaryOp> {
                match self {
                    $(AtomicOp::$variant => $binary),+
                }
            }

            /// The scalars that it takes.
            pub fn domain(self) -> Domain {
                match self {
                    $(AtomicOp::$variant => Domain::$domain),+
                }
            }

            /// The operation of a built-in function of the language.
            pub fn from_function(name: &str) -> Option<AtomicOp> {
                match name {
                    $($function => Some(AtomicOp::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

macro_rules! fold_operations {
    ($($variant:ident $name:literal $binary:ident;)+) => {
        named_operations! {
            /// How the components of a tensor are folded into one scalar.
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
            ReduceOp { $($variant = $name)+ }
        }

        impl ReduceOp {
            /// The operation that combines two components. The fold takes the same scalars and has the same kind of
            /// derivative.
            pub fn binary(self) -> BinaryOp {
                match self {
                    $(ReduceOp::$variant => BinaryOp::$binary),+
                }
            }
        }
    };
}

macro_rules! subgroup_operations {
    ($($(#[$row:meta])* $variant:ident $name:literal $operands:literal $yields:ident;)+) => {
        named_operations! {
            /// An exchange of values between the threads of a subgroup that execute it together.
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
            SubgroupOp { $($(#[$row])* $variant = $name)+ }
        }

        impl SubgroupOp {
            /// How many operands it takes.
            pub fn operands(self) -> usize {
                match self {
                    $(SubgroupOp::$variant => $operands),+
                }
            }

            /// Its result.
            pub fn yields(self) -> SubgroupResult {
                match self {
                    $(SubgroupOp::$variant => SubgroupResult::$yields),+
                }
            }

            /// How it takes part in differentiation: values that move have the derivatives that move with them.
            pub fn derivative(self) -> Derivative {
                match self.yields() {
                    SubgroupResult::Value => Derivative::Rule,
                    SubgroupResult::Mask | SubgroupResult::Vote => Derivative::Zero,
                    // It is expanded before differentiation.
                    SubgroupResult::Product => Derivative::Structure,
                }
            }
        }
    };
}

macro_rules! operations {
    (scalar { $($scalar:pat => $name:expr, $scalar_effect:expr, $scalar_defined:expr, $scalar_cost:expr,
       $scalar_rule:expr;)+ }
     $($op:pat => $word:literal, $effect:expr, $definedness:ident, $cost:ident, $derivative:expr;)+) => {
        #[allow(unused_variables)] // A row's pattern names what any of its columns needs.
        impl Op {
            /// The words of the IR's text that begin an operation, those of unary and binary operations apart.
            pub const WORDS: &[&str] = &[$($word),+];

            /// The word that it begins with in the IR's text.
            pub fn word(&self) -> &'static str {
                match self {
                    $($scalar => $name,)+
                    $($op => $word,)+
                }
            }

            /// Its side effect.
            pub fn effect(&self) -> Effect<'_> {
                match self {
                    $($scalar => $scalar_effect,)+
                    $($op => $effect,)+
                }
            }

            /// Whether it is defined for all values of its operands.
            pub fn definedness(&self) -> Definedness {
                match self {
                    $($scalar => $scalar_defined,)+
                    $($op => Definedness::$definedness,)+
                }
            }

            /// Its cost per scalar of the result.
            pub fn cost(&self) -> CostClass {
                match self {
                    $($scalar => $scalar_cost,)+
                    $($op => CostClass::$cost,)+
                }
            }

            /// How it takes part in differentiation.
            pub fn derivative(&self) -> Derivative {
                match self {
                    $($scalar => $scalar_rule,)+
                    $($op => $derivative,)+
                }
            }
        }
    };
}
