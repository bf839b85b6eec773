//! The parser of the IR's text (`print` writes it): `parse` of a [`Kernel`], a [`Program`] or a [`Body`] through
//! [`FromStr`].
//!
//! It accepts any well-formed text; `verify` checks whether the program is valid. Numbers that the text skips are
//! filled with unreachable instructions and empty blocks.

use std::str::FromStr;
use std::sync::Arc;

use octants_diag::Span;
use octants_layout::{Digit, Placement};

use crate::body::{Body, Inst, Local};
use crate::kernel::*;
use crate::lex::Token;
use crate::op::*;
use crate::parse_op::parse_op;
pub use crate::parser::ParseError;
use crate::parser::{Parsed, Parser};
use crate::types::{Scalar, StructType, Type};

impl FromStr for Kernel {
    type Err = ParseError;

    fn from_str(text: &str) -> Parsed<Kernel> {
        let mut p = Parser::new(text)?;
        p.word("kernel")?;
        let mut k = Kernel { name: p.name()?, ..Kernel::default() };
        p.sign("->")?;
        // The result's type may name a struct that is only declared further down.
        let ret = p.skip_type()?;
        p.sign("{")?;
        let header = p.header()?;
        (k.roots, k.params, k.buffers, k.functions) = header;
        while p.eat_word("shadow") {
            let buffer = BufferId(p.id('@')?);
            k.shadow_buffers.insert(buffer, BufferId(p.id('@')?));
        }
        p.word("body")?;
        p.sign("{")?;
        k.body = p.body()?;
        p.sign("}")?;
        p.end()?;
        k.ret = p.type_at(ret)?;
        Ok(k)
    }
}

impl FromStr for Program {
    type Err = ParseError;

    fn from_str(text: &str) -> Parsed<Program> {
        let mut p = Parser::new(text)?;
        p.word("program")?;
        let mut program = Program { name: p.name()?, ..Program::default() };
        p.sign("->")?;
        let ret = p.skip_type()?;
        p.sign("{")?;
        (program.roots, program.params, program.buffers, program.functions) = p.header()?;
        while let Some(slot) = p.numbered("frame") {
            if slot as usize != program.frame.len() {
                return p.fail("frame slots are numbered from 0, in order");
            }
            p.sign(":")?;
            program.frame.push(p.ty()?);
        }
        while p.eat_word("task") {
            program.tasks.push(p.task()?);
        }
        program.graph = p.graph(&program.tasks)?;
        p.sign("}")?;
        p.end()?;
        program.ret = p.type_at(ret)?;
        Ok(program)
    }
}

impl FromStr for Body {
    type Err = ParseError;

    fn from_str(text: &str) -> Parsed<Body> {
        let mut p = Parser::new(text)?;
        p.structs()?;
        p.body_until_end()
    }
}

type Header = (u32, Vec<Param>, Vec<Buffer>, Vec<Function>);

impl Parser {
    fn skip_type(&mut self) -> Parsed<usize> {
        let start = self.at;
        while !matches!(self.peek(), Token::Sign("{") | Token::End) {
            self.at += 1;
        }
        Ok(start)
    }

    fn type_at(&mut self, at: usize) -> Parsed<Type> {
        self.at = at;
        self.ty()
    }

    pub(crate) fn ty(&mut self) -> Parsed<Type> {
        match self.next() {
            Token::Label(label) => match self.structs.get(&label) {
                Some(s) => Ok(Type::Struct(s.clone())),
                None => self.fail(format!("struct `!{label}` is not declared above")),
            },
            Token::Word(w) if w == "unit" => Ok(Type::Unit),
            Token::Word(w) if w == "ref" => Ok(Type::Ref(Box::new(self.ty()?))),
            Token::Word(w) => {
                if let Some(s) = Scalar::from_name(&w) {
                    return Ok(Type::Scalar(s));
                }
                let shape = tensor_shape(&w);
                let Some(shape) = shape else { return self.fail(format!("`{w}` is not a type")) };
                self.sign("<")?;
                let scalar = self.any_word()?;
                let Some(scalar) = Scalar::from_name(&scalar) else {
                    return self.fail(format!("`{scalar}` is not a scalar"));
                };
                self.sign(">")?;
                Ok(Type::tensor(scalar, &shape))
            }
            other => self.fail(format!("expected a type, found {other:?}")),
        }
    }

    fn structs(&mut self) -> Parsed<()> {
        while self.eat_word("struct") {
            let Token::Label(label) = self.next() else { return self.expected("`!` and a label") };
            let name = if matches!(self.peek(), Token::Quoted(_)) { self.quoted()? } else { label.clone() };
            self.sign("{")?;
            let members = self.list("}", |p| {
                let name = p.name()?;
                p.sign(":")?;
                Ok((name, p.ty()?))
            })?;
            self.structs.insert(label, Arc::new(StructType { name, members }));
        }
        Ok(())
    }

