//! The verifier: the invariants of every kernel and program, as a numbered list of rules ([`Rule`]).
//!
//! [`verify_kernel`] and [`verify_program`] return every violation with its instruction; [`assert_kernel`] and
//! [`assert_program`] panic with all of them and the whole text. Rules about the form of the code (1 to 19) are here,
//! except the one about convergence (16) in `verify_convergence`. Rules about the types of one instruction (20 to 33)
//! are in `verify_types`, the one about access sets (34) in `verify_access`, rules about task graphs (40 to 45) in
//! `verify_graph`. After an instruction has violated a rule about numbers, it is not checked further.

use std::collections::HashSet;
use std::fmt::{self, Write as _};

use crate::body::Body;
use crate::kernel::{Buffer, Function, Kernel, Layout, MemorySpace, Param, Program, TaskKind};
use crate::op::*;
use crate::print::print_inst;
use crate::rules::Scope;
pub use crate::rules::{Rule, Violation};
use crate::schedule::Scheduled;
use crate::types::{Scalar, Type};
use crate::verify_access::verify_access;
use crate::verify_convergence::{Convergence, RunBy};
use crate::verify_graph::{verify_graph, verify_rounds};
use crate::verify_types::check_types;

/// The violations of a kernel.
pub fn verify_kernel(k: &Kernel) -> Vec<Violation> {
    let mut out = Vec::new();
    verify_shadow_buffers(k, &mut out);
    verify_spaces(&k.buffers, &mut out);
    verify_functions(&k.buffers, &k.functions, false, &mut out);
    let scope = kernel_scope(&k.buffers, &k.functions, &k.params, None, &k.ret);
    if Verifier::new(&scope, &k.body, "body".to_string(), &mut out).run() {
        verify_rounds(&k.body, "body", &mut out);
    }
    verify_convergence(&k.functions, [("body".to_string(), &k.body, RunBy::OneThread)], &mut out);
    out
}

/// Checks the convergence rule, for code that breaks no other rule.
fn verify_convergence<'a>(
    functions: &[Function],
    bodies: impl IntoIterator<Item = (String, &'a Body, RunBy)>,
    out: &mut Vec<Violation>,
) {
    if !out.is_empty() {
        return;
    }
    let convergence = Convergence::new(functions);
    let mut report = |place: String, body: &Body, runs: RunBy| {
        convergence.check(body, runs, |v| {
            out.push(Violation { rule: Rule::Converges, place: place.clone(), detail: print_inst(body, v) });
        });
    };
    functions.iter().for_each(|f| report(format!("function {}", f.name), &f.body, RunBy::Threads));
    bodies.into_iter().for_each(|(place, body, run_by)| report(place, body, run_by));
}

fn verify_shadow_buffers(k: &Kernel, out: &mut Vec<Violation>) {
    for (buffer, shadow_buffer) in &k.shadow_buffers {
        let fits = match (k.buffers.get(buffer.index()), k.buffers.get(shadow_buffer.index())) {
            (Some(b), Some(c)) => {
                let float = b.elem.scalar().is_some_and(Scalar::is_float);
                float && buffer != shadow_buffer && (b.elem == c.elem || c.elem == Type::I32) && b.ndim == c.ndim
            }
            _ => false,
        };
        if !fits {
            let detail = format!("shadow {buffer} {shadow_buffer}");
            out.push(Violation { rule: Rule::ShadowFits, place: "buffers".into(), detail });
        }
    }
}

fn verify_spaces(buffers: &[Buffer], out: &mut Vec<Violation>) {
    for (i, b) in buffers.iter().enumerate() {
        let fits = match (&b.layout, b.space) {
            (Layout::Flat(of), MemorySpace::Global) => buffers.get(of.index()).is_some_and(|of| {
                (b.ndim, &of.layout) == (1, &Layout::Contiguous)
                    && of.elem.scalar().map(Type::Scalar) == Some(b.elem.clone())
            }),
            (Layout::Dense { .. }, space) => space != MemorySpace::Copies,
            (_, MemorySpace::Global) => true,
            (Layout::Contiguous, MemorySpace::Private) => b.ndim == 1,
            (Layout::Contiguous, MemorySpace::Copies) => b.ndim == 2,
            _ => false,
        };
        if !fits {
            let detail = format!("{} {}", BufferId(i as u32), b.name);
            out.push(Violation { rule: Rule::MemorySpaceFits, place: "buffers".into(), detail });
        }
    }
}

