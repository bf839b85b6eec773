//! Programs of one operation of threads each.

use octants_ir::matrix_product::ELEMENTS;
use octants_ir::{
    FragmentAxis, FragmentElement, FragmentRole, Op, ProductKind, Program, Type, ValueId, assert_program,
};

/// A loop in blocks of 128 threads, more than a subgroup has. Each thread has `%16`, its index in the block, `%15`, its
/// index in its subgroup, `%17`, its element of `x`, and `%18`, whether its index in the subgroup is less than three.
/// `code` begins with `%30`, and makes `%40` of type `result`, its element of `y`.
pub fn of_threads(result: &str, code: &str) -> Program {
    let text = format!(
        "program threads -> unit {{
          buffer @0 x: f32[1] contiguous
          buffer @1 y: {result}[1] contiguous
          buffer @2 s: f32[1] shared dense shape [128] offset [0] {{ component root 0 base 0 axes [[128 * 4]] }}
          task threads_0 parallel(block_dim 128) reads [@0, @2] writes [@1, @2] {{
            %0: i32 = const 0
            %1: i32 = shape @0, 0
            %10 = for [%0..%1] parallel(block_dim 128) {{
              %11: i32 = loop_index %10, 0
              %12: ref f32 = buffer_addr @0[%11]
              %13: i32 = const 3
              %15: i32 = grid lane
              %16: i32 = grid thread
              %17: f32 = load %12
              %18: u1 = lt %15, %13
              {code}
              %50: ref {result} = buffer_addr @1[%11]
              store %50, %40
            }}
          }}
        }}"
    );
    let program: Program = text.parse().unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_program(&program, "parsing");
    program
}

/// A barrier of a scope between a store to shared memory and a load of what another thread stored.
pub fn barrier(scope: &str) -> Program {
    of_threads(
        "f32",
        &format!(
            "%30: ref f32 = buffer_addr @2[%16]
             store %30, %17
             barrier {scope}
             %33: i32 = xor %16, %13
             %34: ref f32 = buffer_addr @2[%33]
             %40: f32 = load %34"
        ),
    )
}

/// A fence between two stores.
pub fn fence(scope: &str) -> Program {
    of_threads(
        "f32",
        &format!(
            "%30: ref f32 = buffer_addr @1[%11]
             store %30, %17
             fence {scope}
             %40: f32 = add %17, %17"
        ),
    )
}

/// An operation of a subgroup; a vote as an i32.
pub fn subgroup(operation: &str) -> Program {
    match operation.split('(').next() {
        Some("ballot") => of_threads("u64", &format!("%40: u64 = subgroup {operation}")),
        Some("any" | "all" | "all_here" | "is_whole") => {
            of_threads("i32", &format!("%30: u1 = subgroup {operation}\n%40: i32 = cast %30"))
        }
        _ => of_threads("f32", &format!("%40: f32 = subgroup {operation}")),
    }
}

/// Multiplies two matrices of 16 x 16 by the `lanes` threads of a subgroup, and adds a third one.
pub fn matrix_product(kind: ProductKind, lanes: u32) -> Program {
    let [operand, sum] = [kind.operand(), kind.accumulator()];
    let text = format!(
        "program products -> unit {{
          buffer @0 a: {operand}[2] contiguous
          buffer @1 b: {operand}[2] contiguous
          buffer @2 c: {sum}[2] contiguous
          task products_0 parallel(block_dim 64) reads [@0, @1, @2] writes [@2] {{
            %0: i32 = const 0
            %1: i32 = const 64
            %10 = for [%0..%1] parallel(block_dim 64) {{
            }}
          }}
        }}"
    );
    let mut program: Program = text.parse().unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut builder = octants_ir::Builder::new();
    builder.body = std::mem::take(&mut program.tasks[0].body);
    let b = &mut builder;
    let inside = b.body.insts.iter().find_map(|inst| inst.op.blocks().first().copied()).unwrap_or(b.body.root);
    b.set_cursor(inside);
    let index = |b: &mut octants_ir::Builder, role, component, axis| {
        b.push(Op::FragmentIndex(FragmentElement { kind, role, component, axis }), Type::I32)
    };
    let address = |b: &mut octants_ir::Builder, role: FragmentRole, component| {
        let at = FragmentAxis::ALL.iter().map(|axis| index(b, role, component, *axis)).collect();
        let ty = Type::Ref(Box::new(kind.scalar(role).into()));
        b.push(Op::BufferAddr(octants_ir::BufferId(role as u32), at), ty)
    };
    let n = ELEMENTS / lanes;
    let fragments: Vec<ValueId> = FragmentRole::ALL
        .iter()
        .map(|role| {
            let parts = (0..n).map(|i| {
                let at = address(b, *role, i);
                b.load(at)
            });
            let parts = parts.collect();
            b.push(Op::MakeTensor(parts), Type::Vector(kind.scalar(*role), n))
        })
        .collect();
    let made = b.push(Op::Subgroup(kind.operation(), fragments), Type::Vector(sum, n));
    for i in 0..n {
        let at = address(b, FragmentRole::Accumulator, i);
        let part = b.extract(made, i);
        b.store(at, part);
    }
    program.tasks[0].body = builder.body;
    assert_program(&program, "building");
    program
}
