//! The data of `octants.profiler`: times of tasks and kernels, compilations, memory in use. Python formats it.

use octants_engine::compile_times::{Compilation, Phase, Step};
use octants_engine::runtime::{Lane, Profiler, SpanId, Total};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::program;
use crate::waiting::waiting;

/// Count, and total, shortest and longest in milliseconds.
type Sums = (u64, f64, f64, f64);

/// Number, launch, kernel, task, lane, begin, end, and the spans of other lanes that it waited for.
type SpanRow = (SpanId, u64, String, String, u32, f64, f64, Vec<SpanId>);

/// Kernel, its launches, its tasks.
type KernelRow = (String, Sums, Vec<(String, Sums)>);

/// Phase, name, begin and duration of a step, in seconds from the begin of the compilation.
type StepRow = (&'static str, &'static str, f64, f64);

/// Kernel, start in seconds since the program's start, whether the code was found on disk, steps.
type CompilationRow = (String, f64, bool, Vec<StepRow>);

fn sums(t: &Total) -> Sums {
    (t.count, t.total_ms, t.min_ms, t.max_ms)
}

fn profiler(py: Python<'_>) -> PyResult<Profiler> {
    Ok(program::require(py)?.session.device().profiler())
}

/// The compiler's name of a task without the kernel's.
fn short<'a>(kernel: &str, task: &'a str) -> &'a str {
    task.strip_prefix(kernel).and_then(|t| t.strip_prefix('_')).unwrap_or(task)
}

/// Measures launches from now on. Returns the number of the next span.
#[pyfunction]
pub fn profiler_start(py: Python<'_>) -> PyResult<SpanId> {
    let profiler = profiler(py)?;
    waiting(py, |_| profiler.start())
}

/// Ends what `profiler_start` began. Returns the number of the next span.
#[pyfunction]
pub fn profiler_stop(py: Python<'_>) -> PyResult<SpanId> {
    Ok(profiler(py)?.stop())
}

/// The spans with these numbers by begin, the lanes (number of the stream, or negated that of the worker), and how many
/// spans were dropped. Waits for all launches.
#[pyfunction]
pub fn profiler_spans(py: Python<'_>, first: SpanId, last: SpanId) -> PyResult<(Vec<SpanRow>, Vec<i64>, u64)> {
    let profiler = profiler(py)?;
    waiting(py, |caller| profiler.resolve(caller))?;
    let (spans, dropped) = profiler.spans(first, last);
    let row = |s: octants_engine::runtime::Span| {
        let task = short(&s.kernel.name, &s.kernel.tasks[s.task].name).to_string();
        (s.id, s.launch, s.kernel.name.clone(), task, s.lane, s.begin_ms, s.end_ms, s.depends_on)
    };
    let lane = |lane: &Lane| match *lane {
        Lane::Stream(number) => i64::from(number),
        Lane::Worker(number) => -i64::from(number),
    };
    Ok((spans.into_iter().map(row).collect(), profiler.lanes().iter().map(lane).collect(), dropped))
}

/// The sums of each kernel and of its tasks. Waits for all launches.
#[pyfunction]
pub fn profiler_totals(py: Python<'_>) -> PyResult<Vec<KernelRow>> {
    let profiler = profiler(py)?;
    waiting(py, |caller| profiler.resolve(caller))?;
    let row = |(name, total): (String, octants_engine::runtime::KernelTotal)| {
        let tasks = total.tasks.iter().map(|(task, t)| (short(&name, task).to_string(), sums(t))).collect();
        (name, sums(&total.launches), tasks)
    };
    Ok(profiler.totals().into_iter().map(row).collect())
}

/// Forgets the sums, after waiting for all launches. Returns the number of the next span.
#[pyfunction]
pub fn profiler_clear(py: Python<'_>) -> PyResult<SpanId> {
    let profiler = profiler(py)?;
    waiting(py, |caller| profiler.clear(caller))
}

/// The compilations and the duration of each step, in order.
#[pyfunction]
pub fn compilations(py: Python<'_>) -> PyResult<Vec<CompilationRow>> {
    let step = |s: &Step| (s.phase.name(), s.name, s.begin.as_secs_f64(), s.elapsed.as_secs_f64());
    let row = |c: Compilation| (c.kernel, c.begin.as_secs_f64(), c.kept, c.steps.iter().map(step).collect());
    Ok(program::require(py)?.session.compilations().into_iter().map(row).collect())
}

/// The phases of a compilation, in order.
#[pyfunction]
pub fn compile_phases() -> Vec<&'static str> {
    Phase::ALL.iter().map(|p| p.name()).collect()
}

/// Clears the records of `compilations`.
#[pyfunction]
pub fn clear_compilations(py: Python<'_>) -> PyResult<()> {
    program::require(py)?.session.clear_compilations();
    Ok(())
}

/// The device's name, the bytes of all buffers, and those of the device, if known.
#[pyfunction]
pub fn memory_info(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let program = program::require(py)?;
    let device = program.session.device();
    let dict = PyDict::new(py);
    dict.set_item("device", device.name())?;
    dict.set_item("software", device.software())?;
    dict.set_item("in_use", device.bytes_in_use())?;
    dict.set_item("capacity", device.memory_bytes())?;
    Ok(dict)
}
