//! Forward mode: each value gets a tangent, each variable a dual, and each array with a dual a shadow buffer.
//!
//! Control flow does not change, so every shape of loop is supported. A tangent that is certainly zero produces no
//! code: a value without a known tangent does not depend on anything differentiated. Writes to an array without a dual
//! are constants for later reads.
//!
//! A function takes the tangents of its arguments after the arguments, and returns its result together with the
//! result's tangent.
//!
//! Assumes that updates of variables shared by iterations are atomic. The dual of a sum is a sum. For a minimum or a
//! product, the order of updates and the old values matter, and these are known in sequential code only. A parallel
//! loop with such an update of a variable with a dual therefore becomes sequential.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use octants_ir::{
    AtomicOp, BinaryOp, BlockId, Body, BufferId, Builder, Derivative, Effect, Function, Kernel, LocalId, Op,
    StructType, Type, ValueId, task_statements,
};

use crate::derivative_rules::{has_derivative, push_forward};
use crate::memory_use::{MemoryUse, memory_use};
use octants_analysis::{Place, locals_of_all_iterations, touched_at_own_indices, trace_address};
use octants_ir::insert_code::zero;

/// Makes a kernel compute tangents in addition to its values.
pub fn differentiate_forward(kernel: &mut Kernel) {
    run_in_order(kernel);
    let signatures: Vec<Signature> = kernel.functions.iter().map(Signature::of).collect();
    let whole = Whole { shadow_buffers: &kernel.shadow_buffers, functions: &signatures };
    for (f, signature) in kernel.functions.iter_mut().zip(&signatures) {
        f.body = Forward::new(&whole, std::mem::take(&mut f.body), Some(signature)).run();
        f.params.clone_from(&signature.params);
        f.ret.clone_from(&signature.ret);
    }
    kernel.body = Forward::new(&whole, std::mem::take(&mut kernel.body), None).run();
}

/// Lets loops run in order in which the order decides about tangents.
fn run_in_order(kernel: &mut Kernel) {
    let mut functions = vec![false; kernel.functions.len()];
    // A function may call one that is after it.
    while let Some(f) = (0..functions.len())
        .find(|f| !functions[*f] && depends_on_order(&kernel.functions[*f].body, None, kernel, &functions))
    {
        functions[f] = true;
    }
    let body = &kernel.body;
    let is_parallel = |v: &ValueId| match &body.inst(*v).op {
        Op::For(l) => l.is_parallel(),
        _ => false,
    };
    let loops: Vec<ValueId> = task_statements(body)
        .into_iter()
        .filter(|v| is_parallel(v) && depends_on_order(body, Some(*v), kernel, &functions))
        .collect();
    for v in loops {
        if let Op::For(l) = &mut kernel.body.inst_mut(v).op
            && let Some(config) = &mut l.parallel
        {
            config.serialize = true;
        }
    }
}

/// Whether a parallel loop, or a function (`None`), updates shared memory such that the order of iterations matters, or
/// uses the old value of a sum. `functions` lists functions that do.
fn depends_on_order(body: &Body, parallel: Option<ValueId>, kernel: &Kernel, functions: &[bool]) -> bool {
    let shared = parallel.map(|v| locals_of_all_iterations(body, v)).unwrap_or_default();
    let block = parallel.map_or(body.root, |v| body.inst(v).op.blocks()[0]);
    let own = parallel.map(|v| touched_at_own_indices(body, v)).unwrap_or_default();
    let mut used = HashSet::new();
    body.visit(block, &mut |_, inst| inst.op.for_each_operand(|u| _ = used.insert(u)));
    let is_unseen_sum = |v: ValueId, op: AtomicOp, a: ValueId| {
        matches!(op, AtomicOp::Add | AtomicOp::Sub)
            && (!used.contains(&v) || matches!(trace_address(body, a), Place::Buffer(b) if own.contains(&b)))
    };
    let mut found = false;
    body.visit(block, &mut |v, inst| {
        let (a, x) = match memory_use(&inst.op) {
            MemoryUse::Update { op, address, .. } if is_unseen_sum(v, op, address) => return,
            MemoryUse::Update { address, operand, .. } => (address, operand),
            MemoryUse::CompareAndSwap { address, desired } => (address, desired),
            MemoryUse::Load(_) | MemoryUse::VolatileLoad(_) | MemoryUse::Store { .. } => return,
            MemoryUse::Nothing => {
                found |= matches!(inst.op, Op::Call(f, _) if functions[f.index()]);
                return;
            }
        };
        if has_derivative(body.ty(x)) {
            found |= match trace_address(body, a) {
                Place::Buffer(b) => kernel.shadow_buffers.contains_key(&b),
                Place::Local(l) => shared.contains(&l),
                Place::Param(_) | Place::Frame(_) => true,
            };
        }
    });
    found
}

/// The state that all bodies of a kernel share.
struct Whole<'a> {
    shadow_buffers: &'a BTreeMap<BufferId, BufferId>,
    functions: &'a [Signature],
}

