//! Code for AMD GPUs: checks the code objects of typical loops with LLVM's tools.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod programs;
mod scheduled;
mod thread_programs;

use std::path::{Path, PathBuf};
use std::process::Command;

use octants_artifact::CodeTarget;
use octants_codegen_llvm::{CodegenOptions, DeviceLibrary, Listing};
use octants_ir::*;
use programs::*;
use scheduled::{compile, list};
use thread_programs::*;

/// The chips, threads in a wave, and whether floats are added in memory by one instruction.
const CHIPS: [(&str, u32, bool); 12] = [
    ("gfx906", 64, false),
    ("gfx908", 64, true),
    ("gfx90a", 64, true),
    ("gfx942", 64, true),
    ("gfx1030", 32, false),
    ("gfx1100", 32, true),
    ("gfx1101", 32, true),
    ("gfx1102", 32, true),
    ("gfx1103", 32, true),
    ("gfx1151", 32, true),
    ("gfx1200", 32, true),
    ("gfx1201", 32, true),
];

/// One of each family of those chips.
fn families() -> impl Iterator<Item = (&'static str, u32, bool)> {
    CHIPS.into_iter().filter(|(cpu, ..)| !["gfx1101", "gfx1102", "gfx1103", "gfx1151", "gfx1201"].contains(cpu))
}

fn target(cpu: &str) -> CodeTarget {
    CodeTarget::Device { triple: "amdgcn-amd-amdhsa".into(), cpu: cpu.into(), features: String::new() }
}

/// Debian's library, if it is installed.
fn library() -> Option<PathBuf> {
    let path = Path::new("/usr/lib/x86_64-linux-gnu/amdgcn/bitcode/ocml.bc");
    path.exists().then(|| path.into())
}

fn options() -> CodegenOptions {
    let device_library = DeviceLibrary { path: library() };
    CodegenOptions { device_library, ..CodegenOptions::default() }
}

/// A linked code object, in words.
struct CodeObject {
    /// Its header, symbols and notes, by llvm-readelf.
    description: String,
    /// The instructions, by llvm-objdump.
    code: String,
}

impl CodeObject {
    fn of(program: &Program, cpu: &str) -> CodeObject {
        CodeObject::with(program, cpu, &options())
    }

    fn with(program: &Program, cpu: &str, options: &CodegenOptions) -> CodeObject {
        CodeObject::for_target(program, &target(cpu), options)
    }

    fn for_target(program: &Program, target: &CodeTarget, options: &CodegenOptions) -> CodeObject {
        if std::env::var_os("SHOW_CODE").is_some() {
            println!("{}", list(program, options, target, Listing::Optimized).unwrap());
            println!("{}", list(program, options, target, Listing::Assembly).unwrap());
        }
        let artifact = compile(program, &|_| String::new(), options, target).unwrap();
        let name = format!("octants-{}-{:p}.hsaco", std::process::id(), artifact.modules[0].as_ptr());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, &artifact.modules[0]).unwrap();
        let ask = |tool: &str, arguments: &[&str]| {
            let tool = Path::new(env!("OCTANTS_LLVM_TOOLS")).join(tool);
            let output = Command::new(tool).args(arguments).arg(&path).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        };
        let description = ask("llvm-readelf", &["--file-header", "--dyn-syms", "--notes"]);
        let code = ask("llvm-objdump", &["--disassemble", "--no-show-raw-insn", "--no-leading-addr"]);
        std::fs::remove_file(&path).unwrap();
        CodeObject { description, code }
    }

    /// The metadata of an entry point.
    fn number(&self, kernel: &str, key: &str) -> u64 {
        // Keys are sorted, so a kernel's entries are on both sides of its name.
        let all = self.description.split("  - .agpr_count").skip(1).chain(self.description.split("  - .args").skip(1));
        let mut of_kernel = all.filter(|text| text.contains(&format!(".symbol:         {kernel}.kd")));
        let text = of_kernel.next().unwrap_or_else(|| panic!("no {kernel} in\n{}", self.description));
        let line =
            text.lines().find(|l| l.trim_start().trim_start_matches("- ").starts_with(&format!("{key}:"))).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    #[track_caller]
    fn assert_has(&self, wanted: &[&str]) {
        for w in wanted {
            assert!(self.code.contains(w), "`{w}` is not in\n{}", self.code);
        }
    }

    #[track_caller]
    fn assert_lacks(&self, unwanted: &[&str]) {
        for w in unwanted {
            assert!(!self.code.contains(w), "`{w}` is in\n{}", self.code);
        }
    }
}

