//! Code for NVIDIA GPUs: checks the PTX of parallel loops and of their memory, and that NVIDIA's assembler accepts it.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod programs;
mod ptx;
mod scheduled;

use octants_codegen_llvm::Listing;
use octants_ir::*;
use programs::*;
use ptx::*;
use scheduled::{compile, list};

#[test]
fn a_map_uses_read_only_loads_and_inline_math() {
    let text = ptx(&map(&[UnaryOp::Sin, UnaryOp::Exp, UnaryOp::Sqrt], Scalar::F32), &h200());
    assert_has(&text, &[".entry kernel_", "ld.global.nc.", "st.global.", "ex2.approx.ftz.f32", "sqrt.approx.ftz.f32"]);
    assert!(!text.contains("call"), "{text}");
}

#[test]
fn adjacent_elements_use_vector_accesses_when_aligned() {
    let p = map(&[UnaryOp::Sqrt], Scalar::F32);
    assert_has(&ptx(&p, &h200()), &["kernel_0_wide", "ld.global.nc.v4.b32", "st.global.v4.b32"]);
    let artifact = compile(&p, &|_| String::new(), &options(), &h200()).unwrap();
    let meta = artifact.tasks[0].parallel.as_ref().unwrap();
    let n = 1 << 20;
    assert_eq!(meta.wide_form(&[0x1000, n, 0x2000, n]).map(|w| w.lanes), Some(4));
    assert_eq!(meta.wide_form(&[0x1004, n, 0x2000, n]), None, "an address that is not aligned");
    assert_eq!(meta.wide_form(&[0x1000, 1000, 0x2000, 1000]), None, "too few iterations");
    assert!(meta.wide_form(&[0x1000, n + 3, 0x2000, n + 3]).is_some(), "a rest is fine");
}

#[test]
fn sums_are_combined_in_warps_and_blocks_before_one_atomic_update() {
    for (s, atomic) in [
        (Scalar::F32, "add.f32"),
        (Scalar::F64, "add.f64"),
        (Scalar::I32, "add.u32"),
        (Scalar::I64, "add.u64"),
        (Scalar::F16, "add.noftz.f16"),
    ] {
        let text = ptx(&reduction(AtomicOp::Add, s), &h200());
        assert_has(&text, &["shfl.sync.bfly", "bar.sync", ".shared", atomic]);
        assert!(!text.contains(".sys"), "an update for this device alone\n{text}");
        if s == Scalar::F16 {
            assert_has(&text, &["add.ftz.f32"]);
            assert!(!text.contains("add.f16") && !text.contains("add.rn.f16"), "summed in single precision\n{text}");
        }
    }
}

#[test]
fn float_atomics_use_instructions_when_available() {
    use AtomicOp::*;
    let fine = CodegenOptions { fast_math: false, ..options() };
    for (op, s, wanted, wanted_fine) in [
        (Add, Scalar::F32, "global.add.f32", "global.add.f32"),
        (Sub, Scalar::F32, "global.add.f32", "global.add.f32"),
        (Sub, Scalar::F64, "global.add.f64", "global.add.f64"),
        (Add, Scalar::F16, "add.noftz.f16", "add.noftz.f16"),
        (Sub, Scalar::F16, "add.noftz.f16", "add.noftz.f16"),
        // Floats are ordered by their bits, except NaN.
        (Max, Scalar::F32, "max.s32", "cas.b32"),
        (Min, Scalar::F64, "min.s64", "cas.b64"),
        (Max, Scalar::F16, "cas.b32", "cas.b32"),
        (Mul, Scalar::F32, "cas.b32", "cas.b32"),
    ] {
        let p = scatter(op, array("y", s, 1), s, |b, _| b.float(1.5, s));
        assert_has(&ptx(&p, &h200()), &[wanted]);
        assert_has(&list(&p, &fine, &h200(), Listing::Assembly).unwrap(), &[wanted_fine]);
    }
}

