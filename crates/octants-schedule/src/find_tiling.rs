//! Decides which parallel loops run in tiles: blocks of threads stage what an inner loop loads in shared memory.
//! `tile_in_shared_memory` writes the code.
//!
//! Two shapes pay off. Both have one inner loop, whose bounds are the same in all iterations. In an all-pairs loop,
//! every load of the inner loop depends only on its index: `for i: for j: f(x[i], x[j])`. In a matrix product, the
//! loads depend on the inner index and one of the two axes: `for i, j: for k: a[i, k] * b[k, j]`. Each thread then runs
//! several iterations along both axes, so that one load from shared memory serves a row or column of them.
//!
//! Staged memory must be constant while the task runs. The order of additions in each sum does not change.

use std::collections::HashSet;

use octants_analysis::{Place, may_leave, same_address, trace_address, trace_element, trace_indices};
use octants_ir::schedule::TaskSchedule;
use octants_ir::{BlockId, Body, BufferId, Effect, ForLoop, Layout, LocalId, Op, Scalar, ValueId};

use crate::facts::BodyFacts;

/// Inner loops with at most this known trip count are left to the optimizer, which unrolls them.
const SHORT_TRIP_COUNT: i64 = 64;
/// Threads of a block along each axis of a product: 256 in all.
pub(crate) const THREADS_OF_AXIS: u32 = 16;
/// Neighboring iterations of a thread along an axis: a load of 16 bytes for 32-bit elements.
const ADJACENT: u32 = 4;
/// Elements between two rows of a staged tile, so that a column of it is in different banks of the memory.
pub(crate) const PADDING: u32 = 4;
/// Maximum number of iterations of a thread along an axis of a product.
const MAX_PER_THREAD: u32 = 8;
/// Maximum number of scalar operations of a product's inner loop, and of the code around it, which each iteration of a
/// thread repeats.
const MAX_INSIDE: usize = 12;
const MAX_AROUND: usize = 24;
/// Maximum and minimum number of iterations of the inner loop that are staged at a time, for all pairs and for
/// products.
const STEPS_OF_PAIRS: (u32, u32) = (256, 32);
const STEPS_OF_PRODUCT: (u32, u32) = (16, 4);

/// How a parallel loop runs in tiles.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tiling {
    pub parallel: ValueId,
    pub inner: ValueId,
    /// The tile along each axis of the parallel loop.
    pub axes: Vec<TileAxis>,
    /// Iterations of the inner loop that are staged at a time.
    pub steps: u32,
    pub staged: Vec<Staged>,
}

/// The part of a tile along an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TileAxis {
    /// Threads of the block. All of them if there is no limit.
    pub threads: Option<u32>,
    /// Iterations of a thread.
    pub per_thread: u32,
    /// How many of them are neighbors.
    pub adjacent: u32,
}

impl TileAxis {
    /// Iterations of a tile, if known.
    pub fn extent(&self) -> Option<u32> {
        Some(self.threads? * self.per_thread)
    }
}

/// Elements that all loads of an address stage.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Staged {
    pub address: ValueId,
    pub loads: Vec<ValueId>,
    /// The axis of the parallel loop on which the address depends, in addition to the inner loop.
    pub axis: Option<u32>,
    /// The inner loop walks neighbors in memory.
    pub is_row: bool,
}

/// The structure of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Follows {
    /// The inner loop's index itself.
    Inner,
    /// The index of an axis of the parallel loop itself.
    Axis(u32),
    /// Invariant in both loops.
    Uniform,
    /// Invariant in the inner loop.
    Iteration,
    Other,
}

