//! Tests of the stand-in for HIP's library: its functions have the signatures of our table, and it detects misuse.
//! Tests in Python (`pytest --arch amdgpu-standin`, `test_hip.py`) check that our driver causes no faults, and that
//! programs compute correct results on it.

#![allow(clippy::unwrap_used)]

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use amdhip64::exports::*;
use amdhip64::{control, faults};
use octants_driver_gpu::Symbols;
use octants_driver_hip::symbols::Own;

/// The state is the process's, and so are faults.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// The faults recorded while `act` runs on this thread, which starts on the first device.
fn noted(act: impl FnOnce()) -> String {
    let _alone = ALONE.lock().unwrap_or_else(|p| p.into_inner());
    // SAFETY: the device exists.
    assert_eq!(unsafe { hipSetDevice(0) }, 0);
    faults::take();
    act();
    faults::take().join("\n")
}

fn made(make: impl FnOnce(*mut *mut c_void) -> c_int) -> *mut c_void {
    let mut made = null_mut();
    assert_eq!(make(&mut made), 0);
    made
}

#[test]
fn functions_have_the_signatures_of_the_table() {
    // Compiles, which is the test. Pools are made from a struct that each side declares for itself.
    let _ = Symbols {
        init: hipInit,
        driver_version: hipDriverGetVersion,
        device_count: hipGetDeviceCount,
        device_get: hipDeviceGet,
        device_name: hipDeviceGetName,
        device_attribute: hipDeviceGetAttribute,
        device_memory: hipDeviceTotalMem,
        synchronize_all: hipDeviceSynchronize,
        priority_range: hipDeviceGetStreamPriorityRange,
        memory_info: hipMemGetInfo,
        allocate: hipMalloc,
        free: hipFree,
        host_allocate: hipHostMalloc,
        host_free: hipHostFree,
        memset: hipMemsetD8Async,
        memset16: hipMemsetD16Async,
        memset32: hipMemsetD32Async,
        copy_to_device: hipMemcpyHtoDAsync,
        copy_to_host: hipMemcpyDtoHAsync,
        copy_on_device: hipMemcpyDtoDAsync,
        stream_create: hipStreamCreateWithPriority,
        stream_destroy: hipStreamDestroy,
        stream_synchronize: hipStreamSynchronize,
        stream_query: hipStreamQuery,
        stream_wait: hipStreamWaitEvent,
        stream_capturing: hipStreamIsCapturing,
        capture_mode: hipThreadExchangeStreamCaptureMode,
        event_create: hipEventCreateWithFlags,
        event_destroy: hipEventDestroy,
        event_record: hipEventRecord,
        event_synchronize: hipEventSynchronize,
        event_query: hipEventQuery,
        event_elapsed: hipEventElapsedTime,
        module_load: hipModuleLoadDataEx,
        module_unload: hipModuleUnload,
        module_function: hipModuleGetFunction,
        function_attribute: hipFuncGetAttribute,
        occupancy: hipModuleOccupancyMaxActiveBlocksPerMultiprocessor,
        launch: hipModuleLaunchKernel,
        launch_resident: Some(hipModuleLaunchCooperativeKernel),
        pool_create: None,
        pool_destroy: Some(hipMemPoolDestroy),
        pool_set: Some(hipMemPoolSetAttribute),
        pool_trim: Some(hipMemPoolTrimTo),
        pool_access: None,
        pool_allocate: Some(hipMallocFromPoolAsync),
        pool_free: Some(hipFreeAsync),
        graph_instantiate: Some(hipGraphInstantiateWithFlags),
        graph_launch: Some(hipGraphLaunch),
        graph_exec_destroy: Some(hipGraphExecDestroy),
        capture_begin: Some(hipStreamBeginCapture),
        capture_end: Some(hipStreamEndCapture),
        graph_destroy: Some(hipGraphDestroy),
    };
    let _ = Own {
        error_name: hipGetErrorName,
        error_string: hipGetErrorString,
        last_error: hipGetLastError,
        device_current: hipGetDevice,
        device_set: hipSetDevice,
        copy_between: hipMemcpyPeerAsync,
    };
}

#[test]
fn a_call_on_the_wrong_current_device_is_noted() {
    let said = noted(|| {
        // SAFETY: what is wrong is noted, and nothing else happens.
        unsafe {
            assert_eq!(hipSetDevice(1), 0);
            let stream = made(|s| hipStreamCreateWithPriority(s, 1, 0));
            let event = made(|e| hipEventCreateWithFlags(e, 2));
            assert_eq!(hipSetDevice(0), 0);
            let calls: [&dyn Fn() -> c_int; 9] = [
                &|| hipStreamSynchronize(stream),
                &|| hipStreamQuery(stream),
                &|| hipStreamWaitEvent(stream, event, 0),
                &|| hipStreamDestroy(stream),
                &|| hipEventRecord(event, null_mut()),
                &|| hipEventSynchronize(event),
                &|| hipEventQuery(event),
                &|| hipEventDestroy(event),
                &|| hipMemsetD8Async(0, 0, 0, stream),
            ];
            for call in calls {
                assert_eq!(call(), 400);
            }
            assert_eq!(hipSetDevice(1), 0);
            assert_eq!((hipStreamDestroy(stream), hipEventDestroy(event)), (0, 0));
        }
    });
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 9, "{said}");
    assert!(lines.iter().all(|l| l.contains("of device 1 while the thread's device is 0")), "{said}");
}

