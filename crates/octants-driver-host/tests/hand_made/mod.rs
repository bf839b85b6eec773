//! Artifacts made of C code, for tests and benchmarks: the C compiler replaces the code generator.

#![allow(dead_code, clippy::unwrap_used, missing_docs)]

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};

use octants_artifact::{Artifact, ParallelMeta, ScalarKind, Site, SiteKind, SitePart, TaskMeta};
use octants_driver_host::{HostConfig, HostDriver};
use octants_runtime::{Device, DeviceConfig, Uninterruptible};

pub fn compile(file: &str) -> Vec<u8> {
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/hand_made").join(file);
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let n = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let object = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{file}.{}.{n}.o", std::process::id()));
    let done =
        Command::new("cc").args(["-O2", "-c", "-fno-math-errno", "-o"]).arg(&object).arg(&source).status().unwrap();
    assert!(done.success());
    let code = std::fs::read(&object).unwrap();
    std::fs::remove_file(&object).unwrap();
    code
}

pub fn tasks_object() -> &'static [u8] {
    static OBJECT: OnceLock<Vec<u8>> = OnceLock::new();
    OBJECT.get_or_init(|| compile("tasks.c"))
}

pub fn serial(symbol: &str) -> TaskMeta {
    TaskMeta { name: symbol.into(), symbol: symbol.into(), ..TaskMeta::default() }
}

pub fn parallel(symbol: &str, count_symbol: &str, cost: f32) -> TaskMeta {
    let meta =
        ParallelMeta { count_symbol: Some(count_symbol.into()), cost_per_iteration: cost, ..ParallelMeta::default() };
    TaskMeta { parallel: Some(meta), ..serial(symbol) }
}

pub fn artifact(arg_slots: u32, tasks: Vec<TaskMeta>) -> Artifact {
    Artifact {
        kernel: "kernel".into(),
        modules: vec![tasks_object().to_vec()],
        arg_slots,
        frame_bytes: 16,
        tasks,
        sites: vec![
            Site {
                kind: SiteKind::Print,
                parts: vec![
                    SitePart::Text("i = ".into()),
                    SitePart::Value { kind: ScalarKind::I32, shape: vec![], format: None },
                    SitePart::Text(", half = ".into()),
                    SitePart::Value { kind: ScalarKind::F32, shape: vec![], format: Some(".1f".into()) },
                    SitePart::Text("\n".into()),
                ],
                location: "file.py:3".into(),
            },
            Site {
                kind: SiteKind::Assert,
                parts: vec![
                    SitePart::Text("bad i: ".into()),
                    SitePart::Value { kind: ScalarKind::I64, shape: vec![], format: None },
                ],
                location: "file.py:7".into(),
            },
        ],
        ..Artifact::default()
    }
}

pub fn device(threads: Option<u32>) -> (Device, Arc<Mutex<String>>) {
    let text = Arc::new(Mutex::new(String::new()));
    let sink = text.clone();
    let config = DeviceConfig { seed: 42, sink: Arc::new(move |t: &str| sink.lock().unwrap().push_str(t)) };
    (Device::new(HostDriver::new(HostConfig { max_threads: threads, ..HostConfig::default() }), config), text)
}

pub fn ints(device: &Device, buffer: &octants_runtime::Buffer, n: usize) -> Vec<i32> {
    let mut bytes = vec![0u8; n * 4];
    device.default_stream().read(buffer, 0, &mut bytes, &Uninterruptible).unwrap();
    bytes.chunks_exact(4).map(|b| i32::from_ne_bytes(b.try_into().unwrap())).collect()
}
