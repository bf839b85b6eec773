//! The memory that an address points into, and the uses of locals.

use std::collections::HashMap;

use octants_ir::{BlockId, Body, BufferId, FrameSlot, LocalId, Op, Type, ValueId};

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

/// The element of a buffer that an address is a part of, as the buffer and the element's address.
pub fn trace_element(body: &Body, mut addr: ValueId) -> Option<(BufferId, ValueId)> {
    loop {
        match &body.inst(addr).op {
            Op::ElementAddr(base, _) | Op::MemberAddr(base, _) => addr = *base,
            Op::BufferAddr(b, _) => return Some((*b, addr)),
            _ => return None,
        }
    }
}

/// The buffer that an address points into. Appends the indices on the path, those of parts of an element before the
/// element's.
pub fn trace_indices(body: &Body, mut addr: ValueId, indices: &mut Vec<ValueId>) -> Option<BufferId> {
    loop {
        match &body.inst(addr).op {
            Op::BufferAddr(b, index) => {
                indices.extend(index);
                return Some(*b);
            }
            Op::ElementAddr(base, index) => {
                indices.extend(index);
                addr = *base;
            }
            Op::MemberAddr(base, _) => addr = *base,
            _ => return None,
        }
    }
}

/// Calls `f` for each buffer element whose address code in a block uses, no matter where the address is computed.
pub fn for_each_element(body: &Body, block: BlockId, f: &mut impl FnMut(BufferId, ValueId)) {
    body.visit(block, &mut |_, inst| {
        inst.op.for_each_operand(|u| {
            if let Some((b, element)) = trace_element(body, u) {
                f(b, element);
            }
        });
    });
}

/// The address is a local's or in it.
pub fn points_into(body: &Body, addr: ValueId, local: LocalId) -> bool {
    match &body.inst(addr).op {
        Op::LocalAddr(l) => *l == local,
        Op::ElementAddr(base, _) | Op::MemberAddr(base, _) => points_into(body, *base, local),
        _ => false,
    }
}

/// Whether the first use of a local in some statements is a store of the whole local; `None` if they do not use it.
pub fn first_use_sets(body: &Body, statements: &[ValueId], local: LocalId) -> Option<bool> {
    for &v in statements {
        let inst = body.inst(v);
        if matches!(inst.ty, Type::Ref(_)) {
            continue; // Taking an address is no use yet.
        }
        let mut used = false;
        for_each_use(body, v, &mut |u| used |= points_into(body, u, local));
        if used {
            return Some(matches!(inst.op, Op::Store(a, _) if body.inst(a).op == Op::LocalAddr(local)));
        }
    }
    None
}

/// The same for all locals that the statements use, in one walk.
pub fn first_uses_set(body: &Body, statements: &[ValueId]) -> HashMap<LocalId, bool> {
    let mut first = HashMap::new();
    for &v in statements {
        let inst = body.inst(v);
        if matches!(inst.ty, Type::Ref(_)) {
            continue; // Taking an address is no use yet.
        }
        for_each_use(body, v, &mut |u| {
            if let Some(local) = local_of(body, u) {
                let sets = || matches!(inst.op, Op::Store(a, _) if body.inst(a).op == Op::LocalAddr(local));
                first.entry(local).or_insert_with(sets);
            }
        });
    }
    first
}

/// Whether statements may read a local, or a part of it, before they set all of it, and so observe its earlier value.
pub fn reads_before_set(body: &Body, statements: &[ValueId], local: LocalId) -> bool {
    exposes(body, statements, local, &mut false)
}

/// The same, for a local that may have been set already. Assignments in a loop count only in its own body.
fn exposes(body: &Body, statements: &[ValueId], local: LocalId, is_set: &mut bool) -> bool {
    for &v in statements {
        let inst = body.inst(v);
        if *is_set {
            return false;
        }
        if matches!(inst.ty, Type::Ref(_)) {
            continue; // Taking an address is no use yet.
        }
        let mut used = false;
        inst.op.for_each_operand(|u| used |= points_into(body, u, local));
        if used {
            *is_set = matches!(inst.op, Op::Store(a, _) if body.inst(a).op == Op::LocalAddr(local));
            if !*is_set {
                return true;
            }
        }
        let mut in_all = matches!(inst.op, Op::If(..));
        for block in inst.op.blocks() {
            let mut here = *is_set;
            if exposes(body, body.block(block), local, &mut here) {
                return true;
            }
            in_all &= here;
        }
        *is_set |= in_all;
    }
    false
}

/// The local that an address leads to.
fn local_of(body: &Body, mut addr: ValueId) -> Option<LocalId> {
    loop {
        match &body.inst(addr).op {
            Op::LocalAddr(l) => return Some(*l),
            Op::ElementAddr(base, _) | Op::MemberAddr(base, _) => addr = *base,
            _ => return None,
        }
    }
}

/// Calls `f` on every operand of an instruction and of those in its blocks.
pub fn for_each_use(body: &Body, v: ValueId, f: &mut impl FnMut(ValueId)) {
    let op = &body.inst(v).op;
    op.for_each_operand(&mut *f);
    for b in op.blocks() {
        body.visit(b, &mut |_, inst| inst.op.for_each_operand(&mut *f));
    }
}

/// Calls `f` on every local whose address an instruction takes, or those in its blocks.
pub fn for_each_local(body: &Body, v: ValueId, f: &mut impl FnMut(LocalId)) {
    if let Op::LocalAddr(l) = &body.inst(v).op {
        f(*l);
    }
    for b in body.inst(v).op.blocks() {
        body.visit(b, &mut |_, inst| {
            if let Op::LocalAddr(l) = &inst.op {
                f(*l);
            }
        });
    }
}

/// A value depends on memory, or on other effects.
pub fn is_read(body: &Body, v: ValueId) -> bool {
    let op = &body.inst(v).op;
    if matches!(op, Op::LoopIndex(..)) {
        return false;
    }
    let mut any = !op.is_pure();
    op.for_each_operand(|u| any |= is_read(body, u));
    any
}
