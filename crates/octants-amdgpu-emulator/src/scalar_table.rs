//! The table of operations on scalars.

/// Computes a result from up to three sources and SCC, which it may change.
pub type ScalarFn = fn(&mut bool, [u64; 3]) -> u64;

/// An operation on scalars.
#[derive(Debug, Clone, Copy)]
pub struct ScalarOp {
    /// Width of the result; zero if there is none.
    pub to: u32,
    /// Width of each source.
    pub from: &'static [u32],
    /// The function.
    pub run: ScalarFn,
}

macro_rules! sop {
    ($name:literal, $to:literal, [$($from:literal),*], |$scc:ident, $s:ident| $body:expr) => {
        ($name, ScalarOp { to: $to, from: &[$($from),*], run: |$scc, $s| $body })
    };
}

fn nonzero(scc: &mut bool, value: u64) -> u64 {
    *scc = value != 0;
    value
}

fn low(value: u64) -> u64 {
    value & 0xffff_ffff
}

fn signed(value: u64) -> i64 {
    value as u32 as i32 as i64
}

fn overflows(scc: &mut bool, exact: i64) -> u64 {
    *scc = i64::from(exact as i32) != exact;
    low(exact as u64)
}

fn choose(scc: &mut bool, first: bool, s: [u64; 3]) -> u64 {
    *scc = first;
    if first { s[0] } else { s[1] }
}

fn test(scc: &mut bool, holds: bool) -> u64 {
    *scc = holds;
    0
}

/// The mask of a bit field whose offset and width are packed in one word.
fn field(word: u64, bits: u32) -> (u32, u32) {
    let width = word as u32 >> 16 & 0x7f;
    (word as u32 & (bits - 1), width.min(bits))
}

fn extract(value: u64, word: u64, bits: u32) -> u64 {
    let (offset, width) = field(word, bits);
    if width == 0 { 0 } else { value >> offset & (u64::MAX >> (64 - width)) }
}

fn extract_signed(value: u64, word: u64, bits: u32) -> u64 {
    let (offset, width) = field(word, bits);
    if width == 0 {
        return 0;
    }
    // Bits past the end of the value are sign bits.
    let whole = if bits == 32 { signed(value) } else { value as i64 };
    let shift = 64 - width;
    let result = (((whole >> offset) << shift) >> shift) as u64;
    if bits == 32 { low(result) } else { result }
}

fn pack(low_half: u64, high_half: u64) -> u64 {
    (high_half & 0xffff) << 16 | low_half & 0xffff
}

