//! Faults: forbidden calls of a program.

use std::sync::Mutex;

use crate::lock::lock;

static FAULTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Writes a fault down, and tells it at once: a test that fails later shows why.
pub fn note(fault: impl Into<String>) {
    let fault = fault.into();
    eprintln!("stand-in for HIP: {fault}");
    lock(&FAULTS).push(fault);
}

/// Takes out what was written down.
pub fn take() -> Vec<String> {
    std::mem::take(&mut lock(&FAULTS))
}
