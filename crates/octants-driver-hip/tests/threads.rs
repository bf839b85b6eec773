//! Thread operations, compiled for the emulated GPU and launched on it, compute the same results as the IR's
//! interpreter.

#![allow(clippy::unwrap_used)]

#[allow(dead_code)] // The suite uses the rest.
#[path = "gpu/vendor.rs"]
mod vendor;

use std::sync::{Arc, Mutex};

use octants_artifact::CodeTarget;
use octants_codegen_llvm::{CodegenOptions, compile, target_info};
use octants_driver_gpu::GpuConfig;
use octants_interpreter::{Grid, Interpreter, Leaf, Memory};
use octants_ir::{ArgLayout, BufferId, Program, ScheduleOptions, assert_program};
use octants_runtime::{Device, DeviceConfig, Pointer, Uninterruptible};
use octants_schedule::schedule_program;

const THREADS: u32 = 128;
const BLOCKS: u32 = 3;

/// A program of one loop with an iteration for each thread: `%x` of type `ty` is the thread's element of `x`, `%lane`
/// its index in its subgroup, `%rest` that modulo two; `code` makes `%y` of type `result`, its element of `y`.
fn program(ty: &str, result: &str, code: &str) -> Program {
    let text = format!(
        "program threads -> unit {{
          buffer @0 x: {ty}[1] contiguous
          buffer @1 y: {result}[1] contiguous
          buffer @2 s: {ty}[1] shared dense shape [{THREADS}] offset [0] {{ {components} }}
          task threads_0 parallel(block_dim {THREADS}) reads [@0, @1, @2] writes [@1, @2] {{
            %zero: i32 = const 0
            %end: i32 = const {end}
            %loop = for [%zero..%end] parallel(block_dim {THREADS}) {{
              %two: i32 = const 2
              %one: i32 = const 1
              %five: i32 = const 5
              %index: i32 = loop_index %loop, 0
              %thread: i32 = grid thread
              %lane: i32 = grid lane
              %rest: i32 = mod %lane, %two
              %from: ref {ty} = buffer_addr @0[%index]
              %x: {ty} = load %from
              {code}
              %to: ref {result} = buffer_addr @1[%index]
              store %to, %y
            }}
          }}
        }}",
        components = components(ty),
        end = THREADS * BLOCKS,
    );
    let program: Program = number_values(&text).parse().unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_program(&program, "parsing");
    program
}

/// Numbers in place of the names of values, far enough apart for the instructions without a name in between.
fn number_values(text: &str) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut names: Vec<String> = Vec::new();
    let mut out = String::new();
    for (i, part) in text.split('%').enumerate() {
        if i == 0 {
            out.push_str(part);
            continue;
        }
        let (name, rest) = part.split_at(part.find(|c| !is_name(c)).unwrap_or(part.len()));
        let known = names.iter().position(|n| n == name);
        let number = known.unwrap_or_else(|| {
            names.push(name.to_string());
            names.len() - 1
        });
        out.push_str(&format!("%{}{rest}", 10 * number));
    }
    out
}

/// The layout of an element's components in shared memory.
fn components(ty: &str) -> String {
    let (count, bytes) = match ty {
        "vec3<f32>" => (3, 4),
        "i64" => (1, 8),
        _ => (1, 4),
    };
    let stride = count * bytes;
    let one = |k: u32| format!("component root 0 base {} axes [[{THREADS} * {stride}]]", k * bytes);
    (0..count).map(one).collect::<Vec<_>>().join(" ")
}

/// Distinct values whose bits are not all in one half.
fn fill(p: &Program) -> Memory {
    let mut memory = Memory::new(&p.buffers);
    let n = u64::from(THREADS * BLOCKS);
    let leaves = p.buffers[0].elem.leaf_count() as u64 * n;
    let value = |i: u64| {
        if p.buffers[0].elem.scalar().unwrap().is_float() {
            Leaf::Float(i as f64 * 1.25 - 7.0)
        } else {
            Leaf::Int((i as i64 - 100) * 0x1_0000_0003)
        }
    };
    memory.set(BufferId(0), &[n], &(0..leaves).map(value).collect::<Vec<_>>());
    memory.allocate(BufferId(1), &[n]);
    memory
}

/// The contents of `y` after a run on the stand-in.
fn launch(p: &Program, device: &Device, memory: &Memory) -> Vec<u8> {
    let target = CodeTarget::Device { triple: "hostgpu".into(), cpu: "wave64".into(), features: String::new() };
    let scheduled = schedule_program(p.clone(), &target_info(&target), ScheduleOptions::default());
    let artifact = compile(&scheduled, &|_| String::new(), &CodegenOptions::default(), &target, &mut |_| ()).unwrap();
    let args = ArgLayout::new(p.roots, &p.buffers, &p.params);
    let slot = |b: u32| args.buffers[b as usize].unwrap();
    let pointers = vec![
        Pointer { slot: slot(0), written: true, buffer: None },
        Pointer { slot: slot(1), written: true, buffer: None },
    ];
    let kernel = device.load(&artifact).unwrap().with_pointers(pointers);
    let mut slots = vec![0; args.slots as usize];
    let arrays = [0, 1].map(|b| {
        let bytes = memory.bytes(BufferId(b));
        let array = device.allocate(bytes.len() as u64).unwrap();
        array.write(0, bytes, &Uninterruptible).unwrap();
        slots[slot(b) as usize] = array.ptr().unwrap();
        slots[slot(b) as usize + 1] = u64::from(THREADS * BLOCKS);
        array
    });
    // SAFETY: the arrays live, and are as large as the slots say.
    unsafe { device.default_stream().launch(&kernel, &slots, &Uninterruptible) }.unwrap();
    let mut bytes = vec![0; arrays[1].bytes() as usize];
    arrays[1].read(0, &mut bytes, &Uninterruptible).unwrap();
    bytes
}

