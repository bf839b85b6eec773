//! Inlines calls where it costs little: the function is called once, or is small, or has few calls for its size. Other
//! functions are compiled once and called.
//!
//! Inlining shows later passes what a loop shares, what it reduces, and how indices are computed, while code size
//! stays in proportion to the source. Recursive functions, and functions that return from within a branch or loop, are
//! not inlined. The latter are inlined if threads cooperate in them.

use std::collections::HashMap;
use std::sync::Arc;

use octants_ir::{BlockId, Body, FuncId, Function, Kernel, LocalId, MemorySpace, Op, Type, ValueId};

use crate::offload::push_zero;
use crate::return_at_end::return_at_end;
use octants_analysis::{OwnBehavior, Place, own_behavior, trace_address};

/// Functions up to this size are always inlined: their code is no larger than a call.
const SMALL: usize = 20;

/// Maximum code growth by copies of one function without loops. Iterations of the caller may then be vectorized, which
/// is worth some compile time.
const GROWTH: usize = 1600;

/// The same for a function with loops, for which a call costs comparatively little.
const GROWTH_OF_LOOPS: usize = 400;

/// Maximum code growth of a kernel by copies of all functions. Copies contain further copies, level by level, and
/// LLVM's time grows faster than the code.
const GROWTH_OF_KERNEL: usize = 8000;

/// Inlines calls in the kernel and in its functions, callees first.
pub fn inline_calls(kernel: &mut Kernel) {
    let mut left = GROWTH_OF_KERNEL;
    inline(kernel, |_, size, copies, loops| {
        let growth = if loops { GROWTH_OF_LOOPS } else { GROWTH };
        let added = copies.saturating_mul(size);
        let cheap = added <= growth.min(left);
        if cheap && size > SMALL {
            left -= added;
        }
        cheap || size <= SMALL
    });
}

/// Inlines every call of a function that returns at its end and does not call itself.
pub fn inline_all_calls(kernel: &mut Kernel) {
    inline(kernel, |_, _, _, _| true);
}

/// Inlines the calls of these functions.
pub fn inline_functions(kernel: &mut Kernel, wanted: &[FuncId]) {
    for f in wanted {
        let function = &mut kernel.functions[f.index()];
        if !returns_at_end(&function.body) {
            return_at_end(function);
        }
    }
    if !wanted.is_empty() {
        inline(kernel, |i, _, _, _| wanted.contains(&FuncId(i as u32)));
    }
}

/// Inlines the calls of functions that are given addresses, so that it is seen whose memory they access.
pub fn inline_calls_with_references(kernel: &mut Kernel) {
    let has_reference = |f: &Function| f.params.iter().any(|ty| matches!(ty, Type::Ref(_)));
    let chosen: Vec<bool> = kernel.functions.iter().map(has_reference).collect();
    if chosen.contains(&true) {
        for (function, _) in kernel.functions.iter_mut().zip(&chosen).filter(|(_, chosen)| **chosen) {
            if !returns_at_end(&function.body) {
                return_at_end(function);
            }
        }
        inline(kernel, |i, _, _, _| chosen[i]);
    }
}

/// Inlines the calls of non-recursive functions in which threads synchronize, depend on their thread index or use
/// shared memory. In a kernel that has such code, functions that draw random numbers too: each thread has its own
/// sequence.
pub fn inline_cooperating_calls(kernel: &mut Kernel) {
    let is_shared =
        |op: &Op| matches!(op, Op::BufferAddr(b, _) if kernel.buffers[b.index()].space == MemorySpace::Shared);
    let own: Vec<_> = kernel.functions.iter().map(|f| own_behavior(&f.body)).collect();
    let cooperates: Vec<bool> = kernel
        .functions
        .iter()
        .zip(&own)
        .map(|(f, own)| {
            let mut found = own.behavior.cooperates;
            f.body.visit(f.body.root, &mut |_, inst| found |= is_shared(&inst.op));
            found
        })
        .collect();
    let is_of_threads = cooperates.contains(&true) || {
        let mut found = own_behavior(&kernel.body).behavior.cooperates;
        kernel.body.visit(kernel.body.root, &mut |_, inst| found |= is_shared(&inst.op));
        found
    };
    let is_wanted = |i: usize| cooperates[i] || is_of_threads && own[i].behavior.draws;
    let reaches =
        |(i, of): (usize, &Arc<OwnBehavior>)| is_wanted(i) || of.reached(&own).iter().any(|f| is_wanted(f.index()));
    let chosen: Vec<bool> = own.iter().enumerate().map(reaches).collect();
    if chosen.contains(&true) {
        for (function, _) in kernel.functions.iter_mut().zip(&chosen).filter(|(_, chosen)| **chosen) {
            if !returns_at_end(&function.body) {
                return_at_end(function);
            }
        }
        inline(kernel, |i, _, _, _| chosen[i]);
    }
}

