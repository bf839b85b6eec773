//! Launches of kernels on arrays that are split over ranks: the package brings the rows that a task reads of other
//! ranks, and says which rows this rank computes.

use octants_engine::artifact::{SplitTask, UpdateOp};
use octants_engine::runtime::{self, Caller, Dispatcher, ErrorKind, Result as RuntimeResult};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::held::HoldLater;
use crate::interpreter::Interpreter;
use crate::package::Package;
use crate::program::Program;
use crate::specialization::{Slots, Specialization};
use crate::stream::{Kind, Stream};

/// The package's object for a launch; `None` if this process is the only rank, which computes all rows.
pub fn begin<'py>(
    spec: &Specialization,
    args: &[Bound<'py, PyAny>],
    slots: &Slots,
    program: &Program,
    on: &runtime::Stream,
    py: Python<'py>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let arrays = PyDict::new(py);
    for array in &spec.split {
        arrays.set_item(array.buffer, (array.object(args, py)?, array.is_argument()))?;
    }
    let plan: Vec<_> = spec.code.split_tasks().map(|task| task.map(|task| described(task, slots))).collect();
    let stream = Stream::new(program, on.clone(), Kind::Wrapped);
    let begin = Package::get(py)?.split_launch.bind(py).getattr("begin")?;
    let launch = begin.call1((spec.code.name(), plan, arrays, on.handle(), stream))?;
    Ok((!launch.is_none()).then_some(launch))
}

/// This process is the only rank: launches do not use this module.
pub fn is_alone(spec: &Specialization, py: Python<'_>) -> PyResult<bool> {
    if !spec.peers.is_empty() {
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
/// around, and rows that have to be the last.
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

/// A thread that launches such a kernel.
pub struct SplitCaller<'a, 'b, 'py, L: HoldLater + ?Sized> {
    /// The thread.
    pub interpreter: &'a Interpreter<'b, 'py, L>,
    /// The result of [`begin`].
    pub launch: Py<PyAny>,
}

impl<L: HoldLater + ?Sized> Caller for SplitCaller<'_, '_, '_, L> {
    fn will_block(&self) {
        self.interpreter.will_block();
    }

    fn call_site(&self) -> Option<String> {
        self.interpreter.call_site()
    }

    fn can_be_interrupted(&self) -> bool {
        self.interpreter.can_be_interrupted()
    }

    fn is_interrupted(&self) -> bool {
        self.interpreter.is_interrupted()
    }

    fn dispatcher(&self) -> Option<&dyn Dispatcher> {
        Some(self)
    }
}

impl<L: HoldLater + ?Sized> Dispatcher for SplitCaller<'_, '_, '_, L> {
    fn dispatch(&self, task: usize, run: &mut dyn FnMut(i32, i32) -> RuntimeResult<()>) -> RuntimeResult<()> {
        // Rows that need no others, while others come; those that do; sums over ranks.
        for method in ["begin_task", "finish_exchange", "end_task"] {
            let rows = |py: Python<'_>| self.launch.bind(py).call_method1(method, (task,))?.extract();
            let rows: Option<Vec<(i32, i32)>> = self.interpreter.attached(rows);
            for (first, end) in rows.ok_or(ErrorKind::Interrupted)? {
                run(first, end)?;
            }
        }
        Ok(())
    }
}
