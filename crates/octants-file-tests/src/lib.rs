//! For tests: the driver of file tests, `tests/file/<pass>/<case>.oir` of a crate.
//!
//! A case starts with `; run: <passes>`, optionally followed by `; options: <names>`. Then come the input and, after a
//! line `----`, the expected text. The crate under test defines the passes and options: it passes [`check_cases`] a
//! function from a case to a text. With `OCTANTS_BLESS=1`, the expected part is written instead of compared.
//!
//! Lines with calls also run the code, in `octants_interpreter`:
//!
//! ```text
//! ; call: (n = 3, x = [1.0, 2.0]) -> x = [2.0, 4.0], return 7
//! ; call: (n = -1, x = []) -> fails "n is negative"
//! ```
//!
//! Arguments are parameters and contents of buffers, by name; fields that are not named contain zeros. The results must
//! hold for the input and for the output of the passes, with iterations in order and in other orders. `call input:` and
//! `call output:` apply to one of the two, for passes that change the results of the code. Results are:
//!
//! - `x = [..]` and `return 7`, exactly; `x ~ [..]` and `return ~ 7.1`, up to a relative error of 1e-5;
//! - `fails "text"`: an assertion fails with this text in its message;
//! - `error "text"`: the interpreter reports undefined behavior with this text in its message;
//! - `prints "line" "line"`: all lines, in any order.
//!
//! Vectors and axes are nested lists; `[0..4]` and `[0.0; 8]` abbreviate longer ones. A line that begins with a `;` and
//! at least three spaces continues the line above. `; grid: block_size 64, blocks 2, subgroup_size 32` sets the grid
//! for loops with thread operations (barriers, exchanges).

#![allow(clippy::unwrap_used)]

use std::fmt::{Debug, Display};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use octants_interpreter::Grid;
use octants_ir::Kernel;
use octants_ir::verify::assert_kernel;

mod call_text;
mod calls;

use calls::{CaseCall, Side, run_calls};

const SEPARATOR: &str = "----\n";

/// One file.
pub struct Case {
    /// Its path.
    pub path: PathBuf,
    /// The passes to run on the input, in order: the tested pass, and the passes that it requires.
    pub passes: Vec<String>,
    /// The IR before, as text.
    pub input: String,
    /// The expected output.
    pub expected: String,
    header: String,
    options: Vec<String>,
    calls: Vec<CaseCall>,
    grid: Grid,
}

impl Case {
    fn read(path: PathBuf) -> Case {
        let text = std::fs::read_to_string(&path).unwrap();
        let (before, expected) = text.split_once(SEPARATOR).unwrap_or((&text, ""));
        let header: String = before.lines().take_while(|l| l.starts_with(';')).map(|l| format!("{l}\n")).collect();
        let find = |key: &str| header.lines().find_map(|l| l.strip_prefix(&format!("; {key}: ")).map(str::to_string));
        let words = |key: &str| find(key).unwrap_or_default().split_whitespace().map(str::to_string).collect();
        let (passes, options): (Vec<String>, _) = (words("run"), words("options"));
        assert!(!passes.is_empty(), "{}: no `; run:`", path.display());
        let input = before[header.len()..].to_string();
        let calls = calls_of(&header).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let grid = find("grid").map_or(Grid::default(), |text| grid_of(&text));
        Case { header, input, expected: expected.to_string(), passes, options, calls, grid, path }
    }

    /// The case runs this pass.
    pub fn runs(&self, pass: &str) -> bool {
        self.passes.iter().any(|p| p == pass)
    }

