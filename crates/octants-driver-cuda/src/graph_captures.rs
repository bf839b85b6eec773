//! Graphs that other libraries capture from a stream: inspecting and extending them.

use std::ffi::{c_int, c_uint};
use std::ptr::null_mut;

use octants_driver_gpu::own_functions;
use octants_driver_gpu::symbols::RawStream;
use octants_driver_gpu::{Called, GraphCaptures, RawGraph, RawNode};

use crate::graph_handles::{CuGraph, CuGraphNode, called, raw_nodes};

/// `CU_STREAM_CAPTURE_STATUS_ACTIVE`.
const ACTIVE: c_int = 1;
/// `CU_STREAM_SET_CAPTURE_DEPENDENCIES`: replaces the present ones.
const SET: c_uint = 1;

own_functions! {
    /// The functions for captures, since CUDA 11.3. Absent if the driver lacks one.
    CudaCaptures {
        /// Status, number, graph, and the nodes that the next work waits for, which are the driver's.
        info = "cuStreamGetCaptureInfo_v2"(
            RawStream, *mut c_int, *mut u64, *mut CuGraph, *mut *const CuGraphNode, *mut usize);
        /// Changes those nodes.
        update = "cuStreamUpdateCaptureDependencies"(RawStream, *mut CuGraphNode, usize, c_uint);
    }
}

impl GraphCaptures for CudaCaptures {
    unsafe fn under_way(&self, stream: RawStream) -> Called<Option<(RawGraph, Vec<RawNode>)>> {
        let (mut status, mut number, mut graph, mut nodes, mut many) = (0, 0, null_mut(), std::ptr::null(), 0);
        // SAFETY: the trait's contract; the pointers are to variables.
        let c = unsafe { (self.info)(stream, &mut status, &mut number, &mut graph, &mut nodes, &mut many) };
        called("cuStreamGetCaptureInfo_v2", c)?;
        if status != ACTIVE {
            return Ok(None);
        }
        // SAFETY: the driver keeps that many nodes there until the stream's next call; none where the pointer is null.
        let nodes = if many == 0 { &[] } else { unsafe { std::slice::from_raw_parts(nodes, many) } };
        Ok(Some((RawGraph(graph), nodes.iter().copied().map(RawNode).collect())))
    }

    unsafe fn continue_after(&self, stream: RawStream, nodes: &[RawNode]) -> Called<()> {
        let mut nodes = raw_nodes(nodes);
        // SAFETY: as above.
        let c = unsafe { (self.update)(stream, nodes.as_mut_ptr(), nodes.len(), SET) };
        called("cuStreamUpdateCaptureDependencies", c)
    }
}
