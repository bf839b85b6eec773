//! hipSPARSE's products of CSR matrices with vectors.

#![allow(non_snake_case, missing_docs, clippy::missing_safety_doc)] // HIP's names; its contract is its documentation.
#![allow(clippy::too_many_arguments)] // Its functions.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Handle, enqueue};
use crate::faults::note;
use crate::product::{Matrix, Product, WORKSPACE_BYTES};
use crate::state::{current, state};
use crate::work::Work;

const SUCCESS: c_int = 0;
const INVALID_VALUE: c_int = 3;

/// The library's state for a device.
struct Library {
    device: i32,
    stream: AtomicU64,
}

/// A matrix, and its workspace.
struct Described {
    matrix: Arc<Matrix>,
    prepared_in: AtomicU64,
}

/// A vector: its length and memory.
struct Vector {
    length: i64,
    at: AtomicU64,
}

unsafe fn give<T>(place: *mut Handle, value: T) -> c_int {
    // SAFETY: hipSPARSE's contract.
    unsafe { *place = Box::into_raw(Box::new(value)).cast() };
    SUCCESS
}

unsafe fn take_back<T>(object: Handle) -> c_int {
    // SAFETY: made by `give`, and freed once.
    drop(unsafe { Box::from_raw(object.cast::<T>()) });
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipsparseCreate(library: *mut Handle) -> c_int {
    unsafe { give(library, Library { device: current(), stream: AtomicU64::new(0) }) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipsparseDestroy(library: Handle) -> c_int {
    unsafe { take_back::<Library>(library) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipsparseSetStream(library: Handle, stream: Handle) -> c_int {
    unsafe { &*library.cast::<Library>() }.stream.store(stream as u64, Ordering::Relaxed);
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipsparseCreateCsr(
    matrix: *mut Handle,
    rows: i64,
    columns: i64,
    entries: i64,
    starts: *mut c_void,
    column_numbers: *mut c_void,
    values: *mut c_void,
    offset_type: c_int,
    index_type: c_int,
    base: c_int,
    value_type: c_int,
) -> c_int {
    if (offset_type, index_type, base) != (2, 2, 0) || !(0..2).contains(&value_type) {
        return INVALID_VALUE;
    }
    let made = Matrix {
        rows: rows as usize,
        columns: columns as usize,
        entries: entries as usize,
        starts: starts as u64,
        column_numbers: column_numbers as u64,
        values: values as u64,
        is_double: value_type == 1,
    };
    unsafe { give(matrix, Described { matrix: Arc::new(made), prepared_in: AtomicU64::new(0) }) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipsparseDestroySpMat(matrix: Handle) -> c_int {
    unsafe { take_back::<Described>(matrix) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipsparseCreateDnVec(
    vector: *mut Handle,
    length: i64,
    values: *mut c_void,
    _value_type: c_int,
) -> c_int {
    unsafe { give(vector, Vector { length, at: AtomicU64::new(values as u64) }) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipsparseDnVecSetValues(vector: Handle, values: *mut c_void) -> c_int {
    unsafe { &*vector.cast::<Vector>() }.at.store(values as u64, Ordering::Relaxed);
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipsparseDestroyDnVec(vector: Handle) -> c_int {
    unsafe { take_back::<Vector>(vector) }
}

/// The supported product: not transposed, accumulated in the matrix's type.
unsafe fn checked(form: c_int, matrix: Handle, x: Handle, y: Handle, sums: c_int) -> c_int {
    let (matrix, x, y) = unsafe { (&*matrix.cast::<Described>(), &*x.cast::<Vector>(), &*y.cast::<Vector>()) };
    let m = &matrix.matrix;
    let fits = x.length == m.columns as i64 && y.length == m.rows as i64;
    if form == 0 && fits && (sums == 1) == m.is_double { SUCCESS } else { INVALID_VALUE }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipsparseSpMV_bufferSize(
    _library: Handle,
    form: c_int,
    _factor: *const c_void,
    matrix: Handle,
    x: Handle,
    _other: *const c_void,
    y: Handle,
    sums: c_int,
    _algorithm: c_int,
    bytes: *mut usize,
) -> c_int {
    unsafe {
        *bytes = WORKSPACE_BYTES;
        checked(form, matrix, x, y, sums)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipsparseSpMV_preprocess(
    _library: Handle,
    form: c_int,
    _factor: *const c_void,
    matrix: Handle,
    x: Handle,
    _other: *const c_void,
    y: Handle,
    sums: c_int,
    _algorithm: c_int,
    workspace: *mut c_void,
) -> c_int {
    unsafe {
        (*matrix.cast::<Described>()).prepared_in.store(workspace as u64, Ordering::Relaxed);
        checked(form, matrix, x, y, sums)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipsparseSpMV(
    library: Handle,
    form: c_int,
    factor: *const c_void,
    matrix: Handle,
    x: Handle,
    other: *const c_void,
    y: Handle,
    sums: c_int,
    _algorithm: c_int,
    workspace: *mut c_void,
) -> c_int {
    let c = unsafe { checked(form, matrix, x, y, sums) };
    if c != SUCCESS {
        return c;
    }
    let (library, described) = unsafe { (&*library.cast::<Library>(), &*matrix.cast::<Described>()) };
    let (x, y) = unsafe { (&*x.cast::<Vector>(), &*y.cast::<Vector>()) };
    let factors = unsafe {
        if sums == 1 {
            (*factor.cast::<f64>(), *other.cast())
        } else {
            ((*factor.cast::<f32>()).into(), (*other.cast::<f32>()).into())
        }
    };
    if factors != (1.0, 0.0) {
        return INVALID_VALUE;
    }
    if library.device != current() {
        note("hipsparseSpMV: another device is the thread's".to_string());
    }
    if described.prepared_in.load(Ordering::Relaxed) != workspace as u64 {
        note("hipsparseSpMV: the matrix was looked over with other memory".to_string());
    }
    let product = Product {
        matrix: described.matrix.clone(),
        x: x.at.load(Ordering::Relaxed),
        y: y.at.load(Ordering::Relaxed),
        workspace: workspace as u64,
    };
    let stream = state().stream("hipsparseSpMV", library.stream.load(Ordering::Relaxed));
    match stream.and_then(|stream| enqueue(&stream, Work::Multiply { product })) {
        Ok(()) => SUCCESS,
        Err(_) => INVALID_VALUE,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn hipsparseGetErrorString(code: c_int) -> *const c_char {
    let text = if code == INVALID_VALUE { c"an invalid value" } else { c"an error" };
    text.as_ptr()
}
