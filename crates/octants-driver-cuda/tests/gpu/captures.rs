//! Another library in the process, which captures streams into graphs, or has contexts of its own.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

use libloading::Library;
use octants_driver_gpu::GpuConfig;
use octants_runtime::Patient;

use crate::suite::kernels::{launch, mad, mad_in_groups};
use crate::suite::{Gpu, values};

/// What a library that captures uses of the driver's.
struct Graphs {
    library: Library,
}

impl Graphs {
    fn begin(&self, stream: u64) {
        type Begin = unsafe extern "C" fn(*mut c_void, c_uint) -> c_int;
        // SAFETY: the type is that of CUDA's header; the stream lives. 0: no thread of the process may get in the way.
        unsafe {
            let f = self.library.get::<Begin>(b"cuStreamBeginCapture_v2").unwrap();
            assert_eq!(f(stream as *mut c_void, 0), 0);
        }
    }

    /// Ends the capture and runs the graph so many times.
    fn run(&self, stream: u64, times: u32) {
        type End = unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> c_int;
        type Make = unsafe extern "C" fn(*mut *mut c_void, *mut c_void, u64) -> c_int;
        type Launch = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
        let stream = stream as *mut c_void;
        let (mut graph, mut ready) = (null_mut(), null_mut());
        // SAFETY: as above.
        unsafe {
            let end = self.library.get::<End>(b"cuStreamEndCapture").unwrap();
            let make = self.library.get::<Make>(b"cuGraphInstantiateWithFlags").unwrap();
            let launch = self.library.get::<Launch>(b"cuGraphLaunch").unwrap();
            assert_eq!(end(stream, &mut graph), 0, "the capture was not broken");
            assert_eq!(make(&mut ready, graph, 0), 0);
            (0..times).for_each(|_| assert_eq!(launch(ready, stream), 0));
        }
    }
}

#[test]
fn s7_launches_on_a_captured_stream_are_captured() {
    let Some(gpu) = Gpu::open_alone() else { return };
    let theirs = Gpu::open_as(&GpuConfig::default()).unwrap();
    let stream = theirs.device.create_stream(0).unwrap();
    // SAFETY: the driver is loaded already.
    let graphs = Graphs { library: unsafe { Library::new("libcuda.so.1") }.unwrap() };
    let (kernel, groups) = (mad(&gpu), mad_in_groups(&gpu, &[Some(0), Some(1)]));
    let (x, y) = (gpu.numbers(1000), gpu.numbers(1000));
    launch(gpu.device.default_stream(), &groups, &y, (1, 0)).unwrap();
    gpu.device.synchronize(&Patient).unwrap();
    let named = || gpu.device.stream_from_handle(stream.handle()).unwrap();
    for round in 0..2 {
        graphs.begin(stream.handle());
        launch(&named(), &kernel, &x, (1, 1)).unwrap();
        launch(&named(), &groups, &y, (0, 5 + round)).unwrap();
        launch(&named(), &kernel, &x, (1, 2)).unwrap();
        // What has nothing to do with the capture goes on meanwhile.
        let z = gpu.numbers(1 << 16);
        launch(gpu.device.default_stream(), &kernel, &z, (1, 9)).unwrap();
        assert!(values(&z).iter().all(|&v| v == 9));
        launch(gpu.device.default_stream(), &groups, &z, (0, 8)).unwrap();
        assert!(values(&z).iter().all(|&v| v == 8), "with other workers than the capture's");
        drop(z);
        let error = named().synchronize(&Patient).unwrap_err().to_string();
        assert!(error.contains("captured into a graph"), "{error}");
        graphs.run(stream.handle(), 4);
        stream.synchronize(&Patient).unwrap();
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
fn a_thread_keeps_the_context_that_another_library_gave_it() {
    let Some(gpu) = Gpu::open_alone() else { return };
    type Create = unsafe extern "C" fn(*mut *mut c_void, c_uint, c_int) -> c_int;
    type Current = unsafe extern "C" fn(*mut *mut c_void) -> c_int;
    type Destroy = unsafe extern "C" fn(*mut c_void) -> c_int;
    // SAFETY: the driver is loaded already; the types are those of CUDA's headers.
    unsafe {
        let library = Library::new("libcuda.so.1").unwrap();
        let current = library.get::<Current>(b"cuCtxGetCurrent").unwrap();
        let (mut theirs, mut now) = (null_mut(), null_mut());
        assert_eq!(library.get::<Create>(b"cuCtxCreate_v2").unwrap()(&mut theirs, 0, 0), 0);
        let (kernel, x, stream) = (mad(&gpu), gpu.numbers(10), gpu.device.create_stream(0).unwrap());
        launch(&stream, &kernel, &x, (1, 5)).unwrap();
        assert_eq!(values(&x), [5; 10]);
        drop((kernel, x, stream));
        assert_eq!((current(&mut now), now), (0, theirs));
        assert_eq!(library.get::<Destroy>(b"cuCtxDestroy_v2").unwrap()(theirs), 0);
        // A thread without any gets ours.
        let (kernel, x) = (mad(&gpu), gpu.numbers(10));
        launch(gpu.device.default_stream(), &kernel, &x, (1, 6)).unwrap();
        assert_eq!(values(&x), [6; 10]);
    }
}
