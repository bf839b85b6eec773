//! Code for NVIDIA GPUs: mathematics, inner loops, blocks and threads. NVIDIA's assembler must accept the PTX.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod programs;
mod ptx;
mod scheduled;
mod thread_programs;

use octants_codegen_llvm::Listing;
use octants_ir::*;
use programs::*;
use ptx::*;
use scheduled::list;
use thread_programs::*;

#[test]
fn every_math_function_exists_in_both_widths() {
    use UnaryOp::*;
    let all = [
        Sin, Cos, Tan, Asin, Acos, Atan, Sinh, Cosh, Tanh, Exp, Exp2, Log, Log2, Sqrt, Rsqrt, Floor, Ceil, Round, Trunc,
    ];
    let library = options().device_library.path;
    for s in [Scalar::F16, Scalar::F32, Scalar::F64] {
        for op in all {
            let p = map(&[op], s);
            match list(&p, &options(), &h200(), Listing::Assembly) {
                Ok(text) => assert!(!text.contains(".extern"), "{op:?} {s}\n{text}"),
                Err(e) => assert!(library.is_none() && e.to_string().contains("libdevice"), "{op:?} {s}: {e}"),
            }
        }
    }
    // Inlined operations need no library.
    for op in [Sin, Cos, Tan, Exp, Exp2, Log, Log2, Sqrt, Rsqrt] {
        let o = CodegenOptions { device_library: DeviceLibrary::default(), ..options() };
        list(&map(&[op], Scalar::F32), &o, &h200(), Listing::Assembly).unwrap();
    }
}

#[test]
fn failures_and_prints_go_to_the_channel() {
    let text = ptx(&checked_copy(), &h200());
    assert_has(
        &text,
        &["octants_print", "octants_fail", "global.cas.b32", "atom.global.add.u32", "ld.volatile", "red.or"],
    );
}

#[test]
fn blocks_have_the_requested_size() {
    for (asked, threads) in [(None, 256), (Some(512), 512), (Some(1), 32)] {
        let mut p = map(&[UnaryOp::Sqrt], Scalar::F32);
        p.tasks[0].kind = TaskKind::Parallel(LoopConfig { block_dim: asked, ..LoopConfig::default() });
        assert_has(&ptx(&p, &h200()), &[&format!(".maxntid {threads}\n")]);
    }
}

/// How many times the inner loops of [`sums_of_polynomials`] run.
#[derive(Clone, Copy, PartialEq)]
enum Length {
    Eight,
    /// As often as an array has elements.
    Shape,
    /// The same, in each iteration of a parallel loop over two axes.
    OfMany,
    /// An array's alignment.
    Row,
}

/// In an inner loop, sums a polynomial of the elements with `terms` terms.
fn sums_of_polynomials(terms: usize, length: Length) -> Program {
    let mut b = Builder::new();
    let sum = b.body.add_local("sum", Scalar::F32.into());
    let zero = b.int(0, Scalar::I32);
    let n = shape(&mut b, 0, 0);
    let axes = if length == Length::OfMany { 2 } else { 1 };
    for_loop(&mut b, vec![(zero, n); axes], true, vec![], |b, l| {
        let (at_sum, none) = (b.local_addr(sum), b.float(0.0, Scalar::F32));
        b.store(at_sum, none);
        let i = index(b, l, 0);
        let first = b.int(0, Scalar::I32);
        let last = match length {
            Length::Eight => b.int(8, Scalar::I32),
            Length::Shape | Length::OfMany => n,
            Length::Row => get(b, 2, Scalar::I32, &[i]),
        };
        for_loop(b, vec![(first, last)], false, vec![], |b, inner| {
            // Iterations read different elements; otherwise they would share tiles.
            let k = index(b, inner, 0);
            let k = b.binary(BinaryOp::Max, k, i);
            let a = at(b, 1, Scalar::F32, &[k]);
            let x = b.load(a);
            let value = (0..terms).fold(x, |value, _| {
                let value = b.binary(BinaryOp::Mul, value, x);
                b.binary(BinaryOp::Add, value, x)
            });
            let old = b.load(at_sum);
            let new = b.binary(BinaryOp::Add, old, value);
            b.store(at_sum, new);
        });
        let (a, value) = (at(b, 0, Scalar::F32, &[i]), b.load(at_sum));
        b.store(a, value);
    });
    let arrays = vec![array("y", Scalar::F32, 1), array("x", Scalar::F32, 1), array("n", Scalar::I32, 1)];
    program(arrays, vec![], Type::Unit, true, b.body)
}

