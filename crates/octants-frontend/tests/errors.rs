//! The user's mistakes: `tests/error/<case>.py`.
//!
//! Each kernel of a case has one error, marked on its line: `#~ ERROR <part of the message>`, optionally followed by
//! `#~ AT <the underlined text>` and `#~ HINT <part of the hint>`. The underlined text begins on the marked line.
//! `OCTANTS_SHOW=1` prints the rendered messages.

#![allow(clippy::unwrap_used)]

mod world_table;

use std::collections::BTreeMap;
use std::path::Path;

use octants_diag::{Diagnostic, Sources};
use world_table::module::Module;

#[derive(Default)]
struct Expected {
    message: String,
    at: Option<String>,
    hint: Option<String>,
    met: bool,
}

/// Expected errors by line.
fn expected(text: &str) -> BTreeMap<u32, Expected> {
    let mut out = BTreeMap::new();
    for (i, line) in text.lines().enumerate() {
        let mut marks = line.split("#~ ");
        marks.next();
        for mark in marks {
            let (kind, value) = mark.trim().split_once(' ').unwrap_or((mark.trim(), ""));
            let entry: &mut Expected = out.entry(i as u32 + 1).or_default();
            match kind {
                "ERROR" => entry.message = value.to_string(),
                "AT" => entry.at = Some(value.to_string()),
                "HINT" => entry.hint = Some(value.to_string()),
                "OPTIONS" => {
                    out.remove(&(i as u32 + 1));
                }
                other => panic!("no mark `{other}`"),
            }
        }
    }
    out
}

fn check(d: &Diagnostic, sources: &Sources, marks: &mut BTreeMap<u32, Expected>) -> Result<(), String> {
    let shown = d.render(sources);
    let Some(span) = d.span else { return Err(format!("has no place: {shown}")) };
    let Some(position) = sources.position(span) else { return Err(format!("points nowhere: {shown}")) };
    let Some(mark) = marks.get_mut(&position.line) else { return Err(format!("is not expected here:{shown}")) };
    mark.met = true;
    if !d.message.contains(&mark.message) {
        return Err(format!("should say `{}`:{shown}", mark.message));
    }
    let file = sources.get(span.file).unwrap();
    let underlined = file.text.get(span.start as usize..span.end as usize).unwrap_or_default();
    if underlined.trim().is_empty() {
        return Err(format!("underlines nothing:{shown}"));
    }
    if mark.at.as_ref().is_some_and(|at| at != underlined) {
        return Err(format!("should underline `{}`, not `{underlined}`:{shown}", mark.at.as_ref().unwrap()));
    }
    // A statement with a body is more than one line: only its first is shown.
    if mark.at.is_some() && underlined.contains('\n') {
        return Err(format!("underlines several lines:{shown}"));
    }
    match (&mark.hint, &d.hint) {
        (Some(want), Some(found)) if !found.contains(want) => Err(format!("should hint `{want}`:{shown}")),
        (Some(want), None) => Err(format!("should hint `{want}`:{shown}")),
        _ => Ok(()),
    }
}

#[test]
fn files() {
    let show = std::env::var_os("OCTANTS_SHOW").is_some();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/error");
    let mut paths: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    let mut wrong = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let module = Module::read(&name, &text);
        let mut marks = expected(&text);
        for (kernel, obj) in &module.kernels {
            match module.lower(*obj) {
                Ok(_) => wrong.push(format!("{name}: {kernel} has no error")),
                Err((diagnostics, sources)) => {
                    for d in &diagnostics {
                        if show {
                            println!("{}\n", d.render(&sources));
                        }
                        if let Err(e) = check(d, &sources, &mut marks) {
                            wrong.push(format!("{name}: the error in {kernel} {e}"));
                        }
                    }
                }
            }
        }
        for (line, mark) in marks.iter().filter(|(_, m)| !m.met) {
            wrong.push(format!("{name}:{line}: `{}` was not reported", mark.message));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