    fn header(&mut self) -> Parsed<Header> {
        self.structs()?;
        let roots = if self.eat_word("roots") { self.int()? } else { 0 };
        let mut params = Vec::new();
        while self.eat_word("param") {
            let name = self.name()?;
            self.sign(":")?;
            params.push(Param { name, ty: self.ty()? });
        }
        let mut buffers = Vec::new();
        while self.eat_word("buffer") {
            if self.id('@')? as usize != buffers.len() {
                return self.fail("buffers are numbered from 0, in order");
            }
            buffers.push(self.buffer()?);
        }
        let mut functions = Vec::new();
        while self.eat_word("func") {
            if self.numbered("fn") != Some(functions.len() as u32) {
                return self.fail("functions are numbered from 0, in order");
            }
            let name = self.name()?;
            self.sign("(")?;
            let params = self.list(")", Parser::ty)?;
            self.sign("->")?;
            let ret = self.ty()?;
            self.sign("{")?;
            functions.push(Function { name, params, ret, body: self.body()? });
        }
        Ok((roots, params, buffers, functions))
    }

    fn buffer(&mut self) -> Parsed<Buffer> {
        let name = self.name()?;
        self.sign(":")?;
        let elem = self.ty()?;
        self.sign("[")?;
        let ndim = self.int()?;
        self.sign("]")?;
        let mut word = self.any_word()?;
        let named = MemorySpace::ALL.iter().copied().find(|s| s.name() == word);
        if named.is_some() {
            word = self.any_word()?;
        }
        let short_offsets = word == "short";
        if short_offsets {
            word = self.any_word()?;
        }
        let is_metadata = word == "metadata";
        if is_metadata {
            word = self.any_word()?;
        }
        let layout = match word.as_str() {
            "contiguous" => Layout::Contiguous,
            "strided" => Layout::Strided,
            "flat" => Layout::Flat(BufferId(self.id('@')?)),
            "dense" => {
                self.word("shape")?;
                self.sign("[")?;
                let shape = self.list("]", Parser::int)?;
                self.word("offset")?;
                self.sign("[")?;
                let offset = self.list("]", Parser::int)?;
                self.sign("{")?;
                let mut components = Vec::new();
                while self.eat_word("component") {
                    components.push(self.component()?);
                }
                self.sign("}")?;
                Layout::Dense { shape, offset, components }
            }
            other => return self.fail(format!("`{other}` is not a layout")),
        };
        Ok(Buffer { name, elem, ndim, layout, space: named.unwrap_or_default(), short_offsets, is_metadata })
    }

    fn component(&mut self) -> Parsed<ComponentLayout> {
        self.word("root")?;
        let root = self.int()?;
        self.word("base")?;
        let base = self.int()?;
        self.word("axes")?;
        self.sign("[")?;
        let axes = self.list("]", |p| {
            p.sign("[")?;
            p.list("]", |p| {
                let extent = p.int()?;
                p.sign("*")?;
                Ok(Digit { extent, stride: p.int()? })
            })
        })?;
        Ok(ComponentLayout { root, place: Placement { base, axes } })
    }

    fn task(&mut self) -> Parsed<Task> {
        let name = self.name()?;
        let kind = match self.any_word()?.as_str() {
            "serial" => TaskKind::Serial,
            "parallel" => TaskKind::Parallel(self.config()?),
            "grid" => TaskKind::Grid(self.config()?),
            other => return self.fail(format!("`{other}` is not a kind of task")),
        };
        let mut access = AccessSet::default();
        if self.eat_word("reads") {
            (access.reads, access.frame_reads) = self.places()?;
        }
        if self.eat_word("writes") {
            (access.writes, access.frame_writes) = self.places()?;
        }
        self.sign("{")?;
        Ok(Task { name, kind, access, body: self.body()? })
    }

    fn places(&mut self) -> Parsed<(std::collections::BTreeSet<BufferId>, std::collections::BTreeSet<FrameSlot>)> {
        let mut places = (Default::default(), std::collections::BTreeSet::default());
        self.sign("[")?;
        self.list("]", |p| {
            match p.numbered("frame") {
                Some(slot) => _ = places.1.insert(FrameSlot(slot)),
                None => _ = std::collections::BTreeSet::insert(&mut places.0, BufferId(p.id('@')?)),
            }
            Ok(())
        })?;
        Ok(places)
    }

    /// The items in parentheses after `parallel`, if any.
    pub(crate) fn config(&mut self) -> Parsed<LoopConfig> {
        let mut c = LoopConfig::default();
        if !self.eat("(") {
            return Ok(c);
        }
        self.list(")", |p| {
            match p.any_word()?.as_str() {
                "serialize" => c.serialize = true,
                "block_dim" => c.block_dim = Some(p.int()?),
                "num_threads" => c.num_threads = Some(p.int()?),
                "name" => c.name = Some(p.name()?),
                "group" => c.group = Some(p.loop_group()?),
                other => return p.fail(format!("`{other}` is not a property of a loop")),
            }
            Ok(())
        })?;
        Ok(c)
    }

