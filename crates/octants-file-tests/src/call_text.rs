//! The text of calls in a case's header: arguments and expected results.
//!
//! A value is a number, `true` or `false`, or a list: `[1, 2.5]`, `[[1, 2], [3, 4]]`, with ranges of integers
//! (`[0..4]` is `[0, 1, 2, 3]`) and repetitions (`[0.0; 8]`).

use octants_interpreter::Leaf;

/// A number or a list.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Literal {
    Number(Leaf),
    List(Vec<Literal>),
}

impl Literal {
    /// The numbers, in order.
    pub fn leaves(&self) -> Vec<Leaf> {
        match self {
            Literal::Number(leaf) => vec![*leaf],
            Literal::List(items) => items.iter().flat_map(Literal::leaves).collect(),
        }
    }

    /// The extents of the outer lists.
    pub fn shape(&self, axes: usize) -> Vec<u64> {
        let mut shape = Vec::new();
        let mut at = Some(self);
        for _ in 0..axes {
            let items: &[Literal] = match at {
                Some(Literal::List(items)) => items,
                _ => &[],
            };
            shape.push(items.len() as u64);
            at = items.first();
        }
        shape
    }
}

/// An expected result of a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expected {
    /// The contents of a buffer (or the returned value, without a name), exactly or approximately.
    Holds { buffer: Option<String>, value: Literal, exact: bool },
    /// An assertion fails with a message that contains this.
    Fails(String),
    /// The interpreter reports an error that contains this.
    Error(String),
    /// Everything that is printed, line by line.
    Prints(Vec<String>),
}

/// Arguments and results.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    /// Values of parameters and contents of buffers, by name.
    pub arguments: Vec<(String, Literal)>,
    pub results: Vec<Expected>,
}

/// Reads `(name = value, ..) -> result, ..`.
pub(crate) fn parse_call(text: &str) -> Result<Call, String> {
    let mut p = Reader { rest: text };
    p.sign("(")?;
    let mut arguments = Vec::new();
    while !p.eat(")") {
        let name = p.word()?;
        p.sign("=")?;
        arguments.push((name, p.literal()?));
        if !p.eat(",") && !p.rest.trim_start().starts_with(')') {
            return Err(format!("expected `,` or `)` before `{}`", p.rest));
        }
    }
    p.sign("->")?;
    let mut results = vec![p.result()?];
    while p.eat(",") {
        results.push(p.result()?);
    }
    if p.rest.trim().is_empty() { Ok(Call { arguments, results }) } else { Err(format!("`{}` is left", p.rest)) }
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn eat(&mut self, sign: &str) -> bool {
        let after = self.rest.trim_start().strip_prefix(sign);
        if let Some(after) = after {
            self.rest = after;
        }
        after.is_some()
    }

    fn sign(&mut self, sign: &str) -> Result<(), String> {
        if self.eat(sign) { Ok(()) } else { Err(format!("expected `{sign}` before `{}`", self.rest)) }
    }

    fn take(&mut self, accept: impl Fn(char) -> bool) -> String {
        let rest = self.rest.trim_start();
        let (taken, rest) = rest.split_at(rest.find(|c| !accept(c)).unwrap_or(rest.len()));
        self.rest = rest;
        taken.to_string()
    }

    /// A name. It is quoted if it has characters other than letters, digits, `_` and `.`.
    fn word(&mut self) -> Result<String, String> {
        if self.rest.trim_start().starts_with('"') {
            return self.quoted();
        }
        let word = self.take(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
        if word.is_empty() { Err(format!("expected a name before `{}`", self.rest)) } else { Ok(word) }
    }

    fn quoted(&mut self) -> Result<String, String> {
        self.sign("\"")?;
        let (text, rest) = self.rest.split_once('"').ok_or("a quote that is not closed")?;
        self.rest = rest;
        Ok(text.to_string())
    }

    fn result(&mut self) -> Result<Expected, String> {
        let word = self.word()?;
        match word.as_str() {
            "fails" => Ok(Expected::Fails(self.quoted()?)),
            "error" => Ok(Expected::Error(self.quoted()?)),
            "prints" => {
                let mut lines = vec![self.quoted()?];
                while self.rest.trim_start().starts_with('"') {
                    lines.push(self.quoted()?);
                }
                Ok(Expected::Prints(lines))
            }
            "return" => {
                let exact = !self.eat("~");
                Ok(Expected::Holds { buffer: None, value: self.literal()?, exact })
            }
            _ => {
                let exact = !self.eat("~");
                if exact {
                    self.sign("=")?;
                }
                Ok(Expected::Holds { buffer: Some(word), value: self.literal()?, exact })
            }
        }
    }

    fn literal(&mut self) -> Result<Literal, String> {
        if !self.eat("[") {
            return self.number().map(Literal::Number);
        }
        let mut items = Vec::new();
        while !self.eat("]") {
            let item = self.literal()?;
            match item {
                Literal::Number(Leaf::Int(first)) if self.eat("..") => {
                    let Leaf::Int(end) = self.number()? else { return Err("a range is of integers".into()) };
                    items.extend((first..end).map(|i| Literal::Number(Leaf::Int(i))));
                }
                item if self.eat(";") => {
                    let Leaf::Int(n) = self.number()? else { return Err("a number of items is an integer".into()) };
                    items.extend((0..n).map(|_| item.clone()));
                }
                item => items.push(item),
            }
            if !self.eat(",") && !self.rest.trim_start().starts_with(']') {
                return Err(format!("expected `,` or `]` before `{}`", self.rest));
            }
        }
        Ok(Literal::List(items))
    }

    fn number(&mut self) -> Result<Leaf, String> {
        let rest = self.rest.trim_start();
        // A range of numbers has two dots, a float has one.
        let end = rest.find("..").unwrap_or(rest.len());
        let end = rest[..end].find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c))).unwrap_or(end);
        let (text, rest) = rest.split_at(end);
        let leaf = match text {
            "true" => Leaf::Int(1),
            "false" => Leaf::Int(0),
            _ => match (text.parse(), text.parse()) {
                (Ok(i), _) => Leaf::Int(i),
                (_, Ok(x)) => Leaf::Float(x),
                _ => return Err(format!("`{text}` is not a number")),
            },
        };
        self.rest = rest;
        Ok(leaf)
    }
}
