//! Canonical mnemonics: strips encodings, and maps newer names to older ones.

/// Suffixes for the encoding and the operand modifiers, both of which also follow from the operands.
const ENCODINGS: &[&str] = &["_e32", "_e64_dpp", "_e64", "_dpp8", "_dpp", "_sdwa"];

/// Newer names, and the older ones that the tables have.
const NEWER: &[(&str, &str)] = &[
    ("v_add_nc_u32", "v_add_u32"),
    ("v_add_nc_i32", "v_add_i32"),
    ("v_sub_nc_u32", "v_sub_u32"),
    ("v_sub_nc_i32", "v_sub_i32"),
    ("v_subrev_nc_u32", "v_subrev_u32"),
    ("v_add_nc_u64", "v_add_u64"),
    ("v_add_nc_u16", "v_add_u16"),
    ("v_add_nc_i16", "v_add_i16"),
    ("v_sub_nc_u16", "v_sub_u16"),
    ("v_sub_nc_i16", "v_sub_i16"),
    ("v_add_co_ci_u32", "v_addc_co_u32"),
    ("v_sub_co_ci_u32", "v_subb_co_u32"),
    ("v_subrev_co_ci_u32", "v_subbrev_co_u32"),
    ("v_clz_i32_u32", "v_ffbh_u32"),
    ("v_ctz_i32_b32", "v_ffbl_b32"),
    ("v_cls_i32", "v_ffbh_i32"),
    ("v_mad_co_u64_u32", "v_mad_u64_u32"),
    ("v_mad_co_i64_i32", "v_mad_i64_i32"),
    ("v_cvt_flr_i32_f32", "v_cvt_floor_i32_f32"),
    ("v_cvt_rpi_i32_f32", "v_cvt_nearest_i32_f32"),
    ("v_cvt_pkrtz_f16_f32", "v_cvt_pk_rtz_f16_f32"),
    ("v_mad_mix_f32", "v_fma_mix_f32"),
    ("v_fmamk_f32", "v_fma_f32"),
    ("v_fmaak_f32", "v_fma_f32"),
    ("v_fmamk_f16", "v_fma_f16"),
    ("v_fmaak_f16", "v_fma_f16"),
    ("v_fmamk_f64", "v_fma_f64"),
    ("v_fmaak_f64", "v_fma_f64"),
    ("v_madmk_f32", "v_mad_f32"),
    ("v_madak_f32", "v_mad_f32"),
    ("v_mul_dx9_zero_f32", "v_mul_legacy_f32"),
    ("s_and_not1_b32", "s_andn2_b32"),
    ("s_and_not1_b64", "s_andn2_b64"),
    ("s_or_not1_b32", "s_orn2_b32"),
    ("s_or_not1_b64", "s_orn2_b64"),
    ("s_ctz_i32_b32", "s_ff1_i32_b32"),
    ("s_ctz_i32_b64", "s_ff1_i32_b64"),
    ("s_clz_i32_u32", "s_flbit_i32_b32"),
    ("s_clz_i32_u64", "s_flbit_i32_b64"),
    ("s_cls_i32", "s_flbit_i32"),
    ("s_add_co_u32", "s_add_u32"),
    ("s_sub_co_u32", "s_sub_u32"),
    ("s_add_co_ci_u32", "s_addc_u32"),
    ("s_sub_co_ci_u32", "s_subb_u32"),
    ("s_add_co_i32", "s_add_i32"),
    ("s_sub_co_i32", "s_sub_i32"),
    ("s_addk_co_i32", "s_addk_i32"),
    ("s_fmamk_f32", "s_fma_f32"),
    ("s_fmaak_f32", "s_fma_f32"),
];

/// Parts of newer chips' names, and the corresponding parts of older names.
const PARTS: &[(&str, &str)] = &[
    ("_and_not1_", "_andn2_"),
    ("_and_not0_", "_andn1_"),
    ("_or_not1_", "_orn2_"),
    ("_or_not0_", "_orn1_"),
    ("v_max_num_", "v_max_"),
    ("v_min_num_", "v_min_"),
    ("v_max3_num_", "v_max3_"),
    ("v_min3_num_", "v_min3_"),
    ("v_med3_num_", "v_med3_"),
    ("v_minmax_num_", "v_minmax_"),
    ("v_maxmin_num_", "v_maxmin_"),
    ("v_pk_max_num_", "v_pk_max_"),
    ("v_pk_min_num_", "v_pk_min_"),
    ("s_max_num_", "s_max_"),
    ("s_min_num_", "s_min_"),
];

/// The name that tables have.
pub fn plain(mnemonic: &str) -> String {
    let name = ENCODINGS.iter().find_map(|e| mnemonic.strip_suffix(e)).unwrap_or(mnemonic);
    if let Some((_, older)) = NEWER.iter().find(|(newer, _)| *newer == name) {
        return (*older).to_string();
    }
    PARTS.iter().fold(name.to_string(), |name, (newer, older)| name.replacen(newer, older, 1))
}

/// Instructions that do nothing which is modeled: waits, hints, caches.
pub fn does_nothing(name: &str) -> bool {
    const PREFIXES: &[&str] = &[
        "s_wait",
        "s_nop",
        "s_delay_alu",
        "s_clause",
        "s_set_inst_prefetch",
        "s_inst_prefetch",
        "s_sleep",
        "s_setprio",
        "s_icache_inv",
        "s_dcache",
        "s_prefetch",
        "v_nop",
        "s_ttracedata",
        "buffer_gl",
        "buffer_wbinv",
        "buffer_inv",
        "buffer_wbl2",
        "global_inv",
        "global_wb",
        "s_code_end",
        "global_prefetch",
        "s_sethalt",
        "s_version",
    ];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}
