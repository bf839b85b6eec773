//! Runs the file tests: `tests/file/<pass>/<case>.oir`.
//!
//! A case starts with `; run: <pass>`, may go on with `; options: check_bounds debug fast_math arrays_may_alias
//! launches_in_order gather blocks`, and holds the input and, after a line `----`, what is expected. `<pass>` is a name
//! of the pipeline's table, `pipeline` (all of it), `renumber`, `differentiate_forward`, `hoist_invariants`,
//! `structure_exits`, `validate_reads`, `tally_loops`, `tally_reads`, `unite_buffers`, `differentiate_reverse`
//! (simplified, and followed by the kernel that counts what it keeps), `offload` (the expected text is a program),
//! `print` (the text of what was parsed), `access_sets` (the elements that a program's tasks touch) or `verify` (the
//! violations, one a line). With `OCTANTS_BLESS=1` the expected
//! part is written instead of compared.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use octants_analysis::describe_access;
use octants_diag::{Diagnostic, Sources};
use octants_ir::verify::{Rule, assert_kernel, assert_program, verify_kernel, verify_program};
use octants_ir::{Kernel, Program};
use octants_passes::differentiate_forward::differentiate_forward;
use octants_passes::differentiate_reverse::differentiate_reverse;
use octants_passes::eliminate_dead_code::eliminate_dead_code;
use octants_passes::hoist_invariants::hoist_invariants;
use octants_passes::pipeline::PIPELINE;
use octants_passes::structure_exits::structure_exits;
use octants_passes::{
    Keeping, PassOptions, Tallied, offload, renumber, run_pass, run_pipeline, tally_loops, unite_buffers,
    validate_reads,
};

/// Passes that are not in the pipeline's table.
const OTHERS: &[&str] = &[
    "access_sets",
    "differentiate_forward",
    "validate_reads",
    "differentiate_reverse",
    "hoist_invariants",
    "offload",
    "pipeline",
    "print",
    "renumber",
    "structure_exits",
    "tally_loops",
    "tally_reads",
    "unite_buffers",
];

const SEPARATOR: &str = "----\n";

struct Case {
    path: PathBuf,
    header: String,
    input: String,
    expected: String,
    pass: String,
    options: Vec<String>,
}

fn cases() -> Vec<Case> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/file");
    let mut paths = Vec::new();
    for dir in std::fs::read_dir(root).unwrap() {
        for file in std::fs::read_dir(dir.unwrap().path()).unwrap() {
            paths.push(file.unwrap().path());
        }
    }
    paths.sort();
    paths.into_iter().filter(|p| p.extension().is_some_and(|e| e == "oir")).map(read_case).collect()
}

fn read_case(path: PathBuf) -> Case {
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, expected) = text.split_once(SEPARATOR).unwrap_or((&text, ""));
    let header: String = before.lines().take_while(|l| l.starts_with(';')).map(|l| format!("{l}\n")).collect();
    let find = |key: &str| header.lines().find_map(|l| l.strip_prefix(&format!("; {key}: ")).map(str::to_string));
    let pass = find("run").unwrap_or_else(|| panic!("{}: no `; run:`", path.display()));
    let options = find("options").unwrap_or_default().split_whitespace().map(str::to_string).collect();
    let input = before[header.len()..].to_string();
    Case { header, input, expected: expected.to_string(), pass, options, path }
}

fn parse<T: FromStr<Err: std::fmt::Display>>(case: &Case, text: &str) -> T {
    match text.parse() {
        Ok(ir) => ir,
        Err(e) => panic!("{}: {e} of\n{text}", case.path.display()),
    }
}

/// The text of an IR, after a check that it reads back as the same IR.
fn text<T: FromStr<Err: std::fmt::Display> + std::fmt::Display + std::fmt::Debug>(case: &Case, ir: &T) -> String {
    let text = ir.to_string();
    let with_spans: T = parse(case, &format!("{ir:#}"));
    // Compared by their debug text, in which NaN is NaN.
    let same = format!("{with_spans:?}") == format!("{ir:?}");
    assert!(same, "{}: {ir:#}\nreads back as\n{with_spans:#}", case.path.display());
    let back: T = parse(case, &text);
    assert_eq!(back.to_string(), text, "{}", case.path.display());
    text
}

