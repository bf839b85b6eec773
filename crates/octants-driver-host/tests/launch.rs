//! Launches on the CPU, with code made by the C compiler.

#![allow(clippy::unwrap_used)]

mod hand_made;

use std::cell::Cell;
use std::sync::{Arc, OnceLock};

use hand_made::{artifact, compile, device, ints, parallel, serial};
use octants_artifact::{ScalarKind, TaskMeta};
use octants_driver_host::{HostConfig, HostDriver};
use octants_runtime::{Caller, Device, DeviceConfig, ErrorKind, LoadedKernel, Results, Uninterruptible};

fn launch(device: &Device, kernel: &LoadedKernel, args: &[u64]) -> octants_runtime::Result<Option<Results>> {
    // SAFETY: tests pass addresses of buffers that live, with their extents.
    unsafe { device.default_stream().launch(kernel, args, &Uninterruptible) }
}

#[test]
fn serial_and_parallel_tasks_share_the_frame_and_return_results() {
    let (device, _) = device(Some(3));
    let mut a =
        artifact(1, vec![serial("square_to_frame"), parallel("count_up", "count_frame", 1.0), serial("results")]);
    a.result = vec![ScalarKind::U64, ScalarKind::F64, ScalarKind::U64, ScalarKind::U64, ScalarKind::I32];
    let kernel = device.load(&a).unwrap();
    for (number, n) in [2u64, 1000, 3, 5000].into_iter().enumerate() {
        let results = launch(&device, &kernel, &[n]).unwrap().unwrap();
        let slots = results.slots();
        assert_eq!(slots[0], n * n);
        assert!((f64::from_bits(slots[1]) - (n as f64).sin()).abs() < 1e-12);
        assert_eq!(slots[2..], [42, number as u64, 55]);
    }
}

#[test]
fn every_iteration_runs_once_for_each_size() {
    for threads in [1, 2, 4] {
        let (device, _) = device(Some(threads));
        let kernel = device.load(&artifact(2, vec![parallel("increment", "count_arg1", 5.0)])).unwrap();
        for n in [0usize, 1, 63, 1000, 100_000, 1_000_003] {
            let buffer = device.allocate(4 * n as u64).unwrap();
            for _ in 0..10 {
                launch(&device, &kernel, &[buffer.ptr().unwrap(), n as u64]).unwrap();
            }
            assert!(ints(&device, &buffer, n).iter().all(|&x| x == 10), "{threads} {n}");
        }
    }
}

#[test]
fn denormals_are_flushed_only_for_code_that_requests_it() {
    for threads in [1, 3] {
        let (device, _) = device(Some(threads));
        let task = parallel("square_floats", "count_arg1", 5.0);
        let flushing = TaskMeta { flushes_denormals: true, ..task.clone() };
        let n = 1 << 20;
        let squares = |task: &TaskMeta| {
            let kernel = device.load(&artifact(2, vec![task.clone()])).unwrap();
            let buffer = device.allocate(4 * n).unwrap();
            let small: Vec<u8> = (0..n).flat_map(|_| 1e-20f32.to_ne_bytes()).collect();
            device.default_stream().write(&buffer, 0, &small, &Uninterruptible).unwrap();
            launch(&device, &kernel, &[buffer.ptr().unwrap(), n]).unwrap();
            ints(&device, &buffer, n as usize)
        };
        let square = (1e-20f32 * 1e-20f32).to_bits() as i32;
        assert!(squares(&task).iter().all(|x| *x == square));
        if cfg!(all(target_arch = "x86_64", not(windows))) {
            assert!(squares(&flushing).iter().all(|x| *x == 0));
        }
        // The threads' own arithmetic is as it was.
        assert!(squares(&task).iter().all(|x| *x == square));
    }
}

#[test]
fn one_thread_runs_the_code_without_atomics() {
    let mut task = parallel("sum_shared", "count_arg1", 1e-3);
    task.single_thread_symbol = Some("sum_alone".into());
    let sum = |threads, n: u64| {
        let (device, _) = device(Some(threads));
        let kernel = device.load(&artifact(2, vec![task.clone()])).unwrap();
        let buffer = device.allocate(16).unwrap();
        launch(&device, &kernel, &[buffer.ptr().unwrap(), n]).unwrap();
        let mut bytes = [0; 16];
        device.default_stream().read(&buffer, 0, &mut bytes, &Uninterruptible).unwrap();
        let at = |i: usize| i64::from_ne_bytes(bytes[i..i + 8].try_into().unwrap());
        assert_eq!(at(0), (n * (n - 1) / 2) as i64);
        at(8)
    };
    assert_eq!(sum(1, 1 << 24), 1);
    assert_eq!(sum(2, 100), 1);
    assert_eq!(sum(2, 1 << 24), 0);
}

