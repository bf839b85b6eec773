//! Launches of kernels on arrays that are split over several devices of this process.
//!
//! A kernel is lowered once and built for each device. Its arguments are converted for the first device; the slots of
//! the others differ in addresses: their blocks of split arrays, and copies of other memory. The calling thread nests
//! the launches of all devices. The innermost launch, that of the first device, decides which task runs next. Between
//! tasks, the package exchanges rows.

use std::cell::RefCell;
use std::sync::Arc;

use octants_engine::artifact::SplitTask;
use octants_engine::ir::AutodiffMode;
use octants_engine::runtime::{
    self, Dispatcher, DispatchingCaller, Draw, ErrorKind, HostArray, OpenLaunch, Result as RuntimeResult, Results,
    nesting, not_lent,
};
use octants_engine::{Error, Executable, Lowering};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use super::split_launch::{self, SplitObjects, described};
use super::{Kernel, Prepared};
use crate::argument::Gathered;
use crate::device_group::{DeviceGroup, GroupLaunch, Part};
use crate::held::HoldLater;
use crate::interpreter::Interpreter;
use crate::ndarray::Ndarray;
use crate::package::Package;
use crate::specialization::{Slots, Specialization};
use crate::stream::{Kind, Stream};
use crate::waiting::waiting;
use crate::world::PyWorld;
use crate::{detached, errors};

/// The attribute of a split array that is its block on each device.
const PARTS: &str = "_parts";
/// An attribute of a split array that depends on the device.
const FIRST_LOCAL_ROW: &str = "_first_local_row";

