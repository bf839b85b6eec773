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
    /// A significand without its leading one, next to its exponent. An exponent of zero encodes the number zero.
    Float(BitRange),
    /// A significand with its leading one, and the shared exponent of all these significands, including this
    /// component's.
    SharedExponent(BitRange, Vec<PackedDigits>),
}

/// A component of a field of a quantized type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PackedComponent {
    /// The placement of the words.
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
    /// The meaning of the digits.
    pub number: PackedNumber,
}

impl PackedComponent {
    /// How many elements along an axis of the field have a word in common.
    pub fn elements_along(&self, axis: usize) -> u64 {
        self.within.iter().filter(|(of, _)| *of == axis).map(|(_, n)| n).product()
    }
}
