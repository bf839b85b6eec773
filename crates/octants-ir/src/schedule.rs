//! [`Scheduled`]: a program for a kind of machine, in the scheduled dialect. [`Schedule`] is its data part: the
//! variants of each task, and hints.
//!
//! octants-schedule decides, and code generators implement the decisions. Each entry names a transformation and the
//! instruction, loop or task that it applies to. A schedule belongs to one version of a program, because it refers to
//! the program's ids.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::{
    Affine, Body, FuncId, IterationGroup, LocalId, LoopConfig, Op, Program, Scalar, Task, TaskKind, ValueId, renumber,
};

/// Options of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduleOptions {
    /// 0 to 3.
    pub opt_level: u8,
    /// Array arguments may overlap one another.
    pub arrays_may_alias: bool,
    /// Whether tasks get a variant without atomics, for launches on one thread.
    pub single_thread_variants: bool,
    /// Whether concurrent launches on other streams may update the same memory atomically.
    pub concurrent_launches: bool,
    /// Whether array arguments may be privatized. False if one is split over ranks: its memory holds only some rows.
    pub privatizes_arrays: bool,
}

impl Default for ScheduleOptions {
    fn default() -> ScheduleOptions {
        ScheduleOptions {
            opt_level: 3,
            arrays_may_alias: false,
            single_thread_variants: true,
            concurrent_launches: false,
            privatizes_arrays: true,
        }
    }
}

/// A program for a kind of machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scheduled {
    /// Buffers, functions and launch order. The bodies of its tasks compute trip counts; the code that runs is in the
    /// variants.
    pub program: Program,
    pub schedule: Schedule,
}

impl Scheduled {
    /// The program whose tasks are the variants of a role, renumbered. Tasks without such a variant are the main ones.
    pub fn program_of(&self, role: Role) -> Program {
        let variants = self.program.tasks.iter().zip(&self.schedule.tasks);
        let tasks = variants.map(|(task, schedule)| {
            let variant = schedule.variant(role).or_else(|| schedule.variant(Role::Main));
            let mut body = variant.map_or(&task.body, |v| &v.body).clone();
            renumber(&mut body);
            Task { body, kind: variant.map_or(task.kind.clone(), |v| v.kind(&task.kind)), ..task.clone() }
        });
        let mut program = Program { tasks: tasks.collect(), ..self.program.clone() };
        program.functions.iter_mut().for_each(|f| renumber(&mut f.body));
        program
    }
}

/// The text of each variant, for messages.
impl fmt::Display for Scheduled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.program, f)?;
        for (task, schedule) in self.program.tasks.iter().zip(&self.schedule.tasks) {
            for variant in &schedule.variants {
                writeln!(f, "; task {}, {} variant\n{}", task.name, variant.role.name(), variant.body)?;
            }
        }
        Ok(())
    }
}

/// How a program runs on a kind of machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Schedule {
    /// Memory class of each buffer: accesses of different classes never alias.
    pub memory: Vec<MemoryClass>,
    pub tasks: Vec<TaskSchedule>,
    pub functions: Vec<FunctionSchedule>,
}

impl Schedule {
    /// An assertion of some task may fail.
    pub fn may_fail(&self) -> bool {
        self.tasks.iter().any(|t| t.behavior.fails)
    }
}

/// The memory class of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryClass {
    /// The first buffer of the class.
    pub first: usize,
    /// Different components of an element never alias.
    pub by_component: bool,
}

/// Side effects and size of code, callees included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Behavior {
    /// May end by a failed assertion.
    pub fails: bool,
    /// Draws random numbers.
    pub draws: bool,
    /// Threads exchange work with one another.
    pub balances: bool,
    /// Number of atomic updates.
    pub atomics: usize,
    /// Threads meet at barriers, or exchange values within subgroups, as the program says.
    pub cooperates: bool,
    /// Number of instructions.
    pub size: usize,
    /// Serial loops may run for long: their trip counts are large, or unknown.
    pub runs_long: bool,
}

/// Schedule of the body of a task or of a function.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BodySchedule {
    /// Facts about its locals.
    pub locals: Arc<LocalUses>,
}

/// How a function runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FunctionSchedule {
    pub body: BodySchedule,
    pub behavior: Behavior,
    /// Number of instructions, without callees.
    pub size: usize,
    /// Always inlined.
    pub is_inlined: bool,
}