/// Adds elements of one array to those of another that a third one names.
fn weighted_histogram(s: Scalar) -> Program {
    scatter(AtomicOp::Add, array("h", s, 1), s, |b, i| get(b, 2, s, &[i]))
}

#[test]
fn each_chip_gets_its_code_object_with_entry_points_and_their_parameters() {
    for (cpu, wave, _) in CHIPS {
        let c = CodeObject::of(&map(&[UnaryOp::Sqrt], Scalar::F32), cpu);
        assert!(c.description.contains("OS/ABI:                            AMDGPU - HSA"), "{}", c.description);
        let flags = c.description.lines().find(|l| l.contains("Flags:")).unwrap();
        assert!(flags.contains(cpu), "{flags}");
        for kernel in ["kernel_0", "kernel_0_wide"] {
            assert!(c.description.contains(&format!("PROTECTED   7 {kernel}\n")), "{}", c.description);
            assert!(c.description.contains(&format!(" {kernel}.kd\n")), "{}", c.description);
            assert_eq!(c.number(kernel, ".wavefront_size"), u64::from(wave), "{cpu}");
            assert_eq!(c.number(kernel, ".private_segment_fixed_size"), 0, "{cpu}");
            assert_eq!(c.number(kernel, ".group_segment_fixed_size"), 0, "{cpu}");
            assert_eq!(c.number(kernel, ".max_flat_workgroup_size"), 256, "{cpu}");
            // The context, two addresses, two extents.
            assert_eq!((c.number(kernel, ".offset"), c.number(kernel, ".size")), (0, 64 + 32), "{cpu}");
        }
        for asked in ["hidden_hostcall_buffer", "hidden_heap_v1", "hidden_queue_ptr", "hidden_default_queue"] {
            assert!(!c.description.contains(asked), "{cpu} {asked}");
        }
        c.assert_has(&["global_load_", "global_store_", "s_load_"]);
        c.assert_lacks(&["flat_load", "flat_store", "scratch_", "buffer_store_dword"]);
    }
}

#[test]
fn sums_are_combined_in_waves_and_blocks_before_one_atomic_update() {
    for (cpu, wave, adds_floats) in families() {
        let c = CodeObject::of(&reduction(AtomicOp::Add, Scalar::F32), cpu);
        // Exchanges by halves of the wave, twice: in waves, then the waves' sums. Within rows of 16 lanes they are DPP.
        let kernel = c.code.split("<kernel_0_wide>:").next().unwrap();
        let of_halves = if wave == 64 { ["ds_bpermute_b32", "ds_swizzle_b32"] } else { ["v_permlanex16_b32"; 2] };
        for name in of_halves {
            assert_eq!(kernel.matches(name).count(), 2, "{name} {cpu}\n{kernel}");
        }
        assert_eq!(kernel.contains("ds_bpermute_b32"), wave == 64, "{cpu}\n{kernel}");
        let in_rows = if wave == 64 { ["row_ror:8", "row_half_mirror"] } else { ["row_xmask:8", "row_xmask:4"] };
        c.assert_has(&in_rows);
        c.assert_has(&["quad_perm:[2,3,0,1]", "quad_perm:[1,0,3,2]"]);
        c.assert_has(&["s_barrier", if adds_floats { "global_atomic_add_f32" } else { "global_atomic_cmpswap" }]);
        c.assert_lacks(&["flat_atomic", "scratch_"]);
        if adds_floats {
            c.assert_lacks(&["cmpswap"]);
        }
        assert_eq!(c.number("kernel_0", ".group_segment_fixed_size"), u64::from(wave) * 4, "{cpu}");
        assert_eq!(c.number("kernel_0", ".private_segment_fixed_size"), 0, "{cpu}");
    }
}

