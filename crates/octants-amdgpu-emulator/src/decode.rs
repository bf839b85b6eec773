//! Decodes the disassembler's text to an [`Instruction`].

use std::collections::HashMap;

use crate::comparisons::comparison;
use crate::instruction::{Carry, Instruction, Mixed, Op, When};
use crate::lanewise::Lanewise;
use crate::matrix_products::product;
use crate::memory_names::{lds_op, memory_op};
use crate::mnemonic::{does_nothing, plain};
use crate::modifiers::Modifiers;
use crate::number::Ty;
use crate::operand::{Operand, Value};
use crate::scalar_table::{MASKS, READ_AND_WRITTEN, SCALARS, ScalarOp};
use crate::vector_floats::FLOATS;
use crate::vector_integers::INTEGERS;

/// 16-bit operations that preserve the upper half of the destination on all chips.
const KEEPS_UPPER_HALF: &[&str] = &["v_mad_f16", "v_mad_u16", "v_mad_i16", "v_fma_f16", "v_div_fixup_f16"];

/// The tables, by name.
#[derive(Debug)]
pub struct Decoder {
    lanes: HashMap<&'static str, Lanewise>,
    scalars: HashMap<&'static str, ScalarOp>,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder { lanes: INTEGERS.iter().chain(FLOATS).copied().collect(), scalars: SCALARS.iter().copied().collect() }
    }
}

/// Splits at commas and spaces outside of brackets.
fn words(text: &str) -> Vec<&str> {
    let (mut depth, mut from, mut out) = (0, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '[' | '(' => depth += 1,
            ']' | ')' => depth -= 1,
            ',' | ' ' if depth == 0 => {
                if from < at {
                    out.push(&text[from..at]);
                }
                from = at + 1;
            }
            _ => {}
        }
    }
    if from < text.len() {
        out.push(&text[from..]);
    }
    out
}

fn branch(name: &str) -> Option<When> {
    Some(match name {
        "s_branch" => When::Always,
        "s_cbranch_scc0" => When::Scc(false),
        "s_cbranch_scc1" => When::Scc(true),
        "s_cbranch_vccz" => When::VccZero(true),
        "s_cbranch_vccnz" => When::VccZero(false),
        "s_cbranch_execz" => When::ExecZero(true),
        "s_cbranch_execnz" => When::ExecZero(false),
        _ => return None,
    })
}

fn simple(name: &str) -> Option<Op> {
    Some(match name {
        _ if does_nothing(name) => Op::Nothing,
        "s_endpgm" | "s_endpgm_saved" => Op::End,
        "s_barrier" => Op::Barrier,
        "s_barrier_signal" => Op::BarrierSignal,
        "s_barrier_wait" => Op::BarrierWait,
        "s_trap" => Op::Trap,
        "s_getpc_b64" => Op::GetPc,
        "s_setpc_b64" => Op::SetPc,
        "s_swappc_b64" => Op::SwapPc,
        "s_denorm_mode" => Op::DenormalMode,
        "s_memtime" | "s_memrealtime" | "s_sendmsg_rtn_b64" => Op::Clock,
        "v_readfirstlane_b32" => Op::ReadFirstLane,
        "v_readlane_b32" => Op::ReadLane,
        "v_writelane_b32" => Op::WriteLane,
        "v_mbcnt_lo_u32_b32" => Op::CountBelow { high: false },
        "v_mbcnt_hi_u32_b32" => Op::CountBelow { high: true },
        "v_swap_b32" => Op::Swap,
        "v_movrels_b32" => Op::MoveRelative { source: true, destination: false },
        "v_movreld_b32" => Op::MoveRelative { source: false, destination: true },
        "v_movrelsd_b32" => Op::MoveRelative { source: true, destination: true },
        "s_set_gpr_idx_off" => Op::IndexRegisters(0),
        "v_pk_mov_b32" => Op::PackedMove,
        "v_permlane16_b32" => Op::PermuteRow { opposite: false },
        "v_permlanex16_b32" => Op::PermuteRow { opposite: true },
        "v_permlane16_var_b32" => Op::PermuteRowByLane { opposite: false },
        "v_permlanex16_var_b32" => Op::PermuteRowByLane { opposite: true },
        "v_permlane64_b32" => Op::PermuteHalves,
        "v_add_co_u32" => Op::Carries(Carry::Add, false),
        "v_sub_co_u32" => Op::Carries(Carry::Sub, false),
        "v_subrev_co_u32" => Op::Carries(Carry::SubReverse, false),
        "v_addc_co_u32" => Op::Carries(Carry::Add, true),
        "v_subb_co_u32" => Op::Carries(Carry::Sub, true),
        "v_subbrev_co_u32" => Op::Carries(Carry::SubReverse, true),
        "v_mad_u64_u32" => Op::WideProduct { signed: false },
        "v_mad_i64_i32" => Op::WideProduct { signed: true },
        "v_div_scale_f32" => Op::DivScale(Ty::F32),
        "v_div_scale_f64" => Op::DivScale(Ty::F64),
        "v_div_fmas_f32" => Op::DivFmas(Ty::F32),
        "v_div_fmas_f64" => Op::DivFmas(Ty::F64),
        "v_fma_mix_f32" => Op::Mixed(Mixed::Whole),
        "v_fma_mixlo_f16" => Op::Mixed(Mixed::Low),
        "v_fma_mixhi_f16" => Op::Mixed(Mixed::High),
        _ => return None,
    })
}

