//! The position of each instruction in a body: its block, the enclosing instructions, and the changes of locals.

use octants_ir::{BlockId, Body, Op, ValueId};

use crate::addresses::{Place, trace_address};

/// The position of code.
pub struct CodeLayout {
    /// Block of each instruction.
    pub home: Vec<BlockId>,
    /// The instruction that holds a block.
    pub owner: Vec<Option<ValueId>>,
    /// Position of each instruction in the text.
    pub position: Vec<usize>,
    /// Instructions that change a local.
    pub stores: Vec<Vec<ValueId>>,
}

impl CodeLayout {
    /// The layout of a body in its current state.
    pub fn of(body: &Body) -> CodeLayout {
        let mut layout = CodeLayout {
            home: vec![body.root; body.insts.len()],
            owner: vec![None; body.blocks.len()],
            position: vec![0; body.insts.len()],
            stores: vec![Vec::new(); body.locals.len()],
        };
        layout.block(body, body.root, &mut 0);
        layout
    }

    fn block(&mut self, body: &Body, b: BlockId, clock: &mut usize) {
        for &v in body.block(b) {
            self.home[v.index()] = b;
            self.position[v.index()] = *clock;
            *clock += 1;
            let op = &body.inst(v).op;
            if let Op::Store(a, _) | Op::Atomic(_, a, _) | Op::AtomicCas(a, ..) = op
                && let Place::Local(l) = trace_address(body, *a)
            {
                self.stores[l.index()].push(v);
            }
            for inner in op.blocks() {
                self.owner[inner.index()] = Some(v);
                self.block(body, inner, clock);
            }
        }
    }

    /// The region that a block is in: the body of the innermost loop around it, or the root.
    pub fn region(&self, body: &Body, block: BlockId) -> BlockId {
        match self.owner[block.index()] {
            Some(owner) if !matches!(body.inst(owner).op, Op::For(_) | Op::Loop(_)) => {
                self.region(body, self.home[owner.index()])
            }
            _ => block,
        }
    }

    /// The branch or loop around an instruction.
    pub fn around(&self, v: ValueId) -> Option<ValueId> {
        self.owner[self.home[v.index()].index()]
    }

    /// An instruction is in a block or in one nested in it.
    pub fn is_inside(&self, v: ValueId, block: BlockId) -> bool {
        let mut at = self.home[v.index()];
        loop {
            if at == block {
                return true;
            }
            match self.owner[at.index()] {
                Some(owner) => at = self.home[owner.index()],
                None => return false,
            }
        }
    }
}
