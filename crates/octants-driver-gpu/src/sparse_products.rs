//! [`ProductLibrary`]: products of sparse matrices with vectors. Vendors' libraries have the same functions under
//! different names ([`ProductNames`]).

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, PoisonError};

use libloading::Library;
use octants_runtime::{ErrorKind, MatrixRows, RealType, Result};

use crate::sparse::VendorProduct;
use crate::symbols::{Address, RawStream};

/// The library's state for a device.
type Handle = *mut c_void;
/// A matrix descriptor.
type Matrix = *mut c_void;
/// A vector descriptor.
type Vector = *mut c_void;

/// Numbers that are the same everywhere.
mod number {
    pub const AS_IT_IS: i32 = 0;
    pub const INDEX_OF_32_BITS: i32 = 2;
    pub const FROM_ZERO: i32 = 0;
    pub const USUAL_ALGORITHM: i32 = 0;
    pub const REAL_OF_32_BITS: i32 = 0;
    pub const REAL_OF_64_BITS: i32 = 1;
}

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident($($arg:ty),*);)*) => {
        /// The exported name of each function.
        #[derive(Debug)]
        pub struct ProductNames {
            $($(#[$doc])* pub $name: &'static str,)*
            /// Preprocesses a matrix for faster products. Older libraries lack it.
            pub preprocess: &'static str,
            /// Description of a code. Older libraries lack it.
            pub error_string: &'static str,
        }

        /// The library's functions.
        #[derive(Debug)]
        struct Functions {
            names: &'static ProductNames,
            $($name: unsafe extern "C" fn($($arg),*) -> c_int,)*
            preprocess: Option<MultiplyFunction>,
            error_string: Option<unsafe extern "C" fn(c_int) -> *const c_char>,
        }

        impl Functions {
            unsafe fn find(
                library: &Library,
                names: &'static ProductNames,
            ) -> std::result::Result<Functions, &'static str> {
                // SAFETY: the caller's contract.
                unsafe {
                    Ok(Functions {
                        names,
                        $($name: *library.get(names.$name).map_err(|_| names.$name)?,)*
                        preprocess: library.get(names.preprocess).ok().map(|f| *f),
                        error_string: library.get(names.error_string).ok().map(|f| *f),
                    })
                }
            }
        }
    };
}

/// Product and preprocessing: state, operation on the matrix, alpha, matrix, vector, beta, result, compute type,
/// algorithm, workspace.
type MultiplyFunction = unsafe extern "C" fn(
    Handle,
    c_int,
    *const c_void,
    Matrix,
    Vector,
    *const c_void,
    Vector,
    c_int,
    c_int,
    *mut c_void,
) -> c_int;

functions! {
    /// Creates the state for the thread's device.
    create(*mut Handle);
    /// Gives it back.
    destroy(Handle);
    /// Sets the stream.
    set_stream(Handle, RawStream);
    /// Creates the descriptor of a CSR matrix.
    create_rows(
        *mut Matrix, i64, i64, i64, *mut c_void, *mut c_void, *mut c_void, c_int, c_int, c_int, c_int);
    /// Destroys the descriptor.
    destroy_matrix(Matrix);
    /// Creates a vector descriptor.
    create_vector(*mut Vector, i64, *mut c_void, c_int);
    /// Sets a vector's memory.
    set_vector(Vector, *mut c_void);
    /// Destroys the descriptor.
    destroy_vector(Vector);
    /// The workspace size of a product.
    workspace_bytes(
        Handle, c_int, *const c_void, Matrix, Vector, *const c_void, Vector, c_int, c_int, *mut usize);
    /// Queues a product.
    multiply(
        Handle, c_int, *const c_void, Matrix, Vector, *const c_void, Vector, c_int, c_int, *mut c_void);
}

/// A library with its state for a device. One thread at a time uses that.
#[derive(Debug)]
struct Shared {
    functions: Functions,
    handle: Mutex<usize>,
}

impl Shared {
    fn check(&self, call: &'static str, code: c_int, doing: &str) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let text = self.functions.error_string.map(|f| {
            // SAFETY: the function returns a text that lives as long as the library.
            unsafe { CStr::from_ptr(f(code)).to_string_lossy().into_owned() }
        });
        let name = text.unwrap_or_else(|| "an unknown error".into());
        Err(ErrorKind::Call { call, code: code.into(), name, doing: doing.into() }.into())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let handle = *self.handle.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: made by `create`, and not used afterwards.
        let _ = unsafe { (self.functions.destroy)(handle as Handle) };
    }
}

/// A vendor's library for products.
#[derive(Debug)]
pub struct ProductLibrary(Arc<Shared>);

impl ProductLibrary {
    /// Finds the functions and makes the state for the thread's device. The error is a sentence for the user.
    ///
    /// # Safety
    /// The library is the vendor's, and stays loaded. The device is the thread's own.
    pub unsafe fn open(library: &'static Library, names: &'static ProductNames) -> std::result::Result<Self, String> {
        let mut handle = null_mut();
        // SAFETY: the contract above.
        let (functions, code) = unsafe {
            let found = Functions::find(library, names);
            let functions = found.map_err(|name| format!("it is too old: it has no {name}"))?;
            let code = (functions.create)(&mut handle);
            (functions, code)
        };
        if code != 0 {
            return Err(format!("{} failed with code {code}", names.create));
        }
        Ok(ProductLibrary(Arc::new(Shared { functions, handle: Mutex::new(handle as usize) })))
    }

