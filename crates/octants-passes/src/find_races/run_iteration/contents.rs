//! Loads of memory whose contents are known.

use octants_ir::{Type, ValueId};

use super::super::value::{Address, Place, Value, first_leaf, token};
use super::Run;

impl Run<'_> {
    /// What a load of memory that the loop does not write yields.
    pub(super) fn contents(&self, v: ValueId, address: &Address) -> Value {
        let unknown = || Value::Token(token(("load", address.token)));
        let (Place::Buffer(b, Some(index)), Some(path)) = (&address.place, &address.path) else { return unknown() };
        let Some(first) = first_leaf(&self.kernel.buffers[b.index()].elem, path) else { return unknown() };
        let leaf = |n: usize| self.launch.load(*b, index, first + n);
        if !self.is_inside(*b, index) || leaf(0).is_none() {
            return unknown();
        }
        let part = |n| leaf(n).map_or_else(|| Value::Token(token(("load", address.token, n))), Value::Known);
        match self.body().ty(v) {
            Type::Scalar(_) => part(0),
            ty @ (Type::Vector(..) | Type::Matrix(..)) => Value::Parts((0..ty.leaf_count()).map(part).collect()),
            _ => unknown(),
        }
    }
}
