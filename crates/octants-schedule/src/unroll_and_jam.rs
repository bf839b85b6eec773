//! Unroll-and-jam of parallel loops (Allen and Kennedy, Optimizing Compilers for Modern Architectures, section 8.3): a
//! thread runs groups of adjacent iterations of the last axis, and jams the inner loops that they share.
//! `find_unroll_and_jam` decides, `iteration_groups` writes the code.

use octants_ir::schedule::Role;
use octants_ir::{GroupPlacement, Scheduled};

use crate::facts::{BodyFacts, ProgramFacts};
use crate::find_unroll_and_jam::find_unroll_and_jam;
use crate::iteration_groups::add_groups;
use crate::schedule_task::{ParallelLoop, is_huge};
use crate::scheduling::Scheduling;

/// Adds bodies for groups of iterations to the parallel loops of variants, if that is legal and pays off.
pub(crate) fn unroll_and_jam(scheduled: &mut Scheduled, of: &Scheduling) {
    let Scheduled { program, schedule } = scheduled;
    let facts = ProgramFacts::of(program, &of.target, of.options);
    for (task, found) in program.tasks.iter().zip(&mut schedule.tasks) {
        let Some(p) = ParallelLoop::of(task).filter(|p| !p.config.serialize) else { continue };
        if is_huge(&of.target, found.behavior) {
            continue;
        }
        let of_body = BodyFacts::new(&facts, &task.body);
        let [shared, alone] = find_unroll_and_jam(&of_body, p.loop_id, p.of);
        for variant in &mut found.variants {
            let is_alone = matches!(variant.role, Role::SingleThread | Role::Private);
            if let Some(jammed) = if is_alone { &alone } else { &shared } {
                let placement = GroupPlacement::Consecutive;
                add_groups(variant, p.loop_id, jammed.factors(), placement, &jammed.loops);
            }
        }
    }
}
