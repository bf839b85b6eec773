//! Renders the text of a site from the values that compiled code passes.
//!
//! Scalars without a format print as with C's `printf`: `%d`, `%u`, `%f`, and `%.12f` for `f64`; `u1` as 0 or 1. In the
//! message of an assertion a float prints as in Python: the fewest digits that distinguish it from other floats of its
//! type. Tensors print as nested lists. A format is C's (`08x`, `.3e`, with length modifiers ignored) or Python's
//! (`>10`, `*^8.2f`, `+d`, `,`). A format that cannot be parsed is ignored. Outside of assertions the front end has
//! rejected it before.

use std::fmt::Write;

use half::f16;
use octants_artifact::{ScalarKind, Site, SiteKind, SitePart};

/// Appends the text of `site`. `values` has a slot for each scalar; missing ones print as zero.
pub fn render_site(out: &mut String, site: &Site, values: &[u64]) {
    let mut values = values.iter().copied();
    let shortest = site.kind == SiteKind::Assert;
    for part in &site.parts {
        match part {
            SitePart::Text(text) => out.push_str(text),
            SitePart::Choice(texts) => {
                let number = values.next().unwrap_or(0) as u32;
                out.push_str(texts.get(number as usize).map_or("", String::as_str));
            }
            SitePart::Value { kind, shape, format } => {
                let format = Format { shortest, ..format.as_deref().and_then(Format::parse).unwrap_or_default() };
                render_value(out, *kind, shape, &format, &mut values);
            }
        }
    }
}

fn render_value(
    out: &mut String,
    kind: ScalarKind,
    shape: &[u32],
    format: &Format,
    values: &mut impl Iterator<Item = u64>,
) {
    let Some((&n, inner)) = shape.split_first() else {
        format.render(out, Number::from_slot(kind, values.next().unwrap_or(0)));
        return;
    };
    out.push('[');
    for i in 0..n {
        if i > 0 {
            out.push_str(", ");
        }
        render_value(out, kind, inner, format, values);
    }
    out.push(']');
}

/// The type of a float before it was widened.
#[derive(Debug, Clone, Copy, PartialEq)]
enum FloatType {
    /// An f16 too, which prints as the f32 of its value.
    F32,
    F64,
}

impl FloatType {
    /// The default number of digits after the point.
    fn places(self) -> usize {
        if self == FloatType::F64 { 12 } else { 6 }
    }

    /// Python's text of a value without its sign: the fewest digits that distinguish it from others of its type.
    fn shortest(self, value: f64) -> String {
        let text = match self {
            FloatType::F32 => format!("{:?}", value as f32),
            FloatType::F64 => format!("{value:?}"),
        };
        match text.split_once('e') {
            Some((digits, power)) => match power.strip_prefix('-') {
                Some(power) => format!("{digits}e-{power:0>2}"),
                None => format!("{digits}e+{power:0>2}"),
            },
            None => text.to_lowercase(),
        }
    }
}

/// A scalar, widened.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Number {
    Signed(i64),
    Unsigned(u64),
    /// With its type.
    Float(f64, FloatType),
}

impl Number {
    /// The slot holds the value in its low bytes.
    fn from_slot(kind: ScalarKind, slot: u64) -> Number {
        match kind {
            ScalarKind::U1 => Number::Unsigned(slot & 1),
            ScalarKind::I8 => Number::Signed(i64::from(slot as i8)),
            ScalarKind::I16 => Number::Signed(i64::from(slot as i16)),
            ScalarKind::I32 => Number::Signed(i64::from(slot as i32)),
            ScalarKind::I64 => Number::Signed(slot as i64),
            ScalarKind::U8 => Number::Unsigned(slot & 0xff),
            ScalarKind::U16 => Number::Unsigned(slot & 0xffff),
            ScalarKind::U32 => Number::Unsigned(slot & 0xffff_ffff),
            ScalarKind::U64 => Number::Unsigned(slot),
            ScalarKind::F16 => Number::Float(f16::from_bits(slot as u16).to_f64(), FloatType::F32),
            ScalarKind::F32 => Number::Float(f64::from(f32::from_bits(slot as u32)), FloatType::F32),
            ScalarKind::F64 => Number::Float(f64::from_bits(slot), FloatType::F64),
        }
    }
}

