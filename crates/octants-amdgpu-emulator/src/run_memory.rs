//! Instructions of global, private and scalar memory.

use crate::accessible_memory::{AccessibleMemory, read_own, write_own};
use crate::fault::Fault;
use crate::instruction::Instruction;
use crate::memory_names::{Action, MemoryOp, Place, Space};
use crate::number::Ty;
use crate::operand::{Operand, PRIVATE_APERTURE, SHARED_APERTURE, Value};
use crate::wave::Wave;

/// The base address of the private-memory buffer descriptor. Kernels add the wave's offset to it.
pub const PRIVATE_BUFFER: u64 = 0x5c4a_0000_0000;

/// The location of a lane's access.
#[derive(Debug, Clone, Copy)]
enum At {
    Global(u64),
    Shared(u64),
    Private(u64),
}

/// The memory that a lane can access: device, shared and private memory.
struct LaneMemory<'a, 'b> {
    around: &'a AccessibleMemory<'b>,
    shared: &'a mut [u8],
}

impl LaneMemory<'_, '_> {
    fn private(wave: &Wave, lane: usize) -> std::ops::Range<usize> {
        let each = wave.private.len() / wave.lanes;
        lane * each..(lane + 1) * each
    }

    fn load(&self, wave: &Wave, lane: usize, at: At, bits: u32) -> Result<u64, Fault> {
        match at {
            At::Global(at) => self.around.load(at, bits),
            At::Shared(at) => read_own(self.shared, "shared", at, bits),
            At::Private(at) => read_own(&wave.private[Self::private(wave, lane)], "private", at, bits),
        }
    }

    fn store(&mut self, wave: &mut Wave, lane: usize, at: At, bits: u32, value: u64) -> Result<(), Fault> {
        match at {
            At::Global(at) => self.around.store(at, bits, value),
            At::Shared(at) => write_own(self.shared, "shared", at, bits, value),
            At::Private(at) => {
                let own = Self::private(wave, lane);
                write_own(&mut wave.private[own], "private", at, bits, value)
            }
        }
    }

    fn update(
        &mut self,
        wave: &mut Wave,
        lane: usize,
        at: At,
        bits: u32,
        change: &dyn Fn(u64) -> u64,
    ) -> Result<u64, Fault> {
        if let At::Global(at) = at {
            return self.around.update(at, bits, change);
        }
        let old = self.load(wave, lane, at, bits)?;
        self.store(wave, lane, at, bits, change(old))?;
        Ok(old)
    }
}

fn step(at: At, bytes: u64) -> At {
    match at {
        At::Global(at) => At::Global(at.wrapping_add(bytes)),
        At::Shared(at) => At::Shared(at.wrapping_add(bytes)),
        At::Private(at) => At::Private(at.wrapping_add(bytes)),
    }
}

/// Computes each lane's location from the operands after the data.
fn addresses(
    wave: &Wave,
    inst: &Instruction,
    space: Space,
    address: &Operand,
    base: &[Operand],
) -> Result<[At; 64], Fault> {
    let offset = inst.modifiers.offset as u64;
    let scalar = base.first().map_or(Value::Off, |b| b.value);
    let narrow = |operand: &Operand| wave.row(operand, Ty::B32);
    let is_off = |operand: &Operand| operand.value == Value::Off;
    let mut out = [At::Global(0); 64];
    match space {
        Space::Global | Space::Flat => {
            let (row, from) = match base.first() {
                Some(b) if scalar != Value::Off => (narrow(address), wave.scalar(b, 64)),
                _ => (wave.row(address, Ty::B64), 0),
            };
            for i in 0..wave.lanes {
                let at = row[i].wrapping_add(from).wrapping_add(offset);
                out[i] = match at >> 32 {
                    high if space == Space::Flat && high == SHARED_APERTURE >> 32 => At::Shared(at & 0xffff_ffff),
                    high if space == Space::Flat && high == PRIVATE_APERTURE >> 32 => At::Private(at & 0xffff_ffff),
                    _ => At::Global(at),
                };
            }
        }
        Space::Scratch => {
            let row = if is_off(address) { [0; 64] } else { narrow(address) };
            let from = base.first().filter(|b| !is_off(b)).map_or(0, |b| wave.scalar(b, 32));
            (0..wave.lanes).for_each(|i| {
                out[i] = At::Private(row[i].wrapping_add(from).wrapping_add(offset) & 0xffff_ffff);
            });
        }
        Space::Buffer => {
            let [descriptor, from] = base else { return Err(Fault::launch("a buffer without a descriptor")) };
            let Value::Scalar(at) = descriptor.value else {
                return Err(Fault::launch("a buffer without a descriptor"));
            };
            let place = wave.pair(at) & 0xffff_ffff_ffff;
            if place != PRIVATE_BUFFER + wave_offset(wave) {
                return Err(Fault::launch(format!("a buffer at {place:#x}, which is not the wave's private memory")));
            }
            let row = if inst.modifiers.offen { narrow(address) } else { [0; 64] };
            // Scalar offsets are in bytes of the whole wave.
            let from = wave.scalar(from, 32) / wave.lanes as u64;
            (0..wave.lanes).for_each(|i| out[i] = At::Private((row[i] + from).wrapping_add(offset) & 0xffff_ffff));
        }
    }
    Ok(out)
}

