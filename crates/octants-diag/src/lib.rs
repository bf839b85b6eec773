//! Source positions and diagnostics: what is wrong, where in the user's own file, and what to do instead.
//!
//! A [`Diagnostic`] is a user's mistake. It never represents a broken invariant of the compiler; those are panics whose
//! message says "compiler bug".

use std::fmt::Write as _;
use std::sync::Arc;

/// The full text of a file with kernels, and its path as the user knows it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct SourceFile {
    /// Path as Python reports it (`co_filename`).
    pub path: String,
    /// The text of the function, not dedented: columns are the user's columns.
    pub text: String,
    /// The line number in the user's file of the first line of `text` (1-based).
    pub first_line: u32,
    /// The file is one of the package's own: errors show the user's lines first.
    pub is_library: bool,
}

/// Half-open byte range within one [`SourceFile`]'s text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Span {
    /// Index of the file in the compilation's [`Sources`].
    pub file: u32,
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
    /// For code of a function that is inlined in the kernel: one more than the first byte of the call in the kernel's
    /// text, which is file 0. Otherwise 0.
    pub call: u32,
}

impl Span {
    /// The same place in code that a call brings in.
    pub fn inlined_at(self, call: Span) -> Span {
        match call {
            Span { call: outer, .. } if outer != 0 => Span { call: outer, ..self },
            Span { file: 0, start, end, .. } if end > 0 => Span { call: start + 1, ..self },
            // The call is in another function, or has no place.
            _ => self,
        }
    }

    /// The call in the kernel that brings in this code.
    pub fn outermost_call(self) -> Option<Span> {
        let start = self.call.checked_sub(1)?;
        Some(Span { file: 0, start, end: start, call: 0 })
    }
}

/// All the files of one compilation; [`Span::file`] indexes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    files: Vec<Arc<SourceFile>>,
}

/// A resolved position: 1-based line and column in the user's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// 1-based line.
    pub line: u32,
    /// 1-based column, in characters.
    pub column: u32,
}

impl Sources {
    /// Adds a file and returns its index; the same file is added once.
    pub fn add(&mut self, file: Arc<SourceFile>) -> u32 {
        if let Some(i) = self.files.iter().position(|f| Arc::ptr_eq(f, &file) || **f == *file) {
            return i as u32;
        }
        self.files.push(file);
        (self.files.len() - 1) as u32
    }

    /// The file of an index given out by [`Sources::add`].
    pub fn get(&self, file: u32) -> Option<&Arc<SourceFile>> {
        self.files.get(file as usize)
    }

    /// The user's line and column of a span's first character.
    pub fn position(&self, span: Span) -> Option<Position> {
        let file = self.get(span.file)?;
        let start = (span.start as usize).min(file.text.len());
        let before = &file.text[..start];
        let line = before.matches('\n').count() as u32 + file.first_line;
        let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) as u32 + 1;
        Some(Position { line, column })
    }

    /// `path:line` of a span, for run-time messages.
    pub fn location(&self, span: Span) -> String {
        match (self.get(span.file), self.position(span)) {
            (Some(file), Some(p)) => format!("{}:{}", file.path, p.line),
            _ => String::from("<unknown>"),
        }
    }

    /// As [`Sources::location`], in the user's code: for inlined code of the package's own functions, that of the
    /// kernel's call.
    pub fn users_location(&self, span: Span) -> String {
        let is_library = self.get(span.file).is_some_and(|file| file.is_library);
        self.location(span.outermost_call().filter(|_| is_library).unwrap_or(span))
    }

    /// As [`Sources::location`]; for inlined code, also the location of the kernel's call.
    pub fn location_with_call(&self, span: Span) -> String {
        let line = self.location(span);
        match span.outermost_call() {
            Some(call) => format!("{line}, called at {}", self.location(call)),
            None => line,
        }
    }
}

/// The class of a user's mistake; the Python package maps each to one exception type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// The statement or expression is not part of the language.
    Syntax,
    /// An operand, argument or assignment has the wrong type.
    Type,
    /// A name is not defined.
    Name,
    /// Wrong number of indices, or an index that is known to be outside.
    Index,
    /// An object known at compile time lacks an attribute.
    Attribute,
    /// A value of the right type that is not allowed here.
    Value,
    /// The kernel has no derivative that the compiler could make.
    Derivative,
    /// Everything else that stops a compilation.
    Compilation,
    /// A warning about a deprecated feature.
    Deprecated,
    /// A warning: a value is stored in a type that cannot hold all values of its own type.
    Precision,
    /// A Python exception raised by compile-time code; the host keeps the exception object.
    Host,
}

