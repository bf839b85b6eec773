//! Scalar instructions: arithmetic, masks, branches, hardware registers.

use crate::fault::Fault;
use crate::instruction::{Instruction, Op, When};
use crate::number::Ty;
use crate::operand::{Operand, Value, scalar};
use crate::scalar_table::ScalarOp;
use crate::wave::Wave;

fn wrong() -> Fault {
    Fault::launch("too few operands")
}

/// Executes an operation of the table. The destination, if any, is the first operand.
pub fn run_scalar(wave: &mut Wave, operands: &[Operand], op: &ScalarOp, in_place: bool) -> Result<(), Fault> {
    let mut sources = [0; 3];
    let from = if op.to == 0 || in_place { operands } else { operands.get(1..).ok_or_else(wrong)? };
    if from.len() < op.from.len() {
        return Err(wrong());
    }
    for (n, bits) in op.from.iter().enumerate() {
        sources[n] = wave.scalar(&from[n], *bits);
    }
    let mut scc = wave.scc;
    let result = (op.run)(&mut scc, sources);
    wave.scc = scc;
    if op.to > 0 {
        wave.write_scalar(&operands[0], op.to, result);
    }
    Ok(())
}

/// Executes an operation that updates EXEC.
pub fn run_mask(wave: &mut Wave, operands: &[Operand], run: fn(u64, u64) -> u64, keeps_old: bool) -> Result<(), Fault> {
    let [to, from] = operands else { return Err(wrong()) };
    let bits = wave.lanes as u32;
    let old = wave.exec();
    let new = run(wave.scalar(from, bits), old) & wave.all_lanes();
    wave.write_scalar(to, bits, if keeps_old { old } else { new });
    wave.set_exec(new);
    wave.scc = new != 0;
    Ok(())
}

/// Whether a branch is taken.
pub fn is_taken(wave: &Wave, when: When) -> bool {
    match when {
        When::Always => true,
        When::Scc(value) => wave.scc == value,
        When::VccZero(value) => (wave.mask(scalar::VCC) == 0) == value,
        When::ExecZero(value) => (wave.exec() == 0) == value,
    }
}

/// Executes a lane operation or a comparison on scalars.
pub fn run_scalar_float(wave: &mut Wave, inst: &Instruction) -> Result<(), Fault> {
    let operands = &inst.operands[..];
    let fetch = |operand: &Operand, ty: Ty| {
        let bits = wave.scalar(&Operand { negate: false, absolute: false, ..*operand }, ty.bits().max(32));
        let mut row = [0; 64];
        row[0] = operand.constant(ty).unwrap_or(bits);
        wave.apply_signs(&mut row, operand, ty);
        row[0]
    };
    match &inst.op {
        Op::ScalarFloat(op, in_place) => {
            let to = *operands.first().ok_or_else(wrong)?;
            let mut sources = [0; 3];
            for n in 0..op.count {
                let last = *in_place && n == op.count - 1;
                let operand = if last { &to } else { operands.get(n + 1).ok_or_else(wrong)? };
                sources[n] = fetch(operand, op.from[n]);
            }
            let mut row = [0; 64];
            row[0] = op.one(sources);
            let result = wave.finished(row, op.to, &inst.modifiers)[0];
            wave.write_scalar(&to, op.to.bits().max(32), result);
        }
        Op::ScalarCompare(op) => {
            let [a, b] = operands else { return Err(wrong()) };
            let (mut left, mut right, mut result) = ([0; 64], [0; 64], [0; 64]);
            left[0] = fetch(a, op.left);
            right[0] = fetch(b, op.right);
            (op.run)(1, &mut result, &left, &right, &[0; 64]);
            wave.scc = result[0] != 0;
        }
        _ => return Err(Fault::launch("no operation of scalars")),
    }
    Ok(())
}

/// Reads a hardware register.
pub fn get_register(wave: &mut Wave, inst: &Instruction, name: &str, from: u32, count: u32) -> Result<(), Fault> {
    let value = match name {
        "HW_REG_MODE" => wave.mode,
        "HW_REG_SHADER_CYCLES" => wave.steps as u32 & 0xf_ffff,
        "HW_REG_SHADER_CYCLES_LO" => wave.steps as u32,
        "HW_REG_SHADER_CYCLES_HI" => (wave.steps >> 32) as u32,
        _ => return Err(Fault::launch(format!("the register {name} is not modeled"))),
    };
    let kept = if count >= 32 { u32::MAX } else { (1 << count) - 1 };
    let to = inst.operands.first().ok_or_else(wrong)?;
    wave.write_scalar(to, 32, (value >> from & kept).into());
    Ok(())
}

/// Writes a hardware register.
pub fn set_register(wave: &mut Wave, inst: &Instruction, name: &str, from: u32, count: u32) -> Result<(), Fault> {
    let value = wave.scalar(inst.operands.last().ok_or_else(wrong)?, 32) as u32;
    let kept = if count >= 32 { u32::MAX } else { (1 << count) - 1 };
    match name {
        "HW_REG_MODE" => wave.mode = wave.mode & !(kept << from) | (value & kept) << from,
        _ => return Err(Fault::launch(format!("the register {name} is not modeled"))),
    }
    check_rounding(wave)
}

/// Only rounding to nearest is modeled.
fn check_rounding(wave: &Wave) -> Result<(), Fault> {
    if wave.mode & 15 == 0 { Ok(()) } else { Err(Fault::launch("a mode that rounds other than to the nearest")) }
}

/// Sets the denormal mode.
pub fn set_denormals(wave: &mut Wave, inst: &Instruction) -> Result<(), Fault> {
    let mode = wave.scalar(inst.operands.first().ok_or_else(wrong)?, 32) as u32;
    wave.mode = wave.mode & !0xf0 | (mode & 15) << 4;
    Ok(())
}

/// The clock: instructions executed by the wave.
pub fn read_clock(wave: &mut Wave, inst: &Instruction) -> Result<(), Fault> {
    let to = inst.operands.iter().find(|o| matches!(o.value, Value::Scalar(_))).ok_or_else(wrong)?;
    let time = wave.steps;
    wave.write_scalar(to, 64, time);
    Ok(())
}
