//! Instructions that yield values: dispatches each operation to the function that lowers it.

use octants_ir::{Const, LocalId, Op, Scalar, Type, ValueId};

use crate::emit::V;
use crate::lowering::{BodyKind, Lowering, Val};

/// Every driver allocates roots at multiples of this.
const ROOT_ALIGNMENT: u32 = 64;

impl Lowering<'_, '_> {
    /// The value of an instruction that is not control flow; `None` for one that yields nothing.
    pub fn value_of(&mut self, v: ValueId) -> Option<Val> {
        if let Some(value) = self.vector_value(v) {
            return Some(value);
        }
        let body = self.body;
        let inst = body.inst(v);
        let ty = &inst.ty;
        let leaves = match &inst.op {
            Op::Const(c) => vec![self.constant(*c, ty)],
            Op::Param(i) => return Some(self.param(*i as usize)),
            Op::Unary(op, a) => {
                let s = self.scalar_of(*a);
                self.leaves(*a).into_iter().map(|x| self.unary(*op, s, x)).collect()
            }
            Op::Binary(op, a, b) => {
                let s = self.scalar_of(*a);
                self.leaves(*a).into_iter().zip(self.leaves(*b)).map(|(x, y)| self.binary(*op, s, x, y)).collect()
            }
            Op::Select(c, a, b) => {
                let c = self.leaves(*c);
                let (a, b) = (self.leaves(*a), self.leaves(*b));
                a.into_iter()
                    .zip(b)
                    .enumerate()
                    .map(|(i, (x, y))| self.e.select(if c.len() == 1 { c[0] } else { c[i] }, x, y))
                    .collect()
            }
            Op::Cast(a) => {
                let (from, to) = (self.scalar_of(*a), self.scalar_of(v));
                self.leaves(*a).into_iter().map(|x| self.cast(x, from, to)).collect()
            }
            Op::Bitcast(a) => {
                let (from, to) = (self.scalar_of(*a), self.scalar_of(v));
                let to = self.e.scalar(to);
                let same = self.e.scalar(from) == to;
                self.leaves(*a).into_iter().map(|x| if same { x } else { self.e.bitcast(x, to) }).collect()
            }
            Op::MakeTensor(parts) => parts.iter().map(|p| self.value(*p)).collect(),
            Op::Splat(a) => vec![self.value(*a); ty.leaf_count()],
            Op::MakeStruct(parts) => parts.iter().flat_map(|p| self.leaves(*p)).collect(),
            Op::Extract(a, i) => self.extract(*a, *i),
            Op::ExtractDyn(a, index) => vec![self.extract_dynamic(*a, index)],
            Op::MatMul(a, b) => self.mat_mul(*a, *b),
            Op::Transpose(a) => self.transpose(*a),
            Op::Fold(op, a) => vec![self.fold(*op, *a)],
            Op::Shape(b, axis) => {
                let extent = self.extent(b.index(), *axis as usize);
                let s = self.scalar_of(v);
                vec![self.narrow_index(extent, s)]
            }
            Op::Freeze(a) => self.leaves(*a).into_iter().map(|leaf| self.e.freeze(leaf)).collect(),
            Op::Grid(_) | Op::FragmentIndex(_) | Op::Barrier(_) | Op::Fence(_) => self.thread_op(&inst.op)?,
            Op::BlockCount(_) | Op::Subgroup(..) | Op::LoadMatrices(..) => self.thread_op(&inst.op)?,
            Op::CopyAsync(..) | Op::AwaitCopies => self.thread_op(&inst.op)?,
            Op::Random => {
                let scalars = ty.leaves();
                scalars.into_iter().map(|s| self.random(s)).collect()
            }
            Op::RandomAt(index, word) => {
                let (index, word) = (self.value(*index), self.value(*word));
                let task = self.e.i32c(i64::from(self.u.task.get()));
                vec![self.random_at(self.scalar_of(v), index, word, task)]
            }
            Op::Clock => vec![self.u.target.clock(self.e)],
            // Locals without memory have no address: their loads and stores never need it.
            Op::LocalAddr(l) => return self.locals[l.index()].clone().map(Val::Place),
            Op::BufferAddr(b, index) => return Some(Val::Place(self.buffer_place(b.index(), index))),
            Op::FrameAddr(slot) => return Some(Val::Place(self.frame_place(slot.index(), ty))),
            Op::ElementAddr(base, index) => return Some(Val::Place(self.element_place(*base, index))),
            Op::MemberAddr(base, member) => return Some(Val::Place(self.member_place(*base, *member as usize))),
            Op::AddressBits(a) => vec![self.address_bits(*a)],
            Op::Load(a) => match self.schedule.locals.forwarded(v) {
                Some(stored) => return self.values[stored.index()].clone(),
                None => self.load_place(&self.place(*a)),
            },
            Op::VolatileLoad(a) => self.load_place_volatile(&self.place(*a)),
            Op::Atomic(op, a, value) => self.atomic(*op, &self.place(*a), &self.leaves(*value)),
            Op::AtomicCas(a, expected, desired) => {
                self.compare_and_swap(&self.place(*a), &self.leaves(*expected), &self.leaves(*desired))
            }
            Op::LoopIndex(l, axis) => {
                let indices = self.open.indices.get(l).expect("compiler bug: a loop index outside its loop");
                vec![indices[*axis as usize].narrow]
            }
            Op::Store(..) | Op::VectorStore(..) | Op::Prefetch(_) | Op::Reduce(..) | Op::Print(_) | Op::Assert(..) => {
                self.run_effect(v);
                return None;
            }
            Op::VectorLoad(_) => panic!("compiler bug: a scalar lowering of a vector operation"),
            Op::Checkpoint(..) | Op::Section(_) => panic!("compiler bug: a task graph node inside a task"),
            Op::Balance { .. } => panic!("compiler bug: `balance` was not expanded by the schedule"),
            Op::If(..) | Op::For(_) | Op::Loop(_) | Op::Break | Op::Continue | Op::Return(_) | Op::Call(..) => {
                panic!("compiler bug: control flow in the lowering of single operations")
            }
        };
        Some(Val::Leaves(leaves))
    }

