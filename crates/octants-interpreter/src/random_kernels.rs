//! Kernels from seeds: nested loops of every kind, jumps out of them, branches, functions, loop-carried indices,
//! vectors.
//!
//! A kernel does not read memory that it writes. `x`, `w` and `n` are read. `y` is stored to, or added to, at the
//! iteration's own index. `z` is added to at any index. The first half of `m` accumulates minima, the second half
//! maxima. Values stay small, so that finite differences are accurate.

use octants_ir::{
    AtomicOp, BinaryOp, Buffer, BufferId, Builder, Const, ForLoop, FuncId, Function, Kernel, Layout, LocalId,
    LoopConfig, MemorySpace, Op, Range, Scalar, Type, UnaryOp, ValueId,
};

/// Elements of each buffer, and iterations of each parallel loop.
pub const N: i64 = 4;
/// The type of floats.
pub const F64: Type = Type::Scalar(Scalar::F64);
const VEC: Type = Type::Vector(Scalar::F64, 3);

/// Floats that are read.
pub const X: BufferId = BufferId(0);
/// Vectors that are read.
pub const W: BufferId = BufferId(1);
/// Lengths of loops.
pub const COUNTS: BufferId = BufferId(2);
/// Written and added to by the iteration of the index.
pub const Y: BufferId = BufferId(3);
/// Vectors that any iteration adds to.
pub const Z: BufferId = BufferId(4);
/// Vectors that keep the smallest or largest.
pub const M: BufferId = BufferId(5);

/// Numbers from a linear congruence: the same at each run.
pub struct Dice(pub u64);

impl Dice {
    /// An integer from zero to below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }

    /// A float from -1 to 1.
    pub fn unit(&mut self) -> f64 {
        self.below(1 << 20) as f64 / (1 << 20) as f64 * 2.0 - 1.0
    }
}

/// The kernel of a seed.
pub fn random_kernel(seed: u64) -> Kernel {
    let mut dice = Dice(seed.wrapping_mul(0x9e3779b97f4a7c15) + 1);
    (0..8).for_each(|_| _ = dice.below(2));
    let mut kernel = Kernel { name: format!("k{seed}"), ..Kernel::default() };
    for (name, elem) in [("x", F64), ("w", VEC), ("n", Type::I32), ("y", F64), ("z", VEC), ("m", VEC)] {
        let layout = Layout::Contiguous;
        kernel.buffers.push(Buffer {
            name: name.into(),
            elem,
            ndim: 1,
            layout,
            space: MemorySpace::Global,
            short_offsets: false,
            is_metadata: false,
        });
    }
    for (b, of) in [("x", X), ("w", W), ("y", Y), ("z", Z), ("m", M)] {
        let gradient = Buffer { name: format!("{b}.grad"), ..kernel.buffers[of.index()].clone() };
        kernel.shadow_buffers.insert(of, BufferId(kernel.buffers.len() as u32));
        kernel.buffers.push(gradient);
    }
    for f in 0..dice.below(3) {
        kernel.functions.push(random_function(&mut dice, f));
    }
    let functions = kernel.functions.len() as u64;
    let mut g = Generator::new(&mut dice, functions, Some(0));
    if g.dice.below(4) == 0 {
        // All in order, on one thread.
        g.declare_locals();
        g.index = g.int(g_index(seed));
        g.statements(4, 0);
    } else {
        let sum = g.b.body.add_local("sum", F64);
        let one = g.float(1.0);
        g.set(sum, one);
        g.parallel_loop(Some(sum));
        g.parallel_loop(None);
        let total = g.get(sum);
        let at = g.int(0);
        g.add_to_z(at, 0, total);
    }
    kernel.body = g.b.body;
    kernel
}

fn g_index(seed: u64) -> i64 {
    (seed % N as u64) as i64
}

