//! [`Color`]: a congruence of the indices of the elements that an access touches, for example that their sum is odd.
//!
//! It follows from conditions around the access, as in `if (i + j) % 2 == color`, from remainders in an index, as in
//! `x[i, 2 * j + (i + color) % 2]`, and from strides, as in `x[2 * i + 1]`. Moduli are powers of two, so that sums that
//! wrap are congruent too.

use std::collections::HashMap;

use octants_ir::{Affine, BinaryOp, BlockId, Body, Const, LocalId, Op, Term, UnaryOp, ValueId};

use crate::affine::Sums;

/// The sum of each index times its coefficient is congruent to the phase.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Color {
    /// For each axis, at least 0 and less than the modulus.
    pub coefficients: Vec<i64>,
    /// A power of two, at least 2.
    pub modulus: i64,
    /// A sum of arguments.
    pub phase: Affine,
}

/// Largest modulus.
const LARGEST: i64 = 64;
/// Colors of an access.
const MOST: usize = 4;

/// A sum that is congruent to zero.
#[derive(Debug, Clone)]
pub(crate) struct Congruence {
    sum: Affine,
    modulus: i64,
}

/// Conditions that are the conjunction of two others, by the local that holds them.
pub(crate) type Conjunctions = HashMap<LocalId, (ValueId, ValueId)>;

/// Finds locals that are set to a condition, and to another one where that holds: `a and b`.
pub(crate) fn conjunctions(body: &Body) -> Conjunctions {
    let mut stores: HashMap<LocalId, u32> = HashMap::new();
    let local_of = |address: ValueId| match body.inst(address).op {
        Op::LocalAddr(local) => Some(local),
        _ => None,
    };
    let stored = |v: ValueId| match body.inst(v).op {
        Op::Store(address, value) => local_of(address).map(|local| (local, value)),
        _ => None,
    };
    body.visit(body.root, &mut |v, inst| match &inst.op {
        // Any other use of the address may change the local.
        Op::Load(_) => {}
        Op::Store(address, _) => {
            let known = stored(v).map(|(local, _)| local).or_else(|| local_of(*address));
            known.into_iter().for_each(|local| *stores.entry(local).or_default() += 1);
        }
        op => op.for_each_operand(|u| local_of(u).into_iter().for_each(|l| *stores.entry(l).or_default() += 8)),
    });
    let mut found = HashMap::new();
    for block in &body.blocks {
        for (n, &v) in block.iter().enumerate() {
            let Some((local, first)) = stored(v).filter(|(local, _)| stores.get(local) == Some(&2)) else { continue };
            let Some(Op::If(condition, yes, _)) = block.get(n + 1).map(|next| &body.inst(*next).op) else { continue };
            let second = body.block(*yes).iter().rev().find_map(|v| stored(*v).filter(|(l, _)| *l == local));
            if let Some((_, second)) = second
                && *condition == first
            {
                found.insert(local, (first, second));
            }
        }
    }
    found
}

