//! [`find_device_library`]: finds AMD's math library for GPU code (`ocml.bc`).
//!
//! It comes with ROCm, as a separate package with Debian and Ubuntu (`rocm-device-libs`), and with several Python
//! packages.

use std::path::PathBuf;

use octants_driver_gpu::Places;

/// Environment variables that name the folder of a ROCm installation, in order of preference.
pub const HOME_VARIABLES: &[&str] = &["ROCM_PATH", "ROCM_HOME", "HIP_PATH"];

const PLACES: Places = Places {
    in_home: &[
        "amdgcn/bitcode/ocml.bc",
        "lib/llvm/lib/clang/*/lib/amdgcn/bitcode/ocml.bc",
        "lib/llvm/amdgcn/bitcode/ocml.bc",
        "share/amdgcn/bitcode/ocml.bc",
    ],
    in_packages: &["_rocm_sdk_core/lib/llvm/amdgcn/bitcode/ocml.bc", "triton/backends/amd/lib/ocml.bc"],
    homes: &["opt/rocm", "opt/rocm-*"],
    alone: &[
        "usr/lib/x86_64-linux-gnu/amdgcn/bitcode/ocml.bc",
        "usr/lib/aarch64-linux-gnu/amdgcn/bitcode/ocml.bc",
        "usr/lib/llvm-*/lib/clang/*/amdgcn/bitcode/ocml.bc",
        "usr/lib/llvm-*/lib/clang/*/lib/amdgcn/bitcode/ocml.bc",
        "usr/lib/clang/*/amdgcn/bitcode/ocml.bc",
        "usr/lib64/amdgcn/bitcode/ocml.bc",
        "usr/share/amdgcn/bitcode/ocml.bc",
    ],
};

/// The library: in the installations that `homes` names, below the directories of packages, then where systems usually
/// have it.
pub fn find_device_library(homes: &[PathBuf], packages: &[PathBuf]) -> Option<PathBuf> {
    PLACES.find(homes, packages)
}
