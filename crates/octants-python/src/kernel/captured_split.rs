//! Launches on split arrays in captured graphs. Each launch of the graph makes them anew, with the arguments of the
//! capture: which rows must be exchanged depends on what has changed until then.

use std::sync::Arc;

use octants_engine::Error;
use octants_engine::runtime::{self, DispatchingCaller, HostArray};
use pyo3::prelude::*;
use smallvec::SmallVec;

use super::split_launch::{self, SplitObjects};
use crate::argument::Gathered;
use crate::device_group::{DeviceGroup, GroupLaunch};
use crate::errors;
use crate::host_step::HostStep;
use crate::interpreter::Interpreter;
use crate::program::Program;
use crate::specialization::{Slots, Specialization};
use crate::split_dispatch::SplitDispatcher;

/// A captured launch.
struct CapturedSplit {
    program: Arc<Program>,
    spec: Arc<Specialization>,
    slots: Slots,
    hosts: SmallVec<[HostArray; 4]>,
    /// The split arrays, in the order of the specialization.
    arrays: Vec<Py<PyAny>>,
    /// With several devices, the slots of each but the first, with the addresses of the first.
    others: Vec<Slots>,
}

/// The step of a graph that makes a launch on split arrays. Raises if the launch cannot run: the plan is made here, by
/// all ranks.
pub fn capture<'py>(
    program: &Arc<Program>,
    spec: &Arc<Specialization>,
    (gathered, args, slots): (&Gathered<'py>, &[Bound<'py, PyAny>], &Slots),
    stream: Option<&runtime::Stream>,
    py: Python<'py>,
) -> PyResult<Option<Arc<runtime::HostStep>>> {
    let arrays = split_launch::objects(spec, args, py)?;
    let mut others = Vec::new();
    if let Some(group) = DeviceGroup::led_by(program.serial) {
        // Memory that the plan allocates is not the graph's.
        let launch = || GroupLaunch::begin(group.clone(), spec, (gathered, args, slots), stream, py);
        runtime::nesting::outside_of_captures(launch)?;
        others = GroupLaunch::numbers(&group, (spec, args, slots), py)?;
    } else {
        let on = stream.unwrap_or_else(|| program.session.device().default_stream());
        let launch = || split_launch::launch(spec, &arrays, slots, program, on, py);
        if runtime::nesting::outside_of_captures(launch)?.is_whole() {
            return Ok(None);
        }
    }
    let hosts = if program.session.device().is_immediate() { SmallVec::new() } else { spec.host_arrays(gathered) };
    let arrays = arrays.into_iter().map(Bound::unbind).collect();
    let launch =
        CapturedSplit { program: program.clone(), spec: spec.clone(), slots: slots.clone(), hosts, arrays, others };
    Ok(Some(HostStep::make(move |py, stream| launch.make(py, stream))))
}

impl CapturedSplit {
    fn make(&self, py: Python<'_>, stream: &runtime::Stream) -> PyResult<()> {
        let (spec, slots) = (&*self.spec, &self.slots);
        let arrays: SplitObjects<'_> = self.arrays.iter().map(|array| array.bind(py).clone()).collect();
        if let Some(group) = DeviceGroup::led_by(self.program.serial) {
            GroupLaunch::check_stream(spec, stream, py)?;
            let given = (&arrays, self.others.clone(), slots, &*self.hosts);
            let launch = GroupLaunch::with(group, spec, given, py)?;
            let interpreter = Interpreter::held(py);
            // SAFETY: the graph keeps the specialization and the arguments of the capture, from which the slots were
            // filled.
            let end = unsafe { launch.launch(spec, (slots, &self.hosts), &interpreter) };
            return ended(py, interpreter, end);
        }
        let launch = split_launch::launch(spec, &arrays, slots, &self.program, stream, py)?;
        let interpreter = Interpreter::held(py);
        let dispatcher = SplitDispatcher::new(&interpreter, &launch);
        let caller = DispatchingCaller { caller: &interpreter, dispatcher: &dispatcher };
        let session = &self.program.session;
        // SAFETY: as above.
        let end = unsafe { session.launch(&spec.code, slots, &self.hosts, Some(stream), &caller) };
        drop(dispatcher);
        ended(py, interpreter, end)
    }
}

/// The end of a launch. Objects of the launch may be dropped only afterwards, when this thread has the interpreter.
fn ended<T>(py: Python<'_>, interpreter: Interpreter<'_, '_>, end: Result<T, Error>) -> PyResult<()> {
    match interpreter.take() {
        Some(raised) => Err(raised),
        None => end.map(drop).map_err(|e| errors::from_engine(py, e)),
    }
}
