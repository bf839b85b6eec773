//! What memory an address points into.

use octants_ir::{Body, BufferId, FrameSlot, LocalId, Op, ValueId};

/// The memory that an address is a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// An element of a buffer, whichever.
    Buffer(BufferId),
    /// A local variable of the body.
    Local(LocalId),
    /// A slot of the frame.
    Frame(FrameSlot),
    /// What a reference parameter of the function points to.
    Param(u32),
}

/// Follows an address to the memory that it is a part of.
pub fn trace_address(body: &Body, mut addr: ValueId) -> Place {
    loop {
        match &body.inst(addr).op {
            Op::ElementAddr(base, _) | Op::MemberAddr(base, _) => addr = *base,
            Op::BufferAddr(b, _) => return Place::Buffer(*b),
            Op::LocalAddr(l) => return Place::Local(*l),
            Op::FrameAddr(s) => return Place::Frame(*s),
            Op::Param(i) => return Place::Param(*i),
            op => panic!("compiler bug: {addr} = {op:?} is not an address\n{body}"),
        }
    }
}
