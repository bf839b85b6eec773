//! Dependency rules of the crates, checked with `cargo metadata` and the source text.
//!
//! 1. The runtime and drivers do not depend on the IR; code generators do not depend on devices.
//! 2. Front end, passes, schedule and code generators do not depend on one another.
//! 3. Only octants-python uses `pyo3`.
//! 4. Vendors' names only occur in their driver crates, in `target/*.rs`, and where a user's choice of device is
//!    parsed.
//! 5. No global mutable state below octants-python; environment variables are read in one file.
//! 6. The engine uses back ends only through its traits: no code generator, no driver, no vendor.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Each crate with the crates of this workspace that its library may depend on: rules 1 and 2.
const MAY_DEPEND_ON: &[(&str, &[&str])] = &[
    ("octants-diag", &[]),
    // Where fields are in memory, as data.
    ("octants-layout", &["octants-diag"]),
    ("octants-ir", &["octants-diag", "octants-layout"]),
    ("octants-frontend", &["octants-diag", "octants-ir"]),
    ("octants-analysis", &["octants-ir"]),
    ("octants-passes", &["octants-diag", "octants-ir", "octants-analysis"]),
    ("octants-schedule", &["octants-ir", "octants-analysis"]),
    ("octants-autodiff", &["octants-diag", "octants-ir", "octants-analysis", "octants-passes"]),
    // For tests of passes.
    ("octants-interpreter", &["octants-diag", "octants-ir"]),
    ("octants-file-tests", &["octants-ir", "octants-interpreter"]),
    ("octants-artifact", &[]),
    // Code generators name the user's lines in run-time messages, which needs `Span`.
    // The interface between code generators and launches.
    ("octants-codegen", &["octants-diag", "octants-ir", "octants-artifact"]),
    ("octants-codegen-llvm", &["octants-diag", "octants-ir", "octants-artifact", "octants-codegen"]),
    ("octants-codegen-spirv", &["octants-diag", "octants-ir", "octants-artifact", "octants-codegen"]),
    ("octants-runtime", &["octants-artifact"]),
    ("octants-driver-host", &["octants-runtime", "octants-artifact"]),
    ("octants-driver-recording", &["octants-runtime", "octants-artifact"]),
    ("octants-driver-gpu", &["octants-runtime", "octants-artifact"]),
    ("octants-driver-cuda", &["octants-driver-gpu", "octants-runtime", "octants-artifact"]),
    ("octants-driver-hip", &["octants-driver-gpu", "octants-runtime", "octants-artifact"]),
    // Stands in for a vendor's library, so it depends on none of our crates.
    ("octants-driver-hip-standin", &["octants-amdgpu-emulator"]),
    // Interprets a vendor's machine code.
    ("octants-amdgpu-emulator", &[]),
    ("octants-driver-vulkan", &["octants-driver-gpu", "octants-runtime", "octants-artifact"]),
    (
        "octants-engine",
        &[
            "octants-diag",
            "octants-ir",
            "octants-frontend",
            "octants-analysis",
            "octants-passes",
            "octants-schedule",
            "octants-autodiff",
            "octants-artifact",
            "octants-runtime",
        ],
    ),
    (
        "octants-backends",
        &[
            "octants-engine",
            "octants-diag",
            "octants-ir",
            "octants-artifact",
            "octants-runtime",
            "octants-codegen-llvm",
            "octants-codegen-spirv",
            "octants-driver-host",
            "octants-driver-gpu",
            "octants-driver-cuda",
            "octants-driver-hip",
            "octants-driver-vulkan",
            // For tests: see the feature `recording`.
            "octants-driver-recording",
        ],
    ),
    // Matrices on the host, independent of compilation and launches.
    ("octants-linalg", &[]),
    ("octants-python", &["octants-engine", "octants-backends", "octants-layout", "octants-linalg"]),
];