impl<'py> GroupLaunch<'py> {
    /// Prepares a launch with these arguments.
    pub fn begin(
        group: Arc<DeviceGroup>,
        spec: &Specialization,
        (gathered, args, slots): (&Gathered<'py>, &[Bound<'py, PyAny>], &Slots),
        stream: Option<&runtime::Stream>,
        py: Python<'py>,
    ) -> PyResult<GroupLaunch<'py>> {
        refuse(spec, gathered, stream, py)?;
        let (arrays, hosts) = (split_launch::objects(spec, args, py)?, spec.host_arrays(gathered));
        let others = GroupLaunch::numbers(&group, (spec, args, slots), py)?;
        GroupLaunch::with(group, spec, (&arrays, others, slots, &hosts), py)
    }

    /// The argument slots of each device but the first, with the addresses of the first.
    pub fn numbers(
        group: &DeviceGroup,
        (spec, args, slots): (&Specialization, &[Bound<'_, PyAny>], &Slots),
        py: Python<'_>,
    ) -> PyResult<Vec<Slots>> {
        // The rows that a device has.
        let differ = spec.code.split_tasks().flatten().any(|task| !task.local.is_empty());
        let numbers = |device: usize| {
            let mut own = slots.clone();
            if differ {
                as_block(py, device, || spec.read_numbers(args, &mut own))?;
            }
            Ok(own)
        };
        (1..group.programs.len()).map(numbers).collect()
    }

    /// Prepares a launch on these split arrays, with the slots of the first device, and those of the others as
    /// [`GroupLaunch::numbers`] returns them.
    pub fn with(
        group: Arc<DeviceGroup>,
        spec: &Specialization,
        (objects, mut others, slots, hosts): (&SplitObjects<'py>, Vec<Slots>, &Slots, &[HostArray]),
        py: Python<'py>,
    ) -> PyResult<GroupLaunch<'py>> {
        let mut parts: Vec<Vec<Part>> = group.programs.iter().map(|_| Vec::new()).collect();
        let arrays = PyDict::new(py);
        for (array, whole) in spec.split.iter().zip(objects) {
            let blocks = whole.getattr(PARTS)?.cast_into::<PyTuple>()?;
            for (of_device, block) in parts.iter_mut().zip(blocks) {
                let block = block.cast::<Ndarray>()?.get();
                let (address, memory) = (block.address(py)?, block.memory().memory().clone());
                of_device.push(Part { buffer: array.buffer, address, memory });
            }
            arrays.set_item(array.buffer, (whole, array.is_argument()))?;
        }
        for (device, own) in (1..).zip(&mut others) {
            fill_addresses((&group, device), spec, (slots, own), (&parts[device], hosts), py)?;
        }
        let codes = std::iter::once(&spec.code).chain(&spec.peers);
        let plans = codes.zip(std::iter::once(slots).chain(&others)).map(|(code, slots)| {
            let task = |task: Option<&SplitTask>| task.map(|task| described(task, slots));
            code.split_tasks().map(task).collect::<Vec<_>>()
        });
        let plans: Vec<_> = plans.collect();
        let streams = group.programs.iter().map(|program| {
            let stream = program.session.device().default_stream().clone();
            Stream::new(program, stream, Kind::Default)
        });
        let streams = PyList::new(py, streams.map(|s| Bound::new(py, s)).collect::<PyResult<Vec<_>>>()?)?;
        let begin = Package::get(py)?.device_launch.bind(py).getattr("begin")?;
        let launch = begin.call1((spec.code.name(), plans, arrays, streams))?;
        Ok(GroupLaunch { group, parts, slots: others, launch })
    }

    /// Raises for a launch on a stream that is not the first device's default stream.
    pub fn check_stream(spec: &Specialization, stream: &runtime::Stream, py: Python<'_>) -> PyResult<()> {
        match stream.number() {
            0 => Ok(()),
            _ => Err(refusal(spec, "run on the default streams of these devices, not on another stream", py)),
        }
    }

    /// Launches on all devices. Returns the results of the first.
    ///
    /// # Safety
    /// As [`octants_engine::Session::launch`], for the first device.
    pub unsafe fn launch<L: HoldLater + ?Sized>(
        &self,
        spec: &Specialization,
        (slots, arrays): (&Slots, &[HostArray]),
        interpreter: &Interpreter<'_, '_, L>,
    ) -> Result<Option<Results>, Error> {
        let launch = self.launch.as_unbound();
        let devices = Devices { group: &self.group, spec, others: &self.slots, slots, arrays, interpreter, launch };
        // SAFETY: the contract above. The slots of other devices were filled the same way.
        let end = unsafe { devices.launch(self.group.programs.len() - 1, None) };
        for (program, parts) in self.group.programs.iter().zip(&self.parts) {
            parts.iter().for_each(|part| program.session.device().default_stream().note_use(&part.memory));
        }
        if end.is_ok() {
            for pointer in spec.code.pointers().iter().filter(|p| p.written && self.part_of(0, p.buffer).is_none()) {
                let address = slots[pointer.slot as usize];
                self.group.mirrors.iter().for_each(|mirrors| mirrors.note_written(address));
            }
        } else {
            // Not all exchanges were made. The original failure is the error to report.
            let _ = interpreter.attached(|py| launch.bind(py).call_method0("forget_ghosts").map(drop));
        }
        end
    }

    fn part_of(&self, device: usize, buffer: Option<u32>) -> Option<&Part> {
        part_of(&self.parts[device], buffer)
    }
}

fn part_of(parts: &[Part], buffer: Option<u32>) -> Option<&Part> {
    parts.iter().find(|part| Some(part.buffer) == buffer)
}

/// Refuses kernels that cannot be launched on several devices.
fn refuse(
    spec: &Specialization,
    gathered: &Gathered<'_>,
    stream: Option<&runtime::Stream>,
    py: Python<'_>,
) -> PyResult<()> {
    stream.map_or(Ok(()), |stream| GroupLaunch::check_stream(spec, stream, py))?;
    let why = if !spec.checkpoints.is_empty() {
        "cannot have checkpoints"
    } else if spec.host_arrays(gathered).iter().any(|array| array.written) {
        "cannot write to arrays in host memory: pass a field or a qd.ndarray"
    } else {
        return Ok(());
    };
    Err(refusal(spec, why, py))
}

fn refusal(spec: &Specialization, why: &str, py: Python<'_>) -> PyErr {
    let name = spec.code.name();
    let text = format!("kernel `{name}` uses an array that is split over several devices: its launches {why}");
    errors::runtime_error(py, text)
}

/// Sets the addresses in the argument slots of a device that is not the first, from the slots of the first.
fn fill_addresses(
    (group, device): (&DeviceGroup, usize),
    spec: &Specialization,
    (slots, own): (&Slots, &mut Slots),
    (parts, hosts): (&[Part], &[HostArray]),
    py: Python<'_>,
) -> PyResult<()> {
    let program = &group.programs[device];
    let (mirrors, stream) = (&group.mirrors[device - 1], program.session.device().default_stream());
    let unknown = waiting(py, |caller| {
        for pointer in spec.code.pointers() {
            let slot = pointer.slot as usize;
            if let Some(part) = part_of(parts, pointer.buffer) {
                own[slot] = part.address;
            } else if slots[slot] != 0 && !hosts.iter().any(|host| host.slot == pointer.slot) {
                match mirrors.address(slots[slot], pointer.written, stream, caller)? {
                    Some(address) => own[slot] = address,
                    None if pointer.written || !program.session.device().is_host_addressable() => return Ok(true),
                    None => {}
                }
            }
        }
        Ok(false)
    })?;
    if !unknown {
        return Ok(());
    }
    let text = format!(
        "kernel `{}` uses an array that is split over several devices: its other arrays must be fields or qd.ndarrays, \
         not arrays of other libraries",
        spec.code.name()
    );
    Err(errors::runtime_error(py, text))
}

/// Runs Python code as the rank that a device is.
fn as_block<T>(py: Python<'_>, device: usize, run: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    let scope = Package::get(py)?.block_scope.bind(py).call1((device,))?;
    scope.call_method0("__enter__")?;
    let end = run();
    scope.call_method1("__exit__", (py.None(), py.None(), py.None()))?;
    end
}

impl Kernel {
    /// The code of a kernel on split arrays for each device of the group but the first.
    pub(super) fn build_for_group<'py>(
        slf: &Bound<'py, Self>,
        prepared: &Prepared,
        call: (&Gathered<'py>, &[Bound<'py, PyAny>], AutodiffMode),
        (lowering, alias): (&Lowering, bool),
        world: &PyWorld<'py>,
    ) -> PyResult<Vec<Executable>> {
        let (this, py) = (slf.get(), slf.py());
        let group = DeviceGroup::led_by(prepared.program.serial);
        let Some(group) = group.filter(|_| !lowering.lowered.split_arrays.is_empty()) else { return Ok(Vec::new()) };
        let depends_on_device = world.has_constant(FIRST_LOCAL_ROW);
        let build = |(device, program): (usize, &Arc<crate::program::Program>)| {
            let own = depends_on_device.then(|| {
                as_block(py, device, || {
                    let world = PyWorld::new(py, program.session.config());
                    let described = this.describe(prepared, call.1, &world)?;
                    Kernel::lower(slf, prepared, call, &described, (&world, &world))
                })
            });
            let own = own.transpose()?;
            let (lowering, alias) = own.as_ref().map_or((lowering, alias), |(lowering, alias)| (&**lowering, *alias));
            let code = detached::working(py, || program.session.build(lowering, alias));
            code.map_err(|e| errors::from_engine(py, e))
        };
        group.programs.iter().enumerate().skip(1).map(build).collect()
    }
}

