//! [`Cudss`]: direct solvers by cuDSS 1.
//!
//! Earlier versions have other constants, and other signatures under the same names, in a library of another name.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, PoisonError};

use octants_driver_gpu::VendorSolver;
use octants_driver_gpu::libloading::Library;
use octants_driver_gpu::symbols::{Address, RawStream};
use octants_runtime::{ErrorKind, Factors, MatrixRows, RealType, Result};

use crate::cudss_functions::{Data, Functions, Handle, Matrix, Settings};

/// Constants of cuDSS and CUDA.
mod number {
    pub const MAJOR_VERSION: i32 = 0;
    pub const R_32F: i32 = 0;
    pub const R_64F: i32 = 1;
    pub const R_32I: i32 = 10;
    pub const GENERAL: i32 = 0;
    pub const SYMMETRIC: i32 = 1;
    pub const SPD: i32 = 3;
    pub const FULL: i32 = 0;
    pub const LOWER: i32 = 1;
    pub const FROM_ZERO: i32 = 0;
    pub const COLUMN_MAJOR: i32 = 0;
    pub const ANALYSIS: i32 = 1 << 0 | 1 << 1;
    pub const FACTORIZATION: i32 = 1 << 2;
    pub const SOLVE: i32 = 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 9;
    pub const INFO: i32 = 0;
    pub const NPIVOTS: i32 = 2;
}

/// The meanings of the codes, in the order of the codes.
const CODES: [&str; 8] = [
    "CUDSS_STATUS_SUCCESS",
    "CUDSS_STATUS_NOT_INITIALIZED",
    "CUDSS_STATUS_ALLOC_FAILED",
    "CUDSS_STATUS_INVALID_VALUE",
    "CUDSS_STATUS_NOT_SUPPORTED",
    "CUDSS_STATUS_EXECUTION_FAILED",
    "CUDSS_STATUS_INTERNAL_ERROR",
    "CUDSS_STATUS_IR_FAILED",
];

/// The library with its state for a device. One thread at a time uses that.
#[derive(Debug)]
struct Shared {
    functions: Functions,
    handle: Mutex<usize>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let handle = *self.handle.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: made by `create`, and not used afterwards.
        let _ = unsafe { (self.functions.destroy)(handle as Handle) };
    }
}

fn check(call: &'static str, code: c_int, doing: &str) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    let name = usize::try_from(code).ok().and_then(|c| CODES.get(c)).unwrap_or(&"an undocumented code");
    Err(ErrorKind::Call { call, code: code.into(), name: (*name).into(), doing: doing.into() }.into())
}

/// cuDSS on a device.
#[derive(Debug)]
pub struct Cudss(Arc<Shared>);

impl Cudss {
    /// Finds the functions and makes the state for the thread's device. The error is a sentence for the user.
    ///
    /// # Safety
    /// The library is cuDSS and stays loaded. The device is the thread's own.
    pub unsafe fn open(library: &'static Library) -> std::result::Result<Cudss, String> {
        // SAFETY: the contract above.
        unsafe { Cudss::of(Functions::find(library).map_err(|name| format!("it is too old: it has no {name}"))?) }
    }

    /// # Safety
    /// The functions are cuDSS's. The device is the thread's own.
    unsafe fn of(functions: Functions) -> std::result::Result<Cudss, String> {
        let (mut version, mut handle) = (0, null_mut());
        // SAFETY: the pointers are to variables.
        unsafe {
            let told = (functions.property)(number::MAJOR_VERSION, &mut version);
            if told != 0 || version != 1 {
                return Err(format!("version {version} was found, but version 1 is needed"));
            }
            let made = (functions.create)(&mut handle);
            check("cudssCreate", made, "creating its state for the device").map_err(|e| e.to_string())?;
        }
        Ok(Cudss(Arc::new(Shared { functions, handle: Mutex::new(handle as usize) })))
    }

