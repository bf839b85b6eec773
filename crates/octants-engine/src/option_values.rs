//! Option values: checks the value that the user gave, and returns it as the user reads it back.

use octants_ir::Scalar;

use crate::arch::Arch;
use crate::backend::Backends;
use crate::error::Error;
use crate::suggest::nearest;

/// An option value as given by the user.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum OptionValue {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(String),
}

/// Converts the value of an option to the form in which users give it.
pub trait ToValue {
    fn to_value(&self) -> OptionValue;
}

impl ToValue for bool {
    fn to_value(&self) -> OptionValue {
        OptionValue::Bool(*self)
    }
}

impl ToValue for u8 {
    fn to_value(&self) -> OptionValue {
        OptionValue::Int((*self).into())
    }
}

impl ToValue for u32 {
    fn to_value(&self) -> OptionValue {
        OptionValue::Int((*self).into())
    }
}

impl ToValue for u64 {
    fn to_value(&self) -> OptionValue {
        OptionValue::Int(*self as i64)
    }
}

impl ToValue for f64 {
    fn to_value(&self) -> OptionValue {
        OptionValue::Float(*self)
    }
}

impl ToValue for String {
    fn to_value(&self) -> OptionValue {
        OptionValue::Str(self.clone())
    }
}

impl ToValue for Scalar {
    fn to_value(&self) -> OptionValue {
        OptionValue::Str(self.name().to_string())
    }
}

impl ToValue for Arch {
    fn to_value(&self) -> OptionValue {
        OptionValue::Str(self.name().to_string())
    }
}

impl<T: ToValue> ToValue for Option<T> {
    fn to_value(&self) -> OptionValue {
        self.as_ref().map_or(OptionValue::None, T::to_value)
    }
}

fn bad<T>(name: &str, reason: String) -> Result<T, Error> {
    Err(Error::BadOption { name: name.to_string(), reason })
}

pub fn flag(name: &str, value: &OptionValue) -> Result<bool, Error> {
    match value {
        OptionValue::Bool(b) => Ok(*b),
        OptionValue::Int(i @ (0 | 1)) => Ok(*i == 1),
        other => bad(name, format!("expected True or False, got {}", show(other))),
    }
}

/// An integer between two bounds, within the range of the option's type.
pub fn int<T: TryFrom<i64>>(low: i64, high: i64) -> impl Fn(&str, &OptionValue) -> Result<T, Error> {
    move |name, value| match value {
        OptionValue::Int(i) if (low..=high).contains(i) => match T::try_from(*i) {
            Ok(fits) => Ok(fits),
            Err(_) => unreachable!("compiler bug: the bounds of `{name}` have another type"),
        },
        OptionValue::Int(i) => bad(name, format!("{i} is not between {low} and {high}")),
        other => bad(name, format!("expected an integer, got {}", show(other))),
    }
}

pub fn device(name: &str, value: &OptionValue) -> Result<Option<u32>, Error> {
    int(0, 1 << 16)(name, value).map(Some)
}

/// Comma-separated nonnegative numbers. From the environment, a single number arrives as an integer.
pub fn numbers(name: &str, value: &OptionValue) -> Result<String, Error> {
    let text = match value {
        OptionValue::Int(i) => i.to_string(),
        other => text(name, other)?,
    };
    match text.split(',').find(|n| n.trim().parse::<u32>().is_err()) {
        Some(wrong) if !text.trim().is_empty() => {
            bad(name, format!("expected comma-separated numbers, such as `2,0`, got `{}`", wrong.trim()))
        }
        _ => Ok(text),
    }
}

/// Any integer; a negative one is reinterpreted as unsigned.
pub fn seed(name: &str, value: &OptionValue) -> Result<u64, Error> {
    int(i64::MIN, i64::MAX)(name, value).map(i64::cast_unsigned)
}

/// A number between 0 and 1.
pub fn part(name: &str, value: &OptionValue) -> Result<f64, Error> {
    let part = match value {
        OptionValue::Int(i) => *i as f64,
        OptionValue::Float(x) => *x,
        other => return bad(name, format!("expected a number, got {}", show(other))),
    };
    if (0.0..=1.0).contains(&part) { Ok(part) } else { bad(name, format!("{part} is not between 0 and 1")) }
}

pub fn text(name: &str, value: &OptionValue) -> Result<String, Error> {
    match value {
        OptionValue::Str(s) => Ok(s.clone()),
        other => bad(name, format!("expected a string, got {}", show(other))),
    }
}

/// One of several words, case-insensitive.
pub fn choice(choices: &[&'static str]) -> impl Fn(&str, &OptionValue) -> Result<String, Error> {
    move |name, value| {
        let text = match value {
            OptionValue::Str(s) => s.to_lowercase(),
            // The environment's reader takes "off" for a boolean.
            OptionValue::Bool(false) if choices.contains(&"off") => String::from("off"),
            other => return bad(name, format!("expected one of {}, got {}", choices.join(", "), show(other))),
        };
        if choices.contains(&text.as_str()) {
            return Ok(text);
        }
        let hint =
            nearest(&text, choices.iter().copied()).map(|s| format!(" (did you mean `{s}`?)")).unwrap_or_default();
        bad(name, format!("`{text}` is not one of {}{hint}", choices.join(", ")))
    }
}

/// Empty, or `seed:` followed by a number.
pub fn schedule(name: &str, value: &OptionValue) -> Result<String, Error> {
    match value {
        OptionValue::Str(s) if s.is_empty() => Ok(String::new()),
        OptionValue::Str(s) if s.strip_prefix("seed:").is_some_and(|n| n.parse::<u64>().is_ok()) => Ok(s.clone()),
        other => bad(name, format!("expected `seed:` and a number, got {}", show(other))),
    }
}

pub fn scalar(allowed: &[Scalar]) -> impl Fn(&str, &OptionValue) -> Result<Scalar, Error> {
    let names: Vec<&'static str> = allowed.iter().map(|s| s.name()).collect();
    move |name, value| {
        let text = choice(&names)(name, value)?;
        Ok(Scalar::from_name(&text).expect("compiler bug: the choices are scalar names"))
    }
}

/// An arch by one of its names.
pub fn arch(backends: Backends) -> impl Fn(&str, &OptionValue) -> Result<Arch, Error> {
    move |name, value| {
        let arches = backends.arches();
        let names: Vec<&'static str> = arches.iter().map(|(n, _)| *n).collect();
        let text = choice(&names)(name, value)?;
        let found = arches.iter().find(|(n, _)| *n == text).map(|(_, arch)| *arch);
        Ok(found.expect("compiler bug: the choices are arch names"))
    }
}

fn show(value: &OptionValue) -> String {
    match value {
        OptionValue::None => String::from("None"),
        OptionValue::Bool(true) => String::from("True"),
        OptionValue::Bool(false) => String::from("False"),
        OptionValue::Int(i) => i.to_string(),
        OptionValue::Float(x) => x.to_string(),
        OptionValue::Str(s) => format!("'{s}'"),
    }
}