#[test]
fn histograms_are_counted_in_blocks() {
    let histogram =
        |buffer: Buffer| ptx(&scatter(AtomicOp::Add, buffer, Scalar::I32, |b, _| b.int(1, Scalar::I32)), &h200());
    let axes = vec![vec![Digit { extent: 1024, stride: 4 }]];
    let components = vec![ComponentLayout { root: 0, place: Placement { base: 0, axes } }];
    let layout = Layout::Dense { shape: vec![1024], offset: vec![0], components };
    let field = histogram(Buffer {
        name: "h".into(),
        elem: Scalar::I32.into(),
        ndim: 1,
        layout,
        space: Default::default(),
        short_offsets: false,
        is_metadata: false,
    });
    assert_has(
        &field,
        &[".shared .align 16 .b8 octants_block_root_0[4096]", "shared.add.u32", "global.add.u32", "bar.sync"],
    );
    let array = histogram(array("h", Scalar::I32, 1));
    assert_has(&array, &[".b8 octants_block_root_0[32768]", "shared.add.u32", "global.add.u32"]);
}

#[test]
fn sums_to_small_float_arrays_are_privatized_in_shared_memory() {
    let sums = |n: u64| {
        ptx(
            &scatter(AtomicOp::Sub, field("h", Scalar::F32, n, 0), Scalar::F32, |b, _| b.float(1.5, Scalar::F32)),
            &h200(),
        )
    };
    assert_has(&sums(8192), &[".b8 octants_block_root_0[32768]", "shared.add.f32", "global.add.f32"]);
    let large = sums(8193);
    assert!(!large.contains(".shared"), "{large}");
}

#[test]
fn warps_combine_updates_of_the_same_element() {
    // for i: for k in first..x[i]: h[k] += 1.5, and h[first + (x[i] - 1 - k)], and h[i - k], at which threads differ.
    let sums_from = |first: i64, at: &dyn Fn(&mut Builder, ValueId, ValueId, ValueId) -> ValueId| {
        let mut b = Builder::new();
        for_each(&mut b, |b, i| {
            let n = get(b, 0, Scalar::I32, &[i]);
            let first = b.int(first, Scalar::I32);
            for_loop(b, vec![(first, n)], false, vec![], |b, l| {
                let k = index(b, l, 0);
                let k = at(b, i, n, k);
                let value = b.float(1.5, Scalar::F32);
                let address = programs::at(b, 1, Scalar::F32, &[k]);
                b.push(Op::Atomic(AtomicOp::Add, address, value), Scalar::F32.into());
            });
        });
        let buffers = vec![array("x", Scalar::I32, 1), field("h", Scalar::F32, 128, 0)];
        ptx(&program(buffers, vec![], Type::Unit, true, b.body), &h200())
    };
    let sums = |at: &dyn Fn(&mut Builder, ValueId, ValueId, ValueId) -> ValueId| sums_from(0, at);
    let left = |b: &mut Builder, n: ValueId, k: ValueId| {
        let one = b.int(1, Scalar::I32);
        let last = b.binary(BinaryOp::Sub, n, one);
        b.binary(BinaryOp::Sub, last, k)
    };
    let forwards = sums(&|_, _, _, k| k);
    let backwards = sums(&|b, _, n, k| left(b, n, k));
    let backwards_from_three = sums_from(3, &|b, _, n, k| {
        let (three, left) = (b.int(3, Scalar::I32), left(b, n, k));
        b.binary(BinaryOp::Add, three, left)
    });
    for text in [forwards, backwards, backwards_from_three] {
        assert_has(&text, &["activemask", "shared.add.f32"]);
        // Five exchanges to find the longest thread, nine for the sums of eight iterations.
        assert_eq!(text.matches("shfl.sync.bfly").count(), 5 + 9, "{text}");
    }
    let apart = sums(&|b, i, _, k| b.binary(BinaryOp::Sub, i, k));
    assert_has(&apart, &["shared.add.f32"]);
    assert!(!apart.contains("activemask"), "{apart}");
}

