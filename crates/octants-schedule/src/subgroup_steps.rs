//! [`Steps`]: how the threads of a subgroup run a converged loop (`converge_loops`).

use std::collections::HashSet;

use octants_ir::{BinaryOp, Builder, Const, Scalar, ValueId};

use crate::clone_code::Cloner;

/// How many times the threads of a subgroup run a loop, in steps that they take together.
pub(crate) struct Steps {
    /// The converged loop.
    pub loop_id: ValueId,
    /// Bounds of the loop in the type in which steps are counted.
    pub begin: ValueId,
    pub end: ValueId,
    /// The type in which steps are counted.
    pub count: Scalar,
    /// The type of the loop's index.
    pub index: Scalar,
    pub descending: bool,
    pub mirrored: HashSet<ValueId>,
    /// The first step of the round.
    pub start: ValueId,
}

impl Steps {
    /// Lets a cloner copy code of the step with a number.
    pub fn enter(&self, b: &mut Builder, cloner: &mut Cloner<'_>, step: ValueId) {
        let index = if self.descending {
            let one = b.int(1, self.count);
            let last = b.binary(BinaryOp::Sub, self.end, one);
            b.binary(BinaryOp::Sub, last, step)
        } else if b.body.as_const(self.begin) == Some(Const::Int(0)) {
            step
        } else {
            b.binary(BinaryOp::Add, self.begin, step)
        };
        let index = b.cast(index, self.index);
        cloner.indices.insert((self.loop_id, 0), index);
        if self.descending {
            let remaining = b.cast(step, self.index);
            cloner.copier.values.extend(self.mirrored.iter().map(|v| (*v, remaining)));
        }
    }

    /// The instruction is one that [`Steps::enter`] found a value for.
    pub fn has_value(&self, v: ValueId) -> bool {
        self.descending && self.mirrored.contains(&v)
    }

    /// The step with a distance from the first one of the round.
    pub fn step(&self, b: &mut Builder, distance: ValueId) -> ValueId {
        let distance = b.cast(distance, self.count);
        b.binary(BinaryOp::Add, self.start, distance)
    }
}
