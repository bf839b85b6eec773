//! Shared-memory instructions, and lane exchanges through the shared-memory hardware.

use crate::accessible_memory::{read_own, write_own};
use crate::fault::Fault;
use crate::instruction::Instruction;
use crate::memory_names::{Action, LdsOp};
use crate::number::Ty;
use crate::operand::{HalfOf, Operand, Value};
use crate::run_memory::{extended, placed, registers_after};
use crate::wave::Wave;

const WHAT: &str = "shared";

fn active(wave: &Wave) -> impl Iterator<Item = usize> + use<> {
    let exec = wave.exec();
    (0..wave.lanes).filter(move |lane| exec >> lane & 1 != 0)
}

/// Addresses wrap around at 32 bits. Compilers use positive offsets with a negative register.
fn address(row: &[u64; 64], lane: usize, offset: u64) -> u64 {
    row[lane].wrapping_add(offset) & 0xffff_ffff
}

/// Executes a shared-memory instruction.
pub fn run_lds(shared: &mut [u8], wave: &mut Wave, inst: &Instruction, op: &LdsOp) -> Result<(), Fault> {
    match op {
        LdsOp::One { action, returns, expected_first } => one(shared, wave, inst, action, *returns, *expected_first),
        LdsOp::Two { bits, unit, stores } => two(shared, wave, inst, *bits, *unit, *stores),
        LdsOp::BackwardPermute => backward_permute(wave, inst),
        LdsOp::Permute => permute(wave, inst),
        LdsOp::Swizzle => swizzle(wave, inst),
    }
}

fn wrong() -> Fault {
    Fault::launch("too few operands")
}

fn vector(operand: &Operand) -> Result<usize, Fault> {
    match operand.value {
        Value::Vector(at) => Ok(at as usize),
        _ => Err(Fault::launch("no vector register")),
    }
}

fn one(
    shared: &mut [u8],
    wave: &mut Wave,
    inst: &Instruction,
    action: &Action,
    returns: bool,
    expected_first: bool,
) -> Result<(), Fault> {
    let offset = inst.modifiers.offset as u64;
    match *action {
        Action::Load { bits, signed, place } => {
            let [to, from] = &inst.operands[..] else { return Err(wrong()) };
            let (first, row) = (vector(to)?, wave.row(from, Ty::B32));
            let place = if to.half == HalfOf::High { crate::memory_names::Place::High } else { place };
            for lane in active(wave) {
                let at = address(&row, lane, offset);
                for word in 0..bits.div_ceil(32) {
                    let value = read_own(shared, WHAT, at + 4 * u64::from(word), bits.min(32))?;
                    let register = &mut wave.vectors[first + word as usize][lane];
                    *register = placed(*register, extended(value, bits, signed), place);
                }
            }
        }
        Action::Store { bits, place } => {
            let [to, data] = &inst.operands[..] else { return Err(wrong()) };
            let (first, row) = (vector(data)?, wave.row(to, Ty::B32));
            let upper = place == crate::memory_names::Place::High || data.half == HalfOf::High;
            for lane in active(wave) {
                let at = address(&row, lane, offset);
                for word in 0..bits.div_ceil(32) {
                    let value = u64::from(wave.vectors[first + word as usize][lane]);
                    let value = if upper { value >> 16 } else { value };
                    write_own(shared, WHAT, at + 4 * u64::from(word), bits.min(32), value)?;
                }
            }
        }
        Action::Atomic { bits, update } => {
            let (to, rest) = results(inst, returns);
            let [at, data] = rest else { return Err(wrong()) };
            let by = wave.row(data, if bits == 64 { Ty::B64 } else { Ty::B32 });
            change(shared, wave, to, at, offset, bits, &|lane, old| update(old, by[lane]))?;
        }
        Action::CompareSwap { bits } => {
            let (to, rest) = results(inst, returns);
            let [at, first, second] = rest else { return Err(wrong()) };
            let ty = if bits == 64 { Ty::B64 } else { Ty::B32 };
            let (expected, new) = if expected_first { (first, second) } else { (second, first) };
            let (expected, new) = (wave.row(expected, ty), wave.row(new, ty));
            let swap = |lane: usize, old| if old == expected[lane] { new[lane] } else { old };
            change(shared, wave, to, at, offset, bits, &swap)?;
        }
    }
    Ok(())
}

