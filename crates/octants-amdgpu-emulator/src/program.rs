//! [`Program`]: a code object whose instructions are decoded on first use.

use std::sync::OnceLock;

use crate::code_object::{CodeObject, Kernel};
use crate::decode::Decoder;
use crate::disassemble::Disassembler;
use crate::instruction::Instruction;

/// The properties of a chip that code depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chip {
    /// Its name.
    pub name: &'static str,
    /// Its number in the ELF flags.
    pub machine: u32,
    /// Wave size.
    pub lanes: usize,
    /// The block index is in hardware (trap) registers instead of system scalar registers.
    pub block_in_trap_registers: bool,
    /// 16-bit results preserve the upper half of the destination.
    pub keeps_upper_half: bool,
}

const fn chip(name: &'static str, machine: u32, lanes: usize) -> Chip {
    let newest = machine == 0x48 || machine == 0x4e;
    Chip { name, machine, lanes, block_in_trap_registers: newest, keeps_upper_half: lanes == 32 }
}

/// The supported chips.
pub const CHIPS: &[Chip] =
    &[chip("gfx90a", 0x3f, 64), chip("gfx942", 0x4c, 64), chip("gfx1100", 0x41, 32), chip("gfx1200", 0x48, 32)];

/// A loaded program.
#[derive(Debug)]
pub struct Program {
    /// The code object.
    pub object: CodeObject,
    /// Its chip.
    pub chip: Chip,
    disassembler: Disassembler,
    decoder: Decoder,
    /// Decoded instructions, by word of the image.
    instructions: Vec<OnceLock<Result<Box<Instruction>, String>>>,
}

impl Program {
    /// Loads a file.
    pub fn load(file: &[u8]) -> Result<Program, String> {
        let object = CodeObject::load(file)?;
        let chip = CHIPS.iter().find(|c| c.machine == object.machine);
        let chip = *chip.ok_or_else(|| format!("code for the machine {:#x}, which is not emulated", object.machine))?;
        let features = if chip.lanes == 64 { "+wavefrontsize64" } else { "+wavefrontsize32" };
        let disassembler = Disassembler::new(chip.name, features)
            .ok_or("LLVM was built without its target for AMD's GPUs: there is no disassembler")?;
        let instructions = (0..object.bytes().len() / 4).map(|_| OnceLock::new()).collect();
        Ok(Program { object, chip, disassembler, decoder: Decoder::default(), instructions })
    }

    /// A kernel by its name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.object.kernels.get(name)
    }

    /// The instruction at an address of this process.
    pub fn instruction(&self, pc: u64) -> Result<&Instruction, String> {
        let at = pc.wrapping_sub(self.object.base());
        if !pc.is_multiple_of(4) || !self.object.code.iter().any(|range| range.contains(&at)) {
            return Err(format!("the wave went to {at:#x}, where there is no code"));
        }
        let decode = || {
            let bytes = &self.object.bytes()[at as usize..];
            let (text, size) = self.disassembler.instruction(bytes).ok_or_else(|| {
                format!("{at:#x}: no instruction of {}: {:02x?}", self.chip.name, &bytes[..bytes.len().min(8)])
            })?;
            self.decoder.decode(&text, size as u64).map(Box::new)
        };
        self.instructions[at as usize / 4].get_or_init(decode).as_deref().map_err(Clone::clone)
    }

    /// The disassembly of a kernel up to the end of its segment, for debugging and tests.
    pub fn listing(&self, kernel: &Kernel) -> Vec<String> {
        let mut at = kernel.entry;
        let end = self.object.code.iter().find(|r| r.contains(&at)).map_or(at, |r| r.end);
        let mut out = Vec::new();
        while at < end {
            let Some((text, size)) = self.disassembler.instruction(&self.object.bytes()[at as usize..]) else { break };
            let is_end = text.starts_with("s_endpgm");
            out.push(text);
            if is_end {
                break;
            }
            at += size as u64;
        }
        out
    }
}
