//! Builds programs for tests: the pieces, and the loops that several files compile.

#![allow(dead_code)] // Each test file uses a part of it.

use octants_ir::*;

/// A program of one task.
pub fn program(buffers: Vec<Buffer>, params: Vec<(&str, Type)>, ret: Type, parallel: bool, body: Body) -> Program {
    let roots = buffers
        .iter()
        .filter_map(|b| match &b.layout {
            Layout::Dense { components, .. } => components.iter().map(|c| c.root + 1).max(),
            _ => None,
        })
        .max()
        .unwrap_or(0);
    let kind = if parallel { TaskKind::Parallel(LoopConfig::default()) } else { TaskKind::Serial };
    let tasks = vec![Task { name: "kernel_0".into(), kind, body, access: AccessSet::default() }];
    Program {
        name: "kernel".into(),
        params: params.into_iter().map(|(n, ty)| Param { name: n.into(), ty }).collect(),
        buffers,
        roots,
        functions: Vec::new(),
        ret,
        frame: Vec::new(),
        graph: TaskGraph::in_order(&tasks),
        tasks,
    }
}

/// A contiguous array argument.
pub fn array(name: &str, elem: impl Into<Type>, ndim: u32) -> Buffer {
    Buffer {
        name: name.into(),
        elem: elem.into(),
        ndim,
        layout: Layout::Contiguous,
        space: Default::default(),
        short_offsets: false,
        is_metadata: false,
    }
}

/// A two-dimensional row-major field of 4-byte scalars with its own root.
pub fn plane(name: &str, root: u32, [n, m]: [u64; 2]) -> Buffer {
    let axes = vec![vec![Digit { extent: n, stride: m * 4 }], vec![Digit { extent: m, stride: 4 }]];
    let components = vec![ComponentLayout { root, place: Placement { base: 0, axes } }];
    let layout = Layout::Dense { shape: vec![n, m], offset: vec![0, 0], components };
    Buffer { layout, ..array(name, Scalar::F32, 2) }
}

/// Appends a loop over `dims` (begin, end) and builds its body; gives the body the loop's value.
pub fn for_loop(
    b: &mut Builder,
    dims: Vec<(ValueId, ValueId)>,
    parallel: bool,
    reductions: Vec<Reduction>,
    inside: impl FnOnce(&mut Builder, ValueId),
) -> ValueId {
    let body = b.body.add_block();
    let dims = dims.into_iter().map(|(begin, end)| Range { begin, end }).collect();
    let parallel = parallel.then(LoopConfig::default);
    let v = b.push(Op::For(Box::new(ForLoop { parallel, reductions, ..ForLoop::serial(dims, body) })), Type::Unit);
    let here = b.set_cursor(body);
    inside(b, v);
    b.set_cursor(here);
    v
}

/// Index of an axis as i32.
pub fn index(b: &mut Builder, l: ValueId, axis: u32) -> ValueId {
    b.push(Op::LoopIndex(l, axis), Type::I32)
}

/// Address of a buffer's element.
pub fn at(b: &mut Builder, buffer: u32, elem: impl Into<Type>, index: &[ValueId]) -> ValueId {
    b.push(Op::BufferAddr(BufferId(buffer), index.to_vec()), Type::Ref(Box::new(elem.into())))
}

/// Extent of an axis as i32.
pub fn shape(b: &mut Builder, buffer: u32, axis: u32) -> ValueId {
    b.push(Op::Shape(BufferId(buffer), axis), Type::I32)
}

/// If with two arms.
pub fn if_else(b: &mut Builder, c: ValueId, then: impl FnOnce(&mut Builder), otherwise: impl FnOnce(&mut Builder)) {
    let (t, o) = (b.body.add_block(), b.body.add_block());
    b.push(Op::If(c, t, o), Type::Unit);
    let here = b.set_cursor(t);
    then(b);
    b.set_cursor(o);
    otherwise(b);
    b.set_cursor(here);
}