/// A format, read.
#[derive(Debug, Clone, Default, PartialEq)]
struct Format {
    fill: Option<char>,
    align: Option<char>,
    plus: bool,
    space: bool,
    alternate: bool,
    zero: bool,
    width: usize,
    grouping: Option<char>,
    precision: Option<usize>,
    conversion: Option<char>,
    /// Floats get the fewest digits unless the format says otherwise.
    shortest: bool,
}

/// Widths and precisions beyond this are cut.
const MOST_DIGITS: usize = 4096;

impl Format {
    fn parse(text: &str) -> Option<Format> {
        let mut f = Format::default();
        let mut chars: Vec<char> = text.trim_start_matches('%').chars().collect();
        chars.reverse(); // The end is the front from here on.
        let is_align = |c: &char| matches!(c, '<' | '>' | '^' | '=');
        if chars.len() >= 2 && is_align(&chars[chars.len() - 2]) {
            f.fill = chars.pop();
            f.align = chars.pop();
        } else if chars.last().is_some_and(is_align) {
            f.align = chars.pop();
        }
        while let Some(c) = chars.pop_if(|c| matches!(c, '+' | '-' | ' ' | '#' | '0')) {
            match c {
                '+' => f.plus = true,
                '-' => f.align = f.align.or(Some('<')),
                ' ' => f.space = true,
                '#' => f.alternate = true,
                _ => f.zero = true,
            }
        }
        f.width = number(&mut chars).unwrap_or(0);
        f.grouping = chars.pop_if(|c| matches!(c, ',' | '_'));
        if chars.pop_if(|c| *c == '.').is_some() {
            f.precision = Some(number(&mut chars).unwrap_or(0));
        }
        while chars.pop_if(|c| matches!(c, 'l' | 'h' | 'j' | 'z' | 't' | 'L' | 'q')).is_some() {}
        f.conversion = chars.pop();
        let known = f.conversion.is_none_or(|c| "diuoxXbcfFeEgGaA%n".contains(c));
        (known && chars.is_empty()).then_some(f)
    }

    fn render(&self, out: &mut String, number: Number) {
        let (negative, prefix, digits) = self.digits(number);
        let sign = match (negative, self.plus, self.space) {
            (true, ..) => "-",
            (_, true, _) => "+",
            (_, _, true) => " ",
            _ => "",
        };
        let length = sign.len() + prefix.len() + digits.chars().count();
        let pad = self.width.saturating_sub(length);
        // A precision of an integer and a zero flag: C lets the precision win.
        let whole = !matches!(number, Number::Float(..)) && !self.is_float_conversion();
        let zero = self.zero && self.align.is_none() && !(whole && self.precision.is_some());
        let fill = self.fill.unwrap_or(' ');
        let (before, inside, after) = match self.align {
            Some('<') => (0, 0, pad),
            Some('^') => (pad / 2, 0, pad - pad / 2),
            Some('=') => (0, pad, 0),
            _ if zero => (0, pad, 0),
            _ => (pad, 0, 0),
        };
        out.extend(std::iter::repeat_n(fill, before));
        out.push_str(sign);
        out.push_str(prefix);
        out.extend(std::iter::repeat_n(if zero { '0' } else { fill }, inside));
        out.push_str(&digits);
        out.extend(std::iter::repeat_n(fill, after));
    }

    fn is_float_conversion(&self) -> bool {
        self.conversion.is_some_and(|c| "fFeEgGaA%".contains(c))
    }