/// The congruences that hold if a condition is true, or if it is false.
pub(crate) fn implied(
    (body, sums): (&Body, &mut Sums<'_>),
    both: &Conjunctions,
    condition: ValueId,
    truth: bool,
    found: &mut Vec<Congruence>,
) {
    match &body.inst(condition).op {
        Op::Binary(BinaryOp::And, a, b) if truth => {
            implied((body, sums), both, *a, true, found);
            implied((body, sums), both, *b, true, found);
        }
        Op::Unary(UnaryOp::LogicNot, a) => implied((body, sums), both, *a, !truth, found),
        Op::Load(address) if truth => {
            if let Op::LocalAddr(local) = body.inst(*address).op
                && let Some((a, b)) = both.get(&local)
            {
                implied((body, sums), both, *a, true, found);
                implied((body, sums), both, *b, true, found);
            }
        }
        Op::Binary(op @ (BinaryOp::Eq | BinaryOp::Ne), a, b) => {
            let equal = (*op == BinaryOp::Eq) == truth;
            found.extend(compared((body, sums), *a, *b, equal).or_else(|| compared((body, sums), *b, *a, equal)));
        }
        _ => {}
    }
}

/// What a comparison of a remainder with a value implies.
fn compared((body, sums): (&Body, &mut Sums<'_>), a: ValueId, value: ValueId, equal: bool) -> Option<Congruence> {
    let (of, modulus) = remainder(body, a)?;
    let (of, mut value) = (sums.of(of)?, sums.of(value)?);
    if !equal {
        // If it is not one of two remainders, it is the other one. A truncated one may also be -1.
        let truncated = matches!(body.inst(a).op, Op::Binary(BinaryOp::Rem, ..));
        let remainders = if truncated { 0..1 } else { 0..2 };
        value = Affine::from(1 - value.as_constant().filter(|r| modulus == 2 && remainders.contains(r))?);
    }
    Some(Congruence { sum: of.plus(&value.times(-1)?)?, modulus })
}

/// The dividend and the modulus of a remainder.
fn remainder(body: &Body, v: ValueId) -> Option<(ValueId, i64)> {
    let constant = |v: ValueId| match body.as_const(v) {
        Some(Const::Int(n)) => Some(n),
        _ => None,
    };
    let (of, modulus) = match body.inst(v).op {
        Op::Binary(BinaryOp::Mod | BinaryOp::Rem, a, m) => (a, constant(m)?),
        Op::Binary(BinaryOp::And, a, mask) => (a, constant(mask)?.checked_add(1)?),
        _ => return None,
    };
    ((2..=LARGEST).contains(&modulus) && modulus.count_ones() == 1).then_some((of, modulus))
}

/// The colors of the element at these indices, under conditions.
pub(crate) fn colors_of(
    (body, sums): (&Body, &mut Sums<'_>),
    indices: &[ValueId],
    conditions: &[Congruence],
) -> Vec<Color> {
    let axes: Vec<Option<Affine>> = indices.iter().map(|i| sums.of(*i)).collect();
    let none = vec![0; indices.len()];
    let mut colors: Vec<Color> = conditions.iter().filter_map(|c| color(none.clone(), c.clone(), &axes)).collect();
    for (axis, index) in indices.iter().enumerate() {
        let congruence = match &axes[axis] {
            Some(sum) => stride(sum).map(|modulus| (sum.clone(), modulus)),
            None => sum_with_remainder((body, sums), *index),
        };
        let Some((sum, modulus)) = congruence else { continue };
        let mut own = none.clone();
        own[axis] = 1;
        let rest = sum.times(-1).map(|sum| Congruence { sum, modulus });
        colors.extend(rest.and_then(|rest| color(own, rest, &axes)));
    }
    colors.sort();
    colors.dedup();
    colors.truncate(MOST);
    colors
}

/// The largest power of two that divides the coefficients of all loop indices.
fn stride(sum: &Affine) -> Option<i64> {
    let of_loops = sum.terms.iter().filter(|(term, _)| matches!(term, Term::Index(..)));
    let bits = of_loops.map(|(_, c)| c.trailing_zeros()).min()?;
    (bits > 0).then_some(1 << bits.min(LARGEST.trailing_zeros()))
}

/// An index with a remainder: what it is congruent to.
fn sum_with_remainder((body, sums): (&Body, &mut Sums<'_>), index: ValueId) -> Option<(Affine, i64)> {
    if let Some((of, modulus)) = remainder(body, index) {
        return Some((sums.of(of)?, modulus));
    }
    let Op::Binary(BinaryOp::Add, a, b) = body.inst(index).op else { return None };
    let (rest, (of, modulus)) = match (remainder(body, a), remainder(body, b)) {
        (Some(found), None) => (b, found),
        (None, Some(found)) => (a, found),
        _ => return None,
    };
    Some((sums.of(rest)?.plus(&sums.of(of)?)?, modulus))
}

/// A congruence of indices, which have these coefficients so far, and of a sum with loop indices, in terms of indices
/// alone.
fn color(mut coefficients: Vec<i64>, of: Congruence, axes: &[Option<Affine>]) -> Option<Color> {
    let Congruence { mut sum, modulus } = of;
    let loops: Vec<(Term, i64)> =
        sum.terms.iter().filter(|(t, _)| matches!(t, Term::Index(..))).map(|(t, c)| (*t, *c)).collect();
    for (term, factor) in loops {
        sum.terms.remove(&term);
        if factor % modulus == 0 {
            continue;
        }
        let counts = |axis: &Affine| {
            let mut of_loops = axis.terms.iter().filter(|(t, _)| matches!(t, Term::Index(..)));
            let is_it = of_loops.next().filter(|(t, c)| **t == term && c.abs() == 1);
            is_it.filter(|_| of_loops.next().is_none()).map(|(_, sign)| *sign)
        };
        let (n, axis, sign) =
            axes.iter().enumerate().find_map(|(n, a)| Some((n, a.as_ref()?, counts(a.as_ref()?)?)))?;
        // The loop index is the sign times the difference of the array's index and the rest.
        let mut rest = axis.clone();
        rest.terms.remove(&term);
        let factor = factor.checked_mul(sign)?;
        coefficients[n] = coefficients[n].checked_add(factor)?;
        sum = sum.plus(&rest.times(factor.checked_neg()?)?)?;
    }
    coefficients.iter_mut().for_each(|c| *c = c.rem_euclid(modulus));
    let first = *coefficients.iter().find(|c| **c != 0)?;
    let mut phase = sum.times(-1)?;
    if first % 2 != 0 {
        let inverse = (1..modulus).find(|n| first * n % modulus == 1)?;
        coefficients.iter_mut().for_each(|c| *c = *c * inverse % modulus);
        phase = phase.times(inverse)?;
    }
    Some(Color { coefficients, modulus, phase })
}

/// No element has a color of both, in one launch.
pub(crate) fn apart(a: &[Color], b: &[Color]) -> bool {
    a.iter().any(|a| b.iter().any(|b| a.is_apart(b)))
}

impl Color {
    fn is_apart(&self, other: &Color) -> bool {
        let modulus = self.modulus.min(other.modulus);
        let same = |(a, b): (&i64, &i64)| (a - b) % modulus == 0;
        let distance = other.phase.times(-1).and_then(|phase| self.phase.plus(&phase));
        self.coefficients.iter().zip(&other.coefficients).all(same)
            && distance.is_some_and(|d| d.terms.values().all(|c| c % modulus == 0) && d.constant % modulus != 0)
    }
}

/// Whether later instructions of a block do not run if this one, an `if`, is true.
pub(crate) fn leaves(body: &Body, yes: BlockId) -> bool {
    body.block(yes).last().is_some_and(|v| body.inst(*v).op.is_terminator())
}

#[cfg(test)]
mod tests {
    use octants_ir::Program;

    use crate::access_sets::access_sets;

    /// The colors of `x[i]` in a loop over `i`, under a condition on `%v`, which is `i op 2`.
    fn colors(remainder: &str, condition: &str, leaves: bool) -> String {
        let (yes, after) = if leaves { ("continue", "store %12, %13") } else { ("store %12, %13", "") };
        let text = format!(
            "program k -> unit {{
  param c: i32
  buffer @0 x: f32[1] contiguous
  task k_0 parallel writes [@0] {{
    %0: i32 = const 0
    %1: i32 = const 100
    %2: i32 = param 0
    %3 = for [%0..%1] parallel {{
      %4: i32 = loop_index %3, 0
      %5: i32 = sub %4, %1
      %6: i32 = const 2
      %7: i32 = const 1
      %8: i32 = {remainder}
      %9: u1 = {condition}
      %12: ref f32 = buffer_addr @0[%4]
      %13: f32 = const 1.0
      if %9 {{
        {yes}
      }}
      {after}
    }}
  }}
}}
"
        );
        let program: Program = text.parse().unwrap_or_else(|e| panic!("{e:?}\n{text}"));
        let sets = access_sets(&program);
        let [access] = &sets[0].accesses[..] else { panic!("{sets:?}") };
        let [] = &access.colors[..] else {
            let color = &access.colors[0];
            return format!("{} mod {}", color.phase.display(&|term| format!("{term:?}")), color.modulus);
        };
        String::new()
    }

    #[test]
    fn conditions_on_remainders_are_colors() {
        assert_eq!(colors("mod %4, %6", "eq %8, %2", false), "Param(0) mod 2");
        assert_eq!(colors("mod %5, %6", "eq %8, %7", false), "101 mod 2");
        assert_eq!(colors("and %4, %7", "ne %8, %0", false), "1 mod 2");
        assert_eq!(colors("mod %4, %6", "ne %8, %7", true), "1 mod 2");
        // Nothing is known about other remainders than 0 and 1, nor about the sign of a truncated one.
        assert_eq!(colors("mod %4, %6", "ne %8, %2", false), "");
        assert_eq!(colors("rem %5, %6", "ne %8, %0", false), "101 mod 2");
        assert_eq!(colors("rem %5, %6", "ne %8, %7", false), "");
    }
}
