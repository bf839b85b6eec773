//! Facts about a body are computed once for all variants that are copies of it.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod targets;

use std::sync::Arc;

use octants_analysis::local_uses;
use octants_ir::{Program, ScheduleOptions};
use octants_schedule::decide_schedule;
use targets::CPU;

const TEXT: &str = include_str!("file/scatter_privatization/private_copies.oir");

#[test]
fn variants_share_the_facts_of_their_task() {
    let program: String = TEXT.split("----").next().unwrap().lines().filter(|l| !l.starts_with(';')).collect();
    let program: Program = program.parse().unwrap();
    let scheduled = decide_schedule(program, &CPU, ScheduleOptions::default());
    let of_task = local_uses(&scheduled.program.tasks[0].body);
    let variants = &scheduled.schedule.tasks[0].variants;
    assert!(variants.len() > 1 && variants.iter().all(|v| Arc::ptr_eq(&of_task, &local_uses(&v.body))));
}
