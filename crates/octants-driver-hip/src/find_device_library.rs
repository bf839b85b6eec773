//! [`find_device_library`]: AMD's library of mathematical functions for GPU code (`ocml.bc`), wherever it is installed.
//!
//! It comes with ROCm, as a package of its own with Debian and Ubuntu (`rocm-device-libs`), and with several packages for Python.

use std::path::{Path, PathBuf};

/// Environment variables that name the folder of a ROCm installation, the first that is set counting.
pub const HOME_VARIABLES: &[&str] = &["ROCM_PATH", "ROCM_HOME", "HIP_PATH"];

/// In a ROCm installation.
const IN_ROCM: &[&str] = &[
    "amdgcn/bitcode/ocml.bc",
    "lib/llvm/lib/clang/*/lib/amdgcn/bitcode/ocml.bc",
    "lib/llvm/amdgcn/bitcode/ocml.bc",
    "share/amdgcn/bitcode/ocml.bc",
];
/// Where packages for Python put it, below a directory of packages.
const IN_PACKAGES: &[&str] = &["_rocm_sdk_core/lib/llvm/amdgcn/bitcode/ocml.bc", "triton/backends/amd/lib/ocml.bc"];
/// Where systems put ROCm.
const INSTALLED: &[&str] = &["opt/rocm", "opt/rocm-*"];
/// Where systems put the library by itself.
const OF_SYSTEM: &[&str] = &[
    "usr/lib/x86_64-linux-gnu/amdgcn/bitcode/ocml.bc",
    "usr/lib/aarch64-linux-gnu/amdgcn/bitcode/ocml.bc",
    "usr/lib/clang/*/amdgcn/bitcode/ocml.bc",
    "usr/lib64/amdgcn/bitcode/ocml.bc",
    "usr/share/amdgcn/bitcode/ocml.bc",
];

/// The library: in the installations that `homes` names, below the directories of packages, then where systems usually have it.
pub fn find_device_library(homes: &[PathBuf], packages: &[PathBuf]) -> Option<PathBuf> {
    let below = |dirs: &[PathBuf], names: &[&str]| dirs.iter().find_map(|dir| find_first(dir, names));
    below(homes, IN_ROCM).or_else(|| below(packages, IN_PACKAGES)).or_else(|| find_installed(Path::new("/")))
}

fn find_installed(root: &Path) -> Option<PathBuf> {
    let rocm = INSTALLED.iter().flat_map(|pattern| matches(root, pattern)).find_map(|dir| find_first(&dir, IN_ROCM));
    rocm.or_else(|| find_first(root, OF_SYSTEM))
}

/// The first file of these names; the newest where a name fits several.
fn find_first(dir: &Path, names: &[&str]) -> Option<PathBuf> {
    names.iter().flat_map(|name| matches(dir, name)).find(|path| path.is_file())
}

/// The paths that a pattern fits, in which `*` stands for a part of a folder's name; those with the highest version numbers first.
fn matches(dir: &Path, pattern: &str) -> Vec<PathBuf> {
    pattern.split('/').fold(vec![dir.to_path_buf()], |found, part| {
        let Some((before, after)) = part.split_once('*') else {
            return found.into_iter().map(|dir| dir.join(part)).collect();
        };
        found.iter().flat_map(|dir| versions_in(dir, before, after)).collect()
    })
}

fn versions_in(dir: &Path, before: &str, after: &str) -> Vec<PathBuf> {
    let mut versions: Vec<(Vec<u32>, PathBuf)> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let version = name.strip_prefix(before)?.strip_suffix(after)?;
            Some((version.split(['.', '-']).map(|n| n.parse().unwrap_or(0)).collect(), entry.path()))
        })
        .collect();
    versions.sort();
    versions.into_iter().rev().map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Root(PathBuf);

    impl Root {
        fn new(name: &str) -> Root {
            let dir = std::env::temp_dir().join(format!("octants-ocml-{}-{name}", std::process::id()));
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
        let packaged = root.add("site/triton/backends/amd/lib/ocml.bc");
        let packages = [root.0.join("empty"), root.0.join("site")];
        assert_eq!(find_device_library(&[root.0.join("home")], &packages), Some(packaged));
        let home = root.add("home/amdgcn/bitcode/ocml.bc");
        assert_eq!(find_device_library(&[root.0.join("home")], &packages), Some(home));
    }

    #[test]
    fn of_installed_versions_the_newest_counts() {
        let root = Root::new("installed");
        assert_eq!(find_installed(&root.0), None);
        let of_system = root.add("usr/lib/x86_64-linux-gnu/amdgcn/bitcode/ocml.bc");
        assert_eq!(find_installed(&root.0), Some(of_system));
        root.add("opt/rocm-5.7.1/amdgcn/bitcode/ocml.bc");
        let new = root.add("opt/rocm-6.10.0/lib/llvm/lib/clang/17/lib/amdgcn/bitcode/ocml.bc");
        root.add("opt/rocm-6.9.2/amdgcn/bitcode/ocml.bc");
        assert_eq!(find_installed(&root.0), Some(new));
        let linked = root.add("opt/rocm/amdgcn/bitcode/ocml.bc");
        assert_eq!(find_installed(&root.0), Some(linked));
    }
}
