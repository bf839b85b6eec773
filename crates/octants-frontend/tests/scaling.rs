//! Lowering takes linear time: four times the code takes about four times as long, and about four times the queries.
//! Deeply nested code does not exhaust the stack.

#![allow(clippy::unwrap_used)]

mod world_table;

use std::fmt::Write as _;
use std::time::Duration;

use world_table::module::Module;

/// Time that this thread has run: other programs on the machine do not count.
fn thread_time() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills in the struct.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) }, 0);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// A run's time and questions.
fn measure(module: &Module) -> (Duration, u64) {
    module.table.asked.set(0);
    let start = thread_time();
    let lowered = module.lower(module.kernels[0].1);
    let took = thread_time() - start;
    if let Err((d, sources)) = lowered {
        panic!("{}", d[0].render(&sources));
    }
    (took, module.table.asked.get())
}

fn assert_linear(name: &str, n: usize, code: impl Fn(usize) -> String) {
    let [small, large] = [n, 4 * n].map(|n| Module::read("scaling.py", &code(n)));
    // The best of several interleaved runs of each, so that a load on the machine affects both alike.
    let mut best = [Duration::MAX; 2];
    // With quadratic time it would take 16 times as long.
    let is_linear = |[small, large]: [Duration; 2]| large < 12 * small + Duration::from_millis(2);
    for round in 0..50 {
        let ((small, few), (large, many)) = (measure(&small), measure(&large));
        assert!(many <= 5 * few + 100, "{name}: {few} questions for {n}, {many} for {}", 4 * n);
        best = [best[0].min(small), best[1].min(large)];
        if round >= 4 && is_linear(best) {
            break;
        }
    }
    println!("{name}: {n}: {:?}; {}: {:?}", best[0], 4 * n, best[1]);
    assert!(is_linear(best), "{name}: {:?} for {n}, {:?} for {}", best[0], best[1], 4 * n);
}

const HEAD: &str = "import octants as qd\n\nx = qd.field(qd.f32, shape=64)\n\n\n";

#[test]
fn statements() {
    assert_linear("statements", 2000, |n| {
        let mut text = format!("{HEAD}@qd.kernel\ndef k(a: qd.i32) -> qd.i32:\n    s = a\n");
        for i in 0..n {
            let _ = writeln!(text, "    s = s * {i} + a");
        }
        text + "    return s\n"
    });
}

#[test]
fn variables_and_branches() {
    assert_linear("branches", 500, |n| {
        let mut text = format!("{HEAD}@qd.kernel\ndef k(a: qd.i32) -> qd.i32:\n    s = a\n");
        for i in 0..n {
            let _ = writeln!(
                text,
                "    v{i} = s + {i}\n    if v{i} > 3:\n        t = v{i}\n        s += t\n        x[s] += 1"
            );
        }
        text + "    return s\n"
    });
}

#[test]
fn unrolled_loop() {
    assert_linear("unrolled", 500, |n| {
        format!(
            "{HEAD}@qd.kernel\ndef k(a: qd.i32) -> qd.i32:\n    s = a\n    for i in qd.static(range({n})):\n        s += i * a\n    return s\n"
        )
    });
}

#[test]
fn table_of_constants() {
    assert_linear("table", 500, |n| {
        let table: Vec<String> = (0..n).map(|i| i.to_string()).collect();
        let table = table.join(", ");
        format!(
            "{HEAD}table = [{table}]\npairs = ({table})\n\n\n@qd.kernel\ndef k(a: qd.i32) -> qd.i32:\n    s = a\n    for i in qd.static(range({n})):\n        s += table[i] * pairs[i]\n    return s\n"
        )
    });
}

#[test]
fn growing_list() {
    assert_linear("append", 500, |n| {
        format!(
            "{HEAD}@qd.kernel\ndef k(a: qd.i32) -> qd.i32:\n    l = []\n    for i in qd.static(range({n})):\n        l.append(a * i)\n    return l[0]\n"
        )
    });
}

/// A chain of calls, inlined and outlined.
fn chain(n: usize, body: &str) -> String {
    let mut text = format!("{HEAD}@qd.func\ndef f0(a):\n    return a\n\n\n");
    for i in 1..n {
        let _ = writeln!(text, "@qd.func\ndef f{i}(a):\n{}\n\n", body.replace("NEXT", &format!("f{}", i - 1)));
    }
    text + &format!("@qd.kernel\ndef k(a: qd.i32) -> qd.i32:\n    return f{}(a)\n", n - 1)
}

