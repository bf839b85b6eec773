//! Quotes of the user's source in run-time messages.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use octants_diag::{SourceFile, Sources, Span};
use octants_ir::{BinaryOp, Builder, Kernel, Op, Param, Scalar, Type, run_pipeline};
use octants_passes::{PIPELINE, PassOptions};

#[test]
fn an_overflow_report_quotes_the_line() {
    let mut sources = Sources::default();
    let text = "def k(n: i32):\n    return n + n\n";
    let file = sources.add(Arc::new(SourceFile {
        path: "sim.py".into(),
        text: text.into(),
        first_line: 7,
        is_library: false,
    }));
    let start = text.find("n + n").unwrap() as u32;

    let mut b = Builder::new();
    let n = b.push(Op::Param(0), Type::I32);
    b.span = Span { file, start, end: start + 5, call: 0 };
    let sum = b.binary(BinaryOp::Add, n, n);
    b.push(Op::Return(Some(sum)), Type::Unit);
    let params = vec![Param { name: "n".into(), ty: Type::Scalar(Scalar::I32) }];
    let mut kernel = Kernel { name: "k".into(), params, body: b.body, ret: Type::I32, ..Kernel::default() };

    let mut options = PassOptions { debug: true, sources: Some(sources), ..PassOptions::default() };
    run_pipeline(PIPELINE, &mut kernel, &mut options);
    let text = kernel.to_string();
    assert!(text.contains(r#"print(once, "Addition overflow detected in sim.py:8:\n  return n + n\n")"#), "{text}");
}
