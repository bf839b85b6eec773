//! The parser's errors, and their positions.

use octants_ir::{Body, Kernel, Program, TaskGraph};

fn error(text: &str) -> String {
    text.parse::<Kernel>().expect_err("text that is not IR").to_string()
}

fn in_body(line: &str) -> String {
    error(&format!("kernel k -> unit {{\n  body {{\n    {line}\n  }}\n}}"))
}

#[test]
fn errors_name_the_line_and_what_is_wrong() {
    assert_eq!(in_body("%0: i32 = frobnicate %1"), "line 3: `frobnicate` is not an operation");
    assert_eq!(in_body("%0: q32 = const 1"), "line 3: `q32` is not a type");
    assert_eq!(in_body("%0: !Missing = param 0"), "line 3: struct `!Missing` is not declared above");
    assert_eq!(in_body("print(\"open"), "line 3: a quote that is not closed");
    assert_eq!(in_body("%0: i32 = const 1\n    %0: i32 = const 2"), "line 4: %0 is defined twice");
    assert_eq!(in_body("local $1 x: i32"), "line 3: locals are numbered from 0, in order");
    assert_eq!(in_body("%0: i32 = const 1 ?"), "line 3: `?` has no meaning here");
    assert!(error("program k -> unit {").starts_with("line 1: expected `kernel`"));
}

#[test]
fn errors_in_a_graph_name_what_is_wrong() {
    let error = |line: &str| {
        let text = format!("program k -> unit {{\n  task a serial {{\n  }}\n  graph {{\n    {line}\n  }}\n}}");
        text.parse::<Program>().expect_err("text that is not IR").to_string()
    };
    assert_eq!(error("launch b count 1"), "line 5: no task `b` is declared above");
    assert_eq!(error("repeat @0 {}"), "line 5: `repeat` is not a part of a task graph");
    assert_eq!(error("launch a count many"), "line 5: expected a number, found Word(\"many\")");
    assert_eq!(error("switch @0 { launch a count 1 }"), "line 5: expected `}`, found Word(\"launch\")");
    assert!(error("while 3 {}").starts_with("line 5: expected `@` and a number"));
}

#[test]
fn without_a_graph_each_task_runs_once() {
    let text = "program k -> unit {\n  task a serial {\n  }\n  task b serial {\n  }\n}";
    let program: Program = text.parse().expect("a program");
    assert_eq!(program.graph, TaskGraph::in_order(&program.tasks));
    assert!(program.to_string().contains("graph {\n    launch a count 1\n    launch b count 1\n  }"));
}

#[test]
fn a_body_without_a_kernel_parses() {
    let text = "local $0 x: f32\n%0: ref f32 = local_addr $0\n%1: f32 = load %0 ; a comment\nprint(%1)\n";
    let body: Body = text.parse().expect("a body");
    assert_eq!(body.to_string(), text.replace(" ; a comment", ""));
}
