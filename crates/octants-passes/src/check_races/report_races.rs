//! The last task of an instrumented launch: asserts that no race was recorded.

use std::collections::BTreeMap;

use octants_diag::Sources;
use octants_ir::insert_code::push_if;
use octants_ir::{
    BinaryOp, Body, BufferId, Builder, ForLoop, Kernel, Layout, LoopConfig, LoopGroup, Op, Range, Scalar, TextPart,
    Type, UnaryOp, ValueId,
};

use super::BetweenGroups;
use super::site::{Access, BufferShape, Memory};
use super::watch_functions::{FIRST_SITE_SHIFT, NOTED_SITE_MASK, SCALAR_MASK, SECOND_SITE_SHIFT, push_extent};
use super::watched_accesses::{Line, Watched};

/// Adds the task; in a kernel of `stream_parallel` groups one to each group.
pub fn report_races(
    kernel: &mut Kernel,
    watched: &Watched,
    notes: BufferId,
    groups: &BTreeMap<ValueId, u64>,
    between: &BetweenGroups,
    sources: Option<&Sources>,
) {
    let names = kernel.buffers.iter().map(|b| b.name.clone()).collect();
    let report = Report { watched, notes, names, between, sources };
    let body = &mut kernel.body;
    // The last loop of each group, with the group.
    let mut last: BTreeMap<u64, Option<LoopGroup>> = BTreeMap::new();
    for v in &watched.loops {
        let group = match &body.inst(*v).op {
            Op::For(l) => l.parallel.as_ref().and_then(|c| c.group).filter(|g| g.region.is_none()),
            _ => None,
        };
        last.insert(groups[v], group);
    }
    if !between.watched.buffers.is_empty() {
        // Code after a `stream_parallel` block belongs to it, unless it is in another region.
        let after = LoopGroup { region: Some(u32::MAX), number: u32::MAX };
        last.insert(between.pair, (!between.watched.of_sections).then_some(after));
    }
    for (pair, group) in last {
        let mut b = Builder::new();
        b.body = std::mem::take(body);
        let apart = b.body.add_block();
        b.set_cursor(apart);
        match group {
            None => report.push(&mut b, pair),
            Some(group) => {
                let inner = b.body.add_block();
                let [begin, end] = [0, 1].map(|n| b.int(n, Scalar::I32));
                let config = LoopConfig { serialize: true, group: Some(group), ..LoopConfig::default() };
                let once = ForLoop::parallel(vec![Range { begin, end }], inner, config);
                b.push(Op::For(Box::new(once)), Type::Unit);
                b.set_cursor(inner);
                report.push(&mut b, pair);
            }
        }
        *body = b.body;
        let code = std::mem::take(&mut body.blocks[apart.index()]);
        let root = body.root.index();
        let at = match group {
            None => end_of_root(body),
            Some(group) => after_group(body, group).unwrap_or_else(|| end_of_root(body)),
        };
        body.blocks[root].splice(at..at, code);
    }
}

/// Before the return of the kernel.
fn end_of_root(body: &Body) -> usize {
    let root = body.block(body.root);
    match root.last() {
        Some(v) if body.inst(*v).op.is_terminator() => root.len() - 1,
        _ => root.len(),
    }
}

/// After the last loop of a group at the root.
fn after_group(body: &Body, group: LoopGroup) -> Option<usize> {
    let is_of_group = |v: &ValueId| match &body.inst(*v).op {
        Op::For(l) => l.parallel.as_ref().and_then(|c| c.group) == Some(group),
        _ => false,
    };
    body.block(body.root).iter().rposition(is_of_group).map(|at| at + 1)
}

struct Report<'a> {
    watched: &'a Watched,
    notes: BufferId,
    /// The names of the kernel's buffers.
    names: Vec<String>,
    between: &'a BetweenGroups,
    sources: Option<&'a Sources>,
}

