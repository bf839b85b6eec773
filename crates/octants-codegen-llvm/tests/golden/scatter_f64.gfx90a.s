; by LLVM 22.1.8
octants_task_0:
	s_load_dwordx4 s[0:3], s[4:5], 0x38
	s_load_dword s7, s[4:5], 0x74
	s_mov_b64 s[8:9], 0
	s_waitcnt lgkmcnt(0)
	s_bfe_i64 s[2:3], s[2:3], 0x200000
	v_cmp_gt_i64_e64 s[10:11], s[2:3], 0
	s_and_b64 s[10:11], s[10:11], exec
	s_cselect_b32 s12, s2, 0
	s_add_u32 s10, s4, 0x68
	s_addc_u32 s11, s5, 0
	s_and_b32 s13, s7, 0xffff
	s_mul_i32 s6, s6, s13
	v_add_u32_e32 v0, s6, v0
	v_cmp_gt_u32_e32 vcc, s12, v0
	s_and_saveexec_b64 s[2:3], vcc
	s_cbranch_execz .LBB0_3
	s_load_dword s14, s[10:11], 0x0
	s_load_dwordx2 s[2:3], s[4:5], 0x48
	s_load_dwordx2 s[6:7], s[4:5], 0x58
	v_mov_b32_e32 v2, s1
	v_mov_b32_e32 v1, 0
	s_waitcnt lgkmcnt(0)
	s_mul_i32 s14, s14, s13
	s_min_u32 s1, s14, s12
	s_sub_i32 s4, s12, s1
	v_mov_b32_e32 v3, s7
	v_mov_b32_e32 v4, s3
.LBB0_2:
	v_lshlrev_b64 v[6:7], 2, v[0:1]
	v_add_co_u32_e32 v6, vcc, s0, v6
	v_addc_co_u32_e32 v7, vcc, v2, v7, vcc
	global_load_dword v6, v[6:7], off
	v_lshlrev_b64 v[8:9], 3, v[0:1]
	v_add_co_u32_e32 v8, vcc, s6, v8
	v_addc_co_u32_e32 v9, vcc, v3, v9, vcc
	global_load_dwordx2 v[8:9], v[8:9], off
	v_add_u32_e32 v5, s1, v0
	s_waitcnt vmcnt(1)
	v_ashrrev_i32_e32 v7, 31, v6
	v_lshlrev_b64 v[6:7], 3, v[6:7]
	v_add_co_u32_e32 v6, vcc, s2, v6
	v_addc_co_u32_e32 v7, vcc, v4, v7, vcc
	s_waitcnt vmcnt(0)
	global_atomic_add_f64 v[6:7], v[8:9], off
	v_cmp_le_u32_e32 vcc, s4, v0
	s_or_b64 s[8:9], vcc, s[8:9]
	v_mov_b32_e32 v0, v5
	s_andn2_b64 exec, exec, s[8:9]
	s_cbranch_execnz .LBB0_2
.LBB0_3:
	s_endpgm
