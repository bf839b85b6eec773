//! Tests of single instructions, given as text: they check the registers afterwards.

#![allow(clippy::unwrap_used)]

use std::ops::Range;

use octants_amdgpu_emulator::accessible_memory::{AccessibleMemory, AddressSpace, FaultInjection};
use octants_amdgpu_emulator::decode::Decoder;
use octants_amdgpu_emulator::execute::run;
use octants_amdgpu_emulator::fault::{Fault, FaultKind};
use octants_amdgpu_emulator::garbage::Garbage;
use octants_amdgpu_emulator::wave::Wave;

/// One block of memory.
struct Memory(Range<u64>);

impl AddressSpace for Memory {
    fn block(&self, address: u64) -> Option<Range<u64>> {
        self.0.contains(&address).then(|| self.0.clone())
    }
}

/// A wave, its block's memory and the device's.
struct Bench {
    wave: Wave,
    shared: Vec<u8>,
    memory: Vec<u32>,
}

impl Bench {
    fn new(lanes: usize) -> Bench {
        let mut wave = Wave::new(0, lanes, 16, &mut Garbage::new(7));
        wave.set_exec(wave.all_lanes());
        wave.mode = 0xf0;
        wave.keeps_upper_half = lanes == 32;
        // Register 0 holds the lanes' numbers.
        (0..64).for_each(|lane| wave.vectors[0][lane] = lane as u32);
        Bench { wave, shared: vec![0; 256], memory: (0..64).map(|n| 100 + n).collect() }
    }

    fn try_run(&mut self, text: &str) -> Result<(), Fault> {
        let inst = Decoder::default().decode(text, 4).map_err(Fault::launch)?;
        let from = self.memory.as_ptr() as u64;
        let memory = Memory(from..from + 4 * self.memory.len() as u64);
        let around = AccessibleMemory::new(&memory, FaultInjection::default(), Vec::new());
        run(&around, &mut self.shared, &mut self.wave, &inst)
    }

    #[track_caller]
    fn run(&mut self, texts: &[&str]) -> &mut Bench {
        texts.iter().for_each(|text| self.try_run(text).unwrap());
        self
    }

    fn lanes(&self, register: usize) -> &[u32] {
        &self.wave.vectors[register][..self.wave.lanes]
    }

    #[track_caller]
    fn expect(&self, register: usize, value: impl Fn(u32) -> u32) {
        let expected: Vec<u32> = (0..self.wave.lanes as u32).map(value).collect();
        assert_eq!(self.lanes(register), expected);
    }
}

fn bits(x: f32) -> u32 {
    x.to_bits()
}

#[test]
fn lane_arithmetic() {
    let mut b = Bench::new(64);
    b.run(&["v_lshl_add_u32 v1, v0, 2, 5"]).expect(1, |n| 4 * n + 5);
    b.run(&["v_cvt_f32_u32_e32 v2, v0", "v_fmaak_f32 v3, 2.0, v2, 0xbf800000"])
        .expect(3, |n| bits(2.0 * n as f32 - 1.0));
    b.run(&["v_sub_f32_e64 v3, -v2, |v3|"]).expect(3, |n| bits(-(n as f32) - (2.0 * n as f32 - 1.0).abs()));
    b.run(&["v_bfe_i32 v1, v0, 0, 3"]).expect(1, |n| ((n << 29) as i32 >> 29) as u32);
    b.run(&["v_perm_b32 v1, v0, v0, 0x0c0c0004"]).expect(1, |n| n << 8 | n);
    b.run(&["v_mad_u64_u32 v[4:5], s[0:1], v0, -1, 0"]).expect(5, |n| n.saturating_sub(1));
    b.run(&["v_mul_f32_e64 v1, v2, v2 clamp"]).expect(1, |n| bits((n * n).min(1) as f32));
    b.run(&["v_med3_i32 v1, v0, 3, 9"]).expect(1, |n| n.clamp(3, 9));
}

