//! A rough price of one iteration in nanoseconds, from which a launch decides whether threads pay.

use octants_ir::{BinaryOp, BlockId, Body, Const, ForLoop, FuncId, Function, Op, UnaryOp};

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
    body.block(block)
        .iter()
        .map(|v| {
            let inst = body.inst(*v);
            let leaves = inst.ty.leaf_count().max(1) as f32;
            match &inst.op {
                Op::Const(_) | Op::Param(_) | Op::LocalAddr(_) | Op::LoopIndex(..) | Op::Extract(..) => 0.0,
                Op::MakeTensor(_) | Op::MakeStruct(_) | Op::Splat(_) | Op::MemberAddr(..) | Op::Shape(..) => 0.0,
                Op::Unary(op, _) => leaves * unary_cost(*op),
                Op::Binary(op, ..) => {
                    leaves
                        * match op {
                            BinaryOp::Pow | BinaryOp::Atan2 => 8.0,
                            BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::Mod | BinaryOp::Rem => 1.0,
                            _ => 0.15,
                        }
                }
                Op::MatMul(a, _) => body.ty(*a).leaf_count() as f32 * leaves * 0.1,
                Op::Load(a) => match body.inst(*a).op {
                    Op::LocalAddr(_) => 0.0,
                    _ => 0.3 * leaves,
                },
                Op::VolatileLoad(_) => leaves,
                Op::Store(a, value) => match body.inst(*a).op {
                    Op::LocalAddr(_) => 0.0,
                    _ => 0.3 * body.ty(*value).leaf_count() as f32,
                },
                Op::Atomic(_, _, value) => 4.0 * body.ty(*value).leaf_count() as f32,
                Op::AtomicCas(..) => 6.0,
                Op::Random => 8.0 * leaves,
                Op::Print(_) => 500.0,
                Op::If(_, a, b) => 0.5 + block_cost(body, *a, functions).max(block_cost(body, *b, functions)) * 0.7,
                Op::For(l) => estimate_trips(body, l) * (0.3 + block_cost(body, l.body, functions)),
                Op::Loop(b) => UNKNOWN_TRIPS * (0.3 + block_cost(body, *b, functions)),
                Op::Call(f, _) => 1.0 + functions.of(*f),
                _ => 0.15 * leaves,
            }
        })
        .sum()
}

fn unary_cost(op: UnaryOp) -> f32 {
    match op {
        UnaryOp::Sqrt | UnaryOp::Rsqrt => 1.5,
        UnaryOp::Sin | UnaryOp::Cos | UnaryOp::Exp | UnaryOp::Exp2 | UnaryOp::Log | UnaryOp::Log2 => 4.0,
        UnaryOp::Tan
        | UnaryOp::Asin
        | UnaryOp::Acos
        | UnaryOp::Atan
        | UnaryOp::Sinh
        | UnaryOp::Cosh
        | UnaryOp::Tanh => 8.0,
        _ => 0.2,
    }
}