    /// Sign, prefix and digits.
    fn digits(&self, number: Number) -> (bool, &'static str, String) {
        match number {
            Number::Float(value, ty) => {
                // An integer conversion of a float is ignored.
                let conversion = self.conversion.filter(|_| self.is_float_conversion());
                let digits = match conversion {
                    None if self.shortest && self.precision.is_none() && self.grouping.is_none() => {
                        ty.shortest(value.abs())
                    }
                    _ => self.float(value.abs(), ty.places(), conversion.unwrap_or('f')),
                };
                (value.is_sign_negative(), "", digits)
            }
            Number::Signed(v) if self.is_float_conversion() => {
                (v < 0, "", self.float((v as f64).abs(), 6, self.kind()))
            }
            Number::Unsigned(value) if self.is_float_conversion() => {
                (false, "", self.float(value as f64, 6, self.kind()))
            }
            Number::Signed(v) => {
                let (prefix, digits) = self.whole(v.unsigned_abs());
                (v < 0, prefix, digits)
            }
            Number::Unsigned(value) => {
                let (prefix, digits) = self.whole(value);
                (false, prefix, digits)
            }
        }
    }

    fn kind(&self) -> char {
        self.conversion.unwrap_or('f')
    }

    fn whole(&self, value: u64) -> (&'static str, String) {
        let (prefix, mut digits) = match self.conversion {
            Some('x') => ("0x", format!("{value:x}")),
            Some('X') => ("0X", format!("{value:X}")),
            Some('o') => ("0", format!("{value:o}")),
            Some('b') => ("0b", format!("{value:b}")),
            _ => ("", value.to_string()),
        };
        if let Some(least) = self.precision {
            let missing = least.saturating_sub(digits.len());
            digits.insert_str(0, &"0".repeat(missing));
        }
        if let Some(mark) = self.grouping {
            group_digits(&mut digits, mark);
        }
        (if self.alternate && value != 0 { prefix } else { "" }, digits)
    }

    /// The digits of a value without its sign.
    fn float(&self, value: f64, places: usize, conversion: char) -> String {
        let (value, conversion, percent) =
            if conversion == '%' { (value * 100.0, 'f', true) } else { (value, conversion, false) };
        let mut format = [0u8; 8];
        let mut spec = String::from("%");
        if self.alternate && self.precision == Some(0) {
            spec.push('#');
        }
        // Hexadecimal floats print all their digits by default.
        let exact = matches!(conversion, 'a' | 'A') && self.precision.is_none();
        spec.push_str(if exact { "" } else { ".*" });
        spec.push(conversion);
        format[..spec.len()].copy_from_slice(spec.as_bytes());
        let default = if matches!(conversion, 'f' | 'F') { places } else { 6 };
        let mut digits = print_float(&format, exact, self.precision.unwrap_or(default), value);
        if let Some(mark) = self.grouping {
            let whole = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            let mut head = digits[..whole].to_string();
            group_digits(&mut head, mark);
            digits.replace_range(..whole, &head);
        }
        if percent {
            digits.push('%');
        }
        digits
    }
}

/// C's text of a float: `format` is zero-terminated and takes a precision unless `exact`.
fn print_float(format: &[u8; 8], exact: bool, precision: usize, value: f64) -> String {
    // The largest double has 309 digits before the point.
    let mut buffer = vec![0u8; 400 + precision];
    let (to, room, f) = (buffer.as_mut_ptr().cast(), buffer.len(), format.as_ptr().cast());
    // SAFETY: the format is zero-terminated and takes an int unless `exact`, and a double; `room` bytes may be written.
    let written = unsafe {
        if exact {
            libc::snprintf(to, room, f, value)
        } else {
            libc::snprintf(to, room, f, precision as libc::c_int, value)
        }
    };
    buffer.truncate(usize::try_from(written).unwrap_or(0));
    let mut text = String::new();
    // The text is ASCII.
    let _ = write!(text, "{}", String::from_utf8_lossy(&buffer));
    text
}

