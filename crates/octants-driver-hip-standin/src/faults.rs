//! Faults: illegal calls of a program.

use std::sync::Mutex;

use crate::lock::lock;

static FAULTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Records a fault and prints it immediately, so that the output of a failed test explains it.
pub fn note(fault: impl Into<String>) {
    let fault = fault.into();
    eprintln!("stand-in for HIP: {fault}");
    lock(&FAULTS).push(fault);
}

/// Takes the recorded faults.
pub fn take() -> Vec<String> {
    std::mem::take(&mut lock(&FAULTS))
}
