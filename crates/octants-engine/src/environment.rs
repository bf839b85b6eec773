//! The only file that reads environment variables. `OCTANTS_<OPTION>` is the default of an option that the program
//! does not set. `QD_<OPTION>` does the same, for programs written for Quadrants.

use std::path::PathBuf;

use crate::config::{self, Config, OptionValue};
use crate::error::Error;

/// Prefix of the variables that set defaults of options.
const OWN: &str = "OCTANTS_";

/// The same for programs written for Quadrants. If both are set, our own prefix wins.
const QUADRANTS: &str = "QD_";

/// Applies every `QD_<OPTION>` and `OCTANTS_<OPTION>` of the environment to `config`, before the program's options.
pub fn apply_environment(config: &mut Config) -> Result<(), Error> {
    [QUADRANTS, OWN].into_iter().try_for_each(|prefix| apply(config, prefix, |name| std::env::var(name).ok()))
}

/// The text of `OCTANTS_ARCH`, or else of `QD_ARCH`.
pub fn requested_arch() -> Option<String> {
    let read = |prefix| std::env::var(format!("{prefix}ARCH")).ok().filter(|text| !text.is_empty());
    [OWN, QUADRANTS].into_iter().find_map(read)
}

/// Whether `QD_DUMP_IR` or `OCTANTS_DUMP_IR` requests the stages of every compiled kernel. Read at each compilation, so
/// that a program may enable it for some kernels.
pub fn dumps_stages() -> bool {
    [QUADRANTS, OWN].iter().any(|prefix| std::env::var(format!("{prefix}DUMP_IR")).is_ok_and(|v| is_on(&v)))
}

/// Variables that make Quadrants run code from files. Ignoring them would run other code than the user has edited.
const REFUSED: &[&str] = &["QD_LOAD_IR"];

/// Variables that make Quadrants print or write internals that Octants does not have.
const WITHOUT_EFFECT: &[&str] = &["QD_DUMP_CFG", "QD_DUMP_SIMPLIFY", "QD_DUMP_AST", "QD_DEBUG_ADSTACK"];

/// Rejects variables that request unsupported behavior. Returns warnings about those without effect.
pub fn check_variables() -> Result<Vec<String>, Error> {
    check(|name| std::env::var(name).is_ok_and(|v| is_on(&v)))
}

fn check(is_set: impl Fn(&str) -> bool) -> Result<Vec<String>, Error> {
    if let Some(name) = REFUSED.iter().find(|name| is_set(name)) {
        let reason = "running kernels from code files is not supported: unset the variable".into();
        return Err(Error::BadOption { name: (*name).into(), reason });
    }
    let told = WITHOUT_EFFECT.iter().filter(|name| is_set(name));
    Ok(told
        .map(|name| format!("{name} has no effect here: QD_DUMP_IR=1 writes the stages of compiled kernels"))
        .collect())
}

fn is_on(text: &str) -> bool {
    !text.is_empty() && text != "0"
}

/// Whether a variable turns something off.
pub fn is_off(variable: &str) -> bool {
    std::env::var(variable).is_ok_and(|v| v == "0")
}

fn apply(config: &mut Config, prefix: &str, read: impl Fn(&str) -> Option<String>) -> Result<(), Error> {
    for name in config::names() {
        let variable = format!("{prefix}{}", name.to_uppercase());
        let Some(text) = read(&variable) else { continue };
        // Plain Python is not a device: the package queries it by `requested_arch`.
        if text.is_empty() || (name == "arch" && text == "python") {
            continue;
        }
        config.set(name, &meant(name, parse(&text))).map_err(|e| match e {
            Error::BadOption { reason, .. } => Error::BadOption { name: variable, reason },
            other => other,
        })?;
    }
    Ok(())
}

/// A width alone names the default type of that width.
fn meant(option: &str, value: OptionValue) -> OptionValue {
    match (option, value) {
        ("default_fp", OptionValue::Int(bits)) => OptionValue::Str(format!("f{bits}")),
        ("default_ip", OptionValue::Int(bits)) => OptionValue::Str(format!("i{bits}")),
        (_, value) => value,
    }
}

