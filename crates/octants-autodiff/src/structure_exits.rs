//! Structures exits, so that every block runs to its end: `continue`, `break` and `return` within a loop or branch
//! become flags, and the code that they skip becomes a branch.
//!
//! Afterwards a loop has at most one `break`, in an `if` that is the last instruction of its body, and a function
//! returns at its end. Such code is reversible: each block has one entry and one exit.

use octants_ir::{BlockId, Body, Const, Kernel, LocalId, Op, Type, UnaryOp, ValueId};

/// Structures the exits of a kernel and its functions.
pub fn structure_exits(kernel: &mut Kernel) {
    for f in &mut kernel.functions {
        structure_body(&mut f.body, &f.ret);
    }
    // A kernel's `return` is at the end of its root.
    structure_body(&mut kernel.body, &Type::Unit);
}

fn structure_body(body: &mut Body, ret: &Type) {
    let root = body.root;
    let mut returns = 0;
    body.visit(root, &mut |_, inst| returns += usize::from(matches!(inst.op, Op::Return(_))));
    let end = body.block(root).last().copied().filter(|v| matches!(body.inst(*v).op, Op::Return(_)));
    let end = end.filter(|_| returns == 1);
    if end.is_some() {
        body.blocks[root.index()].pop();
    }
    let mut structure = Structure { body, contexts: vec![Context::default()], result: None, ret };
    structure.block(root);
    let Structure { contexts, result, .. } = structure;
    body.blocks[root.index()].extend(end);
    // Without a flag, the only exit is the end.
    if let Some(skip) = contexts[0].skip {
        let zero = flag_store(body, skip, 0);
        body.blocks[root.index()].splice(0..0, zero);
        push_return(body, root, result);
    }
}

fn push_return(body: &mut Body, root: BlockId, result: Option<LocalId>) {
    let value = result.map(|result| {
        let ty = body.locals[result.index()].ty.clone();
        let addr = body.add_inst(Op::LocalAddr(result), Type::Ref(Box::new(ty.clone())), Default::default());
        let load = body.add_inst(Op::Load(addr), ty, Default::default());
        body.blocks[root.index()].extend([addr, load]);
        load
    });
    let end = body.add_inst(Op::Return(value), Type::Unit, Default::default());
    body.blocks[root.index()].push(end);
}

/// A loop, an iteration of the parallel loop, or the whole body.
#[derive(Default)]
struct Context {
    is_loop: bool,
    /// The rest of this run of the body is skipped.
    skip: Option<LocalId>,
    /// No further iteration is run.
    leave: Option<LocalId>,
}

struct Structure<'a> {
    body: &'a mut Body,
    contexts: Vec<Context>,
    result: Option<LocalId>,
    ret: &'a Type,
}

