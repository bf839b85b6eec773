//! [`Memory`]: what a launch has stored so far, if all its iterations are evaluated, one after the other.
//!
//! That order is one in which a parallel loop may run. A value that depends on the order of iterations is therefore one
//! that the launch may compute.

use std::collections::{HashMap, HashSet};

use octants_analysis::{Effects, inst_effects};
use octants_ir::{AtomicOp, BlockId, BufferId, Const, Op, Scalar, Type, ValueId};

use super::super::Doing;
use super::super::flow::Flow;
use super::super::value::{Address, Place, Value, first_leaf, map_two};
use super::Run;
use crate::evaluate;

/// The memory as the launch has changed it.
#[derive(Default)]
pub(super) struct Memory {
    /// Scalars by address, with their types; `None` if a value is unknown.
    stored: HashMap<u64, (Scalar, Option<Const>)>,
    /// Buffers of which it is unknown what was stored where.
    lost: HashSet<BufferId>,
}

impl Run<'_> {
    /// Evaluates all iterations from now on, and all rounds of inner loops.
    pub fn run_all(&mut self) {
        self.runs_all = true;
        self.memory = Some(Memory::default());
    }

    /// The present value of an element, or of a part of it, in a buffer that the launch writes.
    pub(super) fn stored(&mut self, v: ValueId, address: &Address) -> Value {
        let found = self.scalars_at(v, address).and_then(|at| {
            let memory = self.memory.as_ref()?;
            let value = |(buffer, index, leaf, scalar): &Leaf| {
                let place = self.launch.locate(*buffer, index, *leaf)?;
                match memory.stored.get(&place) {
                    Some((known, value)) => value.filter(|_| known == scalar),
                    None => self.launch.load(*buffer, index, *leaf),
                }
            };
            Some(at.iter().map(value).collect::<Vec<_>>())
        });
        let Some(found) = found else { return self.unknown() };
        let parts: Vec<Value> = found.into_iter().map(|c| c.map_or_else(|| self.unknown(), Value::Known)).collect();
        match (self.pointee(v), &parts[..]) {
            (Some(Type::Scalar(_)), [one]) => one.clone(),
            _ => Value::Parts(parts.into()),
        }
    }

    /// Remembers a stored value.
    pub(super) fn remember(&mut self, v: ValueId, address: &Address, value: &Value) {
        if self.memory.is_none() {
            return;
        }
        let Place::Buffer(buffer, _) = address.place else { return };
        let is_scalar = matches!(self.pointee(v), Some(Type::Scalar(_)));
        let places = self.scalars_at(v, address).and_then(|leaves| {
            let place = |leaf: &Leaf| Some((self.launch.locate(leaf.0, &leaf.1, leaf.2)?, leaf.3));
            leaves.iter().map(place).collect::<Option<Vec<_>>>()
        });
        let Some(places) = places else { return self.lose(buffer) };
        for (n, (place, scalar)) in places.into_iter().enumerate() {
            let value = if is_scalar { value.clone() } else { value.part(n) };
            let value = if let Value::Known(c) = value { Some(c) } else { None };
            if let Some(memory) = &mut self.memory {
                memory.stored.insert(place, (scalar, value));
            }
        }
    }

    /// The scalars of an element or a part of it; `None` if it is unknown, or a struct.
    fn scalars_at(&self, v: ValueId, address: &Address) -> Option<Vec<Leaf>> {
        let (Place::Buffer(b, Some(index)), Some(path)) = (&address.place, &address.path) else { return None };
        let of = &self.kernel.buffers[b.index()];
        let ty = self.pointee(v)?;
        if of.space.is_temporary() || matches!(ty, Type::Struct(_)) || !self.is_inside(*b, index) {
            return None;
        }
        if self.memory.as_ref().is_none_or(|memory| memory.lost.contains(b)) {
            return None;
        }
        let first = first_leaf(&of.elem, path)?;
        let leaves = of.elem.leaves();
        let leaf = |n: usize| Some((*b, index.clone(), n, *leaves.get(n)?));
        (first..first + ty.leaf_count()).map(leaf).collect()
    }

    /// The type at the address that an instruction uses.
    fn pointee(&self, v: ValueId) -> Option<Type> {
        let body = self.body();
        let (Op::Load(a) | Op::Store(a, _) | Op::Atomic(_, a, _) | Op::AtomicCas(a, ..)) = body.inst(v).op else {
            return None;
        };
        match body.ty(a) {
            Type::Ref(of) => Some((**of).clone()),
            _ => None,
        }
    }

    /// Updates a place atomically. Yields the value before.
    pub(super) fn update(&mut self, v: ValueId, a: ValueId) -> Value {
        let address = self.address(a);
        self.observe(v, &address, Doing::Updates, 0);
        match address.place {
            Place::Local(frame, l) => {
                let value = self.unknown();
                if let Some(frame) = self.frames.get_mut(frame) {
                    frame.locals.insert(l, value);
                }
                self.unknown()
            }
            Place::Buffer(..) => {
                let old = self.stored(v, &address);
                let new = self.updated(v, &old);
                self.remember(v, &address, &new);
                old
            }
            Place::Other => self.unknown(),
        }
    }

    /// The value after an atomic update.
    fn updated(&mut self, v: ValueId, old: &Value) -> Value {
        let body = self.body();
        let scalar = body.ty(v).scalar();
        match body.inst(v).op {
            Op::Atomic(AtomicOp::Exchange, _, value) => self.value(value),
            Op::Atomic(op, _, value) => {
                let op = op.binary();
                map_two(old, &self.value(value), &|a, b| evaluate::binary(op?, a, b, scalar?), &("atomic", v))
            }
            Op::AtomicCas(_, expected, value) => match (old, self.value(expected)) {
                (Value::Known(a), Value::Known(b)) if *a == b => self.value(value),
                (Value::Known(_), Value::Known(_)) => old.clone(),
                _ => self.unknown(),
            },
            _ => self.unknown(),
        }
    }

    /// Something unknown was stored somewhere in a buffer.
    fn lose(&mut self, buffer: BufferId) {
        let buffers = &self.kernel.buffers;
        let shares = |b: &BufferId| {
            *b == buffer
                || buffers[b.index()].shares_memory(&buffers[buffer.index()])
                || self.launch.overlap(*b, buffer)
        };
        let all: Vec<BufferId> = (0..buffers.len() as u32).map(BufferId).filter(shares).collect();
        if let Some(memory) = &mut self.memory {
            memory.lost.extend(all);
        }
    }

    /// Code that may or may not run, or not to its end, may have stored to memory.
    pub fn lose_stores(&mut self, block: BlockId) {
        if self.memory.is_none() {
            return;
        }
        let (body, mut effects) = (self.body(), Effects::default());
        body.visit(block, &mut |_, inst| inst_effects(body, &inst.op, &self.functions, &mut effects));
        effects.access.writes.into_iter().for_each(|b| self.lose(b));
    }

    /// The evaluation ends before the iteration does: it may store to any memory that the kernel writes.
    pub(super) fn ends(&mut self) -> Flow {
        let written = self.written.clone();
        if let Some(memory) = &mut self.memory {
            memory.lost.extend(written);
        }
        Flow::Ends
    }
}

/// A scalar of an element: the buffer, the index, its number among the element's scalars, and its type.
type Leaf = (BufferId, Vec<i64>, usize, Scalar);
