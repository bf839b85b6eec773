//! Copying of code from one body into another, with values and blocks numbered in the order of the text.
//!
//! Assumes that every value that the copied code uses was copied before. What becomes of the locals is the caller's
//! choice: copied (the default) or moved to a frame slot.

use std::collections::HashMap;

use crate::body::Body;
use crate::op::{BlockId, FrameSlot, LocalId, Op, ValueId};

/// Copies parts of `source` into `body`.
#[derive(Debug)]
pub struct Copier<'a> {
    source: &'a Body,
    /// The copy.
    pub body: Body,
    /// The copy of each value of the source, if there is one.
    values: Vec<Option<ValueId>>,
    locals: HashMap<LocalId, LocalId>,
    frame: &'a HashMap<LocalId, FrameSlot>,
}

impl<'a> Copier<'a> {
    /// A copier into an empty body; locals in `frame` become frame slots.
    pub fn new(source: &'a Body, frame: &'a HashMap<LocalId, FrameSlot>) -> Self {
        let values = vec![None; source.insts.len()];
        Copier { source, body: Body::default(), values, locals: HashMap::new(), frame }
    }

    /// The copy of a value.
    pub fn value(&self, v: ValueId) -> ValueId {
        match self.values[v.index()] {
            Some(copy) => copy,
            None => panic!("compiler bug: {v} is used before it is copied\n{}", self.source),
        }
    }

    /// Lets `copy` stand for `v` in what is copied from here on.
    pub fn set_value(&mut self, v: ValueId, copy: ValueId) {
        self.values[v.index()] = Some(copy);
    }

    /// Appends a copy of an instruction, with the blocks in it, to `block`.
    pub fn inst(&mut self, v: ValueId, block: BlockId) -> ValueId {
        self.inst_with(v, block, |_, _| {})
    }

    /// As [`Copier::inst`]; `enter` runs with each block directly in the instruction before its code is copied.
    pub fn inst_with(&mut self, v: ValueId, block: BlockId, mut enter: impl FnMut(&mut Self, BlockId)) -> ValueId {
        let inst = self.source.inst(v).clone();
        let mut op = inst.op;
        op.map_operands(|u| self.value(u));
        if let Op::LocalAddr(l) = &mut op {
            match self.frame.get(l) {
                Some(slot) => op = Op::FrameAddr(*slot),
                None => *l = self.local(*l),
            }
        }
        let copy = self.body.add_inst(op.clone(), inst.ty, inst.span);
        self.body.blocks[block.index()].push(copy);
        self.values[v.index()] = Some(copy);
        let blocks: Vec<BlockId> = op
            .blocks()
            .into_iter()
            .map(|from| {
                let to = self.body.add_block();
                enter(self, to);
                self.block(from, to);
                to
            })
            .collect();
        self.body.inst_mut(copy).op.set_blocks(&blocks);
        copy
    }

    /// Appends copies of a block's instructions to `to`.
    pub fn block(&mut self, from: BlockId, to: BlockId) {
        for &v in self.source.block(from) {
            self.inst(v, to);
        }
    }

    fn local(&mut self, l: LocalId) -> LocalId {
        if let Some(copy) = self.locals.get(&l) {
            return *copy;
        }
        let local = &self.source.locals[l.index()];
        let copy = self.body.add_local(local.name.clone(), local.ty.clone());
        self.locals.insert(l, copy);
        copy
    }
}

/// Numbers values and blocks in the order of the text, and drops what is not reachable and locals that nothing uses.
pub fn renumber(body: &mut Body) {
    let frame = HashMap::new();
    let mut copier = Copier::new(body, &frame);
    let root = copier.body.root;
    copier.block(body.root, root);
    *body = copier.body;
}
