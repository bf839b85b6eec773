//! CUDA's graphs of kernels.
//!
//! The functions that add a kernel and exchange its parameters have a second version since CUDA 12, which also takes
//! the context. The first version suffices here, with every driver.

use std::ffi::{c_char, c_uint, c_void};
use std::ptr::null_mut;

use octants_driver_gpu::own_functions;
use octants_driver_gpu::symbols::{RawFunction, RawStream};
use octants_driver_gpu::{
    Called, CopyNode, FillNode, GraphCaptures, GraphLoops, Graphs, KernelNode, RawGraph, RawNode, ReadyGraph,
};
use octants_runtime::Pattern;

use crate::graph_captures::CudaCaptures;
use crate::graph_handles::{CuGraph, CuGraphExec, CuGraphNode, called, raw_nodes};
use crate::graph_loops::CudaLoops;
use crate::symbols::CuContext;

/// `CUDA_KERNEL_NODE_PARAMS`.
#[repr(C)]
#[derive(Debug)]
pub struct NodeParameters {
    function: RawFunction,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_bytes: c_uint,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
}

const _: () = assert!(size_of::<NodeParameters>() == 56);

impl NodeParameters {
    /// `parameter` holds the address of the function's only one.
    fn new(kernel: &KernelNode, parameter: &mut *mut c_void) -> NodeParameters {
        NodeParameters {
            function: kernel.function,
            grid: [kernel.shape.blocks, 1, 1],
            block: [kernel.shape.threads, 1, 1],
            shared_bytes: kernel.shape.block_bytes,
            parameters: parameter,
            extra: null_mut(),
        }
    }
}

/// `CUlaunchAttributeValue`.
#[repr(C)]
#[derive(Debug)]
pub struct NodeAttribute([u64; 8]);

/// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`, whose value is nonzero for a cooperative launch.
const COOPERATIVE: c_uint = 2;

/// `CUDA_MEMSET_NODE_PARAMS`.
#[repr(C)]
#[derive(Debug)]
pub struct FillParameters {
    at: u64,
    /// Bytes from one row to the next; ignored for one row.
    pitch: usize,
    value: c_uint,
    element_bytes: c_uint,
    /// Elements of a row.
    width: usize,
    rows: usize,
}

const _: () = assert!(size_of::<FillParameters>() == 40);

/// Half of `CUDA_MEMCPY3D`: one end of a copy.
#[repr(C)]
#[derive(Debug)]
pub struct CopyEnd {
    /// X in bytes, Y, Z, level of detail.
    offset: [usize; 4],
    memory: c_uint,
    host: *mut c_void,
    device: u64,
    array: *mut c_void,
    reserved: *mut c_void,
    pitch: usize,
    height: usize,
}

impl CopyEnd {
    /// `CU_MEMORYTYPE_DEVICE`.
    const DEVICE: c_uint = 2;

    fn at(device: u64, bytes: usize) -> CopyEnd {
        let (offset, memory, host) = ([0; 4], CopyEnd::DEVICE, null_mut());
        CopyEnd { offset, memory, host, device, array: null_mut(), reserved: null_mut(), pitch: bytes, height: 1 }
    }
}

/// `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Debug)]
pub struct CopyParameters {
    from: CopyEnd,
    to: CopyEnd,
    /// Bytes of a row, rows, and slices.
    extent: [usize; 3],
}

const _: () = assert!(size_of::<CopyParameters>() == 200);

/// CUDA's graphs, with the features that the driver has.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct CudaGraphs {
    pub functions: GraphFunctions,
    /// If it has typed edges.
    pub edges: Option<EdgeFunctions>,
    /// If it has conditional nodes.
    pub loops: Option<CudaLoops>,
    /// If it allows access to captures.
    pub captures: Option<CudaCaptures>,
}