#[test]
fn float_sums_use_the_atomic_instruction_when_it_keeps_denormals() {
    let exact = CodegenOptions { fast_math: false, ..options() };
    for (cpu, _, adds_floats) in families() {
        let c = CodeObject::with(&weighted_histogram(Scalar::F32), cpu, &exact);
        let keeps = adds_floats && !["gfx908", "gfx90a"].contains(&cpu);
        c.assert_has(&[if keeps { "global_atomic_add_f32" } else { "global_atomic_cmpswap" }]);
    }
}

#[test]
fn double_sums_use_the_atomic_instruction_when_available() {
    for (cpu, ..) in families() {
        let c = CodeObject::of(&weighted_histogram(Scalar::F64), cpu);
        let one = ["gfx90a", "gfx942"].contains(&cpu);
        c.assert_has(&[if one { "global_atomic_add_f64" } else { "global_atomic_cmpswap_" }]);
    }
}

#[test]
fn the_maximum_of_floats_is_an_integer_atomic() {
    for (cpu, ..) in families() {
        let c = CodeObject::of(&reduction(AtomicOp::Max, Scalar::F32), cpu);
        c.assert_has(&["global_atomic_"]);
        c.assert_lacks(&["cmpswap"]);
    }
}

#[test]
fn histograms_are_counted_in_blocks() {
    for (cpu, ..) in families() {
        let c = CodeObject::of(&weighted_histogram(Scalar::I32), cpu);
        c.assert_has(&["ds_add_u32", "global_atomic_add", "s_barrier"]);
        c.assert_lacks(&["flat_", "scratch_"]);
        assert_eq!(c.number("kernel_0", ".group_segment_fixed_size"), 32 << 10, "{cpu}");
    }
}

#[test]
fn failures_and_prints_reach_the_channel_by_system_scope_atomics() {
    let p = checked_copy();
    for (cpu, ..) in families() {
        let c = CodeObject::of(&p, cpu);
        c.assert_has(&["<octants_print>:", "<octants_fail>:", "global_atomic_cmpswap", "global_atomic_add"]);
        // The instruction modifiers for system scope on each chip.
        let system = match cpu {
            "gfx942" => "sc1",
            "gfx1200" => "scope:SCOPE_SYS",
            _ => "",
        };
        let update = c.code.lines().find(|l| l.contains("global_atomic_cmpswap")).unwrap();
        assert!(update.contains(system), "{cpu}: {update}");
        // Private memory only holds the passed values.
        assert!(c.number("kernel_0", ".private_segment_fixed_size") <= 64, "{cpu}");
        assert!(!c.description.contains("hidden_hostcall_buffer"), "{cpu}");
    }
}

#[test]
fn many_arguments_are_read_from_memory() {
    let p = many_parameters();
    for (cpu, ..) in families() {
        // The context, and an address.
        assert_eq!(CodeObject::of(&p, cpu).number("kernel_0", ".size"), 72, "{cpu}");
    }
}

#[test]
fn common_math_functions_need_no_library_and_others_name_it() {
    use UnaryOp::*;
    let without = CodegenOptions { device_library: DeviceLibrary::default(), ..options() };
    for op in [Sin, Cos, Tan, Exp, Exp2, Log, Log2, Sqrt, Rsqrt, Floor, Ceil, Round, Trunc] {
        let c = CodeObject::with(&map(&[op], Scalar::F32), "gfx1030", &without);
        c.assert_lacks(&["s_swappc", "scratch_"]);
    }
    let exact = CodegenOptions { fast_math: false, ..without.clone() };
    for (op, s, options) in [(Tanh, Scalar::F32, &without), (Sin, Scalar::F32, &exact), (Exp, Scalar::F64, &without)] {
        let error =
            list(&map(&[op], s), options, &target("gfx90a"), Listing::Assembly).expect_err("no library").to_string();
        let wanted =
            format!("{} on {s} needs AMD's library of math functions, ocml.bc", format!("{op:?}").to_lowercase());
        assert!(error.starts_with(&wanted) && error.contains("rocm-device-libs"), "{error}");
    }
}