/// The initial value of the register with the offset of the wave's private memory.
pub fn wave_offset(wave: &Wave) -> u64 {
    wave.private.len() as u64 * (u64::from(wave.number) + 1)
}

/// Executes a memory instruction.
pub fn run_memory(
    around: &AccessibleMemory<'_>,
    shared: &mut [u8],
    wave: &mut Wave,
    inst: &Instruction,
    op: &MemoryOp,
) -> Result<(), Fault> {
    let operands = &inst.operands[..];
    let data_first = op.space == Space::Buffer;
    let wrong = || Fault::launch("too few operands");
    let reach = &mut LaneMemory { around, shared };
    match op.action {
        Action::Load { bits, signed, place } => {
            let [to, address, base @ ..] = operands else { return Err(wrong()) };
            let at = addresses(wave, inst, op.space, address, base)?;
            load_lanes(reach, wave, to, &at, bits, signed, place)
        }
        Action::Store { bits, place } => {
            let [first, second, base @ ..] = operands else { return Err(wrong()) };
            let (address, data) = if data_first { (second, first) } else { (first, second) };
            let at = addresses(wave, inst, op.space, address, base)?;
            store_lanes(reach, wave, data, &at, bits, place)
        }
        Action::Atomic { bits, update } => {
            let (to, at, data) = atomic_operands(wave, inst, op.space)?;
            let ty = if bits == 64 { Ty::B64 } else { Ty::B32 };
            let by = wave.row(&data, ty);
            update_lanes(reach, wave, to, &at, bits, &|lane, old| update(old, by[lane]))
        }
        Action::CompareSwap { bits } => {
            let (to, at, data) = atomic_operands(wave, inst, op.space)?;
            let ty = if bits == 64 { Ty::B64 } else { Ty::B32 };
            let new = wave.row(&data, ty);
            let expected = wave.row(&registers_after(&data, bits / 32), ty);
            update_lanes(reach, wave, to, &at, bits, &|lane, old| if old == expected[lane] { new[lane] } else { old })
        }
    }
}

/// The operand that is `count` registers after another.
pub fn registers_after(operand: &Operand, count: u32) -> Operand {
    let value = match operand.value {
        Value::Vector(at) => Value::Vector(at + count as u16),
        other => other,
    };
    Operand { value, ..*operand }
}

fn atomic_operands(
    wave: &Wave,
    inst: &Instruction,
    space: Space,
) -> Result<(Option<Operand>, [At; 64], Operand), Fault> {
    let (to, rest) = match (&inst.operands[..], inst.modifiers.returns) {
        ([to, rest @ ..], true) => (Some(*to), rest),
        (rest, _) => (None, rest),
    };
    let [address, data, base @ ..] = rest else { return Err(Fault::launch("too few operands")) };
    Ok((to, addresses(wave, inst, space, address, base)?, *data))
}

fn active(wave: &Wave) -> impl Iterator<Item = usize> + use<> {
    let exec = wave.exec();
    (0..wave.lanes).filter(move |lane| exec >> lane & 1 != 0)
}