/// Runs programs on both. Reports all differences, not only the first.
fn check(programs: &[(String, Program)]) {
    let driver = vendor::open(&GpuConfig::default()).unwrap();
    let said = Arc::new(Mutex::new(String::new()));
    let sink = Arc::new(move |t: &str| said.lock().unwrap().push_str(t));
    let device = Device::new(driver, DeviceConfig { seed: 1, sink });
    let grid = Grid { block_size: THREADS, blocks: BLOCKS, subgroup_size: 64 };
    let mut wrong = Vec::new();
    for (what, p) in programs {
        let mut memory = fill(p);
        let compiled = launch(p, &device, &memory);
        let interpreter = Interpreter { grid, ..Interpreter::default() };
        if let Err(fault) = interpreter.run_program(p, &mut memory, &[]) {
            wrong.push(format!("{what}: {fault}"));
        } else if compiled != memory.bytes(BufferId(1)) {
            let at = compiled.iter().zip(memory.bytes(BufferId(1))).position(|(a, b)| a != b);
            wrong.push(format!("{what}: byte {at:?} differs\n{p}"));
        }
    }
    device.close(&Uninterruptible).unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(vendor::faults(), "");
}

const TYPES: [&str; 3] = ["f32", "i64", "vec3<f32>"];

#[test]
fn shuffles_move_values_within_a_subgroup() {
    let mut programs = Vec::new();
    for ty in TYPES {
        for (op, operand) in [
            ("shuffle", "%five"),
            ("shuffle", "%mirrored"),
            ("shuffle_xor", "%one"),
            ("shuffle_xor", "%five"),
            ("shuffle_up", "%one"),
            ("shuffle_up", "%five"),
            ("shuffle_down", "%two"),
            ("shuffle_down", "%lane"),
        ] {
            let code = format!(
                "%size: i32 = grid subgroup_size
                 %last: i32 = sub %size, %one
                 %mirrored: i32 = sub %last, %lane
                 %y: {ty} = subgroup {op}(%x, {operand})"
            );
            programs.push((format!("{op} {operand} of {ty}"), program(ty, ty, &code)));
        }
    }
    check(&programs);
}

#[test]
fn votes_combine_the_threads_of_a_subgroup() {
    let conditions = [
        ("some", "%c: u1 = lt %thread, %five"),
        ("even", "%c: u1 = eq %rest, %zero"),
        ("all", "%c: u1 = lt %zero, %one"),
        ("none", "%c: u1 = lt %one, %zero"),
    ];
    let mut programs = Vec::new();
    for (name, condition) in conditions {
        let votes = ["any(%c)", "all(%c)", "all_here(%c)", "is_whole()"];
        for vote in votes {
            let code = format!("{condition}\n%v: u1 = subgroup {vote}\n%y: i32 = cast %v");
            programs.push((format!("{vote} of {name}"), program("f32", "i32", &code)));
        }
        let code = format!("{condition}\n%y: u64 = subgroup ballot(%c)");
        programs.push((format!("ballot of {name}"), program("f32", "u64", &code)));
        let code = format!("{condition}\n%y: i32 = block_count %c");
        programs.push((format!("block_count of {name}"), program("f32", "i32", &code)));
        let code = format!(
            "{condition}\n%a: i32 = block_count %c\n%not: u1 = logic_not %c\n%b: i32 = block_count %not
             %thousand: i32 = const 1000\n%c2: i32 = mul %a, %thousand\n%y: i32 = add %c2, %b"
        );
        programs.push((format!("two counts of {name}"), program("f32", "i32", &code)));
    }
    check(&programs);
}

#[test]
fn thread_and_block_indices_match_the_grid() {
    let values = ["thread", "block_size", "block", "lane", "subgroup_size"];
    let one = |v: &str| (v.to_string(), program("f32", "i32", &format!("%y: i32 = grid {v}")));
    check(&values.map(one));
}

#[test]
fn a_barrier_makes_stores_visible() {
    let mut programs = Vec::new();
    for ty in TYPES {
        for (fence, barrier, count) in
            [("", "barrier block", THREADS), ("fence block", "barrier block", THREADS), ("", "barrier subgroup", 64)]
        {
            // The mirror image of the thread in its block or subgroup.
            let code = format!(
                "%own: ref {ty} = buffer_addr @2[%thread]
                 store %own, %x
                 {fence}
                 {barrier}
                 %count: i32 = const {}
                 %other: i32 = xor %thread, %count
                 %theirs: ref {ty} = buffer_addr @2[%other]
                 %first: {ty} = load %theirs
                 {barrier}
                 store %own, %first
                 fence device
                 {barrier}
                 %second: {ty} = load %theirs
                 %y: {ty} = add %first, %second",
                count - 1
            );
            programs.push((format!("{fence} {barrier} of {ty}"), program(ty, ty, &code)));
        }
    }
    check(&programs);
}
