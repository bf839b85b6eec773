//! Memory instructions, by name.

/// The address space of a memory instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// The device's memory.
    Global,
    /// Any memory, as the address says.
    Flat,
    /// A thread's own.
    Scratch,
    /// By a descriptor of a buffer.
    Buffer,
}

/// Which bits of a register 16 bits or fewer go to or come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The whole register.
    Whole,
    /// The lower half; the upper stays.
    Low,
    /// The upper half; the lower stays.
    High,
}

/// The new value of an atomic update, of the old one and an operand.
pub type Update = fn(u64, u64) -> u64;

/// The operation on memory.
#[allow(missing_docs)] // The variants tell of their fields.
#[derive(Debug, Clone, Copy)]
pub enum Action {
    /// Loads bits.
    Load { bits: u32, signed: bool, place: Place },
    /// Stores bits.
    Store { bits: u32, place: Place },
    /// Updates.
    Atomic { bits: u32, update: Update },
    /// Stores if the old value equals the expected one.
    CompareSwap { bits: u32 },
}

/// An instruction of memory.
#[derive(Debug, Clone, Copy)]
pub struct MemoryOp {
    /// Where.
    pub space: Space,
    /// What.
    pub action: Action,
}

/// An instruction of shared memory.
#[allow(missing_docs)] // The variants tell of their fields.
#[derive(Debug, Clone, Copy)]
pub enum LdsOp {
    /// One access. `returns`: an update returns the old value. `expected_first`: the expected value of a swap precedes
    /// the new one.
    One { action: Action, returns: bool, expected_first: bool },
    /// Two accesses of `bits` each, with offsets in units of `unit` bytes.
    Two { bits: u32, unit: u64, stores: bool },
    /// Each lane gets the value of the lane that it names.
    BackwardPermute,
    /// Each lane gives to the lane that it names.
    Permute,
    /// A permutation that the offset holds.
    Swizzle,
}

/// The instruction of memory with a name.
pub fn memory_op(name: &str) -> Option<MemoryOp> {
    let (space, rest) =
        [("global_", Space::Global), ("flat_", Space::Flat), ("scratch_", Space::Scratch), ("buffer_", Space::Buffer)]
            .iter()
            .find_map(|(prefix, space)| Some((*space, name.strip_prefix(prefix)?)))?;
    Some(MemoryOp { space, action: action(rest)? })
}

fn action(name: &str) -> Option<Action> {
    if let Some(kind) = name.strip_prefix("load_") {
        return load(kind);
    }
    if let Some(kind) = name.strip_prefix("store_") {
        return store(kind);
    }
    atomic(name.strip_prefix("atomic_")?)
}

fn load(kind: &str) -> Option<Action> {
    use Place::*;
    let (bits, signed, place) = match kind {
        "ubyte" | "u8" => (8, false, Whole),
        "sbyte" | "i8" => (8, true, Whole),
        "ushort" | "u16" => (16, false, Whole),
        "sshort" | "i16" => (16, true, Whole),
        "dword" | "b32" => (32, false, Whole),
        "dwordx2" | "b64" => (64, false, Whole),
        "dwordx3" | "b96" => (96, false, Whole),
        "dwordx4" | "b128" => (128, false, Whole),
        "short_d16" | "d16_b16" | "u16_d16" => (16, false, Low),
        "short_d16_hi" | "d16_hi_b16" | "u16_d16_hi" => (16, false, High),
        "ubyte_d16" | "d16_u8" | "u8_d16" => (8, false, Low),
        "ubyte_d16_hi" | "d16_hi_u8" | "u8_d16_hi" => (8, false, High),
        "sbyte_d16" | "d16_i8" | "i8_d16" => (8, true, Low),
        "sbyte_d16_hi" | "d16_hi_i8" | "i8_d16_hi" => (8, true, High),
        _ => return None,
    };
    Some(Action::Load { bits, signed, place })
}

fn store(kind: &str) -> Option<Action> {
    use Place::*;
    let (bits, place) = match kind {
        "byte" | "b8" => (8, Whole),
        "short" | "b16" => (16, Whole),
        "dword" | "b32" => (32, Whole),
        "dwordx2" | "b64" => (64, Whole),
        "dwordx3" | "b96" => (96, Whole),
        "dwordx4" | "b128" => (128, Whole),
        "short_d16_hi" | "d16_hi_b16" | "b16_d16_hi" => (16, High),
        "byte_d16_hi" | "d16_hi_b8" | "b8_d16_hi" => (8, High),
        _ => return None,
    };
    Some(Action::Store { bits, place })
}

/// Atomic updates by name, with the number of bits if the name has no other suffix.
fn atomic(name: &str) -> Option<Action> {
    let (name, bits) = match name.strip_suffix("_x2") {
        Some(name) => (name, 64),
        None => match name.rsplit_once('_') {
            Some((_, "u64" | "i64" | "b64" | "f64")) => (name, 64),
            _ => (name, 32),
        },
    };
    if matches!(name, "cmpswap" | "cmpswap_b32" | "cmpswap_b64" | "cmpst" | "cmpst_b32" | "cmpst_b64") {
        return Some(Action::CompareSwap { bits });
    }
    if matches!(name, "cmpstore_b32" | "cmpstore_b64") {
        return Some(Action::CompareSwap { bits });
    }
    let update = match bits {
        64 => update_64(name).or_else(|| update_any(name))?,
        _ => update_32(name).or_else(|| update_any(name))?,
    };
    Some(Action::Atomic { bits, update })
}

