//! [`PackedComponent`]: the position and encoding of a component of a quantized type in its word.

use octants_ir::{ComponentLayout, Scalar};

/// Some bits of a word, counted from the lowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BitRange {
    /// The lowest of them.
    pub first: u32,
    /// How many.
    pub bits: u32,
}

/// A number of a quantized type in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PackedDigits {
    /// Where. The sign of a float, if it has one, is the highest bit.
    pub range: BitRange,
    /// Two's complement, or a float with a sign.
    pub is_signed: bool,
}

/// The encoding of a component.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PackedNumber {
    /// Themselves.
    Integer,
    /// A multiple of a number, which is given by its bits.
    Fixed(u64),
    /// A significand whose leading one is left out. Its exponent is beside it; zero means that the number is zero.
    Float(BitRange),
    /// A significand with its leading one, and the exponent of all these significands, of which the component's is one.
    SharedExponent(BitRange, Vec<PackedDigits>),
}

/// A component of a field of a quantized type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PackedComponent {
    /// Where the words are, as a field of its own.
    pub words: ComponentLayout,
    /// The type of a word: an unsigned integer.
    pub word: Scalar,
    /// Extents of the words' axes.
    pub shape: Vec<u64>,
    /// For each axis of the words, the field's axis.
    pub axes: Vec<usize>,
    /// The numbers in a word, if there is one for each of several elements: axes of the field, the outermost first, and
    /// how many elements along it have a word in common.
    pub within: Vec<(usize, u64)>,
    /// The number; with several in a word, the first.
    pub digits: PackedDigits,
    /// What the digits mean.
    pub number: PackedNumber,
}

impl PackedComponent {
    /// How many elements along an axis of the field have a word in common.
    pub fn elements_along(&self, axis: usize) -> u64 {
        self.within.iter().filter(|(of, _)| *of == axis).map(|(_, n)| n).product()
    }
}
