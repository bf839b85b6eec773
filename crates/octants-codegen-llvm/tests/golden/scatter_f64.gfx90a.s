; by LLVM 22.1.8
kernel_0:
	s_load_dword s0, s[4:5], 0x7c
	s_load_dwordx8 s[8:15], s[4:5], 0x40
	s_load_dwordx2 s[2:3], s[4:5], 0x60
	s_add_u32 s4, s4, 0x70
	v_mov_b32_e32 v2, 0x8000
	s_addc_u32 s5, s5, 0
	s_waitcnt lgkmcnt(0)
	s_and_b32 s18, s0, 0xffff
	s_lshl_b64 s[0:1], s[14:15], 3
	v_mov_b32_e32 v3, 0
	v_cmp_gt_u64_e32 vcc, s[0:1], v[2:3]
	s_mul_i32 s6, s6, s18
	s_mov_b64 s[0:1], -1
	v_add_u32_e32 v2, s6, v0
	s_cbranch_vccz .LBB0_5
	s_bfe_i64 s[6:7], s[10:11], 0x200000
	v_cmp_gt_i64_e64 s[16:17], s[6:7], 0
	s_and_b64 s[16:17], s[16:17], exec
	s_cselect_b32 s19, s6, 0
	s_mov_b64 s[0:1], 0
	v_cmp_gt_u32_e32 vcc, s19, v2
	s_and_saveexec_b64 s[6:7], vcc
	s_cbranch_execz .LBB0_4
	s_load_dword s15, s[4:5], 0x0
	s_mov_b64 s[16:17], 0
	v_mov_b32_e32 v5, 0
	v_mov_b32_e32 v1, s9
	v_mov_b32_e32 v3, s3
	s_waitcnt lgkmcnt(0)
	s_mul_i32 s15, s15, s18
	s_min_u32 s15, s15, s19
	s_sub_i32 s19, s19, s15
	v_mov_b32_e32 v6, s13
	v_mov_b32_e32 v4, v2
.LBB0_3:
	v_lshlrev_b64 v[8:9], 2, v[4:5]
	v_add_co_u32_e32 v8, vcc, s8, v8
	v_addc_co_u32_e32 v9, vcc, v1, v9, vcc
	global_load_dword v8, v[8:9], off
	v_lshlrev_b64 v[10:11], 3, v[4:5]
	v_add_co_u32_e32 v10, vcc, s2, v10
	v_addc_co_u32_e32 v11, vcc, v3, v11, vcc
	global_load_dwordx2 v[10:11], v[10:11], off
	v_add_u32_e32 v7, s15, v4
	s_waitcnt vmcnt(1)
	v_ashrrev_i32_e32 v9, 31, v8
	v_lshlrev_b64 v[8:9], 3, v[8:9]
	v_add_co_u32_e32 v8, vcc, s12, v8
	v_addc_co_u32_e32 v9, vcc, v6, v9, vcc
	s_waitcnt vmcnt(0)
	global_atomic_add_f64 v[8:9], v[10:11], off
	v_cmp_le_u32_e32 vcc, s19, v4
	s_or_b64 s[16:17], vcc, s[16:17]
	v_mov_b32_e32 v4, v7
	s_andn2_b64 exec, exec, s[16:17]
	s_cbranch_execnz .LBB0_3
.LBB0_4:
	s_or_b64 exec, exec, s[6:7]
.LBB0_5:
	s_andn2_b64 vcc, exec, s[0:1]
	s_cbranch_vccnz .LBB0_17
	v_cmp_gt_u32_e32 vcc, s14, v0
	v_lshlrev_b32_e32 v4, 3, v0
	s_and_saveexec_b64 s[6:7], vcc
	s_cbranch_execz .LBB0_9
	v_mov_b32_e32 v6, 0
	s_lshl_b32 s15, s18, 3
	s_mov_b64 s[16:17], 0
	v_mov_b32_e32 v7, v6
	v_mov_b32_e32 v1, v4
	v_mov_b32_e32 v3, v0
