//! [`IndexDigit`]: a digit of the index along an axis, written in mixed radix.

/// A digit of an index: the index along an axis, divided by the weight, modulo the extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IndexDigit {
    /// Which index of several.
    pub axis: usize,
    /// Radix: values that the digit can have.
    pub extent: u64,
    /// How far the index moves when the digit grows by one: the product of the extents further in.
    pub weight: u64,
}

impl IndexDigit {
    /// The digit's value in an index that counts from zero.
    pub fn of(&self, index: &[u64]) -> u64 {
        index[self.axis] / self.weight.max(1) % self.extent.max(1)
    }
}
