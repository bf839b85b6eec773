//! Races between the steps of a captured graph.

use std::collections::HashSet;
use std::sync::Mutex;

use super::clock::StreamId;
use super::compare::{Search, race_of};
use super::{Doing, Last, Work};
use crate::capture::{Step, Work as StepWork};
use crate::race::Race;

/// Maximum number of steps of a graph that are compared with each other.
const MOST_STEPS: usize = 512;
/// Maximum number of steps of a graph of which all elements are compared.
const MOST_SEARCHED: usize = 32;

/// The races of steps of a graph that are on different lanes, with no path of waits. A missing wait is one race, even
/// if it leaves several steps unordered: of each lane, only the latest step is reported that a wait would also order
/// the others by.
pub(super) fn races_of_steps(steps: &[Step]) -> Vec<Race> {
    if steps.len() > MOST_STEPS {
        return Vec::new();
    }
    let search = if steps.len() > MOST_SEARCHED { Search::Some } else { Search::All };
    let mut depends_on: Vec<HashSet<usize>> = Vec::with_capacity(steps.len());
    let mut works: Vec<Option<Work>> = Vec::with_capacity(steps.len());
    let mut races = Vec::new();
    for step in steps {
        let mut all: HashSet<usize> = step.depends_on.iter().copied().collect();
        for earlier in &step.depends_on {
            all.extend(depends_on.get(*earlier).into_iter().flatten());
        }
        let work = work_of_step(step);
        for n in (0..works.len()).rev() {
            if let (Some(earlier), Some(work)) = (&works[n], &work)
                && !all.contains(&n)
                && steps[n].lane != step.lane
                && let Some(race) = race_of(earlier, work, search)
            {
                races.push(race);
                all.insert(n);
                all.extend(&depends_on[n]);
            }
        }
        depends_on.push(all);
        works.push(work);
    }
    races
}

fn work_of_step(step: &Step) -> Option<Work> {
    let doing = match &step.work {
        StepWork::Launch(l) => Doing::Launch(l.kernel.clone(), l.args.clone()),
        StepWork::Fill { at, bytes, .. } => Doing::Ranges("a fill", [(at.0, at.0 + bytes, true)].into()),
        StepWork::Copy { at, from_at, bytes, .. } => {
            let ranges = [(from_at.0, from_at.0 + bytes, false), (at.0, at.0 + bytes, true)];
            Doing::Ranges("a copy", ranges.into())
        }
        StepWork::Foreign(_) | StepWork::Host(_) => return None,
    };
    let site = step.site.clone()?;
    let last = Mutex::new(Last { number: 0, elsewhere: 0 });
    let stream = StreamId { device: 0, stream: step.lane as u32 };
    Some(Work { stream, device: None, key: 0, last, doing, site, in_graph: true, crosses: false, touches: None })
}
