//! [`Lowering`]: an LLVM function while it is filled, and what is known in it.
//!
//! The function has an entry block that only holds stack slots and reads of arguments; it is closed last. What fills it
//! is in the files that lower: control flow in `lower_body`, values in `lower_op`, tasks in `lower_task`.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use octants_ir::schedule::BodySchedule;
use octants_ir::{AtomicOp, Body, Scalar, Type, ValueId};

use crate::emit::{Bb, Emitter, T, V};
use crate::optimize::POLLED;
use crate::place::Place;
use crate::target::Surroundings;
use crate::unit::Unit;

/// LLVM's `memory(inaccessiblemem: readwrite)`: two bits for each kind of memory, of which this is the second.
const INACCESSIBLE_MEMORY: u64 = 0b11 << 2;

/// What an instruction yielded.
#[derive(Debug, Clone)]
pub(crate) enum Val {
    /// Scalar leaves, in the order of `Type::leaves`.
    Leaves(Vec<V>),
    /// A vector that stays whole.
    Vector(V),
    /// An address.
    Place(Place),
}

/// An index of a loop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Index {
    /// As the program sees it, i32 or i64.
    pub narrow: V,
    /// The same in 64 bits.
    pub wide: V,
}

/// Where `Break` and `Continue` go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoopTargets {
    pub on_break: Bb,
    pub on_continue: Bb,
}

/// What leaving the body means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyKind {
    /// Results go to the launch's result slots; the function returns 0, or 1 where an assertion failed.
    Task,
    /// The function returns the leaves, then whether it failed, where it can.
    Function { fails: bool },
    /// The prologue of a task alone: nothing is returned.
    Count,
}

/// The LLVM function under construction.
pub(crate) struct Lowering<'u, 'p> {
    pub u: &'u Unit<'p>,
    pub e: &'u Emitter,
    pub body: &'p Body,
    /// How the body runs.
    pub schedule: &'p BodySchedule,
    /// What does not change while the function is filled.
    pub form: BodyForm<'p>,
    pub code: Code,
    pub values: Vec<Option<Val>>,
    pub locals: Vec<Option<Place>>,
    /// Parameters of a function; a task's are read from the argument slots.
    pub params: Vec<Val>,
    /// The loops around what is being lowered.
    pub open: OpenLoops,
    pub parallel: ParallelState,
}

/// The form of a body's code.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyForm<'p> {
    pub kind: BodyKind,
    /// Type of what `Return` returns.
    pub ret: &'p Type,
    /// Alignment of the addresses in argument slots, in bytes. Coarsened variants alone have one.
    pub alignment: Option<u32>,
}

/// What code of a function starts from.
pub(crate) struct Code {
    pub function: V,
    pub context: V,
    pub entry: Bb,
    pub around: Surroundings,
    /// Argument slots that were read.
    pub slots: RefCell<HashMap<(u32, usize), V>>,
    pub random_key: Cell<Option<(V, V)>>,
}

/// Loops around what is being lowered.
#[derive(Debug, Default)]
pub(crate) struct OpenLoops {
    /// Of each its indices.
    pub indices: HashMap<ValueId, Vec<Index>>,
    /// Where `Break` and `Continue` go, innermost last.
    pub targets: Vec<LoopTargets>,
}

/// What belongs to a task's parallel loop.
#[derive(Debug, Default)]
pub(crate) struct ParallelState {
    /// State of the random numbers of the current iteration, where any are drawn.
    pub rng: Option<V>,
    /// Where an iteration ends, while its body is lowered.
    pub iteration_end: Option<Bb>,
    /// A word that is set where an assertion failed in an iteration, made by the first one that may.
    pub failed: Cell<Option<V>>,
    /// Accumulators of its reductions, and how each is folded.
    pub accumulators: Vec<V>,
    pub reductions: Vec<AtomicOp>,
    /// Buffers that are elsewhere than the arguments say: a pointer, and the bytes of the root that are before it.
    pub moved: HashMap<usize, (V, u64)>,
    /// The memory of private buffers.
    pub private: HashMap<usize, V>,
}

