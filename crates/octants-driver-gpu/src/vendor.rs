//! [`Vendor`]: the differences between vendors besides function names: constants, words, and a few functions.

use std::ffi::{c_int, c_uint, c_void};
use std::fmt;

use octants_runtime::Pattern;

use crate::symbols::{DeviceAttribute, RawDevice, RawFunction, RawStream};

/// The result of a vendor's own function: its value, or its name and the error code.
pub type Called<T> = Result<T, (&'static str, c_int)>;

/// Whose device a thread is on, in the vendor's own terms; zero for nobody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place(pub u64);

/// A device, as functions that work on two of them name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Located {
    /// The device.
    pub device: RawDevice,
    /// Whose it is, on a thread.
    pub place: Place,
}

/// Numbers and words of a vendor.
#[derive(Debug)]
pub struct Facts {
    /// The name of the interface.
    pub api: &'static str,
    /// Environment variable that hides devices from a process.
    pub visible: &'static str,
    /// What a GPU of the vendor is called, after "no".
    pub gpu: &'static str,
    /// DLPack's number for the device's memory.
    pub dlpack: i32,
    /// The attribute by which Python objects show arrays in the device's memory.
    pub array_protocol: Option<&'static str>,
    /// The handle of the null stream.
    pub null_stream: u64,
    /// The DLPack handle of the default stream.
    pub unnamed_stream: u64,
    /// Codes after which the device works no more.
    pub final_codes: &'static [i32],
    /// Attribute: how many multiprocessors there are.
    pub multiprocessors: DeviceAttribute,
    /// Attribute: how many threads run in step.
    pub warp: DeviceAttribute,
    /// Attribute: kilohertz of the clock that code can read, where it has a fixed rate.
    pub clock_rate: Option<DeviceAttribute>,
    /// Attribute: whether there are pools of memory.
    pub pools: DeviceAttribute,
    /// Flags of pinned memory that all devices reach, and whose contents host and device see while work runs.
    pub host_flags: c_uint,
    /// Loading code takes options that have the assembler's messages written down.
    pub assembles: bool,
}

/// The assembler, which runs before code is loaded.
pub trait Assembler: fmt::Debug + Send + Sync + 'static {
    /// The machine code; `None` where it cannot be made, so that text is to be loaded.
    fn assemble(&self, text: &[u8]) -> Option<Vec<u8>>;
}

/// The threads of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GridShape {
    /// Blocks.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of shared memory of a block, beside those that the code declares.
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
    /// Where the parameter is.
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

/// A vendor's graphs: work that is described once and launched often. The device is the thread's own where these are
/// called; functions' modules are loaded, and parameters are copied before a call returns. Handles come from the same
/// vendor and were not given back.
#[allow(clippy::missing_safety_doc)] // One contract for all, above.
pub trait Graphs {
    /// A graph without nodes.
    unsafe fn create(&self) -> Called<RawGraph>;

    /// Adds a kernel, which runs after other nodes of the graph.
    unsafe fn add_kernel(&self, to: RawGraph, behind: &[RawNode], kernel: &KernelNode) -> Called<RawNode>;

    /// Adds a kernel that runs after another one, and whose code waits for it: its blocks may be there before that.
    unsafe fn add_waiting_kernel(&self, to: RawGraph, behind: RawNode, kernel: &KernelNode) -> Called<RawNode> {
        // SAFETY: the trait's contract.
        unsafe { self.add_kernel(to, &[behind], kernel) }
    }

    /// Adds an empty node that waits for several others.
    unsafe fn add_join(&self, to: RawGraph, behind: &[RawNode]) -> Called<RawNode>;

    /// Adds a fill, which runs after other nodes.
    unsafe fn add_fill(&self, to: RawGraph, behind: &[RawNode], fill: &FillNode) -> Called<RawNode>;

    /// Adds a copy, which runs after other nodes.
    unsafe fn add_copy(&self, to: RawGraph, behind: &[RawNode], copy: &CopyNode) -> Called<RawNode>;

    /// Makes what was described ready. Graphs within it are part of it.
    unsafe fn make_ready(&self, graph: RawGraph) -> Called<ReadyGraph>;

    /// Exchanges a kernel, for launches from now on.
    unsafe fn exchange(&self, graph: ReadyGraph, node: RawNode, kernel: &KernelNode) -> Called<()>;

    /// Launches.
    unsafe fn launch(&self, graph: ReadyGraph, stream: RawStream) -> Called<()>;

    /// Gives a graph back that is ready; work of it that is queued still runs.
    unsafe fn destroy_ready(&self, graph: ReadyGraph);

    /// Gives a description back, with those of the graphs within it.
    unsafe fn destroy(&self, graph: RawGraph);

