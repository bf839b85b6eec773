//! The IR as text: `Display` of [`Kernel`], [`Program`] and [`Body`], and [`print_inst`] for messages.
//!
//! The text contains everything but the spans; the alternate form (`{:#}`) contains these too, as ` at
//! file:start..end`. A value's number is its [`ValueId`]. The number is omitted if it can be inferred: the instruction
//! has no result that another one uses, and its number follows the previous one in the text. The same holds for
//! blocks; the root is number 0. `renumber` creates a body whose text needs the fewest numbers. Unreachable
//! instructions and blocks in an arena have no text.

use std::collections::HashSet;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use octants_diag::Span;

use crate::body::{Body, Inst};
use crate::kernel::{AccessSet, Buffer, Function, Kernel, Layout, MemorySpace, Param, Program, Task, TaskKind};
use crate::matrix_product::FragmentElement;
use crate::op::*;
use crate::types::{StructType, Type};

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut p = Printer { spans: f.alternate(), ..Printer::default() };
        p.collect_structs(&self.ret);
        p.collect_header(&self.params, &self.buffers, &self.functions);
        p.collect_body(&self.body);
        p.open(&format!("kernel {} -> {}", name(&self.name), p.ty(&self.ret)));
        p.header(self.roots, &self.params, &self.buffers, &self.functions);
        for (buffer, shadow_buffer) in &self.shadow_buffers {
            p.line(&format!("shadow {buffer} {shadow_buffer}"));
        }
        p.open("body");
        p.body(&self.body);
        p.close();
        p.close();
        f.write_str(&p.out)
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut p = Printer { spans: f.alternate(), ..Printer::default() };
        p.collect_structs(&self.ret);
        p.collect_header(&self.params, &self.buffers, &self.functions);
        self.frame.iter().for_each(|t| p.collect_structs(t));
        self.tasks.iter().for_each(|t| p.collect_body(&t.body));
        p.open(&format!("program {} -> {}", name(&self.name), p.ty(&self.ret)));
        p.header(self.roots, &self.params, &self.buffers, &self.functions);
        for (i, ty) in self.frame.iter().enumerate() {
            let ty = p.ty(ty);
            p.line(&format!("{}: {ty}", FrameSlot(i as u32)));
        }
        for task in &self.tasks {
            p.task(task);
        }
        p.graph(&self.graph, &self.tasks);
        p.close();
        f.write_str(&p.out)
    }
}

impl fmt::Display for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut p = Printer { spans: f.alternate(), ..Printer::default() };
        p.collect_body(self);
        p.structs_text();
        p.body(self);
        f.write_str(&p.out)
    }
}

/// One instruction of a body on one line, nested blocks left out: for messages about it.
pub fn print_inst(body: &Body, v: ValueId) -> String {
    let mut p = Printer { brief: true, ..Printer::default() };
    p.collect_body(body);
    p.named = [v].into();
    if v.index() < body.insts.len() {
        p.inst(body, v);
    } else {
        return format!("{v} (no such instruction)");
    }
    p.out.trim().to_string()
}

#[derive(Default)]
pub(crate) struct Printer {
    out: String,
    pub(crate) depth: usize,
    spans: bool,
    brief: bool,
    structs: Vec<(Arc<StructType>, String)>,
    next_value: u32,
    next_block: u32,
    named: HashSet<ValueId>,
}

impl Printer {
    pub(crate) fn line(&mut self, text: &str) {
        let _ = writeln!(self.out, "{:width$}{text}", "", width = self.depth * 2);
    }

    pub(crate) fn open(&mut self, text: &str) {
        self.line(&format!("{text} {{"));
        self.depth += 1;
    }

    pub(crate) fn close(&mut self) {
        self.depth -= 1;
        self.line("}");
    }

    fn collect_header(&mut self, params: &[Param], buffers: &[Buffer], functions: &[Function]) {
        params.iter().for_each(|x| self.collect_structs(&x.ty));
        buffers.iter().for_each(|x| self.collect_structs(&x.elem));
        for f in functions {
            f.params.iter().for_each(|t| self.collect_structs(t));
            self.collect_structs(&f.ret);
            self.collect_body(&f.body);
        }
    }

    fn collect_body(&mut self, body: &Body) {
        body.locals.iter().for_each(|l| self.collect_structs(&l.ty));
        body.insts.iter().for_each(|i| self.collect_structs(&i.ty));
    }

