//! Converts `while` loops that count to `for` loops: `while i < n`, where `i += step` ends each iteration.
//!
//! The number of iterations is then known before the first one, which unrolling, prefetching and vectorization ask for.
//! CUDA programmers stride over a range in this way.
//!
//! The counter is an i32 local that nothing else in the loop changes, the step is a positive constant, and the bound is
//! the same in all iterations. Loops that are left elsewhere, call functions or let threads cooperate stay as they are.
//! A loop whose counter would wrap around would never end; it ends here.

use std::collections::{HashMap, HashSet};

use octants_ir::insert_code::bodies;
use octants_ir::{
    BinaryOp, BlockId, Body, Builder, Const, Effect, ForLoop, Kernel, LocalId, Op, Range, Scalar, Type, ValueId,
    holds_tasks,
};

use octants_analysis::{exits_of, points_into};

/// Converts the loops of all bodies.
pub fn convert_counting_loops(kernel: &mut Kernel) {
    bodies(kernel).for_each(convert_in_body);
}

fn convert_in_body(body: &mut Body) {
    for home in (0..body.blocks.len() as u32).map(BlockId) {
        for v in body.block(home).to_vec() {
            if let Op::Loop(block) = body.inst(v).op
                && let Some(found) = Counting::of(body, block)
            {
                found.convert(body, home, v);
            }
        }
    }
}

/// A loop that counts.
struct Counting {
    /// What it repeats.
    block: BlockId,
    counter: LocalId,
    step: i64,
    /// The first value that the counter does not reach.
    bound: ValueId,
    /// The `if` that leaves the loop.
    exit: ValueId,
    /// The addition's store.
    update: ValueId,
    /// Loads of the counter.
    loads: HashSet<ValueId>,
    /// All values of the loop.
    inside: HashSet<ValueId>,
}

impl Counting {
    fn of(body: &Body, block: BlockId) -> Option<Counting> {
        let statements = body.block(block);
        let at = statements.iter().position(|v| matches!(body.inst(*v).op, Op::If(..)))?;
        let (exit, update) = (statements[at], *statements.last()?);
        let is_quiet = |v: &ValueId| match body.inst(*v).op.effect() {
            Effect::Pure => true,
            Effect::Read(a) => loaded_local(body, a).is_some(),
            _ => false,
        };
        let Op::If(condition, go_on, leave) = body.inst(exit).op else { return None };
        let leaves = |v: &ValueId| matches!(body.inst(*v).op, Op::Break);
        let (index, bound) = match body.inst(condition).op {
            Op::Binary(BinaryOp::Lt, index, bound) | Op::Binary(BinaryOp::Gt, bound, index) => (index, bound),
            _ => return None,
        };
        let counter = value_of_local(body, index)?;
        let is_exit = body.block(go_on).is_empty() && matches!(body.block(leave), [v] if leaves(v));
        if !is_exit || !statements[..at].iter().all(is_quiet) || *body.ty(index) != Type::Scalar(Scalar::I32) {
            return None;
        }
        let step = step_of(body, update, counter)?;
        let mut found =
            Counting { block, counter, step, bound, exit, update, loads: HashSet::new(), inside: HashSet::new() };
        let stored = found.look_inside(body)?;
        found.is_fixed(body, bound, &stored).then_some(found)
    }

    /// The locals that the loop writes, or passes on; `None` where it does what a `for` loop must not.
    fn look_inside(&mut self, body: &Body) -> Option<HashSet<LocalId>> {
        let others = body.block(self.block).iter().filter(|v| **v != self.exit);
        if holds_tasks(body, self.block) || others.clone().any(|v| exits_of(body, *v) != [false; 2]) {
            return None;
        }
        let mut stored = HashSet::new();
        let mut is_plain = true;
        body.visit(self.block, &mut |v, inst| {
            self.inside.insert(v);
            let op = &inst.op;
            is_plain &= !matches!(op, Op::Return(_))
                && !matches!(op.effect(), Effect::Call(..) | Effect::Synchronize | Effect::Exchange);
            if value_of_local(body, v) == Some(self.counter) {
                self.loads.insert(v);
            } else if !matches!(op, Op::Load(_)) && !matches!(inst.ty, Type::Ref(_)) {
                op.for_each_operand(|u| {
                    is_plain &= v == self.update || !points_into(body, u, self.counter);
                    stored.extend(local_of(body, u));
                });
            }
        });
        is_plain.then_some(stored)
    }

    /// A value is the same in all iterations, and before the first.
    fn is_fixed(&self, body: &Body, v: ValueId, stored: &HashSet<LocalId>) -> bool {
        if !self.inside.contains(&v) {
            return true;
        }
        let op = &body.inst(v).op;
        let is_same = match op.effect() {
            Effect::Pure => true,
            Effect::Read(a) => loaded_local(body, a).is_some_and(|l| !stored.contains(&l)),
            _ => false,
        };
        let mut fixed = is_same;
        op.for_each_operand(|u| fixed = fixed && self.is_fixed(body, u, stored));
        fixed
    }

