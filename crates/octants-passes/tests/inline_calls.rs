//! The calls that `inline_calls` does not inline: code must not grow with the number of calls, and vectorizable loops
//! must not contain calls.

use octants_ir::{BinaryOp, Builder, ForLoop, FuncId, Function, Kernel, Op, Range, Scalar, Type};
use octants_passes::inline_calls::inline_calls;

/// The number of remaining calls of `calls` calls of a function of `operations` operations, each in its own loop or
/// not.
fn calls_left(calls: usize, operations: usize, with_loop: bool) -> usize {
    let mut f = Builder::new();
    let mut v = f.push(Op::Param(0), Type::I32);
    for _ in 0..operations {
        v = f.binary(BinaryOp::Add, v, v);
    }
    if with_loop {
        let body = f.body.add_block();
        let dims = vec![Range { begin: v, end: v }];
        f.push(Op::For(Box::new(ForLoop::serial(dims, body))), Type::Unit);
    }
    f.push(Op::Return(Some(v)), Type::Unit);
    let function = Function { name: "f".into(), params: vec![Type::I32], ret: Type::I32, body: f.body };
    let mut b = Builder::new();
    let mut v = b.int(1, Scalar::I32);
    for _ in 0..calls {
        v = b.push(Op::Call(FuncId(0), vec![v]), Type::I32);
    }
    b.push(Op::Return(Some(v)), Type::Unit);
    let mut kernel =
        Kernel { name: "k".into(), functions: vec![function], body: b.body, ret: Type::I32, ..Kernel::default() };
    inline_calls(&mut kernel);
    octants_ir::assert_kernel(&kernel, "inline_calls");
    let mut left = 0;
    kernel.body.visit(kernel.body.root, &mut |_, inst| left += usize::from(matches!(inst.op, Op::Call(..))));
    left
}

#[test]
fn code_does_not_grow_with_the_number_of_calls() {
    assert_eq!(calls_left(1, 10_000, true), 0);
    assert_eq!(calls_left(8, 200, false), 0);
    assert_eq!(calls_left(40, 200, false), 40);
    assert_eq!(calls_left(1000, 5, false), 0);
}

#[test]
fn functions_with_loops_are_inlined_less() {
    assert_eq!(calls_left(2, 200, true), 0);
    assert_eq!(calls_left(8, 200, true), 8);
}

/// The instructions of a kernel that calls the first of `levels` functions of `operations` operations, each of which
/// calls the next twice.
fn size_of_tree(levels: u32, operations: usize) -> usize {
    let function = |level: u32| {
        let mut f = Builder::new();
        let mut v = f.push(Op::Param(0), Type::I32);
        for _ in 0..operations {
            v = f.binary(BinaryOp::Add, v, v);
        }
        for _ in 0..2 {
            if level + 1 < levels {
                v = f.push(Op::Call(FuncId(level + 1), vec![v]), Type::I32);
            }
        }
        f.push(Op::Return(Some(v)), Type::Unit);
        Function { name: format!("f{level}"), params: vec![Type::I32], ret: Type::I32, body: f.body }
    };
    let functions = (0..levels).map(function).collect();
    let mut b = Builder::new();
    let mut v = b.int(1, Scalar::I32);
    for _ in 0..8 {
        v = b.push(Op::Call(FuncId(0), vec![v]), Type::I32);
    }
    b.push(Op::Return(Some(v)), Type::Unit);
    let mut kernel = Kernel { name: "k".into(), functions, body: b.body, ret: Type::I32, ..Kernel::default() };
    inline_calls(&mut kernel);
    octants_ir::assert_kernel(&kernel, "inline_calls");
    let mut size = 0;
    for body in kernel.functions.iter().map(|f| &f.body).chain([&kernel.body]) {
        body.visit(body.root, &mut |_, _| size += 1);
    }
    size
}

#[test]
fn nested_inlining_is_bounded() {
    assert!(size_of_tree(3, 24) > 8 * 7 * 24, "a small tree is inlined whole");
    // Each of sixty functions may be inlined, but not all of them together. Inlined functions are kept, too.
    let size = size_of_tree(60, 400);
    assert!(size < 60 * 403 + 2 * 8000, "{size}");
}
