//! [`Processor`]: the interface of code execution.

use std::ops::Range;

/// What went wrong in running code: a code of HIP's and a sentence.
#[derive(Debug, Clone)]
pub struct Crash {
    /// The code that all later calls return.
    pub code: i32,
    /// For people.
    pub why: String,
}

/// The shape of a launch.
#[derive(Debug, Clone, Copy)]
pub struct Grid {
    /// Blocks.
    pub blocks: u32,
    /// Threads of each.
    pub threads: u32,
    /// Threads that run in step.
    pub warp: u32,
}

/// What a launch finds: for processors that look at each access.
pub struct LaunchEnvironment<'a> {
    /// The block of memory that holds an address, where the launch's device may use it now.
    pub block: &'a (dyn Fn(u64) -> Option<Range<u64>> + Sync),
    /// Decides the order of threads.
    pub seed: u64,
    /// Barriers do nothing, for tests of tests.
    pub no_barriers: bool,
}

/// What runs code of some kind.
pub trait Processor: Send + Sync {
    /// Whether code is of this kind.
    fn takes(&self, image: &[u8]) -> bool;
    /// Gets code ready.
    fn load(&self, image: &[u8]) -> Result<Box<dyn Code>, String>;
}

/// Code that is ready to run.
pub trait Code: Send + Sync {
    /// An entry point by its name.
    fn entry(&self, name: &str) -> Option<Entry>;
    /// Runs an entry point in every thread of a grid, and returns when all have come to their end. `parameter` is what
    /// a launch passes by value; the memory that it points to is the process's.
    ///
    /// # Safety
    /// The parameter is what the code expects.
    unsafe fn run(
        &self,
        entry: Entry,
        grid: Grid,
        parameter: &[u64],
        environment: &LaunchEnvironment<'_>,
    ) -> Result<(), Crash>;
}

/// An entry point.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Where the code is, in the processor's terms.
    pub at: usize,
    /// Bytes of its parameter.
    pub parameter_bytes: usize,
    /// Most threads of a block.
    pub most_threads: u32,
}

/// Where an ELF file says what machine it is for.
const MACHINE: std::ops::Range<usize> = 18..20;
/// The number of AMD's GPUs.
pub const GPU: u16 = 224;

/// What machine code is for; nothing where it is no such file.
pub fn machine_of(image: &[u8]) -> Option<u16> {
    image.get(MACHINE).filter(|_| image.starts_with(b"\x7fELF")).map(|m| u16::from_le_bytes([m[0], m[1]]))
}