/// Inlines the calls of functions that `is_chosen` chooses by their number, their size, the number of copies besides
/// the first, and whether they have loops.
fn inline(kernel: &mut Kernel, mut is_chosen: impl FnMut(usize, usize, usize, bool) -> bool) {
    if kernel.functions.is_empty() {
        return;
    }
    let mut calls = vec![0usize; kernel.functions.len()];
    for body in kernel.functions.iter().map(|f| &f.body).chain([&kernel.body]) {
        for_each_call(body, &mut |f| calls[f.index()] += 1);
    }
    let mut search = Search {
        functions: &kernel.functions,
        state: vec![State::New; calls.len()],
        recursive: vec![false; calls.len()],
        order: Vec::new(),
    };
    for_each_call(&kernel.body, &mut |f| search.visit(f));
    let Search { order, recursive, .. } = search;
    let mut chosen = vec![false; calls.len()];
    for f in order {
        let i = f.index();
        let mut body = std::mem::take(&mut kernel.functions[i].body);
        inline_in(&mut body, &kernel.functions, &chosen);
        let is_wanted = is_chosen(i, size(&body), calls[i] - 1, has_loops(&body));
        chosen[i] = is_wanted && !recursive[i] && returns_at_end(&body);
        kernel.functions[i].body = body;
    }
    inline_in(&mut kernel.body, &kernel.functions, &chosen);
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    New,
    Open,
    Done,
}

/// Finds the order in which callees come before callers, and the functions that call themselves.
struct Search<'a> {
    functions: &'a [Function],
    state: Vec<State>,
    recursive: Vec<bool>,
    order: Vec<FuncId>,
}

impl Search<'_> {
    fn visit(&mut self, f: FuncId) {
        match self.state[f.index()] {
            State::Done => {}
            State::Open => self.recursive[f.index()] = true,
            State::New => {
                self.state[f.index()] = State::Open;
                let functions = self.functions;
                for_each_call(&functions[f.index()].body, &mut |callee| self.visit(callee));
                self.state[f.index()] = State::Done;
                self.order.push(f);
            }
        }
    }
}

fn for_each_call(body: &Body, f: &mut impl FnMut(FuncId)) {
    body.visit(body.root, &mut |_, inst| {
        if let Op::Call(callee, _) = inst.op {
            f(callee);
        }
    });
}

/// The number of operations that become code. Excludes variables and constants, most of which later passes remove.
fn size(body: &Body) -> usize {
    let is_local = |addr: ValueId| matches!(body.inst(addr).op, Op::LocalAddr(_));
    let mut size = 0;
    body.visit(body.root, &mut |_, inst| {
        let free = match &inst.op {
            Op::Const(_) | Op::Param(_) | Op::LocalAddr(_) => true,
            Op::Load(a) | Op::Store(a, _) => is_local(*a),
            _ => false,
        };
        size += if free { 0 } else { 1 + inst.ty.leaf_count() / 4 };
    });
    size
}

fn has_loops(body: &Body) -> bool {
    let mut found = false;
    body.visit(body.root, &mut |_, inst| found |= matches!(inst.op, Op::For(_) | Op::Loop(_)));
    found
}

/// Nothing but the end of the body leaves it.
fn returns_at_end(body: &Body) -> bool {
    let mut returns = 0;
    body.visit(body.root, &mut |_, inst| returns += usize::from(matches!(inst.op, Op::Return(_))));
    let last = body.block(body.root).last().map(|v| &body.inst(*v).op);
    returns == usize::from(matches!(last, Some(Op::Return(_))))
}

fn inline_in(body: &mut Body, functions: &[Function], chosen: &[bool]) {
    let mut results: HashMap<ValueId, ValueId> = HashMap::new();
    for block in 0..body.blocks.len() {
        let is_chosen = |v: &ValueId| matches!(body.inst(*v).op, Op::Call(f, _) if chosen[f.index()]);
        if !body.blocks[block].iter().any(is_chosen) {
            continue;
        }
        for v in std::mem::take(&mut body.blocks[block]) {
            match &body.inst(v).op {
                Op::Call(f, args) if chosen[f.index()] => {
                    let (callee, args) = (&functions[f.index()].body, args.clone());
                    let call = body.inst(v).span;
                    let mut copy = Copy { callee, args, call, body, values: HashMap::new(), locals: HashMap::new() };
                    results.extend(copy.run(BlockId(block as u32)).map(|result| (v, result)));
                }
                _ => body.blocks[block].push(v),
            }
        }
    }
    if results.is_empty() {
        return;
    }
    // A result may be an argument, and that the result of another call.
    let value = |mut v: ValueId| {
        while let Some(result) = results.get(&v) {
            v = *result;
        }
        v
    };
    body.insts.iter_mut().for_each(|inst| inst.op.map_operands(value));
}

