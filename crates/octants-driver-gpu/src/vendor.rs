//! [`Vendor`]: the differences between vendors besides function names: constants, words, and a few functions.

use std::ffi::{c_int, c_uint, c_void};
use std::fmt;

use octants_runtime::Pattern;

use crate::symbols::{DeviceAttribute, RawDevice, RawFunction, RawStream};

/// The result of a vendor's own function: its value, or its name and the error code.
pub type Called<T> = Result<T, (&'static str, c_int)>;

/// A thread's current device or context, as the vendor represents it; zero for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place(pub u64);

/// A device, for functions on two devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Located {
    /// The device.
    pub device: RawDevice,
    /// Its value as a thread's current one.
    pub place: Place,
}

/// A vendor's constants and words.
#[derive(Debug)]
pub struct Facts {
    /// The name of the interface.
    pub api: &'static str,
    /// Environment variable that hides devices from a process.
    pub visible: &'static str,
    /// Name of the vendor's GPUs, for messages after "no".
    pub gpu: &'static str,
    /// DLPack's number for the device's memory.
    pub dlpack: i32,
    /// The array-interface attribute of Python objects for device memory.
    pub array_protocol: Option<&'static str>,
    /// The handle of the null stream.
    pub null_stream: u64,
    /// The DLPack handle of the default stream.
    pub unnamed_stream: u64,
    /// Codes after which the device is lost.
    pub final_codes: &'static [i32],
    /// Attribute: how many multiprocessors there are.
    pub multiprocessors: DeviceAttribute,
    /// Attribute: whether there are cooperative launches.
    pub cooperates: DeviceAttribute,
    /// Attribute: threads of a warp.
    pub warp: DeviceAttribute,
    /// Attribute: kilohertz of the clock that code can read, if its rate is fixed.
    pub clock_rate: Option<DeviceAttribute>,
    /// Attribute: whether there are pools of memory.
    pub pools: DeviceAttribute,
    /// Flags of pinned memory that all devices can access, coherent while work runs.
    pub host_flags: c_uint,
    /// Loading code accepts options for the assembler's log.
    pub assembles: bool,
}

/// The assembler, which runs before code is loaded.
pub trait Assembler: fmt::Debug + Send + Sync + 'static {
    /// The machine code; `None` if assembly fails, so that text must be loaded.
    fn assemble(&self, text: &[u8]) -> Option<Vec<u8>>;
}

/// The threads of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GridShape {
    /// Blocks.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Dynamic shared memory per block in bytes, in addition to what the code declares.
    pub block_bytes: u32,
}

impl GridShape {
    /// One thread.
    pub const ONE: GridShape = GridShape { blocks: 1, threads: 1, block_bytes: 0 };

    /// Threads of all blocks.
    pub fn all_threads(self) -> u64 {
        u64::from(self.blocks) * u64::from(self.threads)
    }
}

/// A launch of a function with one parameter, as a node of a graph.
#[derive(Debug, Clone, Copy)]
pub struct KernelNode {
    /// The function.
    pub function: RawFunction,
    /// The grid.
    pub shape: GridShape,
    /// The address of the parameter.
    pub parameter: *mut c_void,
}

/// A fill, as a node of a graph.
#[derive(Debug, Clone, Copy)]
pub struct FillNode {
    /// The first byte.
    pub at: u64,
    /// The repeated pattern.
    pub pattern: Pattern,
    /// Length in bytes.
    pub bytes: u64,
}

/// A copy on the device, as a node of a graph.
#[derive(Debug, Clone, Copy)]
pub struct CopyNode {
    /// The first byte to write.
    pub to: u64,
    /// The first byte to read.
    pub from: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// A graph that is described, in the vendor's handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawGraph(pub *mut c_void);
/// A node of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawNode(pub *mut c_void);
/// A graph that is ready to be launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadyGraph(pub *mut c_void);

/// A vendor's graphs: work that is described once and launched often. Requires that the device is current and that
/// functions' modules are loaded. Handles come from the same vendor and have not been destroyed. Parameters are copied
/// before a call returns.
#[allow(clippy::missing_safety_doc)] // One contract for all, above.
pub trait Graphs {
    /// A graph without nodes.
    unsafe fn create(&self) -> Called<RawGraph>;

