//! Vectors, matrices and structs as lists of scalars: taking apart, folding, multiplying.

use octants_ir::{BinaryOp, ReduceOp, Type, ValueId};

use crate::emit::Id;
use crate::lowering::Lowering;

/// Up to this many components a component known at run time is chosen by selects, beyond it through memory.
const SELECT_LIMIT: usize = 4;

impl Lowering<'_, '_> {
    /// A component of a tensor or a member of a struct.
    pub fn extract(&self, v: ValueId, i: u32) -> Vec<Id> {
        let leaves = self.leaves(v);
        match self.body.ty(v) {
            Type::Struct(s) => {
                let first: usize = s.members[..i as usize].iter().map(|(_, t)| t.leaf_count()).sum();
                leaves[first..first + s.members[i as usize].1.leaf_count()].to_vec()
            }
            _ => vec![leaves[i as usize]],
        }
    }

    /// A component at indices known at run time.
    pub fn extract_dynamic(&self, v: ValueId, index: &[ValueId]) -> Id {
        let ty = self.body.ty(v);
        let leaves = self.leaves(v);
        let linear = match self.component_index(ty, index) {
            Ok(at) => return leaves[at],
            Err(linear) => linear,
        };
        let e = self.e;
        if leaves.len() <= SELECT_LIMIT {
            let hit = |i: usize| e.ieq(linear, e.u64c(i as u64));
            return (1..leaves.len()).fold(leaves[0], |chosen, i| e.select(hit(i), leaves[i], chosen));
        }
        let place = self.local_place(ty);
        self.store_place(&place, &leaves);
        let leaf = place.shape.leaves[0];
        let mut element = place.part(&Type::Scalar(leaf.scalar), 0);
        if let crate::place::Pointer::Element(_, index) = &mut element.ptrs[0] {
            *index = Some(e.trunc(linear, 32));
        }
        self.load_leaf(&element, &leaf, false)
    }

    /// Columns become rows.
    pub fn transpose(&self, v: ValueId) -> Vec<Id> {
        let leaves = self.leaves(v);
        match *self.body.ty(v) {
            Type::Matrix(_, n, m) => {
                let (n, m) = (n as usize, m as usize);
                (0..m).flat_map(|j| (0..n).map(move |i| i * m + j)).map(|k| leaves[k]).collect()
            }
            _ => leaves,
        }
    }

    /// Products are summed in index order.
    pub fn mat_mul(&self, a: ValueId, b: ValueId) -> Vec<Id> {
        let s = self.scalar_of(a);
        let (x, y) = (self.leaves(a), self.leaves(b));
        let (rows, inner, columns) = match (self.body.ty(a), self.body.ty(b)) {
            (Type::Matrix(_, n, k), Type::Matrix(_, _, m)) => (*n, *k, *m),
            (Type::Matrix(_, n, k), Type::Vector(..)) => (*n, *k, 1),
            (Type::Vector(_, k), Type::Matrix(_, _, m)) => (1, *k, *m),
            (l, r) => panic!("compiler bug: product of {l} and {r}"),
        };
        let (rows, inner, columns) = (rows as usize, inner as usize, columns as usize);
        let mut out = Vec::with_capacity(rows * columns);
        for i in 0..rows {
            for j in 0..columns {
                let term = |k: usize| self.binary(BinaryOp::Mul, s, x[i * inner + k], y[k * columns + j]);
                out.push((1..inner).fold(term(0), |sum, k| self.binary(BinaryOp::Add, s, sum, term(k))));
            }
        }
        out
    }

    /// One scalar from all components, first to last.
    pub fn fold(&self, op: ReduceOp, v: ValueId) -> Id {
        let s = self.scalar_of(v);
        let leaves = self.leaves(v);
        leaves[1..].iter().fold(leaves[0], |folded, x| self.binary(op.binary(), s, folded, *x))
    }
}
