//! PTX text of programs, for tests.

#![allow(dead_code)] // Each test file uses a part of it.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use octants_artifact::CodeTarget;
use octants_codegen_llvm::{CodegenOptions, DeviceLibrary, Listing};
use octants_ir::*;

use super::scheduled::list;

pub fn target(cpu: &str, ptx: &str) -> CodeTarget {
    CodeTarget::Device { triple: "nvptx64-nvidia-cuda".into(), cpu: cpu.into(), features: ptx.into() }
}

pub fn h200() -> CodeTarget {
    target("sm_90", "+ptx80")
}

/// A file of NVIDIA's compiler package, if it is installed in the project's environment.
pub fn nvidia_file(path: &str) -> Option<PathBuf> {
    let lib = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../.venv/lib");
    let python = std::fs::read_dir(lib).ok()?.flatten().next()?.path();
    let file = python.join("site-packages/nvidia/cuda_nvcc").join(path);
    file.exists().then_some(file)
}

pub fn options() -> CodegenOptions {
    let path = nvidia_file("nvvm/libdevice/libdevice.10.bc");
    CodegenOptions { device_library: DeviceLibrary { path }, ..CodegenOptions::default() }
}

/// Assembles PTX with NVIDIA's assembler, if it is installed.
pub fn assemble(text: &str, cpu: &str) {
    let Some(assembler) = nvidia_file("bin/ptxas") else {
        return eprintln!("not assembled: nvidia-cuda-nvcc-cu12 is not installed in .venv");
    };
    let mut child = Command::new(assembler)
        .args(["-arch", cpu, "-v", "-o", "/dev/null", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success(), "{}\n{text}", String::from_utf8_lossy(&out.stderr));
}

/// The PTX of a program, which the assembler must accept.
pub fn ptx(program: &Program, target: &CodeTarget) -> String {
    if std::env::var_os("SHOW_CODE").is_some() {
        println!("{}", list(program, &options(), target, Listing::Optimized).unwrap());
    }
    let text = list(program, &options(), target, Listing::Assembly).unwrap();
    let CodeTarget::Device { cpu, .. } = target else { panic!("a device") };
    assemble(&text, cpu);
    text
}

pub fn assert_has(text: &str, wanted: &[&str]) {
    for w in wanted {
        assert!(text.contains(w), "`{w}` is not in\n{text}");
    }
}

/// A scalar field with its own root.
pub fn field(name: &str, s: Scalar, n: u64, root: u32) -> Buffer {
    let axes = vec![vec![Digit { extent: n, stride: s.bytes().into() }]];
    let layout = Layout::Dense {
        shape: vec![n],
        offset: vec![0],
        components: vec![ComponentLayout { root, place: Placement { base: 0, axes } }],
    };
    Buffer {
        name: name.into(),
        elem: s.into(),
        ndim: 1,
        layout,
        space: Default::default(),
        short_offsets: false,
        is_metadata: false,
    }
}
