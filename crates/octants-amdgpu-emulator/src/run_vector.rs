//! Instructions that compute in lanes.

use crate::comparisons::Comparison;
use crate::fault::Fault;
use crate::instruction::{Carry, Instruction, Mixed, Op};
use crate::lanewise::{Lanewise, Row};
use crate::modifiers::{Part, Rest};
use crate::number::{Half, Lane, Ty};
use crate::operand::{HalfOf, Operand, Value, scalar};
use crate::run_exchange::exchanged;
use crate::vector_floats::scaled;
use crate::wave::Wave;

fn wrong() -> Fault {
    Fault::launch("too few operands")
}

/// A result to be written: destination, value and lanes.
#[derive(Debug)]
pub struct Computed {
    to: Operand,
    ty: Ty,
    row: Row,
    lanes: u64,
}

/// The lanes that an instruction writes: the active ones, except those that a DPP exchange leaves unchanged.
pub fn written_lanes(wave: &Wave, inst: &Instruction) -> u64 {
    match &inst.modifiers.dpp {
        Some(dpp) => crate::run_exchange::written(wave, dpp),
        None => wave.exec(),
    }
}

/// Reads a source, with its modifiers.
pub fn source(wave: &Wave, inst: &Instruction, operand: &Operand, n: usize, ty: Ty) -> Row {
    let modifiers = &inst.modifiers;
    if ty == Ty::Mask {
        return wave.bits(operand, ty);
    }
    let selects_half = ty.bits() == 16 && modifiers.op_sel >> n & 1 != 0 && operand.half == HalfOf::All;
    let operand = &if selects_half { Operand { half: HalfOf::High, ..*operand } } else { *operand };
    let part = modifiers.sdwa.filter(|_| n < 2).map_or(Part::Whole, |s| s.from[n]);
    let mut row = match part {
        // Constants have the operation's type, regardless of the selected part.
        Part::Whole => wave.bits(operand, ty),
        _ => {
            let (first, count) = part.bits();
            let mut row = wave.bits(operand, Ty::B32);
            row.iter_mut().for_each(|v| {
                let kept = *v >> first & ((1 << count) - 1);
                *v = if operand.sext { ((kept << (64 - count)) as i64 >> (64 - count)) as u64 } else { kept };
            });
            row
        }
    };
    if n == 0
        && let Some(dpp) = &modifiers.dpp
    {
        row = exchanged(wave, dpp, &row);
    }
    wave.apply_signs(&mut row, operand, ty);
    row
}

fn operand(inst: &Instruction, n: usize) -> Result<&Operand, Fault> {
    inst.operands.get(n).ok_or_else(wrong)
}

const VCC: Operand = Operand {
    value: Value::Scalar(scalar::VCC),
    count: 2,
    negate: false,
    absolute: false,
    sext: false,
    half: HalfOf::All,
};

/// Executes a lane operation.
pub fn compute_lanes(wave: &Wave, inst: &Instruction, op: &Lanewise, in_place: bool) -> Result<Computed, Fault> {
    let to = wave.relative(operand(inst, 0)?, wave.indexed & 8 != 0)?;
    let mut rows = [[0; 64]; 3];
    for n in 0..op.count {
        let from = match inst.operands.get(n + 1) {
            _ if in_place && n == op.count - 1 => &to,
            Some(from) => from,
            None if op.from[n] == Ty::Mask => &VCC,
            None => return Err(wrong()),
        };
        let from = wave.relative(from, wave.indexed >> n & 1 != 0)?;
        rows[n] = source(wave, inst, &from, n, op.from[n]);
    }
    let mut row = [0; 64];
    (op.run)(wave.lanes, &mut row, &rows[0], &rows[1], &rows[2]);
    let row = wave.finished(row, op.to, &inst.modifiers);
    let row = if inst.modifiers.clamp { saturated(row, op, &rows, &inst.text) } else { row };
    // The bit after those of the sources selects the half of the destination.
    let upper = op.to.bits() == 16 && inst.modifiers.op_sel >> op.count & 1 != 0;
    let lower = inst.modifiers.keeps_upper_half && to.half == HalfOf::All;
    let to = match (upper, lower) {
        (true, _) => Operand { half: HalfOf::High, ..to },
        (_, true) => Operand { half: HalfOf::Low, ..to },
        _ => to,
    };
    Ok(Computed { to, ty: op.to, row, lanes: written_lanes(wave, inst) })
}

