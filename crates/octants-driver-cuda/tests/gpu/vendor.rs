//! CUDA's part of the device suite. Kernels are in PTX, where `SLOT3` is replaced by the offset of slot 3 in the
//! parameter.

use std::sync::{Once, OnceLock};

use octants_artifact::DeviceContext;
use octants_driver_gpu::libloading::Library;
use octants_driver_gpu::{GpuConfig, GpuDriver};

const MAD: &str = "
.version 6.0
.target sm_70
.address_size 64
.visible .entry mad(.param .align 8 .b8 p[SLOT5])
{
    .reg .pred %q;
    .reg .b32 %r<8>;
    .reg .b64 %d<12>;
    ld.param.u64 %d1, [p+SLOT0];
    ld.param.u64 %d2, [p+SLOT1];
    ld.param.u64 %d6, [p+SLOT2];
    ld.param.u32 %r1, [p+SLOT3];
    ld.param.u32 %r2, [p+SLOT4];
    mov.u64 %d7, %globaltimer;
wait:
    mov.u64 %d8, %globaltimer;
    sub.u64 %d8, %d8, %d7;
    setp.lt.u64 %q, %d8, %d6;
    @%q bra wait;
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mov.u32 %r6, %nctaid.x;
    mul.wide.u32 %d3, %r3, %r4;
    cvt.u64.u32 %d4, %r5;
    add.u64 %d3, %d3, %d4;
    mul.wide.u32 %d4, %r6, %r4;
loop:
    setp.ge.u64 %q, %d3, %d2;
    @%q bra done;
    shl.b64 %d5, %d3, 2;
    add.u64 %d5, %d1, %d5;
    ld.global.u32 %r7, [%d5];
    mad.lo.u32 %r7, %r7, %r1, %r2;
    st.global.u32 [%d5], %r7;
    add.u64 %d3, %d3, %d4;
    bra loop;
done:
    ret;
}
";

const ANSWER: &str = "
.version 6.0
.target sm_70
.address_size 64
.visible .entry answer(.param .align 8 .b8 p[SLOT1])
{
    .reg .pred %q;
    .reg .b64 %d<4>;
    ld.param.u64 %d1, [p+8];
    ld.param.u64 %d2, [p+SLOT0];
    setp.ne.u64 %q, %d2, 0;
    @%q bra fine;
    mov.u64 %d3, 16;
    st.global.u64 [%d3], %d2;
fine:
    add.u64 %d2, %d2, 1;
    st.global.u64 [%d1], %d2;
    ret;
}
";

const SPEAK: &str = "
.version 6.0
.target sm_70
.address_size 64
.visible .entry speak(.param .align 8 .b8 p[SLOT1])
{
    .reg .b32 %r<4>;
    .reg .b64 %d<6>;
    ld.param.u64 %d1, [p+16];
    ld.param.u64 %d2, [p+40];
    ld.param.u64 %d3, [p+SLOT0];
    add.u64 %d2, %d2, 1;
    shl.b64 %d2, %d2, 32;
    atom.global.add.u32 %r1, [%d1], 2;
    mul.wide.u32 %d4, %r1, 8;
    add.u64 %d4, %d1, %d4;
    st.global.u64 [%d4+264], %d3;
    membar.sys;
    st.global.u64 [%d4+256], %d2;
    atom.global.exch.b32 %r2, [%d1+4], 1;
    st.global.u64 [%d1+24], %d3;
    or.b64 %d2, %d2, 1;
    membar.sys;
    st.global.u64 [%d1+16], %d2;
    ret;
}
";

const SUM: &str = "
.version 6.0
.target sm_70
.address_size 64
.visible .entry sum(.param .align 8 .b8 p[SLOT1])
{
    .reg .pred %q;
    .reg .b32 %r<2>;
    .reg .b64 %d<8>;
    ld.param.u64 %d1, [p+SLOT0];
    ld.global.u64 %d2, [%d1];
    ld.global.u64 %d3, [%d1+8];
    mov.u64 %d4, 0;
    add.u64 %d1, %d1, 16;
next:
    setp.eq.u64 %q, %d3, 0;
    @%q bra end;
    ld.global.u64 %d5, [%d1];
    add.u64 %d4, %d4, %d5;
    add.u64 %d1, %d1, 8;
    sub.u64 %d3, %d3, 1;
    bra next;
end:
    cvt.u32.u64 %r1, %d4;
    st.global.u32 [%d2], %r1;
    ret;
}
";

/// The suite's times are a GPU's.
pub const PACE: u64 = 1;
/// Bytes. The driver's own use varies slightly.
pub const SLACK: u64 = 8 << 20;
pub const NOT_FOUND: &str = "CUDA_ERROR_NOT_FOUND";
pub const ILLEGAL_ADDRESS: &str = "CUDA_ERROR_ILLEGAL_ADDRESS";
pub const GRAPHS: [&str; 4] =
    ["cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphLaunch"];

static QUEUES: Once = Once::new();

pub fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    // SAFETY: the driver has loaded it already.
    LIBRARY.get_or_init(|| unsafe { Library::new("libcuda.so.1") }.unwrap())
}

pub fn open(config: &GpuConfig) -> Option<GpuDriver> {
    // The maximum number of hardware queues. Streams that share a queue can wait for each other, which would disturb
    // tests.
    QUEUES.call_once(|| {
        // SAFETY: the driver's library, which reads it, is not loaded yet; tests read no other variable.
        unsafe { std::env::set_var("CUDA_DEVICE_MAX_CONNECTIONS", "32") }
    });
    octants_driver_cuda::open(config)
        .inspect_err(|reason| {
            // A GPU that is present but unusable must fail the test.
            assert!(reason.0.starts_with("no NVIDIA"), "{reason}");
            eprintln!("skipped: {reason}");
        })
        .ok()
}

pub fn code(name: &str) -> Vec<u8> {
    let text = match name {
        "mad" => MAD,
        "answer" => ANSWER,
        "speak" => SPEAK,
        _ => SUM,
    };
    let place = |slot: u64| (DeviceContext::BYTES + 8 * slot).to_string();
    (0..6).fold(text.to_string(), |code, slot| code.replace(&format!("SLOT{slot}"), &place(slot))).into()
}

pub fn broken() -> Vec<(Vec<u8>, &'static str)> {
    let misspelled = String::from_utf8(code("mad")).unwrap().replace("mad.lo.u32", "madness.u32");
    vec![(misspelled.into(), "madness"), (b"\x7fELF and nothing more".into(), "CUDA_ERROR")]
}

/// Bytes of the GPU that are in use.
pub fn held() -> Vec<u64> {
    let driver = octants_driver_cuda::open(&GpuConfig::default()).unwrap();
    let (free, total) = driver.memory_info().unwrap();
    vec![total - free]
}

/// The driver does not report it.
pub fn faults() -> String {
    String::new()
}
