//! [`Facts`]: the options and properties of a program that are fixed before code generation. All modules of the
//! program share them.

use std::collections::HashMap;

use octants_artifact::{ScalarKind, Site, SiteKind, SitePart};
use octants_diag::Span;
use octants_ir::{
    ArgLayout, Body, Inst, Layout, MemorySpace, Op, Program, Scalar, Schedule, Scheduled, TaskId, TextPart, Type,
};

use octants_ir::CodegenOptions;

use crate::memory_layout::MemoryLayout;

/// Facts about a program.
pub struct Facts<'p> {
    /// The program.
    pub program: &'p Program,
    /// How it runs.
    pub schedule: &'p Schedule,
    /// The options of code generation.
    pub options: &'p CodegenOptions,
    /// The order of argument slots.
    pub args: ArgLayout,
    /// Byte offset of each frame slot.
    pub frame_offsets: Vec<u64>,
    /// Bytes of the frame.
    pub frame_bytes: u64,
    /// Minimum size of each root, from the fields in it.
    pub root_bytes: Vec<u64>,
    /// Bytes of each root of shared memory.
    pub shared_bytes: Vec<u64>,
    /// Bytes of each root of private memory.
    pub private_bytes: Vec<u64>,
    /// Whether each task is in guarded iterations.
    pub guarded: Vec<bool>,
    /// Places that print or assert.
    pub sites: Vec<Site>,
    /// The number of each site, by its message and the user's expression.
    numbers: HashMap<(SiteKind, Vec<SitePart>, Span), u32>,
    /// The site number of each loop, by the user's loop, if loops have sites.
    loops: HashMap<Span, u32>,
}

impl<'p> Facts<'p> {
    /// Computes the facts of a program. `location` gives `path:line` of a span.
    pub fn of(
        Scheduled { program, schedule }: &'p Scheduled,
        options: &'p CodegenOptions,
        location: &dyn Fn(Span) -> String,
    ) -> Facts<'p> {
        let mut frame_bytes = 0u64;
        let frame_offsets = program
            .frame
            .iter()
            .map(|ty| {
                let at = frame_bytes;
                frame_bytes += MemoryLayout::of(ty).size.next_multiple_of(8);
                at
            })
            .collect();
        let guarded = program.graph.guarded_tasks();
        let mut facts = Facts {
            program,
            schedule,
            options,
            args: ArgLayout::new(program.roots, &program.buffers, &program.params),
            frame_offsets,
            frame_bytes,
            guarded: (0..program.tasks.len()).map(|t| guarded.contains(&TaskId(t as u32))).collect(),
            root_bytes: root_bytes(program, MemorySpace::Global),
            shared_bytes: root_bytes(program, MemorySpace::Shared),
            private_bytes: root_bytes(program, MemorySpace::Private),
            sites: Vec::new(),
            numbers: HashMap::new(),
            loops: HashMap::new(),
        };
        facts.number_sites(location);
        facts
    }

    /// Gives each loop a place in the table, with the message of an error: for machines that leave loops too early.
    pub fn number_loops(&mut self, message: &str, location: &dyn Fn(Span) -> String) {
        let parts = vec![SitePart::Text(message.to_owned())];
        let mut known: HashMap<String, u32> = HashMap::new();
        let (program, schedule) = (self.program, self.schedule);
        let variants = schedule.tasks.iter().flat_map(|t| &t.variants).map(|v| &v.body);
        for body in variants.chain(program.functions.iter().map(|f| &f.body)) {
            body.visit(body.root, &mut |_, inst| {
                if !matches!(inst.op, Op::For(_) | Op::Loop(_)) {
                    return;
                }
                let location = location(inst.span);
                let number = *known.entry(location).or_insert_with_key(|location| {
                    let (kind, parts) = (SiteKind::LeftEarly, parts.clone());
                    self.sites.push(Site { kind, parts, location: location.clone() });
                    self.sites.len() as u32 - 1
                });
                self.loops.insert(inst.span, number);
            });
        }
    }

    /// The number of a loop's place in the table, if loops have any.
    pub fn loop_site(&self, inst: &Inst) -> Option<u32> {
        self.loops.get(&inst.span).copied()
    }

    /// The number of an instruction's place in the table.
    pub fn site(&self, body: &Body, inst: &Inst) -> u32 {
        let number = site_of(body, inst).and_then(|(kind, parts)| self.numbers.get(&(kind, parts, inst.span)));
        *number.expect("compiler bug: a site without a number")
    }

    fn number_sites(&mut self, location: &dyn Fn(Span) -> String) {
        let program = self.program;
        let mut known: HashMap<Site, u32> = HashMap::new();
        let variants = self.schedule.tasks.iter().flat_map(|t| &t.variants).map(|v| &v.body);
        for body in variants.chain(program.functions.iter().map(|f| &f.body)) {
            body.visit(body.root, &mut |_, inst| {
                let Some((kind, parts)) = site_of(body, inst) else { return };
                let site = Site { kind, parts: parts.clone(), location: location(inst.span) };
                let number = *known.entry(site).or_insert_with_key(|site| {
                    self.sites.push(site.clone());
                    self.sites.len() as u32 - 1
                });
                self.numbers.insert((kind, parts, inst.span), number);
            });
        }
    }
}

