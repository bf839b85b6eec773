//! Records the trip counts of loops whose iterations overwrite what their condition reads (a residual), and lets their
//! adjoint run as many iterations.
//!
//! An adjoint runs loops forward again, and finds memory as it is after the kernel. A loop that counts in memory can be
//! repeated (`promote_counters`); one that ends when a residual is small cannot. [`record_loop_trips`] adds a buffer to
//! the kernel, into which it stores the trip count of each execution of such a loop. [`replay_loop_trips`] adds the
//! same buffer to the code that becomes the adjoint, and replaces the loops' conditions by these counts. Both change
//! the code from the front end, so they find the same loops.
//!
//! Only loops outside of parallel loops are recorded, and only those with one exit, because the count must not depend
//! on how an iteration ends. `check_rounds` refuses the others, and warns of those in parallel loops.

use octants_analysis::CodeLayout;
use octants_diag::Span;
use octants_ir::{
    BinaryOp, BlockId, Body, Buffer, BufferId, Const, Kernel, Layout, LocalId, MemorySpace, Op, Scalar, TextPart, Type,
    ValueId,
};
use octants_passes::inline_calls::inline_all_calls;

use crate::differentiate_reverse::ends_by_written_memory;
use crate::promote_counters::promote_counters;
use crate::structure_exits::structure_exits;

/// Maximum number of recorded executions of a loop that is inside another loop.
const EXECUTIONS: i64 = 1 << 16;

/// The buffer of trip counts, which the caller of the kernel allocates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopTrips {
    /// Its number among the kernel's buffers.
    pub buffer: u32,
    /// Its length, in elements of type i64.
    pub elements: u64,
}

/// A loop whose trip counts are recorded.
#[derive(Debug, Clone, Copy)]
struct Recorded {
    of_loop: ValueId,
    /// The block that has the loop.
    block: BlockId,
    /// The body, and its `if` with the loop's only exit.
    inner: BlockId,
    exit: ValueId,
    leaves_if_true: bool,
    /// It is executed more than once.
    is_nested: bool,
}

/// Adds the recording to a kernel from the front end. `None` if it has no such loops.
pub fn record_loop_trips(kernel: &mut Kernel) -> Option<LoopTrips> {
    change(kernel, |edit, of, first| edit.record(of, first))
}

/// Lets the loops of a kernel from the front end run as often as recorded. `None` if it has no such loops.
pub fn replay_loop_trips(kernel: &mut Kernel) -> Option<LoopTrips> {
    change(kernel, |edit, of, first| edit.replay(of, first))
}

