//! HIP's part of the device suite, on the stand-in for HIP's library.

use std::ffi::c_char;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Once, OnceLock};

use octants_artifact::DeviceContext;
use octants_driver_gpu::libloading::Library;
use octants_driver_gpu::{GpuConfig, GpuDriver};

/// The GPU is emulated, perhaps on two busy cores.
pub const PACE: u64 = 5;
pub const SLACK: u64 = 0;
pub const NOT_FOUND: &str = "hipErrorNotFound";
pub const ILLEGAL_ADDRESS: &str = "hipErrorIllegalAddress";
pub const GRAPHS: [&str; 4] =
    ["hipStreamBeginCapture", "hipStreamEndCapture", "hipGraphInstantiateWithFlags", "hipGraphLaunch"];

/// The library, which cargo builds with these tests. `HIP_STANDIN_SEED` chooses when its streams sleep.
pub fn standin() -> PathBuf {
    static SETTINGS: Once = Once::new();
    SETTINGS.call_once(|| {
        let seed = std::env::var("HIP_STANDIN_SEED").unwrap_or("7".into());
        // SAFETY: the library, which reads them, is not loaded yet; tests read no other variable.
        unsafe {
            // Any architecture with a code generator works: kernels are made for this machine's processor.
            std::env::set_var("HIP_STANDIN_ARCH", "gfx90a");
            std::env::set_var("HIP_STANDIN_SEED", seed);
        }
    });
    std::env::current_exe().unwrap().with_file_name("libamdhip64.so")
}

/// The loaded stand-in: HIP's functions, and its functions for tests.
pub fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        // SAFETY: loading it has no effect on anything else.
        unsafe { Library::new(standin()).unwrap() }
    })
}

pub fn open(config: &GpuConfig) -> Option<GpuDriver> {
    library();
    Some(octants_driver_hip::open(&GpuConfig { library: Some(standin()), ..config.clone() }).unwrap())
}

/// One object has all kernels.
pub fn code(_name: &str) -> Vec<u8> {
    static CODE: OnceLock<Vec<u8>> = OnceLock::new();
    CODE.get_or_init(compile).clone()
}

fn compile() -> Vec<u8> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gpu/kernels.c");
    let object = std::env::temp_dir().join(format!("octants-suite-{}.so", std::process::id()));
    let done = Command::new("cc")
        .args([
            "-shared",
            "-fPIC",
            "-O1",
            "-Wall",
            "-Werror",
            &format!("-DCONTEXT={}", DeviceContext::BYTES),
            source,
            "-o",
        ])
        .arg(&object)
        .output()
        .expect("a C compiler, as building needs one");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let code = std::fs::read(&object).unwrap();
    let _ = std::fs::remove_file(&object);
    code
}

pub fn broken() -> Vec<(Vec<u8>, &'static str)> {
    let mut foreign = code("mad");
    // The machine number of an ELF file.
    foreign[18..20].copy_from_slice(&0xeeeeu16.to_le_bytes());
    vec![(foreign, "hipErrorInvalidImage"), (b"no code".into(), "hipErrorInvalidImage")]
}

/// Streams, events, modules, pools; blocks of plain memory, of pools, of pinned memory.
pub fn held() -> Vec<u64> {
    let mut counts = [0; 8];
    // SAFETY: the function has this type.
    unsafe { library().get::<extern "C" fn(*mut [u64; 8])>(b"standin_count").unwrap()(&mut counts) }
    counts[..7].to_vec()
}

pub fn faults() -> String {
    type Take = unsafe extern "C" fn(*mut c_char, usize) -> usize;
    let mut text = vec![0u8; 1 << 16];
    // SAFETY: the function has this type, and the buffer is large enough.
    let count = unsafe { library().get::<Take>(b"standin_take_faults").unwrap()(text.as_mut_ptr().cast(), text.len()) };
    let end = text.iter().position(|b| *b == 0).unwrap();
    assert_eq!(count == 0, end == 0);
    String::from_utf8_lossy(&text[..end]).into_owned()
}
