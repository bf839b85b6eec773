//! Compiled kernels on disk, from the session's side.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use octants_backends::backends;
use octants_engine::artifact::Artifact;
use octants_engine::frontend::Lowered;
use octants_engine::runtime::Uninterruptible;
use octants_engine::{Config, Lowering, OptionValue, Session};

fn session(folder: &Path) -> Session {
    let mut config = Config::new(backends());
    let folder = folder.to_string_lossy().into_owned();
    config.set("offline_cache_file_path", &OptionValue::Str(folder)).unwrap();
    Session::new(config, Arc::new(|_: &str| {}), &[]).unwrap()
}

/// Builds and runs a kernel that returns 7.
fn seven(session: &Session) -> u64 {
    let kernel = "kernel k -> i32 {\n  body {\n    %0: i32 = const 7\n    return %0\n  }\n}\n".parse().unwrap();
    let lowered = Lowered {
        kernel,
        buffers: Vec::new(),
        split_arrays: Default::default(),
        roots: Vec::new(),
        params: Vec::new(),
        returns: Vec::new(),
        checkpoints: Vec::new(),
        overlap_allowed: Default::default(),
        activations: Default::default(),
        packed_fields: Default::default(),
        keeps_packed: false,
        sources: Default::default(),
        parsing: Default::default(),
    };
    let code = session.build(&Lowering::new(lowered), false).unwrap();
    // SAFETY: the kernel takes nothing.
    let results = unsafe { session.launch(&code, &[], &[], None, &Uninterruptible) }.unwrap().unwrap();
    results.slots()[0]
}

fn entry(folder: &Path) -> PathBuf {
    let shard = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    std::fs::read_dir(shard).unwrap().next().unwrap().unwrap().path()
}

/// Exchanges the artifact of an entry for one that is whole, by its checksum, and holds no code.
fn empty(path: &Path) {
    const LENGTH: usize = 76;
    const SUM: usize = 84;
    const HEADER: usize = 116;
    let mut bytes = std::fs::read(path).unwrap();
    let body = bytes.split_off(HEADER);
    let mut artifact = Artifact::from_bytes(&body).unwrap();
    artifact.modules = vec![b"no code".to_vec()];
    let body = artifact.to_bytes();
    bytes[LENGTH..SUM].copy_from_slice(&(body.len() as u64).to_le_bytes());
    let sum = blake3::Hasher::new().update(&bytes[..SUM]).update(&body).finalize();
    bytes[SUM..].copy_from_slice(sum.as_bytes());
    std::fs::write(path, [bytes, body].concat()).unwrap();
}

#[test]
fn a_cached_kernel_that_cannot_be_loaded_is_recompiled() {
    let folder = std::env::temp_dir().join(format!("octants-kept-{}", std::process::id()));
    let counts = |s: &Session| {
        let counts = s.kept_kernels().unwrap().1;
        (counts.hits, counts.misses, counts.stored)
    };
    let first = session(&folder);
    assert_eq!((seven(&first), counts(&first)), (7, (0, 1, 1)));
    let second = session(&folder);
    assert_eq!((seven(&second), counts(&second)), (7, (1, 0, 0)));
    empty(&entry(&folder));
    let third = session(&folder);
    assert_eq!((seven(&third), counts(&third)), (7, (1, 0, 1)));
    let fourth = session(&folder);
    assert_eq!((seven(&fourth), counts(&fourth)), (7, (1, 0, 0)));
    std::fs::remove_dir_all(&folder).unwrap();
}
