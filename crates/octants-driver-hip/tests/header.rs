//! Checks the table of functions with AMD's headers. A C file, generated from the table, assigns each function of the
//! headers to a pointer of the declared type, and compares constants and layouts. It must compile without a warning,
//! and must not compile if the table has an error.
//!
//! The headers are Debian's (`libamdhip64-dev`), ROCm's, or those in the folder `OCTANTS_HIP_HEADERS`. Without them,
//! the tests print a note and are skipped.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use amdhip64::outcome::code as standin;
use octants_driver_gpu::symbols::{PoolAccess, PoolProperties, Signature};
use octants_driver_hip::symbols::{DESCRIBE, NAMES, Own, code, layout, number};

/// The folder of the headers.
fn headers() -> Option<PathBuf> {
    let given = std::env::var_os("OCTANTS_HIP_HEADERS").map(PathBuf::from);
    let usual = ["/usr/include", "/opt/rocm/include"].map(PathBuf::from);
    let found = given.into_iter().chain(usual).find(|dir| dir.join("hip/hip_runtime_api.h").is_file());
    if found.is_none() {
        eprintln!("skipped: AMD's headers are not installed (package libamdhip64-dev)");
    }
    found
}

/// Additional functions of the stand-in, for tests that imitate other libraries.
const OF_TESTS: [Signature; 6] = [
    Signature::new("hipStreamBeginCapture", &["RawStream", "CaptureMode"]),
    Signature::new("hipStreamEndCapture", &["RawStream", "*mut Graph"]),
    Signature::new("hipGraphInstantiateWithFlags", &["*mut ReadyGraph", "Graph", "c_ulonglong"]),
    Signature::new("hipGraphLaunch", &["ReadyGraph", "RawStream"]),
    Signature::new("hipGraphDestroy", &["Graph"]),
    Signature::new("hipGraphExecDestroy", &["ReadyGraph"]),
];

fn table() -> Vec<Signature> {
    NAMES.signatures().iter().chain(Own::SIGNATURES).chain(&OF_TESTS).copied().collect()
}

/// The C name of a type of the table.
fn in_c(ty: &str) -> String {
    let name = match ty {
        "c_int" => "int",
        "c_uint" => "unsigned int",
        "c_char" => "char",
        "c_void" => "void",
        "c_ulonglong" => "unsigned long long",
        "u8" => "unsigned char",
        "u16" => "unsigned short",
        "usize" => "size_t",
        "f32" => "float",
        "Address" => "hipDeviceptr_t",
        "Code" => "hipError_t",
        // A pointer to const in newer headers.
        "Source" => "SOURCE",
        "RawDevice" => "hipDevice_t",
        "RawStream" => "hipStream_t",
        "RawEvent" => "hipEvent_t",
        "RawModule" => "hipModule_t",
        "RawFunction" => "hipFunction_t",
        "RawPool" => "hipMemPool_t",
        "DeviceAttribute" => "hipDeviceAttribute_t",
        "FunctionAttribute" => "hipFunction_attribute",
        "PoolAttribute" => "hipMemPoolAttr",
        "CaptureMode" => "hipStreamCaptureMode",
        "CaptureStatus" => "hipStreamCaptureStatus",
        "Graph" => "hipGraph_t",
        "ReadyGraph" => "hipGraphExec_t",
        "RawGraphHandle" => "hipGraph_t",
        "RawGraphExec" => "hipGraphExec_t",
        "JitOption" => "hipJitOption",
        "PoolProperties" => "hipMemPoolProps",
        "PoolAccess" => "hipMemAccessDesc",
        _ => {
            let (before, of) = ty.split_once(' ').unwrap_or_else(|| panic!("a type without a name in C: {ty}"));
            let of = in_c(of);
            return match before {
                "*mut" => format!("{of} *"),
                "*const" => format!("const {of} *"),
                _ => panic!("a type without a name in C: {ty}"),
            };
        }
    };
    name.into()
}

