//! Runs kernels of the IR, slowly and as its semantics say: f64 and integers, arrays of one axis, parallel loops in
//! order.
//!
//! An index outside of its array panics, so that an adjoint which takes more of its store than was counted does.

use octants_ir::{
    AtomicOp, BinaryOp, BlockId, Body, BufferId, Const, FuncId, Kernel, LocalId, Op, ReduceOp, Scalar, Type, UnaryOp,
    ValueId,
};

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Leaf {
    Int(i64),
    Float(f64),
}

impl Leaf {
    pub fn int(self) -> i64 {
        match self {
            Leaf::Int(i) => i,
            Leaf::Float(x) => panic!("{x} is no integer"),
        }
    }

    pub fn float(self) -> f64 {
        match self {
            Leaf::Float(x) => x,
            Leaf::Int(i) => panic!("{i} is no float"),
        }
    }
}

pub type Value = Vec<Leaf>;

/// The leaves of each buffer.
pub type Memory = Vec<Value>;

/// An address: what it is in, the first leaf there.
#[derive(Debug, Clone)]
enum Place {
    Local(usize, LocalId),
    Buffer(BufferId),
}

#[derive(Debug, Clone)]
struct Address(Place, usize);

enum Flow {
    Next,
    Break,
    Continue,
    Return(Option<Value>),
}

struct Frame {
    values: Vec<Value>,
    addresses: Vec<Option<Address>>,
    indices: Vec<Vec<i64>>,
    locals: Vec<Value>,
    params: Vec<Param>,
}

#[derive(Clone)]
enum Param {
    Value(Value),
    Address(Address),
}

pub struct Interpreter<'a> {
    kernel: &'a Kernel,
    pub memory: Memory,
    frames: Vec<Frame>,
    /// No float was infinite or NaN so far.
    finite: bool,
}

/// Runs a kernel; what it returns is the result.
pub fn run(kernel: &Kernel, memory: &mut Memory, params: &[Leaf]) -> Option<Value> {
    run_to_end(kernel, memory, params).0
}

/// Runs a kernel and tells whether every float on the way was finite, also those that come to nothing.
pub fn stays_finite(kernel: &Kernel, memory: &mut Memory) -> bool {
    run_to_end(kernel, memory, &[]).1
}

fn run_to_end(kernel: &Kernel, memory: &mut Memory, params: &[Leaf]) -> (Option<Value>, bool) {
    let mut i = Interpreter { kernel, memory: std::mem::take(memory), frames: Vec::new(), finite: true };
    let params = params.iter().map(|p| Param::Value(vec![*p])).collect();
    let result = i.body(&kernel.body, params);
    *memory = i.memory;
    (result, i.finite)
}

fn zero(ty: &Type) -> Value {
    ty.leaves().iter().map(|s| if s.is_float() { Leaf::Float(0.0) } else { Leaf::Int(0) }).collect()
}

fn wrap(i: i64, s: Scalar) -> i64 {
    match s {
        Scalar::U1 => i & 1,
        Scalar::I32 => i as i32 as i64,
        Scalar::U32 => i as u32 as i64,
        _ => i,
    }
}

