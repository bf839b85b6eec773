//! Instructions by which lanes exchange values.

use crate::fault::Fault;
use crate::instruction::Instruction;
use crate::lanewise::Row;
use crate::modifiers::{Dpp, Source};
use crate::number::Ty;
use crate::operand::{Operand, Value, scalar};
use crate::wave::Wave;

fn wrong() -> Fault {
    Fault::launch("too few operands")
}

/// The lane that a lane reads from; `None` past the end of its row or wave.
fn partner(source: Source, lane: usize, lanes: usize) -> Option<usize> {
    let (row, at) = (lane & !15, lane & 15);
    let in_row = |n: i32| (0..16).contains(&n).then(|| row + n as usize);
    match source {
        Source::Quad(from) => Some(lane & !3 | usize::from(from[lane & 3])),
        Source::Octet(from) => Some(lane & !7 | usize::from(from[lane & 7])),
        Source::RowLeft(n) => in_row(at as i32 + i32::from(n)),
        Source::RowRight(n) => in_row(at as i32 - i32::from(n)),
        Source::RowRotate(n) => Some(row + (at + 16 - usize::from(n)) % 16),
        Source::RowMirror => Some(row + 15 - at),
        Source::RowHalfMirror => Some(lane & !7 | (7 - (lane & 7))),
        Source::RowShare(n) => Some(row + usize::from(n)),
        Source::RowXor(n) => Some(row + (at ^ usize::from(n))),
        Source::RowBroadcast(15) => row.checked_sub(1),
        Source::RowBroadcast(_) => (lane & !31).checked_sub(1),
        Source::WaveLeft(around) => {
            if lane + 1 < lanes {
                Some(lane + 1)
            } else {
                around.then_some(0)
            }
        }
        Source::WaveRight(around) => lane.checked_sub(1).or(around.then_some(lanes - 1)),
    }
}

/// The lane to read, if it is valid.
fn readable(wave: &Wave, dpp: &Dpp, lane: usize) -> Option<usize> {
    let from = partner(dpp.source, lane, wave.lanes)?;
    (dpp.reads_inactive || wave.exec() >> from & 1 != 0).then_some(from)
}

/// The values that lanes read.
pub fn exchanged(wave: &Wave, dpp: &Dpp, row: &Row) -> Row {
    let mut out = [0; 64];
    for lane in 0..wave.lanes {
        out[lane] = readable(wave, dpp, lane).map_or(0, |from| row[from]);
    }
    out
}

/// The lanes that are written.
pub fn written(wave: &Wave, dpp: &Dpp) -> u64 {
    let exec = wave.exec();
    (0..wave.lanes).fold(0, |mask, lane| {
        let (row, bank) = (lane / 16, lane / 4 % 4);
        let takes_part = dpp.rows >> row & 1 != 0 && dpp.banks >> bank & 1 != 0;
        let is_written = takes_part && (dpp.zero || readable(wave, dpp, lane).is_some());
        mask | if is_written { exec & 1 << lane } else { 0 }
    })
}

/// The first active lane.
pub fn read_first_lane(wave: &mut Wave, inst: &Instruction) -> Result<(), Fault> {
    let [to, from] = &inst.operands[..] else { return Err(wrong()) };
    let lane = wave.exec().trailing_zeros() as usize % 64;
    let value = wave.row(from, Ty::B32)[lane];
    wave.write_scalar(to, 32, value);
    Ok(())
}

/// Reads a lane by number.
pub fn read_lane(wave: &mut Wave, inst: &Instruction) -> Result<(), Fault> {
    let [to, from, lane] = &inst.operands[..] else { return Err(wrong()) };
    let lane = wave.scalar(lane, 32) as usize % wave.lanes;
    let value = wave.row(from, Ty::B32)[lane];
    wave.write_scalar(to, 32, value);
    Ok(())
}

/// Writes a lane by number, even if it is inactive.
pub fn write_lane(wave: &mut Wave, inst: &Instruction) -> Result<(), Fault> {
    let [to, value, lane] = &inst.operands[..] else { return Err(wrong()) };
    let Value::Vector(at) = to.value else { return Err(Fault::launch("no vector register")) };
    let lane = wave.scalar(lane, 32) as usize % wave.lanes;
    wave.vectors[at as usize][lane] = wave.scalar(value, 32) as u32;
    Ok(())
}