/// The violations of a program.
pub fn verify_program(p: &Program) -> Vec<Violation> {
    let mut out = Vec::new();
    verify_spaces(&p.buffers, &mut out);
    verify_functions(&p.buffers, &p.functions, true, &mut out);
    let mut scope = program_scope(p);
    let mut names = HashSet::new();
    for task in &p.tasks {
        let place = format!("task {}", task.name);
        if !names.insert(&task.name) {
            out.push(Violation {
                rule: Rule::TaskForm,
                place: place.clone(),
                detail: "the task name is not unique".into(),
            });
        }
        verify_task(&mut scope, &task.body, place, &task.kind, &mut out);
    }
    if out.is_empty() {
        p.tasks.iter().for_each(|task| verify_access(p, task, &mut out));
        verify_graph(p, &mut out);
    }
    let bodies = p.tasks.iter().map(|t| (format!("task {}", t.name), &t.body, RunBy::of(&t.kind)));
    verify_convergence(&p.functions, bodies, &mut out);
    out
}

/// The violations of a scheduled program: of its program, and of the bodies of its variants.
pub fn verify_scheduled(s: &Scheduled) -> Vec<Violation> {
    let mut out = verify_program(&s.program);
    let mut scope = program_scope(&s.program);
    for (task, schedule) in s.program.tasks.iter().zip(&s.schedule.tasks) {
        for variant in &schedule.variants {
            let place = format!("task {}, {} variant", task.name, variant.role.name());
            let kind = variant.kind(&task.kind);
            verify_task(&mut scope, &variant.body, place, &kind, &mut out);
        }
    }
    let variants = s.program.tasks.iter().zip(&s.schedule.tasks).flat_map(|(task, schedule)| {
        let place = |role: &str| format!("task {}, {role} variant", task.name);
        schedule.variants.iter().map(move |v| (place(v.role.name()), &v.body, RunBy::of(&v.kind(&task.kind))))
    });
    verify_convergence(&s.program.functions, variants, &mut out);
    out
}

fn verify_task(scope: &mut Scope<'_>, body: &Body, place: String, kind: &TaskKind, out: &mut Vec<Violation>) {
    scope.is_grid = matches!(kind, TaskKind::Grid(_));
    let mut v = Verifier::new(scope, body, place, out);
    if v.run() {
        v.task_form(kind);
    }
}

fn program_scope(p: &Program) -> Scope<'_> {
    kernel_scope(&p.buffers, &p.functions, &p.params, Some(&p.frame), &p.ret)
}

/// Panics if a kernel breaks a rule; `after` says which step made it.
pub fn assert_kernel(k: &Kernel, after: &str) {
    panic_on(verify_kernel(k), after, k);
}

/// Panics if a program breaks a rule; `after` says which step made it.
pub fn assert_program(p: &Program, after: &str) {
    panic_on(verify_program(p), after, p);
}

/// Panics if a scheduled program breaks a rule; `after` says which step made it.
pub fn assert_scheduled(s: &Scheduled, after: &str) {
    panic_on(verify_scheduled(s), after, s);
}

fn panic_on(violations: Vec<Violation>, after: &str, ir: &dyn fmt::Display) {
    if violations.is_empty() {
        return;
    }
    let mut text = format!("compiler bug: invalid IR after {after}\n");
    for v in &violations {
        let _ = writeln!(text, "  {v}");
    }
    panic!("{text}{ir}");
}

