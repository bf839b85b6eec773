//! [`Description`]: the sections of a kernel as nodes of a vendor's graph.
//!
//! Sequential tasks form a chain of kernels. Groups are branches that an empty node joins. A loop is a node with its
//! own graph, at whose end a single-thread kernel decides whether it runs again. A conditional is a node with a graph
//! per branch, after a kernel that decides which of them runs; without such nodes, each branch is a node of its own
//! (`describe_choices`). The part after a checkpoint is a branch that runs unless the launch ends there. A section
//! depends on the last node before it.

mod describe_choices;

use std::ffi::c_void;
use std::ops::Range;

use octants_artifact::{Condition, DeviceChannel};
use octants_runtime::{CheckpointWords, DataDependentLoop, Launch, Section, checkpoint_labels, loops_of};

use crate::context::{Context, Entered};
use crate::loaded_code::LoadedCode;
use crate::loaded_task::load_code;
use crate::symbols::RawFunction;
use crate::vendor::{
    Called, CopyNode, Decision, FillNode, GraphLoops, Graphs, GridShape, KernelNode, RawGraph, RawNode,
};

/// A kernel node of a graph, with its current parameters.
#[derive(Debug)]
pub struct Node {
    /// The vendor's node.
    pub raw: RawNode,
    what: What,
    current: KernelParameters,
}

#[derive(Debug, Clone, Copy)]
enum What {
    /// A task of the module.
    Task(usize, OfLoop),
    /// A loop of the module that is one launch, by its index.
    Loop(usize),
    /// The decision kernel that sets a switch.
    Decision(RawFunction, Turn),
    /// The kernel that resets the round counter of the loop of this number.
    NoRounds(RawFunction, u32),
    /// The kernel that resets the number of the checkpoint that ended the launch.
    NoEnd(RawFunction),
}

/// What a task gets as [`DeviceContext::of_loop`](octants_artifact::DeviceContext::of_loop).
#[derive(Debug, Clone, Copy)]
enum OfLoop {
    Nothing,
    /// The round counter of the loop of this number.
    Rounds(u32),
    /// The guard at this offset in the frame.
    Guard(u64),
}

impl OfLoop {
    fn address(self, launch: &Launch<'_>) -> u64 {
        match self {
            OfLoop::Nothing => 0,
            OfLoop::Rounds(number) => launch.rounds_at(number),
            OfLoop::Guard(offset) => launch.frame.0 + offset,
        }
    }
}

/// How a switch is set.
#[derive(Debug, Clone, Copy, Default)]
struct Turn {
    /// Zero for none.
    switch: u64,
    /// Without one the switch is on.
    condition: Option<Condition>,
    /// How the switch's state follows from the condition.
    state: SwitchState,
    /// Set if this ends a round of the loop of this number.
    ends: Option<u32>,
    /// The number of a checkpoint, where the launch ends if the condition is not zero.
    checkpoint: u64,
}

/// How the state of a switch follows from its condition.
#[derive(Debug, Clone, Copy, Default)]
enum SwitchState {
    /// On if the condition is nonzero.
    #[default]
    Nonzero,
    /// On if the condition equals the first number. Values above the second number count as the second.
    Equal(u64, u64),
    /// The value of the condition, at most this number.
    Value(u64),
}

impl SwitchState {
    /// The members `most`, `equals` and `off` of a [`Decision`].
    fn words(self) -> (u64, u64, u64) {
        match self {
            SwitchState::Nonzero => (1, 0, 0),
            SwitchState::Equal(number, most) => (most, number + 1, 0),
            SwitchState::Value(most) => (most, 0, u32::MAX.into()),
        }
    }
}

/// A node's parameters: all that may differ between launches.
#[derive(Debug, PartialEq)]
struct KernelParameters {
    function: RawFunction,
    shape: GridShape,
    parameter: Vec<u64>,
}

impl KernelParameters {
    fn decision(function: RawFunction, decision: Decision) -> KernelParameters {
        KernelParameters { function, shape: GridShape::ONE, parameter: decision.words().to_vec() }
    }

