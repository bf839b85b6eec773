//! Random numbers: Philox4x32-10 of (seed, launch, task, iteration, draw), numbered as compiled code numbers them.

use octants_ir::Scalar;

use crate::scalar::float_bits;

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// The numbers of one iteration.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Draws {
    /// Linear index of the iteration.
    pub linear: u64,
    /// Words of 32 bits that were drawn.
    pub drawn: u32,
}

/// The generator's key of a launch: the finalizer of SplitMix64.
pub(crate) fn random_key(seed: u64, launch: u64) -> [u32; 2] {
    let mut z = seed.wrapping_add(launch.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    for (shift, factor) in [(30, 0xBF58_476D_1CE4_E5B9_u64), (27, 0x94D0_49BB_1331_11EB)] {
        z = (z ^ (z >> shift)).wrapping_mul(factor);
    }
    z ^= z >> 31;
    [z as u32, (z >> 32) as u32]
}

impl Draws {
    /// The next scalar of a type.
    pub fn next(&mut self, s: Scalar, task: u32, key: [u32; 2]) -> u64 {
        let wide = s.bits() == 64;
        if wide {
            // Two words of one block.
            self.drawn = (self.drawn + 1) & !1;
        }
        let at = self.drawn;
        self.drawn += if wide { 2 } else { 1 };
        let words = philox([self.linear as u32, (self.linear >> 32) as u32, at >> 2, task], key);
        let word = |i: u32| u64::from(words[i as usize]);
        let first = at & 3;
        match s {
            Scalar::F64 => {
                let bits = word(first) | word(first + 1) << 32;
                float_bits((bits >> 11) as f64 * 2f64.powi(-53), s)
            }
            Scalar::F32 => float_bits((word(first) >> 8) as f64 * 2f64.powi(-24), s),
            Scalar::F16 => float_bits((word(first) >> 21) as f64 * 2f64.powi(-11), s),
            _ if wide => word(first) | word(first + 1) << 32,
            s => word(first) & (u64::MAX >> (64 - s.bits())),
        }
    }
}

fn philox(mut c: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for round in 0..ROUNDS {
        if round > 0 {
            key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        }
        let product = |i: usize, x: u32| {
            let p = u64::from(x) * u64::from(MULTIPLIERS[i]);
            ((p >> 32) as u32, p as u32)
        };
        let ((high0, low0), (high1, low1)) = (product(0, c[0]), product(1, c[2]));
        c = [high1 ^ c[1] ^ key[0], low1, high0 ^ c[3] ^ key[1], low0];
    }
    c
}

#[cfg(test)]
mod tests {
    use super::philox;

    /// The known-answer tests of the generator's authors.
    #[test]
    fn philox_matches_the_published_test_vectors() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    }
}
