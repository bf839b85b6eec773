//! Compiles the parts that are written in C++ because LLVM's C interface lacks them: calls of the linker, processor
//! names, a code generator pass, pipeline options. Links lld's libraries, which are next to LLVM's.

use std::path::{Path, PathBuf};
use std::process::Command;

/// These are compiled as one file: LLVM's headers take most of a compilation.
const PARTS: [&str; 8] = [
    "src/bound_trip_counts.cpp",
    "src/check_extrema_early.cpp",
    "src/default_pipeline.cpp",
    "src/limit_uniform_chains.cpp",
    "src/poll_loops.cpp",
    "src/skip_passes.cpp",
    "src/target/keep_masks.cpp",
    "src/target/name_processors.cpp",
];
/// Defines functions in place of LLVM's, so it is a file of its own.
const LINKER: &str = "src/target/run_lld.cpp";
const HEADERS: [&str; 3] = ["src/bound_trip_counts.h", "src/check_extrema_early.h", "src/limit_uniform_chains.h"];

fn main() {
    for file in PARTS.iter().chain(&[LINKER]).chain(&HEADERS) {
        println!("cargo:rerun-if-changed={file}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    // llvm-sys has found LLVM, and says where.
    let config = PathBuf::from(std::env::var_os("DEP_LLVM_22_CONFIG_PATH").expect("llvm-sys names llvm-config"));
    let ask = |what: &str| {
        let output = Command::new(&config).arg(what).output().expect("llvm-config runs");
        String::from_utf8(output.stdout).expect("llvm-config writes text").trim().to_owned()
    };
    let (include, lib) = (ask("--includedir"), ask("--libdir"));
    // Tests look at code with LLVM's tools.
    println!("cargo:rustc-env=OCTANTS_LLVM_TOOLS={}", ask("--bindir"));
    if !PathBuf::from(&include).join("lld/Common/Driver.h").exists() {
        eprintln!("error: lld's headers are not in {include}: install liblld-22-dev");
        std::process::exit(1);
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let is_static = std::env::var_os("CARGO_FEATURE_STATIC_LLVM").is_some();
    let unused = if is_static { leave_out_targets(&ask("--targets-built")) } else { String::new() };
    std::fs::write(out.join("unused_targets.inc"), unused).expect("cargo's folder can be written");
    let parts = out.join("parts.cpp");
    let included: String = PARTS.iter().map(|file| format!("#include \"{file}\"\n")).collect();
    std::fs::write(&parts, included).expect("cargo's folder can be written");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .flag("-fno-exceptions")
        // LLVM may be built without RTTI: a class of LLVM that ours extends may have no type information.
        .flag("-fno-rtti")
        .flag_if_supported("-Wno-unused-parameter")
        .include(include)
        .include(&out)
        .include(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"))
        .file(&parts)
        .file(LINKER)
        .compile("octants_llvm");
    if is_static {
        depend_on_old_libraries(&out);
    }
    println!("cargo:rustc-link-search=native={lib}");
    println!("cargo:rustc-link-lib=static:-bundle=lldELF");
    println!("cargo:rustc-link-lib=static:-bundle=lldCommon");
    // lld can compress sections, and calls these by itself.
    println!("cargo:rustc-link-lib=z");
    println!("cargo:rustc-link-lib=zstd");
}

/// Makes a binary that runs with older system libraries than it was built with, and without some of them: the C++
/// library is linked statically, the one function that needs a new C library is our own, and zstd is left out.
fn depend_on_old_libraries(out: &Path) {
    println!("cargo:rerun-if-changed=src/random_numbers.c");
    // The whole archive, because the linker sees its callers only later.
    cc::Build::new().file("src/random_numbers.c").link_lib_modifier("+whole-archive").compile("octants_random");
    let compiler = cc::Build::new().cpp(true).get_compiler();
    let asked = compiler.to_command().arg("-print-file-name=libstdc++.a").output().expect("the C++ compiler runs");
    let archive = String::from_utf8(asked.stdout).expect("the compiler writes text");
    // The linker prefers a shared library in the same folder. This folder contains only the archive.
    let folder = out.join("archives");
    std::fs::create_dir_all(&folder).expect("cargo's folder can be written");
    std::fs::copy(archive.trim(), folder.join("libstdc++.a")).expect("the compiler comes with libstdc++.a");
    println!("cargo:rerun-if-changed=src/no_zstd.c");
    cc::Build::new().cargo_metadata(false).out_dir(&folder).file("src/no_zstd.c").compile("zstd");
    println!("cargo:rustc-link-search=native={}", folder.display());
}

/// The architectures that code is made for.
const USED: [&str; 4] = ["X86", "AArch64", "NVPTX", "AMDGPU"];
/// Parts of each target that lld references but nothing uses: code is neither assembled from text nor disassembled.
/// Except that code for x86-64 has inline assembly, also if another machine compiles it.
const UNUSED_PARTS: [&str; 2] = ["AsmParser", "Disassembler"];
const INLINE_ASSEMBLY: (&str, &str) = ("X86", "AsmParser");

/// lld also references LLVM's extensions (Polly), for the optimization of whole programs when it links.
const NO_EXTENSIONS: &str = "
#include <llvm/Plugins/PassPlugin.h>
#define HANDLE_EXTENSION(Name) llvm::PassPluginLibraryInfo get##Name##PluginInfo() { return {}; }
#include <llvm/Support/Extension.def>
";

/// lld can compile, so it references every target of LLVM, which would link all of them: 46 MB. We only link with it.
/// Empty functions in place of their entry points exclude the targets that nothing else uses.
fn leave_out_targets(built: &str) -> String {
    let host = match std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it").as_str() {
        "aarch64" => "AArch64",
        _ => "X86",
    };
    let empty = |target: &str, part: &str| format!("extern \"C\" void LLVMInitialize{target}{part}() {{}}\n");
    let parts = ["TargetInfo", "Target", "TargetMC", "AsmPrinter"];
    let unused = built.split_whitespace().filter(|t| !USED.contains(t));
    let whole = unused.flat_map(|t| parts.map(|p| empty(t, p)));
    let others = built.split_whitespace().filter(|t| *t != host);
    // LLVM also sets the host's disassembler up by itself. Its assembler may be needed for inline assembly.
    let disassembler = empty(host, "Disassembler");
    let unused_parts = others.flat_map(|t| UNUSED_PARTS.map(|p| (t, p))).filter(|part| *part != INLINE_ASSEMBLY);
    let parts = whole.chain(unused_parts.map(|(t, p)| empty(t, p))).chain([disassembler]);
    parts.chain([NO_EXTENSIONS.to_owned()]).collect()
}
