//! [`Temporaries`]: arrays that a program allocates anew in each round of launches.
//!
//! Rounds with such arrays never repeat exactly. They match if each launch has the same arguments, except for arrays
//! that no other round uses, which correspond one to one. Of earlier rounds, no one else must hold these arrays any
//! more. A graph of such a round never touches them: fusion has removed them, because each iteration of a fused loop
//! keeps their elements itself. It is launched if no one can read the arrays any more; until then it is *ready*.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::GraphId;
use super::make_graph::MadeGraph;
use crate::buffer::Buffer;
use crate::capture::CapturedLaunch;
use crate::captured_graph::CapturedGraph;

/// The temporary arrays of an expected round.
pub(super) struct Temporaries {
    /// For each launch the argument slots with addresses of temporaries, and which.
    slots: Vec<Vec<(u32, usize)>>,
    /// The size of each.
    bytes: Vec<u64>,
    /// The other arrays of the round, by number.
    others: HashSet<u64>,
    /// Those of the current round, by number.
    bound: Vec<Option<u64>>,
    /// The launches that are held.
    pub(super) held: Vec<Arc<CapturedLaunch>>,
}

/// A graph that is launched in place of its launches once no one can read the temporaries.
pub(super) struct Ready {
    pub(super) id: GraphId,
    pub(super) graph: Arc<CapturedGraph>,
    /// What a report says about it, before the first launch.
    pub(super) made: Option<MadeGraph>,
    pub(super) launches: Vec<Arc<CapturedLaunch>>,
    pub(super) temporaries: Vec<u64>,
}

impl Ready {
    /// No one besides the launches holds the temporaries.
    pub(super) fn is_unobserved(&self) -> bool {
        let held = holders(self.launches.iter());
        let buffers = self.launches.iter().flat_map(|l| l.buffers.iter().map(|(buffer, _)| buffer));
        let mut of_temporaries = buffers.filter(|b| self.temporaries.contains(&b.number()));
        of_temporaries.all(|b| Arc::strong_count(b.core()) == held[&b.number()])
    }
}

/// A launch of a history; `None` for a cut.
pub(super) type Entry<'a> = Option<&'a Arc<CapturedLaunch>>;

/// For each array the number of references of launches.
fn holders<'a>(launches: impl Iterator<Item = &'a Arc<CapturedLaunch>>) -> HashMap<u64, usize> {
    let mut held = HashMap::new();
    for (buffer, _) in launches.flat_map(|l| l.buffers.iter()) {
        *held.entry(buffer.number()).or_default() += 1;
    }
    held
}

/// The slots of a launch that hold addresses, with the buffers there.
fn buffers_by_slot(launch: &CapturedLaunch) -> impl Iterator<Item = (u32, &Buffer)> {
    let slots = launch.kernel.pointers.iter().map(|p| p.slot).filter(|slot| launch.args[*slot as usize] != 0);
    slots.zip(launch.buffers.iter().map(|(buffer, _)| buffer))
}

/// The arguments are the same except in these slots.
fn same_besides(a: &CapturedLaunch, b: &CapturedLaunch, is_free: impl Fn(u32) -> bool) -> bool {
    a.kernel.module == b.kernel.module
        && a.args.len() == b.args.len()
        && a.args.iter().zip(&*b.args).enumerate().all(|(slot, (x, y))| x == y || is_free(slot as u32))
}