#[test]
fn inner_loops_have_several_loads_in_flight() {
    // Whole groups, a large remainder in groups of four, and a loop for the last elements.
    let (shape, many, row) = (Length::Shape, Length::OfMany, Length::Row);
    for (terms, length, copies, rolled) in [
        (1, shape, 32 + 4 + 1, 1),
        (1, row, 16 + 4 + 1 + 1, 1),
        (1, many, 16 + 4 + 1, 1),
        (5, shape, 16 + 4 + 1, 1),
        (5, many, 8 + 1, 1),
        (5, row, 8 + 1 + 1, 1),
        (25, shape, 16 + 4 + 1, 1),
        (40, shape, 4 + 1, 1),
        (80, shape, 1, 0),
    ] {
        let text = ptx(&sums_of_polynomials(terms, length), &h200());
        assert_eq!(text.matches("ld.global.nc.").count(), copies, "{terms} terms\n{text}");
        // The assembler may unroll the loop itself further.
        assert_eq!(text.matches("nounroll").count(), rolled, "{terms} terms\n{text}");
        assert_has(&text, &[".minnctapersm 1"]);
    }
    assert!(!ptx(&map(&[UnaryOp::Sqrt], Scalar::F32), &h200()).contains(".minnctapersm"));
}

#[test]
fn short_loops_become_straight_line_code() {
    let text = ptx(&sums_of_polynomials(2, Length::Eight), &h200());
    assert!(text.matches("ld.global.nc.").count() >= 8 && !text.contains("nounroll"), "{text}");
}

#[test]
fn a_sine_has_no_conversions() {
    for (op, takes) in [(UnaryOp::Sin, "sin.approx"), (UnaryOp::Cos, "cos.approx"), (UnaryOp::Tan, "fma.rn")] {
        let text = ptx(&map(&[op], Scalar::F32), &h200());
        assert_has(&text, &[takes]);
        assert!(!text.contains("cvt.rni") && !text.contains("cvt.rzi"), "{text}");
    }
}

#[test]
fn serial_loops_of_narrow_integers_count_in_32_bits() {
    let count = |s: Scalar| {
        let mut b = Builder::new();
        let zero = b.int(0, Scalar::I32);
        let n = shape(&mut b, 0, 0);
        for_loop(&mut b, vec![(zero, n)], true, vec![], |b, l| {
            let i = index(b, l, 0);
            let (first, last) = (b.int(0, s), b.push(Op::Param(0), s.into()));
            for_loop(b, vec![(first, last)], false, vec![], |b, inner| {
                let k = b.push(Op::LoopIndex(inner, 0), s.into());
                let a = at(b, 0, Scalar::F32, &[i]);
                let old = b.load(a);
                let k = b.cast(k, Scalar::F32);
                // Not a sum: that would not need the loop.
                let new = b.binary(BinaryOp::Mul, old, k);
                b.store(a, new);
            });
        });
        let params = vec![("n", Type::Scalar(s))];
        ptx(&program(vec![array("x", Scalar::F32, 1)], params, Type::Unit, true, b.body), &h200())
    };
    let text = count(Scalar::I32);
    assert!(
        text.contains("cvt.rn.f32.") && !text.contains("cvt.rn.f32.s64") && !text.contains("cvt.rn.f32.u64"),
        "{text}"
    );
    assert_has(&count(Scalar::I64), &["cvt.rn.f32.u64"]);
}

#[test]
fn code_is_generated_for_older_and_newer_chips() {
    for (cpu, features) in
        [("sm_70", "+ptx63"), ("sm_80", "+ptx70"), ("sm_89", "+ptx78"), ("sm_100", "+ptx86"), ("sm_120", "+ptx87")]
    {
        let text = ptx(&map(&[UnaryOp::Exp], Scalar::F32), &target(cpu, features));
        assert_has(&text, &[&format!(".target {cpu}")]);
    }
}

#[test]
fn many_arguments_are_read_from_memory() {
    let text = ptx(&many_parameters(), &h200());
    // The context, and an address.
    assert_has(&text, &["kernel_0_param_0[72]"]);
}

#[test]
fn iterations_are_balanced_only_when_whole_blocks_reach_them() {
    let balanced = |asserts: bool| {
        let mut b = Builder::new();
        for_each(&mut b, |b, i| {
            let weight = get(b, 0, Scalar::I32, &[i]);
            let n = shape(b, 0, 0);
            let [own, weight, end] = [i, weight, n].map(|v| b.cast(v, Scalar::I64));
            let balance = Op::Balance { number: own, weight, end, heaviest_first: false };
            let other = b.push(balance, Scalar::I64.into());
            let zero = b.int(0, Scalar::I32);
            if asserts {
                let is_positive = b.binary(BinaryOp::Gt, i, zero);
                b.push(Op::Assert(is_positive, vec![]), Type::Unit);
            }
            let value = get(b, 0, Scalar::I32, &[other]);
            let address = at(b, 1, Scalar::I32, &[i]);
            b.store(address, value);
        });
        program(vec![array("x", Scalar::I32, 1), array("y", Scalar::I32, 1)], vec![], Type::Unit, true, b.body)
    };
    let text = ptx(&balanced(false), &h200());
    assert_eq!(text.matches("bar.sync").count(), 5, "{text}");
    assert_has(&text, &["atom.shared.add.u32", "shfl.sync.bfly"]);
    // A thread that fails does not reach this.
    let text = ptx(&balanced(true), &h200());
    assert!(!text.contains("bar.sync"), "{text}");
}