#[test]
fn carries_and_masks() {
    let mut b = Bench::new(64);
    b.run(&["v_mov_b32_e32 v1, 0xffffffc0", "v_add_co_u32_e32 v2, vcc, v1, v0"]).expect(2, |n| n.wrapping_sub(64));
    assert_eq!(b.wave.mask(106), 0);
    b.run(&["v_add_co_u32_e32 v2, vcc, 32, v2", "v_addc_co_u32_e32 v3, vcc, 0, v0, vcc"]);
    b.expect(3, |n| n + u32::from(n >= 32));
    b.run(&["v_cmp_gt_u32_e64 s[2:3], 8, v0", "v_cndmask_b32_e64 v4, 1, 2, s[2:3]"])
        .expect(4, |n| 1 + u32::from(n < 8));
    b.run(&["s_and_saveexec_b64 s[4:5], s[2:3]", "v_mov_b32_e32 v5, 3", "s_mov_b64 exec, s[4:5]"]);
    assert_eq!(b.lanes(5)[..8], [3; 8]);
    assert_ne!(b.lanes(5)[8], 3);
    b.run(&["v_cmpx_gt_u32_e32 4, v0"]);
    assert_eq!(b.wave.exec(), 15);
}

#[test]
fn scalar_arithmetic_and_carry() {
    let mut b = Bench::new(64);
    b.run(&["s_mov_b32 s0, -1", "s_add_u32 s1, s0, 2", "s_addc_u32 s2, 0, 0"]);
    assert_eq!((b.wave.scalars[1], b.wave.scalars[2], b.wave.scc), (1, 1, false));
    b.run(&["s_bfe_i64 s[4:5], s[0:1], 0x200000", "s_movk_i32 s6, 0xfffe", "s_cmpk_lt_i32 s6, 0xffff"]);
    assert_eq!((b.wave.pair(4), b.wave.scalars[6], b.wave.scc), (u64::MAX, 0xffff_fffe, true));
    b.run(&["s_cselect_b32 s7, 5, 6", "s_bitset1_b32 s7, 4", "s_add_f32 s8, 1.0, 0.5"]);
    assert_eq!((b.wave.scalars[7], b.wave.scalars[8]), (21, bits(1.5)));
}

#[test]
fn half_precision_and_subregisters() {
    let mut b = Bench::new(32);
    b.run(&["v_mov_b32_e32 v1, 0x12345678", "v_add_nc_u16 v1.h, v1.l, 1"]).expect(1, |_| 0x5679_5678);
    b.run(&["v_mov_b32_e32 v2, 0x3c004000", "v_pk_add_f16 v3, v2, v2 op_sel:[0,1] op_sel_hi:[1,0]"]);
    b.expect(3, |_| 0x4200_4200);
    let mut b = Bench::new(64);
    b.run(&["v_mov_b32_e32 v1, 0x12345678", "v_add_u16_e32 v1, v1, v1"]).expect(1, |_| 0xacf0);
    b.run(&["v_mov_b32_e32 v1, 0x12345678"]);
    b.run(&["v_or_b32_sdwa v2, v1, v0 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:DWORD"]);
    b.expect(2, |n| (0x56 | n) << 16);
}

#[test]
fn lane_exchanges() {
    let mut b = Bench::new(64);
    b.run(&["v_mov_b32_dpp v1, v0 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf"]).expect(1, |n| n ^ 1);
    b.run(&["v_mov_b32_dpp v1, v0 row_half_mirror row_mask:0xf bank_mask:0xf"]).expect(1, |n| n ^ 7);
    b.run(&["v_mov_b32_dpp v1, v0 row_ror:8 row_mask:0xf bank_mask:0xf"]).expect(1, |n| n ^ 8);
    b.run(&["v_mov_b32_e32 v1, 9", "v_mov_b32_dpp v1, v0 row_shr:2 row_mask:0xf bank_mask:0xf"]);
    b.expect(1, |n| if n % 16 < 2 { 9 } else { n - 2 });
    b.run(&["v_add_u32_dpp v1, v0, v0 row_shr:2 row_mask:0xf bank_mask:0xf bound_ctrl:1"]);
    b.expect(1, |n| if n % 16 < 2 { n } else { 2 * n - 2 });
    b.run(&["v_mov_b32_e32 v1, v0", "v_mov_b32_dpp v1, v0 wave_shr:1 row_mask:0xf bank_mask:0xf"]);
    b.expect(1, |n| n.saturating_sub(1));
    b.run(&["v_mov_b32_e32 v1, 9", "v_mov_b32_dpp v1, v0 row_bcast:15 row_mask:0xa bank_mask:0xf"]);
    b.expect(1, |n| if n / 16 % 2 == 1 { n / 16 * 16 - 1 } else { 9 });
    b.run(&["v_xor_b32_e32 v2, 32, v0", "v_lshlrev_b32_e32 v2, 2, v2", "ds_bpermute_b32 v1, v2, v0"]);
    b.expect(1, |n| n ^ 32);
    b.run(&["ds_swizzle_b32 v1, v0 offset:swizzle(SWAP,16)"]).expect(1, |n| n ^ 16);
    b.run(&["v_readlane_b32 s0, v0, 37", "v_readfirstlane_b32 s1, v0", "v_mbcnt_lo_u32_b32 v1, -1, 0"]);
    assert_eq!(b.wave.scalars[..2], [37, 0]);
    b.run(&["v_mbcnt_hi_u32_b32 v1, -1, v1"]).expect(1, |n| n);
    let mut b = Bench::new(32);
    b.run(&["v_mov_b32_dpp v1, v0 row_xmask:5 row_mask:0xf bank_mask:0xf"]).expect(1, |n| n ^ 5);
    b.run(&["s_mov_b32 s0, 0x76543210", "s_mov_b32 s1, 0xfedcba98", "v_permlanex16_b32 v1, v0, s0, s1"]);
    b.expect(1, |n| n ^ 16);
}

