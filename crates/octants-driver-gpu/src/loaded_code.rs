//! [`LoadedCode`]: what a module has to launch.

use crate::loaded_loop::LoadedLoop;
use crate::loaded_task::LoadedTask;

/// The tasks and loops of a module.
#[derive(Debug, Default)]
pub struct LoadedCode {
    /// In the artifact's order.
    pub tasks: Box<[LoadedTask]>,
    /// Those that the device can launch.
    pub loops: Box<[LoadedLoop]>,
}

impl LoadedCode {
    /// A loop, by its number, if one launch of it is faster than a launch for each task.
    pub fn suitable_loop(&self, number: u32, args: &[u64], in_a_graph: bool) -> Option<&LoadedLoop> {
        self.loops.iter().find(|l| l.number == number && l.suits(&self.tasks, args, in_a_graph))
    }
}
