//! Captured graphs that other processes can load, stored without addresses ([`SavedGraph`]).
//!
//! The memory that steps use is either named by the user or owned by the graph. The graph owns memory that was
//! allocated during the capture, and copies of the data that host fills and copies write. Anything that has no meaning
//! in another process is an error.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use octants_artifact::{
    Artifact, Key, SavedGraph, SavedKernel, SavedMemory, SavedPlace, SavedSlot, SavedStep, SavedWork,
};

use crate::buffer::Buffer;
use crate::caller::Caller;
use crate::capture::{CapturedLaunch, Step, Work};
use crate::captured_graph::CapturedGraph;
use crate::device::Device;
use crate::driver::DevicePtr;
use crate::error::{ErrorKind, Result};
use crate::kernel::LoadedKernel;
use crate::pattern::Pattern;

/// Memory that a graph is saved without: its name, its description, and its current address.
pub type NamedMemory = (String, String, Buffer);

fn refused<T>(message: String) -> Result<T> {
    Err(ErrorKind::Misuse { message }.into())
}

/// A part of a buffer, and the part of another one that takes its place.
pub struct MovedPart {
    /// The buffer that is used.
    pub from: Buffer,
    /// The buffer that will be used.
    pub to: Buffer,
    /// Byte offsets of the parts in their buffers.
    pub first: (u64, u64),
    /// Their size.
    pub bytes: u64,
}

impl MovedPart {
    /// Moves an address and the buffer that it is in.
    fn exchange(&self, buffer: &mut Buffer, at: &mut DevicePtr) -> bool {
        let within = at.0.wrapping_sub(self.from.address().0 + self.first.0);
        if within >= self.bytes {
            return false;
        }
        (*buffer, at.0) = (self.to.clone(), self.to.address().0 + self.first.1 + within);
        true
    }
}

impl CapturedGraph {
    /// The steps of the graph. Steps use memory that is `named`, or that the graph owns; `code` finds an artifact by
    /// its key.
    pub fn save(
        &self,
        named: &[NamedMemory],
        code: &dyn Fn(&Key) -> Option<Artifact>,
        caller: &dyn Caller,
    ) -> Result<SavedGraph> {
        let plan = self.lock();
        let own = plan.own.iter().map(|(buffer, holds)| (buffer.address().0, *holds)).collect();
        let saved = SavedGraph::default();
        let saving = Saving { named, own, code, caller, saved, kernels: BTreeMap::new(), places: HashMap::new() };
        saving.steps(&plan.steps)
    }

    /// Lets steps use other memory instead of some, from the next launch on. Each pair is as large.
    pub fn rebind(&self, pairs: &[(Buffer, Buffer)]) -> Result<()> {
        for (from, to) in pairs {
            if !to.is_of(self.device()) {
                return Err(ErrorKind::ForeignDevice { what: "array" }.into());
            }
            if from.bytes() != to.bytes() {
                return refused(format!("a graph that uses {} bytes cannot use {}", from.bytes(), to.bytes()));
            }
            let differs = |(other, target): &&(Buffer, Buffer)| {
                other.address() == from.address() && target.address() != to.address()
            };
            if pairs.iter().find(differs).is_some() {
                return refused("two fields of one tree cannot be replaced by fields of different trees".into());
            }
        }
        let mut plan = self.lock();
        plan.steps.iter_mut().for_each(|step| rebind(&mut step.work, pairs));
        plan.layout = None;
        Ok(())
    }

    /// How many fills and copies begin in a part of a buffer.
    pub fn transfers(&self, buffer: &Buffer, first: u64, bytes: u64) -> usize {
        let within = |at: &DevicePtr| at.0.wrapping_sub(buffer.address().0 + first) < bytes;
        let is_one = |step: &&Step| match &step.work {
            Work::Fill { at, .. } => within(at),
            Work::Copy { at, from_at, .. } => within(at) || within(from_at),
            Work::Launch(_) | Work::Foreign(_) | Work::Host(_) => false,
        };
        self.lock().steps.iter().filter(is_one).count()
    }

