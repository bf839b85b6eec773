//! Warp-synchronous (converged) loops: serial loops in which the threads of a subgroup add to the same element at the
//! same time, although their trip counts differ.
//!
//! In `for i: for k in range(n[i]): g[k] += f(i, k)`, the threads of a subgroup run adjacent `i` and are at the same
//! `k`. A descending loop would start each thread at its own end. Here all start at the farthest end in the subgroup,
//! and a thread waits until its own end is reached. The wait is free, because a subgroup takes as long as its longest
//! thread. The subgroup then combines its sums in registers (`reduce_in_subgroups`), up to eight steps at a time, and
//! one thread adds each result.
//!
//! Applies to sums of floats into copies in shared memory (`privatize_in_shared_memory`). A vote before the loop
//! decides whether the subgroup is complete and agrees on the elements. Otherwise each thread adds by itself.

use std::collections::{HashMap, HashSet};

use octants_ir::insert_code::{push_if, rebuild_blocks};
use octants_ir::{
    BinaryOp, BlockId, Body, Builder, ForLoop, LocalId, LoopHints, Op, Range, Scalar, Scheduled, SubgroupOp, Type,
    ValueId,
};

use crate::clone_code::{Cloner, remove_unused};
use crate::facts::{BodyFacts, ProgramFacts};
use crate::find_converged_loops::{ConvergedLoop, find_converged_loop};
use crate::full_unroll::{insert_versions, split_before_unrolled};
use crate::prefetch::{has_many_threads, prefetch};
use crate::reduce_in_subgroups::{Collected, shuffle_fold};
use crate::schedule_task::{ParallelLoop, has_many_loops};
use crate::scheduling::Scheduling;
use crate::subgroup_steps::Steps;

/// Converges the loops with sums into copies, in the variants of tasks.
pub(crate) fn converge_loops(scheduled: &mut Scheduled, of: &Scheduling) {
    let Scheduled { program, schedule } = scheduled;
    let facts = ProgramFacts::of(program, &of.target, of.options);
    for (task, found) in program.tasks.iter().zip(&mut schedule.tasks) {
        if found.forms.block_privatization.is_none() {
            continue;
        }
        let many_threads = ParallelLoop::of(task).is_some_and(|p| has_many_threads(p.of, found.count()));
        let unrolls = !has_many_loops(&task.body);
        let factor = |body: &Body, l: &ForLoop| {
            prefetch(facts.costs(), body, l, many_threads).filter(|_| unrolls).map_or(1, |unroll| unroll.factor)
        };
        for variant in &mut found.variants {
            converge_in_body(&facts, &mut variant.body, &factor);
        }
    }
}

fn converge_in_body(facts: &ProgramFacts<'_>, body: &mut Body, factor: &dyn Fn(&Body, &ForLoop) -> u32) {
    let source = body.clone();
    let of_body = BodyFacts::new(facts, &source);
    let mut plans = HashMap::new();
    find_loops(&of_body, source.root, factor, &mut plans);
    if plans.is_empty() {
        return;
    }
    let subgroup_bits = facts.target.subgroup_size.trailing_zeros();
    rebuild_blocks(body, |b, v| match (plans.get(&v), &source.inst(v).op) {
        (Some(plan), Op::For(l)) => converge_loop(b, &of_body, (v, l), plan, subgroup_bits),
        _ => b.place(v),
    });
    remove_unused(body);
}

/// Finds the loops of a block. They do not nest.
fn find_loops(
    facts: &BodyFacts<'_>,
    block: BlockId,
    factor: &dyn Fn(&Body, &ForLoop) -> u32,
    plans: &mut HashMap<ValueId, ConvergedLoop>,
) {
    for &v in facts.body.block(block) {
        let op = &facts.body.inst(v).op;
        let found = match op {
            Op::For(l) if l.parallel.is_none() => find_converged_loop(facts, v, l, factor(facts.body, l)),
            _ => None,
        };
        match found {
            Some(found) => _ = plans.insert(v, found),
            None => op.blocks().into_iter().for_each(|b| find_loops(facts, b, factor, plans)),
        }
    }
}