    /// Adds a kernel, which runs after other nodes of the graph.
    unsafe fn add_kernel(&self, to: RawGraph, dependencies: &[RawNode], kernel: &KernelNode) -> Called<RawNode>;

    /// Adds a kernel that runs after another one (programmatic dependent launch). Its blocks may start early; its code
    /// waits for the other kernel.
    unsafe fn add_waiting_kernel(&self, to: RawGraph, dependencies: RawNode, kernel: &KernelNode) -> Called<RawNode> {
        // SAFETY: the trait's contract.
        unsafe { self.add_kernel(to, &[dependencies], kernel) }
    }

    /// Adds a kernel whose blocks are resident all at the same time.
    unsafe fn add_resident(&self, to: RawGraph, dependencies: &[RawNode], kernel: &KernelNode) -> Called<RawNode>;

    /// Adds an empty node that waits for several others.
    unsafe fn add_join(&self, to: RawGraph, dependencies: &[RawNode]) -> Called<RawNode>;

    /// Adds a fill, which runs after other nodes.
    unsafe fn add_fill(&self, to: RawGraph, dependencies: &[RawNode], fill: &FillNode) -> Called<RawNode>;

    /// Adds a copy, which runs after other nodes.
    unsafe fn add_copy(&self, to: RawGraph, dependencies: &[RawNode], copy: &CopyNode) -> Called<RawNode>;

    /// Instantiates a graph, with the graphs within it.
    unsafe fn make_ready(&self, graph: RawGraph) -> Called<ReadyGraph>;

    /// Updates a kernel node for later launches.
    unsafe fn exchange(&self, graph: ReadyGraph, node: RawNode, kernel: &KernelNode) -> Called<()>;

    /// Launches.
    unsafe fn launch(&self, graph: ReadyGraph, stream: RawStream) -> Called<()>;

    /// Destroys an instantiated graph; queued work of it still runs.
    unsafe fn destroy_ready(&self, graph: ReadyGraph);

    /// Destroys a graph, with the graphs within it.
    unsafe fn destroy(&self, graph: RawGraph);

    /// Conditional nodes, if the vendor has them.
    fn loops(&self) -> Option<&dyn GraphLoops> {
        None
    }

    /// Access to other libraries' stream captures, if the vendor allows it.
    fn captures(&self) -> Option<&dyn GraphCaptures> {
        None
    }
}

/// Access to graphs that another library is capturing: see [`Graphs`].
#[allow(clippy::missing_safety_doc)] // As there.
pub trait GraphCaptures {
    /// The graph, and the nodes that the stream's next work would depend on; `None` without a capture.
    unsafe fn under_way(&self, stream: RawStream) -> Called<Option<(RawGraph, Vec<RawNode>)>>;

    /// Makes the stream's next work depend on exactly these nodes of the graph.
    unsafe fn continue_after(&self, stream: RawStream, nodes: &[RawNode]) -> Called<()>;
}

/// The parameter of the function `decide` of [`GraphLoops::code`]. It reads the integer at `condition`, or 1 without
/// one, extended with zeros and limited to `most`. It sets `switch` to that number; with `equals`, to whether it is
/// `equals - 1`. Once something has `failed` or `ended`, it sets it to `off`.
///
/// - Before that it adds one to `rounds`. Without a switch it only sets `rounds` and `for_host` to zero.
/// - With a `checkpoint` and a condition that is not zero it writes that number to `ended` and `for_host`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Decision {
    /// The switch of the loop or branch; zero for none.
    pub switch: u64,
    /// Size of the condition: 1, 2, 4 or 8; 0 for no condition, which is always true.
    pub bytes: u64,
    /// Address of a 32-bit word that is not zero once an assertion has failed; zero for none.
    pub failed: u64,
    /// Address of the 64-bit number of completed rounds; zero if unused.
    pub rounds: u64,
    /// Address of the 64-bit number of the checkpoint where the launch has ended; zero without checkpoints.
    pub ended: u64,
    /// Address of a copy of that; zero if this kernel does not write it.
    pub for_host: u64,
    /// The number of the checkpoint before this kernel; zero for none.
    pub checkpoint: u64,
    /// Address of the condition.
    pub condition: u64,
    /// The largest number.
    pub most: u64,
    /// The number for which the switch is on, plus one; zero if the number is the state.
    pub equals: u64,
    /// The state in which nothing runs, as 32 bits.
    pub off: u64,
}