    /// Lets fills and copies use other memory, from the next launch on.
    pub fn move_transfers(&self, parts: &[MovedPart]) -> Result<()> {
        if parts.iter().any(|part| !part.to.is_of(self.device())) {
            return Err(ErrorKind::ForeignDevice { what: "array" }.into());
        }
        let move_one = |buffer: &mut Buffer, at: &mut DevicePtr| _ = parts.iter().any(|part| part.exchange(buffer, at));
        let mut plan = self.lock();
        for step in &mut plan.steps {
            match &mut step.work {
                Work::Fill { to, at, .. } => move_one(to, at),
                Work::Copy { to, at, from, from_at, .. } => {
                    move_one(to, at);
                    move_one(from, from_at);
                }
                Work::Launch(_) | Work::Foreign(_) | Work::Host(_) => {}
            }
        }
        plan.layout = None;
        Ok(())
    }

    /// The graph that was saved, on a device whose code it holds, with the memory that it names.
    pub fn load(device: &Device, saved: &SavedGraph, named: &HashMap<String, Buffer>) -> Result<CapturedGraph> {
        let kernel = |k: &SavedKernel| {
            let kernel = device.load(&k.artifact)?.with_pointers(k.pointers.clone());
            Ok(kernel.telling_addresses(k.exposes_addresses))
        };
        let kernels = saved.kernels.iter().map(kernel).collect::<Result<Vec<LoadedKernel>>>()?;
        let mut own = Vec::new();
        let mut memory = Vec::with_capacity(saved.memory.len());
        for one in &saved.memory {
            memory.push(match one {
                SavedMemory::Named { name, bytes, .. } => match named.get(name) {
                    Some(buffer) if buffer.bytes() == *bytes && buffer.is_of(device.core()) => buffer.clone(),
                    Some(buffer) => {
                        let given = buffer.bytes();
                        return refused(format!(
                            "`{name}` has {bytes} bytes in the graph, but {given} bytes were passed"
                        ));
                    }
                    None => return refused(format!("the graph needs `{name}`")),
                },
                SavedMemory::Own { bytes, holds } => {
                    let buffer = match holds {
                        Some(contents) => Buffer::holding(device.core(), contents)?,
                        None => device.allocate(*bytes)?,
                    };
                    own.push((buffer.clone(), holds.is_some()));
                    buffer
                }
            });
        }
        let loading = Loading { kernels: &kernels, memory: &memory, steps: saved.steps.len() };
        let steps = saved.steps.iter().enumerate().map(|(place, s)| loading.step(place, s)).collect::<Result<_>>()?;
        Ok(CapturedGraph::of_steps(device.core(), steps, Vec::new(), own))
    }
}

/// Lets a step use other memory instead of some.
fn rebind(work: &mut Work, pairs: &[(Buffer, Buffer)]) {
    let moved = |at: u64| {
        let from = |(from, _): &&(Buffer, Buffer)| at.wrapping_sub(from.address().0) < from.bytes();
        pairs.iter().find(from).map(|(from, to)| at - from.address().0 + to.address().0)
    };
    let other = |of: &Buffer| pairs.iter().find(|(from, _)| from.address() == of.address()).map(|(_, to)| to.clone());
    let exchange = |buffer: &mut Buffer, at: &mut DevicePtr| {
        if let Some(to) = other(buffer) {
            (*buffer, at.0) = (to, moved(at.0).unwrap_or(at.0));
        }
    };
    match work {
        Work::Launch(launch) => {
            let mut args = launch.args.clone();
            for p in launch.kernel.pointers.iter() {
                let slot = &mut args[p.slot as usize];
                *slot = moved(*slot).unwrap_or(*slot);
            }
            let buffers = launch.buffers.iter().map(|(b, writes)| (other(b).unwrap_or(b.clone()), *writes)).collect();
            let (kernel, arrays) = (launch.kernel.clone(), launch.arrays.clone());
            *launch = Arc::new(CapturedLaunch {
                kernel,
                args,
                arrays,
                buffers,
                foreign: launch.foreign,
                store: launch.store.clone(),
            });
        }
        Work::Fill { to, at, .. } => exchange(to, at),
        Work::Copy { to, at, from, from_at, .. } => {
            exchange(to, at);
            exchange(from, from_at);
        }
        Work::Foreign(_) | Work::Host(_) => {}
    }
}

