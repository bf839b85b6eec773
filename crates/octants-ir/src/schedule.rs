//! [`Schedule`]: how the tasks of a program are to run on a kind of machine, as data beside the program.
//!
//! octants-schedule decides, code generators carry out: each hint names what to do with an instruction, a loop or a
//! task, and says nothing of how. A schedule belongs to one program as it is; its ids are the program's.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::{FuncId, LocalId, Scalar, ValueId};

/// What is asked of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduleOptions {
    /// 0 to 3.
    pub opt_level: u8,
    /// Array arguments may overlap one another.
    pub arrays_may_alias: bool,
    /// Tasks have a form without atomics, for launches that one thread runs.
    pub single_thread_variants: bool,
}

impl Default for ScheduleOptions {
    fn default() -> ScheduleOptions {
        ScheduleOptions { opt_level: 3, arrays_may_alias: false, single_thread_variants: true }
    }
}

/// How a program runs on a kind of machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Schedule {
    /// Memory class of each buffer, named by the first buffer of the class.
    pub memory: Vec<usize>,
    /// Array arguments may overlap one another.
    pub arrays_may_alias: bool,
    pub tasks: Vec<TaskSchedule>,
    pub functions: Vec<FunctionSchedule>,
}

impl Schedule {
    /// An assertion of some task may fail.
    pub fn may_fail(&self) -> bool {
        self.tasks.iter().any(|t| t.behavior.fails)
    }
}

/// What code does beyond computing, directly or through its calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Behavior {
    /// May end by a failed assertion.
    pub fails: bool,
    /// Draws random numbers.
    pub draws: bool,
    /// Its threads exchange what they do.
    pub balances: bool,
    /// Instructions that update memory atomically, those of callees included.
    pub atomics: usize,
    /// Instructions, those of callees included.
    pub size: usize,
}

/// Schedule of the body of a task or of a function.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BodySchedule {
    /// What is known of its locals.
    pub locals: LocalUses,
    /// Loads whose values are frozen: the memory may be stored to later on.
    pub held: HashSet<ValueId>,
    /// Loops in order of which there is something to say.
    pub loops: HashMap<ValueId, LoopSchedule>,
}

/// How a function runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FunctionSchedule {
    pub body: BodySchedule,
    pub behavior: Behavior,
    /// Instructions, those of callees not included.
    pub size: usize,
    /// Its code goes to where it is called.
    pub is_inlined: bool,
}

/// How a task runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TaskSchedule {
    pub body: BodySchedule,
    pub behavior: Behavior,
    /// Instructions, those of callees not included.
    pub size: usize,
    /// The functions that it reaches.
    pub functions: Vec<FuncId>,
    /// Per buffer: its contents stay as they are while the task runs, and are worth reading as constants.
    pub constants: Vec<bool>,
    /// Of a parallel task: the extent of each axis, where it is known.
    pub extents: Vec<Option<i64>>,
    /// Of a parallel task: roughly what an iteration takes, in nanoseconds.
    pub cost_per_iteration: f32,
    /// The forms of its code.
    pub forms: Forms,
    /// What the optimizer is told about all of its code.
    pub hints: TaskHints,
}

impl TaskSchedule {
    /// The number of iterations, where it is known.
    pub fn count(&self) -> Option<u64> {
        self.extents.iter().try_fold(1u64, |n, x| n.checked_mul((*x)? as u64))
    }
}

/// The forms of a task's code.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Forms {
    /// The main form has no thread beside it, so that nothing in it is atomic.
    pub runs_alone: bool,
    /// There is another form for launches that one thread runs.
    pub has_single: bool,
    /// Threads keep private copies of what the task scatters.
    pub scatter: Option<Scatter>,
    /// Blocks of threads keep copies of what the task scatters.
    pub in_blocks: Option<Scatter>,
    /// There is another form in which a thread runs several neighboring iterations.
    pub grouping: Option<Grouping>,
    /// Iterations that run at once where other threads touch the same memory.
    pub jam: Option<Jam>,
    /// Iterations that run at once where no other thread does.
    pub jam_alone: Option<Jam>,
}

