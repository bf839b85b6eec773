//! Builds the kernel that computes the trip-count record of a launch: the trip counts of those loops that a gradient
//! runs again and whose bounds come from memory. A launch recorder runs it after each launch, and again before the
//! gradient. If the two records differ, memory has changed in between, and the gradient would be that of other loops.
//!
//! The kernel runs only the code that determines these loops, and writes nothing. It excludes loops whose condition
//! depends on floats computed in a loop (a `while` until convergence), because counting them would cost as much as the
//! kernel. It also excludes loops that must be executed to be counted, such as a `while`, if the kernel writes what
//! they read: they would now be different loops, and might not terminate.
//!
//! On request, the memory that the gradient reads is recorded too, by the bits of the values.
//!
//! The result is a struct of i64 values, four for each loop or read: whether it is a read, its line, the total number
//! of iterations or reads, and a checksum over its executions that depends on each one's trip count, start, or value.

use std::collections::{HashMap, HashSet};

use octants_diag::Sources;
use octants_ir::{
    AtomicOp, BinaryOp, BlockId, Body, Builder, Inst, Kernel, LocalId, Op, Range, Scalar, StructType, Type, ValueId,
};

use super::find_active_values::Activity;
use super::gradients;
use super::keep_states::{take_apart, to_word};
use super::plan_sweeps::{Plan, Seed, close};
use octants_analysis::{CodeLayout, Place, trace_address};

/// Odd multipliers that mix all bits.
const MIX: [i64; 2] = [0x9e37_79b9_7f4a_7c15_u64 as i64, 0xd6e8_feb8_6659_fd93_u64 as i64];

/// Whether a kernel from the front end may have loops to record. A cheap test with false positives.
pub fn may_record_trip_counts(kernel: &Kernel) -> bool {
    let bodies = || kernel.functions.iter().map(|f| (&f.body, true)).chain([(&kernel.body, false)]);
    let any = |wanted: &dyn Fn(&Body, bool, &Inst) -> bool| {
        bodies().any(|(body, is_function)| {
            let mut found = false;
            body.visit(body.root, &mut |_, inst| found |= wanted(body, is_function, inst));
            found
        })
    };
    let reads = |body: &Body, is_function: bool, inst: &Inst| match &inst.op {
        Op::Load(a) => !matches!(trace_address(body, *a), Place::Local(_)),
        Op::VolatileLoad(_) => true,
        Op::Call(..) => true,
        Op::Param(_) => is_function,
        _ => false,
    };
    let has_bounds = bodies().any(|(body, is_function)| {
        let mut seeds = Vec::new();
        body.visit(body.root, &mut |_, inst| {
            if let Op::For(l) = &inst.op {
                seeds.extend(l.dims.iter().flat_map(|r| [Seed::Value(r.begin), Seed::Value(r.end)]));
            }
        });
        let values = close(body, &CodeLayout::of(body), body.root, seeds).values;
        values.into_iter().any(|u| reads(body, is_function, body.inst(u)))
    });
    let has_exits = |_: &Body, _: bool, inst: &Inst| matches!(inst.op, Op::Loop(_) | Op::Break);
    let reads_integers = |body: &Body, is_function: bool, inst: &Inst| {
        reads(body, is_function, inst) && !inst.ty.scalar().is_some_and(Scalar::is_float)
    };
    has_bounds || any(&has_exits) && any(&reads_integers)
}

/// The events to record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// Loops whose length comes from memory and is cheap to compute.
    Loops,
    /// All of them, and reads of memory.
    Reads,
}

/// Turns a kernel into its recorder: the kernel that computes the trip counts of loops that the gradient runs again and
/// whose length comes from memory, and optionally records the values that it reads again. If there is nothing to
/// record, the recorder does nothing.
pub fn record_trip_counts(kernel: &mut Kernel, recorded: Recorded, sources: &Sources) {
    let source = std::mem::take(&mut kernel.body);
    let activity = Activity::of(&source, &gradients(kernel));
    record_as_planned(kernel, &Plan::of(&source, &activity), recorded, sources);
}