#[test]
fn calls_one_after_the_other() {
    assert_linear("calls", 500, |n| {
        let mut text = format!(
            "{HEAD}@qd.func\ndef f(a, b):\n    if a > b:\n        return a\n    return b\n\n\n@qd.func\ndef g(a, b):\n    c = a + b\n    return c * 2\n\n\n"
        );
        text.push_str("@qd.kernel\ndef k(a: qd.i32) -> qd.i32:\n    s = a\n");
        for _ in 0..n {
            text.push_str("    s += f(s, a) + g(a, s)\n");
        }
        text + "    return s\n"
    });
}

#[test]
fn deep_calls() {
    // A small stack would overflow, so run in a thread with the usual 8 MiB.
    let run = || {
        assert_linear("inlined", 50, |n| chain(n, "    b = NEXT(a + 1)\n    return b + 1"));
        assert_linear("outlined", 50, |n| chain(n, "    if a > 3:\n        return NEXT(a + 1)\n    return NEXT(a)"));
    };
    std::thread::Builder::new().stack_size(8 << 20).spawn(run).unwrap().join().unwrap();
}

#[test]
fn deep_expressions() {
    let run = || {
        assert_linear("sum", 250, |n| {
            let sum = vec!["a"; n].join(" + ");
            format!("{HEAD}@qd.kernel\ndef k(a: qd.i32) -> qd.i32:\n    return {sum}\n")
        });
        assert_linear("elif", 100, |n| {
            let mut text =
                format!("{HEAD}@qd.kernel\ndef k(a: qd.i32) -> qd.i32:\n    s = 0\n    if a == 0:\n        s = 1\n");
            for i in 1..n {
                let _ = writeln!(text, "    elif a == {i}:\n        s = {i}");
            }
            text + "    return s\n"
        });
    };
    std::thread::Builder::new().stack_size(8 << 20).spawn(run).unwrap().join().unwrap();
}

/// Instructions of a kernel and its functions.
fn ir_size(text: &str) -> usize {
    let module = Module::read("scaling.py", text);
    let lowered = module.lower(module.kernels[0].1);
    let kernel = lowered.unwrap_or_else(|(d, sources)| panic!("{}", d[0].render(&sources))).kernel;
    kernel.functions.iter().map(|f| &f.body).chain([&kernel.body]).map(|b| b.insts.len()).sum()
}

fn long_function(name: &str, lines: usize) -> String {
    let mut text = format!("@qd.func\ndef {name}(a, b):\n    v0 = a\n    v1 = b\n");
    for i in 2..lines {
        let _ = writeln!(text, "    v{i} = v{} * 0.5 + v{} + b", i - 1, i - 2);
    }
    text + &format!("    return v{}\n\n\n", lines - 1)
}

/// A function is in the IR once, regardless of the number of calls and their runtime arguments.
#[test]
fn a_long_function_called_many_times() {
    let called = |n: usize, argument: &dyn Fn(usize) -> String| {
        let mut text = format!("{HEAD}{}@qd.kernel\ndef k(a: qd.f32) -> qd.f32:\n    s = a\n", long_function("f", 60));
        for i in 0..n {
            let _ = writeln!(text, "    s += f(s, {})", argument(i));
        }
        text + "    return s\n"
    };
    for argument in [&|_| "a".to_owned(), &|i| format!("{i}.5")] as [&dyn Fn(usize) -> String; 2] {
        let (one, forty) = (ir_size(&called(1, argument)), ir_size(&called(40, argument)));
        println!("{one} instructions with one call, {forty} with forty");
        assert!(forty < one + 39 * 10, "{one} instructions with one call, {forty} with forty");
    }
}

/// Each level of a tree of calls adds its own code.
#[test]
fn a_tree_of_calls() {
    let tree = |levels: usize| {
        let mut text = format!("{HEAD}{}", long_function("f0", 10));
        for i in 1..levels {
            let g = format!("f{}", i - 1);
            let _ = writeln!(
                text,
                "@qd.func\ndef f{i}(a, b):\n    c = {g}(a, b)\n    d = {g}(c, a)\n    return {g}(d, c) + d\n\n"
            );
        }
        text + &format!("@qd.kernel\ndef k(a: qd.f32) -> qd.f32:\n    return f{}(a, 1.0)\n", levels - 1)
    };
    let (few, many) = (ir_size(&tree(3)), ir_size(&tree(6)));
    println!("{few} instructions in three levels, {many} in six");
    assert!(many < 2 * few + 50, "{few} instructions in three levels, {many} in six");
}
