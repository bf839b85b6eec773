//! Checks on groups: groups that may run concurrently must not touch the same memory.

use octants_diag::{Code, Diagnostic, Span};
use octants_frontend::{Lowered, World};
use octants_ir::{LoopGroup, Op, run_pipeline, section_of, task_statements};
use octants_passes::{Alias, Overlap, PIPELINE, PassOptions, find_overlaps};
use octants_runtime::{Race, RaceAccess, RaceKind, Touch};

use super::race_check::fix_for_overlap;
use super::{Lowering, Session};
use crate::error::CompileError;

impl Lowering {
    /// The kernel has `stream_parallel` groups.
    pub fn has_groups(&self) -> bool {
        group_loops(&self.lowered).next().is_some()
    }
}

impl Session {
    /// Refuses a kernel whose groups touch the same memory, and warns of one whose groups may. With the `aliases` of a
    /// call, reports only conflicts caused by them: the others were found when the kernel was lowered.
    pub fn check_groups(&self, world: &dyn World, lowered: &Lowered, aliases: &[Alias]) -> Result<(), CompileError> {
        let body = &lowered.kernel.body;
        let group_of = |v| match &body.inst(v).op {
            Op::For(l) => l.parallel.as_ref()?.group,
            Op::Loop(inner) => section_of(body, *inner),
            _ => None,
        };
        let mut groups: Vec<LoopGroup> = task_statements(body).into_iter().filter_map(group_of).collect();
        groups.dedup();
        if !groups.iter().any(|a| groups.iter().any(|b| a != b && a.region == b.region)) {
            return Ok(());
        }
        let mut kernel = lowered.kernel.clone();
        run_pipeline(
            PIPELINE,
            &mut kernel,
            &mut PassOptions { merges_aliased_buffers: true, ..PassOptions::default() },
        );
        let (mut errors, mut races) = (Vec::new(), Vec::new());
        for found in find_overlaps(&kernel, &lowered.overlap_allowed, aliases) {
            if found.alias.is_some() == aliases.is_empty() {
                continue;
            }
            let name_of = |b: octants_ir::BufferId| &kernel.buffers[b.index()].name;
            let name = match found.alias {
                None => format!("`{}`", name_of(found.buffer)),
                Some(other) => {
                    format!("`{}` and `{}` (the same memory in this call)", name_of(found.buffer), name_of(other))
                }
            };
            if found.certain && self.config().checks_races() {
                races.push((overlap_race(&found, name_of(found.buffer), lowered), found.first, found.second));
                continue;
            }
            let may = if found.certain { "" } else { "may " };
            let (with, block) =
                if found.of_sections { ("qd.graph.parallel", "section") } else { ("qd.stream_parallel", "block") };
            let what = if found.both_write {
                format!("two {with}() {block}s {may}write the same elements of {name}")
            } else {
                let (touch, read) = if found.certain { ("writes", "reads") } else { ("may write", "reads") };
                format!("one {with}() {block} {touch} elements of {name} that another {read}")
            };
            let earlier = lowered.sources.location(found.first);
            let diagnostic = Diagnostic::new(Code::Syntax, found.second, format!("{what} (the other is at {earlier})"))
                .with_hint(fix_for_overlap(with, block));
            if found.certain {
                errors.push(*diagnostic);
            } else {
                world.warn(Diagnostic { code: Code::Value, ..*diagnostic });
            }
        }
        self.refuse_overlaps(lowered, races)?;
        if errors.is_empty() { Ok(()) } else { Err(CompileError::User(errors, lowered.sources.clone())) }
    }
}

/// Groups that certainly touch the same elements, as a race.
fn overlap_race(found: &Overlap, buffer: &str, lowered: &Lowered) -> Race {
    let (with, block) =
        if found.of_sections { ("qd.graph.parallel", "section") } else { ("qd.stream_parallel", "block") };
    let touch = |writes: bool| if writes { Touch::Write } else { Touch::Read };
    let side = |span: Span, touch: Touch, n: &str| RaceAccess {
        touch,
        at: lowered.sources.users_location(span),
        by: format!("{n} {block}"),
        launched_at: None,
    };
    Race {
        kind: RaceKind::Sections,
        buffer: buffer.to_owned(),
        index: None,
        first: side(found.first, touch(found.first_writes), "one"),
        second: side(found.second, touch(found.both_write || !found.first_writes), "another"),
        fix: fix_for_overlap(with, block),
    }
}

/// The loops of `stream_parallel` groups: group and place.
pub(super) fn group_loops(lowered: &Lowered) -> impl Iterator<Item = (u32, Span)> {
    let body = &lowered.kernel.body;
    body.block(body.root).iter().filter_map(|&v| {
        let inst = body.inst(v);
        match &inst.op {
            Op::For(l) => match l.parallel.as_ref()?.group? {
                LoopGroup { region: None, number } => Some((number, inst.span)),
                LoopGroup { region: Some(_), .. } => None,
            },
            _ => None,
        }
    })
}
