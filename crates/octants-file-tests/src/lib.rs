//! For tests: the driver of file tests, `tests/file/<pass>/<case>.oir` of a crate.
//!
//! A case starts with `; run: <passes>`, may go on with `; options: <names>`, and holds the input and, after a line
//! `----`, the expected text. What passes and options mean is the crate's: it hands [`check_cases`] a function from a
//! case to a text. With `OCTANTS_BLESS=1` the expected part is written instead of compared.

#![allow(clippy::unwrap_used)]

use std::fmt::{Debug, Display};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use octants_ir::Kernel;
use octants_ir::verify::assert_kernel;

const SEPARATOR: &str = "----\n";

/// One file.
pub struct Case {
    /// Where it is.
    pub path: PathBuf,
    /// What runs on the input, one after the other: the one that is tested, and what it needs around it.
    pub passes: Vec<String>,
    /// The IR before, as text.
    pub input: String,
    /// The text that must come out.
    pub expected: String,
    header: String,
    options: Vec<String>,
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
        Case { header, input, expected: expected.to_string(), passes, options, path }
    }

    /// The case runs this pass.
    pub fn runs(&self, pass: &str) -> bool {
        self.passes.iter().any(|p| p == pass)
    }

    /// The case names this option.
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|o| o == option)
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

/// Runs the cases of the crate in a folder, and compares or writes what comes out.
pub fn check_cases(crate_dir: &str, run: impl Fn(&Case) -> String) {
    let bless = std::env::var_os("OCTANTS_BLESS").is_some();
    let mut failed = Vec::new();
    for case in cases(crate_dir) {
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

/// Checks that some case of the crate in a folder runs each of these passes.
pub fn check_passes_have_cases<'a>(crate_dir: &str, passes: impl IntoIterator<Item = &'a str>) {
    let cases = cases(crate_dir);
    for pass in passes {
        assert!(cases.iter().any(|c| c.runs(pass)), "no file test runs `{pass}`");
    }
}