#[test]
fn indexed_registers() {
    let mut b = Bench::new(32);
    b.run(&["s_mov_b32 m0, 2", "v_mov_b32_e32 v12, 7", "v_movrels_b32_e32 v3, v10"]).expect(3, |_| 7);
    b.run(&["v_movreld_b32_e32 v20, v0"]).expect(22, |n| n);
    b.wave.scalars[124] = 300;
    assert!(b.try_run("v_movrels_b32_e32 v3, v10").unwrap_err().why.contains("the vector register 310 by an index"));
    let mut b = Bench::new(64);
    b.run(&["s_mov_b32 s0, 5", "s_set_gpr_idx_on s0, gpr_idx(DST)", "v_mov_b32_e32 v1, v0", "s_set_gpr_idx_off"]);
    b.expect(6, |n| n);
    b.run(&["s_set_gpr_idx_on s0, gpr_idx(SRC0)", "v_mov_b32_e32 v2, v1", "s_set_gpr_idx_off"]).expect(2, |n| n);
}

#[test]
fn divisions_are_exact() {
    let pairs = [
        (1.0f32, 3.0f32),
        (7.5, -0.3),
        (1e-40, 3e-39),
        (3e38, 1e-3),
        (1e-38, 1e30),
        (5.0, 0.0),
        (2e-30, 1.7e38),
        (1.0, 1.7e38),
    ];
    for (a, d) in pairs {
        let mut b = Bench::new(64);
        b.wave.vectors[1].fill(bits(a));
        b.wave.vectors[2].fill(bits(d));
        b.run(&[
            "v_div_scale_f32 v3, s[2:3], v2, v2, v1",
            "v_div_scale_f32 v4, vcc, v1, v2, v1",
            "v_rcp_f32_e32 v5, v3",
            "v_fma_f32 v6, -v3, v5, 1.0",
            "v_fmac_f32_e32 v5, v6, v5",
            "v_mul_f32_e32 v6, v4, v5",
            "v_fma_f32 v7, -v3, v6, v4",
            "v_fmac_f32_e32 v6, v7, v5",
            "v_fma_f32 v3, -v3, v6, v4",
            "v_div_fmas_f32 v3, v3, v5, v6",
            "v_div_fixup_f32 v1, v3, v2, v1",
        ]);
        assert_eq!(f32::from_bits(b.lanes(1)[0]), a / d, "{a} / {d}");
    }
}

#[test]
fn denormals_follow_the_mode_register() {
    let mut b = Bench::new(64);
    b.wave.vectors[1].fill(1);
    b.run(&["v_add_f32_e32 v2, v1, v1"]).expect(2, |_| 2);
    b.run(&["s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0", "v_add_f32_e32 v2, v1, v1"]).expect(2, |_| 0);
    b.run(&["s_denorm_mode 15", "v_add_f32_e32 v2, v1, v1"]).expect(2, |_| 2);
}