impl<'u, 'p> Lowering<'u, 'p> {
    /// Starts the code of `function`: its entry block is open, the insertion point is in the block after it.
    pub fn start(
        u: &'u Unit<'p>,
        (body, schedule): (&'p Body, &'p BodySchedule),
        kind: BodyKind,
        function: V,
        context: V,
    ) -> Lowering<'u, 'p> {
        let e = &u.e;
        let entry = e.add_block(function, c"entry");
        let start = e.add_block(function, c"start");
        e.position(entry);
        let around = u.target.surroundings(e, &|load| u.metadata.mark_invariant(load), context);
        e.position(start);
        u.target.finish_function(e, function);
        Lowering {
            u,
            e,
            body,
            schedule,
            form: BodyForm { kind, ret: &Type::Unit, alignment: None },
            code: Code { function, context, entry, around, slots: RefCell::default(), random_key: Cell::new(None) },
            values: vec![None; body.insts.len()],
            locals: vec![None; body.locals.len()],
            params: Vec::new(),
            open: OpenLoops::default(),
            parallel: ParallelState::default(),
        }
    }

    /// Long loops of the function are to poll the host, where the target's do.
    pub fn mark_polled(&self) {
        if self.u.target.poll_offset().is_none() {
            return;
        }
        let e = self.e;
        let mark = e.declare(POLLED, e.void, &mut [e.ptr]);
        for name in ["nounwind", "willreturn"] {
            e.function_attribute(mark, name, 0);
        }
        // It touches memory that no other code knows, so that it stays where it is and keeps nothing else in place.
        e.function_attribute(mark, "memory", INACCESSIBLE_MEMORY);
        e.call(mark, &[self.code.context]);
    }

    /// Closes the entry block.
    pub fn finish(&self, start: Bb) {
        self.e.position(self.code.entry);
        self.e.br(start);
    }

    /// Emits into the entry block: what is emitted there runs once, before everything else.
    pub fn at_entry<R>(&self, f: impl FnOnce() -> R) -> R {
        self.e.in_block(self.code.entry, f)
    }

    /// A new block of the function.
    pub fn new_block(&self, name: &std::ffi::CStr) -> Bb {
        self.e.add_block(self.code.function, name)
    }

    /// A stack slot.
    pub fn stack(&self, ty: T, align: u32) -> V {
        self.at_entry(|| self.e.alloca(ty, align))
    }

    /// The instruction whose value `v` is, seen through loads of locals that hold one value.
    pub fn source(&self, v: ValueId) -> ValueId {
        self.schedule.locals.source(v)
    }

    /// The leaves of a value computed before.
    pub fn leaves(&self, v: ValueId) -> Vec<V> {
        match &self.values[v.index()] {
            Some(Val::Leaves(l)) => l.clone(),
            Some(Val::Vector(whole)) => self.lanes(*whole, self.body.ty(v).leaf_count()),
            other => panic!("compiler bug: {v} ({:?}) is not a computed value: {other:?}", self.body.inst(v).op),
        }
    }

    /// The only leaf of a scalar computed before.
    pub fn value(&self, v: ValueId) -> V {
        self.leaves(v)[0]
    }

    /// The address that a value computed before is.
    pub fn place(&self, v: ValueId) -> Place {
        match &self.values[v.index()] {
            Some(Val::Place(p)) => p.clone(),
            other => panic!("compiler bug: {v} ({:?}) is not an address: {other:?}", self.body.inst(v).op),
        }
    }

    /// The scalar of a value's components.
    pub fn scalar_of(&self, v: ValueId) -> Scalar {
        self.body.ty(v).scalar().expect("compiler bug: a scalar or tensor was expected")
    }
}
