//! CUDA's graph handles, and the results of graph calls.

use std::ffi::{c_int, c_void};

use octants_driver_gpu::{Called, RawNode};

use crate::symbols::code;

/// A graph as it is described.
pub type CuGraph = *mut c_void;
/// A graph ready to be launched.
pub type CuGraphExec = *mut c_void;
/// A node of one.
pub type CuGraphNode = *mut c_void;

/// The outcome of a call.
pub(crate) fn called(name: &'static str, c: c_int) -> Called<()> {
    if c == code::SUCCESS { Ok(()) } else { Err((name, c)) }
}

/// Pointer to nodes, for CUDA.
pub(crate) fn raw_nodes(nodes: &[RawNode]) -> Vec<CuGraphNode> {
    nodes.iter().map(|n| n.0).collect()
}
