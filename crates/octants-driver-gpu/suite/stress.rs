//! Stress tests with many threads and streams. The results show whether the order was right.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use octants_driver_gpu::GpuConfig;
use octants_runtime::{LoadedKernel, Uninterruptible};

use super::kernels::{launch, mad, mad_in_groups};
use super::{Gpu, values};

const THREADS: i32 = 8;
const ROUNDS: usize = 60;

/// The state that all threads share.
struct Shared<'a> {
    gpu: &'a Gpu,
    plain: LoadedKernel,
    groups: LoadedKernel,
    launches: AtomicU64,
}

#[test]
fn s22_eight_threads_with_their_own_streams() {
    let Some(gpu) = Gpu::open() else { return };
    let (plain, groups) = (mad(&gpu), mad_in_groups(&gpu, &[Some(0), Some(1)]));
    let shared = Shared { gpu: &gpu, plain, groups, launches: AtomicU64::new(0) };
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let shared = &shared;
            scope.spawn(move || work(shared, thread));
        }
    });
    gpu.device.synchronize(&Uninterruptible).unwrap();
    let stats = gpu.device.stream_pool_stats();
    assert_eq!(stats.in_use, 0);
    assert!(stats.created <= THREADS as u64, "{stats:?}");
    let launches = shared.launches.into_inner();
    assert!(launches > 10_000);
    eprintln!("{launches} launches in {:?}", start.elapsed());
}

/// One thread: launches on four streams in turn, ordered by an event, while memory, streams and whole programs are
/// created and destroyed.
fn work(shared: &Shared<'_>, thread: i32) {
    let gpu = shared.gpu;
    let streams: Vec<_> = (0..4).map(|p| gpu.device.create_stream(p).unwrap()).collect();
    let event = gpu.device.create_event(false).unwrap();
    for round in 0..ROUNDS {
        let x = gpu.numbers(777);
        let idle = gpu.device.create_stream(0).unwrap();
        let mut expect = 0i32;
        for step in 0..20 {
            let stream = &streams[(round + step) % 4];
            if step > 0 {
                event.wait(stream, &Uninterruptible).unwrap();
            }
            let (a, b) = (step as i32 % 3, thread + 1);
            launch(stream, &shared.plain, &x, (a, b)).unwrap();
            expect = expect * a + b;
            if step % 7 == 3 {
                // Both groups store the same number.
                launch(stream, &shared.groups, &x, (0, step as i32)).unwrap();
                expect = step as i32;
            }
            event.record(stream).unwrap();
        }
        // Dropped while its work may still be under way.
        let y = gpu.numbers(100_000);
        launch(&idle, &shared.plain, &y, (1, 1)).unwrap();
        drop((y, idle));
        assert!(values(&x).iter().all(|&v| v == expect), "thread {thread} round {round}");
        shared.launches.fetch_add(24, Ordering::Relaxed);
        if round % 15 == thread as usize {
            begin_and_end();
        }
    }
}

/// A program of the thread's own, which ends while its work is queued.
fn begin_and_end() {
    let own = Gpu::open_as(&GpuConfig::default()).unwrap();
    let (kernel, x, stream) = (mad(&own), own.numbers(5000), own.device.create_stream(0).unwrap());
    (0..3).for_each(|_| launch(&stream, &kernel, &x, (1, 1)).unwrap());
    own.device.close(&Uninterruptible).unwrap();
    let error = launch(&stream, &kernel, &x, (1, 1)).unwrap_err().to_string();
    assert!(error.contains("program that has ended"), "{error}");
}

#[test]
fn a_program_ends_while_threads_launch() {
    let Some(gpu) = Gpu::open() else { return };
    let (kernel, ready) = (mad(&gpu), Barrier::new(THREADS as usize + 1));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            let (gpu, kernel, ready) = (&gpu, &kernel, &ready);
            scope.spawn(move || {
                let (stream, x) = (gpu.device.create_stream(0).unwrap(), gpu.numbers(1000));
                ready.wait();
                let error = (0..).find_map(|_| launch(&stream, kernel, &x, (1, 1)).err()).unwrap();
                assert!(error.to_string().contains("program that has ended"), "{error}");
            });
        }
        ready.wait();
        std::thread::sleep(Duration::from_millis(10));
        gpu.device.close(&Uninterruptible).unwrap();
    });
}

#[test]
fn launches_cost_microseconds() {
    let Some(gpu) = Gpu::open_alone() else { return };
    let (kernel, x) = (mad(&gpu), gpu.numbers(256));
    let stream = gpu.device.create_stream(0).unwrap();
    let mut best = f64::MAX;
    for _ in 0..20 {
        stream.synchronize(&Uninterruptible).unwrap();
        let start = Instant::now();
        (0..500).for_each(|_| launch(&stream, &kernel, &x, (1, 1)).unwrap());
        best = best.min(start.elapsed().as_secs_f64() / 500.0);
    }
    assert!(values(&x).iter().all(|&v| v == 20 * 500));
    eprintln!("a launch takes {:.2} us", best * 1e6);
}
