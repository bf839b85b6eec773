//! Limits of thread blocks on devices that run the threads of a block in loops.

use octants_analysis::own_behavior;
use octants_diag::{Code, Diagnostic, Sources};
use octants_ir::matrix_product::ELEMENTS;
use octants_ir::{FuncId, MemorySpace, Op, Program, Scheduled, TargetInfo, TaskKind};
use octants_schedule::block_memory;

use crate::error::Error;

/// Threads of a block, as on GPUs.
const MOST_THREADS: u32 = 1024;

/// Bytes that a block may keep on the stack of the thread that runs it.
const MOST_BYTES: u64 = 4 << 20;

/// Refuses blocks of more threads than a GPU would run.
pub(super) fn check_block_dims(program: &Program, info: &TargetInfo) -> Result<(), Error> {
    for task in program.tasks.iter().filter(|_| !info.has_grid) {
        if let TaskKind::Parallel(config) = &task.kind
            && let Some(dim) = config.block_dim.filter(|dim| *dim > MOST_THREADS)
            && own_behavior(&task.body).behavior.cooperates
        {
            let message = format!(
                "the loop needs blocks of {dim} cooperating threads, but this device supports at most \
                 {MOST_THREADS} threads per block"
            );
            return Err(Error::Device(message));
        }
    }
    Ok(())
}

/// Refuses functions that are not inlined although their threads synchronize or use shared memory: their code must be
/// in the loop.
pub(super) fn check_cooperating_functions(program: &Program, info: &TargetInfo) -> Result<(), Error> {
    let own: Vec<_> = program.functions.iter().map(|f| own_behavior(&f.body)).collect();
    for task in program.tasks.iter().filter(|_| !info.has_grid) {
        let called = own_behavior(&task.body).reached(&own);
        let cooperates = |f: &FuncId| {
            let mut found = own[f.index()].behavior.cooperates;
            let body = &program.functions[f.index()].body;
            body.visit(body.root, &mut |_, inst| {
                found |= matches!(inst.op, Op::BufferAddr(b, _)
                    if program.buffers[b.index()].space == MemorySpace::Shared);
            });
            found
        };
        if let Some(f) = called.iter().find(|f| cooperates(f)) {
            let message = format!(
                "the recursive function `{}` uses a block barrier or shared memory, which this device does not \
                 support",
                program.functions[f.index()].name
            );
            return Err(Error::Device(message));
        }
    }
    Ok(())
}

/// Refuses fragments that were laid out for subgroups of another size than the machine's: code is requested for another
/// machine than the running program's.
pub(crate) fn check_fragments(program: &Program, info: &TargetInfo, sources: &Sources) -> Result<(), Error> {
    let bodies = program.tasks.iter().map(|t| &t.body).chain(program.functions.iter().map(|f| &f.body));
    let mut wrong = None;
    for body in bodies {
        body.visit(body.root, &mut |_, inst| {
            if let Op::Subgroup(op, operands) = &inst.op
                && op.product().is_some()
            {
                let components = operands.iter().map(|v| body.inst(*v).ty.shape().iter().product::<u32>());
                if let Some(other) = components.into_iter().find(|n| n * info.subgroup_size != ELEMENTS) {
                    wrong.get_or_insert((inst.span, other));
                }
            }
        });
    }
    let Some((span, components)) = wrong else { return Ok(()) };
    let message = format!(
        "the fragments of this product, in kernel `{}`, were created for subgroups of {} threads, but this machine has \
         subgroups of {}",
        program.name,
        ELEMENTS / components.max(1),
        info.subgroup_size
    );
    let hint = "initialize the program with a device of that kind, from which `qd.simt` takes the subgroup size";
    Err(Error::Device(Diagnostic::new(Code::Compilation, span, message).with_hint(hint).render(sources)))
}

/// The most places of a variant at which a block counts votes.
fn block_counts(scheduled: &Scheduled) -> u64 {
    let variants = scheduled.schedule.tasks.iter().flat_map(|task| &task.variants);
    let counts = |body: &octants_ir::Body| body.insts.iter().filter(|i| matches!(i.op, Op::BlockCount(_))).count();
    variants.map(|v| counts(&v.body) as u64).max().unwrap_or(0)
}

/// Refuses blocks that share or keep more than fits. The memory of a kernel's own arrays is checked with the kernel's
/// lines; code for another machine, and memory that the schedule adds, are checked here.
pub(crate) fn check_block_memory(scheduled: &Scheduled, info: &TargetInfo) -> Result<(), Error> {
    let counts = if info.has_grid { block_counts(scheduled) * TargetInfo::BLOCK_COUNT_BYTES } else { 0 };
    let (shared, most) = (block_memory(scheduled, MemorySpace::Shared) + counts, info.max_shared_bytes);
    if shared > most {
        let message = format!(
            "a block uses {shared} bytes of shared memory in `{}`, but this device supports {most} bytes per block: \
             use smaller arrays",
            scheduled.program.name
        );
        return Err(Error::Device(message));
    }
    let bytes = block_memory(scheduled, MemorySpace::Private);
    if bytes <= MOST_BYTES {
        return Ok(());
    }
    let message = format!(
        "the threads of a block need {bytes} bytes of local memory, but this device supports {MOST_BYTES} per block: \
         use a smaller block_dim"
    );
    Err(Error::Device(message))
}
