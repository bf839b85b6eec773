//! [`Footprint`]: what a kernel's access sets say about the memory that one of its argument slots addresses.

use octants_artifact::{Access, AccessKind, SlotSum, TaskMeta};

/// The accesses to memory at an argument slot.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Footprint {
    /// The task of each access, and its number there.
    accesses: Vec<(u32, u32)>,
    /// How many of them read.
    pub(crate) reads: usize,
    /// The argument slots that decide which elements are accessed.
    pub(crate) slots: Vec<u32>,
}

impl Footprint {
    /// For each argument slot.
    pub(crate) fn of_slots(tasks: &[TaskMeta], count: usize) -> Box<[Footprint]> {
        let mut all = vec![Footprint::default(); count];
        for (task, meta) in tasks.iter().enumerate() {
            for (number, access) in meta.access.iter().enumerate() {
                for (n, part) in access.parts.iter().enumerate() {
                    let is_known = access.parts[..n].iter().any(|earlier| earlier.slot == part.slot);
                    let Some(footprint) = all.get_mut(part.slot as usize).filter(|_| !is_known) else { continue };
                    footprint.accesses.push((task as u32, number as u32));
                    footprint.reads += usize::from(access.kind == AccessKind::Read);
                    footprint.slots.extend(slots_of(access));
                }
            }
        }
        for footprint in &mut all {
            footprint.slots.sort_unstable();
            footprint.slots.dedup();
        }
        all.into_boxed_slice()
    }

    /// Their number.
    pub(crate) fn len(&self) -> usize {
        self.accesses.len()
    }

    /// The accesses, among those of the kernel's tasks.
    pub(crate) fn accesses<'a>(&'a self, tasks: &'a [TaskMeta]) -> impl Iterator<Item = &'a Access> {
        self.accesses.iter().map(|(task, number)| &tasks[*task as usize].access[*number as usize])
    }
}

/// The argument slots that an access names.
fn slots_of(access: &Access) -> impl Iterator<Item = u32> {
    let ranges = access.axes.iter().filter_map(|axis| axis.range.as_ref()).flat_map(|(begin, end)| [begin, end]);
    let sums = access.axes.iter().map(|axis| &axis.extent).chain(ranges);
    let sums = sums.chain(access.colors.iter().map(|color| &color.phase));
    let of_sum = |sum: &SlotSum| sum.terms.iter().map(|(slot, ..)| *slot).collect::<Vec<_>>();
    sums.flat_map(of_sum).chain(access.parts.iter().map(|part| part.slot))
}

#[cfg(test)]
mod tests {
    use octants_artifact::{AccessAxis, AccessPart, ScalarKind};

    use super::*;

    #[test]
    fn accesses_are_listed_by_the_slots_of_their_memory() {
        let sum = |slot| SlotSum { constant: 0, terms: vec![(slot, ScalarKind::I64, 1)] };
        let part = |slot| AccessPart { slot, begin: 0, end: 4 };
        let access = |kind, parts: &[u32]| Access {
            buffer: 0,
            kind,
            axes: vec![AccessAxis { extent: sum(4), range: Some((sum(3), sum(4))), step: 1 }],
            colors: Vec::new(),
            parts: parts.iter().copied().map(part).collect(),
            element: 4,
        };
        let first = TaskMeta { access: vec![access(AccessKind::Read, &[0, 0])], ..TaskMeta::default() };
        let access = vec![access(AccessKind::Write, &[1]), access(AccessKind::Write, &[0, 1])];
        let tasks = [first, TaskMeta { access, ..TaskMeta::default() }];
        let all = Footprint::of_slots(&tasks, 5);
        let found = |slot: usize| (all[slot].accesses.clone(), all[slot].reads, all[slot].slots.clone());
        assert_eq!(found(0), (vec![(0, 0), (1, 1)], 1, vec![0, 1, 3, 4]));
        assert_eq!(found(1), (vec![(1, 0), (1, 1)], 0, vec![0, 1, 3, 4]));
        assert_eq!(all[0].accesses(&tasks).filter(|access| access.kind == AccessKind::Write).count(), 1);
        assert_eq!(all[2], Footprint::default());
    }
}
