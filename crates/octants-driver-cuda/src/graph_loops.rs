//! CUDA's conditional nodes: graphs within graphs that run again while a handle is set, once if it is set, or if they
//! are the one that the handle numbers.
//!
//! They were introduced in CUDA 12.3; the version of the call that is used here, in 12.4; nodes with several graphs,
//! in 12.8. A kernel sets the handle by a function that the driver's assembler knows, so no library of the toolkit is
//! needed.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

use octants_driver_gpu::own_functions;
use octants_driver_gpu::{Called, GraphLoops, RawGraph, RawNode};

use crate::graph_handles::{CuGraph, CuGraphNode, called, raw_nodes};
use crate::symbols::CuContext;

/// `CU_GRAPH_NODE_TYPE_CONDITIONAL`.
const CONDITIONAL: c_int = 13;
/// `CU_GRAPH_COND_TYPE_IF`.
const IF: c_int = 0;
/// `CU_GRAPH_COND_TYPE_WHILE`.
const WHILE: c_int = 1;
/// `CU_GRAPH_COND_TYPE_SWITCH`: runs the graph whose position is the handle's value, and none for a larger value.
const SWITCH: c_int = 2;
/// The driver's first version with [`SWITCH`].
const HAS_SWITCH: c_int = 12080;
/// `CU_GRAPH_COND_ASSIGN_DEFAULT`: the switch gets its first value at each launch of the outermost graph.
const ASSIGN_DEFAULT: c_uint = 1;
/// The first value.
const ON: c_uint = 1;

/// `CUgraphNodeParams` of a conditional node.
#[repr(C)]
#[derive(Debug)]
pub struct ConditionalParameters {
    kind: c_int,
    reserved: [c_int; 3],
    switch: u64,
    chooses: c_int,
    bodies: c_uint,
    /// Set by the call: the bodies.
    made: *mut CuGraph,
    context: CuContext,
    rest: [u64; 26],
}

const _: () = assert!(size_of::<ConditionalParameters>() == 256);

own_functions! {
    /// The functions for loops. Absent if the driver lacks one.
    CudaLoops {
        /// A switch.
        create_switch = "cuGraphConditionalHandleCreate"(*mut u64, CuGraph, CuContext, c_uint, c_uint);
        /// Adds any kind of node, here with plain edges only.
        add_node = "cuGraphAddNode_v2"(
            *mut CuGraphNode, CuGraph, *const CuGraphNode, *const c_void, usize, *mut ConditionalParameters);
        /// The version of CUDA that the driver supports.
        driver_version = "cuDriverGetVersion"(*mut c_int);
        /// The thread's context.
        context_get = "cuCtxGetCurrent"(*mut CuContext);
    }
}

/// The function `decide`, with its parameter as `octants_driver_gpu::Decision` describes it.
const DECIDE: &[u8] = b".version 6.0
.target sm_70
.address_size 64

.extern .func cudaGraphSetConditional(.param .b64 switch, .param .b32 value);

.visible .entry decide(.param .align 8 .b8 decision[88])
{
    .reg .b64 %switch, %at, %bytes, %failed, %rounds, %value, %end;
    .reg .b64 %most, %equals, %off, %ended, %for_host, %checkpoint;
    .reg .b32 %stop, %on;
    .reg .pred %p;

    ld.param.u64 %switch, [decision];
    ld.param.u64 %bytes, [decision+8];
    ld.param.u64 %failed, [decision+16];
    ld.param.u64 %rounds, [decision+24];
    ld.param.u64 %ended, [decision+32];
    ld.param.u64 %for_host, [decision+40];
    ld.param.u64 %checkpoint, [decision+48];
    ld.param.u64 %at, [decision+56];
    ld.param.u64 %most, [decision+64];
    ld.param.u64 %equals, [decision+72];
    ld.param.u64 %off, [decision+80];
    setp.eq.u64 %p, %rounds, 0;
    @%p bra read;
    ld.u64 %value, [%rounds];
    add.u64 %value, %value, 1;
    setp.ne.u64 %p, %switch, 0;
    selp.u64 %value, %value, 0, %p;
    st.u64 [%rounds], %value;
    @%p bra read;
    setp.eq.u64 %p, %for_host, 0;
    @%p ret;
    st.u64 [%for_host], %value;
    ret;
read:
    mov.u64 %value, 1;
    setp.eq.u64 %p, %bytes, 1;
    @%p ld.u8 %value, [%at];
    setp.eq.u64 %p, %bytes, 2;
    @%p ld.u16 %value, [%at];
    setp.eq.u64 %p, %bytes, 4;
    @%p ld.u32 %value, [%at];
    setp.eq.u64 %p, %bytes, 8;
    @%p ld.u64 %value, [%at];
    min.u64 %value, %value, %most;
    setp.eq.u64 %p, %ended, 0;
    @%p bra compare;
    ld.volatile.u64 %end, [%ended];
    setp.ne.u64 %p, %end, 0;
    @%p bra nothing;
    setp.eq.u64 %p, %checkpoint, 0;
    @%p bra compare;
    setp.eq.u64 %p, %value, 0;
    @%p bra compare;
    st.u64 [%ended], %checkpoint;
    st.u64 [%for_host], %checkpoint;
compare:
    cvt.u32.u64 %on, %value;
    setp.eq.u64 %p, %equals, 0;
    @%p bra test;
    sub.u64 %equals, %equals, 1;
    setp.eq.u64 %p, %value, %equals;
    selp.u32 %on, 1, 0, %p;
test:
    setp.eq.u64 %p, %failed, 0;
    @%p bra turn;
    ld.volatile.u32 %stop, [%failed];
    setp.eq.u32 %p, %stop, 0;
    @%p bra turn;
nothing:
    cvt.u32.u64 %on, %off;
turn:
    setp.eq.u64 %p, %switch, 0;
    @%p ret;
    {
        .param .b64 first;
        .param .b32 second;
        st.param.b64 [first], %switch;
        st.param.b32 [second], %on;
        call.uni cudaGraphSetConditional, (first, second);
    }
    ret;
}
";

