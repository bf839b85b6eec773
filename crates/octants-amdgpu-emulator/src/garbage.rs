//! [`Garbage`]: the initial contents of registers and memory, and other seeded values.

/// A seeded pseudo-random sequence.
#[derive(Debug)]
pub struct Garbage {
    state: u64,
    /// Pregenerated words. Memory is filled from a random offset in them, because drawing each word is too slow.
    words: Vec<u32>,
}

const WORDS: usize = 4099;

impl Garbage {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Garbage {
        let mut garbage = Garbage { state: seed, words: Vec::new() };
        garbage.words = (0..WORDS).map(|_| garbage.draw() as u32).collect();
        garbage
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// The next number, in 32 bits.
    pub fn word(&mut self) -> u32 {
        (self.draw() >> 32) as u32
    }

    /// A number below a bound.
    pub fn below(&mut self, count: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(count)) >> 64) as u64
    }

    /// Fills words.
    pub fn fill_words(&mut self, words: &mut [u32]) {
        for part in words.chunks_mut(64) {
            let from = self.below((WORDS - part.len()) as u64) as usize;
            part.copy_from_slice(&self.words[from..from + part.len()]);
        }
    }

    /// Fills bytes.
    pub fn fill_bytes(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(256) {
            let from = self.below((WORDS - 64) as u64) as usize;
            for (to, word) in part.chunks_mut(4).zip(&self.words[from..]) {
                to.copy_from_slice(&word.to_le_bytes()[..to.len()]);
            }
        }
    }
}
