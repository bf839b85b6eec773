; by LLVM 22.1.8
kernel_0:
	s_load_dwordx4 s[0:3], s[4:5], 0x40
	s_load_dwordx2 s[8:9], s[4:5], 0x50
	s_load_dword s7, s[4:5], 0x6c
	v_mov_b32_e32 v3, 0
	v_mov_b32_e32 v1, 0
	s_waitcnt lgkmcnt(0)
	s_bfe_i64 s[10:11], s[2:3], 0x200000
	v_cmp_gt_i64_e64 s[12:13], s[10:11], 0
	s_and_b64 s[12:13], s[12:13], exec
	s_cselect_b32 s12, s10, 0
	s_add_u32 s10, s4, 0x60
	s_addc_u32 s11, s5, 0
	s_and_b32 s7, s7, 0xffff
	s_mul_i32 s6, s6, s7
	v_add_u32_e32 v2, s6, v0
	s_mov_b64 s[2:3], 0
	v_cmp_gt_u32_e32 vcc, s12, v2
	s_and_saveexec_b64 s[4:5], vcc
	s_cbranch_execz .LBB0_4
	s_load_dword s6, s[10:11], 0x0
	v_mov_b32_e32 v4, s1
	v_mov_b32_e32 v1, 0
	s_waitcnt lgkmcnt(0)
	s_mul_i32 s6, s6, s7
	s_min_u32 s1, s6, s12
	s_sub_i32 s6, s12, s1
.LBB0_2:
	v_lshlrev_b64 v[6:7], 2, v[2:3]
	v_add_co_u32_e32 v6, vcc, s0, v6
	v_addc_co_u32_e32 v7, vcc, v4, v7, vcc
	global_load_dword v5, v[6:7], off
	v_add_u32_e32 v6, s1, v2
	v_cmp_le_u32_e32 vcc, s6, v2
	s_or_b64 s[2:3], vcc, s[2:3]
	v_mov_b32_e32 v2, v6
	s_waitcnt vmcnt(0)
	v_add_f32_e32 v1, v5, v1
	s_andn2_b64 exec, exec, s[2:3]
	s_cbranch_execnz .LBB0_2
	s_or_b64 exec, exec, s[2:3]
.LBB0_4:
	s_or_b64 exec, exec, s[4:5]
	v_lshlrev_b32_e32 v3, 2, v0
	v_xor_b32_e32 v2, 0x80, v3
	ds_bpermute_b32 v4, v2, v1
	s_waitcnt lgkmcnt(0)
	v_add_f32_e32 v4, v1, v4
	ds_swizzle_b32 v5, v4 offset:swizzle(SWAP,16)
	v_and_b32_e32 v1, 63, v0
	v_lshrrev_b32_e32 v0, 6, v0
	v_cmp_eq_u32_e32 vcc, 0, v1
	s_waitcnt lgkmcnt(0)
	v_add_f32_e32 v4, v4, v5
	s_nop 1
	v_add_f32_dpp v4, v4, v4 row_ror:8 row_mask:0xf bank_mask:0xf bound_ctrl:1
	s_nop 1
	v_mov_b32_dpp v5, v4 row_half_mirror row_mask:0xf bank_mask:0xf bound_ctrl:1
	s_nop 1
	v_add_f32_dpp v4, v5, v4 quad_perm:[3,2,1,0] row_mask:0xf bank_mask:0xf bound_ctrl:1
	s_nop 1
	v_add_f32_dpp v4, v4, v4 quad_perm:[2,3,0,1] row_mask:0xf bank_mask:0xf bound_ctrl:1
	s_nop 1
	v_mov_b32_dpp v5, v4 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf bound_ctrl:1
	s_and_saveexec_b64 s[0:1], vcc
	v_lshlrev_b32_e32 v6, 2, v0
	v_add_f32_e32 v4, v4, v5
	ds_write_b32 v6, v4
	s_or_b64 exec, exec, s[0:1]
	v_cmp_eq_u32_e64 s[0:1], 0, v0
	s_waitcnt lgkmcnt(0)
	s_barrier
	s_and_saveexec_b64 s[2:3], s[0:1]
	s_cbranch_execz .LBB0_12
	ds_read_b32 v0, v3
	s_lshr_b32 s0, s7, 6
	v_cmp_gt_u32_e64 s[0:1], s0, v1
	s_waitcnt lgkmcnt(0)
	v_cndmask_b32_e64 v0, 0, v0, s[0:1]
	ds_bpermute_b32 v1, v2, v0
	s_waitcnt lgkmcnt(0)
	v_add_f32_e32 v0, v0, v1
	ds_swizzle_b32 v1, v0 offset:swizzle(SWAP,16)
	s_waitcnt lgkmcnt(0)
	v_add_f32_e32 v0, v0, v1
	s_nop 1
	v_add_f32_dpp v0, v0, v0 row_ror:8 row_mask:0xf bank_mask:0xf bound_ctrl:1
	s_nop 1
	v_mov_b32_dpp v1, v0 row_half_mirror row_mask:0xf bank_mask:0xf bound_ctrl:1
	s_nop 1
	v_add_f32_dpp v0, v1, v0 quad_perm:[3,2,1,0] row_mask:0xf bank_mask:0xf bound_ctrl:1
	s_nop 1
	v_add_f32_dpp v0, v0, v0 quad_perm:[2,3,0,1] row_mask:0xf bank_mask:0xf bound_ctrl:1
	s_nop 1
	v_mov_b32_dpp v1, v0 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf bound_ctrl:1
	s_and_b64 exec, exec, vcc
	s_cbranch_execz .LBB0_12
	s_mov_b64 s[0:1], exec
	v_add_f32_e32 v1, v0, v1
	v_bfrev_b32_e32 v0, 1
.LBB0_9:
	s_ff1_i32_b64 s2, s[0:1]
	v_readlane_b32 s4, v1, s2
	s_lshl_b64 s[2:3], 1, s2
	s_andn2_b64 s[0:1], s[0:1], s[2:3]
	v_add_f32_e32 v0, s4, v0
	s_cbranch_scc1 .LBB0_9
	v_mbcnt_lo_u32_b32 v1, exec_lo, 0
	v_mbcnt_hi_u32_b32 v1, exec_hi, v1
	v_cmp_eq_u32_e32 vcc, 0, v1
	s_and_saveexec_b64 s[0:1], vcc
	s_xor_b64 s[0:1], exec, s[0:1]
	s_cbranch_execz .LBB0_12
	v_mov_b32_e32 v1, 0
	global_atomic_add_f32 v1, v0, s[8:9]
.LBB0_12:
	s_endpgm