fn change(kernel: &mut Kernel, edit: impl Fn(&mut Edit<'_>, &Recorded, i64)) -> Option<LoopTrips> {
    let recorded = recorded_loops(kernel);
    if recorded.is_empty() {
        return None;
    }
    let buffer = BufferId(kernel.buffers.len() as u32);
    kernel.buffers.push(Buffer {
        name: "trip counts".into(),
        elem: Scalar::I64.into(),
        ndim: 1,
        layout: Layout::Contiguous,
        space: MemorySpace::Global,
        short_offsets: false,
        is_metadata: false,
    });
    let mut elements = 0;
    for of in &recorded {
        let span = kernel.body.inst(of.of_loop).span;
        edit(&mut Edit { body: &mut kernel.body, buffer, span, code: Vec::new() }, of, elements);
        elements += if of.is_nested { EXECUTIONS } else { 1 };
    }
    Some(LoopTrips { buffer: buffer.0, elements: elements as u64 })
}

/// The loops to record, in order.
fn recorded_loops(kernel: &Kernel) -> Vec<Recorded> {
    let mut found = Vec::new();
    find_loops(&kernel.body, kernel.body.root, false, &mut found);
    if found.is_empty() {
        return found;
    }
    let mut prepared = kernel.clone();
    structure_exits(&mut prepared);
    inline_all_calls(&mut prepared);
    promote_counters(&mut prepared);
    let layout = CodeLayout::of(&prepared.body);
    found.retain(|of| ends_by_written_memory(&prepared.body, &layout, of.of_loop));
    found
}

/// Adds the loops of a block that are outside of parallel loops and have one exit.
fn find_loops(body: &Body, block: BlockId, is_nested: bool, found: &mut Vec<Recorded>) {
    for &v in body.block(block) {
        match &body.inst(v).op {
            Op::Loop(inner) => {
                if let Some((exit, leaves_if_true)) = only_exit(body, *inner) {
                    found.push(Recorded { of_loop: v, block, inner: *inner, exit, leaves_if_true, is_nested });
                }
                find_loops(body, *inner, true, found);
            }
            Op::For(l) if l.is_parallel() => {}
            Op::For(l) => find_loops(body, l.body, true, found),
            op => op.blocks().into_iter().for_each(|b| find_loops(body, b, is_nested, found)),
        }
    }
}

/// The `if` of a loop's body that each iteration reaches and that has the only exit, and whether a true condition
/// leaves the loop.
fn only_exit(body: &Body, inner: BlockId) -> Option<(ValueId, bool)> {
    if jumps(body, inner) != 1 {
        return None;
    }
    body.block(inner).iter().find_map(|&v| {
        let Op::If(_, yes, no) = body.inst(v).op else { return None };
        let leaves = |b: BlockId| body.block(b).last().is_some_and(|u| body.inst(*u).op == Op::Break);
        (leaves(yes) || leaves(no)).then(|| (v, leaves(yes)))
    })
}

/// The number of statements that end an iteration of a loop early, or the kernel.
fn jumps(body: &Body, block: BlockId) -> usize {
    let of = |v: &ValueId| match &body.inst(*v).op {
        Op::Break | Op::Continue | Op::Return(_) => 1,
        // Those of an inner loop are its own, but for a `return`.
        Op::Loop(inner) => returns(body, *inner),
        Op::For(l) => returns(body, l.body),
        op => op.blocks().into_iter().map(|b| jumps(body, b)).sum(),
    };
    body.block(block).iter().map(of).sum()
}

fn returns(body: &Body, block: BlockId) -> usize {
    let mut count = 0;
    body.visit(block, &mut |_, inst| count += usize::from(matches!(inst.op, Op::Return(_))));
    count
}

/// Adds code to a body.
struct Edit<'a> {
    body: &'a mut Body,
    buffer: BufferId,
    span: Span,
    /// Code that is not placed yet.
    code: Vec<ValueId>,
}