#[test]
fn text_is_printed_in_order_and_flushed_at_the_end_of_a_launch() {
    let (device, text) = device(Some(2));
    let kernel = device.load(&artifact(1, vec![serial("print_numbers")])).unwrap();
    assert!(kernel.meta().prints());
    launch(&device, &kernel, &[2000]).unwrap();
    let text = text.lock().unwrap();
    let expected: String = (0..2000).map(|i| format!("i = {i}, half = {:.1}\n", i as f64 / 2.0)).collect();
    assert_eq!(*text, expected);
}

#[test]
fn a_failed_assertion_is_reported_once_and_other_iterations_continue() {
    let (device, _) = device(Some(3));
    let tasks = vec![parallel("fail_some", "count_arg1", 10.0), serial("nothing")];
    let kernel = device.load(&artifact(2, tasks)).unwrap();
    let n = 10_000;
    let buffer = device.allocate(4 * n as u64).unwrap();
    let error = launch(&device, &kernel, &[buffer.ptr().unwrap(), n as u64]).unwrap_err();
    let ErrorKind::Assertion(failure) = error.kind() else { panic!("{error}") };
    assert_eq!((failure.kernel.as_str(), failure.location.as_str()), ("kernel", "file.py:7"));
    let i: i64 = failure.message.strip_prefix("bad i: ").unwrap().parse().unwrap();
    assert_eq!(i % 100, 0);
    assert_eq!(ints(&device, &buffer, n).iter().filter(|&&x| x == 0).count(), n / 100);
    device.synchronize(&Uninterruptible).unwrap();
}

#[test]
fn concurrent_launches_of_several_threads_are_serialized() {
    let (device, _) = device(Some(2));
    let mut task = parallel("sum_shared", "count_arg1", 1.0);
    task.single_thread_symbol = Some("sum_alone".into());
    let kernel = device.load(&artifact(2, vec![task])).unwrap();
    let buffer = device.allocate(16).unwrap();
    let address = buffer.ptr().unwrap();
    std::thread::scope(|s| {
        for n in [10u64, 100, 50_000, 7, 9_000, 30] {
            let (device, kernel) = (&device, &kernel);
            s.spawn(move || (0..300).for_each(|_| drop(launch(device, kernel, &[address, n]).unwrap())));
        }
    });
    let expected: u64 = [10u64, 100, 50_000, 7, 9_000, 30].iter().map(|n| 300 * (n * (n - 1) / 2)).sum();
    let mut bytes = [0; 8];
    device.default_stream().read(&buffer, 0, &mut bytes, &Uninterruptible).unwrap();
    assert_eq!(u64::from_ne_bytes(bytes), expected);
}

#[test]
fn a_launch_from_within_a_launch_runs_inline() {
    static DEVICE: OnceLock<(Device, LoadedKernel, u64)> = OnceLock::new();
    let sink = |_: &str| {
        let (device, inner, address) = DEVICE.get().unwrap();
        launch(device, inner, &[*address, 100_000]).unwrap();
    };
    let config = DeviceConfig { seed: 0, sink: Arc::new(sink) };
    let device = Device::new(HostDriver::new(HostConfig { max_threads: Some(2), ..HostConfig::default() }), config);
    let buffer = device.allocate(400_000).unwrap();
    let inner = device.load(&artifact(2, vec![parallel("increment", "count_arg1", 5.0)])).unwrap();
    let outer = device.load(&artifact(1, vec![serial("print_numbers")])).unwrap();
    assert!(DEVICE.set((device.clone(), inner, buffer.ptr().unwrap())).is_ok());
    launch(&device, &outer, &[5000]).unwrap();
    let seen = ints(&device, &buffer, 100_000);
    assert!(seen[0] >= 2 && seen.iter().all(|&x| x == seen[0]));
}

