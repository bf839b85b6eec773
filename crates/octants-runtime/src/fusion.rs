//! [`Fuser`]: makes one launch of several whose loops have the same iterations. The engine implements it, which has the
//! IR of the kernels; which launches are candidates is decided in [`crate::concurrency`].

use crate::kernel::LoadedKernel;

/// A launch to fuse with others.
pub struct FusionLaunch<'a> {
    /// The kernel.
    pub kernel: &'a LoadedKernel,
    /// Its argument slots.
    pub args: &'a [u64],
    /// The memory that it is given.
    pub memory: Vec<FusionMemory>,
}

/// Memory that a launch is given.
#[derive(Debug, Clone, Copy)]
pub struct FusionMemory {
    /// The slot with its address.
    pub slot: u32,
    /// Its number: equal numbers are one allocation.
    pub number: u64,
    /// The launch may write to it.
    pub written: bool,
}

/// Launches to fuse.
pub struct FusionRequest<'a> {
    /// The launches, in order.
    pub launches: Vec<FusionLaunch<'a>>,
    /// Memory, by number, that nothing reads after them.
    pub temporaries: &'a [u64],
}

/// A launch with the effect of several.
pub struct FusedLaunch {
    /// The kernel.
    pub kernel: LoadedKernel,
    /// Its argument slots.
    pub args: Box<[u64]>,
    /// The temporaries that are no longer stored, by the kernels' names.
    pub removed: Vec<String>,
}

/// Fuses launches.
pub trait Fuser: Sync {
    /// Whether launches may be fused for this thread.
    fn is_on(&self) -> bool;

    /// Whether launches can be fused.
    ///
    /// # Errors
    /// The reason if not, for the user.
    fn check(&self, request: &FusionRequest<'_>) -> Result<(), String>;

    /// Fuses launches for which `check` has succeeded. Compiles the fused kernel, once.
    ///
    /// # Errors
    /// The reason why that is impossible.
    fn fuse(&self, request: &FusionRequest<'_>) -> Result<FusedLaunch, String>;
}
