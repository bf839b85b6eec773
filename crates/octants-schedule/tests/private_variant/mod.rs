//! Private variants as standalone programs.

#![allow(dead_code)] // Each test file uses a part of it.

use std::collections::BTreeMap;

use octants_ir::schedule::{Region, RegionMemory, Role, ScatterPrivatization};
use octants_ir::{
    BinaryOp, Body, Buffer, BufferId, Builder, ComponentLayout, Digit, Layout, MemorySpace, Op, Placement, Program,
    Scalar, Scheduled, Task, TaskGraph, TaskId, launch_count, renumber,
};

/// Bytes of the copy of an array, more than tests need.
const ARRAY_BYTES: u64 = 16 << 10;

/// The program of a role. A thread's private copies are the destination itself, because threads run one at a time and
/// nothing allocates or merges copies.
pub fn runnable(scheduled: &Scheduled, role: Role) -> Program {
    let mut program = scheduled.program_of(role);
    let privatized = scheduled.schedule.tasks.iter().filter_map(|t| t.forms.thread_privatization.as_ref());
    let regions = privatized.flat_map(|found| &found.regions);
    let pairs: BTreeMap<usize, usize> =
        regions.flat_map(|r| r.copies.iter().copied().zip(r.buffers.iter().copied())).collect();
    for inst in program.tasks.iter_mut().flat_map(|t| &mut t.body.insts) {
        if let Op::BufferAddr(b, index) = &mut inst.op
            && let Some(original) = pairs.get(&b.index())
        {
            assert_eq!(index.len(), program.buffers[*original].ndim as usize, "a copy with other axes");
            *b = BufferId(*original as u32);
        }
    }
    // Unused from here on; without them, the memory is that of the original program.
    if let Some((first, _)) = pairs.first_key_value() {
        program.buffers.truncate(*first);
    }
    program
}

/// The program in which several threads run on private copies, and merges add up the copies. Copies are fields here.
/// `None` if no task has copies, or if iterations draw random numbers, which depend on the task.
pub fn with_copies(scheduled: &Scheduled, threads: u64) -> Option<Program> {
    let tasks = &scheduled.schedule.tasks;
    let has_copies = tasks.iter().any(|t| t.forms.thread_privatization.is_some());
    if !has_copies || tasks.iter().any(|t| t.behavior.draws) {
        return None;
    }
    let of_main = scheduled.program_of(Role::Main);
    let mut program = Program { tasks: Vec::new(), ..of_main.clone() };
    let mut launches = Vec::new();
    for (task, found) in of_main.tasks.iter().zip(tasks) {
        let Some(copied) = &found.forms.thread_privatization else {
            program.tasks.push(task.clone());
            continue;
        };
        let private = &found.variant(Role::Private)?.body;
        let memory = place_copies(&mut program, copied, threads);
        for thread in 0..threads {
            let mut body = part_of(private, thread, threads);
            for inst in &mut body.insts {
                if let Op::BufferAddr(b, _) = &mut inst.op
                    && let Some(own) = memory.get(b)
                {
                    *b = own[thread as usize];
                }
            }
            push_task(&mut program, task, body, &format!("thread_{thread}"));
        }
        for variant in found.variants.iter().filter(|v| matches!(v.role, Role::Merge(_))) {
            let number = program.tasks.len();
            push_task(&mut program, task, variant.body.clone(), &format!("merge_{number}"));
        }
    }
    for (number, task) in program.tasks.iter().enumerate() {
        launches.push(TaskGraph::Launch { task: TaskId(number as u32), count: launch_count(task) });
    }
    program.graph = TaskGraph::Sequence(launches);
    Some(program)
}

fn push_task(program: &mut Program, of: &Task, mut body: Body, name: &str) {
    renumber(&mut body);
    let mut access = of.access.clone();
    body.visit(body.root, &mut |_, inst| {
        if let Op::BufferAddr(b, _) = inst.op {
            access.reads.insert(b);
            access.writes.insert(b);
        }
    });
    program.tasks.push(Task { name: format!("{}_{name}", of.name), body, access, kind: of.kind.clone() });
}