struct Search<'a> {
    facts: &'a BodyFacts<'a>,
    body: &'a Body,
    constants: &'a [bool],
    parallel: (ValueId, &'a ForLoop),
    inner: (ValueId, &'a ForLoop),
    /// The instructions in the parallel loop, and in the inner one.
    inside: HashSet<ValueId>,
    inside_inner: HashSet<ValueId>,
}

/// The tiling of a body that ends in a parallel loop, if it pays off.
pub(crate) fn find_tiling(facts: &BodyFacts<'_>, found: &TaskSchedule) -> Option<Tiling> {
    let body = facts.body;
    let parallel = *body.block(body.root).last()?;
    let Op::For(l) = &body.inst(parallel).op else { return None };
    let behavior = found.behavior;
    let is_alone = !(behavior.fails || behavior.draws || behavior.balances || behavior.cooperates);
    let is_plain = l.is_parallel() && l.groups.is_empty() && l.reductions.is_empty();
    if !is_alone || !is_plain || found.forms.block_privatization.is_some() || may_leave(body, l.body) {
        return None;
    }
    let mut loops = Vec::new();
    body.visit(l.body, &mut |v, inst| loops.extend(matches!(inst.op, Op::For(_) | Op::Loop(_)).then_some(v)));
    let [inner_id] = loops[..] else { return None };
    let Op::For(inner) = &body.inst(inner_id).op else { return None };
    if !body.block(l.body).contains(&inner_id) || inner.dims.len() != 1 || may_leave(body, inner.body) {
        return None;
    }
    let inside_of = |block| {
        let mut inside = HashSet::new();
        body.visit(block, &mut |v, _| _ = inside.insert(v));
        inside
    };
    let search = Search {
        facts,
        body,
        constants: &found.constants,
        parallel: (parallel, l),
        inner: (inner_id, inner),
        inside: inside_of(l.body),
        inside_inner: inside_of(inner.body),
    };
    search.tiling()
}

impl Search<'_> {
    fn tiling(&self) -> Option<Tiling> {
        let ((parallel, l), (inner, inner_loop)) = (self.parallel, self.inner);
        let range = inner_loop.dims[0];
        let trips = self.facts.known(range.end).zip(self.facts.known(range.begin));
        let is_short = trips.is_some_and(|(end, begin)| end.saturating_sub(begin) <= SHORT_TRIP_COUNT);
        let is_uniform = [range.begin, range.end].iter().all(|v| self.follows(*v) == Follows::Uniform);
        if is_short || !is_uniform || !self.has_fitting_effects() {
            return None;
        }
        let staged = self.staged()?;
        let axis_is = |axis: Option<u32>| staged.iter().any(|s| s.axis == axis);
        let axes = match l.dims.len() {
            1 if staged.iter().all(|s| s.axis.is_none()) => {
                vec![TileAxis { threads: None, per_thread: 1, adjacent: 1 }]
            }
            2 if axis_is(Some(0)) && axis_is(Some(1)) && l.parallel.as_ref()?.block_dim.is_none() => {
                self.axes_of_product()?
            }
            _ => return None,
        };
        let (most, fewest) = if axes.len() == 1 { STEPS_OF_PAIRS } else { STEPS_OF_PRODUCT };
        let bytes = |steps: u32| staged.iter().map(|s| self.staged_bytes(s, &axes, steps)).sum::<u64>();
        let fits = |steps: &u32| bytes(*steps) <= self.facts.of.target.shared_bytes;
        let halves = std::iter::successors(Some(most), |n| Some(n / 2)).take_while(|n| *n >= fewest);
        let steps = halves.clone().find(fits)?;
        Some(Tiling { parallel, inner, axes, steps, staged })
    }

    /// How the threads of a block share a product: as many iterations of a thread as its registers hold the locals of.
    fn axes_of_product(&self) -> Option<Vec<TileAxis>> {
        let costs = self.facts.of.costs();
        let (l, inner) = (self.parallel.1, self.inner.1);
        let inside = costs.block_size(self.body, inner.body, 1);
        let around = costs.block_size(self.body, l.body, 1).saturating_sub(inside);
        if inside > MAX_INSIDE || around > MAX_AROUND {
            return None;
        }
        let words = |local: &LocalId| {
            let ty = &self.body.locals[local.index()].ty;
            ty.leaves().iter().map(|s| s.bytes().div_ceil(4)).sum::<u32>()
        };
        let kept = self.body.locals_in(l.body).into_iter().filter(|l| !self.facts.locals.of(*l).is_value);
        let words: u32 = kept.map(|l| words(&l)).sum();
        // The other half is for elements and addresses.
        let most = (self.facts.of.target.registers / 2).checked_div(words)?;
        let mut per_thread = [MAX_PER_THREAD; 2];
        let mut axis = 0;
        while per_thread[0] * per_thread[1] > most {
            per_thread[axis] /= 2;
            axis = 1 - axis;
        }
        let axis = |per_thread: u32| TileAxis {
            threads: Some(THREADS_OF_AXIS),
            per_thread,
            adjacent: per_thread.min(ADJACENT),
        };
        (per_thread[0] * per_thread[1] > 1).then(|| per_thread.map(axis).to_vec())
    }

    fn staged_bytes(&self, staged: &Staged, axes: &[TileAxis], steps: u32) -> u64 {
        let scalar = self.body.inst(staged.loads[0]).ty.scalar().map_or(0, Scalar::bytes);
        let leaves = self.body.inst(staged.loads[0]).ty.leaf_count() as u64;
        u64::from(scalar) * leaves * shared_elements(staged, axes, steps)
    }

    /// Code before and in the inner loop changes only locals, and otherwise reads only constant memory.
    fn has_fitting_effects(&self) -> bool {
        let (body, l) = (self.body, self.parallel.1);
        let is_before = |block: BlockId| body.block(block).iter().position(|v| *v == self.inner.0);
        let Some(at) = is_before(l.body) else { return false };
        let mut fits = true;
        for (position, v) in body.block(l.body).iter().enumerate() {
            let is_behind = position > at;
            let mut check = |op: &Op| fits &= self.has_fitting_effect(op, is_behind);
            check(&body.inst(*v).op);
            body.inst(*v).op.blocks().into_iter().for_each(|b| body.visit(b, &mut |_, inst| check(&inst.op)));
        }
        fits
    }

    fn has_fitting_effect(&self, op: &Op, is_behind: bool) -> bool {
        let is_own = |local: LocalId| {
            let uses = self.facts.locals.of(local);
            !uses.is_used_before_loop || uses.is_value
        };
        match op.effect() {
            Effect::Pure => !matches!(op, Op::LocalAddr(local) if !is_own(*local)),
            Effect::Index => matches!(op, Op::LoopIndex(..)),
            Effect::Branch(..) | Effect::For(_) => true,
            Effect::Read(a) => match trace_address(self.body, a) {
                Place::Buffer(b) => is_behind || self.constants[b.index()],
                Place::Local(_) => true,
                _ => false,
            },
            Effect::Write(a) | Effect::Update(a) => match trace_address(self.body, a) {
                Place::Buffer(_) => is_behind,
                Place::Local(_) => true,
                _ => false,
            },
            _ => false,
        }
    }

    /// The loads of the inner loop that are staged: all that follow its index. `None` if one of them cannot be.
    fn staged(&self) -> Option<Vec<Staged>> {
        let mut staged: Vec<Staged> = Vec::new();
        self.stage_block(self.inner.1.body, false, &mut staged)?;
        (!staged.is_empty()).then_some(staged)
    }

    fn stage_block(&self, block: BlockId, is_conditional: bool, staged: &mut Vec<Staged>) -> Option<()> {
        for &v in self.body.block(block) {
            let op = &self.body.inst(v).op;
            if let Op::Load(address) = op {
                self.stage(v, *address, is_conditional, staged)?;
            }
            for inner in op.blocks() {
                self.stage_block(inner, true, staged)?;
            }
        }
        Some(())
    }

    fn stage(&self, load: ValueId, address: ValueId, is_conditional: bool, staged: &mut Vec<Staged>) -> Option<()> {
        let mut indices = Vec::new();
        let Some(buffer) = trace_indices(self.body, address, &mut indices) else {
            // A local.
            return Some(());
        };
        let follows: Vec<Follows> = indices.iter().map(|v| self.follows(*v)).collect();
        if follows.iter().all(|f| !matches!(f, Follows::Inner | Follows::Other)) {
            // It is loaded before the loop.
            return Some(());
        }
        let (_, element) = trace_element(self.body, address)?;
        let Op::BufferAddr(_, of_element) = &self.body.inst(element).op else { return None };
        let parts = &follows[..follows.len() - of_element.len()];
        let of_element: Vec<Follows> = of_element.iter().map(|v| self.follows(*v)).collect();
        let is_known = |f: &Follows| matches!(f, Follows::Inner | Follows::Axis(_) | Follows::Uniform);
        let mut axes = of_element.iter().filter_map(|f| if let Follows::Axis(a) = f { Some(*a) } else { None });
        let axis = axes.next();
        let is_simple = of_element.iter().all(is_known) && parts.iter().all(|f| *f == Follows::Uniform);
        let has_numbers = self.body.inst(load).ty.scalar().is_some();
        if !is_simple || !has_numbers || axes.next().is_some() {
            return None;
        }
        if is_conditional && !self.is_within(buffer.index(), &of_element) {
            return None;
        }
        if let Some(known) = staged.iter_mut().find(|s| same_address(self.body, s.address, address)) {
            known.loads.push(load);
        } else {
            let is_row = of_element.last() == Some(&Follows::Inner);
            staged.push(Staged { address, loads: vec![load], axis, is_row });
        }
        Some(())
    }

    /// The whole range of the inner loop is within the axis that its index selects from. Other axes are unknown.
    fn is_within(&self, buffer: usize, indices: &[Follows]) -> bool {
        let range = self.inner.1.dims[0];
        let starts_within = self.facts.known(range.begin).is_some_and(|first| first >= 0);
        let end = self.facts.source(range.end);
        let ends_within = |axis: usize| match &self.facts.of.program.buffers[buffer].layout {
            Layout::Dense { shape, offset, .. } => {
                offset[axis] == 0 && self.facts.known(end).is_some_and(|end| end <= shape[axis] as i64)
            }
            _ => self.body.inst(end).op == Op::Shape(BufferId(buffer as u32), axis as u32),
        };
        let is_fine = |(axis, f): (usize, &Follows)| *f == Follows::Inner && ends_within(axis);
        starts_within && indices.iter().enumerate().all(is_fine)
    }

    fn follows(&self, v: ValueId) -> Follows {
        let v = self.facts.source(v);
        if !self.inside.contains(&v) {
            return Follows::Uniform;
        }
        match &self.body.inst(v).op {
            Op::LoopIndex(l, 0) if *l == self.inner.0 => Follows::Inner,
            Op::LoopIndex(l, axis) if *l == self.parallel.0 => Follows::Axis(*axis),
            Op::Cast(a) if self.widens(v, *a) => self.follows(*a),
            op if op.is_pure() && !matches!(op, Op::LocalAddr(_)) => {
                let mut all = Follows::Uniform;
                op.for_each_operand(|u| all = join(all, self.follows(u)));
                all
            }
            _ if !self.inside_inner.contains(&v) => Follows::Iteration,
            _ => Follows::Other,
        }
    }

    /// A conversion that keeps every index.
    fn widens(&self, v: ValueId, of: ValueId) -> bool {
        let scalar = |v: ValueId| self.body.ty(v).scalar();
        scalar(v) == Some(Scalar::I64) && scalar(of) == Some(Scalar::I32)
    }
}

/// What a value with operands of both kinds follows.
fn join(a: Follows, b: Follows) -> Follows {
    match (a, b) {
        (Follows::Uniform, Follows::Uniform) => Follows::Uniform,
        (
            Follows::Uniform | Follows::Iteration | Follows::Axis(_),
            Follows::Uniform | Follows::Iteration | Follows::Axis(_),
        ) => Follows::Iteration,
        _ => Follows::Other,
    }
}

/// Elements between two steps of a staged tile.
pub(crate) fn pitch(staged: &Staged, axes: &[TileAxis]) -> u32 {
    match staged.axis {
        Some(axis) => {
            axes[axis as usize].extent().expect("compiler bug: a matrix product without a block size") + PADDING
        }
        None => 1,
    }
}

/// Elements of a staged tile.
pub(crate) fn shared_elements(staged: &Staged, axes: &[TileAxis], steps: u32) -> u64 {
    u64::from(pitch(staged, axes)) * u64::from(steps)
}