/// Operations by name. `mnemonic` translates newer names to these.
pub const SCALARS: &[(&str, ScalarOp)] = &[
    sop!("s_mov_b32", 32, [32], |_scc, s| s[0]),
    sop!("s_mov_b64", 64, [64], |_scc, s| s[0]),
    sop!("s_movk_i32", 32, [16], |_scc, s| s[0] as i16 as i32 as u32 as u64),
    sop!("s_add_u32", 32, [32, 32], |scc, s| {
        *scc = (s[0] + s[1]) >> 32 != 0;
        low(s[0] + s[1])
    }),
    sop!("s_sub_u32", 32, [32, 32], |scc, s| {
        *scc = s[1] > s[0];
        low(s[0].wrapping_sub(s[1]))
    }),
    sop!("s_addc_u32", 32, [32, 32], |scc, s| {
        let sum = s[0] + s[1] + u64::from(*scc);
        *scc = sum >> 32 != 0;
        low(sum)
    }),
    sop!("s_subb_u32", 32, [32, 32], |scc, s| {
        let taken = s[1] + u64::from(*scc);
        *scc = taken > s[0];
        low(s[0].wrapping_sub(taken))
    }),
    sop!("s_add_i32", 32, [32, 32], |scc, s| overflows(scc, signed(s[0]) + signed(s[1]))),
    sop!("s_sub_i32", 32, [32, 32], |scc, s| overflows(scc, signed(s[0]) - signed(s[1]))),
    sop!("s_add_nc_u64", 64, [64, 64], |_scc, s| s[0].wrapping_add(s[1])),
    sop!("s_sub_nc_u64", 64, [64, 64], |_scc, s| s[0].wrapping_sub(s[1])),
    sop!("s_mul_i32", 32, [32, 32], |_scc, s| low(s[0].wrapping_mul(s[1]))),
    sop!("s_mul_u64", 64, [64, 64], |_scc, s| s[0].wrapping_mul(s[1])),
    sop!("s_mul_hi_u32", 32, [32, 32], |_scc, s| (s[0] * s[1]) >> 32),
    sop!("s_mul_hi_i32", 32, [32, 32], |_scc, s| low(((signed(s[0]) * signed(s[1])) >> 32) as u64)),
    sop!("s_min_i32", 32, [32, 32], |scc, s| choose(scc, signed(s[0]) < signed(s[1]), s)),
    sop!("s_max_i32", 32, [32, 32], |scc, s| choose(scc, signed(s[0]) > signed(s[1]), s)),
    sop!("s_min_u32", 32, [32, 32], |scc, s| choose(scc, s[0] < s[1], s)),
    sop!("s_max_u32", 32, [32, 32], |scc, s| choose(scc, s[0] > s[1], s)),
    sop!("s_abs_i32", 32, [32], |scc, s| nonzero(scc, signed(s[0]).unsigned_abs())),
    sop!("s_absdiff_i32", 32, [32, 32], |scc, s| nonzero(scc, low((signed(s[0]) - signed(s[1])).unsigned_abs()))),
    sop!("s_cselect_b32", 32, [32, 32], |scc, s| if *scc { s[0] } else { s[1] }),
    sop!("s_cselect_b64", 64, [64, 64], |scc, s| if *scc { s[0] } else { s[1] }),
    sop!("s_and_b32", 32, [32, 32], |scc, s| nonzero(scc, s[0] & s[1])),
    sop!("s_and_b64", 64, [64, 64], |scc, s| nonzero(scc, s[0] & s[1])),
    sop!("s_or_b32", 32, [32, 32], |scc, s| nonzero(scc, s[0] | s[1])),
    sop!("s_or_b64", 64, [64, 64], |scc, s| nonzero(scc, s[0] | s[1])),
    sop!("s_xor_b32", 32, [32, 32], |scc, s| nonzero(scc, s[0] ^ s[1])),
    sop!("s_xor_b64", 64, [64, 64], |scc, s| nonzero(scc, s[0] ^ s[1])),
    sop!("s_andn2_b32", 32, [32, 32], |scc, s| nonzero(scc, s[0] & !s[1])),
    sop!("s_andn2_b64", 64, [64, 64], |scc, s| nonzero(scc, s[0] & !s[1])),
    sop!("s_orn2_b32", 32, [32, 32], |scc, s| nonzero(scc, low(s[0] | !s[1]))),
    sop!("s_orn2_b64", 64, [64, 64], |scc, s| nonzero(scc, s[0] | !s[1])),
    sop!("s_nand_b32", 32, [32, 32], |scc, s| nonzero(scc, low(!(s[0] & s[1])))),
    sop!("s_nand_b64", 64, [64, 64], |scc, s| nonzero(scc, !(s[0] & s[1]))),
    sop!("s_nor_b32", 32, [32, 32], |scc, s| nonzero(scc, low(!(s[0] | s[1])))),
    sop!("s_nor_b64", 64, [64, 64], |scc, s| nonzero(scc, !(s[0] | s[1]))),
    sop!("s_xnor_b32", 32, [32, 32], |scc, s| nonzero(scc, low(!(s[0] ^ s[1])))),
    sop!("s_xnor_b64", 64, [64, 64], |scc, s| nonzero(scc, !(s[0] ^ s[1]))),
    sop!("s_not_b32", 32, [32], |scc, s| nonzero(scc, low(!s[0]))),
    sop!("s_not_b64", 64, [64], |scc, s| nonzero(scc, !s[0])),
    sop!("s_lshl_b32", 32, [32, 32], |scc, s| nonzero(scc, low(s[0] << (s[1] & 31)))),
    sop!("s_lshl_b64", 64, [64, 32], |scc, s| nonzero(scc, s[0] << (s[1] & 63))),
    sop!("s_lshr_b32", 32, [32, 32], |scc, s| nonzero(scc, s[0] >> (s[1] & 31))),
    sop!("s_lshr_b64", 64, [64, 32], |scc, s| nonzero(scc, s[0] >> (s[1] & 63))),
    sop!("s_ashr_i32", 32, [32, 32], |scc, s| nonzero(scc, low((signed(s[0]) >> (s[1] & 31)) as u64))),
    sop!("s_ashr_i64", 64, [64, 32], |scc, s| nonzero(scc, (s[0] as i64 >> (s[1] & 63)) as u64)),
    sop!("s_lshl1_add_u32", 32, [32, 32], |scc, s| shifted_sum(scc, s, 1)),
    sop!("s_lshl2_add_u32", 32, [32, 32], |scc, s| shifted_sum(scc, s, 2)),
    sop!("s_lshl3_add_u32", 32, [32, 32], |scc, s| shifted_sum(scc, s, 3)),
    sop!("s_lshl4_add_u32", 32, [32, 32], |scc, s| shifted_sum(scc, s, 4)),
    sop!("s_bfm_b32", 32, [32, 32], |_scc, s| low(((1u64 << (s[0] & 31)) - 1) << (s[1] & 31))),
    sop!("s_bfm_b64", 64, [32, 32], |_scc, s| ((1u64 << (s[0] & 63)) - 1) << (s[1] & 63)),
    sop!("s_bfe_u32", 32, [32, 32], |scc, s| nonzero(scc, extract(s[0], s[1], 32))),
    sop!("s_bfe_u64", 64, [64, 32], |scc, s| nonzero(scc, extract(s[0], s[1], 64))),
    sop!("s_bfe_i32", 32, [32, 32], |scc, s| nonzero(scc, extract_signed(s[0], s[1], 32))),
    sop!("s_bfe_i64", 64, [64, 32], |scc, s| nonzero(scc, extract_signed(s[0], s[1], 64))),
    sop!("s_pack_ll_b32_b16", 32, [32, 32], |_scc, s| pack(s[0], s[1])),
    sop!("s_pack_lh_b32_b16", 32, [32, 32], |_scc, s| pack(s[0], s[1] >> 16)),
    sop!("s_pack_hl_b32_b16", 32, [32, 32], |_scc, s| pack(s[0] >> 16, s[1])),
    sop!("s_pack_hh_b32_b16", 32, [32, 32], |_scc, s| pack(s[0] >> 16, s[1] >> 16)),
    sop!("s_brev_b32", 32, [32], |_scc, s| (s[0] as u32).reverse_bits().into()),
    sop!("s_brev_b64", 64, [64], |_scc, s| s[0].reverse_bits()),
    sop!("s_bcnt1_i32_b32", 32, [32], |scc, s| nonzero(scc, s[0].count_ones().into())),
    sop!("s_bcnt1_i32_b64", 32, [64], |scc, s| nonzero(scc, s[0].count_ones().into())),
    sop!("s_bcnt0_i32_b32", 32, [32], |scc, s| nonzero(scc, (32 - s[0].count_ones()).into())),
    sop!("s_bcnt0_i32_b64", 32, [64], |scc, s| nonzero(scc, s[0].count_zeros().into())),
    sop!("s_ff1_i32_b32", 32, [32], |_scc, s| if s[0] == 0 { 0xffff_ffff } else { s[0].trailing_zeros().into() }),
    sop!("s_ff1_i32_b64", 32, [64], |_scc, s| if s[0] == 0 { 0xffff_ffff } else { s[0].trailing_zeros().into() }),
    sop!("s_flbit_i32_b32", 32, [32], |_scc, s| {
        if s[0] == 0 { 0xffff_ffff } else { (s[0] as u32).leading_zeros().into() }
    }),
    sop!("s_flbit_i32_b64", 32, [64], |_scc, s| if s[0] == 0 { 0xffff_ffff } else { s[0].leading_zeros().into() }),
    sop!("s_flbit_i32", 32, [32], |_scc, s| {
        let value = s[0] as u32;
        let same = if (value as i32) < 0 { value.leading_ones() } else { value.leading_zeros() };
        if same == 32 { 0xffff_ffff } else { same.into() }
    }),
    sop!("s_sext_i32_i8", 32, [32], |_scc, s| s[0] as i8 as i32 as u32 as u64),
    sop!("s_sext_i32_i16", 32, [32], |_scc, s| s[0] as i16 as i32 as u32 as u64),
    sop!("s_cmp_eq_i32", 0, [32, 32], |scc, s| test(scc, s[0] == s[1])),
    sop!("s_cmp_lg_i32", 0, [32, 32], |scc, s| test(scc, s[0] != s[1])),
    sop!("s_cmp_gt_i32", 0, [32, 32], |scc, s| test(scc, signed(s[0]) > signed(s[1]))),
    sop!("s_cmp_ge_i32", 0, [32, 32], |scc, s| test(scc, signed(s[0]) >= signed(s[1]))),
    sop!("s_cmp_lt_i32", 0, [32, 32], |scc, s| test(scc, signed(s[0]) < signed(s[1]))),
    sop!("s_cmp_le_i32", 0, [32, 32], |scc, s| test(scc, signed(s[0]) <= signed(s[1]))),
    sop!("s_cmp_eq_u32", 0, [32, 32], |scc, s| test(scc, s[0] == s[1])),
    sop!("s_cmp_lg_u32", 0, [32, 32], |scc, s| test(scc, s[0] != s[1])),
    sop!("s_cmp_gt_u32", 0, [32, 32], |scc, s| test(scc, s[0] > s[1])),
    sop!("s_cmp_ge_u32", 0, [32, 32], |scc, s| test(scc, s[0] >= s[1])),
    sop!("s_cmp_lt_u32", 0, [32, 32], |scc, s| test(scc, s[0] < s[1])),
    sop!("s_cmp_le_u32", 0, [32, 32], |scc, s| test(scc, s[0] <= s[1])),
    sop!("s_cmp_eq_u64", 0, [64, 64], |scc, s| test(scc, s[0] == s[1])),
    sop!("s_cmp_lg_u64", 0, [64, 64], |scc, s| test(scc, s[0] != s[1])),
    sop!("s_bitcmp0_b32", 0, [32, 32], |scc, s| test(scc, s[0] >> (s[1] & 31) & 1 == 0)),
    sop!("s_bitcmp1_b32", 0, [32, 32], |scc, s| test(scc, s[0] >> (s[1] & 31) & 1 == 1)),
    sop!("s_bitcmp0_b64", 0, [64, 32], |scc, s| test(scc, s[0] >> (s[1] & 63) & 1 == 0)),
    sop!("s_bitcmp1_b64", 0, [64, 32], |scc, s| test(scc, s[0] >> (s[1] & 63) & 1 == 1)),
];