    /// Gives each struct type a label, members' types first.
    fn collect_structs(&mut self, ty: &Type) {
        match ty {
            Type::Ref(t) => self.collect_structs(t),
            Type::Struct(s) => {
                if self.structs.iter().any(|(t, _)| t == s) {
                    return;
                }
                s.members.iter().for_each(|(_, t)| self.collect_structs(t));
                let stem = if is_plain(&s.name) { s.name.as_str() } else { "struct" };
                let taken = |label: &str, all: &[(Arc<StructType>, String)]| all.iter().any(|(_, l)| l == label);
                let mut label = stem.to_string();
                let mut k = 0;
                while taken(&label, &self.structs) {
                    k += 1;
                    label = format!("{stem}.{k}");
                }
                self.structs.push((s.clone(), label));
            }
            _ => {}
        }
    }

    fn structs_text(&mut self) {
        for (s, label) in self.structs.clone() {
            let members: Vec<String> = s.members.iter().map(|(n, t)| format!("{}: {}", name(n), self.ty(t))).collect();
            let own = if label == s.name { String::new() } else { format!(" {}", quoted(&s.name)) };
            self.line(&format!("struct !{label}{own} {{ {} }}", members.join(", ")));
        }
    }

    fn ty(&self, ty: &Type) -> String {
        match ty {
            Type::Struct(s) => match self.structs.iter().find(|(t, _)| t == s) {
                Some((_, label)) => format!("!{label}"),
                None => format!("!{}", s.name),
            },
            Type::Ref(t) => format!("ref {}", self.ty(t)),
            other => other.to_string(),
        }
    }

    fn header(&mut self, roots: u32, params: &[Param], buffers: &[Buffer], functions: &[Function]) {
        self.structs_text();
        if roots != 0 {
            self.line(&format!("roots {roots}"));
        }
        for p in params {
            let text = format!("param {}: {}", name(&p.name), self.ty(&p.ty));
            self.line(&text);
        }
        for (i, b) in buffers.iter().enumerate() {
            let space = if b.space == MemorySpace::Global { String::new() } else { format!(" {}", b.space.name()) };
            let id = BufferId(i as u32);
            let short = if b.short_offsets { " short" } else { "" };
            let notes = if b.is_metadata { " metadata" } else { "" };
            let head = format!("{id} {}: {}[{}]{space}{short}{notes}", name(&b.name), self.ty(&b.elem), b.ndim);
            match &b.layout {
                Layout::Contiguous => self.line(&format!("buffer {head} contiguous")),
                Layout::Strided => self.line(&format!("buffer {head} strided")),
                Layout::Flat(of) => self.line(&format!("buffer {head} flat {of}")),
                Layout::Dense { shape, offset, components } => {
                    self.open(&format!("buffer {head} dense shape {} offset {}", list(shape), list(offset)));
                    for c in components {
                        let axes: Vec<String> = c
                            .place
                            .axes
                            .iter()
                            .map(|axis| list(axis.iter().map(|d| format!("{} * {}", d.extent, d.stride))))
                            .collect();
                        self.line(&format!("component root {} base {} axes {}", c.root, c.place.base, list(&axes)));
                    }
                    self.close();
                }
            }
        }
        for (i, func) in functions.iter().enumerate() {
            let params: Vec<String> = func.params.iter().map(|t| self.ty(t)).collect();
            let head = format!("{} {}({})", FuncId(i as u32), name(&func.name), params.join(", "));
            self.open(&format!("func {head} -> {}", self.ty(&func.ret)));
            self.body(&func.body);
            self.close();
        }
    }

    fn task(&mut self, task: &Task) {
        let mut head = format!("task {}", name(&task.name));
        match &task.kind {
            TaskKind::Serial => head.push_str(" serial"),
            TaskKind::Parallel(config) => {
                let _ = write!(head, " parallel{}", config_text(config));
            }
            TaskKind::Grid(config) => {
                let _ = write!(head, " grid{}", config_text(config));
            }
        }
        head.push_str(&access_text(&task.access));
        self.open(&head);
        self.body(&task.body);
        self.close();
    }

    fn body(&mut self, body: &Body) {
        self.next_value = 0;
        self.next_block = 1;
        self.named.clear();
        body.visit(body.root, &mut |_, inst| {
            inst.op.for_each_operand(|v| {
                self.named.insert(v);
            });
        });
        for (i, l) in body.locals.iter().enumerate() {
            let text = format!("local {} {}: {}", LocalId(i as u32), name(&l.name), self.ty(&l.ty));
            self.line(&text);
        }
        if body.root != BlockId(0) {
            self.line(&format!("root {}", body.root));
            self.next_block = body.root.0 + 1;
        }
        for &v in body.block(body.root) {
            self.inst(body, v);
        }
    }

