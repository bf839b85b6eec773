//! Kernels from seeds in which the threads of a block cooperate: barriers, votes and shuffles, in uniform branches and
//! loops; shared memory between two barriers; code that only some threads run.
//!
//! Threads do not race, so the results do not depend on their order. Each thread writes its own elements of `y`; `x` is
//! read. All values are i32.

use octants_ir::{
    AtomicOp, BinaryOp, Buffer, BufferId, Builder, ComponentLayout, ForLoop, GridValue, Kernel, Layout, LocalId,
    LoopConfig, MemorySpace, Op, Placement, Range, Scalar, SubgroupOp, ThreadScope, Type, ValueId,
};

use crate::random_kernels::Dice;

const X: BufferId = BufferId(0);
const Y: BufferId = BufferId(1);
/// One element for each thread of a block.
const EACH: BufferId = BufferId(2);
/// A few elements that one thread sets, and all threads update.
const FEW: BufferId = BufferId(3);
/// Elements of `FEW`.
const BINS: i64 = 4;
/// Elements of `y` for each thread.
const RESULTS: u64 = 4;

/// A kernel whose threads work together.
pub struct ThreadKernel {
    /// The kernel: one parallel loop.
    pub kernel: Kernel,
    /// Iterations of the loop.
    pub threads: u64,
    /// Threads of a block.
    pub block_dim: u32,
}

/// The kernel of a seed.
pub fn random_thread_kernel(seed: u64) -> ThreadKernel {
    let mut dice = Dice(seed.wrapping_mul(0x9e3779b97f4a7c15) + 7);
    (0..8).for_each(|_| _ = dice.below(2));
    let block_dim = [1, 8, 16, 32, 40, 64, 64, 96][dice.below(8) as usize];
    let blocks = 1 + dice.below(2);
    // Threads that do not exist cannot synchronize with others.
    let meets = dice.below(5) > 0;
    let missing = if meets { 0 } else { dice.below(u64::from(block_dim)) };
    let threads = blocks * u64::from(block_dim) - missing;
    let mut kernel = Kernel { name: format!("threads{seed}"), ..Kernel::default() };
    for name in ["x", "y"] {
        let layout = Layout::Contiguous;
        kernel.buffers.push(Buffer {
            name: name.into(),
            elem: Type::I32,
            ndim: 1,
            layout,
            space: MemorySpace::Global,
            short_offsets: false,
            is_metadata: false,
        });
    }
    kernel.buffers.extend([shared(0, u64::from(block_dim)), shared(1, BINS as u64)]);
    let rows = dice.below(3) == 0 && missing == 0;
    let mut g = Generator::new(&mut dice, block_dim, meets);
    g.parallel_loop(threads, rows);
    kernel.body = g.b.body;
    ThreadKernel { kernel, threads, block_dim }
}

/// The number of elements of a buffer of such a kernel.
pub fn elements(kernel: &ThreadKernel, buffer: BufferId) -> u64 {
    if buffer == Y { kernel.threads * RESULTS } else { kernel.threads }
}

fn shared(root: u32, extent: u64) -> Buffer {
    let components = vec![ComponentLayout { root, place: Placement::row_major(0, &[extent], 4) }];
    let layout = Layout::Dense { shape: vec![extent], offset: vec![0], components };
    Buffer {
        name: format!("s{root}"),
        elem: Type::I32,
        ndim: 1,
        layout,
        space: MemorySpace::Shared,
        short_offsets: true,
        is_metadata: false,
    }
}

/// Which threads agree on a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Agreement {
    Block,
    None,
}

struct Generator<'a> {
    b: Builder,
    dice: &'a mut Dice,
    block_dim: u32,
    /// Locals that all threads agree on, and others.
    common: Vec<LocalId>,
    own: Vec<LocalId>,
    /// Values in scope that all threads agree on, and others.
    agreed: Vec<ValueId>,
    values: Vec<ValueId>,
    thread: ValueId,
    meets: bool,
}