/// A user's mistake, ready to be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// The class of the mistake.
    pub code: Code,
    /// One sentence that describes the mistake.
    pub message: String,
    /// The offending expression, if known.
    pub span: Option<Span>,
    /// What to write instead.
    pub hint: Option<String>,
    /// The function at the root of the call chain.
    pub root: String,
    /// The call chain that led here, innermost first: (function called, call site).
    pub trace: Vec<(String, Span)>,
    /// Handle of a host (Python) exception that caused this, owned by the outside world.
    pub cause: Option<u32>,
}

/// The result of anything that can meet a user's mistake.
pub type Result<T> = std::result::Result<T, Box<Diagnostic>>;

impl Diagnostic {
    /// A diagnostic at `span`.
    pub fn new(code: Code, span: Span, message: impl Into<String>) -> Box<Self> {
        Box::new(Diagnostic {
            code,
            message: message.into(),
            span: Some(span),
            hint: None,
            root: String::new(),
            trace: Vec::new(),
            cause: None,
        })
    }

    /// Adds a hint.
    pub fn with_hint(mut self: Box<Self>, hint: impl Into<String>) -> Box<Self> {
        self.hint = Some(hint.into());
        self
    }

    /// The text shown to the user, like a Python traceback: each call with its line and the expression underlined,
    /// outermost first, then the message, then the hint. If the calls end in the package's own functions, the user's
    /// lines are shown, and the last line of the package as a note.
    pub fn render(&self, sources: &Sources) -> String {
        let mut out = String::new();
        let frames = self.frames();
        let is_users = |(span, _): &(Span, &str)| sources.get(span.file).is_some_and(|file| !file.is_library);
        let shown = frames.iter().rposition(is_users).map_or(frames.len(), |last| last + 1);
        for (span, function) in &frames[..shown] {
            render_span(&mut out, sources, *span, function);
        }
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&self.message);
        if let Some(hint) = &self.hint {
            let _ = write!(out, "\n  help: {hint}");
        }
        if let Some((span, function)) = frames[shown..].last() {
            render_note(&mut out, sources, *span, function);
        }
        out
    }

    /// The places on the way to the mistake, outermost first, with the function that each is in.
    fn frames(&self) -> Vec<(Span, &str)> {
        let mut frames = Vec::new();
        let mut function = self.root.as_str();
        for (name, site) in self.trace.iter().rev() {
            frames.push((*site, function));
            function = name;
        }
        frames.extend(self.span.map(|span| (span, function)));
        // Passes know the kernel's call only.
        let first = frames.first().map(|(span, _)| *span);
        if let Some(call) = first.filter(|span| span.file != 0).and_then(Span::outermost_call) {
            frames.insert(0, (call, ""));
        }
        frames
    }
}

/// Where in the package's own code a mistake was noticed.
fn render_note(out: &mut String, sources: &Sources, span: Span, function: &str) {
    let (Some(file), Some(pos)) = (sources.get(span.file), sources.position(span)) else {
        return;
    };
    let name = if function.is_empty() { String::new() } else { format!(" by `{function}`") };
    let line = file.text.split('\n').nth((pos.line - file.first_line) as usize).unwrap_or_default().trim();
    let _ = write!(out, "\n  note: reported{name}, at {}:{}\n    {line}", file.path, pos.line);
}

fn render_span(out: &mut String, sources: &Sources, span: Span, function: &str) {
    let (Some(file), Some(pos)) = (sources.get(span.file), sources.position(span)) else {
        return;
    };
    let _ = write!(out, "\nFile \"{}\", line {}", file.path, pos.line);
    if !function.is_empty() {
        let _ = write!(out, ", in {function}");
    }
    out.push(':');
    let Some(line) = file.text.split('\n').nth((pos.line - file.first_line) as usize) else {
        return;
    };
    let column = pos.column as usize - 1;
    let start = (span.start as usize).min(file.text.len());
    let end = (span.end as usize).clamp(start, file.text.len());
    let spanned = file.text.get(start..end).unwrap_or_default().split('\n').next().unwrap_or_default();
    let mut shown = Shown::default();
    for (i, c) in line.chars().enumerate() {
        shown.push(c, i >= column && i < column + spanned.chars().count().max(1));
    }
    if spanned.is_empty() && column >= line.chars().count() {
        shown.push(' ', true);
    }
    shown.write(out);
}

/// A line of source as it is shown, and which of its columns are underlined.
#[derive(Default)]
struct Shown {
    columns: Vec<(char, bool)>,
}

/// Columns to the next stop of a tab.
const TAB: usize = 4;

/// Longer lines are broken, so that the underline stays under what it marks.
const WIDTH: usize = 80;

