//! The only file that reads environment variables: `OCTANTS_<OPTION>` gives the default of an option that the program
//! does not set itself.

use std::path::PathBuf;

use crate::config::{self, Config, OptionValue};
use crate::error::Error;

/// Applies every `OCTANTS_<OPTION>` of the environment to `config`.
pub fn apply_environment(config: &mut Config) -> Result<(), Error> {
    apply(config, |name| std::env::var(name).ok())
}

fn apply(config: &mut Config, read: impl Fn(&str) -> Option<String>) -> Result<(), Error> {
    for option in config::OPTIONS {
        let variable = format!("OCTANTS_{}", option.name.to_uppercase());
        let Some(text) = read(&variable) else { continue };
        if text.is_empty() {
            continue;
        }
        config.set(option.name, &parse(&text)).map_err(|e| match e {
            Error::BadOption { reason, .. } => Error::BadOption { name: variable, reason },
            other => other,
        })?;
    }
    Ok(())
}

/// The folders that these variables name, as far as they are set.
pub fn folders(variables: &[&str]) -> Vec<PathBuf> {
    variables.iter().filter_map(std::env::var_os).filter(|v| !v.is_empty()).map(PathBuf::from).collect()
}

/// The folder in which programs of this user keep what they can make again, as the XDG base directory specification has it.
pub fn user_cache_folder() -> Option<PathBuf> {
    cache_folder_of(|name| std::env::var_os(name).map(PathBuf::from))
}

fn cache_folder_of(read: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    // The specification has relative paths ignored.
    let absolute = |name| read(name).filter(|p| p.is_absolute());
    absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))
}

/// A variable's text as the value that it reads like.
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
        apply(&mut config, |n| vars.iter().find(|(k, _)| *k == n).map(|(_, v)| (*v).to_string())).expect("valid");
        assert!(config.debug);
        assert_eq!(config.cpu_max_num_threads, 2);
        assert_eq!(config.default_fp.name(), "f64");
    }

    #[test]
    fn the_cache_folder_is_that_of_the_specification() {
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
    fn a_bad_variable_is_named() {
        let mut config = Config::new(Backends::default());
        let e = apply(&mut config, |n| (n == "OCTANTS_OPT_LEVEL").then(|| "fast".to_string())).expect_err("invalid");
        assert!(e.to_string().contains("OCTANTS_OPT_LEVEL"), "{e}");
    }
}
