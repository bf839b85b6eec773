; by LLVM 22.1.8
kernel_0:
	s_clause 0x2
	s_load_b128 s[4:7], s[0:1], 0x40
	s_load_b32 s8, s[0:1], 0x6c
	s_load_b64 s[2:3], s[0:1], 0x50
	v_mov_b32_e32 v3, 0
	s_waitcnt lgkmcnt(0)
	s_bfe_i64 s[6:7], s[6:7], 0x200000
	s_delay_alu instid0(SALU_CYCLE_1)
	v_cmp_gt_i64_e64 s7, s[6:7], 0
	s_and_b32 s7, s7, exec_lo
	s_cselect_b32 s9, s6, 0
	s_add_u32 s0, s0, 0x60
	s_addc_u32 s1, s1, 0
	s_and_b32 s6, s8, 0xffff
	s_mov_b32 s8, 0
	v_mad_u64_u32 v[1:2], null, s15, s6, v[0:1]
	s_mov_b32 s7, exec_lo
	v_cmpx_gt_u32_e64 s9, v1
	s_cbranch_execz .LBB0_4
	s_load_b32 s0, s[0:1], 0x0
	s_waitcnt lgkmcnt(0)
	s_mul_i32 s0, s0, s6
	s_delay_alu instid0(SALU_CYCLE_1) | instskip(NEXT) | instid1(SALU_CYCLE_1)
	s_min_u32 s0, s0, s9
	s_sub_i32 s1, s9, s0
.LBB0_2:
	v_lshlrev_b64 v[4:5], 2, v[1:2]
	s_delay_alu instid0(VALU_DEP_1) | instskip(NEXT) | instid1(VALU_DEP_1)
	v_add_co_u32 v4, vcc_lo, s4, v4
	v_add_co_ci_u32_e64 v5, null, s5, v5, vcc_lo
	v_cmp_le_u32_e32 vcc_lo, s1, v1
	global_load_b32 v4, v[4:5], off
	v_add_nc_u32_e32 v5, s0, v1
	s_or_b32 s8, vcc_lo, s8
	s_delay_alu instid0(VALU_DEP_1)
	v_mov_b32_e32 v1, v5
	s_waitcnt vmcnt(0)
	v_add_f32_e32 v3, v4, v3
	s_and_not1_b32 exec_lo, exec_lo, s8
	s_cbranch_execnz .LBB0_2
	s_or_b32 exec_lo, exec_lo, s8
.LBB0_4:
	s_delay_alu instid0(SALU_CYCLE_1) | instskip(SKIP_3) | instid1(VALU_DEP_1)
	s_or_b32 exec_lo, exec_lo, s7
	s_mov_b32 s0, 0x76543210
	v_lshrrev_b32_e32 v2, 5, v0
	v_permlanex16_b32 v1, v3, s0, 0xfedcba98 op_sel:[0,1]
	v_add_f32_e32 v1, v3, v1
	s_delay_alu instid0(VALU_DEP_1) | instskip(NEXT) | instid1(VALU_DEP_1)
	v_add_f32_dpp v1, v1, v1 row_xmask:8 row_mask:0xf bank_mask:0xf bound_ctrl:1
	v_add_f32_dpp v1, v1, v1 row_xmask:4 row_mask:0xf bank_mask:0xf bound_ctrl:1
	s_delay_alu instid0(VALU_DEP_1) | instskip(SKIP_1) | instid1(VALU_DEP_2)
	v_add_f32_dpp v3, v1, v1 quad_perm:[2,3,0,1] row_mask:0xf bank_mask:0xf bound_ctrl:1
	v_and_b32_e32 v1, 31, v0
	v_mov_b32_dpp v4, v3 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf bound_ctrl:1
	s_delay_alu instid0(VALU_DEP_2)
	v_cmp_eq_u32_e32 vcc_lo, 0, v1
	s_and_saveexec_b32 s0, vcc_lo
	v_lshlrev_b32_e32 v5, 2, v2
	s_delay_alu instid0(VALU_DEP_3)
	v_add_f32_e32 v3, v3, v4
	ds_store_b32 v5, v3
	s_or_b32 exec_lo, exec_lo, s0
	s_waitcnt lgkmcnt(0)
	s_barrier
	buffer_gl0_inv
	s_mov_b32 s1, exec_lo
	v_cmpx_eq_u32_e32 0, v2
	s_cbranch_execz .LBB0_12
	v_lshlrev_b32_e32 v0, 2, v0
	s_lshr_b32 s0, s6, 5
	s_delay_alu instid0(SALU_CYCLE_1)
	v_cmp_gt_u32_e64 s0, s0, v1
	ds_load_b32 v0, v0
	s_waitcnt lgkmcnt(0)
	v_cndmask_b32_e64 v0, 0, v0, s0
	s_mov_b32 s0, 0x76543210
	s_delay_alu instid0(VALU_DEP_1) | instid1(SALU_CYCLE_1)
	v_permlanex16_b32 v1, v0, s0, 0xfedcba98 op_sel:[0,1]
	s_delay_alu instid0(VALU_DEP_1) | instskip(NEXT) | instid1(VALU_DEP_1)
	v_add_f32_e32 v0, v0, v1
	v_add_f32_dpp v0, v0, v0 row_xmask:8 row_mask:0xf bank_mask:0xf bound_ctrl:1
	s_delay_alu instid0(VALU_DEP_1) | instskip(NEXT) | instid1(VALU_DEP_1)
	v_add_f32_dpp v0, v0, v0 row_xmask:4 row_mask:0xf bank_mask:0xf bound_ctrl:1
	v_add_f32_dpp v0, v0, v0 quad_perm:[2,3,0,1] row_mask:0xf bank_mask:0xf bound_ctrl:1
	s_delay_alu instid0(VALU_DEP_1)
	v_mov_b32_dpp v1, v0 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf bound_ctrl:1
	s_and_b32 exec_lo, exec_lo, vcc_lo
	s_cbranch_execz .LBB0_12
	s_delay_alu instid0(VALU_DEP_1)
	v_add_f32_e32 v1, v0, v1
	v_bfrev_b32_e32 v0, 1
	s_mov_b32 s0, exec_lo
.LBB0_9:
	s_delay_alu instid0(SALU_CYCLE_1)
	s_ctz_i32_b32 s1, s0
	s_delay_alu instid0(VALU_DEP_2) | instid1(SALU_CYCLE_1)
	v_readlane_b32 s4, v1, s1
	s_lshl_b32 s1, 1, s1
	s_delay_alu instid0(SALU_CYCLE_1)
	s_and_not1_b32 s0, s0, s1
	v_add_f32_e32 v0, s4, v0
	s_cbranch_scc1 .LBB0_9
	v_mbcnt_lo_u32_b32 v1, exec_lo, 0
	s_mov_b32 s0, exec_lo
	s_delay_alu instid0(VALU_DEP_1)
	v_cmpx_eq_u32_e32 0, v1
	s_xor_b32 s0, exec_lo, s0
	s_cbranch_execz .LBB0_12
	v_mov_b32_e32 v1, 0
	global_atomic_add_f32 v1, v0, s[2:3]
.LBB0_12:
	s_endpgm
