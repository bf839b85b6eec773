//! A fast hash of the words of a launch. Words are addresses and numbers of the program, not of an adversary.

use std::hash::{BuildHasherDefault, Hasher};

/// Hashes words by rotation and multiplication.
#[derive(Default, Clone, Copy)]
pub(super) struct WordHasher(u64);

/// For maps with words as keys.
pub(super) type WordHash = BuildHasherDefault<WordHasher>;

/// An odd number whose bits look random: the fraction of the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for WordHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.chunks(8).for_each(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        });
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(29) ^ word).wrapping_mul(FACTOR);
    }

    /// The high bits of a product depend on all bits of the word, the low ones do not.
    #[inline]
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

/// The hash of a few words.
#[inline]
pub(super) fn hash_of(words: impl IntoIterator<Item = u64>) -> u64 {
    let mut hasher = WordHasher::default();
    words.into_iter().for_each(|word| hasher.write_u64(word));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn similar_words_have_different_hashes() {
        let all = (0..4096).map(|n| [4096 + 64 * (n % 16), n / 16 % 16 * 64, n / 256]);
        let hashes: HashSet<u64> = all.clone().map(hash_of).collect();
        assert_eq!(hashes.len(), 4096);
        // Maps use the low bits.
        let low: HashSet<u64> = all.map(|words| hash_of(words) % 1024).collect();
        assert!(low.len() > 900, "{}", low.len());
    }
}