/// A function of a float and an integer that may return from anywhere.
fn random_function(dice: &mut Dice, number: u64) -> Function {
    let mut g = Generator::new(dice, number, None);
    g.declare_locals();
    let (p, k) = (g.b.push(Op::Param(0), F64), g.b.push(Op::Param(1), Type::I32));
    let (first, second) = (g.floats[0], g.ints[0]);
    g.set(first, p);
    g.set(second, k);
    g.index = k;
    g.returns = true;
    g.statements(3, 0);
    let result = g.float_expr(2);
    let result = g.b.unary(UnaryOp::Sin, result);
    g.b.push(Op::Return(Some(result)), Type::Unit);
    Function { name: format!("f{number}"), params: vec![F64, Type::I32], ret: F64, body: g.b.body }
}

struct Generator<'a> {
    b: Builder,
    dice: &'a mut Dice,
    floats: Vec<LocalId>,
    ints: Vec<LocalId>,
    vectors: Vec<LocalId>,
    index: ValueId,
    /// Loops around, and whether they may be left.
    loops: Vec<bool>,
    /// Indices of loops around, all below `N`.
    loop_indices: Vec<ValueId>,
    functions: u64,
    calls: u32,
    /// May write to memory.
    writes: bool,
    returns: bool,
}

impl<'a> Generator<'a> {
    fn new(dice: &'a mut Dice, functions: u64, writes: Option<u32>) -> Self {
        let (b, none) = (Builder::new(), Vec::new);
        Generator {
            b,
            dice,
            floats: Vec::new(),
            ints: none(),
            vectors: none(),
            index: ValueId(0),
            loops: Vec::new(),
            loop_indices: Vec::new(),
            functions,
            calls: 0,
            writes: writes.is_some(),
            returns: false,
        }
    }

    fn int(&mut self, i: i64) -> ValueId {
        self.b.int(i, Scalar::I32)
    }

    fn float(&mut self, x: f64) -> ValueId {
        self.b.push(Op::Const(Const::Float(x)), F64)
    }

    fn get(&mut self, l: LocalId) -> ValueId {
        let addr = self.b.local_addr(l);
        self.b.load(addr)
    }

    fn set(&mut self, l: LocalId, v: ValueId) {
        let addr = self.b.local_addr(l);
        self.b.store(addr, v);
    }

    fn pick(&mut self, from: &[LocalId]) -> LocalId {
        from[self.dice.below(from.len() as u64) as usize]
    }

    fn declare_locals(&mut self) {
        self.floats = (0..3).map(|i| self.b.body.add_local(format!("f{i}"), F64)).collect();
        self.ints = (0..2).map(|i| self.b.body.add_local(format!("k{i}"), Type::I32)).collect();
        self.vectors = (0..1).map(|i| self.b.body.add_local(format!("v{i}"), VEC)).collect();
        for l in self.floats.clone() {
            let x = self.dice.unit();
            let x = self.float(x);
            self.set(l, x);
        }
        for l in self.ints.clone() {
            let i = self.dice.below(3) as i64;
            let i = self.int(i);
            self.set(l, i);
        }
        for l in self.vectors.clone() {
            let x = self.dice.unit();
            let x = self.float(x);
            let v = self.b.splat(x, &VEC);
            self.set(l, v);
        }
    }

    fn parallel_loop(&mut self, sum: Option<LocalId>) {
        let inner = self.b.body.add_block();
        let (begin, end) = (self.int(0), self.int(N));
        let total = match sum {
            Some(sum) => self.get(sum),
            None => self.float(1.0),
        };
        let l = ForLoop::parallel(vec![Range { begin, end }], inner, LoopConfig::default());
        let l = self.b.push(Op::For(Box::new(l)), Type::Unit);
        let back = self.b.set_cursor(inner);
        self.index = self.b.push(Op::LoopIndex(l, 0), Type::I32);
        self.declare_locals();
        if self.dice.below(2) == 0 {
            let first = self.floats[0];
            self.set(first, total);
        }
        self.loops.push(false);
        self.statements(4, 0);
        self.loops.pop();
        if let Some(sum) = sum
            && !self.b.is_terminated()
        {
            let e = self.float_expr(2);
            let old = self.get(sum);
            let new = self.b.binary(BinaryOp::Add, old, e);
            self.set(sum, new);
        }
        self.b.set_cursor(back);
    }