#[test]
fn destroyed_and_unknown_handles_are_distinguished() {
    let said = noted(|| {
        // SAFETY: as above.
        unsafe {
            let stream = made(|s| hipStreamCreateWithPriority(s, 1, 0));
            assert_eq!(hipStreamDestroy(stream), 0);
            assert_eq!(hipStreamQuery(stream), 400);
            assert_eq!(hipStreamQuery(0x123 as *mut c_void), 400);
        }
    });
    assert!(said.contains("a stream that was destroyed") && said.contains("a stream that never was"), "{said}");
}

#[test]
fn uses_of_freed_and_not_yet_allocated_memory_are_noted() {
    let said = noted(|| {
        // SAFETY: as above; the host's memory outlives the copies.
        unsafe {
            let properties = [1, 0, 1, 0];
            let pool = made(|p| hipMemPoolCreate(p, &properties));
            let streams = [0; 2].map(|_| made(|s| hipStreamCreateWithPriority(s, 1, 0)));
            let (mut at, number) = (0, 7u64);
            assert_eq!(hipMallocFromPoolAsync(&mut at, 64, pool, streams[0]), 0);
            assert_eq!(hipFreeAsync(at, streams[0]), 0);
            assert_eq!(hipFreeAsync(at, streams[0]), 1, "it goes already");
            assert_eq!(hipStreamSynchronize(streams[0]), 0);
            assert_eq!(hipMemcpyHtoDAsync(at, (&raw const number).cast(), 8, streams[1]), 0);
            assert_eq!(hipStreamSynchronize(streams[1]), 0);
            assert_eq!(streams.map(|s| hipStreamDestroy(s)), [0; 2]);
            assert_eq!(hipMemPoolDestroy(pool), 0);
        }
    });
    assert!(said.contains("or goes already") && said.contains("no memory of a device"), "{said}");
}

#[test]
fn a_stream_runs_in_order_and_events_order_streams() {
    let said = noted(|| {
        control::standin_set_seed(9);
        // SAFETY: the host's memory is pinned, and outlives the copies.
        unsafe {
            let streams = [0; 2].map(|_| made(|s| hipStreamCreateWithPriority(s, 1, 0)));
            let (event, host) = (made(|e| hipEventCreateWithFlags(e, 0)), made(|h| hipHostMalloc(h, 64, 0)));
            let mut at = 0;
            assert_eq!(hipMalloc(&mut at, 64), 0);
            for round in 0..50u8 {
                assert_eq!(hipMemsetD8Async(at, round ^ 0xff, 64, streams[0]), 0);
                assert_eq!(hipMemsetD8Async(at, round, 64, streams[0]), 0);
                assert_eq!(hipEventRecord(event, streams[0]), 0);
                assert_eq!(hipStreamWaitEvent(streams[1], event, 0), 0);
                assert_eq!(hipMemcpyDtoHAsync(host, at, 64, streams[1]), 0);
                assert_eq!(hipStreamSynchronize(streams[1]), 0);
                assert_eq!(host.cast::<[u8; 64]>().read(), [round; 64]);
            }
            assert_eq!(streams.map(|s| hipStreamDestroy(s)), [0; 2]);
            assert_eq!((hipEventDestroy(event), hipFree(at), hipHostFree(host)), (0, 0, 0));
        }
        control::standin_set_seed(0);
    });
    assert_eq!(said, "");
}

/// Two streams, the first of which is captured; an event, and memory.
struct Captured {
    streams: [*mut c_void; 2],
    event: *mut c_void,
    at: u64,
}

fn captured(during: impl FnOnce(&Captured)) -> String {
    noted(|| {
        // SAFETY: what is wrong is noted, and nothing else happens.
        unsafe {
            let streams = [0; 2].map(|_| made(|s| hipStreamCreateWithPriority(s, 1, 0)));
            let event = made(|e| hipEventCreateWithFlags(e, 2));
            let mut at = 0;
            assert_eq!(hipMalloc(&mut at, 64), 0);
            assert_eq!(hipMemsetD8Async(at, 1, 64, streams[0]), 0);
            assert_eq!(hipStreamSynchronize(streams[0]), 0);
            assert_eq!(hipStreamBeginCapture(streams[0], 0), 0);
            during(&Captured { streams, event, at });
            assert_eq!(streams.map(|s| hipStreamDestroy(s)), [0; 2]);
            assert_eq!((hipEventDestroy(event), hipFree(at)), (0, 0));
        }
    })
}

/// Whether a stream is captured.
fn status(stream: *mut c_void) -> c_int {
    let mut status = -1;
    // SAFETY: the pointer is to a variable.
    assert_eq!(unsafe { hipStreamIsCapturing(stream, &mut status) }, 0);
    status
}

