//! Products of matrices by a wave.

/// A product of matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Product {}

/// The product with a name.
pub fn product(_name: &str) -> Option<Product> {
    None
}
