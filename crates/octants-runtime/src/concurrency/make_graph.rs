//! [`MadeGraph`]: the graph of a round, and what a report says about it.

use std::sync::Arc;

use smallvec::SmallVec;

use super::LANES;
use super::decisions::{Conflicts, Decided};
use super::elements::{given_buffers, meeting};
use super::fuse_launches::{Candidate, Fusion, Making, fuse_launches};
use crate::capture::{CapturedLaunch, Step, Work};
use crate::captured_graph::CapturedGraph;

/// The graph of a round, with the decisions about its launches.
pub(super) struct MadeGraph {
    pub(super) graph: Arc<CapturedGraph>,
    /// Their numbers, and those of the launches that they wait for, count from 0.
    pub(super) decided: Vec<Decided>,
    pub(super) fusions: Vec<Fusion>,
}

/// A graph of launches, each after those that it conflicts with. `None` if their memory has changed, or if they use
/// temporaries.
pub(super) fn graph_of(making: &Making<'_>, launches: &[Arc<CapturedLaunch>]) -> Option<MadeGraph> {
    let given = |l: &Arc<CapturedLaunch>| Some((l.clone(), given_buffers(making.device, &l.kernel, &l.args)?));
    let mut candidates: Vec<Candidate> = launches.iter().map(given).collect::<Option<_>>()?;
    let mut fusions = Vec::new();
    if let Some(fuser) = making.fuser {
        candidates = fuse_launches(making, fuser, candidates, &mut fusions);
    }
    let is_temporary = |number: u64| making.temporaries.contains(&number);
    if candidates.iter().any(|(_, given)| given.iter().any(|(buffer, _)| is_temporary(buffer.id))) {
        return None;
    }
    let conflicts: Vec<Conflicts> = (0..candidates.len()).map(|later| conflicts_of(&candidates, later)).collect();
    let depends_on: Vec<Vec<usize>> =
        conflicts.iter().map(|of| of.iter().rev().map(|(earlier, _)| *earlier as usize).collect()).collect();
    let launches: Vec<Arc<CapturedLaunch>> = candidates.into_iter().map(|(launch, _)| launch).collect();
    let steps = steps_of(&launches, &depends_on, LANES);
    let decide = |(number, (launch, depends_on)): (usize, (&Arc<CapturedLaunch>, Conflicts))| Decided {
        number: number as u64,
        kernel: launch.kernel.reported.clone(),
        args: SmallVec::from_slice(&launch.args),
        lane: Some(steps[number].lane),
        depends_on: depends_on.iter().copied().collect(),
        replay: None,
    };
    let decided = launches.iter().zip(conflicts).enumerate().map(decide).collect();
    let graph = CapturedGraph::of_steps(making.device, steps, Vec::new(), Vec::new()).without_step_names();
    let graph = Arc::new(graph);
    Some(MadeGraph { graph, decided, fusions })
}

/// The earlier launches that one conflicts with, latest first.
fn conflicts_of(candidates: &[Candidate], later: usize) -> Conflicts {
    let of = |n: usize| (&*candidates[n].0, &candidates[n].1);
    let found = (0..later).rev().filter_map(|earlier| Some((earlier as u64, meeting(of(earlier), of(later))?)));
    found.collect::<SmallVec<_>>()
}

/// Steps of a graph for launches, each after those in its list. Steps of a lane share a frame, so each is
/// also after the one before it there.
fn steps_of(launches: &[Arc<CapturedLaunch>], depends_on: &[Vec<usize>], most_lanes: usize) -> Vec<Step> {
    let mut ends: Vec<usize> = Vec::new();
    let mut steps: Vec<Step> = Vec::with_capacity(launches.len());
    for (place, launch) in launches.iter().enumerate() {
        let mut depends_on = depends_on[place].clone();
        let follows = |end: &usize| depends_on.contains(end);
        let lane = ends.iter().position(follows).unwrap_or_else(|| match ends.len() < most_lanes {
            true => ends.len(),
            // The lane whose last step is the earliest.
            false => (0..ends.len()).min_by_key(|lane| ends[*lane]).unwrap_or(0),
        });
        match ends.get_mut(lane) {
            Some(end) => {
                if !depends_on.contains(end) {
                    depends_on.push(*end);
                }
                *end = place;
            }
            None => ends.push(place),
        }
        depends_on.sort_unstable();
        steps.push(Step { lane, depends_on, work: Work::Launch(launch.clone()), site: None });
    }
    steps
}
