//! A [`Body`]: the instructions, blocks and locals of a kernel, a function or a task, and the [`Builder`] that creates
//! one.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};

use octants_diag::Span;

use crate::kept_facts::KeptFacts;
use crate::op::*;
use crate::operation_table::{BinaryOp, UnaryOp, binary_type, unary_type};
use crate::types::{Scalar, Type};

/// An operation with its result type and the source it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Inst {
    /// The operation.
    pub op: Op,
    /// Type of the value it yields; `Unit` when it yields none.
    pub ty: Type,
    /// The user's expression.
    pub span: Span,
}

/// Ignores the span: source locations do not affect semantics.
impl Hash for Inst {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Inst { op, ty, span: _ } = self;
        op.hash(state);
        ty.hash(state);
    }
}

/// A mutable variable of one activation of a body. Starts as zero.
#[derive(Debug, Clone, PartialEq, Hash)]
pub struct Local {
    /// The user's name, or a compiler's one.
    pub name: String,
    /// Its type.
    pub ty: Type,
}

/// Structured code: blocks of instructions; `root` runs first.
#[derive(Debug, Clone, PartialEq, Hash)]
pub struct Code {
    /// Instruction arena; a block lists which of them run, in order.
    pub insts: Vec<Inst>,
    /// Block arena.
    pub blocks: Vec<Vec<ValueId>>,
    /// Local variables.
    pub locals: Vec<Local>,
    /// The outermost block.
    pub root: BlockId,
}

impl Default for Code {
    fn default() -> Self {
        Code { insts: Vec::new(), blocks: vec![Vec::new()], locals: Vec::new(), root: BlockId(0) }
    }
}

/// The code of a kernel, a function or a task, with cached results of analyses. Borrowing the code mutably drops
/// the facts.
#[derive(Debug, Clone, Default)]
pub struct Body {
    code: Code,
    facts: KeptFacts,
}

impl Deref for Body {
    type Target = Code;

    fn deref(&self) -> &Code {
        &self.code
    }
}

impl DerefMut for Body {
    fn deref_mut(&mut self) -> &mut Code {
        self.facts.drop_all();
        &mut self.code
    }
}

impl PartialEq for Body {
    fn eq(&self, other: &Body) -> bool {
        self.code == other.code
    }
}

impl Hash for Body {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.code.hash(state);
    }
}

impl Body {
    /// Cached results of analyses of the current code.
    pub fn facts(&self) -> &KeptFacts {
        &self.facts
    }

    /// The instruction that yields `v`.
    pub fn inst(&self, v: ValueId) -> &Inst {
        &self.insts[v.index()]
    }

    /// Mutable access to an instruction.
    pub fn inst_mut(&mut self, v: ValueId) -> &mut Inst {
        &mut self.insts[v.index()]
    }

    /// The type of a value.
    pub fn ty(&self, v: ValueId) -> &Type {
        &self.insts[v.index()].ty
    }

    /// The instructions of a block.
    pub fn block(&self, b: BlockId) -> &[ValueId] {
        &self.blocks[b.index()]
    }

    /// The constant that `v` is, if it is one.
    pub fn as_const(&self, v: ValueId) -> Option<Const> {
        match self.inst(v).op {
            Op::Const(c) => Some(c),
            _ => None,
        }
    }

    /// Adds an instruction to the arena without placing it in a block.
    pub fn add_inst(&mut self, op: Op, ty: Type, span: Span) -> ValueId {
        self.insts.push(Inst { op, ty, span });
        ValueId((self.insts.len() - 1) as u32)
    }

    /// Adds an empty block.
    pub fn add_block(&mut self) -> BlockId {
        self.blocks.push(Vec::new());
        BlockId((self.blocks.len() - 1) as u32)
    }

    /// Adds a local variable.
    pub fn add_local(&mut self, name: impl Into<String>, ty: Type) -> LocalId {
        self.locals.push(Local { name: name.into(), ty });
        LocalId((self.locals.len() - 1) as u32)
    }

    /// The locals that a block mentions, with the blocks in it.
    pub fn locals_in(&self, block: BlockId) -> HashSet<LocalId> {
        let mut locals = HashSet::new();
        self.visit(block, &mut |_, inst| {
            if let Op::LocalAddr(local) = inst.op {
                locals.insert(local);
            }
        });
        locals
    }

    /// Visits every instruction reachable from `block`, outer before inner, in program order.
    pub fn visit(&self, block: BlockId, f: &mut impl FnMut(ValueId, &Inst)) {
        for &v in self.block(block) {
            let inst = self.inst(v);
            f(v, inst);
            for b in inst.op.blocks() {
                self.visit(b, f);
            }
        }
    }
}

/// Appends instructions to a body at a cursor, computing result types.
#[derive(Debug, Default)]
pub struct Builder {
    /// The body under construction.
    pub body: Body,
    cursor: BlockId0,
    /// Given to instructions built from here on.
    pub span: Span,
    /// The call whose function is being inlined.
    pub call: Option<Span>,
}

#[derive(Debug, Clone, Copy)]
struct BlockId0(BlockId);

impl Default for BlockId0 {
    fn default() -> Self {
        BlockId0(BlockId(0))
    }
}

impl Builder {
    /// A builder of an empty body.
    pub fn new() -> Self {
        Builder::default()
    }

    /// The block that instructions go to.
    pub fn cursor(&self) -> BlockId {
        self.cursor.0
    }

    /// Moves the cursor to the end of `block` and returns its previous position.
    pub fn set_cursor(&mut self, block: BlockId) -> BlockId {
        std::mem::replace(&mut self.cursor.0, block)
    }

