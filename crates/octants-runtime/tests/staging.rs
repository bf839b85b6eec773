//! Staging of host memory for work on a stream (S16, S23), with a driver that checks that no copy's source changes
//! before the copy is done, and that memory is only used between its allocation and its free.

#![allow(clippy::unwrap_used)]

use std::cell::Cell;

use octants_artifact::{Artifact, ScalarKind, TaskMeta, graph_of_groups};
use octants_driver_recording::{Log, RecordingDriver, device, device_that, finish};
use octants_runtime::{Caller, Device, ErrorKind, HostArray, LoadedKernel, Pointer, Stream, Uninterruptible};

type Setting = fn(RecordingDriver) -> RecordingDriver;

/// Two tasks; slots 0 and 1 hold addresses, the second is written.
fn kernel(device: &Device, results: usize) -> LoadedKernel {
    let task = || TaskMeta { name: "t".into(), ..TaskMeta::default() };
    let artifact = Artifact {
        kernel: "k".into(),
        arg_slots: 3,
        frame_bytes: 60,
        result: vec![ScalarKind::U64; results],
        tasks: vec![task(), task()],
        graph: graph_of_groups(&[Some(0), Some(1)]),
        ..Artifact::default()
    };
    let pointers =
        vec![Pointer { slot: 0, written: false, buffer: None }, Pointer { slot: 1, written: true, buffer: None }];
    device.load(&artifact).unwrap().with_pointers(pointers)
}

fn array(slot: u32, values: &[u64], written: bool) -> HostArray {
    let low = values.as_ptr() as u64;
    HostArray { slot, low, high: low + 8 * values.len() as u64, written, gaps: false }
}

/// Launches with arrays in slots 0 and 1, and returns the slots that the driver was given.
fn launch(
    stream: &Stream,
    log: &Log,
    kernel: &LoadedKernel,
    arrays: &[HostArray],
) -> octants_runtime::Result<Vec<u64>> {
    let at = |slot| arrays.iter().find(|a| a.slot == slot).map_or(0, |a| a.low);
    log.take();
    // SAFETY: the driver runs nothing; the arrays are alive.
    unsafe { stream.launch_with(kernel, &[at(0), at(1), 77], arrays, &Uninterruptible)? };
    let call = log.calls().into_iter().find(|c| c.starts_with("launch")).unwrap();
    let slots = call.split(['[', ']']).nth(1).unwrap();
    Ok(slots.split(", ").map(|s| s.parse().unwrap()).collect())
}

const SETTINGS: [Setting; 2] = [|d| d, RecordingDriver::sharing_memory];

#[test]
fn s16_read_arrays_are_copied_without_waiting() {
    for setting in SETTINGS {
        let (device, log) = device_that(setting);
        let (kernel, stream) = (kernel(&device, 0), device.create_stream(0).unwrap());
        for round in 0..5 {
            let mut values = [round; 10];
            let slots = launch(&stream, &log, &kernel, &[array(0, &values, false)]).unwrap();
            assert_eq!(log.count("synchronize") + log.count("synchronize_event"), 0, "the host waits for nothing");
            // The caller continues immediately; queued work sees the old contents of the array.
            values.fill(99);
            assert_eq!(log.argument(0)[..8], round.to_ne_bytes(), "{:?}", log.calls());
            assert_eq!(slots[1..], [0, 77]);
        }
        log.all_done();
        launch(&stream, &log, &kernel, &[array(0, &[1], false)]).unwrap();
        assert_eq!(log.count("allocate_pinned"), 0, "memory that work is done with is used again");
        drop((kernel, stream));
        finish(device, &log);
    }
}

