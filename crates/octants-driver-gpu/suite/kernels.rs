//! Handwritten kernels of each vendor, in the form of generated code, and their launches:
//!
//! - `mad`: `x[i] = x[i] * a + b` for `i` below `n`, in a grid-stride loop, after a delay of `ns` nanoseconds. The
//!   slots are `x`, `n`, `ns`, `a`, `b`.
//! - `answer`: writes its argument plus one to the result. If the argument is zero, it also writes to address 16.
//! - `speak`: prints its argument at site 0, and fails the assertion of site 1 with it.
//! - `sum`: `x[0]` becomes the sum of `count` slots that follow `x` and `count`. The first slot points to them, because
//!   there are too many to pass by value.

use octants_artifact::{
    Artifact, Bound, ParallelMeta, ScalarKind, Site, SiteKind, SitePart, TaskMeta, graph_of_groups,
};
use octants_runtime::{Buffer, LoadedKernel, Pointer, Result, Stream, Uninterruptible};

use super::Gpu;
use crate::vendor;

fn task(symbol: &str, parallel: Option<ParallelMeta>) -> TaskMeta {
    TaskMeta { name: symbol.into(), symbol: symbol.into(), parallel, writes: vec![0], ..TaskMeta::default() }
}

pub fn artifact(name: &str, code: Vec<u8>, arg_slots: u32, tasks: Vec<TaskMeta>) -> Artifact {
    Artifact { kernel: name.into(), modules: vec![code], arg_slots, tasks, ..Artifact::default() }
}

/// A parallel loop up to the value in slot 1. The launcher knows the bound if `known`.
pub fn parallel(known: bool) -> ParallelMeta {
    ParallelMeta {
        axes: vec![(Bound::Known(0), if known { Bound::Slot(1, ScalarKind::I64, 0) } else { Bound::Computed })],
        cost_per_iteration: 1.0,
        ..ParallelMeta::default()
    }
}

/// Takes the buffer in the first slot.
pub fn of_buffer(gpu: &Gpu, artifact: &Artifact) -> LoadedKernel {
    gpu.device.load(artifact).unwrap().with_pointers(vec![Pointer { slot: 0, written: true, buffer: None }])
}

/// `x[i] = x[i] * a + b`, with the loop described by `meta`.
pub fn mad_as(gpu: &Gpu, meta: ParallelMeta) -> LoadedKernel {
    let mut artifact = mad_artifact();
    artifact.tasks = vec![task("mad", Some(meta))];
    of_buffer(gpu, &artifact)
}

/// `x[i] = x[i] * a + b`.
pub fn mad(gpu: &Gpu) -> LoadedKernel {
    mad_as(gpu, parallel(true))
}

/// The same once in each of these groups.
pub fn mad_in_groups(gpu: &Gpu, groups: &[Option<u32>]) -> LoadedKernel {
    let tasks = vec![task("mad", Some(parallel(true))); groups.len()];
    let mut artifact = artifact("groups", vendor::code("mad"), 5, tasks);
    artifact.graph = graph_of_groups(groups);
    of_buffer(gpu, &artifact)
}

/// Returns its argument plus one, and makes the GPU useless for zero.
pub fn answer(gpu: &Gpu) -> LoadedKernel {
    let mut artifact = artifact("answer", vendor::code("answer"), 1, vec![task("answer", None)]);
    artifact.result = vec![ScalarKind::I64];
    gpu.device.load(&artifact).unwrap()
}

/// Prints its argument, and fails with it.
pub fn speak(gpu: &Gpu) -> LoadedKernel {
    let mut artifact = artifact("speak", vendor::code("speak"), 1, vec![task("speak", None)]);
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
    of_buffer(gpu, &artifact("sum", vendor::code("sum"), count + 2, vec![task("sum", None)]))
}

/// `x[i] = x[i] * a + b`, not loaded.
fn mad_artifact() -> Artifact {
    artifact("mad", vendor::code("mad"), 5, vec![task("mad", Some(parallel(true)))])
}

/// Code without the task's function.
pub fn nameless() -> Artifact {
    artifact("nameless", vendor::code("mad"), 5, vec![task("sad", Some(parallel(true)))])
}

/// Queues `x[i] = x[i] * a + b`, after `ns` nanoseconds.
pub fn launch_slow(stream: &Stream, kernel: &LoadedKernel, x: &Buffer, ns: u64, (a, b): (i32, i32)) -> Result<()> {
    let slots = [x.ptr()?, x.bytes() / 4, ns, a as u32 as u64, b as u32 as u64];
    // SAFETY: the buffer lives, and has that many numbers.
    unsafe { stream.launch(kernel, &slots, &Uninterruptible) }.map(|_| ())
}

/// Queues `x[i] = x[i] * a + b`.
pub fn launch(stream: &Stream, kernel: &LoadedKernel, x: &Buffer, ab: (i32, i32)) -> Result<()> {
    launch_slow(stream, kernel, x, 0, ab)
}
