//! Buffers in shared memory that passes add to a scheduled program.

use octants_analysis::MemoryClasses;
use octants_ir::{Buffer, BufferId, ComponentLayout, Layout, MemorySpace, Placement, Scheduled, Type};

use crate::scheduling::Scheduling;

/// A buffer with one axis in shared memory, in its own root. [`add_shared_buffer`] numbers the root.
pub(crate) fn flat_buffer(name: &str, elem: Type, elements: u64) -> Buffer {
    let scalar = elem.scalar().expect("compiler bug: a shared buffer of a type without scalars");
    let bytes = u64::from(scalar.bytes());
    let stride = bytes * elem.leaf_count() as u64;
    let component = |i| ComponentLayout { root: 0, place: Placement::row_major(i * bytes, &[elements], stride) };
    let components = (0..elem.leaf_count() as u64).map(component).collect();
    let layout = Layout::Dense { shape: vec![elements], offset: vec![0], components };
    Buffer {
        name: name.into(),
        elem,
        ndim: 1,
        layout,
        space: MemorySpace::Shared,
        short_offsets: true,
        is_metadata: false,
    }
}

/// Adds a buffer in shared memory. Its components get a new root.
pub(crate) fn add_shared_buffer(scheduled: &mut Scheduled, of: &Scheduling, buffer: Buffer) -> BufferId {
    let root = next_root(&scheduled.program.buffers, MemorySpace::Shared);
    add_buffer_in_root(scheduled, of, buffer, root)
}

/// Adds a buffer in a root of shared memory.
pub(crate) fn add_buffer_in_root(scheduled: &mut Scheduled, of: &Scheduling, mut buffer: Buffer, to: u32) -> BufferId {
    if let Layout::Dense { components, .. } = &mut buffer.layout {
        components.iter_mut().for_each(|c| c.root = to);
    }
    let Scheduled { program, schedule } = scheduled;
    program.buffers.push(buffer);
    let memory = MemoryClasses::of(&program.buffers, of.options.arrays_may_alias);
    schedule.memory = memory.access_classes(of.target.has_vectors);
    // Threads write to it while the task runs.
    schedule.tasks.iter_mut().for_each(|t| t.constants.push(false));
    BufferId(program.buffers.len() as u32 - 1)
}

/// The number of roots of a space.
pub(crate) fn next_root(buffers: &[Buffer], space: MemorySpace) -> u32 {
    let roots = buffers.iter().filter(|b| b.space == space).filter_map(|b| match &b.layout {
        Layout::Dense { components, .. } => components.iter().map(|c| c.root + 1).max(),
        _ => None,
    });
    roots.max().unwrap_or(0)
}
