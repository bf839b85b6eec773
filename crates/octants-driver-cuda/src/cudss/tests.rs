//! Functions that emulate cuDSS on matrices in host memory: they record their calls, and solve by elimination.

use std::cell::RefCell;

use octants_runtime::DevicePtr;

use super::*;

/// The matrix that the library received.
#[derive(Clone)]
struct Told {
    rows: usize,
    starts: *const i32,
    columns: *const i32,
    values: *const f64,
    view: c_int,
}

/// The recorded calls, and the results to return for a factorization.
#[derive(Default)]
struct Played {
    asked: Vec<String>,
    objects: i32,
    info: c_int,
    replaced: c_int,
}

thread_local! {
    static PLAYED: RefCell<Played> = RefCell::default();
}

fn note(text: impl Into<String>) -> c_int {
    PLAYED.with_borrow_mut(|p| p.asked.push(text.into()));
    0
}

fn take() -> Vec<String> {
    PLAYED.with_borrow_mut(|p| std::mem::take(&mut p.asked))
}

unsafe fn give<T>(to: *mut *mut c_void, value: T) -> c_int {
    PLAYED.with_borrow_mut(|p| p.objects += 1);
    // SAFETY: the caller's pointer.
    unsafe { *to = Box::into_raw(Box::new(value)).cast() };
    0
}

unsafe fn take_back<T>(object: *mut c_void) -> c_int {
    PLAYED.with_borrow_mut(|p| p.objects -= 1);
    // SAFETY: made by `give`.
    drop(unsafe { Box::from_raw(object.cast::<T>()) });
    0
}

unsafe extern "C" fn property(_: c_int, value: *mut c_int) -> c_int {
    unsafe { *value = 1 };
    0
}
unsafe extern "C" fn create(handle: *mut Handle) -> c_int {
    unsafe { give(handle, 1u8) }
}
unsafe extern "C" fn destroy(handle: Handle) -> c_int {
    unsafe { take_back::<u8>(handle) }
}
unsafe extern "C" fn set_stream(_: Handle, stream: RawStream) -> c_int {
    note(format!("stream {}", stream as usize))
}
unsafe extern "C" fn create_settings(settings: *mut Settings) -> c_int {
    unsafe { give(settings, 2u8) }
}
unsafe extern "C" fn destroy_settings(settings: Settings) -> c_int {
    unsafe { take_back::<u8>(settings) }
}
unsafe extern "C" fn create_data(_: Handle, data: *mut Data) -> c_int {
    unsafe { give(data, 3u8) }
}
unsafe extern "C" fn destroy_data(_: Handle, data: Data) -> c_int {
    unsafe { take_back::<u8>(data) }
}
unsafe extern "C" fn get(_: Handle, _: Data, which: c_int, to: *mut c_void, bytes: usize, _: *mut usize) -> c_int {
    assert_eq!(bytes, 4);
    let told = PLAYED.with_borrow(|p| if which == number::INFO { p.info } else { p.replaced });
    unsafe { *to.cast::<c_int>() = told };
    0
}
#[allow(clippy::too_many_arguments)] // cuDSS's function.
unsafe extern "C" fn create_rows(
    matrix: *mut Matrix,
    rows: i64,
    columns: i64,
    _entries: i64,
    starts: *const c_void,
    ends: *const c_void,
    column_numbers: *const c_void,
    values: *const c_void,
    offset: c_int,
    index: c_int,
    real: c_int,
    kind: c_int,
    view: c_int,
    base: c_int,
) -> c_int {
    assert!(rows == columns && ends.is_null() && (offset, index, base) == (number::R_32I, number::R_32I, 0));
    note(format!("matrix of kind {kind}, view {view}, type {real}"));
    let told = Told {
        rows: rows as usize,
        starts: starts.cast(),
        columns: column_numbers.cast(),
        values: values.cast(),
        view,
    };
    unsafe { give(matrix, told) }
}
unsafe extern "C" fn create_dense(
    matrix: *mut Matrix,
    rows: i64,
    columns: i64,
    stride: i64,
    values: *const c_void,
    _real: c_int,
    layout: c_int,
) -> c_int {
    assert!(columns == 1 && stride == rows && layout == number::COLUMN_MAJOR);
    let told = Told { rows: rows as usize, starts: null_mut(), columns: null_mut(), values: values.cast(), view: 0 };
    unsafe { give(matrix, told) }
}
unsafe extern "C" fn set_values(matrix: Matrix, values: *const c_void) -> c_int {
    unsafe { (*matrix.cast::<Told>()).values = values.cast() };
    0
}
unsafe extern "C" fn destroy_matrix(matrix: Matrix) -> c_int {
    unsafe { take_back::<Told>(matrix) }
}
unsafe extern "C" fn execute(
    _: Handle,
    step: c_int,
    _: Settings,
    _: Data,
    matrix: Matrix,
    solution: Matrix,
    right: Matrix,
) -> c_int {
    note(format!("step {step:#x}"));
    if step == number::SOLVE {
        // SAFETY: the objects are those of `create_rows` and `create_dense`.
        unsafe { eliminate(&*matrix.cast(), &*right.cast(), &*solution.cast()) }
    }
    0
}