/// A copy of a function's code on its way into another body.
struct Copy<'a> {
    callee: &'a Body,
    args: Vec<ValueId>,
    call: octants_diag::Span,
    body: &'a mut Body,
    values: HashMap<ValueId, ValueId>,
    locals: HashMap<LocalId, LocalId>,
}

impl Copy<'_> {
    /// Appends the copy to a block, and returns the function's result.
    fn run(&mut self, to: BlockId) -> Option<ValueId> {
        let callee = self.callee;
        for (i, local) in callee.locals.iter().enumerate() {
            let copy = self.body.add_local(local.name.clone(), local.ty.clone());
            self.locals.insert(LocalId(i as u32), copy);
        }
        // A local starts as zero at each call.
        for (i, needed) in read_before_set(callee).into_iter().enumerate() {
            if needed {
                let (local, ty) = (self.locals[&LocalId(i as u32)], &callee.locals[i].ty);
                let zero = push_zero(self.body, to, ty);
                let addr = self.push(to, Op::LocalAddr(local), Type::Ref(Box::new(ty.clone())), Default::default());
                self.push(to, Op::Store(addr, zero), Type::Unit, Default::default());
            }
        }
        self.block(callee.root, to)
    }

    fn push(&mut self, to: BlockId, op: Op, ty: Type, span: octants_diag::Span) -> ValueId {
        let v = self.body.add_inst(op, ty, span.inlined_at(self.call));
        self.body.blocks[to.index()].push(v);
        v
    }

    fn block(&mut self, from: BlockId, to: BlockId) -> Option<ValueId> {
        for &v in self.callee.block(from) {
            let inst = self.callee.inst(v).clone();
            let mut op = inst.op;
            match &mut op {
                Op::Param(i) => {
                    self.values.insert(v, self.args[*i as usize]);
                    continue;
                }
                Op::Return(value) => return value.map(|v| self.values[&v]),
                Op::LocalAddr(l) => *l = self.locals[l],
                Op::For(l) => l.body = self.body.add_block(),
                Op::Loop(b) => *b = self.body.add_block(),
                Op::If(_, a, b) => (*a, *b) = (self.body.add_block(), self.body.add_block()),
                _ => {}
            }
            op.map_operands(|u| self.values[&u]);
            let blocks = op.blocks();
            let copy = self.push(to, op, inst.ty, inst.span);
            self.values.insert(v, copy);
            let inner = self.callee.inst(v).op.blocks();
            for (from, to) in inner.into_iter().zip(blocks) {
                self.block(from, to);
            }
        }
        None
    }
}

/// The locals whose zero at the start may be seen: some use is not after a store of the whole.
fn read_before_set(body: &Body) -> Vec<bool> {
    let mut search = Unset { body, set: vec![false; body.locals.len()], read: vec![false; body.locals.len()] };
    search.block(body.root);
    search.read
}

struct Unset<'a> {
    body: &'a Body,
    set: Vec<bool>,
    read: Vec<bool>,
}

impl Unset<'_> {
    fn block(&mut self, b: BlockId) {
        let mut here = Vec::new();
        for &v in self.body.block(b) {
            let inst = self.body.inst(v);
            match &inst.op {
                Op::ElementAddr(..) | Op::MemberAddr(..) => continue,
                Op::Store(a, _) => {
                    if let Op::LocalAddr(l) = self.body.inst(*a).op {
                        if !std::mem::replace(&mut self.set[l.index()], true) {
                            here.push(l);
                        }
                        continue;
                    }
                }
                _ => {}
            }
            inst.op.for_each_operand(|u| {
                if matches!(self.body.ty(u), Type::Ref(_))
                    && let Place::Local(l) = trace_address(self.body, u)
                {
                    self.read[l.index()] |= !self.set[l.index()];
                }
            });
            inst.op.blocks().into_iter().for_each(|b| self.block(b));
        }
        here.into_iter().for_each(|l| self.set[l.index()] = false);
    }
}
