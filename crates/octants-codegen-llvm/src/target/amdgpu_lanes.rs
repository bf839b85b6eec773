//! Lane exchanges within a wave of an AMD GPU at compile-time distances: in registers (DPP, `v_permlanex16`,
//! `v_readlane`) or by a fixed permutation (`ds_swizzle`). The general method is a gather through the shared-memory
//! hardware (`ds_bpermute`), which needs an address and takes ten times as long.
//!
//! Rows have 16 lanes. Waves of 32 (RDNA) have two rows: `v_permlanex16` moves values between them, and DPP can
//! exchange any two lanes of a row. Waves of 64 (CDNA) have four rows: DPP mirrors rows, halves and quads of a row,
//! and shifts the whole wave by one lane.

use crate::emit::{Emitter, V};

/// DPP's controls; those of a quad have two bits for each lane. The lane at a distance to the left in the row.
const ROW_LEFT: i64 = 0x100;
/// The lane at a distance before in the row.
const ROW_RIGHT: i64 = 0x110;
/// The same, around the row's end.
const ROW_ROTATE: i64 = 0x120;
/// The next lane of the wave.
const WAVE_LEFT: i64 = 0x130;
/// The lane before in the wave.
const WAVE_RIGHT: i64 = 0x138;
/// The row reversed.
const MIRROR: i64 = 0x140;
/// Each half of the row reversed.
const HALF_MIRROR: i64 = 0x141;
/// The lane of the row whose number differs in some bits.
const ROW_XOR: i64 = 0x160;
/// Each lane of a quad itself.
const IDENTITY: i64 = 0xe4;

const ALL: i64 = 15;
/// The position of the lane bits in a swizzle.
const SWIZZLE_KEEP: i64 = 0x1f;
const SWIZZLE_XOR: i64 = 10;

/// Exchanges between the lanes of a wave.
pub(super) struct Lanes<'a> {
    pub e: &'a Emitter,
    pub warp_bits: u32,
}

/// The lanes of a quad whose numbers differ in some of the two bits.
fn quad(bits: i64) -> i64 {
    (0..4).fold(0, |all, lane| all | (lane ^ bits) << (2 * lane))
}

impl Lanes<'_> {
    fn is_narrow(&self) -> bool {
        self.warp_bits == 5
    }

    /// A value with DPP. Lanes without a source, and lanes of inactive rows, get `old`. Without `old`, all lanes have a
    /// source, and the exchange may be folded into the next operation.
    fn dpp(&self, old: Option<V>, word: V, control: i64, rows: i64) -> V {
        let e = self.e;
        let f = e.declare("llvm.amdgcn.update.dpp.i32", e.i32, &mut [e.i32, e.i32, e.i32, e.i32, e.i32, e.i1]);
        let zero = e.int(e.i1, i64::from(old.is_none()));
        e.call(f, &[old.unwrap_or(word), word, e.i32c(control), e.i32c(rows), e.i32c(ALL), zero])
    }

    /// A permutation of each row.
    fn in_row(&self, word: V, control: i64) -> V {
        self.dpp(None, word, control, ALL)
    }

    /// Lanes of the other row of two, chosen for each lane of a row.
    fn of_other_row(&self, word: V, choose: impl Fn(i64) -> i64) -> V {
        let e = self.e;
        let choices = |first: i64| (0..8).fold(0, |all, n| all | (choose(first + n) & 15) << (4 * n)) as i32;
        let f = e.declare("llvm.amdgcn.permlanex16.i32", e.i32, &mut [e.i32, e.i32, e.i32, e.i32, e.i1, e.i1]);
        let [low, high] = [choices(0), choices(8)].map(|c| e.i32c(c.into()));
        e.call(f, &[word, word, low, high, e.int(e.i1, 0), e.int(e.i1, 1)])
    }

    /// The value of the lane whose number differs in these bits; `None` if a gather is needed.
    pub fn exchange(&self, word: V, bits: i64) -> Option<V> {
        let e = self.e;
        match bits {
            0 => Some(word),
            1..=3 => Some(self.in_row(word, quad(bits))),
            7 => Some(self.in_row(word, HALF_MIRROR)),
            15 => Some(self.in_row(word, MIRROR)),
            4..=15 if self.is_narrow() => Some(self.in_row(word, ROW_XOR + bits)),
            4..=7 => self.exchange(self.in_row(word, HALF_MIRROR), bits ^ 7),
            8..=11 => self.exchange(self.in_row(word, ROW_ROTATE + 8), bits ^ 8),
            12..=14 => self.exchange(self.in_row(word, MIRROR), bits ^ 15),
            16..=31 if self.is_narrow() => Some(self.of_other_row(word, |lane| lane ^ bits)),
            16..=31 => {
                let f = e.declare("llvm.amdgcn.ds.swizzle", e.i32, &mut [e.i32, e.i32]);
                Some(e.call(f, &[word, e.i32c(SWIZZLE_KEEP | bits << SWIZZLE_XOR)]))
            }
            _ => None,
        }
    }

    /// The value of the lane that is `by` further, before it if negative, or the lane's own value if there is none;
    /// `None` if a gather is needed.
    pub fn shift(&self, word: V, by: i64) -> Option<V> {
        match by {
            0 => Some(word),
            1 if !self.is_narrow() => Some(self.dpp(Some(word), word, WAVE_LEFT, ALL)),
            -1 if !self.is_narrow() => Some(self.dpp(Some(word), word, WAVE_RIGHT, ALL)),
            -16..=16 if self.is_narrow() => {
                // The row at the end of the wave keeps its own value if the row does; the other one has the neighbor's.
                let other = self.of_other_row(word, |lane| lane + by);
                let end = if by > 0 { 0b10 } else { 0b01 };
                let beyond = self.dpp(Some(other), word, IDENTITY, end);
                let control = if by > 0 { ROW_LEFT } else { ROW_RIGHT };
                Some(if by.abs() == 16 { beyond } else { self.dpp(Some(beyond), word, control + by.abs(), ALL) })
            }
            _ => None,
        }
    }

    /// The value of one lane, for all lanes.
    pub fn of_lane(&self, word: V, lane: i64) -> V {
        let e = self.e;
        let f = e.declare("llvm.amdgcn.readlane.i32", e.i32, &mut [e.i32, e.i32]);
        e.call(f, &[word, e.i32c(lane & ((1 << self.warp_bits) - 1))])
    }
}
