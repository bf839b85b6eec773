//! `qd.stop_grad`: a value becomes a constant for differentiation. For an array, all elements read from it in the rest
//! of the block become constants.

use octants_diag::Result;
use octants_ir::{BufferId, Op, Type, UnaryOp, ValueId};

use crate::value::Value;

use super::Lowerer;

impl Lowerer<'_> {
    pub(super) fn stop_gradient(&mut self, value: &Value) -> Result<Value> {
        if let Some(array) = self.as_array(value)? {
            self.stopped.push(array);
            return Ok(Value::None);
        }
        if let Some(members) = self.as_members(value).filter(|m| m.is_array) {
            for (_, member) in &members.items {
                self.stop_gradient(member)?;
            }
            return Ok(Value::None);
        }
        let v = self.rt(value)?;
        Ok(Value::Rt(self.constant_to_gradients(v)))
    }

    /// The value at an address.
    pub(super) fn load_place(&mut self, addr: ValueId) -> ValueId {
        let v = self.b.load(addr);
        match self.array_of(addr) {
            Some(array) if self.stopped.contains(&array) => self.constant_to_gradients(v),
            _ => v,
        }
    }

    fn array_of(&self, addr: ValueId) -> Option<BufferId> {
        match &self.b.body.inst(addr).op {
            Op::BufferAddr(buffer, _) => Some(*buffer),
            Op::ElementAddr(base, _) | Op::MemberAddr(base, _) => self.array_of(*base),
            _ => None,
        }
    }

    fn constant_to_gradients(&mut self, v: ValueId) -> ValueId {
        let ty = self.b.ty(v).clone();
        match &ty {
            Type::Struct(s) => {
                let parts = (0..s.members.len() as u32).map(|i| {
                    let part = self.b.extract(v, i);
                    self.constant_to_gradients(part)
                });
                let parts = parts.collect();
                self.b.push(Op::MakeStruct(parts), ty)
            }
            _ if ty.scalar().is_some_and(|s| s.is_float()) => self.b.unary(UnaryOp::StopGrad, v),
            _ => v,
        }
    }
}
