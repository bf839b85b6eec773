//! [`Processor`]: the interface of code execution.

use std::ops::Range;

/// A failed launch.
#[derive(Debug, Clone)]
pub struct Crash {
    /// The HIP error code that all later calls return.
    pub code: i32,
    /// The message.
    pub why: String,
}

/// The shape of a launch.
#[derive(Debug, Clone, Copy)]
pub struct Grid {
    /// Blocks.
    pub blocks: u32,
    /// Threads of each.
    pub threads: u32,
    /// Warp size.
    pub warp: u32,
    /// All blocks run at the same time, because they wait for one another.
    pub resident: bool,
}

/// The environment of a launch, for processors that check each access.
pub struct LaunchEnvironment<'a> {
    /// The block that contains an address, if the launch's device may access it now.
    pub block: &'a (dyn Fn(u64) -> Option<Range<u64>> + Sync),
    /// The seed of the order of threads.
    pub seed: u64,
    /// Barriers do nothing, to check that tests detect it.
    pub no_barriers: bool,
}

/// Loads code of one kind.
pub trait Processor: Send + Sync {
    /// Whether it accepts an image.
    fn takes(&self, image: &[u8]) -> bool;
    /// Loads an image.
    fn load(&self, image: &[u8]) -> Result<Box<dyn Code>, String>;
}

/// Loaded code.
pub trait Code: Send + Sync {
    /// Looks up an entry point.
    fn entry(&self, name: &str) -> Option<Entry>;
    /// Maximum number of blocks that can run at the same time.
    fn most_resident(&self) -> u32;
    /// Runs an entry point in every thread of a grid, and returns when all have ended. `parameter` is the launch's
    /// parameter block; pointers in it are valid in this process.
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
    /// The entry, in the processor's terms.
    pub at: usize,
    /// Size of its parameter in bytes.
    pub parameter_bytes: usize,
    /// Maximum block size.
    pub most_threads: u32,
}

/// Offset of the machine in an ELF file.
const MACHINE: std::ops::Range<usize> = 18..20;
/// The ELF machine number of AMD GPUs.
pub const GPU: u16 = 224;

/// The machine of an ELF file; `None` for other files.
pub fn machine_of(image: &[u8]) -> Option<u16> {
    image.get(MACHINE).filter(|_| image.starts_with(b"\x7fELF")).map(|m| u16::from_le_bytes([m[0], m[1]]))
}
