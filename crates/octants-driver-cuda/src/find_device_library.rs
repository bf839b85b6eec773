//! [`find_device_library`]: NVIDIA's library of mathematical functions for GPU code (libdevice), wherever it is installed.
//!
//! Its licence keeps it from coming with this package. A CUDA toolkit has it, and so have several packages for Python.

use std::path::{Path, PathBuf};

/// Environment variables that name the folder of a toolkit, the first that is set counting.
pub const HOME_VARIABLES: &[&str] = &["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"];

const FILE: &str = "libdevice.10.bc";
const IN_TOOLKIT: &str = "nvvm/libdevice/libdevice.10.bc";

/// Where packages for Python put it, below a directory of packages. `nvidia-nvvm` and `nvidia-cuda-nvcc` name the folder by the major
/// version, `nvidia-cuda-nvcc-cu12` by the package.
const IN_PACKAGES: &[&str] = &[
    "nvidia/cu13/nvvm/libdevice/libdevice.10.bc",
    "nvidia/nvvm/libdevice/libdevice.10.bc",
    "nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc",
    "nvidia/cuda_nvcc/libdevice/libdevice.10.bc",
    "triton/backends/nvidia/lib/libdevice.10.bc",
];

/// The library: in the toolkits that `homes` names, below the directories of packages, then where toolkits are usually installed.
pub fn find_device_library(homes: &[PathBuf], packages: &[PathBuf]) -> Option<PathBuf> {
    let given = homes.iter().map(|home| home.join(IN_TOOLKIT));
    let packaged = packages.iter().flat_map(|dir| IN_PACKAGES.iter().map(move |path| dir.join(path)));
    given.chain(packaged).find(|path| path.is_file()).or_else(|| find_installed(Path::new("/")))
}

/// Looks where systems install toolkits. Of several the newest counts.
fn find_installed(root: &Path) -> Option<PathBuf> {
    let usual = root.join("usr/local/cuda").join(IN_TOOLKIT);
    if usual.is_file() {
        return Some(usual);
    }
    for dir in ["usr/local", "opt"] {
        let Ok(entries) = std::fs::read_dir(root.join(dir)) else { continue };
        let mut toolkits: Vec<(Vec<u32>, PathBuf)> = entries
            .filter_map(|e| e.ok())
            .filter_map(|e| {
                let name = e.file_name().to_string_lossy().into_owned();
                let version = name.strip_prefix("cuda-")?.split('.').map(|n| n.parse().unwrap_or(0)).collect();
                Some((version, e.path().join(IN_TOOLKIT)))
            })
            .filter(|(_, path)| path.is_file())
            .collect();
        toolkits.sort();
        if let Some((_, path)) = toolkits.pop() {
            return Some(path);
        }
    }
    let of_system = [
        root.join("opt/cuda").join(IN_TOOLKIT),
        root.join("usr/lib/cuda").join(IN_TOOLKIT),
        root.join("usr/lib/nvidia-cuda-toolkit/libdevice").join(FILE),
    ];
    of_system.into_iter().find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Root(PathBuf);

    impl Root {
        fn new(name: &str) -> Root {
            let dir = std::env::temp_dir().join(format!("octants-device-library-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&dir).expect("a folder");
            Root(dir)
        }

        fn add(&self, path: &str) -> PathBuf {
            let path = self.0.join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(&path, b"BC").expect("a file");
            path
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_the_user_names_comes_before_packages() {
        let root = Root::new("given");
        let packaged = root.add("site/nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc");
        let packages = [root.0.join("empty"), root.0.join("site")];
        assert_eq!(find_device_library(&[root.0.join("home")], &packages), Some(packaged));
        let home = root.add("home/nvvm/libdevice/libdevice.10.bc");
        assert_eq!(find_device_library(&[root.0.join("home")], &packages), Some(home));
    }

    #[test]
    fn of_installed_toolkits_the_newest_counts() {
        let root = Root::new("installed");
        assert_eq!(find_installed(&root.0), None);
        let old = root.add("usr/local/cuda-9.2/nvvm/libdevice/libdevice.10.bc");
        assert_eq!(find_installed(&root.0), Some(old));
        let new = root.add("usr/local/cuda-12.4/nvvm/libdevice/libdevice.10.bc");
        root.add("usr/local/cuda-12.10/elsewhere");
        assert_eq!(find_installed(&root.0), Some(new));
        let usual = root.add("usr/local/cuda/nvvm/libdevice/libdevice.10.bc");
        assert_eq!(find_installed(&root.0), Some(usual));
    }
}
