//! [`AccessibleMemory`]: the memory that a wave can access: device memory, and the block's shared memory.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::fault::Fault;

/// Decides which memory of the process the device may access.
pub trait AddressSpace: Sync {
    /// The allocation that contains an address, if the device may access it now.
    fn block(&self, address: u64) -> Option<Range<u64>>;
}

/// Deliberate emulation errors, to check that tests detect them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultInjection {
    /// Barriers do nothing.
    pub no_barriers: bool,
}

/// The memory that a launch can access.
pub struct AccessibleMemory<'a> {
    /// The device's memory.
    pub memory: &'a dyn AddressSpace,
    /// Injected errors.
    pub faults: FaultInjection,
    /// Cache of looked-up allocations, most recent first.
    known: RefCell<Vec<Range<u64>>>,
}

impl std::fmt::Debug for AccessibleMemory<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessibleMemory").field("sabotage", &self.faults).finish()
    }
}

impl<'a> AccessibleMemory<'a> {
    /// The memory of a launch; `own` is memory of the launch itself.
    pub fn new(memory: &'a dyn AddressSpace, faults: FaultInjection, own: Vec<Range<u64>>) -> AccessibleMemory<'a> {
        AccessibleMemory { memory, faults, known: RefCell::new(own) }
    }

    /// Fails if the address range is not accessible.
    pub fn check(&self, address: u64, bytes: u64) -> Result<(), Fault> {
        let mut known = self.known.borrow_mut();
        let holds = |range: &Range<u64>| range.start <= address && address + bytes <= range.end;
        match known.iter().position(holds) {
            Some(0) => Ok(()),
            Some(at) => {
                known.swap(0, at);
                Ok(())
            }
            None => match self.memory.block(address) {
                Some(block) if holds(&block) => {
                    known.insert(0, block);
                    Ok(())
                }
                Some(block) => Err(Fault::address(format!(
                    "{bytes} bytes at {address:#x}, of which {} are past the end of {} bytes",
                    address + bytes - block.end,
                    block.end - block.start
                ))),
                None => Err(Fault::address(format!("{bytes} bytes at {address:#x}, where there is no memory"))),
            },
        }
    }

    /// Loads 8 to 64 bits from device memory.
    pub fn load(&self, address: u64, bits: u32) -> Result<u64, Fault> {
        self.check(address, u64::from(bits / 8))?;
        // SAFETY: the memory is accessible. Other threads may write to it, so aligned words are read atomically.
        Ok(unsafe {
            match bits {
                8 => (address as *const u8).read_volatile().into(),
                16 => (address as *const u16).read_unaligned().into(),
                32 if address.is_multiple_of(4) => (*(address as *const AtomicU32)).load(Ordering::Relaxed).into(),
                32 => (address as *const u32).read_unaligned().into(),
                _ if address.is_multiple_of(8) => (*(address as *const AtomicU64)).load(Ordering::Relaxed),
                _ => (address as *const u64).read_unaligned(),
            }
        })
    }

    /// Stores 8 to 64 bits.
    pub fn store(&self, address: u64, bits: u32, value: u64) -> Result<(), Fault> {
        self.check(address, u64::from(bits / 8))?;
        // SAFETY: as above.
        unsafe {
            match bits {
                8 => (address as *mut u8).write_volatile(value as u8),
                16 => (address as *mut u16).write_unaligned(value as u16),
                32 if address.is_multiple_of(4) => {
                    (*(address as *const AtomicU32)).store(value as u32, Ordering::Relaxed)
                }
                32 => (address as *mut u32).write_unaligned(value as u32),
                _ if address.is_multiple_of(8) => (*(address as *const AtomicU64)).store(value, Ordering::Relaxed),
                _ => (address as *mut u64).write_unaligned(value),
            }
        }
        Ok(())
    }

    /// Atomically replaces a word of 32 or 64 bits by a function of it. Returns the old value.
    pub fn update(&self, address: u64, bits: u32, change: &dyn Fn(u64) -> u64) -> Result<u64, Fault> {
        let bytes = u64::from(bits / 8);
        self.check(address, bytes)?;
        if !address.is_multiple_of(bytes) {
            return Err(Fault::address(format!(
                "an atomic update of {bytes} bytes at {address:#x}, which is not aligned"
            )));
        }
        // SAFETY: the memory is accessible and aligned.
        Ok(unsafe {
            if bits == 32 {
                let word = &*(address as *const AtomicU32);
                let changed = |old: u32| Some(change(old.into()) as u32);
                word.fetch_update(Ordering::AcqRel, Ordering::Acquire, changed).unwrap_or_else(|old| old).into()
            } else {
                let word = &*(address as *const AtomicU64);
                let changed = |old| Some(change(old));
                word.fetch_update(Ordering::AcqRel, Ordering::Acquire, changed).unwrap_or_else(|old| old)
            }
        })
    }
}

/// Reads up to 64 bits of shared or private memory.
pub fn read_own(memory: &[u8], what: &str, at: u64, bits: u32) -> Result<u64, Fault> {
    let bytes = own(memory.len(), what, at, bits)?;
    Ok(memory[bytes].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
}

/// Writes up to 64 bits of shared or private memory.
pub fn write_own(memory: &mut [u8], what: &str, at: u64, bits: u32, value: u64) -> Result<(), Fault> {
    let bytes = own(memory.len(), what, at, bits)?;
    let count = bytes.len();
    memory[bytes].copy_from_slice(&value.to_le_bytes()[..count]);
    Ok(())
}

fn own(all: usize, what: &str, at: u64, bits: u32) -> Result<Range<usize>, Fault> {
    let bytes = u64::from(bits / 8);
    if at + bytes <= all as u64 {
        return Ok(at as usize..(at + bytes) as usize);
    }
    Err(Fault::address(format!("{bytes} bytes at {at} of {all} bytes of {what} memory")))
}
