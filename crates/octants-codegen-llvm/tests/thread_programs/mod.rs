//! Programs of one operation of threads each.

use octants_ir::{Program, assert_program};

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
