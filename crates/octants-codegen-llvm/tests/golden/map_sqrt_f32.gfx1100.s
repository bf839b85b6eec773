; by LLVM 22.1.8
kernel_0:
	s_clause 0x1
	s_load_b128 s[4:7], s[0:1], 0x40
	s_load_b32 s8, s[0:1], 0x6c
	s_mov_b32 s9, exec_lo
	s_waitcnt lgkmcnt(0)
	s_bfe_i64 s[2:3], s[6:7], 0x200000
	s_mov_b32 s6, 0
	v_cmp_gt_i64_e64 s3, s[2:3], 0
	s_and_b32 s3, s3, exec_lo
	s_cselect_b32 s7, s2, 0
	s_add_u32 s2, s0, 0x60
	s_addc_u32 s3, s1, 0
	s_and_b32 s8, s8, 0xffff
	s_delay_alu instid0(SALU_CYCLE_1) | instskip(NEXT) | instid1(VALU_DEP_1)
	v_mad_u64_u32 v[1:2], null, s15, s8, v[0:1]
	v_cmpx_gt_u32_e64 s7, v1
	s_cbranch_execz .LBB0_3
	s_load_b32 s9, s[2:3], 0x0
	s_load_b64 s[2:3], s[0:1], 0x50
	v_mov_b32_e32 v2, 0
	s_waitcnt lgkmcnt(0)
	s_mul_i32 s9, s9, s8
	s_delay_alu instid0(SALU_CYCLE_1) | instskip(NEXT) | instid1(SALU_CYCLE_1)
	s_min_u32 s1, s9, s7
	s_sub_i32 s7, s7, s1
.LBB0_2:
	v_lshlrev_b64 v[3:4], 2, v[1:2]
	s_delay_alu instid0(VALU_DEP_1) | instskip(NEXT) | instid1(VALU_DEP_1)
	v_add_co_u32 v5, vcc_lo, s4, v3
	v_add_co_ci_u32_e64 v6, null, s5, v4, vcc_lo
	v_cmp_le_u32_e32 vcc_lo, s7, v1
	v_add_co_u32 v3, s0, s2, v3
	global_load_b32 v0, v[5:6], off
	v_add_nc_u32_e32 v5, s1, v1
	v_add_co_ci_u32_e64 v4, null, s3, v4, s0
	s_or_b32 s6, vcc_lo, s6
	v_mov_b32_e32 v1, v5
	s_waitcnt vmcnt(0)
	v_sqrt_f32_e32 v0, v0
	global_store_b32 v[3:4], v0, off
	s_and_not1_b32 exec_lo, exec_lo, s6
	s_cbranch_execnz .LBB0_2
.LBB0_3:
	s_endpgm