struct Saving<'a> {
    named: &'a [NamedMemory],
    /// The graph's own memory, and whether it always holds the same.
    own: HashMap<u64, bool>,
    code: &'a dyn Fn(&Key) -> Option<Artifact>,
    caller: &'a dyn Caller,
    saved: SavedGraph,
    kernels: BTreeMap<Key, u32>,
    /// The index of each buffer in the saved memory.
    places: HashMap<u64, u32>,
}

impl<'a> Saving<'a> {
    fn steps(mut self, steps: &[Step]) -> Result<SavedGraph> {
        // Those without a step, which only waited, are left out.
        let lanes: BTreeSet<usize> = steps.iter().map(|s| s.lane).collect();
        for step in steps {
            let work = match &step.work {
                Work::Launch(launch) => self.launch(launch)?,
                Work::Fill { to, at, pattern, bytes } => {
                    let to = self.place(to, *at, "a fill")?;
                    SavedWork::Fill { to, pattern: pattern.repeat(1), bytes: *bytes }
                }
                Work::Copy { to, at, from, from_at, bytes } => {
                    let (to, from) = (self.place(to, *at, "a copy")?, self.place(from, *from_at, "a copy")?);
                    SavedWork::Copy { to, from, bytes: *bytes }
                }
                Work::Foreign(_) => {
                    return refused("one step is a graph of another library, which exists only in this process".into());
                }
                Work::Host(work) => {
                    let text = format!("one step, {}, exchanges memory with other ranks of this program", work.name);
                    return refused(text);
                }
            };
            let depends_on = step.depends_on.iter().map(|b| *b as u32).collect();
            let lane = lanes.range(..step.lane).count() as u32;
            self.saved.steps.push(SavedStep { lane, depends_on, work });
        }
        Ok(self.saved)
    }

    fn launch(&mut self, launch: &CapturedLaunch) -> Result<SavedWork> {
        let (kernel, name) = (&launch.kernel, &launch.kernel.meta.name);
        if !launch.arrays.is_empty() || launch.foreign {
            let what = "memory that is not the device's own (a numpy array, or an array of another library)";
            return refused(format!("kernel `{name}` uses {what}: pass an ndarray or a field"));
        }
        if launch.store.is_some() {
            let why = "stores a number of values that depends on memory, which only this process can count";
            return refused(format!("kernel `{name}` {why}"));
        }
        let is_address = |slot: usize| kernel.pointers.iter().any(|p| p.slot as usize == slot);
        let user = format!("kernel `{name}`");
        let mut args = Vec::with_capacity(launch.args.len());
        for (slot, &value) in launch.args.iter().enumerate() {
            let buffer = kernel.core.find_buffer(value).map(Buffer::of).filter(|_| value != 0);
            args.push(match (buffer, is_address(slot)) {
                (Some(buffer), true) => SavedSlot::At(self.place(&buffer, DevicePtr(value), &user)?),
                (None, true) if value != 0 => {
                    return refused(format!(
                        "{user} uses memory that is not the device's own: pass an ndarray or a field"
                    ));
                }
                (Some(_), false) => {
                    return refused(format!(
                        "{user} keeps its own values in memory, which exists only in this process"
                    ));
                }
                (None, _) => SavedSlot::Value(value),
            });
        }
        let kernel = self.kernel(kernel)?;
        Ok(SavedWork::Launch { kernel, args })
    }

    fn kernel(&mut self, kernel: &LoadedKernel) -> Result<u32> {
        let name = &kernel.meta.name;
        let known = kernel.kept_under.and_then(|key| self.kernels.get(&key).copied());
        if let Some(place) = known {
            return Ok(place);
        }
        let kept = kernel.kept_under.and_then(|key| Some((key, (self.code)(&key)?)));
        let Some((key, artifact)) = kept else {
            return refused(format!(
                "the code of kernel `{name}` is not cached on disk, which saving a graph needs (`offline_cache=True`)"
            ));
        };
        let place = self.saved.kernels.len() as u32;
        let pointers = kernel.pointers.to_vec();
        self.saved.kernels.push(SavedKernel { artifact, pointers, exposes_addresses: kernel.exposes_addresses });
        self.kernels.insert(key, place);
        Ok(place)
    }

