//! Operands, in the syntax of LLVM's disassembler.

use crate::number::Ty;

/// Numbers of registers in the scalar file.
pub mod scalar {
    /// Where a comparison's results go by default.
    pub const VCC: u16 = 106;
    /// Registers that the trap handler and the launch share.
    pub const TTMP: u16 = 108;
    /// A register for indices.
    pub const M0: u16 = 124;
    /// The lanes that execute.
    pub const EXEC: u16 = 126;
    /// Registers of older chips.
    pub const FLAT_SCRATCH: u16 = 128;
    /// The same.
    pub const XNACK_MASK: u16 = 130;
    /// Reads as zero, and keeps nothing.
    pub const NULL: u16 = 132;
    /// How many there are, with a few that a read past the end meets.
    pub const COUNT: usize = 140;
}

/// The first of the accumulation registers among vector registers.
pub const ACCUMULATORS: u16 = 256;

/// Addresses whose upper halves say that they are of shared or of private memory.
pub const SHARED_APERTURE: u64 = 0x0001_0000_0000_0000;
/// The same of private memory.
pub const PRIVATE_APERTURE: u64 = 0x0002_0000_0000_0000;

/// What an operand is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// A vector register.
    Vector(u16),
    /// A scalar register.
    Scalar(u16),
    /// An integer, inline or a literal.
    Int(u64),
    /// A float, inline.
    Float(f64),
    /// A literal in hexadecimal digits.
    Literal(u64),
    /// The carry of scalar operations.
    Scc,
    /// No register.
    Off,
}

/// Which half of a vector register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HalfOf {
    /// The whole register.
    All,
    /// Bits 0 to 15.
    Low,
    /// Bits 16 to 31.
    High,
}

/// An operand with its modifiers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Operand {
    /// What it is.
    pub value: Value,
    /// Registers from the first on.
    pub count: u16,
    /// Its sign is turned.
    pub negate: bool,
    /// Its sign is dropped before that.
    pub absolute: bool,
    /// A part of a register is extended by its sign.
    pub sext: bool,
    /// Which half it is.
    pub half: HalfOf,
}

impl Operand {
    /// An operand without modifiers.
    pub fn plain(value: Value) -> Operand {
        Operand { value, count: 1, negate: false, absolute: false, sext: false, half: HalfOf::All }
    }

    /// The bits of a constant, seen as a type; nothing for a register.
    pub fn constant(&self, ty: Ty) -> Option<u64> {
        Some(match self.value {
            Value::Int(bits) => bits,
            Value::Float(value) => crate::number::narrowed(
                value,
                match ty {
                    Ty::B16 | Ty::F16 => Ty::F16,
                    Ty::B64 | Ty::F64 => Ty::F64,
                    _ => Ty::F32,
                },
            ),
            Value::Literal(bits) if ty == Ty::F64 && bits >> 32 == 0 => bits << 32,
            Value::Literal(bits) => bits,
            Value::Off => 0,
            _ => return None,
        })
    }

    /// Whether it is a vector register.
    pub fn is_vector(&self) -> bool {
        matches!(self.value, Value::Vector(_))
    }

    /// Reads an operand's text.
    pub fn parse(text: &str) -> Option<Operand> {
        if let Some(rest) = text.strip_prefix('-')
            && !rest.starts_with(|c: char| c.is_ascii_digit())
        {
            return Some(Operand { negate: true, ..Operand::parse(rest)? });
        }
        let inside = |open: &str, close: &str| text.strip_prefix(open)?.strip_suffix(close);
        if let Some(rest) = inside("neg(", ")") {
            return Some(Operand { negate: true, ..Operand::parse(rest)? });
        }
        if let Some(rest) = inside("|", "|").or_else(|| inside("abs(", ")")) {
            return Some(Operand { absolute: true, ..Operand::parse(rest)? });
        }
        if let Some(rest) = inside("sext(", ")") {
            return Some(Operand { sext: true, ..Operand::parse(rest)? });
        }
        if let Some(rest) = inside("lit(", ")").or_else(|| inside("lit64(", ")")) {
            return Operand::parse(rest);
        }
        if let Some(rest) = text.strip_suffix(".l") {
            return Some(Operand { half: HalfOf::Low, ..Operand::parse(rest)? });
        }
        if let Some(rest) = text.strip_suffix(".h") {
            return Some(Operand { half: HalfOf::High, ..Operand::parse(rest)? });
        }
        register(text).or_else(|| constant(text).map(Operand::plain))
    }
}

fn register(text: &str) -> Option<Operand> {
    let named = |value, count| Some(Operand { count, ..Operand::plain(value) });
    let number = match text {
        "vcc" => return named(Value::Scalar(scalar::VCC), 2),
        "exec" => return named(Value::Scalar(scalar::EXEC), 2),
        "flat_scratch" => return named(Value::Scalar(scalar::FLAT_SCRATCH), 2),
        "xnack_mask" => return named(Value::Scalar(scalar::XNACK_MASK), 2),
        "vcc_lo" => scalar::VCC,
        "vcc_hi" => scalar::VCC + 1,
        "exec_lo" => scalar::EXEC,
        "exec_hi" => scalar::EXEC + 1,
        "flat_scratch_lo" => scalar::FLAT_SCRATCH,
        "flat_scratch_hi" => scalar::FLAT_SCRATCH + 1,
        "m0" => scalar::M0,
        "null" => scalar::NULL,
        "scc" | "src_scc" => return named(Value::Scc, 1),
        "off" => return named(Value::Off, 1),
        _ => {
            let (first, make): (&str, fn(u16) -> Value) = if let Some(rest) = text.strip_prefix("ttmp") {
                (rest, |n| Value::Scalar(scalar::TTMP + n))
            } else if let Some(rest) = text.strip_prefix('v') {
                (rest, Value::Vector)
            } else if let Some(rest) = text.strip_prefix('a') {
                (rest, |n| Value::Vector(ACCUMULATORS + n))
            } else {
                (text.strip_prefix('s')?, Value::Scalar)
            };
            let Some(range) = first.strip_prefix('[') else { return named(make(first.parse().ok()?), 1) };
            let (from, to) = range.strip_suffix(']')?.split_once(':').unwrap_or((range.strip_suffix(']')?, ""));
            let from: u16 = from.parse().ok()?;
            let to: u16 = if to.is_empty() { from } else { to.parse().ok()? };
            return named(make(from), to.checked_sub(from)? + 1);
        }
    };
    named(Value::Scalar(number), 1)
}

fn constant(text: &str) -> Option<Value> {
    Some(match text {
        "src_shared_base" => Value::Int(SHARED_APERTURE),
        "src_shared_limit" => Value::Int(SHARED_APERTURE | 0xffff_ffff),
        "src_private_base" => Value::Int(PRIVATE_APERTURE),
        "src_private_limit" => Value::Int(PRIVATE_APERTURE | 0xffff_ffff),
        _ => {
            if let Some(digits) = text.strip_prefix("0x") {
                Value::Literal(u64::from_str_radix(digits, 16).ok()?)
            } else if let Some(digits) = text.strip_prefix("-0x") {
                Value::Int((i64::from_str_radix(digits, 16).ok()?).wrapping_neg() as u64)
            } else if text.contains('.') {
                // The inline reciprocal of two pi is printed rounded.
                let value: f64 = text.parse().ok()?;
                Value::Float(if text.starts_with("0.159") { std::f64::consts::FRAC_1_PI / 2.0 } else { value })
            } else {
                Value::Int(text.parse::<i64>().ok()? as u64)
            }
        }
    })
}
