//! Loaded code.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::code_object::Reader;
use crate::emulated::Emulator;
use crate::host_gpu::HostGpu;
use crate::outcome::{Outcome, code};
use crate::processor::{Code, Entry, Processor};

/// Loaded code.
pub struct Module {
    /// The device it was loaded on.
    pub device: i32,
    /// The code.
    pub code: Box<dyn Code>,
    /// Number of unfinished launches.
    pub queued: AtomicU64,
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Module").field("device", &self.device).field("queued", &self.queued).finish()
    }
}

/// A function of a module.
#[derive(Debug)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its code.
    pub module: Arc<Module>,
    /// The handle of the module.
    pub owner: u64,
    /// Its entry point.
    pub entry: Entry,
}

/// The processors. The first one that accepts an image loads it.
const PROCESSORS: &[&dyn Processor] = &[&HostGpu, &Emulator, &Reader];

/// Loads code.
///
/// # Safety
/// The image is a complete ELF file, or does not begin like one.
pub unsafe fn load(image: *const u8, device: i32) -> Outcome<Module> {
    // SAFETY: the contract above: the header says how long the file is.
    let bytes = unsafe {
        if std::slice::from_raw_parts(image, 4) != b"\x7fELF" {
            return Err(code::INVALID_IMAGE);
        }
        let head = std::slice::from_raw_parts(image, 64);
        let half = |at: usize| usize::from(u16::from_le_bytes([head[at], head[at + 1]]));
        let sections = head[40..48].iter().rev().fold(0usize, |n, b| n << 8 | usize::from(*b));
        std::slice::from_raw_parts(image, sections + half(58) * half(60))
    };
    let processor = PROCESSORS.iter().find(|p| p.takes(bytes)).ok_or(code::NO_BINARY_FOR_GPU)?;
    let code = processor.load(bytes).map_err(|why| {
        eprintln!("stand-in for HIP: code cannot be loaded: {why}");
        code::INVALID_IMAGE
    })?;
    Ok(Module { device, code, queued: AtomicU64::new(0) })
}
