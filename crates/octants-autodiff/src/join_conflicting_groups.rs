//! Joins groups of an adjoint that must not run concurrently.
//!
//! Groups of a kernel may read the same memory. Their adjoints then add to its gradient concurrently, so float sums
//! vary from run to run, and plain updates are lost. Two groups that touch the same elements, at least one of them
//! writing, become one group, together with all groups between them. Their loops run in order.

use octants_ir::{BlockId, Kernel, LoopGroup, Op, ValueId, task_blocks};
use octants_passes::conflicting_groups;

/// A parallel loop of a group.
struct Member {
    value: ValueId,
    /// Its group before any were joined.
    own: LoopGroup,
    group: LoopGroup,
}

/// Joins them.
pub fn join_conflicting_groups(kernel: &mut Kernel) {
    for block in task_blocks(&kernel.body) {
        let mut members = members_of(kernel, block);
        if members.iter().all(|m| m.own == members[0].own) {
            continue;
        }
        let mut conflicts = conflicting_groups(kernel, block);
        conflicts.extend(groups_around_statements(kernel, block, &members));
        for (a, b) in conflicts {
            join(&mut members, a, b);
        }
        for Member { value, group, .. } in &members {
            let is_alone = !members.iter().any(|m| m.group != *group && m.group.region == group.region);
            let Op::For(l) = &mut kernel.body.inst_mut(*value).op else { continue };
            if let Some(config) = &mut l.parallel {
                config.group = (!is_alone).then_some(*group);
            }
        }
    }
}

fn members_of(kernel: &Kernel, block: BlockId) -> Vec<Member> {
    let body = &kernel.body;
    let member = |&value: &ValueId| match &body.inst(value).op {
        Op::For(l) => l.parallel.as_ref().and_then(|c| c.group).map(|own| Member { value, own, group: own }),
        _ => None,
    };
    body.block(block).iter().filter_map(member).collect()
}

/// The groups before and after a statement with effects. It would join the latter, but may belong to the former.
fn groups_around_statements(kernel: &Kernel, block: BlockId, members: &[Member]) -> Vec<(LoopGroup, LoopGroup)> {
    let (mut found, mut before, mut does) = (Vec::new(), None, false);
    for &v in kernel.body.block(block) {
        match members.iter().find(|m| m.value == v) {
            Some(member) => {
                if let (Some(before), true) = (before, does) {
                    found.push((before, member.own));
                }
                (before, does) = (Some(member.own), false);
            }
            None => does |= !kernel.body.inst(v).op.is_pure(),
        }
    }
    found
}

/// Merges two groups, and those between them.
fn join(members: &mut [Member], a: LoopGroup, b: LoopGroup) {
    if a == b || a.region != b.region {
        return;
    }
    let places = members.iter().enumerate().filter(|(_, m)| m.own == a || m.own == b).map(|(at, _)| at);
    let (Some(first), Some(last)) = (places.clone().min(), places.max()) else { return };
    let into = members[first].group;
    let joined: Vec<LoopGroup> = members[first..=last].iter().map(|m| m.group).collect();
    members.iter_mut().filter(|m| joined.contains(&m.group)).for_each(|m| m.group = into);
}
