//! Which calls `inline_calls` leaves: code must not grow with the number of calls, and loops that vectors could run stay whole.

use octants_ir::{BinaryOp, Builder, ForLoop, FuncId, Function, Kernel, Op, Range, Scalar, Type};
use octants_passes::inline_calls::inline_calls;

/// The calls left of `calls` calls of a function of `operations` operations, in a loop of its own or not.
fn calls_left(calls: usize, operations: usize, with_loop: bool) -> usize {
    let mut f = Builder::new();
    let mut v = f.push(Op::Param(0), Type::I32);
    for _ in 0..operations {
        v = f.binary(BinaryOp::Add, v, v);
    }
    if with_loop {
        let body = f.body.add_block();
        let dims = vec![Range { begin: v, end: v }];
        f.push(Op::For(Box::new(ForLoop { dims, body, parallel: None, reductions: Vec::new() })), Type::Unit);
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
fn functions_with_loops_are_called_sooner() {
    assert_eq!(calls_left(2, 200, true), 0);
    assert_eq!(calls_left(8, 200, true), 8);
}