impl Interpreter<'_> {
    fn body(&mut self, body: &Body, params: Vec<Param>) -> Option<Value> {
        let n = body.insts.len();
        let locals = body.locals.iter().map(|l| zero(&l.ty)).collect();
        let (values, addresses, indices) = (vec![Vec::new(); n], vec![None; n], vec![Vec::new(); n]);
        self.frames.push(Frame { values, addresses, indices, locals, params });
        let flow = self.block(body, body.root);
        self.frames.pop();
        match flow {
            Flow::Return(v) => v,
            _ => None,
        }
    }

    fn frame(&mut self) -> &mut Frame {
        self.frames.last_mut().unwrap()
    }

    fn leaf(&mut self, v: ValueId) -> Leaf {
        self.frame().values[v.index()][0]
    }

    fn value(&mut self, v: ValueId) -> Value {
        self.frame().values[v.index()].clone()
    }

    fn address(&mut self, v: ValueId) -> Address {
        self.frame().addresses[v.index()].clone().unwrap()
    }

    fn memory(&mut self, a: &Address, leaves: usize) -> &mut [Leaf] {
        let all = match a.0 {
            Place::Local(frame, l) => &mut self.frames[frame].locals[l.index()],
            Place::Buffer(b) => &mut self.memory[b.index()],
        };
        &mut all[a.1..a.1 + leaves]
    }

    fn block(&mut self, body: &Body, block: BlockId) -> Flow {
        for &v in body.block(block) {
            let flow = self.inst(body, v);
            if !matches!(flow, Flow::Next) {
                return flow;
            }
        }
        Flow::Next
    }

    fn inst(&mut self, body: &Body, v: ValueId) -> Flow {
        let inst = body.inst(v);
        let ty = &inst.ty;
        let set = |i: &mut Self, value: Value| {
            i.finite &= !value.iter().any(|x| matches!(x, Leaf::Float(x) if !x.is_finite()));
            i.frame().values[v.index()] = value;
        };
        match &inst.op {
            Op::Const(Const::Int(c)) => set(self, vec![Leaf::Int(wrap(*c, ty.scalar().unwrap()))]),
            Op::Const(Const::Float(c)) => set(self, vec![Leaf::Float(*c)]),
            Op::Param(i) => match self.frame().params[*i as usize].clone() {
                Param::Value(value) => set(self, value),
                Param::Address(a) => self.frame().addresses[v.index()] = Some(a),
            },
            Op::Unary(op, x) => {
                let value = self.value(*x).into_iter().map(|x| unary(*op, x)).collect();
                set(self, value);
            }
            Op::Binary(op, x, y) => {
                let s = body.ty(*x).scalar().unwrap();
                let (x, y) = (self.value(*x), self.value(*y));
                set(self, x.into_iter().zip(y).map(|(x, y)| binary(*op, x, y, s)).collect());
            }
            Op::Select(c, x, y) => {
                let (c, x, y) = (self.value(*c), self.value(*x), self.value(*y));
                let chosen = |i: usize| if c[i.min(c.len() - 1)].int() != 0 { x[i] } else { y[i] };
                set(self, (0..x.len()).map(chosen).collect());
            }
            Op::Cast(x) => {
                let s = ty.scalar().unwrap();
                let value = self.value(*x).into_iter().map(|x| match x {
                    Leaf::Int(i) if s.is_float() => Leaf::Float(i as f64),
                    Leaf::Int(i) if s == Scalar::U1 => Leaf::Int(i64::from(i != 0)),
                    Leaf::Int(i) => Leaf::Int(wrap(i, s)),
                    Leaf::Float(x) if s.is_float() => Leaf::Float(x),
                    Leaf::Float(x) => Leaf::Int(wrap(x as i64, s)),
                });
                let value = value.collect();
                set(self, value);
            }
            Op::Bitcast(x) => {
                let value = match self.leaf(*x) {
                    Leaf::Float(x) => Leaf::Int(x.to_bits() as i64),
                    Leaf::Int(i) if ty.scalar().unwrap().is_float() => Leaf::Float(f64::from_bits(i as u64)),
                    i => i,
                };
                set(self, vec![value]);
            }
            Op::MakeTensor(parts) | Op::MakeStruct(parts) => {
                let value = parts.iter().flat_map(|p| self.value(*p)).collect();
                set(self, value);
            }
            Op::Splat(x) => {
                let x = self.leaf(*x);
                set(self, vec![x; ty.leaf_count()]);
            }
            Op::Extract(x, i) => {
                let x = self.value(*x);
                set(self, vec![x[*i as usize]]);
            }
            Op::ExtractDyn(x, indices) => {
                let at = self.position(body.ty(*x), indices);
                let x = self.value(*x);
                set(self, vec![x[at]]);
            }
            Op::Fold(ReduceOp::Add, x) => {
                let sum = self.value(*x).into_iter().map(Leaf::float).sum();
                set(self, vec![Leaf::Float(sum)]);
            }
            Op::Shape(b, _) => {
                let leaves = self.kernel.buffers[b.index()].elem.leaf_count();
                let n = self.memory[b.index()].len() / leaves;
                set(self, vec![Leaf::Int(n as i64)]);
            }
            Op::LocalAddr(l) => {
                let here = Place::Local(self.frames.len() - 1, *l);
                self.frame().addresses[v.index()] = Some(Address(here, 0));
            }
            Op::BufferAddr(b, index) => {
                let i = usize::try_from(self.leaf(index[0]).int()).expect("a negative index");
                let leaves = self.kernel.buffers[b.index()].elem.leaf_count();
                assert!((i + 1) * leaves <= self.memory[b.index()].len(), "{i} is outside of {b}");
                self.frame().addresses[v.index()] = Some(Address(Place::Buffer(*b), i * leaves));
            }
            Op::ElementAddr(base, indices) => {
                let Type::Ref(tensor) = body.ty(*base) else { panic!() };
                let at = self.position(tensor, indices);
                let Address(place, first) = self.address(*base);
                self.frame().addresses[v.index()] = Some(Address(place, first + at));
            }
            Op::Load(a) | Op::VolatileLoad(a) => {
                let a = self.address(*a);
                let value = self.memory(&a, ty.leaf_count()).to_vec();
                set(self, value);
            }
            Op::Store(a, x) => {
                let (a, x) = (self.address(*a), self.value(*x));
                self.memory(&a, x.len()).copy_from_slice(&x);
            }
            Op::Atomic(op, a, x) => {
                let s = ty.scalar().unwrap();
                let (a, x) = (self.address(*a), self.value(*x));
                let op = match op {
                    AtomicOp::Add => Some(BinaryOp::Add),
                    AtomicOp::Sub => Some(BinaryOp::Sub),
                    AtomicOp::Min => Some(BinaryOp::Min),
                    AtomicOp::Max => Some(BinaryOp::Max),
                    AtomicOp::Exchange => None,
                    op => panic!("{op:?}"),
                };
                let memory = self.memory(&a, x.len());
                let old = memory.to_vec();
                memory.iter_mut().zip(x).for_each(|(m, x)| *m = op.map_or(x, |op| binary(op, *m, x, s)));
                set(self, old);
            }
            Op::If(c, yes, no) => {
                let block = if self.leaf(*c).int() != 0 { *yes } else { *no };
                return self.block(body, block);
            }
            Op::For(l) => {
                let bounds: Vec<(i64, i64)> =
                    l.dims.iter().map(|r| (self.leaf(r.begin).int(), self.leaf(r.end).int())).collect();
                return self.for_loop(body, v, l.body, &bounds);
            }
            Op::Loop(inner) => {
                for _ in 0..10_000 {
                    match self.block(body, *inner) {
                        Flow::Break => return Flow::Next,
                        Flow::Return(value) => return Flow::Return(value),
                        Flow::Next | Flow::Continue => {}
                    }
                }
                panic!("a loop without an end");
            }
            Op::LoopIndex(l, axis) => {
                let index = self.frame().indices[l.index()][*axis as usize];
                set(self, vec![Leaf::Int(index)]);
            }
            Op::Balance { number, .. } => {
                let number = self.value(*number);
                set(self, number);
            }
            Op::Break => return Flow::Break,
            Op::Continue => return Flow::Continue,
            Op::Return(value) => return Flow::Return(value.map(|v| self.value(v))),
            Op::Call(f, args) => {
                let value = self.call(body, *f, args);
                set(self, value.unwrap_or_default());
            }
            op => panic!("{op:?}"),
        }
        Flow::Next
    }

    fn call(&mut self, body: &Body, f: FuncId, args: &[ValueId]) -> Option<Value> {
        let args = args.iter().map(|a| match body.ty(*a) {
            Type::Ref(_) => Param::Address(self.address(*a)),
            _ => Param::Value(self.value(*a)),
        });
        let args = args.collect();
        let kernel = self.kernel;
        self.body(&kernel.functions[f.index()].body, args)
    }

    fn for_loop(&mut self, body: &Body, v: ValueId, inner: BlockId, bounds: &[(i64, i64)]) -> Flow {
        if bounds.iter().any(|(a, b)| a >= b) {
            return Flow::Next;
        }
        let mut index: Vec<i64> = bounds.iter().map(|b| b.0).collect();
        loop {
            self.frame().indices[v.index()] = index.clone();
            match self.block(body, inner) {
                Flow::Break => return Flow::Next,
                Flow::Return(value) => return Flow::Return(value),
                Flow::Next | Flow::Continue => {}
            }
            let mut axis = bounds.len();
            loop {
                if axis == 0 {
                    return Flow::Next;
                }
                axis -= 1;
                index[axis] += 1;
                if index[axis] < bounds[axis].1 {
                    break;
                }
                index[axis] = bounds[axis].0;
            }
        }
    }

    fn position(&mut self, tensor: &Type, indices: &[ValueId]) -> usize {
        let mut at = 0;
        for (i, n) in indices.iter().zip(tensor.shape()) {
            let i = self.leaf(*i).int();
            assert!((0..i64::from(n)).contains(&i), "component {i} of {tensor}");
            at = at * n as usize + i as usize;
        }
        at
    }
}

