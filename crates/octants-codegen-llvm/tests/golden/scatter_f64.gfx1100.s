; by LLVM 22.1.8
kernel_0:
	s_clause 0x2
	s_load_b256 s[4:11], s[0:1], 0x40
	s_load_b32 s14, s[0:1], 0x7c
	s_load_b64 s[2:3], s[0:1], 0x60
	s_add_u32 s12, s0, 0x70
	s_addc_u32 s13, s1, 0
	s_waitcnt lgkmcnt(0)
	s_lshl_b64 s[0:1], s[10:11], 3
	s_delay_alu instid0(SALU_CYCLE_1)
	v_cmp_lt_u64_e64 s0, 0x8000, s[0:1]
	s_and_b32 s1, s14, 0xffff
	s_and_b32 vcc_lo, exec_lo, s0
	s_mov_b32 s0, -1
	s_cbranch_vccz .LBB0_7
	s_bfe_i64 s[16:17], s[6:7], 0x200000
	v_mad_u64_u32 v[5:6], null, s15, s1, v[0:1]
	v_cmp_gt_i64_e64 s0, s[16:17], 0
	s_mov_b32 s11, exec_lo
	s_and_b32 s0, s0, exec_lo
	s_cselect_b32 s16, s16, 0
	s_mov_b32 s0, 0
	v_cmpx_gt_u32_e64 s16, v5
	s_cbranch_execz .LBB0_6
	s_load_b32 s14, s[12:13], 0x0
	v_mov_b32_e32 v6, 0
	s_mov_b32 s17, 0
	s_waitcnt lgkmcnt(0)
	s_mul_i32 s14, s14, s1
	s_delay_alu instid0(SALU_CYCLE_1) | instskip(NEXT) | instid1(SALU_CYCLE_1)
	s_min_u32 s14, s14, s16
	s_sub_i32 s16, s16, s14
	s_set_inst_prefetch_distance 0x1
.LBB0_3:
	s_delay_alu instid0(VALU_DEP_1) | instskip(SKIP_2) | instid1(VALU_DEP_2)
	v_lshlrev_b64 v[1:2], 2, v[5:6]
	v_lshlrev_b64 v[3:4], 3, v[5:6]
	s_mov_b32 s18, 0
	v_add_co_u32 v1, vcc_lo, s4, v1
	s_delay_alu instid0(VALU_DEP_1) | instskip(NEXT) | instid1(VALU_DEP_3)
	v_add_co_ci_u32_e64 v2, null, s5, v2, vcc_lo
	v_add_co_u32 v3, vcc_lo, s2, v3
	s_delay_alu instid0(VALU_DEP_1) | instskip(SKIP_3) | instid1(VALU_DEP_1)
	v_add_co_ci_u32_e64 v4, null, s3, v4, vcc_lo
	global_load_b32 v1, v[1:2], off
	s_waitcnt vmcnt(0)
	v_ashrrev_i32_e32 v2, 31, v1
	v_lshlrev_b64 v[1:2], 3, v[1:2]
	s_delay_alu instid0(VALU_DEP_1) | instskip(NEXT) | instid1(VALU_DEP_1)
	v_add_co_u32 v7, vcc_lo, s8, v1
	v_add_co_ci_u32_e64 v8, null, s9, v2, vcc_lo
	global_load_b64 v[9:10], v[3:4], off
	global_load_b64 v[3:4], v[7:8], off
.LBB0_4:
	s_waitcnt vmcnt(0)
	v_add_f64 v[1:2], v[3:4], v[9:10]
	global_atomic_cmpswap_b64 v[1:2], v[7:8], v[1:4], off glc
	s_waitcnt vmcnt(0)
	v_cmp_eq_u64_e32 vcc_lo, v[1:2], v[3:4]
	s_or_b32 s18, vcc_lo, s18
	s_delay_alu instid0(SALU_CYCLE_1)
	s_and_not1_b32 exec_lo, exec_lo, s18
	s_cbranch_execnz .LBB0_4
	s_or_b32 exec_lo, exec_lo, s18
	v_add_nc_u32_e32 v1, s14, v5
	v_cmp_le_u32_e32 vcc_lo, s16, v5
	s_delay_alu instid0(VALU_DEP_2) | instskip(SKIP_1) | instid1(SALU_CYCLE_1)
	v_mov_b32_e32 v5, v1
	s_or_b32 s17, vcc_lo, s17
	s_and_not1_b32 exec_lo, exec_lo, s17
	s_cbranch_execnz .LBB0_3
.LBB0_6:
	s_set_inst_prefetch_distance 0x2
	s_or_b32 exec_lo, exec_lo, s11
.LBB0_7:
	s_delay_alu instid0(SALU_CYCLE_1)
	s_and_not1_b32 vcc_lo, exec_lo, s0
	s_cbranch_vccnz .LBB0_22
	v_cmp_gt_u32_e32 vcc_lo, s10, v0
	s_and_saveexec_b32 s11, vcc_lo
	s_cbranch_execz .LBB0_11
	v_lshlrev_b32_e32 v3, 3, v0
	s_lshl_b32 s14, s1, 3
	s_mov_b32 s16, 0
	s_delay_alu instid0(VALU_DEP_2)
	v_mov_b32_e32 v2, v1
.LBB0_10:
	v_add_nc_u32_e32 v4, s1, v4
	ds_store_b64 v3, v[1:2]
	v_add_nc_u32_e32 v3, s14, v3
	v_cmp_le_u32_e64 s0, s10, v4
	s_or_b32 s16, s0, s16
	s_delay_alu instid0(SALU_CYCLE_1)
	s_and_not1_b32 exec_lo, exec_lo, s16
	s_cbranch_execnz .LBB0_10
