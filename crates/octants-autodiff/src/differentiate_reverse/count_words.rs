//! The counting kernel: computes how many words of the store an adjoint needs at most, before any gradient is written.
//!
//! It runs only the code that determines trip counts. A lane holds the states of all loops of an iteration at once,
//! and in addition those of the loops within one iteration of one of these. The largest sum is the capacity of a lane.

use octants_ir::{AtomicOp, BinaryOp, BlockId, Kernel, LocalId, Op, Range, Scalar, StructType, Type, ValueId};

use super::emit_sweeps::Emitter;
use super::keep_states::{uses_store, uses_store_within, words_of};
use super::plan_sweeps::{Need, Plan, Seed, close};
use super::sweep_state::{Mode, Store};

/// Names of the numbers in the result, in order.
const RESULTS: [&str; 5] = ["iterations", "lane32", "lane64", "root32", "root64"];

/// The code that the counting kernel runs.
pub(super) fn need_of_count(plan: &Plan) -> Need {
    let mut seeds = Vec::new();
    let body = plan.body;
    body.visit(body.root, &mut |v, inst| {
        if !uses_store(plan, v) {
            return;
        }
        if is_multiplied(plan, v) {
            inst.op.for_each_operand(|u| seeds.push(Seed::Value(u)));
            seeds.extend(plan.layout.around(v).map(Seed::Value));
        } else {
            seeds.push(Seed::Value(v));
        }
    });
    close(body, &plan.layout, body.root, seeds)
}

/// Whether the words of a loop are its trip count times those of an iteration, because nothing in it needs counting.
fn is_multiplied(plan: &Plan, v: ValueId) -> bool {
    plan.is_counted(v) && !plan.body.inst(v).op.blocks().into_iter().any(|b| uses_store_within(plan, b))
}

/// Makes the counting kernel; `made` has the arguments of the adjoint.
pub(super) fn count_words(plan: &Plan, need: &Need, made: &Kernel) -> Kernel {
    let mut e = Emitter::new(plan, &[], &[], Store::new(None));
    let i64 = Type::from(Scalar::I64);
    let results = RESULTS.map(|name| e.b.body.add_local(name, i64.clone()));
    results.iter().for_each(|r| e.set(*r, 0));
    let [iterations, lane32, lane64, root32, root64] = results;
    e.totals = Some([iterations, lane32, lane64]);
    e.forward(plan.body.root, need, Mode::Count([root32, root64]));
    let values = results.map(|r| e.b.load_local(r));
    let members = RESULTS.map(|name| (name.to_string(), i64.clone())).to_vec();
    let ret = Type::Struct(StructType { name: "words".into(), members }.into());
    let result = e.b.push(Op::MakeStruct(values.to_vec()), ret.clone());
    e.b.push(Op::Return(Some(result)), Type::Unit);
    Kernel { name: format!("{}_count", made.name), body: e.b.body, ret, ..made.clone() }
}

impl<'a> Emitter<'a> {
    /// Counts a loop that is not run.
    pub(super) fn count_by_extent(&mut self, v: ValueId, sum: [LocalId; 2]) {
        if !uses_store(self.plan, v) || !is_multiplied(self.plan, v) {
            return;
        }
        let Op::For(l) = &self.plan.body.inst(v).op else { return };
        let extent = self.extent(&l.dims);
        for (sum, words) in sum.into_iter().zip(words_of(self.plan, v)) {
            let words = self.b.int(words, Scalar::I64);
            let words = self.b.binary(BinaryOp::Mul, words, extent);
            self.b.update_local(sum, |b, old| b.binary(BinaryOp::Add, old, words));
        }
    }

    /// Counts the current iteration, whose code `run` appends: as a lane for a parallel loop, otherwise as part of
    /// `sum`.
    pub(super) fn count_iteration(
        &mut self,
        v: ValueId,
        inner: BlockId,
        largest: [LocalId; 2],
        sum: [LocalId; 2],
        run: impl FnOnce(&mut Self, [LocalId; 2]),
    ) {
        if uses_store(self.plan, v) {
            for (sum, words) in sum.into_iter().zip(words_of(self.plan, v)) {
                let words = self.b.int(words, Scalar::I64);
                self.b.update_local(sum, |b, old| b.binary(BinaryOp::Add, old, words));
            }
        }
        if !uses_store_within(self.plan, inner) {
            return run(self, sum);
        }
        let own = self.zeroed();
        run(self, own);
        let parallel = self.plan.is_parallel(v);
        for (largest, own) in largest.into_iter().zip(own) {
            let own = self.b.load_local(own);
            if parallel {
                let addr = self.b.local_addr(largest);
                self.b.push(Op::Atomic(AtomicOp::Max, addr, own), Scalar::I64.into());
            } else {
                self.b.update_local(largest, |b, old| b.binary(BinaryOp::Max, old, own));
            }
        }
    }

    /// The counter for the largest iteration of a loop that is about to run.
    pub(super) fn begin_count(&mut self, v: ValueId) -> [LocalId; 2] {
        match self.totals {
            Some([iterations, lane32, lane64]) if self.plan.is_parallel(v) => {
                if let Op::For(l) = &self.plan.body.inst(v).op
                    && uses_store_within(self.plan, l.body)
                {
                    let n = self.extent(&l.dims);
                    self.b.update_local(iterations, |b, old| b.binary(BinaryOp::Max, old, n));
                }
                [lane32, lane64]
            }
            _ => self.zeroed(),
        }
    }

    /// Adds the largest iteration of a completed loop.
    pub(super) fn end_count(&mut self, v: ValueId, largest: [LocalId; 2], sum: [LocalId; 2]) {
        if !self.plan.is_parallel(v) {
            for (sum, largest) in sum.into_iter().zip(largest) {
                let largest = self.b.load_local(largest);
                self.b.update_local(sum, |b, old| b.binary(BinaryOp::Add, old, largest));
            }
        }
    }

    fn zeroed(&mut self) -> [LocalId; 2] {
        ["words32", "words64"].map(|name| {
            let local = self.b.body.add_local(name, Scalar::I64.into());
            self.set(local, 0);
            local
        })
    }

    /// The number of iterations of a loop, as i64.
    pub(super) fn extent(&mut self, dims: &[Range]) -> ValueId {
        let mut product = self.b.int(1, Scalar::I64);
        for r in dims {
            let (begin, end) = (self.get(r.begin), self.get(r.end));
            let (begin, end) = (self.b.cast(begin, Scalar::I64), self.b.cast(end, Scalar::I64));
            let (n, zero) = (self.b.binary(BinaryOp::Sub, end, begin), self.b.int(0, Scalar::I64));
            let n = self.b.binary(BinaryOp::Max, n, zero);
            product = self.b.binary(BinaryOp::Mul, product, n);
        }
        product
    }
}
