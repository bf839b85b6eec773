//! Streams that another library captures into graphs. The other library is the vendor's itself, called by the test.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::ptr::null_mut;

use octants_driver_gpu::GpuConfig;
use octants_runtime::Uninterruptible;

use super::kernels::{launch, mad, mad_in_groups};
use super::{Gpu, values};
use crate::vendor;

type Begin = unsafe extern "C" fn(*mut c_void, c_uint) -> c_int;
type End = unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> c_int;
type Make = unsafe extern "C" fn(*mut *mut c_void, *mut c_void, c_ulonglong) -> c_int;
type Launch = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;

fn begin_capture(stream: u64) {
    // SAFETY: the type is that of the vendors' headers; the stream is alive. 0: calls of all threads of the process are
    // checked.
    let code = unsafe { vendor::library().get::<Begin>(vendor::GRAPHS[0]).unwrap()(stream as *mut c_void, 0) };
    assert_eq!(code, 0);
}

/// Ends the capture: the graph, ready to be run.
fn end_capture(stream: u64) -> *mut c_void {
    let library = vendor::library();
    let (mut graph, mut ready) = (null_mut(), null_mut());
    // SAFETY: as above.
    unsafe {
        let end = library.get::<End>(vendor::GRAPHS[1]).unwrap();
        assert_eq!(end(stream as *mut c_void, &mut graph), 0, "the capture was not broken");
        assert_eq!(library.get::<Make>(vendor::GRAPHS[2]).unwrap()(&mut ready, graph, 0), 0);
    }
    ready
}

fn run(ready: *mut c_void, stream: u64) {
    // SAFETY: as above.
    let code = unsafe { vendor::library().get::<Launch>(vendor::GRAPHS[3]).unwrap()(ready, stream as *mut c_void) };
    assert_eq!(code, 0);
}

#[test]
fn s7_launches_on_a_captured_stream_are_captured() {
    let Some(gpu) = Gpu::open_alone() else { return };
    let theirs = Gpu::open_as(&GpuConfig::default()).unwrap();
    let stream = theirs.device.create_stream(0).unwrap();
    let (kernel, groups) = (mad(&gpu), mad_in_groups(&gpu, &[Some(0), Some(1)]));
    let (x, y) = (gpu.numbers(1000), gpu.numbers(1000));
    launch(gpu.device.default_stream(), &groups, &y, (1, 0)).unwrap();
    gpu.device.synchronize(&Uninterruptible).unwrap();
    let named = || gpu.device.stream_from_handle(stream.handle()).unwrap();
    for round in 0..2 {
        begin_capture(stream.handle());
        launch(&named(), &kernel, &x, (1, 1)).unwrap();
        launch(&named(), &groups, &y, (0, 5 + round)).unwrap();
        launch(&named(), &kernel, &x, (1, 2)).unwrap();
        // Other work continues during the capture.
        let z = gpu.numbers(1 << 16);
        launch(gpu.device.default_stream(), &kernel, &z, (1, 9)).unwrap();
        assert!(values(&z).iter().all(|&v| v == 9));
        launch(gpu.device.default_stream(), &groups, &z, (0, 8)).unwrap();
        assert!(values(&z).iter().all(|&v| v == 8), "with other workers than the capture's");
        drop(z);
        let error = named().synchronize(&Uninterruptible).unwrap_err().to_string();
        assert!(error.contains("captured into a graph"), "{error}");
        let ready = end_capture(stream.handle());
        (0..4).for_each(|_| run(ready, stream.handle()));
        stream.synchronize(&Uninterruptible).unwrap();
        assert!(values(&x).iter().all(|&v| v == 12 * (round + 1)), "{:?}", &values(&x)[..4]);
        assert!(values(&y).iter().all(|&v| v == 5 + round));
    }
    // The workers of the groups are free again.
    launch(gpu.device.default_stream(), &groups, &y, (0, 77)).unwrap();
    assert!(values(&y).iter().all(|&v| v == 77));
    drop(stream);
    drop(theirs);
}

#[test]
fn s7_code_stays_loaded_while_a_graph_may_run_it() {
    let Some(gpu) = Gpu::open_alone() else { return };
    let theirs = Gpu::open_as(&GpuConfig::default()).unwrap();
    let stream = theirs.device.create_stream(0).unwrap();
    let (kernel, x) = (mad(&gpu), gpu.numbers(1000));
    launch(gpu.device.default_stream(), &kernel, &x, (0, 1)).unwrap();
    gpu.device.synchronize(&Uninterruptible).unwrap();
    begin_capture(stream.handle());
    launch(&gpu.device.stream_from_handle(stream.handle()).unwrap(), &kernel, &x, (2, 1)).unwrap();
    let ready = end_capture(stream.handle());
    drop(kernel);
    // Enough launches that unused code is unloaded.
    (0..300).for_each(|_| drop(mad(&gpu)));
    (0..3).for_each(|_| run(ready, stream.handle()));
    stream.synchronize(&Uninterruptible).unwrap();
    assert_eq!(values(&x)[..3], [15; 3]);
}
