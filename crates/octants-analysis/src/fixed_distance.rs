//! [`fixed_distance`]: the constant distance of two values that do not change during a kernel, such as values loaded
//! from memory that the kernel does not write. Arithmetic is assumed not to wrap: for diagnostics only.

use octants_ir::{BinaryOp, Body, Op, ValueId};

use crate::constants::known_int;
use crate::same_values::same_value_by;

/// The distance of two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Distance {
    /// The second one less the first one.
    Known(i64),
    /// They are never the same.
    Different,
    /// Unknown.
    Unknown,
}

/// The distance of two values. `source` sees through locals; `is_fixed` returns whether a load yields the same value at
/// any time.
pub(crate) fn fixed_distance(
    body: &Body,
    (x, y): (ValueId, ValueId),
    source: &dyn Fn(ValueId) -> ValueId,
    is_fixed: &dyn Fn(ValueId) -> bool,
) -> Distance {
    let ((x, to_x), (y, to_y)) = (without_constant(body, x, source), without_constant(body, y, source));
    let Some(by) = to_y.checked_sub(to_x) else { return Distance::Unknown };
    let is_load = |v: ValueId| matches!(body.inst(v).op, Op::Load(_));
    if same_value_by(body, x, y, &|x, y| is_load(x) && is_load(y) && is_fixed(x)) {
        return Distance::Known(by);
    }
    // Remainders by the same divisor differ if the distance is not a multiple of it.
    match (&body.inst(x).op, &body.inst(y).op) {
        (Op::Binary(f @ (BinaryOp::Mod | BinaryOp::Rem), u, m), Op::Binary(g, v, n)) if f == g && by == 0 => {
            let (m, n) = (known_int(body, source(*m)), known_int(body, source(*n)));
            match (fixed_distance(body, (*u, *v), source, is_fixed), m.zip(n)) {
                (Distance::Known(by), Some((m, n))) if m == n && m != 0 && by % m != 0 => Distance::Different,
                _ => Distance::Unknown,
            }
        }
        _ => Distance::Unknown,
    }
}

/// A value as another one plus a constant.
fn without_constant(body: &Body, v: ValueId, source: &dyn Fn(ValueId) -> ValueId) -> (ValueId, i64) {
    let v = source(v);
    let known = |v: ValueId| known_int(body, source(v));
    let (rest, by) = match &body.inst(v).op {
        Op::Cast(of) if body.ty(*of).scalar().is_some_and(|s| s.is_int()) => (*of, Some(0)),
        Op::Binary(BinaryOp::Add, a, b) => match (known(*a), known(*b)) {
            (Some(by), _) => (*b, Some(by)),
            (_, by) => (*a, by),
        },
        Op::Binary(BinaryOp::Sub, a, b) => (*a, known(*b).and_then(i64::checked_neg)),
        _ => return (v, 0),
    };
    let Some(by) = by else { return (v, 0) };
    let (rest, more) = without_constant(body, rest, source);
    more.checked_add(by).map_or((v, 0), |by| (rest, by))
}
