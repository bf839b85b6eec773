//! [`Copier`]: copies code, within a body or to another one.
//!
//! Copies are inserted at a builder's cursor, with values and blocks numbered in the order of the text. For a copy to
//! another body, every value that the code uses must have been copied before, and its locals are copied or become
//! frame slots. Within a body, values from outside of the copied code are used unchanged, and optionally locals too.

use std::collections::HashMap;

use crate::body::{Body, Builder};
use crate::op::{BlockId, FrameSlot, LocalId, Op, ValueId};

/// How to treat the locals of copied code.
#[derive(Debug, Clone)]
pub enum Locals<'a> {
    /// Keep them: the copy is in the same body.
    Kept,
    /// Each gets a copy in the same body.
    Renewed(HashMap<LocalId, LocalId>),
    /// The copy is in another body: each gets a copy there, or the slot of a frame that it has here.
    Moved(&'a HashMap<LocalId, FrameSlot>, HashMap<LocalId, LocalId>),
}

/// Copies parts of `source`.
#[derive(Debug)]
pub struct Copier<'a> {
    pub source: &'a Body,
    /// The copy of each value of the source.
    pub values: HashMap<ValueId, ValueId>,
    pub locals: Locals<'a>,
}

impl<'a> Copier<'a> {
    /// A copier into another body; locals in `frame` become its slots.
    pub fn into_other(source: &'a Body, frame: &'a HashMap<LocalId, FrameSlot>) -> Self {
        Copier { source, values: HashMap::new(), locals: Locals::Moved(frame, HashMap::new()) }
    }

    /// The copy of a value.
    pub fn value(&self, v: ValueId) -> ValueId {
        match (self.values.get(&v), &self.locals) {
            (Some(copy), _) => *copy,
            (None, Locals::Kept | Locals::Renewed(_)) => v,
            (None, Locals::Moved(..)) => panic!("compiler bug: {v} is used before it is copied\n{}", self.source),
        }
    }

    /// Appends a copy of an instruction, with the code in its blocks.
    pub fn inst(&mut self, b: &mut Builder, v: ValueId) -> ValueId {
        self.inst_with(b, v, |_, _| {})
    }

    /// As [`Copier::inst`]; `enter` runs at the start of each block directly in the instruction.
    pub fn inst_with(
        &mut self,
        b: &mut Builder,
        v: ValueId,
        mut enter: impl FnMut(&mut Self, &mut Builder),
    ) -> ValueId {
        let copy = self.shallow(b, v);
        copy_blocks(b, self.source, (v, copy), |b, from| {
            enter(self, b);
            self.block(b, from);
        });
        copy
    }

    /// Appends copies of a block's instructions.
    pub fn block(&mut self, b: &mut Builder, from: BlockId) {
        let source = self.source;
        for &v in source.block(from) {
            self.inst(b, v);
        }
    }

    /// Appends a copy of an instruction that still names the blocks of the source.
    pub fn shallow(&mut self, b: &mut Builder, v: ValueId) -> ValueId {
        let inst = self.source.inst(v);
        b.span = inst.span;
        let mut op = inst.op.clone();
        op.map_operands(|u| self.value(u));
        if let Op::LocalAddr(l) = op {
            op = match &self.locals {
                Locals::Moved(frame, _) if frame.contains_key(&l) => Op::FrameAddr(frame[&l]),
                _ => Op::LocalAddr(self.local(b, l)),
            };
        }
        let copy = b.push(op, inst.ty.clone());
        self.values.insert(v, copy);
        copy
    }

    /// The copy of a local of the source.
    pub fn local(&mut self, b: &mut Builder, l: LocalId) -> LocalId {
        match &mut self.locals {
            Locals::Kept => l,
            Locals::Renewed(copies) | Locals::Moved(_, copies) => *copies.entry(l).or_insert_with(|| {
                let local = &self.source.locals[l.index()];
                b.body.add_local(local.name.clone(), local.ty.clone())
            }),
        }
    }
}

/// Creates new blocks for `copy`, the copy of instruction `v` of `source`; `code` fills each at the cursor.
pub fn copy_blocks(
    b: &mut Builder,
    source: &Body,
    (v, copy): (ValueId, ValueId),
    mut code: impl FnMut(&mut Builder, BlockId),
) {
    let mut blocks: Vec<BlockId> = Vec::new();
    for from in source.inst(v).op.blocks() {
        let to = b.body.add_block();
        let back = b.set_cursor(to);
        code(b, from);
        b.set_cursor(back);
        blocks.push(to);
    }
    b.body.inst_mut(copy).op.set_blocks(&blocks);
}

/// Renumbers values and blocks in text order, and drops unreachable code and unused locals.
pub fn renumber(body: &mut Body) {
    let frame = HashMap::new();
    let mut b = Builder::new();
    Copier::into_other(body, &frame).block(&mut b, body.root);
    *body = b.body;
}