fn load_lanes(
    reach: &LaneMemory<'_, '_>,
    wave: &mut Wave,
    to: &Operand,
    at: &[At; 64],
    bits: u32,
    signed: bool,
    place: Place,
) -> Result<(), Fault> {
    let Value::Vector(first) = to.value else { return Err(Fault::launch("a load to no vector register")) };
    let place = if to.half == crate::operand::HalfOf::High { Place::High } else { place };
    let mut loaded = [[0u32; 4]; 64];
    for lane in active(wave) {
        for word in 0..bits.div_ceil(32) {
            let value = reach.load(wave, lane, step(at[lane], 4 * u64::from(word)), bits.min(32))?;
            loaded[lane][word as usize] = extended(value, bits, signed);
        }
    }
    for lane in active(wave) {
        for word in 0..bits.div_ceil(32) as usize {
            let register = &mut wave.vectors[first as usize + word][lane];
            *register = placed(*register, loaded[lane][word], place);
        }
    }
    Ok(())
}

/// Writes a loaded value to its register.
pub fn placed(old: u32, value: u32, place: Place) -> u32 {
    match place {
        Place::Whole => value,
        Place::Low => old & 0xffff_0000 | value & 0xffff,
        Place::High => old & 0xffff | value << 16,
    }
}

/// A loaded value of the given width in bits, extended to 32.
pub fn extended(value: u64, bits: u32, signed: bool) -> u32 {
    match (bits, signed) {
        (8, true) => value as i8 as u32,
        (16, true) => value as i16 as u32,
        _ => value as u32,
    }
}

fn store_lanes(
    reach: &mut LaneMemory<'_, '_>,
    wave: &mut Wave,
    data: &Operand,
    at: &[At; 64],
    bits: u32,
    place: Place,
) -> Result<(), Fault> {
    let Value::Vector(first) = data.value else { return Err(Fault::launch("a store of no vector register")) };
    let upper = place == Place::High || data.half == crate::operand::HalfOf::High;
    for lane in active(wave) {
        for word in 0..bits.div_ceil(32) {
            let value = u64::from(wave.vectors[first as usize + word as usize][lane]);
            let value = if upper { value >> 16 } else { value };
            reach.store(wave, lane, step(at[lane], 4 * u64::from(word)), bits.min(32), value)?;
        }
    }
    Ok(())
}

fn update_lanes(
    reach: &mut LaneMemory<'_, '_>,
    wave: &mut Wave,
    to: Option<Operand>,
    at: &[At; 64],
    bits: u32,
    change: &dyn Fn(usize, u64) -> u64,
) -> Result<(), Fault> {
    let mut old = [0; 64];
    for lane in active(wave) {
        old[lane] = reach.update(wave, lane, at[lane], bits, &|before| change(lane, before))?;
    }
    if let Some(to) = to {
        let ty = if bits == 64 { Ty::B64 } else { Ty::B32 };
        wave.write(&to, ty, &old, wave.exec());
    }
    Ok(())
}

/// Executes a scalar load.
pub fn run_scalar_load(
    around: &AccessibleMemory<'_>,
    wave: &mut Wave,
    inst: &Instruction,
    bits: u32,
    signed: bool,
) -> Result<(), Fault> {
    let [to, base, offsets @ ..] = &inst.operands[..] else { return Err(Fault::launch("too few operands")) };
    let mut at = wave.scalar(base, 64).wrapping_add(inst.modifiers.offset as u64);
    for offset in offsets {
        at = at.wrapping_add(match offset.value {
            Value::Scalar(_) => wave.scalar(offset, 32),
            _ => offset.constant(Ty::B64).unwrap_or(0),
        });
    }
    let Value::Scalar(first) = to.value else { return Err(Fault::launch("a load to no scalar register")) };
    if bits >= 32 {
        at &= !3;
    }
    for word in 0..bits.div_ceil(32) {
        let value = around.load(at + 4 * u64::from(word), bits.min(32))?;
        wave.set_scalar(first + word as u16, extended(value, bits, signed));
    }
    Ok(())
}
