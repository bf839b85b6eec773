//! Promotes locals to values: a local that is set once, as a whole, before all its reads is replaced by the stored
//! value.
//!
//! LLVM does this within a task. Here it matters between tasks, where a variable occupies frame memory but a value may
//! be recomputed, and for passes that inspect how an index or a bound is computed.

use std::collections::HashMap;

use octants_ir::{BlockId, Body, Const, Inst, Kernel, LocalId, Op, Type, ValueId};

use octants_analysis::{Place, trace_address};

/// Replaces locals that are set once by their value, in the kernel and its functions.
pub fn simplify_locals(kernel: &mut Kernel) {
    for body in kernel.functions.iter_mut().map(|f| &mut f.body).chain([&mut kernel.body]) {
        let mut simple = set_once(body);
        if simple.iter().any(|s| *s) {
            let mut seen = vec![None; body.locals.len()];
            check_order(body, body.root, &mut simple, &mut seen);
            let mut rewrite = Rewrite { body, simple, value: HashMap::new(), replaced: HashMap::new() };
            rewrite.block(rewrite.body.root);
        }
    }
}

/// The locals with one store of the whole and no other use than loads of the whole or of parts.
fn set_once(body: &Body) -> Vec<bool> {
    let mut stores = vec![0u32; body.locals.len()];
    let mut other = vec![false; body.locals.len()];
    body.visit(body.root, &mut |_, inst| {
        let mut spoil = |v: ValueId| {
            if matches!(body.ty(v), Type::Ref(_))
                && let Place::Local(l) = trace_address(body, v)
            {
                other[l.index()] = true;
            }
        };
        match &inst.op {
            Op::Load(_) | Op::ElementAddr(..) | Op::MemberAddr(..) => {}
            Op::Store(a, _) => match body.inst(*a).op {
                Op::LocalAddr(l) => stores[l.index()] += 1,
                _ => spoil(*a),
            },
            op => op.for_each_operand(spoil),
        }
    });
    stores.iter().zip(other).map(|(n, other)| *n == 1 && !other).collect()
}

/// Excludes locals that are read where their store has not certainly run.
fn check_order(body: &Body, block: BlockId, simple: &mut [bool], set: &mut [Option<()>]) {
    let mut here = Vec::new();
    for &v in body.block(block) {
        match &body.inst(v).op {
            Op::Store(a, _) => {
                if let Op::LocalAddr(l) = body.inst(*a).op {
                    set[l.index()] = Some(());
                    here.push(l);
                }
            }
            Op::Load(a) => {
                if let Place::Local(l) = trace_address(body, *a)
                    && set[l.index()].is_none()
                {
                    simple[l.index()] = false;
                }
            }
            op => op.blocks().into_iter().for_each(|b| check_order(body, b, simple, set)),
        }
    }
    here.into_iter().for_each(|l| set[l.index()] = None);
}

struct Rewrite<'a> {
    body: &'a mut Body,
    simple: Vec<bool>,
    value: HashMap<LocalId, ValueId>,
    replaced: HashMap<ValueId, ValueId>,
}

impl Rewrite<'_> {
    fn block(&mut self, b: BlockId) {
        let mut out = Vec::new();
        for v in std::mem::take(&mut self.body.blocks[b.index()]) {
            let replaced = &self.replaced;
            self.body.inst_mut(v).op.map_operands(|u| replaced.get(&u).copied().unwrap_or(u));
            match self.body.inst(v).op.clone() {
                Op::Store(a, x) if self.simple_local(a).is_some() => {
                    self.value.extend(self.simple_local(a).map(|l| (l, x)));
                }
                Op::Load(a) if self.simple_local(a).is_some() => {
                    let x = self.read(a, v, &mut out);
                    self.replaced.insert(v, x);
                }
                op => {
                    out.push(v);
                    op.blocks().into_iter().for_each(|b| self.block(b));
                }
            }
        }
        self.body.blocks[b.index()] = out;
    }

    fn simple_local(&self, addr: ValueId) -> Option<LocalId> {
        match trace_address(self.body, addr) {
            Place::Local(l) if self.simple[l.index()] => Some(l),
            _ => None,
        }
    }

    /// The value at an address in a simple local.
    fn read(&mut self, addr: ValueId, load: ValueId, out: &mut Vec<ValueId>) -> ValueId {
        let Inst { op, ty, .. } = self.body.inst(addr).clone();
        let Type::Ref(ty) = ty else { panic!("compiler bug: {addr} is not an address\n{}", self.body) };
        let span = self.body.inst(load).span;
        let part = match op {
            Op::LocalAddr(l) => return self.value[&l],
            Op::MemberAddr(base, i) => Op::Extract(self.read(base, load, out), i),
            Op::ElementAddr(base, indices) => {
                let whole = self.read(base, load, out);
                match self.position(whole, &indices) {
                    Some(i) => Op::Extract(whole, i),
                    None => Op::ExtractDyn(whole, indices),
                }
            }
            op => panic!("compiler bug: {op:?} is not an address\n{}", self.body),
        };
        let v = self.body.add_inst(part, *ty, span);
        out.push(v);
        v
    }

    fn position(&self, tensor: ValueId, indices: &[ValueId]) -> Option<u32> {
        let mut position = 0;
        for (extent, index) in self.body.ty(tensor).shape().iter().zip(indices) {
            let Const::Int(i) = self.body.as_const(*index)? else { return None };
            if !(0..i64::from(*extent)).contains(&i) {
                return None;
            }
            position = position * extent + i as u32;
        }
        Some(position)
    }
}