/// The message that an instruction sends to the host, if any.
fn site_of(body: &Body, inst: &Inst) -> Option<(SiteKind, Vec<SitePart>)> {
    match &inst.op {
        Op::Print(parts) if parts.first() == Some(&TextPart::Once) => Some((SiteKind::Report, text(body, parts))),
        Op::Print(parts) => Some((SiteKind::Print, text(body, parts))),
        Op::Assert(_, parts) if parts.first() == Some(&TextPart::Race) => Some((SiteKind::Race, text(body, parts))),
        Op::Assert(_, parts) => Some((SiteKind::Assert, text(body, parts))),
        _ => None,
    }
}

fn text(body: &Body, parts: &[TextPart]) -> Vec<SitePart> {
    let mut text = Vec::new();
    for part in parts {
        match part {
            TextPart::Text(t) => text.push(SitePart::Text(t.clone())),
            TextPart::Once | TextPart::Race => {}
            TextPart::Value(v, format) => describe(body.ty(*v), format.as_deref(), &mut text),
            TextPart::Choice(_, texts) => text.push(SitePart::Choice(texts.clone())),
        }
    }
    text
}

/// The pieces of text that a value of a type becomes; a struct names its members.
fn describe(ty: &Type, format: Option<&str>, text: &mut Vec<SitePart>) {
    match ty {
        Type::Struct(s) => {
            for (i, (name, member)) in s.members.iter().enumerate() {
                text.push(SitePart::Text(format!("{}{name}: ", if i == 0 { "{" } else { ", " })));
                describe(member, format, text);
            }
            text.push(SitePart::Text(String::from("}")));
        }
        _ => {
            let kind = kind_of(ty.scalar().expect("compiler bug: printing a value without a printable type"));
            text.push(SitePart::Value { kind, shape: ty.shape(), format: format.map(str::to_owned) });
        }
    }
}

/// Bytes of each root of a space, as far as buffers reach.
fn root_bytes(program: &Program, space: MemorySpace) -> Vec<u64> {
    let mut bytes = vec![0; if space == MemorySpace::Global { program.roots as usize } else { 0 }];
    for b in program.buffers.iter().filter(|b| b.space == space) {
        let Layout::Dense { components, shape, .. } = &b.layout else { continue };
        if shape.contains(&0) {
            continue;
        }
        for (c, s) in components.iter().zip(b.elem.leaves()) {
            if bytes.len() <= c.root as usize {
                bytes.resize(c.root as usize + 1, 0);
            }
            let root = &mut bytes[c.root as usize];
            *root = c.place.end(u64::from(s.bytes())).max(*root);
        }
    }
    bytes
}

/// The artifact's name of a scalar.
pub fn kind_of(s: Scalar) -> ScalarKind {
    match s {
        Scalar::U1 => ScalarKind::U1,
        Scalar::I8 => ScalarKind::I8,
        Scalar::I16 => ScalarKind::I16,
        Scalar::I32 => ScalarKind::I32,
        Scalar::I64 => ScalarKind::I64,
        Scalar::U8 => ScalarKind::U8,
        Scalar::U16 => ScalarKind::U16,
        Scalar::U32 => ScalarKind::U32,
        Scalar::U64 => ScalarKind::U64,
        Scalar::F16 => ScalarKind::F16,
        Scalar::F32 => ScalarKind::F32,
        Scalar::F64 => ScalarKind::F64,
    }
}
