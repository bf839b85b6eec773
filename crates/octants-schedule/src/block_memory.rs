//! [`block_memory`]: the shared memory of a thread block.

use std::collections::BTreeMap;

use octants_ir::{Layout, MemorySpace, Op, Scheduled};

/// Maximum bytes of block memory that a task uses in a space: shared memory or, on a machine without a grid, private
/// memory. The latter is on the stack of the thread that runs the block, and holds shared arrays and per-thread values.
pub fn block_memory(scheduled: &Scheduled, space: MemorySpace) -> u64 {
    let of_task = |task: &octants_ir::schedule::TaskSchedule| {
        // Private copies for scatter privatization are allocated elsewhere.
        let privatized = task.forms.thread_privatization.iter().flat_map(|found| &found.regions);
        let copies: Vec<usize> = privatized.flat_map(|r| r.copies.iter().copied()).collect();
        let mut roots: BTreeMap<u32, u64> = BTreeMap::new();
        for inst in task.variants.iter().flat_map(|v| &v.body.insts) {
            let Op::BufferAddr(b, _) = inst.op else { continue };
            let buffer = &scheduled.program.buffers[b.index()];
            let Layout::Dense { components, .. } = &buffer.layout else { continue };
            if buffer.space != space || copies.contains(&b.index()) {
                continue;
            }
            for (c, s) in components.iter().zip(buffer.elem.leaves()) {
                let bytes = roots.entry(c.root).or_default();
                *bytes = c.place.end(u64::from(s.bytes())).max(*bytes);
            }
        }
        roots.values().sum()
    };
    scheduled.schedule.tasks.iter().map(of_task).max().unwrap_or(0)
}
