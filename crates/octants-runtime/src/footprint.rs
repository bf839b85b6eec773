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
