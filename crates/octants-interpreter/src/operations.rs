//! The value of each operation that neither moves control nor waits for other threads.

use octants_ir::{AtomicOp, Body, BufferId, Const, GridValue, Inst, Op, Scalar, TextPart, Type, ValueId};

use crate::arithmetic::{binary, cast, unary};
use crate::machine::Machine;
use crate::products::plain_index;
use crate::random::Draws;
use crate::scalar::{Leaf, float_bits, int_bits};
use crate::thread::Thread;
use crate::thread_memory::Access;
use crate::value::{Address, Base, Value};

const NEVER_WRITTEN: &str = "memory of its block or thread that was never written";

impl<'a> Machine<'a> {
    /// Computes an instruction; `None` if it is none of these.
    pub(crate) fn compute(&mut self, t: &mut Thread<'a>, v: ValueId) -> Result<Option<Value>, String> {
        let inst = t.here().body.inst(v);
        if t.has_undefined
            && let Some(value) = undefined_operands(t, inst)?
        {
            return Ok(Some(value));
        }
        if let Some(leaves) = self.number(t, inst)? {
            self.look_at(&leaves, inst.ty.scalar());
            return Ok(Some(Value::of(leaves)));
        }
        if let Some(address) = self.address(t, &inst.op)? {
            return Ok(Some(Value::Address(address)));
        }
        self.memory_operation(t, v, inst)
    }

    /// Operations on numbers only.
    fn number(&mut self, t: &mut Thread<'a>, inst: &'a Inst) -> Result<Option<Vec<u64>>, String> {
        let body = t.here().body;
        let ty = &inst.ty;
        let scalar = |v: ValueId| body.ty(v).scalar().expect("a verified operand is a scalar or tensor");
        let own = || ty.scalar().expect("a verified result is a scalar or tensor");
        Ok(Some(match &inst.op {
            Op::Const(Const::Int(c)) => vec![int_bits(i128::from(*c), own())],
            Op::Const(Const::Float(c)) => vec![float_bits(*c, own())],
            Op::Unary(op, x) => {
                let s = scalar(*x);
                t.leaves(*x).iter().map(|x| unary(*op, *x, s)).collect::<Result<_, _>>()?
            }
            Op::Binary(op, x, y) => {
                let s = scalar(*x);
                t.leaves(*x).iter().zip(t.leaves(*y)).map(|(a, b)| binary(*op, *a, *b, s)).collect::<Result<_, _>>()?
            }
            Op::Select(c, x, y) => {
                let (c, x, y) = (t.leaves(*c), t.leaves(*x), t.leaves(*y));
                (0..x.len()).map(|i| if c[i.min(c.len() - 1)] != 0 { x[i] } else { y[i] }).collect()
            }
            Op::Cast(x) => t.leaves(*x).iter().map(|b| cast(*b, scalar(*x), own())).collect(),
            Op::Bitcast(x) | Op::Freeze(x) => t.leaves(*x).to_vec(),
            Op::MakeTensor(parts) | Op::MakeStruct(parts) => {
                parts.iter().flat_map(|p| t.leaves(*p).iter().copied()).collect()
            }
            Op::Splat(x) => vec![t.bits(*x); ty.leaf_count()],
            Op::Extract(x, i) => {
                let (first, count) = part(body.ty(*x), *i);
                t.leaves(*x)[first..first + count].to_vec()
            }
            Op::ExtractDyn(x, indices) => {
                let at = component(t, body.ty(*x), indices)?;
                vec![t.leaves(*x)[at]]
            }
            Op::MatMul(x, y) => product(t, body, *x, *y)?,
            Op::Transpose(x) => {
                let [n, m] = body.ty(*x).shape()[..] else { return Err("a matrix is transposed".into()) };
                let x = t.leaves(*x);
                (0..m).flat_map(|j| (0..n).map(move |i| x[(i * m + j) as usize])).collect()
            }
            Op::Fold(op, x) => {
                let s = scalar(*x);
                let mut rest = t.leaves(*x).iter();
                let first = *rest.next().expect("a tensor has a component");
                vec![rest.try_fold(first, |sum, x| binary(op.binary(), sum, *x, s))?]
            }
            Op::Shape(b, axis) => {
                let shape = self.memory.shape(*b).ok_or("an array that was not given")?;
                vec![int_bits(i128::from(shape[*axis as usize]), own())]
            }
            Op::Grid(g) => vec![u64::from(self.grid_value(t, *g))],
            Op::FragmentIndex(e) => {
                let [lane, size] = [GridValue::Lane, GridValue::SubgroupSize].map(|g| self.grid_value(t, g));
                vec![u64::from(plain_index(*e, lane, size))]
            }
            Op::Random => vec![t.draws.next(own(), self.task, self.key)],
            Op::RandomAt(index, word) => {
                let (linear, drawn) = (t.leaves(*index)[0], t.leaves(*word)[0] as u32);
                vec![Draws { linear, drawn }.next(own(), self.task, self.key)]
            }
            Op::Clock => vec![self.steps],
            Op::LoopIndex(l, axis) => vec![int_bits(i128::from(t.leaves(*l)[*axis as usize] as i64), own())],
            // The own number is one that a thread may get.
            Op::Balance { number, .. } => t.leaves(*number).to_vec(),
            Op::AddressBits(_) => return Err("addresses cannot be converted to integers in the interpreter".into()),
            _ => return Ok(None),
        }))
    }

