//! The rules about the types of one instruction, 20 to 33 of [`Rule`].
//!
//! Assumes that every number in the instruction exists and that its operands have values.

use crate::body::Body;
use crate::kernel::Layout;
use crate::matrix_product::{ELEMENTS, is_product};
use crate::op::*;
use crate::operation_facts::SubgroupResult;
use crate::operation_table::{AtomicOp, BinaryOp, SubgroupOp, UnaryOp, binary_type, unary_type};
use crate::rules::{Rule, Scope};
use crate::types::{Scalar, Type};

/// Reports what rule about types the instruction breaks, if any.
pub(crate) fn check_types(scope: &Scope, body: &Body, v: ValueId, report: impl FnOnce(Rule)) {
    if let Err(rule) = check(scope, body, v) {
        report(rule);
    }
}

fn need(holds: bool, rule: Rule) -> Checked {
    if holds { Ok(()) } else { Err(rule) }
}

/// The rule that is broken, if any.
type Checked = Result<(), Rule>;

fn check(scope: &Scope, body: &Body, v: ValueId) -> Checked {
    let ty = &body.inst(v).ty;
    let c = Check { scope, body, ty };
    match &body.inst(v).op {
        Op::Const(value) => c.constant(*value),
        Op::Param(i) => need(scope.params[*i as usize] == ty, Rule::ResultType),
        Op::Unary(op, a) => c.unary(*op, *a),
        Op::Binary(op, a, b) => c.binary(*op, *a, *b),
        Op::Select(mask, a, b) => c.select(*mask, *a, *b),
        Op::Cast(a) => {
            let to = ty.scalar().ok_or(Rule::CastType)?;
            need(c.of(*a).scalar().is_some() && c.of(*a).with_scalar(to) == *ty, Rule::CastType)
        }
        Op::Bitcast(a) => {
            let (from, to) = c.of(*a).scalar().zip(ty.scalar()).ok_or(Rule::CastType)?;
            need(c.of(*a).with_scalar(to) == *ty && from.bits() == to.bits(), Rule::CastType)
        }
        Op::MakeTensor(vs) => {
            let s = ty.scalar().filter(|_| ty.is_tensor()).ok_or(Rule::AggregateType)?;
            let parts = vs.len() == ty.leaf_count() && vs.iter().all(|u| *c.of(*u) == Type::Scalar(s));
            need(parts, Rule::AggregateType)
        }
        Op::Splat(a) => {
            let s = ty.scalar().filter(|_| ty.is_tensor()).ok_or(Rule::AggregateType)?;
            need(*c.of(*a) == Type::Scalar(s), Rule::AggregateType)
        }
        Op::MakeStruct(vs) => c.make_struct(vs),
        Op::Extract(a, i) => need(part(c.of(*a), *i).as_ref() == Some(ty), Rule::AggregateType),
        Op::ExtractDyn(a, vs) => {
            let t = c.of(*a);
            let fits = t.is_tensor() && c.are_indices(vs, t.shape().len());
            need(fits && t.scalar().map(Type::Scalar).as_ref() == Some(ty), Rule::AggregateType)
        }
        Op::MatMul(a, b) => need(matmul_type(c.of(*a), c.of(*b)).as_ref() == Some(ty), Rule::MatrixType),
        Op::Transpose(a) => match c.of(*a) {
            Type::Matrix(s, n, m) => need(*ty == Type::Matrix(*s, *m, *n), Rule::MatrixType),
            _ => Err(Rule::MatrixType),
        },
        Op::Fold(op, a) => {
            let s = c.of(*a).scalar().filter(|_| c.of(*a).is_tensor()).ok_or(Rule::MatrixType)?;
            need(*ty == Type::Scalar(s) && op.binary().domain().contains(s), Rule::MatrixType)
        }
        Op::Shape(..) => need(matches!(ty, Type::Scalar(Scalar::I32 | Scalar::I64)), Rule::ResultType),
        Op::Freeze(a) => need(c.of(*a) == ty && ty.scalar().is_some(), Rule::ResultType),
        Op::Grid(_) | Op::FragmentIndex(_) | Op::Barrier(_) | Op::Fence(_) => c.thread_op(&body.inst(v).op),
        Op::BlockCount(_) | Op::Subgroup(..) => c.thread_op(&body.inst(v).op),
        Op::VectorLoad(_) | Op::VectorStore(..) | Op::Prefetch(_) => c.vector_op(ty, &body.inst(v).op),
        Op::LoadMatrices(..) | Op::CopyAsync(..) | Op::AwaitCopies => c.vector_op(ty, &body.inst(v).op),
        Op::Random | Op::RandomAt(..) | Op::Clock => c.drawn(&body.inst(v).op),
        Op::Balance { number, weight, end, .. } => {
            let i64 = Type::Scalar(Scalar::I64);
            need(*ty == i64 && [number, weight, end].into_iter().all(|v| *c.of(*v) == i64), Rule::ResultType)
        }
        Op::LocalAddr(l) => need(points_to(ty, &body.locals[l.index()].ty), Rule::AddressType),
        Op::FrameAddr(s) => {
            let slot = scope.frame.map(|f| &f[s.index()]);
            need(slot.is_some_and(|t| points_to(ty, t)), Rule::AddressType)
        }
        Op::BufferAddr(b, vs) => c.buffer_addr(*b, vs),
        Op::ElementAddr(a, vs) => c.element_addr(*a, vs),
        Op::MemberAddr(a, i) => match c.pointee(*a, Rule::AddressType)? {
            t @ Type::Struct(_) => need(part(t, *i).is_some_and(|t| points_to(ty, &t)), Rule::AddressType),
            _ => Err(Rule::AddressType),
        },
        Op::AddressBits(a) => {
            c.pointee(*a, Rule::AddressType)?;
            need(*ty == Type::Scalar(Scalar::U64), Rule::AddressType)
        }
        Op::Load(a) | Op::VolatileLoad(a) => need(c.pointee(*a, Rule::MemoryType)? == ty, Rule::MemoryType),
        Op::Store(a, x) => {
            need(c.pointee(*a, Rule::MemoryType)? == c.of(*x), Rule::MemoryType)?;
            c.yields_nothing()
        }
        Op::Atomic(op, a, x) => c.atomic(*op, *a, *x),
        Op::AtomicCas(a, e, d) => {
            let t = c.pointee(*a, Rule::MemoryType)?;
            need(matches!(t, Type::Scalar(_)) && t == c.of(*e) && t == c.of(*d) && t == ty, Rule::MemoryType)
        }
        Op::Reduce(_, x) => {
            // Rule 10 has checked its loop and the target's type.
            need(matches!(c.of(*x), Type::Scalar(_)), Rule::MemoryType)?;
            c.yields_nothing()
        }
        Op::If(condition, ..) | Op::Assert(condition, _) => {
            need(*c.of(*condition) == Type::U1, Rule::ConditionType)?;
            c.yields_nothing()
        }
        Op::Checkpoint(_, v) => {
            need(matches!(c.of(*v), Type::Scalar(s) if !s.is_float()), Rule::ConditionType)?;
            c.yields_nothing()
        }
        Op::For(l) => c.for_loop(l),
        Op::LoopIndex(l, axis) => match &body.inst(*l).op {
            Op::For(l) => need(c.of(l.dims[*axis as usize].begin) == ty, Rule::ConditionType),
            _ => Ok(()),
        },
        Op::Call(f, args) => c.call(*f, args),
        Op::Loop(_) | Op::Section(_) | Op::Break | Op::Continue | Op::Return(_) | Op::Print(_) => c.yields_nothing(),
    }
}