impl GraphLoops for CudaLoops {
    fn code(&self) -> &'static [u8] {
        DECIDE
    }

    unsafe fn create_switch(&self, to: RawGraph) -> Called<u64> {
        let mut switch = 0;
        // SAFETY: the trait's contract; the pointer is to a variable.
        let c = unsafe { (self.create_switch)(&mut switch, to.0, self.context()?, ON, ASSIGN_DEFAULT) };
        called("cuGraphConditionalHandleCreate", c).map(|()| switch)
    }

    unsafe fn add_loop(&self, to: RawGraph, switch: u64, dependencies: &[RawNode]) -> Called<(RawNode, RawGraph)> {
        // SAFETY: the trait's contract.
        unsafe { self.add_one(to, (switch, WHILE), dependencies) }
    }

    unsafe fn add_choice(&self, to: RawGraph, switch: u64, dependencies: &[RawNode]) -> Called<(RawNode, RawGraph)> {
        // SAFETY: the trait's contract.
        unsafe { self.add_one(to, (switch, IF), dependencies) }
    }

    fn has_cases(&self) -> bool {
        let mut version = 0;
        // SAFETY: the pointer is to a variable.
        let c = unsafe { (self.driver_version)(&mut version) };
        called("cuDriverGetVersion", c).is_ok() && version >= HAS_SWITCH
    }

    unsafe fn add_cases(
        &self,
        to: RawGraph,
        switch: u64,
        cases: usize,
        dependencies: &[RawNode],
    ) -> Called<(RawNode, Vec<RawGraph>)> {
        // SAFETY: the trait's contract.
        unsafe { self.add(to, (switch, SWITCH, cases), dependencies) }
    }
}

impl CudaLoops {
    /// Adds a conditional node with one body.
    ///
    /// # Safety
    /// As [`GraphLoops::add_loop`].
    unsafe fn add_one(
        &self,
        to: RawGraph,
        (switch, chooses): (u64, c_int),
        dependencies: &[RawNode],
    ) -> Called<(RawNode, RawGraph)> {
        // SAFETY: the contract above.
        let (node, bodies) = unsafe { self.add(to, (switch, chooses, 1), dependencies)? };
        Ok((node, bodies[0]))
    }

    /// Adds a conditional node with some bodies.
    ///
    /// # Safety
    /// As [`GraphLoops::add_loop`].
    unsafe fn add(
        &self,
        to: RawGraph,
        (switch, chooses, bodies): (u64, c_int, usize),
        dependencies: &[RawNode],
    ) -> Called<(RawNode, Vec<RawGraph>)> {
        let mut parameters = ConditionalParameters {
            kind: CONDITIONAL,
            reserved: [0; 3],
            switch,
            chooses,
            bodies: bodies as c_uint,
            made: null_mut(),
            context: self.context()?,
            rest: [0; 26],
        };
        let (dependencies, mut node, edges) = (raw_nodes(dependencies), null_mut(), std::ptr::null());
        // SAFETY: the contract above; what the call makes lives as long as the graph.
        unsafe {
            let c =
                (self.add_node)(&mut node, to.0, dependencies.as_ptr(), edges, dependencies.len(), &raw mut parameters);
            called("cuGraphAddNode_v2", c)?;
            let made = std::slice::from_raw_parts(parameters.made, bodies);
            Ok((RawNode(node), made.iter().map(|graph| RawGraph(*graph)).collect()))
        }
    }

    fn context(&self) -> Called<CuContext> {
        let mut context = null_mut();
        // SAFETY: the pointer is to a variable.
        called("cuCtxGetCurrent", unsafe { (self.context_get)(&mut context) }).map(|()| context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_reads_the_parameter_that_it_is_given() {
        let text = std::str::from_utf8(DECIDE).unwrap();
        let bytes = size_of::<octants_driver_gpu::Decision>();
        assert!(text.contains(&format!("decision[{bytes}]")) && text.contains(".visible .entry decide("));
        for (name, offset) in [
            ("at", std::mem::offset_of!(octants_driver_gpu::Decision, condition)),
            ("bytes", std::mem::offset_of!(octants_driver_gpu::Decision, bytes)),
            ("failed", std::mem::offset_of!(octants_driver_gpu::Decision, failed)),
            ("rounds", std::mem::offset_of!(octants_driver_gpu::Decision, rounds)),
            ("most", std::mem::offset_of!(octants_driver_gpu::Decision, most)),
            ("equals", std::mem::offset_of!(octants_driver_gpu::Decision, equals)),
            ("off", std::mem::offset_of!(octants_driver_gpu::Decision, off)),
            ("ended", std::mem::offset_of!(octants_driver_gpu::Decision, ended)),
            ("for_host", std::mem::offset_of!(octants_driver_gpu::Decision, for_host)),
            ("checkpoint", std::mem::offset_of!(octants_driver_gpu::Decision, checkpoint)),
        ] {
            assert!(text.contains(&format!("ld.param.u64 %{name}, [decision+{offset}];")), "{name}");
        }
    }
}