    /// The case names this option.
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|o| o == option)
    }

    /// Runs the calls of the output on a text: for cases whose expected text is not the code that runs.
    pub fn assert_calls(&self, text: &str) {
        let wrong = run_calls(&self.calls, Side::Input, text, self.grid);
        assert!(wrong.is_empty(), "{}: calls\n{}\nof\n{text}", self.path.display(), wrong.join("\n"));
    }

    /// The mismatches of calls, on the input and on the output.
    fn wrong_calls(&self, found: &str) -> Vec<String> {
        let before = run_calls(&self.calls, Side::Output, &self.input, self.grid);
        // The text of a schedule or of errors is not code.
        let is_code = calls::has_code(found) || self.calls.iter().any(|c| c.side == Side::Output);
        let after = if is_code { run_calls(&self.calls, Side::Input, found, self.grid) } else { Vec::new() };
        let of =
            |when: &str, all: Vec<String>| all.into_iter().map(move |e| format!("{when}: {e}")).collect::<Vec<_>>();
        [of("before", before), of("after", after)].concat()
    }

    /// The input is a program, cut into tasks.
    pub fn is_program(&self) -> bool {
        self.input.trim_start().starts_with("program")
    }

    /// The input as IR that may break the verifier's rules.
    pub fn parse<T: FromStr<Err: Display>>(&self) -> T {
        self.parse_text(&self.input)
    }

    /// The input as a sound kernel.
    pub fn kernel(&self) -> Kernel {
        let kernel = self.parse();
        assert_kernel(&kernel, "parsing");
        kernel
    }

    /// The text of IR, after a check that it reads back as the same IR.
    pub fn text<T: FromStr<Err: Display> + Display + Debug>(&self, ir: &T) -> String {
        let text = ir.to_string();
        let with_spans: T = self.parse_text(&format!("{ir:#}"));
        // Compared by their debug text, in which NaN is NaN.
        let same = format!("{with_spans:?}") == format!("{ir:?}");
        assert!(same, "{}: {ir:#}\nreads back as\n{with_spans:#}", self.path.display());
        let back: T = self.parse_text(&text);
        assert_eq!(back.to_string(), text, "{}", self.path.display());
        text
    }

    fn parse_text<T: FromStr<Err: Display>>(&self, text: &str) -> T {
        match text.parse() {
            Ok(ir) => ir,
            Err(e) => panic!("{}: {e} of\n{text}", self.path.display()),
        }
    }
}

/// The calls in a header.
fn calls_of(header: &str) -> Result<Vec<CaseCall>, String> {
    let mut lines: Vec<String> = Vec::new();
    for line in header.lines() {
        match (line.strip_prefix(";   "), lines.last_mut()) {
            (Some(more), Some(last)) => *last = format!("{last} {}", more.trim()),
            _ => lines.push(line.to_string()),
        }
    }
    let kinds = [("; call: ", Side::Both), ("; call input: ", Side::Input), ("; call output: ", Side::Output)];
    let mut calls = Vec::new();
    for line in &lines {
        let Some((text, side)) = kinds.iter().find_map(|(word, side)| Some((line.strip_prefix(word)?, *side))) else {
            continue;
        };
        let call = call_text::parse_call(text).map_err(|e| format!("`{text}`: {e}"))?;
        calls.push(CaseCall { side, text: text.to_string(), call });
    }
    Ok(calls)
}

/// Parses `block_size 64, blocks 2, subgroup_size 32`. Each item is optional.
fn grid_of(text: &str) -> Grid {
    let mut grid = Grid::default();
    for item in text.split(',') {
        let (name, number) = item.trim().split_once(' ').unwrap();
        let number = number.trim().parse().unwrap();
        match name {
            "block_size" => grid.block_size = number,
            "blocks" => grid.blocks = number,
            "subgroup_size" => grid.subgroup_size = number,
            _ => panic!("`{name}` is no extent of a grid"),
        }
    }
    grid
}

/// The cases below `tests/file` of the crate in a folder.
pub fn cases(crate_dir: &str) -> Vec<Case> {
    let mut paths = Vec::new();
    for dir in std::fs::read_dir(Path::new(crate_dir).join("tests/file")).unwrap() {
        for file in std::fs::read_dir(dir.unwrap().path()).unwrap() {
            paths.push(file.unwrap().path());
        }
    }
    paths.sort();
    paths.into_iter().filter(|p| p.extension().is_some_and(|e| e == "oir")).map(Case::read).collect()
}

/// Runs the cases of the crate in a folder, and compares or writes the output.
pub fn check_cases(crate_dir: &str, run: impl Fn(&Case) -> String) {
    let bless = std::env::var_os("OCTANTS_BLESS").is_some();
    let mut failed = Vec::new();
    for case in cases(crate_dir) {
        let found = run(&case);
        let wrong = case.wrong_calls(&found);
        if !wrong.is_empty() {
            failed.push(format!("{}: calls\n{}", case.path.display(), wrong.join("\n")));
        }
        if bless {
            let all = format!("{}{}{SEPARATOR}{found}", case.header, case.input);
            std::fs::write(&case.path, all).unwrap();
        } else if found != case.expected {
            failed.push(format!("{}: expected\n{}\nfound\n{found}", case.path.display(), case.expected));
        }
    }
    assert!(failed.is_empty(), "{}\n{} failed; OCTANTS_BLESS=1 accepts", failed.join("\n"), failed.len());
}

/// Checks that some case of the crate in a folder runs each of these passes.
pub fn check_passes_have_cases<'a>(crate_dir: &str, passes: impl IntoIterator<Item = &'a str>) {
    let cases = cases(crate_dir);
    for pass in passes {
        assert!(cases.iter().any(|c| c.runs(pass)), "no file test runs `{pass}`");
    }
}