    fn statements(&mut self, count: u64, depth: u32) {
        for _ in 0..1 + self.dice.below(count) {
            if self.b.is_terminated() {
                return;
            }
            self.statement(depth);
        }
    }

    fn nested(&mut self, depth: u32) -> octants_ir::BlockId {
        let block = self.b.body.add_block();
        let back = self.b.set_cursor(block);
        self.statements(3, depth + 1);
        self.b.set_cursor(back);
        block
    }

    fn statement(&mut self, depth: u32) {
        match self.dice.below(if depth < 3 { 14 } else { 8 }) {
            0..=2 => {
                let e = self.float_expr(3);
                let bounded = if self.dice.below(2) == 0 {
                    self.b.unary(UnaryOp::Sin, e)
                } else {
                    let c = self.float(0.6);
                    self.b.binary(BinaryOp::Mul, e, c)
                };
                let l = self.pick(&self.floats.clone());
                self.set(l, bounded);
            }
            3 => {
                let e = self.int_expr(2);
                let l = self.pick(&self.ints.clone());
                self.set(l, e);
            }
            4 => self.vector_statement(),
            5 | 6 => self.write(),
            7 => self.jump(depth),
            8 | 9 => {
                let c = self.condition();
                let yes = self.nested(depth);
                let no = if self.dice.below(2) == 0 { self.nested(depth) } else { self.b.body.add_block() };
                self.b.push(Op::If(c, yes, no), Type::Unit);
            }
            10..=12 => self.for_loop(depth),
            _ => self.while_loop(depth),
        }
    }

    fn vector_statement(&mut self) {
        let v = self.vectors[0];
        let e = self.float_expr(2);
        let e = self.b.unary(UnaryOp::Sin, e);
        match self.dice.below(3) {
            0 => {
                let index = self.int_below(3);
                let addr = self.b.local_addr(v);
                let addr = self.b.element_addr(addr, vec![index]);
                self.b.store(addr, e);
            }
            1 => {
                let index = self.int_below(N);
                let addr = self.b.push(Op::BufferAddr(W, vec![index]), Type::Ref(Box::new(VEC)));
                let (w, e) = (self.b.load(addr), self.b.splat(e, &VEC));
                let new = self.b.binary(BinaryOp::Mul, w, e);
                self.set(v, new);
            }
            _ => {
                let (old, e) = (self.get(v), self.b.splat(e, &VEC));
                let sum = self.b.binary(BinaryOp::Add, old, e);
                let half = self.float(0.5);
                let half = self.b.splat(half, &VEC);
                let new = self.b.binary(BinaryOp::Mul, sum, half);
                self.set(v, new);
            }
        }
    }

    fn write(&mut self) {
        if !self.writes {
            return;
        }
        if self.dice.below(4) == 0 {
            return self.keep_extreme();
        }
        let e = self.float_expr(3);
        match self.dice.below(3) {
            0 => {
                let addr = self.b.push(Op::BufferAddr(Y, vec![self.index]), Type::Ref(Box::new(F64)));
                self.b.store(addr, e);
            }
            1 => {
                let addr = self.b.push(Op::BufferAddr(Y, vec![self.index]), Type::Ref(Box::new(F64)));
                let op = if self.dice.below(2) == 0 { AtomicOp::Add } else { AtomicOp::Sub };
                self.b.push(Op::Atomic(op, addr, e), F64);
            }
            _ => {
                let at = self.int_below(N);
                let component = self.dice.below(3) as i64;
                self.add_to_z(at, component, e);
            }
        }
    }

