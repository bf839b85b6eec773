; by LLVM 22.1.8
kernel_0:
	s_load_dwordx4 s[8:11], s[4:5], 0x40
	s_load_dword s7, s[4:5], 0x6c
	s_mov_b64 s[2:3], 0
	s_waitcnt lgkmcnt(0)
	s_bfe_i64 s[0:1], s[10:11], 0x200000
	v_cmp_gt_i64_e64 s[10:11], s[0:1], 0
	s_and_b64 s[10:11], s[10:11], exec
	s_cselect_b32 s10, s0, 0
	s_add_u32 s0, s4, 0x60
	s_addc_u32 s1, s5, 0
	s_and_b32 s11, s7, 0xffff
	s_mul_i32 s6, s6, s11
	v_add_u32_e32 v0, s6, v0
	v_cmp_gt_u32_e32 vcc, s10, v0
	s_and_saveexec_b64 s[6:7], vcc
	s_cbranch_execz .LBB0_3
	s_load_dword s12, s[0:1], 0x0
	s_load_dwordx2 s[6:7], s[4:5], 0x50
	v_mov_b32_e32 v1, 0
	v_mov_b32_e32 v2, s9
	s_waitcnt lgkmcnt(0)
	s_mul_i32 s12, s12, s11
	s_min_u32 s4, s12, s10
	s_sub_i32 s5, s10, s4
	v_mov_b32_e32 v3, s7
.LBB0_2:
	v_lshlrev_b64 v[4:5], 2, v[0:1]
	v_add_co_u32_e32 v6, vcc, s8, v4
	v_addc_co_u32_e32 v7, vcc, v2, v5, vcc
	global_load_dword v6, v[6:7], off
	v_add_u32_e32 v7, s4, v0
	v_cmp_le_u32_e32 vcc, s5, v0
	v_add_co_u32_e64 v4, s[0:1], s6, v4
	v_addc_co_u32_e64 v5, s[0:1], v3, v5, s[0:1]
	s_or_b64 s[2:3], vcc, s[2:3]
	v_mov_b32_e32 v0, v7
	s_waitcnt vmcnt(0)
	v_sqrt_f32_e32 v6, v6
	global_store_dword v[4:5], v6, off
	s_andn2_b64 exec, exec, s[2:3]
	s_cbranch_execnz .LBB0_2
.LBB0_3:
	s_endpgm
