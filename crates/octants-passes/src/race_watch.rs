//! [`RaceWatch`]: describes the arguments that the pass `check_races` added to a kernel.

use octants_ir::BufferId;

/// The additional arguments of an instrumented kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RaceWatch {
    /// The buffer of 64-bit words in which tasks count and note races.
    pub notes: BufferId,
    /// For each watched buffer, the buffer of its shadow words, and the number of scalars of an element.
    pub words: Vec<(BufferId, BufferId, u64)>,
    /// The same for the second words of buffers that threads of blocks access between barriers.
    pub phase_words: Vec<(BufferId, BufferId, u64)>,
    /// The same for the third words, of buffers that threads of subgroups access.
    pub subgroup_words: Vec<(BufferId, BufferId, u64)>,
    /// The same for buffers that concurrent groups share. A buffer may have several sets of words.
    pub group_words: Vec<(BufferId, BufferId, u64)>,
    /// The parameter, u64, that the epochs of the launch follow.
    pub epoch: u32,
    /// The parameter, u64, whose bits select the counters by which a launch counts its runs.
    pub counted: u32,
    /// How many epochs a launch takes.
    pub epochs: u64,
    /// Whether tasks may run several times in a launch.
    pub repeats: bool,
}
