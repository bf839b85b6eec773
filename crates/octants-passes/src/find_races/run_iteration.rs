//! [`Run`]: evaluates an iteration on known values: scalars of the launch, loop indices, and what is computed from
//! them. Records the accesses that certainly happen.
//!
//! If the direction of a branch is unknown and it may leave the iteration, evaluation stops there.

mod contents;
mod memory;

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use octants_analysis::{Effects, body_effects, function_effects};
use octants_ir::{BlockId, Body, BufferId, Const, ForLoop, FuncId, Kernel, Layout, LocalId, Op, Type, ValueId};

use super::flow::Flow;
use super::observed::{Observed, Seen};
use super::shared_locals::SharedLocal;
use super::value::{Address, Place, Value, map, map_two, token};
use super::{Doing, LaunchValues};
use crate::evaluate;
use memory::Memory;

/// Maximum number of rounds of an inner loop that are run.
const MOST_ROUNDS: usize = 80;
/// Maximum depth of calls that are followed.
const DEEPEST: usize = 16;

struct Frame<'a> {
    body: &'a Body,
    /// The number of the body: 0 is the kernel's, others are functions'.
    number: usize,
    values: HashMap<ValueId, Value>,
    locals: HashMap<LocalId, Value>,
    indices: HashMap<ValueId, Vec<i64>>,
    args: Vec<Value>,
    returned: Option<Value>,
}

/// The known locals and values.
#[derive(Clone, Default)]
pub(super) struct State(HashMap<LocalId, Value>, HashMap<ValueId, Value>);

/// Code that is run.
pub(super) struct Run<'a> {
    kernel: &'a Kernel,
    launch: &'a dyn LaunchValues,
    functions: Vec<Effects>,
    frames: Vec<Frame<'a>>,
    /// Locals and values of the kernel when a loop begins.
    outside: State,
    /// Buffers that the loop writes.
    written: HashSet<BufferId>,
    /// What was stored to them, if all iterations are run.
    memory: Option<Memory>,
    /// Locals of the kernel that the iterations of the loop share.
    shared: HashMap<LocalId, SharedLocal>,
    fresh: u64,
    pub steps_left: u32,
    /// All rounds of inner loops are run.
    pub runs_all: bool,
    iteration: Rc<[i64]>,
    observed: Option<Observed>,
}

