//! Kernels and the IR they become: `tests/file/<case>.py` and `<case>.oir`.
//!
//! Every kernel of a case is lowered, verified, printed, and read back. With `OCTANTS_BLESS=1` the expected text is
//! written instead of compared; a case may expect warnings with `#~ WARN <text>` on the line.

#![allow(clippy::unwrap_used)]

mod world_table;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use octants_ir::{Kernel, verify_kernel};
use world_table::module::Module;

fn cases() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/file");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "py"));
    paths.sort();
    paths
}

/// The printed kernels of a case, and their verification errors.
fn lower_case(path: &Path, wrong: &mut Vec<String>) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let module = Module::read(&name, &text);
    let mut out = String::new();
    for (kernel, obj) in &module.kernels {
        match module.lower(*obj) {
            Ok(lowered) => {
                let kernel_text = lowered.kernel.to_string();
                for v in verify_kernel(&lowered.kernel) {
                    wrong.push(format!("{name}: {kernel}: {v}\n{kernel_text}"));
                }
                let back = kernel_text.parse::<Kernel>().map(|k| k.to_string());
                if back.as_ref().ok() != Some(&kernel_text) {
                    wrong.push(format!("{name}: {kernel} does not read back: {:?}\n{kernel_text}", back.err()));
                }
                let _ = writeln!(out, "{kernel_text}");
                check_warnings(&module, &lowered.sources, &name, &text, wrong);
            }
            Err((diagnostics, sources)) => {
                let shown: String = diagnostics.iter().map(|d| d.render(&sources)).collect();
                wrong.push(format!("{name}: {kernel}: {shown}"));
            }
        }
    }
    for line in module.table.printed.borrow().iter() {
        let _ = writeln!(out, "printed: {line}");
    }
    out
}

fn check_warnings(module: &Module, sources: &octants_diag::Sources, name: &str, text: &str, wrong: &mut Vec<String>) {
    for w in module.table.warnings.take() {
        let line = w.span.and_then(|s| sources.position(s)).map_or(0, |p| p.line as usize);
        let expected = text.lines().nth(line.saturating_sub(1)).and_then(|l| l.split_once("#~ WARN "));
        if !expected.is_some_and(|(_, e)| w.message.contains(e.trim())) {
            wrong.push(format!("{name}:{line}: unexpected warning: {}", w.message));
        }
    }
}

#[test]
fn files() {
    let bless = std::env::var_os("OCTANTS_BLESS").is_some();
    let mut wrong = Vec::new();
    for path in cases() {
        let text = lower_case(&path, &mut wrong);
        let expected_path = path.with_extension("oir");
        if bless {
            std::fs::write(&expected_path, &text).unwrap();
            continue;
        }
        let expected = std::fs::read_to_string(&expected_path).unwrap_or_default();
        if expected != text {
            let at = expected.lines().zip(text.lines()).take_while(|(a, b)| a == b).count();
            let line = |s: &str| s.lines().nth(at).unwrap_or("(end)").to_string();
            wrong.push(format!(
                "{}: line {} differs (OCTANTS_BLESS=1 rewrites it)\n  expected {}\n  found    {}",
                expected_path.display(),
                at + 1,
                line(&expected),
                line(&text)
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