fn results(inst: &Instruction, returns: bool) -> (Option<Operand>, &[Operand]) {
    match &inst.operands[..] {
        [to, rest @ ..] if returns => (Some(*to), rest),
        rest => (None, rest),
    }
}

fn change(
    shared: &mut [u8],
    wave: &mut Wave,
    to: Option<Operand>,
    at: &Operand,
    offset: u64,
    bits: u32,
    with: &dyn Fn(usize, u64) -> u64,
) -> Result<(), Fault> {
    let row = wave.row(at, Ty::B32);
    let mut old = [0; 64];
    for lane in active(wave) {
        let at = address(&row, lane, offset);
        old[lane] = read_own(shared, WHAT, at, bits)?;
        write_own(shared, WHAT, at, bits, with(lane, old[lane]))?;
    }
    if let Some(to) = to {
        wave.write(&to, if bits == 64 { Ty::B64 } else { Ty::B32 }, &old, wave.exec());
    }
    Ok(())
}

fn two(
    shared: &mut [u8],
    wave: &mut Wave,
    inst: &Instruction,
    bits: u32,
    unit: u64,
    stores: bool,
) -> Result<(), Fault> {
    let offsets = [inst.modifiers.offset0 * unit, inst.modifiers.offset1 * unit];
    let ty = if bits == 64 { Ty::B64 } else { Ty::B32 };
    if stores {
        let [to, first, second] = &inst.operands[..] else { return Err(wrong()) };
        let (row, data) = (wave.row(to, Ty::B32), [wave.row(first, ty), wave.row(second, ty)]);
        for lane in active(wave) {
            for n in 0..2 {
                write_own(shared, WHAT, address(&row, lane, offsets[n]), bits, data[n][lane])?;
            }
        }
        return Ok(());
    }
    let [to, from] = &inst.operands[..] else { return Err(wrong()) };
    let row = wave.row(from, Ty::B32);
    let mut loaded = [[0; 64]; 2];
    for lane in active(wave) {
        for n in 0..2 {
            loaded[n][lane] = read_own(shared, WHAT, address(&row, lane, offsets[n]), bits)?;
        }
    }
    for (n, row) in loaded.iter().enumerate() {
        wave.write(&registers_after(to, n as u32 * bits / 32), ty, row, wave.exec());
    }
    Ok(())
}

/// Inactive lanes read as zero.
fn backward_permute(wave: &mut Wave, inst: &Instruction) -> Result<(), Fault> {
    let [to, index, data] = &inst.operands[..] else { return Err(wrong()) };
    let (index, data, exec) = (wave.row(index, Ty::B32), wave.row(data, Ty::B32), wave.exec());
    let mut out = [0; 64];
    for lane in 0..wave.lanes {
        let from = (index[lane].wrapping_add(inst.modifiers.offset as u64) / 4) as usize % wave.lanes;
        out[lane] = if exec >> from & 1 != 0 { data[from] } else { 0 };
    }
    wave.write(to, Ty::B32, &out, exec);
    Ok(())
}

fn permute(wave: &mut Wave, inst: &Instruction) -> Result<(), Fault> {
    let [to, index, data] = &inst.operands[..] else { return Err(wrong()) };
    let (index, data, exec) = (wave.row(index, Ty::B32), wave.row(data, Ty::B32), wave.exec());
    let mut out = [0; 64];
    for lane in active(wave) {
        out[(index[lane].wrapping_add(inst.modifiers.offset as u64) / 4) as usize % wave.lanes] = data[lane];
    }
    wave.write(to, Ty::B32, &out, exec);
    Ok(())
}

fn swizzle(wave: &mut Wave, inst: &Instruction) -> Result<(), Fault> {
    let [to, data] = &inst.operands[..] else { return Err(wrong()) };
    let (data, exec) = (wave.row(data, Ty::B32), wave.exec());
    let bits = inst.modifiers.swizzle.map_or(inst.modifiers.offset as usize, usize::from);
    let mut out = [0; 64];
    for lane in 0..wave.lanes {
        let from = if bits & 0x8000 != 0 {
            lane & !3 | bits >> (2 * (lane & 3)) & 3
        } else {
            let (and, or, xor) = (bits & 31, bits >> 5 & 31, bits >> 10 & 31);
            lane & 32 | ((lane & and | or) ^ xor) & 31
        };
        out[lane] = if exec >> from & 1 != 0 { data[from] } else { 0 };
    }
    wave.write(to, Ty::B32, &out, exec);
    Ok(())
}
