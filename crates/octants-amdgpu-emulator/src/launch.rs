//! Runs a grid: a few blocks at a time, with waves interleaved at random, until all have ended.

use std::ops::Range;

use crate::accessible_memory::{AccessibleMemory, AddressSpace, FaultInjection};
use crate::code_object::Kernel;
use crate::execute::step;
use crate::fault::Fault;
use crate::garbage::Garbage;
use crate::operand::scalar;
use crate::program::Program;
use crate::run_memory::{PRIVATE_BUFFER, wave_offset};
use crate::wave::{State, Wave};

/// The shape of a launch.
#[derive(Debug, Clone, Copy)]
pub struct Grid {
    /// Blocks.
    pub blocks: u32,
    /// Threads of each.
    pub threads: u32,
}

/// Options of a launch.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Determines the order of waves and the initial contents of registers and shared memory.
    pub seed: u64,
    /// Injected errors.
    pub faults: FaultInjection,
}

/// Number of blocks that run concurrently.
pub const RESIDENT: usize = 3;
/// Maximum number of instructions between switches of waves.
const LONGEST_TURN: u64 = 96;
/// Maximum number of instructions per wave. A wave that exceeds it is taken to loop forever.
const LONGEST_WAVE: u64 = 1 << 25;
/// Bits of a descriptor's properties.
const HAS_PRIVATE_BUFFER: u16 = 1;
const HAS_PACKET: u16 = 1 << 1;
const HAS_QUEUE: u16 = 1 << 2;
const HAS_ARGUMENTS: u16 = 1 << 3;
const HAS_DISPATCH: u16 = 1 << 4;
const HAS_FLAT_SCRATCH: u16 = 1 << 5;
const HAS_PRIVATE_SIZE: u16 = 1 << 6;
const IS_NARROW: u16 = 1 << 10;
/// Bits of a descriptor's second word of resources.
const HAS_WAVE_OFFSET: u32 = 1;
const HAS_BLOCK: [u32; 3] = [1 << 7, 1 << 8, 1 << 9];

/// A running block.
struct Block {
    number: u32,
    shared: Vec<u8>,
    waves: Vec<Wave>,
}

/// Memory of a launch: the kernarg segment with hidden arguments, and the dispatch packet.
struct LaunchBuffers {
    arguments: Vec<u64>,
    packet: Vec<u64>,
}

fn range(words: &[u64]) -> Range<u64> {
    let from = words.as_ptr() as u64;
    from..from + 8 * words.len() as u64
}

fn set(words: &mut [u64], offset: usize, size: usize, value: u64) {
    for byte in 0..size.min(8) {
        let at = offset + byte;
        if let Some(word) = words.get_mut(at / 8) {
            let shift = 8 * (at % 8);
            *word = *word & !(0xff << shift) | (value >> (8 * byte) & 0xff) << shift;
        }
    }
}

impl LaunchBuffers {
    fn new(kernel: &Kernel, parameter: &[u64], grid: Grid, chance: &mut Garbage) -> LaunchBuffers {
        let mut arguments: Vec<u64> =
            (0..(kernel.argument_bytes as usize).div_ceil(8)).map(|_| chance.draw()).collect();
        let passed = kernel.metadata.argument_bytes.div_ceil(8).min(parameter.len()).min(arguments.len());
        arguments[..passed].copy_from_slice(&parameter[..passed]);
        for hidden in &kernel.metadata.hidden {
            let value = match hidden.kind.as_str() {
                "hidden_block_count_x" => grid.blocks.into(),
                "hidden_group_size_x" => grid.threads.into(),
                "hidden_block_count_y"
                | "hidden_block_count_z"
                | "hidden_group_size_y"
                | "hidden_group_size_z"
                | "hidden_grid_dims" => 1,
                _ => 0,
            };
            set(&mut arguments, hidden.offset, hidden.size, value);
        }
        let mut packet: Vec<u64> = (0..8).map(|_| chance.draw()).collect();
        // Block size along each axis, and a reserved half word, which is zero.
        for (offset, value) in [(4, grid.threads), (6, 1), (8, 1), (10, 0)] {
            set(&mut packet, offset, 2, value.into());
        }
        for (offset, value) in [(12, grid.blocks * grid.threads), (16, 1), (20, 1)] {
            set(&mut packet, offset, 4, value.into());
        }
        LaunchBuffers { arguments, packet }
    }
}

