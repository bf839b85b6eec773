//! [`Observed`]: the accesses of the evaluated iterations, by element, and the races among them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use octants_diag::Span;
use octants_ir::{BufferId, Kernel, ValueId};

use super::{Doing, IterationRace, RaceBetween, RacingIteration, TouchedElement};

/// An access that an iteration certainly makes.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub buffer: BufferId,
    /// The element's memory: equal for elements that are the same in the launch.
    pub place: (u64, Vec<i64>),
    pub index: Vec<i64>,
    /// The part of the element, by its path.
    pub path: Vec<i64>,
    pub doing: Doing,
    /// The instruction, by the number of its body too.
    pub inst: (usize, ValueId),
    pub span: Span,
    /// A hash of the written value.
    pub value: u64,
    pub iteration: Rc<[i64]>,
}

/// Accesses by element, and races.
#[derive(Debug, Default)]
pub(super) struct Observed {
    elements: HashMap<(u64, Vec<i64>), Vec<Seen>>,
    /// For each buffer, the most severe race: two writes rather than a write and a read.
    races: BTreeMap<BufferId, (Seen, Seen)>,
    /// For each instruction the element that it reached first in this loop.
    firsts: BTreeMap<(usize, ValueId), Seen>,
    /// Indices to search for, if accesses and not races are searched.
    near: Option<Vec<i64>>,
    /// Accesses, if requested.
    touched: Vec<Seen>,
    /// How many of them are remembered.
    most: usize,
}

/// Touches that are remembered.
const MOST_TOUCHED: usize = 1 << 16;
/// The same if all are collected.
const MOST_OF_ALL: usize = 1 << 20;
/// Accesses of an instruction to one element that are remembered.
const MOST_OF_ONE: usize = 2;

impl Seen {
    /// They touch the same part of an element, and their order matters.
    pub fn conflicts_with(&self, other: &Seen) -> bool {
        let harmless = match (self.doing, other.doing) {
            (Doing::Reads, Doing::Reads) | (Doing::Updates, Doing::Updates) => true,
            (Doing::Writes, Doing::Writes) => self.value == other.value && self.path.len() == other.path.len(),
            _ => false,
        };
        let shared = self.path.iter().zip(&other.path).all(|(a, b)| a == b);
        !harmless && shared
    }

    fn races_with(&self, other: &Seen) -> bool {
        self.iteration != other.iteration && self.conflicts_with(other)
    }
}

impl TouchedElement {
    pub(super) fn of(seen: &Seen) -> TouchedElement {
        let Seen { buffer, index, path, doing, span, .. } = seen;
        let (index, path) = (index.clone(), path.clone());
        TouchedElement { buffer: *buffer, index, path, doing: *doing, span: *span }
    }
}

impl Observed {
    /// To collect touches, with those near some indices.
    pub fn of_touches(near: &[i64]) -> Observed {
        Observed { near: Some(near.to_vec()), most: MOST_TOUCHED, ..Observed::default() }
    }

    /// To collect all touches.
    pub fn of_all_touches() -> Observed {
        Observed { near: Some(Vec::new()), most: MOST_OF_ALL, ..Observed::default() }
    }

    pub fn begin_loop(&mut self) {
        self.firsts.clear();
    }

    /// Indices to search for.
    pub fn near(&self) -> &[i64] {
        self.near.as_deref().unwrap_or_default()
    }

    /// The touches.
    pub fn all(&self) -> &[Seen] {
        &self.touched
    }

    pub fn add(&mut self, seen: Seen) {
        self.firsts.entry(seen.inst).or_insert_with(|| seen.clone());
        if self.near.is_some() {
            if self.touched.len() < self.most {
                self.touched.push(seen);
            }
            return;
        }
        let known = self.elements.entry(seen.place.clone()).or_default();
        let both_write = |a: &Seen, b: &Seen| (a.doing, b.doing) == (Doing::Writes, Doing::Writes);
        let racing = known.iter().filter(|other| other.races_with(&seen));
        if let Some(other) = racing.max_by_key(|other| both_write(other, &seen)) {
            let known = self.races.get(&other.buffer);
            if known.is_none_or(|(a, b)| !both_write(a, b) && both_write(other, &seen)) {
                self.races.insert(other.buffer, (other.clone(), seen.clone()));
            }
        }
        let same = |s: &&Seen| s.inst == seen.inst && s.path == seen.path;
        let known_of_inst: Vec<&Seen> = known.iter().filter(same).collect();
        if known_of_inst.len() < MOST_OF_ONE && known_of_inst.iter().all(|s| s.iteration != seen.iteration) {
            known.push(seen);
        }
    }

    /// The elements that instructions reached first.
    pub fn firsts(&self) -> impl Iterator<Item = &Seen> {
        self.firsts.values()
    }

    pub fn races(self, kernel: &Kernel, of_loop: Span) -> Vec<IterationRace> {
        let side = |s: &Seen| RacingIteration { doing: s.doing, span: s.span, iteration: s.iteration.to_vec() };
        let race = |(buffer, (a, b)): (BufferId, (Seen, Seen))| {
            let buffer = kernel.buffers[buffer.index()].name.clone();
            let (first, second) =
                if (b.span.file, b.span.start) < (a.span.file, a.span.start) { (b, a) } else { (a, b) };
            let index = first.index.clone();
            let (first, second, between) = (side(&first), side(&second), RaceBetween::Iterations);
            IterationRace { buffer, index, first, second, of_loop, between }
        };
        // Arrays that overlap may both have the same race.
        let mut known = HashSet::new();
        self.races.into_iter().map(race).filter(|race| known.insert((race.first.span, race.second.span))).collect()
    }
}
