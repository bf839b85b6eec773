//! Functions for tests, in addition to HIP's.

use std::ffi::{c_char, c_int};
use std::sync::atomic::Ordering;

use crate::exports::{LAUNCHES, RESIDENT_LAUNCHES};
use crate::faults;
use crate::lock::lock;
use crate::state::{SEED, state};

/// Sets the seed of the streams' schedule; zero: they never sleep.
#[unsafe(no_mangle)]
pub extern "C" fn standin_set_seed(seed: u64) {
    state();
    SEED.store(seed, Ordering::Relaxed);
}

/// Returns the number of faults since the last call, and writes them to a buffer, one per line, until it is full.
///
/// # Safety
/// The buffer has this many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn standin_take_faults(text: *mut c_char, room: usize) -> usize {
    state().memory.check_given_back();
    let faults = faults::take();
    let all = faults.join("\n");
    let length = all.len().min(room.saturating_sub(1));
    if room > 0 {
        // SAFETY: the contract above.
        unsafe {
            std::ptr::copy_nonoverlapping(all.as_ptr(), text.cast(), length);
            text.add(length).write(0);
        }
    }
    faults.len()
}

/// Writes counts of live objects: streams, events, modules, pools; blocks of device, pool and pinned memory; and the
/// number of launches so far.
///
/// # Safety
/// There is room for eight values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn standin_count(counts: *mut [u64; 8]) {
    let s = state();
    let [plain, pooled, pinned] = s.memory.live().map(|n| n as u64);
    let counted = [
        lock(&s.streams).len() as u64,
        lock(&s.events).len() as u64,
        lock(&s.modules).len() as u64,
        lock(&s.pools).len() as u64,
        plain,
        pooled,
        pinned,
        LAUNCHES.load(Ordering::Relaxed),
    ];
    // SAFETY: the contract above.
    unsafe { counts.write(counted) }
}

/// The number of launches so far whose blocks are resident at the same time.
#[unsafe(no_mangle)]
pub extern "C" fn standin_resident_launches() -> u64 {
    RESIDENT_LAUNCHES.load(Ordering::Relaxed)
}

/// Makes all further calls on a device return this code, as after an unrecoverable error. Zero repairs it.
#[unsafe(no_mangle)]
pub extern "C" fn standin_break(device: c_int, code: c_int) {
    if let Some(device) = state().devices.get(device as usize) {
        device.lost.store(code, Ordering::Release);
    }
}