/// The launches of a group's devices.
struct Devices<'a, 'b, 'py, L: HoldLater + ?Sized> {
    group: &'a DeviceGroup,
    spec: &'a Specialization,
    /// The slots of each device but the first.
    others: &'a [Slots],
    slots: &'a Slots,
    arrays: &'a [HostArray],
    interpreter: &'a Interpreter<'b, 'py, L>,
    launch: &'a Py<PyAny>,
}

/// The open launches of the devices from a certain one on.
struct Opened<'a> {
    launch: &'a dyn OpenLaunch,
    later: Option<&'a Opened<'a>>,
}

impl<L: HoldLater + ?Sized> Devices<'_, '_, '_, L> {
    /// Launches on a device and on those before it; the launches of the later ones are open.
    ///
    /// # Safety
    /// As [`GroupLaunch::launch`].
    unsafe fn launch(&self, device: usize, later: Option<&Opened<'_>>) -> Result<Option<Results>, Error> {
        let session = &self.group.programs[device].session;
        if device == 0 {
            let conductor = Conductor { devices: self, opened: later };
            let caller = DispatchingCaller { caller: self.interpreter, dispatcher: &conductor };
            // SAFETY: the contract above.
            return unsafe { session.launch(&self.spec.code, self.slots, self.arrays, None, &caller) };
        }
        let ended = RefCell::new(None);
        let go = |launch: &dyn OpenLaunch| {
            let opened = Opened { launch, later };
            // SAFETY: the contract above.
            let end = nesting::beside_launch(|| unsafe { self.launch(device - 1, Some(&opened)) });
            let is_ok = end.is_ok();
            *ended.borrow_mut() = Some(end);
            if is_ok { Ok(()) } else { Err(ErrorKind::Interrupted.into()) }
        };
        let caller = DispatchingCaller { caller: self.interpreter, dispatcher: &Lender { go: &go } };
        let (code, slots) = (&self.spec.peers[device - 1], &self.others[device - 1]);
        // SAFETY: the contract above.
        let end = unsafe { session.launch(code, slots, self.arrays, None, &caller) };
        match ended.take() {
            Some(Ok(results)) => end.map(|_| results),
            Some(error) => error,
            None => end,
        }
    }
}