    fn grid_value(&self, t: &Thread<'a>, value: GridValue) -> u32 {
        let grid = &self.block.grid;
        match value {
            GridValue::Thread => t.index,
            GridValue::BlockSize => grid.block_size,
            GridValue::Block => self.block.index,
            GridValue::Blocks => grid.blocks,
            GridValue::Lane => t.index % grid.subgroup_size,
            GridValue::SubgroupSize => grid.subgroup_size,
        }
    }

    fn address(&mut self, t: &mut Thread<'a>, op: &Op) -> Result<Option<Address>, String> {
        let body = t.here().body;
        let at = |base| Some(Address { base, leaf: 0 });
        Ok(match op {
            Op::LocalAddr(l) => at(Base::Local(t.activations.len() - 1, *l)),
            Op::FrameAddr(slot) => at(Base::Frame(*slot)),
            Op::BufferAddr(b, index) => at(self.element(t, *b, index)),
            Op::ElementAddr(base, indices) => {
                let mut a = t.address(*base);
                let Type::Ref(tensor) = body.ty(*base) else { return Err("no address".into()) };
                match component(t, tensor, indices) {
                    Ok(at) => a.leaf += at,
                    Err(what) => a.base = Base::Outside(what.into()),
                }
                Some(a)
            }
            Op::MemberAddr(base, member) => {
                let mut a = t.address(*base);
                let Type::Ref(of) = body.ty(*base) else { return Err("no address".into()) };
                a.leaf += part(of, *member).0;
                Some(a)
            }
            _ => None,
        })
    }

    fn element(&self, t: &Thread<'a>, b: BufferId, index: &[ValueId]) -> Base {
        let index: Vec<i64> = index.iter().map(|i| t.int(*i)).collect();
        self.memory.locate(b, &index)
    }

    fn memory_operation(&mut self, t: &mut Thread<'a>, v: ValueId, inst: &'a Inst) -> Result<Option<Value>, String> {
        let body = t.here().body;
        let leaves = |t: &Thread<'a>, v: ValueId| t.leaves(v).to_vec();
        let found = match &inst.op {
            Op::Param(i) => return Ok(Some(t.here().params[*i as usize].clone())),
            Op::Load(a) | Op::VolatileLoad(a) => {
                let access = if matches!(inst.op, Op::Load(_)) { Access::Read } else { Access::Atomic };
                let a = t.address(*a);
                match self.read(t, &a, &inst.ty.leaves(), access)? {
                    Some(leaves) => leaves,
                    None => return Ok(Some(t.undefined(v))),
                }
            }
            Op::Store(a, x) => {
                let (a, x_leaves) = (t.address(*a), leaves(t, *x));
                self.write(t, &a, &body.ty(*x).leaves(), &x_leaves, Access::Write)?;
                Vec::new()
            }
            Op::VectorLoad(a) => {
                let a = t.address(*a);
                match self.read(t, &side_by_side(a), &inst.ty.leaves(), Access::Read)? {
                    Some(leaves) => leaves,
                    None => return Ok(Some(t.undefined(v))),
                }
            }
            Op::VectorStore(a, x) => {
                let (a, x_leaves) = (t.address(*a), leaves(t, *x));
                self.write(t, &side_by_side(a), &body.ty(*x).leaves(), &x_leaves, Access::Write)?;
                Vec::new()
            }
            Op::Prefetch(_) => Vec::new(),
            Op::Atomic(op, a, x) => {
                let (a, x) = (t.address(*a), leaves(t, *x));
                self.update(t, &a, &inst.ty.leaves(), *op, &x)?
            }
            Op::AtomicCas(a, expected, desired) => {
                let (a, scalars) = (t.address(*a), inst.ty.leaves());
                let (expected, desired) = (leaves(t, *expected), leaves(t, *desired));
                let old = self.read(t, &a, &scalars, Access::Atomic)?.ok_or(NEVER_WRITTEN)?;
                if old == expected {
                    self.write(t, &a, &scalars, &desired, Access::Atomic)?;
                }
                old
            }
            Op::Print(parts) => {
                let text = text(t, parts);
                self.printed.push(text);
                Vec::new()
            }
            Op::Fence(_) | Op::Section(_) => Vec::new(),
            _ => return Ok(None),
        };
        Ok(Some(Value::of(found)))
    }

