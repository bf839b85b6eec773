//! Whole vectors: results of `vector_load`, and values computed from them. Other vectors are lists of scalars.

use llvm_sys::core::*;
use octants_ir::{BinaryOp, Op, ReduceOp, Scalar, Type, ValueId};

use crate::emit::{Emitter, NO_NAME, V, llvm};
use crate::lowering::{Lowering, Val};
use crate::place::Place;

impl Lowering<'_, '_> {
    /// The value of an instruction that is lowered on whole vectors; `None` for others.
    pub fn vector_value(&self, v: ValueId) -> Option<Val> {
        let inst = self.body.inst(v);
        let is_whole = |v: ValueId| matches!(self.values[v.index()], Some(Val::Vector(_)));
        Some(match inst.op {
            Op::VectorLoad(a) => Val::Vector(self.load_vector(&self.place(a), &inst.ty)),
            Op::Bitcast(a) if is_whole(a) => {
                let to = self.scalar_of(v);
                let whole = self.whole(a);
                let ty = self.e.vector_type(self.e.scalar(to), inst.ty.leaf_count() as u32);
                Val::Vector(if self.e.type_of(whole) == ty { whole } else { self.e.bitcast(whole, ty) })
            }
            Op::Binary(op, a, b) if is_lanewise(op) && (is_whole(a) || is_whole(b)) => {
                Val::Vector(self.binary(op, self.scalar_of(a), self.whole(a), self.whole(b)))
            }
            Op::Fold(op @ (ReduceOp::And | ReduceOp::Or), a) if is_whole(a) => {
                let name = if op == ReduceOp::And { "llvm.vector.reduce.and" } else { "llvm.vector.reduce.or" };
                let whole = self.whole(a);
                Val::Leaves(vec![self.e.intrinsic(name, self.e.type_of(whole), &[whole])])
            }
            _ => return None,
        })
    }

    /// A value as one vector.
    pub fn whole(&self, v: ValueId) -> V {
        if let Some(Val::Vector(whole)) = self.values[v.index()] {
            return whole;
        }
        let (e, leaves) = (self.e, self.leaves(v));
        let none = e.undef(e.vector_type(e.type_of(leaves[0]), leaves.len() as u32));
        let insert = |all, (i, leaf): (usize, &V)| e.insert_element(all, *leaf, e.i32c(i as i64));
        leaves.iter().enumerate().fold(none, insert)
    }

    /// The scalars of a whole vector.
    pub fn lanes(&self, whole: V, count: usize) -> Vec<V> {
        (0..count as i64).map(|i| self.e.extract_element(whole, self.e.i32c(i))).collect()
    }

    fn load_vector(&self, place: &Place, ty: &Type) -> V {
        let (e, leaf) = (self.e, &place.shape.leaves[0]);
        debug_assert_ne!(leaf.scalar, Scalar::U1, "compiler bug: a vector of booleans in memory");
        let memory = e.vector_type(e.memory(leaf.scalar), ty.leaf_count() as u32);
        let v = e.load(memory, self.leaf_pointer(place, leaf), leaf.scalar.bytes());
        if let Some(tag) = leaf.tag {
            self.u.metadata.mark_access(e, v, tag, false);
        }
        v
    }

    /// Writes a vector at an address.
    pub fn store_vector(&self, place: &Place, value: ValueId) {
        let (e, leaf) = (self.e, &place.shape.leaves[0]);
        let store = e.store(self.leaf_pointer(place, leaf), self.whole(value), leaf.scalar.bytes());
        if let Some(tag) = leaf.tag {
            self.u.metadata.mark_access(e, store, tag, false);
        }
    }

    /// Fetches the memory at an address.
    pub fn prefetch(&self, place: &Place) {
        let e = self.e;
        let [reads, kept, data] = [0, 3, 1].map(|n| e.i32c(n));
        let ptr = self.leaf_pointer(place, &place.shape.leaves[0]);
        e.intrinsic("llvm.prefetch", e.ptr, &[ptr, reads, kept, data]);
    }
}

impl Emitter {
    pub fn extract_element(&self, v: V, i: V) -> V {
        llvm!(LLVMBuildExtractElement(self.builder, v, i, NO_NAME))
    }

    pub fn insert_element(&self, v: V, part: V, i: V) -> V {
        llvm!(LLVMBuildInsertElement(self.builder, v, part, i, NO_NAME))
    }
}

/// LLVM has one instruction for it on vectors.
fn is_lanewise(op: BinaryOp) -> bool {
    use BinaryOp::*;
    matches!(op, Add | Sub | Mul | And | Or | Xor | Eq | Ne)
}