/// Initializes the registers of a wave.
fn set_registers(program: &Program, kernel: &Kernel, wave: &mut Wave, block: u32, grid: Grid, given: &LaunchBuffers) {
    let has = |bit| kernel.properties & bit != 0;
    let mut next = 0u16;
    let mut put = |wave: &mut Wave, words: &[u64]| {
        for word in words {
            wave.set_scalar(next, *word as u32);
            wave.set_scalar(next + 1, (*word >> 32) as u32);
            next += 2;
        }
    };
    let arguments = range(&given.arguments).start;
    if has(HAS_PRIVATE_BUFFER) {
        put(wave, &[PRIVATE_BUFFER, 0x00e0_0000_ffff_ffff]);
    }
    for (bit, word) in [
        (HAS_PACKET, range(&given.packet).start),
        (HAS_QUEUE, 0),
        (HAS_ARGUMENTS, arguments),
        (HAS_DISPATCH, 1),
        (HAS_FLAT_SCRATCH, 0),
    ] {
        if has(bit) {
            put(wave, &[word]);
        }
    }
    let mut one = |wave: &mut Wave, word: u32| {
        wave.set_scalar(next, word);
        next += 1;
    };
    if has(HAS_PRIVATE_SIZE) {
        one(wave, kernel.private_bytes);
    }
    let (preloaded, from) = kernel.preloaded;
    for word in from..from + preloaded {
        let pair = given.arguments.get(word as usize / 2).copied().unwrap_or(0);
        one(wave, (pair >> (32 * (word % 2))) as u32);
    }
    // The descriptor may leave a gap between user and system registers.
    next = kernel.resources_2 as u16 >> 1 & 31;
    let mut one = |wave: &mut Wave, word: u32| {
        wave.set_scalar(next, word);
        next += 1;
    };
    if program.chip.block_in_trap_registers {
        wave.set_scalar(scalar::TTMP + 9, block);
        wave.set_scalar(scalar::TTMP + 7, 0);
    } else {
        for (bit, number) in HAS_BLOCK.iter().zip([block, 0, 0]) {
            if kernel.resources_2 & bit != 0 {
                one(wave, number);
            }
        }
    }
    if kernel.resources_2 & HAS_WAVE_OFFSET != 0 && has(HAS_PRIVATE_BUFFER) {
        let offset = wave_offset(wave) as u32;
        one(wave, offset);
    }
    let first = wave.number * wave.lanes as u32;
    for lane in 0..wave.lanes as u32 {
        wave.vectors[0][lane as usize] = first + lane;
    }
    let there = u64::from(grid.threads.saturating_sub(first)).min(wave.lanes as u64);
    wave.set_exec(if there == 64 { u64::MAX } else { (1 << there) - 1 });
    wave.mode = kernel.resources_1 >> 12 & 0xff;
    wave.keeps_upper_half = program.chip.keeps_upper_half;
    wave.pc = program.object.base() + kernel.entry;
}

fn start_block(
    program: &Program,
    kernel: &Kernel,
    number: u32,
    grid: Grid,
    given: &LaunchBuffers,
    chance: &mut Garbage,
) -> Block {
    let lanes = if kernel.properties & IS_NARROW != 0 { 32 } else { 64 };
    let count = grid.threads.div_ceil(lanes as u32);
    let mut waves = Vec::new();
    for wave in 0..count {
        let mut wave = Wave::new(wave, lanes, kernel.private_bytes as usize, chance);
        set_registers(program, kernel, &mut wave, number, grid, given);
        waves.push(wave);
    }
    let mut shared = vec![0; kernel.shared_bytes as usize];
    chance.fill_bytes(&mut shared);
    Block { number, shared, waves }
}

impl Block {
    /// Releases the barrier if all waves wait. Returns whether the block has ended.
    fn meet(&mut self) -> Result<bool, Fault> {
        if self.waves.iter().any(|w| w.state == State::Running) {
            return Ok(false);
        }
        let ended = self.waves.iter().filter(|w| w.state == State::Ended).count();
        if ended == self.waves.len() {
            return Ok(true);
        }
        if ended > 0 {
            return Err(Fault::launch("waves wait at a barrier to which others never come"));
        }
        for wave in &mut self.waves {
            wave.state = State::Running;
            wave.signaled = false;
        }
        Ok(false)
    }
}

/// Runs a kernel in every thread of a grid.
pub fn run(
    program: &Program,
    kernel: &Kernel,
    grid: Grid,
    parameter: &[u64],
    memory: &dyn AddressSpace,
    options: &Options,
) -> Result<(), Fault> {
    let mut chance = Garbage::new(options.seed);
    let given = LaunchBuffers::new(kernel, parameter, grid, &mut chance);
    let own = vec![range(&given.arguments), range(&given.packet), program.object.addresses()];
    let around = AccessibleMemory::new(memory, options.faults, own);
    let mut waiting = 0..grid.blocks;
    let mut blocks: Vec<Block> = Vec::new();
    loop {
        while blocks.len() < RESIDENT
            && let Some(number) = waiting.next()
        {
            blocks.push(start_block(program, kernel, number, grid, &given, &mut chance));
        }
        if blocks.is_empty() {
            return Ok(());
        }
        let at = chance.below(blocks.len() as u64) as usize;
        let block = &mut blocks[at];
        run_turn(program, &around, block, &mut chance)
            .and_then(|()| block.meet())
            .map_err(|fault| Fault {
                why: format!("block {} of {}: {}", block.number, grid.blocks, fault.why),
                ..fault
            })
            .map(|is_over| {
                if is_over {
                    blocks.swap_remove(at);
                }
            })?;
    }
}

/// Runs one of a block's waves for a number of instructions.
fn run_turn(
    program: &Program,
    around: &AccessibleMemory<'_>,
    block: &mut Block,
    chance: &mut Garbage,
) -> Result<(), Fault> {
    let running: Vec<usize> = (0..block.waves.len()).filter(|n| block.waves[*n].state == State::Running).collect();
    let Some(number) = running.get(chance.below(running.len().max(1) as u64) as usize) else { return Ok(()) };
    let wave = &mut block.waves[*number];
    for _ in 0..1 + chance.below(LONGEST_TURN) {
        step(program, around, &mut block.shared, wave)
            .map_err(|fault| Fault { why: format!("wave {number}: {}", fault.why), ..fault })?;
        if wave.state != State::Running {
            break;
        }
    }
    if wave.steps > LONGEST_WAVE {
        let next = program.instruction(wave.pc).map_or_else(|why| why, |inst| inst.text.clone());
        return Err(Fault::launch(format!(
            "wave {number} has run {} instructions and comes to no end; it is at {:#x}: `{next}`",
            wave.steps,
            wave.pc - program.object.base()
        )));
    }
    Ok(())
}
