//! The driver on a real GPU, through the runtime's types. Without one every test says why it does nothing, and passes.
//!
//! Kernels are written by hand in [`kernels`], in the form that the code generator gives them.

#![allow(clippy::unwrap_used)]

mod foreign;
mod kernels;
mod launches;
mod losses;
mod memory;
mod streams;
mod stress;

use std::sync::{Arc, Mutex, Once, RwLock, RwLockReadGuard, RwLockWriteGuard};

use octants_driver_gpu::GpuConfig;
use octants_runtime::{Buffer, Device, DeviceConfig, Patient};

/// Tests that count the GPU's free memory, or the time that something takes, hold it alone.
static ALONE: RwLock<()> = RwLock::new(());

static QUEUES: Once = Once::new();

struct Gpu {
    device: Device,
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
    /// The first GPU; `None` with a line that says why where there is none.
    fn open() -> Option<Gpu> {
        let turn = ALONE.read().unwrap_or_else(|p| p.into_inner());
        let mut gpu = Gpu::open_as(&GpuConfig::default())?;
        gpu.turn = Turn::Shared(turn);
        Some(gpu)
    }

    /// The same while no other test runs.
    fn open_alone() -> Option<Gpu> {
        let turn = ALONE.write().unwrap_or_else(|p| p.into_inner());
        let mut gpu = Gpu::open_as(&GpuConfig::default())?;
        gpu.turn = Turn::Alone(turn);
        Some(gpu)
    }

    fn open_as(config: &GpuConfig) -> Option<Gpu> {
        // As many queues of the GPU as there can be: streams that share one can wait for each other, which tests would see.
        QUEUES.call_once(|| {
            // SAFETY: the driver's library, which asks for it, is not loaded yet; tests look at no other variable.
            unsafe { std::env::set_var("CUDA_DEVICE_MAX_CONNECTIONS", "32") }
        });
        match octants_driver_cuda::open(config) {
            Ok(driver) => {
                let printed = Arc::new(Mutex::new(String::new()));
                let to = printed.clone();
                let sink = Arc::new(move |t: &str| to.lock().unwrap().push_str(t));
                Some(Gpu { device: Device::new(driver, DeviceConfig { seed: 1, sink }), printed, turn: Turn::None })
            }
            Err(reason) => {
                // A GPU that is there and cannot be used is no reason to be content.
                assert!(reason.0.starts_with("no NVIDIA"), "{reason}");
                eprintln!("skipped: {reason}");
                None
            }
        }
    }

    fn numbers(&self, n: u64) -> Buffer {
        self.device.allocate(4 * n).unwrap()
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // What failed in it was looked at by the test.
        let _ = self.device.close(&Patient);
    }
}

/// The i32 numbers in a buffer, after the work that writes them.
fn values(buffer: &Buffer) -> Vec<i32> {
    let mut bytes = vec![0; buffer.bytes() as usize];
    buffer.read(0, &mut bytes, &Patient).unwrap();
    bytes.chunks_exact(4).map(|b| i32::from_ne_bytes(b.try_into().unwrap())).collect()
}
