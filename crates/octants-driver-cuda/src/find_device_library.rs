//! [`find_device_library`]: finds NVIDIA's math library for GPU code (libdevice).
//!
//! Its license does not allow this package to include it. A CUDA toolkit has it, and so have several Python packages.

use std::path::PathBuf;

use octants_driver_gpu::Places;

/// Environment variables that name the folder of a toolkit, in order of preference.
pub const HOME_VARIABLES: &[&str] = &["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"];

const PLACES: Places = Places {
    in_home: &["nvvm/libdevice/libdevice.10.bc"],
    // `nvidia-nvvm` and `nvidia-cuda-nvcc` name the folder by the major version, `nvidia-cuda-nvcc-cu12` by the
    // package.
    in_packages: &[
        "nvidia/cu13/nvvm/libdevice/libdevice.10.bc",
        "nvidia/nvvm/libdevice/libdevice.10.bc",
        "nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc",
        "nvidia/cuda_nvcc/libdevice/libdevice.10.bc",
        "triton/backends/nvidia/lib/libdevice.10.bc",
    ],
    homes: &["usr/local/cuda", "usr/local/cuda-*", "opt/cuda-*", "opt/cuda", "usr/lib/cuda"],
    alone: &["usr/lib/nvidia-cuda-toolkit/libdevice/libdevice.10.bc"],
};

/// The library: in the toolkits that `homes` names, below the directories of packages, then where systems usually have
/// it.
pub fn find_device_library(homes: &[PathBuf], packages: &[PathBuf]) -> Option<PathBuf> {
    PLACES.find(homes, packages)
}
