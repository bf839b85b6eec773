//! [`Sums`]: the values of a body as affine sums ([`Affine`]).

use std::collections::HashMap;

use octants_ir::schedule::LocalUses;
use octants_ir::{Affine, BinaryOp, Body, Const, Op, Scalar, Term, Type, UnaryOp, ValueId};

/// The values of a kernel's or task's body as affine sums. Not for functions, whose parameters have another meaning.
pub struct Sums<'a> {
    body: &'a Body,
    locals: Option<&'a LocalUses>,
    arithmetic: Arithmetic,
    known: HashMap<ValueId, Option<Affine>>,
}

/// The assumed arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arithmetic {
    Wraps,
    Exact,
}

/// Operations on the way to a term; expressions with more operations are not treated as sums.
const DEEPEST: u32 = 64;

impl<'a> Sums<'a> {
    /// Exact sums.
    pub fn new(body: &'a Body) -> Sums<'a> {
        Sums { body, locals: None, arithmetic: Arithmetic::Wraps, known: HashMap::new() }
    }

    /// Sums as the user means them: no arithmetic wraps. For diagnostics, which nothing relies on.
    pub fn as_meant(body: &'a Body) -> Sums<'a> {
        Sums { arithmetic: Arithmetic::Exact, ..Sums::new(body) }
    }

    /// The same sums, seen through loads of locals that hold one value.
    pub fn seen_through(self, locals: &'a LocalUses) -> Sums<'a> {
        Sums { locals: Some(locals), ..self }
    }

    /// Exact sums, seen through loads of locals that hold one value.
    pub fn through(body: &'a Body, locals: &'a LocalUses) -> Sums<'a> {
        Sums::new(body).seen_through(locals)
    }

    /// The value as such a sum of signed integers, if it is one.
    pub fn of(&mut self, v: ValueId) -> Option<Affine> {
        self.find(v, DEEPEST)
    }

    /// The instruction that defines a value, seen through locals if these sums are.
    pub fn source(&self, v: ValueId) -> ValueId {
        self.locals.map_or(v, |locals| locals.source(v))
    }

    fn find(&mut self, v: ValueId, depth: u32) -> Option<Affine> {
        let v = self.source(v);
        if let Some(known) = self.known.get(&v) {
            return known.clone();
        }
        let found = depth.checked_sub(1).and_then(|depth| self.make(v, depth));
        self.known.insert(v, found.clone());
        found
    }

    fn make(&mut self, v: ValueId, depth: u32) -> Option<Affine> {
        let inst = self.body.inst(v);
        if !self.is_index(&inst.ty) {
            return None;
        }
        match &inst.op {
            Op::Unary(UnaryOp::Neg, a) => self.find(*a, depth)?.times(-1),
            Op::Binary(BinaryOp::Add, a, b) => self.find(*a, depth)?.plus(&self.find(*b, depth)?),
            Op::Binary(BinaryOp::Sub, a, b) => self.find(*a, depth)?.plus(&self.find(*b, depth)?.times(-1)?),
            Op::Binary(BinaryOp::Mul, a, b) => {
                let (a, b) = (self.find(*a, depth)?, self.find(*b, depth)?);
                match (a.as_constant(), b.as_constant()) {
                    (Some(c), _) => b.times(c),
                    (_, Some(c)) => a.times(c),
                    _ => None,
                }
            }
            // The value may have wrapped before it was widened.
            Op::Cast(a) if self.arithmetic == Arithmetic::Wraps && widens(self.body.ty(*a), &inst.ty) => {
                one_number(&self.body.inst(*a).op)
            }
            Op::Cast(a) => self.find(*a, depth),
            op => one_number(op),
        }
    }

    /// Unsigned and short integers wrap elsewhere.
    fn is_index(&self, ty: &Type) -> bool {
        match (self.arithmetic, ty) {
            (Arithmetic::Wraps, ty) => matches!(ty, Type::Scalar(Scalar::I32 | Scalar::I64)),
            (Arithmetic::Exact, Type::Scalar(s)) => s.is_int(),
            (Arithmetic::Exact, _) => false,
        }
    }
}

fn one_number(op: &Op) -> Option<Affine> {
    match op {
        Op::Const(Const::Int(c)) => Some(Affine::from(*c)),
        Op::Param(p) => Some(Affine::from(Term::Param(*p))),
        Op::Shape(b, axis) => Some(Affine::from(Term::Extent(*b, *axis))),
        Op::LoopIndex(l, axis) => Some(Affine::from(Term::Index(*l, *axis))),
        _ => None,
    }
}

fn widens(from: &Type, to: &Type) -> bool {
    (from, to) == (&Type::Scalar(Scalar::I32), &Type::Scalar(Scalar::I64))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A panic is how a test fails.
mod tests {
    use octants_ir::Builder;

    use super::*;

    const N: Term = Term::Param(0);

    fn text(a: &Affine) -> String {
        a.display(&|t| if t == N { "n".into() } else { "i".into() }).to_string()
    }

    #[test]
    fn sums_of_multiples_are_found() {
        let mut b = Builder::new();
        let n = b.push(Op::Param(0), Type::I32);
        let [three, two] = [3, 2].map(|c| b.int(c, Scalar::I32));
        let more = b.binary(BinaryOp::Add, n, three);
        let twice = b.binary(BinaryOp::Mul, more, two);
        let less = b.binary(BinaryOp::Sub, twice, n);
        assert_eq!(text(&Sums::new(&b.body).of(less).unwrap()), "n + 6");
        let none = b.binary(BinaryOp::Sub, n, n);
        assert_eq!(Sums::new(&b.body).of(none).unwrap().as_constant(), Some(0));
        // A product of two launch-time values, or a division, is not a sum.
        for op in [BinaryOp::Mul, BinaryOp::FloorDiv] {
            let other = b.binary(op, n, n);
            assert_eq!(Sums::new(&b.body).of(other), None);
        }
    }

    #[test]
    fn a_sum_that_may_wrap_is_not_affine_in_a_wider_type() {
        let mut b = Builder::new();
        let n = b.push(Op::Param(0), Type::I32);
        let wide = b.cast(n, Scalar::I64);
        assert_eq!(text(&Sums::new(&b.body).of(wide).unwrap()), "n");
        let twice = b.binary(BinaryOp::Add, n, n);
        let widened = b.cast(twice, Scalar::I64);
        assert_eq!(Sums::new(&b.body).of(widened), None);
        // A narrowing cast keeps the low bits, which equal those of the exact sum.
        let two = b.int(2, Scalar::I64);
        let product = b.binary(BinaryOp::Mul, wide, two);
        let narrow = b.cast(product, Scalar::I32);
        assert_eq!(text(&Sums::new(&b.body).of(narrow).unwrap()), "2 * n");
        // This does not hold for a wider number that is narrowed and widened again.
        let long = b.push(Op::Param(2), Type::Scalar(Scalar::I64));
        let short = b.cast(long, Scalar::I32);
        let again = b.cast(short, Scalar::I64);
        assert!(Sums::new(&b.body).of(short).is_some() && Sums::new(&b.body).of(again).is_none());
        // Numbers without a sign, and short ones, wrap elsewhere.
        let unsigned = b.push(Op::Param(1), Type::Scalar(Scalar::U32));
        assert_eq!(Sums::new(&b.body).of(unsigned), None);
    }

    #[test]
    fn values_with_many_uses_are_visited_once() {
        let mut b = Builder::new();
        let mut v = b.push(Op::Param(0), Type::I32);
        for _ in 0..30 {
            v = b.binary(BinaryOp::Add, v, v);
        }
        assert_eq!(text(&Sums::new(&b.body).of(v).unwrap()), format!("{} * n", 1 << 30));
        for _ in 0..DEEPEST {
            v = b.unary(UnaryOp::Neg, v);
        }
        assert_eq!(Sums::new(&b.body).of(v), None);
    }
}