/// An instruction's type, and the context of its operands.
struct Check<'a> {
    scope: &'a Scope<'a>,
    body: &'a Body,
    ty: &'a Type,
}

impl<'a> Check<'a> {
    fn constant(&self, value: Const) -> Checked {
        let fits = |s: Scalar| matches!(value, Const::Float(_)) == s.is_float();
        need(matches!(self.ty, Type::Scalar(s) if fits(*s)), Rule::ConstType)
    }

    /// A random number, or a clock value.
    fn drawn(&self, op: &Op) -> Checked {
        let i64 = Type::Scalar(Scalar::I64);
        let fits = match op {
            Op::RandomAt(index, word) => *self.of(*index) == i64 && *self.of(*word) == Type::I32,
            Op::Clock => *self.ty == i64,
            _ => true,
        };
        need(fits && matches!(self.ty, Type::Scalar(_)), Rule::ResultType)
    }

    fn of(&self, u: ValueId) -> &'a Type {
        self.body.ty(u)
    }

    fn pointee(&self, u: ValueId, rule: Rule) -> Result<&'a Type, Rule> {
        match self.body.ty(u) {
            Type::Ref(t) => Ok(t),
            _ => Err(rule),
        }
    }

    fn are_indices(&self, vs: &[ValueId], axes: usize) -> bool {
        let is_int = |u: &ValueId| matches!(self.body.ty(*u), Type::Scalar(s) if s.is_int());
        vs.len() == axes && vs.iter().all(is_int)
    }

    fn yields_nothing(&self) -> Checked {
        need(*self.ty == Type::Unit, Rule::ResultType)
    }

    fn unary(&self, op: UnaryOp, a: ValueId) -> Checked {
        let s = self.of(a).scalar().ok_or(Rule::UnaryType)?;
        need(op.domain().contains(s) && *self.ty == unary_type(op, self.of(a)), Rule::UnaryType)
    }

    fn binary(&self, op: BinaryOp, a: ValueId, b: ValueId) -> Checked {
        let ty = self.of(a);
        let s = ty.scalar().ok_or(Rule::BinaryType)?;
        need(ty == self.of(b) && op.domain().contains(s) && *self.ty == binary_type(op, ty), Rule::BinaryType)
    }

    fn select(&self, mask: ValueId, a: ValueId, b: ValueId) -> Checked {
        let (ty, mask) = (self.ty, self.of(mask));
        let fits = *mask == Type::U1 || (ty.is_tensor() && *mask == ty.with_scalar(Scalar::U1));
        need(fits && self.of(a) == ty && self.of(b) == ty && !matches!(ty, Type::Ref(_)), Rule::SelectType)
    }

    fn make_struct(&self, vs: &[ValueId]) -> Checked {
        let Type::Struct(s) = self.ty else { return Err(Rule::AggregateType) };
        let parts = vs.len() == s.members.len() && vs.iter().zip(&s.members).all(|(u, (_, t))| self.of(*u) == t);
        need(parts, Rule::AggregateType)
    }

    fn buffer_addr(&self, b: BufferId, vs: &[ValueId]) -> Checked {
        let buffer = &self.scope.buffers[b.index()];
        let fits = self.are_indices(vs, buffer.ndim as usize) && dense_fits(&buffer.layout, buffer.ndim);
        need(fits && points_to(self.ty, &buffer.elem), Rule::AddressType)
    }

    fn element_addr(&self, a: ValueId, vs: &[ValueId]) -> Checked {
        let t = self.pointee(a, Rule::AddressType)?;
        let s = t.scalar().filter(|_| t.is_tensor()).ok_or(Rule::AddressType)?;
        need(self.are_indices(vs, t.shape().len()) && points_to(self.ty, &Type::Scalar(s)), Rule::AddressType)
    }

    fn atomic(&self, op: AtomicOp, a: ValueId, x: ValueId) -> Checked {
        let t = self.pointee(a, Rule::MemoryType)?;
        let s = t.scalar().ok_or(Rule::MemoryType)?;
        need(t == self.of(x) && t == self.ty && op.domain().contains(s), Rule::MemoryType)
    }

    /// An operation of threads.
    fn thread_op(&self, op: &Op) -> Checked {
        match op {
            Op::Grid(_) => need(*self.ty == Type::I32, Rule::ThreadType),
            Op::FragmentIndex(e) => need(*self.ty == Type::I32 && e.component < ELEMENTS, Rule::ThreadType),
            Op::Barrier(s) => {
                need(matches!(s, ThreadScope::Subgroup | ThreadScope::Block), Rule::ThreadType)?;
                self.yields_nothing()
            }
            Op::Fence(s) => {
                need(matches!(s, ThreadScope::Block | ThreadScope::Device), Rule::ThreadType)?;
                self.yields_nothing()
            }
            Op::BlockCount(a) => need(*self.of(*a) == Type::U1 && *self.ty == Type::I32, Rule::ThreadType),
            Op::Subgroup(op, vs) => self.subgroup(*op, vs),
            _ => Ok(()),
        }
    }

    fn subgroup(&self, op: SubgroupOp, vs: &[ValueId]) -> Checked {
        need(vs.len() == op.operands(), Rule::ThreadType)?;
        let (first, second) = (vs.first().map(|v| self.of(*v)), vs.get(1).map(|v| self.of(*v)));
        let fits = match op.yields() {
            SubgroupResult::Value => {
                first == Some(self.ty) && self.ty.scalar().is_some() && second.is_none_or(|t| *t == Type::I32)
            }
            SubgroupResult::Mask => first == Some(&Type::U1) && *self.ty == Type::Scalar(Scalar::U64),
            SubgroupResult::Vote => first.is_none_or(|t| *t == Type::U1) && *self.ty == Type::U1,
            SubgroupResult::Product => op.product().is_some_and(|kind| {
                let types: Vec<&Type> = vs.iter().map(|v| self.of(*v)).collect();
                is_product(kind, &types, self.ty)
            }),
        };
        need(fits, Rule::ThreadType)
    }

    fn vector_op(&self, ty: &Type, op: &Op) -> Checked {
        match op {
            Op::VectorLoad(a) => self.vector_access(ty, *a),
            Op::VectorStore(a, x) => self.vector_access(self.of(*x), *a).and_then(|()| self.yields_nothing()),
            Op::Prefetch(a) => self.pointee(*a, Rule::AddressType).and_then(|_| self.yields_nothing()),
            Op::LoadMatrices(a, _) => {
                let from = self.pointee(*a, Rule::VectorType)?;
                let fits = *from == Type::Scalar(Scalar::F16) && *ty == Type::Vector(Scalar::F16, 8);
                need(fits, Rule::VectorType)
            }
            Op::CopyAsync(a, b) => {
                let [to, from] = [self.pointee(*a, Rule::MemoryType)?, self.pointee(*b, Rule::MemoryType)?];
                let fits = to == from && matches!(to, Type::Scalar(_));
                need(fits, Rule::MemoryType).and_then(|()| self.yields_nothing())
            }
            Op::AwaitCopies => self.yields_nothing(),
            op => panic!("compiler bug: {op:?} has no vector"),
        }
    }

    /// `vector` has components of the type of the scalar at the address in a buffer, or the type of the local there.
    fn vector_access(&self, vector: &Type, address: ValueId) -> Checked {
        let place = self.pointee(address, Rule::VectorType)?;
        let fits = match (&self.body.inst(address).op, vector) {
            (Op::BufferAddr(..), Type::Vector(s, _)) => *place == Type::Scalar(*s),
            (Op::LocalAddr(_), Type::Vector(..)) => place == vector,
            _ => false,
        };
        need(fits, Rule::VectorType)
    }

    fn for_loop(&self, l: &ForLoop) -> Checked {
        let bound = |t: &Type| matches!(t, Type::Scalar(Scalar::I32 | Scalar::I64));
        let fits = |d: &Range| bound(self.of(d.begin)) && self.of(d.begin) == self.of(d.end);
        need(l.dims.iter().all(fits), Rule::ConditionType)?;
        for r in &l.reductions {
            let target = self.pointee(r.target, Rule::MemoryType)?;
            need(matches!(target, Type::Scalar(_)) && r.op != AtomicOp::Exchange, Rule::MemoryType)?;
        }
        self.yields_nothing()
    }

    fn call(&self, f: FuncId, args: &[ValueId]) -> Checked {
        let f = &self.scope.functions[f.index()];
        let fits = args.len() == f.params.len() && args.iter().zip(&f.params).all(|(u, t)| self.of(*u) == t);
        need(fits && f.ret == *self.ty, Rule::CallType)
    }
}