fn converge_loop(
    b: &mut Builder,
    facts: &BodyFacts<'_>,
    (v, l): (ValueId, &ForLoop),
    plan: &ConvergedLoop,
    subgroup_bits: u32,
) {
    let Range { begin, end } = l.dims[0];
    let index = b.ty(begin).scalar().expect("compiler bug: a bound is not a scalar");
    // From an index that is not negative there are fewer than 2^31 iterations.
    let is_short = index.bits() <= 32 && facts.known(begin).is_some_and(|first| first >= 0);
    let count = if is_short { Scalar::I32 } else { Scalar::I64 };
    let zero = b.int(0, count);
    let known = facts.known(begin).zip(facts.known(end)).map(|(begin, end)| end.saturating_sub(begin).max(0));
    let is_run = b.binary(BinaryOp::Lt, begin, end);
    let [begin, end] = [begin, end].map(|v| b.cast(v, count));
    let own = match known {
        Some(trips) => b.int(trips, count),
        None => {
            let trips = b.binary(BinaryOp::Sub, end, begin);
            b.push(Op::Select(is_run, trips, zero), count.into())
        }
    };
    let (together, most) = agree(b, facts, &plan.invariants, own, subgroup_bits);
    let ahead = plan.pipelined.add_locals(b);
    if !ahead.is_empty() {
        let is_any = b.binary(BinaryOp::Gt, own, zero);
        push_if(b, is_any, |b| plan.pipelined.load_ahead(b, &mut Cloner::new(facts.body, &facts.locals), &ahead));
    }
    let collected = Collected::new(b, facts.body, &plan.reductions);

    // A round is `interleave_factor` steps. All threads of the subgroup reach its end.
    let factor = plan.interleave_factor;
    let less = b.int(factor - 1, count);
    let (mut rounds, mut first) = (most, zero);
    if let (Some(trips), true) = (known, factor > 1) {
        rounds = b.int(trips.div_euclid(factor) + i64::from(trips % factor > 0), count);
    } else if factor > 1 {
        let bits = b.int(factor.trailing_zeros().into(), count);
        let up = b.binary(BinaryOp::Add, most, less);
        rounds = b.binary(BinaryOp::UShr, up, bits);
    }
    if plan.descending {
        let one = b.int(1, count);
        let last = b.binary(BinaryOp::Sub, most, one);
        let mask = b.int(-factor, count);
        first = if factor > 1 { b.binary(BinaryOp::And, last, mask) } else { last };
    }
    let body = b.body.add_block();
    let hints = LoopHints { converged: true, ..LoopHints::default() };
    let dims = vec![Range { begin: zero, end: rounds }];
    let rounds = b.push(Op::For(Box::new(ForLoop { hints, ..ForLoop::serial(dims, body) })), Type::Unit);
    let back = b.set_cursor(body);
    let mut done = b.push(Op::LoopIndex(rounds, 0), count.into());
    if factor > 1 {
        let factor = b.int(factor, count);
        done = b.binary(BinaryOp::Mul, done, factor);
    }
    let start = if plan.descending { b.binary(BinaryOp::Sub, first, done) } else { done };
    let (descending, mirrored) = (plan.descending, plan.mirrored.clone());
    let steps = Steps { loop_id: v, begin, end, count, index, descending, mirrored, start };
    let round = Round { facts, l, plan, steps, own, ahead, collected };
    round.collected.clear(b);
    for turn in 0..factor {
        round.step(b, if descending { factor - 1 - turn } else { turn });
    }
    let blocks = [b.body.add_block(), b.body.add_block()];
    let together = b.load_local(together);
    b.push(Op::If(together, blocks[0], blocks[1]), Type::Unit);
    b.set_cursor(blocks[0]);
    round.collected.add_as_one(b, facts, &plan.full_unroll, &round.steps, subgroup_bits);
    b.set_cursor(blocks[1]);
    round.collected.add_apart(b, facts, &plan.full_unroll, &round.steps);
    b.set_cursor(back);
}

/// A round that is being built.
struct Round<'a> {
    facts: &'a BodyFacts<'a>,
    l: &'a ForLoop,
    plan: &'a ConvergedLoop,
    steps: Steps,
    /// How many steps this thread runs.
    own: ValueId,
    /// The values loaded for the next step.
    ahead: Vec<LocalId>,
    collected: Collected<'a>,
}

