//! [`Modifiers`]: instruction modifiers, which follow the operands.

/// The lane that a lane reads its first source from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// One of the four lanes of its quad.
    Quad([u8; 4]),
    /// One of the eight lanes of its octet.
    Octet([u8; 8]),
    /// A lane further up in its row of 16; invalid past the end.
    RowLeft(u8),
    /// A lane further down in its row.
    RowRight(u8),
    /// Rotated within the row.
    RowRotate(u8),
    /// The row reversed.
    RowMirror,
    /// Each half of the row reversed.
    RowHalfMirror,
    /// One lane for the whole row.
    RowShare(u8),
    /// The lane number XOR a mask.
    RowXor(u8),
    /// The last lane of the previous row, for every row or for every second one.
    RowBroadcast(u8),
    /// One lane up in the wave, perhaps rotated.
    WaveLeft(bool),
    /// One lane down in the wave, perhaps rotated.
    WaveRight(bool),
}

/// A data-parallel exchange (DPP) before an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dpp {
    /// The source lane.
    pub source: Source,
    /// Rows that take part.
    pub rows: u8,
    /// Banks of four lanes in each row that take part.
    pub banks: u8,
    /// An invalid source lane reads as zero; otherwise the destination lane is unchanged.
    pub zero: bool,
    /// Inactive lanes can be read.
    pub reads_inactive: bool,
}

/// A part of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// A byte.
    Byte(u8),
    /// Half of it.
    Word(u8),
    /// All of it.
    Whole,
}

impl Part {
    /// Its first bit and its width.
    pub fn bits(self) -> (u32, u32) {
        match self {
            Part::Byte(n) => (8 * u32::from(n), 8),
            Part::Word(n) => (16 * u32::from(n), 16),
            Part::Whole => (0, 32),
        }
    }
}

/// Parts of registers that an operation reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sdwa {
    /// The part that is written.
    pub to: Part,
    /// The value of the remaining bits.
    pub rest: Rest,
    /// The parts of the sources.
    pub from: [Part; 2],
}

/// The value of the bits outside of the written part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// Zero.
    Zero,
    /// Sign extension above it.
    Sign,
    /// Unchanged.
    Kept,
}

/// The modifiers after the operands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Modifiers {
    /// A memory offset.
    pub offset: i64,
    /// The first of two offsets.
    pub offset0: u64,
    /// The second of two offsets.
    pub offset1: u64,
    /// The old value is returned.
    pub returns: bool,
    /// A vector register holds an offset.
    pub offen: bool,
    /// The DPP exchange.
    pub dpp: Option<Dpp>,
    /// The SDWA selections.
    pub sdwa: Option<Sdwa>,
    /// A bit for each source (and the result): the upper half.
    pub op_sel: u8,
    /// A bit for each source of the upper result: the upper half.
    pub op_sel_hi: Option<u8>,
    /// Negations for the lower result.
    pub neg_lo: u8,
    /// Negations for the upper result.
    pub neg_hi: u8,
    /// The result is clamped.
    pub clamp: bool,
    /// The result is multiplied.
    pub times: f64,
    /// `offset:swizzle(...)` and similar: a permutation of lanes within 32.
    pub swizzle: Option<u16>,
    /// 16-bit results preserve the upper half of the destination.
    pub keeps_upper_half: bool,
}

const DWORDS: Sdwa = Sdwa { to: Part::Whole, rest: Rest::Zero, from: [Part::Whole; 2] };

impl Default for Modifiers {
    fn default() -> Modifiers {
        Modifiers {
            offset: 0,
            offset0: 0,
            offset1: 0,
            returns: false,
            offen: false,
            dpp: None,
            sdwa: None,
            op_sel: 0,
            op_sel_hi: None,
            neg_lo: 0,
            neg_hi: 0,
            clamp: false,
            times: 1.0,
            swizzle: None,
            keeps_upper_half: false,
        }
    }
}