/// Opens the launch of a device that is not the first.
struct Lender<'a> {
    go: &'a dyn Fn(&dyn OpenLaunch) -> RuntimeResult<()>,
}

impl Dispatcher for Lender<'_> {
    fn dispatch(&self, _: usize, _: Draw, _: &mut dyn FnMut(i32, i32) -> RuntimeResult<()>) -> RuntimeResult<()> {
        Err(not_lent().into())
    }

    fn lend(&self, open: &dyn OpenLaunch) -> Option<RuntimeResult<()>> {
        Some((self.go)(open))
    }
}

/// Runs the launch of the first device, which queues the tasks of all.
struct Conductor<'a, 'b, 'c, 'py, L: HoldLater + ?Sized> {
    devices: &'a Devices<'b, 'c, 'py, L>,
    opened: Option<&'a Opened<'a>>,
}

impl<L: HoldLater + ?Sized> Conductor<'_, '_, '_, '_, L> {
    /// The open launches of the other devices, in order.
    fn others(&self) -> impl Iterator<Item = &dyn OpenLaunch> {
        std::iter::successors(self.opened, |opened| opened.later).map(|opened| opened.launch)
    }
}

impl<L: HoldLater + ?Sized> Dispatcher for Conductor<'_, '_, '_, '_, L> {
    fn dispatch(
        &self,
        task: usize,
        draw: Draw,
        run: &mut dyn FnMut(i32, i32) -> RuntimeResult<()>,
    ) -> RuntimeResult<()> {
        self.others().try_for_each(|open| open.finish_on_host())?;
        // As a launch of a rank that is a process, for all devices at each step.
        for method in ["begin_task", "finish_exchange", "end_task"] {
            let rows = |py: Python<'_>| self.devices.launch.bind(py).call_method1(method, (task,))?.extract();
            let rows: Option<Vec<Vec<(i32, i32)>>> = self.devices.interpreter.attached(rows);
            let mut rows = rows.ok_or(ErrorKind::Interrupted)?.into_iter();
            for (first, end) in rows.next().unwrap_or_default() {
                run(first, end)?;
            }
            for (open, ranges) in self.others().zip(rows) {
                for rows in ranges {
                    open.run_rows(task, draw, rows)?;
                }
            }
        }
        Ok(())
    }

    fn repeat_elsewhere(&self, task: usize, draw: Draw) -> RuntimeResult<()> {
        self.others().try_for_each(|open| open.run_whole(task, draw))
    }
}
