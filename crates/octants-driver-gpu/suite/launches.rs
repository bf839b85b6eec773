//! Code is loaded and launched with the right arguments, grids, results and messages.

use octants_runtime::{ErrorKind, Uninterruptible};

use super::kernels::{
    answer, artifact, launch, launch_slow, mad, mad_as, mad_in_groups, nameless, parallel, speak, sum,
};
use super::{Gpu, MS, ms_since, values};
use crate::vendor;

#[test]
fn every_iteration_runs_once_for_each_grid() {
    let Some(gpu) = Gpu::open() else { return };
    let stream = gpu.device.default_stream();
    let grids = [(true, None), (false, None), (true, Some(1)), (true, Some(96)), (true, Some(5000))];
    for (known, block_dim) in grids {
        let kernel = mad_as(&gpu, octants_artifact::ParallelMeta { block_dim, ..parallel(known) });
        for n in [1, 31, 1000, 100_003, 5_000_000] {
            let x = gpu.numbers(n);
            launch(stream, &kernel, &x, (1, 3)).unwrap();
            launch(stream, &kernel, &x, (2, -1)).unwrap();
            assert!(values(&x).iter().all(|&v| v == 5), "{n} with {known} {block_dim:?}");
        }
    }
}

#[test]
fn a_loop_without_iterations_is_not_launched() {
    let Some(gpu) = Gpu::open() else { return };
    let (kernel, x) = (mad(&gpu), gpu.numbers(4));
    // SAFETY: the buffer lives; the kernel looks at none of it.
    unsafe { gpu.device.default_stream().launch(&kernel, &[x.ptr().unwrap(), 0, 0, 1, 7], &Uninterruptible) }.unwrap();
    assert_eq!(values(&x), [0; 4]);
}

#[test]
fn a_launch_returns_its_result() {
    let Some(gpu) = Gpu::open() else { return };
    let kernel = answer(&gpu);
    let stream = gpu.device.create_stream(0).unwrap();
    for n in 1..100u64 {
        // SAFETY: the kernel takes a number.
        let results = unsafe { stream.launch(&kernel, &[n], &Uninterruptible) }.unwrap().unwrap();
        assert_eq!(results.slots(), [n + 1]);
    }
}

#[test]
fn arguments_that_do_not_fit_by_value_are_read_from_memory() {
    let Some(gpu) = Gpu::open() else { return };
    let (count, x) = (1000u64, gpu.numbers(1));
    let kernel = sum(&gpu, count as u32);
    for first in [1, 2] {
        let slots: Vec<u64> = [x.ptr().unwrap(), count].into_iter().chain(first..first + count).collect();
        // SAFETY: the buffer lives.
        unsafe { gpu.device.default_stream().launch(&kernel, &slots, &Uninterruptible) }.unwrap();
        assert_eq!(values(&x), [(first..first + count).sum::<u64>() as i32]);
    }
}

#[test]
fn s11_groups_run_concurrently_between_earlier_and_later_work() {
    let Some(gpu) = Gpu::open_alone() else { return };
    let (one, many) = (mad(&gpu), mad_in_groups(&gpu, &[Some(0), Some(1), Some(2), Some(3)]));
    let (stream, x, y) = (gpu.device.create_stream(0).unwrap(), gpu.numbers(64), gpu.numbers(64));
    launch(&stream, &many, &y, (1, 0)).unwrap();
    stream.synchronize(&Uninterruptible).unwrap();
    let start = std::time::Instant::now();
    // All groups store the same value. They must run after the first launch and before the last.
    launch_slow(&stream, &one, &x, 20 * MS, (0, 5)).unwrap();
    launch_slow(&stream, &many, &x, 50 * MS, (0, 7)).unwrap();
    launch(&stream, &one, &x, (10, 1)).unwrap();
    assert!(!stream.query().unwrap(), "the host waits for nothing");
    assert!(values(&x).iter().all(|&v| v == 71));
    // Sequentially, they would take 220.
    let took = ms_since(start);
    assert!((65..200).contains(&took), "four groups of 50 ms take {took} ms, with 20 ms before");
    let stats = gpu.device.stream_pool_stats();
    assert_eq!((stats.created, stats.in_use), (3, 0));
}