/// The folders in those of these variables that are set.
pub fn folders(variables: &[&str]) -> Vec<PathBuf> {
    variables.iter().filter_map(std::env::var_os).filter(|v| !v.is_empty()).map(PathBuf::from).collect()
}

/// The user's cache folder, according to the XDG base directory specification.
pub fn user_cache_folder() -> Option<PathBuf> {
    cache_folder_of(|name| std::env::var_os(name).map(PathBuf::from))
}

fn cache_folder_of(read: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    // The specification demands that relative paths are ignored.
    let absolute = |name| read(name).filter(|p| p.is_absolute());
    absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))
}

/// Parses a variable's text as the value that it looks like.
fn parse(text: &str) -> OptionValue {
    match text.to_lowercase().as_str() {
        "true" | "on" | "yes" => return OptionValue::Bool(true),
        "false" | "off" | "no" => return OptionValue::Bool(false),
        _ => {}
    }
    if let Ok(i) = text.parse::<i64>() {
        return OptionValue::Int(i);
    }
    match text.parse::<f64>() {
        Ok(x) => OptionValue::Float(x),
        Err(_) => OptionValue::Str(text.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Backends;

    #[test]
    fn variables_set_options_of_every_kind() {
        let mut config = Config::new(Backends::default());
        let vars = [("OCTANTS_DEBUG", "1"), ("OCTANTS_CPU_MAX_NUM_THREADS", "2"), ("OCTANTS_DEFAULT_FP", "f64")];
        apply(&mut config, OWN, |n| vars.iter().find(|(k, _)| *k == n).map(|(_, v)| (*v).to_string())).expect("valid");
        assert!(config.debug);
        assert_eq!(config.cpu_max_num_threads, 2);
        assert_eq!(config.default_fp.name(), "f64");
    }

    #[test]
    fn unsupported_variables_are_reported() {
        assert_eq!(check(|_| false), Ok(vec![]));
        let told = check(|name| name == "QD_DUMP_CFG").expect("a notice");
        assert_eq!(told, ["QD_DUMP_CFG has no effect here: QD_DUMP_IR=1 writes the stages of compiled kernels"]);
        let refused = check(|name| name == "QD_LOAD_IR").unwrap_err().to_string();
        assert!(refused.contains("QD_LOAD_IR") && refused.contains("is not supported"), "{refused}");
        assert!(is_on("1") && !is_on("0") && !is_on(""));
    }

    #[test]
    fn quadrants_variables_are_recognized_by_their_prefix() {
        let mut config = Config::new(Backends::default());
        let vars =
            [("QD_DEFAULT_FP", "64"), ("QD_DEFAULT_IP", "64"), ("QD_MAX_BLOCK_DIM", "64"), ("OCTANTS_DEBUG", "1")];
        let read = |n: &str| vars.iter().find(|(k, _)| *k == n).map(|(_, v)| (*v).to_string());
        apply(&mut config, QUADRANTS, read).expect("valid");
        assert_eq!(config.get("max_block_dim"), Some(OptionValue::Int(64)));
        assert_eq!((config.default_fp.name(), config.default_ip.name(), config.debug), ("f64", "i64", false));
    }

    #[test]
    fn the_cache_folder_follows_the_xdg_specification() {
        let with = |xdg: Option<&str>, home: Option<&str>| {
            cache_folder_of(|n| if n == "HOME" { home } else { xdg }.map(PathBuf::from))
        };
        assert_eq!(with(Some("/c"), Some("/h")), Some("/c".into()));
        assert_eq!(with(Some("c"), Some("/h")), Some("/h/.cache".into()));
        assert_eq!(with(None, Some("/h")), Some("/h/.cache".into()));
        assert_eq!(with(Some(""), Some("")), None);
        assert_eq!(with(None, None), None);
    }

    #[test]
    fn an_invalid_variable_is_named() {
        let mut config = Config::new(Backends::default());
        let e =
            apply(&mut config, OWN, |n| (n == "OCTANTS_OPT_LEVEL").then(|| "fast".to_string())).expect_err("invalid");
        assert!(e.to_string().contains("OCTANTS_OPT_LEVEL"), "{e}");
    }
}