impl<'a> Run<'a> {
    pub fn new(kernel: &'a Kernel, launch: &'a dyn LaunchValues) -> Run<'a> {
        let functions = function_effects(&kernel.functions);
        let mut written: HashSet<BufferId> =
            body_effects(&kernel.body, &functions).access.writes.iter().copied().collect();
        let all = (0..kernel.buffers.len() as u32).map(BufferId);
        let of = |b: BufferId| &kernel.buffers[b.index()];
        let shares = |w: BufferId, b: BufferId| launch.overlap(w, b) || of(w).shares_memory(of(b));
        let also: Vec<BufferId> = all.filter(|b| written.iter().any(|w| shares(*w, *b))).collect();
        written.extend(also);
        let mut run = Run {
            kernel,
            launch,
            functions,
            frames: Vec::new(),
            outside: Default::default(),
            written,
            memory: None,
            shared: HashMap::new(),
            fresh: 0,
            steps_left: 0,
            runs_all: false,
            iteration: Rc::from([]),
            observed: None,
        };
        run.enter(&kernel.body, 0, Vec::new());
        run
    }

    fn enter(&mut self, body: &'a Body, number: usize, args: Vec<Value>) {
        let (values, locals, indices) = Default::default();
        self.frames.push(Frame { body, number, values, locals, indices, args, returned: None });
    }

    fn top(&mut self) -> &mut Frame<'a> {
        let last = self.frames.len() - 1;
        &mut self.frames[last]
    }

    fn body(&self) -> &'a Body {
        self.frames[self.frames.len() - 1].body
    }

    /// An unknown value.
    fn unknown(&mut self) -> Value {
        self.fresh += 1;
        Value::Token(token(("fresh", self.fresh)))
    }

    /// The value of an instruction that has been run.
    fn value(&self, v: ValueId) -> Value {
        let frame = &self.frames[self.frames.len() - 1];
        frame.values.get(&v).cloned().unwrap_or_else(|| Value::Token(token(("value", frame.number, v))))
    }

    pub fn truth(&self, v: ValueId) -> Option<bool> {
        self.value(v).integer().map(|i| i != 0)
    }

    /// The bounds of a loop, if they are known.
    pub fn ranges(&self, l: &ForLoop) -> Option<Vec<(i64, i64)>> {
        l.dims.iter().map(|d| Some((self.value(d.begin).integer()?, self.value(d.end).integer()?))).collect()
    }

    /// Forgets the locals to which a block, which may or may not have run, stores.
    pub fn forget_stores(&mut self, block: BlockId) {
        let body = self.body();
        let mut stored = HashSet::new();
        body.visit(block, &mut |_, inst| {
            inst.op.for_each_operand(|u| {
                let is_written = !matches!(inst.op, Op::Load(_) | Op::ElementAddr(..) | Op::MemberAddr(..));
                if is_written
                    && matches!(body.ty(u), Type::Ref(_))
                    && let octants_analysis::Place::Local(l) = octants_analysis::trace_address(body, u)
                {
                    stored.insert(l);
                }
            });
        });
        for l in stored {
            let value = self.unknown();
            self.top().locals.insert(l, value);
        }
    }

    /// The known locals and values.
    pub fn state(&mut self) -> State {
        let frame = self.top();
        State(frame.locals.clone(), frame.values.clone())
    }

    /// Restores the known values.
    pub fn set_state(&mut self, state: State) {
        (self.top().locals, self.top().values) = (state.0, state.1);
    }

    /// To be called before iterations of a loop are run.
    pub fn begin_loop(&mut self, v: ValueId, l: &ForLoop, shared: HashMap<LocalId, SharedLocal>) {
        self.forget_stores(l.body);
        self.shared = shared;
        let frame = self.top();
        frame.indices.remove(&v);
        self.outside = State(frame.locals.clone(), frame.values.clone());
    }

    pub fn run_iteration(&mut self, v: ValueId, l: &ForLoop, iteration: Vec<i64>, observed: &mut Observed) {
        let outside = self.outside.clone();
        self.set_state(outside);
        self.iteration = iteration.as_slice().into();
        self.top().indices.insert(v, iteration);
        self.observed = Some(std::mem::take(observed));
        self.block(l.body);
        self.frames.truncate(1);
        *observed = self.observed.take().unwrap_or_default();
    }

    /// Must be called after the iterations of a loop.
    pub fn end_loop(&mut self) {
        self.shared.clear();
    }

    fn block(&mut self, block: BlockId) -> Flow {
        for &v in self.body().block(block) {
            match self.step(v) {
                Flow::Next => {}
                flow => return flow,
            }
        }
        Flow::Next
    }

    /// As [`Run::step`]; records the accesses.
    pub fn step_observed(&mut self, v: ValueId, observed: &mut Observed) -> Flow {
        self.observed = Some(std::mem::take(observed));
        let flow = self.step(v);
        self.frames.truncate(1);
        *observed = self.observed.take().unwrap_or_default();
        flow
    }

    pub fn step(&mut self, v: ValueId) -> Flow {
        let Some(left) = self.steps_left.checked_sub(1) else { return self.ends() };
        self.steps_left = left;
        let body = self.body();
        let value = match &body.inst(v).op {
            Op::Break => return Flow::Break,
            Op::Continue => return Flow::Continue,
            Op::Return(value) => {
                let value = value.map(|v| self.value(v));
                self.top().returned = value;
                return Flow::Return(None);
            }
            Op::If(c, yes, no) => return self.branch(*c, *yes, *no),
            Op::For(l) => return self.inner_loop(v, l),
            Op::Loop(inner) => return self.endless(*inner),
            Op::Assert(c, _) if self.truth(*c) == Some(false) => return Flow::Ends,
            Op::Call(f, args) => match self.call(*f, args) {
                Ok(value) => value,
                Err(flow) => return flow,
            },
            Op::Store(a, value) => {
                let value = self.value(*value);
                self.store(v, *a, value);
                return Flow::Next;
            }
            Op::Atomic(_, a, _) | Op::AtomicCas(a, ..) => self.update(v, *a),
            Op::Load(a) => self.load(v, *a),
            op => self.compute(v, op),
        };
        self.top().values.insert(v, value);
        Flow::Next
    }

    fn branch(&mut self, c: ValueId, yes: BlockId, no: BlockId) -> Flow {
        if let Some(taken) = self.truth(c) {
            return self.block(if taken { yes } else { no });
        }
        let body = self.body();
        let mut leaves = false;
        for block in [yes, no] {
            body.visit(block, &mut |_, inst| leaves |= inst.op.is_terminator());
            self.forget_stores(block);
            self.lose_stores(block);
        }
        if leaves { self.ends() } else { Flow::Next }
    }

    fn inner_loop(&mut self, v: ValueId, l: &ForLoop) -> Flow {
        let Some(ranges) = self.ranges(l) else {
            return self.leave_unknown(l);
        };
        if ranges.iter().any(|(begin, end)| begin >= end) {
            return Flow::Next;
        }
        let mut at: Vec<i64> = ranges.iter().map(|r| r.0).collect();
        for _ in 0..self.most_rounds() {
            self.top().indices.insert(v, at.clone());
            match self.block(l.body) {
                Flow::Next | Flow::Continue => {}
                Flow::Break => return Flow::Next,
                flow => return flow,
            }
            let mut axis = ranges.len();
            loop {
                let Some(inner) = axis.checked_sub(1) else { return Flow::Next };
                axis = inner;
                at[axis] += 1;
                if at[axis] < ranges[axis].1 {
                    break;
                }
                at[axis] = ranges[axis].0;
            }
        }
        // Later rounds may change the locals arbitrarily.
        self.leave_unknown(l)
    }

    /// Continues after an inner loop of which some rounds were not run.
    fn leave_unknown(&mut self, l: &ForLoop) -> Flow {
        self.forget_stores(l.body);
        self.lose_stores(l.body);
        let mut returns = false;
        self.body().visit(l.body, &mut |_, inst| returns |= matches!(inst.op, Op::Return(_)));
        if returns { self.ends() } else { Flow::Next }
    }

    fn most_rounds(&self) -> usize {
        if self.runs_all { usize::MAX } else { MOST_ROUNDS }
    }

    /// The integers that the launch is given.
    pub fn integer_params(&self) -> impl Iterator<Item = i64> + use<'_, 'a> {
        let value = |p: u32| match self.launch.param(p, 0) {
            Some(Const::Int(i)) => Some(i),
            _ => None,
        };
        (0..self.kernel.params.len() as u32).filter_map(value)
    }

    fn endless(&mut self, inner: BlockId) -> Flow {
        for _ in 0..self.most_rounds() {
            match self.block(inner) {
                Flow::Next | Flow::Continue => {}
                Flow::Break => return Flow::Next,
                flow => return flow,
            }
        }
        self.ends()
    }

    fn call(&mut self, f: FuncId, args: &[ValueId]) -> Result<Value, Flow> {
        if self.frames.len() >= DEEPEST {
            return Err(self.ends());
        }
        let args = args.iter().map(|a| self.value(*a)).collect();
        let function = &self.kernel.functions[f.index()];
        self.enter(&function.body, f.index() + 1, args);
        let flow = self.block(function.body.root);
        let frame = self.frames.pop();
        match flow {
            Flow::Ends => Err(Flow::Ends),
            _ => Ok(frame.and_then(|f| f.returned).unwrap_or(Value::Token(0))),
        }
    }

    fn address(&self, v: ValueId) -> Rc<Address> {
        match self.value(v) {
            Value::Address(a) => a,
            other => Rc::new(Address { place: Place::Other, path: None, token: other.token() }),
        }
    }

    fn load(&mut self, v: ValueId, a: ValueId) -> Value {
        let address = self.address(a);
        match &address.place {
            Place::Local(frame, l) => {
                if self.shared_local(*frame, *l).is_some_and(|s| s.is_read) {
                    self.observe(v, &address, Doing::Reads, 0);
                }
                let known = self.frames.get(*frame).and_then(|f| f.locals.get(l)).cloned();
                match (known, &address.path) {
                    (Some(known), Some(path)) => known.at(path),
                    _ => self.unknown(),
                }
            }
            Place::Buffer(b, _) => {
                self.observe(v, &address, Doing::Reads, 0);
                if self.written.contains(b) { self.stored(v, &address) } else { self.contents(v, &address) }
            }
            Place::Other => self.unknown(),
        }
    }

    fn store(&mut self, v: ValueId, a: ValueId, value: Value) {
        let address = self.address(a);
        match &address.place {
            Place::Local(frame, l) => {
                self.observe(v, &address, Doing::Writes, value.token());
                let old = self.frames.get(*frame).and_then(|f| f.locals.get(l)).cloned();
                let new = match (&address.path, old) {
                    (Some(path), _) if path.is_empty() => Some(value),
                    (Some(path), Some(old)) => old.with(path, value),
                    _ => None,
                };
                let shared = self.shared_local(*frame, *l);
                let new = new.filter(|_| shared.is_none_or(|s| !s.is_read)).unwrap_or_else(|| self.unknown());
                if let Some(frame) = self.frames.get_mut(*frame) {
                    frame.locals.insert(*l, new);
                }
            }
            Place::Buffer(..) => {
                self.observe(v, &address, Doing::Writes, value.token());
                self.remember(v, &address, &value);
            }
            Place::Other => {}
        }
    }

    fn shared_local(&self, frame: usize, l: LocalId) -> Option<SharedLocal> {
        if frame == 0 { self.shared.get(&l).copied() } else { None }
    }

    fn observe(&mut self, v: ValueId, address: &Address, doing: Doing, value: u64) {
        let Some(path) = address.path.clone() else { return };
        let (buffer, index, place) = match &address.place {
            Place::Buffer(b, Some(index)) => {
                let of = &self.kernel.buffers[b.index()];
                if of.space.is_temporary() || of.is_metadata || !self.is_inside(*b, index) {
                    return;
                }
                (*b, index.clone(), self.place(*b, index))
            }
            Place::Local(frame, l) => match self.shared_local(*frame, *l) {
                Some(local) => (local.name, Vec::new(), (token(("shared", l)), Vec::new())),
                None => return,
            },
            _ => return,
        };
        let frame = &self.frames[self.frames.len() - 1];
        let seen = Seen {
            buffer,
            place,
            index,
            path,
            doing,
            inst: (frame.number, v),
            span: frame.body.inst(v).span,
            value,
            iteration: self.iteration.clone(),
        };
        if let Some(observed) = &mut self.observed {
            observed.add(seen);
        }
    }

    /// Outside of a buffer, the target of an index is unknown.
    fn is_inside(&self, b: BufferId, index: &[i64]) -> bool {
        let offset = |axis: usize| match &self.kernel.buffers[b.index()].layout {
            Layout::Dense { offset, .. } => offset.get(axis).copied().unwrap_or(0),
            _ => 0,
        };
        index.iter().enumerate().all(|(axis, i)| {
            let first = offset(axis);
            self.extent(b, axis as u32).is_none_or(|n| (first..first.saturating_add(n)).contains(i))
        })
    }

    /// Equal for elements that are the same memory: scalars by address if it is known, and otherwise by array and
    /// index.
    fn place(&self, b: BufferId, index: &[i64]) -> (u64, Vec<i64>) {
        let of = &self.kernel.buffers[b.index()];
        let Some(address) = self.launch.address(b) else { return (u64::from(b.0), index.to_vec()) };
        let bytes: i64 = of.elem.leaves().iter().map(|s| i64::from(s.bytes())).sum();
        let row = |sum: i64, (i, axis): (&i64, u32)| sum.checked_mul(self.extent(b, axis)?)?.checked_add(*i);
        let step = |sum: i64, (i, axis): (&i64, u32)| {
            self.launch.stride(b, axis).and_then(|stride| sum.checked_add(i.checked_mul(stride)?))
        };
        let offset = match &of.layout {
            Layout::Contiguous => index.iter().zip(0..).try_fold(0, row).map(|position| position.wrapping_mul(bytes)),
            Layout::Strided => index.iter().zip(0..).try_fold(0, step),
            _ => None,
        };
        match offset {
            // Elements with parts are the same only as a whole: an array of scalars that overlaps has no such parts.
            Some(offset) => {
                let kind = if of.elem.leaf_count() == 1 { token("address") } else { token(("address", bytes)) };
                (kind, vec![(address as i64).wrapping_add(offset)])
            }
            None => {
                let axes = 0..of.ndim;
                (token((address, axes.map(|axis| self.extent(b, axis)).collect::<Vec<_>>())), index.to_vec())
            }
        }
    }

    fn extent(&self, b: BufferId, axis: u32) -> Option<i64> {
        match &self.kernel.buffers[b.index()].layout {
            Layout::Dense { shape, .. } => shape.get(axis as usize).and_then(|n| i64::try_from(*n).ok()),
            _ => self.launch.extent(b, axis),
        }
    }

    /// The value of an instruction that neither branches nor accesses memory.
    fn compute(&mut self, v: ValueId, op: &Op) -> Value {
        let body = self.body();
        let ty = body.ty(v);
        match op {
            Op::Const(c) => Value::Known(*c),
            Op::Param(p) => self.param(*p, ty),
            Op::Shape(b, axis) => match self.extent(*b, *axis) {
                Some(n) => Value::Known(Const::Int(n)),
                None => Value::Token(token(("shape", b, axis))),
            },
            Op::LoopIndex(l, axis) => {
                let known = self.top().indices.get(l).and_then(|at| at.get(*axis as usize)).copied();
                known.map_or_else(|| self.unknown(), |i| Value::Known(Const::Int(i)))
            }
            Op::Unary(f, a) => {
                let s = body.ty(*a).scalar();
                map(&self.value(*a), &|c| evaluate::unary(*f, c, s?), &("unary", f))
            }
            Op::Cast(a) => {
                let (from, to) = (body.ty(*a).scalar(), ty.scalar());
                map(&self.value(*a), &|c| evaluate::cast(c, from?, to?), &("cast", to))
            }
            Op::Binary(f, a, b) => {
                let s = body.ty(*a).scalar();
                map_two(&self.value(*a), &self.value(*b), &|a, b| evaluate::binary(*f, a, b, s?), &("binary", f))
            }
            Op::Select(c, a, b) => {
                let (c, a, b) = (self.value(*c), self.value(*a), self.value(*b));
                match c {
                    Value::Known(Const::Int(c)) => {
                        if c != 0 {
                            a
                        } else {
                            b
                        }
                    }
                    c => Value::Token(token(("select", c.token(), a.token(), b.token()))),
                }
            }
            Op::MakeTensor(parts) | Op::MakeStruct(parts) => {
                Value::Parts(parts.iter().map(|p| self.value(*p)).collect())
            }
            Op::Splat(a) => Value::Parts(vec![self.value(*a); ty.leaf_count()].into()),
            Op::Extract(a, i) => self.value(*a).part(*i as usize),
            Op::ExtractDyn(a, at) => match self.position(&body.ty(*a).shape(), at) {
                Some(i) => self.value(*a).part(i as usize),
                None => self.token_of(v, op),
            },
            Op::Freeze(a) => self.value(*a),
            Op::LocalAddr(l) => {
                let frame = self.frames.len() - 1;
                self.make_address(Place::Local(frame, *l), Some(Vec::new()), token(("local", frame, l)))
            }
            Op::BufferAddr(b, at) => {
                let values: Vec<Value> = at.iter().map(|i| self.value(*i)).collect();
                let tokens: Vec<u64> = values.iter().map(Value::token).collect();
                let index = values.iter().map(Value::integer).collect();
                self.make_address(Place::Buffer(*b, index), Some(Vec::new()), token(("element", b, tokens)))
            }
            Op::ElementAddr(base, at) => {
                let shape = match body.ty(*base) {
                    Type::Ref(of) => of.shape(),
                    _ => Vec::new(),
                };
                let position = self.position(&shape, at);
                let tokens: Vec<u64> = at.iter().map(|i| self.value(*i).token()).collect();
                self.part_address(*base, position, token(tokens))
            }
            Op::MemberAddr(base, i) => self.part_address(*base, Some(i64::from(*i)), u64::from(*i)),
            Op::FrameAddr(_) => Value::Token(token(("frame", v))),
            Op::MatMul(..) | Op::Transpose(_) | Op::Fold(..) | Op::Bitcast(_) => self.token_of(v, op),
            _ => self.unknown(),
        }
    }

    fn token_of(&mut self, v: ValueId, op: &Op) -> Value {
        let mut parts = vec![token(("op", self.body().ty(v), std::mem::discriminant(op)))];
        op.for_each_operand(|u| parts.push(self.value(u).token()));
        Value::Token(token(parts))
    }

    fn make_address(&self, place: Place, path: Option<Vec<i64>>, token: u64) -> Value {
        Value::Address(Rc::new(Address { place, path, token }))
    }

    fn part_address(&self, base: ValueId, position: Option<i64>, of: u64) -> Value {
        let base = self.address(base);
        let path = base.path.as_ref().zip(position).map(|(path, i)| path.iter().copied().chain([i]).collect());
        self.make_address(base.place.clone(), path, token((base.token, of)))
    }

    /// The row-major position of a component.
    fn position(&self, shape: &[u32], at: &[ValueId]) -> Option<i64> {
        if shape.len() != at.len() {
            return None;
        }
        shape.iter().zip(at).try_fold(0, |sum: i64, (n, i)| {
            let i = self.value(*i).integer().filter(|i| (0..i64::from(*n)).contains(i))?;
            Some(sum * i64::from(*n) + i)
        })
    }

    fn param(&mut self, p: u32, ty: &Type) -> Value {
        let frame = self.top();
        if frame.number > 0 {
            return frame.args.get(p as usize).cloned().unwrap_or(Value::Token(token(("argument", p))));
        }
        let leaf = |leaf: u32| match self.launch.param(p, leaf) {
            Some(c) => Value::Known(c),
            None => Value::Token(token(("param", p, leaf))),
        };
        match ty {
            Type::Scalar(_) => leaf(0),
            Type::Vector(..) | Type::Matrix(..) => Value::Parts((0..ty.leaf_count() as u32).map(leaf).collect()),
            _ => Value::Token(token(("param", p))),
        }
    }
}