#[test]
fn a_graph_computes_what_separate_launches_compute() {
    let Some(gpu) = Gpu::open_alone() else { return };
    // Three times `x = a x + b`.
    let kernel = mad_in_groups(&gpu, &[None; 3]);
    let (default, other) = (gpu.device.default_stream(), gpu.device.create_stream(0).unwrap());
    let (x, y, empty) = (gpu.numbers(1000), gpu.numbers(200_000), gpu.numbers(0));
    // While work runs, nothing waits for it, and no graph is created.
    let fresh = mad_in_groups(&gpu, &[None; 3]);
    launch_slow(&other, &mad(&gpu), &gpu.numbers(64), 100 * MS, (1, 0)).unwrap();
    launch_slow(default, &mad(&gpu), &gpu.numbers(64), 100 * MS, (1, 0)).unwrap();
    (0..5).for_each(|_| launch(default, &fresh, &y, (1, 0)).unwrap());
    assert!(!default.query().unwrap());
    gpu.device.synchronize(&Uninterruptible).unwrap();
    let after = |v: i32, b: i32| (0..3).fold(v, |v, _| v.wrapping_mul(2).wrapping_add(b));
    let mut expected = [0; 2];
    for round in 1..=20 {
        // The same launch twice, with another array, without iterations, and on another stream.
        for array in [&x, &x, &y, &empty] {
            launch(default, &kernel, array, (2, round)).unwrap();
        }
        other.wait_for(default, &Uninterruptible).unwrap();
        launch(&other, &kernel, &x, (2, 1)).unwrap();
        default.wait_for(&other, &Uninterruptible).unwrap();
        if round % 4 == 0 {
            // A graph is created on an idle stream.
            default.synchronize(&Uninterruptible).unwrap();
        }
        expected = [after(after(after(expected[0], round), round), 1), after(expected[1], round)];
    }
    assert!(values(&x).iter().all(|&v| v == expected[0]));
    assert!(values(&y).iter().all(|&v| v == expected[1]));
    // Code is dropped while its last launches run.
    launch_slow(default, &kernel, &x, 5 * MS, (0, 7)).unwrap();
    drop(kernel);
    assert!(values(&x).iter().all(|&v| v == 7));
}

#[test]
fn errors_of_loading_code_state_the_cause() {
    let Some(gpu) = Gpu::open() else { return };
    for (code, said) in vendor::broken() {
        let error = gpu.device.load(&artifact("broken", code, 0, vec![])).unwrap_err().to_string();
        assert!(error.contains("`broken`") && error.contains(said), "{said}: {error}");
    }
    let error = gpu.device.load(&nameless()).unwrap_err().to_string();
    assert!(error.contains("`sad`") && error.contains(vendor::NOT_FOUND), "{error}");
    // The device is as good as before.
    let (kernel, x) = (mad(&gpu), gpu.numbers(4));
    launch(gpu.device.default_stream(), &kernel, &x, (1, 1)).unwrap();
    assert_eq!(values(&x), [1; 4]);
}

#[test]
fn s21_kernels_print_and_assert() {
    let Some(gpu) = Gpu::open() else { return };
    let kernel = speak(&gpu);
    let stream = gpu.device.create_stream(0).unwrap();
    for n in [3u64, 4] {
        // SAFETY: the kernel takes a number.
        unsafe { stream.launch(&kernel, &[n], &Uninterruptible) }.unwrap();
        let error = stream.synchronize(&Uninterruptible).unwrap_err();
        let ErrorKind::Assertion(failure) = error.kind() else { panic!("{error}") };
        assert_eq!(failure.message, format!("failed with {n}\n"));
        assert_eq!(std::mem::take(&mut *gpu.printed.lock().unwrap()), format!("said {n}\n"));
    }
    stream.synchronize(&Uninterruptible).unwrap();
}

#[test]
fn dropped_code_finishes_its_launches() {
    let Some(gpu) = Gpu::open() else { return };
    let x = gpu.numbers(1000);
    for _ in 0..600 {
        launch_slow(gpu.device.default_stream(), &mad(&gpu), &x, 10_000, (1, 1)).unwrap();
    }
    assert!(values(&x).iter().all(|&v| v == 600));
}