/// Rule 4.
const VENDOR_WORDS: &[&str] = &[
    "cuda",
    "cubin",
    "hip",
    "hsaco",
    "ptx",
    "nvidia",
    "nvptx",
    "nvvm",
    "libdevice",
    "amd",
    "amdgpu",
    "amdgcn",
    "rocm",
    "vulkan",
    "spirv",
    "metal",
    "msl",
];

/// The engine's table of options.
const OPTIONS: &str = "crates/octants-engine/src/config.rs";
const ACCEPTED_OPTIONS: &str = "crates/octants-engine/src/accepted_options.rs";
const OPTIONS_IN_KEYS: &str = "crates/octants-engine/src/trace/recall.rs";

/// Files that may hold vendors' words, and why.
const VENDOR_FILES: &[(&str, &str)] = &[
    (OPTIONS, "sentences about options"),
    (ACCEPTED_OPTIONS, "the names of options that are accepted without effect"),
    (OPTIONS_IN_KEYS, "the names of all options, of which it says whether they are part of a key"),
    ("crates/octants-backends/src/lib.rs", "the table of back ends"),
    ("crates/octants-backends/src/cuda.rs", "the entry of NVIDIA's GPUs"),
    ("crates/octants-backends/src/hip.rs", "the entry of AMD's GPUs"),
    ("crates/octants-backends/src/vulkan.rs", "the entry of Vulkan's devices"),
    ("crates/octants-python/src/stream.rs", "`__cuda_stream__`, by which libraries hand streams to one another"),
    ("crates/octants-python/src/stream_methods.rs", "the same"),
    ("crates/octants-codegen-llvm/src/fatal_errors.rs", "its tests ask for code at which LLVM ends the process"),
    ("crates/octants-engine/tests/architecture.rs", "this file"),
];

/// Permitted global state: file, name, reason.
const GLOBAL_STATE: &[(&str, &str, &str)] = &[
    (
        "crates/octants-driver-cuda/src/cudss/tests.rs",
        "thread_local",
        "what functions that play a library's were asked, in tests alone",
    ),
    (
        "crates/octants-codegen-llvm/src/optimize.rs",
        "ONCE",
        "LLVM's own options of its schedulers and a pass of its code generator, once in a process",
    ),
    ("crates/octants-codegen-llvm/src/fatal_errors.rs", "ONCE", "LLVM's handler of fatal errors, once in a process"),
    (
        "crates/octants-codegen-llvm/src/fatal_errors.rs",
        "thread_local",
        "whom a thread that compiles tells that LLVM has met a fatal error",
    ),
    (
        "crates/octants-codegen-llvm/src/target/cpu.rs",
        "HOST",
        "what this machine's processor is; set once, never changed",
    ),
    ("crates/octants-codegen-llvm/src/target/nvptx.rs", "ONCE", "LLVM's own tables of the target, once in a process"),
    ("crates/octants-codegen-llvm/src/target/amdgpu.rs", "ONCE", "LLVM's own tables of the target, once in a process"),
    (
        "crates/octants-codegen-llvm/src/target/processors.rs",
        "ONCE",
        "LLVM's own tables of the targets, once in a process",
    ),
    (
        "crates/octants-codegen-llvm/src/target/link_code_object.rs",
        "LLD",
        "the lock of LLVM's linker, which keeps global state of its own",
    ),
    ("crates/octants-driver-gpu/src/failing_calls.rs", "thread_local", "tests alone: which call fails on this thread"),
    ("crates/octants-driver-gpu/src/symbols.rs", "thread_local", "tests alone: what calls return on this thread"),
    ("crates/octants-driver-host/src/linker.rs", "ONCE", "LLVM's own initialization, once in a process"),
    ("crates/octants-driver-host/src/pool.rs", "thread_local", "whether this thread belongs to a pool"),
    (
        "crates/octants-runtime/src/capture.rs",
        "thread_local",
        "the capture that this thread notes its launches in, which all calls of the thread must see",
    ),
    (
        "crates/octants-runtime/src/nesting.rs",
        "thread_local",
        "whether this thread runs a task, from where a launch must not wait, or captures",
    ),
];