    /// Updates an element of `m`, or a component of it, by the minimum (maximum) with a value near to memory.
    fn keep_extreme(&mut self) {
        let op = if self.dice.below(2) == 0 { AtomicOp::Min } else { AtomicOp::Max };
        let (at, from) = (self.int_below(N / 2), self.int_below(N));
        let first = self.int(if op == AtomicOp::Min { 0 } else { N / 2 });
        let at = self.b.binary(BinaryOp::Add, at, first);
        let addr = self.b.push(Op::BufferAddr(M, vec![at]), Type::Ref(Box::new(VEC)));
        let from = self.b.push(Op::BufferAddr(W, vec![from]), Type::Ref(Box::new(VEC)));
        let mut given = self.b.load(from);
        if self.dice.below(2) == 0 {
            given = self.b.unary(UnaryOp::Neg, given);
        }
        if self.dice.below(2) == 0 {
            let x = self.b.push(Op::BufferAddr(X, vec![self.index]), Type::Ref(Box::new(F64)));
            let x = self.b.load(x);
            let x = self.b.splat(x, &VEC);
            let op = [BinaryOp::Mul, BinaryOp::Sub, BinaryOp::Min][self.dice.below(3) as usize];
            given = self.b.binary(op, given, x);
        }
        if self.dice.below(2) == 0 {
            self.b.push(Op::Atomic(op, addr, given), VEC);
            return;
        }
        let component = self.int_below(3);
        let addr = self.b.element_addr(addr, vec![component]);
        let given = self.b.push(Op::ExtractDyn(given, vec![component]), F64);
        self.b.push(Op::Atomic(op, addr, given), F64);
    }

    fn add_to_z(&mut self, at: ValueId, component: i64, e: ValueId) {
        let addr = self.b.push(Op::BufferAddr(Z, vec![at]), Type::Ref(Box::new(VEC)));
        let component = self.int(component);
        let addr = self.b.element_addr(addr, vec![component]);
        self.b.push(Op::Atomic(AtomicOp::Add, addr, e), F64);
    }

    /// `if condition: break`, `continue` or `return`.
    fn jump(&mut self, depth: u32) {
        let Some(&can_leave) = self.loops.last() else {
            if self.returns && depth > 0 {
                self.leave(2);
            }
            return;
        };
        let most = if self.returns { 3 } else { 2 };
        let which = self.dice.below(most);
        self.leave(if which == 0 && !can_leave { 1 } else { which });
    }

    fn leave(&mut self, which: u64) {
        let c = self.condition();
        let (yes, no) = (self.b.body.add_block(), self.b.body.add_block());
        self.b.push(Op::If(c, yes, no), Type::Unit);
        let back = self.b.set_cursor(yes);
        match which {
            0 => _ = self.b.push(Op::Break, Type::Unit),
            1 => _ = self.b.push(Op::Continue, Type::Unit),
            _ => {
                let e = self.float_expr(2);
                let e = self.b.unary(UnaryOp::Sin, e);
                self.b.push(Op::Return(Some(e)), Type::Unit);
            }
        }
        self.b.set_cursor(back);
    }

    fn for_loop(&mut self, depth: u32) {
        let inner = self.b.body.add_block();
        let mut dims = Vec::new();
        for _ in 0..1 + self.dice.below(8) / 7 {
            let begin = self.int(0);
            let end = match self.dice.below(3) {
                0 => self.int(3),
                1 => {
                    let at = self.int_below(N);
                    let addr = self.b.push(Op::BufferAddr(COUNTS, vec![at]), Type::Ref(Box::new(Type::I32)));
                    self.b.load(addr)
                }
                _ => self.int_below(4),
            };
            dims.push(Range { begin, end });
        }
        let axis = self.dice.below(dims.len() as u64) as u32;
        let l = ForLoop::serial(dims, inner);
        let l = self.b.push(Op::For(Box::new(l)), Type::Unit);
        let back = self.b.set_cursor(inner);
        let j = self.b.push(Op::LoopIndex(l, axis), Type::I32);
        let k = self.pick(&self.ints.clone());
        if self.dice.below(2) == 0 {
            self.set(k, j);
        }
        self.loops.push(true);
        self.loop_indices.push(j);
        self.statements(3, depth + 1);
        self.loop_indices.pop();
        self.loops.pop();
        self.b.set_cursor(back);
    }

