//! [`CostModel`]: the estimated time and code size of operations, from a target's [`CostTable`].

use octants_ir::{BlockId, Body, Const, CostClass, CostTable, ForLoop, FuncId, Function, Inst, Op, ValueId};

/// Trip count assumed for loops whose bounds are not constants.
pub const UNKNOWN_TRIPS: f32 = 8.0;

/// The trip count of a loop, estimated if it is not known.
pub fn estimate_trips(body: &Body, l: &ForLoop) -> f32 {
    l.dims
        .iter()
        .map(|d| match (body.as_const(d.begin), body.as_const(d.end)) {
            (Some(Const::Int(b)), Some(Const::Int(e))) => (e - b).max(0) as f32,
            _ => UNKNOWN_TRIPS,
        })
        .product()
}

/// Whether the trip count of a loop is constant.
pub fn has_constant_trips(body: &Body, l: &ForLoop) -> bool {
    let is_constant = |v| matches!(body.as_const(v), Some(Const::Int(_)));
    l.dims.iter().all(|d| is_constant(d.begin) && is_constant(d.end))
}

/// Estimates of a target.
#[derive(Debug, Clone, Copy)]
pub struct CostModel<'t> {
    table: &'t CostTable,
}

/// The maximum cost of a function, so that sums stay finite.
const MAX_TIME: f32 = 1e12;
/// Nanoseconds of a branch, of a call, and of a product for each pair of scalars.
const BRANCH: f32 = 0.5;
const CALL: f32 = 1.0;
const PRODUCT_TERM: f32 = 0.1;
/// Share of the longer side of a branch.
const TAKEN: f32 = 0.7;

impl<'t> CostModel<'t> {
    /// The model with these numbers.
    pub fn of(table: &'t CostTable) -> CostModel<'t> {
        CostModel { table }
    }

    /// Nanoseconds of a block, from which a launch decides whether threads pay off.
    pub fn time(self, body: &Body, block: BlockId, functions: &[Function]) -> f32 {
        Times { table: self.table, functions, known: vec![None; functions.len()] }.block(body, block)
    }

    /// Scalar instructions of an operation per scalar of its result. Locals are registers.
    pub fn instructions(self, body: &Body, op: &Op) -> usize {
        match op {
            Op::Load(a) | Op::Store(a, _) if is_local(body, *a) => 0,
            op => self.table.of(op.cost()).instructions,
        }
    }

    /// Scalar instructions of an instruction, without its blocks.
    pub fn size(self, body: &Body, inst: &Inst) -> usize {
        inst.ty.leaf_count().max(1) * self.instructions(body, &inst.op)
    }

    /// Scalar instructions of a block. Those in loops count `loop_weight` times.
    pub fn block_size(self, body: &Body, block: BlockId, loop_weight: usize) -> usize {
        let of = |v: &ValueId| {
            let inst = body.inst(*v);
            let times = if matches!(inst.op, Op::For(_) | Op::Loop(_)) { loop_weight } else { 1 };
            let inner: usize = inst.op.blocks().into_iter().map(|b| self.block_size(body, b, loop_weight)).sum();
            self.size(body, inst) + times * inner
        };
        body.block(block).iter().map(of).sum()
    }
}

fn is_local(body: &Body, address: ValueId) -> bool {
    matches!(body.inst(address).op, Op::LocalAddr(_))
}

/// Times of functions, each computed once.
struct Times<'a> {
    table: &'a CostTable,
    functions: &'a [Function],
    known: Vec<Option<f32>>,
}

impl Times<'_> {
    fn function(&mut self, f: FuncId) -> f32 {
        if let Some(time) = self.known[f.index()] {
            return time;
        }
        // A recursive call has no cost.
        self.known[f.index()] = Some(0.0);
        let callee = &self.functions[f.index()].body;
        let time = self.block(callee, callee.root).min(MAX_TIME);
        self.known[f.index()] = Some(time);
        time
    }

    fn block(&mut self, body: &Body, block: BlockId) -> f32 {
        body.block(block).iter().map(|v| self.inst(body, body.inst(*v))).sum()
    }

    fn inst(&mut self, body: &Body, inst: &Inst) -> f32 {
        let leaves = inst.ty.leaf_count().max(1) as f32;
        let leaves_of = |v: &ValueId| body.ty(*v).leaf_count() as f32;
        let class = inst.op.cost();
        let one = self.table.of(class).nanoseconds;
        match class {
            CostClass::Text => one,
            CostClass::Product => match &inst.op {
                Op::MatMul(a, _) => leaves_of(a) * leaves * PRODUCT_TERM,
                _ => one * leaves,
            },
            CostClass::Simple if matches!(inst.op, Op::Unary(..)) => self.table.unary * leaves,
            CostClass::Atomic => match &inst.op {
                Op::Atomic(_, _, operand) => one * leaves_of(operand),
                _ => self.table.compare_and_swap,
            },
            CostClass::Memory => match &inst.op {
                Op::Load(a) | Op::Store(a, _) if is_local(body, *a) => 0.0,
                Op::Load(_) => one * leaves,
                Op::Store(_, value) => one * leaves_of(value),
                _ => leaves,
            },
            CostClass::Nested => match &inst.op {
                Op::For(l) => estimate_trips(body, l) * (one + self.block(body, l.body)),
                Op::Loop(b) => UNKNOWN_TRIPS * (one + self.block(body, *b)),
                Op::If(_, a, b) => BRANCH + self.block(body, *a).max(self.block(body, *b)) * TAKEN,
                Op::Call(f, _) => CALL + self.function(*f),
                op => panic!("compiler bug: no cost for the operations that {op:?} executes"),
            },
            CostClass::Free
            | CostClass::Argument
            | CostClass::Index
            | CostClass::Simple
            | CostClass::Division
            | CostClass::Root
            | CostClass::Function
            | CostClass::LongFunction
            | CostClass::Draw => one * leaves,
        }
    }
}
