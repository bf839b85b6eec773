//! Kernels in the driver's assembly language, and the launches of them. `SLOT3` stands for the place of slot 3 in the parameter.

use octants_artifact::{Artifact, Bound, DeviceContext, ParallelMeta, ScalarKind, Site, SiteKind, SitePart, TaskMeta};
use octants_runtime::{Buffer, LoadedKernel, Patient, Pointer, Result, Stream};

use crate::Gpu;

/// `x[i] = x[i] * a + b` for `i` below `n`, by threads with the stride of the grid, each after `ns` nanoseconds. The slots are `x`, `n`, `ns`, `a`, `b`.
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

/// Writes its argument plus one to the result, and to address 16 where the argument is zero.
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

/// Says its argument at site 0, and lets the assertion of site 1 fail with it.
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

/// `x[0]` becomes the sum of `count` slots that follow it, which lie where the first slot says, since they are many.
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

fn task(symbol: &str, parallel: Option<ParallelMeta>, group: Option<u32>) -> TaskMeta {
    TaskMeta {
        name: symbol.into(),
        symbol: symbol.into(),
        single_thread_symbol: None,
        parallel,
        group,
        reads: vec![],
        writes: vec![0],
    }
}

fn place_slot(code: &str, slot: u64) -> String {
    code.replace(&format!("SLOT{slot}"), &(DeviceContext::BYTES + 8 * slot).to_string())
}

pub fn artifact(name: &str, code: &str, arg_slots: u32, tasks: Vec<TaskMeta>) -> Artifact {
    Artifact {
        kernel: name.into(),
        defined_at: None,
        target: String::new(),
        code: (0..6).fold(code.to_string(), |code, slot| place_slot(&code, slot)).into(),
        arg_slots,
        frame_bytes: 0,
        result: vec![],
        tasks,
        sites: vec![],
    }
}

/// A parallel loop up to the number in slot 1; to the launcher's knowledge where `known`.
pub fn parallel(known: bool) -> ParallelMeta {
    ParallelMeta {
        count_symbol: String::new(),
        count: None,
        axes: vec![(Bound::Known(0), if known { Bound::Slot(1, ScalarKind::I64, 0) } else { Bound::Computed })],
        serialize: false,
        block_dim: None,
        num_threads: None,
        inner_extent: None,
        chunk_per_thread: false,
        cost_per_iteration: 1.0,
        wide: None,
    }
}

/// Takes the buffer in the first slot.
pub fn of_buffer(gpu: &Gpu, artifact: &Artifact) -> LoadedKernel {
    gpu.device.load(artifact).unwrap().with_pointers(vec![Pointer { slot: 0, written: true }])
}

/// `x[i] = x[i] * a + b`, with the loop described by `meta`.
pub fn mad_as(gpu: &Gpu, meta: ParallelMeta) -> LoadedKernel {
    let mut artifact = mad_artifact();
    artifact.tasks = vec![task("mad", Some(meta), None)];
    of_buffer(gpu, &artifact)
}

/// `x[i] = x[i] * a + b`.
pub fn mad(gpu: &Gpu) -> LoadedKernel {
    mad_as(gpu, parallel(true))
}

/// The same once in each of these groups.
pub fn mad_in_groups(gpu: &Gpu, groups: &[Option<u32>]) -> LoadedKernel {
    let tasks = groups.iter().map(|g| task("mad", Some(parallel(true)), *g)).collect();
    of_buffer(gpu, &artifact("groups", MAD, 5, tasks))
}

/// Returns its argument plus one, and makes the GPU useless for zero.
pub fn answer(gpu: &Gpu) -> LoadedKernel {
    let mut artifact = artifact("answer", ANSWER, 1, vec![task("answer", None, None)]);
    artifact.result = vec![ScalarKind::I64];
    gpu.device.load(&artifact).unwrap()
}

/// Prints its argument, and fails with it.
pub fn speak(gpu: &Gpu) -> LoadedKernel {
    let mut artifact = artifact("speak", SPEAK, 1, vec![task("speak", None, None)]);
    let number = || SitePart::Value { kind: ScalarKind::I64, shape: vec![], format: None };
    let site = |kind, text: &str| Site {
        kind,
        parts: vec![SitePart::Text(text.into()), number(), SitePart::Text("\n".into())],
        location: "speak.py:3".into(),
    };
    artifact.sites = vec![site(SiteKind::Print, "said "), site(SiteKind::Assert, "failed with ")];
    gpu.device.load(&artifact).unwrap()
}

/// Sums `count` arguments.
pub fn sum(gpu: &Gpu, count: u32) -> LoadedKernel {
    of_buffer(gpu, &artifact("sum", SUM, count + 2, vec![task("sum", None, None)]))
}

/// `x[i] = x[i] * a + b`, not loaded.
pub fn mad_artifact() -> Artifact {
    artifact("mad", MAD, 5, vec![task("mad", Some(parallel(true)), None)])
}

/// What does not assemble.
pub fn broken() -> Artifact {
    artifact("broken", &MAD.replace("mad.lo.u32", "madness.u32"), 5, vec![task("mad", Some(parallel(true)), None)])
}

/// Code without the task's function.
pub fn nameless() -> Artifact {
    artifact("nameless", MAD, 5, vec![task("sad", Some(parallel(true)), None)])
}

/// Queues `x[i] = x[i] * a + b`, after `ns` nanoseconds.
pub fn launch_slow(stream: &Stream, kernel: &LoadedKernel, x: &Buffer, ns: u64, (a, b): (i32, i32)) -> Result<()> {
    let slots = [x.ptr()?, x.bytes() / 4, ns, a as u32 as u64, b as u32 as u64];
    // SAFETY: the buffer lives, and has that many numbers.
    unsafe { stream.launch(kernel, &slots, &Patient) }.map(|_| ())
}

/// Queues `x[i] = x[i] * a + b`.
pub fn launch(stream: &Stream, kernel: &LoadedKernel, x: &Buffer, ab: (i32, i32)) -> Result<()> {
    launch_slow(stream, kernel, x, 0, ab)
}
