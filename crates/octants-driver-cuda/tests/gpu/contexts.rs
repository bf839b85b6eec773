//! Another library in the process with its own contexts.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

use libloading::Library;

use crate::suite::kernels::{launch, mad};
use crate::suite::{Gpu, values};

#[test]
fn a_thread_keeps_the_context_set_by_another_library() {
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