#[test]
fn every_math_function_exists_in_all_widths() {
    use UnaryOp::*;
    if library().is_none() {
        eprintln!("not tested: rocm-device-libs is not installed");
        return;
    }
    let all = [
        Sin, Cos, Tan, Asin, Acos, Atan, Sinh, Cosh, Tanh, Exp, Exp2, Log, Log2, Sqrt, Rsqrt, Floor, Ceil, Round, Trunc,
    ];
    for (cpu, fast_math) in [("gfx906", true), ("gfx942", false), ("gfx1201", true)] {
        for s in [Scalar::F16, Scalar::F32, Scalar::F64] {
            let mut b = Builder::new();
            let zero = b.int(0, Scalar::I32);
            let n = shape(&mut b, 0, 0);
            for_loop(&mut b, vec![(zero, n)], true, vec![], |b, l| {
                let i = index(b, l, 0);
                let a = at(b, 0, s, &[i]);
                let v = b.load(a);
                let first = b.unary(all[0], v);
                let sum = all[1..].iter().fold(first, |sum, op| {
                    let w = b.unary(*op, v);
                    b.binary(BinaryOp::Add, sum, w)
                });
                let power = b.binary(BinaryOp::Pow, v, sum);
                let angle = b.binary(BinaryOp::Atan2, v, power);
                b.store(a, angle);
            });
            let p = program(vec![array("x", s, 1)], vec![], Type::Unit, true, b.body);
            let options = CodegenOptions { fast_math, ..options() };
            // Linking fails if a function or a constant of the library is missing.
            compile(&p, &|_| String::new(), &options, &target(cpu)).unwrap();
        }
    }
}

#[test]
fn the_librarys_functions_are_inlined() {
    if library().is_none() {
        eprintln!("not tested: rocm-device-libs is not installed");
        return;
    }
    for (cpu, ..) in families() {
        let c = CodeObject::of(&map(&[UnaryOp::Tanh], Scalar::F32), cpu);
        c.assert_lacks(&["s_swappc", "scratch_", "__ocml"]);
        assert_eq!(c.number("kernel_0", ".private_segment_fixed_size"), 0, "{cpu}");
    }
}

/// A library, as bitcode, whose only function returns one of the control constants of AMD's library.
struct Constant(PathBuf);

impl Constant {
    fn named(name: &str) -> Constant {
        let text = format!(
            "@{name} = external addrspace(4) constant i32\n\
             define float @__ocml_tanh_f32(float %x) {{\n%v = load i32, ptr addrspace(4) @{name}\n\
             %f = sitofp i32 %v to float\nret float %f\n}}\n"
        );
        let path = std::env::temp_dir().join(format!("octants-{name}-{}.bc", std::process::id()));
        let source = path.with_extension("ll");
        std::fs::write(&source, text).unwrap();
        let tool = Path::new(env!("OCTANTS_LLVM_TOOLS")).join("llvm-as");
        assert!(Command::new(tool).arg(&source).arg("-o").arg(&path).status().unwrap().success());
        std::fs::remove_file(&source).unwrap();
        Constant(path)
    }

    fn value(&self, target: &CodeTarget, fast_math: bool) -> Result<f32, String> {
        let device_library = DeviceLibrary { path: Some(self.0.clone()) };
        let options = CodegenOptions { device_library, fast_math, ..options() };
        let code = list(&map(&[UnaryOp::Tanh], Scalar::F32), &options, target, Listing::Optimized);
        let code = code.map_err(|e| e.to_string())?;
        let stored = code.split("store float ").nth(1).unwrap().split(',').next().unwrap();
        Ok(stored.parse().unwrap())
    }
}

