//! [`Decision`]: the lane of each launch, and the reasons for it, for reports.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use octants_artifact::{Access, AccessKind};
use smallvec::SmallVec;

use super::elements::Meeting;
use crate::kernel::Reported;
use crate::kernel_meta::KernelMeta;

/// Launches that a launch conflicts with.
pub(super) type Conflicts = SmallVec<[(u64, Meeting); 8]>;

/// The lane of a launch, and the reason for it.
#[derive(Debug, Clone)]
pub struct Decision {
    /// Its number among the concurrent launches of the device.
    pub number: u64,
    /// The kernel.
    pub kernel: String,
    /// The lane; `None` for the default stream.
    pub lane: Option<usize>,
    /// The launches that it conflicts with, and the kernel's name of the buffer in which they meet first.
    pub depends_on: Vec<(u64, String)>,
    /// For each of them the elements in which they meet. Empty if unknown.
    pub reasons: Vec<String>,
    /// For a launch of a graph, which replay of a round this was.
    pub replay: Option<u64>,
}

/// Decisions that are kept for a report.
const MOST_DECISIONS: usize = 4096;

/// A decision without texts: most are never asked for.
#[derive(Clone)]
pub(super) struct Decided {
    pub number: u64,
    pub kernel: Arc<Reported>,
    pub args: SmallVec<[u64; 12]>,
    pub lane: Option<usize>,
    pub depends_on: SmallVec<[(u64, Meeting); 2]>,
    /// The replay that it is part of.
    pub replay: Option<u64>,
}

/// The latest decisions.
#[derive(Default)]
pub(super) struct Decisions {
    all: VecDeque<Decided>,
    /// The place of the first.
    first: u64,
    /// The place of the first that was in no report.
    unreported: u64,
}

impl Decisions {
    /// Adds a decision, and returns its place.
    pub(super) fn push(&mut self, decided: Decided) -> u64 {
        if self.all.len() == MOST_DECISIONS {
            self.all.pop_front();
            self.first += 1;
        }
        if self.all.capacity() < MOST_DECISIONS {
            // Moving them takes longer than touching new memory.
            self.all.reserve(MOST_DECISIONS - self.all.len());
        }
        self.all.push_back(decided);
        self.first + self.all.len() as u64 - 1
    }

    /// The decision at a place, if it is kept.
    #[inline]
    pub(super) fn at(&self, place: u64) -> Option<&Decided> {
        self.all.get(place.checked_sub(self.first)? as usize)
    }

    /// Those since the last report. `needed` is the place of the first that must be kept.
    pub(super) fn report(&mut self, needed: Option<u64>) -> Vec<Decided> {
        let after = self.unreported.saturating_sub(self.first) as usize;
        let new = self.all.iter().skip(after).cloned().collect();
        self.unreported = self.first + self.all.len() as u64;
        while !self.all.is_empty() && needed.is_none_or(|needed| self.first < needed) {
            self.all.pop_front();
            self.first += 1;
        }
        new
    }
}

/// Decisions as texts.
pub(super) fn described(decided: &[Decided]) -> Vec<Decision> {
    let by_number: HashMap<u64, &Decided> = decided.iter().map(|d| (d.number, d)).collect();
    let describe = |of: &Decided| {
        let name = |of: Meeting, kernel: &KernelMeta| of.and_then(|b| kernel.buffers.get(b as usize)).cloned();
        let depends_on = of.depends_on.iter().map(|(n, b)| (*n, name(*b, &of.kernel.meta).unwrap_or_default()));
        let reason = |(n, meeting): &(u64, Meeting)| by_number.get(n).and_then(|earlier| reason(earlier, of, *meeting));
        let reasons = of.depends_on.iter().map(|on| reason(on).unwrap_or_default()).collect();
        let (number, kernel, lane, replay) = (of.number, of.kernel.meta.name.clone(), of.lane, of.replay);
        Decision { number, kernel, lane, depends_on: depends_on.collect(), reasons, replay }
    };
    decided.iter().map(describe).collect()
}

/// An access with its file and line.
type Located<'a> = (&'a Access, &'a str);

/// The elements of a buffer in which two launches meet, and the lines of both accesses.
fn reason(earlier: &Decided, later: &Decided, buffer: Meeting) -> Option<String> {
    let (first, second) = (accesses(earlier), accesses(later));
    let of_buffer = second.iter().filter(|(y, _)| Some(y.buffer) == buffer);
    let mut pairs = of_buffer.flat_map(|y| first.iter().map(move |x| (x, y)));
    let (x, y) = pairs.find(|(x, y)| x.0.meets((y.0, &later.args), &earlier.args))?;
    let verb = |of: &Access| match of.kind {
        AccessKind::Read => "reads",
        AccessKind::Write => "writes",
        AccessKind::Update(_) => "updates",
    };
    let at = |line: &str| if line.is_empty() { String::new() } else { format!(" ({line})") };
    let (here, there) = (elements(y.0, later) + &at(y.1), elements(x.0, earlier) + &at(x.1));
    Some(format!("{} {here}; {} {} {there}", verb(y.0), earlier.kernel.meta.name, verb(x.0)))
}

fn accesses(of: &Decided) -> Vec<Located<'_>> {
    let line =
        |task: usize, n: usize| of.kernel.lines.get(task).and_then(|lines| lines.get(n)).map_or("", String::as_str);
    let all = of.kernel.meta.tasks.iter().enumerate();
    all.flat_map(|(task, meta)| meta.access.iter().enumerate().map(move |(n, access)| (access, line(task, n))))
        .collect()
}

/// The name of a buffer, with the indices of an access.
fn elements(access: &Access, of: &Decided) -> String {
    let range = |i: octants_artifact::Indices| match i.step {
        1 => format!("{}:{}", i.begin, i.end),
        step => format!("{}:{}:{step}", i.begin, i.end),
    };
    let axes: Vec<String> = access.ranges(&of.args).map(range).collect();
    let name = of.kernel.meta.buffers.get(access.buffer as usize).map_or("", String::as_str);
    if axes.is_empty() { name.to_owned() } else { format!("{name}[{}]", axes.join(", ")) }
}

#[cfg(test)]
mod tests {
    use octants_artifact::Artifact;

    use super::*;

    #[test]
    fn each_decision_is_reported_once_and_kept_while_needed() {
        let kernel = Arc::new(Reported { meta: Arc::new(KernelMeta::of(&Artifact::default())), lines: Arc::default() });
        let decided = |number| Decided {
            number,
            kernel: kernel.clone(),
            args: SmallVec::new(),
            lane: None,
            depends_on: SmallVec::new(),
            replay: None,
        };
        let mut decisions = Decisions::default();
        let numbers = |of: Vec<Decided>| of.iter().map(|d| d.number).collect::<Vec<_>>();
        assert_eq!((0..4).map(|n| decisions.push(decided(10 + n))).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(numbers(decisions.report(Some(2))), [10, 11, 12, 13]);
        assert!(decisions.at(1).is_none() && decisions.at(2).is_some_and(|d| d.number == 12));
        decisions.push(decided(20));
        assert_eq!(numbers(decisions.report(None)), [20]);
        assert!(decisions.at(4).is_none() && decisions.report(None).is_empty());
        let last = (0..MOST_DECISIONS as u64 + 5).map(|n| decisions.push(decided(n))).last();
        assert!(last.is_some_and(|last| decisions.at(last).is_some_and(|d| d.number == MOST_DECISIONS as u64 + 4)));
        assert_eq!(decisions.report(None).len(), MOST_DECISIONS);
    }
}
