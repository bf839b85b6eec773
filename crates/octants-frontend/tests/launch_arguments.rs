//! The argument plan of the front end: captured arrays, members of dataclasses, fields' roots, results.

#![allow(clippy::unwrap_used)]

mod world_table;

use octants_frontend::{Capture, Lowered};
use world_table::module::Module;

fn lower(text: &str) -> (Module, Lowered) {
    let module = Module::read("launch.py", &format!("import dataclasses\nimport octants as qd\n\n{text}"));
    let lowered = module.lower(module.kernels[0].1).unwrap_or_else(|(d, s)| panic!("{}", d[0].render(&s)));
    (module, lowered)
}

fn strings(items: &[&str]) -> Vec<String> {
    items.iter().map(|s| s.to_string()).collect()
}

#[test]
fn an_array_parameter_is_captured_by_position() {
    let (_, l) = lower(
        "@qd.kernel\ndef k(n: qd.i32, a: qd.types.ndarray(qd.f32, 1), b: qd.types.ndarray(qd.f32, 1)):\n    b[0] = a[n]\n",
    );
    let arg = |index| Some(Capture::Arg { index, path: Vec::new() });
    assert_eq!(l.buffers, [arg(1), arg(2)]);
    assert_eq!(l.params, [(0, Vec::new())]);
}

#[test]
fn unused_parameters_keep_their_positions() {
    let (_, l) = lower("@qd.kernel\ndef k(a: qd.i32, b: qd.f32, c: qd.types.ndarray(qd.f32, 1)):\n    pass\n");
    assert_eq!(l.params, [(0, Vec::new()), (1, Vec::new())]);
    assert_eq!(l.buffers.len(), 1);
}

#[test]
fn members_of_dataclasses_are_captured_by_path() {
    let (_, l) = lower(
        "@dataclasses.dataclass\nclass Inner:\n    w: qd.types.ndarray(qd.f32, 1)\n    k: qd.i32\n\n\
         @dataclasses.dataclass\nclass S:\n    inner: Inner\n    unused: qd.f32\n\n\
         @qd.kernel\ndef k(n: qd.i32, s: S):\n    s.inner.w[n] = s.inner.k\n    s.inner.w[0] = s.inner.k\n",
    );
    assert_eq!(l.buffers, [Some(Capture::Arg { index: 1, path: strings(&["inner", "w"]) })]);
    assert_eq!(l.params, [(0, vec![]), (1, strings(&["inner", "k"]))]);
}

#[test]
fn an_array_in_a_template_argument_has_a_path() {
    let (module, l) = lower(
        "class Sim:\n    a = qd.ndarray(qd.f32, shape=4)\n    parts = qd.opaque(b=qd.ndarray(qd.i32, shape=(2, 2)))\n\n\
         \x20   @qd.kernel\n    def k(self):\n        self.a[0] = self.parts.b[0, 0]\n",
    );
    let sim = module.table.find_global("Sim").unwrap();
    let found: Vec<_> = l
        .buffers
        .iter()
        .map(|c| match c {
            Some(Capture::Object { from: Some((index, path)), .. }) => (*index, path.join(".")),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(found, [(0, "parts.b".to_string()), (0, "a".to_string())]);
    assert_ne!(module.table.record(sim).attributes.len(), 0);
}

#[test]
fn a_captured_global_array_has_no_path_and_is_one_buffer() {
    let (module, l) = lower(
        "a = qd.ndarray(qd.f32, shape=4)\n\n@qd.func\ndef f(i):\n    return a[i]\n\n\
         @qd.kernel\ndef k() -> qd.f32:\n    return a[0] + f(1)\n",
    );
    let obj = module.table.find_global("a").unwrap();
    assert_eq!(l.buffers, [Some(Capture::Object { obj, from: None })]);
}

#[test]
fn fields_are_reached_through_their_roots() {
    let (module, l) = lower(
        "x = qd.field(qd.f32, shape=4)\ny = qd.field(qd.f32, shape=4)\n\n@qd.kernel\ndef k():\n    y[0] = 1\n    y[1] = x[0]\n",
    );
    assert_eq!(l.buffers, [None, None]);
    let root = |name: &str| match module.table.record(module.table.find_global(name).unwrap()).entity {
        octants_frontend::Entity::Field(desc) => desc.components[0].root,
        other => panic!("{other:?}"),
    };
    assert_eq!(l.roots, [root("y"), root("x")]);
    assert_eq!(l.kernel.roots, 2);
}

#[test]
fn results_keep_their_annotations() {
    let (module, l) =
        lower("vec2 = qd.types.vector(2, qd.f32)\n\n@qd.kernel\ndef k() -> (qd.i32, vec2):\n    return 1, vec2(1.0)\n");
    let vec2 = module.table.find_global("vec2").unwrap();
    assert_eq!(l.returns.len(), 2);
    assert_eq!(l.returns[1], vec2);
}

#[test]
fn instructions_point_into_the_file_of_their_function() {
    let (_, l) = lower(
        "x = qd.field(qd.f32, shape=4)\n\n@qd.func\ndef f(i):\n    x[i] = 7.0\n\n@qd.kernel\ndef k():\n    f(1)\n    x[0] = 3.0\n",
    );
    let stores: Vec<String> = l
        .kernel
        .body
        .insts
        .iter()
        .filter(|i| matches!(i.op, octants_ir::Op::Store(..)))
        .map(|i| l.sources.location(i.span))
        .collect();
    assert_eq!(stores, ["launch.py:8", "launch.py:13"]);
}

#[test]
fn long_unrolled_loops_are_warned_about() {
    let module = Module::read(
        "limit.py",
        "#~ OPTIONS unrolling_limit=8\nimport octants as qd\n\n@qd.kernel\ndef k():\n    for i in qd.static(range(9)):\n        pass\n    for i in qd.static(range(8)):\n        pass\n",
    );
    module.lower(module.kernels[0].1).unwrap();
    let warnings = module.table.warnings.borrow();
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].message.contains("more than 8 iterations"), "{}", warnings[0].message);
}
