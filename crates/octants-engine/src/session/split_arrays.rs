//! [`split_tasks_of`]: how each task runs on rows of split arrays, in the form that artifacts keep. [`of_gradient`]:
//! why a gradient cannot run on rows.

use std::collections::BTreeMap;

use octants_artifact::{LocalRows, RowBound, SplitMemory, SplitTask};
use octants_diag::{Code, Diagnostic};
use octants_ir::{ArgLayout, BufferId, Layout, Program};
use octants_passes::{self as passes, Halo, SplitLoop, split_tasks, unwrap_rows};

use super::Lowering;
use super::access::update_op;
use crate::error::Error;
use crate::trace::kind_of;

/// The split of each task of a program with these argument slots. Rows that wrap around no longer do so afterwards:
/// ranks have copies of them as ghost rows.
///
/// # Errors
/// A task updates memory that ranks cannot sum: it is not one range of bytes.
pub(super) fn split_tasks_of(
    program: &mut Program,
    layout: &ArgLayout,
    split: &BTreeMap<BufferId, u32>,
) -> Result<Vec<Option<SplitTask>>, Error> {
    if split.is_empty() {
        return Ok(vec![None; program.tasks.len()]);
    }
    let found = split_tasks(program, split).into_iter();
    unwrap_rows(program, split);
    found.map(|task| task.map(|task| to_meta(program, layout, &task)).transpose()).collect()
}

/// The reason why a gradient is refused. One that keeps values of a loop has a loop over threads in place of its loop
/// over rows, whose indices are not rows.
pub(super) fn of_gradient(error: Error, lowering: &Lowering) -> Error {
    let Error::Refused(_, sources) = &error else { return error };
    let kept = lowering.store.as_ref().and_then(|store| store.kept.first());
    let Some(kept) = kept.filter(|_| !lowering.lowered.split_arrays.is_empty()) else { return error };
    let message = format!(
        "the gradient of this loop keeps `{}` of its iterations, whose number is known at run time only: a loop over \
         split arrays cannot do so",
        kept.name
    );
    let mut diagnostic = Diagnostic::new(Code::Derivative, kept.span, message);
    diagnostic.root.clone_from(&lowering.undifferentiated_kernel().name);
    let hint = "give the loop a constant number of iterations, for example `for j in range(8): if j < n: ...`";
    Error::Refused(diagnostic.with_hint(hint), sources.clone())
}

fn to_meta(program: &Program, layout: &ArgLayout, of: &SplitLoop) -> Result<SplitTask, Error> {
    let mut updates = Vec::new();
    for (&buffer, &op) in &of.updates {
        let memory = memory_of(program, layout, buffer).ok_or_else(|| {
            let name = &program.buffers[buffer.index()].name;
            Error::Device(format!(
                "kernel `{}` reduces into `{name}`, whose elements are not contiguous in memory: ranks \
                 cannot sum it. Place it separately, or use an ndarray without a layout",
                program.name
            ))
        })?;
        updates.extend(memory.into_iter().map(|memory| (buffer.0, update_op(op), memory)));
    }
    let bound = |bound: passes::RowBound| match bound {
        passes::RowBound::Constant(row) => RowBound::Constant(row),
        passes::RowBound::Param(param) => RowBound::Slot(layout.params[param as usize]),
    };
    let local = |rows: &passes::LocalRows| LocalRows {
        buffer: rows.buffer.0,
        adds: rows.adds,
        first: bound(rows.first),
        last: bound(rows.last),
    };
    let with_halo = |(b, halo): (&BufferId, &Halo)| (b.0, halo.before, halo.after);
    Ok(SplitTask {
        reads: of.reads.iter().map(with_halo).collect(),
        writes: of.writes.iter().map(|b| b.0).collect(),
        adds: of.adds.iter().map(with_halo).collect(),
        local: of.local.iter().map(local).collect(),
        updates,
        wraps: of.wraps.iter().map(|w| (w.buffer.0, w.modulus, w.end)).collect(),
        last_rows: of.last_rows.iter().map(|&(b, row)| (b.0, row)).collect(),
    })
}

/// The ranges of memory of a buffer, each of scalars of one type.
fn memory_of(program: &Program, layout: &ArgLayout, b: BufferId) -> Option<Vec<SplitMemory>> {
    let buffer = &program.buffers[b.index()];
    let leaves = buffer.elem.leaves();
    let scalar = *leaves.first()?;
    if leaves.iter().any(|s| *s != scalar) {
        return None;
    }
    let kind = kind_of(scalar);
    match (&buffer.layout, layout.buffers[b.index()]) {
        (Layout::Contiguous, Some(slot)) => {
            let extents = (slot + 1..slot + 1 + buffer.ndim).collect();
            Some(vec![SplitMemory { slot, offset: 0, kind, scalars: leaves.len() as u64, extents }])
        }
        (Layout::Dense { components, shape, .. }, _) => {
            let count: u64 = shape.iter().product();
            let bytes = u64::from(kind.bytes());
            let whole = components.iter().all(|c| c.root == components[0].root);
            let first = components.iter().map(|c| c.place.base).min()?;
            let end = components.iter().map(|c| c.place.end(bytes)).max()?;
            let scalars = count * components.len() as u64;
            let is_dense = whole && end - first == scalars * bytes;
            let slot = layout.roots[components[0].root as usize];
            is_dense.then(|| vec![SplitMemory { slot, offset: first, kind, scalars, extents: Vec::new() }])
        }
        _ => None,
    }
}