impl Report<'_> {
    /// Begins the epochs of the next launch, and asserts that the notes have no race.
    fn push(&self, b: &mut Builder, pair: u64) {
        let note = super::push_count(b, self.notes, pair, self.between.epochs);
        let noted = b.load(note);
        let zero = b.int(0, Scalar::U64);
        b.store(note, zero);
        let is_race = b.binary(BinaryOp::Ne, noted, zero);
        push_if(b, is_race, |b| {
            let key = b.unary(UnaryOp::BitNot, noted);
            let mut field = |shift: u32, mask: u64| {
                let (shift, mask) = (b.int(i64::from(shift), Scalar::U64), b.int(mask as i64, Scalar::U64));
                let field = b.binary(BinaryOp::UShr, key, shift);
                b.binary(BinaryOp::And, field, mask)
            };
            let first = field(FIRST_SITE_SHIFT, NOTED_SITE_MASK);
            let second = field(SECOND_SITE_SHIFT, NOTED_SITE_MASK);
            let scalar = field(0, SCALAR_MASK);
            let [first, second] = [first, second].map(|v| b.cast(v, Scalar::I32));
            let scalar = b.cast(scalar, Scalar::I64);
            let buffers = self.watched.buffers.iter().map(|b| Memory::Buffer(*b));
            let of_groups = self.between.watched.buffers.iter().map(|b| Memory::OfGroups(*b));
            let locals = self.watched.shapes.locals.keys().map(|l| Memory::Local(*l));
            for memory in buffers.chain(of_groups).chain(locals) {
                self.push_of_memory(b, memory, [first, second], scalar);
            }
        });
    }

    /// Fails with the message of a race at a scalar of some memory, if the first site is one of its.
    fn push_of_memory(&self, b: &mut Builder, memory: Memory, [first, second]: [ValueId; 2], scalar: ValueId) {
        let lines: Vec<usize> =
            self.watched.lines.iter().enumerate().filter(|(_, l)| l.memory == memory).map(|(i, _)| i).collect();
        let mut is_here = None;
        // Numbers of one memory are consecutive, unless arrays may alias.
        for run in lines.chunk_by(|a, b| a + 1 == *b) {
            let [low, high] = [run[0] as i64, run[run.len() - 1] as i64].map(|n| b.int(n, Scalar::I32));
            let (above, below) = (b.binary(BinaryOp::Ge, first, low), b.binary(BinaryOp::Le, first, high));
            let inside = b.binary(BinaryOp::And, above, below);
            is_here = Some(is_here.map_or(inside, |found| b.binary(BinaryOp::Or, found, inside)));
        }
        let Some(is_here) = is_here else { return };
        let texts: Vec<String> = self.watched.lines.iter().map(|l| self.text(l)).collect();
        push_if(b, is_here, |b| {
            let name = match memory {
                Memory::Buffer(buffer) | Memory::OfGroups(buffer) => self.names[buffer.index()].clone(),
                Memory::Local(local) => b.body.locals[local.index()].name.clone(),
            };
            let mut text = vec![TextPart::Race];
            text.push(TextPart::Text(if name.is_empty() { "an array".into() } else { name.clone() }));
            let mut indices = Vec::new();
            match memory {
                Memory::Buffer(buffer) => {
                    indices = push_indices(b, buffer, &self.watched.shapes.buffers[buffer.index()], scalar);
                    if self.watched.shared.contains(&buffer) {
                        let fix = "put `qd.simt.block.sync()` between the accesses, or make both atomic";
                        text.push(TextPart::Text(fix.into()));
                    }
                }
                Memory::OfGroups(buffer) => {
                    indices = push_indices(b, buffer, &self.watched.shapes.buffers[buffer.index()], scalar);
                    let (with, group) = match self.between.watched.of_sections {
                        true => ("qd.graph.parallel", "section"),
                        false => ("qd.stream_parallel", "block"),
                    };
                    let fix =
                        format!("put both into one {group}, or write `{with}(allow_overlap=True)` if this is intended");
                    text.extend([fix, group.into()].map(TextPart::Text));
                }
                Memory::Local(_) => text.push(TextPart::Text(fix_for_local(&name))),
            }
            text.extend([first, second].map(|site| TextPart::Choice(site, texts.clone())));
            text.extend(indices.into_iter().map(|index| TextPart::Value(index, None)));
            let never = b.int(0, Scalar::U1);
            b.push(Op::Assert(never, text), Type::Unit);
        });
    }

    fn text(&self, line: &Line) -> String {
        let location = self.sources.map(|s| s.users_location(line.span)).unwrap_or_default();
        let what = match line.access {
            Access::Read => "read",
            Access::Write => "write",
            Access::Update => "update",
        };
        format!("{what} {location}")
    }
}

/// The suggested fix of a race on a local variable.
fn fix_for_local(name: &str) -> String {
    format!(
        "update `{name}` by one atomic operation such as `qd.atomic_max`, make it a variable of the loop's body, or \
         put `qd.loop_config(serialize=True)` above the loop"
    )
}

/// The indices of the element that a scalar is part of.
fn push_indices(b: &mut Builder, buffer: BufferId, shape: &BufferShape, scalar: ValueId) -> Vec<ValueId> {
    let scalars = b.int(shape.scalars as i64, Scalar::I64);
    let mut rest = b.binary(BinaryOp::Div, scalar, scalars);
    let mut indices = Vec::new();
    for axis in (0..shape.axes).rev() {
        let mut index = rest;
        if axis > 0 {
            let extent = push_extent(b, &shape.layout, buffer, axis);
            index = b.binary(BinaryOp::Rem, rest, extent);
            rest = b.binary(BinaryOp::Div, rest, extent);
        }
        if let Layout::Dense { offset, .. } = &shape.layout
            && offset[axis] != 0
        {
            let offset = b.int(offset[axis], Scalar::I64);
            index = b.binary(BinaryOp::Add, index, offset);
        }
        indices.insert(0, index);
    }
    indices
}