fn number(text: &str) -> Option<i64> {
    match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn list(text: &str) -> Option<Vec<u8>> {
    text.strip_prefix('[')?.strip_suffix(']')?.split(',').map(|n| n.trim().parse().ok()).collect()
}

fn bits(text: &str) -> Option<u8> {
    Some(list(text)?.iter().enumerate().fold(0, |all, (n, bit)| all | bit << n))
}

fn part(text: &str) -> Option<Part> {
    let last = || text.bytes().last().map(|b| b - b'0');
    match text {
        "DWORD" => Some(Part::Whole),
        _ if text.starts_with("BYTE_") => last().map(Part::Byte),
        _ if text.starts_with("WORD_") => last().map(Part::Word),
        _ => None,
    }
}

impl Modifiers {
    /// Adds a modifier. False if it is unknown.
    pub fn take(&mut self, text: &str) -> bool {
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        self.ignore(name, value) || self.set(name, value).is_some() || self.exchange(name, value).is_some()
    }

    /// Ignored modifiers: caches and their scopes.
    fn ignore(&mut self, name: &str, value: &str) -> bool {
        // The modifier that returns the old value of an atomic operation is named after a cache.
        match name {
            "glc" | "sc0" => self.returns = true,
            "th" => self.returns |= value.contains("RETURN"),
            "slc" | "dlc" | "sc1" | "nt" | "scope" | "scc" | "gds" | "lds" | "nv" => {}
            _ => return false,
        }
        true
    }

    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        let sdwa = |m: &mut Modifiers, change: &dyn Fn(&mut Sdwa)| change(m.sdwa.get_or_insert(DWORDS));
        match name {
            "offset" if value.starts_with("swizzle") => self.swizzle = Some(swizzle(value)?),
            "offset" => self.offset = number(value)?,
            "offset0" => self.offset0 = number(value)? as u64,
            "offset1" => self.offset1 = number(value)? as u64,
            "offen" => self.offen = true,
            "clamp" => self.clamp = true,
            "mul" => self.times = value.parse().ok()?,
            "div" => self.times = 1.0 / value.parse::<f64>().ok()?,
            "op_sel" => self.op_sel = bits(value)?,
            "op_sel_hi" => self.op_sel_hi = Some(bits(value)?),
            "neg_lo" => self.neg_lo = bits(value)?,
            "neg_hi" => self.neg_hi = bits(value)?,
            "dst_sel" => {
                let to = part(value)?;
                sdwa(self, &|s| s.to = to);
            }
            "src0_sel" | "src1_sel" => {
                let (from, n) = (part(value)?, usize::from(name == "src1_sel"));
                sdwa(self, &|s| s.from[n] = from);
            }
            "dst_unused" => {
                let rest = match value {
                    "UNUSED_PAD" => Rest::Zero,
                    "UNUSED_SEXT" => Rest::Sign,
                    "UNUSED_PRESERVE" => Rest::Kept,
                    _ => return None,
                };
                sdwa(self, &|s| s.rest = rest);
            }
            _ => return None,
        }
        Some(())
    }

    fn exchange(&mut self, name: &str, value: &str) -> Option<()> {
        let count = || number(value).map(|n| n as u8);
        let source = match name {
            "quad_perm" => Source::Quad(list(value)?.try_into().ok()?),
            "dpp8" => Source::Octet(list(value)?.try_into().ok()?),
            "row_shl" => Source::RowLeft(count()?),
            "row_shr" => Source::RowRight(count()?),
            "row_ror" => Source::RowRotate(count()?),
            "row_mirror" => Source::RowMirror,
            "row_half_mirror" => Source::RowHalfMirror,
            "row_share" | "row_newbcast" => Source::RowShare(count()?),
            "row_xmask" => Source::RowXor(count()?),
            "row_bcast" => Source::RowBroadcast(count()?),
            "wave_shl" => Source::WaveLeft(false),
            "wave_rol" => Source::WaveLeft(true),
            "wave_shr" => Source::WaveRight(false),
            "wave_ror" => Source::WaveRight(true),
            _ => {
                let dpp = self.dpp.as_mut()?;
                match name {
                    "row_mask" => dpp.rows = number(value)? as u8,
                    "bank_mask" => dpp.banks = number(value)? as u8,
                    "bound_ctrl" => dpp.zero = true,
                    "fi" => dpp.reads_inactive = number(value)? != 0,
                    _ => return None,
                }
                return Some(());
            }
        };
        self.dpp = Some(Dpp { source, rows: 15, banks: 15, zero: false, reads_inactive: false });
        Some(())
    }
}

/// The encoding of a textual swizzle.
fn swizzle(text: &str) -> Option<u16> {
    let inside = text.strip_prefix("swizzle(")?.strip_suffix(')')?;
    let mut parts = inside.split(',').map(str::trim);
    let kind = parts.next()?;
    let numbers: Vec<u16> = parts.clone().filter_map(|n| n.parse().ok()).collect();
    Some(match kind {
        "QUAD_PERM" => 0x8000 | numbers.iter().enumerate().fold(0, |all, (n, lane)| all | lane << (2 * n)),
        "SWAP" => numbers.first()? << 10 | 0x1f,
        "REVERSE" => (numbers.first()? - 1) << 10 | 0x1f,
        "BROADCAST" => {
            let [size, lane] = numbers[..] else { return None };
            lane << 5 | (32 - size)
        }
        "BITMASK_PERM" => {
            let letters = parts.next()?.trim_matches('"').bytes();
            letters.enumerate().fold(0, |all, (n, letter)| {
                let bit = 1 << (4 - n);
                all | match letter {
                    b'1' => bit << 5,
                    b'p' => bit,
                    b'i' => bit | bit << 10,
                    _ => 0,
                }
            })
        }
        _ => return None,
    })
}
