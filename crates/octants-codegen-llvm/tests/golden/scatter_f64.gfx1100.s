; by LLVM 22.1.8
octants_task_0:
	s_load_b128 s[4:7], s[0:1], 0x38
	s_waitcnt lgkmcnt(0)
	s_load_b32 s7, s[0:1], 0x74
	s_mov_b32 s9, exec_lo
	s_waitcnt lgkmcnt(0)
	s_bfe_i64 s[2:3], s[6:7], 0x200000
	s_mov_b32 s6, 0
	v_cmp_gt_i64_e64 s3, s[2:3], 0
	s_and_b32 s3, s3, exec_lo
	s_cselect_b32 s8, s2, 0
	s_add_u32 s2, s0, 0x68
	s_addc_u32 s3, s1, 0
	s_and_b32 s7, s7, 0xffff
	s_delay_alu instid0(SALU_CYCLE_1) | instskip(NEXT) | instid1(VALU_DEP_1)
	v_mad_u64_u32 v[4:5], null, s15, s7, v[0:1]
	v_cmpx_gt_u32_e64 s8, v4
	s_cbranch_execz .LBB0_5
	s_load_b32 s9, s[2:3], 0x0
	s_clause 0x1
	s_load_b64 s[2:3], s[0:1], 0x48
	s_load_b64 s[0:1], s[0:1], 0x58
	v_mov_b32_e32 v5, 0
	s_waitcnt lgkmcnt(0)
	s_mul_i32 s9, s9, s7
	s_delay_alu instid0(SALU_CYCLE_1) | instskip(NEXT) | instid1(SALU_CYCLE_1)
	s_min_u32 s7, s9, s8
	s_sub_i32 s8, s8, s7
	s_set_inst_prefetch_distance 0x1
.LBB0_2:
	s_delay_alu instid0(VALU_DEP_1) | instskip(SKIP_2) | instid1(VALU_DEP_2)
	v_lshlrev_b64 v[0:1], 2, v[4:5]
	v_lshlrev_b64 v[2:3], 3, v[4:5]
	s_mov_b32 s9, 0
	v_add_co_u32 v0, vcc_lo, s4, v0
	s_delay_alu instid0(VALU_DEP_1) | instskip(NEXT) | instid1(VALU_DEP_3)
	v_add_co_ci_u32_e64 v1, null, s5, v1, vcc_lo
	v_add_co_u32 v2, vcc_lo, s0, v2
	s_delay_alu instid0(VALU_DEP_1) | instskip(SKIP_3) | instid1(VALU_DEP_1)
	v_add_co_ci_u32_e64 v3, null, s1, v3, vcc_lo
	global_load_b32 v0, v[0:1], off
	s_waitcnt vmcnt(0)
	v_ashrrev_i32_e32 v1, 31, v0
	v_lshlrev_b64 v[0:1], 3, v[0:1]
	s_delay_alu instid0(VALU_DEP_1) | instskip(NEXT) | instid1(VALU_DEP_1)
	v_add_co_u32 v6, vcc_lo, s2, v0
	v_add_co_ci_u32_e64 v7, null, s3, v1, vcc_lo
	global_load_b64 v[8:9], v[2:3], off
	global_load_b64 v[2:3], v[6:7], off
.LBB0_3:
	s_waitcnt vmcnt(0)
	v_add_f64 v[0:1], v[2:3], v[8:9]
	global_atomic_cmpswap_b64 v[0:1], v[6:7], v[0:3], off glc
	s_waitcnt vmcnt(0)
	v_cmp_eq_u64_e32 vcc_lo, v[0:1], v[2:3]
	s_or_b32 s9, vcc_lo, s9
	s_delay_alu instid0(SALU_CYCLE_1)
	s_and_not1_b32 exec_lo, exec_lo, s9
	s_cbranch_execnz .LBB0_3
	s_or_b32 exec_lo, exec_lo, s9
	v_add_nc_u32_e32 v0, s7, v4
	v_cmp_le_u32_e32 vcc_lo, s8, v4
	s_delay_alu instid0(VALU_DEP_2) | instskip(SKIP_1) | instid1(SALU_CYCLE_1)
	v_mov_b32_e32 v4, v0
	s_or_b32 s6, vcc_lo, s6
	s_and_not1_b32 exec_lo, exec_lo, s6
	s_cbranch_execnz .LBB0_2
.LBB0_5:
	s_set_inst_prefetch_distance 0x2
	s_endpgm