    /// Nodes that run repeatedly, where the vendor has them.
    fn loops(&self) -> Option<&dyn GraphLoops> {
        None
    }

    /// Access to graphs that others make of a stream's work, where the vendor grants it.
    fn captures(&self) -> Option<&dyn GraphCaptures> {
        None
    }
}

/// A vendor's graphs that another library makes of a stream's work: see [`Graphs`].
#[allow(clippy::missing_safety_doc)] // As there.
pub trait GraphCaptures {
    /// The graph, and the nodes that the stream's next work would come after; `None` where none is made.
    unsafe fn under_way(&self, stream: RawStream) -> Called<Option<(RawGraph, Vec<RawNode>)>>;

    /// Lets the stream's next work come after these nodes of the graph, and no others.
    unsafe fn go_on_behind(&self, stream: RawStream, nodes: &[RawNode]) -> Called<()>;
}

/// The parameter of the function `decide` of [`GraphLoops::code`]. It turns `switch` on where the integer at
/// `condition` is not zero (or where it is, if it `inverts`), and off elsewhere. The switch is off in any case where
/// something has `failed` or `ended`.
///
/// - Ahead of that it adds one to `rounds`. Without a switch it sets that, and `for_host`, to zero, and does no more.
/// - With a `checkpoint` and a condition that is not zero it writes that number to `ended` and `for_host`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Decision {
    /// The loop's or the branch's; zero for none.
    pub switch: u64,
    /// Size of what decides: 1, 2, 4 or 8; 0 where there is none, which is as one that is not zero.
    pub bytes: u64,
    /// Address of a 32-bit word that is not zero once an assertion has failed; zero for none.
    pub failed: u64,
    /// Address of the number of rounds that have ended, of 64 bits; zero where no one asks for it.
    pub rounds: u64,
    /// 1 where the switch is to be on for a condition that is zero.
    pub inverts: u64,
    /// Address of the number of the checkpoint where the launch has ended, of 64 bits; zero where there are none.
    pub ended: u64,
    /// Address of a copy of that; zero where this does not write it.
    pub for_host: u64,
    /// The number of the checkpoint that this is after; zero where it is after none.
    pub checkpoint: u64,
    /// Address of what decides.
    pub condition: u64,
}

impl Decision {
    /// The parameter as words.
    pub fn words(&self) -> [u64; 9] {
        let Decision { switch, bytes, failed, rounds, inverts, ended, for_host, checkpoint, condition } = *self;
        [switch, bytes, failed, rounds, inverts, ended, for_host, checkpoint, condition]
    }
}

/// A vendor's nodes that run repeatedly, or only sometimes: see [`Graphs`].
#[allow(clippy::missing_safety_doc)] // As there.
pub trait GraphLoops {
    /// Code with a function `decide` for one thread, with a [`Decision`] as its only parameter.
    fn code(&self) -> &'static [u8];

    /// A switch for a loop in this graph. It is on where a launch of the outermost graph begins; the next round of a
    /// loop around it finds it as it was left.
    unsafe fn create_switch(&self, to: RawGraph) -> Called<u64>;

    /// Adds a node that runs after others: a graph, to be filled with nodes, repeatedly while the switch is
    /// on. The node, and the graph.
    unsafe fn add_loop(&self, to: RawGraph, switch: u64, behind: &[RawNode]) -> Called<(RawNode, RawGraph)>;

    /// Adds a node that runs after others: a graph, to be filled with nodes, once if the switch is on by then.
    unsafe fn add_choice(&self, to: RawGraph, switch: u64, behind: &[RawNode]) -> Called<(RawNode, RawGraph)>;
}

/// A vendor's own functions.
pub trait Vendor: fmt::Debug + Send + Sync + 'static {
    /// Numbers and words.
    fn facts(&self) -> &'static Facts;

    /// A code as the vendor calls it, and its sentence.
    fn describe(&self, code: c_int) -> String;

    /// The message for a function that the library lacks.
    fn explain_missing(&self, symbol: &str) -> String;

    /// Makes a device usable, and tells what [`Vendor::current`] answers on it.
    fn open(&self, device: RawDevice) -> Called<Place>;

    /// What this thread works on.
    fn current(&self) -> Called<Place>;

    /// Makes `to` what this thread works on, instead of `from`. True when that has to be undone.
    ///
    /// # Safety
    /// `to` was opened.
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

    /// Copies from one device to another, which is the thread's own.
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

    /// The vendor's graphs, where they are used.
    fn graphs(&self) -> Option<&dyn Graphs> {
        None
    }

    /// Forgets the code of the last call that failed, where the library keeps it for a thread to ask for: another
    /// library in the process would take it for that of a call of its own.
    fn forget_error(&self) {}
}
