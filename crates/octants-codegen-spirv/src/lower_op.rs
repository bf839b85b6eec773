//! Instructions that yield values or write: dispatches each operation to the function that lowers it.

use octants_ir::{Const, Op, Scalar, TextPart, Type, ValueId};
use rspirv::dr::Operand;
use rspirv::spirv::{Capability, Op as Spirv, Scope, StorageClass};

use crate::emit::Id;
use crate::lowering::{BodyKind, Helper, Lowering, Val};

impl Lowering<'_, '_> {
    /// The value of an instruction that is not control flow; `None` for one that yields nothing.
    pub fn value_of(&mut self, v: ValueId) -> Option<Val> {
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
                let pairs = self.leaves(*a).into_iter().zip(self.leaves(*b)).enumerate();
                pairs.map(|(i, (x, y))| self.e.select(if c.len() == 1 { c[0] } else { c[i] }, x, y)).collect()
            }
            Op::Cast(a) => {
                let (from, to) = (self.scalar_of(*a), self.scalar_of(v));
                self.leaves(*a).into_iter().map(|x| self.cast(x, from, to)).collect()
            }
            Op::Bitcast(a) => {
                let to = self.e.scalar(self.scalar_of(v));
                self.leaves(*a).into_iter().map(|x| self.e.bitcast(x, to)).collect()
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
                vec![self.e.trunc(extent, self.scalar_of(v).bits())]
            }
            // Nothing here is undefined: unwritten memory has an arbitrary value.
            Op::Freeze(a) => self.leaves(*a),
            Op::Grid(_)
            | Op::FragmentIndex(_)
            | Op::Barrier(_)
            | Op::Fence(_)
            | Op::BlockCount(_)
            | Op::Subgroup(..) => self.thread_op(&inst.op)?,
            Op::Random => ty.leaves().into_iter().map(|s| self.random(s)).collect(),
            Op::RandomAt(index, word) => {
                let (index, word) = (self.value(*index), self.value(*word));
                vec![self.random_at(self.scalar_of(v), index, word)]
            }
            Op::Clock => vec![self.clock()],
            Op::LocalAddr(l) => return self.locals[l.index()].clone().map(Val::Place),
            Op::BufferAddr(b, index) => return Some(Val::Place(self.buffer_place(b.index(), index))),
            Op::FrameAddr(slot) => return Some(Val::Place(self.frame_place(slot.index(), ty))),
            Op::ElementAddr(base, index) => return Some(Val::Place(self.element_place(*base, index))),
            Op::MemberAddr(base, member) => return Some(Val::Place(self.member_place(*base, *member as usize))),
            Op::AddressBits(a) => vec![self.address_bits(*a)],
            Op::Load(a) => match self.schedule.locals.forwarded(v) {
                Some(stored) => return self.values[stored.index()].clone(),
                None => self.load_place(&self.place(*a), false),
            },
            Op::VectorLoad(a) => self.load_vector(&self.vector_place(*a, ty)),
            Op::VolatileLoad(a) => {
                let place = self.place(*a);
                place.shape.leaves.iter().map(|leaf| self.load_volatile(&place, leaf)).collect()
            }
            Op::Atomic(op, a, value) => self.atomic(*op, &self.place(*a), &self.leaves(*value)),
            Op::AtomicCas(a, expected, desired) => {
                self.compare_and_swap(&self.place(*a), &self.leaves(*expected), &self.leaves(*desired))
            }
            Op::LoopIndex(l, axis) => {
                let indices = self.indices.get(l).expect("compiler bug: a loop index outside its loop");
                vec![indices[*axis as usize].narrow]
            }
            Op::LoadMatrices(..) | Op::CopyAsync(..) | Op::AwaitCopies => {
                panic!("compiler bug: an instruction that the target does not have")
            }
            Op::Store(..) | Op::VectorStore(..) | Op::Prefetch(_) | Op::Reduce(..) | Op::Print(_) | Op::Assert(..) => {
                self.run_effect(v);
                return None;
            }
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
            Op::VectorStore(a, value) => {
                let place = self.vector_place(*a, body.ty(*value));
                self.store_vector(&place, &self.leaves(*value));
            }
            Op::Prefetch(_) => {}
            Op::Reduce(slot, value) => self.reduce(*slot as usize, *value),
            Op::Print(parts) => {
                let site = self.u.facts.site(self.body, self.body.inst(v));
                self.record(Helper::Reserve, site, parts);
            }
            Op::Assert(c, parts) => self.assert(v, *c, parts),
            _ => panic!("compiler bug: {v} has no value"),
        }
    }

    fn address_bits(&self, address: ValueId) -> Id {
        let place = self.place(address);
        self.leaf_address(&place, &place.shape.leaves[0]).unwrap_or_else(|| {
            self.e.refuse("Vulkan has no addresses of local variables and of shared memory");
            self.e.u64c(0)
        })
    }

    fn store(&self, address: ValueId, value: ValueId) {
        let is_value = |l: octants_ir::LocalId| self.schedule.locals.of(l).is_value;
        let has_no_memory = matches!(self.body.inst(address).op, Op::LocalAddr(l) if is_value(l));
        if !has_no_memory {
            self.store_place(&self.place(address), &self.leaves(value));
        }
    }

    /// Ends the iteration, or the body if it is in none, with a message when the condition is false.
    fn assert(&mut self, at: ValueId, condition: ValueId, parts: &[TextPart]) {
        let site = self.u.facts.site(self.body, self.body.inst(at));
        let fails = self.e.not(self.value(condition));
        let selection = self.e.begin_if(fails, false);
        self.record(Helper::Claim, site, parts);
        self.leave_after_failure();
        self.e.end_if(selection);
    }

    fn constant(&self, c: Const, ty: &Type) -> Id {
        let (e, s) = (self.e, ty.scalar().expect("compiler bug: a constant that is not a scalar"));
        if let Some(why) = e.features.missing(s) {
            e.refuse(why);
        }
        match c {
            Const::Int(i) if s.is_float() => e.real(s.bits(), i as f64),
            Const::Int(i) if s == Scalar::U1 => e.truth(i & 1 != 0),
            Const::Int(i) => e.int(s.bits(), i),
            Const::Float(f) if s.is_float() => e.real(s.bits(), f),
            Const::Float(f) if s == Scalar::U1 => e.truth(f != 0.0),
            Const::Float(f) => e.int(s.bits(), f as i64),
        }
    }

    fn param(&self, i: usize) -> Val {
        if matches!(self.kind, BodyKind::Function { .. }) {
            return self.params[i].clone();
        }
        let first = self.u.facts.args.params[i];
        let leaves = self.u.facts.args.param_leaves[i].iter().enumerate();
        let leaf = |(k, s): (usize, &Scalar)| {
            let word = self.argument(first + k as u32);
            self.e.at_entry(|| match s {
                // A boolean is one byte of its slot.
                Scalar::U1 => self.e.scalar_of_bits(self.e.and(word, self.e.u64c(0xff)), *s),
                s => self.e.scalar_of_bits(word, *s),
            })
        };
        Val::Leaves(leaves.map(leaf).collect())
    }

    /// A word of the push constants, by its number.
    pub fn push_constant(&self, number: u32) -> Id {
        let e = self.e;
        let pointer = e.pointer_type(StorageClass::PushConstant, e.u64());
        let at = e.of(Spirv::AccessChain, pointer, &[self.u.context, e.u32c(0), e.u32c(number)]);
        e.load(e.u64(), at)
    }

    /// A word of the launch's context, by its number in a `DeviceContext`.
    pub fn context_word(&self, number: u32) -> Id {
        self.e.at_entry(|| self.push_constant(number))
    }

    /// The value of an argument slot, read once.
    pub fn argument(&self, slot: u32) -> Id {
        if let Some(v) = self.slots.borrow().get(&slot) {
            return *v;
        }
        let e = self.e;
        let v = e.at_entry(|| {
            let first = crate::compile::CONTEXT_WORDS;
            if crate::compile::are_by_value(self.u.facts.args.slots) {
                return self.push_constant(first + slot);
            }
            let at = self.push_constant(first);
            self.load_at(e.add(at, e.u64c(8 * u64::from(slot))), Scalar::U64, false)
        });
        self.slots.borrow_mut().insert(slot, v);
        v
    }

    fn clock(&self) -> Id {
        let e = self.e;
        if !e.features.clock {
            e.refuse("this device has no clock that shaders can read");
            return e.u64c(0);
        }
        e.need(Capability::ShaderClockKHR);
        e.extend("SPV_KHR_shader_clock");
        let scope = e.u32c(Scope::Subgroup as u32);
        e.op(Spirv::ReadClockKHR, e.u64(), vec![Operand::IdScope(scope)])
    }
}
