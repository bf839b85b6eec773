//! Fuses the parallel loops of several kernels into one loop: each iteration runs the bodies of all loops, in order.
//!
//! The result equals that of running the loops one after the other, bit for bit. It is therefore made only if
//!
//! - all loops have the same iterations, which the caller determines from the arguments of the launches;
//! - memory that one loop writes and another one accesses is accessed by both at elements of the own iteration only
//!   (`find_conflicts`);
//! - bodies have no effect besides memory, and use no old value of an atomic (`find_refusals`). They may fold all
//!   iterations into a scalar that no other loop accesses, if the order does not matter: not by a sum of floats;
//! - under `fast_math`, the optimizer cannot combine floats of different loops (`separate_floats`), and has no choice
//!   within each of them that may depend on the code around it (`find_refusals`).
//!
//! Temporaries, which nothing else reads, become locals of the fused loop (`remove_temporaries`).
//!
//! The kernels have been through the pipeline. The caller says which memory and numbers are the same.

mod find_conflicts;
mod find_refusals;
mod remove_temporaries;
mod separate_floats;

use std::collections::{BTreeSet, HashMap};

use octants_analysis::Sums;
use octants_diag::Span;
use octants_ir::{
    Affine, Body, Buffer, BufferId, Builder, Copier, ForLoop, Kernel, LoopConfig, Op, Param, Range, Reduction, Scalar,
    Type, ValueId,
};

use crate::eliminate_dead_code::eliminate_dead_code;
use crate::fold_constants::fold_constants;
use crate::simplify_locals::simplify_locals;

/// Maximum number of loops that are fused: more need too many registers.
const MOST_LOOPS: usize = 16;

/// A kernel to fuse, with the number that each of its arguments has in the fused kernel.
pub struct FusionPart<'a> {
    /// The kernel, after the pipeline.
    pub kernel: &'a Kernel,
    /// For each of its buffers the one of the fused kernel.
    pub buffers: Vec<BufferId>,
    /// For each of its parameters the one of the fused kernel.
    pub params: Vec<u32>,
    /// For each of its source files the number among those of all kernels.
    pub files: Vec<u32>,
}

/// The arguments of the fused kernel, and its options.
pub struct FusionPlan<'a> {
    /// The kernels, in order.
    pub parts: Vec<FusionPart<'a>>,
    /// Distinct memory: no two of these buffers share an element, unless neither is written.
    pub buffers: Vec<Buffer>,
    /// The number of field roots.
    pub roots: u32,
    /// Parameters.
    pub params: Vec<Param>,
    /// Buffers that nothing reads after the fused kernel.
    pub temporaries: BTreeSet<BufferId>,
    /// Floats may be reassociated and contracted.
    pub fast_math: bool,
    /// Loops become vector code with a remainder.
    pub vectorizes: bool,
}

/// A fused kernel.
#[derive(Debug)]
pub struct FusedKernel {
    /// The kernel.
    pub kernel: Kernel,
    /// The number of its last parameters that must be zero.
    pub zeros: u32,
    /// The temporaries that are no longer stored.
    pub removed: BTreeSet<BufferId>,
}

/// Why loops are not fused, for the user.
pub type Refusal = String;

/// The bounds of each axis of each loop of a kernel, as sums of its arguments, and their type.
pub type Iterations = Vec<Vec<(Affine, Affine, Scalar)>>;

/// The iterations of each of a kernel's loops.
///
/// # Errors
/// The kernel cannot be fused with any other.
pub fn iterations_of(kernel: &Kernel) -> Result<Iterations, Refusal> {
    let body = &kernel.body;
    let mut sums = Sums::new(body);
    let mut bound = |v: ValueId| sums.of(v).ok_or("its range is computed from more than arguments");
    let mut of_loop = |l: &ForLoop| {
        let of_axis = |range: &Range| {
            let scalar = body.ty(range.begin).scalar().ok_or("its range is not of integers")?;
            Ok((bound(range.begin)?, bound(range.end)?, scalar))
        };
        l.dims.iter().map(of_axis).collect::<Result<Vec<_>, &str>>()
    };
    loops_of(kernel)?.into_iter().map(|(_, l)| of_loop(l).map_err(Refusal::from)).collect()
}

/// The loops of a kernel that consists of parallel loops.
fn loops_of(kernel: &Kernel) -> Result<Vec<(ValueId, &ForLoop)>, Refusal> {
    let body = &kernel.body;
    let mut loops = Vec::new();
    for &v in body.block(body.root) {
        match &body.inst(v).op {
            Op::For(l) if l.is_parallel() => loops.push((v, &**l)),
            op if op.is_pure() => {}
            _ => return Err("it has code outside of parallel loops".into()),
        }
    }
    if loops.is_empty() { Err("it has no parallel loop".into()) } else { Ok(loops) }
}