.LBB0_8:
	v_add_u32_e32 v3, s18, v3
	v_cmp_le_u32_e64 s[0:1], s14, v3
	ds_write_b64 v1, v[6:7]
	s_or_b64 s[16:17], s[0:1], s[16:17]
	v_add_u32_e32 v1, s15, v1
	s_andn2_b64 exec, exec, s[16:17]
	s_cbranch_execnz .LBB0_8
.LBB0_9:
	s_or_b64 exec, exec, s[6:7]
	s_bfe_i64 s[0:1], s[10:11], 0x200000
	v_cmp_gt_i64_e64 s[10:11], s[0:1], 0
	s_and_b64 s[10:11], s[10:11], exec
	s_cselect_b32 s15, s0, 0
	s_mov_b64 s[6:7], 0
	v_cmp_gt_u32_e64 s[0:1], s15, v2
	s_waitcnt lgkmcnt(0)
	s_barrier
	s_and_saveexec_b64 s[10:11], s[0:1]
	s_cbranch_execz .LBB0_12
	s_load_dword s0, s[4:5], 0x0
	v_mov_b32_e32 v3, 0
	v_mov_b32_e32 v1, s9
	v_mov_b32_e32 v5, s3
	s_waitcnt lgkmcnt(0)
	s_mul_i32 s0, s0, s18
	s_min_u32 s4, s0, s15
	s_sub_i32 s5, s15, s4
.LBB0_11:
	v_lshlrev_b64 v[6:7], 2, v[2:3]
	v_add_co_u32_e64 v6, s[0:1], s8, v6
	v_lshlrev_b64 v[8:9], 3, v[2:3]
	v_addc_co_u32_e64 v7, s[0:1], v1, v7, s[0:1]
	v_add_co_u32_e64 v8, s[0:1], s2, v8
	v_addc_co_u32_e64 v9, s[0:1], v5, v9, s[0:1]
	global_load_dword v10, v[6:7], off
	global_load_dwordx2 v[12:13], v[8:9], off
	v_cmp_le_u32_e64 s[0:1], s5, v2
	s_or_b64 s[6:7], s[0:1], s[6:7]
	s_waitcnt vmcnt(1)
	v_lshlrev_b32_e32 v6, 3, v10
	s_waitcnt vmcnt(0)
	ds_add_f64 v6, v[12:13]
	v_add_u32_e32 v6, s4, v2
	v_mov_b32_e32 v2, v6
	s_andn2_b64 exec, exec, s[6:7]
	s_cbranch_execnz .LBB0_11
.LBB0_12:
	s_or_b64 exec, exec, s[10:11]
	s_waitcnt lgkmcnt(0)
	s_barrier
	s_and_b64 exec, exec, vcc
	s_cbranch_execz .LBB0_17
	s_lshl_b32 s4, s18, 3
	s_mov_b64 s[0:1], 0
	v_mov_b32_e32 v1, 0
	s_branch .LBB0_15
.LBB0_14:
	s_or_b64 exec, exec, s[2:3]
	v_add_u32_e32 v0, s18, v0
	v_cmp_le_u32_e32 vcc, s14, v0
	s_or_b64 s[0:1], vcc, s[0:1]
	v_add_u32_e32 v4, s4, v4
	s_andn2_b64 exec, exec, s[0:1]
	s_cbranch_execz .LBB0_17
.LBB0_15:
	ds_read_b64 v[2:3], v4
	s_waitcnt lgkmcnt(0)
	v_cmp_class_f64_e64 s[2:3], v[2:3], 64
	s_xor_b64 s[6:7], s[2:3], -1
	s_and_saveexec_b64 s[2:3], s[6:7]
	s_cbranch_execz .LBB0_14
	v_lshlrev_b64 v[6:7], 3, v[0:1]
	v_mov_b32_e32 v5, s13
	v_add_co_u32_e32 v6, vcc, s12, v6
	v_addc_co_u32_e32 v7, vcc, v5, v7, vcc
	global_atomic_add_f64 v[6:7], v[2:3], off
	s_branch .LBB0_14
.LBB0_17:
	s_endpgm