fn run(case: &Case) -> String {
    let has = |name: &str| case.options.iter().any(|o| o == name);
    let options = PassOptions {
        check_bounds: has("check_bounds"),
        debug: has("debug"),
        fast_math: has("fast_math"),
        arrays_may_alias: has("arrays_may_alias"),
        launches_in_order: has("launches_in_order"),
        gather: has("gather").then_some(4),
        sources: None,
    };
    let is_program = case.input.trim_start().starts_with("program");
    match case.pass.as_str() {
        "print" if is_program => text(case, &parse::<Program>(case, &case.input)),
        "print" => text(case, &parse::<Kernel>(case, &case.input)),
        "access_sets" => describe_access(&parse(case, &case.input)),
        "verify" => {
            let violations = if is_program {
                verify_program(&parse(case, &case.input))
            } else {
                verify_kernel(&parse(case, &case.input))
            };
            violations.iter().map(|v| format!("{v}\n")).collect()
        }
        "offload" => {
            let kernel: Kernel = parse(case, &case.input);
            assert_kernel(&kernel, "parsing");
            let program = offload(kernel);
            assert_program(&program, "offload");
            text(case, &program)
        }
        pass => {
            let mut kernel: Kernel = parse(case, &case.input);
            let (mut count, mut warnings) = (None, String::new());
            assert_kernel(&kernel, "parsing");
            match pass {
                "pipeline" => run_pipeline(&mut kernel, &options),
                "renumber" => renumber(&mut kernel.body),
                "validate_reads" => validate_reads(&mut kernel, &Sources::default()),
                "tally_loops" => tally_loops(&mut kernel, Tallied::Loops, &Sources::default()),
                "tally_reads" => tally_loops(&mut kernel, Tallied::Reads, &Sources::default()),
                "differentiate_forward" => differentiate_forward(&mut kernel),
                "unite_buffers" => unite_buffers(&mut kernel, &[]),
                "hoist_invariants" => hoist_invariants(&mut kernel),
                "structure_exits" => structure_exits(&mut kernel),
                "differentiate_reverse" => {
                    let keeping = if has("blocks") { Keeping::Blocks } else { Keeping::Iterations };
                    let mut warn = |w: Diagnostic| warnings += &format!("warning: {}\n", w.message);
                    match differentiate_reverse(&mut kernel, keeping, &mut warn) {
                        Ok(store) => count = store.map(|s| s.count),
                        Err(errors) => return errors.iter().map(|e| format!("error: {}\n", e.message)).collect(),
                    }
                }
                _ => assert!(run_pass(pass, &mut kernel, &options), "{}: no pass `{pass}`", case.path.display()),
            }
            assert_kernel(&kernel, pass);
            if pass == "differentiate_reverse" {
                eliminate_dead_code(&mut kernel);
            }
            if !warnings.is_empty() {
                return warnings;
            }
            if let Some(mut count) = count {
                assert_kernel(&count, pass);
                eliminate_dead_code(&mut count);
                return text(case, &kernel) + &text(case, &count);
            }
            // Unreachable code has no text.
            kernel.functions.iter_mut().for_each(|f| renumber(&mut f.body));
            renumber(&mut kernel.body);
            text(case, &kernel)
        }
    }
}

#[test]
fn files() {
    let bless = std::env::var_os("OCTANTS_BLESS").is_some();
    let mut failed = Vec::new();
    for case in cases() {
        let found = run(&case);
        if bless {
            let all = format!("{}{}{SEPARATOR}{found}", case.header, case.input);
            std::fs::write(&case.path, all).unwrap();
        } else if found != case.expected {
            failed.push(format!("{}: expected\n{}\nfound\n{found}", case.path.display(), case.expected));
        }
    }
    assert!(failed.is_empty(), "{}\n{} failed; OCTANTS_BLESS=1 accepts", failed.join("\n"), failed.len());
}

#[test]
fn every_pass_and_every_rule_has_a_case() {
    let cases = cases();
    for pass in PIPELINE.iter().map(|p| p.name).chain(OTHERS.iter().copied()) {
        assert!(cases.iter().any(|c| c.pass == pass), "no file test runs `{pass}`");
    }
    let broken: BTreeSet<&str> = cases
        .iter()
        .filter(|c| c.pass == "verify")
        .flat_map(|c| c.expected.lines())
        .filter_map(|l| l.strip_prefix("rule ")?.split(' ').next())
        .collect();
    for rule in Rule::ALL {
        let number = (*rule as u32).to_string();
        assert!(broken.contains(number.as_str()), "no file test breaks rule {number}: {}", rule.text());
    }
}
