//! [`Key`]: the hash of everything that an artifact was built from. [`KeyBuilder`] computes it.
//!
//! Each ingredient is tagged, and is preceded by its length or made prefix-free by `std::hash::Hash`, so different
//! lists of ingredients have different encodings. A key contains no address, which would mean nothing in the next
//! process.

use std::fmt;
use std::hash::{Hash, Hasher};

use serde::{Deserialize, Serialize};

/// A 256-bit hash of all inputs of a compilation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key([u8; 32]);

impl Key {
    /// The bits.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// Accumulates the inputs of a key.
#[derive(Debug, Default, Clone)]
pub struct KeyBuilder {
    bytes: Vec<u8>,
}

impl KeyBuilder {
    /// An empty list of ingredients.
    pub fn new() -> KeyBuilder {
        KeyBuilder::default()
    }

    /// Adds an ingredient under a name.
    pub fn add(&mut self, name: &str, value: &(impl Hash + ?Sized)) -> &mut KeyBuilder {
        name.hash(self);
        value.hash(self);
        self
    }

    /// The key of all that was added, in this order.
    pub fn key(&self) -> Key {
        Key(*blake3::hash(&self.bytes).as_bytes())
    }
}

/// Collects the bytes that a `Hash` writes. It is hashed as a whole at the end: a cryptographic hash of many small
/// pieces is slow.
impl Hasher for KeyBuilder {
    fn write(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.key().0;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}

/// The key of these bytes only.
pub fn key_of_bytes(bytes: &[u8]) -> Key {
    Key(*blake3::hash(bytes).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_ingredients_are_delimited() {
        let key = |parts: &[(&str, &str)]| {
            let mut builder = KeyBuilder::new();
            parts.iter().for_each(|(name, value)| _ = builder.add(name, *value));
            builder.key()
        };
        assert_ne!(key(&[("a", "bc")]), key(&[("ab", "c")]));
        assert_ne!(key(&[("a", "b"), ("c", "")]), key(&[("a", ""), ("c", "b")]));
        assert_eq!(key(&[("a", "b")]), key(&[("a", "b")]));
    }

    #[test]
    fn a_key_is_written_as_64_hex_digits() {
        let text = key_of_bytes(b"").to_string();
        assert_eq!(text, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262");
    }
}