/// The width that a scalar load's mnemonic names, and whether it sign-extends.
fn scalar_load(name: &str) -> Option<Op> {
    let kind = name.strip_prefix("s_load_")?;
    let (bits, signed) = match kind {
        "dword" | "b32" => (32, false),
        "dwordx2" | "b64" => (64, false),
        "b96" => (96, false),
        "dwordx4" | "b128" => (128, false),
        "dwordx8" | "b256" => (256, false),
        "dwordx16" | "b512" => (512, false),
        "u8" => (8, false),
        "i8" => (8, true),
        "u16" => (16, false),
        "i16" => (16, true),
        _ => return None,
    };
    Some(Op::ScalarLoad { bits, signed })
}

/// A hardware register and its bit range.
fn hardware_register(text: &str) -> Option<(String, u32, u32)> {
    let inside = text.strip_prefix("hwreg(")?.strip_suffix(')')?;
    let mut parts = inside.split(',').map(str::trim);
    let name = parts.next()?.to_string();
    let first = parts.next().map_or(Some(0), |n| n.parse().ok())?;
    Some((name, first, parts.next().map_or(Some(32), |n| n.parse().ok())?))
}

impl Decoder {
    /// Decodes an instruction from its disassembly.
    pub fn decode(&self, text: &str, bytes: u64) -> Result<Instruction, String> {
        if let Some((first, second)) = text.split_once("::") {
            let (first, second) = (self.decode(first.trim(), bytes)?, self.decode(second.trim(), bytes)?);
            return Ok(Instruction {
                op: Op::Dual(Box::new([first, second])),
                operands: Vec::new(),
                modifiers: Modifiers::default(),
                bytes,
                text: text.to_string(),
            });
        }
        let unknown = |why: &str| format!("`{text}`: {why}");
        let text_without_note = text.split("//").next().unwrap_or(text).trim();
        let (mnemonic, rest) = text_without_note.split_once(' ').unwrap_or((text_without_note, ""));
        let mnemonic = mnemonic.replacen("v_dual_", "v_", 1);
        let name = plain(&mnemonic);
        let rest = rest.trim();
        let mut made = Instruction {
            op: Op::Nothing,
            operands: Vec::new(),
            modifiers: Modifiers::default(),
            bytes,
            text: text.to_string(),
        };
        if let Some(op) = simple(&name)
            && matches!(op, Op::Nothing | Op::End | Op::Barrier | Op::BarrierSignal | Op::BarrierWait | Op::Trap)
        {
            made.op = op;
            return Ok(made);
        }
        let words = words(rest);
        if let Some(when) = branch(&name) {
            let words = rest.parse::<u32>().map_err(|_| unknown("where does it go?"))?;
            made.op = Op::Branch(when, i64::from(words as u16 as i16));
            return Ok(made);
        }
        if let Some(op) = register_op(&name, &words) {
            made.op = op.ok_or_else(|| unknown("which bits of which register?"))?;
            made.operands = words.iter().filter_map(|w| Operand::parse(w)).collect();
            return Ok(made);
        }
        if matches!(name.as_str(), "s_sendmsg" | "s_sendmsghalt") {
            // Messages have no receiver here. Compilers only emit the one that deallocates registers.
            return Ok(made);
        }
        for word in words {
            match Operand::parse(word) {
                Some(operand) => made.operands.push(operand),
                None if name == "s_sendmsg_rtn_b64" => {}
                None if made.modifiers.take(word) => {}
                None => return Err(unknown(&format!("`{word}` is neither an operand nor a modifier that is known"))),
            }
        }
        if name == "s_call_b64" {
            let words = rest.rsplit(' ').next().and_then(|w| w.parse::<u32>().ok());
            made.op = Op::Call(i64::from(words.ok_or_else(|| unknown("where does it go?"))? as u16 as i16));
            return Ok(made);
        }
        if name.starts_with("s_cmpk_") && name.ends_with("_i32") {
            // The literal has 16 bits.
            let last = made.operands.last_mut().ok_or_else(|| unknown("too few operands"))?;
            last.value = Value::Int(i64::from(last.constant(Ty::B32).unwrap_or(0) as i16) as u64);
        }
        // On older chips, 16-bit results clear the upper half, except for these.
        made.modifiers.keeps_upper_half = KEEPS_UPPER_HALF.contains(&name.as_str());
        made.op = self.find(&name).ok_or_else(|| unknown("the emulator does not know this instruction"))?;
        Ok(made)
    }

