//! Merges aliased buffers: memory that a kernel reaches in several ways becomes one buffer. Examples are a vector
//! field and a component of it, an array passed for two parameters, and a gradient that is also an argument. Later
//! passes distinguish memory by the buffer number only.
//!
//! A buffer is not merged if its shadow buffer differs from that of the buffer that contains it, because gradients
//! must not flow from one to the other. Arrays that overlap only in part are not merged either. The kernel's list of
//! buffers does not change.

use octants_ir::{Buffer, BufferId, Builder, Kernel, Layout, Op, Scalar, Type, ValueId};

use crate::find_overlaps::Alias;
use octants_ir::insert_code::{bodies, rebuild_blocks};

/// The position of a buffer's elements relative to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AliasTarget {
    buffer: BufferId,
    /// Which component of its elements; `None` for the whole.
    component: Option<u32>,
}

/// Lets a kernel reach each element by one buffer. `aliases` are the arrays that are the same in the call.
pub fn merge_aliased_buffers(kernel: &mut Kernel, aliases: &[Alias]) {
    let targets = find_targets(kernel, aliases);
    if targets.iter().all(Option::is_none) {
        return;
    }
    let buffers = std::mem::take(&mut kernel.buffers);
    for body in bodies(kernel) {
        rebuild_blocks(body, |b, v| {
            let inst = b.body.inst(v);
            if let Op::BufferAddr(own, indices) = &inst.op
                && let Some(target) = targets[own.index()]
            {
                let (indices, element) = (indices.clone(), buffers[target.buffer.index()].elem.clone());
                match target.component {
                    None => b.body.inst_mut(v).op = Op::BufferAddr(target.buffer, indices),
                    Some(i) => {
                        let whole =
                            b.push(Op::BufferAddr(target.buffer, indices), Type::Ref(Box::new(element.clone())));
                        let path = component_path(b, &element, i);
                        b.body.inst_mut(v).op = Op::ElementAddr(whole, path);
                    }
                }
            }
            b.place(v);
        });
    }
    kernel.buffers = buffers;
    for shadow_buffer in kernel.shadow_buffers.values_mut() {
        if let Some(AliasTarget { buffer, component: None }) = targets[shadow_buffer.index()] {
            *shadow_buffer = buffer;
        }
    }
}

/// The indices of a component in an element.
fn component_path(b: &mut Builder, element: &Type, i: u32) -> Vec<ValueId> {
    match element {
        Type::Matrix(_, _, columns) => [i / columns, i % columns].map(|k| b.int(i64::from(k), Scalar::I32)).to_vec(),
        _ => vec![b.int(i64::from(i), Scalar::I32)],
    }
}

fn find_targets(kernel: &Kernel, aliases: &[Alias]) -> Vec<Option<AliasTarget>> {
    let ids = || (0..kernel.buffers.len() as u32).map(BufferId);
    let shadow_buffer = |b: BufferId| kernel.shadow_buffers.get(&b).copied();
    let target = |b: BufferId, other: BufferId| {
        let target = lies_in(&kernel.buffers, aliases, b, other)?;
        // Identical arrays are represented by the first one.
        let is_first = target.component.is_some() || other < b;
        let is_consistent = match (shadow_buffer(b), shadow_buffer(other)) {
            (None, None) => true,
            (Some(own), Some(others)) if own == others => target.component.is_none(),
            (Some(own), Some(others)) => {
                lies_in(&kernel.buffers, aliases, own, others).is_some_and(|c| c.component == target.component)
            }
            _ => false,
        };
        (is_first && is_consistent).then_some(target)
    };
    ids().map(|b| ids().find_map(|other| target(b, other))).collect()
}

/// The position of a buffer in another one, if it is the same memory or a component of it.
fn lies_in(buffers: &[Buffer], aliases: &[Alias], b: BufferId, other: BufferId) -> Option<AliasTarget> {
    let (own, whole) = (&buffers[b.index()], &buffers[other.index()]);
    if b == other || own.ndim != whole.ndim {
        return None;
    }
    let found = |component| Some(AliasTarget { buffer: other, component });
    match (&own.layout, &whole.layout) {
        (
            Layout::Dense { shape, offset, components: mine },
            Layout::Dense { shape: other_shape, offset: other_offset, components },
        ) => {
            let is_scalar = matches!(own.elem, Type::Scalar(_)) && whole.elem.is_tensor();
            if !is_scalar || own.elem.scalar() != whole.elem.scalar() || (shape, offset) != (other_shape, other_offset)
            {
                return None;
            }
            let i = components.iter().position(|c| std::slice::from_ref(c) == mine.as_slice())?;
            found(Some(i as u32))
        }
        (Layout::Dense { .. }, _) | (_, Layout::Dense { .. }) => None,
        (mine, others) => {
            let pair = |x: &&Alias| (x.first, x.second) == (b, other) || (x.first, x.second) == (other, b);
            let same = mine == others && own.elem == whole.elem && aliases.iter().find(pair).is_some_and(|x| x.same);
            if same { found(None) } else { None }
        }
    }
}
