//! [`guard_iterations`]: prepares data-dependent loops for a device that can queue several iterations at a time.
//!
//! Such a device decides after each iteration whether the loop ends. The decision takes about as long as two small
//! tasks, or a round trip to the host. Tasks of guarded iterations find out themselves that the loop has ended, so the
//! device decides once for several iterations.
//!
//! A loop is prepared if it contains only tasks, few enough that tasks that do nothing cost less than the decisions
//! that they replace. Loops whose tasks draw random numbers, which depend on the iteration, or may fail an assertion,
//! which ends the loop at once, stay as they are.

use octants_analysis::own_behavior;
use octants_ir::{
    AccessSet, BinaryOp, Body, Builder, Condition, Const, FrameSlot, GuardedIterations, Op, Program, Scalar, Task,
    TaskGraph, TaskId, TaskKind, Type, ValueId,
};

/// Iterations per decision for a body of this many tasks. On an H200 a decision takes 3 us, and a task that does
/// nothing 1 us. Many loops end after few iterations.
fn per_decision(tasks: usize) -> u32 {
    match tasks {
        0..=2 => 4,
        3..=8 => 2,
        _ => 1,
    }
}

/// Guards the iterations of loops where that saves time.
pub fn guard_iterations(program: &mut Program) {
    let mut graph = std::mem::take(&mut program.graph);
    let mut launches = vec![0; program.tasks.len()];
    graph.visit(&mut |part| {
        if let TaskGraph::Launch { task, .. } = part {
            launches[task.index()] += 1;
        }
    });
    guard_loops(program, &launches, &mut graph);
    program.graph = graph;
}

fn guard_loops(program: &mut Program, launches: &[usize], part: &mut TaskGraph) {
    match part {
        TaskGraph::Sequence(parts) | TaskGraph::Parallel(parts) => {
            parts.iter_mut().for_each(|part| guard_loops(program, launches, part));
        }
        TaskGraph::If { then, otherwise, .. } => {
            guard_loops(program, launches, then);
            guard_loops(program, launches, otherwise);
        }
        TaskGraph::Switch { cases, otherwise, .. } => {
            cases.iter_mut().for_each(|case| guard_loops(program, launches, case));
            guard_loops(program, launches, otherwise);
        }
        TaskGraph::Launch { .. } => {}
        TaskGraph::Checkpoint { body, .. } => guard_loops(program, launches, body),
        TaskGraph::While { condition, body, guarded } => match tasks_of(body) {
            None => guard_loops(program, launches, body),
            Some(tasks) => {
                let count = tasks.len() + usize::from(last_serial(program, body).is_none());
                let number = per_decision(count);
                let once = tasks.iter().all(|t| launches[t.index()] == 1);
                if number > 1 && once && !depends_on_iteration(program, &tasks) {
                    let guard = set_guard(program, *condition, (tasks, body));
                    *guarded = Some(GuardedIterations { per_decision: number, guard });
                }
            }
        },
    }
}

/// The tasks of a part that decides nothing, in order.
fn tasks_of(part: &TaskGraph) -> Option<Vec<TaskId>> {
    let (mut tasks, mut decides) = (Vec::new(), false);
    part.visit(&mut |part| match part {
        TaskGraph::Launch { task, .. } => tasks.push(*task),
        part => decides |= part.condition().is_some(),
    });
    (!decides).then_some(tasks)
}

/// Some task draws random numbers, or may fail.
fn depends_on_iteration(program: &Program, tasks: &[TaskId]) -> bool {
    let functions: Vec<_> = program.functions.iter().map(|f| own_behavior(&f.body)).collect();
    tasks.iter().any(|task| {
        let own = own_behavior(&program.tasks[task.index()].body);
        let all = own.with(own.reached(&functions).into_iter().map(|f| functions[f.index()].behavior));
        all.draws || all.fails
    })
}

/// The task that ends an iteration, if it is serial: it can set the guard.
fn last_serial(program: &Program, body: &TaskGraph) -> Option<TaskId> {
    let TaskGraph::Sequence(parts) = body else { return None };
    let Some(TaskGraph::Launch { task, .. }) = parts.last() else { return None };
    let Task { kind, body, .. } = &program.tasks[task.index()];
    let mut returns = false;
    body.visit(body.root, &mut |_, inst| returns |= matches!(inst.op, Op::Return(_)));
    (*kind == TaskKind::Serial && !returns).then_some(*task)
}

/// Sets a new guard at the end of an iteration.
fn set_guard(program: &mut Program, condition: Condition, (tasks, body): (Vec<TaskId>, &mut TaskGraph)) -> FrameSlot {
    let guard = FrameSlot(program.frame.len() as u32);
    program.frame.push(Type::Scalar(Scalar::I32));
    let ty = program.condition_type(condition).expect("compiler bug: a loop without a condition").clone();
    for task in tasks {
        program.tasks[task.index()].access.frame_reads.insert(guard);
    }
    let last = last_serial(program, body).unwrap_or_else(|| add_task(program, body));
    let task = &mut program.tasks[last.index()];
    task.access.frame_writes.insert(guard);
    match condition {
        Condition::Buffer(b) => _ = task.access.reads.insert(b),
        Condition::Frame(slot) => _ = task.access.frame_reads.insert(slot),
    }
    push_guard(&mut task.body, (condition, ty), guard);
    guard
}

/// Adds an empty serial task at the end of an iteration.
fn add_task(program: &mut Program, body: &mut TaskGraph) -> TaskId {
    let id = TaskId(program.tasks.len() as u32);
    let name = format!("{}_{}_guard", program.name.replace(|c: char| !c.is_ascii_alphanumeric(), "_"), id.0);
    let (kind, access) = (TaskKind::Serial, AccessSet::default());
    program.tasks.push(Task { name, kind, body: Builder::new().body, access });
    let launch = TaskGraph::launch(&program.tasks, id);
    match body {
        TaskGraph::Sequence(parts) => parts.push(launch),
        _ => *body = TaskGraph::Sequence(vec![std::mem::take(body), launch]),
    }
    id
}

/// Appends `guard = condition != 0`.
fn push_guard(body: &mut Body, (condition, ty): (Condition, Type), guard: FrameSlot) {
    let root = body.root;
    let mut push = |op: Op, ty: Type| -> ValueId {
        let v = body.add_inst(op, ty, Default::default());
        body.blocks[root.index()].push(v);
        v
    };
    let i32 = Type::Scalar(Scalar::I32);
    let (u1, address) = (Type::Scalar(Scalar::U1), |ty: &Type| Type::Ref(Box::new(ty.clone())));
    let at = match condition {
        Condition::Buffer(b) => push(Op::BufferAddr(b, Vec::new()), address(&ty)),
        Condition::Frame(slot) => push(Op::FrameAddr(slot), address(&ty)),
    };
    let value = push(Op::Load(at), ty.clone());
    let zero = push(Op::Const(Const::Int(0)), ty);
    let holds = push(Op::Binary(BinaryOp::Ne, value, zero), u1);
    let holds = push(Op::Cast(holds), i32.clone());
    let at = push(Op::FrameAddr(guard), address(&i32));
    push(Op::Store(at, holds), Type::Unit);
}
