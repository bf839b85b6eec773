//! Operands, in the syntax of LLVM's disassembler.

use crate::number::Ty;

/// Numbers of registers in the scalar file.
pub mod scalar {
    /// VCC: the default destination of comparisons.
    pub const VCC: u16 = 106;
    /// Trap-handler registers, also used by the launch.
    pub const TTMP: u16 = 108;
    /// M0.
    pub const M0: u16 = 124;
    /// EXEC: the active lanes.
    pub const EXEC: u16 = 126;
    /// A special register of older chips.
    pub const FLAT_SCRATCH: u16 = 128;
    /// The same.
    pub const XNACK_MASK: u16 = 130;
    /// The null register: reads as zero, discards writes.
    pub const NULL: u16 = 132;
    /// Number of scalar registers, with padding for reads past the end.
    pub const COUNT: usize = 140;
}

/// Number of the first accumulation register among the vector registers.
pub const ACCUMULATORS: u16 = 256;

/// The aperture of shared memory: the upper half of its flat addresses.
pub const SHARED_APERTURE: u64 = 0x0001_0000_0000_0000;
/// The aperture of private memory.
pub const PRIVATE_APERTURE: u64 = 0x0002_0000_0000_0000;

/// The kind of an operand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// A vector register.
    Vector(u16),
    /// A scalar register.
    Scalar(u16),
    /// An integer: an inline constant or a literal.
    Int(u64),
    /// An inline float constant.
    Float(f64),
    /// A hexadecimal literal.
    Literal(u64),
    /// SCC.
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
    /// The kind.
    pub value: Value,
    /// Number of consecutive registers.
    pub count: u16,
    /// The value is negated.
    pub negate: bool,
    /// The absolute value is taken first.
    pub absolute: bool,
    /// A part of a register is sign-extended.
    pub sext: bool,
    /// The half of the register.
    pub half: HalfOf,
}

impl Operand {
    /// An operand without modifiers.
    pub fn plain(value: Value) -> Operand {
        Operand { value, count: 1, negate: false, absolute: false, sext: false, half: HalfOf::All }
    }

    /// The bits of a constant of a type; `None` for a register.
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

    /// Parses an operand.
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