.LBB0_11:
	s_or_b32 exec_lo, exec_lo, s11
	s_bfe_i64 s[6:7], s[6:7], 0x200000
	v_mad_u64_u32 v[1:2], null, s15, s1, v[0:1]
	v_cmp_gt_i64_e64 s0, s[6:7], 0
	s_mov_b32 s7, exec_lo
	s_waitcnt lgkmcnt(0)
	s_barrier
	buffer_gl0_inv
	s_and_b32 s0, s0, exec_lo
	s_cselect_b32 s14, s6, 0
	s_mov_b32 s6, 0
	v_cmpx_gt_u32_e64 s14, v1
	s_cbranch_execz .LBB0_16
	s_load_b32 s0, s[12:13], 0x0
	v_mov_b32_e32 v2, 0
	s_waitcnt lgkmcnt(0)
	s_mul_i32 s0, s0, s1
	s_delay_alu instid0(SALU_CYCLE_1) | instskip(NEXT) | instid1(SALU_CYCLE_1)
	s_min_u32 s11, s0, s14
	s_sub_i32 s12, s14, s11
	s_set_inst_prefetch_distance 0x1
.LBB0_13:
	s_delay_alu instid0(VALU_DEP_1) | instskip(SKIP_1) | instid1(VALU_DEP_1)
	v_lshlrev_b64 v[3:4], 2, v[1:2]
	s_mov_b32 s13, 0
	v_add_co_u32 v3, s0, s4, v3
	s_delay_alu instid0(VALU_DEP_1) | instskip(SKIP_2) | instid1(VALU_DEP_1)
	v_add_co_ci_u32_e64 v4, null, s5, v4, s0
	global_load_b32 v5, v[3:4], off
	v_lshlrev_b64 v[3:4], 3, v[1:2]
	v_add_co_u32 v3, s0, s2, v3
	s_delay_alu instid0(VALU_DEP_1)
	v_add_co_ci_u32_e64 v4, null, s3, v4, s0
	global_load_b64 v[3:4], v[3:4], off
	s_waitcnt vmcnt(1)
	v_lshlrev_b32_e32 v7, 3, v5
	ds_load_b64 v[5:6], v7
.LBB0_14:
	s_waitcnt vmcnt(0) lgkmcnt(0)
	v_add_f64 v[8:9], v[5:6], v[3:4]
	ds_cmpstore_rtn_b64 v[8:9], v7, v[8:9], v[5:6]
	s_waitcnt lgkmcnt(0)
	v_cmp_eq_u64_e64 s0, v[8:9], v[5:6]
	s_or_b32 s13, s0, s13
	s_delay_alu instid0(SALU_CYCLE_1)
	s_and_not1_b32 exec_lo, exec_lo, s13
	s_cbranch_execnz .LBB0_14
	s_or_b32 exec_lo, exec_lo, s13
	v_add_nc_u32_e32 v3, s11, v1
	v_cmp_le_u32_e64 s0, s12, v1
	s_delay_alu instid0(VALU_DEP_2) | instskip(SKIP_1) | instid1(SALU_CYCLE_1)
	v_mov_b32_e32 v1, v3
	s_or_b32 s6, s0, s6
	s_and_not1_b32 exec_lo, exec_lo, s6
	s_cbranch_execnz .LBB0_13
.LBB0_16:
	s_set_inst_prefetch_distance 0x2
	s_or_b32 exec_lo, exec_lo, s7
	s_barrier
	buffer_gl0_inv
	s_and_b32 exec_lo, exec_lo, vcc_lo
	s_cbranch_execz .LBB0_22
	v_mov_b32_e32 v1, 0
	s_mov_b32 s0, 0
	s_set_inst_prefetch_distance 0x1
	s_branch .LBB0_19
.LBB0_18:
	s_or_b32 exec_lo, exec_lo, s2
	v_add_nc_u32_e32 v0, s1, v0
	s_delay_alu instid0(VALU_DEP_1) | instskip(SKIP_1) | instid1(SALU_CYCLE_1)
	v_cmp_le_u32_e32 vcc_lo, s10, v0
	s_or_b32 s0, vcc_lo, s0
	s_and_not1_b32 exec_lo, exec_lo, s0
	s_cbranch_execz .LBB0_22
.LBB0_19:
	v_lshlrev_b32_e32 v2, 3, v0
	ds_load_b64 v[6:7], v2
	s_waitcnt lgkmcnt(0)
	v_cmp_class_f64_e64 s2, v[6:7], 64
	s_xor_b32 s3, s2, -1
	s_delay_alu instid0(SALU_CYCLE_1)
	s_and_saveexec_b32 s2, s3
	s_cbranch_execz .LBB0_18
	v_lshlrev_b64 v[2:3], 3, v[0:1]
	s_mov_b32 s3, 0
	s_delay_alu instid0(VALU_DEP_1) | instskip(NEXT) | instid1(VALU_DEP_1)
	v_add_co_u32 v8, vcc_lo, s8, v2
	v_add_co_ci_u32_e64 v9, null, s9, v3, vcc_lo
	global_load_b64 v[4:5], v[8:9], off
.LBB0_21:
	s_waitcnt vmcnt(0)
	v_add_f64 v[2:3], v[4:5], v[6:7]
	global_atomic_cmpswap_b64 v[2:3], v[8:9], v[2:5], off glc
	s_waitcnt vmcnt(0)
	v_cmp_eq_u64_e32 vcc_lo, v[2:3], v[4:5]
	s_or_b32 s3, vcc_lo, s3
	s_delay_alu instid0(SALU_CYCLE_1)
	s_and_not1_b32 exec_lo, exec_lo, s3
	s_cbranch_execnz .LBB0_21
	s_branch .LBB0_18
.LBB0_22:
	s_set_inst_prefetch_distance 0x2
	s_endpgm