/// Fuses kernels whose loops have the same iterations.
///
/// # Errors
/// The reason why that would change results, or is not supported.
pub fn fuse_kernels(plan: &FusionPlan<'_>) -> Result<FusedKernel, Refusal> {
    let renamed: Vec<Kernel> = plan.parts.iter().map(rename_arguments).collect();
    let mut stages: Vec<(&Kernel, ValueId)> = Vec::new();
    for kernel in &renamed {
        stages.extend(loops_of(kernel)?.into_iter().map(|(v, _)| (kernel, v)));
    }
    if stages.len() > MOST_LOOPS {
        return Err(format!("more than {MOST_LOOPS} loops"));
    }
    find_refusals::find_refusals(&stages, plan)?;
    let name = plan.parts.iter().map(|p| p.kernel.name.as_str()).collect::<Vec<_>>().join("+");
    let (params, buffers) = (plan.params.clone(), plan.buffers.clone());
    let mut kernel = Kernel { name, params, buffers, roots: plan.roots, ..Kernel::default() };
    let bodies = fuse_loops(&stages, &mut kernel)?;
    find_conflicts::find_conflicts(&kernel, &bodies, plan)?;
    let zeros = if plan.fast_math { separate_floats::separate_floats(&mut kernel, &bodies) } else { 0 };
    let removed = remove_temporaries::remove_temporaries(&mut kernel, &plan.temporaries);
    simplify_locals(&mut kernel);
    fold_constants(&mut kernel, plan.fast_math);
    eliminate_dead_code(&mut kernel);
    if cfg!(debug_assertions) {
        octants_ir::assert_kernel(&kernel, "fuse_kernels");
    }
    Ok(FusedKernel { kernel, zeros, removed })
}

/// The kernel with the numbers that its arguments have in the fused one.
fn rename_arguments(part: &FusionPart<'_>) -> Kernel {
    let mut kernel = part.kernel.clone();
    for inst in &mut kernel.body.insts {
        match &mut inst.op {
            Op::BufferAddr(b, _) | Op::Shape(b, _) => *b = part.buffers[b.index()],
            Op::Param(p) => *p = part.params[*p as usize],
            _ => {}
        }
        inst.span = span_in(&part.files, inst.span);
    }
    kernel
}

/// A source location among the files of all kernels. Of a call that was inlined, it is that of the call, because only
/// the first kernel's calls can be named.
fn span_in(files: &[u32], span: Span) -> Span {
    let number = |file: u32| files.get(file as usize).copied().unwrap_or(u32::MAX);
    match span.call {
        call if call > 0 && number(0) > 0 => Span { file: number(0), start: call - 1, end: call, call: 0 },
        _ => Span { file: number(span.file), ..span },
    }
}

/// The instructions at the top level of the fused body that are of one loop.
type Stage = Vec<ValueId>;

/// Fills a kernel with the fused loop. Yields its instructions by the loop that they are of.
fn fuse_loops(stages: &[(&Kernel, ValueId)], fused: &mut Kernel) -> Result<Vec<Stage>, Refusal> {
    let frame = HashMap::new();
    let mut b = Builder::new();
    let root = b.cursor();
    // Each loop has its own locals.
    let mut copiers: Vec<Copier<'_>> = Vec::new();
    for (kernel, _) in stages {
        let body = &kernel.body;
        let mut copier = Copier::into_other(body, &frame);
        for &v in body.block(body.root).iter().filter(|v| body.inst(**v).op.is_pure()) {
            copier.inst(&mut b, v);
        }
        copiers.push(copier);
    }
    let first = loop_at(&stages[0].0.body, stages[0].1);
    let range = |r: &Range| Range { begin: copiers[0].value(r.begin), end: copiers[0].value(r.end) };
    let dims: Vec<Range> = first.dims.iter().map(range).collect();
    let inner = b.body.add_block();
    let config = LoopConfig { name: None, ..first.parallel.clone().unwrap_or_default() };
    let made = b.push(Op::For(Box::new(ForLoop::parallel(dims, inner, config))), Type::Unit);
    b.set_cursor(inner);
    let (mut bodies, mut reductions) = (Vec::new(), Vec::new());
    for (copier, (kernel, v)) in copiers.iter_mut().zip(stages) {
        let begin = b.body.block(inner).len();
        copier.values.insert(*v, made);
        let l = loop_at(&kernel.body, *v);
        copier.block(&mut b, l.body);
        let stage = b.body.block(inner)[begin..].to_vec();
        shift_reductions(&mut b.body, &stage, reductions.len() as u32);
        reductions.extend(l.reductions.iter().map(|r| Reduction { target: copier.value(r.target), ..r.clone() }));
        bodies.push(stage);
    }
    b.set_cursor(root);
    fused.body = b.body;
    if let Op::For(l) = &mut fused.body.inst_mut(made).op {
        l.reductions = reductions;
    }
    Ok(bodies)
}

/// Adds to the numbers of a stage's reductions.
fn shift_reductions(body: &mut Body, stage: &Stage, by: u32) {
    let mut found = Vec::new();
    visit_stage(body, stage, &mut |v, op| found.extend(matches!(op, Op::Reduce(..)).then_some(v)));
    for v in found {
        if let Op::Reduce(slot, _) = &mut body.inst_mut(v).op {
            *slot += by;
        }
    }
}

/// The loop that an instruction is.
fn loop_at(body: &Body, v: ValueId) -> &ForLoop {
    match &body.inst(v).op {
        Op::For(l) => l,
        op => panic!("compiler bug: {op:?} is not a loop"),
    }
}

/// The fused loop.
fn fused_loop(body: &Body) -> Option<(ValueId, &ForLoop)> {
    body.block(body.root).iter().find_map(|v| match &body.inst(*v).op {
        Op::For(l) => Some((*v, &**l)),
        _ => None,
    })
}

/// Visits the instructions of a stage, outer before inner.
fn visit_stage(body: &Body, stage: &Stage, f: &mut impl FnMut(ValueId, &Op)) {
    for &v in stage {
        f(v, &body.inst(v).op);
        for block in body.inst(v).op.blocks() {
            body.visit(block, &mut |v, inst| f(v, &inst.op));
        }
    }
}