/// Clamped integer sums and differences saturate.
fn saturated(mut row: Row, op: &Lanewise, rows: &[Row; 3], text: &str) -> Row {
    let bits = op.to.bits();
    if !matches!(op.to, Ty::B16 | Ty::B32) {
        return row;
    }
    let (adds, reverse) = (text.contains("add"), text.contains("rev"));
    let signed = text.contains("_i32") || text.contains("_i16");
    let wide = |v: u64| if signed { ((v << (64 - bits)) as i64 >> (64 - bits)) as i128 } else { i128::from(v) };
    let (low, high) =
        if signed { (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1) } else { (0, (1i128 << bits) - 1) };
    for i in 0..64 {
        let (a, b) = (wide(rows[0][i]), wide(rows[1][i]));
        let exact = match (adds, reverse) {
            (true, _) => a + b,
            (false, true) => b - a,
            (false, false) => a - b,
        };
        row[i] = exact.clamp(low, high) as u64 & ((1 << bits) - 1);
    }
    row
}

/// Writes a result to a register, or to the selected part of it.
pub fn write_result(wave: &mut Wave, inst: &Instruction, result: &Computed) {
    let Some(sdwa) = inst.modifiers.sdwa.filter(|s| s.to != Part::Whole) else {
        return wave.write(&result.to, result.ty, &result.row, result.lanes);
    };
    let (first, count) = sdwa.to.bits();
    let part = ((1u64 << count) - 1) << first;
    let mut row = wave.bits(&result.to, Ty::B32);
    for (old, new) in row.iter_mut().zip(&result.row) {
        let placed = *new << first & part;
        *old = match sdwa.rest {
            Rest::Zero => placed,
            Rest::Kept => *old & !part | placed,
            Rest::Sign => {
                let sign = *new >> (count - 1) & 1 != 0;
                placed | if sign { 0xffff_ffff & !(part | (part - 1)) } else { 0 }
            }
        };
    }
    wave.write(&result.to, Ty::B32, &row, result.lanes);
}

/// Executes dual-issued instructions: both read before either writes.
pub fn run_dual(wave: &mut Wave, both: &[Instruction; 2]) -> Result<(), Fault> {
    let mut results = Vec::with_capacity(2);
    for inst in both {
        let Op::Lanes(op, in_place) = &inst.op else {
            return Err(Fault::launch(format!("`{}` in a pair is not modeled", inst.text)));
        };
        results.push(compute_lanes(wave, inst, op, *in_place)?);
    }
    for (inst, result) in both.iter().zip(&results) {
        write_result(wave, inst, result);
    }
    Ok(())
}

/// Executes a packed operation on both halves of registers, or on register pairs.
pub fn run_packed(wave: &mut Wave, inst: &Instruction, op: &Lanewise, in_place: bool) -> Result<(), Fault> {
    let modifiers = &inst.modifiers;
    let half = op.to.bits();
    let whole = if half == 32 { Ty::B64 } else { Ty::B32 };
    let to = *operand(inst, 0)?;
    let upper_sources = modifiers.op_sel_hi.unwrap_or(7);
    let mut results = [[0; 64]; 2];
    for (upper, result) in results.iter_mut().enumerate() {
        let mut rows = [[0; 64]; 3];
        for n in 0..op.count {
            let from = if in_place && n == op.count - 1 { &to } else { operand(inst, n + 1)? };
            let selected = if upper == 1 { upper_sources } else { modifiers.op_sel } >> n & 1;
            let mut row = packed_half(wave, from, op.from[n], whole, selected != 0);
            if n == 0
                && let Some(dpp) = &modifiers.dpp
            {
                row = exchanged(wave, dpp, &row);
            }
            let turned = if upper == 1 { modifiers.neg_hi } else { modifiers.neg_lo } >> n & 1 != 0;
            let plain = Operand { negate: turned, half: HalfOf::All, ..*from };
            wave.apply_signs(&mut row, &plain, op.from[n]);
            rows[n] = row;
        }
        (op.run)(wave.lanes, result, &rows[0], &rows[1], &rows[2]);
        *result = wave.finished(*result, op.to, modifiers);
        if modifiers.clamp {
            *result = saturated(*result, op, &rows, &inst.text);
        }
    }
    let mut row = [0; 64];
    for i in 0..64 {
        row[i] = results[0][i] & ((1 << half) - 1) | results[1][i] << half;
    }
    wave.write(&to, whole, &row, written_lanes(wave, inst));
    Ok(())
}

