//! Control flow: blocks, branches, endless loops, calls and returns of one body, be it a task's or a function's. Loops over ranges are in
//! `serial_loops`.
//!
//! A [`Lowering`] exists while one LLVM function is filled. The function has an entry block that only holds stack slots and
//! reads of arguments; it is closed last. Serial loops count in 64 bits so that addresses stay affine; the index that the
//! program sees is the truncation, marked as exact.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use octants_ir::schedule::{BodySchedule, Jam};
use octants_ir::{BlockId, Body, FuncId, Op, Scalar, Type, ValueId};

use crate::emit::{Bb, Emitter, T, V};
use crate::gather_sums::Gathered;
use crate::jam_loops::Lanes;
use crate::place::Place;
use crate::target::Surroundings;
use crate::unit::Unit;
use crate::write_out_loops::Writing;

/// What an instruction yielded.
#[derive(Debug, Clone)]
pub(crate) enum Val {
    /// Scalar leaves, in the order of `Type::leaves`.
    Leaves(Vec<V>),
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
    pub kind: BodyKind,
    /// Type of what `Return` returns.
    pub ret: &'p Type,
    /// One thread runs the task: atomics are plain.
    pub exclusive: bool,
    /// The task's loop is too large to become vector code.
    pub large: bool,
    /// LLVM may be told that the iterations of the task's loop do not depend on one another.
    pub independent: bool,
    /// All threads of the task come by the end of each iteration.
    pub balances: bool,
    pub function: V,
    pub context: V,
    /// State of the random numbers of the current iteration, where any are drawn.
    pub rng: Option<V>,
    pub entry: Bb,
    pub around: Surroundings,
    pub locals: Vec<Option<Place>>,
    /// Parameters of a function; a task's are read from the argument slots.
    pub params: Vec<Val>,
    /// Accumulators of the parallel loop, and how each is folded.
    pub accumulators: Vec<V>,
    /// Buffers that lie elsewhere than the arguments say: a pointer, and the bytes of the root that lie before it.
    pub moved: HashMap<usize, (V, u64)>,
    pub reductions: Vec<octants_ir::AtomicOp>,
    /// Sums of the aligned loop that is being lowered.
    pub gathered: Option<Gathered<'p>>,
    /// Short loops that are written out.
    pub writing: Writing<'p>,
    /// Which iterations of the parallel loop run at once.
    pub jam: Option<&'p Jam>,
    /// Those, while their code is made.
    pub lanes: Option<Lanes>,
    pub indices: HashMap<ValueId, Vec<Index>>,
    pub values: Vec<Option<Val>>,
    pub loops: Vec<LoopTargets>,
    /// The addresses in argument slots are multiples of so many bytes.
    pub alignment: Option<u32>,
    /// Where an iteration of the parallel loop ends, while its body is lowered.
    pub iteration_end: Option<Bb>,
    /// A word that is set where an assertion failed in an iteration, made by the first one that may.
    pub failed: Cell<Option<V>>,
    pub slots: RefCell<HashMap<(u32, usize), V>>,
    pub random_key: Cell<Option<(V, V)>>,
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
            kind,
            ret: &Type::Unit,
            exclusive: false,
            large: false,
            independent: false,
            balances: false,
            function,
            context,
            rng: None,
            entry,
            around,
            locals: vec![None; body.locals.len()],
            params: Vec::new(),
            accumulators: Vec::new(),
            reductions: Vec::new(),
            moved: HashMap::new(),
            gathered: None,
            writing: Writing::default(),
            jam: None,
            lanes: None,
            indices: HashMap::new(),
            values: vec![None; body.insts.len()],
            loops: Vec::new(),
            alignment: None,
            iteration_end: None,
            failed: Cell::new(None),
            slots: RefCell::default(),
            random_key: Cell::new(None),
        }
    }

    /// Closes the entry block.
    pub fn finish(&self, start: Bb) {
        self.e.position(self.entry);
        self.e.br(start);
    }

    /// Emits into the entry block: what is emitted there runs once, before everything else.
    pub fn at_entry<R>(&self, f: impl FnOnce() -> R) -> R {
        self.e.in_block(self.entry, f)
    }

    /// A new block of the function.
    pub fn new_block(&self, name: &std::ffi::CStr) -> Bb {
        self.e.add_block(self.function, name)
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

    /// Lowers the instructions of a block; stops where it ends.
    pub fn block(&mut self, b: BlockId) {
        for &v in self.body.block(b) {
            if self.e.is_terminated() {
                return;
            }
            self.inst(v);
        }
    }

    /// Lowers one instruction.
    pub fn inst(&mut self, v: ValueId) {
        let body = self.body;
        match &body.inst(v).op {
            Op::If(c, then, otherwise) => self.branch(*c, *then, *otherwise),
            Op::For(l) => self.serial_for(v, l),
            Op::Loop(b) => self.forever(*b),
            Op::Break => {
                let to = self.loops.last().expect("compiler bug: break outside a loop").on_break;
                self.e.br(to);
            }
            Op::Continue => {
                let to = self.loops.last().expect("compiler bug: continue outside a loop").on_continue;
                self.e.br(to);
            }
            Op::Return(value) => self.return_from_body(*value),
            Op::Call(f, args) => self.call(v, *f, args),
            _ => {
                let result = self.value_of(v);
                self.values[v.index()] = match result {
                    Some(Val::Leaves(leaves)) => Some(self.held_value(v, leaves)),
                    other => other,
                };
            }
        }
    }

    fn branch(&mut self, c: ValueId, then: BlockId, otherwise: BlockId) {
        if self.is_known_to_run(c) {
            return self.block(then);
        }
        let c = self.value(c);
        if let Some(known) = self.e.as_int(c) {
            return self.block(if known != 0 { then } else { otherwise });
        }
        let has_else = !self.body.block(otherwise).is_empty();
        let then_bb = self.new_block(c"then");
        let after = self.new_block(c"after");
        let else_bb = if has_else { self.new_block(c"else") } else { after };
        self.e.cond_br(c, then_bb, else_bb);
        self.arm(then_bb, then, after);
        if has_else {
            self.arm(else_bb, otherwise, after);
        }
        self.e.position(after);
    }

    fn arm(&mut self, bb: Bb, block: BlockId, after: Bb) {
        self.e.position(bb);
        self.block(block);
        if !self.e.is_terminated() {
            self.e.br(after);
        }
    }

    /// A bound of a loop in 64 bits.
    pub fn bound(&self, v: ValueId) -> V {
        self.widen(self.value(v), self.scalar_of(v))
    }

    /// The index as the program sees it.
    pub fn narrow_index(&self, wide: V, s: Scalar) -> V {
        if s.bits() == 64 {
            return wide;
        }
        self.e.no_signed_wrap(self.e.trunc(wide, self.e.i32))
    }

    fn forever(&mut self, b: BlockId) {
        let head = self.new_block(c"loop");
        let exit = self.new_block(c"loop.end");
        self.e.br(head);
        self.e.position(head);
        self.loops.push(LoopTargets { on_break: exit, on_continue: head });
        self.block(b);
        self.loops.pop();
        if !self.e.is_terminated() {
            self.e.br(head);
        }
        self.e.position(exit);
    }

    fn return_from_body(&mut self, value: Option<ValueId>) {
        let leaves = value.map_or_else(Vec::new, |v| self.leaves(v));
        match self.kind {
            BodyKind::Task => {
                for (i, (leaf, s)) in leaves.into_iter().zip(self.ret.leaves()).enumerate() {
                    let slot = self.u.target.result_slot(self.e, self.context, i);
                    self.e.store(slot, self.slot_bits(leaf, s), 8);
                }
                self.u.target.return_from_task(self.e, self.e.i32c(0));
            }
            BodyKind::Function { fails } => self.return_leaves(leaves, fails.then_some(false)),
            BodyKind::Count => panic!("compiler bug: a task's prologue returns"),
        }
    }

    /// Ends what a failed assertion ends: the iteration of a task's parallel loop, or else the function, with zeros for results.
    pub fn leave_after_failure(&self) {
        let e = self.e;
        match (self.kind, self.iteration_end) {
            (BodyKind::Task, Some(end)) => {
                let flag = self.failed.get().unwrap_or_else(|| {
                    self.at_entry(|| {
                        let flag = e.alloca(e.i32, 4);
                        e.store(flag, e.i32c(0), 4);
                        flag
                    })
                });
                self.failed.set(Some(flag));
                e.store(flag, e.i32c(1), 4);
                e.br(end);
            }
            (BodyKind::Task, None) => self.u.target.return_from_task(e, e.i32c(1)),
            (BodyKind::Count, _) => e.ret(e.i64c(0)),
            (BodyKind::Function { .. }, _) => {
                let zeros = self.ret.leaves().into_iter().map(|s| self.e.zero(self.e.scalar(s))).collect();
                self.return_leaves(zeros, Some(true));
            }
        }
    }

    /// What a body does when control reaches its end.
    pub fn end_of_body(&self) {
        if self.e.is_terminated() {
            return;
        }
        match self.kind {
            BodyKind::Task => {
                let none = self.e.i32c(0);
                let status = self.failed.get().map_or(none, |flag| self.e.load(self.e.i32, flag, 4));
                self.u.target.return_from_task(self.e, status);
            }
            BodyKind::Count => self.e.ret(self.e.i64c(0)),
            BodyKind::Function { fails } => {
                let zeros = self.ret.leaves().into_iter().map(|s| self.e.zero(self.e.scalar(s))).collect();
                self.return_leaves(zeros, fails.then_some(false));
            }
        }
    }

    fn return_leaves(&self, mut leaves: Vec<V>, failed: Option<bool>) {
        leaves.extend(failed.map(|f| self.e.int(self.e.i1, i64::from(f))));
        match leaves.as_slice() {
            [] => self.e.ret_void(),
            [one] => self.e.ret(*one),
            many => {
                let mut types: Vec<T> = many.iter().map(|v| self.e.type_of(*v)).collect();
                let mut all = self.e.undef(self.e.struct_type(&mut types));
                for (i, v) in many.iter().enumerate() {
                    all = self.e.insert_value(all, *v, i);
                }
                self.e.ret(all);
            }
        }
    }

    fn call(&mut self, v: ValueId, f: FuncId, args: &[ValueId]) {
        let mut scalars = vec![self.context];
        let behavior = self.u.facts.schedule.functions[f.index()].behavior;
        if behavior.draws {
            scalars.push(self.rng.expect("compiler bug: a caller of a function that draws has a state"));
        }
        let mut refs = Vec::new();
        for a in args {
            match &self.values[a.index()] {
                Some(Val::Leaves(leaves)) => {
                    scalars.extend(leaves);
                    refs.push(None);
                }
                Some(Val::Place(place)) => {
                    scalars.extend(&place.ptrs);
                    refs.push(Some((*place.shape).clone()));
                }
                None => panic!("compiler bug: argument {a} of a call was not computed"),
            }
        }
        let exclusive = self.exclusive && behavior.atomics > 0;
        let callee = self.u.instance(f, refs, exclusive);
        let result = self.e.call(callee, &scalars);
        self.e.set_fast_call(result, true);
        let ret = &self.u.program.functions[f.index()].ret;
        let count = ret.leaf_count();
        let total = count + usize::from(behavior.fails);
        let mut leaves: Vec<V> = match total {
            0 => Vec::new(),
            1 => vec![result],
            _ => (0..total).map(|i| self.e.extract_value(result, i)).collect(),
        };
        if behavior.fails {
            let failed = leaves.pop().expect("compiler bug: the flag is one of the results");
            let stop = self.new_block(c"failed");
            let go_on = self.new_block(c"ok");
            self.e.cond_br(failed, stop, go_on);
            self.e.position(stop);
            self.leave_after_failure();
            self.e.position(go_on);
        }
        self.values[v.index()] = Some(self.held_value(v, leaves));
    }

    /// What an instruction yields, frozen where it is to stay in its place.
    fn held_value(&self, v: ValueId, leaves: Vec<V>) -> Val {
        let is_held = self.schedule.held.contains(&v);
        Val::Leaves(if is_held { leaves.into_iter().map(|leaf| self.e.freeze(leaf)).collect() } else { leaves })
    }
}