impl<'a> Generator<'a> {
    fn new(dice: &'a mut Dice, block_dim: u32, meets: bool) -> Generator<'a> {
        let mut b = Builder::new();
        let mut local = |name: &str, i: u32| b.body.add_local(format!("{name}{i}"), Type::I32);
        let common = (0..2).map(|i| local("common", i)).collect();
        let own = (0..3).map(|i| local("own", i)).collect();
        let (agreed, values) = (Vec::new(), Vec::new());
        Generator { b, dice, block_dim, common, own, agreed, values, thread: ValueId(0), meets }
    }

    fn parallel_loop(&mut self, threads: u64, rows: bool) {
        let begin = self.int(0);
        let end = if self.dice.below(2) == 0 || rows {
            self.int(threads as i64)
        } else {
            self.b.push(Op::Shape(X, 0), Type::I32)
        };
        let width = i64::from(self.block_dim);
        let dims = if rows {
            let [outer, inner] = [threads as i64 / width, width].map(|n| self.int(n));
            vec![Range { begin, end: outer }, Range { begin, end: inner }]
        } else {
            vec![Range { begin, end }]
        };
        let config = LoopConfig { block_dim: Some(self.block_dim), ..LoopConfig::default() };
        let body = self.b.body.add_block();
        let l = self.b.push(Op::For(Box::new(ForLoop::parallel(dims, body, config))), Type::Unit);
        self.b.set_cursor(body);
        let mut index = self.b.push(Op::LoopIndex(l, 0), Type::I32);
        if rows {
            let column = self.b.push(Op::LoopIndex(l, 1), Type::I32);
            let width = self.int(width);
            index = self.b.binary(BinaryOp::Mul, index, width);
            index = self.b.binary(BinaryOp::Add, index, column);
            self.values.push(column);
        }
        let grid = |g: GridValue| Op::Grid(g);
        self.thread = self.b.push(grid(GridValue::Thread), Type::I32);
        let lane = self.b.push(grid(GridValue::Lane), Type::I32);
        let block = self.b.push(grid(GridValue::Block), Type::I32);
        self.values.extend([index, self.thread, lane]);
        self.agreed.push(block);
        let address = self.at(X, index);
        let read = self.b.load(address);
        self.values.push(read);
        self.statements(7, 3);
        for k in 0..RESULTS as i64 {
            let value = if k < 3 { self.b.load_local(self.own[k as usize]) } else { self.value() };
            let stride = self.int(RESULTS as i64);
            let first = self.b.binary(BinaryOp::Mul, index, stride);
            let offset = self.int(k);
            let at = self.b.binary(BinaryOp::Add, first, offset);
            let address = self.at(Y, at);
            self.b.store(address, value);
        }
    }

    fn int(&mut self, n: i64) -> ValueId {
        self.b.int(n, Scalar::I32)
    }

    fn at(&mut self, buffer: BufferId, index: ValueId) -> ValueId {
        self.b.push(Op::BufferAddr(buffer, vec![index]), Type::Ref(Box::new(Type::I32)))
    }

    /// A number that all threads agree on.
    fn agreed(&mut self) -> ValueId {
        match self.dice.below(3) {
            0 => {
                let n = self.dice.below(6) as i64;
                self.int(n)
            }
            1 => {
                let local = self.common[self.dice.below(2) as usize];
                self.b.load_local(local)
            }
            _ => self.agreed[self.dice.below(self.agreed.len() as u64) as usize],
        }
    }

    /// A number of a thread.
    fn value(&mut self) -> ValueId {
        match self.dice.below(8) {
            0 => self.agreed(),
            1 | 2 => {
                let local = self.own[self.dice.below(3) as usize];
                self.b.load_local(local)
            }
            _ => self.values[self.dice.below(self.values.len() as u64) as usize],
        }
    }

    /// An expression of numbers.
    fn computed(&mut self, of: Agreement) -> ValueId {
        let [a, b] = [(); 2].map(|()| if of == Agreement::Block { self.agreed() } else { self.value() });
        let op = match self.dice.below(9) {
            0 | 1 => BinaryOp::Add,
            2 => BinaryOp::Sub,
            3 => BinaryOp::Mul,
            4 => BinaryOp::Xor,
            5 => BinaryOp::Min,
            kind => {
                let op = [BinaryOp::FloorDiv, BinaryOp::Mod, BinaryOp::And][kind as usize - 6];
                let n = [4, 8, 16, 32, 3][self.dice.below(5) as usize] - i64::from(op == BinaryOp::And);
                let n = self.int(n);
                return self.b.binary(op, a, n);
            }
        };
        self.b.binary(op, a, b)
    }

    fn condition(&mut self, of: Agreement) -> ValueId {
        let [a, b] =
            if of == Agreement::Block { [(); 2].map(|()| self.agreed()) } else { [self.value(), self.agreed()] };
        let op = [BinaryOp::Lt, BinaryOp::Eq, BinaryOp::Ne, BinaryOp::Ge][self.dice.below(4) as usize];
        self.b.binary(op, a, b)
    }

    /// Statements that all threads of the block run together.
    fn statements(&mut self, count: u64, depth: u32) {
        let (agreed, values) = (self.agreed.len(), self.values.len());
        for _ in 0..1 + self.dice.below(count) {
            self.statement(depth);
        }
        self.agreed.truncate(agreed.max(1));
        self.values.truncate(values.max(1));
    }

    fn statement(&mut self, depth: u32) {
        match self.dice.below(if depth > 0 { 17 } else { 12 }) {
            0 | 1 => {
                let v = self.computed(Agreement::None);
                self.values.push(v);
            }
            2 => {
                let v = self.computed(Agreement::Block);
                self.agreed.push(v);
            }
            3 => {
                let (local, v) = (self.own[self.dice.below(3) as usize], self.computed(Agreement::None));
                self.b.store_local(local, v);
            }
            4 => {
                let (local, v) = (self.common[self.dice.below(2) as usize], self.computed(Agreement::Block));
                self.b.store_local(local, v);
            }
            5 => self.alone(),
            6..=11 if !self.meets => self.alone(),
            6 | 7 => self.exchange(),
            8 => self.vote(),
            9 => self.pass_around(),
            10 => self.broadcast_value(),
            11 => self.update_together(),
            12 | 13 => {
                let c = self.condition(Agreement::Block);
                let [yes, no] = [self.b.body.add_block(), self.b.body.add_block()];
                self.b.push(Op::If(c, yes, no), Type::Unit);
                let back = self.b.set_cursor(yes);
                self.statements(3, depth - 1);
                self.b.set_cursor(no);
                if self.dice.below(2) == 0 {
                    self.statements(3, depth - 1);
                }
                self.b.set_cursor(back);
            }
            14 | 15 => self.loop_together(depth),
            _ => self.repeat_together(depth),
        }
    }

    /// Code that only some threads run.
    fn alone(&mut self) {
        let c = self.condition(Agreement::None);
        let [yes, no] = [self.b.body.add_block(), self.b.body.add_block()];
        self.b.push(Op::If(c, yes, no), Type::Unit);
        let back = self.b.set_cursor(yes);
        let local = self.own[self.dice.below(3) as usize];
        if self.dice.below(3) == 0 {
            // A loop whose trip count differs among threads.
            let (begin, mask) = (self.int(0), self.int(3));
            let v = self.value();
            let end = self.b.binary(BinaryOp::And, v, mask);
            let body = self.b.body.add_block();
            let l = ForLoop::serial(vec![Range { begin, end }], body);
            let l = self.b.push(Op::For(Box::new(l)), Type::Unit);
            let around = self.b.set_cursor(body);
            let k = self.b.push(Op::LoopIndex(l, 0), Type::I32);
            self.b.update_local(local, |b, old| b.binary(BinaryOp::Add, old, k));
            self.b.set_cursor(around);
        } else {
            let v = self.computed(Agreement::None);
            self.b.store_local(local, v);
        }
        self.b.set_cursor(no);
        if self.dice.below(3) == 0 {
            let (local, v) = (self.own[self.dice.below(3) as usize], self.value());
            self.b.store_local(local, v);
        }
        self.b.set_cursor(back);
    }

    /// A value of another thread of the subgroup.
    fn exchange(&mut self) {
        let v = self.value();
        let (op, by) = match self.dice.below(6) {
            0 => (SubgroupOp::Shuffle, self.dice.below(40) as i64),
            1 => (SubgroupOp::ShuffleXor, 1 << self.dice.below(5)),
            2 => (SubgroupOp::ShuffleXor, self.dice.below(40) as i64),
            3 => (SubgroupOp::ShuffleUp, 1 + self.dice.below(16) as i64),
            4 => (SubgroupOp::ShuffleDown, 1 + self.dice.below(16) as i64),
            _ => (SubgroupOp::Shuffle, -1),
        };
        let by = if by < 0 {
            // Beyond the last lane, too.
            let (any, mask) = (self.value(), self.int(63));
            self.b.binary(BinaryOp::And, any, mask)
        } else {
            self.int(by)
        };
        let taken = self.b.push(Op::Subgroup(op, vec![v, by]), Type::I32);
        self.values.push(taken);
    }

    fn vote(&mut self) {
        let c = self.condition(Agreement::None);
        let v = match self.dice.below(4) {
            0 => {
                let count = self.b.push(Op::BlockCount(c), Type::I32);
                return self.agreed.push(count);
            }
            1 => {
                let votes = self.b.push(Op::Subgroup(SubgroupOp::Ballot, vec![c]), Scalar::U64.into());
                self.b.cast(votes, Scalar::I32)
            }
            kind => {
                let op = if kind == 2 { SubgroupOp::Any } else { SubgroupOp::All };
                let vote = self.b.push(Op::Subgroup(op, vec![c]), Scalar::U1.into());
                self.b.cast(vote, Scalar::I32)
            }
        };
        self.values.push(v);
    }

    fn barrier(&mut self) {
        self.b.push(Op::Barrier(ThreadScope::Block), Type::Unit);
    }

    /// Each thread reads a value that another one has written.
    fn pass_around(&mut self) {
        let (v, own) = (self.value(), self.at(EACH, self.thread));
        self.b.store(own, v);
        self.barrier();
        let (distance, size) = (self.agreed(), self.int(self.block_dim.into()));
        let other = self.b.binary(BinaryOp::Add, self.thread, distance);
        let other = self.b.binary(BinaryOp::Mod, other, size);
        let address = self.at(EACH, other);
        let read = self.b.load(address);
        self.values.push(read);
        self.barrier();
    }

    /// One thread writes a value that all threads read.
    fn broadcast_value(&mut self) {
        let v = self.value();
        let [yes, no] = [self.b.body.add_block(), self.b.body.add_block()];
        let one = self.dice.below(u64::from(self.block_dim)) as i64;
        let one = self.int(one);
        let c = self.b.binary(BinaryOp::Eq, self.thread, one);
        self.b.push(Op::If(c, yes, no), Type::Unit);
        let back = self.b.set_cursor(yes);
        for k in 0..BINS {
            let k = self.int(k);
            let (address, sum) = (self.at(FEW, k), self.b.binary(BinaryOp::Add, v, k));
            self.b.store(address, sum);
        }
        self.b.set_cursor(back);
        self.barrier();
        let k = self.dice.below(BINS as u64) as i64;
        let k = self.int(k);
        let address = self.at(FEW, k);
        let read = self.b.load(address);
        self.agreed.push(read);
        self.barrier();
    }

    /// All threads update a few elements.
    fn update_together(&mut self) {
        self.broadcast_value();
        let (v, mask) = (self.value(), self.int(BINS - 1));
        let bin = self.b.binary(BinaryOp::And, v, mask);
        let address = self.at(FEW, bin);
        let (op, v) = ([AtomicOp::Add, AtomicOp::Max, AtomicOp::Xor][self.dice.below(3) as usize], self.value());
        self.b.push(Op::Atomic(op, address, v), Type::I32);
        self.barrier();
        let read = self.b.load(address);
        self.values.push(read);
        self.barrier();
    }

    /// A loop with a uniform trip count.
    fn loop_together(&mut self, depth: u32) {
        let begin = self.int(0);
        let end = if self.dice.below(2) == 0 {
            let n = self.dice.below(8) as i64;
            self.int(n)
        } else {
            let (v, mask) = (self.agreed(), self.int(7));
            self.b.binary(BinaryOp::And, v, mask)
        };
        let body = self.b.body.add_block();
        let l = ForLoop::serial(vec![Range { begin, end }], body);
        let l = self.b.push(Op::For(Box::new(l)), Type::Unit);
        let back = self.b.set_cursor(body);
        let (agreed, values) = (self.agreed.len(), self.values.len());
        let k = self.b.push(Op::LoopIndex(l, 0), Type::I32);
        self.agreed.push(k);
        self.statements(3, depth - 1);
        if self.dice.below(4) == 0 {
            // The last statement. No synchronization follows it.
            self.leave(Agreement::None, Op::Continue);
        }
        self.agreed.truncate(agreed);
        self.values.truncate(values);
        self.b.set_cursor(back);
    }

    fn leave(&mut self, of: Agreement, how: Op) {
        let c = self.condition(of);
        let [yes, no] = [self.b.body.add_block(), self.b.body.add_block()];
        self.b.push(Op::If(c, yes, no), Type::Unit);
        let back = self.b.set_cursor(yes);
        self.b.push(how, Type::Unit);
        self.b.set_cursor(back);
        if of == Agreement::None {
            let (local, v) = (self.own[self.dice.below(3) as usize], self.computed(Agreement::None));
            self.b.store_local(local, v);
        }
    }

    /// A loop with a uniform exit.
    fn repeat_together(&mut self, depth: u32) {
        let local = self.b.body.add_local("rounds", Type::I32);
        let zero = self.int(0);
        self.b.store_local(local, zero);
        let body = self.b.body.add_block();
        self.b.push(Op::Loop(body), Type::Unit);
        let back = self.b.set_cursor(body);
        let (rounds, most) = (self.b.load_local(local), self.int(3));
        let is_done = self.b.binary(BinaryOp::Ge, rounds, most);
        let [yes, no] = [self.b.body.add_block(), self.b.body.add_block()];
        self.b.push(Op::If(is_done, yes, no), Type::Unit);
        let inside = self.b.set_cursor(yes);
        self.b.push(Op::Break, Type::Unit);
        self.b.set_cursor(inside);
        let one = self.int(1);
        let next = self.b.binary(BinaryOp::Add, rounds, one);
        self.b.store_local(local, next);
        self.statements(3, depth - 1);
        if self.dice.below(3) == 0 {
            self.leave(Agreement::Block, Op::Break);
        }
        self.statements(2, 0);
        self.b.set_cursor(back);
    }
}