    /// Creates a matrix.
    ///
    /// # Safety
    /// The device is the thread's own. The matrix's memory lives as long as the result.
    pub unsafe fn solver(&self, matrix: &MatrixRows, factors: Factors) -> Result<Box<dyn VendorSolver>> {
        let f = &self.0.functions;
        let real = match matrix.real {
            RealType::F32 => number::R_32F,
            RealType::F64 => number::R_64F,
        };
        let (kind, view) = match factors {
            Factors::Llt => (number::SPD, number::LOWER),
            Factors::Ldlt => (number::SYMMETRIC, number::LOWER),
            Factors::Lu => (number::GENERAL, number::FULL),
        };
        let mut solver = Solver {
            library: self.0.clone(),
            factors,
            settings: null_mut(),
            data: null_mut(),
            matrix: null_mut(),
            right: null_mut(),
            solution: null_mut(),
        };
        let at = |address: octants_runtime::DevicePtr| address.0 as *const c_void;
        let (rows, columns, entries) = (matrix.rows as i64, matrix.columns as i64, matrix.entries as i64);
        let doing = "describing a sparse matrix to cuDSS";
        let handle = self.0.handle.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the contract above; the pointers are to members. Vectors get their memory with each solution: until
        // then they have some that nothing reads.
        unsafe {
            check("cudssConfigCreate", (f.create_settings)(&mut solver.settings), doing)?;
            check("cudssDataCreate", (f.create_data)(*handle as Handle, &mut solver.data), doing)?;
            let c = (f.create_rows)(
                &mut solver.matrix,
                rows,
                columns,
                entries,
                at(matrix.starts),
                null_mut(),
                at(matrix.column_numbers),
                at(matrix.values),
                number::R_32I,
                number::R_32I,
                real,
                kind,
                view,
                number::FROM_ZERO,
            );
            check("cudssMatrixCreateCsr", c, doing)?;
            for vector in [&mut solver.right, &mut solver.solution] {
                let c = (f.create_dense)(vector, rows, 1, rows, at(matrix.values), real, number::COLUMN_MAJOR);
                check("cudssMatrixCreateDn", c, doing)?;
            }
        }
        drop(handle);
        Ok(Box::new(solver))
    }
}

/// A system.
struct Solver {
    library: Arc<Shared>,
    factors: Factors,
    settings: Settings,
    data: Data,
    matrix: Matrix,
    right: Matrix,
    solution: Matrix,
}

// SAFETY: the library's objects may be used from any thread, by one at a time.
unsafe impl Send for Solver {}

impl Solver {
    /// Executes a phase on a stream.
    unsafe fn execute(&self, stream: RawStream, step: c_int, doing: &str) -> Result<()> {
        let f = &self.library.functions;
        let handle = self.library.handle.lock().unwrap_or_else(PoisonError::into_inner);
        let handle = *handle as Handle;
        // SAFETY: the contract of the trait's methods.
        unsafe {
            check("cudssSetStream", (f.set_stream)(handle, stream), doing)?;
            let c = (f.execute)(handle, step, self.settings, self.data, self.matrix, self.solution, self.right);
            check("cudssExecute", c, doing)
        }
    }

    /// Reads a number from the system's data. Waits for its work.
    unsafe fn number(&self, which: c_int) -> Result<c_int> {
        let handle = self.library.handle.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut number, mut written): (c_int, usize) = (0, 0);
        // SAFETY: the pointers are to variables of the given size.
        let c = unsafe {
            let to = (&raw mut number).cast();
            (self.library.functions.get)(*handle as Handle, self.data, which, to, size_of::<c_int>(), &mut written)
        };
        check("cudssDataGet", c, "querying the status of a factorization").map(|()| number)
    }
}

impl VendorSolver for Solver {
    unsafe fn analyze(&mut self, stream: RawStream) -> Result<()> {
        // SAFETY: the trait's contract.
        unsafe { self.execute(stream, number::ANALYSIS, "analyzing a sparse matrix") }
    }

    unsafe fn factorize(&mut self, stream: RawStream, values: Address) -> Result<Option<String>> {
        let doing = "factorizing a sparse matrix";
        // SAFETY: the trait's contract.
        unsafe {
            let c = (self.library.functions.set_values)(self.matrix, values as *const c_void);
            check("cudssMatrixSetValues", c, doing)?;
            self.execute(stream, number::FACTORIZATION, doing)?;
            let step = self.number(number::INFO)?;
            if step != 0 {
                let is = if self.factors == Factors::Llt { "not positive definite" } else { "singular" };
                return Ok(Some(format!("the matrix is {is} (step {step} of the elimination)")));
            }
            // Such pivots are replaced by others: the factors are those of another matrix.
            let replaced = self.number(number::NPIVOTS)?;
            Ok((replaced > 0).then(|| format!("the matrix is singular, or nearly so: {replaced} pivots are too small")))
        }
    }

    unsafe fn solve(&mut self, stream: RawStream, right: Address, solution: Address) -> Result<()> {
        let f = &self.library.functions;
        // SAFETY: the trait's contract.
        unsafe {
            for (vector, address) in [(self.right, right), (self.solution, solution)] {
                let c = (f.set_values)(vector, address as *const c_void);
                check("cudssMatrixSetValues", c, "solving a sparse system")?;
            }
            self.execute(stream, number::SOLVE, "solving a sparse system")
        }
    }
}

impl Drop for Solver {
    fn drop(&mut self) {
        let f = &self.library.functions;
        let handle = self.library.handle.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: made by the library, and not used afterwards. An error cannot be reported.
        unsafe {
            for matrix in [self.matrix, self.right, self.solution].into_iter().filter(|m| !m.is_null()) {
                let _ = (f.destroy_matrix)(matrix);
            }
            if !self.data.is_null() {
                let _ = (f.destroy_data)(*handle as Handle, self.data);
            }
            if !self.settings.is_null() {
                let _ = (f.destroy_settings)(self.settings);
            }
        }
    }
}

#[cfg(test)]
mod tests;