own_functions! {
    /// The functions for graphs. Absent if the driver lacks one.
    GraphFunctions {
        /// A graph without nodes.
        create = "cuGraphCreate"(*mut CuGraph, c_uint);
        /// Gives it back.
        destroy = "cuGraphDestroy"(CuGraph);
        /// Adds a kernel after other nodes.
        add_kernel = "cuGraphAddKernelNode"(
            *mut CuGraphNode, CuGraph, *const CuGraphNode, usize, *const NodeParameters);
        /// Sets an attribute of a kernel node.
        set_attribute = "cuGraphKernelNodeSetAttribute"(CuGraphNode, c_uint, *const NodeAttribute);
        /// Instantiates a graph.
        instantiate = "cuGraphInstantiate_v2"(*mut CuGraphExec, CuGraph, *mut CuGraphNode, *mut c_char, usize);
        /// Destroys an instantiated graph, once its work is done.
        destroy_ready = "cuGraphExecDestroy"(CuGraphExec);
        /// Updates a kernel node.
        set_kernel = "cuGraphExecKernelNodeSetParams"(CuGraphExec, CuGraphNode, *const NodeParameters);
        /// Adds an empty node.
        add_empty = "cuGraphAddEmptyNode"(*mut CuGraphNode, CuGraph, *const CuGraphNode, usize);
        /// Adds a fill.
        add_fill = "cuGraphAddMemsetNode"(
            *mut CuGraphNode, CuGraph, *const CuGraphNode, usize, *const FillParameters, CuContext);
        /// Adds a copy.
        add_copy = "cuGraphAddMemcpyNode"(
            *mut CuGraphNode, CuGraph, *const CuGraphNode, usize, *const CopyParameters, CuContext);
        /// The thread's context.
        context_get = "cuCtxGetCurrent"(*mut CuContext);
        /// Launches.
        launch = "cuGraphLaunch"(CuGraphExec, RawStream);
    }
}

/// `CUgraphEdgeData`.
#[repr(C)]
#[derive(Debug)]
pub struct EdgeKind {
    from_port: u8,
    to_port: u8,
    kind: u8,
    reserved: [u8; 5],
}

/// `CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC` and `CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC`: programmatic dependent launch.
/// The second kernel starts when all blocks of the first have triggered or ended, and itself waits for their end. On an
/// H200 the tasks of a chain of small kernels then took 0.8 microseconds each instead of 1.0.
const PROGRAMMATIC: EdgeKind = EdgeKind { from_port: 1, to_port: 0, kind: 1, reserved: [0; 5] };

own_functions! {
    /// The functions for typed edges, since CUDA 12.3.
    EdgeFunctions {
        /// Adds edges between nodes.
        add_edges = "cuGraphAddDependencies_v2"(
            CuGraph, *const CuGraphNode, *const CuGraphNode, *const EdgeKind, usize);
    }
}

impl CudaGraphs {
    fn context(&self) -> Called<CuContext> {
        let mut context = null_mut();
        // SAFETY: the pointer is to a variable.
        called("cuCtxGetCurrent", unsafe { (self.functions.context_get)(&mut context) }).map(|()| context)
    }
}

impl Graphs for CudaGraphs {
    unsafe fn create(&self) -> Called<RawGraph> {
        let mut graph = null_mut();
        // SAFETY: the pointer is to a variable.
        called("cuGraphCreate", unsafe { (self.functions.create)(&mut graph, 0) })?;
        Ok(RawGraph(graph))
    }

    unsafe fn add_kernel(&self, to: RawGraph, dependencies: &[RawNode], kernel: &KernelNode) -> Called<RawNode> {
        let mut parameter = kernel.parameter;
        let parameters = NodeParameters::new(kernel, &mut parameter);
        let (dependencies, mut node) = (raw_nodes(dependencies), null_mut());
        // SAFETY: the trait's contract; the pointers are to variables.
        let c = unsafe {
            (self.functions.add_kernel)(
                &mut node,
                to.0,
                dependencies.as_ptr(),
                dependencies.len(),
                &raw const parameters,
            )
        };
        called("cuGraphAddKernelNode", c)?;
        Ok(RawNode(node))
    }

    unsafe fn add_waiting_kernel(&self, to: RawGraph, dependencies: RawNode, kernel: &KernelNode) -> Called<RawNode> {
        // SAFETY: the trait's contract; the pointers are to variables.
        unsafe {
            let Some(edges) = &self.edges else { return self.add_kernel(to, &[dependencies], kernel) };
            let node = self.add_kernel(to, &[], kernel)?;
            let c = (edges.add_edges)(to.0, &raw const dependencies.0, &raw const node.0, &PROGRAMMATIC, 1);
            called("cuGraphAddDependencies_v2", c).map(|()| node)
        }
    }