/// Adds the number of mask bits below each lane.
pub fn count_below(wave: &mut Wave, inst: &Instruction, high: bool) -> Result<(), Fault> {
    let [to, mask, number] = &inst.operands[..] else { return Err(wrong()) };
    let (mask, number) = (wave.row(mask, Ty::B32), wave.row(number, Ty::B32));
    let mut row = [0; 64];
    for lane in 0..wave.lanes {
        let below = if high { lane.saturating_sub(32) } else { lane.min(32) };
        row[lane] = number[lane] + u64::from((mask[lane] & ((1 << below) - 1)).count_ones());
    }
    wave.write(to, Ty::B32, &row, wave.exec());
    Ok(())
}

/// Exchanges two registers.
pub fn swap(wave: &mut Wave, inst: &Instruction) -> Result<(), Fault> {
    let [a, b] = &inst.operands[..] else { return Err(wrong()) };
    let (first, second, exec) = (wave.row(a, Ty::B32), wave.row(b, Ty::B32), wave.exec());
    wave.write(a, Ty::B32, &second, exec);
    wave.write(b, Ty::B32, &first, exec);
    Ok(())
}

/// Moves to or from a register indexed by M0.
pub fn move_relative(wave: &mut Wave, inst: &Instruction, source: bool, destination: bool) -> Result<(), Fault> {
    let [to, from] = &inst.operands[..] else { return Err(wrong()) };
    let row = wave.row(&wave.relative(from, source)?, Ty::B32);
    wave.write(&wave.relative(to, destination)?, Ty::B32, &row, wave.exec());
    Ok(())
}

/// Selects the indexed operands, and sets the index if one is given.
pub fn index_registers(wave: &mut Wave, inst: &Instruction, which: u8) {
    if let Some(index) = inst.operands.first() {
        wave.scalars[scalar::M0 as usize] = wave.scalar(index, 32) as u32 & 0xff;
    }
    wave.indexed = which;
}

/// Permutes lanes of a row, or of the other row of its pair. The selectors are 4-bit fields or a register.
pub fn permute_row(wave: &mut Wave, inst: &Instruction, opposite: bool, by_lane: bool) -> Result<(), Fault> {
    let [to, from, rest @ ..] = &inst.operands[..] else { return Err(wrong()) };
    let (values, exec) = (wave.row(from, Ty::B32), wave.exec());
    let choices: Row = match rest {
        [low, high] if !by_lane => {
            let all = wave.scalar(high, 32) << 32 | wave.scalar(low, 32);
            std::array::from_fn(|lane| all >> (4 * (lane & 15)) & 15)
        }
        [choices] if by_lane => wave.row(choices, Ty::B32),
        _ => return Err(wrong()),
    };
    let (reads_inactive, zero) = (inst.modifiers.op_sel & 1 != 0, inst.modifiers.op_sel & 2 != 0);
    let (mut row, mut lanes) = ([0; 64], 0);
    for lane in 0..wave.lanes {
        let base = lane & !15 ^ if opposite { 16 } else { 0 };
        let source = base | choices[lane] as usize & 15;
        let is_there = reads_inactive || exec >> source & 1 != 0;
        row[lane] = if is_there { values[source] } else { 0 };
        lanes |= if is_there || zero { exec & 1 << lane } else { 0 };
    }
    wave.write(to, Ty::B32, &row, lanes);
    Ok(())
}

/// Exchanges the halves of a wave of 64.
pub fn permute_halves(wave: &mut Wave, inst: &Instruction) -> Result<(), Fault> {
    let [to, from]: &[Operand; 2] = inst.operands[..].try_into().map_err(|_| wrong())?;
    let values = wave.row(from, Ty::B32);
    let row = if wave.lanes == 64 { std::array::from_fn(|lane| values[lane ^ 32]) } else { values };
    wave.write(to, Ty::B32, &row, wave.exec());
    Ok(())
}
