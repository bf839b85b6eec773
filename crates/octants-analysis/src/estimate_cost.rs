//! A rough price of one iteration in nanoseconds, from which a launch decides whether threads pay.

use octants_ir::{BlockId, Body, Const, CostClass, ForLoop, FuncId, Function, Inst, Op, ValueId};

/// Trips assumed of a loop whose bounds are not constants.
pub const UNKNOWN_TRIPS: f32 = 8.0;

/// How often the body of a loop runs.
pub fn estimate_trips(body: &Body, l: &ForLoop) -> f32 {
    l.dims
        .iter()
        .map(|d| match (body.as_const(d.begin), body.as_const(d.end)) {
            (Some(Const::Int(b)), Some(Const::Int(e))) => (e - b).max(0) as f32,
            _ => UNKNOWN_TRIPS,
        })
        .product()
}

/// The price of a block.
pub fn estimate_cost(body: &Body, block: BlockId, functions: &[Function]) -> f32 {
    block_cost(body, block, &mut Prices { functions, known: vec![None; functions.len()] })
}

/// No function is dearer, so that sums stay finite.
const DEAREST: f32 = 1e12;

/// Prices of functions, each found once.
struct Prices<'a> {
    functions: &'a [Function],
    known: Vec<Option<f32>>,
}

impl Prices<'_> {
    fn of(&mut self, f: FuncId) -> f32 {
        if let Some(price) = self.known[f.index()] {
            return price;
        }
        // Asked for inside of itself, a function that calls itself costs nothing more.
        self.known[f.index()] = Some(0.0);
        let callee = &self.functions[f.index()].body;
        let price = block_cost(callee, callee.root, self).min(DEAREST);
        self.known[f.index()] = Some(price);
        price
    }
}

fn block_cost(body: &Body, block: BlockId, functions: &mut Prices) -> f32 {
    body.block(block).iter().map(|v| inst_cost(body, body.inst(*v), functions)).sum()
}

fn inst_cost(body: &Body, inst: &Inst, functions: &mut Prices) -> f32 {
    let leaves = inst.ty.leaf_count().max(1) as f32;
    let of = |v: &ValueId| body.ty(*v).leaf_count() as f32;
    match inst.op.cost() {
        CostClass::Free | CostClass::Argument => 0.0,
        CostClass::Simple if matches!(inst.op, Op::Unary(..)) => 0.2 * leaves,
        CostClass::Simple | CostClass::Index => 0.15 * leaves,
        CostClass::Division => 1.0 * leaves,
        CostClass::Root => 1.5 * leaves,
        CostClass::Function => 4.0 * leaves,
        CostClass::LongFunction | CostClass::Draw => 8.0 * leaves,
        CostClass::Text => 500.0,
        CostClass::Product => match &inst.op {
            Op::MatMul(a, _) => of(a) * leaves * 0.1,
            _ => leaves,
        },
        CostClass::Atomic => match &inst.op {
            Op::Atomic(_, _, operand) => 4.0 * of(operand),
            _ => 6.0,
        },
        CostClass::Memory => match &inst.op {
            Op::Load(a) | Op::Store(a, _) if matches!(body.inst(*a).op, Op::LocalAddr(_)) => 0.0,
            Op::Load(_) => 0.3 * leaves,
            Op::Store(_, value) => 0.3 * of(value),
            _ => leaves,
        },
        CostClass::Nested => match &inst.op {
            Op::For(l) => estimate_trips(body, l) * (0.3 + block_cost(body, l.body, functions)),
            Op::Loop(b) => UNKNOWN_TRIPS * (0.3 + block_cost(body, *b, functions)),
            Op::If(_, a, b) => 0.5 + block_cost(body, *a, functions).max(block_cost(body, *b, functions)) * 0.7,
            Op::Call(f, _) => 1.0 + functions.of(*f),
            op => panic!("compiler bug: no cost is known of what {op:?} executes"),
        },
    }
}
