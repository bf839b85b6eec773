//! An unrecoverable error is reported once with its kernel; later errors say that the GPU is lost. Each such error
//! destroys the process's context, so each test runs in its own process.

use std::process::Command;

use octants_runtime::Uninterruptible;

use super::kernels::{answer, launch, mad};
use super::{Gpu, values};
use crate::vendor;

/// Runs one of the ignored tests below in its own process.
fn alone(name: &str) {
    if Gpu::open().is_none() {
        return;
    }
    let test = std::env::current_exe().unwrap();
    let ran =
        Command::new(test).args(["--ignored", "--exact", name, "--nocapture", "--test-threads=1"]).output().unwrap();
    let text = [ran.stdout, ran.stderr].concat();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&text));
    assert!(String::from_utf8_lossy(&text).contains("1 passed"), "{}", String::from_utf8_lossy(&text));
}

#[test]
fn an_illegal_address_names_the_kernel_and_the_remedy() {
    alone("suite::losses::child_with_an_illegal_address");
}

#[test]
#[ignore = "run by an_illegal_address_names_the_kernel_and_the_remedy"]
fn child_with_an_illegal_address() {
    let gpu = Gpu::open().unwrap();
    let (fine, bad, x) = (mad(&gpu), answer(&gpu), gpu.numbers(4));
    let (stream, other) = (gpu.device.create_stream(0).unwrap(), gpu.device.create_stream(0).unwrap());
    launch(&other, &fine, &x, (1, 1)).unwrap();
    assert_eq!(values(&x), [1; 4]);
    // SAFETY: the kernel violates the contract, which is the purpose of the test.
    let error = unsafe { stream.launch(&bad, &[0], &Uninterruptible) }.unwrap_err().to_string();
    for part in [vendor::ILLEGAL_ADDRESS, "code 700", "`answer`", "waiting for a stream", "restart"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(!error.contains("`mad`"), "that ran on another stream: {error}");
    let again =
        launch(&other, &fine, &x, (1, 1)).and_then(|()| other.synchronize(&Uninterruptible)).unwrap_err().to_string();
    assert!(again.contains("lost to this process") && again.contains("code 700"), "{again}");
    assert!(gpu.device.allocate(64).unwrap_err().to_string().contains("lost"));
    assert!(gpu.device.close(&Uninterruptible).is_err());
    vendor::faults();
    drop((fine, bad, x, stream, other, gpu));
}

#[test]
fn objects_left_at_process_exit_are_harmless() {
    alone("suite::losses::child_that_keeps_everything");
}

#[test]
#[ignore = "run by objects_left_at_process_exit_are_harmless"]
fn child_that_keeps_everything() {
    struct AtEnd(#[allow(dead_code)] Box<dyn std::any::Any>);
    thread_local! {
        static KEPT: std::cell::RefCell<Option<AtEnd>> = const { std::cell::RefCell::new(None) };
    }
    let gpu = Gpu::open().unwrap();
    let (kernel, x, stream) = (mad(&gpu), gpu.numbers(4), gpu.device.create_stream(0).unwrap());
    launch(&stream, &kernel, &x, (1, 1)).unwrap();
    // Dropped when the thread ends, and leaked if that is too late.
    KEPT.with(|k| *k.borrow_mut() = Some(AtEnd(Box::new((kernel, x, stream, gpu.device.clone())))));
    let left = (mad(&gpu), gpu.numbers(4), gpu.device.create_stream(0).unwrap());
    std::mem::forget(left);
}