/// Appends a parallel loop over the first axis of the first buffer and builds its body; gives the body the index.
pub fn for_each(b: &mut Builder, inside: impl FnOnce(&mut Builder, ValueId)) {
    let zero = b.int(0, Scalar::I32);
    let n = shape(b, 0, 0);
    for_loop(b, vec![(zero, n)], true, vec![], |b, l| {
        let i = index(b, l, 0);
        inside(b, i);
    });
}

/// Loads an element.
pub fn get(b: &mut Builder, buffer: u32, s: Scalar, index: &[ValueId]) -> ValueId {
    let a = at(b, buffer, s, index);
    b.load(a)
}

/// Stores an element.
pub fn set(b: &mut Builder, buffer: u32, s: Scalar, index: &[ValueId], v: ValueId) {
    let a = at(b, buffer, s, index);
    b.store(a, v);
}

/// y[i] = the operations, one after the other, on x[i].
pub fn map(ops: &[UnaryOp], s: Scalar) -> Program {
    let mut b = Builder::new();
    for_each(&mut b, |b, i| {
        let x = get(b, 0, s, &[i]);
        let v = ops.iter().fold(x, |v, op| b.unary(*op, v));
        set(b, 1, s, &[i], v);
    });
    program(vec![array("x", s, 1), array("y", s, 1)], vec![], Type::Unit, true, b.body)
}

/// y[0] = y[0] with all of x.
pub fn reduction(op: AtomicOp, s: Scalar) -> Program {
    let mut b = Builder::new();
    let zero = b.int(0, Scalar::I32);
    let n = shape(&mut b, 0, 0);
    let target = at(&mut b, 1, s, &[zero]);
    for_loop(&mut b, vec![(zero, n)], true, vec![Reduction { op, target, plain: false }], |b, l| {
        let i = index(b, l, 0);
        let v = get(b, 0, s, &[i]);
        b.push(Op::Reduce(0, v), Type::Unit);
    });
    program(vec![array("x", s, 1), array("y", s, 1)], vec![], Type::Unit, true, b.body)
}

/// h[x[i]] is updated with a value that is built for each index.
pub fn scatter(op: AtomicOp, h: Buffer, s: Scalar, value: impl FnOnce(&mut Builder, ValueId) -> ValueId) -> Program {
    let mut b = Builder::new();
    for_each(&mut b, |b, i| {
        let bin = get(b, 0, Scalar::I32, &[i]);
        let v = value(b, i);
        let a = at(b, 1, s, &[bin]);
        b.push(Op::Atomic(op, a, v), s.into());
    });
    program(vec![array("x", Scalar::I32, 1), h, array("w", s, 1)], vec![], Type::Unit, true, b.body)
}

/// y[i] = x[i], which is printed, and must be below 1.
pub fn checked_copy() -> Program {
    let s = Scalar::F32;
    let mut b = Builder::new();
    for_each(&mut b, |b, i| {
        let v = get(b, 0, s, &[i]);
        let limit = b.float(1.0, s);
        let fine = b.binary(BinaryOp::Lt, v, limit);
        b.push(Op::Assert(fine, vec![TextPart::Text("too large: ".into()), TextPart::Value(v, None)]), Type::Unit);
        b.push(Op::Print(vec![TextPart::Value(i, None), TextPart::Value(v, None)]), Type::Unit);
        set(b, 1, s, &[i], v);
    });
    program(vec![array("x", s, 1), array("y", s, 1)], vec![], Type::Unit, true, b.body)
}

/// x[i] = the last of 600 parameters.
pub fn many_parameters() -> Program {
    let s = Scalar::F32;
    let mut b = Builder::new();
    let last = b.push(Op::Param(599), s.into());
    for_each(&mut b, |b, i| set(b, 0, s, &[i], last));
    let params = (0..600).map(|_| ("p", Type::Scalar(s))).collect();
    program(vec![array("x", s, 1)], params, Type::Unit, true, b.body)
}
