//! [`Parser`]: the token stream, and the primitives that all parts of the parser use.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::lex::{Token, lex};
use crate::op::ValueId;
use crate::types::StructType;

/// A parse error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// 1-based.
    pub line: usize,
    /// The error message.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for ParseError {}

pub(crate) type Parsed<T> = Result<T, ParseError>;

/// A position in the text, and the declarations before it.
pub(crate) struct Parser {
    pub(crate) tokens: Vec<(Token, usize)>,
    pub(crate) at: usize,
    pub(crate) structs: HashMap<String, Arc<StructType>>,
}

impl Parser {
    pub(crate) fn new(text: &str) -> Parsed<Parser> {
        let tokens = lex(text).map_err(|(line, message)| ParseError { line, message })?;
        Ok(Parser { tokens, at: 0, structs: HashMap::new() })
    }

    pub(crate) fn peek(&self) -> &Token {
        &self.tokens[self.at.min(self.tokens.len() - 1)].0
    }

    pub(crate) fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    pub(crate) fn fail<T>(&self, message: impl Into<String>) -> Parsed<T> {
        let line = self.tokens[self.at.min(self.tokens.len() - 1)].1;
        Err(ParseError { line, message: message.into() })
    }

    pub(crate) fn expected<T>(&self, what: &str) -> Parsed<T> {
        self.fail(format!("expected {what}, found {:?}", self.peek()))
    }

    pub(crate) fn eat(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Token::Sign(s) if *s == sign);
        self.at += usize::from(found);
        found
    }

    pub(crate) fn sign(&mut self, sign: &str) -> Parsed<()> {
        if self.eat(sign) { Ok(()) } else { self.expected(&format!("`{sign}`")) }
    }

    pub(crate) fn eat_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Token::Word(w) if w == word);
        self.at += usize::from(found);
        found
    }

    pub(crate) fn word(&mut self, word: &str) -> Parsed<()> {
        if self.eat_word(word) { Ok(()) } else { self.expected(&format!("`{word}`")) }
    }

    pub(crate) fn any_word(&mut self) -> Parsed<String> {
        match self.peek().clone() {
            Token::Word(w) => {
                self.at += 1;
                Ok(w)
            }
            _ => self.expected("a word"),
        }
    }

    pub(crate) fn quoted(&mut self) -> Parsed<String> {
        match self.peek().clone() {
            Token::Quoted(t) => {
                self.at += 1;
                Ok(t)
            }
            _ => self.expected("a text in quotes"),
        }
    }

    pub(crate) fn name(&mut self) -> Parsed<String> {
        match self.peek() {
            Token::Quoted(_) => self.quoted(),
            Token::Float(f) => {
                // Plain names that read as numbers elsewhere.
                let name = if f.is_nan() { "NaN" } else { "inf" };
                self.at += 1;
                Ok(name.to_string())
            }
            _ => self.any_word(),
        }
    }

    pub(crate) fn int<T: TryFrom<i64>>(&mut self) -> Parsed<T> {
        match self.peek() {
            Token::Int(i) => match T::try_from(*i) {
                Ok(value) => {
                    self.at += 1;
                    Ok(value)
                }
                Err(_) => self.expected("a number that fits"),
            },
            _ => self.expected("a number"),
        }
    }

    pub(crate) fn id(&mut self, sign: char) -> Parsed<u32> {
        match self.peek() {
            Token::Id(s, n) if *s == sign => {
                let n = *n;
                self.at += 1;
                Ok(n)
            }
            _ => self.expected(&format!("`{sign}` and a number")),
        }
    }

    pub(crate) fn value(&mut self) -> Parsed<ValueId> {
        self.id('%').map(ValueId)
    }

    /// `word7`: a word that ends in a number.
    pub(crate) fn numbered(&mut self, word: &str) -> Option<u32> {
        let Token::Word(w) = self.peek() else { return None };
        let n = w.strip_prefix(word)?.parse().ok()?;
        self.at += 1;
        Some(n)
    }

    /// Items with commas between them, up to the closing sign, which is taken too.
    pub(crate) fn list<T>(&mut self, close: &str, mut item: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut items = Vec::new();
        while !self.eat(close) {
            items.push(item(self)?);
            if !self.eat(",") {
                self.sign(close)?;
                break;
            }
        }
        Ok(items)
    }

    pub(crate) fn end(&self) -> Parsed<()> {
        if *self.peek() == Token::End { Ok(()) } else { self.expected("the end of the text") }
    }
}