/// Turns a kernel into its recorder, according to the `plan` of its gradient.
fn record_as_planned(kernel: &mut Kernel, plan: &Plan, recorded: Recorded, sources: &Sources) {
    let (mut places, mut run) = (Vec::new(), HashSet::new());
    plan.body.visit(plan.body.root, &mut |v, inst| {
        let is_wanted = match inst.op {
            Op::For(_) | Op::Loop(_) => true,
            Op::Load(a) => recorded == Recorded::Reads && matches!(trace_address(plan.body, a), Place::Buffer(_)),
            _ => false,
        };
        if is_wanted
            && plan.runs_again(v)
            && let Some(values) = what_decides(plan, v, recorded)
        {
            run.extend(values);
            places.push(v);
        }
    });
    let mut recorder = Recorder { plan, b: Builder::new(), places: Vec::new(), counters: HashMap::new() };
    recorder.b.body = plan.body.clone();
    let i64 = Type::from(Scalar::I64);
    for v in places {
        let sums = ["times", "which"].map(|name| recorder.b.body.add_local(name, i64.clone()));
        recorder.places.push((v, sums));
        if let Some(inner) = plan.body.inst(v).op.blocks().first()
            && !plan.is_counted(v)
        {
            let counter = recorder.b.body.add_local("trips", i64.clone());
            recorder.counters.insert(*inner, counter);
        }
    }
    for block in 0..plan.body.blocks.len() {
        recorder.rebuild(BlockId(block as u32), &run);
    }
    let Recorder { mut b, places, .. } = recorder;
    b.set_cursor(b.body.root);
    let mut results = Vec::new();
    for &(v, sums) in &places {
        let inst = plan.body.inst(v);
        let line = sources.position(inst.span).map_or(0, |p| p.line);
        results.push(b.int(i64::from(matches!(inst.op, Op::Load(_))), Scalar::I64));
        results.push(b.int(i64::from(line), Scalar::I64));
        results.extend(sums.map(|sum| {
            let addr = b.local_addr(sum);
            b.load(addr)
        }));
    }
    kernel.ret = Type::Unit;
    if !results.is_empty() {
        let members = (0..results.len()).map(|i| (format!("n{i}"), i64.clone())).collect();
        kernel.ret = Type::Struct(StructType { name: "trips".into(), members }.into());
        let result = b.push(Op::MakeStruct(results), kernel.ret.clone());
        b.push(Op::Return(Some(result)), Type::Unit);
    }
    kernel.name = format!("{}_trips", kernel.name);
    kernel.body = b.body;
}

/// The code that determines a trip count or a value read, if it comes from memory and can be recomputed; for trip
/// counts, only if this is cheap.
fn what_decides(plan: &Plan, v: ValueId, recorded: Recorded) -> Option<HashSet<ValueId>> {
    let body = plan.body;
    let mut seeds = Vec::new();
    body.inst(v).op.for_each_operand(|u| seeds.push(Seed::Value(u)));
    seeds.extend(owner(plan, v).map(Seed::Value));
    if !plan.is_counted(v) {
        seeds.push(Seed::Value(v));
    }
    let values = close(body, &plan.layout, body.root, seeds).values;
    let runs_uncounted = values.iter().any(|&u| matches!(body.inst(u).op, Op::Loop(_)));
    let mut reads = false;
    for &u in &values {
        match &body.inst(u).op {
            Op::Load(a) => {
                if let place @ Place::Buffer(_) = trace_address(body, *a) {
                    reads = true;
                    if runs_uncounted && is_written(body, place) {
                        return None;
                    }
                }
            }
            Op::Atomic(_, a, _) | Op::AtomicCas(a, ..) if matches!(trace_address(body, *a), Place::Buffer(_)) => {
                return None;
            }
            Op::Random | Op::Clock | Op::Call(..) => return None,
            _ => {}
        }
        let is_float = body.ty(u).scalar().is_some_and(Scalar::is_float);
        if recorded == Recorded::Loops
            && is_float
            && around(plan, u).any(|l| matches!(body.inst(l).op, Op::For(_) | Op::Loop(_)) && !plan.is_parallel(l))
        {
            return None;
        }
    }
    reads.then_some(values)
}

fn is_written(body: &Body, place: Place) -> bool {
    body.insts.iter().any(|inst| match inst.op {
        Op::Store(a, _) | Op::Atomic(_, a, _) | Op::AtomicCas(a, ..) => trace_address(body, a) == place,
        _ => false,
    })
}

fn owner(plan: &Plan, v: ValueId) -> Option<ValueId> {
    plan.layout.owner[plan.layout.home[v.index()].index()]
}

/// The branches and loops around an instruction, innermost first.
fn around<'a>(plan: &'a Plan<'_>, v: ValueId) -> impl Iterator<Item = ValueId> + 'a {
    std::iter::successors(owner(plan, v), |u| owner(plan, *u))
}

struct Recorder<'a> {
    plan: &'a Plan<'a>,
    b: Builder,
    /// The loops and reads, with the sums that they add to.
    places: Vec<(ValueId, [LocalId; 2])>,
    /// Bodies of loops whose bounds do not determine the trip count, with their counters.
    counters: HashMap<BlockId, LocalId>,
}

