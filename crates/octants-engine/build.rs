//! Computes a name for this build of the compiler from the text of its sources (`OCTANTS_BUILD`), so that cache entries
//! of an earlier build are never used by this one.
//!
//! All crates are included, except test crates and the Python binding, even those that do not affect generated code
//! today. The lock file represents third-party crates.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

const WITHOUT: &[&str] = &["octants-python", "octants-driver-recording", "octants-file-tests"];

fn main() {
    let own = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let crates = own.parent().expect("the crate's folder has a parent");
    let mut inputs: Vec<PathBuf> = fs::read_dir(crates)
        .expect("the folder of crates can be read")
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| !WITHOUT.iter().any(|name| path.ends_with(name)))
        .flat_map(|path| [path.join("src"), path.join("Cargo.toml")])
        .filter(|path| path.exists())
        .collect();
    inputs.extend(crates.parent().map(|root| root.join("Cargo.lock")).filter(|lock| lock.exists()));
    inputs.sort();
    let mut state = DefaultHasher::new();
    for path in &inputs {
        println!("cargo::rerun-if-changed={}", path.display());
        add(path, crates, &mut state);
    }
    println!("cargo::rustc-env=OCTANTS_BUILD={:016x}", state.finish());
}

/// Adds a file or all files below a folder, by their place in the workspace and their text.
fn add(path: &Path, crates: &Path, state: &mut DefaultHasher) {
    if path.is_dir() {
        let entries = fs::read_dir(path).expect("a folder of sources can be read");
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        paths.iter().for_each(|path| add(path, crates, state));
        return;
    }
    path.strip_prefix(crates).unwrap_or(path).file_name().hash(state);
    fs::read(path).expect("a source can be read").hash(state);
}