impl Temporaries {
    /// The temporaries of the last of three rounds of this length that match, if there are any.
    pub(super) fn find(history: &[Entry<'_>], period: usize) -> Option<Temporaries> {
        let first = history.len().checked_sub(3 * period)?;
        // The rounds that use a buffer: before the first of the three is another one.
        let mut rounds: HashMap<u64, HashSet<usize>> = HashMap::new();
        for (place, launch) in history.iter().enumerate() {
            let round = if place < first { 0 } else { 1 + (place - first) / period };
            for (buffer, _) in launch.iter().flat_map(|l| l.buffers.iter()) {
                rounds.entry(buffer.number()).or_default().insert(round);
            }
        }
        let held = holders(history.iter().flatten().copied());
        let is_fresh = |buffer: &Buffer, round: usize| {
            let number = buffer.number();
            rounds[&number].len() == 1
                && rounds[&number].contains(&round)
                && (round == 3 || Arc::strong_count(buffer.core()) == held[&number])
        };
        let mut found = None;
        for round in [2, 3] {
            let (earlier, later) = (&history[first + (round - 2) * period..], &history[first + (round - 1) * period..]);
            found = Some(match_rounds(&earlier[..period], &later[..period], round, &is_fresh)?);
        }
        found.filter(|found| !found.bytes.is_empty())
    }

    /// Begins after some of the launches.
    pub(super) fn rotate(&mut self, by: usize) {
        self.slots.rotate_left(by);
    }

    /// The arrays of a launch that are not temporary.
    pub(super) fn others_of(&self, launch: &CapturedLaunch) -> Box<[(Buffer, bool)]> {
        launch.buffers.iter().filter(|(buffer, _)| self.others.contains(&buffer.number())).cloned().collect()
    }

    /// Takes a launch if it is the expected one, perhaps with other temporaries.
    pub(super) fn take(&mut self, at: usize, expected: &CapturedLaunch, launch: CapturedLaunch) -> bool {
        let slots = &self.slots[at];
        let is_temporary = |slot: u32| slots.iter().any(|(s, _)| *s == slot);
        if !same_besides(expected, &launch, is_temporary) {
            return false;
        }
        let mut bound = self.bound.clone();
        for (slot, buffer) in buffers_by_slot(&launch) {
            let Some((_, temporary)) = slots.iter().find(|(s, _)| *s == slot) else { continue };
            let number = buffer.number();
            let fits = launch.args[slot as usize] == buffer.address().0 && buffer.bytes() == self.bytes[*temporary];
            let is_new = !bound.contains(&Some(number)) && !self.others.contains(&number);
            match bound[*temporary] {
                Some(known) if known == number => {}
                None if fits && is_new => bound[*temporary] = Some(number),
                _ => return false,
            }
        }
        self.bound = bound;
        self.held.push(Arc::new(launch));
        true
    }

    /// The held launches, and the temporaries of the round so far.
    pub(super) fn take_run(&mut self) -> (Vec<Arc<CapturedLaunch>>, Vec<u64>) {
        (std::mem::take(&mut self.held), self.bound.iter().flatten().copied().collect())
    }

    /// The next round has other temporaries.
    pub(super) fn begin_round(&mut self) {
        self.bound.fill(None);
    }
}

fn match_rounds(
    earlier: &[Entry<'_>],
    later: &[Entry<'_>],
    round: usize,
    is_fresh: &dyn Fn(&Buffer, usize) -> bool,
) -> Option<Temporaries> {
    let mut pairs: Vec<(u64, u64)> = Vec::new();
    let mut found = Temporaries {
        slots: Vec::new(),
        bytes: Vec::new(),
        others: HashSet::new(),
        bound: Vec::new(),
        held: Vec::new(),
    };
    for pair in earlier.iter().zip(later) {
        let mut slots = Vec::new();
        match pair {
            (None, None) => {}
            (Some(a), Some(b)) => {
                for ((slot, x), (other_slot, y)) in buffers_by_slot(a).zip(buffers_by_slot(b)) {
                    if slot != other_slot {
                        return None;
                    }
                    if x.number() == y.number() {
                        found.others.insert(x.number());
                        continue;
                    }
                    let at_begin = a.args[slot as usize] == x.address().0 && b.args[slot as usize] == y.address().0;
                    let same = at_begin && x.bytes() == y.bytes();
                    if !same || !is_fresh(x, round - 1) || !is_fresh(y, round) {
                        return None;
                    }
                    let names = (x.number(), y.number());
                    let known = pairs.iter().position(|(a, b)| *a == names.0 || *b == names.1);
                    if known.is_some_and(|known| pairs[known] != names) {
                        return None;
                    }
                    let temporary = known.unwrap_or_else(|| {
                        pairs.push(names);
                        found.bytes.push(x.bytes());
                        pairs.len() - 1
                    });
                    slots.push((slot, temporary));
                }
                let is_temporary = |slot: u32| slots.iter().any(|(s, _)| *s == slot);
                if !same_besides(a, b, is_temporary) {
                    return None;
                }
            }
            _ => return None,
        }
        found.slots.push(slots);
    }
    found.bound = vec![None; found.bytes.len()];
    Some(found)
}
