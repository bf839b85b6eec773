//! [`Facts`]: what is asked and known of a program before any of its code is made. All its modules share them.

use std::collections::HashMap;

use octants_artifact::{ScalarKind, Site, SiteKind, SitePart};
use octants_diag::Span;
use octants_ir::{ArgLayout, Body, Layout, Op, Program, Scalar, Schedule, TextPart, Type, ValueId};

use crate::CodegenOptions;
use crate::place::MemoryLayout;

/// The number of each instruction of a body that has a site.
pub(crate) type SiteNumbers = HashMap<ValueId, u32>;

/// Facts about a program.
pub(crate) struct Facts<'p> {
    pub program: &'p Program,
    /// How it runs.
    pub schedule: &'p Schedule,
    /// What is asked of its code.
    pub options: &'p CodegenOptions,
    /// The order of argument slots.
    pub args: ArgLayout,
    /// Byte offset of each frame slot.
    pub frame_offsets: Vec<u64>,
    pub frame_bytes: u64,
    /// Least size of each root, from the fields in it.
    pub root_bytes: Vec<u64>,
    /// Places that print or assert.
    pub sites: Vec<Site>,
    /// The sites of each task's body.
    pub task_sites: Vec<SiteNumbers>,
    /// The sites of each function's body.
    pub function_sites: Vec<SiteNumbers>,
}

impl<'p> Facts<'p> {
    /// Looks at a program. `location` gives `path:line` of a span.
    pub fn of(
        program: &'p Program,
        schedule: &'p Schedule,
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
        let mut facts = Facts {
            program,
            schedule,
            options,
            args: ArgLayout::new(program.roots, &program.buffers, &program.params),
            frame_offsets,
            frame_bytes,
            root_bytes: root_bytes(program),
            sites: Vec::new(),
            task_sites: Vec::new(),
            function_sites: Vec::new(),
        };
        let mut known = HashMap::new();
        let sites = &mut facts.sites;
        let mut number = |body: &Body| number_sites(body, sites, &mut known, location);
        facts.task_sites = program.tasks.iter().map(|t| number(&t.body)).collect();
        facts.function_sites = program.functions.iter().map(|f| number(&f.body)).collect();
        facts
    }
}

/// Numbers the sites of a body. Equal sites have one number.
fn number_sites(
    body: &Body,
    sites: &mut Vec<Site>,
    known: &mut HashMap<Site, u32>,
    location: &dyn Fn(Span) -> String,
) -> SiteNumbers {
    let mut numbers = SiteNumbers::new();
    body.visit(body.root, &mut |v, inst| {
        let (kind, parts) = match &inst.op {
            Op::Print(parts) => (SiteKind::Print, parts),
            Op::Assert(_, parts) => (SiteKind::Assert, parts),
            _ => return,
        };
        let site = Site { kind, parts: text(body, parts), location: location(inst.span) };
        let number = *known.entry(site).or_insert_with_key(|site| {
            sites.push(site.clone());
            sites.len() as u32 - 1
        });
        numbers.insert(v, number);
    });
    numbers
}

fn text(body: &Body, parts: &[TextPart]) -> Vec<SitePart> {
    let mut text = Vec::new();
    for part in parts {
        match part {
            TextPart::Text(t) => text.push(SitePart::Text(t.clone())),
            TextPart::Value(v, format) => describe(body.ty(*v), format.as_deref(), &mut text),
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
            let kind = kind_of(ty.scalar().expect("compiler bug: only values are printed"));
            text.push(SitePart::Value { kind, shape: ty.shape(), format: format.map(str::to_owned) });
        }
    }
}

fn root_bytes(program: &Program) -> Vec<u64> {
    let mut bytes = vec![0; program.roots as usize];
    for b in &program.buffers {
        let Layout::Dense { components, shape, .. } = &b.layout else { continue };
        if shape.contains(&0) {
            continue;
        }
        for (c, s) in components.iter().zip(b.elem.leaves()) {
            let root = &mut bytes[c.root as usize];
            *root = c.end(u64::from(s.bytes())).max(*root);
        }
    }
    bytes
}

/// The artifact's name of a scalar.
pub(crate) fn kind_of(s: Scalar) -> ScalarKind {
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
