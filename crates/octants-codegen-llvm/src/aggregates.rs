//! Vectors, matrices and structs as lists of scalars: taking apart, folding, multiplying.

use octants_ir::{BinaryOp, ReduceOp, Type, ValueId};

use crate::emit::{IntCmp, V};
use crate::lowering::Lowering;

/// Up to this many components a component known at run time is chosen by selects, beyond it through memory.
const SELECT_LIMIT: usize = 4;

impl Lowering<'_, '_> {
    /// A component of a tensor or a member of a struct.
    pub fn extract(&self, v: ValueId, i: u32) -> Vec<V> {
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
    pub fn extract_dynamic(&self, v: ValueId, index: &[ValueId]) -> V {
        let ty = self.body.ty(v);
        let leaves = self.leaves(v);
        let linear = match self.component_index(ty, index) {
            Ok(at) => return leaves[at],
            Err(linear) => linear,
        };
        let e = self.e;
        if leaves.len() <= SELECT_LIMIT {
            let mut chosen = leaves[0];
            for (i, leaf) in leaves.iter().enumerate().skip(1) {
                chosen = e.select(e.icmp(IntCmp::LLVMIntEQ, linear, e.i64c(i as i64)), *leaf, chosen);
            }
            return chosen;
        }
        let place = self.stack_place(ty);
        self.store_place(&place, &leaves);
        let leaf = place.shape.leaves[0];
        self.load_scalar(e.gep(e.memory(leaf.scalar), place.ptrs[0], linear), &leaf, true)
    }

    /// Columns become rows.
    pub fn transpose(&self, v: ValueId) -> Vec<V> {
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
    pub fn mat_mul(&self, a: ValueId, b: ValueId) -> Vec<V> {
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
                let sum = (1..inner).fold(term(0), |sum, k| self.binary(BinaryOp::Add, s, sum, term(k)));
                out.push(sum);
            }
        }
        out
    }

    /// One scalar from all components, first to last.
    pub fn fold(&self, op: ReduceOp, v: ValueId) -> V {
        let s = self.scalar_of(v);
        let leaves = self.leaves(v);
        leaves[1..].iter().fold(leaves[0], |folded, x| self.binary(op.binary(), s, folded, *x))
    }
}