/// One half of a packed source. Constants apply to the lower half only, except that 32-bit floats apply to both.
fn packed_half(wave: &Wave, from: &Operand, ty: Ty, whole: Ty, upper: bool) -> Row {
    if let Some(constant) = from.constant(ty) {
        let is_literal = matches!(from.value, Value::Literal(_));
        let value = if !upper || ty.bits() == 32 {
            constant
        } else if is_literal {
            constant >> 16
        } else {
            // The upper half of an integer is its sign; that of a float is zero.
            if matches!(from.value, Value::Int(_)) { constant >> 16 } else { 0 }
        };
        return [value; 64];
    }
    let mut row = wave.bits(from, whole);
    if upper {
        row.iter_mut().for_each(|v| *v >>= ty.bits());
    }
    row
}

/// Swizzles two register pairs to a pair.
pub fn run_packed_move(wave: &mut Wave, inst: &Instruction) -> Result<(), Fault> {
    let [to, first, second] = &inst.operands[..] else { return Err(wrong()) };
    let pick = |from: &Operand, n: u8| packed_half(wave, from, Ty::B32, Ty::B64, inst.modifiers.op_sel >> n & 1 != 0);
    let (low, high) = (pick(first, 0), pick(second, 1));
    let mut row = [0; 64];
    (0..64).for_each(|i| row[i] = low[i] & 0xffff_ffff | high[i] << 32);
    wave.write(to, Ty::B64, &row, wave.exec());
    Ok(())
}

/// A fused multiply-add of 16-bit or 32-bit sources.
pub fn run_mixed(wave: &mut Wave, inst: &Instruction, mixed: Mixed) -> Result<(), Fault> {
    let modifiers = &inst.modifiers;
    let halves = modifiers.op_sel_hi.unwrap_or(0);
    let mut rows = [[0; 64]; 3];
    for (n, row) in rows.iter_mut().enumerate() {
        let from = operand(inst, n + 1)?;
        *row = if halves >> n & 1 != 0 {
            let upper = modifiers.op_sel >> n & 1 != 0;
            let mut half =
                wave.bits(&Operand { half: if upper { HalfOf::High } else { HalfOf::Low }, ..*from }, Ty::F16);
            wave.apply_signs(&mut half, from, Ty::F16);
            half.map(|v| (Half::get(v).0 as f32).put())
        } else {
            wave.row(from, Ty::F32)
        };
    }
    let (ty, half) = match mixed {
        Mixed::Whole => (Ty::F32, HalfOf::All),
        Mixed::Low => (Ty::F16, HalfOf::Low),
        Mixed::High => (Ty::F16, HalfOf::High),
    };
    let mut row = [0; 64];
    for i in 0..64 {
        let [a, b, c] = [0, 1, 2].map(|n| f32::get(rows[n][i]));
        let sum = a.mul_add(b, c);
        row[i] = if ty == Ty::F16 { Half(sum.into()).put() } else { sum.put() };
    }
    let row = wave.finished(row, ty, modifiers);
    let to = Operand { half, ..*operand(inst, 0)? };
    wave.write(&to, ty, &row, wave.exec());
    Ok(())
}