    /// The type of a value.
    pub fn ty(&self, v: ValueId) -> &Type {
        self.body.ty(v)
    }

    /// Whether the current block ends in a terminator, so that further code is unreachable.
    pub fn is_terminated(&self) -> bool {
        self.body.block(self.cursor()).last().is_some_and(|v| self.body.inst(*v).op.is_terminator())
    }

    /// Appends any instruction. Instructions after a terminator are kept in the arena but not placed.
    pub fn push(&mut self, op: Op, ty: Type) -> ValueId {
        let dead = self.is_terminated();
        let span = self.call.map_or(self.span, |call| self.span.inlined_at(call));
        let v = self.body.add_inst(op, ty, span);
        if !dead {
            let cursor = self.cursor().index();
            self.body.blocks[cursor].push(v);
        }
        v
    }

    /// Appends an instruction that is already in the arena (its id was needed before it was complete).
    pub fn place(&mut self, v: ValueId) {
        if !self.is_terminated() {
            let cursor = self.cursor().index();
            self.body.blocks[cursor].push(v);
        }
    }

    /// An integer constant of type `s`.
    pub fn int(&mut self, value: i64, s: Scalar) -> ValueId {
        if s.is_float() {
            return self.float(value as f64, s);
        }
        self.push(Op::Const(Const::Int(value)), Type::Scalar(s))
    }

    /// A float constant of type `s`.
    pub fn float(&mut self, value: f64, s: Scalar) -> ValueId {
        self.push(Op::Const(Const::Float(value)), Type::Scalar(s))
    }

    /// Appends a unary operation.
    pub fn unary(&mut self, op: UnaryOp, a: ValueId) -> ValueId {
        let ty = unary_type(op, self.ty(a));
        self.push(Op::Unary(op, a), ty)
    }

    /// Appends a binary operation on two values of one type.
    pub fn binary(&mut self, op: BinaryOp, a: ValueId, b: ValueId) -> ValueId {
        debug_assert_eq!(self.ty(a), self.ty(b), "compiler bug: operands of {op:?} differ");
        let ty = binary_type(op, self.ty(a));
        self.push(Op::Binary(op, a, b), ty)
    }

    /// Converts to scalar type `s` element by element; no-op if it already has that type.
    pub fn cast(&mut self, v: ValueId, s: Scalar) -> ValueId {
        let from = self.ty(v).clone();
        if from.scalar() == Some(s) {
            return v;
        }
        self.push(Op::Cast(v), from.with_scalar(s))
    }

    /// Copies a scalar to every component of the tensor type `ty`.
    pub fn splat(&mut self, v: ValueId, ty: &Type) -> ValueId {
        if !ty.is_tensor() {
            return v;
        }
        let s = self.ty(v).scalar().expect("compiler bug: splat of a non-scalar");
        let ty = ty.with_scalar(s);
        self.push(Op::Splat(v), ty)
    }

    /// Static component or member.
    pub fn extract(&mut self, v: ValueId, index: u32) -> ValueId {
        let ty = match self.ty(v) {
            Type::Struct(s) => s.members[index as usize].1.clone(),
            t => Type::Scalar(t.scalar().expect("compiler bug: extract from a value without components")),
        };
        self.push(Op::Extract(v, index), ty)
    }

    /// Address of a local.
    pub fn local_addr(&mut self, local: LocalId) -> ValueId {
        let ty = Type::Ref(Box::new(self.body.locals[local.index()].ty.clone()));
        self.push(Op::LocalAddr(local), ty)
    }

    /// The value of a local.
    pub fn load_local(&mut self, local: LocalId) -> ValueId {
        let addr = self.local_addr(local);
        self.load(addr)
    }

    /// Sets a local.
    pub fn store_local(&mut self, local: LocalId, value: ValueId) {
        let addr = self.local_addr(local);
        self.store(addr, value);
    }

    /// Updates a local with `f`; yields the old and the new value.
    pub fn update_local(&mut self, local: LocalId, f: impl FnOnce(&mut Self, ValueId) -> ValueId) -> [ValueId; 2] {
        let addr = self.local_addr(local);
        let old = self.load(addr);
        let new = f(self, old);
        self.store(addr, new);
        [old, new]
    }

    /// Address of a tensor's component.
    pub fn element_addr(&mut self, base: ValueId, index: Vec<ValueId>) -> ValueId {
        let s = self.pointee(base).scalar().expect("compiler bug: element of a value without components");
        self.push(Op::ElementAddr(base, index), Type::Ref(Box::new(Type::Scalar(s))))
    }

    /// Address of a struct's member.
    pub fn member_addr(&mut self, base: ValueId, member: u32) -> ValueId {
        let ty = match self.pointee(base) {
            Type::Struct(s) => s.members[member as usize].1.clone(),
            t => panic!("compiler bug: member of {t}"),
        };
        self.push(Op::MemberAddr(base, member), Type::Ref(Box::new(ty)))
    }

    /// The type that an address points to.
    pub fn pointee(&self, addr: ValueId) -> &Type {
        match self.ty(addr) {
            Type::Ref(t) => t,
            t => panic!("compiler bug: {addr} of type {t} is not an address"),
        }
    }

    /// Reads memory.
    pub fn load(&mut self, addr: ValueId) -> ValueId {
        let ty = self.pointee(addr).clone();
        self.push(Op::Load(addr), ty)
    }

    /// Writes memory.
    pub fn store(&mut self, addr: ValueId, value: ValueId) {
        debug_assert_eq!(self.pointee(addr), self.ty(value), "compiler bug: store of another type");
        self.push(Op::Store(addr, value), Type::Unit);
    }
}
