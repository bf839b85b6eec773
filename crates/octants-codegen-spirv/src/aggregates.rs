//! Vectors, matrices and structs as lists of scalars: decomposition, folds, products.

use octants_codegen::aggregates::{SELECT_LIMIT, part, product, transposed};
use octants_ir::{BinaryOp, ReduceOp, Type, ValueId};

use crate::emit::Id;
use crate::lowering::Lowering;

impl Lowering<'_, '_> {
    /// A component of a tensor or a member of a struct.
    pub fn extract(&self, v: ValueId, i: u32) -> Vec<Id> {
        part(self.body.ty(v), &self.leaves(v), i)
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
        transposed(self.body.ty(v), &self.leaves(v))
    }

    /// Products are summed in index order.
    pub fn mat_mul(&self, a: ValueId, b: ValueId) -> Vec<Id> {
        let s = self.scalar_of(a);
        let (x, y) = (self.leaves(a), self.leaves(b));
        let (multiply, add) = (|x, y| self.binary(BinaryOp::Mul, s, x, y), |x, y| self.binary(BinaryOp::Add, s, x, y));
        product((self.body.ty(a), &x), (self.body.ty(b), &y), multiply, add)
    }

    /// One scalar from all components, first to last.
    pub fn fold(&self, op: ReduceOp, v: ValueId) -> Id {
        let s = self.scalar_of(v);
        let leaves = self.leaves(v);
        leaves[1..].iter().fold(leaves[0], |folded, x| self.binary(op.binary(), s, folded, *x))
    }
}