impl Shown {
    fn push(&mut self, c: char, marked: bool) {
        if c != '\t' {
            return self.columns.push((c, marked));
        }
        let spaces = TAB - self.columns.len() % TAB;
        self.columns.extend(std::iter::repeat_n((' ', marked), spaces));
    }

    fn write(&self, out: &mut String) {
        for piece in self.columns.chunks(WIDTH) {
            let text: String = piece.iter().map(|(c, _)| c).collect();
            let _ = write!(out, "\n{}", text.trim_end());
            if let Some(last) = piece.iter().rposition(|(_, marked)| *marked) {
                let marks: String = piece[..=last].iter().map(|(_, marked)| if *marked { '^' } else { ' ' }).collect();
                let _ = write!(out, "\n{marks}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expression_in_the_users_line_is_underlined() {
        let mut sources = Sources::default();
        let file = sources.add(Arc::new(SourceFile {
            path: "sim.py".into(),
            text: "def k():\n    x = a + b\n".into(),
            first_line: 10,
            is_library: false,
        }));
        let span = Span { file, start: 17, end: 22, call: 0 };
        let mut d = Diagnostic::new(Code::Name, span, "`a` is not defined").with_hint("define it");
        d.root = "k".into();
        assert_eq!(
            d.render(&sources),
            "\nFile \"sim.py\", line 11, in k:\n    x = a + b\n        ^^^^^\n`a` is not defined\n  help: define it"
        );
    }

    fn shown(text: &str, from: &str, to: &str) -> String {
        let mut sources = Sources::default();
        let file = sources.add(Arc::new(SourceFile {
            path: "a.py".into(),
            text: text.into(),
            first_line: 1,
            is_library: false,
        }));
        let start = text.find(from).unwrap() as u32;
        let end = text.rfind(to).unwrap() + to.len();
        let d = Diagnostic::new(Code::Name, Span { file, start, end: end as u32, call: 0 }, "wrong");
        d.render(&sources).replacen("\nFile \"a.py\", line 1:", "", 1)
    }

    #[test]
    fn the_underline_keeps_the_tabs_of_the_line() {
        assert_eq!(shown("\ta(1,\tb)", "b", "b"), "\n    a(1,    b)\n            ^\nwrong");
    }

    #[test]
    fn long_lines_wrap_with_their_underline() {
        let text = format!("x = {} + y", "a".repeat(100));
        let (first, rest) = text.split_at(80);
        let want = format!("\n{first}\n    {}\n{rest}\n{}\nwrong", "^".repeat(76), "^".repeat(24));
        assert_eq!(shown(&text, "a", "a"), want);
        let want = format!("\n{first}\n{rest}\n{}^\nwrong", " ".repeat(27));
        assert_eq!(shown(&text, "y", "y"), want);
    }

    #[test]
    fn the_users_call_comes_before_a_line_of_the_package() {
        let mut sources = Sources::default();
        let mut add = |path: &str, text: &str, is_library| {
            sources.add(Arc::new(SourceFile { path: path.into(), text: text.into(), first_line: 1, is_library }))
        };
        let user = add("sim.py", "x = solve(a)", false);
        let library = add("linalg.py", "def solve(a):\n    check(a)\n    use(a)", true);
        let callback = add("user.py", "return y", false);
        let at = |file, start, end| Span { file, start, end, call: 0 };
        let mut found = Diagnostic::new(Code::Value, at(library, 18, 26), "not square").with_hint("transpose");
        found.root = "k".into();
        found.trace.push(("solve".into(), at(user, 4, 12)));
        let before = "\nFile \"sim.py\", line 1, in k:\nx = solve(a)\n    ^^^^^^^^";
        let note = "  note: reported by `solve`, at linalg.py:2\n    check(a)";
        assert_eq!(found.render(&sources), format!("{before}\nnot square\n  help: transpose\n{note}"));
        // A mistake in the user's own function, which the package calls.
        found.trace.insert(0, ("load".into(), at(library, 31, 37)));
        found.span = Some(at(callback, 7, 8));
        let shown = found.render(&sources);
        let lines: Vec<&str> = shown.lines().filter(|line| line.starts_with("File")).collect();
        assert_eq!(
            lines,
            [
                "File \"sim.py\", line 1, in k:",
                "File \"linalg.py\", line 3, in solve:",
                "File \"user.py\", line 1, in load:",
            ]
        );
        // What a pass finds in inlined code.
        let inlined = at(library, 18, 26).inlined_at(at(user, 4, 12));
        let found = Diagnostic::new(Code::Value, inlined, "not square");
        let note = "  note: reported, at linalg.py:2\n    check(a)";
        let call = "\nFile \"sim.py\", line 1:\nx = solve(a)\n    ^";
        assert_eq!(found.render(&sources), format!("{call}\nnot square\n{note}"));
    }
}
