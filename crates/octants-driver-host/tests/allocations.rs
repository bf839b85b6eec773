//! A launch does not allocate, whether its tasks run immediately or are queued. There is one test, because allocations
//! of all threads are counted.

#![allow(clippy::unwrap_used)]

mod hand_made;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hand_made::{artifact, parallel, serial};
use octants_driver_host::{HostConfig, HostDriver};
use octants_runtime::{Device, DeviceConfig, Pointer, Uninterruptible};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn s24_repeated_launches_allocate_nothing() {
    for streams in [false, true] {
        let host = HostConfig { max_threads: Some(2), streams, ..HostConfig::default() };
        let device = Device::new(HostDriver::new(host), DeviceConfig { seed: 1, sink: Arc::new(|_: &str| ()) });
        let increment = device.load(&artifact(2, vec![parallel("increment", "count_arg1", 5.0); 3])).unwrap();
        let increment = increment.with_pointers(vec![Pointer { slot: 0, written: true, buffer: None }]);
        let nothing = device.load(&artifact(0, vec![serial("nothing"); 2])).unwrap();
        let (stream, buffer) = (device.create_stream(0).unwrap(), device.allocate(40_000).unwrap());
        let args = [buffer.ptr().unwrap(), 10_000];
        let round = || {
            for _ in 0..30 {
                // SAFETY: the buffer has as many elements.
                unsafe {
                    stream.launch(&increment, &args, &Uninterruptible).unwrap();
                    stream.launch(&nothing, &[], &Uninterruptible).unwrap();
                    device.default_stream().launch(&nothing, &[], &Uninterruptible).unwrap();
                }
            }
            stream.synchronize(&Uninterruptible).unwrap();
            device.default_stream().synchronize(&Uninterruptible).unwrap();
        };
        // A queue grows to the work it has held at one time, which differs from round to round.
        (0..50).for_each(|_| round());
        let counts = (0..20).map(|_| {
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            round();
            ALLOCATIONS.load(Ordering::Relaxed) - before
        });
        let counts: Vec<_> = counts.collect();
        assert!(counts.iter().filter(|&&n| n > 0).count() < 3, "streams {streams}: {counts:?}");
    }
}