fn number(reversed: &mut Vec<char>) -> Option<usize> {
    let mut value = None;
    while let Some(c) = reversed.pop_if(|c| c.is_ascii_digit()) {
        let digit = c.to_digit(10).unwrap_or(0) as usize;
        value = Some((value.unwrap_or(0) * 10 + digit).min(MOST_DIGITS));
    }
    value
}

fn group_digits(digits: &mut String, mark: char) {
    let mut at = digits.len();
    while at > 3 {
        at -= 3;
        digits.insert(at, mark);
    }
}

#[cfg(test)]
mod tests {
    use octants_artifact::SiteKind;

    use super::*;

    fn value(kind: ScalarKind, shape: &[u32], format: &str, values: &[u64]) -> String {
        let format = (!format.is_empty()).then(|| format.to_string());
        let part = SitePart::Value { kind, shape: shape.to_vec(), format };
        let site = Site { kind: SiteKind::Print, parts: vec![part], location: String::new() };
        let mut out = String::new();
        render_site(&mut out, &site, values);
        out
    }

    fn float(format: &str, v: f32) -> String {
        value(ScalarKind::F32, &[], format, &[u64::from(v.to_bits())])
    }

    fn int(format: &str, v: i32) -> String {
        // The code does not define the upper half of a slot.
        value(ScalarKind::I32, &[], format, &[u64::from(v as u32) | 0xdead << 40])
    }

    #[test]
    fn scalars_without_format() {
        assert_eq!(float("", 1.5), "1.500000");
        assert_eq!(float("", 1e30), "1000000015047466219876688855040.000000");
        assert_eq!(float("", f32::INFINITY), "inf");
        assert_eq!(float("", f32::NEG_INFINITY), "-inf");
        assert_eq!(float("", f32::NAN.copysign(-1.0)), "-nan");
        assert_eq!(int("", -7), "-7");
        assert_eq!(value(ScalarKind::F64, &[], "", &[(1.0f64 / 3.0).to_bits()]), "0.333333333333");
        assert_eq!(value(ScalarKind::F16, &[], "", &[u64::from(f16::from_f32(0.1).to_bits())]), "0.099976");
        assert_eq!(value(ScalarKind::U64, &[], "", &[u64::MAX]), "18446744073709551615");
        assert_eq!(value(ScalarKind::U32, &[], "", &[u64::MAX]), "4294967295");
        assert_eq!(value(ScalarKind::U8, &[], "", &[0xff00 + 200]), "200");
        assert_eq!(value(ScalarKind::I8, &[], "", &[253]), "-3");
        assert_eq!(value(ScalarKind::U1, &[], "", &[1]), "1");
    }

    #[test]
    fn tensors_are_nested_lists() {
        let v = [1.0f32, 2.0].map(|x| u64::from(x.to_bits()));
        assert_eq!(value(ScalarKind::F32, &[2], "", &v), "[1.000000, 2.000000]");
        assert_eq!(value(ScalarKind::F32, &[2], ".2f", &v), "[1.00, 2.00]");
        assert_eq!(value(ScalarKind::F32, &[2], "e", &v), "[1.000000e+00, 2.000000e+00]");
        assert_eq!(value(ScalarKind::I32, &[2, 2], "", &[1, 2, 3, 4]), "[[1, 2], [3, 4]]");
        assert_eq!(value(ScalarKind::I32, &[2, 2], ".3d", &[1, 2, 3, 4]), "[[001, 002], [003, 004]]");
        assert_eq!(value(ScalarKind::U1, &[2], "", &[1, 0]), "[1, 0]");
    }

