//! [`merge_accesses`]: in coarsened variants, adjacent loads and stores of a group become vector loads and stores, for
//! machines whose optimizers do not merge accesses.
//!
//! A group begins at a multiple of its factor, and the launch has aligned addresses and rows
//! ([`Coarsening`](octants_ir::schedule::Coarsening)). A vector whose first index is a multiple of the factor is
//! therefore aligned to its size.
//!
//! # Legality
//!
//! Loads move up to the first load, stores down to the last store. Iterations of a group interleave, as those of any
//! parallel loop may. Within an iteration the order is kept: loads of a memory class move only if each iteration loads
//! before it writes there, and a store only if it is the iteration's only write to its class.

use std::collections::{BTreeMap, HashMap};

use octants_analysis::affine::Sums;
use octants_analysis::local_uses;
use octants_ir::schedule::{MemoryClass, Role};
use octants_ir::{
    Affine, BinaryOp, BlockId, Body, Buffer, BufferId, Builder, Effect, Layout, MemorySpace, Op, Scalar, Scheduled,
    Term, Type, ValueId,
};

use crate::clone_code::remove_unused;

/// Maximum number of bytes of a vector.
const MOST_BYTES: u32 = 16;

/// Merges the accesses of groups in coarsened variants.
pub(crate) fn merge_accesses(scheduled: &mut Scheduled) {
    let Scheduled { program, schedule } = scheduled;
    for task in &mut schedule.tasks {
        let Some(coarsening) = task.forms.coarsening else { continue };
        for variant in task.variants.iter_mut().filter(|v| v.role == Role::Coarse) {
            let memory = Memory { buffers: &program.buffers, classes: &schedule.memory, factor: coarsening.factor };
            merge_in_groups(&mut variant.body, &memory);
        }
    }
}

/// The buffers, and the number of elements of a vector.
struct Memory<'a> {
    buffers: &'a [Buffer],
    classes: &'a [MemoryClass],
    factor: u32,
}

fn merge_in_groups(body: &mut Body, memory: &Memory<'_>) {
    let mut loops = Vec::new();
    body.visit(body.root, &mut |v, inst| {
        if let Op::For(l) = &inst.op
            && let Some(group) = l.groups.first()
        {
            loops.push((v, l.dims.len() as u32 - 1, l.body, group.body));
        }
    });
    for (loop_id, axis, iteration, group) in loops {
        let order = Order::of(body, memory, iteration);
        let vectors = find_vectors(body, memory, &order, Term::Index(loop_id, axis), group);
        if !vectors.is_empty() {
            rewrite(body, memory.factor, (loop_id, axis), group, vectors);
            remove_unused(body);
        }
    }
}

/// The accesses of an iteration, by memory class.
#[derive(Default)]
struct Order {
    /// By the first buffer of the class.
    classes: HashMap<usize, Uses>,
}

#[derive(Default, Clone, Copy)]
struct Uses {
    writes: usize,
    updates: usize,
    /// Something is loaded after a write.
    loads_late: bool,
}

impl Order {
    fn of(body: &Body, memory: &Memory<'_>, iteration: BlockId) -> Order {
        let mut order = Order::default();
        body.visit(iteration, &mut |_, inst| {
            let (address, kind) = match inst.op.effect() {
                Effect::Read(a) | Effect::ReadVolatile(a) => (a, 0),
                Effect::Write(a) => (a, 1),
                Effect::Update(a) => (a, 2),
                _ => return,
            };
            let Op::BufferAddr(b, _) = body.inst(address).op else { return };
            let uses = order.classes.entry(memory.classes[b.index()].first).or_default();
            match kind {
                0 => uses.loads_late |= uses.writes + uses.updates > 0,
                1 => uses.writes += 1,
                _ => uses.updates += 1,
            }
        });
        order
    }

    fn may_move(&self, memory: &Memory<'_>, b: BufferId, is_store: bool) -> bool {
        let uses = self.classes.get(&memory.classes[b.index()].first).copied().unwrap_or_default();
        !uses.loads_late && (!is_store || uses.writes == 1 && uses.updates == 0)
    }
}

/// The location of a vector access: a buffer in a row, and the index of its first element.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Place {
    buffer: BufferId,
    /// The index along the other axes.
    row: Vec<ValueId>,
    is_store: bool,
    /// From the group's first index.
    first: i64,
}

/// The accesses that a vector replaces, each with its component.
type Accesses = Vec<(ValueId, u32)>;

/// The vectors of a group whose components are all accessed.
fn find_vectors(
    body: &Body,
    memory: &Memory<'_>,
    order: &Order,
    index: Term,
    group: BlockId,
) -> BTreeMap<Place, Accesses> {
    let locals = local_uses(body);
    let mut sums = Sums::through(body, &locals);
    let mut found: BTreeMap<Place, Accesses> = BTreeMap::new();
    let factor = i64::from(memory.factor);
    for &v in body.block(group) {
        let (address, is_store) = match body.inst(v).op {
            Op::Load(a) => (a, false),
            Op::Store(a, _) => (a, true),
            _ => continue,
        };
        let Op::BufferAddr(b, indices) = &body.inst(address).op else { continue };
        let Some((last, others)) = indices.split_last() else { continue };
        if !fits(&memory.buffers[b.index()], memory.factor) || !order.may_move(memory, *b, is_store) {
            continue;
        }
        let Some(distance) = sums.of(*last).and_then(|sum| distance(&sum, index)) else { continue };
        let row = others.iter().map(|i| locals.source(*i)).collect();
        let component = distance.rem_euclid(factor);
        let place = Place { buffer: *b, row, is_store, first: distance - component };
        found.entry(place).or_default().push((v, component as u32));
    }
    found.retain(|place, accesses| {
        let all = (0..memory.factor).all(|c| accesses.iter().any(|(_, of)| *of == c));
        all && (!place.is_store || accesses.len() == memory.factor as usize)
    });
    found
}