/// Solves by elimination, in full.
#[allow(clippy::needless_range_loop)] // Indices as in the books.
unsafe fn eliminate(matrix: &Told, right: &Told, solution: &Told) {
    let n = matrix.rows;
    let mut a = vec![vec![0.0; n + 1]; n];
    for i in 0..n {
        // SAFETY: the arrays have as many elements as the rows say.
        unsafe {
            for at in *matrix.starts.add(i)..*matrix.starts.add(i + 1) {
                let (j, value) = (*matrix.columns.add(at as usize) as usize, *matrix.values.add(at as usize));
                match matrix.view {
                    number::LOWER if j > i => {}
                    number::LOWER => (a[i][j], a[j][i]) = (value, value),
                    _ => a[i][j] = value,
                }
            }
            a[i][n] = *right.values.add(i);
        }
    }
    for k in 0..n {
        for i in (0..n).filter(|i| *i != k) {
            let factor = a[i][k] / a[k][k];
            for j in k..=n {
                a[i][j] -= factor * a[k][j];
            }
        }
    }
    for (i, row) in a.iter().enumerate() {
        // SAFETY: as above.
        unsafe { *solution.values.cast_mut().add(i) = row[n] / row[i] }
    }
}

const PLAYERS: fn() -> Functions = || Functions {
    property,
    create,
    destroy,
    set_stream,
    create_settings,
    destroy_settings,
    create_data,
    destroy_data,
    get,
    create_rows,
    create_dense,
    set_values,
    destroy_matrix,
    execute,
};

/// A matrix of two rows, by rows.
struct Two {
    starts: [i32; 3],
    columns: [i32; 4],
    values: [f64; 4],
}

impl Two {
    fn new(values: [f64; 4]) -> Two {
        Two { starts: [0, 2, 4], columns: [0, 1, 0, 1], values }
    }

    fn rows(&self) -> MatrixRows {
        let at = |p: *const c_void| DevicePtr(p as u64);
        MatrixRows {
            rows: 2,
            columns: 2,
            entries: 4,
            starts: at(self.starts.as_ptr().cast()),
            column_numbers: at(self.columns.as_ptr().cast()),
            values: at(self.values.as_ptr().cast()),
            real: RealType::F64,
        }
    }
}

fn objects() -> i32 {
    PLAYED.with_borrow(|p| p.objects)
}

#[test]
fn a_system_is_analyzed_factorized_and_solved_in_stream_order() {
    // SAFETY: the functions work on the host's memory, which lives as long as the solver.
    unsafe {
        let library = Cudss::of(PLAYERS()).expect("version 1");
        let matrix = Two::new([4.0, 1.0, 2.0, 3.0]);
        let mut solver = library.solver(&matrix.rows(), Factors::Lu).expect("a solver");
        let stream = 7 as RawStream;
        solver.analyze(stream).expect("an analysis");
        let other = [2.0, 0.0, 0.0, 4.0];
        assert_eq!(solver.factorize(stream, matrix.values.as_ptr() as u64), Ok(None));
        let (right, mut x) = ([6.0, 8.0], [0.0; 2]);
        solver.solve(stream, right.as_ptr() as u64, x.as_mut_ptr() as u64).expect("a solution");
        assert_eq!(x, [1.0, 2.0]);
        assert_eq!(solver.factorize(stream, other.as_ptr() as u64), Ok(None));
        solver.solve(stream, right.as_ptr() as u64, x.as_mut_ptr() as u64).expect("a solution");
        assert_eq!(x, [3.0, 2.0], "of the other values");
        let steps: Vec<_> = take().into_iter().filter(|t| t.starts_with("step")).collect();
        assert_eq!(steps, ["step 0x3", "step 0x4", "step 0x3f0", "step 0x4", "step 0x3f0"]);
        drop(solver);
        drop(library);
    }
    assert_eq!(objects(), 0, "everything was given back");
}

#[test]
fn symmetric_factors_read_the_lower_triangle() {
    // SAFETY: as above.
    unsafe {
        let library = Cudss::of(PLAYERS()).expect("version 1");
        let matrix = Two::new([4.0, 99.0, 2.0, 3.0]);
        let mut solver = library.solver(&matrix.rows(), Factors::Llt).expect("a solver");
        assert_eq!(take(), ["matrix of kind 3, view 1, type 1"]);
        let (right, mut x) = ([8.0, 8.0], [0.0; 2]);
        solver.solve(null_mut(), right.as_ptr() as u64, x.as_mut_ptr() as u64).expect("a solution");
        assert_eq!(x, [1.0, 2.0]);
    }
}

#[test]
fn wrong_factors_are_reported() {
    // SAFETY: as above.
    unsafe {
        let library = Cudss::of(PLAYERS()).expect("version 1");
        let matrix = Two::new([1.0, 1.0, 1.0, 1.0]);
        let mut solver = library.solver(&matrix.rows(), Factors::Llt).expect("a solver");
        let mut factorize =
            || solver.factorize(null_mut(), matrix.values.as_ptr() as u64).expect("a call").expect("why");
        PLAYED.with_borrow_mut(|p| p.info = 2);
        assert_eq!(factorize(), "the matrix is not positive definite (step 2 of the elimination)");
        PLAYED.with_borrow_mut(|p| (p.info, p.replaced) = (0, 1));
        assert!(factorize().contains("singular"));
    }
}

#[test]
fn another_version_is_refused() {
    unsafe extern "C" fn zero(_: c_int, value: *mut c_int) -> c_int {
        unsafe { *value = 0 };
        0
    }
    // SAFETY: as above.
    let refused = unsafe { Cudss::of(Functions { property: zero, ..PLAYERS() }) };
    assert_eq!(refused.map(|_| ()).unwrap_err(), "version 0 was found, but version 1 is needed");
}

#[test]
fn status_codes_are_named() {
    let text = check("cudssExecute", 5, "solving a sparse system").unwrap_err().to_string();
    assert_eq!(text, "cudssExecute failed with code 5 (CUDSS_STATUS_EXECUTION_FAILED) while solving a sparse system");
}