/// A C file that compiles if the functions are declared correctly.
fn program(table: &[Signature]) -> String {
    let mut c = String::from(
        "#define __HIP_PLATFORM_AMD__ 1\n#include <stddef.h>\n#include <hip/hip_runtime_api.h>\n\
         #if HIP_VERSION >= 60000000\n#include <hip/hip_deprecated.h>\n#endif\n\
         #ifndef SOURCE\n#define SOURCE void *\n#endif\n",
    );
    for (i, f) in table.iter().enumerate() {
        // A result without a type is an error code.
        let result = if f.result == "c_int" { "hipError_t".into() } else { in_c(f.result) };
        let parameters: Vec<String> = f.parameters.iter().map(|p| in_c(p)).collect();
        let parameters = if parameters.is_empty() { "void".into() } else { parameters.join(", ") };
        let line = format!("{result} (*const f{i})({parameters}) = {};\n", f.symbol);
        // Older headers lack it.
        let is_newer = f.symbol == NAMES.launch_resident;
        c += &if is_newer { format!("#if HIP_VERSION >= 60000000\n{line}#endif\n") } else { line };
    }
    for (name, value) in [
        ("hipSuccess", code::SUCCESS as usize),
        ("hipErrorNoDevice", code::NO_DEVICE as usize),
        ("hipErrorInvalidDevice", code::INVALID_DEVICE as usize),
        ("hipErrorECCNotCorrectable", code::ECC_NOT_CORRECTABLE as usize),
        ("hipErrorIllegalAddress", code::ILLEGAL_ADDRESS as usize),
        ("hipErrorLaunchTimeOut", code::LAUNCH_TIME_OUT as usize),
        ("hipErrorContextIsDestroyed", code::CONTEXT_IS_DESTROYED as usize),
        ("hipErrorAssert", code::ASSERT as usize),
        ("hipErrorLaunchFailure", code::LAUNCH_FAILURE as usize),
        ("hipErrorOutOfMemory", 2),
        ("hipErrorIllegalState", standin::ILLEGAL_STATE as usize),
        ("hipErrorStreamCaptureUnsupported", standin::CAPTURE_UNSUPPORTED as usize),
        ("hipErrorStreamCaptureInvalidated", standin::CAPTURE_INVALIDATED as usize),
        ("hipErrorStreamCaptureMerge", standin::CAPTURE_MERGE as usize),
        ("hipErrorStreamCaptureUnmatched", standin::CAPTURE_UNMATCHED as usize),
        ("hipErrorStreamCaptureUnjoined", standin::CAPTURE_UNJOINED as usize),
        ("hipErrorStreamCaptureIsolation", standin::CAPTURE_ISOLATION as usize),
        ("hipErrorStreamCaptureImplicit", standin::CAPTURE_IMPLICIT as usize),
        ("hipErrorCapturedEvent", standin::CAPTURED_EVENT as usize),
        ("hipErrorStreamCaptureWrongThread", standin::CAPTURE_WRONG_THREAD as usize),
        ("hipErrorNotReady", 600),
        ("hipDeviceAttributeMultiprocessorCount", number::DEVICE_MULTIPROCESSOR_COUNT as usize),
        ("hipDeviceAttributeCooperativeLaunch", number::DEVICE_COOPERATIVE_LAUNCH as usize),
        ("hipErrorCooperativeLaunchTooLarge", octants_driver_gpu::symbols::code::TOO_MANY_RESIDENT_BLOCKS as usize),
        ("hipDeviceAttributeWarpSize", number::DEVICE_WARP_SIZE as usize),
        ("hipDeviceAttributeMemoryPoolsSupported", number::DEVICE_MEMORY_POOLS_SUPPORTED as usize),
        ("hipHostMallocCoherent", number::HOST_COHERENT as usize),
        ("hipHostMallocPortable", octants_driver_gpu::symbols::number::HOST_PORTABLE as usize),
        ("hipHostMallocMapped", octants_driver_gpu::symbols::number::HOST_DEVICE_MAPPED as usize),
        ("hipStreamDefault", octants_driver_gpu::symbols::number::STREAM_DEFAULT as usize),
        ("hipStreamNonBlocking", octants_driver_gpu::symbols::number::STREAM_NON_BLOCKING as usize),
        ("hipEventDisableTiming", octants_driver_gpu::symbols::number::EVENT_DISABLE_TIMING as usize),
        ("hipStreamCaptureModeRelaxed", octants_driver_gpu::symbols::number::CAPTURE_MODE_RELAXED as usize),
        ("hipMemPoolReuseAllowInternalDependencies", 3),
        ("hipMemPoolAttrReleaseThreshold", 4),
        ("HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK", 0),
        ("HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES", 3),
        ("sizeof(hipMemPoolProps)", size_of::<PoolProperties>()),
        ("sizeof(hipMemAccessDesc)", size_of::<PoolAccess>()),
        ("offsetof(hipMemAccessDesc, flags)", std::mem::offset_of!(PoolAccess, flags)),
        ("hipMemAccessFlagsProtReadWrite", 3),
        ("offsetof(hipMemPoolProps, location)", std::mem::offset_of!(PoolProperties, location)),
        ("offsetof(hipMemPoolProps, win32SecurityAttributes)", std::mem::offset_of!(PoolProperties, security)),
    ] {
        c += &format!("_Static_assert({name} == {value}, \"{name}\");\n");
    }
    let struct_is = |name: &str, bytes: usize, at: usize| {
        format!(
            "_Static_assert(sizeof({name}) == {bytes} && offsetof({name}, gcnArchName) == {at}, \"{name}\");\n\
             _Static_assert(sizeof((({name} *)0)->gcnArchName) == {}, \"{name}\");\n",
            layout::ARCHITECTURE_BYTES
        )
    };
    c += "#if HIP_VERSION >= 60000000\n";
    c += &struct_is("hipDeviceProp_tR0600", layout::NEW_BYTES, layout::NEW_ARCHITECTURE);
    c += &struct_is("hipDeviceProp_tR0000", layout::OLD_BYTES, layout::OLD_ARCHITECTURE);
    c += &format!("hipError_t (*const describe)(hipDeviceProp_tR0600 *, int) = {};\n#else\n", DESCRIBE[0]);
    c += &struct_is("hipDeviceProp_t", layout::OLD_BYTES, layout::OLD_ARCHITECTURE);
    c + &format!("hipError_t (*const describe)(hipDeviceProp_t *, int) = {};\n#endif\n", DESCRIBE[1])
}