fn kernel_scope<'a>(
    buffers: &'a [Buffer],
    functions: &'a [Function],
    params: &'a [Param],
    frame: Option<&'a [Type]>,
    ret: &'a Type,
) -> Scope<'a> {
    let params = params.iter().map(|p| &p.ty).collect();
    Scope { buffers, functions, params, frame, ret, is_function: false, is_scheduled: frame.is_some(), is_grid: false }
}

fn verify_functions(buffers: &[Buffer], functions: &[Function], is_scheduled: bool, out: &mut Vec<Violation>) {
    for f in functions {
        let params = f.params.iter().collect();
        let scope = Scope {
            buffers,
            functions,
            params,
            frame: None,
            ret: &f.ret,
            is_function: true,
            is_scheduled,
            is_grid: false,
        };
        let place = format!("function {}", f.name);
        let sound = Verifier::new(&scope, &f.body, place.clone(), out).run();
        if sound && f.ret != Type::Unit && !returns(&f.body, f.body.root) {
            out.push(Violation { rule: Rule::FunctionReturns, place, detail: "it may end without `return`".into() });
        }
    }
}

/// Control never reaches the end of a block.
fn returns(body: &Body, b: BlockId) -> bool {
    match body.block(b).last().map(|v| &body.inst(*v).op) {
        Some(Op::Return(_)) => true,
        Some(Op::If(_, then, other)) => returns(body, *then) && returns(body, *other),
        // A loop that is left by `break` comes out.
        Some(Op::Loop(inner)) => !breaks(body, *inner),
        _ => false,
    }
}

/// A block leaves the loop around it.
fn breaks(body: &Body, b: BlockId) -> bool {
    body.block(b).iter().any(|v| match &body.inst(*v).op {
        Op::Break => true,
        Op::If(_, then, other) => breaks(body, *then) || breaks(body, *other),
        _ => false,
    })
}

/// A loop around the current instruction.
struct Enclosing {
    v: ValueId,
    is_for: bool,
    parallel: bool,
}

struct Verifier<'a> {
    scope: &'a Scope<'a>,
    body: &'a Body,
    place: String,
    out: &'a mut Vec<Violation>,
    visible: Vec<bool>,
    placed: Vec<bool>,
    blocks: Vec<bool>,
    /// Blocks in which a parallel loop may be.
    of_tasks: Vec<bool>,
    loops: Vec<Enclosing>,
}

impl<'a> Verifier<'a> {
    fn new(scope: &'a Scope<'a>, body: &'a Body, place: String, out: &'a mut Vec<Violation>) -> Self {
        Verifier {
            scope,
            body,
            place,
            out,
            visible: vec![false; body.insts.len()],
            placed: vec![false; body.insts.len()],
            blocks: vec![false; body.blocks.len()],
            of_tasks: vec![false; body.blocks.len()],
            loops: Vec::new(),
        }
    }

    /// Returns whether all rules hold.
    fn run(&mut self) -> bool {
        let before = self.out.len();
        if self.body.root.index() >= self.body.blocks.len() {
            self.report(Rule::NumbersExist, format!("root {} does not exist", self.body.root));
        } else {
            self.of_tasks[self.body.root.index()] = !self.scope.is_function;
            self.block(self.body.root);
        }
        self.out.len() == before
    }

    fn report(&mut self, rule: Rule, detail: String) {
        self.out.push(Violation { rule, place: self.place.clone(), detail });
    }

    fn broken(&mut self, rule: Rule, v: ValueId) {
        self.report(rule, print_inst(self.body, v));
    }

    fn block(&mut self, b: BlockId) {
        if std::mem::replace(&mut self.blocks[b.index()], true) {
            return self.report(Rule::PlacedOnce, format!("block {b} is placed twice"));
        }
        let insts = self.body.block(b);
        for (i, &v) in insts.iter().enumerate() {
            if v.index() >= self.body.insts.len() {
                self.report(Rule::NumbersExist, format!("{v} in {b} does not exist"));
                continue;
            }
            if std::mem::replace(&mut self.placed[v.index()], true) {
                self.broken(Rule::PlacedOnce, v);
                continue;
            }
            self.inst(v, i + 1 == insts.len(), b);
        }
        for &v in insts.iter().filter(|v| v.index() < self.body.insts.len()) {
            self.visible[v.index()] = false;
        }
    }