impl Drop for Constant {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn the_constants_of_the_library_match_the_chip_and_the_options() {
    let older = |cpu: &str| CodeTarget::Device {
        triple: "amdgcn-amd-amdhsa".into(),
        cpu: cpu.into(),
        features: "+code-object-v4".into(),
    };
    let both = |name: &str, of: [(CodeTarget, bool); 2]| {
        let constant = Constant::named(name);
        of.map(|(target, fast_math)| constant.value(&target, fast_math).unwrap())
    };
    let chips = || [(target("gfx90a"), true), (target("gfx1151"), true)];
    let options = || [(target("gfx90a"), true), (target("gfx90a"), false)];
    assert_eq!(both("__oclc_ISA_version", chips()), [9010.0, 11501.0]);
    assert_eq!(both("__oclc_wavefrontsize64", chips()), [1.0, 0.0]);
    assert_eq!(both("__oclc_ABI_version", [(target("gfx90a"), true), (older("gfx90a"), true)]), [500.0, 400.0]);
    assert_eq!(both("__oclc_daz_opt", options()), [1.0, 0.0]);
    assert_eq!(both("__oclc_correctly_rounded_sqrt32", options()), [0.0, 1.0]);
    for never in ["__oclc_finite_only_opt", "__oclc_unsafe_math_opt"] {
        assert_eq!(both(never, options()), [0.0, 0.0]);
    }
    let unknown = Constant::named("__oclc_of_tomorrow");
    let error = unknown.value(&target("gfx90a"), true).unwrap_err();
    assert!(error.contains("needs __oclc_of_tomorrow, which is unknown here"), "{error}");
}

#[test]
fn older_runtimes_get_code_object_version_4() {
    for (cpu, ..) in families() {
        let features = String::from("+code-object-v4");
        let older = CodeTarget::Device { triple: "amdgcn-amd-amdhsa".into(), cpu: cpu.into(), features };
        for (target, version, told) in [(older, 2, false), (target(cpu), 3, true)] {
            let c = CodeObject::for_target(&reduction(AtomicOp::Add, Scalar::F32), &target, &options());
            // ELF's ABI version is 2 for code object version 4, and 3 for version 5.
            assert!(
                c.description.contains(&format!("ABI Version:                       {version}\n")),
                "{}",
                c.description
            );
            assert_eq!(c.description.contains("hidden_block_count_x"), told, "{cpu}");
            assert_eq!(c.description.contains("hidden_group_size_x"), told, "{cpu}");
            assert!(!c.description.contains("hidden_hostcall_buffer"), "{cpu}");
        }
    }
}

#[test]
fn an_unknown_chip_is_refused_with_a_list_of_known_chips() {
    let error =
        list(&map(&[UnaryOp::Sqrt], Scalar::F32), &options(), &target("gfx803"), Listing::Assembly).unwrap_err();
    assert!(error.to_string().contains("gfx803") && error.to_string().contains("gfx1201"), "{error}");
}

/// The instructions and labels of assembly text, without comments and directives.
fn instructions(text: &str) -> String {
    let version = octants_codegen_llvm::llvm_version();
    let mut out = format!("; by LLVM {}.{}.{}\n", version.0, version.1, version.2);
    for line in text.lines() {
        let line = line.split(';').next().unwrap().trim_end();
        let is_directive = line.trim_start().starts_with('.') && !line.starts_with(".LBB");
        if !line.is_empty() && !is_directive && !line.contains(": ") {
            out.push_str(line);
            out.push('\n');
        }
        if line.contains("s_endpgm") {
            return out;
        }
    }
    out
}

/// The code that was last reviewed. `OCTANTS_BLESS=1 cargo nextest run -p octants-codegen-llvm golden` regenerates it:
/// review the difference before committing it. Other versions of LLVM than the files' make other code, which is not
/// compared.
#[test]
fn golden_code_of_a_few_kernels() {
    let cases = [
        ("map_sqrt_f32", map(&[UnaryOp::Sqrt], Scalar::F32)),
        ("sum_f32", reduction(AtomicOp::Add, Scalar::F32)),
        ("scatter_f64", weighted_histogram(Scalar::F64)),
    ];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for (name, program) in &cases {
        for cpu in ["gfx90a", "gfx1100"] {
            let made = instructions(&list(program, &options(), &target(cpu), Listing::Assembly).unwrap());
            let path = folder.join(format!("{name}.{cpu}.s"));
            if std::env::var_os("OCTANTS_BLESS").is_some() {
                std::fs::create_dir_all(&folder).unwrap();
                std::fs::write(&path, &made).unwrap();
            }
            let kept = std::fs::read_to_string(&path).unwrap();
            if kept.lines().next() != made.lines().next() {
                eprintln!("not compared: {} is {}", path.display(), kept.lines().next().unwrap_or_default());
            } else {
                assert!(kept == made, "{} is not what is made now:\n{made}", path.display());
            }
        }
    }
}

#[test]
fn thread_operations_become_instructions() {
    // Stores and loads have other names from the eleventh generation on.
    let old = ("gfx90a", ["ds_write_b32", "ds_read_b32"]);
    let new = ("gfx1100", ["ds_store_b32", "ds_load_b32"]);
    for (cpu, [store, load]) in [old, new] {
        let count = of_threads("i32", "%40: i32 = block_count %18");
        let (up, down): (&[&str], &[&str]) = match cpu {
            "gfx90a" => (&["ds_bpermute_b32"], &["ds_bpermute_b32"]),
            _ => (&["v_permlanex16_b32", "row_shr:3"], &["v_permlanex16_b32", "row_shl:3"]),
        };
        for (program, wanted) in [
            (subgroup("shuffle(%17, %15)"), &["ds_bpermute_b32"][..]),
            (subgroup("shuffle(%17, %13)"), &["v_readlane_b32"]),
            (subgroup("shuffle_xor(%17, %13)"), &["quad_perm:[3,2,1,0]"]),
            (subgroup("shuffle_up(%17, %16)"), &["ds_bpermute_b32"]),
            (subgroup("shuffle_up(%17, %13)"), up),
            (subgroup("shuffle_down(%17, %13)"), down),
            (subgroup("ballot(%18)"), &["v_cmp_"]),
            (subgroup("any(%18)"), &["v_cmp_"]),
            (subgroup("all(%18)"), &["v_cmp_"]),
            (subgroup("all_here(%18)"), &["v_cmp_"]),
            (subgroup("is_whole()"), &["exec"]),
            (barrier("subgroup"), &[store, load]),
            (barrier("block"), &["s_barrier", store, load]),
            (fence("block"), &["s_waitcnt"]),
            (fence("device"), &["s_waitcnt"]),
            (count, &["s_barrier", "s_bcnt1_i32"]),
        ] {
            CodeObject::of(&program, cpu).assert_has(wanted);
        }
    }
}

#[test]
fn matrix_products_become_instructions() {
    for (cpu, lanes, _) in families() {
        let mfma = ["gfx908", "gfx90a", "gfx942"].contains(&cpu);
        let wmma = cpu.starts_with("gfx11") || cpu.starts_with("gfx12");
        let wanted = [
            (ProductKind::F16, mfma || wmma, 1),
            (ProductKind::F32, mfma, 4),
            (ProductKind::Tf32, mfma, 4),
            (ProductKind::F64, mfma && cpu != "gfx908", 4),
        ];
        for (kind, is_instruction, count) in wanted {
            let code = CodeObject::of(&matrix_product(kind, lanes), cpu).code;
            let found = code.matches("v_mfma_f").count() + code.matches("v_wmma_f").count();
            assert_eq!(found, if is_instruction { count } else { 0 }, "{cpu} {kind:?}\n{code}");
        }
    }
}
