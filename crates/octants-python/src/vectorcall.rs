//! Kernel calls by the interpreter's vectorcall protocol: no tuple for the arguments, and no dict for `qd_stream=`.
//! Calls with other keywords, or with an existing tuple and dict, go through `__call__`.
//!
//! PyO3 has no attribute for vectorcall, so the slot is set on the type after its creation. The interpreter reads it
//! from the type at each call.

use std::ffi::c_ulong;
use std::sync::Once;

use octants_engine::ir::AutodiffMode;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::kernel::Kernel;

/// The function that the interpreter calls; a field of each kernel.
pub const ENTRY: ffi::vectorcallfunc = entry;

unsafe extern "C" fn entry(
    kernel: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    count: usize,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter's contract. PyO3's own entry of functions turns panics and errors into exceptions.
    unsafe {
        let count = ffi::PyVectorcall_NARGS(count);
        pyo3::impl_::trampoline::get_trampoline_function!(fastcall_cfunction_with_keywords, call)(
            kernel, args, count, names,
        )
    }
}

/// # Safety
/// As the interpreter calls: `count` arguments, and after them one for each of `names`, a tuple or null.
unsafe fn call(
    py: Python<'_>,
    kernel: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> PyResult<*mut ffi::PyObject> {
    // SAFETY: the contract above. A `Bound` is a pointer to an object, and these are not dropped.
    let (kernel, args, names) = unsafe {
        let kernel = Bound::ref_from_ptr(py, &kernel).cast_unchecked::<Kernel>();
        let names = match names.is_null() {
            true => &[],
            false => Bound::ref_from_ptr(py, &names).cast_unchecked::<PyTuple>().as_slice(),
        };
        let all = count as usize + names.len();
        let args = if all == 0 { &[] } else { std::slice::from_raw_parts(args.cast::<Bound<'_, PyAny>>(), all) };
        (kernel, args, names)
    };
    let (args, values) = args.split_at(count as usize);
    let result = match (names, values) {
        ([], _) => Kernel::call_on(kernel, args, None, None, AutodiffMode::None),
        ([name], [stream]) if name.is(pyo3::intern!(py, "qd_stream")) => {
            Kernel::call_on(kernel, args, Some(stream), None, AutodiffMode::None)
        }
        (names, values) => {
            let named = PyDict::new(py);
            names.iter().zip(values).try_for_each(|(name, value)| named.set_item(name, value))?;
            Kernel::call(kernel, None, &PyTuple::new(py, args)?, Some(&named), AutodiffMode::None)
        }
    };
    result.map(Py::into_ptr)
}

/// Sets the type's vectorcall offset, using the first kernel.
pub fn set_vectorcall_offset(kernel: &Bound<'_, Kernel>) {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        let field = &raw const kernel.get().vectorcall;
        let offset = field as isize - kernel.as_ptr() as isize;
        let kind = kernel.get_type().as_type_ptr();
        // SAFETY: the type is alive and not used by another thread yet. All its objects have the field at the same
        // offset.
        unsafe {
            (*kind).tp_vectorcall_offset = offset;
            // Without the interpreter's lock the flags are an atomic number of this type.
            let flags = (&raw mut (*kind).tp_flags).cast::<c_ulong>();
            flags.write(flags.read() | ffi::Py_TPFLAGS_HAVE_VECTORCALL);
            ffi::PyType_Modified(kind);
        }
    });
}