impl Forms {
    /// The form for one thread shares nothing with the main form.
    pub fn is_single_apart(&self) -> bool {
        self.has_single && self.scatter.is_none()
    }

    /// Most iterations that the main form, and what belongs to it, runs at once.
    pub fn at_once(&self) -> u32 {
        let plain = self.jam_alone.as_ref().filter(|_| self.scatter.is_some());
        self.jam.iter().chain(plain).map(|jam| jam.times).max().unwrap_or(1)
    }
}

/// What the optimizer is told about a task's code.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TaskHints {
    /// Prefer narrow vectors: the remainder loops of the widest vectors cost too much compile time in a large task.
    pub narrow_vectors: bool,
    /// None of its loops becomes vector code: they are too long to be planned.
    pub no_vectors: bool,
    /// The iterations of its loop do not depend on one another, as far as the optimizer may know.
    pub independent: bool,
    /// Registers are for loads ahead of what it computes: it reads memory in inner loops.
    pub loads_ahead: bool,
    /// Registers are for many threads, whose loops have like lengths.
    pub many_threads: bool,
}

/// What is known of the locals of a body.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LocalUses {
    /// Per local.
    pub locals: Vec<LocalUse>,
    /// Loads that are the value of an earlier instruction.
    pub forwarded: HashMap<ValueId, ValueId>,
}

/// What is known of a local.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LocalUse {
    /// It has no memory: all its loads are forwarded.
    pub is_value: bool,
    /// It is never mentioned.
    pub is_unused: bool,
    /// Its zero at the start can be seen.
    pub needs_zero: bool,
    /// It is mentioned before the task's parallel loop starts.
    pub is_used_before_loop: bool,
}

impl LocalUses {
    /// What is known of a local.
    pub fn of(&self, l: LocalId) -> LocalUse {
        self.locals[l.index()]
    }

    /// The value that a load yields without reading memory.
    pub fn forwarded(&self, load: ValueId) -> Option<ValueId> {
        self.forwarded.get(&load).copied()
    }

    /// The instruction whose value `v` is, seen through loads of locals that hold one value.
    pub fn source(&self, v: ValueId) -> ValueId {
        let mut v = v;
        while let Some(stored) = self.forwarded(v) {
            v = stored;
        }
        v
    }
}

/// How a loop in order runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LoopSchedule {
    /// How often the body stands in the code of the innermost axis, where that is not left to the optimizer.
    pub unroll: Option<Unroll>,
    /// What the optimizer is told of the other axes, and of the innermost one without `unroll`.
    pub hint: LoopHint,
    /// Short loops in it are written out, under a condition.
    pub guarded: Option<WrittenOut>,
    /// The threads of a warp add as one, where its sums go to copies in their block's memory.
    pub alignment: Option<Box<Alignment>>,
}

/// How often the body of a loop stands in the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unroll {
    pub times: u32,
    /// What is left over has a loop of its own, in which the body stands so often.
    pub rest: Option<u32>,
}

/// What the optimizer is told of a loop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LoopHint {
    /// Nothing.
    #[default]
    None,
    /// Each iteration has code of its own.
    UnrollFully,
    /// It is not unrolled where the number of its iterations is not known.
    NotUnrolledUncounted,
    /// It is neither interleaved, nor unrolled where the number of its iterations is not known.
    Lean,
}

/// Loops that are written out: each of their iterations has code of its own, in which the index is a number.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WrittenOut {
    /// Their indices.
    pub loops: HashMap<ValueId, Range<i64>>,
    /// What decides whether iterations of them run.
    pub guard: Option<Guard>,
}

/// The condition under which the iterations of inner loops run: as long as their indices are less than a number.
#[derive(Debug, Clone, PartialEq)]
pub struct Guard {
    /// The conditions.
    pub conditions: HashSet<ValueId>,
    /// The number.
    pub number: ValueId,
    /// The largest index, which is not negative.
    pub most: i64,
}

