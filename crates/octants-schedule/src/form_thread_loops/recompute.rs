//! Values that are as cheap to recompute as to load: they do not cross regions.

use octants_ir::{GridValue, Op, Type, ValueId};

use super::rates::{Rate, Rates, ThreadCode};

/// Values of at most this many operations are computed again.
const RECOMPUTED: usize = 4;

/// Whether a value is recomputed in each region that needs it.
pub(super) fn is_recomputed(code: &ThreadCode<'_>, rates: &Rates, v: ValueId) -> bool {
    let inst = code.body.inst(v);
    matches!(inst.ty, Type::Ref(_)) || rates.steps[v.index()].is_some() || size(code, rates, v, RECOMPUTED).is_some()
}

/// The number of operations, if at most `most`.
fn size(code: &ThreadCode<'_>, rates: &Rates, v: ValueId, most: usize) -> Option<usize> {
    let op = &code.body.inst(v).op;
    match op {
        Op::Const(_) => return Some(0),
        Op::LoopIndex(l, _) if *l == code.loop_id => return Some(1),
        Op::Grid(GridValue::Thread | GridValue::Lane) => return Some(1),
        _ if !op.is_pure() || code.may_be_undefined(v) => return None,
        _ => {}
    }
    let mut sum = Some(1);
    op.for_each_operand(|u| {
        let u = code.locals.source(u);
        // A value that is computed for several threads at once is available, or stored for all of them.
        let is_there = rates.runs[u.index()] < Rate::Thread;
        let part = if is_there { Some(0) } else { most.checked_sub(1).and_then(|m| size(code, rates, u, m)) };
        sum = sum.zip(part).map(|(sum, part)| sum + part);
    });
    sum.filter(|n| *n <= most)
}