/// Updates that are the same for all widths.
fn update_any(name: &str) -> Option<Update> {
    Some(match name {
        "add" | "add_u32" | "add_u64" => |old, by| old.wrapping_add(by),
        "sub" | "sub_u32" | "sub_u64" => |old, by| old.wrapping_sub(by),
        "rsub_u32" | "rsub_u64" => |old, by| by.wrapping_sub(old),
        "umin" | "min_u32" | "min_u64" => |old, by| old.min(by),
        "umax" | "max_u32" | "max_u64" => |old, by| old.max(by),
        "and" | "and_b32" | "and_b64" => |old, by| old & by,
        "or" | "or_b32" | "or_b64" => |old, by| old | by,
        "xor" | "xor_b32" | "xor_b64" => |old, by| old ^ by,
        "swap" | "swap_b32" | "swap_b64" | "wrxchg_b32" | "wrxchg_b64" | "storexchg_b32" | "storexchg_b64" => {
            |_, by| by
        }
        "inc" | "inc_u32" | "inc_u64" => |old, by| if old >= by { 0 } else { old + 1 },
        "dec" | "dec_u32" | "dec_u64" => |old, by| if old == 0 || old > by { by } else { old - 1 },
        _ => return None,
    })
}

fn update_32(name: &str) -> Option<Update> {
    fn floats(old: u64, by: u64, f: impl Fn(f32, f32) -> f32) -> u64 {
        f(f32::from_bits(old as u32), f32::from_bits(by as u32)).to_bits().into()
    }
    fn halves(old: u64, by: u64, f: impl Fn(u64, u64) -> u16) -> u64 {
        u64::from(f(old >> 16, by >> 16)) << 16 | u64::from(f(old, by))
    }
    Some(match name {
        "smin" | "min_i32" => |old, by| (old as i32).min(by as i32) as u32 as u64,
        "smax" | "max_i32" => |old, by| (old as i32).max(by as i32) as u32 as u64,
        "add_f32" => |old, by| floats(old, by, |a, b| a + b),
        "fmin" | "min_f32" | "min_num_f32" => |old, by| floats(old, by, f32::min),
        "fmax" | "max_f32" | "max_num_f32" => |old, by| floats(old, by, f32::max),
        "pk_add_f16" => |old, by| {
            let value = |bits: u64| half::f16::from_bits(bits as u16).to_f64();
            halves(old, by, |a, b| crate::number::half_bits(value(a) + value(b)))
        },
        "pk_add_bf16" => |old, by| {
            let value = |bits| f64::from(crate::number::bf16(bits));
            halves(old, by, |a, b| crate::number::bf16_bits(value(a) + value(b)))
        },
        _ => return None,
    })
}

fn update_64(name: &str) -> Option<Update> {
    fn floats(old: u64, by: u64, f: impl Fn(f64, f64) -> f64) -> u64 {
        f(f64::from_bits(old), f64::from_bits(by)).to_bits()
    }
    Some(match name {
        "smin" | "min_i64" => |old, by| (old as i64).min(by as i64) as u64,
        "smax" | "max_i64" => |old, by| (old as i64).max(by as i64) as u64,
        "add_f64" => |old, by| floats(old, by, |a, b| a + b),
        "fmin" | "min_f64" => |old, by| floats(old, by, f64::min),
        "fmax" | "max_f64" => |old, by| floats(old, by, f64::max),
        _ => return None,
    })
}

/// The instruction of shared memory with a name.
pub fn lds_op(name: &str) -> Option<LdsOp> {
    let name = name.strip_prefix("ds_")?;
    match name {
        "bpermute_b32" => return Some(LdsOp::BackwardPermute),
        "permute_b32" => return Some(LdsOp::Permute),
        "swizzle_b32" => return Some(LdsOp::Swizzle),
        _ => {}
    }
    if let Some(rest) = name.strip_prefix("read2").or_else(|| name.strip_prefix("load_2addr")) {
        return two(rest, false);
    }
    if let Some(rest) = name.strip_prefix("write2").or_else(|| name.strip_prefix("store_2addr")) {
        return two(rest, true);
    }
    let plain = |action| LdsOp::One { action, returns: false, expected_first: false };
    if let Some(kind) = name.strip_prefix("read_").or_else(|| name.strip_prefix("load_")) {
        return load(kind).map(plain);
    }
    if let Some(kind) = name.strip_prefix("write_").or_else(|| name.strip_prefix("store_")) {
        return store(kind).map(plain);
    }
    let returns = name.contains("_rtn");
    let expected_first = name.starts_with("cmpst_");
    let name = name.replacen("_rtn", "", 1);
    Some(LdsOp::One { action: atomic(&name)?, returns, expected_first })
}

fn two(rest: &str, stores: bool) -> Option<LdsOp> {
    let (rest, strides) = match rest.strip_prefix("st64").or_else(|| rest.strip_prefix("_stride64")) {
        Some(rest) => (rest, 64),
        None => (rest, 1),
    };
    let bits = match rest {
        "_b32" => 32,
        "_b64" => 64,
        _ => return None,
    };
    Some(LdsOp::Two { bits, unit: strides * u64::from(bits) / 8, stores })
}