/// A loop in which the threads of a warp are at the same element at a time.
#[derive(Debug, Clone, PartialEq)]
pub struct Alignment {
    /// Its sums whose elements are then the same.
    pub sites: Vec<Site>,
    /// The elements follow the index backwards.
    pub descending: bool,
    /// So many iterations are run before sums are combined.
    pub at_once: i64,
    /// Values from outside of the loop that the elements depend on.
    pub given: Vec<ValueId>,
    /// Loops inside that are written out.
    pub written_out: WrittenOut,
    /// Loads that are made an iteration early.
    pub early: EarlyLoads,
}

/// Elements that the threads of a warp agree on, one for each iteration of an inner loop, or one alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Site {
    /// The sums.
    pub sums: Vec<ValueId>,
    /// The address of each of them.
    pub address: ValueId,
    /// The loop that the elements follow.
    pub along: Along,
    /// The instructions inside the aligned loop that compute the address, in order.
    pub steps: Vec<ValueId>,
    /// The scalars of an element.
    pub scalars: Vec<Scalar>,
}

/// The loop whose index elements follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Along {
    /// An inner loop, or the aligned one.
    pub number: ValueId,
    /// Iterations of it whose sums are collected before they are combined. If there is one, no index of an inner loop
    /// is in the address.
    pub elements: usize,
}

/// The loads of a loop that are made an iteration early.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EarlyLoads {
    /// The loads, with their addresses.
    pub loads: Vec<(ValueId, ValueId)>,
    /// How the addresses are computed, in order.
    pub steps: Vec<EarlyStep>,
}

/// A step of the computation of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlyStep {
    Compute(ValueId),
    /// A load of a local is a value that was stored in it.
    Stored(ValueId, ValueId),
}

impl EarlyStep {
    /// The instruction that the step stands for.
    pub fn result(self) -> ValueId {
        match self {
            EarlyStep::Compute(v) | EarlyStep::Stored(v, _) => v,
        }
    }
}

/// Iterations of a parallel loop that one thread runs at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Jam {
    /// Iterations of the parallel loop.
    pub times: u32,
    /// Inner loops that they run together, and whether iterations of the parallel loop, not of these, become vectors
    /// there.
    pub loops: HashMap<ValueId, bool>,
}

impl Jam {
    /// How many iterations run at once as long as there are so many, and how many of the rest. One by one, those whose
    /// elements lie side by side would take many times as long each.
    pub fn groups(&self) -> impl Iterator<Item = u32> {
        let small = self.loops.values().any(|across| *across).then_some(self.times / 4);
        [self.times].into_iter().chain(small.filter(|n| *n > 1))
    }
}

/// What a task scatters sums to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scatter {
    pub regions: Vec<Region>,
    /// Scalars updated by an iteration, roughly: at least one.
    pub updates: u64,
}

/// Memory that is copied: one run of equal scalars.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    pub memory: RegionMemory,
    pub scalar: Scalar,
    /// The buffers inside it.
    pub buffers: Vec<usize>,
}

/// Where a region lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegionMemory {
    /// Part of a field root.
    Root { root: u32, start: u64, bytes: u64 },
    /// A whole array argument.
    Array { buffer: usize },
}

impl Region {
    /// Bytes of a copy, in whole words of eight; zero where they are known at run time only.
    pub fn known_bytes(&self) -> u64 {
        if let RegionMemory::Root { bytes, .. } = self.memory { bytes.next_multiple_of(8) } else { 0 }
    }

    /// Bytes of its root that lie before it.
    pub fn start(&self) -> u64 {
        if let RegionMemory::Root { start, .. } = self.memory { start } else { 0 }
    }
}

/// Which iterations a thread runs at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grouping {
    /// How many neighbors of the last axis.
    pub lanes: u32,
    /// The threads of a block run tiles of the last two axes, of [`TILE_COLUMNS`] threads in a row.
    pub tiles: bool,
    /// Required alignment of the arrays, in bytes.
    pub alignment: u32,
    /// Minimum number of iterations.
    pub least_iterations: u64,
    /// Minimum extent of the last axis.
    pub least_row: u64,
}

/// Threads of a block that are next to one another in a row of a tile.
pub const TILE_COLUMNS: u32 = 32;
