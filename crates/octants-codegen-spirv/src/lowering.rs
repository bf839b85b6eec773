//! [`Lowering`]: a function under construction, and its state. [`Unit`]: the state that the functions of a module
//! share.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use octants_codegen::Facts;
use octants_ir::schedule::BodySchedule;
use octants_ir::{AtomicOp, Body, FuncId, Scalar, Type, ValueId};

use crate::emit::{Emitter, Id};
use crate::place::{Place, PlaceShape};

/// A function of the module's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Helper {
    /// Multiplies repeatedly.
    Power(Scalar),
    /// The generator of random numbers.
    Philox,
    /// Finds room for a printed record.
    Reserve,
    /// Finds room for the record of a failure: the first one has it.
    Claim,
}

/// A way to call a function.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct InstanceKey {
    pub function: FuncId,
    /// Per parameter: the shape of a reference.
    pub refs: Vec<Option<PlaceShape>>,
}

/// A module under construction.
pub(crate) struct Unit<'p> {
    pub facts: &'p Facts<'p>,
    pub e: Emitter,
    /// Number of the task, part of the key of random numbers.
    pub task: u32,
    /// Threads of a block read values that other threads of the block write.
    pub shares_memory: bool,
    /// Floats of 32 bits in shared memory are exchanged, not only added to.
    pub swaps_shared_floats: bool,
    /// The push constants: a `DeviceContext`, followed by the argument slots or their address.
    pub context: Id,
    /// Threads of a block, a constant that the driver sets.
    pub block_size: Id,
    pub instances: RefCell<HashMap<InstanceKey, Id>>,
    pub pending: RefCell<Vec<(InstanceKey, Id)>>,
    pub helpers: RefCell<HashMap<Helper, Id>>,
    /// Variables of blocks, by root of shared memory and type.
    pub shared: RefCell<HashMap<(u32, Scalar), Id>>,
    /// A word for each thread of the block: whether a `Break` has left its loop.
    pub left_words: Cell<Option<Id>>,
    /// Words of the block: for votes, for counts, and for fences by atomic operations.
    pub block_words: [Cell<Option<Id>>; 3],
}

impl Unit<'_> {
    /// Shared memory holds these scalars as integers, for which there are more atomic operations.
    pub fn shares_as_words(&self, s: Scalar) -> bool {
        s.is_float() && (s != Scalar::F32 || self.swaps_shared_floats)
    }
}

/// The lowered result of an instruction.
#[derive(Debug, Clone)]
pub(crate) enum Val {
    /// Scalar leaves, in the order of `Type::leaves`.
    Leaves(Vec<Id>),
    /// An address.
    Place(Place),
}

/// An index of a loop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Index {
    /// As the program sees it, 32 or 64 bits.
    pub narrow: Id,
    /// The same in 64 bits.
    pub wide: Id,
}

/// An axis of a parallel loop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Axis {
    /// First index, 64 bits.
    pub begin: Id,
    /// Number of indices, 64 bits, not negative.
    pub trips: Id,
    pub scalar: Scalar,
}

/// A loop of the IR that `Break` and `Continue` leave.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoopTargets {
    pub on_break: Id,
    pub on_continue: Id,
    /// A variable that ends the loops of all axes when the loop is left.
    pub is_left: Option<Id>,
}

/// A loop of SPIR-V that is open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenLoop {
    pub done: Id,
    /// A failure in it ends the iteration around it.
    pub fails: bool,
}

/// How the body is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyKind {
    /// Results go to the launch's result slots.
    Task,
    /// The function returns the leaves, then whether it failed, if it can fail.
    Function { fails: bool },
}

/// Variables of the state of random numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RandomState {
    /// The number of the iteration.
    pub linear: Id,
    /// How many words were drawn.
    pub draws: Id,
}

/// The function under construction.
pub(crate) struct Lowering<'u, 'p> {
    pub u: &'u Unit<'p>,
    pub e: &'u Emitter,
    pub body: &'p Body,
    /// How the body runs.
    pub schedule: &'p BodySchedule,
    pub kind: BodyKind,
    /// Type of what `Return` returns.
    pub ret: &'p Type,
    pub values: Vec<Option<Val>>,
    pub locals: Vec<Option<Place>>,
    /// Parameters of a function; a task's are read from the argument slots.
    pub params: Vec<Val>,
    /// Argument slots that were read, 64 bits each.
    pub slots: RefCell<HashMap<u32, Id>>,
    pub random_key: Cell<Option<(Id, Id)>>,
    /// The indices of each open loop.
    pub indices: HashMap<ValueId, Vec<Index>>,
    /// The targets of `Break` and `Continue`, innermost last.
    pub targets: Vec<LoopTargets>,
    /// All open loops, innermost last.
    pub loops: Vec<OpenLoop>,
    pub rng: Option<RandomState>,
    /// Where an iteration of the task's parallel loop ends, and how many loops are around it.
    pub iteration_end: Option<(Id, usize)>,
    /// Set when an iteration has failed: the rest of it is skipped.
    pub has_failed: Option<Id>,
    /// Accumulators of reductions, and how each is folded.
    pub accumulators: Vec<(Id, AtomicOp)>,
    /// Vectors are aligned to their size, up to this many bytes, or to the size of their scalars if there is no limit.
    pub vector_alignment: Option<u32>,
    /// Variables of private memory, by root and type.
    pub private: RefCell<HashMap<(u32, Scalar), (Id, u32)>>,
}

impl<'u, 'p> Lowering<'u, 'p> {
    /// Starts the code of a function that was begun.
    pub fn start(
        u: &'u Unit<'p>,
        (body, schedule): (&'p Body, &'p BodySchedule),
        kind: BodyKind,
        ret: &'p Type,
    ) -> Lowering<'u, 'p> {
        Lowering {
            u,
            e: &u.e,
            body,
            schedule,
            kind,
            ret,
            values: vec![None; body.insts.len()],
            locals: vec![None; body.locals.len()],
            params: Vec::new(),
            slots: RefCell::default(),
            random_key: Cell::new(None),
            indices: HashMap::new(),
            targets: Vec::new(),
            loops: Vec::new(),
            rng: None,
            iteration_end: None,
            has_failed: None,
            accumulators: Vec::new(),
            vector_alignment: None,
            private: RefCell::default(),
        }
    }

    /// The instruction whose value `v` is, seen through loads of locals that hold one value.
    pub fn source(&self, v: ValueId) -> ValueId {
        self.schedule.locals.source(v)
    }

    /// The leaves of a value computed before.
    pub fn leaves(&self, v: ValueId) -> Vec<Id> {
        match &self.values[v.index()] {
            Some(Val::Leaves(l)) => l.clone(),
            other => panic!("compiler bug: {v} ({:?}) is not a computed value: {other:?}", self.body.inst(v).op),
        }
    }

    /// The only leaf of a scalar computed before.
    pub fn value(&self, v: ValueId) -> Id {
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
        self.body.ty(v).scalar().expect("compiler bug: expected a scalar or tensor")
    }
}