/// How far an index is from the group's first one, if it is at a constant distance.
fn distance(sum: &Affine, index: Term) -> Option<i64> {
    let is_it = sum.terms.len() == 1 && sum.terms.get(&index) == Some(&1);
    is_it.then_some(sum.constant)
}

/// Neighbors follow one another in memory, and a vector of them that begins at a multiple of the factor is aligned.
fn fits(buffer: &Buffer, factor: u32) -> bool {
    let Type::Scalar(scalar) = buffer.elem else { return false };
    let bytes = factor * scalar.bytes();
    if scalar == Scalar::U1 || bytes > MOST_BYTES || buffer.space != MemorySpace::Global {
        return false;
    }
    match &buffer.layout {
        Layout::Contiguous => true,
        Layout::Strided | Layout::Flat(_) => false,
        Layout::Dense { offset, components, .. } => {
            let is_whole = |n: u64| n.is_multiple_of(u64::from(bytes));
            let [component] = components.as_slice() else { return false };
            let Some((last, others)) = component.place.axes.split_last() else { return false };
            let [digit] = last.as_slice() else { return false };
            digit.stride == u64::from(scalar.bytes())
                && is_whole(component.place.base)
                && others.iter().flatten().all(|d| is_whole(d.stride))
                && offset.last().is_some_and(|o| o.rem_euclid(i64::from(factor)) == 0)
        }
    }
}

/// Replaces the scalar accesses by the vectors.
fn rewrite(
    body: &mut Body,
    factor: u32,
    (loop_id, axis): (ValueId, u32),
    group: BlockId,
    vectors: BTreeMap<Place, Accesses>,
) {
    let Op::For(l) = &body.inst(loop_id).op else { panic!("compiler bug: the parallel loop is not a loop") };
    let index_type = body.ty(l.dims[axis as usize].begin).clone();
    // The position of each vector access: before the first load, or in place of the last store.
    let mut at: HashMap<ValueId, Vec<(Place, Accesses)>> = HashMap::new();
    let mut gone: Vec<ValueId> = Vec::new();
    for (place, accesses) in vectors {
        let position = if place.is_store { accesses.last() } else { accesses.first() };
        let (position, _) = *position.expect("compiler bug: a vector without components");
        gone.extend(accesses.iter().map(|(v, _)| *v).filter(|v| place.is_store && *v != position));
        at.entry(position).or_default().push((place, accesses));
    }
    let mut b = Builder::new();
    b.body = std::mem::take(body);
    let insts = std::mem::take(&mut b.body.blocks[group.index()]);
    b.set_cursor(group);
    for v in insts.into_iter().filter(|v| !gone.contains(v)) {
        b.span = b.body.inst(v).span;
        for (place, accesses) in at.remove(&v).unwrap_or_default() {
            let scalar = b
                .pointee(address_of(&b.body, accesses[0].0))
                .scalar()
                .expect("compiler bug: adjacent elements that are not scalars");
            let vector = Type::Vector(scalar, factor);
            let first = b.push(Op::LoopIndex(loop_id, axis), index_type.clone());
            let from = octants_ir::insert_code::constant(&mut b, place.first, &index_type);
            let first = if place.first == 0 { first } else { b.binary(BinaryOp::Add, first, from) };
            let indices = place.row.iter().copied().chain([first]).collect();
            let address = b.push(Op::BufferAddr(place.buffer, indices), Type::Ref(Box::new(scalar.into())));
            if !place.is_store {
                let loaded = b.push(Op::VectorLoad(address), vector);
                for (load, component) in accesses {
                    b.body.inst_mut(load).op = Op::Extract(loaded, component);
                }
                continue;
            }
            let mut values: Vec<(u32, ValueId)> =
                accesses.iter().map(|(store, c)| (*c, stored(&b.body, *store))).collect();
            values.sort();
            let value = b.push(Op::MakeTensor(values.into_iter().map(|(_, v)| v).collect()), vector);
            b.body.inst_mut(v).op = Op::VectorStore(address, value);
        }
        b.place(v);
    }
    *body = b.body;
}

fn address_of(body: &Body, access: ValueId) -> ValueId {
    match body.inst(access).op {
        Op::Load(address) | Op::Store(address, _) => address,
        ref op => panic!("compiler bug: {op:?} is not a memory access"),
    }
}

fn stored(body: &Body, store: ValueId) -> ValueId {
    let Op::Store(_, value) = body.inst(store).op else { panic!("compiler bug: {store} has no stored value") };
    value
}