#[test]
fn memory_is_checked_to_the_byte() {
    let mut b = Bench::new(32);
    let at = b.memory.as_ptr() as u64;
    b.wave.scalars[2] = at as u32;
    b.wave.scalars[3] = (at >> 32) as u32;
    b.run(&["v_lshlrev_b32_e32 v1, 2, v0", "global_load_b32 v2, v1, s[2:3] offset:128"]).expect(2, |n| 132 + n);
    b.run(&["v_mov_b32_e32 v3, 1", "global_atomic_add_u32 v4, v1, v3, s[2:3] glc"]).expect(4, |n| 100 + n);
    assert_eq!(b.memory[..3], [101, 102, 103]);
    let fault = b.try_run("global_load_b32 v2, v1, s[2:3] offset:130").unwrap_err();
    assert_eq!(fault.kind, FaultKind::Address);
    assert!(fault.why.contains("2 are past the end of 256 bytes"), "{}", fault.why);
    let fault = b.try_run("ds_store_b32 v1, v0 offset:136").unwrap_err();
    assert!(fault.why.contains("4 bytes at 256 of 256 bytes of shared memory"), "{}", fault.why);
    let fault = b.try_run("scratch_store_b32 off, v0, off offset:13").unwrap_err();
    assert!(fault.why.contains("4 bytes at 13 of 16 bytes of private memory"), "{}", fault.why);
    b.run(&["scratch_store_b32 off, v0, off offset:12", "scratch_load_b32 v5, off, off offset:12"]).expect(5, |n| n);
}

#[test]
fn unknown_instructions_fail_with_their_text() {
    let mut b = Bench::new(64);
    let why = |b: &mut Bench, text: &str| b.try_run(text).unwrap_err().why;
    let said = why(&mut b, "v_mfma_f32_4x4x1f32 a[0:3], v0, v1, a[0:3]");
    assert_eq!(said, "`v_mfma_f32_4x4x1f32 a[0:3], v0, v1, a[0:3]`: the emulator does not know this instruction");
    let said = why(&mut b, "v_add_f32_e32 v0, v1, v2 surprise:1");
    assert!(said.contains("`surprise:1` is neither an operand nor a modifier that is known"), "{said}");
}

/// The position of an element in the words of a register, for tests of products.
fn half(x: f32) -> u32 {
    half::f16::from_f32(x).to_bits().into()
}

#[test]
fn matrix_product_instructions() {
    // `a` selects the element in row 3 and column 5; `b` has 100 k + column. So row 3 is row 5 of `b`.
    let b_of = |k: usize, column: usize| (20 * k + column) as f32;
    // Matrix cores: four columns of `a` in each lane.
    let mut b = Bench::new(64);
    for lane in 0..64 {
        let (at, first) = (lane % 16, lane / 16 * 4);
        let a_of = |k: usize| if (at, k) == (3, 5) { half(1.0) } else { 0 };
        for pair in 0..2 {
            let k = first + 2 * pair;
            b.wave.vectors[2 + pair][lane] = a_of(k) | a_of(k + 1) << 16;
            b.wave.vectors[4 + pair][lane] = half(b_of(k, at)) | half(b_of(k + 1, at)) << 16;
        }
    }
    b.run(&["v_mfma_f32_16x16x16_f16 v[8:11], v[2:3], v[4:5], 1.0"]);
    for row in 0..4 {
        b.expect(8 + row, |lane| {
            let is_row = lane as usize / 16 * 4 + row == 3;
            bits(1.0 + if is_row { b_of(5, lane as usize % 16) } else { 0.0 })
        });
    }
    // A wave of 32 of RDNA4: eight columns in each lane, eight rows of the sums.
    let mut b = Bench::new(32);
    for lane in 0..32 {
        let (at, first) = (lane % 16, lane / 16 * 8);
        let a_of = |k: usize| if (at, k) == (3, 5) { half(1.0) } else { 0 };
        for pair in 0..4 {
            let k = first + 2 * pair;
            b.wave.vectors[2 + pair][lane] = a_of(k) | a_of(k + 1) << 16;
            b.wave.vectors[6 + pair][lane] = half(b_of(k, at)) | half(b_of(k + 1, at)) << 16;
        }
    }
    b.run(&["v_wmma_f32_16x16x16_f16 v[10:17], v[2:5], v[6:9], 0"]);
    b.expect(13, |lane| if lane < 16 { bits(b_of(5, lane as usize)) } else { 0 });
    b.wave.set_exec(7);
    assert!(b.try_run("v_wmma_f32_16x16x16_f16 v[10:17], v[2:5], v[6:9], 0").is_err());
}