    /// A group's number, and its region's.
    pub(crate) fn loop_group(&mut self) -> Parsed<LoopGroup> {
        let number = self.int()?;
        let region = if self.eat_word("of") { Some(self.int()?) } else { None };
        Ok(LoopGroup { region, number })
    }

    /// A body up to its closing brace, which is taken too.
    fn body(&mut self) -> Parsed<Body> {
        let mut b = BodyParser::default();
        b.head(self)?;
        while !self.eat("}") {
            b.inst(self, b.body.root)?;
        }
        Ok(b.finish())
    }

    fn body_until_end(&mut self) -> Parsed<Body> {
        let mut b = BodyParser::default();
        b.head(self)?;
        while *self.peek() != Token::End {
            b.inst(self, b.body.root)?;
        }
        Ok(b.finish())
    }
}

/// A body so far, and the numbers that come next.
#[derive(Default)]
pub(crate) struct BodyParser {
    body: Body,
    insts: Vec<Option<Inst>>,
    next_value: u32,
    next_block: u32,
}

impl BodyParser {
    fn head(&mut self, p: &mut Parser) -> Parsed<()> {
        while p.eat_word("local") {
            if p.id('$')? as usize != self.body.locals.len() {
                return p.fail("locals are numbered from 0, in order");
            }
            let name = p.name()?;
            p.sign(":")?;
            self.body.locals.push(Local { name, ty: p.ty()? });
        }
        let root = if p.eat_word("root") { p.id('^')? } else { 0 };
        self.claim_block(BlockId(root));
        self.body.root = BlockId(root);
        Ok(())
    }

    fn claim_block(&mut self, b: BlockId) {
        while self.body.blocks.len() <= b.index() {
            self.body.add_block();
        }
        self.next_block = b.0 + 1;
    }

    fn inst(&mut self, p: &mut Parser, block: BlockId) -> Parsed<()> {
        let mut v = ValueId(self.next_value);
        let mut ty = Type::Unit;
        if matches!(p.peek(), Token::Id('%', _)) {
            v = p.value()?;
            if p.eat(":") {
                ty = p.ty()?;
            }
            p.sign("=")?;
        }
        self.next_value = v.0 + 1;
        while self.insts.len() <= v.index() {
            self.insts.push(None);
        }
        if self.insts[v.index()].is_some() {
            return p.fail(format!("{v} is defined twice"));
        }
        // The place is taken before the blocks inside are read, which number on from here.
        self.insts[v.index()] = Some(Inst { op: Op::Break, ty: ty.clone(), span: Span::default() });
        self.body.blocks[block.index()].push(v);
        let mut op = parse_op(p)?;
        let span = self.span(p)?;
        match &mut op {
            Op::If(_, then, other) => {
                *then = self.block(p)?;
                *other = if p.eat_word("else") { self.block(p)? } else { self.empty_block() };
            }
            Op::For(l) => {
                l.body = self.block(p)?;
                while p.eat_word("group") {
                    let factor = p.int()?;
                    let placement = match () {
                        () if p.eat_word("aligned") => GroupPlacement::Aligned,
                        () if p.eat_word("tiled") => GroupPlacement::Tiled(p.int()?),
                        () => GroupPlacement::Consecutive,
                    };
                    l.groups.push(IterationGroup { factor, body: self.block(p)?, placement });
                }
            }
            Op::Loop(b) => *b = self.block(p)?,
            _ => {}
        }
        self.insts[v.index()] = Some(Inst { op, ty, span });
        Ok(())
    }

    fn span(&self, p: &mut Parser) -> Parsed<Span> {
        if !p.eat_word("at") {
            return Ok(Span::default());
        }
        let file = p.int()?;
        p.sign(":")?;
        let start = p.int()?;
        p.sign("..")?;
        Ok(Span { file, start, end: p.int()?, call: 0 })
    }

    fn block(&mut self, p: &mut Parser) -> Parsed<BlockId> {
        let b = BlockId(if matches!(p.peek(), Token::Id('^', _)) { p.id('^')? } else { self.next_block });
        self.claim_block(b);
        p.sign("{")?;
        while !p.eat("}") {
            self.inst(p, b)?;
        }
        Ok(b)
    }

    fn empty_block(&mut self) -> BlockId {
        let b = BlockId(self.next_block);
        self.claim_block(b);
        b
    }

    fn finish(mut self) -> Body {
        let hole = Inst { op: Op::Const(Const::Int(0)), ty: Type::I32, span: Span::default() };
        self.body.insts = self.insts.into_iter().map(|i| i.unwrap_or_else(|| hole.clone())).collect();
        self.body
    }
}

/// The extents in `vec3` or `mat2x4`.
fn tensor_shape(word: &str) -> Option<Vec<u32>> {
    if let Some(n) = word.strip_prefix("vec") {
        return Some(vec![n.parse().ok()?]);
    }
    let (n, m) = word.strip_prefix("mat")?.split_once('x')?;
    Some(vec![n.parse().ok()?, m.parse().ok()?])
}