    /// Lowers an instruction that yields nothing and is not control flow.
    fn run_effect(&mut self, v: ValueId) {
        let body = self.body;
        match &body.inst(v).op {
            Op::Store(a, value) => self.store(*a, *value),
            Op::VectorStore(a, value) => self.store_vector(&self.place(*a), *value),
            Op::Prefetch(a) => self.prefetch(&self.place(*a)),
            Op::Reduce(slot, value) => self.reduce(*slot as usize, *value),
            Op::Print(parts) => self.print(v, parts),
            Op::Assert(c, parts) => self.assert(v, *c, parts),
            _ => panic!("compiler bug: {v} has no value"),
        }
    }

    fn address_bits(&self, address: ValueId) -> V {
        let place = self.place(address);
        let first = &place.shape.leaves[0];
        self.e.ptrtoint(self.leaf_pointer(&place, first), self.e.i64)
    }

    fn store(&self, address: ValueId, value: ValueId) {
        let is_value = |l: LocalId| self.schedule.locals.of(l).is_value;
        let has_no_memory = matches!(self.body.inst(address).op, Op::LocalAddr(l) if is_value(l));
        if !has_no_memory {
            self.store_place(&self.place(address), &self.leaves(value));
        }
    }

    fn constant(&self, c: Const, ty: &Type) -> V {
        let s = ty.scalar().expect("compiler bug: a constant that is not a scalar");
        let llvm_ty = self.e.scalar(s);
        match c {
            Const::Int(i) if s.is_float() => self.e.real(llvm_ty, i as f64),
            Const::Int(i) if s == Scalar::U1 => self.e.int(llvm_ty, i & 1),
            Const::Int(i) => self.e.int(llvm_ty, i),
            Const::Float(f) if s.is_float() => self.e.real(llvm_ty, self.flushed(f, s)),
            Const::Float(f) => self.e.int(llvm_ty, f as i64),
        }
    }

    /// A constant as the processor would see it under `fast_math`: denormals are zero.
    fn flushed(&self, f: f64, s: Scalar) -> f64 {
        let least = match s {
            Scalar::F32 => f64::from(f32::MIN_POSITIVE),
            Scalar::F64 => f64::MIN_POSITIVE,
            _ => return f,
        };
        if self.u.options.fast_math && f.abs() < least { 0.0_f64.copysign(f) } else { f }
    }

    fn param(&self, i: usize) -> Val {
        if matches!(self.form.kind, BodyKind::Function { .. }) {
            return self.params[i].clone();
        }
        let first = self.u.facts.args.params[i];
        let leaves = self.u.facts.args.param_leaves[i]
            .iter()
            .enumerate()
            .map(|(k, s)| {
                let raw = self.argument(first + k as u32, self.e.memory(*s));
                if *s == Scalar::U1 { self.at_entry(|| self.e.trunc(raw, self.e.i1)) } else { raw }
            })
            .collect();
        Val::Leaves(leaves)
    }

    /// The value of an argument slot, read once in the entry block.
    pub fn argument(&self, slot: u32, ty: crate::emit::T) -> V {
        let key = (slot, ty as usize);
        if let Some(v) = self.code.slots.borrow().get(&key) {
            return *v;
        }
        let e = self.e;
        let v = self.at_entry(|| {
            let at = e.byte_offset(self.code.around.args, i64::from(slot) * 8);
            let metadata = &self.u.metadata;
            if ty != e.ptr {
                let v = e.load(ty, at, 8);
                metadata.mark_invariant(v);
                return v;
            }
            self.u.target.load_pointer(e, at, &|v| {
                metadata.mark_invariant(v);
                if let Some(bytes) = self.u.facts.root_bytes.get(slot as usize) {
                    metadata.mark_pointer(e, v, *bytes);
                    metadata.mark_alignment(e, v, ROOT_ALIGNMENT);
                } else if let Some(alignment) = self.form.alignment {
                    metadata.mark_alignment(e, v, alignment);
                }
            })
        });
        self.code.slots.borrow_mut().insert(key, v);
        v
    }
}