fn shifted_sum(scc: &mut bool, s: [u64; 3], by: u32) -> u64 {
    let sum = (s[0] << by) + s[1];
    *scc = sum >> 32 != 0;
    low(sum)
}

/// Operations whose destination is also their first source.
pub const READ_AND_WRITTEN: &[(&str, ScalarOp)] = &[
    sop!("s_addk_i32", 32, [32, 16], |scc, s| overflows(scc, signed(s[0]) + i64::from(s[1] as i16))),
    sop!("s_mulk_i32", 32, [32, 16], |_scc, s| low((signed(s[0]) * i64::from(s[1] as i16)) as u64)),
    sop!("s_cmovk_i32", 32, [32, 16], |scc, s| if *scc { s[1] as i16 as i32 as u32 as u64 } else { s[0] }),
    sop!("s_cmov_b32", 32, [32, 32], |scc, s| if *scc { s[1] } else { s[0] }),
    sop!("s_cmov_b64", 64, [64, 64], |scc, s| if *scc { s[1] } else { s[0] }),
    sop!("s_bitset0_b32", 32, [32, 32], |_scc, s| s[0] & !(1 << (s[1] & 31))),
    sop!("s_bitset1_b32", 32, [32, 32], |_scc, s| s[0] | 1 << (s[1] & 31)),
    sop!("s_bitset0_b64", 64, [64, 32], |_scc, s| s[0] & !(1 << (s[1] & 63))),
    sop!("s_bitset1_b64", 64, [64, 32], |_scc, s| s[0] | 1 << (s[1] & 63)),
];

/// Computes the new EXEC from a mask and the old EXEC.
pub type MaskFn = fn(u64, u64) -> u64;

/// Operations that update EXEC, by name. The first source is a mask, the second is EXEC.
pub const MASKS: &[(&str, MaskFn)] = &[
    ("s_and_saveexec", |s, e| s & e),
    ("s_or_saveexec", |s, e| s | e),
    ("s_xor_saveexec", |s, e| s ^ e),
    ("s_andn2_saveexec", |s, e| s & !e),
    ("s_andn1_saveexec", |s, e| !s & e),
    ("s_orn2_saveexec", |s, e| s | !e),
    ("s_orn1_saveexec", |s, e| !s | e),
    ("s_nand_saveexec", |s, e| !(s & e)),
    ("s_nor_saveexec", |s, e| !(s | e)),
    ("s_xnor_saveexec", |s, e| !(s ^ e)),
    ("s_andn2_wrexec", |s, e| s & !e),
    ("s_andn1_wrexec", |s, e| !s & e),
];