/// A C library for tests, which as such has the state of a process and reads variables of the environment.
const PLAYED_LIBRARY: &str = "crates/octants-driver-hip-standin/";

/// The driver of file tests, which an environment variable makes update the expected files.
const FILE_TESTS: &str = "crates/octants-file-tests/";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A crate of this workspace, with what `cargo metadata` says of it.
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

struct Dependency {
    name: String,
    only_for_tests: bool,
}

fn packages() -> Vec<Package> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["metadata", "--format-version=1", "--no-deps", "--manifest-path"];
    let output = Command::new(cargo).args(arguments).arg(root().join("Cargo.toml")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let dependency = |d: &Value| Dependency { name: text(&d["name"]), only_for_tests: d["kind"] == "dev" };
    let package = |p: &Value| Package {
        name: text(&p["name"]),
        dependencies: p["dependencies"].as_array().unwrap().iter().map(dependency).collect(),
    };
    metadata["packages"].as_array().unwrap().iter().map(package).collect()
}

/// The Rust files below the `src` of every crate, with paths from the root.
fn sources() -> Vec<(String, String)> {
    fn collect(dir: &Path, root: &Path, out: &mut Vec<(String, String)>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, root, out);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                out.push((path.strip_prefix(root).unwrap().to_string_lossy().into_owned(), text));
            }
        }
    }
    let root = root();
    let mut out = Vec::new();
    for package in std::fs::read_dir(root.join("crates")).unwrap() {
        let src = package.unwrap().path().join("src");
        if src.is_dir() {
            collect(&src, &root, &mut out);
        }
    }
    out.sort();
    out
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// The words of a line: identifiers cut at underscores and at capitals, in lower case.
fn words(line: &str) -> Vec<String> {
    let mut out = vec![String::new()];
    let mut before = ' ';
    for c in line.chars() {
        if !c.is_ascii_alphanumeric() || (c.is_ascii_uppercase() && before.is_ascii_lowercase()) {
            out.push(String::new());
        }
        if c.is_ascii_alphanumeric() {
            out.last_mut().unwrap().push(c.to_ascii_lowercase());
        }
        before = c;
    }
    out
}

