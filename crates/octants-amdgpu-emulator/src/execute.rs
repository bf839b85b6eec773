//! Executes one instruction of a wave.

use crate::accessible_memory::AccessibleMemory;
use crate::fault::Fault;
use crate::instruction::{Instruction, Op};
use crate::operand::Value;
use crate::program::Program;
use crate::wave::{State, Wave};
use crate::{run_exchange as exchange, run_lds, run_matrix, run_memory as memory, run_scalar, run_vector as vector};

/// Runs a wave's next instruction.
pub fn step(program: &Program, around: &AccessibleMemory<'_>, shared: &mut [u8], wave: &mut Wave) -> Result<(), Fault> {
    let inst = program.instruction(wave.pc).map_err(Fault::launch)?;
    wave.pc += inst.bytes;
    wave.steps += 1;
    run(around, shared, wave, inst).map_err(|fault| Fault {
        why: format!("{} (`{}` at {:#x})", fault.why, inst.text, wave.pc - inst.bytes - program.object.base()),
        ..fault
    })
}

/// Runs an instruction.
pub fn run(around: &AccessibleMemory<'_>, shared: &mut [u8], wave: &mut Wave, inst: &Instruction) -> Result<(), Fault> {
    match &inst.op {
        Op::Lanes(op, in_place) => {
            let computed = vector::compute_lanes(wave, inst, op, *in_place)?;
            vector::write_result(wave, inst, &computed);
            Ok(())
        }
        Op::Scalar(op) => run_scalar::run_scalar(wave, &inst.operands, op, false),
        Op::ScalarInPlace(op) => run_scalar::run_scalar(wave, &inst.operands, op, true),
        Op::Mask { run, keeps_old } => run_scalar::run_mask(wave, &inst.operands, *run, *keeps_old),
        Op::ScalarFloat(..) | Op::ScalarCompare(_) => run_scalar::run_scalar_float(wave, inst),
        Op::GetRegister(name, from, count) => run_scalar::get_register(wave, inst, name, *from, *count),
        Op::SetRegister(name, from, count) => run_scalar::set_register(wave, inst, name, *from, *count),
        Op::DenormalMode => run_scalar::set_denormals(wave, inst),
        Op::Clock => run_scalar::read_clock(wave, inst),
        Op::ScalarLoad { bits, signed } => memory::run_scalar_load(around, wave, inst, *bits, *signed),
        Op::Packed(op, in_place) => vector::run_packed(wave, inst, op, *in_place),
        Op::Mixed(mixed) => vector::run_mixed(wave, inst, *mixed),
        Op::Compare { comparison, sets_exec } => vector::run_compare(wave, inst, comparison, *sets_exec),
        Op::Carries(carry, comes_in) => vector::run_carries(wave, inst, *carry, *comes_in),
        Op::WideProduct { signed } => vector::run_wide_product(wave, inst, *signed),
        Op::DivScale(ty) => vector::run_div_scale(wave, inst, *ty),
        Op::DivFmas(ty) => vector::run_div_fmas(wave, inst, *ty),
        Op::PackedMove => vector::run_packed_move(wave, inst),
        Op::Dual(both) => vector::run_dual(wave, both),
        Op::ReadFirstLane => exchange::read_first_lane(wave, inst),
        Op::ReadLane => exchange::read_lane(wave, inst),
        Op::WriteLane => exchange::write_lane(wave, inst),
        Op::CountBelow { high } => exchange::count_below(wave, inst, *high),
        Op::Swap => exchange::swap(wave, inst),
        Op::MoveRelative { source, destination } => exchange::move_relative(wave, inst, *source, *destination),
        Op::IndexRegisters(which) => {
            exchange::index_registers(wave, inst, *which);
            Ok(())
        }
        Op::PermuteRow { opposite } => exchange::permute_row(wave, inst, *opposite, false),
        Op::PermuteRowByLane { opposite } => exchange::permute_row(wave, inst, *opposite, true),
        Op::PermuteHalves => exchange::permute_halves(wave, inst),
        Op::Product(product) => run_matrix::run_product(wave, inst, *product),
        Op::Memory(op) => memory::run_memory(around, shared, wave, inst, op),
        Op::Lds(op) => run_lds::run_lds(shared, wave, inst, op),
        _ => run_control(around, wave, inst),
    }
}

fn run_control(around: &AccessibleMemory<'_>, wave: &mut Wave, inst: &Instruction) -> Result<(), Fault> {
    let waits = !around.faults.no_barriers;
    match &inst.op {
        Op::End => wave.state = State::Ended,
        Op::Barrier if waits => wave.state = State::AtBarrier,
        Op::BarrierSignal => wave.signaled = true,
        Op::BarrierWait if waits => {
            if !wave.signaled {
                return Err(Fault::launch("a wait at a barrier to which the wave has not told that it came"));
            }
            wave.state = State::AtBarrier;
        }
        Op::Trap => return Err(Fault::launch("a trap")),
        Op::Branch(when, words) if run_scalar::is_taken(wave, *when) => go(wave, *words),
        Op::GetPc => {
            let pc = wave.pc;
            write_pc(wave, inst, pc)?;
        }
        Op::SetPc => wave.pc = target(wave, inst)?,
        Op::SwapPc => {
            let (to, pc) = (target(wave, inst)?, wave.pc);
            write_pc(wave, inst, pc)?;
            wave.pc = to;
        }
        Op::Call(words) => {
            let pc = wave.pc;
            write_pc(wave, inst, pc)?;
            go(wave, *words);
        }
        _ => {}
    }
    Ok(())
}

fn go(wave: &mut Wave, words: i64) {
    wave.pc = wave.pc.wrapping_add_signed(4 * words);
}

fn write_pc(wave: &mut Wave, inst: &Instruction, pc: u64) -> Result<(), Fault> {
    let to = inst.operands.first().ok_or_else(|| Fault::launch("too few operands"))?;
    wave.write_scalar(to, 64, pc);
    Ok(())
}

fn target(wave: &Wave, inst: &Instruction) -> Result<u64, Fault> {
    match inst.operands.last().map(|o| o.value) {
        Some(Value::Scalar(at)) => Ok(wave.pair(at)),
        _ => Err(Fault::launch("a jump to no register")),
    }
}
