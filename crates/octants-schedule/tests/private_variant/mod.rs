//! Variants as programs that run by themselves.

use octants_ir::schedule::Role;
use octants_ir::{BufferId, Op, Program, Scheduled};

/// The program of a role. Copies of a thread are the memory that they are added up in: one thread at a time runs, and
/// whoever would make and add up the copies is not there.
pub fn runnable(scheduled: &Scheduled, role: Role) -> Program {
    let mut program = scheduled.program_of(role);
    let privatized = scheduled.schedule.tasks.iter().filter_map(|t| t.forms.thread_privatization.as_ref());
    let regions = privatized.flat_map(|found| &found.regions);
    let pairs: Vec<(usize, usize)> =
        regions.flat_map(|r| r.copies.iter().copied().zip(r.buffers.iter().copied())).collect();
    for inst in program.tasks.iter_mut().flat_map(|t| &mut t.body.insts) {
        if let Op::BufferAddr(b, index) = &mut inst.op
            && let Some((_, original)) = pairs.iter().find(|(copy, _)| *copy == b.index())
        {
            assert_eq!(index.len(), program.buffers[*original].ndim as usize, "a copy with other axes");
            *b = BufferId(*original as u32);
        }
    }
    // Unused from here on; without them the memory is that of the program before.
    let first = pairs.iter().map(|(copy, _)| *copy).min();
    if let Some(first) = first.filter(|first| first + pairs.len() == program.buffers.len()) {
        program.buffers.truncate(first);
    }
    program
}