#[test]
fn the_callback_runs_only_before_long_work() {
    struct Counting(Cell<u32>);
    impl Caller for Counting {
        fn will_block(&self) {
            self.0.set(self.0.get() + 1);
        }
    }
    let (device, _) = device(Some(2));
    let told = |kernel: &LoadedKernel, args: &[u64], times| {
        let caller = Counting(Cell::new(0));
        for _ in 0..times {
            // SAFETY: as in `launch`.
            unsafe { device.default_stream().launch(kernel, args, &caller) }.unwrap();
        }
        caller.0.get()
    };
    let buffer = device.allocate(4 << 20).unwrap();
    let load = || device.load(&artifact(2, vec![parallel("increment", "count_arg1", 0.3)])).unwrap();
    // The first runs are measured: on a busy machine all of them may have been interrupted, so that the task is taken
    // to be long.
    let quick = || {
        let small = load();
        told(&small, &[buffer.ptr().unwrap(), 100], 4);
        told(&small, &[buffer.ptr().unwrap(), 100], 20) == 0
    };
    assert!((0..20).any(|_| quick()));
    let small = load();
    assert_eq!(told(&small, &[buffer.ptr().unwrap(), 1 << 20], 20), 20);
    let spin = device.load(&artifact(1, vec![serial("spin")])).unwrap();
    assert_eq!(told(&spin, &[1_000_000], 10), 10);
}

#[test]
fn polling_code_stops_when_the_caller_is_interrupted() {
    /// Is interrupted after a number of polls.
    struct Impatient(Cell<u32>);
    impl Caller for Impatient {
        fn will_block(&self) {}

        fn can_be_interrupted(&self) -> bool {
            true
        }

        fn is_interrupted(&self) -> bool {
            self.0.set(self.0.get().saturating_sub(1));
            self.0.get() == 0
        }
    }
    let polls = |task: TaskMeta| TaskMeta { polls: true, flushes_denormals: true, ..task };
    for threads in [1, 3] {
        let (device, _) = device(Some(threads));
        let buffer = device.allocate(4 * 100).unwrap();
        let endless = device.load(&artifact(2, vec![polls(serial("endless"))])).unwrap();
        let last = polls(parallel("last_endless", "count_arg1", 1e5));
        let last = device.load(&artifact(2, vec![last])).unwrap();
        for kernel in [&endless, &last, &endless] {
            // SAFETY: as in `launch`.
            let end = unsafe {
                device.default_stream().launch(kernel, &[buffer.ptr().unwrap(), 100], &Impatient(Cell::new(4)))
            };
            assert_eq!(*end.unwrap_err().kind(), ErrorKind::Interrupted);
            // The processor is set back.
            assert_ne!(std::hint::black_box(1e-30f32) * std::hint::black_box(1e-10f32), 0.0);
            let increment = device.load(&artifact(2, vec![parallel("increment", "count_arg1", 0.3)])).unwrap();
            let before = ints(&device, &buffer, 100);
            launch(&device, &increment, &[buffer.ptr().unwrap(), 100]).unwrap();
            let after = ints(&device, &buffer, 100);
            assert!(before.iter().zip(&after).all(|(b, a)| b.wrapping_add(1) == *a), "{threads}");
        }
    }
}

#[test]
fn errors_of_loading_code_state_the_cause() {
    let (device, _) = device(Some(1));
    let mut missing = artifact(0, vec![serial("calls_missing")]);
    missing.modules = vec![compile("missing.c")];
    let error = device.load(&missing).unwrap_err().to_string();
    assert!(error.contains("kernel `kernel`") && error.contains("no_such_function_anywhere"), "{error}");
    let error = device.load(&artifact(0, vec![serial("not_there")])).unwrap_err().to_string();
    assert!(error.contains("not_there"), "{error}");
    let mut broken = artifact(0, vec![serial("nothing")]);
    broken.modules = vec![b"not an object".to_vec()];
    assert!(matches!(device.load(&broken).unwrap_err().kind(), ErrorKind::Load { .. }));
    // The linker still works.
    let kernel = device.load(&artifact(0, vec![serial("nothing")])).unwrap();
    assert_eq!(launch(&device, &kernel, &[]).unwrap(), None);
}

#[test]
fn modules_with_the_same_names_load_and_unload() {
    let (device, _) = device(Some(1));
    let buffer = device.allocate(4).unwrap();
    let args = [buffer.ptr().unwrap(), 1];
    let a = artifact(2, vec![parallel("increment", "count_arg1", 1.0)]);
    for _ in 0..20 {
        let kernels: Vec<_> = (0..10).map(|_| device.load(&a).unwrap()).collect();
        kernels.iter().for_each(|k| drop(launch(&device, k, &args).unwrap()));
    }
    assert_eq!(ints(&device, &buffer, 1), [200]);
    // Several threads may load concurrently.
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| (0..10).for_each(|_| drop(device.load(&a).unwrap())));
        }
    });
}