impl Structure<'_> {
    /// Structures a block; true when it may end before its end.
    fn block(&mut self, b: BlockId) -> bool {
        let insts = std::mem::take(&mut self.body.blocks[b.index()]);
        let mut out = Vec::with_capacity(insts.len());
        let mut may_stop = false;
        for (i, &v) in insts.iter().enumerate() {
            let mut stops = false;
            match self.body.inst(v).op.clone() {
                Op::Continue => {
                    self.skip(&mut out, 1);
                    may_stop = true;
                    break;
                }
                Op::Break => {
                    self.skip(&mut out, 1);
                    let last = self.contexts.len() - 1;
                    self.leave(last, &mut out);
                    may_stop = true;
                    break;
                }
                Op::Return(value) => {
                    self.store_result(value, &mut out);
                    self.skip(&mut out, self.contexts.len());
                    (1..self.contexts.len()).for_each(|c| self.leave(c, &mut out));
                    may_stop = true;
                    break;
                }
                Op::If(_, yes, no) => {
                    let (first, second) = (self.block(yes), self.block(no));
                    stops = first || second;
                    out.push(v);
                }
                Op::For(l) => stops = self.run_loop(v, l.body, !l.is_parallel(), &mut out),
                Op::Loop(inner) => stops = self.run_loop(v, inner, true, &mut out),
                _ => out.push(v),
            }
            if stops {
                may_stop = true;
                let rest = self.body.add_block();
                self.body.blocks[rest.index()] = insts[i + 1..].to_vec();
                if i + 1 < insts.len() {
                    self.block(rest);
                    let skip = self.contexts.last().and_then(|c| c.skip);
                    let skip = skip.expect("compiler bug: a jump without a flag");
                    out.extend(guard(self.body, skip, rest));
                }
                break;
            }
        }
        self.body.blocks[b.index()] = out;
        may_stop
    }

    /// Structures a loop; true when code in it returns from the function.
    fn run_loop(&mut self, v: ValueId, inner: BlockId, can_leave: bool, out: &mut Vec<ValueId>) -> bool {
        let returns_before = self.returns_within(inner);
        self.contexts.push(Context { is_loop: can_leave, ..Context::default() });
        self.block(inner);
        let context = self.contexts.pop().expect("compiler bug: a loop without a context");
        if let Some(skip) = context.skip {
            let zero = flag_store(self.body, skip, 0);
            self.body.blocks[inner.index()].splice(0..0, zero);
        }
        if let Some(leave) = context.leave {
            out.extend(flag_store(self.body, leave, 0));
            let (addr, load) = flag_load(self.body, leave);
            let (then, other) = (self.body.add_block(), self.body.add_block());
            let stop = self.body.add_inst(Op::Break, Type::Unit, Default::default());
            self.body.blocks[then.index()].push(stop);
            let exit = self.body.add_inst(Op::If(load, then, other), Type::Unit, Default::default());
            self.body.blocks[inner.index()].extend([addr, load, exit]);
        }
        out.push(v);
        returns_before
    }

    fn returns_within(&self, b: BlockId) -> bool {
        let mut found = false;
        self.body.visit(b, &mut |_, inst| found |= matches!(inst.op, Op::Return(_)));
        found
    }

    /// Sets the skip flags of the innermost contexts.
    fn skip(&mut self, out: &mut Vec<ValueId>, count: usize) {
        let n = self.contexts.len();
        for c in n - count..n {
            let body = &mut *self.body;
            let flag = *self.contexts[c].skip.get_or_insert_with(|| body.add_local("skip", Type::U1));
            out.extend(flag_store(body, flag, 1));
        }
    }

    fn leave(&mut self, context: usize, out: &mut Vec<ValueId>) {
        if self.contexts[context].is_loop {
            let body = &mut *self.body;
            let flag = *self.contexts[context].leave.get_or_insert_with(|| body.add_local("leave", Type::U1));
            out.extend(flag_store(body, flag, 1));
        }
    }

    fn store_result(&mut self, value: Option<ValueId>, out: &mut Vec<ValueId>) {
        let Some(value) = value else { return };
        let body = &mut *self.body;
        let result = *self.result.get_or_insert_with(|| body.add_local("result", self.ret.clone()));
        let addr = body.add_inst(Op::LocalAddr(result), Type::Ref(Box::new(self.ret.clone())), Default::default());
        let store = body.add_inst(Op::Store(addr, value), Type::Unit, Default::default());
        out.extend([addr, store]);
    }
}

fn flag_addr(body: &mut Body, flag: LocalId) -> ValueId {
    body.add_inst(Op::LocalAddr(flag), Type::Ref(Box::new(Type::U1)), Default::default())
}

fn flag_store(body: &mut Body, flag: LocalId, value: i64) -> [ValueId; 3] {
    let addr = flag_addr(body, flag);
    let value = body.add_inst(Op::Const(Const::Int(value)), Type::U1, Default::default());
    [addr, value, body.add_inst(Op::Store(addr, value), Type::Unit, Default::default())]
}

fn flag_load(body: &mut Body, flag: LocalId) -> (ValueId, ValueId) {
    let addr = flag_addr(body, flag);
    (addr, body.add_inst(Op::Load(addr), Type::U1, Default::default()))
}

/// `rest`, unless the flag is set.
fn guard(body: &mut Body, flag: LocalId, rest: BlockId) -> [ValueId; 4] {
    let (addr, load) = flag_load(body, flag);
    let on = body.add_inst(Op::Unary(UnaryOp::LogicNot, load), Type::U1, Default::default());
    let nothing = body.add_block();
    [addr, load, on, body.add_inst(Op::If(on, rest, nothing), Type::Unit, Default::default())]
}