    fn find(&self, name: &str) -> Option<Op> {
        if let Some(op) = simple(name).or_else(|| scalar_load(name)) {
            return Some(op);
        }
        if let Some(op) = lds_op(name) {
            return Some(Op::Lds(op));
        }
        if let Some(op) = memory_op(name) {
            return Some(Op::Memory(op));
        }
        if name.starts_with("s_") { self.scalar(name) } else { self.vector(name) }
    }

    fn scalar(&self, name: &str) -> Option<Op> {
        if let Some(op) = self.scalars.get(name) {
            return Some(Op::Scalar(*op));
        }
        if let Some((_, op)) = READ_AND_WRITTEN.iter().find(|(n, _)| *n == name) {
            return Some(Op::ScalarInPlace(*op));
        }
        let without_width = name.strip_suffix("_b64").or_else(|| name.strip_suffix("_b32"));
        if let Some((n, run)) = MASKS.iter().find(|(n, _)| without_width == Some(n)) {
            return Some(Op::Mask { run: *run, keeps_old: n.ends_with("saveexec") });
        }
        if let Some(rest) = name.strip_prefix("s_cmpk_") {
            // Only the width of the literal differs, and the disassembler prints its value.
            return self.scalar(&format!("s_cmp_{rest}"));
        }
        if let Some(found) = name.strip_prefix("s_cmp_").and_then(comparison) {
            return Some(Op::ScalarCompare(found));
        }
        let (op, in_place) = self.lanes(&format!("v_{}", name.strip_prefix("s_")?))?;
        Some(Op::ScalarFloat(op, in_place))
    }

    /// A lane operation, and whether its destination is also its last source.
    fn lanes(&self, name: &str) -> Option<(Lanewise, bool)> {
        if let Some(op) = self.lanes.get(name) {
            return Some((*op, false));
        }
        let sums = [("v_fmac_", "v_fma_"), ("v_mac_", "v_mad_")];
        let (prefix, plain) = sums.iter().find(|(prefix, _)| name.starts_with(prefix))?;
        Some((*self.lanes.get(name.replacen(prefix, plain, 1).as_str())?, true))
    }

    fn vector(&self, name: &str) -> Option<Op> {
        if let Some(product) = product(name) {
            return Some(Op::Product(product));
        }
        if let Some((op, in_place)) = self.lanes(name) {
            return Some(Op::Lanes(op, in_place));
        }
        if let Some(rest) = name.strip_prefix("v_s_") {
            return self.lanes(&format!("v_{rest}")).map(|(op, in_place)| Op::ScalarFloat(op, in_place));
        }
        if let Some(rest) = name.strip_prefix("v_pk_") {
            return self.lanes(&format!("v_{rest}")).map(|(op, in_place)| Op::Packed(op, in_place));
        }
        if let Some(rest) = name.strip_prefix("v_accvgpr_") {
            let moves = rest.starts_with("read") || rest.starts_with("write") || rest.starts_with("mov");
            return moves.then(|| self.lanes.get("v_mov_b32").map(|op| Op::Lanes(*op, false)))?;
        }
        if let Some(found) = name.strip_prefix("v_cmpx_").and_then(comparison) {
            return Some(Op::Compare { comparison: found, sets_exec: true });
        }
        let found = name.strip_prefix("v_cmp_").and_then(comparison)?;
        Some(Op::Compare { comparison: found, sets_exec: false })
    }
}

/// The operands that use indexed addressing, from text like `gpr_idx(SRC0,DST)`.
fn indexed(text: &str) -> Option<u8> {
    let names = text.strip_prefix("gpr_idx(")?.strip_suffix(')')?;
    names.split(',').map(str::trim).try_fold(0, |all, name| {
        let bit = ["SRC0", "SRC1", "SRC2", "DST"].iter().position(|n| *n == name)?;
        Some(all | 1 << bit)
    })
}

/// Operations on hardware registers; the inner `None` means that the register cannot be read.
fn register_op(name: &str, words: &[&str]) -> Option<Option<Op>> {
    Some(match name {
        "s_set_gpr_idx_on" => words.get(1).and_then(|w| indexed(w)).map(Op::IndexRegisters),
        "s_getreg_b32" => words
            .get(1)
            .and_then(|w| hardware_register(w))
            .map(|(name, from, count)| Op::GetRegister(name, from, count)),
        "s_setreg_b32" | "s_setreg_imm32_b32" => words
            .first()
            .and_then(|w| hardware_register(w))
            .map(|(name, from, count)| Op::SetRegister(name, from, count)),
        _ => return None,
    })
}