    /// At most four iterations, fewer if a jump leaves the loop.
    fn while_loop(&mut self, depth: u32) {
        let count = self.b.body.add_local("count", Type::I32);
        let zero = self.int(0);
        self.set(count, zero);
        let inner = self.b.body.add_block();
        self.b.push(Op::Loop(inner), Type::Unit);
        let back = self.b.set_cursor(inner);
        let (old, one, most) = (self.get(count), self.int(1), self.int(4));
        let c = self.b.binary(BinaryOp::Lt, old, most);
        let (go_on, stop) = (self.b.body.add_block(), self.b.body.add_block());
        self.b.push(Op::If(c, go_on, stop), Type::Unit);
        let here = self.b.set_cursor(stop);
        self.b.push(Op::Break, Type::Unit);
        self.b.set_cursor(here);
        let new = self.b.binary(BinaryOp::Add, old, one);
        self.set(count, new);
        self.loops.push(true);
        self.statements(3, depth + 1);
        self.loops.pop();
        self.b.set_cursor(back);
    }

    fn condition(&mut self) -> ValueId {
        if self.dice.below(3) == 0 {
            let (a, c) = (self.float_expr(1), self.dice.unit());
            let c = self.float(c);
            return self.b.binary(BinaryOp::Lt, a, c);
        }
        let (a, b) = (self.int_expr(1), self.int_expr(1));
        let op = [BinaryOp::Lt, BinaryOp::Eq, BinaryOp::Ge, BinaryOp::Ne][self.dice.below(4) as usize];
        self.b.binary(op, a, b)
    }

    fn int_expr(&mut self, depth: u32) -> ValueId {
        match self.dice.below(if depth == 0 { 3 } else { 5 }) {
            0 => {
                let i = self.dice.below(4) as i64;
                self.int(i)
            }
            1 => {
                let l = self.pick(&self.ints.clone());
                self.get(l)
            }
            2 => self.index,
            3 => {
                let f = self.float_expr(1);
                let ten = self.float(4.0);
                let f = self.b.binary(BinaryOp::Mul, f, ten);
                let i = self.b.cast(f, Scalar::I32);
                self.modulo(i, 5)
            }
            _ => {
                let (a, b) = (self.int_expr(depth - 1), self.int_expr(depth - 1));
                let op = [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul][self.dice.below(3) as usize];
                let i = self.b.binary(op, a, b);
                self.modulo(i, 7)
            }
        }
    }

    fn modulo(&mut self, i: ValueId, n: i64) -> ValueId {
        let n = self.int(n);
        self.b.binary(BinaryOp::Mod, i, n)
    }

    fn int_below(&mut self, n: i64) -> ValueId {
        let i = self.int_expr(1);
        self.modulo(i, n)
    }

    fn float_expr(&mut self, depth: u32) -> ValueId {
        match self.dice.below(if depth == 0 { 5 } else { 12 }) {
            0 => {
                let x = self.dice.unit();
                self.float(x)
            }
            1 | 2 => {
                let l = self.pick(&self.floats.clone());
                self.get(l)
            }
            3 => {
                let at = match self.loop_indices.last() {
                    Some(j) if self.dice.below(2) == 0 => *j,
                    _ => self.int_below(N),
                };
                let addr = self.b.push(Op::BufferAddr(X, vec![at]), Type::Ref(Box::new(F64)));
                self.b.load(addr)
            }
            4 => {
                let (v, at) = (self.vectors[0], self.int_below(3));
                let v = self.get(v);
                self.b.push(Op::ExtractDyn(v, vec![at]), F64)
            }
            5 => {
                let a = self.float_expr(depth - 1);
                let op = [UnaryOp::Sin, UnaryOp::Tanh, UnaryOp::Neg, UnaryOp::Cos][self.dice.below(4) as usize];
                self.b.unary(op, a)
            }
            6 => {
                let (c, a, b) = (self.condition(), self.float_expr(depth - 1), self.float_expr(depth - 1));
                self.b.push(Op::Select(c, a, b), F64)
            }
            7 if self.functions > 0 && self.calls < 3 => {
                self.calls += 1;
                let f = FuncId(self.dice.below(self.functions) as u32);
                let (a, k) = (self.float_expr(depth - 1), self.int_below(N));
                self.b.push(Op::Call(f, vec![a, k]), F64)
            }
            _ => {
                let (a, b) = (self.float_expr(depth - 1), self.float_expr(depth - 1));
                let op = [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Mul, BinaryOp::Max];
                self.b.binary(op[self.dice.below(5) as usize], a, b)
            }
        }
    }
}
