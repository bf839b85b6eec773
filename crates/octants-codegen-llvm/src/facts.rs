//! [`Facts`]: the options and properties of a program that are fixed before code generation, with LLVM's target
//! information.

use std::ops::Deref;

use octants_codegen as shared;
use octants_diag::Span;
use octants_ir::Scheduled;

use crate::CodegenOptions;
use crate::launch_memory::LaunchMemory;

/// Facts about a program.
pub(crate) struct Facts<'p> {
    shared: shared::Facts<'p>,
    /// The roots of shared memory that a launch allocates, if code may not declare that much.
    pub launch_memory: LaunchMemory,
    /// Loops that may be persistent.
    pub loops: Vec<shared::PersistentLoop>,
}

impl<'p> Facts<'p> {
    /// Computes the facts of a program. `location` gives `path:line` of a span.
    pub fn of(scheduled: &'p Scheduled, options: &'p CodegenOptions, location: &dyn Fn(Span) -> String) -> Facts<'p> {
        let shared = shared::Facts::of(scheduled, options, location);
        let launch_memory = LaunchMemory::of(shared.program, shared.schedule, &shared.shared_bytes);
        let loops = shared::persistent_loops(&shared);
        Facts { shared, launch_memory, loops }
    }
}

impl<'p> Deref for Facts<'p> {
    type Target = shared::Facts<'p>;

    fn deref(&self) -> &shared::Facts<'p> {
        &self.shared
    }
}