fn unary(op: UnaryOp, x: Leaf) -> Leaf {
    match (op, x) {
        (UnaryOp::Neg, Leaf::Float(x)) => Leaf::Float(-x),
        (UnaryOp::Neg, Leaf::Int(i)) => Leaf::Int(-i),
        (UnaryOp::Sin, Leaf::Float(x)) => Leaf::Float(x.sin()),
        (UnaryOp::Cos, Leaf::Float(x)) => Leaf::Float(x.cos()),
        (UnaryOp::Tanh, Leaf::Float(x)) => Leaf::Float(x.tanh()),
        (UnaryOp::Exp, Leaf::Float(x)) => Leaf::Float(x.exp()),
        (UnaryOp::LogicNot, Leaf::Int(i)) => Leaf::Int(i64::from(i == 0)),
        (op, x) => panic!("{op:?} {x:?}"),
    }
}

fn binary(op: BinaryOp, x: Leaf, y: Leaf, s: Scalar) -> Leaf {
    use BinaryOp::*;
    let truth = |b: bool| Leaf::Int(i64::from(b));
    match (x, y) {
        (Leaf::Float(x), Leaf::Float(y)) => Leaf::Float(match op {
            Add => x + y,
            Sub => x - y,
            Mul => x * y,
            Div => x / y,
            Min => x.min(y),
            Max => x.max(y),
            Eq => return truth(x == y),
            Lt => return truth(x < y),
            Gt => return truth(x > y),
            op => panic!("{op:?} of floats"),
        }),
        (Leaf::Int(x), Leaf::Int(y)) => {
            let value = match op {
                Add => x.wrapping_add(y),
                Sub => x.wrapping_sub(y),
                Mul => x.wrapping_mul(y),
                Div => x / y,
                Rem => x % y,
                Mod => x.rem_euclid(y),
                Min => x.min(y),
                Max => x.max(y),
                And => x & y,
                Or => x | y,
                Eq => return truth(x == y),
                Ne => return truth(x != y),
                Lt => return truth(x < y),
                Le => return truth(x <= y),
                Gt => return truth(x > y),
                Ge => return truth(x >= y),
                op => panic!("{op:?} of integers"),
            };
            Leaf::Int(wrap(value, s))
        }
        (x, y) => panic!("{op:?} of {x:?} and {y:?}"),
    }
}
