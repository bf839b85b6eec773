//! The stand-in for HIP's library: its functions have the types of our table, and it sees what must not be done. That our driver does none
//! of it, and that what is built on it computes right results, is tested from Python (`pytest --arch amdgpu-standin`, `test_hip.py`).

#![allow(clippy::unwrap_used)]

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use amdhip64::exports::*;
use amdhip64::{control, faults};
use octants_driver_gpu::Symbols;
use octants_driver_hip::symbols::Own;

/// The state is the process's, and so are faults.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// What was noted while something was done on this thread, which begins on the first device.
fn noted(act: impl FnOnce()) -> String {
    let _alone = ALONE.lock().unwrap_or_else(|p| p.into_inner());
    // SAFETY: the device is there.
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
fn functions_have_the_types_of_the_table() {
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
        pool_create: None,
        pool_destroy: Some(hipMemPoolDestroy),
        pool_set: Some(hipMemPoolSetAttribute),
        pool_trim: Some(hipMemPoolTrimTo),
        pool_allocate: Some(hipMallocFromPoolAsync),
        pool_free: Some(hipFreeAsync),
    };
    let _ = Own {
        error_name: hipGetErrorName,
        error_string: hipGetErrorString,
        last_error: hipGetLastError,
        device_current: hipGetDevice,
        device_set: hipSetDevice,
        best_block: hipModuleOccupancyMaxPotentialBlockSize,
    };
}

#[test]
fn a_call_that_forgets_to_switch_devices_is_noted() {
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
fn what_is_gone_is_told_from_what_never_was() {
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
fn memory_that_is_gone_or_not_there_yet_is_noted_where_it_is_used() {
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
fn work_of_a_stream_is_done_in_order_and_events_order_streams() {
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