/// A function's parameters and result with their tangents.
struct Signature {
    /// The function's own, then the tangents.
    params: Vec<Type>,
    /// For each of the function's own the position of its tangent.
    tangents: Vec<Option<u32>>,
    ret: Type,
    /// The result is a struct of the function's own and its tangent.
    pair: bool,
}

impl Signature {
    fn of(f: &Function) -> Signature {
        let mut params = f.params.clone();
        let mut tangents = Vec::new();
        for ty in &f.params {
            let pointee = if let Type::Ref(t) = ty { t } else { ty };
            tangents.push(has_derivative(pointee).then_some(params.len() as u32));
            if has_derivative(pointee) {
                params.push(ty.clone());
            }
        }
        let pair = has_derivative(&f.ret);
        let ret = if pair {
            let members = vec![("value".into(), f.ret.clone()), ("tangent".into(), f.ret.clone())];
            Type::Struct(Arc::new(StructType { name: "pair".into(), members }))
        } else {
            f.ret.clone()
        };
        Signature { params, tangents, ret, pair }
    }
}

/// The transformation of one body.
struct Forward<'a> {
    whole: &'a Whole<'a>,
    /// The function of the body.
    signature: Option<&'a Signature>,
    b: Builder,
    /// Tangents of values that are not zero, and duals of addresses.
    tangents: HashMap<ValueId, ValueId>,
    duals: HashMap<LocalId, LocalId>,
}

impl<'a> Forward<'a> {
    fn new(whole: &'a Whole<'a>, body: Body, signature: Option<&'a Signature>) -> Self {
        let mut b = Builder::new();
        b.body = body;
        let mut duals = HashMap::new();
        for i in 0..b.body.locals.len() {
            let local = b.body.locals[i].clone();
            if has_derivative(&local.ty) {
                let dual = b.body.add_local(format!("{}.dual", local.name), local.ty);
                duals.insert(LocalId(i as u32), dual);
            }
        }
        Forward { whole, signature, b, tangents: HashMap::new(), duals }
    }

    fn run(mut self) -> Body {
        self.block(self.b.body.root);
        self.b.body
    }

    fn block(&mut self, block: BlockId) {
        let back = self.b.set_cursor(block);
        for v in std::mem::take(&mut self.b.body.blocks[block.index()]) {
            self.b.span = self.b.body.inst(v).span;
            self.instruction(v);
        }
        self.b.set_cursor(back);
    }

    fn tangent(&self, v: ValueId) -> Option<ValueId> {
        self.tangents.get(&v).copied()
    }

    /// The tangent of a value as a value.
    fn tangent_or_zero(&mut self, v: ValueId) -> ValueId {
        let ty = self.b.ty(v).clone();
        self.tangent(v).unwrap_or_else(|| zero(&mut self.b, &ty))
    }

    /// Emits an instruction and the code for its tangent.
    fn instruction(&mut self, v: ValueId) {
        let op = self.b.body.inst(v).op.clone();
        let ty = self.b.ty(v).clone();
        let found = match op {
            Op::Param(i) => {
                self.b.place(v);
                let position = self.signature.and_then(|s| s.tangents[i as usize]);
                position.map(|p| self.b.push(Op::Param(p), ty))
            }
            Op::LocalAddr(l) => {
                self.b.place(v);
                self.duals.get(&l).map(|d| self.b.push(Op::LocalAddr(*d), ty))
            }
            Op::BufferAddr(buffer, indices) => {
                self.b.place(v);
                let shadow_buffer = self.whole.shadow_buffers.get(&buffer);
                shadow_buffer.map(|c| self.b.push(Op::BufferAddr(*c, indices), ty))
            }
            Op::ElementAddr(base, indices) => {
                self.b.place(v);
                self.tangent(base).map(|d| self.b.push(Op::ElementAddr(d, indices), ty))
            }
            Op::MemberAddr(base, member) => {
                self.b.place(v);
                let Type::Ref(pointee) = &ty else { panic!("compiler bug: {v} is not an address\n{}", self.b.body) };
                let dual = self.tangent(base).filter(|_| has_derivative(pointee));
                dual.map(|d| self.b.push(Op::MemberAddr(d, member), ty))
            }
            Op::Load(addr) | Op::VolatileLoad(addr) => {
                self.b.place(v);
                self.tangent(addr).map(|d| self.b.load(d))
            }
            Op::Store(addr, x) => {
                self.b.place(v);
                if let Some(dual) = self.tangent(addr) {
                    let t = self.tangent_or_zero(x);
                    self.b.store(dual, t);
                }
                None
            }
            Op::Atomic(op, addr, x) => self.atomic(v, op, addr, x),
            Op::AtomicCas(addr, expected, desired) => self.compare_and_swap(v, addr, expected, desired),
            Op::Call(f, args) => return self.call(v, f.index(), args),
            Op::Return(x) => {
                if let (Some(x), Some(signature)) = (x, self.signature.filter(|s| s.pair)) {
                    let t = self.tangent_or_zero(x);
                    let pair = self.b.push(Op::MakeStruct(vec![x, t]), signature.ret.clone());
                    self.b.body.inst_mut(v).op = Op::Return(Some(pair));
                }
                self.b.place(v);
                None
            }
            Op::If(..) | Op::For(_) | Op::Loop(_) => {
                self.nested(v, &op);
                None
            }
            op => {
                self.b.place(v);
                match op.effect() {
                    Effect::Pure | Effect::Index | Effect::Exchange => {
                        let rule = op.derivative() == Derivative::Rule && has_derivative(&ty);
                        let mut operands = Vec::new();
                        op.for_each_operand(|x| operands.push(self.tangent(x)));
                        if rule { push_forward(&mut self.b, v, &operands) } else { None }
                    }
                    // Random numbers are constants.
                    Effect::Draw | Effect::ReadClock | Effect::Synchronize => None,
                    Effect::Leave | Effect::Print | Effect::Assert => None,
                    Effect::Read(_) | Effect::ReadVolatile(_) | Effect::Write(_) | Effect::Update(_) => {
                        panic!("compiler bug: no tangent for the memory that {op:?} accesses")
                    }
                    // Reductions are found after differentiation; the others have their own arms.
                    Effect::Reduce | Effect::Branch(..) | Effect::For(_) | Effect::Loop(_) | Effect::Call(..) => {
                        panic!("compiler bug: no tangent for {op:?}")
                    }
                }
            }
        };
        if let Some(t) = found {
            self.tangents.insert(v, t);
        }
    }

