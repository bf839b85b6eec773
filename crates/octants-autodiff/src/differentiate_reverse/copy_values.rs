//! Copies of the source's values in the sweeps: each value has a copy in the sweep of its region.
//!
//! If a copy is needed outside of its block (a branch of the reverse sweep uses a value from the same branch of the
//! forward sweep), it passes through a local. Addresses, constants and uniform values are recomputed at each use.

use octants_ir::{Op, ValueId};

use super::emit_sweeps::Emitter;
use super::sweep_state::Indices;

impl Emitter<'_> {
    /// The copy of a value of the source, usable here.
    pub fn get(&mut self, v: ValueId) -> ValueId {
        if let Some(copy) = self.copy_in_sight(v) {
            return copy;
        }
        if is_rematerialized(&self.source().inst(v).op) {
            return self.copy(v);
        }
        match self.latest_copy(v) {
            Some(copy) => self.carry(copy),
            None => panic!("compiler bug: {v} is used in a sweep that does not compute it\n{}", self.source()),
        }
    }

    /// The copy of a value, if it is in a block around the cursor.
    pub fn copy_in_sight(&self, v: ValueId) -> Option<ValueId> {
        self.latest_copy(v).filter(|copy| self.open.contains(&self.home[copy]))
    }

    fn latest_copy(&self, v: ValueId) -> Option<ValueId> {
        self.scopes.iter().rev().find_map(|s| s.get(&v)).copied()
    }

    /// A copy made in a completed or enclosing block, usable here.
    pub fn carry(&mut self, copy: ValueId) -> ValueId {
        if self.open.contains(&self.home[&copy]) {
            return copy;
        }
        let local = match self.carriers.get(&copy) {
            Some(local) => *local,
            None => {
                let local = self.b.body.add_local("carried", self.b.ty(copy).clone());
                self.insert_at(self.behind(copy), |b| b.store_local(local, copy));
                self.carriers.insert(copy, local);
                local
            }
        };
        self.b.load_local(local)
    }

    /// Maps a source value to a newly created one.
    pub fn record(&mut self, v: ValueId, copy: ValueId) {
        self.note(copy);
        self.scopes.last_mut().expect("compiler bug: no scope").insert(v, copy);
    }

    /// Records a new value, so that it can be passed between blocks.
    pub fn note(&mut self, made: ValueId) {
        self.home.insert(made, self.b.cursor());
    }

    /// Appends a copy of an instruction without blocks.
    pub fn copy(&mut self, v: ValueId) -> ValueId {
        let inst = self.source().inst(v).clone();
        let span = std::mem::replace(&mut self.b.span, inst.span);
        let copy = match inst.op {
            Op::LoopIndex(l, axis) => match &self.indices.get(&l) {
                Some(Indices::Of(l)) => self.b.push(Op::LoopIndex(*l, axis), inst.ty),
                Some(Indices::Are(values)) => {
                    let value = values[axis as usize];
                    self.b.span = span;
                    self.scopes.last_mut().expect("compiler bug: no scope").insert(v, value);
                    return value;
                }
                None => panic!("compiler bug: an index of a loop that the sweep does not run\n{}", self.source()),
            },
            mut op => {
                op.map_operands(|u| self.get(u));
                self.b.push(op, inst.ty)
            }
        };
        self.b.span = span;
        self.record(v, copy);
        copy
    }
}

/// Cheaper to recompute than to carry along.
fn is_rematerialized(op: &Op) -> bool {
    matches!(
        op,
        Op::Const(_)
            | Op::Param(_)
            | Op::Shape(..)
            | Op::LoopIndex(..)
            | Op::LocalAddr(_)
            | Op::BufferAddr(..)
            | Op::ElementAddr(..)
            | Op::MemberAddr(..)
    )
}
