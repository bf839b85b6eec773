//! The table of lane operations on integers and bits.

use crate::lanewise::{Lanewise, op};

/// Sign-extends the low 24 bits.
fn i24(x: u32) -> i32 {
    (x as i32) << 8 >> 8
}

fn u24(x: u32) -> u32 {
    x & 0xff_ffff
}

fn permute_bytes(high: u32, low: u32, selector: u32) -> u32 {
    let bytes = (u64::from(high) << 32 | u64::from(low)).to_le_bytes();
    let sign = |at: usize| if bytes[at] & 0x80 == 0 { 0 } else { 0xff };
    u32::from_le_bytes(selector.to_le_bytes().map(|s| match s {
        0..=7 => bytes[s as usize],
        8..=11 => sign(2 * (s as usize - 8) + 1),
        12 => 0,
        _ => 0xff,
    }))
}

fn field(offset: u32, width: u32) -> (u32, u32) {
    (offset & 31, width & 31)
}

fn differences(a: u32, b: u32) -> u32 {
    a.to_le_bytes().iter().zip(b.to_le_bytes()).map(|(x, y)| u32::from(x.abs_diff(y))).sum()
}

fn halves(x: u32) -> [u16; 2] {
    [x as u16, (x >> 16) as u16]
}

/// Operations by name, without the encoding suffix.
pub const INTEGERS: &[(&str, Lanewise)] = &[
    op!("v_mov_b32", |a: u32| -> u32 { a }),
    op!("v_mov_b16", |a: u16| -> u16 { a }),
    op!("v_mov_b64", |a: u64| -> u64 { a }),
    op!("v_not_b32", |a: u32| -> u32 { !a }),
    op!("v_not_b16", |a: u16| -> u16 { !a }),
    op!("v_bfrev_b32", |a: u32| -> u32 { a.reverse_bits() }),
    op!("v_ffbh_u32", |a: u32| -> u32 { if a == 0 { u32::MAX } else { a.leading_zeros() } }),
    op!("v_ffbl_b32", |a: u32| -> u32 { if a == 0 { u32::MAX } else { a.trailing_zeros() } }),
    op!("v_ffbh_i32", |a: u32| -> u32 {
        let same = if (a as i32) < 0 { a.leading_ones() } else { a.leading_zeros() };
        if same == 32 { u32::MAX } else { same }
    }),
    op!("v_add_u32", |a: u32, b: u32| -> u32 { a.wrapping_add(b) }),
    op!("v_add_i32", |a: u32, b: u32| -> u32 { a.wrapping_add(b) }),
    op!("v_sub_u32", |a: u32, b: u32| -> u32 { a.wrapping_sub(b) }),
    op!("v_sub_i32", |a: u32, b: u32| -> u32 { a.wrapping_sub(b) }),
    op!("v_subrev_u32", |a: u32, b: u32| -> u32 { b.wrapping_sub(a) }),
    op!("v_add_u64", |a: u64, b: u64| -> u64 { a.wrapping_add(b) }),
    op!("v_add_u16", |a: u16, b: u16| -> u16 { a.wrapping_add(b) }),
    op!("v_add_i16", |a: u16, b: u16| -> u16 { a.wrapping_add(b) }),
    op!("v_sub_u16", |a: u16, b: u16| -> u16 { a.wrapping_sub(b) }),
    op!("v_sub_i16", |a: u16, b: u16| -> u16 { a.wrapping_sub(b) }),
    op!("v_subrev_u16", |a: u16, b: u16| -> u16 { b.wrapping_sub(a) }),
    op!("v_mul_lo_u16", |a: u16, b: u16| -> u16 { a.wrapping_mul(b) }),
    op!("v_mul_lo_u32", |a: u32, b: u32| -> u32 { a.wrapping_mul(b) }),
    op!("v_mul_hi_u32", |a: u32, b: u32| -> u32 { ((u64::from(a) * u64::from(b)) >> 32) as u32 }),
    op!("v_mul_hi_i32", |a: i32, b: i32| -> i32 { ((i64::from(a) * i64::from(b)) >> 32) as i32 }),
    op!("v_mul_u32_u24", |a: u32, b: u32| -> u32 { u24(a).wrapping_mul(u24(b)) }),
    op!("v_mul_hi_u32_u24", |a: u32, b: u32| -> u32 { ((u64::from(u24(a)) * u64::from(u24(b))) >> 32) as u32 }),
    op!("v_mul_i32_i24", |a: u32, b: u32| -> i32 { i24(a).wrapping_mul(i24(b)) }),
    op!("v_mul_hi_i32_i24", |a: u32, b: u32| -> i32 { ((i64::from(i24(a)) * i64::from(i24(b))) >> 32) as i32 }),
    op!("v_mad_u32_u24", |a: u32, b: u32, c: u32| -> u32 { u24(a).wrapping_mul(u24(b)).wrapping_add(c) }),
    op!("v_mad_i32_i24", |a: u32, b: u32, c: i32| -> i32 { i24(a).wrapping_mul(i24(b)).wrapping_add(c) }),
    op!("v_mad_u16", |a: u16, b: u16, c: u16| -> u16 { a.wrapping_mul(b).wrapping_add(c) }),
    // The `legacy` variants clear the upper half.
    op!("v_mad_legacy_u16", |a: u16, b: u16, c: u16| -> u16 { a.wrapping_mul(b).wrapping_add(c) }),
    op!("v_mad_i16", |a: u16, b: u16, c: u16| -> u16 { a.wrapping_mul(b).wrapping_add(c) }),
    op!("v_mad_u32_u16", |a: u16, b: u16, c: u32| -> u32 { (u32::from(a) * u32::from(b)).wrapping_add(c) }),
    op!("v_mad_i32_i16", |a: i16, b: i16, c: i32| -> i32 { (i32::from(a) * i32::from(b)).wrapping_add(c) }),
    op!("v_and_b32", |a: u32, b: u32| -> u32 { a & b }),
    op!("v_or_b32", |a: u32, b: u32| -> u32 { a | b }),
    op!("v_xor_b32", |a: u32, b: u32| -> u32 { a ^ b }),
    op!("v_xnor_b32", |a: u32, b: u32| -> u32 { !(a ^ b) }),
    op!("v_and_b16", |a: u16, b: u16| -> u16 { a & b }),
    op!("v_or_b16", |a: u16, b: u16| -> u16 { a | b }),
    op!("v_xor_b16", |a: u16, b: u16| -> u16 { a ^ b }),
    op!("v_lshlrev_b32", |a: u32, b: u32| -> u32 { b << (a & 31) }),
    op!("v_lshrrev_b32", |a: u32, b: u32| -> u32 { b >> (a & 31) }),
    op!("v_ashrrev_i32", |a: u32, b: i32| -> i32 { b >> (a & 31) }),
    op!("v_lshlrev_b16", |a: u16, b: u16| -> u16 { b << (a & 15) }),
    op!("v_lshrrev_b16", |a: u16, b: u16| -> u16 { b >> (a & 15) }),
    op!("v_ashrrev_i16", |a: u16, b: i16| -> i16 { b >> (a & 15) }),
    op!("v_lshlrev_b64", |a: u32, b: u64| -> u64 { b << (a & 63) }),
    op!("v_lshrrev_b64", |a: u32, b: u64| -> u64 { b >> (a & 63) }),
    op!("v_ashrrev_i64", |a: u32, b: i64| -> i64 { b >> (a & 63) }),
    op!("v_min_u32", |a: u32, b: u32| -> u32 { a.min(b) }),
    op!("v_max_u32", |a: u32, b: u32| -> u32 { a.max(b) }),
    op!("v_min_i32", |a: i32, b: i32| -> i32 { a.min(b) }),
    op!("v_max_i32", |a: i32, b: i32| -> i32 { a.max(b) }),
    op!("v_min_u16", |a: u16, b: u16| -> u16 { a.min(b) }),
    op!("v_max_u16", |a: u16, b: u16| -> u16 { a.max(b) }),
    op!("v_min_i16", |a: i16, b: i16| -> i16 { a.min(b) }),
    op!("v_max_i16", |a: i16, b: i16| -> i16 { a.max(b) }),
    op!("v_min3_u32", |a: u32, b: u32, c: u32| -> u32 { a.min(b).min(c) }),
    op!("v_max3_u32", |a: u32, b: u32, c: u32| -> u32 { a.max(b).max(c) }),
    op!("v_min3_i32", |a: i32, b: i32, c: i32| -> i32 { a.min(b).min(c) }),
    op!("v_max3_i32", |a: i32, b: i32, c: i32| -> i32 { a.max(b).max(c) }),
    op!("v_min3_i16", |a: i16, b: i16, c: i16| -> i16 { a.min(b).min(c) }),
    op!("v_max3_i16", |a: i16, b: i16, c: i16| -> i16 { a.max(b).max(c) }),
    op!("v_min3_u16", |a: u16, b: u16, c: u16| -> u16 { a.min(b).min(c) }),
    op!("v_max3_u16", |a: u16, b: u16, c: u16| -> u16 { a.max(b).max(c) }),
    op!("v_med3_u32", |a: u32, b: u32, c: u32| -> u32 { a.max(b).min(a.min(b).max(c)) }),
    op!("v_med3_i32", |a: i32, b: i32, c: i32| -> i32 { a.max(b).min(a.min(b).max(c)) }),
    op!("v_med3_u16", |a: u16, b: u16, c: u16| -> u16 { a.max(b).min(a.min(b).max(c)) }),
    op!("v_med3_i16", |a: i16, b: i16, c: i16| -> i16 { a.max(b).min(a.min(b).max(c)) }),
    op!("v_maxmin_u32", |a: u32, b: u32, c: u32| -> u32 { a.max(b).min(c) }),
    op!("v_minmax_u32", |a: u32, b: u32, c: u32| -> u32 { a.min(b).max(c) }),
    op!("v_maxmin_i32", |a: i32, b: i32, c: i32| -> i32 { a.max(b).min(c) }),
    op!("v_minmax_i32", |a: i32, b: i32, c: i32| -> i32 { a.min(b).max(c) }),
    op!("v_add3_u32", |a: u32, b: u32, c: u32| -> u32 { a.wrapping_add(b).wrapping_add(c) }),
    op!("v_lshl_add_u32", |a: u32, b: u32, c: u32| -> u32 { (a << (b & 31)).wrapping_add(c) }),
    op!("v_add_lshl_u32", |a: u32, b: u32, c: u32| -> u32 { a.wrapping_add(b) << (c & 31) }),
    op!("v_lshl_add_u64", |a: u64, b: u32, c: u64| -> u64 { (a << (b & 7)).wrapping_add(c) }),
    op!("v_lshl_or_b32", |a: u32, b: u32, c: u32| -> u32 { a << (b & 31) | c }),
    op!("v_and_or_b32", |a: u32, b: u32, c: u32| -> u32 { a & b | c }),
    op!("v_or3_b32", |a: u32, b: u32, c: u32| -> u32 { a | b | c }),
    op!("v_xor3_b32", |a: u32, b: u32, c: u32| -> u32 { a ^ b ^ c }),
    op!("v_xad_u32", |a: u32, b: u32, c: u32| -> u32 { (a ^ b).wrapping_add(c) }),
    op!("v_bfe_u32", |a: u32, b: u32, c: u32| -> u32 {
        let (offset, width) = field(b, c);
        (a >> offset) & ((1 << width) - 1)
    }),
    op!("v_bfe_i32", |a: u32, b: u32, c: u32| -> i32 {
        let (offset, width) = field(b, c);
        let kept = (a >> offset) & ((1u32 << width) - 1);
        if width == 0 { 0 } else { ((kept << (32 - width)) as i32) >> (32 - width) }
    }),
    op!("v_bfi_b32", |a: u32, b: u32, c: u32| -> u32 { a & b | !a & c }),
    op!("v_bfm_b32", |a: u32, b: u32| -> u32 { ((1u32 << (a & 31)) - 1) << (b & 31) }),
    op!("v_bcnt_u32_b32", |a: u32, b: u32| -> u32 { a.count_ones().wrapping_add(b) }),
    op!("v_alignbit_b32", |a: u32, b: u32, c: u32| -> u32 { ((u64::from(a) << 32 | u64::from(b)) >> (c & 31)) as u32 }),
    op!("v_alignbyte_b32", |a: u32, b: u32, c: u32| -> u32 {
        ((u64::from(a) << 32 | u64::from(b)) >> (8 * (c & 3))) as u32
    }),
    op!("v_perm_b32", |a: u32, b: u32, c: u32| -> u32 { permute_bytes(a, b, c) }),
    op!("v_sad_u8", |a: u32, b: u32, c: u32| -> u32 { differences(a, b).wrapping_add(c) }),
    op!("v_sad_u32", |a: u32, b: u32, c: u32| -> u32 { a.abs_diff(b).wrapping_add(c) }),
    op!("v_cndmask_b32", |a: u32, b: u32, c: bool| -> u32 { if c { b } else { a } }),
    op!("v_cndmask_b16", |a: u16, b: u16, c: bool| -> u16 { if c { b } else { a } }),
    op!("v_pack_b32_f16", |a: u16, b: u16| -> u32 { u32::from(b) << 16 | u32::from(a) }),
    op!("v_cvt_u32_u16", |a: u16| -> u32 { a.into() }),
    op!("v_cvt_i32_i16", |a: i16| -> i32 { a.into() }),
    op!("v_cvt_pk_u16_u32", |a: u32, b: u32| -> u32 { b.min(0xffff) << 16 | a.min(0xffff) }),
    op!("v_cvt_pk_i16_i32", |a: i32, b: i32| -> u32 {
        let clamped = |x: i32| x.clamp(-0x8000, 0x7fff) as u32 & 0xffff;
        clamped(b) << 16 | clamped(a)
    }),
    op!("v_sat_pk_u8_i16", |a: u32| -> u32 {
        let [low, high] = halves(a).map(|h| (h as i16).clamp(0, 255) as u32);
        high << 8 | low
    }),
    op!("v_dot4_u32_u8", |a: u32, b: u32, c: u32| -> u32 {
        let products = a.to_le_bytes().into_iter().zip(b.to_le_bytes());
        products.fold(c, |sum, (x, y)| sum.wrapping_add(u32::from(x) * u32::from(y)))
    }),
];