    /// Updates memory; returns the old value.
    pub(crate) fn update(
        &mut self,
        t: &mut Thread<'a>,
        a: &Address,
        scalars: &[Scalar],
        op: AtomicOp,
        x: &[u64],
    ) -> Result<Vec<u64>, String> {
        let old = self.read(t, a, scalars, Access::Atomic)?.ok_or(NEVER_WRITTEN)?;
        let new: Vec<u64> = match op.binary() {
            None => x.to_vec(),
            Some(op) => {
                let operands = old.iter().zip(x).zip(scalars);
                operands.map(|((old, x), s)| binary(op, *old, *x, *s)).collect::<Result<_, _>>()?
            }
        };
        self.look_at(&new, scalars.first().copied());
        self.write(t, a, scalars, &new, Access::Atomic)?;
        Ok(old)
    }
}

/// The scalar at an address and all that follow it in memory.
fn side_by_side(a: Address) -> Address {
    match &a.base {
        Base::Components(all) => {
            let (region, offset) = all[a.leaf];
            Address { base: Base::Element(region, offset), leaf: 0 }
        }
        _ => a,
    }
}

/// The result of an instruction with an undefined operand, if that is allowed.
fn undefined_operands(t: &Thread<'_>, inst: &Inst) -> Result<Option<Value>, String> {
    let is_undefined = |v: ValueId| matches!(t.value(v), Value::Undefined(_));
    match &inst.op {
        Op::Select(c, x, y) if t.leaves(*c).len() == 1 => {
            let chosen = if t.holds(*c) { *x } else { *y };
            Ok((is_undefined(*x) || is_undefined(*y)).then(|| t.value(chosen).clone()))
        }
        Op::Freeze(x) if is_undefined(*x) => Ok(Some(Value::of(vec![0; inst.ty.leaf_count()]))),
        op => {
            let mut found = None;
            op.for_each_operand(|v| {
                if let Value::Undefined(load) = t.value(v) {
                    found = Some(*load);
                }
            });
            found.map_or(Ok(None), |load| Err(format!("uses {load}, which is {NEVER_WRITTEN}")))
        }
    }
}

/// The first leaf of a component or member, and how many it has.
fn part(ty: &Type, i: u32) -> (usize, usize) {
    match ty {
        Type::Struct(s) => {
            let first = s.members[..i as usize].iter().map(|(_, t)| t.leaf_count()).sum();
            (first, s.members[i as usize].1.leaf_count())
        }
        _ => (i as usize, 1),
    }
}

/// The row-major position of a component.
fn component(t: &Thread<'_>, tensor: &Type, indices: &[ValueId]) -> Result<usize, String> {
    let mut at = 0;
    for (i, n) in indices.iter().zip(tensor.shape()) {
        let (i, n) = (t.int(*i), i64::from(n));
        if !(0..n).contains(&i) {
            return Err(format!("component {i} is out of bounds of {tensor}"));
        }
        at = at * n + i;
    }
    Ok(at as usize)
}

/// A product of matrices or of a matrix and a vector, summed in the order of indices.
fn product(t: &Thread<'_>, body: &Body, x: ValueId, y: ValueId) -> Result<Vec<u64>, String> {
    let (tx, ty) = (body.ty(x), body.ty(y));
    let s = tx.scalar().ok_or("a product of matrices")?;
    let (rows, inner) = match tx.shape()[..] {
        [n, k] => (n, k),
        [k] => (1, k),
        _ => return Err("a product of matrices".into()),
    };
    let columns = match ty.shape()[..] {
        [_, m] => m,
        _ => 1,
    };
    let (x, y) = (t.leaves(x), t.leaves(y));
    let mut out = Vec::new();
    for i in 0..rows {
        for j in 0..columns {
            let term = |k: u32| {
                let (a, b) = (x[(i * inner + k) as usize], y[(k * columns + j) as usize]);
                binary(octants_ir::BinaryOp::Mul, a, b, s)
            };
            let first = term(0)?;
            out.push((1..inner).try_fold(first, |sum, k| binary(octants_ir::BinaryOp::Add, sum, term(k)?, s))?);
        }
    }
    Ok(out)
}

/// A printed line or a message; formats are left to the host.
pub(crate) fn text(t: &Thread<'_>, parts: &[TextPart]) -> String {
    let value = |v: ValueId| {
        let scalars = t.here().body.ty(v).leaves();
        let all: Vec<String> = t.leaves(v).iter().zip(scalars).map(|(bits, s)| number(*bits, s)).collect();
        if all.len() == 1 { all.concat() } else { format!("[{}]", all.join(", ")) }
    };
    parts
        .iter()
        .map(|p| match p {
            TextPart::Text(text) => text.clone(),
            TextPart::Once | TextPart::Race => String::new(),
            TextPart::Value(v, _) => value(*v),
            TextPart::Choice(v, texts) => {
                let number = t.leaves(*v).first().map_or(0, |bits| *bits as u32);
                texts.get(number as usize).cloned().unwrap_or_default()
            }
        })
        .collect()
}

fn number(bits: u64, s: Scalar) -> String {
    match Leaf::from_bits(bits, s) {
        Leaf::Int(i) if s == Scalar::U64 => (i as u64).to_string(),
        Leaf::Int(i) => i.to_string(),
        Leaf::Float(x) => format!("{x:?}"),
    }
}
