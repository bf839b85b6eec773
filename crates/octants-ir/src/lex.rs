//! Tokens of the IR's text. `;` starts a comment that ends with the line.

/// A piece of the text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Token {
    /// A bare word: a keyword, an operation, a type or a plain name.
    Word(String),
    /// A name or text in quotes.
    Quoted(String),
    /// `!label`.
    Label(String),
    /// `%3`, `$0`, `@1`, `^2`: the sign and the number.
    Id(char, u32),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// Punctuation, `->` and `..` included.
    Sign(&'static str),
    /// The end of the text.
    End,
}

/// The tokens of a text with their 1-based lines, or the line and text of an invalid token.
pub(crate) fn lex(text: &str) -> Result<Vec<(Token, usize)>, (usize, String)> {
    let mut tokens = Vec::new();
    let mut line = 1;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let (token, length) = match c {
            '\n' => {
                line += 1;
                rest = &rest[1..];
                continue;
            }
            c if c.is_whitespace() => {
                rest = &rest[c.len_utf8()..];
                continue;
            }
            ';' => {
                rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
                continue;
            }
            '"' => {
                let start = line;
                let (text, length) =
                    quoted(rest, &mut line).ok_or((start, "a quote that is not closed".to_string()))?;
                (Token::Quoted(text), length)
            }
            '%' | '$' | '@' | '^' => {
                let digits = span(&rest[1..], |c| c.is_ascii_digit());
                let number = rest[1..1 + digits].parse().map_err(|_| (line, format!("`{c}` without a number")))?;
                (Token::Id(c, number), 1 + digits)
            }
            '!' => {
                let n = span(&rest[1..], is_label);
                (Token::Label(rest[1..1 + n].to_string()), 1 + n)
            }
            c if c.is_ascii_alphabetic() || c == '_' => {
                let n = span(rest, is_word);
                let word = &rest[..n];
                let token = match word {
                    "inf" => Token::Float(f64::INFINITY),
                    "NaN" => Token::Float(f64::NAN),
                    _ => Token::Word(word.to_string()),
                };
                (token, n)
            }
            c if c.is_ascii_digit() || (c == '-' && !rest.starts_with("->")) => number(rest, line)?,
            _ => sign(rest).ok_or((line, format!("`{c}` has no meaning here")))?,
        };
        tokens.push((token, line));
        rest = &rest[length..];
    }
    tokens.push((Token::End, line));
    Ok(tokens)
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn is_label(c: char) -> bool {
    is_word(c) || c == '.'
}

fn span(text: &str, accept: impl Fn(char) -> bool) -> usize {
    text.find(|c| !accept(c)).unwrap_or(text.len())
}

fn quoted(text: &str, line: &mut usize) -> Option<(String, usize)> {
    let mut out = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((i, c)) = chars.next() {
        match c {
            '"' => return Some((out, i + 1)),
            '\\' => match chars.next()?.1 {
                'n' => out.push('\n'),
                c => out.push(c),
            },
            '\n' => {
                *line += 1;
                out.push(c);
            }
            c => out.push(c),
        }
    }
    None
}

fn number(text: &str, line: usize) -> Result<(Token, usize), (usize, String)> {
    if text.starts_with("-inf") {
        return Ok((Token::Float(f64::NEG_INFINITY), 4));
    }
    let bytes = text.as_bytes();
    let mut n = usize::from(bytes[0] == b'-');
    let mut float = false;
    while n < bytes.len() {
        match bytes[n] {
            b'0'..=b'9' => {}
            // A range of numbers has two dots; a float has one.
            b'.' if bytes.get(n + 1) != Some(&b'.') => float = true,
            b'e' => float = true,
            b'-' if bytes[n - 1] == b'e' => {}
            _ => break,
        }
        n += 1;
    }
    let digits = &text[..n];
    let bad = |_| (line, format!("`{digits}` is not a number"));
    if float {
        digits.parse().map(|x| (Token::Float(x), n)).map_err(|_| bad(()))
    } else {
        // Extents and strides are unsigned; an integer constant is signed.
        digits.parse().map(|x| (Token::Int(x), n)).map_err(|_| bad(()))
    }
}

fn sign(text: &str) -> Option<(Token, usize)> {
    const SIGNS: [&str; 13] = ["->", "..", "{", "}", "(", ")", "[", "]", "<", ">", ",", ":", "="];
    if text.starts_with('*') {
        return Some((Token::Sign("*"), 1));
    }
    SIGNS.into_iter().find(|s| text.starts_with(s)).map(|s| (Token::Sign(s), s.len()))
}
