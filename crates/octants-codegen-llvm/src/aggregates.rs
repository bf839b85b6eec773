//! Vectors, matrices and structs as lists of scalars: decomposition, folds, products.

use octants_codegen::aggregates::{SELECT_LIMIT, part, product, transposed};
use octants_ir::{BinaryOp, ReduceOp, ValueId};

use crate::emit::{IntCmp, V};
use crate::lowering::Lowering;

impl Lowering<'_, '_> {
    /// A component of a tensor or a member of a struct.
    pub fn extract(&self, v: ValueId, i: u32) -> Vec<V> {
        part(self.body.ty(v), &self.leaves(v), i)
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
        transposed(self.body.ty(v), &self.leaves(v))
    }

    /// Products are summed in index order.
    pub fn mat_mul(&self, a: ValueId, b: ValueId) -> Vec<V> {
        let s = self.scalar_of(a);
        let (x, y) = (self.leaves(a), self.leaves(b));
        let (multiply, add) = (|x, y| self.binary(BinaryOp::Mul, s, x, y), |x, y| self.binary(BinaryOp::Add, s, x, y));
        product((self.body.ty(a), &x), (self.body.ty(b), &y), multiply, add)
    }

    /// One scalar from all components, first to last.
    pub fn fold(&self, op: ReduceOp, v: ValueId) -> V {
        let s = self.scalar_of(v);
        let leaves = self.leaves(v);
        leaves[1..].iter().fold(leaves[0], |folded, x| self.binary(op.binary(), s, folded, *x))
    }
}