#[test]
fn expressions_with_shared_terms_are_visited_once() {
    // n = x[i], doubled repeatedly; for k in 0..n: h[n - 1 - k] += 1.5, and where k is doubled like that
    let doubled = |b: &mut Builder, v| (0..48).fold(v, |v, _| b.binary(BinaryOp::Add, v, v));
    let mut b = Builder::new();
    for_each(&mut b, |b, i| {
        let n = get(b, 0, Scalar::I32, &[i]);
        let n = doubled(b, n);
        let (zero, one) = (b.int(0, Scalar::I32), b.int(1, Scalar::I32));
        for_loop(b, vec![(zero, n)], false, vec![], |b, l| {
            let k = index(b, l, 0);
            let last = b.binary(BinaryOp::Sub, n, one);
            for at in [b.binary(BinaryOp::Sub, last, k), doubled(b, k)] {
                let value = b.float(1.5, Scalar::F32);
                let address = programs::at(b, 1, Scalar::F32, &[at]);
                b.push(Op::Atomic(AtomicOp::Add, address, value), Scalar::F32.into());
            }
        });
    });
    let buffers = vec![array("x", Scalar::I32, 1), field("h", Scalar::F32, 128, 0)];
    assert_has(&ptx(&program(buffers, vec![], Type::Unit, true, b.body), &h200()), &["activemask"]);
}

#[test]
fn threads_add_a_block_of_elements_together() {
    // for i: for b in 0..x[i]: for t in 0..n: if k < x[i]: h[k] += y[k], with k = n * b + t
    let sums = |n: i64, at: &dyn Fn(&mut Builder, ValueId, ValueId) -> ValueId| {
        let mut b = Builder::new();
        for_each(&mut b, |b, i| {
            let count = get(b, 0, Scalar::I32, &[i]);
            let (zero, length) = (b.int(0, Scalar::I32), b.int(n, Scalar::I32));
            for_loop(b, vec![(zero, count)], false, vec![], |b, outer| {
                let outer = index(b, outer, 0);
                let first = b.binary(BinaryOp::Mul, length, outer);
                for_loop(b, vec![(zero, length)], false, vec![], |b, inner| {
                    let inner = index(b, inner, 0);
                    let k = at(b, first, inner);
                    let runs = b.binary(BinaryOp::Lt, k, count);
                    let add = |b: &mut Builder| {
                        let value = get(b, 1, Scalar::F32, &[k]);
                        let address = programs::at(b, 2, Scalar::F32, &[k]);
                        b.push(Op::Atomic(AtomicOp::Add, address, value), Scalar::F32.into());
                    };
                    programs::if_else(b, runs, add, |_| ());
                });
            });
        });
        let buffers = vec![array("x", Scalar::I32, 1), array("y", Scalar::F32, 1), field("h", Scalar::F32, 128, 0)];
        ptx(&program(buffers, vec![], Type::Unit, true, b.body), &h200())
    };
    let add = |b: &mut Builder, first: ValueId, inner: ValueId| b.binary(BinaryOp::Add, first, inner);
    // Finding the longest thread takes five shuffles. Reducing eight values to one takes 4 + 2 + 1, and reducing that
    // one takes two more.
    let of = |text: &str, what: &str| text.matches(what).count();
    for (n, exchanges) in [(8, 4 + 2 + 1 + 2), (5, 4 + 2 + 1 + 2), (4, 2 + 1 + 3), (2, 1 + 4), (1, 5)] {
        let text = sums(n, &add);
        assert_eq!(of(&text, "shfl.sync.bfly"), 5 + exchanges, "{n}: {text}");
        assert!(!text.contains(".local"), "{text}");
    }
    let long = sums(9, &add);
    assert_eq!(of(&long, "shfl.sync.bfly"), 0, "{long}");
    let turned = sums(8, &|b, first, inner| b.binary(BinaryOp::Sub, first, inner));
    assert_eq!(of(&turned, "shfl.sync.bfly"), 14, "{turned}");
    let elsewhere = sums(8, &|b, first, inner| b.binary(BinaryOp::Mul, first, inner));
    assert_eq!(of(&elsewhere, "shfl.sync.bfly"), 0, "{elsewhere}");
}