    fn inst(&mut self, v: ValueId, last: bool, home: BlockId) {
        let op = &self.body.inst(v).op;
        if !self.numbers_exist(op) {
            self.broken(Rule::NumbersExist, v);
            self.visible[v.index()] = true;
            return;
        }
        let mut sound = true;
        let names_loop = matches!(op, Op::LoopIndex(..));
        op.for_each_operand(|u| {
            if !names_loop && !self.visible[u.index()] {
                self.broken(Rule::DefinedBefore, v);
                sound = false;
            } else if !names_loop && *self.body.ty(u) == Type::Unit {
                self.broken(Rule::OperandHasValue, v);
                sound = false;
            }
        });
        self.visible[v.index()] = true;
        if op.is_terminator() && !last {
            self.broken(Rule::TerminatorLast, v);
        }
        sound &= self.form(v, op, home);
        if sound {
            let broken =
                |rule| self.out.push(Violation { rule, place: self.place.clone(), detail: print_inst(self.body, v) });
            check_types(self.scope, self.body, v, broken);
        }
        let is_for = matches!(op, Op::For(_));
        let parallel = matches!(op, Op::For(l) if l.parallel.is_some());
        if is_for || matches!(op, Op::Loop(_)) {
            self.loops.push(Enclosing { v, is_for, parallel });
        }
        if let Op::Loop(_) | Op::If(..) = op {
            // Inside a task, loops and branches contain no tasks.
            let of_tasks = self.of_tasks[home.index()] && self.scope.frame.is_none();
            op.blocks().into_iter().for_each(|inner| self.of_tasks[inner.index()] = of_tasks);
        }
        op.blocks().into_iter().for_each(|b| self.block(b));
        if is_for || matches!(op, Op::Loop(_)) {
            self.loops.pop();
        }
    }

    fn numbers_exist(&self, op: &Op) -> bool {
        let (body, scope) = (self.body, self.scope);
        let mut exist = op.blocks().iter().all(|b| b.index() < body.blocks.len());
        op.for_each_operand(|u| exist &= u.index() < body.insts.len());
        exist
            && match op {
                Op::Param(i) => (*i as usize) < scope.params.len(),
                Op::LocalAddr(l) => l.index() < body.locals.len(),
                Op::BufferAddr(b, _) => b.index() < scope.buffers.len(),
                Op::Shape(b, axis) => scope.buffers.get(b.index()).is_some_and(|b| *axis < b.ndim),
                Op::FrameAddr(s) => scope.frame.is_none_or(|f| s.index() < f.len()),
                Op::Call(f, _) => f.index() < scope.functions.len(),
                _ => true,
            }
    }