    unsafe fn add_resident(&self, to: RawGraph, dependencies: &[RawNode], kernel: &KernelNode) -> Called<RawNode> {
        // SAFETY: the trait's contract; the pointer is to a constant.
        unsafe {
            let node = self.add_kernel(to, dependencies, kernel)?;
            let c = (self.functions.set_attribute)(node.0, COOPERATIVE, &NodeAttribute([1, 0, 0, 0, 0, 0, 0, 0]));
            called("cuGraphKernelNodeSetAttribute", c).map(|()| node)
        }
    }

    unsafe fn add_join(&self, to: RawGraph, dependencies: &[RawNode]) -> Called<RawNode> {
        let (dependencies, mut node) = (raw_nodes(dependencies), null_mut());
        // SAFETY: as above.
        let c = unsafe { (self.functions.add_empty)(&mut node, to.0, dependencies.as_ptr(), dependencies.len()) };
        called("cuGraphAddEmptyNode", c)?;
        Ok(RawNode(node))
    }

    unsafe fn add_fill(&self, to: RawGraph, dependencies: &[RawNode], fill: &FillNode) -> Called<RawNode> {
        let element = fill.pattern.bytes();
        let parameters = FillParameters {
            at: fill.at,
            pitch: 0,
            value: match fill.pattern {
                Pattern::Byte(b) => b.into(),
                Pattern::Half(h) => h.into(),
                Pattern::Word(w) => w,
            },
            element_bytes: element as c_uint,
            width: (fill.bytes / element) as usize,
            rows: 1,
        };
        let (dependencies, mut node) = (raw_nodes(dependencies), null_mut());
        let context = self.context()?;
        // SAFETY: the trait's contract; the pointers are to variables.
        let c = unsafe {
            (self.functions.add_fill)(
                &mut node,
                to.0,
                dependencies.as_ptr(),
                dependencies.len(),
                &raw const parameters,
                context,
            )
        };
        called("cuGraphAddMemsetNode", c).map(|()| RawNode(node))
    }

    unsafe fn add_copy(&self, to: RawGraph, dependencies: &[RawNode], copy: &CopyNode) -> Called<RawNode> {
        let bytes = copy.bytes as usize;
        let (from, target) = (CopyEnd::at(copy.from, bytes), CopyEnd::at(copy.to, bytes));
        let parameters = CopyParameters { from, to: target, extent: [bytes, 1, 1] };
        let (dependencies, mut node) = (raw_nodes(dependencies), null_mut());
        let context = self.context()?;
        // SAFETY: as above.
        let c = unsafe {
            (self.functions.add_copy)(
                &mut node,
                to.0,
                dependencies.as_ptr(),
                dependencies.len(),
                &raw const parameters,
                context,
            )
        };
        called("cuGraphAddMemcpyNode", c).map(|()| RawNode(node))
    }

    unsafe fn make_ready(&self, graph: RawGraph) -> Called<ReadyGraph> {
        let mut ready = null_mut();
        // SAFETY: as above.
        let c = unsafe { (self.functions.instantiate)(&mut ready, graph.0, null_mut(), null_mut(), 0) };
        called("cuGraphInstantiate_v2", c)?;
        Ok(ReadyGraph(ready))
    }

    unsafe fn exchange(&self, graph: ReadyGraph, node: RawNode, kernel: &KernelNode) -> Called<()> {
        let mut parameter = kernel.parameter;
        let parameters = NodeParameters::new(kernel, &mut parameter);
        // SAFETY: as above.
        let c = unsafe { (self.functions.set_kernel)(graph.0, node.0, &raw const parameters) };
        called("cuGraphExecKernelNodeSetParams", c)
    }

    #[inline]
    unsafe fn launch(&self, graph: ReadyGraph, stream: RawStream) -> Called<()> {
        // SAFETY: as above.
        called("cuGraphLaunch", unsafe { (self.functions.launch)(graph.0, stream) })
    }

    unsafe fn destroy_ready(&self, graph: ReadyGraph) {
        // SAFETY: as above. An error cannot be reported.
        let _ = unsafe { (self.functions.destroy_ready)(graph.0) };
    }

    unsafe fn destroy(&self, graph: RawGraph) {
        // SAFETY: as above.
        let _ = unsafe { (self.functions.destroy)(graph.0) };
    }

    fn loops(&self) -> Option<&dyn GraphLoops> {
        self.loops.as_ref().map(|loops| loops as &dyn GraphLoops)
    }

    fn captures(&self) -> Option<&dyn GraphCaptures> {
        self.captures.as_ref().map(|captures| captures as &dyn GraphCaptures)
    }
}