fn points_to(ty: &Type, target: &Type) -> bool {
    matches!(ty, Type::Ref(t) if **t == *target)
}

/// The type of a component or member.
fn part(ty: &Type, i: u32) -> Option<Type> {
    match ty {
        Type::Struct(s) => s.members.get(i as usize).map(|(_, t)| t.clone()),
        t if t.is_tensor() => t.scalar().filter(|_| (i as usize) < t.leaf_count()).map(Type::Scalar),
        _ => None,
    }
}

fn matmul_type(a: &Type, b: &Type) -> Option<Type> {
    match (a, b) {
        (Type::Matrix(s, n, k), Type::Matrix(t, k2, m)) if s == t && k == k2 => Some(Type::Matrix(*s, *n, *m)),
        (Type::Matrix(s, n, k), Type::Vector(t, k2)) if s == t && k == k2 => Some(Type::Vector(*s, *n)),
        (Type::Vector(s, k), Type::Matrix(t, k2, m)) if s == t && k == k2 => Some(Type::Vector(*s, *m)),
        _ => None,
    }
}

fn dense_fits(layout: &Layout, ndim: u32) -> bool {
    match layout {
        Layout::Dense { shape, offset, components } => {
            let n = ndim as usize;
            shape.len() == n && offset.len() == n && components.iter().all(|c| c.place.axes.len() == n)
        }
        _ => true,
    }
}
