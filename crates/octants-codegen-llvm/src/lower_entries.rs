//! [`lower_entries`]: the code of a module.

use octants_artifact::TaskMeta;

use crate::lower_task::{lower_main, lower_single, lower_wide};
use crate::persistent_loops::lower_loop;
use crate::pieces::{Entry, Form};
use crate::unit::Unit;

/// Lowers forms of tasks and the functions that they call. Returns the metadata of the tasks whose main form is among
/// them.
pub(crate) fn lower_entries(u: &Unit<'_>, entries: &[Entry]) -> Vec<TaskMeta> {
    let mut described = Vec::new();
    for entry in entries {
        u.task.set(entry.task as u32);
        u.metadata.set_constants(&u.facts.schedule.tasks[entry.task].constants);
        match entry.form {
            Form::Main => described.push(lower_main(u, entry.task)),
            Form::Single => lower_single(u, entry.task),
            Form::Wide => _ = lower_wide(u, entry.task),
            Form::Loop(number) => {
                u.metadata.set_constants(&constants_of(u, &[*entry]));
                lower_loop(u, &u.facts.loops[number]);
            }
        }
    }
    // Functions serve all of them.
    u.metadata.set_constants(&constants_of(u, entries));
    u.lower_pending();
    described
}

/// Per buffer: its contents are constant while any of the code runs.
fn constants_of(u: &Unit<'_>, entries: &[Entry]) -> Vec<bool> {
    let tasks = entries.iter().flat_map(|entry| entry.tasks(u.facts));
    let constants = tasks.map(|task| u.facts.schedule.tasks[task].constants.clone());
    constants.reduce(|a, b| a.into_iter().zip(b).map(|(a, b)| a && b).collect()).unwrap_or_default()
}
