//! Launches of kernels on arrays that are split over ranks: finds the plan, or has the package make one.

use std::sync::Arc;

use octants_engine::artifact::{SplitTask, UpdateOp};
use octants_engine::ir::AutodiffMode;
use octants_engine::runtime;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use smallvec::SmallVec;

use crate::device_group::DeviceGroup;
use crate::ndarray::Ndarray;
use crate::package::Package;
use crate::program::{self, Program};
use crate::specialization::{Slots, Specialization};
use crate::split_dispatch::SplitLaunch;
use crate::split_rows::SplitPlan;

/// The launch of a kernel that uses split arrays, or of its gradient. Raises, on all ranks, if it cannot run on these
/// arrays. `None` if the kernel cannot run on several ranks or devices.
pub fn begin(
    spec: &Specialization,
    args: &[Bound<'_, PyAny>],
    slots: &Slots,
    program: &Program,
    (on, mode): (Option<&runtime::Stream>, AutodiffMode),
    py: Python<'_>,
) -> PyResult<Option<Box<SplitLaunch>>> {
    let on = on.unwrap_or_else(|| program.session.device().default_stream());
    let objects = objects(spec, args, py)?;
    // The arguments are addresses of row zero, which may be in other memory or in none.
    for object in &objects {
        on.note_use(object.cast::<Ndarray>()?.get().memory().memory());
    }
    if !matches!(mode, AutodiffMode::None | AutodiffMode::Reverse) {
        return Ok(None);
    }
    launch(spec, &objects, slots, program, on, py).map(|launch| Some(Box::new(launch)))
}

/// The split arrays of a launch.
pub type SplitObjects<'py> = SmallVec<[Bound<'py, PyAny>; 8]>;

/// The split arrays of a launch with these arguments, in the order of the specialization.
pub fn objects<'py>(spec: &Specialization, args: &[Bound<'py, PyAny>], py: Python<'py>) -> PyResult<SplitObjects<'py>> {
    spec.split.iter().map(|array| array.object(args, py)).collect()
}

/// The launch on these split arrays, on a stream.
pub fn launch(
    spec: &Specialization,
    objects: &SplitObjects<'_>,
    slots: &Slots,
    program: &Program,
    on: &runtime::Stream,
    py: Python<'_>,
) -> PyResult<SplitLaunch> {
    let mut arrays: SmallVec<[(u32, Py<Ndarray>); 8]> = SmallVec::new();
    let mut key: SmallVec<[u64; 32]> = SmallVec::new();
    key.push(spec.number);
    for (array, object) in spec.split.iter().zip(objects) {
        let object = object.cast::<Ndarray>()?;
        key.push(object.get().split_rows().map_or(0, |rows| rows.number));
        // The address of row zero may lie outside of the memory, so that the launch does not see that it is used.
        on.note_use(object.get().memory().memory());
        arrays.push((array.buffer, object.clone().unbind()));
    }
    for task in spec.code.split_tasks().flatten() {
        task.updates.iter().for_each(|(_, _, memory)| key.extend(<[u64; 2]>::from(memory.range(slots))));
        task.local.iter().for_each(|rows| key.extend([rows.first, rows.last].map(|r| r.row(slots) as u64)));
    }
    let keeper = arrays.first().and_then(|(_, array)| array.get().split_rows());
    let plan = match keeper.and_then(|rows| rows.plan(&key)) {
        Some(plan) => plan,
        None => {
            let plan = Arc::new(make_plan(spec, &arrays, slots, &key, py)?);
            keeper.into_iter().for_each(|rows| rows.keep(plan.clone()));
            plan
        }
    };
    Ok(SplitLaunch { plan, arrays, stream: (on.clone(), program.serial) })
}

#[cold]
fn make_plan(
    spec: &Specialization,
    arrays: &[(u32, Py<Ndarray>)],
    slots: &Slots,
    key: &[u64],
    py: Python<'_>,
) -> PyResult<SplitPlan> {
    let given = PyDict::new(py);
    for ((buffer, array), of) in arrays.iter().zip(&spec.split) {
        given.set_item(buffer, (array, of.is_argument()))?;
    }
    let tasks: Vec<_> = spec.code.split_tasks().map(|task| task.map(|task| described(task, slots))).collect();
    let plan = Package::get(py)?.split_launch.bind(py).getattr("plan")?;
    let buffers: Vec<u32> = arrays.iter().map(|(buffer, _)| *buffer).collect();
    SplitPlan::new(key, &buffers, &plan.call1((spec.code.name(), tasks, given))?)
}

/// This process is the only rank: launches do not use this module.
pub fn is_alone(spec: &Specialization, py: Python<'_>) -> PyResult<bool> {
    if DeviceGroup::led_by(program::current_serial()).is_some() {
        return Ok(false);
    }
    if spec.code.split_tasks().flatten().any(|task| !task.wraps.is_empty()) {
        return Ok(false);
    }
    Package::get(py)?.split_launch.bind(py).call_method0("is_alone")?.is_truthy()
}

type Rows = (u32, u64, u64);
type Update = (&'static str, &'static str, u64, u64);
type Local = (u32, bool, i64, i64);
type Wrapped = (u32, Option<i64>, Option<i64>);

/// Reads, writes, sums, rows between bounds, updates as operation, type, address and number of scalars, rows that wrap
/// around, and rows that must be the last.
#[allow(clippy::type_complexity)]
pub(super) fn described(
    task: &SplitTask,
    slots: &Slots,
) -> (Vec<Rows>, Vec<u32>, Vec<Rows>, Vec<Local>, Vec<Update>, Vec<Wrapped>, Vec<(u32, i64)>) {
    let updates = task.updates.iter().map(|(_, op, memory)| {
        let (address, count) = memory.range(slots);
        (name_of(*op), memory.kind.name(), address, count)
    });
    let local = task.local.iter().map(|rows| (rows.buffer, rows.adds, rows.first.row(slots), rows.last.row(slots)));
    (
        task.reads.clone(),
        task.writes.clone(),
        task.adds.clone(),
        local.collect(),
        updates.collect(),
        task.wraps.clone(),
        task.last_rows.clone(),
    )
}

fn name_of(op: UpdateOp) -> &'static str {
    match op {
        UpdateOp::Add | UpdateOp::Sub => "add",
        UpdateOp::Mul => "mul",
        UpdateOp::Min => "min",
        UpdateOp::Max => "max",
        UpdateOp::And => "and",
        UpdateOp::Or => "or",
        UpdateOp::Xor => "xor",
        UpdateOp::Exchange => unreachable!("compiler bug: a halo exchange inside a loop over split arrays"),
    }
}
