//! The driver on a real GPU, through the runtime's types. Without one every test says why it does nothing, and passes.
//!
//! Kernels are written by hand in [`kernels`], in the form that the code generator gives them.

#![allow(clippy::unwrap_used)]

mod kernels;
mod launches;
mod losses;
mod memory;
mod streams;
mod stress;

use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard};

use octants_driver_cuda::{CudaConfig, CudaDriver};
use octants_runtime::{Buffer, Device, DeviceConfig, Patient};

/// Tests that count the GPU's free memory hold it alone.
static MEMORY: RwLock<()> = RwLock::new(());

struct Gpu {
    device: Device,
    printed: Arc<Mutex<String>>,
    _shared: Option<RwLockReadGuard<'static, ()>>,
}

impl Gpu {
    /// The first GPU; `None` with a line that says why where there is none.
    fn open() -> Option<Gpu> {
        let shared = MEMORY.read().unwrap_or_else(|p| p.into_inner());
        Some(Gpu { _shared: Some(shared), ..Gpu::open_as(CudaDriver::open)? })
    }

    fn open_as(open: impl FnOnce(CudaConfig) -> Result<CudaDriver, octants_driver_cuda::Unavailable>) -> Option<Gpu> {
        match open(CudaConfig::default()) {
            Ok(driver) => {
                let printed = Arc::new(Mutex::new(String::new()));
                let to = printed.clone();
                let sink = Arc::new(move |t: &str| to.lock().unwrap().push_str(t));
                Some(Gpu { device: Device::new(driver, DeviceConfig { seed: 1, sink }), printed, _shared: None })
            }
            Err(reason) => {
                eprintln!("skipped: {reason}");
                None
            }
        }
    }

    fn numbers(&self, n: u64) -> Buffer {
        self.device.allocate(4 * n).unwrap()
    }
}

/// The i32 numbers in a buffer, after the work that writes them.
fn values(buffer: &Buffer) -> Vec<i32> {
    let mut bytes = vec![0; buffer.bytes() as usize];
    buffer.read(0, &mut bytes, &Patient).unwrap();
    bytes.chunks_exact(4).map(|b| i32::from_ne_bytes(b.try_into().unwrap())).collect()
}