#[test]
fn s16_written_arrays_hold_the_result_when_the_launch_returns() {
    let (device, log) = device();
    let (kernel, stream) = (kernel(&device, 0), device.create_stream(0).unwrap());
    let (read, written) = ([5u64; 4], [6u64; 4]);
    let slots = launch(&stream, &log, &kernel, &[array(0, &read, false), array(1, &written, true)]).unwrap();
    assert!(slots[0] != read.as_ptr() as u64 && slots[1] != written.as_ptr() as u64);
    let names: Vec<_> = log.calls().iter().map(|c| c.split(' ').next().unwrap().to_string()).collect();
    let waits = names.iter().position(|n| n == "synchronize").unwrap();
    let back = names.iter().position(|n| n == "copy_to_host").unwrap();
    let last_task = names.iter().rposition(|n| n == "launch").unwrap();
    assert!(last_task < back && back < waits, "{names:?}");
    assert_eq!(log.count("copy_to_host"), 1, "what is only read does not come back");
    assert_eq!(log.count("copy_to_device"), 1, "small arrays go together");
    launch(&stream, &log, &kernel, &[array(0, &read, false), array(1, &written, true)]).unwrap();
    let again = ["allocate_pinned", "allocate", "free"].map(|call| log.count(call));
    assert_eq!(again, [0; 3], "the block is used again, and the device's memory for it");
    drop((kernel, stream));
    finish(device, &log);

    // Nothing is copied if the device uses the host's memory.
    let (device, log) = device_that(RecordingDriver::sharing_memory);
    let (kernel, stream) = (self::kernel(&device, 0), device.create_stream(0).unwrap());
    let slots = launch(&stream, &log, &kernel, &[array(0, &read, false), array(1, &written, true)]).unwrap();
    assert_eq!(slots[..2], [read.as_ptr() as u64, written.as_ptr() as u64]);
    assert_eq!((log.count("copy_to_device"), log.count("synchronize")), (0, 1));
    drop((kernel, stream));
    finish(device, &log);
}

#[test]
fn s16_overlapping_arrays_share_their_copy() {
    for setting in SETTINGS {
        let (device, log) = device_that(setting);
        let (kernel, stream) = (kernel(&device, 0), device.create_stream(0).unwrap());
        let values: Vec<u64> = (0..100).collect();
        let arrays = [array(0, &values[10..60], false), array(1, &values[50..70], false)];
        let slots = launch(&stream, &log, &kernel, &arrays).unwrap();
        assert_eq!(slots[1] - slots[0], 8 * 40);
        assert_eq!(log.argument(1)[..8], 50u64.to_ne_bytes());
        assert_eq!(slots[0] % 64, values[10..].as_ptr() as u64 % 64, "as aligned as the array");
        drop((kernel, stream));
        finish(device, &log);
    }
}

#[test]
fn s16_an_array_without_elements_has_no_address_on_the_device() {
    for (setting, own) in [(SETTINGS[0], false), (SETTINGS[1], true)] {
        let (device, log) = device_that(setting);
        let (kernel, stream) = (kernel(&device, 0), device.create_stream(0).unwrap());
        let (none, some) = ([0u64; 0], [1u64; 3]);
        let slots = launch(&stream, &log, &kernel, &[array(0, &none, false), array(1, &some, false)]).unwrap();
        assert_eq!(slots[0], if own { none.as_ptr() as u64 } else { 0 });
        let slots = launch(&stream, &log, &kernel, &[array(0, &none, false), array(1, &none, true)]).unwrap();
        assert_eq!(slots[1], if own { none.as_ptr() as u64 } else { 0 });
        drop((kernel, stream));
        finish(device, &log);
    }
}

#[test]
fn s16_a_launch_waits_when_it_uses_undescribed_host_memory() {
    for (setting, waits) in [(SETTINGS[0], 0), (SETTINGS[1], 1)] {
        let (device, log) = device_that(setting);
        let (kernel, stream) = (kernel(&device, 0), device.create_stream(0).unwrap());
        let host = [0u64; 8];
        // SAFETY: the driver runs nothing.
        unsafe { stream.launch(&kernel, &[0, host.as_ptr() as u64, 0], &Uninterruptible) }.unwrap();
        // A device that cannot reach the host's memory was given memory of another library on the same device.
        assert_eq!(log.count("synchronize"), waits);
        drop((kernel, stream));
        finish(device, &log);
    }
}

