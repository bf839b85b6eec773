//! Constant folding: operations on constants become constants, identity operations become their operand, and an `if`
//! on a constant becomes the branch taken.
//!
//! The pass is cheap, and leaves to LLVM what LLVM does as well. It yields smaller IR, loop bounds and indices that
//! later passes can read, and expands `pow` with a small exponent, which is otherwise a library call.
//! `eliminate_dead_code` removes code that becomes unused.

use octants_ir::{BinaryOp, BlockId, Body, Const, Inst, Kernel, Op, ReduceOp, Scalar, Type, UnaryOp, ValueId};

use crate::evaluate;

/// Folds constants in the kernel and its functions.
pub fn fold_constants(kernel: &mut Kernel, fast_math: bool) {
    for body in kernel.functions.iter_mut().map(|f| &mut f.body).chain([&mut kernel.body]) {
        let mut folder = Folder { replaced: vec![None; body.insts.len()], body, fast_math };
        folder.block(folder.body.root);
    }
}

struct Folder<'a> {
    body: &'a mut Body,
    replaced: Vec<Option<ValueId>>,
    fast_math: bool,
}

/// The replacement of an instruction.
enum Outcome {
    Keep,
    Replace(ValueId),
    Become(Op),
}

impl Folder<'_> {
    fn block(&mut self, b: BlockId) {
        let mut out = Vec::new();
        self.block_into(b, &mut out);
        self.body.blocks[b.index()] = out;
    }

    /// Folds a block's instructions into `out`.
    fn block_into(&mut self, b: BlockId, out: &mut Vec<ValueId>) {
        for v in std::mem::take(&mut self.body.blocks[b.index()]) {
            if out.last().is_some_and(|last| self.body.inst(*last).op.is_terminator()) {
                return; // A spliced block has ended this one.
            }
            let replaced = &self.replaced;
            self.body.inst_mut(v).op.map_operands(|u| replaced.get(u.index()).copied().flatten().unwrap_or(u));
            match self.body.inst(v).op.clone() {
                Op::If(c, then, other) => match self.truth(c) {
                    Some(taken) => self.block_into(if taken { then } else { other }, out),
                    None => {
                        self.block(then);
                        self.block(other);
                        out.push(v);
                    }
                },
                Op::For(l) => {
                    self.block(l.body);
                    out.push(v);
                }
                Op::Loop(body) => {
                    self.block(body);
                    out.push(v);
                }
                Op::Assert(c, _) if self.truth(c) == Some(true) => {}
                op => match self.fold(v, &op, out) {
                    Outcome::Keep => out.push(v),
                    Outcome::Replace(u) => self.replaced[v.index()] = Some(u),
                    Outcome::Become(op) => {
                        self.body.inst_mut(v).op = op;
                        out.push(v);
                    }
                },
            }
        }
    }

    fn truth(&self, v: ValueId) -> Option<bool> {
        match self.body.as_const(v)? {
            Const::Int(i) => Some(i & 1 != 0),
            Const::Float(_) => None,
        }
    }

    /// The constant that every component of a value is.
    fn constant(&self, v: ValueId) -> Option<Const> {
        match self.body.inst(v).op {
            Op::Const(c) => Some(c),
            Op::Splat(a) => self.body.as_const(a),
            _ => None,
        }
    }

    fn fold(&mut self, v: ValueId, op: &Op, out: &mut Vec<ValueId>) -> Outcome {
        let ty = self.body.ty(v).clone();
        let scalar = matches!(ty, Type::Scalar(_));
        let folded = match op {
            Op::Unary(op, a) if scalar => {
                let s = self.body.ty(*a).scalar();
                self.body.as_const(*a).zip(s).and_then(|(c, s)| evaluate::unary(*op, c, s))
            }
            Op::Cast(a) if scalar => {
                let (from, to) = (self.body.ty(*a).scalar(), ty.scalar());
                self.body.as_const(*a).zip(from.zip(to)).and_then(|(c, (from, to))| evaluate::cast(c, from, to))
            }
            Op::Binary(op, a, b) if scalar => {
                let s = self.body.ty(*a).scalar();
                let both = self.body.as_const(*a).zip(self.body.as_const(*b));
                both.zip(s).and_then(|((a, b), s)| evaluate::binary(*op, a, b, s))
            }
            _ => None,
        };
        if let Some(c) = folded {
            return Outcome::Become(Op::Const(c));
        }
        match op {
            Op::Cast(a) if *self.body.ty(*a) == ty => Outcome::Replace(*a),
            Op::Unary(UnaryOp::Neg | UnaryOp::LogicNot | UnaryOp::BitNot, a) => match &self.body.inst(*a).op {
                Op::Unary(inner, x) if Op::Unary(*inner, *a) == *op => Outcome::Replace(*x),
                _ => Outcome::Keep,
            },
            Op::Binary(op, a, b) => self.identity(*op, *a, *b, v, out),
            Op::Select(c, a, b) if a == b || self.truth(*c) == Some(true) => Outcome::Replace(*a),
            Op::Select(c, _, b) if self.truth(*c) == Some(false) => Outcome::Replace(*b),
            Op::Extract(a, i) => match &self.body.inst(*a).op {
                Op::MakeTensor(vs) | Op::MakeStruct(vs) => Outcome::Replace(vs[*i as usize]),
                Op::Splat(x) => Outcome::Replace(*x),
                _ => Outcome::Keep,
            },
            Op::ExtractDyn(a, vs) => match self.position(*a, vs) {
                Some(i) => Outcome::Become(Op::Extract(*a, i)),
                None => Outcome::Keep,
            },
            _ => Outcome::Keep,
        }
    }

    /// The row-major position of constant indices that are inside the tensor.
    fn position(&self, tensor: ValueId, indices: &[ValueId]) -> Option<u32> {
        let mut position = 0;
        for (extent, index) in self.body.ty(tensor).shape().iter().zip(indices) {
            let s = self.body.ty(*index).scalar()?;
            let i = evaluate::integer(self.body.as_const(*index)?, s)?;
            if !(0..i128::from(*extent)).contains(&i) {
                return None;
            }
            position = position * extent + i as u32;
        }
        Some(position)
    }

    fn identity(&mut self, op: BinaryOp, a: ValueId, b: ValueId, v: ValueId, out: &mut Vec<ValueId>) -> Outcome {
        use BinaryOp::*;
        let Some(s) = self.body.ty(a).scalar() else { return Outcome::Keep };
        let is = |c: Option<Const>, x: i64| match c {
            Some(Const::Int(i)) => evaluate::wrap(i128::from(i), s) == evaluate::wrap(i128::from(x), s),
            Some(Const::Float(f)) => f == x as f64 && !(f == 0.0 && f.is_sign_negative()),
            None => false,
        };
        let (ca, cb) = (self.constant(a), self.constant(b));
        let exact = s.is_int() || self.fast_math;
        match op {
            Add if exact && is(cb, 0) => Outcome::Replace(a),
            Add if exact && is(ca, 0) => Outcome::Replace(b),
            Sub if is(cb, 0) => Outcome::Replace(a),
            Mul | Div | FloorDiv if is(cb, 1) && (s.is_int() || op != FloorDiv) => Outcome::Replace(a),
            Mul if is(ca, 1) => Outcome::Replace(b),
            Mul | And if exact && is(cb, 0) => Outcome::Replace(b),
            Mul | And if exact && is(ca, 0) => Outcome::Replace(a),
            And if is(cb, -1) => Outcome::Replace(a),
            And if is(ca, -1) => Outcome::Replace(b),
            Or | Xor | Shl | Shr | UShr if is(cb, 0) => Outcome::Replace(a),
            Or | Xor if is(ca, 0) => Outcome::Replace(b),
            Pow => self.power(a, cb, s, v, out),
            Lt | Le | Gt | Ge if self.fast_math => self.compare_squares(op, a, b, v, out),
            _ => Outcome::Keep,
        }
    }

    /// Replaces a comparison of a square root with a constant by one of the radicand with the constant's square, so
    /// that neighbor searches need no roots. Roots of values that may be negative are kept, because no comparison holds
    /// for them.
    fn compare_squares(&mut self, op: BinaryOp, a: ValueId, b: ValueId, v: ValueId, out: &mut Vec<ValueId>) -> Outcome {
        let radicand = |v: ValueId| match self.body.inst(v).op {
            Op::Unary(UnaryOp::Sqrt, x) if self.is_sum_of_squares(x, 8) => Some(x),
            _ => None,
        };
        let (radicand, constant, is_first) = match (radicand(a), radicand(b)) {
            (Some(x), None) => (x, b, true),
            (None, Some(x)) => (x, a, false),
            _ => return Outcome::Keep,
        };
        let Some(Const::Float(c)) = self.body.as_const(constant) else { return Outcome::Keep };
        let ty = self.body.ty(constant).clone();
        // As the type rounds it. If it exceeds the type's range, the root may be on the other side.
        let (square, has_range) = match ty.scalar() {
            Some(Scalar::F32) => (f64::from(c as f32 * c as f32), (c as f32 * c as f32).is_normal()),
            Some(Scalar::F64) => (c * c, (c * c).is_normal()),
            _ => return Outcome::Keep,
        };
        if c < 0.0 || !(has_range || c == 0.0) {
            return Outcome::Keep;
        }
        let square = self.body.add_inst(Op::Const(Const::Float(square)), ty, self.body.inst(v).span);
        out.push(square);
        let (a, b) = if is_first { (radicand, square) } else { (square, radicand) };
        Outcome::Become(Op::Binary(op, a, b))
    }

    /// Whether a value is built from squares, so that no component is negative. `depth` bounds the recursion.
    fn is_sum_of_squares(&self, v: ValueId, depth: u32) -> bool {
        let Some(depth) = depth.checked_sub(1) else { return false };
        match &self.body.inst(v).op {
            Op::Const(Const::Float(c)) => *c >= 0.0,
            Op::Binary(BinaryOp::Mul, a, b) => a == b,
            Op::Binary(BinaryOp::Add, a, b) => a != b && [a, b].iter().all(|v| self.is_sum_of_squares(**v, depth)),
            Op::Fold(ReduceOp::Add, a) | Op::Extract(a, _) | Op::Splat(a) => self.is_sum_of_squares(*a, depth),
            _ => false,
        }
    }

    /// A power with a small constant exponent is a product.
    fn power(
        &mut self,
        base: ValueId,
        exponent: Option<Const>,
        s: Scalar,
        v: ValueId,
        out: &mut Vec<ValueId>,
    ) -> Outcome {
        let n = match exponent {
            Some(Const::Int(i)) => i,
            Some(Const::Float(f)) if f == 0.5 && self.fast_math => {
                return Outcome::Become(Op::Unary(UnaryOp::Sqrt, base));
            }
            Some(Const::Float(f)) if f == f.trunc() && f.abs() < 64.0 => f as i64,
            _ => return Outcome::Keep,
        };
        let Inst { ty, span, .. } = self.body.inst(v).clone();
        let mut push = |body: &mut Body, op: Op, ty: Type| {
            let u = body.add_inst(op, ty, span);
            out.push(u);
            u
        };
        match n {
            1 => Outcome::Replace(base),
            2 => Outcome::Become(Op::Binary(BinaryOp::Mul, base, base)),
            // Products of floats round differently from the library's power beyond the square.
            3..=16 if s.is_int() || self.fast_math => {
                let mut product = base;
                for bit in (0..n.ilog2()).rev() {
                    let last = bit == 0 && n & 1 == 0;
                    if last {
                        return Outcome::Become(Op::Binary(BinaryOp::Mul, product, product));
                    }
                    product = push(self.body, Op::Binary(BinaryOp::Mul, product, product), ty.clone());
                    if n >> bit & 1 == 1 {
                        if bit == 0 {
                            return Outcome::Become(Op::Binary(BinaryOp::Mul, product, base));
                        }
                        product = push(self.body, Op::Binary(BinaryOp::Mul, product, base), ty.clone());
                    }
                }
                Outcome::Keep
            }
            -1 if s.is_float() && self.fast_math => {
                let mut one = push(self.body, Op::Const(Const::Float(1.0)), Type::Scalar(s));
                if ty.is_tensor() {
                    one = push(self.body, Op::Splat(one), ty.clone());
                }
                Outcome::Become(Op::Binary(BinaryOp::Div, one, base))
            }
            _ => Outcome::Keep,
        }
    }
}
