//! Text with run-time values: f-strings, `str.format`, `print`, assertion messages.

use std::rc::Rc;

use octants_diag::{Code, Diagnostic, Result};
use octants_ir::{Op, Scalar, TextPart, Type, ValueId};

use super::Lowerer;
use crate::arith::type_name;
use crate::ast::FPart;
use crate::value::Value;
use crate::world::Entity;

impl Lowerer<'_> {
    pub(super) fn lower_fstring(&mut self, parts: &[FPart]) -> Result<Value> {
        let mut out = Vec::new();
        for part in parts {
            match part {
                FPart::Text(t) => push_text(&mut out, t),
                FPart::Value(e, spec) => {
                    let v = self.lower_expr(e)?;
                    self.push_field(&mut out, &v, spec.as_deref())?;
                }
            }
        }
        Ok(finish(out))
    }

    /// The pieces that `print(v)` or a message consists of.
    pub(super) fn text_of(&mut self, v: &Value) -> Result<Vec<TextPart>> {
        let mut out = Vec::new();
        self.push_value(&mut out, v, None)?;
        Ok(out)
    }

    /// A replacement field. A constant without a specification is Python's text of it; the conversion of others fits
    /// their type.
    fn push_field(&mut self, out: &mut Vec<TextPart>, v: &Value, spec: Option<&str>) -> Result<()> {
        if spec.is_none()
            && matches!(v, Value::Float(_) | Value::Bool(_) | Value::Tuple(_) | Value::List(_))
            && v.is_compile_time()
            && let Some(obj) = self.to_host(v)
        {
            let text = self.world.format(obj, "").map_err(|e| self.host_error(e))?;
            push_text(out, &text);
            return Ok(());
        }
        let first = out.len();
        self.push_value(out, v, spec)?;
        for part in out.get(first.saturating_sub(1)..).unwrap_or_default() {
            if let TextPart::Value(value, Some(spec)) = part {
                self.check_conversion(*value, spec)?;
            }
        }
        Ok(())
    }

    /// If the last letter of a specification is a `printf` conversion, it must match the type of the printed number. In
    /// assertion messages, a mismatch is ignored, because the message matters more.
    fn check_conversion(&self, value: ValueId, spec: &str) -> Result<()> {
        if self.in_assertion {
            return Ok(());
        }
        let Some(scalar) = self.b.ty(value).scalar() else { return Ok(()) };
        let fits = match spec.chars().last() {
            Some(c @ ('c' | 's' | 'n' | 'p')) => {
                return self.err(Code::Type, format!("conversion '{c}' is not supported."));
            }
            Some('d' | 'i') => scalar.is_signed(),
            Some('o' | 'x' | 'X' | 'u') => !scalar.is_float() && !scalar.is_signed(),
            Some('f' | 'F' | 'e' | 'E' | 'a' | 'A' | 'g' | 'G') => scalar.is_float(),
            Some(c) if !c.is_ascii_digit() => {
                return self.err(Code::Type, format!("'{spec}' is not a valid number format."));
            }
            _ => true,
        };
        if fits {
            return Ok(());
        }
        let message = format!("'{spec}' doesn't match '{scalar}'.");
        Err(Diagnostic::new(Code::Type, self.b.span, message).with_hint(
            "`d` and `i` are for signed integers, `u`, `x`, `X` and `o` for unsigned ones, `f`, `e`, `g` and `a` for \
             floats: convert the value with `qd.cast`",
        ))
    }

    fn push_value(&mut self, out: &mut Vec<TextPart>, v: &Value, spec: Option<&str>) -> Result<()> {
        match v {
            Value::Text(parts) => {
                for p in parts.iter() {
                    match p {
                        TextPart::Text(t) => push_text(out, t),
                        other => out.push(other.clone()),
                    }
                }
            }
            Value::Str(s) if spec.is_none() => push_text(out, s),
            v if self.static_depth > 0 && v.is_compile_time() && self.to_host(v).is_some() => {
                let obj = self.to_host(v).expect("compiler bug: the object was there");
                let text = self.world.format(obj, spec.unwrap_or("")).map_err(|e| self.host_error(e))?;
                push_text(out, &text);
            }
            Value::Tuple(items) | Value::List(items) | Value::Static(items) => {
                push_text(out, "[");
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        push_text(out, ", ");
                    }
                    self.push_value(out, item, spec)?;
                }
                push_text(out, "]");
            }
            Value::Int(_) | Value::Float(_) | Value::Bool(_) => {
                let rt = match v {
                    Value::Int(i) if i64::try_from(*i).is_ok() && i32::try_from(*i).is_err() => {
                        self.b.int(*i as i64, octants_ir::Scalar::I64)
                    }
                    _ => self.rt(v)?,
                };
                out.push(TextPart::Value(rt, spec.map(str::to_owned)));
            }
            _ => match self.try_rt(v)? {
                Some(rt) if matches!(self.b.ty(rt), Type::Struct(_)) => {
                    let members = self.member_values(&Value::Rt(rt))?;
                    push_text(out, "{");
                    for (i, (name, m)) in members.iter().enumerate() {
                        push_text(out, &format!("{}{name}: ", if i > 0 { ", " } else { "" }));
                        self.push_value(out, m, spec)?;
                    }
                    push_text(out, "}");
                }
                Some(rt) => out.push(TextPart::Value(rt, spec.map(str::to_owned))),
                None => {
                    let is_memory = |l: &Self, o| {
                        let entity = l.world.entity(o);
                        matches!(entity, Entity::Field(_) | Entity::ReorderedField { .. } | Entity::Ndarray(_))
                    };
                    let Some(obj) = self.to_host(v).filter(|o| !is_memory(self, *o)) else {
                        return Err(self.not_a_value(v, "cannot be printed: print its elements"));
                    };
                    let text = self.world.format(obj, spec.unwrap_or("")).map_err(|e| self.host_error(e))?;
                    push_text(out, &text);
                }
            },
        }
        Ok(())
    }

    /// `print(*values, sep=, end=)`.
    pub(super) fn lower_print(&mut self, args: &[Value], kwargs: &[(String, Value)]) -> Result<()> {
        let (mut sep, mut end) = (String::from(" "), String::from("\n"));
        for (name, v) in kwargs {
            let (Value::Str(s), "sep" | "end") = (v, name.as_str()) else {
                return self.err(
                    Code::Type,
                    "`print` takes only the keyword arguments `sep` and `end`, which must be constant strings",
                );
            };
            if name == "sep" { sep = s.to_string() } else { end = s.to_string() }
        }
        let mut out = Vec::new();
        for (i, v) in args.iter().enumerate() {
            if i > 0 {
                push_text(&mut out, &sep);
            }
            self.push_value(&mut out, v, None)?;
        }
        push_text(&mut out, &end);
        self.b.push(Op::Print(out), Type::Unit);
        Ok(())
    }

    /// `"..." % values`.
    pub(super) fn format_percent(&mut self, pattern: &str, values: &Value) -> Result<Value> {
        let values = match values {
            Value::Tuple(items) => items.to_vec(),
            one => vec![one.clone()],
        };
        let mut values = values.iter();
        let mut out = Vec::new();
        let mut rest = pattern;
        while let Some(at) = rest.find('%') {
            push_text(&mut out, &rest[..at]);
            let tail = &rest[at + 1..];
            if let Some(after) = tail.strip_prefix('%') {
                push_text(&mut out, "%");
                rest = after;
                continue;
            }
            let Some(len) = tail.find(|c: char| c.is_ascii_alphabetic()) else {
                return self.err(Code::Syntax, "incomplete `%` in a format string");
            };
            let Some(v) = values.next() else { return self.err(Code::Type, "not enough arguments for format string") };
            let spec = &tail[..=len];
            let v = &self.percent_operand(v.clone(), spec)?;
            self.push_value(&mut out, v, Some(spec).filter(|s| *s != "s" && *s != "d"))?;
            rest = &tail[len + 1..];
        }
        push_text(&mut out, rest);
        match values.next() {
            Some(_) => self.err(Code::Type, "not all arguments converted during string formatting"),
            None => Ok(finish(out)),
        }
    }

    /// A value as Python's `%` formats it: `d` truncates floats, and `x` and `o` are for integers.
    fn percent_operand(&mut self, v: Value, spec: &str) -> Result<Value> {
        let truncates = spec.ends_with(['d', 'i', 'u']);
        if !truncates && !spec.ends_with(['x', 'X', 'o', 'c']) {
            return Ok(v);
        }
        let v = self.plain(v);
        if let (Value::Bool(b), true) = (&v, truncates) {
            return Ok(Value::Int(i128::from(*b)));
        }
        let Some(Type::Scalar(found)) = self.runtime_type(&v) else { return Ok(v) };
        if !found.is_float() {
            return Ok(v);
        }
        if truncates {
            return self.cast_value(&v, Scalar::I64).map(Value::Rt);
        }
        let text = format!("`%{spec}` is for integers, not for {}", type_name(&Type::Scalar(found)));
        Err(Diagnostic::new(Code::Type, self.b.span, text).with_hint("convert the value with `int(x)`"))
    }

    /// `"...".format(...)`.
    pub(super) fn format_string(&mut self, pattern: &str, args: &[Value], kwargs: &[(String, Value)]) -> Result<Value> {
        let mut out = Vec::new();
        let mut rest = pattern;
        let mut next = 0usize;
        let mut used = vec![false; args.len()];
        let mut used_names = vec![false; kwargs.len()];
        while let Some(at) = rest.find(['{', '}']) {
            push_text(&mut out, &rest[..at]);
            let tail = &rest[at..];
            if tail.starts_with("{{") || tail.starts_with("}}") {
                push_text(&mut out, &tail[..1]);
                rest = &tail[2..];
                continue;
            }
            let (true, Some(close)) = (tail.starts_with('{'), tail.find('}')) else {
                return self.err(Code::Syntax, "single '{' or '}' in a format string");
            };
            let (name, spec) = match tail[1..close].split_once(':') {
                Some((n, s)) => (n, Some(s)),
                None => (&tail[1..close], None),
            };
            let v = if name.is_empty() {
                next += 1;
                next - 1
            } else if let Ok(i) = name.parse() {
                i
            } else {
                match kwargs.iter().position(|(n, _)| n == name) {
                    Some(i) => {
                        used_names[i] = true;
                        let v = kwargs[i].1.clone();
                        self.push_field(&mut out, &v, spec.filter(|s| !s.is_empty()))?;
                        rest = &tail[close + 1..];
                        continue;
                    }
                    None => return self.err(Code::Syntax, format!("Keyword '{name}' not found.")),
                }
            };
            let Some(arg) = args.get(v) else {
                return self.err(
                    Code::Syntax,
                    format!("Expected {} positional argument(s), but received {} instead.", v + 1, args.len()),
                );
            };
            used[v] = true;
            self.push_field(&mut out, &arg.clone(), spec.filter(|s| !s.is_empty()))?;
            rest = &tail[close + 1..];
        }
        push_text(&mut out, rest);
        if let Some(unused) = used.iter().position(|u| !u) {
            return self.err(
                Code::Syntax,
                format!("Expected {unused} positional argument(s), but received {} instead.", args.len()),
            );
        }
        if let Some(i) = used_names.iter().position(|u| !u) {
            return self.err(Code::Syntax, format!("Keyword '{}' not used.", kwargs[i].0));
        }
        Ok(finish(out))
    }
}

fn push_text(out: &mut Vec<TextPart>, text: &str) {
    match out.last_mut() {
        Some(TextPart::Text(t)) => t.push_str(text),
        _ if text.is_empty() => {}
        _ => out.push(TextPart::Text(text.to_owned())),
    }
}

fn finish(out: Vec<TextPart>) -> Value {
    match &out[..] {
        [] => Value::str(""),
        [TextPart::Text(t)] => Value::str(t),
        _ => Value::Text(Rc::new(out)),
    }
}