/// How a task runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TaskSchedule {
    /// The schedule of the program's body.
    pub body: BodySchedule,
    /// The code that runs, the main variant first.
    pub variants: Vec<Variant>,
    pub behavior: Behavior,
    /// Number of instructions, without callees.
    pub size: usize,
    /// The functions that the task reaches.
    pub functions: Vec<FuncId>,
    /// Per buffer: its contents are constant while the task runs, and constant loads pay off.
    pub constants: Vec<bool>,
    /// Bounds of each axis of a parallel task, `[begin, end)`.
    pub bounds: Vec<(LaunchBound, LaunchBound)>,
    /// Extent of each axis of a parallel task, if known.
    pub extents: Vec<Option<i64>>,
    /// Estimated time of one iteration of a parallel task, in nanoseconds.
    pub cost_per_iteration: f32,
    /// The variants of its code.
    pub forms: Forms,
    /// Hints to the optimizer for all of its code.
    pub hints: TaskHints,
}

impl TaskSchedule {
    /// The variant of a role, if there is one.
    pub fn variant(&self, role: Role) -> Option<&Variant> {
        self.variants.iter().find(|v| v.role == role)
    }

    /// Maximum number of iterations of the parallel loop that a thread interleaves in launches on many threads.
    pub fn interleave_factor(&self) -> u32 {
        let variants = self.variants.iter().filter(|v| matches!(v.role, Role::Main | Role::Private));
        let factors = variants.flat_map(|v| v.groups()).map(|group| group.factor);
        factors.max().unwrap_or(1)
    }

    /// The number of iterations, if known.
    pub fn count(&self) -> Option<u64> {
        self.extents.iter().try_fold(1u64, |n, x| n.checked_mul((*x)? as u64))
    }
}

/// A bound of a parallel loop as the launcher can know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaunchBound {
    /// Known at compile time.
    Known(i64),
    /// A parameter or an extent, plus a constant, computed in this type. It may wrap around.
    Sum(Affine, Scalar),
    /// The larger of two of these: the begin of a loop that a launch runs in parts.
    Larger(Box<[LaunchBound; 2]>),
    /// The smaller of two: the end of such a loop.
    Smaller(Box<[LaunchBound; 2]>),
    /// Computed by code.
    Computed,
}

/// The launches that a variant of a task's code is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Any launch.
    Main,
    /// Launches that run on one thread.
    SingleThread,
    /// Calls that scatter to private copies.
    Private,
    /// Launches that fit the coarsening's conditions: each thread runs several neighboring iterations.
    Coarse,
    /// Adds the private copies of a region up, by the number of the region. Its iterations are groups of scalars.
    Merge(u32),
}

impl Role {
    /// The roles of code that runs the task's iterations.
    pub const OF_ITERATIONS: &[Role] = &[Role::Main, Role::SingleThread, Role::Private, Role::Coarse];

    /// The word in the text of a scheduled program.
    pub fn name(self) -> &'static str {
        match self {
            Role::Main => "main",
            Role::SingleThread => "single_thread",
            Role::Private => "private",
            Role::Coarse => "coarse",
            Role::Merge(_) => "merge",
        }
    }
}

/// A variant of a task's code.
#[derive(Debug, Clone, PartialEq)]
pub struct Variant {
    pub role: Role,
    pub shape: LaunchShape,
    pub body: Body,
    /// How the body runs.
    pub schedule: BodySchedule,
}

impl Variant {
    /// How it runs, of a task that runs as `of`.
    pub fn kind(&self, of: &TaskKind) -> TaskKind {
        match of {
            TaskKind::Parallel(config) | TaskKind::Grid(config) => match self.shape {
                LaunchShape::Range => TaskKind::Parallel(config.clone()),
                LaunchShape::Grid { block_size } => {
                    TaskKind::Grid(LoopConfig { block_dim: block_size, ..config.clone() })
                }
            },
            TaskKind::Serial => TaskKind::Serial,
        }
    }

    /// The groups of iterations of its parallel loop, if it has one.
    pub fn groups(&self) -> &[IterationGroup] {
        match self.body.block(self.body.root).last().map(|v| &self.body.inst(*v).op) {
            Some(Op::For(l)) => &l.groups,
            _ => &[],
        }
    }
}

/// The threads that run the code of a parallel task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LaunchShape {
    /// Each call runs a range of the iterations.
    #[default]
    Range,
    /// Each thread of a grid runs the whole body ([`TaskKind::Grid`]). The driver chooses the block size if none is
    /// given.
    Grid { block_size: Option<u32> },
}