    fn nested(&mut self, v: ValueId, op: &Op) {
        self.b.place(v);
        op.blocks().into_iter().for_each(|b| self.block(b));
    }

    fn atomic(&mut self, v: ValueId, op: AtomicOp, addr: ValueId, x: ValueId) -> Option<ValueId> {
        let Some(dual) = self.tangent(addr) else {
            self.b.place(v);
            return None;
        };
        let ty = self.b.ty(v).clone();
        let binary = match op {
            AtomicOp::Add | AtomicOp::Sub => {
                self.b.place(v);
                return Some(match self.tangent(x) {
                    Some(t) => self.b.push(Op::Atomic(op, dual, t), ty),
                    None => self.b.load(dual),
                });
            }
            AtomicOp::Mul => Some(BinaryOp::Mul),
            AtomicOp::Min => Some(BinaryOp::Min),
            AtomicOp::Max => Some(BinaryOp::Max),
            AtomicOp::Exchange => None,
            AtomicOp::And | AtomicOp::Or | AtomicOp::Xor => panic!("compiler bug: {op:?} of floats"),
        };
        // In order: the old value, the new one, and the tangents of both.
        self.b.body.inst_mut(v).op = Op::Load(addr);
        self.b.place(v);
        let old = self.b.load(dual);
        let (new, t) = match binary {
            None => (x, self.tangent(x)),
            Some(op) => {
                let new = self.b.binary(op, v, x);
                (new, push_forward(&mut self.b, new, &[Some(old), self.tangents.get(&x).copied()]))
            }
        };
        self.b.store(addr, new);
        let t = t.unwrap_or_else(|| zero(&mut self.b, &ty));
        self.b.store(dual, t);
        Some(old)
    }

    fn compare_and_swap(&mut self, v: ValueId, addr: ValueId, expected: ValueId, new: ValueId) -> Option<ValueId> {
        let Some(dual) = self.tangent(addr) else {
            self.b.place(v);
            return None;
        };
        let ty = self.b.ty(v).clone();
        self.b.body.inst_mut(v).op = Op::Load(addr);
        self.b.place(v);
        let old = self.b.load(dual);
        let same = self.b.binary(BinaryOp::Eq, v, expected);
        let stored = self.b.push(Op::Select(same, new, v), ty.clone());
        self.b.store(addr, stored);
        let t = self.tangent_or_zero(new);
        let t = self.b.push(Op::Select(same, t, old), ty);
        self.b.store(dual, t);
        Some(old)
    }

    fn call(&mut self, v: ValueId, f: usize, mut args: Vec<ValueId>) {
        let functions = self.whole.functions;
        let signature = &functions[f];
        for (i, tangent) in signature.tangents.iter().enumerate() {
            if tangent.is_none() {
                continue;
            }
            let arg = args[i];
            let t = match (self.tangent(arg), self.b.ty(arg).clone()) {
                (Some(t), _) => t,
                // Memory without a dual: tangents of values that the function writes to it are dropped.
                (None, Type::Ref(ty)) => {
                    let local = self.b.body.add_local("no dual", (*ty).clone());
                    let addr = self.b.local_addr(local);
                    let zero = zero(&mut self.b, &ty);
                    self.b.store(addr, zero);
                    addr
                }
                (None, ty) => zero(&mut self.b, &ty),
            };
            args.push(t);
        }
        let Op::Call(id, _) = self.b.body.inst(v).op else { panic!("compiler bug: {v} is not a call") };
        if !signature.pair {
            self.b.body.inst_mut(v).op = Op::Call(id, args);
            self.b.place(v);
            return;
        }
        // The result's number then denotes the value.
        let both = self.b.push(Op::Call(id, args), signature.ret.clone());
        self.b.body.inst_mut(v).op = Op::Extract(both, 0);
        self.b.place(v);
        let t = self.b.extract(both, 1);
        self.tangents.insert(v, t);
    }
}