/// The iterations of a thread, of all that a body's parallel loop has.
fn part_of(body: &Body, thread: u64, threads: u64) -> Body {
    let mut b = Builder::new();
    b.body = body.clone();
    let root = body.root;
    let v = b.body.blocks[root.index()].pop().unwrap();
    let Op::For(mut l) = b.body.inst(v).op.clone() else { panic!("a parallel task ends in its loop") };
    b.set_cursor(root);
    let range = &mut l.dims[0];
    let s = b.ty(range.begin).scalar().unwrap();
    let none = b.int(0, s);
    let all = b.binary(BinaryOp::Sub, range.end, range.begin);
    let all = b.binary(BinaryOp::Max, all, none);
    let [begin, end] = [thread, thread + 1].map(|part| {
        let [part, parts] = [part, threads].map(|n| b.int(n as i64, s));
        let before = b.binary(BinaryOp::Mul, all, part);
        let before = b.binary(BinaryOp::Div, before, parts);
        b.binary(BinaryOp::Add, range.begin, before)
    });
    (range.begin, range.end) = (begin, end);
    b.body.inst_mut(v).op = Op::For(l);
    b.place(v);
    b.body
}

/// Makes fields of the copies: of each private buffer, one for each thread.
fn place_copies(
    program: &mut Program,
    copied: &ScatterPrivatization,
    threads: u64,
) -> BTreeMap<BufferId, Vec<BufferId>> {
    let mut memory = BTreeMap::new();
    for region in &copied.regions {
        let root = program.roots;
        program.roots += 1;
        let room = room_of(region);
        let all = region.all_copies.expect("copies are merged");
        program.buffers[all] =
            field(&program.buffers[all], root, vec![(threads, room), (room / unit(region), unit(region))]);
        for &private in &region.copies {
            let own = (0..threads).map(|thread| {
                let mut buffer = program.buffers[private].clone();
                buffer.space = MemorySpace::Global;
                if let Layout::Dense { components, .. } = &mut buffer.layout {
                    components.iter_mut().for_each(|c| (c.root, c.place.base) = (root, c.place.base + thread * room));
                } else {
                    let element = unit(region) * buffer.elem.leaf_count() as u64;
                    buffer = field(&buffer, root, vec![(room / element, element)]);
                    let Layout::Dense { components, .. } = &mut buffer.layout else { unreachable!() };
                    components.iter_mut().for_each(|c| c.place.base += thread * room);
                }
                program.buffers.push(buffer);
                BufferId(program.buffers.len() as u32 - 1)
            });
            memory.insert(BufferId(private as u32), own.collect());
        }
    }
    memory
}

fn unit(region: &Region) -> u64 {
    u64::from(region.scalar.bytes())
}

/// Bytes of a copy of a region, which hold whole groups.
fn room_of(region: &Region) -> u64 {
    match region.memory {
        RegionMemory::Root { bytes, .. } => bytes.next_multiple_of(64 * unit(region)),
        RegionMemory::Array { .. } => ARRAY_BYTES,
    }
}

/// A buffer in a root, with an extent and a stride for each axis.
fn field(of: &Buffer, root: u32, axes: Vec<(u64, u64)>) -> Buffer {
    let unit = u64::from(of.elem.scalar().map_or(0, Scalar::bytes));
    let digit = |(extent, stride): &(u64, u64)| vec![Digit { extent: *extent, stride: *stride }];
    let component =
        |i| ComponentLayout { root, place: Placement { base: i * unit, axes: axes.iter().map(digit).collect() } };
    let components = (0..of.elem.leaf_count() as u64).map(component).collect();
    let (shape, offset) = (axes.iter().map(|a| a.0).collect(), vec![0; axes.len()]);
    Buffer {
        layout: Layout::Dense { shape, offset, components },
        space: MemorySpace::Global,
        ndim: axes.len() as u32,
        ..of.clone()
    }
}
