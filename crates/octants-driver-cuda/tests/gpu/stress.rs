//! Many threads, many streams, everything at once; the results say whether anything went wrong.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use octants_runtime::Patient;

use crate::kernels::{launch, mad, mad_in_groups};
use crate::{Gpu, values};

#[test]
fn s22_eight_threads_with_streams_of_their_own() {
    let Some(gpu) = Gpu::open() else { return };
    let (plain, groups) = (mad(&gpu), mad_in_groups(&gpu, &[Some(0), Some(1)]));
    let launches = AtomicU64::new(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..8i32 {
            let (gpu, plain, groups, launches) = (&gpu, &plain, &groups, &launches);
            scope.spawn(move || {
                let streams: Vec<_> = (0..4).map(|p| gpu.device.create_stream(p).unwrap()).collect();
                let event = gpu.device.create_event(false).unwrap();
                for round in 0..60 {
                    let x = gpu.numbers(777);
                    let idle = gpu.device.create_stream(0).unwrap();
                    let mut expect = 0i32;
                    for step in 0..20 {
                        let stream = &streams[(round + step) % 4];
                        if step > 0 {
                            event.wait(stream).unwrap();
                        }
                        let (a, b) = (step as i32 % 3, thread + 1);
                        launch(stream, plain, &x, (a, b)).unwrap();
                        expect = expect * a + b;
                        if step % 7 == 3 {
                            // Both groups store the same number.
                            launch(stream, groups, &x, (0, step as i32)).unwrap();
                            expect = step as i32;
                        }
                        event.record(stream).unwrap();
                        launches.fetch_add(1, Ordering::Relaxed);
                    }
                    // Dropped while its work may still be under way.
                    let y = gpu.numbers(100_000);
                    launch(&idle, plain, &y, (1, 1)).unwrap();
                    drop((y, idle));
                    assert!(values(&x).iter().all(|&v| v == expect), "thread {thread} round {round}");
                }
            });
        }
    });
    gpu.device.synchronize(&Patient).unwrap();
    let stats = gpu.device.stream_pool_stats();
    assert_eq!(stats.in_use, 0);
    assert!(stats.created <= 8, "{stats:?}");
    eprintln!("{} launches in {:?}", launches.into_inner(), start.elapsed());
}

#[test]
fn launches_cost_microseconds() {
    let Some(gpu) = Gpu::open_alone() else { return };
    let (kernel, x) = (mad(&gpu), gpu.numbers(256));
    let stream = gpu.device.create_stream(0).unwrap();
    let mut best = f64::MAX;
    for _ in 0..20 {
        stream.synchronize(&Patient).unwrap();
        let start = Instant::now();
        (0..500).for_each(|_| launch(&stream, &kernel, &x, (1, 1)).unwrap());
        best = best.min(start.elapsed().as_secs_f64() / 500.0);
    }
    assert!(values(&x).iter().all(|&v| v == 20 * 500));
    eprintln!("a launch takes {:.2} us", best * 1e6);
}
