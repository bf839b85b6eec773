//! The library's state: devices, and the owners of objects. Handles are never reused, so the use of a destroyed object
//! can be distinguished from other mistakes.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::capture::Captures;
use crate::code::{Function, Module};
use crate::faults::note;
use crate::lock::lock;
use crate::memory::Memory;
use crate::outcome::{Outcome, code};
use crate::work::{Event, Graph, Stream};

/// The library's configuration.
#[derive(Debug)]
pub struct Settings {
    /// The reported version.
    pub version: i32,
    /// The reported architecture.
    pub architecture: String,
    /// Warp size.
    pub warp: u32,
    /// Memory per device, in bytes.
    pub memory: u64,
    /// Barriers of emulated code do nothing.
    pub no_barriers: bool,
    /// The indices of the visible devices.
    pub visible: Vec<i32>,
}

/// Number of devices.
const DEVICES: i32 = 2;

impl Settings {
    fn read() -> Settings {
        let read = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let number = |name: &str, default: u64| read(name).and_then(|t| t.parse().ok()).unwrap_or(default);
        let visible = match std::env::var("HIP_VISIBLE_DEVICES") {
            // The first invalid index ends the list.
            Ok(list) => {
                let asked = list.split(',').map(|n| n.trim().parse::<i32>().ok());
                asked.map_while(|n| n.filter(|n| (0..DEVICES).contains(n))).collect()
            }
            Err(_) => (0..DEVICES).collect(),
        };
        SEED.store(number("HIP_STANDIN_SEED", 0), Ordering::Relaxed);
        let architecture = read("HIP_STANDIN_ARCH").unwrap_or_else(|| "hostgpu-wave64:sramecc+:xnack-".into());
        Settings {
            version: number("HIP_STANDIN_VERSION", 60_300_000) as i32,
            warp: if architecture.contains("wave32") || architecture.starts_with("gfx1") { 32 } else { 64 },
            architecture,
            memory: number("HIP_STANDIN_MEMORY", 16 << 30),
            no_barriers: read("HIP_STANDIN_SABOTAGE").is_some_and(|s| s == "no-barriers"),
            visible,
        }
    }
}

/// The seed of the streams' schedule; zero: they never sleep.
pub static SEED: AtomicU64 = AtomicU64::new(0);

/// A device.
#[derive(Debug)]
pub struct Device {
    /// The null stream, ordered with all blocking streams.
    pub null: Arc<Stream>,
    /// Nonzero after an unrecoverable error.
    pub lost: AtomicI32,
}

/// The state of the library.
#[derive(Debug)]
pub struct State {
    /// The configuration.
    pub settings: Settings,
    /// The visible devices.
    pub devices: Vec<Device>,
    /// Streams, by handle.
    pub streams: Mutex<HashMap<u64, Arc<Stream>>>,
    /// Events.
    pub events: Mutex<HashMap<u64, Arc<Event>>>,
    /// Modules.
    pub modules: Mutex<HashMap<u64, Arc<Module>>>,
    /// Functions.
    pub functions: Mutex<HashMap<u64, Arc<Function>>>,
    /// Active captures.
    pub captures: Mutex<Captures>,
    /// Captured graphs.
    pub graphs: Mutex<HashMap<u64, Arc<Graph>>>,
    /// Instantiated graphs.
    pub ready_graphs: Mutex<HashMap<u64, Arc<Graph>>>,
    /// The device of each memory pool.
    pub pools: Mutex<BTreeMap<u64, i32>>,
    /// Memory.
    pub memory: Memory,
    next: AtomicU64,
}

/// The state.
pub fn state() -> &'static State {
    static STATE: OnceLock<State> = OnceLock::new();
    STATE.get_or_init(|| {
        let settings = Settings::read();
        let count = settings.visible.len() as i32;
        State {
            devices: (0..count).map(|n| Device { null: Stream::new(0, n, true), lost: AtomicI32::new(0) }).collect(),
            memory: Memory::new(settings.memory),
            settings,
            streams: Mutex::default(),
            events: Mutex::default(),
            modules: Mutex::default(),
            functions: Mutex::default(),
            captures: Mutex::default(),
            graphs: Mutex::default(),
            ready_graphs: Mutex::default(),
            pools: Mutex::default(),
            next: AtomicU64::new(0),
        }
    })
}

thread_local! {
    static CURRENT: Cell<i32> = const { Cell::new(0) };
}

/// The thread's current device.
pub fn current() -> i32 {
    CURRENT.get()
}

/// Sets the thread's current device.
pub fn set_current(device: i32) -> Outcome<()> {
    if device < 0 || device >= state().devices.len() as i32 {
        return Err(code::INVALID_DEVICE);
    }
    CURRENT.set(device);
    Ok(())
}

impl State {
    /// A new, unique handle.
    pub fn handle(&self) -> u64 {
        0x7a00_0000_0000 + 64 * self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The thread's current device; an error if it is lost.
    pub fn device(&self) -> Outcome<&Device> {
        let device = self.devices.get(current() as usize).ok_or(code::NO_DEVICE)?;
        match device.lost.load(Ordering::Acquire) {
            0 => Ok(device),
            lost => Err(lost),
        }
    }

    /// Reports a fault if an object's device is not current.
    pub fn check_device(&self, call: &str, what: &str, device: i32) -> Outcome<()> {
        if device == current() {
            return Ok(());
        }
        note(format!("{call}: a {what} of device {device} while the thread's device is {}", current()));
        Err(code::INVALID_HANDLE)
    }

    /// Looks up an object.
    pub fn find<T>(&self, call: &str, what: &str, of: &Mutex<HashMap<u64, Arc<T>>>, handle: u64) -> Outcome<Arc<T>> {
        lock(of).get(&handle).cloned().ok_or_else(|| {
            let given =
                handle >= 0x7a00_0000_0000 && handle < 0x7a00_0000_0000 + 64 * self.next.load(Ordering::Relaxed);
            let which = if given { "that was destroyed" } else { "that never was" };
            note(format!("{call}: a {what} {which} ({handle:#x})"));
            code::INVALID_HANDLE
        })
    }

    /// Looks up a stream of the current device.
    pub fn stream(&self, call: &str, handle: u64) -> Outcome<Arc<Stream>> {
        let device = self.device()?;
        if handle == 0 {
            return Ok(device.null.clone());
        }
        let stream = self.find(call, "stream", &self.streams, handle)?;
        self.check_device(call, "stream", stream.device)?;
        Ok(stream)
    }

    /// Looks up an event of the current device.
    pub fn event(&self, call: &str, handle: u64) -> Outcome<Arc<Event>> {
        self.device()?;
        let event = self.find(call, "event", &self.events, handle)?;
        self.check_device(call, "event", event.device)?;
        Ok(event)
    }

    /// The streams of a device, its null stream last.
    pub fn streams_of(&self, device: i32) -> Vec<Arc<Stream>> {
        let all = lock(&self.streams);
        let mut streams: Vec<_> = all.values().filter(|s| s.device == device).cloned().collect();
        streams.extend(self.devices.get(device as usize).map(|d| d.null.clone()));
        streams
    }
}
