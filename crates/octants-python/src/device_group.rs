//! [`DeviceGroup`]: the devices of `init(devices=...)`, which launches on split arrays use together, and what these
//! launches share: copies of the first device's memory on the others, and a stream of each device for exchanges.

use std::sync::{Arc, Mutex, PoisonError};

use octants_engine::runtime::{self, Mirrors, PeerCopy, PeerRange};
use pyo3::prelude::*;
use smallvec::SmallVec;

use crate::buffer::Buffer;
use crate::program::{self, Program};
use crate::stream::Stream;
use crate::waiting::{raised, waiting};
use crate::{detached, errors};

/// Several devices of this process.
pub struct DeviceGroup {
    /// Their programs, the default one first.
    pub programs: Vec<Arc<Program>>,
    /// The mirrors of each device but the first.
    pub mirrors: Vec<Mirrors>,
    exchanges_on: Vec<runtime::Stream>,
}

/// The location of a split array's block on one device.
pub struct Part {
    /// The kernel's buffer.
    pub buffer: u32,
    /// The address of row zero.
    pub address: u64,
    /// The memory of the block.
    pub memory: runtime::Buffer,
}

/// A launch on several devices: see `kernel/group_launch.rs`.
pub struct GroupLaunch<'py> {
    /// The devices.
    pub group: Arc<DeviceGroup>,
    /// For each device its blocks.
    pub parts: Vec<Vec<Part>>,
    /// The argument slots of each device but the first.
    pub slots: Vec<SmallVec<[u64; 64]>>,
    /// The package's object.
    pub launch: Bound<'py, PyAny>,
}

static GROUP: Mutex<Option<Arc<DeviceGroup>>> = Mutex::new(None);

impl DeviceGroup {
    /// The group whose first device belongs to a running program.
    pub fn led_by(serial: u64) -> Option<Arc<DeviceGroup>> {
        let group = GROUP.lock().unwrap_or_else(PoisonError::into_inner);
        group.clone().filter(|group| group.programs[0].serial == serial && group.programs[0].session.device().alive())
    }
}

/// Makes these programs the devices of launches on split arrays. With fewer than two, there is no such group.
#[pyfunction]
pub fn set_device_group(py: Python<'_>, serials: Vec<u64>) -> PyResult<()> {
    let programs: Vec<_> =
        serials.iter().map(|&serial| program::require_of(py, serial, "device")).collect::<PyResult<_>>()?;
    let group = match &*programs {
        [] | [_] => None,
        [first, others @ ..] => {
            let device = first.session.device();
            let mirrors = others.iter().map(|other| Mirrors::new(device, other.session.device())).collect();
            let stream = |p: &Arc<Program>| p.session.device().create_stream(0);
            let streams = detached::working(py, || programs.iter().map(stream).collect::<Result<_, _>>());
            let exchanges_on = streams.map_err(|e| raised(py, e))?;
            Some(Arc::new(DeviceGroup { programs, mirrors, exchanges_on }))
        }
    };
    let old = std::mem::replace(&mut *GROUP.lock().unwrap_or_else(PoisonError::into_inner), group);
    // Outside the lock.
    drop(old);
    Ok(())
}

/// The programs of the group that the current program leads; empty if it leads none.
#[pyfunction]
pub fn device_group() -> Vec<u64> {
    let group = DeviceGroup::led_by(program::current_serial());
    group.map_or_else(Vec::new, |group| group.programs.iter().map(|program| program.serial).collect())
}

/// The memory of a program that holds an address, and the offset of the address in it.
#[pyfunction]
pub fn buffer_at(py: Python<'_>, serial: u64, address: u64) -> PyResult<(Buffer, u64)> {
    let program = program::require_of(py, serial, "device")?;
    match program.session.device().buffer_at(address) {
        Some(memory) => {
            let buffer = Buffer::of(memory, serial);
            let first = buffer.address(py)?;
            Ok((buffer, address - first))
        }
        None => Err(errors::runtime_error(py, format!("compiler bug: {address:#x} is not memory of {}", program.name))),
    }
}

/// A range of bytes on a device: its position in the group, the memory, the first byte.
type Place = (usize, Py<Buffer>, u64);

/// Copies between the devices of a group that launches make again and again.
#[pyclass(module = "octants._octants", frozen)]
pub struct PeerExchange {
    inner: runtime::PeerExchange,
}

#[pymethods]
impl PeerExchange {
    /// `copies`: where to, where from, how many bytes.
    #[new]
    fn new(py: Python<'_>, copies: Vec<(Place, Place, u64)>) -> PyResult<PeerExchange> {
        let group = DeviceGroup::led_by(program::default(py)?.serial);
        let group = group.ok_or_else(|| errors::runtime_error(py, "the program has only one device"))?;
        let range =
            |(device, buffer, offset): Place| PeerRange { device, buffer: buffer.get().memory().clone(), offset };
        let copies = copies.into_iter().map(|(to, from, bytes)| PeerCopy { to: range(to), from: range(from), bytes });
        let devices: Vec<_> = group.programs.iter().map(|program| program.session.device()).collect();
        let inner = runtime::PeerExchange::new(&devices, &group.exchanges_on, copies.collect());
        Ok(PeerExchange { inner: inner.map_err(|e| raised(py, e))? })
    }

    /// Begins the copies, after the work that is queued on these streams, one of each device.
    fn begin(&self, py: Python<'_>, streams: Vec<Py<Stream>>) -> PyResult<()> {
        let streams = opened(py, &streams)?;
        waiting(py, |caller| self.inner.begin(&streams, caller))
    }

    /// Makes later work on these streams come after the copies.
    fn finish(&self, py: Python<'_>, streams: Vec<Py<Stream>>) -> PyResult<()> {
        let streams = opened(py, &streams)?;
        waiting(py, |caller| self.inner.finish(&streams, caller))
    }
}

fn opened(py: Python<'_>, streams: &[Py<Stream>]) -> PyResult<Vec<runtime::Stream>> {
    streams.iter().map(|stream| stream.get().open(py)).collect()
}