    fn inst(&mut self, body: &Body, v: ValueId) {
        let inst = body.inst(v);
        let mut text = String::new();
        if inst.ty != Type::Unit {
            let _ = write!(text, "{v}: {} = ", self.ty(&inst.ty));
        } else if v.0 != self.next_value || self.named.contains(&v) {
            let _ = write!(text, "{v} = ");
        }
        self.next_value = v.0 + 1;
        text.push_str(&op_text(&inst.op));
        if self.spans && inst.span != Span::default() {
            let _ = write!(text, " at {}:{}..{}", inst.span.file, inst.span.start, inst.span.end);
        }
        let blocks = inst.op.blocks();
        if self.brief && !blocks.is_empty() {
            return self.line(&format!("{text} {{ .. }}"));
        }
        let Some((&first, rest)) = blocks.split_first() else { return self.line(&text) };
        text.push_str(&self.block_label(first));
        self.open(&text);
        self.block(body, first);
        for (i, &b) in rest.iter().enumerate() {
            let word = match &inst.op {
                Op::For(l) => group_text(&l.groups[i]),
                _ if b.0 == self.next_block && body.block(b).is_empty() => {
                    self.next_block += 1;
                    continue;
                }
                _ => "else".to_string(),
            };
            let label = self.block_label(b);
            self.depth -= 1;
            self.open(&format!("}} {word}{label}"));
            self.block(body, b);
        }
        self.close();
    }

    fn block_label(&mut self, b: BlockId) -> String {
        let label = if b.0 == self.next_block { String::new() } else { format!(" {b}") };
        self.next_block = b.0 + 1;
        label
    }

    fn block(&mut self, body: &Body, b: BlockId) {
        for &v in body.block(b) {
            self.inst(body, v);
        }
    }
}

fn group_text(group: &IterationGroup) -> String {
    let placement = match group.placement {
        GroupPlacement::Consecutive => String::new(),
        GroupPlacement::Aligned => " aligned".to_string(),
        GroupPlacement::Tiled(columns) => format!(" tiled {columns}"),
    };
    format!("group {}{placement}", group.factor)
}

fn op_text(op: &Op) -> String {
    let word = op.word();
    match op {
        Op::Random | Op::Clock | Op::Loop(_) | Op::Break | Op::Continue | Op::Return(None) => word.to_string(),
        Op::Const(Const::Int(c)) => format!("{word} {c}"),
        Op::Const(Const::Float(c)) => format!("{word} {c:?}"),
        Op::Param(i) => format!("{word} {i}"),
        Op::Unary(_, a)
        | Op::Cast(a)
        | Op::Bitcast(a)
        | Op::Splat(a)
        | Op::Freeze(a)
        | Op::VectorLoad(a)
        | Op::Prefetch(a)
        | Op::BlockCount(a)
        | Op::Transpose(a)
        | Op::AddressBits(a)
        | Op::Load(a)
        | Op::VolatileLoad(a)
        | Op::If(a, ..)
        | Op::Return(Some(a)) => format!("{word} {a}"),
        Op::Binary(_, a, b)
        | Op::MatMul(a, b)
        | Op::RandomAt(a, b)
        | Op::Store(a, b)
        | Op::VectorStore(a, b)
        | Op::CopyAsync(a, b) => {
            format!("{word} {a}, {b}")
        }
        Op::Select(a, b, c) | Op::AtomicCas(a, b, c) => format!("{word} {a}, {b}, {c}"),
        Op::MakeTensor(vs) | Op::MakeStruct(vs) => format!("{word}({})", commas(vs)),
        Op::Extract(a, i) | Op::MemberAddr(a, i) | Op::LoopIndex(a, i) => format!("{word} {a}, {i}"),
        Op::ExtractDyn(a, vs) | Op::ElementAddr(a, vs) => format!("{word} {a}[{}]", commas(vs)),
        Op::Grid(g) => format!("{word} {}", g.name()),
        Op::AwaitCopies => word.to_string(),
        Op::LoadMatrices(a, transposed) => format!("{word} {a}{}", if *transposed { " transposed" } else { "" }),
        Op::FragmentIndex(FragmentElement { kind, role, component, axis }) => {
            format!("{word} {} {} {component} {}", kind.name(), role.name(), axis.name())
        }
        Op::Barrier(s) | Op::Fence(s) => format!("{word} {}", s.name()),
        Op::Subgroup(op, vs) => format!("{word} {}({})", op.name(), commas(vs)),
        Op::Fold(op, a) => format!("{word} {} {a}", op.name()),
        Op::Shape(b, axis) => format!("{word} {b}, {axis}"),
        Op::LocalAddr(l) => format!("{word} {l}"),
        Op::BufferAddr(b, vs) => format!("{word} {b}[{}]", commas(vs)),
        Op::FrameAddr(s) => format!("{word} {s}"),
        Op::Atomic(op, a, v) => format!("{word} {} {a}, {v}", op.name()),
        Op::Balance { number, weight, end, heaviest_first } => {
            let order = if *heaviest_first { " heaviest_first" } else { "" };
            format!("{word} {number}, {weight}, {end}{order}")
        }
        Op::Reduce(slot, v) => format!("{word} {slot}, {v}"),
        Op::For(l) => for_text(word, l),
        Op::Call(func, vs) => format!("{word} {func}({})", commas(vs)),
        Op::Checkpoint(label, v) => format!("{word} {label} {v}"),
        Op::Section(group) => format!("{word} {}", group_number(*group)),
        Op::Print(parts) => format!("{word}({})", parts_text(parts)),
        Op::Assert(c, parts) => format!("{word} {c}, ({})", parts_text(parts)),
    }
}