    fn node(&self) -> KernelNode {
        let parameter = self.parameter.as_ptr().cast_mut().cast::<c_void>();
        KernelNode { function: self.function, shape: self.shape, parameter }
    }
}

impl What {
    /// The parameters for a launch; `None` if the launch cannot be a node of a graph.
    fn parameters(self, calls: &Entered<'_>, code: &LoadedCode, launch: &Launch<'_>) -> Option<KernelParameters> {
        Some(match self {
            What::Task(number, within) => {
                let task = code.tasks.get(number)?;
                let (function, shape) = task.plan_node(calls, launch.args)?;
                let of_loop = within.address(launch);
                KernelParameters { function, shape, parameter: task.parameter(launch, of_loop).words().to_vec() }
            }
            What::Loop(index) => {
                let of = code.loops.get(index)?;
                let (function, shape) = of.plan(&code.tasks, launch.args);
                KernelParameters { function, shape, parameter: of.parameter(launch).words().to_vec() }
            }
            What::NoRounds(function, number) => KernelParameters::decision(
                function,
                Decision { rounds: launch.rounds_at(number), ..Decision::default() },
            ),
            What::NoEnd(function) => {
                let (rounds, for_host) = (launch.end.in_frame.0, launch.end.for_host.0);
                KernelParameters::decision(function, Decision { rounds, for_host, ..Decision::default() })
            }
            What::Decision(function, Turn { switch, condition, state, ends, checkpoint }) => {
                let failed = match launch.channel.0 {
                    0 => 0,
                    channel => channel + std::mem::offset_of!(DeviceChannel, failed) as u64,
                };
                let (at, bytes) = match condition {
                    None => (0, 0),
                    Some(c) => (c.address(launch.args, launch.frame.0)?, u64::from(c.kind.bytes())),
                };
                let rounds = ends.map_or(0, |number| launch.rounds_at(number));
                let (ended, (most, equals, off)) = (launch.end.in_frame.0, state.words());
                let for_host = if checkpoint == 0 { 0 } else { launch.end.for_host.0 };
                let (condition, decision) = (at, Decision { most, equals, off, ..Decision::default() });
                let decision = Decision { switch, condition, bytes, failed, rounds, ended, ..decision };
                KernelParameters::decision(function, Decision { for_host, checkpoint, ..decision })
            }
        })
    }
}

impl Node {
    /// The node's new parameters for this launch, if they differ. An error if the launch cannot use the graph.
    pub fn update_parameters(
        &mut self,
        calls: &Entered<'_>,
        code: &LoadedCode,
        launch: &Launch<'_>,
    ) -> Result<Option<KernelNode>, NotAGraph> {
        let current = self.what.parameters(calls, code, launch).ok_or(NotAGraph::Now)?;
        if current == self.current {
            return Ok(None);
        }
        self.current = current;
        Ok(Some(self.current.node()))
    }
}

/// Why a launch cannot use a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAGraph {
    /// This launch cannot; others may.
    Now,
    /// No launch can.
    Ever,
}

/// A graph under construction.
pub struct Description<'a> {
    graphs: &'a dyn Graphs,
    calls: &'a Entered<'a>,
    /// The decision function for loops and choices, if available.
    decide: Option<RawFunction>,
    outermost: RawGraph,
    /// The graph belongs to another library, which knows only plain edges.
    shared: bool,
    /// The kernels so far.
    pub nodes: Vec<Node>,
}

/// A launch that is being added.
#[derive(Clone, Copy)]
struct Described<'a> {
    code: &'a LoadedCode,
    launch: &'a Launch<'a>,
    /// What its tasks get of the loop around them.
    within: OfLoop,
    /// The switches of the checkpoints.
    labels: &'a [i64],
}

