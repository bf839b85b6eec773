//! [`CudaSparse`]: sparse matrices by cuSPARSE (products) and cuDSS (direct solvers), if they are installed.
//!
//! Neither comes with the driver. A CUDA toolkit has cuSPARSE; both are available as Python packages.

use std::path::PathBuf;
use std::sync::OnceLock;

use octants_driver_gpu::{
    Entered, GpuConfig, Places, ProductLibrary, ProductNames, SparseLibraries, VendorProduct, VendorSolver,
    find_library,
};
use octants_runtime::{ErrorKind, Factors, MatrixRows, Result, SparseWork};

use crate::cudss::Cudss;

const PRODUCTS: ProductNames = ProductNames {
    create: "cusparseCreate",
    destroy: "cusparseDestroy",
    set_stream: "cusparseSetStream",
    create_rows: "cusparseCreateCsr",
    destroy_matrix: "cusparseDestroySpMat",
    create_vector: "cusparseCreateDnVec",
    set_vector: "cusparseDnVecSetValues",
    destroy_vector: "cusparseDestroyDnVec",
    workspace_bytes: "cusparseSpMV_bufferSize",
    multiply: "cusparseSpMV",
    preprocess: "cusparseSpMV_preprocess",
    error_string: "cusparseGetErrorString",
};

const CUSPARSE: &[&str] = &["libcusparse.so.12", "libcusparse.so.11"];
const CUSPARSE_PLACES: Places = Places {
    in_home: &["lib64/libcusparse.so.12", "lib64/libcusparse.so.11", "lib/libcusparse.so.12"],
    in_packages: &["nvidia/cu13/lib/libcusparse.so.12", "nvidia/cusparse/lib/libcusparse.so.12"],
    homes: &["usr/local/cuda", "usr/local/cuda-*", "opt/cuda"],
    alone: &[],
};

const CUDSS: &[&str] = &["libcudss.so.1"];
const CUDSS_PLACES: Places = Places {
    in_home: &["lib64/libcudss.so.1", "lib/libcudss.so.1"],
    in_packages: &["nvidia/cu13/lib/libcudss.so.1", "nvidia/cu12/lib/libcudss.so.1"],
    homes: &["usr/local/cuda", "usr/local/cuda-*", "opt/cuda"],
    alone: &["usr/lib/x86_64-linux-gnu/libcudss.so.1", "usr/lib/x86_64-linux-gnu/libcudss/*/libcudss.so.1"],
};

/// The libraries, or why there are none; searched for on first use.
#[derive(Debug)]
pub struct CudaSparse {
    homes: Vec<PathBuf>,
    packages: Vec<PathBuf>,
    /// The driver's major CUDA version, for installation hints.
    cuda: i32,
    products: OnceLock<std::result::Result<ProductLibrary, String>>,
    solvers: OnceLock<std::result::Result<Cudss, String>>,
}

impl CudaSparse {
    /// The libraries found by a configuration, for a driver's CUDA version.
    pub fn new(config: &GpuConfig, driver: i32) -> CudaSparse {
        CudaSparse {
            homes: config.homes.clone(),
            packages: config.packages.clone(),
            cuda: driver / 1000,
            products: OnceLock::new(),
            solvers: OnceLock::new(),
        }
    }

    fn products(&self, _calls: &Entered<'_>) -> std::result::Result<&ProductLibrary, String> {
        let opened = self.products.get_or_init(|| {
            let advice =
                if self.cuda < 13 { "`pip install nvidia-cusparse-cu12`" } else { "`pip install nvidia-cusparse`" };
            let no = |why: String| unusable("cuSPARSE", &why, advice);
            let library = find_library(CUSPARSE, &CUSPARSE_PLACES, &self.homes, &self.packages).map_err(no)?;
            // SAFETY: the library is cuSPARSE by its name and stays loaded; the device is entered.
            unsafe { ProductLibrary::open(library, &PRODUCTS) }.map_err(no)
        });
        opened.as_ref().map_err(Clone::clone)
    }

    fn solvers(&self, _calls: &Entered<'_>) -> std::result::Result<&Cudss, String> {
        let opened = self.solvers.get_or_init(|| {
            let advice = format!("`pip install nvidia-cudss-cu{}`", self.cuda.clamp(12, 13));
            let no = |why: String| unusable("cuDSS", &why, &advice);
            let library = find_library(CUDSS, &CUDSS_PLACES, &self.homes, &self.packages).map_err(no)?;
            // SAFETY: as above.
            unsafe { Cudss::open(library) }.map_err(no)
        });
        opened.as_ref().map_err(Clone::clone)
    }
}

/// Why a library cannot be used, and the remedy.
fn unusable(library: &str, why: &str, advice: &str) -> String {
    format!("{library} cannot be used: {why}. Install it ({advice}), or name its folder in LD_LIBRARY_PATH")
}

fn misuse(message: String) -> octants_runtime::DeviceError {
    ErrorKind::Misuse { message }.into()
}

impl SparseLibraries for CudaSparse {
    fn missing(&self, calls: &Entered<'_>, work: SparseWork) -> Option<String> {
        match work {
            SparseWork::Products => self.products(calls).err(),
            SparseWork::Solvers => self.solvers(calls).err(),
        }
    }

    unsafe fn product(&self, calls: &Entered<'_>, matrix: &MatrixRows) -> Result<Box<dyn VendorProduct>> {
        // SAFETY: the trait's contract; the device is entered.
        unsafe { self.products(calls).map_err(misuse)?.product(matrix) }
    }

    unsafe fn solver(
        &self,
        calls: &Entered<'_>,
        matrix: &MatrixRows,
        factors: Factors,
    ) -> Result<Box<dyn VendorSolver>> {
        // SAFETY: as above.
        unsafe { self.solvers(calls).map_err(misuse)?.solver(matrix, factors) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_named_with_the_package_to_install() {
        let text = unusable("cuDSS", "libcudss.so.1 was not found", "`pip install nvidia-cudss-cu13`");
        assert_eq!(
            text,
            "cuDSS cannot be used: libcudss.so.1 was not found. Install it (`pip install nvidia-cudss-cu13`), or name \
             its folder in LD_LIBRARY_PATH"
        );
    }
}
