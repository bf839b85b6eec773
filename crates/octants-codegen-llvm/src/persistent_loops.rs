//! Persistent loops: an entry point that runs all iterations of a data-dependent loop. All blocks of its grid are
//! resident at the same time, as the launcher ensures.
//!
//! After each parallel task the blocks meet at a barrier. The block that arrives last runs the serial tasks that
//! follow, and then releases the others. A grid of one block needs no more than the barrier of a block.
//!
//! The state of the barrier is two words at [`DeviceContext::of_loop`](octants_artifact::DeviceContext::of_loop): the
//! number of blocks that have arrived, which is zero between barriers, and the number of barriers so far.

use llvm_sys::LLVMAtomicOrdering::{LLVMAtomicOrderingAcquire as Acquire, LLVMAtomicOrderingRelease as Release};
use llvm_sys::LLVMAtomicRMWBinOp::LLVMAtomicRMWBinOpAdd as Add;
use octants_codegen::PersistentLoop;
use octants_codegen::persistent_loops::is_serial;
use octants_ir::{GridValue, ThreadScope};

use crate::emit::{Emitter, IntCmp, V};
use crate::lower_task::lower_part;
use crate::unit::Unit;

/// The symbol of a loop's entry point, from that of its first task.
pub(crate) fn symbol_of(first: &str) -> String {
    format!("{first}_loop")
}

/// Lowers the entry point of a loop, and its tasks as functions that only it calls. Metadata must know the buffers that
/// none of them changes.
pub(crate) fn lower_loop(u: &Unit<'_>, of: &PersistentLoop) {
    let e = &u.e;
    let symbol = symbol_of(&u.target.task_symbol(&u.program.tasks[of.tasks[0]].name));
    let mut steps: Vec<Step> = Vec::new();
    for (place, task) in of.tasks.iter().enumerate() {
        u.task.set(*task as u32);
        let code = lower_part(u, *task, &format!("{symbol}.{place}"));
        match (is_serial(&u.program.tasks[*task]), steps.last_mut()) {
            (false, _) => steps.push(Step { parallel: Some(code), serial: Vec::new() }),
            (true, Some(step)) => step.serial.push(code),
            (true, None) => steps.push(Step { parallel: None, serial: vec![code] }),
        }
    }

    let entry = u.target.declare_task(e, &symbol, 0, Some(octants_artifact::PersistentLoop::THREADS));
    let [begin, iteration, done] = [c"begin", c"iteration", c"done"].map(|name| e.add_block(entry.function, name));
    e.position(begin);
    let invariant = |load| u.metadata.mark_invariant(load);
    let frame = u.target.entry_pointers(e, &invariant, entry.context).frame;
    let state = u.target.of_loop_at(e, &invariant, entry.context);
    let barrier = Barrier { u, state: state.expect("compiler bug: a persistent loop on a target without grids") };
    u.target.begin_task(e);
    if u.facts.schedule.may_fail()
        && let Some(out) = u.target.stays_out(e, entry.context)
    {
        e.cond_br(out, done, iteration);
    } else {
        e.br(iteration);
    }
    e.position(iteration);
    for step in &steps {
        if let Some(code) = step.parallel {
            e.call(code, &[entry.context]);
        }
        barrier.wait(&|| step.serial.iter().for_each(|code| _ = e.call(*code, &[entry.context])));
    }
    let goes_on = e.load(e.i32, e.byte_offset(frame, of.guard as i64), 4);
    e.set_monotonic(goes_on);
    e.cond_br(e.icmp(IntCmp::LLVMIntNE, goes_on, e.i32c(0)), iteration, done);
    e.position(done);
    u.target.return_from_task(e, e.i32c(0));
    u.target.finish_function(e, entry.function);
}

/// The code up to a barrier, and the code that one thread runs at it.
struct Step {
    parallel: Option<V>,
    serial: Vec<V>,
}

/// The barrier of a grid.
struct Barrier<'a, 'p> {
    u: &'a Unit<'p>,
    /// Its two words.
    state: V,
}

impl Barrier<'_, '_> {
    /// Waits for all threads of the grid. One thread runs `between` after all have arrived, before any goes on.
    fn wait(&self, between: &dyn Fn()) {
        let (target, e) = (self.u.target, &self.u.e);
        let names = [c"first", c"arrive", c"last", c"serial", c"release", c"wait", c"ordered", c"released"];
        let [first, arrive, last, serial, release, wait, ordered, released] =
            names.map(|name| e.add_block(e.function(), name));
        let (arrived, passed) = (self.state, e.byte_offset(self.state, 4));
        target.barrier(e, ThreadScope::Block);
        let is = |value: V, number: V| e.icmp(IntCmp::LLVMIntEQ, value, number);
        e.cond_br(is(target.grid_value(e, GridValue::Thread), e.i32c(0)), first, released);

        e.position(first);
        let blocks = target.grid_value(e, GridValue::Blocks);
        let is_alone = is(blocks, e.i32c(1));
        e.cond_br(is_alone, serial, arrive);

        e.position(arrive);
        let before = self.load(passed);
        self.fence(Release);
        let others = e.atomic_rmw(Add, arrived, e.i32c(1));
        e.cond_br(is(others, e.sub(blocks, e.i32c(1))), last, wait);

        e.position(last);
        self.fence(Acquire);
        e.br(serial);

        e.position(serial);
        between();
        e.cond_br(is_alone, released, release);

        e.position(release);
        e.set_monotonic(e.store(arrived, e.i32c(0), 4));
        self.fence(Release);
        e.atomic_rmw(Add, passed, e.i32c(1));
        e.br(ordered);

        e.position(wait);
        e.cond_br(is(self.load(passed), before), wait, ordered);

        e.position(ordered);
        self.fence(Acquire);
        e.br(released);

        e.position(released);
        target.barrier(e, ThreadScope::Block);
    }

    fn load(&self, word: V) -> V {
        let e = &self.u.e;
        let value = e.load(e.i32, word, 4);
        e.set_monotonic(value);
        value
    }

    fn fence(&self, order: llvm_sys::LLVMAtomicOrdering) {
        let e: &Emitter = &self.u.e;
        e.fence_in(self.u.target.atomic_style().scope, order);
    }
}