#[test]
fn a_captured_graph_runs_its_work_in_an_order_that_events_allow() {
    let said = captured(|c| {
        let [first, second] = c.streams;
        // SAFETY: as above.
        unsafe {
            let host = |n: u64| std::ptr::read_volatile(n as *const [u8; 2]);
            assert_eq!((status(first), status(second)), (1, 0));
            assert_eq!(hipMemsetD8Async(c.at, 2, 2, first), 0);
            assert_eq!((hipEventRecord(c.event, first), hipStreamWaitEvent(second, c.event, 0)), (0, 0));
            assert_eq!(status(second), 1, "it waits for what is captured");
            assert_eq!(hipMemsetD8Async(c.at, 3, 1, second), 0);
            assert_eq!((hipEventRecord(c.event, second), hipStreamWaitEvent(first, c.event, 0)), (0, 0));
            assert_eq!(hipMemcpyDtoDAsync(c.at + 1, c.at, 1, first), 0);
            let graph = made(|g| hipStreamEndCapture(first, g));
            assert_eq!((status(first), status(second), host(c.at)), (0, 0, [1, 1]));
            let ready = made(|r| hipGraphInstantiateWithFlags(r, graph, 0));
            for seed in 0..20 {
                control::standin_set_seed(seed);
                assert_eq!(hipMemsetD8Async(c.at, 9, 2, first), 0);
                assert_eq!((hipGraphLaunch(ready, first), hipStreamSynchronize(first)), (0, 0));
                assert_eq!(host(c.at), [3, 3]);
            }
            control::standin_set_seed(0);
            assert_eq!((hipGraphExecDestroy(ready), hipGraphDestroy(graph)), (0, 0));
        }
    });
    assert_eq!(said, "");
}

#[test]
fn calls_that_invalidate_a_capture_are_noted() {
    type Break<'a> = &'a dyn Fn(&Captured) -> c_int;
    // SAFETY: as above.
    let ways: [(Break<'_>, c_int, &str); 7] = unsafe {
        [
            (&|c| hipStreamSynchronize(c.streams[0]), 900, "hipStreamSynchronize: not while"),
            (&|c| hipStreamQuery(c.streams[1]), 900, "hipStreamQuery: not while"),
            (&|_| hipMalloc(&mut 0, 64), 900, "hipMalloc: not while"),
            (&|c| hipFree(c.at), 900, "hipFree: not while"),
            (&|_| hipDeviceSynchronize(), 900, "hipDeviceSynchronize: not while"),
            (
                &|c| {
                    assert_eq!(hipEventRecord(c.event, c.streams[1]), 0);
                    hipStreamWaitEvent(c.streams[0], c.event, 0)
                },
                905,
                "waits for what is not captured",
            ),
            (
                &|c| {
                    assert_eq!(hipEventRecord(c.event, c.streams[0]), 0);
                    assert_eq!(hipThreadExchangeStreamCaptureMode(&mut 2), 0);
                    let code = hipEventQuery(c.event);
                    assert_eq!(hipThreadExchangeStreamCaptureMode(&mut 0), 0);
                    code
                },
                907,
                "an event that was recorded in a capture",
            ),
        ]
    };
    for (breaks, code, text) in ways {
        let said = captured(|c| {
            assert_eq!(breaks(c), code, "{text}");
            assert_eq!(status(c.streams[0]), 2, "{text}");
            // SAFETY: as above.
            assert_eq!(unsafe { hipStreamEndCapture(c.streams[0], &mut null_mut()) }, 901, "{text}");
        });
        assert!(said.contains(text) && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn a_thread_in_relaxed_mode_may_make_other_calls_during_a_capture() {
    let said = captured(|c| {
        // SAFETY: as above.
        unsafe {
            let (mut mode, mut at) = (2, 0);
            assert_eq!((hipThreadExchangeStreamCaptureMode(&mut mode), mode), (0, 0));
            assert_eq!((hipMalloc(&mut at, 64), hipFree(at), hipStreamQuery(c.streams[1])), (0, 0, 0));
            assert_eq!((hipThreadExchangeStreamCaptureMode(&mut mode), mode), (0, 2));
            let graph = made(|g| hipStreamEndCapture(c.streams[0], g));
            assert_eq!(hipGraphDestroy(graph), 0);
        }
    });
    assert_eq!(said, "");
}

#[test]
fn captured_streams_that_are_not_joined_are_noted() {
    let said = captured(|c| {
        let [first, second] = c.streams;
        // SAFETY: as above.
        unsafe {
            assert_eq!((hipEventRecord(c.event, first), hipStreamWaitEvent(second, c.event, 0)), (0, 0));
            assert_eq!(hipMemsetD8Async(c.at, 3, 1, second), 0);
            assert_eq!(hipStreamEndCapture(second, &mut null_mut()), 903, "it began on the other");
            assert_eq!(hipStreamEndCapture(first, &mut null_mut()), 904);
        }
    });
    assert!(said.contains("not waited for by the first"), "{said}");
}