/// Compiles; the error is the compiler's output.
fn compile(headers: &Path, c: &str, more: &[&str]) -> Result<(), String> {
    let mut compiler = Command::new("cc")
        .args(["-x", "c", "-std=c11", "-fsyntax-only", "-Werror", "-Wall", "-Wno-deprecated-declarations"])
        .args(more)
        .arg("-isystem")
        .arg(headers)
        .arg("-")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cc: {e}"))?;
    compiler.stdin.take().unwrap().write_all(c.as_bytes()).unwrap();
    let done = compiler.wait_with_output().unwrap();
    if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).into_owned()) }
}

/// With the source of copies as older or as newer headers have it.
fn check(headers: &Path, table: &[Signature]) -> Result<(), String> {
    let c = program(table);
    compile(headers, &c, &[]).or_else(|first| compile(headers, &c, &["-DSOURCE=const void *"]).map_err(|_| first))
}

#[test]
fn the_table_matches_the_headers() {
    let Some(headers) = headers() else { return };
    check(&headers, &table()).unwrap();
}

#[test]
fn a_mistake_in_the_table_does_not_compile() {
    let Some(headers) = headers() else { return };
    let with = |symbol: &str, slip: Signature| {
        let table: Vec<_> = table().into_iter().map(|s| if s.symbol == symbol { slip } else { s }).collect();
        assert!(table.contains(&slip), "{symbol} is not in the table");
        let said = check(&headers, &table).expect_err("a slip");
        assert!(said.contains("incompatible"), "{}: {said}", slip.symbol);
    };
    // Creating a stream with flags and a priority is a separate function.
    let create = ["*mut RawStream", "c_uint", "c_int"];
    with("hipStreamCreateWithPriority", Signature::new("hipStreamCreate", create.to_vec().leak()));
    // A parameter too few, one too many, two exchanged, one of another type.
    with("hipStreamCreateWithPriority", Signature::new("hipStreamCreateWithPriority", &["*mut RawStream", "c_uint"]));
    with("hipEventQuery", Signature::new("hipEventQuery", &["RawEvent", "c_uint"]));
    with("hipEventRecord", Signature::new("hipEventRecord", &["RawStream", "RawEvent"]));
    with("hipStreamSynchronize", Signature::new("hipStreamSynchronize", &["RawEvent"]));
    with("hipEventCreateWithFlags", Signature::new("hipEventCreate", &["*mut RawEvent", "c_uint"]));
    with("hipGetErrorName", Signature::new("hipGetErrorName", &["Code"]));
}