impl Decision {
    /// The parameter as words.
    pub fn words(&self) -> [u64; 11] {
        let Decision { switch, bytes, failed, rounds, ended, for_host, checkpoint, condition, most, equals, off } =
            *self;
        [switch, bytes, failed, rounds, ended, for_host, checkpoint, condition, most, equals, off]
    }
}

/// A vendor's conditional nodes: see [`Graphs`].
#[allow(clippy::missing_safety_doc)] // As there.
pub trait GraphLoops {
    /// Code with a function `decide` for one thread, with a [`Decision`] as its only parameter.
    fn code(&self) -> &'static [u8];

    /// Creates a switch for a loop in this graph. It is on when a launch of the outermost graph begins, and keeps its
    /// state between the rounds of an enclosing loop.
    unsafe fn create_switch(&self, to: RawGraph) -> Called<u64>;

    /// Adds a loop node after others: an empty graph that runs repeatedly while the switch is on. Returns the node and
    /// the graph.
    unsafe fn add_loop(&self, to: RawGraph, switch: u64, dependencies: &[RawNode]) -> Called<(RawNode, RawGraph)>;

    /// Adds a conditional node after others: an empty graph that runs once if the switch is on by then. Returns the
    /// node and the graph.
    unsafe fn add_choice(&self, to: RawGraph, switch: u64, dependencies: &[RawNode]) -> Called<(RawNode, RawGraph)>;

    /// Whether [`GraphLoops::add_cases`] is available.
    fn has_cases(&self) -> bool;

    /// Adds a node after others with several empty graphs, of which it runs the one whose position is the switch's
    /// state; none for a larger state. Returns the node and the graphs.
    unsafe fn add_cases(
        &self,
        to: RawGraph,
        switch: u64,
        cases: usize,
        dependencies: &[RawNode],
    ) -> Called<(RawNode, Vec<RawGraph>)>;
}

/// A vendor's own functions.
pub trait Vendor: fmt::Debug + Send + Sync + 'static {
    /// Constants and words.
    fn facts(&self) -> &'static Facts;

    /// A code as the vendor calls it, and its sentence.
    fn describe(&self, code: c_int) -> String;

    /// The message for a function that the library lacks.
    fn explain_missing(&self, symbol: &str) -> String;

    /// Makes a device usable. Returns the value of [`Vendor::current`] on it.
    fn open(&self, device: RawDevice) -> Called<Place>;

    /// This thread's current context.
    fn current(&self) -> Called<Place>;

    /// Makes `to` this thread's current device instead of `from`. True if that must be undone.
    ///
    /// # Safety
    /// `to` is open.
    unsafe fn switch(&self, from: Place, to: Place) -> Called<bool>;

    /// Undoes a switch.
    ///
    /// # Safety
    /// This thread's last switch that is not undone was from `from`.
    unsafe fn switch_back(&self, from: Place);

    /// Raises the limit of dynamic shared memory per block for launches of a function.
    ///
    /// # Safety
    /// The function's module is loaded, and its device this thread's.
    unsafe fn allow_block_memory(&self, function: RawFunction, bytes: u32) -> Called<()>;

    /// Launches a kernel that may start before the stream's previous kernel ends (programmatic dependent launch): its
    /// code waits for that. `None` if the vendor or the library lacks this.
    ///
    /// # Safety
    /// As a launch: the function's module is loaded, the stream alive, and `parameters` are the function's.
    unsafe fn launch_early(
        &self,
        _function: RawFunction,
        _shape: GridShape,
        _stream: RawStream,
        _parameters: *mut *mut c_void,
    ) -> Option<Called<()>> {
        None
    }

    /// Copies from one device to another, which is the thread's current one.
    ///
    /// # Safety
    /// Both are open, the memory is theirs, and the stream is one of the thread's device.
    unsafe fn copy_between(
        &self,
        to: (u64, Located),
        from: (u64, Located),
        bytes: usize,
        stream: RawStream,
    ) -> Called<()>;

    /// The vendor's graphs, if they are used.
    fn graphs(&self) -> Option<&dyn Graphs> {
        None
    }

    /// Clears the thread's sticky error code, if the library keeps one: another library in the process would mistake it
    /// for the result of its own call.
    fn forget_error(&self) {}
}