/// Compares lanes.
pub fn run_compare(wave: &mut Wave, inst: &Instruction, op: &Comparison, sets_exec: bool) -> Result<(), Fault> {
    let (to, sources) = match &inst.operands[..] {
        [to, a, b] => (Some(to), [a, b]),
        [a, b] => (None, [a, b]),
        _ => return Err(wrong()),
    };
    let left = source(wave, inst, sources[0], 0, op.left);
    let right = source(wave, inst, sources[1], 1, op.right);
    let mut result = [0; 64];
    (op.run)(wave.lanes, &mut result, &left, &right, &[0; 64]);
    let lanes = written_lanes(wave, inst);
    let mask = (0..wave.lanes).fold(0, |mask, i| mask | (result[i] & 1) << i) & lanes;
    match to.map(|t| t.value) {
        Some(Value::Scalar(at)) => wave.set_mask(at, mask),
        Some(_) => return Err(Fault::launch("a comparison to no scalar register")),
        None if sets_exec => {}
        None => wave.set_mask(scalar::VCC, mask),
    }
    if sets_exec {
        wave.set_exec(mask);
    }
    Ok(())
}

/// Executes an addition with carry.
pub fn run_carries(wave: &mut Wave, inst: &Instruction, carry: Carry, comes_in: bool) -> Result<(), Fault> {
    let [to, out, a, b, ..] = &inst.operands[..] else { return Err(wrong()) };
    let (a, b) = (source(wave, inst, a, 0, Ty::B32), source(wave, inst, b, 1, Ty::B32));
    let before = if comes_in { wave.bits(operand(inst, 4)?, Ty::Mask) } else { [0; 64] };
    let (mut row, mut mask) = ([0; 64], 0u64);
    for i in 0..wave.lanes {
        let (a, b, c) = (a[i], b[i], before[i]);
        let (result, overflows) = match carry {
            Carry::Add => (a + b + c, (a + b + c) >> 32 != 0),
            Carry::Sub => (a.wrapping_sub(b + c), b + c > a),
            Carry::SubReverse => (b.wrapping_sub(a + c), a + c > b),
        };
        row[i] = result & 0xffff_ffff;
        mask |= u64::from(overflows) << i;
    }
    let lanes = written_lanes(wave, inst);
    let Value::Scalar(at) = out.value else { return Err(Fault::launch("a carry to no scalar register")) };
    wave.set_mask(at, mask & lanes);
    let result = Computed { to: *to, ty: Ty::B32, row, lanes };
    write_result(wave, inst, &result);
    Ok(())
}

/// Executes a 32-bit multiplication with 64-bit addition.
pub fn run_wide_product(wave: &mut Wave, inst: &Instruction, signed: bool) -> Result<(), Fault> {
    let [to, out, a, b, c] = &inst.operands[..] else { return Err(wrong()) };
    let (a, b, c) = (wave.row(a, Ty::B32), wave.row(b, Ty::B32), wave.row(c, Ty::B64));
    let (mut row, mut mask) = ([0; 64], 0u64);
    for i in 0..wave.lanes {
        let (sum, overflows) = if signed {
            let product = i64::from(a[i] as i32) * i64::from(b[i] as i32);
            let (sum, overflows) = product.overflowing_add(c[i] as i64);
            (sum as u64, overflows)
        } else {
            (a[i] * b[i]).overflowing_add(c[i])
        };
        row[i] = sum;
        mask |= u64::from(overflows) << i;
    }
    let lanes = wave.exec();
    if let Value::Scalar(at) = out.value {
        wave.set_mask(at, mask & lanes);
    }
    wave.write(to, Ty::B64, &row, lanes);
    Ok(())
}

/// Constants of a float type for the scaling of divisions.
struct Division {
    /// Maximum difference of exponents without scaling.
    most: i32,
    /// The exponent of the scale.
    power: i32,
    /// Number of mantissa bits.
    mantissa: i32,
    /// The exponent bias.
    bias: i32,
}

fn division(ty: Ty) -> Division {
    match ty {
        Ty::F64 => Division { most: 768, power: 128, mantissa: 53, bias: 1023 },
        _ => Division { most: 96, power: 64, mantissa: 23, bias: 127 },
    }
}