/// The variants of a task's code.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Forms {
    /// The main variant runs on one thread and needs no atomics.
    pub runs_alone: bool,
    /// There is a second variant for launches that run on one thread.
    pub has_single: bool,
    /// Each thread keeps private copies of the memory that the task scatters to.
    pub thread_privatization: Option<ScatterPrivatization>,
    /// How the copies of threads are added to the memory.
    pub copy_merge: CopyMerge,
    /// Each thread block keeps copies in shared memory of the memory that the task scatters to.
    pub block_privatization: Option<ScatterPrivatization>,
    /// There is a second variant with thread coarsening.
    pub coarsening: Option<Coarsening>,
}

impl Forms {
    /// The single-thread variant shares no code with the main variant.
    pub fn is_single_apart(&self) -> bool {
        self.has_single && self.thread_privatization.is_none()
    }
}

/// Hints to the optimizer for the code of a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TaskHints {
    /// Prefer narrow vectors: the remainder loops of the widest vectors cost too much compile time in a large task.
    pub narrow_vectors: bool,
    /// Spend registers on prefetching: inner loops load from memory.
    pub prefetches: bool,
    /// Spend registers on occupancy: the loops of all threads have similar lengths.
    pub many_threads: bool,
    /// Leave registers for two blocks of 256 threads: one computes while another one stages a tile.
    pub shares_tiles: bool,
}

/// Facts about the locals of a body.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LocalUses {
    /// Per local.
    pub locals: Vec<LocalUse>,
    /// Loads that yield the value of an earlier instruction.
    pub forwarded: HashMap<ValueId, ValueId>,
}

/// Facts about a local.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LocalUse {
    /// It has no memory: all its loads are forwarded.
    pub is_value: bool,
    /// It is never mentioned.
    pub is_unused: bool,
    /// Its initial zero can be observed.
    pub needs_zero: bool,
    /// It is mentioned outside of the task's parallel loops.
    pub is_used_before_loop: bool,
}

impl LocalUses {
    /// Facts about a local.
    pub fn of(&self, l: LocalId) -> LocalUse {
        self.locals[l.index()]
    }

    /// The value that a load yields without reading memory.
    pub fn forwarded(&self, load: ValueId) -> Option<ValueId> {
        self.forwarded.get(&load).copied()
    }

    /// The instruction that defines `v`, seen through loads of locals that hold one value.
    pub fn source(&self, v: ValueId) -> ValueId {
        let mut v = v;
        while let Some(stored) = self.forwarded(v) {
            v = stored;
        }
        v
    }
}

/// Privatization of the memory that a task scatters sums to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScatterPrivatization {
    pub regions: Vec<Region>,
    /// Estimated number of scalars that an iteration updates. At least one.
    pub updates: u64,
}

/// How private copies are added to the memory that they are copies of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyMerge {
    /// Number of scalars added together.
    pub lanes: u32,
    /// The sums are added atomically: other launches may update the memory meanwhile.
    pub is_atomic: bool,
}

impl Default for CopyMerge {
    fn default() -> CopyMerge {
        CopyMerge { lanes: 1, is_atomic: true }
    }
}

/// Privatized memory: consecutive scalars of one type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    pub memory: RegionMemory,
    pub scalar: Scalar,
    /// The buffers inside it.
    pub buffers: Vec<usize>,
    /// The private buffer with a thread's copy of each of them, if threads have copies.
    pub copies: Vec<usize>,
    /// The buffer with the copies of all threads, if threads have copies.
    pub all_copies: Option<usize>,
}

/// Location of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegionMemory {
    /// Part of a field root.
    Root { root: u32, start: u64, bytes: u64 },
    /// A whole array argument.
    Array { buffer: usize },
}

impl Region {
    /// Bytes of a copy, in whole words of eight. Zero if known at run time only.
    pub fn known_bytes(&self) -> u64 {
        if let RegionMemory::Root { bytes, .. } = self.memory { bytes.next_multiple_of(8) } else { 0 }
    }

    /// Byte offset in its root.
    pub fn start(&self) -> u64 {
        if let RegionMemory::Root { start, .. } = self.memory { start } else { 0 }
    }
}

/// Thread coarsening: each thread runs several neighboring iterations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coarsening {
    /// Number of neighbors along the last axis.
    pub factor: u32,
    /// Thread blocks run tiles of the last two axes.
    pub tiles: bool,
    /// Required alignment of the arrays, in bytes.
    pub alignment: u32,
    /// Minimum number of iterations.
    pub min_iterations: u64,
    /// Minimum extent of the last axis.
    pub min_row: u64,
}