#[test]
fn s16_copies_in_flight_are_bounded() {
    struct Told(Cell<u32>);
    impl Caller for Told {
        fn will_block(&self) {
            self.0.set(self.0.get() + 1);
        }
    }
    let (device, log) = device_that(RecordingDriver::sharing_memory);
    let (kernel, stream) = (kernel(&device, 0), device.create_stream(0).unwrap());
    let values = vec![0u64; (8 << 20) - 64];
    let told = Told(Cell::new(0));
    for _ in 0..10 {
        let arrays = [array(0, &values, false)];
        // SAFETY: the driver runs nothing.
        unsafe { stream.launch_with(&kernel, &[arrays[0].low, 0, 0], &arrays, &told) }.unwrap();
    }
    assert_eq!((log.count("allocate_pinned"), log.count("synchronize_event"), told.0.get()), (4, 6, 6));
    drop((kernel, stream));
    finish(device, &log);
}

#[test]
fn s16_s24_a_launch_with_arrays_recovers_from_a_failure_of_each_call() {
    let mut names = Vec::new();
    for setting in SETTINGS {
        for (written, before) in [(false, false), (false, true), (true, false)] {
            for n in 0.. {
                let (device, log) = device_that(|d| setting(d).with_max_argument_bytes(16));
                let (kernel, stream) = (kernel(&device, 0), device.create_stream(0).unwrap());
                let (a, b) = ([1u64; 100], [2u64; 100]);
                if before {
                    launch(&stream, &log, &kernel, &[array(0, &a, false)]).unwrap();
                }
                log.fail_call(n);
                let end = launch(&stream, &log, &kernel, &[array(0, &a, false), array(1, &b, written)]);
                match (log.failed(), end) {
                    (Some(name), Err(e)) => {
                        assert!(matches!(e.kind(), ErrorKind::Call { call, .. } if *call == name), "{e}");
                        names.push(name);
                    }
                    (None, Ok(_)) => {
                        assert!(n > 4, "every call was tried");
                        break;
                    }
                    (failed, end) => panic!("call {n}: {failed:?} and {end:?}"),
                }
                launch(&stream, &log, &kernel, &[array(0, &a, false), array(1, &b, written)]).unwrap();
                drop((kernel, stream));
                finish(device, &log);
            }
        }
    }
    names.sort_unstable();
    names.dedup();
    let tried = ["allocate", "allocate_pinned", "copy_to_device", "copy_to_host", "create_event", "create_stream"];
    assert_eq!(names[..6], tried);
    assert_eq!(names[6..], ["launch", "query_event", "record_event", "synchronize", "wait_events"]);
}

#[test]
fn s17_arguments_that_do_not_fit_by_value_are_copied_to_the_frame_on_the_stream() {
    let (device, log) = device_that(|d| d.with_max_argument_bytes(16));
    let (kernel, streams) = (kernel(&device, 0), [(); 2].map(|()| device.create_stream(0).unwrap()));
    let mut places = Vec::new();
    for round in 0..4u64 {
        for (k, stream) in streams.iter().enumerate() {
            // SAFETY: the driver runs nothing.
            unsafe { stream.launch(&kernel, &[0, 0, 10 * round + k as u64], &Uninterruptible) }.unwrap();
            let place = log.last_args_at().unwrap();
            // 60 bytes of frame come first.
            assert_eq!(log.memory(place).unwrap()[16..24], (10 * round + k as u64).to_ne_bytes());
            places.push(place);
        }
    }
    assert_ne!(places[0], places[1], "streams share nothing");
    assert_eq!(places[0], places[2], "in a stream's frame launches follow one another");
    assert_eq!(log.count("synchronize"), 0);
    // By value if they fit.
    let (other, other_log) = device_that(|d| d.with_max_argument_bytes(24));
    let fits = self::kernel(&other, 0);
    // SAFETY: as above.
    unsafe { other.default_stream().launch(&fits, &[0, 0, 1], &Uninterruptible) }.unwrap();
    assert_eq!((other_log.last_args_at(), other_log.count("copy_to_device")), (None, 0));
    drop((kernel, streams, fits));
    finish(device, &log);
    finish(other, &other_log);
}

