//! Races between groups of a block: blocks of `stream_parallel`, or sections of one `graph.parallel_context`.

use std::collections::{BTreeMap, HashMap};

use octants_ir::{BlockId, BufferId, LoopGroup, Op, section_of, task_blocks};

use super::observed::{Observed, Seen};
use super::run_iteration::Run;
use super::{Doing, IterationRace, RaceBetween, RaceSearch, RacingIteration};
use crate::offload::statement_groups;

impl RaceSearch {
    /// Some statements are in groups.
    pub(super) fn has_groups(&self) -> bool {
        let body = &self.kernel.body;
        task_blocks(body).into_iter().flat_map(|b| body.block(b)).any(|v| match &body.inst(*v).op {
            Op::For(l) => l.parallel.as_ref().is_some_and(|c| c.group.is_some()),
            Op::Loop(inner) => section_of(body, *inner).is_some(),
            _ => false,
        })
    }

    /// The races of a block's groups, at most one for each pair of groups and buffer.
    pub(super) fn races_of_groups(&self, block: BlockId, run: &mut Run<'_>) -> Vec<IterationRace> {
        let order = self.kernel.body.block(block);
        let groups = statement_groups(&self.kernel.body, order);
        if groups.iter().all(Option::is_none) {
            return Vec::new();
        }
        let before = run.state();
        let mut touched: BTreeMap<LoopGroup, Observed> = BTreeMap::new();
        for (&v, group) in order.iter().zip(&groups) {
            let mut elsewhere = Observed::of_touches(&[]);
            let observed = match group {
                Some(group) => touched.entry(*group).or_insert_with(|| Observed::of_touches(&[])),
                None => &mut elsewhere,
            };
            if !self.touch(v, run, observed) {
                break;
            }
        }
        run.set_state(before);
        let touched: Vec<(LoopGroup, Observed)> = touched.into_iter().collect();
        let mut found = Vec::new();
        for (n, (a, in_a)) in touched.iter().enumerate() {
            for (b, in_b) in &touched[n + 1..] {
                let allowed = [a, b].iter().any(|g| self.overlap_allowed.contains(&g.number));
                if a.region == b.region && !allowed {
                    let between = if a.region.is_some() { RaceBetween::Sections } else { RaceBetween::Blocks };
                    found.extend(self.races_between(in_a.all(), in_b.all(), between));
                }
            }
        }
        found
    }

    fn races_between(&self, first: &[Seen], second: &[Seen], between: RaceBetween) -> Vec<IterationRace> {
        let mut known: HashMap<&(u64, Vec<i64>), Vec<&Seen>> = HashMap::new();
        for seen in first {
            known.entry(&seen.place).or_default().push(seen);
        }
        let both_write = |a: &Seen, b: &Seen| (a.doing, b.doing) == (Doing::Writes, Doing::Writes);
        let mut worst: BTreeMap<BufferId, (&Seen, &Seen)> = BTreeMap::new();
        for seen in second {
            for other in known.get(&seen.place).map_or(&[][..], Vec::as_slice) {
                let graver = |(a, b): &(&Seen, &Seen)| !both_write(a, b) && both_write(other, seen);
                if other.conflicts_with(seen) && worst.get(&other.buffer).is_none_or(graver) {
                    worst.insert(other.buffer, (*other, seen));
                }
            }
        }
        let side = |s: &Seen| RacingIteration { doing: s.doing, span: s.span, iteration: s.iteration.to_vec() };
        let race = |(buffer, (a, b)): (BufferId, (&Seen, &Seen))| IterationRace {
            buffer: self.name_of(buffer).to_owned(),
            index: a.index.clone(),
            first: side(a),
            second: side(b),
            of_loop: b.span,
            between,
        };
        worst.into_iter().map(race).collect()
    }
}