#[test]
fn rows_and_columns_are_distinguished() {
    // y[i] = x[i, 0] + 2 * x[i, 1] + 3 * x[0, i]
    let x = plane("x", 0, [32, 32]);
    let mut b = Builder::new();
    let (zero, n) = (b.int(0, Scalar::I32), b.int(32, Scalar::I32));
    for_loop(&mut b, vec![(zero, n)], true, vec![], |b, l| {
        let i = index(b, l, 0);
        let (zero, one) = (b.int(0, Scalar::I32), b.int(1, Scalar::I32));
        let mut sum = b.float(0.0, Scalar::F32);
        for (k, place) in [[i, zero], [i, one], [zero, i]].iter().enumerate() {
            let element = get(b, 0, Scalar::F32, place);
            let factor = b.float(k as f64 + 1.0, Scalar::F32);
            let part = b.binary(BinaryOp::Mul, element, factor);
            sum = b.binary(BinaryOp::Add, sum, part);
        }
        let address = at(b, 1, Scalar::F32, &[i]);
        b.store(address, sum);
    });
    let mut p = program(vec![x, field("y", Scalar::F32, 32, 1)], vec![], Type::Unit, true, b.body);
    p.roots = 2;
    let text = ptx(&p, &h200());
    assert_has(&text, &["ld.global.nc.v2."]);
    assert_eq!(text.matches("ld.global.nc.").count(), 2, "the row's two as one, and the column's\n{text}");
}

#[test]
fn thread_operations_become_instructions() {
    let count = of_threads("i32", "%40: i32 = block_count %18");
    for (program, wanted) in [
        (subgroup("shuffle(%17, %13)"), &["shfl.sync.idx.b32"][..]),
        (subgroup("shuffle_xor(%17, %13)"), &["shfl.sync.bfly.b32"]),
        (subgroup("shuffle_up(%17, %13)"), &["shfl.sync."]),
        (subgroup("shuffle_down(%17, %13)"), &["shfl.sync."]),
        (subgroup("ballot(%18)"), &["vote.sync.ballot.b32"]),
        (subgroup("any(%18)"), &["vote.sync."]),
        (subgroup("all(%18)"), &["vote.sync."]),
        (subgroup("all_here(%18)"), &["vote.sync.all.pred", "activemask.b32"]),
        (subgroup("is_whole()"), &["activemask.b32"]),
        (barrier("subgroup"), &["bar.warp.sync", "st.shared", "ld.shared"]),
        (barrier("block"), &["bar.sync", "st.shared", "ld.shared"]),
        (fence("block"), &["membar.cta"]),
        (fence("device"), &["membar.gl"]),
        (count, &["bar.sync", "vote.sync.ballot.b32", ".shared"]),
        (of_threads("i32", "%40: i32 = grid block_size"), &["%ntid.x"]),
        (of_threads("i32", "%40: i32 = grid block"), &["%ctaid.x"]),
        (of_threads("i32", "%40: i32 = grid blocks"), &["%nctaid.x"]),
    ] {
        assert_has(&ptx(&program, &h200()), wanted);
    }
}

#[test]
fn matrix_products_become_instructions() {
    let instructions = [
        (ProductKind::F16, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 2),
        (ProductKind::Tf32, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", 4),
        (ProductKind::F64, "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", 16),
    ];
    for (cpu, version) in [("sm_80", "+ptx75"), ("sm_90", "+ptx80"), ("sm_100", "+ptx87")] {
        for (kind, instruction, count) in instructions {
            let text = ptx(&matrix_product(kind, 32), &target(cpu, version));
            assert_eq!(text.matches(instruction).count(), count, "{text}");
            assert_eq!(text.matches("cvt.rna.tf32.f32").count(), if kind == ProductKind::Tf32 { 16 } else { 0 });
        }
    }
}

#[test]
fn products_without_instructions_become_scalar_code() {
    // f32 is not rounded to tf32, and old chips have no products of these.
    for (cpu, kind) in [("sm_90", ProductKind::F32), ("sm_75", ProductKind::F16)] {
        let text = ptx(&matrix_product(kind, 32), &target(cpu, "+ptx80"));
        assert!(!text.contains("mma.sync") && text.contains("shfl.sync.idx"), "{text}");
    }
}