fn for_text(word: &str, l: &ForLoop) -> String {
    let dims: Vec<String> = l.dims.iter().map(|d| format!("{}..{}", d.begin, d.end)).collect();
    let mut text = format!("{word} [{}]", dims.join(", "));
    if let Some(config) = &l.parallel {
        let _ = write!(text, " parallel{}", config_text(config));
    }
    if !l.reductions.is_empty() {
        let plain = |r: &Reduction| if r.plain { " plain" } else { "" };
        let all: Vec<String> =
            l.reductions.iter().map(|r| format!("{} {}{}", r.op.name(), r.target, plain(r))).collect();
        let _ = write!(text, " reductions({})", all.join(", "));
    }
    text + &hints_text(&l.hints)
}

fn hints_text(hints: &LoopHints) -> String {
    let mut items = Vec::new();
    if let Some(Unroll { factor, remainder_factor }) = hints.unroll {
        let remainder = remainder_factor.map_or(String::new(), |n| format!(" remainder {n}"));
        items.push(format!("unroll {factor}{remainder}"));
    }
    items.extend(hints.code_size.name().map(str::to_string));
    items.extend(hints.independent.then(|| "independent".to_string()));
    items.extend(hints.no_vectors.then(|| "no_vectors".to_string()));
    items.extend(hints.masked.then(|| "masked".to_string()));
    items.extend(hints.converged.then(|| "converged".to_string()));
    if items.is_empty() { String::new() } else { format!(" hints({})", items.join(", ")) }
}

fn parts_text(parts: &[TextPart]) -> String {
    let all: Vec<String> = parts
        .iter()
        .map(|p| match p {
            TextPart::Text(t) => quoted(t),
            TextPart::Once => String::from("once"),
            TextPart::Race => String::from("race"),
            TextPart::Value(v, None) => v.to_string(),
            TextPart::Value(v, Some(spec)) => format!("{v}:{}", quoted(spec)),
            TextPart::Choice(v, texts) => {
                let texts: Vec<String> = texts.iter().map(|t| quoted(t)).collect();
                format!("{v} of ({})", texts.join(", "))
            }
        })
        .collect();
    all.join(", ")
}

fn config_text(c: &LoopConfig) -> String {
    let mut items = Vec::new();
    if c.serialize {
        items.push("serialize".to_string());
    }
    items.extend(c.block_dim.map(|n| format!("block_dim {n}")));
    items.extend(c.num_threads.map(|n| format!("num_threads {n}")));
    items.extend(c.name.as_ref().map(|n| format!("name {}", name(n))));
    items.extend(c.group.map(|g| format!("group {}", group_number(g))));
    if items.is_empty() { String::new() } else { format!("({})", items.join(", ")) }
}

fn group_number(group: LoopGroup) -> String {
    match group.region {
        None => group.number.to_string(),
        Some(region) => format!("{} of {region}", group.number),
    }
}

fn access_text(a: &AccessSet) -> String {
    let mut text = String::new();
    let mut add = |word: &str, all: Vec<String>| {
        if !all.is_empty() {
            let _ = write!(text, " {word} [{}]", all.join(", "));
        }
    };
    let both = |b: Vec<String>, f: Vec<String>| b.into_iter().chain(f).collect();
    add(
        "reads",
        both(a.reads.iter().map(|x| x.to_string()).collect(), a.frame_reads.iter().map(|x| x.to_string()).collect()),
    );
    add(
        "writes",
        both(a.writes.iter().map(|x| x.to_string()).collect(), a.frame_writes.iter().map(|x| x.to_string()).collect()),
    );
    text
}

fn commas(vs: &[ValueId]) -> String {
    let all: Vec<String> = vs.iter().map(|v| v.to_string()).collect();
    all.join(", ")
}

fn list<T: fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    let all: Vec<String> = items.into_iter().map(|x| x.to_string()).collect();
    format!("[{}]", all.join(", "))
}

/// A name that the reader takes without quotes.
fn is_plain(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

pub(crate) fn name(text: &str) -> String {
    if is_plain(text) { text.to_string() } else { quoted(text) }
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// An instruction without its nested blocks, for messages of the verifier about an invalid body.
impl fmt::Display for Inst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} : {}", op_text(&self.op), self.ty)
    }
}