    fn convert(&self, body: &mut Body, home: BlockId, v: ValueId) {
        let mut b = Builder::new();
        b.span = body.inst(v).span;
        b.body = std::mem::take(body);
        let [before, start, after] = [(); 3].map(|()| b.body.add_block());
        b.set_cursor(before);
        let bound = self.copy(&mut b, self.bound, &mut HashMap::new());
        let counter = b.local_addr(self.counter);
        let first = b.load(counter);
        let (range, index, last) = if self.step == 1 {
            let last = b.binary(BinaryOp::Max, first, bound);
            b.set_cursor(start);
            let index = b.push(Op::LoopIndex(v, 0), Scalar::I32.into());
            (Range { begin: first, end: bound }, index, last)
        } else {
            self.strided(&mut b, v, (first, bound), start)
        };
        b.set_cursor(after);
        let counter = b.local_addr(self.counter);
        b.store(counter, last);
        *body = b.body;

        let mut blocks = vec![self.block];
        body.visit(self.block, &mut |_, inst| blocks.extend(inst.op.blocks()));
        for u in &self.inside {
            body.inst_mut(*u).op.map_operands(|u| if self.loads.contains(&u) { index } else { u });
        }
        for block in blocks {
            body.blocks[block.index()].retain(|u| !self.loads.contains(u) && *u != self.exit && *u != self.update);
        }
        let [before, start, after] = [before, start, after].map(|b| std::mem::take(&mut body.blocks[b.index()]));
        body.blocks[self.block.index()].splice(0..0, start);
        body.inst_mut(v).op = Op::For(Box::new(ForLoop::serial(vec![range], self.block)));
        let statements = &mut body.blocks[home.index()];
        let at = statements.iter().position(|u| *u == v).expect("compiler bug: a loop is not in its block");
        statements.splice(at..=at, before.into_iter().chain([v]).chain(after));
    }

    /// The iterations of a loop with a longer step are numbered: their range, the counter's value in each and at the
    /// end.
    fn strided(
        &self,
        b: &mut Builder,
        v: ValueId,
        (first, bound): (ValueId, ValueId),
        start: BlockId,
    ) -> (Range, ValueId, ValueId) {
        // The difference of any two i32 fits u32. Half as many iterations need not fit i32, a third do.
        let number = if self.step == 2 { Scalar::I64 } else { Scalar::I32 };
        let difference = b.binary(BinaryOp::Sub, bound, first);
        let difference = b.cast(difference, Scalar::U32);
        let (one, step) = (b.int(1, Scalar::U32), b.int(self.step, Scalar::U32));
        let further = b.binary(BinaryOp::Sub, difference, one);
        let further = b.binary(BinaryOp::Div, further, step);
        let trips = b.binary(BinaryOp::Add, further, one);
        let runs = b.binary(BinaryOp::Lt, first, bound);
        let none = b.int(0, Scalar::U32);
        let trips = b.push(Op::Select(runs, trips, none), Scalar::U32.into());
        let value_at = |b: &mut Builder, n: ValueId| {
            let (n, step) = (b.cast(n, Scalar::I32), b.int(self.step, Scalar::I32));
            let way = b.binary(BinaryOp::Mul, n, step);
            b.binary(BinaryOp::Add, first, way)
        };
        let last = value_at(b, trips);
        let range = Range { begin: b.int(0, number), end: b.cast(trips, number) };
        b.set_cursor(start);
        let n = b.push(Op::LoopIndex(v, 0), number.into());
        (range, value_at(b, n), last)
    }

    /// A copy of a value that is the same in all iterations, at the cursor.
    fn copy(&self, b: &mut Builder, v: ValueId, copies: &mut HashMap<ValueId, ValueId>) -> ValueId {
        if !self.inside.contains(&v) {
            return v;
        }
        if let Some(copy) = copies.get(&v) {
            return *copy;
        }
        let (mut op, ty) = (b.body.inst(v).op.clone(), b.ty(v).clone());
        op.map_operands(|u| self.copy(b, u, copies));
        let copy = b.push(op, ty);
        copies.insert(v, copy);
        copy
    }
}

/// The local that an address is of, as a whole.
fn loaded_local(body: &Body, addr: ValueId) -> Option<LocalId> {
    match body.inst(addr).op {
        Op::LocalAddr(l) => Some(l),
        _ => None,
    }
}

/// The local whose value a load yields.
fn value_of_local(body: &Body, v: ValueId) -> Option<LocalId> {
    match body.inst(v).op {
        Op::Load(a) => loaded_local(body, a),
        _ => None,
    }
}

/// The local that an address points into.
fn local_of(body: &Body, addr: ValueId) -> Option<LocalId> {
    match &body.inst(addr).op {
        Op::ElementAddr(base, _) | Op::MemberAddr(base, _) => local_of(body, *base),
        _ => loaded_local(body, addr),
    }
}

/// The positive constant that a store adds to a local.
fn step_of(body: &Body, update: ValueId, counter: LocalId) -> Option<i64> {
    let Op::Store(a, sum) = body.inst(update).op else { return None };
    let Op::Binary(BinaryOp::Add, x, y) = body.inst(sum).op else { return None };
    let of = |x: ValueId, y: ValueId| match body.as_const(y) {
        Some(Const::Int(n)) if n > 0 && value_of_local(body, x) == Some(counter) => Some(n),
        _ => None,
    };
    (loaded_local(body, a) == Some(counter)).then(|| of(x, y).or_else(|| of(y, x))).flatten()
}