    /// Rules about the position of an instruction.
    fn form(&mut self, v: ValueId, op: &Op, home: BlockId) -> bool {
        let inner = self.loops.last();
        let rule = match op {
            Op::Break if inner.is_none_or(|l| l.parallel) => Rule::JumpInLoop,
            Op::Continue if inner.is_none() => Rule::JumpInLoop,
            Op::Return(value) => {
                let ty = value.map_or(&Type::Unit, |u| self.body.ty(u));
                if ty == self.scope.ret && (self.scope.is_function || home == self.body.root) {
                    return true;
                }
                Rule::ReturnPlace
            }
            Op::For(l) if l.parallel.is_some() && self.scope.is_grid && !self.loops.is_empty() => Rule::GridForm,
            Op::For(l) if l.parallel.is_some() && !self.scope.is_grid && !self.of_tasks[home.index()] => {
                Rule::ParallelAtRoot
            }
            Op::For(l) if l.parallel.is_none() && !l.reductions.is_empty() => Rule::ReduceInParallel,
            Op::For(l) if !self.groups_fit(l) => Rule::GroupsFit,
            Op::LoopIndex(l, axis) => {
                let around = self.loops.iter().any(|e| e.v == *l && e.is_for);
                let axes = match &self.body.inst(*l).op {
                    Op::For(l) => l.dims.len(),
                    _ => 0,
                };
                if around && (*axis as usize) < axes {
                    return true;
                }
                Rule::LoopIndexInside
            }
            Op::Reduce(slot, x) => {
                let around = self.loops.iter().find(|e| e.parallel).map(|e| &self.body.inst(e.v).op);
                let target = match around {
                    Some(Op::For(l)) => l.reductions.get(*slot as usize).map(|r| self.body.ty(r.target)),
                    _ => None,
                };
                match target {
                    Some(Type::Ref(t)) if **t == *self.body.ty(*x) => return true,
                    Some(_) => Rule::MemoryType,
                    None => Rule::ReduceInParallel,
                }
            }
            Op::Checkpoint(..) | Op::Section(_) if !self.ends_part(v, home) => Rule::CheckpointEnds,
            Op::FrameAddr(_) if self.scope.frame.is_none() => Rule::TaskForm,
            Op::Freeze(_)
            | Op::Prefetch(_)
            | Op::VectorLoad(_)
            | Op::VectorStore(..)
            | Op::CopyAsync(..)
            | Op::AwaitCopies
                if !self.scope.is_scheduled =>
            {
                Rule::DialectFits
            }
            _ => return true,
        };
        self.broken(rule, v);
        false
    }

    /// Whether a checkpoint or section is at a valid position.
    fn ends_part(&self, v: ValueId, home: BlockId) -> bool {
        let ends = matches!(self.body.block(home), [.., c, b] if *c == v && self.body.inst(*b).op == Op::Break);
        ends && home != self.body.root && self.of_tasks[home.index()]
    }

    fn groups_fit(&self, l: &ForLoop) -> bool {
        let mut factors: Vec<u32> = l.groups.iter().map(|g| g.factor).collect();
        factors.push(1);
        l.groups.is_empty()
            || self.scope.is_scheduled
                && l.is_parallel()
                && !l.dims.is_empty()
                && factors.windows(2).all(|pair| pair[0] > pair[1])
                && l.groups.iter().all(|g| match g.placement {
                    GroupPlacement::Consecutive => !self.scope.is_grid,
                    GroupPlacement::Aligned => self.aligned_fits(l, g.factor),
                    GroupPlacement::Tiled(columns) => {
                        self.aligned_fits(l, g.factor) && l.dims.len() > 1 && columns.is_power_of_two()
                    }
                })
    }

    /// Whether the loop has one aligned group, with a power-of-two factor.
    fn aligned_fits(&self, l: &ForLoop, factor: u32) -> bool {
        self.scope.is_grid && l.groups.len() == 1 && factor.is_power_of_two()
    }

    fn task_form(&mut self, kind: &TaskKind) {
        let body = self.body;
        let root = body.block(body.root);
        let is_parallel = |v: &ValueId| matches!(&body.inst(*v).op, Op::For(l) if l.parallel.is_some());
        match kind {
            TaskKind::Serial => {
                for v in root.iter().filter(|v| is_parallel(v)) {
                    self.broken(Rule::TaskForm, *v);
                }
            }
            TaskKind::Grid(_) => {}
            TaskKind::Parallel(_) => {
                let Some((last, prologue)) = root.split_last() else {
                    return self.report(Rule::TaskForm, "the task has no loop".to_string());
                };
                if !is_parallel(last) {
                    self.broken(Rule::TaskForm, *last);
                }
                for v in prologue {
                    let op = &body.inst(*v).op;
                    if matches!(op, Op::LocalAddr(_)) || !(op.is_pure() || matches!(op, Op::Load(_))) {
                        self.broken(Rule::TaskForm, *v);
                    }
                }
            }
        }
    }
}
