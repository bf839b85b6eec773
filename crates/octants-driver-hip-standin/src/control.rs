//! Functions for tests, besides HIP's.

use std::ffi::{c_char, c_int};
use std::sync::atomic::Ordering;

use crate::exports::LAUNCHES;
use crate::faults;
use crate::lock::lock;
use crate::state::{SEED, state};

/// Sets the seed of what streams do; zero: they never sleep.
#[unsafe(no_mangle)]
pub extern "C" fn standin_set_seed(seed: u64) {
    state();
    SEED.store(seed, Ordering::Relaxed);
}

/// Takes out the faults since the last call, a line each, as far as there is room for them; returns how many there
/// were.
///
/// # Safety
/// There is room for that many bytes.
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

/// How much there is: streams, events, modules, pools; blocks of plain memory, of pools, of pinned memory; launches so
/// far.
///
/// # Safety
/// There is room for eight numbers.
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

/// Breaks a device: every call on it returns this code from now on, as after an error from which there is no way back.
/// Zero mends it.
#[unsafe(no_mangle)]
pub extern "C" fn standin_break(device: c_int, code: c_int) {
    if let Some(device) = state().devices.get(device as usize) {
        device.lost.store(code, Ordering::Release);
    }
}