#[test]
fn s2_s16_uploads_fills_and_copies_are_queued() {
    let (device, log) = device();
    let stream = device.create_stream(0).unwrap();
    let (a, b) = (device.allocate(300_000).unwrap(), device.allocate(300_000).unwrap());
    let bytes = |buffer: &octants_runtime::Buffer| log.memory(buffer.ptr().unwrap()).unwrap();
    let mut host = vec![7u8; 1000];
    stream.upload(&a, 500, &host, &Uninterruptible).unwrap();
    host.fill(8);
    assert_eq!(bytes(&a)[499..1501], [&[0][..], &[7; 1000], &[0]].concat());
    for (size, count) in [(1, 1), (3, 5), (12, 25_000), (4, 75_000), (100_000, 3)] {
        let element: Vec<u8> = (0..size).map(|i| (i % 251) as u8 + 1).collect();
        stream.fill(&a, 0, &element, count, &Uninterruptible).unwrap();
        assert_eq!(bytes(&a)[..size * count as usize], element.repeat(count as usize));
    }
    let copies = || log.count("copy_to_device") + log.count("copy_on_device");
    let (before, calls) = (copies(), log.count("fill"));
    for element in [&[5, 5, 5][..], &[1, 2, 3, 4, 1, 2, 3, 4], &[1, 2, 1, 2, 1, 2]] {
        stream.fill(&a, 4, element, 1000, &Uninterruptible).unwrap();
        assert_eq!(bytes(&a)[4..4 + 1000 * element.len()], element.repeat(1000));
    }
    assert_eq!(
        (log.count("fill"), copies()),
        (calls + 3, before),
        "what repeats after one, two or four bytes is one call"
    );
    stream.fill(&a, 2, &[1, 2, 3, 4], 1000, &Uninterruptible).unwrap();
    assert_eq!((bytes(&a)[2..4002].to_vec(), log.count("fill")), ([1, 2, 3, 4].repeat(1000), calls + 3), "not aligned");
    stream.copy(&b, 0, &a, 0, 300_000, &Uninterruptible).unwrap();
    assert_eq!(bytes(&b), bytes(&a));
    assert!(stream.fill(&a, 8, &[1], 300_000, &Uninterruptible).is_err());
    assert!(stream.upload(&a, 299_999, &[1, 2], &Uninterruptible).is_err());
    assert_eq!(log.count("synchronize"), 0, "the host waits for nothing");
    // Freed after these uses. Each is recorded separately.
    let others = [(); 2].map(|()| device.allocate(64).unwrap());
    stream.upload(&others[0], 0, &[1; 64], &Uninterruptible).unwrap();
    stream.fill(&others[1], 0, &[1; 8], 8, &Uninterruptible).unwrap();
    drop((a, b, others));
    assert_eq!(log.count("synchronize"), 0);
    drop(stream);
    finish(device, &log);
}

#[test]
fn s7_a_captured_stream_is_not_waited_for() {
    let (device, log) = device();
    let (plain, with_result) = (kernel(&device, 0), kernel(&device, 1));
    let stream = device.stream_from_handle(4711).unwrap();
    let refused = |end: octants_runtime::Result<()>| {
        let text = end.unwrap_err().to_string();
        assert!(text.contains("a stream that is being captured into a graph cannot"), "{text}");
    };
    // SAFETY: the driver runs nothing, in all launches below.
    let run = |kernel: &LoadedKernel| unsafe { stream.launch(kernel, &[0, 0, 0], &Uninterruptible) }.map(drop);
    log.capture(Some(4711));
    run(&plain).unwrap();
    assert!(log.take().iter().all(|c| !c.starts_with("allocate") || c.ends_with("for all")), "no part of the graph");
    log.capture(None);
    run(&with_result).unwrap();
    log.capture(Some(4711));
    run(&plain).unwrap();
    refused(run(&with_result));
    refused(stream.synchronize(&Uninterruptible));
    refused(launch(&stream, &log, &plain, &[array(0, &[1], false)]).map(drop));
    let buffer = device.allocate(8).unwrap();
    refused(stream.upload(&buffer, 0, &[1], &Uninterruptible));
    refused(stream.fill(&buffer, 0, &[1, 2, 3, 4, 5, 6, 7, 8], 1, &Uninterruptible));
    stream.fill(&buffer, 0, &[1, 2, 3, 4], 2, &Uninterruptible).unwrap();
    log.capture(None);
    // The driver treats captured work as executed. Its end is known once that of later work is.
    run(&plain).unwrap();
    drop((plain, with_result, stream, buffer));
    device.close(&Uninterruptible).unwrap();
    assert_eq!(log.mistakes(), Vec::<String>::new());
}
