//! Chooses the launches of a round that are fused: a launch and later ones that may run directly after it, because they
//! conflict with no launch in between.

use std::sync::Arc;

use super::elements::{Given, conflict, given_buffers};
use crate::buffer::Buffer;
use crate::capture::CapturedLaunch;
use crate::cores::DeviceCore;
use crate::fusion::{Fuser, FusionLaunch, FusionMemory, FusionRequest};
use crate::kernel::LoadedKernel;

/// Number of launches that are tried in vain for a group.
const MOST_TRIES: usize = 8;

/// What graphs are made with.
pub(super) struct Making<'a> {
    pub(super) device: &'a Arc<DeviceCore>,
    /// Fuses launches, if that is enabled.
    pub(super) fuser: Option<&'a dyn Fuser>,
    /// Memory that nothing reads after the round.
    pub(super) temporaries: &'a [u64],
}

/// Launches that were fused, or not, for a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fusion {
    /// The names of the kernels, in order.
    pub kernels: Vec<String>,
    /// The names of temporaries that are no longer stored.
    pub removed: Vec<String>,
    /// The reason why the last one was not fused with those before it. Empty if it was.
    pub refusal: String,
}

impl Fusion {
    /// Launches whose temporaries cannot be removed.
    pub(super) fn of_needed_temporaries(launches: &[Arc<CapturedLaunch>]) -> Fusion {
        let kernels = launches.iter().map(|l| l.kernel.meta.name.clone()).collect();
        let refusal = "an array that is allocated anew each time is needed outside of one fused loop".into();
        Fusion { kernels, removed: Vec::new(), refusal }
    }
}

/// A launch with the memory that it is given.
pub(super) type Candidate = (Arc<CapturedLaunch>, Given);

impl Making<'_> {
    /// A launch that replaces others.
    fn captured(&self, kernel: &LoadedKernel, args: &[u64]) -> Option<Candidate> {
        let given = given_buffers(self.device, kernel, args)?;
        let buffers = given.iter().map(|(buffer, pointer)| (Buffer::of(buffer.clone()), pointer.written)).collect();
        let (kernel, arrays) = (kernel.clone(), Box::default());
        Some((
            Arc::new(CapturedLaunch { kernel, args: args.into(), arrays, buffers, foreign: false, store: None }),
            given,
        ))
    }
}

/// Fuses launches of a round. Yields the launches that replace them, in order.
pub(super) fn fuse_launches(
    making: &Making<'_>,
    fuser: &dyn Fuser,
    candidates: Vec<Candidate>,
    fusions: &mut Vec<Fusion>,
) -> Vec<Candidate> {
    let mut rest: Vec<usize> = (0..candidates.len()).collect();
    let mut fused = Vec::new();
    while !rest.is_empty() {
        let group = take_group(fuser, (&candidates, making.temporaries), &mut rest, fusions);
        let kernels = || group.iter().map(|i| candidates[*i].0.kernel.meta.name.clone()).collect::<Vec<_>>();
        let single = group.len() == 1;
        if single && !has_loops(fuser, (&candidates, making.temporaries), group[0]) {
            fused.push(candidates[group[0]].clone());
            continue;
        }
        match fuser.fuse(&request(&candidates, &group, making.temporaries)) {
            Ok(made) => {
                let Some(launch) = making.captured(&made.kernel, &made.args) else {
                    fused.extend(group.iter().map(|i| candidates[*i].clone()));
                    continue;
                };
                fusions.push(Fusion { kernels: kernels(), removed: made.removed, refusal: String::new() });
                fused.push(launch);
            }
            Err(refusal) => {
                fusions.push(Fusion { kernels: kernels(), removed: Vec::new(), refusal });
                fused.extend(group.iter().map(|i| candidates[*i].clone()));
            }
        }
    }
    fused
}

/// A kernel with several loops that become one.
fn has_loops(fuser: &dyn Fuser, (candidates, temporaries): (&[Candidate], &[u64]), launch: usize) -> bool {
    candidates[launch].0.kernel.meta.tasks.len() > 1
        && fuser.check(&request(candidates, &[launch], temporaries)).is_ok()
}

/// Takes the first launch and those that are fused with it.
fn take_group(
    fuser: &dyn Fuser,
    (candidates, temporaries): (&[Candidate], &[u64]),
    rest: &mut Vec<usize>,
    fusions: &mut Vec<Fusion>,
) -> Vec<usize> {
    let mut group = vec![rest.remove(0)];
    let (mut left, mut tries) = (Vec::new(), 0);
    for next in std::mem::take(rest) {
        let is_free = !left.iter().any(|between| conflict(&candidates[*between], &candidates[next]));
        if !is_free || tries == MOST_TRIES {
            left.push(next);
            continue;
        }
        group.push(next);
        if let Err(refusal) = fuser.check(&request(candidates, &group, temporaries)) {
            group.pop();
            if left.is_empty() {
                let kernels = group.iter().chain([&next]).map(|i| candidates[*i].0.kernel.meta.name.clone());
                fusions.push(Fusion { kernels: kernels.collect(), removed: Vec::new(), refusal });
            }
            left.push(next);
            tries += 1;
        }
    }
    *rest = left;
    group
}

fn request<'a>(candidates: &'a [Candidate], group: &[usize], temporaries: &'a [u64]) -> FusionRequest<'a> {
    let launch = |i: &usize| {
        let (launch, given) = &candidates[*i];
        let memory =
            given.iter().map(|(buffer, at)| FusionMemory { slot: at.slot, number: buffer.id, written: at.written });
        FusionLaunch { kernel: &launch.kernel, args: &launch.args, memory: memory.collect() }
    };
    FusionRequest { launches: group.iter().map(launch).collect(), temporaries }
}
