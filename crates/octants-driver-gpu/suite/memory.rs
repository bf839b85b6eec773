//! Memory is zeroed, ordered with work and freed. Running out of it is an error.

use octants_driver_gpu::GpuConfig;
use octants_runtime::{Driver, ErrorKind, HostArray, Uninterruptible};

use super::kernels::{launch, launch_slow, mad};
use super::{ALONE, Gpu, MS, values};
use crate::vendor;

/// With the device's pools, and without as on devices that have none.
fn both(test: impl Fn(&Gpu)) {
    let _shared = ALONE.read().unwrap_or_else(|p| p.into_inner());
    let Some(gpu) = Gpu::open_as(&GpuConfig::default()) else { return };
    test(&gpu);
    test(&Gpu::open_as(&GpuConfig { plain_memory: true, ..GpuConfig::default() }).unwrap());
}

#[test]
fn new_memory_is_zeroed_for_every_stream() {
    both(|gpu| {
        let kernel = mad(gpu);
        let streams: Vec<_> = (0..4).map(|_| gpu.device.create_stream(0).unwrap()).collect();
        for round in 0..50 {
            let x = gpu.numbers(100_000);
            // Each stream reads the previous value plus one.
            launch(&streams[round % 4], &kernel, &x, (1, 1)).unwrap();
            assert!(values(&x).iter().all(|&v| v == 1), "round {round}");
        }
    });
}

#[test]
fn s18_dropped_memory_is_reused_after_its_last_use() {
    both(|gpu| {
        let kernel = mad(gpu);
        let (slow, fast) = (gpu.device.create_stream(0).unwrap(), gpu.device.create_stream(0).unwrap());
        for _ in 0..5 {
            let x = gpu.numbers(1 << 16);
            launch_slow(&slow, &kernel, &x, 5 * MS, (0, 9)).unwrap();
            drop(x);
            let new: Vec<_> = (0..8).map(|_| gpu.numbers(1 << 16)).collect();
            new.iter().for_each(|y| launch(&fast, &kernel, y, (1, 1)).unwrap());
            slow.synchronize(&Uninterruptible).unwrap();
            assert!(new.iter().all(|y| values(y).iter().all(|&v| v == 1)));
        }
    });
}

#[test]
fn s16_host_memory_is_uploaded_and_downloaded() {
    both(|gpu| {
        let (kernel, stream) = (mad(gpu), gpu.device.create_stream(0).unwrap());
        for n in [1usize, 1000, 3_000_001] {
            let numbers: Vec<i32> = (0..n as i32).collect();
            let bytes: Vec<u8> = numbers.iter().flat_map(|v| v.to_ne_bytes()).collect();
            let (x, y) = (gpu.numbers(n as u64), gpu.numbers(n as u64));
            stream.upload(&x, 0, &bytes, &Uninterruptible).unwrap();
            launch(&stream, &kernel, &x, (2, 1)).unwrap();
            stream.copy(&y, 0, &x, 0, bytes.len() as u64, &Uninterruptible).unwrap();
            assert!(values(&y).iter().zip(&numbers).all(|(v, k)| *v == 2 * k + 1));
            // The host's own array, staged.
            let array = HostArray {
                slot: 0,
                low: numbers.as_ptr() as u64,
                high: numbers.as_ptr() as u64 + 4 * n as u64,
                written: true,
                gaps: false,
            };
            // SAFETY: the array lives and has that many numbers.
            unsafe { stream.launch_with(&kernel, &[array.low, n as u64, 0, 3, 2], &[array], &Uninterruptible) }
                .unwrap();
            assert!(std::hint::black_box(&numbers).iter().enumerate().all(|(k, v)| *v == 3 * k as i32 + 2));
        }
    });
}

#[test]
fn fills_write_every_element() {
    both(|gpu| {
        let x = gpu.numbers(1_000_003);
        gpu.device.default_stream().fill(&x, 4, &7i32.to_ne_bytes(), 1_000_001, &Uninterruptible).unwrap();
        let got = values(&x);
        assert!(got[0] == 0 && got[1_000_002] == 0 && got[1..1_000_002].iter().all(|&v| v == 7));
    });
}

#[test]
fn out_of_memory_names_amounts_and_leaves_the_program_usable() {
    both(|gpu| {
        let error = gpu.device.allocate(1 << 50).unwrap_err();
        let ErrorKind::OutOfMemory { requested, free: Some(free), capacity: Some(total), .. } = error.kind() else {
            panic!("{error}")
        };
        assert!(*requested == 1 << 50 && 0 < *free && free <= total, "{error}");
        let said = error.to_string();
        assert!(said.contains("1.0 PiB requested") && said.contains("are free"), "{said}");
        let (kernel, x) = (mad(gpu), gpu.numbers(8));
        launch(gpu.device.default_stream(), &kernel, &x, (1, 6)).unwrap();
        assert_eq!(values(&x), [6; 8]);
    });
}

#[test]
fn pinned_memory_has_one_address_and_is_zeroed_on_reuse() {
    let _shared = ALONE.read().unwrap_or_else(|p| p.into_inner());
    let Some(driver) = vendor::open(&GpuConfig::default()) else { return };
    // SAFETY: the memory is used within its size, and by copies that are waited for.
    unsafe {
        let stream = octants_runtime::StreamHandle(0);
        let device = driver.allocate(None, 4096, octants_runtime::Contents::Zeroed).unwrap();
        for bytes in [8u64, 4096, 3 << 20] {
            let pinned = driver.allocate_pinned(bytes).unwrap();
            let words = std::slice::from_raw_parts_mut(pinned.0 as *mut u64, bytes as usize / 8);
            assert!(words.iter().all(|w| *w == 0));
            words.fill(5);
            // The device reads and writes it by that address.
            let part = bytes.min(4096);
            driver.copy_on_device(stream, device, pinned, part).unwrap();
            words.fill(6);
            driver.copy_on_device(stream, pinned, device, part).unwrap();
            driver.synchronize(stream).unwrap();
            assert!(words[0] == 5 || words[0] == 6);
            driver.copy_to_host(stream, pinned.0 as *mut u8, device, part).unwrap();
            driver.synchronize(stream).unwrap();
            driver.free_pinned(pinned, bytes);
        }
        driver.free(stream, device, 4096);
    }
}

#[test]
fn repeated_programs_leak_nothing() {
    let _alone = ALONE.write().unwrap_or_else(|p| p.into_inner());
    let cycle = || -> Option<()> {
        let gpu = Gpu::open_as(&GpuConfig::default())?;
        let kernel = mad(&gpu);
        let streams: Vec<_> = (0..4).map(|_| gpu.device.create_stream(0).unwrap()).collect();
        let events: Vec<_> = (0..4).map(|_| gpu.device.create_event(true).unwrap()).collect();
        let x = gpu.numbers(1 << 17);
        for (stream, event) in streams.iter().zip(&events) {
            launch(stream, &kernel, &x, (1, 1)).unwrap();
            event.record(stream).unwrap();
        }
        gpu.device.close(&Uninterruptible).unwrap();
        Some(())
    };
    // The first ones create permanent objects.
    for _ in 0..6 {
        let Some(()) = cycle() else { return };
    }
    let before = vendor::held();
    (0..200).for_each(|_| cycle().unwrap());
    let after = vendor::held();
    assert!(before.iter().zip(&after).all(|(b, a)| *a <= b + vendor::SLACK), "{before:?} before, {after:?} after");
}
