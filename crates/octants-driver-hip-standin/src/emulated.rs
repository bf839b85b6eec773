//! [`Emulator`]: executes code objects of AMD GPUs, instruction by instruction, on the memory that this library
//! allocates.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use octants_amdgpu_emulator::accessible_memory::{AddressSpace, FaultInjection};
use octants_amdgpu_emulator::fault::FaultKind;
use octants_amdgpu_emulator::launch::{self, Options};
use octants_amdgpu_emulator::program::{CHIPS, Program};

use crate::processor::{Code, Crash, Entry, GPU, Grid, LaunchEnvironment, Processor, machine_of};

/// The processor that emulates AMD GPUs.
#[derive(Debug)]
pub struct Emulator;

/// HIP's error codes for a failed launch and for an illegal address.
const LAUNCH_FAILURE: i32 = 719;
const ILLEGAL_ADDRESS: i32 = 700;
/// Offset of the ELF flags, which contain the chip.
const CHIP: usize = 48;

impl Processor for Emulator {
    fn takes(&self, image: &[u8]) -> bool {
        machine_of(image) == Some(GPU)
            && CHIPS.iter().any(|c| image.get(CHIP).is_some_and(|b| u32::from(*b) == c.machine))
    }

    fn load(&self, image: &[u8]) -> Result<Box<dyn Code>, String> {
        let program = Program::load(image)?;
        let mut names: Vec<String> = program.object.kernels.keys().cloned().collect();
        names.sort();
        Ok(Box::new(Emulated { program, names, launches: AtomicU64::new(0) }))
    }
}

struct Emulated {
    program: Program,
    /// Kernels, by entry number.
    names: Vec<String>,
    launches: AtomicU64,
}

/// The memory that code may access.
struct DeviceMemory<'a>(&'a LaunchEnvironment<'a>);

impl AddressSpace for DeviceMemory<'_> {
    fn block(&self, address: u64) -> Option<Range<u64>> {
        (self.0.block)(address)
    }
}

impl Code for Emulated {
    fn entry(&self, name: &str) -> Option<Entry> {
        let at = self.names.iter().position(|n| n == name)?;
        let kernel = self.program.kernel(name)?;
        let (parameter_bytes, most_threads) = (kernel.metadata.argument_bytes, kernel.metadata.most_threads);
        Some(Entry { at, parameter_bytes, most_threads })
    }

    fn most_resident(&self) -> u32 {
        launch::RESIDENT as u32
    }

    unsafe fn run(
        &self,
        entry: Entry,
        grid: Grid,
        parameter: &[u64],
        environment: &LaunchEnvironment<'_>,
    ) -> Result<(), Crash> {
        let kernel = self.names.get(entry.at).and_then(|name| self.program.kernel(name));
        let kernel = kernel.ok_or_else(|| Crash { code: LAUNCH_FAILURE, why: "no such kernel".into() })?;
        let seed = environment.seed.wrapping_mul(0x1_0000_0001);
        let seed = seed.wrapping_add(self.launches.fetch_add(1, Ordering::Relaxed));
        let options = Options { seed, faults: FaultInjection { no_barriers: environment.no_barriers } };
        let shape = launch::Grid { blocks: grid.blocks, threads: grid.threads };
        let memory = DeviceMemory(environment);
        launch::run(&self.program, kernel, shape, parameter, &memory, &options).map_err(|fault| {
            let code = if fault.kind == FaultKind::Address { ILLEGAL_ADDRESS } else { LAUNCH_FAILURE };
            Crash { code, why: fault.why }
        })
    }
}