impl Edit<'_> {
    fn record(&mut self, of: &Recorded, first: i64) {
        let trips = self.local("trips");
        let zero = self.int(0);
        self.store_local(trips, zero);
        self.place_before(of.block, of.of_loop);
        self.add_to(trips, 1);
        self.place_before(of.inner, of.exit);
        let stored = |e: &mut Self, index: ValueId| {
            let (value, at) = (e.load_local(trips), e.element(index));
            e.push(Op::Store(at, value), Type::Unit);
        };
        if of.is_nested {
            let executions = self.executions();
            let number = self.load_local(executions);
            let most = self.int(EXECUTIONS);
            let fits = self.push(Op::Binary(BinaryOp::Lt, number, most), Type::U1);
            let outside = std::mem::take(&mut self.code);
            let before = self.int(first);
            let index = self.push(Op::Binary(BinaryOp::Add, number, before), Scalar::I64.into());
            stored(self, index);
            let inside = std::mem::replace(&mut self.code, outside);
            let [yes, no] = [self.body.add_block(), self.body.add_block()];
            self.body.blocks[yes.index()] = inside;
            self.push(Op::If(fits, yes, no), Type::Unit);
            self.add_to(executions, 1);
        } else {
            let index = self.int(first);
            stored(self, index);
        }
        self.place_after(of.block, of.of_loop);
    }

    fn replay(&mut self, of: &Recorded, first: i64) {
        let left = self.local("iterations left");
        let mut index = self.int(first);
        if of.is_nested {
            let executions = self.executions();
            let number = self.load_local(executions);
            let most = self.int(EXECUTIONS);
            let fits = self.push(Op::Binary(BinaryOp::Lt, number, most), Type::U1);
            let text = format!(
                "the gradient cannot determine the number of iterations: this loop was executed more than {EXECUTIONS} \
                 times, and the trip counts of later executions are not recorded"
            );
            self.push(Op::Assert(fits, vec![TextPart::Text(text)]), Type::Unit);
            index = self.push(Op::Binary(BinaryOp::Add, number, index), Scalar::I64.into());
            self.add_to(executions, 1);
        }
        let at = self.element(index);
        let recorded = self.push(Op::Load(at), Scalar::I64.into());
        self.store_local(left, recorded);
        self.place_before(of.block, of.of_loop);
        self.add_to(left, -1);
        let (now, zero) = (self.load_local(left), self.int(0));
        let compare = if of.leaves_if_true { BinaryOp::Le } else { BinaryOp::Gt };
        let condition = self.push(Op::Binary(compare, now, zero), Type::U1);
        self.place_before(of.inner, of.exit);
        if let Op::If(asked, ..) = &mut self.body.inst_mut(of.exit).op {
            *asked = condition;
        }
    }

    /// A new local that is zero when the kernel begins, and counts executions of a loop.
    fn executions(&mut self) -> LocalId {
        let executions = self.local("executions");
        let code = std::mem::take(&mut self.code);
        let zero = self.int(0);
        self.store_local(executions, zero);
        let start = std::mem::replace(&mut self.code, code);
        let root = self.body.root;
        self.body.blocks[root.index()].splice(0..0, start);
        executions
    }

    fn local(&mut self, name: &str) -> LocalId {
        self.body.add_local(name, Scalar::I64.into())
    }

    fn push(&mut self, op: Op, ty: Type) -> ValueId {
        let v = self.body.add_inst(op, ty, self.span);
        self.code.push(v);
        v
    }

    fn int(&mut self, n: i64) -> ValueId {
        self.push(Op::Const(Const::Int(n)), Scalar::I64.into())
    }

    fn address(&mut self, local: LocalId) -> ValueId {
        self.push(Op::LocalAddr(local), Type::Ref(Box::new(Scalar::I64.into())))
    }

    fn load_local(&mut self, local: LocalId) -> ValueId {
        let address = self.address(local);
        self.push(Op::Load(address), Scalar::I64.into())
    }

    fn store_local(&mut self, local: LocalId, value: ValueId) {
        let address = self.address(local);
        self.push(Op::Store(address, value), Type::Unit);
    }

    fn add_to(&mut self, local: LocalId, n: i64) {
        let (old, n) = (self.load_local(local), self.int(n));
        let sum = self.push(Op::Binary(BinaryOp::Add, old, n), Scalar::I64.into());
        self.store_local(local, sum);
    }

    fn element(&mut self, index: ValueId) -> ValueId {
        self.push(Op::BufferAddr(self.buffer, vec![index]), Type::Ref(Box::new(Scalar::I64.into())))
    }

    fn place_before(&mut self, block: BlockId, v: ValueId) {
        self.place(block, v, 0);
    }

    fn place_after(&mut self, block: BlockId, v: ValueId) {
        self.place(block, v, 1);
    }

    fn place(&mut self, block: BlockId, v: ValueId, beyond: usize) {
        let code = std::mem::take(&mut self.code);
        let statements = &mut self.body.blocks[block.index()];
        let at = statements.iter().position(|u| *u == v).expect("compiler bug: a statement that is not in its block");
        statements.splice(at + beyond..at + beyond, code);
    }
}
