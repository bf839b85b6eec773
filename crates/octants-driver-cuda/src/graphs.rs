//! CUDA's graphs of kernels.
//!
//! Adding a kernel, and exchanging its parameters, came in a second version with CUDA 12, which tells the context
//! besides; the first does what is needed here with every driver.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use octants_driver_gpu::own_functions;
use octants_driver_gpu::symbols::{RawFunction, RawStream};
use octants_driver_gpu::{Called, Graphs, KernelNode, RawGraph};

use crate::symbols::code;

/// A graph as it is described.
pub type CuGraph = *mut c_void;
/// A graph ready to be launched.
pub type CuGraphExec = *mut c_void;
/// A node of one.
pub type CuGraphNode = *mut c_void;

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

own_functions! {
    /// The functions for graphs. Where the driver lacks one there are none.
    CudaGraphs {
        /// A graph without nodes.
        create = "cuGraphCreate"(*mut CuGraph, c_uint);
        /// Gives it back.
        destroy = "cuGraphDestroy"(CuGraph);
        /// Adds a kernel behind other nodes.
        add_kernel = "cuGraphAddKernelNode"(
            *mut CuGraphNode, CuGraph, *const CuGraphNode, usize, *const NodeParameters);
        /// Makes a graph ready.
        instantiate = "cuGraphInstantiate_v2"(*mut CuGraphExec, CuGraph, *mut CuGraphNode, *mut c_char, usize);
        /// Gives a graph that was made ready back, once its work is done.
        destroy_ready = "cuGraphExecDestroy"(CuGraphExec);
        /// Exchanges a kernel.
        set_kernel = "cuGraphExecKernelNodeSetParams"(CuGraphExec, CuGraphNode, *const NodeParameters);
        /// Launches.
        launch = "cuGraphLaunch"(CuGraphExec, RawStream);
    }
}

fn called(name: &'static str, c: c_int) -> Called<()> {
    if c == code::SUCCESS { Ok(()) } else { Err((name, c)) }
}

impl Graphs for CudaGraphs {
    unsafe fn make(&self, kernels: &[KernelNode]) -> Called<RawGraph> {
        let mut graph = RawGraph { described: null_mut(), ready: null_mut(), nodes: Vec::new() };
        // SAFETY: the trait's contract; the pointers are to variables.
        let made = unsafe {
            called("cuGraphCreate", (self.create)(&mut graph.described, 0))?;
            let mut add = |kernel: &KernelNode| {
                let mut parameter = kernel.parameter;
                let parameters = NodeParameters::new(kernel, &mut parameter);
                let before = graph.nodes.last().map_or(&[][..], std::slice::from_ref);
                let mut node = null_mut();
                let c = (self.add_kernel)(&mut node, graph.described, before.as_ptr(), before.len(), &parameters);
                graph.nodes.push(node);
                called("cuGraphAddKernelNode", c)
            };
            kernels.iter().try_for_each(&mut add).and_then(|()| {
                let (none, text) = (null_mut(), null_mut());
                called("cuGraphInstantiate_v2", (self.instantiate)(&mut graph.ready, graph.described, none, text, 0))
            })
        };
        match made {
            Ok(()) => Ok(graph),
            Err(e) => {
                // SAFETY: made above, and not launched.
                unsafe { self.destroy(graph) };
                Err(e)
            }
        }
    }

    unsafe fn exchange(&self, graph: &RawGraph, node: usize, kernel: &KernelNode) -> Called<()> {
        let mut parameter = kernel.parameter;
        let parameters = NodeParameters::new(kernel, &mut parameter);
        // SAFETY: the trait's contract.
        let c = unsafe { (self.set_kernel)(graph.ready, graph.nodes[node], &parameters) };
        called("cuGraphExecKernelNodeSetParams", c)
    }

    #[inline]
    unsafe fn launch(&self, graph: &RawGraph, stream: RawStream) -> Called<()> {
        // SAFETY: the trait's contract.
        called("cuGraphLaunch", unsafe { (self.launch)(graph.ready, stream) })
    }

    unsafe fn destroy(&self, graph: RawGraph) {
        // SAFETY: the trait's contract. There is no one to tell of an error.
        unsafe {
            if !graph.ready.is_null() {
                let _ = (self.destroy_ready)(graph.ready);
            }
            let _ = (self.destroy)(graph.described);
        }
    }
}
