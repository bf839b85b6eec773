//! [`Cloner`]: copies code within a body, with substitutions: for unrolling, and for code under known conditions.
//!
//! A copy of a local that holds one value needs no local: its loads are the stored value. Values from outside the
//! copied code stand for themselves.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use octants_ir::schedule::LocalUses;
use octants_ir::{BlockId, Body, Builder, Copier, LocalId, Locals, Op, Scalar, ValueId, copy_blocks};

/// Handles an instruction instead of the cloner; `false` leaves it to the cloner.
pub(crate) type Hook<'h> = dyn FnMut(&mut Cloner<'_>, &mut Builder, ValueId) -> bool + 'h;

/// A hook that leaves all instructions to the cloner.
pub(crate) fn plainly(_: &mut Cloner<'_>, _: &mut Builder, _: ValueId) -> bool {
    false
}

/// Copies code of `source` into a builder whose body contains the same instructions under the same numbers.
pub(crate) struct Cloner<'a> {
    pub source: &'a Body,
    pub locals: &'a LocalUses,
    /// The copies of the values and locals of the source.
    pub copier: Copier<'a>,
    /// The replacement of a loop index.
    pub indices: HashMap<(ValueId, u32), ValueId>,
    /// Loops that are fully unrolled, with the range of their index.
    unrolled: HashMap<ValueId, Range<i64>>,
    /// The iteration of each unrolled loop around the code that is being copied.
    pub iterations: HashMap<ValueId, usize>,
    /// Conditions that hold.
    pub known: HashSet<ValueId>,
    /// Copied loops have no remainder loops.
    pub drops_remainders: bool,
}

impl<'a> Cloner<'a> {
    /// A cloner without substitutions.
    pub fn new(source: &'a Body, locals: &'a LocalUses) -> Cloner<'a> {
        Cloner {
            source,
            locals,
            copier: Copier { source, values: HashMap::new(), locals: Locals::Kept },
            indices: HashMap::new(),
            unrolled: HashMap::new(),
            iterations: HashMap::new(),
            known: HashSet::new(),
            drops_remainders: false,
        }
    }

    /// A cloner that copies the locals too.
    pub fn with_own_locals(source: &'a Body, locals: &'a LocalUses) -> Cloner<'a> {
        let mut cloner = Cloner::new(source, locals);
        cloner.copier.locals = Locals::Renewed(HashMap::new());
        cloner
    }

    /// Unrolls loops fully, each with the range of its index.
    pub fn unroll_loops(&mut self, loops: &HashMap<ValueId, Range<i64>>) {
        self.unrolled.extend(loops.iter().map(|(v, range)| (*v, range.clone())));
    }

    /// The copy of a value.
    pub fn value(&self, v: ValueId) -> ValueId {
        self.copier.value(v)
    }

    /// Registers `copy` as the copy of a value.
    pub fn set_value(&mut self, v: ValueId, copy: ValueId) {
        self.copier.values.insert(v, copy);
    }

    /// Copies the instructions of a block to the cursor.
    pub fn block(&mut self, b: &mut Builder, block: BlockId, hook: &mut Hook<'_>) {
        let source = self.source;
        self.insts(b, source.block(block), hook);
    }

    /// Copies instructions to the cursor.
    pub fn insts(&mut self, b: &mut Builder, insts: &[ValueId], hook: &mut Hook<'_>) {
        insts.iter().for_each(|v| self.inst(b, *v, hook));
    }

    /// Copies an instruction to the cursor.
    pub fn inst(&mut self, b: &mut Builder, v: ValueId, hook: &mut Hook<'_>) {
        if hook(self, b, v) {
            return;
        }
        let source = self.source;
        let inst = source.inst(v);
        b.span = inst.span;
        if let Some(stored) = self.locals.forwarded(v) {
            return self.set_value(v, self.value(stored));
        }
        match &inst.op {
            Op::Store(address, _) if self.is_one_value(*address) => {}
            Op::LocalAddr(l) if self.locals.of(*l).is_value => {}
            Op::LoopIndex(l, axis) if self.indices.contains_key(&(*l, *axis)) => {
                self.set_value(v, self.indices[&(*l, *axis)]);
            }
            Op::If(condition, then, _) if self.known.contains(&self.locals.source(*condition)) => {
                self.block(b, *then, hook);
            }
            Op::For(_) if self.unrolled.contains_key(&v) => self.unroll(b, v, hook),
            _ => self.copy(b, v, hook),
        }
    }

    /// The address is that of a local that holds one value.
    fn is_one_value(&self, address: ValueId) -> bool {
        matches!(self.source.inst(address).op, Op::LocalAddr(l) if self.locals.of(l).is_value)
    }

    /// Copies each iteration of a loop.
    fn unroll(&mut self, b: &mut Builder, v: ValueId, hook: &mut Hook<'_>) {
        let source = self.source;
        let Op::For(l) = &source.inst(v).op else { panic!("compiler bug: {v} is not a loop") };
        for (iteration, index) in self.unrolled[&v].clone().enumerate() {
            self.iterations.insert(v, iteration);
            let index = b.int(index, self.index_type(v));
            self.indices.insert((v, 0), index);
            self.block(b, l.body, hook);
        }
        self.indices.remove(&(v, 0));
        self.iterations.remove(&v);
    }

    /// The type of the index of a loop.
    pub fn index_type(&self, v: ValueId) -> Scalar {
        let Op::For(l) = &self.source.inst(v).op else { panic!("compiler bug: {v} is not a loop") };
        self.source.ty(l.dims[0].begin).scalar().expect("compiler bug: a bound is not a scalar")
    }

    /// The copy of a local of the source.
    pub fn copy_of_local(&mut self, b: &mut Builder, local: LocalId) -> LocalId {
        self.copier.local(b, local)
    }

    /// Copies all pure operations that a value is computed from, except those at the root of the body.
    pub fn recompute(&mut self, b: &mut Builder, v: ValueId) -> ValueId {
        let v = self.locals.source(v);
        let inst = self.source.inst(v);
        if let Op::LoopIndex(l, axis) = inst.op
            && let Some(index) = self.indices.get(&(l, axis))
        {
            return *index;
        }
        if self.source.block(self.source.root).contains(&v) || !inst.op.is_pure() {
            return v;
        }
        let mut op = inst.op.clone();
        op.map_operands(|u| self.recompute(b, u));
        b.push(op, inst.ty.clone())
    }

    fn copy(&mut self, b: &mut Builder, v: ValueId, hook: &mut Hook<'_>) {
        let copy = self.copier.shallow(b, v);
        copy_blocks(b, self.source, (v, copy), |b, from| self.block(b, from, hook));
        if let (true, Op::For(l)) = (self.drops_remainders, &mut b.body.inst_mut(copy).op) {
            l.hints.unroll.iter_mut().for_each(|unroll| unroll.remainder_factor = None);
        }
    }
}

/// Removes pure instructions and loads of locals whose values nothing uses.
pub(crate) fn remove_unused(body: &mut Body) {
    let mut used = HashSet::new();
    let mut walk: Vec<ValueId> = Vec::new();
    let is_kept = |op: &Op| !(op.is_pure() || matches!(op, Op::Load(_) | Op::LoopIndex(..)));
    body.visit(body.root, &mut |v, inst| walk.extend(is_kept(&inst.op).then_some(v)));
    while let Some(v) = walk.pop() {
        if used.insert(v) {
            body.inst(v).op.for_each_operand(|u| walk.push(u));
        }
    }
    body.blocks.iter_mut().for_each(|b| b.retain(|v| used.contains(v)));
}
