//! [`Cloner`]: copies of a body's code inside the same body, with substitutions: for unrolling, and for code under
//! conditions that are known.
//!
//! A copy of a local that holds one value needs no local: its loads are the stored value. Values from outside the
//! copied code stand for themselves.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use octants_ir::schedule::LocalUses;
use octants_ir::{BlockId, Body, Builder, Local, LocalId, Op, Scalar, ValueId};

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
    /// What stands for a value of the source.
    pub values: HashMap<ValueId, ValueId>,
    /// What stands for the index of a loop with one axis.
    pub indices: HashMap<ValueId, ValueId>,
    /// Loops that are fully unrolled, with the range of their index.
    unrolled: HashMap<ValueId, Range<i64>>,
    /// The iteration of each unrolled loop around the code that is being copied.
    pub iterations: HashMap<ValueId, usize>,
    /// Conditions that hold.
    pub known: HashSet<ValueId>,
    /// Copied loops have no remainder loops.
    pub drops_remainders: bool,
    /// Copies of locals, if locals are copied.
    pub copied_locals: Option<HashMap<LocalId, LocalId>>,
}

impl<'a> Cloner<'a> {
    /// A cloner without substitutions.
    pub fn new(source: &'a Body, locals: &'a LocalUses) -> Cloner<'a> {
        Cloner {
            source,
            locals,
            values: HashMap::new(),
            indices: HashMap::new(),
            unrolled: HashMap::new(),
            iterations: HashMap::new(),
            known: HashSet::new(),
            drops_remainders: false,
            copied_locals: None,
        }
    }

    /// A cloner that copies the locals too.
    pub fn with_own_locals(source: &'a Body, locals: &'a LocalUses) -> Cloner<'a> {
        Cloner { copied_locals: Some(HashMap::new()), ..Cloner::new(source, locals) }
    }

    /// Unrolls loops fully, each with the range of its index.
    pub fn unroll_loops(&mut self, loops: &HashMap<ValueId, Range<i64>>) {
        self.unrolled.extend(loops.iter().map(|(v, range)| (*v, range.clone())));
    }

    /// What stands for a value.
    pub fn value(&self, v: ValueId) -> ValueId {
        self.values.get(&v).copied().unwrap_or(v)
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
            let stored = self.value(stored);
            self.values.insert(v, stored);
            return;
        }
        match &inst.op {
            Op::Store(address, _) if self.is_one_value(*address) => {}
            Op::LocalAddr(l) if self.locals.of(*l).is_value => {}
            Op::LoopIndex(l, 0) if self.indices.contains_key(l) => _ = self.values.insert(v, self.indices[l]),
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
        let Op::For(l) = &source.inst(v).op else { panic!("compiler bug: {v} is no loop") };
        for (iteration, index) in self.unrolled[&v].clone().enumerate() {
            self.iterations.insert(v, iteration);
            let index = b.int(index, self.index_type(v));
            self.indices.insert(v, index);
            self.block(b, l.body, hook);
        }
        self.indices.remove(&v);
        self.iterations.remove(&v);
    }

    /// The type of the index of a loop.
    pub fn index_type(&self, v: ValueId) -> Scalar {
        let Op::For(l) = &self.source.inst(v).op else { panic!("compiler bug: {v} is no loop") };
        self.source.ty(l.dims[0].begin).scalar().expect("compiler bug: a bound is a scalar")
    }

    /// The local that stands for one of the source.
    pub fn copy_of_local(&mut self, b: &mut Builder, local: LocalId) -> LocalId {
        let Some(copies) = &mut self.copied_locals else { return local };
        *copies.entry(local).or_insert_with(|| {
            let Local { name, ty } = b.body.locals[local.index()].clone();
            b.body.add_local(name, ty)
        })
    }

    fn copy(&mut self, b: &mut Builder, v: ValueId, hook: &mut Hook<'_>) {
        let inst = self.source.inst(v);
        let mut op = inst.op.clone();
        op.map_operands(|u| self.value(u));
        if let Op::LocalAddr(l) = &mut op {
            *l = self.copy_of_local(b, *l);
        }
        let copy = b.push(op, inst.ty.clone());
        self.values.insert(v, copy);
        let mut blocks: Vec<BlockId> = Vec::new();
        for from in inst.op.blocks() {
            let to = b.body.add_block();
            let back = b.set_cursor(to);
            self.block(b, from, hook);
            b.set_cursor(back);
            blocks.push(to);
        }
        let op = &mut b.body.inst_mut(copy).op;
        op.set_blocks(&blocks);
        if let (true, Op::For(l)) = (self.drops_remainders, op) {
            l.hints.unroll.iter_mut().for_each(|unroll| unroll.remainder_factor = None);
        }
    }
}

/// Removes pure instructions whose values nothing uses, and loads of locals like them.
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
