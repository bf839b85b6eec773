//! Each stream is in order; different streams run concurrently, unless events order them.

use std::time::Instant;

use octants_driver_gpu::GpuConfig;
use octants_runtime::Uninterruptible;

use super::kernels::{launch, launch_slow, mad};
use super::{Gpu, MS, ms_since, values};
use crate::vendor;

#[test]
fn s1_handles_are_the_handles_of_the_driver() {
    let Some(gpu) = Gpu::open() else { return };
    assert_eq!(gpu.device.default_stream().handle(), 0);
    let streams: Vec<_> = [-9, 0, 1, 99].map(|p| gpu.device.create_stream(p).unwrap()).into_iter().collect();
    assert!(streams.iter().all(|s| s.handle() > 4096));
    assert!(streams.iter().all(|s| s.query().unwrap()));
    assert!(gpu.device.stream_from_handle(77).is_err(), "no such handle");
}

#[test]
fn a_launch_returns_before_its_work_is_done() {
    let Some(gpu) = Gpu::open_alone() else { return };
    let (kernel, x, stream) = (mad(&gpu), gpu.numbers(1), gpu.device.create_stream(0).unwrap());
    launch(&stream, &kernel, &x, (1, 0)).unwrap();
    stream.synchronize(&Uninterruptible).unwrap();
    let start = Instant::now();
    launch_slow(&stream, &kernel, &x, 100 * MS, (0, 1)).unwrap();
    assert!(!stream.query().unwrap());
    stream.synchronize(&Uninterruptible).unwrap();
    assert!(stream.query().unwrap() && ms_since(start) >= 99);
}

#[test]
fn streams_run_concurrently() {
    let Some(gpu) = Gpu::open_alone() else { return };
    let kernel = mad(&gpu);
    let all: Vec<_> = (0..16).map(|_| (gpu.device.create_stream(0).unwrap(), gpu.numbers(32))).collect();
    for (stream, x) in &all {
        launch(stream, &kernel, x, (1, 0)).unwrap();
    }
    gpu.device.synchronize(&Uninterruptible).unwrap();
    let start = Instant::now();
    for (stream, x) in &all {
        launch_slow(stream, &kernel, x, 40 * MS, (0, 1)).unwrap();
    }
    gpu.device.synchronize(&Uninterruptible).unwrap();
    // Far more than the 40 ms that they take concurrently, because some may start late on a busy machine.
    let took = ms_since(start);
    assert!(took < 16 * 40 / 2, "16 kernels of 40 ms take {took} ms");
}

#[test]
fn events_order_streams_and_measure_time() {
    let Some(gpu) = Gpu::open_alone() else { return };
    let (kernel, x) = (mad(&gpu), gpu.numbers(100));
    let (a, b) = (gpu.device.create_stream(0).unwrap(), gpu.device.create_stream(0).unwrap());
    let (before, after) = (gpu.device.create_event(true).unwrap(), gpu.device.create_event(true).unwrap());
    for _ in 0..3 {
        let start = Instant::now();
        launch(&a, &kernel, &x, (0, 0)).unwrap();
        before.record(&a).unwrap();
        launch_slow(&a, &kernel, &x, 30 * MS, (1, 2)).unwrap();
        after.record(&a).unwrap();
        after.wait(&b, &Uninterruptible).unwrap();
        launch(&b, &kernel, &x, (10, 1)).unwrap();
        assert!(!after.query().unwrap());
        assert!(values(&x).iter().all(|&v| v == 21));
        a.wait_for(&b, &Uninterruptible).unwrap();
        let ms = before.elapsed_ms(&after, &Uninterruptible).unwrap() / vendor::PACE as f64;
        // At most the time that has passed on the host, with a tolerance for the difference of the clocks.
        let passed = ms_since(start) as f64 + 1.0;
        assert!((29.0..passed).contains(&ms), "{ms} of {passed} ms");
    }
    let untimed = gpu.device.create_event(false).unwrap();
    untimed.record(&a).unwrap();
    assert!(before.elapsed_ms(&untimed, &Uninterruptible).is_err());
}

#[test]
fn s7_the_default_stream_synchronizes_with_the_null_stream_of_other_libraries() {
    let Some(gpu) = Gpu::open() else { return };
    let (kernel, x) = (mad(&gpu), gpu.numbers(100));
    // The handle by which any vendor's null stream is obtained.
    let null = gpu.device.stream_from_handle(1).unwrap();
    let own = gpu.device.default_stream();
    for _ in 0..3 {
        launch(own, &kernel, &x, (0, 0)).unwrap();
        launch_slow(&null, &kernel, &x, 10 * MS, (1, 2)).unwrap();
        launch_slow(own, &kernel, &x, 10 * MS, (10, 1)).unwrap();
        launch(&null, &kernel, &x, (10, 3)).unwrap();
        own.synchronize(&Uninterruptible).unwrap();
        null.synchronize(&Uninterruptible).unwrap();
        assert!(values(&x).iter().all(|&v| v == 213));
    }
}

#[test]
fn a_dropped_stream_finishes_its_work() {
    let Some(gpu) = Gpu::open() else { return };
    let (kernel, x) = (mad(&gpu), gpu.numbers(100));
    let stream = gpu.device.create_stream(0).unwrap();
    launch_slow(&stream, &kernel, &x, 20 * MS, (0, 4)).unwrap();
    drop(stream);
    assert!(values(&x).iter().all(|&v| v == 4));
}

#[test]
fn s6_objects_of_an_ended_program_report_it() {
    let Some(gpu) = Gpu::open() else { return };
    let (kernel, x, stream) = (mad(&gpu), gpu.numbers(4), gpu.device.create_stream(0).unwrap());
    let event = gpu.device.create_event(false).unwrap();
    launch_slow(&stream, &kernel, &x, 5 * MS, (1, 1)).unwrap();
    gpu.device.close(&Uninterruptible).unwrap();
    assert!(launch(&stream, &kernel, &x, (1, 1)).unwrap_err().to_string().contains("program that has ended"));
    assert!(stream.synchronize(&Uninterruptible).is_err() && event.record(&stream).is_err());
    // Everything is released at the end.
    drop((kernel, x, stream, event));
}

#[test]
fn s7_a_call_on_a_foreign_stream_does_not_wait() {
    let Some(gpu) = Gpu::open_alone() else { return };
    let theirs = Gpu::open_as(&GpuConfig::default()).unwrap();
    let stream = theirs.device.create_stream(0).unwrap();
    let (kernel, x, dropped) = (mad(&gpu), gpu.numbers(100), gpu.numbers(100));
    let named = || gpu.device.stream_from_handle(stream.handle()).unwrap();
    launch(&named(), &kernel, &x, (1, 0)).unwrap();
    gpu.device.synchronize(&Uninterruptible).unwrap();
    launch_slow(&named(), &kernel, &x, 100 * MS, (1, 2)).unwrap();
    launch(&named(), &kernel, &x, (10, 1)).unwrap();
    launch(&named(), &kernel, &dropped, (10, 1)).unwrap();
    drop(dropped);
    assert!(!stream.query().unwrap());
    // Their stream is destroyed with its work, but our work is still tracked.
    drop(stream);
    drop(theirs);
    assert!(values(&x).iter().all(|&v| v == 21));
    gpu.device.synchronize(&Uninterruptible).unwrap();
}
