//! Host time of launches, loads and the thread pool. Prints nanoseconds, the fastest of several rounds.
//!
//! `cargo bench -p octants-driver-host`

#![allow(clippy::unwrap_used)]

#[path = "../tests/hand_made/mod.rs"]
mod hand_made;

use std::sync::Arc;
use std::time::Instant;

use hand_made::{artifact, device, parallel, serial};
use octants_driver_host::linker::Linker;
use octants_driver_host::pool::Pool;
use octants_driver_host::{HostConfig, HostDriver};
use octants_runtime::{Device, DeviceConfig, Pointer, Uninterruptible};

fn measure(name: &str, times: u32, mut work: impl FnMut()) {
    let round = || {
        let start = Instant::now();
        (0..times).for_each(|_| work());
        start.elapsed().as_nanos() as f64 / f64::from(times)
    };
    let mut rounds: Vec<f64> = std::iter::repeat_with(round).take(9).collect();
    rounds.sort_by(f64::total_cmp);
    println!("{name:<58} {:>12.1} ns   median {:>12.1}", rounds[0], rounds[4]);
}

fn main() {
    let start = Instant::now();
    let linker = Linker::new().unwrap();
    println!("{:<58} {:>12.1} us", "first linker of a process", start.elapsed().as_nanos() as f64 / 1e3);
    let object = [hand_made::tasks_object().to_vec()];
    let start = Instant::now();
    let first = linker.link(&object, &["nothing"]).unwrap();
    println!("{:<58} {:>12.1} us", "first object", start.elapsed().as_nanos() as f64 / 1e3);
    linker.unload(first);
    measure("further linkers, with their end", 20, || drop(Linker::new().unwrap()));
    measure("link and unload an object of 10 functions", 50, || {
        linker.unload(linker.link(&object, &["nothing", "increment", "results"]).unwrap());
    });
    let mut kept = Vec::new();
    measure("link it, 200 kept", 22, || kept.push(linker.link(&object, &["nothing", "increment", "results"]).unwrap()));

    for threads in [1, 2] {
        println!("-- {threads} threads");
        let (device, _) = device(Some(threads));
        let stream = device.default_stream();
        let buffer = device.allocate(64 << 20).unwrap();
        let address = buffer.ptr().unwrap();
        let nothing = device.load(&artifact(0, vec![serial("nothing")])).unwrap();
        // SAFETY: in all launches below the address is that of 64 MiB, more than the counts need.
        measure("serial task, no arguments", 200_000, || {
            drop(unsafe { stream.launch(&nothing, &[], &Uninterruptible) }.unwrap())
        });
        let mut known = parallel("nothing", "count_arg1", 1.0);
        known.parallel.as_mut().unwrap().count = Some(16);
        let small = device.load(&artifact(0, vec![known.clone()])).unwrap();
        measure("small parallel task, no arguments", 200_000, || {
            drop(unsafe { stream.launch(&small, &[], &Uninterruptible) }.unwrap())
        });
        let ten = device.load(&artifact(0, vec![known; 10])).unwrap();
        measure("ten small parallel tasks", 50_000, || {
            drop(unsafe { stream.launch(&ten, &[], &Uninterruptible) }.unwrap())
        });
        let three = device.load(&artifact(2, vec![parallel("increment", "count_arg1", 0.2)])).unwrap();
        measure("16 increments, count computed", 200_000, || {
            drop(unsafe { stream.launch(&three, &[address, 16], &Uninterruptible) }.unwrap());
        });
        for count in [20_000u64, 40_000, 80_000, 200_000, 1_000_000, 16_000_000] {
            let times = (40_000_000 / count).clamp(5, 2000) as u32;
            measure(&format!("{count} increments"), times, || {
                drop(unsafe { stream.launch(&three, &[address, count], &Uninterruptible) }.unwrap());
            });
        }
    }
    println!("-- real streams, the launch alone");
    let host = HostConfig { max_threads: Some(2), streams: true, ..HostConfig::default() };
    let device = Device::new(HostDriver::new(host), DeviceConfig { seed: 1, sink: Arc::new(|_: &str| ()) });
    let (stream, buffer) = (device.create_stream(0).unwrap(), device.allocate(4096).unwrap());
    let args = [buffer.ptr().unwrap(), 16];
    let nothing = device.load(&artifact(0, vec![serial("nothing")])).unwrap();
    let increment = device.load(&artifact(2, vec![parallel("increment", "count_arg1", 0.2)])).unwrap();
    let increment = increment.with_pointers(vec![Pointer { slot: 0, written: true, buffer: None }]);
    for (name, kernel, args) in [("no arguments", &nothing, &[][..]), ("16 increments of an array", &increment, &args)]
    {
        let mut rounds = Vec::new();
        for _ in 0..400 {
            let start = Instant::now();
            for _ in 0..500 {
                // SAFETY: as above.
                drop(unsafe { stream.launch(kernel, args, &Uninterruptible) }.unwrap());
            }
            rounds.push(start.elapsed().as_nanos() as f64 / 500.0);
            stream.synchronize(&Uninterruptible).unwrap();
        }
        rounds.sort_by(f64::total_cmp);
        println!("{name:<58} {:>12.1} ns   median {:>12.1}", rounds[0], rounds[200]);
    }
    println!("-- pool of 2");
    let pool = Pool::new(2);
    measure("job of two empty chunks, threads awake", 20_000, || {
        pool.run(2, 1, 2, &Uninterruptible, &|_, _| ()).unwrap()
    });
    measure("the same after a pause of 200 us (with the pause)", 500, || {
        std::thread::sleep(std::time::Duration::from_micros(200));
        pool.run(2, 1, 2, &Uninterruptible, &|_, _| ()).unwrap();
    });
    measure("the pause alone", 500, || std::thread::sleep(std::time::Duration::from_micros(200)));
}
