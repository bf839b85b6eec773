//! [`HipSparse`]: products of sparse matrices by hipSPARSE, if it is installed. ROCm has no library of direct solvers
//! with reusable factors.

use std::path::PathBuf;
use std::sync::OnceLock;

use octants_driver_gpu::{
    Entered, GpuConfig, Places, ProductLibrary, ProductNames, SparseLibraries, VendorProduct, VendorSolver,
    find_library,
};
use octants_runtime::{DeviceError, ErrorKind, Factors, MatrixRows, Result, SparseWork};

const PRODUCTS: ProductNames = ProductNames {
    create: "hipsparseCreate",
    destroy: "hipsparseDestroy",
    set_stream: "hipsparseSetStream",
    create_rows: "hipsparseCreateCsr",
    destroy_matrix: "hipsparseDestroySpMat",
    create_vector: "hipsparseCreateDnVec",
    set_vector: "hipsparseDnVecSetValues",
    destroy_vector: "hipsparseDestroyDnVec",
    workspace_bytes: "hipsparseSpMV_bufferSize",
    multiply: "hipsparseSpMV",
    preprocess: "hipsparseSpMV_preprocess",
    error_string: "hipsparseGetErrorString",
};

// The numbers are those of ROCm 7, 6 and 5.
const HIPSPARSE: &[&str] = &["libhipsparse.so.4", "libhipsparse.so.1", "libhipsparse.so.0", "libhipsparse.so"];
const PLACES: Places =
    Places { in_home: &["lib/libhipsparse.so"], in_packages: &[], homes: &["opt/rocm", "opt/rocm-*"], alone: &[] };

/// The library, or why there is none; searched for on first use.
#[derive(Debug)]
pub struct HipSparse {
    homes: Vec<PathBuf>,
    packages: Vec<PathBuf>,
    products: OnceLock<std::result::Result<ProductLibrary, String>>,
}

impl HipSparse {
    /// The library found by a configuration.
    pub fn new(config: &GpuConfig) -> HipSparse {
        HipSparse { homes: config.homes.clone(), packages: config.packages.clone(), products: OnceLock::new() }
    }

    fn products(&self, _calls: &Entered<'_>) -> std::result::Result<&ProductLibrary, String> {
        let opened = self.products.get_or_init(|| {
            let no = |why: String| {
                format!("hipSPARSE cannot be used: {why}. Install it (ROCm's package hipsparse), or name ROCm's folder in ROCM_PATH")
            };
            let library = find_library(HIPSPARSE, &PLACES, &self.homes, &self.packages).map_err(no)?;
            // SAFETY: the library is hipSPARSE by its name and stays loaded; the device is entered.
            unsafe { ProductLibrary::open(library, &PRODUCTS) }.map_err(no)
        });
        opened.as_ref().map_err(Clone::clone)
    }
}

const NO_SOLVERS: &str = "there is no direct solver library for AMD GPUs: the host factorizes";

fn misuse(message: String) -> DeviceError {
    ErrorKind::Misuse { message }.into()
}

impl SparseLibraries for HipSparse {
    fn missing(&self, calls: &Entered<'_>, work: SparseWork) -> Option<String> {
        match work {
            SparseWork::Products => self.products(calls).err(),
            SparseWork::Solvers => Some(NO_SOLVERS.into()),
        }
    }

    unsafe fn product(&self, calls: &Entered<'_>, matrix: &MatrixRows) -> Result<Box<dyn VendorProduct>> {
        // SAFETY: the trait's contract; the device is entered.
        unsafe { self.products(calls).map_err(misuse)?.product(matrix) }
    }

    unsafe fn solver(&self, _: &Entered<'_>, _: &MatrixRows, _: Factors) -> Result<Box<dyn VendorSolver>> {
        Err(misuse(NO_SOLVERS.into()))
    }
}
