//! Extracts the source of one function from the lines of its file: from the first decorator to the end of the indented
//! block.

use std::sync::Arc;

use octants_engine::diag::SourceFile;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::package::Package;

/// The source of a function and its location.
pub fn source_file(py: Python<'_>, function: &Bound<'_, PyAny>, name: &str) -> PyResult<Arc<SourceFile>> {
    let code = function.getattr(pyo3::intern!(py, "__code__"))?;
    let path: String = code.getattr(pyo3::intern!(py, "co_filename"))?.extract()?;
    let is_library = path.starts_with(&Package::get(py)?.folder);
    let first: u32 = code.getattr(pyo3::intern!(py, "co_firstlineno"))?.extract()?;
    let linecache = py.import("linecache")?;
    linecache.call_method1(pyo3::intern!(py, "checkcache"), (&path,))?;
    let globals = function.getattr(pyo3::intern!(py, "__globals__"))?;
    let lines = linecache.call_method1(pyo3::intern!(py, "getlines"), (&path, globals))?;
    let lines = lines.cast::<PyList>()?;
    let start = (first as usize).saturating_sub(1);
    if lines.len() <= start {
        return Err(PyOSError::new_err(format!(
            "the source of `{name}` is not available ({path}, line {first}): kernels and functions are compiled from \
             their source, so define them in a file, not in an interactive session or `exec`"
        )));
    }
    if name == "<lambda>" {
        let find = Package::get(py)?.lambda_text.bind(py);
        if let Some((text, first_line)) = find.call1((&code, lines))?.extract::<Option<(String, u32)>>()? {
            return Ok(Arc::new(SourceFile { path, text, first_line, is_library }));
        }
    }
    // Scans only this function's lines: long files contain many functions.
    let mut window = 64;
    loop {
        let texts: Vec<String> =
            (start..lines.len().min(start + window)).map(|i| lines.get_item(i)?.extract()).collect::<PyResult<_>>()?;
        let (length, ended) = definition_length(texts.iter().map(String::as_str));
        if ended || start + texts.len() >= lines.len() {
            let text = texts[..length].concat();
            return Ok(Arc::new(SourceFile { path, text, first_line: first, is_library }));
        }
        window *= 4;
    }
}

/// Length in lines of the definition that starts at `lines[0]`, and whether its end was seen: if not, more lines could
/// belong to it.
///
/// Ends before the first line that is indented no deeper than the first one, outside of strings and brackets, after the
/// `def` itself; trailing blank lines and comments are left out.
fn definition_length<'a>(lines: impl Iterator<Item = &'a str>) -> (usize, bool) {
    let mut state = Scan::default();
    let mut base = None;
    let mut seen_def = false;
    let mut length = 0;
    for (i, line) in lines.enumerate() {
        let continues = state.inside();
        let text = line.trim_start_matches([' ', '\t', '\x0c']);
        let blank = text.trim_end().is_empty() || text.starts_with('#');
        if !continues && !blank {
            let indent = line.len() - text.len();
            let base = *base.get_or_insert(indent);
            if seen_def && indent <= base {
                return (length, true);
            }
            seen_def |= text.starts_with("def ") || text.starts_with("async ") || text.starts_with("class ");
        }
        state.line(line);
        if continues || !blank {
            length = i + 1;
        }
    }
    (length, false)
}

/// The state that a line passes to the next one.
#[derive(Default)]
struct Scan {
    depth: u32,
    quote: Option<Quote>,
    continued: bool,
}

struct Quote {
    byte: u8,
    triple: bool,
}

impl Scan {
    fn inside(&self) -> bool {
        self.depth > 0 || self.quote.is_some() || self.continued
    }

    fn line(&mut self, line: &str) {
        let bytes = line.as_bytes();
        self.continued = false;
        let mut i = 0;
        while i < bytes.len() {
            let b = bytes[i];
            if let Some(quote) = &self.quote {
                if b == b'\\' {
                    i += 2;
                    continue;
                }
                if b == quote.byte && (!quote.triple || bytes[i..].starts_with(&[b, b, b])) {
                    i += if quote.triple { 3 } else { 1 };
                    self.quote = None;
                    continue;
                }
                i += 1;
                continue;
            }
            match b {
                b'#' => break,
                b'"' | b'\'' => {
                    let triple = bytes[i..].starts_with(&[b, b, b]);
                    self.quote = Some(Quote { byte: b, triple });
                    i += if triple { 3 } else { 1 };
                    continue;
                }
                b'(' | b'[' | b'{' => self.depth += 1,
                b')' | b']' | b'}' => self.depth = self.depth.saturating_sub(1),
                b'\\' if matches!(bytes.get(i + 1), None | Some(b'\n' | b'\r')) => self.continued = true,
                _ => {}
            }
            i += 1;
        }
        // A plain string cannot pass the end of its line, unless the line was continued.
        if self.quote.as_ref().is_some_and(|q| !q.triple) && !line.trim_end_matches(['\n', '\r']).ends_with('\\') {
            self.quote = None;
        }
    }
}