/// The biased exponent of a float.
fn exponent(bits: u64, ty: Ty) -> i32 {
    if ty == Ty::F64 { (bits >> 52 & 0x7ff) as i32 } else { (bits >> 23 & 0xff) as i32 }
}

/// Scales the numerator or the denominator of a division, so that its steps neither overflow nor underflow.
pub fn run_div_scale(wave: &mut Wave, inst: &Instruction, ty: Ty) -> Result<(), Fault> {
    let [to, out, a, b, c] = &inst.operands[..] else { return Err(wrong()) };
    let (a, b, c) = (wave.row(a, ty), wave.row(b, ty), wave.row(c, ty));
    let kind = division(ty);
    let wide = |bits| crate::number::widened(bits, ty);
    let is_tiny = |value: f64| value != 0.0 && value.abs() < crate::number::exp2(1 - kind.bias);
    let (mut row, mut mask) = ([0; 64], 0u64);
    for i in 0..wave.lanes {
        let (value, denominator, numerator) = (wide(a[i]), wide(b[i]), wide(c[i]));
        let difference = exponent(c[i], ty) - exponent(b[i], ty);
        // For 32-bit floats, exact in 64 bits. For 64-bit floats, a comparison of exponents like the hardware's.
        let quotient_is_tiny =
            if ty == Ty::F64 { difference <= 1 - kind.bias } else { is_tiny(numerator / denominator) };
        let reciprocal_is_tiny = is_tiny(1.0 / denominator);
        let (power, flag) = if numerator == 0.0 || denominator == 0.0 {
            row[i] = crate::number::narrowed(f64::NAN, ty);
            continue;
        } else if difference >= kind.most {
            (if a[i] == b[i] { kind.power } else { 0 }, true)
        } else if exponent(b[i], ty) == 0 {
            (kind.power, false)
        } else if reciprocal_is_tiny && quotient_is_tiny {
            // The documentation gives a positive exponent, which would overflow such a large denominator.
            (if a[i] == b[i] { -kind.power } else { 0 }, true)
        } else if reciprocal_is_tiny {
            (-kind.power, false)
        } else if quotient_is_tiny {
            (if a[i] == c[i] { kind.power } else { 0 }, true)
        } else if exponent(c[i], ty) <= kind.mantissa {
            (kind.power, false)
        } else {
            (0, false)
        };
        row[i] = crate::number::narrowed(scaled(value, power), ty);
        mask |= u64::from(flag) << i;
    }
    let lanes = wave.exec();
    let Value::Scalar(at) = out.value else { return Err(Fault::launch("a flag to no scalar register")) };
    wave.set_mask(at, mask & lanes);
    wave.write(to, ty, &row, lanes);
    Ok(())
}

/// The last step of a division, which undoes the scaling.
pub fn run_div_fmas(wave: &mut Wave, inst: &Instruction, ty: Ty) -> Result<(), Fault> {
    let [to, a, b, c, ..] = &inst.operands[..] else { return Err(wrong()) };
    let (a, b, c) = (wave.row(a, ty), wave.row(b, ty), wave.row(c, ty));
    let (flags, kind) = (wave.mask(scalar::VCC), division(ty));
    let mut row = [0; 64];
    for i in 0..wave.lanes {
        let power = match flags >> i & 1 {
            0 => 0,
            _ if exponent(c[i], ty) > kind.bias => kind.power,
            _ => -kind.power,
        };
        row[i] = if ty == Ty::F64 {
            let sum = f64::get(a[i]).mul_add(f64::get(b[i]), f64::get(c[i]));
            scaled(sum, power).put()
        } else {
            // The scaled sum is rounded once.
            let [a, b, c] = [a[i], b[i], c[i]].map(|v| f64::from(f32::get(v)));
            (scaled(a.mul_add(b, c), power) as f32).put()
        };
    }
    let row = wave.finished(row, ty, &inst.modifiers);
    wave.write(to, ty, &row, wave.exec());
    Ok(())
}