impl<'a> Description<'a> {
    /// For a new, empty graph.
    pub fn of(graphs: &'a dyn Graphs, graph: RawGraph, calls: &'a Entered<'a>) -> Description<'a> {
        Description { graphs, calls, decide: None, outermost: graph, shared: false, nodes: Vec::new() }
    }

    /// For additions to another library's graph.
    pub fn within(graphs: &'a dyn Graphs, graph: RawGraph, calls: &'a Entered<'a>) -> Description<'a> {
        Description { shared: true, ..Description::of(graphs, graph, calls) }
    }

    /// Adds a module's tasks, according to its sections, after some nodes. Returns their final nodes.
    ///
    /// # Safety
    /// The module stays loaded while the graph exists; `launch` is one of its launches.
    pub unsafe fn add(
        &mut self,
        dependencies: Vec<RawNode>,
        (code, sections): (&LoadedCode, &[Section]),
        launch: &Launch<'_>,
    ) -> Result<Vec<RawNode>, NotAGraph> {
        if decides(sections) && self.decide.is_none() {
            self.decide = decider(self.calls.context());
        }
        let in_order = [Section::InOrder(0..code.tasks.len())];
        let sections = if sections.is_empty() { &in_order } else { sections };
        let labels = &checkpoint_labels(sections);
        let what = Described { code, launch, within: OfLoop::Nothing, labels };
        let mut dependencies = dependencies;
        let mut resets = Vec::new();
        if launch.rounds.0 != 0 {
            let function = self.decide.ok_or(NotAGraph::Ever)?;
            resets.extend((0..loops_of(sections) as u32).map(|number| What::NoRounds(function, number)));
        }
        if launch.end != CheckpointWords::NONE {
            resets.push(What::NoEnd(self.decide.ok_or(NotAGraph::Ever)?));
        }
        for reset in resets {
            // SAFETY: the contract above.
            dependencies = vec![unsafe { self.kernel(&what, self.outermost, &dependencies, reset)? }];
        }
        // SAFETY: the contract above.
        unsafe { self.sections(&what, self.outermost, dependencies, sections) }
    }

    /// Adds a fill after some nodes.
    ///
    /// # Safety
    /// The memory stays allocated on the device while the graph exists.
    pub unsafe fn add_fill(&mut self, dependencies: &[RawNode], fill: &FillNode) -> Result<RawNode, NotAGraph> {
        // SAFETY: the contract above.
        ever(unsafe { self.graphs.add_fill(self.outermost, dependencies, fill) })
    }

    /// Adds a copy after some nodes.
    ///
    /// # Safety
    /// As [`Description::add_fill`].
    pub unsafe fn add_copy(&mut self, dependencies: &[RawNode], copy: &CopyNode) -> Result<RawNode, NotAGraph> {
        // SAFETY: the contract above.
        ever(unsafe { self.graphs.add_copy(self.outermost, dependencies, copy) })
    }

    /// Adds sections after some nodes. Returns the last nodes.
    ///
    /// # Safety
    /// As [`Description::add`].
    unsafe fn sections(
        &mut self,
        what: &Described<'_>,
        to: RawGraph,
        dependencies: Vec<RawNode>,
        sections: &[Section],
    ) -> Result<Vec<RawNode>, NotAGraph> {
        let mut last = dependencies;
        for (at, section) in sections.iter().enumerate() {
            let rest = &sections[at + 1..];
            // SAFETY: the contract above.
            last = unsafe {
                match section {
                    Section::InOrder(tasks) => self.chain(what, to, last, tasks.clone())?,
                    Section::Groups(groups) => {
                        let mut ends = Vec::with_capacity(groups.len());
                        for group in groups {
                            ends.extend(self.sections(what, to, last.clone(), group)?);
                        }
                        vec![ever(self.graphs.add_join(to, &ends))?]
                    }
                    Section::While(of, body) => vec![self.rounds(what, to, &last, (*of, body))?],
                    Section::If(condition, branches) => self.choice(what, to, last, (*condition, branches))?,
                    Section::Switch(selector, parts) => self.cases(what, to, last, (*selector, parts))?,
                    Section::Checkpoint(label, condition, body) => {
                        let last = self.sections(what, to, last, body)?;
                        let place = what.labels.iter().position(|l| l == label).ok_or(NotAGraph::Ever)?;
                        let state = SwitchState::Equal(0, 1);
                        let turn = Turn { condition: Some(*condition), state, ..Turn::default() };
                        return self.rest(what, to, last, (Turn { checkpoint: place as u64 + 1, ..turn }, rest));
                    }
                }
            };
            if !rest.is_empty() && !checkpoint_labels(std::slice::from_ref(section)).is_empty() {
                // SAFETY: the contract above.
                return unsafe { self.rest(what, to, last, (Turn::default(), rest)) };
            }
        }
        Ok(last)
    }

    /// Adds sections that run unless the launch has ended at a checkpoint.
    ///
    /// # Safety
    /// As [`Description::add`].
    unsafe fn rest(
        &mut self,
        what: &Described<'_>,
        to: RawGraph,
        dependencies: Vec<RawNode>,
        (turn, rest): (Turn, &[Section]),
    ) -> Result<Vec<RawNode>, NotAGraph> {
        let loops: &dyn GraphLoops = self.graphs.loops().ok_or(NotAGraph::Ever)?;
        let function = self.decide.ok_or(NotAGraph::Ever)?;
        // SAFETY: the contract above.
        unsafe {
            let switch = if rest.is_empty() { 0 } else { ever(loops.create_switch(to))? };
            let decision =
                vec![self.kernel(what, to, &dependencies, What::Decision(function, Turn { switch, ..turn }))?];
            if rest.is_empty() {
                return Ok(decision);
            }
            let (node, inside) = ever(loops.add_choice(to, switch, &decision))?;
            self.sections(what, inside, Vec::new(), rest)?;
            Ok(vec![node])
        }
    }

    /// # Safety
    /// As [`Description::add`].
    unsafe fn chain(
        &mut self,
        what: &Described<'_>,
        to: RawGraph,
        dependencies: Vec<RawNode>,
        tasks: Range<usize>,
    ) -> Result<Vec<RawNode>, NotAGraph> {
        let first = tasks.start;
        let mut made: Vec<RawNode> = Vec::with_capacity(tasks.len());
        // The nodes without successors.
        let mut ends: Vec<usize> = Vec::new();
        let mut full_before = false;
        // The driver launches nodes without edges one by one, which takes the host about as long as such a task runs.
        let all_short = tasks.clone().all(|t| what.code.tasks[t].is_short && !self.fills_device(what, t));
        for task in tasks {
            let full = self.fills_device(what, task);
            let waits_for: Vec<usize> = match &what.code.tasks[task].depends_on {
                // Two tasks that each fill the device do not benefit from running concurrently.
                Some(tasks) if !(all_short || full && full_before) => {
                    tasks.iter().filter_map(|b| (*b as usize).checked_sub(first)).collect()
                }
                _ => ends.clone(),
            };
            let nodes: Vec<RawNode> = waits_for.iter().map(|w| made[*w]).collect();
            let nodes = if nodes.is_empty() { &dependencies } else { &nodes };
            // SAFETY: the contract above.
            made.push(unsafe { self.kernel(what, to, nodes, What::Task(task, what.within))? });
            ends.retain(|end| !waits_for.contains(end));
            ends.push(task - first);
            full_before = full;
        }
        Ok(if made.is_empty() { dependencies } else { ends.into_iter().map(|end| made[end]).collect() })
    }

    /// Whether a launch of the task fills the device.
    fn fills_device(&self, what: &Described<'_>, task: usize) -> bool {
        let task = &what.code.tasks[task];
        let planned = task.plan_node(self.calls, what.launch.args);
        planned.zip(task.max_resident_threads()).is_some_and(|((_, shape), most)| shape.all_threads() >= most)
    }

    /// # Safety
    /// As [`Description::add`].
    unsafe fn rounds(
        &mut self,
        what: &Described<'_>,
        to: RawGraph,
        dependencies: &[RawNode],
        (of, body): (DataDependentLoop, &[Section]),
    ) -> Result<RawNode, NotAGraph> {
        if let Some(index) = self.loop_in_one_launch(what, to, of.number) {
            // SAFETY: the contract above.
            return unsafe { self.kernel(what, to, dependencies, What::Loop(index)) };
        }
        let loops: &dyn GraphLoops = self.graphs.loops().ok_or(NotAGraph::Ever)?;
        let function = self.decide.ok_or(NotAGraph::Ever)?;
        // SAFETY: the contract above.
        unsafe {
            let switch = ever(loops.create_switch(to))?;
            let turn = Turn { switch, ..Turn::default() };
            let mut before = dependencies.to_vec();
            if to != self.outermost {
                before = vec![self.kernel(what, to, dependencies, What::Decision(function, turn))?];
            }
            let (node, inside) = ever(loops.add_loop(to, switch, &before))?;
            let mut last = Vec::new();
            // A decision takes longer than the guards of a few small tasks.
            for position in 0..of.guarded.map_or(1, |g| g.per_decision) {
                let within = match of.guarded {
                    None => OfLoop::Rounds(of.number),
                    Some(_) if position == 0 => OfLoop::Nothing,
                    Some(guarded) => OfLoop::Guard(guarded.guard),
                };
                let what = &Described { within, ..*what };
                last = self.sections(what, inside, last, body)?;
            }
            let turn = Turn { ends: Some(of.number), condition: Some(of.condition), ..turn };
            self.kernel(what, inside, &last, What::Decision(function, turn))?;
            Ok(node)
        }
    }

    /// The index of a loop that is better one launch.
    fn loop_in_one_launch(&self, what: &Described<'_>, to: RawGraph, number: u32) -> Option<usize> {
        let code = what.code;
        let is_possible = !self.shared && to == self.outermost && what.launch.channel.0 == 0;
        let of = code.suitable_loop(number, what.launch.args, true).filter(|_| is_possible)?;
        code.loops.iter().position(|l| std::ptr::eq(l, of))
    }

    /// # Safety
    /// As [`Description::add`].
    unsafe fn kernel(
        &mut self,
        of: &Described<'_>,
        to: RawGraph,
        dependencies: &[RawNode],
        what: What,
    ) -> Result<RawNode, NotAGraph> {
        let current = what.parameters(self.calls, of.code, of.launch).ok_or(NotAGraph::Now)?;
        let waits_itself = matches!(what, What::Task(number, _) if of.code.tasks[number].waits_itself);
        // SAFETY: the contract above.
        let raw = ever(unsafe {
            match dependencies {
                [before] if waits_itself && !self.shared && self.is_task(*before) => {
                    self.graphs.add_waiting_kernel(to, *before, &current.node())
                }
                _ if matches!(what, What::Loop(_)) => self.graphs.add_resident(to, dependencies, &current.node()),
                _ => self.graphs.add_kernel(to, dependencies, &current.node()),
            }
        })?;
        self.nodes.push(Node { raw, what, current });
        Ok(raw)
    }

    /// A node is a task, not a loop or a join.
    fn is_task(&self, node: RawNode) -> bool {
        self.nodes.iter().rev().any(|n| n.raw == node && matches!(n.what, What::Task(..)))
    }
}

/// The decision function; `None` if the device does not support it. Loaded on first use, permanently.
pub fn decider(context: &Context) -> Option<RawFunction> {
    *context.decider.get_or_init(|| {
        let loops = context.library().vendor.graphs()?.loops()?;
        let calls = context.enter_aside().ok()?;
        let module = load_code(&calls, loops.code()).ok()?;
        // SAFETY: the module was loaded above.
        unsafe { calls.function(module, "decide") }.ok()
    })
}

fn ever<T>(called: Called<T>) -> Result<T, NotAGraph> {
    called.map_err(|_| NotAGraph::Ever)
}

/// Some section runs repeatedly, or only sometimes.
pub fn decides(sections: &[Section]) -> bool {
    let asks = |s: &Section| !matches!(s, Section::InOrder(_) | Section::Groups(_));
    sections.iter().any(|s| asks(s) || s.parts().iter().any(|part| decides(part)))
}