    /// Creates a matrix.
    ///
    /// # Safety
    /// The device is the thread's own. The matrix's memory lives as long as the result.
    pub unsafe fn product(&self, matrix: &MatrixRows) -> Result<Box<dyn VendorProduct>> {
        let (shared, f) = (&self.0, &self.0.functions);
        let real = match matrix.real {
            RealType::F32 => number::REAL_OF_32_BITS,
            RealType::F64 => number::REAL_OF_64_BITS,
        };
        let mut product = Product {
            library: shared.clone(),
            matrix: null_mut(),
            x: null_mut(),
            y: null_mut(),
            real,
            workspace_bytes: 0,
            prepared_in: None,
        };
        let at = |address: octants_runtime::DevicePtr| address.0 as *mut c_void;
        let extents = (matrix.rows as i64, matrix.columns as i64, matrix.entries as i64);
        let doing = "describing a sparse matrix";
        // SAFETY: the contract above; the pointers are to members. Vectors get their memory with each product: until
        // then they have some that nothing reads.
        unsafe {
            let c = (f.create_rows)(
                &mut product.matrix,
                extents.0,
                extents.1,
                extents.2,
                at(matrix.starts),
                at(matrix.column_numbers),
                at(matrix.values),
                number::INDEX_OF_32_BITS,
                number::INDEX_OF_32_BITS,
                number::FROM_ZERO,
                real,
            );
            shared.check(f.names.create_rows, c, doing)?;
            let c = (f.create_vector)(&mut product.x, extents.1, at(matrix.values), real);
            shared.check(f.names.create_vector, c, doing)?;
            let c = (f.create_vector)(&mut product.y, extents.0, at(matrix.values), real);
            shared.check(f.names.create_vector, c, doing)?;
            let handle = shared.handle.lock().unwrap_or_else(PoisonError::into_inner);
            let (one, zero) = product.factors();
            let mut bytes = 0;
            let c = (f.workspace_bytes)(
                *handle as Handle,
                number::AS_IT_IS,
                one,
                product.matrix,
                product.x,
                zero,
                product.y,
                real,
                number::USUAL_ALGORITHM,
                &mut bytes,
            );
            drop(handle);
            shared.check(f.names.workspace_bytes, c, doing)?;
            product.workspace_bytes = bytes as u64;
        }
        Ok(Box::new(product))
    }
}

/// A matrix with its vectors.
struct Product {
    library: Arc<Shared>,
    matrix: Matrix,
    x: Vector,
    y: Vector,
    real: c_int,
    workspace_bytes: u64,
    /// The workspace for which the matrix was analyzed.
    prepared_in: Option<Address>,
}

// SAFETY: the library's objects may be used from any thread, by one at a time.
unsafe impl Send for Product {}

static ONES: (f32, f64) = (1.0, 1.0);
static ZEROES: (f32, f64) = (0.0, 0.0);

impl Product {
    /// One and zero, in the type of the sums.
    fn factors(&self) -> (*const c_void, *const c_void) {
        if self.real == number::REAL_OF_32_BITS {
            ((&raw const ONES.0).cast(), (&raw const ZEROES.0).cast())
        } else {
            ((&raw const ONES.1).cast(), (&raw const ZEROES.1).cast())
        }
    }
}

impl VendorProduct for Product {
    fn workspace_bytes(&self) -> u64 {
        self.workspace_bytes
    }

    unsafe fn multiply(&mut self, stream: RawStream, workspace: Address, x: Address, y: Address) -> Result<()> {
        let library = self.library.clone();
        let f = &library.functions;
        let handle = library.handle.lock().unwrap_or_else(PoisonError::into_inner);
        let (one, zero) = self.factors();
        let doing = "multiplying a sparse matrix by a vector";
        // SAFETY: the trait's contract; the device is the thread's own.
        unsafe {
            library.check(f.names.set_stream, (f.set_stream)(*handle as Handle, stream), doing)?;
            library.check(f.names.set_vector, (f.set_vector)(self.x, x as *mut c_void), doing)?;
            library.check(f.names.set_vector, (f.set_vector)(self.y, y as *mut c_void), doing)?;
            let work = |function: MultiplyFunction| {
                function(
                    *handle as Handle,
                    number::AS_IT_IS,
                    one,
                    self.matrix,
                    self.x,
                    zero,
                    self.y,
                    self.real,
                    number::USUAL_ALGORITHM,
                    workspace as *mut c_void,
                )
            };
            if let Some(preprocess) = f.preprocess.filter(|_| self.prepared_in != Some(workspace)) {
                library.check(f.names.preprocess, work(preprocess), doing)?;
            }
            library.check(f.names.multiply, work(f.multiply), doing)?;
        }
        self.prepared_in = Some(workspace);
        Ok(())
    }
}

impl Drop for Product {
    fn drop(&mut self) {
        let f = &self.library.functions;
        // SAFETY: made by the library, and not used afterwards. An error cannot be reported.
        unsafe {
            for vector in [self.x, self.y].into_iter().filter(|v| !v.is_null()) {
                let _ = (f.destroy_vector)(vector);
            }
            if !self.matrix.is_null() {
                let _ = (f.destroy_matrix)(self.matrix);
            }
        }
    }
}