#[test]
fn full_tiles_of_a_warp_have_branch_free_code() {
    // for i: for b in 0..x[i] / 8 + 1: rest = x[i] - 8 * b; for t in 0..8: if t < rest: sum += y[8 * b + t]; z[i] = sum
    let sums = |guard: &dyn Fn(&mut Builder, ValueId, ValueId) -> ValueId| {
        let mut b = Builder::new();
        let sum = b.body.add_local("sum", Scalar::F32.into());
        for_each(&mut b, |b, i| {
            let count = get(b, 0, Scalar::I32, &[i]);
            let (zero, eight, one) = (b.int(0, Scalar::I32), b.int(8, Scalar::I32), b.int(1, Scalar::I32));
            let blocks = b.binary(BinaryOp::Div, count, eight);
            let blocks = b.binary(BinaryOp::Add, blocks, one);
            let (at_sum, nothing) = (b.local_addr(sum), b.float(0.0, Scalar::F32));
            b.store(at_sum, nothing);
            for_loop(b, vec![(zero, blocks)], false, vec![], |b, outer| {
                let outer = index(b, outer, 0);
                let first = b.binary(BinaryOp::Mul, eight, outer);
                let rest = b.binary(BinaryOp::Sub, count, first);
                for_loop(b, vec![(zero, eight)], false, vec![], |b, inner| {
                    let inner = index(b, inner, 0);
                    let runs = guard(b, inner, rest);
                    let add = |b: &mut Builder| {
                        let k = b.binary(BinaryOp::Add, first, inner);
                        let value = get(b, 1, Scalar::F32, &[k]);
                        let old = b.load(at_sum);
                        let new = b.binary(BinaryOp::Add, old, value);
                        b.store(at_sum, new);
                    };
                    programs::if_else(b, runs, add, |_| ());
                });
            });
            let value = b.load(at_sum);
            set(b, 2, Scalar::F32, &[i], value);
        });
        let buffers = vec![array("x", Scalar::I32, 1), field("y", Scalar::F32, 128, 0), array("z", Scalar::F32, 1)];
        ptx(&program(buffers, vec![], Type::Unit, true, b.body), &h200())
    };
    let loads = |text: &str| text.matches("ld.global.nc.v4").count();
    let forwards = sums(&|b, inner, rest| b.binary(BinaryOp::Lt, inner, rest));
    let backwards = sums(&|b, inner, rest| {
        let seven = b.int(7, Scalar::I32);
        let inner = b.binary(BinaryOp::Sub, seven, inner);
        b.binary(BinaryOp::Lt, inner, rest)
    });
    for text in [forwards, backwards] {
        assert_has(&text, &["vote.sync.all"]);
        assert_eq!(loads(&text), 2, "{text}");
    }
    // An iteration that other threads do not run; an index that starts negative, which is less than any bound.
    for guard in [
        &(|b: &mut Builder, inner, rest| b.binary(BinaryOp::Ne, inner, rest)) as &dyn Fn(&mut Builder, _, _) -> _,
        &|b: &mut Builder, inner, rest| {
            let three = b.int(3, Scalar::I32);
            let inner = b.binary(BinaryOp::Sub, three, inner);
            b.binary(BinaryOp::Lt, inner, rest)
        },
    ] {
        let text = sums(guard);
        assert!(!text.contains("vote"), "{text}");
    }
}

#[test]
fn kept_states_are_prefetched_in_converged_loops() {
    // for i: top = i; for k in 0..x[i]: top -= 1; a = y[top]; top -= 1; h[k] += a * y[top]
    let mut b = Builder::new();
    let top = b.body.add_local("top", Scalar::I32.into());
    for_each(&mut b, |b, i| {
        let (n, zero, one) = (get(b, 0, Scalar::I32, &[i]), b.int(0, Scalar::I32), b.int(1, Scalar::I32));
        let at_top = b.local_addr(top);
        b.store(at_top, i);
        for_loop(b, vec![(zero, n)], false, vec![], |b, l| {
            let states = [(); 2].map(|()| {
                let old = b.load(at_top);
                let new = b.binary(BinaryOp::Sub, old, one);
                b.store(at_top, new);
                get(b, 1, Scalar::F32, &[new])
            });
            let value = b.binary(BinaryOp::Mul, states[0], states[1]);
            let k = index(b, l, 0);
            let address = at(b, 2, Scalar::F32, &[k]);
            b.push(Op::Atomic(AtomicOp::Add, address, value), Scalar::F32.into());
        });
    });
    let buffers = vec![array("x", Scalar::I32, 1), array("y", Scalar::F32, 1), field("h", Scalar::F32, 128, 0)];
    let text = ptx(&program(buffers, vec![], Type::Unit, true, b.body), &h200());
    // One of `x`; two of `y` for the first iteration, and two in each of eight for the next.
    assert_eq!(text.matches("ld.global.nc.").count(), 1 + 2 + 2 * 8, "{text}");
}

