//! The device suite: tests of each vendor's driver on a device, through the runtime's types. Each vendor's test program
//! (`tests/gpu/main.rs` of its crate) includes this file.
//!
//! The program has a module `vendor` next to this one, with the vendor's part of the suite:
//!
//! - `open(&GpuConfig) -> Option<GpuDriver>`: the first device. Prints the reason and returns `None` if there is none;
//! - `code(name) -> Vec<u8>`: machine code or text of each kernel that [`kernels`] describes;
//! - `broken()`, `NOT_FOUND`, `ILLEGAL_ADDRESS`: code that cannot be loaded, and the messages of such errors;
//! - `library() -> Library` and `GRAPHS`: the vendor's library, and its functions that begin and end a capture, make a
//!   graph ready and launch it;
//! - `held() -> Vec<u64>` and `SLACK`: the library's counts of live objects, and the increase of each that is not a
//!   leak;
//! - `faults() -> String`: illegal calls since the last call;
//! - `PACE`: the factor for time limits relative to a GPU.

mod captures;
pub mod kernels;
mod launches;
mod losses;
mod memory;
mod streams;
mod stress;

use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use octants_driver_gpu::{GpuConfig, GpuDriver};
use octants_runtime::{Buffer, Device, DeviceConfig, Uninterruptible};

use crate::vendor;

/// Tests that count objects of the library or measure times use the device exclusively.
static ALONE: RwLock<()> = RwLock::new(());

/// A millisecond of the device's, in nanoseconds.
const MS: u64 = 1_000_000 * vendor::PACE;

/// Milliseconds of the device's since then.
fn ms_since(start: std::time::Instant) -> u64 {
    start.elapsed().as_nanos() as u64 / MS
}

/// A program on a device.
pub struct Gpu {
    /// The device.
    pub device: Device,
    printed: Arc<Mutex<String>>,
    #[allow(dead_code)] // Held until it is dropped.
    turn: Turn,
}

#[allow(dead_code)] // As above.
enum Turn {
    None,
    Shared(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

impl Gpu {
    /// The first GPU; `None` if there is none.
    pub fn open() -> Option<Gpu> {
        let turn = ALONE.read().unwrap_or_else(|p| p.into_inner());
        let mut gpu = Gpu::open_as(&GpuConfig::default())?;
        gpu.turn = Turn::Shared(turn);
        Some(gpu)
    }

    /// The same while no other test runs.
    pub fn open_alone() -> Option<Gpu> {
        let turn = ALONE.write().unwrap_or_else(|p| p.into_inner());
        let mut gpu = Gpu::open_as(&GpuConfig::default())?;
        gpu.turn = Turn::Alone(turn);
        Some(gpu)
    }

    /// Another program while one is open.
    pub fn open_as(config: &GpuConfig) -> Option<Gpu> {
        vendor::open(config).map(Gpu::with)
    }

    /// A program on a device that is open.
    pub fn with(driver: GpuDriver) -> Gpu {
        let printed = Arc::new(Mutex::new(String::new()));
        let to = printed.clone();
        let sink = Arc::new(move |t: &str| to.lock().unwrap().push_str(t));
        Gpu { device: Device::new(driver, DeviceConfig { seed: 1, sink }), printed, turn: Turn::None }
    }

    /// Memory for `n` i32 values.
    pub fn numbers(&self, n: u64) -> Buffer {
        self.device.allocate(4 * n).unwrap()
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // The test has checked its failure.
        let _ = self.device.close(&Uninterruptible);
        if !std::thread::panicking() {
            assert_eq!(vendor::faults(), "");
        }
    }
}

/// The i32 numbers in a buffer, after the work that writes them.
pub fn values(buffer: &Buffer) -> Vec<i32> {
    let mut bytes = vec![0; buffer.bytes() as usize];
    buffer.read(0, &mut bytes, &Uninterruptible).unwrap();
    bytes.chunks_exact(4).map(|b| i32::from_ne_bytes(b.try_into().unwrap())).collect()
}
