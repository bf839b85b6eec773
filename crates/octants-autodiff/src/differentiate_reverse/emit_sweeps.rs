//! Builds the forward and the reverse sweep of a body according to its plan: the emitter's state, and the blocks into
//! which code is emitted.
//!
//! `emit_forward` and `emit_reverse` process the source instruction by instruction, `copy_values` holds its values in
//! the sweeps, and `sum_adjoints` accumulates gradients.

use std::collections::HashMap;

use octants_ir::{BlockId, Body, Buffer, BufferId, Builder, LocalId, Op, Scalar, Type, ValueId};

use super::plan_sweeps::Plan;
use super::sweep_state::{Adjoint, Deferred, Indices, Iteration, Mark, Mode, Stack, Store};
use octants_ir::insert_code::zero;

/// Builds the sweeps.
pub(super) struct Emitter<'a> {
    pub plan: &'a Plan<'a>,
    pub gradients: &'a [Option<BufferId>],
    pub buffers: &'a [Buffer],
    pub b: Builder,
    /// Blocks around the cursor, outermost first.
    pub open: Vec<BlockId>,
    /// Copies of the source's values, by region and loop, innermost last.
    pub scopes: Vec<HashMap<ValueId, ValueId>>,
    /// Block of each copy.
    pub home: HashMap<ValueId, BlockId>,
    /// Locals that carry copies to other blocks.
    pub carriers: HashMap<ValueId, LocalId>,
    /// The indices of the source's loops.
    pub indices: HashMap<ValueId, Indices>,
    pub adjoints: HashMap<ValueId, Adjoint>,
    /// The adjoints of locals, except those private to an iteration of a parallel loop.
    pub adjoint_locals: HashMap<LocalId, LocalId>,
    /// The start of the reverse sweep of each source block.
    pub reversed: HashMap<BlockId, Mark>,
    pub iteration: Option<Iteration>,
    /// The deferred sums of loops that are being run backwards.
    pub deferred: HashMap<ValueId, Deferred>,
    /// Trip counts of loops whose bounds do not determine them.
    pub trips: HashMap<ValueId, ValueId>,
    /// The values of locals when a loop began.
    pub snapshots: HashMap<(ValueId, LocalId), ValueId>,
    pub stacks: HashMap<ValueId, Stack>,
    pub store: Store,
    /// When counting: iterations and words of a lane.
    pub totals: Option<[LocalId; 3]>,
}

impl<'a> Emitter<'a> {
    pub fn new(
        plan: &'a Plan<'a>,
        gradients: &'a [Option<BufferId>],
        buffers: &'a [Buffer],
        store: Store,
    ) -> Emitter<'a> {
        let mut b = Builder::new();
        b.body.locals = plan.body.locals.clone();
        let root = b.body.root;
        Emitter {
            plan,
            gradients,
            buffers,
            b,
            open: vec![root],
            scopes: vec![HashMap::new()],
            home: HashMap::new(),
            carriers: HashMap::new(),
            indices: HashMap::new(),
            adjoints: HashMap::new(),
            adjoint_locals: HashMap::new(),
            reversed: HashMap::new(),
            iteration: None,
            deferred: HashMap::new(),
            trips: HashMap::new(),
            snapshots: HashMap::new(),
            stacks: HashMap::new(),
            store,
            totals: None,
        }
    }

    /// Both sweeps of the whole body.
    pub fn root(mut self) -> Body {
        self.store.begin_root(&mut self.b);
        self.forward(self.plan.body.root, &self.plan.root, Mode::Keep);
        self.reverse(self.plan.body.root);
        self.b.body
    }

    pub fn source(&self) -> &'a Body {
        self.plan.body
    }

    /// Runs `f` with the cursor in a block.
    pub fn within<T>(&mut self, block: BlockId, f: impl FnOnce(&mut Self) -> T) -> T {
        let back = self.b.set_cursor(block);
        self.open.push(block);
        let result = f(self);
        self.open.pop();
        self.b.set_cursor(back);
        result
    }

    /// A branch with the code that these append.
    pub fn branch(&mut self, condition: ValueId, yes: impl FnOnce(&mut Self), no: impl FnOnce(&mut Self)) {
        let blocks = [self.b.body.add_block(), self.b.body.add_block()];
        self.b.push(Op::If(condition, blocks[0], blocks[1]), Type::Unit);
        self.within(blocks[0], yes);
        self.within(blocks[1], no);
    }

    /// Marks the current insertion point.
    pub fn mark(&mut self) -> Mark {
        Mark { block: self.b.cursor(), inst: self.b.int(0, Scalar::I32) }
    }

    /// After a copy of a value.
    pub fn behind(&self, copy: ValueId) -> Mark {
        Mark { block: self.home[&copy], inst: copy }
    }

    /// Inserts code at a marked position.
    pub fn insert_at(&mut self, mark: Mark, f: impl FnOnce(&mut Builder)) {
        let aside = self.b.body.add_block();
        let back = self.b.set_cursor(aside);
        f(&mut self.b);
        self.b.set_cursor(back);
        let code = std::mem::take(&mut self.b.body.blocks[aside.index()]);
        let list = &mut self.b.body.blocks[mark.block.index()];
        let at = list.iter().position(|v| *v == mark.inst).expect("compiler bug: a marker is not in its block");
        list.splice(at + 1..at + 1, code);
    }

    /// Sets a local to zero at a place.
    pub fn zero_at(&mut self, mark: Mark, local: LocalId) {
        self.insert_at(mark, |b| {
            let ty = b.body.locals[local.index()].ty.clone();
            let (addr, zero) = (b.local_addr(local), zero(b, &ty));
            b.store(addr, zero);
        });
    }

    /// Sets a local that counts.
    pub fn set(&mut self, local: LocalId, value: i64) {
        let s = self.b.body.locals[local.index()].ty.scalar().expect("compiler bug: a counter that is not a scalar");
        let (addr, value) = (self.b.local_addr(local), self.b.int(value, s));
        self.b.store(addr, value);
    }
}