#[test]
fn offsets_that_fit_32_bits_are_computed_in_32() {
    let code = |layout: Layout, short_offsets: bool| {
        let mut b = Builder::new();
        let (zero, n) = (b.int(0, Scalar::I32), b.push(Op::Shape(BufferId(0), 0), Type::I32));
        for_loop(&mut b, vec![(zero, n), (zero, n)], true, vec![], |b, l| {
            let (i, j) = (index(b, l, 0), index(b, l, 1));
            let a = at(b, 0, Scalar::F32, &[j, i]);
            let v = b.load(a);
            let a = at(b, 1, Scalar::F32, &[i, j]);
            b.store(a, v);
        });
        let array = |name: &str| Buffer { layout: layout.clone(), short_offsets, ..array(name, Scalar::F32, 2) };
        let text = ptx(&program(vec![array("x"), array("y")], vec![], Type::Unit, true, b.body), &h200());
        // Coarsened variants compute in 64 bits, so that neighbors are recognized.
        text.split("kernel_0_wide").next().unwrap().to_string()
    };
    for layout in [Layout::Contiguous, Layout::Strided] {
        let (short, long) = (code(layout.clone(), true), code(layout.clone(), false));
        // An address is a multiplication of the sum and an addition.
        assert!(!short.contains("mad.lo.s64") && !short.contains("mul.lo.s64"), "{layout:?}\n{short}");
        assert!(long.contains("mad.lo.s64") || long.contains("mul.lo.s64"), "{layout:?}\n{long}");
    }
}

#[test]
fn indices_of_known_extents_are_decoded_without_division() {
    let mut b = Builder::new();
    let (zero, n, m) = (b.int(0, Scalar::I32), b.int(512, Scalar::I32), b.int(384, Scalar::I32));
    for_loop(&mut b, vec![(zero, n), (zero, m)], true, vec![], |b, l| {
        let (i, j) = (index(b, l, 0), index(b, l, 1));
        let a = at(b, 0, Scalar::F32, &[i, j]);
        let v = b.load(a);
        let a = at(b, 1, Scalar::F32, &[i, j]);
        b.store(a, v);
    });
    let mut p = program(vec![plane("x", 0, [512, 384]), plane("y", 1, [512, 384])], vec![], Type::Unit, true, b.body);
    p.roots = 2;
    let text = ptx(&p, &h200());
    assert!(!text.contains("div.") && !text.contains("rem."), "{text}");
    assert_has(&text, &["ld.global.nc.", "st.global."]);
}

/// A five-point stencil on the inside of a two-dimensional array.
fn stencil() -> Program {
    stencil_on(["x", "y"].map(|name| array(name, Scalar::F32, 2)))
}

fn stencil_on(buffers: [Buffer; 2]) -> Program {
    let mut b = Builder::new();
    let one = b.int(1, Scalar::I32);
    let dims = (0..2).map(|axis| {
        let n = shape(&mut b, 0, axis);
        (one, b.binary(BinaryOp::Sub, n, one))
    });
    let dims = dims.collect();
    for_loop(&mut b, dims, true, vec![], |b, l| {
        let (i, j) = (index(b, l, 0), index(b, l, 1));
        let near = |b: &mut Builder, v, op| b.binary(op, v, one);
        let (up, down) = (near(b, i, BinaryOp::Sub), near(b, i, BinaryOp::Add));
        let (left, right) = (near(b, j, BinaryOp::Sub), near(b, j, BinaryOp::Add));
        let a = at(b, 0, Scalar::F32, &[i, j]);
        let mut sum = b.load(a);
        for (i, j) in [(up, j), (down, j), (i, left), (i, right)] {
            let a = at(b, 0, Scalar::F32, &[i, j]);
            let v = b.load(a);
            sum = b.binary(BinaryOp::Add, sum, v);
        }
        let a = at(b, 1, Scalar::F32, &[i, j]);
        b.store(a, sum);
    });
    program(buffers.to_vec(), vec![], Type::Unit, true, b.body)
}