#[test]
fn crates_depend_only_on_lower_layers() {
    let mut wrong = Vec::new();
    for package in packages() {
        let Some((_, allowed)) = MAY_DEPEND_ON.iter().find(|(name, _)| *name == package.name.as_str()) else {
            wrong.push(format!("{} is not in the table", package.name));
            continue;
        };
        for d in package.dependencies.iter().filter(|d| !d.only_for_tests) {
            if d.name.starts_with("octants-") && !allowed.contains(&d.name.as_str()) {
                wrong.push(format!("{} depends on {}", package.name, d.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn only_the_binding_depends_on_python() {
    let is_python = |name: &str| name.starts_with("pyo3") || name == "numpy" || name == "maturin";
    let mut wrong = Vec::new();
    for package in packages().iter().filter(|p| p.name.as_str() != "octants-python") {
        for d in package.dependencies.iter().filter(|d| is_python(&d.name)) {
            wrong.push(format!("{} depends on {}", package.name, d.name));
        }
    }
    for (path, text) in sources().iter().filter(|(p, _)| !p.starts_with("crates/octants-python/")) {
        if text.lines().any(|l| !is_comment(l) && l.contains("pyo3")) {
            wrong.push(format!("{path} names pyo3"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn vendors_are_named_only_in_their_drivers() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        let exempt = (path.starts_with("crates/octants-driver-") && !path.starts_with("crates/octants-driver-gpu/"))
            || path.starts_with("crates/octants-amdgpu-emulator/")
            || path.starts_with("crates/octants-codegen-spirv/")
            || path.contains("/src/target/")
            || VENDOR_FILES.iter().any(|(file, _)| *file == path);
        if exempt {
            continue;
        }
        for (i, line) in text.lines().enumerate() {
            if let Some(word) = words(line).iter().find(|w| VENDOR_WORDS.contains(&w.as_str())) {
                wrong.push(format!("{path}:{}: `{word}`", i + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_engine_depends_on_no_back_end() {
    let mut wrong = Vec::new();
    for package in packages().iter().filter(|p| p.name.as_str() == "octants-engine") {
        for d in package.dependencies.iter().filter(|d| !d.only_for_tests) {
            if d.name.starts_with("octants-codegen") || d.name.starts_with("octants-driver-") {
                wrong.push(format!("octants-engine depends on {}", d.name));
            }
        }
    }
    let names_options = |p: &String| [OPTIONS, ACCEPTED_OPTIONS, OPTIONS_IN_KEYS].contains(&p.as_str());
    for (path, text) in sources().iter().filter(|(p, _)| p.starts_with("crates/octants-engine/") && !names_options(p)) {
        for (i, line) in text.lines().enumerate() {
            // Vendors are looked for in all crates.
            if words(line).iter().any(|w| w == "llvm") {
                wrong.push(format!("{path}:{}: `llvm`", i + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn there_is_no_global_mutable_state_below_the_binding() {
    let mut wrong = Vec::new();
    let mut allowed = BTreeSet::new();
    let ours = |path: &str| !path.starts_with("crates/octants-python/") && !path.starts_with(PLAYED_LIBRARY);
    for (path, text) in sources().iter().filter(|(p, _)| ours(p)) {
        for (i, line) in text.lines().enumerate().filter(|(_, l)| !is_comment(l)) {
            let Some(name) = global_state(line) else { continue };
            match GLOBAL_STATE.iter().find(|(file, item, _)| file == path && *item == name) {
                Some(entry) => _ = allowed.insert(entry),
                // Statics inside `thread_local!` are found by the macro's name.
                None if GLOBAL_STATE.iter().any(|(file, item, _)| file == path && *item == "thread_local") => {}
                None => wrong.push(format!("{path}:{}: {name}", i + 1)),
            }
        }
    }
    let gone: Vec<_> = GLOBAL_STATE.iter().filter(|e| !allowed.contains(e)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(gone.is_empty(), "no longer there, take it off the list: {gone:?}");
}

/// The name of the global that a line declares, if it may change.
fn global_state(line: &str) -> Option<String> {
    if line.contains("thread_local!") || line.contains("lazy_static!") {
        return Some("thread_local".to_string());
    }
    let mut parts = line.split_whitespace().skip_while(|w| w.starts_with("pub"));
    if parts.next()? != "static" {
        return None;
    }
    let first = parts.next()?;
    if first == "mut" {
        return Some(parts.next()?.trim_end_matches(':').to_string());
    }
    const CHANGEABLE: &[&str] =
        &["Atomic", "Mutex", "RwLock", "Cell", "OnceLock", "LazyLock", "Lazy", "Once", "Condvar", "Renewable"];
    let declared = line.split('=').next()?;
    let changes = CHANGEABLE.iter().any(|c| declared.contains(c));
    changes.then(|| first.trim_end_matches(':').to_string())
}

#[test]
fn the_environment_is_read_in_one_file() {
    const READS: &[&str] = &["env::var", "env::vars", "env::var_os", "getenv"];
    let reads = |text: &str| text.lines().any(|l| !is_comment(l) && READS.iter().any(|r| l.contains(r)));
    let files: Vec<String> = sources()
        .into_iter()
        .filter(|(path, text)| reads(text) && ![PLAYED_LIBRARY, FILE_TESTS].iter().any(|bed| path.starts_with(bed)))
        .map(|(path, _)| path)
        .collect();
    assert_eq!(files, ["crates/octants-engine/src/environment.rs"]);
}