    #[test]
    fn printf_formats() {
        assert_eq!(float(".2f", 1.5), "1.50");
        assert_eq!(float(".2", 1.5), "1.50");
        assert_eq!(float(".1", 1.0), "1.0");
        assert_eq!(float("10.3f", 1.5), "     1.500");
        assert_eq!(float("e", 1.5), "1.500000e+00");
        assert_eq!(float("E", 1.5), "1.500000E+00");
        assert_eq!(float("g", 1.5), "1.5");
        assert_eq!(float("a", 1.5), "0x1.8p+0");
        assert_eq!(float("- #0.2f", 1.5), " 1.50");
        assert_eq!(float("-8.1fx", 1.5), "1.500000"); // Not a format.
        assert_eq!(int("05d", -7), "-0007");
        assert_eq!(int(".10d", -7), "-0000000007");
        assert_eq!(int(".4", -7), "-0007");
        assert_eq!(int("5", -7), "   -7");
        assert_eq!(int("-5d", 7), "7    ");
        assert_eq!(int("+d", 7), "+7");
        assert_eq!(int("- #0.20lli", -7), "-00000000000000000007");
        assert_eq!(value(ScalarKind::U32, &[], "%08x", &[0xbeef]), "0000beef");
        assert_eq!(value(ScalarKind::U32, &[], "#X", &[0xbeef]), "0XBEEF");
        assert_eq!(value(ScalarKind::U64, &[], "o", &[u64::MAX]), "1777777777777777777777");
    }

    #[test]
    fn python_formats() {
        assert_eq!(int(">5", 7), "    7");
        assert_eq!(int("<5", 7), "7    ");
        assert_eq!(int("^5", 7), "  7  ");
        assert_eq!(int("*^5", 7), "**7**");
        assert_eq!(int("b", 5), "101");
        assert_eq!(int(",", 1_234_567), "1,234,567");
        assert_eq!(float(">10.2f", -1.5), "     -1.50");
        assert_eq!(float(",.1f", 12345.5), "12,345.5");
        assert_eq!(float(".1%", 0.25), "25.0%");
        assert_eq!(float("=+8.1f", 1.5), "+    1.5");
    }

    #[test]
    fn floats_in_assertion_messages_follow_python() {
        let text = |kind, format: &str, slot| {
            let format = (!format.is_empty()).then(|| format.to_string());
            let part = SitePart::Value { kind, shape: Vec::new(), format };
            let site = Site { kind: SiteKind::Assert, parts: vec![part], location: String::new() };
            let mut out = String::new();
            render_site(&mut out, &site, &[slot]);
            out
        };
        let float = |format: &str, v: f32| text(ScalarKind::F32, format, u64::from(v.to_bits()));
        assert_eq!(float("", -1.5), "-1.5");
        assert_eq!(float("", 0.1), "0.1");
        assert_eq!(float("", -1e10), "-10000000000.0");
        assert_eq!(float("", 1e20), "1e+20");
        assert_eq!(float("", 2.5e-7), "2.5e-07");
        assert_eq!(float("", f32::NEG_INFINITY), "-inf");
        assert_eq!(float("", f32::NAN), "nan");
        assert_eq!(text(ScalarKind::F64, "", (-0.1f64).to_bits()), "-0.1");
        assert_eq!(float(".2f", 1.5), "1.50");
        assert_eq!(float("8", 1.5), "     1.5");
        assert_eq!(float("d", 1.5), "1.5");
        assert_eq!(text(ScalarKind::I32, ".2f", 3), "3.00");
        assert_eq!(text(ScalarKind::U8, "d", 3), "3");
        assert_eq!(text(ScalarKind::I32, "s", 3), "3");
    }

    #[test]
    fn text_and_missing_values() {
        let parts = vec![
            SitePart::Text("100% ".into()),
            SitePart::Value { kind: ScalarKind::I32, shape: vec![2], format: None },
            SitePart::Text("\n".into()),
        ];
        let site = Site { kind: SiteKind::Print, parts, location: String::new() };
        let mut out = String::new();
        render_site(&mut out, &site, &[4]);
        assert_eq!(out, "100% [4, 0]\n");
    }
}