#[test]
fn adjacent_elements_of_fields_below_2_gib_use_vector_loads() {
    let field = |root: u32| {
        let axes = [4 * 4096, 4].map(|stride| vec![Digit { extent: 4096, stride }]).to_vec();
        let components = vec![ComponentLayout { root, place: Placement { base: 0, axes } }];
        let layout = Layout::Dense { shape: vec![4096; 2], offset: vec![0, 0], components };
        Buffer { layout, short_offsets: true, ..array("field", Scalar::F32, 2) }
    };
    let text = ptx(&stencil_on([field(0), field(1)]), &h200());
    let wide = &text[text.find("kernel_0_wide").unwrap()..];
    assert_eq!(wide.matches("ld.global.nc.v4").count(), 3, "a row each\n{wide}");
    assert_has(wide, &["st.global.v4"]);
}

#[test]
fn shared_memory_tiles_use_vector_loads() {
    let mut b = Builder::new();
    let (zero, n) = (b.int(0, Scalar::I32), b.push(Op::Shape(BufferId(0), 0), Type::I32));
    let sum = b.body.add_local("sum", Scalar::F32.into());
    for_loop(&mut b, vec![(zero, n), (zero, n)], true, vec![], |b, l| {
        let (i, j) = (index(b, l, 0), index(b, l, 1));
        for_loop(b, vec![(zero, n)], false, vec![], |b, l| {
            let k = index(b, l, 0);
            let addresses = [at(b, 0, Scalar::F32, &[i, k]), at(b, 1, Scalar::F32, &[k, j])];
            let [x, y] = addresses.map(|a| b.load(a));
            let product = b.binary(BinaryOp::Mul, x, y);
            b.update_local(sum, |b, before| b.binary(BinaryOp::Add, before, product));
        });
        let (a, v) = (at(b, 2, Scalar::F32, &[i, j]), b.load_local(sum));
        b.store(a, v);
    });
    let arrays = ["a", "b", "c"].map(|name| array(name, Scalar::F32, 2)).to_vec();
    let text = ptx(&program(arrays, vec![], Type::Unit, true, b.body), &h200());
    assert_has(&text, &["bar", ".maxntid 256", ".minnctapersm 2", "ld.shared.v4"]);
    // 64 sums of a thread in each of 8 steps.
    assert!(text.matches("fma.rn").count() >= 8 * 64, "{text}");
}

#[test]
fn division_by_an_unknown_extent_happens_once_in_32_bits() {
    let text = ptx(&stencil(), &h200());
    assert!(!text.contains("div.u64") && !text.contains("rem."), "{text}");
    let narrow = &text[..text.find("kernel_0_wide").unwrap()];
    assert_eq!(narrow.matches("div.u32").count(), 2, "the start and the step\n{narrow}");
}

#[test]
fn stencils_use_vector_accesses() {
    let p = stencil();
    let text = ptx(&p, &h200());
    let wide = &text[text.find("kernel_0_wide").unwrap()..];
    assert_eq!(wide.matches("ld.global.nc.v4").count(), 3, "a row each\n{wide}");
    assert_has(wide, &["st.global.v4"]);
    let artifact = compile(&p, &|_| String::new(), &options(), &h200()).unwrap();
    let meta = artifact.tasks[0].parallel.as_ref().unwrap();
    let fits = |rows: u64, columns: u64| meta.wide_form(&[0x1000, rows, columns, 0x2000, rows, columns]).is_some();
    let (main, wide) = (String::from_utf8_lossy(&artifact.modules[0]), &meta.wide.as_ref().unwrap().code);
    let wide = String::from_utf8_lossy(wide);
    assert!(main.contains(".entry kernel_0(") && !main.contains(".entry kernel_0_wide"), "{main}");
    assert!(wide.contains(".entry kernel_0_wide(") && !wide.contains(".entry kernel_0("), "{wide}");
    assemble(&wide, "sm_90");
    assert_eq!(meta.iterations(&[0x1000, 10, 20, 0x2000, 10, 20]), Some(8 * 18));
    assert!(fits(4096, 4096) && fits(3001, 1024));
    assert!(!fits(4096, 4095), "rows that begin at an address that is not aligned");
    assert!(!fits(1 << 20, 16), "short rows");
    assert!(!fits((1 << 30) + 2, 1024), "more than digits of 30 bits hold");
}