impl Round<'_> {
    /// Runs a step of the round, unless this thread waits in it.
    fn step(&self, b: &mut Builder, offset: i64) {
        let (steps, plan) = (&self.steps, self.plan);
        let distance = b.int(offset, steps.count);
        let step = if offset == 0 { steps.start } else { steps.step(b, distance) };
        let is_active = self.is_own(b, step);
        push_if(b, is_active, |b| {
            let mut cloner = Cloner::new(self.facts.body, &self.facts.locals);
            cloner.drops_remainders = true;
            steps.enter(b, &mut cloner, step);
            cloner.iterations.insert(steps.loop_id, offset as usize);
            for ((load, _), local) in plan.pipelined.loads.iter().zip(&self.ahead) {
                let value = b.load_local(*local);
                cloner.copier.values.insert(*load, value);
            }
            let mut hook = |cloner: &mut Cloner<'_>, b: &mut Builder, v: ValueId| {
                steps.has_value(v)
                    || plan.pipelined.loads.iter().any(|(load, _)| *load == v)
                    || self.collected.collect(b, cloner, v)
            };
            let mut at_end = |cloner: &mut Cloner<'_>, b: &mut Builder| self.load_ahead(b, cloner, step, offset);
            cloner.unroll_loops(&plan.full_unroll.loops);
            let (before, rest) = split_before_unrolled(self.facts.body, self.l.body, &plan.full_unroll);
            cloner.insts(b, before, &mut hook);
            insert_versions(b, &mut cloner, rest, &plan.full_unroll, &mut hook, &mut at_end);
        });
    }

    /// The step with a number is one of this thread's. As unsigned numbers steps do not overflow.
    fn is_own(&self, b: &mut Builder, step: ValueId) -> ValueId {
        let unsigned = if self.steps.count == Scalar::I32 { Scalar::U32 } else { Scalar::U64 };
        let [step, own] = [step, self.own].map(|v| b.push(Op::Bitcast(v), unsigned.into()));
        b.binary(BinaryOp::Lt, step, own)
    }

    /// Loads for the next step of this thread, if there is one.
    fn load_ahead(&self, b: &mut Builder, cloner: &mut Cloner<'_>, step: ValueId, offset: i64) {
        if self.ahead.is_empty() {
            return;
        }
        let follows = match (self.steps.descending, offset) {
            (true, 0) => {
                let zero = b.int(0, self.steps.count);
                b.binary(BinaryOp::Gt, self.steps.start, zero)
            }
            (true, _) => return self.plan.pipelined.load_ahead(b, cloner, &self.ahead),
            (false, _) => {
                let one = b.int(1, self.steps.count);
                let next = b.binary(BinaryOp::Add, step, one);
                self.is_own(b, next)
            }
        };
        push_if(b, follows, |b| self.plan.pipelined.load_ahead(b, cloner, &self.ahead));
    }
}

/// Lets the threads of a subgroup agree. Each has `own` iterations. Returns a local that is true if the subgroup is
/// complete and its `invariants` are equal, and the largest trip count.
fn agree(
    b: &mut Builder,
    facts: &BodyFacts<'_>,
    invariants: &[ValueId],
    own: ValueId,
    subgroup_bits: u32,
) -> (LocalId, ValueId) {
    let ty = b.ty(own).clone();
    let together = b.body.add_local("together", Type::U1);
    let no = b.int(0, Scalar::U1);
    b.store_local(together, no);
    let most = b.body.as_const(own).is_none().then(|| {
        let most = b.body.add_local("most", ty);
        b.store_local(most, own);
        most
    });
    let whole = b.push(Op::Subgroup(SubgroupOp::IsWhole, Vec::new()), Type::U1);
    push_if(b, whole, |b| {
        if let Some(most) = most {
            let largest = shuffle_fold(b, own, BinaryOp::Max, subgroup_bits);
            b.store_local(most, largest);
        }
        let mut same = b.int(1, Scalar::U1);
        let mut known = HashSet::new();
        for v in invariants {
            if facts.known(*v).is_none() && known.insert(facts.source(*v)) {
                let [low, high] = [BinaryOp::Min, BinaryOp::Max].map(|op| shuffle_fold(b, *v, op, subgroup_bits));
                let equal = b.binary(BinaryOp::Eq, low, high);
                same = b.binary(BinaryOp::And, same, equal);
            }
        }
        b.store_local(together, same);
    });
    (together, most.map_or(own, |most| b.load_local(most)))
}
