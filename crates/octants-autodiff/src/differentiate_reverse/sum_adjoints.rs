//! Adjoints: accumulates the contributions of computed values to the values that they were computed from.
//!
//! An adjoint is accumulated as a value if its contributions come from the block in which its definition is reversed,
//! and in a local if they come from nested blocks. Locals have adjoint locals, buffers their gradients. Iterations of a
//! parallel loop add atomically to shared memory.

use octants_ir::{AtomicOp, BinaryOp, Builder, LocalId, Op, Scalar, Type, ValueId};

use super::emit_sweeps::Emitter;
use super::sweep_state::Adjoint;
use crate::derivative_rules::{Part, has_derivative, whole};

impl Emitter<'_> {
    /// The accumulated adjoint of a value; `None` if nothing was contributed.
    pub fn take_adjoint(&mut self, v: ValueId) -> Option<ValueId> {
        let Adjoint { value, local } = self.adjoints.remove(&v)?;
        let inner = local.map(|local| self.b.load_local(local));
        match (value, inner) {
            (Some(a), Some(b)) => Some(add(&mut self.b, a, b)),
            (a, b) => a.or(b),
        }
    }

    /// Adds to the adjoint of a value, or of a part of it.
    pub fn contribute(&mut self, v: ValueId, part: &Part, value: ValueId) {
        if !self.plan.activity.value(v) {
            return;
        }
        let ty = self.source().ty(v).clone();
        let home = self.plan.layout.home[v.index()];
        let start = self.reversed[&home];
        if start.block == self.b.cursor() {
            let value = whole(&mut self.b, part, value, &ty);
            let old = self.adjoints.get(&v).and_then(|a| a.value);
            let sum = old.map_or(value, |old| add(&mut self.b, old, value));
            self.adjoints.entry(v).or_default().value = Some(sum);
            return;
        }
        let local = match self.adjoints.get(&v).and_then(|a| a.local) {
            Some(local) => local,
            None => {
                let local = self.b.body.add_local("adjoint", ty.clone());
                self.zero_at(start, local);
                self.adjoints.entry(v).or_default().local = Some(local);
                local
            }
        };
        let addr = self.b.local_addr(local);
        let addr = match part {
            Part::Whole => addr,
            Part::At(i) => component_addr(&mut self.b, addr, &ty, *i),
            Part::AtIndices(indices) => self.b.element_addr(addr, indices.clone()),
        };
        // Iterations share values computed before their loop.
        let shared = self.iteration.is_some() && self.plan.tasks.contains(&home);
        self.add_at(addr, value, shared);
    }

    /// Adds the floats of a value to the memory at an address.
    pub fn add_at(&mut self, addr: ValueId, value: ValueId, shared: bool) {
        let ty = self.b.ty(value).clone();
        if let Type::Struct(s) = &ty {
            for (i, (_, member)) in s.members.iter().enumerate() {
                if has_derivative(member) {
                    let (at, part) = (self.b.member_addr(addr, i as u32), self.b.extract(value, i as u32));
                    self.add_at(at, part, shared);
                }
            }
        } else if shared {
            self.b.push(Op::Atomic(AtomicOp::Add, addr, value), ty);
        } else {
            let old = self.b.load(addr);
            let sum = self.b.binary(BinaryOp::Add, old, value);
            self.b.store(addr, sum);
        }
    }

    /// The address of the adjoint of an address's contents, and whether iterations share it; `None` if it has none.
    pub fn adjoint_address(&mut self, addr: ValueId) -> Option<(ValueId, bool)> {
        let inst = self.source().inst(addr).clone();
        match inst.op {
            Op::LocalAddr(l) => {
                let local = self.adjoint_local(l);
                let shared = self.iteration.as_ref().is_some_and(|i| !i.private.contains(&l));
                Some((self.b.local_addr(local), shared))
            }
            Op::ElementAddr(base, indices) => {
                let (base, shared) = self.adjoint_address(base)?;
                let indices = indices.into_iter().map(|i| self.get(i)).collect();
                Some((self.b.element_addr(base, indices), shared))
            }
            Op::MemberAddr(base, i) => {
                let (base, shared) = self.adjoint_address(base)?;
                Some((self.b.member_addr(base, i), shared))
            }
            Op::BufferAddr(buffer, indices) => {
                let gradient = self.gradients[buffer.index()]?;
                let indices = indices.into_iter().map(|i| self.get(i)).collect();
                let shared = self.iteration.as_ref().is_some_and(|i| !i.own.contains(&buffer));
                Some((self.b.push(Op::BufferAddr(gradient, indices), inst.ty), shared))
            }
            op => panic!("compiler bug: {op:?} is not an address"),
        }
    }

    /// The adjoint of a local: private to an iteration if the local is, and otherwise one for the whole body.
    fn adjoint_local(&mut self, l: LocalId) -> LocalId {
        let (known, start) = match &mut self.iteration {
            Some(i) if i.private.contains(&l) => (&mut i.adjoints, i.start),
            _ => (&mut self.adjoint_locals, self.reversed[&self.plan.body.root]),
        };
        if let Some(local) = known.get(&l) {
            return *local;
        }
        let source = &self.plan.body.locals[l.index()];
        let local = self.b.body.add_local(format!("adjoint of {}", source.name), source.ty.clone());
        known.insert(l, local);
        self.zero_at(start, local);
        local
    }
}

/// The address of a component (row-major position) or member of what is at an address.
pub(super) fn component_addr(b: &mut Builder, addr: ValueId, ty: &Type, i: u32) -> ValueId {
    let indices = match ty {
        Type::Scalar(_) => return addr,
        Type::Struct(_) => return b.member_addr(addr, i),
        Type::Matrix(_, _, m) => vec![i / m, i % m],
        _ => vec![i],
    };
    let indices = indices.into_iter().map(|i| b.int(i64::from(i), Scalar::I32)).collect();
    b.element_addr(addr, indices)
}

/// The sum of two adjoints.
fn add(b: &mut Builder, x: ValueId, y: ValueId) -> ValueId {
    let ty = b.ty(x).clone();
    match &ty {
        Type::Struct(s) => {
            let parts = (0..s.members.len() as u32)
                .map(|i| {
                    let (x, y) = (b.extract(x, i), b.extract(y, i));
                    add(b, x, y)
                })
                .collect();
            b.push(Op::MakeStruct(parts), ty)
        }
        _ if has_derivative(&ty) => b.binary(BinaryOp::Add, x, y),
        _ => x,
    }
}