impl Recorder<'_> {
    /// Keeps only the code of a block that must run, and inserts the trip-count records after the loops.
    fn rebuild(&mut self, block: BlockId, run: &HashSet<ValueId>) {
        let insts = std::mem::take(&mut self.b.body.blocks[block.index()]);
        self.b.set_cursor(block);
        if let Some(counter) = self.counters.get(&block).copied() {
            let one = self.b.int(1, Scalar::I64);
            self.add(counter, one, false);
        }
        for v in insts {
            let sums = self.places.iter().find(|(l, _)| *l == v).map(|(_, sums)| *sums);
            match sums {
                Some(sums) if matches!(self.b.body.inst(v).op, Op::Load(_)) => {
                    self.b.place(v);
                    self.record_read(v, sums);
                }
                Some(sums) => self.record_loop(v, sums, run.contains(&v)),
                None if run.contains(&v) => self.b.place(v),
                None => {}
            }
        }
    }

    fn record_loop(&mut self, v: ValueId, [iterations, which]: [LocalId; 2], is_run: bool) {
        let body = self.plan.body;
        let op = &body.inst(v).op;
        let dims = if let Op::For(l) = op { &l.dims[..] } else { &[] };
        let counter = self.counters.get(&op.blocks()[0]).copied();
        if let Some(counter) = counter {
            // The code of a `while` before it exits is not an iteration.
            let before = if matches!(op, Op::Loop(_)) { -1 } else { 0 };
            let (addr, before) = (self.b.local_addr(counter), self.b.int(before, Scalar::I64));
            self.b.store(addr, before);
        }
        if is_run {
            self.b.place(v);
        }
        let trips = match counter {
            Some(counter) => {
                let addr = self.b.local_addr(counter);
                self.b.load(addr)
            }
            None => self.extent(dims),
        };
        let mut mixed = self.mix(trips, trips);
        for r in dims {
            mixed = self.mix(mixed, r.begin);
        }
        self.add_both(v, [iterations, which], trips, mixed);
    }

    fn record_read(&mut self, v: ValueId, sums: [LocalId; 2]) {
        let mut leaves = Vec::new();
        take_apart(&mut self.b, v, &mut leaves);
        let one = self.b.int(1, Scalar::I64);
        let mut mixed = one;
        for leaf in leaves {
            let s = self.b.ty(leaf).scalar().expect("compiler bug: a leaf that is not a scalar");
            let word = to_word(&mut self.b, leaf, s);
            mixed = self.mix(mixed, word);
        }
        self.add_both(v, sums, one, mixed);
    }

    /// Adds to the sums of a loop or read, the second with the iterations around it mixed in.
    fn add_both(&mut self, v: ValueId, [times, which]: [LocalId; 2], n: ValueId, mut mixed: ValueId) {
        let body = self.plan.body;
        for l in around(self.plan, v) {
            let Op::For(f) = &body.inst(l).op else { continue };
            for (axis, r) in f.dims.iter().enumerate() {
                let index = self.b.push(Op::LoopIndex(l, axis as u32), body.ty(r.begin).clone());
                mixed = self.mix(mixed, index);
            }
        }
        let is_shared = around(self.plan, v).any(|l| self.plan.is_parallel(l));
        self.add(times, n, is_shared);
        self.add(which, mixed, is_shared);
    }

    fn extent(&mut self, dims: &[Range]) -> ValueId {
        let mut product = self.b.int(1, Scalar::I64);
        for r in dims {
            let (begin, end) = (self.b.cast(r.begin, Scalar::I64), self.b.cast(r.end, Scalar::I64));
            let (n, zero) = (self.b.binary(BinaryOp::Sub, end, begin), self.b.int(0, Scalar::I64));
            let n = self.b.binary(BinaryOp::Max, n, zero);
            product = self.b.binary(BinaryOp::Mul, product, n);
        }
        product
    }

    /// Combines two numbers into a hash.
    fn mix(&mut self, a: ValueId, x: ValueId) -> ValueId {
        let [k, l] = MIX.map(|k| self.b.int(k, Scalar::I64));
        let x = self.b.cast(x, Scalar::I64);
        let x = self.b.binary(BinaryOp::Mul, x, k);
        let x = self.b.binary(BinaryOp::Xor, a, x);
        let x = self.b.binary(BinaryOp::Mul, x, l);
        let half = self.b.int(32, Scalar::I64);
        let high = self.b.binary(BinaryOp::UShr, x, half);
        self.b.binary(BinaryOp::Xor, x, high)
    }

    fn add(&mut self, to: LocalId, value: ValueId, is_shared: bool) {
        let addr = self.b.local_addr(to);
        if is_shared {
            self.b.push(Op::Atomic(AtomicOp::Add, addr, value), Scalar::I64.into());
        } else {
            let old = self.b.load(addr);
            let sum = self.b.binary(BinaryOp::Add, old, value);
            self.b.store(addr, sum);
        }
    }
}