    fn place(&mut self, buffer: &Buffer, at: DevicePtr, user: &str) -> Result<SavedPlace> {
        let address = buffer.address().0;
        let offset = at.0 - address;
        if let Some(&memory) = self.places.get(&address) {
            return Ok(SavedPlace { memory, offset });
        }
        let bytes = buffer.bytes();
        let named = self.named.iter().find(|(_, _, known)| known.address().0 == address);
        let saved = match (named, self.own.get(&address)) {
            (Some((name, what, _)), _) => SavedMemory::Named { name: name.clone(), what: what.clone(), bytes },
            (None, Some(false)) => SavedMemory::Own { bytes, holds: None },
            (None, Some(true)) => {
                let mut contents = vec![0; bytes as usize];
                buffer.read(0, &mut contents, self.caller)?;
                SavedMemory::Own { bytes, holds: Some(contents) }
            }
            (None, None) => {
                return refused(format!(
                    "{user} uses {bytes} bytes of memory without a name: name its array, or a field of its tree, as in \
                     `g.save(path, x=x)`"
                ));
            }
        };
        let memory = self.saved.memory.len() as u32;
        self.saved.memory.push(saved);
        self.places.insert(address, memory);
        Ok(SavedPlace { memory, offset })
    }
}

struct Loading<'a> {
    kernels: &'a [LoadedKernel],
    memory: &'a [Buffer],
    /// How many there are.
    steps: usize,
}

impl Loading<'_> {
    fn step(&self, place: usize, saved: &SavedStep) -> Result<Step> {
        let depends_on: Vec<usize> = saved.depends_on.iter().map(|b| *b as usize).collect();
        if depends_on.iter().any(|b| *b >= place) || saved.lane as usize >= self.steps {
            return damaged();
        }
        let work = match &saved.work {
            SavedWork::Launch { kernel, args } => self.launch(*kernel, args)?,
            SavedWork::Fill { to, pattern, bytes } => {
                let (to, at) = self.memory(*to, *bytes)?;
                let Some(pattern) = Pattern::of(pattern) else { return damaged() };
                Work::Fill { to, at, pattern, bytes: *bytes }
            }
            SavedWork::Copy { to, from, bytes } => {
                let ((to, at), (from, from_at)) = (self.memory(*to, *bytes)?, self.memory(*from, *bytes)?);
                Work::Copy { to, at, from, from_at, bytes: *bytes }
            }
        };
        Ok(Step { lane: saved.lane as usize, depends_on, work, site: None })
    }

    fn launch(&self, kernel: u32, saved: &[SavedSlot]) -> Result<Work> {
        let Some(kernel) = self.kernels.get(kernel as usize) else { return damaged() };
        if saved.len() != kernel.meta.arg_slots as usize {
            return damaged();
        }
        let (mut args, mut buffers) = (Vec::with_capacity(saved.len()), Vec::new());
        for (slot, value) in saved.iter().enumerate() {
            args.push(match value {
                SavedSlot::Value(value) => *value,
                SavedSlot::At(place) => {
                    let (buffer, at) = self.memory(*place, 0)?;
                    let written = kernel.pointers.iter().any(|p| p.slot as usize == slot && p.written);
                    if kernel.exposes_addresses {
                        buffer.expose();
                    }
                    buffers.push((buffer, written));
                    at.0
                }
            });
        }
        let launch = CapturedLaunch {
            kernel: kernel.clone(),
            args: args.into(),
            arrays: Box::default(),
            buffers: buffers.into(),
            foreign: false,
            store: None,
        };
        Ok(Work::Launch(Arc::new(launch)))
    }

    fn memory(&self, place: SavedPlace, bytes: u64) -> Result<(Buffer, DevicePtr)> {
        let Some(buffer) = self.memory.get(place.memory as usize) else { return damaged() };
        match buffer.at(place.offset, bytes) {
            Ok(at) => Ok((buffer.clone(), at)),
            Err(_) => damaged(),
        }
    }
}

fn damaged<T>() -> Result<T> {
    refused("the file is damaged: its steps do not fit its memory".into())
}