#[test]
fn objects_of_a_closed_device_are_refused() {
    let (old, _) = device(Some(2));
    let (new, _) = device(Some(2));
    let buffer = old.allocate(1 << 20).unwrap();
    let kept = old.allocate(64).unwrap();
    let pinned = kept.pin().unwrap();
    let kernel = old.load(&artifact(2, vec![parallel("increment", "count_arg1", 1.0)])).unwrap();
    let args = [buffer.ptr().unwrap(), 10];
    assert!(matches!(launch(&new, &kernel, &args).unwrap_err().kind(), ErrorKind::ForeignDevice { .. }));
    assert_eq!(old.bytes_in_use(), (1 << 20) + 64);
    old.close(&Uninterruptible).unwrap();
    old.close(&Uninterruptible).unwrap();
    // Closing releases all memory that is not pinned.
    assert_eq!(old.bytes_in_use(), 64);
    assert!(!buffer.alive() && !kernel.alive() && !old.alive());
    let gone = |e: octants_runtime::DeviceError| assert!(matches!(e.kind(), ErrorKind::ProgramGone { .. }), "{e}");
    gone(buffer.ptr().unwrap_err());
    gone(old.default_stream().read(&buffer, 0, &mut [0], &Uninterruptible).unwrap_err());
    gone(old.default_stream().write(&buffer, 0, &[0], &Uninterruptible).unwrap_err());
    gone(kept.pin().unwrap_err());
    gone(launch(&old, &kernel, &args).unwrap_err());
    gone(launch(&new, &kernel, &args).unwrap_err());
    gone(old.allocate(8).unwrap_err());
    gone(old.load(&artifact(0, vec![serial("nothing")])).unwrap_err());
    // SAFETY: pinned memory stays.
    unsafe { *(pinned.ptr() as *mut u8) = 1 };
    drop(pinned);
    assert_eq!(old.bytes_in_use(), 0);
}

#[test]
fn memory_is_checked_and_counted() {
    let (device, _) = device(Some(1));
    let error = device.allocate(1 << 60).unwrap_err();
    assert!(error.to_string().starts_with("out of memory: 1024.0 PiB requested on the CPU"), "{error}");
    let buffer = device.allocate(100).unwrap();
    device.default_stream().write(&buffer, 90, &[7; 10], &Uninterruptible).unwrap();
    let mut read = [0; 12];
    device.default_stream().read(&buffer, 88, &mut read, &Uninterruptible).unwrap();
    assert_eq!(read, [0, 0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]);
    assert!(matches!(
        device.default_stream().write(&buffer, 91, &[7; 10], &Uninterruptible).unwrap_err().kind(),
        ErrorKind::OutOfRange { .. }
    ));
    assert!(matches!(
        device.default_stream().read(&buffer, u64::MAX, &mut read, &Uninterruptible).unwrap_err().kind(),
        ErrorKind::OutOfRange { .. }
    ));
    let empty = device.allocate(0).unwrap();
    device.default_stream().write(&empty, 0, &[], &Uninterruptible).unwrap();
    drop(buffer);
    assert_eq!(device.bytes_in_use(), 0);
    let wrong = device.load(&artifact(2, vec![serial("nothing")])).unwrap();
    assert!(matches!(launch(&device, &wrong, &[1]).unwrap_err().kind(), ErrorKind::CompilerBug(_)));
}

#[test]
#[cfg(unix)]
fn a_forked_process_launches_without_the_threads_of_its_parent() {
    let (device, _) = device(Some(3));
    let kernel = device.load(&artifact(2, vec![parallel("increment", "count_arg1", 5.0)])).unwrap();
    let n = 100_000;
    let buffer = device.allocate(4 * n as u64).unwrap();
    let args = [buffer.ptr().unwrap(), n as u64];
    launch(&device, &kernel, &args).unwrap();
    // Wait until the threads sleep, because the fork would lose a thread in the middle of a job.
    std::thread::sleep(std::time::Duration::from_millis(20));
    // SAFETY: the child runs code of this crate and ends without running the test harness's.
    let status = unsafe {
        let child = libc::fork();
        if child == 0 {
            let done = launch(&device, &kernel, &args).is_ok() && ints(&device, &buffer, n).iter().all(|&x| x == 2);
            let closed = device.close(&Uninterruptible).is_ok();
            libc::_exit(if done && closed { 0 } else { 1 });
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        status
    };
    assert_eq!(status, 0);
    assert!(ints(&device, &buffer, n).iter().all(|&x| x == 1));
}
